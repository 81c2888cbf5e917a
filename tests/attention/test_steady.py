"QK-norm, soft-capping and z-loss: their bounds, Gemma 2's own, and faults that must be seen."

import inspect
import math
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cuts import cuts
from torch import nn
from torch.testing import assert_close
from transformers.models.gemma2 import modeling_gemma2 as gemma
from transformers.models.gemma2.configuration_gemma2 import Gemma2Config

from transformer_lit.attention import steady
from transformer_lit.attention.attend import attend
from transformer_lit.attention.cache import DecodingState, KVCache
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.attention.steady import PerHead, SoftCap, z_loss
from transformer_lit.attention.windows import Window, WindowCache
from transformer_lit.block.experts import Routing, router_z_loss
from transformer_lit.block.norm import RMSNorm
from transformer_lit.course.exercises import edited
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.position.rope import RoPE

B, H, K, T, S, D, E = 2, 6, 3, 5, 7, 4, 11


def inputs(*, requires_grad=False):
    shapes = (B, H, T, D), (B, K, S, D), (B, K, S, E)
    return [(2 * torch.randn(shape)).requires_grad_(requires_grad) for shape in shapes]


# --- QK-norm ------------------------------------------------------------------------------------

numbers = st.floats(-1e8, 1e8).filter(lambda x: x == 0 or abs(x) > 1e-8)
vectors = st.lists(numbers, min_size=D, max_size=D).map(torch.tensor)


def normed(x, gain):
    norm = PerHead(RMSNorm(D), D)
    norm.norm.weight.data = gain.to(norm.norm.weight)
    return norm(x.to(gain))


@settings(max_examples=60, deadline=None)
@given(q=vectors, k=vectors, g_q=vectors, g_k=vectors)
def test_no_vectors_pass_the_bound_of_cauchy_and_schwarz(q, k, g_q, g_k):
    q, k, g_q, g_k = (x.double() for x in (q, k, g_q, g_k))
    bound = D**0.5 * g_q.abs().max() * g_k.abs().max()
    for a, b in ((q, k), (q, q), (k, -k)):
        logit = (normed(a, g_q) * normed(b, g_k)).sum() / D**0.5
        assert logit.abs() <= bound * (1 + 1e-12)  # some roundings of 1e-16


@pytest.mark.parametrize("size", [1.0, 1e8])
def test_one_number_alone_reaches_it(size):
    gain = torch.ones(D)
    gain[2] = -3.0
    alone = torch.zeros(D)
    alone[2] = size
    logit = normed(alone, gain).square().sum() / D**0.5
    assert_close(logit, torch.tensor(D**0.5 * 9), rtol=1e-5, atol=0)  # ε = 1e-6 of 1 / 4


def test_each_head_has_a_norm_of_its_own_and_all_share_the_gain():
    norm, x = PerHead(RMSNorm(D), D), torch.randn(B, T, H * D)
    norm.norm.weight.data = torch.randn(D)
    expected = torch.zeros(B, T, H * D)
    for h in range(H):
        head = x[..., h * D : (h + 1) * D]
        rms = (head.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        expected[..., h * D : (h + 1) * D] = head / rms * norm.norm.weight
    assert_close(norm(x), expected)
    assert torch.autograd.gradcheck(norm, x.requires_grad_())


def with_norms(attn):
    for name in ("q_proj", "k_proj"):
        norm = PerHead(RMSNorm(attn.d_head), attn.d_head)
        norm.norm.weight.data = torch.randn(attn.d_head)
        setattr(attn, name, nn.Sequential(getattr(attn, name), norm))
    return attn


def test_a_norm_behind_the_rotation_is_another_model():
    attn = with_norms(MultiHeadAttention(12, 3, causal=True, position=RoPE(D)))
    (q_proj, q_norm), (k_proj, k_norm) = attn.q_proj, attn.k_proj
    x, pos = torch.randn(B, T, 12), torch.arange(T)

    def by_hand(late):
        q, k, v = (
            proj(x).unflatten(-1, (3, D)).transpose(1, 2) for proj in (q_proj, k_proj, attn.v_proj)
        )
        if late:
            q, k = (norm.norm(RoPE(D).rotate(y, pos)) for norm, y in ((q_norm, q), (k_norm, k)))
        else:
            q, k = (RoPE(D).rotate(norm.norm(y), pos) for norm, y in ((q_norm, q), (k_norm, k)))
        return attn.o_proj(attend(q, k, v, causal=True).transpose(1, 2).flatten(2))

    assert_close(attn(x), by_hand(late=False))
    assert (attn(x) - by_hand(late=True)).abs().max() > 1e-2
    q_norm.norm.weight.data.fill_(1.3)
    k_norm.norm.weight.data.fill_(0.7)
    assert_close(by_hand(late=False), by_hand(late=True))  # equal gains: the order does not matter


# --- soft-capping -------------------------------------------------------------------------------


def by_loops(q, k, v, cap, visible, bias, scale):
    "Number by number; a hidden key is left out, a row without keys is zero."
    out = torch.zeros(*q.shape[:3], v.shape[-1])
    for b, h, t in torch.cartesian_prod(*map(torch.arange, q.shape[:3])).tolist():
        g = h // (q.shape[1] // k.shape[1])
        seen = [s for s in range(k.shape[2]) if visible[b, h, t, s]]
        logits = [scale * float(q[b, h, t] @ k[b, g, s]) + float(bias[b, h, t, s]) for s in seen]
        shares = [math.exp(cap * math.tanh(logit / cap)) for logit in logits]
        for share, s in zip(shares, seen):
            out[b, h, t] += share / sum(shares) * v[b, g, s]
    return out


def hold(module):
    "All that the plug does with masks, bias, scale and groups, and its gradient."
    for cap in (1.5, 4.0):
        q, k, v = inputs()
        mask, bias = torch.rand(B, H, T, S) < 0.6, torch.randn(1, H, T, S)
        mask[0, 1, 2] = False  # a row that sees nothing
        corner = torch.ones(T, S, dtype=torch.bool).tril(S - T)
        for scale in (None, 0.7):
            how = {"mask": mask, "bias": bias, "causal": True, "scale": scale}
            expected = by_loops(
                q, k, v, cap, mask & corner, bias.expand(B, -1, -1, -1), scale or D**-0.5
            )
            assert_close(module.SoftCap(cap)(q, k, v, **how), expected)
        every = torch.ones(B, H, T, S, dtype=torch.bool)
        expected = by_loops(q, k, v, cap, every, torch.zeros(B, H, T, S), D**-0.5)
        assert_close(module.SoftCap(cap)(q, k, v), expected)
        hiding = torch.zeros(1, H, T, S).masked_fill(~mask[1:], -math.inf)
        masked = module.SoftCap(cap)(q, k, v, mask=mask[1:])
        assert_close(module.SoftCap(cap)(q, k, v, bias=hiding), masked)
        everything = module.SoftCap(cap)(q, k, v, dropout=1.0)
        assert_close(everything, torch.zeros_like(everything))


def test_is_the_formula():
    hold(steady)


FAULTS = {
    "cap after the mask": "mask=mask, bias=capped → bias=(capped if mask is None else"
    " self.cap * capped.masked_fill(~mask, -math.inf).div(self.cap).tanh())",
    "a bias behind the cap": "logits = logits + bias.expand_as(logits) → past = bias",
    "no cap": "self.cap * (logits / self.cap).tanh() → logits",
    "tanh of the whole logit": "(logits / self.cap).tanh() → logits.tanh()",
    "a cap of 1": "self.cap * (logits → (logits",
    "a cap before the scale": "(logits / self.cap).tanh() → (logits / scale / self.cap).tanh()",
    "groups in another order": "q.unflatten(1, (k.shape[1], -1)) → "
    "q.unflatten(1, (-1, k.shape[1])).transpose(1, 2)",
    "a scale of its own is ignored": "q.shape[-1] ** -0.5 if scale is None else scale → "
    "q.shape[-1] ** -0.5",
    "no triangle": "causal=causal, → causal=False,",
    "a bias of −∞ that shows": "capped.masked_fill(logits == -math.inf, -math.inf) → capped",
    "no dropout": "dropout=dropout → dropout=0.0",
}


def damaged(fault):
    found = ModuleType("damaged")
    exec(edited(inspect.getsource(steady), [fault]), vars(found))
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault):
    with pytest.raises(AssertionError, match="Tensor-likes are not close"):
        hold(damaged(FAULTS[fault]))


@settings(max_examples=50, deadline=None)
@given(cap=st.floats(0.1, 60), size=st.floats(0, 1e6), seed=st.integers(0, 99))
def test_weights_of_a_row_differ_by_a_factor_of_twice_the_cap_at_most(cap, size, seed):
    draw = torch.Generator().manual_seed(seed)
    q, k = (size * torch.randn(1, 1, S, D, generator=draw).double() for _ in "qk")
    weights = SoftCap(cap)(q, k, torch.eye(S).double()[None, None])
    spread = weights.max(-1).values.log() - weights.min(-1).values.log()
    assert (spread <= 2 * cap * (1 + 1e-12)).all()
    assert_close(weights.sum(-1), torch.ones(1, 1, S).double())


def test_without_end_it_is_attention_and_so_are_its_gradients():
    q, k, v = inputs(requires_grad=True)
    mask, bias = torch.rand(B, 1, T, S) < 0.6, torch.randn(1, H, T, S)
    mask[0, 0, 2] = False
    found = []
    for plug in (SoftCap(1e7), attend):  # what the cap takes off: ℓ³ / 3c²
        out = plug(q, k, v, mask=mask, bias=bias, causal=True, scale=0.3)
        found.append((out, *torch.autograd.grad(out.square().sum(), (q, k, v))))
    assert_close(*found)


def test_gradients_where_a_row_sees_nothing_and_a_bias_hides():
    q, k, v = inputs(requires_grad=True)
    mask, bias = torch.rand(B, H, T, S) < 0.6, torch.randn(1, H, T, S)
    mask[0, 1, 2], bias[0, 3, 1, 4], bias[0, 2, 3] = False, -math.inf, -math.inf

    def plug(q, k, v):
        return SoftCap(1.5)(q, k, v, mask=mask, bias=bias, causal=True)

    assert torch.autograd.gradcheck(plug, (q, k, v))
    bias = torch.randn(1, H, T, S, requires_grad=True)
    assert torch.autograd.gradcheck(lambda b: SoftCap(1.5)(q, k, v, mask=mask, bias=b), bias)


# --- Gemma 2 ------------------------------------------------------------------------------------


class Doubles:
    "torch, with doubles where the reference asks for single precision."

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("cap", [0.5, 50.0])
def test_the_layer_is_that_of_gemma_2_and_so_are_its_gradients(window, cap, monkeypatch):
    monkeypatch.setattr(gemma, "torch", Doubles())
    config = Gemma2Config(
        hidden_size=18,
        num_attention_heads=H,
        num_key_value_heads=K,
        head_dim=D,
        query_pre_attn_scalar=7,
        attn_logit_softcapping=cap,
        num_hidden_layers=2,
        layer_types=["full_attention", "sliding_attention"],
        sliding_window=window,
        attn_implementation="eager",
    )
    theirs = gemma.Gemma2Attention(config, 0 if window is None else 1)
    plug = SoftCap(cap) if window is None else Window(window, attend=SoftCap(cap))
    ours = MultiHeadAttention(
        18, H, K, d_head=D, causal=True, position=RoPE(D), attend=plug, scale=7**-0.5
    )
    ours.load_state_dict(theirs.state_dict())
    x, n = 3 * torch.randn(B, S, 18), torch.arange(S)
    visible = (n[:, None] >= n) & (n[:, None] < n + (window or S))
    angles = n[:, None] * 10_000.0 ** (-torch.arange(0, D, 2) / D)  # T D/2
    places = [f(torch.cat([angles, angles], -1))[None] for f in (torch.cos, torch.sin)]
    found = []
    for layer in (ours, theirs):
        y = x.clone().requires_grad_()
        if layer is ours:
            out = layer(y)
        else:
            hidden = torch.zeros(1, 1, S, S).masked_fill(~visible, -math.inf)
            out, _ = layer(y, places, hidden)
        out.square().sum().backward()
        found.append((out, y.grad, layer.q_proj.weight.grad, layer.k_proj.weight.grad))
    assert_close(*found)
    ours.attend = attend if window is None else Window(window)
    assert (ours(x) - found[1][0]).abs().max() > 1e-6  # without a cap it is not theirs


# --- in pieces ----------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 4])
def test_any_cut_gives_what_one_pass_gives(window):
    plug = SoftCap(0.7) if window is None else Window(window, attend=SoftCap(0.7))
    attn = with_norms(
        MultiHeadAttention(12, 6, 2, d_head=D, causal=True, position=RoPE(D), attend=plug)
    )
    x = 3 * torch.randn(B, 29, 12)
    whole = attn(x)
    for cut in cuts(29, 10):
        cache = KVCache(29) if window is None else WindowCache(window)
        parts = [attn(piece, cache=cache) for piece in x.split(cut, dim=1)]
        assert_close(torch.cat(parts, 1), whole)


def test_a_model_with_both_writes_on():
    model = Llama(LlamaConfig(31, 12, 2, 3, d_ff=17, max_len=29)).eval()
    for layer in model.layers:
        layer.attn = with_norms(layer.attn)
        layer.attn.attend = SoftCap(0.7)
    ids = torch.randint(31, (B, 29))
    for cut in cuts(29, 5):
        state = DecodingState([KVCache(29), KVCache(29)])
        parts = [model.step(piece, state) for piece in ids.split(cut, dim=1)]
        assert_close(torch.cat(parts, 1), model(ids))


# --- z-loss -------------------------------------------------------------------------------------


def test_z_loss_by_hand():
    logits, keep = 3 * torch.randn(B, T, S), torch.rand(B, T) < 0.5
    keep[0, 0], keep[1, 1] = True, False
    squares = {
        (b, t): math.log(sum(math.exp(z) for z in logits[b, t].tolist())) ** 2
        for b in range(B)
        for t in range(T)
    }
    assert z_loss(logits).item() == pytest.approx(sum(squares.values()) / (B * T))
    kept = [squares[at] for at in squares if keep[at]]
    assert z_loss(logits, keep=keep).item() == pytest.approx(sum(kept) / len(kept))
    with pytest.raises(AssertionError):
        assert z_loss(logits).item() == pytest.approx(sum(kept) / len(kept))


def test_its_gradient_is_the_formula_and_sums_to_the_slope_along_the_height():
    logits = (3 * torch.randn(B, T, S)).requires_grad_()
    assert torch.autograd.gradcheck(z_loss, logits)
    (slope,) = torch.autograd.grad(z_loss(logits), logits)
    log_z = logits.logsumexp(-1, keepdim=True)
    assert_close(slope, 2 * log_z * logits.softmax(-1) / (B * T))
    cross = nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(S, (B * T,)))
    (blind,) = torch.autograd.grad(cross, logits)
    assert_close(blind.sum(-1), torch.zeros(B, T))


def test_it_is_the_router_s_and_half_types_are_wide_enough():
    logits = 40 + torch.randn(17, 5)
    routing = Routing(logits, logits, logits.argmax(-1, keepdim=True), logits[:, :1])
    assert_close(z_loss(logits), router_z_loss(routing))
    half = logits.bfloat16()
    assert z_loss(half).dtype == torch.float32
    assert_close(z_loss(half).double(), z_loss(half.double()), rtol=1e-6, atol=0)
