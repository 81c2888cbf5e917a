"""Write the table of book/sources.md from book/sources.yml.

python book/sources.py
"""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- subjects -->", "<!-- end of subjects -->"
PAGES = {
    "S0": "nbs/sources/01_primer_text",
    "S1": "nbs/sources/02_reading",
    "S2": "nbs/sources/03_blog",
    "S3": "nbs/sources/04_lecture",
    "A": "nbs/sources/04_lecture",
}


def subjects(root: Path = ROOT) -> list[dict]:
    "Every subject with its chapter, its cell and its entries in the clinic."
    return yaml.safe_load((root / "book/sources.yml").read_text())["subjects"]


def entries(names: list[str]) -> str:
    "Entries, each a link to its page of the clinic."
    return ", ".join(f"{{doc}}`{n} </{PAGES[n.split('.')[0]]}>`" for n in names) or "–"


def table(rows: list[dict]) -> str:
    "The table in Markdown."
    lines = ["| Subject | Chapter | Cell | In the clinic |", "|---|---|---|---|"]
    for r in rows:
        chapter = f"{{doc}}`/{r['chapter']}`"
        lines.append(f"| {r['subject']} | {chapter} | `{r['cell']}` | {entries(r['clinic'])} |")
    return "\n".join(lines)


def filled(page: str, rows: list[dict]) -> str:
    "The page with the table between its marks."
    written = f"{BEGIN}\n{table(rows)}\n{END}"
    return re.sub(f"{BEGIN}.*?{END}", lambda _: written, page, flags=re.S)


def main(root: Path = ROOT) -> None:
    "Write the page anew."
    path = root / "book/sources.md"
    path.write_text(filled(path.read_text(), subjects(root)))


if __name__ == "__main__":
    main()
