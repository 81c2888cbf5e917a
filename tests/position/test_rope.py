"""Rotary positions against loops, Hugging Face's Llama and exact arithmetic, and as a plug."""

import copy
import math
import pickle
from decimal import Decimal, getcontext

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers import LlamaConfig as TheirConfig
from transformers.models.llama import modeling_llama

from transformer_lit.attention.cache import KVCache
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.multihead import MultiHeadAttention, merge_heads, split_heads
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


def by_hand(x, m, base=10_000.0):
    D = len(x)
    out = [0.0] * D
    for i in range(D // 2):
        c, s = (f(m * base ** (-2 * i / D)) for f in (math.cos, math.sin))
        out[i] = x[i] * c - x[i + D // 2] * s
        out[i + D // 2] = x[i + D // 2] * c + x[i] * s
    return out


def tables(pos, D, base=10_000.0):
    angle = pos[..., None] * rope_frequencies(D, base)
    return angle.cos(), angle.sin()


def llama(D, base=10_000.0, **more):
    rope = {"rope_type": "default", "rope_theta": base}
    return TheirConfig(head_dim=D, rope_parameters=rope, **more)


# --- oracles ------------------------------------------------------------------------------------


@pytest.mark.parametrize("D", [2, 6, 14, 22])
@pytest.mark.parametrize("base", [10_000.0, 500_000.0, 7.0])
def test_equals_loops_for_positions_of_both_shapes(D, base):
    B, N, T = 2, 3, 5
    x, pos = torch.randn(B, N, T, D), torch.randint(1009, (B, T))
    expected = torch.tensor(
        [
            [
                [by_hand(x[b, h, t].tolist(), int(pos[b, t]), base) for t in range(T)]
                for h in range(N)
            ]
            for b in range(B)
        ]
    )
    rope = RoPE(D, base)
    assert_close(rope.rotate(x, pos), expected)
    assert_close(rope.rotate(x, pos[1])[1], expected[1])


@pytest.mark.parametrize("D", [2, 14, 26])
@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
@pytest.mark.parametrize("far", [31, FAR])
def test_equals_hugging_faces_llama_up_to_its_rounding_of_angles(D, base, far):
    q, k, pos = torch.randn(2, 5, 7, D), torch.randn(2, 3, 7, D), torch.randint(far, (2, 7))
    cos, sin = modeling_llama.LlamaRotaryEmbedding(llama(D, base))(q, pos)
    rope = RoPE(D, base)
    for x, theirs in zip((q, k), modeling_llama.apply_rotary_pos_emb(q, k, cos, sin)):
        # Their angle is a power of a float32 exponent, which is up to ln(base), times a position:
        # each rounded. Two numbers are multiplied by its cosine and sine, float32 numbers too.
        angle = far * 2**-24 * (math.log(base) + 4)
        assert (rope.rotate(x, pos) - theirs).abs().max() < 2 * x.abs().max() * (angle + 2**-24)
    cos, sin = (torch.cat([table, table], -1) for table in tables(pos, D, base))  # without rounding
    theirs = modeling_llama.apply_rotary_pos_emb(q, k, cos, sin)
    assert_close((rope.rotate(q, pos), rope.rotate(k, pos)), theirs)


@pytest.mark.parametrize(("H", "K"), [(6, 6), (6, 3), (6, 2), (6, 1)])
def test_attention_equals_a_layer_of_hugging_faces_llama(H, K):
    D, C = 14, 66
    config = llama(D, hidden_size=C, num_attention_heads=H, num_key_value_heads=K)
    config._attn_implementation = "eager"
    theirs = modeling_llama.LlamaAttention(config, 0)
    ours = MultiHeadAttention(C, H, K, d_head=D, causal=True, position=RoPE(D))
    ours.load_state_dict(theirs.state_dict())
    x, pos = torch.randn(2, 11, C), torch.arange(3, 14)
    cos, sin = (torch.cat([t, t], -1)[None] for t in tables(pos, D))  # theirs are rounded
    hidden = torch.full((11, 11), -torch.inf).triu(1)[None, None]
    assert_close(ours(x, pos=pos), theirs(x, (cos, sin), hidden)[0])


@pytest.mark.parametrize("D", [2, 6, 14, 22])
def test_both_layouts_and_complex_numbers_agree_under_the_permutation(D):
    x, pos, order = torch.randn(2, 3, 5, D), torch.arange(5), interleaved_order(D)
    cos, sin = tables(pos, D)
    interleaved = rotate_interleaved(x, cos, sin)
    assert sorted(order.tolist()) == list(range(D))
    assert_close(rotate_half_split(x[..., order], cos, sin), interleaved[..., order])
    assert_close(RoPE(D).rotate(x[..., order], pos), interleaved[..., order])
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.complex(cos, sin)
    assert_close(interleaved, torch.view_as_real(turned).flatten(-2))


def test_frequencies_are_those_of_the_paper():
    assert_close(rope_frequencies(6, 10.0).tolist(), [1.0, 10 ** (-1 / 3), 10 ** (-2 / 3)])
    with torch.device("meta"):
        assert rope_frequencies(6).is_cpu
    assert rope_frequencies(6).dtype == torch.float64


def test_heads_stay_laid_out_as_they_were():
    "The kernel lays its result out as its queries, and heads that lie in a row merge as a view."
    heads = split_heads(torch.randn(2, 5, 3 * 14), 14)
    turned = RoPE(14).rotate(heads, torch.arange(5))
    assert turned.stride() == heads.stride()
    out = attend_fused(turned, turned, heads, causal=True)
    assert merge_heads(out).data_ptr() == out.data_ptr()


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


@pytest.mark.parametrize(
    "treat",
    [
        lambda rope: rope,
        lambda rope: rope.bfloat16(),
        lambda rope: rope.half(),
        lambda rope: rope.to(torch.float32),
        lambda rope: nn.Sequential(rope).to(torch.bfloat16)[0],
        lambda rope: rope.to_empty(device="cpu"),
        lambda rope: rope.to("meta").to_empty(device="cpu"),
        lambda rope: copy.deepcopy(rope),
        lambda rope: pickle.loads(pickle.dumps(rope)),
        on_meta,
    ],
)
@pytest.mark.parametrize("m", [1009, 1_000_003])
def test_angles_are_exact_far_out_whatever_is_done_to_the_model(treat, m):
    rope, exact = treat(RoPE(62)), exact_cosines(m, 62)
    # a frequency is rounded, its exponent up to ln 10000 is, and their product with m
    angle = m * 2**-53 * (math.log(10_000) + 4)
    assert (cosines(rope, m) - exact).abs().max() < angle + 2**-53
    assert (cosines(rope, m, torch.float32).double() - exact).abs().max() < angle + 2**-24


def test_autocast_leaves_the_angles_alone():
    with torch.autocast("cpu", torch.bfloat16):
        table = cosines(RoPE(62), FAR, torch.float32)
    assert (table.double() - exact_cosines(FAR, 62)).abs().max() < 2**-24 + FAR * 2**-49


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_comes_out_as_it_went_in_and_near_the_truth(dtype):
    x, pos = torch.randn(2, 3, 5, 14).to(dtype), FAR + torch.arange(5)
    out, truth = RoPE(14).rotate(x, pos), RoPE(14).rotate(x.double(), pos)
    assert out.dtype == dtype
    # cos and sin, a product and the sum are rounded, each by half a unit of at most 2·max|x|
    assert (out.double() - truth).abs().max() < 4 * torch.finfo(dtype).eps * x.abs().max()


# --- properties ---------------------------------------------------------------------------------


@pytest.mark.parametrize("D", [2, 14])
@pytest.mark.parametrize("shift", [1, 29, 10_007])
def test_scores_depend_on_the_distance_alone(D, shift):
    rope, (q, k) = RoPE(D), torch.randn(2, 1, 3, 11, D)
    pos = torch.randint(101, (11,))
    scores = rope.rotate(q, pos) @ rope.rotate(k, pos).mT
    moved = rope.rotate(q, pos + shift) @ rope.rotate(k, pos + shift).mT
    assert_close(moved, scores)
    other = rope.rotate(q, pos + shift) @ rope.rotate(k, pos).mT
    assert (other - scores).abs().max() > 0.1


@pytest.mark.parametrize("D", [2, 14])
def test_norms_are_kept_and_the_gradient_is_the_turn_back(D):
    rope, pos = RoPE(D), torch.randint(1009, (3, 5))
    x = torch.randn(3, 2, 5, D, dtype=torch.float64, requires_grad=True)
    out = rope.rotate(x, pos)
    assert_close(out.norm(dim=-1), x.norm(dim=-1))
    (back,) = torch.autograd.grad(out, x, out.detach())
    assert_close(back, x.detach())


@pytest.mark.parametrize(("H", "K"), [(6, 2)])
@pytest.mark.parametrize("chunks", [[1] * 11, [5, 1, 2, 3]])
@pytest.mark.parametrize("late", [False, True])
def test_cached_equals_full(H, K, chunks, late):
    attn = MultiHeadAttention(29, H, K, d_head=14, causal=True, position=RoPE(14))
    x, cache = torch.randn(2, 11, 29), KVCache(13)
    pos = torch.arange(11) + (torch.tensor([[0], [37]]) if late else 0)
    outs = [
        attn(piece, pos=place, cache=cache)
        for piece, place in zip(x.split(chunks, 1), pos.split(chunks, -1))
    ]
    assert_close(torch.cat(outs, 1), attn(x, pos=pos))


def test_a_scaling_gives_frequencies_and_a_factor():
    asked = []

    def scaling(d_head, base):
        asked.append((d_head, base))
        return torch.tensor([0.3, 0.02, 0.0], dtype=torch.float64), 1.7

    rope, x, pos = RoPE(6, 77.0, scaling=scaling), torch.randn(1, 2, 5, 6), torch.arange(5)
    angle = pos[:, None] * torch.tensor([0.3, 0.02, 0.0])
    assert asked == [(6, 77.0)]
    assert rope.frequencies.tolist() == [0.3, 0.02, 0.0]
    assert_close(rope.rotate(x, pos), 1.7 * rotate_half_split(x, angle.cos(), angle.sin()))


# --- one object for all layers ------------------------------------------------------------------


def test_nothing_is_trained_or_saved():
    rope = RoPE(6)
    rope.rotate(torch.randn(1, 1, 3, 6), torch.arange(3))
    assert not list(rope.parameters()) and not rope.state_dict()


@pytest.mark.parametrize("first", [0, 1, ROWS - 7, ROWS - 2, ROWS, FAR])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_table_has_an_end_behind_which_angles_are_computed(first, dtype):
    rope, x = RoPE(6), torch.randn(1, 2, 5, 6, dtype=dtype)
    for start in (0, first, 3, first + 5):
        pos = start + torch.arange(5)
        cos, sin = (part.to(dtype) for part in tables(pos, 6))
        assert_close(rope.rotate(x, pos), rotate_half_split(x, cos, sin))
        assert_close(rope.rotate(x[:, :, 2:3], pos[2:3]), rope.rotate(x, pos)[:, :, 2:3])


def test_a_wider_type_than_the_tables_is_computed():
    torch.set_default_dtype(torch.float32)
    rope = RoPE(62)
    assert (cosines(rope, 1009) - exact_cosines(1009, 62)).abs().max() < 1009 * 2**-49
    assert cosines(rope, 1009, torch.float32).equal(cosines(rope, 1009).float())


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
    rope, x = RoPE(6), torch.randn(2, 3, 5, 6, device="meta")
    out = rope.rotate(x, torch.arange(5, device=where))
    assert out.is_meta and out.shape == x.shape


def test_no_positions_no_heads():
    assert RoPE(6).rotate(torch.randn(2, 3, 0, 6), torch.arange(0)).shape == (2, 3, 0, 6)


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [1.0, 0.0, -10.0, math.nan])
def test_a_base_that_spreads_nothing_is_refused(base):
    with pytest.raises(ValueError, match=rf"base .*{base}"):
        RoPE(6, base)


@pytest.mark.parametrize("pos", [[-3], [0, -3, 2], [[0, 1, 2], [5, 4, -3]]])
def test_a_negative_position_turns_back(pos):
    "This catches a lookup that counts from the end of the table."
    rope, x, pos = RoPE(6), torch.randn(2, 1, 3, 6), torch.tensor(pos)
    x = x[:, :, : pos.shape[-1]]
    assert_close(rope.rotate(rope.rotate(x, pos), -pos), x)
