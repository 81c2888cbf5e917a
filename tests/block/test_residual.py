"""Post-norm and pre-norm against their formulas; what dropout may touch; what is left of x."""

import pytest
import torch
from torch import nn

from transformer_lit.block.norm import LayerNorm
from transformer_lit.block.residual import PostNorm, PreNorm


def trained(size):
    "A norm that is not the neutral one."
    norm = LayerNorm(size)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


WIRINGS = [PostNorm, PreNorm]


def test_the_formulas():
    x, f, norm = torch.randn(2, 3, 5), nn.Linear(5, 5), trained(5)
    torch.testing.assert_close(PostNorm(norm)(x, f), norm(x + f(x)))
    torch.testing.assert_close(PreNorm(norm)(x, f), x + f(norm(x)))


@pytest.mark.parametrize("wiring", WIRINGS)
def test_the_sublayer_is_called_once(wiring):
    seen = []
    norm, x = trained(5), torch.randn(2, 3, 5)
    wiring(norm)(x, lambda z: seen.append(z) or z)
    assert len(seen) == 1
    torch.testing.assert_close(seen[0], norm(x) if wiring is PreNorm else x)


@pytest.mark.parametrize("wiring", WIRINGS)
def test_dropout_hits_what_the_sublayer_gives_and_nothing_else(wiring):
    "The norms are taken out, so that the sum is visible: each entry is x or x + f/(1 − p)."
    x, f = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    block = wiring(nn.Identity(), dropout=0.75)
    added = block(x, lambda z: f) - x
    dropped = added.abs() < 1e-6
    assert 0 < dropped.sum() < x.numel()
    torch.testing.assert_close(added[~dropped], 4 * f[~dropped])
    torch.testing.assert_close(block.eval()(x, lambda z: f), x + f)


@pytest.mark.parametrize("wiring", WIRINGS)
def test_with_everything_dropped_the_input_is_left(wiring):
    x, norm = torch.randn(2, 3, 5), trained(5)
    expected = x if wiring is PreNorm else norm(x)
    torch.testing.assert_close(wiring(norm, dropout=1.0)(x, torch.exp), expected)


@pytest.mark.parametrize("wiring", WIRINGS)
def test_a_stack_ends_in_a_norm_or_asks_for_one(wiring):
    x, block = torch.randn(2, 3, 5), wiring(LayerNorm(5))
    for _ in range(7):
        x = block(x, torch.randn_like)
    normed = torch.allclose(x, LayerNorm(5)(x), atol=1e-3)
    assert block.needs_final_norm is not normed


@pytest.mark.parametrize(("wiring", "n", "left"), [(PostNorm, 8, 1.5**-4), (PreNorm, 16, 9**-0.5)])
def test_the_share_of_the_input_that_is_left(wiring, n, left):
    "Sublayers that add noise of variance 1/2: the correlation after n of them."
    x0 = x = torch.randn(1, 101, 1009)
    with torch.no_grad():
        for _ in range(n):
            x = wiring(LayerNorm(1009))(x, lambda z: 0.5**0.5 * torch.randn_like(z))
    correlation = torch.corrcoef(torch.stack([x0.flatten(), x.flatten()]))[0, 1].item()
    assert correlation == pytest.approx(left, abs=0.015)  # noise of 1/√100,000; five times that


def test_the_parameters_are_those_of_the_norms():
    for wiring in WIRINGS:
        assert list(wiring(LayerNorm(5)).state_dict()) == ["norm.weight", "norm.bias"]
