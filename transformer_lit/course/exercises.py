"""Exercises that answer back: a solution, a table of typical mistakes, and a verdict in one line.

For example::

    @exercise("norm.9", cases=rows)
    @wrong('''
        That is the sum. Take the mean.
            .mean( → .sum(
        One mean for all rows. Each row has its own.
            mean(-1, keepdim=True) → mean()
    ''')
    def centred(x):
        return x - x.mean(-1, keepdim=True)

The solution is what the page shows and what answers are compared with. Below each hint of the table
stands what a reader did: `old → new` changes the solution where the left side stands, once; several
lines are one slip that shows in several places; ⏎ begins a new line. A line without an arrow is the
name of a wrong function. Where the answer is a value, the lines are the wrong value.
"""

import ast
import contextlib
import copy
import html
import inspect
import linecache
import math
import numbers
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from transformer_lit.course import sandbox
from transformer_lit.course.sandbox import Found, Prints, call_safely, is_open, seed, signature

EXERCISES: dict[str, "Exercise"] = {}  # those whose module was imported, by id


@dataclass(frozen=True)
class Verdict:
    """What `check` says about one answer. It is true when the answer passed.

    `state` is "passed", "open" (nothing written yet), "not yet" or "unknown" (no such exercise).
    `progress`: how far the reader is, where that is kept.
    """

    id: str
    state: str
    line: str
    notes: tuple[str, ...] = ()
    progress: str = ""

    def __bool__(self) -> bool:
        return self.state == "passed"

    def as_dict(self) -> dict[str, Any]:
        "The verdict for JSON."
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


# --- an exercise and its table of mistakes ------------------------------------------------------


@dataclass(frozen=True)
class Exercise:
    "A solution, and how an answer is compared with it. See `exercise`."

    id: str
    solution: Callable[..., Any]
    source: str  # of the solution, without its decorators
    table: dict[str, list[str]]  # hint -> lines below it
    cases: Callable[[], dict[str, tuple]] | None
    run: Callable[..., Any] | None
    tolerance: float | int
    seconds: float | int
    repair: bool

    @property
    def name(self) -> str:
        "The name that the answer has in the reader's code."
        return self.solution.__name__

    @property
    def is_value(self) -> bool:
        "Whether the answer is a value; else it is a function or a class."
        return self.cases is None

    @cached_property
    def mistakes(self) -> dict[str, Any]:
        "hint -> wrong value, function or class."
        found, space = {}, vars(sys.modules[self.solution.__module__])
        for hint, lines in self.table.items():
            if self.is_value or "→" not in lines[0]:
                found[hint] = eval(" ".join(lines), dict(space))
            else:
                names = dict(space)
                exec(compile(edited(self.source, lines), f"<{self.id}>", "exec"), names)
                found[hint] = names[self.name]
        return found

    def outcome(self, answer: Any, inputs: tuple) -> Any:
        "What this answer makes of these inputs, which it may spoil."
        named = {"names": tuple(signature(self.solution).parameters)}
        more = named if self.run is with_gradients else {}
        return self.run(answer, *inputs, **more) if self.run else answer(*inputs)

    @property
    def form(self) -> str:
        "What the reader is to write: `name(arguments)`, or a value."
        if self.is_value:
            value = self.solution()
            return loosely(value) + (f", to within {self.tolerance:g}" if has_floats(value) else "")
        kind = "class " if inspect.isclass(self.solution) else ""
        return f"{kind}{self.name}{signature(self.solution)}"


def edited(source: str, edits: list[str]) -> str:
    "A program with each `old → new` done; `ValueError` where `old` does not stand there once."
    for edit in edits:
        old, new = (side.strip() for side in edit.split("→", 1))
        pattern = r"\n *".join(map(re.escape, re.split(r" *⏎ *", old)))
        found = list(re.finditer(pattern, source))
        if len(found) != 1:
            raise ValueError(f"{old!r} stands {len(found)} times in\n{source}")
        start, end = found[0].span()
        line = source[source.rfind("\n", 0, start) + 1 :]
        indent = "\n" + " " * (len(line) - len(line.lstrip(" ")))
        source = source[:start] + re.sub(" *⏎", indent, new) + source[end:]
    return source


def read_table(text: str) -> dict[str, list[str]]:
    "A table of mistakes: each hint, and the indented lines below it."
    found = {}
    for block in re.findall(r"((?:^\S.*\n)+)((?:^ .*\n)+)", textwrap.dedent(text), re.M):
        hint, lines = (part.strip().split("\n") for part in block)
        found[" ".join(hint)] = [line.strip() for line in lines]
    return found


def wrong(table: str) -> Callable[[Any], Any]:
    "Gives the solution below its table of typical mistakes, see the beginning of this module."
    found = read_table(table)

    def attach(solution):
        solution.__wrong__ = found
        return solution

    return attach


def _source_of(solution: Any, helpers: tuple[str, ...]) -> str:
    "The text of a function or class, without its decorators, below its helpers; in a notebook too."
    parts = vars(solution).values() if inspect.isclass(solution) else [solution]
    code = next(inspect.unwrap(part).__code__ for part in parts if inspect.isfunction(part))
    text = "".join(linecache.getlines(code.co_filename))
    nodes = ast.parse(text).body
    found = [ast.get_source_segment(text, n) for n in nodes if getattr(n, "name", "") in helpers]
    for node in nodes:
        named = getattr(node, "name", None) == solution.__name__
        if named and code.co_firstlineno <= node.end_lineno:  # the first that is not before it
            return "\n\n".join([*found, ast.get_source_segment(text, node)])
    raise ValueError(f"the text of {solution.__name__} cannot be read")


def exercise(
    id: str,
    *,
    cases: Callable[[], dict[str, tuple]] | None = None,
    run: Callable[..., Any] | None = None,
    tolerance: float | int = 1e-6,
    seconds: float | int = 10,
    repair: bool = False,
    helpers: tuple[str, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the function or class below as the solution of an exercise.

    `cases`: makes the inputs, by name; without it the answer is a value, and the solution returns
    it. `run(answer, *inputs)`: the outcome to compare, `answer(*inputs)` unless given. `tolerance`:
    the largest difference; for a function it is multiplied by the expected size where that is above
    1. `seconds`: the time limit of one call. `repair`: a damaged program is mended, and its own
    damage is for the reader to find. `helpers`: definitions in the same cell that edits may change.
    """

    def register(solution):
        table = vars(solution).get("__wrong__", {})
        is_edit = cases is not None and any(
            "→" in line for lines in table.values() for line in lines
        )
        source = _source_of(solution, helpers) if is_edit else ""
        for lines in table.values():
            if is_edit and "→" in lines[0]:
                edited(source, lines)
        rest = (cases, run, tolerance, seconds, repair)
        EXERCISES[id] = Exercise(id, solution, source, table, *rest)
        return solution

    return register


def with_gradients(answer: Callable, *inputs: Any, names: tuple[str, ...] = ()) -> Any:
    "A `run`: the result, and the gradient of its randomly weighted sum by each float in `names`."
    floats = [isinstance(x, Tensor) and x.is_floating_point() for x in inputs]
    leaves = [x.detach().requires_grad_() if f else x for x, f in zip(inputs, floats)]
    result = answer(*leaves)
    if not isinstance(result, Tensor) or not result.is_floating_point():
        return {"result": result}
    places = [i for i, is_float in enumerate(floats) if is_float]
    found = [None] * len(places)
    if result.requires_grad:
        of, fixed = [leaves[i] for i in places], torch.Generator().manual_seed(1)
        above = torch.randn(result.shape, generator=fixed, dtype=torch.float64).to(result.dtype)
        found = torch.autograd.grad(result, of, above, allow_unused=True)
    called = dict(enumerate(names))
    gradients = {f"gradient of {called.get(i, f'input {i + 1}')}": g for i, g in zip(places, found)}
    return {"result": result.detach(), **gradients}


# --- comparing ----------------------------------------------------------------------------------


def kind_of(x: Any) -> str:
    "What a result is, in words for a reader: `a tensor of shape (5, 7)`, `a list of 3`."
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
    "`kind_of` an answer, without what may be the question: how long a list is, unless it is given."
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
    "Whether a value is, or a list holds at any depth, a number that may be a little off."
    if isinstance(value, list | tuple):
        return any(map(has_floats, value))
    return isinstance(value, float) or (isinstance(value, Tensor) and value.is_floating_point())


def _near(expected: Tensor, found: Tensor, tolerance: float | int, relative: bool) -> Tensor:
    wide = torch.complex128 if expected.is_complex() or found.is_complex() else torch.float64
    a, b = (x.detach().to_dense().to("cpu", wide) for x in (expected, found))
    room = tolerance * (a.abs().clamp(min=1) if relative else 1.0) + 1e-12
    return (((a - b).abs() <= room) & a.isfinite()) | (a == b) | (a.isnan() & b.isnan())


def _should_be(a: numbers.Number, b: numbers.Number) -> str:
    "With as many digits as tell the two apart."
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
    if isinstance(b, Tensor) and b.is_meta:
        return "the result lies on the device meta, where tensors have no numbers"
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
    """None where a result `b` agrees with the expected `a`, else how it differs, in one line.

    Floats may differ by `tolerance`. With `tell` the line may show what was expected, and
    `tolerance` is multiplied by the expected number where that is above 1.
    """
    if isinstance(a, Tensor):
        return _tensor_difference(a, b, tolerance, tell)
    b = b.tolist() if hasattr(b, "tolist") else b  # tensors, arrays and their numbers
    if _is_number(a) and _is_number(b):
        return _number_difference(a, b, tolerance, tell)
    if isinstance(a, dict) and isinstance(b, dict):
        return _dict_difference(a, b, tolerance, tell)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):  # how long it is may be the question
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
    "Whether `b` is `a` rounded to so many digits, halves up or to even."
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_rounds_to(x, y, digits) for x, y in zip(a, b))
    numbers_both = isinstance(a, float) and _is_number(b) and math.isfinite(a) and math.isfinite(b)
    if not numbers_both or a == 0:
        return not difference(a, b, 0.0, False)
    unit = 10.0 ** (math.floor(math.log10(abs(a))) - digits + 1)
    return abs(b / unit - round(b / unit)) < 1e-6 and abs(a - b) <= unit * (0.5 + 1e-9)


def _known_value(known: dict[str, Any], b: Any, tolerance: float | int) -> str | None:
    "The name of the first value that `b` is, as it stands or else rounded to 2 to 6 digits."
    b = b.tolist() if hasattr(b, "tolist") else b
    for name, a in known.items():
        if not difference(a, b, tolerance, False):
            return name
    rounded = (name for name, a in known.items() if any(_rounds_to(a, b, n) for n in range(2, 7)))
    return next(rounded, None)


def _kinds_differ(a: Any, b: Any) -> str | None:
    "What to say of a part of the wrong kind: a word for a number, 1 for True."
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return next(filter(None, map(_kinds_differ, a, b)), None)
    if isinstance(a, bool) and not isinstance(b, bool) and isinstance(b, str | numbers.Number):
        return "Write True and False themselves, without quotes, and not 1 and 0."
    if _is_number(a) and isinstance(b, str):
        return f"Write numbers without quotes: {b!r} is a word."
    return None


def _is_reordered(a: Any, b: Any, tolerance: float | int) -> bool:
    "Whether two flat lists hold the same in another order."
    if not (isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b) > 1):
        return False
    left = list(b)
    for x in a:
        same = [i for i, y in enumerate(left) if not difference(x, y, tolerance, False)]
        if not same:
            return False
        del left[same[0]]
    return True


def _tensors(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, dict | list | tuple):
        for part in x.values() if isinstance(x, dict) else x:
            yield from _tensors(part)


def _shares_memory(result: Any, inputs: tuple) -> bool:
    "Whether a tensor of the result lies where a tensor of the inputs does: a view, or the input."
    dense = ([t for t in _tensors(x) if t.layout == torch.strided] for x in (result, inputs))
    places = [{t.untyped_storage().data_ptr() for t in tensors} - {0} for tensors in dense]
    return bool(places[0] & places[1])


# --- judging ------------------------------------------------------------------------------------


def _check_form(exercise: Exercise, answer: Any) -> None:
    solution, form = exercise.solution, exercise.form
    if answer is None or answer is ...:
        raise Found(f"Write {form}, then run this cell again.", open=True)
    is_class = inspect.isclass(answer)
    if inspect.isclass(solution) != is_class or not callable(answer):
        what = "an object, not its class" if is_class else "the function, without a call"
        what = "the class itself" if inspect.isclass(solution) else what
        raise Found(f"Expected {form}, got {kind_of(answer)}: hand over {what}.")
    wanted, given = signature(solution).parameters.values(), signature(answer)
    names = [p.name for p in wanted if p.kind is p.KEYWORD_ONLY]
    needed = [p for p in wanted if p.default is p.empty and p.name not in names]
    try:
        if given is not None:
            given.bind(*needed, **dict.fromkeys(names))
    except TypeError:
        raise Found(f"It must take the arguments of {form}, and takes {given}.") from None


def _call(exercise: Exercise, answer: Any, case: str, inputs: tuple, prints: Prints) -> Any:
    "The outcome of an answer, or `Found` where there is none."
    blank = Found(f"Write {exercise.form}, then run this cell again.", open=True)
    try:
        outcome = call_safely(lambda: exercise.outcome(answer, inputs), exercise.seconds, prints)
    except Found as finding:
        raise finding.during(case, inputs) from None
    except NotImplementedError as error:
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        where = frame.f_code.co_qualname
        own = getattr(answer, "__qualname__", type(answer).__qualname__)
        if f"{where}.".startswith(f"{own}.") and not str(error):
            raise blank from None
        why = str(error).partition("\n")[0][:200] or "Is an earlier exercise still open?"
        raise Found(f"{where} raises NotImplementedError. {why}") from None
    if outcome is ... or (_is_nothing(outcome) and sandbox.is_blank(answer)):
        raise blank
    return outcome


def _is_nothing(outcome: Any) -> bool:
    "Whether a call returned nothing, also through `with_gradients`."
    return outcome is None or (isinstance(outcome, dict) and outcome.get("result", 0) is None)


def _known_mistake(exercise: Exercise, cases: dict, outcomes: dict, wrong: str) -> str | None:
    """The line of the mistake that gives what the answer gives, up to the first wrong case.

    Of several it is the one that goes on to agree in most of the other cases. In a repair it must
    agree in all of them: the damage itself is for the reader to find.
    """
    found = {}
    until = list(cases)[: None if exercise.repair else list(cases).index(wrong) + 1]
    for line, mistake in exercise.mistakes.items():
        same = []
        for name, inputs in cases.items():
            seed()
            with contextlib.suppress(Exception):  # a mistake may fail where the answer does not
                outcome = exercise.outcome(mistake, copy.deepcopy(inputs))
                if not difference(outcome, outcomes[name], exercise.tolerance, True):
                    same.append(name)
            if name in until and name not in same:
                break
        else:
            found[line] = len(same)
    return max(found, key=found.get, default=None)


def _judge_function(exercise: Exercise, answer: Any, prints: Prints) -> str:
    _check_form(exercise, answer)
    seed()
    cases, outcomes, given, failed = exercise.cases(), {}, {}, None
    for name, inputs in cases.items():
        given[name] = copy.deepcopy(inputs)
        try:
            outcomes[name] = _call(exercise, answer, name, given[name], prints)
        except Found as finding:  # the cases before may say more
            failed = finding
            break
    for name, outcome in outcomes.items():
        seed()
        own = copy.deepcopy(cases[name])
        expected = exercise.outcome(exercise.solution, own)
        differs = difference(expected, outcome, exercise.tolerance, True)
        types = [x.dtype for x in (expected, outcome) if isinstance(x, Tensor)]
        if differs and len(types) == 2 and types[0] == torch.bool != types[1]:
            differs += f" of {types[1]}"
        if differs and _is_nothing(outcome):
            raise Found("It returns None: is a `return` missing?")
        if differs and (line := _known_mistake(exercise, cases, outcomes, name)):
            raise Found(line, f"In the case “{name}”: {differs}.")
        if difference(own, given[name], 0.0, True):
            raise Found(f"It changes its inputs, in the case “{name}”. Work on a copy.")
        if differs:
            raise Found(f"In the case “{name}”: {differs}.")
        if _shares_memory(outcome, given[name]) > _shares_memory(expected, own):
            line = "Its result is a view of an input: who changes one changes the other. Copy it."
            raise Found(line, f"In the case “{name}”.")
    if failed:
        raise failed
    return f"{len(cases)} cases agree, to within {exercise.tolerance:g}."


def _known_values(exercise: Exercise) -> dict[str, Any]:
    "What is said of an answer that is one of these values."
    rounded = f"Right, but rounded too far. Give {exercise.form}."
    return exercise.mistakes | {rounded: exercise.solution()}


def _sought(exercise: Exercise) -> str:
    "The form of a value, with the length of a list where no mistake has another."
    expected, form = exercise.solution(), exercise.form
    lists = [x for x in (expected, *exercise.mistakes.values()) if isinstance(x, list | tuple)]
    if isinstance(expected, list | tuple) and len({len(x) for x in lists}) == 1:
        form = form.replace(loosely(expected), loosely(expected, len(expected)), 1)
    return form


def _judge_value(exercise: Exercise, answer: Any) -> str:
    expected, form, tolerance = exercise.solution(), exercise.form, exercise.tolerance
    if is_open(answer):
        raise Found(f"Fill the blank: {form}. Then run this cell again.", open=True)
    if not (differs := difference(expected, answer, tolerance, False)):
        return "That is right."
    known = _known_value(_known_values(exercise), answer, tolerance)
    if line := known or _kinds_differ(expected, answer):
        raise Found(line)
    if _is_reordered(expected, answer, tolerance):
        raise Found("All of it is there, in another order.")
    sought = _sought(exercise)
    raise Found(f"{differs[0].upper()}{differs[1:]}. What is looked for: {sought}.")


def as_data(exercise: Exercise) -> dict[str, Any]:
    """What book/_static/answers.js needs to judge a value as `check` does.

    Values are Python's text, which tells 1 from 1.0 and knows nan.
    """
    with sandbox.sealed():
        expected = exercise.solution()
        return {
            "key": repr(expected),
            "kind": loosely(expected),
            "tolerance": exercise.tolerance,
            "form": exercise.form,
            "sought": _sought(exercise),
            "known": [[line, repr(value)] for line, value in _known_values(exercise).items()],
        }


def judge(exercise: Exercise, answer: Any) -> Verdict:
    "The verdict on an answer. Anything may be handed over; one answer is looked at at a time."
    sandbox.refuse_nesting()
    sandbox.import_what_gradients_need()
    prints, state, notes = Prints(), "passed", ()
    try:
        with sandbox.sealed():
            if exercise.is_value:
                line = _judge_value(exercise, answer)
            else:
                line = _judge_function(exercise, answer, prints)
    except Found as finding:
        line, notes, state = finding.line, finding.notes, "open" if finding.open else "not yet"
    except Exception as error:  # an object that even a look at it upsets
        words, notes, state = traceback.format_exception_only(error)[-1].strip(), (), "not yet"
        line = f"This answer cannot be compared with anything: {words.splitlines()[0][:200]}"
    return Verdict(exercise.id, state, line, (*notes, *prints.notes()))
