"The page for teachers lists every exercise once, as its statement has it, and counts them right."

import re

import solved
from cards import numbers
from tables import exercise_count, exercise_table

from transformer_lit.exercises.my_transformer import LAST, STEPS

PAGE = solved.ROOT / "book/teachers.md"


def rows(lines):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]


def test_every_exercise_stands_there_once_as_it_is_written():
    named = {id: step.name for id, step in STEPS.items()}
    found, order = {}, numbers()
    for link, title, kind, mark, minutes, chapter in rows(exercise_table()):
        if match := re.fullmatch(r"\{ref\}`(\S+) <exercise-(\S+)>`", link):
            assert match[1].replace(".", "-") == match[2] and match[1] not in found
            number, page = re.fullmatch(r"\{doc\}`(\S+) .+ </(\S+)>`", chapter).groups()
            assert order[page] == number
            found[match[1]] = title, kind, mark, minutes, page
    written = {id: one for id, (_, one) in solved.written().items()}
    assert found.keys() == written.keys() and len(found) > 150
    for id, (path, one) in solved.written().items():
        title = f"{one.title} (`{named[id]}`)" if id in named else one.title
        page = f"nbs/{path.parent.name}/{path.stem}"
        assert found[id] == (title, one.kind, one.mark, str(one.minutes), page)


def test_the_counts_add_up():
    head, _, *body = rows(exercise_count())
    assert head == ["kind", "must", "should", "could", "all", "minutes"]
    numbers = {kind: list(map(int, cells)) for kind, *cells in body}
    written = [one for _, one in solved.written().values()]
    assert numbers["all"] == [sum(n) for n in zip(*(numbers[k] for k in list(numbers)[:-1]))]
    assert numbers["all"][3:] == [len(written), sum(one.minutes for one in written)]
    assert numbers["build"][0] == numbers["all"][0] == len(STEPS)


def test_the_page_shows_both_and_the_commands_it_names_exist():
    page = PAGE.read_text()
    assert "```{exercise-count}\n```" in page and "```{exercise-table}\n```" in page
    assert re.search(r"^handout:", (solved.ROOT / "Makefile").read_text(), re.M)
    assert f"{len(STEPS)} of the *build* exercises" in page and f"{LAST} steps" in page
