"""A model comes back as it was saved, by folder or by name, or one error says what is wrong."""

import shutil
import subprocess
import sys

import pytest
import torch

import transformer_lit
from transformer_lit.course.data import data_hashes, load_pairs, load_text
from transformer_lit.course.files import InputError
from transformer_lit.course.records import read_results
from transformer_lit.recipes import zoo
from transformer_lit.recipes.zoo import card_text, load, model_card, model_names

SENTENCE = "A man is riding a bike."


@pytest.fixture
def shelf(monkeypatch, tmp_path, tiny_translator):
    "A folder of shipped models with one model, `toy`, and its card."
    folder = tmp_path / "weights"
    tiny_translator.save(folder / "toy")
    (folder / "toy/README.md").write_text("# toy\n\nRandom weights.\n")
    monkeypatch.setattr(zoo, "_WEIGHTS", folder)
    return folder


def test_by_name_and_by_folder_it_is_the_same_model(shelf, tiny_translator):
    assert model_names() == ["toy"]
    expected = tiny_translator.model.state_dict()
    for where in ("toy", shelf / "toy", str(shelf / "toy")):
        found = load(where)
        assert found.info == tiny_translator.info
        assert not found.model.training
        torch.testing.assert_close(found.model.state_dict(), expected, rtol=0, atol=0)
        assert found.translate([SENTENCE]) == tiny_translator.translate([SENTENCE])


def test_the_folder_of_a_training_will_do(tmp_path, tiny_translator):
    tiny_translator.save(tmp_path / "run/model")
    (tmp_path / "run/run.json").write_text("{}")
    assert load(tmp_path / "run").translate([SENTENCE]) == tiny_translator.translate([SENTENCE])


def test_half_precision_on_disk_is_fp32_in_memory(tmp_path, tiny_translator):
    tiny_translator.save(tmp_path / "half", dtype=torch.float16)
    tiny_translator.save(tmp_path / "full")
    sizes = [(tmp_path / x / "model.safetensors").stat().st_size for x in ("half", "full")]
    assert sizes[0] < 0.6 * sizes[1]
    assert {p.dtype for p in load(tmp_path / "half").model.parameters()} == {torch.float32}


def test_a_name_before_a_folder_of_that_name(shelf, tmp_path, monkeypatch):
    (tmp_path / "toy").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("toy").info["source"] == "en"


@pytest.mark.parametrize("wrong", ["multi30k-en-fr", "../toy", ""])
def test_an_unknown_name_lists_the_known_ones(shelf, monkeypatch, tmp_path, wrong):
    (tmp_path / "empty/folder").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "empty/folder")
    with pytest.raises(InputError, match=r"shipped are toy|holds no model"):
        load(wrong)
    with pytest.raises(InputError, match=r"no model .*shipped are toy"):
        model_card(wrong)


def test_a_folder_without_a_model_says_so(tmp_path):
    with pytest.raises(InputError, match=r"holds no model: it has no config\.json"):
        load(tmp_path)


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def empty(path):
    path.write_bytes(b"")


def overwrite(path):
    path.write_bytes(b"\xff" * 100)


def remove(path):
    path.unlink()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("damage", [cut, empty, overwrite, remove])
def test_a_damaged_file_is_named(tmp_path, tiny_translator, name, damage):
    tiny_translator.save(tmp_path / "model")
    damage(tmp_path / "model" / name)
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    "config",
    ["[]", "{}", "3", '{"model": 3}', '{"model": {"vocab_size": 300, "depth": 2}}',
     '{"model": {"vocab_size": 300, "d_model": 30, "n_heads": 7}}',
     '{"model": {"vocab_size": "many"}}'],
)  # fmt: skip
def test_a_config_that_describes_no_model_is_named(tmp_path, tiny_translator, config):
    tiny_translator.save(tmp_path / "model")
    (tmp_path / "model/config.json").write_text(config)
    with pytest.raises(InputError, match=r"config\.json"):
        load(tmp_path / "model")


def test_a_card_is_its_readme(shelf):
    assert model_card("toy").startswith("# toy")


class TestPackage:
    def test_a_plain_import_is_quick_and_load_comes_when_asked_for(self):
        code = (
            "import sys, transformer_lit as t\n"
            "assert t.__version__[0].isdigit() and {'load', 'load_hf'} <= set(dir(t))\n"
            "heavy = {'torch', 'numpy', 'matplotlib', 'pooch', 'typer', 'sacrebleu'}\n"
            "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
            "from transformer_lit import load\n"
            "assert load is sys.modules['transformer_lit.recipes.zoo'].load\n"
            "assert 'matplotlib' not in sys.modules and 'pooch' not in sys.modules\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_each_name_is_that_of_its_chapter(self):
        assert {"Llama", "RoPE", "generate", "load_hf"} <= set(dir(transformer_lit))
        for name, home in transformer_lit._HOMES.items():
            found = getattr(transformer_lit, name)
            assert found is vars(sys.modules[home])[name] and found.__module__ == home

    def test_an_unknown_name_is_an_attribute_error(self):
        with pytest.raises(AttributeError, match="'transformer_lit' has no attribute 'laod'"):
            transformer_lit.laod  # noqa: B018


def test_the_shipped_model_translates_the_running_sentence():
    assert "multi30k-en-de" in model_names()
    card = model_card("multi30k-en-de")
    assert "multi30k" in card and "BLEU" in card
    german = load("multi30k-en-de").translate([SENTENCE])[0]
    assert "Fahrrad" in german


@pytest.mark.machinery
@pytest.mark.needs("everyday")
def test_a_shipped_model_has_the_score_of_its_record():
    name = "everyday-en-de"
    (record,) = (one for one in read_results("results") if model_card(name) == card_text(name, one))
    source, target = record.direction.split("-")
    pairs = load_pairs(record.dataset, source, target, record.split)
    measured = load(name).score(pairs, beam=1)
    # the record is of fp32 weights; those shipped are rounded to half precision
    assert abs(measured["bleu"] - record.metrics["greedy_bleu"]) < 0.2


def test_the_shipped_writer_writes():
    assert "shakespeare" in model_names()
    card = model_card("shakespeare")
    assert "tinyshakespeare" in card and "nats per token" in card
    writer = load("shakespeare")
    text = "".join(writer.stream("ROMEO:", max_new_tokens=50, temperature=0))
    assert len(text) == 50 and text.startswith("\n")
    assert writer.score("To be, or not to be: that is the question:\n" * 2)["val_loss"] < 2


@pytest.mark.machinery
@pytest.mark.parametrize(
    ("name", "record", "dataset"),
    [
        pytest.param(
            *("shakespeare", "shakespeare-cpu-seed0", "tinyshakespeare"),
            marks=pytest.mark.needs("tinyshakespeare"),
        ),
        ("stories", "stories-seed0", "stories"),
    ],
)
def test_the_shipped_writers_have_the_losses_of_their_records(name, record, dataset):
    (record,) = read_results("results", name=record)
    assert record.data_sha256 == data_hashes(dataset)  # the text that it learned from
    measured = load(name).score(load_text(dataset, "val"))
    # the record is of fp32 weights; those shipped are rounded to half precision
    assert abs(measured["val_loss"] - record.metrics["val_loss"]) < 5e-4
    assert abs(measured["bits_per_byte"] - record.metrics["bits_per_byte"]) < 1e-3


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_flipped_bit_in_a_shipped_model_is_found(tmp_path, name, file):
    folder = shutil.copytree(zoo._WEIGHTS / name, tmp_path / name)
    damaged = bytearray((folder / file).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (folder / file).write_bytes(damaged)
    with pytest.raises(InputError, match=file.replace(".", r"\.")):
        load(folder)
