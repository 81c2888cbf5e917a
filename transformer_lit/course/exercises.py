"""Exercises that give feedback: the right answer, and a hint for each typical mistake.

A question has a value as its answer and is written in `transformer_lit/exercises/<topic>.toml`::

    [norm.8]
    answer = [0.5, 2.0]
    tolerance = 0.01
    [norm.8.hints]
    "That is the sum. Take the mean." = [1.5, 6.0]

The answer to a build or a repair is a function or a class. Its check is a plain function that takes
the answer and compares what the answer returns with the right result::

    def centred_checks(centred):
        x = torch.randn(3, 5)
        with expecting(centred(x), x - x.mean(-1, keepdim=True)) as wrong:
            wrong["That is the sum. Take the mean."] = x - x.sum(-1, keepdim=True)
            wrong["One mean for all rows. Each row has its own."] = x - x.mean()

    @exercise("norm.9", centred_checks)
    def centred(x):
        return x - x.mean(-1, keepdim=True)
"""

import ast
import contextlib
import copy
import functools
import html
import inspect
import io
import math
import numbers
import tomllib
import traceback
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer_lit.course.sandbox import (
    Found,
    is_blank,
    printed,
    sealed,
    seed,
    signature,
    watched,
)

TASKS: dict[str, "Task"] = {}  # by id, from the modules imported so far


@dataclass(frozen=True)
class Verdict:
    """The result of `check` for one answer. It is true if the answer passed.

    `state` is "passed", "open" (nothing written yet), "not yet" or "unknown" (no such exercise).
    `progress`: how far the reader has come, if that is recorded.
    """

    id: str
    state: str
    line: str
    notes: tuple[str, ...] = ()
    progress: str = ""

    def __bool__(self) -> bool:
        return self.state == "passed"

    def as_dict(self) -> dict[str, Any]:
        "The verdict in a form for JSON."
        return {"id": self.id, "state": self.state, "line": self.line, "notes": list(self.notes)}

    def __repr__(self) -> str:
        return "\n  ".join([f"{self.id}: {self.state}. {self.line}", *self._below()])

    def _below(self) -> list[str]:
        return [*self.notes, *filter(None, [self.progress])]

    def _repr_html_(self) -> str:
        line, *notes = (html.escape(text) for text in (self.line, *self._below()))
        below = "".join(f"<li>{note}</li>" for note in notes)
        head = f"<strong>{html.escape(self.id)}: {self.state}.</strong> {line}"
        kind = self.state.replace(" ", "-")
        return f'<div class="verdict {kind}">{head}{below and f"<ul>{below}</ul>"}</div>'


# --- questions and tasks ------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    "An exercise whose answer is a value. `hints`: what to say about typical wrong values."

    id: str
    answer: Any
    tolerance: float | int = 1e-6
    hints: dict[str, Any] | None = None

    @property
    def form(self) -> str:
        "The kind of value that the answer should be."
        value = self.answer
        return loosely(value) + (f", to within {self.tolerance:g}" if has_floats(value) else "")

    @property
    def known(self) -> dict[str, Any]:
        "What to say about known values: typical mistakes, and the answer rounded too far."
        return (self.hints or {}) | {f"Right, but rounded too far. Give {self.form}.": self.answer}

    @property
    def sought(self) -> str:
        "The form, with a list's length unless a typical mistake has another length."
        lists = [x for x in (self.answer, *(self.hints or {}).values()) if isinstance(x, list)]
        if isinstance(self.answer, list) and len({len(x) for x in lists}) == 1:
            return self.form.replace(loosely(self.answer), loosely(self.answer, len(lists[0])), 1)
        return self.form

    def look(self, answer: Any) -> None:
        "Raise `Found` if the answer is wrong or still open."
        if _is_open(answer):
            raise Found(f"Fill the blank: {self.form}. Then run this cell again.", open=True)
        if not (differs := difference(self.answer, answer, self.tolerance, False)):
            return
        known = _known_value(self.known, answer, self.tolerance)
        if not known and _same_decimals(self.answer, answer):
            known = [*self.known][-1]
        if line := known or _kinds_differ(self.answer, answer):
            raise Found(line)
        if _is_reordered(self.answer, answer, self.tolerance):
            raise Found("All the values are there, but in another order.")
        raise Found(f"{differs[0].upper()}{differs[1:]}. Expected: {self.sought}.")


def read_questions(path: Path) -> dict[str, Question]:
    "The questions in a file, by id; see the docstring of this module for the format."
    tables = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    rows = {f"{topic}.{n}": row for topic, some in tables.items() for n, row in some.items()}
    return {id: Question(id, **row) for id, row in rows.items()}


@dataclass(frozen=True)
class Task:
    "An exercise whose answer is a function or a class, its solution, and its check."

    id: str
    solution: Callable[..., Any]
    checks: Callable[[Any], None]
    in_place: bool

    @property
    def name(self) -> str:
        "The name that the answer has in the reader's code."
        return self.solution.__name__

    @property
    def form(self) -> str:
        "What the reader has to write: `name(arguments)`."
        kind = "class " if inspect.isclass(self.solution) else ""
        return f"{kind}{self.name}{signature(self.solution)}"

    @property
    def source(self) -> str:
        "The solution's source without the `exercise` decorator, after the helpers that it uses."
        text = inspect.getsource(self.solution)
        (node,) = ast.parse(text).body
        marks = [
            mark.end_lineno for mark in node.decorator_list if "exercise(" in ast.unparse(mark)
        ]
        # from Python 3.13 on, the source of a class begins after its decorators
        text = "\n".join(text.split("\n")[max(marks, default=0) :])
        used = {one.id for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Name)}
        own = vars(inspect.getmodule(self.solution)).items()
        solutions = [task.solution for task in TASKS.values()]
        helpers = [
            one
            for name, one in own
            if name in used - {self.name}
            and (inspect.isfunction(one) or inspect.isclass(one))
            and one.__module__ == self.solution.__module__
            and one not in solutions
        ]
        return "\n\n".join([*map(inspect.getsource, helpers), text]).strip("\n")

    def look(self, answer: Any) -> None:
        "Raise `Found` if the answer doesn't do what is asked or is still open."
        if answer is None or answer is ...:
            raise self.open()
        self._look_at_form(answer)
        try:
            called = _makes if inspect.isclass(answer) else self._careful
            self.checks(called(answer))
        except NotImplementedError as error:
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)
            where = frame.f_code.co_qualname
            own = getattr(answer, "__qualname__", type(answer).__qualname__)
            if f"{where}.".startswith(f"{own}.") and not str(error):
                raise self.open() from None
            why = str(error).partition("\n")[0][:200] or "Is an earlier exercise still open?"
            raise Found(f"{where} raises NotImplementedError. {why}") from None
        except TypeError:
            given = signature(answer)
            needs = len(signature(self.solution).parameters)
            if given is None or len(given.parameters) >= needs:
                raise
            raise Found(self._arguments(given)) from None

    def _arguments(self, given: inspect.Signature) -> str:
        return f"It must take the arguments of {self.form}, and takes {given}."

    def open(self) -> Found:
        "The response if nothing has been written yet."
        return Found(f"Write {self.form}, then run this cell again.", open=True)

    def _look_at_form(self, answer: Any) -> None:
        is_class = inspect.isclass(answer)
        if inspect.isclass(self.solution) != is_class or not callable(answer):
            what = "an object, not its class" if is_class else "the function, without a call"
            what = "the class itself" if inspect.isclass(self.solution) else what
            raise Found(f"Expected {self.form}, got {kind_of(answer)}. Pass {what}.")
        wanted, given = signature(self.solution).parameters.values(), signature(answer)
        names = [p.name for p in wanted if p.kind is p.KEYWORD_ONLY]
        needed = [p for p in wanted if p.default is p.empty and p.name not in names]
        try:
            if given is not None:
                given.bind(*needed, **dict.fromkeys(names))
        except TypeError:
            raise Found(self._arguments(given)) from None

    def _careful(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        "The answer, wrapped so that changing its inputs is an error unless that is the task."

        @functools.wraps(answer)
        def call(*inputs: Any, **named: Any) -> Any:
            plain = [x if _is_plain(x) and not self.in_place else None for x in inputs]
            before = copy.deepcopy(plain)
            try:
                with _numbers_kept():
                    found = answer(*inputs, **named)
            except NotImplementedError:
                raise
            except Exception as error:
                if shapes := [str(tuple(x.shape)) for x in inputs if isinstance(x, Tensor)]:
                    error.add_note(f"It was given tensors of shapes {', '.join(shapes)}.")
                raise
            if found is ... or (found is None and is_blank(answer)):
                raise self.open()
            if any(difference(a, b, 0.0, True) for a, b in zip(before, plain)):
                raise Found("It changes its inputs. Work on a copy.")
            return found

        call.__signature__ = signature(self.solution)  # so that messages use its argument names
        return call


def exercise(id: str, checks: Callable[[Any], None], *, in_place: bool = False) -> Callable:
    """Register a function or class as the solution; `checks` is a function of the answer.

    `in_place`: the answer is supposed to change its inputs.
    """

    def register(solution):
        TASKS[id] = Task(id, solution, checks, in_place)
        return solution

    return register


@contextlib.contextmanager
def _numbers_kept() -> Iterator[None]:
    "Inside, an answer may draw random numbers without changing what the check draws later."
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _makes(answer: type) -> Callable[..., Any]:
    "A function that makes objects of the class."

    @functools.wraps(answer, updated=())
    def make(*inputs: Any, **named: Any) -> Any:
        with _numbers_kept():
            return answer(*inputs, **named)

    return make


def _is_plain(x: Any) -> bool:
    "Whether comparing with a copy can detect changes: plain values, not part of a graph."
    if isinstance(x, Tensor):
        return not x.requires_grad
    parts = x.values() if isinstance(x, dict) else x if isinstance(x, list | tuple) else ()
    return isinstance(x, int | float | str | dict | list | tuple) and all(map(_is_plain, parts))


def _is_open(answer: Any) -> bool:
    "Whether a value, or part of a list, is still blank: `None`, `...` or an empty string."
    if isinstance(answer, list | tuple):
        return any(map(_is_open, answer))
    return answer is None or answer is ... or (isinstance(answer, str) and answer in ("", "..."))


# --- the building blocks of a check -------------------------------------------------------------

_COMPARED: ContextVar[Callable[[Any, Any, float], Any] | None] = ContextVar(
    "_COMPARED", default=None
)


@contextlib.contextmanager
def each_comparison(see: Callable[[Any, Any, float | int], Any]) -> Iterator[None]:
    "Inside, `see(found, right, tolerance)` is called for each comparison of a check, in order."
    before = _COMPARED.set(see)
    try:
        yield
    finally:
        _COMPARED.reset(before)


def expect(
    found: Any,
    right: Any,
    wrong: dict[str, Any] | None = None,
    *,
    case: str = "",
    tolerance: float | int = 1e-6,
) -> None:
    """Raise `Found` unless `found` equals `right`, with the hint for a mistake that gives `found`.

    `wrong`: hint -> the value that a typical mistake gives; see `expecting`. `case`: the name of
    the test case, for the note. `tolerance`: the largest allowed difference between floats; for a
    number above 1 it is multiplied by that number.
    """
    if see := _COMPARED.get():
        see(found, right, tolerance)
    if not (differs := difference(right, found, tolerance, True)):
        return
    if found is None:
        raise Found("It returns None: is a `return` missing?")
    types = [x.dtype for x in (right, found) if isinstance(x, Tensor)]
    if len(types) == 2 and types[0] == torch.bool != types[1]:
        differs += f" of {types[1]}"
    note = f"In the case “{case}”: {differs}." if case else f"{differs[0].upper()}{differs[1:]}."
    for hint, value in (wrong or {}).items():
        if not difference(value, found, tolerance, True):
            raise Found(hint, note)
    raise Found(note)


@contextlib.contextmanager
def expecting(
    found: Any, right: Any, *, case: str = "", tolerance: float | int = 1e-6
) -> Iterator[dict[str, Any]]:
    """`expect` with hints in its block: `wrong["Take the mean, not the sum."] = x.sum(-1)`.

    If computing a mistake fails on the inputs of the case, the hints after it are skipped.
    """
    wrong: dict[str, Any] = {}
    try:
        yield wrong
    except Exception:
        if not difference(right, found, tolerance, True):
            raise
    expect(found, right, wrong, case=case, tolerance=tolerance)


@contextlib.contextmanager
def expecting_all(
    answer: Callable[..., Any],
    right: Callable[..., Any],
    cases: dict[str, tuple],
    *,
    tolerance: float | int = 1e-6,
) -> Iterator[dict[str, Callable[..., Any]]]:
    """Expect the same from `answer` and `right` in every case; `wrong["hint"] = a_wrong_function`.

    A hint is given only if the wrong function agrees with the answer in *all* cases. In a repair,
    where several things are broken, this avoids giving away the first one.
    """

    found: dict[str, Any] = {}
    failed = None

    def outcomes(function):
        for case, inputs in cases.items():
            seed()
            yield case, function(*copy.deepcopy(inputs))

    def gives_the_same(function):
        with contextlib.suppress(Exception):  # a wrong function may fail on inputs of the answer
            return not difference(dict(outcomes(function)), found, tolerance, True)

    expected = dict(outcomes(right))
    try:
        found.update(outcomes(answer))
    except Exception as error:
        failed = error
    wrong: dict[str, Callable[..., Any]] = {}
    yield wrong
    for case, outcome in found.items():
        differs = difference(expected[case], outcome, tolerance, True)
        hints = (hint for hint, function in wrong.items() if differs and gives_the_same(function))
        known = dict.fromkeys(hints, outcome)
        expect(outcome, expected[case], known, case=case, tolerance=tolerance)
    if failed:  # the cases before the failure gave a better hint, if there was one
        raise failed


def gradients(function: Callable[..., Tensor], *inputs: Any) -> dict[str, Tensor | None]:
    "Gradients of a random weighted sum of the result with respect to the inputs; None: cut off."
    floats = [isinstance(x, Tensor) and x.is_floating_point() for x in inputs]
    leaves = [x.detach().clone().requires_grad_() if f else x for x, f in zip(inputs, floats)]
    result = function(*leaves)
    named = dict(zip(signature(function).parameters, leaves))
    named = {name: x for name, x in named.items() if isinstance(x, Tensor) and x.requires_grad}
    found = [None] * len(named)
    if isinstance(result, Tensor) and result.requires_grad:
        fixed = torch.Generator().manual_seed(1)
        above = torch.randn(result.shape, generator=fixed).to(result.dtype)
        # as a sum, because torch imports for over a second to check the shape of `above`
        total = (result * above).sum()
        found = torch.autograd.grad(total, list(named.values()), allow_unused=True)
    return {f"gradient of {name}": one for name, one in zip(named, found)}


def judge(one: Question | Task, answer: Any) -> Verdict:
    "The verdict on an answer, which may be any object."
    prints, state, line, notes = io.StringIO(), "passed", "That is right.", ()
    try:
        with sealed(), watched(prints):
            one.look(answer)
    except Found as finding:
        line, notes, state = finding.line, finding.notes, "open" if finding.open else "not yet"
    return Verdict(one.id, state, line, (*notes, *printed(prints)))


# --- comparing ----------------------------------------------------------------------------------


def kind_of(x: Any) -> str:
    "The kind of a result, in words for a reader: `a tensor of shape (5, 7)`, `a list of 3`."
    if isinstance(x, Tensor):
        kind = "a Boolean tensor" if x.dtype == torch.bool else "a tensor"
        whole = not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)
        return f"{kind}{' of whole numbers' if whole else ''} of shape {tuple(x.shape)}"
    if isinstance(x, list | tuple):
        return f"a list of {len(x)}"
    if isinstance(x, dict):
        return f"a dictionary with {', '.join(map(repr, x))}" if x else "an empty dictionary"
    if inspect.isclass(x):
        return f"the class {x.__name__}"
    if inspect.isroutine(x):
        return "a function"
    words = {bool: "True or False", int: "a whole number", float: "a number", str: "a word"}
    return words.get(type(x)) or ("None" if x is None else f"an object of type {type(x).__name__}")


def _is_letter(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 1 and value.isalpha()


def loosely(value: Any, length: int | None = None) -> str:
    "`kind_of` an answer, without a list's length, which may be the question, unless given."
    if _is_letter(value):
        return 'one letter, such as "a"'
    if not isinstance(value, list | tuple):
        return kind_of(value)
    letters = bool(value) and all(map(_is_letter, value))
    whole = all(type(x) in (int, float) for x in value)
    parts = "letters" if letters else "numbers" if whole else "parts"
    many = f" of {length} {parts}" if length is not None else " of letters" if letters else ""
    return f"a list{many}" + (', such as ["a", "b"]' if letters else "")


def has_floats(value: Any) -> bool:
    "Whether a value is a float, or is a list that contains one at any depth."
    if isinstance(value, list | tuple):
        return any(map(has_floats, value))
    return isinstance(value, float) or (isinstance(value, Tensor) and value.is_floating_point())


def _near(expected: Tensor, found: Tensor, tolerance: float | int, relative: bool) -> Tensor:
    wide = torch.complex128 if expected.is_complex() or found.is_complex() else torch.float64
    a, b = (x.detach().to("cpu", wide) for x in (expected, found))
    room = tolerance * (a.abs().clamp(min=1) if relative else 1.0) + 1e-12
    return (((a - b).abs() <= room) & a.isfinite()) | (a == b) | (a.isnan() & b.isnan())


def _should_be(a: numbers.Number, b: numbers.Number) -> str:
    "“should be … and is …”, with enough digits to tell the two numbers apart."
    if isinstance(a, bool):
        return f"should be {a} and is {b}"
    for digits in (6, 9, 12, 17):
        wanted, found = f"{a:.{digits}g}", f"{b:.{digits}g}"
        if wanted != found:
            break
    return f"should be {wanted} and is {found}"


def _tensor_difference(a: Tensor, b: Any, tolerance: float | int, tell: bool) -> str | None:
    if not isinstance(b, Tensor) and (tell or not isinstance(b, list | tuple)):
        number = isinstance(b, numbers.Number) and a.is_floating_point()
        why = ": no `item`, no `float`" if number and tell else ""
        return f"expected {kind_of(a)}, got {kind_of(b)}{why}"
    b = torch.as_tensor(b)
    floats = [x.is_floating_point() or x.is_complex() for x in (a, b)]
    if a.shape != b.shape or (a.dtype == torch.bool) != (b.dtype == torch.bool):
        return f"expected {kind_of(a)}, got {kind_of(b)}"
    if floats[0] != floats[1]:
        return f"expected {'floats' if floats[0] else 'whole numbers'}, got {b.dtype}"
    off = (~_near(a, b, tolerance, tell)).nonzero()
    if not len(off):
        return None
    if not tell:
        return f"{a.numel() - len(off)} of {a.numel()} entries are right"
    nan = "" if not b.isnan().any() else f", {int(b.isnan().sum())} entries are nan"
    at = tuple(off[0].tolist())
    if not at:
        return f"it {_should_be(a.item(), b.item())}"
    one = f"entry {list(at)} {_should_be(a[at].item(), b[at].item())}"
    return f"{len(off)} of {a.numel()} entries are wrong{nan}: {one}"


def _dict_difference(a: dict, b: dict, tolerance: float | int, tell: bool) -> str | None:
    for key in a:
        if isinstance(a[key], Tensor) and b.get(key) is None and key in b and key != "result":
            return f"{key}: none comes back: a `detach`, `item`, `tolist` or `no_grad` cuts it off"
        if key in b and (line := difference(a[key], b[key], tolerance, tell)):
            return f"{key}: {line}"
    return None if a.keys() == b.keys() else f"expected {kind_of(a)}, got {kind_of(b)}"


def _number_difference(a: Any, b: Any, tolerance: float | int, tell: bool) -> str | None:
    pair = (torch.tensor(x, dtype=_wide(x)) for x in (a, b))
    same = _near(*pair, 0.0 if isinstance(a, int) else tolerance, tell).item()
    return None if same else f"it {_should_be(a, b)}" if tell else f"{b:.6g} is not it"


def _wide(x: Any) -> torch.dtype | None:
    return None if isinstance(x, complex) else torch.float64


def _is_number(x: Any) -> bool:
    return isinstance(x, numbers.Number) and not isinstance(x, bool)


def difference(a: Any, b: Any, tolerance: float | int, tell: bool) -> str | None:
    """None if a result `b` agrees with the expected `a`; otherwise one line on how it differs.

    Floats may differ by `tolerance`. With `tell`, the line may show what was expected, and
    `tolerance` is multiplied by the expected number if that is above 1.
    """
    if isinstance(a, Tensor):
        return _tensor_difference(a, b, tolerance, tell)
    b = b.tolist() if hasattr(b, "tolist") else b  # tensors, arrays and their numbers
    if _is_number(a) and _is_number(b):
        return _number_difference(a, b, tolerance, tell)
    if isinstance(a, dict) and isinstance(b, dict):
        return _dict_difference(a, b, tolerance, tell)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):  # the length may be the question
            return f"expected {kind_of(a)}, got {kind_of(b)}" if tell else f"{kind_of(b)} is not it"
        lines = [difference(x, y, tolerance, tell) for x, y in zip(a, b)]
        first = next((f"entry {i}: {line}" for i, line in enumerate(lines) if line), None)
        return first if tell or not first else f"{lines.count(None)} of {len(a)} entries are right"
    if type(a) is not type(b) or isinstance(a, list | tuple | dict):
        return f"expected {kind_of(a) if tell else loosely(a)}, got {kind_of(b)}"
    if a == b or (isinstance(a, str) and a.strip().casefold() == b.strip().casefold()):
        return None
    return f"it should be {a!r} and is {b!r}" if tell else f"{b!r} is not it"


def _rounds_to(a: Any, b: Any, digits: int) -> bool:
    "Whether `b` is `a` rounded to this many digits, with halves rounded up or to even."
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_rounds_to(x, y, digits) for x, y in zip(a, b))
    numbers_both = isinstance(a, float) and _is_number(b) and math.isfinite(a) and math.isfinite(b)
    if not numbers_both or a == 0:
        return not difference(a, b, 0.0, False)
    unit = 10.0 ** (math.floor(math.log10(abs(a))) - digits + 1)
    return abs(b / unit - round(b / unit)) < 1e-6 and abs(a - b) <= unit * (0.5 + 1e-9)


def _same_decimals(a: Any, b: Any) -> bool:
    "Whether numbers agree to the 2 to 4 decimals that a page shows; 0 never counts."
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same_decimals, a, b))
    if not (isinstance(a, float) and _is_number(b) and math.isfinite(b)):
        return not difference(a, b, 0.0, False)
    return b != 0 and any(
        abs(b * n - round(b * n)) < 1e-6 and abs(a - b) * n <= 0.5 + 1e-9
        for n in (100, 1000, 10_000)
    )


def _known_value(known: dict[str, Any], b: Any, tolerance: float | int) -> str | None:
    "The name of the first value equal to `b`, exactly or else rounded to 2 to 6 digits."
    b = b.tolist() if hasattr(b, "tolist") else b
    for name, a in known.items():
        if not difference(a, b, tolerance, False):
            return name
    rounded = (name for name, a in known.items() if any(_rounds_to(a, b, n) for n in range(2, 7)))
    return next(rounded, None)


def _kinds_differ(a: Any, b: Any) -> str | None:
    "What to say about a part of the wrong kind: a string for a number, 1 for True."
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return next(filter(None, map(_kinds_differ, a, b)), None)
    if isinstance(a, bool) and not isinstance(b, bool) and isinstance(b, str | numbers.Number):
        return "Write True and False themselves, without quotes, and not 1 and 0."
    if _is_number(a) and isinstance(b, str):
        return f"Write numbers without quotes: {b!r} is a word."
    return None


def _is_reordered(a: Any, b: Any, tolerance: float | int) -> bool:
    "Whether two flat lists are the same up to order; lists of letters or truth values don't count."
    if not (isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b) > 1):
        return False
    if all(isinstance(x, bool) or _is_letter(x) for x in a):
        return False
    left = list(b)
    for x in a:
        same = [i for i, y in enumerate(left) if not difference(x, y, tolerance, False)]
        if not same:
            return False
        del left[same[0]]
    return True
