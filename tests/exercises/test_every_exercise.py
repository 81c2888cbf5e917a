"""Every exercise of every chapter: blank, solution and mistakes each get the right verdict."""

import ast
import importlib
import json
from pathlib import Path

import pytest
import torch
from chapter import exercises

from transformer_lit.base.exercises import check, find_exercise

ROOT = Path(__file__).parents[2]


def written():
    "All exercises, each with the module that its chapter exports."
    for path in sorted((ROOT / "nbs").rglob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"] if "checkpoints" not in str(path) else []
        code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        chapter = code.partition("#| default_exp ")[2].split("\n")[0]
        for one in exercises(cells):
            yield pytest.param(one, chapter, id=one.id)


every_exercise = pytest.mark.parametrize("one,chapter", list(written()))


@pytest.fixture(autouse=True)
def doubles():
    "As in the notebooks: a solution's own assertions are made there."
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def verdict_of(source, one, chapter):
    """Run a cell as the reader does, and give the verdict that is its last value.

    It may use what the chapter exports and what the checks import, and nothing of other cells.
    """
    names = {"check": check}
    for module in filter(None, (chapter, f"exercises.{one.id.split('.')[0]}")):
        names |= vars(importlib.import_module(f"transformer_lit.{module}"))
    names.pop(find_exercise(one.id).name, None)  # the reference may not stand in for an answer
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value)
    exec(compile(ast.Module(body, []), f"<{one.id}>", "exec"), names)
    return eval(compile(last, f"<{one.id}>", "eval"), names)


def is_value(one):
    return find_exercise(one.id).cases is None


@every_exercise
def test_statement_and_check_say_the_same(one, chapter):
    found = find_exercise(one.id)
    assert (found.kind, found.minutes, found.level) == (one.kind, one.minutes, one.level)
    assert one.blank.endswith(f'check("{one.id}", {found.name})')


@every_exercise
def test_the_blank_gets_a_helpful_line(one, chapter):
    verdict = verdict_of(one.blank, one, chapter)
    if one.kind == "repair":
        assert verdict.state == "not yet" and verdict.line not in find_exercise(one.id).mistakes
    else:
        assert verdict.state == "open" and "run this cell again" in verdict.line


@every_exercise
def test_the_solution_passes(one, chapter):
    verdict = verdict_of(one.solution, one, chapter)
    assert verdict, verdict


@every_exercise
def test_the_reference_passes(one, chapter):
    found = find_exercise(one.id)
    verdict = check(one.id, found.reference() if is_value(one) else found.reference)
    assert verdict, verdict


@every_exercise
def test_each_typical_mistake_gets_its_own_line(one, chapter):
    mistakes = find_exercise(one.id).mistakes
    assert len(mistakes) >= {"build": 2, "repair": 0}.get(one.kind, 1)
    for line, mistake in mistakes.items():
        verdict = check(one.id, mistake)
        assert verdict.state == "not yet" and verdict.line == line, verdict


def numbers_in(value):
    if isinstance(value, list | tuple):
        return [n for part in value for n in numbers_in(part)]
    return [value] if type(value) in (int, float) else []


def moved(value, by):
    if isinstance(value, list | tuple):
        return [moved(part, by) for part in value]
    return value + by if type(value) in (int, float) or torch.is_tensor(value) else value


@pytest.mark.parametrize("one,chapter", [p for p in written() if is_value(p.values[0])])
def test_a_value_off_by_more_than_the_tolerance_is_refused(one, chapter):
    found = find_exercise(one.id)
    value, tolerance = found.reference(), found.tolerance
    whole = all(isinstance(n, int) for n in numbers_in(value))
    if numbers_in(value) and not whole:
        assert check(one.id, moved(value, 0.9 * tolerance))
        assert f"to within {tolerance:g}" in check(one.id).line  # stated below the blank
    if numbers_in(value) or torch.is_tensor(value):
        assert not check(one.id, moved(value, 1 if whole else 1.1 * tolerance))
    wrong = "no such word" if isinstance(value, str) else [value]
    assert not check(one.id, wrong)


def test_the_tests_see_the_chapters_that_have_exercises():
    assert {one.values[0].id.split(".")[0] for one in written()} >= {"masks", "attend"}
