"""Masks: every entry against loops, alignment, broadcasting, lengths that do not fit."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from transformer_lit.attention.masks import causal_mask, length_mask, padding_mask


@pytest.mark.parametrize("T", [0, 1, 2, 5, 7])
@pytest.mark.parametrize("S", [0, 1, 2, 5, 7])
def test_causal_mask_is_its_definition(T, S):
    "Query t stands at position t + S − T; T > S gives rows that see nothing."
    mask = causal_mask(T, S)
    assert mask.shape == (T, S) and mask.dtype == torch.bool
    assert mask.tolist() == [[u <= t + S - T for u in range(S)] for t in range(T)]


def test_causal_mask_is_square_unless_told():
    assert torch.equal(causal_mask(7), torch.ones(7, 7, dtype=torch.bool).tril())


@pytest.mark.parametrize("first,second", [(0, 7), (3, 4), (6, 1)])
def test_chunks_see_what_one_pass_sees(first, second):
    "This catches a mask aligned top-left: right for T = S, wrong for every cached step."
    chunks = [causal_mask(first, first), causal_mask(second, 7)]
    padded = F.pad(chunks[0], (0, second)), chunks[1]
    assert torch.equal(torch.cat(padded), causal_mask(7))


def test_causal_mask_is_made_on_the_device_asked_for():
    assert causal_mask(3, 5, device="meta").device.type == "meta"


def test_padding_mask_hides_columns_in_every_head_and_row():
    keep = torch.rand(2, 7) < 0.5
    assert padding_mask(keep).shape == (2, 1, 1, 7)
    full = padding_mask(keep).expand(2, 3, 5, 7)
    for b, h, t, u in torch.cartesian_prod(*map(torch.arange, full.shape)).tolist():
        assert full[b, h, t, u] == keep[b, u]


def test_padding_and_causal_join():
    keep = length_mask(torch.tensor([7, 4, 0]))
    both = padding_mask(keep) & causal_mask(5, 7)
    assert both.shape == (3, 1, 5, 7)
    for b, t, u in torch.cartesian_prod(*map(torch.arange, (3, 5, 7))).tolist():
        assert both[b, 0, t, u] == (u < (7, 4, 0)[b] and u <= t + 2)


def test_padded_rows_equal_the_sentence_alone():
    "Whatever PAD holds, nan aside: 0 · nan is nan, in any implementation."
    q, k, v = torch.randn(3, 3, 2, 7, 5)
    lengths = [7, 4, 1]
    mask = padding_mask(length_mask(torch.tensor(lengths)))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    for b, n in enumerate(lengths):
        alone = F.scaled_dot_product_attention(q[b, :, :n], k[b, :, :n], v[b, :, :n])
        assert_close(out[b, :, :n], alone)


@pytest.mark.parametrize("S", [None, 5, 11])
def test_length_mask_is_its_definition(S):
    lengths = [5, 0, 2]
    mask = length_mask(torch.tensor(lengths), S)
    assert mask.tolist() == [[u < n for u in range(S or 5)] for n in lengths]


@pytest.mark.parametrize("lengths,S", [([3, 8], 7), ([-1, 5], 7), ([-2, 5], None)])
def test_length_mask_refuses_what_does_not_fit(lengths, S):
    with pytest.raises(ValueError) as error:
        length_mask(torch.tensor(lengths), S)
    assert str(lengths) in str(error.value) and f"S={S or 5}" in str(error.value)


def test_an_empty_batch_has_an_empty_table():
    none = torch.empty(0, dtype=torch.long)
    assert length_mask(none).shape == (0, 0) and length_mask(none, 5).shape == (0, 5)
