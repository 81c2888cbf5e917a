"""The modules `torch`, `torch.nn` and so on, for the page: under which name each function is found.

`install` puts them where Python looks for modules, with stand-ins for other libraries.
"""

import functools
import importlib.abc
import importlib.machinery
import operator
import sys
import types

from transformer_lit.page.torch_arguments import REFUSED
from transformer_lit.page.torch_layers import *

from transformer_lit.course import autograd as engine

_eq, _ne, _square = (FUNCTIONS[name] for name in ("eq", "ne", "square"))

# --- torch's names --------------------------------------------------------------------------------

OWN = """movedim transpose transpose=swapaxes permute_=permute unsqueeze squeeze unflatten flatten
flatten=ravel narrow select split chunk unbind unfold diagonal diag diag_embed tile
repeat_interleave flip roll tril triu where masked_fill masked_select nonzero gather
index_select index_add scatter_add clamp clamp=clip nan_to_num var std mean_=mean total=sum prod
amax amin argmax argmin max_=max min_=min cumsum argsort sort topk softmax_=softmax
log_softmax_=log_softmax logsumexp norm any_=any all_=all unique bincount dot mm bmm mv
clone detach allclose isclose div pow_=pow round_=round reshape_=reshape multinomial
expand_=broadcast_to cosine_similarity take_along_dim outer"""
LISTS = "cat cat=concat cat=concatenate stack hstack vstack einsum block_diag"

MADE = """tensor as_tensor full zeros ones zeros=empty arange linspace eye randn rand randint
randperm"""


def table(words):
    pairs = (word.partition("=") for word in words.split())
    return {alias or name: globals()[name] for name, _, alias in pairs}


def turned(x):
    if x.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {x.ndim}D")
    return transpose(x, 0, 1) if x.ndim > 1 else x


def inner(a, *other):
    (b,) = other
    if not a.ndim or not b.ndim:
        return a * b
    if b.ndim > 2:
        missing("inner with a tensor of more than two axes")
    return product(a, transpose(b, -1, -2) if b.ndim > 1 else b)


def addmm(x, *ab, beta=1, alpha=1):
    out = mm(*ab)
    if x.dtype is not out.dtype:
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {x.dtype}")
    return beta * x + alpha * out


def addcmul(x, *ab, value=1):
    if isinstance(value, float) and x.dtype.sort < 2:
        missing("addcmul of whole numbers with a float")
    return x + ab[0] * ab[1] * value


def trace(x):
    if x.ndim != 2:
        raise RuntimeError("trace: expected a matrix")
    return total(diagonal(x))


FUNCTIONS |= table(OWN) | {
    "add": arithmetic(add_),
    "sub": arithmetic(sub_),
    "matmul": lambda a, *other: product(a, *other),
    "inner": inner,
    "square": lambda x: _square(to(x, max(x.dtype, int64, key=lambda d: d.sort))),
    "t": turned,
    "var_mean": lambda x, dim=None, keepdim=False, **more: (
        var(x, dim, keepdim=keepdim, **more),
        mean_(x, dim, keepdim),
    ),
    "aminmax": lambda x, dim=None, keepdim=False: Extremes(
        amin(x, dim, keepdim), amax(x, dim, keepdim)
    ),
    "addcmul": addcmul,
    "addmm": addmm,
    "lerp": lambda a, *end, weight: a + weight * (end[0] - a),
    "trace": trace,
    "count_nonzero": lambda x, dim=None: total(_ne(x, 0), dim),
    "numel": Tensor.numel,
    "is_floating_point": lambda x: x.dtype.sort == 2,
    "is_complex": lambda x: False,
    "scatter": copy_changed(scatter_),
    "index_copy": copy_changed(index_copy_),
    "equal": lambda a, *b: a.shape == b[0].shape and a.flat() == b[0].flat(),
}
PRIVATE = {"gelu_", "round_", "root_of_sum", "silu", "softplus", "logsigmoid"}


IN_PLACE = """add sub mul div pow clamp masked_fill addcmul lerp relu exp log neg sqrt rsqrt
sigmoid tanh sin cos abs square reciprocal tril triu index_add scatter_add nan_to_num round
floor remainder logical_not"""
OPERATORS = {
    **{name: name for name in ("add", "sub", "mul", "matmul", "lshift", "rshift", *TEST)},
    **{"mod": "remainder", "floordiv": "floor_divide", "truediv": "div", "pow": "pow"},
    **{"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"},
}


TURNED = "add", "sub", "mul", "div"  # torch asks about the tensor first


def numbered(name, f, turn=False):
    "f as an operator: with a word or a list beside a tensor, Python asks the other side."
    table = REFUSED.get(name)

    def call(a, b):
        if not isinstance(b, Tensor | bool | int | float):
            return missing("complex numbers") if isinstance(b, complex) else NotImplemented
        if turn:
            a, b = b, a
        if table:
            check_kinds(name, 2, *((b, a) if turn and name in TURNED else (a, b)))
        return f(a, b)

    return guarded(f"Tensor.{name}", call)


CASTS = "double float half long int short bfloat16 bool"
METHODS = """view repeat item tolist requires_grad_ expand_=expand scatter_ index_copy_ backward
as_kind=to fill_ copy_ fill_normal=normal_ size stride contiguous"""
PLAIN = {  # methods of one line
    "type_as": lambda x, other: to(x, other.dtype),
    "uniform_": lambda x, generator=None, **ends: fill_uniform(
        x, ends.get("from", 0.0), ends.get("to", 1.0), generator
    ),
    "where": lambda x, condition, other: where(condition, x, other),
    "cpu": lambda x: x,
    "to_dense": lambda x: x,
    "dim": lambda x: x.ndim,
    "untyped_storage": lambda x: x.storage,
    "data_ptr": lambda x: id(x.storage) + x.offset * x.dtype.itemsize,
    "expand_as": lambda x, other: expand(x, other.shape),
    "view_as": lambda x, other: view(x, other.shape),
    "zero_": lambda x: fill_(x, 0),
    "exponential_": lambda x: write(x, -FUNCTIONS["log1p"](-rand(x.shape, float64))),
    "retain_grad": lambda x: setattr(x.node, "leaf", x),
    "new_tensor": lambda x, data, dtype=None: tensor(data, dtype or x.dtype),
    "new_full": lambda x, size, fill_value, dtype=None: full(size, fill_value, dtype or x.dtype),
    "new_zeros": lambda x, size, dtype=None: zeros(size, dtype or x.dtype),
    "new_ones": lambda x, size, dtype=None: ones(size, dtype or x.dtype),
    "new_empty": lambda x, size, dtype=None: zeros(size, dtype or x.dtype),
}
SPECIAL = {  # what Python asks of a tensor
    "__hash__": lambda x: id(x),
    "__abs__": lambda x: x.abs(),
    "__pos__": lambda x: x,
    "__int__": lambda x: int(item(x)),
    "__float__": lambda x: float(item(x)),
    "__contains__": lambda x, y: any(_eq(x, y).flat()),
    "__format__": lambda x, spec: format(item(x), spec) if not x.ndim else repr(x),
    "T": property(lambda x: permute(x, *reversed(range(x.ndim)))),
    "mT": property(lambda x: transpose(x, -1, -2)),
    "data": property(data, set_data),
    "device": property(lambda x: device("cpu")),
    "grad_fn": property(lambda x: None if x.is_leaf else x.node),
    "requires_grad": property(
        lambda x: x.origin.node is not None, lambda x, on: requires_grad_(x, on)
    ),
    **{"is_cuda": False, "is_cpu": True, "is_meta": False, "layout": "torch.strided"},
}


def set_methods():
    methods = FUNCTIONS | table(METHODS) | PLAIN
    methods |= {name: (lambda k: lambda x: to(x, k))(KINDS[name]) for name in CASTS.split()}
    methods |= {f"{name}_": in_place(FUNCTIONS[name]) for name in IN_PLACE.split()}
    for name, f in methods.items():
        if name not in PRIVATE and f is not vars(Tensor).get(name):
            setattr(Tensor, name, bound(f"Tensor.{name}", f))
    for name, key in OPERATORS.items():
        f = Tensor.matmul if key == "matmul" else FUNCTIONS[key]
        changed = in_place(FUNCTIONS[key])
        setattr(Tensor, f"__{name}__", numbered(key, f))
        if name not in TEST:
            setattr(Tensor, f"__r{name}__", numbered(key, f, True))
            setattr(Tensor, f"__i{name}__", numbered(f"{key}_", changed))
    for name, f in SPECIAL.items():
        setattr(Tensor, name, f)
    own = {"getitem": getitem, "setitem": setitem, "invert": inverted, "len": length}
    own |= {"iter": rows, "bool": truth, "deepcopy": copied, "repr": shown, "index": index_of}
    for name, f in own.items():
        setattr(Tensor, f"__{name}__", guarded(f"Tensor.__{name}__", f))
    Tensor.__neg__, Tensor.__getattr__ = Tensor.neg, no_attribute
    engine.Storage.data_ptr = lambda self: id(self)


def size(x, dim=None):
    return x.shape if dim is None else x.shape[axis(dim, x.ndim)]


def stride(x, dim=None):
    return x.strides if dim is None else x.strides[axis(dim, x.ndim)]


def copy_(x, *other):
    (src,) = other
    src = src if isinstance(src, Tensor) else single_of(x, src)
    check_overlap(x, src)
    return write(x, cast(src, x.dtype))


def fill_(x, value):
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(
            f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} "
            "dimensions."
        )
    return write(x, cast(value, x.dtype) if isinstance(value, Tensor) else single_of(x, value))


def inverted(x):
    if x.dtype.sort == 2:
        raise TypeError(
            "~ (operator.invert) is only implemented on integer and Boolean-type tensors"
        )
    return pointwise(operator.not_ if x.dtype is boolean else operator.invert, (), x)


def length(x):
    if not x.ndim:
        raise TypeError("len() of a 0-d tensor")
    return x.shape[0]


def rows(x):
    if not x.ndim:
        raise TypeError("iteration over a 0-d tensor")
    return iter(unbind(x))


def index_of(x):
    if x.dtype.sort == 2 or x.numel() != 1:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(item(x))


def no_attribute(x, name):
    if name in KNOWN["torch.Tensor"]:
        missing(f"Tensor.{name}")
    raise AttributeError(f"'Tensor' object has no attribute '{name}'")


class device:
    def __init__(self, type="cpu", index=None):
        self.type, self.index = str(type).partition(":")[0], index
        if self.type not in ("cpu", "meta"):
            missing(f"the device {type}")

    __enter__ = lambda self: self
    __exit__ = lambda self, *_: None
    __repr__ = lambda self: f"device(type='{self.type}')"
    __str__ = lambda self: self.type
    __eq__ = lambda self, other: str(self) == str(other)
    __hash__ = lambda self: hash(self.type)


class TensorName(type):
    "`torch.Tensor` is the kind of all tensors. To make one, the page has `torch.tensor`."

    def __instancecheck__(cls, x):
        return isinstance(x, Tensor)

    def __subclasscheck__(cls, other):
        return issubclass(other, Tensor)

    def __call__(cls, *_, **__):
        missing("torch.Tensor(…), which torch.tensor replaces")

    def __getattr__(cls, name):
        return getattr(Tensor, name)

    def __dir__(cls):
        return sorted(KNOWN["torch.Tensor"])


class Lite(types.ModuleType):
    "A module of torch that has what it has."

    __path__ = []

    def __getattr__(self, name):
        if name in KNOWN.get(self.__name__, ()):
            missing(f"{self.__name__}.{name}")
        raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")

    def __dir__(self):
        return sorted(KNOWN.get(self.__name__, vars(self)))


def is_answer(frame):
    "Whether a frame runs the text of an answer, which is in no file."
    return bool(frame) and frame.f_code.co_filename.startswith("<")


class StandIn(type):
    "For what the package imports of other libraries, and no exercise of the page calls."

    def __call__(cls, *args, **named):
        if is_answer(sys._getframe(1)):
            missing(cls.__name__)
        return type.__call__(cls) if "stands_in" not in vars(cls) else cls

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return stand_in(f"{cls.__name__}.{name}")

    __getitem__ = __or__ = __ror__ = lambda cls, other: cls


def stand_in(name):
    return StandIn(name, (), {"stands_in": True})


class Loose(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return stand_in(f"{self.__name__}.{name}")


LOOSE = ("torch.utils", "torch.overrides", "torch.func", "tokenizers", "safetensors")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    "Last in line: for what the package imports, a stand-in; for an answer's imports, the truth."

    def find_spec(self, name, path=None, target=None):
        if name.startswith(LOOSE):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        frame = sys._getframe(1)
        while frame and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if is_answer(frame):
            missing(f"the module {name}")

    def create_module(self, spec):
        return Loose(spec.name)

    def exec_module(self, module):
        pass


def module(name, members):
    new = Lite(name)
    vars(new).update(members)
    sys.modules[name] = new
    return new


def assert_close(actual, expected, rtol=None, atol=None):
    tight = {"float64": (1e-7, 1e-7), "float32": (1.3e-6, 1e-5)}.get(actual.dtype.name, (0, 0))
    rtol, atol = (own if own is not None else n for own, n in zip((rtol, atol), tight))
    if actual.shape != expected.shape or not allclose(actual, expected, rtol, atol, True):
        raise AssertionError("Tensor-likes are not close!")


def quietly(f):
    @functools.wraps(f)
    def fill(x, *args, **named):
        with no_grad():
            f(x, *args, **named)
        return x

    return fill


def xavier_normal(x, gain=1.0):
    return fill_normal(x, 0.0, gain * (2 / sum(x.shape)) ** 0.5)


def xavier_uniform(x, gain=1.0):
    most = gain * (6 / sum(x.shape)) ** 0.5
    return fill_uniform(x, -most, most)


INIT = {"normal": fill_normal, "uniform": fill_uniform}
INIT |= {"xavier_normal": xavier_normal, "xavier_uniform": xavier_uniform}
INIT |= {
    "constant": lambda x, val: x.fill_(val),
    "zeros": lambda x: x.zero_(),
    "ones": lambda x: x.fill_(1),
}
FUNCTIONAL = """linear embedding layer_norm rms_norm dropout gelu normalize cross_entropy
nll_loss mse_loss pad scaled_dot_product_attention one_hot cosine_similarity"""
MODULES = """Parameter Module Linear Embedding LayerNorm RMSNorm Dropout Sequential ModuleList
ModuleDict"""
LAYERS = """ReLU=relu LeakyReLU=leaky_relu Tanh=tanh Sigmoid=sigmoid SiLU=silu GELU=gelu
Softplus=softplus Softmax=softmax LogSoftmax=log_softmax CrossEntropyLoss=cross_entropy
NLLLoss=nll_loss MSELoss=mse_loss"""
GRAD = """set_grad_enabled no_grad no_grad=inference_mode enable_grad Generator
default_generator Tensor Size inf nan pi device"""


def with_old_dim(f):
    "Without an axis, `F.softmax` takes the one that it took long ago, and warns."

    def call(x, dim=None, dtype=None):
        return f(x, (0 if x.ndim in (0, 1, 3) else 1) if dim is None else dim, dtype)

    return call


def functional():
    found = table(FUNCTIONAL) | {n: FUNCTIONS[n] for n in ("softplus",)}
    found |= {n: FUNCTIONS[n] for n in ("sigmoid", "tanh", "relu", "silu")}
    for name, f in (("softmax", softmax_), ("log_softmax", log_softmax_)):
        found[name] = with_old_dim(f)
    found["logsigmoid"] = lambda x: FUNCTIONS["logsigmoid"](contiguous(x))
    found["leaky_relu"] = lambda x, negative_slope=0.01: where(x > 0, x, negative_slope * x)
    F.update((name, bound(f"F.{name}", f)) for name, f in found.items())


def layers():
    found = table(MODULES) | {"Identity": layer("Identity", lambda x, *_, **__: x)}
    for word in LAYERS.split():
        name, _, f = word.partition("=")
        found[name] = layer(name, F[f])
    return found


def finfo(wanted=None):
    digits, most = {8: (52, 1023), 4: (23, 127), 2: (10, 15)}[(wanted or state["dtype"]).itemsize]
    top = (2 - 2.0**-digits) * 2.0**most
    return types.SimpleNamespace(eps=2.0**-digits, max=top, min=-top, tiny=2.0 ** (1 - most))


TORCH = {  # what is not done with a tensor
    "is_tensor": lambda x: isinstance(x, Tensor),
    "set_default_dtype": lambda d: state.update(dtype=d),
    "get_default_dtype": lambda: state["dtype"],
    "get_default_device": lambda: device("cpu"),
    "set_default_device": lambda device: None,
    "is_grad_enabled": lambda: state["grad"],
    "manual_seed": default_generator.manual_seed,
    "get_rng_state": default_generator.get_state,
    "set_rng_state": default_generator.set_state,
    "promote_types": bound(
        "torch.promote_types", lambda type1, type2: max(type1, type2, key=lambda one: one.rank)
    ),
    "finfo": finfo,
    **{"dtype": dtype, "strided": "torch.strided", "contiguous_format": None},
    "__version__": FACTS["version"],
}


def install():
    "Under the names of torch and of the other libraries, for all that is imported from now on."
    set_methods()
    functional()
    T = {name: bound(f"torch.{name}", FUNCTIONS[name]) for name in FUNCTIONS.keys() - PRIVATE}
    T |= {name: bound(f"torch.{name}", f) for name, f in table(f"{LISTS} {MADE}").items()}
    alike = {"zeros": zeros, "ones": ones, "full": full, "randn": randn, "rand": rand}
    for name, make in (alike | {"empty": zeros}).items():
        T[f"{name}_like"] = bound(f"torch.{name}_like", like(make))
    T |= table(GRAD) | KINDS | TORCH | {"unique": Tensor.unique}
    init = {f"{name}_": bound(f"init.{name}_", quietly(f)) for name, f in INIT.items()}
    nn = layers() | {"functional": module("torch.nn.functional", F)}
    nn["init"] = module("torch.nn.init", init)
    nn["utils"] = module(
        "torch.nn.utils", {"clip_grad_norm_": bound("utils.clip_grad_norm_", clip_grad_norm_)}
    )
    nn["utils"].rnn = module("torch.nn.utils.rnn", {"pad_sequence": pad_sequence})
    T["nn"], Module.__module__ = module("torch.nn", nn), "torch.nn"
    for name, members in {
        "optim": {"Optimizer": Optimizer, "SGD": SGD, "Adam": Adam, "AdamW": AdamW},
        "autograd": {"grad": grad, "Function": Function},
        "testing": {"assert_close": assert_close},
        "compiler": {"is_compiling": lambda: False, "is_exporting": lambda: False},
        "cuda": {"is_available": lambda: False},
        "linalg": {"norm": T["norm"], "vector_norm": T["norm"]},
    }.items():
        T[name] = module(f"torch.{name}", members)
    T["Tensor"] = TensorName("Tensor", (), {"__module__": "torch"})
    for made in (Linear, Embedding, LayerNorm, RMSNorm, Dropout, Parameter):
        made.__init__ = bound(f"nn.{made.__name__}", made.__init__)
    for made in (SGD, Adam, AdamW):
        made.__init__ = bound(f"optim.{made.__name__}", made.__init__)
    module("torch", T)
    module("tqdm", {"tqdm": lambda x, *_, **__: x})
    sys.modules["jaxtyping"] = type("Typed", (types.ModuleType,), {"__getattr__": typed})(
        "jaxtyping"
    )
    sys.meta_path.append(Finder())


class Annotation:
    '`Float[Tensor, "B T C"]` is a tensor, for a reader.'

    def __getitem__(self, key):
        return Tensor


def typed(module, name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Annotation()
