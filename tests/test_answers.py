"""The page judges values as `check` does: same states, same words.

answers.js runs in the Node.js that Playwright brings, over every key, every mistake, every near
value and what else a reader may type.
"""

import dataclasses
import functools
import json
import math
import subprocess

import answers
import pytest
import solved
import torch
from playwright._impl._driver import compute_driver_executable

from transformer_lit.course.exercises import as_data, judge
from transformer_lit.exercises import find_exercise

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # a reader runs without them

SCRIPT = solved.ROOT / "book/_static/answers.js"
ASKED = [id for id, (_, one) in sorted(solved.written().items()) if answers.in_page(one)]
RUN = """const judge = require(process.argv[1]);
let text = "";
process.stdin.on("data", (part) => (text += part));
process.stdin.on("end", () => console.log(JSON.stringify(
  JSON.parse(text).map(([data, typed]) => typed.map((one) => judge(data, one))))));"""
NAMES = {"math": math, "nan": math.nan, "inf": math.inf} | {
    name: getattr(math, name) for name in ("sqrt", "log", "log2", "exp")
}
PYTHON = (
    r"""
0|1|-1|True|False|None|...|0.5|.5|5.|1_000|1e-3|1E3|1e999|-0.0|0.63|0.375|0.38|0.38001|1/3|-2**2
2**-1|(-2)**2|2*3+4|(1 + 2) / 3|8*log(65)|math.sqrt(2)|exp(-0.6)|log2(8)|100000000|1234567.8|0.00001
[]|()|(1,)|[1]|1, 2|1,|[1, 2]|(1, 2)|[2, 1]|[1, 2,]|[1, None]|[..., ...]|["..."]|[""]|[[1, 2], [3]]
[True, True, False]|[1, 1, 0]|["a", 1]|[nan, 1]|nan|inf|-inf|[1, inf]|0, 1, 0, 1, 0, 1|'a'|"a"|"A"
" a "|"Auf"|"it's"|'say "it"'|'back\\slash'|"tab\there"|'Straße'|"true"|["b", "a"]|['c', 'd']
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
PYTHON += ['"\u200b\u00a0\x7f\U0001f642"', '"' + "long " * 3000 + '"']
BARE = {  # what Python reads with quotes only
    "a": "a",
    "auf": "auf",
    " b, e": ("b", "e"),
    "[noise, alternating, constant]": ["noise", "alternating", "constant"],
    "optimiser, random state, step": ("optimiser", "random state", "step"),
    "model.layers.7.input_layernorm.weight": "model.layers.7.input_layernorm.weight",
    "true": "true",
    "constructor": "constructor",
    "−1, 1": (-1, 1),
    "in, ing": ("in", "ing"),
    "a very long text " * 500: ("a very long text " * 500).strip(),
}
UNREADABLE = """[|]|1 2|1..2|007|0x10|"open|5 %|1/0|log(0)|sqrt(-1)|toString(1)|{1: 2}|2x|1;2
a b 3|"a" + "b"|-True|@|,|log(1, 2)|9**9**9|__import__("os")""".replace("\n", "|").split("|")
UNREADABLE += ["[" * 100_000]
OPEN = "Then run this cell again."  # in the page there is no cell


@functools.cache
def exercise(id):
    "The exercise, with a solution that is computed once."
    found = find_exercise(id)
    value = found.solution()
    return dataclasses.replace(found, solution=functools.wraps(found.solution)(lambda: value))


@pytest.fixture(autouse=True)
def doubles():
    "As in the notebooks, and as `check` computes."
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def judged():
    "`judged({id: texts})`: of each text the state and the line, as the page gives them."
    node = str(compute_driver_executable()[0])

    def run(typed):
        asked = [[as_data(exercise(id)), texts] for id, texts in typed.items()]
        done = subprocess.run(
            [node, "-e", RUN, SCRIPT], input=json.dumps(asked), capture_output=True, text=True
        )
        assert not done.returncode, done.stderr
        return dict(zip(typed, json.loads(done.stdout), strict=True))

    return run


def said(id, value):
    "What `check` says, as the page is to say it."
    verdict = judge(exercise(id), value)
    return {"state": verdict.state, "line": verdict.line.replace(f" {OPEN}", "")}


def assert_same_verdicts(judged, values):
    "Both sides on {id: {text: value}}."
    found = judged({id: list(texts) for id, texts in values.items()})
    for id, texts in values.items():
        for (text, value), one in zip(texts.items(), found[id], strict=True):
            assert one == said(id, value), (id, text[:100])


def near(value, by):
    if isinstance(value, list | tuple):
        return [near(part, by) for part in value]
    return value + by if type(value) in (int, float) else value


def rounded(value, digits):
    if isinstance(value, list | tuple):
        return [rounded(part, digits) for part in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def test_all_warm_ups_and_predictions_are_values_that_can_be_typed():
    assert len(ASKED) >= 120
    for id in ASKED:
        found = exercise(id)
        assert found.is_value, id
        for value in (found.solution(), *found.mistakes.values()):
            again = eval(repr(value), {"nan": math.nan})  # no tensor, no object
            assert repr(again) == repr(value), id


def test_every_key_and_every_mistake_gets_the_verdict_of_check(judged):
    values = {}
    for id in ASKED:
        found = exercise(id)
        known = [found.solution(), *found.mistakes.values()]
        values[id] = {repr(value): value for value in known}
    assert_same_verdicts(judged, values)
    keys = judged({id: [repr(exercise(id).solution())] for id in ASKED})
    assert all(one["state"] == "passed" for (one,) in keys.values())


def test_values_near_a_key_or_a_mistake_get_the_verdict_of_check(judged):
    values = {}
    for id in ASKED:
        found = exercise(id)
        key, by = found.solution(), found.tolerance
        tried = [near(key, share * by) for share in (0.9, -0.9, 1.1, -1.1)]
        known = [key, *found.mistakes.values()]
        tried += [rounded(value, digits) for value in known for digits in (1, 2, 3, 6)]
        tried += [[*key][::-1], [*key, 1]] if isinstance(key, list) else []
        values[id] = {repr(value): value for value in tried}
    assert_same_verdicts(judged, values)


def test_whatever_is_typed_gets_the_verdict_of_check(judged):
    typed = {text: eval(text, dict(NAMES)) for text in PYTHON} | BARE
    assert len(typed) >= 80
    assert_same_verdicts(judged, dict.fromkeys(ASKED, typed))


def test_nothing_typed_is_open_and_what_cannot_be_read_is_said(judged):
    for id, found in judged({id: ["", "   ", *UNREADABLE] for id in ASKED}).items():
        blank, spaces, *rest = found
        assert blank == spaces == said(id, ...), id
        states = dict(zip(UNREADABLE, (one["state"] for one in rest), strict=True))
        assert set(states.values()) == {"unread"}, (id, states)
        assert all(one["line"].startswith("This cannot be read.") for one in rest)
