"""Every exercise of every chapter: blank, solution and mistakes each get the right verdict."""

import ast
import copy
import importlib
import json
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
from chapter import exercises

from transformer_lit.course import exercises as engine
from transformer_lit.course.exercises import difference
from transformer_lit.exercises import check, find_exercise

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # a reader runs without them
ROOT = Path(__file__).parents[2]


def written():
    "All exercises, each with the module that its chapter exports."
    for path in sorted((ROOT / "nbs").rglob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"] if "checkpoints" not in str(path) else []
        code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        chapter = code.partition("#| default_exp ")[2].split("\n")[0]
        for one in exercises(cells):
            yield pytest.param(one, chapter, id=one.id)


@pytest.fixture(autouse=True)
def doubles():
    "As in the notebooks."
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def verdict_of(source, one, chapter):
    """Run a cell as the reader does, and give the verdict that is its last value.

    It may use what the chapter exports and what the checks import, and nothing of other cells.
    """
    names = {"check": check}
    for module in filter(None, (chapter, one.solution and f"exercises.{one.id.split('.')[0]}")):
        names |= vars(importlib.import_module(f"transformer_lit.{module}"))
    names.pop(getattr(find_exercise(one.id), "name", ""), None)  # it may not stand in for an answer
    names["check"] = check
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value)
    exec(compile(ast.Module(body, []), f"<{one.id}>", "exec"), names)
    return eval(compile(last, f"<{one.id}>", "eval"), names)


def numbers_in(value):
    if isinstance(value, list | tuple):
        return [n for part in value for n in numbers_in(part)]
    return [value] if type(value) in (int, float) else []


def moved(value, by):
    if isinstance(value, list | tuple):
        return [moved(part, by) for part in value]
    return value + by if type(value) in (int, float) else value


class Spy:
    "In place of what a check is made of: keeps which hints some answer could get."

    def __init__(self, monkeypatch, module):
        self.said, self.reached = set(), set()
        for name in ("expecting", "expecting_all"):
            monkeypatch.setattr(module, name, getattr(self, name), raising=False)

    def note(self, right, wrong, tolerance):
        "A hint is reached where its value is neither right nor that of a hint before it."
        self.said |= wrong.keys()
        others = [right]
        for hint, value in wrong.items():
            if all(difference(other, value, tolerance, True) for other in others):
                self.reached.add(hint)
            others.append(value)

    @contextmanager
    def expecting(self, found, right, *, case="", tolerance=1e-6):
        with engine.expecting(found, right, case=case, tolerance=tolerance) as wrong:
            yield wrong
        self.note(right, wrong, tolerance)

    @contextmanager
    def expecting_all(self, answer, right, cases, *, tolerance=1e-6):
        def outcomes(function):
            found = {}
            for case, inputs in cases.items():
                engine.seed()
                with suppress(Exception):  # then no answer gives what it gives
                    found[case] = function(*copy.deepcopy(inputs))
            return found

        with engine.expecting_all(answer, right, cases, tolerance=tolerance) as wrong:
            yield wrong
        self.note(outcomes(right), {hint: outcomes(f) for hint, f in wrong.items()}, tolerance)


def test_what_takes_hints_is_used_in_a_with_statement():
    "`expecting(…)` by itself compares nothing."
    for path in sorted((ROOT / "transformer_lit/exercises").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        begun = {
            id(item.context_expr)
            for n in ast.walk(tree)
            if isinstance(n, ast.With)
            for item in n.items
        }
        for node in ast.walk(tree):
            name = getattr(getattr(node, "func", None), "id", "")
            assert not name.startswith("expecting") or id(node) in begun, (path.name, node.lineno)


@pytest.mark.parametrize("one,chapter", list(written()))
def test_blank_solution_and_mistakes_get_their_verdicts(one, chapter, monkeypatch):
    found = find_exercise(one.id)
    known = isinstance(found, engine.Question)
    last = one.blank.split("\n")[-1]
    assert last.startswith(f'check("{one.id}", ') and (known or last.endswith(f"{found.name})"))
    blank = verdict_of(one.blank, one, chapter)
    if known:
        assert check(one.id, found.answer) and found.hints
        for line, value in found.hints.items():
            verdict = check(one.id, value)
            assert verdict.state == "not yet" and verdict.line == line, verdict
        a_value_off_by_more_than_the_tolerance_is_refused(found)
    else:
        spy = Spy(monkeypatch, sys.modules[found.checks.__module__])
        assert (verdict := check(one.id, found.solution)), verdict
        assert spy.said == spy.reached
        assert blank.line not in spy.said
    state = "not yet" if one.kind == "repair" else "open"
    assert blank.state == state and (state == "not yet" or "run this cell again" in blank.line)


def a_value_off_by_more_than_the_tolerance_is_refused(found):
    value, tolerance = found.answer, found.tolerance
    whole = all(isinstance(n, int) for n in numbers_in(value))
    if numbers_in(value) and not whole:
        assert check(found.id, moved(value, 0.9 * tolerance))
        assert f"to within {tolerance:g}" in check(found.id).line  # stated below the blank
    if numbers_in(value):
        assert not check(found.id, moved(value, 1 if whole else 1.1 * tolerance))
    assert not check(found.id, "no such word" if isinstance(value, str) else [value])
