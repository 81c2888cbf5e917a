"""Each key of a published file is read with its type, ignored by name, or refused."""

import math

import pytest

from transformer_lit.course.files import InputError
from transformer_lit.course.settings import (
    NULL,
    SWITCH,
    TABLE,
    WORD,
    PublishedSettings,
    either,
    listed,
    number,
    one_of,
    whole,
)

INNER = {"kind": one_of("yarn", 1), "old": "an older name"}
KNOWN = {
    "size": whole(1, 97),
    "eps": number(1e-30, 1),
    "on": SWITCH,
    "name": WORD,
    "ids": either(whole(0), listed(whole(0)), NULL),
    "inner": TABLE,
    "torch_dtype": "the caller chooses the type",
}
GOOD = {"size": 97, "eps": 1, "on": False, "name": "x", "ids": [3, 5], "inner": {"kind": 1}}
BAD = {
    "size": [0, 98, 2.5, 5.0, True, "5", [5]],
    "eps": [0, -1, 1.5, math.nan, math.inf, 10**400, True, "1e-5"],
    "on": [0, 1, "true"],
    "name": [5, ["x"], {}],
    "ids": [-1, [-1], [[1]], True, "1", {}],
    "inner": [[], 5, "yarn"],
}


def settings(**said):
    return PublishedSettings(said, "f/config.json", KNOWN)


@pytest.mark.parametrize("name", GOOD)
def test_a_value_of_its_type_is_read_and_another_is_refused_with_file_and_key(name):
    assert settings(**GOOD)[name] == GOOD[name]
    for value in BAD[name]:
        with pytest.raises(InputError, match=f"^f/config.json sets {name} to .*; it must be "):
            settings(**{name: value})[name]


def test_null_is_a_value_only_where_the_key_has_it():
    c = settings(ids=None, size=None)
    assert c["ids"] is None and c.get("ids", 3) == 3 and c.get("size", 7) == 7
    for given, name in ((c, "size"), (settings(), "size"), (settings(), "ids")):
        with pytest.raises(InputError, match=f"^f/config.json doesn't set {name}. Add it"):
            given[name]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, None),
        ({"torch_dtype": "bfloat16", "unknown": None}, None),
        ({"unknown": 0}, "f/config.json sets unknown to 0, which nothing here reads"),
        ({"size": 5}, "f/config.json sets size to 5, which"),  # known, but not read by this model
        ({"inner": {"old": 5}}, None),
        ({"inner": {"kind": "yarn"}}, "inner in f/config.json sets kind to .yarn., which"),
        ({"inner": {"new": [1] * 99}}, r"inner in f/config.json sets new to \[1, .*…, which"),
        (
            {"unknown": "\x1b]0;\x9b\u202e"},
            r'f/config.json sets unknown to "\\u001b\]0;\\x9b\\u202e"',
        ),
    ],
)
def test_what_was_not_read_is_refused(more, words):
    c = settings(name="x", **more)
    assert c["name"] == "x" and ("inner" not in c or c.table("inner", INNER))
    if words is None:
        return c.refuse_unread()
    with pytest.raises(InputError, match=f"^{words}"):
        c.refuse_unread()
