"""The chapters as notebooks for plain Jupyter: what only the site resolves becomes text and links.

    python book/notebooks.py copies [FOLDER]     # runnable on their own: Colab, GitHub, Jupyter
    python book/notebooks.py handout [FOLDER]    # for a class: blanks, without solutions
    python book/notebooks.py verdicts FOLDER     # runs what students handed in: verdicts as JSON
    python book/notebooks.py run FOLDER [PAGE …] # runs all cells of copies; 1 if one fails

FOLDER is _build/copies or _build/handout by default. In a copy, all links lead to the site, the
solutions are folded, and the first cell installs what the notebook needs. Building the site makes
the copies too, with an archive, and they are published on a branch of the repository. In a handout,
chapters link to each other, nothing has been run, and there is a folder for what students hand in;
its notebooks need the package to be installed. A weekly job calls `run` in an environment with
other versions of packages, such as Colab's, in which it has installed the package from a wheel.
"""

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, DeadKernelError
from pybtex.database import parse_file

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "book"), str(ROOT / "book/_ext")]
import cards  # noqa: E402
import chapter  # noqa: E402
import ways  # noqa: E402
from chapter import source  # noqa: E402

from transformer_lit.course.exercises import Verdict  # noqa: E402
from transformer_lit.course.files import (  # noqa: E402
    InputError,
    atomic_path,
    read_table,
    read_text,
    remove_folder,
)
from transformer_lit.course.marking import as_text, confirmed  # noqa: E402
from transformer_lit.course.worker import Worker  # noqa: E402
from transformer_lit.exercises import find_exercise  # noqa: E402
from transformer_lit.exercises.my_transformer import STEPS, check_file, write_starter  # noqa: E402

ARCHIVE = "notebooks.zip"
DAY = (2026, 1, 1, 0, 0, 0)  # of every file of the archive, so that equal copies pack equally
RECORDS = "../../results"  # where a chapter looks for records
START = """\
# Run this cell first. It installs what the notebook needs. Running it again does nothing.
import importlib.util
"""
START_RECORDS = """\
from pathlib import Path

if not Path("../../results").is_dir():  # the records are in the repository
    course = Path.home() / "{name}"
    if not (course / "results").is_dir():
        !git init -q "{{course}}"
        !git -C "{{course}}" fetch -q --depth 1 {code} {commit}
        !git -C "{{course}}" checkout -q FETCH_HEAD
    %cd -q "{{course}}/{folder}"
"""
START_PACKAGE = """
if importlib.util.find_spec("{package}") is None:
    %pip install -q '{package}[evaluation,figures] @ git+{code}@{commit}'"""
START_OTHERS = """
for package in {others}:
    if importlib.util.find_spec(package) is None:
        %pip install -q {{package}}"""


@functools.cache
def addresses(root: Path = ROOT) -> dict[str, str]:
    """`pages`: the site of the course, `code`: its repository, `commit`: the source of the copies.

    A branch might have changed by then. Without a history, `commit` is the tag of the version.
    """
    found = cards.settings(root)
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    commit = f"v{found['version']}" if asked.returncode else asked.stdout.strip()
    pages = found["doc_host"] + found["doc_baseurl"]
    return {"pages": pages, "code": found["git_url"], "commit": commit}


# --- text -----------------------------------------------------------------------------------------

ROLE = re.compile(r"(?<!`)\{(doc|term|eq|numref|ref|cite:p|cite:t)\}`([^`]+)`")
NAMED = re.compile(r"(.*?)\s*<([^<>]+)>", re.S)  # text <target>
EQUATION = re.compile(r"(\$\$.*?)\s*\$\$[ \t]*\(([\w-]+)\)", re.S)
WIDGET = re.compile(r"^(`{3,})\{widget\} \w+\n(?::\w+:.*\n)*(.*?)\n\1[ \t]*$", re.M | re.S)
LABEL = re.compile(r"^\([\w-]+\)=\n", re.M)


@dataclass
class Book:
    "The targets of the roles in all chapters."

    root: Path
    alone: bool  # all links lead to the site; otherwise chapters link to each other
    titles: dict[str, str] = field(default_factory=dict)  # nbs/attention/02_masks -> its title
    numbers: dict[str, tuple[str, str]] = field(default_factory=dict)  # label -> page, number
    works: dict[str, tuple[str, str, str]] = field(default_factory=dict)  # names, year, address
    terms: dict[str, str] = field(default_factory=dict)  # in lower case -> as it is spelled

    def __post_init__(self):
        self.pages = addresses(self.root)["pages"]

    def link(self, text: str, page: str, here: str, anchor: str = "") -> str:
        if self.alone or page not in self.titles:
            return f"[{text}]({self.pages}/{page}.html{anchor})"
        return f"[{text}]({os.path.relpath(f'{page}.ipynb', Path(here).parent)})"

    def title(self, page: str) -> str:
        "The title of a chapter or of another page of the site."
        if page not in self.titles:
            return (self.root / f"{page}.md").read_text(encoding="utf-8").split("\n")[0][2:]
        return self.titles[page]

    def number(self, form: str, label: str, here: str) -> str:
        page, number = self.numbers[label]
        said, kind = form.format(number), "equation-" if form == "({})" else ""
        return said if page == here else self.link(said, page, here, f"#{kind}{label}")

    def cite(self, keys: str, inside: bool) -> str:
        said = []
        for key in keys.split(","):
            names, year, address = self.works[key.strip()]
            text = f"{names}, {year}" if inside else f"{names} ({year})"
            said.append(f"[{text}]({address})" if address else text)
        return f"({'; '.join(said)})" if inside else ", ".join(said)

    def role(self, role: str, text: str | None, target: str, here: str) -> str:
        "The text that replaces a role on a page."
        if role == "doc":
            page = os.path.normpath(Path(here).parent / target)
            page = target[1:] if target.startswith("/") else page
            return self.link(text or self.title(page), page, here)
        if role == "term":
            spelled = self.terms[target.lower()].encode("ascii", "ignore").decode()
            label = re.sub(r"[^A-Za-z0-9]+", "-", spelled).strip("-")  # as Sphinx makes it
            return f"[{text or target}]({self.pages}/book/glossary.html#term-{label})"
        if role in ("eq", "numref"):
            return self.number("({})" if role == "eq" else "Figure {}", target, here)
        return self.cite(target, role == "cite:p") if role.startswith("cite") else text or target

    def text(self, text: str, here: str) -> str:
        "Markdown without roles and labels; `here` is the page, such as nbs/attention/02_masks."

        def resolved(match):
            named = NAMED.fullmatch(match[2])
            return self.role(match[1], *(named.groups() if named else (None, match[2])), here)

        def told(match):  # the text of a widget without JavaScript
            at = f"On [the book's site]({self.pages}/{here}.html)"
            said = match[2].replace("On the book's site", at)
            return said.replace("you can try it here", "you can try it")

        text = EQUATION.sub(lambda m: f"{m[1]} \\tag{{{self.numbers[m[2]][1]}}}\n$$", text)
        return LABEL.sub("", ROLE.sub(resolved, WIDGET.sub(told, text)))

    def cells(self, cells: list[dict], here: str) -> Iterator[dict]:
        "The cells of a page: what the site folds is collapsed, and captions are below figures."
        for cell in cells:
            if cell["cell_type"] != "code":
                yield with_text(cell, self.text(source(cell), here))
                continue
            told, code = chapter.split(source(cell))
            if not code.strip():
                continue
            hidden = {"hide", "code-fold"} & told.keys()
            folded = {"jupyter": {"source_hidden": True}} if hidden else {}
            yield with_text(cell, code) | {"metadata": {**cell.get("metadata", {}), **folded}}
            if caption := told.get("fig-cap"):
                number = f"*Figure {self.numbers[told['label']][1]}.* " if "label" in told else ""
                said = number + self.text(caption, here)
                yield with_text(chapter.markdown(f"caption-{cell['id']}", ""), said)


def with_text(cell: dict, text: str) -> dict:
    return {**cell, "source": text.splitlines(keepends=True)}


@functools.cache
def book(alone: bool, root: Path = ROOT) -> Book:
    "The titles, labels and works of the book."
    found, chapters = Book(root, alone), cards.numbers(root)
    for path in cards.chapters(root).values():
        page = cards.page(path, root)
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found.titles[page] = source(cells[0]).split("\n")[0][2:]
        code = [chapter.split(source(c))[0] for c in cells if c["cell_type"] == "code"]
        text = "\n\n".join(source(c) for c in cells if c["cell_type"] != "code")
        figures = [told["label"] for told in code if "label" in told]
        for labels in ([match[2] for match in EQUATION.finditer(text)], figures):
            numbers = ((label, f"{chapters[page]}.{n}") for n, label in enumerate(labels, 1))
            found.numbers |= {label: (page, number) for label, number in numbers}
    found.terms = {term.lower(): term for term in chapter.glossary(root)}
    for key, entry in parse_file(str(root / "book/references.bib")).entries.items():
        fields = {name.lower(): value for name, value in entry.fields.items()}
        people = entry.persons.get("author") or entry.persons.get("editor") or []
        last = [str(person.rich_last_names[-1]) for person in people]
        names = f"{last[0]} et al." if len(last) > 2 else " and ".join(last)
        address = f"https://doi.org/{fields['doi']}" if "doi" in fields else fields.get("url", "")
        if fields.get("archiveprefix", "").lower() == "arxiv":
            address = f"https://arxiv.org/abs/{fields['eprint']}"
        found.works[key] = names, fields.get("year", ""), address
    return found


# --- exercises ------------------------------------------------------------------------------------


def without_solutions(cells: list[dict]) -> list[dict]:
    "The cells outside the section that solves, checks and proves the exercises."
    kept, inside = [], False
    for cell in cells:
        if cell["cell_type"] != "code" and (heading := cards.HEADING.search(source(cell))):
            inside = heading[1].startswith("Solutions")
        if not inside and not chapter.CHECKS.match(source(cell)):
            kept.append(cell)
    return kept


def restated(cells: list[dict], text: Callable[[chapter.Exercise], str]) -> list[dict]:
    "The cells without solutions, in which `text` gives each exercise its statement."
    texts = {cells[one.place]["id"]: text(one) for one in chapter.exercises(cells)}
    kept = without_solutions(cells)
    return [with_text(c, texts[c["id"]]) if c["id"] in texts else c for c in kept]


def folded(cells: list[dict]) -> list[dict]:
    "The cells with each solution in one fold: text, code and typical mistakes."

    def text(one):
        code = f"```python\n{one.solution}\n```\n\n" if one.solution else ""
        fold = f"<details><summary>Solution of {one.id}</summary>\n\n{one.text}\n\n{code}"
        return f"{one.asked}\n\n{fold}{chapter.others(one)}</details>"

    return restated(cells, text)


def asked(cells: list[dict]) -> list[dict]:
    "The cells without outputs and without anything that gives an answer away."
    fresh = {"outputs": [], "execution_count": None}
    kept = restated(cells, lambda one: one.asked)
    return [cell | fresh if cell["cell_type"] == "code" else cell for cell in kept]


# --- both modes -----------------------------------------------------------------------------------


def chapters(root: Path = ROOT) -> Iterator[tuple[str, dict]]:
    "The page and the notebook of every chapter."
    for path in cards.chapters(root).values():
        yield cards.page(path, root), json.loads(path.read_text(encoding="utf-8"))


def write(out: Path, made: dict[str, dict], readme: str, ours: bool, more=lambda new: None):
    "Write notebooks, records and a README, completely or not at all; replaces only our own."
    if out.exists():
        if not ours:
            raise InputError(f"{out} exists and contains other files; name another folder")
        remove_folder(out)
    with atomic_path(out) as new:
        for page, notebook in made.items():
            place = new / f"{page}.ipynb"
            place.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
            place.write_text(text, encoding="utf-8")
        shutil.copytree(ROOT / "results", new / "results")
        (new / "README.md").write_text(readme, encoding="utf-8")
        shutil.copy(ROOT / "AGENTS.md", new)  # for readers who ask an AI assistant
        more(new)


def readme(name: str, root: Path = ROOT, **more) -> str:
    text = (root / f"book/readmes/{name}.md").read_text(encoding="utf-8")
    return text.format(**addresses(root), **more)


# --- copies ---------------------------------------------------------------------------------------


TOLD = re.compile(r"`pip install ([\w ]+)`")


def others(cells: list[dict], root: Path = ROOT) -> list[str]:
    "The packages that cells need besides ours: those that they import or say to install."
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["evaluation"], *extras["figures"]]
    brought = {re.match(r"\w+", line)[0] for line in lines}
    brought |= {cards.settings(root)["lib_name"], "IPython", *sys.stdlib_module_names}
    found = {name for cell in cells for line in TOLD.findall(source(cell)) for name in line.split()}
    code = "\n".join(source(cell) for cell in cells if cell["cell_type"] == "code")
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.split(".")[0])
    return sorted(found - brought)


def start(cells: list[dict], page: str, root: Path = ROOT) -> dict:
    "The first cell of a copy, which installs packages and gets records if they are missing."
    found, where = cards.settings(root), addresses(root)
    needed, more = any(RECORDS in source(cell) for cell in cells), others(cells, root)
    text = (START + START_RECORDS if needed else START) + START_PACKAGE
    text += START_OTHERS if more else ""
    names = {"name": found["repo"], "package": found["lib_name"], "folder": Path(page).parent}
    names["others"] = json.dumps(more)
    cell = {"cell_type": "code", "id": "start", "metadata": {}, "outputs": []}
    return with_text({**cell, "execution_count": None}, text.format(**names, **where))


def copy(page: str, notebook: dict, root: Path = ROOT) -> dict:
    "A chapter that runs on its own."
    known = book(True, root)
    title, *cells = known.cells(folded(notebook["cells"]), page)
    said = f"*This notebook is a page of a book: [{known.title(page)}]({known.pages}/{page}.html).*"
    title = with_text(title, source(title).replace("\n", f"\n\n{said}\n", 1))
    metadata = {key: value for key, value in notebook["metadata"].items() if key != "chapter"}
    return {**notebook, "metadata": metadata, "cells": [title, start(cells, page, root), *cells]}


def write_copies(out: Path, root: Path = ROOT) -> None:
    "Write all copies, and the archive next to their folder."
    ours = (out / "nbs").is_dir() and not (out / "settings.ini").exists()
    made = {page: copy(page, notebook, root) for page, notebook in chapters(root)}
    write(out, made, readme("copies", root), ours)
    with atomic_path(out.parent / ARCHIVE) as new:
        pack(out, new)


def pack(folder: Path, archive: Path) -> None:
    "Pack a folder; the same files give the same bytes."
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            entry = zipfile.ZipInfo(f"notebooks/{path.relative_to(folder)}", DAY)
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


def run(folder: Path, *pages: str) -> Iterator[tuple[str, str | None]]:
    """Run copies in their folder, all or only these: each page, with its error or None.

    This is what "Run all" does: each runs in a kernel of this Python, with an empty home folder.
    """
    paths = [folder / f"{page}.ipynb" for page in pages] or sorted(folder.glob("nbs/*/*.ipynb"))
    if not paths:
        raise InputError(f"no notebooks in {folder}; to write them: notebooks.py copies {folder}")
    for path in paths:
        notebook, error = nbformat.reads(read_text(path), 4), None
        where = {"metadata": {"path": str(path.parent)}}
        client = NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where)
        with tempfile.TemporaryDirectory() as home:
            bare = {"HOME": home, "XDG_CACHE_HOME": home, "TRANSFORMER_LIT_DATA": ""}
            try:
                client.execute(env=os.environ | bare)
            except (CellControlSignal, DeadKernelError) as stopped:
                error = str(stopped)
        yield cards.page(path, folder), error


# --- the handout ----------------------------------------------------------------------------------


def lesson(page: str, notebook: dict, root: Path = ROOT) -> dict:
    "A chapter for a class; below its title are the facts from the site's box."
    files, (first, *cells) = cards.chapters(root), asked(notebook["cells"])
    needs = [cards.page(files[name], root) for name in notebook["metadata"]["chapter"]["needs"]]
    needs = ["needs " + ", ".join(f"{{doc}}`/{need}`" for need in needs)] if needs else []
    title, _, rest = source(first).partition("\n")
    line = " · ".join([*chapter.facts(notebook), *needs])
    cells = [with_text(first, f"{title}\n\n{line}\n{rest}"), *cells]
    return {**notebook, "cells": list(book(False, root).cells(cells, page))}


def handout_readme(root: Path = ROOT) -> str:
    "The README: how to begin, in which order to read, and what to hand in."
    files, known = cards.chapters(root), book(False, root)
    first = []
    for number, (name, card) in enumerate(ways.first_pass(root).items(), 1):
        page = cards.page(files[name], root)
        link = known.link(known.title(page), page, "README")
        first.append(f"{number}. {link}, {card['minutes']} minutes")
    folders = dict.fromkeys(path.parent.name for path in files.values())
    return readme(
        "handout",
        root,
        python=cards.pythons(root),
        first="\n".join(first),
        folders=", ".join(f"`{folder}`" for folder in folders),
        steps=len(STEPS),
    )


def write_handout(out: Path, root: Path = ROOT) -> None:
    "Write the whole handout. A handout that contains submissions is not replaced."

    def more(new):
        write_starter(new / "my_transformer.py")
        (new / "submissions").mkdir()
        (new / "submissions/README.md").write_text(readme("submissions", root))

    found = {path.name for path in (out / "submissions").glob("*")}
    made = {page: lesson(page, notebook, root) for page, notebook in chapters(root)}
    write(out, made, handout_readme(root), found == {"README.md"}, more)


# --- submissions ----------------------------------------------------------------------------------


RUN = """
import json

from IPython.core.interactiveshell import InteractiveShell

from transformer_lit import exercises
from transformer_lit.course.exercises import Verdict
from transformer_lit.course.marking import claim
from transformer_lit.course.sandbox import explained


def check(id, answer=...):
    verdict = exercises.find_exercise(id)
    claimed = verdict.as_dict() if isinstance(verdict, Verdict) else None
    if claimed is None:
        verdict, claimed = claim(verdict, answer)
    send(claimed)
    return verdict


exercises.check = check
(notebook,) = args
shell = InteractiveShell.instance()
shell.history_manager.enabled = False
with open(notebook, encoding="utf-8") as file:
    cells = json.load(file)["cells"]
for number, cell in enumerate(cells, 1):
    if cell["cell_type"] == "code":  # the next cell runs, even if this one raises
        result = shell.run_cell("".join(cell["source"]))
        if error := result.error_before_exec or result.error_in_exec:
            send({"raised": f"cell {number}: {explained(error)}"})
"""


def notebook_verdicts(path: Path, folder: Path, seconds: float = 600) -> dict:
    """Run a submitted notebook in its own process and a folder: the last verdict of each exercise.

    `error` is the reason why verdicts may be missing: the file is not a notebook, it did not end in
    time, it ended the process, or a cell raised something (the first such cell is named).
    """
    try:
        cells = read_table(path)["cells"]
        _ = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except InputError as error:
        return {"error": str(error), "verdicts": []}
    except (KeyError, TypeError):
        return {"error": f"{path} is not a notebook: it has no list of cells", "verdicts": []}
    how = {"seconds": seconds, "folder": folder, "imports": check_file.__module__}
    found, raised, worker = {}, None, Worker(RUN, str(path.resolve()), **how)
    for message in worker:
        message = message if isinstance(message, dict) else {}
        id, error = message.get("id"), message.get("raised")
        raised = raised or (error and as_text(error))
        if isinstance(id, str) and len(id) < 100:
            one = find_exercise(id)
            verdict = one if isinstance(one, Verdict) else confirmed(one, message)
            found[id] = verdict.as_dict()
    return {"error": worker.error or raised, "verdicts": list(found.values())}


def verdicts(folder: Path) -> dict[str, dict]:
    "For each student: the result of `my_transformer.py`, and the verdicts of each notebook."
    # run where the handout had the notebooks, so that they find its records
    found, where = {}, next((folder.parent / "nbs").glob("*/"), folder)
    for student in sorted(p for p in folder.iterdir() if p.is_dir()):
        own = found[student.name] = {"thread": None, "notebooks": {}}
        for file in sorted(student.rglob("my_transformer.py")):
            own["thread"] = check_file(file).as_dict()
        for path in sorted(student.rglob("*.ipynb")):
            if ".ipynb_checkpoints" not in path.parts:
                place = str(path.relative_to(student))
                own["notebooks"][place] = notebook_verdicts(path, where)
    return found


USAGE = "usage: notebooks.py copies|handout [FOLDER], verdicts FOLDER, or run FOLDER [PAGE …]"


def main(args: list[str]) -> int:
    "Exits with 2 for an error that the user can correct, 1 if a copy ends in an error."
    try:
        match args:
            case ["copies", *folder] if len(folder) < 2:
                write_copies(out := Path(*folder or [ROOT / "_build/copies"]))
                print(f"wrote notebooks to {out}, and an archive of them to {out.parent / ARCHIVE}")
            case ["handout", *folder] if len(folder) < 2:
                write_handout(out := Path(*folder or [ROOT / "_build/handout"]))
                print(f"wrote the handout to {out}")
            case ["verdicts", folder]:
                print(json.dumps(verdicts(Path(folder)), indent=1))
            case ["run", folder, *pages]:
                failed = False
                for page, error in run(Path(folder).resolve(), *pages):
                    print(f"{page}: {error or 'all cells ran'}", flush=True)
                    failed |= error is not None
                return int(failed)
            case _:
                raise InputError(USAGE)
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def bring_copies(app):
    "Add the copies to the site."
    write_copies(Path(app.outdir, chapter.COPIES))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
