"""One JSON record for each trained run: what was trained, how, on what, and how well it did."""

import platform
import subprocess
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from transformer_lit.course.files import InputError, read_json, write_json


@dataclass(frozen=True)
class Result:
    "One trained run: what was trained, how, on what, and how well it did."

    name: str
    task: str
    dataset: str
    direction: str  # "en-de"; empty where there is none
    split: str  # what `metrics` were measured on
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


@dataclass(frozen=True)
class Measurement:
    "A table that a script measured, with all that is needed to measure it again."

    name: str
    about: str  # what a row is, and the units of its values
    command: str  # repeats the measurement
    commit: str  # of the code that ran
    device: str
    torch: str
    rows: list[dict[str, Any]]


def write_record(folder: str | Path, record: Result | Measurement) -> Path:
    "Write a record to `folder/<name>.json`, atomically, and return the path."
    path = Path(folder) / f"{record.name}.json"
    write_json(path, asdict(record))
    return path


def _read_record(path: str | Path, *kinds: type) -> Any:
    values = read_json(path)
    given = set(values) if isinstance(values, dict) else None
    wanted = [{field.name for field in fields(kind)} for kind in kinds]
    if given not in wanted:
        wrong = type(values).__name__ if given is None else sorted(given ^ wanted[0])
        raise InputError(f"{path} is not a {kinds[0].__name__.lower()}: {wrong} does not fit")
    return kinds[wanted.index(given)](**values)


def read_result(path: str | Path) -> Result:
    "Read a record; `InputError` when a field is missing or unknown."
    return _read_record(path, Result)


def read_results(folder: str | Path, **match: Any) -> list[Result]:
    """The records in a folder whose fields equal `match`: `read_results(f, task='translation')`.

    What was only measured is no result and is left out, see `Measurement`.
    """
    paths = sorted(Path(folder).glob("*.json"))
    results = [
        r for r in (_read_record(p, Result, Measurement) for p in paths) if type(r) is Result
    ]
    return [r for r in results if all(getattr(r, key) == value for key, value in match.items())]


def current_commit() -> str:
    "The commit of the source that runs, + when the package has changes; `unknown` without one."
    package = str(resources.files("transformer_lit"))
    commands = (
        ("ls-files", "--error-unmatch", "__init__.py"),  # fails where git does not know the package
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
    "Read a measurement; `InputError` when a field is missing or unknown."
    return _read_record(path, Measurement)


def device_name(device: torch.device) -> str:
    "For a record: the model of a GPU, or the architecture of a CPU and the number of its threads."
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    count = torch.get_num_threads()
    return f"{platform.machine()} CPU, {count} thread{'s' if count > 1 else ''}"
