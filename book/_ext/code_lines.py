"""Each line of code is an element that knows how far it is indented: custom.css breaks a long one
there, with a mark."""

import re

from pygments.formatters import HtmlFormatter
from sphinx.highlighting import PygmentsBridge


def line(text):
    "A line of highlighted code; its end stays outside."
    plain = re.sub(r"<[^>]*>", "", text)
    indent = len(plain) - len(plain.lstrip(" "))
    style = f' style="--in:{indent}"' if indent and plain.strip() else ""
    return f'<span class="ln"{style}>{text.removesuffix(chr(10))}</span>\n'


class Lines(HtmlFormatter):
    def _format_lines(self, tokens):
        for is_code, text in super()._format_lines(tokens):
            yield is_code, line(text) if is_code else text


def setup(app):
    PygmentsBridge.html_formatter = Lines
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
