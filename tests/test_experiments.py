"""Experiments run on the recipes and go on after a stop; a record can be measured again."""

import json
import subprocess
from pathlib import Path

import pytest
import torch

from experiments import __main__ as command
from experiments import rerun
from experiments.runner import Cell, Experiment, covering
from transformer_lit.course.files import InputError
from transformer_lit.course.records import read_measurement
from transformer_lit.recipes.language_model import LanguageModeling
from transformer_lit.recipes.recipe import preset

pytestmark = pytest.mark.machinery
ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results/measurements"


@pytest.fixture(autouse=True)
def seed(monkeypatch, no_shape_checks):
    "And nothing that would outlive the test. Some of them compile, which checks would stop."
    torch.manual_seed(0)
    monkeypatch.setattr(command, "keep_freed_memory", lambda: None)


def fields(rows):
    return {frozenset(row) for row in rows}


@pytest.mark.parametrize("name", command.EXPERIMENTS)
def test_every_experiment_runs_quickly_with_the_fields_of_its_record(name, tmp_path):
    rows = command.main([name, "--quick", "--out", str(tmp_path), "--kept", str(tmp_path)])
    assert not list(tmp_path.iterdir())  # a quick run is no record
    record = read_measurement(RECORDS / f"{name}.json")
    assert fields(rows) == fields(record.rows)
    assert record.command == f"python -m experiments {name}"


def test_a_run_that_was_stopped_goes_on_with_what_is_missing(monkeypatch, tmp_path):
    recipe = preset(LanguageModeling, "stories", dataset="book", steps=1, every=1, warmup=1)
    done = []

    def measure(training):
        if len(done) == 1 and stop:
            raise KeyboardInterrupt
        done.append(training.seed)
        return [{"half": 1}, {"half": 2}]

    cells = [Cell({"seed": seed}, recipe, seed) for seed in (3, 5)]
    experiment = Experiment("A row is nothing.", measure, lambda rows: cells)
    monkeypatch.setitem(command.EXPERIMENTS, "sizes", experiment)
    line = ["sizes", "--out", str(tmp_path / "out"), "--kept", str(tmp_path / "kept")]
    stop = True
    with pytest.raises(KeyboardInterrupt):
        command.main(line)
    stop = False
    rows = command.main(line)
    assert done == [3, 5]  # each once
    assert rows == [{"seed": seed, "half": half} for seed in (3, 5) for half in (1, 2)]
    record = read_measurement(tmp_path / "out/sizes.json")
    assert record.rows == rows and record.command == "python -m experiments sizes"
    assert not list((tmp_path / "kept").iterdir())


def test_a_quick_run_shows_every_value_once():
    values = [(a, b, seed) for a in "xyz" for b in (1, 2) for seed in (0, 1)]
    cells = [Cell({"a": a, "b": b, "seed": seed}, None, seed) for a, b, seed in values]
    kept = [(cell.about["a"], cell.about["b"], cell.seed) for cell in covering(cells)]
    assert kept == [("x", 1, 0), ("x", 2, 0), ("y", 1, 0), ("z", 1, 0)]


# --- a record, measured again ---------------------------------------------------------------------


def test_a_record_is_measured_with_the_code_of_its_commit(monkeypatch, tmp_path, capsys):
    "A small repository whose program has changed since the record was written."

    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    program, path = tmp_path / "program.py", tmp_path / "results/x.json"
    program.write_text("import json; json.dump({'rows': [1, 2]}, open('results/x.json', 'w'))")
    path.parent.mkdir()
    (path.parent / "README").write_text("records")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "the program")
    commit = git("rev-parse", "HEAD").stdout.decode().strip()
    record = {"command": "python program.py", "commit": commit, "rows": [1, 3], "minutes": 7}
    path.write_text(json.dumps(record))
    program.write_text("raise SystemExit(1)")
    git("commit", "-qam", "its program is gone")
    monkeypatch.setattr(rerun, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["rerun", str(path)])
    assert rerun.main() == 0
    told = capsys.readouterr().out
    assert "rows[1]: 3 → 2" in told and "minutes" not in told
    assert json.loads(path.read_text()) == record
    path.write_text(json.dumps(record | {"reproducible": False}))
    with pytest.raises(InputError, match="isn't reproducible"):
        rerun.main()
