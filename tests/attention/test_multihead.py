import pytest
import torch
from torch import nn

from transformer_lit.attention.attend import attend
from transformer_lit.attention.cache import KVCache
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.masks import causal_mask, length_mask, padding_mask
from transformer_lit.attention.multihead import (
    MultiHeadAttention,
    Position,
    distances,
    merge_heads,
    split_heads,
)

B, T, S, H, D, C = 2, 7, 13, 6, 5, 11  # C is not H·D


class Turn(Position):
    "A rotary plug: the first half of a head and its second half span planes that turn with pos."

    def rotate(self, x, pos):
        angle = pos[..., None] / (1.0 + torch.arange(x.shape[-1] // 2))
        cos, sin = (f.unsqueeze(-3) for f in (angle.cos(), angle.sin()))
        a, b, rest = x.tensor_split((x.shape[-1] // 2, x.shape[-1] // 2 * 2), -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)


class Near(Position):
    "A bias plug: the further, the lower, with a slope for each head."

    def bias(self, q, k, apart):
        return -apart.abs() * torch.arange(1.0, q.shape[1] + 1)[:, None, None] / 10


class Content(Position):
    "A bias plug that looks at the queries and the keys, not at their distance alone."

    def bias(self, q, k, apart):
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        return (q.sum(-1)[..., :, None] * (apart - 3.0) + k.sum(-1)[..., None, :] * apart) / 10


PLUGS = {"none": Position, "turn": Turn, "near": Near, "content": Content}


class Recorder(Position):
    "Remembers what it was asked."

    def __init__(self):
        super().__init__()
        self.calls = []

    def rotate(self, x, pos):
        self.calls.append(("rotate", x.shape[1], pos.tolist()))
        return x

    def bias(self, q, k, apart):
        self.calls.append(("bias", apart.tolist()))


def by_hand(m, x, source, causal=False):
    "Every head, row and query by itself; keys and values come from `source`."
    D, rows = m.d_head, []
    heads = m.q_proj.out_features // D
    shared = heads // (m.k_proj.out_features // D)  # query heads that read one key/value head
    for xb, sb in zip(x, source):
        out = []
        for t in range(len(xb)):
            sees = t + 1 if causal else len(sb)
            mixed = []
            for h in range(heads):
                mine, theirs = (slice(i * D, (i + 1) * D) for i in (h, h // shared))
                q = m.q_proj(xb[t])[mine]
                k, v = m.k_proj(sb[:sees])[:, theirs], m.v_proj(sb[:sees])[:, theirs]
                weight = torch.exp(k @ q / D**0.5)
                mixed.append((weight / weight.sum()) @ v)
            out.append(m.o_proj(torch.cat(mixed)))
        rows.append(torch.stack(out))
    return torch.stack(rows)


@pytest.mark.parametrize("kv_heads", [1, 2, 3, None])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kernel", [attend, attend_fused])
def test_self_and_cross_attention_by_hand(kv_heads, bias, kernel):
    parts = {"d_head": D, "bias": bias, "attend": kernel}
    x, y = torch.randn(B, T, C), torch.randn(B, S, C)
    for causal in (False, True):
        m = MultiHeadAttention(C, H, kv_heads, causal=causal, **parts)
        torch.testing.assert_close(m(x), by_hand(m, x, x, causal))
    m = MultiHeadAttention(C, H, kv_heads, **parts)
    torch.testing.assert_close(m(x, m.keys_values(y)), by_hand(m, x, y))


def torchs(m, d_model, n_heads):
    "`nn.MultiheadAttention` with the weights of m."
    theirs = nn.MultiheadAttention(d_model, n_heads, bias=True, batch_first=True)
    ours = (m.q_proj, m.k_proj, m.v_proj)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in ours]))
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in ours]))
        theirs.out_proj.load_state_dict(m.o_proj.state_dict())
    return theirs


def test_torchs_layer_self_causal_padded_and_cross():
    m = MultiHeadAttention(H * D, H, bias=True)
    theirs = torchs(m, H * D, H)
    x, y = torch.randn(B, T, H * D), torch.randn(B, S, H * D)
    keep = length_mask(torch.tensor([S, 5]))
    torch.testing.assert_close(m(x), theirs(x, x, x)[0])
    torch.testing.assert_close(m(x, m.keys_values(y)), theirs(x, y, y)[0])
    padded = m(x, m.keys_values(y), mask=padding_mask(keep))
    torch.testing.assert_close(padded, theirs(x, y, y, key_padding_mask=~keep)[0])
    m.causal = True
    torch.testing.assert_close(m(x), theirs(x, x, x, attn_mask=~causal_mask(T))[0])


def test_gradients_are_torchs():
    m = MultiHeadAttention(H * D, H, causal=True, bias=True)
    theirs = torchs(m, H * D, H)
    x = torch.randn(B, T, H * D)
    m(x).square().sum().backward()
    theirs(x, x, x, attn_mask=~causal_mask(T))[0].square().sum().backward()
    ours = torch.cat([p.weight.grad for p in (m.q_proj, m.k_proj, m.v_proj)])
    torch.testing.assert_close(ours, theirs.in_proj_weight.grad)
    torch.testing.assert_close(m.o_proj.weight.grad, theirs.out_proj.weight.grad)


def test_heads_are_neighbouring_slices():
    x = torch.arange(B * T * H * D).view(B, T, H * D).float()
    heads = split_heads(x, D)
    assert heads.shape == (B, H, T, D)
    for h in range(H):
        torch.testing.assert_close(heads[:, h], x[..., h * D : (h + 1) * D])
    torch.testing.assert_close(merge_heads(heads), x)


# --- what a query may see -----------------------------------------------------------------------


@pytest.mark.parametrize("plug", [Position, Turn, Near])  # Content's bias may look at any key
def test_no_gradient_from_the_future(plug):
    m = MultiHeadAttention(C, H, d_head=D, causal=True, position=plug())
    x = torch.randn(1, T, C, requires_grad=True)
    for t in range(T):
        (grad,) = torch.autograd.grad(m(x)[0, t].sum(), x)
        assert not grad[0, t + 1 :].any()
        assert grad[0, : t + 1].abs().sum(-1).all()


def test_what_the_mask_hides_does_not_matter():
    m = MultiHeadAttention(C, H, d_head=D)
    x, y = torch.randn(B, T, C), torch.randn(B, S, C)
    keep = length_mask(torch.tensor([S, 5]))
    out = m(x, m.keys_values(y), mask=padding_mask(keep))
    other = torch.where(keep[..., None], y, 100.0)
    torch.testing.assert_close(m(x, m.keys_values(other), mask=padding_mask(keep)), out)
    alone = m(x[1:], m.keys_values(y[1:, :5]))
    torch.testing.assert_close(out[1:], alone)


def test_a_row_that_sees_nothing_gives_the_offset_alone():
    m = MultiHeadAttention(C, H, d_head=D, bias=True)
    out = m(torch.randn(B, T, C), mask=torch.zeros(1, 1, T, T, dtype=torch.bool))
    torch.testing.assert_close(out, m.o_proj.bias.expand(B, T, C))


def test_without_a_plug_order_does_not_matter():
    m = MultiHeadAttention(C, H, d_head=D)
    x, order = torch.randn(B, T, C), torch.randperm(T)
    torch.testing.assert_close(m(x[:, order]), m(x)[:, order])


# --- position -----------------------------------------------------------------------------------


def test_the_null_plug_does_nothing():
    q = torch.randn(B, H, T, D)
    assert Position().rotate(q, torch.arange(T)) is q
    assert Position().bias(q, q, distances(torch.arange(T), torch.arange(T))) is None


@pytest.mark.parametrize("plug", ["turn", "near", "content"])
def test_a_plug_changes_the_result_and_breaks_the_symmetry(plug):
    m = MultiHeadAttention(C, H, d_head=D, position=PLUGS[plug]())
    x, order = torch.randn(B, T, C), torch.arange(T).flip(0).roll(2)
    plain = MultiHeadAttention(C, H, d_head=D)
    plain.load_state_dict(m.state_dict())
    assert not torch.allclose(m(x), plain(x))
    assert not torch.allclose(m(x[:, order]), m(x)[:, order])
    # moved together with their positions, the tokens give what they gave
    torch.testing.assert_close(m(x[:, order], pos=order), m(x, pos=torch.arange(T))[:, order])


def test_what_the_hooks_get():
    "Positions to rotate, distances for the bias: the keys of a cache stand before the new ones."
    plug = Recorder()
    m = MultiHeadAttention(C, H, 2, d_head=D, position=plug)
    cache = KVCache(7)
    m(torch.randn(B, 2, C), cache=cache)
    rotations = [("rotate", H, [0, 1]), ("rotate", 2, [0, 1])]
    assert plug.calls == [*rotations, ("bias", [[[[0, -1], [1, 0]]]])]
    plug.calls.clear()
    m(torch.randn(B, 2, C), cache=cache)
    rotations = [("rotate", H, [2, 3]), ("rotate", 2, [2, 3])]
    assert plug.calls == [*rotations, ("bias", [[[[2, 1, 0, -1], [3, 2, 1, 0]]]])]
    plug.calls.clear()
    rows = torch.tensor([[7, 8, 11], [1, 2, 3]])  # new ones may stand apart, row by row
    m(torch.randn(B, 3, C), pos=rows, cache=cache)
    first = [[4, 3, 2, 1, 0, -1, -4], [5, 4, 3, 2, 1, 0, -3], [8, 7, 6, 5, 4, 3, 0]]
    second = [[4, 3, 2, 1, 0, -1, -2], [5, 4, 3, 2, 1, 0, -1], [6, 5, 4, 3, 2, 1, 0]]
    assert plug.calls[2:] == [("bias", [[first], [second]])]
    plug.calls.clear()
    m.keys_values(torch.randn(B, 5, C))
    assert plug.calls == []  # without positions keys are not rotated


@pytest.mark.parametrize("plug", PLUGS)
def test_memory_made_of_x_itself_is_self_attention(plug):
    m = MultiHeadAttention(C, H, 2, d_head=D, causal=True, position=PLUGS[plug]())
    x = torch.randn(B, T, C)
    torch.testing.assert_close(m(x, m.keys_values(x, torch.arange(T))), m(x))


def test_memory_may_be_a_tensor_or_its_keys_and_values():
    m = MultiHeadAttention(C, H, 2, d_head=D)
    x, memory, mask = torch.randn(B, T, C), torch.randn(B, S, C), torch.rand(B, 1, T, S) < 0.5
    assert torch.equal(m(x, memory, mask=mask), m(x, m.keys_values(memory), mask=mask))


@pytest.mark.parametrize("plug", PLUGS)
@pytest.mark.parametrize("kernel", [attend, attend_fused])
@pytest.mark.parametrize("chunks", [(7,), (1, 1, 1, 1, 1, 1, 1), (4, 1, 2)])
def test_cached_is_full_with_every_kind_of_plug(plug, kernel, chunks):
    parts = {"d_head": D, "causal": True, "attend": kernel, "position": PLUGS[plug]()}
    m = MultiHeadAttention(C, H, 3, **parts)
    x, cache = torch.randn(B, T, C), KVCache(T)
    steps = [m(piece, cache=cache) for piece in x.split(chunks, 1)]
    torch.testing.assert_close(torch.cat(steps, 1), m(x))


@pytest.mark.parametrize("plug", PLUGS)
@pytest.mark.parametrize("chunks", [(7,), (4, 1, 2), (1, 1, 1, 1, 1, 1, 1)])
def test_rows_of_unequal_length_are_what_they_are_alone(plug, chunks):
    "Row 1 is padded on the left; its positions count from its first token, with the cache too."
    m = MultiHeadAttention(C, H, 3, d_head=D, causal=True, position=PLUGS[plug]())
    x, pads, cache = torch.randn(B, T, C), torch.tensor([0, 2]), KVCache(T)
    pos = torch.arange(T) - pads[:, None]  # B T
    keep, outs, start = padding_mask(pos >= 0), [], 0
    for size in chunks:
        now = slice(start, start + size)
        mask = keep[..., : now.stop]
        outs.append(m(x[:, now], pos=pos[:, now], mask=mask, cache=cache))
        start = now.stop
    out = torch.cat(outs, 1)
    torch.testing.assert_close(out[:1], m(x[:1]))
    torch.testing.assert_close(out[1:, 2:], m(x[1:, 2:]))


# --- the parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kv_heads", [1, 3, 6])
@pytest.mark.parametrize("bias", [False, True])
def test_parameters_are_counted_by_the_formula(kv_heads, bias):
    m = MultiHeadAttention(C, H, kv_heads, d_head=D, bias=bias)
    expected = 2 * C * D * (H + kv_heads) + bias * (D * (H + 2 * kv_heads) + C)
    assert sum(p.numel() for p in m.parameters()) == expected
    names = {f"{x}_proj.{part}" for x in "qkvo" for part in ("weight", "bias")[: 1 + bias]}
    assert set(m.state_dict()) == names


def test_the_heads_are_cut_from_the_model_width_unless_given():
    assert MultiHeadAttention(H * D, H).d_head == D
    m = MultiHeadAttention(C, 3, d_head=2)
    assert m(torch.randn(B, T, C)).shape == (B, T, C)


def test_the_kernel_gets_every_option():
    got = {}

    def kernel(q, k, v, **options):
        got.update(options)
        return q

    m = MultiHeadAttention(C, H, d_head=D, attend=kernel, scale=0.0, dropout=0.5, causal=True)
    mask = torch.ones(1, 1, T, T, dtype=torch.bool)
    m(torch.randn(B, T, C), mask=mask)
    assert got == {"mask": mask, "bias": None, "causal": True, "scale": 0.0, "dropout": 0.5}
    m.eval()(torch.randn(B, T, C))
    assert got["dropout"] == 0.0 and got["mask"] is None


class Loud(Position):
    "A plug with a scale of its own."

    def scale(self, d_head):
        return 3.0 * d_head


@pytest.mark.parametrize(
    ("plug", "given", "meant"),
    [(None, None, D**-0.5), (Loud(), None, 3.0 * D), (Loud(), 0.5, 0.5), (Loud(), 0.0, 0.0)],
)
def test_the_scale_is_the_one_given_or_the_plugs(plug, given, meant):
    "This catches the bug where a scale of 0 is taken for none."
    m = MultiHeadAttention(C, H, d_head=D, position=Turn(), scale=given)
    m.position = plug or Position()  # exchanged, it brings its scale along
    x = torch.randn(B, T, C)
    q, (k, v) = split_heads(m.q_proj(x), D), m.keys_values(x)
    weights = (meant * q @ k.mT).softmax(-1)
    torch.testing.assert_close(m(x), m.o_proj(merge_heads(weights @ v)))


@pytest.mark.parametrize("kernel", [attend, attend_fused])
def test_an_empty_batch_gives_an_empty_result(kernel):
    m = MultiHeadAttention(C, H, 2, d_head=D, causal=True, attend=kernel, position=Near())
    for T_ in (1, T):
        assert m(torch.randn(0, T_, C)).shape == (0, T_, C)


def test_it_can_be_built_without_memory():
    with torch.device("meta"):
        m = MultiHeadAttention(4096, 32, position=Turn())
        assert m(torch.empty(1, T, 4096)).shape == (1, T, 4096)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((11, 3), "d_model=11 is not a multiple of n_heads=3; give d_head"),
        ((12, 6, 4), "n_heads=6 is not a multiple of n_kv_heads=4"),
    ],
)
def test_sizes_that_do_not_divide_are_named(sizes, message):
    "This catches the bug where heads are rounded down, and the layer is narrower than asked for."
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(*sizes)


@pytest.mark.parametrize("shape", [(), (1, 7), (2, 1, 7)])
def test_positions_of_a_wrong_shape_are_named(shape, no_shape_checks):
    x = torch.randn(2, 7, C)
    with pytest.raises(ValueError) as error:
        MultiHeadAttention(C, H, d_head=D)(x, pos=torch.zeros(shape, dtype=torch.long))
    assert f"of x (2, 7, {C}), got {shape}" in str(error.value)


def test_memory_and_cache_exclude_each_other():
    m = MultiHeadAttention(C, H, d_head=D)
    x = torch.randn(B, T, C)
    cache = KVCache(T)
    with pytest.raises(ValueError, match="memory or cache, not both"):
        m(x, m.keys_values(x), cache=cache)
    assert cache.length == 0
