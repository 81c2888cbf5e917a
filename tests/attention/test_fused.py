"""`attend_fused` is `attend`, in values and in gradients, wherever the two can be asked."""

import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_lit.attention.attend import attend
from transformer_lit.attention.fused import attend_fused

B, H, K, D, E = 2, 6, 3, 5, 7
LENGTHS = [(11, 11), (3, 11), (1, 11), (11, 3)]  # T, S; the last has queries before the first key
MASKS = [None, "padding", "full", "rows", "one batch"]


def inputs(T, S, kv_heads=H, e=D):
    shapes = (B, H, T, D), (B, kv_heads, S, D), (B, kv_heads, S, e)
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def make_mask(kind, T, S):
    if kind is None:
        return None
    shape = {
        "padding": (B, 1, 1, S),
        "full": (B, H, T, S),
        "rows": (B, 1, T, 1),
        "one batch": (1, 1, T, S),
    }[kind]
    mask = torch.rand(shape) > 0.4
    mask[-1, :, 0] = False  # the first query sees nothing; with padding, no query of that row does
    return mask


def assert_both_agree(leaves, **options):
    "Values of both kernels, and the gradients of one random weighted sum of them."
    T, e = leaves[0].shape[2], leaves[2].shape[3]
    weight = torch.randn(B, H, T, e)
    results = []
    for kernel in (attend, attend_fused):
        out = kernel(*leaves[:3], **options)
        grads = torch.autograd.grad((out * weight).sum(), leaves)
        results.append((out, *grads))
    assert all(torch.isfinite(x).all() for x in results[1])
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize(
    ("lengths", "mask", "biased", "causal"),
    list(itertools.product(LENGTHS, MASKS, [False, True], [False, True])),
)
def test_values_and_gradients_agree(lengths, mask, biased, causal):
    leaves = inputs(*lengths)
    options = {"mask": make_mask(mask, *lengths), "causal": causal}
    if biased:
        options["bias"] = torch.randn(1, H, *lengths, requires_grad=True)
        leaves.append(options["bias"])
    assert_both_agree(leaves, **options)


@pytest.mark.parametrize("kv_heads", [1, K, H])
@pytest.mark.parametrize("mask", [None, "full"])
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_heads_agree(kv_heads, mask, causal):
    assert_both_agree(inputs(11, 11, kv_heads), mask=make_mask(mask, 11, 11), causal=causal)


@pytest.mark.parametrize("kv_heads", [1, K])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("biased", [False, True])
def test_one_query_for_each_of_many_heads(kv_heads, mask, biased):
    "This catches the bug where masks and biases of single heads go to the wrong group."
    leaves = inputs(1, 11, kv_heads)
    options = {"mask": make_mask(mask, 1, 11), "causal": True}
    if biased:
        options["bias"] = torch.randn(1, H, 1, 11, requires_grad=True)
        leaves.append(options["bias"])
    assert_both_agree(leaves, **options)


@pytest.mark.parametrize("T", [1, 3])
def test_without_keys_every_row_is_zero(T):
    q, k, v = inputs(T, 0, K)
    mask = torch.ones(B, 1, T, 0, dtype=torch.bool)
    for options in ({}, {"mask": mask}, {"causal": True}):
        assert torch.equal(attend_fused(q, k, v, **options), torch.zeros(B, H, T, D))


class Largest(TorchDispatchMode):
    "Notes the number of elements of the largest tensor that an operation returns."

    size = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        out = op(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            self.size = max(self.size, x.numel() if isinstance(x, torch.Tensor) else 0)
        return out


@pytest.mark.parametrize("kv_heads", [K, H])
@pytest.mark.parametrize("e", [D, E])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"scale": 2.0}, {"mask": "padding"}])
def test_no_table_is_made_where_nobody_brings_one(kv_heads, e, options):
    T = 101
    leaves = inputs(T, T, kv_heads, e)
    if "mask" in options:
        options = {"mask": make_mask("padding", T, T)}
    with Largest() as seen:
        torch.autograd.grad(attend_fused(*leaves, **options).sum(), leaves)
    assert seen.size <= B * H * T * max(D, E)
    with Largest() as seen:
        attend(*leaves, **options)
    assert seen.size >= B * H * T * T  # the measure sees a table where there is one


@pytest.mark.parametrize("scale", [0.0, -0.5, 3.0])
@pytest.mark.parametrize("lengths", [(3, 11), (11, 11)])
def test_any_scale_is_passed_on(scale, lengths):
    "This catches the bug where the kernel's causal flag scales -inf by zero, or by less: nan."
    for mask, causal in itertools.product((None, "full"), (False, True)):
        options = {"mask": make_mask(mask, *lengths), "causal": causal}
        assert_both_agree(inputs(*lengths), scale=scale, **options)


def test_a_scale_of_zero_gives_the_mean_of_the_visible_values():
    q, k, v = inputs(3, 11)
    mean = v.mean(2, keepdim=True).expand(B, H, 3, D)
    torch.testing.assert_close(attend_fused(q, k, v, scale=0.0), mean)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [K, H])
def test_values_may_have_a_size_of_their_own(causal, kv_heads):
    assert_both_agree(inputs(11, 11, kv_heads, e=E), causal=causal)


def test_a_bias_for_each_row_of_the_batch():
    bias = torch.randn(B, H, 3, 11, requires_grad=True)
    assert_both_agree([*inputs(3, 11), bias], bias=bias, mask=make_mask("padding", 3, 11))


@pytest.mark.parametrize("biased", [False, True])
def test_a_hidden_row_is_zero_and_moves_nothing(biased):
    q, k, v = inputs(3, 11)
    mask = torch.ones(B, 1, 3, 11, dtype=torch.bool)
    mask[:, :, 1] = False
    bias = torch.randn(1, H, 3, 11, requires_grad=True) if biased else None
    out = attend_fused(q, k, v, mask=mask, bias=bias)
    assert not out[:, :, 1].any()
    assert out[:, :, [0, 2]].all()
    out[:, :, 1].sum().backward()
    for leaf in (q, k, v, *([bias] if biased else [])):
        assert not leaf.grad.any()  # zero, and not nan


@pytest.mark.parametrize("kernel", [attend, attend_fused])
def test_dropout_drops_weights_and_scales_the_rest(kernel):
    "With the identity as values the output is the weights themselves."
    q, k, _ = inputs(11, 13)
    v = torch.eye(13).expand(B, H, 13, 13)
    kept, dropped = kernel(q, k, v), kernel(q, k, v, dropout=0.5)
    torch.testing.assert_close(dropped, torch.where(dropped == 0, 0.0, 2 * kept))
    share = (dropped == 0).float().mean()
    assert 0.4 < share < 0.6  # 1716 draws: the standard deviation is 0.012


def test_a_bfloat16_query_takes_a_float32_bias():
    q, k, v = (x.detach().bfloat16() for x in inputs(3, 11))
    bias = torch.randn(1, H, 3, 11, dtype=torch.float32)
    out, exact = attend_fused(q, k, v, bias=bias), (x.double() for x in (q, k, v))
    expected = attend(*exact, bias=bias.double())
    # Scores and bias may be rounded, which moves a weight by twice that share of it; the weight and
    # the sum are rounded themselves. Each by half of ε, and no output exceeds the largest value.
    scores = q.double() @ k.double().mT / D**0.5
    half, most = torch.finfo(torch.bfloat16).eps / 2, scores.abs().max() + bias.abs().max()
    assert out.dtype == torch.bfloat16
    assert (out.double() - expected).abs().max() < half * (2 * most + 2) * v.abs().max()


# --- what nothing can be seen of ----------------------------------------------------------------


@pytest.mark.parametrize("kernel", [attend, attend_fused])
@pytest.mark.parametrize(("T", "kv_heads", "mask"), [(1, K, None), (3, H, "full")])
def test_an_empty_batch_gives_an_empty_result(kernel, T, kv_heads, mask):
    q, k, v = (x[:0] for x in inputs(T, 11, kv_heads, E))
    mask = None if mask is None else make_mask(mask, T, 11)[:0]
    out = kernel(q, k, v, mask=mask, causal=True, bias=torch.randn(1, H, T, 11))
    assert out.shape == (0, H, T, E)


@pytest.mark.parametrize("kernel", [attend, attend_fused])
@pytest.mark.parametrize("lengths", LENGTHS[:3])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"mask": "full"}])
def test_a_bias_of_minus_infinity_hides_as_a_mask_does(kernel, lengths, options):
    "Whole rows too: by the bias alone, and where mask and bias leave each other nothing."
    leaves, weight = inputs(*lengths), torch.randn(B, H, lengths[0], D)
    mask = make_mask("full", *lengths) if "mask" in options else None
    hidden = torch.rand(1, H, *lengths) > 0.4
    hidden[:, :, -1] = True
    bias = torch.zeros(1, H, *lengths).masked_fill(hidden, -torch.inf).requires_grad_()
    out = kernel(*leaves, bias=bias, **options | {"mask": mask})
    grads = torch.autograd.grad((out * weight).sum(), [*leaves, bias])
    assert not out[:, :, -1].any() and not grads[-1][:, :, -1].any()
    both = ~hidden if mask is None else mask & ~hidden
    expected = attend(*leaves, **options | {"mask": both})
    torch.testing.assert_close(out, expected)
    expected = torch.autograd.grad((expected * weight).sum(), leaves)
    torch.testing.assert_close(grads[:-1], expected)


@pytest.mark.parametrize("rows", ["all see some keys", "one sees none"])
def test_the_formula_never_reads_a_hidden_key(rows):
    q, k, v = inputs(3, 11)
    mask = torch.ones(B, 1, 3, 11, dtype=torch.bool)
    mask[..., 4] = False
    mask[:, :, 1] &= rows == "all see some keys"
    other = k.detach().clone()
    other[:, :, 4] = torch.inf
    assert torch.equal(attend(q, other, v, mask=mask), attend(q, k, v, mask=mask))


def test_the_kernel_does_not_care_how_large_a_hidden_key_is():
    "It computes the score first: infinity would be nan there, and any number is right."
    q, k, v = inputs(3, 11)
    mask = make_mask("padding", 3, 11)
    other = torch.where(mask.mT, k.detach(), 1e300)
    torch.testing.assert_close(attend_fused(q, other, v, mask=mask), attend(q, k, v, mask=mask))
