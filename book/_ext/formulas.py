"""Formulas: KaTeX renders them while the book is built, in the Node.js that Playwright brings.

A formula that KaTeX can't render stops the build. Pages without formulas don't load KaTeX's style.
"""

import html
import re

import sphinxcontrib.katex as katex
from docutils import nodes
from playwright._impl._driver import compute_driver_executable
from sphinx.util.math import get_node_equation_number

katex.NODEJS_BINARY = str(compute_driver_executable()[0])
katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = 60  # seconds: the machine may be busy
OPTIONS = {"throwOnError": True, "strict": "ignore"}


def draw(latex, display):
    "A formula as HTML."
    while True:
        try:
            return katex.render_latex(latex, OPTIONS | {"displayMode": display})
        except ConnectionRefusedError:  # Node.js has started, but doesn't listen yet
            continue


SIGN = re.compile(r"[.,;:!?)]+(?!\w)")
TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|[{}]|[^\\{}]+", re.DOTALL)
GATHERED = re.compile(r"\s*\\begin{gathered}(.*)\\end{gathered}\s*", re.DOTALL)
GAP = re.compile(r"^\s*\[\w+\]")  # the gap between two rows; custom.css has one gap for all
OPENS, CLOSES = {"{", r"\begin", r"\left"}, {"}", r"\end", r"\right"}


def parts(latex, sign):
    "Split a formula at a sign, but only outside of braces and environments."
    found, depth = [""], 0
    for token in TOKEN.findall(latex):
        depth += (token in OPENS) - (token in CLOSES)
        if token == sign and depth == 0:
            found.append("")
        else:
            found[-1] += token
    return found


def display(latex, draw=draw):
    "A displayed formula; parts that are side by side are rendered apart, so that they can wrap."
    if rows := GATHERED.fullmatch(latex):
        drawn = (display(GAP.sub("", row), draw) for row in parts(rows[1], r"\\"))
        return f'<span class="katex-display katex-rows">{"".join(drawn)}</span>'
    drawn = "".join(draw(part, True) for part in parts(latex, r"\qquad"))
    return drawn.replace('</span><span class="katex-display">', "")  # one display for all parts


def take_signs(app, doctree, name):
    "Punctuation after a formula becomes part of it, so that no line begins with a full stop."
    for node in [*doctree.findall(nodes.math)]:
        inside, place = node.parent, node.parent.index(node) + 1
        after = inside[place] if place < len(inside) else None
        if isinstance(after, nodes.Text) and (sign := SIGN.match(after)):
            node["sign"] = sign[0]
            inside[place] = nodes.Text(after[sign.end() :])


def visit_math(writer, node):
    "The sign goes into the last box of the formula, because lines don't wrap inside a box."
    drawn, sign = draw(node.astext(), False), node.get("sign", "")
    last = len(drawn) - len("</span></span></span>")
    said = f'<span class="sign">{html.escape(sign)}</span>' if sign else ""
    writer.body.append(f'<span class="math">{drawn[:last]}{said}{drawn[last:]}</span>')
    raise nodes.SkipNode


def visit_display(writer, node):
    "The number is written before the formula; custom.css moves it to the end of the line."
    writer.body.append(writer.starttag(node, "div", CLASS="math"))
    if node["number"]:
        writer.body.append(f'<span class="eqno">({get_node_equation_number(writer, node)})')
        writer.add_permalink_ref(node, "Permalink to this equation")
        writer.body.append("</span>")
    writer.body.append(display(node.astext()) + "</div>")
    raise nodes.SkipNode


RENDERERS = (visit_math, None), (visit_display, None)


def keep_style(app, pagename, templatename, context, doctree):
    "Load KaTeX's style only on pages with formulas; custom.css replaces the extension's style."
    dropped = "katex-math" if 'class="katex' in context.get("body", "") else "katex"
    context["css_files"] = [css for css in context["css_files"] if dropped not in str(css.filename)]


# one letter in italics, as KaTeX writes it
LETTER = re.compile(r'<span class="mord mathnormal( mtight)?"( style="[^"]*")?>([qkvQKV])</span>')
ATTENTION = ("nbs/attention/", "nbs/position/")


def colour(body):
    "Give query, key and value the classes whose colours custom.css defines."
    return LETTER.sub(
        lambda found: found[0].replace("mathnormal", f"mathnormal tl-{found[3].lower()}"), body
    )


def colour_page(app, pagename, templatename, context, doctree):
    "Colour q, k and v in the chapters on attention; elsewhere, v may mean something else."
    if pagename.startswith(ATTENTION) and "body" in context:
        context["body"] = colour(context["body"])
