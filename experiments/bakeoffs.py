"""The bake-offs of the package over a grid of learning rates, with the entries that are fair.

`transformer-lit bakeoff` trains each entry at one rate. A rate that suits one entry may be wrong
for another; so here each has several, and the best of each are compared.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn

from experiments.runner import BRIEF, CHANGES, Cell, Experiment, Row, Variant, count
from transformer_lit.position.relative import T5Bias
from transformer_lit.recipes.bakeoff import bakeoff_presets, places
from transformer_lit.recipes.recipe import Training

SEEDS, RATES = range(3), (1e-3, 3e-3, 1e-2)


class Scaled(nn.Module):
    "Position vectors times a factor."

    def __init__(self, position: nn.Module, factor: float):
        super().__init__()
        self.position, self.factor = position, factor

    def forward(self, pos: Tensor) -> Tensor:
        return self.factor * self.position(pos)


@torch.no_grad()
def _longer(model: nn.Module) -> None:
    "Learned rows begin with norm 1 on the mean; sinusoids have √(C/2)."
    model.position.weight.mul_((model.config.d_model / 2) ** 0.5)


def _shorter(model: nn.Module) -> None:
    model.position = Scaled(model.position, (model.config.d_model / 2) ** -0.5)


def _within_context(model: nn.Module) -> None:
    "No bucket is for distances that the training never shows."
    c = model.config
    plug = T5Bias(c.n_heads, max_distance=c.max_len, causal=True)
    for layer in model.layers:
        layer.attn.position = plug


def _without_v(model: nn.Module) -> None:
    "Transformer-XL without its term v · r."
    for layer in model.layers:
        layer.attn.position.v.requires_grad_(False).zero_()


FAIR = {  # name -> the entry that is changed, and how
    "learned, long as sinusoids": ("learned", _longer),
    "sinusoidal, short as learned": ("sinusoidal", _shorter),
    "t5 within the context": ("t5", _within_context),
    "transformer-xl without v": ("transformer-xl", _without_v),
}
CHANGES |= {name: change for name, (_, change) in FAIR.items()}
STARTS: dict[str, Row] = {  # of the walk from GPT to LLaMA; its entries begin as GPT-2, untied
    "": {},
    ", xavier": {"init": "xavier"},
    ", tied": {"tied": True},
    ", xavier, tied": {"init": "xavier", "tied": True},
}


def entries(name: str) -> dict[str, Variant]:
    "The entries of the bake-off, and those that make it fair."
    found = {entry: Variant(**vars(p)) for entry, p in bakeoff_presets(name).items()}
    if name == "position":
        return found | {
            entry: replace(found[base], change=entry) for entry, (base, _) in FAIR.items()
        }
    if name == "swap":
        return {
            entry + said: replace(recipe, sizes={**recipe.sizes, **start})
            for said, start in STARTS.items()
            for entry, recipe in found.items()
        }
    return found


def cells(name: str, rows: Sequence[Row]) -> Iterator[Cell]:
    for seed, (entry, recipe), rate in product(SEEDS, entries(name).items(), RATES):
        about = {"entry": entry, "rate": rate, "seed": seed}
        yield Cell(about, replace(recipe, peak=rate), seed)


def measure(training: Training) -> list[Row]:
    training.run.train()
    row = {"parameters": count(training.trained.model), "minutes": training.run.seconds / 60}
    return [row | {"val_loss": training.run.evaluate()} | places(training)]


BAKEOFFS = {
    f"{name}_rates": Experiment(
        f"A training of the bake-off {name!r}, small setting, in a row. entry: what differs. rate: "
        "the peak. parameters: of the model. minutes: of optimiser steps. val_loss: nats per "
        "character over the validation text. loss_by_place: the same in bands of `band` places, up "
        "to four times the trained length where the entry can read so far.",
        measure,
        partial(cells, name),
        BRIEF,
    )
    for name in ("position", "block", "swap")
}
