"Figures that follow the reader's mode: colours, names, labels, and every drawing of the book."

import base64
import colorsys
import gzip
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from inline_figures import CHALK, GROUND, dark, inline_all, least_width
from PIL import Image

from transformer_lit.course.figures import HUES, KINDS, PALETTE

ROOT = Path(__file__).parents[1]


def dots(colour):
    "An image of dots as a figure holds it."
    file = io.BytesIO()
    Image.new("RGBA", (2, 2), colour).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


DOT = dots("#8a4fb5ff")
DRAWING = f"""<?xml version="1.0"?>
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="150pt"
 height="75pt" viewBox="0 0 150 75"><metadata>who</metadata>
 <defs><style type="text/css">*{{stroke-linejoin: round}}</style></defs>
 <g id="figure_1"><path id="patch_1" d="M 0 0 L 150 0 L 150 75 L 0 75 z" style="fill: #ffffff"/>
  <path d="M 10 10 L 40 10 L 40 30 L 10 30 z" clip-path="url(#pabc)"
   style="fill: #fbe3b0; stroke: #fbe3b0"/>
  <text x="25.123456" y="23" style="font-size: 10px; text-anchor: middle">a &lt; b</text>
  <g id="image"><image xlink:href="data:image/png;base64,
{DOT}" transform="scale(1 -1) translate(0 -30)" x="60" y="-10" width="40" height="30"/></g>
  <text x="80.0" y="28.0">0.5</text>
  <path d="M 62.1 12.1 L 98 12 L 98 38 L 62 38 z" style="fill: none; stroke: #000000"/>
  <path d="M 5 70 L 145 70" style="fill: none; stroke: #0072b2"/>
  <defs><path id="mark" d="M 0 0 L 0 3" style="stroke: #000000"/></defs>
  <use xlink:href="#mark" x="5" y="70" style="stroke: #000000"/>
  <text x="5" y="60" style="font-size: 6px; fill: #777777">grey</text>
 </g>
 <defs><clipPath id="pabc"><rect x="0" y="0" width="150" height="75"/></clipPath></defs>
</svg>"""
PAGE = (
    '<p>A</p><img alt="One &quot;dot&quot;, &lt; two" class="wide" src="../../_images/a.svg" '
    'style="width: 99px;" />'
)


def luminance(colour):
    "As WCAG 2 defines it."
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def apart(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def hue(colour):
    return colorsys.rgb_to_hls(*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)))[0]


def made(page=PAGE):
    return inline_all(page, lambda name: {"a.svg": DRAWING}[name])


def parsed(page):
    "The drawings of a page as trees."
    return [ET.fromstring(found) for found in re.findall(r"<svg.*?</svg>", page, re.S)]


# --- colours -------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", [colour.lower() for colour in PALETTE])
def test_a_colour_of_the_palette_can_be_read_in_the_dark_and_keeps_its_hue(colour):
    night = dark(colour)
    assert apart(night, GROUND) >= 4.5
    if colour != "#000000":
        assert abs(hue(night) - hue(colour)) < 0.01


def test_paper_and_ink_change_places_and_greys_turn_over():
    assert (dark("#ffffff"), dark("#000000")) == (GROUND, CHALK)
    greys = ["#000000", "#333333", "#777777", "#999999", "#dddddd", "#ffffff"]
    nights = [luminance(dark(grey)) for grey in greys]
    assert nights == sorted(nights, reverse=True)
    for grey in greys[1:4]:
        assert apart(dark(grey), GROUND) >= 0.9 * min(apart(grey, "#ffffff"), 5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_in_a_box_of_a_drawing_can_be_read_in_the_dark(kind):
    ground, border = (colour.lower() for colour in KINDS[kind])
    night = dark(ground, filled=True)
    assert luminance(night) < 0.06
    assert apart(CHALK, night) >= 4.5
    if border != ground:
        assert apart(dark(border), night) >= 3


@pytest.mark.parametrize("name", HUES)
def test_query_key_and_value_have_the_same_colours_in_drawings_formulas_and_widgets(name):
    sheet = (ROOT / "book/_static/custom.css").read_text(encoding="utf-8")
    said = re.findall(rf"--tl-{name}: (#\w+);", sheet)
    assert said == [HUES[name], dark(HUES[name])]
    assert apart(HUES[name], "#ffffff") >= 4.5 and apart(dark(HUES[name]), GROUND) >= 4.5


def test_steps_of_a_scale_keep_their_order_as_lines_and_can_be_seen():
    lines = ["#00224e", "#434e6c", "#7d7c78", "#bcae6c"]  # four steps of cividis
    nights = [luminance(dark(colour)) for colour in lines]
    assert nights == sorted(nights) and len(set(nights)) == 4
    assert all(apart(dark(colour), GROUND) >= 3 for colour in lines)


# --- a drawing in a page -------------------------------------------------------------------------


def test_an_image_becomes_a_drawing_with_its_text_for_those_who_listen():
    page = made()
    assert page.startswith('<p>A</p><span class="drawing-box"><svg ') and "<img" not in page
    [root] = parsed(page)
    assert root.get("aria-label") == 'One "dot", < two'
    assert (root.get("role"), root.get("class")) == ("img", "drawing wide")
    assert (root.get("viewBox"), root.get("width")) == ("0 0 150 75", "200")  # 150 points
    assert root.get("style") == "width: 99px;--least:225px"  # 9 pixels for a label of 6 in 150


def test_every_colour_is_a_pair_and_what_lies_on_an_image_stays():
    [root] = parsed(made())
    styles = {x.text or x.get("d"): x.get("style") for x in root.iter()}
    tint = dark("#fbe3b0", filled=True)
    assert styles["M 10 10 L 40 10 L 40 30 L 10 30 z"] == (
        f"fill:#fbe3b0;fill:light-dark(#fbe3b0,{tint}); "
        f"stroke:#fbe3b0;stroke:light-dark(#fbe3b0,{tint})"
    )
    assert styles["a < b"] == "font-size: 10px; text-anchor: middle"  # the drawing's own ink
    assert styles["0.5"] == "fill: #000000"
    assert styles["M 62.1 12.1 L 98 12 L 98 38 L 62 38 z"] == "fill: none; stroke: #000000"
    blue = dark("#0072b2")
    assert f"stroke:light-dark(#0072b2,{blue})" in styles["M 5 70 L 145 70"]
    night = re.search(r"light-dark\(#777777,(#\w+)\)", styles["grey"])[1]
    assert apart(night, GROUND) >= 4.5


def test_what_is_black_on_an_image_that_the_page_is_seen_through_turns_over():
    [root] = parsed(inline_all(PAGE, lambda _: DRAWING.replace(DOT, dots("#8a4fb520"))))
    styles = {x.text or x.get("d"): x.get("style") for x in root.iter()}
    assert styles["0.5"] == "fill: light-dark(#000000,#ffffff)"
    assert styles["a < b"] == "font-size: 10px; text-anchor: middle"  # beside it


def test_names_are_unique_on_a_page_and_only_those_that_are_used_are_left():
    one, two = parsed(made(PAGE + PAGE))
    for number, root in enumerate((one, two), 1):
        names = {x.get("id") for x in root.iter()} - {None}
        assert names == {f"drawing-{number}-mark", f"drawing-{number}-pabc"}
        text = ET.tostring(root, encoding="unicode")
        assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', text)) == names


def test_a_style_sheet_reaches_its_own_drawing_alone():
    sheet = "<style>.sub { fill: #44525f; font-size: 9px }</style>"
    page = inline_all(PAGE, lambda _: DRAWING.replace("<g id", f"{sheet}<g id", 1))
    night = dark("#44525f")
    assert f"#drawing-1 .sub {{ fill:#44525f;fill:light-dark(#44525f,{night})" in page
    assert page.count('id="drawing-1"') == 1


def test_nothing_of_a_drawing_reaches_beyond_it():
    page = made()
    for gone in ("<style", "<metadata", "<?xml", "figure_1", "xlink", "25.123456"):
        assert gone not in page
    assert base64.b64decode(re.search(r"base64,([^\"]+)", page)[1]).startswith(b"\x89PNG")


def test_an_image_of_dots_is_left_alone():
    page = '<img alt="dots" src="../../_images/a.png" />'
    assert inline_all(page, None) == page


def test_the_least_width_makes_the_smallest_label_nine_pixels():
    drawing = (
        '<svg viewBox="0 0 300 100"><text style="font-size: 6px">a</text><text font-size="8"/>'
    )
    assert least_width(drawing + "</svg>") == 450  # 300 · 9 / 6
    assert least_width('<svg viewBox="0 0 300 100"/>') is None


# --- all drawings of the book --------------------------------------------------------------------


def drawings():
    "Every SVG that a notebook shows."
    for path in sorted(ROOT.glob("nbs/*/*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", ()):
                if svg := output.get("data", {}).get("image/svg+xml"):
                    yield f"{path.parent.name}/{path.stem}", "".join(svg)


@pytest.mark.machinery
def test_every_drawing_of_the_book_stands_in_a_page():
    pairs = set()
    for name, svg in drawings():
        page = inline_all(PAGE, lambda _, svg=svg: svg)
        [root] = parsed(page)
        assert len(gzip.compress(page.encode())) <= len(gzip.compress(svg.encode())) + 300, name
        ids = {x.get("id") for x in root.iter()} - {None, "drawing-1"}
        assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', page)) == ids, name
        assert not re.search(r"STIX|DejaVu", page), name  # fonts that a reader lacks
        pairs |= set(re.findall(r"light-dark\((#\w{6}),(#\w{6})\)", page))
    assert len(pairs) > 40
    assert {(colour, dark(colour)) for colour in ("#0072b2", "#d55e00", "#333333")} <= pairs
