"Figures that follow the reader's mode: colours, names, labels."

import base64
import colorsys
import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from inline_figures import CHALK, GROUND, dark, inline_all, parts
from PIL import Image

from transformer_lit.course.figures import HUES, KINDS, PALETTE, contrast, luminance

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


def light(colour):
    return luminance(parts(colour))


def apart(one, other):
    return contrast(parts(one), parts(other))


def hue(colour):
    return colorsys.rgb_to_hls(*parts(colour))[0]


def parsed(page):
    "The drawings of a page as trees."
    return [ET.fromstring(found) for found in re.findall(r"<svg.*?</svg>", page, re.S)]


def drawn(page=PAGE, drawing=DRAWING):
    return inline_all(page, lambda name: {"a.svg": drawing}[name])


# --- colours -------------------------------------------------------------------------------------


def test_colours_can_be_read_in_the_dark_and_keep_their_hue_and_order():
    assert (dark("#ffffff"), dark("#000000")) == (GROUND, CHALK)
    for colour in map(str.lower, PALETTE):
        assert apart(dark(colour), GROUND) >= 4.5, colour
        assert colour == "#000000" or abs(hue(dark(colour)) - hue(colour)) < 0.01, colour
    greys = ["#000000", "#333333", "#777777", "#999999", "#dddddd", "#ffffff"]
    nights = [light(dark(grey)) for grey in greys]
    assert nights == sorted(nights, reverse=True)
    for grey in greys[1:4]:
        assert apart(dark(grey), GROUND) >= 0.9 * min(apart(grey, "#ffffff"), 5)
    steps = ["#00224e", "#434e6c", "#7d7c78", "#bcae6c"]  # four of cividis, as lines
    nights = [light(dark(colour)) for colour in steps]
    assert nights == sorted(set(nights)) and min(apart(dark(c), GROUND) for c in steps) >= 3
    for ground, border in KINDS.values():  # a text in a box of a drawing
        night = dark(ground.lower(), filled=True)
        assert light(night) < 0.06 and apart(CHALK, night) >= 4.5
        assert border == ground or apart(dark(border.lower()), night) >= 3


def test_query_key_and_value_have_the_same_colours_in_drawings_formulas_and_widgets():
    sheet = (ROOT / "book/_static/custom.css").read_text(encoding="utf-8")
    for name, colour in HUES.items():
        said = re.findall(rf"--tl-{name}: (#\w+);", sheet)
        assert said == [colour, dark(colour)]
        assert apart(colour, "#ffffff") >= 4.5 and apart(dark(colour), GROUND) >= 4.5


# --- a drawing in a page -------------------------------------------------------------------------


def test_an_image_becomes_a_drawing_with_its_text_for_those_who_listen():
    page = drawn()
    assert page.startswith('<p>A</p><span class="drawing-box"><svg ') and "<img" not in page
    [root] = parsed(page)
    shown = {"aria-label": 'One "dot", < two', "role": "img", "class": "drawing wide"}
    shown |= {"viewBox": "0 0 150 75", "width": "200"}  # 150 points
    shown |= {"style": "width: 99px;--least:225px"}  # 9 pixels for a label of 6 in 150
    assert root.attrib == shown
    for gone in ("<style", "<metadata", "<?xml", "figure_1", "xlink", "25.123456"):
        assert gone not in page
    assert base64.b64decode(re.search(r"base64,([^\"]+)", page)[1]).startswith(b"\x89PNG")
    dots = '<img alt="dots" src="../../_images/a.png" />'
    assert inline_all(dots, None) == dots


def styles(drawing):
    [root] = parsed(drawn(drawing=drawing))
    return {x.text or x.get("d"): x.get("style") for x in root.iter()}


def test_every_colour_is_a_pair_and_what_lies_on_an_image_stays():
    found, tint, blue = styles(DRAWING), dark("#fbe3b0", filled=True), dark("#0072b2")
    assert found["M 10 10 L 40 10 L 40 30 L 10 30 z"] == (
        f"fill:#fbe3b0;fill:light-dark(#fbe3b0,{tint}); "
        f"stroke:#fbe3b0;stroke:light-dark(#fbe3b0,{tint})"
    )
    assert found["a < b"] == "font-size: 10px; text-anchor: middle"  # the drawing's own ink
    assert found["0.5"] == "fill: #000000"
    assert found["M 62.1 12.1 L 98 12 L 98 38 L 62 38 z"] == "fill: none; stroke: #000000"
    assert f"stroke:light-dark(#0072b2,{blue})" in found["M 5 70 L 145 70"]
    assert apart(re.search(r"light-dark\(#777777,(#\w+)\)", found["grey"])[1], GROUND) >= 4.5
    # what is black on an image that the page is seen through turns over
    found = styles(DRAWING.replace(DOT, dots("#8a4fb520")))
    assert found["0.5"] == "fill: light-dark(#000000,#ffffff)"
    assert found["a < b"] == "font-size: 10px; text-anchor: middle"  # beside it


def test_names_and_styles_are_of_one_drawing():
    sheet, night = "<style>.sub { fill: #44525f; font-size: 9px }</style>", dark("#44525f")
    page = drawn(PAGE + PAGE, DRAWING.replace("<g id", f"{sheet}<g id", 1))
    for number, root in enumerate(parsed(page), 1):
        names = {x.get("id") for x in root.iter()} - {None, f"drawing-{number}"}
        assert names == {f"drawing-{number}-mark", f"drawing-{number}-pabc"}
        text = ET.tostring(root, encoding="unicode")
        assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', text)) == names
        assert f"#drawing-{number} .sub {{ fill:#44525f;fill:light-dark(#44525f,{night})" in page
        assert page.count(f'id="drawing-{number}"') == 1
