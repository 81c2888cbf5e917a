"""A stranger's function runs here: one at a time, within a time limit, with its prints caught."""

import contextlib
import ctypes
import dis
import functools
import importlib
import inspect
import io
import linecache
import sys
import sysconfig
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import torch


class Found(Exception):
    """What was found about a program: a line for its author, and notes. It ends the look at it.

    `open`: nothing was written yet.
    """

    def __init__(self, line: str, *notes: str, open: bool = False):
        self.line, self.notes, self.open = line, notes, open

    def during(self, case: str, inputs: tuple) -> "Found":
        "The same, with a note that says in which case, and the shapes that were handed over."
        shapes = [str(tuple(x.shape)) for x in inputs if isinstance(x, torch.Tensor)]
        handed = f", which hands over shapes {', '.join(shapes)}" if shapes else ""
        return Found(self.line, *self.notes, f"In the case “{case}”{handed}.", open=self.open)


class _Worker(threading.Thread):
    "The thread in which a stranger's function runs."


_ONE_AT_A_TIME = threading.Lock()


def refuse_nesting() -> None:
    "`Found` where a program that is looked at asks for a look at itself."
    if isinstance(threading.current_thread(), _Worker):
        raise Found("It calls `check` itself. Call it below, at the left edge of the cell.")


@contextlib.contextmanager
def sealed() -> Iterator[None]:
    """Doubles, gradients and the CPU inside; outside, these and the random state as they were.

    One at a time: others wait until it is over.
    """
    with _ONE_AT_A_TIME:
        dtype, state = torch.get_default_dtype(), torch.get_rng_state()
        torch.set_default_dtype(torch.float64)
        try:
            with torch.enable_grad(), torch.device("cpu"):
                yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_rng_state(state)


def seed() -> None:
    "Random numbers begin anew, so that two programs that draw alike get the same ones."
    torch.default_generator.manual_seed(0)  # the CPU's alone: a GPU's seed is none of our business


@functools.cache
def import_what_gradients_need() -> None:
    "Import sympy, which takes seconds, before the clock of an answer runs."
    x = torch.ones(1, requires_grad=True)
    torch.autograd.grad(x * x, x, x)


# --- what it prints and asks --------------------------------------------------------------------


def _readable(text: str) -> str:
    return text.encode(errors="replace").decode()  # half letters can be shown nowhere


class Prints(io.TextIOBase):
    "Where prints go: it keeps the beginning of them, however much it is."

    def __init__(self):
        self.text = ""

    def write(self, text: str) -> int:
        "Takes everything, keeps the first 600 characters."
        self.text += _readable(text[: max(0, 600 - len(self.text))])
        return len(text)

    def notes(self) -> tuple[str, ...]:
        "The first five lines, each as a note."
        lines = self.text.strip().splitlines()
        return tuple(f"It printed: {line}" for line in lines[:5])


@contextlib.contextmanager
def _no_input() -> Iterator[None]:
    own, sys.stdin = sys.stdin, io.StringIO()
    try:
        yield
    finally:
        sys.stdin = own


# --- the call -----------------------------------------------------------------------------------


def _your_line(steps: Iterable[tuple[FrameType, int]]) -> str:
    "The deepest line of the answer's own file; `steps` lead from the deepest call outwards."
    package = importlib.import_module("transformer_lit").__path__[0]
    libraries = (package, sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "<frozen")
    lines = [(frame.f_code.co_filename, number) for frame, number in steps]
    found = [
        (name, f" Line {number}: {line}")
        for name, number in lines
        if not name.startswith(libraries) and (line := linecache.getline(name, number).strip())
    ]  # the outermost is the answer; a function of the chapter that it calls has another file
    return next((line for name, line in found if name == found[-1][0]), "")


class _Stop(BaseException):  # no `except Exception` of an answer may catch it
    pass


def _limited(function: Callable[[], Any], seconds: float | int) -> Any:
    "The function's result; finds that it takes longer, or that the reader interrupted it."
    box, ended = {}, threading.Event()

    def work():
        began = time.monotonic()
        try:
            box["value"] = function()
        except BaseException as error:
            box["error"] = error
        finally:  # late: a call into C may keep Python to itself
            box["late"] = time.monotonic() - began > seconds
            ended.set()

    thread = _Worker(target=work, daemon=True)
    reason = f"It did not end within {seconds:g} seconds."
    try:
        thread.start()
        if ended.wait(seconds):  # a `join` that is broken off takes the thread for ended
            thread.join()
    except KeyboardInterrupt:
        reason = "You interrupted it."
    if not ended.is_set():
        line = _your_line(traceback.walk_stack(sys._current_frames().get(thread.ident)))
        for _ in range(20):  # it may swallow the first
            stop = ctypes.py_object(_Stop)  # raised there at its next step in Python
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), stop)
            thread.join(0.02)
        raise Found(reason + line)
    if box["late"]:
        raise Found(reason)
    if "error" in box:
        raise box["error"]
    return box["value"]


def call_safely(function: Callable[[], Any], seconds: float | int, prints: Prints) -> Any:
    """What the function returns, from seed 0, in time, with its prints caught; else `Found`.

    `NotImplementedError` goes through: nothing was written yet. No other exception does.
    """
    try:
        with (
            contextlib.redirect_stdout(prints),
            contextlib.redirect_stderr(prints),
            _no_input(),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", message=r"The use of `x\.")  # of .T: not a hint
            seed()
            return _limited(function, seconds)
    except (NotImplementedError, Found):
        raise
    except BaseException as error:
        words, *more = traceback.format_exception_only(error)[-1].strip().splitlines() or ["?"]
        if words.endswith(":"):  # what matters stands below, as when torch loads a state
            words = " ".join([words, *(line.strip() for line in more)])
        line = _your_line(reversed(list(traceback.walk_tb(error.__traceback__))))
        if "leaf Variable" in words:  # torch's words for what has a gradient of its own
            raise Found(
                f"It changes an input or a weight in place. Work on a copy.{line}"
            ) from None
        raise Found(f"Your code raised {_readable(words[:200]).rstrip('.')}.{line}") from None


# --- a look from outside ------------------------------------------------------------------------


def is_blank(answer: Any) -> bool:
    "Whether a function only returns a constant, as where its body is a docstring, `...` or `pass`."
    code = getattr(inspect.unwrap(answer), "__code__", None)
    nothing = {"RESUME", "RETURN_CONST", "LOAD_CONST", "RETURN_VALUE", "NOP"}
    return code is not None and {step.opname for step in dis.get_instructions(code)} <= nothing


def is_open(answer: Any) -> bool:
    "Whether a value or a part of a list is still to be filled in: `None`, `...` or an empty word."
    if isinstance(answer, list | tuple):
        return any(map(is_open, answer))
    return answer is None or answer is ... or (isinstance(answer, str) and answer in ("", "..."))


def signature(thing: Any) -> inspect.Signature | None:
    "What a function takes, without annotations; None where Python cannot tell."
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return None  # some functions that are written in C have none
    bare = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    return found.replace(parameters=bare, return_annotation=found.empty)
