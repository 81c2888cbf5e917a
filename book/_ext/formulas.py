"""Formulas: KaTeX draws them while the book is built, in the Node.js that Playwright brings.

What it cannot draw stops the build. A page without formulas does without their style.
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
        except ConnectionRefusedError:  # Node.js is there, and does not listen yet
            continue


SIGN = re.compile(r"[.,;:!?)]+(?!\w)")
TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|[{}]|[^\\{}]+", re.DOTALL)
GATHERED = re.compile(r"\s*\\begin{gathered}(.*)\\end{gathered}\s*", re.DOTALL)
GAP = re.compile(r"^\s*\[\w+\]")  # between two rows: custom.css has one for all
OPENS, CLOSES = {"{", r"\begin", r"\left"}, {"}", r"\end", r"\right"}


def parts(latex, sign):
    "What stands between the signs of a formula that are outside all braces and environments."
    found, depth = [""], 0
    for token in TOKEN.findall(latex):
        depth += (token in OPENS) - (token in CLOSES)
        if token == sign and depth == 0:
            found.append("")
        else:
            found[-1] += token
    return found


def display(latex, draw=draw):
    "A displayed formula; what stands side by side is drawn apart, so that it may wrap."
    if rows := GATHERED.fullmatch(latex):
        drawn = (display(GAP.sub("", row), draw) for row in parts(rows[1], r"\\"))
        return f'<span class="katex-display katex-rows">{"".join(drawn)}</span>'
    drawn = "".join(draw(part, True) for part in parts(latex, r"\qquad"))
    return drawn.replace('</span><span class="katex-display">', "")  # one display of them all


def take_signs(app, doctree, name):
    "A sign after a formula becomes a part of it, so that no line begins with a full stop."
    for node in [*doctree.findall(nodes.math)]:
        inside, place = node.parent, node.parent.index(node) + 1
        after = inside[place] if place < len(inside) else None
        if isinstance(after, nodes.Text) and (sign := SIGN.match(after)):
            node["sign"] = sign[0]
            inside[place] = nodes.Text(after[sign.end() :])


def visit_math(writer, node):
    "The sign goes into the last box of the formula: within one, no line ends."
    drawn, sign = draw(node.astext(), False), node.get("sign", "")
    last = len(drawn) - len("</span></span></span>")
    said = f'<span class="sign">{html.escape(sign)}</span>' if sign else ""
    writer.body.append(f'<span class="math">{drawn[:last]}{said}{drawn[last:]}</span>')
    raise nodes.SkipNode


def visit_display(writer, node):
    "The number stands before the formula: custom.css puts it at the end of the line."
    writer.body.append(writer.starttag(node, "div", CLASS="math"))
    if node["number"]:
        writer.body.append(f'<span class="eqno">({get_node_equation_number(writer, node)})')
        writer.add_permalink_ref(node, "Permalink to this equation")
        writer.body.append("</span>")
    writer.body.append(display(node.astext()) + "</div>")
    raise nodes.SkipNode


RENDERERS = (visit_math, None), (visit_display, None)


def keep_style(app, pagename, templatename, context, doctree):
    "KaTeX's own for a page with formulas; the extension's never: custom.css has its rules."
    dropped = "katex-math" if 'class="katex' in context.get("body", "") else "katex"
    context["css_files"] = [css for css in context["css_files"] if dropped not in str(css.filename)]


# one letter in italics, as KaTeX writes it
LETTER = re.compile(r'<span class="mord mathnormal( mtight)?"( style="[^"]*")?>([qkvQKV])</span>')
ATTENTION = ("nbs/attention/", "nbs/position/")


def colour(body):
    "Query, key and value in their colours, which custom.css has."
    return LETTER.sub(
        lambda found: found[0].replace("mathnormal", f"mathnormal tl-{found[3].lower()}"), body
    )


def colour_page(app, pagename, templatename, context, doctree):
    "In the chapters of attention q, k and v are what they are called; elsewhere v may be anything."
    if pagename.startswith(ATTENTION) and "body" in context:
        context["body"] = colour(context["body"])
