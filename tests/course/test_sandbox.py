"""Whatever a function does, it ends in time, in one line, and leaves nothing behind."""

import contextlib
import linecache
import re
import signal
import sys
import threading
import time

import pytest
import torch

from transformer_lit.course.sandbox import Found, Prints, call_safely

STOP = threading.Event()  # so that what a test leaves behind ends after it


@pytest.fixture(autouse=True)
def stop():
    STOP.clear()
    yield
    STOP.set()


def found(function, seconds=60, prints=None):
    "What is found about a function that gives no result."
    with pytest.raises(Found) as caught:
        call_safely(function, seconds, prints or Prints())
    assert "\n" not in caught.value.line
    return caught.value


@pytest.mark.parametrize(
    "error,words",
    [
        (ValueError("now"), "ValueError: now"),
        (SystemExit("bye"), "SystemExit: bye"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (RuntimeError("first\nsecond"), "RuntimeError: first"),
        (
            RuntimeError("loading:\n\tMissing: a.\n\tMore: b."),
            "RuntimeError: loading: Missing: a. More: b",
        ),
        (ValueError("x" * 1009), "ValueError: " + "x" * 188),
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


def test_the_line_is_the_reader_s_and_not_that_of_a_helper_from_another_cell():
    helper = "def helper(parts):\n    return parts[7]\n"
    linecache.cache["another cell"] = len(helper), None, helper.splitlines(True), "another cell"
    exec(compile(helper, "another cell", "exec"), names := {})

    def mine():
        return names["helper"]([])  # mine

    assert found(mine).line.endswith("# mine")


def test_prints_become_notes_and_only_the_first(capsys):
    def chatty():
        for i in range(3000):
            print("line", i)
        print("to stderr", file=sys.stderr)

    call_safely(chatty, 60, prints := Prints())
    assert prints.notes() == tuple(f"It printed: line {i}" for i in range(5))
    assert len(prints.text) == 600
    assert capsys.readouterr() == ("", "")


# --- time ----------------------------------------------------------------------------------------


def endless():
    while True:
        pass


def endless_and_deaf():
    while not STOP.is_set():
        with contextlib.suppress(BaseException):
            time.sleep(0.01)


def busy_in_c():
    STOP.wait()


@pytest.mark.parametrize("function", [endless, endless_and_deaf, busy_in_c])
def test_what_does_not_end_is_left_in_time(function):
    "The second swallows every exception that it can, the third hears none."
    began = time.monotonic()
    assert found(function, 0.3).line.startswith("It did not end within 0.3 seconds. Line ")
    assert time.monotonic() - began < 10


def test_what_ends_late_is_no_result():
    "A regular expression keeps Python to itself until it ends: nobody can stop it in time."
    line = found(lambda: re.fullmatch("(a|aa)+b", 33 * "a"), 0.05).line
    assert line.startswith("It did not end within 0.05 seconds.")


def test_an_interrupt_ends_the_call_and_not_the_caller():
    "A signal, which also wakes whoever waits: what a terminal sends."
    threads = []

    def interrupted():
        threads.append(threading.get_ident())
        time.sleep(0.2)  # the caller waits by then
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        endless()

    # a process that a shell began in the background ignores Ctrl-C
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert found(interrupted).line.startswith("You interrupted it. Line ")
    finally:
        signal.signal(signal.SIGINT, before)
    assert threads[0] not in sys._current_frames()  # nothing goes on
