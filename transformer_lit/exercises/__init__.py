"""The exercises of all chapters, and `check`, which answers them.

A chapter has questions in `<topic>.toml`, builds and repairs in `<topic>.py`, or both.
"""

import difflib
import importlib
import pkgutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from transformer_lit.course.exercises import (
    TASKS,
    Question,
    Task,
    Verdict,
    judge,
    kind_of,
    read_questions,
)
from transformer_lit.course.progress import remember

__all__ = ["check", "find_exercise"]
_HERE = Path(__path__[0])
_NO_TOPICS = ("my_transformer", "thread")  # of the reader's file, and its old name


@cache
def _topics() -> dict[str, bool]:
    "The topics, and whether a topic has a module."
    data = {path.stem: False for path in _HERE.glob("*.toml")}
    modules = {module.name: True for module in pkgutil.iter_modules(__path__)}
    return {name: has for name, has in (data | modules).items() if name not in _NO_TOPICS}


@cache
def _questions(topic: str) -> dict[str, Question]:
    return read_questions(_HERE / f"{topic}.toml")


def find_exercise(id: Any) -> Question | Task | Verdict:
    "The exercise of that name; where there is none, a verdict that says what names are near."
    if not isinstance(id, str):
        form = 'the name of the exercise comes first: check("attend.2", my_answer)'
        return Verdict("check", "unknown", f"Expected a name, got {kind_of(id)}; {form}.")
    topic = id.partition(".")[0]
    questions = _questions(topic) if topic in _topics() else {}
    if id in questions:
        return questions[id]
    if _topics().get(topic):
        importlib.import_module(f"{__name__}.{topic}")
    if id in TASKS:
        return TASKS[id]
    near = difflib.get_close_matches(id, [*questions, *TASKS, *_topics()], n=4) or _topics()
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
