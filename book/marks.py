"""Write the mark of each exercise to transformer_lit/data: `python book/marks.py`.

must: a step of the reader's own file. should: another core exercise of the first pass. could: all
other exercises. The file lists all exercises in the order of the book, for `check` and for the
pages.
"""

import json
from pathlib import Path

import cards
import chapter

from transformer_lit.course.files import write_text
from transformer_lit.course.progress import MARKS
from transformer_lit.exercises.my_transformer import STEPS

OWN = {*STEPS}


def mark(one: chapter.Exercise, card: dict) -> str:
    "The mark of an exercise, by the rule above."
    if one.id in OWN:
        return "must"
    return "should" if card["pass"] == 1 and one.level == "core" else "could"


def marks(root: Path = cards.ROOT) -> str:
    "A line for each exercise: its name and its mark."
    lines = []
    for path in cards.chapters(root).values():
        notebook = json.loads(path.read_text(encoding="utf-8"))
        card = notebook["metadata"]["chapter"]
        lines += [f"{it.id}\t{mark(it, card)}\n" for it in chapter.exercises(notebook["cells"])]
    return "".join(lines)


if __name__ == "__main__":
    write_text(MARKS, marks())
