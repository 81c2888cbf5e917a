"""Every subject of the sources has a cell, and every statement of the clinic a subject."""

import json
import re
import sys
from pathlib import Path

import nbdev_directives
import pytest
import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book"))
import sources  # noqa: E402

SUBJECTS = sources.subjects()
CLINIC = sorted((ROOT / "nbs/sources").glob("*.ipynb"))


def toc(root):
    book = yaml.safe_load((root / "book/_toc.yml").read_text())
    return [chapter["file"] for part in book["parts"] for chapter in part["chapters"]]


def faults(root, rows):
    "Subjects without a chapter of the book, or without a cell that is there."
    chapters = toc(root)
    for row in rows:
        name, chapter, cell = (row.get(key) for key in ("subject", "chapter", "cell"))
        if chapter not in chapters:
            yield f"{name}: {chapter} is no chapter of the book"
        elif not cell:
            yield f"{name} has no cell"
        else:
            cells = json.loads((root / f"{chapter}.ipynb").read_text())["cells"]
            if cell not in [c["id"] for c in cells]:
                yield f"{name}: {chapter} has no cell {cell!r}"


def settled():
    "Entry of the clinic -> the chapters that its text says settle it."
    found = {}
    for path in CLINIC:
        for cell in json.loads(path.read_text())["cells"]:
            text = "".join(cell["source"])
            if heading := re.match(r"### (\w+\.\d+) · ", text):
                links = re.findall(r"\{doc\}`(?:[^`<]*<)?/([^`>]+)>?`", text.split("Settled in")[1])
                found[heading[1]] = set(links)
    return found


def test_each_subject_has_a_cell_that_exists():
    assert len({row["subject"] for row in SUBJECTS}) == len(SUBJECTS) > 40
    assert list(faults(ROOT, SUBJECTS)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cell": None}, "has no cell"),
        ({"cell": "gone"}, "has no cell 'gone'"),
        ({"chapter": "nbs/text/09_gone"}, "is no chapter"),
    ],
)
def test_a_fault_that_is_planted_is_found(change, said):
    (fault,) = faults(ROOT, [SUBJECTS[0] | change])
    assert said in fault


def test_each_statement_of_the_clinic_stands_at_one_subject_whose_chapter_settles_it():
    links = settled()
    named = [entry for row in SUBJECTS for entry in row["clinic"]]
    assert sorted(named) == sorted(links)
    for row in SUBJECTS:
        for entry in row["clinic"]:
            assert row["chapter"] in links[entry], f"{entry} is not settled in {row['chapter']}"


def test_the_page_is_made_from_the_data():
    page = (ROOT / "book/sources.md").read_text()
    assert sources.filled(page, SUBJECTS) == page, "run `python book/sources.py`"


def test_the_page_counts_the_statements():
    page = (ROOT / "book/sources.md").read_text()
    numbers = {8: "Eight", 9: "Nine", 10: "ten", 12: "Twelve", 26: "twenty-six"}
    for source in ("S0", "S1", "S2", "S3", "A"):
        count = sum(entry.split(".")[0] == source for entry in settled())
        assert numbers[count] in page


def test_a_chapter_points_to_what_the_clinic_says_of_it():
    links = nbdev_directives.clinic(ROOT)
    entries = sum(len(re.findall(r"### \S+ · ", path.read_text())) for path in CLINIC)
    assert sum(map(len, links.values())) == entries >= 50
    for place, said in links.items():
        cells = json.loads((ROOT / f"{place[1:]}.ipynb").read_text())["cells"]
        nbdev_directives.point_to_clinic(ROOT, place[1:], cells)
        (cell,) = (c for c in cells if "settled in the clinic" in "".join(c["source"]))
        assert all(link in cell["source"] for link in said)
