"""BPE-dropout on the captions: the words of each epoch are cut anew."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from experiments.captions import CAPTIONS, Captions, measure
from experiments.runner import Cell, Experiment, Row
from transformer_lit.recipes.translation import Translation

DROPOUT = 0.1  # the paper's


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "One seed, that of `captions`, and no look at the test set."
    preset = Captions(**vars(Translation.presets["multi30k-tuned"]))
    yield Cell({"bpe_dropout": DROPOUT}, replace(preset, form="tok", bpe_dropout=DROPOUT), seed=0)


BPE_DROPOUT = Experiment(
    "A training of the preset multi30k-tuned on the lower-cased, tokenised files, English to "
    "German, seed 0, with BPE-dropout of that probability on both sides; and a search of the "
    "validation split with one length penalty in a row. All other values are as in the record "
    "captions, whose second training has the same settings without BPE-dropout.",
    measure,
    cells,
    CAPTIONS.quick,
)
