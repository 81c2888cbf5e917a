"""The errata clinic: every statement fails where the clinic says so, seen by planting it."""

import ast
import html
import json
import os
import re
import sys
import time
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


def stands(check, form):
    "Whether a form passes; any other exception than a failed assertion comes through."
    try:
        check(form)
    except AssertionError:
        return False
    return True


def settle_anew(settle, entry, **planted):
    "Whether the entry's own helper accepts it with something else put in a place."
    given = {k: entry[k] for k in ("check", "printed", "so", "wrong", "holds")} | planted
    try:
        settle("X.1 · planted", entry["kind"], **given, size="")
    except AssertionError:
        return False
    return True


@cache
def run(path):
    "Every entry of a notebook, with what came of planting right after its cell had run."
    names, found, here, took = {"__name__": "clinic"}, {}, os.getcwd(), 0.0
    rng, dtype = torch.get_rng_state(), torch.get_default_dtype()
    os.chdir(path.parent)
    try:
        for cell in cells(path):
            if cell["cell_type"] != "code" or "#| eval: false" in source(cell):
                continue
            begun = time.process_time()
            exec(compile(source(cell), f"{path.name}:{cell['id']}", "exec"), names)
            took += time.process_time() - begun
            entries = names.get("entries", {})
            for name in set(entries) - set(found):
                entry = entries[name]
                state = torch.get_rng_state()
                planted = {
                    side: stands(entry["check"], entry[side])
                    for side in ("so", "printed", "wrong")
                    if entry[side] is not None
                }
                printed, wrong = entry["printed"], entry["wrong"]
                fault = {"so": printed} if wrong is None else {"printed": wrong}
                accepted = settle_anew(names["settle"], entry, **fault)
                entries.pop("X.1", None)
                torch.set_rng_state(state)
                found[name] = {**entry, "planted": planted, "accepted": accepted}
    finally:
        os.chdir(here)
        torch.set_default_dtype(dtype)
        torch.set_rng_state(rng)
    return found, names, took


@cache
def every():
    return {name: entry for path in CLINIC for name, entry in run(path)[0].items()}


def test_there_are_at_least_fifty_entries_and_each_has_its_text():
    ran = [name for path in CLINIC for name in run(path)[0]]
    assert len(ran) == len(set(ran)) >= 50
    assert set(ran) == set(TEXTS)


@pytest.mark.parametrize("name", TEXTS)
def test_the_statement_put_in_place_of_what_is_so_is_refused(name):
    entry = every()[name]
    planted = entry["planted"]
    expected = {
        "false": {"so": True, "printed": False},
        "half": {"so": True, "printed": False},
        "convention": {"so": True, "printed": True, "wrong": False},
        "proven": {"printed": True, "wrong": False},
    }
    assert planted == expected[entry["kind"]]
    assert not entry["accepted"], "the cell would run with the fault in it"
    assert (entry["holds"] is not None) == (entry["kind"] == "half")


@pytest.mark.parametrize("name", TEXTS)
def test_text_and_cell_say_the_same(name):
    heading, text, cell = TEXTS[name]
    _, _, mark, title, kind = heading.groups()
    entry = every()[name]
    assert (mark, kind) == KINDS[entry["kind"]]
    assert entry["title"] == f"{name} · {title}"
    assert cell["id"] == name.lower().replace(".", "-")
    for part in ("**Statement.**", "**What is so.**", "Settled in"):
        assert part in text
    assert "**What was meant.**" in text or entry["kind"] == "proven"
    shown = "".join("".join(out.get("text", "")) for out in cell["outputs"])
    assert shown == f"{mark} {entry['size']}\n"


@pytest.mark.parametrize("name", TEXTS)
def test_each_entry_leads_to_a_chapter(name):
    toc = yaml.safe_load((ROOT / "book/_toc.yml").read_text())
    files = {c["file"] for part in toc["parts"] for c in part["chapters"]}
    settled = TEXTS[name][1].split("Settled in")[1]
    links = re.findall(r"\{doc\}`(?:[^`<]*<)?/([^`>]+)>?`", settled)
    assert links and set(links) <= files


@pytest.mark.parametrize("path", CLINIC, ids=lambda path: path.stem)
def test_the_table_is_made_of_the_cells(path):
    found, names, _ = run(path)
    assert len(names["rows"]) == len(found)
    for row, entry in zip(names["rows"], found.values(), strict=True):
        name, about = entry["title"].split(" · ")
        anchor = make_id(
            f"{name} · {KINDS[entry['kind']][0]} {about}"
        )  # of the heading, in the book
        said = [about, " ".join(KINDS[entry["kind"]]), entry["size"]]
        shown = "".join(f"<td>{html.escape(text)}</td>" for text in said)
        assert row == f'<tr><td><a href="#{anchor}">{name}</a></td>{shown}</tr>'
    stored = next(c for c in cells(path) if c["id"] == "table")["outputs"][0]["data"]
    assert "\n".join(names["rows"]) in "".join(stored["text/html"])


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


@pytest.mark.parametrize("name", TEXTS)
def test_each_entry_says_where_its_statement_stands(name):
    assert sources.quotes(TEXTS[name][1])


@pytest.mark.parametrize("cell", CITED)
def test_a_source_has_a_place_a_short_quote_and_english(cell):
    found = sources.SOURCE.findall(CITED[cell])
    assert len(found) == CITED[cell].count("**Source.**")
    for _, place, said in found:
        quoted = [phrase for _, phrase in sources.QUOTE.findall(said)]
        assert quoted and max(map(len, quoted)) <= 20  # a formula has no phrase
        assert not re.search(f"「[^」]*{CHINESE}[^」]*」(?! \\(.)", said), "no English beside it"
        assert "(" in place or not re.search(CHINESE, place)


@pytest.mark.skipif(not FOLDER, reason="TRANSFORMER_LIT_SOURCES names no folder with the texts")
@pytest.mark.parametrize("cell", CITED)
def test_each_quote_stands_in_its_text(cell):
    for name, place, formula, phrase in sources.quotes(CITED[cell]):
        text = section(printed(name), place) if name == "S0" else printed(name)
        assert sources.stands_in(formula or phrase, text), f"{name}, {place}: {formula or phrase}"


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


def computed(code):
    "Whether the size that a cell gives to `settle` has no number that is typed."
    tree = ast.parse(code)
    named = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    (call,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "settle"
    )
    (size,) = (k.value for k in call.keywords if k.arg == "size")
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


@pytest.mark.parametrize("name", TEXTS)
def test_no_number_of_the_table_is_typed(name):
    assert computed(source(TEXTS[name][2]))


@pytest.mark.parametrize(
    ("size", "fine"),
    [
        ('f"{a:.2f} → {b:.1%}"', True),
        ('f"GELU(2) {a:.3f}, {b}·2π"', True),
        ('"at {:.2f}".format(a) + f", {b}"', True),
        ('", ".join(f"{n}: {a:.1f}" for n in (1, 2))', True),
        ('"exact"', True),
        ('f"{a:.2f} → 0.33"', False),
        ('f"0 → {a}"', False),
        ('f"{a} of {7}"', False),
        ('"at 2: {:.2f}".format(a)', False),
    ],
)
def test_a_number_that_is_typed_is_found(size, fine):
    assert computed(f"a, b = 1, 2\nsettle('T', 'false', c, so=1, printed=2, size={size})") == fine
    assert computed(f"size = {size}\nsettle('T', 'false', c, so=1, printed=2, size=size)") == fine
    part = f"part = {size}\nsettle('T', 'false', c, so=1, printed=2, size=f'{{part}}, {{a}}')"
    assert computed(part) == fine or "join" in size or "format" in size


def test_the_page_of_all_entries_is_made_from_the_cells():
    rows = sources.statements()
    assert [r["name"] for r in rows] == list(TEXTS)
    for r in rows:
        entry = every()[r["name"]]
        assert r["size"] == entry["size"] and r["mark"] == KINDS[entry["kind"]][0]
        assert f"{r['name']} · {r['title']}" == entry["title"] and r["chapters"]
    assert sources.made()["book/clinic.md"] == (ROOT / "book/clinic.md").read_text(), (
        "run `python book/sources.py`"
    )


def test_all_entries_run_in_a_minute():
    assert sum(run(path)[2] for path in CLINIC) < 60  # seconds of one core


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
