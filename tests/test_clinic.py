"""The errata clinic: its helper refuses what proves nothing, its texts say what its cells do.

That every statement fails where the clinic says so is asserted by the helper, in the cells; that a
chapter or an entry which is linked exists, by the build.
"""

import ast
import html
import json
import os
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import sources
import torch
from chapter import source
from docutils.nodes import make_id

ROOT = Path(__file__).parents[1]
FOLDER = os.environ.get("TRANSFORMER_LIT_SOURCES", "")  # with the four texts
HEADING = re.compile(r"### ((\w+\.\d+) · (.) (.+))\n\n\*(.+)\*\n")
CLINIC = {
    path: json.loads(path.read_text(encoding="utf-8"))["cells"]
    for path in sorted((ROOT / "nbs/sources").glob("*.ipynb"))
}
ENTRIES = {  # name -> heading, text, the cell below
    heading[2]: (heading, source(cell), below)
    for cells in CLINIC.values()
    for cell, below in pairwise(cells)
    if (heading := HEADING.match(source(cell)))
}
CHINESE = "[\u4e00-\u9fff]"
(HELPER,) = {source(c) for cells in CLINIC.values() for c in cells if c["id"] == "helper"}  # one
NAMES = {"torch": torch}
dtype = torch.get_default_dtype()
exec(HELPER, NAMES)
torch.set_default_dtype(dtype)
KINDS = NAMES["KINDS"]  # as the cells say it -> mark and name


def size(name):
    "What a cell printed, less its mark; that it is printed again is nbval's to say."
    (output,) = ENTRIES[name][2]["outputs"]
    return "".join(output["text"]).rstrip("\n")[2:]


def typed(node, named):
    "The digits in the texts of a size that no cell computed; names such as GPT-2 have theirs."
    node = named.get(getattr(node, "id", None), node)
    parts = [node, *(named[n.id] for n in ast.walk(node) if getattr(n, "id", None) in named)]
    texts = [node, *(part for part in parts if isinstance(part, ast.JoinedStr | ast.Constant))]
    nodes = [n for text in texts for n in ast.walk(text)]
    shown = [n for n in nodes if isinstance(n, ast.FormattedValue)]
    forms = {id(part) for n in shown if n.format_spec for part in ast.walk(n.format_spec)}
    said = [n.value for n in nodes if isinstance(n, ast.Constant) and id(n) not in forms]
    said += ["1" for n in shown if isinstance(n.value, ast.Constant)]
    said = re.sub(r"\{.*?\}", "", "".join(text for text in said if isinstance(text, str)))
    return re.findall(r"\d", re.sub(r"[A-Za-zΦ]+(\(\d\)|-\d)|·2π", "", said))


@pytest.mark.parametrize("name", ENTRIES)
def test_text_and_cell_say_the_same(name):
    heading, text, cell = ENTRIES[name]
    tree = ast.parse(source(cell))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    (call,) = (node for node in calls if getattr(node.func, "id", None) == "settle")
    said, kind = (part.value for part in call.args[:2])
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    named = {getattr(target, "id", ""): node.value for node in assigned for target in node.targets}
    assert said == f"{name} · {heading[4]}" and f"{heading[3]} {heading[5]}" == KINDS[kind]
    assert cell["id"] == name.lower().replace(".", "-") and "#| eval: false" not in source(cell)
    assert "".join(cell["outputs"][0]["text"]) == f"{heading[3]} {size(name)}\n"
    assert not typed(given["size"], named), "a number of its size is typed"
    parts = ["**Statement.**", "**The facts.**", "See {doc}`/nbs/"]
    parts += ["**What was meant.**"] * (kind != "proven")
    assert all(re.search(re.escape(part).replace(r"\{", r".*\{"), text) for part in parts)
    assert sources.quotes(text), "it does not say where its statement stands"


def test_the_tables_are_those_of_the_cells():
    settled = 0
    for cells in CLINIC.values():
        here = [name for name, (_, _, cell) in ENTRIES.items() if cell in cells]
        settled += sum(source(cell).count("\nsettle(") for cell in cells)
        (table,) = (cell for cell in cells if cell["id"] == "table")
        stored = "".join(table["outputs"][0]["data"]["text/html"])
        for row, name in zip(re.findall("<tr><td>.*?</td></tr>", stored), here, strict=True):
            heading = ENTRIES[name][0]
            said = [heading[4], f"{heading[3]} {heading[5]}", size(name)]
            shown = "".join(f"<td>{html.escape(text)}</td>" for text in said)
            anchor = make_id(heading[1])  # of the heading, in the book
            assert row == f'<tr><td><a href="#{anchor}">{name}</a></td>{shown}</tr>'
    assert settled == len(ENTRIES) >= 50
    assert [row["name"] for row in sources.statements() if row["chapters"]] == list(ENTRIES)
    for page, text in sources.made().items():
        assert text == (ROOT / page).read_text(encoding="utf-8"), "run `python book/sources.py`"


def test_a_number_of_entries_is_counted_and_never_typed():
    pages = [source(cell) for cells in CLINIC.values() for cell in cells]
    for page in ("README.md", "book/use.md", "book/sources.md", "book/clinic.md"):
        pages.append((ROOT / page).read_text(encoding="utf-8"))
    number = r"\d+|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|\w+ty(-\w+)?"
    counted = rf"(?i)\b({number}) (of its |more |false )?(statements|entries of the clinic)\b"
    assert [found[0] for text in pages for found in re.finditer(counted, text)] == []


# --- what is quoted -----------------------------------------------------------------------------

CITED = {  # every cell of the clinic that quotes, entry or not
    f"{path.stem}:{cell['id']}": source(cell)
    for path, cells in CLINIC.items()
    for cell in cells
    if "**Source.**" in source(cell)
}


@cache
def printed(name, place):
    "A text; of S0 the part that a place names: `1.1`, or `1.2(3)`, the third part of 1.2."
    (path,) = Path(FOLDER).glob(f"{name}_*.txt")
    text, begins = path.read_text(encoding="utf-8"), r"^(?=1\.\d )"
    for number in re.match(r"(1\.\d) ?(\(\d\))?", place).groups() if name == "S0" else ():
        if number:
            (text,) = (t for t in re.split(begins, text, flags=re.M) if t.startswith(number))
        begins = r"^(?=\(\d\))"
    return text


def test_a_source_has_a_place_a_short_quote_and_english():
    for cell, text in CITED.items():
        found = sources.SOURCE.findall(text)
        assert len(found) == text.count("**Source.**"), cell
        for _, place, said in found:
            quoted = [phrase for _, phrase in sources.QUOTE.findall(said)]
            assert quoted and max(map(len, quoted)) <= 20, cell  # a formula has no phrase
            english = not re.search(f"「[^」]*{CHINESE}[^」]*」(?! \\(.)", said)
            assert english and ("(" in place or not re.search(CHINESE, place)), cell


@pytest.mark.needs("sources")
def test_each_quote_stands_in_its_text():
    for cell, said in CITED.items():
        for name, place, formula, phrase in sources.quotes(said):
            assert sources.stands_in(formula or phrase, printed(name, place)), (cell, name, place)


def test_our_own_errata_say_what_stood_and_what_is_so():
    errata = (ROOT / "book/errata.md").read_text(encoding="utf-8")
    entries = re.findall(r"^- \*Claim:\* (.+)$", errata, re.M)
    assert len(entries) > 25
    for entry in entries:
        said, so = entry.split(" *Correction:* ")
        assert said and "{doc}`/nbs/" in so, entry
    assert errata.index("## You found an error?") < errata.index("*Claim:*")
    for page in ("README.md", "book/use.md"):  # who comes from the sources is told of the clinic
        assert "errata clinic" in (ROOT / page).read_text(encoding="utf-8")


# --- the helper ---------------------------------------------------------------------------------

SO, HALF = {"so": 1, "printed": 2}, {"so": 1, "printed": 2, "holds": lambda: None}
RIGHT = {"printed": 1, "wrong": 2}
SETTLED = [  # title, kind, what is given, and whether it is refused
    ("T.1 · t", "false", SO, False),
    ("T.2 · t", "half", HALF, False),
    ("T.7 · t", "slip", SO, False),
    ("T.5 · a slip that is right", "slip", {"so": 1, "printed": 1}, True),
    ("T.5 · a slip that holds", "slip", HALF, True),
    ("T.3 · t", "convention", RIGHT | {"so": 1}, False),
    ("T.4 · t", "proven", RIGHT, False),
    ("T.1 · again", "false", SO, True),
    ("T.5 · nothing so", "false", {"printed": 2}, True),
    ("T.5 · so is not so", "false", {"so": 2, "printed": 2}, True),
    ("T.5 · printed is right", "false", {"so": 1, "printed": 1}, True),
    ("T.5 · holds nowhere", "half", SO, True),
    ("T.5 · not both right", "convention", {"so": 1, "printed": 2, "wrong": 2}, True),
    ("T.5 · no mixture", "convention", {"so": 1, "printed": 1}, True),
    ("T.5 · wrong is right", "proven", {"printed": 1, "wrong": 1}, True),
]


def test_the_helper_knows_the_kinds_and_refuses_what_proves_nothing():
    assert list(KINDS.values()) == [f"{mark} {name}" for mark, name in sources.KINDS.items()]

    def check(number):
        assert number + 0 == 1

    for title, kind, given, refused in SETTLED:
        try:
            NAMES["settle"](title, kind, check, **given, size="")
        except AssertionError:
            assert refused, title
        else:
            assert not refused, title
    with pytest.raises(TypeError):  # a fault of the cell is no proof
        NAMES["settle"]("T.6 · t", "false", check, so=1, printed="a", size="")
