"What results/ lacks is trained in pieces, and comes out as if it had never stopped."

import re
from dataclasses import replace

import pytest

from experiments import owed
from experiments.runner import told
from transformer_lit.course.records import read_result
from transformer_lit.recipes.language_model import LanguageModeling

pytestmark = pytest.mark.slow
SIZES = {"d_model": 8, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "d_ff": 12}


@pytest.fixture(autouse=True)
def few(monkeypatch):
    "One training of three checkpoints, and one step of one bake-off."
    base = LanguageModeling.presets["stories"]
    tiny = replace(
        base, dataset="book", sizes={**base.sizes, **SIZES}, length=16, steps=6, every=2, warmup=1
    )
    monkeypatch.setitem(LanguageModeling.presets, "tiny", tiny)
    monkeypatch.setattr(owed, "TRAININGS", [("language-model", {"preset": "tiny"})])
    monkeypatch.setattr(owed, "SEEDS", [3])
    monkeypatch.setattr(owed, "BAKEOFFS", [])
    monkeypatch.setattr(owed, "ARMS", {})
    monkeypatch.setattr(owed, "keep_freed_memory", lambda: None)


def call(folder, *options):
    where = ["--out", str(folder / "runs"), "--results", str(folder / "results")]
    return owed.main([*where, "--device", "cpu", *options])


def record(folder, name="tiny-seed3"):
    return read_result(folder / "results" / f"{name}.json")


def test_pieces_give_the_losses_of_one_run(tmp_path, capsys):
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    assert call(whole) == 0
    calls = [call(pieces, "--minutes", "0") for _ in range(3)]
    assert calls == [1, 1, 0]  # a call trains up to a checkpoint; the last one also scores
    one, other = record(whole), record(pieces)
    assert one.curve == other.curve and one.metrics == other.metrics
    assert one.command == "transformer-lit train language-model --preset tiny --seed 3"
    assert "0 trainings have no record" in capsys.readouterr().err


def test_what_is_recorded_is_not_trained_again(tmp_path, capsys):
    call(tmp_path)
    before = (tmp_path / "results/tiny-seed3.json").read_bytes()
    assert call(tmp_path) == 0
    assert (tmp_path / "results/tiny-seed3.json").read_bytes() == before
    assert "recorded" in capsys.readouterr().out.split("\n", 1)[0]


def test_a_list_trains_nothing_and_a_pattern_chooses(tmp_path, capsys):
    assert call(tmp_path, "--list") == 1
    assert capsys.readouterr().out == "tiny-seed3\n"
    assert call(tmp_path, "--list", "--only", "^shakespeare") == 0
    assert not list(tmp_path.iterdir())


def test_a_trial_has_a_name_of_its_own(tmp_path):
    assert call(tmp_path, "--steps", "2") == 0
    assert record(tmp_path, "tiny-steps2-seed3").command.endswith("--seed 3 --steps 2")
    assert call(tmp_path, "--list") == 1  # and leaves the training owed


def test_bakeoffs_for_a_gpu_are_among_them(monkeypatch):
    monkeypatch.undo()
    names = [one.name for one in owed.bakeoffs(None)]
    assert len(set(names)) == len(names) > 60


@pytest.mark.parametrize("steps", [None, 20])
def test_every_training_that_is_owed_has_a_schedule(monkeypatch, steps):
    monkeypatch.undo()
    for one in (*owed.trainings(steps), *owed.bakeoffs(steps)):
        rate, last = one.recipe.schedule(), one.recipe.steps
        assert all(0 < rate(step) <= one.recipe.lr for step in (1, 2, 11, last)), one.name
        assert steps in (None, last)


@pytest.mark.parametrize(
    "options, said",
    [
        (["--only", "["], "unterminated"),
        (["--device", "nope"], "unknown device|nope"),
        (["--out", "/dev/null/x"], "cannot write in /dev/null/x"),
        (["--results", "/dev/null/x"], "cannot write in /dev/null/x"),
    ],
)
def test_an_error_is_one_line_and_a_status_of_its_own(tmp_path, capsys, options, said):
    "So a loop that calls again while something is left comes to an end."
    assert told(lambda: call(tmp_path, *options)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and re.search(said, line)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("options", [("--steps", "0"), ("--minutes", "nan"), ("--minutes", "-1")])
def test_a_number_that_is_too_low_is_refused(tmp_path, options):
    with pytest.raises(SystemExit) as stop:
        call(tmp_path, *options)
    assert stop.value.code == 2 and not list(tmp_path.iterdir())
