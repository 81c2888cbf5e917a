"""Every page of the built site, on a desk and on a phone: nothing breaks, all is read and found.

`BOOK_HTML` names the folder of the site. Each page is loaded twice, wide light and narrow dark; the
slow tests load it wide dark and narrow light, too.
"""

import contextlib
import functools
import gzip
import html.parser
import http.server
import importlib.util
import os
import re
import statistics
import struct
import threading
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

import cards
import pytest
import yaml
from notebooks import book as what_roles_say

ROOT = Path(__file__).parents[2]
SITE = Path(os.environ.get("BOOK_HTML", "")).resolve() if os.environ.get("BOOK_HTML") else None
pytestmark = pytest.mark.skipif(SITE is None, reason="BOOK_HTML names no built site (make book)")

FILES = (str(path.relative_to(SITE)) for path in SITE.rglob("*.html")) if SITE else ()
PAGES = sorted(path for path in FILES if not path.startswith("_static/"))
READ = [page for page in PAGES if page.startswith(("book/", "nbs/"))]
SOURCES = [
    page for page in PAGES if page.startswith("_modules/")
]  # all made alike: one is looked at
LOADED = [page for page in PAGES if page not in ["index.html", *SOURCES[1:]]]  # that one leads on
WHOLE = [  # axe looks at all of these, light and dark; of the others at the article, dark
    *("404.html", "search.html", "book/intro.html", "book/tree.html", "book/glossary.html"),
    *("nbs/attention/03_attend.html", "nbs/results/03_gpt_to_llama.html"),
]
DESK, PHONE = ({"viewport": {"width": w, "height": h}} for w, h in ((1280, 800), (390, 844)))
VIEWS = {
    "wide": {**DESK, "color_scheme": "light"},
    "narrow": {**PHONE, "color_scheme": "dark"},
    "wide-dark": {**DESK, "color_scheme": "dark"},  # each width and each colour was seen once: slow
    "narrow-light": {**PHONE, "color_scheme": "light"},
}
PRINTED = ("pdf/transformer_lit.pdf", "pdf/first-pass.pdf")  # `make pdf` brings them
PACKED = {".html", ".css", ".js", ".svg", ".json", ".xml", ".txt"}  # a server compresses these
CHAPTER, FIRST = 450_000, 250_000  # bytes, compressed
SOON = 6_000  # ms until all formulas stand, on a slow phone
QUERIES = {
    "√D": "attention/03_attend",
    "KV cache": "attention/06_cache",
    "RoPE": "position/04_rope",
    "GQA": "attention/07_grouped",
    "warm-up": "training/03_schedule",
    "DeepNorm": "block/06_wiring",
    "top-p": "inference/01_sampling",
    "positional encoding": "position/01_absolute",
    "掩码": "attention/02_masks",
    "label smoothing": "training/01_loss",
    "how to train": "training/04_trainer",
    "what is a token": "text/01_tokenizer",
    "how does attention work?": "attention/01_self_attention",
    "encoder decoder difference": "models/01_transformer",
    "attention weights plot": "models/10_interpret",
    "hugging face": "models/08_hf",
    "quantization": "models/11_quantise",
    "why divide by sqrt d": "attention/03_attend",
    "训练": "training/04_trainer",
    "翻译": "recipes/02_translation",
    "transfomer": "models/01_transformer",  # as fingers write it
    "atention": "attention/01_self_attention",
}
PLACES = {"install": "book/use", "exercise": "book/teachers", "license": "book/use"}
ABSENT = ("Mamba", "LoRA", "RLHF")  # what the family tree says is left out


# --- a server that compresses, as those of the net do --------------------------------------------


@functools.cache
def packed(path):
    "What a server sends of a file."
    return gzip.compress(path.read_bytes()) if path.suffix in PACKED else path.read_bytes()


class Server(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *what):
        pass

    def do_GET(self):
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        if path.suffix in PACKED:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(packed(path))))
        self.end_headers()
        self.wfile.write(packed(path))


@pytest.fixture(scope="module")
def home():
    "The address of the site."
    handler = functools.partial(Server, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def views(browser, home):
    "A page of the browser for each view, which serves all tests, and what it complained of."
    opened = {}

    def inside(url):
        return url.startswith((home, "data:", "blob:"))

    for name, how in VIEWS.items():
        page = browser.new_context(base_url=home, **how).new_page()
        page.set_default_timeout(60_000)
        page.said = said = []
        page.on("pageerror", lambda error, said=said: said.append(f"error: {error}"))
        page.on("console", lambda m, said=said: m.type == "error" and said.append(m.text))
        page.on("response", lambda r, said=said: r.status >= 400 and said.append(r.url))
        page.on("request", lambda r, said=said: inside(r.url) or said.append(f"asked {r.url}"))
        opened[name] = page
    yield opened
    for page in opened.values():
        page.context.close()


@pytest.fixture(
    params=["wide", "narrow", *(pytest.param(v, marks=pytest.mark.slow) for v in [*VIEWS][2:])]
)
def view(request, views):
    page = views[request.param]
    page.said.clear()
    page.name = request.param
    return page


@pytest.fixture
def wide(views):
    views["wide"].said.clear()
    return views["wide"]


@pytest.fixture
def narrow(views):
    views["narrow"].said.clear()
    return views["narrow"]


def visit(page, path):
    page.goto(path, wait_until="load")
    page.evaluate("document.fonts.ready.then(() => true)")


# --- every page ----------------------------------------------------------------------------------

FOUND = r"""(least) => {
    const all = (what) => [...document.querySelectorAll(what)];
    const seen = (box) => box.getClientRects().length;
    const told = (box) => `${box.tagName} ${(box.alt ?? box.textContent).trim().slice(0, 60)}`;
    all("details").forEach((fold) => (fold.open = true));
    // once the page has heard of its folds, and laid out what they hold
    const soon = (act) => setTimeout(() => requestAnimationFrame(() => setTimeout(act)), 50);
    return new Promise((go) => soon(() => {
        const small = (drawing) => {
            const box = drawing.viewBox.baseVal;
            const scale = drawing.getBoundingClientRect().width / box.width;
            const size = (text) => parseFloat(getComputedStyle(text).fontSize) * scale;
            return [...drawing.querySelectorAll("text")].some((text) => size(text) < least - 0.05);
        };
        const over = (box) => box.scrollWidth > box.clientWidth + 1;
        const scrolls = (box) => /auto|scroll/.test(getComputedStyle(box).overflowX) && over(box);
        const scripts = all("script[src]").map((script) => script.src);
        go({
            overflow: over(document.documentElement) ? [document.documentElement.scrollWidth] : [],
            formulas: all(".bd-article .math").filter((math) => !math.querySelector(".katex")
                || math.querySelector(".katex-error")).map(told),
            cut: all(".bd-article .katex-display").filter((box) => seen(box)
                && box.querySelector(".katex-html > *").getBoundingClientRect().left
                < box.parentElement.getBoundingClientRect().left - 1).map(told),
            // lines that are aligned stay whole; all else breaks
            wide: all(".bd-article .katex-display").filter((box) => seen(box) && over(box)
                && !box.textContent.includes("\\begin")).map(told),
            code: all(".bd-article pre").filter((pre) => seen(pre) && over(pre)).map(told),
            images: all(".bd-article img").filter((image) => image.alt.trim().length < 20
                || !image.complete || !image.naturalWidth).map(told),
            labels: all(".bd-article svg[viewBox]").filter((drawing) => seen(drawing)
                && small(drawing)).map(told),
            drawings: all(".bd-article svg.drawing").filter((drawing) => seen(drawing)
                && drawing.getBoundingClientRect().width
                < parseFloat(drawing.style.getPropertyValue("--least")) - 1).map(told),
            cues: all(".bd-article *").filter((box) => seen(box) && scrolls(box)
                && !box.closest(".more-right, .widget-scroll, .katex")).map(told),
            twice: scripts.filter((script, i) => scripts.indexOf(script) !== i),
            loaded: performance.getEntriesByType("resource").map((entry) => entry.name),
        });
    }));
}"""


def weight(page, loaded):
    "What a page and all that it loaded weigh, compressed."
    paths = {page, *(unquote(urlsplit(name).path).lstrip("/") for name in loaded)}
    return sum(len(packed(SITE / path)) for path in paths if (SITE / path).is_file())


@pytest.mark.parametrize("path", LOADED)
def test_a_page_works_and_can_be_read(view, path, axe):
    visit(view, path)
    found = view.evaluate(FOUND, 9)
    assert not view.said
    loaded = found.pop("loaded")
    if view.name.startswith("wide"):
        del found["labels"], found["drawings"], found["cues"]  # there is room
        if path.startswith("nbs/"):
            assert weight(path, loaded) <= CHAPTER
    else:
        del found["code"]  # it may scroll, with a cue
    if not path.startswith(("book/", "nbs/")):
        del found["images"]  # the sources of the package and the indices have none of ours
    assert found == {what: [] for what in found}
    if axe and path in WHOLE:
        assert not barriers(view, axe)


@pytest.mark.slow  # eight seconds a page
@pytest.mark.parametrize("path", READ)
def test_an_article_has_no_barrier(narrow, path, axe):
    if axe is None:
        pytest.skip("axe-playwright-python is not installed: the pages were not checked with axe")
    visit(narrow, path)
    assert not barriers(narrow, axe, "article")


@pytest.fixture(scope="module")
def axe():
    "The checker of accessibility; None where it is not installed."
    if found := importlib.util.find_spec("axe_playwright_python"):
        return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")
    if os.environ.get("CI"):
        pytest.fail("axe-playwright-python is not installed; make setup brings it")
    return None


# a fold that was opened fades in for 0.3 s, and what is half transparent has little contrast
AT_REST = "Promise.all(document.getAnimations().map((one) => one.finished)).then(() => true)"


def barriers(page, axe, where="html"):
    "What axe calls serious or critical in a part of the page, with the first place of each."
    page.evaluate(axe + "; undefined")
    page.evaluate(AT_REST)
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
    how = {"resultTypes": ["violations"], "runOnly": rules, "preload": False}
    part = {"include": [where], "exclude": [".katex"]}  # what a reader hears of these is MathML
    found = page.evaluate("([part, how]) => axe.run(part, how)", [part, how])["violations"]
    grave = (one for one in found if one["impact"] in ("serious", "critical"))
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in grave]


def test_accessibility_was_looked_at(axe):
    if axe is None:
        pytest.skip("axe-playwright-python is not installed: the pages were not checked with axe")
    assert "axe.run" in axe or "axe v" in axe


# --- weight and time -----------------------------------------------------------------------------


def test_the_first_page_is_light_and_has_nothing_of_formulas(wide):
    visit(wide, "book/intro.html")
    loaded = wide.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert weight("book/intro.html", loaded) <= FIRST
    assert not [name for name in loaded if "katex" in name or "/live/" in name or "search" in name]


STAND = """() => {
    const loaded = performance.getEntriesByType("resource");
    const fonts = loaded.filter((one) => one.name.includes("/katex/"));
    const [page] = performance.getEntriesByType("navigation");
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    return Math.max(page.domInteractive, paint.startTime, ...fonts.map((one) => one.responseEnd));
}"""  # when all is parsed and painted, and its fonts are there


@contextlib.contextmanager
def slow_phone(browser):
    "A page on a line of 1.6 Mbit/s and a processor four times as slow, and how to ask its browser."
    context = browser.new_context(**VIEWS["narrow"])
    try:
        page = context.new_page()
        page.set_default_timeout(60_000)
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        line = {"downloadThroughput": 1.6e6 / 8, "uploadThroughput": 0.75e6 / 8, "latency": 150}
        session.send("Network.emulateNetworkConditions", {"offline": False, **line})
        session.send("Emulation.setCPUThrottlingRate", {"rate": 4})
        yield page, session.send
    finally:
        context.close()


@pytest.mark.slow  # a time says nothing on a machine that has other work
@pytest.mark.parametrize("path", ["attention/03_attend", "start/02_primer", "position/04_rope"])
def test_formulas_stand_soon_on_a_slow_phone(browser, home, path):
    with slow_phone(browser) as (page, _):
        visit(page, home + f"nbs/{path}.html")
        assert page.locator(".bd-article .math .katex").count()
        assert 0 < page.evaluate(STAND) <= SOON


QUICK = [  # the first page, the first chapter and ten others, the fattest among them
    *("book/intro", "nbs/start/00_ten_minutes", "nbs/text/03_word_vectors"),
    *("nbs/attention/01_self_attention", "nbs/attention/03_attend", "nbs/attention/05_multihead"),
    *(
        "nbs/position/04_rope",
        "nbs/block/01_norm",
        "nbs/models/01_transformer",
        "nbs/models/03_gpt",
    ),
    *("nbs/models/04_llama", "nbs/recipes/02_translation"),
]
PAINT, BLOCKED = 2_500, 300  # ms
WATCH = """(() => {
    const seen = (window.seen = { paint: 0, blocked: 0 });
    const watch = (type, act) => new PerformanceObserver(
        (list) => list.getEntries().forEach(act)).observe({ type, buffered: true });
    watch("largest-contentful-paint", ({ startTime }) => (seen.paint = startTime));
    watch("longtask", ({ duration }) => (seen.blocked += duration - 50));
})();"""


@pytest.mark.slow  # a time says nothing on a machine that has other work
@pytest.mark.parametrize("path", QUICK)
def test_a_page_is_soon_there_on_a_slow_phone(browser, home, path, capsys):
    with slow_phone(browser) as (page, send):
        send("Performance.enable")
        page.add_init_script(WATCH)
        visit(page, f"{home}{path}.html")
        page.wait_for_timeout(2_000)
        seen = page.evaluate("seen")
        loaded = page.evaluate(
            "performance.getEntriesByType('resource').map((entry) => entry.name)"
        )
        metrics = {one["name"]: one["value"] for one in send("Performance.getMetrics")["metrics"]}
    with capsys.disabled():
        kilobytes = weight(f"{path}.html", loaded) / 1000
        print(f"\n{path}: paint {seen['paint']:.0f} ms, blocked {seen['blocked']:.0f} ms,", end="")
        print(f" {metrics['LayoutCount']:.0f} layouts, {kilobytes:.0f} kB")
    assert 0 < seen["paint"] <= PAINT and seen["blocked"] <= BLOCKED


# --- search --------------------------------------------------------------------------------------


def searched(page, query):
    "Search for it; give the addresses of the first three pages that were found."
    if "/search.html" not in page.url:  # one visit serves all that is looked for
        page.goto("search.html")
    page.fill(".search-page input[name=q]", query)
    page.press(".search-page input[name=q]", "Enter")
    page.wait_for_function("(q) => document.documentElement.dataset.searched === q", arg=query)
    links = "(links) => links.map((link) => link.pathname.slice(1))"
    return page.eval_on_selector_all("#search-results > li > a:first-child", links)[:3]


def test_the_right_page_is_among_the_first_three(wide):
    "A chapter, or the page of what no chapter is about; excerpts are of the text alone."
    pages = {query: f"nbs/{chapter}" for query, chapter in QUERIES.items()} | PLACES
    pages |= dict.fromkeys(ABSENT, "book/tree")
    missed = {}
    for query, page in pages.items():
        found = searched(wide, query)
        if f"{page}.html" not in found:
            missed[query] = found
        excerpts = wide.locator("#search-results p").all_inner_texts()
        assert excerpts, query
        noise = ("Show code", "Link to this", "minutes · ")
        assert not any(word in text for word in noise for text in excerpts), query
    assert not missed
    assert not wide.said


def test_a_word_that_a_page_lists_leads_to_it_first(wide):
    listed = yaml.safe_load((ROOT / "book/search.yml").read_text(encoding="utf-8"))
    pages = {name: cards.page(path) for name, path in cards.chapters().items()}
    led = {word: pages.get(name, name) for name, words in listed.items() for word in words}
    first = {word: searched(wide, word)[:1] for word in led}
    missed = {word: first[word] for word, page in led.items() if first[word] != [f"{page}.html"]}
    assert not missed


def test_the_count_of_a_search_is_that_of_all_pages(wide):
    searched(wide, "attention")
    said, shown = wide.inner_text("#search-count"), wide.locator("#search-results > li").count()
    assert shown == 20 and int(said.split()[0]) > 20 and "the first 20" in said


def test_a_search_from_any_page_that_finds_nothing_says_so(view):
    visit(view, "nbs/attention/02_masks.html")
    view.keyboard.press("Control+k")
    view.keyboard.type("zzyzx")
    view.keyboard.press("Enter")
    view.wait_for_function("document.documentElement.dataset.searched === 'zzyzx'")
    assert "Nothing found" in view.inner_text("#search-count")
    assert view.input_value(".search-page input[name=q]") == "zzyzx"


def test_a_hit_leads_to_its_section(wide):
    wide.goto("search.html?q=KV%20cache")
    wide.wait_for_function("document.documentElement.dataset.searched === 'KV cache'")
    for link in wide.eval_on_selector_all(".search-section", "(all) => all.map((a) => a.href)"):
        page, _, anchor = link.partition("#")
        text = (SITE / urlsplit(page).path.lstrip("/")).read_text(encoding="utf-8")
        assert f'id="{anchor}"' in text


# --- keys, notes, contents, paper ----------------------------------------------------------------


def test_arrow_keys_turn_the_page_but_not_within_a_field(wide):
    visit(wide, "nbs/attention/02_masks.html")
    held = wide.locator(".bd-article pre:visible").first
    held.evaluate("(pre) => { pre.tabIndex = 0; pre.focus(); }")
    wide.keyboard.press("ArrowRight")
    assert wide.url.endswith("nbs/attention/02_masks.html")
    wide.evaluate("document.activeElement.blur()")
    with wide.expect_navigation():
        wide.keyboard.press("ArrowRight")
    assert wide.url.endswith("nbs/attention/03_attend.html")
    with wide.expect_navigation():
        wide.keyboard.press("ArrowLeft")
    assert wide.url.endswith("nbs/attention/02_masks.html")


@pytest.mark.parametrize("kind", ["glossary", "bibliography"])
def test_a_link_to_a_term_or_a_paper_has_a_note(wide, kind):
    visit(wide, "nbs/attention/03_attend.html")
    link = wide.locator(f".bd-article section a[href*='{kind}.html#']").first
    link.scroll_into_view_if_needed()
    wide.wait_for_timeout(100)  # a scroll closes a note
    link.focus()
    note = wide.locator("#link-note")
    assert len(note.inner_text()) > 30
    box = note.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= VIEWS["wide"]["viewport"]["width"]
    wide.keyboard.press("Escape")
    assert not note.count()
    link.hover()
    assert len(note.inner_text()) > 30


@pytest.mark.parametrize(
    ("page", "link", "said"),
    [
        ("nbs/attention/03_attend.html", "a[href^='#equation-']", ".katex-display"),
        ("nbs/training/01_loss.html", "a[href*='.html#equation-']", ".katex-display"),
        ("nbs/attention/05_multihead.html", "a[href^='#fig-']", "figcaption"),
    ],
)
def test_a_link_to_a_formula_or_a_figure_shows_it(wide, page, link, said):
    visit(wide, page)
    link = wide.locator(f".bd-article section {link}:not(.headerlink):visible").first
    link.scroll_into_view_if_needed()
    wide.wait_for_timeout(100)  # a scroll closes a note
    link.hover()
    note = wide.locator("#link-note")
    note.locator(said).wait_for()
    box = note.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= VIEWS["wide"]["viewport"]["width"]
    ids = wide.eval_on_selector_all("[id]", "(all) => all.map((one) => one.id)")
    assert len(ids) == len(set(ids)) or not note.locator("[id]").count()
    assert not wide.said


@pytest.mark.parametrize("link", ["a[href*='glossary.html#']", "a[href*='#equation-']"])
def test_a_finger_sees_the_note_first_and_then_follows(browser, home, link):
    size = {"width": 390, "height": 844}
    context = browser.new_context(base_url=home, viewport=size, has_touch=True, is_mobile=True)
    page = context.new_page()
    visit(page, "nbs/training/01_loss.html")
    link = page.locator(f".bd-article section {link}:not(.headerlink):visible").first
    link.scroll_into_view_if_needed()
    page.wait_for_timeout(100)  # a scroll closes a note
    link.tap()
    assert len(page.locator("#link-note").inner_text()) > 10
    here, there = page.url, link.evaluate("(it) => it.href")
    page.touchscreen.tap(3, 400)  # beside the text
    assert not page.locator("#link-note").count()
    link.tap()
    page.locator("#link-note").wait_for()
    assert page.url == here
    link.tap()
    page.wait_for_url(there)
    context.close()


def test_the_contents_fold_by_part_and_remember_where_one_was(view):
    visit(view, "book/intro.html")
    view.evaluate("localStorage.clear()")
    visit(view, "nbs/attention/05_multihead.html")
    assert view.locator(".part[open] .caption-text").evaluate_all(
        "(open) => open.map((part) => part.textContent)"
    ) == ["3 · Attention"]
    here = view.locator(".part a.current")
    assert not here.evaluate("(entry) => entry.classList.contains('read')")
    view.locator(".prev-next-area").scroll_into_view_if_needed()
    view.locator(".part a.current.read").wait_for(state="attached")
    visit(view, "book/intro.html")
    way_back = view.locator(".continue a")
    assert way_back.inner_text().startswith("3.5 Multi-head")
    assert way_back.evaluate("(link) => link.pathname").endswith("nbs/attention/05_multihead.html")
    assert view.locator(".part a.read").count() == 1
    on_the_map = view.locator(".transformer-map a.read")
    assert "attention/05_multihead" in on_the_map.get_attribute("href")
    assert on_the_map.get_attribute("aria-description") == "read"
    view.evaluate("localStorage.clear()")


def test_the_entry_of_the_page_is_in_sight(wide):
    for page in ("nbs/models/14_decoders.html", "book/glossary.html", "nbs/start/01_notation.html"):
        visit(wide, page)
        wide.wait_for_timeout(100)
        at, side = (
            wide.locator(where).bounding_box()
            for where in (".part a.current", ".bd-sidebar-primary")
        )
        assert side["y"] <= at["y"] and at["y"] + at["height"] <= side["y"] + side["height"], page


def test_to_measure_a_page_lays_it_out_a_few_times(wide):
    "What a page's own parts ask for; how often the browser draws what arrives is its own affair."
    counting = wide.context.new_cdp_session(wide)
    counting.send("Performance.enable")

    def layouts():
        found = counting.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in found if one["name"] == "LayoutCount")

    for page in ("nbs/attention/03_attend.html", "nbs/text/03_word_vectors.html"):
        visit(wide, page)
        wide.wait_for_timeout(500)
        before = layouts()
        wide.evaluate("dispatchEvent(new Event('resize'))")
        wide.wait_for_timeout(500)
        assert layouts() - before <= 10, page


def test_the_contents_of_a_page_are_in_view_or_open_where_they_have_no_column(wide):
    visit(wide, "nbs/attention/03_attend.html")
    assert wide.locator("div.bd-sidebar-secondary .page-toc a").first.is_visible()
    assert not wide.locator(".secondary-toggle").is_visible()
    wide.set_viewport_size({"width": 1240, "height": 800})
    try:
        wide.click(".secondary-toggle")
        assert wide.locator("dialog.bd-sidebar-secondary .page-toc a").first.is_visible()
        wide.keyboard.press("Escape")
    finally:
        wide.set_viewport_size(DESK["viewport"])


LENGTHS = """() => {
    const range = document.createRange();
    const full = [];
    for (const text of document.querySelectorAll(".bd-article section > p")) {
        if (!text.getClientRects().length || text.querySelector(".katex")) continue;
        const lines = new Map();
        const nodes = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
        for (let node; (node = nodes.nextNode());) for (let i = 0; i < node.length; i++) {
            range.setStart(node, i);
            range.setEnd(node, i + 1);
            const line = Math.round(range.getBoundingClientRect().bottom / 10);
            lines.set(line, (lines.get(line) ?? 0) + 1);
        }
        full.push(...[...lines.values()].slice(0, -1));  // the last one ends where it ends
    }
    return full;
}"""


def test_a_line_of_text_has_65_to_75_letters_and_all_ends_at_one_edge(wide):
    visit(wide, "nbs/attention/03_attend.html")
    assert 65 <= statistics.mean(wide.evaluate(LENGTHS)) <= 75
    ends = wide.eval_on_selector_all(
        ".bd-article > section > section > :is(p, .math, .cell, details, .widget, .exercise-card)",
        "(all) => all.filter((one) => one.getClientRects().length)"
        ".map((one) => Math.round(one.getBoundingClientRect().right))",
    )
    assert len(ends) > 20 and len(set(ends)) == 1


def test_headings_are_of_one_loaded_weight_and_each_is_smaller_than_the_one_above(wide):
    visit(wide, "nbs/attention/03_attend.html")
    style = (
        "(one) => [getComputedStyle(one).fontWeight, parseFloat(getComputedStyle(one).fontSize)]"
    )
    found = [wide.eval_on_selector(f".bd-article {h}", style) for h in ("h1", "h2", "h3")]
    sizes = [size for _, size in found]
    assert {weight for weight, _ in found} == {"700"}
    assert sizes == sorted(set(sizes), reverse=True)


def test_an_exercise_is_one_card(wide):
    visit(wide, "nbs/attention/03_attend.html")
    for card in wide.locator(".exercise-card").all():
        kind = card.locator(".exercise-kind > span").inner_text()
        assert card.locator(":is(h3, h4)").count() == 1
        assert card.locator("details.hint").count() == card.locator("details.solution").count() == 1
        assert card.locator("form.answer").count() == (kind in ("warm-up", "predict"))
    assert wide.locator(".exercise-card").count() == wide.locator(".exercise-kind").count() > 3


def test_what_lies_over_the_page_can_be_left(narrow):
    "The notation by Escape and by a press beside it; the contents by the link that is followed."
    visit(narrow, "nbs/attention/05_multihead.html")
    card, opened = narrow.locator(".notation-card"), narrow.locator(".notation-card[open]")
    text, tab = narrow.locator(".bd-article section").first.bounding_box(), card.bounding_box()
    assert text["x"] + text["width"] <= tab["x"]  # closed, it lies in the margin
    for leave in (lambda: narrow.keyboard.press("Escape"), lambda: narrow.click(".bd-article h1")):
        card.locator("summary").click()
        assert opened.count() == 1
        leave()
        assert opened.count() == 0
    narrow.click(".secondary-toggle")
    link = narrow.locator("dialog[open] a[href^='#']:visible").nth(2)
    target = link.get_attribute("href")
    link.click()
    assert narrow.locator("dialog[open]").count() == 0 and narrow.url.endswith(target)


# --- the first pass -------------------------------------------------------------------------------

FIRST_PASS = [
    f"{cards.page(path)}.html"
    for path in cards.chapters().values()
    if cards.card(path)["pass"] == 1
]
STRETCH = """() => {
    const what = ":is(svg, img, table, .widget, .exercise-card)";
    const rests = [...document.querySelectorAll(`.bd-article ${what}`)]
        .filter((one) => one.checkVisibility())
        .map((one) => one.getBoundingClientRect())
        .filter((box) => box.width > 30 && box.height > 30)
        .toSorted((one, other) => one.top - other.top);
    let [end, most] = [document.querySelector(".bd-article").getBoundingClientRect().top, 0];
    for (const { top, bottom } of rests) {
        most = Math.max(most, top - end);
        end = Math.max(end, bottom);
    }
    return most / innerHeight;
}"""  # screens without something to look at or to do; what is folded counts for nothing


def test_no_chapter_of_the_first_pass_has_four_screens_of_words_alone(wide):
    screens = {}
    for page in FIRST_PASS:
        visit(wide, page)
        screens[page] = wide.evaluate(STRETCH)
    assert len(screens) > 25 and max(screens.values()) > 2  # it does measure
    assert {page: most for page, most in screens.items() if most > 4} == {}


CODE = """() => {
    const all = (where, what) => [...where.querySelectorAll(what)];
    const open = all(document, ".bd-article pre").filter((pre) => pre.getClientRects().length);
    const height = (line) => line.getBoundingClientRect().height;
    const row = (line) => parseFloat(getComputedStyle(line).lineHeight);
    const lines = open.flatMap((pre) => all(pre, ".ln"));
    const broken = lines.filter((line) => height(line) > 1.5 * row(line));
    const marked = (line) => getComputedStyle(line).backgroundImage.startsWith("url(");
    return {
        blocks: open.length,
        scroll: open.filter((pre) => pre.scrollWidth > pre.clientWidth + 1).length,
        bare: open.filter((pre) => !pre.querySelector(".ln")).length,
        broken: broken.length,
        marked: broken.filter(marked).length,
    };
}"""


def test_code_of_the_first_pass_fits_a_phone_or_breaks_with_a_mark(narrow):
    found = Counter()
    for page in FIRST_PASS:
        visit(narrow, page)
        found.update(narrow.evaluate(CODE))
    assert found["blocks"] > 300 and found["broken"] > 300
    assert found["scroll"] <= 0.05 * found["blocks"]
    assert found["marked"] == found["broken"] and not found["bare"]


# --- long tables and lists ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "by", "value", "word"),
    [
        ("book/teachers.html", "Kind", "repair", "mask"),
        ("book/teachers.html", "Chapter", "3.2 Masks", ""),
        ("book/clinic.html", "Kind", "◐ half", ""),
        ("book/clinic.html", "Source", "a blog post", "mask"),
        ("book/glossary.html", "", "", "掩码"),
    ],
)
def test_a_long_table_or_list_is_filtered(view, page, by, value, word):
    visit(view, page)
    place = view.locator("[data-widget=filter]")
    place.locator("input[type=search]").wait_for()
    entries = place.locator("tbody tr, dd")
    total = entries.count()
    assert place.locator(".widget-note").inner_text().startswith(f"{total} of {total}")
    if by:
        place.get_by_label(by).select_option(value)
    place.get_by_label("With the word").fill(word)
    seen = "(all) => all.filter((one) => one.getClientRects().length).map((one) => one.innerText)"
    shown = entries.evaluate_all(seen)
    assert 0 < len(shown) < total
    assert place.locator(".widget-note").inner_text().startswith(f"{len(shown)} of {total}")
    if by:
        assert all(value in text for text in shown)
        assert all(word in text.lower() for text in shown)


def test_the_letters_of_the_glossary_lead_there(wide):
    visit(wide, "book/glossary.html")
    link = wide.locator(".filter-letters a", has_text="K").first
    link.click()
    target = wide.locator(":target")
    assert target.inner_text().upper().startswith("K")


def test_the_table_of_models_scrolls_beside_its_first_column(narrow):
    visit(narrow, "book/tree.html")
    box = narrow.locator(".family-parts")
    assert box.bounding_box()["height"] <= VIEWS["narrow"]["viewport"]["height"]
    box.evaluate("(box) => box.scrollTo(300, 300)")
    side = box.bounding_box()["x"]
    names = box.locator("th[scope=row]").evaluate_all(
        "(all) => all.map((th) => th.getBoundingClientRect().x)"
    )
    assert all(abs(x - side) < 2 for x in names)


def test_nothing_is_cut_on_paper(wide):
    visit(wide, "nbs/attention/03_attend.html")
    wide.emulate_media(media="print")
    wide.set_viewport_size({"width": 718, "height": 1000})  # A4 less its margins
    try:
        cut = "(all) => all.filter((pre) => pre.scrollWidth > pre.clientWidth + 1).length"
        assert wide.eval_on_selector_all(".bd-article pre", cut) == 0
    finally:
        wide.emulate_media(media="screen")
        wide.set_viewport_size(VIEWS["wide"]["viewport"])


def test_paper_is_white_whatever_the_screen_is(wide):
    visit(wide, "nbs/attention/03_attend.html")
    theme = "document.documentElement.dataset.theme"
    wide.evaluate(f"{theme} = 'dark'")
    wide.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert wide.evaluate(theme) == "light"
    wide.evaluate("dispatchEvent(new Event('afterprint'))")
    assert wide.evaluate(theme) == "dark"
    wide.evaluate(f"{theme} = 'light'")


# --- what needs no browser -----------------------------------------------------------------------


class Links(html.parser.HTMLParser):
    "The links and the ids of a page, and its description."

    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.meta = [], set(), {}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids |= {found.get("id"), found.get("name")} - {None}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag == "meta" and found.get("content"):
            self.meta[found.get("name") or found.get("property")] = found["content"]


@pytest.fixture(scope="module")
def parsed():
    return {page: Links((SITE / page).read_text(encoding="utf-8")) for page in PAGES}


def test_no_link_within_the_site_is_dead(parsed):
    dead = []
    for page, here in parsed.items():
        for link in here.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (SITE / page).parent / unquote(parts.path) if parts.path else SITE / page
            name = os.path.relpath(target.resolve(), SITE)
            if name in PRINTED and not (SITE / "pdf").exists():
                continue
            anchor = unquote(parts.fragment)
            known = parsed[name].ids if name in parsed else ()
            if not target.is_file() or (anchor and name in parsed and anchor not in known):
                dead.append((page, link))
    assert not dead


def test_every_page_of_the_book_is_described_and_listed(parsed):
    listed = (SITE / "sitemap.xml").read_text(encoding="utf-8")
    for page in READ:
        meta = parsed[page].meta
        assert len(meta["description"]) > 30, page
        assert meta["og:title"] and meta["og:url"].endswith(page)
        assert f"{meta['og:url']}</loc>" in listed
        site = meta["og:url"].removesuffix(page)
        assert meta["og:image"] == f"{site}_static/card.png"
        assert len(meta["og:image:alt"]) > 20
    card = (SITE / "_static/card.png").read_bytes()
    assert card[:8] == b"\x89PNG\r\n\x1a\n" and len(card) < 60_000
    assert struct.unpack(">II", card[16:24]) == (1200, 630)  # what the sites that show it ask for
    said = Counter(parsed[page].meta["description"] for page in READ)
    assert not [text for text, times in said.items() if times > 1]


def test_the_page_for_a_wrong_address_links_from_the_top(parsed):
    links = parsed["404.html"].links
    assert links
    assert all(link.startswith("https://") for link in links)


def test_no_page_draws_formulas_or_shows_their_source():
    for page in PAGES:
        text = (SITE / page).read_text(encoding="utf-8")
        assert not re.search(r"<script[^>]*katex", text), page
        assert not re.search(
            r'class="math[^>]*>(\s*<span class="eqno">.*?</span>)?\s*\\[(\[]', text
        ), page


def test_chapters_are_numbered_by_part():
    toc = yaml.safe_load((ROOT / "book/_toc.yml").read_text(encoding="utf-8"))
    for place, part in enumerate(toc["parts"], 1):
        number = "A" if part["caption"] == "Appendix" else place
        opening, chapters = "", [chapter["file"] for chapter in part["chapters"]]
        if chapters[0].startswith("book/parts/"):  # the page that opens a part has no number
            opening = chapters.pop(0).removeprefix("book/")  # which is the way from book/clinic
        for count, chapter in enumerate(chapters, 1):
            page = (SITE / f"{chapter}.html").read_text(encoding="utf-8")
            assert f'<span class="section-number">{number}.{count} </span>' in page
            name = re.escape(f"{number} · {part['caption']}")
            assert re.search(rf"<summary [^>]*><span [^>]*>{name}</span></summary>", page)
            link = rf'<a [^>]*href="[^"]*{opening}.html"[^>]*>About this part</a>'
            assert not opening or re.search(link, page)


def test_the_contents_mark_where_one_is():
    mark = 'reference internal" href="#" data-page='
    for page in READ:
        assert (SITE / page).read_text(encoding="utf-8").count(mark) == 1, page


def test_a_copy_has_the_numbers_and_the_places_of_the_site():
    book = what_roles_say(alone=True)
    glossary = (SITE / "book/glossary.html").read_text(encoding="utf-8")
    for label, (page, number) in book.numbers.items():
        text = (SITE / f"{page}.html").read_text(encoding="utf-8")
        equation = rf'id="equation-{label}"[^>]*>\s*<span class="eqno">\({number}\)<'
        figure = rf'<figure [^>]*id="{label}"(?:(?!</figure>).)*caption-number">Fig. {number} <'
        assert re.search(f"{equation}|{figure}", text, re.S), (label, number)
    for term in book.terms:
        anchor = re.search(r"#([^)]+)\)", book.text(f"{{term}}`{term}`", ""))[1]
        assert f'id="{anchor}"' in glossary


API = [page for page in READ if page.startswith("book/api/")]


def test_reference_and_chapters_lead_to_each_other(parsed):
    back = {link for page in API for link in parsed[page].links}
    count = 0
    for page in READ:
        there = [x for x in parsed[page].links if re.search(r"api/\w+\.html#transformer_lit\.", x)]
        if page.startswith("nbs/") and there:
            assert f"../../{page}" in back, page
            count += len(there)
    assert count > 220


def test_the_reference_says_what_parameters_mean_and_nothing_of_objects():
    page = "".join((SITE / page).read_text(encoding="utf-8") for page in API)
    text = re.sub(r"<[^>]+>", "", page)
    assert "True = may attend" in text and text.count("Parameters") > 200
    for noise in (" at 0x", "Define the computation", "str(object=", "Annotated["):
        assert noise not in text, noise


def test_formulas_and_figures_are_numbered_by_chapter():
    for page in READ:
        text = (SITE / page).read_text(encoding="utf-8")
        if found := re.search(r'<h1><span class="section-number">(\S+) </span>', text):
            numbers = re.findall(r'class="(?:eqno">\(|caption-number">Fig\. )([A\d.]+)', text)
            assert all(number.startswith(f"{found[1]}.") for number in numbers), page


def test_the_chinese_names_of_the_glossary_say_their_language():
    text = (SITE / "book/glossary.html").read_text(encoding="utf-8")
    count = int(re.search(r"The (\d+) terms", text)[1])
    assert text.count('lang="zh-Hans"') == count


def test_folds_are_named_by_what_is_in_them():
    for page in READ:
        text = (SITE / page).read_text(encoding="utf-8")
        assert "code cell source" not in text, page
        assert 'admonition-title">Code</p>' not in text, page
    attend = (SITE / "nbs/attention/03_attend.html").read_text(encoding="utf-8")
    assert '<p class="collapsed admonition-title">Imports</p>' in attend
