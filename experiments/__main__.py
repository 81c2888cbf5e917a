"""Repeat an experiment of the book, and write its record: `python -m experiments NAME`.

An interrupted run goes on with what is missing. `--quick` trains a few steps on what is always at
hand, for a few of the cells, and stores nothing.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import command_line, report
from experiments.few_bits import FEW_BITS
from experiments.ladder import LADDER, LADDER_LOSSES
from experiments.living_page import LIVING_PAGE
from experiments.race import RACE
from experiments.runner import Row
from experiments.since_2023 import SINCE_2023, SINCE_2023_CLOCK
from experiments.sizes import SIZES
from experiments.steady import STEADY
from experiments.ten_minutes import TEN_MINUTES
from experiments.three_minutes import LADDER as THREE_MINUTES_LADDER
from experiments.three_minutes import THREE_MINUTES
from transformer_lit.training.options import keep_freed_memory

EXPERIMENTS = {  # each leaves a record of its name
    "few_bits": FEW_BITS,
    "ladder": LADDER,
    "ladder_losses": LADDER_LOSSES,
    "living_page": LIVING_PAGE,
    "race": RACE,
    "since_2023": SINCE_2023,
    "since_2023_clock": SINCE_2023_CLOCK,
    "sizes": SIZES,
    "steady": STEADY,
    "ten_minutes": TEN_MINUTES,
    "three_minutes": THREE_MINUTES,
    "three_minutes_ladder": THREE_MINUTES_LADDER,
}


def main(argv: Sequence[str] | None = None) -> list[Row]:
    "Run one, print its rows, and store them unless `--quick`."
    parser = command_line(__doc__, quick="a few steps, a few cells")
    parser.add_argument("name", choices=EXPERIMENTS)
    parser.add_argument("--device", default="cpu", help="of the trainings; or auto")
    parser.add_argument("--kept", default="runs", help="folder for the rows of an unfinished run")
    given = parser.parse_args(argv)
    keep_freed_memory()
    experiment, kept = EXPERIMENTS[given.name], Path(given.kept, f"{given.name}.json")
    rows = experiment.run(quick=given.quick, device=given.device, kept=kept)
    command = f"python -m experiments {given.name}"
    report(given.name, experiment.about, command, rows, given)
    if not given.quick:
        kept.unlink(missing_ok=True)
    return rows


if __name__ == "__main__":
    main()
