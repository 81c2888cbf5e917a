"""Formulas: KaTeX draws them while the book is built, in the Node.js that Playwright brings.

What it cannot draw stops the build. A page without formulas does without their style.
"""

import re
import socket
import time
from subprocess import PIPE, Popen

import sphinxcontrib.katex as katex
from playwright._impl._driver import compute_driver_executable

katex.NODEJS_BINARY = str(compute_driver_executable()[0])
katex.KATEX_DEFAULT_OPTIONS = {"throwOnError": True, "strict": "ignore"}
katex.RENDER_TIMEOUT = 60  # seconds: the machine may be busy


def start(rundir, timeout):
    "Node.js and a line to it; the extension's own way fails where it asks before Node listens."
    path = rundir / "katex.sock"
    process = Popen(katex.KaTeXServer.build_command(socket=path), stdin=PIPE, cwd=rundir)
    line = socket.socket(socket.AF_UNIX)
    while process.poll() is None:
        try:
            line.connect(str(path))
            return process, line
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.01)
    raise katex.KaTeXError(f"{katex.NODEJS_BINARY} ended with {process.returncode}")


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


def render(latex, options=None, *, draw=katex.render_latex):
    "As the extension does; what a display shows side by side is drawn apart, so that it may wrap."
    if not (options and options.get("displayMode")):
        return draw(latex, options)
    if rows := GATHERED.fullmatch(latex):
        drawn = (render(GAP.sub("", row), options, draw=draw) for row in parts(rows[1], r"\\"))
        return f'<span class="katex-display katex-rows">{"".join(drawn)}</span>'
    drawn = "".join(draw(part, options) for part in parts(latex, r"\qquad"))
    return drawn.replace('</span><span class="katex-display">', "")  # one display of them all


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


def setup(app):
    katex.KaTeXServer.start_server_process = start
    katex.render_latex = render
    app.connect("html-page-context", keep_style)
    app.connect("html-page-context", colour_page)
    return {"version": "2", "parallel_read_safe": True, "parallel_write_safe": True}
