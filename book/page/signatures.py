"""How torch's functions may be called, as torch itself has it, so that the page can be held to it.

The text of a signature is the one from which torch's own parser of arguments is made; torchgen, a
part of torch, writes it. Which kinds of numbers a function refuses is found by calling it.
"""

import functools
import inspect
import itertools
import re
import types
import warnings
from collections import defaultdict
from pathlib import Path

import torch
import torchgen
from torchgen.gen import parse_native_yaml
from torchgen.packaged.autograd import gen_python_functions as parsers

PACKAGED = Path(torchgen.__file__).parent / "packaged"
SPACES = {  # the page's name: where Python finds it, and for which of torch's functions it is
    "torch": (torch, parsers.is_py_torch_function),
    "Tensor": (torch.Tensor, parsers.is_py_variable_method),
    "F": (torch.nn.functional, parsers.is_py_nn_function),
    **{name: (getattr(torch.nn, name), None) for name in ("init", "utils")},
    **{"nn": (torch.nn, None), "optim": (torch.optim, None)},
}
MANUAL = """tensor(PyObject* data, *, ScalarType? dtype=None, Device? device=None, \
bool pin_memory=False, bool requires_grad=False)
as_tensor(PyObject* data, *, ScalarType? dtype=None, Device? device=None)
nonzero(Tensor input, *, bool as_tuple=False, Tensor out=None)
numel(Tensor input)"""  # written by hand in torch too
PLAIN = {"Tensor": "Tensor", "int": "int64_t", "float": "double", "bool": "bool", "str": "str"}
PLAIN |= {"list[int]": "IntArrayRef"}
TENSORS = {"?": "bool", "B": "uint8", "i": "int32", "q": "int64", "f": "float32", "d": "float64"}
NUMBERS = {"t": True, "w": 1, "r": 1.5}
WITH_NUMBERS = re.compile("(add|sub|mul|div|true_divide|floor_divide)_?")
SHAPES = (2, 2), (2,), ()


def bare(line):
    return line[line.index("(") :]


@functools.cache
def written() -> dict[tuple[str, str], list[str]]:
    "The signatures of what is written in C++, by space and name, in the order of torch's parser."
    found = defaultdict(list)
    for line in MANUAL.split("\n"):
        found["torch", line.partition("(")[0]].append(bare(line))
    template = (PACKAGED / "autograd/templates/python_variable_methods.cpp").read_text()
    for line in re.findall(r'"([a-z_]+\([^"]*\)(?:\|deprecated)?)"', template):
        found["Tensor", line.partition("(")[0]].append(bare(line))
    yaml = (str(PACKAGED / f"ATen/native/{n}.yaml") for n in ("native_functions", "tags"))
    natives = filter(parsers.should_generate_py_binding, parse_native_yaml(*yaml).native_functions)
    natives, old = list(natives), str(PACKAGED / "autograd/deprecated.yaml")
    for space, (_, belongs) in SPACES.items():
        named = defaultdict(list)
        pairs = parsers.load_signatures(natives, old, method=space == "Tensor") if belongs else ()
        for pair in pairs:
            if belongs(pair.function):
                named[str(pair.function.func.name.name)].append(pair)
        for name, some in named.items():
            for group in parsers.group_overloads(some):
                text = group.signature.signature_str(skip_outputs=group.outplace is None)
                found[space, name].append(bare(text))
    return found


def declared(parameter: inspect.Parameter) -> str:
    "A parameter of a function in Python, as torch's parser would write it."
    kind, name = inspect.formatannotation(parameter.annotation), parameter.name
    kind, _, none = kind.replace("torch.", "").partition(" | None")
    kind = "ScalarType" if name == "dtype" else PLAIN.get(kind, "PyObject*")
    kind = "bool" if name in ("keepdim", "sorted") or name.startswith("return_") else kind
    default = (
        "" if parameter.default is parameter.empty else f"={parameter.default!r}".replace(" ", "")
    )
    return f"{kind}{'?' * bool(none or default == '=None')} {name}{default}"


def signature_of(space: str, name: str, f) -> list[str]:
    "All signatures of a function; a function in Python has one, which begins with `def`."
    if isinstance(f, types.FunctionType | type):
        given = list(inspect.signature(f).parameters.values())[space == "Tensor" :]
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in given):
            return []
        parts = [declared(p) for p in given]
        later = sum(p.kind is p.KEYWORD_ONLY for p in given)
        parts[len(parts) - later : len(parts) - later] = ["*"] if later else []
        return [f"def ({', '.join(parts)})"]
    keys = [(space, name), (space, getattr(f, "__name__", "")), ("torch", name)][
        : 1 + 2 * (space == "F")
    ]
    return next((written()[key] for key in keys if key in written()), [])


def parameters(line: str) -> list[tuple[str, str, str]]:
    "Kind, name and default of each parameter of a signature."
    parts = [
        part
        for part in re.split(r", (?![^{]*})", line[line.index("(") + 1 : line.rindex(")")])
        if part
    ]
    pairs = [part.partition("=") for part in parts if part != "*"]
    return [(*declared.rpartition(" ")[::2], default) for declared, _, default in pairs]


def refused(space: str, name: str, f, lines: list[str]) -> dict[str, str]:
    "What torch raises for which kinds of tensors (and numbers), where others are taken."
    found = defaultdict(list)
    for line in lines:
        wanted = [(k, n) for k, n, default in parameters(line) if not default]
        if space == "Tensor":
            wanted.insert(0, ("Tensor", "self"))
        slots = [k.strip("?").replace("TensorList", "Tensor") for k, _ in wanted]
        slots = [k for k in slots if k in ("Tensor", "Scalar")]
        if not slots or "Tensor" not in slots or len(slots) > 3:
            continue
        codes = [[*(TENSORS if k == "Tensor" else NUMBERS)] for k in slots]
        if WITH_NUMBERS.fullmatch(name) and slots == ["Tensor", "Tensor"]:
            codes[1] += NUMBERS

        every = list(itertools.product(*codes))
        few = [kinds for kinds in every if not {*kinds} & {*"Bif"}]
        shapes = itertools.product(SHAPES, repeat=len(slots))
        fit = [s for s in shapes if any(not attempt(f, wanted, kinds, s) for kinds in few)]
        fit = [s for s in fit[:2] if s == fit[0] or () not in s]
        for kinds in every:
            said = [attempt(f, wanted, kinds, s) for s in fit]
            if said and all(said):
                found[said[0]].append(f"{''.join(kinds)}{len(wanted)}")
    return {words: " ".join(kinds) for words, kinds in found.items()}


def attempt(f, wanted, kinds, shapes):
    "What f raises for tensors and numbers of these kinds, in one line; nothing if it takes them."
    kinds, shapes = iter(kinds), iter(shapes)
    args = [example(kind.strip("?"), name, kinds, shapes) for kind, name in wanted]
    try:
        f(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return ""


def example(kind, name, kinds, shapes):
    "An argument that any function takes which takes arguments of this kind."
    if kind in ("Tensor", "TensorList", "Scalar"):
        code, shape = next(kinds), next(shapes)
        one = (
            NUMBERS[code]
            if code in NUMBERS
            else torch.ones(shape, dtype=getattr(torch, TENSORS[code]))
        )
        return [one, one] if kind == "TensorList" else one
    if kind.startswith(("Int", "SymInt")):
        number = 0 if name.startswith(("dim", "start", "source", "destination", "offset")) else 1
        return (number,) if "Array" in kind else number
    return {"int64_t": 0 if name.startswith("dim") else 1, "double": 1.0, "bool": False}.get(kind)


def facts(words: set[str]) -> dict:
    """Signatures of all functions whose names are among these words, and what those refuse.

    A method refuses what its function does, so that only a method without a function is tried.
    """
    words = words | {f"{word}{end}" for word in words for end in ("_", "_like")}
    found, tried = {}, {}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for space, (place, _) in SPACES.items():
            for name in sorted(words & {*dir(place)}):
                f = getattr(place, name)
                made = isinstance(f, type) and space not in ("nn", "optim")
                if name.startswith("__") or made or not callable(f):
                    continue
                if lines := signature_of(space, name, f):
                    found[f"{space}.{name}"] = lines
                    alike = space == "torch" and all(
                        parameters(line)[:1] and parameters(line)[0][1] == "input" for line in lines
                    )
                    key = name if alike else f"{space}.{name}"
                    if (space == "Tensor" and name in tried) or name == "requires_grad_":
                        continue
                    if space in ("torch", "Tensor", "F") and key not in tried:
                        tried[key] = refused(space, name, f, lines)
    return {"signatures": found, "refused": {key: no for key, no in tried.items() if no}}
