"""What the hidden units of feed-forward networks do while a small language model is trained."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.runner import BRIEF, Cell, Experiment, Row, Variant, held_out
from transformer_lit.block.feedforward import gated_width
from transformer_lit.training.run import Run

SEEDS, RATES = range(3), (1e-3, 1e-2, 3e-2)
CHECKPOINTS = (0, 10, 20, 50, 100, 200, 400, 600, 800)
FLAT = 1e-3  # a slope below this, at every position, makes a unit silent
EDGES = [i / 20 for i in range(-6, 21)] + [math.inf]  # silu has no value below −0.279
BASE = Variant(
    dataset="tinyshakespeare",
    model="assembly",
    sizes={"d_model": 64, "n_layers": 2, "n_heads": 4, "d_ff": 256, "position": "learned"}
    | {"norm": "layer", "gated": False, "bias": True},
    length=64,
    batch_size=8,
    steps=CHECKPOINTS[-1],
    every=CHECKPOINTS[-1],
    warmup=20,
    lr=5e-3,
    final=1.0,  # the rate stays
    betas=(0.9, 0.98),
    weight_decay=0.0,
    val_batches=4,
    change="wide",
)


def watch(module: nn.Module, run: Callable[[], Any]) -> Tensor:
    "What comes out of `module` while `run` runs, positions in rows."
    seen: list[Tensor] = []
    handle = module.register_forward_hook(lambda module, inputs, output: seen.append(output))
    run()
    handle.remove()
    return torch.cat([out.flatten(0, -2) for out in seen])


# --- silent units -------------------------------------------------------------------------------


def unit_cells(rows: Sequence[Row]) -> Iterator[Cell]:
    for rate, activation, seed in product(RATES, ("relu", "gelu"), SEEDS):
        sizes = {**BASE.sizes, "activation": activation}
        about = {"activation": activation, "rate": rate, "seed": seed}
        yield Cell(about, replace(BASE, sizes=sizes, lr=rate), seed)


def silent_units(model: nn.Module, run: Callable[[], Any]) -> tuple[Tensor, float]:
    "Layer by unit: True where the activation is flat at every position; and the active share."
    silent, active = [], []
    for layer in model.layers:
        hidden = watch(layer.ffn.up_proj, run).requires_grad_()
        (slope,) = torch.autograd.grad(layer.ffn.activation(hidden).sum(), hidden)
        silent.append((slope.abs() < FLAT).all(0))
        active.append((hidden > 0).float().mean().item())
    return torch.stack(silent), sum(active) / len(active)


def measure_units(run: Run) -> list[Row]:
    "A row for each checkpoint."
    rows, before = [], torch.tensor(False)

    def look(step: int) -> None:
        nonlocal before
        if step not in CHECKPOINTS and step != run.steps:
            return
        silent, active = silent_units(run.trained.model, run.evaluate)
        rows.append(
            {
                "step": step,
                "silent": silent.float().mean().item(),
                "by_layer": silent.float().mean(1).tolist(),
                "kept": int((silent & before).sum()),
                "woken": int((~silent & before).sum()),
                "active": active,
                "val_loss": run.evaluate(),
            }
        )
        before = silent

    look(0)
    run.train(lambda log: look(log.step))
    return rows


# --- gates --------------------------------------------------------------------------------------


def gate_cells(rows: Sequence[Row]) -> Iterator[Cell]:
    width = gated_width(BASE.sizes["d_ff"])  # as many parameters
    sizes = {**BASE.sizes, "activation": "silu", "gated": True, "d_ff": width, "bias": False}
    for seed in SEEDS:
        yield Cell({"seed": seed}, replace(BASE, sizes=sizes), seed)


def explained(values: Tensor, groups: Tensor) -> float:
    "Share of the variance of each column that the mean of its group explains; mean over columns."
    one_hot = F.one_hot(groups).to(values)
    sizes = one_hot.sum(0).clamp(min=1)
    means = (one_hot.T @ values) / sizes[:, None]
    between = (one_hot @ means).var(0, correction=0)
    return (between / values.var(0, correction=0).clamp(min=1e-12)).mean().item()


@contextmanager
def changed(module: nn.Module, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    "The output of `module` is `change(output)` in this block."
    handle = module.register_forward_hook(lambda module, inputs, output: change(output))
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def measure_gates(run: Run) -> list[Row]:
    "A row for each layer: how far the gates are open, what opens them, and what they are worth."
    with torch.enable_grad():
        run.train()
    loss, rows = run.evaluate, []
    current = torch.cat([batch.ids.flatten() for batch in held_out(run)])
    for index, layer in enumerate(run.trained.model.layers):
        ffn = layer.ffn
        ffn.activation = nn.SiLU()  # as it was, but a module, so that a hook can take its place
        gate, up = watch(ffn.activation, loss), watch(ffn.up_proj, loss)
        changes: dict[str, tuple[nn.Module, Callable[[Tensor], Tensor]]] = {
            "cut_gate": (ffn.activation, torch.relu),
            "still_gate": (ffn.activation, gate.mean(0).expand_as),
            "still_up": (ffn.up_proj, up.mean(0).expand_as),
            "without": (ffn, torch.zeros_like),
        }
        row: Row = {"layer": index, "loss": loss()}
        for name, change in changes.items():
            with changed(*change):
                row[name] = loss()
        bins = torch.bucketize(gate.flatten(), torch.tensor(EDGES), right=True)
        counts = torch.bincount(bins, minlength=len(EDGES) + 1)[1:-1]
        row |= {"closed": (gate.abs() < 0.1).float().mean().item(), "edges": EDGES[:-1]}
        row |= {"histogram": (counts / gate.numel()).tolist()}
        row |= {f"by_character_{k}": explained(x, current) for k, x in (("gate", gate), ("up", up))}
        rows.append(row)
    return rows


MODEL = (
    "a decoder-only model (2 layers, C=64, 4 heads, pre-norm, F=256 or gated 170, rows of the "
    "embedding with variance 1 and no factor) on the characters of tiny Shakespeare, Adam at a "
    "constant rate after 20 steps of warm-up, clipping at 1, 512 characters a step"
)
UNITS = Experiment(
    f"A row is one checkpoint of one run: {MODEL}. silent: share of hidden units whose activation "
    "has a slope below 0.001 at each of the first 8,192 held-out positions, over all layers and "
    "by_layer. kept: silent units that were silent at the checkpoint before, too. woken: units "
    "that were silent then and are not now. active: share of (unit, position) pairs with a "
    "positive input. val_loss: nats per character on the same positions.",
    measure_units,
    unit_cells,
    BRIEF,
)
GATES = Experiment(
    f"A row is one layer of one SwiGLU model after its last step: {MODEL}, rate 0.005. All on the "
    "first 8,192 held-out positions. histogram: share of (unit, position) pairs with silu(gate) in "
    "the bins between edges. closed: share with |silu(gate)| < 0.1. by_character_gate, "
    "by_character_up: share of the variance of silu(gate) and of the other factor that the current "
    "character explains, mean over units. loss: nats per character; cut_gate: with silu(gate) of "
    "this layer set to 0 where it is negative; still_gate: with silu(gate) held at each unit's "
    "mean; still_up: with the other factor held so; without: with this layer's output at zero.",
    measure_gates,
    gate_cells,
    BRIEF,
)
