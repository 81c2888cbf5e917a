"""Settings that a person gives by name: what each means, and whether a value fits its type."""

import inspect
import math
import re
from contextlib import suppress
from dataclasses import fields
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from transformer_lit.course.files import InputError

_FIELD = re.compile(r"^    (\w+): [^#\n]*#\s*(.+)$", re.M)
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}


def field_words(kind: type) -> dict[str, str]:
    "What each field of a dataclass means: the comment behind it, in its class or one above."
    words = {field.name: "" for field in fields(kind)}
    for above in reversed(kind.__mro__[:-1]):
        try:
            found = _FIELD.findall(inspect.getsource(above))
        except OSError:  # typed into an interpreter
            continue
        words |= {name: said for name, said in found if name in words}
    return words


def nearest(name: str, known: Any) -> str:
    "A question that names the known name of these initials, or the nearest; empty where none is."
    initials = "".join(word[:1] for word in name.split("_"))  # learning_rate: lr
    found = [initials] if initials in known else get_close_matches(name, known, 1, 0.5)
    return f"did you mean {found[0]}?" if found else ""


def fitted(name: str, value: Any, kind: Any) -> Any:
    "The value, from its text too, where it is of that type; `InputError` where it is not."
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for option in options:
        with suppress(TypeError, ValueError, KeyError):
            return _as(value, option)
    raise InputError(f"{name} must be {' or '.join(map(_in_words, options))}, got {value!r}")


def _in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return "two numbers with a comma" if len(get_args(kind)) == 2 else "names"
    return "none" if kind is NoneType else _WORDS.get(kind, f"a {getattr(kind, '__name__', kind)}")


def _as(value: Any, kind: Any) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal and value in parts:
        return value
    if origin is tuple:
        values = value.split(",") if isinstance(value, str) else list(value)
        kinds = parts[:1] * len(values) if parts[-1] is ... else parts
        return tuple(_as(one, kind) for one, kind in zip(values, kinds, strict=True))
    if kind in (bool, NoneType):
        value = {"true": True, "false": False, "none": None}.get(str(value).lower(), value)
    elif kind in (int, float):
        value = kind(value) if isinstance(value, str) else value
        if isinstance(value, bool) or not math.isfinite(value):
            raise TypeError(value)
        kind = int | float if kind is float else int
    if not isinstance(value, origin or kind):
        raise TypeError(value)
    return value
