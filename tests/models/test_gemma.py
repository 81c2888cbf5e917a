"""Gemma 2 and 3: HF's logits, gradients and words, each part needed; a soft cap by loops."""

import json
import math

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from checkpoints import (
    assert_refused,
    eps,
    folder_with,
    gap_without,
    hold_cuts,
    hold_greedy,
    hold_left_padding,
    hold_return,
    logits,
    reconfigure,
    wide_model,
    without,
)
from random_cuts import cuts
from torch import nn
from transformers.models.gemma3.modeling_gemma3 import Gemma3TextScaledWordEmbedding
from wide import Wide

from transformer_lit.attention.attend import attend
from transformer_lit.attention.cache import KVCache
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.multihead import MultiHeadAttention, Position
from transformer_lit.attention.steady import SoftCap
from transformer_lit.attention.windows import Window, WindowCache
from transformer_lit.block.norm import RMSNorm
from transformer_lit.course.files import InputError
from transformer_lit.models.decoders import DECODERS
from transformer_lit.models.hf import all_made_from
from transformer_lit.models.hf_build import load_hf, save_hf, shared_names
from transformer_lit.models.llama import Llama
from transformer_lit.models.quantise import quantised
from transformer_lit.position.rope import RoPE
from transformer_lit.position.scaling import LinearScaling

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # but for the tests of whole passes

V = 103
SIZES = {"vocab_size": V, "hidden_size": 84, "num_hidden_layers": 3, "num_attention_heads": 6}
SIZES |= {"num_key_value_heads": 3, "head_dim": 22, "intermediate_size": 43, "rms_norm_eps": 0.01}
SIZES |= {"max_position_embeddings": 71, "query_pre_attn_scalar": 37, "sliding_window": 7}
SIZES |= {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": None}
CAPS = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
NO_CAPS = dict.fromkeys(CAPS)
NEAR, FAR = "sliding_attention", "full_attention"


def ropes(**far):
    default = {"rope_type": "default"}
    far = {**default, "rope_theta": 5003.0, **far}
    return {"rope_parameters": {NEAR: {**default, "rope_theta": 103.0}, FAR: far}}


ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 503.0}}
LINEAR = ropes(rope_type="linear", factor=8.0)
TWO, THREE = hf.Gemma2Config, hf.Gemma3TextConfig
MODELS = {
    "gemma 2": (TWO, {**SIZES, **ROPE, **CAPS}),
    "gemma 2 plain": (TWO, {**SIZES, **ROPE, **NO_CAPS, "layer_types": [FAR, NEAR, FAR]}),
    "gemma 2 untied": (TWO, {**SIZES, **ROPE, **CAPS, "tie_word_embeddings": False}),
    "gemma 3": (THREE, {**SIZES, **ropes(), "num_hidden_layers": 6}),
    "gemma 3 linear": (THREE, {**SIZES, **LINEAR, "layer_types": [NEAR, FAR, NEAR]}),
    "gemma 3 capped": (THREE, {**SIZES, **ropes(), "final_logit_softcapping": 3.0}),
}
CLASSES = {TWO: hf.Gemma2ForCausalLM, THREE: hf.Gemma3ForCausalLM}


def theirs(name):
    kind, sizes = MODELS[name]
    return wide_model(CLASSES[kind], kind(**sizes))


def folder_of(name, tmp_path):
    return folder_with(theirs, name, tmp_path)


# --- the same numbers ---------------------------------------------------------------------------


@pytest.mark.usefixtures("shape_checks")
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_hf(name, tmp_path):
    folder, model = folder_of(name, tmp_path)
    ours, ids = load_hf(folder).double(), torch.randint(V, (3, 67))
    assert type(ours) is Llama and not ours.training
    torch.testing.assert_close(ours(ids), logits(model, ids))


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_hf(name, tmp_path):
    "Of every weight: a gain 1 + w has the gradient of w."
    folder, model = folder_of(name, tmp_path)
    ours, ids = load_hf(folder).double(), torch.randint(V, (2, 19))
    F.cross_entropy(ours(ids).mT, ids).backward()
    with Wide():
        F.cross_entropy(model(ids).logits.mT, ids).backward()
    there = dict(model.named_parameters())
    for its in shared_names(ours):
        made = [m for n in its for m in all_made_from(n, DECODERS[type(model).__name__].names)]
        (theirs,) = {name for one in made for name in one.names} & {*there}
        torch.testing.assert_close(ours.get_parameter(its[0]).grad, there.pop(theirs).grad)
    assert not there


@pytest.mark.parametrize("name", ["gemma 2", "gemma 3", "gemma 3 linear"])
def test_twenty_random_cuts_of_a_prompt_give_the_references_logits(name, tmp_path):
    hold_cuts(*folder_of(name, tmp_path))


@pytest.mark.machinery
@pytest.mark.parametrize("name", ["gemma 2", "gemma 3"])
def test_greedy_continuations_are_those_of_hf(name, tmp_path):
    hold_greedy(*folder_of(name, tmp_path))


@pytest.mark.parametrize("name", ["gemma 2", "gemma 3"])
def test_rows_of_unequal_length_are_padded_on_the_left(name, tmp_path):
    model = load_hf(folder_of(name, tmp_path)[0]).double()
    hold_left_padding(model, V)


def test_the_settings_of_version_4(tmp_path):
    "Bases by two names, layers by a number, a scaling that is for the far ones alone."
    for name, kind in (("gemma 2", "rope_type"), ("gemma 3", "type"), ("gemma 3 linear", "type")):
        folder, model = folder_of(name, tmp_path / name)
        said = json.loads((folder / "config.json").read_text())["rope_parameters"]
        far = dict(said.get(FAR, said))
        old = {"rope_theta": far.pop("rope_theta"), "rope_scaling": None}
        if NEAR in said:
            old["rope_local_base_freq"] = said[NEAR]["rope_theta"]
            old["sliding_window_pattern"] = 2 if name == "gemma 3 linear" else ...
        if "factor" in far:
            old["rope_scaling"] = {kind: far["rope_type"], "factor": far["factor"]}
        reconfigure(folder, rope_parameters=..., layer_types=..., tie_word_embeddings=..., **old)
        ids = torch.randint(V, (2, 67))
        torch.testing.assert_close(load_hf(folder).double()(ids), logits(model, ids))


def test_bases_that_are_not_said_are_gemma_3_s(tmp_path):
    folder, _ = folder_of("gemma 3", tmp_path)
    reconfigure(folder, rope_parameters=...)
    near, far = (load_hf(folder).layers[i].attn.position for i in (0, 5))
    assert (near.base, far.base) == (10_000, 1_000_000)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_token_vectors_are_the_reference_s_to_the_last_bit(dtype, tmp_path):
    "In 16 bits the scale is rounded before it multiplies."
    folder, model = folder_of("gemma 3", tmp_path)
    ids = torch.arange(V)[None]
    theirs = Gemma3TextScaledWordEmbedding(V, 84, 0, 84**0.5)
    theirs.weight = model.model.embed_tokens.weight
    with torch.no_grad():
        expected = theirs.to(dtype)(ids)
        assert torch.equal(load_hf(folder, dtype=dtype).tok_emb(ids), expected)


def test_gains_are_made_in_more_bits_than_they_are_kept_in(tmp_path):
    "1 + w in bfloat16 would lose most of a small w before it is float32."
    folder, model = folder_of("gemma 2", tmp_path)
    w = model.bfloat16().model.norm.weight
    model.save_pretrained(folder)
    assert torch.equal(load_hf(folder).final_norm.weight, 1 + w.float())
    assert not torch.equal(1 + w.float(), (1 + w).float())


def test_in_8_bits_the_table_stays_one(tmp_path):
    folder, _ = folder_of("gemma 2", tmp_path)
    whole, ids = load_hf(folder), torch.randint(V, (2, 19))
    expected = whole(ids)
    small = quantised(load_hf(folder))
    assert small.tok_emb[0].q is small.lm_head[0].q
    assert (small(ids) - expected).abs().max() < 0.2 * expected.abs().max()


# --- each part matters --------------------------------------------------------------------------


def of_attention(change):
    return lambda model: [change(layer.attn) for layer in model.layers]


def put(name, value):
    return of_attention(lambda attn: setattr(attn, name, value))


def tiled(q, k, v, **rest):
    "Query head h reads key head h % K."
    times = q.shape[1] // k.shape[1]
    return attend(q, k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1), **rest)


def gains_as_they_lie(norms):
    "w in place of 1 + w."

    def change(model):
        for name, part in model.named_modules():
            if isinstance(part, RMSNorm) and norms in name:
                part.weight.data -= 1

    return change


def uncapped(model):
    for attn in (layer.attn for layer in model.layers):
        near = isinstance(attn.attend, Window)
        attn.attend = Window(attn.attend.size) if near else attend_fused


def in_other_turn(model):
    plugs = [layer.attn.attend for layer in model.layers]
    for layer, plug in zip(model.layers, plugs[1:] + plugs[:1]):
        layer.attn.attend = plug


def everywhere(base, scaling=None):
    return put("position", RoPE(22, base, scaling=scaling))


COMMON = {
    "scale": put("scale", 22**-0.5),
    "scale of token vectors": lambda model: setattr(model, "tok_emb", model.tok_emb[0]),
    "position": put("position", Position()),
    "windows": of_attention(
        lambda x: setattr(x, "attend", getattr(x.attend, "attend", attend_fused))
    ),
    "turns": in_other_turn,
    "groups": put("attend", tiled),
    "gate": lambda model: [setattr(x.ffn, "activation", F.silu) for x in model.layers],
    "tanh": lambda model: [setattr(x.ffn, "activation", F.gelu) for x in model.layers],
    "last norm": without("final_norm"),
    "eps": eps,
    **{
        f"norm_{side} of {part}": without(f"{part}_residual.norm_{side}")
        for side in ("in", "out")
        for part in ("attn", "ffn")
    },
    **{f"1 + w of {x}": gains_as_they_lie(x) for x in ("norm_in", "norm_out", "final")},
}
CAPPED = {"cap of logits": lambda model: setattr(model, "lm_head", model.lm_head[0])}
HEADS = {
    **{
        f"norm of {x}": of_attention(
            lambda attn, x=x: getattr(attn, f"{x}_proj").__setitem__(1, nn.Identity())
        )
        for x in "qk"
    },
    **{f"1 + w of {x}": gains_as_they_lie(f"{x}_proj") for x in "qk"},
}
PARTS = {  # what a model adds to those above it
    "gemma 2": {**COMMON, **CAPPED, "cap of scores": uncapped, "base": everywhere(10_000.0)},
    "gemma 2 plain": {"turns": in_other_turn},
    "gemma 3": {**COMMON, **HEADS, "near": everywhere(103.0), "far": everywhere(5003.0)},
    "gemma 3 linear": {
        "near without scaling": everywhere(103.0, LinearScaling(8.0)),
        "far with scaling": lambda x: setattr(x.layers[1].attn, "position", RoPE(22, 5003.0)),
    },
    "gemma 3 capped": CAPPED,
}


@pytest.mark.parametrize(("name", "part"), [(n, p) for n, parts in PARTS.items() for p in parts])
def test_without_a_part_the_logits_are_others(name, part, tmp_path_factory):
    gap = gap_without(PARTS[name][part], name, folder_of, tmp_path_factory)
    assert gap > 1e-4  # a thousand times what parity leaves


# --- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("gemma 2", {"hidden_activation": "gelu"}, "hidden_activation to 'gelu'"),
        ("gemma 2", {"attention_bias": True}, "attention_bias"),
        ("gemma 2", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma 2", {"attn_logit_softcapping": ...}, "does not say attn_logit_softcapping"),
        ("gemma 2", {"final_logit_softcapping": ...}, "does not say final_logit_softcapping"),
        ("gemma 2", {"query_pre_attn_scalar": ...}, "does not say query_pre_attn_scalar"),
        ("gemma 2", {"sliding_window": ...}, "does not say sliding_window"),
        ("gemma 2", {"sliding_window": 0}, "at least 1 position, got 0"),
        ("gemma 2", {"layer_types": [NEAR] * 2}, "for 3 layers"),
        ("gemma 3", {"layer_types": ["chunked_attention"] * 6}, "chunked_attention"),
        ("gemma 3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping to 50.0"),
        ("gemma 3", ropes(rope_type="dynamic", factor=2.0), "unknown scaling 'dynamic'"),
        ("gemma 3", {"num_hidden_layers": 10**9}, "to 1000000000; tensors are of 6"),
        ("gemma 3", {"head_dim": 10}, r"q_proj.weight \(132, 84\)"),
    ],
    ids=lambda x: "",
)
def test_a_setting_that_is_not_built_is_refused(name, settings, words, tmp_path):
    folder, _ = folder_of(name, tmp_path)
    reconfigure(folder, **settings)
    assert_refused(load_hf, folder, words)


@pytest.mark.parametrize("name", ["gemma 2", "gemma 2 untied", "gemma 3 linear"])
def test_a_gemma_goes_out_and_comes_back(name, tmp_path):
    hold_return(*folder_of(name, tmp_path), tmp_path)


def test_a_gemma_that_no_folder_was_read_for_is_not_written_as_something_else(tmp_path):
    model = load_hf(folder_of("gemma 2", tmp_path)[0])
    del model.settings
    with pytest.raises(InputError, match="LlamaForCausalLM: tok_emb is Sequential"):
        save_hf(model, tmp_path / "out")


def test_all_of_them_are_tested():
    built = {name for name in DECODERS if name.startswith("Gemma")}
    assert {CLASSES[kind].__name__ for kind, _ in MODELS.values()} == built


# --- the soft cap -------------------------------------------------------------------------------

B, H, K, D, E, S = 2, 6, 2, 5, 7, 11


def by_loops(q, k, v, seen, cap, scale, bias):
    out = torch.zeros(B, H, q.shape[2], E)
    for b, h, t in torch.cartesian_prod(*map(torch.arange, out.shape[:3])).tolist():
        key, value = k[b, h // (H // K)], v[b, h // (H // K)]
        scores = (scale * key @ q[b, h, t] + bias[0, h, t]).tolist()
        pairs = zip(scores, seen[b, t].tolist())
        weights = [math.exp(cap * math.tanh(z / cap)) * s for z, s in pairs]
        out[b, h, t] = torch.tensor(weights) @ value / (sum(weights) or 1)
    return out


@pytest.mark.parametrize("T", [1, 3, S])
@pytest.mark.parametrize("size", [None, 1, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_a_cap_stands_behind_scale_and_bias_and_before_every_mask(T, size, causal):
    "With grouped heads; a row that sees nothing gives zeros."
    q, k, v = 4 * torch.randn(B, H, T, D), torch.randn(B, K, S, D), torch.randn(B, K, S, E)
    keep, bias = torch.rand(B, 1, 1, S) < 0.6, torch.randn(1, H, T, S)
    keep[1, ..., :9] = False
    t, s = torch.arange(S - T, S)[:, None], torch.arange(S)
    seen = keep[:, 0] & ((s <= t) | (not causal and size is None))  # B T S
    seen = seen if size is None else seen & (s > t - size)
    plug = SoftCap(1.7) if size is None else Window(size, attend=SoftCap(1.7))
    out = plug(q, k, v, mask=keep, bias=bias, causal=causal, scale=0.6)
    torch.testing.assert_close(out, by_loops(q, k, v, seen, 1.7, 0.6, bias))
    assert T == 1 or not causal or not out[1, :, 0].any()
    plain = SoftCap(1.7)(q, k, v)
    nothing = torch.zeros(1, H, T, S)
    everything = torch.ones(B, T, S)
    torch.testing.assert_close(plain, by_loops(q, k, v, everything, 1.7, D**-0.5, nothing))


def test_a_high_cap_is_none_and_the_gradients_are_those_of_numbers():
    q, k, v = torch.randn(B, H, 3, D), torch.randn(B, K, S, D), torch.randn(B, K, S, E)
    torch.testing.assert_close(SoftCap(1e6)(q, k, v, causal=True), attend(q, k, v, causal=True))
    inputs = [x[:1].requires_grad_() for x in (q, k, v)]
    assert torch.autograd.gradcheck(lambda *x: SoftCap(1.7)(*x, causal=True), inputs)


@pytest.mark.parametrize("plug", [SoftCap(1.7), Window(4, attend=SoftCap(1.7))])
def test_any_cut_of_a_text_gives_what_one_pass_gives(plug):
    layer = MultiHeadAttention(13, H, K, d_head=4, causal=True, position=RoPE(4), attend=plug)
    x = 5 * torch.randn(B, 29, 13)
    whole = layer(x)
    for cut in cuts(29, 20):
        for cache in (KVCache(29), *([WindowCache(4)] if isinstance(plug, Window) else [])):
            parts = [layer(piece, cache=cache) for piece in x.split(cut, dim=1)]
            torch.testing.assert_close(torch.cat(parts, 1), whole)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_16_bits_the_result_has_that_type(dtype):
    q, k, v = (torch.randn(B, n, 3, D, dtype=dtype) for n in (H, K, K))
    out = SoftCap(2.0)(q, k, v, causal=True)
    assert out.dtype == dtype
    exact = SoftCap(2.0)(q.double(), k.double(), v.double(), causal=True)
    # a score, its bias and a weight are rounded, each to ε of a few units
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=16 * torch.finfo(dtype).eps)
