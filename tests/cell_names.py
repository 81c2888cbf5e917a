"What the cells of a notebook show that the site alone resolves, and the names in their code."

import ast
import builtins
import re

from chapter import source

RAW = {
    "markdown": re.compile(
        r"(?<!`)\{[\w:-]{2,}\}`|^ *(?:`{3,}|:{3,})\{|^\([\w-]+\)=|\$\$ *\([\w-]+\)", re.M
    ),
    "code": re.compile(r"^#\||^# NBVAL", re.M),
}


def names(cells):
    "Names that the code of some cells reads, and those that it makes."
    read, made = set(), set(dir(builtins))
    for cell in cells:
        text = source(cell) if cell["cell_type"] == "code" else ""
        tree = ast.parse(re.sub(r"^(\s*)[%!].*", r"\1pass", text, flags=re.M))
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                (read if isinstance(node.ctx, ast.Load) else made).add(node.id)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
                made.add(node.name)
            elif isinstance(node, ast.arg):
                made.add(node.arg)
            elif isinstance(node, ast.alias):
                made.add((node.asname or node.name).split(".")[0])
            elif isinstance(node, ast.MatchAs | ast.MatchStar):
                made.add(node.name)
    return read, made
