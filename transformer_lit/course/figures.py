"""Figures, drawings and tables in one style: colour-blind safe, small, with real labels."""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from transformer_lit.course.files import atomic_path, optional

with optional("A figure"):
    import matplotlib.pyplot as plt
    from matplotlib import colormaps
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap, to_rgb, to_rgba
    from matplotlib.image import AxesImage
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, PathPatch, Rectangle
    from matplotlib.path import Path as Outline

# Okabe and Ito's colours. Neighbours differ in lightness, and the first four contrast with white.
PALETTE = ("#0072B2", "#CC79A7", "#000000", "#009E73", "#E69F00", "#D55E00", "#56B4E9")
# Query, key and value have the same colours in every figure; custom.css has them too.
HUES = {"q": "#0072b2", "k": "#b85000", "v": "#00795a"}
WEIGHT = "#8a4fb5"  # the colour of an attention weight of 1
# for weights and counts: from transparent to opaque, so that it works on light and dark pages
SEQUENTIAL = "weights"
colormaps.register(
    LinearSegmentedColormap.from_list(SEQUENTIAL, [to_rgba(WEIGHT, a) for a in (0, 1)]), force=True
)
DIVERGING = "PuOr"  # for values around zero
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)))


def use_style() -> None:
    """Set the course's style for matplotlib, and SVG output if a notebook shows the figure.

    Figures have an opaque white background. The book's dark pages invert their colours.
    """
    plt.style.use(str(files("transformer_lit") / "course/style.mplstyle"))
    lines = plt.cycler(color=PALETTE) + plt.cycler(linestyle=_DASHES)
    plt.rcParams["axes.prop_cycle"] = lines
    try:
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:
        return
    if get_ipython() is not None:
        set_matplotlib_formats("svg", metadata={"Date": None, "Creator": None})


def luminance(colour: Sequence[float]) -> float:
    "The relative luminance of an sRGB colour with components from 0 to 1; black 0, white 1."
    parts = np.asarray(colour, dtype=float)[:3]
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def contrast(one: Sequence[float], other: Sequence[float]) -> float:
    "The contrast ratio of two colours: 1 if they are equally light, 21 for black and white."
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def heatmap(
    ax: Axes,
    values: Any,
    *,
    rows: list[str] | None = None,
    columns: list[str] | None = None,
    low: int | float | None = None,
    high: int | float | None = None,
    cmap: str = SEQUENTIAL,
    digits: int | None = None,
) -> AxesImage:
    """Draw a matrix as coloured cells, with row 0 at the top and column labels above.

    Args:
        values: lists, an array or a tensor of shape rows × columns.
        rows: tick labels, top to bottom.
        columns: tick labels, left to right.
        low: the value at the bottom of the colour scale.
        digits: print each value with this many decimals.
    """
    values = np.asarray(values, dtype=float)
    if values.ndim != 2:
        raise ValueError(f"a heatmap needs a matrix, got shape {values.shape}. For a row: [values]")
    image = ax.imshow(values, cmap=cmap, vmin=low, vmax=high, aspect="equal")
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    if rows is not None:
        ax.set_yticks(range(len(rows)), rows)
    if columns is not None:
        slanted = {"rotation": 60, "ha": "left", "rotation_mode": "anchor"}
        ax.set_xticks(range(len(columns)), columns, **slanted if max(map(len, columns)) > 2 else {})
    if digits is not None:
        for (i, j), value in np.ndenumerate(values):
            *colour, alpha = image.cmap(image.norm(value))
            cell = luminance([alpha * part + 1 - alpha for part in colour])  # on white
            ink = "white" if cell < 0.179 else "black"  # black contrasts more from 0.179 on
            ax.text(j, i, f"{value:.{digits}f}", ha="center", va="center", color=ink, fontsize=9)
    return image


def _apart(wanted: Sequence[float], gap: float, top: float) -> list[float]:
    "Ascending heights, moved as little as possible to be `gap` apart between 0 and `top`."
    groups: list[list[float]] = []  # labels that touch move together; heights without the gaps
    for place, height in enumerate(wanted):
        groups.append([height - place * gap])
        while len(groups) > 1 and np.mean(groups[-2]) > np.mean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    highest = top - (len(wanted) - 1) * gap
    level = [max(min(float(np.mean(group)), highest), 0) for group in groups for _ in group]
    return [one + place * gap for place, one in enumerate(level)]


def ink_of(colour: Any) -> tuple[float, ...]:
    "A line's colour for text next to it, darkened until it is readable on white."
    ink = to_rgb(colour)
    while contrast(ink, (1.0, 1.0, 1.0)) < 4.5:
        ink = tuple(0.97 * part for part in ink)
    return ink


def name_lines(ax: Axes) -> None:
    """Write each line's label next to its right end, in its colour, instead of a legend.

    Labels that would touch are moved apart, and a thin line leads to each one. If the plotted line
    ends early, the thin line is dotted, so that it isn't mistaken for data.
    """
    fig = ax.get_figure()
    fig.draw_without_rendering()  # from here on the axes have their final size
    inch, box, size = fig.dpi, ax.get_window_extent(), plt.rcParams["font.size"] - 1
    named = [line for line in ax.get_lines() if not line.get_label().startswith("_")]
    ends = {line: line.get_transform().transform(line.get_xydata()[-1]) for line in named}
    named.sort(key=lambda line: ends[line][1])
    wanted = [ends[line][1] - box.y0 for line in named]
    heights = _apart(wanted, 1.25 * size / 72 * inch, box.height)
    for line, height in zip(named, heights, strict=True):
        early = box.x1 - ends[line][0] > box.width / 10
        leader = {"arrowstyle": "-", "color": line.get_color(), "relpos": (0, 0.5)}
        ax.annotate(
            line.get_label(),
            line.get_xydata()[-1],
            xycoords=line.get_transform(),
            xytext=(1 + 0.2 * inch / box.width, height / box.height),
            textcoords="axes fraction",
            va="center",
            fontsize=size,
            color=ink_of(line.get_color()),
            annotation_clip=False,
            arrowprops=leader | ({"lw": 0.8, "ls": ":"} if early else {"lw": 1}),
        )


def draw_curve(curve: Sequence[dict[str, Any]], path: str | Path, *, title: str = "") -> None:
    "Plot the training and validation loss over the steps of a run, as an SVG file."
    with plt.rc_context():
        use_style()
        fig, ax = plt.subplots()
        at = [row["step"] for row in curve]
        mark = "o" if len(at) < 2 else None  # a single point has no line
        ax.plot(at, [row["train_loss"] for row in curve], marker=mark, label="training")
        ax.plot(at, [row["val_loss"] for row in curve], marker=mark, label="validation")
        ax.set(xlabel="step", ylabel="loss (nats per token)", title=title)
        ax.legend()
        with atomic_path(path) as temporary:
            fig.savefig(temporary, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(fig)


# --- boxes and arrows ---------------------------------------------------------------------------


# kind -> fill and border. Learned things have a thick border, but no special colour.
KINDS = {
    "data": ("#eeeeee", "#777777"),
    "learned": ("#ffffff", "#333333"),
    "operation": ("#ffffff", "#333333"),
    "layer": ("#eeeeee", "#333333"),
    "q": ("#d3e8f5", HUES["q"]),
    "k": ("#fbe0cd", HUES["k"]),
    "v": ("#cdeee3", HUES["v"]),
    "weights": ("#e2cdf2", WEIGHT),
}
THICK = ("learned", "layer")
Number = int | float
Point = tuple[Number, Number]


class Box:
    "A box in a sketch: its centre, its size and the midpoints of its sides, in sketch units."

    def __init__(self, x: Number, y: Number, width: Number, height: Number):
        self.x, self.y, self.width, self.height = x, y, width, height
        self.top, self.bottom = (x, y + height / 2), (x, y - height / 2)
        self.left, self.right = (x - width / 2, y), (x + width / 2, y)


class Sketch:
    """A canvas for tensors, boxes and arrows: x to the right, y upwards, both from 0.

    A sketch at most 7.4 wide, with $…$ at size 13, can be read on a phone without zooming.
    """

    def __init__(self, width: Number, height: Number):
        self.figure, self.ax = plt.subplots(figsize=(0.64 * width, 0.64 * height))
        self.ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
        self.ax.axis("off")

    def box(
        self,
        x: Number,
        y: Number,
        text: str,
        kind: str = "operation",
        *,
        width: Number = 1.8,
        height: Number = 0.62,
        size: Number = 10,
    ) -> Box:
        """Draw a box with text in the middle; its kind shows what it represents.

        Args:
            x: the centre.
            kind: see KINDS.
            size: the font size, in points.
        """
        if kind not in KINDS:
            raise ValueError(f"No kind of box named {kind!r}. Known: {', '.join(KINDS)}")
        ground, border = KINDS[kind]
        self.ax.add_patch(
            FancyBboxPatch(
                (x - width / 2, y - height / 2),
                width,
                height,
                boxstyle="round,pad=0,rounding_size=0.1",
                facecolor=ground,
                edgecolor=border,
                linewidth=2.6 if kind in THICK else 1.2,
            )
        )
        self.text(x, y, text, size=size)
        return Box(x, y, width, height)

    def tensor(
        self,
        x: Number,
        y: Number,
        axes: str,
        size: Sequence[int],
        kind: str = "data",
        *,
        name: str = "",
        learned: bool = False,
        slices: int = 1,
        cell: Number = 0.2,
    ) -> Box:
        """Draw a matrix of cells with letters at its sides; a third axis gives a stack of matrices.

        Args:
            x: the centre of the front matrix.
            axes: the letters of the axes, columns last: "B T C"; "_" means no letter.
            size: the number of cells drawn along each axis.
            slices: into how many parts, such as heads, the columns are divided.
        """
        ground, border = KINDS[kind]
        *_, high, wide = size
        stack = size[0] if len(size) == 3 else 1
        left, low = x - wide * cell / 2, y - high * cell / 2
        right, top = left + wide * cell, low + high * cell
        for step in reversed(range(stack)):
            self.ax.add_patch(
                Rectangle(
                    (left + 0.12 * step, low + 0.12 * step),
                    wide * cell,
                    high * cell,
                    facecolor="#ffffff" if learned else ground,
                    edgecolor=border,
                    linewidth=2.6 if learned else 1,
                )
            )
        at = [((left + n * cell, low), (left + n * cell, top)) for n in range(1, wide)]
        at += [((left, low + n * cell), (right, low + n * cell)) for n in range(1, high)]
        cuts = [cut for n, cut in enumerate(at[: wide - 1], 1) if n * slices % wide == 0]
        for lines, width, opacity in ((at, 0.5, 0.35), (cuts, 1.8, 1)):
            if lines:
                ends = [point for line in lines for point in line]
                path = Outline(ends, [Outline.MOVETO, Outline.LINETO] * len(lines))
                style = {"edgecolor": border, "linewidth": width, "alpha": opacity}
                self.ax.add_patch(PathPatch(path, facecolor="none", **style))
        if name:
            self.text(x, y, name, size=13 if "$" in name else 10.5)
        depth = 0.12 * (stack - 1)
        places = [  # above the first column, next to the first row, at the back of the stack
            (left + depth + 0.12, top + depth + 0.17),
            (left - 0.16, top - 0.12),
            (right + depth + 0.15, top + depth - 0.1),
        ]
        for letter, place in zip(reversed(axes.split()), places):
            if letter != "_":
                self.text(*place, letter, size=9.5)
        return Box(x, y + depth / 2, wide * cell, high * cell + depth)

    def join(self, *boxes: Box) -> None:
        "Draw arrows from box to box: straight if two boxes face each other, else round a corner."
        for one, other in pairwise(boxes):
            across, up = other.x - one.x, other.y - one.y
            if abs(across) < max(one.width, other.width) / 2:
                x = min(one, other, key=lambda box: box.width).x
                ends = (one.top, other.bottom) if up > 0 else (one.bottom, other.top)
                (_, start), (_, end) = ends
                self.arrow((x, start), (x, end))
            elif abs(up) < max(one.height, other.height) / 2:
                y = min(one, other, key=lambda box: box.height).y
                ends = (one.right, other.left) if across > 0 else (one.left, other.right)
                (start, _), (end, _) = ends
                self.arrow((start, y), (end, y))
            else:
                start = one.right if across > 0 else one.left
                end = other.bottom if up > 0 else other.top
                self.arrow(start, end, via=[(other.x, one.y)])

    def arrow(
        self,
        start: Point,
        end: Point,
        *,
        via: Sequence[Point] = (),
        text: str = "",
        kind: str = "operation",
    ) -> None:
        """Draw an arrow between two points, with corners at `via` and text next to its last part.

        Args:
            kind: the arrow has the colour of this kind's border.
        """
        corners = [start, *via]
        for one, other in pairwise(corners):
            self.line(one, other, kind=kind)
        self.ax.add_patch(
            FancyArrowPatch(
                corners[-1],
                end,
                arrowstyle="-|>",
                mutation_scale=11,
                shrinkA=0,
                shrinkB=0,
                linewidth=1.2,
                color=KINDS[kind][1],
            )
        )
        if text:
            middle = (corners[-1][0] + end[0]) / 2, (corners[-1][1] + end[1]) / 2
            self.text(middle[0] + 0.1, middle[1], text, size=9.5, align="left")

    def line(
        self, start: Point, end: Point, *, dashed: bool = False, kind: str = "operation"
    ) -> None:
        "Draw a line without an arrowhead."
        style = (0, (4, 2)) if dashed else "-"
        self.ax.plot(*zip(start, end, strict=True), color=KINDS[kind][1], lw=1.2, ls=style)

    def frame(self, x: Number, y: Number, width: Number, height: Number, text: str) -> None:
        "Draw a dashed frame, placed by its lower left corner, with its name at the upper left."
        corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)]
        for one, other in pairwise(corners):
            self.line(one, other, dashed=True)
        self.text(x + 0.1, y + height - 0.22, text, size=9.5, align="left")

    def text(
        self,
        x: Number,
        y: Number,
        text: str,
        *,
        size: Number = 10,
        align: str = "center",
        turn: Number = 0,
    ) -> None:
        """Draw text without a box; $…$ is mathematics.

        Args:
            turn: rotation in degrees.
        """
        self.ax.text(x, y, text, fontsize=size, ha=align, va="center", color="black", rotation=turn)


# --- tables -------------------------------------------------------------------------------------


Cell = str | int | float
_NUMBER = re.compile(r"[+−-]?(\.?\d|(inf|nan)$)")
_NOTHING = ("", "–")  # a cell without a value


def _text(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:g}"


def _is_numbers(column: Sequence[str]) -> bool:
    filled = [text for text in column if text not in _NOTHING]
    return bool(filled) and all(_NUMBER.match(text) for text in filled)


_LEFT, _RIGHT = "text-align: left", "text-align: right"
_COLUMN, _ROW = 'th scope="col"', 'th scope="row"'


def _tr(cells: Sequence[str], styles: Sequence[str], first: str, others: str) -> str:
    "A table row in HTML. `first` and `others` are the tags of the first and the other cells."
    parts = []
    for text, style, tag in zip(cells, styles, [first] + [others] * len(cells)):
        tag = tag if text else "td"  # an empty cell isn't a header
        inside = html.escape(text, quote=False).replace("\n", "<br>")
        parts.append(f'<{tag} style="{style}">{inside}</{tag.split()[0]}>')
    return f"<tr>{''.join(parts)}</tr>"


@dataclass(frozen=True, repr=False)
class Table:
    """Rows below a header, shown as HTML in a notebook or page, and as aligned columns elsewhere.

    The first column names the rows. A cell may have several lines. `ValueError` if a row has more
    or fewer cells than the header.
    """

    header: Sequence[str]
    rows: Iterable[Sequence[Cell]]
    caption: str | None = None

    def __post_init__(self) -> None:
        rows = tuple(tuple(map(_text, row)) for row in self.rows)
        for place, row in enumerate(rows, 1):
            if len(row) != len(self.header):
                columns = f"{len(self.header)} columns {list(self.header)}"
                raise ValueError(f"row {place} has {len(row)} cells for {columns}: {list(row)}")
        object.__setattr__(self, "header", tuple(self.header))
        object.__setattr__(self, "rows", rows)

    def _columns_of_numbers(self) -> list[bool]:
        return [_is_numbers(column) for column in zip(*self.rows)] or [False] * len(self.header)

    def __repr__(self) -> str:
        lines = [
            line
            for row in (self.header, *self.rows)
            for line in zip_longest(*(cell.split("\n") for cell in row), fillvalue="")
        ]
        widths = [max(map(len, column)) for column in zip(*lines)]
        put = [str.rjust if numbers else str.ljust for numbers in self._columns_of_numbers()]
        shown = [
            "  ".join(f(cell, width) for f, cell, width in zip(put, line, widths)).rstrip()
            for line in lines
        ]
        return "\n".join([self.caption, *shown] if self.caption else shown)

    def _repr_html_(self) -> str:
        head = [_RIGHT if numbers else _LEFT for numbers in self._columns_of_numbers()]
        body = [f"{side}; white-space: nowrap" if side == _RIGHT else side for side in head]
        lines = ['<table class="tl-table">']
        if self.caption:
            lines.append(f"<caption>{html.escape(self.caption, quote=False)}</caption>")
        lines += [f"<thead>{_tr(self.header, head, _COLUMN, _COLUMN)}</thead>", "<tbody>"]
        lines += [_tr(cells, body, _ROW, "td") for cells in self.rows]
        return "\n".join([*lines, "</tbody>", "</table>"])
