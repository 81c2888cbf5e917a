"""The exercises of all chapters, and `check`, which responds to answers.

A chapter has questions in `<topic>.toml`, builds and repairs in `<topic>.py`, or both.
"""

import builtins
import difflib
import importlib
import pkgutil
import sys
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
from transformer_lit.course.my_model import write_part
from transformer_lit.course.progress import remember

__all__ = ["check", "find_exercise"]
_HERE = Path(__path__[0])
_NO_TOPICS = ("my_transformer", "thread")  # the reader's file, and its old name


@cache
def _topics() -> dict[str, bool]:
    "The topics, and whether each one has a module."
    data = {path.stem: False for path in _HERE.glob("*.toml")}
    modules = {module.name: True for module in pkgutil.iter_modules(__path__)}
    return {name: has for name, has in (data | modules).items() if name not in _NO_TOPICS}


@cache
def _questions(topic: str) -> dict[str, Question]:
    return read_questions(_HERE / f"{topic}.toml")


def find_exercise(id: Any) -> Question | Task | Verdict:
    "The exercise of that name, or a verdict that suggests similar names."
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
    return Verdict(id, "unknown", f"There is no such exercise. Try: {', '.join(sorted(near))}.")


def check(id: Any, answer: Any = ..., *, write: bool = False) -> Verdict:
    """The verdict on an answer to the exercise of that name. The answer may be any object.

    A notebook shows the verdict as the value of a cell's last line; in a script it is printed. An
    exercise that passes is recorded next to your `my_transformer.py`, if you have one. With
    `write`, an answer that passes and is a step of that file is also written into it: it replaces
    the function or class of that name, or is added at the end.
    """
    found, shown = find_exercise(id), hasattr(sys, "ps1") or hasattr(builtins, "get_ipython")
    verdict = found if isinstance(found, Verdict) else judge(found, answer)
    if verdict:
        verdict = replace(verdict, progress=remember([id]))
        steps = importlib.import_module(f"{__name__}.my_transformer").STEPS
        if id in steps and (write or shown):
            offer = f'To keep it in your file: check("{id}", {steps[id].name}, write=True)'
            note = write_part(answer, steps[id].name) if write else offer
            verdict = replace(verdict, notes=(*verdict.notes, note))
    if not shown:
        print(verdict)
    return verdict
