"What the site is made of, without a browser: folds, formulas as text, drawings, words to look for."

import json
from pathlib import Path

import cards
import formulas
import pytest
import yaml
from site_pages import part_name, plain
from site_search import linear
from sphinxcontrib.katex import katex_version
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


def test_the_style_of_formulas_is_of_the_version_that_draws_them():
    style = (ROOT / "book/_static/katex/katex.min.css").read_text(encoding="utf-8")
    assert f'katex-version:after{{content:"{katex_version}"' in style


LETTERS = (  # k over q, as an index and as itself, W, a v in bold, and k in the text beside it
    '<span class="mord mathnormal mtight" style="margin-right:0.0315em;">k</span>'
    '<span class="mord mathnormal" style="margin-right:0.0359em;">q</span>'
    '<span class="mord mathnormal" style="margin-right:0.1389em;">W</span>'
    '<span class="mord mathbf">v</span><p>k</p><mi>q</mi>'
)


def test_query_key_and_value_are_coloured_in_formulas_of_attention_alone():
    made = formulas.colour(LETTERS)
    assert made.count("tl-") == 2
    assert 'mathnormal tl-k mtight" style="margin-right:0.0315em;">k<' in made
    assert 'mathnormal tl-q" style="margin-right:0.0359em;">q<' in made
    for page, changed in (("nbs/attention/03_attend", True), ("nbs/training/03_schedule", False)):
        context = {"body": LETTERS}
        formulas.colour_page(None, page, None, context, None)
        assert (context["body"] != LETTERS) == changed


def test_a_description_is_cut_at_a_word():
    assert plain("one  two\nthree", 20) == "one two three"
    assert plain("one two three", 10) == "one two …"


def test_parts_are_numbered_and_the_appendix_has_a_letter():
    assert part_name(3, "Attention") == 3
    assert part_name(14, "Appendix") == "A"


def test_words_to_look_for_belong_to_pages_and_to_one_each():
    listed = yaml.safe_load((ROOT / "book/search.yml").read_text(encoding="utf-8"))
    pages = {name for name in listed if not (ROOT / f"{name}.md").exists()}
    assert pages <= set(cards.chapters())
    for chapter, words in listed.items():
        assert len({word.lower() for word in words}) == len(words), chapter


# --- the page that opens a part -------------------------------------------------------------------


def test_a_part_opens_with_a_page_that_lists_it():
    for caption, (opening, *others) in PARTS:
        text = (ROOT / f"{opening}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {caption}\n\n") and text.endswith("\n\n```{part}\n```\n")
        assert 40 <= len(text.split()) <= 100, caption
        total, _, *lines = part_lines(opening)
        assert [line.split("`")[1] for line in lines] == [f"/{page}" for page in others]
        found = [cards.card(ROOT / f"{page}.ipynb") for page in others if page.startswith("nbs/")]
        for number, name in ((1, "first"), (2, "second")):
            minutes = [card["minutes"] for card in found if card["pass"] == number]
            said = f" of the {name} pass, {hours(sum(minutes))}"
            assert (said in total) == bool(minutes), caption


def test_the_page_that_opens_a_part_has_no_number():
    numbers = cards.numbers()
    assert (
        numbers["nbs/start/00_ten_minutes"] == "1.1" and numbers["nbs/attention/02_masks"] == "3.2"
    )
    assert numbers["book/teachers"] == "A.1" and numbers["book/tree"] == "11.1"
    assert not [page for page in numbers if page.startswith(cards.OPENING)]


def test_a_line_of_a_part_says_what_a_chapter_is_and_what_it_takes():
    line = next(line for line in part_lines("book/parts/attention") if "02_masks" in line)
    link, sentence, facts = line.split("<br>")
    assert link == "- 3.2 {doc}`/nbs/attention/02_masks`"
    assert sentence == lead("".join(chapter("attention/masks")["cells"][0]["source"])) != ""
    minutes = chapter("attention/masks")["metadata"]["chapter"]["minutes"]
    assert facts.startswith(f"**First pass** · {minutes} minutes · 6 exercises of ")


def drawn(latex, **options):
    "What is drawn of a formula, piece by piece, and the whole that comes of it."
    pieces = []

    def draw(piece, options):
        pieces.append(piece.strip())
        return f'<span class="katex-display"><i>{piece.strip()}</i></span>'

    return pieces, formulas.render(latex, options, draw=draw)


def test_a_display_is_drawn_in_the_parts_between_its_wide_spaces():
    pieces, html = drawn(
        r"a, \qquad b = \left( c \qquad d \right), \qquad {e \qquad f}", displayMode=True
    )
    assert pieces == ["a,", r"b = \left( c \qquad d \right),", r"{e \qquad f}"]
    inside = "".join(f"<i>{piece}</i>" for piece in pieces)
    assert html == f'<span class="katex-display">{inside}</span>'
    assert drawn(r"a \qquad b")[0] == [r"a \qquad b"]  # of a line of text


def test_rows_that_are_not_aligned_are_displays_of_one_display():
    rows = r"""
    \begin{gathered} a \\[4pt] b \qquad \begin{pmatrix} c \\ d \end{pmatrix} \\ e
    \end{gathered}
    """
    pieces, html = drawn(rows, displayMode=True)
    assert pieces == ["a", "b", r"\begin{pmatrix} c \\ d \end{pmatrix}", "e"]
    assert html.startswith(
        '<span class="katex-display katex-rows"><span class="katex-display"><i>a'
    )
    assert html.count("katex-display") == 1 + 3
    aligned = r"\begin{aligned} a &= b \\ c &= d \end{aligned}"
    assert drawn(aligned, displayMode=True)[0] == [aligned]
