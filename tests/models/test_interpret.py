"""Weights that are kept, heads that are cut, scores by loops, a lens that ends in the model."""

import math
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from transformer_lit.attention.attend import attend
from transformer_lit.attention.multihead import MultiHeadAttention, split_heads
from transformer_lit.models.assembly import POSITIONS, AssemblyConfig, assemble
from transformer_lit.models.interpret import (
    attentions,
    copy_losses,
    cut,
    head_outputs,
    induction_score,
    lens,
    random_repeats,
    repeat_rows,
    residual_stream,
    watch,
    weight_at,
)
from transformer_lit.models.transformer import Transformer, TransformerConfig

B, T, H, D, C, V, N = 2, 11, 3, 4, 13, 23, 3


def layer(**options):
    return MultiHeadAttention(C, H, d_head=D, bias=True, **options).double().eval()


def decoder(**parts):
    config = AssemblyConfig(V, d_model=12, n_layers=N, n_heads=H, d_ff=17, max_len=T, **parts)
    return assemble(config).double().eval()


# --- watch --------------------------------------------------------------------------------------


def test_every_attention_has_the_name_of_its_place():
    model = Transformer(TransformerConfig(V, d_model=12, d_ff=7, n_heads=H, n_layers=2))
    kinds = {"encoder": ["attn"], "decoder": ["attn", "cross_attn"]}
    names = {f"{s}.{n}.{kind}" for s, found in kinds.items() for n in (0, 1) for kind in found}
    assert set(attentions(model)) == names
    assert all(model.get_submodule(name) is m for name, m in attentions(model).items())


@pytest.mark.parametrize("position", POSITIONS)
def test_the_kept_weights_give_the_output_and_change_nothing(position):
    model, ids = decoder(position=position, n_kv_heads=1), torch.randint(V, (B, T))
    usual = model(ids)
    with watch(model) as seen, head_outputs(model) as outputs:
        assert torch.equal(model(ids), usual)
    assert list(seen) == list(attentions(model)) == list(outputs)
    block = model.layers[0]
    x = block.attn_residual.norm(residual_stream(model, ids)[0])
    _, values = block.attn.keys_values(x)
    weights = seen["layers.0.attn"]
    assert weights.shape == (B, H, T, T) and not weights.requires_grad
    assert_close(weights.sum(-1), torch.ones(B, H, T).double())
    assert_close(weights @ values, outputs["layers.0.attn"])  # one key/value head: it broadcasts


def test_weights_of_memory_with_a_mask():
    cross, x, memory = layer(), torch.randn(B, 5, C).double(), torch.randn(B, 7, C).double()
    mask = torch.arange(7)[None, None, None] < torch.tensor([7, 3]).view(B, 1, 1, 1)
    with watch(cross) as seen:
        cross(x, cross.keys_values(memory), mask=mask)
    q, k = split_heads(cross.q_proj(x), D), split_heads(cross.k_proj(memory), D)
    scores = (q @ k.mT / math.sqrt(D)).masked_fill(~mask, -math.inf)
    assert_close(seen[""], scores.softmax(-1))


def test_dropout_is_in_the_output_and_not_in_the_kept_weights():
    noisy, x = layer(dropout=0.9, causal=True).train(), torch.randn(B, T, C).double()
    with watch(noisy) as seen:
        torch.manual_seed(1)
        out = noisy(x)
    torch.manual_seed(1)
    assert torch.equal(out, noisy(x))
    assert_close(seen[""].sum(-1), torch.ones(B, H, T).double())


@pytest.mark.parametrize("look", [watch, head_outputs, lambda m: cut(m, [0])])
def test_the_plug_comes_back_also_after_an_error(look):
    attention = layer(attend=attend)
    with pytest.raises(RuntimeError, match="stop"), look(attention):
        assert attention.attend is not attend
        raise RuntimeError("stop")
    assert attention.attend is attend


# --- cut ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [[0], [2], [0, 1], []])
def test_a_cut_is_zeros_in_the_columns_of_the_output_map(heads):
    attention, x = layer(causal=True), torch.randn(B, T, C).double()
    whole = attention(x)
    with cut(attention, heads):
        found = attention(x)
    assert torch.equal(attention(x), whole)
    for head in heads:
        attention.o_proj.weight.data[:, head * D : (head + 1) * D] = 0
    assert_close(found, attention(x))


def test_a_head_may_answer_with_its_mean():
    attention, x = layer(causal=True), torch.randn(B, T, C).double()
    with head_outputs(attention) as seen:
        whole = attention(x)
    mean = seen[""].mean((0, 2))  # H D
    with cut(attention, [1], instead=mean):
        found = attention(x)
    columns = attention.o_proj.weight[:, D : 2 * D]
    assert_close(found, whole + (mean[1] - seen[""][:, 1]) @ columns.mT)
    assert_close(found.mean((0, 1)), whole.mean((0, 1)))  # the mean of the layer stays


def test_cuts_add_up():
    attention, x = layer(causal=True), torch.randn(B, T, C).double()
    with cut(attention, [0, 2]):
        both = attention(x)
    with cut(attention, [0]), cut(attention, [2]):
        assert torch.equal(attention(x), both)


def test_a_head_behind_a_norm_can_be_cut():
    "As in Qwen 3, whose queries go through a module more."
    attention, x = layer(causal=True), torch.randn(B, T, C).double()
    with cut(attention, [1]):
        expected = attention(x)
    attention.q_proj = nn.Sequential(attention.q_proj, nn.Identity())
    with cut(attention, [1]):
        assert torch.equal(attention(x), expected)


# --- scores -------------------------------------------------------------------------------------


def random_weights(T):
    scores = torch.randn(B, H, T, T).double()
    return scores.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf).softmax(-1)


@pytest.mark.parametrize("period", [2, 3, 5, 7])
def test_scores_by_loops(period):
    weights = random_weights(T)
    for head in range(H):
        seen = [weights[b, head, t, t - period + 1] for b in range(B) for t in range(period, T)]
        assert_close(induction_score(weights, period)[head], torch.stack(seen).mean())
        past = [weights[b, head, t, t - period] for b in range(B) for t in range(period, T)]
        assert_close(weight_at(weights, period)[head], torch.stack(past).mean())
        late = [weights[b, head, t, t] for b in range(B) for t in range(7, T)]
        assert_close(weight_at(weights, 0, start=7)[head], torch.stack(late).mean())


def test_a_perfect_head_has_score_one_and_an_even_one_a_share():
    period, t = 5, torch.arange(T)
    perfect = torch.eye(T).double()[(t - period + 1).clamp(min=0)]
    even = torch.ones(T, T).double().tril() / (t + 1)[:, None]
    found = induction_score(torch.stack([perfect, even])[None], period)
    assert_close(found, torch.tensor([1, (1 / (t[period:] + 1)).mean()]).double())


@pytest.mark.parametrize(("distance", "start"), [(11, 0), (-1, 0), (1, 11), (1, -1)])
def test_no_score_where_there_is_no_key(distance, start):
    with pytest.raises(ValueError, match=f"no key {distance} before the queries from {start}"):
        weight_at(random_weights(T), distance, start=start)
    with pytest.raises(ValueError, match="weights 5 by 7"):
        weight_at(torch.rand(B, H, 5, 7), 1)


def test_losses_of_the_copies_leave_out_what_nobody_can_know():
    model, period = decoder(), 5
    ids = torch.randint(V, (B, period)).tile(1, 2)
    log_p = model(ids).log_softmax(-1)

    def loss(row, positions):
        return torch.stack([-log_p[row, t - 1, ids[row, t]] for t in positions]).mean()

    first, second = copy_losses(model, ids, period)
    for row in range(B):
        assert_close(first[row], loss(row, range(1, 5)).detach())
        assert_close(second[row], loss(row, range(6, 10)).detach())


# --- rows that repeat ---------------------------------------------------------------------------


def test_rows_repeat_with_their_own_period():
    rows, periods = torch.randint(V, (3, 7)), torch.tensor([2, 7, 5])
    found = repeat_rows(rows, periods, 17)
    assert found.tolist() == [[rows[b, t % periods[b]].item() for t in range(17)] for b in range(3)]


def test_random_rows_repeat_and_depend_on_their_seed():
    found = [random_repeats(V, 31, 15, seed=seed) for seed in (3, 3, 4)]
    assert torch.equal(*found[:2]) and not torch.equal(*found[1:])
    assert found[0].shape == (31, 15) and found[0].max() < V
    periods = {min(p for p in range(1, 15) if torch.equal(row[p:], row[:-p])) for row in found[0]}
    assert periods == {4, 5, 6, 7}


# --- the lens -----------------------------------------------------------------------------------


@pytest.mark.parametrize("residual", ["pre", "post"])
def test_the_lens_ends_in_the_model_and_begins_with_the_embedding(residual):
    model, ids = decoder(position="learned", residual=residual), torch.randint(V, (B, T))
    found = lens(model, ids)
    assert found.shape == (N + 1, B, T, V)
    assert torch.equal(found[-1], model(ids))
    first = model.tok_emb(ids) + model.position(torch.arange(T))
    assert_close(found[0], model.lm_head(model.final_norm(first)).detach())


def test_the_lens_is_the_model_without_its_last_blocks():
    model, ids = decoder(), torch.randint(V, (B, T))
    found, layers = lens(model, ids), list(model.layers)
    for kept in range(1, N + 1):
        model.layers = nn.ModuleList(layers[:kept])
        assert torch.equal(found[kept], model(ids))


def test_no_hook_stays():
    model, ids = decoder(), torch.randint(V, (B, T))
    residual_stream(model, ids)
    with pytest.raises(IndexError):
        residual_stream(model, ids + V)  # the embedding refuses
    hooks = [m._forward_hooks | m._forward_pre_hooks for m in model.modules()]
    assert hooks == [OrderedDict()] * len(hooks)
