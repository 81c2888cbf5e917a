"""Text in, text out: a rate that fits the steps, a loss by hand, a text of any length."""

import math
from dataclasses import replace

import pytest
import torch

from transformer_lit.course.files import InputError
from transformer_lit.models.gpt import GPT, GPTConfig
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.recipes.language_model import LanguageModel, LanguageModeling
from transformer_lit.recipes.recipe import finish_training, open_training, preset
from transformer_lit.recipes.zoo import load
from transformer_lit.text.tokenizer import BPETokenizer, CharTokenizer
from transformer_lit.training.run import read_log

TEXT = "A man is riding a bike. " * 30
SIZES = {"d_model": 12, "n_layers": 2, "n_heads": 2, "d_ff": 17, "dropout": 0.1}


@pytest.fixture
def recipe(monkeypatch):
    parts = {"train": TEXT, "val": "a bike is riding a man " * 5}
    monkeypatch.setattr(
        "transformer_lit.recipes.language_model.load_text", lambda name, split, **_: parts[split]
    )
    monkeypatch.setattr("transformer_lit.recipes.recipe.data_hashes", lambda name: {})
    changes = {"sizes": SIZES, "length": 11, "batch_size": 3, "steps": 7, "warmup": 2, "every": 2}
    return preset(LanguageModeling, "shakespeare-cpu", **changes)


@pytest.fixture(params=["llama", "gpt"])
def writer(request):
    torch.manual_seed(0)
    tokenizer = CharTokenizer.train(TEXT + "\n")
    sizes = {"vocab_size": tokenizer.vocab_size, "d_model": 12, "n_layers": 2, "n_heads": 2}
    sizes |= {"d_ff": 17, "max_len": 13}
    models = {"llama": lambda: Llama(LlamaConfig(**sizes)), "gpt": lambda: GPT(GPTConfig(**sizes))}
    return LanguageModel(
        models[request.param]().double(), tokenizer, {}
    )  # float64: every processor


class TestLines:
    LINES = "a man\nA bike\n\nis riding"

    def recipe(self, recipe, monkeypatch):
        monkeypatch.setattr(
            "transformer_lit.recipes.language_model.load_text", lambda *_, **__: self.LINES
        )
        return replace(recipe, lines=True)

    def test_each_is_a_row_once_an_epoch(self, recipe, monkeypatch):
        recipe = self.recipe(recipe, monkeypatch)
        tokenizer = CharTokenizer.train(self.LINES)
        stream = recipe.stream(tokenizer, self.LINES, 3)
        for _ in range(2):
            seen, batches = [], iter(stream)
            while len(seen) < 4:
                batch = next(batches)
                assert (batch.targets[:, :-1].clamp(min=0) == batch.ids[:, 1:].clamp(min=0)).all()
                seen += batch.targets.tolist()
            said = [tokenizer.decode(i for i in row if i >= 0) for row in seen]
            assert sorted(said) == sorted(f"{line}\n" for line in self.LINES.split("\n"))

    def test_the_score_is_that_of_each_line_alone_and_a_line_ends(self, writer):
        lines = self.LINES.split("\n")
        alone = LanguageModel(writer.model, writer.tokenizer, {"lines": True})
        ids = [torch.tensor([writer.tokenizer.encode(f"\n{line}\n")]) for line in lines]
        log_p = [writer.model(row[:, :-1]).log_softmax(-1)[0] for row in ids]
        lost = [-p.gather(-1, row[0, 1:, None]).sum().item() for p, row in zip(log_p, ids)]
        scored = alone.score(self.LINES)
        assert scored["nats_per_line"] == pytest.approx(sum(lost) / 4, rel=1e-6)
        assert scored["val_loss"] == pytest.approx(sum(lost) / (len(self.LINES) + 1), rel=1e-6)
        whole = "".join(writer.stream("\na", max_new_tokens=200, seed=1))
        assert "\n" in whole
        assert "".join(alone.stream("a", max_new_tokens=200, seed=1)) == whole.partition("\n")[0]


def test_a_line_ends_where_it_ends_or_at_a_stop():
    stories = load("stories")
    line = stories.generate("Tom", seed=1)
    stop = line[len(line) // 2 :][:3]
    assert stories.generate("Tom", seed=1, stop=[stop]) == line[: line.index(stop)]
    with pytest.raises(ValueError, match="stop must be a list"):
        stories.generate("Tom", stop="dog")


def test_the_score_is_the_validation_loss_of_the_run(recipe, tmp_path):
    training = open_training(recipe, tmp_path / "run", device="cpu", seed=3)
    training.train()
    record = finish_training(training, name="n", command="c", results=tmp_path)
    # in other batches than those of the log, so in another order of fp32 sums of 10 blocks
    logged = read_log(tmp_path / "run/log.jsonl")[-1]["val_loss"]
    assert record.metrics["val_loss"] == pytest.approx(logged, rel=1e-5)
    said = LanguageModel.describe(record.metrics)
    assert said.startswith(f"{record.metrics['val_loss']:.4f} nats")


def test_a_training_shorter_than_its_warm_up_still_falls(recipe):
    rates = list(map(replace(recipe, warmup=100).schedule(), range(1, recipe.steps + 1)))
    assert rates[0] == max(rates) == recipe.lr
    assert rates[-1] == pytest.approx(recipe.lr * recipe.final)


class TestWriting:
    "The score of a text, its beginnings, seeds and folders: in the chapter of the language model."

    def test_it_goes_on_beyond_its_context(self, writer):
        "When 13 places are full, the model goes on with the last 6 tokens of what there is."
        text = "".join(writer.stream("A man is", max_new_tokens=40, temperature=0))
        assert len(text) == 40
        ids = window = writer.tokenizer.encode("A man is")
        for letter in text:
            guess = int(writer.model(torch.tensor([window]))[0, -1].argmax())
            assert writer.tokenizer.decode([guess]) == letter
            ids = [*ids, guess]
            window = ids[-6:] if len(window) == 13 else [*window, guess]

    def test_a_stop_string_ends_the_text_wherever_tokens_end(self, writer):
        whole = "".join(writer.stream("A man is", max_new_tokens=40, temperature=0))
        for start, length in ((0, 3), (5, 1), (7, 4), (11, 2)):
            stop = whole[start : start + length]
            pieces = writer.stream("A man is", max_new_tokens=40, temperature=0, stop=[stop, "\0"])
            assert "".join(pieces) == whole[: whole.index(stop)]

    @pytest.mark.parametrize("max_new_tokens", range(8))
    def test_pieces_hold_whole_characters_and_nothing_is_lost(self, max_new_tokens):
        "A BPE may cut a character into bytes; a text may end in the middle of one."
        tokenizer = BPETokenizer.train(["fährt"], 259)
        model = Llama(LlamaConfig(tokenizer.vocab_size, d_model=12, n_layers=1, n_heads=2, d_ff=7))
        writer = LanguageModel(model, tokenizer, {})
        wanted = iter(tokenizer.encode("ä🚲bc"))
        model.lm_head.register_forward_hook(
            lambda _, x, logits: torch.zeros_like(logits).index_fill_(
                -1, torch.tensor(next(wanted)), 9.0
            )
        )
        cut = "ä🚲bc".encode()[:max_new_tokens].decode(errors="replace")
        assert list(writer.stream("x", max_new_tokens=max_new_tokens, temperature=0)) == list(cut)


@pytest.mark.parametrize("length", [5, 20, 100])
def test_bits_are_shared_out_over_the_bytes_that_were_predicted(length):
    text = "Zwei Männer fahren Rad. 自転車 " * 3
    tokenizer = BPETokenizer.train([text], 280)
    ids = tokenizer.encode_text(text)
    sizes = {"d_model": 12, "n_layers": 1, "n_heads": 2, "d_ff": 17, "max_len": len(ids)}
    model = Llama(LlamaConfig(tokenizer.vocab_size, **sizes)).double().eval()
    length = min(length, len(ids) - 1)
    found = LanguageModel(model, tokenizer, {"length": length}).score(text)
    bits, n_bytes = 0.0, 0
    for start in range(0, len(ids) - length, length):
        log_probs = model(ids[None, start : start + length])[0].log_softmax(-1)
        for row, target in zip(log_probs, ids[start + 1 : start + length + 1].tolist()):
            bits -= row[target].item() / math.log(2)
            n_bytes += len(tokenizer.decode_bytes([target]))
    assert found["bits_per_byte"] == pytest.approx(bits / n_bytes)


def test_one_token_predicts_nothing(writer):
    with pytest.raises(InputError, match="'a' is only one token"):
        writer.score("a")
