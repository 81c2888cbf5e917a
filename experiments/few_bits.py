"""What a published model loses in 8 and in 4 bits: its perplexity on two texts."""

import copy
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from experiments.runner import Experiment, Row
from transformer_lit import load
from transformer_lit.course.data import load_text
from transformer_lit.course.files import DataFile, read_file
from transformer_lit.inference.metrics import perplexity
from transformer_lit.models.quantise import (
    KEEP,
    dequantise_q8_0,
    quantise_q8_0,
    quantised,
)

WIKITEXT = DataFile(
    "wikitext-2/test.txt",
    "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
    (
        "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/"
        "wikitext-2/test.txt",
    ),
)
TEXTS: dict[str, Callable[[], str]] = {
    "WikiText-2": lambda: read_file(WIKITEXT).decode(),
    "the plays": lambda: load_text("tinyshakespeare", "val"),
    "this book": lambda: load_text("book", "val"),
}


@torch.no_grad()
def through_q8_0(model: nn.Module) -> nn.Module:
    "Every matrix quantised to Q8_0 and back, where its rows cut into blocks."
    for weight in model.parameters():
        if weight.ndim == 2 and weight.shape[1] % 32 == 0:
            weight.copy_(dequantise_q8_0(quantise_q8_0(weight)))
    return model


@torch.inference_mode()
def loss(model: nn.Module, ids: torch.Tensor) -> float:
    "Nats a token, of windows that are read one by one, each without its first token."
    spent = [F.cross_entropy(model(row[None])[0, :-1], row[1:], reduction="sum") for row in ids]
    return (torch.stack(spent).double().sum() / ids[:, 1:].numel()).item()


def measure(
    model: str = "smollm2",
    texts: Sequence[str] = ("WikiText-2", "the plays"),
    windows: int = 8,
    length: int = 512,
) -> list[Row]:
    "A row for each text and way to keep the weights."
    author, rows = load(model), []
    kept = {"float32": author.model, "Q8_0": through_q8_0(copy.deepcopy(author.model))}
    kept |= {weights: quantised(copy.deepcopy(author.model), weights) for weights in KEEP}
    for text in texts:
        whole = TEXTS[text]()[: 16 * windows * length]  # enough characters
        ids = torch.tensor(author.tokenizer.encode(whole)[: windows * length])
        ids = ids.view(windows, length)
        found = {weights: perplexity(loss(its, ids)) for weights, its in kept.items()}
        for weights, value in found.items():
            row = {"text": text, "weights": weights, "tokens": ids[:, 1:].numel()}
            rows.append(row | {"perplexity": value, "ratio": value / found["float32"]})
    return rows


FEW_BITS = Experiment(
    "Perplexity of SmolLM2-135M-Instruct from its Q4_1 file, for a token of its own tokenizer: the "
    "beginnings of the test part of WikiText-2 and of the validation part of tiny Shakespeare, in "
    "8 windows of 512 tokens, each read alone and without its first token. weights: float32 (what "
    "the file dequantises to), Q8_0 (each matrix of these quantised and back), int8 and int4 (as "
    "`quantised` keeps them, by torch's kernels). ratio: to float32. The file has 4 bits already "
    "and int4 keeps its integers: that row shows what bfloat16 does to scales and activations, and "
    "8 bits to the token table.",
    measure,
    quick={"model": "stories", "texts": ("this book",), "windows": 2, "length": 7},
)
