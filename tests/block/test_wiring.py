"""Four wirings against their formulas; what dropout touches; what is left of x; α and β."""

import pytest
import torch
from torch import nn

from transformer_lit.block.norm import LayerNorm
from transformer_lit.block.residual import PostNorm, PreNorm
from transformer_lit.block.wiring import DeepNorm, DeepNormScale, SandwichNorm, deepnorm_scales


def trained(size):
    "A norm that is not the neutral one."
    norm = LayerNorm(size)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


def sandwich(norm, **options):
    outer = LayerNorm(len(norm.weight)) if isinstance(norm, LayerNorm) else nn.Identity()
    return SandwichNorm(norm, outer, **options)


def deep(norm, **options):
    return DeepNorm(norm, alpha=3.0, **options)


WIRINGS = [PostNorm, PreNorm, sandwich, deep]
INSIDE = [PreNorm, sandwich]  # the norm stands before the sublayer


def test_the_formulas():
    x, f, norm, other = torch.randn(2, 3, 5), nn.Linear(5, 5), trained(5), trained(5)
    torch.testing.assert_close(PostNorm(norm)(x, f), norm(x + f(x)))
    torch.testing.assert_close(PreNorm(norm)(x, f), x + f(norm(x)))
    torch.testing.assert_close(SandwichNorm(norm, other)(x, f), x + other(f(norm(x))))
    torch.testing.assert_close(DeepNorm(norm, alpha=0.7)(x, f), norm(0.7 * x + f(x)))


@pytest.mark.parametrize("wiring", WIRINGS)
def test_the_sublayer_is_called_once(wiring):
    seen = []
    norm, x = trained(5), torch.randn(2, 3, 5)
    wiring(norm)(x, lambda z: seen.append(z) or z)
    assert len(seen) == 1
    torch.testing.assert_close(seen[0], norm(x) if wiring in INSIDE else x)


@pytest.mark.parametrize("wiring", WIRINGS)
def test_dropout_hits_what_the_sublayer_gives_and_nothing_else(wiring):
    "The norms are taken out, so that the sum is visible: each entry is αx or αx + f/(1 − p)."
    x, f = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    block = wiring(nn.Identity(), dropout=0.75)
    alpha = 3.0 if wiring is deep else 1.0
    added = block(x, lambda z: f) - alpha * x
    dropped = added.abs() < 1e-6
    assert 0 < dropped.sum() < x.numel()
    torch.testing.assert_close(added[~dropped], 4 * f[~dropped])
    torch.testing.assert_close(block.eval()(x, lambda z: f), alpha * x + f)


def test_dropout_comes_after_the_outer_norm_of_a_sandwich():
    "Before it, the norm would undo the scale of 1/(1 − p) and mend the zeros."
    x, norm_out = torch.randn(2, 3, 101), trained(101)
    block = SandwichNorm(nn.Identity(), norm_out, dropout=0.5)
    added = block(x, torch.exp) - x
    kept = added.abs() > 1e-6
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(added[kept], 2 * norm_out(x.exp())[kept])


@pytest.mark.parametrize("wiring", WIRINGS)
def test_with_everything_dropped_the_input_is_left(wiring):
    x, norm = torch.randn(2, 3, 5), trained(5)
    expected = x if wiring in INSIDE else norm((3.0 if wiring is deep else 1.0) * x)
    torch.testing.assert_close(wiring(norm, dropout=1.0)(x, torch.exp), expected)


@pytest.mark.parametrize("wiring", WIRINGS)
def test_a_stack_ends_in_a_norm_or_asks_for_one(wiring):
    x, block = torch.randn(2, 3, 5), wiring(LayerNorm(5))
    for _ in range(7):
        x = block(x, torch.randn_like)
    normed = torch.allclose(x, LayerNorm(5)(x), atol=1e-3)
    assert block.needs_final_norm is not normed


def test_a_sandwich_does_not_see_the_size_of_the_sublayer():
    x, f = torch.randn(2, 3, 5), nn.Linear(5, 5)
    block = SandwichNorm(trained(5), LayerNorm(5, eps=0.0))
    torch.testing.assert_close(block(x, f), block(x, lambda z: 100 * f(z)))


@pytest.mark.parametrize(
    ("wiring", "n", "left"),
    [
        (PostNorm, 8, 1.5**-4),
        (PreNorm, 16, 9**-0.5),
        (sandwich, 16, 17**-0.5),
        (deep, 32, (1 + 0.5 / 9) ** -16),
    ],
)
def test_the_share_of_the_input_that_is_left(wiring, n, left):
    "Sublayers that add noise of variance 1/2: the correlation after n of them."
    x0 = x = torch.randn(1, 101, 1009)
    with torch.no_grad():
        for _ in range(n):
            x = wiring(LayerNorm(1009))(x, lambda z: 0.5**0.5 * torch.randn_like(z))
    correlation = torch.corrcoef(torch.stack([x0.flatten(), x.flatten()]))[0, 1].item()
    assert correlation == pytest.approx(left, abs=0.015)  # noise of 1/√100,000; five times that


def test_the_parameters_are_those_of_the_norms():
    for wiring in (PostNorm, PreNorm, deep):
        assert list(wiring(LayerNorm(5)).state_dict()) == ["norm.weight", "norm.bias"]
    names = [f"norm_{side}.{kind}" for side in ("in", "out") for kind in ("weight", "bias")]
    assert list(sandwich(LayerNorm(5)).state_dict()) == names


def test_a_sandwich_wants_two_norms():
    norm = LayerNorm(5)
    with pytest.raises(ValueError, match="needs two norms"):
        SandwichNorm(norm, norm)


# Table of Wang et al. 2022, figure 2, written out in decimals for some depths.
TABLE = [
    ((6, 0), (1.8612, 0.3799), None),
    ((0, 18), None, (2.4495, 0.2887)),
    ((500, 0), (5.6234, 0.1257), None),
    ((6, 6), (1.4179, 0.4970), (2.0598, 0.3433)),
    ((18, 18), (1.9987, 0.3526), (2.7108, 0.2608)),
    ((100, 100), (3.4158, 0.2063), (4.1618, 0.1699)),
    ((12, 3), (1.6147, 0.4364), (1.7321, 0.4082)),
]


@pytest.mark.parametrize(("depths", "encoder", "decoder"), TABLE)
def test_alpha_and_beta_are_those_of_the_paper(depths, encoder, decoder):
    N, M = depths
    for got, expected in zip(
        deepnorm_scales(encoder_layers=N, decoder_layers=M), (encoder, decoder), strict=True
    ):
        assert (got is None) == (expected is None)
        if got is not None:
            assert isinstance(got, DeepNormScale)
            assert (got.alpha, got.beta) == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize("sublayers", [2, 12, 36, 1000])
def test_the_condition_behind_alpha_and_beta(sublayers):
    "n · 2β²/α² = 1, for an encoder of two sublayers in a layer and a decoder of three beside one."
    scales = [deepnorm_scales(encoder_layers=sublayers // 2)[0]]
    if sublayers % 3 == 0:
        scales.append(deepnorm_scales(encoder_layers=7, decoder_layers=sublayers // 3)[1])
    for alpha, beta in scales:
        assert sublayers * 2 * beta**2 / alpha**2 == pytest.approx(1)
