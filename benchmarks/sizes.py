"""How the loss of a small decoder falls with its size and with the text that it reads.

The preset `shakespeare-cpu` is trained anew for each width, number of steps and seed; each training
has the whole schedule of the rate, so that a short one is not merely a long one cut off. `--quick`
takes tiny sizes and few steps, and stores nothing.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common import command_line, show, store
from transformer_lit.base.device import keep_freed_memory
from transformer_lit.block.feedforward import gated_width
from transformer_lit.recipes.language_model import LanguageModeling
from transformer_lit.recipes.recipe import open_training, preset

WIDTHS, STEPS, SEEDS = (16, 32, 64, 128), (200, 400, 800), 3
ABOUT = (
    "A training of a Llama of 4 layers, 4 heads of which 2 have keys and values, on tiny "
    "Shakespeare by characters in a row: the preset shakespeare-cpu with another width, another "
    "number of steps, 1,024 characters in each, and the hidden width that belongs to it. "
    "parameters: all but the two tables of the vocabulary. tokens: characters read. val_loss: nats "
    "per character over all of the validation text. minutes: of optimiser steps."
)


def recipe(width: int, steps: int) -> LanguageModeling:
    "The preset at another width and length of training."
    base = preset(LanguageModeling, "shakespeare-cpu", steps=steps, every=steps)
    return replace(base, sizes={**base.sizes, "d_model": width, "d_ff": gated_width(4 * width)})


def measure(recipe: LanguageModeling, seed: int) -> dict[str, Any]:
    "Train once; a row."
    with tempfile.TemporaryDirectory() as folder:
        training = open_training(recipe, Path(folder, "run"), seed=seed, device="cpu")
        training.run.train()
        model = training.trained.model
        tables = sum(table.weight.numel() for table in (model.tok_emb, model.lm_head))
        return {
            "width": recipe.sizes["d_model"],
            "parameters": sum(p.numel() for p in model.parameters()) - tables,
            "steps": recipe.steps,
            "tokens": training.run.tokens,
            "seed": seed,
            "val_loss": training.run.evaluate(),
            "minutes": training.run.seconds / 60,
        }


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    "Train all, print, and store as results/measurements/sizes.json unless `--quick`."
    parser = command_line(__doc__, quick="two tiny sizes, few steps")
    given = parser.parse_args(arguments)
    keep_freed_memory()
    widths, lengths, seeds = ((8, 16), (2, 3), 1) if given.quick else (WIDTHS, STEPS, SEEDS)
    rows = [
        measure(recipe(width, steps), seed)
        for seed in range(seeds)
        for width in widths
        for steps in lengths
    ]
    show(rows)
    if not given.quick:
        store("sizes", ABOUT, "python -m benchmarks.sizes", rows, given.out)
    return rows


if __name__ == "__main__":
    main()
