"What the site is made of, without a browser: folds, formulas as text, drawings, words to look for."

from pathlib import Path

import pytest
import yaml
from nbdev_directives import cards, fold_name, tags
from site_pages import least_width, part_name, plain
from site_search import linear

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (r"\frac{q_t \cdot k_s}{\sqrt{D}}", "q_t · k_s/√D"),
        (r"\mathrm{Attend}\bigl(Q, K\bigr)", "Attend (Q, K )"),
        (r"\log \sum_{j} e^{a_{tj}}", "log ∑_j e^a_tj"),
        (r"\begin{gathered} a \\[4pt] b \end{gathered}", "a b"),
    ],
)
def test_a_formula_is_searched_as_it_is_typed(formula, text):
    assert linear(formula) == text


@pytest.mark.parametrize(
    ("code", "outputs", "name"),
    [
        ("import math\n\nfrom torch import Tensor", [], "Imports"),
        ("x = 1\nplt.show()", [{"data": {"image/svg+xml": "…"}}], "Code of the figure"),
        ("def f():\n    pass\n\n\ndef _g():\n    pass", [], "Code: f"),
        ("def a(): 1\ndef b(): 1\ndef c(): 1\ndef d(): 1", [], "Code: a, b, c …"),
        ("print(1)", [{"text": "1"}], "Code of the output"),
        ("x = 1", [], "Code"),
        ("!pip list", [], "Code"),
    ],
)
def test_a_fold_is_named_by_its_purpose(code, outputs, name):
    assert fold_name({"outputs": outputs}, code) == name


def test_imports_fold_by_themselves():
    assert "hide-input" in tags({}, "import math")
    assert "hide-input" not in tags({}, "import math\nprint(math.pi)")


def test_the_least_width_makes_the_smallest_label_nine_pixels():
    drawing = '<svg viewBox="0 0 300 100"><text style="font: 10px x">a</text><text font-size="6"/>'
    assert least_width(drawing + "</svg>") == 450  # 300 · 9 / 6
    assert least_width('<svg viewBox="0 0 300 100"/>') is None


def test_a_description_is_cut_at_a_word():
    assert plain("one  two\nthree", 20) == "one two three"
    assert plain("one two three", 10) == "one two …"


def test_parts_are_numbered_and_the_appendix_has_a_letter():
    assert part_name(3, "Attention") == 3
    assert part_name(14, "Appendix") == "A"


def test_words_to_look_for_belong_to_chapters_and_to_one_each():
    listed = yaml.safe_load((ROOT / "book/search.yml").read_text(encoding="utf-8"))
    assert set(listed) <= set(cards.chapters())
    for chapter, words in listed.items():
        assert len({word.lower() for word in words}) == len(words), chapter
