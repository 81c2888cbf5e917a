"""The exercises of all chapters, one module for each, and `check`, which answers them."""

import difflib
import importlib
import pkgutil
from dataclasses import replace
from typing import Any

from transformer_lit.course.exercises import EXERCISES, Exercise, Verdict, judge, kind_of
from transformer_lit.course.progress import remember

__all__ = ["check", "find_exercise"]


def find_exercise(id: Any) -> Exercise | Verdict:
    "The exercise of that name; where there is none, a verdict that says what names are near."
    if not isinstance(id, str):
        form = 'the name of the exercise comes first: check("attend.2", my_answer)'
        return Verdict("check", "unknown", f"Expected a name, got {kind_of(id)}; {form}.")
    topics = {module.name for module in pkgutil.iter_modules(__path__)} - {"thread"}
    topic = id.partition(".")[0]
    if topic in topics and id not in EXERCISES:
        importlib.import_module(f"{__name__}.{topic}")
    if id in EXERCISES:
        return EXERCISES[id]
    near = difflib.get_close_matches(id, [*EXERCISES, *topics], n=4) or topics
    return Verdict(id, "unknown", f"There is no such exercise. Near: {', '.join(sorted(near))}.")


def check(id: Any, answer: Any = ...) -> Verdict:
    """The verdict on an answer to the exercise of that name. Anything may be handed over.

    It is the value of the call: the last line of a cell shows it, and nothing prints. What passes
    is remembered beside your `my_transformer.py`, where there is one.
    """
    found = find_exercise(id)
    if isinstance(found, Verdict):
        return found
    verdict = judge(found, answer)
    return replace(verdict, progress=remember([id])) if verdict else verdict
