"""A norm for each head, and z-loss. Soft-capping is among the kernels, and in every layer."""

import math

import pytest
import torch
from torch import nn

from transformer_lit.attention.attend import attend
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.attention.steady import PerHead, z_loss
from transformer_lit.position.rope import RoPE

B, T, H, D = 2, 5, 3, 4


def test_each_head_has_a_norm_of_its_own_before_the_rotation():
    attn = MultiHeadAttention(H * D, H, causal=True, position=RoPE(D))
    plain = [attn.q_proj, attn.k_proj]
    gains = torch.randn(2, D)
    for name, gain in zip(("q_proj", "k_proj"), gains):
        norm = nn.RMSNorm(D, eps=1e-6)
        norm.weight.data = gain.clone()
        setattr(attn, name, nn.Sequential(getattr(attn, name), PerHead(norm, D)))
    x, pos, turned = torch.randn(B, T, H * D), torch.arange(T), []
    for proj, gain in zip(plain, gains):
        heads = proj(x).unflatten(-1, (H, D)).transpose(1, 2)
        rms = (heads.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        turned.append(RoPE(D).rotate(heads / rms * gain, pos))
    v = attn.v_proj(x).unflatten(-1, (H, D)).transpose(1, 2)
    expected = attend(*turned, v, causal=True).transpose(1, 2).flatten(2)
    torch.testing.assert_close(attn(x), attn.o_proj(expected))


def test_z_loss_by_hand():
    logits, keep = 3 * torch.randn(B, T, 7), torch.rand(B, T) < 0.5
    keep[0, 0], keep[1, 1] = True, False
    squares = torch.tensor(
        [[math.log(sum(map(math.exp, row))) ** 2 for row in rows] for rows in logits.tolist()]
    )
    torch.testing.assert_close(z_loss(logits), squares.mean())
    torch.testing.assert_close(z_loss(logits, keep=keep), squares[keep].mean())
    assert torch.autograd.gradcheck(z_loss, logits.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_wide_enough(dtype):
    half = (40 + torch.randn(17, 5)).to(dtype)
    assert z_loss(half).dtype == torch.float32
    torch.testing.assert_close(z_loss(half).double(), z_loss(half.double()), rtol=1e-6, atol=0)
