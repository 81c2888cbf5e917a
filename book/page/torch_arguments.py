"""How a call is read: against torch's own signatures, before anything of the page's torch runs.

What is missing here raises `MissingName`, which is no verdict on the answer that asked for it.
"""

import builtins
import functools
import inspect
import json
import opcode
import operator
import re
from pathlib import Path

from transformer_lit.course import autograd as engine
from transformer_lit.course.autograd import *

HERE = str(Path(__file__).parent)
FACTS = json.loads(Path(HERE, "facts.json").read_text(encoding="utf-8"))
KNOWN = {space: set(names) for space, names in FACTS["names"].items()}
REFUSED = {
    name: {code: words for words, codes in said.items() for code in codes.split()}
    for name, said in FACTS["refused"].items()
}  # name -> the kinds of its arguments, a letter each -> what torch raises


class MissingName(BaseException):
    "Torch has it, and this page does not. An answer may catch it, but `lacking` remembers it."

    def __init__(self, name):
        self.name = name
        lacking.append(self)
        super().__init__(
            f"Your answer uses {name}, which the Python of this page doesn't have. "
            "It can be checked in the notebook."
        )


lacking = []  # what was missing since the list was last cleared


def missing(name):
    raise MissingName(name)


def own_fault(error):
    "Whether Python, and no `raise` of these files, raised it: then something is missing here."
    trace = error.__traceback__
    while trace.tb_next:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    raised = opcode.opname[code.co_code[trace.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")
    ours = code.co_filename.startswith(HERE) or code.co_filename == engine.__file__
    return ours and not raised


# --- kinds of arguments ---------------------------------------------------------------------------

NO = object()  # what doesn't fit
DTYPES = {bool: "bool", int: "int64", float: "float64"}  # Python's own types, which torch takes too
CODES = {"bool": "?", "uint8": "B", "int64": "q", "float64": "d"}
CODES |= dict.fromkeys(("int32", "int16", "int8"), "i")
CODES |= dict.fromkeys(("float32", "float16", "bfloat16"), "f")
NUMBERS = {bool: "t", int: "w", float: "r"}
WITH_NUMBERS = re.compile("(add|sub|mul|div|true_divide|floor_divide|copy|to)_?")  # for a tensor
OTHER_NAMES = {"dim": ["axis"], "keepdim": ["keepdims"], "input": ["x", "a", "x1"], "other": ["x2"]}
WORDS = {"Scalar": "Number", "double": "float", "int64_t": "int", "SymInt": "int"}
WORDS |= {"IntArrayRef": "tuple of ints", "SymIntArrayRef": "tuple of ints"}
WORDS |= {"ScalarType": "torch.dtype", "TensorList": "tuple of Tensors", "Device": "torch.device"}
SILENT = {"pin_memory", "non_blocking", "memory_format", "implicit", "_stacklevel", "sorted"}
SILENT |= {"stable", "layout", "device", "foreach", "fused"}  # nothing follows from them here


def number(x):
    if isinstance(x, bool | int | float):
        return x
    if isinstance(x, Tensor):
        return x.flat()[0] if not x.ndim and not x.requires_grad else NO
    return missing("complex numbers") if isinstance(x, complex) else NO


def whole(x):
    if type(x) is int:
        return x
    if isinstance(x, Tensor):
        fits = x.dtype.sort == 1 and not x.ndim and not x.requires_grad
        return x.flat()[0] if fits else NO
    return NO if isinstance(x, bool) or not hasattr(x, "__index__") else operator.index(x)


def size(x):
    one = isinstance(x, Tensor) and x.dtype.sort < 2 and x.numel() == 1
    return int(x.flat()[0]) if one else whole(x)


def many(read):
    def call(x):
        found = tuple(map(read, x)) if isinstance(x, list | tuple) else NO
        return NO if found is NO or NO in found else found

    return call


def tensors(x):
    fits = isinstance(x, list | tuple) and all(isinstance(one, Tensor) for one in x)
    return list(x) if fits else NO


def kind(x):
    "A kind of numbers, or Python's own type, which torch takes too."
    if x is complex:
        missing("complex numbers")
    x = getattr(engine, DTYPES[x].replace("bool", "boolean")) if x in (bool, int, float) else x
    return x if isinstance(x, dtype) else NO


def device_of(x):
    if isinstance(x, int) and not isinstance(x, bool):
        missing(f"the device {x}")
    if not isinstance(x, str) and type(x).__name__ != "device":
        return NO
    return x if str(x).partition(":")[0] in ("cpu", "meta") else missing(f"the device {x}")


def only(*types):
    return lambda x: x if isinstance(x, types) else NO


READ = {
    **{"Tensor": only(Tensor), "bool": only(bool), "str": only(str), "TensorList": tensors},
    **{"Scalar": number, "double": number, "int64_t": whole, "SymInt": size},
    **{"IntArrayRef": many(whole), "SymIntArrayRef": many(size)},
    **{"ScalarType": kind, "Device": device_of, "c10::string_view": only(str)},
}


class Argument:
    "One parameter of a signature: `IntArrayRef[1]? dim=None`."

    def __init__(self, text, later, numbers, python):
        declared, _, self.default = text.partition("=")
        declared, _, name = declared.rpartition(" ")
        self.name, self.later = {"self": "input"}.get(name, name), later
        self.names = [name, *([] if python else OTHER_NAMES.get(name, ()))]
        self.none = declared.endswith("?") or self.default == "None"
        self.kind, _, alone = declared.strip("?").partition("[")
        self.alone, self.read = bool(alone), READ.get(self.kind, lambda x: x)
        if numbers and self.kind == "Tensor":
            self.read = lambda x: x if isinstance(x, Tensor) else number(x)
        self.word = WORDS.get(self.kind, self.kind)

    def take(self, x):
        "What is meant by x; NO where it doesn't fit."
        found = self.read(x)
        if found is NO and self.alone:
            found = READ["SymInt" if self.kind.startswith("Sym") else "int64_t"](x)
        return found

    def __str__(self):
        return f"{self.word} {self.names[0]}{f' = {self.default}' * bool(self.default)}"


class Signature:
    def __init__(self, label, text):
        self.python, self.arguments = text.startswith("def"), []
        self.name, later = label.partition(".")[2], False
        numbers = bool(WITH_NUMBERS.fullmatch(self.name))
        for part in filter(
            None, re.split(r", (?![^{]*})", text[text.index("(") + 1 : text.rindex(")")])
        ):
            later |= part == "*"
            self.arguments += [] if part == "*" else [Argument(part, later, numbers, self.python)]
        self.most = sum(not one.later for one in self.arguments)
        first = self.arguments[0] if self.arguments else None
        self.loose = not self.python and self.most == 1 and first.kind.endswith("IntArrayRef")
        slots = ("Tensor", "Scalar", "TensorList")
        self.required = sum(not one.default for one in self.arguments)
        self.slots = [a.name for a in self.arguments if a.kind in slots and not a.default]

    def bind(self, args, named, label=None):
        """name -> what is meant. Where the call doesn't fit: None, and with a label an error.

        What fits is decided as torch's parser decides it, in FunctionSignature::parse.
        """
        given, n, i, left = {}, len(args), 0, len(named)
        if n > self.most and not self.loose:
            return label and self.refuse_many(n)
        for one in self.arguments:
            if i < n:
                if one.later:
                    return label and self.refuse_many(n)
                x, place = args[i], f" (position {i + 1})"
                i += 1
            else:
                key = next((key for key in one.names if key in named), None)
                if key is None:
                    if not one.default:
                        return label and self.refuse_few(given)
                    continue
                x, place = named[key], ""
                left -= 1
            if x is None and one.none:
                continue
            found = one.take(x)
            if found is NO and self.loose and i == 1 and place and size(x) is not NO:
                found, i = one.read(args), n
            if found is NO:
                if label and self.python:
                    missing(f"a form of {label}")
                words = f": argument '{one.names[0]}'{place} must be {one.word}"
                return label and self.refuse(f"{words}, not {type(x).__name__}")
            given[one.name] = found
        return (label and self.refuse_names(named)) if left else given

    def refuse(self, words):
        raise TypeError(f"{self.name}(){words}")

    def refuse_many(self, n):
        most = f"{self.most} positional argument{'s' * (self.most != 1)}"
        self.refuse(f" takes {most} but {n} {'was' if n == 1 else 'were'} given")

    def refuse_few(self, given):
        names = [a.names[0] for a in self.arguments if not a.default and a.name not in given]
        quoted = ", ".join(f'"{name}"' for name in names)
        arguments = "argument" + "s" * (len(names) == 1)  # torch has it the wrong way round
        self.refuse(f" missing {len(names)} required positional {arguments}: {quoted}")

    def refuse_names(self, named):
        known = {name for one in self.arguments for name in one.names}
        for key in named:
            if key not in known:
                self.refuse(f" got an unexpected keyword argument '{key}'")
        self.refuse(f" got multiple values for argument '{next(iter(named))}'")

    def __str__(self):
        parts = [*map(str, self.arguments)]
        parts[self.most : self.most] = ["*"] if self.most < len(parts) else []
        return f"({', '.join(parts)})"


@functools.cache
def signatures(label):
    return [Signature(label, text) for text in FACTS["signatures"].get(label, ())]


def read(label, args, named):
    "The signature that a call fits, and what its arguments mean."
    known = signatures(label)
    if len(known) == 1:
        return known[0], known[0].bind(args, named, label)
    for one in known:
        if (given := one.bind(args, named)) is not None:
            return one, given
    got = [type(x).__name__ for x in args] + [f"{k}={type(x).__name__}" for k, x in named.items()]
    got = ", ".join(got) + ", " * (not args)
    few = " received an invalid combination of arguments - got"
    known[0].refuse(
        f"{few} ({got}), but expected one of:\n" + "\n".join(f" * {one}" for one in known)
    )


def code_of(x):
    x = x[0] if isinstance(x, list) and x else x
    if isinstance(x, dtype):
        return CODES.get(x.name, "")
    return CODES.get(x.dtype.name, "") if isinstance(x, Tensor) else NUMBERS.get(type(x), "")


def check_kinds(name, required, *parts):
    "Raise what torch raises, where it has no such function of tensors of these kinds."
    if (table := REFUSED.get(name)) is None:
        return
    words = table.get(f"{''.join(map(code_of, parts))}{required}")
    if words:
        small = [isinstance(x, Tensor) and not (x.ndim and x.numel()) for x in parts]
        if len(parts) > 1 and any(small):
            missing(f"this form of {name}")  # torch's rules for single numbers are others
        error, _, words = words.partition(": ")
        raise getattr(builtins, error)(words)


@functools.cache
def parameters(f):
    found = inspect.signature(f).parameters.values()
    names = {p.name for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return names, *(
        any(p.kind is k for p in found)
        for k in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    )


def check_axes(name, first, given):
    "Raise an error where an axis is named twice."
    dims = given.get("dim", given.get("dims"))
    if isinstance(dims, tuple) and first and isinstance(first[0], Tensor) and name not in REPEATS:
        n = max(first[0].ndim, 1)
        seen = [d % n for d in dims if -n <= d < n]
        for d in seen:
            if seen.count(d) > 1:
                raise RuntimeError(f"dim {d} appears multiple times in the list of dims")


REPEATS = "roll", "tile"
owners = {"Tensor": Tensor, "nn": object, "optim": object}


def bound(label, f):
    "f under a name of torch's: it is called by torch's signatures, or not at all."
    space, _, name = label.partition(".")
    own, key = space in ("Tensor", "nn", "optim"), label if label in REFUSED else name

    @functools.wraps(f)
    def call(*args, **named):
        if own and not isinstance(args[0] if args else None, owners[space]):
            raise TypeError(f"descriptor '{name}' doesn't apply to this object")
        first = args[:1] if own else ()
        own_first = len(first)
        try:
            one, given = read(label, args[len(first) :], named)
            parts = [*first, *(given.get(slot) for slot in one.slots)]
            if "dtype" in given and len(parts) == 1:
                parts = [given["dtype"]]
            names, loose, free = parameters(f)
            unknown = [word for word in given if word not in names and not (free or loose)]
            if not own and one.arguments and one.arguments[0].name in given:
                first = (given.pop(one.arguments[0].name),)
                unknown = [word for word in unknown if word in given]
            grows = "requires_grad" not in names and given.pop("requires_grad", False)
            for word in unknown:
                if word in given and word not in SILENT and given[word] is not False:
                    missing(f"the argument {word} of {label}")
            check_kinds(key, own_first + one.required, *parts)
            if not free:
                in_order = [word for word in given if word not in names]
                rest = [given.pop(word) for word in in_order if loose and word not in SILENT]
                first = (*first, *rest)
                given = {word: x for word, x in given.items() if word in names}
            check_axes(name, first, given)
            out = f(*first, **given)
            return out.requires_grad_() if grows else out
        except Exception as error:
            if own_fault(error):
                raise MissingName(f"a form of {label}") from error
            raise

    return call if signatures(label) else guarded(label, f)


def guarded(label, f):
    "f under a name of torch's that has no signature. What f can't do is no fault of a reader."

    @functools.wraps(f)
    def call(*args, **named):
        try:
            return f(*args, **named)
        except Exception as error:
            if own_fault(error):
                raise MissingName(f"a form of {label}") from error
            raise

    return call
