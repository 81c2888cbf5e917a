"""The rules of the house: one source for text, code and test; imports that run one way.

Each rule is a function that yields the breaches it finds, of which there must be none.
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from datetime import date
from functools import cache
from pathlib import Path

import answers
import cards
import chapter
import damage
import export
import pytest
from chapter import source

import transformer_lit
from transformer_lit.course.exercises import Verdict
from transformer_lit.exercises import find_exercise

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "transformer_lit"

# part -> what its modules import beside earlier modules of their own part: exactly these arrows
MAY_IMPORT = {
    "text": {"course"},
    "attention": {"course"},
    "position": {"course", "attention"},
    "block": {"course", "attention"},
    "models": {"course", "text.embedding", "text.tokenizer", "attention", "position", "block"},
    "training": {"course"},
    "inference": {"course"},
    "assistant": set(),
    "recipes": {
        *("course", "text", "block", "models", "training", "inference", "assistant", "exercises")
    },
}
# what a chapter uses before the book derives it: a door, the null plug of many processes, a cache
EARLY = {
    ("models.hf", "models.hf_build"),
    ("training.trainer", "training.distributed"),
    ("training.run", "training.distributed"),
    ("attention.multihead", "attention.cache"),
}
# what a chapter may use as a closed box before the chapter that opens it
BOXES = {"text.tokenizer", "models.transformer", "attention.cache", "training.optimizers"}
COMPUTES = {"softmax", "einsum", "matmul", "bmm", "mm", "cos", "sin", "exp", "log_softmax"}
MAX_LINE = 100


# --- reading the tree ---------------------------------------------------------------------------

NOTEBOOKS = sorted(
    path for path in (ROOT / "nbs").rglob("*.ipynb") if "checkpoints" not in str(path)
)
ORDER = list(cards.chapters().values())  # of _toc.yml
PLAIN = {"exercises.my_transformer", "exercises.thread"}  # written by hand, as all of course is
DOORS = {"__init__.py", "__main__.py"}  # of the package, and of `python -m`


@cache
def cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def code_cells(path):
    return [(source(cell), cell) for cell in cells(path) if cell["cell_type"] == "code"]


def default_exp(path):
    found = re.search(
        r"^#\|\s*default_exp\s+(\S+)", "\n".join(s for s, _ in code_cells(path)), re.M
    )
    return found and found[1]


def modules(package=PACKAGE):
    "What notebooks export: dotted name below the package -> text."
    files = (path for path in package.rglob("*.py") if path.name not in DOORS)
    named = {".".join(path.relative_to(package).with_suffix("").parts): path for path in files}
    kept = {name: path for name, path in named.items() if not name.startswith("course.")}
    return {n: path.read_text(encoding="utf-8") for n, path in kept.items() if n not in PLAIN}


ALL = modules()
CODE = {name: text for name, text in ALL.items() if not name.startswith("exercises.")}


@cache
def tree(text):
    lines = [line for line in text.split("\n") if not line.lstrip().startswith(("%", "!"))]
    return ast.parse("\n".join(lines))


def nodes(text):
    return ast.walk(tree(text))


@cache
def imported(text):
    "Modules of the package that a text imports, dotted below the package."
    found = []
    for node in nodes(text) if "transformer_lit" in text else ():
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module or ".", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return {f.removeprefix("transformer_lit.") for f in found if f.startswith("transformer_lit.")}


# --- the rules ----------------------------------------------------------------------------------


def wrong_imports():
    order = [default_exp(path) for path in ORDER]
    for path in sorted((PACKAGE / "course").glob("*.py")):
        for other in imported(path.read_text(encoding="utf-8")):
            if not other.startswith("course"):
                yield f"course.{path.stem} imports {other}, which stands above it"
    known = {*CODE, "course", "exercises"}
    for name, text in CODE.items():
        part = name.split(".")[0]
        for other in (other for other in imported(text) if {other, other.split(".")[0]} & known):
            top = other.split(".")[0]
            early = top == part and other in order and order.index(other) >= order.index(name)
            if early and (name, other) not in EARLY:
                yield f"{name} imports {other}, which comes later in its part"
            if top != part and not {other, top} & MAY_IMPORT[part]:
                yield f"{name} imports {other}, which {part} may not"


def undrawn_arrows():
    "An arrow that the table allows and no module draws is a hole in the rule."
    for part, others in MAY_IMPORT.items():
        texts = (text for name, text in CODE.items() if name.startswith(f"{part}."))
        drawn = {end for text in texts for o in imported(text) for end in (o, o.split(".")[0])}
        for other in others - drawn:
            yield f"{part} may import {other}, and no module of it does"


def early_imports():
    place = {default_exp(path): i for i, path in enumerate(ORDER) if default_exp(path)}
    for i, path in enumerate(ORDER):
        for text, _ in code_cells(path):
            for other in imported(text) & CODE.keys() - BOXES:
                if place[other] > i and (default_exp(path), other) not in EARLY:
                    yield f"{path.name} imports {other}, which stands after it"


def chapters_not_in_toc():
    for path in {*NOTEBOOKS} ^ {*ORDER}:
        yield f"{path.relative_to(ROOT)} is in one of nbs/ and _toc.yml, not in both"


def double_exports():
    topics = [f"exercises.{topic}" for path in NOTEBOOKS for topic in chapter.topics(cells(path))]
    for name, count in Counter([*topics, *filter(None, map(default_exp, NOTEBOOKS))]).items():
        if count > 1:
            yield f"{name} is exported by two notebooks"


def foreign_imports():
    for name, text in ALL.items():
        if re.search(r"^\s*from \.", text, re.M):
            yield f"{name} has a relative import; its notebook reads otherwise"
        if re.search(r"^\s*(import|from) (transformers|pickle|hypothesis)\b", text, re.M):
            yield f"{name} imports what only tests may use"
        if name in CODE and re.search(r"\bexercises\.(?!my_transformer)\w+ import", text):
            yield f"{name} imports exercises"


def computing_models():
    for name in (name for name in CODE if name.startswith("models.")):
        for node in nodes(CODE[name]):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                yield f"{name} line {node.lineno} multiplies matrices"
            called = getattr(node, "attr", getattr(node, "id", None))
            if called in COMPUTES:
                yield f"{name} line {node.lineno} computes {called}"


def long_lines():
    "Captions, alt texts and edits are one line each, whatever their length; code is not."
    for path in NOTEBOOKS:
        for line in "\n".join(text for text, _ in code_cells(path)).split("\n"):
            may = line.startswith(("#| fig-", "!")) or "→" in line
            if len(line) > MAX_LINE and not may:
                yield f"{path.name} has a line of {len(line)} characters: {line[:50]}"


def printing_modules():
    for name, text in ALL.items():
        for node in nodes(text):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
                yield f"{name} line {node.lineno} prints"


PUBLISHED = ("README.md", "pyproject.toml", "CITATION.cff")


def scattered_addresses():
    """The address is in settings.ini only; copies of the chapters get it when they are made.

    What others read by itself needs it, too: test_pages and test_release compare.
    """
    address = cards.settings()["git_url"].removeprefix("https://")
    patterns = ("*.*", "book/*.*", "book/_ext/*.py", "tests/**/*.py", "transformer_lit/**/*.py")
    files = [path for pattern in patterns for path in ROOT.glob(pattern)]
    texts = (".md", ".yml", ".toml", ".py", ".cff", ".bib")
    for path in [*NOTEBOOKS, *(path for path in files if path.suffix in texts)]:
        published = path.parent == ROOT and path.name in PUBLISHED
        if not published and address in path.read_text(encoding="utf-8"):
            yield f"{path.relative_to(ROOT)} spells out the repository's address"


def unproven_formulas():
    "A formula has a label, and the table of damaged lines a row for it that can be tried."
    rows, formulas, code = damage.table(), set(), {}
    for path in NOTEBOOKS:
        text = "\n".join(source(c) for c in cells(path) if c["cell_type"] == "markdown")
        found = re.findall(r"^\$\$ \((eq-[\w-]+)\)$", text, re.M)
        if text.count("$$") != 2 * len(found) or "```{math}" in text:
            yield f"{path.name} has a formula without a label"
        formulas |= {*found}
        code[str(path.relative_to(ROOT))] = {cell["id"]: text for text, cell in code_cells(path)}
    labels = {row["label"] for row in rows}
    carried = {row["label"] for row in rows if "old" in row}
    yield from (f"{label} has no row in tests/damages" for label in sorted(formulas - labels))
    yield from (f"no formula is {x}" for x in sorted(labels - formulas) if x.startswith("eq-"))
    if (reasons := sum("text" in row for row in rows)) > 40:
        yield f"{reasons} formulas have a reason in place of a damaged line; 40 may"
    for row in rows:
        if "old" in row:
            page = code[row["notebook"]]
            if (count := sum(text.count(row["old"]) for text in page.values())) != 1:
                yield f"{row['label']}: {row['old']!r} stands {count} times in {row['notebook']}"
            if row["cell"] not in page:
                yield f"{row['label']}: {row['notebook']} has no cell {row['cell']}"
        elif not (row.get("as") in carried or row.get("text")):
            yield f"{row['label']}: neither a line, nor a label that has one, nor a reason"


def silent_figures():
    "A picture is SVG, has a caption and an alt text of 15 characters or more, and at most 60 kB."
    for path in NOTEBOOKS:
        for text, cell in code_cells(path):
            data = [pair for out in cell["outputs"] for pair in out.get("data", {}).items()]
            shown = {kind: "".join(image) for kind, image in data if kind.startswith("image/")}
            alt = re.search(r"^#\|\s*fig-alt:\s*(.*)$", text, re.M)
            if shown and (not alt or len(alt[1]) < 15 or "fig-cap:" not in text):
                yield f"{path.name}: a figure without caption or telling alt text: {text[:60]!r}"
            if shown.keys() - {"image/svg+xml"}:
                yield f"{path.name}: a figure that is no SVG; call use_style(): {text[:60]!r}"
            if any(len(image.encode()) > 60_000 for image in shown.values()):
                yield f"{path.name}: a figure of over 60 kB: {text[:60]!r}"


def lost_outputs():
    "A cell that shows something stores what it gave; strict nbval asks nothing of an empty cell."
    for path in NOTEBOOKS:
        for text, cell in code_cells(path):
            if cell["outputs"] or re.search(r"^#\|\s*eval:\s*false", text, re.M):
                continue
            body = tree(text).body
            run = [s for s in body if not isinstance(s, ast.FunctionDef | ast.ClassDef)]
            calls = [n for s in run for n in ast.walk(s) if isinstance(n, ast.Call)]
            named = {node: ast.unparse(node.func).rpartition(".")[2] for node in calls}
            last = named.get(getattr(body[-1], "value", None)) if body else None
            if {"print", "show"} & {*named.values()} or last == "Table":
                yield f"{path.name}: no output is stored of {text[:60]!r}"


def unlisted_modules():
    api = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "book/api").glob("*.md"))
    for name in CODE:
        if f".. automodule:: transformer_lit.{name}\n" not in api:
            yield f"{name} is on no page of the API"


def bad_cards():
    "Each chapter has a card, complete; what it needs comes before it, and in the first pass too."
    found = {name: cards.card(path) or {} for name, path in cards.chapters().items()}
    order = list(found)
    for name, card in found.items():
        if set(card) != {"pass", "minutes", "needs", "level"}:
            yield f"{name} has no card with pass, minutes, needs and level, but {card}"
        elif card["pass"] not in (1, 2) or card["level"] not in cards.LEVELS:
            yield f"{name} is of an unknown pass or level: {card}"
        elif card["minutes"] != cards.minutes(cells(cards.chapters()[name])):
            yield f"{name} takes other minutes than its card says: run `python book/cards.py`"
        for need in card.get("needs", ()):
            if need not in order[: order.index(name)]:
                yield f"{name} needs {need}, which does not come before it"
            elif card.get("pass") == 1 and found[need].get("pass") != 1:
                yield f"{name} is of the first pass and needs {need}, which is not"


def unnamed_needs():
    "A chapter that the text says you need stands on the card."
    for name, path in cards.chapters().items():
        needs = (cards.card(path) or {}).get("needs", ())
        text = "\n".join(source(c) for c in cells(path) if c["cell_type"] == "markdown")
        for sentence in re.findall(r"\b[Yy]ou need\b[^\n]*?(?=[.;]\s|\n|$)", text):
            for target in re.findall(r"\{doc\}`(?:[^`<]*<)?(?:/nbs/)?([^`>]+)>?`", sentence):
                needed = cards.chapter_name(path.parent / target if "/" not in target else target)
                if needed.split("/")[0] in MAY_IMPORT and needed not in needs:
                    yield f"{name} says that you need {needed}; its card does not"


def unfit_exercises():
    "An exercise has a statement, a hint, a blank, and an answer: data, or a solution."
    for path in NOTEBOOKS:
        found, topics = chapter.exercises(cells(path)), chapter.topics(cells(path))
        headings = [re.match(r"### [a-z]\w*\.\d+\b", source(cell)) for cell in cells(path)]
        if len(found) != len([*filter(None, headings)]):
            yield f"{path.name}: an exercise has no metadata, or another cell looks like one"
        for one in found:
            known = chapter.question(one.id) is not None
            if not (one.statement.endswith("</details>") and one.text and one.blank):
                yield f"{one.id} lacks its hint, its blank, or the text of its solution"
            if known == bool(one.solution) or known != (one.kind in answers.KINDS):
                yield f"{one.id} is a {one.kind}, and needs an answer or a solution to fit"
            if isinstance(find_exercise(one.id), Verdict):
                yield f"{one.id} is in no module or table that its name leads to"
        if topics and not any(one.solution for one in found):
            yield f"{path.name} exports {topics} and has no solution"


RULES = [
    *(wrong_imports, undrawn_arrows, early_imports, foreign_imports, computing_models),
    *(chapters_not_in_toc, double_exports, unlisted_modules, long_lines, printing_modules),
    *(scattered_addresses, unproven_formulas, silent_figures, lost_outputs),
    *(bad_cards, unnamed_needs, unfit_exercises),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_the_rule(rule):
    assert list(rule()) == []


def test_every_module_is_what_its_notebook_exports(tmp_path):
    package = tmp_path / "transformer_lit"
    package.mkdir()
    topics = {path for path in NOTEBOOKS if chapter.topics(cells(path))}
    export.export(sorted({path for path in NOTEBOOKS if default_exp(path)} | topics), package)
    anew, here = modules(package), re.compile(r"\S*/nbs/")  # from wherever a module lies
    assert anew.keys() ^ ALL.keys() == set()  # a module or a notebook, not both
    stale = [name for name in ALL if here.sub("", ALL[name]) != here.sub("", anew[name])]
    assert stale == [], "run `make export`"


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = {project["version"], cards.settings()["version"], transformer_lit.__version__}
    assert len(versions) == 1


@pytest.mark.machinery
def test_lines_that_are_damaged_at_random_are_noticed():
    year, week, _ = date.today().isocalendar()  # another dozen each week
    draw = ["tests/damage.py", "--draw", "12", "--seed", f"{year}{week:02}"]
    done = subprocess.run([sys.executable, *draw], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(draw)}\n{done.stdout}{done.stderr}"
