"""Torch's layers, losses and optimizers over `torch_tensors.py`, for the page."""

import functools
import math
from collections import OrderedDict, namedtuple

from transformer_lit.page.torch_tensors import *

from transformer_lit.course import autograd as engine

_eq, _ne = FUNCTIONS["eq"], FUNCTIONS["ne"]
F = {}  # `torch.nn.functional`, as readers and layers call it


# --- layers ---------------------------------------------------------------------------------------


class Parameter(Tensor):
    def __init__(self, data=None, requires_grad=True):
        data = Tensor([], (0,), state["dtype"]) if data is None else data
        super().__init__(data.storage, data.shape, data.dtype, data.strides, data.offset)
        requires_grad_(self, requires_grad)


Keys = namedtuple("IncompatibleKeys", "missing_keys unexpected_keys")

PARTS = "_parameters", "_buffers", "_modules"


class Handle:
    def __init__(self, hooks, hook):
        self.remove = lambda: hooks.remove(hook)


def cleared(tensors, set_to_none):
    for x in tensors:
        x.grad = None if set_to_none or x.grad is None else zeros(x.shape, dtype=x.dtype)


class Module:
    def __init__(self):
        vars(self).update({"training": True, **{key: {} for key in PARTS}})
        vars(self).update(_hooks=[], _before=[], _passing=set())

    def __setattr__(self, name, value):
        own = "_parameters" if isinstance(value, Parameter) else None
        own = "_modules" if isinstance(value, Module) else own
        if own and own not in vars(self):
            raise AttributeError(f"cannot assign {own[1:-1]} before Module.__init__() call")
        parameters, buffers, modules = (vars(self).get(key, {}) for key in PARTS)
        if own is None and name in parameters and value is not None:
            raise TypeError(
                f"cannot assign 'torch.{type(value).__name__}' as parameter '{name}' "
                "(torch.nn.Parameter or None expected)"
            )
        if own is None and name in modules and value is not None:
            raise TypeError(
                f"cannot assign '{type(value).__name__}' as child module '{name}' "
                "(torch.nn.Module or None expected)"
            )
        if name in buffers and value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"cannot assign '{type(value).__name__}' as buffer '{name}' "
                "(torch.Tensor or None expected)"
            )
        for table in (parameters, buffers, modules):
            if own is None and name in table and (value is None or table is buffers):
                table[name] = value
                return
        for table in (parameters, buffers, modules, vars(self)):
            table.pop(name, None)
        (vars(self)[own] if own else vars(self))[name] = value

    def __getattr__(self, name):
        for key in PARTS:
            if name in vars(self).get(key, ()):
                return vars(self)[key][name]
        if name in KNOWN["torch.nn.Module"]:
            missing(f"Module.{name}")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name):
        if not any(vars(self)[key].pop(name, self) is not self for key in PARTS):
            object.__delattr__(self, name)

    def __call__(self, *args, **named):
        for hook in self._before:
            changed = hook(self, args)
            args = (
                args if changed is None else changed if isinstance(changed, tuple) else (changed,)
            )
        out = self.forward(*args, **named)
        for hook in self._hooks:
            changed = hook(self, args, out)
            out = out if changed is None else changed
        return out

    def forward(self, *args):
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def register_buffer(self, name, tensor, persistent=True):
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' (torch Tensor "
                "or None required)"
            )
        if hasattr(self, name) and name not in self._buffers:
            raise KeyError(f"attribute '{name}' already exists")
        self._buffers[name] = tensor
        self._passing.discard(name) if persistent else self._passing.add(name)

    def register_parameter(self, name, param):
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{type(param).__name__}' object to parameter '{name}' "
                "(torch.nn.Parameter or None required)"
            )
        self._parameters[name] = param

    def add_module(self, name, module):
        if module is not None and not isinstance(module, Module):
            named = getattr(module, "__qualname__", type(module).__qualname__)
            raise TypeError(f"{named} is not a Module subclass")
        self._modules[name] = module

    register_module = add_module

    def register_forward_hook(self, hook):
        self._hooks.append(hook)
        return Handle(self._hooks, hook)

    def register_forward_pre_hook(self, hook):
        self._before.append(hook)
        return Handle(self._before, hook)

    def named_modules(self, memo=None, prefix=""):
        seen = set() if memo is None else memo
        if id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self
        for name, part in self._modules.items():
            if part is not None:
                yield from part.named_modules(seen, f"{prefix}.{name}" if prefix else name)

    def modules(self):
        return (part for _, part in self.named_modules())

    def named_children(self):
        return ((name, part) for name, part in self._modules.items() if part is not None)

    def children(self):
        return (part for _, part in self.named_children())

    def named_tensors(self, key, prefix="", recurse=True):
        seen = set()
        for name, part in self.named_modules(prefix=prefix) if recurse else [(prefix, self)]:
            for own, x in vars(part)[key].items():
                if x is not None and id(x) not in seen:
                    seen.add(id(x))
                    yield f"{name}.{own}" if name else own, x

    def named_parameters(self, prefix="", recurse=True):
        return self.named_tensors("_parameters", prefix, recurse)

    def named_buffers(self, prefix="", recurse=True):
        return self.named_tensors("_buffers", prefix, recurse)

    def parameters(self, recurse=True):
        return (x for _, x in self.named_parameters(recurse=recurse))

    def buffers(self, recurse=True):
        return (x for _, x in self.named_buffers(recurse=recurse))

    def get_submodule(self, target):
        return functools.reduce(getattr, target.split("."), self) if target else self

    get_parameter = get_submodule

    def state_dict(self, prefix=""):
        own = self._parameters | {n: x for n, x in self._buffers.items() if n not in self._passing}
        found = OrderedDict((prefix + n, detach(x)) for n, x in own.items() if x is not None)
        for name, part in self.named_children():
            found |= part.state_dict(prefix=f"{prefix}{name}.")
        return found

    def load_state_dict(self, state_dict, strict=True, assign=False):
        own, given = self.state_dict(), state_dict
        lost = [n for n in own if n not in given]
        unknown = [n for n in given if n not in own]
        quoted = lambda names: ", ".join(f'"{n}"' for n in names)
        wrong = (
            [f"Unexpected key(s) in state_dict: {quoted(unknown)}. "] if unknown and strict else []
        )
        wrong += [f"Missing key(s) in state_dict: {quoted(lost)}. "] if lost and strict else []
        wrong += [
            f"size mismatch for {n}: copying a param with shape {given[n].shape} from checkpoint, "
            f"the shape in current model is {x.shape}."
            for n, x in own.items()
            if n in given and given[n].shape != x.shape
        ]
        if wrong:
            head = f"Error(s) in loading state_dict for {type(self).__name__}:"
            raise RuntimeError("\n\t".join([head, *wrong]))
        with no_grad():
            for name, x in own.items():
                if name in given:
                    write(x, detach(given[name]))
        return Keys(lost, unknown)

    def apply(self, fn):
        for part in self.children():
            part.apply(fn)
        fn(self)
        return self

    def train(self, mode=True):
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        for part in self.modules():
            part.training = mode
        return self

    def eval(self):
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        for p in self.parameters():
            requires_grad_(p, requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        cleared(self.parameters(), set_to_none)

    def to(self, *args, dtype=None, device=None):
        kinds = [one for one in (*args, dtype) if isinstance(one, engine.dtype)]
        for part in self.modules() if kinds else ():
            for x in (*part._parameters.values(), *part._buffers.values()):
                if x is not None and x.dtype.sort == 2:
                    x.data = to(detach(x), kinds[0])
        return self

    def double(self):
        return self.to(float64)

    def float(self):
        return self.to(float32)

    def half(self):
        return self.to(KINDS["float16"])

    def cpu(self):
        return self

    def extra_repr(self):
        return ""

    def __repr__(self):
        lines = [self.extra_repr()] if self.extra_repr() else []
        parts = [f"({n}): " + repr(p).replace("\n", "\n  ") for n, p in self.named_children()]
        inside = "\n  ".join(["", *lines, *parts]) + "\n" if parts else "".join(lines)
        return f"{type(self).__name__}({inside})"


class Linear(Module):
    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(zeros((out_features, in_features), dtype))
        self.register_parameter("bias", Parameter(zeros((out_features,), dtype)) if bias else None)
        if device != "meta":
            self.reset_parameters()

    def reset_parameters(self):
        bound = self.in_features**-0.5 if self.in_features else 0.0
        with no_grad():
            for p in self.parameters():
                fill_uniform(p, -bound, bound)

    def forward(self, x):
        return F["linear"](x, self.weight, self.bias)

    def extra_repr(self):
        bias = self.bias is not None
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={bias}"


def linear(x, weight, bias=None):
    if weight.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {weight.ndim}D")
    out = product(x, transpose(weight, -1, -2) if weight.ndim > 1 else weight)
    return out if bias is None else out + bias


class Embedding(Module):
    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, device=None, dtype=None):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        self.weight = Parameter(randn((num_embeddings, embedding_dim), dtype))
        if padding_idx is not None:
            with no_grad():
                setitem(self.weight, padding_idx, 0.0)

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True):
        if embeddings.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        new = cls(*embeddings.shape)
        new.weight = Parameter(embeddings, not freeze)
        return new

    def forward(self, input):
        return F["embedding"](input, self.weight, self.padding_idx)


def embedding(input, weight, padding_idx=None):
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    if any(not 0 <= i < weight.shape[0] for i in input.flat()):
        raise IndexError("index out of range in self")
    if padding_idx is None:
        return weight[input]
    keep = unsqueeze(_ne(input, padding_idx % weight.shape[0]), -1)
    return where(keep, weight[input], detach(weight)[input])


def sizes_of(shape):
    return (shape,) if isinstance(shape, int) else tuple(shape)


class LayerNorm(Module):
    affine = "weight", "bias"

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True):
        super().__init__()
        self.normalized_shape, self.eps = sizes_of(normalized_shape), eps
        for name, make, there in zip(self.affine, (ones, zeros), (True, bias)):
            there = there and elementwise_affine
            self.register_parameter(name, Parameter(make(self.normalized_shape)) if there else None)

    def forward(self, x):
        return F["layer_norm"](x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(LayerNorm):
    affine = ("weight",)

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True):
        super().__init__(normalized_shape, elementwise_affine=elementwise_affine)
        self.eps = eps

    def forward(self, x):
        return F["rms_norm"](x, self.normalized_shape, self.weight, self.eps)


def check_normalised(x, shape, **parts):
    if not shape or tuple(x.shape[x.ndim - len(shape) :]) != tuple(shape):
        sizes = f"[*, {', '.join(map(str, shape))}], but got input of size{list(x.shape)}"
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape {sizes}"
        )
    for name, one in parts.items():
        if one is not None and one.shape != tuple(shape):
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{list(one.shape)} and normalized_shape = {list(shape)}"
            )
        if one is not None and one.dtype is not x.dtype:
            missing("a norm whose weight has another dtype")
    return tuple(range(-len(shape), 0))


def layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    dims, n = (
        check_normalised(x, normalized_shape, weight=weight, bias=bias),
        math.prod(normalized_shape),
    )

    def f(row):
        middle = sum(row) / n
        away = [a - middle for a in row]
        size = (engine.dot(away, away) / n + eps) ** -0.5
        return [a * size for a in away]

    def slope(g, x):
        middle = sum(x) / n
        away = [a - middle for a in x]
        size = (engine.dot(away, away) / n + eps) ** -0.5
        low, along = sum(g) / n, engine.dot(g, away) / n * size * size
        return [size * (a - low - b * along) for a, b in zip(g, away)]

    out = reshape(by_rows(x, dims, f, slope)[0], x.shape)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def rms_norm(x, normalized_shape, weight=None, eps=None):
    eps = 2.0 ** (-52 if x.dtype is float64 else -23) if eps is None else eps
    dims = check_normalised(x, normalized_shape, weight=weight)
    out = x * (x.square().mean(dims, keepdim=True) + eps).rsqrt()
    return out if weight is None else out * weight


def check_share(p):
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(x, p=0.5, training=True):
    check_share(p)
    if not training or not p:
        return x
    keep = to(rand(x.shape) >= p, x.dtype)
    return x * (keep / (1 - p) if p < 1 else keep * 0.0)


class Dropout(Module):
    def __init__(self, p=0.5):
        super().__init__()
        check_share(p)
        self.p = p

    def forward(self, x):
        return F["dropout"](x, self.p, self.training)


class Sequential(Module):
    def __init__(self, *parts):
        super().__init__()
        named = parts[0] if len(parts) == 1 and isinstance(parts[0], OrderedDict) else None
        for name, part in (named or {str(i): part for i, part in enumerate(parts)}).items():
            self.add_module(name, part)

    def __iter__(self):
        return iter(self._modules.values())

    def __len__(self):
        return len(self._modules)

    def __getitem__(self, i):
        found = list(self)[i]
        return type(self)(*found) if isinstance(i, slice) else found

    def __setitem__(self, i, part):
        self.add_module(list(self._modules)[i], part)

    def append(self, part):
        self.add_module(str(len(self)), part)
        return self

    def forward(self, x):
        for part in self:
            x = part(x)
        return x


class ModuleList(Sequential):
    def __init__(self, modules=()):
        super().__init__()
        self.extend(modules)

    def __getitem__(self, i):
        found = list(self)[i]
        return ModuleList(found) if isinstance(i, slice) else found

    def extend(self, parts):
        if not hasattr(parts, "__iter__"):
            raise TypeError(
                "ModuleList.extend should be called with an iterable, but got "
                f"{type(parts).__name__}"
            )
        for part in parts:
            self.append(part)
        return self

    forward = Module.forward


class ModuleDict(Module):
    def __init__(self, modules=None):
        super().__init__()
        for name, part in dict(modules or {}).items():
            self[name] = part

    def __getitem__(self, name):
        return self._modules[name]

    def __setitem__(self, name, part):
        self.add_module(name, part)

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, name):
        return name in self._modules

    keys, values, items = (
        (lambda self: self._modules.keys()),
        (lambda self: self._modules.values()),
        (lambda self: self._modules.items()),
    )


def layer(name, f):
    "A module that calls a function of F with the settings that it was made with."

    def __init__(self, **named):
        Module.__init__(self)
        vars(self).update(named=named)

    __init__ = bound(f"nn.{name}", __init__)
    forward = lambda self, input, *more: f(input, *more, **self.named)
    return type(name, (Module,), {"__init__": __init__, "forward": forward})


def normalize(x, p=2.0, dim=1, eps=1e-12):
    return x / clamp(norm(x, p, dim, True), eps)


def chosen(losses, reduction, count=None):
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if reduction == "none":
        return losses
    return total(losses) if reduction == "sum" else total(losses) / count


def cross_entropy(input, target, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError("label_smoothing must be between 0.0 and 1.0.")
    dim = min(1, input.ndim - 1)
    if not input.ndim:
        missing("a loss of a single number")
    if input.shape == target.shape:
        if label_smoothing:
            missing("cross_entropy with label_smoothing and probabilities")
        losses = -total(log_softmax(input, dim) * target, dim)
        return chosen(losses, reduction, losses.numel())
    log_p, keep = log_softmax(classes_last(input, target), -1), _ne(target, ignore_index)
    losses = nll_rows(log_p, target, ignore_index)
    if label_smoothing:
        smooth = where(keep, -mean(log_p, -1), 0.0)
        losses = (1 - label_smoothing) * losses + label_smoothing * smooth
    return chosen(losses, reduction, total(keep))


def classes_last(input, target):
    "The input with the classes in the last axis, where the target's shape is what is left."
    moved = movedim(input, 1, -1) if input.ndim > 2 else input
    if moved.ndim and moved.shape[:-1] != target.shape:
        if moved.ndim == target.ndim + 1 and input.shape[0] != (*target.shape, 1)[0]:
            sizes = f"({input.shape[0]}) to match target batch_size ({(*target.shape, 1)[0]})."
            raise ValueError(f"Expected input batch_size {sizes}")
        if target.ndim > 1 and moved.ndim == 2:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if input.shape[0] != (*target.shape, 1)[0]:
            sizes = f"({input.shape[0]}) to match target batch_size ({(*target.shape, 1)[0]})."
            raise ValueError(f"Expected input batch_size {sizes}")
        raise RuntimeError(
            f"Expected target size {list(moved.shape[:-1])}, got {list(target.shape)}"
        )
    return moved


def nll_rows(log_p, target, ignore_index):
    for i in target.flat():
        if i != ignore_index and not 0 <= i < log_p.shape[-1]:
            raise IndexError(f"Target {i} is out of bounds.")
    keep = _ne(target, ignore_index)
    safe = unsqueeze(where(keep, target, 0), -1)
    return where(keep, -squeeze(gather(log_p, -1, safe), -1), 0.0)


def nll_loss(input, target, ignore_index=-100, reduction="mean"):
    if not input.ndim:
        missing("a loss of a single number")
    rows = nll_rows(classes_last(input, target), target, ignore_index)
    losses = kept_too(rows, input, target)
    return chosen(losses, reduction, total(_ne(target, ignore_index)))


def mse_loss(input, target, reduction="mean"):
    losses = (input - target).square()
    return kept_too(chosen(losses, reduction, losses.numel()), input, target)


def pad(x, pad, mode="constant", value=None):
    if mode != "constant" or min(pad, default=0) < 0:
        missing("this form of F.pad")
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise RuntimeError(
            "Padding length must be divisible by 2 and at most twice the number of axes"
        )
    for d, sides in enumerate(zip(pad[::2], pad[1::2]), 1):
        shapes = [[*x.shape[: x.ndim - d], n, *x.shape[x.ndim - d + 1 :]] for n in sides]
        before, after = (full(shape, value or 0, x.dtype) for shape in shapes)
        x = cat([before, x, after], -d)
    return x


def pad_sequence(sequences, batch_first=False, padding_value=0.0):
    n = max(x.shape[0] for x in sequences)
    rows = [
        pad(x, [0, 0] * (x.ndim - 1) + [0, n - x.shape[0]], value=padding_value) for x in sequences
    ]
    return stack(rows, 0 if batch_first else 1)


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    q, k, v, mask = query, key, value, attn_mask
    if min(x.ndim for x in (q, k, v)) < 2:
        raise RuntimeError("Expected query, key, and value to all be at least 2 dimensional")
    if enable_gqa:
        k, v = (repeat_interleave(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    if is_causal:
        if mask is not None:
            raise RuntimeError("Explicit attn_mask should not be set when is_causal=True")
        mask = tril(ones((q.shape[-2], k.shape[-2]), boolean))
    scores = product(q, transpose(k, -1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None and mask.dtype not in (boolean, q.dtype):
        raise RuntimeError("Expected attn_mask dtype to be bool or float or to match query dtype")
    if mask is not None:
        expand(mask, scores.shape)
    if mask is not None and mask.dtype is boolean:
        scores = masked_fill(scores, ~mask, -inf)
    elif mask is not None:
        scores = scores + mask
    some = any_(_ne(scores, -inf), -1, True)  # a row of -inf gives zeros
    weights = softmax(where(some, scores, 0.0), -1) * to(some, q.dtype)
    out = product(dropout(weights, dropout_p), v)
    return kept_too(out, query, key, value, attn_mask, *[out] * (q.ndim == 4 and not dropout_p))


def one_hot(tensor, num_classes=-1):
    if num_classes <= 0 and (num_classes != -1 or not tensor.numel()):
        raise RuntimeError("num_classes should be positive")
    n = num_classes if num_classes > 0 else max(tensor.flat()) + 1
    if any(not 0 <= i < n for i in tensor.flat()):
        raise RuntimeError("Class values must be smaller than num_classes.")
    return to(_eq(unsqueeze(tensor, -1), arange(n)), int64)


# --- learning -------------------------------------------------------------------------------------


PLAIN_WORDS = {"lr": "learning rate", "momentum": "momentum value", "eps": "epsilon value"}
PLAIN_WORDS |= {"weight_decay": "weight_decay value", "betas": "beta parameter"}


class Optimizer:
    def __init__(self, params, **settings):
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                "but got torch.Tensor"
            )
        for name, value in settings.items():
            low = value if isinstance(value, tuple) else (value,)
            if name != "dampening" and any(not isinstance(n, bool) and not n >= 0.0 for n in low):
                raise ValueError(f"Invalid {PLAIN_WORDS.get(name, name)}: {value}")
        if any(not b < 1 for b in settings.get("betas", ())):
            raise ValueError(f"Invalid beta parameter: {settings['betas']}")
        params = list(params)
        if not params:
            raise ValueError("optimizer got an empty parameter list")
        groups = params if isinstance(params[0], dict) else [{"params": params}]
        self.param_groups = [
            {**settings, **group, "params": sequence_of(group["params"])} for group in groups
        ]
        for p in (p for group in self.param_groups for p in group["params"]):
            if not isinstance(p, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {p}"
                )
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        self.state, self.defaults = {}, settings

    def zero_grad(self, set_to_none=True):
        for group in self.param_groups:
            cleared(group["params"], set_to_none)

    def step(self, closure=None):
        found = closure and closure()
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        write(p, self.moved(p, p.grad, group, self.state.setdefault(p, {})))
        return found


class SGD(Optimizer):
    def __init__(
        self, params, lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False
    ):
        if nesterov and (momentum <= 0 or dampening):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        settings = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, **settings, dampening=dampening, nesterov=nesterov)

    def moved(self, p, g, group, kept):
        g = g + group["weight_decay"] * detach(p) if group["weight_decay"] else g
        if momentum := group["momentum"]:
            before = kept.get("momentum_buffer")
            new = g if before is None else momentum * before + (1 - group["dampening"]) * g
            kept["momentum_buffer"] = new
            g = g + momentum * new if group["nesterov"] else new
        return detach(p) - group["lr"] * g


class Adam(Optimizer):
    decoupled, decay = False, 0.0

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=None):
        decay = self.decay if weight_decay is None else weight_decay
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=decay)

    def moved(self, p, g, group, kept):
        p, lr, (a, b), decay = detach(p), group["lr"], group["betas"], group["weight_decay"]
        if decay and self.decoupled:
            p = p * (1 - lr * decay)
        elif decay:
            g = g + decay * p
        t, g = kept.get("step", 0) + 1, g.flat()
        nothing = [0.0] * len(g)
        m = [a * x + (1 - a) * y for x, y in zip(kept.get("exp_avg", nothing), g)]
        v = [b * x + (1 - b) * y * y for x, y in zip(kept.get("exp_avg_sq", nothing), g)]
        kept.update(step=t, exp_avg=m, exp_avg_sq=v)
        rate, size, eps = lr / (1 - a**t), (1 - b**t) ** -0.5, group["eps"]
        new = [x - rate * y / (math.sqrt(z) * size + eps) for x, y, z in zip(p.flat(), m, v)]
        return Tensor(p.dtype.store(new), p.shape, p.dtype)


class AdamW(Adam):
    decoupled, decay = True, 0.01


def clip_grad_norm_(parameters, max_norm, norm_type=2.0):
    found = [p for p in sequence_of(parameters) if p.grad is not None]
    size = math.sqrt(sum(x * x for p in found for x in p.grad.flat()))
    with no_grad():
        for p in found:
            write(p.grad, p.grad * min(1.0, max_norm / (size + 1e-6)))
    return tensor(size)


class Function:
    "A step whose gradient is given by a formula."

    @classmethod
    def apply(cls, *args):
        save = lambda self, *x: setattr(self, "saved_tensors", x)
        context = type("Context", (), {"save_for_backward": save})()
        with no_grad():
            out = cls.forward(context, *args)
        shape, result, cache = out.shape, out.dtype, {}

        def back(i):
            def gradient(g):
                if tuple(g) not in cache:
                    with no_grad():
                        found = cls.backward(context, Tensor(list(g), shape, result))
                    cache[tuple(g)] = found if isinstance(found, tuple) else (found,)
                return cache[tuple(g)][i].flat()

            return gradient

        kept = [x for x in getattr(context, "saved_tensors", ()) if isinstance(x, Tensor)]
        edges = [(x, back(i), *kept) for i, x in enumerate(args) if isinstance(x, Tensor)]
        return linked(detach(out), *edges)
