"""Gemma 3 from a GGUF file: the reference's logits and ids, and what a file may not say."""

import random

import pytest
import torch
import transformers as hf
from gguf_files import SIZES, write_model
from tokenizers import normalizers
from transformers.convert_slow_tokenizer import generate_merges

from transformer_lit.course.files import InputError
from transformer_lit.models.gguf import load_gguf
from transformer_lit.models.hf_build import load_published, save_hf
from transformer_lit.text.tokenizer import PieceTokenizer, load_tokenizer

pytestmark = pytest.mark.usefixtures("single")
WORDS = ["▁t", "th", "he", "the", "▁th", "▁the", "an", "▁a", "▁an", "in", "ing", "▁▁", "▁it", "it"]
SPECIALS = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "\n\n"]
BYTES = [f"<0x{i:02X}>" for i in range(256)]
TOKENS = [*SPECIALS, *BYTES, *WORDS, *"▁abdefghinrt\n.ä"]
KINDS = [3, 3, 3, 2, 3, 4, *[6] * 256, *[1] * (len(TOKENS) - 262)]
SCORES = [0.0] * 262 + [-float(i) for i in range(len(TOKENS) - 262)]
NEAR, FAR = "sliding_attention", "full_attention"
ROPE = {NEAR: {"rope_type": "default", "rope_theta": 10_000.0}}
ROPE |= {FAR: {"rope_type": "default", "rope_theta": 5000.0}}
LINEAR = ROPE | {FAR: {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0}}
SAID = {"gemma3.attention.sliding_window": 5, "gemma3.attention.sliding_window_pattern": 2}
SAID |= {"gemma3.attention.key_length": 16, "gemma3.attention.value_length": 16}
TOKENIZER = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default"}
TOKENIZER |= {"tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.token_type": KINDS}
TOKENIZER |= {"tokenizer.ggml.scores": SCORES, "tokenizer.ggml.merges": None}
TOKENIZER |= {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.eos_token_id": 1}
TOKENIZER |= {"tokenizer.ggml.bos_token_id": 2, "tokenizer.ggml.padding_token_id": 0}


def theirs(rope=ROPE, **more):
    sizes = {**SIZES, "vocab_size": len(TOKENS), "sliding_window": 5, "layer_types": [NEAR, FAR]}
    sizes |= {"query_pre_attn_scalar": 16, "rope_parameters": rope} | more
    model = hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**sizes)).eval()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.2)
    return model


def written(path, model, **more):
    return write_model(path / "x.gguf", "gemma3", model, **SAID | TOKENIZER | more)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    torch.set_default_dtype(torch.float32)
    return load_gguf(written(tmp_path_factory.mktemp("gemma"), theirs()))


@pytest.mark.parametrize(
    ("rope", "config", "said"),
    [
        (ROPE, {}, {}),
        (LINEAR, {}, {"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0}),
        (ROPE, {"final_logit_softcapping": 2.0}, {"gemma3.final_logit_softcapping": 2.0}),
        (
            ROPE | {NEAR: {"rope_type": "default", "rope_theta": 300.0}},
            {},
            {"gemma3.rope.freq_base_swa": 300.0},
        ),
    ],
    ids=["plain", "linear", "cap", "base"],
)
def test_logits_are_those_of_the_reference(rope, config, said, tmp_path):
    model = theirs(rope, **config)
    ours, ids = load_gguf(written(tmp_path, model, **said)).model, torch.randint(302, (3, 17))
    with torch.no_grad():
        expected = model(ids % len(TOKENS)).logits
        torch.testing.assert_close(ours(ids % len(TOKENS)), expected, rtol=1e-4, atol=2e-5)
        ours.layers[0].attn.position = ours.layers[1].attn.position
        assert (ours(ids % len(TOKENS)) - expected).abs().max() > 1e-2


def test_each_sixth_layer_sees_all_where_no_pattern_is_said(opened, tmp_path):
    plain = load_gguf(written(tmp_path, theirs(), **{n: None for n in SAID if "pattern" in n}))
    near = [x.attn.position.base for x in plain.model.layers]
    assert near == [10_000, 10_000] and opened.model.layers[1].attn.position.base == 5000
    assert opened.ends == (1,) and isinstance(opened.tokenizer, PieceTokenizer)


def test_ids_are_those_of_the_reference(opened):
    "Its tokenizer of the same tokens, with merges from the scores as its converter makes them."
    vocabulary = {token: i for i, token in enumerate(TOKENS)}
    scores = {t: s for t, s, kind in zip(TOKENS, SCORES, KINDS) if kind == 1}
    reference = hf.GemmaTokenizer(vocabulary, generate_merges(vocabulary, scores))
    reference.add_tokens(["\n\n"])
    reference.add_special_tokens({"additional_special_tokens": ["<start_of_turn>"]})
    draw = random.Random(0)
    texts = ["".join(draw.choices("the the an ing it \n.äxé🚲", k=37)) for _ in range(60)]
    for text in ["<start_of_turn>the thing\n\n", "  the   ant", "", "<0x41>", *texts]:
        ids = opened.tokenizer.encode(text)
        assert ids == [2, *reference(text, add_special_tokens=False)["input_ids"]], text
        back = opened.tokenizer.backend.decode(ids[1:], skip_special_tokens=False)
        assert back == text and opened.tokenizer.encode_part(text) == ids[1:]
        plain = text.replace("<start_of_turn>", "")
        assert opened.tokenizer.decode_bytes(ids).decode() == plain
    assert opened.tokenizer.tokens("the")[1:] == ["the"]
    assert opened.tokenizer.encode_ordinary("<start_of_turn>")[0] != 4


def test_what_was_opened_and_written_opens_again(opened, tmp_path):
    save_hf(opened, tmp_path / "folder")
    again, text = load_published(tmp_path / "folder"), "<start_of_turn>the thing äxé🚲"
    assert type(again.tokenizer) is PieceTokenizer and again.ends == opened.ends
    assert again.tokenizer.encode(text) == opened.tokenizer.encode(text)
    ids = torch.tensor([opened.tokenizer.encode(text)])
    torch.testing.assert_close(again.model(ids), opened.model(ids))
    reference = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "folder").eval()
    torch.testing.assert_close(reference(ids).logits, opened.model(ids), rtol=1e-4, atol=2e-5)
    opened.tokenizer.save(tmp_path / "tokenizer.json")
    alone = load_tokenizer(tmp_path / "tokenizer.json")
    assert type(alone) is PieceTokenizer and alone.encode(text) == opened.tokenizer.encode(text)
    alone.backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), alone.backend.normalizer]
    )
    alone.save(tmp_path / "tokenizer.json")
    with pytest.raises(InputError, match="puts a space in front of a text"):
        load_tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("gemma3.attention.sliding_window", None, "does not say gemma3.attention.sliding_window"),
        ("gemma3.attention.sliding_window_pattern", [True, False], "no int"),
        ("gemma3.attn_logit_softcapping", 50.0, "sets gemma3.attn_logit_softcapping"),
        ("gemma3.rope.scaling.type", "yarn", "yarn"),
        ("tokenizer.ggml.scores", SCORES[:-1], "without a score"),
        ("tokenizer.ggml.scores", None, "does not say tokenizer.ggml.scores"),
        ("tokenizer.ggml.add_space_prefix", True, "a space in front"),
    ],
)
def test_what_is_not_built_is_one_line(key, value, words, tmp_path):
    path = written(tmp_path, theirs(), **{key: value})
    with pytest.raises(InputError, match=words) as caught:
        load_gguf(path)
    assert "\n" not in str(caught.value)
