"""Relative positions: T5's buckets and ALiBi's slopes against the programs that others run."""

import math

import pytest
import torch
from torch.testing import assert_close

from transformer_lit.attention.attend import attend, attention_weights
from transformer_lit.attention.cache import KVCache
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.masks import padding_mask
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.position.relative import ALiBi, T5Bias, alibi_slopes, distances, t5_bucket

B, T, H, D, C = 2, 7, 6, 5, 11


def t5(n_heads, n_buckets=14, max_distance=53, causal=False):
    plug = T5Bias(n_heads, n_buckets, max_distance, causal)
    torch.nn.init.normal_(plug.weight)
    return plug


PLUGS = {
    "t5": t5,
    "t5 causal": lambda n_heads: t5(n_heads, 7, 17, causal=True),
    "alibi": ALiBi,
}


# --- distances ----------------------------------------------------------------------------------


def test_a_key_behind_the_query_has_a_positive_distance():
    assert distances(torch.tensor([5, 6]), torch.tensor([4, 5, 9])).tolist() == [
        [[[1, 0, -4], [2, 1, -3]]]
    ]


@pytest.mark.parametrize("q_rows", [(), (3,)])
@pytest.mark.parametrize("k_rows", [(), (3,)])
def test_positions_may_differ_from_sentence_to_sentence(q_rows, k_rows):
    q_pos, k_pos = torch.randint(31, (*q_rows, 5)), torch.randint(31, (*k_rows, 7))
    apart = distances(q_pos, k_pos)
    rows = 3 if q_rows or k_rows else 1
    assert apart.shape == (rows, 1, 5, 7)
    for b, t, s in torch.cartesian_prod(*map(torch.arange, (rows, 5, 7))).tolist():
        expected = q_pos.expand(rows, 5)[b, t] - k_pos.expand(rows, 7)[b, s]
        assert apart[b, 0, t, s] == expected


# --- T5 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_buckets", "max_distance"), [(32, 128), (14, 53), (64, 257), (6, 11), (4, 2), (38, 1009)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_buckets_are_those_of_the_published_program(n_buckets, max_distance, causal):
    from transformers.models.t5.modeling_t5 import T5Attention

    if causal:
        n_buckets = n_buckets // 2 + (n_buckets // 2 == 2)  # odd numbers too
    d = torch.arange(-1000, 1001)
    theirs = T5Attention._relative_position_bucket(-d, not causal, n_buckets, max_distance)
    ours = t5_bucket(d, n_buckets, max_distance, causal=causal)
    assert torch.equal(ours, theirs)
    assert ours.min() == 0 and ours.max() == n_buckets - 1


@pytest.mark.parametrize("causal", [False, True])
def test_the_whole_attention_is_t5s(causal):
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    sizes = {"relative_attention_num_buckets": 14, "relative_attention_max_distance": 11}
    config = T5Config(d_model=C, d_kv=D, num_heads=H, is_decoder=causal, dropout_rate=0, **sizes)
    config._attn_implementation = "eager"
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()
    plug = T5Bias(H, 14, 11, causal)
    ours = MultiHeadAttention(C, H, d_head=D, causal=causal, position=plug)
    names = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o"}
    for mine, name in names.items():
        torch.nn.init.normal_(getattr(theirs, name).weight, std=0.3)
        getattr(ours, mine).load_state_dict(getattr(theirs, name).state_dict())
    plug.weight.data.copy_(theirs.relative_attention_bias.weight)
    x = torch.randn(B, 31, C)
    hidden = torch.full((31, 31), -torch.inf).triu(1)[None, None] if causal else None
    assert_close(ours(x), theirs(x, mask=hidden)[0])


def test_the_default_type_decides_no_bucket():
    "A rounding decides at an edge, so the type is the published program's and nobody else's."
    d, found = torch.arange(-1000, 1001), []
    for default in (torch.float32, torch.float64):
        torch.set_default_dtype(default)
        found += [t5_bucket(d, 38, 1009, causal=causal) for causal in (False, True)]
    assert torch.equal(found[0], found[2]) and torch.equal(found[1], found[3])


def test_t5_asks_for_no_division_by_the_root_of_the_head():
    assert T5Bias(H).scale(D) == 1.0 and ALiBi(H).scale(D) is None


def test_a_bucket_gets_the_gradient_of_all_its_pairs():
    plug = T5Bias(3, 4, 16)  # two buckets for each direction: one exact, one for the rest
    q, pos = torch.zeros(1, 3, 5, D), torch.arange(5)
    weight = torch.randn(1, 3, 5, 5)
    (plug.bias(q, q, distances(pos, pos)) * weight).sum().backward()
    for h in range(3):
        here, ahead = weight[0, h].diagonal().sum(), weight[0, h].triu(1).sum()
        behind = weight[0, h].tril(-1).sum()
        # row 2 would be "ahead, at distance 0"
        assert_close(plug.weight.grad[:, h], torch.stack([here, behind, 0 * here, ahead]))


def test_a_fresh_table_is_the_null_plug():
    plain = MultiHeadAttention(C, H, d_head=D, scale=1.0)
    biased = MultiHeadAttention(C, H, d_head=D, position=T5Bias(H))
    biased.load_state_dict(plain.state_dict(), strict=False)
    x = torch.randn(B, T, C)
    assert_close(biased(x), plain(x))


def test_layers_that_share_the_plug_share_one_table():
    plug = T5Bias(H)
    layers = torch.nn.ModuleList(
        MultiHeadAttention(C, H, d_head=D, position=plug) for _ in range(3)
    )
    assert [tuple(p.shape) for n, p in layers.named_parameters() if "position" in n] == [(32, H)]


@pytest.mark.parametrize(
    ("n_buckets", "max_distance", "causal"),
    [(7, 17, False), (14, 3, False)],
)
def test_buckets_that_cannot_be_are_named(n_buckets, max_distance, causal):
    message = f"n_buckets={n_buckets}, max_distance={max_distance}, causal={causal}"
    with pytest.raises(ValueError, match=message):
        t5_bucket(torch.arange(3), n_buckets, max_distance, causal=causal)


# --- ALiBi --------------------------------------------------------------------------------------

PUBLISHED = {  # minus the exponents of two
    8: [1, 2, 3, 4, 5, 6, 7, 8],
    12: [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5],
    16: [h / 2 for h in range(1, 17)],
}


@pytest.mark.parametrize("n_heads", PUBLISHED)
def test_published_slopes(n_heads):
    assert_close(alibi_slopes(n_heads), torch.tensor([2.0**-e for e in PUBLISHED[n_heads]]))


def test_slopes_for_any_number_of_heads_are_blooms():
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    for n_heads in range(1, 38):
        theirs = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), n_heads, torch.float32)
        slopes = theirs[:, 0, 1].double()  # the key at position 1
        # theirs are powers of a rounded float32: the h-th has h times its error, and its own
        assert_close(alibi_slopes(n_heads), slopes, rtol=(n_heads + 1) * 2**-24, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_alibi_has_the_bits_of_the_queries_and_24_until_the_end(dtype):
    q, pos = torch.zeros(1, 12, 2, D, dtype=dtype), torch.tensor([0, 1009])
    exact = torch.promote_types(dtype, torch.float32)
    slopes = torch.tensor([2.0**-e for e in PUBLISHED[12]])  # some are irrational
    found = ALiBi(12).to(dtype).bias(q, q, distances(pos, pos))[0, :, 1, 0]
    assert_close(found, (-1009 * slopes).to(dtype), rtol=2 * torch.finfo(exact).eps, atol=0)


@pytest.mark.parametrize("n_heads", [1, 3, 6, 11])
def test_alibi_by_hand(n_heads):
    q, q_pos, k_pos = torch.zeros(B, n_heads, 3, D), torch.tensor([2, 9, 4]), torch.arange(7)
    bias = ALiBi(n_heads).bias(q, torch.zeros(B, n_heads, 7, D), distances(q_pos, k_pos))
    assert bias.shape == (1, n_heads, 3, 7)
    for h, t, s in torch.cartesian_prod(*map(torch.arange, (n_heads, 3, 7))).tolist():
        assert_close(bias[0, h, t, s], -alibi_slopes(n_heads)[h] * abs(q_pos[t] - s))


def test_alibi_is_blooms_bias_by_keys_alone():
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    q, k, pos = torch.randn(B, 3, T, D), torch.randn(B, 3, T, D), torch.arange(T)
    theirs = build_alibi_tensor(torch.ones(1, T, dtype=torch.long), 3, torch.float32)
    theirs = theirs.double()  # three slopes, all whole powers of two: float32 holds them exactly
    ours = attention_weights(q, k, bias=ALiBi(3).bias(q, k, distances(pos, pos)), causal=True)
    assert_close(attention_weights(q, k, bias=theirs.expand(1, 3, T, T), causal=True), ours)


def test_a_head_without_preference_fades_into_the_past():
    q, pos = torch.zeros(1, 3, 997, D), torch.arange(997)
    bias = ALiBi(3).bias(q[:, :, -1:], q, distances(pos[-1:], pos))
    weights = attention_weights(q[:, :, -1:], q, bias=bias)[0, :, 0]
    m = alibi_slopes(3)[:, None]
    expected = (1 - torch.exp(-m)) * torch.exp(-m * pos.flip(0))
    # the past is cut at 997 tokens: what is missing weighs e^{-997/256}, 2 %, in the flattest head
    assert_close(weights[[0, 2]], expected[[0, 2]])
    assert_close(weights[1], expected[1], rtol=0.022, atol=0)


def test_alibi_holds_nothing():
    plug = ALiBi(12).to(torch.bfloat16)
    assert not list(plug.parameters()) and not list(plug.buffers()) and not plug.state_dict()


# --- what holds for every plug ------------------------------------------------------------------


@pytest.mark.parametrize("plug", PLUGS)
def test_only_distance_counts(plug):
    m = MultiHeadAttention(C, H, d_head=D, position=PLUGS[plug](H))
    x, pos = torch.randn(B, T, C), torch.randperm(T)  # near, or a bucket may hide a distance
    assert_close(m(x, pos=pos + 1009), m(x, pos=pos))
    assert_close(m(x, pos=pos + torch.tensor([[13], [-101]])), m(x, pos=pos))
    assert (m(x, pos=pos * 2) - m(x, pos=pos)).abs().max() > 1e-3  # and distance does


@pytest.mark.parametrize("plug", PLUGS)
@pytest.mark.parametrize("kv_heads", [1, 6])
@pytest.mark.parametrize("kernel", [attend, attend_fused])
@pytest.mark.parametrize("chunks", [(4, 1, 2), (1,) * 7])
def test_cached_is_full(plug, kv_heads, kernel, chunks):
    parts = {"d_head": D, "causal": True, "position": PLUGS[plug](H)}
    m = MultiHeadAttention(C, H, kv_heads, attend=kernel, **parts)
    x, cache = torch.randn(B, T, C), KVCache(T)
    steps = [m(piece, cache=cache) for piece in x.split(chunks, 1)]
    assert_close(torch.cat(steps, 1), m(x))


@pytest.mark.parametrize("plug", PLUGS)
@pytest.mark.parametrize("causal", [False, True])
def test_both_kernels_agree_forward_and_backward(plug, causal):
    m = MultiHeadAttention(C, H, d_head=D, causal=causal, position=PLUGS[plug](H))
    x, results = torch.randn(B, T, C), []
    for m.attend in (attend, attend_fused):
        m.zero_grad()
        out = m(x)
        out.square().sum().backward()
        results.append((out.detach(), *(p.grad.clone() for p in m.parameters())))
    assert_close(results[0], results[1])


@pytest.mark.parametrize("plug", PLUGS)
def test_rows_of_unequal_length_are_what_they_are_alone(plug):
    m = MultiHeadAttention(C, H, d_head=D, causal=True, position=PLUGS[plug](H))
    x, pads = torch.randn(B, T, C), torch.tensor([0, 2])
    pos = torch.arange(T) - pads[:, None]
    out = m(x, pos=pos, mask=padding_mask(pos >= 0))
    assert_close(out[:1], m(x[:1]))
    assert_close(out[1:, 2:], m(x[1:, 2:]))


@pytest.mark.parametrize("plug", PLUGS)
def test_the_bias_has_the_type_of_the_queries(plug):
    bias_plug = PLUGS[plug](H)
    for dtype in (torch.float32, torch.bfloat16):
        q, pos = torch.zeros(B, H, T, D, dtype=dtype), torch.arange(T)
        assert bias_plug.bias(q, q, distances(pos, pos)).dtype == dtype


@pytest.mark.parametrize("make", [T5Bias, ALiBi])
def test_it_can_be_built_without_memory(make):
    with torch.device("meta"):
        m = MultiHeadAttention(4096, 32, position=make(32), causal=True)
        assert m(torch.empty(1, T, 4096)).shape == (1, T, 4096)


def test_nothing_is_nan_at_a_million():
    q, pos = torch.zeros(1, 3, 2, D), torch.tensor([0, 10**6])
    for plug in (t5(3), ALiBi(3)):
        assert plug.bias(q, q, distances(pos, pos)).isfinite().all()
    far = math.log2(10**6)  # the flattest of three heads has slope 1/256
    assert_close(
        ALiBi(3).bias(q, q, distances(pos, pos))[0, 1, 1, 0].neg().log2(), torch.tensor(far - 8)
    )
