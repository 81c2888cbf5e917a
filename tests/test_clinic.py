"""The errata clinic: every statement fails where the clinic says so, seen by planting it."""

import html
import json
import os
import re
from functools import cache
from pathlib import Path

import pytest
import torch
import yaml
from docutils.nodes import make_id

ROOT = Path(__file__).parents[1]
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
    names, found, here = {"__name__": "clinic"}, {}, os.getcwd()
    rng, dtype = torch.get_rng_state(), torch.get_default_dtype()
    os.chdir(path.parent)
    try:
        for cell in cells(path):
            if cell["cell_type"] != "code" or "#| eval: false" in source(cell):
                continue
            exec(compile(source(cell), f"{path.name}:{cell['id']}", "exec"), names)
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
    return found, names


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
    found, names = run(path)
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
