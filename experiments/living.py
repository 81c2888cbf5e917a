"""The ladder of the reader's model: what each step changes, with the book's own file."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.runner import Experiment, Row
from transformer_lit.course.files import InputError
from transformer_lit.course.my_model import FINAL, OWN_FILE, PLAIN, fitting, grow, solved_file

SEEDS = (3, 4, 5)  # the settings were chosen with 0, 1 and 2
RATES = (0.006, 0.012)


@contextmanager
def solved(step: int) -> Iterator[tuple[Path, list[str]]]:
    "A file with the first steps solved, and its parts."
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder, OWN_FILE)
        own.write_text(solved_file(step), encoding="utf-8")
        yield own, list(fitting(own, [])[0])


def row(step: int, seed: int, without: str = "", **more: Any) -> Row:
    "What one training gives; `nats` is None where it ended in nan."
    with solved(step) as (own, parts):
        kept = [part for part in parts if part not in without.split()]
        try:
            found = grow(own, kept, step, seed=seed, **more)
        except InputError:
            found = {}
    names = ("nats", "untrained", "rate", "steps", "trained", "letters", "unit", "before", "after")
    about = {"step": step, "seed": seed, "without": without}
    return about | {name: found.get(name) for name in names} | {"sample": found.get("sample")}


def ladder(seeds: tuple[int, ...] = SEEDS, **more: Any) -> list[Row]:
    "A row for each step and seed; steps 11 and 12 change no weight, and 15 trains as 14 does."
    steps = [(n, "", {}) for n in (*range(1, 11), 13, 15)]
    steps += [(15, "train warmup", FINAL)]  # the plain loop at the same rate
    rows = [row(n, seed, without, **how | more) for seed in seeds for n, without, how in steps]
    return rows + [row(12, seeds[0], **more)]


def rates(seeds: tuple[int, ...] = SEEDS, rates: tuple[float, ...] = RATES, **more: Any):
    "The model of step 10 at higher rates, with the norms and without."
    return [
        row(10, seed, without, **PLAIN | {"lr": rate} | more)
        for seed in seeds
        for rate in rates
        for without in ("", "RMSNorm")
    ]


_ABOUT = (
    " nats: a letter, on 100 new stories; untrained: the same before the training; rate, steps: of"
    " it; trained: seconds, this machine busy; letters: a second, one story of 280 letters; before"
    " and after, in `unit`: what the step changes; without: parts left out."
)
_QUICK = {"seeds": (3,), "steps": 2, "count": 2, "length": 7}
LIVING = Experiment(
    "The reader's model after each step, with the book's solutions." + _ABOUT, ladder, quick=_QUICK
)
LIVING_RATES = Experiment(
    "The reader's model after step 10 at higher rates." + _ABOUT, rates, quick=_QUICK
)
