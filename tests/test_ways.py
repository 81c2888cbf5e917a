"Paths hold all that they need, in the book's order; the map leads to chapters that exist."

import re
from pathlib import Path

import pytest
import ways

ROOT = Path(__file__).parents[1]

GOALS = [["attention/multihead"], ["models/llama", "models/first_training"]]


@pytest.mark.parametrize("goals", GOALS, ids=lambda goals: goals[0])
def test_a_path_is_closed_in_order_and_within_the_first_pass(goals):
    path = ways.path_to(goals)
    names = list(path)
    assert set(goals) <= set(names)
    for place, card in enumerate(path.values()):
        assert set(card["needs"]) <= set(names[:place])
        assert card["pass"] == 1


def test_the_page_has_these_paths_and_the_first_pass():
    found = re.findall(r"```\{reading-path\} (.+)", (ROOT / "book/paths.md").read_text())
    chosen = [line.split() for line in found if line.startswith("only ")]
    assert [line.split() for line in found if not line.startswith("only ")] == [
        *GOALS,
        ["first-pass"],
    ]
    assert len(chosen) == 3
    for line in chosen:  # in the book's order, whatever order the page gives them in
        assert [*ways.chosen(line)] == line[1:]
    for line, limit in zip(chosen[:2], (60, 180), strict=True):  # an hour, an evening
        cards = ways.chosen(line).values()
        assert all(card["pass"] == 1 for card in cards)
        assert sum(card["minutes"] for card in cards) <= limit


def test_the_first_pass_needs_nothing_else():
    found = ways.first_pass()
    assert all(set(card["needs"]) <= found.keys() for card in found.values())


def test_an_unknown_goal_is_named():
    with pytest.raises(ValueError, match="attention/maks"):
        ways.path_to(["attention/maks"])


@pytest.mark.parametrize(
    ("minutes", "said"), [(5, "5 min"), (60, "1 h 00 min"), (125, "2 h 05 min")]
)
def test_hours(minutes, said):
    assert ways.hours(minutes) == said


def test_every_box_of_the_map_is_a_chapter_of_the_first_pass_and_marked_in_its_part():
    drawn = ways.drawn_map(lambda chapter: f"{chapter}.html", "block")
    linked = re.findall(r'<a href="(.+?)\.html"><rect class="\w+( here)?"', drawn)
    assert len(linked) == drawn.count("<a ") > 20
    assert {name for name, _ in linked} <= ways.first_pass().keys()
    assert all(bool(here) == name.startswith("block/") for name, here in linked)
    assert drawn.count(" here") > 5
