"""What `make check` runs: the rules, and the tests and cells of what changed since the last commit.

python tests/changed.py    # prints the two commands, and runs them
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from budget import balance

ROOT = Path(__file__).parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q"]
TWO = ["-n", "2", "--dist", "loadfile"]


def changed():
    "Files that differ from the last commit, new ones too."
    said = subprocess.run(
        ["git", "status", "--porcelain", "--no-renames", "--untracked-files=all"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    return [path for line in said.splitlines() if (path := ROOT / line[3:]).exists()]


def tests_of(paths):
    "Test files and folders: of the part that a file belongs to, or the test itself."
    found = {"tests/test_architecture.py", "tests/test_budget.py"}
    for path in (path.relative_to(ROOT) for path in paths):
        top, part = path.parts[0], path.parts[1] if len(path.parts) > 2 else ""
        if top == "tests" and path.name.startswith("test_"):
            found.add(str(path))
        elif top in ("nbs", "transformer_lit") and (ROOT / "tests" / part).is_dir():
            found.add(f"tests/{part}")
    return sorted(found)


def exercises_of(notebooks):
    "The topics whose exercises stand in these notebooks."
    text = "".join(path.read_text() for path in notebooks)
    return sorted(set(re.findall(r"#\| export exercises\.(\w+)", text)))


def main():
    paths = changed()
    notebooks = [path for path in paths if path.suffix == ".ipynb" and json.loads(path.read_text())]
    tests = [*PYTEST, *TWO, "-p", "no:nbval", *tests_of(paths)]
    if topics := exercises_of(notebooks):
        some = " or ".join(["not every_exercise", *(f"{topic}." for topic in topics)])
        tests += ["tests/exercises/test_every_exercise.py", "-k", some]
    commands = [tests]
    if notebooks:
        workers = TWO if len(notebooks) > 1 else []
        commands.append(
            [*PYTEST, *workers, "-p", "no:cacheprovider", "--nbval", *map(str, notebooks)]
        )
    for command in commands:
        print(" ".join(command[1:]), flush=True)
        if subprocess.run(command, cwd=ROOT).returncode not in (0, 5):  # 5: nothing is selected
            return 1
    print(balance())
    return 0


if __name__ == "__main__":
    sys.exit(main())
