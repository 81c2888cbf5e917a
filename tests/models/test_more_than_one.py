"""One more token, a gate, a table of values: loops, transformers' own layers, cuts of a text."""

import inspect
from functools import cache
from types import ModuleType

import pytest
import torch
from random_cuts import cuts
from torch import nn
from torch.testing import assert_close
from transformers import LlamaConfig as TheirLlamaConfig
from transformers.modeling_layers import MtpLayer
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen3_next import modeling_qwen3_next as qwen
from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig

from transformer_lit.attention.cache import GrowingCache, KVCache
from transformer_lit.attention.latent import LatentAttention
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.block.norm import RMSNorm
from transformer_lit.course.exercises import edited
from transformer_lit.inference.sampling import generate
from transformer_lit.inference.speculative import speculate
from transformer_lit.models import more_than_one
from transformer_lit.models.decoders import PerHead
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.position.rope import RoPE

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # but for the tests of each form

B, T, V, C, H, K, D, F = 2, 7, 17, 13, 6, 3, 4, 19  # D is even: rotary positions turn pairs
SIZES = {"vocab_size": V, "d_model": C, "n_heads": H, "n_kv_heads": K, "d_head": D, "d_ff": F}


def small(n_layers=3):
    return Llama(LlamaConfig(n_layers=n_layers, **SIZES))


def ids(T=T):
    return torch.randint(V, (B, T))


@torch.no_grad()
def shaken(module):
    "No weight stays as it began: norms and factors of 1 would hide a fault."
    for p in module.parameters():
        p.add_(torch.randn_like(p) / 3)
    return module


# --- one more token -----------------------------------------------------------------------------


def chained(depth, module=more_than_one):
    layers = small(depth).layers
    return shaken(module.MultiToken(small(), [module.MTPModule(C, layer) for layer in layers]))


def normed(x, norm):
    return x / (x.square().mean() + norm.eps).sqrt() * norm.weight


def equations(model, x, targets, weight):
    "DeepSeek-V3's equations 21 to 25, a text, a depth and a position at a time."
    main = model.model
    losses = [0.0 for _ in range(len(model.chain) + 1)]
    logits = [[] for _ in losses]
    for row, wanted in zip(x, targets):
        h = [main.hidden(row[None, : i + 1])[0, -1] for i in range(T)]
        for depth in range(len(model.chain) + 1):
            if depth:
                module = model.chain[depth - 1]
                joined = []
                for i in range(T - depth):
                    token = main.tok_emb.weight[row[i + depth]]
                    pair = [normed(h[i], module.hidden_norm), normed(token, module.token_norm)]
                    joined.append(module.proj.weight @ torch.cat(pair))
                h = [
                    normed(
                        module.layer(torch.stack(joined[: i + 1])[None])[0, -1], module.final_norm
                    )
                    for i in range(T - depth)
                ]
            for i in range(T - depth):
                z = main.lm_head.weight @ h[i]
                logits[depth].append(z)
                losses[depth] -= z.log_softmax(-1)[wanted[i + depth]] / (B * T)
    D = len(model.chain)
    return logits, losses[0] + weight / D * sum(losses[1:])


def seeded_chain(module, depth):
    torch.manual_seed(3)
    model, text = chained(depth, module), ids(T + 1)
    return model, text[:, :-1], text[:, 1:]


@cache
@torch.no_grad()
def expected_chain(depth):
    return equations(*seeded_chain(more_than_one, depth), 0.7)


@torch.no_grad()
def hold_chain(module, depth=2):
    logits, loss = expected_chain(depth)
    model, x, targets = seeded_chain(module, depth)
    found = model(x)
    for k, rows in enumerate(logits):
        assert_close(found[k].flatten(0, 1), torch.stack(rows))
    assert_close(module.mtp_loss(found, targets, 0.7), loss)


@pytest.mark.usefixtures("shape_checks")
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_chain_is_deepseeks_equations(depth):
    hold_chain(more_than_one, depth)


def test_a_module_is_that_of_transformers():
    C = H * D  # their configuration asks for it
    config = TheirLlamaConfig(
        hidden_size=C,
        num_attention_heads=H,
        num_key_value_heads=K,
        head_dim=D,
        intermediate_size=F,
        rms_norm_eps=1e-5,
        attn_implementation="eager",
    )
    theirs = MtpLayer(config, llama.LlamaDecoderLayer, llama.LlamaRMSNorm, 0)
    (layer,) = Llama(LlamaConfig(n_layers=1, **{**SIZES, "d_model": C})).layers
    ours = more_than_one.MTPModule(C, layer, eps=1e-5)
    shaken(ours)
    for one, other in (
        (theirs.enorm, ours.token_norm),
        (theirs.hnorm, ours.hidden_norm),
        (theirs.post_norm, ours.final_norm),
        (theirs.mtp_block.input_layernorm, ours.layer.attn_residual.norm),
        (theirs.mtp_block.post_attention_layernorm, ours.layer.ffn_residual.norm),
        *((getattr(theirs.mtp_block.self_attn, n), getattr(ours.layer.attn, n)) for n in QKVO),
        *((getattr(theirs.mtp_block.mlp, n), getattr(ours.layer.ffn, n)) for n in GUD),
    ):
        one.weight.data = other.weight.data
    theirs.eh_proj.weight.data = ours.proj.weight.roll(C, 1)  # theirs reads the token first
    hidden, token = torch.randn(2, B, T, C)
    rotary = llama.LlamaRotaryEmbedding(config)(hidden, torch.arange(T)[None])
    mask = torch.full((T, T), float("-inf")).triu(1)[None, None]
    expected = theirs(token, hidden, tuple(x.double() for x in rotary), mask, None, None)
    assert_close(ours(hidden, token), expected, atol=1e-6, rtol=1e-6)  # its angles are float32


QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")
GUD = ("gate_proj", "up_proj", "down_proj")


def test_a_prediction_sees_the_tokens_before_its_own_and_none_after():
    model, text, depth = chained(3).double(), ids(), 3
    seen = []
    model.model.tok_emb.register_forward_hook(lambda m, given, out: seen.append(out))
    for p in model.parameters():
        p.requires_grad_(True)
    for k, z in enumerate(model(text)):
        for i in range(T - k):
            grads = torch.autograd.grad(z[:, i].sum(), seen, retain_graph=True, allow_unused=True)
            reads = torch.zeros(T)
            for first, grad in zip(range(depth + 1), grads):  # the d-th call reads ids[:, d:]
                if grad is not None:
                    reads[first:] += grad.abs().sum((0, 2))
            assert (reads[: i + k + 1] > 0).all() and (reads[i + k + 1 :] == 0).all()


def test_the_chain_lends_embedding_and_head_and_leaves_the_model_as_it_was():
    model, text = chained(2), ids()
    assert_close(model(text)[0], model.model(text))
    own = {id(p) for p in model.model.parameters()}
    added = sum(p.numel() for p in model.parameters() if id(p) not in own)
    layer = sum(p.numel() for p in small(1).layers[0].parameters())
    assert added == 2 * (layer + 2 * C * C + 3 * C)


def test_without_a_chain_it_is_the_usual_loss():
    model, text = more_than_one.MultiToken(small(), []), ids(T + 1)
    expected = nn.functional.cross_entropy(model.model(text[:, :-1]).mT, text[:, 1:])
    assert_close(more_than_one.mtp_loss(model(text[:, :-1]), text[:, 1:]), expected)


class ChainDraft:
    "The most probable token of each module, as a sure one."

    def __init__(self, multi):
        self.multi = multi

    def propose(self, ids, n):
        model, text = self.multi.model, ids[None]
        hidden = model.hidden(text[:, :-1])
        for k, module in enumerate(self.multi.chain[:n], 1):
            hidden = module(hidden, model.tok_emb(text[:, k:]))
            text = torch.cat([text, model.lm_head(hidden[:, -1:]).argmax(-1)], 1)
        guesses = text[0, len(ids) :]
        return guesses.tolist(), nn.functional.one_hot(guesses, V).to(hidden.dtype)


@pytest.mark.parametrize("depth", [1, 3])
def test_a_draft_of_the_chain_leaves_the_greedy_text_as_it_is(depth):
    multi, start = chained(depth).eval(), ids(5)[:1]
    own = generate(multi.model, start, max_new_tokens=20, temperature=0)[0]
    rounds = speculate(
        multi.model,
        ChainDraft(multi),
        start,
        max_new_tokens=20,
        ahead=depth,
        choice=lambda z: nn.functional.one_hot(z.argmax(-1), V).to(z.dtype),
    )
    assert [token for said in rounds for token in said] == own


# --- a gate -------------------------------------------------------------------------------------


def qwen_pair(module=more_than_one, C=C, H=H, K=K):
    "Their layer and ours with its weights."
    config = Qwen3NextConfig(
        hidden_size=C,
        num_attention_heads=H,
        num_key_value_heads=K,
        head_dim=D,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        partial_rotary_factor=1.0,
        attn_implementation="eager",
    )
    theirs = qwen.Qwen3NextAttention(config, 0)
    shaken(theirs)
    attn = MultiHeadAttention(C, H, K, d_head=D, causal=True, position=RoPE(D))
    ours = module.GatedAttention(attn)
    q, gate = theirs.q_proj.weight.view(H, 2, D, C).unbind(1)  # H D C
    attn.q_proj.weight.data, ours.g_proj.weight.data = q.flatten(0, 1), gate.flatten(0, 1)
    for name, into in (("k_proj", attn), ("v_proj", attn), ("o_proj", ours)):
        getattr(into, name).weight.data = getattr(theirs, name).weight.data
    for name in "qk":
        norm = RMSNorm(D, eps=config.rms_norm_eps)
        norm.weight.data = 1 + getattr(theirs, f"{name}_norm").weight.data
        projection = nn.Sequential(getattr(attn, f"{name}_proj"), PerHead(norm, D))
        setattr(attn, f"{name}_proj", projection)
    return theirs, ours


def hold_gate(module, monkeypatch, **sizes):
    torch.manual_seed(5)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # else its norms are float32
    theirs, ours = qwen_pair(module, **sizes)
    x = torch.randn(B, T, sizes.get("C", C))
    angles = torch.arange(T)[:, None] * 10_000.0 ** (-torch.arange(0, D, 2) / D)  # T D/2
    angles = torch.cat([angles, angles], -1)[None]
    mask = torch.full((T, T), float("-inf")).triu(1)[None, None]
    expected, _ = theirs(x, (angles.cos(), angles.sin()), mask)
    assert_close(ours(x), expected)


@pytest.mark.usefixtures("shape_checks")
def test_gated_attention_is_that_of_qwen3_next(monkeypatch):
    hold_gate(more_than_one, monkeypatch)


def test_the_gate_is_one_number_for_each_number_of_a_head():
    attn, x = MultiHeadAttention(C, H, K, d_head=D, causal=True), torch.randn(B, T, C)
    o_proj = attn.o_proj
    layer = shaken(more_than_one.GatedAttention(attn))
    expected = torch.zeros(B, T, C)
    merged = layer.attn(x)  # B T HD: no projection behind it any more
    for b in range(B):
        for t in range(T):
            z = layer.g_proj.weight @ x[b, t]
            gated = torch.stack([m / (1 + (-g).exp()) for m, g in zip(merged[b, t], z)])
            expected[b, t] = o_proj.weight @ gated
    assert_close(layer(x), expected)


SEEN = {"causal": True, "position": RoPE(D)}
GATED = {
    "grouped": lambda: MultiHeadAttention(21, H, K, d_head=D, **SEEN),
    "latent": lambda: LatentAttention(21, 3, rank=5, d_head=3, d_rope=D, d_value=7, **SEEN),
}


@pytest.mark.parametrize("kind", GATED)
def test_any_cut_of_a_text_is_one_pass_through_a_gate(kind):
    layer, x = shaken(more_than_one.GatedAttention(GATED[kind]())), torch.randn(B, T, 21)
    for lengths in cuts(T, 3):
        cache = GrowingCache()
        pieces = [layer(piece, cache=cache) for piece in x.split(lengths, 1)]
        assert_close(torch.cat(pieces, 1), layer(x))


def test_a_gate_stands_before_a_memory_too():
    attn = MultiHeadAttention(C, H, d_head=D)
    layer, x, memory = shaken(more_than_one.GatedAttention(attn)), *torch.randn(2, B, T, C)
    expected = layer(x, memory)
    assert_close(layer(x, attn.keys_values(memory)), expected)
    assert_close(layer(x, memory=memory), expected)
    assert not torch.allclose(layer(x), expected)


# --- a table of values --------------------------------------------------------------------------


def with_tables(module=more_than_one, layers=(0, 2)):
    tables = {layer: nn.Embedding(V, K * D) for layer in layers}
    return shaken(module.ValueEmbedding(small(), tables)).eval()


def by_hooks(model, text):
    "The same from inside: what `v_proj` gives is changed, and nothing is known of a cache."
    handles = []
    for scale, (layer, table) in zip(model.scale, model.tables.items(), strict=True):
        v_proj, added = model.model.layers[int(layer)].attn.v_proj, scale * table.weight[text]
        change = lambda m, given, out, added=added: out + added  # noqa: E731
        handles.append(v_proj.register_forward_hook(change))
    out = model.model(text)
    for handle in handles:
        handle.remove()
    return out


def hold_values(module, _=None):
    torch.manual_seed(7)
    for layers in ((0,), (1, 2), (2, 0)):
        model, text = with_tables(module, layers), ids()
        assert_close(model(text), by_hooks(model, text))


def test_value_embeddings_add_to_the_values():
    hold_values(more_than_one)


@pytest.mark.usefixtures("shape_checks")
def test_any_cut_of_a_text_is_one_pass_with_value_embeddings():
    model, text = with_tables(layers=(1, 2)), ids()
    whole = model(text)
    with torch.no_grad():
        for lengths in cuts(T, 3):
            state = model.start(B, T)
            pieces = [model.step(piece, state) for piece in text.split(lengths, 1)]
            assert_close(torch.cat(pieces, 1), whole)
            assert state.length == T and all(type(c) is KVCache for c in state.caches)


def test_it_writes_what_it_would_write_without_a_cache():
    model, text = with_tables(), ids(5)
    expected = text
    with torch.no_grad():
        for _ in range(6):
            expected = torch.cat([expected, model(expected)[:, -1:].argmax(-1)], 1)
    assert generate(model, text, max_new_tokens=6, temperature=0) == expected[:, 5:].tolist()


def test_two_layers_may_share_a_table_and_all_of_it_learns():
    table = nn.Embedding(V, K * D)
    model = shaken(more_than_one.ValueEmbedding(small(), {0: table, 2: table}))
    plain = sum(p.numel() for p in small().parameters())
    assert sum(p.numel() for p in model.parameters()) == plain + V * K * D + 2
    text = ids()
    model(text).sin().sum().backward()
    assert (model.scale.grad != 0).all()
    used = torch.zeros(V, dtype=torch.bool).index_fill(0, text.flatten(), True)
    assert torch.equal((table.weight.grad != 0).any(-1), used)


# --- faults -------------------------------------------------------------------------------------

FAULTS = {
    "the token of the state itself": (hold_chain, "tok_emb(ids[:, k:]) → tok_emb(ids[:, :-k])"),
    "the token that is to be predicted": (
        hold_chain,
        "tok_emb(ids[:, k:]) → tok_emb(ids.roll(-1, 1)[:, k:])",
    ),
    "the last state in place of the first": (hold_chain, "(hidden[:, :-1], → (hidden[:, 1:],"),
    "the model's state at every depth": (
        hold_chain,
        "hidden = module(hidden[:, :-1], → hidden = module(self.model.hidden(ids)[:, :-k],",
    ),
    "token first": (
        hold_chain,
        "self.hidden_norm(hidden), self.token_norm(token) → "
        "self.token_norm(token), self.hidden_norm(hidden)",
    ),
    "norms exchanged": (
        hold_chain,
        "self.hidden_norm(hidden), self.token_norm(token) → "
        "self.token_norm(hidden), self.hidden_norm(token)",
    ),
    "targets that do not move": (hold_chain, "targets[:, k:] → targets[:, : z.shape[1]]"),
    "a mean of each depth by its own": (
        hold_chain,
        'reduction="sum") / targets.numel() → reduction="mean")',
    ),
    "a sum of the depths": (hold_chain, "/ max(len(others), 1) →"),
    "the gate behind the projection": (
        hold_gate,
        "self.o_proj(gate * self.attn(x, *args, **kwargs)) → "
        "gate * self.o_proj(self.attn(x, *args, **kwargs))",
    ),
    "a gate without a bound": (hold_gate, "self.g_proj(x).sigmoid() → self.g_proj(x)"),
    "a gate that reads the answer": (
        hold_gate,
        "self.g_proj(x).sigmoid() → self.g_proj(self.attn(x, *args, **kwargs)).sigmoid()",
    ),
    "a table without its factor": (hold_values, "scale * table(ids) → table(ids)"),
    "one factor for all layers": (hold_values, "scale * table(ids) → self.scale[0] * table(ids)"),
    "keys in place of values": (
        hold_values,
        "(k, v + split_heads(self.added, v.shape[-1])) → "
        "(k + split_heads(self.added, v.shape[-1]), v)",
    ),
    "numbers of the heads mixed": (
        hold_values,
        "split_heads(self.added, v.shape[-1]) → self.added.reshape(v.shape)",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault, monkeypatch):
    hold, edit = FAULTS[fault]
    source = inspect.getsource(more_than_one).replace("  #", " #").replace("\n        / ", " / ")
    damaged = ModuleType("damaged")
    exec(edited(source, [edit]), vars(damaged))
    given = {"C": 24, "monkeypatch": monkeypatch} if hold is hold_gate else {}
    with pytest.raises(AssertionError, match="are not close"):
        hold(damaged, **given)
