"""The rules of the house: one source for text, code and test; imports that run one way.

Each rule is a function from a source tree to the breaches it finds. It must find none in this
repository, and find the breach that its test plants in a small copy.
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
    "base": set(),
    "text": {"base"},
    "attention": {"base"},
    "position": {"base", "attention"},
    "block": {"base", "attention"},
    "models": {"base", "text.embedding", "attention", "position", "block"},
    "training": {"base"},
    "inference": set(),
    "recipes": {"base", "text", "attention", "block", "models", "training", "inference"},
}
COMPUTES = {"softmax", "einsum", "matmul", "bmm", "mm", "cos", "sin", "exp", "log_softmax"}
MAX_FUNCTION_LINES = 40
SAME_BODY_LINES = 3  # shorter bodies are equal by chance
MAX_MODULE_LINES = 300
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


def modules(root, exercises=False):
    "Exported modules: dotted name below the package -> path. Those of exercises only where asked."
    files = (root / PACKAGE).rglob("*.py")
    files = [p for p in files if exercises or p.parent.name != "exercises"]
    kept = [p for p in files if p.name not in ("__init__.py", "_modidx.py")]
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
    for name, path in names.items():
        part = name.split(".")[0]
        for other in imported(path.read_text(), name) & set(names):
            own = other.split(".")[0] == part
            if own and order.index(other) >= order.index(name):
                yield f"{name} imports {other}, which comes later in its part"
            if not own and not {other, other.split(".")[0]} & MAY_IMPORT[part]:
                yield f"{name} imports {other}, which {part} may not"


def undrawn_arrows(root):
    "An arrow that the table allows and no module draws is a hole in the rule."
    if not (root / PACKAGE / "recipes").exists():  # a house under construction
        return
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
            for other in imported(source) & names:
                if not other.startswith("base.") and place[other] > i:
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


def functions(path):
    "All functions of a module, methods too."
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


def body(function):
    "The statements of a function without its docstring."
    return function.body[1:] if ast.get_docstring(function) is not None else function.body


def body_lines(path, function):
    "Lines of code of a function: no signature, docstring, comment or blank line."
    text, statements = path.read_text().split("\n"), body(function)
    lines = text[statements[0].lineno - 1 : statements[-1].end_lineno] if statements else []
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in lines)


def long_functions(root):
    for name, path in modules(root).items():
        for function in functions(path):
            if (lines := body_lines(path, function)) > MAX_FUNCTION_LINES:
                yield f"{name}.{function.name} has {lines} lines"


def long_modules(root):
    "The command is one list of options, and may be longer."
    for name, path in modules(root).items():
        lines = path.read_text().count("\n")
        if lines > MAX_MODULE_LINES and name != "recipes.cli":
            yield f"{name} has {lines} lines"


def double_bodies(root):
    "The same name for the same role is good; the same lines twice are not."
    seen = {}
    for name, path in modules(root).items():
        for function in functions(path):
            if body_lines(path, function) < SAME_BODY_LINES:
                continue
            written = "\n".join(ast.dump(statement) for statement in body(function))
            here = f"{name}.{function.name}"
            if written in seen:
                yield f"{here} and {seen[written]} have one body"
            seen[written] = here


def crowded_forwards(root):
    "A fifth `if` in a forward means that an object is missing."
    for name, path in modules(root).items():
        for function in functions(path):
            found = [n for n in ast.walk(function) if isinstance(n, ast.If)]
            if function.name == "forward" and len(found) > 4:
                yield f"{name} line {function.lineno}: a forward with {len(found)} branches"


def long_lines(root):
    "Captions and alt texts are one line each, whatever their length; code keeps to the limit."
    for path in notebooks(root):
        for source, _ in code_cells(path):
            for line in source.split("\n"):
                if len(line) > MAX_LINE and not line.startswith(("#| fig-", "!")):
                    yield f"{path.name} has a line of {len(line)} characters: {line[:50]}"


def untested_modules(root):
    for name in modules(root):
        part, topic = name.split(".")
        if not (root / f"tests/{part}/test_{topic}.py").exists():
            yield f"{name} has no tests/{part}/test_{topic}.py"


def printing_modules(root):
    for name, path in modules(root, exercises=True).items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
                yield f"{name} line {node.lineno} prints"


def oracles_imported(root):
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
            if text and path.name != "_modidx.py" and address in path.read_text():
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
    api = (root / "book/api.md").read_text()
    for name in modules(root):
        if f".. automodule:: {PACKAGE}.{name}\n" not in api:
            yield f"{name} is not on the API page"


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
                    if part != "base" and needed not in needs:  # machinery, in the appendix
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
        if name != "base.exercises" and re.search(r"\bexercises\.\w+ import", path.read_text()):
            yield f"{name} imports exercises"


def last_statement(source):
    body = ast.parse(source).body
    return ast.unparse(body[-1]) if body else ""


def unfit_exercises(root):
    "Statement, blank, folded solution and check of each exercise; four or more, of all four kinds."
    for path in notebooks(root):
        cells = json.loads(path.read_text())["cells"]
        found, topics = chapter.exercises(cells), exercise_topics(path)
        texts = ["".join(c["source"]) for c in cells]
        for text in texts:
            begins = re.match(r"### [a-z]\w*\.\d+\b|<details><summary>Solution|# @title Sol", text)
            if begins and not any(form.fullmatch(text) for form in chapter.FORMS):
                yield f"{path.name}: not written as an exercise is: {text[:60]!r}"
        if not found and not topics:
            continue
        if [e.id for e in found] != [f"{t}.{n}" for t in topics for n in range(1, len(found) + 1)]:
            yield f"{path.name} exports {topics} and has {[e.id for e in found]}"
        if len(found) < 4 or len({e.kind for e in found}) < 4:
            yield f"{path.name} has {len(found)} exercises: {sorted({e.kind for e in found})}"
        end = texts.index("## Solutions") if "## Solutions" in texts else len(texts)
        if not cells[end:] or not cells[end]["metadata"].get("jp-MarkdownHeadingCollapsed"):
            yield f"{path.name} has no folded section Solutions"
        for one in found:
            if (one.text_place or 0) < end or one.solution_place != one.text_place + 1:
                yield f"{one.id} has no text and code among the solutions"
                continue
            calls = {last_statement(one.blank or ""), last_statement(one.solution)}
            if len(calls) > 1 or not re.fullmatch(rf"check\('{one.id}', \w+\)", *calls):
                yield f"{one.id}: blank and solution do not end with the same check: {calls}"
            if one.place > end or one.id not in "".join(t for t in texts[end:] if "@exercise" in t):
                yield f"{one.id} stands among the solutions, or has no check there"


RULES = [
    wrong_imports,
    early_imports,
    chapters_not_in_toc,
    double_exports,
    orphans,
    computing_models,
    undrawn_arrows,
    relative_imports,
    long_functions,
    long_modules,
    double_bodies,
    crowded_forwards,
    long_lines,
    bad_cards,
    missing_needs,
    unnamed_needs,
    untested_modules,
    printing_modules,
    oracles_imported,
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


# --- each rule finds a planted breach -----------------------------------------------------------


def cell(source, kind="code", outputs=()):
    return {"cell_type": kind, "source": source, "outputs": list(outputs), "metadata": {}}


CARD = {"pass": 1, "minutes": 5, "needs": [], "level": "core"}
TWICE = "def {}(x):\n    a = x + 1\n    b = a * 2\n    return b - x\n"


def write(root, path, *cells, metadata=()):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"cells": list(cells), "metadata": dict(metadata)}))


@pytest.fixture
def house(tmp_path):
    "A tiny house that keeps every rule: two parts, three chapters."
    parts = {"base": ["files"], "text": ["words", "lines"]}
    toc = {"root": "book/intro", "parts": []}
    (tmp_path / "settings.ini").write_text(
        "[DEFAULT]\ngit_url = https://example.org/house\nlib_name = transformer_lit\n"
        "lib_path = transformer_lit\nnbs_path = nbs\nuser = u\nrepo = r\nauthor = a\n"
    )
    api = ""
    for part, topics in parts.items():
        toc["parts"].append({"chapters": []})
        for number, topic in enumerate(topics, 1):
            path = f"nbs/{part}/0{number}_{topic}"
            toc["parts"][-1]["chapters"].append({"file": path})
            write(
                tmp_path,
                f"{path}.ipynb",
                cell(f"#| default_exp {part}.{topic}"),
                cell(f"#| export\ndef {part}_{topic}(): return 1"),
                metadata={"chapter": CARD},
            )
            module = tmp_path / PACKAGE / part / f"{topic}.py"
            module.parent.mkdir(parents=True, exist_ok=True)
            module.write_text(f"def {part}_{topic}(): return 1\n")
            test = tmp_path / "tests" / part / f"test_{topic}.py"
            test.parent.mkdir(parents=True, exist_ok=True)
            test.write_text("")
            api += f".. automodule:: {PACKAGE}.{part}.{topic}\n"
    (tmp_path / "book").mkdir()
    (tmp_path / "book/_toc.yml").write_text(yaml.safe_dump(toc))
    (tmp_path / "book/api.md").write_text(api)
    return tmp_path


def add(house, path, *cells):
    notebook = json.loads((house / path).read_text())
    write(house, path, *notebook["cells"], *cells, metadata=notebook["metadata"])


def card(house, path, **changes):
    notebook = json.loads((house / path).read_text())
    write(house, path, *notebook["cells"], metadata={"chapter": CARD | changes})


WORDS, LINES = "nbs/text/01_words.ipynb", "nbs/text/02_lines.ipynb"


def module(house, name, source):
    (house / PACKAGE / f"{name}.py").write_text(source)


DOTS = {"data": {"image/png": "iVBORw0KGgo="}}


PICTURE = {"data": {"image/svg+xml": "<svg/>"}}
BREACHES = {
    wrong_imports: [
        lambda h: module(h, "base/files", "from transformer_lit.text.words import text_words"),
        lambda h: module(h, "base/files", "from ..text import words"),
        lambda h: module(h, "text/words", "from .lines import text_lines"),
    ],
    early_imports: [
        lambda h: add(h, WORDS, cell("from transformer_lit.text.lines import text_lines"))
    ],
    chapters_not_in_toc: [
        lambda h: write(h, "nbs/text/03_new.ipynb"),
        lambda h: (h / LINES).unlink(),
    ],
    double_exports: [
        lambda h: write(h, "nbs/text/03_new.ipynb", cell("#| default_exp text.words"))
    ],
    orphans: [
        lambda h: module(h, "text/ghost", ""),
        lambda h: (h / PACKAGE / "text/words.py").unlink(),
    ],
    computing_models: [
        lambda h: [(h / PACKAGE / "models").mkdir(), module(h, "models/m", "y = a @ b")],
        lambda h: [(h / PACKAGE / "models").mkdir(), module(h, "models/m", "y = x.softmax(-1)")],
    ],
    undrawn_arrows: [
        lambda h: [
            (h / PACKAGE / "recipes").mkdir(),
            module(h, "recipes/r", "from transformer_lit.base.files import base_files"),
        ]
    ],
    relative_imports: [
        lambda h: module(h, "text/lines", "from .words import text_words"),
        lambda h: module(h, "text/lines", "def f():\n    from ..base import files"),
    ],
    long_functions: [lambda h: module(h, "text/words", "def f():\n" + "    x = 1\n" * 41)],
    long_modules: [lambda h: module(h, "text/words", "x = 1\n" * 301)],
    double_bodies: [
        lambda h: [module(h, f"text/{name}", TWICE.format(name)) for name in ("words", "lines")]
    ],
    crowded_forwards: [
        lambda h: module(h, "text/words", "def forward(x):\n" + "    if x: y = 1\n" * 5)
    ],
    long_lines: [lambda h: add(h, WORDS, cell("#| fig-cap: c\nx = 1  # " + "y" * 100))],
    bad_cards: [
        lambda h: card(h, WORDS, **{"pass": 3}),
        lambda h: card(h, WORDS, minutes=50),
        lambda h: card(h, WORDS, level="easy"),
        lambda h: write(h, WORDS, cell("#| default_exp text.words")),
    ],
    missing_needs: [
        lambda h: card(h, WORDS, needs=["text/lines"]),
        lambda h: card(h, WORDS, needs=["text/ghost"]),
        lambda h: [card(h, LINES, needs=["text/words"]), card(h, WORDS, **{"pass": 2})],
    ],
    unnamed_needs: [
        lambda h: add(h, LINES, cell("*You need {doc}`01_words`.*", "markdown")),
        lambda h: add(
            h, LINES, cell("You need x, and {doc}`it </nbs/text/01_words>`. Go.", "markdown")
        ),
    ],
    untested_modules: [lambda h: (h / "tests/text/test_words.py").unlink()],
    printing_modules: [lambda h: module(h, "text/words", "print('hello')")],
    oracles_imported: [lambda h: module(h, "text/words", "import transformers")],
    scattered_addresses: [
        lambda h: (h / "README.md").write_text("https://example.org/house"),
        lambda h: add(h, WORDS, cell("!git clone https://example.org/house")),
    ],
    unproven_formulas: [lambda h: add(h, WORDS, cell("$$ x = y $$", "markdown"))],
    silent_figures: [
        lambda h: add(h, WORDS, cell("plot()", outputs=[PICTURE])),
        lambda h: add(h, WORDS, cell("#| fig-cap: c\n#| fig-alt: short\n", outputs=[PICTURE])),
        lambda h: add(h, WORDS, cell(f"#| fig-cap: c\n#| fig-alt: {'long ' * 5}", outputs=[DOTS])),
    ],
    lost_outputs: [
        lambda h: add(h, WORDS, cell("for x in (1, 2):\n    print(x)")),
        lambda h: add(h, WORDS, cell("def f():\n    return 1\n\n\nplt.show()")),
        lambda h: add(h, WORDS, cell('Table(["x"], [[1]])')),
    ],
    unlisted_modules: [lambda h: (h / "book/api.md").write_text("")],
}


def exercise_notebook():
    "Cells of four exercises as they should be, by place: statements 0, 2, 4, 6, blanks after each."
    asked, solved, kinds = [], [], ("warm-up", "predict", "build", "repair")
    for number, kind in enumerate(kinds, 1):
        hint = "<details><summary>Hint</summary>\n\nh\n\n</details>"
        head = f"### lines.{number} · T\n\n*{kind} · 3 minutes · core*\n\ntext\n\n{hint}"
        text = f"<details><summary>Solution of lines.{number}</summary>\n\nt\n\n</details>"
        fold = f'# @title Solution of lines.{number} {{ display-mode: "form" }}\n'
        call = f'check("lines.{number}", x)'
        asked += [cell(head, "markdown"), cell(f"x = None\n{call}")]
        solved += [cell(text, "markdown"), cell(f"{fold}x = 1\n{call}")]
    heading = cell("## Solutions", "markdown")
    heading["metadata"]["jp-MarkdownHeadingCollapsed"] = True
    checks = "".join(f'@exercise("lines.{number}")\ndef x(): pass\n' for number in (1, 2, 3, 4))
    return [*asked, heading, *solved, cell(f"#| export exercises.lines\n{checks}")]


def with_exercises(house, change=lambda cells: None):
    cells = exercise_notebook()
    change(cells)
    add(house, LINES, *cells)
    (house / PACKAGE / "exercises").mkdir()
    module(house, "exercises/lines", "def x(): return 1")


def replace(place, old, new):
    def change(cells):
        assert old in cells[place]["source"]
        cells[place]["source"] = cells[place]["source"].replace(old, new)

    return lambda house: with_exercises(house, change)


EXERCISE_BREACHES = {
    lost_exercises: [
        lambda h: [(h / PACKAGE / "exercises").mkdir(), module(h, "exercises/ghost", "")],
        lambda h: [with_exercises(h), (h / PACKAGE / "exercises/lines.py").unlink()],
        lambda h: [with_exercises(h), add(h, WORDS, cell("#| export exercises.lines\nx = 1"))],
        lambda h: [
            with_exercises(h),
            module(h, "text/words", "from transformer_lit.exercises.lines import x"),
        ],
    ],
    unfit_exercises: [
        replace(0, "3 minutes", "three minutes"),
        replace(0, "lines.1", "lines.5"),
        replace(0, "Hint", "Solution"),
        replace(0, "warm-up", "build"),
        replace(1, 'check("lines.1", x)', "x"),
        replace(1, "lines.1", "lines.2"),
        replace(8, "## Solutions", "## Answers"),
        replace(9, "Solution of", "Solution"),
        replace(10, "# @title", "# title"),
        replace(10, "form", "wide"),
        replace(17, '@exercise("lines.4")', ""),
        lambda h: with_exercises(h, lambda cells: cells[8]["metadata"].clear()),
        lambda h: with_exercises(h, lambda cells: cells.insert(1, cells.pop(9))),
        lambda h: with_exercises(h, lambda cells: cells.__delitem__(slice(6, 8))),
        lambda h: with_exercises(h, lambda cells: cells.pop()),
    ],
}
BREACHES |= EXERCISE_BREACHES


def test_exercises_as_they_should_be_are_no_breach(house):
    with_exercises(house)
    assert [list(rule(house)) for rule in EXERCISE_BREACHES] == [[], []]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_rule_finds_a_planted_breach(rule, house, tmp_path_factory):
    assert list(rule(house)) == []
    for plant in BREACHES[rule]:
        copy = tmp_path_factory.mktemp("breach") / "house"
        shutil.copytree(house, copy)
        plant(copy)
        assert list(rule(copy)), f"{rule.__name__} missed a breach"


def test_a_stale_module_is_found(house, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    module(house, "text/words", "def text_words(): return 2\n")
    found = list(stale_modules(house, scratch))
    assert any(line.startswith("text.words") for line in found)
