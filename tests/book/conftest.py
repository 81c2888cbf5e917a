"""A browser, and pages for it.

`BOOK_HTML` names a built book; without it small pages stand in for the first one and for the
chapters that have widgets.
"""

import functools
import html
import http.server
import os
import shutil
import threading
from pathlib import Path

import live
import pytest
from browser import find_chromium
from chapter_widgets import FIRST, chapter_widgets

STATIC = Path(__file__).parents[2] / "book/_static"
PAGE = """<!DOCTYPE html>
<html lang="en" data-theme="light">
<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Widgets</title>
<link rel="icon" href="{up}_static/favicon.svg">
<link rel="stylesheet" href="{up}_static/custom.css">
<link rel="stylesheet" href="{up}_static/widgets.css"><script src="{up}_static/page.js"></script>
<style>* {{ box-sizing: border-box; }}</style>
<main class="bd-article"><h1>Widgets</h1>{inside}</main>
"""


@pytest.fixture(scope="session")
def chromium():
    "The path of a browser that Playwright can drive."
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = find_chromium()
    if found is None:
        leave = pytest.fail if os.environ.get("CI") else pytest.skip
        leave("there is no Chromium; install it, or name it in CHROMIUM")
    return found


@pytest.fixture(scope="session")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # root in a container has no sandbox
        yield playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])


@pytest.fixture
def page(browser):
    "A page that may say nothing on the console and may ask nobody but our own server."
    context = browser.new_context()
    context.set_default_timeout(60_000)
    said = []
    page = context.new_page()
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda line: line.type == "error" and said.append(line.text))
    page.asked = []  # addresses, in order
    page.on("request", lambda request: page.asked.append(request.url))
    page.said = said
    yield page
    context.close()
    assert not said
    assert all("//127.0.0.1:" in url or url.startswith(("file:", "blob:")) for url in page.asked)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *what):
        pass


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    "The folder of a site with the widgets of the first page, and the path of that page in it."
    if built := os.environ.get("BOOK_HTML"):
        return Path(built).resolve(), "book/intro.html"
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(STATIC, site / "_static", ignore=shutil.ignore_patterns("mathjax"))
    live.copy_models(site / "_static")
    german, rows, columns, weights = live.translated("A man is riding a bike.", FIRST)
    inside = live.said(german, "de") + live.heat_table(rows, columns, weights[-2].mean(0), "heat")
    opening = live.opening("translate", "Load the translator", model=FIRST)
    widgets = [opening + inside + "</div>"]
    widgets.append(live.opening("write", "Load the writer") + "<p>Text.</p></div>")
    (site / "index.html").write_text(PAGE.format(up="", inside="".join(widgets)), encoding="utf-8")
    placed = [(name, place) for name, places in chapter_widgets().items() for place in places]
    for name, place in placed:
        paragraphs = "".join(f"<p>{html.escape(one)}</p>" for one in place.text.split("\n\n"))
        inside = live.opening(name, place.ask) + paragraphs + "</div>"
        path = site / f"{place.page}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        page = (
            path.read_text(encoding="utf-8")
            if path.exists()
            else PAGE.format(up="../../", inside="")
        )
        path.write_text(page.replace("</main>", f"{inside}</main>"), encoding="utf-8")
    return site, "index.html"


@pytest.fixture(scope="session")
def served():
    "`served(place)` serves a folder and gives its address."
    servers = []

    def serve(place):
        handler = functools.partial(Quiet, directory=place)
        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="session")
def address(folder, served):
    "The first page, served."
    place, path = folder
    return f"{served(place)}/{path}"
