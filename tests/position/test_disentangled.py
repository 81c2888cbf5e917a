"""Transformer-XL's and DeBERTa's scores with shared heads, their tables, and what is refused."""

import math

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_lit.attention.multihead import MultiHeadAttention, distances
from transformer_lit.position.absolute import sinusoids
from transformer_lit.position.disentangled import (
    DisentangledBias,
    TransformerXLBias,
    deberta_bucket,
)

B, T, S, H, D, C = 2, 7, 11, 6, 5, 14


def draw(module):
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


def deberta(kv_heads=None, **options):
    return draw(DisentangledBias(C, H, kv_heads, d_head=D, **{"max_distance": 5, **options}))


def every_pair(kv_heads):
    "Queries and keys by query head, distances, and for each pair its places and its distance."
    q, k = torch.randn(B, H, T, D), torch.randn(B, kv_heads, S, D)
    shared = [h // (H // kv_heads) for h in range(H)]
    apart = distances(torch.arange(S - T, S), torch.arange(S))
    pairs = [(t, s, S - T + t - s) for t in range(T) for s in range(S)]
    return q, k, shared, apart, pairs


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("causal", [False, True])
def test_transformer_xl_by_hand(kv_heads, causal):
    plug = draw(TransformerXLBias(C, H, kv_heads, d_head=D, causal=causal))
    q, k, shared, apart, pairs = every_pair(kv_heads)
    scores, u = plug.bias(q, k, apart), plug.u[:, :, None]
    for t, s, d in pairs:
        r = plug.r_proj(sinusoids(torch.tensor(d), C)).view(kv_heads, D, 1)[shared]  # H D 1
        expected = (q[:, :, t] + plug.v)[..., None, :] @ r + k[:, shared, s, None] @ u
        if d >= 0 or not causal:  # causal: any value will do for a key that no query sees
            assert_close(scores[:, :, t, s], expected[..., 0, 0] / D**0.5)


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("terms", [("c2p",), ("p2c",), ("p2c", "c2p")])
@pytest.mark.parametrize("causal", [False, True])
def test_deberta_by_hand(kv_heads, terms, causal):
    plug = deberta(kv_heads, terms=terms, causal=causal, max_distance=3, bias=True)
    q, k, shared, apart, pairs = every_pair(kv_heads)
    scores = plug.bias(q, k, apart) * (D * (1 + len(terms))) ** 0.5
    for t, s, d in pairs:
        row, expected = plug.weight[min(max(d, 0), 2) if causal else min(max(d + 3, 0), 5)], 0
        if "c2p" in terms:
            rel_k = plug.k_proj(row).view(kv_heads, D)[shared]
            expected = expected + (q[:, :, t] * rel_k).sum(-1)
        if "p2c" in terms:
            expected = expected + (k[:, shared, s] * plug.q_proj(row).view(H, D)).sum(-1)
        assert_close(scores[:, :, t, s], expected)
    assert math.isclose(plug.scale(D), ((1 + len(terms)) * D) ** -0.5)


class Largest(TorchDispatchMode):
    "Remembers the size of the largest tensor that any operation returns."

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, torch.Tensor):
                self.numel = max(self.numel, x.untyped_storage().nbytes() // x.element_size())
        return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("make", [TransformerXLBias, DisentangledBias])
def test_no_tensor_has_a_vector_for_each_pair(make, causal):
    T, D = 61, 53
    q, pos, plug = torch.randn(1, 1, T, D), torch.arange(T), make(D + 1, 1, d_head=D, causal=causal)
    with Largest() as largest:
        plug.bias(q, q, distances(pos, pos)).sum().backward()
    assert largest.numel < T * T * D / 10


def test_far_distances_share_the_outermost_rows():
    d = torch.tensor([-1000, -6, -5, -4, 0, 4, 5, 1000])
    assert deberta().rows(d).tolist() == [0, 0, 0, 1, 5, 9, 9, 9]
    assert deberta(causal=True).rows(d).tolist() == [0, 0, 0, 0, 0, 4, 4, 4]
    buckets = deberta(n_buckets=4, max_distance=17)
    assert buckets.rows(d).tolist() == [0, 1, 1, 1, 4, 7, 7, 7]
    assert [len(deberta(causal=causal).weight) for causal in (False, True)] == [10, 5]


def test_layers_may_share_the_table_and_the_maps():
    first = DisentangledBias(C, H, d_head=D, max_distance=5)
    second = DisentangledBias(C, H, d_head=D, max_distance=5, weight=first.weight)
    assert second.weight is first.weight
    m = MultiHeadAttention(C, H, d_head=D, position=second)
    second.q_proj, second.k_proj = m.q_proj, m.k_proj
    assert len(list(m.parameters())) == 5  # four maps and the table
    m(torch.randn(B, T, C)).sum().backward()
    assert all(p.grad is not None for p in m.parameters())


@pytest.mark.parametrize("causal", [False, True])
def test_transformer_xl_has_no_row_for_neighbours_that_stand_apart(causal):
    "Torch refuses the lookup; a row too few would be a wrong score."
    q, pos = torch.randn(B, H, 3, D), torch.tensor([0, 1, 9])
    with pytest.raises(RuntimeError, match="out of bounds"):
        TransformerXLBias(C, H, d_head=D, causal=causal).bias(q, q, distances(pos, pos))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: deberta_bucket(torch.arange(3), 14, 8), "n_buckets=14 must .* max_distance=8 "),
        (lambda: deberta_bucket(torch.arange(3), 1, 8), "n_buckets=1 must .* max_distance=8 "),
        (lambda: deberta(terms=("c2p", "p2p")), "p2p"),
        (lambda: deberta(terms=("c2p", "c2p")), r"got \('c2p', 'c2p'\)"),
        (lambda: deberta(weight=torch.nn.Parameter(torch.zeros(7, C))), r"\(10, 14\), got \(7, "),
    ],
)
def test_what_cannot_be_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
