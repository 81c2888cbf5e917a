"""Rotary positions: by hand, exact far out whatever is done to the model, and one table for all."""

import copy
import math
import pickle
from decimal import Decimal, getcontext

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.multihead import merge_heads, split_heads
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.position.rope import (
    ROWS,
    RoPE,
    interleaved_order,
    rope_frequencies,
    rotate_half_split,
    rotate_interleaved,
)

FAR = 100_000


def angles(pos, D, base=10_000.0):
    "In loops: pos · base^(−2i/D)."
    planes = torch.tensor([base ** (-2 * i / D) for i in range(D // 2)])
    return pos[..., None] * planes


@pytest.mark.parametrize("D", [2, 6, 14, 22])
@pytest.mark.parametrize("base", [10_000.0, 500_000.0, 7.0])
def test_a_turn_is_a_product_of_complex_numbers_in_either_layout(D, base):
    "For positions of both shapes."
    x, pos, order = torch.randn(2, 3, 5, D), torch.randint(1009, (2, 5)), interleaved_order(D)
    for place in (pos, pos[1]):
        angle = angles(place[:, None] if place.ndim > 1 else place, D, base)
        turn = torch.complex(angle.cos(), angle.sin())
        expected = torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn)
        assert_close(rotate_interleaved(x, turn.real, turn.imag), expected.flatten(-2))
        halves = torch.cat([expected[..., 0], expected[..., 1]], -1)
        assert_close(rotate_half_split(x[..., order], turn.real, turn.imag), halves)
        assert_close(RoPE(D, base).rotate(x[..., order], place), halves)


def test_heads_stay_laid_out_as_they_were():
    "The kernel lays its result out as its queries, and heads that lie in a row merge as a view."
    heads = split_heads(torch.randn(2, 5, 3 * 14), 14)
    turned = RoPE(14).rotate(heads, torch.arange(5))
    assert turned.stride() == heads.stride()
    out = attend_fused(turned, turned, heads, causal=True)
    assert merge_heads(out).data_ptr() == out.data_ptr()


def test_a_scaling_gives_frequencies_and_a_factor():
    asked = []

    def scaling(d_head, base):
        asked.append((d_head, base))
        return torch.tensor([0.3, 0.02, 0.0], dtype=torch.float64), 1.7

    rope, x, pos = RoPE(6, 77.0, scaling=scaling), torch.randn(1, 2, 5, 6), torch.arange(5)
    angle = pos[:, None] * torch.tensor([0.3, 0.02, 0.0])
    assert asked == [(6, 77.0)]
    assert_close(rope.rotate(x, pos), 1.7 * rotate_half_split(x, angle.cos(), angle.sin()))


# --- precision ----------------------------------------------------------------------------------


def exact_cosines(m, D):
    "By decimal arithmetic of 60 digits: the fraction of a turn, and its cosine."
    getcontext().prec = 60
    tau = Decimal("6.28318530717958647692528676655900576839433879875021164194988918")
    turns = [m * Decimal(10_000) ** (Decimal(-2 * i) / D) / tau for i in range(D // 2)]
    return torch.tensor([math.cos(2 * math.pi * float(t % 1)) for t in turns], dtype=torch.float64)


def cosines(rope, m, dtype=torch.float64):
    D = rope.d_head
    x = torch.cat([torch.ones(D // 2), torch.zeros(D // 2)]).view(1, 1, 1, D).to(dtype)
    return rope.rotate(x, torch.tensor([m]))[0, 0, 0, : D // 2]


def on_meta(rope):
    with torch.device("meta"):
        model = nn.ModuleList([RoPE(rope.d_head)])
    return model.to_empty(device="cpu")[0]


def in_single(rope):
    torch.set_default_dtype(torch.float32)
    return RoPE(rope.d_head)


TREATMENTS = {
    "none": lambda rope: rope,
    "bfloat16": lambda rope: nn.Sequential(rope).to(torch.bfloat16)[0],
    "float32": lambda rope: rope.to(torch.float32),
    "made in float32": in_single,
    "made on meta": on_meta,
    "sent to meta": lambda rope: rope.to("meta").to_empty(device="cpu"),
    "copied": copy.deepcopy,
    "pickled": lambda rope: pickle.loads(pickle.dumps(rope)),
}


@pytest.mark.parametrize("treat", TREATMENTS.values(), ids=TREATMENTS)
@pytest.mark.parametrize("m", [1009, 1_000_003])
def test_angles_are_exact_far_out_whatever_is_done_to_the_model(treat, m):
    rope, exact = treat(RoPE(62)), exact_cosines(m, 62)
    # a frequency is rounded, its exponent up to ln 10000 is, and their product with m
    angle = m * 2**-53 * (math.log(10_000) + 4)
    assert (cosines(rope, m) - exact).abs().max() < angle + 2**-53
    assert (cosines(rope, m, torch.float32).double() - exact).abs().max() < angle + 2**-24
    with torch.autocast("cpu", torch.bfloat16):
        table = cosines(rope, m, torch.float32)
    assert (table.double() - exact).abs().max() < angle + 2**-24
    assert not list(rope.parameters()) and not rope.state_dict()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_comes_out_as_it_went_in_and_near_the_truth(dtype):
    x, pos = torch.randn(2, 3, 5, 14).to(dtype), FAR + torch.arange(5)
    out, truth = RoPE(14).rotate(x, pos), RoPE(14).rotate(x.double(), pos)
    assert out.dtype == dtype
    # cos and sin, a product and the sum are rounded, each by half a unit of at most 2·max|x|
    assert (out.double() - truth).abs().max() < 4 * torch.finfo(dtype).eps * x.abs().max()


# --- one table for all layers -------------------------------------------------------------------


@pytest.mark.parametrize("first", [-7, -2, 0, 1, ROWS - 7, ROWS - 2, ROWS, FAR])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_table_has_two_ends_beyond_which_angles_are_computed(first, dtype):
    "This catches a lookup that counts from the end of the table."
    rope, x = RoPE(6), torch.randn(1, 2, 5, 6, dtype=dtype)
    for start in (0, first, 3, first + 5):
        pos = start + torch.arange(5)
        angle = angles(pos, 6)
        expected = rotate_half_split(x, angle.cos().to(dtype), angle.sin().to(dtype))
        assert_close(rope.rotate(x, pos), expected)
        for t in range(5):  # a single position is looked up in another way
            one = rope.rotate(x[:, :, t : t + 1], pos[t : t + 1])
            assert_close(one, expected[:, :, t : t + 1])


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev])
def test_a_model_can_be_copied_after_a_transform(transform):
    "This catches a table that is made inside the transform and dies with it."
    sizes = {"d_model": 14, "n_layers": 2, "n_heads": 7, "n_kv_heads": 1, "d_ff": 11}
    model, ids = Llama(LlamaConfig(13, **sizes)), torch.randint(13, (2, 5))
    weights = {name: p.detach() for name, p in model.named_parameters()}
    found = transform(lambda p: torch.func.functional_call(model, p, (ids,)).sum())(weights)
    expected = torch.autograd.grad(model(ids).sum(), list(model.parameters()))
    assert_close(list(found.values()), list(expected))
    assert_close(copy.deepcopy(model)(ids), model(ids))


@pytest.mark.parametrize("where", ["cpu", "meta"])
def test_positions_may_lie_elsewhere_than_the_heads(where):
    x = torch.randn(2, 3, 5, 6, device="meta")
    out = RoPE(6).rotate(x, torch.arange(5, device=where))
    assert out.is_meta and out.shape == x.shape
    with torch.device("meta"):
        assert rope_frequencies(6).is_cpu


def test_no_positions_no_heads():
    assert RoPE(6).rotate(torch.randn(2, 3, 0, 6), torch.arange(0)).shape == (2, 3, 0, 6)


@pytest.mark.parametrize(
    ("given", "message"),
    [((7,), "d_head, .* got 7"), ((0,), "got 0")]
    + [((6, base), rf"base .*{base}") for base in (1.0, 0.0, -10.0, math.nan)],
)
def test_heads_and_bases_that_spread_nothing_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        RoPE(*given)


def test_an_export_holds_the_frequencies_once():
    "ONNX warns of every other name that one tensor has."
    model = Llama(LlamaConfig(31, d_model=24, n_layers=3, n_heads=2, d_ff=17)).eval()
    held = torch.export.export(model, (torch.arange(7)[None],)).constants
    assert [x.shape for x in held.values()] == [(6,)]
