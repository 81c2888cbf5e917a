"The first pass is a book that a reader finishes, and every chapter that teaches has exercises."

import json

import cards
from chapter import exercises


def first_pass():
    for name, path in cards.chapters().items():
        notebook = json.loads(path.read_text())
        if notebook["metadata"]["chapter"]["pass"] == 1:
            yield name, notebook


def test_it_has_at_most_45000_words_and_16_hours():
    chapters = [notebook for _, notebook in first_pass()]
    assert sum(cards.words(notebook["cells"]) for notebook in chapters) <= 45_000
    assert sum(notebook["metadata"]["chapter"]["minutes"] for notebook in chapters) <= 16 * 60


PARTS = {"start", "text", "attention", "position", "block", "models"}
PARTS |= {"training", "inference", "recipes", "results"}
TOOLS = {"recipes/zoo", "recipes/cli"}  # to look things up in
SHORT = {"start/ten_minutes"}  # one blank is enough


def test_every_chapter_that_teaches_has_four_exercises_of_all_four_kinds():
    without = set()
    for name, path in cards.chapters().items():
        if name.split("/")[0] in PARTS and name not in TOOLS | SHORT:
            found = exercises(json.loads(path.read_text())["cells"])
            kinds = {written.kind for written in found}
            if len(found) < 4 or kinds != {"warm-up", "predict", "build", "repair"}:
                without.add(name)
    assert not without


def test_no_exercise_is_left_in_the_form_that_does_not_answer():
    for name, path in cards.chapters().items():
        assert "```{exercise}" not in path.read_text(), name
