"""The memory of a training step: our models beside other libraries' of the same sizes and weights.

`python -m benchmarks.memory` counts what torch holds for tensors during one step, and writes the
table of the results page. A count is exact, so nothing needs to be quiet. `--quick` takes tiny
sizes and stores nothing.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.common import MIB, command_line, report
from benchmarks.models import TINY, Row, Setting, training
from benchmarks.table import memory_table, put_table
from transformer_lit.course.records import read_measurement

BATCH = {"translator": 256, "gpt": 16, "llama": 16}
STEPS = [Row(model, "train", n, dtype) for model, n in BATCH.items() for dtype in ("fp32", "bf16")]
ABOUT = (
    "mib: the most MiB that the tensors of one training step of `side` hold at a time, beside "
    "weights and state of the optimiser: what autograd keeps for the way back, and gradients. "
    "`batch` rows of 256 tokens (translator: pairs of 8 to 20), fused AdamW, no dropout, bf16 by "
    "autocast; sizes as in benchmarks-cpu, whose peers these are."
)


def most_held(work: Callable[[], Any]) -> int:
    "Bytes: the largest sum of what torch has allocated and not yet freed since `work` began."
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    return max(accumulate(e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())))


def measured(setting: Setting) -> list[dict[str, Any]]:
    "A row for each side of each step, ours first."
    rows = []
    for row in STEPS:
        sides, _ = training(row, setting, "cpu")
        for name, step in sides.items():
            step()  # the first one makes the state of the optimiser
            rows.append({"row": row.name, **vars(row), "side": name, "mib": most_held(step) / MIB})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    "Count, print and store; the results page gets its table."
    parser = command_line(__doc__, quick="tiny sizes")
    parser.add_argument("--page", type=Path, default="book/runs.md", help="has the table")
    given = parser.parse_args(arguments)
    torch.manual_seed(0)
    rows, name = measured(TINY if given.quick else Setting()), "training_memory"
    report(name, ABOUT, "python -m benchmarks.memory", rows, given)
    if not given.quick:
        record = read_measurement(Path(given.out) / f"{name}.json")
        put_table(given.page, "memory", memory_table(record))


if __name__ == "__main__":
    main()
