"""The errata clinic: its helper refuses what proves nothing, and its texts say what its cells do.

That every statement fails where the clinic says so is asserted by the helper, in the cells.
"""

import ast
import html
import json
import os
import re
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
import yaml
from docutils.nodes import make_id

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book"))
import sources  # noqa: E402

CLINIC = sorted((ROOT / "nbs/sources").glob("*.ipynb"))
HEADING = re.compile(r"### ((\w+\.\d+) · ([✗◐≡✓]) (.+))\n\n\*(.+)\*\n")
KINDS = {
    "false": ("✗", "false as printed"),
    "half": ("◐", "half"),
    "convention": ("≡", "convention"),
    "proven": ("✓", "proven right"),
}


def cells(path):
    return json.loads(path.read_text())["cells"]


def source(cell):
    return "".join(cell["source"])


def texts():
    "Id -> text of each entry, and the code cell that follows it."
    found = {}
    for path in CLINIC:
        both = cells(path)
        for place, cell in enumerate(both):
            if cell["cell_type"] == "markdown" and (heading := HEADING.match(source(cell))):
                assert heading[2] not in found, f"{heading[2]} stands twice"
                found[heading[2]] = heading, source(cell), both[place + 1]
    return found


TEXTS = texts()


@cache
def chapters():
    toc = yaml.safe_load((ROOT / "book/_toc.yml").read_text())
    return {c["file"] for part in toc["parts"] for c in part["chapters"]}


def settled(cell):
    "What the cell hands to `settle`, as it is written: a title, a kind, and what has a name."
    calls = [node for node in ast.walk(ast.parse(source(cell))) if isinstance(node, ast.Call)]
    (call,) = (node for node in calls if getattr(node.func, "id", None) == "settle")
    title, kind = (part.value for part in call.args[:2])
    return title, kind, {k.arg: k.value for k in call.keywords}


def size(name):
    "What a cell printed, less its mark; that it is printed again is nbval's to say."
    _, _, cell = TEXTS[name]
    (output,) = cell["outputs"]
    return "".join(output["text"]).rstrip("\n")[2:]


def test_there_are_at_least_fifty_entries_and_every_cell_that_settles_is_one():
    assert len(TEXTS) >= 50
    calls = sum(source(c).count("\nsettle(") for path in CLINIC for c in cells(path))
    assert calls == len(TEXTS)


@pytest.mark.parametrize("name", TEXTS)
def test_text_and_cell_say_the_same(name):
    heading, text, cell = TEXTS[name]
    _, _, mark, title, kind = heading.groups()
    said, settled_as, given = settled(cell)
    assert said == f"{name} · {title}"
    assert (mark, kind) == KINDS[settled_as]
    assert cell["id"] == name.lower().replace(".", "-")
    assert "#| eval: false" not in source(cell)
    assert "".join(cell["outputs"][0]["text"]) == f"{mark} {size(name)}\n"
    assert computed(source(cell), given["size"]), "a number of its size is typed"
    for part in ("**Statement.**", "**What is so.**", "Settled in"):
        assert part in text
    assert "**What was meant.**" in text or settled_as == "proven"
    assert sources.quotes(text), "it does not say where its statement stands"
    links = re.findall(r"\{doc\}`(?:[^`<]*<)?/([^`>]+)>?`", text.split("Settled in")[1])
    assert links and set(links) <= chapters()


@pytest.mark.parametrize("path", CLINIC, ids=lambda path: path.stem)
def test_the_table_is_that_of_the_cells(path):
    both = cells(path)
    stored = next(c for c in both if c["id"] == "table")["outputs"][0]["data"]["text/html"]
    rows = re.findall("<tr><td>.*?</td></tr>", "".join(stored))
    here = [name for name, (_, _, cell) in TEXTS.items() if cell in both]
    for row, name in zip(rows, here, strict=True):
        heading = TEXTS[name][0]
        said = [heading[4], f"{heading[3]} {heading[5]}", size(name)]
        shown = "".join(f"<td>{html.escape(text)}</td>" for text in said)
        anchor = make_id(heading[1])  # of the heading, in the book
        assert row == f'<tr><td><a href="#{anchor}">{name}</a></td>{shown}</tr>'


CITED = {  # every cell of the clinic that quotes, entry or not
    f"{path.stem}:{cell['id']}": source(cell)
    for path in CLINIC
    for cell in cells(path)
    if "**Source.**" in source(cell)
}
FOLDER = os.environ.get("TRANSFORMER_LIT_SOURCES", "")  # with the four texts
CHINESE = "[\u4e00-\u9fff]"


@cache
def printed(name):
    (path,) = Path(FOLDER).glob(f"{name}_*.txt")
    return path.read_text(encoding="utf-8")


def section(text, place):
    "The part of S0 that a place names: `1.1`, or `1.2(3)`, the third part of 1.2."
    chapter, part = re.match(r"(1\.\d) ?(\(\d\))?", place).groups()
    (text,) = (t for t in re.split(r"^(?=1\.\d )", text, flags=re.M) if t.startswith(f"{chapter} "))
    if part:
        (text,) = (t for t in re.split(r"^(?=\(\d\))", text, flags=re.M) if t.startswith(part))
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
            text = section(printed(name), place) if name == "S0" else printed(name)
            assert sources.stands_in(formula or phrase, text), (cell, name, place)


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        (r"\sigma(x W + b_i)", True),
        (r"\sigma( xW+b_i )", True),
        (r"\sigma(x W + b_1)", False),
        (r"\sigma(x w + b_i)", False),
        ("均值和方差", True),
        ("均值或方差", False),
    ],
)
def test_a_letter_that_is_altered_is_not_found(quote, found):
    text = "1.1 A\n均值\n和方差\n1.2 B\n(1)C\n\\sigma(xW + b_i)\n(2)D\n"
    assert sources.stands_in(quote, text) == found
    if found:
        assert [sources.stands_in(quote, section(text, place)) for place in ("1.1", "1.2(1)")] == [
            "均" in quote,
            "x" in quote,
        ]
        assert not sources.stands_in(quote, section(text, "1.2(2)"))


def computed(code, size):
    "Whether the size that a cell gives to `settle`, a node of its code, has no number typed in."
    tree = ast.parse(code)
    named = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    size = named[size.id] if isinstance(size, ast.Name) else size
    used = {n.id for n in ast.walk(size) if isinstance(n, ast.Name)}
    texts = [
        v
        for name, v in named.items()
        if name in used and isinstance(v, (ast.JoinedStr, ast.Constant))
    ]
    every_node = [n for text in (size, *texts) for n in ast.walk(text)]
    shaped = [n for n in every_node if isinstance(n, ast.FormattedValue)]
    formats = {id(c) for n in shaped if n.format_spec for c in ast.walk(n.format_spec)}
    typed = [n for n in every_node if isinstance(n, ast.Constant) and id(n) not in formats]
    said = "".join(t.value for t in typed if isinstance(t.value, str))
    said = re.sub(r"\{.*?\}", "", said)  # places of `str.format`
    names = re.sub(r"[A-Za-zΦ]+(\(\d\)|-\d)|·2π", "", said)  # Φ(0), GPT-2, 3·2π are names
    return not re.search(r"\d", names) and all(
        any(isinstance(part, (ast.Name, ast.Call)) for part in ast.walk(n.value)) for n in shaped
    )


def test_the_page_of_all_entries_is_made_from_the_cells():
    rows = sources.statements()
    assert [r["name"] for r in rows] == list(TEXTS)
    for r in rows:
        heading = TEXTS[r["name"]][0]
        assert (r["mark"], r["title"], r["size"]) == (heading[3], heading[4], size(r["name"]))
        assert r["chapters"]
    assert sources.made()["book/clinic.md"] == (ROOT / "book/clinic.md").read_text(), (
        "run `python book/sources.py`"
    )


def test_the_helper_is_one_and_refuses_what_proves_nothing():
    helpers = {source(c) for path in CLINIC for c in cells(path) if c["id"] == "helper"}
    assert len(helpers) == 1
    names = {"torch": torch}
    dtype = torch.get_default_dtype()
    exec(helpers.pop(), names)
    torch.set_default_dtype(dtype)
    settle = names["settle"]

    def check(number):
        assert number == 1

    def nothing():
        pass

    settle("T.1 · t", "false", check, so=1, printed=2, size="")
    settle("T.2 · t", "half", check, so=1, printed=2, holds=nothing, size="")
    settle("T.3 · t", "convention", check, so=1, printed=1, wrong=2, size="")
    settle("T.4 · t", "proven", check, printed=1, wrong=2, size="")
    refused = [
        ("T.1 · again", "false", {"so": 1, "printed": 2}),
        ("T.5 · nothing so", "false", {"printed": 2}),
        ("T.5 · so is not so", "false", {"so": 2, "printed": 2}),
        ("T.5 · printed is right", "false", {"so": 1, "printed": 1}),
        ("T.5 · holds nowhere", "half", {"so": 1, "printed": 2}),
        ("T.5 · not both right", "convention", {"so": 1, "printed": 2, "wrong": 2}),
        ("T.5 · no mixture", "convention", {"so": 1, "printed": 1}),
        ("T.5 · wrong is right", "proven", {"printed": 1, "wrong": 1}),
    ]
    for title, kind, given in refused:
        with pytest.raises(AssertionError):
            settle(title, kind, check, **given, size="")
    with pytest.raises(TypeError):  # a fault of the cell is no proof
        settle("T.6 · t", "false", lambda x: x + "a", so=1, printed=2, size="")
