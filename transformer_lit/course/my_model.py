"""The reader's `my_transformer.py`: found, run in the sandbox, and at the end trained."""

import ast
import io
import linecache
import math
import os
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from transformer_lit.course import sandbox
from transformer_lit.course.data import load_text
from transformer_lit.course.files import InputError, read_text
from transformer_lit.course.sandbox import Found, watched
from transformer_lit.course.stories import entropy

OWN_FILE = "my_transformer.py"


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


@contextmanager
def _running(
    prints: io.StringIO, missing: str = "a function that it needs is not written yet"
) -> Iterator[None]:
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


def drawn(logits: Tensor, temperature: float) -> Tensor:
    "Logits whose largest entry is a draw from the softmax of the given ones over the temperature."
    return logits / temperature - torch.empty_like(logits).exponential_().log()


@dataclass(frozen=True)
class FirstWords:
    "What your model wrote: `losses` of its steps, in nats per letter, and two texts."

    losses: list[float]
    greedy: str
    drawn: str

    def __repr__(self) -> str:
        first, last = self.losses[0], sum(self.losses[-10:]) / len(self.losses[-10:])
        return (
            f"{len(self.losses)} steps: from {first:.2f} to {last:.2f} nats per letter\n\n"
            f"the likeliest letter each time:\n{self.greedy}\n\n"
            f"letters drawn, temperature 0.8:\n{self.drawn}"
        )


def _pieces(ids: Tensor, progress: Callable[[], Any]) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        start = torch.randint(len(ids) - 128, (8, 1))
        rows = ids[start + torch.arange(129)]  # B (T + 1)
        yield rows[:, :-1], rows[:, 1:]
        progress()


def first_words(
    path: str | Path = OWN_FILE, *, steps: int = 600, progress: Callable[[], Any] = lambda: None
) -> FirstWords:
    """Train the `MyLlama` of your file with your `train` on little stories; let it write.

    `steps`: of the training. `progress` is called after each. `InputError`: the file lacks one of
    `MyLlama`, `train` and `generate`, or its code fails.
    """
    model_of, train, generate = load_mine("MyLlama", "train", "generate", path=path)
    place, ids = _letters(load_text("stories", "train"))
    with _running(io.StringIO()):
        model = model_of(len(place), 64, 3, 4, 2, 172)
        losses = train(model, _pieces(ids, progress), steps, 3e-3)
        model.eval()
        with torch.no_grad():
            prompt = torch.tensor([[place[letter] for letter in "Leo lives "]])
            models = model, lambda ids: drawn(model(ids), 0.8)
            rows = [generate(one, prompt, 110)[0].tolist() for one in models]
        return FirstWords(losses, *("".join([*place][i] for i in row) for row in rows))


def _letters(text: str) -> tuple[dict[str, int], Tensor]:
    "The id of each letter of a text, and the ids N of the text."
    place = {letter: i for i, letter in enumerate(sorted(set(text)))}
    return place, torch.tensor([place[letter] for letter in text])


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
