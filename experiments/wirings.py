"""Four residual wirings on real text: maps of learning rate and warm-up, short and long, and depth.

Nothing differs but the wiring and what is said of a row: a seed means the same batches and the same
first weights for all wirings, but for the factor beta that belongs to DeepNorm.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from experiments.runner import BRIEF, Cell, Experiment, Row, Variant, held_out, val_losses
from transformer_lit.course.files import InputError
from transformer_lit.training.run import Run

WIRINGS = ("post", "pre", "sandwich", "deep")
RATES, MIDDLE = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1), 3e-3
WARMUPS, DEPTH, SHALLOW, DEEP, SEEDS = (0, 10, 40), 6, 2, 16, range(3)
LONG_RATES, LONG_WARMUPS = (1e-3, 3e-3, 1e-2, 3e-2), (0, 100, 200)
SHORT, LONG = {"steps": 120, "every": 12}, {"steps": 400, "every": 20}


@dataclass(frozen=True, kw_only=True)
class Constant(Variant):
    "The rate rises for `warmup` steps, and stays; after 1 there was no warm-up."

    def schedule(self) -> Callable[[int], float]:
        "Of a step from 1."
        return lambda step: self.lr * min(1.0, step / self.warmup)


def cell(wiring: str, layers: int, rate: float, warmup: int, seed: int, lengths: Row) -> Cell:
    about = {"wiring": wiring, "layers": layers, "rate": rate, "warmup": warmup, "seed": seed}
    recipe = Constant(
        dataset="tinyshakespeare",
        model="assembly",
        sizes={"d_model": 32, "n_layers": layers, "n_heads": 4, "d_ff": 128, "residual": wiring}
        | {"position": "sinusoidal", "norm": "layer", "activation": "relu", "gated": False}
        | {"bias": True},
        length=32,
        batch_size=8,
        lr=rate,
        warmup=max(1, warmup),
        betas=(0.9, 0.98),
        weight_decay=0.0,
        clip=1e9,  # never reached
        val_batches=4,
        **lengths,
    )
    return Cell(about | lengths, recipe, seed)


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "The map at one depth; all rates at 2 layers; a map of long runs; one rate at 16 layers."
    for wiring, rate, warmup, seed in product(WIRINGS, RATES, WARMUPS, SEEDS):
        yield cell(wiring, DEPTH, rate, warmup, seed, SHORT)
    for wiring, rate, seed in product(WIRINGS, RATES, SEEDS):
        yield cell(wiring, SHALLOW, rate, 0, seed, SHORT)
    for wiring, rate, warmup, seed in product(WIRINGS, LONG_RATES, LONG_WARMUPS, SEEDS):
        yield cell(wiring, DEPTH, rate, warmup, seed, LONG)
    for wiring, seed in product(WIRINGS, SEEDS):
        yield cell(wiring, DEEP, MIDDLE, 0, seed, SHORT)


def measure(run: Run) -> list[Row]:
    "One row: the validation losses, None after a gradient was not finite."
    recipe, tokenizer = run.recipe, run.trained.tokenizer
    ids = tokenizer.encode_text(recipe.examples("train"))
    shares = ids.bincount(minlength=tokenizer.vocab_size) / len(ids)
    targets = torch.cat([batch.targets.flatten() for batch in held_out(run)])
    try:
        run.train()
    except InputError as error:
        if "gradient" not in str(error):
            raise
    losses = [loss if math.isfinite(loss) else None for loss in val_losses(run)]
    losses += [None] * (recipe.steps // recipe.every - len(losses))
    return [{"unigram": -shares[targets].log().mean().item(), "losses": losses}]


WIRINGS_TRAINED = Experiment(
    "One training run on the characters of tiny Shakespeare in a row: Adam (betas 0.9 and 0.98, no "
    "clipping, no dropout), 8 blocks of 32 characters in a batch, width 32, d_ff 128, 4 heads. "
    "wiring: post, pre, sandwich or deep. layers: depth. rate: the learning rate. warmup: steps "
    "over which it rises from 0, 0 for none; then it stays. steps, every: 120 steps for each "
    "setting, 400 for some at 6 layers, with the validation loss in nats per character after each "
    "`every` steps in `losses`, null where it is not finite: the first 128 blocks of the held-out "
    "text. unigram: the loss of a model that knows how frequent each character is, no more.",
    measure,
    cells,
    BRIEF,
)
