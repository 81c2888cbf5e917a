"""The reader's `my_transformer.py`: found, run in the sandbox, trained and made to write."""

import ast
import functools
import importlib
import io
import linecache
import math
import os
import sys
import time
import types
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from transformer_lit.course import sandbox
from transformer_lit.course.data import load_text
from transformer_lit.course.exercises import kind_of
from transformer_lit.course.files import InputError, read_text, write_text
from transformer_lit.course.sandbox import Found, watched
from transformer_lit.course.stories import entropy, plot_of, stories

OWN_FILE = "my_transformer.py"
NATS = "nats a letter"  # the unit of most steps
MISSING = "a function that it needs is not written yet"


def find_file(path: str | Path = OWN_FILE) -> Path:
    "The file of that name, here or up to three folders above; `InputError` where there is none."
    path, here = Path(path), Path.cwd()
    if os.path.lexists(path):
        return path
    above = () if path.is_absolute() else (folder / path for folder in here.parents[:3])
    found = next((one for one in above if one.is_file()), None)
    if found is None:
        raise InputError(
            f"cannot read {path}: No such file here or up to three folders above; "
            "`transformer-lit check --start` writes an empty one"
        )
    return found


def run_file(path: Path, prints: io.StringIO) -> tuple[dict[str, Any], ast.Module]:
    """The names that a file defines, and its syntax tree; `InputError` where it has none.

    `prints` gets what the file prints.
    """
    if path.suffix == ".ipynb":
        raise InputError("it is a notebook; copy your functions to a Python file and check that")
    linecache.checkcache(str(path))  # the lines that a verdict shows are those of today
    try:
        tree = ast.parse(read_text(path).removeprefix("\ufeff"), str(path))
        code = compile(tree, str(path), "exec")
    except SyntaxError as error:
        where = f" in line {error.lineno}" if error.lineno else ""
        raise InputError(f"syntax error{where}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"Python cannot read it: {type(error).__name__}") from None
    module = types.ModuleType("my_transformer")
    module.__file__ = str(path)
    missing = "it calls a function that is not written yet, when it is imported"
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module  # a dataclass looks for its module there
    try:
        with _running(prints, missing):
            exec(code, vars(module))
    finally:
        sys.modules.pop(module.__name__, None)
        if before is not None:
            sys.modules[module.__name__] = before
    return vars(module), tree


def write_part(answer: Any, name: str, path: str | Path = OWN_FILE) -> str:
    """Write the source of an answer into the reader's file, and give the line that says so.

    Where a function or class of that name is, it is replaced, else it comes at the end. Where it
    cannot be done, the line says why, and nothing is changed.
    """
    try:
        file, source = find_file(path), _source_of(answer, name)
        text = read_text(file)
        place = next((n for n in ast.parse(text).body if getattr(n, "name", "") == name), None)
    except (InputError, SyntaxError) as error:
        return f"It was not written into {path}: {error}"
    lines = text.splitlines()
    first = min([place.lineno, *(d.lineno for d in place.decorator_list)]) - 1 if place else 0
    if place:
        lines[first : place.end_lineno] = source.splitlines()
    else:
        lines += ["", "", *source.splitlines()]
    write_text(file, "\n".join(lines) + "\n")
    return f"It is in {file.name} now."


def _source_of(answer: Any, name: str) -> str:
    "The text of a function or class, in a notebook too; `InputError` where there is none."
    codes = [getattr(one, "__code__", None) for one in (answer, *vars(answer).values())]
    files = [code.co_filename for code in codes if code is not None]
    text = "".join(linecache.getlines(files[0])) if files else ""
    for node in ast.parse(text).body:
        if getattr(node, "name", "") == name:
            return ast.get_source_segment(text, node)
    raise InputError("its source is not to be found under that name; copy it by hand")


@contextmanager
def _running(prints: io.StringIO, missing: str = MISSING) -> Iterator[None]:
    "The reader's program runs inside, in single precision; `InputError` says why it does not."
    try:
        with sandbox.sealed(), watched(prints):
            torch.set_default_dtype(torch.float32)  # as at home
            yield
    except NotImplementedError:
        raise InputError(missing) from None
    except Found as found:
        raise InputError(found.line) from None


def load_mine(*names: str, path: str | Path = OWN_FILE) -> Any:
    """What you wrote under these names, from your file: one name gives one thing, more a list.

    Where the file is not here, it is looked for up to three folders above. `InputError`: it cannot
    be read or run, or a name is not in it.
    """
    found = find_file(path)
    try:
        own, _ = run_file(found, io.StringIO())
    except InputError as error:
        raise InputError(f"{found.name}: {error}") from None
    if missing := [name for name in names if name not in own]:
        raise InputError(f"{found.name} has no {', '.join(missing)}; write it there first")
    parts = [own[name] for name in names]
    return parts[0] if len(names) == 1 else parts


def _letters(text: str) -> tuple[dict[str, int], Tensor]:
    "The id of each letter of a text, and the ids N of the text."
    place = {letter: i for i, letter in enumerate(sorted(set(text)))}
    return place, torch.tensor([place[letter] for letter in text])


# --- the model that grows: made of the parts that the reader has written --------------------------


@dataclass(frozen=True)
class Scale:
    """How large a reader's model is, what it reads, and how it learns.

    `texts`: the stories of a split. `rows`, `row`: stories of a step, and letters of each. `final`:
    from `train` on, with a warm-up of 20 steps. `count`, `length`: new stories that are read,
    letters of a sample.
    """

    sizes: dict[str, int]
    texts: Callable[[str], list[str]]
    rows: int
    row: int
    plain: dict[str, Any]
    final: dict[str, Any]
    count: int
    length: int

    def how(self, parts: Collection[str]) -> dict[str, Any]:
        "Steps and learning rate of a file with these parts."
        return self.final if "train" in parts else self.plain


@functools.cache
def _stories(split: str) -> list[str]:
    return load_text("stories", split).split("\n")


@functools.cache
def _beginnings(split: str) -> list[str]:
    "What the page's model reads, which has Python to multiply with: how stories begin."
    count, seed = (400, 0) if split == "train" else (40, 1)
    return [one[: IN_PAGE.row - 1] for one in stories(count, seed=seed)]


AT_HOME = Scale(
    {"d_model": 64, "n_layers": 3, "n_heads": 4, "d_ff": 172},
    *(_stories, 4, 270, {"steps": 300, "lr": 3e-3}, {"steps": 600, "lr": 6e-3}, 100, 280),
)
IN_PAGE = Scale(
    {"d_model": 16, "n_layers": 1, "n_heads": 4, "d_ff": 32},
    *(_beginnings, 2, 64, {"steps": 300, "lr": 1e-2}, {"steps": 300, "lr": 2e-2}, 40, 63),
)
GROUP = 2  # query heads to a key/value head, once heads are grouped
PARTS = {  # what a file may have, in the order of its steps, and the argument that shows it
    **{"loss": "", "generate": "", "attend": "", "causal_mask": "attend.mask", "MultiHead": ""},
    **{"rotate": "MultiHead.position", "RMSNorm": "", "SwiGLU": "", "Block": "", "Decoder": ""},
    **{"Cache": "Decoder.forward.caches", "repeat_heads": "Decoder.n_kv_heads", "train": ""},
}


def solved_file(n: int) -> str:
    "The reader's file as the book solves it, after the first n steps."
    steps = importlib.import_module("transformer_lit.exercises.my_transformer")
    return steps.solved_file(n)


@functools.cache
def _learned_text(texts: Callable[[str], list[str]]) -> tuple[dict[str, int], Tensor]:
    return _letters("\n".join(["", *texts("train")]))


class Stories:
    "Stories as ids of letters, each after a line break; `count` of the new ones."

    def __init__(self, scale: Scale, count: int) -> None:
        self.scale, self.held_out = scale, scale.texts("val")[:count]
        self.place, self._ids = _learned_text(scale.texts)
        (starts,) = (self._ids == self.place["\n"]).nonzero(as_tuple=True)
        self._starts = starts[starts + scale.row < len(self._ids)]

    def batches(self, progress: Callable[[], Any]) -> Iterator[tuple[Tensor, Tensor]]:
        "Without end: rows that begin where a story does, and what follows each letter of them."
        while True:
            picked = torch.randint(len(self._starts), (self.scale.rows, 1))
            rows = self._ids[self._starts[picked] + torch.arange(self.scale.row + 1)]  # B T+1
            yield rows[:, :-1], rows[:, 1:]
            progress()

    def read(self, stories: list[str]) -> tuple[Tensor, Tensor]:
        "Ids B T, and what follows each of them; −1 where a story has ended."
        ids = [torch.tensor([self.place[letter] for letter in f"\n{one}\n"]) for one in stories]
        rows = nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=-1)
        return rows[:, :-1].clamp(min=0), rows[:, 1:]

    def text(self, ids: Tensor) -> str:
        "The letters of ids T."
        return "".join([*self.place][i] for i in ids.tolist())


class OneHead(nn.Module):
    "Where there is no `MultiHead`: one head, by the reader's `attend`, which gets B 1 T D."

    def __init__(self, attend: Callable[..., Tensor], d_model: int):
        super().__init__()
        self.attend = attend
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(d_model, d_model, bias=False) for _ in range(3)
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (proj(x)[:, None] for proj in (self.q_proj, self.k_proj, self.v_proj))
        return self.attend(q, k, v, *([] if mask is None else [mask]))[:, 0]  # B T C


class Row(nn.Module):
    "Where there is no `Block`: one part after the other, and nothing is added."

    def __init__(self, attn: nn.Module, ffn: nn.Module, attn_norm: nn.Module, ffn_norm: nn.Module):
        super().__init__()
        self.attn, self.ffn, self.attn_norm, self.ffn_norm = attn, ffn, attn_norm, ffn_norm

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.ffn(self.ffn_norm(self.attn(self.attn_norm(x), mask)))


class Frame(nn.Module):
    "Where there is no `Decoder`: a table of letters, layers of the parts that there are, logits."

    def __init__(
        self, parts: dict, vocab_size: int, d_model: int, n_layers: int, n_heads: int, d_ff: int
    ):
        super().__init__()
        self.mask = parts.get("causal_mask")

        def norm() -> nn.Module:
            return parts["RMSNorm"](d_model) if "RMSNorm" in parts else nn.Identity()

        def layer() -> nn.Module:
            more = {"position": parts["rotate"]} if "rotate" in parts else {}
            many = parts.get("MultiHead")
            attn = many(d_model, n_heads, **more) if many else OneHead(parts["attend"], d_model)
            ffn = parts["SwiGLU"](d_model, d_ff) if "SwiGLU" in parts else nn.Identity()
            return parts.get("Block", Row)(attn, ffn, norm(), norm())

        attends = "attend" in parts or "MultiHead" in parts
        depth = (n_layers if "Block" in parts else 1) if attends else 0
        self.tok_emb = nn.Embedding(vocab_size, d_model)
        self.blocks = nn.ModuleList(layer() for _ in range(depth))
        self.norm = norm()
        self.lm_head = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x, T = self.tok_emb(ids), ids.shape[1]
        mask = self.mask(T, T)[None, None] if self.mask else None
        for block in self.blocks:
            if not isinstance(x := block(x, mask), Tensor):
                raise Found(f"A layer returns {kind_of(x)}: is a `return` missing?")
        return self.lm_head(self.norm(x))  # B T V


def build(parts: dict[str, Any], vocab_size: int, **sizes: int) -> nn.Module:
    "The model of these parts."
    if "Decoder" not in parts:
        return Frame(parts, vocab_size, **sizes)
    more = {"n_kv_heads": sizes["n_heads"] // GROUP} if "repeat_heads" in parts else {}
    return parts["Decoder"](vocab_size, **sizes, **more)


def _learn(
    parts: dict, model: Any, batches: Iterator, steps: int, lr: float, **more: Any
) -> list[float]:
    "The losses of a training: by the reader's `train`, or by Adam at one rate."
    if "train" in parts:
        return parts["train"](model, batches, steps, lr, **more)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=lr), []
    for _, (ids, targets) in zip(range(steps), batches):
        value = parts["loss"](model(ids).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def _likeliest(model: Any, ids: Tensor, max_new_tokens: int) -> Tensor:
    "Where there is no `generate`: the likeliest letter each time."
    for _ in range(max_new_tokens):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
    return ids


def _looks_ahead(model: Any, ids: Tensor) -> bool:
    "Whether another last letter changes what the model says before it."
    other = torch.cat([ids[:, :-1], (ids[:, -1:] + 1) % 7], 1)
    return not torch.allclose(model(ids)[:, :-1], model(other)[:, :-1], atol=1e-4)


def _nats(model: Any, stories: Stories) -> float:
    "Nats per letter of new stories, each letter predicted from those before it only."
    ids, targets = stories.read(stories.held_out)
    if _looks_ahead(model, ids[:2, :40]):  # a letter at a time, and fewer stories
        ids, targets = stories.read(stories.held_out[:8])
        logits = torch.stack([model(ids[:, : t + 1])[:, -1] for t in range(ids.shape[1])], 1)
    else:
        logits = torch.cat([model(some) for some in ids.split(20)])
    return cross_entropy(logits[targets >= 0], targets[targets >= 0]).item()


def _takes(own: dict[str, Any], where: str) -> bool:
    "Whether `attend` has the argument `mask`: `attend.mask`; `Decoder.forward.caches`, too."
    name, *method, argument = where.split(".")
    thing = functools.reduce(getattr, method, own.get(name))
    found = sandbox.signature(thing) if callable(thing) else None
    return found is not None and argument in found.parameters


def _try(parts: dict[str, Any], name: str) -> None:
    "Run a tiny model with this part too; `Found` says what does not fit."
    if not callable(parts[name]):
        raise Found(f"`{name}` is no function and no class.")
    model = build(parts, 11, d_model=16, n_layers=2, n_heads=4, d_ff=12)
    ids = torch.randint(7, (2, 7))
    logits = model(ids)
    if not isinstance(logits, Tensor):
        raise Found(f"The model with it returns {kind_of(logits)}: is a `return` missing?")
    if logits.shape != (2, 7, 11) or not logits.isfinite().all():
        raise Found(f"The logits should be 2 × 7 × 11 finite numbers: they are {_seen(logits)}.")
    flat, targets = logits.flatten(0, 1), ids.flatten()
    value, right = parts.get("loss", cross_entropy)(flat, targets), cross_entropy(flat, targets)
    if not isinstance(value, Tensor) or value.grad_fn is None or value.ndim:
        raise Found(f"The loss must be one number with a gradient, and is {kind_of(value)}.")
    value.backward()
    if not torch.allclose(value, right, atol=1e-3):
        raise Found(f"The loss is {value.item():.2f}; the mean of −ln p is {right.item():.2f}.")
    if "causal_mask" in parts and _looks_ahead(model, ids):
        raise Found("The model sees the future: another last letter changes what came before.")
    with torch.no_grad():
        _try_to_write(parts, name, model, ids)
    if name == "train":
        losses = parts[name](model, iter([(ids, ids)] * 2), 2, 1e-3)
        if not isinstance(losses, list) or len(losses) != 2:
            raise Found(f"It should return a list of 2 losses, and returns {kind_of(losses)}.")


def _seen(logits: Tensor) -> str:
    return "not finite" if logits.shape == (2, 7, 11) else " × ".join(map(str, logits.shape))


def _try_to_write(parts: dict[str, Any], name: str, model: Any, ids: Tensor) -> None:
    "The same of what writes."
    if name == "generate":
        found = parts[name](model, ids, 3)
        if not isinstance(found, Tensor) or found.shape != (2, 10):
            raise Found(f"Of 7 ids and 3 more it should return 2 × 10 ids: {kind_of(found)}.")
    if name == "Cache":
        caches = [parts[name]() for _ in range(2)]
        two = torch.cat([model(ids[:, :4], caches), model(ids[:, 4:], caches)], 1)
        if not torch.allclose(two, model(ids), atol=1e-4):
            raise Found("A text that is read in two pieces gives other logits than in one.")


def quoted(tree: ast.Module, name: str) -> str:
    "The line of a definition that its result comes from, else its first."
    for node in tree.body:
        if getattr(node, "name", "") == name:
            results = [one for one in ast.walk(node) if isinstance(one, ast.Return) and one.value]
            found = max(results, key=lambda one: one.lineno, default=node)
            return f" Line {found.lineno}: {ast.unparse(found).splitlines()[0]}"
    return ""


def fitting(
    path: Path, left_out: list[str], tell: Callable[[str], Any] = lambda name: None
) -> tuple[dict[str, Any], list[str]]:
    """The parts of a file that run together, and a line for each that does not.

    `left_out`: parts that are not tried; `tell` is called with each that is.
    """
    tell("its import")
    own, tree = run_file(path, io.StringIO())
    parts, said = {}, []
    for name, needs in PARTS.items():
        if name in left_out or name not in own:
            continue
        if needs and not _takes(own, needs):
            if needs == "attend.mask" and "MultiHead" not in own and "attend" in own:
                line = "`attend` does not take a mask yet."
                said.append(f"{name} is left out. {line}{quoted(tree, 'attend')}")
            continue
        tell(name)
        try:
            with _running(io.StringIO()):
                _try(parts | {name: own[name]}, name)
        except NotImplementedError:  # not written yet, or something that it uses
            continue
        except InputError as error:
            if str(error) != MISSING:
                quote = "" if " Line " in str(error) else quoted(tree, name)
                said.append(f"{name} is left out. {error}{quote}")
            continue
        parts[name] = own[name]
    more = own.get("generate")
    parts |= {"caches": True} if "Cache" in parts and _takes(own, "generate.caches") else {}
    parts |= {"top_p": True} if more and _takes(own, "generate.top_p") else {}
    parts |= {"warmup": True} if "train" in parts and _takes(own, "train.warmup") else {}
    return parts, said


def grow(
    path: Path,
    used: list[str],
    step: int,
    *,
    seed: int = 0,
    progress: Callable[[], Any] = lambda: None,
    scale: Scale = AT_HOME,
    count: int | None = None,
    length: int | None = None,
    **how: Any,
) -> dict[str, Any]:
    """Build, train and measure the model of a file's parts `used`, and let it write.

    `step`: whose own number is measured. `count`, `length` and `how` (`steps` and `lr`): where they
    are not those of the scale. The result, for JSON:
    `nats` per letter on new stories and `untrained`, a `sample` and `first`, the one before the
    training, `learned` nats a letter in the last 20 steps of it, `letters` a second, and `before`,
    `after`, `unit` of the step.
    """
    own, _ = run_file(path, io.StringIO())
    count, length = count or scale.count, length or scale.length
    with _running(io.StringIO()):
        torch.manual_seed(seed)
        parts, stories = {name: own.get(name, True) for name in used}, Stories(scale, count)
        model = build(parts, len(stories.place), **scale.sizes)
        start = torch.full((1, 1), stories.place["\n"])
        write, began = parts.get("generate", _likeliest), time.perf_counter()

        def text(**more: Any) -> str:
            return stories.text(write(model, start, length, **more)[0, 1:])

        found: dict[str, Any] = {"step": step}
        with torch.no_grad():
            model.eval()
            found |= {"untrained": _nats(model, stories), "first": text()}
        how = scale.how(parts) | how
        how |= {"warmup": min(20, how["steps"])} if "warmup" in parts else {}
        model.train()
        if "loss" in parts or "train" in parts:
            losses = _learn(parts, model, stories.batches(progress), **how)[-20:]
            found["learned"] = sum(map(float, losses)) / len(losses)
        found |= {"steps": how["steps"], "rate": how["lr"], "trained": time.perf_counter() - began}
        model.eval()
        with torch.no_grad():
            found["nats"] = _nats(model, stories)
            if not math.isfinite(found["nats"]):
                raise Found("The training ends in nan: some part makes numbers that are too large.")
            began = time.perf_counter()
            more = {"caches": [own["Cache"]() for _ in model.blocks]} if "caches" in parts else {}
            found["sample"] = text(**more)
            found["letters"] = length / (time.perf_counter() - began)
            if more:
                found["kept"] = sum(one.k.numel() + one.v.numel() for one in more["caches"])
            return found | _own_number(parts, model, stories, found, length)


def _own_number(
    parts: dict[str, Any], model: Any, stories: Stories, found: dict[str, Any], length: int
) -> dict[str, Any]:
    "What a step changes, before and after it, where that is not the loss: see the ladder."
    write, step = parts.get("generate", _likeliest), found["step"]
    rows = torch.full((100, 1), stories.place["\n"])
    if step == 2:
        texts = {stories.text(row) for row in write(model, rows[:10], 40)}
        return {"unit": "different texts of 10", "before": 1, "after": len(texts)}
    if step == 12:
        began = time.perf_counter()
        write(model, rows[:1], length)
        slow = length / (time.perf_counter() - began)
        return {"unit": "letters a second", "before": slow, "after": found["letters"]}
    if step == 13:
        whole = found["kept"] * GROUP
        return {"unit": "numbers in the caches", "before": whole, "after": found["kept"]}
    if step >= 15:
        counts = []
        for top_p in (1.0, 0.9):
            caches = [parts["Cache"]() for _ in model.blocks]
            ids = write(model, rows, 50 + length, caches=caches, top_p=top_p)
            texts = [stories.text(row[1:]).split("\n")[0] for row in ids]
            counts.append(sum(plot_of(one) is not None for one in texts))
        return {"unit": "of 100 stories with a plot", "before": counts[0], "after": counts[1]}
    return {"unit": NATS, "before": found["untrained"], "after": found["nats"]}


# --- the race: what your model learns in so many seconds ----------------------------------------


@dataclass(frozen=True)
class Lap:
    """One run of the race.

    `bits`: a letter, on new stories. `seconds`: of the processor, for the training. `floor`: the
    bits that no model can pass, since the stories are drawn.
    """

    bits: float
    seconds: float
    floor: float


def race(path: str | Path = OWN_FILE, *, seconds: float | int = 120, count: int = 500) -> Lap:
    """Train by the `race` of your file, and measure what the model says of `count` new stories.

    `race(ids, n_letters, seconds)` gets a text as N ids and returns a model, from ids B T to logits
    B T n_letters. `InputError`: it took more than `seconds` of the processor, the model looks
    ahead, or the code fails. Each story is read with the line break before it.
    """
    run = load_mine("race", path=path)
    place, ids = _letters(load_text("stories", "train"))
    new = load_text("stories", "val").split("\n")[:count]
    rows = [torch.tensor([place[letter] for letter in f"\n{story}\n"]) for story in new]
    held_out = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)  # B T+1
    with _running(io.StringIO()):
        began = time.process_time()
        model = run(ids, len(place), seconds)
        spent = time.process_time() - began
        if spent > seconds:
            raise Found(f"race took {spent:.0f} seconds of the processor; {seconds:g} are allowed")
        if isinstance(model, torch.nn.Module):
            model.eval()
        with torch.no_grad():
            seen = held_out[:2, :40].clone()
            before = model(seen)[:, :-1]
            seen[:, -1] = (seen[:, -1] + 1) % len(place)
            if not torch.allclose(model(seen)[:, :-1], before, atol=1e-4):
                raise Found("the model looks ahead: another last letter changes what came before")
            nats = 0.0
            for part in held_out.split(20):
                logits = model(part[:, :-1].clamp(min=0)).flatten(0, 1).float()
                nats += cross_entropy(logits, part[:, 1:].flatten(), reduction="sum").item()
    n = sum(len(row) - 1 for row in rows)
    return Lap(nats / n / math.log(2), spent, entropy() * len(rows) / n / math.log(2))
