"""What it costs to turn the heads of a trained translator into groups, and how soon it is mended.

The shipped model has 4 key/value heads in each of its 12 attentions. They become 2 or 1: by the
mean of each group, by its first head, or by noise of the same size. Measured are validation loss
and greedy BLEU right after the change, and both again when every model, the unchanged one included,
has been trained for the same few steps more. `--quick` takes few pairs and stores nothing.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import command_line, store
from transformer_lit import load
from transformer_lit.attention.grouped import mean_heads, to_grouped
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.base.datasets import load_pairs
from transformer_lit.base.device import keep_freed_memory
from transformer_lit.models.transformer import Transformer
from transformer_lit.recipes.translation import Translator, translation_loss
from transformer_lit.training.data import PairStream, fixed_batches
from transformer_lit.training.schedule import adamw, inverse_sqrt
from transformer_lit.training.trainer import Trainer

NAME = "multi30k-en-de"
WARMUP, PEAK, SMOOTHING = 20, 5e-4, 0.1  # of the training after the change
SENTENCES = 300  # that are translated for BLEU

ABOUT = (
    "The shipped en-de translator with its 4 key/value heads in each attention pooled into "
    "n_kv_heads. pool: mean of each group, first head of it, or noise of the same size; 'none' is "
    "the unchanged model. steps: optimiser steps after the change; every model sees the same "
    "batches. val_loss: nats per token on Multi30k's validation pairs, without smoothing; bleu: "
    "greedy, lower-cased, on the first 300 of them. parameters: of the whole model. One seed."
)


def first_heads(heads: Tensor) -> Tensor:
    return heads[:, 0]


def noise(heads: Tensor) -> Tensor:
    return heads.std() * torch.randn_like(heads[:, 0])


POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": mean_heads,
    "first": first_heads,
    "noise": noise,
}


def grouped(model: Transformer, n_kv_heads: int, pool: Callable[[Tensor], Tensor]) -> Transformer:
    "A copy of a model with every attention in it converted."
    model = deepcopy(model)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, MultiHeadAttention):
                setattr(module, name, to_grouped(child, n_kv_heads, pool=pool))
    return model


class Study:
    "The trained translator, its data, and what is measured of a changed copy."

    def __init__(self, train_pairs: int | None, val_pairs: int | None):
        self.translator = load(NAME)
        info, tokenizer = self.translator.info, self.translator.tokenizer
        languages = info["dataset"], info["source"], info["target"]
        train, self.pairs = (
            load_pairs(*languages, split, form=info["form"])[:most]
            for split, most in (("train", train_pairs), ("val", val_pairs))
        )
        ids = []
        for pairs in (train, self.pairs):
            sides = (tokenizer.encode_all(side) for side in zip(*pairs, strict=True))
            ids.append(list(zip(*sides, strict=True)))
        self.train, val = ids
        self.special = {"pad_id": tokenizer.pad, "bos": tokenizer.bos, "eos": tokenizer.eos}
        self.val = fixed_batches(val, 2_000, **self.special)

    def rows(self, model: Transformer, steps: int, **about: Any) -> list[dict[str, Any]]:
        "Loss and BLEU of a model before and after some steps of training."
        stream = PairStream(self.train, max_tokens=1_500, seed=1, **self.special)
        trainer = Trainer(
            model,
            partial(translation_loss, smoothing=SMOOTHING),
            adamw(model, weight_decay=0.0),
            inverse_sqrt(PEAK, WARMUP),
            stream,
            clip=1.0,
        )
        about = about | {"parameters": sum(p.numel() for p in model.parameters())}
        out = [about | self.quality(trainer)]
        torch.manual_seed(0)  # the same dropout for all
        for _ in trainer.run(steps):
            pass
        return [*out, about | self.quality(trainer)]

    def quality(self, trainer: Trainer) -> dict[str, Any]:
        loss = trainer.evaluate(self.val, translation_loss)
        tokenizer, info = self.translator.tokenizer, self.translator.info
        model = deepcopy(trainer.model)  # a Translator puts its model into eval mode
        metrics = Translator(model, tokenizer, info).score(self.pairs[:SENTENCES], beam=1)
        found = {"bleu": metrics["bleu"], "signature": metrics["signature"]}
        return {"steps": trainer.done, "val_loss": loss} | found


def measure(steps: int, sizes: Sequence[int], *pairs: int | None) -> list[dict[str, Any]]:
    "Rows of the unchanged model and of every conversion; pairs: at most, to train and to validate."
    keep_freed_memory()
    study = Study(*pairs)
    original = study.translator.model
    rows = study.rows(deepcopy(original), steps, n_kv_heads=4, pool="none")
    for n_kv_heads in sizes:
        for name, pool in POOLS.items():
            torch.manual_seed(0)
            model = grouped(original, n_kv_heads, pool)
            found = study.rows(model, steps, n_kv_heads=n_kv_heads, pool=name)
            rows += found
            print(*found, sep="\n", flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    "Measure, print, and store as results/measurements/attention_pooling.json."
    parser = command_line(__doc__, quick="few pairs")
    parser.add_argument("--steps", type=int, default=100, help="of training after the change")
    given = parser.parse_args(arguments)
    rows = measure(1, (1,), 50, 2) if given.quick else measure(given.steps, (2, 1), None, None)
    for row in rows:
        print(
            f"{row['n_kv_heads']} {row['pool']:>5}, {row['steps']:>3} steps: "
            f"loss {row['val_loss']:.3f}, BLEU {row['bleu']:.1f}"
        )
    if not given.quick:
        store(
            "attention_pooling",
            ABOUT,
            f"python -m benchmarks.grouped --steps {given.steps}",
            rows,
            given.out,
        )


if __name__ == "__main__":
    main()
