"""AdamW and Muon on the captions, in the widest network that is still small, at several rates."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from experiments.muon import measure
from experiments.runner import BRIEF_PAIRS, Cell, Experiment, Row
from transformer_lit.recipes.translation import Translation

TRIED = (("adamw", 3e-3), ("muon", 5e-3), ("muon", 1e-2), ("adamw", 6e-3))
TRIED += (("muon", 2.5e-3), ("adamw", 1.5e-3))
STEPS, WIDTH = 1200, 512


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "One seed: this finds settings, and what they are worth is measured with others."
    preset = Translation.presets["multi30k-tuned"]
    usual = replace(preset, form="tok", sizes={**preset.sizes, "d_ff": WIDTH})
    for optimizer, peak in TRIED:
        recipe = replace(usual, optimizer=optimizer, lr=peak, steps=STEPS, every=STEPS, average=1)
        yield Cell({"optimizer": optimizer, "lr": peak}, recipe, seed=0)


CAPTION_OPTIMIZERS = Experiment(
    f"A training of the preset multi30k-tuned in a row, with d_ff {WIDTH}, cut to {STEPS} steps "
    "with the whole of its half cosine, on the lower-cased, tokenised files, English to German, "
    "seed 0. optimizer: adamw, or muon for the hidden matrices and adamw for the rest. lr: the "
    "peak of the rate, after a tenth of the steps. val_loss: nats per token of the validation "
    "split without smoothing, at the end. minutes: of optimiser steps, beside other work.",
    measure,
    cells,
    BRIEF_PAIRS,
)
