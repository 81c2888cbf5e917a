"""What orthogonal steps are worth to a small decoder, each optimiser at a rate found for it."""

from collections.abc import Iterator, Sequence

from experiments.runner import BRIEF, Cell, Experiment, Row, Variant
from transformer_lit.recipes.language_model import LanguageModeling
from transformer_lit.recipes.recipe import preset
from transformer_lit.training.run import Run

SEEDS, STEPS, OPTIMIZERS = range(3), 400, ("adamw", "muon")
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
FIRST = RATES[1:4]  # a grid grows from these while its best rate is at an edge


def peak_losses(rows: Sequence[Row], optimizer: str) -> dict[float, float]:
    "The loss at each peak that seed 0 has tried."
    return {
        row["lr"]: row["val_loss"]
        for row in rows
        if row["optimizer"] == optimizer and row["seed"] == 0
    }


def next_peak(tried: dict[float, float]) -> float | None:
    "The peak to try next: of the first ones, then beyond the edge at which the best one lies."
    if left := [peak for peak in FIRST if peak not in tried]:
        return left[0]
    place = RATES.index(min(tried, key=tried.get))
    around = (peak for peak in RATES[max(0, place - 1) : place + 2] if peak not in tried)
    return next(around, None)


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "For each optimiser: seed 0 at each peak, then the other seeds at the best of them."
    base = preset(LanguageModeling, "shakespeare-cpu", steps=STEPS)
    usual = {**vars(base), "every": STEPS}

    def cell(optimizer: str, peak: float, seed: int) -> Cell:
        about = {"optimizer": optimizer, "lr": peak, "seed": seed}
        return Cell(about, Variant(**usual | {"optimizer": optimizer, "lr": peak}), seed)

    for optimizer in OPTIMIZERS:
        while peak := next_peak(tried := peak_losses(rows, optimizer)):
            yield cell(optimizer, peak, 0)
            if peak not in peak_losses(rows, optimizer):  # a quick run keeps few rows
                break
        tried = peak_losses(rows, optimizer)
        for seed in SEEDS[1:]:
            yield cell(optimizer, min(tried, key=tried.get, default=FIRST[0]), seed)


def measure(run: Run) -> list[Row]:
    run.train()
    return [{"val_loss": run.evaluate(), "minutes": run.seconds / 60}]


MUON = Experiment(
    f"A training of the preset shakespeare-cpu cut to {STEPS} steps, with the whole schedule of "
    "the rate, by one of two optimisers: adamw, or muon for the hidden matrices and adamw for the "
    "rest. Each has several peaks of the rate with seed 0, until the best lies between two others, "
    "and the best has the other seeds. val_loss: nats per character over all of the validation "
    "text. minutes: of optimiser steps.",
    measure,
    cells,
    BRIEF,
)
