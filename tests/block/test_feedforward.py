"""The feed-forward network against loops and against two convolutions of width 1."""

import pytest
import torch
from torch import nn

from transformer_lit.block.feedforward import FeedForward


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def by_hand(ffn, x):
    "One position, with loops over the weights as torch stores them: out × in."
    hidden = []
    for row, b in zip(ffn.up_proj.weight.tolist(), ffn.up_proj.bias.tolist()):
        hidden.append(max(0.0, b + sum(w * v for w, v in zip(row, x))))
    return [
        b + sum(w * h for w, h in zip(row, hidden))
        for row, b in zip(ffn.down_proj.weight.tolist(), ffn.down_proj.bias.tolist())
    ]


def test_the_numbers_by_hand():
    ffn, x = FeedForward(3, 7), torch.randn(2, 5, 3)
    expected = [[by_hand(ffn, position) for position in row] for row in x.tolist()]
    torch.testing.assert_close(ffn(x), torch.tensor(expected))


def test_it_is_two_convolutions_of_width_one():
    ffn, x = FeedForward(5, 11), torch.randn(2, 7, 5)
    wide, narrow = nn.Conv1d(5, 11, 1), nn.Conv1d(11, 5, 1)
    for conv, linear in ((wide, ffn.up_proj), (narrow, ffn.down_proj)):
        conv.load_state_dict({"weight": linear.weight[:, :, None], "bias": linear.bias})
    torch.testing.assert_close(ffn(x), narrow(wide(x.mT).relu()).mT)


def test_the_activation_is_the_one_given():
    ffn, x = FeedForward(5, 11, activation=torch.tanh), torch.randn(3, 5)
    torch.testing.assert_close(ffn(x), ffn.down_proj(ffn.up_proj(x).tanh()))


@pytest.mark.parametrize(("bias", "count"), [(True, 2 * 5 * 11 + 11 + 5), (False, 2 * 5 * 11)])
def test_the_parameters_counted(bias, count):
    assert sum(p.numel() for p in FeedForward(5, 11, bias=bias).parameters()) == count


def test_dropout_acts_on_the_hidden_units_in_training_only():
    ffn, x = FeedForward(5, 11, dropout=1.0), torch.randn(3, 5)
    torch.testing.assert_close(ffn(x), ffn.down_proj.bias.expand(3, 5))
    kept = FeedForward(5, 11)
    kept.load_state_dict(ffn.state_dict())
    torch.testing.assert_close(ffn.eval()(x), kept(x))


@pytest.mark.parametrize(
    ("sizes", "said"), [((0, 5), "d_model=0"), ((5, 0), "d_ff=0"), ((-2, 5), "d_model=-2")]
)
def test_impossible_sizes_are_named(sizes, said):
    with pytest.raises(ValueError, match=said):
        FeedForward(*sizes)


def test_an_impossible_dropout_is_named():
    with pytest.raises(ValueError, match=r"1\.5"):
        FeedForward(5, 11, dropout=1.5)
