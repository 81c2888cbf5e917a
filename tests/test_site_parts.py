"What the site is made of, without a browser: folds, formulas as text, drawings, words to look for."

import json
import posixpath
from pathlib import Path

import cards
import pytest
import yaml
from bs4 import BeautifulSoup
from formulas import draw, draw_all, fonts
from site_pages import contents, part_name, plain
from site_search import linear
from ways import hours, lead, part_lines

ROOT = Path(__file__).parents[1]
PARTS = [(caption, pages) for caption, pages in cards.contents() if len(pages) > 1]


def chapter(name):
    "A chapter as it is stored, such as attention/masks."
    return json.loads(cards.chapters()[name].read_text(encoding="utf-8"))


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


# --- the page that opens a part -------------------------------------------------------------------


@pytest.mark.parametrize(("caption", "pages"), PARTS, ids=[caption for caption, _ in PARTS])
def test_a_part_opens_with_a_page_that_lists_it(caption, pages):
    opening, *others = pages
    text = (ROOT / f"{opening}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {caption}\n\n") and text.endswith("\n\n```{part}\n```\n")
    assert 40 <= len(text.split()) <= 100
    total, _, *lines = part_lines(opening)
    assert [line.split("`")[1] for line in lines] == [f"/{page}" for page in others]
    found = [cards.card(ROOT / f"{page}.ipynb") for page in others if page.startswith("nbs/")]
    for number, name in ((1, "first"), (2, "second")):
        minutes = [card["minutes"] for card in found if card["pass"] == number]
        said = f" of the {name} pass, {hours(sum(minutes))}"
        assert (said in total) == bool(minutes)


def test_the_page_that_opens_a_part_has_no_number():
    numbers = cards.numbers()
    assert numbers["nbs/start/01_notation"] == "1.1" and numbers["nbs/attention/02_masks"] == "3.2"
    assert numbers["book/teachers"] == "A.1" and numbers["book/tree"] == "11.1"
    assert not [page for page in numbers if page.startswith(cards.OPENING)]


def test_a_line_of_a_part_says_what_a_chapter_is_and_what_it_takes():
    line = next(line for line in part_lines("book/parts/attention") if "02_masks" in line)
    link, sentence, facts = line.split("<br>")
    assert link == "- 3.2 {doc}`/nbs/attention/02_masks`"
    assert sentence == lead("".join(chapter("attention/masks")["cells"][0]["source"])) != ""
    assert facts == "**First pass** · 30 minutes · 6 exercises"


BESIDE = [
    (2, "Text", "book/parts/text", {"nbs/text/01_tokenizer": "2.1 Tokenizer: <BPE>"}),
    ("A", "Appendix", "", {"book/tree": "A.1 Tree"}),
]


@pytest.mark.parametrize(
    ("here", "opening", "first"),
    [
        ("book/intro", "parts/text.html", "../nbs/text/01_tokenizer.html"),
        ("nbs/text/01_tokenizer", "../../book/parts/text.html", "#"),
        ("book/parts/text", "#", "../../nbs/text/01_tokenizer.html"),
        ("book/parts/start", "text.html", "../../nbs/text/01_tokenizer.html"),
    ],
)
def test_the_contents_lead_to_the_page_of_a_part_and_mark_where_one_is(here, opening, first):
    def address(page):
        return "" if page == here else f"{posixpath.relpath(page, posixpath.dirname(here))}.html"

    made = BeautifulSoup("".join(contents(BESIDE, here, address)), "html.parser")
    text, appendix = made.select(".caption-text")
    assert text.a["href"] == opening and text.get_text() == "2 · Text" and text["data-part"] == "2"
    assert appendix.get_text() == "A · Appendix" and not appendix.a
    links = made.select("li a")
    assert [link["href"] for link in links] == [first, address("book/tree")]
    assert [link.get_text() for link in links] == ["2.1 Tokenizer: <BPE>", "A.1 Tree"]
    marked = [link.get_text() for link in made.select("a.current")]
    assert marked == [link.get_text() for link in made.select("a[href='#']")]
    assert len(made.select("li.current.active")) == (here == "nbs/text/01_tokenizer")
    assert [*map(bool, marked)] == [True] * len(made.select("ul.current"))
