"""Rotary positions beyond the length of training: four scalings, with and without fine-tuning.

Each scaling takes the place of a trained model's rotary plug. The loss is measured always on the
same characters, the last of each window, while more and more of what stands before them is shown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from experiments.runner import BRIEF, Cell, Experiment, Row, Variant, held_out
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.position.rope import RoPE, Scaling
from transformer_lit.position.scaling import make_scaling
from transformer_lit.recipes.language_model import LanguageModel
from transformer_lit.recipes.recipe import open_training
from transformer_lit.training.loss import cross_entropy
from transformer_lit.training.run import Run
from transformer_lit.training.trainer import mean_loss

LENGTH = 64  # L, the context of training, and the number of characters that are scored
FACTORS, TUNE_FACTOR = (2, 4, 8), 4
PARAMETERS: dict[str, dict[str, float]] = {  # beside the factor
    "none": {},
    "linear": {},
    "ntk": {},
    "yarn": {"original_len": LENGTH},
    "yarn, plain": {"original_len": LENGTH, "attention_factor": 1.0},
    "llama3": {"original_len": LENGTH},
}
BASE = Variant(
    dataset="tinyshakespeare",
    model="llama",
    sizes={"d_model": 64, "n_layers": 4, "n_heads": 2, "d_ff": 172},  # D = 32
    length=LENGTH,
    batch_size=16,
    steps=1500,
    every=1500,
    warmup=100,
    lr=3e-3,
)


def scaling_of(name: str, factor: int) -> Scaling | None:
    "The scaling of that name in the tables; none has a factor of 1."
    if name == "none":
        return None
    return make_scaling(name.split(",")[0], factor=factor, **PARAMETERS[name])


def set_scaling(model: nn.Module, scaling: Scaling | None) -> None:
    "Give all layers of a model one new rotary plug."
    layers = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    rope = RoPE(layers[0].d_head, model.config.rope_base, scaling=scaling)
    for layer in layers:
        layer.position = rope


@dataclass(frozen=True, kw_only=True)
class FineTuning(Variant):
    "A trained model learns on with a scaling."

    start: str  # the folder of the model
    scaling: str
    factor: int

    def build(self, vocab_size: int) -> nn.Module:
        "The trained model with its new plug."
        model = LanguageModel.load(self.start).model
        set_scaling(model, scaling_of(self.scaling, self.factor))
        return model


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    for seed in range(3):
        yield Cell({"seed": seed}, BASE, seed)


def loss_at(model: nn.Module, ids: Tensor, context: int, longest: int) -> float:
    "Nats per character for the last LENGTH of every `longest` characters, `context` of them shown."

    def losses() -> Iterator[tuple[Tensor, int]]:
        ends = torch.arange(longest, len(ids) - 1, longest // 2)
        for some in ends.split(16):
            shown = ids[some[:, None] - context + torch.arange(context)]
            targets = ids[some[:, None] - LENGTH + 1 + torch.arange(LENGTH)]
            yield cross_entropy(model.lm_head(model.hidden(shown)[:, -LENGTH:]), targets)

    return mean_loss(model, losses())


def tuned(run: Run, name: str, factor: int) -> tuple[nn.Module, int]:
    "The trained model after fine-tuning with a scaling, and the number of steps of that."
    recipe, length = run.recipe, TUNE_FACTOR * LENGTH
    few = min(100, recipe.steps)
    changes: dict[str, Any] = {"length": length, "batch_size": 4, "lr": 1e-3, "warmup": 6}
    changes |= {"start": str(run.out / "model"), "scaling": name, "factor": factor}
    tuning = FineTuning(**{**vars(recipe), **changes, "steps": few, "every": few})
    again = open_training(tuning, run.out / name, seed=run.seed, device="cpu")
    again.train()
    return again.trained.model, few


def measure(run: Run) -> list[Row]:
    "Every scaling at every factor without training, and at one factor after some."
    run.train()
    run.trained.save(run.out / "model")
    model = run.trained.model
    val_ids = torch.cat([batch.ids.flatten() for batch in held_out(run)])
    rows: list[Row] = []

    def add(model: nn.Module, name: str, factor: int, contexts: Sequence[int], steps: int) -> None:
        for context in contexts:
            loss = loss_at(model, val_ids, context, LENGTH * FACTORS[-1])
            about = {"scaling": name, "factor": factor, "context": context}
            rows.append({**about, "tuned": steps, "loss": loss})

    add(model, "none", 1, [factor * LENGTH for factor in (1, *FACTORS)], 0)
    for name in list(PARAMETERS)[1:]:
        for factor in FACTORS:
            set_scaling(model, scaling_of(name, factor))
            add(model, name, factor, (LENGTH, factor * LENGTH), 0)
    for name in PARAMETERS:
        factor = 1 if name == "none" else TUNE_FACTOR
        other, steps = tuned(run, name, factor)
        add(other, name, factor, (LENGTH, TUNE_FACTOR * LENGTH), steps)
    return rows


SCALING = Experiment(
    "The loss of one model under one scaling in a row. The model: a Llama of width 64, 4 layers, "
    "2 heads, d_ff 172, base 10,000, trained for 1500 steps of 16 x 64 characters of tiny "
    "Shakespeare, peak rate 0.003. scaling: none, linear, ntk, yarn, llama3, or 'yarn, plain', "
    "which is yarn without its temperature. factor: s, 1 for none. context: characters that the "
    "model is shown. tuned: steps of fine-tuning with that scaling before the measurement, on "
    "contexts of 256, as many characters in a step, peak rate 0.001. loss: nats per character over "
    "the last 64 characters of windows of the validation text, the same characters in every row.",
    measure,
    cells,
    BRIEF,
)
