"""Run a reader's program: catch what it prints, and describe what it raises in one line."""

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
    """A finding about a program: a line for its author, and notes. Raising it ends the check.

    `open`: nothing has been written yet.
    """

    def __init__(self, line: str, *notes: str, open: bool = False):
        self.line, self.notes, self.open = line, notes, open


@contextlib.contextmanager
def sealed() -> Iterator[None]:
    "Inside, float64, gradients and the CPU; afterwards, these and the random state are restored."
    dtype, state = torch.get_default_dtype(), torch.get_rng_state()
    device = torch.get_default_device()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.enable_grad(), torch.device("cpu"):
            yield
    finally:
        if torch.get_default_device() != device:  # up to torch 2.10, a change outlasts the context
            torch.set_default_device(None if device.type == "cpu" else device)
        torch.set_default_dtype(dtype)
        torch.set_rng_state(state)


def seed() -> None:
    "Restart the random numbers, so that two programs that draw alike get the same ones."
    torch.default_generator.manual_seed(0)  # only the CPU's; a GPU's seed isn't ours to change


@contextlib.contextmanager
def watched(prints: io.StringIO) -> Iterator[None]:
    """Run a reader's program inside, from seed 0, without input; `prints` collects its output.

    An exception that it raises becomes `Found`. Only two pass through: `NotImplementedError`,
    because nothing has been written yet, and an interrupt from the keyboard or the notebook.
    """
    try:
        with (
            contextlib.redirect_stdout(prints),
            contextlib.redirect_stderr(prints),
            mock.patch("sys.stdin", io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", message=r"The use of `x\.")  # about .T, no hint
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
    "One line for a program's author: what it raised, and in which of its lines."
    name, text = type(error).__name__, ""
    with contextlib.suppress(Exception):  # the reader may have written this __str__
        text = str(error).strip()
    words, *more = (f"{name}: {text}" if text else name).splitlines()
    if words.endswith(":"):  # the details follow, as when torch loads a state dict
        words = " ".join([words, *(line.strip() for line in more)])
    line = _your_line(error)
    if isinstance(error, MemoryError) or "can't allocate memory" in text:  # torch's words
        return f"Your code ran out of memory.{line}"
    if "leaf Variable" in words:  # torch's name for a tensor that collects a gradient
        return f"It changes an input or a weight in place. Work on a copy.{line}"
    return f"Your code raised {words[:200].rstrip('.')}.{line}"


def _your_line(error: BaseException) -> str:
    "The deepest line of the traceback in the answer's own file."
    package = importlib.import_module("transformer_lit").__path__[0]
    libraries = (package, sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "<frozen")
    steps = reversed(list(traceback.walk_tb(error.__traceback__)))
    lines = [(frame.f_code.co_filename, number) for frame, number in steps]
    found = [
        (name, f" Line {number}: {line}")
        for name, number in lines
        if not name.startswith(libraries) and (line := linecache.getline(name, number).strip())
    ]  # the outermost is the answer; a chapter's function that it calls is in another file
    return next((line for name, line in found if name == found[-1][0]), "")


def is_blank(answer: Any) -> bool:
    "Whether a function only returns a constant: its body is a docstring, `...` or `pass`."
    code = getattr(inspect.unwrap(answer), "__code__", None)
    nothing = {"RESUME", "RETURN_CONST", "LOAD_CONST", "RETURN_VALUE", "NOP"}
    return code is not None and {step.opname for step in dis.get_instructions(code)} <= nothing


def signature(thing: Any) -> inspect.Signature | None:
    "The arguments of a function, without annotations; None if Python can't tell."
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return None  # some functions written in C have no signature
    bare = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    return found.replace(parameters=bare, return_annotation=found.empty)
