"""Whatever a program does, it is told in one line, and its prints stay apart."""

import io
import sys

import pytest
import torch

from transformer_lit.course.sandbox import Found, printed, watched


def found(function):
    "What is found about a function that fails."
    with pytest.raises(Found) as caught, watched(io.StringIO()):
        function()
    assert "\n" not in caught.value.line
    return caught.value


class Mute(Exception):
    "Whose words fail themselves."

    def __str__(self):
        return self.args[5]


@pytest.mark.parametrize(
    "error,words",
    [
        (ValueError("now"), "ValueError: now"),
        (SystemExit("bye"), "SystemExit: bye"),
        (RuntimeError("first\nsecond"), "RuntimeError: first"),
        (
            RuntimeError("loading:\n\tMissing: a.\n\tMore: b."),
            "RuntimeError: loading: Missing: a. More: b",
        ),
        (ValueError("x" * 1009), "ValueError: " + "x" * 188),
        (ValueError(), "ValueError"),
        (Mute(), "Mute"),
    ],
    ids=repr,
)
def test_an_error_is_one_short_line_with_the_line_of_its_author(error, words):
    def fails():
        raise error

    assert found(fails).line.startswith(f"Your code raised {words}. Line ")
    assert found(fails).line.endswith(": raise error")


def test_the_line_of_the_reader_is_shown_and_none_of_a_library():
    def mine():
        return torch.stack([torch.ones(5), torch.ones(7)])  # torch raises, here

    line = found(mine).line
    assert "raised RuntimeError" in line and line.endswith("# torch raises, here")


def test_prints_become_notes_and_only_the_first(capsys):
    prints = io.StringIO()
    with watched(prints):
        print("to stderr", file=sys.stderr)
        for i in range(3000):
            print("line", i)
    assert printed(prints) == (
        "It printed: to stderr",
        *(f"It printed: line {i}" for i in range(4)),
    )
    assert capsys.readouterr() == ("", "")
