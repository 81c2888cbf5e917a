"""Figures that follow the reader's mode: an SVG stands in its page, in colours for both.

A page that only links to an SVG cannot change it when the reader switches the theme. So the drawing
itself stands in the page, in place of the image, and every colour in it is a pair,
`light-dark(#000000,#ced6dd)`, of which custom.css shows one. Light is what the notebook drew. For
dark

- greys turn over, from white paper and black ink to the ground and the ink of the theme;
- light tints become dark ones of the same hue, and colours that are too dark are lifted, in order;
- data stays: what lies in an image, and fills that are colours of a colour map;
- a text gets an ink that can be read on what lies under it.

The drawing is also made smaller: names that nothing refers to, groups that do nothing and digits
that no screen shows are left out. What is referred to has a name of its own on the page.
"""

import colorsys
import functools
import itertools
import re
import xml.etree.ElementTree as ET
from html import escape, unescape
from math import ceil, cos, radians, sin
from pathlib import Path

import matplotlib
from matplotlib.colors import to_hex

from transformer_lit.course.figures import DIVERGING, SEQUENTIAL, contrast, luminance

PAPER, INK = "#ffffff", "#000000"  # of a figure
GROUND, CHALK = "#121212", "#ced6dd"  # of the theme's dark pages
TEXT = 4.5  # the contrast that a text needs
LEAST = 9  # pixels: on a narrow page a drawing scrolls rather than shrink its labels further
IMAGE = re.compile(r'<img (?P<rest>[^>]*src="[^"]*_images/(?P<name>[^"]+\.svg)"[^>]*)>')
SIZE = re.compile(r"font(?:-size)?: *(?:[a-z]+ )*([\d.]+)px|font-size=\"([\d.]+)")
COLOUR = re.compile(r"#[0-9a-f]{6}", re.I)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
DIGITS = re.compile(r"-?\d+\.\d+")
REFERENCE = re.compile(r"(?<=url\(#)[^)]+|(?<=^#).+")
SVG, XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"


# --- colours ------------------------------------------------------------------------------------


def parts(colour):
    "#rrggbb as three parts from 0 to 1."
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def apart(one, other):
    "The contrast of two colours."
    return contrast(parts(one), parts(other))


def mix(one, other, share):
    "A share of the one colour, and the rest of the other."
    pairs = zip(parts(one), parts(other), strict=True)
    return to_hex([share * a + (1 - share) * b for a, b in pairs])


def towards(colour, end, enough):
    "The colour with as little of `end` as is enough."
    shares = (i / 50 for i in range(51))
    return next((made for i in shares if enough(made := mix(end, colour, i))), end)


@functools.cache
def data_colours():
    "The colours of the book's colour maps."
    maps = (matplotlib.colormaps[name] for name in (SEQUENTIAL, DIVERGING))
    return {to_hex(found(i)) for found in maps for i in range(found.N)}


@functools.cache
def dark(colour, filled=False):
    "What a colour becomes on a dark page."
    red, green, blue = parts(colour)
    data = colour in data_colours()
    if data and filled:
        return colour
    if not data and max(red, green, blue) - min(red, green, blue) < 0.12:
        ink = 1 - (red + green + blue) / 3
        return mix(CHALK, GROUND, ink**0.75 if filled else ink)  # a dark area needs more to be seen
    light = luminance((red, green, blue))
    if light > 0.6 and filled:
        hue, level, strong = colorsys.rgb_to_hls(red, green, blue)
        return to_hex(colorsys.hls_to_rgb(hue, 0.1 + 0.6 * (1 - level), 0.6 * strong))
    least = 0.22 + 0.4 * light  # on the dark ground 0.202 has a contrast of 4.5
    return towards(colour, PAPER, lambda made: luminance(parts(made)) >= least)


@functools.cache
def dark_text(colour, ground):
    "The ink of a text on a dark page, where it lies on `ground`."
    made = dark(colour)
    if found := next((ink for ink in (made, colour) if apart(ink, ground) >= TEXT), None):
        return found
    end = max((GROUND, CHALK, PAPER), key=lambda end: apart(end, ground))
    return towards(made, end, lambda ink: apart(ink, ground) >= TEXT)


# --- what lies where ----------------------------------------------------------------------------


def numbers(text):
    "The numbers that stand in a text."
    return [float(number) for number in NUMBER.findall(text or "")]


def placed(how, x, y):
    "Where a point lies after an SVG transformation."
    for name, values in reversed(re.findall(r"(\w+)\(([^)]*)\)", how)):
        one, *rest = numbers(values)
        if name == "translate":
            x, y = x + one, y + (rest or [0])[0]
        elif name == "scale":
            x, y = x * one, y * (rest or [one])[0]
        elif name == "rotate":
            cx, cy = rest or (0, 0)
            a, b, turn = x - cx, y - cy, radians(one)
            x, y = cx + a * cos(turn) - b * sin(turn), cy + a * sin(turn) + b * cos(turn)
        else:
            raise ValueError(f"inline_figures cannot read the transformation {name!r} of a drawing")
    return x, y


def outline(element, named):
    "The corners of a filled shape; `named` has those of the shapes that are used by name."
    tag = element.tag.removeprefix(SVG)
    if tag not in ("path", "use", "rect", "image"):
        return []
    if tag == "path":
        found = numbers(element.get("d"))
        return list(zip(found[::2], found[1::2], strict=False))
    x, y, width, height = (float(element.get(k, 0)) for k in ("x", "y", "width", "height"))
    if tag == "use":
        return [(x + a, y + b) for a, b in named.get(element.get(XLINK, "#")[1:], ())]
    return [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]


def box(corners):
    "Left, top, right and bottom of a shape."
    xs, ys = zip(*corners, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def middle(corners):
    "The middle of the box around a shape."
    left, top, right, bottom = box(corners)
    return (left + right) / 2, (top + bottom) / 2


def holds(corners, x, y):
    "Whether a point lies in a polygon: a line to its left crosses an odd number of sides."
    sides = zip(corners, corners[1:] + corners[:1], strict=True)
    passed = (side for side in sides if (side[0][1] > y) != (side[1][1] > y))
    crossed = (a + (y - b) / (d - b) * (c - a) < x for (a, b), (c, d) in passed)
    return sum(crossed) % 2 == 1


class Pile:
    "The filled shapes of a drawing so far, the last on top, with their colours on a dark page."

    def __init__(self):
        self.shapes, self.named = [], {}

    def under(self, x, y):
        "The colour that lies under a point; None for an image."
        for (left, top, right, bottom), corners, colour in reversed(self.shapes):
            if left < x < right and top < y < bottom and holds(corners, x, y):
                return colour
        return GROUND

    def put(self, corners, colour, share=1):
        "Lay a shape on top; of its colour a share is opaque."
        if share < 1:
            under = self.under(*middle(corners))
            colour = mix(colour, under, share) if under else None
        self.shapes.append((box(corners), corners, colour))


def middle_of_text(text, style, how):
    "About where the middle of a text lies."
    parts = list(text) or [text]
    starts = [float(part.get("x", 0)) for part in parts]
    sizes = [numbers(declared(part).get("font-size", "10"))[0] for part in parts]
    wide = max(starts) - starts[0] + 0.6 * sizes[-1] * len(parts[-1].text or "")
    side = {"middle": 0, "end": -0.5}.get(style.get("text-anchor"), 0.5)
    return placed(how, starts[0] + side * wide, float(parts[0].get("y", 0)) - 0.35 * sizes[0])


# --- the drawing --------------------------------------------------------------------------------


def declared(element):
    "The style of an element: what its attribute `style` says, and the attributes fill and stroke."
    rules = (rule.partition(":") for rule in element.get("style", "").split(";") if ":" in rule)
    own = {key: element.get(key) for key in ("fill", "stroke") if element.get(key)}
    return own | {key.strip(): value.strip() for key, _, value in rules}


def pair(key, light, night):
    "The declaration of a colour for both modes; the first half is for browsers that know no pairs."
    return f"{key}:{light}" + (f";{key}:light-dark({light},{night})" if night != light else "")


def write(element, style, nights):
    "The style of an element, with its colours in the dark."
    for key in ("style", "fill", "stroke"):
        element.attrib.pop(key, None)
    if style.get("fill") == INK and nights.get("fill") == CHALK:
        del style["fill"]  # the drawing's own
    rules = (pair(key, value, nights.get(key, value)) for key, value in style.items())
    if style:
        element.set("style", ";".join(rules))


def paint(element, pile, how="", fill=INK, drawn=True):
    "Give every colour from `element` on its pair; `drawn` is false for what is only named."
    tag, style = element.tag.removeprefix(SVG), declared(element)
    how = f"{how} {element.get('transform', '')}"
    fill = style.get("fill", fill)
    nights = {k: style[k] for k in ("fill", "stroke") if COLOUR.fullmatch(style.get(k, ""))}
    corners = [placed(how, *corner) for corner in outline(element, pile.named)]
    if tag == "text":
        ground = pile.under(*middle_of_text(element, style, how))
        style["fill"], nights["fill"] = fill, dark_text(fill, ground) if ground else fill
    elif drawn and corners and pile.under(*middle(corners)) is None:  # on an image all stays
        style["fill"] = fill
    else:
        flat = style.get("stroke") == fill
        nights = {k: dark(v, k == "fill" or flat) for k, v in nights.items()}
    if tag in ("text", "tspan"):
        write_font(style)
    write(element, style, nights)
    if corners and element.get("id"):
        pile.named[element.get("id")] = corners
    if drawn and tag == "image":
        pile.put(corners, None)
    elif drawn and corners and fill != "none":
        share = float(style.get("opacity", 1)) * float(style.get("fill-opacity", 1))
        pile.put(corners, nights.get("fill", dark(fill, True)), share)
    for child in element:
        paint(child, pile, how, fill, drawn and tag not in ("defs", "clipPath"))


def write_font(style):
    "Leave a text the font of the drawing; a root sign comes from one that no reader has."
    family = style.get("font-family", "")
    if "DejaVu Sans" in family or "STIX" in family:
        del style["font-family"]
    if "STIXSize" in family:  # what it calls 10 pixels is as tall as others are with 17
        style["font-size"] = f"{1.7 * numbers(style['font-size'])[0]:.2f}px"


def spread(root):
    "Write the rules of a drawing's style sheets into its elements: on a page they would reach on."
    for sheet in [found for found in root.iter() if found.tag == SVG + "style"]:
        for selector, rules in reversed(re.findall(r"([^{}]+)\{([^{}]*)\}", sheet.text or "")):
            name = selector.strip()
            for element in root.iter() if name != "*" else ():
                if name in (element.tag.removeprefix(SVG), f".{element.get('class')}"):
                    element.set("style", f"{rules.strip().rstrip(';')};{element.get('style', '')}")


def quoted(text):
    "A text as the value of an attribute."
    return escape(text, quote=False).replace('"', "&quot;")


def rounded(number):
    "A number to two decimals, which is finer than a screen."
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def tidy(element, names):
    "An element as HTML, without what does nothing; `names` has new names for those that are used."
    tag = element.tag.removeprefix(SVG)
    if tag in ("metadata", "style", "title"):
        return ""
    said = {}
    for key, value in element.attrib.items():
        value = REFERENCE.sub(lambda found: names[found[0]], value.replace("\n", ""))
        if key in ("d", "x", "y", "points"):
            value = DIGITS.sub(rounded, value)
        if key == "id":
            value = names.get(value)
        if value and not (key == "transform" and value.startswith("rotate(-0 ")) and key != "class":
            said["href" if key == XLINK else key] = value
    inside = escape((element.text or "").strip(), quote=False)
    inside += "".join(tidy(child, names) for child in element)
    if (tag == "g" and not said) or (tag in ("g", "defs", "clipPath") and not inside):
        return inside
    opening = f"<{tag}" + "".join(f' {key}="{quoted(value)}"' for key, value in said.items())
    return f"{opening}>{inside}</{tag}>" if inside else f"{opening}/>"


def least_width(drawing):
    "The width in pixels at which the smallest label of an SVG is LEAST high; None without labels."
    box = re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+)', drawing)
    sizes = [float(found[1] or found[2]) for found in SIZE.finditer(drawing)]
    return ceil(LEAST * float(box[1]) / min(sizes)) if box and sizes else None


def width(root):
    "The width of a drawing in pixels."
    number, unit = re.fullmatch(r"([\d.]+)(pt|px)?", root.get("width")).groups()
    return round(float(number) * (4 / 3 if unit == "pt" else 1))


def inline(drawing, image, name):
    """An SVG as a part of a page: `image` has the attributes of the image that it replaces.

    `name` begins the names of its parts, and is no other drawing's on the page.
    """
    root = ET.fromstring(drawing)
    spread(root)
    paint(root, Pile())
    values = (value for element in root.iter() for value in element.attrib.values())
    used = sorted({label for value in values for label in REFERENCE.findall(value)})
    names = {label: f"{name}-{i}" for i, label in enumerate(used)}
    inside = "".join(tidy(child, names) for child in root)
    least = least_width(drawing)
    style = image.get("style", "") + (f"--least:{least}px" if least else "")
    said = {
        "class": " ".join(["drawing", *image.get("class", "").split()]),
        "role": "img",
        "aria-label": image["alt"],
        "viewBox": root.get("viewBox"),
        "width": str(width(root)),
        "style": style,
    }
    opening = " ".join(f'{key}="{quoted(value)}"' for key, value in said.items())
    return f'<span class="drawing-box"><svg {opening}>{inside}</svg></span>'


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
