"The first pass is a book that a reader finishes, and every chapter that teaches has exercises."

import json
import re

import cards
from chapter import Page, exercises, names, open_code, open_imports


def first_pass():
    for name, path in cards.chapters().items():
        notebook = json.loads(path.read_text())
        if notebook["metadata"]["chapter"]["pass"] == 1:
            yield name, notebook


def test_it_has_at_most_40000_words_and_12_hours():
    chapters = [notebook for _, notebook in first_pass()]
    assert sum(cards.words(notebook["cells"]) for notebook in chapters) <= 40_000
    assert sum(notebook["metadata"]["chapter"]["minutes"] for notebook in chapters) <= 12 * 60


def test_an_open_page_teaches_and_does_not_prove():
    lines = [
        line
        for _, notebook in first_pass()
        for cell in cards.main_line(notebook["cells"])
        if cell["cell_type"] == "code" and not cards.FOLDED.search("".join(cell["source"]))
        for line in cards.without_checks("".join(cell["source"]))[0].split("\n")
        if line.strip() and not line.startswith("#")
    ]
    asserted = sum(line.strip().startswith("assert") for line in lines)
    assert len(lines) > 1000 and asserted <= 0.03 * len(lines)


NAMED = re.compile(r"(?<!\})`([A-Za-z_]\w*)")  # `name`, `name(x)`; no role such as {doc}


def test_an_open_cell_uses_only_names_that_the_open_page_introduced():
    for name, notebook in first_pass():
        page, given = Page(name, notebook), set()
        open_imports(page)
        code = {id(cell): text for cell, text in open_code(page.cells)}
        for cell in cards.main_line(page.cells):
            if cell["cell_type"] == "markdown":
                given |= set(NAMED.findall("".join(cell["source"])))
            elif id(cell) in code:
                asked, gives = names(code[id(cell)])
                assert asked <= given, (name, cell["id"], asked - given)
                given |= gives


def test_at_most_three_things_are_often_confused():
    for name, path in cards.chapters().items():
        for cell in json.loads(path.read_text())["cells"]:
            text = "".join(cell["source"])
            if text.startswith("## Often confused"):
                assert len(re.findall(r"^\*\*", text, re.M)) <= 3, name


PARTS = {"start", "text", "attention", "position", "block", "models"}
PARTS |= {"training", "inference", "recipes", "results"}
# to look things up in
TOOLS = {"recipes/zoo", "recipes/cli", "recipes/how_do_i"}


def test_every_chapter_that_teaches_has_exercises():
    pages = {n: p for n, p in cards.chapters().items() if n.split("/")[0] in PARTS}
    without = {n for n, p in pages.items() if not exercises(json.loads(p.read_text())["cells"])}
    assert without <= TOOLS  # how many, and of which kinds: a rule of the house


def test_later_pages_quote_what_the_first_training_printed():
    def printed(cell):
        text = json.dumps(cell["outputs"], ensure_ascii=False)
        return text.replace("\\n", "\n")

    cells = {cell["id"]: cell for name, page in first_pass() if name == "start/ten_minutes"
             for cell in page["cells"]}  # fmt: skip
    right = re.search(r"(\d+)% of 100", printed(cells["learn"]))[1]
    table = printed(cells["break"])
    whole = re.search(r"whole +([\d.]+) +(\d+)%", table)
    lost = re.search(r"no positions +[\d.]+ +(\d+)%", table)[1]
    assert whole[2] == right  # it is the same model
    quotes = {
        "text/embedding": f"wrote {right} of 100 new numbers",
        "attention/multihead": f"wrote {right} of 100 new numbers",
        "position/rope": f"{lost} of 100 new numbers were right, and {right} with sinusoids",
        "block/layers": f"ended at {whole[1]} and wrote {right} of 100 new numbers",
        "models/llama": f"the box, with Adam, had {right} after 120",
    }
    pages = {name: json.dumps(page, ensure_ascii=False) for name, page in first_pass()}
    assert [name for name, said in quotes.items() if said not in pages[name]] == []
