"""All exercises as they are written, and the reader's own file as the book solves it."""

import json
from functools import cache
from pathlib import Path

import chapter

from transformer_lit.exercises.my_transformer import solved_file

ROOT = Path(__file__).parents[1]


@cache
def written():
    "All exercises of all chapters, by name: (the chapter's file, the exercise as written)."
    found = {}
    for path in sorted((ROOT / "nbs").rglob("*.ipynb")):
        if "checkpoints" not in str(path):
            cells = json.loads(path.read_text())["cells"]
            found |= {one.id: (path, one) for one in chapter.exercises(cells)}
    return found


thread = cache(solved_file)
