"""The data of the search: one file that holds what stands in the articles, read by search.js.

Sphinx's own search is switched off: it fetches every page that it lists, and it ranks the glossary
and the API above the chapters. A page is found by its title, by the words of book/search.yml and of
the glossary's entries that lead to it, by its headings, and by its text, in this order.
"""

import json
import posixpath
import re
import sys
from pathlib import Path

import yaml
from docutils import nodes
from site_pages import GLOSSARY, definitions
from sphinx import addnodes

sys.path.insert(0, str(Path(__file__).parents[1]))
import cards

ROOT = Path(__file__).parents[2]
WRITTEN = """
alpha α; beta β; gamma γ; delta δ; varepsilon ε; epsilon ε; eta η; theta θ; lambda λ;
mu μ; pi π; rho ρ; sigma σ; tau τ; varphi φ; phi φ; omega ω; Delta Δ; Pi Π; Phi Φ;
infty ∞; cdot ·; times ×; le ≤; ge ≥; approx ≈; sum ∑; prod ∏; partial ∂; top ⊤;
ell ℓ; dots …; pm ±; odot ⊙; leftarrow ←; neq ≠; mid |; int ∫; otimes ⊗
"""
SILENT = (
    *(nodes.raw, nodes.literal_block, nodes.Invisible, nodes.image),
    *(addnodes.desc_parameterlist, addnodes.desc_returns),
)
KIND = re.compile(r"[\w-]+ · \d+ minutes · [\w ]+")  # the line below an exercise's title
SAID = {"log", "ln", "exp", "sin", "cos", "tanh", "max", "min", "arg"}
SIGNS = dict(pair.split() for pair in WRITTEN.strip().split(";"))


def linear(formula):
    r"A formula as one would type it: `\frac{a}{\sqrt{D}}` -> `a/√D`."
    text, former = re.sub(r"\\(begin|end)\s*\{[^{}]*\}|\[\d+pt\]", " ", formula), ""
    while text != former:  # from the inside out
        former = text
        text = re.sub(r"\\sqrt\s*\{([^{}]*)\}", r"√\1", text)
        text = re.sub(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"\1/\2", text)
        text = re.sub(r"\\(?:text|mathrm|operatorname|mathcal|mathbb)\s*\{([^{}]*)\}", r"\1", text)
        text = re.sub(r"([_^])\{([^{}]*)\}", r"\1\2", text)
    text = re.sub(r"\\([A-Za-z]+)", _sign, text)
    return " ".join(re.sub(r"\\.|[{}&]", " ", text).split())


def _sign(command):
    "What stands for a command of TeX; nothing for one that only sets sizes and gaps."
    return SIGNS.get(command[1], command[1] if command[1] in SAID else " ")


NAMED = {"ref": "", "numref": "the figure", "eq": "the formula"}


def work(key):
    "A key of the bibliography in words: `vaswani2017` -> `Vaswani 2017`."
    return re.sub(r"^([a-z]+)(\d{4}).*", r"\1 \2", key.strip()).capitalize()


def said(node, titles):
    "What a node says: formulas on a line, links with the title of their page, no raw HTML."
    if isinstance(node, nodes.Text):
        return str(node)
    if isinstance(node, (nodes.math, nodes.math_block)):
        return f" {linear(node.astext())} "
    if isinstance(node, addnodes.pending_xref) and not node.get("refexplicit"):
        target, here = node["reftarget"], posixpath.dirname(node.get("refdoc", ""))
        page = posixpath.normpath(posixpath.join("/", here, target))[1:]
        if node["reftype"] == "doc" and page in titles:
            return titles[page].astext()
        if node["refdomain"] == "cite":
            return ", ".join(work(key) for key in target.split(","))
        if node["reftype"] in NAMED:  # a label, not a word
            return NAMED[node["reftype"]]
    if isinstance(node, SILENT) or "chapter-card" in node.get("classes", ()):
        return ""
    if isinstance(node, nodes.paragraph) and KIND.fullmatch(node.astext()):
        return ""  # every chapter has a warm-up
    gap = " " if isinstance(node, nodes.Element) and not isinstance(node, nodes.Inline) else ""
    return gap + "".join(said(child, titles) for child in node.children) + gap


def sections(doctree, titles):
    "The sections of a page: (heading, anchor, the text without that of sections inside)."
    for section in doctree.findall(nodes.section):
        inside = [node for node in section.children if not isinstance(node, nodes.section)]
        text = " ".join(said(node, titles) for node in inside[1:])
        yield said(inside[0], titles).strip(), section["ids"][0], " ".join(text.split())


def names(doctree):
    "What the code of a page defines."
    blocks = (node.astext() for node in doctree.findall(nodes.literal_block))
    found = (name for block in blocks for name in re.findall(r"^(?:def|class) (\w+)", block, re.M))
    signatures = (node["ids"] for node in doctree.findall(addnodes.desc_signature))
    documented = (name for ids in signatures for label in ids for name in label.split("."))
    return sorted({*found, *documented})


def looked_for(env):
    "The words that lead to a page: those of book/search.yml first, then terms of the glossary."
    files = {name: path.relative_to(ROOT) for name, path in cards.chapters().items()}
    listed = yaml.safe_load((ROOT / "book/search.yml").read_text(encoding="utf-8"))
    if unknown := set(listed) - set(files):
        raise ValueError(f"book/search.yml: no chapter {sorted(unknown)}; write 'attention/masks'")
    words = {str(files[name].with_suffix("")): list(found) for name, found in listed.items()}
    for terms, _, _, chapters in definitions(env.get_doctree(GLOSSARY)):
        for page in chapters:
            words.setdefault(page, []).extend(terms)
    return words


def kind(page):
    "What a page is: the order of the results depends on it."
    if page.startswith("nbs/"):
        return "appendix" if page.startswith("nbs/base/") else "chapter"
    return "api" if page == "book/api" else "page"


def index(env):
    "All pages for search.js, in the order of the contents."
    words = looked_for(env)
    for page, number in sorted_pages(env):
        doctree = env.get_doctree(page)
        yield {
            "page": f"{page}.html",
            "kind": kind(page),
            "number": number,
            "title": env.titles[page].astext(),
            "words": words.get(page, []),
            "names": names(doctree),
            "sections": list(sections(doctree, env.titles)),
        }


def sorted_pages(env):
    "(page, its number), in the order of the contents; the first page has none."
    yield env.config.root_doc, ""
    for page, numbers in env.toc_secnumbers.items():
        yield page, ".".join(map(str, numbers[""]))


def write(app, error):
    "search.json, beside the page of results."
    if not error and app.builder.format == "html":
        text = json.dumps(list(index(app.env)), ensure_ascii=False, separators=(",", ":"))
        Path(app.outdir, "search.json").write_text(text, encoding="utf-8")


def switch_off(app):
    app.builder.search = False


def setup(app):
    app.connect("builder-inited", switch_off)
    app.connect("html-collect-pages", lambda app: [("search", {}, "search.html")])
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
