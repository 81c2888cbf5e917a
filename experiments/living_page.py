"""What the book's file learns at the size that a page can train, step by step."""

import tempfile
from itertools import product
from pathlib import Path

from experiments.runner import Experiment, Row
from transformer_lit.course.my_model import IN_PAGE, OWN_FILE, fitting, grow, solved_file
from transformer_lit.exercises.my_transformer import STEPS


def steps(seeds: tuple[int, ...] = (3, 4, 5), **how: int) -> list[Row]:
    "One row for each step of the file and each seed."
    rows = []
    numbers = sorted({step.number for step in STEPS.values()})
    for number, seed in product(numbers, seeds):
        with tempfile.TemporaryDirectory() as folder:
            own = Path(folder, OWN_FILE)
            own.write_text(solved_file(number), encoding="utf-8")
            parts, _ = fitting(own, [])
            # of the last steps, the own number needs longer texts
            found = grow(own, [*parts], min(number, 14), seed=seed, scale=IN_PAGE, **how)
        kept = ("untrained", "nats", "learned", "steps", "rate", "sample")
        rows.append({"step": number, "seed": seed} | {name: found[name] for name in kept})
    return rows


LIVING_PAGE = Experiment(
    "The reader's model at the page's size, after each step, with the book's solutions. nats: a"
    " letter, on the beginnings of 40 new stories; untrained: the same before the training;"
    " learned: in its last 20 steps; steps, rate: of it.",
    steps,
    quick={"seeds": (3,), "steps": 2},
)
