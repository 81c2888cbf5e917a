"""The first training of the book at seven moments, whole and with a part changed."""

from collections.abc import Callable
from itertools import islice
from statistics import mean

import torch
from torch import nn

from experiments.runner import Experiment, Row
from transformer_lit.course.data import load_pairs
from transformer_lit.course.ten_minutes import SIZES, Numbers
from transformer_lit.models.transformer import Transformer, TransformerConfig
from transformer_lit.text.tokenizer import BPETokenizer

EVERY, LOOKS, ASKED = 20, 6, 100  # steps between looks; looks; new numbers


def no_positions(model: nn.Module) -> None:
    model.position = None


def no_mask(model: nn.Module) -> None:
    for layer in model.decoder:
        layer.attn.causal = False


CHANGES: dict[str, tuple[Callable[[nn.Module], None], Row]] = {
    "whole": (lambda model: None, {}),
    "no positions": (no_positions, {}),
    "no mask": (no_mask, {}),
    "one head": (lambda model: None, {"n_heads": 1}),
}


def look(every: int = EVERY, asked: int = ASKED) -> list[Row]:
    "A row for each model: what it says at each look."
    pairs = load_pairs("numbers", "en", "de", "train")
    tokenizer = BPETokenizer.train((text for pair in pairs[:3000] for text in pair), 320)
    numbers, rows = Numbers(tokenizer), []
    new = numbers.new[:asked]
    for name, (change, sizes) in CHANGES.items():
        torch.manual_seed(1)
        model = Transformer(TransformerConfig(320, **SIZES | sizes))
        change(model)
        row: Row = {"model": name, "at": [], "losses": [], "said": []}
        steps = numbers.steps(model)
        for n in range(LOOKS + 1):
            losses = list(islice(steps, every if n else 0))
            row["at"].append(n * every)
            row["losses"].append(mean(losses[-10:]) if n else None)
            row["said"].append(numbers.translate(model, [english for english, _ in new]))
        rows.append(row)
    return [{"new": new}, *rows]


TEN_MINUTES = Experiment(
    "The training of the chapter Ten minutes: a Transformer learns, whole and with a part changed, "
    "from the same first weights and batches. The first row has the new numbers, in English and in "
    "German. model: what was changed. at: steps of 64 pairs. losses: the mean of the last ten, "
    "in nats per token. said: what it writes for each of the numbers, greedily.",
    look,
    quick={"every": 1, "asked": 3},
)
