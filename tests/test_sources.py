"""The pages of the clinic and of our own errata say what they settle, and pages lead to them."""

import json
import re
from pathlib import Path

import chapter as pages
import pytest
import sources
import yaml

ROOT = Path(__file__).parents[1]

CLINIC = sorted((ROOT / "nbs/sources").glob("*.ipynb"))
PAGE = (ROOT / "book/sources.md").read_text()
ERRATA = (ROOT / "book/errata.md").read_text()


def chapters():
    "The chapters and pages of the book."
    book = yaml.safe_load((ROOT / "book/_toc.yml").read_text())
    return [chapter["file"] for part in book["parts"] for chapter in part["chapters"]]


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
        assert said and chapter in chapters(), entry
    assert ERRATA.index("## You found an error?") < ERRATA.index("*Said:*")


@pytest.mark.parametrize("page", ["README.md", "book/use.md"])
def test_who_comes_from_the_sources_is_told_of_the_clinic(page):
    assert "errata clinic" in (ROOT / page).read_text()
