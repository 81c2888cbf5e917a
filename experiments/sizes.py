"""How the loss of a small decoder falls with its size and with the text that it reads."""

from collections.abc import Iterator, Sequence
from itertools import product

from experiments.runner import BRIEF, Cell, Experiment, Row, Variant, count
from transformer_lit.block.feedforward import gated_width
from transformer_lit.recipes.language_model import LanguageModeling
from transformer_lit.recipes.recipe import preset
from transformer_lit.training.run import Run

SEEDS, WIDTHS, STEPS = range(3), (16, 32, 64, 128), (200, 400, 800)


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "Each has the whole schedule of the rate: a short one is not merely a long one cut off."
    base = preset(LanguageModeling, "shakespeare-cpu")
    for seed, width, steps in product(SEEDS, WIDTHS, STEPS):
        sizes = {**base.sizes, "d_model": width, "d_ff": gated_width(4 * width)}
        recipe = Variant(**{**vars(base), "sizes": sizes, "steps": steps, "every": steps})
        yield Cell({"width": width, "steps": steps, "seed": seed}, recipe, seed)


def measure(run: Run) -> list[Row]:
    model = run.trained.model
    run.train()
    tables = sum(table.weight.numel() for table in (model.tok_emb, model.lm_head))
    row = {"parameters": count(model) - tables, "tokens": run.tokens}
    return [row | {"val_loss": run.evaluate(), "minutes": run.seconds / 60}]


SIZES = Experiment(
    "A training of a Llama of 4 layers, 4 heads of which 2 have keys and values, on tiny "
    "Shakespeare by characters in a row: the preset shakespeare-cpu with another width, another "
    "number of steps, 1,024 characters in each, and the hidden width that belongs to it. "
    "parameters: all but the two tables of the vocabulary. tokens: characters read. val_loss: nats "
    "per character over all of the validation text. minutes: of optimiser steps.",
    measure,
    cells,
    BRIEF,
)
