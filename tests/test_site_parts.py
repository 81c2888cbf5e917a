"What the site is made of, without a browser: folds, formulas as text, drawings, words to look for."

from pathlib import Path

import pytest
import yaml
from formulas import draw, draw_all, fonts
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


def test_a_formula_is_drawn_as_katex_draws_it():
    once = draw(r"\frac{a}{b}")
    assert "mfrac" in once and "<mfrac>" in once  # to be seen, and to be heard
    assert 'display="block"' not in once
    assert 'display="block"' in draw(r"\sum_i x_i", display=True)
    assert draw("x") != draw("y")  # an answer belongs to its question


def test_the_formulas_of_a_page_are_drawn_where_they_stand():
    line = '<p>As <span class="math notranslate">\\(a &lt; b\\)</span>, so</p>'
    number = '<span class="eqno">(1.2.3)<a class="headerlink" href="#e">#</a></span>'
    block = f'<div class="math notranslate" id="e">\n{number}\\[\na^2\n\\]</div>'
    page = draw_all(line + block)
    assert page.startswith('<p>As <span class="math notranslate"><span class="katex">')
    assert ">a &lt; b</annotation>" in page
    assert f'<div class="math notranslate" id="e">\n{number}<span class="katex-display">' in page
    assert "\\(" not in page and "\\[" not in page
    assert draw_all("<p>\\(no formula\\)</p>") == "<p>\\(no formula\\)</p>"


def test_what_is_no_formula_is_complained_of_and_left():
    wrong = r'<span class="math">\(\frac{a\)</span>'
    with pytest.raises(ValueError, match="frac"):
        draw_all(wrong)
    said = []
    assert draw_all(wrong, said.append) == wrong
    assert len(said) == 1 and r"\frac{a" in said[0]


def test_a_page_asks_for_the_fonts_of_its_formulas():
    assert fonts("<p>none</p>") == []
    assert fonts(draw("1 + 1")) == ["Main-Regular"]
    assert fonts(draw("x")) == ["Main-Regular", "Math-Italic"]
    found = fonts(draw(r"\mathbb{R} \sum \Bigl( \mathbf{x}", display=True))
    assert set(found) == {"Main-Regular", "Main-Bold", "AMS-Regular", "Size2-Regular"}


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
