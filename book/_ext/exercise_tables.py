"""Tables of all exercises, made from the notebooks when the book is built.

```{exercise-tables}
```                        a table for each chapter: name, title, kind, level, minutes
```{exercise-count}
```                        how many there are of each kind and level, and their minutes
"""

import json
import sys
from pathlib import Path

import exercise_cells
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parents[1]))
import cards

from transformer_lit.course.exercises import KINDS, LEVELS
from transformer_lit.exercises.thread import STEPS

ROOT = Path(__file__).parents[2]
STEP = {step.id: name for name, step in STEPS.items()}


def written(root=ROOT):
    "Every chapter that has exercises, in the book's order: (its page, its card, the exercises)."
    for path in cards.chapters(root).values():
        notebook = json.loads(path.read_text(encoding="utf-8"))
        if found := exercise_cells.exercises(notebook["cells"]):
            page = path.relative_to(root).with_suffix("")
            yield f"/{page}", notebook["metadata"]["chapter"], found


def row(one):
    "A line of a table; the name leads to the exercise."
    link = f"{{ref}}`{one.id} <exercise-{one.id.replace('.', '-')}>`"
    title = one.title + (f" (`{STEP[one.id]}`)" if one.id in STEP else "")
    return f"| {link} | {title} | {one.kind} | {one.level} | {one.minutes} |"


def tables(root=ROOT):
    "The lines of the page: for each chapter a heading and a table."
    for page, card, exercises in written(root):
        minutes = sum(one.minutes for one in exercises)
        which = "first pass" if card["pass"] == 1 else "second pass"
        yield f"**{{doc}}`{page}`** · {which} · {len(exercises)} exercises · {minutes} minutes"
        yield from ("", "| exercise | title | kind | level | minutes |", "|---|---|---|---|--:|")
        yield from map(row, exercises)
        yield ""


def count(root=ROOT):
    "The lines of a table of kinds by levels: how many, and their minutes."
    found = [one for _, _, exercises in written(root) for one in exercises]
    yield from (f"| kind | {' | '.join(LEVELS)} | all | minutes |", "|---|--:|--:|--:|--:|")
    for kind in (*KINDS, "all"):
        some = [one for one in found if kind in (one.kind, "all")]
        of = [sum(one.level == level for one in some) for level in LEVELS]
        numbers = " | ".join(map(str, (*of, len(some), sum(one.minutes for one in some))))
        yield f"| {kind} | {numbers} |"


class _Made(SphinxDirective):
    "Markdown that a function makes, in place of the directive."

    def run(self):
        for path in cards.chapters().values():
            self.env.note_dependency(str(path))
        node = nodes.container(classes=["exercise-tables"])
        self.state.nested_parse(StringList(list(self.make())), self.content_offset, node)
        return [node]


class Tables(_Made):
    make = staticmethod(tables)


class Count(_Made):
    make = staticmethod(count)


def setup(app):
    app.add_directive("exercise-tables", Tables)
    app.add_directive("exercise-count", Count)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
