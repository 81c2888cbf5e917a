"""The book's prose as paragraphs, from the notebooks of a checkout or from the packaged text."""

import json
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from transformer_lit.course.files import read_text

SEPARATOR = "\x1c"  # comes before the path of each chapter in the packaged text
LEAST = 12  # words in a paragraph; shorter ones only introduce what comes next
ROLES = (
    (r"\{cite:[pt]\}`[^`]*`", ""),
    (r"\{(?:numref|eq|ref)\}`[^`]*`", "the one shown"),
    (r"\{doc\}`([^`<]*?)\s*<[^`>]*>`", r"\1"),
    (r"\{doc\}`[^`]*?([^`/]*)`", r"\1"),
    (r"\{[a-z:]+\}`([^`]*)`", r"\1"),
)


def prose(text: str) -> str:
    "The text of a Markdown cell without code, widgets, display formulas, boxes, tables and roles."
    text = re.sub(r"^(`{3,})(\{widget\}|(?!\{)).*?^\1$", "", text, flags=re.S | re.M)
    text = re.sub(r"\$\$.*?\$\$( \([\w-]+\))?", "", text, flags=re.S)
    text = re.sub(r"^(`{3,}|:[\w-]+:|\||> ).*$", "", text, flags=re.M)
    for role, left in ROLES:
        text = re.sub(role, left, text)
    text = re.sub(r"[ \t]+([.,;:)])", r"\1", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def chapter_text(path: Path) -> str:
    "The prose of a notebook."
    cells = json.loads(read_text(path))["cells"]
    texts = [prose("".join(c["source"])) for c in cells if c["cell_type"] == "markdown"]
    return "\n\n".join(filter(None, texts)) + "\n"


_ASIDE = re.compile(r"Exercises|Solutions|[a-z]\w*\.\d+ · ")


@dataclass(frozen=True)
class Paragraph:
    "A paragraph and its place: the page (`nbs/block/01_norm`), the chapter's and section's titles."

    page: str
    chapter: str
    section: str
    text: str

    @property
    def heading(self) -> str:
        "The nearest title above the paragraph, with √ written as a word."
        return _in_words(self.section or self.chapter)

    def __str__(self) -> str:
        "The text after its titles, which often contain a question's keyword; √ becomes a word."
        return _in_words(". ".join(filter(None, (self.chapter, self.section, self.text))))


def _in_words(text: str) -> str:
    return " ".join(re.sub(r"√|\\sqrt\b", " root ", text).split())


def paragraphs(root: Path | None = None) -> list[Paragraph]:
    """The paragraphs of the chapters, without exercises and without the errata clinic's mistakes.

    They come from the notebooks below `root`, which is the checkout that contains this package
    unless given. If it has no notebooks, as in an installed package, the packaged text is read.
    """
    root = Path(__file__).parents[2] if root is None else root
    if notebooks := sorted((root / "nbs").glob("*/[0-9]*.ipynb")):
        texts = {f"nbs/{path.parent.name}/{path.stem}": chapter_text(path) for path in notebooks}
    else:
        edition = read_text(Path(str(files("transformer_lit") / "data/book.txt")))
        texts = dict(part.split("\n", 1) for part in edition.split(SEPARATOR)[1:])
    kept = {page: text for page, text in texts.items() if not page.startswith("nbs/sources/")}
    return [one for page, text in kept.items() for one in _paragraphs(page, text)]


def _paragraphs(page: str, text: str) -> list[Paragraph]:
    found, chapter, section = [], "", ""
    for block in (" ".join(block.split()) for block in re.split(r"\n\s*\n", text)):
        if title := re.fullmatch(r"(#+) (.*)", block):
            first = title[1] == "#"
            chapter, section = (title[2], "") if first else (chapter, title[2])
        elif not _ASIDE.match(section) and len(block.split()) >= LEAST:
            found.append(Paragraph(page, chapter, section, block))
    return found
