"""A reader's program runs here: with its prints caught, and what it raises told in one line."""

import contextlib
import dis
import importlib
import inspect
import io
import linecache
import sysconfig
import traceback
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch


class Found(Exception):
    """What was found about a program: a line for its author, and notes. It ends the look at it.

    `open`: nothing was written yet.
    """

    def __init__(self, line: str, *notes: str, open: bool = False):
        self.line, self.notes, self.open = line, notes, open


@contextlib.contextmanager
def sealed() -> Iterator[None]:
    "Doubles, gradients and the CPU inside; outside, these and the random state as they were."
    dtype, state = torch.get_default_dtype(), torch.get_rng_state()
    device = torch.get_default_device()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.enable_grad(), torch.device("cpu"):
            yield
    finally:
        if torch.get_default_device() != device:  # up to torch 2.10, the context keeps a new one
            torch.set_default_device(None if device.type == "cpu" else device)
        torch.set_default_dtype(dtype)
        torch.set_rng_state(state)


def seed() -> None:
    "Random numbers begin again, so that two programs that draw alike get the same ones."
    torch.default_generator.manual_seed(0)  # the CPU's only: a GPU's seed is none of our business


@contextlib.contextmanager
def watched(prints: io.StringIO) -> Iterator[None]:
    """A reader's program runs inside, from seed 0: `prints` gets its prints, and it has no input.

    What it raises becomes `Found`. Two things go through: `NotImplementedError`, because nothing
    was written yet, and the interrupt of the keyboard or the notebook.
    """
    try:
        with (
            contextlib.redirect_stdout(prints),
            contextlib.redirect_stderr(prints),
            mock.patch("sys.stdin", io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", message=r"The use of `x\.")  # of .T: not a hint
            seed()
            yield
    except (NotImplementedError, Found):
        raise
    except (Exception, SystemExit) as error:
        raise Found(explained(error), *getattr(error, "__notes__", ())) from None


def printed(prints: io.StringIO) -> tuple[str, ...]:
    "The first five lines that a program printed, each as a note."
    lines = prints.getvalue()[:600].strip().splitlines()
    return tuple(f"It printed: {line}" for line in lines[:5])


def explained(error: BaseException) -> str:
    "What a program raised and in which of its lines, in one line for its author."
    name, text = type(error).__name__, ""
    with contextlib.suppress(Exception):  # its author may have written its words
        text = str(error).strip()
    words, *more = (f"{name}: {text}" if text else name).splitlines()
    if words.endswith(":"):  # what matters comes below, as when torch loads a state
        words = " ".join([words, *(line.strip() for line in more)])
    line = _your_line(error)
    if isinstance(error, MemoryError) or "can't allocate memory" in text:  # torch's words
        return f"Your code ran out of memory.{line}"
    if "leaf Variable" in words:  # torch's words for what has a gradient of its own
        return f"It changes an input or a weight in place. Work on a copy.{line}"
    return f"Your code raised {words[:200].rstrip('.')}.{line}"


def _your_line(error: BaseException) -> str:
    "The deepest line of the answer's own file."
    package = importlib.import_module("transformer_lit").__path__[0]
    libraries = (package, sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "<frozen")
    steps = reversed(list(traceback.walk_tb(error.__traceback__)))
    lines = [(frame.f_code.co_filename, number) for frame, number in steps]
    found = [
        (name, f" Line {number}: {line}")
        for name, number in lines
        if not name.startswith(libraries) and (line := linecache.getline(name, number).strip())
    ]  # the outermost is the answer; a function of the chapter that it calls has another file
    return next((line for name, line in found if name == found[-1][0]), "")


def is_blank(answer: Any) -> bool:
    "Whether a function only returns a constant, as where its body is a docstring, `...` or `pass`."
    code = getattr(inspect.unwrap(answer), "__code__", None)
    nothing = {"RESUME", "RETURN_CONST", "LOAD_CONST", "RETURN_VALUE", "NOP"}
    return code is not None and {step.opname for step in dis.get_instructions(code)} <= nothing


def signature(thing: Any) -> inspect.Signature | None:
    "What a function takes, without annotations; None where Python cannot tell."
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return None  # some functions that are written in C have none
    bare = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    return found.replace(parameters=bare, return_annotation=found.empty)
