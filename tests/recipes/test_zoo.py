"""A model comes back as it was saved, by folder or by name, or one error says what is wrong."""

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


REFUSED = [
    (load, "multi30k-en-fr", "No model or folder named 'multi30k-en-fr'. Shipped: toy"),
    (load, "../toy", "Shipped: toy"),
    (load, "", r"contains no model: give one with config\.json or a finished run"),
    (model_card, "multi30k-en-fr", "No model named 'multi30k-en-fr'. Choose from: toy"),
]


@pytest.mark.parametrize(("call", "name", "told"), REFUSED)
def test_what_there_is_not_is_named(shelf, monkeypatch, tmp_path, call, name, told):
    (tmp_path / "empty/folder").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "empty/folder")
    with pytest.raises(InputError, match=told):
        call(name)


FILES = ("config.json", "model.safetensors", "tokenizer.json")
CONFIGS = (b"[]", b"{}", b"3", b'{"model": 3}', b'{"model": {"vocab_size": 300, "d_model": 30}}')


def damages(good):
    "A file's content, cut, emptied, overwritten, and with a bit flipped at some places."
    yield from (good[:-7], b"", b"\xff" * 100)
    for place in range(11, len(good), len(good) // 5):
        yield good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named(tmp_path, tiny_translator, name):
    "Whatever was saved; models that are shipped, too."
    tiny_translator.save(tmp_path / "model")
    path = tmp_path / "model" / name
    good = path.read_bytes()
    for content in (*damages(good), *(CONFIGS if name == "config.json" else ())):
        path.write_bytes(content)
        with pytest.raises(InputError, match=name.replace(".", r"\.")):
            load(tmp_path / "model")
    path.unlink()
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        load(tmp_path / "model")
    path.write_bytes(good)
    assert load(tmp_path / "model").model.config.d_model == 22


class TestPackage:
    def test_each_name_is_that_of_its_chapter(self):
        assert {"Llama", "RoPE", "generate", "load_hf"} <= set(dir(transformer_lit))
        for name in transformer_lit.__all__:
            found = getattr(transformer_lit, name)
            home = getattr(found, "__module__", "transformer_lit.models.hf_build")  # of a table
            assert found is vars(sys.modules[home])[name]

    def test_an_unknown_name_is_an_attribute_error(self):
        with pytest.raises(AttributeError, match="No transformer_lit attribute laod"):
            transformer_lit.laod  # noqa: B018


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
