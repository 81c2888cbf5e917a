"""The search: Pagefind's index of the articles, which search.js reads.

Sphinx's own search is switched off, because it ranks the glossary and the API above the chapters. A
page is found first by its title, by its words in book/search.yml and by the glossary's entries that
link to it, then by its headings and its text. Formulas are indexed in the form in which one would
type them.
"""

import html
import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from pagefind_bin import get_executable

sys.path.insert(0, str(Path(__file__).parents[1]))
import cards
import chapter

ROOT = Path(__file__).parents[2]
WRITTEN = """
alpha α; beta β; gamma γ; delta δ; varepsilon ε; epsilon ε; eta η; theta θ; lambda λ;
mu μ; pi π; rho ρ; sigma σ; tau τ; varphi φ; phi φ; omega ω; Delta Δ; Pi Π; Phi Φ;
infty ∞; cdot ·; times ×; le ≤; ge ≥; approx ≈; sum ∑; prod ∏; partial ∂; top ⊤;
ell ℓ; dots …; pm ±; odot ⊙; leftarrow ←; neq ≠; mid |; int ∫; otimes ⊗
"""
SIGNS = dict(pair.split() for pair in WRITTEN.strip().split(";"))
SAID = {"log", "ln", "exp", "sin", "cos", "tanh", "max", "min", "arg"}
TEX = re.compile(r'(<annotation encoding="application/x-tex">)(.*?)(?=</annotation>)', re.S)
KIND = re.compile(
    r"(?:<strong>)?[\w -]+(?:</strong>)? · \d+ minutes · [\w ]+"
)  # the same on every page
INSIDE = r'(?:<span id="[^"]*"></span>|<div class="exercise-card">)'
HEADING = re.compile(rf'(<section[^>]* id="([^"]+)"[^>]*>\s*(?:{INSIDE}\s*)*<h\d)')
ARTICLE = '<article class="bd-article"'
SILENT = (
    *(".katex-html", "semantics > :not(annotation)", "svg", "pre", "button", ".headerlink"),
    *(
        ".answer",
        ".answers-progress",
        ".exercise-kind",
        ".chapter-card",
        ".chapter-foot",
        "summary",
        "details.solution",
        ".sig-paren",
        ".sig-param",
        ".sig-return",
        ".section-number",
    ),
)
WEIGHTS = {"Chapter": 1, "Appendix": 0.6, "Page": 0.5, "API": 0.35}


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
    "The sign for a TeX command; empty for commands that only set sizes and gaps."
    return SIGNS.get(command[1], command[1] if command[1] in SAID else " ")


def looked_for():
    "The words that lead to a page: those of book/search.yml first, then terms of the glossary."
    pages = {name: cards.page(path) for name, path in cards.chapters().items()}
    listed = yaml.safe_load((ROOT / "book/search.yml").read_text(encoding="utf-8"))
    words = {pages.get(name, name): list(found) for name, found in listed.items()}
    for terms, chapters in chapter.entries():
        for page in chapters:
            words.setdefault(page, []).extend(terms)
    return words


def results_page(app):
    return [("search", {}, "search.html")]


def known_words(env):
    "The words of titles and terms, to which typos are corrected, and the address of each name."
    titles = [title.astext() for title in env.titles.values()]
    listed = [word for words in looked_for().values() for word in words]
    words = {word.lower() for said in titles + listed for word in re.findall(r"[A-Za-z]{4,}", said)}
    names = {}
    for name, entry in sorted(env.domains["py"].objects.items()):
        if entry.objtype in ("class", "function"):
            names[name.rpartition(".")[2]] = f"{entry.docname}.html#{entry.node_id}"
    return {"words": sorted(words), "names": names}


def kind(page):
    "The kind of a page, which decides its weight."
    if page.startswith("nbs/"):
        return "Appendix" if page.startswith("nbs/base/") else "Chapter"
    return "API" if page.startswith("book/api") else "Page"


def prepared(text, **meta):
    "The HTML of a page in the form that Pagefind should read."
    text = TEX.sub(
        lambda found: f"{found[1]} {html.escape(linear(html.unescape(found[2])))} ", text
    )
    said = "".join(
        f'<i data-pagefind-meta="{key}[title]" title="{html.escape(value)}"></i>'
        for key, value in meta.items()
    )
    weight = WEIGHTS[meta["kind"]]
    start = text.index(">", text.index(ARTICLE)) + 1
    body = f'{text[:start]}{said}<div data-pagefind-weight="{weight}">{text[start:]}'
    body = HEADING.sub(r'\1 id="\2"', body)  # a result links to its section
    return KIND.sub("", body.replace("</article>", "</div></article>"))


def index(site, pages):
    "Write the index of (page, its number, title and words) into the folder of the site."
    with TemporaryDirectory() as folder:
        for page, number, title, words in pages:
            text = (site / f"{page}.html").read_text(encoding="utf-8")
            path = Path(folder, f"{page}.html")
            path.parent.mkdir(parents=True, exist_ok=True)
            about = {"kind": kind(page), "number": number, "title": title}
            path.write_text(prepared(text, **about, words=" · ".join(words)), encoding="utf-8")
        how = {
            "site": folder,
            "output-path": site / "pagefind",
            "root-selector": "article.bd-article",
            "exclude-selectors": ", ".join(SILENT),
            "include-characters": "√",
        }
        options = [word for key, value in how.items() for word in (f"--{key}", str(value))]
        subprocess.run([get_executable(), *options], check=True, stdout=subprocess.DEVNULL)


def write(app):
    "Write the index of all pages, next to the page of results."
    words, numbers = looked_for(), cards.numbers(ROOT)
    titles = {page: app.env.titles[page].astext() for page in app.env.found_docs}
    pages = [
        (page, numbers.get(page, ""), title, words.get(page, [])) for page, title in titles.items()
    ]
    index(Path(app.outdir), sorted(pages))
    known = Path(app.outdir, "pagefind/words.json")
    known.write_text(json.dumps(known_words(app.env), ensure_ascii=False), encoding="utf-8")


def switch_off(app):
    app.builder.search = False
