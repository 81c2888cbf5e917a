"""Every page of the built site, on a desk and on a phone: nothing breaks, all is read and found."""

import html.parser
import posixpath
import re
import struct
from collections import Counter
from itertools import pairwise
from urllib.parse import unquote, urlsplit

import cards
import pytest
import yaml
from built_book import SITE, packed, seen
from notebooks import book as what_roles_say

weekly = pytest.mark.weekly
FILES = (str(path.relative_to(SITE)) for path in SITE.rglob("*.html")) if SITE else ()
PAGES = sorted(path for path in FILES if not path.startswith("_static/"))
READ = [page for page in PAGES if page.startswith(("book/", "nbs/"))]
SOURCES = [page for page in PAGES if page.startswith("_modules/")]  # all made alike: one is loaded
LOADED = [page for page in PAGES if page not in ["index.html", *SOURCES[1:]]]  # that one leads on
FIRST_PASS = [
    f"{cards.page(path)}.html"
    for path in cards.chapters().values()
    if cards.card(path)["pass"] == 1
]
WHOLE = [  # axe looks at all of these, light and dark; of the others at the article, dark
    *("404.html", "search.html", "book/intro.html", "book/tree.html", "book/glossary.html"),
    *("nbs/attention/03_attend.html", "nbs/results/03_gpt_to_llama.html"),
]
PRINTED = ("pdf/transformer_lit.pdf", "pdf/first-pass.pdf")  # `make pdf` brings them
CHAPTER, FIRST = 450_000, 250_000  # bytes, compressed
ATTEND = "nbs/attention/03_attend.html"


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
            figures: all(".bd-article img.figure").filter((figure) => seen(figure)
                && figure.width < Math.min(figure.naturalWidth, 348) - 1).map(told),
            cues: all(".bd-article *").filter((box) => seen(box) && scrolls(box)
                && !box.closest(".more-right, .widget-scroll, .katex, textarea")).map(told),
            twice: scripts.filter((script, i) => scripts.indexOf(script) !== i),
            loaded: performance.getEntriesByType("resource").map((entry) => entry.name),
        });
    }));
}"""


def weight(page, loaded):
    "What a page and all that it loaded weigh, compressed."
    paths = {page, *(unquote(urlsplit(name).path).lstrip("/") for name in loaded)}
    return sum(len(packed(SITE / path)) for path in paths)


DESK, PHONE = (1280, "light"), (390, "dark")
LATER = (360, "light"), (1280, "dark")  # a narrower phone


@pytest.mark.parametrize("path", LOADED)
@pytest.mark.parametrize("views", [(DESK, PHONE), pytest.param(LATER, marks=weekly)], ids="12")
def test_a_page_works_and_can_be_read(wide, path, views, barriers):
    for view in views:
        seen(wide, *view)
        if view == views[0]:
            visit(wide, path)
        found = wide.evaluate(FOUND, 9)
        for _ in range(20 if view[0] < 1280 else 0):  # a busy machine lays out later
            if not (found["overflow"] or found["labels"] or found["cues"]):
                break
            wide.wait_for_timeout(250)
            found = wide.evaluate(FOUND, 9)
        loaded = found.pop("loaded")
        if view[0] == 1280:
            del found["labels"], found["figures"], found["cues"]  # there is room
        else:
            del found["code"]  # it may scroll, with a cue
        if path not in READ:
            del found["images"]  # the sources of the package and the indices have none of ours
        assert found == {what: [] for what in found}, view
        if views == LATER and (path in WHOLE or (path in READ and view == LATER[1])):
            assert not barriers(wide, "html" if path in WHOLE else "article"), view
    if path in READ:
        assert weight(path, loaded) <= (FIRST if path == "book/intro.html" else CHAPTER)


def test_the_first_page_loads_nothing_of_formulas_models_and_search(page):
    visit(page, "book/intro.html")
    assert not [url for url in page.asked if re.search("katex|/live/|/widgets/|search", url)]


# --- search --------------------------------------------------------------------------------------

QUERIES = {
    "√D": "attention/03_attend",
    "RLHF": "assistant/03_reward",
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
LISTED = yaml.safe_load((cards.ROOT / "book/search.yml").read_text(encoding="utf-8"))


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
    pages |= {"Mamba": "book/tree"}  # which it leaves out, as the tree says
    missed = {}
    for query, page in pages.items():
        if f"{page}.html" not in (found := searched(wide, query)):
            missed[query] = found
        excerpts = wide.locator("#search-results p").all_inner_texts()
        assert excerpts and not re.search("Show code|Link to this|minutes · ", str(excerpts)), query
    assert not missed
    searched(wide, "attention")
    said, shown = wide.inner_text("#search-count"), wide.locator("#search-results > li").count()
    assert shown == 20 and int(said.split()[0]) > 20 and "the first 20 are" in said


@weekly
def test_a_word_that_a_page_lists_leads_to_it_first(wide):
    pages = {name: cards.page(path) for name, path in cards.chapters().items()}
    led = {word: pages.get(name, name) for name, words in LISTED.items() for word in words}
    first = {word: searched(wide, word)[:1] for word in led}
    assert {w: first[w] for w, page in led.items() if first[w] != [f"{page}.html"]} == {}


def test_the_field_of_any_page_shows_hits_while_one_types(wide):
    "A name of the package, a sentence of which no page has every word, German; by keyboard."
    visit(wide, "book/use.html")
    wide.keyboard.press("Control+k")
    first = wide.locator("#pst-search-dialog #search-results > li > a:first-child").first
    said = wide.locator("#pst-search-dialog [role=status]")
    for typed, page in (
        ("MultiHeadAttention", "book/api/attention"),
        ("layer norm vs rms norm", "nbs/block/01_norm"),
        ("I want to understand RoPE", "nbs/position/04_rope"),
        ("Aufmerksamkeit", "nbs/attention/01_self_attention"),
        ("what does this symbol mean", "nbs/start/01_notation"),
    ):
        wide.locator("#pst-search-dialog input").fill(typed)
        wide.wait_for_function("(q) => document.documentElement.dataset.searched === q", arg=typed)
        assert f"/{page}.html" in first.get_attribute("href"), typed
        assert re.match(r"\d+ pages?", said.inner_text())
    wide.keyboard.press("ArrowDown")
    assert first.evaluate("(it) => it === document.activeElement")
    wide.keyboard.press("ArrowUp")
    wide.keyboard.press("Enter")
    wide.wait_for_url("**/search.html?q=*")


@weekly
def test_a_search_from_any_page_says_what_it_finds_and_a_hit_leads_to_its_section(narrow):
    visit(narrow, "nbs/attention/02_masks.html")
    narrow.keyboard.press("Control+k")
    narrow.keyboard.type("zzyzx")
    narrow.keyboard.press("Enter")
    narrow.wait_for_function("() => document.documentElement.dataset.searched === 'zzyzx'")
    assert "Nothing found" in narrow.inner_text("#search-count")
    assert narrow.input_value(".search-page input[name=q]") == "zzyzx"
    searched(narrow, "KV cache")
    hits = narrow.eval_on_selector_all(".search-section", "(all) => all.map((a) => a.href)")
    for page, _, anchor in (link.partition("#") for link in hits):
        text = (SITE / urlsplit(page).path.lstrip("/")).read_text(encoding="utf-8")
        assert f'id="{anchor}"' in text
    assert hits


# --- keys, notes, contents -----------------------------------------------------------------------


@weekly
def test_arrow_keys_turn_the_page_but_not_within_a_field(wide):
    visit(wide, "nbs/attention/02_masks.html")
    held = wide.locator(".bd-article pre:visible").first
    held.evaluate("(pre) => { pre.tabIndex = 0; pre.focus(); }")
    wide.keyboard.press("ArrowRight")
    assert wide.url.endswith("nbs/attention/02_masks.html")
    wide.evaluate("document.activeElement.blur()")
    for key, page in (("ArrowRight", "03_attend"), ("ArrowLeft", "02_masks")):
        with wide.expect_navigation():
            wide.keyboard.press(key)
        assert wide.url.endswith(f"nbs/attention/{page}.html")


@pytest.mark.parametrize(
    ("page", "link", "inside"),
    [
        (ATTEND, "a[href*='glossary.html#']", ":scope"),
        (ATTEND, "a[href*='bibliography.html#']", ":scope"),
        (ATTEND, "a[href^='#equation-']", ".katex-display"),
        ("nbs/training/09_optimizers.html", "a[href*='.html#equation-']", ".katex-display"),
        ("nbs/attention/05_multihead.html", "a[href^='#fig-']", "figcaption"),
    ],
)
def test_a_link_has_a_note_of_where_it_leads(wide, page, link, inside):
    visit(wide, page)
    link = wide.locator(f".bd-article section {link}:not(.headerlink):visible").first
    link.scroll_into_view_if_needed()
    wide.wait_for_timeout(100)  # a scroll closes a note
    note = wide.locator("#link-note")
    for ask in (link.focus, link.hover):
        ask()
        note.locator(inside).first.wait_for()
        box = note.bounding_box()
        assert len(note.inner_text()) > 10
        assert box["x"] >= 0 and box["x"] + box["width"] <= 1280
        assert not note.locator("[id]").count()  # no name stands twice
        wide.keyboard.press("Escape")
        assert not note.count()


@weekly
@pytest.mark.parametrize("link", ["a[href*='glossary.html#']", "a[href*='#equation-']"])
def test_a_finger_sees_the_note_first_and_then_follows(opened, link):
    page = opened(390, has_touch=True, is_mobile=True)
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


def test_an_address_with_a_bare_percent_sign_is_no_error(page):
    visit(page, "nbs/attention/05_multihead.html#%")
    page.evaluate("location.hash = '#%E4'")
    page.wait_for_timeout(50)  # an error would be said on the console


def test_the_contents_fold_by_part_and_remember_where_one_was(page):
    visit(page, "nbs/attention/05_multihead.html")
    assert page.locator(".part[open] .caption-text").all_text_contents() == ["3 · Attention"]
    here = page.locator(".part a.current")
    assert not here.evaluate("(entry) => entry.classList.contains('read')")
    page.locator(".prev-next-area").scroll_into_view_if_needed()
    page.locator(".part a.current.read").wait_for(state="attached")
    visit(page, "book/intro.html")
    way_back = page.locator(".continue a")
    assert way_back.inner_text().startswith("3.5 Multi-head")
    assert way_back.evaluate("(link) => link.pathname").endswith("nbs/attention/05_multihead.html")
    assert page.locator(".part a.read").count() == 1
    on_the_map = page.locator(".transformer-map a.read")
    assert "attention/05_multihead" in on_the_map.get_attribute("href")
    assert on_the_map.get_attribute("aria-description") == "read"


@weekly
def test_the_entry_of_the_page_is_in_sight_and_to_measure_a_page_lays_it_out_a_few_times(wide):
    "What a page's own parts ask for; how often the browser draws what arrives is its own affair."
    counting = wide.context.new_cdp_session(wide)
    counting.send("Performance.enable")

    def layouts():
        found = counting.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in found if one["name"] == "LayoutCount")

    for page in ("nbs/models/14_decoders.html", "book/glossary.html", "nbs/start/01_notation.html"):
        visit(wide, page)
        wide.wait_for_timeout(500)
        places = (".part a.current", ".bd-sidebar-primary")
        at, side = (wide.locator(where).bounding_box() for where in places)
        assert side["y"] <= at["y"] and at["y"] + at["height"] <= side["y"] + side["height"], page
        before = layouts()
        wide.evaluate("dispatchEvent(new Event('resize'))")
        wide.wait_for_timeout(500)
        assert layouts() - before <= 10, page


@weekly
def test_what_lies_over_the_page_can_be_left(narrow):
    "The notation by Escape and by a press beside it; the contents by the link that is followed."
    visit(narrow, "nbs/attention/05_multihead.html")
    card, folded = narrow.locator(".notation-card"), narrow.locator(".notation-card:not([open])")
    text, tab = narrow.locator(".bd-article section").first.bounding_box(), card.bounding_box()
    assert text["x"] + text["width"] <= tab["x"]  # closed, it lies in the margin
    for leave in (lambda: narrow.keyboard.press("Escape"), lambda: narrow.click(".bd-article h1")):
        card.locator("summary").click()
        assert folded.count() == 0
        leave()
        assert folded.count() == 1
    narrow.click(".secondary-toggle")
    link = narrow.locator("dialog[open] a[href^='#']:visible").nth(2)
    target = link.get_attribute("href")
    link.click()
    assert narrow.locator("dialog[open]").count() == 0 and narrow.url.endswith(target)


# --- how a page looks ----------------------------------------------------------------------------

LINES = """() => [...document.querySelectorAll(".bd-article section > p")]
    .filter((text) => text.innerText && !text.querySelector(".katex"))
    .map((text) => [text.innerText.length,
        text.getBoundingClientRect().height / parseFloat(getComputedStyle(text).lineHeight)])"""
STYLE = "(one) => [getComputedStyle(one).fontWeight, parseFloat(getComputedStyle(one).fontSize)]"


@weekly
def test_a_chapter_is_set_as_a_book_is(wide):
    visit(wide, ATTEND)
    found = [one for one in wide.evaluate(LINES) if one[1] > 1.5]
    full = sum(lines - 0.5 for _, lines in found)  # about: the last one ends where it ends
    assert 65 <= sum(letters for letters, _ in found) / full <= 78
    ends = wide.eval_on_selector_all(
        ".bd-article > section > section > :is(p, .math, .cell, details, .widget, .exercise-card)",
        "(all) => all.filter((one) => one.getClientRects().length)"
        ".map((one) => [one.matches('p, .math'), Math.round(one.getBoundingClientRect().right)])",
    )
    # words end at one edge, and code and drawings at one
    assert len(ends) > 20 and sorted(words for words, _ in {*map(tuple, ends)}) == [False, True]
    found = [wide.eval_on_selector(f".bd-article {h}", STYLE) for h in ("h1", "h2", "h3")]
    sizes = [size for _, size in found]
    assert {weight for weight, _ in found} == {"700"}
    assert sizes == sorted(set(sizes), reverse=True)
    assert wide.locator(".exercise-card").count() == wide.locator(".exercise-kind").count() > 3
    for card in wide.locator(".exercise-card").all():
        kind = card.locator(".exercise-kind > span").inner_text()
        assert card.locator(":is(h3, h4)").count() == 1
        assert card.locator("details.hint").count() == card.locator("details.solution").count() == 1
        assert card.locator("form.answer").count() == (kind in ("warm-up", "predict"))
    assert wide.locator("div.bd-sidebar-secondary .page-toc a").first.is_visible()


@weekly
def test_on_paper_nothing_is_cut_and_all_is_light(wide):
    visit(wide, ATTEND)
    theme = "document.documentElement.dataset.theme"
    wide.evaluate(f"{theme} = 'dark'")
    wide.emulate_media(media="print")
    wide.set_viewport_size({"width": 718, "height": 1000})  # A4 less its margins
    cut = "(all) => all.filter((pre) => pre.scrollWidth > pre.clientWidth + 1).length"
    assert wide.eval_on_selector_all(".bd-article pre", cut) == 0
    turned = "getComputedStyle(document.querySelector('img.figure')).filter"
    assert "invert" not in wide.evaluate(turned)
    for event, mode in (("beforeprint", "light"), ("afterprint", "dark")):
        wide.evaluate(f"dispatchEvent(new Event('{event}'))")
        assert wide.evaluate(theme) == mode


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
    return most;
}"""  # pixels with nothing to look at or to do, folds shut; 3376: 4 times 844


@weekly
def test_no_chapter_has_too_many_screens_of_words_alone(wide):
    screens = {}
    for page in [page for page in READ if page.startswith("nbs/")]:
        visit(wide, page)
        screens[page] = wide.evaluate(STRETCH)
    assert len(screens) > 80 and max(screens.values()) > 2 * 844  # it does measure
    assert not [page for page, n in screens.items() if n > (3376 if page in FIRST_PASS else 7200)]


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


@weekly
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
        pytest.param("book/teachers.html", "Chapter", "3.2 Masks", "", marks=weekly),
        pytest.param("book/clinic.html", "Kind", "◐ half true", "", marks=weekly),
        pytest.param("book/clinic.html", "Source", "a blog post", "mask", marks=weekly),
        ("book/glossary.html", "", "", "掩码"),
    ],
)
def test_a_long_table_or_list_is_filtered(narrow, page, by, value, word):
    visit(narrow, page)
    place = narrow.locator("[data-widget=filter]")
    place.locator("input[type=search]").wait_for()
    entries = place.locator("tbody tr, dd")
    total = entries.count()
    assert place.locator(".widget-note").inner_text().startswith(f"{total} of {total}")
    if by:
        place.get_by_label(by).select_option(value)
    place.get_by_label("Containing").fill(word)
    visible = (
        "(all) => all.filter((one) => one.getClientRects().length).map((one) => one.innerText)"
    )
    shown = entries.evaluate_all(visible)
    assert 0 < len(shown) < total
    assert place.locator(".widget-note").inner_text().startswith(f"{len(shown)} of {total}")
    assert all(value in text and (not by or word in text.lower()) for text in shown)


@weekly
def test_the_table_of_models_scrolls_beside_its_first_column_and_letters_lead_there(narrow):
    visit(narrow, "book/tree.html")
    box = narrow.locator(".family-parts")
    assert box.bounding_box()["height"] <= 844
    box.evaluate("(box) => box.scrollTo(300, 300)")
    side = box.bounding_box()["x"]
    places = "(all) => all.map((th) => th.getBoundingClientRect().x)"
    assert all(abs(x - side) < 2 for x in box.locator("th[scope=row]").evaluate_all(places))
    visit(narrow, "book/glossary.html")
    narrow.locator(".filter-letters a", has_text="K").first.click()
    assert narrow.locator(":target").inner_text().upper().startswith("K")


# --- what needs no browser -----------------------------------------------------------------------


class Parsed(html.parser.HTMLParser):
    "A page: its text, its links, its ids, its description."

    def __init__(self, text):
        super().__init__()
        self.text, self.links, self.ids, self.meta = text, [], set(), {}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids |= {found.get("id"), found.get("name")} - {None}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag == "meta" and found.get("content"):
            self.meta[found.get("name") or found.get("property")] = found["content"]


@pytest.fixture(scope="module")
def parsed(site):
    return {page: Parsed((site / page).read_text(encoding="utf-8")) for page in PAGES}


def dead(page, link, parsed):
    "Whether a link within the site leads nowhere."
    parts = urlsplit(link)
    name = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path)))
    name, anchor = name if parts.path else page, unquote(parts.fragment)
    if parts.scheme or parts.netloc or (name in PRINTED and not (SITE / "pdf").exists()):
        return False
    lost = anchor and name in parsed and anchor not in parsed[name].ids
    return bool(lost) or not (SITE / name).is_file()


def faults(page, here, listed):
    "What is wrong with a page of the book."
    text, meta = here.text, here.meta
    if len(meta["description"]) <= 30 or not meta["og:title"] or len(meta["og:image:alt"]) <= 20:
        yield "it is not described"
    site = meta["og:url"].removesuffix(page)
    if meta["og:image"] != f"{site}_static/card.png" or f"{site}{page}</loc>" not in listed:
        yield "its address or its picture is wrong, or no list has it"
    if text.count('reference internal" href="#" data-page=') != 1:
        yield "the contents do not mark where one is"
    if re.search(r"<script[^>]*katex|STIX|DejaVu", text):
        yield "it draws formulas, or has fonts that a reader lacks"
    if re.search(r'class="math[^>]*>(\s*<span class="eqno">.*?</span>)?\s*\\[(\[]', text):
        yield "it shows the source of a formula"
    if "code cell source" in text or 'admonition-title">Code</p>' in text:
        yield "a fold is not named by what is in it"
    if found := re.search(r'<h1><span class="section-number">(\S+) </span>', text):
        numbers = re.findall(r'class="(?:eqno">\(|caption-number">Fig\. )([A\d.]+)', text)
        if any(not number.startswith(f"{found[1]}.") for number in numbers):
            yield "a formula or a figure is not numbered by chapter"


def test_the_button_below_a_page_of_the_first_pass_leads_to_the_next_of_it(parsed):
    pages = [f"{page}.html" for page in ("book/intro", *cards.first_pass())]
    for page, to in pairwise(pages):
        (link,) = re.findall(r'<a class="right-next" href="([^"]+)"', parsed[page].text)
        assert posixpath.normpath(posixpath.join(posixpath.dirname(page), link)) == to
    assert 'prev-next-area first-pass"' not in parsed[pages[-1]].text


def test_no_link_is_dead_and_every_page_is_whole(parsed, site):
    links = [(page, link) for page, here in parsed.items() for link in here.links]
    assert [one for one in links if dead(*one, parsed)] == []
    listed = (site / "sitemap.xml").read_text(encoding="utf-8")
    found = {page: [*faults(page, parsed[page], listed)] for page in READ}
    assert {page: told for page, told in found.items() if told} == {}
    assert len({parsed[page].meta["description"] for page in READ}) == len(READ)
    card = (site / "_static/card.png").read_bytes()
    assert card[:8] == b"\x89PNG\r\n\x1a\n" and len(card) < 60_000
    assert struct.unpack(">II", card[16:24]) == (1200, 630)  # what the sites that show it ask for
    lost = parsed["404.html"].links  # shown at any address, so it links from the top
    assert lost and all(link.startswith("https://") for link in lost)


def test_chapters_formulas_and_terms_have_the_numbers_and_places_that_copies_name(parsed):
    for place, (caption, pages) in enumerate(cards.contents(), 1):
        number = cards.part_name(place, caption)
        name = re.escape(f"{number} · {caption}")
        for count, page in enumerate(cards.numbered(pages), 1):
            text = parsed[f"{page}.html"].text
            assert f'<span class="section-number">{number}.{count} </span>' in text
            assert re.search(rf"<summary [^>]*><span [^>]*>{name}</span></summary>", text)
            opening = pages[0].removeprefix("book/")  # which is the way from book/clinic
            link = rf'<a [^>]*href="[^"]*{opening}.html"[^>]*>About this part</a>'
            assert not pages[0].startswith(cards.OPENING) or re.search(link, text)
    book, glossary = what_roles_say(alone=True), parsed["book/glossary.html"]
    for label, (page, number) in book.numbers.items():
        equation = rf'id="equation-{label}"[^>]*>\s*<span class="eqno">\({number}\)<'
        figure = rf'<figure [^>]*id="{label}"(?:(?!</figure>).)*caption-number">Fig. {number} <'
        text = parsed[f"{page}.html"].text
        assert re.search(f"{equation}|{figure}", text, re.S), (label, number)
    for term in book.terms:
        assert re.search(r"#([^)]+)\)", book.text(f"{{term}}`{term}`", ""))[1] in glossary.ids
    count = int(re.search(r"The (\d+) terms", glossary.text)[1])
    assert glossary.text.count('lang="zh-Hans"') == count  # the Chinese names say their language
    assert parsed["nbs/recipes/02_translation.html"].text.count('lang="de"') > 9


def test_reference_and_chapters_lead_to_each_other_and_it_says_what_parameters_mean(parsed):
    api = [page for page in READ if page.startswith("book/api/")]
    back, count = {link for page in api for link in parsed[page].links}, 0
    for page in (page for page in READ if page.startswith("nbs/")):
        there = [x for x in parsed[page].links if re.search(r"api/\w+\.html#transformer_lit\.", x)]
        assert not there or f"../../{page}" in back, page
        count += len(there)
    assert count > 220
    text = re.sub(r"<[^>]+>", "", "".join(parsed[page].text for page in api))
    assert "True where a query may attend" in text and text.count("Parameters") > 40
    for noise in (" at 0x", "Define the computation", "str(object=", "Annotated["):
        assert noise not in text, noise
