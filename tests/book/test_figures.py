"Figures and text: a figure follows the mode, and the text has its own font."

import io

import pytest
from PIL import Image

weekly = pytest.mark.weekly
PAGES = [  # boxes, heat maps, bars, curves, points
    *("nbs/attention/05_multihead", "nbs/training/03_schedule"),
    *(
        pytest.param(page, marks=weekly)
        for page in (
            *("nbs/attention/03_attend", "nbs/block/06_wiring"),
            *("nbs/inference/02_beam", "nbs/position/01_absolute", "nbs/text/03_word_vectors"),
            "nbs/training/02_data",
        )
    ),
]
FONTS = 60_000  # bytes
WHITE, GROUND = 255, 18  # of each part of a colour, behind a figure: of the paper, and in the dark


def grounds(page, figure):
    "The colours of a figure's corners, as they are on the screen."
    shot = Image.open(io.BytesIO(figure.screenshot())).convert("RGB")
    wide, high = shot.size
    return {shot.getpixel((x, y)) for x in (2, wide - 3) for y in (2, high - 3)}


@pytest.mark.parametrize("path", PAGES)
def test_a_figure_follows_the_mode_and_its_ground_is_that_of_the_page(wide, path):
    wide.goto(f"{path}.html", wait_until="load")
    figure = wide.locator(".bd-article img.figure:visible").first
    for mode, ground in (("light", WHITE), ("dark", GROUND)):
        wide.evaluate("(mode) => (document.documentElement.dataset.theme = mode)", mode)
        assert grounds(wide, figure) == {(ground,) * 3}


@weekly
def test_the_text_has_the_fonts_of_the_book_and_moves_little_when_they_come(page, site):
    page.route(
        "**/fonts/SourceSans3-*.woff2", lambda r: (page.wait_for_timeout(400), r.continue_())
    )
    page.goto("nbs/attention/03_attend.html", wait_until="load")
    shift = """() => new Promise((go) => {
        let sum = 0;
        const add = (list) => list.getEntries().forEach((one) => (sum += one.value));
        new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
        document.fonts.ready.then(() => setTimeout(() => go(sum), 300));
    })"""
    assert page.evaluate(shift) <= 0.1
    family = "getComputedStyle(document.querySelector('.bd-article p')).fontFamily"
    assert page.evaluate(family).startswith('"Source Sans 3"')
    for style in ("", "bold ", "italic "):
        assert page.evaluate("(font) => document.fonts.check(font)", f"{style}17px 'Source Sans 3'")
    loaded = {url.rpartition("/")[2] for url in page.asked if "SourceSans3" in url}
    assert {"SourceSans3-Regular.woff2", "SourceSans3-Bold.woff2"} <= loaded
    fonts = site / "_static/fonts"
    assert sum((fonts / name).stat().st_size for name in loaded) <= FONTS
    assert "SIL OPEN FONT LICENSE Version 1.1" in (fonts / "LICENSE").read_text(encoding="utf-8")
