"""One JSON record for each training run: what was trained, how, on what, and how well it did."""

import platform
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from transformer_lit.course.files import InputError, read_json, write_json
from transformer_lit.course.settings import typed


@dataclass(frozen=True)
class Result:
    "One training run: what was trained, how, on what, and how well it did."

    name: str
    task: str
    dataset: str
    direction: str  # "en-de"; empty if the task has no direction
    split: str  # on which `metrics` were measured
    command: str  # repeats the run
    commit: str  # of the code that ran
    config: dict[str, Any]
    parameters: int
    data_sha256: dict[str, str]
    seed: int
    device: str
    torch: str
    minutes: float
    tokens_per_second: float
    curve: list[dict[str, int | float]]  # rows of step, train_loss, val_loss
    metrics: dict[str, Any]  # bleu with signature and beam, val_loss, …
    reproducible: bool = True  # False if the commit is unknown or the code had changes


@dataclass(frozen=True)
class Measurement:
    "A table of measurements, with everything needed to repeat them."

    name: str
    about: str  # what a row contains, and the units of its values
    command: str  # repeats the measurement
    commit: str  # of the code that ran
    device: str
    torch: str
    rows: list[dict[str, Any]]
    reproducible: bool = True  # as for `Result`


def write_record(folder: str | Path, record: Result | Measurement) -> Path:
    "Write a record to `folder/<name>.json`, atomically, and return the path."
    path, values = Path(folder) / f"{record.name}.json", asdict(record)
    if values["commit"].endswith("+") or values["commit"] == "unknown":
        values["reproducible"] = False
    elif values["reproducible"]:
        del values["reproducible"]  # only written if it is False
    write_json(path, values)
    return path


def _read_record(path: str | Path, *kinds: type) -> Any:
    values = read_json(path)
    given = {*values, "reproducible"} if isinstance(values, dict) else None
    wanted = [{field.name for field in fields(kind)} for kind in kinds]
    if given not in wanted:
        wrong = type(values).__name__ if given is None else sorted(given ^ wanted[0])
        raise InputError(f"{path} is not a {kinds[0].__name__.lower()}: {wrong} does not fit")
    kind = kinds[wanted.index(given)]
    return kind(**typed(kind, values, path))


def read_result(path: str | Path) -> Result:
    "Read a record; `InputError` if a field is missing or unknown."
    return _read_record(path, Result)


def read_results(folder: str | Path, **match: Any) -> list[Result]:
    """The records in a folder whose fields equal `match`: `read_results(f, task='translation')`.

    A `Measurement` isn't a result and is left out.
    """
    paths = sorted(Path(folder).glob("*.json"))
    results = [
        r for r in (_read_record(p, Result, Measurement) for p in paths) if type(r) is Result
    ]
    return [r for r in results if all(getattr(r, key) == value for key, value in match.items())]


def current_commit() -> str:
    "The commit of the running source, with a + if the package has changes; else `unknown`."
    package = str(resources.files("transformer_lit"))
    commands = (
        ("ls-files", "--error-unmatch", "__init__.py"),  # fails if git doesn't track the package
        ("rev-parse", "HEAD"),
        ("status", "--porcelain", "--", "."),
    )
    try:
        _, commit, changes = (
            subprocess.run(
                ["git", *command], cwd=package, capture_output=True, text=True, check=True
            ).stdout.strip()
            for command in commands
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+" if changes else "")


def read_measurement(path: str | Path) -> Measurement:
    "Read a measurement; `InputError` if a field is missing or unknown."
    return _read_record(path, Measurement)


def pick_device(name: str = "auto") -> torch.device:
    "The device of that name, or `InputError`; `auto` is `cuda` if available, otherwise `cpu`."
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # a device can have a name but not work
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].split(". ")[0]
        raise InputError(f"device {name!r} is not available here ({reason}); try cpu") from error
    return device


def device_name(device: torch.device) -> str:
    "The GPU's model, or the CPU's architecture, instruction set and threads, for a record."
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    count, isa = torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()} CPU ({isa}), {count} thread{'s' if count > 1 else ''}"


# --- seeds, and the difference between entries in a comparison ---------------------------------


def over_seeds(values: Sequence[float], form: str) -> str:
    """The mean over the seeds ± the standard deviation: `2.03 ± 0.01`.

    `form` is the format of both numbers, such as ".2f". A single value is shown without ±. In this
    book ± never means anything else; a standard error or an interval is described in words.
    """
    deviation = [statistics.stdev(values)] if len(values) > 1 else []
    return " ± ".join(format(value, form) for value in [statistics.mean(values), *deviation])


def time_taken(minutes: Sequence[float], form: str = ".0f") -> str:
    """How many minutes the runs of one training setup took: the mean, or the shortest to longest.

    If the longest run took more than one and a half times as long as the shortest, the machines or
    their load differed, and a mean would describe none of the runs.
    """
    alike = max(minutes) <= 1.5 * min(minutes)
    shown = [statistics.mean(minutes)] if alike else [min(minutes), max(minutes)]
    return " to ".join(format(found, form if found >= 1 else ".1f") for found in shown)


@dataclass(frozen=True)
class Paired:
    "The difference between two entries, seed by seed."

    mean: float
    error: float  # standard error of the mean
    pairs: int

    @property
    def half(self) -> float:
        "Half the width of the 95 % interval, from Student's t."
        return _T95[self.pairs - 1] * self.error

    @property
    def ends(self) -> tuple[float, float]:
        "The lower and the upper end of that interval."
        return self.mean - self.half, self.mean + self.half

    def __format__(self, form: str) -> str:
        "The mean with its standard error in brackets: `f'{gap:.3f}'` -> `+0.012 (0.004)`."
        return f"{self.mean:+{form}} ({self.error:{form}})"

    @property
    def separated(self) -> bool:
        "Whether 0 is outside the interval."
        return abs(self.mean) > self.half


# two-sided 95 % points of Student's t by degrees of freedom, as printed in tables
_T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def paired(first: Sequence[float], second: Sequence[float]) -> Paired:
    "The paired difference first − second, for 2 to 10 pairs; the n-th values share a seed."
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if not 2 <= len(differences) <= len(_T95) + 1:
        raise ValueError(f"need 2 to {len(_T95) + 1} pairs, got {len(differences)}")
    error = statistics.stdev(differences) / len(differences) ** 0.5
    return Paired(statistics.mean(differences), error, len(differences))


def by_entry(records: Iterable[Result]) -> dict[str, list[Result]]:
    "Records by entry; each list is in the order of the seeds."
    groups: dict[str, list[Result]] = {}
    for record in sorted(records, key=lambda record: record.seed):
        groups.setdefault(record.metrics["entry"], []).append(record)
    return groups


@dataclass(frozen=True)
class Tuned:
    "An entry of a grid of training runs, at its best learning rate."

    rate: float
    losses: list[float]  # in the order of the seeds
    inside: bool  # whether the grid has a smaller and a larger learning rate


def at_best_rate(rows: Iterable[dict[str, Any]]) -> dict[str, Tuned]:
    """Each entry of a grid, at the learning rate with the lowest loss under the first seed.

    A row has `entry`, `rate`, `seed` and `val_loss`. Only the first seed was run at every rate.
    """
    tried: dict[str, dict[float, list[float]]] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        tried.setdefault(row["entry"], {}).setdefault(row["rate"], []).append(row["val_loss"])
    found = {}
    for entry, losses in tried.items():
        best = min(losses, key=lambda rate: losses[rate][0])
        found[entry] = Tuned(best, losses[best], min(losses) < best < max(losses))
    return found
