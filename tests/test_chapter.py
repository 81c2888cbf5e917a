"What becomes of a chapter on its way to a page: exercises, folds, the box, links there and back."

import ast
import json
from functools import cache
from pathlib import Path

import cards
import chapter
import notebooks
import pytest
import quizzes
from chapter import Page, fold_name, source

ROOT = Path(__file__).parents[1]


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
SOLVED = """#| export exercises.norm
def norm_checks(answer):
    x = torch.randn(2, 3)
    with expecting(answer(x), rms_norm(x)) as wrong:
        wrong["The mean is not taken."] = x / x.square().sum(-1, keepdim=True).sqrt()
        hint = "`|x|` is no square."
        wrong[hint] = x / x.abs().mean(-1, keepdim=True)


def root(x):
    return x.square().mean(-1, keepdim=True).sqrt()


@exercise("norm.3", norm_checks)
@torch.no_grad()
def rms_norm(x):
    return x / root(x)"""
SHOWN = """def root(x):
    return x.square().mean(-1, keepdim=True).sqrt()


@torch.no_grad()
def rms_norm(x):
    return x / root(x)"""
OTHERS = """*What often goes wrong*

- The mean is not taken.
- `|x|` is no square."""


def three_cells():
    def cell(kind, text, id, **facts):
        outputs = {"outputs": [], "execution_count": None} if kind == "code" else {}
        return {"cell_type": kind, "id": id, "metadata": facts, "source": text} | outputs

    facts = {"kind": "build", "minutes": 10, "level": "core"}
    statement = ASKED.replace("*build · 10 minutes · must*\n\n", "")
    return [
        cell("markdown", f"{statement}\n\n{TEXT}", "asked", exercise=facts),
        cell("code", BLANK, "blank"),
        cell("code", SOLVED, "solved"),
        cell(
            "code", '#| export exercises.norm\n@exercise("norm.9", f)\ndef other(): pass', "other"
        ),
    ]


def test_an_exercise_is_read_off_its_three_cells_and_its_solution_takes_no_time_to_read():
    (one,) = chapter.exercises(three_cells())
    assert (one.id, one.title, one.kind, one.minutes) == ("norm.3", "The norm", "build", 10)
    assert one.asked == ASKED and one.text == "Divide by the root of the mean square."
    assert one.blank == BLANK and one.solution == SHOWN and one.solution_place == 2
    assert [*one.hints] == ["The mean is not taken.", "`|x|` is no square."]
    assert cards.lines(three_cells()) == cards.lines(three_cells()[:2])
    assert cards.words(three_cells()) == len(ASKED.partition("<details>")[0].split()) - 6


def test_a_page_and_a_copy_have_its_solution_in_one_fold_and_a_handout_has_nothing_of_it():
    about = {"chapter": {"pass": 2}}
    shown = Page("nbs/block/01_norm", {"cells": three_cells(), "metadata": about})
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
    fold = TEXT.removesuffix("</details>") + f"```python\n{SHOWN}\n```\n\n{OTHERS}\n\n</details>"
    assert [*map(source, notebooks.folded(three_cells()))] == [f"{ASKED}\n\n{fold}", BLANK]
    assert [*map(source, notebooks.asked(three_cells()))] == [ASKED, BLANK]


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
        return {"cell_type": "code", "metadata": {}, "source": code}

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


# --- every chapter: its box, links there and back -------------------------------------------------


@cache
def page(name):
    "A chapter with its box and its links, and without the rest of what becomes of it."
    path = cards.chapters()[name]
    page = Page(cards.page(path), json.loads(path.read_text(encoding="utf-8")))
    for step in (chapter.box, chapter.clinic_links, chapter.foot, chapter.quiz):
        step(page)
    return page


@pytest.mark.parametrize("name", cards.chapters())
def test_a_chapter_leads_to_what_it_takes_and_gives(name):
    shown, card = page(name), cards.card(cards.chapters()[name])
    texts = [source(cell) for cell in shown.cells]
    (summary,) = [text for text in texts if text.startswith("## Summary")] or [""]
    box = texts[0].split(":::")[1]
    first = ("First pass**", "Second pass")[card["pass"] - 1]
    assert f"{first} · {card['minutes']} minutes" in box and box.count("\n") == 2
    assert box.count("{doc}`/nbs/") == len(card["needs"])
    asked = chapter.exercises(shown.cells)
    if asked:
        assert (
            f" exercise{'s' * (len(asked) > 1)} of {sum(one.minutes for one in asked)} min" in box
        )
    up = "../" * shown.name.count("/")
    assert f'<a href="{up}notebooks/{shown.name}.ipynb">.ipynb</a>' in box
    assert f'/blob/notebooks/{shown.name}.ipynb">Colab</a>' in box
    # below the summary: the reference, the glossary, the quiz; the clinic where it is confused
    module, exported = chapter.exported(shown.cells)
    terms = [term for term, pages in chapter.glossary().items() if shown.name in pages]
    below = [f"{{py:obj}}`{one} <{module}.{one}>`" for one in exported if module]
    below += [f"{{term}}`{term}`" for term in terms]
    below += [f"```{{quiz}} {name}\n"] * (name in quizzes.of_chapters())
    assert [text for text in below if text not in summary] == []
    clinic = chapter.clinic(ROOT).get(shown.name, ())
    confused = [text for text in texts if text.startswith("## Often confused")] or [summary]
    assert [text for text in clinic if text not in confused[0]] == []
    if module:
        made = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")).body
        (listed,) = (ast.literal_eval(one.value) for one in made if is_all(one))
        assert set(exported) <= set(listed)


def is_all(statement):
    return getattr(statement, "targets", None) and ast.unparse(statement.targets[0]) == "__all__"


def test_chapters_name_all_that_is_exported_and_all_terms_and_know_their_days():
    pages = {shown.name: shown for shown in map(page, cards.chapters())}
    assert sum(len(chapter.exported(shown.cells)[1]) for shown in pages.values()) > 220
    assert all(where and set(where) <= pages.keys() for where in chapter.glossary().values())
    days = chapter.days(ROOT)
    if not days:
        pytest.skip("the history is missing")
    assert pages.keys() <= days.keys()
    for name, shown in pages.items():
        assert f"last changed on {days[name]}\n" in source(shown.cells[0])
