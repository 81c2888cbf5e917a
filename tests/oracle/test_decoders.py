"""Every decoder that `load_hf` opens: the reference's logits, gradients and words, out and back."""

import json

import pytest
import torch
import transformers as hf
from checkpoints import (
    alter,
    assert_refused,
    hold_16_bits,
    hold_a_head_of_its_own,
    hold_cuts,
    hold_defaults,
    hold_gradients,
    hold_left_padding,
    hold_logits,
    hold_lora,
    hold_return,
    hold_unsaid,
    reconfigure,
    wide_model,
)
from transformers.models.gemma3.modeling_gemma3 import Gemma3TextScaledWordEmbedding

from transformer_lit.models.decoders import DECODERS
from transformer_lit.models.hf_build import load_hf, save_hf
from transformer_lit.models.quantise import quantised

pytestmark = pytest.mark.usefixtures("no_shape_checks")
V = 103
FULL, NEAR = "full_attention", "sliding_attention"
SIZES = {"vocab_size": V, "hidden_size": 84, "num_hidden_layers": 3, "num_attention_heads": 6}
SIZES |= {"intermediate_size": 43, "rms_norm_eps": 0.01, "max_position_embeddings": 71}
SIZES |= {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": None}
GROUPED = {**SIZES, "num_key_value_heads": 3, "head_dim": 22}
MOE = {"num_experts_per_tok": 2, "experts_implementation": "eager"}  # the fused has no float64
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 31, "beta_fast": 5}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 31}


def rope(**more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 503.0, **more}}


def ropes(**far):
    near = {"rope_type": "default", "rope_theta": 103.0}
    return {"rope_parameters": {NEAR: near, FULL: {**near, "rope_theta": 5003.0, **far}}}


WINDOWS = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}
QWEN_MOE = {**MOE, "num_experts": 7, "moe_intermediate_size": 13, "mlp_only_layers": [1]}
DEEP = {**SIZES, **MOE, "num_key_value_heads": 6, "moe_intermediate_size": 13, "kv_lora_rank": 11}
DEEP |= {"q_lora_rank": 17, "qk_nope_head_dim": 5, "v_head_dim": 7, "qk_rope_head_dim": 10}
DEEP |= {"n_routed_experts": 7, "n_group": 1, "topk_group": 1, "n_shared_experts": 2}
DEEP |= {"first_k_dense_replace": 1, "routed_scaling_factor": 2.5}
IN_GROUPS = {"n_routed_experts": 15, "n_group": 5, "topk_group": 2, "norm_topk_prob": False}
IN_GROUPS |= {"q_lora_rank": None, "rope_interleave": False}
GPT2 = {"vocab_size": V, "n_embd": 84, "n_layer": 3, "n_head": 6, "n_positions": 71}
GPT2 |= {"layer_norm_epsilon": 0.01, "bos_token_id": 1, "eos_token_id": None}
GEMMA = {**GROUPED, "query_pre_attn_scalar": 37, "sliding_window": 7}
CAPS = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
OSS = {**GROUPED, **MOE, "intermediate_size": 13, "num_local_experts": 5, "sliding_window": 7}
OLMO = {**SIZES, "num_key_value_heads": 3}
OLMO3 = {**OLMO, "num_hidden_layers": 4, "sliding_window": 7}
NEXT = {**GROUPED, **QWEN_MOE, "hidden_size": 85, "num_hidden_layers": 5, "head_dim": 24}
NEXT |= {"shared_expert_intermediate_size": 17, "linear_num_key_heads": 3}
NEXT |= {"linear_num_value_heads": 6, "linear_key_head_dim": 11, "linear_value_head_dim": 11}
OTHER = {**NEXT, "num_hidden_layers": 3, "norm_topk_prob": False, "tie_word_embeddings": True}
OTHER |= {"linear_num_key_heads": 6, "decoder_sparse_step": 2, "mlp_only_layers": []}
OTHER |= {"layer_types": [FULL, "linear_attention", FULL]}
QWEN3_5 = {**GROUPED, "num_hidden_layers": 5, "head_dim": 24, "linear_num_key_heads": 3}
QWEN3_5 |= {"linear_num_value_heads": 6, "linear_key_head_dim": 11, "linear_value_head_dim": 11}
GEMMA4 = {**GROUPED, "num_hidden_layers": 6, "sliding_window": 7, "hidden_size_per_layer_input": 0}
GEMMA4 |= {"global_head_dim": 34, "attention_k_eq_v": True, "num_global_key_value_heads": 2}
KIMI = {**DEEP, "num_hidden_layers": 5, "num_local_experts": 7, "q_lora_rank": None}
KIMI = {x: KIMI[x] for x in KIMI if x not in ("n_routed_experts", "first_k_dense_replace")}
KIMI |= {"linear_num_heads": 5, "linear_head_dim": 13}
P_ROPE = {"rope_type": "proportional", "rope_theta": 5003.0, "partial_rotary_factor": 0.3}
MODELS = {
    "gpt2": hf.GPT2Config(**GPT2),
    "gpt2 untied": hf.GPT2Config(**{**GPT2, "n_inner": 29, "tie_word_embeddings": False}),
    "llama 1": hf.LlamaConfig(**SIZES, **rope()),
    "llama 2": hf.LlamaConfig(**{**GROUPED, "head_dim": 10}, **rope()),
    "llama 3": hf.LlamaConfig(**GROUPED, **rope(**LLAMA3), tie_word_embeddings=True),
    "llama yarn": hf.LlamaConfig(**GROUPED, **rope(**YARN)),
    "llama linear": hf.LlamaConfig(**GROUPED, **rope(rope_type="linear", factor=3.0)),
    "mistral": hf.MistralConfig(**GROUPED, **rope(), sliding_window=7),
    "qwen2": hf.Qwen2Config(**SIZES, **rope(), num_key_value_heads=2),
    "qwen2 windows": hf.Qwen2Config(**SIZES, **rope(), **WINDOWS, num_key_value_heads=2),
    "qwen3": hf.Qwen3Config(**GROUPED, **rope(), **WINDOWS),
    "qwen3 full": hf.Qwen3Config(**GROUPED, **rope()),
    "mixtral": hf.MixtralConfig(**GROUPED, **rope(), **MOE, num_local_experts=5, sliding_window=7),
    "mixtral full": hf.MixtralConfig(**GROUPED, **rope(), **MOE, num_local_experts=5),
    "qwen3 moe": hf.Qwen3MoeConfig(**GROUPED, **rope(), **QWEN_MOE),
    "qwen3 moe divided": hf.Qwen3MoeConfig(**GROUPED, **rope(), **QWEN_MOE, norm_topk_prob=True),
    "deepseek": hf.DeepseekV3Config(**DEEP, **rope()),
    "deepseek groups": hf.DeepseekV3Config(**{**DEEP, **IN_GROUPS}, **rope()),
    "deepseek yarn": hf.DeepseekV3Config(**DEEP, **rope(**YARN, mscale=0.7, mscale_all_dim=0.3)),
    "gemma 2": hf.Gemma2Config(**GEMMA, **CAPS, **rope()),
    "gemma 2 untied": hf.Gemma2Config(**GEMMA, **CAPS, **rope(), tie_word_embeddings=False),
    "gemma 3": hf.Gemma3TextConfig(**{**GEMMA, **ropes(), "num_hidden_layers": 6}),
    "gemma 3 linear": hf.Gemma3TextConfig(
        **GEMMA, **ropes(rope_type="linear", factor=8.0), layer_types=[NEAR, FULL, NEAR]
    ),
    "gpt-oss": hf.GptOssConfig(**OSS, **rope(**YARN, truncate=False)),
    "gpt-oss clamped": hf.GptOssConfig(
        **OSS, **rope(**YARN), swiglu_limit=1.5, swiglu_alpha=0.7, layer_types=[FULL, NEAR, NEAR]
    ),
    "olmo 2": hf.Olmo2Config(**OLMO, **rope()),
    "olmo 3": hf.Olmo3Config(**OLMO3, **ropes(**YARN)),
    "olmo 3 one base": hf.Olmo3Config(**OLMO3, **ropes(**YARN, rope_theta=103.0)),
    "qwen3-next": hf.Qwen3NextConfig(**NEXT, **rope(partial_rotary_factor=0.25)),
    "qwen3-next other": hf.Qwen3NextConfig(**OTHER, **rope(**YARN, partial_rotary_factor=0.75)),
    "qwen3.5": hf.Qwen3_5TextConfig(**QWEN3_5, **rope(partial_rotary_factor=0.25)),
    "qwen3.5 tied": hf.Qwen3_5TextConfig(
        **{**QWEN3_5, "linear_num_key_heads": 6},
        **rope(partial_rotary_factor=0.5),
        layer_types=[FULL, "linear_attention", FULL, FULL, "linear_attention"],
        tie_word_embeddings=True,
    ),
    "gemma 4": hf.Gemma4TextConfig(**GEMMA4, **ropes(**P_ROPE), final_logit_softcapping=3.0),
    "gemma 4 two projections": hf.Gemma4TextConfig(
        **{**GEMMA4, "attention_k_eq_v": False}, layer_types=[NEAR, FULL] * 3
    ),
    "kimi linear": hf.KimiLinearConfig(**KIMI),
    "kimi linear groups": hf.KimiLinearConfig(
        **{**KIMI, "q_lora_rank": 17, "num_local_experts": 15, "n_group": 5, "topk_group": 2},
        norm_topk_prob=False,
        layer_types=["linear_attention", FULL, "linear_attention", FULL, "linear_attention"],
    ),
}
ONE_OF_EACH = list({type(config): name for name, config in MODELS.items()}.values())


def theirs(name):
    return wide_model(hf.AutoModelForCausalLM.from_config, MODELS[name])


def ids(B=3, T=67):
    return {"input_ids": torch.randint(V, (B, T))}


every = pytest.mark.parametrize("pair", MODELS, indirect=True)
one_of_each = pytest.mark.parametrize("pair", ONE_OF_EACH, indirect=True)


def some(*names):
    return pytest.mark.parametrize("pair", names, indirect=True)


def test_all_of_them_are_here():
    built = {hf.AutoModelForCausalLM._model_mapping[type(x)].__name__ for x in MODELS.values()}
    assert built == {*DECODERS, "GPT2LMHeadModel"}


# --- the same numbers -----------------------------------------------------------------------------


@pytest.mark.usefixtures("shape_checks")
@every
def test_logits_are_the_references(pair):
    assert not hold_logits(*pair, ids()).training


@every
def test_each_weight_has_the_references_gradient(pair, tmp_path):
    hold_gradients(*pair, ids(2, 29), tmp_path)


@one_of_each
def test_any_cut_of_a_prompt_gives_the_references_logits(pair):
    hold_cuts(*pair, ids(2, 17))


@one_of_each
def test_changes_of_low_rank_start_at_nothing_and_can_be_merged(pair):
    hold_lora(pair[0], ids(2, 17))


@some("gpt2", "llama 3", "gemma 3", "gpt-oss")
def test_rows_of_unequal_length_are_padded_on_the_left(pair):
    hold_left_padding(load_hf(pair[0]).double(), V)


@every
def test_it_goes_out_and_comes_back(pair, tmp_path):
    hold_return(*pair, ids(2, 19), tmp_path)


@some("llama 2")
def test_a_llama_that_no_folder_was_read_for_is_written_by_its_config(pair, tmp_path):
    hold_return(*pair, ids(2, 19), tmp_path, forget=True)


@one_of_each
def test_a_folder_in_16_bits_holds_what_it_holds(pair):
    hold_16_bits(*pair, ids(2, 19))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@some("gemma 3")
def test_in_16_bits_a_scale_is_rounded_before_it_multiplies(pair, dtype):
    folder, model = pair
    theirs = Gemma3TextScaledWordEmbedding(V, 84, 0, 84**0.5)
    theirs.weight = model.model.embed_tokens.weight
    text = torch.arange(V)[None]
    assert torch.equal(load_hf(folder, dtype=dtype).tok_emb(text), theirs.to(dtype)(text))


@some("gemma 2")
def test_in_8_bits_a_table_with_two_uses_stays_one(pair):
    whole, text = load_hf(pair[0]), torch.randint(V, (2, 19))
    expected = whole(text)
    small = quantised(whole)
    assert small.tok_emb[0].q is small.lm_head[0].q
    assert (small(text) - expected).abs().max() < 0.2 * expected.abs().max()


# --- as folders are found -------------------------------------------------------------------------


@some("llama 3", "llama yarn", "gemma 3 linear", "deepseek yarn", "gpt-oss", "olmo 3 one base")
def test_the_settings_of_version_4(pair):
    folder, model = pair
    said = json.loads((folder / "config.json").read_text())["rope_parameters"]
    far = dict(said.get(FULL, said))
    old = {"rope_theta": far.pop("rope_theta"), "rope_scaling": {"type": far["rope_type"], **far}}
    if model.config.model_type == "gemma3_text":
        old |= {"rope_local_base_freq": said[NEAR]["rope_theta"], "sliding_window_pattern": 2}
        old |= {"layer_types": ...}
    reconfigure(folder, rope_parameters=..., **old)
    hold_logits(folder, model, ids())


@some("olmo 3 one base")
def test_where_the_reference_does_not_read_what_the_folder_says(pair):
    "transformers 5.23; once it does, say so on the page."
    said = json.loads((pair[0] / "config.json").read_text())["rope_parameters"]
    said[FULL]["truncate"] = False
    reconfigure(pair[0], rope_parameters=said)
    theirs = hf.Olmo3Model(
        hf.AutoConfig.from_pretrained(pair[0])
    ).rotary_emb.full_attention_inv_freq
    ours = load_hf(pair[0]).layers[3].attn.position.frequencies
    assert (theirs.double() - ours).abs().max() > 0.01
    reconfigure(pair[0], rope_parameters=..., rope_theta=103.0, rope_scaling=said[FULL])
    assert hf.AutoConfig.from_pretrained(pair[0]).rope_parameters[NEAR]["rope_theta"] == 500_000


UNSAID = {
    "llama 1": ("head_dim", "num_key_value_heads", "tie_word_embeddings"),
    "llama yarn": ("original_max_position_embeddings",),
    "qwen2 windows": ("layer_types",),
    "gemma 2": ("layer_types", "tie_word_embeddings"),
    "gemma 3": ("layer_types", "rope_parameters"),
    "mixtral": ("rope_theta", "rms_norm_eps"),
    "gpt-oss": ("layer_types", "rope_theta", "swiglu_alpha", "swiglu_limit"),
    "gpt-oss clamped": ("rope_parameters",),
    "olmo 3": ("layer_types", "rope_theta"),
    "qwen3-next": ("layer_types", "norm_topk_prob", "partial_rotary_factor"),
    "qwen3.5": ("layer_types", "partial_rotary_factor"),
    "gemma 4": ("layer_types", "rope_parameters", "tie_word_embeddings"),
    "kimi linear": ("mlp_layer_types",),
}


@pytest.mark.parametrize(("pair", "names"), UNSAID.items(), indirect=["pair"])
def test_what_a_folder_leaves_out_is_what_the_reference_takes(pair, names):
    "Kinds of layers above all."
    hold_unsaid(*pair, ids(), names)


@one_of_each
def test_each_key_that_a_folder_leaves_out(pair):
    hold_defaults(*pair)


MASKS = {f"h.{i}.attn.{x}": (1, 1, 71, 71) for i in range(3) for x in ("bias", "masked_bias")}
FOUND = [  # tensors beside those of the model, and other names
    ("gpt2", {**MASKS, "lm_head.weight": "wte.weight"}, {r"^transformer\.": ""}),
    ("gpt2", {"lm_head.weight": "transformer.wte.weight"}, {}),
    ("llama 1", {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": (7,) for i in range(3)}, {}),
    ("deepseek", {"model.layers.3.eh_proj.weight": (84, 168)}, {}),
    ("qwen3-next", {"mtp.fc.weight": (85, 170)}, {}),
    ("qwen3.5", {"mtp.fc.weight": (84, 168)}, {}),
    ("kimi linear", {}, {r"layers\.0\.block_sparse_moe": "layers.0.mlp"}),
    ("llama 1", {**rope(partial_rotary_factor=0.5), "hidden_act": "swish"}, {}),
]


@pytest.mark.parametrize(("pair", "changes", "names"), FOUND, indirect=["pair"])
def test_a_folder_as_it_was_published(pair, changes, names):
    alter(pair[0], changes, names)
    ours = hold_logits(*pair, ids(2, 19))
    assert (ours.lm_head.weight is ours.tok_emb.weight) == ours.config.tied


@some("gemma 4")
def test_the_last_layer_of_gemma_4_is_full_whatever_is_listed(pair):
    alter(pair[0], {"layer_types": [NEAR] * 6})
    hold_logits(*pair, ids(2, 19))


SEEING = {  # what stands beside the text model in a folder of one that sees
    "qwen3.5": ("visual.merger", {"vision_start_token_id": 7}, {"mtp_num_hidden_layers": 1}),
    "gemma 4": (
        "vision_tower.encoder",
        {"audio_config": None, "boa_token_id": 7},
        {"use_bidirectional_attention": "vision", "per_layer_config": ...}
        | {"global_head_dim": 34, "num_global_key_value_heads": 2},
    ),
}


@pytest.mark.parametrize(("pair", "sees"), SEEING.items(), indirect=["pair"])
def test_of_a_model_that_sees_the_text_model_is_opened_and_written(pair, sees, tmp_path):
    (tensor, outer, inner), (folder, model) = sees, pair
    named = {r"^model\.": "model.language_model."}
    alter(folder, {**inner, f"model.{tensor}.weight": (3, 5)}, named)
    path = folder / "config.json"
    text = json.loads(path.read_text())
    (name,) = text.pop("architectures")
    whole = name.replace("ForCausalLM", "ForConditionalGeneration")
    outer = {"architectures": [whole], "vision_config": {"depth": 2}, "image_token_id": 5, **outer}
    path.write_text(json.dumps({**outer, "model_type": "sees", "text_config": text}))
    hold_return(folder, model, ids(2, 19), tmp_path)
    path.write_text(json.dumps(outer))
    assert_refused(load_hf, folder, "doesn't set text_config")


@some("kimi linear")
def test_the_settings_of_kimi_linears_authors(pair, tmp_path):
    "Where their table names layers from 1, and says which feed-forward networks are dense."
    table = {"full_attn_layers": [5], "kda_layers": [1, 2, 3, 4], "head_dim": 13, "num_heads": 5}
    theirs = {"linear_attn_config": {**table, "short_conv_kernel_size": 4}, "mla_use_nope": True}
    theirs |= {"first_k_dense_replace": 1, "moe_router_activation_func": "sigmoid"}
    theirs |= {"use_grouped_topk": True, "moe_layer_freq": 1, "num_nextn_predict_layers": 0}
    theirs |= {"rope_theta": 10_000.0, "rope_scaling": None}
    gone = ("layer_types", "mlp_layer_types", "linear_head_dim", "linear_num_heads", "qk_head_dim")
    reconfigure(pair[0], **theirs, **dict.fromkeys((*gone, "linear_conv_kernel_dim"), ...))
    hold_return(*pair, ids(2, 19), tmp_path)


@some("llama 3", "gpt2", "gemma 2")
def test_a_head_that_should_be_tied_and_differs_is_untied(pair):
    table = (
        "transformer.wte.weight" if "gpt2" in str(type(pair[1])) else "model.embed_tokens.weight"
    )
    hold_a_head_of_its_own(*pair, ids(2, 19), "lm_head.weight", table)


# --- refused --------------------------------------------------------------------------------------

MOE_AT, GATE_UP = "model.layers.0.block_sparse_moe", "model.layers.1.mlp.experts.gate_up_proj"
BA = "model.layers.0.linear_attn.in_proj_ba.weight"
REFUSED = [
    ("llama 1", {"hidden_act": "gelu"}, "hidden_act to .gelu."),
    ("llama 1", {"hidden_size": ...}, "doesn't set hidden_size"),
    ("llama 1", {"hidden_size": 2**62}, "hidden_size to .*, the most that its tensors have"),
    ("llama 1", {"head_dim": 10**5}, "head_dim to 100000; .*, the most that its tensors have"),
    ("deepseek", {"qk_rope_head_dim": 10**5}, "to 100000; .*, the most that its tensors have"),
    ("mixtral", {"num_local_experts": 10**5}, "to 100000; .*, the most that its tensors have"),
    ("llama 1", {"vocab_size": 2**62}, "folder: "),  # whatever torch says, in one line
    (
        "llama 1",
        {"quantization_config": {"quant_method": "x"}},
        r"quantization_config \(x\)\. Choose the model w",
    ),
    (
        "llama 1",
        rope(rope_type="dynamic", factor=2.0),
        "rope_type to .dynamic.; it must be .default. or",
    ),
    (
        "llama 1",
        rope(rope_type="linear", factor=2.0, partial_rotary_factor=0.5),
        "0.5 of each head",
    ),
    ("llama 1", {"num_hidden_layers": 10**9}, "to 1000000000; .* 1 to 3, the most"),
    ("llama 1", {"num_hidden_layers": 2}, "contains what nothing reads: model.layers.2"),
    ("llama 1", {"architectures": ["MambaForCausalLM"]}, "Mamba.* supported. Known: .*GPT2LM"),
    ("llama 1", {"architectures": None}, "doesn't set architectures, the class of the model"),
    ("llama 1", {"architectures": 5}, "architectures to 5; it must be a list"),
    ("llama 1", {"layer_types": [NEAR] * 3}, f"{NEAR} in layer_types; a Llama.* only {FULL}"),
    ("mistral", {"layer_types": [FULL] * 3}, f"{FULL} in layer_types; a Mistral"),
    ("deepseek", {"layer_types": [NEAR] * 3}, f"{NEAR} in layer_types"),
    ("gpt2", {"activation_function": "relu"}, ".relu."),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx"),
    ("qwen2 windows", {"layer_types": [NEAR] * 2}, "must list 3 layer_types of"),
    ("qwen2 windows", {"layer_types": ["linear_attention"] * 3}, "linear_attention"),
    *(("mistral", {"sliding_window": x}, f"sliding_window to {x}; it must be a") for x in (0, 2.5)),
    ("mixtral", {"num_local_experts": 7}, f"lacks {MOE_AT}.experts.5"),
    ("mixtral", {"num_local_experts": 3}, f"reads: {MOE_AT}.experts.3"),
    ("qwen3 moe", {"use_sliding_window": True}, "use_sliding_window to true"),
    ("deepseek", {"scoring_func": "softmax"}, "scoring_func to .softmax."),
    ("deepseek", {"topk_method": "greedy"}, "topk_method to .greedy."),
    ("deepseek", {"n_group": 2}, "of 7 experts can.t come from 1 of 2 equal groups"),
    ("gemma 3", {"rope_scaling": {"rope_type": "default"}}, "rope_scaling. Keep one of them"),
    ("gemma 2", {"hidden_activation": "gelu"}, "hidden_activation to .gelu."),
    ("gemma 2", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    ("gemma 3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping to 50.0"),
    ("gpt-oss", {"attention_bias": False}, "attention_bias"),
    ("olmo 3", {"rope_parameters": rope()["rope_parameters"]}, "doesn't set sliding_attention"),
    ("qwen3-next", {"linear_conv_kernel_dim": 3}, "linear_conv_kernel_dim to 3"),
    ("qwen3-next", {"linear_value_head_dim": 7}, "linear_value_head_dim to 7"),
    ("qwen3-next", {"layer_types": [NEAR] * 5}, "must list . layer_types of .*, got .*sliding_"),
    ("qwen3.5", {"linear_conv_kernel_dim": 3}, "linear_conv_kernel_dim to 3"),
    ("qwen3.5", {"attn_output_gate": False}, "attn_output_gate to false"),
    ("qwen3.5", rope(rope_type="proportional", partial_rotary_factor=0.25), "by proportional"),
    ("gemma 4", {"sliding_window_pattern": 2}, "sliding_window_pattern to 2, which nothing"),
    ("gemma 4", {"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input to 256"),
    ("gemma 4", {"hidden_size_per_layer_input": ...}, "hidden_size_per_layer_input to 256"),
    ("gemma 4", {"num_kv_shared_layers": 2}, "num_kv_shared_layers to 2"),
    ("gemma 4", {"enable_moe_block": True}, "enable_moe_block to true"),
    ("gemma 4", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention to .all."),
    ("gemma 4", {"per_layer_config": {"5": {"head_dim": 22}}}, "but the model needs"),
    ("gemma 4", {"per_layer_config": {"7": {"head_dim": 34}}}, "doesn't set 5"),
    ("kimi linear", {"linear_conv_kernel_dim": 3}, "linear_conv_kernel_dim to 3"),
    ("kimi linear", {"mla_use_nope": False}, "mla_use_nope to false"),
    ("kimi linear", {"mlp_layer_types": ["dense"] * 4 + ["sparse"]}, "lacks model.layers.1"),
    ("kimi linear", {"num_experts": 5}, "reads: model.layers.1.block_sparse_moe.experts.5"),
    ("gpt2", {"transformer.h.1.mlp.c_fc.bias": ...}, "lacks h.1.mlp.c_fc.bias$"),
    ("gpt2", {"transformer.h.3.ln_1.bias": (84,)}, "reads: h.3.ln_1.bias$"),
    ("gpt2", {"transformer.wpe.weight": (73, 84)}, r"wpe.weight \(73, 84\), but .* \(71, 84\)"),
    ("gpt2", {"wte.weight": "transformer.wte.weight"}, "wte.weight twice. Copy the folder again"),
    ("gpt-oss", {GATE_UP: (4, 84, 26)}, r"gate_up_proj \(4, 84, 26\), .* \(13, 84\)"),
    ("qwen3-next", {BA: (14, 85)}, r"ba.weight \(14, 85\).* but the model needs"),
    ("deepseek", {"model.layers.31.eh_proj.weight": (84, 168)}, "reads: model.layers.31.eh_proj"),
]


@pytest.mark.parametrize(("pair", "changes", "words"), REFUSED, indirect=["pair"])
def test_what_cannot_be_read_is_refused_in_one_line(pair, changes, words):
    alter(pair[0], changes)
    assert_refused(load_hf, pair[0], words)


@some("qwen2", "mistral", "llama 3", "mixtral full", "gemma 2", "deepseek", "gpt2")
def test_of_what_no_folder_was_read_for_only_a_plain_llama_is_written(pair, tmp_path):
    model = load_hf(pair[0])
    del model.settings
    assert_refused(lambda folder: save_hf(model, folder), tmp_path / "out", "an unchanged Llama")


@some("llama 2")
def test_what_a_folder_said_of_its_type_and_ends_is_no_more_than_it_was(pair, tmp_path):
    "It is written in the type that it has, and ends as it did unless other ends are given."
    folder, _ = pair
    reconfigure(folder, dtype="bfloat16", eos_token_id=[5, 7], auto_map={"AutoModel": "code.X"})
    for ends, expected in (((), [5, 7]), ((3,), [3])):
        with pytest.warns(UserWarning, match=r"its own code \(auto_map: code.X\), which isn"):
            model = load_hf(folder)
        save_hf(model, tmp_path / f"{expected}", ends=ends)
        said = json.loads((tmp_path / f"{expected}/config.json").read_text())
        assert said["eos_token_id"] == expected
        assert not {"dtype", "torch_dtype", "auto_map"} & {*said}
