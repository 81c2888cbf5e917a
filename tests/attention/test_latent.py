"""Latent attention: its two forms, its cache, what it is at full rank, and DeepSeek's own layer."""

import pytest
import torch
from random_cuts import cuts
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
    DeepseekV3Attention,
    DeepseekV3RotaryEmbedding,
)

from transformer_lit.attention.attend import attend
from transformer_lit.attention.cache import DecodingState, GrowingCache, KVCache
from transformer_lit.attention.latent import LatentAttention
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.attention.windows import SinkLogit, Window, WindowCache
from transformer_lit.inference.sampling import generate
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.position.relative import ALiBi
from transformer_lit.position.rope import RoPE, interleaved_order
from transformer_lit.position.scaling import YaRNScaling

B, C, H, D, R, E, RANK, Q_RANK, T = 2, 13, 3, 5, 4, 7, 11, 17, 29
SIZES = {"rank": RANK, "d_head": D, "d_rope": R, "d_value": E}


def latent(**options):
    options = {"causal": True, "position": RoPE(R), **SIZES, **options}
    return LatentAttention(C, H, **options)


def forced(layer, absorbs):
    "The layer, always in one of its forms."
    layer.absorbs = lambda T, S: absorbs
    return layer


# --- two forms ----------------------------------------------------------------------------------


@pytest.mark.parametrize("q_rank", [None, Q_RANK])
@pytest.mark.parametrize("kernel", [attend, None, Window(5), SinkLogit(H)])
def test_both_forms_are_one_function_with_the_same_gradients(q_rank, kernel):
    layer = latent(q_rank=q_rank, **({"attend": kernel} if kernel else {}))
    layer.kv_norm.weight.data = torch.randn(RANK)
    x, mask = torch.randn(B, T, C), torch.rand(B, 1, 1, T) < 0.8
    found = []
    for absorbs in (False, True):
        out = forced(layer, absorbs)(x, mask=mask)
        found.append([out, *torch.autograd.grad(out.sin().sum(), list(layer.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("sizes", [(2, 3, 5, 7), (19, 3, 2, 5), (11, 5, 4, 7)])
def test_the_form_is_the_one_with_fewer_operations(sizes):
    rank, d_head, d_rope, d_value = sizes
    layer = LatentAttention(
        C, H, rank=rank, d_head=d_head, d_rope=d_rope, d_value=d_value, attend=attend
    )
    kinds = set()
    for new, held in ((1, 1), (1, 7), (2, 31), (5, 31), (31, 31), (5, 499)):
        q, kept = torch.randn(B, H, new, d_head + d_rope), torch.randn(B, 1, held, rank + d_rope)
        counts = []
        for form in (layer.absorbed, layer.explicit):
            with FlopCounterMode(display=False) as counter:
                form(q, kept)
            counts.append(counter.get_total_flops())
        assert layer.absorbs(new, held) == (counts[0] < counts[1])
        kinds.add(layer.absorbs(new, held))
    assert True in kinds


def test_full_rank_is_multi_head_attention():
    "Where nothing stands apart a rotation has no place, so positions are left out."
    plain = MultiHeadAttention(C, H, d_head=D, causal=True)
    full = LatentAttention(C, H, rank=C, d_head=D, norm=nn.Identity, causal=True)
    mix = torch.randn(C, C)  # any matrix that can be undone
    full.kv_down_proj.weight.data = mix
    k, v = (x.weight.unflatten(0, (H, D)) @ mix.inverse() for x in (plain.k_proj, plain.v_proj))
    full.kv_up_proj.weight.data = torch.cat([k, v], 1).flatten(0, 1).detach()
    full.q_proj, full.o_proj = plain.q_proj, plain.o_proj
    x = torch.randn(B, T, C)
    for absorbs in (False, True):
        torch.testing.assert_close(forced(full, absorbs)(x), plain(x))


# --- the cache ----------------------------------------------------------------------------------


@pytest.mark.parametrize("absorbs", [None, False, True])
def test_twenty_random_cuts_give_what_one_pass_gives(absorbs):
    layer, x = latent(q_rank=Q_RANK), torch.randn(B, T, C)
    whole = layer(x)
    layer = layer if absorbs is None else forced(layer, absorbs)
    for cut in cuts(T, 20):
        cache = KVCache(T)
        parts = [layer(piece, cache=cache) for piece in x.split(cut, dim=1)]
        torch.testing.assert_close(torch.cat(parts, 1), whole)


def test_a_window_forgets_latents_too():
    layer, x, cache = latent(attend=Window(5)), torch.randn(B, T, C), WindowCache(5)
    parts = [layer(piece, cache=cache) for piece in x.split(3, dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), layer(x))
    assert cache.k.shape == (B, 1, 4, RANK + R)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_holds_the_bytes_that_the_formula_says(dtype):
    layer, cache = latent().to(dtype), KVCache(T)
    layer(torch.randn(B, T, C, dtype=dtype), cache=cache)
    held = sum(x.untyped_storage().nbytes() for x in (cache.k, cache.v))
    assert held == B * T * (RANK + R) * dtype.itemsize


@pytest.mark.parametrize("new", [lambda: KVCache(T), GrowingCache])
def test_rows_can_be_chosen_and_positions_taken_back(new):
    layer, x, cache = latent(), torch.randn(B, T, C), new()
    layer(x[:, :17], cache=cache)
    cache.truncate(11)
    rows = torch.tensor([1, 1, 0])
    cache.select(rows)
    torch.testing.assert_close(layer(x[rows, 11:], cache=cache), layer(x[rows])[:, 11:])


def test_places_may_differ_from_row_to_row():
    layer, x = latent(), torch.randn(B, T, C)
    pos = torch.arange(T) + torch.tensor([[0], [100]])
    torch.testing.assert_close(layer(x, pos=pos), layer(x))  # only distances count
    with pytest.raises(ValueError, match=f"pos needs shape T or B T .* got \\(1, {T}\\)"):
        layer(x, pos=torch.arange(T)[None])


@pytest.mark.parametrize("absorbs", [False, True])
def test_what_a_mask_hides_is_as_if_it_were_not_there(absorbs):
    layer, x = forced(latent(), absorbs), torch.randn(B, T, C)
    mask = (torch.arange(T) >= 7)[None, None, None]
    torch.testing.assert_close(layer(x, mask=mask)[:, 7:], layer(x[:, 7:]))


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


def test_a_bias_would_be_lost_and_is_refused():
    with pytest.raises(ValueError, match="ALiBi has a bias"):
        latent(position=ALiBi(H))


# --- DeepSeek's own -----------------------------------------------------------------------------

YARN = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 64}
YARN |= {"mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1}


def theirs(q_rank=Q_RANK, interleaved=True, **rope):
    "A layer of the reference with random weights; its sums in float64 wherever it allows."
    config = DeepseekV3Config(
        hidden_size=C,
        num_attention_heads=H,
        num_key_value_heads=H,
        q_lora_rank=q_rank,
        kv_lora_rank=RANK,
        qk_nope_head_dim=D,
        qk_rope_head_dim=R,
        v_head_dim=E,
        max_position_embeddings=2560,
        rope_interleave=interleaved,
        rope_parameters={"rope_theta": 10_000.0, "rope_type": "default", **rope},
        attn_implementation="sdpa",  # the eager form has its softmax in float32
    )
    layer = DeepseekV3Attention(config, 0).to(torch.get_default_dtype())
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn_like(p) / 2)
    return layer


def ours(layer, *, position=None, **options):
    "Our layer with the weights of theirs."
    c = layer.config
    options = {"position": position or RoPE(R), "q_rank": c.q_lora_rank, **options}
    mine, state = latent(**options), dict(layer.state_dict())
    if c.rope_interleave:  # rows of the rotated parts, in the order of ours
        order = interleaved_order(R)
        name = "q_proj.weight" if c.q_lora_rank is None else "q_b_proj.weight"
        heads = state[name].unflatten(0, (H, D + R))
        state[name] = torch.cat([heads[:, :D], heads[:, D:][:, order]], 1).flatten(0, 1)
        down = state["kv_a_proj_with_mqa.weight"]
        state["kv_a_proj_with_mqa.weight"] = torch.cat([down[:RANK], down[RANK:][order]])
    names = {"q_a_proj": "q_proj.0", "q_a_layernorm": "q_proj.1", "q_b_proj": "q_proj.2"}
    names |= {"kv_a_proj_with_mqa": "kv_down_proj", "kv_a_layernorm": "kv_norm"}
    names |= {"kv_b_proj": "kv_up_proj", "q_proj": "q_proj", "o_proj": "o_proj"}
    mine.load_state_dict({f"{names[n[:-7]]}.weight": w for n, w in state.items()})
    return mine


def exact(layer):
    "Theirs with norms that are ours, since its own are computed in float32."
    for name in ("q_a_layernorm", "kv_a_layernorm"):
        if (norm := getattr(layer, name)) is not None:
            new = nn.RMSNorm(len(norm.weight), eps=1e-6)
            new.weight = norm.weight
            setattr(layer, name, new)
    return layer


def told(layer, x, rope):
    "What theirs gives for angles of ours."
    cos, signed = rope.tables(torch.arange(x.shape[1]), x)
    sin = torch.cat([signed[:, R // 2 :]] * 2, -1)
    return layer(x, (cos[None], sin[None]), None)[0]


def compare(mine, their_layer, rope):
    x = torch.randn(B, T, C, requires_grad=True)
    up = torch.randn(B, T, C)
    found, expected = mine(x), told(their_layer, x, rope)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(y, x, up)[0] for y in (found, expected)))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("q_rank", [None, Q_RANK])
@pytest.mark.parametrize("absorbs", [False, True])
def test_it_is_the_layer_of_deepseek(interleaved, q_rank, absorbs):
    layer = exact(theirs(q_rank, interleaved))
    compare(forced(ours(layer), absorbs), layer, RoPE(R))


def test_and_with_its_own_norms_in_float32(single):
    layer = theirs()
    compare(ours(layer), layer, RoPE(R))


def test_every_parameter_gets_its_gradient():
    layer = exact(theirs(interleaved=False))
    mine, x = ours(layer), torch.randn(B, T, C)
    mine(x).sin().sum().backward()
    told(layer, x, RoPE(R)).sin().sum().backward()
    pairs = [(mine.q_proj[0], layer.q_a_proj), (mine.q_proj[1], layer.q_a_layernorm)]
    pairs += [(mine.q_proj[2], layer.q_b_proj), (mine.kv_norm, layer.kv_a_layernorm)]
    pairs += [(mine.kv_down_proj, layer.kv_a_proj_with_mqa), (mine.kv_up_proj, layer.kv_b_proj)]
    pairs += [(mine.o_proj, layer.o_proj)]
    for one, other in pairs:
        torch.testing.assert_close(one.weight.grad, other.weight.grad)
    assert len(list(mine.parameters())) == len(pairs)


def scaled(twice=False):
    "Our layer and angles for YaRN: its factor on the scale, and `twice` on cosines and sines too."
    factor, length = YARN["factor"], YARN["original_max_position_embeddings"]
    m = YaRNScaling(factor, length)(R, 10_000.0)[1]
    rope = RoPE(R, scaling=YaRNScaling(factor, length, attention_factor=None if twice else 1.0))
    layer = exact(theirs(**YARN))
    return ours(layer, position=rope, scale=m**2 / (D + R) ** 0.5), layer, rope


def test_yarn_s_factor_is_on_the_scale_and_not_on_the_angles():
    mine, layer, rope = scaled()
    compare(mine, layer, rope)
    pos, like = torch.arange(T), torch.zeros(1, dtype=torch.float32)
    own = DeepseekV3RotaryEmbedding(layer.config)(like, pos[None])
    for one, other in zip(own, rope.tables(pos, like), strict=True):
        torch.testing.assert_close(one[0].abs(), other.abs(), rtol=0, atol=T * 2**-23)  # of angles


# --- faults that others published, planted ------------------------------------------------------


def wrong_scale(mine, layer):
    mine.scale = (RANK + R) ** -0.5  # the width that the absorbed form sees


def scale_of_the_content_alone(mine, layer):
    mine.scale = D**-0.5


def norm_forgotten(mine, layer):
    mine.kv_norm = nn.Identity()


def order_forgotten(mine, layer):
    "Pairs of neighbours, taken for pairs of halves."
    layer.config.rope_interleave = False


def content_rotated(mine, layer):
    "RoPE on the part that is to be folded."
    rope, plain = RoPE(RANK + 1), mine.latents

    def latents(x, pos):
        c, k_rope = plain(x, pos).split([RANK, R], -1)
        c = nn.functional.pad(c, (0, 1))
        return torch.cat([rope.rotate(c, pos)[..., :RANK], k_rope], -1)

    mine.latents = latents


def key_not_rotated(mine, layer):
    plain = mine.position

    class Queries(nn.Module):
        def rotate(self, x, pos):
            return x if x.shape[1] == 1 else plain.rotate(x, pos)

    mine.position = Queries()


@pytest.mark.parametrize(
    "plant",
    [
        *(wrong_scale, scale_of_the_content_alone, norm_forgotten),
        *(order_forgotten, content_rotated, key_not_rotated),
    ],
)
def test_a_planted_fault_is_seen(plant):
    layer = exact(theirs())
    mine = ours(layer)
    compare(mine, layer, RoPE(R))
    plant(mine, layer)
    with pytest.raises(AssertionError):
        compare(mine, layer, RoPE(R))


def test_yarn_s_factor_applied_twice_is_seen():
    mine, layer, _ = scaled(twice=True)
    with pytest.raises(AssertionError):
        compare(mine, layer, scaled()[2])


# --- in a model ---------------------------------------------------------------------------------


def test_a_llama_with_it_learns_and_generates_as_without_a_cache():
    model = Llama(LlamaConfig(31, C, 2, 1, d_head=2, d_ff=17, max_len=T))
    rope = RoPE(R)
    for layer in model.layers:
        layer.attn = latent(position=rope, q_rank=Q_RANK)
    ids = torch.randint(31, (B, T))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses = []
    for _ in range(3):
        logits = model(ids[:, :-1])
        losses.append(nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()))
        optimizer.zero_grad()
        losses[-1].backward()
        assert all(p.grad is not None and p.grad.any() for p in model.parameters())
        optimizer.step()
    assert losses[2] < losses[0]
    model.eval()
    whole = model(ids)
    for cut in ([T], [1] * T, [11, 1, 17]):
        state = model.start(B, T)
        parts = [model.step(piece, state) for piece in ids.split(cut, dim=1)]
        torch.testing.assert_close(torch.cat(parts, 1), whole)
    assert isinstance(state, DecodingState)
    assert all(c.k.shape == (B, 1, T, RANK + R) and not c.v.numel() for c in state.caches)
    written = ids[:1, :5]
    for _ in range(7):
        written = torch.cat([written, model(written)[:, -1:].argmax(-1)], 1)
    assert generate(model, ids[:1, :5], max_new_tokens=7, temperature=0) == written[:, 5:].tolist()
