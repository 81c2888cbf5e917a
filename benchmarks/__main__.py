"""Our models beside other libraries, all rows: `python -m benchmarks`, or `make bench`.

Writes results/benchmarks-DEVICE.json after each row, and at the end the table of the results page,
book/runs.md. A row that was measured at this commit, here, is kept; so a run that was cut off goes
on where it stopped. `--seconds` begins no row after that time: run it again until it exits with 0.
Rows that are named are measured anew. `--quick` takes tiny sizes and few turns, and stores nothing.
"""

import argparse
import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.common import show, store
from benchmarks.models import ROWS, TINY, Row, Setting, measure
from benchmarks.peers import HAS_LITGPT
from benchmarks.table import put_table, speed_table
from transformer_lit.course.records import (
    current_commit,
    device_name,
    pick_device,
    read_measurement,
)
from transformer_lit.training.options import keep_freed_memory

TURNS, QUICK_TURNS = 21, 3
SHOWN = ("row", "fastest", "ratio", "low", "high", "tokens_s", "not_run")  # what is printed
ABOUT = (
    "A row compares our model with peers of the same sizes and weights, sides in turn. work: train "
    "(mean loss over a batch, gradient, step of fused AdamW; no dropout; bf16 by autocast), greedy "
    "(48 tokens after each of `batch` prompts of 16, with a cache) or beam (24 tokens for each of "
    "`batch` sentences, 5 beams, which no token ends). gpt and llama: 6 layers, width 384, 6 heads,"
    " 256 tokens in the vocabulary, d_ff 1536 and 1024 with a gate; rows of 256 tokens. translator:"
    " 3 + 3 layers, width 256, 4 heads, d_ff 1024, 8,000 tokens in the vocabulary; `batch` pairs of"
    " 8 to 20 tokens. ratio: median over the turns of our time / that of `fastest`, the peer with "
    "the least median; low, high: its 95 % interval by order statistics; peers has all of them. "
    "tokens_s: tokens a second by the median time, of targets in train, new ones in decoding. "
    "profile, where a peer is faster by more than 2 %: milliseconds in each operation of torch "
    "itself, and its calls, in one turn. clock: process_time is the time on the core. Losses of "
    "three steps, or all tokens, were equal before the clock ran. nanoGPT and torch.nn have no "
    "cache and do not decode."
)


def machine() -> str:
    "The model of the processor and what it computes with."
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def about_run(device: str) -> dict[str, Any]:
    "Where, when and with what a row was measured: rows of one record may differ in it."
    here = pick_device(device)
    return {
        "machine": machine() if device == "cpu" else device_name(here),
        "device": device_name(here),
        "date": datetime.now(UTC).date().isoformat(),
        "commit": current_commit(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            **({"litgpt": version("litgpt")} if HAS_LITGPT else {}),
        },
    }


def no_unit(row: Row, device: str) -> bool:
    "Whether the processor would imitate bf16, at a tenth of its speed in fp32 or less."
    if row.dtype == "fp32" or device != "cpu":
        return False
    can = torch.cpu.get_capabilities()
    return not (can.get("avx512_bf16") or can.get("amx_bf16") or can.get("bf16"))


def recorded(path: Path) -> dict[str, dict[str, Any]]:
    "The rows that the record has, by name."
    return {row["row"]: row for row in read_measurement(path).rows} if path.exists() else {}


def is_done(row: dict[str, Any] | None, run: dict[str, Any]) -> bool:
    "Whether this very code measured a row on this machine."
    same = ("machine", "device", "commit", "versions")
    clean = not run["commit"].endswith("+")
    return row is not None and clean and all(row[name] == run[name] for name in same)


def measured(row: Row, given: argparse.Namespace) -> dict[str, Any]:
    if no_unit(row, given.device) and row.name not in given.rows and not given.quick:
        return {"row": row.name, **vars(row), "not_run": "the processor has no unit for bf16"}
    setting, turns = (TINY, QUICK_TURNS) if given.quick else (Setting(), TURNS)
    return measure(row, setting, turns, given.device)


def chosen(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__.split("\n\n")[0])
    parser.add_argument("rows", nargs="*", help=f"of: {', '.join(row.name for row in ROWS)}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of all sides")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no row after")
    parser.add_argument("--quick", action="store_true", help="tiny sizes; stores nothing")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the record")
    parser.add_argument("--page", type=Path, default=Path("book/runs.md"), help="has the table")
    given = parser.parse_args(arguments)
    known = {row.name for row in ROWS}
    if wrong := [name for name in given.rows if name not in known]:
        parser.error(f"No row named {wrong[0]!r}. Choose from: {', '.join(sorted(known))}")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    "Measure what is asked for and not yet there; 1 while a row is left."
    began, given = time.monotonic(), chosen(arguments)
    torch.set_num_threads(given.threads)
    keep_freed_memory()  # as our recipes do on a CPU; here for all sides
    run, name = about_run(given.device), f"benchmarks-{given.device}"
    path = given.out / f"{name}.json"
    rows = {} if given.quick else recorded(path)
    left = [row for row in ROWS if row.name in given.rows]
    if not given.rows:
        left = [row for row in ROWS if not is_done(rows.get(row.name), run)]
    while left and time.monotonic() - began < given.seconds:
        row = left.pop(0)
        rows[row.name] = measured(row, given) | run
        ordered = [rows[r.name] for r in ROWS if r.name in rows]
        if not given.quick:
            store(name, ABOUT, "python -m benchmarks", ordered, given.out, given.device)
    show([{k: x for k, x in row.items() if k in SHOWN} for row in rows.values()])
    if left:
        print("left:", ", ".join(row.name for row in left))
    elif not given.quick:
        put_table(given.page, "speed", speed_table(read_measurement(path)))
    return bool(left)


if __name__ == "__main__":
    sys.exit(main())
