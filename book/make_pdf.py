"""Print the book from its built site: `python book/make_pdf.py SITE TARGET [--first-pass]`.

Chromium joins all articles into one page, in the order of the contents (print.js), with folds open
and links that stay within the book, and prints it. The contents get their page numbers at the end.
"""

import argparse
import functools
import http.server
import io
import sys
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright
from pypdf import PdfReader, PdfWriter
from pypdf.generic import NameObject, TextStringObject

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book/_ext"))
import cards  # noqa: E402
from browser import find_chromium  # noqa: E402

ALWAYS = ("book/glossary", "book/bibliography")  # targets of links, also in the first pass
# how the bars begin that stay closed on paper in the first pass
SHUT = ("Check", "Code of the ", "Code that ", "Imports", "Open the workshop", "Records ", "Where ")
PAPER = {"width": 673, "height": 994}  # pixels between the margins of A4: 178 by 263 mm
PRINT = {
    "format": "A4",
    "margin": {"top": "16mm", "right": "16mm", "bottom": "18mm", "left": "16mm"},
    "print_background": True,
    "display_header_footer": True,
    "header_template": "<span></span>",
    "footer_template": '<p class="pageNumber" style="font-size: 8px; margin: auto"></p>',
}
FILL = """(numbers) => {
    document.querySelectorAll(".bd-article").forEach((article) => article.remove());
    document.querySelectorAll(".place").forEach((place, i) => (place.textContent = numbers[i]));
    document.body.className = "numbers-alone";
}"""


def contents(root: Path, first_pass: bool = False) -> list[tuple[str, str]]:
    "Each page in the order of the contents, with the name of its part."
    pages = [("book/intro", "")]
    for place, (caption, files) in enumerate(cards.contents(root), 1):
        name = f"{cards.part_name(place, caption)} · {caption}"
        pages += [(file, name) for file in files if not first_pass or is_first(root, file)]
    return pages


def is_first(root: Path, page: str) -> bool:
    "Whether a page belongs to the first pass, or is looked up from it."
    chapter = page.startswith("nbs/")
    return cards.card(root / f"{page}.ipynb")["pass"] == 1 if chapter else page in ALWAYS


class Server(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *what):
        pass


def make(site: Path, target: Path, first_pass: bool = False, root: Path = ROOT) -> None:
    "Write the book to `target`, completely or not at all."
    known, pages = cards.settings(root), contents(root, first_pass)
    base = known["doc_host"] + known["doc_baseurl"]
    name = "The first pass" if first_pass else "The whole book"
    lines = [known["title"], known["description"], name, f"Version {known['version']}", base]
    listed = [{"path": f"{page}.html", "part": part} for page, part in pages]
    handler = functools.partial(Server, directory=site)
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        sync_playwright() as playwright,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = {"executable_path": find_chromium(), "args": ["--no-sandbox"]}
        page = playwright.chromium.launch(**options).new_page(viewport=PAPER)
        page.set_default_timeout(1_800_000)
        page.emulate_media(media="print", color_scheme="light")
        page.goto(f"http://127.0.0.1:{server.server_port}/{pages[-1][0]}.html")
        page.add_style_tag(url="/_static/katex/katex.min.css")
        page.add_style_tag(path=ROOT / "book/print.css")
        script = (ROOT / "book/print.js").read_text(encoding="utf-8")
        titles = page.evaluate(script, [listed, lines, base, SHUT if first_pass else ()])
        book = PdfWriter(clone_from=io.BytesIO(page.pdf(**PRINT, tagged=True)))
        starts = numbers(book, pages)
        page.evaluate(FILL, starts)
        front = PdfReader(io.BytesIO(page.pdf(**PRINT | {"display_header_footer": False})))
        server.shutdown()
    for printed, filled in zip(book.pages, front.pages):
        printed.merge_page(filled)
    outline = {"": None}  # the parts, with their chapters
    for (_, part), title, start in zip(pages, titles, starts, strict=True):
        if part not in outline:
            outline[part] = book.add_outline_item(title=part, page_number=start - 1)
        book.add_outline_item(title=title, page_number=start - 1, parent=outline[part])
    book.add_metadata({"/Title": known["title"]})
    book.root_object[NameObject("/Lang")] = TextStringObject("en-GB")
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_suffix(".part")
    book.write(half)
    half.replace(target)


def numbers(book: PdfWriter, pages: list[tuple[str, str]]) -> list[int]:
    "The page number, from 1, on which each chapter begins."
    places = {page.indirect_reference.idnum: n for n, page in enumerate(book.pages, 1)}
    named = book.root_object["/Dests"]
    return [places[named[f"/{page}--"][0].indirect_reference.idnum] for page, _ in pages]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("site", type=Path, help="the built site, _build/html")
    parser.add_argument("target", type=Path, help="the file to write")
    parser.add_argument("--first-pass", action="store_true", help="print only the first pass")
    given = parser.parse_args()
    make(given.site.resolve(), given.target, given.first_pass)


if __name__ == "__main__":
    main()
