"""What is kept gives the output, what is cut is gone, and a lens of n blocks is the model of n."""

import math
from contextlib import ExitStack

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from transformer_lit.attention.attend import attend
from transformer_lit.attention.multihead import MultiHeadAttention, split_heads
from transformer_lit.models.assembly import POSITIONS, AssemblyConfig, assemble
from transformer_lit.models.interpret import (
    attentions,
    cut,
    head_outputs,
    lens,
    random_repeats,
    repeat_rows,
    residual_stream,
    watch,
    weight_at,
)
from transformer_lit.models.transformer import Transformer, TransformerConfig

B, T, H, D, C, V, N = 2, 11, 3, 5, 13, 23, 3


def layer(**options):
    return MultiHeadAttention(C, H, d_head=D, bias=True, **options).double().eval()


def decoder(**parts):
    config = AssemblyConfig(V, d_model=12, n_layers=N, n_heads=H, d_ff=17, max_len=T, **parts)
    return assemble(config).double().eval()


def translator():
    config = TransformerConfig(V, d_model=12, d_ff=7, n_heads=H, n_layers=N)
    return Transformer(config).double().eval()


# --- heads --------------------------------------------------------------------------------------


def test_every_attention_has_the_name_of_its_place():
    model = translator()
    kinds = {"encoder": ["attn"], "decoder": ["attn", "cross_attn"]}
    names = [f"{s}.{n}.{kind}" for s, found in kinds.items() for n in range(N) for kind in found]
    assert attentions(model) == {name: model.get_submodule(name) for name in names}


@pytest.mark.parametrize("position", POSITIONS)
def test_the_kept_weights_give_the_output_and_change_nothing(position):
    model, ids = decoder(position=position, n_kv_heads=1), torch.randint(V, (B, T))
    usual = model(ids)
    with watch(model) as seen, head_outputs(model) as outputs:
        assert torch.equal(model(ids), usual)
    assert list(seen) == list(attentions(model)) == list(outputs)
    block = model.layers[0]
    _, values = block.attn.keys_values(block.attn_residual.norm(residual_stream(model, ids)[0]))
    weights = seen["layers.0.attn"]
    assert weights.shape == (B, H, T, T) and not weights.requires_grad
    assert_close(weights.sum(-1), torch.ones(B, H, T).double())
    assert_close(weights @ values, outputs["layers.0.attn"])  # one key/value head: it broadcasts


def test_weights_of_memory_with_a_mask_and_without_dropout():
    noisy, x = layer(dropout=0.9).train(), torch.randn(B, 5, C).double()
    memory, mask = torch.randn(B, 7, C).double(), torch.arange(7) < torch.tensor([[7], [3]])
    given = {"memory": noisy.keys_values(memory), "mask": mask[:, None, None]}
    with watch(noisy) as seen:
        torch.manual_seed(1)
        out = noisy(x, **given)
    torch.manual_seed(1)
    assert torch.equal(out, noisy(x, **given))  # the dropout is in the output
    q, k = split_heads(noisy.q_proj(x), D), split_heads(noisy.k_proj(memory), D)
    scores = (q @ k.mT / math.sqrt(D)).masked_fill(~mask[:, None, None], -math.inf)
    assert_close(seen[""], scores.softmax(-1))


@pytest.mark.parametrize("look", [watch, head_outputs, lambda m: cut(m, [0])])
def test_the_plug_comes_back_also_after_an_error(look):
    attention = layer(attend=attend)
    with pytest.raises(RuntimeError, match="stop"), look(attention):
        assert attention.attend is not attend
        raise RuntimeError("stop")
    assert attention.attend is attend


@pytest.mark.parametrize("heads", [[0], [2], [0, 1], []])
@pytest.mark.parametrize("behind", [nn.Identity, lambda: nn.Sequential(nn.Identity())])
def test_a_head_that_is_cut_answers_with_what_stands_for_it(heads, behind):
    attention, x = layer(causal=True), torch.randn(B, T, C).double()
    attention.q_proj = nn.Sequential(attention.q_proj, behind())  # as in Qwen 3, a norm
    with head_outputs(attention) as seen:
        whole = attention(x)
    for instead in (torch.zeros(H, D).double(), seen[""].mean((0, 2))):
        missing = instead[:, None] - seen[""]  # B H T D
        missing[:, [h for h in range(H) if h not in heads]] = 0
        expected = whole + missing.transpose(1, 2).flatten(-2) @ attention.o_proj.weight.mT
        with cut(attention, heads, instead=instead if instead.any() else None):
            assert_close(attention(x), expected)
        with ExitStack() as singly:
            for head in heads:
                singly.enter_context(cut(attention, [head], instead=instead))
            assert_close(attention(x), expected)


# --- scores and rows ----------------------------------------------------------------------------


@pytest.mark.parametrize(("distance", "start"), [(11, 0), (-1, 0), (1, 11), (1, -1)])
def test_no_score_where_there_is_no_key(distance, start):
    with pytest.raises(ValueError, match=f"no key {distance} before the queries from {start}"):
        weight_at(torch.rand(B, H, T, T), distance, start=start)
    with pytest.raises(ValueError, match="weights 5 by 7"):
        weight_at(torch.rand(B, H, 5, 7), 1)


def test_rows_repeat_with_their_own_period():
    rows, periods = torch.randint(V, (3, 7)), torch.tensor([2, 7, 5])
    found = repeat_rows(rows, periods, 17)
    assert found.tolist() == [[rows[b, t % periods[b]].item() for t in range(17)] for b in range(3)]
    found = [random_repeats(V, 31, 15, seed=seed) for seed in (3, 3, 4)]
    assert torch.equal(*found[:2]) and not torch.equal(*found[1:]) and found[0].max() < V
    periods = {min(p for p in range(1, 15) if torch.equal(row[p:], row[:-p])) for row in found[0]}
    assert periods == {4, 5, 6, 7}


# --- the lens -----------------------------------------------------------------------------------

LENSES = {
    "pre": lambda: decoder(position="learned", residual="pre"),
    "post": lambda: decoder(position="learned", residual="post"),
    "translator": translator,
}


@pytest.mark.parametrize("name", LENSES)
def test_a_lens_of_n_blocks_is_the_model_of_n_blocks(name):
    model, ids = LENSES[name](), torch.randint(V, (B, T))
    given = (torch.randint(V, (B, 7)), ids) if name == "translator" else (ids,)
    part = "decoder" if name == "translator" else "layers"
    found, blocks = lens(model, *given), list(getattr(model, part))
    assert found.shape == (N + 1, B, T, V)
    for kept in range(N + 1):
        setattr(model, part, nn.ModuleList(blocks[:kept]))
        assert torch.equal(found[kept], model(*given))


def test_no_hook_stays():
    model, ids = decoder(), torch.randint(V, (B, T))
    residual_stream(model, ids)
    with pytest.raises(IndexError):
        residual_stream(model, ids + V)  # the embedding refuses
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
