"""Write the tables of book/sources.md and book/clinic.md.

python book/sources.py

The tables of sources.md come from book/sources.yml and from the places that the clinic's entries
name. Those of clinic.md come from the texts and outputs of the clinic's notebooks.
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
PAGES = {  # page in nbs/sources/ -> the text whose statements it tests
    "01_primer_text": TEXTS["S0"],
    "02_reading": TEXTS["S1"],
    "03_blog": TEXTS["S2"],
    "04_lecture": TEXTS["S3"],
    "05_more_than_one": "more from all four",
}
KINDS = {"✗": "false as printed", "✎": "slip", "◐": "half true"}
KINDS |= {"≡": "convention", "✓": "proven right"}
HEADING = re.compile(r"### (\w+\.\d+) · (\S) ([^\n]+)\n")
SOURCE = re.compile(r"^\*\*Source\.\*\* (S\d), ([^:\n]+): (.+)$", re.M)  # text, place, quotes
QUOTE = re.compile(r"\$([^$]+)\$|「([^」]+)」")  # a formula as printed, a phrase of the text


def label(name: str) -> str:
    "`S0.1` -> `clinic-s0-1`, the label that the book gives to that entry."
    return "clinic-" + name.lower().replace(".", "-")


def texts(root: Path = ROOT) -> list[dict]:
    "The four texts, each with its sections, their formulas, and the cells that teach them."
    return yaml.safe_load((root / "book/sources.yml").read_text())


def places(sections: list[dict]) -> list[str]:
    "The name of each section: its number, such as 1.2(3), or its heading, without white space."
    found, chapter = [], ""
    for row in sections:
        number = re.match(r"([\d.]*)(\(\d\))?", row["heading"])
        chapter = number[1] or chapter
        found.append(
            chapter + (number[2] or "") if number[0] else re.sub(r"\s", "", row["heading"])
        )
    return found


def section(called: str, sections: list[dict]) -> int:
    "The index of the section that an entry of the clinic names: 1.2(3), 前馈层 (feed-forward)."
    known, name = places(sections), re.sub(r"\s", "", called)
    if number := re.match(r"\d[\d.]*(\(\d\))?", name):
        return known.index(number[0])
    if called.startswith("after "):
        return section(called.removeprefix("after "), sections) + 1
    for each in (name, re.sub(r"\([^)]*\)$", "", name)):
        if near := [p for p in known if p.startswith(each) or each.startswith(p)]:
            return known.index(min(near, key=lambda place: abs(len(place) - len(each))))
    glosses = [re.split("[,:]", row["gloss"])[0] for row in sections]
    return next(number for number, gloss in enumerate(glosses) if gloss in called)


def sourced(root: Path = ROOT) -> dict[tuple[str, int], list[str]]:
    "Text and index of a section -> the entries of the clinic whose `**Source.**` names it."
    found: dict[tuple[str, int], list[str]] = {}
    sections = {text["text"]: text["sections"] for text in texts(root)}
    for path in sorted((root / "nbs/sources").glob("*.ipynb")):
        for cell in json.loads(path.read_text())["cells"]:
            entry = HEADING.match(said := "".join(cell["source"]))
            given = re.findall(r"^\*\*Source\.\*\* (S\d), ([^:]+):", said, re.M) if entry else ()
            for text, called in given:
                names = found.setdefault((text, section(called, sections[text])), [])
                names += [entry[1]] if entry[1] not in names else []
    return found


def quotes(text: str) -> list[tuple[str, str, str, str]]:
    "The quotes in the Source lines of a cell: text, place, and a formula or a phrase."
    return [
        (name, place, *quote.groups(""))
        for name, place, rest in SOURCE.findall(text)
        for quote in QUOTE.finditer(rest)
    ]


def stands_in(quote: str, text: str) -> bool:
    "Whether a text contains a quote, apart from white space."
    return "".join(quote.split()) in "".join(text.split())


def statements(root: Path = ROOT) -> list[dict]:
    "Every entry of the clinic: name, page, texts, mark, title, chapters that settle it, error."
    found = []
    for page in PAGES:
        cells = json.loads((root / f"nbs/sources/{page}.ipynb").read_text())["cells"]
        for cell, after in pairwise(cells):
            text = "".join(cell["source"])
            if entry := HEADING.match(text):
                (shown,) = after["outputs"]
                size = "".join(shown["text"]).partition(" ")[2].strip()
                settled = re.findall(r"\{doc\}`(/nbs/[^`]+)`", text.rpartition("See ")[2])
                names = ("name", "mark", "title")
                said_in = list(dict.fromkeys(name for name, _, _ in SOURCE.findall(text)))
                given = {"page": page, "texts": said_in, "chapters": settled, "size": size}
                found.append(dict(zip(names, entry.groups(), strict=True)) | given)
    return found


def entries(names: list[str]) -> str:
    "Links to entries of the clinic."
    return ", ".join(f"{{ref}}`{name} <{label(name)}>`" for name in names) or "–"


def taught(row: dict) -> str:
    "The chapters and cells of a section and of its formulas, in Markdown."
    cells: dict[str, list[str]] = {}
    formulas = [place for formula in row.get("formulas", ()) for place in formula.values()]
    for chapter, cell in map(str.split, [*row.get("taught", ()), *formulas]):
        if cell not in cells.setdefault(chapter, []):
            cells[chapter].append(cell)
    links = (f"{{doc}}`/{c}`: {', '.join(f'`{i}`' for i in ids)}" for c, ids in cells.items())
    return "; ".join(links) or f"left out: {row['left_out']}"


def table(text: dict, clinic: dict[tuple[str, int], list[str]]) -> str:
    "The table of a text in Markdown: a row for each section."
    lines = ["| Section | Taught in, cell | In the clinic |", "|---|---|---|"]
    for number, (row, place) in enumerate(
        zip(text["sections"], places(text["sections"]), strict=True)
    ):
        found = entries(clinic.get((text["text"], number), []))
        heading = re.sub(r"^\(\d\)", f"{place} ", row["heading"])
        lines.append(f"| {heading} · {row['gloss']} | {taught(row)} | {found} |")
    return "\n".join(lines)


def count(rows: list[dict]) -> str:
    "The number of entries of each kind on each page, in Markdown."
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
        "| Entry | Source | Statement | Kind | Size of the error | Explained in |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        settled = ", ".join(f"{{doc}}`{chapter}`" for chapter in r["chapters"])
        cells = (
            entries([r["name"]]),
            " · ".join(TEXTS[text] for text in r["texts"]),
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
    "The two pages as they should be: name of the file -> text."
    rows, clinic = statements(root), sourced(root)
    tables = {
        "book/sources.md": {text["text"]: table(text, clinic) for text in texts(root)},
        "book/clinic.md": {"count": count(rows), "entries": entry_table(rows)},
    }
    pages = {name: (root / name).read_text() for name in tables}
    for name, written in tables.items():
        for mark, text in written.items():
            pages[name] = filled(pages[name], mark, text)
    return pages


def main(root: Path = ROOT) -> None:
    "Write the two pages again."
    for name, text in made(root).items():
        (root / name).write_text(text)


if __name__ == "__main__":
    main()
