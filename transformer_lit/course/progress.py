"""What a reader has passed, kept in a file beside their `my_transformer.py`."""

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
    race: float  # bits a letter


@cache
def marks() -> dict[str, str]:
    "All exercises in the order of the book: name -> must, should or could."
    rows = MARKS.read_text(encoding="utf-8").splitlines()
    return dict(row.split("\t") for row in rows)


def kept(beside: str | Path = OWN_FILE) -> tuple[Path | None, dict[str, Any]]:
    """Where progress is kept and what it is; nowhere where a reader has no file of their own.

    TRANSFORMER_LIT_PROGRESS=off keeps nothing: a teacher checks the work of others.
    """
    if os.environ.get("TRANSFORMER_LIT_PROGRESS") == "off":
        return None, {}
    try:
        place = find_file(beside).parent / NAME
        return place, typed(_Kept, read_json(place), place) if place.exists() else {}
    except InputError:  # none, or not to be read
        return None, {}


def best_lap(bits: float, beside: str | Path = OWN_FILE) -> float:
    "Keep the best of the race, and give it: the fewest bits a letter so far, this run's included."
    place, found = kept(beside)
    best = min(bits, found.get("race", bits))
    if place is not None and best != found.get("race"):
        with suppress(OSError):
            write_json(place, found | {"race": best})
    return best


def remember(passed: Iterable[str], beside: str | Path = OWN_FILE) -> str:
    """Keep that these exercises were passed, and say how far the reader is.

    Counted are those that the first pass asks for, must and should, as on the site's first page.
    """
    place, found = kept(beside)
    if place is None:
        return ""
    done = {*found.get("passed", ()), *passed}
    ours = [id for id in marks() if id in done]  # those of this edition
    if ours != found.get("passed", []):
        with suppress(OSError):  # a folder that cannot be written to
            write_json(place, found | {"passed": ours})
    asked = [id for id, mark in marks().items() if mark != "could"]
    left = [id for id in asked if id not in done]
    after = f", next: {left[0]} ({marks()[left[0]]})" if left else ""
    return f"{len(asked) - len(left)} of {len(asked)} exercises of the first pass{after}"
