"""Write the tables of book/sources.md and book/clinic.md.

python book/sources.py

The first comes from book/sources.yml; the second from the notebooks of the clinic, their texts and
the outputs of their cells.
"""

import json
import re
from itertools import pairwise
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- {} -->", "<!-- end of {} -->"
PAGES = {  # nbs/sources/ -> what the page settles
    "01_primer_text": "a Chinese primer",
    "02_reading": "a reading of the paper",
    "03_blog": "a blog post",
    "04_lecture": "a lecture",
    "05_more_than_one": "more than one",
}
KINDS = {"✗": "false as printed", "◐": "half", "≡": "convention", "✓": "proven right"}
HEADING = re.compile(r"### (\w+\.\d+) · (\S) ([^\n]+)\n")


def label(name: str) -> str:
    "`S0.1` -> `clinic-s0-1`, the label that the book gives to that entry."
    return "clinic-" + name.lower().replace(".", "-")


def subjects(root: Path = ROOT) -> list[dict]:
    "Every subject with its chapter, its cell and its entries in the clinic."
    return yaml.safe_load((root / "book/sources.yml").read_text())["subjects"]


def statements(root: Path = ROOT) -> list[dict]:
    "Every entry of the clinic: name, page, mark, title, chapters that settle it, printed size."
    found = []
    for page in PAGES:
        cells = json.loads((root / f"nbs/sources/{page}.ipynb").read_text())["cells"]
        for cell, after in pairwise(cells):
            text = "".join(cell["source"])
            if entry := HEADING.match(text):
                (shown,) = after["outputs"]
                size = "".join(shown["text"]).partition(" ")[2].strip()
                settled = re.findall(r"\{doc\}`(/nbs/[^`]+)`", text.partition("Settled in")[2])
                names = ("name", "mark", "title")
                given = {"page": page, "chapters": settled, "size": size}
                found.append(dict(zip(names, entry.groups(), strict=True)) | given)
    return found


def entries(names: list[str]) -> str:
    "Entries, each a link to its place in the clinic."
    return ", ".join(f"{{ref}}`{name} <{label(name)}>`" for name in names) or "–"


def table(rows: list[dict]) -> str:
    "The table of subjects in Markdown."
    lines = ["| Subject | Chapter | Cell | In the clinic |", "|---|---|---|---|"]
    for r in rows:
        chapter = f"{{doc}}`/{r['chapter']}`"
        lines.append(f"| {r['subject']} | {chapter} | `{r['cell']}` | {entries(r['clinic'])} |")
    return "\n".join(lines)


def count(rows: list[dict]) -> str:
    "How many entries each page has of each kind, in Markdown."
    heads = [f"{mark} {name}" for mark, name in KINDS.items()]
    lines = [f"| Source | {' | '.join(heads)} | all |", "|---|" + "--:|" * (len(KINDS) + 1)]
    for page in (*PAGES, None):
        some = [r for r in rows if page in (r["page"], None)]
        numbers = [sum(r["mark"] == mark for r in some) for mark in KINDS]
        name = f"{{doc}}`{PAGES[page]} </nbs/sources/{page}>`" if page else "all"
        lines.append(f"| {name} | {' | '.join(map(str, (*numbers, len(some))))} |")
    return "\n".join(lines)


def entry_table(rows: list[dict]) -> str:
    "The table of all entries in Markdown."
    lines = [
        "| Entry | Source | Statement | Kind | Size of the error | Settled in |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        settled = ", ".join(f"{{doc}}`{chapter}`" for chapter in r["chapters"])
        cells = (
            entries([r["name"]]),
            PAGES[r["page"]],
            r["title"],
            f"{r['mark']} {KINDS[r['mark']]}",
        )
        lines.append(f"| {' | '.join((*cells, r['size'], settled))} |")
    return "\n".join(lines)


def filled(page: str, name: str, text: str) -> str:
    "The page with the text between the marks of that name."
    begin, end = BEGIN.format(name), END.format(name)
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n{text}\n{end}", page, flags=re.S)


def made(root: Path = ROOT) -> dict[str, str]:
    "Both pages as they should be: name of the file -> text."
    rows = statements(root)
    page = filled((root / "book/clinic.md").read_text(), "count", count(rows))
    return {
        "book/sources.md": filled(
            (root / "book/sources.md").read_text(), "subjects", table(subjects(root))
        ),
        "book/clinic.md": filled(page, "entries", entry_table(rows)),
    }


def main(root: Path = ROOT) -> None:
    "Write both pages anew."
    for name, text in made(root).items():
        (root / name).write_text(text)


if __name__ == "__main__":
    main()
