"""Each section and each formula of the four texts leads to a cell of this book that teaches it."""

import json
import os
import re
from itertools import zip_longest
from pathlib import Path

import pytest
import sources
import yaml

ROOT = Path(__file__).parents[1]
TEXTS = {text["text"]: text for text in sources.texts()}
FOLDER = os.environ.get("TRANSFORMER_LIT_SOURCES")

MATHJAX = r"\{%\s*mathjax\s*%\}((?:(?!\{%).)*(?:=|\\in\b)(?:(?!\{%).)*)\{%"
PLAIN = r"[^\u3000-\u9fff\uff00-\uffef\n]"  # neither Chinese nor its punctuation
FORMS = {  # heading, formula
    "S0": (r"^(\d(?:\.\d)? \S.*|\(\d\)\S.*)$", r"\\\[(.+?)\\\]"),
    "S1": (r"^(.*\S.*)$", f"({PLAIN}*[=+]{PLAIN}*)"),
    "S2": (r"^#+ (.+)$", MATHJAX),
    "S3": (r"^# (.+)$", r"\$\$(.+?)\$\$"),
}


def bare(text):
    "Without white space."
    return re.sub(r"\s", "", text)


def faults(name, text, rows):
    "Where the rows of sources.yml and a text part: the first section, and every formula up to it."
    heading, formula = FORMS[name]
    before, *rest = re.split(heading, text, flags=re.M)
    pairs = zip(rest[::2], rest[1::2], strict=True)
    left = [(title.strip(), title + body) for title, body in pairs]
    if re.search(formula, before, re.S):
        yield "a formula before the first heading"
    for row in rows:
        n = row.get("parts", 1)
        mine, left = left[:n], left[n:]
        titles = [bare(title) for title, _ in mine]
        first = bare(row["heading"])
        if len(mine) < n or not titles[0].startswith(first):
            yield f"{row['heading']} is not where it should be: {titles[:1]}"
            return
        if name != "S1" and any(not title.startswith(first) for title in titles):
            yield f"{row['heading']} has not {n} parts: {titles}"
            return
        found = re.findall(formula, "\n".join(body for _, body in mine), re.S)
        keys = [key for each in row.get("formulas", ()) for key in each]
        for printed, key in zip_longest(found, keys):
            if not printed or not key or bare(key) not in bare(printed):
                yield f"{row['heading']}: {printed!r} is printed, {key!r} is expected"
    yield from (f"{title[:20]} leads nowhere" for title, _ in left)


def cells_named():
    "Every chapter and cell that sources.yml names, with what leads there."
    for text in TEXTS.values():
        for row in text["sections"]:
            formulas = [place for each in row.get("formulas", ()) for place in each.values()]
            for place in [*row.get("taught", ()), *formulas]:
                yield f"{text['text']}, {row['heading']}", place


@pytest.mark.needs("sources")
@pytest.mark.parametrize("name", TEXTS)
def test_each_section_and_each_formula_of_a_text_leads_to_a_cell(name):
    text = (Path(FOLDER or "") / TEXTS[name]["file"]).read_text(encoding="utf-8")
    assert list(faults(name, text, TEXTS[name]["sections"])) == []


def test_each_cell_that_is_named_exists():
    toc = yaml.safe_load((ROOT / "book/_toc.yml").read_text())
    chapters = {chapter["file"] for part in toc["parts"] for chapter in part["chapters"]}
    ids = {}
    for who, place in cells_named():
        chapter, cell = place.split()
        assert chapter in chapters, f"{who}: {chapter} is no chapter of the book"
        if chapter == "book/tree":
            assert cell in (ROOT / f"{chapter}.md").read_text(), f"{who}: no {cell} in {chapter}"
            continue
        if chapter not in ids:
            cells = json.loads((ROOT / f"{chapter}.ipynb").read_text())["cells"]
            ids[chapter] = [c["id"] for c in cells]
        assert cell in ids[chapter], f"{who}: {chapter} has no cell {cell!r}"


def test_sections_are_taught_or_left_out_and_nothing_is_copied():
    rows = [row for text in TEXTS.values() for row in text["sections"]]
    for row in rows:
        assert bool(row.get("taught")) != bool(row.get("left_out")), row["heading"]
        assert row["gloss"] and len(row["heading"]) <= 20, row["heading"]
        assert all(len(key) <= 30 for each in row.get("formulas", ()) for key in each), row
    assert sum("left_out" in row for row in rows) <= 2


def test_the_page_is_made_from_the_data():
    page = (ROOT / "book/sources.md").read_text()
    assert sources.made()["book/sources.md"] == page, "run `python book/sources.py`"


def test_an_entry_of_the_clinic_is_found_by_the_section_that_it_names(tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "book/sources.yml").write_text((ROOT / "book/sources.yml").read_text())
    (tmp_path / "nbs/sources").mkdir(parents=True)
    said = "### X.1 · ✗ A title\n\n**Source.** {}: $x = y$\n"

    def found(place):
        page = {"cells": [{"source": said.format(place)}]}
        (tmp_path / "nbs/sources/one.ipynb").write_text(json.dumps(page))
        ((text, number),) = sources.sourced(tmp_path)
        return TEXTS[text]["sections"][number]["heading"]

    assert found("S0, 1.2(3)") == "(3)Position-wise FFN"
    assert found("S0, 1.4 (2) places") == "(2)归一化位置"
    assert found("S1, after 解码器 (decoder)") == "层归一化"
    assert found("S1, on position encodings") == "模型不包含循环和卷积"
    assert found("S2, Rotary Position Embedding") == "Rotary Position"
    assert found("S3, 层归一化 (layer normalisation)") == "层归一化"
    assert found("S3, 层归一化的位置 (where the norm stands)") == "层归一化的位置"
    for nowhere in ("S0, 1.5", "S1, on the weather"):
        with pytest.raises((ValueError, StopIteration)):
            found(nowhere)
