"""A table by hand, in lines and in HTML; what is in a cell is shown and never run."""

import html
import math
import re

import pytest

from transformer_lit.course.figures import Table

LEFT, RIGHT = 'style="text-align: left"', 'style="text-align: right; white-space: nowrap"'
HEAD = 'style="text-align: right"'  # a header may break


def test_lines_by_hand():
    table = Table(
        ["step", "name", "loss"],
        iter([[500, "a", "2.50 ± 0.01"], [12_000, "long √C", "–"], [7, "b", "12.25 ± 0.50"]]),
        "Loss",
    )
    assert repr(table).splitlines() == [
        "Loss",
        "  step  name             loss",
        "   500  a         2.50 ± 0.01",
        "12,000  long √C             –",
        "     7  b        12.25 ± 0.50",
    ]
    assert str(table) == repr(table) and repr(Table(["name", "n"], [])) == "name  n"


def test_html_by_hand():
    assert Table(["name", "n"], [["a", 1000], ["b", 2]], "Sizes")._repr_html_().splitlines() == [
        '<table class="tl-table">',
        "<caption>Sizes</caption>",
        f'<thead><tr><th scope="col" {LEFT}>name</th><th scope="col" {HEAD}>n</th></tr></thead>',
        "<tbody>",
        f'<tr><th scope="row" {LEFT}>a</th><td {RIGHT}>1,000</td></tr>',
        f'<tr><th scope="row" {LEFT}>b</th><td {RIGHT}>2</td></tr>',
        "</tbody>",
        "</table>",
    ]


def test_cells_header_and_caption_are_escaped():
    texts = ["<i>", "<b>x</b>", "a & b", "<script>f()</script>", "1 < 2 &amp; 3"]
    page = Table(texts[1:3], [texts[3:]], texts[0])._repr_html_()
    shown = [html.unescape(part) for part in re.findall(r">([^<\n]+)<", page)]
    assert shown == texts and not re.search("<(i|b|script)>", page)


def right(*column):
    "Whether the column stands to the right, in HTML and in lines."
    table = Table(["x", "a wide header"], [["row", cell] for cell in column])
    numbers = f'<th scope="col" {HEAD}>a wide header</th>' in table._repr_html_()
    for line, (_, cell) in zip(repr(table).splitlines()[1:], table.rows):
        assert line == f"row  {cell.rjust(13) if numbers else cell}".rstrip()
    return numbers


def test_a_column_of_numbers_stands_right_and_one_of_texts_left():
    for cell in (3, 0.5, -7, "-0.5 ± 0.1", "−2", "+1.0", ".5", "48%", math.nan):
        assert right(cell) and right(1, cell, 20) and not right(cell, "as trained"), cell
    for cell in ("a 7", "v2", "(2, 3)", "-", "– 3", "nano", "", "–", True):
        assert not right(cell), cell


def test_an_empty_cell_or_a_dash_has_no_say():
    for nothing in ("", "–"):
        table = Table(["x", "wide"], [["a", nothing], ["b", 1]])
        assert f"<td {RIGHT}>{nothing}</td>" in table._repr_html_()
    assert repr(Table(["x", "wide"], [["a", ""], ["b", 1]])) == "x  wide\na\nb     1"


def test_numbers_get_commas_and_at_most_six_digits():
    cells = [1_234_567, -1000, 1 / 3, 0.0015, 1e-7, 2.0, math.inf, True, False]
    shown = ["1,234,567", "-1,000", "0.333333", "0.0015", "1e-07", "2", "inf", "yes", "no"]
    assert list(Table(["x"] * len(cells), [cells]).rows[0]) == shown


def test_an_empty_cell_is_no_header():
    page = Table(["", "n"], [["", 1], ["b", 2]])._repr_html_()
    assert f"<thead><tr><td {LEFT}></td>" in page and f"<tr><td {LEFT}></td><td" in page


def test_a_cell_has_several_lines():
    table = Table(["name", "hint", "n"], [["a", "one\ntwo is longer", 1], ["b", "three", 22]])
    assert repr(table).splitlines() == [
        "name  hint            n",
        "a     one             1",
        "      two is longer",
        "b     three          22",
    ]
    assert "<td " + LEFT + ">one<br>two is longer</td>" in table._repr_html_()


@pytest.mark.parametrize(
    ("row", "said"), [(["b"], r"row 2 has 1 cells .*\['b'\]"), (["b", 1, 1000], "'1,000'")]
)
def test_an_unequal_row_is_refused(row, said):
    with pytest.raises(ValueError, match=said) as error:
        Table(["name", "n"], [["a", 1], row])
    assert "2 columns ['name', 'n']" in str(error.value)
