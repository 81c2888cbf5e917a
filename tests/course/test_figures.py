"""The style keeps what it promises: lightness, ink, text in the file, the same file each time."""

import io
from itertools import pairwise

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from transformer_lit.course.figures import (
    DIVERGING,
    PALETTE,
    SEQUENTIAL,
    contrast,
    heatmap,
    luminance,
    name_lines,
    use_style,
)

WHITE = (1.0, 1.0, 1.0)


@pytest.fixture(autouse=True)
def style():
    mpl.use("Agg")
    with plt.rc_context():
        use_style()
        yield
    plt.close("all")


@pytest.fixture
def ax():
    return plt.subplots()[1]


def svg(figure):
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


class TestColours:
    # WCAG 2's own examples, to the digits that they are given in
    @pytest.mark.parametrize(
        ("colour", "expected"),
        [("#000000", 21.0), ("#777777", 4.48), ("#ffffff", 1.0), ("red", 4.0)],
    )
    def test_contrast_to_white_as_published(self, colour, expected):
        assert contrast(to_rgb(colour), WHITE) == pytest.approx(expected, abs=5e-3)

    def test_neighbours_differ_in_grey_and_the_first_four_stand_out(self):
        colours = [to_rgb(colour) for colour in PALETTE]
        assert len(set(PALETTE)) == 7
        assert min(contrast(a, b) for a, b in pairwise(colours)) > 1.5
        assert min(contrast(colour, WHITE) for colour in colours[:4]) >= 3

    def test_lines_differ_in_colour_and_dash(self, ax):
        lines = [ax.plot([0, 1], [i, i])[0] for i in range(7)]
        assert [line.get_color() for line in lines] == list(PALETTE)
        assert len({str(line._dash_pattern) for line in lines}) == 7

    @pytest.mark.parametrize(("page", "way"), [(1.0, -1), (0x12 / 255, 1)])
    def test_the_sequential_map_leaves_the_page_step_by_step_in_light_and_dark(self, page, way):
        colours = [mpl.colormaps[SEQUENTIAL](x) for x in np.linspace(0, 1, 41)]
        levels = [luminance([a * part + (1 - a) * page for part in rgb]) for *rgb, a in colours]
        assert all(way * (b - a) > 0 for a, b in pairwise(levels))
        assert contrast(colours[-1], (page,) * 3) >= 3  # the largest weight

    def test_the_diverging_map_is_lightest_in_the_middle(self):
        levels = [luminance(mpl.colormaps[DIVERGING](x)) for x in (0.05, 0.5, 0.95)]
        assert levels[1] > 0.8 and max(levels[0], levels[2]) < 0.2


class TestFiles:
    def draw(self):
        figure, ax = plt.subplots()
        ax.plot(range(11), label="loss")
        ax.set(xlabel="step", ylabel="loss (nats)")
        ax.legend()
        return svg(figure)

    def test_text_stays_text_and_the_file_is_small(self):
        text = self.draw()
        assert b">loss (nats)</text>" in text
        assert len(text) < 60_000

    def test_the_same_figure_gives_the_same_bytes(self):
        assert self.draw() == self.draw()

    def test_the_ground_is_opaque_white(self):
        assert plt.rcParams["figure.facecolor"] == plt.rcParams["savefig.facecolor"] == "white"
        assert b"fill: #ffffff" in self.draw()


class TestNameLines:
    def names(self, ax):
        "Text and middle of each name, in the order of the page."
        name_lines(ax)
        ax.get_figure().draw_without_rendering()
        found = [(one.get_text(), Text.get_window_extent(one)) for one in ax.texts]
        return sorted(found, key=lambda one: one[1].y0)

    @pytest.mark.parametrize("seed", range(3))
    def test_names_stand_in_the_order_of_the_ends_and_do_not_touch(self, ax, seed):
        ends = np.random.default_rng(seed).normal(size=7) ** 3  # some close together
        for i, end in enumerate(ends):
            ax.plot([0, 1], [0, end], label=f"line {i}")
        ax.plot([0, 1], [0, 5])  # it has no name
        ax.axhline(1.7, label="level")  # its ends are no data
        texts, boxes = zip(*self.names(ax), strict=True)
        wanted = [*zip(ends, (f"line {i}" for i in range(7))), (1.7, "level")]
        assert list(texts) == [name for _, name in sorted(wanted)]
        assert all(above.y0 > below.y1 for below, above in pairwise(boxes))
        assert min(box.x0 for box in boxes) > ax.get_window_extent().x1

    def test_a_name_has_the_colour_of_its_line_as_far_as_white_paper_bears_it(self, ax):
        for i in range(7):
            ax.plot([0, 1], [0, i], label=str(i))
        name_lines(ax)
        for name in ax.texts:
            ink, line = to_rgb(name.get_color()), to_rgb(PALETTE[int(name.get_text())])
            assert contrast(ink, WHITE) >= 4.5
            share = max(ink) / (max(line) or 1)  # black has no hue
            np.testing.assert_allclose(ink, share * np.array(line))
            assert contrast(line, WHITE) < 4.5 or ink == line

    def test_what_leads_from_an_early_end_is_no_more_of_the_line(self, ax):
        for end in (13, 5):
            ax.plot(range(end), range(end), label=str(end))
        name_lines(ax)
        styles = {name.get_text(): name.arrow_patch.get_linestyle() for name in ax.texts}
        assert styles["5"] == ":" != styles["13"]

    def test_names_with_room_stand_at_their_ends(self, ax):
        for i in range(3):
            ax.plot([0, 1], [1, i], label=str(i))
        for text, box in self.names(ax):
            (_, end), middle = ax.transData.transform((1, int(text))), (box.y0 + box.y1) / 2
            assert abs(middle - end) < 3  # pixels


class TestHeatmap:
    def test_row_0_is_on_top_and_labels_name_rows_and_columns(self, ax):
        rows, columns = ["a", "b", "c"], list("vwxyz")
        image = heatmap(ax, torch.eye(3, 5), rows=rows, columns=columns, low=-1, high=1)
        assert ax.yaxis_inverted() and image.get_clim() == (-1, 1)
        assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b", "c"]
        assert [t.get_text() for t in ax.get_xticklabels()] == list("vwxyz")
        assert ax.xaxis.get_ticks_position() == "top"

    @pytest.mark.parametrize(("columns", "angle"), [(["1", "22", "3"], 0), (["1", "two", "3"], 60)])
    def test_long_labels_are_slanted(self, ax, columns, angle):
        heatmap(ax, np.eye(2, 3), columns=columns)
        assert {t.get_rotation() for t in ax.get_xticklabels()} == {angle}

    @pytest.mark.parametrize("cmap", [SEQUENTIAL, DIVERGING, "viridis", "gray"])
    def test_values_are_printed_in_the_ink_that_stands_out(self, ax, cmap):
        values = np.linspace(-1, 1, 77).reshape(7, 11)
        image = heatmap(ax, values, cmap=cmap, digits=2)
        assert len(ax.texts) == 77
        for text in ax.texts:
            j, i = (round(x) for x in text.get_position())
            assert text.get_text() == f"{values[i, j]:.2f}"
            *rgb, alpha = image.cmap(image.norm(values[i, j]))
            ground = [alpha * part + 1 - alpha for part in rgb]
            assert contrast(to_rgb(text.get_color()), ground) > 4.5

    @pytest.mark.parametrize("shape", [(3,), (2, 3, 5)])
    def test_what_is_no_matrix_is_named(self, ax, shape):
        with pytest.raises(ValueError, match=str(shape).replace("(", r"\(").replace(")", r"\)")):
            heatmap(ax, np.zeros(shape))
