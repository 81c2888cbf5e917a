"""Positions of published models: their tables, their angles, and attention with their weights.

Their code computes angles in float32; `Wide` makes float64 of it.
"""

import math

import pytest
import torch
import transformers as hf
from torch import nn
from torch.testing import assert_close
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.deberta import modeling_deberta as first
from transformers.models.deberta_v2 import modeling_deberta_v2 as second
from transformers.models.llama import modeling_llama as llama
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.t5.modeling_t5 import T5Attention
from wide import Wide

from transformer_lit.attention.attend import attend
from transformer_lit.attention.multihead import MultiHeadAttention, distances
from transformer_lit.position.absolute import sinusoids
from transformer_lit.position.disentangled import (
    DisentangledBias,
    TransformerXLBias,
    deberta_bucket,
)
from transformer_lit.position.relative import T5Bias, alibi_slopes, t5_bucket
from transformer_lit.position.rope import RoPE, rope_frequencies
from transformer_lit.position.scaling import (
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    YaRNScaling,
    make_scaling,
)

B, H, D, C = 2, 6, 5, 30
EVERY = torch.arange(-1000, 1001)


def draw(module, std=0.3):
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=std)
    return module


# --- absolute, T5, ALiBi ------------------------------------------------------------------------


@pytest.mark.parametrize("C", [6, 14, 26])
def test_sinusoids_are_marians_with_the_sines_first(C):
    theirs = MarianSinusoidalPositionalEmbedding(101, C).create_weight()
    ours = sinusoids(torch.arange(101), C)
    # theirs are computed in double precision, and then stored in float32
    assert_close(torch.cat([ours[:, 0::2], ours[:, 1::2]], 1), theirs.double(), rtol=0, atol=2**-24)


@pytest.mark.parametrize(
    ("n_buckets", "max_distance"), [(32, 128), (14, 53), (64, 257), (6, 11), (4, 2), (38, 1009)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_t5s_buckets(n_buckets, max_distance, causal):
    if causal:
        n_buckets = n_buckets // 2 + (n_buckets // 2 == 2)  # odd numbers too
    theirs = T5Attention._relative_position_bucket(-EVERY, not causal, n_buckets, max_distance)
    ours = t5_bucket(EVERY, n_buckets, max_distance, causal=causal)
    assert torch.equal(ours, theirs)
    assert ours.min() == 0 and ours.max() == n_buckets - 1


@pytest.mark.parametrize("causal", [False, True])
def test_t5s_attention(causal):
    sizes = {"relative_attention_num_buckets": 14, "relative_attention_max_distance": 11}
    config = hf.T5Config(d_model=C, d_kv=D, num_heads=H, is_decoder=causal, dropout_rate=0, **sizes)
    config._attn_implementation = "eager"
    theirs = draw(T5Attention(config, has_relative_attention_bias=True, layer_idx=0)).eval()
    ours = MultiHeadAttention(C, H, d_head=D, causal=causal, position=T5Bias(H, 14, 11, causal))
    for mine, name in {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o"}.items():
        getattr(ours, mine).load_state_dict(getattr(theirs, name).state_dict())
    ours.position.weight.data.copy_(theirs.relative_attention_bias.weight)
    x = torch.randn(B, 31, C)
    hidden = torch.full((31, 31), -torch.inf).triu(1)[None, None] if causal else None
    with Wide():
        expected, *_ = theirs(x, mask=hidden)
    assert_close(ours(x), expected)


@pytest.mark.parametrize("n_heads", [*range(1, 38), 112])
def test_alibis_slopes_are_blooms(n_heads):
    theirs = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), n_heads, torch.float32)
    # the key at position 1. Theirs are powers of a rounded float32: the h-th has h times its error,
    # and its own
    slopes, rtol = theirs[:, 0, 1].double(), (n_heads + 1) * 2**-24
    assert_close(alibi_slopes(n_heads), slopes, rtol=rtol, atol=0)


# --- Transformer-XL, DeBERTa --------------------------------------------------------------------


@pytest.mark.parametrize(("n_buckets", "max_distance"), [(256, 512), (14, 53), (7, 23), (2, 11)])
def test_debertas_buckets(n_buckets, max_distance):
    ours = deberta_bucket(EVERY, n_buckets, max_distance)
    torch.set_default_dtype(torch.float32)  # theirs take it; ours are the same under any
    theirs = second.make_log_bucket_position(EVERY, n_buckets, max_distance)
    assert torch.equal(ours, theirs.long())
    assert torch.equal(ours, deberta_bucket(EVERY, n_buckets, max_distance))


def with_projections(plug, q, k, v):
    "Our attention with this plug, these projections, and none at its end."
    ours = MultiHeadAttention(C, H, position=plug, bias=True)
    for mine, weights in ((ours.q_proj, q), (ours.k_proj, k), (ours.v_proj, v)):
        mine.load_state_dict(weights)
    ours.o_proj.load_state_dict({"weight": torch.eye(C), "bias": torch.zeros(C)})
    return ours


def test_the_attention_of_debertas_first_version():
    n, shape = 13, {"pos_att_type": ["c2p", "p2c"], "max_relative_positions": 7}
    sizes = {"hidden_size": C, "num_attention_heads": H, "relative_attention": True}
    theirs = draw(first.DisentangledSelfAttention(hf.DebertaConfig(**sizes, **shape))).eval()
    plug = draw(DisentangledBias(C, H, max_distance=7, bias=True))
    plug.k_proj.load_state_dict({"weight": theirs.pos_proj.weight, "bias": torch.zeros(C)})
    plug.q_proj.load_state_dict(theirs.pos_q_proj.state_dict())
    by_head = theirs.in_proj.weight.view(H, 3, D, C)
    parts = [
        {"weight": by_head[:, i].reshape(C, C), "bias": bias}
        for i, bias in enumerate((theirs.q_bias, torch.zeros(C), theirs.v_bias))
    ]
    x = torch.randn(B, n, C)
    apart = first.build_relative_position(x[:, None], x[:, None])
    table = {"relative_pos": apart, "rel_embeddings": plug.weight}
    expected, _ = theirs(x, torch.ones(B, 1, n, n), **table)
    assert_close(with_projections(plug, *parts)(x), expected)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("terms", [["c2p"], ["p2c"], ["c2p", "p2c"]])
@pytest.mark.parametrize("buckets", [None, 8])
def test_the_attention_of_debertas_second_version(shared, terms, buckets):
    n, shape = 37, {"pos_att_type": terms, "max_relative_positions": 23, "share_att_key": shared}
    sizes = {"hidden_size": C, "num_attention_heads": H, "relative_attention": True}
    config = hf.DebertaV2Config(**sizes, **shape, position_buckets=buckets or -1)
    theirs = draw(second.DisentangledSelfAttention(config)).eval()
    parts = {"max_distance": 23, "n_buckets": buckets, "terms": terms, "bias": True}
    plug = draw(DisentangledBias(C, H, **parts))
    for term, mine, name in (("c2p", plug.k_proj, "key_proj"), ("p2c", plug.q_proj, "query_proj")):
        if term in terms:
            mine.load_state_dict(getattr(theirs, "pos_" * (not shared) + name).state_dict())
    projections = (theirs.query_proj, theirs.key_proj, theirs.value_proj)
    x = torch.randn(B, n, C)
    expected, _ = theirs(x, torch.ones(B, 1, n, n), rel_embeddings=plug.weight)
    assert_close(with_projections(plug, *(p.state_dict() for p in projections))(x), expected)


@pytest.mark.parametrize(("kind", "causal"), [("bi", False), ("bi", True), ("uni", True)])
def test_transformer_xls_scores_are_xlnets(kind, causal):
    T, S = 7, 11
    sizes = {"vocab_size": 3, "d_model": C, "n_head": H, "n_layer": 1, "d_inner": 7}
    model = draw(hf.XLNetModel(hf.XLNetConfig(**sizes, attn_type=kind)).eval().double())
    theirs = model.layer[0].rel_attn
    with Wide():
        r = model.relative_positional_encoding(T, S, bsz=B)
    q, (k, v) = torch.randn(B, H, T, D), torch.randn(2, B, H, S, D)
    hidden = torch.ones(T, S).triu(S - T + 1)[:, :, None, None].expand(-1, -1, B, 1) * causal
    by_time = [x.permute(2, 0, 1, 3) for x in (q, k, v)]
    k_r = torch.einsum("ibh,hnd->ibnd", r, theirs.r)
    expected = theirs.rel_attn_core(*by_time, k_r, attn_mask=hidden)
    plug = TransformerXLBias(C, H, causal=causal)
    halves = theirs.r.flatten(1).unflatten(0, (2, -1))  # theirs puts all sines first
    weights = {"u": theirs.r_w_bias, "v": theirs.r_r_bias}
    plug.load_state_dict({"r_proj.weight": halves.transpose(0, 1).flatten(0, 1).T, **weights})
    bias = plug.bias(q, k, distances(torch.arange(S - T, S), torch.arange(S)))
    out = attend(q, k, v, bias=bias, causal=causal, scale=plug.scale(D))
    assert_close(out.permute(2, 0, 1, 3), expected)


# --- rotary frequencies and their scalings ------------------------------------------------------


def rotary(kind, D, base, *, max_len=100_003, **parameters):
    rope = {"rope_type": kind, "rope_theta": base, **parameters}
    sizes = {"hidden_size": 3 * D, "num_attention_heads": 3, "head_dim": D}
    return hf.LlamaConfig(**sizes, max_position_embeddings=max_len, rope_parameters=rope)


def scaled(kind, D, base, names, seq_len=None, max_len=100_003):
    with Wide():
        config = rotary(kind, D, base, max_len=max_len, **names)
        return ROPE_INIT_FUNCTIONS[kind](config, seq_len=seq_len)


def yarn(s, L, **names):
    return "yarn", YaRNScaling(s, L, **names), {"original_max_position_embeddings": L, **names}


def llama3(s, L, low, high):
    names = {"low_freq_factor": low, "high_freq_factor": high}
    return (
        "llama3",
        Llama3Scaling(s, low, high, L),
        {"original_max_position_embeddings": L, **names},
    )


SCALED = [("linear", LinearScaling(s), {}) for s in (1, 7.3)]
SCALED += [yarn(s, L) for s in (1, 7.3) for L in (67, 8191)]
SCALED += [
    yarn(5.0, 2053, beta_fast=fast, beta_slow=slow, truncate=truncate, attention_factor=factor)
    for fast, slow in ((8.0, 0.5), (31.0, 2.0))
    for truncate, factor in ((True, None), (False, 1.0), (False, 0.7))
]
SCALED += [
    llama3(s, L, low, high)
    for s in (1, 7.3)
    for L in (67, 8191)
    for low, high in ((1.0, 4.0), (0.7, 11.0))
]


@pytest.mark.parametrize("D", [6, 122])
@pytest.mark.parametrize("base", [101.0, 500_000.0])
@pytest.mark.parametrize(("kind", "ours", "names"), SCALED)
def test_scalings_are_hugging_faces(kind, ours, names, D, base):
    assert_close(ours(D, base), scaled(kind, D, base, {"factor": ours.factor, **names}))


@pytest.mark.parametrize("D", [6, 122])
@pytest.mark.parametrize("factor", [1.0, 3.0])
@pytest.mark.parametrize("n", [101, 1009])
def test_ntk_is_hugging_faces_dynamic_scaling_at_each_length(D, factor, n):
    theirs = scaled("dynamic", D, 1e4, {"factor": factor}, seq_len=n, max_len=101)
    assert_close(NTKScaling(factor * n / 101 - (factor - 1))(D, 1e4), theirs)


def test_llama3s_defaults_are_those_of_llama_3_1():
    names = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    names["original_max_position_embeddings"] = 8192
    assert_close(Llama3Scaling()(128, 5e5), scaled("llama3", 128, 5e5, names))


def test_a_list_of_factors_and_two_scales_of_a_temperature_can_be_said_in_ours():
    factors = torch.rand(31).add(1).cumsum(0)
    names = {"factor": 5.0, "original_max_position_embeddings": 67}
    lists = {"short_factor": factors.tolist(), "long_factor": [1.0] * 31}
    sharper = math.sqrt(1 + math.log(5) / math.log(67))
    listed = rope_frequencies(62, 1e4) / factors, sharper
    assert_close(listed, scaled("longrope", 62, 1e4, names | lists))
    a = (0.07 * math.log(5) + 1) / (0.03 * math.log(5) + 1)
    theirs = scaled("yarn", 62, 1e4, names | {"mscale": 0.7, "mscale_all_dim": 0.3})
    assert_close(YaRNScaling(5.0, 67, attention_factor=a)(62, 1e4), theirs)


@pytest.mark.parametrize("kind", ["default", "linear", "yarn", "llama3"])
@pytest.mark.parametrize("D", [2, 14, 26])
@pytest.mark.parametrize("far", [31, 100_000])
def test_the_plug_turns_as_hugging_faces_llama_does(kind, D, far):
    theirs, scaling = {} if kind == "default" else {"factor": 5.0}, None
    if kind in ("yarn", "llama3"):
        theirs["original_max_position_embeddings"] = 67
    if kind == "llama3":
        theirs |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind != "default":
        length = {"original_len": 67} if kind != "linear" else {}
        scaling = make_scaling(kind, factor=5.0, **length)
    q, k, pos = torch.randn(2, 5, 7, D), torch.randn(2, 3, 7, D), torch.randint(far, (2, 7))
    with Wide():
        cos, sin = llama.LlamaRotaryEmbedding(rotary(kind, D, 1e4, **theirs))(q, pos)
        expected = llama.apply_rotary_pos_emb(q, k, cos, sin)
    rope = RoPE(D, 1e4, scaling=scaling)
    assert_close((rope.rotate(q, pos), rope.rotate(k, pos)), expected)
