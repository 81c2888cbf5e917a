"""Experts instead of a feed-forward network: in a model, watched by hooks, in 16 bits.

Values and gradients are compared with three published models in tests/oracle/test_block.py.
"""

import pytest
import torch

from transformer_lit.block.experts import (
    Experts,
    Routing,
    SigmoidRouter,
    SoftmaxRouter,
    balance_loss,
    routings,
)
from transformer_lit.block.feedforward import GatedFeedForward
from transformer_lit.block.norm import RMSNorm
from transformer_lit.block.residual import PreNorm
from transformer_lit.models.llama import Llama, LlamaConfig

B, T, C, E, K = 2, 11, 12, 7, 3


def layer():
    return Experts(SoftmaxRouter(C, E, K), [GatedFeedForward(C, 17) for _ in range(E)])


def model():
    llama = Llama(LlamaConfig(31, C, 3, 3, d_ff=17, max_len=T))
    for part in llama.layers:
        part.ffn = layer()
    return llama


def test_experts_replace_a_feed_forward_network_in_a_model():
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


def test_scores_that_do_not_sum_to_1_are_divided_for_the_balance():
    logits, scores, chosen, gates = SigmoidRouter(C, E, K)(torch.randn(T, C))
    shares = scores / scores.sum(-1, keepdim=True)
    sigmoids, softmax = (Routing(logits, s, chosen, gates) for s in (scores, shares))
    torch.testing.assert_close(balance_loss(sigmoids), balance_loss(softmax))


def test_half_precision_under_autocast(single):
    experts, x = layer(), torch.randn(B, T, C)
    residual = PreNorm(RMSNorm(C))
    with torch.autocast("cpu", torch.bfloat16):
        out = residual(x, experts)
    out.sum().backward()
    assert out.dtype == torch.float32 and torch.isfinite(experts.router.linear.weight.grad).all()


@pytest.mark.usefixtures("no_shape_checks")  # a length that is exported is no whole number
def test_an_exported_layer_has_all_experts_and_takes_other_lengths():
    experts = layer()
    shapes = {"x": {1: torch.export.Dim("T", max=64)}}
    program = torch.export.export(experts, (torch.randn(B, T, C),), dynamic_shapes=shapes)
    x = torch.randn(B, 17, C)
    torch.testing.assert_close(program.module()(x), experts(x))
