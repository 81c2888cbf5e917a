"""The contents of the book, and the card of each chapter: its pass, minutes, needs and level.

    python book/cards.py    # counts the minutes again and writes them

A card is part of its notebook's metadata and looks like this:
{"pass": 1, "minutes": 35, "needs": ["attention/masks"], "level": "core"}: `needs` names
chapters by part and topic, without their numbers, so that no card changes with the order.
"""

import ast
import configparser
import functools
import json
import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
WORDS, LINES = 120, 6  # how many words of text or lines of code are read in a minute
LEVELS = ("core", "deep", "reference")
OPENING = "book/parts/"  # the folder of the pages that open a part
NOW = "book/now"  # what a reader can do at the end of the first pass
FOLDED = re.compile(r"^#\|\s*(hide|code-fold:\s*true|eval:\s*false|export exercises)\b", re.M)
DIRECTIVES = re.compile(r"^(#\||# NBVAL_).*$", re.M)
HEADING = re.compile(r"^##\s+(.*)$", re.M)
FOLDS = {  # sections that show only their title until they are opened, with the text of the bar
    "Workshop": "Open the workshop (second pass)",
    "Often confused": "Open what is often confused",
}
# a widget's text is only read if the widget can't run
ASIDE = re.compile(r"<details>.*?</details>|^(`{3,})\{widget\}.*?^\1", re.M | re.S)


def settings(root: Path = ROOT) -> configparser.SectionProxy:
    "The only section of settings.ini, which contains the address of the repository."
    found = configparser.ConfigParser()
    found.read(root / "settings.ini", encoding="utf-8")
    return found["DEFAULT"]


def pythons(root: Path = ROOT) -> str:
    "The supported versions of Python, as every page names them; soupsieve needs 3.11.5."
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    oldest, too_new = re.fullmatch(r">=([\d.]+),<3\.(\d+)", project["requires-python"]).groups()
    return f"Python {oldest} to 3.{int(too_new) - 1} (at least 3.11.5 to build the book)"


@functools.cache  # the build asks for the same contents some thousand times
def _parsed(text: str) -> dict:
    return yaml.safe_load(text)


def contents(root: Path = ROOT) -> list[tuple[str, list[str]]]:
    "The parts of the book in order, each with its name and all its pages."
    toc = _parsed((root / "book/_toc.yml").read_text())
    return [(p.get("caption", ""), [c["file"] for c in p["chapters"]]) for p in toc["parts"]]


def numbered(pages: list[str]) -> list[str]:
    "The pages of a part that have a number: all except the one that opens it."
    return [page for page in pages if not page.startswith(OPENING)]


def part_name(place: int, caption: str) -> int | str:
    "The number of a part; the appendix has a letter."
    return "A" if caption == "Appendix" else place


def numbers(root: Path = ROOT) -> dict[str, str]:
    "The number of each page: `nbs/attention/02_masks` -> `3.2`."
    return {
        page: f"{part_name(place, caption)}.{count}"
        for place, (caption, pages) in enumerate(contents(root), 1)
        for count, page in enumerate(numbered(pages), 1)
    }


def chapters(root: Path = ROOT) -> dict[str, Path]:
    "Every notebook of the book, in order: `attention/masks` -> its file."
    files = [page for _, pages in contents(root) for page in pages]
    return {chapter_name(f): root / f"{f}.ipynb" for f in files if f.startswith("nbs/")}


def page(path: Path, root: Path = ROOT) -> str:
    "The page of a notebook, such as `nbs/attention/02_masks`."
    return path.relative_to(root).with_suffix("").as_posix()


def chapter_name(path: str | Path) -> str:
    "`nbs/attention/01_masks.ipynb` -> `attention/masks`."
    path = Path(path)
    return f"{path.parent.name}/{re.sub(r'^[0-9]+_', '', path.stem)}"


def first_pass(root: Path = ROOT) -> list[str]:
    "The pages of the first pass, in order: its chapters, and the page book/now."
    found = {page(path, root): card(path)["pass"] for path in chapters(root).values()}
    return [one for _, pages in contents(root) for one in pages if found.get(one, one) in (1, NOW)]


def main_line(cells: list[dict]) -> list[dict]:
    "The cells outside the sections that are folded."
    kept, folded = [], False
    for cell in cells:
        if cell["cell_type"] == "markdown" and (found := HEADING.search("".join(cell["source"]))):
            folded = found[1].startswith((*FOLDS, "Solutions"))
        kept += [] if folded else [cell]
    return kept


def words(cells: list[dict]) -> int:
    "Words of the main line, without widgets and without folds such as hints and solutions."
    texts = ("".join(c["source"]) for c in main_line(cells) if c["cell_type"] == "markdown")
    return sum(len(ASIDE.sub("", text).split()) for text in texts)


def _asserts(statement: ast.stmt) -> bool:
    call = getattr(statement, "value", None)
    name = getattr(
        getattr(call, "func", None), "attr", getattr(getattr(call, "func", None), "id", "")
    )
    return isinstance(statement, ast.Assert) or name == "assert_close"


def _names(statements: list[ast.stmt], kind: type) -> set[str]:
    "The names that statements read (`ast.Load`) or assign to (`ast.Store`)."
    nodes = (node for one in statements for node in ast.walk(one) if isinstance(node, ast.Name))
    return {node.id for node in nodes if isinstance(node.ctx, kind)}


def without_checks(code: str) -> tuple[str, str]:
    """The code of an open cell as a reader sees it, and its assertions, which are folded below it.

    An assertion stays in place if a later statement assigns to one of its names.
    """
    body, cut = ast.parse(code).body, set()
    for place, one in enumerate(body):
        if _asserts(one) and not _names([one], ast.Load) & _names(body[place + 1 :], ast.Store):
            cut |= {*range(one.lineno, one.end_lineno + 1)}
    rows = list(enumerate(code.split("\n"), 1))
    shown, folded = ("\n".join(row for n, row in rows if (n in cut) == f) for f in (False, True))
    return re.sub(r"\n{3,}", "\n\n", shown).strip("\n"), folded


def lines(cells: list[dict]) -> int:
    "Lines of code that the main line shows open, without blank lines."
    sources = ("".join(c["source"]) for c in main_line(cells) if c["cell_type"] == "code")
    shown = (without_checks(DIRECTIVES.sub("", s))[0] for s in sources if not FOLDED.search(s))
    return sum(bool(line.strip()) for source in shown for line in source.split("\n"))


def minutes(cells: list[dict]) -> int:
    "How many minutes a chapter takes, rounded to fives; at least 5."
    return max(5, 5 * round((words(cells) / WORDS + lines(cells) / LINES) / 5))


def card(path: Path) -> dict | None:
    "The card of a chapter, as it is in the file."
    return json.loads(path.read_text())["metadata"].get("chapter")


def main(root: Path = ROOT) -> None:
    "Count the minutes of every chapter again and write them into its card."
    for path in chapters(root).values():
        notebook = json.loads(path.read_text())
        found = notebook["metadata"].setdefault(
            "chapter", {"pass": 2, "needs": [], "level": "core"}
        )
        counted = minutes(notebook["cells"])
        if found.get("minutes") != counted:
            found["minutes"] = counted
            path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
