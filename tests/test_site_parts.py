"What the site is made of, without a browser: parts, paths, the map, formulas, words to look for."

import io
import re
import tomllib
import zipfile
from pathlib import Path

import cards
import formulas
import in_page
import pytest
import ways
import yaml
from site_search import linear
from sphinxcontrib.katex import katex_version

from transformer_lit.course.files import file_sha256

ROOT = Path(__file__).parents[1]

# --- parts, paths and the map --------------------------------------------------------------------


def test_a_part_opens_with_a_page_that_lists_it_and_only_the_others_have_numbers():
    numbers = cards.numbers()
    for caption, (opening, *others) in cards.contents():
        if not others:
            continue
        text = (ROOT / f"{opening}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {caption}\n\n") and text.endswith("\n\n```{part}\n```\n")
        assert 40 <= len(text.split()) <= 100, caption
        total, _, *lines = ways.part_lines(opening)
        assert opening not in numbers and len(lines) == len(others)
        minutes = {1: 0, 2: 0}
        for page, line in zip(others, lines, strict=True):
            assert line.startswith(f"- {numbers[page]} {{doc}}`/{page}`")
            if page.startswith("nbs/"):
                card = cards.card(ROOT / f"{page}.ipynb")
                minutes[card["pass"]] += card["minutes"]
                _, lead, facts = line.split("<br>")
                first = ("**First pass**", "Second pass")[card["pass"] - 1]
                assert lead and facts.startswith(f"{first} · {card['minutes']} minutes"), line
        for number, name in ((1, "first"), (2, "second")):
            said = f" of the {name} pass, {ways.hours(minutes[number])}"
            assert (said in total) == bool(minutes[number]), caption
    assert numbers["nbs/attention/02_masks"] == "3.2" and numbers["book/teachers"] == "A.1"


GOALS = [["attention/multihead"], ["models/llama", "models/first_training"]]


def test_paths_are_closed_in_order_and_within_the_first_pass():
    first = ways.first_pass()
    assert all(set(card["needs"]) <= first.keys() for card in first.values())
    for goals in GOALS:
        path = ways.path_to(goals)
        assert set(goals) <= path.keys()
        for place, card in enumerate(path.values()):
            assert set(card["needs"]) <= set([*path][:place]) and card["pass"] == 1
    page = (ROOT / "book/paths.md").read_text(encoding="utf-8")
    found = [line.split() for line in re.findall(r"```\{reading-path\} (.+)", page)]
    assert [line for line in found if line[0] != "only"] == [*GOALS, ["first-pass"]]
    chosen = [line for line in found if line[0] == "only"]
    for line, limit in zip(chosen, (60, 180, 1e9), strict=True):  # an hour, an evening, and longer
        path = ways.chosen(line)
        assert [*path] == line[1:]  # in the book's order, whatever order the page gives them in
        assert sum(card["minutes"] for card in path.values()) <= limit
        assert limit > 180 or all(card["pass"] == 1 for card in path.values())
    for card in ways.chosen(chosen[0]).values():  # an hour takes one thing on trust
        assert len(set(card["needs"]) - {*chosen[0]}) <= 1
    with pytest.raises(ValueError, match="attention/maks"):
        ways.path_to(["attention/maks"])


def test_every_box_of_the_map_is_a_chapter_of_the_first_pass_and_marked_in_its_part():
    drawn = ways.drawn_map(lambda chapter: f"{chapter}.html", "block")
    linked = re.findall(r'<a href="(.+?)\.html"><rect class="\w+( here)?"', drawn)
    assert len(linked) == drawn.count("<a ") > 20
    assert {name for name, _ in linked} <= ways.first_pass().keys()
    assert all(bool(here) == name.startswith("block/") for name, here in linked)
    assert drawn.count(" here") > 5


# --- formulas and words --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (linear(r"\frac{q_t \cdot k_s}{\sqrt{D}}"), "q_t · k_s/√D"),  # searched as it is typed
        (linear(r"\mathrm{Attend}\bigl(Q, K\bigr)"), "Attend (Q, K )"),
        (linear(r"\log \sum_{j} e^{a_{tj}}"), "log ∑_j e^a_tj"),
        (linear(r"\begin{gathered} a \\[4pt] b \end{gathered}"), "a b"),
        (ways.hours(5), "5 min"),
        (ways.hours(60), "1 h 00 min"),
        (ways.hours(125), "2 h 05 min"),
    ],
)
def test_what_is_written_of_formulas_texts_and_times(made, text):
    assert made == text


def test_words_to_look_for_belong_to_pages_and_to_one_each():
    listed = yaml.safe_load((ROOT / "book/search.yml").read_text(encoding="utf-8"))
    pages = {name for name in listed if not (ROOT / f"{name}.md").exists()}
    assert pages <= set(cards.chapters())
    for chapter, words in listed.items():
        assert len({word.lower() for word in words}) == len(words), chapter


def test_the_style_of_formulas_is_of_the_version_that_draws_them():
    style = (ROOT / "book/_static/katex/katex.min.css").read_text(encoding="utf-8")
    assert f'katex-version:after{{content:"{katex_version}"' in style


def test_the_only_downloaded_code_is_pyodide_as_it_was_published_with_its_licences():
    folder = ROOT / "book/_static/pyodide"
    lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    hashes = {name: sha for sha, name in map(str.split, lines)}
    texts = {"LICENSE", "LICENSE.python", "README.md", "SHA256SUMS"}
    assert {path.name for path in folder.iterdir()} == {*hashes, *texts}
    assert {name: file_sha256(folder / name) for name in hashes} == hashes
    notice = (ROOT / "WEIGHTS-NOTICE.md").read_text(encoding="utf-8")
    licence = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    for name, file in (("MPL-2.0", "LICENSE"), ("Python-2.0.1", "LICENSE.python")):
        assert name in notice and name in licence and len((folder / file).read_text()) > 10_000


def test_the_archive_of_python_in_the_page_is_the_same_at_each_build():
    first = in_page.archive()
    with zipfile.ZipFile(io.BytesIO(first)) as file:
        assert {name: file.read(name) for name in file.namelist()} == in_page.contents.files()
        assert {entry.date_time for entry in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert in_page.archive() == first and len(first) < 400_000


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


def drawn(latex):
    "What is drawn of a display, piece by piece, and the whole that comes of it."
    pieces = []

    def draw(piece, display):
        pieces.append(piece.strip())
        return f'<span class="katex-display"><i>{piece.strip()}</i></span>'

    return pieces, formulas.display(latex, draw)


def test_a_display_is_drawn_in_the_parts_between_its_wide_spaces():
    pieces, html = drawn(r"a, \qquad b = \left( c \qquad d \right), \qquad {e \qquad f}")
    assert pieces == ["a,", r"b = \left( c \qquad d \right),", r"{e \qquad f}"]
    inside = "".join(f"<i>{piece}</i>" for piece in pieces)
    assert html == f'<span class="katex-display">{inside}</span>'


def test_rows_that_are_not_aligned_are_displays_of_one_display():
    rows = r"""
    \begin{gathered} a \\[4pt] b \qquad \begin{pmatrix} c \\ d \end{pmatrix} \\ e
    \end{gathered}
    """
    pieces, html = drawn(rows)
    assert pieces == ["a", "b", r"\begin{pmatrix} c \\ d \end{pmatrix}", "e"]
    assert html.startswith(
        '<span class="katex-display katex-rows"><span class="katex-display"><i>a'
    )
    assert html.count("katex-display") == 1 + 3
    aligned = r"\begin{aligned} a &= b \\ c &= d \end{aligned}"
    assert drawn(aligned)[0] == [aligned]
