"The first pass is a book that a reader finishes: its size by the cards' own count."

import json

import exercise_cells
from ways import cards


def first_pass():
    for name, path in cards.chapters().items():
        notebook = json.loads(path.read_text())
        if notebook["metadata"]["chapter"]["pass"] == 1:
            yield name, notebook


def test_it_has_at_most_45000_words_and_16_hours():
    chapters = [notebook for _, notebook in first_pass()]
    assert sum(cards.words(notebook["cells"]) for notebook in chapters) <= 45_000
    assert sum(notebook["metadata"]["chapter"]["minutes"] for notebook in chapters) <= 16 * 60


def test_every_chapter_has_something_to_build_and_something_to_predict():
    for name, notebook in first_pass():
        kinds = {written.kind for written in exercise_cells.exercises(notebook["cells"])}
        assert {"build", "predict"} <= kinds, name
