"""Every kernel is the formula, in values and in gradients: with any mask, bias, scale and group."""

import inspect
import itertools
import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_lit.attention.attend import attend
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.steady import SoftCap
from transformer_lit.attention.windows import SinkLogit

B, H, D, E = 2, 6, 5, 11  # H = 6 can be grouped in four ways
CAP = 1.5
SINK = SinkLogit(H)
SINK.logit.data = torch.linspace(-1, 2, H)
KERNELS = {"formula": attend, "fused": attend_fused, "capped": SoftCap(CAP), "sink": SINK}
SIZES = [  # K, T, S, and the size of a value
    (6, 5, 5, D),  # where the kernel's own causal flag may be used
    (3, 5, 5, E),
    (2, 3, 7, D),
    (2, 1, 7, 3),  # a decoding step
    (6, 7, 2, E),  # queries before the first key
]
MASKS = {
    "none": None,
    "padding": (B, 1, 1, "S"),
    "heads": (1, H, "T", "S"),
    "all": (B, H, "T", "S"),
    "rows": (B, 1, "T", 1),
}
BIASES = {"none": None, "shared": 1, "own": B, "hides": 1}

every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
two_kernels = pytest.mark.parametrize("kernel", [attend, attend_fused])


def inputs(K, T, S, e, **options):
    shapes = (B, H, T, D), (B, K, S, D), (B, K, S, e)
    return [torch.randn(shape, **options) for shape in shapes]


def make_mask(kind, T, S):
    if MASKS[kind] is None:
        return None
    mask = torch.rand([{"T": T, "S": S}.get(n, n) for n in MASKS[kind]]) < 0.6
    mask[-1, :, 0] = False  # the first query sees nothing; with padding, no query of that row does
    return mask


def make_bias(kind, T, S):
    if BIASES[kind] is None:
        return None
    bias = torch.randn(BIASES[kind], H, T, S)
    if kind == "hides":
        bias[torch.rand(bias.shape) < 0.4] = -math.inf
        bias[:, :, -1] = -math.inf
    return bias.requires_grad_()


def by_shares(q, k, v, *, mask, bias, causal, scale, cap=math.inf, sink=None):
    "Shares of e to the score over the keys that may be seen; none where no key may."
    groups = [h // (H // k.shape[1]) for h in range(H)]
    T, S = q.shape[2], k.shape[2]
    scores = q @ k[:, groups].mT * (D**-0.5 if scale is None else scale)
    visible = torch.ones(B, H, T, S, dtype=torch.bool)
    if bias is not None:
        scores, visible = scores + bias, visible & (bias > -math.inf)
    if mask is not None:
        visible = visible & mask
    if causal:  # the last query is the last position, and sees every key
        visible = visible & torch.tensor([[s <= t + S - T for s in range(S)] for t in range(T)])
    scores = scores if cap == math.inf else cap * (scores / cap).tanh()
    shares = scores.exp() * visible
    total = shares.sum(-1, keepdim=True)
    total = total if sink is None else total + sink.exp()[:, None, None]
    return shares / torch.where(total > 0, total, 1.0) @ v[:, groups]


@every_kernel
@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("sizes", SIZES)
def test_is_the_formula_and_so_are_its_gradients(sizes, masked, kernel):
    _, T, S, e = sizes
    more = {"cap": CAP} if isinstance(kernel, SoftCap) else {}
    more |= {"sink": SINK.logit} if kernel is SINK else {}
    learned = [more["sink"]] if kernel is SINK else []
    for biased, causal, scale in itertools.product(BIASES, (False, True), (None, 0.0, -0.7)):
        leaves, bias = inputs(*sizes, requires_grad=True), make_bias(biased, T, S)
        options = {"mask": make_mask(masked, T, S), "bias": bias, "causal": causal, "scale": scale}
        upstream, found = torch.randn(B, H, T, e), []
        for out in (kernel(*leaves, **options), by_shares(*leaves, **options, **more)):
            wanted = leaves + learned if bias is None else [*leaves, *learned, bias]
            found.append((out, *torch.autograd.grad(out, wanted, upstream)))
        torch.testing.assert_close(*found)


@two_kernels
@pytest.mark.parametrize(("T", "S", "rows"), [(1, 0, B), (3, 0, B), (1, 7, 0), (3, 7, 0)])
def test_without_keys_or_sentences(T, S, rows, kernel):
    q, k, v = (x[:rows] for x in inputs(3, T, S, D))
    mask, bias = torch.ones(rows, 1, T, S, dtype=torch.bool), torch.randn(1, H, T, S)
    for options in ({}, {"mask": mask}, {"causal": True}, {"bias": bias, "causal": True}):
        assert torch.equal(kernel(q, k, v, **options), torch.zeros(rows, H, T, D))


@every_kernel
def test_dropout_drops_weights_and_scales_the_rest(kernel):
    "With the identity as values the output is the weights themselves."
    q, k, _ = inputs(H, 11, 13, D)
    v = torch.eye(13).expand(B, H, 13, 13)
    before = torch.get_rng_state()
    kept = kernel(q, k, v)
    assert torch.equal(torch.get_rng_state(), before)  # without dropout nothing is drawn
    dropped = kernel(q, k, v, dropout=0.5)
    torch.testing.assert_close(dropped, torch.where(dropped == 0, 0.0, 2 * kept))
    share = (dropped == 0).double().mean()
    assert 0.4 < share < 0.6  # 1716 draws: the standard deviation is 0.012


def test_a_nan_is_not_taken_for_a_hidden_row():
    "Zeros would hide the fault of whoever made the nan."
    bias = torch.full((1, H, 5, 7), math.nan)
    assert attend(*inputs(2, 5, 7, D), bias=bias).isnan().all()


def test_what_a_hidden_key_holds_does_not_matter():
    "The formula never reads it; the kernel computes the score first, so there it must be finite."
    q, k, v = inputs(H, 3, 7, D)
    mask = torch.ones(B, 1, 3, 7, dtype=torch.bool)
    mask[..., 4] = mask[1, :, 1] = False
    for kernel, large in ((attend, math.inf), (attend_fused, 1e300)):
        other = k.clone()
        other[:, :, 4] = large
        out = kernel(q, other, v, mask=mask)
        torch.testing.assert_close(out, attend(q, k, v, mask=mask))


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_large_scores_do_not_overflow(dtype, kernel):
    "exp(200) is inf in every one of these types, and -1e9 does not fit into float16."
    q, k, v = (x.to(dtype) for x in inputs(2, 5, 7, D))
    q[..., 0], k[..., 0] = 20.0, 20.0
    for mask in (None, torch.rand(B, 1, 5, 7) < 0.6):
        out = kernel(q, k, v, mask=mask)
        assert out.dtype == dtype and out.isfinite().all()
    bias = torch.randn(1, H, 5, 7, dtype=torch.float32)
    assert attend_fused(q, k, v, bias=bias).dtype == dtype  # a table may be wider than the queries


@two_kernels
def test_runs_on_any_device(kernel):
    "The causal table must be made where the queries are."
    out = kernel(*inputs(2, 5, 7, E, device="meta"), causal=True)
    assert out.shape == (B, H, 5, E) and out.device.type == "meta"


class Largest(TorchDispatchMode):
    "Notes the number of elements of the largest tensor that an operation returns."

    size = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        out = op(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            self.size = max(self.size, x.numel() if isinstance(x, torch.Tensor) else 0)
        return out


@pytest.mark.parametrize(("K", "e"), [(3, D), (H, E), (H, 3)])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"scale": 2.0}, {"mask": True}])
def test_no_table_is_made_where_nobody_brings_one(K, e, options):
    T = 101
    leaves = inputs(K, T, T, e, requires_grad=True)
    options = {"mask": make_mask("padding", T, T)} if "mask" in options else options
    with Largest() as seen:
        torch.autograd.grad(attend_fused(*leaves, **options).sum(), leaves)
    assert seen.size <= B * H * T * max(D, e)
    with Largest() as seen:
        attend(*leaves, **options)
    assert seen.size >= B * H * T * T  # the measure sees a table where there is one


GOOD = {"q": (B, H, 5, D), "k": (B, 2, 7, D), "v": (B, 2, 7, E)}
ONE = {"q": (1, H, 1, D), "k": (1, 2, 7, D), "v": (1, 2, 7, E)}  # one sentence, one query


def ones(*shape):
    return torch.ones(shape, dtype=torch.bool)


@every_kernel
@pytest.mark.parametrize(
    ("changed", "tables"),
    [
        (GOOD | {"k": (1, 2, 7, D), "v": (1, 2, 7, E)}, {}),  # one row of keys for two sentences
        (GOOD | {"v": (1, 2, 7, E)}, {}),
        (GOOD | {"v": (B, 2, 1, E)}, {}),  # one value for all keys
        (GOOD | {"v": (B, 1, 7, E)}, {}),  # values of other heads
        (GOOD | {"k": (B, 2, 7, E)}, {}),  # filled up with zeros, it would pass
        (GOOD, {"mask": ones(5, 7)}),  # with B = T, B × S would pass for T × S
        (GOOD, {"mask": ones(1, 1, 5, 0)}),  # a mask without keys
        (GOOD | {"k": (B, 2, 1, D), "v": (B, 2, 1, E)}, {"mask": ones(1, 1, 5, 0)}),
        (GOOD, {"mask": torch.ones(1, 1, 5, 7)}),  # would be added, and hide nothing
        (GOOD, {"bias": ones(1, H, 5, 7)}),  # would hide, or add 1 to what may be seen
        (GOOD, {"bias": torch.ones(5, 7)}),
        (ONE, {"mask": ones(2, 1, 1, 7)}),  # tables larger than the scores
        (ONE, {"mask": ones(1, 1, 3, 7)}),
        (ONE, {"bias": torch.ones(1, H, 3, 7)}),
        (ONE, {"bias": torch.ones(2, H, 1, 7)}),
    ],
)
def test_nothing_wrong_is_silent(kernel, changed, tables, no_shape_checks):
    with pytest.raises((ValueError, RuntimeError)):
        inspect.unwrap(kernel)(*(torch.zeros(shape) for shape in changed.values()), **tables)
