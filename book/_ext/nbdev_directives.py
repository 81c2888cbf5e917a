"""Show nbdev notebooks in the book without their directives.

On `source-read` the notebook's JSON is rewritten in memory: lines such as `#| hide` are cut from
code cells and become the tags and metadata that MyST-NB understands; exercises get links to their
solutions. The file is left alone.
The repository's address stands in settings.ini alone; buttons that need it get it from here.
"""

import ast
import configparser
import functools
import json
import re
import sys
from pathlib import Path

import exercise_cells
from cell_directives import split

sys.path.insert(0, str(Path(__file__).parents[1]))
import cards
import copies
import cross_links
import prove
import ways


def tags(directives, code):
    """The cell tags that stand for the directives."""
    # the checks of exercises give the answers away
    checks = directives.get("export", "").startswith("exercises.")
    if "hide" in directives or checks or not code.strip():
        yield "remove-cell"
    if "code-fold" in directives or only_imports(code):
        yield "hide-input"
    if directives.get("eval") == "false":
        yield "skip-execution"
    if "export" in directives and not checks:
        yield "exported"  # for the stylesheet: div.tag_exported


def statements(code):
    """The statements of a cell; none where it holds more than Python."""
    try:
        return ast.parse(code).body
    except SyntaxError:
        return []


def only_imports(code):
    found = statements(code)
    return bool(found) and all(isinstance(one, ast.Import | ast.ImportFrom) for one in found)


CHECKED = re.compile(r"^# Checked by: (.+)$", re.M)


def assigned(statement):
    """The name that a statement gives something to, if it is one."""
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        target = getattr(statement, "targets", [getattr(statement, "target", None)])[0]
        return target.id if isinstance(target, ast.Name) else None
    return None


def checks(statement):
    """Whether it asserts something, itself or by `assert_close`."""
    nodes = list(ast.walk(statement))
    called = (node.func for node in nodes if isinstance(node, ast.Call))
    names = {getattr(func, "attr", getattr(func, "id", "")) for func in called}
    return "assert_close" in names or any(isinstance(node, ast.Assert) for node in nodes)


def fold_name(cell, code):
    """What is written on a fold: its purpose."""
    if only_imports(code):
        return "Imports"
    shown = {kind for out in cell.get("outputs", []) for kind in out.get("data", {})}
    if any(kind.startswith("image/") for kind in shown):
        return "Code of the figure"
    if checked := CHECKED.search(code):
        return f"Check: {checked[1].rstrip('.')}"
    found = statements(code)
    defined = [one.name for one in found if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    names = [name for name in defined if not name.startswith("_")] or defined
    if names:
        return "Code: " + ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    if cell.get("outputs"):
        return "Code of the output"
    if any(map(checks, found)):
        return "Check"
    if found and isinstance(found[0], ast.Import | ast.ImportFrom):
        return "Imports and settings"
    given = list(filter(None, map(assigned, found)))
    return f"Code: {', '.join(given[:3])}" if given else "Code"


def convert(cell):
    """Rewrite one code cell in place."""
    directives, code = split("".join(cell["source"]))
    cell["source"] = code
    meta = cell.setdefault("metadata", {})
    meta.setdefault("tags", []).extend(tags(directives, code))
    render = meta.setdefault("mystnb", {})
    if "hide-input" in meta["tags"]:
        name = fold_name(cell, code)
        render |= {"code_prompt_show": name, "code_prompt_hide": name}
    if "fig-cap" in directives:
        render["figure"] = {"caption": directives["fig-cap"]}
        if "label" in directives:
            render["figure"]["name"] = directives["label"]
    if "fig-alt" in directives:
        render["image"] = {"alt": directives["fig-alt"]}


def card_box(root, docname, notebook):
    """The card of a chapter as a box below its title: pass, time, needs, exercises, copies, proof.

    The first chapter of a part that the map shows also has the map, folded.
    """
    card, cells = notebook["metadata"].get("chapter"), notebook["cells"]
    if not card:
        return
    found = cards.chapters(root).items()
    places = {name: f"/{path.relative_to(root).with_suffix('')}" for name, path in found}
    needs = ", ".join(f"{{doc}}`{places[need]}`" for need in card["needs"] if need in places)
    first_pass, minutes, *exercises = ways.facts(notebook)
    facts = [first_pass, minutes, *([f"needs {needs}"] if needs else []), *exercises]
    lines = [
        " · ".join(facts),
        " · ".join(filter(None, [*take_away(docname), prove.said(root, notebook, docname)])),
    ]
    line = "<br>".join(lines)
    title, _, rest = "".join(cells[0]["source"]).partition("\n")
    box = f":::{{div}} chapter-card\n{line}\n:::\n"
    part = Path(docname).parent.name
    first = next((place for place in places.values() if Path(place).parent.name == part), None)
    if first == f"/{docname}" and part in {box[1].split("/")[0] for box in ways.BOXES}:
        box += f"\n```{{transformer-map}} {part}\n```\n"
    cells[0]["source"] = f"{title}\n\n{box}{rest}"


def take_away(docname):
    """Links to the copy of a chapter: the file, and Colab, which opens it."""
    up = "../" * docname.count("/")
    yield f'<a href="{up}{copies.FOLDER}/{docname}.ipynb">.ipynb</a>'
    yield f'<a href="{copies.colab(docname)}">Colab</a>'


ENTRY = re.compile(r"### (\S+) · \S+ ([^\n]+)\n")
CHAPTER = re.compile(r"\{doc\}`(/nbs/[^`]+)`")


def entry_label(name):
    """`S0.1` -> `clinic-s0-1`, the label of that entry of the clinic."""
    return "clinic-" + name.lower().replace(".", "-")


@functools.cache
def clinic(root):
    """What the errata clinic says of each chapter: `/nbs/...` -> links to its entries."""
    found = {}
    for path in sorted(root.glob("nbs/sources/*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            text = "".join(cell["source"])
            if entry := ENTRY.match(text):
                link = f"{{ref}}`{entry[2]} <{entry_label(entry[1])}>`"
                for chapter in CHAPTER.findall(text.partition("Settled in")[2]):
                    found.setdefault(chapter, []).append(link)
    return found


def label_entries(cells):
    """Give each entry of the clinic a label that other pages lead to."""
    for cell in cells:
        text = "".join(cell["source"])
        if entry := ENTRY.match(text):
            cell["source"] = f"({entry_label(entry[1])})=\n{text}"


def point_to_clinic(root, docname, cells):
    """Below "Often confused", or where there is none below the summary: entries on this chapter."""
    links = clinic(root).get(f"/{docname}")
    if not links:
        return
    for heading in ("## Often confused", "## Summary"):
        for cell in cells:
            if "".join(cell["source"]).startswith(heading):
                said = (
                    f"\n\n*Told otherwise in texts, and settled in the clinic:* {', '.join(links)}."
                )
                cell["source"] = "".join(cell["source"]) + said
                return


def on_source_read(app, docname, source):
    if not app.env.doc2path(docname).endswith(".ipynb"):
        return
    notebook = json.loads(source[0])
    card_box(Path(app.confdir), docname, notebook)
    point_to_clinic(Path(app.confdir), docname, notebook["cells"])
    cross_links.add_foot(Path(app.confdir), docname, notebook["cells"])
    if docname.startswith("nbs/sources/"):
        label_entries(notebook["cells"])
    for cell in exercise_cells.show(notebook["cells"]):
        if cell["cell_type"] == "code":
            convert(cell)
    source[0] = json.dumps(notebook)


def settings(root):
    """The [DEFAULT] section of settings.ini."""
    parser = configparser.ConfigParser()
    parser.read(Path(root) / "settings.ini", encoding="utf-8")
    return parser["DEFAULT"]


def add_addresses(app, config):
    """Give the theme the repository's address, for the Colab, source and issue buttons."""
    found = settings(app.confdir)
    config.html_theme_options |= {
        "repository_url": found["git_url"],
        "repository_branch": found["branch"],
        "launch_buttons": {"colab_url": "https://colab.research.google.com"},
    }
    config.html_baseurl = found["doc_host"] + found["doc_baseurl"] + "/"
    printed = {"The whole book": "transformer_lit", "the first pass": "first-pass"}  # make pdf
    whole, first = (f'<a href="../pdf/{file}.pdf">{n}</a>' for n, file in printed.items())
    config.myst_substitutions |= {"printed": f"{whole} and {first}"}


def setup(app):
    app.connect("config-inited", add_addresses)
    app.connect("source-read", on_source_read)
    return {"version": "2", "parallel_read_safe": True, "parallel_write_safe": True}
