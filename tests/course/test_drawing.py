"Arrows meet boxes, and what is drawn is on the page."

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex, to_rgb

from transformer_lit.course.figures import KINDS, THICK, Sketch


@pytest.fixture
def sketch():
    yield Sketch(7, 3)
    plt.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_box_has_its_text_and_its_ground(sketch, kind):
    box = sketch.box(2, 1, "softmax", kind, width=1.1)
    assert (box.x, box.y, box.width) == (2, 1, 1.1)
    assert [text.get_text() for text in sketch.ax.texts] == ["softmax"]
    [patch] = sketch.ax.patches
    assert (to_hex(patch.get_facecolor()), to_hex(patch.get_edgecolor())) == KINDS[kind]


def test_what_is_learned_has_a_thick_border_and_never_a_colour(sketch):
    grounds = {kind: KINDS[kind][0] for kind in ("learned", "operation", "data", "layer")}
    assert all(to_rgb(ground) == (to_rgb(ground)[0],) * 3 for ground in grounds.values())
    for kind in KINDS:
        sketch.box(2, 1, "", kind)
        sketch.tensor(5, 1, "C D", (3, 2), kind, learned=True)
    thin = [patch.get_linewidth() for patch in sketch.ax.patches[::3]]
    assert {kind for kind, width in zip(KINDS, thin) if width > 2} == set(THICK)
    for block in sketch.ax.patches[1::3]:
        assert block.get_linewidth() > 2 and to_hex(block.get_facecolor()) == "#ffffff"


def test_a_tensor_is_as_wide_as_its_axes_and_has_their_letters(sketch):
    block = sketch.tensor(3, 1, "B T C", (2, 3, 5), "q", name="$q$", cell=0.2)
    back, front, grid = sketch.ax.patches
    for rectangle in (back, front):
        assert (rectangle.get_width(), rectangle.get_height()) == pytest.approx((1.0, 0.6))
    assert back.get_x() > front.get_x() and back.get_y() > front.get_y()
    assert len(grid.get_path().vertices) == 2 * (4 + 2)  # lines between five columns, three rows
    assert [text.get_text() for text in sketch.ax.texts] == ["$q$", "C", "T", "B"]
    assert (block.x, block.bottom) == (3, (3, pytest.approx(0.7)))
    sketch.tensor(3, 1, "_ _", (1, 2))
    assert len(sketch.ax.texts) == 4


def test_heads_are_slices_of_the_columns(sketch):
    sketch.tensor(3, 1, "T H·D", (2, 6), slices=3, cell=0.5)
    cuts = sketch.ax.patches[-1].get_path().vertices
    assert cuts[:, 0].tolist() == pytest.approx([2.5, 2.5, 3.5, 3.5])


@pytest.mark.parametrize(
    ("other", "start", "end", "corners"),
    [
        ((1, 2.5), (1, 0.8), (1, 2.2), 0),  # above
        ((4, 0.5), (1.9, 0.5), (3.1, 0.5), 0),  # to the right
        ((4, 2.5), (1.9, 0.5), (4, 2.2), 1),  # both
    ],
)
def test_boxes_are_joined_from_the_sides_that_face_each_other(sketch, other, start, end, corners):
    boxes = [sketch.box(*place, "", width=1.8, height=0.6) for place in ((1, 0.5), other)]
    sketch.join(*boxes)
    lines = [line.get_xydata().tolist() for line in sketch.ax.lines]
    arrow = sketch.ax.patches[-1]
    first, last = arrow._posA_posB
    assert tuple(lines[0][0] if lines else first) == pytest.approx(start)
    assert tuple(last) == pytest.approx(end) and len(lines) == corners


def test_a_sketch_of_a_chapter_is_whole_on_a_phone(sketch):
    # 358 pixels are left of 390; a letter of 9 points is then 9 pixels high
    widest = Sketch(7.4, 1)
    assert widest.figure.get_size_inches()[0] * 72 <= 358 - 14  # and matplotlib's margin
    plt.close(widest.figure)


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
    with pytest.raises(ValueError, match=r"No kind of box named 'unheard-of'. Known: data, "):
        sketch.box(2, 1, "?", "unheard-of")
