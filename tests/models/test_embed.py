"""Encoders give the reference's states and vectors; a sentence has one vector in any company."""

import ast
import contextlib
import copy
import io
import json
import pickle
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from checkpoints import assert_refused, reconfigure, rewrite, wide_model
from sentence_folders import WORDS, backend, models_of, write_sentence_folder
from wide import Wide

from transformer_lit.course.book import paragraphs
from transformer_lit.models.bert import Bert, BertConfig
from transformer_lit.models.embed import (
    SentenceEncoder,
    ask_book,
    contrastive_loss,
    first_state,
    load_sentence_encoder,
    mean_pool,
    nearest,
)
from transformer_lit.models.hf_build import load_hf
from transformer_lit.text.tokenizer import BPETokenizer

V = 103
MODELS = {  # book/family.yml names them
    "bert": models_of(V)["bert"],
    "roberta": models_of(V)["roberta"],
    "distilbert": models_of(V)["distilbert"],
}


def folder_of(name, tmp_path):
    model = wide_model(*MODELS[name])
    model.save_pretrained(tmp_path / name)
    return tmp_path / name, model


# --- states -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_states_are_those_of_the_reference(name, tmp_path):
    folder, model = folder_of(name, tmp_path)
    ids = torch.randint(2, V, (3, 53))
    keep = torch.arange(53) < torch.tensor([[53], [23], [1]])
    ids[~keep] = 1  # RoBERTa counts positions by it
    with Wide(), torch.no_grad():
        expected = model(ids, attention_mask=keep.long()).last_hidden_state
    ours = load_hf(folder).double()
    torch.testing.assert_close(ours(ids, keep)[keep], expected[keep])


@pytest.mark.parametrize("name", MODELS)
def test_names_may_have_a_prefix_and_what_nothing_reads_is_refused(name, tmp_path):
    folder, _ = folder_of(name, tmp_path)
    ids = torch.randint(2, V, (2, 13))
    before = load_hf(folder)(ids)
    rewrite(folder, lambda tensors: {f"{name}.{n}": x for n, x in tensors.items()})
    assert torch.equal(load_hf(folder)(ids), before)
    rewrite(folder, lambda tensors: {**tensors, f"{name}.more.weight": torch.ones(3)})
    assert_refused(load_hf, folder, r"holds what nothing reads: .*more.weight")


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("bert", {"hidden_act": "relu"}, "hidden_act"),
        ("roberta", {"pad_token_id": 0}, "pad_token_id"),
        ("distilbert", {"activation": "relu"}, "activation"),
        ("distilbert", {"n_layers": 10**9}, "n_layers"),
    ],
)
def test_settings_that_are_not_built_are_refused(name, settings, words, tmp_path):
    folder, _ = folder_of(name, tmp_path)
    reconfigure(folder, **settings)
    assert_refused(load_hf, folder, words)


# --- vectors ------------------------------------------------------------------------------------


def sentences(count, longest):
    "Texts of 1 to `longest` words, drawn from the seed of the test."
    words = [word for word in WORDS if word[0] != "#"]
    lengths = torch.randint(1, longest + 1, (count,)).tolist()
    return [" ".join(words[i] for i in torch.randint(len(words), (n,))) for n in lengths]


def by_reference(model, tokenizer, texts, max_len, pool="mean"):
    "Vectors as the card of all-MiniLM-L6-v2 computes them, all texts in one batch."
    told = tokenizer(texts, padding=True, truncation=True, max_length=max_len, return_tensors="pt")
    with torch.no_grad():
        states = model(told.input_ids, attention_mask=told.attention_mask).last_hidden_state
    keep = told.attention_mask[..., None].to(states.dtype)
    x = states[:, 0] if pool == "cls" else (states * keep).sum(1) / keep.sum(1).clamp(min=1e-9)
    return F.normalize(x, dim=-1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token"])
def test_vectors_are_those_of_the_reference(name, pooling, tmp_path):
    folder = write_sentence_folder(tmp_path / "x", name, pooling=pooling, max_seq_length=31)
    model = models_of(len(backend().get_vocab()))[name][0].from_pretrained(folder).double().eval()
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=backend(), pad_token="[PAD]")
    texts = sentences(100, 47)
    with Wide():
        expected = by_reference(model, tokenizer, texts, 31, pooling.partition("_")[0])
    ours = load_sentence_encoder(folder).double()
    assert not ours.training
    torch.testing.assert_close(ours.encode(texts, batch_size=100), expected)
    torch.testing.assert_close(ours.encode(texts, batch_size=7), expected)  # in any company


def test_without_normalize_a_vector_keeps_its_length(tmp_path):
    both = ("Transformer", "Pooling")
    plain = load_sentence_encoder(write_sentence_folder(tmp_path / "a", kinds=both)).double()
    normal = load_sentence_encoder(write_sentence_folder(tmp_path / "b")).double()
    x, texts = plain.encode(WORDS), WORDS
    torch.testing.assert_close(F.normalize(x, dim=-1), normal.encode(texts))
    assert (x.norm(dim=-1) > 1.1).all()


def test_texts_are_cut_where_the_folder_says_or_the_table_ends(tmp_path):
    long = "bike " * 97
    cut = load_sentence_encoder(write_sentence_folder(tmp_path / "a", max_seq_length=13))
    whole = load_sentence_encoder(write_sentence_folder(tmp_path / "b"))
    assert len(cut.tokenizer.encode(long)) == 13
    assert len(whole.tokenizer.encode(long)) == 71  # the positions of the model
    assert whole.encode([long]).isfinite().all()
    for copied in (copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        assert len(copied(cut.tokenizer).encode(long)) == 13 == len(cut.tokenizer.encode(long))


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_of_no_text_is_refused(tmp_path, batch_size):
    encoder = load_sentence_encoder(write_sentence_folder(tmp_path / "x"))
    with pytest.raises(ValueError, match="batch_size must be"):
        encoder.encode(WORDS, batch_size=batch_size)


@pytest.mark.parametrize("pool", [mean_pool, first_state])
def test_a_sentence_of_no_token_is_0_in_any_company(pool):
    torch.manual_seed(0)
    tokenizer = BPETokenizer.train(["A man is riding a bike."], 270)
    bert = Bert(BertConfig(tokenizer.vocab_size, d_model=12, n_layers=1, n_heads=2, d_ff=13))
    encoder = SentenceEncoder(bert, tokenizer, pool=pool).double()
    together = encoder.encode(["", "A bike."])
    assert not together[0].any() and not encoder.encode("").any() and together[1].any()
    assert encoder.encode([]).shape == (0, 12)


def test_encode_uses_no_dropout_and_leaves_the_mode(tmp_path):
    encoder = load_sentence_encoder(write_sentence_folder(tmp_path / "x"))
    expected = encoder.encode(WORDS)
    encoder.train()
    assert torch.equal(encoder.encode(WORDS), expected) and encoder.training
    encoder.bert.eval()  # frozen
    assert torch.equal(encoder.encode(WORDS), expected)
    with pytest.raises(IndexError):
        encoder.bert.tok_emb.register_forward_pre_hook(lambda *_: [][0])
        encoder.encode(WORDS)
    assert encoder.training and not any(part.training for part in encoder.bert.modules())


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"pooling": "max"}, "pools by"),
        ({"kinds": ("Transformer", "Pooling", "Dense")}, "is made of Transformer, Pooling, Dense"),
        ({"do_lower_case": True}, "small"),
    ],
)
def test_what_is_not_built_is_refused(how, words, tmp_path):
    folder = write_sentence_folder(tmp_path / "x", **how)
    assert_refused(load_sentence_encoder, folder, words)


@pytest.mark.parametrize(
    "file", ["modules.json", "tokenizer.json", "1_Pooling/config.json", "config.json"]
)
@pytest.mark.parametrize("content", ["", "[3]", None])
def test_a_damaged_folder_is_one_line(file, content, tmp_path):
    folder = write_sentence_folder(tmp_path / "x")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    assert_refused(load_sentence_encoder, folder, file.rpartition("/")[2])


# --- the search ---------------------------------------------------------------------------------


def test_the_loss_is_the_cross_entropy_of_the_scores():
    x, y = F.normalize(torch.randn(2, 11, 7), dim=-1)
    expected = F.cross_entropy(x @ y.T / 0.3, torch.arange(11))
    torch.testing.assert_close(contrastive_loss(x, y, temperature=0.3), expected)


def test_the_nearest_is_that_of_the_largest_cosine_whatever_the_lengths():
    vectors = torch.randn(23, 7) * torch.rand(23, 1)
    query = torch.randn(7)
    cosines = [float(query @ v / query.norm() / v.norm()) for v in vectors]
    found = nearest(query, vectors, 5)
    assert [place for place, _ in found] == sorted(range(23), key=lambda i: -cosines[i])[:5]
    assert [score for _, score in found] == pytest.approx(sorted(cosines)[:-6:-1])
    assert len(nearest(query, vectors, 99)) == 23


def test_the_book_is_read_from_a_checkout_and_else_from_the_edition(tmp_path):
    root = tmp_path / "nbs/part"
    root.mkdir(parents=True)
    long = "A paragraph of this length says something, so that it is worth the search."
    texts = ["# Title", "> One sentence.", long, "```bash\nmake it\n```", f"## Part\n\n{long} x"]
    texts += ["Too short.", "## Exercises", long, f"### norm.1 · One\n\n{long}", "## After", long]
    cells = [{"cell_type": "markdown", "source": [text]} for text in texts]
    (root / "01_topic.ipynb").write_text(json.dumps({"cells": cells}))
    found = [(one.chapter, one.section, one.text) for one in paragraphs(tmp_path)]
    assert found == [("Title", "", long), ("Title", "Part", f"{long} x"), ("Title", "After", long)]
    assert {one.page for one in paragraphs(tmp_path)} == {"nbs/part/01_topic"}
    edition = paragraphs(tmp_path / "nowhere")
    assert len(edition) > 1000 and any("divide by √D" in one.section for one in edition)
    assert len(paragraphs()) > len(edition)  # this checkout has more chapters


# --- MiniLM -------------------------------------------------------------------------------------


@pytest.mark.machinery
def test_vectors_of_minilm_are_those_of_the_reference(minilm, single):
    texts = [one.text[: 3 * i] for i, one in enumerate(paragraphs()[:1000:10], 1)]
    assert len(texts) == 100
    model, tokenizer = (
        hf.BertModel.from_pretrained(minilm),
        hf.AutoTokenizer.from_pretrained(minilm),
    )
    expected = by_reference(model.eval(), tokenizer, texts, 256)
    found = load_sentence_encoder(minilm).encode(texts, batch_size=100)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.machinery
def test_the_chapter_shows_what_minilm_says(minilm, single):
    path = Path(__file__).parents[2] / "nbs/models/13_embed.ipynb"
    (cell,) = (c for c in json.loads(path.read_text())["cells"] if c["id"] == "real")
    names = {"load_sentence_encoder": load_sentence_encoder}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(ast.parse("".join(cell["source"])), "<real>", "exec"), names)
    assert said.getvalue() == "".join(cell["outputs"][0]["text"])


QUESTIONS = {
    "why divide by the root": "attention/03_attend",
    "how does RoPE turn queries and keys": "position/04_rope",
    "why must a decoder not look at later words": "attention/02_masks",
    "keep keys and values of earlier tokens so that they are not computed again": (
        "attention/06_cache"
    ),
    "how is the learning rate warmed up": "training/03_schedule",
    "how does a text become numbers, merging pairs of characters": "text/01_tokenizer",
    "let several query heads share one key head": "attention/07_grouped",
    "a cheap draft model guesses tokens and the large model checks them in one call": (
        "inference/04_speculative"
    ),
    "how to store weights in 4 bits": "models/11_quantise",
    "difference between layer norm and RMSNorm": "block/01_norm",
}


@pytest.mark.slow
def test_the_book_answers_ten_questions(minilm, single, tmp_path):
    encoder, book = load_sentence_encoder(minilm), paragraphs()
    for question, page in QUESTIONS.items():
        ((found, _),) = ask_book(question, encoder, book, tmp_path / "x.safetensors", top=1)
        assert found.page == f"nbs/{page}", question
