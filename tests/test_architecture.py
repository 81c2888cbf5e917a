"""The rules of the house: one source for text, code and test; imports that run one way.

Each rule is a function from the source tree to the breaches it finds, of which there must be none.
"""

import ast
import configparser
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import cards
import chapter
import pytest
import yaml

ROOT = Path(__file__).parents[1]
PACKAGE = "transformer_lit"

# part -> what its modules import beside earlier modules of their own part: exactly these arrows
MAY_IMPORT = {
    "text": {"course"},
    "attention": {"course"},
    "position": {"course", "attention"},
    "block": {"course", "attention"},
    "models": {"course", "text.embedding", "text.tokenizer", "attention", "position", "block"},
    "training": {"course"},
    "inference": {"course"},
    "recipes": {*("course", "text", "block", "models", "training", "inference", "exercises")},
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


def chapters(root):
    "The notebooks in the order of _toc.yml."
    toc = yaml.safe_load((root / "book/_toc.yml").read_text())
    files = [c["file"] for part in toc["parts"] for c in part["chapters"]]
    return [root / f"{file}.ipynb" for file in files if file.startswith("nbs/")]


def notebooks(root):
    return sorted(p for p in (root / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)


def code_cells(path):
    cells = json.loads(path.read_text())["cells"]
    return [("".join(c["source"]), c) for c in cells if c["cell_type"] == "code"]


def default_exp(path):
    for source, _ in code_cells(path):
        if match := re.search(r"^#\|\s*default_exp\s+(\S+)", source, re.M):
            return match[1]
    return None


def exported(path):
    return [s for s, _ in code_cells(path) if re.search(r"^#\|\s*export\b", s, re.M)]


PLAIN = {"exercises.thread"}  # written by hand, as all of course is


def modules(root, exercises=False):
    "Exported modules: dotted name below the package -> path. Those of exercises only where asked."
    files = (root / PACKAGE).rglob("*.py")
    files = [p for p in files if exercises or p.parent.name != "exercises"]
    doors = {"__init__.py", "__main__.py"}  # of the package, and of `python -m`
    kept = [p for p in files if p.name not in doors and p.parent.name != "course"]
    kept = [p for p in kept if f"{p.parent.name}.{p.stem}" not in PLAIN]
    return {".".join(p.relative_to(root / PACKAGE).with_suffix("").parts): p for p in kept}


def imported(source, name=""):
    "Modules of the package that a source imports, dotted below the package."
    found, parts = set(), name.split(".")
    lines = [line for line in source.split("\n") if not line.lstrip().startswith(("%", "!"))]
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.Import):
            full = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([PACKAGE, *parts[: len(parts) - node.level], *filter(None, [base])])
            full = [base] + [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {f.removeprefix(f"{PACKAGE}.") for f in full if f.startswith(f"{PACKAGE}.")}
    return found


# --- the rules ----------------------------------------------------------------------------------


def wrong_imports(root):
    names = modules(root)
    order = [default_exp(path) for path in chapters(root)]
    for path in sorted((root / PACKAGE / "course").glob("*.py")):
        for other in imported(path.read_text(), f"course.{path.stem}"):
            if not other.startswith("course"):
                yield f"course.{path.stem} imports {other}, which stands above it"
    known = set(names) | {"course", "exercises"}
    for name, path in names.items():
        part = name.split(".")[0]
        for other in {o for o in imported(path.read_text(), name) if {o, o.split(".")[0]} & known}:
            own = other.split(".")[0] == part and other in order
            if own and order.index(other) >= order.index(name) and (name, other) not in EARLY:
                yield f"{name} imports {other}, which comes later in its part"
            top = other.split(".")[0]
            if top != part and not {other, top} & MAY_IMPORT[part]:
                yield f"{name} imports {other}, which {part} may not"


def undrawn_arrows(root):
    "An arrow that the table allows and no module draws is a hole in the rule."
    for part, others in MAY_IMPORT.items():
        drawn = set()
        for name, path in modules(root).items():
            if name.startswith(f"{part}."):
                for other in imported(path.read_text(), name):
                    drawn |= {other, other.split(".")[0]}
        for other in others - drawn:
            yield f"{part} may import {other}, and no module of it does"


def relative_imports(root):
    for name, path in modules(root).items():
        if re.search(r"^\s*from \.", path.read_text(), re.M):
            yield f"{name} has a relative import; its notebook reads otherwise"


def early_imports(root):
    names, order = set(modules(root)), chapters(root)
    place = {default_exp(path): i for i, path in enumerate(order) if default_exp(path)}
    for i, path in enumerate(order):
        for source, _ in code_cells(path):
            for other in imported(source) & names - BOXES:
                if place[other] > i and (default_exp(path), other) not in EARLY:
                    yield f"{path.name} imports {other}, which stands after it"


def chapters_not_in_toc(root):
    for path in set(notebooks(root)) ^ set(chapters(root)):
        yield f"{path.relative_to(root)} is in one of nbs/ and _toc.yml, not in both"


def double_exports(root):
    seen = {}
    for path in notebooks(root):
        name = default_exp(path)
        if name and name in seen:
            yield f"{path.name} and {seen[name].name} both export {name}"
        seen[name] = path


def orphans(root):
    exporting = {default_exp(path) for path in notebooks(root)} - {None}
    for name in set(modules(root)) ^ exporting:
        yield f"{name} has a module or a notebook, not both"


def stale_modules(root, scratch):
    "Export every notebook anew and compare."
    shutil.copytree(root / PACKAGE, scratch / PACKAGE)
    shutil.copytree(root / "nbs", scratch / "nbs")
    shutil.copy(root / "settings.ini", scratch)
    exports = [p for p in notebooks(root) if default_exp(p) or exercise_topics(p)]
    files = [str(p.relative_to(root)) for p in exports]
    script = ROOT / "book/export.py"
    subprocess.run([sys.executable, script, *files], cwd=scratch, check=True)
    for name, path in modules(scratch, exercises=True).items():
        if path.read_text() != (root / path.relative_to(scratch)).read_text():
            yield f"{name} differs from what its notebook exports: run `make export`"


def computing_models(root):
    for name, path in modules(root).items():
        if name.startswith("models."):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                    yield f"{name} line {node.lineno} multiplies matrices"
                called = getattr(node, "attr", getattr(node, "id", None))
                if called in COMPUTES:
                    yield f"{name} line {node.lineno} computes {called}"


def long_lines(root):
    "Captions, alt texts and edits are one line each, whatever their length; code is not."
    for path in notebooks(root):
        for source, _ in code_cells(path):
            for line in source.split("\n"):
                if (
                    len(line) > MAX_LINE
                    and not line.startswith(("#| fig-", "!"))
                    and "→" not in line
                ):
                    yield f"{path.name} has a line of {len(line)} characters: {line[:50]}"


def printing_modules(root):
    for name, path in modules(root, exercises=True).items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
                yield f"{name} line {node.lineno} prints"


def references_imported(root):
    for name, path in modules(root, exercises=True).items():
        if re.search(
            r"^\s*(import|from) (transformers|pickle|hypothesis)\b", path.read_text(), re.M
        ):
            yield f"{name} imports what only tests may use"


def scattered_addresses(root):
    "The address stands in settings.ini alone; copies of the chapters get it when they are made."
    address = settings(root)["git_url"].removeprefix("https://")
    for pattern in ("*.*", "book/*.*", "book/_ext/*.py", "tests/**/*.py", f"{PACKAGE}/**/*.py"):
        for path in root.glob(pattern):
            text = path.suffix in (".md", ".yml", ".toml", ".py", ".cff", ".bib")
            if text and address in path.read_text():
                yield f"{path.relative_to(root)} spells out the repository's address"
    for path in notebooks(root):
        if address in path.read_text():
            yield f"{path.name} spells out the repository's address"


def settings(root):
    parser = configparser.ConfigParser()
    parser.read(root / "settings.ini", encoding="utf-8")
    return parser["DEFAULT"]


def unproven_formulas(root):
    "A displayed formula needs an assertion: no fewer assertions than formulas in a chapter."
    proof = re.compile(r"\bassert\b|assert_close|gradcheck|raises")
    for path in notebooks(root):
        cells = json.loads(path.read_text())["cells"]
        text = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        formulas = text.count("$$") // 2 + text.count("```{math}")
        proofs = sum(len(proof.findall(source)) for source, _ in code_cells(path))
        if formulas > proofs:
            yield f"{path.name} has {formulas} formulas and {proofs} assertions"


def silent_figures(root):
    "A picture is SVG, has a caption and an alt text of 15 characters or more, and at most 60 kB."
    for path in notebooks(root):
        for source, cell in code_cells(path):
            shown = [
                (kind, "".join(data))
                for out in cell["outputs"]
                for kind, data in out.get("data", {}).items()
                if kind.startswith("image/")
            ]
            pictures = [data for _, data in shown]
            alt = re.search(r"^#\|\s*fig-alt:\s*(.*)$", source, re.M)
            if pictures and (not alt or len(alt[1]) < 15 or "fig-cap:" not in source):
                yield f"{path.name}: a figure without caption or telling alt text: {source[:60]!r}"
            if any(kind != "image/svg+xml" for kind, _ in shown):
                yield f"{path.name}: a figure that is no SVG; call use_style(): {source[:60]!r}"
            if any(len(p.encode()) > 60_000 for p in pictures):
                yield f"{path.name}: a figure of over 60 kB: {source[:60]!r}"


def lost_outputs(root):
    "A cell that shows something stores what it gave; strict nbval asks nothing of an empty cell."
    for path in notebooks(root):
        for source, cell in code_cells(path):
            if cell["outputs"] or re.search(r"^#\|\s*eval:\s*false", source, re.M):
                continue
            body = ast.parse(source).body
            run = [s for s in body if not isinstance(s, (ast.FunctionDef, ast.ClassDef))]
            for node in (node for statement in run for node in ast.walk(statement)):
                called = getattr(node, "func", None)
                name = getattr(called, "attr", getattr(called, "id", None))
                if name in ("print", "show") or (
                    name == "Table" and node is getattr(body[-1], "value", 0)
                ):
                    yield f"{path.name}: no output is stored of {source[:60]!r}"
                    break


def unlisted_modules(root):
    api = "".join(path.read_text() for path in (root / "book/api").glob("*.md"))
    for name in modules(root):
        if f".. automodule:: {PACKAGE}.{name}\n" not in api:
            yield f"{name} is on no page of the API"


def bad_cards(root):
    "Each chapter has a card that is complete, with the minutes that its length gives."
    for name, path in cards.chapters(root).items():
        card = cards.card(path)
        if not card or set(card) != {"pass", "minutes", "needs", "level"}:
            yield f"{name} has no card with pass, minutes, needs and level, but {card}"
        elif card["pass"] not in (1, 2) or card["level"] not in cards.LEVELS:
            yield f"{name} is of an unknown pass or level: {card}"
        elif card["minutes"] != cards.minutes(json.loads(path.read_text())["cells"]):
            yield f"{name} takes other minutes than its card says: run `python book/cards.py`"


def missing_needs(root):
    "What a chapter needs stands before it, and in the first pass where the chapter does."
    found = cards.chapters(root)
    order, known = list(found), {name: cards.card(path) or {} for name, path in found.items()}
    for name, card in known.items():
        for need in card.get("needs", ()):
            if need not in known:
                yield f"{name} needs {need}, which is no chapter"
            elif order.index(need) >= order.index(name):
                yield f"{name} needs {need}, which comes later"
            elif card.get("pass") == 1 and known[need].get("pass") != 1:
                yield f"{name} is of the first pass and needs {need}, which is not"


def unnamed_needs(root):
    "A chapter that the text says you need stands on the card."
    for name, path in cards.chapters(root).items():
        needs = set((cards.card(path) or {}).get("needs", ()))
        for cell in json.loads(path.read_text())["cells"]:
            text = "".join(cell["source"]) if cell["cell_type"] == "markdown" else ""
            for sentence in re.findall(r"\b[Yy]ou need\b[^\n]*?(?=[.;]\s|\n|$)", text):
                for target in re.findall(r"\{doc\}`(?:[^`<]*<)?([^`>]+)>?`", sentence):
                    needed = cards.chapter_name((path.parent / target.removeprefix("/nbs/")).name)
                    part = Path(target).parent.name or path.parent.name
                    needed = f"{part}/{needed.split('/')[1]}"
                    if part in MAY_IMPORT and needed not in needs:
                        yield f"{name} says that you need {needed}; its card does not"


# --- exercises: a notebook's second module, and cells that belong together -----------------------


def exercise_topics(path):
    return chapter.topics(json.loads(path.read_text())["cells"])


def lost_exercises(root):
    "A notebook's exercises are its second module; nothing else of the package imports them."
    homes = [topic for path in notebooks(root) for topic in exercise_topics(path)]
    known = {name.split(".")[1] for name in set(modules(root, exercises=True)) - set(modules(root))}
    for topic in set(homes) ^ known:
        yield f"exercises.{topic} has a module or a notebook, not both"
    for topic in {topic for topic in homes if homes.count(topic) > 1}:
        yield f"exercises.{topic} is exported by two notebooks"
    for name, path in modules(root).items():
        if re.search(r"\bexercises\.(?!thread)\w+ import", path.read_text()):
            yield f"{name} imports exercises"


def unfit_exercises(root):
    "Statement, blank and solution of each exercise; four or more in a chapter, of all four kinds."
    for path in notebooks(root):
        cells = json.loads(path.read_text())["cells"]
        found, topics = chapter.exercises(cells), exercise_topics(path)
        for text in ("".join(c["source"]) for c in cells):
            begins = re.match(r"### [a-z]\w*\.\d+\b|<details><summary>Solution|# @title Sol", text)
            if begins and not chapter.STATEMENT.fullmatch(text):
                yield f"{path.name}: not written as an exercise is: {text[:60]!r}"
        for one in found:
            if not (one.text and one.solution and one.blank):
                yield f"{one.id} lacks its blank, or text or code of its solution"
        for topic in topics:
            own = [e.id for e in found if e.id.split(".")[0] == topic]
            short = path.stem == "00_ten_minutes"  # one blank is enough
            if own != [f"{topic}.{n}" for n in range(1, len(own) + 1)] or len(own) < 4 - 3 * short:
                yield f"{path.name} exports {topic} and has {own}"
        if found and len({e.kind for e in found}) < 4 - 3 * short:
            yield f"{path.name} lacks a kind: {sorted({e.kind for e in found})}"


RULES = [
    wrong_imports,
    early_imports,
    chapters_not_in_toc,
    double_exports,
    orphans,
    computing_models,
    undrawn_arrows,
    relative_imports,
    long_lines,
    bad_cards,
    missing_needs,
    unnamed_needs,
    printing_modules,
    references_imported,
    scattered_addresses,
    unproven_formulas,
    silent_figures,
    lost_outputs,
    unlisted_modules,
    lost_exercises,
    unfit_exercises,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_the_rule(rule):
    assert list(rule(ROOT)) == []


def test_every_module_is_what_its_notebook_exports(tmp_path):
    assert list(stale_modules(ROOT, tmp_path)) == []


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == settings(ROOT)["version"]
    import transformer_lit

    assert transformer_lit.__version__ == project["version"]
