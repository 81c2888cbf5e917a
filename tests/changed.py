"""What `make check` does to all that changed since the last commit: exports it, lints it, tests it.

python tests/changed.py    # the tests of the parts that changed, beside the cells of the notebooks
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from budget import balance

ROOT = Path(__file__).parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p"]
RULES = {"tests/test_architecture.py", "tests/test_budget.py"}


def changed():
    "Files that differ from the last commit, new ones too, as paths from the root."
    command = ["git", "status", "--porcelain", "--no-renames", "--untracked-files=all"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return [line[3:] for line in said.splitlines() if (ROOT / line[3:]).is_file()]


def tests_of(paths):
    "The rules, the tests of the parts that changed, and what compares them with other libraries."
    found, modules = set(RULES), set()
    for path in map(Path, paths):
        top, part = path.parts[0], path.parts[1] if len(path.parts) > 2 else ""
        if top == "tests" and path.name.startswith("test_"):
            found.add(str(path))
        elif top in ("nbs", "transformer_lit") and (ROOT / "tests" / part).is_dir():
            found.add(f"tests/{part}")
            modules.add(f"transformer_lit.{part}.{re.sub(r'^[0-9]+_', '', path.stem)}")
    for path in (ROOT / "tests/oracle").glob("test_*.py"):
        if any(module in path.read_text() for module in modules):
            found.add(str(path.relative_to(ROOT)))
    return sorted(found)


def exercises_of(paths):
    "The topics whose exercises are in these notebooks and tables."
    text = "".join((ROOT / path).read_text() for path in paths if path.endswith(".ipynb"))
    tables = {Path(path).stem for path in paths if path.startswith("transformer_lit/exercises/")}
    plain = {"my_transformer", "thread", "__init__"}
    return sorted(set(re.findall(r'check\(\\"(\w+)\.', text)) | tables - plain)


def run(*commands):
    "Side by side; whether all of them passed."
    started = [subprocess.Popen(command, cwd=ROOT) for command in commands]
    return {one.wait() for one in started} <= {0, 5}  # 5: nothing is selected


def main():
    notebooks = [path for path in changed() if path.endswith(".ipynb")]
    for path in notebooks:
        json.loads((ROOT / path).read_text())  # before nbdev reads it
    export = [[sys.executable, "book/export.py", *notebooks]] if notebooks else []
    marks = [sys.executable, "book/marks.py"]
    clean = [["nbdev_clean", "--fname", path] for path in notebooks]
    for command in (*export, marks, *clean):
        if not run(command):
            return 1
    paths = changed()
    code = [path for path in paths if path.endswith((".py", ".ipynb"))]
    tests = [*PYTEST, "no:nbval", *tests_of(paths)]
    if topics := exercises_of(paths):
        some = " or ".join(["not every_exercise", *(f"{topic}." for topic in topics)])
        tests += ["tests/exercises/test_every_exercise.py", "-k", some]
    lint = [["ruff", "check", *code], ["ruff", "format", "--check", *code]] if code else []
    cells = [[*PYTEST, "no:cacheprovider", "--nbval", *notebooks]] if notebooks else []
    passed = run(*lint) and run(tests, *cells)
    print(balance())
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
