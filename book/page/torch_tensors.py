"""Torch's functions of tensors over the engine of `course/autograd.py`, for the page.

They are called through `bound` of `torch_arguments.py`, which has read the arguments.
"""

import contextlib
import functools
import math
import operator
import random
import struct
import sys
import weakref
from itertools import accumulate, chain, pairwise

from transformer_lit.page.torch_arguments import *

from transformer_lit.course import autograd as engine
from transformer_lit.course.autograd import *

pi = math.pi

# --- shapes, kinds, and what is not followed back -------------------------------------------------


class Size(tuple):
    def numel(self):
        return math.prod(self)

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
    for y, g in zip(ys, gs, strict=True):
        check_gradient(y, g)
    if any(not x.requires_grad for x in xs):
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    found = walk_back([start_of(y, g) for y, g in zip(ys, gs)], bool(retain_graph))
    if not allow_unused and any(x.node not in found for x in xs):
        raise RuntimeError(UNUSED)
    return tuple(gradient_for(x, found[x.node]) if x.node in found else None for x in xs)


def check_gradient(y, gradient):
    if gradient is not None and gradient.shape != y.shape:
        raise RuntimeError(
            f"Mismatch in shape: grad_output[0] has a shape of {gradient.shape} and output[0] has "
            f"a shape of {y.shape}."
        )
    if gradient is not None and gradient.dtype is not y.dtype:
        missing("a gradient of another dtype")


def backward(x, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    if create_graph or inputs is not None:
        missing("a gradient of a gradient" if create_graph else "the argument inputs of backward")
    check_gradient(x, gradient)
    engine.backward(x, gradient, bool(retain_graph))


def kept_too(out, *tensors):
    "Torch also keeps these for the way back: it refuses where they change, and so must the page."
    if out.node is not None and out.node.leaf is None:
        seen = [(x.storage, x.storage.version) for x in tensors if isinstance(x, Tensor)]
        out.origin.node = Node(
            [(node, back, [*kept, *seen]) for node, back, kept in out.node.edges]
        )
    return out


# --- the order in memory --------------------------------------------------------------------------


def slower(a, b, shape, steps):
    "1 where torch puts axis a further out than b, -1 where b, by the first tensor that decides."
    for step in steps:
        if step[a] and step[b] and step[a] != step[b]:
            return 1 if step[a] > step[b] else -1
        if step[a] and step[a] == step[b] and shape[a] > shape[b]:
            return 1
    return 0


def layout(tensors):
    "Which axes of a result torch puts further out in memory: it follows its inputs."
    shape = broadcast(*(x.shape for x in tensors))
    steps = []
    for x in tensors:
        before = len(shape) - x.ndim
        own = [0 if n == 1 < m else s for n, s, m in zip(x.shape, x.strides, shape[before:])]
        steps.append([0] * before + own)
    order = [*range(len(shape))][::-1]
    for i in range(1, len(order)):
        for j in range(i - 1, -1, -1):
            found = slower(order[j], order[j + 1], shape, steps)
            if found > 0:
                order[j], order[j + 1] = order[j + 1], order[j]
            elif found < 0:
                break
    return order[::-1], shape


def laid_out(f, *inputs):
    "f, whose result has the order in memory that torch's would have."
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    if all(x.is_contiguous() for x in tensors):
        return f(*inputs)
    order, shape = layout(tensors)
    if order == sorted(order):
        return f(*inputs)
    wide = lambda x: isinstance(x, Tensor) and x.ndim  # a single number takes the others' kind
    turn = lambda x: permute(expand(x, shape), order) if wide(x) else x
    return permute(f(*map(turn, inputs)), sorted(order, key=order.__getitem__))


def as_laid_out(x, new):
    "The numbers of `new` in x's order in memory."
    return laid_out(lambda x, new: copy(new), x, new) if not x.is_contiguous() else contiguous(new)


def pointwise(f, slopes, *inputs, kind=None):
    if kind == "float":
        inputs = [x if isinstance(x, Tensor) else float(x) for x in inputs]
    return laid_out(lambda *inputs: by_number(f, slopes, *inputs, kind=kind), *inputs)


by_number, engine.pointwise = engine.pointwise, pointwise


def to(x, kind):
    return x if kind is x.dtype else laid_out(lambda x: engine.to(x, kind), x)


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
SHARED_PART = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
    "single memory location. Please clone() the tensor before performing the operation."
)
NO_KINDS = "expected m1 and m2 to have the same dtype"
NO_CAST = "can't be cast to the desired output type"
NO_ROOM = "doesn't match the broadcast shape"
NO_MASK = "at index 0 does not match the shape of the indexed tensor"
NO_INDEX_PUT = "Index put requires the source and destination dtypes match"
NO_INDEX = "expected index to be no larger than self apart from this dimension:"
NO_VIEW = (
    "view size is not compatible with input tensor's size and stride (at least one dimension "
    "spans across two contiguous subspaces). Use .reshape(...) instead."
)
NO_SPLIT = "split_with_sizes expects split_sizes to sum exactly to"
NO_DIMENSIONS = "Tensors must have same number of dimensions"
NO_SIZES = "Sizes of tensors must match except in dimension"
NO_KERNEL = "not implemented for"
NO_SUBSCRIPTS = "the number of subscripts in the equation does not match the dimensions"
NO_BROADCAST = "which does not broadcast with previously seen size"


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
    "The `.data` of a tensor. Torch doesn't count its changes, and goes on with the new numbers."


def check_kept(node, kept):
    for storage, version in kept:
        since = {*range(version + 1, storage.version + 1)}
        if since and since <= silent.get(storage, set()):
            missing("a change of .data between a calculation and its gradient")
    counted_check(node, kept)


silent = weakref.WeakKeyDictionary()  # storage -> the versions that came from a change of `.data`
counted_check, engine.check_kept = engine.check_kept, check_kept


def change(x, at, new, *kept, replaces=False):
    if isinstance(x, Data):
        silent.setdefault(x.storage, set()).add(x.storage.version + 1)
    may_change(x, new)
    if new.dtype.sort > x.dtype.sort:
        raise RuntimeError(f"result type {new.dtype} {NO_CAST} {x.dtype}")
    put(x, at, to(new, x.dtype), *kept, replaces=replaces)


def write(x, new, replaces=False):
    "All numbers of x become those of `new`, which may be fewer."
    if new.ndim and any(step == 0 and n > 1 for n, step in zip(x.shape, x.strides)):
        raise RuntimeError(SHARED)
    at = places(x.shape, x.strides, x.offset)
    change(x, at, expand(new, x.shape), replaces=replaces)
    return x


def overlap(x, y):
    """Whether two tensors share numbers, as far as torch looks: both read a stretch without gaps.

    Where it doesn't look, what it does depends on the order in which it happens to read and write.
    """
    if x.storage.values is not y.storage.values or not (x.numel() and y.numel()):
        return False
    end = lambda t: t.offset + 1 + sum((n - 1) * step for n, step in zip(t.shape, t.strides))
    dense = all(end(t) - t.offset == t.numel() for t in (x, y))
    if dense or reads_as(x, y):
        return x.offset < end(y) and y.offset < end(x)
    own, other = (places(t.shape, t.strides, t.offset) for t in (x, y))
    return False if {*own}.isdisjoint(other) else missing("a change by numbers that it changes")


def reads_as(x, y):
    return (x.shape, x.strides, x.offset) == (y.shape, y.strides, y.offset)


def check_overlap(x, y):
    "Torch changes a tensor by itself, but not by other parts of its numbers."
    if not reads_as(x, y) and overlap(x, y):
        raise RuntimeError(SHARED_PART)


def in_place(f):
    "The form of f that changes its first tensor: `x.exp_()`."

    @functools.wraps(f)
    def call(x, *args, **named):
        for y in (*args, *named.values()):
            if isinstance(y, Tensor):
                check_overlap(x, y)
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


SEVERAL = list, tuple, range, Tensor, slice, type(None), type(...)


def byte_mask(x):
    "Torch takes bytes for True and False."
    return to(x, boolean) if isinstance(x, Tensor) and x.dtype.name == "uint8" else x


def spread(x, key):
    "For each axis what to take, None for each new one; and the tensors of the key, as they were."
    parts, tables, d = [], [], 0
    if isinstance(key, list) and any(isinstance(one, SEVERAL) for one in key):
        key = tuple(key)  # as torch reads a list in which not all are numbers
    key = key if isinstance(key, tuple) else (key,)
    key = [byte_mask(tensor(one) if isinstance(one, list | range) else one) for one in key]
    wide = lambda one: one.ndim if isinstance(one, Tensor) and one.dtype is boolean else 1
    free = x.ndim - sum(wide(one) for one in key if one is not None and one is not Ellipsis)
    if free < 0:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
    key = key if any(one is Ellipsis for one in key) else (*key, Ellipsis)
    for one in key:
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
        elif isinstance(one, Tensor) and one.dtype.name not in ("int64", "int32"):
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


def fitting(value, kind):
    "A number that a kind of numbers can hold, as that kind."
    name, size = kind.name, 8 * kind.itemsize
    most = (1 << size - (name != "uint8")) - 1 if kind.sort == 1 else FLOATS.get(name, inf)
    if kind.sort and abs(value) != inf and (value > most or value < -most - (kind.sort == 1)):
        short = {"float32": "float", "float64": "double"}.get(name, name)
        raise RuntimeError(f"value cannot be converted to type {short} without overflow")
    return kind.store([value])


FLOATS = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}
FLOATS |= {"float64": sys.float_info.max}


def single_of(x, value):
    return Tensor(fitting(value, x.dtype), (), x.dtype)


def cast(x, new):
    return made(new.store(x.flat()), x.shape, new, (x, same))


def setitem(x, key, value):
    parts, tables = spread(x, key)
    if isinstance(value, list | tuple | str | None):
        raise TypeError(f"can't assign a {type(value).__name__} to a {x.dtype}")
    if tables and isinstance(value, Tensor) and value.dtype is not x.dtype:
        if value.numel() == 1:
            missing("a tensor of another dtype, put where a mask says")
        raise RuntimeError(f"{NO_INDEX_PUT}, got {x.dtype} and {value.dtype}.")
    value = value if isinstance(value, Tensor) else single_of(x, value)
    at, shape = found_at(x, parts)
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = squeeze(value, 0)
    value, part = expand(value, shape), x if tables else view_of(x, *cut(x, parts)[:3])
    if any(step == 0 and n > 1 for n, step in zip(part.shape, part.strides)) and value.ndim:
        raise RuntimeError(SHARED)
    check_overlap(part, value)
    change(x, at, cast(value, x.dtype), *tables)


def along(x, dim, index):
    "Where each entry of `index`, which counts along one axis, is."
    if not x.ndim:
        return [x.offset] * index.numel() if not any(index.flat()) else missing("this index")
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
    x = unsqueeze(x, 0) if as_tuple and not x.ndim else x
    steps, found = row_major(x.shape), [i for i, number in enumerate(x.flat()) if number]
    columns = [[i // step % n for i in found] for step, n in zip(steps, x.shape)]
    out = Tensor(list(chain.from_iterable(columns)), (x.ndim, len(found)), int64)
    out = permute(out, 1, 0)  # torch's order in memory
    return unbind(out, 1) if as_tuple else out


def picked(x, dim, index):
    return pick(x, along(x, dim, index), index.shape, index)


def gather(x, dim, index):
    return kept_too(picked(x, dim, index), x)


def vector(x, dim, index):
    "Where the rows of numbers are that an index along one axis names, and their shape."
    if index.ndim > 1:
        raise IndexError("Index is supposed to be a vector")
    n = x.shape[axis(dim, x.ndim)] if x.ndim else 1
    if any(not 0 <= i < n for i in index.flat()):
        raise IndexError("index out of range in self")
    return found_at(x, key_for(x, dim, index if index.ndim else unsqueeze(index, 0)))


def take_along_dim(x, indices, dim=None):
    if dim is None:
        return gather(view(x, (-1,)), 0, view(indices, (-1,)))
    d = axis(dim, x.ndim)
    if indices.ndim != x.ndim:
        raise RuntimeError("input and indices should have the same number of dimensions")
    sizes = broadcast(*((*t.shape[:d], 1, *t.shape[d + 1 :]) for t in (x, indices)))
    wide = lambda t: expand(t, (*sizes[:d], t.shape[d], *sizes[d + 1 :]))
    return gather(wide(x), d, wide(indices))


def index_select(x, dim, index):
    return pick(x, *vector(x, dim, index), index)


def copy_changed(f):
    "A function that gives a changed copy, from one that changes a tensor in place."

    @functools.wraps(f)
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
    at, shape = vector(x, dim, index)
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
    at, shape = vector(Tensor([], x.shape, x.dtype), dim, index)
    check_source(x, shape, source)
    return added_at(x, at, source * alpha, index)


def scatter_add(x, dim, index, src):
    dense = Tensor([], x.shape, x.dtype)
    return added_at(x, along(dense, dim, index), src[tuple(map(slice, index.shape))], index)


def masked_fill(x, mask, value):
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(
            "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)."
        )
    value = cast(value, x.dtype) if isinstance(value, Tensor) else single_of(x, value)
    return where(mask, value, x)


def masked_select(x, mask):
    shape = broadcast(x.shape, mask.shape)
    return kept_too(getitem(expand(x, shape), expand(mask, shape)), x, mask)


def where(condition, input=None, other=None):
    if input is None:
        return nonzero(condition, as_tuple=True)
    return laid_out(choice, condition, input, other)


def choice(test, a, b):
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


def view(x, size=None, dtype=None):
    if dtype:
        return read_as(x, dtype)
    sizes = sized(x, size)
    steps = None if x.numel() and x.is_contiguous() else strides_for(x.shape, x.strides, sizes)
    if x.is_contiguous() or not x.numel():
        return reshape(x, sizes)
    if steps is None:
        raise RuntimeError(NO_VIEW)
    return view_of(x, sizes, steps, x.offset)


def sized(x, sizes):
    if sizes.count(-1) > 1:
        raise RuntimeError("only one dimension can be inferred")
    if any(n < -1 for n in sizes):
        raise RuntimeError(f"invalid shape dimension {min(sizes)}")
    if -1 in sizes and not math.prod(sizes):
        raise RuntimeError(
            f"cannot reshape tensor of {x.numel()} elements into shape {list(sizes)}"
        )
    return filled_in(x.numel(), sizes)


def reshape_(x, shape):
    sizes = sized(x, shape)
    steps = None if x.is_contiguous() else strides_for(x.shape, x.strides, sizes)
    return reshape(x, sizes) if steps is None else view_of(x, sizes, steps, x.offset)


def read_as(x, new):
    if not x.is_contiguous():
        missing("view with another dtype of a transposed tensor")
    if not x.ndim or x.shape[-1] * x.dtype.itemsize % new.itemsize:
        raise RuntimeError(
            f"self.size(-1) must be divisible to view {x.dtype} as {new} (different element sizes)"
        )
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
    if a > b:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    return reshape_(x, (*x.shape[:a], math.prod(x.shape[a : b + 1]), *x.shape[b + 1 :]))


def narrow(x, dim, start, length):
    d = axis(dim, x.ndim)
    start, n = start + x.shape[d] if start < 0 else start, x.shape[d]
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not 0 <= start <= n:
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}])")
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


def split(x, *size, dim=0):
    (sizes,) = size
    whole = isinstance(sizes, int) and not isinstance(sizes, bool)
    if not whole and not (isinstance(sizes, list | tuple) and all(type(n) is int for n in sizes)):
        if isinstance(sizes, Tensor):
            missing("split with a tensor of sizes")
        raise TypeError(
            "split_with_sizes(): argument 'split_sizes' (position 2) must be tuple of ints, not "
            f"{type(sizes).__name__}"
        )
    if not x.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    n = x.shape[axis(dim, x.ndim)]
    if min([sizes] if whole else sizes, default=0) < 0 or (whole and n and not sizes):
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={sizes}")
    sizes = [sizes] * max(1, -(-n // max(1, sizes))) if whole else sizes
    ends = [*accumulate(sizes, initial=0)]
    if ends[-1] != n and not whole:
        raise RuntimeError(f"{NO_SPLIT} {n} (input tensor's size at dimension {dim})")
    return several(narrow(x, dim, a, min(b, n) - a) for a, b in pairwise(ends))


def chunk(x, chunks, dim=0):
    if not x.ndim:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    if not x.shape[axis(dim, x.ndim)]:
        missing("chunk of an empty axis")
    return split(x, max(1, -(-x.shape[axis(dim, x.ndim)] // chunks)), dim=dim)


def unbind(x, dim=0):
    return several(select(x, dim, i) for i in range(x.shape[axis(dim, x.ndim)]))


def unfold(x, dimension, size, step):
    d = axis(dimension, x.ndim)
    n, count = x.shape[d], (x.shape[d] - size) // step + 1
    if step <= 0 or size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0 and step is {step} but must be > 0")
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {n} but size is {size}")
    shape = (*x.shape[:d], count, *x.shape[d + 1 :], size)
    strides = (*x.strides[:d], x.strides[d] * step, *x.strides[d + 1 :], x.strides[d])
    return view_of(x, shape, strides, x.offset)


def diagonal(x, offset=0, dim1=0, dim2=1):
    a, b = axis(dim1, x.ndim), axis(dim2, x.ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rest = [d for d in range(x.ndim) if d not in (a, b)]
    rows, columns = max(0, -offset), max(0, offset)
    n = max(0, min(x.shape[a] - rows, x.shape[b] - columns))
    start = x.offset + rows * x.strides[a] + columns * x.strides[b]
    shape, strides = [x.shape[d] for d in rest], [x.strides[d] for d in rest]
    return view_of(x, [*shape, n], [*strides, x.strides[a] + x.strides[b]], start)


def diag_embed(x, offset=0):
    n = x.shape[-1] + abs(offset)
    out = zeros((*x.shape[:-1], n, n), x.dtype)
    setitem(diagonal(out, offset, -2, -1), Ellipsis, x)
    return out


def diag(x, **where):
    if x.ndim not in (1, 2):
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {x.ndim}D")
    offset = where.get("diagonal", 0)
    return diag_embed(x, offset) if x.ndim == 1 else clone(diagonal(x, offset))


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
    tensors = [to(x, work) for x in tensors]
    count, inner = math.prod(first.shape[:d]), math.prod(first.shape[d + 1 :])
    ends = [*accumulate([x.shape[d] * inner for x in tensors], initial=0)]
    part = lambda a, b, n: lambda g: [y for i in range(count) for y in g[i * n + a : i * n + b]]
    edges = [(x, part(a, b, ends[-1])) for x, (a, b) in zip(tensors, pairwise(ends))]
    own = [(x.flat(), x.shape[d] * inner) for x in tensors]
    values = [y for i in range(count) for x, n in own for y in x[i * n : (i + 1) * n]]
    shape = (*first.shape[:d], sum(x.shape[d] for x in tensors), *first.shape[d + 1 :])
    return made(values, shape, work, *edges)


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
    out, i, j = zeros((rows, columns), common_kind(tensors)), 0, 0
    for x in tensors:
        m, n = x.shape
        setitem(out, (slice(i, i + m), slice(j, j + n)), x)
        i, j = i + m, j + n
    return out


def permute_(x, dims):
    if len(dims) != x.ndim:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the "
            f"length of the desired ordering of dimensions i.e. input.dim() = {x.ndim} is not "
            f"equal to len(dims) = {len(dims)}"
        )
    return permute(x, dims)


def expand_(x, size):
    new = len(size) - x.ndim
    if new < 0:
        sizes = f"[{', '.join(map(str, size))}]"
        raise RuntimeError(
            f"expand: the number of sizes provided ({len(size)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({x.ndim}): {sizes}"
        )
    for d, n in enumerate(size):
        if n < -(d >= new):
            where = f"in a leading, non-existing dimension {d}" if d < new else f"at dimension {d}"
            raise RuntimeError(f"The expanded size of the tensor ({n}) isn't allowed {where}")
    return expand(x, size)


def repeat(x, repeats):
    sizes = repeats
    if len(sizes) < x.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            "tensor"
        )
    if any(n < 0 for n in sizes):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(sizes)}")
    x = reshape(x, *[1] * (len(sizes) - x.ndim), *x.shape)
    shape = [part for n in x.shape for part in (1, n)]
    wide = [part for n, times in zip(x.shape, sizes) for part in (times, n)]
    return reshape(expand(reshape(x, shape), wide), [n * times for n, times in zip(x.shape, sizes)])


def tile(x, dims):
    return repeat(x, (*[1] * (x.ndim - len(dims)), *dims))


def repeat_interleave(x, repeats, dim=None):
    if dim is None:
        x, dim = flatten(x), 0
    n = x.shape[axis(dim, x.ndim)]
    counts = repeats.tolist() if isinstance(repeats, Tensor) else repeats
    counts = counts[0] if isinstance(counts, list) and len(counts) == 1 else counts
    counts = [counts] * n if isinstance(counts, int) else counts
    if isinstance(repeats, Tensor) and repeats.ndim > 1:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    if len(counts) != n or min(counts, default=0) < 0:
        raise RuntimeError(f"repeats must be non-negative and have {n} numbers or one")
    return taken(x, dim, [i for i in range(n) for _ in range(counts[i])])


def taken(x, dim, numbers):
    return pick(x, *found_at(x, key_for(x, dim, Tensor(numbers, (len(numbers),), int64))))


def flip(x, dims):
    out = x
    for d in dims:
        out = taken(out, d, range(x.shape[axis(d, x.ndim)])[::-1])
    return as_laid_out(x, out)


def roll(x, shifts, dims=None):
    if not dims and dims != 0 and (isinstance(shifts, int) or len(shifts) == 1):
        return reshape(roll(flatten(x), shifts, 0), x.shape)
    shifts, dims = ((n,) if isinstance(n, int) else n or () for n in (shifts, dims))
    if len(shifts) != len(dims) or not dims:
        raise RuntimeError(
            f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}"
        )
    for shift, d in zip(shifts, dims):
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
    "floor_divide": (lambda a, b: a // b if b else by_zero(a, b),),
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


def by_zero(a, b):
    if isinstance(a, int):
        raise RuntimeError("ZeroDivisionError")
    return ratio(a, b)


FUNCTIONS = {
    name: engine.operation(*parts, kind=result)
    for table, result in ((FLOAT, "float"), (SAME, None), (TEST, boolean))
    for name, parts in table.items()
}

vars(sys.modules[__name__]).update({f"_{name}": f for name, f in FUNCTIONS.items()})

add_, sub_, mul_, div_ = (FUNCTIONS[name] for name in ("add", "sub", "mul", "div"))


def arithmetic(f):
    "Torch's arithmetic does not take True and False everywhere."

    def call(a, *other, alpha=1):
        (b,) = other
        if isinstance(alpha, bool):
            missing("a Boolean alpha")
        if f is add_ and all(
            boolean is (x.dtype if isinstance(x, Tensor) else kind_of(x)) for x in (a, b)
        ):
            return _logical_or(a, b)
        if alpha != 1 and isinstance(b, Tensor):
            b = to(b, common_kind([x for x in (a, b) if isinstance(x, Tensor)]))
        return f(a, b if alpha == 1 else mul_(b, alpha))

    return call


def div(a, *other, rounding_mode=None):
    (b,) = other
    out = div_(a, b)
    if rounding_mode is None:
        return out
    work = common_kind([x if isinstance(x, Tensor) else single(x, a.dtype) for x in (a, b)])
    return to(FUNCTIONS[rounding_mode](out), work)


def pow_(a, *exponent):
    (b,) = exponent
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
        slope = lambda g, y: g * y * log(base)
        return by_number(lambda b: power(base, b), (slope,), b, kind="float")
    return pointwise(power, slopes, a, b, kind="float")


def max_kind(x, *numbers):
    kinds = [kind_of(n) for n in numbers if n is not None]
    return max([x.dtype, *(k for k in kinds if k.sort > x.dtype.sort)], key=lambda k: k.rank)


def clamp(x, min=None, max=None):
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        x = x if min is None else _maximum(x, min)
        return x if max is None else _minimum(x, max)
    low, high = -inf if min is None else min, inf if max is None else max
    if x.dtype.name == "uint8" and -inf < low < 0:
        missing("clamp of bytes to a negative number")
    slope = lambda g, a: g if low <= a <= high else 0.0
    work = x.dtype if x.dtype.sort == 2 else max_kind(x, min, max)
    if work is boolean:
        raise NotImplementedError(f"\"clamp_scalar_cpu\" {NO_KERNEL} 'Bool'")
    return pointwise(
        lambda a: high if a > high or (low > high and a == a) else low if a < low else a,
        (slope,),
        to(x, work),
    )


def round_(x, decimals=None):
    if decimals is not None and x.dtype.sort < 2:
        raise NotImplementedError(f'"round_cpu" {NO_KERNEL} {x.dtype.name!r}')
    return _round_(x * 10**decimals) / 10**decimals if decimals else _round_(x)


def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    most = FLOATS.get(x.dtype.name, inf)
    edge = {inf: most if posinf is None else posinf, -inf: -most if neginf is None else neginf}
    f = lambda x: nan if x != x else edge.get(x, x)
    return pointwise(f, (lambda g, a: g if abs(a) < inf else 0.0,), x)


def gelu(x, approximate="none"):
    if approximate == "tanh":
        return 0.5 * x * (1 + ((2 / pi) ** 0.5 * (x + 0.044715 * x**3)).tanh())
    if approximate != "none":
        raise RuntimeError("approximate argument must be either none or tanh.")
    return FUNCTIONS["gelu_"](x)


def var(x, dim=None, correction=1, keepdim=False, unbiased=True):
    correction, dim = correction if unbiased else 0, None if dim == () else dim
    away = sum_((x - mean(x, dim, True)).square(), dim, keepdim)
    n = x.numel() // max(away.numel(), 1)
    return kept_too(away * ratio(1.0, max(0, n - correction)), x)


def std(x, *args, **named):
    return kept_too(_root_of_sum(var(x, *args, **named)), x)


def mean_(x, dim=None, keepdim=False, dtype=None):
    return mean(x if dtype is None else to(x, dtype), None if dim == () else dim, keepdim)


def total(x, dim=None, keepdim=False, dtype=None):
    return sum_(x, None if dim == () else dim, keepdim, dtype)


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
        return reduced(x, None if dim == () else dim, keepdim, one, slope)

    def where_is(x, dim=None, keepdim=False):
        first = lambda row: place(row) if place(row) >= 0 else row.index(best(row))
        return reduced(x, dim, keepdim, first, kind=int64)

    def both(x, dim=None, keepdim=False, other=None):
        if dim is not None:
            axis(dim, x.ndim)
        if other is not None:
            return (_maximum if best is max else _minimum)(x, other)
        if dim is None or not x.ndim:
            return values(x) if dim is None else Pair(x, where_is(x))
        at = where_is(x, dim, True)
        found = picked(x, dim, at), at
        return Pair(*found) if keepdim else Pair(*(squeeze(part, dim) for part in found))

    return values, where_is, both


amax, argmax, max_ = extreme(max)

amin, argmin, min_ = extreme(min)


def pair(*names):
    "A tuple of two whose parts have names, too."
    parts = {name: property(operator.itemgetter(i)) for i, name in enumerate(names)}
    return type("Pair", (tuple,), {"__new__": lambda cls, *two: tuple.__new__(cls, two), **parts})


Pair, Extremes = pair("values", "indices"), pair("min", "max")


def cumsum(x, dim, dtype=None):
    f = lambda row: list(accumulate(row))
    result = x.dtype if x.dtype.sort == 2 else int64
    return contiguous(rows_of(x, dim, f, lambda g: f(g[::-1])[::-1], dtype or result))


def argsort(x, dim=-1, descending=False, stable=False):
    def f(row):  # nan is the largest
        key = lambda i: (row[i] != row[i], row[i] if row[i] == row[i] else 0)
        return sorted(range(len(row)), key=key, reverse=descending)

    return as_laid_out(x, rows_of(x, dim, f, kind=int64))


def sort(x, dim=-1, descending=False, stable=False):
    at = argsort(x, dim, descending)
    return Pair(as_laid_out(x, picked(x, dim, at)), at)


def topk(x, k, dim=-1, largest=True, sorted=True):
    if k > x.shape[axis(dim, x.ndim)]:
        raise RuntimeError("selected index k out of range")
    values, at = sort(x, dim, largest)
    return Pair(*(contiguous(narrow(part, dim, 0, k)) for part in (values, at)))


def softmax_(x, dim, dtype=None):
    return contiguous(softmax(to(x, dtype or x.dtype), dim))


def log_softmax_(x, dim, dtype=None):
    return contiguous(log_softmax(to(x, dtype or x.dtype), dim))


def logsumexp(x, dim, keepdim=False):
    x = to(x, x.dtype if x.dtype.sort == 2 else state["dtype"])
    if dim == ():
        missing("logsumexp along no axis")
    top = amax(detach(x), dim, True)
    top = masked_fill(top, _isinf(top), 0.0)
    out = total((x - top).exp(), dim, True).log() + top
    return kept_too(out if keepdim else squeeze(out, dim), x, out)


def norm(x, p=2, dim=None, keepdim=False):
    if x.dtype.sort < 2:
        words = f"Expected a floating point or complex tensor as input. Got {x.dtype.name}"
        raise RuntimeError(f"linalg.vector_norm: {words}")
    p = 2 if p in ("fro", None) else p
    if p == 1:
        return total(x.abs(), dim, keepdim)
    if p == inf:
        return amax(x.abs(), dim, keepdim)
    if p != 2:
        missing(f"a norm with p = {p}")
    out = _root_of_sum(total(x.square(), dim, keepdim))
    return kept_too(out, x)


def truth_of(f):
    kinds = {"uint8": KINDS["uint8"]}
    return lambda x, dim=None, keepdim=False: reduced(
        x, dim, keepdim, f, kind=kinds.get(x.dtype.name, boolean)
    )


any_, all_ = truth_of(any), truth_of(all)


def unique(x):
    numbers = sorted(set(x.flat()))
    return Tensor(numbers, (len(numbers),), x.dtype)


def bincount(x, minlength=0):
    if x.ndim != 1 or min(x.flat(), default=0) < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    found = [0] * max([minlength, *(i + 1 for i in x.flat())])
    for i in x.flat():
        found[i] += 1
    return Tensor(found, (len(found),), int64)


# --- products -------------------------------------------------------------------------------------


def einsum(rule, *tensors):
    "Letters of two tensors and of the result are a batch; those of one are rows or columns."
    tensors = list(tensors[0] if isinstance(tensors[0], list | tuple) else tensors)
    left, arrow, out = rule.replace(" ", "").partition("->")
    for letter in (left + out).replace("...", "").replace(",", ""):
        if not (letter.isascii() and letter.isalpha()):
            raise RuntimeError("einsum(): invalid subscript given, subscripts must be in [a-zA-Z]")
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
    if a.dtype is boolean:
        raise NotImplementedError(f"\"addmm_impl_cpu_\" {NO_KERNEL} 'Bool'")
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


def of_axes(*dims, words):
    "The product of tensors with so many axes."

    def call(a, *other):
        (b,) = other
        if (a.ndim, b.ndim) != dims:
            raise RuntimeError(words)
        if a.ndim == 3 and a.shape[0] != b.shape[0]:
            raise RuntimeError("batch1 and batch2 must have same number of batches")
        return product(a, b)

    return call


mm = of_axes(2, 2, words="self must be a matrix")
bmm = of_axes(3, 3, words="batch1 must be a 3D tensor")
mv = of_axes(2, 1, words="vector + matrix @ vector expected")


def dot(a, *tensor):
    (b,) = tensor
    if a.ndim != 1 or b.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {a.ndim}D and {b.ndim}D tensors")
    if len(a) != len(b):
        raise RuntimeError(f"inconsistent tensor size, expected [{len(a)}] and src [{len(b)}]")
    return product(a, b)


def outer(a, vec2):
    for name, x in (("self", a), ("vec2", vec2)):
        if x.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {x.ndim}-D")
    return unsqueeze(a, 1) * vec2


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    shape, work = broadcast(x1.shape, x2.shape), common_kind([x1, x2])
    a, b = (expand(to(x, work), shape) for x in (x1, x2))
    a, b = (x / clamp(norm(x, 2, dim, True), eps) for x in (a, b))
    return total(a * b, dim)


# --- making tensors, and turning them into numbers ------------------------------------------------


def ndim_of(one):
    return one.ndim if isinstance(one, Tensor) else 1


def tensor(data, dtype=None):
    "A number, or lists of lists of numbers."
    if isinstance(data, Tensor):
        return detach(copy(to(data, dtype or data.dtype)))
    nested = lambda one: isinstance(one, list | tuple | range | Tensor) and bool(ndim_of(one))
    shape, flat = [], [data]
    while flat and any(map(nested, flat)):
        if not all(map(nested, flat)):
            raise TypeError("not a sequence")
        for one in flat:
            if isinstance(one, Tensor) and shape:
                raise TypeError(
                    "only integer tensors of a single element can be converted to an index"
                )
            if len(one) != len(flat[0]):
                wanted = f"length {len(flat[0])} at dim {len(shape)} (got {len(one)})"
                raise ValueError(f"expected sequence of {wanted}")
        shape.append(len(flat[0]))
        flat = [part for one in flat for part in one]
    kinds = [one.dtype if isinstance(one, Tensor) else kind_of(one) for one in flat]
    flat = [one.flat()[0] if isinstance(one, Tensor) else one for one in flat]
    for one in flat:
        if isinstance(one, complex):
            missing("complex numbers")
        if not isinstance(one, bool | int | float):
            raise TypeError(f"new(): invalid data type '{type(one).__name__}'")
    result = dtype or max(kinds, key=lambda d: d.rank, default=state["dtype"])
    return Tensor(result.store(flat), shape, result)


def as_tensor(data, dtype=None):
    return to(data, dtype or data.dtype) if isinstance(data, Tensor) else tensor(data, dtype)


def check_size(size):
    if any(n < 0 for n in size):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(size)}: {size}")


def full(size, fill_value, dtype=None):
    result = dtype or kind_of(fill_value)
    check_size(size)
    return Tensor(fitting(fill_value, result) * math.prod(size), size, result)


def zeros(size, dtype=None):
    return full(size, 0, dtype or state["dtype"])


def ones(size, dtype=None):
    return full(size, 1, dtype or state["dtype"])


def arange(start, end=None, step=1, dtype=None):
    start, end = (0, start) if end is None else (start, end)
    if not step:
        raise RuntimeError("step must be nonzero")
    count = math.ceil((end - start) / step)
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    result = dtype or max(map(kind_of, (start, end, step)), key=lambda d: d.sort)
    result = dtype or (int64 if result is boolean else result)
    if result is boolean:
        raise NotImplementedError(f"\"arange_cpu\" {NO_KERNEL} 'Bool'")
    return Tensor(result.store([start + i * step for i in range(count)]), (count,), result)


def number_in(x, words):
    if isinstance(x, Tensor) and x.ndim:
        raise RuntimeError(words)
    return 1.0 * (x.flat()[0] if isinstance(x, Tensor) else x)


def linspace(start, end, steps, dtype=None):
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    start, end = (
        number_in(x, "linspace only supports 0-dimensional tensors") for x in (start, end)
    )
    result, step = dtype or state["dtype"], (end - start) / max(steps - 1, 1)
    back = lambda i: end - (steps - 1 - i) * step  # torch counts the second half from the end
    numbers = [start + i * step if i < steps // 2 or steps == 1 else back(i) for i in range(steps)]
    return Tensor(result.store(numbers), (steps,), result)


def eye(n, m=None, dtype=None):
    m, result = n if m is None else m, dtype or state["dtype"]
    if min(n, m) < 0:
        raise RuntimeError(f"n must be greater or equal to 0, got {min(n, m)}")
    return Tensor(result.store([i == j for i in range(n) for j in range(m)]), (n, m), result)


def like(make):
    def call(x, *more, dtype=None):
        new = lambda y: make(y.shape, *more, dtype=dtype or y.dtype)
        if make in (rand, randn) and layout([x])[0] != [*range(x.ndim)]:
            missing("random numbers for a transposed tensor")
        return laid_out(new, detach(x))

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


def copy(x):
    return made(list(x.flat()), x.shape, x.dtype, (x, same))


def clone(x):
    return laid_out(copy, x)


def contiguous(x):
    return x if x.is_contiguous() else copy(x)


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
    return Data(x.storage, x.shape, x.dtype, x.strides, x.offset)


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


def as_kind(x, tensor=None, dtype=None, copy=False):
    new = to(x, dtype or (x if tensor is None else tensor).dtype)
    return clone(new) if copy and new is x else new


def allclose(a, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    return all(isclose(a, other, rtol, atol, equal_nan).flat())


def isclose(a, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    b = other
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
    def make(size, dtype=None, generator=None):
        result = dtype or state["dtype"]
        if result.sort < 2 and not math.prod(size):
            missing("no random whole numbers")
        if result.sort < 2:
            raise NotImplementedError(f'"normal_kernel_cpu" {NO_KERNEL} {result.name!r}')
        check_size(size)
        found = numbers(generator or default_generator, math.prod(size), result)
        return Tensor(result.store(found), size, result)

    return make


randn = drawn(Generator.normals)

rand = drawn(Generator.uniforms)


def randint(low, size, high=None, dtype=None, generator=None):
    low, high = (0, low) if high is None else (low, high)
    if low >= high:
        raise RuntimeError(f"random_ expects from={low} to be less than to={high}")
    check_size(size)
    source = generator or default_generator
    numbers = [low + source.word() % (high - low) for _ in range(math.prod(size))]
    return Tensor((dtype or int64).store(numbers), size, dtype or int64)


def randperm(n, generator=None, dtype=None):
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    found, source = list(range(n)), generator or default_generator
    for i in range(n - 1):
        j = i + source.word() % (n - i)
        found[i], found[j] = found[j], found[i]
    return Tensor(found, (n,), dtype or int64)


def multinomial(p, num_samples, replacement=False, generator=None):
    if not p.is_contiguous():
        missing("multinomial of a transposed tensor")
    if p.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    source, numbers, n = generator or default_generator, p.flat(), p.shape[-1]
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
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
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if layout([x])[0] != [*range(x.ndim)]:
        missing("random numbers for a transposed tensor")
    numbers = (generator or default_generator).normals(x.numel(), x.dtype)
    return write(x, Tensor(x.dtype.store([mean + std * a for a in numbers]), x.shape, x.dtype))


def fill_uniform(x, a=0.0, b=1.0, generator=None):
    if a > b:
        raise RuntimeError(f"uniform_ expects a [from, to) range, but found from={a} > to={b}")
    if layout([x])[0] != [*range(x.ndim)]:
        missing("random numbers for a transposed tensor")
    source = generator or default_generator
    numbers = [u * (b - a) + a for u in source.uniforms(x.numel(), x.dtype)]
    return write(x, Tensor(x.dtype.store(numbers), x.shape, x.dtype))
