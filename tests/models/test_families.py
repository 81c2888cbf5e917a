"""Checkpoints of every family give HF's logits and words, and each part is needed for that."""

import json
import shutil
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
from safetensors.torch import load_file
from torch import nn
from wide import Wide

from transformer_lit.attention.attend import attend
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.multihead import Position
from transformer_lit.attention.windows import Window
from transformer_lit.block.experts import Experts, SigmoidRouter, SoftmaxRouter
from transformer_lit.course.files import InputError
from transformer_lit.models.bert import Bert
from transformer_lit.models.decoders import Interleaved
from transformer_lit.models.gpt import GPT
from transformer_lit.models.hf import made_from
from transformer_lit.models.hf_build import FAMILIES, load_hf, save_hf
from transformer_lit.models.llama import Llama
from transformer_lit.position.rope import RoPE

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # but for the tests of whole passes

V = 103
COMMON = {"vocab_size": V, "hidden_size": 84, "num_hidden_layers": 3, "num_attention_heads": 6}
SIZES = {**COMMON, "intermediate_size": 43, "rms_norm_eps": 0.01, "max_position_embeddings": 71}
GROUPED = {**SIZES, "num_key_value_heads": 3, "head_dim": 22}
NO_END = {"bos_token_id": 1, "eos_token_id": None}


def rope(**settings):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 503.0, **settings}}


LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 31}
WINDOWS = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}
EXPERTS = {
    "num_experts_per_tok": 2,
    "experts_implementation": "eager",
}  # the fused one has no float64
QWEN3_MOE = {"num_experts": 7, "moe_intermediate_size": 13, "mlp_only_layers": [1]}
DEEPSEEK = {**SIZES, "num_key_value_heads": 6, **EXPERTS, "moe_intermediate_size": 13}
DEEPSEEK |= {"q_lora_rank": 17, "kv_lora_rank": 11, "qk_nope_head_dim": 5, "v_head_dim": 7}
DEEPSEEK |= {"qk_rope_head_dim": 10, "n_routed_experts": 7, "n_group": 1, "topk_group": 1}
DEEPSEEK |= {"n_shared_experts": 2, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5}
GROUPS_OF_EXPERTS = {"n_routed_experts": 15, "n_group": 5, "topk_group": 2, "norm_topk_prob": False}
MSCALES = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 31}
MSCALES |= {"beta_fast": 5, "mscale": 0.7, "mscale_all_dim": 0.3}
GPT2 = {"vocab_size": V, "n_embd": 84, "n_layer": 3, "n_head": 6, "n_positions": 71}
GPT2 |= {"layer_norm_epsilon": 0.01}

MODELS = {
    "llama 1": (hf.LlamaConfig, {**SIZES, **rope()}),
    "llama 2": (hf.LlamaConfig, {**GROUPED, "head_dim": 10, **rope()}),
    "llama 3": (hf.LlamaConfig, {**GROUPED, **rope(**LLAMA3), "tie_word_embeddings": True}),
    "llama linear": (
        hf.LlamaConfig,
        {**GROUPED, "num_key_value_heads": 1, **rope(rope_type="linear", factor=3.0)},
    ),
    "llama yarn": (
        hf.LlamaConfig,
        {
            **GROUPED,
            **rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=31, beta_fast=5),
        },
    ),
    "gpt2": (hf.GPT2Config, GPT2),
    "gpt2 untied": (hf.GPT2Config, {**GPT2, "n_inner": 29, "tie_word_embeddings": False}),
    "mistral": (hf.MistralConfig, {**GROUPED, **rope(), "sliding_window": 7}),
    "mistral without window": (hf.MistralConfig, {**GROUPED, **rope(), "sliding_window": None}),
    "qwen2": (hf.Qwen2Config, {**SIZES, "num_key_value_heads": 2, **rope()}),
    "qwen2 windows": (
        hf.Qwen2Config,
        {**SIZES, "num_key_value_heads": 2, **rope(), **WINDOWS, "tie_word_embeddings": True},
    ),
    "qwen3": (hf.Qwen3Config, {**GROUPED, "head_dim": 10, **rope()}),
    "qwen3 windows": (hf.Qwen3Config, {**GROUPED, **rope(), **WINDOWS}),
    "mixtral": (hf.MixtralConfig, {**GROUPED, **rope(), **EXPERTS, "num_local_experts": 5}),
    "mixtral windows": (
        hf.MixtralConfig,
        {**GROUPED, **rope(), **EXPERTS, "num_local_experts": 5, "sliding_window": 7},
    ),
    "qwen3 moe": (hf.Qwen3MoeConfig, {**GROUPED, **rope(), **EXPERTS, **QWEN3_MOE}),
    "qwen3 moe divided": (
        hf.Qwen3MoeConfig,
        {**GROUPED, **rope(), **EXPERTS, **QWEN3_MOE, "norm_topk_prob": True},
    ),
    "deepseek": (hf.DeepseekV3Config, {**DEEPSEEK, **rope()}),
    "deepseek groups": (
        hf.DeepseekV3Config,
        {**DEEPSEEK, **rope(), **GROUPS_OF_EXPERTS, "q_lora_rank": None, "rope_interleave": False},
    ),
    "deepseek yarn": (hf.DeepseekV3Config, {**DEEPSEEK, **rope(**MSCALES)}),
    "bert": (
        hf.BertConfig,
        {**COMMON, "intermediate_size": 43, "max_position_embeddings": 71, "layer_norm_eps": 0.01},
    ),
}
CLASSES = {hf.LlamaConfig: hf.LlamaForCausalLM, hf.GPT2Config: hf.GPT2LMHeadModel}
CLASSES |= {hf.MistralConfig: hf.MistralForCausalLM, hf.Qwen2Config: hf.Qwen2ForCausalLM}
CLASSES |= {hf.Qwen3Config: hf.Qwen3ForCausalLM, hf.BertConfig: hf.BertForMaskedLM}
CLASSES |= {hf.MixtralConfig: hf.MixtralForCausalLM, hf.Qwen3MoeConfig: hf.Qwen3MoeForCausalLM}
CLASSES |= {hf.DeepseekV3Config: hf.DeepseekV3ForCausalLM}


def theirs(name):
    kind, sizes = MODELS[name]
    model = wide_model(CLASSES[kind], kind(**sizes, **NO_END))
    for part, buffer in model.named_buffers():
        if part.endswith("e_score_correction_bias"):
            buffer.normal_(std=0.3).mul_(1024).round_().div_(1024)
    return model


WRITING = [
    "gpt2",
    "llama 3",
    "mistral",
    "qwen2 windows",
    "qwen3",
    "mixtral",
    "qwen3 moe",
    "deepseek",
]  # one of each architecture


def folder_of(name, tmp_path, **options):
    return folder_with(theirs, name, tmp_path, **options)


# --- the same numbers ---------------------------------------------------------------------------


@pytest.mark.usefixtures("shape_checks")
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_hf(name, tmp_path):
    folder, model = folder_of(name, tmp_path)
    ids = torch.randint(V, (3, 67))
    torch.testing.assert_close(load_hf(folder).double()(ids), logits(model, ids))


@pytest.mark.machinery
@pytest.mark.parametrize("name", WRITING)
def test_greedy_continuations_are_those_of_hf(name, tmp_path):
    hold_greedy(*folder_of(name, tmp_path))


@pytest.mark.usefixtures("shape_checks")
@pytest.mark.parametrize("name", WRITING)
def test_decoding_with_a_state_gives_the_logits_of_one_pass(name, tmp_path):
    model, ids = load_hf(folder_of(name, tmp_path)[0]).double(), torch.randint(V, (2, 11))
    for chunks in ((1,) * 11, (5, 1, 1, 4)):
        state = model.start(2, 11)
        steps = [model.step(part, state) for part in ids.split(chunks, 1)]
        torch.testing.assert_close(torch.cat(steps, 1), model(ids))
        assert state.length == 11


@pytest.mark.parametrize("name", ["gpt2", "llama 3", "mistral"])
def test_rows_of_unequal_length_are_padded_on_the_left(name, tmp_path):
    model = load_hf(folder_of(name, tmp_path)[0]).double()
    if name == "mistral":
        for layer in model.layers:
            layer.attn.attend = Window(3)
    hold_left_padding(model, V)


def test_bert_ignores_padding_as_hf_does(tmp_path):
    folder, model = folder_of("bert", tmp_path)
    ids, keep = torch.randint(V, (3, 13)), torch.arange(13) < torch.tensor([[13], [7], [1]])
    expected = logits(model, ids, attention_mask=keep.long())
    torch.testing.assert_close(load_hf(folder).double()(ids, keep)[keep], expected[keep])


# --- each part matters --------------------------------------------------------------------------


def of_attention(change):
    return lambda model: [change(layer.attn) for layer in model.layers]


def of_experts(change):
    return lambda model: [change(x.ffn) for x in model.layers if isinstance(x.ffn, Experts)]


def tiled(q, k, v, **rest):
    "Query head h reads key head h % K."
    times = q.shape[1] // k.shape[1]
    return attend(q, k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1), **rest)


DECODER = {
    "scale": of_attention(lambda attn: setattr(attn, "scale", 1.0)),
    "causal": of_attention(lambda attn: setattr(attn, "causal", False)),
    "norm of attention": without("attn_residual.norm"),
    "norm of feed-forward": without("ffn_residual.norm"),
    "last norm": without("final_norm"),
    "eps": eps,
}
ROTARY = {
    **DECODER,
    "position": of_attention(lambda attn: setattr(attn, "position", Position())),
    "base": of_attention(
        lambda attn: setattr(attn, "position", RoPE(attn.d_head, scaling=attn.position.scaling))
    ),
    "gate": lambda model: [
        setattr(part.ffn, "activation", torch.ones_like) for part in model.layers
    ],
}
SCALED = {
    "rope scaling": of_attention(lambda attn: setattr(attn, "position", RoPE(attn.d_head, 503.0)))
}
GROUPS = {"groups": of_attention(lambda attn: setattr(attn, "attend", tiled))}
WINDOW = {"window": of_attention(lambda attn: setattr(attn, "attend", attend_fused))}
HEAD_NORMS = {
    "norm of q": of_attention(lambda attn: attn.q_proj.__setitem__(1, nn.Identity())),
    "norm of k": of_attention(lambda attn: attn.k_proj.__setitem__(1, nn.Identity())),
}
OFFSETS = {f"offset of {x}": zero(f"{x}_proj.bias") for x in "qkv"}
FFN = {"gelu": lambda model: [setattr(part.ffn, "activation", F.relu) for part in model.layers]}
ROUTERS = {  # of three layers, the middle one of "qwen3 moe" is dense
    "a choice": of_experts(lambda x: setattr(x.router, "k", 1)),
    "division": of_experts(lambda x: setattr(x.router, "renormalise", not x.router.renormalise)),
    "router": zero("router.linear.weight"),
    "order of experts": of_experts(lambda x: setattr(x, "experts", x.experts[::-1])),
}
LATENT = {
    **DECODER,
    **ROUTERS,
    "position": of_attention(lambda attn: setattr(attn, "position", Position())),
    "base": of_attention(lambda attn: setattr(attn.position, "rope", RoPE(10))),
    "order of pairs": of_attention(lambda attn: setattr(attn, "position", attn.position.rope)),
    "norm of queries": of_attention(lambda attn: attn.q_proj.__setitem__(1, nn.Identity())),
    "norm of latents": without("kv_norm"),
    "bias of the choice": zero("router.bias"),
    "factor of the gates": of_experts(lambda x: setattr(x.router, "scale", 1.0)),
    "shared expert": of_experts(lambda x: setattr(x, "shared", None)),
}


def yarn_on_the_angles(model):
    for attn in (layer.attn for layer in model.layers):
        scaling = replace(attn.position.rope.scaling, attention_factor=1.0)
        attn.position = Interleaved(RoPE(10, 503.0, scaling=scaling))


MSCALED = {
    "rope scaling": of_attention(lambda attn: setattr(attn.position, "rope", RoPE(10, 503.0))),
    "factor on the scores": of_attention(lambda attn: setattr(attn, "scale", 15**-0.5)),
    "factor on the angles": yarn_on_the_angles,
}
GPTS = {**DECODER, **FFN, "position": zero("position.weight"), "offset of q": zero("q_proj.bias")}
GPTS |= {"tanh": lambda model: [setattr(x.ffn, "activation", F.gelu) for x in model.layers]}
PARTS = {  # what an architecture adds to those above it
    "llama 1": ROTARY,
    "llama 2": GROUPS,
    "llama 3": SCALED,
    "llama linear": SCALED,
    "llama yarn": SCALED,
    "gpt2": GPTS,
    "mistral": WINDOW,
    "qwen2": OFFSETS,
    "qwen2 windows": WINDOW,
    "qwen3": HEAD_NORMS,
    "qwen3 windows": WINDOW,
    "mixtral": ROUTERS,
    "mixtral windows": WINDOW,
    "qwen3 moe": {**ROUTERS, **HEAD_NORMS},
    "qwen3 moe divided": {"division": ROUTERS["division"]},
    "deepseek": LATENT,
    "deepseek groups": {
        "groups": of_experts(lambda x: setattr(x.router, "k_groups", 5)),
        "division": ROUTERS["division"],
        "order of pairs": of_attention(
            lambda attn: setattr(attn, "position", Interleaved(attn.position))
        ),
    },
    "deepseek yarn": MSCALED,
    "bert": {
        **FFN,
        "scale": DECODER["scale"],
        "norm of the sum": lambda model: setattr(model, "norm", nn.Identity()),
        "norm of attention": DECODER["norm of attention"],
        "norm of feed-forward": DECODER["norm of feed-forward"],
        "eps": eps,
        "position": zero("position.weight"),
        "offset of q": zero("q_proj.bias"),
        "offset of the output": zero("lm_head.bias"),
        "norm of the output": lambda model: model.transform.__setitem__(2, nn.Identity()),
    },
}


@pytest.mark.parametrize(("name", "part"), [(n, p) for n, parts in PARTS.items() for p in parts])
def test_without_a_part_the_logits_are_others(name, part, tmp_path_factory):
    gap = gap_without(PARTS[name][part], name, folder_of, tmp_path_factory)
    assert gap > 1e-4  # a thousand times what parity leaves


def test_berts_first_segment_is_in_its_positions(tmp_path):
    folder, model = folder_of("bert", tmp_path)
    table = model.bert.embeddings
    expected = table.position_embeddings.weight + table.token_type_embeddings.weight[0]
    torch.testing.assert_close(load_hf(folder).double().position.weight, expected)


# --- real folders -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama 3", "gpt2", "qwen3", "bert"])
def test_a_sharded_folder_is_the_same_model(name, tmp_path):
    folder, model = folder_of(name, tmp_path, max_shard_size="50KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    ids = torch.randint(V, (2, 19))
    torch.testing.assert_close(load_hf(folder).double()(ids), logits(model, ids))


@pytest.mark.parametrize("kept", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_it_is_of_the_type_that_was_asked_for_however_it_was_stored(dtype, kept, tmp_path):
    folder, _ = folder_of("llama 3", tmp_path)
    rewrite(folder, lambda tensors: {name: x.to(dtype) for name, x in tensors.items()})
    model = load_hf(folder) if kept == torch.float32 else load_hf(folder, dtype=kept)
    assert {p.dtype for p in model.parameters()} == {kept} and not model.training
    expected = load_file(folder / "model.safetensors")["model.layers.1.mlp.up_proj.weight"]
    assert torch.equal(model.layers[1].ffn.up_proj.weight, expected.to(kept))
    assert model.lm_head.weight is model.tok_emb.weight
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    assert not [p for p in (*model.parameters(), *model.buffers()) if p.is_meta]
    assert model(torch.randint(V, (2, 7))).dtype == kept


def test_each_family_gives_its_class(tmp_path):
    classes = {"gpt2": GPT, "bert": Bert, "llama 1": Llama, "mistral": Llama, "qwen3": Llama}
    for name, kind in classes.items():
        assert type(load_hf(folder_of(name, tmp_path / name)[0])) is kind


def as_found(name, tensors, *, prefix, head):
    "The tensors of a folder under old names, and beside them what is no weight of ours."
    start, tied = {"gpt2": ("transformer.", "wte"), "bert": ("bert.", "word_embeddings")}[name]
    table = next(x for n, x in tensors.items() if n.endswith(f"{tied}.weight"))
    if name == "gpt2":
        tensors |= {f"{start}h.{i}.attn.bias": torch.ones(1, 1, 71, 71).tril() for i in range(3)}
        tensors |= {f"{start}h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(3)}
        tensors |= {"lm_head.weight": table.clone()} if head else {}
    else:
        tensors[f"{start}embeddings.position_ids"] = torch.arange(71)[None]
        tensors |= {f"{start}pooler.dense.{x}": torch.ones(5) for x in ("weight", "bias")}
        tensors |= {f"cls.seq_relationship.{x}": torch.ones(2) for x in ("weight", "bias")}
        tensors |= {"cls.predictions.decoder.weight": table.clone()} if head else {}
    found = {}
    for n, x in tensors.items():
        n = n.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        )
        found[n if prefix else n.removeprefix(start)] = x
    return found


@pytest.mark.parametrize("name", ["gpt2", "bert"])
@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("kept", [torch.float32, torch.bfloat16])
def test_a_folder_as_it_is_found(name, prefix, head, kept, tmp_path):
    "As Google, OpenAI and others wrote them; the reference library has the same rounded weights."
    folder, model = folder_of(name, tmp_path)

    def change(tensors):
        found = as_found(name, tensors, prefix=prefix, head=head)
        return {n: x.to(kept) if x.is_floating_point() else x for n, x in found.items()}

    rewrite(folder, change)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(kept).double()
    ids, ours = torch.randint(V, (2, 19)), load_hf(folder).double()
    torch.testing.assert_close(ours(ids), logits(model, ids))
    assert ours.lm_head.weight is ours.tok_emb.weight


def test_llama_with_the_tables_of_old_versions(tmp_path):
    folder, model = folder_of("llama 1", tmp_path)
    table = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(11) for i in range(3)}
    rewrite(folder, lambda tensors: tensors | table)
    reconfigure(folder, head_dim=..., num_key_value_heads=...)
    ids = torch.randint(V, (2, 19))
    torch.testing.assert_close(load_hf(folder).double()(ids), logits(model, ids))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llama 1", "type"),
        ("llama 3", "rope_type"),
        ("llama yarn", "type"),
        ("deepseek yarn", "type"),
    ],
)
def test_the_rope_settings_of_version_4(name, kind, tmp_path):
    folder, model = folder_of(name, tmp_path)
    said = json.loads((folder / "config.json").read_text())["rope_parameters"]
    said = dict(said)
    base, told = said.pop("rope_theta"), said.pop("rope_type")
    scaling = None if told == "default" else {kind: told, **said}
    reconfigure(folder, rope_parameters=..., rope_theta=base, rope_scaling=scaling)
    ids = torch.randint(V, (2, 67))
    torch.testing.assert_close(load_hf(folder).double()(ids), logits(model, ids))


def test_scaling_counts_from_the_length_of_training(tmp_path):
    "Where original_max_position_embeddings is not said, it is max_position_embeddings."
    folder, _ = folder_of("llama yarn", tmp_path)
    said = json.loads((folder / "config.json").read_text())["rope_parameters"]
    del said["original_max_position_embeddings"]
    reconfigure(folder, rope_parameters=said)
    assert load_hf(folder).layers[0].attn.position.scaling.original_len == 71


# --- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["MambaForCausalLM", None])
def test_an_unknown_architecture_is_named(name, tmp_path):
    folder, _ = folder_of("llama 1", tmp_path)
    reconfigure(folder, architectures=[name] if name else None)
    assert_refused(load_hf, folder, f"{name}.* not built; built are: .*GPT2LMHeadModel")


def test_a_tensor_missing_or_too_many_or_of_a_wrong_shape_is_named(tmp_path):
    folder, _ = folder_of("gpt2", tmp_path)
    shutil.copytree(folder, tmp_path / "whole")
    for change, words in (
        (lambda x: {n: x[n] for n in x if "1.mlp.c_fc.bias" not in n}, "lacks h.1.mlp.c_fc.bias$"),
        (lambda x: x | {"transformer.h.3.ln_1.bias": torch.ones(84)}, "reads: h.3.ln_1.bias$"),
        (
            lambda x: x | {"transformer.h.0.attn.c_attn.weight": torch.ones(84, 251)},
            r"c_attn.weight \(84, 251\)",
        ),
        (lambda x: x | {"transformer.wpe.weight": torch.ones(73, 84)}, r"wpe.weight \(73, 84\)"),
        (lambda x: x | {"transformer.ln_f.bias": torch.ones(84).byte()}, "ln_f.bias.*uint8"),
        (lambda x: x | {"wte.weight": x["transformer.wte.weight"].clone()}, "wte.weight twice"),
        (
            lambda x: x | {"lm_head.weight": torch.ones(V, 84)},
            "lm_head.weight are tied, and differ",
        ),
    ):
        shutil.copy(tmp_path / "whole/model.safetensors", folder)
        rewrite(folder, change)
        assert_refused(load_hf, folder, words)


def test_a_folder_without_config_weights_or_with_a_pickle_is_refused(tmp_path):
    folder, _ = folder_of("llama 1", tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80")
    assert_refused(
        load_hf, folder, "neither model.safetensors nor .* a pickle, which could run code"
    )
    (folder / "config.json").unlink()
    assert_refused(load_hf, folder, r"config.json")
    assert_refused(load_hf, tmp_path / "nowhere", "nowhere")


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("llama 1", {"hidden_act": "gelu"}, "hidden_act to 'gelu'"),
        ("llama 1", {"attention_bias": True}, "attention_bias"),
        ("llama 1", {"hidden_size": ...}, "does not say hidden_size"),
        ("llama 1", {"quantization_config": {"bits": 4}}, "quantised"),
        ("llama 1", rope(rope_type="dynamic", factor=2.0), "unknown scaling 'dynamic'"),
        ("llama 1", rope(partial_rotary_factor=0.5), "0.5 of each head"),
        ("llama 1", rope(factor=2.0), "default"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx"),
        ("gpt2", {"activation_function": "relu"}, "'relu'"),
        ("bert", {"position_embedding_type": "relative_key"}, "relative_key"),
        ("qwen2", {**WINDOWS, "layer_types": ["linear_attention"] * 3}, "linear_attention"),
        ("qwen2", {**WINDOWS, "layer_types": ["sliding_attention"] * 2}, "for 3 layers"),
        ("qwen2", {**WINDOWS, "max_window_layers": 10**9, "sliding_window": 0}, None),  # no window
        ("mistral", {"sliding_window": 0}, "at least 1 position, got 0"),
        ("mistral", {"sliding_window": -3}, "at least 1 position, got -3"),
        ("qwen3 moe", {"use_sliding_window": True}, "use_sliding_window to True"),
        ("mixtral", {"num_local_experts": ...}, "does not say num_local_experts"),
        ("mixtral", {"num_local_experts": 7}, "lacks model.layers.0.block_sparse_moe.experts.5"),
        ("mixtral", {"num_local_experts": 3}, "reads: model.layers.0.block_sparse_moe.experts.3"),
        ("deepseek", {"scoring_func": "softmax"}, "scoring_func to 'softmax'"),
        ("deepseek", {"topk_method": "greedy"}, "topk_method to 'greedy'"),
        ("deepseek", {"n_group": ...}, "does not say n_group"),
        ("deepseek", {"n_group": 2}, "1 of 2 equal groups of 7 experts"),
        ("deepseek groups", {"num_experts_per_tok": 7}, "2 of 5 equal groups .* fewer than 7"),
        ("deepseek", {"num_hidden_layers": 4}, "to 4; tensors are of 3"),
        ("llama 1", {"num_hidden_layers": 10**9}, "to 1000000000; tensors are of 3"),
        ("gpt2", {"n_layer": 4}, "n_layer to 4; tensors are of 3"),
        ("llama 1", {"num_hidden_layers": 2}, "holds what nothing reads: model.layers.2"),
        ("llama 1", {"hidden_size": 2**62}, "folder: "),  # whatever torch says, in one line
    ],
    ids=lambda x: "",
)
def test_a_setting_that_is_not_built_is_refused(name, settings, words, tmp_path):
    folder, _ = folder_of(name, tmp_path)
    reconfigure(folder, **settings)
    if words is None:
        load_hf(folder)
    else:
        assert_refused(load_hf, folder, words)


# --- experts: cut at random, with gradients, and back -------------------------------------------

DEEP = ["deepseek", "deepseek groups", "deepseek yarn"]


@pytest.mark.parametrize("name", ["mixtral windows", "qwen3 moe", "deepseek", "deepseek groups"])
def test_twenty_random_cuts_of_a_prompt_give_the_references_logits(name, tmp_path):
    hold_cuts(*folder_of(name, tmp_path))


@pytest.mark.parametrize("name", ["mixtral", "qwen3 moe", "qwen3 moe divided", *DEEP])
def test_gradients_of_experts_are_those_of_hf(name, tmp_path):
    folder, model = folder_of(name, tmp_path)
    ours, ids = load_hf(folder).double(), torch.randint(V, (2, 19))
    F.cross_entropy(ours(ids).mT, ids).backward()
    with Wide():
        F.cross_entropy(model(ids).logits.mT, ids).backward()
    names = FAMILIES[type(model).__name__].names
    for layer, theirs in zip(ours.layers, model.model.layers):
        for name, parameter in layer.attn.named_parameters():
            (there,) = made_from(f"layers.0.attn.{name}", names).names
            there = theirs.get_parameter(there.removeprefix("model.layers.0."))
            torch.testing.assert_close(parameter.grad, there.grad)
        torch.testing.assert_close(
            layer.attn_residual.norm.weight.grad, theirs.input_layernorm.weight.grad
        )
        if isinstance(layer.ffn, Experts):
            grad = layer.ffn.router.linear.weight.grad
            torch.testing.assert_close(grad, theirs.mlp.gate.weight.grad)
            if layer.ffn.shared is not None:
                assert layer.ffn.router.bias.grad is None
                grad, there = layer.ffn.shared.up_proj.weight.grad, theirs.mlp.shared_experts
                torch.testing.assert_close(grad, there.up_proj.weight.grad)
            for expert, grad in zip(layer.ffn.experts, theirs.mlp.experts.down_proj.grad):
                own = expert.down_proj.weight.grad  # None where no token chose it
                torch.testing.assert_close(torch.zeros_like(grad) if own is None else own, grad)
    torch.testing.assert_close(ours.tok_emb.weight.grad, model.model.embed_tokens.weight.grad)


@pytest.mark.parametrize("name", [*WRITING, "gpt2 untied", "llama yarn", "deepseek groups"])
def test_a_family_goes_out_and_comes_back(name, tmp_path):
    hold_return(*folder_of(name, tmp_path), tmp_path)


def test_what_became_one_tensor_is_not_written(tmp_path):
    model = load_hf(folder_of("bert", tmp_path)[0])
    with pytest.raises(InputError, match=r"here .*position_e.* and .*type_e.* are one tensor"):
        save_hf(model, tmp_path / "out")


GUESSED = ["llama 2", "qwen3", "mixtral", "qwen3 moe", "qwen3 moe divided"]


@pytest.mark.parametrize("name", [*GUESSED, "deepseek", "deepseek groups"])
def test_what_no_folder_was_read_for_is_written_as_it_looks(name, tmp_path):
    folder, model = folder_of(name, tmp_path)
    ours = load_hf(folder)
    del ours.settings
    save_hf(ours, tmp_path / "out")
    before, after = (load_file(x / "model.safetensors") for x in (folder, tmp_path / "out"))
    assert before.keys() == after.keys()
    assert all(torch.equal(x, after[n]) for n, x in before.items())
    ids = torch.randint(V, (2, 19))
    with Wide():
        again = type(model).from_pretrained(tmp_path / "out", experts_implementation="eager")
    torch.testing.assert_close(logits(again.double(), ids), logits(model, ids))


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("mixtral", lambda x: setattr(x[0].ffn.router, "renormalise", False), "normalise is False"),
        ("mixtral", lambda x: setattr(x[0].ffn, "shared", nn.Identity()), "shared is Identity"),
        (
            "mixtral",
            lambda x: setattr(x[0].ffn, "router", SigmoidRouter(84, 5, 2)),
            "layers.0.ffn.router is SigmoidRouter, and would be read as SoftmaxRouter",
        ),
        ("mixtral", lambda x: setattr(x[0], "ffn", x[0].ffn.experts[0]), "layers.0.ffn is Gated"),
        ("mixtral", lambda x: [setattr(y.ffn.router, "renormalise", False) for y in x], "is False"),
        (
            "mixtral",
            lambda x: setattr(x[0].attn, "q_proj", nn.Sequential(x[0].attn.q_proj)),
            "attn.._proj",
        ),
        ("mistral", lambda x: setattr(x[1].attn, "attend", Window(5)), "attn.attend is Window"),
        ("llama 3", lambda x: setattr(x[0].attn, "position", RoPE(22)), "n.scaling is|n.base is"),
        ("deepseek", lambda x: setattr(x[1].attn, "scale", 1.0), "scale is 1.0, and would be read"),
        ("deepseek", lambda x: setattr(x[1].attn, "position", Position()), "position is Position,"),
        ("deepseek", lambda x: setattr(x[1].attn, "rank", 13), "rank is 13, and would be read as"),
        ("deepseek", lambda x: setattr(x[1].ffn.router, "k", 1), "router.k is"),
        ("deepseek", lambda x: setattr(x[1].ffn, "shared", None), "ffn.shared|Latent"),
        ("deepseek", lambda x: setattr(x[1].ffn, "router", SoftmaxRouter(84, 7, 2)), "is SoftmaxR"),
        ("deepseek", lambda x: setattr(x[2], "ffn", x[0].ffn), "layers.2.ffn is GatedFeedForward"),
        ("qwen3", lambda x: setattr(x[1].attn, "q_proj", x[1].attn.q_proj[0]), "_proj is Linear,"),
    ],
    ids=lambda x: "",
)
def test_what_no_folder_can_say_is_refused(name, change, words, tmp_path):
    model = load_hf(folder_of(name, tmp_path)[0])
    change(model.layers)
    for _ in range(2):
        with pytest.raises(InputError, match=words) as caught:
            save_hf(model, tmp_path / "out")
        assert "\n" not in str(caught.value)
        model.settings = None  # as if no folder had been read for it


def test_what_the_folder_said_of_its_type_and_ends_is_no_more_than_it_was(tmp_path):
    "It is written in the type that it has, and ends as it did unless other ends are given."
    folder, model = folder_of("llama 2", tmp_path)
    reconfigure(folder, dtype="bfloat16", eos_token_id=[5, 7], auto_map={"AutoModel": "code.X"})
    ours, said = load_hf(folder), []
    for name, more in (("one", {}), ("two", {"ends": (3,)})):
        save_hf(ours, tmp_path / name, **more)
        said.append(json.loads((tmp_path / name / "config.json").read_text()))
    assert [x["eos_token_id"] for x in said] == [[5, 7], [3]]
    assert not {"dtype", "torch_dtype", "auto_map"} & {*said[0]}
    again = type(model).from_pretrained(tmp_path / "one")
    assert {p.dtype for p in again.parameters()} == {torch.float32}


def test_layers_behind_the_last_are_left_out(tmp_path):
    "As they lie in the folder of DeepSeek-V3: a layer like the others, and more."
    folder, model = folder_of("deepseek", tmp_path)

    def change(tensors):
        last = {n: x for n, x in tensors.items() if n.startswith("model.layers.2.")}
        more = {n.replace("layers.2", "layers.3"): x.clone() for n, x in last.items()}
        return tensors | more | {"model.layers.3.eh_proj.weight": torch.ones(84, 168)}

    rewrite(folder, change)
    ids = torch.randint(V, (2, 19))
    torch.testing.assert_close(load_hf(folder).double()(ids), logits(model, ids))
    rewrite(folder, lambda x: x | {"model.layers.31.eh_proj.weight": torch.ones(84, 168)})
    assert_refused(load_hf, folder, "reads: model.layers.31.eh_proj.weight")


# --- the parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("T", [1, 5, 11])
@pytest.mark.parametrize("size", [1, 3, 11, 13])
def test_a_window_sees_the_last_positions(T, size):
    q, k, v = torch.randn(2, 4, T, 7), torch.randn(2, 2, 11, 7), torch.randn(2, 2, 11, 7)
    at = torch.arange(11 - T, 11)[:, None]
    sees = (torch.arange(11) > at - size) & (torch.arange(11) <= at)
    keep = torch.rand(2, 1, 1, 11) < 0.7
    expected = attend(q, k, v, mask=sees & keep)
    torch.testing.assert_close(Window(size)(q, k, v, mask=keep, causal=True), expected)
    torch.testing.assert_close(
        Window(size, attend=attend)(q, k, v, mask=keep, causal=True), expected
    )


def test_all_families_are_tested():
    elsewhere = ("Gemma", "GptOss", "Olmo", "Qwen3Next", "ModernBert", "Marian", "T5")
    elsewhere += ("Deberta", "BertModel", "Roberta", "DistilBert")
    here = {name for name in FAMILIES if not name.startswith(elsewhere)}
    assert {CLASSES[kind].__name__ for kind, _ in MODELS.values()} == here
