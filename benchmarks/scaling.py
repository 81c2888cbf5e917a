"""Rotary positions beyond the length of training: four scalings, with and without fine-tuning.

A small Llama is trained on the characters of tiny Shakespeare with a context of 64. Then each
scaling takes the place of its rotary plug, and the loss is measured with contexts of 64 to 512,
always on the same characters: the last 64 of each window, while more and more of what stands
before them is shown. At a factor of 4 each is also fine-tuned for a few steps. Nothing differs
between the rows of a seed but the frequencies. `--quick` trains a few steps on generated text and
stores nothing.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import command_line, store
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.base.datasets import load_pairs, load_text
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.position.rope import RoPE, Scaling
from transformer_lit.position.scaling import make_scaling
from transformer_lit.training.data import TextBatch, TextStream
from transformer_lit.training.loss import cross_entropy
from transformer_lit.training.schedule import adamw, cosine
from transformer_lit.training.trainer import Trainer, mean_loss

LENGTH = 64  # L, the context of training, and the number of characters that are scored
FACTORS = (2, 4, 8)
SEEDS = 3
STEPS, BATCH, PEAK = 1500, 16, 3e-3
TUNE_FACTOR, TUNE_STEPS, TUNE_PEAK = 4, 100, 1e-3
SIZES = {"d_model": 64, "n_layers": 4, "n_heads": 2, "d_ff": 172}  # D = 32
PARAMETERS: dict[str, dict[str, float]] = {  # beside the factor
    "linear": {},
    "ntk": {},
    "yarn": {"original_len": LENGTH},
    "yarn, plain": {"original_len": LENGTH, "attention_factor": 1.0},
    "llama3": {"original_len": LENGTH},
}
ABOUT = (
    "The loss of one model under one scaling in a row. The model: a Llama of width "
    f"{SIZES['d_model']}, {SIZES['n_layers']} layers, {SIZES['n_heads']} heads, d_ff "
    f"{SIZES['d_ff']}, base 10,000, trained for {STEPS} steps of {BATCH} x {LENGTH} characters of "
    f"tiny Shakespeare, peak rate {PEAK}. scaling: none, linear, ntk, yarn, llama3, or 'yarn, "
    "plain', which is yarn without its temperature. factor: s, 1 for none. context: characters "
    "that the model is shown. tuned: steps of fine-tuning with that scaling before the "
    f"measurement, on contexts of {TUNE_FACTOR * LENGTH}, as many characters in a step, peak rate "
    f"{TUNE_PEAK}. loss: nats per character over the last {LENGTH} characters of windows of the "
    "validation text, the same characters in every row."
)


def language_loss(model: Llama, batch: TextBatch) -> tuple[Tensor, int]:
    "The step of the trainer."
    return cross_entropy(model(batch.ids), batch.targets)


def train(model: Llama, ids: Tensor, *, length: int, steps: int, peak: float, seed: int) -> None:
    "A training, or a fine-tuning, on batches of BATCH · LENGTH characters."
    batches = TextStream(ids, length=length, batch_size=BATCH * LENGTH // length, seed=seed)
    optimizer = adamw(model, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    schedule = cosine(peak, max(1, steps // 15), steps)
    trainer = Trainer(model, language_loss, optimizer, schedule, batches, clip=1.0)
    for _ in trainer.run(steps):
        pass


def with_scaling(model: Llama, scaling: Scaling | None) -> Llama:
    "A copy of the model whose layers share another rotary plug."
    model = copy.deepcopy(model)
    layers = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    rope = RoPE(layers[0].d_head, model.config.rope_base, scaling=scaling)
    for layer in layers:
        layer.position = rope
    return model


def loss_at(model: Llama, ids: Tensor, context: int, longest: int) -> float:
    "Nats per character for the last LENGTH of every `longest` characters, `context` of them shown."

    def losses() -> Iterator[tuple[Tensor, int]]:
        ends = torch.arange(longest, len(ids) - 1, longest // 2)
        for some in ends.split(16):
            shown = ids[some[:, None] - context + torch.arange(context)]
            targets = ids[some[:, None] - LENGTH + 1 + torch.arange(LENGTH)]
            yield cross_entropy(model.lm_head(model.hidden(shown)[:, -LENGTH:]), targets)

    return mean_loss(model, losses())


def measure(train_ids: Tensor, val_ids: Tensor, seed: int, quick: bool) -> list[dict[str, Any]]:
    "The rows of one seed."
    torch.manual_seed(seed)
    vocab_size = int(torch.cat([train_ids, val_ids]).max()) + 1
    model = Llama(LlamaConfig(vocab_size=vocab_size, max_len=LENGTH, **SIZES))
    steps, tune_steps = (3, 2) if quick else (STEPS, TUNE_STEPS)
    train(model, train_ids, length=LENGTH, steps=steps, peak=PEAK, seed=seed)
    longest, rows = LENGTH * FACTORS[-1], []

    def add(name: str, factor: int, context: int, tuned: int, stretched: Llama) -> None:
        loss = loss_at(stretched, val_ids, context, longest)
        row = {"seed": seed, "scaling": name, "factor": factor, "context": context}
        rows.append({**row, "tuned": tuned, "loss": loss})
        print(f"{seed:<5}{name:<12}{factor:>6}{context:>9}{tuned:>7}{loss:>9.4f}", flush=True)

    for factor in (1, *FACTORS):
        add("none", 1, factor * LENGTH, 0, model)
    for name, more in PARAMETERS.items():
        for factor in FACTORS:
            scaling = make_scaling(name.split(",")[0], factor=factor, **more)
            stretched = with_scaling(model, scaling)
            for context in (LENGTH, factor * LENGTH):
                add(name, factor, context, 0, stretched)
    for name in ("none", *PARAMETERS):
        factor = 1 if name == "none" else TUNE_FACTOR
        more = PARAMETERS.get(name, {})
        scaling = None if factor == 1 else make_scaling(name.split(",")[0], factor=factor, **more)
        tuned, length = with_scaling(model, scaling), TUNE_FACTOR * LENGTH
        train(tuned, train_ids, length=length, steps=tune_steps, peak=TUNE_PEAK, seed=seed)
        for context in (LENGTH, length):
            add(name, factor, context, tune_steps, tuned)
    return rows


def characters(quick: bool) -> tuple[Tensor, Tensor]:
    "Training and validation text as the numbers of their characters."
    if quick:
        text = " ".join(english for english, _ in load_pairs("numbers", "en", "de", "val"))
        texts = text[:20_000], text[20_000:22_000]
    else:
        texts = tuple(load_text("tinyshakespeare", split) for split in ("train", "val"))
    number = {character: i for i, character in enumerate(sorted(set("".join(texts))))}
    return tuple(torch.tensor([number[character] for character in text]) for text in texts)


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    "Train, measure, print a table, and store it unless `--quick`."
    parser = command_line(__doc__, quick="a few steps on generated text")
    options = parser.parse_args(argv)
    texts, rows = characters(options.quick), []
    print(f"{'seed':<5}{'scaling':<12}{'factor':>6}{'context':>9}{'tuned':>7}{'loss':>9}")
    for seed in range(1 if options.quick else SEEDS):
        rows += measure(*texts, seed, options.quick)
    if not options.quick:
        store("scaling", ABOUT, "python -m benchmarks.scaling", rows, options.out)
    return rows


if __name__ == "__main__":
    main()
