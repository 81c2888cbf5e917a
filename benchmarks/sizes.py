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
from transformer_lit.block.feedforward import gated_width
from transformer_lit.recipes.language_model import (
    LanguagePreset,
    language_preset,
    open_language_model,
)

WIDTHS, STEPS, SEEDS = (16, 32, 64, 128), (200, 400, 800), 3
ABOUT = (
    "A training of a Llama of 4 layers, 4 heads of which 2 have keys and values, on tiny "
    "Shakespeare by characters in a row: the preset shakespeare-cpu with another width, another "
    "number of steps, 1,024 characters in each, and the hidden width that belongs to it. "
    "parameters: all but the two tables of the vocabulary. tokens: characters read. val_loss: nats "
    "per character over all of the validation text. minutes: of optimiser steps."
)


def recipe(width: int, steps: int) -> LanguagePreset:
    "The preset at another width and length of training."
    base = language_preset("shakespeare-cpu", steps=steps, every=steps)
    return replace(base, sizes={**base.sizes, "d_model": width, "d_ff": gated_width(4 * width)})


def measure(preset: LanguagePreset, seed: int) -> dict[str, Any]:
    "Train once; a row."
    with tempfile.TemporaryDirectory() as folder:
        training = open_language_model(preset, Path(folder, "run"), seed=seed, device="cpu")
        training.run.train()
        model = training.writer.model
        tables = sum(table.weight.numel() for table in (model.tok_emb, model.lm_head))
        return {
            "width": preset.sizes["d_model"],
            "parameters": sum(p.numel() for p in model.parameters()) - tables,
            "steps": preset.steps,
            "tokens": training.run.tokens,
            "seed": seed,
            "val_loss": training.run.evaluate(),
            "minutes": training.run.seconds / 60,
        }


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    "Train all, print, and store as results/measurements/sizes.json unless `--quick`."
    parser = command_line(__doc__, quick="two tiny sizes, few steps")
    given = parser.parse_args(arguments)
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
