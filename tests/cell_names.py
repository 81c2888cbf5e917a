"What the cells of a notebook show that the site alone resolves, and the names in their code."

import re

import chapter

RAW = {
    "markdown": re.compile(
        r"(?<!`)\{[\w:-]{2,}\}`|^ *(?:`{3,}|:{3,})\{|^\([\w-]+\)=|\$\$ *\([\w-]+\)", re.M
    ),
    "code": re.compile(r"^#\||^# NBVAL", re.M),
}


def names(cells):
    "Names that the code of some cells takes from others, and those that it makes."
    read, made = set(), {"__annotations__"}
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        asked, given = chapter.names(
            re.sub(r"^(\s*)[%!].*", r"\1pass", chapter.source(cell), flags=re.M)
        )
        read, made = read | asked, made | given
    return read, made
