"""Draw the picture that a link to the book shows where people share it: `python book/make_card.py`.

Chromium draws it from the logo and the first page's title; book/_static/card.png is committed.
"""

import os
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book/_ext"))
from browser import find_chromium  # noqa: E402

SIZE = 1200, 630  # pixels: what the sites that show such pictures ask for
TARGET = ROOT / "book/_static/card.png"
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; width: {width}px; height: {height}px; background: #12304f; color: #fff;
  display: flex; flex-direction: column; justify-content: center; gap: 48px;
  padding: 0 90px; box-sizing: border-box; font: 600 58px/1.25 Helvetica, Arial, sans-serif }}
svg {{ width: 600px; height: auto; margin-left: -32px }}
</style>{logo}<div>{title}</div>"""


def make(target: Path = TARGET) -> None:
    "Write the picture to `target`, whole or not at all."
    from playwright.sync_api import sync_playwright

    width, height = SIZE
    title = (ROOT / "book/intro.md").read_text().split("\n", 1)[0].removeprefix("# ")
    logo = (ROOT / "book/_static/logo.svg").read_text()
    page_text = PAGE.format(width=width, height=height, logo=logo, title=escape(title))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_content(page_text)
        drawn = page.screenshot(type="png")
        browser.close()
    beside = target.with_suffix(".tmp")
    beside.write_bytes(drawn)
    os.replace(beside, target)


if __name__ == "__main__":
    sys.exit(make())
