"""Four residual wirings on real text: learning rates, warm-up and depth.

A character model of EncoderLayers with causal attention is trained on tiny Shakespeare, once for
each wiring, learning rate, depth, seed, with and without warm-up. Nothing else differs: a seed
means the same batches and the same first weights for all wirings, but for the factor beta that
belongs to DeepNorm. Then each wiring is trained for longer with the rate and the warm-up that
served it best. `--quick` trains a few steps on generated text and stores nothing.
"""

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from benchmarks.common import command_line, store
from transformer_lit.attention.attend import attend
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.base.datasets import load_pairs, load_text
from transformer_lit.block.feedforward import FeedForward
from transformer_lit.block.init import deepnorm_init, xavier_init
from transformer_lit.block.layers import EncoderLayer
from transformer_lit.block.norm import LayerNorm
from transformer_lit.block.residual import (
    DeepNorm,
    PostNorm,
    PreNorm,
    SandwichNorm,
    deepnorm_scales,
)
from transformer_lit.position.absolute import Sinusoidal
from transformer_lit.text.embedding import TokenEmbedding

WIRINGS = ("post", "pre", "sandwich", "deep")
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
DEPTHS = (2, 6, 16)
SEEDS = 3
STEPS, WARMUP, EVERY = 120, 40, 12
LONG_STEPS, LONG_EVERY = 400, 20
D_MODEL, D_FF, HEADS = 32, 128, 4
BATCH, LENGTH = 8, 32  # windows in a batch, characters in a window
VAL_WINDOWS = 64
ABOUT = (
    f"One training run on the characters of tiny Shakespeare in a row: Adam (betas 0.9 and 0.98, "
    f"no clipping, no dropout), {BATCH} windows of {LENGTH} characters in a "
    f"batch, width {D_MODEL}, d_ff {D_FF}, {HEADS} heads. wiring: post, pre, sandwich or deep. "
    "layers: depth. rate: the learning rate. warmup: steps over which it rises from 0, 0 for none. "
    f"steps, every: {STEPS} steps for each rate and depth, {LONG_STEPS} for the best rate and "
    "warm-up of each wiring, with the validation loss in nats per character after each `every` "
    "steps in `losses`, null where it is not finite. unigram: the loss of a model that knows how "
    "frequent each character is, no more."
)


class Decoder(nn.Module):
    "A decoder-only character model in one wiring."

    def __init__(self, wiring: str, layers: int, vocab_size: int):
        super().__init__()
        d_model = D_MODEL
        _, scale = deepnorm_scales(decoder_layers=layers)
        make = {
            "post": lambda: PostNorm(LayerNorm(d_model)),
            "pre": lambda: PreNorm(LayerNorm(d_model)),
            "sandwich": lambda: SandwichNorm(LayerNorm(d_model), LayerNorm(d_model)),
            "deep": lambda: DeepNorm(LayerNorm(d_model), alpha=scale.alpha),
        }[wiring]
        self.tok_emb, self.position = TokenEmbedding(vocab_size, d_model), Sinusoidal(d_model)
        self.layers = nn.ModuleList(
            EncoderLayer(
                MultiHeadAttention(d_model, HEADS, causal=True, attend=attend),
                FeedForward(d_model, D_FF),
                residual=make,
            )
            for _ in range(layers)
        )
        needs_norm = self.layers[0].attn_residual.needs_final_norm
        self.norm = LayerNorm(d_model) if needs_norm else nn.Identity()
        self.lm_head = nn.Linear(d_model, vocab_size)
        xavier_init(self.lm_head)
        if wiring == "deep":
            deepnorm_init(self.layers, scale.beta)
        else:
            xavier_init(self.layers)

    def forward(self, ids: Tensor) -> Tensor:  # B T -> B T V
        x = self.tok_emb(ids) + self.position(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def windows(ids: Tensor, count: int, generator: torch.Generator) -> Tensor:
    "`count` windows of LENGTH + 1 characters from random places: count T+1."
    starts = torch.randint(len(ids) - LENGTH, (count,), generator=generator)
    return ids[starts[:, None] + torch.arange(LENGTH + 1)]


def train(
    train_ids: Tensor, val: Tensor, runs: Sequence[dict[str, Any]], *, vocab_size: int
) -> list[list[float | None]]:
    """The validation losses of runs that differ in rate, warm-up and seed alone.

    They train side by side, a leading axis on each weight; no weight belongs to two runs, so each
    run is what it would be alone.
    """
    models = []
    for run in runs:
        torch.manual_seed(run["seed"])
        models.append(Decoder(run["wiring"], run["layers"], vocab_size).eval())
    weights, _ = stack_module_state(models)
    sources = {run["seed"]: torch.Generator().manual_seed(run["seed"]) for run in runs}
    rates = torch.tensor([run["rate"] for run in runs])
    warmups = torch.tensor([max(run["warmup"], 1) for run in runs])
    # the rate differs from run to run, which torch's Adam cannot have: it steps with rate 1, and
    # of that step the weights go the part that their rate says
    optimiser = torch.optim.Adam(weights.values(), lr=1.0, betas=(0.9, 0.98), fused=True)

    def losses_of(batch: Tensor) -> Tensor:  # R B T+1 -> R
        def loss(weights: dict[str, Tensor], ids: Tensor) -> Tensor:
            logits = functional_call(models[0], weights, (ids[:, :-1],))
            return nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

        return vmap(loss)(weights, batch)

    curves: list[list[float | None]] = [[] for _ in runs]
    for step in range(1, runs[0]["steps"] + 1):
        batches = {seed: windows(train_ids, BATCH, source) for seed, source in sources.items()}
        optimiser.zero_grad()
        losses_of(torch.stack([batches[run["seed"]] for run in runs])).sum().backward()
        before = {name: weight.detach().clone() for name, weight in weights.items()}
        optimiser.step()
        parts = (step / warmups).clamp(max=1) * rates
        with torch.no_grad():
            for name, weight in weights.items():
                part = parts.view(-1, *[1] * (weight.ndim - 1))
                weight.copy_(torch.lerp(before[name], weight, part))
            if step % runs[0]["every"] == 0:
                values = losses_of(val.expand(len(runs), *val.shape)).tolist()
                for curve, value in zip(curves, values, strict=True):
                    curve.append(value if math.isfinite(value) else None)
    return curves


def grid(
    rates: Sequence[float], depths: Sequence[int], seeds: int, **lengths: int
) -> Iterator[list[dict[str, Any]]]:
    "Groups of runs: all rates at the second depth; at the others the middle one of the rates."
    for layers in (depths[1], depths[0], *depths[2:]):
        for wiring in WIRINGS:
            yield [
                {
                    "wiring": wiring,
                    "layers": layers,
                    "rate": rate,
                    "warmup": warmup,
                    "seed": seed,
                    **lengths,
                }
                for rate in (rates if layers == depths[1] else rates[len(rates) // 2 :][:1])
                for warmup in (0, WARMUP)
                for seed in range(seeds)
            ]


def best(
    rows: Sequence[dict[str, Any]], layers: int, **lengths: int
) -> Iterator[list[dict[str, Any]]]:
    "Longer runs: for each wiring the rate and warm-up with the lowest mean loss at that depth."
    for wiring in WIRINGS:
        lasts: dict[tuple[float, int], list[float]] = {}
        for row in rows:
            if (row["wiring"], row["layers"]) == (wiring, layers):
                last = math.inf if row["losses"][-1] is None else row["losses"][-1]
                lasts.setdefault((row["rate"], row["warmup"]), []).append(last)
        rate, warmup = min(lasts, key=lambda setting: sum(lasts[setting]))
        run = {"wiring": wiring, "layers": layers, "rate": rate, "warmup": warmup}
        seeds = sorted({row["seed"] for row in rows})
        yield [{**run, "seed": seed, **lengths} for seed in seeds]


def text_ids(quick: bool) -> tuple[Tensor, Tensor, int]:
    "Training and validation characters as ids, and the number of different ones."
    if quick:
        texts = ["\n".join(de for _, de in load_pairs("numbers", "en", "de", "val"))] * 2
    else:
        texts = [load_text("tinyshakespeare", split) for split in ("train", "val")]
    alphabet = {char: i for i, char in enumerate(sorted(set("".join(texts))))}
    train_ids, val_ids = (torch.tensor([alphabet[char] for char in text]) for text in texts)
    return train_ids, val_ids, len(alphabet)


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    "Train all runs, print their last losses, and store them unless `--quick`."
    parser = command_line(__doc__, quick="a few steps on generated text")
    options = parser.parse_args(argv)
    train_ids, val_ids, vocab_size = text_ids(options.quick)
    val = windows(val_ids, VAL_WINDOWS, torch.Generator().manual_seed(0))
    shares = train_ids.bincount(minlength=vocab_size) / len(train_ids)
    unigram = -shares[val[:, 1:]].log().mean().item()
    rates, depths, seeds = ((1e-3,), (1, 2), 1) if options.quick else (RATES, DEPTHS, SEEDS)
    short = {"steps": 4, "every": 2} if options.quick else {"steps": STEPS, "every": EVERY}
    long = {"steps": 6, "every": 3} if options.quick else {"steps": LONG_STEPS, "every": LONG_EVERY}
    rows: list[dict[str, Any]] = []
    start = time.perf_counter()

    def measure(groups: Iterator[list[dict[str, Any]]]) -> None:
        for runs in groups:
            curves = train(train_ids, val, runs, vocab_size=vocab_size)
            for run, losses in zip(runs, curves, strict=True):
                rows.append({**run, "unigram": unigram, "losses": losses})
                last = "diverged" if losses[-1] is None else f"{losses[-1]:.3f}"
                print(
                    f"{run['wiring']:<10}{run['layers']:>7}{run['rate']:>9.0e}{run['warmup']:>9}"
                    f"{run['seed']:>6}{run['steps']:>7}{last:>10}"
                    f"{time.perf_counter() - start:>7.0f}",
                    flush=True,
                )

    print(f"a model of frequencies alone: {unigram:.3f}")
    heads = ("layers", 7), ("rate", 9), ("warm-up", 9), ("seed", 6), ("steps", 7), ("loss", 10)
    print("wiring    ", *(f"{head:>{width}}" for head, width in (*heads, ("s", 7))), sep="")
    measure(grid(rates, depths, seeds, **short))
    measure(best(list(rows), depths[1], **long))
    if not options.quick:
        store("wirings", ABOUT, "python -m benchmarks.wirings", rows, options.out)
    return rows


if __name__ == "__main__":
    main()
