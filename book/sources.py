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
TEXTS = {
    "S0": "a Chinese primer",
    "S1": "a reading of the paper",
    "S2": "a blog post",
    "S3": "a lecture",
}
PAGES = {  # nbs/sources/ -> what the page settles
    "01_primer_text": TEXTS["S0"],
    "02_reading": TEXTS["S1"],
    "03_blog": TEXTS["S2"],
    "04_lecture": TEXTS["S3"],
    "05_more_than_one": "more of all four",
}
KINDS = {"✗": "false as printed", "◐": "half", "≡": "convention", "✓": "proven right"}
HEADING = re.compile(r"### (\w+\.\d+) · (\S) ([^\n]+)\n")
SOURCE = re.compile(r"^\*\*Source\.\*\* (S\d), ([^:\n]+): (.+)$", re.M)  # text, place, quotes
QUOTE = re.compile(r"\$([^$]+)\$|「([^」]+)」")  # a formula as printed, a phrase of the text


def label(name: str) -> str:
    "`S0.1` -> `clinic-s0-1`, the label that the book gives to that entry."
    return "clinic-" + name.lower().replace(".", "-")


def subjects(root: Path = ROOT) -> list[dict]:
    "Every subject with its chapter, its cell and its entries in the clinic."
    return yaml.safe_load((root / "book/sources.yml").read_text())["subjects"]


def quotes(text: str) -> list[tuple[str, str, str, str]]:
    "What the Source lines of a cell quote: text, place, and a formula or a phrase."
    return [
        (name, place, *quote.groups(""))
        for name, place, rest in SOURCE.findall(text)
        for quote in QUOTE.finditer(rest)
    ]


def stands_in(quote: str, text: str) -> bool:
    "Whether a quote is in a text, white space apart."
    return "".join(quote.split()) in "".join(text.split())


def statements(root: Path = ROOT) -> list[dict]:
    "Every entry of the clinic: name, page, texts, mark, title, chapters that settle it, size."
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
                said_in = list(dict.fromkeys(name for name, _, _ in SOURCE.findall(text)))
                given = {"page": page, "texts": said_in, "chapters": settled, "size": size}
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
    lines = [f"| Page | {' | '.join(heads)} | all |", "|---|" + "--:|" * (len(KINDS) + 1)]
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
            ", ".join(TEXTS[text] for text in r["texts"]),
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
