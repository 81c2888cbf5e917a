"""The exercises of a notebook: where their cells stand, and how the site shows them.

An exercise is a statement, the blank below it, a folded solution in the last section (text, then
code), and a check that is exported. The appendix chapter on exercises says how one is written.
"""

import re
from dataclasses import dataclass

STATEMENT = re.compile(
    r"### (?P<id>[a-z]\w*\.[1-9]\d*) · (?P<title>[^\n]+)\n\n"
    r"\*(?P<kind>[\w-]+) · (?P<minutes>\d+) minutes · (?P<level>\w+)\*\n\n"
    r"(?P<text>.+?)\n\n<details><summary>Hint</summary>\n\n.+\n\n</details>"
    r"(\n\n<details><summary>Solution of \S+</summary>\n\n.+\n\n</details>)?",
    re.S,
)
SOLUTION_TEXT = re.compile(
    r"<details><summary>Solution of (\S+)</summary>\n\n(.+)\n\n</details>", re.S
)
SOLUTION = re.compile(r'# @title Solution of (\S+) \{ display-mode: "form" \}\n(.+)', re.S)
FORMS = (STATEMENT, SOLUTION_TEXT, SOLUTION)
NEW_SOLUTION = re.compile(
    r'#\| export exercises\.\w+\n@exercise\(\s*"([a-z]\w*\.[1-9]\d*)".*', re.S
)
CHECKS = re.compile(r"#\| export exercises\.(\w+)\n")


@dataclass
class Written:
    "An exercise as it stands in a notebook; the places are numbers of cells, None where missing."

    id: str
    title: str
    kind: str
    minutes: int
    level: str
    place: int
    blank: str | None = None
    text_place: int | None = None
    solution_place: int | None = None
    solution: str | None = None
    new: bool = False  # solution and table in one cell


def source(cell):
    return "".join(cell["source"])


def exercises(cells):
    "All exercises of a notebook, in the order of their statements."
    found = {}
    for place, cell in enumerate(cells):
        match = STATEMENT.fullmatch(source(cell))
        if cell["cell_type"] == "markdown" and match:
            meta = {key: match[key] for key in ("id", "title", "kind", "level")}
            written = Written(**meta, minutes=int(match["minutes"]), place=place)
            following = cells[place + 1 : place + 2]
            if following and following[0]["cell_type"] == "code":
                written.blank = source(following[0])
            found[written.id] = written
    for place, cell in enumerate(cells):
        if (new := NEW_SOLUTION.fullmatch(source(cell))) and new[1] in found:
            found[new[1]].new = True
        text, code = SOLUTION_TEXT.fullmatch(source(cell)), SOLUTION.fullmatch(source(cell))
        if text and text[1] in found:
            found[text[1]].text_place = place
        if code and code[1] in found:
            found[code[1]].solution_place, found[code[1]].solution = place, code[2]
    return list(found.values())


def topics(cells):
    "The modules `exercises.topic` that a notebook exports to."
    return {match[1] for cell in cells if (match := CHECKS.match(source(cell)))}


WHERE = (
    '<p class="where-to-write">You write in a copy of this notebook: the links below the title '
    "open one, as a file or in Colab. There the cell below each statement answers you.</p>"
)


def show(cells):
    "The cells as the site shows them: links there and back, and text and code in one fold."
    after, where = {}, f"{WHERE}\n\n"  # said once
    for written in exercises(cells):
        name = written.id.replace(".", "-")
        if written.solution is None or written.text_place is None:
            continue
        statement = source(cells[written.place]).replace("<details>", '<details class="hint">')
        cells[written.place]["source"] = (
            f"(exercise-{name})=\n{statement}\n\n{where}"
            f'<p class="to-solution"><a href="#solution-{name}">Solution</a></p>'
        )
        where = ""
        text = source(cells[written.text_place]).removesuffix("</details>")
        opening = f'<details class="solution" id="solution-{name}">'
        cells[written.text_place]["source"] = text.replace("<details>", opening, 1)
        cells[written.solution_place]["source"] = written.solution
        anchor = f"exercise-{name}".replace("_", "-")  # as docutils writes the label above
        after[written.solution_place] = f'<a href="#{anchor}">Exercise {written.id}</a>'
    for place in sorted(after, reverse=True):
        closing = f'<p class="to-exercise">{after[place]}</p>\n\n</details>'
        end = {"cell_type": "markdown", "id": f"to-{place}", "metadata": {}, "source": closing}
        cells.insert(place + 1, end)
    return cells
