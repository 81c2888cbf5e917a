"""The prepared training for a GPU, in small: killed and called again, it ends as it should."""

import os
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace

import pytest

from experiments import gpu
from transformer_lit.course.records import read_results
from transformer_lit.recipes.language_model import LanguageModel
from transformer_lit.recipes.recipe import open_training
from transformer_lit.training.run import read_log


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    "Six steps on the stories, with the settings of `--tiny`."
    monkeypatch.setattr(gpu.Novels, "folder", tmp_path / "corpus")
    found = replace(gpu.novels(tiny=True).sized(batch_size=4, steps=6), most=40_000)
    found.prepare()
    return found


def test_a_training_that_is_stopped_at_any_step_has_the_losses_of_one_that_is_not(recipe, tmp_path):
    def losses(folder, *stops):
        for stop in (*stops, None):
            run = open_training(recipe, tmp_path / folder, device="cpu", resume=True)
            try:
                run.train(lambda log, stop=stop: 1 / (log.step != stop))
            except ZeroDivisionError:
                continue
        return [row["loss"] for row in read_log(tmp_path / folder / "log.jsonl")]

    whole = losses("whole")
    assert losses("stopped", 1, 4) == whole and len(whole) == 6


def test_a_plan_fits_into_its_time(recipe):
    rows = [{"batch_size": n, "tokens_per_second": r} for n, r in ((4, 100.0), (8, 640.0))]
    plan = gpu.plan(rows, 300.0, recipe)
    tokens = len(gpu.SEEDS) * plan["batch_size"] * recipe.length * plan["steps"]
    assert plan["batch_size"] == 8 and 0.9 < tokens / (300 * 640.0) <= 1


def test_what_it_needs_and_returns_is_told(capsys):
    assert gpu.main(["--tiny", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "needs 0 bytes: stories made here" in said and "3 records" in said


@pytest.mark.machinery
def test_after_a_kill_it_goes_on_to_records_and_a_model_that_writes(tmp_path):
    out = tmp_path / "runs"
    command = [sys.executable, "-m", "experiments.gpu", "--tiny", "--out", str(out)]
    first = subprocess.Popen(command, start_new_session=True)
    while not list(out.glob("*-seed0/checkpoints/*")):
        assert first.poll() is None
        time.sleep(0.1)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    began = len((out / "novels-tiny-seed0/log.jsonl").read_text().splitlines())
    for _ in range(5):  # a busy machine needs more than one call
        if subprocess.run(command).returncode == 0:
            break
    records = read_results(out / "results")
    assert {record.seed for record in records} == {0, 1, 2}
    for record in records:
        assert record.config["steps"] == record.curve[-1]["step"] > began > 0
        assert 0 < record.metrics["bits_per_byte"] < 4 and len(record.metrics["tried"]) == 3
    archive = b"".join(part.read_bytes() for part in sorted((out / "results").glob("*.tar.*")))
    (tmp_path / "whole.tar").write_bytes(archive)
    with tarfile.open(tmp_path / "whole.tar") as file:
        file.extractall(tmp_path, filter="data")
    writer = LanguageModel.load(tmp_path / "novels-tiny-seed0")
    assert len(writer.generate("The ", max_new_tokens=20, seed=0)) > 10
