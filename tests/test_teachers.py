"The page for teachers lists every exercise once, as its statement has it, and counts them right."

import re

import solved
from tables import exercise_count, exercise_tables

from transformer_lit.exercises.thread import STEPS

PAGE = solved.ROOT / "book/teachers.md"


def rows(lines):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]


def test_every_exercise_stands_there_once_as_it_is_written():
    named = {step.id: name for name, step in STEPS.items()}
    found = {}
    for link, title, kind, mark, minutes in rows(exercise_tables()):
        if match := re.fullmatch(r"\{ref\}`(\S+) <exercise-(\S+)>`", link):
            assert match[1].replace(".", "-") == match[2] and match[1] not in found
            found[match[1]] = title, kind, mark, minutes
    written = {id: one for id, (_, one) in solved.written().items()}
    assert found.keys() == written.keys() and len(found) > 150
    for id, one in written.items():
        title = f"{one.title} (`{named[id]}`)" if id in named else one.title
        assert found[id] == (title, one.kind, one.mark, str(one.minutes))


def test_each_chapter_is_named_with_its_sums():
    heads = [line for line in exercise_tables() if line.startswith("**")]
    assert len(heads) == len({path for path, _ in solved.written().values()})
    own = next(line for line in heads if "/nbs/attention/02_masks`" in line)
    masks = [one for path, one in solved.written().values() if path.name == "02_masks.ipynb"]
    minutes = sum(one.minutes for one in masks)
    assert own.endswith(f"first pass · {len(masks)} exercises · {minutes} minutes")


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
    assert "```{exercise-count}\n```" in page and "```{exercise-tables}\n```" in page
    assert re.search(r"^handout:", (solved.ROOT / "Makefile").read_text(), re.M)
    assert "Eighteen of the *build* exercises" in page and len(STEPS) == 18
