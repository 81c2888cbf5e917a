"""Both wirings against their formulas; what dropout may touch and what not."""

import pytest
import torch
from torch import nn

from transformer_lit.block.norm import LayerNorm
from transformer_lit.block.residual import PostNorm, PreNorm

WIRINGS = [PostNorm, PreNorm]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def trained(size):
    "A norm that is not the neutral one."
    norm = LayerNorm(size)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


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
    "The norm is taken out, so that the sum is visible: each entry is x or x + f/(1 − p)."
    x, f = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    block = wiring(nn.Identity(), dropout=0.75)
    added = block(x, lambda z: f) - x
    dropped = added == 0
    assert 0 < dropped.sum() < x.numel()
    torch.testing.assert_close(added[~dropped], 4 * f[~dropped])
    torch.testing.assert_close(block.eval()(x, lambda z: f), x + f)


def test_with_everything_dropped_the_input_is_left():
    x, norm = torch.randn(2, 3, 5), trained(5)
    torch.testing.assert_close(PreNorm(norm, dropout=1.0)(x, torch.exp), x)
    torch.testing.assert_close(PostNorm(norm, dropout=1.0)(x, torch.exp), norm(x))


@pytest.mark.parametrize("wiring", WIRINGS)
def test_a_stack_ends_in_a_norm_or_asks_for_one(wiring):
    x = torch.randn(2, 3, 101)
    for _ in range(7):
        x = wiring(LayerNorm(101))(x, torch.randn_like)
    normed = torch.allclose(x, LayerNorm(101)(x), atol=1e-4)
    assert wiring.needs_final_norm is not normed


@pytest.mark.parametrize("wiring", WIRINGS)
def test_the_parameters_are_those_of_the_norm(wiring):
    assert list(wiring(LayerNorm(5)).state_dict()) == ["norm.weight", "norm.bias"]


@pytest.mark.parametrize("wiring", WIRINGS)
def test_an_impossible_dropout_is_named(wiring):
    with pytest.raises(ValueError, match=r"-0\.5"):
        wiring(LayerNorm(5), dropout=-0.5)
