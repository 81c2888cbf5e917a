"""Linear attention and the gated delta rule: step by step, in chunks, and Qwen3-Next's own."""

import inspect
from types import ModuleType

import pytest
import torch
from random_cuts import cuts
from torch.testing import assert_close
from transformers.models.qwen3_next import modeling_qwen3_next as qwen
from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig

from transformer_lit.attention import linear
from transformer_lit.attention.cache import DecodingState, KVCache
from transformer_lit.attention.linear import GatedDeltaNet, StateCache
from transformer_lit.course.exercises import edited
from transformer_lit.models.llama import Llama, LlamaConfig

B, H, K, D, E, C, T = 2, 6, 3, 5, 7, 13, 29


def inputs():
    "q and k of length 1, v, g, beta, and a state to begin with."
    q, k = torch.nn.functional.normalize(torch.randn(2, B, H, T, D), dim=-1)
    v, state = torch.randn(B, H, T, E), torch.randn(B, H, D, E)
    return q, k, v, -torch.rand(B, H, T), torch.rand(B, H, T), state


def written_out(q, k, v, g, beta, state):
    "The papers' form: S = α (I − β k kᵀ) S + β k vᵀ, with its matrices."
    outs = []
    for t in range(q.shape[2]):
        q_t, k_t, v_t = (x[:, :, t, :, None] for x in (q, k, v))  # B H D 1
        alpha, beta_t = (x[:, :, t, None, None] for x in (g.exp(), beta))
        keep = alpha * (torch.eye(D) - beta_t * k_t @ k_t.mT)
        state = keep @ state + beta_t * k_t @ v_t.mT
        outs.append(state.mT @ q_t)
    return torch.cat(outs, -1).mT, state


def hold(module, given):
    "All equalities of the three functions of a module."
    expected = written_out(*given)
    assert_close(module.recurrent_gated_delta_rule(*given), expected)
    for size in (1, 4, 11, T, 64):
        assert_close(module.chunk_gated_delta_rule(*given, chunk_size=size), expected)


def test_one_step_at_a_time_and_in_chunks_are_the_form_of_the_papers():
    hold(linear, inputs())


FAULTS = {
    "the decay's sign in a step": "g[:, :, t, None, None].exp() → (-g[:, :, t, None, None]).exp()",
    "the decay's sign in a chunk": "(v - c.exp() * → (v - (-c).exp() *",
    "a decay behind the error": "alpha * state # B H D E ⏎ state = state + → alpha * state +",
    "a pair that fades in its own step": "(c - c.mT).masked → (c - c.mT + g[..., None]).masked",
    "β on the value alone": "beta_t * k_t.mT @ (v_t - → k_t.mT @ (beta_t * v_t -",
    "β outside the sum": "state + beta_t * k_t → beta_t * state + k_t",
    "a chunk that reads its state one step late": "(v - c.exp() → (v - (c - g[..., None]).exp()",
    "a chunk that ends one step early": "last.exp() * state → c[:, :, -2:][:, :, :1].exp() * state",
    "a query that does not see its own pair": "fill(future, → fill(~future.mT,",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault):
    source = inspect.getsource(linear).replace("  #", " #")
    damaged = ModuleType("damaged")
    exec(edited(source, [FAULTS[fault]]), vars(damaged))
    with pytest.raises(AssertionError, match="Tensor-likes are not close"):
        hold(damaged, inputs())


def test_gradients_of_the_chunked_form_are_those_of_the_loop():
    for size in (1, 3, T):
        found = []
        for rule, sizes in (
            (linear.recurrent_gated_delta_rule, {}),
            (linear.chunk_gated_delta_rule, {"chunk_size": size}),
        ):
            torch.manual_seed(1)
            leaves = [x.requires_grad_() for x in inputs()]
            out, state = rule(*leaves, **sizes)
            weights = torch.randn(out.shape)
            found.append(torch.autograd.grad((out * weights).sum() + state.square().sum(), leaves))
        assert_close(*found)


def test_a_long_text_that_fades_fast_stays_finite():
    q, k, v, g, beta, _ = (x[:, :, :1].repeat(1, 1, 300, *[1] * (x.ndim - 3)) for x in inputs())
    given = [x.float() for x in (q, k, v, 0 * g - 9, beta)]  # e^-9 in each of 300 steps
    out, state = linear.chunk_gated_delta_rule(*given)
    assert out.isfinite().all() and state.isfinite().all()
    assert_close((out, state), linear.recurrent_gated_delta_rule(*given))


# --- Qwen3-Next ---------------------------------------------------------------------------------


class Doubles:
    "torch, with doubles where the reference asks for single precision."

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.fixture
def doubles(monkeypatch):
    monkeypatch.setattr(qwen, "torch", Doubles())
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


@pytest.mark.parametrize("chunk", [None, 4, 7, 64])
def test_the_rules_are_those_of_qwen3_next(chunk, doubles):
    q, k, v, g, beta, state = inputs()
    sizes = {} if chunk is None else {"chunk_size": chunk}
    theirs = qwen.torch_chunk_gated_delta_rule if sizes else qwen.torch_recurrent_gated_delta_rule
    ours = linear.chunk_gated_delta_rule if sizes else linear.recurrent_gated_delta_rule
    expected, end = theirs(
        *(x.transpose(1, 2) for x in (q, k, v, g, beta)),
        initial_state=state,
        output_final_state=True,
        **sizes,
    )  # B T H E; it divides the queries by √D
    out, ours_end = ours(q * D**-0.5, k, v, g, beta, state, **sizes)
    assert_close(out, expected.transpose(1, 2))
    assert_close(ours_end, end)


def pair():
    "Their layer and ours with its weights."
    config = Qwen3NextConfig(
        hidden_size=C,
        linear_num_key_heads=K,
        linear_num_value_heads=H,
        linear_key_head_dim=D,
        linear_value_head_dim=D,
    )
    theirs, ours = qwen.Qwen3NextGatedDeltaNet(config, 0), GatedDeltaNet(C, H, K, d_head=D)
    G = H // K  # heads of values for one of keys
    with torch.no_grad():
        theirs.dt_bias.normal_()
        theirs.norm.weight.normal_()
    blocks = theirs.in_proj_qkvz.weight.view(K, -1, C).split([D, D, G * D, G * D], 1)
    b, a = theirs.in_proj_ba.weight.view(K, 2 * G, C).split(G, 1)
    names = ("q_proj", "k_proj", "v_proj", "z_proj", "b_proj", "a_proj")
    weights = {f"{n}.weight": w.flatten(0, 1) for n, w in zip(names, (*blocks, b, a))}
    same = {name: getattr(theirs, name) for name in ("A_log", "dt_bias")}
    rest = {
        "conv.weight": theirs.conv1d.weight[:, 0],
        "norm.weight": theirs.norm.weight,
        "o_proj.weight": theirs.out_proj.weight,
    }
    ours.load_state_dict(weights | same | rest)
    return theirs, ours


def test_the_layer_is_that_of_qwen3_next_and_so_are_its_gradients(doubles):
    theirs, ours = pair()
    x = torch.randn(B, T, C, requires_grad=True)
    expected, out = theirs(x), ours(x)
    assert_close(out, expected)
    weights = torch.randn_like(expected)
    found = []
    for y, layer, conv in ((out, ours, ours.conv), (expected, theirs, theirs.conv1d)):
        leaves = [x, layer.A_log, layer.dt_bias, layer.norm.weight, conv.weight]
        found.append(torch.autograd.grad((y * weights).sum(), leaves))
    assert_close(found[0][:4], found[1][:4])
    assert_close(found[0][4], found[1][4][:, 0])


@pytest.mark.parametrize(
    "part", ["conv.weight", "A_log", "dt_bias", "norm.weight", "b_proj.weight"]
)
def test_each_part_of_the_layer_matters(part, doubles):
    theirs, ours = pair()
    with torch.no_grad():
        ours.get_parameter(part).mul_(0.9)
    x = torch.randn(B, T, C)
    assert (ours(x) - theirs(x)).abs().max() > 1e-3


# --- in a model ---------------------------------------------------------------------------------


def test_twenty_random_cuts_give_what_one_pass_gives():
    layer, x = GatedDeltaNet(C, H, K, d_head=D), torch.randn(B, T, C)
    whole = layer(x)
    for cut in cuts(T, 20):
        cache = StateCache()
        parts = [layer(piece, cache=cache) for piece in x.split(cut, dim=1)]
        assert_close(torch.cat(parts, 1), whole)
        assert cache.length == T and cache.state.shape == (B, H, D, D)
        assert cache.past.shape == (B, 3, (2 * K + H) * D)


def hybrid():
    "Every second layer has a state in place of a cache."
    model = Llama(LlamaConfig(31, 12, 4, 3, d_ff=17, max_len=T))
    for layer in model.layers[::2]:
        layer.attn = GatedDeltaNet(12, 3)
    caches = [StateCache() if i % 2 == 0 else KVCache(T + 2) for i in range(4)]
    return model.eval(), DecodingState(caches)


def test_a_hybrid_model_writes_on_and_exchanges_its_rows():
    model, state = hybrid()
    ids = torch.randint(31, (B, T))
    parts = [model.step(piece, state) for piece in ids.split(5, dim=1)]
    assert_close(torch.cat(parts, 1), model(ids))
    state.select(torch.tensor([1, 1, 0]))
    more, rows = torch.randint(31, (3, 2)), ids[[1, 1, 0]]
    assert_close(model.step(more, state), model(torch.cat([rows, more], 1))[:, T:])


def test_a_state_cannot_go_back_and_hides_nothing():
    cache, layer = StateCache(), GatedDeltaNet(C, H, K, d_head=D)
    cache.select(torch.tensor([0, 0]))  # nothing is held yet
    layer(torch.randn(B, 4, C), cache=cache)
    cache.truncate(4)
    for length in (-1, 0, 3, 5):
        with pytest.raises(ValueError, match=f"after 4 positions cannot go back to {length}"):
            cache.truncate(length)
    assert cache.length == 4
    with pytest.raises(ValueError, match="by a mask"):
        layer(torch.randn(B, 4, C), mask=torch.ones(B, 1, 1, 4, dtype=torch.bool))
