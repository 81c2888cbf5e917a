"What the site is made of, without a browser: folds, formulas as text, drawings, words to look for."

import copy
import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import cross_links
import pytest
import yaml
from nbdev_directives import card_box, cards, fold_name, prove, tags
from site_pages import part_name, plain
from site_search import linear
from sphinxcontrib.katex import katex_version
from ways import hours, lead, part_lines

ROOT = Path(__file__).parents[1]
PARTS = [(caption, pages) for caption, pages in cards.contents() if len(pages) > 1]


def chapter(name):
    "A chapter as it is stored, such as attention/masks."
    return json.loads(cards.chapters()[name].read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (r"\frac{q_t \cdot k_s}{\sqrt{D}}", "q_t · k_s/√D"),
        (r"\mathrm{Attend}\bigl(Q, K\bigr)", "Attend (Q, K )"),
        (r"\log \sum_{j} e^{a_{tj}}", "log ∑_j e^a_tj"),
        (r"\begin{gathered} a \\[4pt] b \end{gathered}", "a b"),
    ],
)
def test_a_formula_is_searched_as_it_is_typed(formula, text):
    assert linear(formula) == text


def test_the_style_of_formulas_is_of_the_version_that_draws_them():
    style = (ROOT / "book/_static/katex/katex.min.css").read_text(encoding="utf-8")
    assert f'katex-version:after{{content:"{katex_version}"' in style


@pytest.mark.parametrize(
    ("code", "outputs", "name"),
    [
        ("import math\n\nfrom torch import Tensor", [], "Imports"),
        ("x = 1\nplt.show()", [{"data": {"image/svg+xml": "…"}}], "Code of the figure"),
        ("def f():\n    pass\n\n\ndef _g():\n    pass", [], "Code: f"),
        ("def a(): 1\ndef b(): 1\ndef c(): 1\ndef d(): 1", [], "Code: a, b, c …"),
        ("print(1)", [{"text": "1"}], "Code of the output"),
        ("x = y = 1\nx.z = 2", [], "Code: x"),
        ("def _g():\n    pass", [], "Code: _g"),
        ("# Checked by: the loops.\ndef f():\n    assert x", [], "Check: the loops"),
        ("for x in y:\n    assert x", [], "Check"),
        ("torch.testing.assert_close(x, y)", [], "Check"),
        ("NAMES: dict = {}", [], "Code: NAMES"),
        ("import math\n\nA, B = 1, 2\nuse_style()", [], "Imports and settings"),
        ("f()", [], "Code"),
        ("!pip list", [], "Code"),
    ],
)
def test_a_fold_is_named_by_its_purpose(code, outputs, name):
    assert fold_name({"outputs": outputs}, code) == name


def test_imports_fold_by_themselves():
    assert "hide-input" in tags({}, "import math")
    assert "hide-input" not in tags({}, "import math\nprint(math.pi)")


def test_a_description_is_cut_at_a_word():
    assert plain("one  two\nthree", 20) == "one two three"
    assert plain("one two three", 10) == "one two …"


def test_parts_are_numbered_and_the_appendix_has_a_letter():
    assert part_name(3, "Attention") == 3
    assert part_name(14, "Appendix") == "A"


def test_words_to_look_for_belong_to_chapters_and_to_one_each():
    listed = yaml.safe_load((ROOT / "book/search.yml").read_text(encoding="utf-8"))
    assert set(listed) <= set(cards.chapters())
    for chapter, words in listed.items():
        assert len({word.lower() for word in words}) == len(words), chapter


# --- the page that opens a part -------------------------------------------------------------------


@pytest.mark.parametrize(("caption", "pages"), PARTS, ids=[caption for caption, _ in PARTS])
def test_a_part_opens_with_a_page_that_lists_it(caption, pages):
    opening, *others = pages
    text = (ROOT / f"{opening}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {caption}\n\n") and text.endswith("\n\n```{part}\n```\n")
    assert 40 <= len(text.split()) <= 100
    total, _, *lines = part_lines(opening)
    assert [line.split("`")[1] for line in lines] == [f"/{page}" for page in others]
    found = [cards.card(ROOT / f"{page}.ipynb") for page in others if page.startswith("nbs/")]
    for number, name in ((1, "first"), (2, "second")):
        minutes = [card["minutes"] for card in found if card["pass"] == number]
        said = f" of the {name} pass, {hours(sum(minutes))}"
        assert (said in total) == bool(minutes)


def test_the_page_that_opens_a_part_has_no_number():
    numbers = cards.numbers()
    assert numbers["nbs/start/01_notation"] == "1.1" and numbers["nbs/attention/02_masks"] == "3.2"
    assert numbers["nbs/base/00_numbers"] == "A.1" and numbers["book/tree"] == "11.1"
    assert not [page for page in numbers if page.startswith(cards.OPENING)]


def test_a_line_of_a_part_says_what_a_chapter_is_and_what_it_takes():
    line = next(line for line in part_lines("book/parts/attention") if "02_masks" in line)
    link, sentence, facts = line.split("<br>")
    assert link == "- 3.2 {doc}`/nbs/attention/02_masks`"
    assert sentence == lead("".join(chapter("attention/masks")["cells"][0]["source"])) != ""
    assert facts == "**First pass** · 30 minutes · 6 exercises"


# --- the box of a chapter -------------------------------------------------------------------------


def box(notebook):
    "What the box of a chapter says."
    shown = copy.deepcopy(notebook)
    card_box(ROOT, "nbs/attention/02_masks", shown)
    return shown["cells"][0]["source"].split(":::")[1]


def test_the_box_leads_to_the_copies_of_the_chapter():
    said = box(chapter("attention/masks"))
    assert '<a href="../../notebooks/nbs/attention/02_masks.ipynb">.ipynb</a>' in said
    assert '/blob/notebooks/nbs/attention/02_masks.ipynb">Colab</a>' in said
    assert "30 minutes" in said and "6 exercises" in said


RECORD = {"day": "2026-03-07", "seconds": 11, "python": "3.11.2", "torch": "2.13.0"}
RECORD["machine"] = "x86_64 CPU, 2 threads"


def test_the_box_says_when_the_chapter_was_proven_and_when_it_has_changed(monkeypatch):
    notebook, records = chapter("attention/masks"), {}
    monkeypatch.setattr(prove, "read", lambda root: records)
    assert "proven" not in box(notebook)
    records["attention/masks"] = RECORD | {"hash": prove.code_hash(notebook)}
    how = "(Python 3.11.2, torch 2.13.0, x86_64 CPU, 2 threads)"
    assert f"last proven on 7 March 2026 in 11 s {how}" in box(notebook)
    notebook["cells"][0]["source"] = ["# Another title\n", "\n", "> And another text."]
    assert "last proven on" in box(notebook)
    code = next(cell for cell in notebook["cells"] if cell.get("outputs"))
    for change in ({"source": ["1"]}, {"outputs": []}):
        former = dict(code)
        code |= change
        assert "changed since it was proven on 7 March 2026" in box(notebook)
        code |= former
    assert "last proven on" in box(notebook)


def test_what_failed_gets_no_record_and_keeps_its_old_one(tmp_path):
    (tmp_path / "book").mkdir()
    pages = [f"nbs/text/0{number}_{name}" for number, name in enumerate("abc", 1)]
    toc = {"parts": [{"caption": "Text", "chapters": [{"file": page} for page in pages]}]}
    (tmp_path / "book/_toc.yml").write_text(yaml.safe_dump(toc))
    times = prove.Times()
    for page in pages:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{page}.ipynb").write_text('{"cells": []}')
    for page, seconds, failed in (
        (pages[0], 2.4, False),
        (pages[1], 1, True),
        (pages[1], 1, False),
    ):
        for part in ("Cell 0", "Cell 1"):
            node = f"{page}.ipynb::{part}"
            report = SimpleNamespace(nodeid=node, duration=seconds, failed=failed)
            times.pytest_runtest_logreport(report)
    prove.write({"text/b": RECORD, "text/c": RECORD}, tmp_path)
    prove.write(prove.records(times, tmp_path), tmp_path)
    found = prove.read(tmp_path)
    assert list(found) == ["text/a", "text/b", "text/c"]
    assert found["text/a"]["seconds"] == 5 and found["text/a"].keys() == {*RECORD, "hash"}
    assert found["text/b"] == RECORD == found["text/c"]
    assert (tmp_path / prove.RECORDS).read_text().count("\n") == 5  # a line for each


def test_every_record_is_one_of_a_chapter():
    found = prove.read()
    assert set(found) <= set(cards.chapters())
    assert all(record.keys() == {*RECORD, "hash"} for record in found.values())


# --- there and back -------------------------------------------------------------------------------


def test_a_chapter_names_all_that_it_exports():
    listed = runpy.run_path(str(ROOT / "transformer_lit/_modidx.py"))["d"]["syms"]
    count = 0
    for name in cards.chapters():
        module, names = cross_links.exported(chapter(name)["cells"])
        tops = {symbol.removeprefix(f"{module}.") for symbol in listed.get(module, ())}
        assert set(names) == {top for top in tops if "." not in top and top[0] != "_"}, name
        count += len(names)
    assert count > 250


def test_the_summary_ends_with_links_to_reference_and_glossary():
    cells = chapter("attention/masks")["cells"]
    cross_links.add_foot(ROOT, "nbs/attention/02_masks", cells)
    (summary,) = (text for cell in cells if (text := "".join(cell["source"]))[:10] == "## Summary")
    foot = summary.split(":::{div} chapter-foot\n")[1]
    assert "{py:obj}`causal_mask <transformer_lit.attention.masks.causal_mask>`" in foot
    assert "{term}`padding mask`" in foot and foot.endswith("\n:::")


def test_every_term_is_named_by_the_chapter_that_explains_it():
    glossary = cross_links.plain.glossary(ROOT)
    pages = cross_links.pages_of_modules(ROOT).values()
    for term, where in glossary.items():
        assert where and set(where) <= set(pages), term
        for page in where:
            cells = json.loads((ROOT / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]
            cross_links.add_foot(ROOT, page, cells)
            assert f"{{term}}`{term}`" in "".join("".join(c["source"]) for c in cells), page
