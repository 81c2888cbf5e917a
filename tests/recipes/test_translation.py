"""A run can be cut anywhere and goes on bit by bit; what it learned comes back from its folder."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from transformer_lit.base.datasets import number_pairs
from transformer_lit.base.files import InputError
from transformer_lit.base.results import read_result, read_results
from transformer_lit.recipes.translation import (
    PRESETS,
    Translator,
    describe,
    finish_training,
    open_training,
    preset,
    score,
    translation_step,
)
from transformer_lit.training.checkpoint import checkpoints
from transformer_lit.training.data import collate
from transformer_lit.training.loss import cross_entropy
from transformer_lit.training.run import read_log

SIZES = {"d_model": 10, "d_ff": 13, "n_heads": 2, "n_layers": 1, "dropout": 0.1, "max_len": 97}


@pytest.fixture
def recipe(monkeypatch):
    "The preset `numbers` at sizes for a test, with dropout, so that the random state matters."
    few = {"train": number_pairs("train")[:151], "val": number_pairs("val")[:7]}
    few["test"] = number_pairs("test")[:5]
    monkeypatch.setattr(
        "transformer_lit.recipes.translation.load_pairs",
        lambda name, source, target, split, form: few[split],
    )
    sizes = {"sizes": SIZES, "vocab_size": 271, "max_tokens": 500}
    return preset("numbers", **sizes, steps=7, every=2, average=2)


def losses(folder):
    return [
        (row["step"], row["loss"], row.get("val_loss")) for row in read_log(folder / "log.jsonl")
    ]


def train(recipe, out, **options):
    training = open_training(recipe, out, device="cpu", **options)
    training.run.train()
    return training


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 6])
def test_a_cut_run_goes_on_to_the_same_losses(recipe, tmp_path, cut):
    whole = train(recipe, tmp_path / "whole")
    train(replace(recipe, steps=cut), tmp_path / "cut")
    torch.manual_seed(cut)  # another process starts with another random state
    resumed = train(recipe, tmp_path / "cut", resume=True)
    # a run that ends early measures its last step too: compare what both measured
    ours, theirs = losses(tmp_path / "cut"), losses(tmp_path / "whole")
    assert [row[:2] for row in ours] == [row[:2] for row in theirs]
    assert ours[-1] == theirs[-1] and len(ours) == 7
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert whole.run.tokens == resumed.run.tokens


KILLED = """
import sys
from transformer_lit.recipes.translation import open_training, preset
recipe = preset("numbers", sizes={sizes}, vocab_size=271, max_tokens=500, steps=40, every=3)
open_training(recipe, sys.argv[1], device="cpu", resume="resume" in sys.argv).run.train()
"""


def test_a_killed_run_goes_on_to_the_same_losses(tmp_path):
    "`kill -9` while it trains, wherever that hits; the log may end in half a line."
    code = KILLED.format(sizes=SIZES)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def start(*arguments):
        command = [sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.Popen(command, env=environment)

    whole, killed = start(tmp_path / "whole"), start(tmp_path / "killed")
    log = tmp_path / "killed/log.jsonl"
    while not (log.exists() and log.read_text().count("\n") >= 10):
        assert killed.poll() is None, "the run ended before it could be killed"
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert whole.wait() == 0
    with open(log, "a") as file:
        file.write('{"step": 1')  # what a kill in the middle of a write would leave
    assert start(tmp_path / "killed", "resume").wait() == 0
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    assert len(losses(tmp_path / "whole")) == 40


def test_the_end_of_a_run_leaves_model_and_record(recipe, tmp_path):
    training = train(recipe, tmp_path / "run")
    results = tmp_path / "results"
    record = finish_training(training, name="n", command="c", results=results)
    assert read_result(results / "n.json") == record == read_results(results, seed=0)[0]
    assert record.metrics["averaged"] == 2 and record.metrics["sentences"] == 5
    assert [row["step"] for row in record.curve] == [2, 4, 6, 7]
    assert record.parameters == sum(p.numel() for p in training.model.parameters())
    assert describe(record.metrics).startswith(f"{record.metrics['exact']:.2%} exact on 5")

    kept = checkpoints(tmp_path / "run/checkpoints")
    assert len(kept) == 2  # no more than are averaged
    translator = Translator.load(tmp_path / "run/model")
    torch.testing.assert_close(
        translator.model.state_dict(), training.model.state_dict(), rtol=0, atol=0
    )
    again = finish_training(training, name="n", command="c", results=results)
    assert again.metrics["val_loss"] == record.metrics["val_loss"]  # may be repeated


def test_the_same_seed_gives_the_same_run_and_another_seed_another(recipe, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(recipe, tmp_path / name, seed=seed)
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert losses(tmp_path / "a")[0] != losses(tmp_path / "c")[0]


def test_a_folder_belongs_to_one_run(recipe, tmp_path):
    train(replace(recipe, steps=1), tmp_path)
    with pytest.raises(InputError, match=r"holds a training already.*--resume"):
        open_training(recipe, tmp_path, device="cpu")
    with pytest.raises(InputError, match=r"other settings: .*peak 0\.004 → 0\.1"):
        open_training(replace(recipe, peak=0.1), tmp_path, device="cpu", resume=True)
    with pytest.raises(InputError, match="other settings: seed 0 → 3"):
        open_training(recipe, tmp_path, device="cpu", resume=True, seed=3)


def test_a_damaged_checkpoint_is_named(recipe, tmp_path):
    train(replace(recipe, steps=2), tmp_path)
    for name in ("model.safetensors", "optimizer.safetensors", "progress.json"):
        path = checkpoints(tmp_path / "checkpoints")[-1] / name
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(InputError, match=name.replace(".", r"\.")):
            open_training(recipe, tmp_path, device="cpu", resume=True)
        path.write_bytes(whole)
    assert open_training(recipe, tmp_path, device="cpu", resume=True).trainer.done == 2


def test_the_loss_of_real_tokens_is_the_masked_loss_of_all(tiny_translator):
    model, special = tiny_translator.model, {"pad_id": 0, "bos": 1, "eos": 2}
    batch = collate([([5, 7, 11], [13]), ([17], [19, 23, 29, 31])], **special)
    lean, count = translation_step(0.1)(model, batch)
    full = model(batch.src, batch.tgt_in, batch.src_mask)
    masked, _ = cross_entropy(full, batch.tgt_out, keep=batch.tgt_mask, smoothing=0.1)
    assert count == 7  # 1 + 4 tokens, and an end token each
    torch.testing.assert_close(lean, masked)


def test_sentences_come_back_in_order_and_alone_as_together(tiny_translator):
    sentences = ["A man.", "A man is riding a bike.", "A", "bike riding", "man man man man"]
    together = tiny_translator.translate(sentences, beam=3)
    assert together == [tiny_translator.translate([s], beam=3)[0] for s in sentences]
    assert tiny_translator.translate([]) == []


def test_progress_counts_every_sentence(tiny_translator):
    done = []
    tiny_translator.translate(["A", "man", "A bike."], progress=done.append)
    assert sum(done) == 3


@pytest.mark.parametrize("sentence", ["", "   ", "\n"])
def test_an_empty_sentence_is_refused(tiny_translator, sentence):
    with pytest.raises(InputError, match="sentence 2 is empty"):
        tiny_translator.translate(["A man.", sentence])


def test_a_sentence_that_is_too_long_is_refused(tiny_translator):
    most = tiny_translator.model.config.max_len - 1
    ids = len(tiny_translator.tokenizer.encode("A" * (most + 1)))
    with pytest.raises(InputError, match=f"has {ids} tokens, the model takes {most}"):
        tiny_translator.translate(["A" * (most + 1)])


def test_scores_are_those_of_the_metric(tiny_translator):
    sources = ["A man.", "bike"]
    found = tiny_translator.translate(sources)
    pairs = list(zip(sources, [found[0], found[1] + "!"], strict=True))
    assert score(tiny_translator, pairs)["exact"] == 0.5
    raw, tok = (
        Translator(tiny_translator.model, tiny_translator.tokenizer, {"metric": "bleu", "form": f})
        for f in ("raw", "tok")
    )
    assert "tok:13a" in score(raw, pairs)["signature"]
    assert "tok:none" in score(tok, pairs)["signature"]
    assert "case:lc" in score(raw, pairs)["signature"]


def test_presets():
    with pytest.raises(InputError, match=r"unknown preset 'large'; known are: numbers"):
        preset("large")
    assert preset("numbers", steps=3, source=None) == replace(PRESETS["numbers"], steps=3)
    tiny = PRESETS["multi30k-tiny"]
    assert tiny.sizes == {"d_model": 128, "d_ff": 256, "n_heads": 4, "n_layers": 4, "dropout": 0.3}
    json.dumps([vars(p) for p in PRESETS.values()])  # a run writes its preset down


@pytest.mark.multi30k
def test_real_pairs_become_batches_that_a_model_learns_from(
    real_data_folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("TRANSFORMER_LIT_DATA", real_data_folder)
    small = preset("multi30k-tiny", sizes=SIZES, vocab_size=400, steps=3, every=3, max_tokens=1500)
    train(small, tmp_path)
    rows = losses(tmp_path)
    assert len(rows) == 3 and rows[-1][2] < 6.5  # log 400 = 5.99 is the loss of a blind guess
