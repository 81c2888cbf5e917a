"""The prose of the book as paragraphs, from the chapters of a checkout or from the edition."""

import json
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from transformer_lit.course.files import read_text

SEPARATOR = "\x1c"  # before the path of each chapter in the edition
LEAST = 12  # words of a paragraph: what is shorter leads to something, and says nothing itself
ROLES = (
    (r"\{cite:[pt]\}`[^`]*`", ""),
    (r"\{(?:numref|eq|ref)\}`[^`]*`", "the one shown"),
    (r"\{doc\}`([^`<]*?)\s*<[^`>]*>`", r"\1"),
    (r"\{doc\}`[^`]*?([^`/]*)`", r"\1"),
    (r"\{[a-z:]+\}`([^`]*)`", r"\1"),
)


def prose(text: str) -> str:
    "A Markdown cell without code, widgets, displayed formulas, frames, tables and roles."
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
    "A paragraph and where it stands: `nbs/block/01_norm`, the chapter's title, the section's."

    page: str
    chapter: str
    section: str
    text: str

    @property
    def heading(self) -> str:
        "The title that stands above it, roots in words."
        return _in_words(self.section or self.chapter)

    def __str__(self) -> str:
        "With its titles, which often hold the word that a question has, and roots in words."
        return _in_words(". ".join(filter(None, (self.chapter, self.section, self.text))))


def _in_words(text: str) -> str:
    return " ".join(re.sub(r"√|\\sqrt\b", " root ", text).split())


def paragraphs(root: Path | None = None) -> list[Paragraph]:
    """What the chapters say, without exercises; the errata clinic quotes mistakes and is left out.

    From the notebooks below `root`: the checkout in which this package lies, unless given. Where
    there are none, as after an installation, from the edition that comes with the package.
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
