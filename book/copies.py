"""The chapters as notebooks that stand alone: for Colab, for GitHub, for any Jupyter.

    python book/copies.py [FOLDER]      # writes them, _build/copies by default

The site makes them too, in its folder `notebooks`, with an archive of them all; from there they are
published on a branch of the repository. In a copy all roles are links to the site, solutions are
folded below the exercises, and the first cell brings what the notebook needs.
"""

import configparser
import json
import shutil
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "book"), str(ROOT / "book/_ext")]
import cards  # noqa: E402
import exercise_cells  # noqa: E402
import plain  # noqa: E402

from transformer_lit.course.files import InputError, atomic_path, remove_folder  # noqa: E402

FOLDER = "notebooks"  # of the site
BRANCH = "notebooks"  # where the repository has the copies: .github/workflows puts them there
ARCHIVE = "notebooks.zip"
RECORDS = "../../results"  # where a chapter looks for what was measured
DAY = (2026, 1, 1, 0, 0, 0)  # of every file of the archive, so that equal copies are equal archives
START = """\
# Run this cell first. It brings what the notebook needs; a second time it does nothing.
import importlib.util
"""
RECORDS_START = """\
from pathlib import Path

if not Path("{records}").is_dir():  # what was measured lies in the repository
    course = Path.home() / "{name}"
    if not course.is_dir():
        !git clone -q --depth 1 {code} "{{course}}"
    %cd -q "{{course}}/{folder}"
"""
PACKAGE_START = """\
if importlib.util.find_spec("{package}") is None:
    %pip install -q git+{code}
"""
SAID = "*This notebook is a page of a book: [{title}]({pages}/{page}.html).*"
README = """# The notebooks of the book

Each chapter of {pages}/ as a notebook that stands alone. The first cell of each brings the package
and, where a chapter reads records, the records. Links lead to the site. Solutions are folded.

Made from {code}: changes belong there.
"""


def settings(root: Path) -> configparser.SectionProxy:
    found = configparser.ConfigParser()
    found.read(root / "settings.ini", encoding="utf-8")
    return found["DEFAULT"]


def colab(page: str, root: Path = ROOT) -> str:
    "The address at which Colab opens the copy of a chapter, such as nbs/attention/02_masks."
    where = settings(root)["git_url"].removeprefix("https://github.com/")
    return f"https://colab.research.google.com/github/{where}/blob/{BRANCH}/{page}.ipynb"


# --- a copy ---------------------------------------------------------------------------------------


def folded(cells: list[dict]) -> list[dict]:
    "The cells with text and code of a solution in one fold, and without what checks an answer."
    solved = [one for one in exercise_cells.exercises(cells) if one.solution is not None]
    texts = {one.text_place: one.solution for one in solved}
    codes = {one.solution_place for one in solved}
    kept = []
    for place, cell in enumerate(cells):
        text = exercise_cells.source(cell)
        if place in texts:
            code = f"```python\n{texts[place].strip()}\n```\n\n</details>"
            text = text.removesuffix("</details>") + code
            cell = {**cell, "source": text.splitlines(keepends=True)}
        if place not in codes and not exercise_cells.CHECKS.match(text):
            kept.append(cell)
    return kept


def start(cells: list[dict], page: str, root: Path = ROOT) -> dict:
    "The first cell of a copy: it installs the package and gets records, where they are missing."
    needed = any(RECORDS in exercise_cells.source(cell) for cell in cells)
    found, addresses = settings(root), plain.site(root)
    text = (START + RECORDS_START if needed else START) + "\n" + PACKAGE_START
    text = text.format(
        records=RECORDS,
        name=found["repo"],
        package=found["lib_name"],
        folder=Path(page).parent,
        code=addresses["code"],
    )
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": "start",
        "metadata": {},
        "outputs": [],
        "source": text.rstrip().splitlines(keepends=True),
    }


def copy(path: Path, root: Path = ROOT) -> dict:
    "A chapter that stands alone."
    notebook = json.loads(path.read_text(encoding="utf-8"))
    page, book = str(path.relative_to(root).with_suffix("")), plain.book(root, plain.Alone)
    title, *cells = book.cells(folded(notebook["cells"]), page)
    said = SAID.format(title=book.title(page), pages=book.pages, page=page)
    text = exercise_cells.source(title).replace("\n", f"\n\n{said}\n", 1)
    title = {**title, "source": text.splitlines(keepends=True)}
    metadata = {key: value for key, value in notebook["metadata"].items() if key != "chapter"}
    cells = [title, start(cells, page, root), *cells]
    return {**notebook, "metadata": metadata, "cells": cells}


# --- all copies -----------------------------------------------------------------------------------


def write(out: Path, root: Path = ROOT) -> None:
    "Write all copies, the records that they read, and beside the folder the archive; or nothing."
    if out.exists():
        if not (out / "nbs").is_dir() or (out / "settings.ini").exists():
            raise InputError(f"{out} is there and holds other things; name another folder")
        remove_folder(out)
    with atomic_path(out) as new:
        for path in cards.chapters(root).values():
            place = new / path.relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(copy(path, root), indent=1, ensure_ascii=False) + "\n"
            place.write_text(text, encoding="utf-8")
        shutil.copytree(root / "results", new / "results")
        (new / "README.md").write_text(README.format(**plain.site(root)), encoding="utf-8")
    with atomic_path(out.parent / ARCHIVE) as new:
        pack(out, new)


def pack(folder: Path, archive: Path) -> None:
    "Pack a folder; the same files give the same bytes."
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            entry = zipfile.ZipInfo(f"notebooks/{path.relative_to(folder)}", DAY)
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


def main(args: list[str]) -> int:
    "Write the copies; 2 for what the user can mend."
    try:
        if len(args) > 1 or args[:1] in (["--help"], ["-h"]):
            raise InputError("usage: python book/copies.py [FOLDER]")
        out = Path(args[0] if args else ROOT / "_build/copies")
        write(out)
        print(f"notebooks in {out}, all of them in {out.parent / ARCHIVE}")
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
