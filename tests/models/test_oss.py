"""gpt-oss and OLMo: HF's logits, words and gradients, and each part is needed for that."""

import json
from dataclasses import replace

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
    rewrite,
    wide_model,
    without,
    zero,
)
from torch import nn
from wide import Wide

from transformer_lit.attention.attend import attend
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.multihead import Position
from transformer_lit.attention.steady import PerHead
from transformer_lit.attention.windows import SinkLogit, Window
from transformer_lit.block.residual import PostNorm, PreNorm
from transformer_lit.course.files import InputError
from transformer_lit.models.decoders import DECODERS
from transformer_lit.models.hf import all_made_from
from transformer_lit.models.hf_build import load_hf, save_hf
from transformer_lit.position.rope import RoPE
from transformer_lit.position.scaling import YaRNScaling

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # but for the tests of whole passes

V = 103
COMMON = {"vocab_size": V, "hidden_size": 84, "num_attention_heads": 6, "rms_norm_eps": 0.01}
COMMON |= {"max_position_embeddings": 71, "pad_token_id": None, "bos_token_id": 1}
COMMON |= {"eos_token_id": None, "num_key_value_heads": 3}
YARN = {"rope_type": "yarn", "rope_theta": 503.0, "factor": 4.0, "beta_fast": 5}
YARN |= {"original_max_position_embeddings": 31}
PLAIN = {"rope_type": "default", "rope_theta": 503.0}
FULL, NEAR = "full_attention", "sliding_attention"
OSS = {**COMMON, "num_hidden_layers": 3, "head_dim": 22, "intermediate_size": 13}
OSS |= {"num_local_experts": 5, "num_experts_per_tok": 2, "experts_implementation": "eager"}
OSS |= {"sliding_window": 7, "rope_parameters": {**YARN, "truncate": False}}
OLMO = {**COMMON, "intermediate_size": 43, "num_hidden_layers": 3}
OLMO3 = {**OLMO, "num_hidden_layers": 4, "sliding_window": 7}
OLMO3 |= {"rope_parameters": {FULL: YARN, NEAR: PLAIN}}

MODELS = {
    "gpt-oss": (hf.GptOssForCausalLM, hf.GptOssConfig, OSS),
    "gpt-oss clamped": (
        hf.GptOssForCausalLM,
        hf.GptOssConfig,
        {**OSS, "swiglu_limit": 1.5, "swiglu_alpha": 0.7, "num_experts_per_tok": 3},
    ),
    "gpt-oss turned": (
        hf.GptOssForCausalLM,
        hf.GptOssConfig,
        {**OSS, "layer_types": [FULL, NEAR, NEAR], "rope_parameters": YARN},
    ),
    "olmo 2": (hf.Olmo2ForCausalLM, hf.Olmo2Config, {**OLMO, "rope_parameters": PLAIN}),
    "olmo 3": (hf.Olmo3ForCausalLM, hf.Olmo3Config, OLMO3),
    "olmo 3 all heads": (
        hf.Olmo3ForCausalLM,
        hf.Olmo3Config,
        {**OLMO3, "num_key_value_heads": 6, "layer_types": [FULL, NEAR, FULL, NEAR]},
    ),
}
WRITING = ["gpt-oss", "olmo 2", "olmo 3"]  # one of each architecture


def theirs(name):
    kind, config, sizes = MODELS[name]
    return wide_model(kind, config(**sizes))


def folder_of(name, tmp_path):
    return folder_with(theirs, name, tmp_path)


# --- the same numbers ---------------------------------------------------------------------------


@pytest.mark.usefixtures("shape_checks")
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_hf(name, tmp_path):
    folder, model = folder_of(name, tmp_path)
    ids = torch.randint(V, (3, 67))
    torch.testing.assert_close(load_hf(folder).double()(ids), logits(model, ids))


def in_our_order(name, gradients):
    "HF's gradients under our names, cut as the folder's tensors are."
    ours = load_hf(gradients["folder"]).double()
    names, found = DECODERS[MODELS[name][0].__name__].names, {}
    for own, _ in ours.named_parameters():
        (made,) = all_made_from(own, names)
        (there,) = (gradients["all"][n] for n in made.names)
        found[own] = there if made.make is None else made.make(there)
    return ours, found


@pytest.mark.parametrize("name", MODELS)
def test_all_gradients_are_those_of_hf(name, tmp_path):
    folder, model = folder_of(name, tmp_path)
    ids = torch.randint(V, (2, 19))
    with Wide():
        F.cross_entropy(model(ids).logits.mT, ids).backward()
    grads = {n: p.grad for n, p in model.named_parameters()}
    ours, expected = in_our_order(name, {"folder": folder, "all": grads})
    F.cross_entropy(ours(ids).mT, ids).backward()
    assert len(expected) > len(grads) if "oss" in name else len(expected) == len(grads)
    for own, parameter in ours.named_parameters():
        grad = parameter.grad  # None in an expert that no token chose
        grad = torch.zeros_like(parameter) if grad is None and ".experts." in own else grad
        torch.testing.assert_close(grad, expected[own], msg=lambda text, own=own: f"{own}: {text}")


@pytest.mark.parametrize("name", MODELS)
def test_random_cuts_of_a_prompt_give_the_references_logits(name, tmp_path):
    hold_cuts(*folder_of(name, tmp_path))


@pytest.mark.machinery
@pytest.mark.parametrize("name", WRITING)
def test_greedy_continuations_are_those_of_hf(name, tmp_path):
    hold_greedy(*folder_of(name, tmp_path))


@pytest.mark.parametrize("name", WRITING)
def test_rows_of_unequal_length_are_padded_on_the_left(name, tmp_path):
    model = load_hf(folder_of(name, tmp_path)[0]).double()
    hold_left_padding(model, V)


# --- each part matters --------------------------------------------------------------------------


def of_layers(change, *, windows=None):
    "A change of all layers, or of those with a window, or of those without."

    def changed(model):
        found = [x for x in model.layers if windows in (None, has_window(x.attn))]
        assert found
        for layer in found:
            change(layer)

    return changed


def has_window(attn):
    seen = attn.attend
    return isinstance(seen.attend if isinstance(seen, SinkLogit) else seen, Window)


def of_experts(change):
    return of_layers(lambda layer: [change(x) for x in layer.ffn.experts])


def position(make):
    return lambda layer: setattr(layer.attn, "position", make(layer.attn))


def tiled(q, k, v, **rest):
    "Query head h reads key head h % K."
    times = q.shape[1] // k.shape[1]
    return attend(q, k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1), **rest)


def halves(expert):
    "As if gate and up lay side by side, and did not take turns."
    for name in ("weight", "bias"):
        gate, up = (getattr(getattr(expert, f"{x}_proj"), name) for x in ("gate", "up"))
        turns = torch.stack([gate, up], 1).flatten(0, 1)  # 2F …, as in the folder
        gate.data, up.data = turns.detach().chunk(2)


def without_sink(layer):
    attend = layer.attn.attend.attend
    del layer.attn.attend  # a module, in whose place torch takes no function
    layer.attn.attend = replace(attend, first=0) if isinstance(attend, Window) else attend


def without_norm_of(name):
    return of_layers(lambda layer: getattr(layer.attn, name).__setitem__(1, nn.Identity()))


def for_each_head(layer):
    attn = layer.attn
    for proj in (attn.q_proj, attn.k_proj):
        proj[1].weight.data.fill_(1.0)
        proj[1] = PerHead(type(proj[1])(attn.d_head, eps=0.01).double(), attn.d_head)


def before(layer):
    for name in ("attn_residual", "ffn_residual"):
        setattr(layer, name, PreNorm(getattr(layer, name).norm_out))


def around(layer):
    for name in ("attn_residual", "ffn_residual"):
        setattr(layer, name, PostNorm(getattr(layer, name).norm_out))


def round_ends(attn):
    "YaRN's ramp with its ends at whole planes."
    scaling = replace(attn.position.scaling, truncate=True)
    return RoPE(attn.d_head, 503.0, scaling=scaling)


DECODER = {
    "scale": of_layers(lambda layer: setattr(layer.attn, "scale", 1.0)),
    "causal": of_layers(lambda layer: setattr(layer.attn, "causal", False)),
    "position": of_layers(position(lambda attn: Position())),
    "base": of_layers(position(lambda attn: RoPE(attn.d_head, scaling=attn.position.scaling))),
    "last norm": without("final_norm"),
    "eps": eps,
}
OSS_PARTS = {
    **DECODER,
    "sinks": of_layers(without_sink),
    "value of the sinks": zero("attend.logit"),
    "window": of_layers(lambda x: setattr(x.attn.attend, "attend", attend_fused), windows=True),
    "full layers": of_layers(
        lambda x: setattr(x.attn.attend, "attend", Window(7, 1)), windows=False
    ),
    "sink in the window": of_layers(
        lambda x: setattr(x.attn.attend, "attend", Window(7)), windows=True
    ),
    "groups": of_layers(lambda x: setattr(x.attn.attend, "attend", tiled), windows=False),
    **{f"offset of {x}": zero(f"{x}_proj.bias") for x in ("q", "k", "v", "o")},
    **{f"offset of {x} in experts": zero(f"{x}_proj.bias") for x in ("gate", "up", "down")},
    "offset of the router": zero("router.linear.bias"),
    "router": zero("router.linear.weight"),
    "a choice": of_layers(lambda x: setattr(x.ffn.router, "k", 1)),
    "division": of_layers(lambda x: setattr(x.ffn.router, "renormalise", False)),
    "order of experts": of_layers(lambda x: setattr(x.ffn, "experts", x.ffn.experts[::-1])),
    "turns of the columns": of_experts(halves),
    "alpha": of_experts(lambda x: setattr(x, "alpha", 1.0)),
    "rope scaling": of_layers(position(lambda attn: RoPE(attn.d_head, 503.0))),
    "ends of the ramp": of_layers(position(round_ends)),
    "norm of attention": without("attn_residual.norm"),
    "norm of feed-forward": without("ffn_residual.norm"),
}
OLMO_PARTS = {
    **DECODER,
    "groups": of_layers(lambda x: setattr(x.attn, "attend", tiled)),
    "norm behind attention": without("attn_residual.norm_out"),
    "norm behind feed-forward": without("ffn_residual.norm_out"),
    "norm behind and not before": of_layers(before),
    "norm inside of the sum": of_layers(around),
    "norm of q": without_norm_of("q_proj"),
    "norm of k": without_norm_of("k_proj"),
    "norm of all heads": of_layers(for_each_head),
    "gate": of_layers(lambda x: setattr(x.ffn, "activation", torch.ones_like)),
}
NEAR_PARTS = {
    "window": of_layers(lambda x: setattr(x.attn, "attend", attend_fused), windows=True),
    "full layers": of_layers(lambda x: setattr(x.attn, "attend", Window(7)), windows=False),
    "rope scaling": of_layers(position(lambda a: RoPE(a.d_head, 503.0)), windows=False),
    "no scaling in windows": of_layers(
        position(lambda a: RoPE(a.d_head, 503.0, scaling=YaRNScaling(4.0, 31, 5))), windows=True
    ),
}
PARTS = {
    "gpt-oss": OSS_PARTS,
    "gpt-oss clamped": {  # 7 is seldom reached by numbers like these
        "limit": of_experts(lambda x: setattr(x, "limit", 7.0)),
        **{x: OSS_PARTS[x] for x in ("alpha", "a choice")},
    },
    "gpt-oss turned": {x: OSS_PARTS[x] for x in ("window", "full layers", "rope scaling")},
    "olmo 2": OLMO_PARTS,
    "olmo 3": {**OLMO_PARTS, **NEAR_PARTS},
    "olmo 3 all heads": NEAR_PARTS,
}


@pytest.mark.parametrize(("name", "part"), [(n, p) for n, parts in PARTS.items() for p in parts])
def test_without_a_part_the_logits_are_others(name, part, tmp_path_factory):
    gap = gap_without(PARTS[name][part], name, folder_of, tmp_path_factory)
    assert gap > 1e-4  # a thousand times what parity leaves


# --- by hand, and where the reference errs ------------------------------------------------------


def test_the_sinks_are_parameters_and_alone_in_having_no_value(tmp_path):
    "A layer's attention by loops over what each query sees."
    folder, model = folder_of("gpt-oss", tmp_path)
    attn = load_hf(folder).double().layers[0].attn
    assert "attend.logit" in dict(attn.named_parameters())
    q, k, v = torch.randn(1, 6, 11, 22), torch.randn(1, 3, 11, 22), torch.randn(1, 3, 11, 22)
    sinks, out = model.model.layers[0].self_attn.sinks, attn.attend(q, k, v, causal=True)
    for h in range(6):
        for t in range(11):
            seen = range(max(0, t - 6), t + 1)
            e = [(q[0, h, t] @ k[0, h // 2, s] / 22**0.5).exp() for s in seen]
            mean = sum(x * v[0, h // 2, s] for x, s in zip(e, seen)) / (sum(e) + sinks[h].exp())
            torch.testing.assert_close(out[0, h, t], mean)


def olmo_angles(folder):
    layers = load_hf(folder).layers
    return {kind: layers[i].attn.position.frequencies for kind, i in ((NEAR, 0), (FULL, 3))}


def test_version_4_says_one_base_for_both_kinds_of_layers(tmp_path):
    "transformers 5.23 gives OLMo 3's windows 500,000 there, whatever the folder says."
    folder, model = folder_of("olmo 3", tmp_path)
    told = {name: x for name, x in YARN.items() if name != "rope_theta"}
    reconfigure(folder, rope_parameters=..., rope_theta=503.0, rope_scaling=told)
    ids = torch.randint(V, (2, 37))
    torch.testing.assert_close(load_hf(folder).double()(ids), logits(model, ids))
    torch.testing.assert_close(olmo_angles(folder)[NEAR], 503.0 ** (-torch.arange(7) / 7))
    theirs = hf.AutoConfig.from_pretrained(folder).rope_parameters
    assert theirs[FULL]["rope_theta"] == 503.0
    assert theirs[NEAR]["rope_theta"] == 500_000.0  # mended? then say so on the page


def test_ends_of_the_ramp_between_planes_are_read_for_olmo(tmp_path):
    "transformers 5.23 reads `truncate` beside the kinds of layers, where it never stands."
    folder, _ = folder_of("olmo 3", tmp_path)
    cut = {**YARN, "truncate": False}
    reconfigure(folder, rope_parameters={FULL: cut, NEAR: PLAIN})
    plane = [7 * torch.log(torch.tensor(31 / (2 * torch.pi * n))) for n in (5, 1)]
    first, last = (float(x / torch.log(torch.tensor(503.0))) for x in plane)
    first, frequencies = max(first, 0), 503.0 ** (-torch.arange(7) / 7)
    ramp = ((torch.arange(7) - first) / (last - first)).clamp(0, 1)
    expected = frequencies * (1 - ramp) + frequencies / 4 * ramp
    torch.testing.assert_close(olmo_angles(folder)[FULL], expected)
    theirs = hf.Olmo3Model(hf.AutoConfig.from_pretrained(folder)).rotary_emb.full_attention_inv_freq
    assert (theirs.double() - expected).abs().max() > 0.01  # mended? then say so on the page


# --- other spellings, and what is refused -------------------------------------------------------


def test_gpt_oss_as_version_4_wrote_it(tmp_path):
    folder, model = folder_of("gpt-oss", tmp_path)
    told = {name: x for name, x in OSS["rope_parameters"].items() if name != "rope_theta"}
    reconfigure(folder, rope_parameters=..., rope_theta=503.0, rope_scaling=told)
    reconfigure(folder, swiglu_alpha=..., layer_types=..., initial_context_length=31)
    ids = torch.randint(V, (2, 37))
    torch.testing.assert_close(load_hf(folder).double()(ids), logits(model, ids))


@pytest.mark.parametrize("name", ["gpt-oss", "olmo 3"])
def test_what_no_folder_says_is_what_the_reference_takes(name, tmp_path):
    folder, _ = folder_of(name, tmp_path)
    said = json.loads((folder / "config.json").read_text())["rope_parameters"]
    for table in (said, *(x for x in said.values() if isinstance(x, dict))):
        table.pop("rope_theta", None)
    reconfigure(folder, rope_parameters=said, layer_types=...)
    written = type(folder_of(name, tmp_path / "more")[1]).from_pretrained(folder).double()
    with Wide():
        again = type(written)(written.config).eval()
    again.load_state_dict(written.state_dict())
    again.set_experts_implementation("eager") if name == "gpt-oss" else None
    ids = torch.randint(V, (2, 37))
    torch.testing.assert_close(load_hf(folder).double()(ids), logits(again, ids))


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("gpt-oss", {"attention_bias": False}, "attention_bias to False"),
        ("gpt-oss", {"hidden_act": "gelu"}, "hidden_act to 'gelu'"),
        ("gpt-oss", {"layer_types": ["chunked_attention"] * 3}, "chunked_attention"),
        ("gpt-oss", {"layer_types": [FULL] * 2}, "for 3 layers"),
        ("gpt-oss", {"num_local_experts": 7}, r"router.weight \(5, 84\); a \(7, 84\)"),
        ("gpt-oss", {"num_local_experts": 3}, r"router.weight \(5, 84\); a \(3, 84\)"),
        ("gpt-oss", {"num_local_experts": ...}, "does not say num_local_experts"),
        ("gpt-oss", {"sliding_window": 0}, "at least 1 position"),
        ("gpt-oss", {"quantization_config": {"quant_method": "mxfp4"}}, "quantised"),
        ("olmo 2", {"attention_bias": True}, "attention_bias to True"),
        ("olmo 3", {"attention_bias": True}, "attention_bias to True"),
        ("olmo 3", {"layer_types": ["linear_attention"] * 4}, "linear_attention"),
        ("olmo 3", {"rope_parameters": {FULL: YARN}}, "does not say sliding_attention"),
        ("olmo 3", {"rope_parameters": PLAIN}, "does not say sliding_attention"),
        ("olmo 3", {"num_hidden_layers": 5}, "to 5; tensors are of 4"),
    ],
    ids=lambda x: "",
)
def test_a_setting_that_is_not_built_is_refused(name, settings, words, tmp_path):
    folder, _ = folder_of(name, tmp_path)
    reconfigure(folder, **settings)
    assert_refused(load_hf, folder, words)


def test_experts_in_four_bits_are_refused_even_where_the_settings_are_silent(tmp_path):
    folder, _ = folder_of("gpt-oss", tmp_path)

    def quantised(tensors):
        for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
            del tensors[name]
            tensors[f"{name}_blocks"] = torch.zeros(5, 11, 3, 16, dtype=torch.uint8)
            tensors[f"{name}_scales"] = torch.zeros(5, 11, 3, dtype=torch.uint8)
        return tensors

    rewrite(folder, quantised)
    assert_refused(load_hf, folder, "lacks .*mlp.experts.*_proj")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[:, :, :-1].contiguous(), r"gate_up_proj \(5, 84, 25\); a \(13, 84\)"),
        (lambda x: x[:4].clone(), r"gate_up_proj \(4, 84, 26\); a \(13, 84\)"),
        (lambda x: x.mT.contiguous(), r"gate_up_proj \(5, 26, 84\); a \(13, 84\)"),
    ],
)
def test_experts_of_a_wrong_shape_are_named(change, words, tmp_path):
    folder, _ = folder_of("gpt-oss", tmp_path)
    name = "model.layers.1.mlp.experts.gate_up_proj"
    rewrite(folder, lambda tensors: tensors | {name: change(tensors[name])})
    assert_refused(load_hf, folder, words)


def test_all_families_of_this_file_are_tested():
    built = {kind.__name__ for kind, _, _ in MODELS.values()}
    assert built == {name for name in DECODERS if name.startswith(("GptOss", "Olmo"))}


@pytest.mark.parametrize("name", WRITING)
def test_it_goes_out_and_comes_back(name, tmp_path):
    hold_return(*folder_of(name, tmp_path), tmp_path)


def test_it_is_not_written_as_a_mixtral(tmp_path):
    model = load_hf(folder_of("gpt-oss", tmp_path)[0])
    del model.settings
    with pytest.raises(InputError, match=r"a MixtralForCausalLM: layers\.0\..* is SinkLogit"):
        save_hf(model, tmp_path / "out")
