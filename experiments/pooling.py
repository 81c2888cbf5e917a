"""What it costs to pool the heads of a trained translator in groups, and how soon it is mended."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from experiments.runner import NUMBERS, Cell, Experiment, Row, count
from transformer_lit import load
from transformer_lit.attention.grouped import mean_heads, to_grouped
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.recipes.translation import Translation
from transformer_lit.training.run import Run

NAME = "multi30k-en-de"
POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": mean_heads,
    "first": lambda heads: heads[:, 0],
    "noise": lambda heads: heads.std() * torch.randn_like(heads[:, 0]),
}


def pool_heads(model: nn.Module, n_kv_heads: int, pool: str) -> nn.Module:
    "The model with every attention in it converted."
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, MultiHeadAttention):
                setattr(module, name, to_grouped(child, n_kv_heads, pool=POOLS[pool]))
    return model


@dataclass(frozen=True, kw_only=True)
class Pooled(Translation):
    "The shipped translator learns on, with fewer key/value heads."

    n_kv_heads: int
    pool: str  # see POOLS, or "none"
    sentences: int = 300  # that are translated for BLEU

    def train_tokenizer(self, examples: Any) -> Any:
        "The shipped model's."
        return load(NAME).tokenizer

    def build(self, vocab_size: int) -> nn.Module:
        "The shipped model, converted."
        model = load(NAME).model
        torch.manual_seed(0)  # of the noise
        return model if self.pool == "none" else pool_heads(model, self.n_kv_heads, self.pool)


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    sizes: Row = {"vocab_size": 5000, "sizes": {}}  # the shipped model's own
    rates = {"steps": 100, "every": 100, "warmup": 20, "lr": 5e-4, "max_tokens": 1500}
    for n_kv_heads, pool in [(4, "none"), *((n, pool) for n in (2, 1) for pool in POOLS)]:
        about = {"n_kv_heads": n_kv_heads, "pool": pool}
        yield Cell(about, Pooled(dataset="multi30k", **sizes, **rates, **about), 1)


def quality(run: Run) -> Row:
    "Loss, and greedy BLEU on the first sentences."
    pairs = run.recipe.examples("val")[: run.recipe.sentences]
    found = run.trained.score(pairs, beam=1)
    kept = {name: found[name] for name in ("bleu", "signature")}
    return {"val_loss": run.evaluate(), **kept}


def measure(run: Run) -> list[Row]:
    "A row before the first step, and one after the last."
    parameters = count(run.trained.model)
    rows = [{"parameters": parameters, "steps": 0, **quality(run)}]
    torch.manual_seed(0)  # the same dropout for all, whatever the pool has drawn
    run.train()
    run.trained.model.eval()
    return [*rows, {"parameters": parameters, "steps": run.recipe.steps, **quality(run)}]


POOLING = Experiment(
    "The shipped en-de translator with its 4 key/value heads in each attention pooled into "
    "n_kv_heads. pool: mean of each group, first head of it, or noise of the same size; 'none' is "
    "the unchanged model. steps: optimiser steps after the change; every model sees the same "
    "batches. val_loss: nats per token on Multi30k's validation pairs, without smoothing; bleu: "
    "greedy, lower-cased, on the first 300 of them. parameters: of the whole model. One seed.",
    measure,
    cells,
    NUMBERS | {"steps": 1, "every": 1, "sentences": 3},
)
