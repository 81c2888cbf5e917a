"""The steps that turn a chapter into a page: see STEPS, at the end, where they are in order.

A notebook is changed in memory when Sphinx reads it; the file isn't touched. This module also finds
the cells of an exercise, which the site, the copies and the handout show in different ways.
"""

import ast
import builtins
import dis
import functools
import inspect
import json
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType
from typing import get_args

from docutils import nodes
from sphinx import addnodes

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "book/_ext"))
import answers  # noqa: E402
import cards  # noqa: E402
import letters  # noqa: E402
import quizzes  # noqa: E402
import records  # noqa: E402
import sources  # noqa: E402

from transformer_lit.course.exercises import Question, read_questions  # noqa: E402
from transformer_lit.course.progress import marks  # noqa: E402
from transformer_lit.exercises import my_transformer  # noqa: E402

COPIES = "notebooks"  # the folder of the site, and the branch of the repository, with the copies
DIRECTIVE = re.compile(r"^#\|\s*([\w-]+)\s*:?\s*(.*?)\s*$")
NBVAL = re.compile(r"^# NBVAL_\w+[^\n]*\n?", re.M)


def source(cell: dict) -> str:
    return "".join(cell["source"])


def split(text: str) -> tuple[dict[str, str], str]:
    "The directives of a cell (its first lines, `#| key: value`) and its code."
    lines, found = text.split("\n"), {}
    while lines and (match := DIRECTIVE.match(lines[0])):
        found[match[1]] = match[2]
        lines.pop(0)
    return found, NBVAL.sub("", "\n".join(lines)).lstrip("\n")


def markdown(id: str, text: str) -> dict:
    return {"cell_type": "markdown", "id": id, "metadata": {}, "source": text}


# --- exercises ------------------------------------------------------------------------------------
# An exercise has up to three cells: the statement, whose metadata contains the kind of exercise,
# with the hint and the text of the solution in folds; the blank; and, for a build or a repair, the
# solution, which is exported and has its check above it. The answer to a question is data.

WIDTH = 79  # columns that a page shows without scrolling
CHECKS = re.compile(r"#\| export exercises\.(\w+)\n")


@dataclass
class Exercise:
    "An exercise as a notebook has it; places are indices of cells, or None if there is no cell."

    id: str
    title: str
    kind: str
    minutes: int
    level: str
    statement: str  # with the hint
    text: str  # of the solution
    place: int
    blank: str = ""
    solution_place: int | None = None
    solution: str = ""  # its code, as it is shown
    hints: dict[str, str] = field(default_factory=dict)  # hint -> its mistake

    @property
    def name(self) -> str:
        return self.id.replace(".", "-")

    @property
    def mark(self) -> str:
        "must, should or could, see book/marks.py."
        return marks().get(self.id, self.level)

    @property
    def asked(self) -> str:
        "What a copy of the notebook shows: heading, kind, time, statement and hint."
        told = f"*{self.kind} · {self.minutes} minutes · {self.mark}*"
        return f"### {self.id} · {self.title}\n\n{told}\n\n{self.statement}"


def exercises(cells: list[dict]) -> list[Exercise]:
    "All exercises of a notebook, in the order of their statements."
    found, solved = {}, {}
    for place, cell in enumerate(cells):
        if facts := cell["metadata"].get("exercise"):
            heading, _, rest = source(cell).partition("\n\n")
            id, _, title = heading.removeprefix("### ").partition(" · ")
            fold = f"\n\n<details><summary>Solution of {id}</summary>\n\n"
            statement, _, text = rest.partition(fold)
            text, hints = text.removesuffix("\n\n</details>"), {}
            if one := question(id):
                text += f"\n\nThe answer is {shown(one.answer)}."
                hints = {hint: shown(value) for hint, value in (one.hints or {}).items()}
            found[id] = Exercise(
                *(id, title),
                **facts,
                statement=statement,
                text=text,
                place=place,
                blank=source(cells[place + 1]),
                hints=hints,
            )
        elif CHECKS.match(source(cell)):
            id, code, hints = solution(source(cell))
            solved[id] = {"solution_place": place, "solution": code, "hints": hints}
    return [replace(one, **solved.get(id, {})) for id, one in found.items()]


def shown(value: object) -> str:
    "A value as code, with the digits that a reader needs."
    text = re.sub(r"\d+\.\d{5,}", lambda number: f"{float(number[0]):.6g}", repr(value))
    return f"`{text}`"


def question(id: str) -> Question | None:
    "The answer to a question and its hints, or None for a build or a repair."
    path = ROOT / f"transformer_lit/exercises/{id.partition('.')[0]}.toml"
    return read_questions(path).get(id)


def solution(text: str) -> tuple[str | None, str, dict[str, str]]:
    "From a cell with a solution: its exercise, its code without the checks, and their hints."
    code = split(text)[1]
    parts = [one for one in ast.parse(code).body if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    for one in parts:
        for mark in one.decorator_list:
            if getattr(getattr(mark, "func", None), "id", None) == "exercise":
                used = {name.id for name in ast.walk(one) if isinstance(name, ast.Name)}
                used -= {name.id for name in ast.walk(mark) if isinstance(name, ast.Name)}
                shown = [(part.lineno, part) for part in parts if part.name in used - {one.name}]
                shown.append((mark.end_lineno + 1, one))
                lines = code.split("\n")
                text = ["\n".join(lines[first - 1 : part.end_lineno]) for first, part in shown]
                return mark.args[0].value, "\n\n\n".join(text), dict.fromkeys(hints(code), "")
    return None, code, {}


def hints(code: str) -> list[str]:
    'The hints that checks give: `wrong["…"] = …`, `hint = "…"`.'
    found = []
    for node in ast.walk(ast.parse(code)):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Subscript) and getattr(target.value, "id", "") == "wrong":
                found.append(target.slice)
            elif getattr(target, "id", "") == "hint":
                found.append(node.value)
    return [one.value for one in found if isinstance(one, ast.Constant)]


def others(one: Exercise) -> str:
    "The hints on typical mistakes, as a list."
    if not one.hints:
        return ""
    rows = (f"- {value and f'{value}: '}{hint}" for hint, value in one.hints.items())
    return "*What often goes wrong*\n\n" + "\n".join(rows) + "\n\n"


def topics(cells: list[dict]) -> set[str]:
    "The modules `exercises.topic` that a notebook exports to."
    return {match[1] for cell in cells if (match := CHECKS.match(source(cell)))}


# --- steps ----------------------------------------------------------------------------------------


@dataclass
class Page:
    "A chapter while it becomes a page; `name` looks like nbs/attention/02_masks."

    name: str
    notebook: dict
    root: Path = ROOT

    @property
    def cells(self) -> list[dict]:
        return self.notebook["cells"]

    @property
    def is_first_pass(self) -> bool:
        return self.notebook["metadata"]["chapter"]["pass"] == 1

    def above(self, cell: dict, new: dict) -> None:
        "Add a cell above another one, or above the whole exercise if the other cell is its blank."
        place = next(n for n, one in enumerate(self.cells) if one is cell)
        blanks = {one.place + 1: one.place for one in exercises(self.cells)}
        self.cells.insert(blanks.get(place, place), new)

    def below(self, heading: str, text: str) -> bool:
        "Add a text at the end of the section's first cell; returns whether there is one."
        for cell in self.cells:
            if cell["cell_type"] == "markdown" and source(cell).startswith(f"## {heading}"):
                cell["source"] = f"{source(cell)}\n\n{text}"
                return True
        return False


def facts(notebook: dict) -> list[str]:
    "A card in words: the pass, the time, and the exercises if there are any."
    card, asked = notebook["metadata"]["chapter"], exercises(notebook["cells"])
    count, minutes = len(asked), sum(one.minutes for one in asked)
    said = ["**First pass**" if card["pass"] == 1 else "Second pass", f"{card['minutes']} minutes"]
    return said + (
        [f"{count} exercise{'s' if count > 1 else ''} of {minutes} minutes"] if count else []
    )


def colab(name: str, root: Path = ROOT) -> str:
    "The address at which Colab opens the copy of a chapter."
    where = cards.settings(root)["git_url"].removeprefix("https://github.com/")
    return f"https://colab.research.google.com/github/{where}/blob/{COPIES}/{name}.ipynb"


@functools.cache
def days(root: Path) -> dict[str, str]:
    "The day of each chapter's last commit; empty without a history."
    command = ["git", "log", "--format=%x00%cd", "--date=format:%-d %B %Y", "--name-only", "--"]
    told = subprocess.run([*command, "nbs"], cwd=root, capture_output=True, text=True).stdout
    found: dict[str, str] = {}
    for commit in told.split("\0")[1:]:
        day, *files = commit.split("\n")
        for file in files:
            found.setdefault(file.removesuffix(".ipynb"), day)
    return found


def box(page: Page) -> None:
    files, up = cards.chapters(page.root), "../" * page.name.count("/")
    needs = page.notebook["metadata"]["chapter"]["needs"]
    needs = [f"{{doc}}`/{cards.page(files[name], page.root)}`" for name in needs if name in files]
    said, times, *count = facts(page.notebook)
    day = days(page.root).get(page.name)
    line = [
        *(said, times),
        *([f"needs {', '.join(needs)}"] if needs else []),
        *count,
        f'<a href="{up}{COPIES}/{page.name}.ipynb">.ipynb</a>',
        f'<a href="{colab(page.name, page.root)}">Colab</a>',
        *([f"last changed on {day}"] if day else []),
    ]
    title, _, rest = source(page.cells[0]).partition("\n")
    shown = f":::{{div}} chapter-card\n{' · '.join(line)}\n:::\n"
    part = Path(page.name).parent.name
    first = next((name for name in files if name.startswith(f"{part}/")), None)
    if first == cards.chapter_name(page.name):
        shown += f"\n```{{transformer-map}} {part}\n```\n"
    page.cells[0]["source"] = f"{title}\n\n{shown}{rest}"


@functools.cache
def clinic(root: Path) -> dict[str, list[str]]:
    "For each chapter, links to the entries of the errata clinic that it settles."
    found: dict[str, list[str]] = {}
    for one in sources.statements(root):
        for name in one["chapters"]:
            link = f"{{ref}}`{one['title']} <{sources.label(one['name'])}>`"
            found.setdefault(name.strip("/"), []).append(link)
    return found


def clinic_links(page: Page) -> None:
    if links := clinic(page.root).get(page.name):
        said = f"*The errata clinic tests statements about this:* {', '.join(links)}."
        page.below("Often confused", said) or page.below("Summary", said)


def clinic_labels(page: Page) -> None:
    for cell in page.cells if page.name.startswith("nbs/sources/") else ():
        if entry := sources.HEADING.match(source(cell)):
            cell["source"] = f"({sources.label(entry[1])})=\n{source(cell)}"


MODULE = re.compile(r"^#\| default_exp (\S+)$", re.M)
EXPORT = re.compile(r"#\| export$", re.M)


def exported(cells: list[dict]) -> tuple[str | None, list[str]]:
    "The module that a chapter exports (or None), and its public functions and classes."
    code = [source(cell) for cell in cells if cell["cell_type"] == "code"]
    module = MODULE.search("\n".join(code))
    tree = ast.parse("\n".join(text for text in code if EXPORT.match(text)))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    names = dict.fromkeys(one.name for one in tree.body if isinstance(one, kinds))
    public = [name for name in names if not name.startswith("_")]
    return module and f"transformer_lit.{module[1]}", public


@functools.cache
def entries(root: Path = ROOT) -> list[tuple[list[str], list[str]]]:
    "For each entry of the glossary: its English and Chinese terms, and its chapters."
    text = (root / "book/glossary.md").read_text(encoding="utf-8")
    found = re.search(r"```{glossary}\n(.*?)```", text, re.S)[1].strip().split("\n\n")
    return [(e.split("\n")[:2], re.findall(r"\{doc\}`/(nbs/[^`]+)`", e)) for e in found]


def glossary(root: Path = ROOT) -> dict[str, list[str]]:
    "The English terms of the glossary, each with the chapters that its entry links to."
    return {terms[0]: pages for terms, pages in entries(root)}


def foot(page: Page) -> None:
    module, names = exported(page.cells)
    links = [f"{{py:obj}}`{name} <{module}.{name}>`" for name in names if module]
    terms = [f"{{term}}`{t}`" for t, pages in glossary(page.root).items() if page.name in pages]
    lines = [f"*In the reference:* {', '.join(links)}"] if links else []
    lines += [f"*In the glossary:* {', '.join(terms)}"] if terms else []
    if lines:
        page.below("Summary", f":::{{div}} chapter-foot\n{'<br>'.join(lines)}\n:::")


def quiz(page: Page) -> None:
    if (name := cards.chapter_name(page.name)) in quizzes.of_chapters():
        text = (
            f"**Test yourself.** {{doc}}`All questions </book/quizzes>`\n\n```{{quiz}} {name}\n```"
        )
        page.below("Summary", text)


def records_behind(page: Page) -> None:
    if fold := records.fold(page.cells, page.root):
        summaries = [n for n, c in enumerate(page.cells) if source(c).startswith("## Summary")]
        place = summaries[-1] if summaries else len(page.cells) - 1
        page.cells.insert(place + 1, markdown("records-behind", fold))


WHERE = (
    '\n\n<p class="where-to-write">Write your answers in a copy of this notebook; the links below '
    "the title open one, as a file or in Colab. There, run the cell below each statement to check "
    "your answer.</p>"
)
ENTRY = re.compile(r"(S\d|A)\.\d+ · ")  # of the clinic
CARD_END = "</details></div>"
CARD = re.compile(rf"{CARD_END}(?:<!-- (\S+) -->)?$")  # with the id if the page runs the answer


def exercise_cards(page: Page) -> None:
    asked = {one.place: one for one in exercises(page.cells)}
    taken = {place + 1 for place in asked} | {one.solution_place for one in asked.values()}
    where, cells = WHERE, []
    for place, cell in enumerate(page.cells):
        if one := asked.get(place):
            below = f"\n\n{answers.form(one)}" if answers.in_page(one) else where
            told = f"{one.minutes} minutes · {one.mark}"
            badge = f'<p class="exercise-kind"><span>{one.kind}</span> {told}</p>'
            text = one.statement.replace("<details>", '<details class="hint">')
            heading = f"(exercise-{one.name})=\n### {one.id} · {one.title}"
            cell["source"] = f"{heading}\n\n{badge}\n\n{text}{below}"
            where = "" if below == where else where  # said once
            opening = f'<details class="solution" id="solution-{one.name}">'
            opening += f"<summary>Solution of {one.id}</summary>\n\n{one.text}\n\n"
            # the input field replaces the blank
            cells += [cell] if answers.in_page(one) else [cell, page.cells[place + 1]]
            cells.append(markdown(f"text-{place}", opening))
            if one.solution:
                cells.append({**page.cells[one.solution_place], "source": one.solution})
            end = CARD_END
            if page.is_first_pass and not answers.in_page(one):
                end += f"<!-- {one.id} -->"
            cells.append(markdown(f"to-{place}", others(one) + end))
        elif place not in taken:
            cells.append(cell)
    while cells and (cells[-1]["cell_type"] == "code" and CHECKS.match(source(cells[-1]))):
        cells.pop()
    if source(cells[-1]) == "## Solutions":
        cells.pop()
    page.notebook["cells"] = cells


def letter_pages(page: Page) -> None:
    for cell in page.cells if page.name == letters.TABLE else ():
        if cell["id"] == "letters":
            cell["source"] = letters.with_pages(source(cell), page.root)


def only_imports(code: str) -> bool:
    body = ast.parse(code).body
    return bool(body) and all(isinstance(one, ast.Import | ast.ImportFrom) for one in body)


def stores(code: CodeType) -> set[str]:
    "The names that compiled code assigns to."
    return {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_NAME"}


def loads(code: CodeType) -> set[str]:
    "The global names that compiled code reads, also in its functions and classes."
    reads = "LOAD_NAME", "LOAD_GLOBAL"
    found = {one.argval for one in dis.get_instructions(code) if one.opname in reads}
    for inner in code.co_consts:
        found |= loads(inner) - stores(inner) if isinstance(inner, CodeType) else set()
    return found


def names(code: str) -> tuple[set[str], set[str]]:
    "The names that a cell takes from earlier cells, and the names that it defines."
    body, asked, given = ast.parse(code).body, set(), set(dir(builtins))
    parts = [compile(ast.Module([one], []), "<cell>", "exec") for one in body]
    whole = set().union(*map(stores, parts))
    for one, part in zip(body, parts, strict=True):
        later = whole if isinstance(one, ast.FunctionDef | ast.ClassDef) else set()
        inside = stores(part) if isinstance(one, ast.For | ast.If | ast.With) else set()
        asked |= loads(part) - given - later - inside
        given |= stores(part)
    return asked, whole


def open_code(cells: list[dict]) -> list[tuple[dict, str]]:
    "The cells whose code a page shows, each with the visible part of its code."
    typed = [cells[one.place + 1] for one in exercises(cells) if answers.in_page(one)]
    kept = [c for c in cards.main_line(cells) if c["cell_type"] == "code" and c not in typed]
    shown = [cell for cell in kept if not cards.FOLDED.search(source(cell))]
    return [(cell, cards.without_checks(split(source(cell))[1])[0]) for cell in shown]


def import_line(start: str, given: list[str]) -> str:
    "`from x import …` as it is written by hand: in brackets where it is longer than a line."
    line = f"{start}import {', '.join(given)}"
    if len(line) <= WIDTH:
        return line
    indent = {"initial_indent": "    ", "subsequent_indent": "    "}
    inside = textwrap.fill(", ".join(given) + ",", WIDTH, **indent)
    return f"{start}import (\n{inside}\n)"


def room(line: str) -> tuple[int, bool, str]:
    "The sort key of an import: first Python's own, then those of others, then ours."
    top = re.match(r"\w+ (\w+)", line)[1]
    group = 0 if top in sys.stdlib_module_names else 1 + (top == "transformer_lit")
    return group, line.startswith("from"), line


def own_imports(page: Page) -> None:
    "If open cells use a name that a folded cell exports, the first one gets its import above it."
    module, folded, given = exported(page.cells)[0], set(), set()
    for cell in page.cells:
        if EXPORT.match(source(cell)) and cards.FOLDED.search(source(cell)):
            tree = ast.parse(split(source(cell))[1])
            tree.body = [
                one for one in tree.body if not isinstance(one, ast.Import | ast.ImportFrom)
            ]
            folded |= stores(compile(tree, "<cell>", "exec"))
    for cell, code in open_code(page.cells):
        asked, gives = names(code)
        if wanted := sorted(folded & asked - given):
            line = {"cell_type": "code", "id": f"{cell['id']}-imports", "metadata": {}}
            line |= {"outputs": [], "source": import_line(f"from {module} ", wanted)}
            page.above(cell, line)
        given |= {*wanted, *gives}


def open_imports(page: Page) -> None:
    """Put the imports that open cells need above the first open cell.

    The cell with all imports is folded, because it also has those of figures and checks. A page can
    leave the imports there, with `#| imports: folded`.
    """
    if any("imports" in split(source(cell))[0] for cell in page.cells):
        return
    needed, given, found = set(), set(), {}
    shown = open_code(page.cells)
    for _, code in shown:
        asked, gives = names(code)
        needed |= asked - given
        given |= gives
    for cell in page.cells:
        is_ours = cell["cell_type"] == "code" and not CHECKS.match(source(cell))
        for one in ast.parse(split(source(cell))[1]).body if is_ours else ():
            for alias in one.names if isinstance(one, ast.Import | ast.ImportFrom) else ():
                if (alias.asname or alias.name) in needed:
                    key = f"from {one.module} " if isinstance(one, ast.ImportFrom) else alias.name
                    found.setdefault(key, set()).add(ast.unparse(alias))
    own_imports(page)
    plain = [f"import {what}" for key in sorted(found) if " " not in key for what in found[key]]
    others = [import_line(key, sorted(found[key])) for key in sorted(found) if " " in key]
    if found:
        cell = {"cell_type": "code", "id": "open-imports", "metadata": {}, "outputs": []}
        lines = "\n".join(sorted(plain + others, key=room))
        page.above(shown[0][0], {**cell, "source": lines})


CHECKED = re.compile(r"^# Checked by: (.+?)\.*$", re.M)


def fold_name(cell: dict, code: str) -> str:
    "The text on a fold: its purpose."
    outputs, body = cell.get("outputs", []), ast.parse(code).body
    defined = [one.name for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    names = [name for name in defined if not name.startswith("_")] or defined
    if only_imports(code):
        return "Imports"
    if any(kind.startswith("image/") for out in outputs for kind in out.get("data", {})):
        return "Code of the figure"
    if checked := CHECKED.search(code):
        return f"Check: {checked[1]}"
    if names:
        return "Code: " + ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    if outputs:
        return "Code of the output"
    if re.search(r"\bassert(_close)?\b", code):
        return "Check"
    if body and isinstance(body[0], ast.Import | ast.ImportFrom):
        return "Imports and settings"
    given = re.findall(r"^(\w+)(?:: [^=\n]+)? = ", code, re.M)
    return f"Code: {', '.join(given[:3])}" if given else "Code"


def tags(told: dict[str, str], code: str) -> list[str]:
    "The cell tags for the directives."
    gives_away = told.get("export", "").startswith("exercises.")
    found = {
        "remove-cell": "hide" in told or gives_away or not code.strip(),
        "hide-input": "code-fold" in told,
        "skip-execution": told.get("eval") == "false",
        "exported": "export" in told and not gives_away,  # for the stylesheet: div.tag_exported
    }
    return [tag for tag, stands in found.items() if stands]


def directives(page: Page) -> None:
    for cell in page.cells:
        if cell["cell_type"] != "code":
            continue
        told, cell["source"] = split(source(cell))
        meta = cell.setdefault("metadata", {})
        meta.setdefault("tags", []).extend(tags(told, cell["source"]))
        render = meta.setdefault("mystnb", {})
        if "hide-input" in meta["tags"]:
            name = fold_name(cell, cell["source"])
            render |= {"code_prompt_show": name, "code_prompt_hide": name}
        if "fig-cap" in told:
            render["figure"] = {"caption": told["fig-cap"]}
            render["figure"] |= {"name": told["label"]} if "label" in told else {}
        if "fig-alt" in told:
            render["image"] = {"alt": told["fig-alt"], "classes": "figure"}


def fold_checks(page: Page) -> None:
    cells = []
    for cell in page.cells:
        cells.append(cell)
        tagged = cell.get("metadata", {}).get("tags", [])
        if cell["cell_type"] != "code" or tagged:
            continue
        cell["source"], checks = cards.without_checks(cell["source"])
        if checks:
            folded = {"tags": ["hide-input"], "mystnb": {}}
            folded["mystnb"] = {"code_prompt_show": "Check", "code_prompt_hide": "Check"}
            cells.append(cell | {"source": checks, "metadata": folded, "outputs": []})
            cells[-1]["id"] = f"{cell['id']}-check-fold"
        if checks and not cell["source"]:
            cells[-2:] = cells[-1:]
    page.notebook["cells"] = cells


def in_one_fold(cells: list[dict], name: str) -> list[dict]:
    "Code cells below one shared bar; a single cell keeps its own bar."
    if len(cells) == 1:
        return cells
    for cell in cells:
        cell["metadata"]["tags"].remove("hide-input")
    opening, id = f"<details><summary>{name}</summary>", cells[0]["id"]
    return [markdown(f"open-{id}", opening), *cells, markdown(f"close-{id}", "</details>")]


SHARED = {"checks": "Checks", "exported": "Exported code", "helpers": "Code that this page uses"}


def share_folds(page: Page) -> None:
    """Folded cells share bars: the checks of a section, its exported code, the helpers of a page.

    The helpers of a folded section stay in it, and its checks need no bar. Instead of the code of a
    figure, there is a link to the notebook. The output of a cell stays where it is.
    """
    known = cards.settings(page.root)
    link = f" [Code]({known['git_url']}/blob/{known['branch']}/{page.name}.ipynb)"
    shared: dict[tuple[str, str], list[dict]] = {}
    heading, places = "", []
    for cell in page.cells:
        meta = cell["metadata"]
        bar = meta.get("mystnb", {}).get("code_prompt_show", "")
        if cell["cell_type"] == "markdown":
            heading = (cards.HEADING.findall(source(cell)) or [heading])[-1]
        if bar == "Code of the figure":
            meta["tags"] = ["remove-input"]
            meta["mystnb"]["figure"]["caption"] += link
        elif bar:
            kind = "checks" if bar.startswith("Check") else "helpers"
            kind = "exported" if "exported" in meta["tags"] else kind
            inside = heading.startswith((*cards.FOLDS,))
            if inside and kind == "checks":  # a reader who opens the section wants to see them
                meta["tags"].remove("hide-input")
                places.append(cell)
                continue
            where = heading if inside or kind != "helpers" else "", kind
            if cell["outputs"]:
                told = {"id": f"{cell['id']}-told", "metadata": {"tags": ["remove-input"]}}
                places.append(cell | told)
            shared.setdefault(where, []).append(cell | {"outputs": []})
            places.append(where)
            continue
        places.append(cell)
    for where, cells in shared.items():  # helpers go first, others last
        all = [n for n, place in enumerate(places) if place == where]
        places[all[0 if where[1] == "helpers" else -1]] = in_one_fold(cells, SHARED[where[1]])
    page.notebook["cells"] = []
    for one in places:
        page.notebook["cells"] += one if isinstance(one, list) else [one] * isinstance(one, dict)


LINK = re.compile(r"\{doc\}`([^`<>]+)`")


@functools.cache
def short_name(path: Path) -> str:
    "The text of a link: the title of a page up to its colon; empty if there is no page."
    if path.with_suffix(".ipynb").exists():
        text = source(json.loads(path.with_suffix(".ipynb").read_text())["cells"][0])
    else:
        text = path.with_suffix(".md").read_text() if path.with_suffix(".md").exists() else ""
    title = re.search(r"^# (.+)$", text, re.M)
    return title[1].partition(": ")[0] if title else ""


def name_links(text: str, docname: str, root: Path) -> str:
    "Links show short names instead of whole titles inside a sentence."

    def named(match: re.Match) -> str:
        path = match[1]
        folder = root if path.startswith("/") else root / Path(docname).parent
        name = short_name((folder / path.lstrip("/")).resolve())
        return f"{{doc}}`{name} <{path}>`" if name else match[0]

    return LINK.sub(named, text)


def short_links(page: Page) -> None:
    for cell in page.cells:
        if cell["cell_type"] == "markdown":
            cell["source"] = name_links(source(cell), page.name, page.root)


STEPS = (
    box,  # below the title: pass, time, needs, exercises, copies, day, perhaps the map
    clinic_links,  # below Often confused, or the summary: statements that the clinic tests
    foot,  # below the summary: the exported names in the reference, the terms in the glossary
    quiz,  # below the summary: the chapter's questions
    clinic_labels,  # the clinic's entries get labels, which are the targets of these links
    letter_pages,  # in the table of the Notation: which pages of the first pass use a letter
    open_imports,  # above the first open cell: the imports that open cells need
    exercise_cards,  # statement, hint, blank or input field, and the solution in a fold
    records_behind,  # below the summary: the records that the chapter reads
    directives,  # lines such as `#| hide` become tags and metadata for MyST-NB
    fold_checks,  # the last assertions of an open cell move into a fold below it
    share_folds,  # the checks of a section share a fold, helpers another; a figure's code is a link
    short_links,  # a link shows a short name
)


def on_source_read(app, docname, text):
    if str(app.env.doc2path(docname)).endswith(".ipynb"):
        page = Page(docname, json.loads(text[0]), Path(app.confdir))
        for step in STEPS:
            step(page)
        text[0] = json.dumps(page.notebook)
    else:
        text[0] = name_links(text[0], docname, Path(app.confdir))


# --- what happens to a page after it is read ------------------------------------------------------


def fold_sections(app, doctree, docname):
    "Sections of `cards.FOLDS` and entries of the clinic show only their titles until opened."
    for section in list(doctree.findall(nodes.section)):
        title = section[0].astext()
        bars = [bar for start, bar in cards.FOLDS.items() if title.startswith(start)]
        bars += ["The statement, its source, and what is true"] * bool(ENTRY.match(title))
        if docname.startswith("nbs/") and bars:
            opening = f'<details class="workshop"><summary>{bars[0]}</summary>'
            section.insert(1, nodes.raw("", opening, format="html"))
            section += nodes.raw("", "</details>", format="html")


def frame_exercises(app, doctree, docname):
    "An exercise is a card from its title to the end of its solution."
    for end in list(doctree.findall(nodes.raw)):
        if found := CARD.search(end.astext().strip()):
            more = f' data-exercise="{found[1]}"' if found[1] else ""
            more += " data-step" if found[1] in my_transformer.STEPS else ""
            opening = f'<div class="exercise-card"{more}>'
            end.parent.insert(0, nodes.raw("", opening, format="html"))


def lead_back(app, doctree, docname):
    "In the reference, add the number of the chapter to each name."
    if not docname.startswith("book/api/"):
        return
    pages, numbers = {n: cards.page(path) for n, path in cards.chapters().items()}, cards.numbers()
    for signature in doctree.findall(addnodes.desc_signature):
        module = signature.get("module") or ""
        page = pages.get(module.removeprefix("transformer_lit.").replace(".", "/"))
        if page and "." not in signature.get("fullname", "."):
            address = app.builder.get_relative_uri(docname, page)
            said = nodes.inline("", f"[chapter {numbers[page]}]", classes=["viewcode-link"])
            signature += nodes.reference("", "", said, internal=True, refuri=address)


def hide_docs_of_types(app, what, name, found, options, lines):
    "In the reference, an attribute without a docstring doesn't show that of its type."
    if what == "attribute" and "\n".join(lines).strip() == inspect.getdoc(type(found)):
        lines.clear()


def plain_signature(app, what, name, found, options, signature, returns):
    "The signature of a function of the command, reduced to the types of the options."
    if what != "function" or "Annotated" not in (signature or ""):
        return None
    known, plain = inspect.signature(found), []
    values = dict(zip(reversed(known.parameters), reversed(found.__defaults__ or ())))
    for one in known.parameters.values():
        kind = next(iter(get_args(one.annotation)), one.annotation)
        value = values.get(one.name, one.default)  # Sphinx reads it from the source
        value = value if type(value) in (str, int) else one.default
        plain.append(one.replace(annotation=kind, default=value))
    return str(known.replace(parameters=plain, return_annotation=known.empty)), returns


def lead_to_copy(app, pagename, templatename, context, doctree):
    "The download button at the top of a chapter downloads the copy."
    buttons = [b for group in context.get("header_buttons", []) for b in group.get("buttons", [])]
    for button in buttons if pagename.startswith("nbs/") else ():
        if button.get("label") == "download-source-button":
            button["url"] = context["pathto"](f"{COPIES}/{pagename}.ipynb", 1)


def notation_card(app):
    "The Notation's table of letters as HTML, without links and ids."
    if not hasattr(app, "notation_card"):
        page = app.env.get_and_resolve_doctree(letters.TABLE, app.builder)
        sections = [s for s in page.findall(nodes.section) if s[0].astext().startswith("Letters")]
        tables = [table for section in sections for table in section.findall(nodes.table)]
        shown = "".join(app.builder.render_partial(table)["fragment"] for table in tables)
        app.notation_card = re.sub(r"</?a\b[^>]*>| id=\"[^\"]*\"", "", shown)
    return app.notation_card


def add_notation(app, pagename, templatename, context, doctree):
    "Add the Notation as a card to every page that may have formulas or signatures."
    if pagename.startswith(("nbs/", "book/")) and pagename not in (letters.TABLE, "book/intro"):
        opening = '<details class="notation-card" data-pagefind-ignore><summary>Notation</summary>'
        context["body"] += f"{opening}<div tabindex='0'>{notation_card(app)}</div></details>"


def footer(root: Path) -> str:
    "The licence, the day of the last change, and a link to the repository."
    known = cards.settings(root)
    command = ["git", "log", "-1", "--format=%cd", "--date=format:%-d %B %Y"]
    day = subprocess.run(command, cwd=root, capture_output=True, text=True).stdout.strip()
    licence = f'<a href="{known["git_url"]}/blob/{known["branch"]}/LICENSE">Apache licence 2.0</a>'
    code = f'<a href="{known["git_url"]}">Repository</a>'
    return " · ".join(filter(None, [licence, day and f"Last changed on {day}", code]))


def add_addresses(app, config):
    "Set the address of the repository for the buttons and links of the theme."
    found = cards.settings(Path(app.confdir))
    config.html_theme_options |= {
        "repository_url": found["git_url"],
        "repository_branch": COPIES,  # the branch with the notebooks that Colab opens
        "launch_buttons": {"colab_url": "https://colab.research.google.com"},
        "extra_footer": footer(Path(app.confdir)),
    }
    config.html_baseurl = found["doc_host"] + found["doc_baseurl"] + "/"
    printed = {"The whole book": "transformer_lit", "the first pass": "first-pass"}  # make pdf
    whole, first = (f'<a href="../pdf/{file}.pdf">{n}</a>' for n, file in printed.items())
    config.myst_substitutions |= {"printed": f"{whole} and {first}"}


def drop_builtins(_, env) -> None:
    "Drop the source page of builtins, which attributes with builtin values would link to."
    getattr(env, "_viewcode_modules", {}).pop("builtins", None)
