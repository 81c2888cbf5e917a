"""What every page of the site carries beside its text, and the pages that no source writes.

Icons are masks in a style sheet. Parts and chapters are numbered, and with them figures, formulas
and exercises: 3.2 is the second chapter of the third part, (3.2.4) its fourth formula; the appendix
is A. Links to terms and papers carry a note for the pointer. The address of the site comes from
settings.ini.
"""

import base64
import functools
import re
import sys
from html import escape
from pathlib import Path

from docutils import nodes
from pydata_sphinx_theme.toctree import add_toctree_functions
from sphinx import addnodes
from sphinx_design.icons import get_octicon_data
from sphinx_external_toc.collectors import TocTreeCollectorWithStyles

sys.path.insert(0, str(Path(__file__).parents[1]))
from cards import OPENING, numbered, part_name

GLOSSARY = "book/glossary"


# --- numbers ------------------------------------------------------------------------------------


def number_chapters(collector, env):
    "Number the entries of the contents by part; give back the documents whose number changed."
    former, env.toc_secnumbers = env.toc_secnumbers, {}
    parts = list(env.get_doctree(env.config.root_doc).findall(addnodes.toctree))
    for place, part in enumerate(parts, 1):
        name = part_name(place, part.get("caption"))
        chapters = [ref for _, ref in part["entries"] if ref in env.tocs]
        for count, ref in enumerate(numbered(chapters), 1):
            number = (name, count)
            env.titles[ref]["secnumber"] = number
            links = list(env.tocs[ref].findall(nodes.reference))
            env.toc_secnumbers[ref] = {link["anchorname"]: () for link in links}
            env.toc_secnumbers[ref][""] = links[0]["secnumber"] = number
    return [ref for ref, found in env.toc_secnumbers.items() if found != former.get(ref)]


def parts(env):
    "The parts: number, name, the page that opens it (or none), its chapters with their titles."
    for place, part in enumerate(env.get_doctree(env.config.root_doc).findall(addnodes.toctree), 1):
        pages = [page for _, page in part["entries"]]
        opening = next((page for page in pages if page.startswith(OPENING)), "")
        counted = {page: env.toc_secnumbers[page][""] for page in numbered(pages)}
        titles = {
            page: f"{'.'.join(map(str, number))} {env.titles[page].astext()}"
            for page, number in counted.items()
        }
        yield part_name(place, part["caption"]), part["caption"], opening, titles


def contents(found, here, address):
    "The contents beside the page `here` as HTML; `address` gives the way to a page."

    def link(page, said):
        current = "current " if page == here else ""
        return f'<a class="{current}reference internal" href="{address(page) or "#"}">{said}</a>'

    yield '<p class="contents-note">(2): second pass, may be left out</p>\n'
    for number, name, opening, titles in found:
        said = escape(f"{number} · {name}", quote=False)
        yield '<p aria-level="2" class="caption" role="heading">'
        yield f'<span class="caption-text" data-part="{number}">'
        yield f"{link(opening, said) if opening else said}</span></p>\n"
        yield f'<ul class="{"current " if here in (opening, *titles) else ""}nav bd-sidenav">\n'
        for page, title in titles.items():
            current = " current active" if page == here else ""
            yield f'<li class="toctree-l1{current}">{link(page, escape(title, quote=False))}</li>\n'
        yield "</ul>\n"


def read_parts(app, builder):
    app.parts = list(parts(app.env))


def write_contents(app, pagename, templatename, context, doctree):
    "In place of the theme's contents, which copy and parse the book's again for each page."

    def made(*args, **how):
        way = functools.partial(app.builder.get_relative_uri, pagename)
        return "".join(contents(app.parts, pagename, way))

    context["generate_toctree_html"] = made


def offer_contents(app):
    "As soon as the theme has offered its own, before it tries which parts of a page are empty."
    app.connect("html-page-context", write_contents)
    hooks = app.events.listeners["html-page-context"]
    theirs = next(n for n, hook in enumerate(hooks) if hook.handler is add_toctree_functions)
    hooks.insert(theirs + 1, hooks.pop())


# --- icons --------------------------------------------------------------------------------------

ICONS = {  # the theme's name: the name in Octicons, which Sphinx Design brings
    "angle-left": "chevron-left",
    "angle-right": "chevron-right",
    "arrow-up": "arrow-up",
    "bars": "three-bars",
    "download": "download",
    "expand": "screen-full",
    "file": "file",
    "file-pdf": "file",
    "github": "mark-github",
    "lightbulb": "light-bulb",
    "list": "list-unordered",
    "magnifying-glass": "search",
    "moon": "moon",
    "rocket": "rocket",
    "sun": "sun",
    "info": "info",
    "alert": "alert",
}
HALF = '<path d="M8 0a8 8 0 1 0 0 16A8 8 0 0 0 8 0Zm0 1.5v13a6.5 6.5 0 0 1 0-13Z"/>'


def icon_rules():
    "A rule for each icon: its shape as a mask."
    shapes = {name: get_octicon_data()[icon]["heights"]["16"] for name, icon in ICONS.items()}
    paths = {name: shape["path"] for name, shape in shapes.items()} | {"circle-half-stroke": HALF}
    for name, path in paths.items():
        drawing = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">{path}</svg>'
        data = base64.b64encode(drawing.encode()).decode()
        yield f':root {{ --tl-icon-{name}: url("data:image/svg+xml;base64,{data}"); }}'
        yield f".fa-{name} {{ --tl-icon: var(--tl-icon-{name}); }}"


# --- descriptions and notes ---------------------------------------------------------------------


def plain(text, most):
    "`text` in one line, cut at a word."
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1].rsplit(" ", 1)[0] + " …"


def describe(app, pagename, templatename, context, doctree):
    "A description of the page, for search engines and for those who share it."
    if doctree is None:
        return
    quotes = list(doctree.findall(nodes.block_quote))[:1]
    found = (node for start in (*quotes, doctree) for node in start.findall(nodes.paragraph))
    first = next((node.astext() for node in found if len(node.astext()) > 30), "")
    number = app.env.titles[pagename].get("secnumber")
    name = app.env.titles[pagename].astext()
    facts = {
        "og:type": "article",
        "og:site_name": app.config.html_title,
        "og:title": f"{'.'.join(map(str, number))} {name}" if number else name,
        "og:url": app.config.html_baseurl + app.builder.get_target_uri(pagename),
        "og:description": plain(first, 200),
        "og:image": f"{app.config.html_baseurl}_static/card.png",
        "og:image:alt": f"The book's mark and its title: {app.env.titles['book/intro'].astext()}",
    }
    tags = [f'<meta property="{key}" content="{escape(said)}" />' for key, said in facts.items()]
    tags.append(f'<meta name="description" content="{escape(facts["og:description"])}" />')
    context["metatags"] = context.get("metatags", "") + "\n".join(tags)


def definitions(doctree):
    "The entries of the glossary: (its terms, their labels, the definition, its chapters)."
    for item in doctree.findall(nodes.definition_list_item):
        terms = list(item.findall(nodes.term))
        text = item[-1].deepcopy()
        links = [link for link in text.findall(addnodes.pending_xref) if link["reftype"] == "doc"]
        for link in links:
            link.parent.remove(link)
        chapters = [link["reftarget"].lstrip("/") for link in links]
        labels = [label for term in terms for label in term["ids"]]
        yield [term.astext() for term in terms], labels, plain(text.astext(), 400), chapters


HAN = re.compile(r'<dt id="([^"]*)">(?=[^<]*[\u4e00-\u9fff])')


def mark_chinese(app, pagename, templatename, context, doctree):
    "The language of the Chinese names: it decides on a screen reader's voice, and on the font."
    if pagename == GLOSSARY:
        context["body"] = HAN.sub(r'<dt id="\1" lang="zh-Hans">', context["body"])


def read_glossary(app, env):
    "What a link to a term says when it is pointed at."
    app.term_notes = {
        label: text
        for terms, labels, text, chapters in definitions(env.get_doctree(GLOSSARY))
        for label in labels
    }


def note_terms(app, doctree, docname):
    "The definition as the title of each link to a term; page.js shows it."
    for link in doctree.findall(nodes.reference):
        page, _, label = link.get("refuri", "").partition("#")
        if "glossary" in page and label in app.term_notes:
            link["reftitle"] = app.term_notes[label]


# --- scripts ------------------------------------------------------------------------------------


def drop_twins(app, pagename, templatename, context, doctree):
    "A script that two extensions add is there once."
    seen, scripts = set(), []
    for script in context["script_files"]:
        what = str(getattr(script, "filename", script)), str(getattr(script, "attributes", ""))
        if what not in seen:
            seen.add(what)
            scripts.append(script)
    context["script_files"] = scripts


# --- pages that no source writes ----------------------------------------------------------------


def add_missing(app):
    "The page for an address that leads nowhere: shown at any depth, it links from the top."
    return [("404", {"base": app.config.html_baseurl}, "missing.html")]


def finish(app, error):
    "The icons, the list of all pages, and nothing where the build failed."
    if error or app.builder.format != "html":
        return
    rules = "\n".join(icon_rules()) + "\n"
    Path(app.outdir, "_static/icons.css").write_text(rules, encoding="utf-8")
    pages = sorted(app.env.found_docs)
    address = app.config.html_baseurl
    places = (f"<url><loc>{escape(address + page)}.html</loc></url>" for page in pages)
    opening = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', opening, *places, "</urlset>"]
    Path(app.outdir, "sitemap.xml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    robots = f"User-agent: *\nAllow: /\nSitemap: {address}sitemap.xml\n"
    Path(app.outdir, "robots.txt").write_text(robots, encoding="utf-8")


def setup(app):
    TocTreeCollectorWithStyles.assign_section_numbers = number_chapters
    app.add_css_file("icons.css")
    app.connect("env-updated", read_glossary)
    app.connect("html-page-context", mark_chinese)
    app.connect("doctree-resolved", note_terms)
    app.connect("html-page-context", describe)
    app.connect("html-page-context", drop_twins, priority=900)  # after all have added theirs
    app.connect("write-started", read_parts)  # all are numbered
    app.connect("builder-inited", offer_contents)
    app.connect("html-collect-pages", add_missing)
    app.connect("build-finished", finish)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
