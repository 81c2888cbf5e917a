"""What every kind of attention layer keeps, whatever its kernel, its window and its cache."""

import pytest
import torch
from layer_properties import (
    assert_any_cut_is_one_pass,
    assert_blind_to_the_future,
    assert_padded_rows_are_what_they_are_alone,
    assert_rows_can_be_chosen,
)
from torch import nn

from transformer_lit.attention.attend import attend
from transformer_lit.attention.cache import DecodingState, GrowingCache, KVCache
from transformer_lit.attention.latent import LatentAttention
from transformer_lit.attention.linear import GatedDeltaNet, StateCache
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.attention.steady import PerHead, SoftCap
from transformer_lit.attention.windows import SinkLogit, Window, WindowCache
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.position.relative import ALiBi
from transformer_lit.position.rope import RoPE

B, C, H, K, D, T = 2, 13, 6, 3, 4, 17


def heads(kernel=attend, position=None, n_kv_heads=K):
    position = RoPE(D) if position is None else position
    layer = MultiHeadAttention(
        C, H, n_kv_heads, d_head=D, causal=True, position=position, attend=kernel
    )
    if isinstance(kernel, SinkLogit):
        nn.init.normal_(kernel.logit)
    return layer


def with_norms(layer):
    for name in ("q_proj", "k_proj"):
        norm = PerHead(nn.RMSNorm(D), D)
        nn.init.normal_(norm.norm.weight)
        setattr(layer, name, nn.Sequential(getattr(layer, name), norm))
    return layer


def latent(absorbs=None, **options):
    sizes = {"rank": 11, "d_head": 5, "d_rope": D, "d_value": 7}
    layer = LatentAttention(C, H, causal=True, position=RoPE(D), **sizes, **options)
    if absorbs is not None:  # always in one of its two forms
        layer.absorbs = lambda T, S: absorbs
    return layer


def full():
    return KVCache(T)


LAYERS = {  # a layer, and a cache for it
    "heads": (lambda: heads(n_kv_heads=H), GrowingCache),
    "grouped": (heads, full),
    "sink": (lambda: heads(SinkLogit(H)), full),
    "sink and window": (lambda: heads(SinkLogit(H, Window(5))), lambda: WindowCache(5)),
    "capped": (lambda: with_norms(heads(SoftCap(0.7))), full),
    "window": (lambda: heads(Window(5)), lambda: WindowCache(5)),
    "window of 1": (lambda: heads(Window(1)), lambda: WindowCache(1)),
    "window, full cache": (lambda: heads(Window(5, 2)), full),
    "window and the first": (lambda: heads(Window(5, 2)), lambda: WindowCache(5, 2)),
    "window of distances": (lambda: heads(Window(5), ALiBi(H)), lambda: WindowCache(5)),
    "capped window": (lambda: heads(Window(4, attend=SoftCap(0.7))), lambda: WindowCache(4)),
    "latent": (latent, full),
    "latent, absorbed": (lambda: latent(True, q_rank=3), full),
    "latent, explicit": (lambda: latent(False), GrowingCache),
    "latent window": (lambda: latent(attend=Window(5)), lambda: WindowCache(5)),
    "state": (lambda: GatedDeltaNet(C, H, K, d_head=D), StateCache),
}

every_layer = pytest.mark.parametrize(("new", "new_cache"), LAYERS.values(), ids=LAYERS)


@every_layer
def test_any_cut_gives_what_one_pass_gives(new, new_cache):
    assert_any_cut_is_one_pass(new(), 2 * torch.randn(B, T, C), new_cache, 20)


@every_layer
def test_rows_can_be_chosen(new, new_cache):
    assert_rows_can_be_chosen(new(), torch.randn(B, T, C), new_cache)


@every_layer
def test_nothing_comes_from_the_future(new, new_cache):
    assert_blind_to_the_future(new(), torch.randn(1, 7, C))


@pytest.mark.parametrize(  # padding would be taken for the first positions of a text
    "name", [n for n in LAYERS if n not in ("state", "window, full cache", "window and the first")]
)
def test_padded_rows_are_what_they_are_alone(name):
    assert_padded_rows_are_what_they_are_alone(LAYERS[name][0](), torch.randn(B, T, C), full)


@pytest.mark.parametrize("name", ["heads", "grouped", "latent", "latent, explicit"])
def test_positions_can_be_taken_back(name):
    new, new_cache = LAYERS[name]
    layer, x, cache = new(), torch.randn(B, T, C), new_cache()
    layer(torch.cat([x[:, :5], torch.randn(B, 3, C)], 1), cache=cache)
    cache.truncate(5)
    torch.testing.assert_close(layer(x[:, 5:], cache=cache), layer(x)[:, 5:])


def test_a_model_of_several_kinds_writes_on_and_exchanges_its_rows():
    model = Llama(LlamaConfig(31, C, 5, 1, d_head=2, d_ff=17, max_len=T + 2)).eval()
    kinds = ["grouped", "window and the first", "capped window", "latent", "state"]
    state = DecodingState([])
    for layer, name in zip(model.layers, kinds):
        layer.attn = LAYERS[name][0]()
        state.caches.append(KVCache(T + 2) if LAYERS[name][1] is full else LAYERS[name][1]())
    ids = torch.randint(31, (B, T))
    parts = [model.step(piece, state) for piece in ids.split(5, dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), model(ids))
    rows = torch.tensor([1, 1, 0])
    state.select(rows)
    more = torch.randint(31, (3, 2))
    expected = model(torch.cat([ids[rows], more], 1))[:, T:]
    torch.testing.assert_close(model.step(more, state), expected)
