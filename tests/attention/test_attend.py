"""Attention against loops and against torch, over masks, bias, grouping, scale and sizes."""

import inspect
import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from transformer_lit.attention.attend import attend, attention_weights
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.masks import causal_mask

B, H, D, E = 2, 6, 3, 11  # H = 6 can be grouped in four ways


def inputs(T, S, K=H, **options):
    return (
        torch.randn(B, H, T, D, **options),
        torch.randn(B, K, S, D, **options),
        torch.randn(B, K, S, E, **options),
    )


def attend_by_loops(q, k, v, visible, bias, scale):
    "The formula, number by number; a hidden key is left out, an empty row is zero."
    group = q.shape[1] // k.shape[1]
    out = torch.zeros(*q.shape[:3], v.shape[-1])
    q, k, v, visible, bias = (x.tolist() for x in (q, k, v, visible, bias))
    for b, h, t in product(*map(range, out.shape[:3])):
        query, keys, values = q[b][h][t], k[b][h // group], v[b][h // group]
        seen = [u for u in range(len(keys)) if visible[b][h][t][u]]
        scores = [
            scale * sum(x * y for x, y in zip(query, keys[u])) + bias[b][h][t][u] for u in seen
        ]
        shares = [math.exp(score) for score in scores]
        for e in range(out.shape[-1]):
            mixed = sum(share * values[u][e] for u, share in zip(seen, shares))
            out[b, h, t, e] = mixed / sum(shares) if seen else 0.0
    return out


def attend_by_torch(q, k, v, visible, bias, scale):
    bias = bias.masked_fill(~visible, -math.inf)
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return out.masked_fill(~visible.any(-1, keepdim=True), 0.0)


MASKS = {
    "none": None,
    "padding": (B, 1, 1, "S"),
    "heads": (1, H, "T", "S"),
    "all": (B, H, "T", "S"),
}


@pytest.mark.parametrize("scale", [None, 0.0])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("biased", [None, 1, B])
@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("K,T,S", [(2, 5, 7), (3, 1, 7), (6, 7, 5)])
def test_is_the_formula(K, T, S, masked, biased, causal, scale):
    "Grouping in the wrong order, a top-left triangle, `scale or …`: each falls here."
    q, k, v = inputs(T, S, K)
    mask = visible = None
    if MASKS[masked]:
        mask = torch.rand([{"T": T, "S": S}.get(n, n) for n in MASKS[masked]]) < 0.7
    bias = None if biased is None else torch.randn(biased, H, T, S)

    visible = torch.ones(B, H, T, S, dtype=torch.bool) if mask is None else mask
    if causal:
        visible = visible & causal_mask(T, S)
    visible = visible.expand(B, H, T, S)
    added = torch.zeros(B, H, T, S) if bias is None else bias.expand(B, H, T, S)
    factor = 1 / math.sqrt(D) if scale is None else scale

    out = attend(q, k, v, mask=mask, bias=bias, causal=causal, scale=scale)
    assert_close(out, attend_by_loops(q, k, v, visible, added, factor))
    assert_close(out, attend_by_torch(q, k, v, visible, added, factor))


def test_rows_sum_to_one_or_to_zero_and_hidden_weights_are_zero():
    q, k, _ = inputs(5, 7, 2)
    mask = torch.rand(B, H, 5, 7) < 0.5
    mask[0, 3, 2] = False
    weights = attention_weights(q, k, mask=mask)
    assert_close(weights.sum(-1), mask.any(-1).double())
    assert (weights[~mask] == 0).all() and (weights[mask] > 0).all()


def test_a_bias_cannot_bring_a_hidden_key_back():
    q, k, _ = inputs(5, 7)
    mask = torch.rand(B, 1, 5, 7) < 0.5
    weights = attention_weights(q, k, mask=mask, bias=torch.full((1, H, 5, 7), 1e30))
    assert (weights[~mask.expand_as(weights)] == 0).all()


@pytest.mark.parametrize("K", [1, 2, 3, 6])
def test_gradients_are_right(K):
    "With an empty row, with a bias, with shared heads."
    q, k, v = inputs(3, 5, K, requires_grad=True)
    bias = torch.randn(1, H, 3, 5, requires_grad=True)
    mask = torch.rand(B, 1, 3, 5) < 0.6
    mask[1, 0, 1] = False

    def f(q, k, v, bias):
        return attend(q, k, v, mask=mask, bias=bias)

    assert torch.autograd.gradcheck(f, (q, k, v, bias), fast_mode=True)


def test_an_empty_row_makes_no_nan_on_the_way_back():
    "Overwriting nan after the softmax passes forward, and falls here."
    q, k, v = inputs(5, 7)
    q.requires_grad_()
    mask = torch.ones(B, 1, 5, 7, dtype=torch.bool)
    mask[:, :, 2] = False
    with (
        pytest.warns(UserWarning, match="Anomaly Detection"),
        torch.autograd.detect_anomaly(check_nan=True),
    ):
        attend(q, k, v, mask=mask).sum().backward()
    assert (q.grad[:, :, 2] == 0).all() and q.grad[:, :, 3].count_nonzero() > 0


def test_a_nan_is_not_taken_for_a_hidden_row():
    "Zeros would hide the fault of whoever made the nan."
    q, k, v = inputs(5, 7)
    bias = torch.full((1, H, 5, 7), math.nan)
    assert attend(q, k, v, bias=bias).isnan().all()


def test_the_future_has_no_influence():
    q, k, v = inputs(7, 7, requires_grad=True)
    attend(q, k, v, causal=True)[:, :, 3].square().sum().backward()
    assert (k.grad[:, :, 4:] == 0).all() and (v.grad[:, :, 4:] == 0).all()
    assert (k.grad[:, :, :4] != 0).all() and (v.grad[:, :, :4] != 0).all()


@pytest.mark.parametrize("n", [1, 3])
def test_the_last_queries_alone_see_what_they_saw_in_one_pass(n):
    q, k, v = inputs(7, 7, 2)
    full = attend(q, k, v, causal=True)
    assert_close(attend(q[:, :, -n:], k, v, causal=True), full[:, :, -n:])


def test_order_is_invisible():
    q, k, v = inputs(5, 7, 2)
    keys, queries = torch.randperm(7), torch.randperm(5)
    out = attend(q, k, v)
    assert_close(attend(q, k[:, :, keys], v[:, :, keys]), out)
    assert_close(attend(q[:, :, queries], k, v), out[:, :, queries])


def test_a_vector_added_to_every_key_is_invisible():
    q, k, v = inputs(5, 7)
    assert_close(attend(q, k + torch.randn(D), v), attend(q, k, v))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("masked", [False, True])
def test_large_scores_do_not_overflow(dtype, masked):
    "exp(200) is inf in every one of these types, and -1e9 does not fit into float16."
    q, k, v = (x.to(dtype) for x in inputs(5, 7))
    q[..., 0], k[..., 0] = 20.0, 20.0
    mask = torch.rand(B, 1, 5, 7) < 0.6 if masked else None
    out = attend(q, k, v, mask=mask)
    assert out.dtype == dtype and out.isfinite().all()


def test_dropout_zero_draws_nothing():
    q, k, v = inputs(5, 7)
    before = torch.get_rng_state()
    attend(q, k, v)
    assert torch.equal(torch.get_rng_state(), before)


GOOD = {"q": (B, H, 5, D), "k": (B, 2, 7, D), "v": (B, 2, 7, E)}
ONE = {"q": (1, H, 1, D), "k": (1, 2, 7, D), "v": (1, 2, 7, E)}  # one sentence, one query


def ones(*shape):
    return torch.ones(shape, dtype=torch.bool)


@pytest.mark.parametrize("kernel", [attend, attend_fused])
@pytest.mark.parametrize(
    ("changed", "tables"),
    [
        (GOOD | {"k": (1, 2, 7, D), "v": (1, 2, 7, E)}, {}),  # one row of keys for two sentences
        (GOOD | {"v": (1, 2, 7, E)}, {}),
        (GOOD | {"v": (B, 2, 1, E)}, {}),  # one value for all keys
        (GOOD | {"v": (B, 1, 7, E)}, {}),  # values of other heads
        (GOOD | {"k": (B, 2, 7, E)}, {}),  # filled up with zeros, it would pass
        (GOOD, {"mask": ones(5, 7)}),  # with B = T, B × S would pass for T × S
        (GOOD, {"mask": torch.ones(1, 1, 5, 7)}),  # would be added, and hide nothing
        (GOOD, {"bias": ones(1, H, 5, 7)}),  # would hide, or add 1 to what may be seen
        (GOOD, {"bias": torch.ones(5, 7)}),
        (ONE, {"mask": ones(2, 1, 1, 7)}),  # tables larger than the scores
        (ONE, {"mask": ones(1, 1, 3, 7)}),
        (ONE, {"bias": torch.ones(1, H, 3, 7)}),
    ],
)
def test_nothing_wrong_is_silent(kernel, changed, tables, no_shape_checks):
    with pytest.raises((ValueError, RuntimeError)):
        inspect.unwrap(kernel)(*(torch.zeros(shape) for shape in changed.values()), **tables)


def test_a_refusal_shows_the_shapes():
    q, k, v = inputs(5, 7)
    with pytest.raises(ValueError) as error:
        inspect.unwrap(attend)(q, k, v[:1])
    assert all(f"{name} {(*x.shape,)}" in str(error.value) for name, x in zip("qkv", (q, k, v[:1])))


def test_runs_on_any_device():
    "The causal table must be made where the queries are."
    out = attend(*inputs(5, 7, device="meta"), causal=True)
    assert out.shape == (B, H, 5, E) and out.device.type == "meta"
