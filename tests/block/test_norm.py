"""Both norms against numbers by hand, torch's and Hugging Face's layers, finite differences."""

import inspect

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.t5.modeling_t5 import T5LayerNorm
from wide import Wide

from transformer_lit.block.norm import LayerNorm, RMSNorm, layer_norm, rms_norm


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


def test_the_numbers_of_rms_norm_by_hand():
    x, gain, eps = [1.0, -2.0, 6.0], [1.0, -1.0, 2.0], 0.5
    size = (sum(v * v for v in x) / 3 + eps) ** 0.5
    expected = torch.tensor([g * v / size for v, g in zip(x, gain)])
    torch.testing.assert_close(rms_norm(torch.tensor(x), torch.tensor(gain), eps=eps), expected)


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7), (2, 5, 3, 7), (0, 7), (3, 1)])
@pytest.mark.parametrize("eps", [1e-6, 0.5])
def test_rms_norm_and_its_gradients_are_those_of_torch(shape, eps):
    ours, theirs = RMSNorm(shape[-1], eps=eps), nn.RMSNorm(shape[-1], eps=eps)
    nn.init.normal_(ours.weight)
    theirs.load_state_dict(ours.state_dict())
    x = (3 + 5 * torch.randn(shape)).requires_grad_()
    dy = torch.randn(shape)
    torch.testing.assert_close(ours(x), theirs(x))
    got = torch.autograd.grad(ours(x), (x, ours.weight), dy)
    expected = torch.autograd.grad(theirs(x), (x, theirs.weight), dy)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("their_norm", [LlamaRMSNorm, T5LayerNorm])
@pytest.mark.parametrize("size", [1.0, 1e-2, 0.0])
def test_rms_norm_is_that_of_llama_and_t5(their_norm, size):
    "The smaller rows tell eps inside the root from eps outside it."
    theirs = their_norm(7, eps=1e-3)
    nn.init.normal_(theirs.weight)
    ours = RMSNorm(7, eps=1e-3)
    ours.load_state_dict(theirs.state_dict())
    x = size * torch.randn(2, 3, 7)
    with Wide():  # they would take their statistics in float32
        expected = theirs(x)
    torch.testing.assert_close(ours(x), expected)


def test_the_gradient_of_rms_norm_is_the_derived_one():
    x, dy = torch.randn(2, 3, 7, dtype=torch.double)
    gain = torch.randn(7, dtype=torch.double, requires_grad=True)
    x.requires_grad_()
    assert torch.autograd.gradcheck(rms_norm, (x, gain))
    assert torch.autograd.gradgradcheck(rms_norm, (x, gain))
    (dx,) = torch.autograd.grad(rms_norm(x, gain), x, dy)
    size = (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    x_hat, h = x / size, gain * dy
    torch.testing.assert_close(dx, (h - x_hat * (h * x_hat).mean(-1, keepdim=True)) / size)


def test_a_row_of_zeros_stays_zero_and_has_a_finite_gradient():
    x = torch.zeros(2, 5, requires_grad=True)
    y = RMSNorm(5)(x)
    assert (y == 0).all()
    (dx,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(dx, torch.full((2, 5), 1e3))  # 1/√eps


def test_layer_norm_is_rms_norm_of_the_centred_input():
    x = 3 + torch.randn(2, 3, 7)
    centred = x - x.mean(-1, keepdim=True)
    torch.testing.assert_close(RMSNorm(7, eps=1e-5)(centred), LayerNorm(7)(x))


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
def test_a_stretch_does_not_get_through_and_a_shift_only_through_rms_norm(norm):
    x = torch.randn(2, 3, 7, dtype=torch.double)
    layer = norm(7, eps=0.0).double()
    torch.testing.assert_close(layer(5 * x), layer(x))
    assert torch.allclose(layer(x + 5), layer(x)) == (norm is LayerNorm)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_rounded_once(dtype):
    """A wider computation rounded at the end: within half a step of the exact value.

    This catches a mean, a square or a normalised input that was rounded on the way.
    """
    x, gain, offset = (4 + torch.randn(61, 97)), torch.randn(97), torch.randn(97)
    x, gain, offset = (t.to(dtype) for t in (x, gain, offset))
    # half a step is eps / 2 of the value; 1.02 for what float32 itself rounds
    half_a_step = {"rtol": 1.02 * torch.finfo(dtype).eps / 2, "atol": 1e-6}
    wide = [t.double() for t in (x, gain, offset)]
    exact = F.rms_norm(wide[0], (97,), wide[1], 1e-6)
    torch.testing.assert_close(rms_norm(x, gain).double(), exact, **half_a_step)
    assert rms_norm(x, gain).dtype == dtype
    exact = F.layer_norm(wide[0], (97,), *wide[1:])
    torch.testing.assert_close(layer_norm(x, gain, offset).double(), exact, **half_a_step)
    assert layer_norm(x, gain, offset).dtype == dtype


def test_bf16_differs_from_llama_by_its_second_rounding_at_most():
    ours, theirs = RMSNorm(97).bfloat16(), LlamaRMSNorm(97).bfloat16()
    nn.init.normal_(ours.weight)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(61, 97).bfloat16()
    two_steps = {"rtol": 2 * torch.finfo(torch.bfloat16).eps, "atol": 0.0}  # half: 1/256
    torch.testing.assert_close(ours(x), theirs(x), **two_steps)


def test_a_square_beyond_float16_does_no_harm():
    x = torch.tensor([300.0, 100.0, -50.0], dtype=torch.float16)
    expected = F.rms_norm(x.float(), (3,)).half()
    torch.testing.assert_close(rms_norm(x, torch.ones(3).half()), expected)


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_autocast_keeps_the_dtype_of_the_input(norm, dtype, single):
    with torch.autocast("cpu", torch.bfloat16):
        assert norm(7)(torch.randn(3, 7, dtype=dtype)).dtype == dtype


def test_a_width_that_would_broadcast_is_refused():
    """The tests check shapes before any call; a user's program does not, so look beneath that."""
    with pytest.raises(ValueError, match="width 1, the gain 7"):
        inspect.unwrap(rms_norm)(torch.randn(3, 1), torch.ones(7))
