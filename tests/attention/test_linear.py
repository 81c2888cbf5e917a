"""The gated delta rule as the papers write it, at once and in chunks; its layer and its state."""

import pytest
import torch
from torch.testing import assert_close

from transformer_lit.attention.linear import (
    GatedDeltaNet,
    StateCache,
    chunk_gated_delta_rule,
    recurrent_gated_delta_rule,
)

B, H, K, D, E, C, T = 2, 6, 3, 5, 7, 13, 29
RULES = {"loop": recurrent_gated_delta_rule}
RULES |= {
    f"chunks of {size}": lambda *given, size=size: chunk_gated_delta_rule(*given, chunk_size=size)
    for size in (1, 4, 11, T, 64)
}


def inputs():
    "q and k of length 1, v, g, beta, and a state to begin with."
    q, k = torch.nn.functional.normalize(torch.randn(2, B, H, T, D), dim=-1)
    v, state = torch.randn(B, H, T, E), torch.randn(B, H, D, E)
    return q, k, v, -torch.rand(B, H, T), torch.rand(B, H, T), state


def written_out(q, k, v, g, beta, state):
    "The papers' form: S = α (I − β k kᵀ) S + β k vᵀ, with its matrices."
    outs = []
    for t in range(q.shape[2]):
        q_t, k_t, v_t = (x[:, :, t, :, None] for x in (q, k, v))  # B H D 1
        alpha, beta_t = (x[:, :, t, None, None] for x in (g.exp(), beta))
        keep = alpha * (torch.eye(D) - beta_t * k_t @ k_t.mT)
        state = keep @ state + beta_t * k_t @ v_t.mT
        outs.append(state.mT @ q_t)
    return torch.cat(outs, -1).mT, state


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_rule_is_the_form_of_the_papers_and_so_are_its_gradients(rule):
    leaves, found = [x.requires_grad_() for x in inputs()], []
    weights, upstream = torch.randn(B, H, T, E), torch.randn(B, H, D, E)
    for form in (rule, written_out):
        out, state = form(*leaves)
        slopes = torch.autograd.grad((out * weights).sum() + (state * upstream).sum(), leaves)
        found.append((out, state, *slopes))
    assert_close(*found)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_no_steps_give_no_outputs_and_the_state_as_it_was(rule):
    *given, state = inputs()
    out, after = rule(*(x[:, :, :0] for x in given), state)
    assert out.shape == (B, H, 0, E) and torch.equal(after, state)


def test_a_long_text_that_fades_fast_stays_finite():
    q, k, v, g, beta, _ = (x[:, :, :1].repeat(1, 1, 300, *[1] * (x.ndim - 3)) for x in inputs())
    given = [x.float() for x in (q, k, v, 0 * g - 9, beta)]  # e^-9 in each of 300 steps
    out, state = chunk_gated_delta_rule(*given)
    assert out.isfinite().all() and state.isfinite().all()
    assert_close((out, state), recurrent_gated_delta_rule(*given))


def test_a_state_adds_up_in_32_bits_at_least_and_fades_slowly_at_first():
    layer, cache = GatedDeltaNet(C, H, K, d_head=D).bfloat16(), StateCache()
    out = layer(torch.randn(B, T, C).bfloat16(), cache=cache)
    assert out.dtype == torch.bfloat16 and cache.state.dtype == torch.float32
    rates = torch.nn.functional.softplus(GatedDeltaNet(C, 101, d_head=D).dt_bias)
    assert (rates > 0.99e-3).all() and (rates < 1.01e-1).all()


def test_a_state_cannot_go_back_and_hides_nothing():
    cache, layer = StateCache(), GatedDeltaNet(C, H, K, d_head=D)
    cache.select(torch.tensor([0, 0]))  # nothing is held yet
    layer(torch.randn(B, 4, C), cache=cache)
    cache.truncate(4)
    assert cache.state.shape == (B, H, D, D) and cache.past.shape == (B, 3, (2 * K + H) * D)
    for length in (-1, 0, 3, 5):
        with pytest.raises(ValueError, match=f"can't go from length 4 to {length}"):
            cache.truncate(length)
    assert cache.length == 4
    with pytest.raises(ValueError, match="pass no mask: a state"):
        layer(torch.randn(B, 4, C), mask=torch.ones(B, 1, 1, 4, dtype=torch.bool))
