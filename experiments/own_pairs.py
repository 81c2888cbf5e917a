"""Which settings suit sentence pairs of one's own, and how a plain loop does on the same pairs.

`python -m experiments.own_pairs STAGE …` trains what is missing of these stages, in one process and
one thread, and writes a line for each finished run. So it can be stopped at any time, and started
again on another day. The stages:

search   settings on validation sets, one seed, from the preset that there was; at most six hours
plain    rate, warm-up and dropout of the loop in *How do I …*, half an hour for each language
confirm  the preset `own` beside the one before the search, on validation sets, three seeds
compare  the preset `own` beside the plain loop, three splits, three seeds; reads test sets
record   trains nothing: it writes all lines to the record
"""

import argparse
import gzip
import itertools
import json
import math
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from experiments.runner import held_out, take_mean
from transformer_lit.course.data import comparable
from transformer_lit.course.files import read_json
from transformer_lit.course.records import Measurement, device_name, write_record
from transformer_lit.course.text_files import pairs_from_files
from transformer_lit.inference.metrics import bleu
from transformer_lit.recipes.recipe import finish_training, open_training
from transformer_lit.recipes.translation import Translation, Translator
from transformer_lit.training.options import keep_freed_memory
from transformer_lit.training.run import checkpoints

Row = dict[str, Any]
Pairs = list[tuple[str, str]]
STEPS = 1000  # of a run of the search
SAVED = 20  # checkpoints of a run, each after as many steps
MEANS = (1, 2, 3, 4, 6)  # checkpoints that are averaged
HELD_OUT = 1000  # pairs of a test set that no training reads, not even to validate
HOURS = {"search": 6.0, "plain": 1.0}  # of the processor, for all runs of a stage
PAGE = Path(__file__).parents[1] / "nbs/recipes/08_how_do_i.ipynb"


def sample(data: Path, language: str, pairs: int, split: int) -> tuple[Pairs, Pairs]:
    "Pairs (foreign, English) for the command, and others for a test, none with the same source."
    packed = data / f"tatoeba/{language}-eng/{language}.txt.gz"
    lines = gzip.decompress(packed.read_bytes()).decode().strip().split("\n")
    found = [(foreign, english) for english, foreign, *_ in (line.split("\t") for line in lines)]
    random.Random(split).shuffle(found)
    given = found[:pairs]
    known = {comparable(source) for source, _ in given}
    new = (pair for pair in found[pairs:] if comparable(pair[0]) not in known)
    return given, list(itertools.islice(new, HELD_OUT))


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
    arm: str = "own"  # or "plain"

    @property
    def key(self) -> Row:
        return json.loads(json.dumps(vars(self)))


def per_letter(loss: float, tokens: int, examples: Pairs) -> float:
    "Nats for a letter of the target, which vocabularies of all sizes have in common."
    return loss * tokens / sum(len(target) for _, target in examples)


def train(job: Job, data: Path, folder: Path) -> Row:
    "What a training comes to: by its validation set, and in the stage `compare` by the test set."
    given, test = sample(data, job.language, job.pairs, job.split)
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in given), encoding="utf-8")
    if job.arm == "plain":
        return train_loop(job, path, test)
    changes = dict(job.changes)
    if job.stage == "search":  # each checkpoint that a mean may want
        changes |= {"every": 1 / SAVED, "average": max(MEANS)}
    recipe = Translation.from_files(path, steps=job.steps, **changes)
    run = open_training(recipe, folder / "run", seed=job.seed, device="cpu")
    run.train()
    row = {
        "vocab_size": run.trained.tokenizer.vocab_size,
        "parameters": sum(p.numel() for p in run.trained.model.parameters()),
    }
    examples, batches = pairs_from_files([path], "val"), held_out(run)
    tokens = sum(int(batch.tgt_mask.sum()) for batch in batches)
    if job.stage == "search":
        losses = {}
        for number in MEANS:
            if number <= len(checkpoints(run.out / "checkpoints")):
                take_mean(run, number)
                losses[number] = run.trainer.evaluate(batches, recipe.loss)
        best = min(losses, key=losses.get)
        val = {number: per_letter(loss, tokens, examples) for number, loss in losses.items()}
        scores = {number: _bleu(run, number, examples) for number in {1, best}}
        return row | {"val": val, "best": best, "bleu": scores}
    about = {"name": "own", "command": "", "results": folder}
    metrics = finish_training(run, **about).metrics
    losses = metrics["val_losses"].items()
    row |= {"val": {name: per_letter(loss, tokens, examples) for name, loss in losses}}
    row |= {"averaged": metrics["averaged"]}
    on, pairs = ("test", test) if job.stage == "compare" else ("val", examples)
    row[f"{on}_bleu"] = run.trained.measure(pairs, beam=1)["bleu"]
    row[f"{on}_bleu_beam_5"] = run.trained.measure(pairs, beam=5)["bleu"]
    row[f"{on}_bleu_last"] = _bleu(run, 1, pairs)
    return row


def _bleu(run: Any, number: int, examples: Pairs) -> float:
    take_mean(run, number)
    trained: Translator = run.trained
    trained.model.eval()
    return trained.measure(examples, beam=1)["bleu"]


# --- the plain loop ------------------------------------------------------------------------------


@cache
def plain() -> Row:
    "The functions that the page shows."
    (cell,) = (cell for cell in read_json(PAGE)["cells"] if cell["id"] == "plain-code")
    names = {"nn": nn, "torch": torch, "F": F, "pad_sequence": pad_sequence}
    names |= {"itertools": itertools, "math": math, "random": random}
    exec("".join(cell["source"]), names)
    return names


def train_loop(job: Job, path: Path, test: Pairs) -> Row:
    "The same tokenizer, sizes, steps and tokens as the preset's, with the page's loop."
    recipe = Translation.from_files(path, steps=job.steps)
    parts = {split: pairs_from_files([path], split) for split in ("train", "val")}
    tok = recipe.train_tokenizer(parts["train"])
    rows = {
        split: [[tok.encode(text, bos=True, eos=True) for text in pair] for pair in pairs]
        for split, pairs in parts.items()
    }
    sizes = {name: recipe.sizes[name] for name in ("d_model", "d_ff", "n_heads", "n_layers")}
    how = {"steps": job.steps, "seed": job.seed, "max_tokens": recipe.max_tokens}
    model = plain()["train_plain"](rows["train"], tok.vocab_size, **how, **sizes, **job.changes)
    loss, tokens = 0.0, 0
    with torch.no_grad():
        for src, tgt in plain()["plain_batches"](rows["val"], recipe.max_tokens, random.Random(0)):
            count = int((tgt[:, 1:] != 0).sum())
            loss, tokens = (
                loss + plain()["plain_loss"](model, src, tgt).item() * count,
                tokens + count,
            )
    row = {
        "vocab_size": tok.vocab_size,
        "parameters": sum(p.numel() for p in model.parameters()),
        "val": {"last": per_letter(loss / tokens, tokens, parts["val"])},
    }
    on, pairs = ("test", test) if job.stage == "compare" else ("val", parts["val"])
    sources = [tok.encode(source, eos=True) for source, _ in pairs]
    found = plain()["translate_plain"](model, sources, bos=tok.bos_id, eos=tok.eos_id)
    texts, targets = [tok.decode(ids) for ids in found], [target for _, target in pairs]
    return row | {f"{on}_bleu": bleu(texts, targets, lowercase=True).value}


# --- the search ---------------------------------------------------------------------------------

START = {"n_layers": 2, "dropout": 0.2, "vocab_size": 5000, "lr": 3e-3, "warmup": 0.1}
GRID: dict[str, Sequence[Any]] = {  # in the order of the search
    "dropout": (0.0, 0.1, 0.2, 0.3, 0.4),
    "vocab_size": (500, 1000, 2000, 5000, 10_000),
    "lr": (1e-3, 2e-3, 3e-3, 5e-3, 8e-3),
    "warmup": (0.03, 0.1),
    "n_layers": (2, 4),
}


PLAIN_START = {"lr": 2e-3, "warmup": 0.1, "dropout": 0.1}
PLAIN_GRID: dict[str, Sequence[Any]] = {
    "lr": (5e-4, 1e-3, 2e-3, 4e-3, 8e-3),
    "dropout": (0.0, 0.1, 0.2, 0.3),
    "warmup": (0.05, 0.1, 0.2),
}
BEFORE = {  # the preset that the search began from
    **{"n_layers": 4, "dropout": 0.2, "vocab_size": 5000, "lr": 3e-3},
    **{"warmup": 0.1, "every": 250, "average": 10},
}


@dataclass
class Lines:
    "The finished runs, a line each."

    path: Path

    @property
    def rows(self) -> list[Row]:
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def find(self, job: Job) -> Row | None:
        return next((row for row in self.rows if row["job"] == job.key), None)

    def hours(self, stage: str) -> float:
        return sum(row["seconds"] for row in self.rows if row["job"]["stage"] == stage) / 3600


Climb = Iterator[Job]  # what it returns at its end are the best settings


def climb(lines: Lines, job: Job, grid: Row, names: Sequence[str]) -> Climb:
    """The jobs of a search from the settings of `job`, one setting after the other.

    Each goes down and up its grid for as long as BLEU rises on the validation set. (Its loss would
    choose more dropout: that makes a model less certain, and its translations worse.) A job is
    returned until its line is there.
    """

    def score(settings: Row) -> Iterator[Job]:
        tried = replace(job, changes=settings)
        while (row := lines.find(tried)) is None:
            yield tried
        return row["val_bleu"] if job.arm == "plain" else max(row["bleu"].values())

    best = dict(job.changes)
    highest = yield from score(best)
    for name in names:
        values = grid[name]
        for way in (-1, 1):
            place = values.index(best[name]) + way
            while 0 <= place < len(values):
                found = yield from score(best | {name: values[place]})
                if found <= highest:
                    break
                highest, best = found, best | {name: values[place]}
                place += way
    return best


def searched(lines: Lines, language: str) -> Climb:
    "Dropout for 20,000 pairs and 5,000; what else may matter for many; the vocabulary for few."
    many, few = (Job("search", language, pairs, START) for pairs in (20_000, 5_000))
    many = replace(many, changes=(yield from climb(lines, many, GRID, ("dropout",))))
    few = replace(few, changes=(yield from climb(lines, few, GRID, ("dropout",))))
    rest = ("vocab_size",) if language == "deu" else ("vocab_size", "lr", "warmup", "n_layers")
    yield from climb(lines, many, GRID, rest)
    yield from climb(lines, few, GRID, ("vocab_size",))


def together(*searches: Iterator[Job]) -> Iterator[Job]:
    "A job of each in turn, until all have ended."
    running = list(searches)
    while running:
        for search in list(running):
            if (job := next(search, None)) is None:
                running.remove(search)
            else:
                yield job


def search(lines: Lines) -> Iterator[Job]:
    yield from together(searched(lines, "fra"), searched(lines, "cmn"))
    yield from searched(lines, "deu")
    for language in ("fra", "deu"):
        job = Job("search", language, 100_000, START)
        yield from climb(lines, job, GRID, ("dropout", "vocab_size"))


def tune_plain(lines: Lines) -> Iterator[Job]:
    start = [Job("plain", name, 20_000, PLAIN_START, arm="plain") for name in ("fra", "cmn")]
    yield from together(*(climb(lines, job, PLAIN_GRID, tuple(PLAIN_GRID)) for job in start))


def confirm(lines: Lines) -> Iterator[Job]:
    for seed, (language, pairs) in itertools.product(range(3), CORPORA):
        for changes in ({}, BEFORE):
            yield Job("confirm", language, pairs, changes, seed=seed)


def compare(lines: Lines) -> Iterator[Job]:
    "Each split with a seed of its own first, so that a comparison may end after three runs."
    for turn, split, language in itertools.product(range(3), range(3), ("fra", "cmn")):
        seed = (split + turn) % 3
        yield Job("compare", language, 20_000, split=split, seed=seed)
        yield Job(
            "compare", language, 20_000, plain_best(lines, language), split, seed, arm="plain"
        )


def plain_best(lines: Lines, language: str) -> Row:
    "The settings with which the loop has the highest BLEU on the validation set."
    rows = [row for row in lines.rows if row["job"]["stage"] == "plain"]
    rows = [row for row in rows if row["job"]["language"] == language]
    return max(rows, key=lambda row: row["val_bleu"])["job"]["changes"]


CORPORA = [("fra", 20_000), ("cmn", 20_000), ("fra", 5_000), ("cmn", 5_000)]
CORPORA += [("deu", 20_000), ("deu", 5_000), ("fra", 100_000), ("deu", 100_000)]
STAGES = {"search": search, "plain": tune_plain, "confirm": confirm, "compare": compare}
ABOUT = """A row is a training of 1,000 steps. `val`: nats for a letter of the validation set's
targets, of means of so many last checkpoints, or of the last and of the mean. `bleu`, `val_bleu`,
`test_bleu`: of a greedy search, lower-cased; the test set is 1,000 pairs that no training read.
`seconds`: of one thread of the processor; `commit`: of the code that trained."""


def record(lines: Lines, out: Path, commit: str) -> None:
    "All lines, as the record of a measurement."
    rows = [row.pop("job") | row for row in lines.rows]
    about = " ".join(ABOUT.split())
    how = {"command": "python -m experiments.own_pairs search plain confirm compare record"}
    how |= {
        "commit": commit,
        "device": device_name(torch.device("cpu")),
        "torch": torch.__version__,
    }
    write_record(out, Measurement(name="own_pairs", about=about, rows=rows, **how))


def main(argv: Sequence[str] | None = None) -> None:
    "Train what is missing."
    how = {"description": __doc__, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(**how)
    parser.add_argument("stages", nargs="+", choices=[*STAGES, "record"])
    here = os.environ.get("TRANSFORMER_LIT_DATA", ".")
    parser.add_argument("--data", type=Path, default=here, help="folder with tatoeba/")
    parser.add_argument("--out", type=Path, default=Path("runs/own_pairs"), help="of the lines")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    keep_freed_memory()
    given.out.mkdir(parents=True, exist_ok=True)
    lines = Lines(given.out / "rows.jsonl")
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()
    for stage in given.stages:
        if stage == "record":
            record(lines, Path("results/measurements"), commit)
            continue
        for job in STAGES[stage](lines):
            if lines.hours(stage) > HOURS.get(stage, math.inf):
                break
            if lines.find(job):
                continue
            begun = time.process_time()
            with tempfile.TemporaryDirectory(dir=given.out) as folder:
                row = {"job": job.key, **train(job, given.data, Path(folder))}
            row |= {"seconds": round(time.process_time() - begun, 1), "commit": commit}
            with lines.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
