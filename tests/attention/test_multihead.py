"""The layer: what its plugs and kernels are asked, its parameters, and what it refuses."""

import pytest
import torch

from transformer_lit.attention.attend import attend
from transformer_lit.attention.cache import KVCache
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.multihead import (
    MultiHeadAttention,
    Position,
    distances,
    merge_heads,
    split_heads,
)

B, T, S, H, D, C = 2, 7, 13, 6, 5, 11  # C is not H·D


def layer(n_kv_heads=2, **options):
    return MultiHeadAttention(C, H, n_kv_heads, d_head=D, **options)


class Turn(Position):
    "A rotary plug: the two halves of a head turn against each other."

    def rotate(self, x, pos):
        angle = pos[..., None] / (1.0 + torch.arange(x.shape[-1] // 2))
        cos, sin = (f.unsqueeze(-3) for f in (angle.cos(), angle.sin()))
        a, b, rest = x.tensor_split((x.shape[-1] // 2, x.shape[-1] // 2 * 2), -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)


class Content(Position):
    "A bias plug that looks at the queries and the keys, not at their distance alone."

    def bias(self, q, k, apart):
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        return (q.sum(-1)[..., :, None] * (apart - 3.0) + k.sum(-1)[..., None, :] * apart) / 10


class Loud(Position):
    "A plug with a scale of its own."

    def scale(self, d_head):
        return 3.0 * d_head


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

    def new_calls(self):
        calls, self.calls = self.calls, []
        return calls


@pytest.mark.parametrize("kernel", [attend, attend_fused])
@pytest.mark.parametrize("kv_heads", [1, 2, H])
@pytest.mark.parametrize("bias", [False, True])
def test_self_and_cross_attention_are_heads_side_by_side(kernel, kv_heads, bias):
    x, y = torch.randn(B, T, C), torch.randn(B, S, C)
    m = layer(kv_heads, bias=bias, attend=kernel)
    for memory in (None, y):
        found, source = torch.zeros(B, T, C), x if memory is None else y
        for h in range(H):
            mine, theirs = (slice(i * D, (i + 1) * D) for i in (h, h // (H // kv_heads)))
            q, k, v = m.q_proj(x)[..., mine], m.k_proj(source), m.v_proj(source)
            weights = (q @ k[..., theirs].mT / D**0.5).softmax(-1)
            found += weights @ v[..., theirs] @ m.o_proj.weight[:, mine].T
        found = found + m.o_proj.bias if bias else found
        torch.testing.assert_close(m(x, memory), found)


@pytest.mark.parametrize("plug", [Position, Turn])
def test_memory_made_of_x_itself_is_self_attention(plug):
    m, x = layer(causal=True, position=plug()), torch.randn(B, T, C)
    torch.testing.assert_close(m(x, m.keys_values(x, torch.arange(T))), m(x))


@pytest.mark.parametrize("plug", [Turn, Content])
def test_places_in_two_texts_are_not_compared(plug):
    m, x, memory = layer(position=plug()), torch.randn(B, T, C), torch.randn(B, S, C)
    both = [memory] if plug is Turn else [memory, m.keys_values(memory)]
    for given in both:
        with pytest.raises(ValueError, match=f"{plug.__name__} compares positions in one text"):
            m(x, given)


def test_what_the_hooks_get():
    "Positions to rotate, distances for the bias: the keys of a cache stand before the new ones."
    m, cache = layer(position=Recorder()), KVCache(7)
    m(torch.randn(B, 2, C), cache=cache)
    rotations = [("rotate", H, [0, 1]), ("rotate", 2, [0, 1])]
    assert m.position.new_calls() == [*rotations, ("bias", [[[[0, -1], [1, 0]]]])]
    m(torch.randn(B, 2, C), cache=cache)
    rotations = [("rotate", H, [2, 3]), ("rotate", 2, [2, 3])]
    assert m.position.new_calls() == [*rotations, ("bias", [[[[2, 1, 0, -1], [3, 2, 1, 0]]]])]
    rows = torch.tensor([[7, 8, 11], [1, 2, 3]])  # new ones may stand apart, row by row
    m(torch.randn(B, 3, C), pos=rows, cache=cache)
    first = [[4, 3, 2, 1, 0, -1, -4], [5, 4, 3, 2, 1, 0, -3], [8, 7, 6, 5, 4, 3, 0]]
    second = [[4, 3, 2, 1, 0, -1, -2], [5, 4, 3, 2, 1, 0, -1], [6, 5, 4, 3, 2, 1, 0]]
    assert m.position.new_calls()[2:] == [("bias", [[first], [second]])]
    m.keys_values(torch.randn(B, 5, C))
    assert m.position.new_calls() == []  # without positions keys are not rotated


def test_distances_of_rows_that_differ():
    q_pos, k_pos = torch.randint(31, (3, 5)), torch.randint(31, (3, 7))
    for q, k in ((q_pos, k_pos), (q_pos, k_pos[1]), (q_pos[2], k_pos), (q_pos[0], k_pos[0])):
        rows = max(q.ndim, k.ndim) * 2 - 1
        expected = [
            [[[int(a - b) for b in k.expand(rows, 7)[r]] for a in q.expand(rows, 5)[r]]]
            for r in range(rows)
        ]
        assert distances(q, k).tolist() == expected


def test_the_kernel_gets_every_option():
    got = {}

    def kernel(q, k, v, **options):
        got.update(options)
        return q

    m = layer(attend=kernel, scale=0.0, dropout=0.5, causal=True)
    mask = torch.ones(1, 1, T, T, dtype=torch.bool)
    m(torch.randn(B, T, C), mask=mask)
    assert got == {"mask": mask, "bias": None, "causal": True, "scale": 0.0, "dropout": 0.5}
    m.eval()(torch.randn(B, T, C))
    assert got["dropout"] == 0.0 and got["mask"] is None


@pytest.mark.parametrize(
    ("plug", "given", "meant"),
    [(None, None, D**-0.5), (Loud(), None, 3.0 * D), (Loud(), 0.5, 0.5), (Loud(), 0.0, 0.0)],
)
def test_the_scale_is_the_one_given_or_the_plugs(plug, given, meant):
    "This catches the bug where a scale of 0 is taken for none."
    m, x = layer(H, position=Turn(), scale=given), torch.randn(B, T, C)
    m.position = plug or Position()  # exchanged, it brings its scale along
    q, (k, v) = split_heads(m.q_proj(x), D), m.keys_values(x)
    weights = (meant * q @ k.mT).softmax(-1)
    torch.testing.assert_close(m(x), m.o_proj(merge_heads(weights @ v)))


@pytest.mark.parametrize("bias", [False, True])
def test_parameters_are_counted_by_the_formula(bias):
    m = layer(3, bias=bias)
    expected = 2 * C * D * (H + 3) + bias * (D * (H + 2 * 3) + C)
    assert sum(p.numel() for p in m.parameters()) == expected
    names = {f"{x}_proj.{part}" for x in "qkvo" for part in ("weight", "bias")[: 1 + bias]}
    assert set(m.state_dict()) == names


@pytest.mark.parametrize("kernel", [attend, attend_fused])
def test_an_empty_batch_gives_an_empty_result(kernel):
    m = layer(causal=True, attend=kernel, position=Content())
    for length in (1, T):
        assert m(torch.randn(0, length, C)).shape == (0, length, C)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((11, 3), "d_model=11 is not a multiple of n_heads=3. Pass d_head"),
        ((12, 6, 4), "n_kv_heads must divide n_heads=6, got 4"),
    ],
)
def test_sizes_that_do_not_divide_are_named(sizes, message):
    "This catches the bug where heads are rounded down, and the layer is narrower than asked for."
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(*sizes)


@pytest.mark.parametrize("shape", [(), (1, 7), (2, 1, 7)])
def test_positions_of_a_wrong_shape_are_named(shape, no_shape_checks):
    with pytest.raises(ValueError) as error:
        layer()(torch.randn(2, 7, C), pos=torch.zeros(shape, dtype=torch.long))
    assert f"T or B T with T=7, got shape {shape}" in str(error.value)


def test_memory_and_cache_exclude_each_other():
    m, x, cache = layer(), torch.randn(B, T, C), KVCache(T)
    with pytest.raises(ValueError, match="memory or cache, not both"):
        m(x, m.keys_values(x), cache=cache)
    assert cache.length == 0
