"""What people type first works: jobs of the package's users, spelt as they tried them.

Own files in Python and by --text, --pairs, --from: recipes/test_own.py; checkpoints, chats and
saved folders: recipes/test_published.py; sentence vectors: models/test_embed.py; the compiler,
export and ONNX with a padding mask: oracle/test_compilers.py. The page that shows them all runs as
a notebook.
"""

import json
from pathlib import Path

import cards
import pytest
import torch
from sentence_folders import write_sentence_folder
from torch.testing import assert_close

from transformer_lit import (
    GPT,
    ALiBi,
    AssemblyConfig,
    GPTConfig,
    Llama,
    LlamaConfig,
    MultiHeadAttention,
    Transformer,
    TransformerConfig,
    assemble,
    generate,
    lens,
    load,
    load_sentence_encoder,
    padding_mask,
    save_hf,
)
from transformer_lit.attention.latent import LatentAttention
from transformer_lit.course.files import InputError
from transformer_lit.recipes import zoo
from transformer_lit.recipes.cli import main

SIZES = {"vocab_size": 53, "d_model": 40, "n_layers": 2, "n_heads": 4, "d_ff": 37}


def test_llama_with_alibi_is_one_word_or_an_exchanged_plug():
    torch.manual_seed(0)
    ids = torch.randint(53, (2, 7))
    config = AssemblyConfig(**SIZES, n_kv_heads=2, position="alibi", init="gpt2")
    one_word = assemble(config).double()
    exchanged = Llama(LlamaConfig(**SIZES, n_kv_heads=2, eps=1e-6)).double()
    exchanged.load_state_dict(one_word.state_dict(), strict=False)
    assert not near(one_word(ids), exchanged(ids))  # RoPE
    for layer in exchanged.layers:
        layer.attn.position = ALiBi(4).double()
    assert near(one_word(ids), exchanged(ids))


def near(got, want):
    return torch.allclose(got, want, rtol=0, atol=1e-9)


def test_an_encoder_s_states_do_not_see_padding():
    model = Transformer(TransformerConfig(**SIZES, dropout=0.0)).double()
    src, keep = torch.randint(53, (2, 7)), torch.arange(7) < torch.tensor([[7], [5]])
    states = model.encoder_states(src, keep)  # B S C
    assert states.shape == (2, 7, 40)
    assert_close(states[1:, :5], model.encoder_states(src[1:, :5]))


def test_attention_in_a_module_of_ones_own():
    attention = MultiHeadAttention(40, 4).double()
    x, memory = torch.randn(2, 7, 40).double(), torch.randn(2, 5, 40).double()
    keep = torch.arange(7) < torch.tensor([[7], [3]])  # True = a token
    out = attention(x, mask=padding_mask(keep))
    assert_close(out[1:, :3], attention(x[1:, :3]))
    assert_close(attention(x, memory), attention(x, attention.keys_values(memory)))


@pytest.mark.parametrize(
    "attention", [MultiHeadAttention(40, 4), LatentAttention(40, 4, rank=3, d_head=5)]
)
def test_a_mask_of_tokens_names_what_makes_it_one_of_keys(attention, no_shape_checks):
    keep = torch.ones(2, 7, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"bool of shape \(2, 7\); see padding_mask for B S"):
        attention(torch.randn(2, 7, 40), mask=keep)


def test_what_only_a_llama_can_is_one_line(tmp_path, no_shape_checks):
    model = GPT(GPTConfig(**SIZES))
    with pytest.raises(
        InputError, match="a GPT that was read from no folder: of these only a Llama is written"
    ):
        save_hf(model, tmp_path / "gpt")
    assert not (tmp_path / "gpt").exists()


def test_a_sentence_encoder_opens_like_any_model(tmp_path, capfd):
    folder = write_sentence_folder(tmp_path / "encoder")
    texts = ["a man is riding a bike.", "two dogs run"]
    expected = load_sentence_encoder(folder).encode(texts)
    assert torch.equal(load(folder).encode(texts), expected)
    assert_close(load(folder).encode(texts[0]), expected[0])  # one text, one vector
    in_8_bits = load(folder, weights="int8").encode(texts)
    assert 0.99 < torch.cosine_similarity(in_8_bits, expected).min() < 1 - 1e-6
    assert main(["translate", "x", "--model", str(folder)]) == 2
    assert capfd.readouterr().err.endswith("is a sentence-encoder model; it does not translate\n")


def test_a_published_model_has_a_name_once_it_was_fetched(monkeypatch, tmp_path, data_folder):
    with pytest.raises(InputError, match="transformer-lit data fetch minilm"):
        load("minilm")
    folder = write_sentence_folder(tmp_path / "encoder")
    monkeypatch.setattr(zoo, "paths", lambda name: [folder / "config.json", folder / "x"])
    assert load("minilm").encode(["two dogs"]).shape == (1, 42)


@pytest.mark.parametrize(
    ("ids", "got"), [("Eva lives", "got str"), (torch.tensor([1, 2, 3]), r"got shape \(3,\)")]
)
def test_a_text_without_a_tokenizer_is_one_line(ids, got, no_shape_checks):
    with pytest.raises(TypeError, match=rf"a tensor B T, {got}; a text: load\(…\)\.generate"):
        generate(GPT(GPTConfig(**SIZES)), ids, max_new_tokens=2)


@pytest.mark.parametrize("residual", ["pre", "post"])
def test_the_lens_reads_an_encoder_decoder(residual):
    model = Transformer(TransformerConfig(**SIZES, dropout=0.0, residual=residual)).double()
    src, tgt_in = torch.randint(53, (2, 7)), torch.randint(53, (2, 5))
    keep = torch.arange(7) < torch.tensor([[7], [5]])
    found = lens(model, src, tgt_in, keep)  # N B T V
    assert found.shape == (3, 2, 5, 53)
    assert torch.equal(found[-1], model(src, tgt_in, keep))
    first = model.embed(tgt_in)
    assert_close(found[0], model.lm_head(model.decoder_norm(first)).detach())


def test_a_device_that_is_not_there_is_one_line():
    with pytest.raises(InputError, match=r"device 'cuda:99' is not available here .*; try cpu"):
        load("stories", device="cuda:99")


@pytest.mark.parametrize("recipe", ["language-model", "translation"])
def test_files_may_stand_where_one_writes_them_first(recipe, tmp_path, monkeypatch, capfd):
    "Behind the recipe, without an option: what is wrong with them is told."
    monkeypatch.chdir(tmp_path)
    Path("mine").write_text("")
    assert main(["train", recipe, "mine", "--set", "steps=2"]) == 2
    assert capfd.readouterr().err == "error: mine is empty\n"


MOST = {  # the lines of the same job in the field, and two
    "text-code": 12 + 2,  # nanoGPT's prepare.py and command
    "classify-code": 9 + 2,  # a module in torch, around one call of the encoder
    "lora-code": 3 + 2,
    "checkpoint-code": 1 + 1 + 2,  # save_pretrained, from_pretrained
    "chat-code": 5 + 2,
    "vectors-code": 2 + 2,
    "trainer-code": 12 + 2,
}


def test_a_job_takes_hardly_more_lines_than_elsewhere():
    page = cards.chapters()["recipes/how_do_i"]
    cells = {cell["id"]: "".join(cell["source"]) for cell in json.loads(page.read_text())["cells"]}
    for name, most in MOST.items():
        shown = cards.without_checks(cards.DIRECTIVES.sub("", cells[name]))[0]
        code = [line for line in shown.split("\n") if line.strip()]
        assert len(code) <= most, (name, len(code))
