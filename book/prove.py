"""When each chapter was last proven: book/proven.json, which the box below its title reads.

    python book/prove.py [NOTEBOOK …]     # runs them, all by default, and writes what held

A chapter is proven when nbval ran every cell and found every output as it is stored. The record has
the day, the seconds, the versions and the kind of machine, and a hash of the cells of code with
their outputs: when one of them has changed since, the box says so.
"""

import datetime
import hashlib
import json
import platform
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "book")]
import cards  # noqa: E402

RECORDS = "book/proven.json"
WORKERS = ("-n", "2", "--dist", "loadfile")


def code_hash(notebook: dict) -> str:
    "What was proven: the code of a notebook and its outputs, not its text."
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    held = [["".join(cell["source"]), cell["outputs"]] for cell in cells]
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()[:16]


def read(root: Path = ROOT) -> dict[str, dict]:
    "The records by chapter; none where nothing has been proven yet."
    path = root / RECORDS
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def said(root: Path, notebook: dict, page: str) -> str:
    "What the box says of a chapter; nothing before its first proof."
    found = read(root).get(cards.chapter_name(page))
    if found is None:
        return ""
    day = datetime.date.fromisoformat(found["day"])
    when = f"{day.day} {day:%B %Y}"
    if found["hash"] != code_hash(notebook):
        return f"changed since it was proven on {when}"
    how = f"Python {found['python']}, torch {found['torch']}, {found['machine']}"
    return f"last proven on {when} in {found['seconds']} s ({how})"


# --- the proof ------------------------------------------------------------------------------------


class Times:
    "What pytest reports: the seconds of each file, and the files in which something failed."

    def __init__(self):
        self.seconds, self.failed = Counter(), set()

    def pytest_runtest_logreport(self, report):
        file = report.nodeid.partition("::")[0]
        self.seconds[file] += report.duration
        if report.failed:
            self.failed.add(file)


def machine() -> str:
    "The kind of machine: its processor and the cores that a notebook may use."
    from transformer_lit.course.records import device_name
    from transformer_lit.training.options import pick_device

    return device_name(pick_device("cpu"))


def records(times: Times, root: Path = ROOT) -> dict[str, dict]:
    "A record of each chapter that held."
    import torch

    found = {}
    for name, path in cards.chapters(root).items():
        file = str(path.relative_to(root))
        if file in times.seconds and file not in times.failed:
            found[name] = {
                "day": datetime.date.today().isoformat(),
                "seconds": max(1, round(times.seconds[file])),
                "python": platform.python_version(),
                "torch": torch.__version__.partition("+")[0],
                "machine": machine(),
                "hash": code_hash(json.loads(path.read_text(encoding="utf-8"))),
            }
    return found


def write(found: dict[str, dict], root: Path = ROOT) -> None:
    "Put records in the place of older ones, a line each, in the order of the book."
    from transformer_lit.course.files import write_text

    merged = read(root) | found
    kept = [name for name in cards.chapters(root) if name in merged]
    lines = (f"{json.dumps(name)}: {json.dumps(merged[name])}" for name in kept)
    write_text(root / RECORDS, "{\n" + ",\n".join(lines) + "\n}\n")


def main(args: list[str]) -> int:
    "Run notebooks and write what held; the exit code is that of pytest."
    import pytest

    times = Times()
    line = ["-q", "--nbval", "-p", "no:cacheprovider", *WORKERS, *(args or ["nbs"])]
    code = pytest.main([*line, f"--rootdir={ROOT}"], plugins=[times])
    found = records(times)
    write(found)
    print(f"{len(found)} chapters proven, {len(times.failed)} not; records in {RECORDS}")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
