"""The first lines of a cell that begin with `#|`, which say what becomes of it."""

import re

DIRECTIVE = re.compile(r"^#\|\s*([\w-]+)\s*:?\s*(.*?)\s*$")
NBVAL = re.compile(r"^# NBVAL_\w+[^\n]*\n?", re.M)


def split(source):
    """Split a cell's source into ({directive: value}, remaining code)."""
    lines, found = source.split("\n"), {}
    while lines and (match := DIRECTIVE.match(lines[0])):
        found[match[1]] = match[2]
        lines.pop(0)
    return found, NBVAL.sub("", "\n".join(lines)).lstrip("\n")
