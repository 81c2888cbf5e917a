"""All reading and writing of safetensors: shared storage is written once, files are checked."""

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
    """Write tensors to a file. Tensors that share storage are written once, under the first name.

    The other names are kept as `aliases` in the file's metadata. `dtype` applies to floating-point
    tensors only. A full disk raises OSError; numbers that aren't finite, which couldn't be loaded
    again, raise `InputError`.
    """
    first, kept, aliases = {}, {}, {}
    for name, x in tensors.items():
        same = first.setdefault((x.data_ptr(), x.shape, x.stride()), name)
        if same == name:
            kept[name] = x.detach().to("cpu", dtype if x.is_floating_point() else None).contiguous()
        else:
            aliases[name] = same
    check_finite(kept, "the tensors to be written")
    # other libraries look for the format; only one key, because the order of two varies
    metadata = {"aliases": json.dumps(aliases)} if aliases else {"format": "pt"}
    try:
        save_file(kept, path, metadata=metadata)
    except SafetensorError as error:
        raise OSError(f"cannot write {Path(path).name}: {error}") from error


@contextmanager
def open_tensors(path: str | Path) -> Iterator[safe_open]:
    """Open a safetensors file and read its header. Its tensors are mapped, not copied.

    Changing such a tensor doesn't change the file. `InputError` if the file is missing or damaged.
    """
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}. Check its name and folder")
    try:
        with safe_open(path, "pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is damaged or not a safetensors file ({error})") from error


def load_tensors(path: str | Path) -> dict[str, Tensor]:
    "The tensors in a safetensors file, with aliases; `InputError` if it is missing or damaged."
    with open_tensors(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        aliases = (file.metadata() or {}).get("aliases", "{}")
    try:
        return tensors | {alias: tensors[name] for alias, name in json.loads(aliases).items()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise InputError(f"{path} is damaged: {aliases!r} are not valid aliases") from error


class _NoInit(TorchFunctionMode):
    "Skip initial weights: on the meta device, `normal_` would import 800 compiler modules."

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__ == "normal_":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs or {})


@contextmanager
def no_memory() -> Iterator[None]:
    "Modules built inside have shapes but no memory and no initial weights."
    with torch.device("meta"), _NoInit():
        yield


def check_fit(module: nn.Module, tensors: Mapping[str, Tensor], path: str | Path) -> None:
    "Raise `InputError` unless the tensors match the module's names, shapes and number kinds."
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
    "Raise `InputError` for the first tensor with an infinite number or a nan."
    for name, x in tensors.items():
        if x.is_floating_point() and x.numel() and not torch.stack(x.aminmax()).isfinite().all():
            raise InputError(f"{path}: {name} has numbers that are not finite. Use other weights")
