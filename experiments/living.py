"""The reader's model: the largest learning rate that trains, and what `--write` takes."""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from experiments.runner import Experiment, Row
from transformer_lit.course.files import InputError
from transformer_lit.course.my_model import OWN_FILE, fitting, grow, solved_file

SEEDS = (3, 4, 5)  # the settings were chosen with 0, 1 and 2
RATES = (0.003, 0.006, 0.012, 0.024, 0.048)
BLOCK, LAST = 10, 19  # steps of the reader's file


@contextmanager
def solved(step: int) -> Iterator[Path]:
    "A file with the first steps solved."
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder, OWN_FILE)
        own.write_text(solved_file(step), encoding="utf-8")
        yield own


def trained(seed: int, rate: float, without: str, **more: int) -> Row:
    "One training run of the model of step 10; `nats` is None where it ends in nan."
    with solved(BLOCK) as own:
        parts = [part for part in fitting(own, [])[0] if part != without]
        try:
            nats = grow(own, parts, BLOCK, seed=seed, lr=rate, **more)["nats"]
        except InputError:
            nats = None
    return {"seed": seed, "rate": rate, "without": without, "nats": nats}


def rates(seeds: Sequence[int] = SEEDS, rates: Sequence[float] = RATES, **more: int) -> list[Row]:
    "Every rate, with the norms and without."
    rows = []
    for seed in seeds:
        for rate in rates:
            rows += [trained(seed, rate, without, **more) for without in ("", "RMSNorm")]
            print(*rows[-2:], sep="\n", flush=True)
    return rows


def spent() -> float:
    "Seconds of the processor in all processes that have ended."
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def clock(steps: Sequence[int] = range(1, LAST + 1), more: Sequence[str] = ()) -> list[Row]:
    "The command as a reader types it, after each step."
    rows = []
    program = "from transformer_lit.recipes.cli import main; raise SystemExit(main())"
    command = [sys.executable, "-c", program, "check", "--write", *more]
    for step in steps:
        with solved(step) as own:
            start, before = time.perf_counter(), spent()
            subprocess.run([*command, own], check=True, stdout=sys.stderr)
            seconds = time.perf_counter() - start
        rows.append({"step": step, "seconds": seconds, "processor": spent() - before})
        print(rows[-1], flush=True)
    return rows


LIVING_RATES = Experiment(
    "The reader's model after step 10, with the book's solutions, at other learning rates: 300 "
    "steps of Adam. without: RMSNorm is left out everywhere. nats: a letter, on 100 new stories; "
    "null where the training ends in nan. The settings were chosen with seeds 0 to 2.",
    rates,
    quick={"seeds": (3,), "rates": (0.003,), "steps": 2, "count": 2, "length": 7},
)
LIVING_CLOCK = Experiment(
    "transformer-lit check --write on a file with the first `step` steps solved. seconds: from the "
    "call to its end; processor: seconds of the processor, in all its processes.",
    clock,
    quick={"steps": (1,), "more": ("--steps", "2")},
)
