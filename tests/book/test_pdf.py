"""The printed book: a small one here, the whole one where `BOOK_HTML` names a built site."""

import html
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "book"))
make_pdf = pytest.importorskip("make_pdf", reason="pypdf is not installed")
from pypdf import PdfReader  # noqa: E402

BASE = "https://example.org/book"
INSIDE = {"book/intro.html", "nbs/a/01_one.html", "nbs/a/02_two.html"}
HOME = "nbs/a/01_one.html"


def page(body):
    return f'<html><body><article class="bd-article">{body}</article></body></html>'


# --- a page becomes part of the book -------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "there"),
    [
        ("#place", "#nbs/a/01_one--place"),
        ("02_two.html", "#nbs/a/02_two--"),
        ("../../book/intro.html#x-y", "#book/intro--x-y"),
        ("03_three.html#z", f"{BASE}/nbs/a/03_three.html#z"),
        ("../../_static/a.csv", f"{BASE}/_static/a.csv"),
        ("https://arxiv.org/abs/1706.03762", "https://arxiv.org/abs/1706.03762"),
        ("mailto:a@example.org", "mailto:a@example.org"),
    ],
)
def test_a_link_leads_to_the_book_or_to_the_site(link, there):
    assert make_pdf.moved(link, HOME, INSIDE, BASE) == there


def test_a_page_loses_what_only_a_screen_can_do():
    text = page(
        '<h1><span class="section-number">3.2 </span>Masks<a class="headerlink" href="#m">#</a>'
        "</h1><script>no()</script>"
        '<details class="hide"><summary>Code</summary><p id="p">a</p></details>'
        "<details open><p hidden>b</p></details><button>Copy</button>"
        '<img loading="lazy" src="../../_images/a.svg" alt="x">'
    )
    title, body = make_pdf.article(text, HOME, INSIDE, BASE)
    assert title == "3.2 Masks"
    assert body.count("<details open") == body.count("<details") == 2
    assert 'src="_images/a.svg"' in body and 'id="nbs/a/01_one--p"' in body
    for gone in ("<script", "<button", "headerlink", "lazy", " hidden"):
        assert gone not in body


def test_a_page_without_an_article_is_named():
    with pytest.raises(ValueError, match=r"nbs/a/01_one\.html has no article"):
        make_pdf.article("<html></html>", HOME, INSIDE, BASE)


def test_the_first_pass_is_a_part_of_the_book_in_its_order():
    whole, first = make_pdf.contents(ROOT), make_pdf.contents(ROOT, first_pass=True)
    places = [whole.index(one) for one in first]
    assert places == sorted(places) and len(first) < len(whole)
    assert whole[0][0] == first[0][0] == "book/intro"
    assert {"book/glossary", "book/bibliography"} <= {page for page, _ in first}
    assert not any("attention/04_fused" in page for page, _ in first)  # of the second pass
    for path, part in whole:
        assert (ROOT / f"{path}.ipynb").is_file() or (ROOT / f"{path}.md").is_file()
        assert bool(part) == (path != "book/intro")


# --- a small book, printed -----------------------------------------------------------------------

LONG = "".join(f"<p>Line {i} of the chapter.</p>" for i in range(90))
WIDE = "<tr>" + "".join(f"<td>column{i}</td>" for i in range(40)) + "</tr>"
PAGES = {
    "book/intro": ("Start here", '<p>See <a href="../nbs/a/02_two.html#far">far</a>.</p>'),
    "nbs/a/01_one": ("One &amp; only", LONG + f"<table>{WIDE}</table>"),
    "nbs/a/02_two": (
        "Two",
        '<details><summary>Fold</summary><p id="far">Unfolded words.</p></details>'
        '<img src="../../_images/tall.svg" alt="a tall figure">',
    ),
}
TALL = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 900" width="400" height="3600">'
TOC = "root: book/intro\nparts:\n  - caption: Part\n    chapters:\n"
TOC += "      - file: nbs/a/01_one\n      - file: nbs/a/02_two\n"


@pytest.fixture(scope="module")
def small(tmp_path_factory, chromium):
    "A book of three pages, printed in two volumes."
    root = tmp_path_factory.mktemp("book")
    for path, (title, body) in PAGES.items():
        file = root / "site" / f"{path}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page(f"<h1>{title}</h1>{body}"), encoding="utf-8")
    (root / "site/_images").mkdir()
    (root / "site/_images/tall.svg").write_text(TALL + '<rect width="9" height="9"/></svg>')
    (root / "book").mkdir()
    (root / "book/_toc.yml").write_text(TOC)
    (root / "settings.ini").write_text((ROOT / "settings.ini").read_text())
    make_pdf.make(root / "site", root / "out/book.pdf", chromium, root=root, volumes=2)
    assert [file.name for file in (root / "out").iterdir()] == ["book.pdf"]  # nothing half-written
    return PdfReader(root / "out/book.pdf")


def starts(book):
    "The page that each chapter begins on, by the outline, from 1: (title, page)."
    flat = []
    for one in book.outline:
        flat += one if isinstance(one, list) else [one]
    named = {one.title: book.get_destination_page_number(one) + 1 for one in flat}
    return named


def test_the_contents_have_the_right_numbers(small):
    texts = [page.extract_text() for page in small.pages]
    assert "transformer_lit" in texts[0] and "The whole book" in texts[0]
    found = dict(re.findall(r"^(Start here|One & only|Two)[ \t]+(\d+)$", texts[1], re.M))
    assert list(found) == ["Start here", "One & only", "Two"]
    for title, number in found.items():
        assert texts[int(number) - 1].lstrip().startswith(title)
        assert starts(small)[title] == int(number)
    assert int(found["Two"]) - int(found["One & only"]) >= 2  # ninety lines are more than a page


def test_every_page_has_its_number_at_its_foot(small):
    for number, page in enumerate(small.pages, 1):
        lines = page.extract_text().splitlines()  # the contents' numbers are laid over the page
        at_foot = lines if number == 2 else lines[-1:]
        assert at_foot.count(str(number)) == 1, number


def test_folds_are_open_and_nothing_wide_or_tall_is_cut(small):
    text = "\n".join(page.extract_text() for page in small.pages)
    assert "Unfolded words." in text
    assert "column39" in text
    last = starts(small)["Two"]
    assert len(small.pages) <= last + 1  # the tall figure fits one page


def test_a_link_leads_to_its_place_in_another_volume(small):
    first = small.pages[starts(small)["Start here"] - 1]
    links = [one.get_object() for one in first.get("/Annots", [])]
    assert [link["/Dest"] for link in links] == ["/nbs/a/02_two--far"]  # and none of no size
    place = small.named_destinations["/nbs/a/02_two--far"]
    assert small.get_destination_page_number(place) + 1 == starts(small)["Two"]


def test_volumes_are_of_about_equal_length_and_in_order():
    chapters = [make_pdf.Chapter(f"{n}.html", str(n), "x" * length) for n, length in
                enumerate((5, 3, 2, 7, 1, 2))]  # fmt: skip
    volumes = make_pdf.split(chapters, 2)
    assert [[one.title for one in volume] for volume in volumes] == [
        ["0", "1", "2"],
        ["3", "4", "5"],
    ]
    assert make_pdf.split(chapters[:1], 3) == [chapters[:1]]


def test_a_folder_that_is_no_site_is_refused(tmp_path):
    command = [
        sys.executable,
        str(ROOT / "book/make_pdf.py"),
        str(tmp_path),
        str(tmp_path / "a.pdf"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "make book first" in done.stderr
    assert not (tmp_path / "a.pdf").exists()


# --- the whole book ------------------------------------------------------------------------------


def plain(text):
    "Letters and digits alone: what a printed line keeps of a title."
    return "".join(char for char in unicodedata.normalize("NFKC", text) if char.isalnum())


@pytest.mark.slow  # minutes
@pytest.mark.skipif(
    "BOOK_HTML" not in os.environ, reason="BOOK_HTML names no built site (make book)"
)
@pytest.mark.parametrize("first_pass", [True, False])
def test_the_book_is_printed_whole(tmp_path, chromium, first_pass):
    site, target = Path(os.environ["BOOK_HTML"]).resolve(), tmp_path / "book.pdf"
    make_pdf.make(site, target, chromium, first_pass)
    check_whole(site, PdfReader(target), first_pass)


def check_whole(site, book, first_pass):
    "All chapters in order, the numbers of the contents, no formula left as it is typed."
    texts = [page.extract_text() for page in book.pages]
    chapters = make_pdf.read(site, make_pdf.contents(ROOT, first_pass), BASE)
    begin, last = starts(book), 2
    front = "\n".join(texts[1 : begin[html.unescape(chapters[0].title)] - 1])
    told = [int(number) for number in re.findall(r" (\d+)$", front, re.M)]
    for chapter, number in zip(chapters, told, strict=True):
        title = html.unescape(chapter.title)
        assert plain(title) in plain(texts[number - 1]), (title, number)
        assert begin[title] == number > last
        last = number
    typed = re.compile(r"\$\$|\\(?:frac|sum|sqrt|mathrm|text|cdot|begin)\b")
    code = (
        html.unescape(re.sub(r"<[^>]+>", "", one))
        for chapter in chapters
        for one in re.findall(r"<(?:pre|code)\b.*?</(?:pre|code)>", chapter.body, re.S)
    )
    meant = sum(len(typed.findall(one)) for one in code)
    assert sum(len(typed.findall(text)) for text in texts) <= meant
    assert len(texts) > 3 * len(chapters)
