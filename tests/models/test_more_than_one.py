"""One more token, a gate, a table of values: by the equations, from inside, and cut into pieces."""

import pytest
import torch
from random_cuts import cuts
from torch import nn
from torch.testing import assert_close

from transformer_lit.attention.cache import GrowingCache, KVCache
from transformer_lit.attention.latent import LatentAttention
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.models.more_than_one import (
    GatedAttention,
    MTPModule,
    MultiToken,
    ValueEmbedding,
    mtp_loss,
)
from transformer_lit.position.rope import RoPE

B, T, V, C, H, K, D, F = 2, 7, 17, 13, 6, 3, 4, 19  # D is even: rotary positions turn pairs
SIZES = {"vocab_size": V, "d_model": C, "n_heads": H, "n_kv_heads": K, "d_head": D, "d_ff": F}


def small(n_layers=3):
    return Llama(LlamaConfig(n_layers=n_layers, **SIZES))


@torch.no_grad()
def shaken(module):
    "No weight stays as it began: norms and factors of 1 would hide a fault."
    for p in module.parameters():
        p.add_(torch.randn_like(p) / 3)
    return module


def normed(x, norm):
    return x / (x.square().mean() + norm.eps).sqrt() * norm.weight


@torch.no_grad()
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_the_chain_is_deepseeks_equations(depth):
    "DeepSeek-V3's equations 21 to 25, a text, a depth and a position at a time."
    chain = [MTPModule(C, layer) for layer in small(depth or 1).layers][:depth]
    model, text = shaken(MultiToken(small(), chain)), torch.randint(V, (B, T + 1))
    main, found = model.model, model(text[:, :-1])
    losses = [0.0] * (depth + 1)
    for b, (row, wanted) in enumerate(zip(text[:, :-1], text[:, 1:])):
        h = list(main.hidden(row[None])[0])
        for k in range(depth + 1):
            if k:
                module, joined = model.chain[k - 1], []
                for i in range(T - k):
                    token = main.tok_emb.weight[row[i + k]]
                    pair = [normed(h[i], module.hidden_norm), normed(token, module.token_norm)]
                    joined.append(module.proj.weight @ torch.cat(pair))
                states = module.layer(torch.stack(joined)[None])[0]
                h = [normed(x, module.final_norm) for x in states]
            z = torch.stack([main.lm_head.weight @ x for x in h])
            assert_close(found[k][b], z)
            for i in range(T - k):
                losses[k] -= z[i].log_softmax(-1)[wanted[i + k]] / (B * T)
    expected = losses[0] + 0.7 * sum(losses[1:]) / max(depth, 1)
    assert_close(mtp_loss(found, text[:, 1:], 0.7), expected)


SEEN = {"causal": True, "position": RoPE(D)}
GATED = {
    "grouped": lambda: MultiHeadAttention(21, H, K, d_head=D, **SEEN),
    "latent": lambda: LatentAttention(21, 3, rank=5, d_head=3, d_rope=D, d_value=7, **SEEN),
}


@pytest.mark.parametrize("kind", GATED)
def test_any_cut_of_a_text_is_one_pass_through_a_gate(kind):
    layer, x = shaken(GatedAttention(GATED[kind]())), torch.randn(B, T, 21)
    for lengths in cuts(T, 3):
        cache = GrowingCache()
        pieces = [layer(piece, cache=cache) for piece in x.split(lengths, 1)]
        assert_close(torch.cat(pieces, 1), layer(x))


def test_a_gate_stands_before_a_memory_too():
    attn = MultiHeadAttention(C, H, d_head=D)
    layer, x, memory = shaken(GatedAttention(attn)), *torch.randn(2, B, T, C)
    expected = layer(x, memory)
    assert_close(layer(x, attn.keys_values(memory)), expected)
    assert_close(layer(x, memory=memory), expected)
    assert not torch.allclose(layer(x), expected)


@torch.no_grad()
@pytest.mark.parametrize("layers", [(0,), (1, 2), (2, 0)])
def test_value_embeddings_add_to_the_values_however_a_text_is_cut(layers):
    "As seen from inside: what `v_proj` gives is changed, and nothing is known of a cache."
    tables = {layer: nn.Embedding(V, K * D) for layer in layers}
    model, text = shaken(ValueEmbedding(small(), tables)).eval(), torch.randint(V, (B, T))
    for lengths in cuts(T, 3):
        state = model.start(B, T)
        pieces = [model.step(piece, state) for piece in text.split(lengths, 1)]
        assert_close(torch.cat(pieces, 1), model(text))
        assert state.length == T and all(type(cache) is KVCache for cache in state.caches)
    found = model(text)
    for scale, (layer, table) in zip(model.scale, model.tables.items(), strict=True):
        added = scale * table.weight[text]
        v_proj = model.model.layers[int(layer)].attn.v_proj
        v_proj.register_forward_hook(lambda _, given, out, added=added: out + added)
    assert_close(found, model.model(text))


def test_two_layers_may_share_a_table_and_all_of_it_learns():
    table, text = nn.Embedding(V, K * D), torch.randint(V, (B, T))
    model = shaken(ValueEmbedding(small(), {0: table, 2: table}))
    plain = sum(p.numel() for p in small().parameters())
    assert sum(p.numel() for p in model.parameters()) == plain + V * K * D + 2
    model(text).sin().sum().backward()
    assert (model.scale.grad != 0).all()
    used = torch.zeros(V, dtype=torch.bool).index_fill(0, text.flatten(), True)
    assert torch.equal((table.weight.grad != 0).any(-1), used)
