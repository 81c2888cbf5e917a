"""The checker: whatever is handed to it gets one helpful line, and leaves nothing behind."""

import functools
import json
import sys
import threading

import pytest
import torch
from torch import nn

from transformer_lit.course import exercises as engine
from transformer_lit.course.exercises import EXERCISES, Verdict, edited, with_gradients, wrong
from transformer_lit.exercises import check


def exercise(id, mistakes=(), **options):
    "As the engine's, with the mistakes as objects: what a test defines inside has no module."

    def register(solution):
        engine.exercise(id, **options)(solution)
        EXERCISES[id].__dict__["mistakes"] = dict(mistakes)
        return solution

    return register


@pytest.fixture(autouse=True)
def registry():
    "Exercises that a test registers are gone after it."
    yield
    for id in [id for id in EXERCISES if id.startswith("test.")]:
        del EXERCISES[id]


def cases():
    return {"five rows": (torch.randn(5, 7), 2.0), "three rows": (torch.randn(3, 11), 0.5)}


NOT_SCALED = "The factor is not used."
OVER_ROWS = "The sum runs over the rows. It must run over the last axis."


@pytest.fixture
def row_sums():
    "An exercise on a function of a tensor and a number."

    @exercise(
        "test.1",
        cases=cases,
        seconds=60,
        mistakes={
            NOT_SCALED: lambda x, factor: x.sum(-1),
            OVER_ROWS: lambda x, factor: factor * x.sum(0),
        },
    )
    def row_sums(x, factor):
        return factor * x.sum(-1)

    return row_sums


# --- a repair, and what draws ---------------------------------------------------------------------


def test_in_a_repair_the_damage_itself_is_not_named():
    known = {"The sign is turned.": lambda x: -x}

    def two():
        return {"1": (1.0,), "2": (2.0,)}

    @exercise("test.2", repair=True, mistakes=known, cases=two)
    def same(x):
        return x

    assert check("test.2", lambda x: -x).line == "The sign is turned."
    assert check("test.2", lambda x: -x if x < 2 else 0.0).line.startswith("In the case “1”")


def test_an_answer_that_draws_draws_what_the_reference_draws():
    @exercise("test.2", cases=lambda: {"a": (torch.ones(101),), "b": (torch.ones(97),)})
    def drop(x):
        return torch.nn.functional.dropout(x, 0.5)

    assert check("test.2", lambda x: torch.nn.functional.dropout(x, 0.5))
    assert not check("test.2", lambda x: torch.nn.functional.dropout(x, 0.4))


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


def endless(x, factor):
    while True:
        pass


def asks(x, factor):
    return factor * x.sum(-1) + float(input("How much more? "))


def half_letters(x, factor):
    raise ValueError("\ud800")


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
    (in_place, "changes its inputs, in the case “five rows”"),
    (view, "changes its inputs"),
    (asks, "raised EOFError: EOF when reading a line. Line"),
    (half_letters, "raised ValueError: ?. Line"),
    (one_by_one, "got an object of type generator"),
    (holds_itself, "got a list of 1"),
    (3.0, "Expected row_sums(x, factor), got a number: hand over the function"),
    ("row_sums", "got a word: hand over the function"),
    (torch.ones(5), "got a tensor of shape (5,): hand over the function"),
    (nn.Linear, "got the class Linear: hand over an object, not its class"),
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
    (lambda x, f: (f * x.sum(-1)).to("meta"), "lies on the device meta, where tensors have no"),
    (lambda x, f: (f * x.sum(-1)).to_sparse(), None),
    (lambda x, f: (f * x.sum(-1)).requires_grad_(), None),
    (lambda x, f: (f * x.sum(-1)).half(), "entries are wrong"),
    (lambda x, f: type("T", (torch.Tensor,), {})(5), ""),
]


@pytest.mark.filterwarnings("ignore:coroutine")  # nobody awaits it
@pytest.mark.parametrize("answer,line", ANSWERS, ids=range(len(ANSWERS)))
def test_whatever_is_handed_over_gets_one_helpful_line(answer, line, row_sums):
    verdict = check("test.1", answer)
    if line is None:
        assert verdict.state == "passed" and verdict.line == "2 cases agree, to within 1e-06."
    else:
        assert not verdict and line in verdict.line and "\n" not in verdict.line, verdict
        assert verdict.state == ("open" if line == OPEN else "not yet")
    if line in (NOT_SCALED, OVER_ROWS):
        assert "five rows" in verdict.notes[0]


def test_a_default_device_without_numbers_is_left_outside(row_sums):
    "Many set one at the head of a notebook; on a GPU too the checker and the answer must meet."
    torch.set_default_device("meta")
    try:
        verdict, device = check("test.1", row_sums), torch.get_default_device()
    finally:
        torch.set_default_device(None)
    assert verdict and device.type == "meta"


def test_an_input_that_has_a_gradient_is_changed_in_place():
    "Torch's own words for it name neither the input nor what to do."

    @exercise("test.2", cases=lambda: {"a": (torch.ones(5),)}, run=with_gradients)
    def double(x):
        return 2 * x

    line = check("test.2", lambda x: x.mul_(2)).line
    assert line.startswith("It changes an input or a weight in place. Work on a copy. Line")


def test_a_view_of_an_input_is_refused_where_the_reference_makes_a_new_one():
    @exercise("test.2", cases=lambda: {"a table": (torch.ones(5, 7),)})
    def one_row(x):
        return x[2].clone()

    assert check("test.2", lambda x: x[2].clone())
    assert "is a view of an input" in check("test.2", lambda x: x[2]).line

    @exercise("test.3", cases=lambda: {"a table": (torch.ones(5, 7),)})
    def turned(x):
        return x.mT

    assert check("test.3", lambda x: x.permute(1, 0))


def test_prints_of_an_answer_are_notes_of_its_verdict(row_sums, capsys):
    def chatty(x, factor):
        print("a line")
        return factor * x.sum(-1)

    verdict = check("test.1", chatty)  # two cases, a call for each
    assert verdict and verdict.notes == ("It printed: a line",) * 2
    assert capsys.readouterr() == ("", "")


def test_nothing_outlives_the_call(row_sums):
    @exercise("test.4", cases=cases, seconds=0.3)
    def with_little_time(x, factor):
        return factor * x.sum(-1)

    def meddles(x, factor):
        torch.set_default_dtype(torch.float16)
        torch.set_grad_enabled(False)
        torch.manual_seed(7)
        raise ValueError("now")

    torch.manual_seed(3)
    state, threads = torch.get_rng_state(), threading.active_count()
    for answer in (meddles, row_sums):
        check("test.1", answer)
    assert "did not end within 0.3 seconds. Line" in check("test.4", endless).line
    assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)
    assert threading.active_count() <= threads  # one of an earlier test may end meanwhile


# --- classes -------------------------------------------------------------------------------------


@pytest.fixture
def shift():
    @exercise(
        "test.2",
        cases=lambda: {"by 3": (3.0, torch.randn(5)), "by 0": (0.0, torch.randn(7))},
        run=lambda Shift, by, x: Shift(by)(x),
        mistakes={"The sign is turned.": type("S", (), {})},
    )
    class Shift:
        def __init__(self, by):
            self.by = by

        def __call__(self, x):
            return x + self.by

    return Shift


def raises_key(self, by):
    raise KeyError(by)


CLASSES = [  # the methods of the answer, and its line
    ({"__call__": lambda self, x: self.by + x}, "2 cases agree"),
    (
        {"__init__": lambda self, a, b: None},
        "class Shift(by), and takes (a, b)",
    ),
    ({"__call__": lambda self, x: x.add_(self.by)}, "It changes its inputs"),
    ({"__call__": None}, "'NoneType' object is not callable"),
    ({"__call__": lambda self, x: x if self.by == 0 else x + self.by}, "Its result is a view of"),
    ({"__init__": raises_key}, "raised KeyError: 3.0. Line"),
]


@pytest.mark.parametrize("methods,line", CLASSES, ids=range(len(CLASSES)))
def test_a_class_is_made_and_used(methods, line, shift):
    assert line in check("test.2", type("Mine", (shift,), methods)).line


def test_a_class_may_be_open_and_is_no_object(shift):
    class Blank(shift):
        def __call__(self, x):
            raise NotImplementedError

    assert check("test.2", Blank).line.startswith("Write class Shift(by)")
    assert "hand over the class itself" in check("test.2", shift(3.0)).line


def test_gradients_are_compared_too():
    def wrong_on_the_way_back(x, keep):
        return x.square().detach() + 0 * x

    @exercise(
        "test.2",
        cases=lambda: {"a": (torch.randn(5), torch.ones(5, dtype=torch.bool))},
        run=with_gradients,
    )
    def square(x, keep):
        return x.square()

    assert check("test.2", lambda x, keep: x * x)
    assert "gradient of x: 5 of 5" in check("test.2", wrong_on_the_way_back).line
    assert "gradient of x: none comes back" in check("test.2", lambda x, k: (x * x).detach()).line
    assert check("test.2", lambda x, keep: None).line.startswith("Write square(x, keep)")


def test_an_earlier_exercise_that_is_open_is_named(row_sums):
    def earlier(x):
        raise NotImplementedError

    def right(x, factor):
        return factor * earlier(x)

    verdict = check("test.1", right)
    assert verdict.state == "not yet"
    assert verdict.line.endswith(
        "earlier raises NotImplementedError. Is an earlier exercise still open?"
    )

    def of_torch(x, factor):
        raise NotImplementedError("no softmax for Booleans\nat all")

    assert check("test.1", of_torch).line.endswith("NotImplementedError. no softmax for Booleans")

    def row_sums(x, factor):
        def inner():
            raise NotImplementedError

        return inner()

    assert check("test.1", row_sums).state == "open"


# --- values --------------------------------------------------------------------------------------


def value(expected, **options):
    @exercise("test.9", **options)
    def answer():
        return expected


COUNTED = {"You counted twice.": [26, 34]}
SHORT = {"The last one is missing.": [13]}
FLIPPED = "Write True and False themselves"
COARSE = "Right, but rounded too far"
RIGHT = "That is right."
VALUES = [  # what is right, typical mistakes, an answer, and its line
    (3, {}, 3.0, RIGHT),
    (3, {}, 4, "What is looked for: a whole number."),
    (0.5, {}, 0.50009, RIGHT),
    (0.5, {}, 0.5002, "What is looked for: a number, to within 0.0001."),
    ("zeros", {}, " Zeros ", RIGHT),
    ("zeros", {}, "nan", "What is looked for: a word."),
    (3, {}, Hostile(), "cannot be compared with anything: RuntimeError: do not look at me"),
    (3, {}, NoEqual(), "got an object of type NoEqual"),
    ([13, 17], COUNTED, (13, 17), RIGHT),
    ([13, 17], COUNTED, [26, 34], "You counted twice."),
    ([13, 17], COUNTED, [13, 18], "1 of 2 entries are right. What is looked for: a list of 2 numb"),
    *(
        ([13, 17], COUNTED, x, "a list of 2 numbers.")
        for x in ([1, 2], [13, 18, 19], 13.5, "x", {})
    ),
    *(([13, 17], SHORT, x, "What is looked for: a list.") for x in ([1, 2, 3], 13.5, "x")),
    *(([13, 17], {}, x, "Fill the blank") for x in (None, ..., [..., 2], (1, [None]), "...", "")),
    ([[13], "x"], {}, [1], "What is looked for: a list of 2 parts."),
    ([True, False], {}, [1, 0], FLIPPED),
    ([True, False], {}, ["True", "False"], FLIPPED),
    ([3, 5], {}, ["3", "5"], "Write numbers without quotes"),
    ([3, 5, 7], {}, [7, 3, 5], "in another order"),
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

    @exercise("test.9", mistakes=mistakes, tolerance=1e-4)
    def solution():
        return expected

    verdict = check("test.9", answer)
    assert line in verdict.line and "\n" not in verdict.line
    blank = "open" if line == "Fill the blank" else "not yet"
    assert verdict.state == ("passed" if line == RIGHT else blank)
    assert "17" not in verdict.line and "entry" not in verdict.line
    assert check("test.9").state == "open"


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
        (cases, "got a function"),
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


# --- the table of mistakes -----------------------------------------------------------------------


def row_cases():
    return {"rows": (torch.randn(3, 5),), "one": (torch.randn(1, 7),)}


def summed(x):
    return x.sum()


@engine.exercise("table.1", cases=row_cases)
@wrong("""
    Each row has a mean of its own.
        mean(-1, keepdim=True) → mean()
    Neither mean nor size: two slips
    that go together.
        - mean →
        mean = → x = 0 * x⏎mean =
    That is one number.
        summed
    """)
def centred(x):
    mean = x.mean(-1, keepdim=True)
    return x - mean


def test_a_mistake_is_an_edit_several_or_a_name():
    found = EXERCISES["table.1"]
    assert [*found.mistakes][1] == "Neither mean nor size: two slips that go together."
    assert check("table.1", centred)
    for line, mistake in found.mistakes.items():
        assert check("table.1", mistake).line == line
    assert check("table.1", lambda x: x - x.mean()).line == "Each row has a mean of its own."


def test_an_edit_changes_what_stands_there_once():
    source = "def f(x):\n    if x:\n        y = 1\n    return y"
    assert edited(source, ["y = 1 → y = 2⏎    z = 3"]) == (
        "def f(x):\n    if x:\n        y = 2\n            z = 3\n    return y"
    )
    assert edited(source, ["y = 1⏎return → return"]) == "def f(x):\n    if x:\n        return y"
    for edit in ("w → v", "y → z"):
        with pytest.raises(ValueError, match=f"'{edit[0]}' stands {source.count(edit[0])} times"):
            edited(source, [edit])


# --- one at a time -------------------------------------------------------------------------------


def test_an_answer_that_asks_for_its_own_verdict_gets_a_line(row_sums):
    def asks_itself(x, factor):
        return check("test.1", asks_itself)

    assert "calls `check` itself" in check("test.1", asks_itself).line
    assert check("test.1", row_sums)


def test_checks_that_overlap_wait_for_each_other(row_sums):
    verdicts, streams = [], (sys.stdout, sys.stderr, sys.stdin)
    threads = [
        threading.Thread(target=lambda: verdicts.append(check("test.1", row_sums)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(verdicts) == 3 and all(verdicts)
    assert (sys.stdout, sys.stderr, sys.stdin) == streams
    assert torch.get_default_dtype() == torch.float32
