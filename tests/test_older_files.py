"""Files that a reader made with an older edition (commit 420e57b6) still work."""

import json
import zipfile
from pathlib import Path

import pytest

from transformer_lit import load
from transformer_lit.course.progress import marks, remember
from transformer_lit.exercises.my_transformer import STEPS, check_file
from transformer_lit.recipes.language_model import LanguageModeling
from transformer_lit.recipes.recipe import open_training, preset

BEFORE = """self_attention.1 masks.3 attend.3 multihead.3 rope.3 norm.3 feedforward.3 layers.3
    cache.3 grouped.3 llama.3 trainer.3 sampling.3 sampling.6 answers.3 answers.4 answers.5
    answers.6"""
MADE = Path(__file__).parent / "files_of_420e57b6.zip"
SIZES = {"d_model": 8, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "d_ff": 11}
pytestmark = pytest.mark.usefixtures("no_shape_checks")  # a reader runs without them


@pytest.fixture
def here(tmp_path, monkeypatch):
    with zipfile.ZipFile(MADE) as files:
        files.extractall(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_reader_s_transformer_passes_every_step(here):
    "Each by the exercise that it was; the steps that are new since then are still open."
    found = check_file("my_transformer.py")
    assert [id for id in BEFORE.split() if not found.verdicts[id]] == [] and not found.error
    new = {id for id, verdict in found.verdicts.items() if not verdict}
    assert new <= STEPS.keys() - set(BEFORE.split())


def test_progress_is_kept_and_exercises_that_left_count_for_nothing(here):
    before = set(json.loads((here / "my_progress.json").read_text())["passed"])
    assert before - marks().keys() == {"word_vectors.5", "fused.4", "windows.3", "checkpoint.4"}
    assert remember(["attend.3"]).startswith(tuple("123456789"))
    after = json.loads((here / "my_progress.json").read_text())
    assert set(after["passed"]) == before & marks().keys() | {"attend.3"} and after["race"] == 0.5


def test_a_run_that_was_stopped_ends_with_the_losses_that_it_would_have_had(here):
    how = {"steps": 4, "warmup": 1, "every": 2, "batch_size": 2, "tokens": None}
    recipe = preset(LanguageModeling, "stories", sizes=SIZES, **how)
    run = open_training(recipe, here / "run", seed=3, device="cpu", resume=True)
    run.train()
    expected = json.loads((here / "expected.json").read_text())["val_losses"]
    assert list(run.val_losses) == pytest.approx(expected, rel=1e-5)


def test_a_saved_model_writes(here):
    assert "".join(load(here / "model").stream("Leo ", max_new_tokens=5))
