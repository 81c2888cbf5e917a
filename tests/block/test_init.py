"""Xavier against its formula, and what it leaves alone."""

import pytest
import torch
from torch import nn

from transformer_lit.block.init import xavier_init, xavier_std
from transformer_lit.block.norm import LayerNorm
from transformer_lit.text.embedding import TokenEmbedding


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize(("fan_in", "fan_out"), [(101, 101), (53, 211), (211, 53)])
def test_weights_are_uniform_with_the_deviation_of_the_formula(fan_in, fan_out):
    layer = nn.Linear(fan_in, fan_out)
    nn.init.constant_(layer.bias, 3.0)
    xavier_init(layer)
    std = (2 / (fan_in + fan_out)) ** 0.5
    assert xavier_std(fan_in, fan_out) == pytest.approx(std)
    # about 10⁴ draws: the deviation is known to 1/√(2·10⁴) < 1 %, the ends are reached to 10⁻³
    assert layer.weight.std().item() == pytest.approx(std, rel=0.04)
    assert layer.weight.abs().max().item() == pytest.approx(3**0.5 * std, rel=0.01)
    assert layer.weight.abs().max() <= 3**0.5 * std
    assert (layer.bias == 0).all()


def test_a_square_layer_keeps_the_variance_both_ways():
    layer = nn.Linear(509, 509)
    xavier_init(layer)
    x = torch.randn(211, 509, requires_grad=True)
    y = layer(x)
    (dx,) = torch.autograd.grad(y, x, torch.randn_like(y))
    assert y.var().item() == pytest.approx(1, rel=0.05)
    assert dx.var().item() == pytest.approx(1, rel=0.05)


class Model(nn.Module):
    "`first` decides whether the tied output layer is met before or after the embedding."

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
    nn.init.constant_(model.norm.weight, 2.0)
    table, inner = model.tok_emb.weight.clone(), model.inner.weight.clone()
    xavier_init(model)
    assert model.lm_head.weight is model.tok_emb.weight
    assert torch.equal(model.tok_emb.weight, table)
    assert not torch.equal(model.inner.weight, inner)
    assert (model.norm.weight == 2).all() and (model.norm.bias == 0).all()


def test_the_offsets_of_a_tied_output_layer_start_at_zero_too():
    model = nn.Sequential(nn.Embedding(11, 5), nn.Linear(5, 11))
    model[1].weight = model[0].weight
    table = model[0].weight.clone()
    xavier_init(model)
    assert torch.equal(model[0].weight, table) and (model[1].bias == 0).all()


def test_an_output_layer_that_is_not_tied_is_initialised():
    model = nn.Sequential(nn.Embedding(1009, 53), nn.Linear(53, 1009))
    xavier_init(model)
    assert model[1].weight.std().item() == pytest.approx(xavier_std(53, 1009), rel=0.04)


@pytest.mark.parametrize(("fans", "said"), [((0, 5), "fan_in=0"), ((5, -1), "fan_out=-1")])
def test_impossible_fans_are_named(fans, said):
    with pytest.raises(ValueError, match=said):
        xavier_std(*fans)
