"""Checks of the sizes that a config or a module is given; errors state the name and the value."""

from dataclasses import asdict, fields
from typing import Any


def positive(**sizes: int | None) -> None:
    "Raise `ValueError` for the first size that isn't an integer above 0. None passes."
    for name, value in sizes.items():
        if value is not None and (type(value) is not int or value < 1):
            raise ValueError(f"{name} must be a positive integer, got {value!r}")


def share(**values: float) -> None:
    "Raise `ValueError` for the first value outside [0, 1), the range of a dropout rate."
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, got {value!r}")


def own_sizes(module: Any) -> str:
    "A module's own sizes, flags and parameter shapes as `name=value`, for its `extra_repr`."
    shapes = {n: (*p.shape,) for n, p in module._parameters.items() if p is not None}
    own = {n: v for n, v in vars(module).items() if n[0] != "_" and n != "training"}
    plain = {n: v for n, v in own.items() if isinstance(v, int | float | str | tuple)}
    return ", ".join(f"{name}={value}" for name, value in {**plain, **shapes}.items())


_RANGES = {"eps": (1e-30, 1), "rope_base": (1, 10**9)}


def check_sizes(config: Any) -> None:
    "Raise `ValueError` for the first field of a config dataclass whose value is impossible."
    for field in fields(config):
        value = getattr(config, field.name)
        if field.type is int and value is None:
            raise ValueError(f"{field.name} must be a positive integer, got None")
        if field.type in (int, int | None):
            positive(**{field.name: value})
        if field.name.endswith("dropout"):
            share(**{field.name: value})
        low, high = _RANGES.get(field.name, (None, None))
        if low is not None and not low <= value <= high:
            raise ValueError(f"{field.name} must be a number from {low} to {high}, got {value!r}")


class Tied:
    "A config with a flag `tied`: whether the output layer shares the token embeddings."

    def to_dict(self) -> dict[str, Any]:
        "The config as a dictionary. PEFT reads from it whether the embeddings are shared."
        return asdict(self) | {"tie_word_embeddings": self.tied}
