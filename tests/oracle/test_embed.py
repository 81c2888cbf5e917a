"""Encoders give the reference's states and vectors; a sentence has one vector in any company."""

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from checkpoints import assert_refused, reconfigure, rewrite
from gguf_files import theirs
from safetensors.torch import save_file
from sentence_folders import WORDS, backend, encoder, write_sentence_folder
from torch.testing import assert_close
from wide import Wide

from transformer_lit.course.book import Paragraph, paragraphs
from transformer_lit.course.files import seal
from transformer_lit.course.tensors import load_tensors, save_tensors
from transformer_lit.models.bert import Bert, BertConfig
from transformer_lit.models.embed import (
    SentenceEncoder,
    ask_book,
    encode_cached,
    first_state,
    load_sentence_encoder,
    mean_pool,
    nearest,
)
from transformer_lit.models.hf_build import load_hf
from transformer_lit.text.tokenizer import BPETokenizer

V = 103
MODELS = {"bert": 1, "roberta": 2, "distilbert": 3}  # book/family.yml names them; seeds
every = pytest.mark.parametrize("name", MODELS)


@pytest.fixture
def pair(name, tmp_path):
    "A folder as the reference writes it, and that model."
    torch.manual_seed(MODELS[name])
    model = encoder(name, V)
    model.save_pretrained(tmp_path / "folder")
    return tmp_path / "folder", model


@every
def test_states_are_those_of_the_reference(pair):
    folder, model = pair
    ids = torch.randint(2, V, (3, 53))
    keep = torch.arange(53) < torch.tensor([[53], [23], [1]])
    ids[~keep] = 1  # RoBERTa counts positions by it
    with Wide(), torch.no_grad():
        expected = model(ids, attention_mask=keep.long()).last_hidden_state
    assert_close(load_hf(folder).double()(ids, keep)[keep], expected[keep])


@every
def test_names_may_have_a_prefix(name, pair):
    folder, ids = pair[0], torch.randint(2, V, (2, 13))
    before = load_hf(folder)(ids)
    rewrite(folder, lambda tensors: {f"{name}.{n}": x for n, x in tensors.items()})
    assert torch.equal(load_hf(folder)(ids), before)


# --- vectors ------------------------------------------------------------------------------------


def sentences(count, longest):
    "Texts of 1 to `longest` words, drawn from the seed of the test."
    words = [word for word in WORDS if word[0] != "#"]
    lengths = torch.randint(1, longest + 1, (count,)).tolist()
    return [" ".join(words[i] for i in torch.randint(len(words), (n,))) for n in lengths]


def by_reference(model, tokenizer, texts, max_len, pool="mean_tokens"):
    "Vectors as the card of all-MiniLM-L6-v2 computes them, all texts in one batch."
    told = tokenizer(texts, padding=True, truncation=True, max_length=max_len, return_tensors="pt")
    with torch.no_grad():
        states = model(told.input_ids, attention_mask=told.attention_mask).last_hidden_state
    keep = told.attention_mask[..., None].to(states.dtype)
    return states[:, 0] if pool == "cls_token" else (states * keep).sum(1) / keep.sum(1)


FORMS = [("mean_tokens", ("Normalize",), 31), ("cls_token", (), 31), ("mean_tokens", (), 71)]


@every
@pytest.mark.parametrize(("pooling", "more", "longest"), FORMS)
def test_vectors_are_those_of_the_reference_in_any_company(name, pooling, more, longest, tmp_path):
    how = {"kinds": ("Transformer", "Pooling", *more), "pooling": pooling}
    how |= {"max_seq_length": 31} if longest == 31 else {}  # else the table ends there
    folder = write_sentence_folder(tmp_path / "x", name, **how)
    with Wide():
        model = hf.AutoModel.from_pretrained(folder).double().eval()
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=backend(), pad_token="[PAD]")
    texts = sentences(101, 97)
    ours = load_sentence_encoder(folder).double()
    most = min(longest, ours.bert.config.max_len)
    with Wide():
        expected = by_reference(model, tokenizer, texts, most, pooling)
    expected = F.normalize(expected, dim=-1) if more else expected
    assert not ours.training and len(ours.tokenizer.encode("bike " * 97)) == most
    for size in (101, 7):
        assert_close(ours.encode(texts, batch_size=size), expected)
    around = ours.encode([f" {text}\n" for text in texts])  # the library strips texts
    assert torch.equal(around, ours.encode(texts))
    for copied in (copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        assert len(copied(ours.tokenizer).encode("bike " * 97)) == most


@pytest.mark.parametrize("pool", [mean_pool, first_state])
def test_a_sentence_of_no_token_is_0_in_any_company(pool):
    tokenizer = BPETokenizer.train(["A man is riding a bike."], 270)
    bert = Bert(BertConfig(tokenizer.vocab_size, d_model=12, n_layers=1, n_heads=2, d_ff=13))
    found = SentenceEncoder(bert, tokenizer, pool=pool).double()
    together = found.encode(["", "A bike."])
    assert not together[0].any() and not found.encode("").any() and together[1].any()
    assert found.encode([]).shape == (0, 12)


def test_encode_uses_no_dropout_and_leaves_each_parts_mode(tmp_path):
    found = load_sentence_encoder(write_sentence_folder(tmp_path / "x"))
    expected = found.encode(WORDS)
    for frozen in (False, True):
        found.train()
        found.bert.train(not frozen)
        assert torch.equal(found.encode(WORDS), expected)
    with pytest.raises(IndexError):
        found.bert.tok_emb.register_forward_pre_hook(lambda *_: [][0])
        found.encode(WORDS)
    assert found.training and not any(part.training for part in found.bert.modules())
    with pytest.raises(ValueError, match="batch_size must be"):
        found.encode(WORDS, batch_size=0)


@pytest.mark.parametrize("name", [*MODELS, "modernbert"])
def test_what_it_writes_opens_again_and_in_the_reference(name, tmp_path):
    "Length, prompt and width too; a model of logits is written as one of states."
    folder = write_sentence_folder(tmp_path / "x", name, pooling="cls_token", max_seq_length=31)
    use = {"prompts": {"query": "who is ", "none": ""}, "default_prompt_name": "query"}
    (folder / USE).write_text(json.dumps(use | {"truncate_dim": 29}))
    ours, texts = load_sentence_encoder(folder), sentences(13, 67)
    expected = ours.encode(texts)
    ours.save(tmp_path / "out")
    again = load_sentence_encoder(tmp_path / "out")
    assert torch.equal(again.encode(texts), expected) and expected.shape == (13, 29)
    assert torch.equal(again.encode(texts, prompt="none"), ours.encode(texts, prompt="none"))
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "out")
    model = hf.AutoModel.from_pretrained(tmp_path / "out").eval()
    assert tokenizer.model_max_length == 31
    asked = [f"who is {text}" for text in texts]
    whole = F.normalize(by_reference(model, tokenizer, asked, None, "cls_token"), dim=-1)
    assert_close(expected, whole[:, :29], rtol=0, atol=1e-5)


def test_an_encoder_of_your_own_is_written_too(tmp_path):
    tokenizer = BPETokenizer.train(["A man is riding a bike."], 270)
    bert = Bert(
        BertConfig(tokenizer.vocab_size, d_model=12, n_layers=1, n_heads=2, d_ff=13, max_len=7)
    )
    found = SentenceEncoder(bert, tokenizer, normalise=False).float().eval()
    texts = ["A man is riding <eos> bikes", "man"]
    long = SentenceEncoder(bert, tokenizer, pool=lambda states, mask: states[:, 0])
    assert_refused(long.save, tmp_path / "no", "needs pool=mean_pool or pool=first_state")
    found.save(tmp_path / "out")
    again = load_sentence_encoder(tmp_path / "out")
    rows = [row[:7] for row in tokenizer.encode_all(texts)]
    assert again.tokenizer.encode_all(texts) == rows
    with torch.no_grad():
        assert torch.equal(again.encode(texts), found(*found.batch(rows)))
    with pytest.raises(ValueError, match=r"no prompt named 'query'\. Leave it out"):
        found.encode(texts, prompt="query")


def says(file, content):
    return lambda folder: (folder / file).write_text(content)


def one_more_token(folder):
    words = backend()
    words.add_tokens(["more"])
    words.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"pad_token": "more"}')


def cased(folder):
    words = backend()
    words.normalizer = None
    words.save(str(folder / "tokenizer.json"))
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')


def more(tensors):
    return {**tensors, "more.weight": torch.ones(3)}


def modules(pooling):
    return f'[{{"type": "x.Transformer", "path": ""}}, {{"type": "x.Pooling", {pooling}}}]'


USE = "config_sentence_transformers.json"
MODES = '{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true}'
POOLED = {
    MODES: "pools by mean and cls",
    '{"pooling_mode_cls_token": true}': "pools by mean and cls",
    '{"pooling_mode_mean_tokens": false}': "pools by no pooling_mode",
    '{"pooling_mode_max_tokens": true}': "pooling_mode_max_tokens to true",
    '{"pooling_mode": "max"}': "pooling_mode to .max.; it must be .mean. or .cls.",
    '{"pooling_mode": ["mean", "max"]}': r"pooling_mode to \[",
    '{"embedding_dimension": 41}': "embedding_dimension to 41, but d_model is 42. Copy it again",
    '{"new": 5}': "sets new to 5, which nothing here reads",
}
USED = {
    '{"prompts": ["a"]}': "prompts to",
    '{"prompts": {"a": 5}}': "prompts in .* sets a to 5",
    '{"prompts": {"a": "x"}, "default_prompt_name": "b"}': "name to 'b'. Use one of ..a",
    '{"truncate_dim": 0}': "truncate_dim to 0",
    '{"truncate_dim": 43}': "truncate_dim to 43",
    '{"similarity_fn_name": "manhattan"}': "similarity_fn_name to .manhattan.",
    '{"model_type": "SparseEncoder"}': "model_type to .SparseEncoder.",
    '{"new": 5}': "sets new to 5, which nothing here reads",
}
MADE = {
    '"path": "../x"': "path to .../x.",
    '"path": ".."': "path to ....",
    '"path": "/etc"': "path to ./etc.",
    '"path": "a/b"': "path to .a/b.",
    '"path": 5': "path to 5",
    '"path": "1_Pooling", "kwargs": {"a": 1}': "sets kwargs to",
}
READ = {
    '{"max_seq_length": 0}': "max_seq_length to 0",
    '{"model_args": {"x": 1}}': "model_args to",
    '{"query_length": 32}': "sets query_length to 32",
    '{"modality_config": {"image": {}}}': "modality_config to",
}
REFUSED = [
    ("bert", lambda folder: reconfigure(folder, hidden_act="relu"), "hidden_act"),
    ("roberta", lambda folder: reconfigure(folder, pad_token_id=-1), "pad_token_id to -1"),
    ("distilbert", lambda folder: reconfigure(folder, activation="relu"), "activation"),
    ("distilbert", lambda folder: reconfigure(folder, n_layers=10**9), "n_layers"),
    ("distilbert", lambda folder: rewrite(folder, more), "nothing reads: .*more.weight"),
    ("bert", lambda folder: theirs("llama").save_pretrained(folder), "a Llama, not an enc"),
    ("bert", one_more_token, "has the id 24, but the model's table has only 24 rows"),
    *(("bert", says("1_Pooling/config.json", said), words) for said, words in POOLED.items()),
    *(("bert", says(USE, said), words) for said, words in USED.items()),
    *(("bert", says("modules.json", modules(said)), words) for said, words in MADE.items()),
    *(("bert", says("sentence_bert_config.json", said), words) for said, words in READ.items()),
    ("bert", says("tokenizer_config.json", '{"model_max_length": 0}'), "model_max_length to 0"),
    ("bert", says("tokenizer_config.json", '{"truncation_side": "left"}'), "truncation_side to"),
    *(
        ("bert", says("tokenizer_config.json", said), ".json sets .* to false, and .* says true")
        for said in ('{"do_lower_case": false}', '{"strip_accents": false}')
    ),
    ("bert", cased, "sets do_lower_case to true, but tokenizer.json doesn't"),
    ("bert", lambda folder: (folder / "library.py").touch(), "code in the folder"),
    ("bert", says("modules.json", '[{"type": "x.Transformer", "path": ""}]'), "of Transformer, b"),
]
for file in ("modules.json", "tokenizer.json", "1_Pooling/config.json", "config.json"):
    last = file.rpartition("/")[2]
    REFUSED += [("bert", says(file, ""), last), ("bert", says(file, "[3]"), last)]
    REFUSED += [("bert", lambda folder, file=file: (folder / file).unlink(), last)]


@pytest.mark.parametrize(("name", "change", "words"), REFUSED)
def test_what_is_damaged_or_not_built_is_one_line(name, change, words, tmp_path):
    folder = write_sentence_folder(tmp_path / "x", name)
    change(folder)
    assert_refused(load_sentence_encoder, folder, words)


# --- the search ---------------------------------------------------------------------------------


def test_the_nearest_is_that_of_the_largest_cosine_whatever_the_lengths():
    vectors, query = torch.randn(23, 7) * torch.rand(23, 1), torch.randn(7)
    cosines = [float(query @ v / query.norm() / v.norm()) for v in vectors]
    best = sorted(range(23), key=lambda i: -cosines[i])
    for k in (5, 99):
        found = nearest(query, vectors, k)
        assert [place for place, _ in found] == best[:k]
        assert_close([score for _, score in found], [cosines[i] for i in best[:k]])


def test_a_question_is_compared_with_paragraphs_and_a_quarter_of_their_headings(tmp_path):
    found = load_sentence_encoder(write_sentence_folder(tmp_path / "x")).double()
    book = [Paragraph("", *sentences(3, 7)) for _ in range(11)]
    book.append(book[0])  # a text that is there twice
    vectors = [found.encode([f(one) for one in book]) for f in (str, lambda one: one.heading)]
    expected = nearest(found.encode("who is riding"), vectors[0] + vectors[1] / 4, 3)
    for _ in range(2):  # made, and read
        asked = ask_book("who is riding", found, book, tmp_path / "x.safetensors")
        assert_close([cosine for _, cosine in asked], [cosine for _, cosine in expected])
        assert [one for one, _ in asked] == [book[place] for place, _ in expected]
    path = tmp_path / "x.safetensors"
    whole = load_tensors(path)
    for damage in (lambda x: x.flip(0), lambda x: x[:, 1:].clone(), lambda x: x + 1e-3):
        save_tensors(whole | {"vectors": damage(whole["vectors"])}, path)
        assert_close(encode_cached(found, [*map(str, book)], path), vectors[0])
    for sealed in (whole["vectors"][:, 1:].clone(), whole["vectors"] * torch.nan):
        save_file(whole | {"vectors": sealed}, path)
        seal(f"{path}.json", {}, [path.name])  # of another encoder, or no numbers
        assert_close(encode_cached(found, [*map(str, book)], path), vectors[0])
    path.write_bytes(b"cut")
    assert_close(encode_cached(found, [*map(str, book)], path), vectors[0])


# --- MiniLM -------------------------------------------------------------------------------------


@pytest.mark.machinery
@pytest.mark.usefixtures("single")
def test_vectors_of_minilm_are_those_of_the_reference_and_of_the_chapter(minilm, capsys):
    texts = [one.text[: 3 * i] for i, one in enumerate(paragraphs()[:1000:10], 1)]
    model, tokenizer = (
        hf.AutoModel.from_pretrained(minilm),
        hf.AutoTokenizer.from_pretrained(minilm),
    )
    expected = F.normalize(by_reference(model.eval(), tokenizer, texts, 256), dim=-1)
    found = load_sentence_encoder(minilm).encode(texts, batch_size=100)
    assert_close(found, expected, rtol=0, atol=1e-5)
    page = Path(__file__).parents[2] / "nbs/models/13_embed.ipynb"
    (cell,) = (c for c in json.loads(page.read_text())["cells"] if c["id"] == "real")
    capsys.readouterr()
    exec("".join(cell["source"]), {"load_sentence_encoder": load_sentence_encoder})
    assert capsys.readouterr().out == "".join(cell["outputs"][0]["text"])
