"""What every position plug keeps in a layer: the distance counts, and a cache changes nothing."""

import pytest
import torch
from layer_properties import (
    assert_any_cut_is_one_pass,
    assert_blind_to_the_future,
    assert_padded_rows_are_what_they_are_alone,
    assert_runs_without_memory_and_in_16_bits,
)
from torch import nn
from torch.testing import assert_close

from transformer_lit.attention.attend import attend
from transformer_lit.attention.cache import KVCache
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.multihead import MultiHeadAttention, distances
from transformer_lit.position.disentangled import DisentangledBias, TransformerXLBias
from transformer_lit.position.relative import ALiBi, T5Bias
from transformer_lit.position.rope import RoPE
from transformer_lit.position.scaling import make_scaling

B, T, C, H, D = 2, 7, 14, 6, 10


def deberta(kv, **options):
    return DisentangledBias(C, H, kv, d_head=D, **{"max_distance": 5, **options})


PLUGS = {  # by the number of key/value heads
    "t5": lambda kv: T5Bias(H, 14, 53),
    "t5 causal": lambda kv: T5Bias(H, 7, 17, causal=True),
    "alibi": lambda kv: ALiBi(H),
    "xl": lambda kv: TransformerXLBias(C, H, kv, d_head=D),
    "xl causal": lambda kv: TransformerXLBias(C, H, kv, d_head=D, causal=True),
    "deberta": deberta,
    "deberta causal": lambda kv: deberta(kv, causal=True),
    "deberta buckets": lambda kv: deberta(kv, n_buckets=4, max_distance=17, bias=True),
    "rope": lambda kv: RoPE(D),
    "rope yarn": lambda kv: RoPE(D, scaling=make_scaling("yarn", factor=3, original_len=61)),
}
every_plug = pytest.mark.parametrize("name", PLUGS)


def layer(name, kv_heads=H, causal=None, **options):
    plug = PLUGS[name](kv_heads)
    for parameter in plug.parameters():  # at a size at which a fault shows
        nn.init.normal_(parameter, std=0.5)
    causal = "causal" in name if causal is None else causal
    return MultiHeadAttention(C, H, kv_heads, d_head=D, causal=causal, position=plug, **options)


@every_plug
def test_only_distance_counts(name):
    m, x, pos = layer(name), torch.randn(B, T, C), torch.arange(T)
    assert_close(m(x, pos=pos + 1009), m(x))
    assert_close(m(x, pos=pos + torch.tensor([[13], [-101]])), m(x))
    half = m(x, pos=pos // 2)  # neighbours one apart or none: distance does count
    assert (half - m(x)).abs().max() > 1e-3


@every_plug
@pytest.mark.parametrize("kv_heads", [1, 3])
@pytest.mark.parametrize("kernel", [attend, attend_fused])
def test_any_cut_gives_what_one_pass_gives(name, kv_heads, kernel):
    m = layer(name, kv_heads, causal=True, attend=kernel)
    assert_any_cut_is_one_pass(m, torch.randn(B, T, C), lambda: KVCache(T), 3)


@every_plug
def test_rows_of_unequal_length_are_what_they_are_alone(name):
    m = layer(name, 3, causal=True)
    assert_padded_rows_are_what_they_are_alone(m, torch.randn(B, T, C), lambda: KVCache(T))


@every_plug
def test_nothing_comes_from_the_future(name):
    assert_blind_to_the_future(layer(name, causal=True), torch.randn(1, T, C))


@every_plug
def test_both_kernels_agree_forward_and_backward(name):
    m, x, results = layer(name), torch.randn(B, T, C), []
    for m.attend in (attend, attend_fused):
        out = m(x)
        grads = torch.autograd.grad(out.square().sum(), list(m.parameters()))
        assert all(grad.any() for grad in grads)
        results.append((out, *grads))
    assert_close(*results)


@every_plug
def test_it_runs_without_memory_and_in_16_bits(name):
    assert_runs_without_memory_and_in_16_bits(layer(name), torch.randn(B, T, C))


@every_plug
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_bias_has_the_type_of_the_queries(name, dtype):
    q, pos = torch.zeros(B, H, T, D, dtype=dtype), torch.arange(T)
    bias = layer(name).to(dtype).position.bias(q, q, distances(pos, pos))
    assert bias is None or bias.dtype == dtype
