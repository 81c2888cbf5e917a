"""The six models of the walk from GPT to LLaMA, a training step of each, side by side.

A step is the mean loss over a batch, its gradient, and fused AdamW. The models take turns, and each
turn gives one ratio to GPT, so that what else the machine does falls on all. Time is that of the
process, on one thread. `--quick` takes few turns, and stores nothing.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from benchmarks.common import command_line, compared, report, take_turns
from benchmarks.models import Work, training_step
from transformer_lit.recipes.bakeoff import bakeoff_presets
from transformer_lit.recipes.language_model import LanguageModeling
from transformer_lit.training.loss import cross_entropy
from transformer_lit.training.options import keep_freed_memory

VOCABULARY = 65  # the characters of tiny Shakespeare
ROWS = {"small": 16, "large": 4}  # of a batch; 64 rows of the large setting would take a minute
ABOUT = (
    "A row is one model of the walk at the sizes of one setting of the bake-off. rows, length: the "
    "batch, in rows of tokens. ratio: median over the turns of the time of a training step (mean "
    "loss, gradient, fused AdamW; fp32, no dropout) / that of gpt in the same turn; low, high: its "
    "95 % interval by order statistics. tokens_s: tokens a second, by the median time of the "
    "process on one thread."
)


def work(recipe: LanguageModeling, rows: int) -> Work:
    "A step on blocks that are drawn once, always the same."
    torch.manual_seed(0)
    model = replace(recipe, sizes={**recipe.sizes, "dropout": 0.0}).build(VOCABULARY)
    ids = torch.randint(VOCABULARY, (rows, recipe.length + 1))
    ids, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    return training_step(model, lambda: cross_entropy(model(ids), targets), recipe.lr)


def measure(setting: str, rows: int, turns: int) -> list[dict[str, Any]]:
    "A row for each model of the walk."
    presets = bakeoff_presets("swap", setting)
    seconds = take_turns([work(p, rows) for p in presets.values()], turns, time.process_time)
    table = []
    for (entry, recipe), spent in zip(presets.items(), seconds, strict=True):
        row = {"setting": setting, "entry": entry, "rows": rows, "length": recipe.length}
        row |= {"turns": turns} | compared([spent, seconds[0]])
        table.append({**row, "tokens_s": rows * recipe.length / median(spent)})
    return table


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    "Measure, print, and store as results/measurements/swap.json unless `--quick`."
    parser = command_line(__doc__, quick="the small setting, three turns")
    given = parser.parse_args(arguments)
    keep_freed_memory()  # as our recipes do on a CPU
    torch.set_num_threads(1)
    settings, turns = (["small"], 3) if given.quick else (list(ROWS), 21)
    table = [row for setting in settings for row in measure(setting, ROWS[setting], turns)]
    report("swap", ABOUT, "python -m benchmarks.swap", table, given)
    return table


if __name__ == "__main__":
    main()
