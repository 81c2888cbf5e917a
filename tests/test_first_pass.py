"The first pass is a book that a reader finishes, and every chapter that teaches has exercises."

import ast
import json
import re

import cards
import letters
import quizzes
from chapter import STEPS, Page, exercises, names, open_code, open_imports, source, split


def first_pass():
    for name, path in cards.chapters().items():
        notebook = json.loads(path.read_text())
        if notebook["metadata"]["chapter"]["pass"] == 1:
            yield name, notebook


def test_it_has_at_most_49500_words_and_13_and_a_half_hours():
    chapters = [notebook for _, notebook in first_pass()]
    assert sum(cards.words(notebook["cells"]) for notebook in chapters) <= 49_500
    assert sum(notebook["metadata"]["chapter"]["minutes"] for notebook in chapters) <= 13.5 * 60


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
        assert [page.cells[one.place + 1] for one in exercises(page.cells)] == blanks, name
        folded = [split(source(cell)) for cell in page.cells if cell["cell_type"] == "code"]
        given |= set().union(*(names(code)[1] for told, code in folded if "imports" in told))
        for cell, code in open_code(page.cells):
            asked, gives = names(code)
            given |= shown(cell, code, given)
            unknown += [(name, cell["id"], one) for one in sorted(asked - given)]
            given |= asked | gives
            built |= gives if cell in blanks else set()
    assert unknown == []


def test_the_notation_has_every_letter_of_the_first_pass_once():
    notebook = json.loads((cards.ROOT / f"{letters.TABLE}.ipynb").read_text())
    (table,) = (source(cell) for cell in notebook["cells"] if cell["id"] == "letters")
    listed = [letter for row in letters.rows(table) for letter in row]
    assert len(listed) > 50 and len(set(listed)) == len(listed)
    assert letters.pages().keys() ^ {*listed} == set()
    assert letters.letters(
        r"\frac{a_{t}}{\mathrm{id}} + \operatorname{E}\,\mathcal{L}\sigma z'"
    ) == {*("a", "t", "z", r"\sigma", r"\mathcal{L}")}


def folds(page):
    "How many bars a page has that open something."
    for step in STEPS:
        step(page)
    bars = 1  # the card with the letters
    for cell in page.cells:
        text = source(cell)
        bars += text.count("<details") + ("hide-input" in cell["metadata"].get("tags", ()))
        bars += text.startswith(tuple(f"## {title}" for title in cards.FOLDS))
    return bars + len(quizzes.of_chapters().get(cards.chapter_name(page.name), ()))


def test_a_page_has_at_most_25_folds():
    pages = ((name, cards.page(cards.chapters()[name]), book) for name, book in first_pass())
    found = {name: folds(Page(page, book)) for name, page, book in pages}
    assert {name: bars for name, bars in found.items() if bars > 25} == {}


def test_the_reader_s_file_writes_its_first_line_within_half_an_hour():
    "The pages on the way, and the exercise: the loss."
    found = dict(first_pass())
    pages = [*found][: [*found].index("start/four_pictures") + 1]
    (loss,) = (one for one in exercises(found[pages[-1]]["cells"]) if one.id == "primer.5")
    assert sum(found[page]["metadata"]["chapter"]["minutes"] for page in pages) + loss.minutes <= 30


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
        "position/rope": f"Only {lost} of 100 new numbers were right, compared with {right}",
        "block/layers": f"ended at {whole[1]} and wrote {right} of 100 new numbers",
        "models/llama": f"the first page had {right} right after 120",
    }
    pages = {name: json.dumps(page, ensure_ascii=False) for name, page in first_pass()}
    assert [name for name, said in quotes.items() if said not in pages[name]] == []
