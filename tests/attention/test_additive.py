"""The score of a small network, against loops; rows that see nothing are zero."""

import math

import pytest
import torch

from transformer_lit.attention.additive import AdditiveAttention, additive_attend

B, T, S, A, C, M = 2, 3, 5, 7, 11, 13


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def by_loops(q, k, v, w, mask):
    out = torch.zeros(B, T, v.shape[-1], dtype=torch.float64)
    for b in range(B):
        for t in range(T):
            seen = [s for s in range(S) if mask[b, t, s]]
            e = {s: math.exp(sum(w[a] * math.tanh(q[b, t, a] + k[b, s, a]) for a in range(A)))
                 for s in seen}  # fmt: skip
            for s in seen:
                out[b, t] += e[s] / sum(e.values()) * v[b, s]
    return out


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_against_loops(share):
    q, k, v, w = draw(B, T, A), draw(B, S, A), draw(B, S, C), draw(A)
    mask = torch.rand(B, T, S) < share
    if share < 1:
        mask[1, 2] = False
    found = additive_attend(q, k, v, w, mask=mask)
    torch.testing.assert_close(found, by_loops(q, k, v, w, mask))
    if share == 1:
        torch.testing.assert_close(additive_attend(q, k, v, w), found)


def test_a_row_that_sees_nothing_is_zero_with_a_finite_gradient():
    inputs = [x.requires_grad_() for x in (draw(B, T, A), draw(B, S, A), draw(B, S, C), draw(A))]
    mask = torch.ones(B, 1, S, dtype=torch.bool)
    mask[0] = False
    out = additive_attend(*inputs, mask=mask)
    assert out[0].eq(0).all() and out[1].ne(0).all()
    grads = torch.autograd.grad(out.square().sum(), inputs)
    assert all(g.isfinite().all() for g in grads) and grads[0][0].eq(0).all()


def test_a_mask_of_the_memory_alone_is_not_taken_for_one_of_queries(no_shape_checks):
    "With as many queries as rows, B S would broadcast as T S."
    inputs = draw(B, B, A), draw(B, S, A), draw(B, S, C), draw(A)
    with pytest.raises(ValueError, match=r"got \(2, 5\); of B S, mask\[:, None\]"):
        additive_attend(*inputs, mask=torch.ones(B, S, dtype=torch.bool))


def test_the_gradient_is_the_derivative():
    inputs = [x.requires_grad_() for x in (draw(1, 2, 3), draw(1, 3, 3), draw(1, 3, 2), draw(3))]
    assert torch.autograd.gradcheck(additive_attend, inputs)


def test_the_module_projects_and_calls_the_formula():
    layer = AdditiveAttention(C, M, d_score=A).double()
    x, memory = draw(B, T, C), draw(B, S, M)
    mask = torch.rand(B, 1, S) < 0.7
    expected = additive_attend(
        x @ layer.q_proj.weight.T + layer.q_proj.bias,
        memory @ layer.k_proj.weight.T,
        memory,
        layer.weight,
        mask=mask,
    )
    torch.testing.assert_close(layer(x, layer.keys_values(memory), mask=mask), expected)
