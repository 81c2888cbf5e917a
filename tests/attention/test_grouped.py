"""Fewer key/value heads: what they hold, what the conversion makes, and what it leaves alone."""

import math
from copy import deepcopy

import pytest
import torch
from torch import nn
from transformers.models.llama.modeling_llama import repeat_kv

from transformer_lit.attention.attend import attend
from transformer_lit.attention.cache import KVCache
from transformer_lit.attention.grouped import cache_bytes, mean_heads, to_grouped
from transformer_lit.attention.multihead import MultiHeadAttention, Position

C, H, D = 13, 6, 5


def layer(n_kv_heads=H, **options):
    return MultiHeadAttention(C, H, n_kv_heads, d_head=D, **options)


# --- sharing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3, 6])
def test_heads_are_shared_as_in_huggingface(n_kv_heads):
    q, k, v = (torch.randn(2, n, 7, D) for n in (H, n_kv_heads, n_kv_heads))
    theirs = [repeat_kv(x, H // n_kv_heads) for x in (k, v)]
    torch.testing.assert_close(attend(q, k, v), attend(q, *theirs))


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_a_grouped_layer_is_a_full_one_with_tied_heads(n_kv_heads, bias):
    grouped, full = layer(n_kv_heads, bias=bias, causal=True), layer(bias=bias, causal=True)
    state = grouped.state_dict()
    for name in [name for name in state if name[0] in "kv"]:
        heads = [state[name][h // (H // n_kv_heads) * D :][:D] for h in range(H)]
        state[name] = torch.cat(heads)
    full.load_state_dict(state)
    x = torch.randn(2, 7, C)
    torch.testing.assert_close(grouped(x), full(x))
    for pool in (mean_heads, lambda heads: heads[:, 0], lambda heads: heads[:, -1]):
        back = to_grouped(full, n_kv_heads, pool=pool)
        torch.testing.assert_close(back(x), grouped(x))  # tied heads can be pooled without loss


# --- cache_bytes --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("n_kv_heads", [1, 3, 6])
def test_cache_bytes_are_those_of_real_caches(dtype, n_kv_heads):
    "As many caches as layers, filled by the layer itself."
    n_layers, batch, length = 3, 2, 7
    attention = layer(n_kv_heads).to(dtype)
    total = 0
    for _ in range(n_layers):
        cache = KVCache(length)
        k, v = cache.update(*attention.keys_values(torch.randn(batch, length, C, dtype=dtype)))
        total += sum(x.numel() * x.element_size() for x in (k, v))
    assert cache_bytes(n_layers, n_kv_heads, D, length, batch=batch, dtype=dtype) == total


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((32, 32, 128, 2048), 2**30),  # LLaMA 7B, one full sequence
        ((80, 8, 128, 4096), 5 * 2**28),  # Llama 2 70B
        ((80, 64, 128, 4096), 10 * 2**30),  # the same without groups
        ((80, 1, 128, 4096), 5 * 2**25),  # and with one head
    ],
)
def test_caches_of_published_sizes(sizes, expected):
    assert cache_bytes(*sizes) == expected


# --- to_grouped ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_each_new_head_is_the_mean_of_its_neighbours(n_kv_heads, bias):
    old = layer(bias=bias)
    new, group = to_grouped(old, n_kv_heads), H // n_kv_heads
    for name in ("k_proj", "v_proj"):
        before, after = getattr(old, name), getattr(new, name)
        assert after.out_features == n_kv_heads * D
        for j in range(n_kv_heads):
            heads = range(j * group, (j + 1) * group)
            for part in ("weight", "bias") if bias else ("weight",):
                there = [getattr(before, part)[h * D : (h + 1) * D] for h in heads]
                expected = sum(there) / group
                found = getattr(after, part)[j * D : (j + 1) * D]
                torch.testing.assert_close(found, expected)
        assert bias or after.bias is None


@pytest.mark.parametrize("n_kv_heads", [1, 3])
def test_the_rest_is_copied_and_nothing_is_shared(n_kv_heads):
    class Shift(Position):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(H, 1, 1))

        def bias(self, q, k, apart):
            return self.table.expand(1, H, q.shape[2], k.shape[2])

    options = {"causal": True, "position": Shift(), "scale": 0.3, "dropout": 0.1}
    old = layer(attend=attend, **options).eval()
    before = deepcopy(old.state_dict())
    new = to_grouped(old, n_kv_heads)
    assert type(new) is MultiHeadAttention and not new.training
    assert (new.causal, new.scale, new.dropout, new.attend) == (True, 0.3, 0.1, attend)
    for name in ("q_proj.weight", "o_proj.weight", "position.table"):
        assert torch.equal(new.state_dict()[name], old.state_dict()[name])
    with torch.no_grad():
        for p in new.parameters():
            p.zero_()
    for name, value in old.state_dict().items():
        assert torch.equal(value, before[name])
    assert old.k_proj.out_features == H * D


def test_as_many_heads_as_before_change_nothing():
    for n_kv_heads in (2, H):
        old, x = layer(n_kv_heads, causal=True), torch.randn(2, 7, C)
        assert torch.equal(to_grouped(old, n_kv_heads)(x), old(x))


def test_groups_can_be_pooled_again():
    old, x = layer(), torch.randn(2, 7, C)
    in_steps = to_grouped(to_grouped(old, 3), 1)
    torch.testing.assert_close(in_steps(x), to_grouped(old, 1)(x))
    assert in_steps.k_proj.out_features == D


def test_the_result_decodes_with_a_smaller_cache():
    attention, x = to_grouped(layer(causal=True), 2), torch.randn(2, 7, C)
    cache = KVCache(7)
    steps = torch.cat([attention(x[:, t : t + 1], cache=cache) for t in range(7)], dim=1)
    torch.testing.assert_close(steps, attention(x))
    assert cache.k.shape == (2, 2, 7, D)


@pytest.mark.parametrize("kv_heads", [None, 2, 3])
def test_the_numbers_of_heads_are_kept_and_follow(kv_heads):
    old = layer(kv_heads)
    new = to_grouped(old, 1)
    assert (old.n_heads, old.n_kv_heads) == (H, kv_heads or H)
    assert (new.n_heads, new.n_kv_heads) == (H, 1)
    old.q_proj = nn.Sequential(old.q_proj, nn.Identity())  # of queries nothing is pooled
    assert torch.equal(to_grouped(old, 1).k_proj.weight, new.k_proj.weight)


@pytest.mark.parametrize("name", ["k_proj", "v_proj"])
def test_a_map_with_something_behind_it_cannot_be_pooled(name):
    old = layer()
    setattr(old, name, nn.Sequential(getattr(old, name), nn.LayerNorm(H * D)))
    with pytest.raises(ValueError, match=f"{name} is no Linear but Sequential"):
        to_grouped(old, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtype_and_device_are_kept(dtype):
    assert to_grouped(layer().to(dtype), 2).k_proj.weight.dtype == dtype
    assert to_grouped(layer().to("meta"), 2).v_proj.weight.device.type == "meta"


def test_it_can_be_trained_and_draws_no_random_number():
    old, before = layer(), torch.get_rng_state()
    new = to_grouped(old, 2)
    assert torch.equal(torch.get_rng_state(), before)
    new(torch.randn(2, 7, C)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in new.parameters())
    assert all(p.grad is None for p in old.parameters())


@pytest.mark.parametrize("groups", [1, 3])
def test_mean_heads_takes_weights_and_offsets(groups):
    weights, offsets = torch.randn(groups, 2, D, C), torch.randn(groups, 2, D)
    for heads in (weights, offsets):
        torch.testing.assert_close(mean_heads(heads), (heads[:, 0] + heads[:, 1]) / 2)


def test_the_mean_errs_half_as_much_as_the_first_of_heads_that_agree():
    "Heads of a common part and independent noise; squared errors of the values, G = 3."
    v = torch.randn(1, 1, 30_011) + 0.1 * torch.randn(1, 3, 30_011)
    mean, first = ((v - pooled[:, None]).square().mean() for pooled in (mean_heads(v), v[:, 0]))
    assert math.isclose(first / mean, 2, rel_tol=0.05)  # 30,011 samples: 1 % of noise
