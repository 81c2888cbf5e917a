"""A recurrent translator beside the Transformer: the same steps, and the same minutes."""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from torch import nn

from experiments.runner import BRIEF_PAIRS, Cell, Experiment, Row, count
from transformer_lit.models.recurrent import FixedVector
from transformer_lit.recipes.translation import Translation
from transformer_lit.training.run import Run

SEEDS, RATES, MOST_RATES, GROUPS = range(3), (1.5e-3, 3e-3, 6e-3), 4, 5


@dataclass(frozen=True, kw_only=True)
class Timed(Translation):
    "A translation that is over when both its steps and its minutes are."

    minutes: float  # of this process on the processor
    fixed: bool = False  # no attention: a vector that does not change
    scored: int | None = None  # test sentences; all unless given
    searched: bool = False  # for a rate: the validation loss when the minutes are over

    def build(self, vocab_size: int) -> nn.Module:
        "The model, with its change."
        model = super().build(vocab_size)
        if self.fixed:
            model.cross_attn = FixedVector()
        return model


GRU = {"model": "gru", "sizes": {"d_model": 168, "dropout": 0.1}}
MODELS: dict[str, Row] = {  # as many parameters, but for the attention that the last lacks
    "transformer": {},
    "gru": GRU,
    "gru, fixed vector": {**GRU, "fixed": True},
}


def cell(part: str, model: str, rate: float, seed: int) -> Cell:
    "The rate falls with 1/√step: the first half of a training is a training of half the length."
    preset = Translation.presets["multi30k-cpu"]
    changes = {
        "sizes": {**preset.sizes, "n_layers": 2},
        "vocab_size": 3_000,
        "max_tokens": 1_000,
        "steps": 700,
        "minutes": 2.0 if part == "training" else 0.8,
        "every": 175,
        "warmup": 200,
        "lr": rate,
        "searched": part == "search",
    }
    recipe = Timed(**{**vars(preset), **changes, **MODELS[model]})
    return Cell({"part": part, "model": model, "rate": rate, "seed": seed}, recipe, seed)


def best(rows: Sequence[Row], model: str) -> float:
    "The rate with the lowest validation loss after the minutes of the search."
    found = [row for row in rows if (row["part"], row["model"]) == ("search", model)]
    return min((row["val_loss"], row["rate"]) for row in found)[1]


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "A search with one seed, wider while the best rate is an outer one; then the best, three times."
    searched = ("transformer", "gru")
    for model in searched:
        for rate in RATES:
            yield cell("search", model, rate, 0)
    for model in searched:
        tried = list(RATES)
        while len(tried) < MOST_RATES and best(rows, model) in (tried[0], tried[-1]):
            lower = best(rows, model) == tried[0]
            tried = [tried[0] / 2, *tried] if lower else [*tried, tried[-1] * 2]
            yield cell("search", model, tried[0 if lower else -1], 0)
    for seed, model in product(SEEDS, searched):
        yield cell("training", model, best(rows, model), seed)
    for seed in SEEDS:  # its rate was not searched for
        yield cell("training", "gru, fixed vector", best(rows, "gru"), seed)


def by_length(run: Run) -> Row:
    "Test sentences in groups of equal number, by words of the source: mean words, and loss."
    recipe = run.recipe
    pairs = recipe.examples(recipe.test)[: recipe.scored]
    pairs = sorted(pairs, key=lambda pair: len(pair[0].split()))
    found: dict[str, list[float]] = {"words": [], "losses": []}
    for group in range(GROUPS):
        some = pairs[group * len(pairs) // GROUPS : (group + 1) * len(pairs) // GROUPS]
        words = [len(source.split()) for source, _ in some]
        batches = recipe.batches(run.trained.tokenizer, some)
        found["words"].append(sum(words) / len(words))
        found["losses"].append(run.trainer.evaluate(batches, recipe.loss))
    return found


def scores(run: Run) -> Row:
    "What is measured of the weights as they are, greedily; the model goes on learning after it."
    run.trained.model.eval()
    recipe = run.recipe
    scored = run.trained.score(recipe.examples(recipe.test)[: recipe.scored], beam=1)
    run.trained.model.train()
    kept = {name: scored[name] for name in ("bleu", "signature", "beam", "sentences")}
    return kept | by_length(run)


def measure(run: Run) -> list[Row]:
    "A row when the steps are over, and one when the minutes are; of a search only the second."
    recipe, rows = run.recipe, []
    steps, minutes, tokens = run.trainer.run(sys.maxsize), 0.0, 0
    curve: dict[str, list[Any]] = {"steps": [], "minutes": [], "val_losses": []}
    while len(rows) < 2:
        start = time.process_time()
        done = next(steps)
        minutes, tokens = minutes + (time.process_time() - start) / 60, tokens + done.tokens
        over = {"steps": done.step == recipe.steps, "minutes": minutes >= recipe.minutes}
        due = [name for name in over if over[name] and name not in {r["budget"] for r in rows}]
        so_far = {"step": done.step, "minutes": minutes, "tokens": tokens}
        if recipe.searched:
            if over["minutes"]:
                return [so_far | {"val_loss": run.evaluate()}]
            continue
        if due or done.step % recipe.every == 0:
            for name, value in zip(curve, (done.step, minutes, run.evaluate()), strict=True):
                curve[name].append(value)
        for name in due:
            row = {"budget": name, **so_far, "parameters": count(run.trained.model)}
            row |= {"val_loss": curve["val_losses"][-1], **scores(run)}
            rows.append(row | {"curve": {name: list(values) for name, values in curve.items()}})
    return rows


QUICK = BRIEF_PAIRS | {"steps": 2, "minutes": 1e-4, "every": 1}
RECURRENCE = Experiment(
    "A training from English to German in two rows, one after 700 steps (budget: steps) and one "
    "after 2 minutes (budget: minutes), whichever comes first. All are the preset multi30k-cpu "
    "with 3,000 tokens in the vocabulary, 1,000 tokens a side and batch, a warm-up of 200 steps to "
    "the peak rate, then 1/√step; nothing averaged. transformer: 2 layers of width 128. gru: width "
    "168, with additive attention; fixed vector: the same without attention, at the rate of the "
    "other. part: search is seed 0 with each rate, for 0.8 minutes; training takes the rate with "
    "the lowest validation loss there. minutes: time of this process on one core, in optimiser "
    "steps and the making of their batches, without measuring, and without waiting for a core that "
    "others use. tokens: target tokens learned from. val_loss: nats per token of the validation "
    "split without smoothing. bleu: greedy, of the test split. words, losses: the test split in "
    "five groups of as many sentences by the words of the source: their mean, and nats per target "
    "token. curve: val_loss on the way.",
    measure,
    cells,
    {**QUICK, "warmup": 1, "test": "test", "scored": 31},
)
