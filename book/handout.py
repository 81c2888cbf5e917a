"""The chapters for a class: exercises with their blanks, no solutions, a place for what returns.

    python book/handout.py [FOLDER]              # writes the handout, _build/handout by default
    python book/handout.py --verdicts FOLDER     # runs what was handed in: verdicts as JSON

A handout holds the chapters as notebooks that run in plain Jupyter, without stored outputs, the
records that they read, the empty `my_transformer.py`, a README that says how to begin, and a folder
`submissions`, one folder in it for each student.
The package must be installed where the notebooks run: it has the checks.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "book"), str(ROOT / "book/_ext")]
import cards  # noqa: E402
import exercise_cells  # noqa: E402
import plain  # noqa: E402
import ways  # noqa: E402

from transformer_lit.course.files import InputError, atomic_path, remove_folder  # noqa: E402
from transformer_lit.exercises.thread import STEPS, check_file, write_starter  # noqa: E402

DIRECTIVE = re.compile(r"^(`{3,}|:{3,})\{solution\}.*?^\1[ \t]*$\n?", re.M | re.S)
SAID = re.compile(
    r" ?(The s|S)olutions stand at the end( of the chapter)?\.|, the solutions at the end"
)
FOLDED = "#| code-fold: true\n"
RUNNER = ROOT / "book/run_cells.py"
README = """# Exercises

The chapters of the course as notebooks, with blanks to fill. The site shows the same chapters with
their figures drawn, and with the solutions: {pages}/

## Begin

You need Python {oldest} or newer, and older than {too_new}. In this folder:

    python3 -m venv venv
    . venv/bin/activate        # on Windows: venv\\Scripts\\activate
    pip install jupyterlab git+{code}
    jupyter lab

Leave the notebooks where they are: some read records from `../../results`. What the site folds is
collapsed here; a click on the dots opens it. Collapsed code may be the course's own version of what
an exercise asks you for, so write yours first; some chapters derive it in the open, so write yours
without scrolling back. The first line of a chapter says what it needs.

Every exercise ends with a line `check(…)`: run it, and it says what it found. Run the cells of a
chapter from the top, or the imports are missing.

## In which order

The first pass is the whole course without rigour, variants and comparisons:

{first}

All other chapters are the second pass. The folders in
the order of the book: {folders}.

## my_transformer.py

{steps} of the exercises add up to one file, your own LLaMA. `my_transformer.py` is that file with
empty functions. What passes in a chapter goes into the file, in place of the function or class of
that name. Where you stand, from the first step to the last:

    transformer-lit check my_transformer.py

It checks each step together with all earlier ones: {thread}.

## Hand in

Your notebooks and your `my_transformer.py`: in a folder with your name in `submissions`, or as your
teacher says.
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


def _with_card(cells: list[dict], notebook: dict, root: Path) -> list[dict]:
    "The cells, below the title what the site says there: pass, time, exercises, what is needed."
    places, card = cards.chapters(root), notebook["metadata"]["chapter"]
    pages = [places[need].relative_to(root).with_suffix("") for need in card["needs"]]
    needs = ["needs " + ", ".join(f"{{doc}}`/{page}`" for page in pages)] if pages else []
    title, _, rest = exercise_cells.source(cells[0]).partition("\n")
    line = " · ".join([*ways.facts(notebook), *needs])
    return [_bare(cells[0], f"{title}\n\n{line}\n{rest}"), *cells[1:]]


def chapters(root: Path = ROOT) -> dict[Path, dict]:
    "The notebooks of a class by their place, each with the cells that it keeps."
    found = {}
    for path in cards.chapters(root).values():
        if path.parent.name != plain.MACHINERY:
            notebook = json.loads(path.read_text(encoding="utf-8"))
            place = path.relative_to(root)
            kept = _with_card(split(notebook["cells"])[0], notebook, root)
            cells = plain.book(root).cells(kept, str(place.with_suffix("")))
            found[place] = {**notebook, "cells": cells}
    return found


def readme(root: Path = ROOT) -> str:
    "How a student begins, in which order, and what to hand in."
    paths, book = cards.chapters(root), plain.book(root)
    pages = {name: str(path.relative_to(root).with_suffix("")) for name, path in paths.items()}
    found = tomllib.loads((root / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest, too_new = re.fullmatch(r">=([\d.]+),<([\d.]+)", found).groups()
    first = [
        f"{number}. {book.link(book.title(pages[name]), pages[name], 'README')}, "
        f"{card['minutes']} minutes"
        for number, (name, card) in enumerate(ways.first_pass(root), 1)
    ]
    parts = dict.fromkeys(Path(page).parent.name for page in pages.values())
    return README.format(
        **plain.site(root),
        oldest=oldest,
        too_new=too_new,
        first="\n".join(first),
        folders=", ".join(f"`{part}`" for part in parts if part != plain.MACHINERY),
        steps=len(STEPS),
        thread=book.link(book.title(pages["base/thread"]), pages["base/thread"], "README"),
    )


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
        (new / "README.md").write_text(readme(root), encoding="utf-8")
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
