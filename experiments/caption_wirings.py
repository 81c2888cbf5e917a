"""The paper's wiring and pre-norm on the captions, each at more than one rate."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from experiments.runner import BRIEF_PAIRS, Cell, Experiment, Row, val_losses
from transformer_lit.recipes.translation import Translation
from transformer_lit.training.run import Run

TRIED = (("post", 1e-3), ("pre", 3e-3), ("post", 3e-3), ("post", 1e-2), ("pre", 1e-3))
STEPS = 2500


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "One seed: nothing differs between two cells but what `about` says."
    preset = Translation.presets["multi30k-tuned"]
    for residual, peak in TRIED:
        sizes = {**preset.sizes, "residual": residual}
        recipe = replace(preset, form="tok", sizes=sizes, lr=peak, steps=STEPS, average=1)
        yield Cell({"residual": residual, "lr": peak}, recipe, seed=0)


def measure(run: Run) -> list[Row]:
    "One row: the validation losses on the way."
    run.train()
    return [{"losses": val_losses(run), "minutes": run.seconds / 60}]


CAPTION_WIRINGS = Experiment(
    "A training of the preset multi30k-tuned in a row, cut to 2,500 steps with the whole of its "
    "half cosine, on the lower-cased, tokenised files, English to German, seed 0. residual: where "
    "the norm stands, pre, or post as in the paper. peak: of the learning rate, after 800 steps "
    "of warm-up. losses: nats per token of the validation split without smoothing, after each 250 "
    "steps. minutes: of optimiser steps, beside other work.",
    measure,
    cells,
    BRIEF_PAIRS,
)
