"""What `help` and the reference page say of a name: its docstring, its parameters, an example.

A parameter's meaning is the comment behind it in the source. Where none stands, or one letter, it
means what it means everywhere: data/parameters.txt. The examples stand in data/examples.txt, and
the tests run them.
"""

import inspect
import re
import sys
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parents[1] / "data"
_COMMENT = re.compile(r"^ +\**(\w+)[:,].*?  # (.+)$", re.M)


@cache
def common_words() -> dict[str, str]:
    "What a parameter means wherever it stands, or in one place: `Class.parameter`."
    lines = (_DATA / "parameters.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines if ": " in line)


@cache
def examples() -> dict[str, str]:
    "For the names that are used most, what one types and what comes."
    text = (_DATA / "examples.txt").read_text(encoding="utf-8")
    parts = re.split(r"^(\w+)\n", text, flags=re.M)[1:]
    return dict(zip(parts[::2], (part.rstrip() for part in parts[1::2]), strict=True))


def _source(found: Any) -> str:
    if inspect.isclass(found) and is_dataclass(found):
        kinds = [kind for kind in reversed(found.__mro__) if is_dataclass(kind)]
        return "".join(_class_text(kind) for kind in kinds)
    return inspect.getsource(found.__init__ if inspect.isclass(found) else found)


def _class_text(kind: type) -> str:
    "As `inspect.getsource`, which parses the whole file for it."
    text = Path(sys.modules[kind.__module__].__file__).read_text(encoding="utf-8")
    return re.search(rf"^class {kind.__name__}\b.*?(?=^\S|\Z)", text, re.M | re.S)[0]


def parameter_words(found: Any) -> dict[str, str]:
    "What each parameter of a function, of a method or of a class means; empty where nobody says."
    try:
        names, text = inspect.signature(found).parameters, _source(found)
    except (TypeError, ValueError, OSError):  # of C, or typed into an interpreter
        return {}
    said, where = dict(_COMMENT.findall(text)), found.__qualname__
    words = {}
    for name, parameter in names.items():
        if name in ("self", "args", "kwargs") or name.startswith("_"):
            continue
        option = getattr(parameter.annotation, "__metadata__", [None])[0]  # of the command
        own = said.get(name, "") or getattr(option, "help", "")
        places = common_words().get(f"{where}.{name}"), own if len(own) > 1 else ""  # more than C
        words[name] = next(filter(None, places), common_words().get(name, ""))
    return words


def described(found: Any, doc: str) -> str:
    "The docstring with the parameters and the example behind it."
    words = {name: said for name, said in parameter_words(found).items() if said}
    rows = [f"    {name}: {said}" for name, said in words.items()]
    parts = [inspect.cleandoc(doc), "\n".join(["Args:", *rows]) if rows else ""]
    if example := examples().get(getattr(found, "__qualname__", "")):
        parts.append(f"Example:\n{example}")
    return "\n\n".join(filter(None, parts))


def describe(found: Any) -> Any:
    "Give a function, or a class and its methods, the docstring that `help` shows."
    if "__described__" in vars(found):
        return found
    found.__described__ = True
    methods = vars(found).items() if inspect.isclass(found) else ()
    own = [x for name, x in methods if inspect.isfunction(x) and not name.startswith("_")]
    for one in (found, *own):
        if doc := vars(one).get("__doc__") or one.__doc__:
            one.__doc__ = described(one, doc)
    return found
