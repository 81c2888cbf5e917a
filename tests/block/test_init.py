"""First weights: what is shared, named or told, and what is left alone."""

import pytest
import torch
from torch import nn

from transformer_lit.block.init import deepnorm_init, gpt2_init, xavier_init, xavier_std
from transformer_lit.block.norm import LayerNorm
from transformer_lit.text.embedding import TokenEmbedding


class Model(nn.Module):
    "`first`: the tied output layer is met before the embedding."

    def __init__(self, first):
        super().__init__()
        table = TokenEmbedding(1009, 53)
        if first:
            self.lm_head = table.tied_head()
        self.tok_emb, self.norm, self.inner = table, LayerNorm(53), nn.Linear(53, 53)
        if not first:
            self.lm_head = table.tied_head()


@pytest.mark.parametrize("first", [True, False])
def test_a_tied_output_layer_keeps_what_the_embedding_drew(first):
    model = Model(first)
    model.lm_head.bias = nn.Parameter(torch.randn(1009))  # an offset is no part of the table
    nn.init.constant_(model.norm.weight, 2.0)
    table, inner = model.tok_emb.weight.clone(), model.inner.weight.clone()
    xavier_init(model)
    assert model.lm_head.weight is model.tok_emb.weight
    assert torch.equal(model.tok_emb.weight, table)
    assert not torch.equal(model.inner.weight, inner)
    assert (model.norm.weight == 2).all() and not model.norm.bias.any()
    assert not model.lm_head.bias.any() and not model.inner.bias.any()


@pytest.mark.parametrize(
    ("init", "gains"),
    [
        (xavier_init, {"q_proj": 1, "gate_proj": 1, "lm_head": 1}),
        (lambda m: deepnorm_init(m, 0.3), {"q_proj": 1, "gate_proj": 0.3, "lm_head": 1}),
        (lambda m: gpt2_init(m, 8, std=101**-0.5), {"o_proj": 0.25, "lm_head": 1}),
    ],
)
def test_layers_by_name_with_their_gain(init, gains):
    module = nn.ModuleDict({name: nn.Linear(101, 101) for name in gains})
    init(module)
    for name, gain in gains.items():  # 10,201 draws: the deviation is known to 0.7 %
        std = gain * xavier_std(101, 101)
        assert module[name].weight.std().item() == pytest.approx(std, rel=0.04), name


@pytest.mark.parametrize(
    ("init", "said"),
    [
        (lambda m: gpt2_init(m, 2), "down_proj or o_proj. There are: head, in_proj"),
        (lambda m: deepnorm_init(m, 0.5), "v_proj. There are: head, in_proj"),
    ],
)
def test_a_module_without_the_names_is_refused_and_left_alone(init, said):
    module = nn.ModuleDict({"in_proj": nn.Linear(5, 7), "head": nn.Linear(7, 5)})
    before = {name: p.clone() for name, p in module.named_parameters()}
    with pytest.raises(ValueError, match=said):
        init(module)
    assert all(torch.equal(p, before[name]) for name, p in module.named_parameters())
