"""Print the book from its built site: `python book/make_pdf.py SITE TARGET [--first-pass]`.

All articles, in the order of the contents, become one page that Chromium prints: a title, contents
with page numbers, folds open, no navigation. Links within the book lead to its pages, all others to
the site. What is wider than the paper is made smaller. Each core prints a volume; they are joined,
and get their numbers, at the end.
"""

import argparse
import contextlib
import functools
import html
import http.server
import io
import json
import os
import posixpath
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from urllib.parse import unquote, urldefrag

import yaml
from pypdf import PdfReader, PdfWriter
from pypdf.generic import (
    ArrayObject,
    DecodedStreamObject,
    DictionaryObject,
    Fit,
    NameObject,
)

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book/_ext"))
from browser import find_chromium  # noqa: E402
from cards import settings  # noqa: E402
from site_pages import part_name  # noqa: E402

ALWAYS = ("book/glossary", "book/bibliography")  # where links lead to, also of the first pass
WIDTH, HEIGHT = 673, 994  # pixels that A4 leaves between the margins: 178 by 263 mm
MARGINS = {"top": "16mm", "right": "16mm", "bottom": "18mm", "left": "16mm"}
BESIDE = (
    "https://volume.invalid/#"  # what a link to another volume begins with, until all are joined
)
ARTICLE = re.compile(r'<article class="bd-article"[^>]*>(.*)</article>', re.S)
TITLE = re.compile(r"<h1>(.*?)</h1>", re.S)
STYLE = re.compile(r'<link\b[^>]*rel="stylesheet"[^>]*>')
DROPPED = re.compile(
    r'<script\b.*?</script>|<button\b.*?</button>|<a class="headerlink".*?</a>|\sloading="lazy"'
    r'|<link rel="preload"[^>]*>|\shidden(?:="")?(?=[\s>])',
    re.S,
)
TAG = re.compile(r"<[a-zA-Z][^<>]*>")
NAMES = re.compile(r'(?<=\s)(?P<key>id|name|href|xlink:href|src)="(?P<value>[^"]*)"')


@dataclass
class Chapter:
    "A page of the site as the book has it; `part` is set for the first of each part."

    path: str
    title: str
    body: str
    part: str = ""


def anchor(path: str, label: str = "") -> str:
    "The name of a place of the site within the printed page."
    return f"{path.removesuffix('.html')}--{label}"


def contents(root: Path, first_pass: bool = False) -> list[tuple[str, str]]:
    "Each page in the order of the contents, with the name of the part that it belongs to."
    toc = yaml.safe_load((root / "book/_toc.yml").read_text(encoding="utf-8"))
    pages = [(toc["root"], "")]
    for place, part in enumerate(toc["parts"], 1):
        name = f"{part_name(place, part['caption'])} · {part['caption']}"
        pages += [(chapter["file"], name) for chapter in part["chapters"]]
    if first_pass:
        kept = (toc["root"], *ALWAYS)
        pages = [(page, part) for page, part in pages if page in kept or is_first(root, page)]
    return pages


def is_first(root: Path, page: str) -> bool:
    "Whether the card of a chapter says that it belongs to the first pass."
    path = root / f"{page}.ipynb"
    if not path.is_file():
        return False
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return notebook["metadata"].get("chapter", {}).get("pass") == 1


def moved(link: str, path: str, inside: set[str], base: str) -> str:
    "A link of the page `path` as the printed book has it."
    target, label = urldefrag(html.unescape(link))
    if re.match(r"[a-z]+:", target) or target.startswith("//"):
        return link
    there = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
    if there in inside:
        return "#" + html.escape(anchor(there, unquote(label)))
    return html.escape(f"{base}/{there}" + (f"#{label}" if label else ""))


def article(text: str, path: str, inside: set[str], base: str) -> tuple[str, str]:
    "The title and the body of a page: names made unique, links moved, folds open."
    found = ARTICLE.search(text)
    if found is None:
        raise ValueError(f"{path} has no article; build the book anew (make book)")

    def rename(match):
        key, value = match["key"], match["value"]
        if key in ("id", "name"):
            value = anchor(path, value) if key == "id" else value
        elif key == "src":
            local = not re.match(r"[a-z]+:", value)
            value = (
                posixpath.normpath(posixpath.join(posixpath.dirname(path), value))
                if local
                else value
            )
        else:
            value = moved(value, path, inside, base)
        return f'{key}="{value}"'

    def reopen(tag):
        made = NAMES.sub(rename, tag[0])
        made = made.replace("url(#", f"url(#{anchor(path)}")
        return re.sub(r"^<details\b(?![^>]*\sopen)", "<details open", made)

    body = TAG.sub(reopen, DROPPED.sub("", found[1]))
    title = TITLE.search(body)
    return re.sub(r"<[^>]+>", "", title[1]).strip() if title else path, body


def read(site: Path, pages: list[tuple[str, str]], base: str) -> list[Chapter]:
    "The chapters of the book."
    inside, chapters, last = {f"{page}.html" for page, _ in pages}, [], ""
    for page, part in pages:
        path = f"{page}.html"
        title, body = article((site / path).read_text(encoding="utf-8"), path, inside, base)
        chapters.append(Chapter(path, title, body, part if part != last else ""))
        last = part
    return chapters


def styles(site: Path, path: str) -> str:
    "The style sheets of a page, as a page at the top of the site links to them."
    text = (site / path).read_text(encoding="utf-8")
    up = posixpath.dirname(path)

    def top(match):
        return f'href="{posixpath.normpath(posixpath.join(up, match[1]))}"'

    return "\n".join(re.sub(r'href="([^"]*)"', top, link) for link in STYLE.findall(text))


def front(chapters: list[Chapter], title: str, lines: list[str], places: dict[str, int]) -> str:
    "The title page and the contents; a chapter that has no place yet has room for one."
    said = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    rows = []
    for chapter in chapters:
        if chapter.part:
            rows.append(f'<p class="part">{html.escape(chapter.part)}</p>')
        place = places.get(chapter.path, "")
        rows.append(
            f'<p class="entry"><a href="#{anchor(chapter.path)}">{chapter.title}</a>'
            f'<span class="place">{place}</span></p>'
        )
    return (
        f'<section class="title-page"><h1>{html.escape(title)}</h1>{said}</section>'
        f'<nav class="book-contents"><h1>Contents</h1>{"".join(rows)}</nav>'
    )


def split(chapters: list[Chapter], volumes: int) -> list[list[Chapter]]:
    "The chapters in order, in volumes of about equal length."
    ends = list(accumulate(len(one.body) for one in chapters))
    found = [[] for _ in range(volumes)]
    for chapter, end in zip(chapters, ends, strict=True):
        found[min(volumes - 1, volumes * (end - len(chapter.body)) // max(1, ends[-1]))].append(
            chapter
        )
    return [volume for volume in found if volume]


def bind(volumes: list[list[Chapter]], opening: str) -> list[str]:
    """What is printed of each volume; the first has the title and the contents.

    Chromium names the places in a volume that a link of that volume leads to. So those that are
    asked for from elsewhere get a link of no size.
    """
    home = {anchor(one.path).removesuffix("--"): n for n, v in enumerate(volumes) for one in v}
    asked: list[set[str]] = [set() for _ in volumes]

    def leads(match, here):
        there = home.get(html.unescape(match[1]).split("--")[0], here)
        asked[there].add(match[1])
        return match[0] if there == here else f'href="{BESIDE}{match[1]}"'

    bodies = [
        (opening if n == 0 else "")
        + "".join(
            f'<article class="bd-article" id="{anchor(v.path)}">{v.body}</article>' for v in volume
        )
        for n, volume in enumerate(volumes)
    ]
    bodies = [
        re.sub(r'(?<=\s)href="#([^"]*)"', functools.partial(leads, here=n), body)
        for n, body in enumerate(bodies)
    ]
    starts = [{anchor(one.path) for one in volume} for volume in volumes]
    marks = [
        "".join(f'<a href="#{to}">.</a>' for to in sorted(a | b)) for a, b in zip(asked, starts)
    ]
    return [f'<div class="asked">{m}</div>{body}' for m, body in zip(marks, bodies, strict=True)]


def document(head: str, inside: str, classes: str = "") -> str:
    "A page at the top of the site."
    style = (ROOT / "book/print.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html><html lang="en" data-theme="light" data-mode="light"><head>'
        f'<meta charset="utf-8"><title>book</title>{head}<style>{style}</style></head>'
        f'<body class="{classes}"><div class="bd-content">{inside}</div></body></html>'
    )


class Server(http.server.SimpleHTTPRequestHandler):
    "The site, and the pages to be printed, which are no files."

    def __init__(self, *args, pages, **how):
        self.pages = pages
        super().__init__(*args, **how)

    def log_message(self, *what):
        pass

    def do_GET(self):
        if self.path not in self.pages:
            return super().do_GET()
        made = self.pages[self.path].encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(made)))
        self.end_headers()
        self.wfile.write(made)


@contextlib.contextmanager
def served(site: Path, pages: dict[str, str]):
    "The address of the site and of `pages`."
    handler = functools.partial(Server, directory=site, pages=pages)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


FIT = """() => {
    const boxes = ".bd-article :is(table, .katex-display, img, svg[viewBox], .text_html > *)";
    const width = document.querySelector(".bd-content").clientWidth;
    const todo = [];
    for (const box of document.querySelectorAll(boxes)) {
        if (box.parentElement.closest("table, svg")) continue;
        const room = box.parentElement.clientWidth || width;
        const [wide, high] = [Math.max(box.scrollWidth || 0, box.getBoundingClientRect().width),
            box.matches("img, svg") ? box.getBoundingClientRect().height : 0];
        const scale = Math.min(room / wide, 900 / (high || 1));
        if (scale < 0.995) todo.push([box, scale]);
    }
    for (const [box, scale] of todo) box.style.zoom = 0.99 * scale;
    return document.fonts.ready.then(() => todo.length);
}"""


def print_page(browser, address: str) -> bytes:
    "A page as Chromium prints it."
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    try:
        page.set_default_timeout(600_000)
        page.emulate_media(media="print", color_scheme="light")
        page.goto(address, wait_until="load")
        page.evaluate("document.fonts.ready.then(() => true)")
        page.evaluate(FIT)
        return page.pdf(format="A4", margin=MARGINS, print_background=True)
    finally:
        page.close()


def print_all(chromium: str, addresses: list[str]) -> list[PdfReader]:
    "The printed pages, each made by a browser of its own, at the same time."
    from playwright.sync_api import sync_playwright

    def one(address):
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            return PdfReader(io.BytesIO(print_page(browser, address)))

    with ThreadPoolExecutor(len(addresses)) as pool:
        return list(pool.map(one, addresses))


def join(volumes: list[PdfReader]) -> PdfWriter:
    "One book of all volumes. Links between them lead to their places; those of no size are gone."
    writer = PdfWriter(clone_from=volumes[0])
    places = writer.root_object["/Dests"]
    firsts = [0]
    for volume in volumes[1:]:
        first = len(writer.pages)
        firsts.append(first)
        writer.append_pages_from_reader(volume)
        pairs = zip(volume.pages, list(writer.pages)[first:], strict=True)
        moved_to = {a.indirect_reference.idnum: b.indirect_reference for a, b in pairs}
        for name, (page, *where) in volume.root_object["/Dests"].items():
            places[NameObject(name)] = ArrayObject([moved_to[page.idnum], *where])
    for number, page in enumerate(writer.pages):
        links = [link.get_object() for link in page.get("/Annots", [])]
        if number in firsts:  # the links of no size
            links = [one for one in links if one["/Rect"][2] - one["/Rect"][0] > 1.5]
            page[NameObject("/Annots")] = ArrayObject(map(writer._add_object, links))
        for link in links:
            to = link.get("/A", {}).get("/URI", "")
            if to.startswith(BESIDE):
                link[NameObject("/Dest")] = NameObject("/" + unquote(to.removeprefix(BESIDE)))
                del link["/A"]
    return writer


def number_pages(writer: PdfWriter) -> None:
    "A number at the foot of each page, in one of the fonts that every reader has."
    font = DictionaryObject({
        NameObject(key): NameObject(value)
        for key, value in (("/Type", "/Font"), ("/Subtype", "/Type1"), ("/BaseFont", "/Helvetica"))
    })  # fmt: skip
    font = writer._add_object(font)
    before = DecodedStreamObject()
    before.set_data(b"q\n")
    before = writer._add_object(before)
    for number, page in enumerate(writer.pages, 1):
        left = float(page.mediabox.width) / 2 - 2.2 * len(str(number))  # half of 8 points' digits
        after = DecodedStreamObject()
        after.set_data(f"\nQ q 0.27 g BT /Number 8 Tf {left:.1f} 22 Td ({number}) Tj ET Q".encode())
        drawn = page["/Contents"]
        drawn = (
            drawn if isinstance(drawn, ArrayObject) else ArrayObject([page.raw_get("/Contents")])
        )
        page[NameObject("/Contents")] = ArrayObject([before, *drawn, writer._add_object(after)])
        fonts = page["/Resources"].setdefault(NameObject("/Font"), DictionaryObject())
        fonts.get_object()[NameObject("/Number")] = font


def find_places(book: PdfWriter, paths: list[str]) -> dict[str, int]:
    "The page that each chapter begins on, from 1: where the links of the contents lead."
    named = book.root_object["/Dests"]
    numbers = {page.indirect_reference.idnum: place for place, page in enumerate(book.pages, 1)}
    places = {}
    for path in paths:
        found = named.get(f"/{anchor(path)}")
        if found is None:
            raise ValueError(f"Chromium printed no place for {path}; is it the system's Chromium?")
        places[path] = numbers[found[0].indirect_reference.idnum]
    return places


def make(
    site: Path,
    target: Path,
    chromium: str,
    first_pass: bool = False,
    root: Path = ROOT,
    volumes: int | None = None,  # printed at the same time; one for each core unless given
) -> None:
    "Write the book to `target`."
    known = settings(root)
    base = known["doc_host"] + known["doc_baseurl"]
    name = "The first pass" if first_pass else "The whole book"
    chapters = read(site, contents(root, first_pass), base)
    title, lines = known["title"], [known["description"], name, f"Version {known['version']}", base]
    head = (
        styles(site, chapters[-1].path)
        + '<link rel="stylesheet" href="_static/katex/katex.min.css">'
    )
    opening = functools.partial(front, chapters, title, lines)
    bound = bind(split(chapters, volumes or min(4, os.cpu_count() or 1)), opening({}))
    pages = {f"/volume-{n}": document(head, body) for n, body in enumerate(bound)}
    with served(site, pages) as server:
        book = join(print_all(chromium, [server + path for path in pages]))
        places = find_places(book, [one.path for one in chapters])
        pages["/numbers-to-print"] = document(head, opening(places), "numbers-alone")
        (numbers,) = print_all(chromium, [f"{server}/numbers-to-print"])
    write(book, numbers, chapters, places, title, target)


def write(writer, numbers, chapters, places, title, target) -> None:
    "The book with the numbers on its contents and its pages, and an outline; whole, or not at all."
    for number, page in zip(range(1, len(numbers.pages)), numbers.pages[1:]):
        writer.pages[number].merge_page(page)
    number_pages(writer)
    part = None
    for chapter in chapters:
        if chapter.part:
            part = writer.add_outline_item(
                title=chapter.part, page_number=places[chapter.path] - 1, fit=Fit.fit()
            )
        name = html.unescape(chapter.title)
        writer.add_outline_item(
            title=name, page_number=places[chapter.path] - 1, parent=part, fit=Fit.fit()
        )
    writer.add_metadata({"/Title": title})
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_suffix(".part")
    with half.open("wb") as file:
        writer.write(file)
    half.replace(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("site", type=Path, help="the built site, _build/html")
    parser.add_argument("target", type=Path, help="the file to write")
    parser.add_argument("--first-pass", action="store_true", help="its chapters alone")
    given = parser.parse_args()
    if not (given.site / "index.html").is_file():
        parser.error(f"{given.site} is no built site; run make book first")
    found = find_chromium()
    if found is None:
        parser.error("there is no Chromium; install it, or name it in CHROMIUM")
    make(given.site.resolve(), given.target, found, given.first_pass)


if __name__ == "__main__":
    main()
