"""Below the summary of a chapter: the records it reads, their commands, and what changed since.

A record names the commit of the code that made it. Where the history is at hand, each module that
its command imports is compared with that commit; comments, docstrings, annotations and imports do
not count, nor does transformer_lit/base, which reads, writes and draws.
"""

import ast
import hashlib
import json
import re
import subprocess
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
READ = re.compile(r'(\w[\w{}*-]*)\.json"|name=f?"(\w[\w{}*-]*)"')
BAKEOFF = re.compile(r'\["bakeoff"\] == "(\w+)"')
ROOMS = ("transformer_lit", "experiments", "benchmarks")
SHOWN = 3  # modules that are named; the rest is counted


# --- which records ------------------------------------------------------------------------------


def _files(root):
    "Every record by its name."
    return {path.stem: path for path in sorted((root / "results").rglob("*.json"))}


def read_by(cells, root=ROOT):
    "The groups of records that the code of a notebook reads: title -> files."
    files, found = _files(root), {}
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] != "code":
            continue
        for match in READ.finditer(text):
            name = re.sub(r"{.*?}", "*", match[1] or match[2])  # `seed{seed}` is read for each
            read = [path for stem, path in files.items() if fnmatchcase(stem, name)]
            found.setdefault(name.replace("*", "…"), read)
        for match in BAKEOFF.finditer(text):
            entries = [path for name, path in files.items() if name.startswith(f"{match[1]}-")]
            found.setdefault(f"bake-off {match[1]}", entries)
    return {title: paths for title, paths in found.items() if paths}


# --- which code ---------------------------------------------------------------------------------


def _module(name, root):
    "The file of a module, where it is one of this repository's."
    path = root / name.replace(".", "/")
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if name.split(".")[0] in ROOMS and file.is_file():
            return file


@cache
def _imports(file, root):
    "The repository's files that a file imports while it is loaded or in a function."
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        found += filter(None, (_module(name, root) for name in names))
    return found


def _begins(command, root):
    "The file where the work of a record's command begins."
    words = command.split()
    if words[:3] == ["python", "-m", "experiments"]:
        table = (root / "experiments/__main__.py").read_text(encoding="utf-8")
        value = re.search(rf'"{words[3]}": (\w+)', table)
        home = value and re.search(rf"from (\S+) import (?:.*\b)?{value[1]}\b", table)
        own = words[3] if _module(f"experiments.{words[3]}", root) else "bakeoffs"
        return _module(home[1] if home else f"experiments.{own}", root)
    if words[:2] == ["python", "-m"]:
        return _module(words[2], root) or _module(f"{words[2]}.__main__", root)
    task = words[2] if words[1] == "train" else words[1]  # transformer-lit train TASK, or bakeoff
    for name in (task, task.replace("-", "_"), "language_model"):
        if file := _module(f"transformer_lit.recipes.{name}", root):
            return file


@cache
def behind(command, root=ROOT):
    "The files that a command's work imports, in order."
    found, waiting = set(), [_begins(command, root)]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _imports(file, root)
    names = (file.relative_to(root).as_posix() for file in found)
    return sorted(n for n in names if "/base/" not in n and not n.endswith("__init__.py"))


# --- what changed -------------------------------------------------------------------------------


@cache
def _git(*command, root):
    told = subprocess.run(["git", *command], cwd=root, capture_output=True)
    return told.stdout.decode() if told.returncode == 0 else None


def _silent(node):
    said = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return said or isinstance(node, ast.Import | ast.ImportFrom)


def _done(node):
    "A tree as tuples, without what a reader needs and the machine does not."
    if isinstance(node, list):
        return [_done(one) for one in node]
    if not isinstance(node, ast.AST):
        return type(node), node
    kept = []
    for name in node._fields:
        value = getattr(node, name, None)
        if name == "body" and isinstance(value, list):
            value = [one for one in value if not _silent(one)]
        kept.append(None if name in ("annotation", "returns") else _done(value))
    return type(node), *kept


def meaning(source):
    "What a module does, whatever it says about it."
    return _done(ast.parse(source))


@cache
def _then(commit, root):
    "The files of a commit and the name of their content; None without the history."
    listed = _git("ls-tree", "-r", commit, "--", *ROOMS, root=root)
    if not listed:
        return None
    rows = (line.split("\t") for line in listed.splitlines())
    return {name: about.split()[2] for about, name in rows}


@cache
def _now(name, root):
    return meaning((root / name).read_text(encoding="utf-8"))


@cache
def _same(blob, name, root):
    text = (root / name).read_bytes()
    if hashlib.sha1(b"blob %d\0%b" % (len(text), text)).hexdigest() == blob:  # as git names it
        return True
    return meaning(_git("cat-file", "blob", blob, root=root)) == _now(name, root)


def changed(command, commit, root=ROOT):
    "The modules behind a command that do something else than they did; None where nobody knows."
    then = _then(commit.rstrip("+"), root)
    if then is None:
        return None
    return [n for n in behind(command, root) if n not in then or not _same(then[n], n, root)]


# --- what the page says -------------------------------------------------------------------------


def _short(commit):
    return commit[:7] + (", with changes" if commit.endswith("+") else "")


def _row(title, paths, root):
    told = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    made = sorted({one["commit"] for one in told})
    commands = sorted({one["command"] for one in told})
    since = [changed(c, commit, root) for c in commands for commit in made]
    if None in since:
        state = "not known here: the history is missing"
    elif modules := sorted({name for found in since for name in found}):
        all_ = len({name for c in commands for name in behind(c, root)})
        names = ", ".join(f"`{name.removeprefix('transformer_lit/')}`" for name in modules[:SHOWN])
        more = f" and {len(modules) - SHOWN} more" if len(modules) > SHOWN else ""
        state = f"**changed**: {len(modules)} of {all_} modules ({names}{more})"
    else:
        state = "unchanged"
    dates = [_git("show", "-s", "--format=%cs", c.rstrip("+"), root=root) for c in made]
    days = (f"{d.strip()} (`{_short(c)}`)" for d, c in zip(dates, made, strict=True) if d)
    when = ", ".join(days) or "–"
    command = commands[0] if len(commands) == 1 else f"{commands[0]} …"
    count = f", {len(paths)} files" if len(paths) > 1 else ""
    return f"| {title}{count} | `{command}` | {when} | {state} |"


def note(groups, root=ROOT):
    "The folded table for a page; its title says how many were made with other code than today's."
    rows = [_row(title, paths, root) for title, paths in groups.items()]
    older = sum("**changed**" in row for row in rows)
    said = f": code changed since for {older} of {len(rows)}" if older else ""
    return "\n".join(
        (
            f'<details class="records"><summary>Records behind this page{said}</summary>',
            "",
            "| record | made by | when | code since |",
            "|---|---|---|---|",
            *rows,
            "",
            "The numbers of this page are read from these files. Code that changed since may give "
            "others: its command makes the record anew.",
            "",
            "</details>",
        )
    )


def on_source_read(app, docname, source):
    "Below the summary; at the end of a page that has none."
    if not str(app.env.doc2path(docname)).endswith(".ipynb"):
        return
    notebook = json.loads(source[0])
    cells = notebook["cells"]
    if groups := read_by(cells):
        last = max(
            (n for n, c in enumerate(cells) if "".join(c["source"]).startswith("## Summary")),
            default=len(cells) - 1,
        )
        table = {"cell_type": "markdown", "id": "records-behind", "metadata": {}}
        table["source"] = note(groups)
        cells.insert(last + 1, table)
        source[0] = json.dumps(notebook)


def setup(app):
    app.connect("source-read", on_source_read)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
