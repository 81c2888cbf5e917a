"""`attend_fused` is `attend`, in values and in gradients, wherever the two can be asked."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_lit.attention.attend import attend
from transformer_lit.attention.fused import attend_fused

B, H, K, D, E = 2, 6, 3, 5, 7
LENGTHS = [(11, 11), (3, 11), (1, 11), (11, 3)]  # T, S; the last has queries before the first key
MASKS = [None, "padding", "full", "rows", "one batch"]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


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


def check_both_agree(leaves, **options):
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
    check_both_agree(leaves, **options)


@pytest.mark.parametrize("kv_heads", [1, K, H])
@pytest.mark.parametrize("mask", [None, "full"])
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_heads_agree(kv_heads, mask, causal):
    check_both_agree(inputs(11, 11, kv_heads), mask=make_mask(mask, 11, 11), causal=causal)


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
    check_both_agree(leaves, **options)


def test_a_decoding_step_hands_the_kernel_no_group(monkeypatch):
    "Heads of a group are queries of one head, so keys are neither copied nor read twice."
    seen = []

    def spy(q, k, v, enable_gqa, **options):
        seen.append((tuple(q.shape), tuple(k.shape), enable_gqa))
        return torch.zeros_like(q)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    assert attend_fused(*inputs(1, 11, K)).shape == (B, H, 1, D)
    assert seen == [((B, K, H // K, D), (B, K, 11, D), False)]


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


@pytest.mark.parametrize("kv_heads", [1, K, H])
@pytest.mark.parametrize("e", [3, D, E])
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
@pytest.mark.parametrize("mask", [None, "full"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(3, 11), (11, 11)])
def test_any_scale_is_passed_on(scale, mask, causal, lengths):
    "This catches the bug where the kernel's causal flag scales -inf by zero, or by less: nan."
    check_both_agree(inputs(*lengths), scale=scale, mask=make_mask(mask, *lengths), causal=causal)


def test_a_scale_of_zero_gives_the_mean_of_the_visible_values():
    q, k, v = inputs(3, 11)
    mean = v.mean(2, keepdim=True).expand(B, H, 3, D)
    torch.testing.assert_close(attend_fused(q, k, v, scale=0.0), mean)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [K, H])
def test_values_may_have_a_size_of_their_own(causal, kv_heads):
    check_both_agree(inputs(11, 11, kv_heads, e=E), causal=causal)


def test_a_bias_for_each_row_of_the_batch():
    bias = torch.randn(B, H, 3, 11, requires_grad=True)
    check_both_agree([*inputs(3, 11), bias], bias=bias, mask=make_mask("padding", 3, 11))


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


def test_no_row_of_minus_infinity_reaches_the_kernel(monkeypatch):
    "What a kernel makes of a row without keys differs by version and device, so none may see one."
    seen = []

    def spy(q, k, v, attn_mask, **options):
        seen.append(attn_mask)
        return kernel(q, k, v, attn_mask=attn_mask, **options)

    kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    q, k, v = inputs(11, 3)
    attend_fused(q, k, v, causal=True)
    attend_fused(q, k, v, causal=True, bias=torch.randn(1, H, 11, 3))
    assert seen[0].dtype == torch.bool and seen[0].any(-1).all()
    assert seen[1].isfinite().any(-1).all() and not seen[1].isfinite().all()


@pytest.mark.parametrize(("T", "S", "flag"), [(11, 11, True), (1, 11, False), (3, 11, False)])
def test_the_kernels_causal_flag_is_used_for_squares_alone(monkeypatch, T, S, flag):
    calls = []

    def spy(q, k, v, attn_mask, is_causal, **options):
        calls.append((is_causal, attn_mask is None))
        return torch.zeros_like(q)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    attend_fused(*inputs(T, S), causal=True)
    assert calls == [(flag, flag or T == 1)]  # one query sees all keys: no table is made for it


def test_is_causal_is_aligned_top_left():
    "Why the flag is not passed on for T < S: query 0 would see key 0 alone."
    q, k, v = inputs(3, 11)
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(theirs[:, :, 0], v[:, :, 0])
    assert not torch.allclose(theirs, attend(q, k, v, causal=True))


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
    bias = torch.randn(1, H, 3, 11)
    expected = attend(q.float(), k.float(), v.float(), bias=bias)
    # bfloat16 keeps 8 bits: the result is good to about 1 %
    torch.testing.assert_close(
        attend_fused(q, k, v, bias=bias).float(), expected, rtol=2e-2, atol=2e-2
    )


Q, KEYS = (B, H, 5, D), (B, K, 11, D)
WRONG = {
    "another head size": ([Q, (B, K, 11, 3), KEYS], {}, [Q, (B, K, 11, 3), KEYS]),
    "another batch": ([Q, (3, K, 11, D), (3, K, 11, D)], {}, [Q, (3, K, 11, D)]),
    "fewer values than keys": ([Q, KEYS, (B, K, 7, D)], {}, [KEYS, (B, K, 7, D)]),
    "heads of keys and values": ([Q, KEYS, (B, H, 11, D)], {}, [KEYS, (B, H, 11, D)]),
    "no head axis": ([(B, 5, D), (B, 11, D), (B, 11, D)], {}, [(B, 5, D), (B, 11, D)]),
    "K does not divide H": ([Q, (B, 4, 11, D), (B, 4, 11, D)], {}, [Q, (B, 4, 11, D)]),
    "no key head": ([Q, (B, 0, 11, D), (B, 0, 11, D)], {}, [Q, (B, 0, 11, D)]),
    "mask of another T": ([Q, KEYS, KEYS], {"mask": (B, 1, 3, 11)}, [(B, 1, 3, 11), (B, H, 5, 11)]),
    "mask of two axes": ([Q, KEYS, KEYS], {"mask": (5, 11)}, [(5, 11), (B, H, 5, 11)]),
    "mask for key heads": ([Q, KEYS, KEYS], {"mask": (B, K, 5, 11)}, [(B, K, 5, 11)]),
    "bias of another S": ([Q, KEYS, KEYS], {"bias": (1, H, 5, 7)}, [(1, H, 5, 7), (B, H, 5, 11)]),
}


@pytest.mark.parametrize("kernel", [attend, attend_fused])
@pytest.mark.parametrize("case", WRONG)
def test_shapes_that_cannot_work_are_named(kernel, case, no_shape_checks):
    shapes, options, named = WRONG[case]
    kinds = {"mask": torch.bool, "bias": torch.float}
    options = {name: torch.zeros(x, dtype=kinds[name]) for name, x in options.items()}
    with pytest.raises(ValueError) as error:
        kernel(*(torch.zeros(x) for x in shapes), **options)
    assert all(str(shape) in str(error.value) for shape in named)


@pytest.mark.parametrize("kernel", [attend, attend_fused])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_a_mask_that_is_not_boolean_is_refused(kernel, dtype, no_shape_checks):
    "This catches the bug where a mask of 0 and -inf is taken for one of False and True."
    mask = torch.zeros(B, 1, 5, 11, dtype=dtype)
    with pytest.raises(ValueError, match=rf"{dtype} of shape \({B}, 1, 5, 11\)"):
        kernel(torch.zeros(Q), torch.zeros(KEYS), torch.zeros(KEYS), mask=mask)


@pytest.mark.parametrize("kernel", [attend, attend_fused])
def test_a_bias_that_is_boolean_is_refused(kernel, no_shape_checks):
    bias = torch.ones(B, H, 5, 11, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"torch.bool of shape"):
        kernel(torch.zeros(Q), torch.zeros(KEYS), torch.zeros(KEYS), bias=bias)
