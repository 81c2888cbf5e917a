"Answers count, and rows of documents are packed without losing any."

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_lit.assistant.instructions import (
    answer_mask,
    pack,
    same_document,
    token_logp,
)

ROWS = st.lists(st.lists(st.integers(0, 96), min_size=1, max_size=11), min_size=1, max_size=13)


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_every_document_is_in_one_row_whole_and_in_order(rows):
    ids, document, position = pack(rows, 11)
    assert ids.shape == document.shape == position.shape == (len(ids), 11)
    for number, row in enumerate(rows):
        here = document == number
        assert ids[here].tolist() == row and position[here].tolist() == [*range(len(row))]
        assert here.any(1).sum() == 1
    padding = document == -1
    assert ids[padding].sum() == position[padding].sum() == 0
    assert padding.sum() == ids.numel() - sum(map(len, rows))
    for row, used in zip(ids, ~padding, strict=True):
        assert used[: used.sum()].all() and len(row) == 11  # padding comes last


def test_tokens_see_their_own_document_only():
    document = torch.tensor([[0, 0, 3, -1], [1, 2, 2, 2]])
    found = same_document(document)
    assert found.shape == (2, 1, 4, 4)
    for n, q, k in torch.cartesian_prod(torch.arange(2), torch.arange(4), torch.arange(4)):
        assert found[n, 0, q, k] == (document[n, q] == document[n, k])


def test_log_probabilities_are_in_line_with_their_tokens():
    logits, ids = torch.randn(3, 7, 13, dtype=torch.float64), torch.randint(13, (3, 7))
    found = token_logp(logits, ids)
    expected = -F.cross_entropy(logits[:, :-1].mT, ids[:, 1:], reduction="none")
    torch.testing.assert_close(found[:, 1:], expected)
    assert found[:, 0].eq(0).all()


@pytest.mark.parametrize(
    ("roles", "expected"),
    [([1, 1, 1], [0, 1, 1]), ([0, 0, 1], [0, 0, 1]), ([0, 1, 0], [0, 1, 0]), ([0, 0, 0], [0] * 3)],
)
def test_what_counts(roles, expected):
    assert answer_mask(torch.tensor([5, 7, 2]), torch.tensor(roles)).int().tolist() == expected


def test_a_document_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="document 1 needs length=4 or more, got 3"):
        pack([[1], [1, 2, 3, 4]], 3)
