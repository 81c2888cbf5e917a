"""Each section and each formula of the four texts leads to a cell of this book that teaches it."""

import json
import os
import re
from functools import cache
from itertools import zip_longest
from pathlib import Path

import cards
import pytest
import sources

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


@pytest.mark.needs("sources")
@pytest.mark.parametrize("name", TEXTS)
def test_each_section_and_each_formula_of_a_text_leads_to_a_cell(name):
    text = (Path(FOLDER or "") / TEXTS[name]["file"]).read_text(encoding="utf-8")
    assert list(faults(name, text, TEXTS[name]["sections"])) == []


@cache
def ids(page):
    if page == "book/tree":
        return re.findall(r"```\{([\w-]+)\}", (ROOT / f"{page}.md").read_text(encoding="utf-8"))
    cells = json.loads((ROOT / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]
    return [cell["id"] for cell in cells]


def test_sections_are_taught_in_cells_that_exist_or_left_out_and_nothing_is_copied():
    rows = [row for text in TEXTS.values() for row in text["sections"]]
    pages = {page for _, pages in cards.contents() for page in pages}
    for row in rows:
        formulas = [pair for each in row.get("formulas", ()) for pair in each.items()]
        for place in [*row.get("taught", ()), *(place for _, place in formulas)]:
            page, cell = place.split()
            assert page in pages and cell in ids(page), f"{row['heading']}: {place}"
        assert bool(row.get("taught")) != bool(row.get("left_out")), row["heading"]
        assert row["gloss"] and len(row["heading"]) <= 20, row["heading"]
        assert all(len(key) <= 30 for key, _ in formulas), row
    assert sum("left_out" in row for row in rows) <= 2
