"""Write the prose of all chapters to transformer_lit/data/book.txt: `python book/make_text.py`.

The file is an edition: a training learns from it, so it changes only when somebody runs this again.
Chapters come in the order of the book, each behind a separator and its path. Code, displayed
formulas, tables and exercises' frames are left out, and a reference leaves its text.
"""

from pathlib import Path

import yaml

from transformer_lit.course.book import SEPARATOR, chapter_text
from transformer_lit.course.files import write_text

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "transformer_lit/data/book.txt"


def chapters() -> list[str]:
    toc = yaml.safe_load((ROOT / "book/_toc.yml").read_text())
    files = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    return [file for file in files if file.startswith("nbs/")]


def main() -> None:
    texts = {file: chapter_text(ROOT / f"{file}.ipynb") for file in chapters()}
    out = [f"{SEPARATOR}{file}\n{text}" for file, text in texts.items()]
    write_text(TARGET, "".join(out))
    print(f"{len(out)} chapters, {sum(map(len, out)):,} characters in {TARGET}")


if __name__ == "__main__":
    main()
