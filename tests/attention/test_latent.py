"""Latent attention: its two forms are one function; what its cache holds, and its options."""

import pytest
import torch
from torch import nn

from transformer_lit.attention.attend import attend
from transformer_lit.attention.cache import KVCache
from transformer_lit.attention.latent import LatentAttention
from transformer_lit.attention.windows import SinkLogit, Window
from transformer_lit.inference.sampling import generate
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.position.relative import ALiBi
from transformer_lit.position.rope import RoPE

B, C, H, D, R, E, RANK, Q_RANK, T = 2, 13, 3, 5, 4, 7, 11, 17, 23


def latent(**options):
    sizes = {"rank": RANK, "d_head": D, "d_rope": R, "d_value": E}
    return LatentAttention(C, H, **{"causal": True, "position": RoPE(R), **sizes, **options})


def forced(layer, absorbs):
    "The layer, always in one of its forms."
    layer.absorbs = lambda T, S: absorbs
    return layer


@pytest.mark.parametrize("q_rank", [None, Q_RANK])
@pytest.mark.parametrize("kernel", [attend, None, Window(5), SinkLogit(H)])
def test_both_forms_are_one_function_with_the_same_gradients(q_rank, kernel):
    layer = latent(q_rank=q_rank, **({"attend": kernel} if kernel else {}))
    nn.init.normal_(layer.kv_norm.weight)
    x, mask = torch.randn(B, T, C), torch.rand(B, 1, 1, T) < 0.8
    found = []
    for absorbs in (False, True):
        out = forced(layer, absorbs)(x, mask=mask)
        found.append([out, *torch.autograd.grad(out.sin().sum(), list(layer.parameters()))])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("q_rank", [None, Q_RANK])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_a_score_has_a_content_and_a_rotated_part(q_rank, scale):
    layer, x, pos = latent(q_rank=q_rank, scale=scale), torch.randn(B, T, C), torch.arange(T)
    normed = [layer.kv_norm, *([layer.q_proj[1]] if q_rank else [])]
    for norm in normed:
        nn.init.normal_(norm.weight)

    def rms(y, norm):
        return y / (y.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight

    q = x
    if q_rank:
        q = rms(x @ layer.q_proj[0].weight.T, layer.q_proj[1]) @ layer.q_proj[2].weight.T
    else:
        q = x @ layer.q_proj.weight.T
    q, q_rope = q.unflatten(-1, (H, D + R)).transpose(1, 2).split([D, R], -1)
    c, k_rope = (x @ layer.kv_down_proj.weight.T).split([RANK, R], -1)
    up = layer.kv_up_proj.weight.unflatten(0, (H, D + E))
    kv = torch.einsum("her,btr->bhte", up, rms(c, layer.kv_norm))
    turned = layer.position.rotate(k_rope[:, None], pos)
    scores = q @ kv[..., :D].mT + layer.position.rotate(q_rope, pos) @ turned.mT
    scores = scores * ((D + R) ** -0.5 if scale is None else scale)
    mask = torch.rand(B, 1, 1, T) < 0.8
    mask[..., 0] = True
    visible = mask & torch.ones(T, T, dtype=torch.bool).tril()
    heads = scores.masked_fill(~visible, -torch.inf).softmax(-1) @ kv[..., D:]
    expected = layer.o_proj(heads.transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x, mask=mask), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_holds_the_bytes_that_the_formula_says(dtype):
    layer, cache = latent().to(dtype), KVCache(T)
    layer(torch.randn(B, T, C, dtype=dtype), cache=cache)
    held = sum(x.untyped_storage().nbytes() for x in (cache.k, cache.v))
    assert held == B * T * (RANK + R) * dtype.itemsize


@pytest.mark.parametrize("sizes", [(2, 3, 5, 7), (19, 3, 2, 5), (11, 5, 4, 7)])
def test_the_form_is_the_one_with_fewer_multiplications(sizes):
    rank, d_head, d_rope, d_value = sizes
    layer = LatentAttention(C, H, rank=rank, d_head=d_head, d_rope=d_rope, d_value=d_value)
    for T, S in ((1, 1), (1, 7), (2, 31), (5, 31), (31, 31), (5, 499)):
        explicit = S * rank * (d_head + d_value) + T * S * (d_head + d_rope + d_value)
        absorbed = T * rank * (d_head + d_value) + 2 * T * S * (rank + d_rope)
        assert layer.absorbs(T, S) == (absorbed < explicit)


@pytest.mark.parametrize("absorbs", [False, True])
def test_weights_are_dropped_in_training_only(absorbs):
    asked = []

    def kernel(q, k, v, *, dropout, **options):
        asked.append(dropout)
        return attend(q, k, v, **options)

    layer, x = forced(latent(attend=kernel, dropout=0.25), absorbs), torch.randn(B, T, C)
    layer(x)
    layer.eval()(x)
    assert asked == [0.25, 0.0]


def test_a_llama_with_it_writes_as_without_a_cache():
    model = Llama(LlamaConfig(31, C, 2, 1, d_head=2, d_ff=17, max_len=T)).eval()
    for layer in model.layers:
        layer.attn = latent(q_rank=Q_RANK)
    ids = torch.randint(31, (1, 5))
    written = ids
    for _ in range(7):
        written = torch.cat([written, model(written)[:, -1:].argmax(-1)], 1)
    assert generate(model, ids, max_new_tokens=7, temperature=0) == written[:, 5:].tolist()


def test_what_would_be_lost_or_shared_is_refused(no_shape_checks):
    with pytest.raises(ValueError, match="ALiBi adds a bias"):
        latent(position=ALiBi(H))
    with pytest.raises(ValueError, match=f"with T={T}, got shape \\(1, {T}\\)"):
        latent()(torch.randn(B, T, C), pos=torch.arange(T)[None])
