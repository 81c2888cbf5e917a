"""What warm-up does to each layer in the first steps of Adam, with post-norm and with pre-norm."""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from torch import Tensor

from experiments.runner import BRIEF, Cell, Experiment, Row, val_losses
from experiments.wirings import cell
from transformer_lit.training.run import Run

WIRINGS, WARMUPS, SEEDS = ("post", "pre"), (0, 100), range(3)
LAYERS, RATE, LENGTHS = 6, 3e-3, {"steps": 400, "every": 25}
LOOKS = (1, 2, 3, 5, 7, 10, 14, 20, 30, 40, 50, 60, 70, 80, 90, 100, 150, 200, 300, 400)


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "Trainings as in `wirings`: a seed is the same batches and the same first weights for all."
    for seed, wiring, warmup in product(SEEDS, WIRINGS, WARMUPS):
        yield cell(wiring, LAYERS, RATE, warmup, seed, LENGTHS)


def length(tensors: Sequence[Tensor]) -> float:
    "Of all their numbers, as one vector."
    return math.sqrt(sum(float(t.detach().double().square().sum()) for t in tensors))


def measure(run: Run) -> list[Row]:
    "One row: by look and layer the gradient, and the length of the step beside the weights'."
    trainer, model = run.trainer, run.trained.model
    matrices = [[p for p in layer.parameters() if p.ndim >= 2] for layer in model.layers]
    row: Row = {"looks": [], "gradient": [], "ratio": []}
    before: list[list[Tensor]] = []

    def keep(*_: Any) -> None:
        "Just before a step; `done` counts those that are over."
        if trainer.done + 1 in LOOKS:
            row["looks"].append(trainer.done + 1)
            row["gradient"].append([length([p.grad for p in own]) for own in matrices])
            before[:] = [[p.detach().clone() for p in own] for own in matrices]

    def compare(*_: Any) -> None:
        "Just behind it."
        if trainer.done + 1 in LOOKS:
            moved = [
                length([p - q for p, q in zip(own, old, strict=True)]) / length(old)
                for own, old in zip(matrices, before, strict=True)
            ]
            row["ratio"].append(moved)

    trainer.optimizer.register_step_pre_hook(keep)
    trainer.optimizer.register_step_post_hook(compare)
    run.train()
    return [row | {"losses": val_losses(run)}]


FIRST_STEPS = Experiment(
    "A training in a row, as in the record wirings but for 400 steps: 6 layers of width 32 on the "
    "characters of tiny Shakespeare, Adam at a rate of 0.003. wiring: post or pre. warmup: steps "
    "over which the rate rises from 0, 0 for none. looks: steps at which the layers were looked "
    "at. gradient: for each look and each layer, the first layer first, the length of the "
    "gradient of all its matrices, seen as one vector. ratio: the length of the step that Adam "
    "then took with them, divided by their own length. losses: validation loss in nats per "
    "character after each `every` steps.",
    measure,
    cells,
    BRIEF,
)
