"A claim of another process passes only with the values of a right answer, whatever it says."

import functools
import importlib
import inspect
import json

import pytest
import solved
import torch

from transformer_lit.course.exercises import Question
from transformer_lit.course.marking import _plain, claim, confirmed, right_values
from transformer_lit.exercises import find_exercise

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # a reader runs without them


def drawing(answer):
    "The same answer, which draws random numbers that the check does not know of."

    @functools.wraps(answer, updated=())
    def draws(*inputs, **named):
        torch.randn(7)
        return answer(*inputs, **named)

    if not inspect.isclass(answer):
        return draws
    return type(answer.__name__, (answer,), {"__init__": drawing(answer.__init__)})


@pytest.mark.parametrize("id", solved.written())
def test_a_right_answer_is_confirmed_by_its_values_and_by_nothing_else(id):
    one = find_exercise(id)
    right = one.answer if isinstance(one, Question) else drawing(one.solution)
    verdict, claimed = claim(one, right)
    sent = json.loads(json.dumps(claimed))
    assert verdict and confirmed(one, sent) == verdict
    for values in ([], sent["values"][:-1], [None] * len(sent["values"]), [[], {"tensor": ""}]):
        assert not confirmed(one, sent | {"values": values})
    if not isinstance(one, Question):
        assert right_values(one)


VALUES = [1, 2.5, "a", None, True, [1, [2]], {"a": 1, 3: [4]}, torch.empty(0, 3), torch.tensor(7)]
VALUES += [
    torch.arange(15.0).view(3, 5).T,
    torch.ones(1, 7)[:, :1],
    torch.ones(2, dtype=torch.bfloat16) > 0,
]
MASKS = find_exercise("masks.3")
VALUE = _plain(torch.ones(2, 7) > 0)
LIES = [
    None, 7, "passed", [], {}, {"state": "passed"}, {"values": VALUE}, {"values": None},
    {"values": [VALUE] * 3}, {"values": [VALUE] * 10**4}, {"values": [{"dict": [[[], 1]]}] * 3},
    {"values": [{**VALUE, "shape": [2**62, 2**62]}] * 3}, {"values": [{**VALUE, "shape": "a"}] * 3},
    {"values": [{**VALUE, "dtype": "torch.save"}] * 3}, {"values": [{**VALUE, "tensor": "é"}] * 3},
    {"values": [float("nan")] * 3}, {"values": [10**400] * 3}, {"values": ["\ud800"] * 3},
    {"notes": 7}, {"notes": ["\ud800" * 9999] * 9999}, {"state": "not yet", "line": "\ud800"},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_crosses_as_it_is(value):
    one = Question("a.1", value)
    _, claimed = claim(one, value)
    assert (
        confirmed(one, json.loads(json.dumps(claimed))).state
        == ("open", "passed")[value is not None]
    )


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: repr(lie)[:50])
def test_a_lie_is_a_verdict_that_can_be_printed(lie):
    honest = {"state": "passed", "line": "", "notes": [], "values": []}
    verdict = confirmed(MASKS, honest | lie if isinstance(lie, dict) else lie)
    assert verdict.state == "not yet" and len(repr(verdict).encode()) < 99_999


def test_importing_a_claim_never_runs_code():
    "Not a pickle: what comes is text, numbers and bytes."
    source = inspect.getsource(importlib.import_module("transformer_lit.course.marking"))
    assert "pickle" not in source and "torch.load" not in source
