"""A chapter for plain Jupyter: what the site alone resolves becomes text, links and folds.

Roles such as `{doc}` and `{eq}` become links, numbers and names of works. Lines such as
`#| code-fold: true` go, and what the site folds or leaves out is collapsed. In a handout (`Book`)
chapters lead to each other, what is no chapter of it to the site, and equations and figures are
numbered in each chapter; in a copy that stands alone (`Alone`) all leads to the site, by the
site's numbers.
"""

import configparser
import functools
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import cards
import cell_directives
from pybtex.database import parse_file

ROLE = re.compile(r"(?<!`)\{(doc|term|eq|numref|ref|cite:p|cite:t)\}`([^`]+)`")
NAMED = re.compile(r"(.*?)\s*<([^<>]+)>", re.S)  # text <target>
EQUATION = re.compile(r"(\$\$.*?)\s*\$\$[ \t]*\(([\w-]+)\)", re.S)
WIDGET = re.compile(r"^(`{3,})\{widget\} \w+\n(?::\w+:.*\n)*(.*?)\n\1[ \t]*$", re.M | re.S)
LABEL = re.compile(r"^\([\w-]+\)=\n", re.M)
MACHINERY = "base"  # chapters on how the checks work, whose examples are exercises of the book


def site(root: Path) -> dict[str, str]:
    "The addresses of the course: `pages`, its site, and `code`, its repository."
    settings = configparser.ConfigParser()
    settings.read(root / "settings.ini")
    found = settings["DEFAULT"]
    return {"pages": f"{found['doc_host']}{found['doc_baseurl']}", "code": found["git_url"]}


@dataclass
class Book:
    "What the roles of all chapters point to."

    root: Path
    pages: str  # the address of the site
    titles: dict[str, str] = field(default_factory=dict)  # nbs/attention/02_masks -> its title
    numbers: dict[str, tuple[str, str]] = field(default_factory=dict)  # label -> page, number
    works: dict[str, tuple[str, str, str]] = field(default_factory=dict)  # names, year, address
    terms: dict[str, str] = field(default_factory=dict)  # in small letters -> as it is spelled

    # --- links ----------------------------------------------------------------------------------

    def link(self, text: str, page: str, here: str) -> str:
        "A link from one page to another, in the handout or on the site."
        if page not in self.titles or Path(page).parent.name == MACHINERY:
            return f"[{text}]({self.pages}/{page}.html)"
        return f"[{text}]({os.path.relpath(f'{page}.ipynb', Path(here).parent)})"

    def title(self, page: str) -> str:
        "What a chapter, or another page of the site, is called."
        if page in self.titles:
            return self.titles[page]
        return (self.root / f"{page}.md").read_text(encoding="utf-8").split("\n")[0].lstrip("# ")

    def _doc(self, text: str | None, target: str, here: str) -> str:
        beside = os.path.normpath(Path(here).parent / target)
        page = target[1:] if target.startswith("/") else beside
        return self.link(text or self.title(page), page, here)

    def _term(self, text: str | None, term: str) -> str:
        return text or term  # the glossary is not at hand

    def _number(self, form: str, label: str, here: str) -> str:
        page, number = self.numbers[label]
        said = form.format(number)
        return said if page == here else f"{said} of {self.link(self.title(page), page, here)}"

    def _cite(self, keys: str, inside: bool) -> str:
        said = []
        for key in keys.split(","):
            names, year, address = self.works[key.strip()]
            text = f"{names}, {year}" if inside else f"{names} ({year})"
            said.append(f"[{text}]({address})" if address else text)
        return f"({'; '.join(said)})" if inside else ", ".join(said)

    # --- cells ----------------------------------------------------------------------------------

    def text(self, text: str, here: str) -> str:
        "Markdown without roles and labels; `here` is the page, such as nbs/attention/02_masks."

        def resolved(match):
            role, said, target = match[1], None, match[2]
            if named := NAMED.fullmatch(target):
                said, target = named.groups()
            if role == "doc":
                return self._doc(said, target, here)
            if role == "term":
                return self._term(said, target)
            if role == "eq":
                return self._number("({})", target, here)
            if role == "numref":
                return self._number("Figure {}", target, here)
            if role.startswith("cite"):
                return self._cite(target, role == "cite:p")
            return said or target  # a place on a page

        def tagged(match):
            return f"{match[1]} \\tag{{{self.numbers[match[2]][1]}}}\n$$"

        def told(match):  # what stands there until the site's program runs
            at = f"On [the book's site]({self.pages}/{here}.html)"
            said = match[2].replace("On the book's site", at)
            return said.replace("you can try it here", "you can try it")

        text = WIDGET.sub(told, text)
        return LABEL.sub("", EQUATION.sub(tagged, ROLE.sub(resolved, text)))

    def cells(self, cells: list[dict], here: str) -> list[dict]:
        "The cells of a page; a figure gets its caption in a cell below it."
        found = []
        for cell in cells:
            text = "".join(cell["source"])
            if cell["cell_type"] != "code":
                found.append(_with(cell, self.text(text, here)))
                continue
            told, code = cell_directives.split(text)
            if not code.strip():
                continue
            folded = (
                {"jupyter": {"source_hidden": True}} if {"hide", "code-fold"} & set(told) else {}
            )
            found.append(_with(cell, code) | {"metadata": {**cell.get("metadata", {}), **folded}})
            if caption := told.get("fig-cap"):
                label, said = told.get("label"), self.text(caption, here)
                number = f"*Figure {self.numbers[label][1]}.* " if label else ""
                below = {"cell_type": "markdown", "id": f"caption-{cell['id']}", "metadata": {}}
                found.append(_with(below, number + said))
        return found


class Alone(Book):
    "What the roles say in a chapter that stands alone: all links lead to the site."

    def link(self, text: str, page: str, here: str) -> str:
        return f"[{text}]({self.pages}/{page}.html)"

    def _term(self, text: str | None, term: str) -> str:
        spelled = self.terms[term.lower()].encode("ascii", "ignore").decode()
        label = re.sub(r"[^A-Za-z0-9]+", "-", spelled).strip("-")  # as Sphinx makes it
        return f"[{text or term}]({self.pages}/book/glossary.html#term-{label})"

    def _number(self, form: str, label: str, here: str) -> str:
        page, number = self.numbers[label]
        said, kind = form.format(number), "equation-" if form == "({})" else ""
        return said if page == here else f"[{said}]({self.pages}/{page}.html#{kind}{label})"


def _with(cell: dict, text: str) -> dict:
    return {**cell, "source": text.splitlines(keepends=True)}


# --- what the book holds --------------------------------------------------------------------------


def _names(people: list) -> str:
    last = [str(person.rich_last_names[-1]) for person in people]
    if len(last) > 2:
        return f"{last[0]} et al."
    return " and ".join(last)


def _address(fields: dict) -> str:
    if fields.get("archiveprefix", "").lower() == "arxiv":
        return f"https://arxiv.org/abs/{fields['eprint']}"
    return f"https://doi.org/{fields['doi']}" if "doi" in fields else fields.get("url", "")


def glossary(root: Path) -> dict[str, list[str]]:
    "The terms of the glossary, each with the chapters that its entry leads to."
    text = (root / "book/glossary.md").read_text(encoding="utf-8")
    entries = re.search(r"```{glossary}\n(.*?)```", text, re.S)[1].strip().split("\n\n")
    return {e.split("\n")[0]: re.findall(r"\{doc\}`/(nbs/[^`]+)`", e) for e in entries}


@functools.cache
def book(root: Path, kind: type[Book] = Book) -> Book:
    "The titles, labels and works of a book, for chapters of a kind."
    found, chapters = kind(root, site(root)["pages"]), cards.numbers(root)
    for path in cards.chapters(root).values():
        page = str(path.relative_to(root).with_suffix(""))
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts = ["".join(cell["source"]) for cell in cells]
        found.titles[page] = texts[0].split("\n")[0].lstrip("# ")
        equations, figures = [], []
        for cell, text in zip(cells, texts):
            if cell["cell_type"] != "code":
                equations += [match[2] for match in EQUATION.finditer(text)]
            elif label := cell_directives.split(text)[0].get("label"):
                figures.append(label)
        before = f"{chapters[page]}." if kind is Alone else ""
        for labels in (equations, figures):
            found.numbers |= {label: (page, f"{before}{n}") for n, label in enumerate(labels, 1)}
    found.terms = {term.lower(): term for term in glossary(root)}
    for key, entry in parse_file(str(root / "book/references.bib")).entries.items():
        fields = {name.lower(): value for name, value in entry.fields.items()}
        people = entry.persons.get("author") or entry.persons.get("editor") or []
        found.works[key] = _names(people), fields.get("year", ""), _address(fields)
    return found
