"""Little stories: a small model learns to write them.

GPT's chapter writes this loop out. Later ones run it again with other models: `Stories` knows
none, it asks for the calls that every decoder-only model has.
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
    """The data set `stories` as tables of ids, and what is done with a model of it.

    `tokenizer` has `encode`, `decode`, `bos` and `eos`, and pads with 0.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.ids, self.new = (self._table(split) for split in ("train", "val"))  # B T
        self.tokens = (self.new[:, 1:] != PAD).sum().item() / len(self.new)  # of a story, mean
        self.floor = entropy() / self.tokens  # nats a token, at best

    def _table(self, split: str) -> Int[Tensor, "B T"]:
        encode, texts = self.tokenizer.encode, load_text("stories", split).split("\n")
        return table([encode(text, bos=True, eos=True) for text in texts])

    def train(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, *, lr: float = 0.02
    ) -> list[float]:
        "Batches of 16 stories and a rate that rises and then falls; the loss of each step."
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
        "Nats a token."
        logits = model(ids[:, :-1]).flatten(0, 1)  # a row for each place
        return cross_entropy(logits, ids[:, 1:].flatten(), ignore_index=PAD)

    @torch.no_grad()
    def write(self, model: nn.Module, count: int = 100) -> list[str]:
        "Stories, each token drawn from what the model says."
        longest = self.ids.shape[1] - 1
        state, ids = model.start(count, longest), torch.full((count, 1), self.tokenizer.bos_id)
        said = []
        for _ in range(longest):
            ids = torch.multinomial(model.step(ids, state)[:, -1].softmax(-1), 1)  # B 1
            said.append(ids)
        rows, end = torch.cat(said, 1).tolist(), self.tokenizer.eos_id
        return [self.tokenizer.decode(row[: row.index(end)] if end in row else row) for row in rows]
