"""What label smoothing does to a small translator: its loss, its certainty, its translations."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import torch

from experiments.runner import BRIEF_PAIRS, Cell, Experiment, Row, held_out
from transformer_lit.recipes.translation import Translation
from transformer_lit.training.run import Run

SHARES, SEEDS, BINS, SENTENCES = (0.0, 0.1, 0.2), range(3), 10, 300
STEPS = 2000


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "A seed is the same batches, first weights and dropout for every share."
    preset = Translation.presets["multi30k-cpu"]
    changes = {
        "sizes": {**preset.sizes, "n_layers": 2},
        "vocab_size": 3_000,
        "max_tokens": 700,
        "steps": STEPS,
        "every": STEPS,
        "warmup": 200,
        "lr": 3e-3,
        "average": 1,
        "fall": "cosine",
    }
    for seed, share in product(SEEDS, SHARES):
        recipe = replace(preset, **changes, smoothing=share)
        yield Cell({"smoothing": share, "seed": seed}, recipe, seed)


@torch.inference_mode()
def calibration(run: Run) -> Row:
    "How sure the model is of its first guess, and how often that guess is right, in bins."
    model, certain, right = run.trained.model, [], []
    for batch in held_out(run):
        hidden = model.hidden(batch.src, batch.tgt_in, batch.src_mask)
        top, guess = model.lm_head(hidden[batch.tgt_mask]).softmax(-1).max(-1)
        certain.append(top)
        right.append(guess == batch.tgt_out[batch.tgt_mask])
    top, hit = torch.cat(certain).double(), torch.cat(right).double()
    place = (BINS * top).long().clamp(max=BINS - 1)
    count = place.bincount(minlength=BINS)
    confidence, accuracy = (
        torch.zeros(BINS).double().index_add(0, place, x) / count.clamp(min=1) for x in (top, hit)
    )
    return {
        "ece": ((confidence - accuracy).abs() * count).sum().item() / len(top),
        "top": top.mean().item(),
        "accuracy": hit.mean().item(),
        "bin_count": count.tolist(),
        "bin_top": confidence.tolist(),
        "bin_accuracy": accuracy.tolist(),
    }


def measure(run: Run) -> list[Row]:
    run.train()
    row = {"val_loss": run.evaluate(), **calibration(run)}
    sentences = run.recipe.examples("val")[:SENTENCES]
    scored = run.trained.score(sentences, beam=1)
    row |= {name: scored[name] for name in ("bleu", "signature", "beam", "sentences")}
    return [row | {"minutes": run.seconds / 60}]


SMOOTHING = Experiment(
    "A training of the preset multi30k-cpu (English to German, raw text), shortened, in a row: 2 "
    "layers, 3,000 tokens in the vocabulary, 700 tokens a side and batch, 2,000 steps, a warm-up "
    "of 200 to a peak of 0.003, then half a cosine to a twentieth; the last weights, nothing "
    "averaged. smoothing: ε. All but the score on the tokens of the whole validation split, each "
    "predicted from the human translation before it. val_loss: nats per token without smoothing. "
    "top: mean probability of the most probable token; accuracy: share of tokens where that one "
    "is right. bin_count, bin_top, bin_accuracy: tokens, and the means of both, in ten bins of "
    "equal width of that probability. ece: expected calibration error, the mean over tokens of "
    "|bin_top − bin_accuracy|. bleu: greedy translations of the first 300 validation sentences. "
    "minutes: of optimiser steps.",
    measure,
    cells,
    BRIEF_PAIRS,
)
