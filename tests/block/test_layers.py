"""Encoder and decoder layer against torch's, on copied weights; what each part is given."""

import pytest
import torch
from torch import nn
from torch_names import torch_weights

from transformer_lit.attention.cache import KVCache
from transformer_lit.attention.masks import causal_mask, length_mask, padding_mask
from transformer_lit.attention.multihead import MultiHeadAttention, Position
from transformer_lit.block.feedforward import FeedForward
from transformer_lit.block.layers import DecoderLayer, EncoderLayer
from transformer_lit.block.norm import LayerNorm
from transformer_lit.block.residual import PostNorm, PreNorm
from transformer_lit.block.wiring import DeepNorm, SandwichNorm
from transformer_lit.exercises import check, layers

B, T, S, H, D, F = 2, 5, 7, 3, 2, 11
C = H * D


def sandwich(norm):
    return SandwichNorm(norm, LayerNorm(C))


def deep(norm):
    return DeepNorm(norm, alpha=2.5)


WIRINGS = [PostNorm, PreNorm, sandwich, deep]


def attention(**options):
    return MultiHeadAttention(C, H, bias=True, **options)


def encoder_layer(wiring=PostNorm, **options):
    layer = EncoderLayer(
        attention(**options), FeedForward(C, F), residual=lambda: wiring(LayerNorm(C))
    )
    return scrambled(layer)


def decoder_layer(wiring=PostNorm):
    layer = DecoderLayer(
        attention(causal=True),
        attention(),
        FeedForward(C, F),
        residual=lambda: wiring(LayerNorm(C)),
    )
    return scrambled(layer)


def scrambled(layer):
    "No gain is 1 and no offset 0, so that none can be forgotten."
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


def same(theirs_class, ours, wiring):
    theirs = theirs_class(C, H, F, dropout=0.0, batch_first=True, norm_first=wiring is PreNorm)
    theirs.load_state_dict(torch_weights(ours))
    return theirs


@pytest.mark.parametrize("wiring", [PostNorm, PreNorm])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_the_encoder_layer_is_that_of_torch(wiring, padded, causal):
    ours = encoder_layer(wiring, causal=causal)
    theirs = same(nn.TransformerEncoderLayer, ours, wiring)
    x = torch.randn(B, S, C, requires_grad=True)
    keep = length_mask(torch.tensor([S, 4])) if padded else None
    got = ours(x, mask=padding_mask(keep) if padded else None)
    expected = theirs(
        x,
        src_mask=~causal_mask(S) if causal else None,
        src_key_padding_mask=~keep if padded else None,
    )
    torch.testing.assert_close(got, expected)
    dy = torch.randn_like(got)
    gradients = [torch.autograd.grad(out, x, dy)[0] for out in (got, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("wiring", [PostNorm, PreNorm])
@pytest.mark.parametrize("padded", [False, True])
def test_the_decoder_layer_is_that_of_torch(wiring, padded):
    ours = decoder_layer(wiring)
    theirs = same(nn.TransformerDecoderLayer, ours, wiring)
    x, m = (torch.randn(B, n, C, requires_grad=True) for n in (T, S))
    keep = length_mask(torch.tensor([S, 4])) if padded else None
    got = ours(
        x, ours.cross_attn.keys_values(m), memory_mask=padding_mask(keep) if padded else None
    )
    expected = theirs(
        x, m, tgt_mask=~causal_mask(T), memory_key_padding_mask=~keep if padded else None
    )
    torch.testing.assert_close(got, expected)
    dy = torch.randn_like(got)
    gradients = [torch.autograd.grad(out, (x, m), dy) for out in (got, expected)]
    torch.testing.assert_close(*gradients)


def test_a_mask_of_the_decoders_own_side_is_applied():
    "Hiding position 0 from all others must change them, and leave position 0 as it is."
    layer, x = decoder_layer(), torch.randn(B, T, C)
    memory = layer.cross_attn.keys_values(torch.randn(B, S, C))
    mask = torch.ones(1, 1, T, T, dtype=torch.bool)
    mask[..., 1:, 0] = False
    same = torch.isclose(layer(x, memory, mask=mask), layer(x, memory)).all(-1).all(0)
    assert same.tolist() == [True] + [False] * (T - 1)


@pytest.mark.parametrize("wiring", WIRINGS)
def test_with_a_cache_the_pieces_are_the_whole(wiring):
    encoder, decoder = encoder_layer(wiring, causal=True), decoder_layer(wiring)
    x = torch.randn(B, T, C)
    memory = decoder.cross_attn.keys_values(torch.randn(B, S, C))
    for layer, inputs in ((encoder, ()), (decoder, (memory,))):
        cache = KVCache(T)
        pieces = [layer(piece, *inputs, cache=cache) for piece in x.split((2, 1, 2), dim=1)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), layer(x, *inputs))
        assert cache.length == T  # cross-attention has put nothing into it


class Recorder(Position):
    def __init__(self):
        super().__init__()
        self.seen = []

    def rotate(self, x, pos):
        self.seen.append(pos)
        return x


def test_positions_reach_self_attention():
    pos = torch.tensor([[3, 4, 5, 6, 7], [0, 1, 2, 3, 4]])
    x, recorder = torch.randn(B, T, C), Recorder()
    encoder_layer(position=recorder)(x, pos=pos)
    decoder = decoder_layer()
    decoder.attn.position = recorder
    decoder(x, decoder.cross_attn.keys_values(x), pos=pos)
    assert len(recorder.seen) == 4  # queries and keys of two layers
    assert all(torch.equal(seen, pos) for seen in recorder.seen)


@pytest.mark.parametrize("wiring", WIRINGS)
def test_the_sublayers_run_in_order_each_in_its_own_wiring(wiring):
    encoder, decoder = encoder_layer(wiring), decoder_layer(wiring)
    x, m = torch.randn(B, T, C), torch.randn(B, S, C)
    a = encoder.attn_residual(x, encoder.attn)
    torch.testing.assert_close(encoder(x), encoder.ffn_residual(a, encoder.ffn))
    memory = decoder.cross_attn.keys_values(m)
    a = decoder.attn_residual(x, decoder.attn)
    c = decoder.cross_residual(a, lambda z: decoder.cross_attn(z, memory))
    torch.testing.assert_close(decoder(x, memory), decoder.ffn_residual(c, decoder.ffn))


class Averages(nn.Module):
    "A wiring that no chapter knows: half of each, and no norm."

    def forward(self, x, sublayer):
        return (x + sublayer(x)) / 2


def test_any_wiring_and_any_network_will_do():
    f = nn.Tanh()
    layer, x = EncoderLayer(attention(), f, residual=Averages), torch.randn(B, T, C)
    a = (x + layer.attn(x)) / 2
    torch.testing.assert_close(layer(x), (a + a.tanh()) / 2)


def test_every_sublayer_has_a_wiring_of_its_own():
    for layer, count in ((encoder_layer(), 2), (decoder_layer(), 3)):
        norms = {id(m) for m in layer.modules() if isinstance(m, LayerNorm)}
        assert len(norms) == count


def test_the_decoder_sees_its_past_and_all_of_the_source():
    layer = decoder_layer()
    x, m = (torch.randn(B, n, C, requires_grad=True) for n in (T, S))
    out = layer(x, layer.cross_attn.keys_values(m))
    for t in range(T):
        own, source = torch.autograd.grad(out[:, t].sum(), (x, m), retain_graph=True)
        assert (own.abs().sum(-1) > 0).tolist() == [[s <= t for s in range(T)]] * B
        assert (source.abs().sum(-1) > 0).all()


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
