"""Encoder and decoder layer: what each part is given, with every wiring."""

import pytest
import torch
from torch import nn

from transformer_lit.attention.cache import KVCache
from transformer_lit.attention.multihead import MultiHeadAttention, Position
from transformer_lit.block.feedforward import FeedForward
from transformer_lit.block.layers import DecoderLayer, EncoderLayer
from transformer_lit.block.norm import LayerNorm
from transformer_lit.block.residual import PostNorm, PreNorm
from transformer_lit.block.wiring import DeepNorm, SandwichNorm
from transformer_lit.exercises import check, layers

B, T, S, H, D, F = 2, 5, 7, 3, 2, 11
C = H * D
WIRINGS = {
    "post": PostNorm,
    "pre": PreNorm,
    "sandwich": lambda norm: SandwichNorm(norm, LayerNorm(C)),
    "deep": lambda norm: DeepNorm(norm, alpha=2.5),
}


def attention(**options):
    return MultiHeadAttention(C, H, bias=True, **options)


def both_layers(wiring="post"):
    "A causal encoder layer and a decoder layer. No gain is 1 and no offset 0."
    parts = {"residual": lambda: WIRINGS[wiring](LayerNorm(C))}
    encoder = EncoderLayer(attention(causal=True), FeedForward(C, F), **parts)
    decoder = DecoderLayer(attention(causal=True), attention(), FeedForward(C, F), **parts)
    return scrambled(encoder), scrambled(decoder)


def scrambled(layer):
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


@pytest.mark.parametrize("wiring", WIRINGS)
def test_with_a_cache_the_pieces_are_the_whole(wiring):
    encoder, decoder = both_layers(wiring)
    x = torch.randn(B, T, C)
    memory = decoder.cross_attn.keys_values(torch.randn(B, S, C))
    for layer, inputs in ((encoder, ()), (decoder, (memory,))):
        cache = KVCache(T)
        pieces = [layer(piece, *inputs, cache=cache) for piece in x.split((2, 1, 2), dim=1)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), layer(x, *inputs))
        assert cache.length == T  # cross-attention has put nothing into it


def test_masks_and_positions_reach_self_attention():
    "Hiding position 0 from all others must change them, and leave position 0 as it is."

    class Recorder(Position):
        def rotate(self, x, pos):
            seen.append(pos)
            return x

    seen, pos = [], torch.tensor([[3, 4, 5, 6, 7], [0, 1, 2, 3, 4]])
    mask = torch.ones(1, 1, T, T, dtype=torch.bool)
    mask[..., 1:, 0] = False
    encoder, decoder = both_layers()
    x, memory = torch.randn(B, T, C), decoder.cross_attn.keys_values(torch.randn(B, S, C))
    for layer, inputs in ((encoder, ()), (decoder, (memory,))):
        layer.attn.position = Recorder()
        hidden, whole = layer(x, *inputs, mask=mask, pos=pos), layer(x, *inputs, pos=pos)
        same = torch.isclose(hidden, whole).all(-1).all(0)
        assert same.tolist() == [True] + [False] * (T - 1)
    assert len(seen) == 8  # queries and keys of four calls
    assert all(torch.equal(one, pos) for one in seen)


def test_every_sublayer_has_a_wiring_of_its_own():
    for layer, count in zip(both_layers(), (2, 3), strict=True):
        assert len({id(m) for m in layer.modules() if isinstance(m, LayerNorm)}) == count


def test_a_block_that_hands_the_mask_over_without_its_name_is_told_so():
    class Block(nn.Module):
        def __init__(self, attn, ffn, attn_norm, ffn_norm):
            super().__init__()
            self.attn, self.ffn = attn, ffn
            self.attn_norm, self.ffn_norm = attn_norm, ffn_norm

        def forward(self, x, mask=None):
            x = x + self.attn(self.attn_norm(x), mask)
            return x + self.ffn(self.ffn_norm(x))

    assert "by its name: `attn(z, mask=mask)`" in check("layers.3", Block).line


def test_the_courses_own_block_takes_an_attention_of_the_readers():
    class Own(nn.Module):  # knows `mask` and no other argument, and has nothing inside
        def forward(self, z, mask=None):
            return z.cumsum(1) if mask is None else z.cumsum(1) * mask

    x, mask = torch.randn(B, T, C), torch.tensor([True, False, True, True, False])[:, None]
    norms = [scrambled(LayerNorm(C)) for _ in range(2)]
    block = layers.Block(Own(), nn.Tanh(), *norms)
    for given, factor in ((None, 1), (mask, mask)):
        a = x + norms[0](x).cumsum(1) * factor
        torch.testing.assert_close(block(x, mask=given), a + norms[1](a).tanh())
