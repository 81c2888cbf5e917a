"""The chapters for a class: exercises with their blanks, no solutions, a place for what returns.

    python book/handout.py [FOLDER]              # writes the handout, _build/handout by default
    python book/handout.py --verdicts FOLDER     # runs what was handed in: verdicts as JSON

A handout holds the chapters as notebooks that run, without stored outputs, the records that they
read, the empty `my_transformer.py`, and a folder `submissions`, one folder in it for each student.
The package must be installed where the notebooks run: it has the checks.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "book"), str(ROOT / "book/_ext")]
import cards  # noqa: E402
import exercise_cells  # noqa: E402

from transformer_lit.base.files import InputError, atomic_path, remove_folder  # noqa: E402
from transformer_lit.base.thread import check_file, write_starter  # noqa: E402

DIRECTIVE = re.compile(r"^(`{3,}|:{3,})\{solution\}.*?^\1[ \t]*$\n?", re.M | re.S)
SAID = re.compile(
    r" ?(The s|S)olutions stand at the end( of the chapter)?\.|, the solutions at the end"
)
FOLDED = "#| code-fold: true\n"
COLAB = "#| hide\n#| eval: false\n# On Colab"  # it brings the repository, solutions and all
RUNNER = ROOT / "book/run_cells.py"
MACHINERY = "base"  # chapters on how the checks work, whose examples are exercises of the book
README = """# Exercises

Install the package of the course, then open the notebooks in `nbs`, in the order of the numbers in
each folder. Every exercise ends with a line `check(…)`: run it, and it says what it found. What you
write in the chapters' exercises for `my_transformer.py` goes into that file; see where you stand:

    transformer-lit check my_transformer.py

Hand in your notebooks and your `my_transformer.py`.
"""
SUBMISSIONS = """# What was handed in

One folder for each student, with notebooks and `my_transformer.py` in it. The verdicts on all of
them, from the repository of the course:

    python book/handout.py --verdicts FOLDER > verdicts.json

Code of students runs there with your rights. Do it on a machine where it can do no harm.
"""


# --- what a chapter keeps -------------------------------------------------------------------------


def split(cells: list[dict]) -> tuple[list[dict], list[dict]]:
    "The cells of a chapter for a class, and those that give answers away."
    kept, taken, folded, answer = [], [], False, False
    for cell in cells:
        text, code = exercise_cells.source(cell), cell["cell_type"] == "code"
        if not code and (heading := cards.HEADING.search(text)):
            folded = heading[1].startswith("Solutions")
        forms = (exercise_cells.SOLUTION, exercise_cells.SOLUTION_TEXT)
        gone = folded or exercise_cells.CHECKS.match(text) or any(f.fullmatch(text) for f in forms)
        if gone or (code and answer and text.startswith(FOLDED)):
            taken.append(cell)
            answer = False
            continue
        if text.startswith(COLAB):
            continue
        answer = not code and bool(DIRECTIVE.search(text))
        if answer:
            said = "\n".join(found[0] for found in DIRECTIVE.finditer(text))
            taken.append({**cell, "source": said})
            text = DIRECTIVE.sub("", text).strip()
        text = text if code else SAID.sub("", text)
        if text:
            kept.append(_bare(cell, text))
    return kept, taken


def _bare(cell: dict, text: str) -> dict:
    "A cell as nobody has run it yet."
    bare = {**cell, "source": text.splitlines(keepends=True)}
    return {**bare, "outputs": [], "execution_count": None} if "outputs" in cell else bare


def chapters(root: Path = ROOT) -> dict[Path, dict]:
    "The notebooks of a class by their place, each with the cells that it keeps."
    found = {}
    for path in cards.chapters(root).values():
        if path.parent.name != MACHINERY:
            notebook = json.loads(path.read_text(encoding="utf-8"))
            found[path.relative_to(root)] = {**notebook, "cells": split(notebook["cells"])[0]}
    return found


def write(out: Path, root: Path = ROOT) -> None:
    "Write the whole handout, or nothing. One that submissions lie in is not replaced."
    if out.exists():
        returned = {p.name for p in (out / "submissions").glob("*")} - {"README.md"}
        if returned or not (out / "submissions").exists():
            raise InputError(f"{out} is there and holds other things; name another folder")
        remove_folder(out)
    with atomic_path(out) as new:
        for place, notebook in chapters(root).items():
            (new / place).parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
            (new / place).write_text(text, encoding="utf-8")
        shutil.copytree(root / "results", new / "results")
        write_starter(new / "my_transformer.py")
        (new / "README.md").write_text(README)
        (new / "submissions").mkdir()
        (new / "submissions/README.md").write_text(SUBMISSIONS)


# --- what comes back ------------------------------------------------------------------------------


def notebook_verdicts(path: Path, folder: Path, seconds: float = 600) -> dict:
    """Run a notebook that was handed in, in a process and a folder: its verdicts, the last of each.

    `error` says why there may be more of them: it did not end in time, or ended the process.
    """
    with tempfile.TemporaryDirectory() as aside:
        out, error = Path(aside) / "verdicts", None
        out.touch()
        line = [sys.executable, str(RUNNER), str(path.resolve()), str(out)]
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        unseen = {**os.environ, "MPLBACKEND": "agg"}
        try:
            subprocess.run(line, cwd=folder, timeout=seconds, env=unseen, **quiet)
        except subprocess.TimeoutExpired:
            error = f"it did not end within {seconds:g} seconds"
        lines = [json.loads(line) for line in out.read_text().splitlines()]
    if lines[-1:] != ["the end"]:
        error = error or "it is damaged, or it ended the process that ran it"
    found = {verdict["id"]: verdict for verdict in lines if verdict != "the end"}
    return {"error": error, "verdicts": list(found.values())}


def verdicts(folder: Path) -> dict[str, dict]:
    "By student: what `my_transformer.py` is worth, and the verdicts of each notebook."
    # notebooks find the records of the handout from where they stood in it
    found, where = {}, next((folder.parent / "nbs").glob("*/"), folder)
    for student in sorted(p for p in folder.iterdir() if p.is_dir()):
        own = found[student.name] = {"thread": None, "notebooks": {}}
        for file in sorted(student.rglob("my_transformer.py")):
            own["thread"] = check_file(file).as_dict()
        for path in sorted(student.rglob("*.ipynb")):
            if ".ipynb_checkpoints" not in path.parts:
                place = str(path.relative_to(student))
                own["notebooks"][place] = notebook_verdicts(path, where)
    return found


def main(args: list[str]) -> int:
    "Write a handout or look at what came back; 2 for what the user can mend."
    try:
        if args[:1] == ["--verdicts"] and len(args) == 2:
            if not Path(args[1]).is_dir():
                raise InputError(f"{args[1]} is no folder; name the one that holds the students'")
            print(json.dumps(verdicts(Path(args[1])), indent=1))
            return 0
        if len(args) > 1 or args[:1] == ["--verdicts"]:
            raise InputError("usage: python book/handout.py [FOLDER] | --verdicts FOLDER")
        out = Path(args[0] if args else ROOT / "_build/handout")
        write(out)
        print(f"handout in {out}")
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
