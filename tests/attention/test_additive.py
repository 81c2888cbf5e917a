"""The score of a small network as a module; its formula is compared with loops in the chapter."""

import pytest
import torch

from transformer_lit.attention.additive import AdditiveAttention, additive_attend

B, T, S, A, C, M = 2, 3, 5, 7, 11, 13


def inputs(*sizes):
    B, T, S, A, C = sizes
    shapes = (B, T, A), (B, S, A), (B, S, C), (A,)
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def test_a_row_that_sees_nothing_is_zero_with_a_finite_gradient():
    leaves, mask = inputs(B, T, S, A, C), torch.ones(B, 1, S, dtype=torch.bool)
    mask[0] = False
    out = additive_attend(*leaves, mask=mask)
    assert out[0].eq(0).all() and out[1].ne(0).all()
    grads = torch.autograd.grad(out.square().sum(), leaves)
    assert all(g.isfinite().all() for g in grads) and grads[0][0].eq(0).all()
    assert torch.autograd.gradcheck(additive_attend, inputs(1, 2, 3, 3, 2))


def test_a_mask_of_the_memory_alone_is_not_taken_for_one_of_queries(no_shape_checks):
    "With as many queries as rows, B S would broadcast as T S."
    with pytest.raises(ValueError, match=r"got \(2, 5\). From B S: mask\[:, None\]"):
        additive_attend(*inputs(B, B, S, A, C), mask=torch.ones(B, S, dtype=torch.bool))


def test_the_module_projects_and_calls_the_formula():
    layer = AdditiveAttention(C, M, d_score=A)
    x, memory, mask = torch.randn(B, T, C), torch.randn(B, S, M), torch.rand(B, 1, S) < 0.7
    q = x @ layer.q_proj.weight.T + layer.q_proj.bias
    k = memory @ layer.k_proj.weight.T
    expected = additive_attend(q, k, memory, layer.weight, mask=mask)
    torch.testing.assert_close(layer(x, layer.keys_values(memory), mask=mask), expected)
    assert AdditiveAttention(C, M).weight.shape == (C,)
