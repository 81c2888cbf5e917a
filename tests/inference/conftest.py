"""A model that shares nothing between prefixes: a search that mixes up its rows is lost."""

import pytest
import torch
from torch import nn


class Prefixes(list):
    "The decoding state: for each row its source and all ids that it was given."

    def select(self, rows):
        self[:] = [self[row] for row in rows.tolist()]

    def truncate(self, length):
        self[:] = [(src, ids[:length]) for src, ids in self]


class PrefixModel(nn.Module):
    "Logits drawn once for each source and whole prefix."

    def __init__(self, vocab_size, seed, spread=2.0):
        super().__init__()
        self.vocab_size, self.seed, self.spread = vocab_size, seed, spread
        self.rows_seen = []  # of each step

    def logits(self, src, prefix):
        seed = self.seed
        for i in (*src, -1, *prefix):
            seed = (1_000_003 * seed + i + 2) % (2**31 - 1)
        generator = torch.Generator().manual_seed(seed)
        return self.spread * torch.randn(self.vocab_size, generator=generator)

    def start(self, batch_size, max_len, src=None, src_mask=None):
        sources = [()] * batch_size if src is None else [tuple(row) for row in src.tolist()]
        if src_mask is not None:
            keep = [[i for i, real in enumerate(row) if real] for row in src_mask.tolist()]
            sources = [tuple(s[i] for i in k) for s, k in zip(sources, keep, strict=True)]
        return Prefixes((s, ()) for s in sources)

    def step(self, ids, state, last=None):
        self.rows_seen.append(len(ids))
        out = []
        for row, new in enumerate(ids.tolist()):
            src, prefix = state[row]
            out.append([self.logits(src, (*prefix, *new[: t + 1])) for t in range(len(new))])
            state[row] = (src, (*prefix, *new))
        return torch.stack([torch.stack(row) for row in out])


@pytest.fixture
def prefix_model():
    return PrefixModel
