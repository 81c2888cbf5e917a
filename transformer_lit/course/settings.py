"""Settings, given by name or read from a file: what each one means, and checks of its type."""

import inspect
import json
import math
import re
import reprlib
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from transformer_lit.course.files import InputError

_FIELD = re.compile(r"^    (\w+): [^#\n]*#\s*(.+)$", re.M)
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}


def field_words(kind: type) -> dict[str, str]:
    "What each field of a dataclass means: the comment after it, in its class or a base class."
    words = {field.name: "" for field in fields(kind)}
    for above in reversed(kind.__mro__[:-1]):
        try:
            found = _FIELD.findall(inspect.getsource(above))
        except OSError:  # the class was typed into an interpreter
            continue
        words |= {name: said for name, said in found if name in words}
    return words


def nearest(name: str, known: Any) -> str:
    "“did you mean …?” with the known name that has these initials or is nearest; else empty."
    initials = "".join(word[:1] for word in name.split("_"))  # learning_rate: lr
    found = [initials] if initials in known else get_close_matches(name, known, 1, 0.5)
    return f"did you mean {found[0]}?" if found else ""


def fitted(name: str, value: Any, kind: Any) -> Any:
    "The value in that type, converted from text if need be; `InputError` if it doesn't fit."
    try:
        return _as(value, kind)
    except (TypeError, ValueError, OverflowError):
        wanted, got = " or ".join(map(_in_words, _options(kind))), reprlib.repr(value)
        raise InputError(f"{name} must be {wanted}, got {got}") from None


def typed(kind: type, values: Any, path: str | Path) -> dict[str, Any]:
    """The table read from one of our own files, with each field converted to its type in `kind`.

    `kind` is a dataclass, or a TypedDict, which accepts further fields. Raises an `InputError` that
    names the file and the field if a field is missing, unknown or of the wrong type.
    """
    if not isinstance(values, dict):
        raise InputError(f'{path} is not a table of settings, {{"name": value}}. Restore the file')
    if is_dataclass(kind):
        kinds = {field.name: field.type for field in fields(kind)}
        needed = {f.name for f in fields(kind) if f.default is f.default_factory is MISSING}
        if unknown := values.keys() - kinds:
            raise InputError(f"{path}: {min(unknown)} is unknown. Restore the file")
    else:
        kinds, needed = get_type_hints(kind), kind.__required_keys__
    if missing := needed - values.keys():
        raise InputError(f"{path}: {min(missing)} is missing. Restore the file")
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


def shown(value: Any) -> str:
    "A value as JSON, cut short if it is long."
    value = value[:60].tolist() if isinstance(value, memoryview) else value  # numbers in a file
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else f"{text[:59]}…"


@dataclass(frozen=True)
class Key:
    "The values that a key of a published file may have. The functions below make the usual ones."

    words: str  # what comes after "must be"
    fits: Callable[[Any], bool]
    null: bool = False  # whether null is a value; if not, null counts as a missing key


_LARGEST = 2**63  # no size of a model is larger, and no row number


def whole(low: int = 0, high: int = _LARGEST) -> Key:
    "An integer from `low` to `high`."
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
    words = " or ".join(map(shown, values))
    return Key(words, lambda x: isinstance(x, Hashable) and (type(x), x) in typed)


def listed(key: Key) -> Key:
    "A list of such values."
    return Key(f"a list, each {key.words}", lambda x: isinstance(x, list) and all(map(key.fits, x)))


def either(*keys: Key) -> Key:
    "A value that fits one of these keys, or null if one of them accepts null."
    words = " or ".join(key.words for key in keys)
    return Key(words, lambda x: any(key.fits(x) for key in keys), any(key.null for key in keys))


SWITCH, WORD = one_of(True, False), Key("a word", lambda x: isinstance(x, str))
TABLE, NULL = Key("a table", lambda x: isinstance(x, dict)), Key("null", lambda x: False, True)


class PublishedSettings(dict):
    """The contents of one published file. Each key is read, ignored by name, or causes an error.

    `known` maps a key to the `Key` that its value must fit, or to the reason why it is ignored. A
    key is marked when it is read, and `refuse_unread` raises an error for keys that nothing has
    read, so no key is overlooked. An `InputError` names the place (the file) and the key.
    """

    defaults: Mapping[str, Any] = {}  # the values of keys that a file may leave out

    def __init__(self, said: Mapping[str, Any], place: Any, known: Mapping[str, Key | str]):
        super().__init__(said)
        self.place, self.known, self.been_read, self.tables = place, known, set(), {}

    def __getitem__(self, name: str) -> Any:
        self.been_read.add(name)
        key, value = self.known[name], super().get(name)
        if value is None and not (name in self and key.null):
            if name not in self.defaults:
                raise InputError(f"{self.place} doesn't set {name}. Add it, or copy the file again")
            value = self.defaults[name]
        if value is not None and not key.fits(value):
            raise InputError(f"{self.place} sets {name} to {shown(value)}; it must be {key.words}")
        return value

    def get(self, name: str, default: Any = None) -> Any:
        "The value of a key, or `default` if the key is missing or null."
        self.been_read.add(name)
        if super().get(name) is None and name not in self.defaults:
            return default
        return self[name]

    def only(self, **settings: Any) -> None:
        "Raise `InputError` unless each key is missing, null, or the value given (one of a tuple)."
        for name, values in settings.items():
            built = one_of(*(values if isinstance(values, tuple) else (values,)))
            self.known = self.known | {name: built}
            self.get(name)

    def table(self, name: str, known: Mapping[str, Key | str]) -> "PublishedSettings":
        "A table inside this one, whose keys are read in the same way."
        if name not in self.tables:
            self.tables[name] = PublishedSettings(self[name], f"{name} in {self.place}", known)
        return self.tables[name]

    def check_all(self) -> None:
        "Raise `InputError` for a key that is unknown or whose value doesn't fit."
        for name, key in self.known.items():
            _ = isinstance(key, Key) and self.get(name)
        self.refuse_unread()

    def refuse_unread(self, ignored: Collection[str] = ()) -> None:
        "Raise `InputError` for a key that was neither read nor ignored by name. Null is skipped."
        for name, value in self.items():
            named = name in ignored or isinstance(self.known.get(name), str)
            if value is not None and name not in self.been_read and not named:
                raise InputError(
                    f"{self.place} sets {name} to {shown(value)}, which nothing here reads. If the "
                    f"model doesn't depend on it, remove {name} from the file"
                )
        for inner in self.tables.values():
            inner.refuse_unread()
