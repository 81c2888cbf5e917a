"""Raw text in, raw text out: the loss of real tokens, sentences in order, scores that say how."""

import copy
import math
from dataclasses import replace
from itertools import islice
from unittest import mock

import pytest
import torch

from transformer_lit.course.files import InputError
from transformer_lit.models.transformer import TransformerConfig
from transformer_lit.recipes.recipe import finish_training, open_training, preset
from transformer_lit.recipes.translation import (
    BPEDropoutStream,
    Translation,
    Translator,
    rdrop_loss,
    translation_loss,
)
from transformer_lit.training.data import collate
from transformer_lit.training.run import read_log


@pytest.fixture
def exact(tiny_translator):
    "The tiny translator in float64, so that equalities hold on every processor."
    model = copy.deepcopy(tiny_translator.model).double()
    return Translator(model, tiny_translator.tokenizer, tiny_translator.info)


def test_sentences_come_back_in_order_and_alone_as_together(exact):
    sentences = ["A man.", "A man is riding a bike.", "A", "bike riding", "man man man man"]
    done = []
    together = exact.translate(sentences, beam=3, progress=done.append)
    assert sum(done) == 5 and together == [exact.translate([s], beam=3)[0] for s in sentences]
    assert exact.translate([]) == []


def test_several_translations_and_their_scores(exact):
    sentences = ["A man is riding a bike.", "A"]
    best, several = exact.translate(sentences), exact.translate(sentences, n_best=3)
    assert [texts[0] for texts in several] == best and {len(texts) for texts in several} == {3}
    scored = exact.translate(sentences, n_best=3, scores=True)
    assert [[text for text, _ in row] for row in scored] == several
    assert all(row[0][1] >= row[1][1] >= row[2][1] for row in scored)
    assert exact.translate(sentences, scores=True) == [row[0] for row in scored]
    with pytest.raises(ValueError, match="n_best=0"):
        exact.translate(sentences, n_best=0)


REFUSED = [
    *((["A man.", blank], "sentence 2 is empty") for blank in ("", "   ", "\n")),
    ("Hello", r"Write \[text\]$"),  # not taken for a list of letters
    (["A" * 31], "has 31 tokens, the model takes 30"),
]


@pytest.mark.parametrize(("sentences", "told"), REFUSED)
def test_what_cannot_be_translated_is_refused(tiny_translator, sentences, told):
    with pytest.raises(InputError, match=told):
        tiny_translator.translate(sentences)


def test_a_sentence_longer_than_a_search_is_searched_alone(exact, monkeypatch):
    texts = ["a dog runs", "a man rides a bike in the park"]
    expected = exact.translate(texts, beam=2)
    monkeypatch.setattr("transformer_lit.recipes.translation._SEARCH_TOKENS", 1)
    assert exact.translate(texts, beam=2) == expected


def test_scores_are_those_of_the_metric(tiny_translator):
    sources = ["A man.", "bike"]
    found = tiny_translator.translate(sources)
    pairs = list(zip(sources, [found[0], found[1] + "!"], strict=True))
    assert tiny_translator.score(pairs)["exact"] == 0.5
    own, info = tiny_translator, {**tiny_translator.info, "metric": "bleu"}
    raw, tok = (Translator(own.model, own.tokenizer, {**info, "form": f}) for f in ("raw", "tok"))
    assert "tok:13a" in raw.score(pairs)["signature"]
    assert "tok:none" in tok.score(pairs)["signature"]
    assert "case:lc" in raw.score(pairs)["signature"]


def test_chinese_is_cut_where_it_has_no_spaces(tiny_translator, monkeypatch):
    info = {"metric": "bleu", "form": "raw", "source": "en", "target": "zh", "alpha": 1.0}
    into = Translator(tiny_translator.model, tiny_translator.tokenizer, info)
    said = "一個男人在騎自行車。"
    monkeypatch.setattr(into, "translate", lambda sources, **_: [said] * len(sources))
    score = into.score([("A man is riding a bike.", "一個男人正在騎自行車。")], beam=1)
    assert "tok:zh" in score["signature"]
    # counted by hand: ten signs against eleven; in runs of 1, 2, 3 and 4 agree 10/10, 8/9, 6/8, 4/7
    expected = 100 * (10 / 10 * 8 / 9 * 6 / 8 * 4 / 7) ** (1 / 4) * math.exp(1 - 11 / 10)
    assert score["bleu"] == pytest.approx(expected)
    out_of = Translator(into.model, into.tokenizer, {**info, "source": "zh", "target": "en"})
    assert "tok:13a" in out_of.score([("自行車", "A bike.")], beam=1)["signature"]


def test_a_beam_is_scored_beside_the_greedy_search(tiny_translator):
    sources = ["A man.", "bike", "A man is riding"]
    greedy = tiny_translator.translate(sources, beam=1)
    pairs = list(zip(sources, [greedy[0], greedy[1], greedy[2] + "!"], strict=True))
    with mock.patch.object(tiny_translator, "translate", wraps=tiny_translator.translate) as made:
        both = tiny_translator.score(pairs, beam=3)
    assert [call.kwargs["beam"] for call in made.call_args_list] == [3, 1]
    assert both["greedy_exact"] == tiny_translator.score(pairs, beam=1)["exact"] == 2 / 3
    assert both["beam"] == 3 and "greedy_exact" not in tiny_translator.score(pairs, beam=1)


@pytest.mark.parametrize("rdrop", [0.0, 5.0])
def test_smoothing_and_rdrop_are_for_training_alone(exact, rdrop):
    recipe, model = preset(Translation, "multi30k-tiny", rdrop=rdrop), exact.model.train()
    batch = collate([([5, 7, 11], [13]), ([17], [19, 23, 29])], pad_id=0, bos=1, eos=2)
    how = {"smoothing": 0.1} | ({"weight": 5.0} if rdrop else {})

    def drawn(loss, *args, **more):
        torch.manual_seed(3)  # of what is dropped
        return loss(model, batch, *args, **more)

    expected = drawn(rdrop_loss if rdrop else translation_loss, **how)
    torch.testing.assert_close(drawn(recipe.step), expected)
    torch.testing.assert_close(drawn(recipe.loss), drawn(translation_loss))
    assert (drawn(recipe.step)[0] - drawn(recipe.loss)[0]).abs() > 1e-3


def test_bpe_dropout_cuts_anew_in_each_epoch_and_the_same_again():
    recipe = preset(Translation, "numbers", max_tokens=211, bpe_dropout=0.3)
    examples = recipe.examples("train")[:131]
    tokenizer = recipe.train_tokenizer(examples)
    streams = [recipe.stream(tokenizer, examples, seed=5) for _ in range(2)]
    length = len(streams[0].epoch(0))
    whole = list(islice(streams[0], length + 3))  # into the second epoch
    streams[1].position = (1, 1)
    for ours, its in zip(whole[length + 1 :], streams[1]):  # a training that goes on
        assert torch.equal(ours.src, its.src) and torch.equal(ours.tgt_out, its.tgt_out)
    epochs = []
    for number in (0, 1):
        streams[0].epoch(number)
        epochs.append(streams[0].pairs)
        assert [tuple(map(tokenizer.decode, pair)) for pair in streams[0].pairs] == examples
    assert epochs[0] != epochs[1]  # other pieces of the same text


def test_bpe_dropout_of_0_is_bpe_and_no_batch_of_an_evaluation_is_cut_anew():
    plain, dropping = (preset(Translation, "numbers", bpe_dropout=p) for p in (0.0, 0.3))
    examples = plain.examples("val")
    tokenizer = plain.train_tokenizer(examples)
    one = plain.stream(tokenizer, examples, seed=3)
    other = BPEDropoutStream(examples, tokenizer, 0.0, max_tokens=plain.max_tokens, seed=3)
    assert one.epoch(7) == other.epoch(7) and one.pairs == other.pairs
    for ours, its in zip(*(r.batches(tokenizer, examples) for r in (plain, dropping)), strict=True):
        assert torch.equal(ours.src, its.src) and torch.equal(ours.tgt_out, its.tgt_out)


@pytest.mark.machinery
def test_a_recurrent_model_is_trained_searched_and_read_back(tmp_path, monkeypatch):
    sizes = {"model": "gru", "sizes": {"d_model": 6, "max_len": 83}, "vocab_size": 263}
    recipe = preset(Translation, "numbers", **sizes, steps=2, every=1, max_tokens=500)
    training = open_training(recipe, tmp_path, device="cpu")
    training.train()
    training.trained.model.train()  # as a training that was broken off leaves it
    monkeypatch.setattr(Translator, "score", lambda self, *args, **_: {"on": self.model.training})
    where = {"name": "n", "command": "c", "results": tmp_path}
    assert not finish_training(training, **where).metrics["on"]
    words = ["one", "twenty-one"]
    again = Translator.load(tmp_path / "model").translate(words)
    assert again == training.trained.translate(words)


@pytest.mark.machinery
@pytest.mark.needs("multi30k")
def test_real_pairs_become_batches_that_a_model_learns_from(tmp_path):
    sizes = {"d_model": 10, "d_ff": 13, "n_heads": 2, "n_layers": 1, "dropout": 0.1, "max_len": 97}
    small = preset(Translation, "multi30k-tiny", steps=3, every=3, max_tokens=1500)
    small = replace(small, sizes=sizes, vocab_size=400)
    open_training(small, tmp_path, device="cpu").train()
    rows = read_log(tmp_path / "log.jsonl")
    # a blind guess loses log 400 = 5.99
    assert len(rows) == 3 and rows[-1]["val_loss"] < 6.5


@pytest.mark.needs("multi30k")
def test_captions_are_as_long_as_the_chapter_says():
    recipe = preset(Translation, "multi30k-tuned", form="tok")
    words = [[len(said.split()) for _, said in recipe.examples(s)] for s in ("val", recipe.test)]
    assert [round(sum(counts) / len(counts), 2) for counts in words] == [12.65, 12.10]


@pytest.mark.machinery
@pytest.mark.needs("tatoeba")
def test_chinese_pairs_become_batches_and_the_preset_reads_them_forty_times():
    recipe = preset(Translation, "tatoeba-cpu")
    examples = recipe.examples("train")
    tokenizer = recipe.train_tokenizer(examples)
    batches = recipe.batches(tokenizer, examples)
    assert 40 < recipe.steps / len(batches) < 41
    assert sum(len(batch.src) for batch in batches) == len(examples) == 18_549
    assert max(batch.tgt_out.numel() for batch in batches) <= recipe.max_tokens
    row = batches[0].src[0][batches[0].src_mask[0]].tolist()
    assert tokenizer.decode(row) in {source for source, _ in examples}  # every byte comes back
    sources = [source for source, _ in recipe.examples(recipe.test)]
    longest = max(map(len, tokenizer.encode_all(sources)))
    assert longest < TransformerConfig(vocab_size=2).max_len  # the whole test can be translated


def test_a_translator_searches_with_its_own_length_penalty(exact):
    sentences = ["A man is riding a bike.", "bike riding", "A"]
    long = Translator(exact.model, exact.tokenizer, {**exact.info, "alpha": 3.0})
    assert long.translate(sentences) == exact.translate(sentences, alpha=3.0)
    pairs = [(s, s) for s in sentences]
    assert long.score(pairs, beam=2) == exact.score(pairs, beam=2, alpha=3.0)
    assert exact.score(pairs, beam=2)["alpha"] == 1.0


def test_the_rate_falls_as_its_recipe_says():
    recipe = preset(Translation, "multi30k-cpu", steps=8009, lr=0.003)
    usual, cosine = (replace(recipe, fall=fall).schedule() for fall in ("inverse_sqrt", "cosine"))
    assert usual(800) == cosine(800) == 0.003
    assert usual(3200) == pytest.approx(0.003 / 2)  # √(800 / 3200)
    assert cosine(8009) == pytest.approx(0.003 / 20)
    short = replace(recipe, fall="cosine", steps=101).schedule()  # it warms up for a tenth
    assert short(10) == 0.003 > short(11) and short(101) == pytest.approx(0.003 / 20)
