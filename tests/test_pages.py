"""What README.md and the book's first page say is true: code runs, numbers are records."""

import re
from pathlib import Path

import pytest

from transformer_lit.base.results import read_results, result_table
from transformer_lit.recipes.zoo import card_text, model_card, model_names

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["README.md", "book/intro.md"])
def test_the_python_on_the_page_runs(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert blocks
    names = {}
    for block in blocks:
        exec(block, names)


def test_the_table_is_made_from_the_records():
    readme = (ROOT / "README.md").read_text()
    shown = re.search(r"<!-- results:.*?-->\n(.*?)<!-- end of results -->", readme, re.S)[1]
    assert shown.strip() == result_table(read_results(ROOT / "results"))


def test_every_card_is_made_from_a_record():
    records = read_results(ROOT / "results")
    assert model_names()
    for name in model_names():
        assert model_card(name) in [card_text(name, record) for record in records]


def test_every_work_of_the_bibliography_is_cited():
    pages = [*ROOT.glob("nbs/*/*.ipynb"), *ROOT.glob("book/*.md"), *ROOT.glob("book/_ext/*.py")]
    text = "".join(page.read_text() for page in pages)
    works = re.findall(r"^@\w+\{(\w+),", (ROOT / "book/references.bib").read_text(), re.M)
    assert len(works) > 90
    assert not [work for work in works if not re.search(rf"\b{work}\b", text)]


def test_links_between_files_of_the_repository_lead_somewhere():
    for page in ("README.md", "CONTRIBUTING.md", "WEIGHTS-NOTICE.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text()):
            assert (ROOT / target).exists(), f"{page} links to {target}"
