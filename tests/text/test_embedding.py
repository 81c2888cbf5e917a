"""The embedding: rows of a table, scaled by √C, and the same table as output layer."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from transformer_lit.text.embedding import TokenEmbedding, embed

V, C, B, T = 23, 7, 3, 5


@pytest.mark.parametrize("shape", [(), (T,), (B, T), (2, B, T)])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_lookup_is_one_hot_times_table(shape, dtype):
    table, ids = torch.randn(V, C), torch.randint(V, shape, dtype=dtype)
    one_hot = (ids[..., None] == torch.arange(V)).double()
    assert_close(embed(ids, table), one_hot @ table)


def test_gradient_is_exact_and_touches_only_rows_that_occur():
    table = torch.randn(V, C, requires_grad=True)
    ids = torch.tensor([[2, 3, 2, 2, 19]])
    assert torch.autograd.gradcheck(lambda table: embed(ids, table), table)
    upstream = torch.randn(1, 5, C)
    embed(ids, table).backward(upstream)
    expected = torch.zeros(V, C)
    for t, token in enumerate(ids[0]):
        expected[token] += upstream[0, t]  # a token that stands three times is summed three times
    assert_close(table.grad, expected)


@pytest.mark.parametrize(("scale", "factor"), [(None, C**0.5), (1.0, 1.0), (0.0, 0.0), (3.0, 3.0)])
def test_scale(scale, factor):  # 0 is a scale, too
    tok_emb, ids = TokenEmbedding(V, C, scale=scale), torch.randint(V, (B, T))
    assert_close(tok_emb(ids), factor * tok_emb.weight[ids])


def test_rows_start_with_norm_near_one():
    weight = TokenEmbedding(1009, 257).weight
    # A mean square of 1009·257 normal numbers deviates by √(2/259313) = 0.3 %; five of that.
    assert abs(weight.square().mean().item() * 257 - 1) < 0.014
    assert abs(weight.mean().item()) < 5 * (257 * weight.numel()) ** -0.5


@pytest.mark.parametrize("bad", [V, V + 100, -1, -V, 2**40])
def test_an_id_outside_the_vocabulary_is_refused(bad):
    ids = torch.zeros(B, T, dtype=torch.int64)
    ids[1, 3] = bad
    with pytest.raises(IndexError):  # torch's own; a negative one does not count from the end
        TokenEmbedding(V, C)(ids)


@pytest.mark.parametrize("edge", [0, V - 1])
def test_the_first_and_the_last_id_are_inside(edge):
    tok_emb = TokenEmbedding(V, C, scale=1.0)
    assert_close(tok_emb(torch.full((B, T), edge))[1, 2], tok_emb.weight[edge])


def test_tied_head_is_the_same_parameter():
    tok_emb = TokenEmbedding(V, C)
    head = tok_emb.tied_head()
    assert head.weight is tok_emb.weight and head.bias is None
    assert (head.in_features, head.out_features) == (C, V)
    h = torch.randn(B, T, C)
    assert_close(head(h), torch.einsum("btc,vc->btv", h, tok_emb.weight))  # no √C on this side


def test_tied_gradient_is_the_sum_of_both_uses():
    tok_emb, ids = TokenEmbedding(V, C), torch.randint(V, (B, T))
    head = tok_emb.tied_head()
    enter, leave = (nn.Parameter(tok_emb.weight.detach().clone()) for _ in range(2))
    (C**0.5 * enter[ids] @ leave.T).logsumexp(-1).sum().backward()
    head(tok_emb(ids)).logsumexp(-1).sum().backward()
    assert_close(tok_emb.weight.grad, enter.grad + leave.grad)


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


def test_builds_on_the_meta_device():
    with torch.device("meta"):
        tok_emb = TokenEmbedding(V, C)
        assert tok_emb(torch.zeros(B, T, dtype=torch.int64)).shape == (B, T, C)
    assert tok_emb.tied_head().weight is tok_emb.weight


def test_no_ids_give_no_vectors():
    assert TokenEmbedding(V, C)(torch.zeros(B, 0, dtype=torch.int64)).shape == (B, 0, C)
