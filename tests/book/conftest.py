"""A browser, and the built book in it: `BOOK_HTML` names its folder; without it tests are skipped.

A page may say nothing on its console and may ask nobody but our own server. What is marked `weekly`
runs once a week; the rest, every page and a sample of what pages do, at each push.
"""

import functools
import http.server
import importlib.util
import threading
from pathlib import Path

import pytest
from browser import find_chromium
from built_book import PACKED, SITE, leave, packed, seen


class Server(http.server.SimpleHTTPRequestHandler):
    "It compresses, as those of the net do."

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


@pytest.fixture(scope="session")
def site():
    "The folder of the built book."
    return SITE or leave("BOOK_HTML names no built site (make book)")


@pytest.fixture(scope="session")
def home(site):
    "The address of the built book."
    handler = functools.partial(Server, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="session")
def chromium():
    "The path of a browser that Playwright can drive."
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    return find_chromium() or leave("there is no Chromium; install it, or name it in CHROMIUM")


@pytest.fixture(scope="session")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # root in a container has no sandbox
        yield playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])


@pytest.fixture(scope="session")
def opened(browser, home):
    "`opened(width=390, …)`: a new page, which keeps what it complained of and whom it asked."

    def new(width=1280, height=844, **how):
        context = browser.new_context(
            base_url=home, viewport={"width": width, "height": height}, **how
        )
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.said, page.asked, inside = [], [], (home, "file:", "data:", "blob:")
        page.on("pageerror", lambda error: page.said.append(f"error: {error}"))
        page.on("console", lambda line: line.type == "error" and page.said.append(line.text))
        page.on("response", lambda r: r.status >= 400 and page.said.append(r.url))
        page.on("request", lambda r: page.asked.append(r.url))
        page.on("request", lambda r: r.url.startswith(inside) or page.said.append(f"asked {r.url}"))
        return page

    return new


@pytest.fixture
def page(opened):
    "A page of its own: nothing is stored."
    page = opened()
    yield page
    page.context.close()
    assert not page.said


@pytest.fixture(scope="session")
def reader(opened):
    "One page for all tests that only read, so that little is loaded anew."
    page = opened()
    yield page
    page.context.close()


def quiet(page, *view):
    seen(page, *view)
    page.said.clear()
    yield page
    assert not page.said


@pytest.fixture
def wide(reader):
    yield from quiet(reader, 1280, "light")


@pytest.fixture
def narrow(reader):
    yield from quiet(reader, 390, "dark")


# a fold that was opened fades in for 0.3 s, and what is half transparent has little contrast
AT_REST = "Promise.all(document.getAnimations().map((one) => one.finished)).then(() => true)"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


@pytest.fixture(scope="session")
def barriers():
    "`barriers(page, where)`: what axe calls serious there or critical, with the place of each."
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None:
        leave("axe-playwright-python is not installed; make setup brings it")
    axe = (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")

    def look(page, where):
        page.evaluate(axe + "; undefined")
        page.evaluate(AT_REST)
        how = {"resultTypes": ["violations"], "runOnly": RULES, "preload": False}
        part = {"include": [where], "exclude": [".katex"]}  # what a reader hears of it is MathML
        found = page.evaluate("([part, how]) => axe.run(part, how)", [part, how])["violations"]
        grave = (one for one in found if one["impact"] in ("serious", "critical"))
        return [(one["id"], one["nodes"][0]["html"][:200]) for one in grave]

    return look
