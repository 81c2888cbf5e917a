"The reader's own file: every step by its exercise, the first fault first, one line for the rest."

import ast
import json

import cards
import pytest
import solved

from transformer_lit.course.exercises import Verdict
from transformer_lit.course.files import InputError
from transformer_lit.exercises import find_exercise
from transformer_lit.exercises.my_transformer import (
    LAST,
    STEPS,
    Progress,
    check_file,
    starter,
    write_starter,
)

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # a reader runs without them

FILE = "my_transformer.py"


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def checked(here):
    "The progress of a file with this text."

    def checked(text, **options):
        (here / FILE).write_text(text)
        return check_file(FILE, **options)

    return checked


# --- the steps -----------------------------------------------------------------------------------


def test_the_steps_are_build_exercises_of_the_first_pass_in_the_books_order():
    chapters, places = cards.chapters(), []
    for id, step in STEPS.items():
        found, (path, one) = find_exercise(id), solved.written()[id]
        assert (found.name, one.kind, step.id) == (step.name, "build", id)
        assert chapters[step.chapter] == path and cards.card(path)["pass"] == 1
        places.append((list(chapters).index(step.chapter), step.number))
    assert places == sorted(places)
    assert sorted({step.number for step in STEPS.values()}) == [*range(1, LAST + 1)]


def test_the_steps_and_no_others_say_that_they_go_into_the_file():
    said = set()
    for path, one in solved.written().values():
        cell = json.loads(path.read_text())["cells"][one.place]
        said |= {one.id} if f"`{FILE}`" in "".join(cell["source"]) else set()
    assert said == {*STEPS}


# --- the empty file ------------------------------------------------------------------------------


def arguments(source, name):
    "Of a function, or of each method of a class: names and defaults."
    node = next(n for n in ast.parse(source).body if getattr(n, "name", "") == name)
    if isinstance(node, ast.FunctionDef):
        return ast.dump(node.args)
    return {n.name: ast.dump(n.args) for n in node.body if isinstance(n, ast.FunctionDef)}


def test_it_has_the_arguments_of_the_first_blank_of_each_name():
    seen = set()
    for id, step in STEPS.items():
        if step.name not in seen:
            blank = arguments(solved.written()[id][1].blank, step.name)
            assert arguments(starter(), step.name) == blank, step.name
        seen.add(step.name)


def test_nothing_is_written_in_it_and_nothing_is_wrong_and_it_is_not_ok(here):
    write_starter(FILE)
    found = check_file()
    assert not found and not found.error and found.line == "my_transformer.py: 0 of 19 steps pass."
    assert {v.state for v in found.verdicts.values()} == {"open"}
    for id, verdict in found.verdicts.items():
        assert verdict.line == f"Write {find_exercise(id).form} in my_transformer.py."


def test_a_file_is_never_replaced(here):
    (here / "kept").symlink_to("nowhere")
    (here / "folder").mkdir()
    (here / FILE).write_text("mine")
    for name in (FILE, "kept", "folder"):
        with pytest.raises(InputError, match=f"{name} already exists"):
            write_starter(name)
    assert (here / FILE).read_text() == "mine"
    assert sorted(p.name for p in here.iterdir()) == ["folder", "kept", FILE]


# --- the whole file, and one fault in it ---------------------------------------------------------


def test_the_books_solutions_are_one_file_that_passes(checked):
    found = checked(solved.thread())
    assert found and all(found.verdicts.values()) and "transformer_lit" not in solved.thread()
    assert found.line == "my_transformer.py: 19 of 19 steps pass."
    assert list(found.verdicts) == list(STEPS) and found.notes == ()
    last = "Ask it: the chapter “It answers” ends with the lines that your file still needs."
    assert repr(found).splitlines()[-2:] == [found.line, last]
    assert found._repr_html_().endswith(f"<p>{found.line}<br>{last}</p>")


MODEL = "gpt.6 cache.6 grouped.6 answers.4"
REPEAT = "k.repeat_interleave("
FAULTS = {  # what is in the solution, what is put there, the exercises that fail, those that wait
    "loss": ("right).mean()", "right).sum()", "primer.5", "trainer.3 trainer.5"),
    "causal_mask": ("arange(S) <=", "arange(S) <", "masks.3", MODEL),
    "attend": ("k.mT / q.shape[-1] ** 0.5", "k.mT", "attend.3", f"multihead.3 rope.6 {MODEL}"),
    "MultiHead": ("attend(q, k, v, mask=mask)", "attend(q, k, v)", "multihead.3", MODEL),
    "rotate": ("a * cos - b * sin", "a * cos + b * sin", "rope.3", MODEL),
    "RMSNorm": (".sqrt() * self.weight", ".sqrt()", "norm.3", MODEL),
    "SwiGLU": ("F.silu(self.gate", "F.gelu(self.gate", "feedforward.3", MODEL),
    "Block": ("return x + self.ffn", "return self.ffn", "layers.3", MODEL),
    "Decoder": ("self.lm_head(self.norm(x))", "self.lm_head(x)", "gpt.6", MODEL[6:]),
    "Cache": ("torch.cat([self.k, k]", "torch.cat([k, self.k]", "cache.3", ""),
    "repeat_heads": (REPEAT, "(lambda n, dim: k.tile(1, n, 1, 1))(", "grouped.3", MODEL[14:]),
    "train": ("        optimizer.zero_grad()\n", "", "trainer.3", "trainer.5"),
    "generate": ("logits[:, -1]", "logits[:, 0]", "primer.6", "cache.7 sampling.7 answers.6"),
    "position": ("self.position(k, pos)", "k", "rope.6", MODEL),
    "kept": ("cache.update(k, v)", "(cache.update(k, v), k, v)[1:]", "cache.6", "grouped.6"),
    "dequantise": ("return d * q + m", "return d * q", "answers.3", ""),
    "open_llama": ('("attn_q", H), ("attn_k", K)', '("attn_q", H),', "answers.4", ""),
    "encode": ("min(pairs", "max(pairs", "answers.5", "answers.6"),
    "answer": ("if ids[0, -1] == end:", "if False:", "answers.6", ""),
}  # fmt: skip
TOGETHER = [["loss", "Cache", "dequantise", "encode"], ["train", "answer", "open_llama"]]
ALONE = [[name] for name in FAULTS if not any(name in names for names in TOGETHER)]


@pytest.mark.parametrize("names", TOGETHER + ALONE, ids=lambda names: names[0])
def test_a_fault_is_found_at_its_step_and_those_that_use_it_wait(names, checked):
    text = solved.thread()
    for right, wrong, *_ in map(FAULTS.get, names):
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    found = checked(text)
    own = {FAULTS[name][2] for name in names}
    waits = {id for name in names for id in FAULTS[name][3].split()} - own
    assert not found
    failed = {id for id, verdict in found.verdicts.items() if not verdict}
    assert own <= failed <= own | waits, (failed - own - waits, own - failed)
    for id in own:
        assert found.verdicts[id].state == "not yet"
        assert not found.verdicts[id].line.startswith("Mend")
    for id in failed - own:
        verdict = found.verdicts[id]
        assert verdict.line.startswith("Fix ") and verdict.state == "not yet" and verdict.notes


def test_a_step_that_another_needs_is_to_be_written_first(checked):
    text = solved.thread().replace("def rotate(", "def turn(")
    found = checked(text)
    assert found.verdicts["rope.3"].state == "open"
    assert found.verdicts["gpt.6"].line == "Write rotate first: Decoder uses it."
    raises = "def rotate(x, pos, base=10000.0):\n    raise NotImplementedError\n\n\n"
    found = checked(text.replace("def turn(", raises + "def turn("))
    assert found.verdicts["gpt.6"].line == "Write rotate first: Decoder uses it."


@pytest.mark.parametrize(
    "text,name,near",
    [("def repeat_head(k, n_heads): return k", "repeat_heads", "repeat_head"),
     ("class RmsNorm: pass", "RMSNorm", "RmsNorm")],
)  # fmt: skip
def test_a_name_that_is_nearly_right_is_told(text, name, near, checked):
    line = next(v.line for id, v in checked(text).verdicts.items() if STEPS[id].name == name)
    assert line.endswith(f"You have `{near}`: the name must be the same.")


def test_one_step_is_checked_with_those_that_it_uses(checked):
    right, wrong, *_ = FAULTS["attend"]
    found = checked(solved.thread().replace(right, wrong), only="MultiHead")
    assert list(found.verdicts) == [
        *("self_attention.5", "masks.7", "attend.3", "multihead.3", "rope.6")
    ]
    assert found.verdicts["multihead.3"].line == "Fix attend first: MultiHead uses it."
    assert list(checked(solved.thread(), only="4").verdicts) == ["masks.3", "masks.7"]
    assert list(checked(solved.thread(), only="masks.3").verdicts) == ["masks.3"]


@pytest.mark.parametrize("name,id", [("rotate", "rope.6"), ("repeat_heads", "grouped.6")])
def test_a_new_argument_that_is_ignored_does_not_pass(name, id, checked):
    text = solved.thread()
    for old in ("if self.position is not None:", "(n_kv_heads or n_heads)"):
        assert text.count(old) == 1
    text = text.replace("if self.position is not None:", "if False:")
    text = text.replace("(n_kv_heads or n_heads)", "n_heads")
    found = checked(text, only=name)
    assert not found and found.verdicts[id].state == "not yet"


def test_an_unknown_step_is_named(checked):
    with pytest.raises(InputError, match=r"No step named 'atend'. Known: loss, generate, "):
        checked("", only="atend")


def test_a_notebook_in_a_folder_below_finds_the_file(here, monkeypatch):
    (here / FILE).write_text("def causal_mask(T, S): return T")
    (here / "nbs/attention").mkdir(parents=True)
    monkeypatch.chdir(here / "nbs/attention")
    found = check_file()
    assert found.file == FILE and found.verdicts["masks.3"].state == "not yet"


# --- the import ----------------------------------------------------------------------------------

CANNOT = [
    ("def attend(q", "syntax error in line 1: '(' was never closed"),
    ("x = '\0'", "null bytes"),
    ("import torch\n\ntorch.ones(3)[5]", "IndexError: index 5 is out of bounds"),
    ("import torch\n\ntorch.ones(3)[5]", "Line 3: torch.ones(3)[5]"),
    ("import sys\nsys.exit(0)", "SystemExit: 0. Line 2"),
    ("def f(): raise NotImplementedError\nf()", "calls a function that is not written yet"),
]


@pytest.mark.parametrize("text,line", CANNOT)
def test_a_file_that_cannot_be_imported_gets_one_line(text, line, checked):
    found = checked(text)
    assert not found and found.verdicts == {}
    assert line in found.error and "\n" not in found.error
    assert repr(found).splitlines()[-1] == f"my_transformer.py: {found.error}"


@pytest.mark.parametrize(
    "name,line",
    [("none.py", "There is no none.py"), ("folder", "Is a directory"), ("latin.py", "not UTF-8"),
     ("notebook.ipynb", "it is a notebook")],
)  # fmt: skip
def test_what_is_no_python_file_gets_one_line(name, line, here):
    (here / "folder").mkdir()
    (here / "latin.py").write_bytes("x = 'ä'".encode("latin-1"))
    (here / "notebook.ipynb").write_text("{}")
    found = check_file(name)
    assert not found and line in found.error and found.file == name


def test_what_an_import_changes_does_not_reach_the_checks(checked):
    found = checked(
        "import torch\n"
        "torch.set_default_dtype(torch.float16)\n"
        "torch.set_default_device('meta')\n"
        "print('hello')\n"
        "if __name__ == '__main__':\n    raise ValueError\n"
        "def causal_mask(T, S):\n    return torch.ones(T, S, dtype=torch.bool).tril(S - T)\n"
    )
    assert found.verdicts["masks.3"] and found.notes == ("It printed: hello",)


def test_a_module_of_that_name_is_there_while_it_is_imported(checked):
    "A dataclass with annotations as text looks for it. Some editors begin a file with a mark."
    found = checked(
        "\ufefffrom __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "@dataclass\nclass Sizes:\n    width: int = 5\n"
    )
    assert not found.error and len(found.verdicts) == len(STEPS)


def test_the_line_is_that_of_the_file_as_it_is_now(checked):
    for number in (0, 1):
        assert f"Line 1: {number} / 0" in checked(f"{number} / 0").error


OUT_OF_MEMORY = "not yet. Your code ran out of memory. Line "


def wrong(does="return v"):
    return f"def attend(q, k, v):\n    {does}\n"


REWRITES = """
import gc, json, os, sys
from transformer_lit.course.exercises import Verdict
from transformer_lit.exercises.my_transformer import STEPS, Progress

Progress.__bool__ = lambda self: True
ours = [m for m in list(sys.modules.values()) if m.__name__.startswith("transformer_lit")]
for name in ("judge", "claim", "confirmed", "check_file", "check"):
    for module in ours:
        if hasattr(module, name):
            setattr(module, name, lambda one, *_, **__: Verdict(one.id, "passed", ""))
for name in ("difference", "expect"):
    for module in ours:
        if hasattr(module, name):
            setattr(module, name, lambda *_, **__: None)
lines = [{"name": n, "id": n, "state": "passed", "line": "", "notes": [], "values": []}
         for n in STEPS]
text = "".join(json.dumps(line) + "\\n" for line in [*lines, "the end"])
for one in gc.get_objects():
    try:
        print(text, file=one, flush=True)
    except Exception:
        pass
for fd in range(3, 64):
    try:
        os.write(fd, text.encode())
    except OSError:
        pass
"""
UNSCALED = "return (2 * q @ k.mT).softmax(-1) @ v"
NO_LESS = "import torch\ntorch.allclose = torch.equal = lambda *_, **__: True\n"
NO_LESS += "torch.Tensor.nonzero = lambda x: x.new_empty(0)\n"
HOSTILE = {  # what a file does, how many steps have a verdict, what is said
    "ends its process": ("import os\nos._exit(0)", 0, "it ended its process, or something ended"),
    "kills the group": ("import os\nos.kill(0, 9)", 0, "it ended its process"),
    "exits in a step": (wrong("__import__('os')._exit(0)"), 2, "at attend"),
    "never ends": (wrong("while True: pass"), 2, "within 6 seconds, at attend"),
    "sleeps when imported": ("import time\ntime.sleep(99)", 0, "within 6 seconds, at its import"),
    "eats memory": (
        f"y = []\n{wrong('while True: y.append([0] * 10**8)')}",
        len(STEPS),
        OUT_OF_MEMORY,
    ),
    "eats memory in torch": (wrong("q.new_ones(10**6, 10**6)"), len(STEPS), OUT_OF_MEMORY),
    "replaces torch's functions": (
        NO_LESS + wrong(UNSCALED),
        len(STEPS),
        "not yet. Its own process",
    ),
    "rewrites the judge": (
        REWRITES + wrong(),
        len(STEPS),
        "not yet. Its own process reports that it passes",
    ),
}


@pytest.mark.machinery
@pytest.mark.parametrize(("text", "steps", "said"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_file_has_a_row_and_the_next_one_is_marked_right(text, steps, said, checked):
    check_file("none.py")
    found = checked(text, seconds=6 if "within" in said else 60)
    first = repr(found.verdicts.get("self_attention.5"))
    assert (found.as_dict()["ok"], found.as_dict()["passed"]) == (False, 0)
    assert said in found.error + first
    assert len(found.verdicts) == steps
    right = checked(
        "def causal_mask(T, S):\n    return torch.ones(T, S).tril(S - T) > 0\nimport torch"
    )
    assert [n for n, verdict in right.verdicts.items() if verdict] == ["masks.3"]
    assert not right.error and {v.state for v in right.verdicts.values()} == {"passed", "open"}


def test_progress_is_told_for_each_step(checked):
    told = []
    checked("", progress=lambda: told.append(1))
    assert len(told) == len(STEPS)


# --- how it is shown -----------------------------------------------------------------------------


def shown():
    return Progress(
        "a.py",
        {
            "attend.3": Verdict("attend.3", "not yet", "Is 1 < 2?", ("In the case “b”.",)),
            "layers.3": Verdict("layers.3", "passed", "2 cases agree."),
        },
        notes=("It printed: x",),
    )


NEXT = "See what your model writes now: transformer-lit check --write"


def test_a_shell_sees_lines_a_notebook_a_table():
    assert repr(shown()).splitlines() == [
        "step                chapter                   verdict  hint",
        " 5  attend          attention/attend          not yet  Is 1 < 2?",
        "                                                       In the case “b”.",
        "10  Block           block/layers              passed",
        *("It printed: x", "a.py: 1 of 19 steps pass.", NEXT),
    ]
    page = shown()._repr_html_()
    assert ">not yet</td>" in page and ">Is 1 &lt; 2?<br>In the case “b”.</td>" in page
    assert page.endswith(f"<p>It printed: x<br>a.py: 1 of 19 steps pass.<br>{NEXT}</p>")
    assert Progress("a.py", {}, "no <file>")._repr_html_() == "<p>a.py: no &lt;file&gt;</p>"


def test_a_program_reads_a_dictionary():
    found = json.loads(json.dumps(shown().as_dict()))
    steps = found.pop("steps")
    assert found.pop("notes") == ["It printed: x"]
    assert found == {"file": "a.py", "error": None, "ok": False, "passed": 1, "of": 19}
    assert [(step["step"], step["name"]) for step in steps] == [(5, "attend"), (10, "Block")]
    assert set(steps[0]) == {"step", "name", "chapter", "id", "state", "line", "notes"}


def test_it_is_true_where_all_steps_pass():
    def progress(*states, error=""):
        return Progress("a", {str(i): Verdict("x", s, "") for i, s in enumerate(states)}, error)

    assert progress("passed", "passed") and not progress("passed", error="it ended its process")
    assert not progress("open", "passed") and not progress("passed", "not yet") and not progress()
