"""Which settings suit sentence pairs of one's own: a search on validation sets, one cell at a time.

`python -m experiments.own_pairs` trains what is missing, one process and one thread, and writes a
line for each finished run, so it can be stopped at any time and started again on another day.
"""

import argparse
import gzip
import json
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from experiments.runner import held_out, take_mean
from transformer_lit.course.data import comparable
from transformer_lit.course.text_files import pairs_from_files
from transformer_lit.recipes.recipe import open_training
from transformer_lit.recipes.translation import Translation, Translator
from transformer_lit.training.options import keep_freed_memory
from transformer_lit.training.run import checkpoints

Row = dict[str, Any]
Pairs = list[tuple[str, str]]
STEPS = 1000  # of a run of the search
SAVED = 20  # checkpoints of a run, each after as many steps
MEANS = (1, 2, 3, 4, 6)  # checkpoints that are averaged
HELD_OUT = 1000  # pairs of a test set that no training reads, not even to validate


def sample(data: Path, language: str, pairs: int, split: int) -> tuple[Pairs, Pairs]:
    "Pairs (foreign, English) for the command, and others for a test, none with the same source."
    packed = data / f"tatoeba/{language}-eng/{language}.txt.gz"
    lines = gzip.decompress(packed.read_bytes()).decode().strip().split("\n")
    found = [(foreign, english) for english, foreign, *_ in (line.split("\t") for line in lines)]
    random.Random(split).shuffle(found)
    given = found[:pairs]
    known = {comparable(source) for source, _ in given}
    return given, [pair for pair in found[pairs:] if comparable(pair[0]) not in known][:HELD_OUT]


@dataclass(frozen=True)
class Job:
    "One training, and what its line says of it."

    stage: str
    language: str
    pairs: int
    changes: Row = field(default_factory=dict)  # of the preset
    split: int = 0
    seed: int = 0
    steps: int = STEPS

    @property
    def key(self) -> Row:
        return json.loads(json.dumps(vars(self)))


def per_letter(loss: float, tokens: int, examples: Pairs) -> float:
    "Nats for a letter of the target, which vocabularies of all sizes have in common."
    return loss * tokens / sum(len(target) for _, target in examples)


def train(job: Job, data: Path, folder: Path) -> Row:
    "What the validation set says of the last checkpoint and of each mean."
    given, _ = sample(data, job.language, job.pairs, job.split)
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in given), encoding="utf-8")
    settings = {"every": max(1, job.steps // SAVED), "average": max(MEANS)} | job.changes
    recipe = Translation.from_files(path, steps=job.steps, **settings)
    run = open_training(recipe, folder / "run", seed=job.seed, device="cpu")
    run.train()
    seconds = time.process_time()
    examples, batches = pairs_from_files([path], "val"), held_out(run)
    tokens = sum(int(batch.tgt_mask.sum()) for batch in batches)
    losses = {}
    for number in MEANS:
        if number <= len(checkpoints(run.out / "checkpoints")):
            take_mean(run, number)
            losses[number] = per_letter(
                run.trainer.evaluate(batches, recipe.loss), tokens, examples
            )
    best = min(losses, key=losses.get)
    return {
        "vocab_size": run.trained.tokenizer.vocab_size,
        "parameters": sum(p.numel() for p in run.trained.model.parameters()),
        "val": losses,
        "best": best,
        "bleu": {number: _bleu(run, number, examples) for number in {1, best}},
        "train_seconds": round(seconds, 1),
    }


def _bleu(run: Any, number: int, examples: Pairs) -> float:
    take_mean(run, number)
    trained: Translator = run.trained
    trained.model.eval()
    return round(trained.measure(examples, beam=1)["bleu"], 2)


# --- the search ---------------------------------------------------------------------------------

START = {"n_layers": 2, "dropout": 0.2, "vocab_size": 5000, "lr": 3e-3, "warmup": 0.1}
GRID: dict[str, Sequence[Any]] = {  # in the order of the search
    "dropout": (0.0, 0.1, 0.2, 0.3, 0.4),
    "vocab_size": (500, 1000, 2000, 5000, 10_000),
    "lr": (1e-3, 2e-3, 3e-3, 5e-3, 8e-3),
    "warmup": (0.03, 0.1),
    "n_layers": (2, 4),
}


def in_numbers(settings: Row, steps: int) -> Row:
    "Settings as the preset takes them."
    return settings | {"warmup": max(1, round(settings["warmup"] * steps))}


@dataclass
class Lines:
    "The finished runs, a line each."

    path: Path

    def find(self, job: Job) -> Row | None:
        rows = map(json.loads, self.path.read_text().splitlines()) if self.path.exists() else ()
        return next((row for row in rows if row["job"] == job.key), None)


def climb(lines: Lines, language: str, pairs: int, start: Row, names: Sequence[str]) -> Iterator:
    """The jobs of a search from `start`, one setting after the other, each as far as it improves.

    A job is handed out until its line is there. Returns the best settings.
    """
    best = dict(start)

    def loss(settings: Row) -> Iterator[Job]:
        job = Job("search", language, pairs, in_numbers(settings, STEPS))
        while (row := lines.find(job)) is None:
            yield job
        return min(row["val"].values())

    lowest = yield from loss(best)
    for name in names:
        values = GRID[name]
        for way in (-1, 1):
            place = values.index(best[name]) + way
            while 0 <= place < len(values):
                found = yield from loss(best | {name: values[place]})
                if found >= lowest:
                    break
                lowest, best = found, best | {name: values[place]}
                place += way
    return best


def together(*searches: Iterator[Job]) -> Iterator[Job]:
    "A job of each in turn, until all have ended."
    running = list(searches)
    while running:
        for search in list(running):
            if (job := next(search, None)) is None:
                running.remove(search)
            else:
                yield job


def jobs(lines: Lines) -> Iterator[Job]:
    "All, what is learned first before the rest."
    every = tuple(GRID)
    yield from together(
        climb(lines, "fra", 20_000, START, every), climb(lines, "cmn", 20_000, START, every)
    )


def main(argv: Sequence[str] | None = None) -> None:
    "Train what is missing."
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with tatoeba/")
    parser.add_argument("--out", type=Path, default=Path("runs/own_pairs"), help="of the lines")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    keep_freed_memory()
    given.out.mkdir(parents=True, exist_ok=True)
    lines = Lines(given.out / "rows.jsonl")
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()
    for job in jobs(lines):
        if lines.find(job):
            continue
        before = time.process_time()
        with tempfile.TemporaryDirectory(dir=given.out) as folder:
            row = train(job, given.data, Path(folder))
        row["train_seconds"] = round(row["train_seconds"] - before, 1)
        row = {"job": job.key, **row, "seconds": round(time.process_time() - before, 1)}
        with lines.path.open("a") as file:
            file.write(json.dumps({**row, "commit": commit, "torch": torch.__version__}) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
