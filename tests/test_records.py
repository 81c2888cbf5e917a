"""Below each chapter stands which records it reads, and whether the code behind them changed."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest
import records

from transformer_lit.recipes.recipe import preset
from transformer_lit.recipes.zoo import RECIPES

ROOT = Path(__file__).parents[1]


def code(*lines):
    return {"cell_type": "code", "source": "\n".join(lines)}


def test_the_records_of_a_page_are_found():
    cells = [
        code('rows = read_measurement("../../results/measurements/wirings.json").rows'),
        code('(trained,) = read_results("../../results", name="numbers-en-de-raw-seed0")'),
        code('[r for r in read_results(folder) if r.metrics["bakeoff"] == "swap"]'),
        code('read_result(RESULTS / f"multi30k-tuned-en-de-tok-seed{seed}.json")'),
        code('RESULTS.glob(f"shakespeare-{more}-seed*.json")'),
        code('write_json(folder / "config.json", {})'),  # is no record
        {"cell_type": "markdown", "source": '"block.json"'},
    ]
    found = records.read_by(cells)
    ours = "multi30k-tuned-en-de-tok-seed…", "shakespeare-…-seed…"
    assert list(found) == ["wirings", "numbers-en-de-raw-seed0", "bake-off swap", *ours]
    assert [path.stem[-5:] for path in found[ours[0]]] == ["seed0", "seed1", "seed2"]
    assert {path.stem for path in found[ours[1]]} > {"shakespeare-cpu-seed0"}
    assert found["bake-off swap"] == sorted((ROOT / "results/bakeoffs").glob("swap-*.json"))


def test_every_record_is_read_by_a_page():
    "So each of them is flagged where the code behind it changed."
    read = set()
    for notebook in (ROOT / "nbs").rglob("*.ipynb"):
        groups = records.read_by(json.loads(notebook.read_text(encoding="utf-8"))["cells"])
        read.update(path for paths in groups.values() for path in paths)
    assert read == set((ROOT / "results").rglob("*.json"))


UNKNOWN = {  # made from copies of the code, whose commits are not in the history
    "multi30k-tuned-diverse-muon-en-de-tok-seed0",
    *(f"shakespeare-muon-seed{seed}" for seed in range(3)),
}


def test_every_record_names_a_commit_of_the_history():
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("the history is missing or cut")
    known = set(git("rev-list", "HEAD").stdout.split())
    lost = set()
    for path in (ROOT / "results").rglob("*.json"):
        if json.loads(path.read_text(encoding="utf-8"))["commit"].rstrip("+") not in known:
            lost.add(path.stem)
    assert lost == UNKNOWN


COMMANDS = {
    "transformer-lit train translation --seed 0": "transformer_lit/recipes/translation.py",
    "transformer-lit train language-model": "transformer_lit/recipes/language_model.py",
    "transformer-lit bakeoff block --setting small": "transformer_lit/recipes/bakeoff.py",
    "python -m experiments recurrence": "experiments/recurrence.py",
    "python -m experiments block_rates": "experiments/bakeoffs.py",
    "python -m experiments dead_relus": "experiments/feedforward.py",
    "python -m experiments.diverse": "experiments/diverse.py",
    "python -m experiments.word_vectors": "experiments/word_vectors.py",
    "python -m benchmarks": "benchmarks/models.py",
    "python -m benchmarks.block": "benchmarks/block.py",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_leads_to_its_code(command):
    behind = records.behind(command)
    assert COMMANDS[command] in behind
    assert not any("/base/" in name for name in behind)
    if "block" not in command.split()[-1]:  # its timings take one layer
        assert "transformer_lit/attention/multihead.py" in behind


def test_a_record_is_named_as_its_command_names_it():
    "So a training that is repeated takes the place of its own record, and of no other."
    named = 0
    for path in sorted((ROOT / "results").glob("*.json")):
        record = json.loads(path.read_text())
        _, verb, *words = shlex.split(record["command"])
        if verb != "train":
            continue
        task, *options = words
        given = dict(zip(options[::2], options[1::2], strict=True))
        changes = {key: given.get(f"--{key}") for key in ("source", "target", "form")}
        kind, name = RECIPES[task], given.get("--preset", next(iter(RECIPES[task].presets)))
        steps = f"steps{given['--steps']}" if "--steps" in given else ""
        variant, dtype = preset(kind, name, **changes).variant, given.get("--dtype")
        parts = (name, variant, steps, dtype, f"seed{given['--seed']}")
        assert path.stem == record["name"] == "-".join(filter(None, parts))
        named += 1
    assert named > 5


def test_every_record_leads_to_code():
    "Also those that no page reads."
    for path in sorted((ROOT / "results").rglob("*.json")):
        command = json.loads(path.read_text())["command"]
        assert records.behind(command), path


@pytest.mark.parametrize(
    "same",
    [
        '"""Another text."""\ndef f(x):\n    return x + 1',
        'def f(x: int) -> int:\n    "What it does."\n    return x + 1  # why',
        "import math\n\n\ndef f(x):\n    return x + 1",
    ],
)
def test_what_is_only_said_changes_nothing(same):
    assert records.meaning("def f(x):\n    return x + 1") == records.meaning(same)


@pytest.mark.parametrize(
    "other", ["def f(x):\n    return x + 2", "def f(x, y=1):\n    return x + 1"]
)
def test_what_is_done_counts(other):
    assert records.meaning("def f(x):\n    return x + 1") != records.meaning(other)


@pytest.fixture
def project(tmp_path):
    "A repository of two modules and a record, made by its first commit."
    files = {
        "benchmarks/speed.py": "from transformer_lit.kernel import k\n",
        "transformer_lit/kernel.py": "def k(x):\n    return 2 * x\n",
        "transformer_lit/unused.py": "U = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]

    def git(*command):
        done = subprocess.run(
            ["git", *who, *command], cwd=tmp_path, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    return tmp_path, git("rev-parse", "HEAD")


def state(project, commit):
    root, _ = project
    for memory in (records.behind, records._then, records._now, records._same, records._git):
        memory.cache_clear()
    record = {"name": "speed", "commit": commit, "command": "python -m benchmarks.speed"}
    (root / "results").mkdir(exist_ok=True)
    path = root / "results/speed.json"
    path.write_text(json.dumps(record))
    return records.note({"speed": [path]}, root).splitlines()[4]


def test_a_change_behind_a_record_is_flagged(project):
    root, commit = project
    assert state(project, commit).endswith("| unchanged |")
    (root / "transformer_lit/unused.py").write_text("U = 2\n")
    (root / "transformer_lit/kernel.py").write_text("def k(x):\n    # doubled\n    return 2 * x\n")
    assert state(project, commit).endswith("| unchanged |")
    (root / "transformer_lit/kernel.py").write_text("def k(x):\n    return 3 * x\n")
    assert state(project, commit).endswith("| **changed**: 1 of 2 modules (`kernel.py`) |")
    assert f"`{commit[:7]}, with changes`" in state(project, commit + "+")


def test_without_the_history_nothing_is_claimed(project):
    told = state(project, "0" * 40)
    assert told.endswith("| not known here: the history is missing |") and "| – |" in told
