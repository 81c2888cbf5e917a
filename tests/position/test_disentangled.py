"""Transformer-XL's and DeBERTa's scores: against loops, and against three published attentions."""

import math

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_lit.attention.attend import attend, attention_weights
from transformer_lit.attention.cache import KVCache
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.masks import causal_mask, padding_mask
from transformer_lit.attention.multihead import MultiHeadAttention, distances
from transformer_lit.position.absolute import sinusoids
from transformer_lit.position.disentangled import (
    DisentangledBias,
    TransformerXLBias,
    content_to_position,
    deberta_bucket,
    position_to_content,
)

B, T, S, H, D, C = 2, 7, 11, 6, 5, 14


def draw(module, std=0.5):
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return module


def xl(kv_heads=None, **options):
    return draw(TransformerXLBias(C, H, kv_heads, d_head=D, **options))


def deberta(kv_heads=None, **options):
    options = {"max_distance": 5} | options
    return draw(DisentangledBias(C, H, kv_heads, d_head=D, **options))


PLUGS = {
    "xl": xl,
    "xl causal": lambda kv=None: xl(kv, causal=True),
    "deberta": deberta,
    "deberta causal": lambda kv=None: deberta(kv, causal=True),
    "deberta buckets": lambda kv=None: deberta(kv, n_buckets=4, max_distance=17, bias=True),
}


def layer(name, kv_heads=None, **options):
    plug = PLUGS[name](kv_heads)
    causal = options.pop("causal", "causal" in name)
    parts = {"d_head": D, "causal": causal, "position": plug}
    return MultiHeadAttention(C, H, kv_heads, **parts, **options)


# --- by hand ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("causal", [False, True])
def test_transformer_xl_by_hand(kv_heads, causal):
    plug, share = xl(kv_heads, causal=causal), H // kv_heads
    q, k = torch.randn(B, H, T, D), torch.randn(B, kv_heads, S, D)
    q_pos, k_pos = torch.arange(S - T, S), torch.arange(S)
    scores = plug.bias(q, k, distances(q_pos, k_pos))
    W = plug.r_proj.weight.T.unflatten(1, (kv_heads, D))  # C K D
    expected = torch.zeros(B, H, T, S)
    for t in range(T):
        for s in range(S):
            r = sinusoids(torch.tensor(S - T + t - s), C) @ W.flatten(1)
            for h in range(H):
                own = r.view(kv_heads, D)[h // share]
                score = (q[:, h, t] + plug.v[h]) @ own + k[:, h // share, s] @ plug.u[h]
                expected[:, h, t, s] = score / D**0.5
    # causal: any value will do for a key that no query sees
    seen = causal_mask(T, S) if causal else torch.ones(T, S, dtype=torch.bool)
    assert_close(scores[:, :, seen], expected[:, :, seen])


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("terms", [("c2p",), ("p2c",), ("p2c", "c2p")])
@pytest.mark.parametrize("causal", [False, True])
def test_deberta_by_hand(kv_heads, terms, causal):
    plug, share = deberta(kv_heads, terms=terms, causal=causal, max_distance=3), H // kv_heads
    q, k = torch.randn(B, H, T, D), torch.randn(B, kv_heads, S, D)
    scores = plug.bias(q, k, distances(torch.arange(S - T, S), torch.arange(S)))
    expected = torch.zeros(B, H, T, S)
    for t in range(T):
        for s in range(S):
            d = S - T + t - s
            row = plug.weight[min(max(d, 0), 2) if causal else min(max(d + 3, 0), 5)]
            for h in range(H):
                g = h // share
                if "c2p" in terms:
                    own = plug.k_proj(row)[g * D : (g + 1) * D]
                    expected[:, h, t, s] += q[:, h, t] @ own
                if "p2c" in terms:
                    own = plug.q_proj(row)[h * D : (h + 1) * D]
                    expected[:, h, t, s] += k[:, g, s] @ own
    assert_close(scores, expected / (D * (1 + len(terms))) ** 0.5)


@pytest.mark.parametrize("rows", [1, B])
def test_the_gather_is_the_naive_product(rows):
    R, index = 13, torch.randint(13, (rows, 1, T, S))
    q, k, rel = torch.randn(B, H, T, D), torch.randn(B, H, S, D), torch.randn(R, H, D)
    vectors = rel[index[:, 0]]  # T S H D for each row
    naive = torch.einsum("bhtd,btshd->bhts", q, vectors.expand(B, T, S, H, D))
    assert_close(content_to_position(q, rel, index), naive)
    naive = torch.einsum("bhsd,btshd->bhts", k, vectors.expand(B, T, S, H, D))
    assert_close(position_to_content(k, rel, index), naive)


class Largest(TorchDispatchMode):
    "Remembers the size of the largest tensor that any operation returns."

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, torch.Tensor):
                self.numel = max(self.numel, x.untyped_storage().nbytes() // x.element_size())
        return out


@pytest.mark.parametrize("causal", [False, True])
def test_no_tensor_has_a_vector_for_each_pair(causal):
    T, D = 61, 53
    q, pos = torch.randn(1, 1, T, D), torch.arange(T)
    for make in (TransformerXLBias, DisentangledBias):
        plug = make(D + 1, 1, d_head=D, causal=causal)
        with Largest() as largest:
            plug.bias(q, q, distances(pos, pos)).sum().backward()
        assert largest.numel < T * T * D / 10


# --- published programs -------------------------------------------------------------------------


def test_the_attention_of_debertas_first_version():
    from transformers import DebertaConfig
    from transformers.models.deberta import modeling_deberta as hf

    n, C = 13, H * D
    config = DebertaConfig(
        hidden_size=C,
        num_attention_heads=H,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        max_relative_positions=7,
    )
    theirs = draw(hf.DisentangledSelfAttention(config), 0.3).eval()
    plug = draw(DisentangledBias(C, H, max_distance=7, bias=True), 0.3)
    ours = MultiHeadAttention(C, H, position=plug, bias=True)
    with torch.no_grad():
        by_head = theirs.in_proj.weight.view(H, 3, D, C)
        for i, proj in enumerate((ours.q_proj, ours.k_proj, ours.v_proj)):
            proj.weight.copy_(by_head[:, i].reshape(C, C))
        ours.q_proj.bias.copy_(theirs.q_bias)
        ours.k_proj.bias.zero_()
        ours.v_proj.bias.copy_(theirs.v_bias)
        ours.o_proj.weight.copy_(torch.eye(C))
        ours.o_proj.bias.zero_()
        plug.k_proj.weight.copy_(theirs.pos_proj.weight)
        plug.k_proj.bias.zero_()
        plug.q_proj.load_state_dict(theirs.pos_q_proj.state_dict())
    x = torch.randn(B, n, C)
    apart = hf.build_relative_position(x[:, None], x[:, None])
    parts = {"relative_pos": apart, "rel_embeddings": plug.weight}
    expected, _ = theirs(x, torch.ones(B, 1, n, n), **parts)
    assert_close(ours(x), expected)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("terms", [["c2p"], ["p2c"], ["c2p", "p2c"]])
@pytest.mark.parametrize("buckets", [None, 8])
def test_the_attention_of_debertas_second_version(shared, terms, buckets):
    from transformers import DebertaV2Config
    from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

    n, C = 37, H * D
    config = DebertaV2Config(
        hidden_size=C,
        num_attention_heads=H,
        relative_attention=True,
        pos_att_type=terms,
        max_relative_positions=23,
        position_buckets=buckets or -1,
        share_att_key=shared,
    )
    theirs = draw(DisentangledSelfAttention(config), 0.3).eval()
    parts = {"max_distance": 23, "n_buckets": buckets, "terms": terms, "bias": True}
    plug = draw(DisentangledBias(C, H, **parts), 0.3)
    ours = MultiHeadAttention(C, H, position=plug, bias=True)
    for mine, name in (("q_proj", "query_proj"), ("k_proj", "key_proj"), ("v_proj", "value_proj")):
        getattr(ours, mine).load_state_dict(getattr(theirs, name).state_dict())
    with torch.no_grad():
        ours.o_proj.weight.copy_(torch.eye(C))
        ours.o_proj.bias.zero_()
    if "c2p" in terms:
        source = theirs.key_proj if shared else theirs.pos_key_proj
        plug.k_proj.load_state_dict(source.state_dict())
    if "p2c" in terms:
        source = theirs.query_proj if shared else theirs.pos_query_proj
        plug.q_proj.load_state_dict(source.state_dict())
    x = torch.randn(B, n, C)
    expected, _ = theirs(x, torch.ones(B, 1, n, n), rel_embeddings=plug.weight)
    assert_close(ours(x), expected)


@pytest.mark.parametrize(("n_buckets", "max_distance"), [(256, 512), (14, 53), (7, 23), (2, 11)])
def test_buckets_are_those_of_the_published_program(n_buckets, max_distance):
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    d = torch.arange(-1000, 1001)
    ours = deberta_bucket(d, n_buckets, max_distance)
    torch.set_default_dtype(torch.float32)  # theirs take it; ours are the same under any
    assert torch.equal(ours, make_log_bucket_position(d, n_buckets, max_distance).long())
    assert torch.equal(ours, deberta_bucket(d, n_buckets, max_distance))


@pytest.mark.parametrize("kind", ["uni", "bi"])
@pytest.mark.parametrize("causal", [False, True])
def test_transformer_xls_scores_are_xlnets(kind, causal):
    from transformers import XLNetConfig, XLNetModel

    if kind == "uni" and not causal:
        kind = "bi"  # "uni" computes no distances ahead
    config = XLNetConfig(
        vocab_size=3, d_model=H * D, n_head=H, n_layer=1, d_inner=7, attn_type=kind, dropout=0.0
    )
    model = draw(XLNetModel(config), 0.3).eval().double()
    theirs = model.layer[0].rel_attn
    q, (k, v) = torch.randn(B, H, T, D), torch.randn(2, B, H, S, D)
    PE = sinusoids(torch.arange(S, -1 if kind == "uni" else -T, -1), H * D)
    r = torch.cat([PE[:, 0::2], PE[:, 1::2]], 1)[:, None].expand(-1, B, -1)  # all sines first
    # theirs are made in float32: an angle of up to S with three roundings, and what comes of it
    found = model.relative_positional_encoding(T, S, bsz=B)
    assert (found - r).abs().max() < (3 * S + 1) * 2**-24
    hidden = torch.zeros(T, S, B, 1)
    if causal:
        hidden += torch.ones(T, S).triu(S - T + 1)[:, :, None, None]
    by_time = [x.permute(2, 0, 1, 3) for x in (q, k, v)]
    k_r = torch.einsum("ibh,hnd->ibnd", r, theirs.r)
    expected = theirs.rel_attn_core(*by_time, k_r, attn_mask=hidden)

    plug = TransformerXLBias(H * D, H, causal=causal)
    with torch.no_grad():  # XLNet puts all sines first
        halves = theirs.r.flatten(1).unflatten(0, (2, -1))  # sine or cosine, pair, H·D
        plug.r_proj.weight.copy_(halves.transpose(0, 1).flatten(0, 1).T)
        plug.u.copy_(theirs.r_w_bias)
        plug.v.copy_(theirs.r_r_bias)
    bias = plug.bias(q, k, distances(torch.arange(S - T, S), torch.arange(S)))
    out = attend(q, k, v, bias=bias, causal=causal, scale=plug.scale(D))
    assert_close(out.permute(2, 0, 1, 3), expected)


# --- DeBERTa's table ----------------------------------------------------------------------------


def test_far_distances_share_the_outermost_rows():
    d = torch.tensor([-1000, -6, -5, -4, 0, 4, 5, 1000])
    assert deberta().rows(d).tolist() == [0, 0, 0, 1, 5, 9, 9, 9]
    assert deberta(causal=True).rows(d).tolist() == [0, 0, 0, 0, 0, 4, 4, 4]
    buckets = deberta(n_buckets=4, max_distance=17)
    assert buckets.rows(d).tolist() == [0, 1, 1, 1, 4, 7, 7, 7]


def test_the_second_term_reads_the_row_of_the_first():
    "The published program's reading; the paper's formula has the distance the other way round."
    plug, q, pos = deberta(terms=("p2c",)), torch.zeros(B, H, T, D), torch.arange(T)
    plug.weight.data[:5] = 0  # all rows of keys ahead
    k = torch.randn(B, H, T, D)
    bias = plug.bias(q, k, distances(pos, pos))
    assert not bias.triu(1).any() and bias.tril().abs().sum() > 1


def test_layers_may_share_the_table_and_the_maps():
    first = DisentangledBias(C, H, d_head=D, max_distance=5)
    second = DisentangledBias(C, H, d_head=D, max_distance=5, weight=first.weight)
    assert second.weight is first.weight
    names = dict(torch.nn.ModuleList([first, second]).named_parameters())
    assert set(names) == {"0.weight", *(f"{i}.{p}_proj.weight" for i in (0, 1) for p in "qk")}

    m = MultiHeadAttention(C, H, d_head=D, position=second)
    second.q_proj, second.k_proj = m.q_proj, m.k_proj
    assert len(list(m.parameters())) == 5  # four maps and the table
    m(torch.randn(B, T, C)).sum().backward()
    assert all(p.grad is not None for p in m.parameters())


@pytest.mark.parametrize(("terms", "n"), [(("c2p",), 2), (("p2c",), 2), (("c2p", "p2c"), 3)])
def test_the_scale_counts_the_terms(terms, n):
    plug = deberta(terms=terms)
    assert math.isclose(plug.scale(D), (n * D) ** -0.5)
    assert xl().scale(D) is None


# --- what holds for every plug ------------------------------------------------------------------


@pytest.mark.parametrize("name", PLUGS)
def test_only_distance_counts(name):
    m, x, pos = layer(name), torch.randn(B, T, C), torch.arange(T)
    assert_close(m(x, pos=pos + 1009), m(x))
    assert_close(m(x, pos=pos + torch.tensor([[13], [-101]])), m(x))
    half = m(x, pos=pos // 2)  # neighbours one apart or none: distance does count
    assert (half - m(x)).abs().max() > 1e-3


@pytest.mark.parametrize("name", PLUGS)
@pytest.mark.parametrize("kernel", [attend, attend_fused])
@pytest.mark.parametrize("chunks", [(4, 1, 2), (1,) * 7])
def test_cached_is_full(name, kernel, chunks):
    m = layer(name, 3, causal=True, attend=kernel)
    x, cache = torch.randn(B, T, C), KVCache(T)
    steps = [m(piece, cache=cache) for piece in x.split(chunks, 1)]
    assert_close(torch.cat(steps, 1), m(x))


@pytest.mark.parametrize("name", PLUGS)
def test_both_kernels_agree_forward_and_backward(name):
    m, x, results = layer(name), torch.randn(B, T, C), []
    for m.attend in (attend, attend_fused):
        m.zero_grad()
        out = m(x)
        out.square().sum().backward()
        assert all(p.grad.abs().sum() > 0 for p in m.parameters())
        results.append((out.detach(), *(p.grad.clone() for p in m.parameters())))
    for one, other in zip(*results):
        assert_close(one, other)


@pytest.mark.parametrize("name", PLUGS)
def test_rows_of_unequal_length_are_what_they_are_alone(name):
    m = layer(name, causal=True)
    x, pads, cache = torch.randn(B, T, C), torch.tensor([0, 2]), KVCache(T)
    pos = torch.arange(T) - pads[:, None]
    keep, outs = padding_mask(pos >= 0), []
    for now in (slice(0, 4), slice(4, 5), slice(5, 7)):
        mask = keep[..., : now.stop]
        outs.append(m(x[:, now], pos=pos[:, now], mask=mask, cache=cache))
    out = torch.cat(outs, 1)
    assert_close(out[:1], m(x[:1]))
    assert_close(out[1:, 2:], m(x[1:, 2:]))


@pytest.mark.parametrize("name", PLUGS)
def test_no_gradient_from_the_future(name):
    m = layer(name, causal=True)
    x = torch.randn(1, T, C, requires_grad=True)
    for t in range(T):
        (grad,) = torch.autograd.grad(m(x)[0, t].sum(), x)
        assert not grad[0, t + 1 :].any()
        assert grad[0, : t + 1].abs().sum(-1).all()


@pytest.mark.parametrize("make", [xl, deberta])
def test_causal_spares_work_and_changes_nothing_that_is_seen(make):
    sparing, whole = make(causal=True), make()
    state = whole.state_dict()
    if make is deberta:
        state["weight"] = state["weight"][5:]  # the rows from distance 0 on
    sparing.load_state_dict(state)
    q, k = torch.randn(B, H, T, D), torch.randn(B, H, S, D)
    pos = torch.arange(S - T, S), torch.arange(S)
    weights = [
        attention_weights(q, k, bias=plug.bias(q, k, distances(*pos)), causal=True)
        for plug in (sparing, whole)
    ]
    assert_close(*weights)


@pytest.mark.parametrize("name", PLUGS)
def test_it_runs_without_memory_and_in_16_bits(name):
    with torch.device("meta"):
        assert layer(name)(torch.empty(B, T, C)).shape == (B, T, C)
    m, x = layer(name), torch.randn(B, T, C)
    low = m.to(torch.bfloat16)(x.to(torch.bfloat16))
    exact = m.double()(x.to(torch.bfloat16).double())  # the rounded weights, in float64
    assert low.dtype == torch.bfloat16
    # value, weight, sum and result are rounded in a row, by half of ε each; a score is, too, and an
    # error in it moves weights by twice as much: eight halves of the largest number
    assert (low.double() - exact).abs().max() < 4 * 2**-8 * exact.abs().max()


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_transformer_xl_has_no_row_for_neighbours_that_stand_apart(causal):
    "Torch refuses the lookup; a row too few would be a wrong score."
    q, pos = torch.randn(B, H, 3, D), torch.tensor([0, 1, 9])
    with pytest.raises(RuntimeError, match="out of bounds"):
        xl(causal=causal).bias(q, q, distances(pos, pos))


def test_buckets_that_cannot_be_are_named():
    with pytest.raises(ValueError, match="n_buckets=14, max_distance=8"):
        deberta_bucket(torch.arange(3), 14, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"terms": ("c2p", "p2p")}, "p2p"),
        ({"terms": ("c2p", "c2p")}, r"got \('c2p', 'c2p'\)"),
        ({"weight": torch.nn.Parameter(torch.zeros(7, 14))}, r"\(256, 14\), got \(7, 14\)"),
    ],
)
def test_wrong_tables_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        DisentangledBias(C, 7, **options)
