"""Caches in any order of calls, the state of a model, and what is refused."""

import inspect
import re

import pytest
import torch

from transformer_lit.attention.cache import DecodingState, GrowingCache, KVCache
from transformer_lit.attention.multihead import Cache, MultiHeadAttention
from transformer_lit.attention.windows import WindowCache

B, K, D, MAX = 3, 2, 5, 13
KINDS = {"growing": GrowingCache, "preallocated": lambda: KVCache(MAX)}

every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def pair(T, rows=B, **options):
    return torch.randn(rows, K, T, D, **options), torch.randn(rows, K, T, D, **options)


def held(cache):
    return cache.k[:, :, : cache.length], cache.v[:, :, : cache.length]


class Plain:
    "The oracle: indexing and concatenation; nothing is shared or written in place."

    def __init__(self):
        self.k = self.v = None

    def update(self, k, v):
        self.k = k if self.k is None else torch.cat([self.k, k], 2)
        self.v = v if self.v is None else torch.cat([self.v, v], 2)
        return self.k, self.v

    def select(self, rows):
        self.k, self.v = self.k[rows], self.v[rows]

    def truncate(self, length):
        self.k, self.v = self.k[:, :, :length], self.v[:, :, :length]


@every_kind
@pytest.mark.parametrize("trial", range(7))
def test_any_order_of_calls_gives_what_concatenation_gives(trial, make):
    "This catches the bug where a select in place reads rows that it has already overwritten."
    draw = lambda low, high: int(torch.randint(low, high, ()))  # noqa: E731
    cache, oracle, rows = make(), Plain(), B
    for _ in range(30):
        what = draw(0, 4)
        if (what < 2 and cache.length < MAX) or cache.k is None:
            new = pair(draw(1, MAX - cache.length + 1), rows)
            torch.testing.assert_close(cache.update(*new), oracle.update(*new))
        elif what == 2:
            keep = torch.randint(0, rows, (rows if draw(0, 2) else draw(1, 6),))
            cache.select(keep)
            oracle.select(keep)
            rows = len(keep)
        else:
            length = draw(0, cache.length + 1)
            cache.truncate(length)
            oracle.truncate(length)
        torch.testing.assert_close(held(cache), (oracle.k, oracle.v))


@pytest.mark.parametrize("kind", [GrowingCache, lambda: KVCache(7), lambda: WindowCache(5)])
def test_every_kind_is_a_cache(kind):
    assert isinstance(kind(), Cache)
    for call in ("update", "select", "truncate"):
        ours, other = (inspect.signature(getattr(k, call)) for k in (type(kind()), KVCache))
        assert list(ours.parameters) == list(other.parameters)


@every_kind
def test_an_empty_cache_stays_empty(make):
    cache = make()
    cache.truncate(0)
    cache.select(torch.tensor([0, 0, 1, 1, 2, 2]))  # beams widen the batch before the first step
    assert cache.length == 0
    k, _ = cache.update(*pair(2, rows=6, dtype=torch.float32))
    assert cache.length == 2 and k.dtype == torch.float32


def test_memory_is_set_aside_once():
    cache = KVCache(MAX)
    assert cache.k is None
    cache.update(*pair(2))
    where = cache.k.data_ptr()
    assert cache.k.shape == (B, K, MAX, D)
    cache.update(*pair(5))
    cache.select(torch.tensor([1, 0, 2]))
    assert cache.k.data_ptr() == where


@every_kind
def test_a_prefill_has_the_gradient_of_the_full_pass(make):
    m, x = MultiHeadAttention(11, 6, 2, d_head=D, causal=True), torch.randn(B, 7, 11)
    found = []
    for cache in (make(), None):
        leaf = x.clone().requires_grad_()
        found.append(torch.autograd.grad(m(leaf, cache=cache).square().sum(), leaf)[0])
    torch.testing.assert_close(*found)


# --- the state of a whole model -----------------------------------------------------------------


def state():
    caches = [KVCache(MAX), GrowingCache()]
    for cache in caches:
        cache.update(*pair(4))
    return DecodingState(caches, [pair(7), pair(7)], torch.rand(B, 1, 1, 7) > 0.5)


def test_gradients_pass_through_a_growing_cache():
    "To what was put in first, as if all had been put in at once."
    layer, x = MultiHeadAttention(14, 2, causal=True), torch.randn(B, 7, 14, requires_grad=True)
    cache = GrowingCache()
    pieces = torch.cat([layer(piece, cache=cache) for piece in x.split([3, 1, 3], 1)], 1)
    way = torch.randn_like(pieces)
    found, expected = (torch.autograd.grad(y, x, way)[0] for y in (pieces, layer(x)))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("trial", range(7))
def test_selections_add_up(trial):
    "The memory is copied only where a row changes its source; this must never be seen."
    s, origin = state(), torch.arange(B)
    memory, mask, caches = list(s.memory), s.memory_mask, [held(c) for c in s.caches]
    caches = [(k.clone(), v.clone()) for k, v in caches]
    for _ in range(11):
        size = len(origin) if torch.rand(()) < 0.6 else int(torch.randint(1, 7, ()))
        rows = torch.randint(0, len(origin), (size,))
        origin = origin[rows]
        s.select(rows)
        torch.testing.assert_close(s.memory, [(k[origin], v[origin]) for k, v in memory])
        torch.testing.assert_close(s.memory_mask, mask[origin])
        expected = [(k[origin], v[origin]) for k, v in caches]
        torch.testing.assert_close([held(c) for c in s.caches], expected)


def test_beams_that_change_places_leave_the_memory_alone():
    s = state()
    s.select(torch.tensor([0, 0, 1, 1, 2, 2]))
    memory, mask, keys = s.memory, s.memory_mask, s.caches[1].k.clone()
    s.select(torch.tensor([1, 1, 3, 2, 4, 5]))
    assert s.memory is memory and s.memory_mask is mask
    torch.testing.assert_close(s.caches[1].k, keys[[1, 1, 3, 2, 4, 5]])
    s.select(torch.tensor([0, 2, 2, 3, 4, 5]))  # the second row leaves its sentence
    assert s.memory is not memory


def test_a_state_truncates_all_layers_and_leaves_the_memory():
    s = state()
    memory = list(s.memory)
    assert s.length == 4
    s.truncate(3)
    assert [c.length for c in s.caches] == [3, 3] and s.length == 3
    torch.testing.assert_close(s.memory, memory)


def test_a_decoder_only_state_has_no_memory():
    s = DecodingState(state().caches)
    s.select(torch.tensor([1]))
    assert s.memory == [] and s.memory_mask is None and s.caches[1].k.shape[0] == 1


# --- what is refused ----------------------------------------------------------------------------

K_ = V_ = torch.zeros(B, K, 3, D)
WRONG = {  # keys and values, and what the error of a preallocated cache shows
    "one row for all": (K_[:1], V_[:1], "(1, 2, 3, 5) and values (1, 2, 3, 5)"),
    "other rows": (K_[:2], V_[:2], "(2, 2, 3, 5) and values (2, 2, 3, 5)"),
    "one value for all": (K_, V_[:, :, :1], "(3, 2, 3, 5) and values (3, 2, 1, 5)"),
    "values of one row": (K_, V_[:1], "(3, 2, 3, 5) and values (1, 2, 3, 5)"),
    "values of another size": (K_, V_[..., :1], "(3, 2, 3, 5) and values (3, 2, 3, 1)"),
}


@pytest.mark.parametrize(("k", "v", "shapes"), WRONG.values(), ids=WRONG)
def test_what_would_broadcast_is_refused(k, v, shapes, no_shape_checks):
    "This catches the bug where one row, or the value of one position, is written to all."
    cache = KVCache(MAX)
    cache.update(*pair(2))
    with pytest.raises(ValueError, match=re.escape(shapes)):
        cache.update(k, v)
    assert cache.length == 2
    growing = GrowingCache()
    growing.update(*pair(2))
    if k.shape[0] < B:
        with pytest.raises(RuntimeError):
            growing.update(k, v)


def test_a_full_cache_says_so_and_stays_as_it_is():
    cache, new = KVCache(MAX), pair(11)
    cache.update(*new)
    with pytest.raises(RuntimeError, match="exceeds dimension size"):  # torch's own
        cache.update(*pair(3))
    torch.testing.assert_close(held(cache), new)


@every_kind
@pytest.mark.parametrize("length", [-1, 6])
def test_truncate_only_shortens(make, length):
    cache = make()
    cache.update(*pair(5))
    with pytest.raises(ValueError, match=f"from 0 to the cache's 5, got {length}"):
        cache.truncate(length)
