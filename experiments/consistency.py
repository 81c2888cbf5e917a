"""R-Drop on the captions: each batch is read twice, and two distributions are pulled together."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from experiments.captions import CAPTIONS, Captions, measure
from experiments.runner import Cell, Experiment, Row
from transformer_lit.recipes.translation import Translation

WEIGHT, STEPS = 5.0, 4_500  # the paper's; a step computes on two copies of its batch


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "One seed, that of `captions`, and no look at the test set."
    preset = Captions(**vars(Translation.presets["multi30k-tuned"]))
    recipe = replace(preset, form="tok", rdrop=WEIGHT, steps=STEPS, every=100)
    yield Cell({"rdrop": WEIGHT, "steps": STEPS}, recipe, seed=0)


RDROP = Experiment(
    "A training of the preset multi30k-tuned on the lower-cased, tokenised files, English to "
    "German, seed 0, of so many steps, with R-Drop of that weight; and a search of the validation "
    "split with one length penalty in a row. All other values are as in the record captions, whose "
    "second training has the same settings, without R-Drop and with 12,000 steps.",
    measure,
    cells,
    CAPTIONS.quick,
)
