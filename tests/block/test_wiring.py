"""Four wirings: what dropout touches, what ends in a norm, and α and β of a decoder alone."""

import pytest
import torch
from torch import nn

from transformer_lit.block.norm import LayerNorm
from transformer_lit.block.residual import PostNorm, PreNorm
from transformer_lit.block.wiring import DeepNorm, SandwichNorm, deepnorm_scales


def sandwich(norm, **options):
    outer = LayerNorm(len(norm.weight)) if isinstance(norm, LayerNorm) else nn.Identity()
    return SandwichNorm(norm, outer, **options)


def deep(norm, **options):
    return DeepNorm(norm, alpha=3.0, **options)


WIRINGS = [PostNorm, PreNorm, sandwich, deep]


@pytest.mark.parametrize("wiring", WIRINGS)
def test_dropout_hits_what_the_sublayer_gives_and_nothing_else(wiring):
    "The norms are taken out, so that the sum is visible: each entry is αx or αx + f/(1 − p)."
    x, f, calls = torch.randn(2, 3, 5), torch.randn(2, 3, 5), []
    block = wiring(nn.Identity(), dropout=0.75)
    alpha = 3.0 if wiring is deep else 1.0
    added = block(x, lambda z: calls.append(z) or f) - alpha * x
    dropped = added.abs() < 1e-6
    assert len(calls) == 1 and 0 < dropped.sum() < x.numel()
    torch.testing.assert_close(added[~dropped], 4 * f[~dropped])
    torch.testing.assert_close(block.eval()(x, lambda z: f), alpha * x + f)


def test_dropout_comes_after_the_outer_norm_of_a_sandwich():
    "Before it, the norm would undo the scale of 1/(1 − p) and fill the zeros."
    x, norm_out = torch.randn(2, 3, 101), LayerNorm(101)
    nn.init.normal_(norm_out.bias)
    added = SandwichNorm(nn.Identity(), norm_out, dropout=0.5)(x, torch.exp) - x
    kept = added.abs() > 1e-6
    assert 0.3 < kept.double().mean() < 0.7
    torch.testing.assert_close(added[kept], 2 * norm_out(x.exp())[kept])


@pytest.mark.parametrize("wiring", WIRINGS)
def test_a_stack_ends_in_a_norm_or_asks_for_one(wiring):
    x, block = torch.randn(2, 3, 5), wiring(LayerNorm(5))
    for _ in range(7):
        x = block(x, torch.randn_like)
    normed = torch.allclose(x, LayerNorm(5)(x), atol=1e-3)
    assert block.needs_final_norm is not normed


def test_a_sandwich_wants_two_norms():
    norm = LayerNorm(5)
    with pytest.raises(ValueError, match="needs two norms"):
        SandwichNorm(norm, norm)


@pytest.mark.parametrize(
    ("depths", "encoder", "decoder"),  # Wang et al. 2022, figure 2, in decimals
    [
        ((0, 18), None, (2.4495, 0.2887)),
        ((500, 0), (5.6234, 0.1257), None),
        ((12, 3), (1.6147, 0.4364), (1.7321, 0.4082)),
    ],
)
def test_alpha_and_beta_are_those_of_the_paper(depths, encoder, decoder):
    scales = deepnorm_scales(encoder_layers=depths[0], decoder_layers=depths[1])
    for got, expected in zip(scales, (encoder, decoder), strict=True):
        assert got == (expected and pytest.approx(expected, abs=6e-5))
