"""A window by brute force and in any cut of the text; a sink against the model that has it."""

from types import SimpleNamespace

import pytest
import torch
from random_cuts import cuts
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

from transformer_lit.attention.attend import attend
from transformer_lit.attention.cache import DecodingState, KVCache
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.attention.windows import SinkLogit, Window, WindowCache, window_mask
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.position.relative import ALiBi
from transformer_lit.position.rope import RoPE

B, H, K, D, C, T = 2, 6, 2, 4, 13, 29


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
    q, k, v = (torch.randn(B, H, T, D).double() for _ in range(3))
    expected = attend(q, k, v, mask=window_mask(T, T, size)[None, None])
    torch.testing.assert_close(Window(size)(q, k, v, causal=causal), expected)


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("size", [1, 7])
def test_twenty_random_cuts_give_what_one_pass_gives(size, first):
    rope, attend_near = RoPE(D), Window(size, first)
    layer = MultiHeadAttention(
        C, H, K, d_head=D, causal=True, position=rope, attend=attend_near
    ).double()
    x = torch.randn(B, T, C).double()
    whole = layer(x)
    for cut in cuts(T, 20):
        forgetful, full = WindowCache(size, first), KVCache(T)
        for cache in (forgetful, full):
            parts = [layer(piece, cache=cache) for piece in x.split(cut, dim=1)]
            torch.testing.assert_close(torch.cat(parts, 1), whole)
        assert forgetful.k.shape[2] == forgetful.v.shape[2] == first + size - 1
        assert forgetful.length == T


def test_distances_hold_in_a_window_without_first_positions():
    layer = MultiHeadAttention(C, H, d_head=D, causal=True, position=ALiBi(H), attend=Window(5))
    layer, x, cache = layer.double(), torch.randn(B, T, C).double(), WindowCache(5)
    parts = [layer(piece, cache=cache) for piece in x.split(3, dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), layer(x))


def test_a_model_writes_on_from_forgetful_caches():
    model = Llama(LlamaConfig(31, 12, 3, 3, d_ff=17, max_len=T)).double().eval()
    for layer in model.layers:
        layer.attn.attend = Window(4, 1)
    ids = torch.randint(31, (B, T))
    state = DecodingState([WindowCache(4, 1) for _ in model.layers])
    parts = [model.step(piece, state) for piece in ids.split(5, dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), model(ids))
    state.select(torch.tensor([1, 1, 0]))
    more, rows = torch.randint(31, (3, 2)), ids[[1, 1, 0]]
    expected = model(torch.cat([rows, more], 1))[:, T:]
    torch.testing.assert_close(model.step(more, state), expected)


def test_a_cache_goes_back_only_while_it_holds_all():
    cache, k = WindowCache(4), torch.randn(B, K, 3, D)
    cache.update(k, k)
    cache.truncate(2)
    again, _ = cache.update(k[:, :, 2:], k[:, :, 2:])
    assert torch.equal(again, k) and cache.length == 3
    cache.update(k, k)
    cache.truncate(6)
    for length in (-1, 5, 7):
        with pytest.raises(ValueError, match=f"cannot go back to {length}"):
            cache.truncate(length)
    assert cache.length == 6


def test_an_empty_window_is_refused():
    with pytest.raises(ValueError, match="at least 1 position, got 0"):
        Window(0)


@pytest.mark.parametrize("size", [None, 5])
def test_a_sink_is_that_of_gpt_oss(size):
    q, k, v = (torch.randn(B, n, T, D).double() for n in (H, K, K))
    plug = SinkLogit(H).double()
    plug.logit.data = torch.randn(H).double()
    seen = window_mask(T, T, size or T)
    theirs, _ = eager_attention_forward(
        SimpleNamespace(sinks=plug.logit, num_key_value_groups=H // K, training=False),
        *(q, k, v, torch.zeros(T, T).double().masked_fill(~seen, -torch.inf)[None, None]),
        scaling=D**-0.5,
    )
    ours = Window(size, attend=plug) if size else plug
    torch.testing.assert_close(ours(q, k, v, causal=True), theirs.transpose(1, 2))


@pytest.mark.parametrize("inner", [attend, None])
def test_a_sink_learns_and_takes_bias_and_mask(inner):
    q, k, v = (torch.randn(B, n, T, D, requires_grad=True).double() for n in (H, K, K))
    plug = (SinkLogit(H, inner) if inner else SinkLogit(H)).double()
    bias, keep = torch.randn(1, H, T, T).double(), torch.rand(B, 1, 1, T) < 0.7
    out = plug(q, k, v, mask=keep, bias=bias, causal=True)
    visible = keep & window_mask(T, T, T)
    scores = q @ k.repeat_interleave(H // K, 1).mT / D**0.5 + bias
    up = scores.masked_fill(~visible, -torch.inf).exp()
    expected = up @ v.repeat_interleave(H // K, 1) / (1 + up.sum(-1, keepdim=True))  # e⁰ = 1
    torch.testing.assert_close(out, expected)
    out.sum().backward()
    assert plug.logit.grad.abs().min() > 0
