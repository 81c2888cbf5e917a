"""Safetensors, read and written here alone: shared storage once, and checked when read."""

__all__ = ["check_finite", "check_fit", "load_tensors", "no_memory", "open_tensors", "save_tensors"]

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transformer_lit.course.files import InputError


def save_tensors(
    tensors: Mapping[str, Tensor], path: str | Path, *, dtype: torch.dtype | None = None
) -> None:
    """Write tensors to a file. Those that share storage are written once, under the first name.

    The other names stand as `aliases` in the file's metadata. `dtype` is for floating-point tensors
    only. A full disk is an OSError; `InputError` for numbers that are not finite, which no reader
    would take.
    """
    first, kept, aliases = {}, {}, {}
    for name, x in tensors.items():
        same = first.setdefault((x.data_ptr(), x.shape, x.stride()), name)
        if same == name:
            kept[name] = x.detach().to("cpu", dtype if x.is_floating_point() else None).contiguous()
        else:
            aliases[name] = same
    check_finite(kept, "what is to be written")
    # others ask for the format; one key alone, for of two the order is by chance
    metadata = {"aliases": json.dumps(aliases)} if aliases else {"format": "pt"}
    try:
        save_file(kept, path, metadata=metadata)
    except SafetensorError as error:
        raise OSError(f"cannot write {Path(path).name}: {error}") from error


@contextmanager
def open_tensors(path: str | Path) -> Iterator[safe_open]:
    """A safetensors file, of which the header is read. Its tensors are mapped, not copied.

    A change of such a tensor stays in memory. `InputError`: missing or damaged.
    """
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}")
    try:
        with safe_open(path, "pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is damaged or no safetensors file ({error})") from error


def load_tensors(path: str | Path) -> dict[str, Tensor]:
    "The tensors of a safetensors file, aliases included; `InputError`: missing or damaged."
    with open_tensors(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        aliases = (file.metadata() or {}).get("aliases", "{}")
    try:
        return tensors | {alias: tensors[name] for alias, name in json.loads(aliases).items()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise InputError(f"{path} is damaged: {aliases!r} are no aliases") from error


class _NoInit(TorchFunctionMode):
    "No first weights: on the meta device `normal_` alone would load 800 modules of a compiler."

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__ == "normal_":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs or {})


@contextmanager
def no_memory() -> Iterator[None]:
    "A module that is built inside has its shapes, and neither memory nor first weights."
    with torch.device("meta"), _NoInit():
        yield


def check_fit(module: nn.Module, tensors: Mapping[str, Tensor], path: str | Path) -> None:
    "`InputError` unless the tensors have the names, shapes and kinds of numbers of the module."
    ours = module.state_dict()
    faults = [f"{name} is missing" for name in ours if name not in tensors]
    faults += [f"{name} is unknown" for name in tensors if name not in ours]
    for name, x in ours.items():
        if name in tensors and (theirs := tensors[name]).shape != x.shape:
            faults.append(f"{name} has shape {(*theirs.shape,)}, not {(*x.shape,)}")
        elif name in tensors and theirs.is_floating_point() != x.is_floating_point():
            faults.append(f"{name} is of {theirs.dtype}, not {x.dtype}")
    if faults:
        more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise InputError(f"{path} does not fit this model: {'; '.join(faults[:3])}{more}")


def check_finite(tensors: Mapping[str, Tensor], path: str | Path) -> None:
    "`InputError` names the first tensor with a number that is infinite or none."
    for name, x in tensors.items():
        if x.is_floating_point() and x.numel() and not torch.stack(x.aminmax()).isfinite().all():
            raise InputError(f"{path}: {name} holds numbers that are not finite")
