"""Blocks have the bits of ggml's, and no number moves further than its bound."""

import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_lit.models import quantise

KINDS = ("Q8_0", "Q4_0", "Q4_1")


def both(kind):
    at = kind.lower()
    return getattr(quantise, f"quantise_{at}"), getattr(quantise, f"dequantise_{at}")


def blocks(seed, n):
    "Blocks of every size from 1e-9 to 1e3, around 0 and away from it, some flat, some with ties."
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 32, generator=draw) + 3 * torch.randn(n, 1, generator=draw)
    x *= 10 ** (12 * torch.rand(n, 1, generator=draw) - 9)
    x[::7] = x[::7].sign() * x[::7, :1]  # both signs of one size
    x[::11] = x[::11, :1]
    x[::13] = 0
    return x


@pytest.mark.usefixtures("single")
@pytest.mark.parametrize("kind", KINDS)
class TestBlocks:
    def test_ten_thousand_blocks_stay_within_their_bound(self, kind):
        quantise_, dequantise = both(kind)
        x = blocks(0, 10_000)
        bound = quantise.error_bound(x, kind)[:, 0]
        share = (x.double() - dequantise(quantise_(x)).double()).abs() / bound
        assert share.max() <= 1
        assert share.max() > 0.9  # no bound that nothing comes near to

    @given(seed=st.integers(0, 2**32 - 1))
    @settings(max_examples=50, deadline=None)
    def test_the_bits_are_those_of_the_reference(self, kind, seed):
        quantise_, dequantise = both(kind)
        x = blocks(seed, 91).view(13, 224)
        theirs = quantize(x.numpy(), GGMLQuantizationType[kind])
        assert torch.equal(quantise_(x), torch.from_numpy(theirs))
        back = torch.from_numpy(dequantize(theirs, GGMLQuantizationType[kind]))
        assert torch.equal(dequantise(quantise_(x)), back)

    def test_what_comes_back_is_kept(self, kind):
        "Dequantised numbers lie on the grid: a second time moves them by the rounding of d alone."
        quantise_, dequantise = both(kind)
        once = dequantise(quantise_(torch.randn(50, 32)))
        again = dequantise(quantise_(once))
        torch.testing.assert_close(again, once, rtol=2e-3, atol=2e-3)

    def test_rows_that_do_not_cut_into_blocks_are_refused(self, kind):
        with pytest.raises(ValueError, match="rows of 33"):
            both(kind)[0](torch.randn(2, 33))


def test_nibbles_go_out_and_come_back():
    q = torch.randint(16, (3, 5, 38)).double()
    assert torch.equal(quantise.unpack_nibbles(quantise.pack_nibbles(q)), q.to(torch.uint8))


def test_an_unknown_kind_has_no_bound():
    with pytest.raises(ValueError, match="Q2_K"):
        quantise.error_bound(torch.randn(32), "Q2_K")
