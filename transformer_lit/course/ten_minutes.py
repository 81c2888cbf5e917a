"""The first training of the book: numbers in English words become German ones.

Chapter 0 spells out this training loop. Later chapters run it again with a part of the model
removed or replaced: `Numbers` works with any model that has the methods of an encoder-decoder.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from transformer_lit.course.data import load_pairs

PAD = 0
SIZES = {"d_model": 64, "d_ff": 128, "n_heads": 4, "n_layers": 2, "dropout": 0.0}


def table(rows: list[list[int]]) -> Int[Tensor, "B T"]:
    "Lists of ids as one tensor, padded on the right with 0."
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


class Numbers:
    """The data set `numbers` as tensors of ids, with the training and translation of a model.

    `tokenizer` has `encode`, `decode`, `bos` and `eos`, and its padding id is 0.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.new = load_pairs("numbers", "en", "de", "val")  # not in the training set
        pairs = load_pairs("numbers", "en", "de", "train")
        self.src = self.questions([english for english, _ in pairs])  # B S
        self.tgt = table([tokenizer.encode(german, bos=True, eos=True) for _, german in pairs])

    def questions(self, sentences: list[str]) -> Int[Tensor, "B S"]:
        "The ids that the encoder reads."
        return table([self.tokenizer.encode(text, eos=True) for text in sentences])

    def steps(self, model: nn.Module, *, lr: float = 2e-3) -> Iterator[float]:
        "Train without end, by Adam on batches of 64 pairs; yields each step's loss in nats."
        optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        while True:
            rows = torch.randint(len(self.src), (64,))
            src, tgt = self.src[rows], self.tgt[rows]
            logits = model(src, tgt[:, :-1], src != PAD)  # B T V
            loss = cross_entropy(logits.mT, tgt[:, 1:], ignore_index=PAD)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item()

    def train(self, model: nn.Module, steps: int, *, lr: float = 2e-3) -> list[float]:
        "Train for this many steps; returns the loss of each."
        return list(islice(self.steps(model, lr=lr), steps))

    def trained(
        self, build: Callable[[], nn.Module], steps: int = 120
    ) -> tuple[nn.Module, list[float]]:
        "Repeat the chapter's training run: same first weights, same batches, single precision."
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        torch.manual_seed(1)
        model = build()
        losses = self.train(model, steps)
        torch.set_default_dtype(before)
        return model, losses

    @torch.no_grad()
    def translate(self, model: nn.Module, sentences: list[str]) -> list[str]:
        "The German sentences, taking the most probable token each time until the end token."
        src, longest = self.questions(sentences), self.tgt.shape[1]
        state = model.start(len(src), longest, src, src != PAD)
        ids, said = torch.full((len(src), 1), self.tokenizer.bos_id), []
        for _ in range(longest):
            ids = model.step(ids, state)[:, -1:].argmax(-1)  # B 1
            said.append(ids)
        rows, end = torch.cat(said, 1).tolist(), self.tokenizer.eos_id
        return [self.tokenizer.decode(row[: row.index(end)] if end in row else row) for row in rows]

    def right(self, model: nn.Module, count: int = 100) -> float:
        "The share of new numbers that the model translates without a mistake."
        said = self.translate(model, [english for english, _ in self.new[:count]])
        return sum(a == b for a, (_, b) in zip(said, self.new[:count], strict=True)) / count
