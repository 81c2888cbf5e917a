"""The embedding: its scale, and a table that stays tied in every copy.

The chapter's cells check lookup, gradients and the tied head: see tests/damages/text.yml.
"""

import copy

import pytest
import torch
from torch import nn

from transformer_lit.text.embedding import TokenEmbedding

V, C = 23, 7


@pytest.mark.parametrize(("scale", "factor"), [(None, C**0.5), (1.0, 1.0), (0.0, 0.0), (3.0, 3.0)])
@pytest.mark.parametrize("shape", [(3, 5), (3, 0)])
def test_scale(scale, factor, shape):  # 0 is a scale, too
    tok_emb, ids = TokenEmbedding(V, C, scale=scale), torch.randint(V, shape, dtype=torch.int32)
    torch.testing.assert_close(tok_emb(ids), factor * tok_emb.weight[ids])


@pytest.mark.parametrize(
    "renew",
    [
        copy.deepcopy,
        lambda model: model.to(torch.bfloat16),
        lambda model: model.load_state_dict(model.state_dict()) and model,
    ],
    ids=["deepcopy", "dtype", "state"],
)
def test_the_tie_survives(renew):
    tok_emb = TokenEmbedding(V, C)
    model = renew(nn.ModuleDict({"tok_emb": tok_emb, "lm_head": tok_emb.tied_head()}))
    assert model["lm_head"].weight is model["tok_emb"].weight
    assert sum(p.numel() for p in model.parameters()) == V * C


def test_the_tied_head_draws_no_random_numbers():
    tok_emb = TokenEmbedding(V, C)
    state = torch.get_rng_state()
    tok_emb.tied_head()
    assert torch.equal(torch.get_rng_state(), state)
