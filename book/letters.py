"""The letters in the formulas of the first pass, and the Notation's table, which has them all.

A letter is Latin or Greek, or it has its own style, as in `\\mathcal{L}`. Indices count as letters;
words in `\\text`, `\\mathrm` and `\\operatorname` don't.
"""

import json
import re
from pathlib import Path

import cards

TABLE = "nbs/start/01_notation"
CODE = re.compile(r"^(`{3,}).*?^\1|`[^`\n]*`", re.M | re.S)
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$\w])\$(?!\s)(.+?)(?<![\s\\])\$", re.S)
WORD = re.compile(r"\\(?:text|mathrm|operatorname\*?|texttt|begin|end)\s*\{[^{}]*\}")
STYLED = re.compile(r"\\(?:mathcal|mathbb)\{\w\}")
GREEK = "alpha beta gamma delta epsilon varepsilon eta theta lambda mu pi rho sigma tau phi omega"
GREEK += " Gamma Delta Theta Lambda Pi Sigma Phi Omega ell"
COMMAND = re.compile(r"\\[a-zA-Z]+")


def letters(formula: str) -> set[str]:
    "The letters of a formula, as TeX writes them."
    plain = STYLED.sub(" ", WORD.sub(" ", formula))
    greek = {one for one in COMMAND.findall(plain) if one[1:] in GREEK.split()}
    return {*STYLED.findall(formula), *greek, *re.findall("[a-zA-Z]", COMMAND.sub(" ", plain))}


def formulas(cells: list[dict]) -> list[str]:
    "The formulas of a chapter's open text, displayed and inline."
    shown = (one for one in cards.main_line(cells) if one["cell_type"] == "markdown")
    texts = (CODE.sub(" ", cards.ASIDE.sub("", "".join(cell["source"]))) for cell in shown)
    return [display or inline for text in texts for display, inline in FORMULA.findall(text)]


def pages(root: Path = cards.ROOT) -> dict[str, list[str]]:
    "Each letter of the first pass, with the pages whose formulas use it, except the table's page."
    found: dict[str, list[str]] = {}
    for page in cards.first_pass(root):
        if page not in (cards.NOW, TABLE):
            cells = json.loads((root / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]
            for letter in sorted(set().union(*map(letters, formulas(cells)))):
                found.setdefault(letter, []).append(page)
    return found


ROW = re.compile(r"^\| (\$.+?\$) \|(.*)$", re.M)


def rows(text: str) -> list[list[str]]:
    "The letters of each row of the Notation's table."
    return [sorted(letters(first.replace("$", " "))) for first, _ in ROW.findall(text)]


def with_pages(text: str, root: Path = cards.ROOT) -> str:
    "The table with one more column: the first pages that use a letter, and '…' if there are more."
    used, numbers = pages(root), cards.numbers(root)

    def row(match: re.Match) -> str:
        ours = {page for one in letters(match[1].replace("$", " ")) for page in used.get(one, ())}
        where = [page for page in cards.first_pass(root) if page in ours]
        links = [f"{{doc}}`{numbers[page]} </{page}>`" for page in where[:4]]
        return f"{match[0]} {', '.join(links)}{' …' * (len(where) > 4)} |"

    head = re.compile(r"^(\| letter \|.*)\n(\|[-|]+)$", re.M)
    return ROW.sub(row, head.sub(r"\1 pages |\n\2---|", text))
