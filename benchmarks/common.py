"""What the benchmarks share: command line, turns, interval of a median, peak, table, record."""

import argparse
import time
from collections.abc import Callable, Sequence
from math import comb
from pathlib import Path
from statistics import median
from typing import Any

import torch

from transformer_lit.course.records import (
    Measurement,
    current_commit,
    device_name,
    pick_device,
    write_record,
)

MIB = 2**20


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The median, and an interval that holds the true median with at least 95 %.

    Each value lies above the true median or below it, like a coin; so ranks give the bounds.
    """
    ordered, n = sorted(values), len(values)
    rank, tail = 0, 1 / 2**n  # probability that at most `rank` values lie below the median
    while tail + comb(n, rank + 1) / 2**n <= 0.025:
        rank += 1
        tail += comb(n, rank) / 2**n
    return median(ordered), ordered[rank], ordered[n - 1 - rank]


def compared(seconds: Sequence[Sequence[float]]) -> dict[str, float]:
    "How many times as long the first of two sides takes, turn by turn, with its interval."
    one, other = seconds
    middle, low, high = interval([a / b for a, b in zip(one, other, strict=True)])
    return {"pairs": len(one), "ratio": middle, "low": low, "high": high}


def take_turns(
    sides: Sequence[Callable[[], Any]],
    pairs: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Seconds of each side, turn by turn; the order changes from turn to turn.

    What else the machine does falls on all sides. `time.process_time` leaves out the waiting for a
    core that others use, but adds up threads: it is for one thread.
    """
    for side in sides:
        side()
    seconds: list[list[float]] = [[] for _ in sides]
    for turn in range(pairs):
        order = range(len(sides)) if turn % 2 else reversed(range(len(sides)))
        for i in order:
            start = clock()
            sides[i]()
            seconds[i].append(clock() - start)
    return seconds


def show(rows: Sequence[dict[str, Any]]) -> None:
    "Rows as a table; a column for each field."
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns]
    for row in rows:
        cells = [row.get(name, "") for name in columns]
        lines.append([f"{x:.3f}" if isinstance(x, float) else str(x) for x in cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)))


def command_line(doc: str, quick: str) -> argparse.ArgumentParser:
    "The options of every benchmark, under the first sentence of its text; it may add its own."
    parser = argparse.ArgumentParser(description=doc.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"{quick}; stores nothing")
    parser.add_argument("--out", default="results/measurements", help="folder of the records")
    return parser


def report(
    name: str, about: str, command: str, rows: list[dict[str, Any]], given: argparse.Namespace
) -> None:
    "Print the rows, without what is a list in them, and store them unless the run was quick."
    show([{k: x for k, x in row.items() if not isinstance(x, list)} for row in rows])
    if not given.quick:
        store(name, about, command, rows, given.out, getattr(given, "device", "cpu"))


def store(
    name: str,
    about: str,
    command: str,
    rows: list[dict[str, Any]],
    folder: str | Path,
    device: str = "cpu",
) -> None:
    "Write the record of a measurement to `folder/<name>.json`, and print its path."
    measurement = Measurement(
        name=name,
        about=about,
        command=command,
        commit=current_commit(),
        device=device_name(pick_device(device)),
        torch=torch.__version__,
        rows=rows,
    )
    print("written:", write_record(folder, measurement))
