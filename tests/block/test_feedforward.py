"""Plain and gated networks: where dropout acts, names of activations, and the width of a gate."""

import pytest
import torch
import torch.nn.functional as F

from transformer_lit.block.feedforward import FeedForward, GatedFeedForward, gated_width, glu

NETWORKS = [FeedForward, GatedFeedForward]


@pytest.mark.parametrize("network", NETWORKS)
def test_dropout_acts_on_the_hidden_units_in_training_only(network):
    dropped, x = network(5, 11, dropout=1.0, bias=True), torch.randn(3, 5)
    torch.testing.assert_close(dropped(x), dropped.down_proj.bias.expand(3, 5))
    kept = network(5, 11, bias=True)
    kept.load_state_dict(dropped.state_dict())
    torch.testing.assert_close(dropped.eval()(x), kept(x))


@pytest.mark.parametrize("network", NETWORKS)
def test_an_activation_is_a_name_or_a_function(network):
    named, given = network(5, 11, activation="gelu"), network(5, 11, activation=F.gelu)
    given.load_state_dict(named.state_dict())
    x = torch.randn(2, 7, 5)
    torch.testing.assert_close(named(x), given(x))


@pytest.mark.parametrize("width", [1, 3, 7])
def test_a_gate_with_unequal_halves_is_refused(width):
    with pytest.raises(RuntimeError):  # torch's own; `chunk` would spread the shorter part
        glu(torch.randn(3, width))


@pytest.mark.parametrize(
    ("d_ff", "multiple_of", "multiplier", "width"),
    [
        (4 * 6656, 256, 1.0, 17_920),  # LLaMA 33B; the chapter has other checkpoints
        (4, 1, 1.0, 2),  # 8/3, rounded down
        (4, 1, 1.3, 2),  # 2.6
        (4, 7, 1.0, 7),
        (1, 1, 1.0, 1),
        (1, 5, 1.0, 5),
    ],
)
def test_a_width_is_rounded_down_and_then_up_to_at_least_one_multiple(
    d_ff, multiple_of, multiplier, width
):
    assert gated_width(d_ff, multiple_of=multiple_of, multiplier=multiplier) == width
