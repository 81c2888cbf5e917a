"Nodes that directives put on a page."

from docutils import nodes
from docutils.statemachine import StringList


def raw(html):
    return nodes.raw("", html, format="html")


def nested(directive, lines, name=""):
    "Lines of Markdown as part of the page."
    node = nodes.container(classes=[name] if name else [])
    directive.state.nested_parse(StringList(list(lines)), directive.content_offset, node)
    return node
