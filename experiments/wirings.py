"""Four residual wirings on real text: learning rates, warm-up and depth.

Nothing differs but the wiring and what is said of a row: a seed means the same batches and the same
first weights for all wirings, but for the factor beta that belongs to DeepNorm. Then each wiring is
trained for longer with the rate and the warm-up that served it best.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from experiments.runner import BRIEF, Cell, Experiment, Row, Variant, held_out, val_losses
from transformer_lit.base.files import InputError
from transformer_lit.recipes.recipe import Training

WIRINGS = ("post", "pre", "sandwich", "deep")
RATES, MIDDLE = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2), 3e-3
WARMUPS, DEPTHS, DEPTH, SEEDS = (0, 40), (6, 2, 16), 6, range(3)
SHORT, LONG = {"steps": 120, "every": 12}, {"steps": 400, "every": 20}


@dataclass(frozen=True, kw_only=True)
class Constant(Variant):
    "The rate rises for `warmup` steps, and stays."

    def schedule(self) -> Callable[[int], float]:
        "No warm-up where it is 0."
        return lambda step: self.peak * min(1.0, step / max(1, self.warmup))


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
        peak=rate,
        warmup=warmup,
        betas=(0.9, 0.98),
        weight_decay=0.0,
        clip=1e9,  # never reached
        val_batches=4,
        **lengths,
    )
    return Cell(about | lengths, recipe, seed)


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "All rates at one depth, the middle one at the others; then longer, each with its best."
    for layers, wiring, rate, warmup, seed in product(DEPTHS, WIRINGS, RATES, WARMUPS, SEEDS):
        if layers == DEPTH or rate == MIDDLE:
            yield cell(wiring, layers, rate, warmup, seed, SHORT)
    for wiring in WIRINGS:
        rate, warmup = best([r for r in rows if (r["wiring"], r["layers"]) == (wiring, DEPTH)])
        for seed in SEEDS:
            yield cell(wiring, DEPTH, rate, warmup, seed, LONG)


def best(rows: Sequence[Row]) -> tuple[float, int]:
    "The rate and the warm-up with the lowest mean of the last losses."
    lasts: dict[tuple[float, int], list[float]] = {}
    for row in rows:
        last = math.inf if row["losses"][-1] is None else row["losses"][-1]
        lasts.setdefault((row["rate"], row["warmup"]), []).append(last)
    return min(lasts, key=lambda setting: sum(lasts[setting]) / len(lasts[setting]))


def measure(training: Training) -> list[Row]:
    "One row: the validation losses, None after a gradient was not finite."
    recipe, tokenizer = training.recipe, training.trained.tokenizer
    ids = tokenizer.encode_text(recipe.examples("train"))
    shares = ids.bincount(minlength=tokenizer.vocab_size) / len(ids)
    targets = torch.cat([batch.targets.flatten() for batch in held_out(training)])
    try:
        training.run.train()
    except InputError as error:
        if "gradient" not in str(error):
            raise
    losses = [loss if math.isfinite(loss) else None for loss in val_losses(training)]
    losses += [None] * (recipe.steps // recipe.every - len(losses))
    return [{"unigram": -shares[targets].log().mean().item(), "losses": losses}]


WIRINGS_TRAINED = Experiment(
    "One training run on the characters of tiny Shakespeare in a row: Adam (betas 0.9 and 0.98, no "
    "clipping, no dropout), 8 blocks of 32 characters in a batch, width 32, d_ff 128, 4 heads. "
    "wiring: post, pre, sandwich or deep. layers: depth. rate: the learning rate. warmup: steps "
    "over which it rises from 0, 0 for none. steps, every: 120 steps for each rate and depth, 400 "
    "for the best rate and warm-up of each wiring, with the validation loss in nats per character "
    "after each `every` steps in `losses`, null where it is not finite: the first 128 blocks of "
    "the held-out text. unigram: the loss of a model that knows how frequent each character is, no "
    "more.",
    measure,
    cells,
    BRIEF,
)
