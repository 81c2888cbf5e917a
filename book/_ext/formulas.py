"""Draw formulas while the book is built, so that a page shows them at once and without a script.

KaTeX draws them, in one process of Node.js: the system's, or the one that Playwright brings. What
it cannot draw is a warning. A page with formulas has KaTeX's style sheet and fonts, and no other.
"""

import functools
import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from sphinx.ext.mathjax import html_visit_displaymath, html_visit_math
from sphinx.util import logging

MATH = re.compile(
    r'<(?P<tag>span|div) class="(?P<classes>math[^"]*)"(?P<rest>[^>]*)>'
    r'(?P<number>\s*<span class="eqno">.*?</span>)?'
    r"\s*\\(?P<open>[(\[])(?P<text>.*?)\\[)\]]\s*</(?P=tag)>",
    re.S,
)

FONTS = {  # what a page asks for first: the fonts of its formulas, by the classes that KaTeX writes
    "Main-Regular": "katex",
    "Math-Italic": "mathnormal",
    "Main-Bold": "mathbf",
    "AMS-Regular": "mathbb",
    "Caligraphic-Regular": "mathcal",
    "Typewriter-Regular": "mathtt|texttt",
    "Size1-Regular": "delimsizing size1|delim-size1|small-op",
    "Size2-Regular": "delimsizing size2|large-op",
    "Size3-Regular": "delimsizing size3",
    "Size4-Regular": "delimsizing size4|delim-size4",
}


def find_node():
    "Node.js: the system's, or Playwright's own."
    if found := shutil.which("node"):
        return found
    try:
        from playwright._impl._driver import compute_driver_executable
    except ImportError:
        raise FileNotFoundError(
            "formulas are drawn by Node.js, and there is none: pip install -e '.[dev]' brings one"
        ) from None
    return str(compute_driver_executable()[0])


@functools.cache
def drawer(process):
    "What draws for a process of ours; it ends with that one, which holds the end of its input."
    script = Path(__file__).with_name("draw_formulas.js")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([find_node(), str(script)], text=True, encoding="utf-8", **pipes)


@functools.cache
def draw(text, display=False):
    "A formula in LaTeX as HTML, with MathML for those who listen; ValueError where it is none."
    own = drawer(os.getpid())
    own.stdin.write(json.dumps({"text": text, "display": display}) + "\n")
    own.stdin.flush()
    answer = json.loads(own.stdout.readline())
    if "error" in answer:
        raise ValueError(f"{answer['error']} (in the formula {text.strip()!r})")
    return answer["html"]


def draw_all(page, complain=None):
    "The HTML of a page with its formulas drawn; `complain` is called with what cannot be drawn."

    def drawn(found):
        try:
            made = draw(html.unescape(found["text"]), found["open"] == "[")
        except ValueError as error:
            if complain is None:
                raise
            complain(str(error))
            return found[0]
        opening = f'<{found["tag"]} class="{found["classes"]}"{found["rest"]}>'
        return f"{opening}{found['number'] or ''}{made}</{found['tag']}>"

    return MATH.sub(drawn, page)


def fonts(page):
    "The names of KaTeX's fonts that the HTML of a page needs."
    written = "\n".join(set(re.findall(r'class="([^"]*)"', page)))
    return [name for name, classes in FONTS.items() if re.search(rf"\b({classes})\b", written)]


def add_formulas(app, pagename, templatename, context, doctree):
    "Draw the formulas of a page and of its contents; KaTeX's style and fonts where there is one."
    warn = functools.partial(logging.getLogger(__name__).warning, location=pagename)
    for part in ("body", "toc"):
        if isinstance(context.get(part), str):
            context[part] = draw_all(context[part], warn)
    context["formula_fonts"] = fonts(context.get("body", ""))
    if context["formula_fonts"]:
        app.builder.add_css_file("katex/katex.min.css")


def setup(app):
    app.add_html_math_renderer("katex", (html_visit_math, None), (html_visit_displaymath, None))
    app.connect("html-page-context", add_formulas)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
