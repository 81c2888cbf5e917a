"The third model learns from what people wrote and from what the first two make of it."

import json
from argparse import Namespace
from dataclasses import replace

import pytest

from experiments import diverse
from transformer_lit.course.data import number_pairs
from transformer_lit.course.files import InputError, write_json
from transformer_lit.course.records import read_result
from transformer_lit.recipes.translation import Translation

pytestmark = pytest.mark.slow
SIZES = {"d_model": 8, "d_ff": 12, "n_heads": 2, "n_layers": 1}
WROTE = number_pairs("train")[:7]
SAID = [f"{source} again" for source, _ in WROTE], [f"{target} wieder" for _, target in WROTE]
WORDS = ["--preset", "tiny", "--form", "raw", "--steps", "4", "--device", "cpu"]
NAME = "tiny-diverse-en-de-raw-steps4-seed3"


@pytest.fixture(autouse=True)
def few(monkeypatch):
    "Seven pairs, trainings of two checkpoints, and models that say what a table says."
    numbers = Translation.presets["numbers"]
    tiny = replace(numbers, sizes={**numbers.sizes, **SIZES}, vocab_size=290, every=2, warmup=1)
    monkeypatch.setitem(Translation.presets, "tiny", tiny)

    def examples(recipe, split, *, progressbar=False):
        return WROTE if recipe.source == "en" else [pair[::-1] for pair in WROTE]

    def translate(model, sentences, **how):
        english = model.info["source"] == "en"
        pairs = [pair if english else pair[::-1] for pair in WROTE]
        said = dict(zip([pair[0] for pair in pairs], SAID[english], strict=True))
        return [said[sentence] for sentence in sentences]

    monkeypatch.setattr(Translation, "examples", examples)
    monkeypatch.setattr(diverse.Translator, "translate", translate)
    monkeypatch.setattr(diverse, "AT_ONCE", 5)
    monkeypatch.setattr(diverse, "keep_freed_memory", lambda: None)


def call(folder, *options):
    where = ["--out", str(folder / "runs"), "--results", str(folder / "results")]
    return diverse.main([*WORDS, "--seed", "3", *where, *options])


def made_pairs(folder):
    (path,) = (folder / "runs").glob("made-*.json")
    return json.loads(path.read_text())["pairs"]


def test_people_stand_on_one_side_of_every_made_pair(tmp_path):
    assert call(tmp_path, "--minutes", "9") == 0
    english, german = zip(*WROTE, strict=True)
    expected = [*zip(english, SAID[1], strict=True), *zip(SAID[0], german, strict=True)]
    assert list(map(tuple, made_pairs(tmp_path))) == expected


def test_three_models_are_recorded_and_the_third_is_wider(tmp_path):
    call(tmp_path, "--minutes", "9")
    names = {path.stem for path in (tmp_path / "results").glob("*.json")}
    assert names == {NAME, "tiny-en-de-raw-steps4-seed0", "tiny-de-en-raw-steps4-seed0"}
    record = read_result(tmp_path / "results" / f"{NAME}.json")
    assert record.config["sizes"]["d_ff"] == 512 and record.seed == 3
    assert record.command.startswith("python -m experiments.diverse --preset tiny --source en")


def test_another_optimiser_is_for_the_third_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(diverse.NEEDS, "muon", {"lr": 7e-3, "steps": 6})
    assert call(tmp_path, "--minutes", "9", "--optimizer", "muon") == 0
    third, first = "tiny-diverse-muon-en-de-raw-steps4-seed3", "tiny-en-de-raw-steps4-seed0"
    third, first = (read_result(tmp_path / "results" / f"{name}.json") for name in (third, first))
    assert [one.config["optimizer"] for one in (third, first)] == ["muon", "adamw"]
    assert third.config["lr"] == 7e-3 != first.config["lr"]
    assert third.config["steps"] == 4  # as asked for, not the 6
    assert third.command.endswith("--seed 3 --steps 4 --optimizer muon")


def recipe_of(pairs, folder):
    path = folder / "made.json"
    write_json(path, {"pairs": pairs})
    added = {"made": str(path), "made_sha256": diverse.file_sha256(path)}
    return diverse.Diverse(**vars(Translation.presets["tiny"]), **added)


def test_no_pair_comes_twice_and_none_is_empty(tmp_path):
    recipe = recipe_of([("a", "b"), WROTE[2], ("a", "b"), ("c", ""), ("", "d")], tmp_path)
    assert recipe.examples("train") == [*WROTE, ("a", "b")]
    assert recipe.examples("val") == WROTE  # what is measured on is what people wrote


def test_the_vocabulary_is_of_what_people_wrote(tmp_path):
    recipe, usual = recipe_of([("zzzzzz", "yyyyyy")] * 9, tmp_path), Translation.presets["tiny"]
    learned = [one.train_tokenizer(one.examples("train")) for one in (recipe, usual)]
    learned = [tokenizer.encode("zzzzzz nine") for tokenizer in learned]
    assert learned[0] == learned[1]


def test_a_file_that_changed_is_refused(tmp_path):
    recipe = recipe_of([("a", "b")], tmp_path)
    write_json(tmp_path / "made.json", {"pairs": [("a", "c")]})
    with pytest.raises(InputError, match=r"made\.json has changed .*; make it again"):
        recipe.examples("train")


def test_runs_have_names_of_their_own():
    recipe, given = Translation.presets["tiny"], Namespace(preset="tiny", steps=None)
    assert diverse.run_name(recipe, given, 5, "diverse") == "tiny-diverse-en-de-raw-seed5"


def test_teachers_of_several_seeds_or_none_add_up(tmp_path):
    assert call(tmp_path, "--minutes", "9", "--forth", "--back", "0", "1") == 0
    _, german = zip(*WROTE, strict=True)
    assert list(map(tuple, made_pairs(tmp_path))) == [*zip(SAID[0], german, strict=True)] * 2
    names = {path.stem for path in (tmp_path / "results").glob("*.json")}
    third = "tiny-diverse-forth-back0_1-en-de-raw-steps4-seed3"
    assert names == {third, "tiny-de-en-raw-steps4-seed0", "tiny-de-en-raw-steps4-seed1"}
    record = read_result(tmp_path / "results" / f"{third}.json")
    assert record.command.endswith("--seed 3 --steps 4 --forth --back 0 1")


def test_the_last_training_can_be_longer(tmp_path):
    assert call(tmp_path, "--minutes", "9", "--last-steps", "6") == 0
    third = "tiny-diverse-last6-en-de-raw-steps4-seed3"
    record = read_result(tmp_path / "results" / f"{third}.json")
    assert record.config["steps"] == 6 and record.command.endswith("--steps 4 --last-steps 6")
    first = read_result(tmp_path / "results" / "tiny-en-de-raw-steps4-seed0.json")
    assert first.config["steps"] == 4


def test_seeds_1_and_2_are_not_seed_12(tmp_path):
    "Neither the record nor the made pairs of the one are taken for those of the other."
    one, other = (
        Namespace(forth=f, back=[0], last_steps=None, optimizer="adamw") for f in ([1, 2], [12])
    )
    assert diverse.unusual(one)[0] == ["forth1_2"] != diverse.unusual(other)[0] == ["forth12"]
    call(tmp_path, "--minutes", "9", "--forth", "--back", "1", "2")
    call(tmp_path, "--minutes", "9", "--forth", "--back", "12")
    assert len(list((tmp_path / "runs").glob("made-*.json"))) == 2
