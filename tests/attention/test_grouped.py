"""The conversion to fewer key/value heads: what it makes, what it leaves alone, what it refuses."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from transformer_lit.attention.attend import attend
from transformer_lit.attention.grouped import cache_bytes, to_grouped
from transformer_lit.attention.multihead import MultiHeadAttention, Position

C, H, D = 13, 6, 5


def layer(n_kv_heads=H, **options):
    return MultiHeadAttention(C, H, n_kv_heads, d_head=D, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_cache_bytes_count_layers_and_types(dtype):
    k, v = layer(3).to(dtype).keys_values(torch.randn(2, 7, C, dtype=dtype))
    total = 11 * sum(x.numel() * x.element_size() for x in (k, v))
    assert cache_bytes(11, 3, D, 7, batch=2, dtype=dtype) == total


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_each_new_head_is_the_mean_of_its_neighbours(n_kv_heads, bias):
    old = layer(bias=bias)
    new, group = to_grouped(old, n_kv_heads), H // n_kv_heads
    for name in ("k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias")[:: 2 - bias]:
        heads = old.get_parameter(name).split(D)
        expected = [sum(heads[j * group : (j + 1) * group]) / group for j in range(n_kv_heads)]
        torch.testing.assert_close(new.get_parameter(name), torch.cat(expected))
    assert bias or new.k_proj.bias is new.v_proj.bias is None


class Shift(Position):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(H, 1, 1))

    def bias(self, q, k, apart):
        return self.table.expand(1, H, q.shape[2], k.shape[2])


@pytest.mark.parametrize("kv_heads", [2, H])
def test_the_rest_is_copied_and_nothing_is_shared(kv_heads):
    options = {"causal": True, "position": Shift(), "scale": 0.3, "dropout": 0.1}
    old = layer(kv_heads, attend=attend, **options).eval()
    before, drawn = deepcopy(old.state_dict()), torch.get_rng_state()
    new = to_grouped(old, 1)
    assert torch.equal(torch.get_rng_state(), drawn)  # no random number is thrown away
    assert type(new) is MultiHeadAttention and not new.training
    assert (new.causal, new.scale, new.dropout, new.attend) == (True, 0.3, 0.1, attend)
    assert (old.n_kv_heads, new.n_heads, new.n_kv_heads) == (kv_heads, H, 1)
    for name in ("q_proj.weight", "o_proj.weight", "position.table"):
        assert torch.equal(new.state_dict()[name], before[name])
    new(torch.randn(2, 7, C)).square().sum().backward()
    assert all(p.grad.any() for p in new.parameters())
    assert all(p.grad is None for p in old.parameters())
    with torch.no_grad():
        for p in new.parameters():
            p.zero_()
    assert all(torch.equal(x, before[name]) for name, x in old.state_dict().items())


def test_groups_can_be_pooled_again_and_groups_of_one_change_nothing():
    old, x = layer(), torch.randn(2, 7, C)
    torch.testing.assert_close(to_grouped(to_grouped(old, 3), 1)(x), to_grouped(old, 1)(x))
    assert torch.equal(to_grouped(old, H)(x), old(x))


def test_type_and_device_are_kept():
    assert to_grouped(layer().to(torch.bfloat16), 2).k_proj.weight.dtype == torch.bfloat16
    assert to_grouped(layer().to("meta"), 2).v_proj.weight.device.type == "meta"


@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj"])
def test_a_map_with_something_behind_it_cannot_be_pooled(name):
    old = layer()
    setattr(old, name, nn.Sequential(getattr(old, name), nn.LayerNorm(H * D)))
    if name == "q_proj":  # of queries nothing is pooled
        assert to_grouped(old, 2).k_proj.out_features == 2 * D
        return
    with pytest.raises(ValueError, match=f"{name} is a Sequential: pool while"):
        to_grouped(old, 2)


@pytest.mark.parametrize("n_kv_heads", [0, -2, 4])
def test_groups_of_unequal_size_are_refused(n_kv_heads):
    with pytest.raises(ValueError, match=f"divide the 6 key/value heads, got {n_kv_heads}"):
        to_grouped(layer(), n_kv_heads)
