"""Measure a record again, with the code that made it: `make rerun RECORD=results/x.json`.

The record's commit is checked out beside this tree, under _build/rerun, and the record's command
runs there with the packages of this environment. What comes out is compared with the record: a
number that differs in its last digits comes from another processor or another version of torch; in
a training, such a difference grows.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.runner import told
from transformer_lit.course.files import InputError, read_json

ROOT = Path(__file__).parents[1]
ALWAYS_NEW = {"commit", "device", "minutes", "tokens_per_second", "torch"}  # of each run


def checkout(commit: str, beside: Path) -> Path:
    "A folder with the tree at that commit, and without the results of later runs."
    folder = beside / commit[:12]
    if not folder.exists():
        command = ["git", "worktree", "add", "--detach", str(folder), commit]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise InputError(f"cannot check out {commit[:12]}: {done.stderr.strip()}")
    return folder


def differences(old: Any, new: Any, at: str = "") -> Iterator[str]:
    "Where two records differ, a line for each place."
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            if at or key not in ALWAYS_NEW:
                yield from differences(old.get(key), new.get(key), f"{at}.{key}".strip("."))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differences(one, other, f"{at}[{place}]")
    elif old != new:
        yield f"{at}: {old} → {new}"


def main() -> int:
    if len(sys.argv) != 2:
        raise InputError(
            "which record? Type: make rerun RECORD=results/numbers-en-de-raw-seed0.json"
        )
    path = Path(sys.argv[1]).resolve()
    record = read_json(path)
    if not record.get("reproducible", True):
        raise InputError(f"{path.name} isn't reproducible: {record['commit']} is no commit of ours")
    folder = checkout(record["commit"], ROOT / "_build/rerun")
    made = folder / path.relative_to(ROOT)
    made.unlink(missing_ok=True)  # or its program might take the work for done
    print(f"in {folder}: {record['command']}", flush=True)
    command = ["bash", "-c", record["command"]]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    if threads := re.search(r"(\d+) thread", record.get("device", "")):
        environment["OMP_NUM_THREADS"] = threads[1]  # sums in another order give other digits
    subprocess.run(command, cwd=folder, env=environment, check=True)
    found = list(differences(record, json.loads(made.read_text(encoding="utf-8"))))
    print("\n".join([f"{len(found)} places differ from {shlex.quote(str(path))}", *found[:40]]))
    return 0


if __name__ == "__main__":
    sys.exit(told(main))
