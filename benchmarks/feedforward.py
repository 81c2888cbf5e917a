"""What the hidden units of a feed-forward network do while a small language model is trained.

Trains a decoder of two layers on the characters of tiny Shakespeare, with ReLU and with GELU at
several learning rates and seeds, and counts silent units on held-out text: units whose activation
has next to no slope at any position, so that no gradient reaches their incoming weights. A ReLU
unit that is silent is a dead one. Then trains the same model with SwiGLU and looks at its gates:
how far they are open, what they depend on, and what the loss becomes when they are held still.
`--quick` takes generated numbers and a few steps, and stores nothing.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.common import command_line, store
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.base.datasets import load_pairs, load_text
from transformer_lit.block.feedforward import FeedForward, GatedFeedForward, gated_width
from transformer_lit.block.init import xavier_init
from transformer_lit.block.layers import EncoderLayer
from transformer_lit.block.norm import LayerNorm
from transformer_lit.block.residual import PreNorm
from transformer_lit.position.absolute import LearnedPosition

LAYERS, C, HEADS, CONTEXT, BATCH = 2, 64, 4, 64, 8
RATES, SEEDS = (1e-3, 1e-2, 3e-2), (0, 1, 2)
STEPS, CHECKPOINTS = 800, (0, 10, 20, 50, 100, 200, 400, 600, 800)
FLAT = 1e-3  # a slope below this, at every position, makes a unit silent

ABOUT_UNITS = (
    "A row is one checkpoint of one run: a decoder-only model (2 layers, C=64, 4 heads, pre-norm, "
    "F=256 or gated 170) on the characters of tiny Shakespeare, Adam at a constant rate after 20 "
    "steps of warm-up, 512 characters a step. silent: share of hidden units whose activation has "
    "a slope below 0.001 at each of 8,192 held-out positions, over all layers and by_layer. "
    "kept: silent units that were silent at the checkpoint before, too. woken: units that were "
    "silent then and are not now. active: share of (unit, position) pairs with a positive input. "
    "val_loss: nats per character on the same positions."
)
ABOUT_GATES = (
    "A row is one layer of one SwiGLU model after its last step, on 8,192 held-out positions. "
    "histogram: share of (unit, position) pairs with silu(gate) in the bins between edges. "
    "closed: share with |silu(gate)| < 0.1. by_character_gate, by_character_up: share of the "
    "variance of silu(gate) and of the other factor that the current character explains, mean "
    "over units. loss: nats per character; cut_gate: with silu(gate) of this layer set to 0 where "
    "it is negative; still_gate: with silu(gate) held at each unit's mean; still_up: with the "
    "other factor held so; without: with this layer's output at zero."
)
EDGES = [i / 20 for i in range(-6, 21)] + [math.inf]  # silu has no value below −0.279


class CharacterModel(nn.Module):
    "A causal language model of pre-norm layers, with the feed-forward network that `ffn` makes."

    def __init__(self, vocab_size: int, ffn: Callable[[], nn.Module]):
        super().__init__()
        self.tok_emb = nn.Embedding(vocab_size, C)
        self.pos_emb = LearnedPosition(CONTEXT, C)
        self.layers = nn.ModuleList(
            EncoderLayer(
                MultiHeadAttention(C, HEADS, causal=True),
                ffn(),
                residual=lambda: PreNorm(LayerNorm(C)),
            )
            for _ in range(LAYERS)
        )
        self.norm, self.lm_head = LayerNorm(C), nn.Linear(C, vocab_size)
        xavier_init(self)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok_emb(ids) + self.pos_emb(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))

    def ffns(self) -> list[nn.Module]:
        return [layer.ffn for layer in self.layers]


def load(quick: bool) -> tuple[Tensor, Tensor, int]:
    "Training and held-out text as ids of characters, and the number of characters."
    if quick:
        pairs = load_pairs("numbers", "en", "de", "val")[:30]
        train = val = "\n".join(english for english, _ in pairs)
    else:
        train, val = (load_text("tinyshakespeare", split) for split in ("train", "val"))
    ids = {character: i for i, character in enumerate(sorted(set(train + val)))}
    train_ids, val_ids = (torch.tensor([ids[c] for c in text]) for text in (train, val))
    return train_ids, val_ids, len(ids)


def loss_of(model: nn.Module, block: Tensor) -> Tensor:
    logits = model(block[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), block[:, 1:].flatten())


def held_out(val: Tensor) -> Tensor:
    "128 blocks of the held-out text, evenly spread; fewer where they would overlap."
    count = min(128, len(val) // (CONTEXT + 1))
    starts = torch.linspace(0, len(val) - CONTEXT - 1, count).long()
    return torch.stack([val[start : start + CONTEXT + 1] for start in starts])


def watch(module: nn.Module, run: Callable[[], Any]) -> Tensor:
    "What comes out of `module` while `run` runs, positions in rows."
    seen: list[Tensor] = []
    handle = module.register_forward_hook(lambda module, inputs, output: seen.append(output))
    run()
    handle.remove()
    return torch.cat([out.flatten(0, -2) for out in seen])


def silent_units(model: CharacterModel, block: Tensor) -> tuple[Tensor, float]:
    "Layer by unit: True where the activation is flat at every position; and the active share."
    silent, active = [], []
    for ffn in model.ffns():
        with torch.no_grad():
            hidden = watch(ffn.up_proj, lambda: model(block[:, :-1]))
        hidden.requires_grad_()
        (slope,) = torch.autograd.grad(ffn.activation(hidden).sum(), hidden)
        silent.append((slope.abs() < FLAT).all(0))
        active.append((hidden > 0).float().mean().item())
    return torch.stack(silent), sum(active) / len(active)


def train_model(
    model: CharacterModel,
    train: Tensor,
    *,
    rate: float,
    seed: int,
    steps: int,
    at: Callable[[int], None],
) -> None:
    "Adam with clipping; `at(step)` is called at the start and after each step."
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98))
    at(0)
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, step / 20)
        starts = torch.randint(len(train) - CONTEXT, (BATCH,), generator=generator)
        block = torch.stack([train[start : start + CONTEXT + 1] for start in starts])
        optimizer.zero_grad()
        loss_of(model, block).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        at(step)


def measure_units(
    activation: str, rate: float, seed: int, data: tuple[Tensor, Tensor, int], steps: int
) -> list[dict[str, Any]]:
    "Train one model and count its silent units on the way."
    train, val, vocab_size = data
    torch.manual_seed(seed)
    model = CharacterModel(vocab_size, lambda: FeedForward(C, 4 * C, activation=activation))
    rows: list[dict[str, Any]] = []
    block, before = held_out(val), torch.zeros(LAYERS, 4 * C, dtype=torch.bool)

    def at(step: int) -> None:
        nonlocal before
        if step not in CHECKPOINTS and step != steps:
            return
        silent, active = silent_units(model, block)
        with torch.no_grad():
            val_loss = loss_of(model, block).item()
        rows.append(
            {
                "activation": activation,
                "rate": rate,
                "seed": seed,
                "step": step,
                "silent": silent.float().mean().item(),
                "by_layer": silent.float().mean(1).tolist(),
                "kept": int((silent & before).sum()),
                "woken": int((~silent & before).sum()),
                "active": active,
                "val_loss": val_loss,
            }
        )
        before = silent

    train_model(model, train, rate=rate, seed=seed, steps=steps, at=at)
    return rows


def explained(values: Tensor, groups: Tensor) -> float:
    "Share of the variance of each column that the mean of its group explains; mean over columns."
    one_hot = F.one_hot(groups).to(values)
    count = one_hot.sum(0).clamp(min=1)
    means = (one_hot.T @ values) / count[:, None]
    between = (one_hot @ means).var(0, correction=0)
    return (between / values.var(0, correction=0).clamp(min=1e-12)).mean().item()


def with_output(
    module: nn.Module, change: Callable[[Tensor], Tensor], run: Callable[[], float]
) -> float:
    "`run()` with the output of `module` replaced by `change(output)`."
    handle = module.register_forward_hook(lambda module, inputs, output: change(output))
    try:
        return run()
    finally:
        handle.remove()


class Silu(nn.Module):
    "`F.silu` as a module, so that a hook can take its place."

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x)


@torch.no_grad()
def look_at_gates(model: CharacterModel, block: Tensor, seed: int) -> list[dict[str, Any]]:
    "A row for each layer: how far the gates are open, what opens them, and what they are worth."
    current = block[:, :-1].flatten()
    edges = torch.tensor(EDGES)

    def loss() -> float:
        return loss_of(model, block).item()

    rows = []
    for index, ffn in enumerate(model.ffns()):
        gate = watch(ffn.activation, loss)
        up = watch(ffn.up_proj, loss)
        bins = torch.bucketize(gate.flatten(), edges, right=True)
        counts = torch.bincount(bins, minlength=len(EDGES) + 1)[1:-1]  # silu is above −0.3
        rows.append(
            {
                "seed": seed,
                "layer": index,
                "loss": loss(),
                "cut_gate": with_output(ffn.activation, torch.relu, loss),
                "still_gate": with_output(ffn.activation, gate.mean(0).expand_as, loss),
                "still_up": with_output(ffn.up_proj, up.mean(0).expand_as, loss),
                "without": with_output(ffn, torch.zeros_like, loss),
                "closed": (gate.abs() < 0.1).float().mean().item(),
                "edges": EDGES[:-1],
                "histogram": (counts / gate.numel()).tolist(),
                "by_character_gate": explained(gate, current),
                "by_character_up": explained(up, current),
            }
        )
    return rows


def measure_gates(
    seed: int, data: tuple[Tensor, Tensor, int], steps: int, rate: float = 5e-3
) -> list[dict[str, Any]]:
    "Train a SwiGLU model of as many parameters as the others, and look at its gates."
    train, val, vocab_size = data
    torch.manual_seed(seed)
    width = gated_width(4 * C)
    model = CharacterModel(vocab_size, lambda: GatedFeedForward(C, width, activation=Silu()))
    train_model(model, train, rate=rate, seed=seed, steps=steps, at=lambda step: None)
    return look_at_gates(model, held_out(val), seed)


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    "Train, print a table, and store the records unless `--quick`."
    parser = command_line(__doc__, quick="three steps on generated text")
    parser.add_argument("--only", choices=("units", "gates"), help="one of the two parts")
    options = parser.parse_args(argv)
    data = load(options.quick)
    rates, seeds, steps = ((1e-2,), (0,), 3) if options.quick else (RATES, SEEDS, STEPS)
    records = []
    if options.only != "gates":
        rows = []
        for rate in rates:
            for activation in ("relu", "gelu"):
                for seed in seeds:
                    rows += measure_units(activation, rate, seed, data, steps)
                    print(
                        f"{activation} rate {rate:<6} seed {seed}  silent {rows[-1]['silent']:6.2%}"
                        f"  active {rows[-1]['active']:5.1%}  loss {rows[-1]['val_loss']:.3f}",
                        flush=True,
                    )
        records.append(("dead_relus", ABOUT_UNITS, rows))
    if options.only != "units":
        rows = [row for seed in seeds for row in measure_gates(seed, data, steps)]
        for row in rows:
            print(
                f"swiglu  seed {row['seed']} layer {row['layer']}  closed {row['closed']:5.1%}  "
                f"loss {row['loss']:.3f}  gate cut {row['cut_gate']:.3f} still "
                f"{row['still_gate']:.3f}  other still {row['still_up']:.3f}  without "
                f"{row['without']:.3f}",
                flush=True,
            )
        records.append(("gates", ABOUT_GATES, rows))
    for name, about, rows in () if options.quick else records:
        store(name, about, "python -m benchmarks.feedforward", rows, options.out)
    return [row for *_, rows in records for row in rows]


if __name__ == "__main__":
    main()
