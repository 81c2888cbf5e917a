"""A tensor is a list of numbers and a way to read it, and its gradient walks back, step by step."""

import functools
import math
import operator
from array import array
from itertools import accumulate, chain

inf, nan = math.inf, math.nan
dot = getattr(math, "sumprod", lambda a, b: sum(map(operator.mul, a, b)))  # Python 3.12 has it


# --- kinds of numbers -----------------------------------------------------------------------------


class dtype:
    "A kind of numbers, to which `store` rounds; `sort`: 0 for Booleans, 1 for ints, 2 for floats."

    def __init__(self, name, sort, itemsize, store):
        self.name, self.sort, self.itemsize, self.store = name, sort, itemsize, store
        self.is_floating_point, self.rank = sort == 2, (sort, itemsize)

    def __repr__(self):
        return f"torch.{self.name}"

    def __reduce__(self):  # a copy of a tensor has the same kind of numbers
        return self.name


float64 = dtype("float64", 2, 8, lambda numbers: list(map(float, numbers)))
float32 = dtype("float32", 2, 4, lambda numbers: array("f", numbers).tolist())
int64 = dtype("int64", 1, 8, lambda numbers: list(map(int, numbers)))
boolean = dtype("bool", 0, 1, lambda numbers: list(map(bool, numbers)))
state = {"dtype": float32, "grad": True}  # of new tensors; whether steps are kept for the way back


def kind_of(number):
    return {bool: boolean, int: int64}.get(type(number)) or state["dtype"]


def common_kind(tensors):
    "The highest kind; a tensor without axes decides only by a higher sort than all others."
    top = max(x.dtype.sort for x in tensors)
    among = [x for x in tensors if x.dtype.sort == top]
    return max((x.dtype for x in [x for x in among if x.ndim] or among), key=lambda d: d.rank)


# --- a tensor: a list, and a way to read it -------------------------------------------------------


class Storage:
    "A list of numbers that several tensors may read; `version` counts how often it was changed."

    def __init__(self, values):
        self.values, self.version = values, 0


class Origin:
    "What a tensor and its views share: the step that the numbers came from, if gradients need it."

    def __init__(self, node=None):
        self.node = node


@functools.cache
def row_major(shape):
    "How far apart neighbours along each axis are in the list: (2, 3, 5) -> (15, 5, 1)."
    return tuple(accumulate(shape[:0:-1], operator.mul, initial=1))[::-1] if shape else ()


def places(shape, strides, offset=0):
    "Where the numbers of a tensor are in the list, in reading order."
    found = [offset]
    for n, step in zip(shape, strides):
        steps = [i * step for i in range(n)]
        found = [place + far for place in found for far in steps]
    return found


class Tensor:
    node = property(lambda self: self.origin.node)
    requires_grad = property(lambda self: self.origin.node is not None)
    is_leaf = property(lambda self: self.origin.node is None or self.origin.node.leaf is self)
    ndim = property(lambda self: len(self.shape))
    size_class = tuple

    def __init__(self, values, shape, kind, strides=None, offset=0, origin=None):
        self.storage = values if isinstance(values, Storage) else Storage(values)
        self.shape, self.dtype, self.offset = self.size_class(shape), kind, offset
        self.strides = row_major(self.shape) if strides is None else tuple(strides)
        self.origin, self.grad = origin or Origin(), None

    def numel(self):
        return math.prod(self.shape)

    def is_contiguous(self):
        dense = row_major(self.shape)
        if self.strides == dense:
            return True
        return all(n == 1 or a == b for n, a, b in zip(self.shape, self.strides, dense))

    def is_whole(self):
        "Whether it reads all of its list, from the first number to the last."
        return self.numel() == len(self.storage.values) and self.is_contiguous()

    def flat(self):
        "The numbers in reading order."
        values, n = self.storage.values, self.numel()
        if self.is_contiguous():
            return values if n == len(values) else values[self.offset : self.offset + n]
        if not any(self.strides):
            return [values[self.offset]] * n
        return list(map(values.__getitem__, places(self.shape, self.strides, self.offset)))


# --- steps, and what each needs for the way back --------------------------------------------------


class Node:
    """A step: an edge to each input that needs a gradient.

    An edge is the input's node, `back` (the gradient of the result -> that of the input, as lists)
    and `kept`: the storages that `back` has read, each with its version at that time.
    """

    def __init__(self, edges=(), leaf=None):
        self.edges, self.leaf, self.freed = edges, leaf, False


def same(g):
    return g


def into_list(x, back):
    "`back`, whose result is the gradient of a tensor, for the whole list that the tensor reads."
    if x.is_whole():
        return back
    shape, strides, offset, n = x.shape, x.strides, x.offset, len(x.storage.values)

    def spread(g):
        found = [0.0] * n
        for place, number in zip(places(shape, strides, offset), back(g)):
            found[place] += number
        return found

    return spread


def made(values, shape, kind, *edges):
    "A new tensor. `edges`: an input, its `back`, and the tensors whose numbers `back` reads."
    return linked(Tensor(values, shape, kind), *edges)


def linked(out, *edges):
    if state["grad"] and out.dtype.sort == 2:
        found = [
            (x.node, into_list(x, back), [(t.storage, t.storage.version) for t in kept])
            for x, back, *kept in edges
            if x.node is not None
        ]
        out.origin.node = Node(found) if found else None
    return out


def walk_back(starts, keep=False):
    "The gradient of every node before the starts. A node hands its own on when all of it has come."
    order, seen, todo, found = [], set(), [(node, False) for node, _ in starts], {}
    while todo:  # in `order`, a node comes after all that it was made of
        node, done = todo.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            todo += [(node, True), *((edge[0], False) for edge in node.edges)]

    def give(node, more):
        found[node] = list(map(operator.add, found[node], more)) if node in found else more

    for node, gradient in starts:
        give(node, gradient)
    for node in reversed(order):
        for before, back, kept in node.edges:
            check_kept(node, kept)
            give(before, back(found[node]))
        node.freed = not keep
    return found


def check_kept(node, kept):
    "Refuse what can't be right, in torch's words: numbers were changed, or let go of."
    if kept and node.freed:
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors "
            "after they have already been freed)."
        )
    if any(storage.version != version for storage, version in kept):
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an "
            "inplace operation"
        )


def start_of(y, gradient=None):
    if y.node is None:
        raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
    if gradient is None and y.numel() != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    return y.node, into_list(y, same)([1.0] if gradient is None else gradient.flat())


def gradient_for(x, numbers):
    "The part of a list's gradient that belongs to a tensor which reads this list."
    at = () if x.is_whole() else places(x.shape, x.strides, x.offset)
    return Tensor(x.dtype.store([numbers[i] for i in at] if at else numbers), x.shape, x.dtype)


def backward(y, gradient=None, retain_graph=False):
    "Add to `grad` of every leaf that y was made of: how fast y grows with each of its numbers."
    for node, numbers in walk_back([start_of(y, gradient)], retain_graph).items():
        if (x := node.leaf) is not None:
            new = gradient_for(x, numbers)
            if x.grad is None:
                x.grad = new
            else:
                change(x.grad, list(map(operator.add, x.grad.flat(), new.flat())))


# --- a change in place ----------------------------------------------------------------------------


def change(x, numbers):
    "Other numbers where x reads: in a new list, so that what a step has read stays as it was."
    values = x.storage.values.copy()
    for place, number in zip(places(x.shape, x.strides, x.offset), x.dtype.store(numbers)):
        values[place] = number
    x.storage.values, x.storage.version = values, x.storage.version + 1


def put(x, at, value, *kept, replaces=False):
    """x gets the numbers of `value` at these places of its list, and `value` their gradients.

    `replaces`: `value` was made of x, so that no gradient goes past it.
    """
    before, n = x.node, len(x.storage.values)
    values, chosen = x.storage.values.copy(), set(at)
    for place, number in zip(at, value.flat()):
        values[place] = number
    x.storage.values, x.storage.version = values, x.storage.version + 1
    if state["grad"] and (before or value.node):
        seen = [(t.storage, t.storage.version) for t in kept]
        rest = lambda g: [0.0 if i in chosen else number for i, number in enumerate(g)]
        edges = [(before, rest, seen)] if before and not (replaces and len(chosen) == n) else []
        if value.node:
            edges += [(value.node, into_list(value, lambda g: [g[i] for i in at]), seen)]
        x.origin.node = Node(edges)


# --- other ways to read the same list -------------------------------------------------------------


def view_of(x, shape, strides, offset):
    "The list itself gets the gradients, so that a view is no step."
    return Tensor(x.storage, shape, x.dtype, strides, offset, x.origin if state["grad"] else None)


def axis(dim, ndim):
    most = max(ndim, 1)
    if not -most <= dim < most:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-most}, {most - 1}], "
            f"but got {dim})"
        )
    return dim % most


def listed(sizes):
    return tuple(sizes[0]) if sizes and isinstance(sizes[0], list | tuple) else sizes


def permute(x, *dims):
    order = [axis(d, x.ndim) for d in listed(dims)]
    return view_of(x, [x.shape[d] for d in order], [x.strides[d] for d in order], x.offset)


def transpose(x, dim0, dim1):
    order, a, b = [*range(x.ndim)], axis(dim0, x.ndim), axis(dim1, x.ndim)
    if x.ndim:
        order[a], order[b] = b, a
    return permute(x, order)


def movedim(x, source, destination):
    order = [d for d in range(x.ndim) if d != axis(source, x.ndim)]
    order.insert(axis(destination, x.ndim), axis(source, x.ndim))
    return permute(x, order[: x.ndim])


def unsqueeze(x, dim):
    d = axis(dim, x.ndim + 1)
    new = lambda sizes, own: (*sizes[:d], own, *sizes[d:])
    step = x.shape[d] * x.strides[d] if d < x.ndim else 1
    return view_of(x, new(x.shape, 1), new(x.strides, step), x.offset)


def squeeze(x, dim=None):
    dims = range(x.ndim) if dim is None else [axis(d, x.ndim) for d in listed((dim,))]
    keep = [d for d in range(x.ndim) if d not in dims or x.shape[d] != 1]
    return view_of(x, [x.shape[d] for d in keep], [x.strides[d] for d in keep], x.offset)


def expand(x, *sizes):
    "One number is read many times along a new axis, or along one of size 1: the step there is 0."
    sizes = listed(sizes)
    own = (1,) * (len(sizes) - x.ndim) + x.shape
    steps = (0,) * (len(sizes) - x.ndim) + x.strides
    wanted = tuple(a if b == -1 else b for a, b in zip(own, sizes))
    if len(own) > len(sizes):
        raise RuntimeError(f"expand: {x.ndim} dimensions do not fit into sizes {list(sizes)}")
    for d, (a, b) in enumerate(zip(own, wanted)):
        if a not in (1, b):
            raise RuntimeError(
                f"The expanded size of the tensor ({b}) must match the existing size ({a}) at "
                f"non-singleton dimension {d}.  Target sizes: {list(sizes)}.  Tensor sizes: "
                f"{list(x.shape)}"
            )
    steps = [step if a == b else 0 for a, b, step in zip(own, wanted, steps)]
    return view_of(x, wanted, steps, x.offset)


def filled_in(n, sizes):
    "Sizes in which -1 is replaced by what is left."
    rest = -math.prod(sizes)
    found = [n // rest if i == -1 and rest > 0 else i for i in sizes]
    if math.prod(found) != n:
        raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {n}")
    return found


def reshape(x, *sizes):
    sizes = tuple(filled_in(x.numel(), listed(sizes)))
    if x.is_contiguous():
        return view_of(x, sizes, row_major(sizes), x.offset)
    return made(x.flat(), sizes, x.dtype, (x, same))


# --- number by number -----------------------------------------------------------------------------


def needs(slope):
    "What a slope reads beside the gradient g: the names of its other parameters."
    return slope.__code__.co_varnames[1 : slope.__code__.co_argcount]


def pointwise(f, slopes, *inputs, kind=None):
    """f of the numbers at the same place, after broadcasting.

    `slopes`: for each input a function from the gradient g, and as many as it names of the result y
    and the inputs a and b, to the gradient of the input; None passes g on as it is.
    """
    like = next(x for x in inputs if isinstance(x, Tensor))
    inputs = [x if isinstance(x, Tensor) else single(x, like.dtype) for x in inputs]
    work, shape = common_kind(inputs), broadcast(*(x.shape for x in inputs))
    work = state["dtype"] if kind == "float" and work.sort < 2 else work
    inputs = [to(x, work) for x in inputs]
    inputs = [x if x.shape == shape else expand(x, shape) for x in inputs]
    lists = [x.flat() for x in inputs]
    kind = kind if isinstance(kind, dtype) else work
    out = Tensor(kind.store(each(f, *lists)), shape, kind)
    named = {**dict(zip("ab", zip(inputs, lists))), "y": (out, out.storage.values)}

    def edge(x, slope):
        if slope is None:
            return x, same
        kept = [named[name] for name in needs(slope)]
        numbers = [values for _, values in kept]
        return x, lambda g: list(map(slope, g, *numbers)), *(tensor for tensor, _ in kept)

    return linked(out, *(edge(x, slope) for x, slope in zip(inputs, slopes) if x.node))


def single(number, kind):
    "A number of Python's beside a tensor takes its kind, if that kind can hold it."
    own = kind_of(number)
    kind = kind if own.sort <= kind.sort else own
    return Tensor(kind.store([number]), (), kind)


def to(x, kind):
    return x if kind is x.dtype else made(kind.store(x.flat()), x.shape, kind, (x, same))


def broadcast(*shapes):
    if len(set(shapes)) == 1:
        return shapes[0]
    found = [1] * max(map(len, shapes))
    for shape in shapes:
        for d, n in enumerate(shape, len(found) - len(shape)):
            if n != 1 and found[d] not in (1, n):
                raise RuntimeError(
                    f"The size of tensor a ({found[d]}) must match the size of tensor b ({n}) "
                    f"at non-singleton dimension {d}"
                )
            found[d] = n if n != 1 else found[d]
    return tuple(found)


def limit(f, *edges):
    "f, and its limit where Python raises: at a division by 0, log 0, or e to a large number."

    def careful(*xs):
        try:
            return f(*xs)
        except (ArithmeticError, ValueError):
            return next((value for test, value in edges if test(*xs)), nan)

    careful.quick = f
    return careful


def each(f, *lists):
    "f of what is at the same place: as fast as C goes, and with limits where that raises."
    try:
        return list(map(getattr(f, "quick", f), *lists))
    except (ArithmeticError, ValueError):
        return list(map(f, *lists))


def ratio(a, b):
    if b:
        return a / b
    return nan if not a or a != a else math.copysign(inf, a) * math.copysign(1, b)


ratio.quick = operator.truediv
exp = limit(math.exp, (lambda x: x > 0, inf))
log = limit(math.log, (lambda x: x == 0, -inf))
root = limit(math.sqrt)
sign = lambda x: (x > 0) - (x < 0)
largest = lambda a, b: a if a != a or a > b else b  # nan wins
half_if_equal = lambda g, x, y: g / 2 if x == y else 0.0 if x < y else g

FLOAT = {  # name: the function and its slopes; the result is always a float
    "exp": (exp, lambda g, y: g * y),
    "log": (log, lambda g, a: ratio(g, a)),
    "sqrt": (root, lambda g, y: ratio(g, 2 * y)),
    "rsqrt": (lambda a: ratio(1.0, root(a)), lambda g, y: -g * y**3 / 2),
    "sin": (limit(math.sin), lambda g, a: g * math.cos(a)),
    "cos": (limit(math.cos), lambda g, a: -g * math.sin(a)),
    "tanh": (math.tanh, lambda g, y: g * (1 - y * y)),
    "sigmoid": (lambda a: 1 / (1 + exp(-a)), lambda g, y: g * y * (1 - y)),
    "erf": (math.erf, lambda g, a: g * 2 / math.sqrt(math.pi) * math.exp(-a * a)),
    "div": (ratio, lambda g, b: ratio(g, b), lambda g, a, b: -g * ratio(ratio(a, b), b)),
}
SAME = {  # the result is of the kind of the inputs
    "add": (operator.add, None, None),
    "sub": (operator.sub, None, lambda g: -g),
    "mul": (operator.mul, lambda g, b: g * b, lambda g, a: g * a),
    "neg": (operator.neg, lambda g: -g),
    "abs": (abs, lambda g, a: g * sign(a)),
    "square": (lambda a: a * a, lambda g, a: 2 * g * a),
    "relu": (lambda a: largest(a, 0.0), lambda g, y: g if y > 0 else 0.0),
    "maximum": (
        *(largest, lambda g, a, b: half_if_equal(g, a, b)),
        lambda g, a, b: half_if_equal(g, b, a),
    ),
}
TEST = {  # the result is True or False
    **{name: (getattr(operator, name),) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "isnan": (lambda a: a != a,),
    "isinf": (lambda a: abs(a) == inf,),
    "isfinite": (lambda a: abs(a) < inf,),
}


def operation(f, *slopes, kind=None):
    return lambda *inputs: pointwise(f, slopes, *inputs, kind=kind)


for table, kind in ((FLOAT, "float"), (SAME, None), (TEST, boolean)):
    for name, parts in table.items():
        setattr(Tensor, name, operation(*parts, kind=kind))


# --- row by row -----------------------------------------------------------------------------------


def by_rows(x, dim, f, slope=None, kind=None):
    """f of each row along `dim` (of all numbers, where it is None): a list, the result's last axis.

    `slope`: from the gradient g of such a list, and as many as it names of the row x, the list y
    and the length n of the row, to the gradient of the row.
    """
    dims = range(x.ndim) if dim is None else [axis(d, x.ndim) for d in listed((dim,))]
    dims = [d for d in dims if d < x.ndim]
    rest = [d for d in range(x.ndim) if d not in dims]
    turned, outer = permute(x, *rest, *dims), [x.shape[d] for d in rest]
    numbers, n = turned.flat(), math.prod(x.shape[d] for d in dims)
    rows = [numbers[i * n : (i + 1) * n] for i in range(math.prod(outer))]
    outs = [f(row) for row in rows]
    m, kind = len(outs[0]) if outs else n, kind or x.dtype
    out = Tensor(kind.store(chain.from_iterable(outs)), (*outer, m), kind)
    if slope is None or not x.node:
        return out, dims
    read = needs(slope)
    columns = [{"x": rows, "y": outs, "n": [n] * len(rows)}[name] for name in read]

    def back(g):
        parts = [g[i * m : (i + 1) * m] for i in range(len(rows))]
        return list(chain.from_iterable(map(slope, parts, *columns)))

    kept = [{"x": turned, "y": out}[name] for name in read if name != "n"]
    return linked(out, (turned, back, *kept)), dims


def reduced(x, dim, keepdim, f, slope=None, kind=None):
    "One number of each row."
    out, dims = by_rows(x, dim, lambda row: [f(row)], slope, kind)
    sizes = [1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims]
    return reshape(out, sizes)


def sum_(x, dim=None, keepdim=False, dtype=None):
    kind = dtype or (x.dtype if x.dtype.sort == 2 else int64)
    return reduced(x, dim, keepdim, sum, lambda g, n: g * n, kind)


def mean(x, dim=None, keepdim=False):
    total = sum_(x, dim, keepdim)
    return total * ratio(1.0, x.numel() / max(total.numel(), 1))


def rows_of(x, dim, f, slope=None, kind=None):
    "A row for each row, where it was."
    out = by_rows(x, dim, f, slope, kind)[0]
    return movedim(out, -1, dim) if x.ndim else squeeze(out)


def softmax(x, dim):
    def f(row):
        top = max(row)
        powers = [math.exp(a - top) for a in row]
        total = sum(powers)
        return [ratio(p, total) for p in powers]

    def slope(g, y):
        middle = dot(g, y)
        return [a * (b - middle) for a, b in zip(y, g)]

    return rows_of(x, dim, f, slope)


def log_softmax(x, dim):
    def f(row):
        top = max(row)
        total = top + log(sum(math.exp(a - top) for a in row))
        return [a - total for a in row]

    def slope(g, y):
        total = sum(g)
        return [a - math.exp(b) * total for a, b in zip(g, y)]

    return rows_of(x, dim, f, slope)


# --- all dot products -----------------------------------------------------------------------------


def dots(a, b, k):
    "The dot products of all rows of `a` with all rows of `b`, each of k numbers: the hot loop."
    rows, columns = ([x[i : i + k] for i in range(0, len(x), k)] for x in (a, b))
    return [dot(row, column) for row in rows for column in columns]


def turned_over(numbers, n):
    "The transpose of rows of n numbers."
    return list(chain.from_iterable(numbers[j::n] for j in range(n)))


def matmul(a, b):
    if not a.ndim or not b.ndim:
        raise RuntimeError(
            f"both arguments need to be at least 1D, but are {a.ndim}D and {b.ndim}D"
        )
    if a.ndim == 1 or b.ndim == 1:
        out = matmul(a if a.ndim > 1 else unsqueeze(a, 0), b if b.ndim > 1 else unsqueeze(b, 1))
        out = squeeze(out, -1) if b.ndim == 1 else out
        return squeeze(out, -1 if b.ndim == 1 else -2) if a.ndim == 1 else out
    (m, k), n = a.shape[-2:], b.shape[-1]
    check_product(a, b)
    if b.ndim == 2 < a.ndim:  # one matrix for all: a is one long table
        return reshape(matmul(reshape(a, -1, k), b), *a.shape[:-1], n)
    outer = broadcast(a.shape[:-2], b.shape[:-2])
    a, b, blocks = expand(a, *outer, m, k), expand(b, *outer, k, n), math.prod(outer)
    cut = lambda numbers, size: [numbers[i * size : (i + 1) * size] for i in range(blocks)]
    left, right = cut(a.flat(), m * k), cut(b.flat(), k * n)
    each = lambda f, *parts: list(chain.from_iterable(map(f, *parts)))
    product = lambda x, y, k, n: dots(x, turned_over(y, n), k) if k else [0.0] * (m * n)
    back_a = lambda g: each(lambda g, y: dots(g, y, n), cut(g, m * n), right)  # g bᵀ
    back_b = lambda g: each(
        lambda x, g: product(turned_over(x, k), g, m, n), left, cut(g, m * n)
    )  # aᵀ g
    values = each(lambda x, y: product(x, y, k, n), left, right)
    edges = (a, back_a, b), (b, back_b, a)
    return made(a.dtype.store(values), (*outer, m, n), a.dtype, *edges)


def check_product(a, b):
    k, (j, n) = a.shape[-1], b.shape[-2:]
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}"
        )
    if k != j and b.ndim == 2:
        rows = math.prod(a.shape[:-1])
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({rows}x{k} and {j}x{n})")
    if k != j:
        size = math.prod(broadcast(a.shape[:-2], b.shape[:-2]))
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{size}, {k}] "
            f"but got: [{size}, {j}]."
        )


# --- picking --------------------------------------------------------------------------------------


def pick(x, at, shape, *kept):
    "The numbers at these places of the list. Each gradient is added where its number came from."
    values, n = x.storage.values, len(x.storage.values)

    def back(g):
        found = [0.0] * n
        for place, number in zip(at, g):
            found[place] += number
        return found

    out = Tensor([values[i] for i in at], shape, x.dtype)
    whole = Tensor(x.storage, (n,), x.dtype, origin=x.origin)
    return linked(out, (whole, back, *kept))


def inside(i, n):
    if not -n <= i < n:
        raise IndexError(f"index {i} is out of bounds for dimension 0 with size {n}")
    return i % n
