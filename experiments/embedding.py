"""The factor √C in front of an embedding, and the table tied to the output layer."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor, nn

from experiments.runner import BRIEF, CHANGES, Cell, Experiment, Row, Variant, count, val_losses
from transformer_lit.training.run import Run

PARTS = {  # entry -> what is done to the fresh model
    "scale": {"√C": "none", "none": "plain", "wide": "wide", "low position": "low position"},
    "tie": {"tied": "tied", "untied": "none"},
}
TOKENS = {"scale": "characters", "tie": 512}
RATES, SEEDS = (1e-3, 3e-3, 1e-2), range(3)
BASE = Variant(
    dataset="tinyshakespeare",
    model="assembly",
    sizes={"d_model": 128, "n_layers": 2, "n_heads": 4, "d_ff": 512, "position": "sinusoidal"}
    | {"norm": "layer", "activation": "gelu", "gated": False},
    length=32,
    batch_size=16,
    steps=300,
    every=100,
    warmup=30,
    lr=RATES[0],
    betas=(0.9, 0.98),
    eps=1e-9,
    weight_decay=0.0,
    val_batches=8,
)


def _plain(model: nn.Module) -> None:
    model.tok_emb.scale = 1.0


def _tie(model: nn.Module) -> None:  # only now: the layers have drawn the same weights as without
    model.lm_head = model.tok_emb.tied_head()


def _low_position(model: nn.Module) -> None:
    "No factor, and positions divided by √C: the balance of the factor, all vectors small."
    model.tok_emb.scale = 1.0
    factor = model.config.d_model**-0.5
    model.position.register_forward_hook(lambda module, inputs, out: factor * out)
    model.position.factor = factor  # for `token_share`


CHANGES |= {"plain": _plain, "tied": _tie, "low position": _low_position}


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    for part, entries in PARTS.items():
        for seed, rate, entry in product(SEEDS, RATES, entries):
            changes = {"lr": rate, "tokens": TOKENS[part], "change": entries[entry]}
            about = {"part": part, "entry": entry, "rate": rate, "seed": seed, "steps": BASE.steps}
            yield Cell(about, replace(BASE, **changes), seed)


@torch.no_grad()
def token_share(model: nn.Module, frequencies: Tensor) -> float:
    "The token's part of the mean squared norm of token plus position."
    squares = (model.tok_emb.scale * model.tok_emb.weight).square().sum(1)
    token = (frequencies @ squares).item()
    factor = getattr(model.position, "factor", 1.0)
    return token / (token + factor**2 * model.config.d_model / 2)  # sinusoids: squared norm C/2


def measure(run: Run) -> list[Row]:
    "One row: shares and losses, before the first step and after."
    recipe, model, tokenizer = run.recipe, run.trained.model, run.trained.tokenizer
    ids = tokenizer.encode_text(recipe.examples("train"))
    frequencies = ids.bincount(minlength=tokenizer.vocab_size) / len(ids)
    shares, losses = [token_share(model, frequencies)], [run.evaluate()]
    run.train()
    return [
        {
            "vocab_size": tokenizer.vocab_size,
            "parameters": count(model),
            "shares": [*shares, token_share(model, frequencies)],
            "losses": losses + val_losses(run),
            "seconds": run.seconds,
        }
    ]


EMBEDDING = Experiment(
    "One training in a row: a decoder of width 128 with 2 pre-norm layers, 4 heads, d_ff 512 and "
    "sinusoidal positions, on tiny Shakespeare, 16 blocks of 32 tokens in a batch, AdamW (betas "
    "0.9 and 0.98, no decay, clipping at 1), rate up for 30 steps, then half a cosine down to a "
    "tenth. part: scale (tokens are characters, output layer untied) or tie (tokens are the pieces "
    "of a BPE of 512, √C). entry: √C (rows of variance 1/C times √C), none (the same rows, no "
    "factor), wide (rows of variance 1, no factor), low position (rows of variance 1/C, no factor, "
    "positions divided by √C: the shares of √C); tied or untied. rate: the peak. parameters: of "
    "the model, a shared table counted once. shares: the part of the mean squared norm of token "
    "plus position that is the token's, before the first and after the last step, each token "
    "counted as often as the text has it. losses: nats per token on the first 512 blocks of the "
    "validation text, before the first and after every 100 of 300 steps. seconds: of all steps.",
    measure,
    cells,
    BRIEF,
)
