"""The page judges values as `check` does: same states, same words.

questions.js runs in the Node.js that Playwright brings, over every key, every mistake and every
near value; what else a reader may type is tried on one exercise for each kind of key.
"""

import json
import math
import subprocess

import answers
import pytest
import solved
import torch
from playwright._impl._driver import compute_driver_executable

from transformer_lit.course.exercises import Question, judge
from transformer_lit.exercises import find_exercise

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # a reader runs without them

SCRIPT = solved.ROOT / "book/_static/questions.js"
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


@pytest.fixture(autouse=True)
def doubles():
    "As in the notebooks, and as `check` computes."
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def judged(typed):
    "{id: texts} -> of each text the state and the line, as the page gives them."
    asked = [[answers.as_data(find_exercise(id)), list(texts)] for id, texts in typed.items()]
    node = [compute_driver_executable()[0], "-e", RUN, SCRIPT]
    done = subprocess.run(node, input=json.dumps(asked), capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return dict(zip(typed, json.loads(done.stdout), strict=True))


def said(id, value):
    "What `check` says, as the page is to say it."
    verdict = judge(find_exercise(id), value)
    return {"state": verdict.state, "line": verdict.line.replace(f" {OPEN}", "")}


def changed(value, change):
    "A value whose numbers are changed."
    if isinstance(value, list | tuple):
        return [changed(part, change) for part in value]
    return change(value) if type(value) in (int, float) else value


def near(found):
    "Values near the key of an exercise or one of its mistakes, and the key in another order."
    key = found.answer
    for share in (0.9, -0.9, 1.1, -1.1):
        yield changed(key, lambda number, by=share * found.tolerance: number + by)
    for value in (key, *found.hints.values()):
        for digits in (1, 2, 3, 6):
            yield changed(value, lambda x, n=digits: float(f"{x:.{n}g}") if type(x) is float else x)
    if isinstance(key, list):
        yield from ([*key][::-1], [*key, 1])


def kinds():
    "An exercise for each kind of key: its type, the types in it, and its tolerance."
    found = {}
    for id in ASKED:
        one = find_exercise(id)
        key = one.answer
        inside = {type(part).__name__ for part in key} if isinstance(key, list | tuple) else ()
        found.setdefault((type(key), *sorted(inside), one.tolerance), id)
    return found.values()


def test_values_are_judged_as_check_judges_them():
    assert len(ASKED) >= 120
    values = {}
    for id in ASKED:
        found = find_exercise(id)
        assert isinstance(found, Question)
        known = [found.answer, *found.hints.values()]
        assert said(id, known[0])["state"] == "passed", id
        values[id] = {repr(value): value for value in (*known, *near(found))}
    for id, found in judged(values).items():
        assert found == [said(id, value) for value in values[id].values()], (id, [*values[id]])


def test_whatever_is_typed_is_judged_as_check_judges_it_or_cannot_be_read():
    typed = {text: eval(text, dict(NAMES)) for text in PYTHON} | BARE | {"": ..., "   ": ...}
    assert len(typed) >= 80 and len(kinds()) >= 10
    for id, found in judged({id: [*typed, *UNREADABLE] for id in kinds()}).items():
        for text, value, one in zip(typed, typed.values(), found, strict=False):
            assert one == said(id, value), (id, text[:100])
        for text, one in zip(UNREADABLE, found[len(typed) :], strict=True):
            assert one["state"] == "unread", (id, text[:100])
            assert one["line"].startswith("This cannot be read."), (id, text[:100])
