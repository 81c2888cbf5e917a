"""Write the prose of all chapters to transformer_lit/data/book.txt: `python book/make_text.py`.

The file is an edition: a training learns from it, so it changes only when somebody runs this again.
Chapters come in the order of the book, each behind a separator and its path. Code, displayed
formulas, tables and exercises' frames are left out, and a reference leaves its text.
"""

import json
import re
from pathlib import Path

import yaml

from transformer_lit.course.files import write_text

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "transformer_lit/data/book.txt"
ROLES = (
    (r"\{cite:[pt]\}`[^`]*`", ""),
    (r"\{(?:numref|eq|ref)\}`[^`]*`", "the one shown"),
    (r"\{doc\}`([^`<]*?)\s*<[^`>]*>`", r"\1"),
    (r"\{doc\}`[^`]*?([^`/]*)`", r"\1"),
    (r"\{[a-z:]+\}`([^`]*)`", r"\1"),
)


def prose(text: str) -> str:
    "A Markdown cell without displayed formulas, frames of directives, tables and roles."
    text = re.sub(r"\$\$.*?\$\$( \([\w-]+\))?", "", text, flags=re.S)
    text = re.sub(r"^(`{3,}|:[\w-]+:|\||> ).*$", "", text, flags=re.M)
    for role, left in ROLES:
        text = re.sub(role, left, text)
    text = re.sub(r"[ \t]+([.,;:)])", r"\1", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def chapters() -> list[str]:
    toc = yaml.safe_load((ROOT / "book/_toc.yml").read_text())
    files = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    return [file for file in files if file.startswith("nbs/")]


def main() -> None:
    out = []
    for file in chapters():
        cells = json.loads((ROOT / f"{file}.ipynb").read_text())["cells"]
        texts = [prose("".join(c["source"])) for c in cells if c["cell_type"] == "markdown"]
        out.append(f"\x1c{file}\n" + "\n\n".join(filter(None, texts)) + "\n")
    write_text(TARGET, "".join(out))
    print(f"{len(out)} chapters, {sum(map(len, out)):,} characters in {TARGET}")


if __name__ == "__main__":
    main()
