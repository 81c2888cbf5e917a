"""Absolute positions: types, shapes, and a table that knows its length."""

import math

import pytest
import torch
from torch.testing import assert_close

from transformer_lit.position.absolute import LearnedPosition, Sinusoidal, sinusoids


def by_hand(p, C):
    "Interleaved pairs, in double precision."
    return [f(p / 10000 ** (2 * i / C)) for i in range(C // 2) for f in (math.sin, math.cos)]


@pytest.mark.parametrize("C", [2, 14, 512])
@pytest.mark.parametrize("p", [-31, 0, 7, 1009, 10_007])
def test_error_grows_no_faster_than_the_rounding_of_the_angle(p, C):
    expected = torch.tensor(by_hand(p, C))
    for dtype in (torch.float32, torch.float64):
        error = sinusoids(torch.tensor(p), C, dtype=dtype).double() - expected
        # ω = e⁻ˣ, where x has two roundings and e⁻ˣ one more; so has pω: by p·e⁻ˣ(2x + 3) half ε,
        # which is largest at x = 0. The loops round about as often, and a sine once.
        assert error.abs().max() < (abs(p) * 6 + 2) * torch.finfo(dtype).eps / 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_sinusoids_have_the_type_of_the_model_and_no_fewer_bits_than_float32_in_the_angle(dtype):
    "This catches the bug where a model in float64 adds positions of 24 bits, one in bfloat16 of 8."
    pos, expected = torch.tensor([31, 1009]), torch.tensor([by_hand(p, 22) for p in (31, 1009)])
    out = torch.nn.Sequential(Sinusoidal(22)).to(dtype)(pos)
    assert out.dtype == sinusoids(pos, 22, dtype=dtype).dtype == dtype
    angle = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    assert (out.double() - expected).abs().max() < 1009 * 3 * angle + torch.finfo(dtype).eps / 2


@pytest.mark.parametrize("make", [lambda: Sinusoidal(6), lambda: LearnedPosition(31, 6)])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 5)])
def test_any_shape_of_positions(make, shape):
    position, pos = make(), torch.randint(31, shape)
    out = position(pos)
    assert out.shape == (*shape, 6)
    rows = [position(p[None])[0] for p in pos.flatten()]
    assert_close(out.reshape(-1, 6), torch.stack(rows))


def test_sinusoidal_has_nothing_to_train_or_to_save():
    position = Sinusoidal(6)
    assert not list(position.parameters()) and not position.state_dict()


def test_learned_is_a_table_with_one_parameter():
    position, pos = LearnedPosition(11, 7), torch.tensor([[3, 0, 10], [3, 3, 3]])
    assert_close(position(pos), position.weight[pos])
    found = [(name, tuple(p.shape)) for name, p in position.named_parameters()]
    assert found == [("weight", (11, 7))]


def test_rows_start_with_norm_near_one():
    # A mean square of 1009·257 normal numbers deviates by 0.3 %; five of that.
    assert abs(LearnedPosition(1009, 257).weight.square().mean().item() * 257 - 1) < 0.014


@pytest.mark.parametrize("bad", [11, -1])
def test_a_position_outside_the_table_is_refused(bad):
    with pytest.raises(IndexError):  # torch's own
        LearnedPosition(11, 7)(torch.tensor([[0, 3], [bad, 5]]))
