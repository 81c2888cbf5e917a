"""Links there and back: a chapter names what it exports and the terms that it explains.

Below the summary of a chapter stand its names, with links to the API reference, and its terms, with
links to the glossary. In the reference each name leads back to its chapter; in the glossary each
entry says where its term is explained.
"""

import ast
import re
import sys
from pathlib import Path

from docutils import nodes
from exercise_cells import source
from sphinx import addnodes

sys.path.insert(0, str(Path(__file__).parents[1]))
import cards
import plain

ROOT = Path(__file__).parents[2]
API = "book/api"
EXPORT = re.compile(r"#\| export$", re.M)
MODULE = re.compile(r"^#\| default_exp (\S+)$", re.M)


def exported(cells):
    "The module that a chapter exports, and its public functions and classes; None where none."
    sources = [source(cell) for cell in cells if cell["cell_type"] == "code"]
    module = next((found[1] for text in sources if (found := MODULE.search(text))), None)
    code = "\n".join(text for text in sources if EXPORT.match(text))
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [one.name for one in ast.parse(code).body if isinstance(one, defined)]
    names = [name for name in dict.fromkeys(found) if not name.startswith("_")]
    return f"transformer_lit.{module}" if module else None, names


def foot(root, docname, cells):
    "What stands below the summary: names for the reference, terms for the glossary."
    module, names = exported(cells)
    terms = [term for term, pages in plain.glossary(root).items() if docname in pages]
    lines = []
    if module and names:
        links = ", ".join(f"{{py:obj}}`{name} <{module}.{name}>`" for name in names)
        lines.append(f"*In the reference:* {links}")
    if terms:
        lines.append("*In the glossary:* " + ", ".join(f"{{term}}`{term}`" for term in terms))
    return "<br>".join(lines)


def add_foot(root, docname, cells):
    "Put it at the end of the summary."
    if said := foot(root, docname, cells):
        for cell in cells:
            if cell["cell_type"] == "markdown" and source(cell).startswith("## Summary"):
                cell["source"] = f"{source(cell)}\n\n:::{{div}} chapter-foot\n{said}\n:::"
                return


def pages_of_modules(root=ROOT):
    "`transformer_lit.attention.masks` -> nbs/attention/02_masks."
    return {
        f"transformer_lit.{name.replace('/', '.')}": str(path.relative_to(root).with_suffix(""))
        for name, path in cards.chapters(root).items()
    }


def lead_back(app, doctree, docname):
    "In the reference, the number of the chapter beside each name."
    if docname != API:
        return
    pages, numbers = pages_of_modules(), cards.numbers()
    for signature in doctree.findall(addnodes.desc_signature):
        page = pages.get(signature.get("module"))
        if page is None or "." in signature.get("fullname", "."):
            continue
        address = app.builder.get_relative_uri(docname, page)
        said = nodes.inline("", f"[chapter {numbers[page]}]", classes=["viewcode-link"])
        signature += nodes.reference("", "", said, internal=True, refuri=address)


def setup(app):
    app.connect("doctree-resolved", lead_back)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
