import inspect
import re
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from transformer_lit.attention.attend import attend
from transformer_lit.attention.cache import DecodingState, GrowingCache, KVCache
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.masks import padding_mask
from transformer_lit.attention.multihead import Cache, MultiHeadAttention, Position

B, K, D, C, MAX = 3, 2, 5, 11, 13
ROOT = Path(__file__).parents[2]
KINDS = {"growing": GrowingCache, "preallocated": lambda: KVCache(MAX)}


@pytest.fixture(params=KINDS)
def make(request):
    return KINDS[request.param]


def pair(T, rows=B, **options):
    return torch.randn(rows, K, T, D, **options), torch.randn(rows, K, T, D, **options)


class Turn(Position):
    "Turns the first two numbers of a head by half the position, in radians."

    def rotate(self, x, pos):
        angle = (pos / 2.0).unsqueeze(-2)[..., None]  # 1 T 1 or B 1 T 1
        a, b, rest = x.split((1, 1, x.shape[-1] - 2), -1)
        turned = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
        return torch.cat([*turned, rest], -1)


class Growing:
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


def same(cache, oracle):
    held = cache.k[:, :, : cache.length], cache.v[:, :, : cache.length]
    torch.testing.assert_close(held, (oracle.k, oracle.v))


@pytest.mark.parametrize("trial", range(7))
def test_any_order_of_calls_gives_what_concatenation_gives(trial, make):
    "This catches the bug where a select in place reads rows that it has already overwritten."
    torch.manual_seed(trial)
    draw = lambda low, high: int(torch.randint(low, high, ()))  # noqa: E731
    cache, oracle, rows = make(), Growing(), B
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
        same(cache, oracle)


def test_both_kinds_are_caches(make):
    assert isinstance(make(), Cache)
    for call in ("update", "select", "truncate"):
        kinds = (type(make()), KVCache)
        ours, other = (list(inspect.signature(getattr(k, call)).parameters) for k in kinds)
        assert ours == other


@pytest.mark.parametrize("chunks", [(13,), (1,) * 13, (5, 1, 7)])
@pytest.mark.parametrize("kv_heads", [1, 3])
@pytest.mark.parametrize("kernel", [attend, attend_fused])
def test_cached_is_full(make, chunks, kv_heads, kernel):
    parts = {"causal": True, "attend": kernel, "position": Turn()}
    m = MultiHeadAttention(C, 6, kv_heads, d_head=D, **parts)
    x, cache = torch.randn(B, 13, C), make()
    steps = [m(piece, cache=cache) for piece in x.split(chunks, 1)]
    assert cache.length == 13
    torch.testing.assert_close(torch.cat(steps, 1), m(x))


@pytest.mark.parametrize("chunks", [(13,), (5, 1, 1, 1, 1, 1, 1, 1, 1)])
@pytest.mark.parametrize("kernel", [attend, attend_fused])
def test_rows_of_unequal_length_are_what_they_are_alone(make, chunks, kernel):
    "Padded on the left, with positions B T that count from each row's first token."
    parts = {"causal": True, "attend": kernel, "position": Turn()}
    m = MultiHeadAttention(C, 6, 2, d_head=D, **parts)
    x, pads, cache = torch.randn(B, 13, C), (0, 5, 2), make()
    pos = torch.arange(13) - torch.tensor(pads)[:, None]
    keep, out, start = padding_mask(pos >= 0), [], 0
    for size in chunks:
        now = slice(start, start + size)
        out.append(m(x[:, now], pos=pos[:, now], mask=keep[..., : now.stop], cache=cache))
        start = now.stop
    out = torch.cat(out, 1)
    for b, pad in enumerate(pads):
        torch.testing.assert_close(out[b : b + 1, pad:], m(x[b : b + 1, pad:]))


def operations(T, kv_heads, make):
    with torch.device("meta"):
        m, x = MultiHeadAttention(C, 6, kv_heads, d_head=D, causal=True), torch.empty(1, T, C)
    with FlopCounterMode(display=False) as counter:
        cache = None if make is None else make()
        for t in range(T):
            m(x[:, : t + 1]) if cache is None else m(x[:, t : t + 1], cache=cache)
    return counter.get_total_flops()


@pytest.mark.parametrize("T", [2, 13])
@pytest.mark.parametrize("kv_heads", [1, 6])
def test_the_work_of_writing(make, T, kv_heads):
    "Maps fall from T² to T and scores from T³ to T²; grouping changes the maps alone."
    maps, scores = 2 * C * D * (6 + 6 + 2 * kv_heads), 4 * 6 * D
    cached = T * maps + T * (T + 1) // 2 * scores
    full = T * (T + 1) // 2 * maps + T * (T + 1) * (2 * T + 1) // 6 * scores
    assert operations(T, kv_heads, make) == cached
    assert operations(T, kv_heads, None) == full


def test_beam_rows_continue_as_if_decoded_alone(make):
    m = MultiHeadAttention(C, 6, 2, d_head=D, causal=True)
    x, rows = torch.randn(B, 7, C), torch.tensor([2, 2, 0, 1, 2])
    more, cache = torch.randn(5, 3, C), make()
    m(x, cache=cache)
    cache.select(rows)
    torch.testing.assert_close(m(more, cache=cache), m(torch.cat([x[rows], more], 1))[:, 7:])


def test_truncate_forgets_and_the_place_is_used_again(make):
    m = MultiHeadAttention(C, 6, 2, d_head=D, causal=True)
    x, cache = torch.randn(B, MAX, C), make()
    m(torch.cat([x[:, :4], torch.randn(B, MAX - 4, C)], 1), cache=cache)
    cache.truncate(4)
    torch.testing.assert_close(m(x[:, 4:], cache=cache), m(x)[:, 4:])


def test_memory_is_set_aside_once():
    cache = KVCache(MAX)
    assert cache.k is None
    cache.update(*pair(2))
    where = cache.k.data_ptr()
    assert cache.k.shape == (B, K, MAX, D)
    cache.update(*pair(5))
    cache.select(torch.tensor([1, 0, 2]))
    assert cache.k.data_ptr() == where


def test_an_empty_cache_stays_empty(make):
    cache = make()
    cache.truncate(0)
    cache.select(torch.tensor([0, 0, 1, 1, 2, 2]))  # beams widen the batch before the first step
    assert cache.length == 0
    cache.update(*pair(2, rows=6))
    assert cache.length == 2


def test_the_store_has_the_type_of_the_keys(make):
    cache = make()
    k, _ = cache.update(*pair(2, dtype=torch.float32))
    assert k.dtype == torch.float32


# --- what is refused ----------------------------------------------------------------------------


def test_a_full_cache_says_so_and_stays_as_it_is():
    cache, oracle = KVCache(MAX), Growing()
    new = pair(11)
    cache.update(*new)
    oracle.update(*new)
    with pytest.raises(RuntimeError, match="exceeds dimension size"):  # torch's own
        cache.update(*pair(3))
    same(cache, oracle)


@pytest.mark.parametrize("rows", [1, 2])
def test_another_number_of_rows_is_refused(make, rows):
    "This catches the bug where one row is written into all rows, since it broadcasts."
    cache = make()
    cache.update(*pair(2))
    with pytest.raises((ValueError, RuntimeError)):
        cache.update(*pair(1, rows))
    assert cache.length == 2


@pytest.mark.parametrize("held", [0, 2])
def test_values_of_another_shape_than_the_keys_are_refused(held):
    "This catches the bug where the value of one position is written to all of them."
    cache, (k, v) = KVCache(MAX), pair(3)
    if held:
        cache.update(*pair(held))
    update = inspect.unwrap(KVCache.update)  # beneath the check of shapes that tests add
    for wrong in (v[:, :, :1], v[:1], v[..., :1]):
        with pytest.raises(
            ValueError, match=re.escape(f"keys (3, 2, 3, 5) and values {(*wrong.shape,)}")
        ):
            update(cache, k, wrong)
    assert cache.length == held


@pytest.mark.parametrize("length", [-1, 6])
def test_truncate_only_shortens(make, length):
    cache = make()
    cache.update(*pair(5))
    with pytest.raises(ValueError, match=f"cache of 5 positions to {length}"):
        cache.truncate(length)


# --- gradients ----------------------------------------------------------------------------------


def test_a_prefill_has_the_gradient_of_the_full_pass(make):
    m = MultiHeadAttention(C, 6, 2, d_head=D, causal=True)
    x = torch.randn(B, 7, C, requires_grad=True)
    (cached,) = torch.autograd.grad(m(x, cache=make()).square().sum(), x)
    (full,) = torch.autograd.grad(m(x).square().sum(), x)
    torch.testing.assert_close(cached, full)


def through_steps(kernel, cache):
    m = MultiHeadAttention(C, 6, 2, d_head=D, causal=True, attend=kernel)
    x = torch.randn(B, 7, C, requires_grad=True)
    steps = torch.cat([m(piece, cache=cache) for piece in x.split((4, 3), 1)], 1)
    return x, steps, m(x)


def test_a_gradient_through_steps_is_refused_where_the_kernel_kept_a_view():
    _, steps, _ = through_steps(attend_fused, KVCache(7))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        steps.square().sum().backward()


@pytest.mark.parametrize(
    ("kernel", "cache"), [(attend, "preallocated"), (attend, "growing"), (attend_fused, "growing")]
)
def test_a_gradient_through_steps_is_right_where_copies_were_kept(kernel, cache):
    x, steps, full = through_steps(kernel, KINDS[cache]())
    (cached,) = torch.autograd.grad(steps.square().sum(), x)
    torch.testing.assert_close(cached, torch.autograd.grad(full.square().sum(), x)[0])


# --- the state of a whole model -----------------------------------------------------------------


def state(memory=True):
    caches = [KVCache(MAX), GrowingCache()]
    for cache in caches:
        cache.update(*pair(4))
    if not memory:
        return DecodingState(caches)
    mask = torch.rand(B, 1, 1, 7) > 0.5
    return DecodingState(caches, [pair(7), pair(7)], mask)


def test_a_state_selects_caches_memory_and_mask():
    s, rows = state(), torch.tensor([2, 0, 2, 2, 1])
    caches = [(c.k[rows, :, :4], c.v[rows, :, :4]) for c in s.caches]
    memory, mask = [(k[rows], v[rows]) for k, v in s.memory], s.memory_mask[rows]
    s.select(rows)
    torch.testing.assert_close([(c.k[:, :, :4], c.v[:, :, :4]) for c in s.caches], caches)
    torch.testing.assert_close(s.memory, memory)
    torch.testing.assert_close(s.memory_mask, mask)


@pytest.mark.parametrize("trial", range(7))
def test_selections_add_up(trial):
    "The memory is copied only where a row changes its source; this must never be seen."
    torch.manual_seed(trial)
    s, origin = state(), torch.arange(B)
    memory, mask = list(s.memory), s.memory_mask
    for _ in range(11):
        size = len(origin) if torch.rand(()) < 0.6 else int(torch.randint(1, 7, ()))
        rows = torch.randint(0, len(origin), (size,))
        origin = origin[rows]
        s.select(rows)
        torch.testing.assert_close(s.memory, [(k[origin], v[origin]) for k, v in memory])
        torch.testing.assert_close(s.memory_mask, mask[origin])
        assert len(s.caches[0].k) == len(origin)


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
    s = state(memory=False)
    s.select(torch.tensor([1]))
    assert s.memory == [] and s.memory_mask is None and s.caches[1].k.shape[0] == 1


def test_states_do_not_share_their_lists():
    assert DecodingState([]).memory is not DecodingState([]).memory
