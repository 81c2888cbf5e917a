import pytest
import torch

from transformer_lit.attention.attend import attend
from transformer_lit.attention.cache import DecodingState, KVCache
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.multihead import MultiHeadAttention

B, K, D, C, MAX = 3, 2, 5, 11, 13


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def pair(T, rows=B, **options):
    return torch.randn(rows, K, T, D, **options), torch.randn(rows, K, T, D, **options)


class Growing:
    "The oracle: tensors that grow by concatenation; nothing is shared or written in place."

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


@pytest.mark.parametrize("trial", range(20))
def test_any_order_of_calls_gives_what_concatenation_gives(trial):
    "This catches the bug where a select in place reads rows that it has already overwritten."
    torch.manual_seed(trial)
    draw = lambda low, high: int(torch.randint(low, high, ()))  # noqa: E731
    cache, oracle, rows = KVCache(MAX), Growing(), B
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


@pytest.mark.parametrize("chunks", [(13,), (1,) * 13, (5, 1, 7), (1, 11, 1)])
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("kernel", [attend, attend_fused])
def test_cached_is_full(chunks, kv_heads, kernel):
    m = MultiHeadAttention(C, 6, kv_heads, d_head=D, causal=True, attend=kernel)
    x, cache = torch.randn(B, 13, C), KVCache(MAX)
    steps = [m(piece, cache=cache) for piece in x.split(chunks, 1)]
    assert cache.length == 13
    torch.testing.assert_close(torch.cat(steps, 1), m(x))


def test_beam_rows_continue_as_if_decoded_alone():
    m = MultiHeadAttention(C, 6, 2, d_head=D, causal=True)
    x, rows = torch.randn(B, 7, C), torch.tensor([2, 2, 0, 1, 2])
    more, cache = torch.randn(5, 3, C), KVCache(MAX)
    m(x, cache=cache)
    cache.select(rows)
    torch.testing.assert_close(m(more, cache=cache), m(torch.cat([x[rows], more], 1))[:, 7:])


def test_truncate_forgets_and_the_place_is_used_again():
    m = MultiHeadAttention(C, 6, 2, d_head=D, causal=True)
    x, cache = torch.randn(B, 7, C), KVCache(7)
    m(torch.cat([x[:, :4], torch.randn(B, 3, C)], 1), cache=cache)
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


def test_selecting_an_empty_cache_leaves_it_empty():
    cache = KVCache(MAX)
    cache.select(
        torch.tensor([0, 0, 1, 1, 2, 2])
    )  # beam search widens the batch before the first step
    cache.update(*pair(2, rows=6))
    assert cache.length == 2


def test_the_store_has_the_type_of_the_keys():
    cache = KVCache(MAX)
    k, _ = cache.update(*pair(2, dtype=torch.float64))
    assert k.dtype == torch.float64


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("max_len", [0, -3])
def test_a_cache_needs_room(max_len):
    with pytest.raises(ValueError, match=f"max_len must be positive, got {max_len}"):
        KVCache(max_len)


def test_a_full_cache_says_so_and_stays_as_it_is():
    cache, oracle = KVCache(MAX), Growing()
    new = pair(11)
    cache.update(*new)
    oracle.update(*new)
    with pytest.raises(ValueError, match="holds 13 positions; 14 were asked for"):
        cache.update(*pair(3))
    same(cache, oracle)


@pytest.mark.parametrize("rows", [1, 2])
def test_another_number_of_rows_is_refused(rows):
    "This catches the bug where one row is written into all rows, since it broadcasts."
    cache = KVCache(MAX)
    cache.update(*pair(2))
    with pytest.raises(ValueError, match=rf"\(3, 2, 1, 5\), got \({rows}, 2, 1, 5\)"):
        cache.update(*pair(1, rows))
    assert cache.length == 2


@pytest.mark.parametrize("length", [-1, 6])
def test_truncate_only_shortens(length):
    cache = KVCache(MAX)
    cache.update(*pair(5))
    with pytest.raises(ValueError, match=f"cache of 5 positions to {length}"):
        cache.truncate(length)


# --- gradients ----------------------------------------------------------------------------------


def test_a_prefill_has_the_gradient_of_the_full_pass():
    m = MultiHeadAttention(C, 6, 2, d_head=D, causal=True)
    x = torch.randn(B, 7, C, requires_grad=True)
    (cached,) = torch.autograd.grad(m(x, cache=KVCache(7)).square().sum(), x)
    (full,) = torch.autograd.grad(m(x).square().sum(), x)
    torch.testing.assert_close(cached, full)


def through_steps(kernel):
    m = MultiHeadAttention(C, 6, 2, d_head=D, causal=True, attend=kernel)
    x, cache = torch.randn(B, 7, C, requires_grad=True), KVCache(7)
    steps = torch.cat([m(piece, cache=cache) for piece in x.split((4, 3), 1)], 1)
    return x, steps, m(x)


def test_a_gradient_through_steps_is_refused_where_the_kernel_kept_a_view():
    _, steps, _ = through_steps(attend_fused)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        steps.square().sum().backward()


def test_a_gradient_through_steps_is_right_where_the_kernel_kept_copies():
    x, steps, full = through_steps(attend)
    (cached,) = torch.autograd.grad(steps.square().sum(), x)
    torch.testing.assert_close(cached, torch.autograd.grad(full.square().sum(), x)[0])


# --- the state of a whole model -----------------------------------------------------------------


def state(memory=True):
    caches = [KVCache(MAX) for _ in range(2)]
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
