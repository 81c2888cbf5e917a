"""Files that `load_gguf` opens have the reference's numbers, logits and ids; others are refused."""

import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import tracemalloc
import unicodedata
import zlib
from functools import cache
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers as hf
from checkpoints import assert_refused, wide_model
from gguf.quants import dequantize
from gguf_files import MERGES, ROPE, SPECIALS, TOKENS, config_of, finished, put, theirs, write_model
from tokenizers import pre_tokenizers
from torch.testing import assert_close
from transformers.convert_slow_tokenizer import TikTokenConverter, generate_merges
from wide import Wide

from transformer_lit.course.files import InputError
from transformer_lit.exercises import answers
from transformer_lit.exercises.my_transformer import solved_file
from transformer_lit.inference.chat import Chat
from transformer_lit.models import gguf as gguf_module
from transformer_lit.models.gguf import GGUF, KINDS, LAYOUTS, load_gguf, settings_of, tokenizer_of
from transformer_lit.models.hf import Conversion
from transformer_lit.models.hf_build import load_published, save_hf
from transformer_lit.models.quantise import Linear4, dequantise_q4_1, quantised
from transformer_lit.text.tokenizer import PieceTokenizer

pytestmark = pytest.mark.usefixtures("no_shape_checks")
ROOM = tempfile.TemporaryDirectory()
NEAR, FAR = "sliding_attention", "full_attention"
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 32}
WORDS = ["▁t", "th", "he", "the", "▁th", "▁the", "an", "▁a", "▁an", "in", "ing", "▁▁", "▁it", "it"]
PIECES = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "\n\n"]
PIECES += [*(f"<0x{i:02X}>" for i in range(256)), *WORDS, *"▁abdefghinrt\n.ä"]
PIECE_KINDS = [3, 3, 3, 2, 3, 4, *[6] * 256, *[1] * (len(PIECES) - 262)]
SCORES = [0.0] * 262 + [-float(i) for i in range(len(PIECES) - 262)]
GEMMA = {"attention.sliding_window": 5, "attention.key_length": 32, "attention.value_length": 32}
GEMMA = {f"gemma3.{name}": value for name, value in GEMMA.items()}
GEMMA |= {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default"}
GEMMA |= {"tokenizer.ggml.tokens": PIECES, "tokenizer.ggml.token_type": PIECE_KINDS}
GEMMA |= {"tokenizer.ggml.scores": SCORES, "tokenizer.ggml.merges": None}
GEMMA |= {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.eos_token_id": 1}
GEMMA |= {"tokenizer.ggml.bos_token_id": 2, "tokenizer.ggml.padding_token_id": 0}
GEMMA |= {"tokenizer.ggml.eot_token_id": 4}
TURNS = GEMMA | {"gemma3.attention.sliding_window_pattern": 2}


def gemma(near=10_000.0, layers=(NEAR, FAR), **far):
    ropes = {NEAR: {**ROPE, "rope_theta": near}, FAR: {**ROPE, **far}}
    said = {"vocab_size": len(PIECES), "sliding_window": 5, "query_pre_attn_scalar": 32}
    said |= {"num_hidden_layers": len(layers), "layer_types": [*layers]}
    return said | {"tie_word_embeddings": True, "rope_parameters": ropes}


TIED, SIXTH = {"tie_word_embeddings": True}, (NEAR,) * 5 + (FAR,)
MORE = {"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0}
MORE |= {"gemma3.final_logit_softcapping": 2.0, "gemma3.rope.freq_base_swa": 300.0}
MORE |= {"tokenizer.ggml.add_bos_token": False}
CAPPED = gemma(near=300.0, rope_type="linear", factor=8.0) | {"final_logit_softcapping": 2.0}
PLAIN = {"rope_parameters": {**ROPE, "rope_theta": 10_000.0}, "num_key_value_heads": 6}
UNSAID = {"llama.rope.freq_base": None, "llama.attention.head_count_kv": None}
LINEAR = {"rope_parameters": {**ROPE, "rope_type": "linear", "factor": 4.0}}
MODELS = {  # kind, settings of the reference, and what the file says beside them
    "llama": ("llama", {}, {}),
    "llama 3": ("llama", {**TIED, "rope_parameters": LLAMA3}, {}),
    "llama, little said": ("llama", PLAIN, UNSAID),
    "llama, stretched": ("llama", LINEAR, {"llama.rope.scaling.factor": 4.0}),
    "qwen2": ("qwen2", {}, {"tokenizer.ggml.pre": "qwen2"}),
    "qwen2 tied": ("qwen2", TIED, {}),
    "qwen3": ("qwen3", {}, {}),
    "qwen3 tied": ("qwen3", TIED, {}),
    "gemma3": ("gemma3", gemma(), TURNS),
    "gemma3 more": ("gemma3", CAPPED, TURNS | MORE),
    "gemma3 by sixes": ("gemma3", gemma(layers=SIXTH), GEMMA),
}


@cache
def written(name):
    "The file of a model, and that model in float64."
    kind, more, said = MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(zlib.crc32(name.encode()))
        build = hf.AutoModelForCausalLM.from_config
        model = wide_model(build, config_of(kind, **more))
    if name == "llama 3":
        plain, theirs = 500.0 ** -(torch.arange(0, 32, 2) / 32), model.model.rotary_emb.inv_freq
        factors = (plain / theirs).float()  # as the file holds them
        assert factors.min() == 1 and factors.max() == 4
        said = {"rope_freqs.weight": factors.numpy()}
        theirs.copy_(plain / factors)
    path = Path(tempfile.mkdtemp(dir=ROOM.name)) / "x.gguf"
    return write_model(path, kind, model, **said), model


every = pytest.mark.parametrize("name", MODELS)


def ids_of(model, T=67):
    return torch.randint(model.config.vocab_size, (3, T))


@pytest.mark.usefixtures("shape_checks")
@every
def test_logits_are_those_of_the_reference(name):
    path, model = written(name)
    opened, ids = load_gguf(path, dtype=torch.float64), ids_of(model)
    with Wide(), torch.no_grad():
        expected = model(ids).logits
    assert_close(opened.model(ids), expected)
    assert {p.dtype for p in opened.model.parameters()} == {torch.float64}
    assert opened.chat_template == "{{ messages }}" and not opened.model.training
    assert opened.ends == ((1, 4) if "gemma3" in name else (2,))


@every
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_weights_in_few_bits_are_those_of_the_whole_model(name, weights):
    path, model = written(name)
    opened, ids = load_gguf(path, weights=weights).model, ids_of(model, 7)
    whole = quantised(load_gguf(path).model, weights)
    assert opened.state_dict().keys() == whole.state_dict().keys()
    assert all(torch.equal(opened.state_dict()[n], x) for n, x in whole.state_dict().items())
    assert torch.equal(opened(ids), whole(ids)) and not opened.training
    assert not any(p.requires_grad for p in opened.parameters())


@every
def test_it_goes_out_and_comes_back(name, tmp_path):
    opened, (_, model) = load_gguf(written(name)[0]), written(name)
    if name == "llama 3":  # no setting of a folder has its factors
        return assert_refused(lambda folder: save_hf(opened, folder), tmp_path / "out", "unchanged")
    save_hf(opened, tmp_path / "out")
    again, text = load_published(tmp_path / "out"), "<start_of_turn>the <|im_end|> thing äxé🚲"
    assert type(again.tokenizer) is type(opened.tokenizer) and again.ends == opened.ends
    assert again.tokenizer.encode(text) == opened.tokenizer.encode(text)
    ids = ids_of(model, 13)
    assert torch.equal(again.model(ids), opened.model(ids))
    reference = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert_close(reference.eval()(ids).logits, opened.model(ids), rtol=1e-3, atol=1e-3)
    return None


def test_gemma3_of_62_layers_has_a_scale_of_its_own(tmp_path):
    names = [name for name in LAYOUTS["gemma3"][1].values() if "{i}" in name]
    more = {f"{x.replace('{i}', str(i))}.weight": np.ones(1) for i in range(2, 62) for x in names}
    more["gemma3.block_count"] = 62
    path = write_model(tmp_path / "x.gguf", "gemma3", written("gemma3")[1], **TURNS, **more)
    assert settings_of(GGUF(path))["query_pre_attn_scalar"] == 96 // 6


@pytest.mark.parametrize("stored", ["Q4_0", "Q4_1"])
def test_blocks_of_four_bits_are_not_rounded_twice(tmp_path, stored):
    "Rows of queries and keys are exchanged; the two numbers of a block become bfloat16."
    path = write_model(tmp_path / "x.gguf", "llama", written("llama")[1], stored)
    four, whole = load_gguf(path, weights="int4").model, load_gguf(path).model
    layers = {name: m for name, m in four.named_modules() if isinstance(m, Linear4)}
    assert len(layers) == 2 * 7
    for name, layer in layers.items():
        w = whole.get_submodule(name).weight.unflatten(-1, (-1, 32))
        most = w.abs().amax(-1, keepdim=True)  # half a step would be a thirtieth of the range
        assert ((layer.weight.view_as(w) - w).abs() <= most / 64).all()


def test_the_readers_file_answers_as_the_package_does(tmp_path):
    file, form = {}, {"rms_norm_eps": 1e-5, "head_dim": 16, **TIED}  # that of MyLlama
    exec(solved_file(), file)
    model = theirs("llama", **form)
    more = {"tokenizer.ggml.pre": "smollm"}
    path = write_model(tmp_path / "x.gguf", "llama", model, "Q4_1", **more)
    c, tensors, vocabulary = answers.read_published(path, file["dequantise"])
    mine, package = file["open_llama"](c, tensors), load_gguf(path, dtype=torch.float64)
    ids = ids_of(model, 37)
    assert_close(mine(ids), package.model(ids))
    for text in ("<|im_start|>the  bike's 12\n\n<|im_end|>ä _x", *drawn_texts("the 12 'ä_\n", 31)):
        assert file["encode"](text, vocabulary) == package.tokenizer.encode(text)


# --- tensors and metadata ------------------------------------------------------------------------


def random_bytes(kind, rows, columns):
    "Bytes of any kind; what is a float16 in them is made finite."
    numbers, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    raw = np.random.default_rng(0).integers(0, 256, (rows, columns // numbers, size), np.uint8)
    halves = {"Q4_K": (0, 2), "Q6_K": (208,), "Q4_1": (0, 2), "F32": (2,)}
    for at in halves.get(kind, (0,)):
        raw[..., at + 1] &= 0xBF  # the upper bit of the exponent
    return raw.reshape(rows, -1)


@pytest.mark.parametrize("alignment", [32, 64])
def test_any_bytes_of_every_kind_are_the_references_numbers(tmp_path, alignment):
    writer, raw = gguf.GGUFWriter(tmp_path / "x.gguf", "llama"), {}
    writer.add_custom_alignment(alignment)
    for kind in (kind.name for kind in KINDS.values()):
        raw[kind] = random_bytes(kind, 89, 768)  # more numbers than are made at once
        plain = {"F32": np.float32, "F16": np.float16}.get(kind)
        its = {} if plain else {"raw_dtype": gguf.GGMLQuantizationType[kind]}
        writer.add_tensor(kind, raw[kind].view(plain) if plain else raw[kind], **its)
        put(writer, f"behind {kind}", np.ones((3, 1), np.float32), "F32")
    file = GGUF(finished(writer, tmp_path / "x.gguf"))
    for kind, packed in raw.items():
        expected = torch.from_numpy(dequantize(packed, gguf.GGMLQuantizationType[kind]))
        assert torch.equal(file.tensor(kind), expected.view(89, 768)), kind
        assert torch.equal(file.tensor(f"behind {kind}"), torch.ones(3, 1, dtype=torch.float32))
        blocks = file.blocks(Conversion((kind,)))
        assert (blocks is not None) == (kind in ("Q4_0", "Q4_1"))
        assert blocks is None or torch.equal(dequantise_q4_1(blocks), expected)
    old = (tmp_path / "x.gguf").read_bytes().replace(b"GGUF\3", b"GGUF\2", 1)
    (tmp_path / "old.gguf").write_bytes(old)
    assert torch.equal(GGUF(tmp_path / "old.gguf").tensor("F32"), file.tensor("F32"))


VALUES = [("int8", -3), ("uint8", 250), ("int16", -300), ("uint16", 60_000), ("int32", -70_000)]
VALUES += [("uint32", 4_000_000_000), ("int64", -(2**40)), ("uint64", 2**63), ("bool", True)]
VALUES += [("float32", 0.5), ("float64", 0.1), ("string", "Fahrräder 🚲")]
VALUES += [("array", ["a", "", "ä"]), ("array", [1, -2, 3])]


def test_every_kind_of_value(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    for i, (kind, value) in enumerate(VALUES):
        getattr(writer, f"add_{kind}")(f"x.{i}", value)
    found = GGUF(finished(writer, tmp_path / "x.gguf")).metadata.values()
    plain = [[*x] if isinstance(x, memoryview) else x for x in found]
    assert plain == ["llama", *(value for _, value in VALUES)]


# --- tokenizers ----------------------------------------------------------------------------------


def reference_tokenizer(pre):
    "The reference's tokenizer of the same tokens, as it makes it for a model of that kind."
    ids = {token: i for i, token in enumerate(TOKENS)}
    pairs = [tuple(pair.split()) for pair in MERGES]
    if pre == "llama-bpe":
        made = TikTokenConverter(extra_special_tokens=SPECIALS)
        made.extract_vocab_merges_from_model = lambda _: (ids, pairs)
        return made.converted()
    if "gemma3" in pre:
        ids = {token: i for i, token in enumerate(PIECES)}
        scores = {t: s for t, s, kind in zip(PIECES, SCORES, PIECE_KINDS) if kind == 1}
        made = hf.GemmaTokenizer(ids, generate_merges(ids, scores))
        made.add_tokens(["\n\n"])
        made.add_special_tokens({"additional_special_tokens": ["<start_of_turn>"]})
        return made.backend_tokenizer
    made = (hf.Qwen2Tokenizer if pre == "qwen2" else hf.GPT2Tokenizer)(ids, pairs)
    made.add_special_tokens({"additional_special_tokens": SPECIALS})
    backend = made.backend_tokenizer
    if pre == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])
    return backend


def drawn_texts(letters, count, k=37):
    draw = random.Random(0)
    return ["".join(draw.choices(letters, k=k)) for _ in range(count)]


TEXTS = ["the 1212 things\n\n  that IT'S äre  \n x", "<|im_start|>the<|im_end|>\n", "", "<0x41>"]
TEXTS += ["<start_of_turn>the thing\n\n", "  the   ant", "bike bikes", "e\u0301 東京 12,3 !!\r\n\n"]
TEXTS += drawn_texts("the the an ing it bike \n.äxé🚲'120123\u0301", 60)


BYTES = ["gpt-2", "smollm", "llama-bpe", "qwen2"]


@pytest.mark.parametrize("pre", [*BYTES, "gemma3", "gemma3 more"])
def test_ids_are_those_of_the_reference_and_give_the_text_back(tmp_path, pre):
    reference = reference_tokenizer(pre)
    if "gemma3" in pre:  # a file may say that nothing is put in front
        path, marks, first = written(pre)[0], (0, 2, 1), [] if "more" in pre else [2]
    else:
        path, marks, first = tmp_path / "x.gguf", (None, 1, 2), [1] * (pre == "llama-bpe")
        write_model(path, "qwen3", theirs("qwen3"), **{"tokenizer.ggml.pre": pre})
    ours = load_gguf(path).tokenizer
    assert (ours.pad_id, ours.bos_id, ours.eos_id) == marks
    assert (type(ours) is PieceTokenizer) == ("gemma3" in pre)
    for text in TEXTS:
        ids = ours.encode_part(text)
        assert ids == reference.encode(text, add_special_tokens=False).ids, text
        assert ours.encode(text) == first + ids
        same = unicodedata.normalize("NFC", text) if pre == "qwen2" else text
        assert ours.backend.decode(ids, skip_special_tokens=False) == same
        for special in ours.specials:
            same = same.replace(special, "")
        assert ours.decode_bytes(ids).decode() == same
        assert not {*ours.encode_ordinary("".join(ours.specials))} & {*marks}


TURN = SPECIALS[1]
SAID = [  # keys of the metadata, and what the ids of a text are then: with the begin token or not
    ("gpt-2", {"add_bos_token": True}, True),
    ("qwen2", {"add_bos_token": True, "add_eos_token": False, "add_space_prefix": False}, True),
    ("llama-bpe", {}, True),
    ("llama-bpe", {"add_bos_token": False}, False),
    ("gpt-2", {"bos_token_id": None, "unknown_token_id": 10**6}, False),
    (
        "gpt-2",
        {"scores": [-math.inf] * len(TOKENS), "mask_token_id": 5, "token_type_count": 2},
        False,
    ),
    ("gpt-2", {"remove_extra_whitespaces": False, "normalizer.lowercase": False}, False),
    ("gpt-2", {"token_type": [4] * 3 + [1] * (len(TOKENS) - 3)}, False),
    ("gpt-2", {"token_type": [2] * 3 + [1] * (len(TOKENS) - 4) + [5]}, False),
]


@pytest.mark.parametrize(("pre", "said", "first"), SAID)
def test_settings_of_a_tokenizer_are_built_or_change_nothing(tmp_path, pre, said, first):
    more = {f"tokenizer.ggml.{name}": value for name, value in said.items()}
    more |= {"tokenizer.ggml.pre": pre, "tokenizer.chat_template.tools": "{{ tools }}"}
    path = write_model(tmp_path / "x.gguf", "llama", theirs("llama"), **more)
    opened, plain = load_gguf(path), reference_tokenizer(pre)
    assert opened.chat_template == "{{ messages }}"
    for text in (f"the {TURN}thing\n", "  ä 1234"):
        expected = plain.encode(text, add_special_tokens=False).ids
        assert opened.tokenizer.encode(text) == [1] * first + expected
        letters = opened.tokenizer.encode_ordinary(text)
        assert not {0, 1, 2} & {*letters} and opened.tokenizer.decode(letters) == text


def test_a_turn_ends_where_any_of_three_keys_says_so(tmp_path):
    more = {"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 7}
    assert load_gguf(write_model(tmp_path / "x.gguf", "llama", theirs("llama"), **more)).ends == (
        2,
        5,
        7,
    )


# --- refusals ------------------------------------------------------------------------------------

LOSSY = {"tokenizer.ggml.tokens": [x.replace("<0x41>", "no") for x in PIECES]}
LOSSY |= {"tokenizer.ggml.token_type": [3, *PIECE_KINDS[:3], *PIECE_KINDS[4:]]}
REFUSED = [
    ("llama", "general.architecture", "mamba", "sets general.architecture to .mamba."),
    ("llama", "general.quantization_version", 1, "quantization_version to 1"),
    ("llama", "split.count", 3, "split.count to 3"),
    ("llama", "llama.rope.scaling.type", "yarn", "llama.rope.scaling.type to .yarn."),
    ("llama", "llama.rope.scaling.factor", math.nan, "llama.rope.scaling.factor to NaN"),
    ("llama", "llama.rope.freq_base", math.inf, "llama.rope.freq_base to Infinity"),
    ("llama", "llama.attention.head_count", None, "doesn't set llama.attention.head_count"),
    ("llama", "llama.attention.head_count", 5, "5 heads"),
    ("llama", "llama.attention.head_count", 0, "llama.attention.head_count to 0"),
    ("llama", "llama.attention.head_count_kv", 4, "can't be built"),
    ("llama", "llama.attention.head_count_kv", -1, "llama.attention.head_count_kv to -1"),
    ("llama", "llama.attention.causal", False, "llama.attention.causal to false"),
    (
        "llama",
        "llama.block_count",
        2**31 - 1,
        "lacks blk.2.attn_norm.weight, although .* 2147483647",
    ),
    ("llama", "llama.block_count", 1, "nothing reads: blk.1"),
    ("llama", "llama.block_count", 2.0, "llama.block_count to 2.0"),
    ("llama", "llama.context_length", 0, "llama.context_length to 0"),
    ("llama", "llama.context_length", 2**31, "llama.context_length to 2147483648"),
    ("llama", "llama.rope.dimension_count", 8, "dimension_count"),
    ("llama", "llama.attention.layer_norm_rms_epsilon", 0.0, "rms_epsilon to 0.0"),
    ("llama", "llama.attention.layer_norm_rms_epsilon", math.nan, "rms_epsilon to NaN"),
    ("llama", "llama.expert_count", 8, "llama.expert_count to 8"),
    ("llama", "llama.head_dimension", 8, "head_dimension to 8, which nothing here reads"),
    ("llama", "tokenizer.ggml.model", "bert", "tokenizer.ggml.model to .bert."),
    ("llama", "tokenizer.ggml.pre", "tekken", "tokenizer.ggml.pre to .tekken."),
    ("llama", "tokenizer.ggml.pre", "default", "tokenizer.ggml.pre to .default."),
    ("llama", "tokenizer.ggml.pre", None, "doesn't set tokenizer.ggml.pre"),
    ("llama", "tokenizer.ggml.eos_token_id", 10**6, "eos_token_id to 1000000"),
    ("llama", "tokenizer.ggml.bos_token_id", -1, "bos_token_id to -1"),
    ("llama", "tokenizer.ggml.eot_token_id", len(TOKENS), "eot_token_id"),
    ("llama", "tokenizer.ggml.padding_token_id", -5, "padding_token_id to -5"),
    ("llama", "tokenizer.ggml.tokens", [*TOKENS[:-1], TOKENS[0]], "twice"),
    ("llama", "tokenizer.ggml.tokens", TOKENS[:-1], "without a kind"),
    ("llama", "tokenizer.ggml.token_type", None, "doesn't set tokenizer.ggml.token_type"),
    ("llama", "tokenizer.ggml.token_type", [0] * len(TOKENS), "of the kind 0"),
    ("llama", "tokenizer.ggml.merges", ["t h", "no such"], "merges"),
    ("llama", "tokenizer.ggml.merges", None, "doesn't set tokenizer.ggml.merges"),
    ("llama", "tokenizer.ggml.add_eos_token", True, "add_eos_token to true"),
    ("llama", "tokenizer.ggml.add_sep_token", True, "add_sep_token to true"),
    ("llama", "tokenizer.ggml.add_space_prefix", True, "a space in front"),
    ("llama", "tokenizer.ggml.add_bos_token", "yes", "add_bos_token to .yes."),
    (
        "llama",
        "tokenizer.ggml.suppress_tokens",
        [3] * 99,
        r"suppress_tokens to \[3, 3, .*…, which no",
    ),
    ("llama", "tokenizer.ggml.precompiled_charsmap", [3], "precompiled_charsmap"),
    ("llama", "tokenizer.chat_template", 3, "tokenizer.chat_template to 3"),
    ("llama", "general.alignment", 48, "an alignment of 48"),
    ("llama", "\x1b]0;x", 3, r"has the name .\\u001b\]0;x"),
    ("llama", "x" * 256, 3, "has the name .xxx"),
    ("llama", "rope_freqs.weight", np.ones(7), r"\(7,\)"),
    ("llama", "rope_freqs.weight", np.arange(16), "0 in it"),
    ("llama, stretched", "rope_freqs.weight", np.ones(16), "in another way"),
    ("qwen2", "rope_freqs.weight", np.ones(16), "nothing reads: rope_freqs.weight"),
    ("llama", "more.weight", np.ones(3), "nothing reads: more.weight"),
    ("llama", "more\x9bweight", np.ones(3), r"has the name .more\\x9bweight"),
    ("llama", "blk.1.ffn_norm.weight", np.ones(3), r"\(3,\), .* make it \(96,\)"),
    ("llama", "blk.1.ffn_norm.weight", None, "lacks blk.1.ffn_norm.weight"),
    ("llama", "blk.1.ffn_norm.weight", np.full(96, np.inf), "blk.1.ffn_norm.weight"),
    ("gemma3", "gemma3.attention.sliding_window", 0, "sliding_window to 0"),
    (
        "gemma3",
        "gemma3.attention.sliding_window_pattern",
        [True, False],
        "sliding_window_pattern to",
    ),
    ("gemma3", "gemma3.attn_logit_softcapping", 50.0, "sets gemma3.attn_logit_softcapping"),
    ("gemma3", "gemma3.final_logit_softcapping", 0.0, "final_logit_softcapping to 0.0"),
    ("gemma3", "gemma3.rope.scaling.type", "yarn", "gemma3.rope.scaling.type to .yarn."),
    ("gemma3", "tokenizer.ggml.scores", SCORES[:-1], "scores is damaged"),
    ("gemma3", "tokenizer.ggml.scores", [*SCORES[:-1], math.nan], "scores is damaged"),
    ("gemma3", "a token for a byte, or for what is unknown", LOSSY, "for unknown characters"),
    ("gemma3", "tokenizer.ggml.scores", None, "doesn't set tokenizer.ggml.scores"),
    ("gemma3", "tokenizer.ggml.bos_token_id", None, "doesn't set tokenizer.ggml.bos_token_id"),
    ("gemma3", "tokenizer.ggml.add_space_prefix", True, "a space in front"),
    ("gemma3", "tokenizer.ggml.add_space_prefix", None, "a space in front"),
]


@pytest.mark.parametrize(("name", "key", "value", "words"), REFUSED)
def test_what_is_not_built_is_one_line(tmp_path, name, key, value, words):
    (kind, more, said), path = MODELS[name], tmp_path / "x.gguf"
    said = said | (value if isinstance(value, dict) else {key: value})
    write_model(path, kind, theirs(kind, **more), **said)
    assert_refused(load_gguf, path, f"{re.escape(str(path))}.*{words}")


def test_layers_are_compared_with_what_they_need_before_a_model_is_built(tmp_path, monkeypatch):
    "A table of names alone costs little; layers would be built for each of them."
    monkeypatch.setattr(gguf_module, "empty_module", None)
    more = {f"blk.{i}.z.weight": np.ones(1) for i in range(2, 50)} | {"llama.block_count": 50}
    path = write_model(tmp_path / "x.gguf", "llama", theirs("llama"), **more)
    assert_refused(
        load_gguf, path, "lacks blk.2.attn_norm.weight, although llama.block_count is 50"
    )


def test_a_long_token_takes_memory_for_a_few_copies_of_it(tmp_path):
    n, said = 20_000, {name: x for name, x in GEMMA.items() if name.startswith("tokenizer.")}
    said["tokenizer.ggml.tokens"] = [*PIECES[:-1], "a" * n]
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "gemma3")
    for name, value in said.items():
        if value is not None:
            writer.add_key_value(name, value, gguf.GGUFValueType.get_type(value))
    file = GGUF(finished(writer, tmp_path / "x.gguf"))
    tracemalloc.start()
    tokenizer_of(file)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 * n  # all ways to cut it would be n times n letters


def number(value, form="I"):
    return struct.pack(f"<{form}", value)


KEY = b"blk.0.attn_k.weight"
ROW = KEY + number(2) + number(96, "Q") + number(64, "Q")  # name, axes, type, start
TABLE = b"token_embd.weight" + number(2) + number(96, "Q") + number(len(TOKENS), "Q") + number(8)
DAMAGES = [
    (b"GGUF", b"GGML", "isn't a GGUF file"),
    (b"GGUF\3\0\0\0", b"GGUF\0\0\0\3", "version 50331648"),  # a big-endian file
    (b"GGUF\3", b"GGUF\1", "version 1"),
    (b"GGUF\3", b"GGUF\4", "version 4"),
    (b"llama.block_count" + number(4), b"llama.block_count" + number(13), "unknown kind 13"),
    (b"llama.block_count", b"llama.\xfflock_count", "not UTF-8"),
    (b"token_type" + number(9) + number(5), b"token_type" + number(9) + number(9), "kind 9"),
    (b"llama.context_length", b"llama.head_dimension", "doesn't set llama.context_length"),
    (KEY, b"blk.0.attn_q.weight", "'blk.0.attn_q.weight' twice"),
    (KEY + number(2), KEY + number(9), "9 axes"),
    (ROW, ROW[:-8] + number(0, "Q"), "of the shape"),
    (ROW + number(8), ROW + number(9), "type 9. Supported types: "),
    (TABLE + number(0, "Q"), TABLE + number(32, "Q"), "puts 'token_embd.weight' at 32"),
]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "x.gguf"
    return write_model(path, "llama", theirs("llama"), "Q8_0")


@pytest.mark.parametrize(("old", "new", "words"), DAMAGES)
def test_a_damaged_file_is_one_line(tmp_path, good, old, new, words):
    whole, path = good.read_bytes(), tmp_path / "x.gguf"
    assert whole.count(old) == 1
    path.write_bytes(whole.replace(old, new))
    assert_refused(load_gguf, path, f"{re.escape(str(path))}.*({words})")


def test_a_file_that_is_cut_anywhere_or_is_none(tmp_path, good):
    whole, path = good.read_bytes(), tmp_path / "x.gguf"
    for size in [0, 3, 4, 8, 24, *random.Random(0).sample(range(len(whole) - 1), 40)]:
        path.write_bytes(whole[:size])
        assert_refused(load_gguf, path, re.escape(str(path)))
    path.write_text("GGUF is a file format")
    os.mkfifo(tmp_path / "pipe.gguf")
    for none in (path, tmp_path / "none.gguf", tmp_path, tmp_path / "pipe.gguf", Path("/dev/zero")):
        assert_refused(load_gguf, none, re.escape(str(none)))


def test_a_hundred_damages_are_one_line_each(tmp_path, good):
    """Numbers of 1, 4 and 8 bytes made absurd, in the part before the tensors.

    A damaged letter of a token or digit of a size that nothing contradicts opens; all else is
    told.
    """
    whole, path, draw = good.read_bytes(), tmp_path / "x.gguf", random.Random(0)
    head, refused = GGUF(good).mapped["token_embd.weight"].start, 0
    for _ in range(100):
        at, form = draw.randrange(head), draw.choice("BIQ")
        absurd = draw.choice([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, draw.getrandbits(64)])
        harm = number(absurd % 256 ** struct.calcsize(f"<{form}"), form)
        path.write_bytes((whole[:at] + harm + whole[at + len(harm) :])[: len(whole)])
        try:
            load_gguf(path)
        except InputError as error:
            assert "\n" not in str(error) and str(path) in str(error)
            refused += 1
    assert refused > 25


# --- a large file, and the published one ---------------------------------------------------------

MEMORY = """
import sys, torch
from transformer_lit.models.gguf import load_gguf

model = load_gguf(sys.argv[1], **eval(sys.argv[2])).model
with open("/proc/self/status") as lines:
    peak = next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
print(peak, sum(p.nbytes for p in model.parameters()))
"""
FORMS = {"{'dtype': torch.float64}": 8, "{}": 4, "{'weights': 'int8'}": 1.02}
FORMS |= {"{'weights': 'int4'}": 0.7}  # bytes a weight


@pytest.mark.machinery
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
def test_opening_takes_what_is_kept_and_little_more(tmp_path):
    "What libraries and tokenizer take is in all four, and cancels. What is freed goes at once."
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    model = theirs("llama", num_hidden_layers=16, intermediate_size=4096)
    numbers, beside = sum(p.numel() for p in model.parameters()), []
    path = write_model(tmp_path / "x.gguf", "llama", model, "Q8_0")
    for how, size in FORMS.items():
        command = [sys.executable, "-c", MEMORY, path, how]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
        high, kept = map(int, done.stdout.split())
        assert 0.9 * size < kept / numbers < 1.01 * size
        beside.append(high - kept)
    assert max(beside) - min(beside) < 0.15 * 4 * numbers  # a whole copy would be 7 times that


@pytest.mark.machinery
@pytest.mark.parametrize("system", [None, "Answer like a poet."])
def test_ids_logits_and_answers_of_smollm2_are_those_of_the_reference(smollm2, system):
    """Two turns, greedy; the reference library reads the whole conversation in each.

    It leaves out that digits stand alone: that is put back here, as the model's own
    `tokenizer.json` has it.
    """
    ours, where = load_gguf(smollm2, dtype=torch.float64), {"gguf_file": smollm2.name}
    reference = hf.AutoModelForCausalLM.from_pretrained(smollm2.parent, **where).double().eval()
    reader = hf.AutoTokenizer.from_pretrained(smollm2.parent, **where)
    backend, digits = reader.backend_tokenizer, pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])
    for text in [*TEXTS, *drawn_texts("abz EÖß東京🚲\n\t'.,;<|>im_endstart 0123 the of and", 100)]:
        assert ours.tokenizer.encode(text) == reader(text)["input_ids"], text
    chat = Chat(ours.model, ours.tokenizer, ours.chat_template, system)
    messages = [] if system is None else [{"role": "system", "content": system}]
    how = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": False}
    for question in ("What is the capital of France?", "And of Germany?"):
        messages.append({"role": "user", "content": question})
        text = "".join(chat.say(question, max_new_tokens=17, temperature=0))
        ids = reader.apply_chat_template(messages, **how)
        whole = reference.generate(ids, max_new_tokens=17, do_sample=False)
        _, answer = chat.turns[-1]
        assert answer == [i for i in whole[0, ids.shape[1] :].tolist() if i not in chat.ends]
        assert ids[0].tolist() == chat._ids(chat.turns[:-1]) and answer
        with torch.inference_mode():
            assert_close(ours.model(whole), reference(whole).logits, rtol=0, atol=1e-4)
        messages.append({"role": "assistant", "content": text})
