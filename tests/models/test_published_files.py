"""Each key of sixty published files is read, ignored by name, or refused with file and key."""

import tomllib
from pathlib import Path

import pytest

from transformer_lit.course.files import InputError
from transformer_lit.course.settings import PublishedSettings
from transformer_lit.models.decoders import Settings
from transformer_lit.models.hf import GENERATION, IGNORED
from transformer_lit.models.hf_build import FAMILIES, empty_module

TABLE = Path(__file__).with_name("published_files.toml")
FILES = tomllib.loads(TABLE.read_text(encoding="utf-8"))["file"]
SAID = {  # of keys whose value is the same in all of these files, but for its size
    **dict.fromkeys("hidden_size n_embd dim d_model hidden_dim moe_intermediate_size".split(), 24),
    **dict.fromkeys("intermediate_size n_inner d_ff shared_expert_intermediate_size".split(), 17),
    **dict.fromkeys("encoder_ffn_dim decoder_ffn_dim".split(), 17),
    **dict.fromkeys("num_hidden_layers n_layer n_layers num_layers num_decoder_layers".split(), 2),
    **dict.fromkeys("encoder_layers decoder_layers num_experts_per_tok".split(), 2),
    **dict.fromkeys("num_attention_heads n_head n_heads num_heads type_vocab_size".split(), 2),
    **dict.fromkeys("encoder_attention_heads decoder_attention_heads".split(), 2),
    **dict.fromkeys("num_key_value_heads linear_num_key_heads decoder_sparse_step".split(), 1),
    **dict.fromkeys("linear_num_value_heads n_shared_experts n_group topk_group".split(), 1),
    **dict.fromkeys("first_k_dense_replace pad_token_id num_nextn_predict_layers".split(), 1),
    **dict.fromkeys("head_dim linear_key_head_dim linear_value_head_dim d_kv".split(), 12),
    **dict.fromkeys("qk_nope_head_dim qk_rope_head_dim v_head_dim q_lora_rank".split(), 12),
    **dict.fromkeys("kv_lora_rank sliding_window local_attention max_window_layers".split(), 12),
    **dict.fromkeys("num_experts num_local_experts n_routed_experts".split(), 4),
    **dict.fromkeys("linear_conv_kernel_dim".split(), 4),
    **dict.fromkeys("max_position_embeddings n_positions n_ctx".split(), 64),
    **dict.fromkeys("vocab_size decoder_vocab_size".split(), 97),
    **dict.fromkeys("relative_attention_num_buckets _sliding_window_pattern".split(), 6),
    **dict.fromkeys("relative_attention_max_distance query_pre_attn_scalar".split(), 8),
    **dict.fromkeys("rms_norm_eps layer_norm_eps layer_norm_epsilon norm_eps".split(), 1e-6),
    **dict.fromkeys("rope_theta rope_local_base_freq swiglu_limit".split(), 1e4),
    **dict.fromkeys("routed_scaling_factor".split(), 2.5),
    **dict.fromkeys("dropout dropout_rate attention_dropout activation_dropout".split(), 0.1),
    **dict.fromkeys("hidden_dropout_prob resid_pdrop mlp_dropout embedding_dropout".split(), 0.1),
    **dict.fromkeys("attention_bias mlp_bias tie_word_embeddings use_sliding_window".split(), False),
    **dict.fromkeys("add_cross_attention is_decoder norm_bias classifier_bias".split(), False),
    **dict.fromkeys("use_bidirectional_attention normalize_before".split(), False),
    **dict.fromkeys("normalize_embedding add_final_layer_norm sinusoidal_pos_embds".split(), False),
    **dict.fromkeys("split_special_tokens add_bos_token add_eos_token".split(), False),
    **dict.fromkeys("norm_topk_prob scale_decoder_outputs rope_interleave decoder_bias".split(), True),
    **dict.fromkeys("scale_embedding static_position_embeddings scale_attn_weights".split(), True),
    **dict.fromkeys("share_encoder_decoder_embeddings".split(), True),
    "hidden_act": "silu",
    "hidden_activation": "gelu_pytorch_tanh",
    "classifier_activation": "gelu",
    "feed_forward_proj": "relu",
    "position_embedding_type": "absolute",
    "max_relative_positions": -1,
    "mlp_only_layers": [],
    "eos_token_id": 2,
    "forced_eos_token_id": 2,
    "bad_words_ids": [[1]],
}


def read_config(said, place):
    c = Settings(said, place=place)
    c.tensors = {"final_logits_bias", "lm_head.weight"}
    empty_module(c, place)
    family = FAMILIES[c.architecture]
    c.refuse_unread({**IGNORED, **GENERATION, **family.unused})


def read_generation(said, place):
    told = PublishedSettings(said, place, GENERATION)
    for name in ("eos_token_id", "forced_eos_token_id", "bad_words_ids"):
        told.get(name)
    told.refuse_unread()


READERS = {"config.json": read_config, "generation_config.json": read_generation}
CASES = [pytest.param(f, id=f"{f['name']}: {f['source']}") for f in FILES if f["name"] in READERS]


def read(file, **more):
    said = {key: SAID.get(key, "said") for key in file["keys"].split()} | file.get("said", {})
    said |= dict.fromkeys(file.get("null", "").split())
    READERS[file["name"]](said | more, Path("folder") / file["name"])


@pytest.mark.parametrize("file", CASES)
def test_each_key_of_a_published_file_has_an_outcome(file):
    if "refused" not in file:
        read(file)
        file = file | {"refused": "shiny_new_key"}
    with pytest.raises(InputError, match=rf"^folder/{file['name']} .*\b{file['refused']}\b"):
        read(file, shiny_new_key=5)
