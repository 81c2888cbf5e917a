"""The factor √C in front of an embedding, and the table tied to the output layer: trainings.

Small decoders with sinusoidal positions learn tiny Shakespeare, each at several learning rates.

- `scale`, by characters: rows of variance 1/C times √C; the same rows without the factor; rows of
  variance 1 without a factor, which begin with the same vectors as the first.
- `tie`, by pieces of a BPE vocabulary: the output layer on the embedding's table, or on its own.

A seed means the same batches, and the same first weights wherever two models share a weight.
`--quick` trains a few steps on generated text and stores nothing.
"""

import time
from collections.abc import Sequence
from itertools import chain, product
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import command_line, store
from transformer_lit.base.datasets import load_pairs, load_text
from transformer_lit.base.device import keep_freed_memory
from transformer_lit.models.assembly import AssemblyConfig, assemble
from transformer_lit.models.gpt import DecoderOnly
from transformer_lit.recipes.language_model import language_step
from transformer_lit.text.tokenizer import BPETokenizer, CharTokenizer
from transformer_lit.training.data import TextStream, text_blocks
from transformer_lit.training.schedule import adamw, cosine
from transformer_lit.training.trainer import Trainer

SIZES = {"d_model": 128, "n_layers": 2, "n_heads": 4, "d_ff": 512}
PARTS = {"scale": ("√C", "none", "wide"), "tie": ("tied", "untied")}
RATES = (1e-3, 3e-3, 1e-2)
SEEDS = 3
STEPS, EVERY, WARMUP = 300, 100, 30
BATCH, LENGTH = 16, 32  # blocks in a batch, tokens in a block
VOCABULARY = 512  # of the BPE
VAL_BLOCKS = 512
ABOUT = (
    f"One training in a row: a decoder of width {SIZES['d_model']} with {SIZES['n_layers']} "
    f"pre-norm layers, {SIZES['n_heads']} heads, d_ff {SIZES['d_ff']} and sinusoidal positions, on "
    f"tiny Shakespeare, {BATCH} blocks of {LENGTH} tokens in a batch, AdamW (betas 0.9 and 0.98, "
    f"no decay, clipping at 1), rate up for {WARMUP} steps, then half a cosine down to a tenth. "
    "part: scale (tokens are characters, output layer untied) or tie (tokens are the pieces of a "
    f"BPE of {VOCABULARY}, √C). entry: √C (rows of variance 1/C times √C), none (the same rows, no "
    "factor), wide (rows of variance 1, no factor); tied or untied. rate: the peak. parameters: of "
    "the model, a shared table counted once. shares: the part of the mean squared norm of token "
    "plus position that is the token's, before the first and after the last step, each token "
    f"counted as often as the text has it. losses: nats per token on the first {VAL_BLOCKS} blocks "
    f"of the validation text, before the first and after every {EVERY} of {STEPS} steps. seconds: "
    "of all steps."
)


def build(entry: str, vocab_size: int, seed: int) -> DecoderOnly:
    "The model of an entry, with its first weights."
    torch.manual_seed(seed)
    config = AssemblyConfig(
        vocab_size,
        **SIZES,
        max_len=LENGTH,
        position="sinusoidal",
        norm="layer",
        activation="gelu",
        gated=False,
    )
    model = assemble(config)
    if entry == "tied":  # only now, so that the layers have drawn the same weights as without it
        model.lm_head = model.tok_emb.tied_head()
    if entry in ("none", "wide"):
        model.tok_emb.scale = 1.0
    if entry == "wide":
        with torch.no_grad():
            model.tok_emb.weight.mul_(config.d_model**0.5)
    return model


def token_share(model: DecoderOnly, frequencies: Tensor) -> float:
    "The token's part of the mean squared norm of token plus position."
    with torch.no_grad():
        squares = (model.tok_emb.scale * model.tok_emb.weight).square().sum(1)
        token = (frequencies @ squares).item()
    return token / (token + SIZES["d_model"] / 2)  # a sinusoid's squared norm is C/2


def train(
    run: dict[str, Any], train_ids: Tensor, val_ids: Tensor, vocab_size: int, every: int
) -> dict[str, Any]:
    "The row of a run, which says its part, entry, rate, seed and steps."
    steps, seed = run["steps"], run["seed"]
    model = build(run["entry"], vocab_size, seed)
    frequencies = train_ids.bincount(minlength=vocab_size) / len(train_ids)
    val = text_blocks(val_ids[: VAL_BLOCKS * LENGTH + 1], LENGTH, 64)
    trainer = Trainer(
        model,
        language_step,
        adamw(model),
        cosine(run["rate"], max(1, WARMUP * steps // STEPS), steps),
        TextStream(train_ids, length=LENGTH, batch_size=BATCH, seed=seed),
        clip=1.0,
    )
    shares, losses = [token_share(model, frequencies)], [trainer.evaluate(val)]
    seconds = 0.0
    for log in trainer.run(steps):
        seconds += log.seconds
        if log.step % every == 0:
            losses.append(trainer.evaluate(val))
    return {
        **run,
        "vocab_size": vocab_size,
        "parameters": sum(p.numel() for p in model.parameters()),
        "shares": [*shares, token_share(model, frequencies)],
        "losses": losses,
        "seconds": seconds,
    }


def texts(quick: bool) -> tuple[str, str]:
    "Training and validation text."
    if quick:
        text = " ".join(english for english, _ in load_pairs("numbers", "en", "de", "val"))
        return text[:20_000], text[20_000:24_000]
    return load_text("tinyshakespeare", "train"), load_text("tinyshakespeare", "val")


def encoded(part: str, pair: tuple[str, str]) -> tuple[Tensor, Tensor, int]:
    "Both texts as ids, and the number of tokens."
    if part == "scale":
        tokenizer = CharTokenizer.train("".join(pair))
        train_ids, val_ids = map(tokenizer.encode, pair)
    else:
        lines = [text.splitlines(keepends=True) for text in pair]
        tokenizer = BPETokenizer.train(lines[0], VOCABULARY)
        train_ids, val_ids = (list(chain(*tokenizer.encode_all(some))) for some in lines)
    return torch.tensor(train_ids), torch.tensor(val_ids), tokenizer.vocab_size


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    "Train, print a table, and store it unless `--quick`."
    parser = command_line(__doc__, quick="a few steps on generated text")
    options = parser.parse_args(argv)
    rates, seeds, steps, every = (RATES, SEEDS, STEPS, EVERY)
    if options.quick:
        rates, seeds, steps, every = RATES[:1], 1, 4, 2
    pair, rows, start = texts(options.quick), [], time.perf_counter()
    keep_freed_memory()
    print(f"{'part':<6}{'entry':<8}{'rate':>6}{'seed':>5}{'parameters':>11}", end="")
    print(f"{'share':>14}{'loss':>8}{'s':>6}")
    for part, entries in PARTS.items():
        data = encoded(part, pair)
        for seed, rate, entry in product(range(seeds), rates, entries):
            run = {"part": part, "entry": entry, "rate": rate, "seed": seed, "steps": steps}
            rows.append(row := train(run, *data, every))
            shares = " → ".join(f"{share:.2f}" for share in row["shares"])
            print(f"{part:<6}{entry:<8}{rate:>6.0e}{seed:>5}{row['parameters']:>11,}", end="")
            print(f"{shares:>14}{row['losses'][-1]:>8.3f}", end="")
            print(f"{time.perf_counter() - start:>6.0f}", flush=True)
    if not options.quick:
        store("embedding", ABOUT, "python -m benchmarks.embedding", rows, options.out)
    return rows


if __name__ == "__main__":
    main()
