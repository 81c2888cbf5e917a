"What becomes of a chapter on its way to a page: exercises, folds, the box, links there and back."

import json
import runpy
from pathlib import Path

import cards
import chapter
import notebooks
import pytest
from chapter import Page, fold_name, source

ROOT = Path(__file__).parents[1]


def page(name):
    "A chapter as it is stored, such as attention/masks."
    path = cards.chapters()[name]
    return Page(cards.page(path), json.loads(path.read_text(encoding="utf-8")))


# --- an exercise in three cells -------------------------------------------------------------------

ASKED = """### norm.3 · The norm

*build · 10 minutes · must*

Write it.

<details><summary>Hint</summary>

The mean of squares.

</details>"""
TEXT = """<details><summary>Solution of norm.3</summary>

Divide by the root of the mean square.

</details>"""
BLANK = """def rms_norm(x):
    raise NotImplementedError


check("norm.3", rms_norm)"""
SOLVED = '''#| export exercises.norm
def cases():
    return {"a row": (torch.randn(2, 3),)}


@exercise("norm.3", cases=cases)
@wrong("""
The mean is not taken away.
    x - → x +
    mean → sum
`|x|` is no square.
    `x.abs()`
""")
@torch.no_grad()
def rms_norm(x):
    return x / x.square().mean(-1, keepdim=True).sqrt()'''
SHOWN = """def cases():
    return {"a row": (torch.randn(2, 3),)}


@torch.no_grad()
def rms_norm(x):
    return x / x.square().mean(-1, keepdim=True).sqrt()"""
OTHERS = """*What others wrote*

- The mean is not taken away. `x - → x +` `mean → sum`
- `|x|` is no square. `` `x.abs()` ``"""


def three_cells():
    def cell(kind, text, id):
        outputs = {"outputs": [], "execution_count": None} if kind == "code" else {}
        lines = text.splitlines(keepends=True)
        return {"cell_type": kind, "id": id, "metadata": {}, "source": lines} | outputs

    return [
        cell("markdown", f"{ASKED}\n\n{TEXT}".replace("must*", "core*"), "asked"),
        cell("code", BLANK, "blank"),
        cell("code", SOLVED, "solved"),
        cell("code", '#| export exercises.norm\n@exercise("norm.9")\ndef other(): pass', "other"),
    ]


def test_an_exercise_is_read_off_its_three_cells():
    (one,) = chapter.exercises(three_cells())
    assert (one.id, one.title, one.kind, one.minutes) == ("norm.3", "The norm", "build", 10)
    assert one.asked == ASKED and one.text == "Divide by the root of the mean square."
    assert one.blank == BLANK and one.solution == SHOWN and one.solution_place == 2
    assert list(one.mistakes.values()) == [["x - → x +", "mean → sum"], ["`x.abs()`"]]


def test_the_page_shows_its_solution_in_one_fold_with_what_others_wrote():
    shown = Page("nbs/block/01_norm", {"cells": three_cells()})
    chapter.exercise_cards(shown)
    chapter.directives(shown)
    asked, blank, opening, code, closing = map(source, shown.cells)
    assert asked.startswith("(exercise-norm-3)=\n### norm.3 · The norm\n")
    assert "<span>build</span> 10 minutes · must</p>" in asked
    assert "olution" not in asked and '<details class="hint">' in asked
    assert blank == BLANK and code == SHOWN
    assert opening.startswith('<details class="solution" id="solution-norm-3"><summary>Solution')
    assert "Divide by the root" in opening and "</details>" not in opening
    assert closing == f"{OTHERS}\n\n</details></div>"


def test_a_copy_has_it_in_one_fold_and_a_handout_has_nothing_of_it():
    asked, blank = map(source, notebooks.folded(three_cells()))
    fold = TEXT.removesuffix("</details>") + f"```python\n{SHOWN}\n```\n\n{OTHERS}\n\n</details>"
    assert asked == f"{ASKED}\n\n{fold}" and blank == BLANK
    assert [*map(source, notebooks.asked(three_cells()))] == [ASKED, BLANK]


def test_its_solution_takes_no_time_to_read():
    cells = three_cells()
    assert cards.lines(cells) == cards.lines(cells[:2])
    words = len(
        chapter.STATEMENT.fullmatch(source(cells[0]))["asked"].split("<details>")[0].split()
    )
    assert cards.words(cells) == words


# --- folds and their names ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "outputs", "name"),
    [
        ("import math\n\nfrom torch import Tensor", [], "Imports"),
        ("x = 1\nplt.show()", [{"data": {"image/svg+xml": "…"}}], "Code of the figure"),
        ("def f():\n    pass\n\n\ndef _g():\n    pass", [], "Code: f"),
        ("def a(): 1\ndef b(): 1\ndef c(): 1\ndef d(): 1", [], "Code: a, b, c …"),
        ("print(1)", [{"text": "1"}], "Code of the output"),
        ("# Checked by: the loops.\ndef f():\n    assert x", [], "Check: the loops"),
        ("for x in y:\n    assert x", [], "Check"),
        ("torch.testing.assert_close(x, y)", [], "Check"),
        ("import math\n\nA, B = 1, 2\nuse_style()", [], "Imports and settings"),
        ("x = y = 1\nx.z = 2\nN: dict = {}", [], "Code: x, N"),
        ("f()", [], "Code"),
    ],
)
def test_a_fold_is_named_by_its_purpose(code, outputs, name):
    assert fold_name({"outputs": outputs}, code) == name


def test_what_open_cells_import_stands_open_above_them():
    def cell(code):
        return {"cell_type": "code", "source": code}

    folded = (
        "#| hide\nimport math\nimport os\nimport numpy as np\nfrom torch import nn, ones, zeros"
    )
    open_cells = (
        "y = math.pi\nassert zeros",
        "def f(x: int = np.e):\n    return [nn for nn in (y, x, ones)]",
    )
    shown = Page("nbs/block/01_norm", {"cells": [cell(text) for text in (folded, *open_cells)]})
    chapter.open_imports(shown)
    first = "import math\nimport numpy as np\nfrom torch import ones"
    assert [*map(source, shown.cells)] == [folded, first, *open_cells]


def test_the_names_that_a_cell_takes_and_gives():
    for code, taken, given in (
        ("x = x + print(y)", {"x", "y"}, {"x"}),
        ("x += 1", {"x"}, {"x"}),
        ("for x in y:\n    z = x", {"y"}, {"x", "z"}),
        ("def f(a=b):\n    return g(a, c)\ndef g(): return f", {"b", "c"}, {"f", "g"}),
        (
            "class A(B):\n    x = 1\n    y = x, z\n    def f(self: C): return A",
            {"B", "C", "z"},
            {"A"},
        ),
        ("[x * y for x in z]; import m.n as k", {"y", "z"}, {"k"}),
    ):
        assert chapter.names(code) == (taken, given), code


# --- the box, links there and back ----------------------------------------------------------------


def test_the_box_says_in_one_line_what_a_chapter_takes_and_where_its_copies_are(monkeypatch):
    shown = page("attention/masks")
    monkeypatch.setattr(chapter, "days", lambda root: {shown.name: "7 March 2026"})
    chapter.box(shown)
    said = source(shown.cells[0]).split(":::")[1]
    minutes = cards.card(cards.chapters()["attention/masks"])["minutes"]
    first = f"{{div}} chapter-card\n**First pass** · {minutes} minutes · needs {{doc}}`/nbs/"
    assert said.startswith(first)
    done = '<span class="answers-done">0 of 2</span> done in this page</span> · '
    asked = sum(exercise.minutes for exercise in chapter.exercises(shown.cells))
    asked = f' · 6 exercises of {asked} minutes<span class="answers-count">, {done}'
    assert asked in said and said.count("\n") == 2
    assert '<a href="../../notebooks/nbs/attention/02_masks.ipynb">.ipynb</a>' in said
    assert '/blob/notebooks/nbs/attention/02_masks.ipynb">Colab</a>' in said
    assert said.endswith(" · last changed on 7 March 2026\n")


def test_the_day_of_a_chapter_is_that_of_its_last_commit():
    days = chapter.days(ROOT)
    if not days:
        pytest.skip("the history is missing")
    assert {cards.page(path) for path in cards.chapters().values()} <= days.keys()


def test_a_chapter_names_all_that_it_exports():
    count = 0
    for name in cards.chapters():
        module, names = chapter.exported(page(name).cells)
        if module:
            made = runpy.run_path(str(ROOT / f"{module.replace('.', '/')}.py"), run_name="read")
            assert all(name in made for name in names), module
            count += len(names)
    assert count > 220


def test_the_summary_ends_with_links_to_reference_and_glossary():
    shown = page("attention/masks")
    chapter.foot(shown)
    (summary,) = (t for t in map(source, shown.cells) if t.startswith("## Summary"))
    foot = summary.split(":::{div} chapter-foot\n")[1]
    assert "{py:obj}`causal_mask <transformer_lit.attention.masks.causal_mask>`" in foot
    assert "{term}`padding mask`" in foot and foot.endswith("\n:::")


def test_every_term_is_named_by_the_chapter_that_explains_it():
    pages = {cards.page(path): name for name, path in cards.chapters().items()}
    for term, where in chapter.glossary().items():
        assert where and set(where) <= set(pages), term
        for name in where:
            shown = page(pages[name])
            chapter.foot(shown)
            assert f"{{term}}`{term}`" in "".join(map(source, shown.cells)), name
