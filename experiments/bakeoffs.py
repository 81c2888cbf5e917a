"""The bake-offs of the package over a grid of learning rates; at one rate, entries that are fair.

`transformer-lit bakeoff` trains each entry at one rate. A rate that suits one entry may be wrong
for another; so here each has three or more with seed 0, until the best lies between two others, and
the best has two more seeds. What the bake-off recorded for the same settings and seed is not
trained again.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

from experiments.runner import BRIEF, CHANGES, Cell, Experiment, Row, Variant, count
from transformer_lit.course.records import read_result
from transformer_lit.position.relative import T5Bias
from transformer_lit.recipes.bakeoff import bakeoff_presets, places
from transformer_lit.training.run import Run

SEEDS, RATES = range(3), (3e-3, 1e-2, 3e-2)
LADDER = (3e-4, 1e-3, *RATES, 1e-1)  # a grid grows along it while its best rate is at an edge
RECORDS = Path(__file__).parents[1] / "results/bakeoffs"


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
STARTS: dict[str, Row] = {"xavier": {"init": "xavier"}, "tied": {"tied": True}}
STARTED = ("gpt", "rope", "nobias")  # steps of the walk that also begin in another way
COMPARED = {"position": [base for base, _ in FAIR.values()], "swap": STARTED}


def entries(name: str) -> dict[str, Variant]:
    "The entries of the bake-off, and those that make it fair."
    found = {entry: Variant(**vars(p)) for entry, p in bakeoff_presets(name).items()}
    if name == "position":
        return found | {
            entry: replace(found[base], change=entry) for entry, (base, _) in FAIR.items()
        }
    if name == "swap":
        return found | {
            f"{entry}, {said}": replace(found[entry], sizes={**found[entry].sizes, **start})
            for said, start in STARTS.items()
            for entry in STARTED
        }
    return found


def cells(name: str, rows: Sequence[Row]) -> Iterator[Cell]:
    "Rates with the first seed, until the best lies between two; it then gets the other seeds."
    (first, *others), own = SEEDS, {entry: entries(name)[entry] for entry in bakeoff_presets(name)}
    for entry, recipe in own.items():
        tried = set()
        ahead = list(RATES)
        while ahead:
            tried.update(ahead)
            yield from (cell(entry, recipe, rate, first) for rate in ahead)
            ahead = [rate for rate in beside_best(losses_of(rows, entry)) if rate not in tried]
    for seed, (entry, recipe) in product(others, own.items()):
        losses = losses_of(rows, entry)
        yield cell(entry, recipe, min(losses, key=losses.__getitem__), seed)


def losses_of(rows: Sequence[Row], entry: str) -> dict[float, float]:
    "The losses of an entry with the first seed, by rate."
    return {
        row["rate"]: row["val_loss"]
        for row in rows
        if row["entry"] == entry and row["seed"] == SEEDS[0]
    }


def beside_best(losses: dict[float, float]) -> Sequence[float]:
    "The best rate and its neighbours on the ladder."
    best = LADDER.index(min(losses, key=losses.__getitem__))
    return LADDER[max(0, best - 1) : best + 2]


def fair_cells(name: str, rows: Sequence[Row]) -> Iterator[Cell]:
    "The entries that make it fair, and those that they change, at the rate of the bake-off."
    known = set(bakeoff_presets(name))
    for seed, (entry, recipe) in product(SEEDS, entries(name).items()):
        if entry not in known or entry in COMPARED[name]:
            yield cell(entry, recipe, recipe.lr, seed)


def cell(entry: str, recipe: Variant, rate: float, seed: int) -> Cell:
    return Cell({"entry": entry, "rate": rate, "seed": seed}, replace(recipe, lr=rate), seed)


def measure(name: str, run: Run) -> list[Row]:
    found = recorded(name, run)
    if found is not None:
        return [found]
    run.train()
    row = {"parameters": count(run.trained.model), "minutes": run.seconds / 60}
    return [row | {"val_loss": run.evaluate()} | places(run)]


def recorded(name: str, run: Run) -> Row | None:
    "The same row from the record of the bake-off, if there is one of these settings and this seed."
    if run.recipe.change != "none":
        return None
    settings = json.loads(json.dumps(vars(run.recipe)))
    for path in sorted(RECORDS.glob(f"{name}-small-*-seed{run.seed}.json")):
        found = read_result(path)
        if all(settings[key] == value for key, value in found.config.items()):
            row = {"parameters": found.parameters, "minutes": found.minutes}
            return row | {key: found.metrics[key] for key in ("val_loss", "band", "loss_by_place")}
    return None


_ROW = (
    "A training of the bake-off {name!r}, small setting, in a row. entry: what differs. rate: the "
    "peak. parameters: of the model. minutes: of optimiser steps. val_loss: nats per character of "
    "the validation text. loss_by_place: the same in bands of `band` places, up to four times the "
    "trained length where the entry can read so far."
)
BAKEOFFS = {
    f"{name}_rates": Experiment(
        _ROW.format(name=name), partial(measure, name), partial(cells, name), BRIEF
    )
    for name in ("position", "block", "swap")
} | {
    f"{name}_fair": Experiment(
        _ROW.format(name=name), partial(measure, name), partial(fair_cells, name), BRIEF
    )
    for name in ("position", "swap")
}
