"The first pass is a book that a reader finishes, and every chapter that teaches has exercises."

import ast
import json
import re

import cards
from chapter import Page, exercises, names, open_code, open_imports


def first_pass():
    for name, path in cards.chapters().items():
        notebook = json.loads(path.read_text())
        if notebook["metadata"]["chapter"]["pass"] == 1:
            yield name, notebook


def test_it_has_at_most_40500_words_and_12_hours():
    chapters = [notebook for _, notebook in first_pass()]
    assert sum(cards.words(notebook["cells"]) for notebook in chapters) <= 40_500
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


def shown(cell, code, given):
    "The helpers whose result an open cell shows: its last line, or a print, has this one new name."
    body, found = ast.parse(code).body, set()
    for place, one in enumerate(body if cell["outputs"] else []):
        call = getattr(getattr(getattr(one, "value", None), "func", None), "id", "")
        if isinstance(one, ast.Expr) and (call == "print" or one is body[-1]):
            before = names("\n".join(map(ast.unparse, body[:place])))[1]
            new = names(ast.unparse(one))[0] - given - before - found
            found |= new if len(new) == 1 else set()
    return found


def test_an_open_cell_uses_only_names_that_the_page_introduced():
    "Assigned, defined or imported in open cells, shown by their result, or built by the reader."
    unknown, built = [], set()
    for name, notebook in first_pass():
        page, given = Page(name, notebook), set(built)
        blanks = [page.cells[one.place + 1] for one in exercises(page.cells)]
        open_imports(page)
        for cell, code in open_code(page.cells):
            asked, gives = names(code)
            given |= shown(cell, code, given)
            unknown += [(name, cell["id"], one) for one in sorted(asked - given)]
            given |= asked | gives
            built |= gives if cell in blanks else set()
    assert unknown == []


def test_at_most_three_things_are_often_confused():
    for name, path in cards.chapters().items():
        for cell in json.loads(path.read_text())["cells"]:
            text = "".join(cell["source"])
            if text.startswith("## Often confused"):
                assert len(re.findall(r"^\*\*", text, re.M)) <= 3, name


PARTS = {"start", "text", "attention", "position", "block", "models"}
PARTS |= {"training", "inference", "recipes", "results"}
# to look things up in
TOOLS = {"recipes/zoo", "recipes/cli", "recipes/how_do_i", "results/year_2026"}


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
