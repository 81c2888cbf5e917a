"""Settings that a person gives by name or a published file holds: whether each fits its type."""

import inspect
import json
import math
import re
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
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


@dataclass(frozen=True)
class Key:
    "The values that a key of a published file may have; the functions below make the usual ones."

    words: str  # behind "must be"
    fits: Callable[[Any], bool]
    null: bool = False  # whether null is a value; otherwise it counts as a key that is missing


_LARGEST = 2**63  # no size of a model is larger, and no row of a table


def whole(low: int = 0, high: int = _LARGEST) -> Key:
    "A whole number from `low` to `high`."
    words = f"of at least {low}" if high == _LARGEST else f"from {low} to {high}"
    return Key(
        f"a whole number {words}",
        lambda x: isinstance(x, int) and not isinstance(x, bool) and low <= x <= high,
    )


def number(low: int | float = -1e9, high: int | float = 1e9) -> Key:
    "A finite number from `low` to `high`."
    return Key(
        f"a number from {low:g} to {high:g}",
        lambda x: isinstance(x, int | float) and not isinstance(x, bool) and low <= x <= high,
    )


def one_of(*values: Any) -> Key:
    "One of these values, of the same type."
    typed = {(type(value), value) for value in values}
    words = " or ".join(map(json.dumps, values))
    return Key(words, lambda x: isinstance(x, Hashable) and (type(x), x) in typed)


def listed(key: Key) -> Key:
    "A list of such values."
    return Key(f"a list, each {key.words}", lambda x: isinstance(x, list) and all(map(key.fits, x)))


def either(*keys: Key) -> Key:
    "What fits one of these keys; null too if it is a value of one."
    words = " or ".join(key.words for key in keys)
    return Key(words, lambda x: any(key.fits(x) for key in keys), any(key.null for key in keys))


SWITCH, WORD = one_of(True, False), Key("a word", lambda x: isinstance(x, str))
TABLE, NULL = Key("a table", lambda x: isinstance(x, dict)), Key("null", lambda x: False, True)


class PublishedSettings(dict):
    """What one published file says: each of its keys is read, ignored by name, or refused.

    `known` gives the `Key` of what may be read, and the reason why another key is ignored. A key is
    marked when it is read, and `refuse_unread` refuses those that nothing has read: so there is no
    key without an outcome. `InputError` names the place (the file) and the key.
    """

    def __init__(self, said: Mapping[str, Any], place: Any, known: Mapping[str, Key | str]):
        super().__init__(said)
        self.place, self.known, self.been_read, self.tables = place, known, set(), {}

    def __getitem__(self, name: str) -> Any:
        self.been_read.add(name)
        key, value = self.known[name], super().get(name)
        if value is None:
            if name in self and key.null:
                return None
            return self.__missing__(name)
        if not key.fits(value):
            raise InputError(f"{self.place} sets {name} to {shown(value)}; it must be {key.words}")
        return value

    def __missing__(self, name: str) -> Any:
        raise InputError(f"{self.place} does not say {name}")

    def get(self, name: str, default: Any = None) -> Any:
        "The value of a key, or `default` where the file has none."
        self.been_read.add(name)
        return default if super().get(name) is None else self[name]

    def table(self, name: str, known: Mapping[str, Key | str]) -> "PublishedSettings":
        "The keys of a table in the table, which are read as these are; none where it is missing."
        if name not in self.tables:
            place = f"{name} in {self.place}"
            self.tables[name] = PublishedSettings(self.get(name, {}), place, known)
        return self.tables[name]

    def refuse_unread(self) -> None:
        "`InputError` for a key that was neither read nor is ignored by name; null says nothing."
        for name, value in self.items():
            ignored = isinstance(self.known.get(name), str) or value is None
            if name not in self.been_read and not ignored:
                raise InputError(
                    f"{self.place} sets {name} to {shown(value)}, and nothing here reads that; if "
                    f"the model does not depend on it, remove {name} from the file"
                )
        for inner in self.tables.values():
            inner.refuse_unread()


def shown(value: Any) -> str:
    "A value as JSON has it, cut where it is long; nothing in it moves the terminal's cursor."
    text = json.dumps(value, ensure_ascii=False, default=repr)
    text = text if len(text) <= 60 else f"{text[:59]}…"
    return "".join(x if x.isprintable() else repr(x)[1:-1] for x in text)
