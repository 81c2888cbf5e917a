"""Absolute positions: sinusoids as the formula says them, a table that knows its length."""

import math

import pytest
import torch
from torch.testing import assert_close

from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.position.absolute import LearnedPosition, Sinusoidal, sinusoids


def by_hand(p, C):
    "Interleaved pairs, in double precision."
    return [f(p / 10000 ** (2 * i / C)) for i in range(C // 2) for f in (math.sin, math.cos)]


@pytest.mark.parametrize("C", [2, 6, 14, 512])
def test_sinusoids_by_hand(C):
    expected = torch.tensor([by_hand(p, C) for p in range(-31, 31)])
    assert_close(sinusoids(torch.arange(-31, 31), C), expected)


@pytest.mark.parametrize("p", [101, 1009, 10007])
def test_error_grows_no_faster_than_the_rounding_of_the_angle(p):
    expected = torch.tensor(by_hand(p, 512))
    for dtype in (torch.float32, torch.float64):
        error = sinusoids(torch.tensor(p), 512, dtype=dtype).double() - expected
        # ω = e⁻ˣ, where x has two roundings and e⁻ˣ one more; so has pω: by p·e⁻ˣ(2x + 3) half ε,
        # which is largest at x = 0. The loops round about as often.
        assert error.abs().max() < p * 6 * torch.finfo(dtype).eps / 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_sinusoids_have_the_type_of_the_model_and_no_fewer_bits_than_float32_in_the_angle(dtype):
    "This catches the bug where a model in float64 adds positions of 24 bits, one in bfloat16 of 8."
    pos, expected = torch.tensor([31, 1009]), torch.tensor([by_hand(p, 22) for p in (31, 1009)])
    out = torch.nn.Sequential(Sinusoidal(22)).to(dtype)(pos)
    assert out.dtype == sinusoids(pos, 22, dtype=dtype).dtype == dtype
    angle = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    assert (out.double() - expected).abs().max() < 1009 * 3 * angle + torch.finfo(dtype).eps / 2


@pytest.mark.parametrize("make", [lambda: Sinusoidal(6), lambda: LearnedPosition(31, 6)])
@pytest.mark.parametrize("shape", [(), (5,), (3, 5), (2, 3, 5)])
def test_any_shape_of_positions(make, shape):
    position, pos = make(), torch.randint(31, shape)
    out = position(pos)
    assert out.shape == (*shape, 6)
    row = [position(p[None])[0] for p in pos.flatten()]
    assert_close(out.reshape(-1, 6), torch.stack(row))


@pytest.mark.parametrize("k", [1, 7, 29])
def test_a_shift_is_one_rotation_for_all_positions(k):
    C = 14
    R = torch.zeros(C, C)
    for i in range(C // 2):
        s, c = math.sin(k * 10000 ** (-2 * i / C)), math.cos(k * 10000 ** (-2 * i / C))
        R[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[c, -s], [s, c]])
    PE = sinusoids(torch.arange(41), C)
    assert_close(PE[k:], PE[:-k] @ R)


def test_inner_product_is_a_sum_of_cosines_of_the_distance():
    C = 14
    PE = sinusoids(torch.arange(41), C)
    for k in range(41):
        expected = sum(math.cos(k * 10000 ** (-2 * i / C)) for i in range(C // 2))
        assert_close((PE[: 41 - k] * PE[k:]).sum(1), torch.full((41 - k,), expected))


def test_longest_wavelength():
    # 10000·2π would be i = C/2, one pair after the last.
    quarter = 9647 * math.pi / 2  # the slowest pair has turned by 90 degrees
    sine, cosine = sinusoids(torch.tensor(round(quarter)), 512)[-2:].tolist()
    assert abs(sine - 1) < 1e-6 and abs(cosine) < 1e-3
    assert abs(cosine) < abs(sinusoids(torch.tensor(round(10000 * math.pi / 2)), 512)[-1]) / 10


def test_sinusoidal_has_nothing_to_train_or_to_save():
    position = Sinusoidal(6)
    assert not list(position.parameters()) and not position.state_dict()


def test_learned_is_a_table_with_one_parameter():
    position = LearnedPosition(11, 7)
    pos = torch.tensor([[3, 0, 10], [3, 3, 3]])
    assert_close(position(pos), position.weight[pos])
    assert [(name, tuple(p.shape)) for name, p in position.named_parameters()] == [
        ("weight", (11, 7))
    ]


def test_rows_start_with_norm_near_one():
    # A mean square of 1009·257 normal numbers deviates by 0.3 %; five of that.
    assert abs(LearnedPosition(1009, 257).weight.square().mean().item() * 257 - 1) < 0.014


def test_only_rows_that_occur_get_a_gradient():
    position = LearnedPosition(11, 7)
    position(torch.tensor([0, 4, 4])).sum().backward()
    expected = torch.zeros(11, 7)
    expected[0], expected[4] = 1, 2
    assert_close(position.weight.grad, expected)


@pytest.mark.parametrize("bad", [11, -1])
def test_a_position_outside_the_table_is_refused(bad):
    with pytest.raises(IndexError):  # torch's own
        LearnedPosition(11, 7)(torch.tensor([[0, 3], [bad, 5]]))


@pytest.mark.parametrize("make", [lambda: Sinusoidal(6), lambda: LearnedPosition(11, 6)])
def test_positions_end_the_blindness_to_order(make):
    attention, x, order = (
        MultiHeadAttention(6, 3),
        torch.randn(2, 5, 6),
        torch.tensor([4, 2, 0, 1, 3]),
    )
    assert_close(attention(x[:, order]), attention(x)[:, order])
    pos = make()(torch.arange(5))
    difference = attention(x[:, order] + pos) - attention(x + pos)[:, order]
    assert difference.abs().amax(-1).min() > 1e-3  # at every position


@pytest.mark.parametrize("C", [6, 14, 26])
def test_sinusoids_are_marians_with_the_sines_first(C):
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    theirs = MarianSinusoidalPositionalEmbedding(101, C).create_weight()
    ours = sinusoids(torch.arange(101), C)
    # theirs are computed in double precision, and then stored in float32
    assert_close(torch.cat([ours[:, 0::2], ours[:, 1::2]], 1), theirs.double(), rtol=0, atol=2**-24)


def test_a_causal_layer_does_not_see_the_order_of_the_past_and_positions_mend_it():
    attention, x = MultiHeadAttention(6, 3, causal=True), torch.randn(2, 5, 6)
    shuffled = x[:, [2, 0, 3, 1, 4]]
    assert_close(attention(shuffled)[:, -1], attention(x)[:, -1])
    pos = Sinusoidal(6)(torch.arange(5))
    assert (attention(shuffled + pos) - attention(x + pos))[:, -1].abs().amax(-1).min() > 1e-3


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_row_that_no_sentence_reaches_is_moved_by_the_decay_alone(decay):
    position = LearnedPosition(11, 7)
    before = position.weight.detach().clone()
    optimiser = torch.optim.AdamW(position.parameters(), lr=0.01, weight_decay=decay)
    for _ in range(13):
        optimiser.zero_grad()
        position(torch.arange(5)).square().sum().backward()
        optimiser.step()
    assert_close(position.weight[5:], before[5:] * (1 - 0.01 * decay) ** 13)
    assert (position.weight[:5] - before[:5]).norm(dim=1).min() > 0.1
