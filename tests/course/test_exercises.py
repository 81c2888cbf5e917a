"""The checker: whatever is handed to it gets one helpful line, and leaves nothing behind."""

import functools
import json
import sys

import pytest
import torch
from torch import nn

from transformer_lit.course.exercises import (
    Question,
    Task,
    Verdict,
    exercise,
    expecting,
    expecting_all,
    gradients,
    judge,
)
from transformer_lit.exercises import check

NOT_SCALED = "The factor is not used."
OVER_ROWS = "The sum runs over the rows. It must run over the last axis."


def row_checks(answer):
    for case, x, factor in (("five", torch.randn(5, 7), 2.0), ("three", torch.randn(3, 11), 0.5)):
        with expecting(answer(x, factor), factor * x.sum(-1), case=f"{case} rows") as wrong:
            wrong[NOT_SCALED] = x.sum(-1)
            wrong[OVER_ROWS] = factor * x.sum(0)


def row_sums(x, factor):
    return factor * x.sum(-1)


SUMS = Task("test.1", row_sums, row_checks, in_place=False)


# --- a repair, and what draws ---------------------------------------------------------------------


def test_in_a_repair_the_damage_itself_is_not_named():
    def checks(answer):
        with expecting_all(answer, lambda x: x, {"1": (1.0,), "2": (2.0,)}) as wrong:
            wrong["The sign is turned."] = lambda x: -x
            wrong["It fails."] = lambda x: [][x]

    task = Task("test.2", lambda x: x, checks, in_place=False)
    assert judge(task, lambda x: x)
    assert judge(task, lambda x: -x).line == "The sign is turned."
    both = judge(task, lambda x: -x if x < 2 else 0.0)
    assert both.line == "In the case “1”: it should be 1 and is -1."
    fails_later = judge(task, lambda x: -x if x < 2 else 1 / 0)
    assert fails_later.line == both.line
    assert "ZeroDivisionError" in judge(task, lambda x: x if x < 2 else 1 / 0).line


def test_an_answer_that_draws_draws_what_the_reference_draws():
    def drop(x, share=0.5):
        return torch.nn.functional.dropout(x, share)

    def checks(answer):
        with expecting_all(answer, drop, {"a": (torch.ones(101),), "b": (torch.ones(97),)}):
            pass

    task = Task("test.2", lambda x: drop(x), checks, in_place=False)
    assert judge(task, drop) and not judge(task, lambda x: drop(x, 0.4))


def test_a_mistake_that_fails_ends_the_hints_and_an_author_s_error_shows():
    def checks(answer):
        with expecting(answer(torch.ones(3)), torch.ones(3), case="ones") as wrong:
            wrong["Twice."] = 2 * torch.ones(3)
            wrong["Never."] = [][0]

    task = Task("test.2", lambda x: x.clone(), checks, in_place=False)
    assert judge(task, lambda x: 2 * x).line == "Twice."
    assert judge(task, lambda x: 3 * x).line.startswith("In the case “ones”: 3 of 3")
    assert "IndexError" in judge(task, lambda x: x.clone()).line


# --- functions: answer, and what the line must say -----------------------------------------------


def loops(x, factor):
    return torch.stack([sum(factor * number for number in row) for row in x])


class Sums(nn.Module):
    def forward(self, x, factor):
        return factor * x.sum(-1)


def blank(x, factor):
    "Only a docstring."


def blank_dots(x, factor): ...


@functools.wraps(blank_dots)
def wrapped(x, factor):
    return blank_dots(x, factor)


def annotated(x: int, *, y: float = 0.5) -> str:
    return x


def returns_dots(x, factor):
    return ...


def to_do(x, factor):
    raise NotImplementedError


def no_return(x, factor):
    factor * x.sum(-1)


def divides(x, factor):
    return x / len(str(0 / 0))


def leaves(x, factor):
    sys.exit("bye")


def recurses(x, factor):
    return recurses(x, factor)


def in_place(x, factor):
    return x.mul_(factor).sum(-1)


def view(x, factor):
    return x.mul_(0)[:, 0]


def asks(x, factor):
    return factor * x.sum(-1) + float(input("How much more? "))


async def waits(x, factor):
    return factor * x.sum(-1)


def one_by_one(x, factor):
    yield from factor * x.sum(-1)


def holds_itself(x, factor):
    found = []
    found.append(found)
    return found


class Hostile:
    def __getattr__(self, name):
        raise RuntimeError("do not look at me")


class NoEqual:
    def __eq__(self, other):
        raise RuntimeError("do not compare me")

    def __bool__(self):
        raise RuntimeError("do not ask me")


OPEN = "Write row_sums(x, factor), then run this cell again"
ANSWERS = [  # None where it passes
    (loops, None),
    (Sums(), None),
    (lambda x, f: f * x.sum(0), OVER_ROWS),
    (lambda x, f: x.sum(-1) * (1 if len(x) == 5 else 3), NOT_SCALED),  # of two the first
    (blank, OPEN),
    (blank_dots, OPEN),
    (wrapped, OPEN),
    (returns_dots, OPEN),
    (to_do, OPEN),
    (None, OPEN),
    (..., OPEN),
    (no_return, "returns None: is a `return` missing"),
    (divides, "raised ZeroDivisionError: division by zero. Line"),
    (leaves, "raised SystemExit: bye. Line"),
    (recurses, "raised RecursionError"),
    (in_place, "It changes its inputs. Work on a copy."),
    (view, "changes its inputs"),
    (asks, "raised EOFError: EOF when reading a line. Line"),
    (one_by_one, "got an object of type generator"),
    (holds_itself, "got a list of 1"),
    (3.0, "Expected row_sums(x, factor), got a number. Pass the function"),
    ("row_sums", "got a word. Pass the function"),
    (torch.ones(5), "got a tensor of shape (5,). Pass the function"),
    (nn.Linear, "got the class Linear. Pass an object, not its class"),
    (Hostile(), ""),
    (NoEqual(), "got an object of type NoEqual"),
    (lambda x: x, "must take the arguments of row_sums(x, factor), and takes (x)"),
    (lambda x, y, z: x, "and takes (x, y, z)"),
    (annotated, "and takes (x, *, y=0.5)"),
    (waits, "got an object of type coroutine"),
    (lambda x, f: Hostile(), ""),
    (lambda x, f: NoEqual(), "expected a tensor of shape (5,), got an object of type NoEqual"),
    (lambda x, f: (f * x.sum(-1)).sum().item(), "got a number: no `item`, no `float`"),
    (lambda x, f: (f * x.sum(-1)).tolist(), "expected a tensor of shape (5,), got a list of 5"),
    (lambda x, f: (f * x.sum(-1)).numpy(), "got an object of type ndarray"),
    (lambda x, f: f * x.sum(-1, keepdim=True), "of shape (5,), got a tensor of shape (5, 1)"),
    (lambda x, f: (f * x.sum(-1)) > 0, "got a Boolean tensor of shape (5,)"),
    (lambda x, f: (f * x.sum(-1)).long(), "expected floats, got torch.int64"),
    (lambda x, f: f * x.sum(-1) + 1, "5 of 5 entries are wrong: entry [0] should be"),
    (lambda x, f: x.sum(-1) * torch.nan, "5 entries are nan"),
    (lambda x, f: (f * x.sum(-1)).requires_grad_(), None),
    (lambda x, f: (f * x.sum(-1)).half(), "entries are wrong"),
    (lambda x, f: type("T", (torch.Tensor,), {})(5), ""),
]


@pytest.mark.filterwarnings("ignore:coroutine")  # nobody awaits it
@pytest.mark.parametrize("answer,line", ANSWERS, ids=range(len(ANSWERS)))
def test_whatever_is_handed_over_gets_one_helpful_line(answer, line):
    verdict = judge(SUMS, answer)
    if line is None:
        assert verdict.state == "passed" and verdict.line == "That is right."
    else:
        assert not verdict and line in verdict.line and "\n" not in verdict.line, verdict
        assert verdict.state == ("open" if line == OPEN else "not yet")
    if line in (NOT_SCALED, OVER_ROWS):
        assert "five rows" in verdict.notes[0]
    if answer is divides:
        assert verdict.notes == ("It was given tensors of shapes (5, 7).",)


def test_a_default_device_without_numbers_is_left_outside():
    "Many set one at the head of a notebook; on a GPU too the checker and the answer must meet."
    torch.set_default_device("meta")
    try:
        verdict, device = judge(SUMS, row_sums), torch.get_default_device()
    finally:
        torch.set_default_device(None)
    assert verdict and device.type == "meta"


def test_prints_of_an_answer_are_notes_of_its_verdict(capsys):
    def chatty(x, factor):
        print("a line")
        return factor * x.sum(-1)

    verdict = judge(SUMS, chatty)  # two cases, a call for each
    assert verdict and verdict.notes == ("It printed: a line",) * 2
    assert capsys.readouterr() == ("", "")


def test_nothing_outlives_the_call():
    def meddles(x, factor):
        torch.set_default_dtype(torch.float16)
        torch.set_grad_enabled(False)
        torch.manual_seed(7)
        raise ValueError("now")

    torch.manual_seed(3)
    state, streams = torch.get_rng_state(), (sys.stdout, sys.stderr, sys.stdin)
    for answer in (meddles, row_sums):
        judge(SUMS, answer)
    assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)
    assert (sys.stdout, sys.stderr, sys.stdin) == streams


def test_an_interrupt_goes_through():
    def interrupted(x, factor):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(SUMS, interrupted)


def test_changing_inputs_may_be_what_is_asked_for():
    def double(x):
        x.mul_(2)
        return x

    def checks(answer):
        with expecting(answer(torch.ones(3)), 2 * torch.ones(3)):
            pass

    assert judge(Task("test.2", double, checks, in_place=True), double)
    line = judge(Task("test.2", double, checks, in_place=False), double).line
    assert line == "It changes its inputs. Work on a copy."


# --- classes -------------------------------------------------------------------------------------


class Shift:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x + self.by


def shift_checks(Shift):
    x = torch.randn(5)
    with expecting(Shift(3.0)(x), x + 3, case="by 3") as wrong:
        wrong["The sign is turned."] = x - 3


SHIFT = Task("test.2", Shift, shift_checks, in_place=False)


def raises_key(self, by):
    raise KeyError(by)


CLASSES = [  # the methods of the answer, and its line
    ({"__call__": lambda self, x: self.by + x}, "That is right."),
    ({"__call__": lambda self, x: x - self.by}, "The sign is turned."),
    ({"__init__": lambda self, a, b: None}, "class Shift(by), and takes (a, b)"),
    ({"__call__": None}, "'NoneType' object is not callable"),
    ({"__init__": raises_key}, "raised KeyError: 3.0. Line"),
]


@pytest.mark.parametrize("methods,line", CLASSES, ids=range(len(CLASSES)))
def test_a_class_is_made_and_used(methods, line):
    assert line in judge(SHIFT, type("Mine", (Shift,), methods)).line


def test_a_class_may_be_open_and_is_no_object():
    class Blank(Shift):
        def __call__(self, x):
            raise NotImplementedError

    assert judge(SHIFT, Blank).line.startswith("Write class Shift(by)")
    assert "Pass the class itself" in judge(SHIFT, Shift(3.0)).line


def test_gradients_are_compared_too():
    def checks(answer):
        inputs = torch.randn(5), torch.ones(5, dtype=torch.bool)
        with expecting(gradients(answer, *inputs), gradients(square, *inputs)) as wrong:
            wrong["That is the gradient of x."] = gradients(lambda x: x + 0, inputs[0])

    def square(x, keep):
        return x.square()

    task = Task("test.2", square, checks, in_place=False)
    assert judge(task, lambda x, keep: x * x) and judge(task, lambda a, b: a * a)
    assert judge(task, lambda x, keep: x + 0).line == "That is the gradient of x."
    assert "gradient of x: 5 of 5" in judge(task, lambda x, keep: x**3).line.lower()
    assert "radient of x: none comes back" in judge(task, lambda x, k: (x * x).detach()).line
    assert judge(task, lambda x, keep: None).line.startswith("Write")
    in_place = judge(task, lambda x, keep: x.mul_(2)).line
    assert in_place.startswith("It changes an input or a weight in place. Work on a copy. Line")


def test_an_earlier_exercise_that_is_open_is_named():
    def earlier(x):
        raise NotImplementedError

    def right(x, factor):
        return factor * earlier(x)

    verdict = judge(SUMS, right)
    assert verdict.state == "not yet"
    assert verdict.line.endswith(
        "earlier raises NotImplementedError. Is an earlier exercise still open?"
    )

    def of_torch(x, factor):
        raise NotImplementedError("no softmax for Booleans\nat all")

    assert judge(SUMS, of_torch).line.endswith("NotImplementedError. no softmax for Booleans")

    def row_sums(x, factor):
        def inner():
            raise NotImplementedError

        return inner()

    assert judge(SUMS, row_sums).state == "open"


# --- the text of a solution ----------------------------------------------------------------------


def helper(x):
    return x + 1


@exercise(
    "test.3",
    lambda answer: None,
)
@functools.cache
def solved(x):
    return helper(x)


def test_the_text_of_a_solution_is_what_a_reader_may_write():
    text = Task("test.3", solved.__wrapped__, print, in_place=False).source
    assert text.startswith("def helper(x):") and "exercise" not in text
    names = {"functools": functools}
    exec(text, names)
    assert names["solved"](3) == 4


# --- values --------------------------------------------------------------------------------------

COUNTED = {"You counted twice.": [26, 34]}
SHORT = {"The last one is missing.": [13]}
FLIPPED = "Write True and False themselves"
COARSE = "Right, but rounded too far"
RIGHT = "That is right."
VALUES = [  # what is right, typical mistakes, an answer, and its line
    (3, {}, 3.0, RIGHT),
    (3, {}, 4, "Expected: a whole number."),
    (0.5, {}, 0.50009, RIGHT),
    (0.5, {}, 0.5002, "Expected: a number, to within 0.0001."),
    ("zeros", {}, " Zeros ", RIGHT),
    ("zeros", {}, "nan", "Expected: a word."),
    (3, {}, Hostile(), "raised RuntimeError: do not look at me"),
    (3, {}, NoEqual(), "got an object of type NoEqual"),
    ([13, 17], COUNTED, (13, 17), RIGHT),
    ([13, 17], COUNTED, [26, 34], "You counted twice."),
    ([13, 17], COUNTED, [13, 18], "1 of 2 entries are right. Expected: a list of 2 numb"),
    *(
        ([13, 17], COUNTED, x, "a list of 2 numbers.")
        for x in ([1, 2], [13, 18, 19], 13.5, "x", {})
    ),
    *(([13, 17], SHORT, x, "Expected: a list.") for x in ([1, 2, 3], 13.5, "x")),
    *(([13, 17], {}, x, "Fill the blank") for x in (None, ..., [..., 2], (1, [None]), "...", "")),
    ([[13], "x"], {}, [1], "Expected: a list of 2 parts."),
    ([True, False], {}, [1, 0], FLIPPED),
    ([True, False], {}, ["True", "False"], FLIPPED),
    ([3, 5], {}, ["3", "5"], "Write numbers without quotes"),
    ([3, 5, 7], {}, [7, 3, 5], "in another order"),
    (["a", "b", "c"], {}, ["b", "a", "c"], "1 of 3 entries are right"),
    ([True, False], {}, [False, True], "0 of 2 entries are right"),
    (0.0512, {}, 0.05, "Right, but rounded too far."),
    (0.0012, {}, 0.0, "is not it"),
    ([-0.875, 0.25, 0.625], {}, [-0.88, 0.25, 0.63], COARSE),
    ([-0.875, 0.25, 0.625], {}, [-0.88, 0.25, 0.62], COARSE),
]
ROOT = {"You forgot the root.": [2 / 7, 11]}
known = ([0.29, 11], [0.2857, 11], (0.286, 11), torch.tensor([0.2857143, 11.0]))
VALUES += [([2**0.5, 11], ROOT, answer, "You forgot the root.") for answer in known]
other = ([0.3, 11], [0.28, 11], [0.29, 12], [1.42, 11])  # one digit, cut off, not it
VALUES += [([2**0.5, 11], ROOT, answer, "entries are right") for answer in other]
VALUES += [
    ([2**0.5, 11], ROOT, [1.4, 11], f"{COARSE}. Give a list, to within 0.0001"),
    ([2**0.5, 11], ROOT, [1.4142, 11], RIGHT),
]


@pytest.mark.parametrize("expected,mistakes,answer,line", VALUES, ids=range(len(VALUES)))
def test_a_value_gets_one_line_that_does_not_give_it_away(expected, mistakes, answer, line):
    "`compare` has its own tests; objects that upset a look at them end in a verdict too."
    question = Question("test.9", expected, 1e-4, mistakes)
    verdict = judge(question, answer)
    assert line in verdict.line and "\n" not in verdict.line
    blank = "open" if line == "Fill the blank" else "not yet"
    assert verdict.state == ("passed" if line == RIGHT else blank)
    assert "17" not in verdict.line and "entry" not in verdict.line
    assert judge(question, ...).state == "open"


# --- names and verdicts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "id,near",
    [
        ("attend.99", "attend."),
        ("atend.3", "attend"),
        ("", "attend"),
        ("attend", "attend"),
        ("../attend.3", "attend"),
        (None, 'check("attend.2", my_answer)'),
        (row_sums, "got a function"),
        (torch.ones(3), "Expected a name"),
    ],
)
def test_an_unknown_name_gets_the_near_ones(id, near):
    verdict = check(id, 3)
    assert verdict.state == "unknown" and not verdict and near in verdict.line


def test_a_verdict_is_for_people_and_for_programs():
    verdict = Verdict("attend.2", "not yet", "Is 1 < 2 & 3?", ("In the case <b>",))
    assert json.loads(json.dumps(verdict.as_dict())) == {
        "id": "attend.2",
        "state": "not yet",
        "line": "Is 1 < 2 & 3?",
        "notes": ["In the case <b>"],
    }
    assert repr(verdict) == "attend.2: not yet. Is 1 < 2 & 3?\n  In the case <b>"
    assert verdict._repr_html_() == (
        '<div class="verdict not-yet"><strong>attend.2: not yet.</strong> Is 1 &lt; 2 &amp; 3?'
        "<ul><li>In the case &lt;b&gt;</li></ul></div>"
    )
