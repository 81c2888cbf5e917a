"""Norms, feed-forward networks, first weights and experts are those of `transformers`."""

import pytest
import torch
import transformers as hf
from torch import nn
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm
from transformers.models.mixtral.modeling_mixtral import (
    MixtralSparseMoeBlock,
    load_balancing_loss_func,
)
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock
from transformers.models.t5.modeling_t5 import T5DenseGatedActDense, T5LayerNorm
from wide import Wide

from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.block.experts import (
    Experts,
    Routing,
    SigmoidRouter,
    SoftmaxRouter,
    balance_loss,
)
from transformer_lit.block.feedforward import FeedForward, GatedFeedForward
from transformer_lit.block.init import gpt2_init
from transformer_lit.block.layers import EncoderLayer
from transformer_lit.block.norm import LayerNorm, RMSNorm
from transformer_lit.block.residual import PreNorm
from transformer_lit.position.absolute import LearnedPosition
from transformer_lit.text.embedding import TokenEmbedding


@pytest.mark.parametrize("their_norm", [LlamaRMSNorm, T5LayerNorm])
@pytest.mark.parametrize("size", [1.0, 1e-2, 0.0])
def test_rms_norm_is_that_of_llama_and_t5(their_norm, size):
    "The smaller rows tell eps inside the root from eps outside it."
    theirs, ours = their_norm(7, eps=1e-3), RMSNorm(7, eps=1e-3)
    nn.init.normal_(theirs.weight)
    ours.load_state_dict(theirs.state_dict())
    x = size * torch.randn(2, 3, 7)
    with Wide():  # they would take their statistics in float32
        expected = theirs(x)
    torch.testing.assert_close(ours(x), expected)


def t5(kind):
    config = hf.T5Config(d_model=5, d_ff=11, feed_forward_proj=kind, dropout_rate=0.0)
    return T5DenseGatedActDense(config)


def llama():
    sizes = {"hidden_size": 5, "intermediate_size": 11, "num_attention_heads": 1, "head_dim": 2}
    return LlamaMLP(hf.LlamaConfig(**sizes))


T5_NAMES = {"wi_0": "gate_proj", "wi_1": "up_proj", "wo": "down_proj"}


@pytest.mark.parametrize(
    ("theirs", "name"),
    [
        (llama, "silu"),
        (lambda: t5("gated-gelu"), "gelu_tanh"),
        (lambda: t5("gated-relu"), "relu"),
    ],
)
def test_gated_networks_are_those_of_llama_and_t5(theirs, name):
    theirs, ours = theirs(), GatedFeedForward(5, 11, activation=name)
    weights = {key.partition(".")[0]: w for key, w in theirs.state_dict().items()}
    ours.load_state_dict({f"{T5_NAMES.get(k, k)}.weight": w for k, w in weights.items()})
    x = torch.randn(2, 7, 5)
    torch.testing.assert_close(ours(x), theirs(x))


def test_gpt2_init_is_what_the_library_does():
    "The deviations by name, against those of their model, freshly made: known to 1.1 % each."
    sizes = {"n_embd": 64, "n_head": 4, "n_layer": 3, "vocab_size": 1009, "n_positions": 211}
    theirs = dict(hf.GPT2LMHeadModel(hf.GPT2Config(**sizes)).transformer.named_parameters())
    ours = nn.Module()
    ours.tok_emb, ours.position = TokenEmbedding(1009, 64), LearnedPosition(211, 64)
    ours.layer = EncoderLayer(
        MultiHeadAttention(64, 4, causal=True, bias=True),
        FeedForward(64, 256),
        residual=lambda: PreNorm(LayerNorm(64)),
    )
    gpt2_init(ours, 3)
    names = {
        "tok_emb": "wte",
        "position": "wpe",
        "layer.attn.q_proj": "h.1.attn.c_attn",
        "layer.attn.o_proj": "h.1.attn.c_proj",
        "layer.ffn.up_proj": "h.1.mlp.c_fc",
        "layer.ffn.down_proj": "h.1.mlp.c_proj",
    }
    ours = dict(ours.named_parameters())
    for own, other in names.items():
        expected = theirs[f"{other}.weight"].std().item()
        assert ours[f"{own}.weight"].std().item() == pytest.approx(expected, rel=0.06), own


# --- experts --------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("name", MODELS)
def test_experts_give_outputs_and_gradients_of_the_reference(name):
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
    for e, expert in enumerate(ours.experts):  # 0 there, and None here, where no token chose it
        grads = [p.grad if p.grad is not None else 0 * p for p in expert.parameters()]
        torch.testing.assert_close(torch.cat(grads[:2]), gate_up[e])
        torch.testing.assert_close(grads[2], down[e])


def test_the_loss_of_balance_is_the_references_up_to_k():
    logits = [torch.randn(B * T, E) for _ in range(3)]  # of three layers
    with Wide():
        theirs = load_balancing_loss_func(tuple(logits), E, K)
    joined = torch.cat(logits)
    p = joined.softmax(-1)
    gates, chosen = p.topk(K)
    ours = balance_loss(Routing(joined, p, chosen, gates))
    torch.testing.assert_close(K * ours, theirs, rtol=1e-6, atol=0)  # it counts in float32
