"""Attention of published models, with their weights in our layers: outputs and gradients.

Their code computes norms, angles and softmax in float32; `Wide` makes float64 of it.
"""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers import DeepseekV3Config, Gemma2Config, LlamaConfig, Qwen3NextConfig
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.gemma2 import modeling_gemma2 as gemma
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen3_next import modeling_qwen3_next as qwen
from wide import Wide

from transformer_lit.attention.attend import attend
from transformer_lit.attention.latent import LatentAttention
from transformer_lit.attention.linear import (
    GatedDeltaNet,
    chunk_gated_delta_rule,
    recurrent_gated_delta_rule,
)
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.attention.steady import SoftCap
from transformer_lit.attention.windows import SinkLogit, Window, window_mask
from transformer_lit.position.rope import RoPE, interleaved_order
from transformer_lit.position.scaling import YaRNScaling

B, T, C = 2, 29, 18


def random(layer):
    for p in layer.parameters():
        nn.init.normal_(p, std=0.5)
    return layer


def hidden(T, window=None):
    "Their masks are added: 0 where a query may look, −∞ elsewhere."
    seen = window_mask(T, T, window or T)
    return torch.zeros(1, 1, T, T).masked_fill(~seen, -torch.inf)


def assert_same(ours, theirs, pairs):
    "Outputs, and the gradients of the input and of pairs of parameters."
    x, up, found = torch.randn(B, T, C), torch.randn(B, T, C), []
    for layer, own in zip((ours, theirs), zip(*pairs)):
        leaf = x.clone().requires_grad_()
        with Wide():
            out = layer(leaf)
        found.append((out, *torch.autograd.grad(out, [leaf, *own], up)))
    assert_close(*found)


# --- rotary heads, windows and caps -------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 3, 6])
def test_grouped_rotary_heads_are_llamas(K):
    D = 14
    rope = {"rope_type": "default", "rope_theta": 10_000.0}
    config = LlamaConfig(
        hidden_size=C,
        num_attention_heads=6,
        num_key_value_heads=K,
        head_dim=D,
        rope_parameters=rope,
        attn_implementation="eager",
    )
    layer = random(llama.LlamaAttention(config, 0))
    ours = MultiHeadAttention(C, 6, K, d_head=D, causal=True, position=RoPE(D))
    ours.load_state_dict(layer.state_dict())

    def theirs(x):
        places = llama.LlamaRotaryEmbedding(config)(x, torch.arange(T)[None])
        return layer(x, places, hidden(T))[0]

    assert_same(ours, theirs, zip(ours.parameters(), layer.parameters()))


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("cap", [0.5, 50.0])
def test_capped_heads_are_gemma_2s(window, cap):
    H, K, D = 6, 3, 4
    config = Gemma2Config(
        hidden_size=C,
        num_attention_heads=H,
        num_key_value_heads=K,
        head_dim=D,
        query_pre_attn_scalar=7,
        attn_logit_softcapping=cap,
        num_hidden_layers=2,
        layer_types=["full_attention", "sliding_attention"],
        sliding_window=window,
        attn_implementation="eager",
    )
    layer = random(gemma.Gemma2Attention(config, 0 if window is None else 1))
    plug = SoftCap(cap) if window is None else Window(window, attend=SoftCap(cap))
    options = {"d_head": D, "causal": True, "position": RoPE(D), "scale": 7**-0.5}
    ours = MultiHeadAttention(C, H, K, attend=plug, **options)
    ours.load_state_dict(layer.state_dict())

    def theirs(x):
        places = gemma.Gemma2RotaryEmbedding(config)(x, torch.arange(T)[None])
        return layer(x, places, hidden(T, window))[0]

    assert_same(ours, theirs, zip(ours.parameters(), layer.parameters()))
    ours.attend = attend if window is None else Window(window)
    with pytest.raises(AssertionError):  # without a cap it is another layer
        assert_same(ours, theirs, zip(ours.parameters(), layer.parameters()))


@pytest.mark.parametrize("size", [None, 5])
def test_a_sink_is_that_of_gpt_oss(size):
    H, K, D = 6, 2, 4
    q, k, v = (torch.randn(B, n, T, D) for n in (H, K, K))
    plug = random(SinkLogit(H))
    with Wide():
        theirs, _ = eager_attention_forward(
            SimpleNamespace(sinks=plug.logit, num_key_value_groups=H // K, training=False),
            *(q, k, v, hidden(T, size)),
            scaling=D**-0.5,
        )
    ours = Window(size, attend=plug) if size else plug
    assert_close(ours(q, k, v, causal=True), theirs.transpose(1, 2))


# --- DeepSeek's latents -------------------------------------------------------------------------

H, D, R, E, RANK, Q_RANK = 3, 5, 4, 7, 11, 17
YARN = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 64}
YARN |= {"mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1}
NAMES = {"q_a_proj": "q_proj.0", "q_a_layernorm": "q_proj.1", "q_b_proj": "q_proj.2"}
NAMES |= {"kv_a_proj_with_mqa": "kv_down_proj", "kv_a_layernorm": "kv_norm"}
NAMES |= {"kv_b_proj": "kv_up_proj", "q_proj": "q_proj", "o_proj": "o_proj"}


def latents(q_rank=Q_RANK, interleaved=True, rope=None, **options):
    "A layer of the reference with random weights, ours with the same, and pairs of parameters."
    config = DeepseekV3Config(
        hidden_size=C,
        num_attention_heads=H,
        num_key_value_heads=H,
        q_lora_rank=q_rank,
        kv_lora_rank=RANK,
        qk_nope_head_dim=D,
        qk_rope_head_dim=R,
        v_head_dim=E,
        max_position_embeddings=2560,
        rope_interleave=interleaved,
        rope_parameters={"rope_theta": 10_000.0, **(rope or {"rope_type": "default"})},
        attn_implementation="eager",
    )
    layer = random(deepseek.DeepseekV3Attention(config, 0))
    sizes = {"rank": RANK, "d_head": D, "d_rope": R, "d_value": E, "q_rank": q_rank}
    ours = LatentAttention(C, H, causal=True, **{"position": RoPE(R), **sizes, **options})
    state = dict(layer.state_dict())
    if interleaved:  # rows of the rotated parts, in the order of ours
        order = interleaved_order(R)
        name = "q_proj.weight" if q_rank is None else "q_b_proj.weight"
        heads = state[name].unflatten(0, (H, D + R))
        state[name] = torch.cat([heads[:, :D], heads[:, D:][:, order]], 1).flatten(0, 1)
        down = state["kv_a_proj_with_mqa.weight"]
        state["kv_a_proj_with_mqa.weight"] = torch.cat([down[:RANK], down[RANK:][order]])
    names = {name: f"{NAMES[name[:-7]]}.weight" for name in state}
    ours.load_state_dict({names[name]: w for name, w in state.items()})
    kept = [n for n in names if not interleaved or n in ("o_proj.weight", "kv_b_proj.weight")]
    pairs = [(ours.get_parameter(names[n]), layer.get_parameter(n)) for n in kept]

    def theirs(x):
        places = deepseek.DeepseekV3RotaryEmbedding(config)(x, torch.arange(T)[None])
        return layer(x, places, hidden(T))[0]

    return ours, theirs, pairs


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("q_rank", [None, Q_RANK])
@pytest.mark.parametrize("absorbs", [False, True])
def test_latents_are_deepseeks(interleaved, q_rank, absorbs):
    ours, theirs, pairs = latents(q_rank, interleaved)
    ours.absorbs = lambda T, S: absorbs
    assert_same(ours, theirs, pairs)


def test_yarn_s_factor_is_on_the_scale_and_not_on_the_angles():
    factor, length = YARN["factor"], YARN["original_max_position_embeddings"]
    m = YaRNScaling(factor, length)(R, 10_000.0)[1]
    rope = RoPE(R, scaling=YaRNScaling(factor, length, attention_factor=1.0))
    assert_same(*latents(rope=YARN, position=rope, scale=m**2 / (D + R) ** 0.5))


# --- Qwen3-Next's states ------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [None, 4, 7, 64])
def test_the_delta_rules_are_those_of_qwen3_next(chunk):
    q, k = nn.functional.normalize(torch.randn(2, B, H, T, D), dim=-1)
    v, state = torch.randn(B, H, T, E), torch.randn(B, H, D, E)
    g, beta = -torch.rand(B, H, T), torch.rand(B, H, T)
    sizes = {} if chunk is None else {"chunk_size": chunk}
    theirs = qwen.torch_chunk_gated_delta_rule if sizes else qwen.torch_recurrent_gated_delta_rule
    ours = chunk_gated_delta_rule if sizes else recurrent_gated_delta_rule
    by_time = (x.transpose(1, 2) for x in (q, k, v, g, beta))
    with Wide():
        expected, end = theirs(*by_time, initial_state=state, output_final_state=True, **sizes)
    out, ours_end = ours(q * D**-0.5, k, v, g, beta, state, **sizes)  # theirs divides by √D
    assert_close((out, ours_end), (expected.transpose(1, 2), end))


def test_the_layer_is_that_of_qwen3_next():
    H, K, D = 6, 3, 5
    config = Qwen3NextConfig(
        hidden_size=C,
        linear_num_key_heads=K,
        linear_num_value_heads=H,
        linear_key_head_dim=D,
        linear_value_head_dim=D,
    )
    theirs, ours = random(qwen.Qwen3NextGatedDeltaNet(config, 0)), GatedDeltaNet(C, H, K, d_head=D)
    G = H // K  # heads of values for one of keys
    blocks = theirs.in_proj_qkvz.weight.view(K, -1, C).split([D, D, G * D, G * D], 1)
    b, a = theirs.in_proj_ba.weight.view(K, 2 * G, C).split(G, 1)
    names = ("q_proj", "k_proj", "v_proj", "z_proj", "b_proj", "a_proj")
    weights = {f"{n}.weight": w.flatten(0, 1) for n, w in zip(names, (*blocks, b, a))}
    same = {"A_log": theirs.A_log, "dt_bias": theirs.dt_bias, "norm.weight": theirs.norm.weight}
    same["o_proj.weight"] = theirs.out_proj.weight
    ours.load_state_dict(weights | same | {"conv.weight": theirs.conv1d.weight[:, 0]})
    assert_same(ours, theirs, [(ours.get_parameter(name), p) for name, p in same.items()])
