"""Every exercise of every chapter: blank, solution and mistakes each get the right verdict."""

import ast
import importlib
import json
from pathlib import Path

import pytest
import torch
from chapter import exercises

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
    for module in filter(None, (chapter, f"exercises.{one.id.split('.')[0]}")):
        names |= vars(importlib.import_module(f"transformer_lit.{module}"))
    names.pop(find_exercise(one.id).name, None)  # the solution may not stand in for an answer
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
    return value + by if type(value) in (int, float) or torch.is_tensor(value) else value


@pytest.mark.parametrize("one,chapter", list(written()))
def test_blank_solution_and_mistakes_get_their_verdicts(one, chapter):
    found = find_exercise(one.id)
    assert one.blank.endswith(f'check("{one.id}", {found.name})')
    blank = verdict_of(one.blank, one, chapter)
    if one.kind == "repair":
        assert found.repair and blank.state == "not yet" and blank.line not in found.mistakes, blank
    else:
        assert blank.state == "open" and "run this cell again" in blank.line, blank
    assert (verdict := check(one.id, found.solution() if found.is_value else found.solution)), (
        verdict
    )
    assert len(found.mistakes) >= {"build": 2, "repair": 0}.get(one.kind, 1)
    for line, mistake in found.mistakes.items():
        verdict = check(one.id, mistake)
        assert verdict.state == "not yet" and verdict.line == line, verdict
    if found.is_value:
        a_value_off_by_more_than_the_tolerance_is_refused(found)


def a_value_off_by_more_than_the_tolerance_is_refused(found):
    value, tolerance = found.solution(), found.tolerance
    whole = all(isinstance(n, int) for n in numbers_in(value))
    if numbers_in(value) and not whole:
        assert check(found.id, moved(value, 0.9 * tolerance))
        assert f"to within {tolerance:g}" in check(found.id).line  # stated below the blank
    if numbers_in(value) or torch.is_tensor(value):
        assert not check(found.id, moved(value, 1 if whole else 1.1 * tolerance))
    assert not check(found.id, "no such word" if isinstance(value, str) else [value])
