"""LayerNorm against numbers by hand, torch's layer, and finite differences."""

import pytest
import torch
from torch import nn

from transformer_lit.block.norm import LayerNorm, layer_norm


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def by_hand(x, gain, offset, eps):
    mean = sum(x) / len(x)
    variance = sum((v - mean) ** 2 for v in x) / len(x)
    return [g * (v - mean) / (variance + eps) ** 0.5 + b for v, g, b in zip(x, gain, offset)]


@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_the_numbers_by_hand(eps):
    x, gain, offset = [1.0, 2.0, 6.0], [1.0, -1.0, 2.0], [0.0, 10.0, -3.0]
    expected = torch.tensor(by_hand(x, gain, offset, eps))
    got = layer_norm(*map(torch.tensor, (x, gain, offset)), eps=eps)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7), (2, 5, 3, 7), (0, 7), (3, 1)])
def test_output_and_gradients_are_those_of_torch(shape):
    ours, theirs = LayerNorm(shape[-1], eps=1e-3), nn.LayerNorm(shape[-1], eps=1e-3)
    nn.init.normal_(ours.weight)
    nn.init.normal_(ours.bias)
    theirs.load_state_dict(ours.state_dict())
    x = (3 + 5 * torch.randn(shape)).requires_grad_()
    dy = torch.randn(shape)
    for function in (ours, lambda x: layer_norm(x, ours.weight, ours.bias, eps=1e-3)):
        torch.testing.assert_close(function(x), theirs(x))
        weights = (x, ours.weight, ours.bias)
        got = torch.autograd.grad(function(x), weights, dy)
        expected = torch.autograd.grad(theirs(x), (x, theirs.weight, theirs.bias), dy)
        torch.testing.assert_close(got, expected)


def test_the_gradient_is_the_derived_one():
    x, gain, offset, dy = torch.randn(4, 3, 7, dtype=torch.double)
    x.requires_grad_()
    gain = gain[0].clone().requires_grad_()
    offset = offset[0].clone().requires_grad_()
    assert torch.autograd.gradcheck(layer_norm, (x, gain, offset))
    (dx,) = torch.autograd.grad(layer_norm(x, gain, offset), x, dy)
    size = (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    x_hat, h = (x - x.mean(-1, keepdim=True)) / size, gain * dy
    across = (h * x_hat).mean(-1, keepdim=True)
    torch.testing.assert_close(dx, (h - h.mean(-1, keepdim=True) - x_hat * across) / size)


def test_a_constant_row_becomes_the_offset():
    norm = LayerNorm(5)
    nn.init.normal_(norm.bias)
    torch.testing.assert_close(norm(torch.full((3, 5), 7.0)), norm.bias.expand(3, 5))


def test_positions_do_not_see_each_other():
    norm, x = LayerNorm(5), torch.randn(2, 3, 5)
    changed = x.clone()
    changed[1, 2] += torch.randn(5)
    same = (norm(changed) == norm(x)).all(-1)
    assert same.tolist() == [[True, True, True], [True, True, False]]


def test_it_starts_as_gain_one_and_offset_zero():
    norm = LayerNorm(3)
    assert norm.weight.tolist() == [1, 1, 1] and norm.bias.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("d_model", "eps", "said"),
    [
        (0, 1e-5, "d_model=0"),
        (-3, 1e-5, "d_model=-3"),
        (3, -0.5, "eps=-0.5"),
        (3, float("nan"), "nan"),
    ],
)
def test_impossible_values_are_named(d_model, eps, said):
    with pytest.raises(ValueError, match=said):
        LayerNorm(d_model, eps=eps)
