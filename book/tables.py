"""Tables that are made when the book is built: tables of exercises and of the records in results/.

    ```{exercise-table}
    ```                     all of them: name, title, kind, mark, minutes, chapter
    ```{exercise-count}
    ```                     how many there are of each kind and mark, and their minutes

`python book/tables.py` writes the table of all records into results/README.md.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import cards
import chapter
from docutils import nodes
from shown import nested

from transformer_lit.course.records import Result, over_seeds, read_results, time_taken
from transformer_lit.exercises.my_transformer import STEPS

KINDS, MARKS = ("warm-up", "predict", "build", "repair"), ("must", "should", "could")

STEP = {id: step.name for id, step in STEPS.items()}


# --- records --------------------------------------------------------------------------------------

SCORES = {  # the first one that a record has counts: its name, its digits, how it was measured
    "bleu": ("BLEU", ".2f", ", beam {beam}"),
    "exact": ("exact", ".1%", ", beam {beam}"),
    "perplexity": ("perplexity", ".2f", " at hidden tokens"),
    "bits_per_byte": ("bits per byte", ".3f", ""),
    "pass@1": ("right", ".1%", " when sampled"),
    "val_loss": ("nats per token of an answer", ".3f", ""),
}
COLUMNS = (
    *("training", "test", "score", "loss", "parameters"),
    *("seed", "minutes", "machine", "signature"),
)


def score(seeds: Sequence[dict]) -> str:
    "The score over the seeds of one training run."
    name = next(name for name in SCORES if name in seeds[0])
    called, form, how = SCORES[name]
    said = f"{called} {over_seeds([m[name] for m in seeds], form)}{how.format(**seeds[0])}"
    if (greedy := f"greedy_{name}") in seeds[0]:
        said += f"; greedy {over_seeds([m[greedy] for m in seeds], form)}"
    return said


def record_row(name: str, group: Sequence[Result]) -> dict[str, str]:
    "The row of a training run, with all its seeds."
    first, metrics = group[0], [r.metrics for r in group]
    devices = sorted({r.device for r in group})
    machines = {device: [r.minutes for r in group if r.device == device] for device in devices}
    length = first.config.get("length")  # of a block: longer blocks by themselves lower a loss
    rows = "each line by itself" if first.config.get("lines") else f"blocks of {length}"
    if first.task in ("instruct", "reason"):
        rows = "each question by itself"
    counted = first.metrics.get("signature", "").replace("|", " ")  # a bar would end the cell
    return {
        "training": f"`{name}`",
        "test": first.split,
        "score": score(metrics) + (f", {rows}" if length else ""),
        "loss": over_seeds([m["val_loss"] for m in metrics], ".3f"),
        "parameters": f"{first.parameters:,}",
        "seed": ", ".join(str(r.seed) for r in group),
        "minutes": ", ".join(map(time_taken, machines.values())),
        "machine": ", ".join(machines),
        "signature": f"`{counted}`" if counted else "–",
    }


def result_table(results: Iterable[Result], columns: Sequence[str] = COLUMNS) -> str:
    "The records as a Markdown table: a row for each training run, with the mean of its seeds."
    trainings: dict[str, list[Result]] = {}
    for r in sorted(results, key=lambda r: r.seed):
        trainings.setdefault(r.name.removesuffix(f"-seed{r.seed}"), []).append(r)
    rows = [record_row(name, group) for name, group in sorted(trainings.items())]
    lines = [columns, ["---"] * len(columns), *([row[c] for c in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_table(page: str, results: Iterable[Result]) -> str:
    "The page, which ends with the table of the records."
    return f"{page.partition('| training |')[0]}{result_table(results)}\n"


# --- exercises ------------------------------------------------------------------------------------


def written(root: Path = cards.ROOT) -> Iterator[tuple[str, list[chapter.Exercise]]]:
    "The page of every chapter that has exercises, in the book's order, and the exercises."
    for path in cards.chapters(root).values():
        notebook = json.loads(path.read_text(encoding="utf-8"))
        if found := chapter.exercises(notebook["cells"]):
            yield cards.page(path, root), found


def exercise_table(root: Path = cards.ROOT) -> Iterator[str]:
    "A row for each exercise; its name links to it."
    numbers = cards.numbers(root)
    yield from (
        "| exercise | title | kind | mark | minutes | chapter |",
        "|---|---|---|---|--:|---|",
    )
    for page, exercises in written(root):
        where = f"{numbers[page]} {chapter.short_name(root / page)}"
        for one in exercises:
            title = one.title + (f" (`{STEP[one.id]}`)" if one.id in STEP else "")
            link = f"{{ref}}`{one.id} <exercise-{one.name}>`"
            told = (link, title, one.kind, one.mark, one.minutes, f"{{doc}}`{where} </{page}>`")
            yield f"| {' | '.join(map(str, told))} |"


def exercise_count(root: Path = cards.ROOT) -> Iterator[str]:
    "A table of kinds by marks: the number of exercises, and their minutes."
    found = [one for _, exercises in written(root) for one in exercises]
    yield from (f"| kind | {' | '.join(MARKS)} | all | minutes |", "|---|--:|--:|--:|--:|--:|")
    for kind in (*KINDS, "all"):
        some = [one for one in found if kind in (one.kind, "all")]
        of = [sum(one.mark == mark for one in some) for mark in MARKS]
        numbers = " | ".join(map(str, (*of, len(some), sum(one.minutes for one in some))))
        yield f"| {kind} | {numbers} |"


def made(directive, lines, name):
    "A table that is made again when a chapter has changed."
    for path in cards.chapters().values():
        directive.env.note_dependency(str(path))
    return [nested(directive, lines, name)]


def all_exercises(directive):
    return made(directive, exercise_table(), "exercise-tables")


def count_of_exercises(directive):
    return made(directive, exercise_count(), "exercise-tables")


def results(directive):
    "The records in results/: a row for each training run, with the columns that fit a phone."
    columns = ("training", "score", "parameters", "minutes")
    lines = result_table(read_results(cards.ROOT / "results"), columns).splitlines()
    table = nested(directive, lines)
    for one in table.findall(nodes.table):
        one["classes"].append("results")  # names may wrap at a hyphen
    return table.children


if __name__ == "__main__":
    RESULTS = cards.ROOT / "results"
    README = RESULTS / "README.md"
    README.write_text(with_table(README.read_text(encoding="utf-8"), read_results(RESULTS)))
