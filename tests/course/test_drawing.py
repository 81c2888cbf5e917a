"Arrows meet boxes, and what is drawn is on the page."

import matplotlib.pyplot as plt
import pytest

from transformer_lit.course.figures import KINDS, Box, Sketch


@pytest.fixture
def sketch():
    yield Sketch(7, 3)
    plt.close()


def test_the_sides_of_a_box():
    box = Box(3.0, 2.0, 1.8, 0.6)
    assert (box.top, box.bottom) == ((3.0, 2.3), (3.0, 1.7))
    assert box.left == pytest.approx((2.1, 2.0)) and box.right == pytest.approx((3.9, 2.0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_box_has_its_text_and_its_ground(sketch, kind):
    box = sketch.box(2, 1, "softmax", kind, width=1.1)
    assert (box.x, box.y, box.width) == (2, 1, 1.1)
    assert [text.get_text() for text in sketch.ax.texts] == ["softmax"]
    ground, border = (plt.matplotlib.colors.to_hex(c) for c in _colours(sketch))
    assert (ground, border) == tuple(colour.lower() for colour in KINDS[kind])


def _colours(sketch):
    patch = sketch.ax.patches[0]
    return patch.get_facecolor(), patch.get_edgecolor()


def test_an_arrow_goes_round_corners(sketch):
    sketch.arrow((1, 1), (5, 2), via=[(1, 2)], text="memory")
    (line,) = sketch.ax.lines
    assert line.get_xydata().tolist() == [[1, 1], [1, 2]]
    assert len(sketch.ax.patches) == 1 and sketch.ax.texts[0].get_text() == "memory"


def test_a_frame_is_closed(sketch):
    sketch.frame(1, 1, 3, 1, "layer")
    ends = [line.get_xydata().tolist() for line in sketch.ax.lines]
    assert ends[0][0] == ends[-1][1] and len(ends) == 4


def test_an_unknown_kind_is_named(sketch):
    with pytest.raises(ValueError, match="unknown kind 'unheard-of'; known are: data, "):
        sketch.box(2, 1, "?", "unheard-of")
