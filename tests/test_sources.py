"""Every subject of the sources has a cell, and every statement of the clinic a subject."""

import json
import re
from pathlib import Path

import chapter as pages
import pytest
import sources
import yaml

ROOT = Path(__file__).parents[1]

SUBJECTS = sources.subjects()
CLINIC = sorted((ROOT / "nbs/sources").glob("*.ipynb"))
PAGE = (ROOT / "book/sources.md").read_text()
ERRATA = (ROOT / "book/errata.md").read_text()


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
    assert sources.made()["book/sources.md"] == page, "run `python book/sources.py`"
    assert "by subject and not by section" in page


SMALL = re.findall(
    r"\w+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen",
)
TENS = ["twenty", "thirty", "forty", "fifty"]


def in_words(number):
    tens, ones = divmod(number, 10)
    return (
        SMALL[number] if tens < 2 else "-".join([TENS[tens - 2], *([SMALL[ones]] if ones else [])])
    )


@pytest.mark.parametrize("path", CLINIC, ids=lambda path: path.stem)
def test_the_statements_are_counted_rightly(path):
    entries = re.findall(r"### \w+\.\d+ · ", path.read_text())
    number = in_words(len(entries))
    title = "".join(json.loads(path.read_text())["cells"][0]["source"])
    assert f"> {number.capitalize()} statements" in title
    (said,) = re.findall(rf"`([^<`]+) </nbs/sources/{path.stem}>", PAGE)
    assert said.split()[0].lower() == number


def test_a_chapter_points_to_what_the_clinic_says_of_it():
    links = pages.clinic(ROOT)
    labels = {name: sources.label(name) for name in settled()}
    for entry, chapters in settled().items():
        for chapter in chapters:
            (link,) = (x for x in links[chapter] if x.endswith(f"<{labels[entry]}>`"))
            page = pages.Page(chapter, json.loads((ROOT / f"{chapter}.ipynb").read_text()))
            pages.clinic_links(page)
            cells = page.cells
            (cell,) = (c for c in cells if "settled in the clinic" in "".join(c["source"]))
            assert link in cell["source"]
            if any("".join(c["source"]).startswith("## Often confused") for c in cells[:]):
                assert cell["source"].startswith("## Often confused")


def test_each_entry_has_the_label_that_pages_lead_to():
    labels = []
    for path in CLINIC:
        page = pages.Page(f"nbs/sources/{path.stem}", json.loads(path.read_text()))
        pages.clinic_labels(page)
        texts = ["".join(cell["source"]) for cell in page.cells]
        labels += [found[1] for t in texts if (found := re.match(r"\((clinic-.+)\)=\n### ", t))]
    assert sorted(labels) == sorted(map(sources.label, settled()))


def test_our_own_errata_say_what_stood_and_what_is_so():
    entries = re.findall(r"^- \*Said:\* (.+)$", ERRATA, re.M)
    assert len(entries) > 25
    for entry in entries:
        said, so = entry.split(" *So it is:* ")
        *_, chapter = re.findall(r"\{doc\}`/(nbs/[^`]+)`", so)
        assert said and chapter in toc(ROOT), entry
    assert ERRATA.index("## You found an error?") < ERRATA.index("*Said:*")


@pytest.mark.parametrize("page", ["README.md", "book/intro.md"])
def test_who_comes_from_the_sources_is_told_of_the_clinic(page):
    assert "errata clinic" in (ROOT / page).read_text()
