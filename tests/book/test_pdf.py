"The printed book: a small one at each push, the whole one once a week."

import os
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "book"))
make_pdf = pytest.importorskip("make_pdf", reason="pypdf is not installed")
from pypdf import PdfReader  # noqa: E402


def page(body):
    return f'<html><body><article class="bd-article">{body}</article></body></html>'


def test_the_first_pass_is_a_part_of_the_book_in_its_order():
    whole, first = make_pdf.contents(ROOT), make_pdf.contents(ROOT, first_pass=True)
    places = [whole.index(one) for one in first]
    assert places == sorted(places) and len(first) < len(whole)
    assert whole[0][0] == first[0][0] == "book/intro"
    assert {"book/glossary", "book/bibliography"} <= {page for page, _ in first}
    assert not any("attention/04_fused" in page for page, _ in first)  # of the second pass
    assert [path for path, part in whole if not part] == ["book/intro"]


# --- a small book, printed -----------------------------------------------------------------------

LONG = "".join(f"<p>Line {i} of the chapter.</p>" for i in range(90))
WIDE = "<tr>" + "".join(f"<td>column{i}</td>" for i in range(40)) + "</tr>"
PAGES = {
    "book/intro": (
        "Start here",
        '<p>See <a href="../nbs/a/02_two.html#far">far</a>, <a href="../_static/a.csv">data</a> '
        'and <a href="https://arxiv.org/abs/1706.03762">a paper</a>.</p>',
    ),
    "nbs/a/01_one": ("One &amp; only", LONG + f"<table>{WIDE}</table><button>Copy</button>"),
    "nbs/a/02_two": (
        "Two",
        '<details><summary>Fold</summary><p id="far">Unfolded words.</p></details>'
        "<details><summary>Check: it</summary><p>Words of a check.</p></details>"
        '<p hidden>Hidden words.</p><img src="../../_images/tall.svg" alt="a tall figure">',
    ),
}
TALL = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 900" width="400" height="3600">'
TOC = "root: book/intro\nparts:\n  - caption: Part\n    chapters:\n"
TOC += "      - file: nbs/a/01_one\n      - file: nbs/a/02_two\n"


@pytest.fixture(scope="module")
def small(tmp_path_factory, chromium):
    "A book of three pages, printed."
    root = tmp_path_factory.mktemp("book")
    for path, (title, body) in PAGES.items():
        file = root / "site" / f"{path}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page(f"<h1>{title}</h1>{body}"), encoding="utf-8")
    (root / "site/_images").mkdir()
    (root / "site/_images/tall.svg").write_text(TALL + '<rect width="9" height="9"/></svg>')
    shutil.copytree(ROOT / "book/_static/katex", root / "site/_static/katex")
    (root / "book").mkdir()
    (root / "book/_toc.yml").write_text(TOC)
    (root / "settings.ini").write_text((ROOT / "settings.ini").read_text())
    book = printed(root / "site", root / "out/book.pdf", "", root)
    assert [file.name for file in (root / "out").iterdir()] == ["book.pdf"]  # nothing half-written
    return book


def printed(*told):
    "In a process of its own: a browser that other tests opened has the loop of this one."
    code = "import sys, make_pdf as m; a, b, first, c = sys.argv[1:]"
    code += "; m.make(m.Path(a), m.Path(b), bool(first), m.Path(c))"
    python = os.environ | {"PYTHONPATH": str(ROOT / "book")}
    subprocess.run([sys.executable, "-c", code, *map(str, told)], check=True, env=python)
    return PdfReader(told[1])


def starts(book):
    "The page that each chapter begins on, by the outline, from 1: (title, page)."
    flat = []
    for one in book.outline:
        flat += one if isinstance(one, list) else [one]
    return {one.title: book.get_destination_page_number(one) + 1 for one in flat}


def test_pages_have_the_numbers_that_the_contents_give(small):
    texts, begin = [page.extract_text() for page in small.pages], starts(small)
    assert "transformer_lit" in texts[0] and "The whole book" in texts[0]
    found = re.findall(r"^(Start here|One & only|Two)[ \t]+(\d+)$", texts[1], re.M)
    assert [title for title, _ in found] == ["Start here", "One & only", "Two"]
    for title, number in found:
        assert texts[int(number) - 1].lstrip().startswith(title)
        assert begin[title] == int(number)
    assert begin["Two"] - begin["One & only"] >= 2  # ninety lines are more than a page
    for number, text in enumerate(texts, 1):  # the contents' numbers are laid over the page
        at_foot = text.splitlines() if number <= 2 else text.splitlines()[-1:]
        assert at_foot.count(str(number)) == 1, number


def test_folds_are_open_nothing_is_cut_and_a_link_leads_to_the_book_or_to_the_site(small):
    text, begin = "\n".join(page.extract_text() for page in small.pages), starts(small)
    assert "Unfolded words." in text and "Hidden words." in text and "Words of a check." in text
    tree = small.trailer["/Root"]  # for those who listen
    assert tree["/Lang"] == "en-GB" and tree["/MarkInfo"]["/Marked"]
    assert "column39" in text and "Copy" not in text
    assert len(small.pages) <= begin["Two"] + 1  # the tall figure fits one page
    first = small.pages[begin["Start here"] - 1]
    links = [one.get_object() for one in first["/Annots"]]
    assert "/nbs/a/02_two--far" in [link.get("/Dest") for link in links]
    place = small.named_destinations["/nbs/a/02_two--far"]
    assert small.get_destination_page_number(place) + 1 == begin["Two"]
    base = make_pdf.cards.settings(ROOT)
    site = base["doc_host"] + base["doc_baseurl"]
    away = [link["/A"]["/URI"] for link in links if "/A" in link]
    assert away == [f"{site}/_static/a.csv", "https://arxiv.org/abs/1706.03762"]


# --- the whole book ------------------------------------------------------------------------------


def plain(text):
    "Letters and digits alone: what a printed line keeps of a title."
    return "".join(char for char in unicodedata.normalize("NFKC", text) if char.isalnum())


@pytest.mark.weekly
@pytest.mark.parametrize("first_pass", ["first pass", ""])
def test_the_book_is_printed_whole(tmp_path, chromium, site, first_pass):
    "All chapters in order, the numbers of the contents, no formula left as it is typed."
    book = printed(site, tmp_path / "book.pdf", first_pass, ROOT)
    texts, begin, last = [page.extract_text() for page in book.pages], starts(book), 2
    parts = {part for _, part in make_pdf.contents(ROOT)}
    chapters = [title for title in begin if title not in parts]
    assert len(chapters) == len(make_pdf.contents(ROOT, bool(first_pass)))
    front = "\n".join(texts[1 : begin[chapters[0]] - 1])
    told = [int(number) for number in re.findall(r"[ \t](\d+)$", front, re.M)]
    for title in chapters:
        assert plain(title) in plain(texts[begin[title] - 1]), title
        assert begin[title] > last and begin[title] in told
        last = begin[title]
    typed = re.compile(r"\\(?:frac|sqrt|mathrm|begin)\b")
    assert sum(len(typed.findall(text)) for text in texts) < 20  # in code, where it is meant
    assert len(texts) > 3 * len(chapters)
    assert not first_pass or len(texts) < 400  # a book to read: no checks, imports, workshops
