"""Settings, given by name or read from a file: what each means, and whether it fits its type."""

import inspect
import math
import re
import reprlib
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

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
    try:
        return _as(value, kind)
    except (TypeError, ValueError, OverflowError):
        wanted, got = " or ".join(map(_in_words, _options(kind))), reprlib.repr(value)
        raise InputError(f"{name} must be {wanted}, got {got}") from None


def typed(kind: type, values: Any, path: str | Path) -> dict[str, Any]:
    """The table that was read from a file of ours, its fields in the types of `kind`.

    `kind` is a dataclass, or a TypedDict, which lets further fields pass. `InputError` names the
    file and the field that is missing, unknown or of another type.
    """
    if not isinstance(values, dict):
        raise InputError(f"{path} is not a table of settings")
    if is_dataclass(kind):
        kinds = {field.name: field.type for field in fields(kind)}
        needed = {f.name for f in fields(kind) if f.default is f.default_factory is MISSING}
        if unknown := values.keys() - kinds:
            raise InputError(f"{path}: {min(unknown)} is unknown")
    else:
        kinds, needed = get_type_hints(kind), kind.__required_keys__
    if missing := needed - values.keys():
        raise InputError(f"{path}: {min(missing)} is missing")
    known = {name: value for name, value in values.items() if name in kinds}
    return values | {k: fitted(f"{path}: {k}", value, kinds[k]) for k, value in known.items()}


def _options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return "names" if ... in get_args(kind) else "two numbers with a comma"
    if get_origin(kind) in (dict, list):
        what, each = "table" if get_origin(kind) is dict else "list", get_args(kind)[-1]
        return f"a {what}" + ("" if each is Any else f" in which each is {_in_words(each)}")
    return "none" if kind is NoneType else _WORDS.get(kind, f"a {getattr(kind, '__name__', kind)}")


def _as(value: Any, kind: Any) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if len(_options(kind)) > 1:
        for option in parts:
            with suppress(TypeError, ValueError, OverflowError):
                return _as(value, option)
        raise TypeError(value)
    if origin is dict and isinstance(value, dict):
        return {key: _as(one, parts[1]) for key, one in value.items()}
    if origin is list and isinstance(value, list):
        return [_as(one, parts[0]) for one in value]
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
