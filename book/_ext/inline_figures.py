"""Figures that follow the reader's mode: an SVG stands in its page, in colours for both.

A page that only links to an SVG cannot change it when the reader switches the theme. So the drawing
itself stands in the page, and each of its colours is a pair, `light-dark(#000000,#ced6dd)`, of
which custom.css shows one. For dark, greys turn over, light tints become dark ones of the same hue,
and what is too dark is lifted. An image of a colour map stays, with all that lies on it; through
one of attention weights the page is seen, and what is black on it turns over.
"""

import base64
import colorsys
import functools
import io
import itertools
import re
from html import escape, unescape
from math import ceil
from pathlib import Path

import matplotlib
from matplotlib.colors import to_hex
from PIL import Image

from transformer_lit.course.figures import DIVERGING, luminance

PAPER = "#ffffff"
GROUND, CHALK = "#121212", "#ced6dd"  # of the theme's dark pages
LEAST = 9  # pixels: on a narrow page a drawing scrolls rather than shrink its labels further
IMAGE = re.compile(r'<img (?P<rest>[^>]*src="[^"]*_images/(?P<name>[^"]+\.svg)"[^>]*)>')
SIZE = re.compile(r"font(?:-size)?: *(?:[a-z]+ )*([\d.]+)px|font-size=\"([\d.]+)")
ATTRIBUTE = re.compile(r'([\w:-]+)="([^"]*)"')
TAG = re.compile(r"<(text|tspan|path|use|rect|line|circle|polygon|g) ([^>]*?)(/?)>")
COLOUR = re.compile(r"(fill|stroke): *(#[0-9a-f]{6})", re.I)
DIGITS = re.compile(r"-?\d+\.\d+")
RULE = re.compile(r"([^{}<>]+)\{([^{}<>]*)\}(?=[^<>]*</style>)")  # on a page it would reach on
DROPPED = re.compile(
    r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<title.*?</title>"
    r"|<defs>\s*<style[^>]*>\*.*?</defs>",  # the last is matplotlib's, which custom.css has
    re.S,
)


def parts(colour):
    "#rrggbb as three parts from 0 to 1."
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def mix(one, other, share):
    "A share of the one colour, and the rest of the other."
    pairs = zip(parts(one), parts(other), strict=True)
    return to_hex([share * a + (1 - share) * b for a, b in pairs])


def lifted(colour, least):
    "The colour with as little white as makes it that light."
    steps = (mix(PAPER, colour, share / 50) for share in range(51))
    return next(made for made in steps if luminance(parts(made)) >= least)


@functools.cache
def data_colours():
    "The colours of the book's colour maps, which keep their order: no greys, though some look so."
    maps = (matplotlib.colormaps[name] for name in ("cividis", DIVERGING))
    return {to_hex(found(i)) for found in maps for i in range(found.N)}


@functools.cache
def dark(colour, filled=False, text=False):
    "What a colour becomes on a dark page, where a contrast of 4.5 is a luminance of 0.202."
    red, green, blue = parts(colour)
    light = luminance((red, green, blue))
    if max(red, green, blue) - min(red, green, blue) < 0.12 and colour not in data_colours():
        ink = 1 - (red + green + blue) / 3
        grey = mix(CHALK, GROUND, ink**0.75 if filled else ink)  # an area needs more to be seen
        return lifted(grey, 0.21) if text and light < 0.6 else grey
    if light > 0.6 and filled:
        hue, level, strong = colorsys.rgb_to_hls(red, green, blue)
        return to_hex(colorsys.hls_to_rgb(hue, 0.1 + 0.6 * (1 - level), 0.6 * strong))
    return lifted(colour, 0.22 + 0.4 * light)


def pairs(style, text=False):
    "The colours of a style as pairs; the first of each is for browsers that know no pairs."
    flat = len({colour for _, colour in COLOUR.findall(style)}) == 1

    def pair(found):
        key, light = found[1], found[2].lower()
        area = not text and (key == "fill" or (flat and "fill: #" in style))
        night = dark(light, area, text)
        return f"{key}:{light};{key}:light-dark({light},{night})"

    return COLOUR.sub(pair, style)


def see_through(image):
    "Whether the page is seen through an image of dots, as it is between two attention weights."
    data = base64.b64decode(re.search(r'base64,([^"]+)', image)[1])
    least, _ = Image.open(io.BytesIO(data)).convert("RGBA").getchannel("A").getextrema()
    return least < 255


def image_boxes(drawing):
    "The four sides of the images, which matplotlib draws upside down, and `see_through`."
    for found in re.findall(r"<image ([^>]*)>", drawing):
        said = dict(ATTRIBUTE.findall(found))
        x, y, wide, high = (float(said.get(key, 0)) for key in ("x", "y", "width", "height"))
        if turned := re.search(
            r"scale\(1 -1\) translate\(0 (-?[\d.]+)\)", said.get("transform", "")
        ):
            y = -(y + float(turned[1])) - high
        yield x, y, x + wide, y + high, see_through(found)


def place(said):
    "About where a mark begins, or where a text has its middle."
    found = DIGITS.findall(f"{said.get('x', '')} {said.get('y', '')}") or DIGITS.findall(
        said.get("d", "")
    )
    x, y = (*map(float, found[:2]), 0, 0)[:2]
    return x, y - (3 if "font-size" in said.get("style", "") else 0)


def rounded(number):
    "A number to two decimals, which is finer than a screen."
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def least_width(drawing):
    "The width in pixels at which the smallest label of an SVG is LEAST high; None without labels."
    box = re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+)', drawing)
    sizes = [float(found[1] or found[2]) for found in SIZE.finditer(drawing)]
    return ceil(LEAST * float(box[1]) / min(sizes)) if box and sizes else None


def inline(drawing, image, name):
    "An SVG as a part of a page, in place of `image`; `name` begins the names of its parts."
    boxes = list(image_boxes(drawing))

    def painted(found):
        tag, text, end = found.groups()
        said = {key: value.replace("\n", "") for key, value in ATTRIBUTE.findall(text)}
        x, y = place(said)
        style = said.pop("style", "")
        style = re.sub(r"font(-family)?: ([\d.]+px )?'?(DejaVu Sans|STIX)[^;]*(; )?", font, style)
        for key in ("fill", "stroke"):
            if said.get(key, "").startswith("#"):
                style += f"; {key}: {said.pop(key)}"
        under = [
            clear
            for left, top, right, bottom, clear in boxes
            if left <= x <= right and top <= y <= bottom
        ]
        if under:
            style += "; fill: #000000;" if tag == "text" and "fill" not in style else ""
            if any(under) and tag in ("text", "tspan"):  # white is for dark cells, in both modes
                style = style.replace("#000000", "light-dark(#000000,#ffffff)")
            elif any(under):  # the ground below it, and lines
                style = pairs(style)
        else:
            style = pairs(style, text=tag in ("text", "tspan"))
        for key in {"d", "x", "y", "points"} & set(said):
            said[key] = DIGITS.sub(rounded, said[key])
        if said.get("transform", "").startswith("rotate(-0 "):
            del said["transform"]
        if style.strip("; "):
            said["style"] = style.strip("; ")
        return f"<{tag}" + "".join(f' {key}="{value}"' for key, value in said.items()) + f"{end}>"

    opening, inside = re.search(r"<svg ([^>]*)>(.*)</svg>", DROPPED.sub("", drawing), re.S).groups()
    said = dict(ATTRIBUTE.findall(opening))
    inside = TAG.sub(painted, inside)
    inside = RULE.sub(
        lambda rule: f"#{name} {rule[1].strip()} {{{pairs(rule[2], text=True)}}}", inside
    )
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', inside))
    inside = re.sub(
        r' id="([^"]*)"', lambda f: f' id="{name}-{f[1]}"' if f[1] in used else "", inside
    )
    inside = re.sub(r'(url\(|href=")#', rf"\1#{name}-", inside).replace("xlink:href", "href")
    inside = re.sub(r">\s+<", "><", re.sub(r"(base64,)\s+", r"\1", inside))
    number, unit = re.fullmatch(r"([\d.]+)(pt|px)?", said["width"]).groups()
    least = least_width(drawing)
    shown = {
        "class": " ".join(["drawing", *image.get("class", "").split()]),
        "role": "img",
        "aria-label": image["alt"],
        "viewBox": said["viewBox"],
        "width": str(round(float(number) * (4 / 3 if unit == "pt" else 1))),
        "style": image.get("style", "") + (f"--least:{least}px" if least else ""),
    }
    if "</style>" in inside:
        shown["id"] = name
    attributes = " ".join(f'{key}="{escape(value)}"' for key, value in shown.items())
    return f'<span class="drawing-box"><svg {attributes}>{inside}</svg></span>'


def font(found):
    "A text has the font of the drawing; STIX calls 10 pixels what is 17 in others."
    size = found[2] and float(found[2][:-3]) * (1.7 if "STIXSize" in found[0] else 1)
    return f"font-size: {size:g}px; " if size else ""


def inline_all(page, read):
    "The HTML of a page with its SVG images in it; `read` gives the text of the file of a name."
    count = itertools.count(1)

    def drawn(found):
        image = {key: unescape(value) for key, value in ATTRIBUTE.findall(found["rest"])}
        return inline(read(found["name"]), image, f"drawing-{next(count)}")

    return IMAGE.sub(drawn, page)


def add_drawings(app, pagename, templatename, context, doctree):
    "Put the drawings of a page into it."
    if "body" in context:
        files = {name: path for path, name in getattr(app.builder, "images", {}).items()}
        context["body"] = inline_all(
            context["body"],
            lambda name: Path(app.srcdir, files[name]).read_text(encoding="utf-8"),
        )


def setup(app):
    app.connect("html-page-context", add_drawings)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
