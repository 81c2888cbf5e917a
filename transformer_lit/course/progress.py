"""The exercises that a reader has passed, kept in a file next to their `my_transformer.py`."""

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

from transformer_lit.course.files import InputError, read_json, write_json
from transformer_lit.course.my_model import OWN_FILE, find_file
from transformer_lit.course.settings import typed

MARKS = Path(__file__).parents[1] / "data/exercises.tsv"  # book/marks.py writes it
NAME = "my_progress.json"


class _Kept(TypedDict, total=False):
    "The fields of that file."

    passed: list[str]  # ids of exercises
    race: float  # bits per letter


@cache
def marks() -> dict[str, str]:
    "All exercises in the book's order: name -> must, should or could."
    rows = MARKS.read_text(encoding="utf-8").splitlines()
    return dict(row.split("\t") for row in rows)


def kept(beside: str | Path = OWN_FILE) -> tuple[Path | None, dict[str, Any]]:
    """The path of the progress file and its contents; None if the reader has no file yet.

    With TRANSFORMER_LIT_PROGRESS=off nothing is kept, for a teacher who checks others' work.
    """
    if os.environ.get("TRANSFORMER_LIT_PROGRESS") == "off":
        return None, {}
    try:
        place = find_file(beside).parent / NAME
        return place, typed(_Kept, read_json(place), place) if place.exists() else {}
    except InputError:  # there is no file, or it can't be read
        return None, {}


def best_lap(bits: float, beside: str | Path = OWN_FILE) -> float:
    "Keep and return the best score of the race: the fewest bits per letter, this run included."
    place, found = kept(beside)
    best = min(bits, found.get("race", bits))
    if place is not None and best != found.get("race"):
        with suppress(OSError):
            write_json(place, found | {"race": best})
    return best


def remember(passed: Iterable[str], beside: str | Path = OWN_FILE) -> str:
    """Record that these exercises were passed, and return a line with the reader's progress.

    As on the site's first page, it counts the exercises of the first pass: must and should.
    """
    place, found = kept(beside)
    if place is None:
        return ""
    done = {*found.get("passed", ()), *passed}
    ours = [id for id in marks() if id in done]  # the ones in this edition
    if ours != found.get("passed", []):
        with suppress(OSError):  # the folder isn't writable
            write_json(place, found | {"passed": ours})
    asked = [id for id, mark in marks().items() if mark != "could"]
    left = [id for id in asked if id not in done]
    after = f", next: {left[0]} ({marks()[left[0]]})" if left else ""
    return f"{len(asked) - len(left)} of {len(asked)} exercises of the first pass{after}"
