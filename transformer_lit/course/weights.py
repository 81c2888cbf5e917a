"""Read the tensors of a safetensors folder into a module, one at a time, by a table of names."""

__all__ = [
    "INDEX",
    "WHOLE",
    "Made",
    "Names",
    "Settings",
    "Tensors",
    "fill",
    "made_from",
    "shared_names",
    "tensor_files",
    "write_folder",
]

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from transformer_lit.course.files import InputError, atomic_path, read_json, write_json


@dataclass(frozen=True)
class Made:
    "What one of our tensors is made from: names of theirs, and how."

    names: tuple[str, ...]
    make: Callable[..., Tensor] = lambda x: x


Names = Mapping[str, str | Made | tuple[str, ...]]  # beginning of our name -> of theirs
_LAYER = re.compile(r"^(layers|encoder|decoder)\.(\d+)\.")


def _entries(ours: str, names: Names) -> list[Made]:
    "One `Made` for each name under which the tensor called `ours` here may lie in a folder."
    layer, general = _LAYER.match(ours), _LAYER.sub(r"\1.{i}.", ours)
    fitting = [start for start in names if f"{general}.".startswith(f"{start}.")]
    if not fitting:
        raise InputError(f"no tensor of theirs is known for {ours}")
    start = max(fitting, key=len)
    entry, number, end = names[start], layer[2] if layer else "", general.removeprefix(start)
    entries = entry if isinstance(entry, tuple) else (entry,)
    made = [one if isinstance(one, Made) else Made((one,)) for one in entries]
    return [
        Made(tuple(name.replace("{i}", number) + end for name in one.names), one.make)
        for one in made
    ]


def made_from(ours: str, names: Names) -> Made:
    """The tensors of a folder behind the tensor that is called `ours` here. `InputError`: none.

    Where the table knows several names for it, the first.
    """
    return _entries(ours, names)[0]


class Settings(dict):
    "What config.json says; what is needed and not there is an `InputError`."

    tensors: Collection[str] = ()  # names in the folder: some settings can be seen only there
    defaults: ClassVar = {  # what a folder may leave out
        "num_key_value_heads": None,
        "head_dim": None,
        "n_inner": None,
        "resid_pdrop": 0.1,
        "hidden_dropout_prob": 0.1,
    }

    @classmethod
    def read(cls, folder: str | Path) -> "Settings":
        said = read_json(Path(folder) / "config.json")
        if not isinstance(said, dict):
            raise InputError(f"{folder}/config.json is not a table of settings")
        if said.get("quantization_config"):
            raise InputError(f"{folder} is quantised; only weights in floating point are read")
        return cls(said)

    @property
    def architecture(self) -> str | None:
        named = self.get("architectures")
        return str(named[0]) if isinstance(named, list) and named else None

    def __missing__(self, name):
        if name in self.defaults:
            return self.defaults[name]
        raise InputError(f"config.json does not say {name}")

    def sizes(self, ours: dict[str, str]) -> dict[str, Any]:
        "What is said under the names of a table theirs -> ours, under our names."
        return {name: self[theirs] for theirs, name in ours.items()}

    def only(self, **settings: Any) -> None:
        "`InputError` unless each setting is missing, null, or what is built (one of a tuple)."
        for name, values in settings.items():
            values = values if isinstance(values, tuple) else (values,)
            if (said := self.get(name)) is not None and said not in values:
                built = " or ".join(map(repr, values))
                raise InputError(f"config.json sets {name} to {said!r}; built is only {built}")


WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"


@contextmanager
def _opened(file: Path) -> Iterator[safe_open]:
    try:
        with safe_open(file, "pt") as tensors:
            yield tensors
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {file}: {error}") from error


def _held(file: Path) -> set[str]:
    with _opened(file) as tensors:
        return set(tensors.keys())


def tensor_files(folder: str | Path) -> dict[str, Path]:
    "The file in which each tensor of a folder lies. Of the files only the headers are read."
    folder = Path(folder)
    if (folder / WHOLE).is_file():
        return dict.fromkeys(sorted(_held(folder / WHOLE)), folder / WHOLE)
    if not (folder / INDEX).is_file():
        pickles = [file.name for end in ("bin", "pt", "pth") for file in folder.glob(f"*.{end}")]
        found = f"; {min(pickles)} is a pickle, which could run code" if pickles else ""
        raise InputError(f"{folder} has neither {WHOLE} nor {INDEX}{found}")
    said = read_json(folder / INDEX)
    files = said.get("weight_map") if isinstance(said, dict) else None
    if not isinstance(files, dict) or not files:
        raise InputError(f"{folder / INDEX} has no weight_map from tensors to files")
    for name, file in files.items():
        if not re.fullmatch(r"[^/\\:]+\.safetensors", str(file)):
            raise InputError(
                f"{folder / INDEX} puts {name} into {file!r}, no safetensors beside it"
            )
    for file in sorted(set(files.values())):
        odd = {name for name in files if files[name] == file} ^ _held(folder / file)
        if odd:
            raise InputError(f"{folder}: {INDEX} and {file} do not agree on {min(odd)}")
    return {name: folder / file for name, file in files.items()}


_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Tensors:
    "The tensors of a folder under unified names, read one at a time. `InputError`: unreadable."

    def __init__(
        self,
        folder: str | Path,
        ignored: str = r"(?!)",
        spellings: tuple[tuple[str, str], ...] = (),
    ):
        self.folder, self.places = folder, {}
        for theirs, file in tensor_files(folder).items():
            if re.search(ignored, theirs):
                continue
            name = theirs
            for pattern, replacement in spellings:
                name = re.sub(pattern, replacement, name)
            if name in self.places:
                raise InputError(f"{folder} has {name} twice, in two spellings")
            self.places[name] = file, theirs

    def _mapped(self, name: str) -> Tensor:
        file, theirs = self.places[name]
        with _opened(file) as tensors:
            x = tensors.get_tensor(theirs)
        if x.dtype not in _FLOATS:
            raise InputError(f"{theirs} in {file} is of {x.dtype}; quantised weights are not read")
        return x

    def read(self, made: Made, shape: torch.Size) -> Tensor:
        "What is made from tensors of the folder, in float32 and in memory of its own."
        tensors = [self._mapped(name) for name in made.names]
        if len(tensors) > 1:  # something is computed: not in 16 bits
            tensors = [x.float() for x in tensors]
        try:
            x = made.make(*tensors)
        except (RuntimeError, IndexError):  # so odd a shape that nothing can be made from it
            x = None
        if x is None or x.shape != shape:
            found = ", ".join(f"{n} {(*t.shape,)}" for n, t in zip(made.names, tensors))
            raise InputError(f"{self.folder} has {found}; a {(*shape,)} cannot be made from it")
        return torch.empty(shape, dtype=torch.float32, device="cpu").copy_(x)


def shared_names(module: nn.Module) -> list[list[str]]:
    "The names of each parameter: two where one table has two uses."
    groups: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return list(groups.values())


def _plan(module: nn.Module, tensors: Tensors, names: Names) -> list[tuple[list[str], list[Made]]]:
    "For each parameter its names, and all that it can be made from. `InputError`: no such plan."
    there, plan, missing = set(tensors.places), [], []
    left = set(there)
    for ours in shared_names(module):
        made = dict.fromkeys(one for name in ours for one in _entries(name, names))
        left -= {name for one in made for name in one.names}
        found = [one for one in made if there >= set(one.names)]
        missing += [] if found else [name for name in next(iter(made)).names if name not in there]
        plan.append((ours, found))
    for kind, odd in (("lacks", missing), ("holds what nothing reads:", sorted(left))):
        if odd:
            more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
            raise InputError(f"{tensors.folder} {kind} {odd[0]}{more}")
    return plan


def fill(module: nn.Module, tensors: Tensors, names: Names) -> None:
    "Put the tensors of a folder into a module, which may stand on the meta device."
    for ours, found in _plan(module, tensors, names):
        shape = module.get_parameter(ours[0]).shape
        values = tensors.read(found[0], shape)
        for other in found[1:]:
            if not torch.equal(tensors.read(other, shape), values):
                tied = " and ".join(one.names[0] for one in (found[0], other))
                raise InputError(f"{tensors.folder}: {tied} are tied, and differ")
        parameter = nn.Parameter(values)
        for name in ours:
            part, _, last = name.rpartition(".")
            setattr(module.get_submodule(part), last, parameter)


def write_folder(
    folder: str | Path, module: nn.Module, names: Names, settings: dict[str, Any]
) -> None:
    "Write a module and its settings to a new folder, under the names of a table without `Made`."
    tensors = {}
    for ours in shared_names(module):
        (name,) = made_from(ours[0], names).names
        tensors[name] = module.get_parameter(ours[0]).detach().cpu().contiguous()
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        save_file(tensors, temporary / WHOLE, metadata={"format": "pt"})  # as others expect it
        write_json(temporary / "config.json", settings)
