"""Windows by their sentence, what a sliding cache holds, and a sink beside a window."""

import math

import pytest
import torch

from transformer_lit.attention.attend import attend
from transformer_lit.attention.steady import SoftCap
from transformer_lit.attention.windows import SinkLogit, Window, WindowCache, window_mask

B, H, K, D, T = 2, 6, 2, 4, 17


@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("size", [1, 5, T, T + 2])
def test_a_mask_is_what_its_sentence_says(size, first):
    for queries in (1, 3, T):
        seen = window_mask(queries, T, size, first)
        for row, t in zip(seen.tolist(), range(T - queries, T)):
            assert row == [s <= t and (t - s < size or s < first) for s in range(T)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [1, 5, T, T + 2])
def test_a_window_looks_back_alone_whether_it_is_told_so_or_not(size, causal):
    q, k, v = torch.randn(3, B, H, T, D)
    mask = torch.rand(B, 1, 1, T) < 0.7
    for given in (None, mask):
        near = window_mask(T, T, size)[None, None]
        expected = attend(q, k, v, mask=near if given is None else near & given)
        torch.testing.assert_close(Window(size)(q, k, v, mask=given, causal=causal), expected)


@pytest.mark.parametrize(("size", "first"), [(1, 0), (7, 0), (1, 2), (5, 3)])
def test_a_sliding_cache_holds_the_first_and_the_last(size, first):
    cache, x = WindowCache(size, first), torch.randn(B, K, T, D)
    for piece in x.split(3, 2):
        cache.update(piece, -piece)
    kept = [*range(first), *range(T - size + 1, T)]
    assert torch.equal(cache.k, x[:, :, kept]) and torch.equal(cache.v, -x[:, :, kept])
    assert cache.length == T


def test_a_cache_goes_back_only_while_it_holds_all():
    cache, k = WindowCache(4), torch.randn(B, K, 3, D)
    cache.update(k, k)
    cache.truncate(2)
    again, _ = cache.update(k[:, :, 2:], k[:, :, 2:])
    assert torch.equal(again, k) and cache.length == 3
    cache.update(k, k)
    cache.truncate(6)
    for length in (-1, 5, 7):
        with pytest.raises(ValueError, match=f"can't go from length 6 to {length}"):
            cache.truncate(length)
    assert cache.length == 6


def test_a_sink_starts_at_0_and_no_window_hides_it():
    q, k, v = (torch.randn(B, n, T, D) for n in (H, K, K))
    inside, outside = SinkLogit(H, Window(5, 2)), Window(5, 2, SinkLogit(H))
    assert not inside.logit.any()  # where training starts
    inside.logit.data = outside.attend.logit.data = torch.randn(H)
    for causal in (False, True):
        torch.testing.assert_close(inside(q, k, v, causal=causal), outside(q, k, v, causal=causal))
    assert inside(q[:, :, :0], k, v).shape == (B, H, 0, D)  # nothing was asked


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (lambda: Window(0), "at least 1 position, got 0"),
        (lambda: SinkLogit(H, Window(3, attend=SoftCap(2.0))), "attend. Pass Window.3, 0"),
        (lambda: SinkLogit(H, SinkLogit(H)), "window=Window\\(size\\), not a SinkLogit"),
        (lambda: attend(*torch.zeros(3, 1, 0, 5, 7)), "k B K S D and v B K S E, not q .1, 0"),
        (lambda: SoftCap(math.inf), "positive and finite, got inf"),
        (lambda: SoftCap(-1.0), "positive and finite, got -1"),
    ],
)
def test_what_could_not_be_computed_is_refused(new, said, no_shape_checks):
    with pytest.raises((ValueError, TypeError), match=said):
        new()
