"""Masks: lengths that don't fit, empty batches, devices. Every entry is compared in the chapter."""

import pytest
import torch

from transformer_lit.attention.masks import causal_mask, length_mask


@pytest.mark.parametrize("lengths,S", [([3, 8], 7), ([-1, 5], 7), ([-2, 5], None)])
def test_length_mask_refuses_what_does_not_fit(lengths, S):
    with pytest.raises(ValueError) as error:
        length_mask(torch.tensor(lengths), S)
    assert str(lengths) in str(error.value) and f"S={S or 5}" in str(error.value)


def test_an_empty_batch_has_an_empty_table():
    none = torch.empty(0, dtype=torch.long)
    assert length_mask(none).shape == (0, 0) and length_mask(none, 5).shape == (0, 5)


def test_a_mask_may_be_longer_than_its_longest_row():
    assert length_mask(torch.tensor([2, 0]), 3).tolist() == [[True, True, False], [False] * 3]


def test_causal_mask_is_made_on_the_device_asked_for():
    assert causal_mask(3, 5, device="meta").device.type == "meta"
