"""Every model that `load_hf` opens and that reads a whole text: as the reference, out and back.

Encoders with logits, encoders that end with their states, and encoders with a decoder.
"""

import json
import subprocess
import sys

import pytest
import torch
import transformers as hf
from checkpoints import (
    alter,
    assert_refused,
    exact,
    given,
    hold_16_bits,
    hold_a_head_of_its_own,
    hold_cuts,
    hold_defaults,
    hold_gradients,
    hold_logits,
    hold_lora,
    hold_return,
    hold_unsaid,
    reconfigure,
    reread,
    rewrite,
    wide_model,
)
from torch import nn
from wide import Wide

from transformer_lit.inference.beam import beam_search
from transformer_lit.inference.sampling import generate
from transformer_lit.models.bert import Bert
from transformer_lit.models.decoders import DECODERS
from transformer_lit.models.hf_build import FAMILIES, load_hf, save_hf
from transformer_lit.models.transformer import EncoderDecoder

pytestmark = pytest.mark.usefixtures("no_shape_checks")
V = 103
SIZES = {"vocab_size": V, "hidden_size": 42, "num_hidden_layers": 3, "num_attention_heads": 3}
SIZES |= {"intermediate_size": 29, "max_position_embeddings": 71, "pad_token_id": 1}
SIZES |= {"bos_token_id": None, "eos_token_id": None}
BERT = {**SIZES, "layer_norm_eps": 0.01}
DISTIL = {"vocab_size": V, "dim": 42, "n_layers": 3, "n_heads": 3, "hidden_dim": 29}
DISTIL |= {"max_position_embeddings": 71, "pad_token_id": 1}
MODERN = {**SIZES, "num_hidden_layers": 5, "norm_eps": 0.01, "local_attention": 14}
MODERN |= {"cls_token_id": 1, "sep_token_id": 2, "global_rope_theta": 503.0}
MODERN |= {"local_rope_theta": 53.0}
NEAR, FULL = "sliding_attention", "full_attention"
UNTIED = {**MODERN, "num_hidden_layers": 3, "local_attention": 9, "layer_types": [NEAR, FULL, NEAR]}
DEBERTA = {**BERT, "relative_attention": True, "position_biased_input": False}
DEBERTA |= {"pos_att_type": "p2c|c2p"}
V3 = {**DEBERTA, "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_buckets": 12}
APART = {**DEBERTA, "max_relative_positions": 23, "legacy": False}
SEQ = {"vocab_size": V, "d_model": 42, "decoder_start_token_id": 0, "pad_token_id": 0}
SEQ |= {"bos_token_id": None, "eos_token_id": None}
T5 = {**SEQ, "d_kv": 11, "d_ff": 29, "num_heads": 5, "num_layers": 3, "num_decoder_layers": 2}
T5 |= {"relative_attention_num_buckets": 14, "relative_attention_max_distance": 37}
T5 |= {"layer_norm_epsilon": 0.01}
UNSAID = ("num_decoder_layers", "relative_attention_num_buckets", "layer_norm_epsilon")
UNSAID += ("relative_attention_max_distance", "feed_forward_proj", "dropout_rate")
UNSAID += ("tie_word_embeddings", "scale_decoder_outputs")  # in T5's first configurations
GATED = {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
MARIAN = {**SEQ, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 3}
MARIAN |= {"decoder_attention_heads": 7, "encoder_ffn_dim": 29, "decoder_ffn_dim": 31}
MARIAN |= {"max_position_embeddings": 71, "forced_eos_token_id": None}
MARIAN |= {"activation_function": "swish", "scale_embedding": True}


def untied(config):
    "A T5 with an output layer of its own, as T5 1.1's folders have it."
    model = hf.T5ForConditionalGeneration(config)
    model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
    return model


DEBERTAS, T5S = hf.DebertaV2ForMaskedLM, hf.T5ForConditionalGeneration
MODELS = {
    "bert": (hf.BertForMaskedLM, hf.BertConfig(**BERT)),
    "bert states": (hf.BertModel, hf.BertConfig(**BERT)),
    "roberta": (hf.RobertaModel, hf.RobertaConfig(**BERT)),
    "distilbert": (hf.DistilBertModel, hf.DistilBertConfig(**DISTIL)),
    "modernbert": (hf.ModernBertForMaskedLM, hf.ModernBertConfig(**MODERN)),
    "modernbert untied": (
        hf.ModernBertForMaskedLM,
        hf.ModernBertConfig(**UNTIED, tie_word_embeddings=False),
    ),
    "modernbert states": (hf.ModernBertModel, hf.ModernBertConfig(**MODERN)),
    "deberta v3": (DEBERTAS, hf.DebertaV2Config(**V3)),
    "deberta apart": (DEBERTAS, hf.DebertaV2Config(**APART)),
    "deberta c2p": (DEBERTAS, hf.DebertaV2Config(**APART | {"pos_att_type": ["c2p"]})),
    "deberta p2c": (DEBERTAS, hf.DebertaV2Config(**V3 | {"pos_att_type": ["p2c"]})),
    "t5": (T5S, hf.T5Config(**T5)),
    "t5 1.1": (untied, hf.T5Config(**GATED)),
    "t5 1.1 tied": (T5S, hf.T5Config(**GATED)),
    "t5 in between": (T5S, hf.T5Config(**T5, dense_act_fn="gelu_new")),
    "t5 of 2019": (T5S, hf.T5Config(**{name: x for name, x in T5.items() if name not in UNSAID})),
    "marian": (hf.MarianMTModel, hf.MarianConfig(**MARIAN)),
    "marian relu": (
        hf.MarianMTModel,
        hf.MarianConfig(**MARIAN | {"activation_function": "relu", "scale_embedding": False}),
    ),
}


def theirs(name):
    return wide_model(*MODELS[name])


every = pytest.mark.parametrize("pair", MODELS, indirect=True)


def some(*names):
    return pytest.mark.parametrize("pair", names, indirect=True)


def question(model, T=53):
    "Texts of unequal length, padded behind with an id that RoBERTa tells positions by."
    src, keep = torch.randint(2, V, (3, T)), torch.arange(T) < torch.tensor([[T], [T // 2], [1]])
    more = {"input_ids": src.where(keep, 1), "attention_mask": keep.long()}
    if model.config.is_encoder_decoder:
        more["decoder_input_ids"] = torch.randint(1, V, (3, T - 6))
    return more


def whole(more):
    "Without padding."
    return {name: x[:1] for name, x in more.items() if name != "attention_mask"}


def test_all_of_them_are_here():
    built = {type(wide_model(*made)).__name__ for made in MODELS.values()}
    assert built == {*FAMILIES} - {*DECODERS, "GPT2LMHeadModel"}


# --- the same numbers -----------------------------------------------------------------------------


@pytest.mark.usefixtures("shape_checks")
@every
def test_logits_or_states_are_the_references_with_padding_and_without(pair):
    more = question(pair[1])
    left = {x: y.flip(1) if x != "decoder_input_ids" else y for x, y in more.items()}
    ours = hold_logits(*pair, more, whole(more), left)
    assert isinstance(ours, EncoderDecoder if "decoder_input_ids" in more else Bert)
    assert not ours.training


@every
def test_each_weight_has_the_references_gradient(pair, tmp_path):
    hold_gradients(*pair, question(pair[1], 29), tmp_path)


@some("t5", "t5 1.1", "marian")
def test_any_cut_of_a_target_gives_the_references_logits(pair):
    hold_cuts(*pair, question(pair[1], 23))


@every
def test_changes_of_low_rank_start_at_nothing_and_can_be_merged(pair):
    hold_lora(pair[0], question(pair[1], 17))


@every
def test_it_goes_out_and_comes_back(pair, tmp_path):
    hold_return(*pair, question(pair[1], 19), tmp_path)


@some("bert", "modernbert", "deberta v3", "t5", "marian")
def test_a_folder_in_16_bits_holds_what_it_holds(pair):
    hold_16_bits(*pair, whole(question(pair[1], 19)))


# --- as folders are found -------------------------------------------------------------------------

COPIES = {f"{side}coder.embed_tokens.weight": "shared.weight" for side in ("en", "de")}
NOT_READ = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": (14, 5)}
ONE_FLAG = {"scale_decoder_outputs": ..., "tie_word_embeddings": ...}
TABLES = {f"model.{side}coder.embed_positions.weight": (71, 42) for side in ("en", "de")}
OLD = {"layer_types": ..., "rope_parameters": ..., "global_attn_every_n_layers": 3}
OLD |= {"global_rope_theta": 503.0, "local_rope_theta": 53.0}
WORDS = "embeddings.word_embeddings.weight"
FOUND = [  # other settings, tensors beside those of the model, and other names
    (
        "bert",
        {"pooler.dense.bias": (5,), "cls.seq_relationship.bias": (2,)}
        | {"embeddings.position_ids": (1, 71), "cls.predictions.decoder.weight": WORDS},
        {r"^bert\.": "", r"Norm\.weight$": "Norm.gamma", r"Norm\.bias$": "Norm.beta"},
    ),
    ("bert states", {"cls.predictions.bias": (V,)}, {"^": "bert."}),
    ("roberta", {}, {"^": "roberta."}),
    ("distilbert", {}, {"^": "distilbert."}),
    ("modernbert", OLD | {"decoder.weight": "model.embeddings.tok_embeddings.weight"}, {}),
    ("modernbert states", OLD | {"head.norm.weight": (42,), "decoder.bias": (V,)}, {"^": "model."}),
    (
        "deberta v3",
        {"max_relative_positions": ..., "pos_att_type": ["p2c", "c2p"]}
        | {"deberta.embeddings.position_embeddings.weight": (71, 42)}
        | {"mask_predictions.dense.weight": (42, 42), "deberta.embeddings.position_ids": (1, 71)}
        | {"cls.predictions.decoder.weight": f"deberta.{WORDS}"},
        {r"^cls\.predictions\.(transform\.)?": "lm_predictions.lm_head."},
    ),
    ("t5", ONE_FLAG | COPIES | NOT_READ | {"lm_head.weight": "shared.weight"}, {}),
    ("t5", {}, {"^shared": "decoder.embed_tokens"}),
    ("t5 1.1", ONE_FLAG | {"tie_word_embeddings": False} | COPIES, {}),
    ("marian", TABLES | {"lm_head.weight": "model.shared.weight"}, {}),
]


@pytest.mark.parametrize(("pair", "changes", "names"), FOUND, indirect=["pair"])
def test_a_folder_as_it_was_published(pair, changes, names):
    alter(pair[0], changes, names)
    hold_logits(*pair, question(pair[1], 19))


@some("modernbert")
def test_bases_that_a_folder_leaves_out_are_the_references(pair):
    hold_unsaid(*pair, question(pair[1]), ("layer_types", "rope_theta"))


@every
def test_each_key_that_a_folder_leaves_out(pair):
    hold_defaults(*pair)


@some("modernbert")
def test_a_scaling_of_version_4_is_for_layers_of_both_kinds(pair):
    folder, model = pair
    reconfigure(folder, **OLD, rope_scaling={"rope_type": "linear", "factor": 2.0})
    hold_logits(folder, reread(folder, model), question(model))


@some("t5 of 2019")
def test_what_t5_s_first_configurations_leave_out_is_what_the_reference_takes(pair):
    hold_unsaid(*pair, question(pair[1], 151), UNSAID)  # beyond 128, where buckets end


@some("marian")
def test_marian_may_have_no_offset_in_its_output(pair):
    folder, model = pair
    model.final_logits_bias.zero_()
    alter(folder, {"final_logits_bias": ...})
    assert hold_logits(folder, model, question(model, 19)).lm_head.bias is None


@some("t5")
def test_a_head_that_should_be_tied_and_differs_is_untied(pair):
    hold_a_head_of_its_own(*pair, question(pair[1], 19), "lm_head.weight", "shared.weight")


@some("t5", "t5 1.1")
def test_in_float16_t5_keeps_what_is_too_large_for_it(pair):
    folder, model = pair
    rewrite(folder, lambda x: x | {name: 3e4 * y for name, y in x.items() if ".wo." in name})
    more = whole(question(model, 19))
    theirs = type(model).from_pretrained(folder, dtype=torch.float16)
    ours, narrow = load_hf(folder, dtype=torch.float16), load_hf(folder).half()
    expected = theirs(**more).logits
    assert expected.isfinite().all() and expected.dtype == torch.float16
    for one in (ours, narrow):
        torch.testing.assert_close(one(*given(more)), expected, rtol=0.01, atol=0.05)
        kinds = {x: y.dtype for x, y in one.named_parameters()}
        assert all((y == torch.float32) == ("ffn.down_proj" in x) for x, y in kinds.items())


FORBIDDEN = {"bad_words_ids": [[5], [7], [1]], "suppress_tokens": [11], "eos_token_id": 1}


@some("t5", "marian")
@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_what_a_folder_forbids_is_never_written_and_its_last_token_is_forced(pair, file):
    folder, model = pair
    (folder / "generation_config.json").unlink()
    said = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
    (folder / file).write_text(json.dumps(said | FORBIDDEN | {"forced_eos_token_id": 1}))
    src, ids = torch.randint(2, V, (3, 7)), torch.randint(2, V, (3, 5))
    ours = hold_logits(folder, model, {"input_ids": src, "decoder_input_ids": ids})
    state, free = ours.start(3, 5, src), ours(src, ids)
    parts = torch.cat([ours.step(ids[:, :3], state), ours.step(ids[:, 3:], state)], 1)
    forbidden = torch.zeros_like(free, dtype=torch.bool)
    forbidden[..., [5, 7, 11]] = True  # a word that is the end is not forbidden
    forbidden[:, -1, torch.arange(V) != 1] = True
    torch.testing.assert_close(parts, free.masked_fill(forbidden, -torch.inf))
    ends = {"max_new_tokens": 5, "num_beams": 3, "do_sample": False}
    model.generation_config = hf.GenerationConfig(**said | FORBIDDEN | {"forced_eos_token_id": 1})
    model.generation_config.update(decoder_start_token_id=0, pad_token_id=0)
    with Wide():
        theirs = exact(model).generate(src, length_penalty=0.0, **ends)
    found = beam_search(ours, src, bos=0, eos=1, max_len=5, beam=3, alpha=0)
    for row, (best,) in zip(theirs.tolist(), found, strict=True):
        assert row[1 : row.index(1)] == list(best.ids)
    with Wide():
        theirs = exact(model).generate(src, **ends | {"num_beams": 1})
    start = torch.zeros(3, 1, dtype=torch.long)
    found = generate(ours, start, src=src, max_new_tokens=5, eos=1, temperature=0)
    assert [row[1 : row.index(1)] for row in theirs.tolist()] == found


# --- refused --------------------------------------------------------------------------------------

BLOCK = "encoder.block.1.layer.0.SelfAttention"
SELF, TABLE = "deberta.encoder.layer.2.attention.self", "deberta.encoder.rel_embeddings"
REFUSED = [
    ("bert", {"hidden_act": "relu"}, "hidden_act to .relu."),
    ("bert", {"position_embedding_type": "relative_key"}, "relative_key"),
    ("bert states", {"more.weight": (3,)}, "contains what nothing reads: more.weight"),
    ("roberta", {"pad_token_id": 71}, r"max_len must be .* -1"),
    ("distilbert", {"activation": "relu"}, "activation to .relu."),
    ("distilbert", {"n_layers": 10**9}, "n_layers to 1000000000; .* 1 to 3, the most"),
    ("modernbert", {"norm_bias": True}, "norm_bias to true"),
    ("modernbert", {"decoder_bias": False}, "decoder_bias to false"),
    ("modernbert", {"hidden_activation": "silu"}, "hidden_activation to .silu."),
    ("modernbert", {"layer_types": ["linear_attention"] * 5}, "must list 5 .*, got .*linear"),
    ("modernbert", {"local_attention": -1}, "local_attention to -1; it must be"),
    ("deberta v3", {"position_biased_input": ...}, "position_biased_input to true"),
    ("deberta v3", {"relative_attention": ...}, "relative_attention to false"),
    ("deberta v3", {"conv_kernel_size": 3}, "conv_kernel_size to 3"),
    ("deberta v3", {"embedding_size": 20}, "embedding_size to 20"),
    ("deberta v3", {"pos_att_type": "p2p|c2p"}, "terms must be 'c2p', 'p2c' or both"),
    ("deberta v3", {f"{SELF}.pos_key_proj.bias": (42,)}, "are tied but differ"),
    ("deberta v3", {f"{TABLE}.weight": (23, 42)}, r"\(23, 42\), .* \(24, 42\)"),
    ("deberta apart", {"deberta.encoder.LayerNorm.bias": (42,)}, "reads: deberta.encoder.Layer"),
    ("t5", {"architectures": ["DebertaForMaskedLM"]}, "DebertaForMaskedLM, .* isn't supported"),
    ("t5", {"feed_forward_proj": "gated-silu"}, ".gated-silu.; .* .relu. or .gated-gelu."),
    ("t5", {"is_encoder_decoder": False}, "is_encoder_decoder to false"),
    ("modernbert", OLD | {"rope_scaling": {"type": "linear", "factor": 2.0}}, "call it rope_type"),
    ("t5", {"dense_act_fn": "silu"}, "dense_act_fn to .silu."),
    ("t5", {"is_gated_act": True}, "lacks encoder.block.0.layer.1.DenseReluDense.wi_0"),
    ("t5", {"d_kv": ...}, "doesn't set d_kv"),
    ("t5", {f"{BLOCK}.q.weight": ...}, f"lacks {BLOCK}.q.weight$"),
    ("t5", {f"{BLOCK}.q.weight": (42, 55)}, rf"has {BLOCK}.q.weight \(42, 55\), .* \(55, 42\)"),
    ("t5", {f"{BLOCK}.relative_attention_bias.weight": (14, 5)}, "are tied but differ"),
    ("marian", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings"),
    ("marian", {"decoder_vocab_size": 101}, "decoder_vocab_size to 101; it must be 103"),
    ("marian", {"activation_function": "tanh"}, ".tanh."),
    ("marian", {"final_logits_bias": (1, 101)}, r"final_logits_bias \(1, 101\)"),
]


@pytest.mark.parametrize(("pair", "changes", "words"), REFUSED, indirect=["pair"])
def test_what_cannot_be_read_is_refused_in_one_line(pair, changes, words):
    alter(pair[0], changes)
    assert_refused(load_hf, pair[0], words)


CHANGED = [
    ("t5", "settings", None, "EncoderDecoder, only an unchanged Llama .* Use save_weights"),
]


@pytest.mark.parametrize(("pair", "place", "value", "words"), CHANGED, indirect=["pair"])
def test_what_no_folder_can_hold_is_not_written(pair, place, value, words, tmp_path):
    model, (part, _, name) = load_hf(pair[0]), place.rpartition(".")
    setattr(model.get_submodule(part), name, value)
    assert_refused(lambda folder: save_hf(model, folder), tmp_path / "out", words)


@pytest.mark.machinery
@some("deberta v3")
def test_it_reads_without_transformers_and_without_torchs_compiler(pair):
    script = (
        "import sys, torch; from transformer_lit.models.hf_build import load_hf;"
        "before = len(sys.modules); load_hf(sys.argv[1]);"
        "assert len(sys.modules) < before + 9;"
        "assert not {'transformers', 'torch._dynamo', 'sympy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(pair[0])], check=True)
