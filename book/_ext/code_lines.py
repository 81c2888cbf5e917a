"""Each line of code is an element with its indentation, so that custom.css can wrap long lines at
that indentation, with a mark."""

import re

CODE = re.compile(r'(?<=<div class="highlight"><pre>)(.*?)\n(?=</pre>)', re.S)


def line(text):
    "A line of highlighted code."
    plain = re.sub(r"<[^>]*>", "", text)
    indent = len(plain) - len(plain.lstrip(" "))
    style = f' style="--in:{indent}"' if indent and plain.strip() else ""
    return f'<span class="ln"{style}>{text}</span>\n'


def mark_lines(app, pagename, templatename, context, doctree):
    "Mark lines in pages with a source; pages of the package's source have their own marks."
    if doctree is not None:
        context["body"] = CODE.sub(
            lambda code: "".join(map(line, code[1].split("\n"))), context["body"]
        )
