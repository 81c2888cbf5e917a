"""What the page asks: the verdict of the package's own `check`, or a model of what was written."""

import contextlib
import gc
import importlib
import io
import json
import linecache
from array import array
from pathlib import Path

from transformer_lit.page import torch_names

torch_names.install()

from transformer_lit.course import autograd, my_model, sandbox  # noqa: E402
from transformer_lit.course.exercises import Verdict  # noqa: E402
from transformer_lit.course.files import InputError  # noqa: E402
from transformer_lit.exercises import check, find_exercise  # noqa: E402

gc.freeze()  # what is there now stays, and need not be looked at again
LEAST = 4000  # multiplications of a product for which the way to JavaScript pays
LAST = 14  # the last step whose own number a short text shows


def names_for(id: str) -> dict:
    "What an answer may use: what its chapter exports and what the checks import, as in a notebook."
    topic, space = id.partition(".")[0], {"__name__": "__main__"}
    for module in (torch_names.FACTS["chapters"].get(topic), f"transformer_lit.exercises.{topic}"):
        space |= vars(importlib.import_module(module)) if module else {}
    return space | {"__name__": "__main__", "check": check}


def verdict(id: str, text: str) -> Verdict:
    one = find_exercise(id)
    if isinstance(one, Verdict) or not hasattr(one, "name"):
        return check(id)
    space, file, prints = names_for(id), f"<{id}>", io.StringIO()
    space.pop(one.name, None)  # the solution
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    try:
        with sandbox.sealed(), sandbox.watched(prints):
            exec(compile(text, file, "exec"), space)
    except sandbox.Found as found:
        return Verdict(id, "not yet", found.line, (*found.notes, *sandbox.printed(prints)))
    except NotImplementedError as error:
        return Verdict(id, "not yet", sandbox.explained(error))
    return check(id, space.get(one.name, ...))


def run(id: str, text: str) -> str:
    "The verdict as JSON. What the page's torch lacks is a verdict too, and no judgement."
    torch_names.lacking.clear()
    with contextlib.suppress(torch_names.MissingName), contextlib.redirect_stdout(io.StringIO()):
        found = verdict(id, text).as_dict()
    for missing in torch_names.lacking[:1]:  # even if the answer caught it
        found = {"id": id, "state": "not here", "line": str(missing), "notes": []}
        found["missing"] = missing.name
    torch_names.lacking.clear()
    gc.collect()  # a page's memory grows with each error that still holds tensors
    return json.dumps(found)


def train(step: int, text: str, tell) -> str:
    """What the model of a file learns and writes at the page's size, as JSON.

    `tell` is called with the number of each step of the training. With `line`, there is no model.
    """
    file, done = Path("my_transformer.py"), iter(range(1, 10**6))
    file.write_text(text, encoding="utf-8")
    try:
        parts, said = my_model.fitting(file, [])
        found = my_model.grow(
            *(file, [*parts], min(step, LAST)),
            scale=my_model.IN_PAGE,
            progress=lambda: tell(next(done)),
        )
        found |= {"said": said}
    except InputError as error:
        found = {"line": f"my_transformer.py: {error}"}
    except torch_names.MissingName as missing:
        found = {"line": str(missing), "missing": missing.name}
    gc.collect()
    return json.dumps(found)


def use(js) -> None:
    "Large products by the page's kernel in JavaScript, which gets addresses of numbers."
    plain = autograd.dots

    def dots(a, b, k):
        m, n = (len(a) // k, len(b) // k) if k else (0, 0)
        if m * n * k < LEAST:
            return plain(a, b, k)
        x, y, out = array("d", a), array("d", b), array("d", bytes(8 * m * n))
        js.dots(*(numbers.buffer_info()[0] for numbers in (x, y, out)), m, k, n)
        return out.tolist()

    autograd.dots = dots
