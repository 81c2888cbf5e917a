"""A verdict on an answer that ran in another process, whose word counts only against the answer.

That process runs the check and writes down each value that the check compares. Here, where the
answer never ran, those values are compared once more, with what the solution gives.
"""

import base64
from functools import cache
from typing import Any

import torch
from torch import Tensor

from transformer_lit.course.exercises import (
    Question,
    Task,
    Verdict,
    difference,
    each_comparison,
    judge,
    kind_of,
)

_DTYPES = {str(x): x for x in vars(torch).values() if isinstance(x, torch.dtype)}


def as_text(x: Any) -> str:
    "What another process sent, as a text that can be printed."
    return str(x)[:2000].encode(errors="replace").decode()


def as_notes(x: Any) -> tuple[str, ...]:
    "The same of a list of texts."
    return tuple(map(as_text, x[:20])) if isinstance(x, list) else ()


def claim(one: Question | Task, answer: Any) -> tuple[Verdict, dict[str, Any]]:
    "The verdict of this process, and the same for JSON, with the values that were compared."
    values = []
    with each_comparison(lambda found, right, tolerance: values.append(_plain(found))):
        verdict = judge(one, answer)
    values = [_plain(answer)] if isinstance(one, Question) else values
    return verdict, verdict.as_dict() | {"values": values}


def confirmed(one: Question | Task, claimed: Any) -> Verdict:
    "The verdict on a claim: one that fails is taken as it is, one that passes is compared."
    try:
        notes = as_notes(claimed["notes"])
        if isinstance(one, Question):
            return judge(one, _restored(claimed["values"][0]))
        if claimed["state"] in ("open", "not yet"):
            return Verdict(one.id, claimed["state"], as_text(claimed["line"]), notes)
        right, found = right_values(one), [_restored(value) for value in claimed["values"]]
        differs = None if len(right) == len(found) else "values are missing"
        for (value, tolerance), other in zip(right, found):
            differs = differs or difference(value, other, tolerance, True)
    except Exception as error:  # whatever the other process has sent
        differs, notes = type(error).__name__, ()
    if not differs:
        return Verdict(one.id, "passed", "That is right.", notes)
    line = "Its own process says that it passes, and the values that it sent are not right"
    return Verdict(one.id, "not yet", as_text(f"{line}: {differs}."), notes)


@cache
def right_values(task: Task) -> list[tuple[Any, float]]:
    "What the check of a task compares an answer's values with, and how far these may be off."
    values = []
    with each_comparison(lambda found, right, tolerance: values.append((right, tolerance))):
        judge(task, task.solution)
    return values


def _plain(x: Any) -> Any:
    "A value as JSON can hold it: tensors as bytes, and of any other object only what kind it is."
    try:
        if x is None or type(x) in (bool, int, float, str):
            return x
        if isinstance(x, Tensor):
            flat = x.detach().cpu().clone(memory_format=torch.contiguous_format).flatten()
            data = base64.b64encode(flat.view(torch.uint8).numpy().tobytes()).decode()
            return {"tensor": data, "dtype": str(x.dtype), "shape": [*x.shape]}
        if isinstance(x, dict):
            return {"dict": [[_plain(key), _plain(value)] for key, value in x.items()]}
        if isinstance(x, list | tuple):
            return [_plain(value) for value in x]
        if hasattr(x, "tolist"):  # arrays and their numbers
            return _plain(x.tolist())
    except Exception:  # a sparse tensor, a list in itself
        pass
    return {"object": kind_of(x)}


class _Other:
    "An object that did not cross: no value is the same."


def _restored(x: Any) -> Any:
    "What `_plain` has written; any exception where it has not."
    if isinstance(x, list):
        return [_restored(value) for value in x]
    if not isinstance(x, dict):
        return x
    if "dict" in x:
        return {key: _restored(value) for key, value in x["dict"]}
    if "tensor" not in x:
        return _Other()
    data, dtype = bytearray(base64.b64decode(x["tensor"])), _DTYPES[x["dtype"]]
    return (torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)).view(
        x["shape"]
    )
