"""Little stories, which a small model learns to write.

The chapter on GPT spells out this training loop. Later chapters run it with other models:
`Stories` works with any model that has the methods of a decoder-only model.
"""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from transformer_lit.course.data import load_text
from transformer_lit.course.stories import entropy
from transformer_lit.course.ten_minutes import PAD, table


class Stories:
    """The data set `stories` as tensors of ids, with the training and sampling of a model.

    `tokenizer` has `encode`, `decode`, `bos` and `eos`, and its padding id is 0.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.ids, self.new = (self._table(split) for split in ("train", "val"))  # B T
        self.tokens = (self.new[:, 1:] != PAD).sum().item() / len(self.new)  # mean per story
        self.floor = entropy() / self.tokens  # the lowest possible loss, in nats per token

    def _table(self, split: str) -> Int[Tensor, "B T"]:
        encode, texts = self.tokenizer.encode, load_text("stories", split).split("\n")
        return table([encode(text, bos=True, eos=True) for text in texts])

    def train(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, *, lr: float = 0.02
    ) -> list[float]:
        "Train on batches of 16 stories, with warm-up and decay; returns the loss of each step."
        losses = []
        for step in range(steps):
            batch = self.ids[torch.randint(len(self.ids), (16,))]
            loss = self.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            for group in optimizer.param_groups:
                group["lr"] = lr * min((step + 1) / 50, 1 - step / steps)
            optimizer.step()
            losses.append(loss.item())
        return losses

    def loss(self, model: nn.Module, ids: Int[Tensor, "B T"]) -> Tensor:
        "The loss in nats per token."
        logits = model(ids[:, :-1]).flatten(0, 1)  # one row for each position
        return cross_entropy(logits, ids[:, 1:].flatten(), ignore_index=PAD)

    @torch.no_grad()
    def write(self, model: nn.Module, count: int = 100) -> list[str]:
        "New stories, each token sampled from the model's probabilities."
        longest = self.ids.shape[1] - 1
        state, ids = model.start(count, longest), torch.full((count, 1), self.tokenizer.bos_id)
        said = []
        for _ in range(longest):
            ids = torch.multinomial(model.step(ids, state)[:, -1].softmax(-1), 1)  # B 1
            said.append(ids)
        rows, end = torch.cat(said, 1).tolist(), self.tokenizer.eos_id
        return [self.tokenizer.decode(row[: row.index(end)] if end in row else row) for row in rows]
