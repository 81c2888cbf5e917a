"What passed is kept beside the reader's own file, and counted by the book's marks."

import json

import pytest

from transformer_lit.course.progress import MARKS, NAME, marks, remember
from transformer_lit.exercises import check, find_exercise
from transformer_lit.exercises.my_transformer import STEPS

ASKED = [id for id, mark in marks().items() if mark != "could"]
COUNTED = f"{len(ASKED)} exercises of the first pass"  # as the site's first page counts


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    (tmp_path / "my_transformer.py").touch()
    (tmp_path / "nbs/attention").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "nbs/attention")  # as a notebook
    monkeypatch.delenv("TRANSFORMER_LIT_PROGRESS", raising=False)
    return tmp_path


def test_the_marks_are_those_of_the_rule():
    from marks import marks as ruled

    assert MARKS.read_text() == ruled(), "run `make export`"
    assert {id for id, mark in marks().items() if mark == "must"} == {*STEPS}
    assert {*marks().values()} == {"must", "should", "could"}


def test_a_verdict_says_how_far_the_reader_is_and_what_comes_next(here):
    answer = find_exercise("masks.1").answer
    assert check("masks.1", ...).progress == check("masks.1", 7).progress == ""
    assert not (here / NAME).exists()
    verdict = check("masks.1", answer)
    line = f"1 of {COUNTED}, next: {ASKED[0]} (should)"
    assert verdict.progress == line and repr(verdict).endswith(f"That is right.\n  {line}")
    assert f"<li>{line}</li>" in verdict._repr_html_() and "progress" not in verdict.as_dict()
    assert check("masks.1", answer).progress == line  # once
    assert remember(ASKED[:2]) == f"3 of {COUNTED}, next: {ASKED[2]} ({marks()[ASKED[2]]})"
    assert json.loads((here / NAME).read_text())["passed"] == [*ASKED[:2], "masks.1"]
    assert remember(ASKED) == f"{len(ASKED)} of {COUNTED}"


def test_what_a_reader_could_do_is_kept_and_not_counted(here):
    could = next(id for id, mark in marks().items() if mark == "could")
    assert remember([could, "no.1"]).startswith("0 of ")
    assert json.loads((here / NAME).read_text())["passed"] == [could]


def test_nothing_is_kept_where_there_is_no_file_of_ones_own_or_nobody_wants_it(here, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_LIT_PROGRESS", "off")
    assert remember(ASKED) == ""
    monkeypatch.delenv("TRANSFORMER_LIT_PROGRESS")
    (here / "my_transformer.py").unlink()
    assert remember(ASKED) == "" and not (here / NAME).exists()


def test_a_damaged_file_is_left_alone(here):
    (here / NAME).write_text("{")
    assert remember(ASKED) == "" and (here / NAME).read_text() == "{"
