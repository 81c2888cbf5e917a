"""What the mean of the last checkpoints is worth, over their number."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from experiments.runner import BRIEF_PAIRS, Cell, Experiment, Row, take_mean
from transformer_lit.recipes.translation import Translation
from transformer_lit.training.run import Run, checkpoints

SEEDS, NUMBERS, SENTENCES = range(3), (1, 2, 3, 5, 10, 20), 300


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "The preset of a CPU, shortened; its rate falls with 1/√step, so that it never ends."
    preset = Translation.presets["multi30k-cpu"]
    recipe = replace(
        preset,
        sizes={**preset.sizes, "n_layers": 2},
        vocab_size=3_000,
        max_tokens=700,
        steps=2_000,
        every=50,
        warmup=200,
        lr=3e-3,
        average=max(NUMBERS),
    )
    for seed in SEEDS:
        yield Cell({"seed": seed}, recipe, seed)


def measure(run: Run) -> list[Row]:
    "A row for each number of checkpoints that the training left."
    trained, rows = run.trained, []
    run.train()
    kept = len(checkpoints(run.out / "checkpoints"))
    sentences = run.recipe.examples("val")[:SENTENCES]
    for number in [n for n in NUMBERS if n <= kept]:
        take_mean(run, number)
        scored = trained.score(sentences, beam=1)
        row = {"averaged": number, "val_loss": run.evaluate(), "minutes": run.seconds / 60}
        rows.append(row | {key: scored[key] for key in ("bleu", "signature", "sentences")})
    return rows


AVERAGING = Experiment(
    "The mean of the last checkpoints of one training in a row. The training is the preset "
    "multi30k-cpu (English to German, raw text), shortened: 2 layers, 3,000 tokens in the "
    "vocabulary, 700 tokens a side and batch, 2,000 steps, a warm-up of 200 to a peak of 0.003, "
    "then 1/√step; a checkpoint every 50 steps. averaged: how many. val_loss: nats per token on "
    "the validation split, without smoothing. bleu: greedy translations of the first 300 "
    "validation sentences. minutes: of optimiser steps.",
    measure,
    cells,
    BRIEF_PAIRS,
)
