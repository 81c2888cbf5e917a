"""Experts against the three models that have them, with gradients; and the published mistakes."""

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.mixtral.modeling_mixtral import (
    MixtralSparseMoeBlock,
    load_balancing_loss_func,
)
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock
from wide import Wide

from transformer_lit.block.experts import (
    Experts,
    Routing,
    SigmoidRouter,
    SoftmaxRouter,
    balance_loss,
    router_z_loss,
    routings,
)
from transformer_lit.block.feedforward import GatedFeedForward
from transformer_lit.block.norm import RMSNorm
from transformer_lit.block.residual import PreNorm
from transformer_lit.models.llama import Llama, LlamaConfig

B, T, C, E, K, WIDTH = 2, 11, 5, 7, 3, 13
SIZES = {"hidden_size": C, "num_experts_per_tok": K, "hidden_act": "silu"}
DEEP = {**SIZES, "moe_intermediate_size": WIDTH, "n_routed_experts": E, "n_group": 1}
DEEP |= {"topk_group": 1, "n_shared_experts": 2, "routed_scaling_factor": 2.5}


def mixtral():
    config = hf.MixtralConfig(**SIZES, intermediate_size=WIDTH, num_local_experts=E)
    return MixtralSparseMoeBlock(config), SoftmaxRouter(C, E, K)


def qwen(renormalise):
    config = hf.Qwen3MoeConfig(
        **SIZES, moe_intermediate_size=WIDTH, num_experts=E, norm_topk_prob=renormalise
    )
    return Qwen3MoeSparseMoeBlock(config), SoftmaxRouter(C, E, K, renormalise=renormalise)


def deepseek():
    return DeepseekV3MoE(hf.DeepseekV3Config(**DEEP)), SigmoidRouter(C, E, K, scale=2.5)


MODELS = {
    "mixtral": mixtral,
    "qwen3": lambda: qwen(True),
    "qwen3 without division": lambda: qwen(False),
    "deepseek v3": deepseek,
}


def both(name):
    "Their block with random weights, and ours with the same."
    with Wide():
        theirs, router = MODELS[name]()
    for x in (*theirs.parameters(), *theirs.buffers()):
        x.data = torch.randn_like(x, dtype=torch.float64)
    gated = [GatedFeedForward(C, WIDTH) for _ in range(E)]
    shared = GatedFeedForward(C, 2 * WIDTH) if name == "deepseek v3" else None
    ours = Experts(router, gated, shared).double()
    router.linear.weight.data = theirs.gate.weight.data.clone()
    for expert, gate_up, down in zip(gated, theirs.experts.gate_up_proj, theirs.experts.down_proj):
        gate, up = gate_up.data.chunk(2)
        expert.gate_proj.weight.data, expert.up_proj.weight.data = gate.clone(), up.clone()
        expert.down_proj.weight.data = down.data.clone()
    if shared is not None:
        shared.load_state_dict(theirs.shared_experts.state_dict())
        router.bias.data = theirs.gate.e_score_correction_bias.data.clone()
    return theirs, ours


def outputs(theirs, ours):
    x = torch.randn(B, T, C)
    with Wide():
        return theirs(x), ours(x)


@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients_are_those_of_the_reference(name):
    theirs, ours = both(name)
    x, above = torch.randn(B, T, C), torch.randn(B, T, C)
    their_x, our_x = (x.clone().requires_grad_() for _ in range(2))
    with Wide():
        expected = theirs(their_x)
        expected.backward(above)
    out = ours(our_x)
    out.backward(above)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(our_x.grad, their_x.grad)
    torch.testing.assert_close(ours.router.linear.weight.grad, theirs.gate.weight.grad)
    gate_up, down = theirs.experts.gate_up_proj.grad, theirs.experts.down_proj.grad
    for e, expert in enumerate(ours.experts):  # 0 there, and None here, where nobody chose it
        grads = [p.grad if p.grad is not None else 0 * p for p in expert.parameters()]
        torch.testing.assert_close(torch.cat(grads[:2]), gate_up[e])
        torch.testing.assert_close(grads[2], down[e])


# --- published mistakes, planted ----------------------------------------------------------------


class DividedBefore(SoftmaxRouter):
    "Normalised over all experts, and not over the chosen."

    def forward(self, x):
        routing = super().forward(x)
        return routing._replace(gates=routing.scores.gather(-1, routing.chosen))


class BiasInGates(SigmoidRouter):
    def forward(self, x):
        routing = super().forward(x)
        gates = (routing.scores + self.bias).gather(-1, routing.chosen)
        return routing._replace(gates=self.scale * gates / gates.sum(-1, keepdim=True))


class SigmoidDividedBefore(SigmoidRouter):
    def forward(self, x):
        routing = super().forward(x)
        scores = routing.scores / routing.scores.sum(-1, keepdim=True)
        return routing._replace(gates=self.scale * scores.gather(-1, routing.chosen))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("mixtral", DividedBefore),
        ("qwen3", DividedBefore),
        ("deepseek v3", BiasInGates),
        ("deepseek v3", SigmoidDividedBefore),
    ],
)
def test_a_planted_fault_is_seen(name, fault):
    theirs, ours = both(name)
    torch.testing.assert_close(*outputs(theirs, ours))
    ours.router.__class__ = fault
    expected, out = outputs(theirs, ours)
    assert (out - expected).abs().max() > 1e-3 * expected.std()


# --- what must be so ----------------------------------------------------------------------------


def layer(k=K, router=SoftmaxRouter, **settings):
    return Experts(router(C, E, k, **settings), [GatedFeedForward(C, WIDTH) for _ in range(E)])


@pytest.mark.parametrize("router", [SoftmaxRouter, SigmoidRouter])
def test_all_experts_with_equal_gates_are_their_mean(router):
    experts, x = layer(E, router), torch.randn(B, T, C)
    experts.router.linear.weight.data.zero_()
    torch.testing.assert_close(experts(x), sum(expert(x) for expert in experts.experts) / E)


@pytest.mark.parametrize("router", [SoftmaxRouter, SigmoidRouter])
@pytest.mark.parametrize("k", [1, K, E])
def test_equal_experts_are_one_dense_network(router, k):
    dense, x = GatedFeedForward(C, WIDTH), torch.randn(B, T, C)
    torch.testing.assert_close(Experts(router(C, E, k), [dense] * E)(x), dense(x))


@pytest.mark.parametrize("router", [SoftmaxRouter, SigmoidRouter])
def test_the_order_of_experts_changes_nothing(router):
    one, order, x = layer(router=router), torch.randperm(E), torch.randn(B, T, C)
    if router is SigmoidRouter:
        one.router.bias.data = torch.randn(E)
    other = Experts(router(C, E, K), [one.experts[e] for e in order])
    other.router.load_state_dict({name: x[order] for name, x in one.router.state_dict().items()})
    torch.testing.assert_close(other(x), one(x))


def test_an_expert_learns_from_its_tokens_alone():
    experts, x = layer(), torch.randn(T, C)
    with routings(experts) as found:
        out = experts(x)
    for e, expert in enumerate(experts.experts):
        for token in range(T):
            (grad,) = torch.autograd.grad(
                out[token].sum(), expert.down_proj.weight, retain_graph=True, allow_unused=True
            )
            learns = grad is not None and bool(grad.abs().sum() > 0)
            assert learns == (e in found[0].chosen[token].tolist())


def test_a_token_does_not_depend_on_its_batch():
    experts, x = layer(), torch.randn(B, T, C)
    rows = [[experts(x[b, t]) for t in range(T)] for b in range(B)]
    torch.testing.assert_close(torch.stack([torch.stack(row) for row in rows]), experts(x))


def test_a_single_choice_learns_only_through_its_probability():
    for renormalise in (True, False):
        one = layer(1, renormalise=renormalise)
        one(torch.randn(T, C)).square().sum().backward()
        grad = one.router.linear.weight.grad
        assert bool((grad.abs() > 1e-12).any()) != renormalise


# --- balance ------------------------------------------------------------------------------------


def test_the_loss_of_balance_is_the_references_up_to_k():
    logits = [torch.randn(B * T, E) for _ in range(3)]  # of three layers
    with Wide():
        theirs = load_balancing_loss_func(tuple(logits), E, K)
    joined = torch.cat(logits)
    p = joined.softmax(-1)
    gates, chosen = p.topk(K)
    ours = balance_loss(Routing(joined, p, chosen, gates))
    torch.testing.assert_close(K * ours, theirs, rtol=1e-6, atol=0)  # it counts in float32


def test_balance_over_the_wrong_axis_is_blind():
    "The planted fault gives one number for a router in balance and for one that has collapsed."
    even = torch.full((12, 4), 0.25) + 1e-6 * torch.eye(4).repeat(3, 1)  # each expert three times
    collapsed = torch.tensor([0.97, 0.01, 0.01, 0.01]).expand(12, 4)

    def losses(p):
        gates, chosen = p.topk(1)
        along_experts = 4 * (F.one_hot(chosen, 4).double().mean((1, 2)) * p.mean(-1)).mean()
        return balance_loss(Routing(p.log(), p, chosen, gates)).item(), along_experts.item()

    (right, blind), (right_collapsed, blind_collapsed) = losses(even), losses(collapsed)
    assert right == pytest.approx(1) and right_collapsed == pytest.approx(4 * 0.97)
    assert blind == pytest.approx(blind_collapsed, rel=1e-5)


def test_a_step_down_the_loss_evens_the_load():
    router, x = SoftmaxRouter(C, E, 1, renormalise=False), torch.randn(1009, C)
    router.linear.weight.data[0] += 2 * x.mean(0) + 0.5
    before = router(x).load
    optimizer = torch.optim.Adam(router.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        balance_loss(router(x)).backward()
        optimizer.step()
    assert router(x).load.max() < 0.6 * before.max()


def test_the_bias_evens_the_load_and_has_no_gradient():
    router, x = SigmoidRouter(C, E, 2), torch.randn(1009, C)
    before = router(x).load
    for _ in range(300):
        router.balance(router(x), 0.003)
    after = router(x).load
    assert (after - 1 / E).abs().max() < 0.01 < (before - 1 / E).abs().max()
    router(x).gates.square().sum().backward()
    assert router.bias.grad is None and "bias" in router.state_dict()


def test_z_loss_by_hand():
    routing = SoftmaxRouter(C, E, K)(torch.randn(T, C))
    expected = routing.logits.exp().sum(-1).log().square().mean()
    torch.testing.assert_close(router_z_loss(routing), expected)


# --- in a model ---------------------------------------------------------------------------------


def model():
    llama = Llama(LlamaConfig(31, 12, 3, 3, d_ff=17, max_len=T))
    for part in llama.layers:
        part.ffn = Experts(SoftmaxRouter(12, E, K), [GatedFeedForward(12, 17) for _ in range(E)])
    return llama


def test_it_stands_where_a_feed_forward_network_stands():
    llama, ids = model(), torch.randint(31, (B, T))
    with routings(llama) as found:
        whole = llama(ids)
        state = llama.start(B, T)
        parts = [llama.step(piece, state) for piece in ids.split((4, 1, 6), 1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    assert len(found) == 3 * 4 and found[0].chosen.shape == (B * T, K)
    torch.testing.assert_close(
        torch.cat([r.chosen.view(B, -1, K) for r in found[3::3]], 1), found[0].chosen.view(B, T, K)
    )
    llama(ids)
    assert len(found) == 12  # the hooks are gone


def test_hooks_go_with_an_error():
    llama = model()
    with pytest.raises(RuntimeError, match="stop"), routings(llama):
        raise RuntimeError("stop")
    assert not any(part._forward_hooks for part in llama.modules())


def test_half_precision_under_autocast(single):
    experts, x = layer(), torch.randn(B, T, C)
    residual = PreNorm(RMSNorm(C))
    with torch.autocast("cpu", torch.bfloat16):
        out = residual(x, experts)
    out.sum().backward()
    assert out.dtype == torch.float32 and torch.isfinite(experts.router.linear.weight.grad).all()
