"Below each chapter stands which records it reads, with their commands and commits."

import json
import re
import shlex
import subprocess
from pathlib import Path
from unittest import mock

import pytest
import records

from transformer_lit.recipes.recipe import preset
from transformer_lit.recipes.zoo import RECIPES

ROOT = Path(__file__).parents[1]
HEAD = subprocess.run(
    ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True
).stdout.strip()


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
    assert list(found) == ["wirings", "numbers-en-de-raw-seed0", *ours, "bake-off swap"]
    assert [path.stem[-5:] for path in found[ours[0]]] == ["seed0", "seed1", "seed2"]
    assert {path.stem for path in found[ours[1]]} > {"shakespeare-cpu-seed0"}
    assert found["bake-off swap"] == sorted((ROOT / "results/bakeoffs").glob("swap-*.json"))


def test_every_record_is_read_by_a_page():
    read = set()
    for notebook in (ROOT / "nbs").rglob("*.ipynb"):
        groups = records.read_by(json.loads(notebook.read_text(encoding="utf-8"))["cells"])
        read.update(path for paths in groups.values() for path in paths)
    for page in (ROOT / "book").glob("*.md"):  # whose numbers a test of their own compares
        named = re.findall(r"RECORD=(results/[\w/-]+\.json)", page.read_text(encoding="utf-8"))
        read.update(ROOT / name for name in named)
    assert read == set((ROOT / "results").rglob("*.json"))


def test_a_plus_minus_is_always_the_deviation_over_seeds():
    "Only `over_seeds` writes it behind a number that was computed."
    for path in (ROOT / "nbs").rglob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                assert "± {" not in "".join(cell["source"]), (path, cell["id"])


def test_every_record_names_a_commit_of_the_history():
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("the history is missing or cut")
    known = set(git("rev-list", "HEAD").stdout.split())
    for path in (ROOT / "results").rglob("*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        assert (record["commit"] in known) == record.get("reproducible", True), path


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


def test_a_row_says_how_to_measure_again_and_links_the_commit():
    known = records.cards.settings()["git_url"]
    path = ROOT / "results/speed.json"
    for commit, fact, again, said in (
        (HEAD, {}, "`make rerun RECORD=results/speed.json`", f"({known}/commit/{HEAD}) |"),
        (HEAD + "+", {"reproducible": False}, "not reproducible: its code", f"/{HEAD}) |"),
        ("0" * 40, {"reproducible": False}, "not reproducible", "| `0000000` |"),  # no link
    ):
        told = json.dumps({"commit": commit, "command": "python -m benchmarks"} | fact)
        with mock.patch.object(Path, "read_text", lambda path, encoding, told=told: told):
            row = records.row("speed", [path], ROOT)
            both = records.row("speed", [path, path], ROOT)
        assert row.startswith(f"| speed | {again}") and row.endswith(said), row
        assert both.startswith("| speed, 2 files |")
