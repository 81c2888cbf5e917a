"""The reader's `my_transformer.py`: find it, run it in the sandbox, train it and let it write."""

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
NATS = "nats a letter"  # the unit in most steps
MISSING = "a function that it needs is not written yet"


def find_file(path: str | Path = OWN_FILE) -> Path:
    "The file of that name, here or up to three folders above; `InputError` if there isn't one."
    path, here = Path(path), Path.cwd()
    if os.path.lexists(path):
        return path
    above = () if path.is_absolute() else (folder / path for folder in here.parents[:3])
    found = next((one for one in above if one.is_file()), None)
    if found is None:
        raise InputError(
            f"There is no {path} here or in the three folders above. "
            "To create one with empty functions: transformer-lit check --start"
        )
    return found


def run_file(path: Path, prints: io.StringIO) -> tuple[dict[str, Any], ast.Module]:
    """The names that a file defines, and its syntax tree; `InputError` if it doesn't run.

    `prints` collects what the file prints.
    """
    if path.suffix == ".ipynb":
        raise InputError("it is a notebook. Copy your functions to a Python file and check that")
    linecache.checkcache(str(path))  # so that a verdict quotes the current lines
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
    missing = "when it is imported, it calls a function that is not written yet"
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
    """Write the source of an answer into the reader's file, and return a line that reports it.

    A function or class of that name is replaced; otherwise the source is added at the end. If it
    can't be written, the line gives the reason, and the file isn't changed.
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
    "The source of a function or class, even from a notebook; `InputError` if there isn't any."
    codes = [getattr(one, "__code__", None) for one in (answer, *vars(answer).values())]
    files = [code.co_filename for code in codes if code is not None]
    text = "".join(linecache.getlines(files[0])) if files else ""
    for node in ast.parse(text).body:
        if getattr(node, "name", "") == name:
            return ast.get_source_segment(text, node)
    raise InputError("its source can't be found under that name. Copy it by hand")


@contextmanager
def _running(prints: io.StringIO, missing: str = MISSING) -> Iterator[None]:
    "Run the reader's program inside, in single precision; if it fails, `InputError` says why."
    try:
        with sandbox.sealed(), watched(prints):
            torch.set_default_dtype(torch.float32)  # as outside the checks
            yield
    except NotImplementedError:
        raise InputError(missing) from None
    except Found as found:
        raise InputError(found.line) from None


def load_mine(*names: str, path: str | Path = OWN_FILE) -> Any:
    """Load what you wrote under these names in your file; several names give a list.

    If the file isn't here, up to three folders above are searched. `InputError` if it can't be read
    or run, or doesn't define a name.
    """
    found = find_file(path)
    try:
        own, _ = run_file(found, io.StringIO())
    except InputError as error:
        raise InputError(f"{found.name}: {error}") from None
    if missing := [name for name in names if name not in own]:
        raise InputError(f"{found.name} has no {', '.join(missing)}. Write it there first")
    parts = [own[name] for name in names]
    return parts[0] if len(names) == 1 else parts


def _letters(text: str) -> tuple[dict[str, int], Tensor]:
    "The id of each letter in a text, and the text as ids of shape N."
    place = {letter: i for i, letter in enumerate(sorted(set(text)))}
    return place, torch.tensor([place[letter] for letter in text])


# --- the model that grows, built from the parts that the reader has written -----------------------


@dataclass(frozen=True)
class Scale:
    """How large a reader's model is, what it reads, and how it is trained.

    `texts`: returns the stories of a split. `rows`, `row`: stories per step, and letters in each.
    `plain`, `final`: steps and learning rate before the reader has written `train`, and after, when
    there are 20 steps of warm-up. `count`: new stories that it is evaluated on. `length`: letters
    in a sample.
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
        "Steps and learning rate for a file with these parts."
        return self.final if "train" in parts else self.plain


@functools.cache
def _stories(split: str) -> list[str]:
    return load_text("stories", split).split("\n")


@functools.cache
def _beginnings(split: str) -> list[str]:
    "The beginnings of stories, for the model in the page, which is slow because it runs in Python."
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
GROUP = 2  # query heads per key/value head, once heads are grouped
PARTS = {  # the parts of a file in the order of the steps, and the argument that each one needs
    **{"loss": "", "generate": "", "attend": "", "causal_mask": "attend.mask", "MultiHead": ""},
    **{"rotate": "MultiHead.position", "RMSNorm": "", "SwiGLU": "", "Block": "", "Decoder": ""},
    **{"Cache": "Decoder.forward.caches", "repeat_heads": "Decoder.n_kv_heads", "train": ""},
}


def solved_file(n: int) -> str:
    "The reader's file with the book's solutions to the first n steps."
    steps = importlib.import_module("transformer_lit.exercises.my_transformer")
    return steps.solved_file(n)


@functools.cache
def _learned_text(texts: Callable[[str], list[str]]) -> tuple[dict[str, int], Tensor]:
    return _letters("\n".join(["", *texts("train")]))


class Stories:
    "Stories as ids of letters, each after a line break, with `count` held-out stories."

    def __init__(self, scale: Scale, count: int) -> None:
        self.scale, self.held_out = scale, scale.texts("val")[:count]
        self.place, self._ids = _learned_text(scale.texts)
        (starts,) = (self._ids == self.place["\n"]).nonzero(as_tuple=True)
        self._starts = starts[starts + scale.row < len(self._ids)]

    def batches(self, progress: Callable[[], Any]) -> Iterator[tuple[Tensor, Tensor]]:
        "Batches without end: rows that begin with a story, and the letter after each letter."
        while True:
            picked = torch.randint(len(self._starts), (self.scale.rows, 1))
            rows = self._ids[self._starts[picked] + torch.arange(self.scale.row + 1)]  # B T+1
            yield rows[:, :-1], rows[:, 1:]
            progress()

    def read(self, stories: list[str]) -> tuple[Tensor, Tensor]:
        "Ids of shape B T, and the id after each one; −1 where a story has ended."
        ids = [torch.tensor([self.place[letter] for letter in f"\n{one}\n"]) for one in stories]
        rows = nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=-1)
        return rows[:, :-1].clamp(min=0), rows[:, 1:]

    def text(self, ids: Tensor) -> str:
        "The text of ids of shape T."
        return "".join([*self.place][i] for i in ids.tolist())


class OneHead(nn.Module):
    "Replaces a missing `MultiHead`: one head with the reader's `attend`, on B 1 T D."

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
    "Replaces a missing `Block`: one part after the other, without residual connections."

    def __init__(self, attn: nn.Module, ffn: nn.Module, attn_norm: nn.Module, ffn_norm: nn.Module):
        super().__init__()
        self.attn, self.ffn, self.attn_norm, self.ffn_norm = attn, ffn, attn_norm, ffn_norm

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.ffn(self.ffn_norm(self.attn(self.attn_norm(x), mask)))


class Frame(nn.Module):
    "Replaces a missing `Decoder`: letter embeddings, layers of the existing parts, logits."

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
    "Build the model from these parts."
    if "Decoder" not in parts:
        return Frame(parts, vocab_size, **sizes)
    more = {"n_kv_heads": sizes["n_heads"] // GROUP} if "repeat_heads" in parts else {}
    return parts["Decoder"](vocab_size, **sizes, **more)


def _learn(
    parts: dict, model: Any, batches: Iterator, steps: int, lr: float, **more: Any
) -> list[float]:
    "Train by the reader's `train`, or by Adam at a constant rate; returns the losses."
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
    "Replaces a missing `generate`: takes the likeliest letter each time."
    for _ in range(max_new_tokens):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
    return ids


def _looks_ahead(model: Any, ids: Tensor) -> bool:
    "Whether changing the last letter changes the model's earlier predictions."
    other = torch.cat([ids[:, :-1], (ids[:, -1:] + 1) % 7], 1)
    return not torch.allclose(model(ids)[:, :-1], model(other)[:, :-1], atol=1e-4)


def _nats(model: Any, stories: Stories) -> float:
    "Nats per letter on new stories, predicting each letter only from the letters before it."
    ids, targets = stories.read(stories.held_out)
    if _looks_ahead(model, ids[:2, :40]):  # then one letter at a time, on fewer stories
        ids, targets = stories.read(stories.held_out[:8])
        logits = torch.stack([model(ids[:, : t + 1])[:, -1] for t in range(ids.shape[1])], 1)
    else:
        logits = torch.cat([model(some) for some in ids.split(20)])
    return cross_entropy(logits[targets >= 0], targets[targets >= 0]).item()


def _takes(own: dict[str, Any], where: str) -> bool:
    "Whether an argument exists: `attend.mask` is the argument `mask` of `attend`."
    name, *method, argument = where.split(".")
    thing = functools.reduce(getattr, method, own.get(name))
    found = sandbox.signature(thing) if callable(thing) else None
    return found is not None and argument in found.parameters


def _try(parts: dict[str, Any], name: str) -> None:
    "Run a tiny model that includes this part; `Found` describes what doesn't fit."
    if not callable(parts[name]):
        raise Found(f"`{name}` is neither a function nor a class.")
    model = build(parts, 11, d_model=16, n_layers=2, n_heads=4, d_ff=12)
    ids = torch.randint(7, (2, 7))
    logits = model(ids)
    if not isinstance(logits, Tensor):
        raise Found(f"The model with it returns {kind_of(logits)}: is a `return` missing?")
    if logits.shape != (2, 7, 11) or not logits.isfinite().all():
        raise Found(f"The logits should be 2 × 7 × 11 finite numbers, but are {_seen(logits)}.")
    flat, targets = logits.flatten(0, 1), ids.flatten()
    value, right = parts.get("loss", cross_entropy)(flat, targets), cross_entropy(flat, targets)
    if not isinstance(value, Tensor) or value.grad_fn is None or value.ndim:
        raise Found(f"The loss must be one number with a gradient, but is {kind_of(value)}.")
    value.backward()
    if not torch.allclose(value, right, atol=1e-3):
        raise Found(f"The loss is {value.item():.2f}, but the mean of −ln p is {right.item():.2f}.")
    if "causal_mask" in parts and _looks_ahead(model, ids):
        raise Found("The model sees the future: the last letter changes what came before it.")
    with torch.no_grad():
        _try_to_write(parts, name, model, ids)
    if name == "train":
        losses = parts[name](model, iter([(ids, ids)] * 2), 2, 1e-3)
        if not isinstance(losses, list) or len(losses) != 2:
            raise Found(f"It should return a list of 2 losses, but returns {kind_of(losses)}.")


def _seen(logits: Tensor) -> str:
    return "not finite" if logits.shape == (2, 7, 11) else " × ".join(map(str, logits.shape))


def _try_to_write(parts: dict[str, Any], name: str, model: Any, ids: Tensor) -> None:
    "The same for the parts that generate text."
    if name == "generate":
        found = parts[name](model, ids, 3)
        if not isinstance(found, Tensor) or found.shape != (2, 10):
            raise Found(f"From 2 × 7 ids it should make 2 × 10 ids, but it made {kind_of(found)}.")
    if name == "Cache":
        caches = [parts[name]() for _ in range(2)]
        two = torch.cat([model(ids[:, :4], caches), model(ids[:, 4:], caches)], 1)
        if not torch.allclose(two, model(ids), atol=1e-4):
            raise Found("A text read in two pieces gives different logits from one read in one.")


def quoted(tree: ast.Module, name: str) -> str:
    "The last line of a definition that returns a result, or else its first line."
    for node in tree.body:
        if getattr(node, "name", "") == name:
            results = [one for one in ast.walk(node) if isinstance(one, ast.Return) and one.value]
            found = max(results, key=lambda one: one.lineno, default=node)
            return f" Line {found.lineno}: {ast.unparse(found).splitlines()[0]}"
    return ""


def fitting(
    path: Path, left_out: list[str], tell: Callable[[str], Any] = lambda name: None
) -> tuple[dict[str, Any], list[str]]:
    """The parts of a file that run together, and a line for each part that doesn't fit.

    `left_out`: parts that aren't tried. `tell` is called with the name of each part that is.
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
        except NotImplementedError:  # this part, or one that it uses, isn't written yet
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
    """Build, train and evaluate a model from a file's parts `used`, and let it write.

    `step`: the step whose own number is measured. `count`, `length` and `how` (`steps` and `lr`)
    replace those of the scale. The result, for JSON: `nats` per letter on new stories, after
    training, and `untrained`, before it; a `sample`, and `first`, the sample before training;
    `learned`, the nats per letter in the last 20 steps; `letters` per second; and `before`, `after`
    and `unit` of the step's own number.
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
                raise Found("The loss ends as nan: some part makes numbers that are too large.")
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
    "The number that a step changes, before and after it. For most steps that is the loss."
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


# --- the race: how much your model learns in a limited time --------------------------------------


@dataclass(frozen=True)
class Lap:
    """One run of the race.

    `bits`: bits per letter on new stories. `seconds`: processor time for the training. `floor`: the
    lowest possible number of bits, because the stories are random.
    """

    bits: float
    seconds: float
    floor: float


def race(path: str | Path = OWN_FILE, *, seconds: float | int = 120, count: int = 500) -> Lap:
    """Train with the `race` in your file, and evaluate the model on `count` new stories.

    `race(ids, n_letters, seconds)` receives a text as N ids and returns a model that maps ids of
    shape B T to logits of shape B T n_letters. `InputError` if it takes more than `seconds` of
    processor time, the model looks ahead, or the code fails. The model reads each story with the
    line break before it.
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
            raise Found(f"race took {spent:.0f} seconds of processor time; {seconds:g} are allowed")
        if isinstance(model, torch.nn.Module):
            model.eval()
        with torch.no_grad():
            seen = held_out[:2, :40].clone()
            before = model(seen)[:, :-1]
            seen[:, -1] = (seen[:, -1] + 1) % len(place)
            if not torch.allclose(model(seen)[:, :-1], before, atol=1e-4):
                raise Found("the model looks ahead: the last letter changes what came before it")
            nats = 0.0
            for part in held_out.split(20):
                logits = model(part[:, :-1].clamp(min=0)).flatten(0, 1).float()
                nats += cross_entropy(logits, part[:, 1:].flatten(), reduction="sum").item()
    n = sum(len(row) - 1 for row in rows)
    return Lap(nats / n / math.log(2), spent, entropy() * len(rows) / n / math.log(2))
