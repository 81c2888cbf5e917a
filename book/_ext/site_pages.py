"""What every page of the site has besides its text, and the pages that have no source.

Parts and chapters are numbered, and figures, formulas and exercises with them: 3.2 is the second
chapter of the third part, and (3.2.4) is its fourth formula. The appendix is A.
"""

import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx_external_toc.collectors import TocTreeCollectorWithStyles

sys.path.insert(0, str(Path(__file__).parents[1]))
import cards
from cards import OPENING, numbered, part_name

# --- numbers ------------------------------------------------------------------------------------


class ChapterNumbers(TocTreeCollectorWithStyles):
    "Numbers the entries of the contents by part."

    def assign_section_numbers(self, env):
        "Returns the documents whose number has changed."
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
    "The parts: number, name, opening page (or ''), chapters with their titles."
    for place, part in enumerate(env.get_doctree(env.config.root_doc).findall(addnodes.toctree), 1):
        pages = [page for _, page in part["entries"]]
        opening = next((page for page in pages if page.startswith(OPENING)), "")
        counted = {page: env.toc_secnumbers[page][""] for page in numbered(pages)}
        titles = {
            page: f"{'.'.join(map(str, number))} {env.titles[page].astext()}{later(page)}"
            for page, number in counted.items()
        }
        yield part_name(place, part["caption"]), part["caption"], opening, titles


def later(page):
    "The mark of a chapter of the second pass."
    chapter = page.startswith("nbs/")
    return " (2)" if chapter and cards.card(cards.ROOT / f"{page}.ipynb")["pass"] == 2 else ""


def give_parts(app, pagename, templatename, context, doctree):
    "Pass the contents next to each page to sbt-sidebar-nav.html."
    context["book_parts"] = app.book_parts


def give_next(app, pagename, templatename, context, doctree):
    "Pass the next page of the first pass to prev-next.html, on the pages of this pass."
    pages = [app.config.root_doc, *cards.first_pass()]
    if pagename in pages[:-1]:
        page = pages[pages.index(pagename) + 1]
        title = next(titles[page] for *_, titles in app.book_parts if page in titles)
        context["onward"] = {"link": app.builder.get_relative_uri(pagename, page), "title": title}


def read_parts(app, builder):
    app.book_parts = list(parts(app.env))


# --- descriptions ---------- ---------------------------------------------------------------------


def give_addresses(app, config):
    "The addresses of the site and its picture, for previews on other sites."
    config.ogp_site_url = config.html_baseurl
    config.ogp_image = f"{config.html_baseurl}_static/card.png"


def drop_card(app, pagename, templatename, context, doctree):
    "Remove the card of a chapter from its description."
    for card in list(doctree.findall(nodes.container)) if doctree else ():
        if "chapter-card" in card["classes"]:
            card.parent.remove(card)


HAN = re.compile(r'<dt id="([^"]*)">(?=[^<]*[\u4e00-\u9fff])')
# a cell of a table, a line that a cell printed, and what in it begins like German
SAID = re.compile(r'(<td[^>]*>|<span class="ln"[^>]*>(?:<span></span>)?)([^<]+)')
START = r"\b(?:[Ee]ine?[nmr]?|[Dd]er|Zwei) (?:[a-zäöüß]+ )?[A-ZÄÖÜ]"
GERMAN = re.compile(rf"{START}(?:(?!  )[^\n('\[])*|\w*(?:hundert|tausend)\w*")


def mark_languages(app, pagename, templatename, context, doctree):
    "Mark what isn't English: the language decides the font and a screen reader's voice."
    body = context.get("body", "")
    if pagename == "book/glossary":
        body = HAN.sub(r'<dt id="\1" lang="zh-Hans">', body)
    context["body"] = SAID.sub(
        lambda said: said[1] + GERMAN.sub(r'<span lang="de">\g<0></span>', said[2]), body
    )


# --- loading ------------------------------------------------------------------------------------


def defer_scripts(app, pagename, templatename, context, doctree):
    """Scripts run in order after the text has loaded, so that they don't delay it.

    Inline scripts of the theme are dropped: no page contains a script, see policy.html.
    """
    scripts = context.get("script_files", [])
    scripts[:] = [script for script in scripts if getattr(script, "filename", None)]
    for script in scripts:
        script.attributes["defer"] = "defer"


# --- pages without a source ---------------------------------------------------------------------


def add_missing(app):
    "The page for addresses that don't exist. It is shown at any depth, so its links are absolute."
    return [("404", {"base": app.config.html_baseurl}, "missing.html")]
