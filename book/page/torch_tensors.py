"""Torch's functions of tensors over the engine of `course/autograd.py`, for the page.

What is missing here raises `MissingName`, which is no verdict on the answer that asked for it.
"""

import contextlib
import functools
import inspect
import json
import math
import opcode
import operator
import random
import struct
import sys
from itertools import accumulate, chain, pairwise
from pathlib import Path

from transformer_lit.course import autograd as engine
from transformer_lit.course.autograd import *

HERE = str(Path(__file__).parent)
FACTS = json.loads(Path(HERE, "facts.json").read_text(encoding="utf-8"))

KNOWN = {space: set(names) for space, names in FACTS["names"].items()}

pi = math.pi


class MissingName(BaseException):
    "Torch has it, and this page does not. It goes through every `except Exception` of an answer."

    def __init__(self, name):
        self.name = name
        super().__init__(
            f"Your answer uses {name}, which the Python of this page doesn't have. "
            "It can be checked in the notebook."
        )


def missing(name):
    raise MissingName(name)


# --- what calls have in common --------------------------------------------------------------------

ALIASES = {"axis": "dim", "keepdims": "keepdim", "dims": "dim"}

SECOND = {"other", "exponent", "target", "tensor2", "mat2", "vec2"}
MANY = {"size", "sizes", "shape", "dims", "repeats"}  # instead of a tuple after the tensor


def own_fault(error):
    "Whether Python, and no `raise` of these files, raised it: then something is missing here."
    trace = error.__traceback__
    while trace.tb_next:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    raised = opcode.opname[code.co_code[trace.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")
    ours = code.co_filename.startswith(HERE) or code.co_filename == engine.__file__
    return ours and not raised


@functools.cache
def parameters(f):
    found = inspect.signature(f).parameters.values()
    many = any(p.kind is p.VAR_POSITIONAL for p in found)
    return [p.name for p in found], many, any(p.kind is p.VAR_KEYWORD for p in found)


def called(label, f, makes=False):
    "f with torch's names of arguments. What f does not know is missing: no fault of a reader."

    @functools.wraps(f)
    def call(*args, **named):
        if named:
            args, named = renamed(label, f, args, named)
        if not makes and not (args and isinstance(args[0], Tensor | list | tuple)):
            got = type(args[0]).__name__ if args else "nothing"
            raise TypeError(f"{label}(): argument 'input' (position 1) must be Tensor, not {got}")
        try:
            return f(*args, **named)
        except Exception as error:
            if own_fault(error):
                raise MissingName(f"a form of {label}") from error
            raise

    return call


def renamed(label, f, args, named):
    names, many, free = parameters(f)
    if str(named.get("device") or "cpu") not in ("cpu", "meta"):
        missing(f"the device {named['device']}")
    for key in [key for key in named if key not in names and not free]:
        value, second = named.pop(key), len(args) == 1 and key in SECOND
        if key in ("input", "self", "tensors") and not (args and isinstance(args[0], Tensor)):
            args = (value, *args)
        elif second or (many and key in MANY):
            args = (*args, value)
        elif ALIASES.get(key) in names:
            named[ALIASES[key]] = value
        elif value is not None and value is not False:  # as in inplace=False, out=None
            missing(f"the argument {key} of {label}")
    return args, named


# --- shapes, kinds, and what is not followed back -------------------------------------------------


class Size(tuple):
    numel = math.prod

    def __getitem__(self, key):
        found = tuple.__getitem__(self, key)
        return Size(found) if isinstance(key, slice) else found

    def __add__(self, other):
        return Size(tuple.__add__(self, other))

    def __repr__(self):
        return f"torch.Size({list(self)})"


Tensor.size_class = Size


def small_float(code, largest):
    def store(numbers):
        numbers = [math.copysign(inf, x) if abs(x) > largest else x for x in map(float, numbers)]
        return list(
            struct.unpack(f"{len(numbers)}{code}", struct.pack(f"{len(numbers)}{code}", *numbers))
        )

    return store


def short_float(numbers):
    "The upper half of a float32, rounded to even."
    numbers = list(numbers)
    words = struct.unpack(f"{len(numbers)}I", struct.pack(f"{len(numbers)}f", *numbers))
    words = [
        w if x != x else (w + 0x7FFF + (w >> 16 & 1)) & 0xFFFF0000 for w, x in zip(words, numbers)
    ]
    return list(struct.unpack(f"{len(numbers)}f", struct.pack(f"{len(numbers)}I", *words)))


def whole_kind(name, size, signed=True):
    low, span = (-(1 << 8 * size - 1) if signed else 0), 1 << 8 * size
    return dtype(name, 1, size, lambda numbers: [(int(x) - low) % span + low for x in numbers])


KINDS = {
    "float16": dtype("float16", 2, 2, small_float("e", 65519.99)),
    "bfloat16": dtype("bfloat16", 2, 2, short_float),
    "uint8": whole_kind("uint8", 1, signed=False),
    **{f"int{8 * n}": whole_kind(f"int{8 * n}", n) for n in (1, 2, 4)},
    **{"float32": float32, "float64": float64, "int64": int64, "bool": boolean},
    "complex128": dtype("complex128", 3, 16, list),
    "complex64": dtype("complex64", 3, 8, list),
}

KINDS |= {"half": KINDS["float16"], "float": float32, "double": float64, "long": int64}
KINDS |= {"int": KINDS["int32"], "short": KINDS["int16"]}
CODES = {"uint8": "B", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}

CODES |= {"float16": "e", "float32": "f", "float64": "d", "bool": "?"}


def kind(wanted):
    "A kind by torch's name or by Python's own type, which torch takes too."
    own = {bool: boolean, int: int64, float: float64}
    return own.get(wanted, wanted) if isinstance(wanted, type) else wanted


class set_grad_enabled(contextlib.ContextDecorator):
    def __init__(self, mode):
        self.mode, self.before = mode, [state["grad"]]
        if type(self) is set_grad_enabled:
            state["grad"] = mode

    def __enter__(self):
        if type(self) is not set_grad_enabled:
            self.before.append(state["grad"])
        state["grad"] = self.mode

    def __exit__(self, *_):
        state["grad"] = self.before.pop()


class no_grad(set_grad_enabled):
    mode = False

    def __new__(cls, function=None):
        new = super().__new__(cls)
        cls.__init__(new)
        return new if function is None or isinstance(function, bool) else new(function)

    def __init__(self, function=None):
        self.before = []


class enable_grad(no_grad):
    mode = True


def sequence_of(x):
    return [x] if isinstance(x, Tensor) else list(x)


def grad(
    outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=False
):
    if create_graph:
        missing("a gradient of a gradient")
    ys, xs = sequence_of(outputs), sequence_of(inputs)
    gs = [None] * len(ys) if grad_outputs is None else sequence_of(grad_outputs)
    if any(not x.requires_grad for x in xs):
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    found = walk_back([start_of(y, g) for y, g in zip(ys, gs)], bool(retain_graph))
    if not allow_unused and any(x.node not in found for x in xs):
        raise RuntimeError(UNUSED)
    return tuple(gradient_for(x, found[x.node]) if x.node in found else None for x in xs)


def backward(x, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    if create_graph or inputs is not None:
        missing("a gradient of a gradient" if create_graph else "the argument inputs of backward")
    engine.backward(x, gradient, bool(retain_graph))


def kept_too(out, *tensors):
    "Torch also keeps these for the way back: it refuses where they change, and so must the page."
    if out.node is not None and out.node.leaf is None:
        seen = [(x.storage, x.storage.version) for x in tensors if isinstance(x, Tensor)]
        out.origin.node = Node(
            [(node, back, [*kept, *seen]) for node, back, kept in out.node.edges]
        )
    return out


# --- what torch refuses, in its words -------------------------------------------------------------

UNUSED = (
    "One of the differentiated Tensors appears to not have been used in the graph. Set "
    "allow_unused=True if this is the desired behavior."
)
PART_CHANGED = (
    "Output 0 of a function is a view and is being modified inplace. This view is the output of a "
    "function that returns multiple views. Such functions do not allow the output views to be "
    "modified inplace."
)
LEAF_CHANGED = "is being used in an in-place operation."
SHARED = (
    "unsupported operation: more than one element of the written-to tensor refers to a single "
    "memory location. Please clone() the tensor before performing the operation."
)
NO_KINDS = "expected m1 and m2 to have the same dtype"
NO_CAST = "can't be cast to the desired output type"
NO_ROOM = "doesn't match the broadcast shape"
NO_MASK = "at index 0 does not match the shape of the indexed tensor"
NO_INDEX = "expected index to be no larger than self apart from this dimension:"
NO_MASKED_FILL = "masked_fill_ only supports boolean masks, but got mask with dtype"
NO_VIEW = (
    "view size is not compatible with input tensor's size and stride (at least one dimension "
    "spans across two contiguous subspaces). Use .reshape(...) instead."
)
NO_SPLIT = "split_with_sizes expects split_sizes to sum exactly to"
NO_DIMENSIONS = "Tensors must have same number of dimensions"
NO_SIZES = "Sizes of tensors must match except in dimension"
INSTEAD = "use the `~` or `logical_not()` operator instead."
NO_BOOL = (
    f"with a bool tensor is not supported. If you are trying to invert a mask, {INSTEAD}",
    "with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.",
    f"on a bool tensor is not supported. If you are trying to invert a mask, {INSTEAD}",
)
NO_MEAN = (
    "mean(): could not infer output dtype. Input dtype must be either a floating point or complex "
    "dtype."
)
NO_KERNEL = "not implemented for"
NO_SUBSCRIPTS = "the number of subscripts in the equation does not match the dimensions"
NO_BROADCAST = "which does not broadcast with previously seen size"
WORDS = {"int64": "Long", "int32": "Int", "bool": "Bool", "uint8": "Byte"}


# --- changes in place -----------------------------------------------------------------------------


def may_change(x, new):
    if not (state["grad"] and (x.requires_grad or new.requires_grad)):
        return
    if isinstance(x, Part):
        raise RuntimeError(PART_CHANGED)
    if x.node is not None and x.node.leaf is not None:
        view = "" if x.node.leaf is x else "view of a "
        raise RuntimeError(f"a {view}leaf Variable that requires grad {LEAF_CHANGED}")


class Data(Tensor):
    "The `.data` of a result: torch would go on with changed numbers, and with wrong gradients."


def change(x, at, new, *kept, replaces=False):
    if isinstance(x, Data):
        missing("a change of .data within a calculation")
    may_change(x, new)
    if new.dtype.sort > x.dtype.sort:
        raise RuntimeError(f"result type {new.dtype} {NO_CAST} {x.dtype}")
    put(x, at, to(new, x.dtype), *kept, replaces=replaces)


def write(x, new, replaces=False):
    "All numbers of x become those of `new`, which may be fewer."
    if any(step == 0 and n > 1 for n, step in zip(x.shape, x.strides)):
        raise RuntimeError(SHARED)
    at = places(x.shape, x.strides, x.offset)
    change(x, at, expand(new, x.shape), replaces=replaces)
    return x


def overlap(x, y):
    "Whether two tensors share numbers, as far as torch looks: both read a stretch without gaps."
    end = lambda t: t.offset + 1 + sum((n - 1) * step for n, step in zip(t.shape, t.strides))
    dense = all(end(t) - t.offset == t.numel() for t in (x, y))
    same_list = x.storage.values is y.storage.values
    return same_list and dense and x.offset < end(y) and y.offset < end(x)


def in_place(f):
    "The form of f that changes its first tensor: `x.exp_()`."

    def call(x, *args, **named):
        for y in args:
            if isinstance(y, Tensor) and overlap(x, y) and x.strides != y.strides:
                raise RuntimeError(SHARED)
        before = Storage(x.storage.values)  # of its input, torch keeps a copy
        old = Tensor(before, x.shape, x.dtype, x.strides, x.offset, x.origin)
        new = f(old, *args, **named)
        if new.shape != x.shape:
            raise RuntimeError(f"output with shape {list(x.shape)} {NO_ROOM} {list(new.shape)}")
        step, fresh = new.node if new.node is not x.node else None, new.storage
        write(x, new, replaces=True)
        if step is not None:  # the result that it has kept is x now
            here = x.storage, x.storage.version
            step.edges = [
                (node, back, [here if s is fresh else (s, v) for s, v in kept])
                for node, back, kept in step.edges
            ]
        return x

    return call


# --- square brackets ------------------------------------------------------------------------------


def spread(x, key):
    "For each axis what to take, None for each new one; and the tensors of the key, as they were."
    parts, tables, d = [], [], 0
    key = key if isinstance(key, tuple) else (key,)
    wide = lambda one: one.ndim if isinstance(one, Tensor) and one.dtype is boolean else 1
    free = x.ndim - sum(wide(one) for one in key if one is not None and one is not Ellipsis)
    if free < 0:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
    key = key if any(one is Ellipsis for one in key) else (*key, Ellipsis)
    for one in key:
        one = tensor(one) if isinstance(one, list | range) else one
        if isinstance(one, bool) or (
            isinstance(one, Tensor) and one.dtype is boolean and not one.ndim
        ):
            missing("a single True or False in square brackets")
        if one is Ellipsis:
            parts += [slice(None)] * free
        elif isinstance(one, Tensor) and one.dtype is boolean:
            if one.shape != x.shape[d : d + one.ndim]:
                raise IndexError(
                    f"The shape of the mask {list(one.shape)} {NO_MASK} {list(x.shape)}"
                )
            parts += unbind(nonzero(one), 1)
        elif isinstance(one, Tensor) and one.dtype.sort == 2:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        else:
            parts.append(one)
        tables += [one] if isinstance(one, Tensor) and one.ndim else []
        d += 0 if one is None else free if one is Ellipsis else wide(one)
    return parts, tables


def cut(x, parts):
    "A new way to read x, and the axes along which a tensor says what to take."
    new, steps, offset, tables, d = [], [], x.offset, [], -1
    for one in parts:
        d += one is not None
        n, step = (1, 0) if one is None else (x.shape[d], x.strides[d])
        if isinstance(one, slice):
            ends = (i if i is None else operator.index(i) for i in (one.start, one.stop, one.step))
            start, stop, stride = slice(*ends).indices(n)
            if stride < 0:
                raise ValueError("step must be greater than zero")
            chosen = range(start, stop, stride)
            offset, n, step = offset + (start * step if chosen else 0), len(chosen), step * stride
        elif isinstance(one, Tensor) and one.ndim:
            tables.append((len(new), one))
        elif one is not None:
            i = operator.index(one)
            if not -n <= i < n:
                raise IndexError(f"index {i} is out of bounds for dimension {d} with size {n}")
            offset += i % n * step
            continue
        new.append(n)
        steps.append(step)
    return new, steps, offset, tables


def found_at(x, parts):
    "The places of all that a key names, in reading order, and their shape."
    new, steps, offset, tables = cut(x, parts)
    if not tables:
        return places(new, steps, offset), new
    dims, index = [d for d, _ in tables], broadcast(*(t.shape for _, t in tables))
    columns = ([steps[d] * inside(i, new[d]) for i in expand(t, index).flat()] for d, t in tables)
    first = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0  # side by side: they stay there
    rest = [d for d in range(len(new)) if d not in dims]
    sizes = lambda part: ([new[d] for d in part], [steps[d] for d in part])
    head, tail = places(*sizes(rest[:first]), offset), places(*sizes(rest[first:]))
    here = list(map(sum, zip(*columns)))
    at = [a + b + c for a in head for b in here for c in tail]
    return at, [*sizes(rest[:first])[0], *index, *sizes(rest[first:])[0]]


def getitem(x, key):
    parts, tables = spread(x, key)
    if tables:
        return pick(x, *found_at(x, parts), *tables)
    return view_of(x, *cut(x, parts)[:3])


def cast(x, new):
    return made(new.store(x.flat()), x.shape, new, (x, same))


def setitem(x, key, value):
    parts, tables = spread(x, key)
    value = value if isinstance(value, Tensor) else single(value, x.dtype)
    at, shape = found_at(x, parts)
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = squeeze(value, 0)
    change(x, at, cast(expand(value, shape), x.dtype), *tables)


def along(x, dim, index):
    "Where each entry of `index`, which counts along one axis, is."
    d, steps = axis(dim, x.ndim), [*x.strides]
    step, steps[d] = steps[d], 0
    fits = (a <= b for i, (a, b) in enumerate(zip(index.shape, x.shape)) if i != d)
    if index.ndim != x.ndim or not all(fits):
        raise RuntimeError(f"Size does not match at dimension {d} {NO_INDEX} {list(index.shape)}")
    at, n = places(index.shape, steps, x.offset), x.shape[d]
    for i in index.flat():
        if not 0 <= i < n:
            raise RuntimeError(f"index {i} is out of bounds for dimension {d} with size {n}")
    return [place + step * i for place, i in zip(at, index.flat())]


def key_for(x, dim, index):
    d = axis(dim, x.ndim)
    return [*[slice(None)] * d, index, *[slice(None)] * (x.ndim - d - 1)]


def nonzero(x, as_tuple=False):
    steps, found = row_major(x.shape), [i for i, number in enumerate(x.flat()) if number]
    rows = [[i // step % n for step, n in zip(steps, x.shape)] for i in found]
    out = Tensor(list(chain.from_iterable(rows)), (len(rows), x.ndim), int64)
    return unbind(out, 1) if as_tuple else out


def picked(x, dim, index):
    return pick(x, along(x, dim, index), index.shape, index)


def gather(x, dim, index):
    return kept_too(picked(x, dim, index), x)


def index_select(x, dim, index):
    return pick(x, *found_at(x, key_for(x, dim, index)), index)


def copy_changed(f):
    "A function that gives a changed copy, from one that changes a tensor in place."

    def call(x, *args, **named):
        new = clone(x)
        f(new, *args, **named)
        return new

    return call


def scatter_(x, dim, index, src=None, value=None):
    src = value if src is None else src
    src = src if isinstance(src, Tensor) else full(index.shape, src, x.dtype)
    change(x, along(x, dim, index), src[tuple(map(slice, index.shape))], index)
    return x


def index_copy_(x, dim, index, source):
    at, shape = found_at(x, key_for(x, dim, index))
    check_source(x, shape, source)
    change(x, at, source, index)
    return x


def check_source(x, shape, source):
    if overlap(x, source):
        raise RuntimeError(SHARED)
    if tuple(shape) != source.shape:
        raise RuntimeError(f"the shape of the source, {list(source.shape)}, must be {list(shape)}")


def added_at(x, at, source, *kept):
    "A new tensor: x, and what `source` adds at these places of x in reading order."
    values = x.flat().copy()
    for place, number in zip(at, source.flat()):
        values[place] += number
    taken = lambda g: [g[i] for i in at]
    edges = (x, same, *kept), (source, taken, *kept)
    return made(x.dtype.store(values), x.shape, x.dtype, *edges)


def index_add(x, dim, index, source, alpha=1):
    at, shape = found_at(Tensor([], x.shape, x.dtype), key_for(x, dim, index))
    check_source(x, shape, source)
    return added_at(x, at, source * alpha, index)


def scatter_add(x, dim, index, src):
    dense = Tensor([], x.shape, x.dtype)
    return added_at(x, along(dense, dim, index), src[tuple(map(slice, index.shape))], index)


def masked_fill(x, mask, value):
    if mask.dtype is not boolean:
        raise RuntimeError(f"{NO_MASKED_FILL} {mask.dtype}")
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError("masked_fill_ only supports a 0-dimensional value tensor")
    if not isinstance(value, Tensor) and kind_of(value).sort > x.dtype.sort:
        raise RuntimeError(f"value cannot be converted to type {x.dtype.name} without overflow")
    value = cast(value, x.dtype) if isinstance(value, Tensor) else single(value, x.dtype)
    return where(mask, value, x)


def masked_select(x, mask):
    shape = broadcast(x.shape, mask.shape)
    return kept_too(getitem(expand(x, shape), expand(mask, shape)), x, mask)


def where(condition, input=None, other=None):
    test, a, b = condition, input, other
    if a is None:
        return nonzero(test, as_tuple=True)
    if test.dtype is not boolean:
        raise RuntimeError(f"where expected condition to be a boolean tensor, got {test.dtype}")
    beside = [x.dtype for x in (a, b) if isinstance(x, Tensor)]
    beside = beside or [max(map(kind_of, (a, b)), key=lambda one: one.rank)]
    a, b = (x if isinstance(x, Tensor) else single(x, beside[0]) for x in (a, b))
    work, shape = common_kind([a, b]), broadcast(test.shape, a.shape, b.shape)
    a, b = (expand(to(x, work), shape) for x in (a, b))
    seen, zeros = expand(test, shape).flat(), [0.0] * math.prod(shape)
    choose = lambda one, other: [x if t else y for t, x, y in zip(seen, one, other)]
    back_a, back_b = (lambda g: choose(g, zeros)), (lambda g: choose(zeros, g))
    edges = (a, back_a, test), (b, back_b, test)
    return made(choose(a.flat(), b.flat()), shape, work, *edges)


# --- other ways to read, joining and cutting ------------------------------------------------------


def strides_for(shape, strides, sizes):
    "How to read the same numbers in another shape without moving them; None where that can't be."
    new, d, run, step = [], len(sizes) - 1, 1, strides[-1] if strides else 1
    for i in reversed(range(len(shape))):
        run *= shape[i]
        if i == 0 or (shape[i - 1] != 1 and strides[i - 1] != run * step):  # a gap before axis i
            got = 1
            while d >= 0 and (got < run or sizes[d] == 1):
                new.append(got * step)
                got, d = got * sizes[d], d - 1
            if got != run:
                return None
            run, step = 1, strides[i - 1]
    return tuple(new[::-1]) if d < 0 else None


def view(x, *sizes):
    if isinstance(kind(sizes[0]), dtype):
        return read_as(x, kind(sizes[0]))
    sizes = filled_in(x.numel(), listed(sizes))
    steps = None if x.numel() and x.is_contiguous() else strides_for(x.shape, x.strides, sizes)
    if x.is_contiguous() or not x.numel():
        return reshape(x, sizes)
    if steps is None:
        raise RuntimeError(NO_VIEW)
    return view_of(x, sizes, steps, x.offset)


def reshape_(x, *sizes):
    sizes = filled_in(x.numel(), listed(sizes))
    steps = None if x.is_contiguous() else strides_for(x.shape, x.strides, sizes)
    return reshape(x, sizes) if steps is None else view_of(x, sizes, steps, x.offset)


def read_as(x, new):
    raw = struct.pack(f"{x.numel()}{CODES[x.dtype.name]}", *x.flat())
    values = struct.unpack(f"{len(raw) // new.itemsize}{CODES[new.name]}", raw)
    last = x.shape[-1] * x.dtype.itemsize // new.itemsize
    return Tensor(list(values), (*x.shape[:-1], last), new)


def unflatten(x, dim, sizes):
    d = axis(dim, x.ndim)
    sizes = tuple(filled_in(x.shape[d], sizes))
    cut = lambda own, new: (*own[:d], *new, *own[d + 1 :])
    steps = [k * x.strides[d] for k in row_major(sizes)]
    return view_of(x, cut(x.shape, sizes), cut(x.strides, steps), x.offset)


def flatten(x, start_dim=0, end_dim=-1):
    a, b = axis(start_dim, x.ndim), axis(end_dim, x.ndim)
    return reshape_(x, *x.shape[:a], math.prod(x.shape[a : b + 1]), *x.shape[b + 1 :])


def narrow(x, dim, start, length):
    d = axis(dim, x.ndim)
    start, n = start + x.shape[d] if start < 0 else start, x.shape[d]
    if start + length > n:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return getitem(x, (slice(None),) * d + (slice(start, start + length),))


def select(x, dim, index):
    return getitem(x, (slice(None),) * axis(dim, x.ndim) + (index,))


class Part(Tensor):
    "One of several parts of a tensor. With gradients, torch refuses it where either is changed."

    def __init__(self, x):
        super().__init__(x.storage, x.shape, x.dtype, x.strides, x.offset, x.origin)
        self.seen = x.storage.version

    @property
    def origin(self):
        if self.first.node is not None and self.seen != self.storage.version and state["grad"]:
            raise RuntimeError(PART_CHANGED)
        return self.first

    @origin.setter
    def origin(self, origin):
        self.first = origin


def several(parts):
    return tuple(map(Part, parts))


def split(x, split_size_or_sections, dim=0):
    if not x.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    n, sizes = x.shape[axis(dim, x.ndim)], split_size_or_sections
    sizes = [sizes] * -(-n // sizes) if isinstance(sizes, int) else sizes
    ends = [*accumulate(sizes, initial=0)]
    if ends[-1] != n and not isinstance(split_size_or_sections, int):
        raise RuntimeError(f"{NO_SPLIT} {n} (input tensor's size at dimension {dim})")
    return several(narrow(x, dim, a, min(b, n) - a) for a, b in pairwise(ends))


def chunk(x, chunks, dim=0):
    return split(x, max(1, -(-x.shape[axis(dim, x.ndim)] // chunks)), dim)


def unbind(x, dim=0):
    return several(select(x, dim, i) for i in range(x.shape[axis(dim, x.ndim)]))


def unfold(x, dimension, size, step):
    d = axis(dimension, x.ndim)
    n, count = x.shape[d], (x.shape[d] - size) // step + 1
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {n} but size is {size}")
    shape = (*x.shape[:d], count, *x.shape[d + 1 :], size)
    strides = (*x.strides[:d], x.strides[d] * step, *x.strides[d + 1 :], x.strides[d])
    return view_of(x, shape, strides, x.offset)


def diagonal(x, offset=0, dim1=0, dim2=1):
    a, b = axis(dim1, x.ndim), axis(dim2, x.ndim)
    rest = [d for d in range(x.ndim) if d not in (a, b)]
    rows, columns = max(0, -offset), max(0, offset)
    n = max(0, min(x.shape[a] - rows, x.shape[b] - columns))
    start = x.offset + rows * x.strides[a] + columns * x.strides[b]
    shape, strides = [x.shape[d] for d in rest], [x.strides[d] for d in rest]
    return view_of(x, [*shape, n], [*strides, x.strides[a] + x.strides[b]], start)


def diag_embed(x, offset=0):
    n = x.shape[-1] + abs(offset)
    out = zeros(*x.shape[:-1], n, n, dtype=x.dtype)
    setitem(diagonal(out, offset, -2, -1), Ellipsis, x)
    return out


def diag(x, diagonal_=0):
    return diag_embed(x, diagonal_) if x.ndim == 1 else diagonal(x, diagonal_)


def cat(tensors, dim=0):
    tensors = [x for x in tensors if x.shape != (0,)] or list(tensors)[:1]
    if not tensors:
        raise RuntimeError("expected a non-empty list of Tensors")
    work, first, d = common_kind(tensors), tensors[0], axis(dim, tensors[0].ndim)
    if not first.ndim:
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    for i, x in enumerate(tensors):
        if x.ndim != first.ndim:
            raise RuntimeError(f"{NO_DIMENSIONS}: got {first.ndim} and {x.ndim}")
        for k, (m, n) in enumerate(zip(first.shape, x.shape)):
            if m != n and k != d:
                size = f"Expected size {m} but got size {n} for tensor number {i} in the list."
                raise RuntimeError(f"{NO_SIZES} {d}. {size}")
    rest = [movedim(to(x, work), d, 0) for x in tensors]
    ends = pairwise(accumulate([x.numel() for x in rest], initial=0))
    edges = [(x, operator.itemgetter(slice(a, b))) for x, (a, b) in zip(rest, ends)]
    values = list(chain.from_iterable(x.flat() for x in rest))
    shape = (sum(x.shape[0] for x in rest), *rest[0].shape[1:])
    return movedim(made(values, shape, work, *edges), 0, d)


def stack(tensors, dim=0):
    tensors = list(tensors)
    for i, x in enumerate(tensors):
        if x.shape != tensors[0].shape:
            first = f"{list(tensors[0].shape)} at entry 0 and {list(x.shape)} at entry {i}"
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {first}")
    return cat([unsqueeze(x, dim) for x in tensors], axis(dim, tensors[0].ndim + 1))


def hstack(tensors):
    tensors = [x if x.ndim else unsqueeze(x, 0) for x in tensors]
    return cat(tensors, 0 if tensors[0].ndim == 1 else 1)


def vstack(tensors):
    return cat([reshape(x, 1, -1) if x.ndim < 2 else x for x in tensors], 0)


def block_diag(*tensors):
    tensors = [reshape(x, 1, -1) if x.ndim < 2 else x for x in tensors]
    rows, columns = (sum(x.shape[d] for x in tensors) for d in (0, 1))
    out, i, j = zeros(rows, columns, dtype=common_kind(tensors)), 0, 0
    for x in tensors:
        m, n = x.shape
        setitem(out, (slice(i, i + m), slice(j, j + n)), x)
        i, j = i + m, j + n
    return out


def repeat(x, *sizes):
    sizes = listed(sizes)
    x = reshape(x, *[1] * (len(sizes) - x.ndim), *x.shape)
    shape = [part for n in x.shape for part in (1, n)]
    wide = [part for n, times in zip(x.shape, sizes) for part in (times, n)]
    return reshape(expand(reshape(x, shape), wide), [n * times for n, times in zip(x.shape, sizes)])


def tile(x, *sizes):
    sizes = listed(sizes)
    return repeat(x, *[1] * (x.ndim - len(sizes)), *sizes)


def repeat_interleave(x, repeats, dim=None):
    if dim is None:
        x, dim = flatten(x), 0
    n = x.shape[axis(dim, x.ndim)]
    counts = repeats.tolist() if isinstance(repeats, Tensor) else repeats
    counts = counts if isinstance(counts, list) and len(counts) == n else [int(repeats)] * n
    return taken(x, dim, [i for i in range(n) for _ in range(counts[i])])


def taken(x, dim, numbers):
    return pick(x, *found_at(x, key_for(x, dim, Tensor(numbers, (len(numbers),), int64))))


def flip(x, *dims):
    for d in listed(dims):
        x = taken(x, d, range(x.shape[axis(d, x.ndim)])[::-1])
    return x


def roll(x, shifts, dims=None):
    if dims is None:
        return reshape(roll(flatten(x), shifts, 0), x.shape)
    pairs = zip(shifts, dims) if isinstance(dims, list | tuple) else [(shifts, dims)]
    for shift, d in pairs:
        n = x.shape[axis(d, x.ndim)]
        x = taken(x, d, [(i - shift) % n for i in range(n)])
    return x


def tril(x, diagonal=0, upper=False):
    if x.ndim < 2:
        raise RuntimeError("tril: input tensor must have at least 2 dimensions")
    rows, columns = x.shape[-2:]
    apart = (c - r - diagonal for r in range(rows) for c in range(columns))
    seen = [a >= 0 if upper else a <= 0 for a in apart] * math.prod(x.shape[:-2])
    zero = x.dtype.store([0])[0]
    keep = lambda numbers: [n if s else zero for n, s in zip(numbers, seen)]
    return made(keep(x.flat()), x.shape, x.dtype, (x, keep))


def triu(x, diagonal=0):
    return tril(x, diagonal, True)


# --- number by number, and row by row -------------------------------------------------------------


def power(a, b):
    try:
        return math.pow(a, b)
    except OverflowError:
        return inf if a > 0 or b % 2 == 0 else -inf
    except ValueError:
        return inf if a == 0 else nan


gauss = lambda a: math.exp(-a * a / 2) / math.sqrt(2 * pi)

normal_cdf = lambda a: (1 + math.erf(a / math.sqrt(2))) / 2

log1p = limit(math.log1p, (lambda a: a == -1, -inf))

sigma = lambda a: 1 / (1 + exp(-a))
smallest = lambda a, b: a if a != a or a < b else b
half = engine.half_if_equal

whole = lambda f: (
    lambda a: float(f(a)) if isinstance(a, float) and abs(a) < inf else a,
    lambda g: 0.0,
)

FLOAT |= {
    "log1p": (log1p, lambda g, a: ratio(g, 1 + a)),
    "expm1": (limit(math.expm1, (lambda a: a > 0, inf)), lambda g, y: g * (y + 1)),
    "log2": (limit(math.log2, (lambda a: a == 0, -inf)), lambda g, a: ratio(g, a * math.log(2))),
    "log10": (limit(math.log10, (lambda a: a == 0, -inf)), lambda g, a: ratio(g, a * math.log(10))),
    "reciprocal": (lambda a: ratio(1.0, a), lambda g, y: -g * y * y),
    "silu": (lambda a: a * sigma(a), lambda g, a: g * sigma(a) * (1 + a * (1 - sigma(a)))),
    "softplus": (lambda a: a if a > 20 else math.log1p(exp(a)), lambda g, a: g * sigma(a)),
    "logsigmoid": (lambda a: min(a, 0) - math.log1p(exp(-abs(a))), lambda g, a: g * sigma(-a)),
    "gelu_": (lambda a: a * normal_cdf(a), lambda g, a: g * (normal_cdf(a) + a * gauss(a))),
    "root_of_sum": (root, lambda g, y: g / (2 * y) if y else 0.0),
}
SAME |= {
    "minimum": (smallest, lambda g, a, b: half(g, b, a), lambda g, a, b: half(g, a, b)),
    **{name: whole(getattr(math, name)) for name in ("floor", "ceil", "trunc")},
    "round_": whole(round),
    "sign": (lambda a: float(sign(a)) if isinstance(a, float) else sign(a), lambda g: 0.0),
    "remainder": (limit(operator.mod), None, lambda g, a, b: -g * (a // b)),
    "floor_divide": (limit(operator.floordiv),),
    **{n: (getattr(operator, n),) for n in ("lshift", "rshift")},
    **{
        f"bitwise_{n}": (getattr(operator, f),)
        for n, f in (("and", "and_"), ("or", "or_"), ("xor", "xor"))
    },
}
TEST = {
    **{name: (getattr(operator, name),) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "isnan": (lambda a: a != a,),
    "isinf": (lambda a: abs(a) == inf,),
    "isfinite": (lambda a: abs(a) < inf,),
    "logical_and": (lambda a, b: bool(a and b),),
    "logical_or": (lambda a, b: bool(a or b),),
    "logical_xor": (lambda a, b: bool(a) != bool(b),),
    "logical_not": (operator.not_,),
}
FUNCTIONS = {
    name: engine.operation(*parts, kind=result)
    for table, result in ((FLOAT, "float"), (SAME, None), (TEST, boolean))
    for name, parts in table.items()
}

vars(sys.modules[__name__]).update({f"_{name}": f for name, f in FUNCTIONS.items()})

add_, sub_, mul_, div_ = (FUNCTIONS[name] for name in ("add", "sub", "mul", "div"))


def arithmetic(f):
    "Torch's arithmetic does not take True and False everywhere."

    def call(a, b, alpha=1):
        both = [x.dtype if isinstance(x, Tensor) else kind_of(x) for x in (a, b)]
        if f is sub_ and boolean in both:
            raise RuntimeError(f"Subtraction, the `-` operator, {NO_BOOL[both[0] is both[1]]}")
        if f is add_ and both == [boolean, boolean]:
            return _logical_or(a, b)
        return f(a, b if alpha == 1 else mul_(b, alpha))

    return call


def div(a, b, rounding_mode=None):
    out = div_(a, b)
    if rounding_mode is None:
        return out
    work = common_kind([x if isinstance(x, Tensor) else single(x, a.dtype) for x in (a, b)])
    return to(FUNCTIONS[rounding_mode](out), work)


def pow_(a, b):
    kinds = [x.dtype if isinstance(x, Tensor) else kind_of(x) for x in (a, b)]
    if max(k.sort for k in kinds) < 2:
        if not isinstance(b, Tensor) and b < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        return pointwise(lambda x, y: x**y, (), a, b)
    if not isinstance(b, Tensor):
        slope = lambda g, a: g * b * power(a, b - 1) if b else 0.0
        return pointwise(lambda a: power(a, b), (slope,), a, kind="float")
    slopes = (
        lambda g, a, b, y: g * b * power(a, b - 1) if b else 0.0,
        lambda g, a, b, y: g * y * log(a) if y else 0.0,
    )
    if not isinstance(a, Tensor):
        base = a
        return pointwise(
            lambda b: power(base, b), (lambda g, y: g * y * log(base),), b, kind="float"
        )
    return pointwise(power, slopes, a, b, kind="float")


def max_kind(x, *numbers):
    kinds = [kind_of(n) for n in numbers if n is not None]
    return max([x.dtype, *(k for k in kinds if k.sort > x.dtype.sort)], key=lambda k: k.rank)


def clamp(x, min=None, max=None):
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        x = x if min is None else _maximum(x, min)
        return x if max is None else _minimum(x, max)
    low, high = -inf if min is None else min, inf if max is None else max
    slope = lambda g, a: g if low <= a <= high else 0.0
    work = x.dtype if x.dtype.sort == 2 else max_kind(x, min, max)
    return pointwise(lambda a: high if a > high else low if a < low else a, (slope,), to(x, work))


def round_(x, decimals=0):
    return _round_(x * 10**decimals) / 10**decimals if decimals else _round_(x)


def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    most = {"float64": sys.float_info.max, "float16": 65504.0}.get(
        x.dtype.name, 3.4028234663852886e38
    )
    edge = {inf: most if posinf is None else posinf, -inf: -most if neginf is None else neginf}
    f = lambda x: nan if x != x else edge.get(x, x)
    return pointwise(f, (lambda g, a: g if abs(a) < inf else 0.0,), x)


def gelu(x, approximate="none"):
    if approximate == "tanh":
        return 0.5 * x * (1 + ((2 / pi) ** 0.5 * (x + 0.044715 * x**3)).tanh())
    if approximate != "none":
        raise RuntimeError("approximate argument must be either none or tanh.")
    return FUNCTIONS["gelu_"](x)


def var(x, dim=None, correction=1, keepdim=False, unbiased=None):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if isinstance(correction, bool):
        correction, unbiased = 1, correction
    correction = correction if unbiased is None else int(unbiased)
    away = sum_((x - mean(x, dim, True)).square(), dim, keepdim)
    n = x.numel() // max(away.numel(), 1)
    return kept_too(away * ratio(1.0, max(0, n - correction)), x)


def std(x, *args, **named):
    return kept_too(_root_of_sum(var(x, *args, **named)), x)


def mean_(x, dim=None, keepdim=False, dtype=None):
    x = x if dtype is None else to(x, kind(dtype))
    if x.dtype.sort < 2:
        raise RuntimeError(f"{NO_MEAN} Got: {WORDS.get(x.dtype.name, x.dtype.name)}")
    return mean(x, dim, keepdim)


def total(x, dim=None, keepdim=False, dtype=None):
    return sum_(x, None if dim == () else dim, keepdim, dtype and kind(dtype))


def prod(x, dim=None, keepdim=False):
    def slope(g, x, y):
        return [g[0] * math.prod(x[:i]) * math.prod(x[i + 1 :]) for i in range(len(x))]

    result = x.dtype if x.dtype.sort == 2 else int64
    return reduced(x, dim, keepdim, math.prod, slope, result)


def extreme(best):
    def place(row):  # nan is both the largest and the smallest
        return next((i for i, a in enumerate(row) if a != a), -1)

    def one(row):
        return nan if place(row) >= 0 else best(row)

    def slope(g, x, y):  # equal ones share it
        return [g[0] / x.count(y[0]) if a == y[0] else 0.0 for a in x]

    def values(x, dim=None, keepdim=False):
        if not x.numel():
            raise RuntimeError("Expected reduction dim to be specified for input.numel() == 0.")
        return reduced(x, dim, keepdim, one, slope)

    def where_is(x, dim=None, keepdim=False):
        first = lambda row: place(row) if place(row) >= 0 else row.index(best(row))
        return reduced(x, dim, keepdim, first, kind=int64)

    def both(x, dim=None, keepdim=False):
        if isinstance(dim, Tensor):
            return (_maximum if best is max else _minimum)(x, dim)
        if dim is None or not x.ndim:
            return values(x) if dim is None else Pair(x, where_is(x))
        at = where_is(x, dim, True)
        found = picked(x, dim, at), at
        return Pair(*found) if keepdim else Pair(*(squeeze(part, dim) for part in found))

    return values, where_is, both


amax, argmax, max_ = extreme(max)

amin, argmin, min_ = extreme(min)


class Pair(tuple):
    "Values and where they were."

    def __new__(cls, values, indices):
        return tuple.__new__(cls, (values, indices))

    values, indices = property(lambda self: self[0]), property(lambda self: self[1])


def cumsum(x, dim):
    f = lambda row: list(accumulate(row))
    result = x.dtype if x.dtype.sort == 2 else int64
    return rows_of(x, dim, f, lambda g: f(g[::-1])[::-1], result)


def argsort(x, dim=-1, descending=False, stable=False):
    def f(row):  # nan is the largest
        key = lambda i: (row[i] != row[i], row[i] if row[i] == row[i] else 0)
        return sorted(range(len(row)), key=key, reverse=descending)

    return rows_of(x, dim, f, kind=int64)


def sort(x, dim=-1, descending=False, stable=False):
    at = argsort(x, dim, descending)
    return Pair(picked(x, dim, at), at)


def topk(x, k, dim=-1, largest=True, sorted=True):
    if k > x.shape[axis(dim, x.ndim)]:
        raise RuntimeError("selected index k out of range")
    values, at = sort(x, dim, largest)
    return Pair(narrow(values, dim, 0, k), narrow(at, dim, 0, k))


def softmax_(x, dim, dtype=None):
    return softmax(floats(x, dtype, "softmax"), dim)


def log_softmax_(x, dim, dtype=None):
    return log_softmax(floats(x, dtype, "log_softmax"), dim)


def floats(x, wanted, name):
    x = x if wanted is None else to(x, kind(wanted))
    if x.dtype.sort < 2:
        raise NotImplementedError(f'"{name}_kernel_impl" {NO_KERNEL} {WORDS[x.dtype.name]!r}')
    return x


def logsumexp(x, dim, keepdim=False):
    top = amax(detach(x), dim, True)
    top = masked_fill(top, _isinf(top), 0.0)
    out = total((x - top).exp(), dim, True).log() + top
    return kept_too(out if keepdim else squeeze(out, dim), x, out)


def norm(x, p=2, dim=None, keepdim=False):
    p = 2 if p in ("fro", None) else p
    if p == 1:
        return total(x.abs(), dim, keepdim)
    if p == inf:
        return amax(x.abs(), dim, keepdim)
    if p != 2:
        missing(f"a norm with p = {p}")
    out = _root_of_sum(total(x.square(), dim, keepdim))
    return kept_too(out, x)


def any_(x, dim=None, keepdim=False):
    return reduced(x, dim, keepdim, any, kind=boolean)


def all_(x, dim=None, keepdim=False):
    return reduced(x, dim, keepdim, all, kind=boolean)


def unique(x):
    numbers = sorted(set(x.flat()))
    return Tensor(numbers, (len(numbers),), x.dtype)


def bincount(x, minlength=0):
    found = [0] * max([minlength, *(i + 1 for i in x.flat())])
    for i in x.flat():
        found[i] += 1
    return Tensor(found, (len(found),), int64)


# --- products -------------------------------------------------------------------------------------


def einsum(rule, *tensors):
    "Letters of two tensors and of the result are a batch; those of one are rows or columns."
    tensors = list(tensors[0] if isinstance(tensors[0], list | tuple) else tensors)
    left, arrow, out = rule.replace(" ", "").partition("->")
    inputs, named, size = left.split(","), left.replace(",", "").replace("...", ""), {}
    if len(inputs) != len(tensors):
        raise RuntimeError(f"einsum(): {len(tensors)} operands were provided for {rule}")
    counts = [x.ndim - len(letters.replace("...", "")) for letters, x in zip(inputs, tensors)]
    dots = "0123456789"[: max(counts)]
    if not arrow:
        out = "..." + "".join(sorted(c for c in named if named.count(c) == 1))
    out = out.replace("...", dots)
    for n, (letters, x, many) in enumerate(zip(inputs, tensors, counts)):
        if many < 0 or (many and "..." not in letters):
            raise RuntimeError(f"einsum(): {NO_SUBSCRIPTS} ({len(letters)}) {x.ndim}")
        inputs[n] = letters.replace("...", dots[len(dots) - many :])
        if len(set(inputs[n])) < len(inputs[n]):
            missing(f"einsum with a letter twice in {letters!r}")
        for c, m in zip(inputs[n], x.shape):
            if 1 not in (m, size.setdefault(c, m)) and size[c] != m:
                raise RuntimeError(f"einsum(): subscript {c} has size {m} {NO_BROADCAST} {size[c]}")
            size[c] = max(size[c], m)
    wide = [expand(x, [size[c] for c in letters]) for letters, x in zip(inputs, tensors)]
    x, letters = wide[0], inputs[0]
    for n in range(1, len(wide)):
        x, letters = two(x, letters, wide[n], inputs[n], set(out).union(*inputs[n + 1 :]))
    x, letters = without(x, letters, set(out))
    return permute(x, [letters.index(c) for c in out])


def product(a, b):
    "Torch keeps each factor of a product for the gradient of the other, and a copy of neither."
    if a.dtype is not b.dtype:
        raise RuntimeError(f"{NO_KINDS}, but got: {a.dtype} != {b.dtype}")
    if min(a.ndim, b.ndim) > 1 and b.ndim > 2 and a.shape[-1] != b.shape[-2]:
        n = math.prod(broadcast(a.shape[:-2], b.shape[:-2]))
        sizes = f"[{n}, {a.shape[-1]}] but got: [{n}, {b.shape[-2]}]."
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: {sizes}"
        )
    return kept_too(matmul(a, b), *[a] * b.requires_grad, *[b] * a.requires_grad)


def without(x, letters, wanted):
    "What no other tensor knows is summed."
    alone = [d for d, c in enumerate(letters) if c not in wanted]
    return sum_(x, alone) if alone else x, "".join(c for c in letters if c in wanted)


def two(x, a, y, b, wanted):
    x, a = without(x, a, wanted | set(b))
    y, b = without(y, b, wanted | set(a))
    size = dict(zip(a, x.shape)) | dict(zip(b, y.shape))
    batch, summed = ([c for c in a if c in b and (c in wanted) is keep] for keep in (True, False))
    rows, columns = [c for c in a if c not in b], [c for c in b if c not in a]
    table = lambda t, own, *parts: reshape_(
        permute(t, [own.index(c) for p in parts for c in p]),
        [math.prod(size[c] for c in p) for p in parts],
    )
    found = product(table(x, a, batch, rows, summed), table(y, b, batch, summed, columns))
    order = "".join(batch + rows + columns)
    return reshape(found, [size[c] for c in order]), order


def mm(a, b, dims=2):
    if a.ndim != dims or b.ndim != dims:
        raise RuntimeError("batch1 must be a 3D tensor" if dims == 3 else "self must be a matrix")
    return product(a, b)


def dot(a, b):
    if a.ndim != 1 or b.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {a.ndim}D and {b.ndim}D tensors")
    if len(a) != len(b):
        raise RuntimeError(f"inconsistent tensor size, expected [{len(a)}] and src [{len(b)}]")
    return product(a, b)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    shape = broadcast(x1.shape, x2.shape)
    a, b = (expand(x, shape) for x in (x1, x2))
    a, b = (x / clamp(norm(x, 2, dim, True), eps) for x in (a, b))
    return total(a * b, dim)


# --- making tensors, and turning them into numbers ------------------------------------------------


def ndim_of(one):
    return one.ndim if isinstance(one, Tensor) else 1


def tensor(data, dtype=None, device=None, requires_grad=False):
    "A number, or lists of lists of numbers."
    nested = lambda one: isinstance(one, list | tuple | range | Tensor) and bool(ndim_of(one))
    shape, flat = [], [data]
    while flat and any(map(nested, flat)):
        if not all(map(nested, flat)):
            raise TypeError("not a sequence")
        for one in flat:
            if len(one) != len(flat[0]):
                wanted = f"length {len(flat[0])} at dim {len(shape)} (got {len(one)})"
                raise ValueError(f"expected sequence of {wanted}")
        shape.append(len(flat[0]))
        flat = [part for one in flat for part in one]
    kinds = [one.dtype if isinstance(one, Tensor) else kind_of(one) for one in flat]
    flat = [one.flat()[0] if isinstance(one, Tensor) else one for one in flat]
    for one in flat:
        if not isinstance(one, bool | int | float):
            name = type(one).__name__
            raise (
                TypeError(f"new(): invalid data type '{name}'")
                if name != "complex"
                else (MissingName("complex numbers"))
            )
    result = kind(dtype) or max(kinds, key=lambda d: d.rank, default=state["dtype"])
    out = Tensor(result.store(flat), shape, result)
    return requires_grad_(out, requires_grad)


def as_tensor(data, dtype=None, device=None):
    return to(data, kind(dtype) or data.dtype) if isinstance(data, Tensor) else tensor(data, dtype)


def full(size, fill_value, dtype=None, device=None, requires_grad=False):
    size = (size,) if isinstance(size, int) else tuple(map(operator.index, size))
    value = item(fill_value) if isinstance(fill_value, Tensor) else fill_value
    result = kind(dtype) or kind_of(value)
    if any(n < 0 for n in size):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(size)}: {size}")
    out = Tensor(result.store([value]) * math.prod(size), size, result)
    return requires_grad_(out, requires_grad)


def filled(value):
    def make(*size, dtype=None, device=None, requires_grad=False):
        return full(listed(size), value, kind(dtype) or state["dtype"], requires_grad=requires_grad)

    return make


zeros, ones = filled(0), filled(1)


def arange(start, end=None, step=1, dtype=None, device=None):
    start, end = (0, start) if end is None else (start, end)
    start, end, step = (x.item() if isinstance(x, Tensor) else x for x in (start, end, step))
    count = math.ceil((end - start) / step)
    if count < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    result = kind(dtype) or max(map(kind_of, (start, end, step)), key=lambda d: d.sort)
    return Tensor(result.store([start + i * step for i in range(count)]), (count,), result)


def linspace(start, end, steps, dtype=None, device=None):
    result, step = kind(dtype) or state["dtype"], (end - start) / max(steps - 1, 1)
    back = lambda i: end - (steps - 1 - i) * step  # torch counts the second half from the end
    numbers = [start + i * step if i < steps // 2 or steps == 1 else back(i) for i in range(steps)]
    return Tensor(result.store(numbers), (steps,), result)


def eye(n, m=None, dtype=None, device=None):
    m, result = n if m is None else m, kind(dtype) or state["dtype"]
    return Tensor(result.store([i == j for i in range(n) for j in range(m)]), (n, m), result)


def like(make):
    def call(x, *more, dtype=None, device=None, requires_grad=False):
        return requires_grad_(make(x.shape, *more, dtype=kind(dtype) or x.dtype), requires_grad)

    return call


def item(x):
    if x.numel() != 1:
        raise RuntimeError(f"a Tensor with {x.numel()} elements cannot be converted to Scalar")
    return x.flat()[0]


def truth(x):
    if x.numel() != 1:
        many = "more than one value" if x.numel() else "no values"
        raise RuntimeError(f"Boolean value of Tensor with {many} is ambiguous")
    return bool(x.flat()[0])


def tolist(x):
    flat, counts = x.flat(), [*accumulate(x.shape, operator.mul)]
    for n, count in zip(x.shape[:0:-1], counts[-2::-1]):
        flat = [flat[i * n : (i + 1) * n] for i in range(count)]
    return list(flat) if x.ndim else flat[0]


def shown(x):
    digits = (lambda v: f"{v:.4f}" if abs(v) < inf else str(v)) if x.dtype.sort == 2 else str
    text = lambda part: (
        ", ".join(map(text, part)).join("[]") if isinstance(part, list) else digits(part)
    )
    more = "" if x.dtype in (state["dtype"], int64, boolean) else f", dtype={x.dtype}"
    how = ", requires_grad=True" if x.is_leaf else ", grad_fn=<Backward>"
    return f"tensor({text(tolist(x))}{more}{how if x.requires_grad else ''})"


def clone(x):
    return made(list(x.flat()), x.shape, x.dtype, (x, same))


def detach(x):
    return Tensor(x.storage, x.shape, x.dtype, x.strides, x.offset)


def requires_grad_(x, requires_grad=True):
    if requires_grad and x.dtype.sort < 2:
        raise RuntimeError("only Tensors of floating point dtype can require gradients")
    if x.is_leaf and requires_grad != x.requires_grad:
        x.origin = Origin(Node(leaf=x) if requires_grad else None)
    elif not requires_grad and not x.is_leaf:
        raise RuntimeError("you can only change requires_grad flags of leaf variables.")
    return x


def data(x):
    made_here = x.node is not None and not x.is_leaf
    return (Data if made_here else Tensor)(x.storage, x.shape, x.dtype, x.strides, x.offset)


def set_data(x, new):
    x.storage, x.shape, x.strides = new.storage, new.shape, new.strides
    x.offset, x.dtype = new.offset, new.dtype


def copied(x, memo):
    if not x.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user support deepcopy.")
    new = type(x).__new__(type(x))
    Tensor.__init__(new, list(x.flat()), x.shape, x.dtype)
    memo[id(x)] = requires_grad_(new, x.requires_grad)
    return new


def as_kind(x, *args, dtype=None, device=None, non_blocking=False, copy=False):
    if any(isinstance(one, str) and one != "cpu" for one in args):
        missing(f"the device {args[0]}")
    kinds = [kind(one) for one in (*args, dtype) if isinstance(kind(one), engine.dtype)]
    kinds += [one.dtype for one in args if isinstance(one, Tensor)]
    return clone(to(x, kinds[0] if kinds else x.dtype)) if copy else to(x, *kinds or [x.dtype])


def allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    return all(isclose(a, b, rtol, atol, equal_nan).flat())


def isclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    if a.dtype is not b.dtype:
        raise RuntimeError(f"{a.dtype} did not match {b.dtype}")
    near = lambda x, y: x == y or abs(x - y) <= atol + rtol * abs(y) < inf
    both = lambda x, y: near(x, y) or (equal_nan and x != x and y != y)
    return pointwise(both, (), a, b, kind=boolean)


# --- random numbers: the same as torch's on a CPU -------------------------------------------------


@functools.cache
def first_state(seed):
    words = [seed & 0xFFFFFFFF]
    for i in range(1, 624):
        words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + i) & 0xFFFFFFFF)
    return 3, (*words, 624), None


class Generator:
    "The Mersenne Twister, which Python has too; a normal number is left over from each pair."

    def __init__(self, device=None):
        self.words = random.Random()
        self.manual_seed(67280421310721)

    def manual_seed(self, seed):
        self.words.setstate(first_state(seed))
        self.left, self.seed = None, seed
        return self

    def initial_seed(self):
        return self.seed

    def word(self):
        return self.words.getrandbits(32)

    def uniforms(self, n, kind):
        "Numbers of 53 or 24 random bits; of two words, torch takes the first as the upper one."
        bits = self.words.getrandbits
        if kind is not float64:
            return [(bits(32) & 2**24 - 1) / 2**24 for _ in range(n)]
        pairs = (bits(64) for _ in range(n))
        return [((pair & 0x1FFFFF) << 32 | pair >> 32) / 2**53 for pair in pairs]

    def normals(self, n, kind):
        if n < 16:
            return [self.normal() for _ in range(n)]
        u = self.uniforms(n, kind)
        for i in range(0, n - 15, 16):
            pairs(u, i)
        if n % 16:
            u[-16:] = self.uniforms(16, kind)
            pairs(u, n - 16)
        return u

    def normal(self):
        if self.left is not None:
            number, self.left = self.left, None
            return number
        u, v = self.uniforms(2, float64)
        r = math.sqrt(-2 * math.log1p(-v))
        self.left = r * math.sin(2 * pi * u)
        return r * math.cos(2 * pi * u)

    def get_state(self):
        return self.words.getstate(), self.left

    def set_state(self, both):
        self.words.setstate(both[0])
        self.left = both[1]


def pairs(u, start):
    "Sixteen uniform numbers become normal, in pairs that are eight apart (Box and Muller)."
    for i in range(start, start + 8):
        r, angle = math.sqrt(-2 * math.log(1 - u[i])), 2 * pi * u[i + 8]
        u[i], u[i + 8] = r * math.cos(angle), r * math.sin(angle)


default_generator = Generator()


def drawn(numbers):
    def make(*size, dtype=None, device=None, generator=None, requires_grad=False):
        size, result = listed(size), kind(dtype) or state["dtype"]
        found = numbers(generator or default_generator, math.prod(size), result)
        return requires_grad_(Tensor(result.store(found), size, result), requires_grad)

    return make


randn = drawn(Generator.normals)

rand = drawn(Generator.uniforms)


def randint(low, high=None, size=None, dtype=None, generator=None, device=None):
    low, high, size = (0, low, high) if size is None else (low, high, size)
    if low >= high:
        raise RuntimeError(f"random_ expects from={low} to be less than to={high}")
    source = generator or default_generator
    numbers = [low + source.word() % (high - low) for _ in range(math.prod(size))]
    return Tensor(numbers, size, kind(dtype) or int64)


def randperm(n, generator=None, dtype=None, device=None):
    found, source = list(range(n)), generator or default_generator
    for i in range(n - 1):
        j = i + source.word() % (n - i)
        found[i], found[j] = found[j], found[i]
    return Tensor(found, (n,), kind(dtype) or int64)


def multinomial(p, num_samples, replacement=False, generator=None):
    source, numbers, n = generator or default_generator, p.flat(), p.shape[-1]
    if any(not 0 <= weight < inf for weight in numbers):
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if num_samples > n and not replacement:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) without replacement")
    if replacement and num_samples > 1:
        missing("multinomial with several samples and replacement")
    found = []
    for i in range(0, len(numbers), n):
        row = numbers[i : i + n]
        if not sum(row):
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
        q = [ratio(a, -math.log(1 - u)) for a, u in zip(row, source.uniforms(n, float64))]
        found += sorted(range(n), key=q.__getitem__, reverse=True)[:num_samples]
    return Tensor(found, (*p.shape[:-1], num_samples), int64)


def fill_normal(x, mean=0.0, std=1.0, generator=None):
    numbers = (generator or default_generator).normals(x.numel(), x.dtype)
    return write(x, Tensor(x.dtype.store([mean + std * a for a in numbers]), x.shape, x.dtype))


def fill_uniform(x, a=0.0, b=1.0, generator=None):
    source = generator or default_generator
    numbers = [u * (b - a) + a for u in source.uniforms(x.numel(), x.dtype)]
    return write(x, Tensor(x.dtype.store(numbers), x.shape, x.dtype))
