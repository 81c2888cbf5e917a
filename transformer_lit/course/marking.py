"""The verdict on an answer that ran in another process, which can't simply claim to have passed.

The other process runs the check and records each value that the check compares. Here, where the
answer never ran, those values are compared again with the solution's. If the other process reports
a failure, it is believed.
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
    "A value from another process, as text that can be printed."
    return str(x)[:2000].encode(errors="replace").decode()


def as_notes(x: Any) -> tuple[str, ...]:
    "A list from another process, as texts that can be printed."
    return tuple(map(as_text, x[:20])) if isinstance(x, list) else ()


def claim(one: Question | Task, answer: Any) -> tuple[Verdict, dict[str, Any]]:
    "This process's verdict, and the same as JSON, with the values that were compared."
    values = []
    with each_comparison(lambda found, right, tolerance: values.append(_plain(found))):
        verdict = judge(one, answer)
    values = [_plain(answer)] if isinstance(one, Question) else values
    return verdict, verdict.as_dict() | {"values": values}


def confirmed(one: Question | Task, claimed: Any) -> Verdict:
    "The verdict on a claim. A failure is accepted as it is; a pass is compared again."
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
    except Exception as error:  # the other process can send anything
        differs, notes = type(error).__name__, ()
    if not differs:
        return Verdict(one.id, "passed", "That is right.", notes)
    line = "Its own process reports that it passes, but the values that it sent are not right"
    return Verdict(one.id, "not yet", as_text(f"{line}: {differs}."), notes)


@cache
def right_values(task: Task) -> list[tuple[Any, float]]:
    "The values that a task's check compares an answer's with, each with its tolerance."
    values = []
    with each_comparison(lambda found, right, tolerance: values.append((right, tolerance))):
        judge(task, task.solution)
    return values


def _plain(x: Any) -> Any:
    "A value in a form that JSON can hold: a tensor as bytes, other objects only as their kind."
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
    except Exception:  # a sparse tensor, or a list that contains itself
        pass
    return {"object": kind_of(x)}


class _Other:
    "An object that couldn't be sent. It is equal to no value."


def _restored(x: Any) -> Any:
    "The value that `_plain` wrote; raises any exception for anything else."
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
