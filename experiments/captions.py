"""What a small translator of captions needs: a search over its settings on the validation set."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from experiments.runner import BRIEF_PAIRS, Cell, Experiment, Row, take_mean, val_losses
from transformer_lit.recipes.translation import Translation
from transformer_lit.training.run import Run

ALPHAS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
USUAL = {"dropout": 0.1, "fall": "inverse_sqrt", "lr": 2e-3}
TRIED = (
    USUAL,
    {"dropout": 0.2, "fall": "cosine", "lr": 3e-3},
)


@dataclass(frozen=True, kw_only=True)
class Captions(Translation):
    "The recipe, and how many sentences of the validation set are translated."

    scored: int | None = None  # all unless given


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "One seed: this finds settings, and what they are worth is measured with others."
    preset = Captions(**vars(Translation.presets["multi30k-cpu"]))
    for about in TRIED:
        sizes = {**preset.sizes, "dropout": about["dropout"]}
        rest = {key: value for key, value in about.items() if key != "dropout"}
        yield Cell(about, replace(preset, form="tok", sizes=sizes, **rest), seed=0)


def measure(run: Run) -> list[Row]:
    "A row for each strength of the length penalty."
    trained, recipe = run.trained, run.recipe
    run.train()
    last = run.evaluate()
    take_mean(run, recipe.average)
    losses = {
        "last_loss": last,
        "val_loss": run.evaluate(),
        "lowest_loss": min(val_losses(run)),
    }
    sentences, rows = recipe.examples("val")[: recipe.scored], []
    for alpha in ALPHAS:
        scored = trained.score(sentences, alpha=alpha)
        rows.append({**losses, **scored, "minutes": run.seconds / 60})
    return rows


CAPTIONS = Experiment(
    "A training of the preset multi30k-cpu on the lower-cased, tokenised files, English to German, "
    "seed 0, and a search of the validation split with one length penalty in a row. dropout, "
    "fall, peak: what was changed; fall is that of the rate after its warm-up, 1/√step or half a "
    "cosine to a twentieth. val_loss: nats per token of the validation split without smoothing, of "
    "the mean of the last 10 checkpoints; last_loss: of the last one; lowest_loss: the lowest on "
    "the way. bleu: of all validation sentences, with that beam and strength alpha of the penalty; "
    "greedy_bleu: with a beam of 1. minutes: of optimiser steps, beside other work.",
    measure,
    cells,
    BRIEF_PAIRS | {"scored": 3},
)
