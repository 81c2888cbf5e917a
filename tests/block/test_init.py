"""Xavier, GPT-2 and DeepNorm against their formulas, and what they leave alone."""

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.block.feedforward import FeedForward
from transformer_lit.block.init import deepnorm_init, gpt2_init, xavier_init, xavier_std
from transformer_lit.block.layers import EncoderLayer
from transformer_lit.block.norm import LayerNorm
from transformer_lit.block.residual import PreNorm
from transformer_lit.position.absolute import LearnedPosition
from transformer_lit.text.embedding import TokenEmbedding


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


# --- by the names of the matrices ---------------------------------------------------------------


def decoder_only(layers, d_model=64):
    "Embedding, layers and a tied output layer, as a decoder-only model has them."
    model = nn.Module()
    model.tok_emb, model.position = TokenEmbedding(1009, d_model), LearnedPosition(211, d_model)
    model.layers = nn.ModuleList(
        EncoderLayer(
            MultiHeadAttention(d_model, 4, causal=True, bias=True),
            FeedForward(d_model, 4 * d_model),
            residual=lambda: PreNorm(LayerNorm(d_model)),
        )
        for _ in range(layers)
    )
    model.norm, model.lm_head = LayerNorm(d_model), model.tok_emb.tied_head()
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            nn.init.constant_(parameter, 2.0)
    return model


def test_gpt2_draws_each_matrix_as_its_name_asks():
    model = decoder_only(3)
    gpt2_init(model, 3)
    for name, weight in model.named_parameters():
        if "norm" in name:
            assert (weight == 2).all(), name
        elif name.endswith("bias"):
            assert (weight == 0).all(), name
        else:
            writes = name.endswith(("o_proj.weight", "down_proj.weight"))
            std = 0.02 / 6**0.5 if writes else 0.02
            # 4096 draws or more: the deviation is known to 1.1 %
            assert weight.std().item() == pytest.approx(std, rel=0.05), name
            assert abs(weight.mean().item()) < 0.1 * std, name


def test_gpt2_is_what_the_library_does():
    "The deviations by name, against those of HF's model, freshly made."
    sizes = {"n_embd": 64, "n_head": 4, "n_layer": 3, "vocab_size": 1009, "n_positions": 211}
    theirs = dict(GPT2LMHeadModel(GPT2Config(**sizes)).named_parameters())
    ours = decoder_only(3)
    gpt2_init(ours, 3)
    names = {
        "tok_emb.weight": "transformer.wte.weight",
        "position.weight": "transformer.wpe.weight",
        "layers.1.attn.q_proj.weight": "transformer.h.1.attn.c_attn.weight",
        "layers.1.attn.o_proj.weight": "transformer.h.1.attn.c_proj.weight",
        "layers.1.ffn.up_proj.weight": "transformer.h.1.mlp.c_fc.weight",
        "layers.1.ffn.down_proj.weight": "transformer.h.1.mlp.c_proj.weight",
    }
    ours = dict(ours.named_parameters())
    for own, other in names.items():
        assert ours[own].std().item() == pytest.approx(theirs[other].std().item(), rel=0.06), own


def test_gpt2_takes_another_deviation():
    model = decoder_only(2)
    gpt2_init(model, 2, std=0.5)
    assert model.layers[0].ffn.up_proj.weight.std().item() == pytest.approx(0.5, rel=0.04)
    assert model.layers[0].ffn.down_proj.weight.std().item() == pytest.approx(0.25, rel=0.04)


def test_deepnorm_scales_all_but_queries_and_keys():
    model = decoder_only(2)
    tables = model.tok_emb.weight.clone(), model.position.weight.clone()
    deepnorm_init(model, 0.3)
    assert torch.equal(model.tok_emb.weight, tables[0])
    assert torch.equal(model.position.weight, tables[1])
    for name, weight in model.layers.named_parameters():
        if "norm" in name:
            assert (weight == 2).all(), name
        elif name.endswith("bias"):
            assert (weight == 0).all(), name
        else:
            gain = 1.0 if name.endswith(("q_proj.weight", "k_proj.weight")) else 0.3
            std = gain * xavier_std(*weight.shape)
            assert weight.std().item() == pytest.approx(std, rel=0.05), name
            assert weight.abs().max() > 3 * std, name  # normal: a uniform one ends at √3


def test_deepnorm_knows_the_gate_and_gives_other_layers_gain_one():
    module = nn.ModuleDict({name: nn.Linear(101, 101) for name in ("gate_proj", "lm_head")})
    deepnorm_init(module, 0.3)
    assert module["gate_proj"].weight.std().item() == pytest.approx(0.3 * 101**-0.5, rel=0.04)
    assert module["lm_head"].weight.std().item() == pytest.approx(101**-0.5, rel=0.04)


@pytest.mark.parametrize(
    ("init", "said"),
    [
        (lambda m: gpt2_init(m, 2), "down_proj or o_proj; linear: head, in_proj"),
        (lambda m: deepnorm_init(m, 0.5), "v_proj; linear: head, in_proj"),
    ],
)
def test_a_module_without_the_names_is_refused_and_left_alone(init, said):
    module = nn.ModuleDict({"in_proj": nn.Linear(5, 7), "head": nn.Linear(7, 5)})
    before = {name: p.clone() for name, p in module.named_parameters()}
    with pytest.raises(ValueError, match=said):
        init(module)
    assert all(torch.equal(p, before[name]) for name, p in module.named_parameters())


@pytest.mark.parametrize("layers", [3, 24])
def test_the_stream_of_gpt2_ends_at_one_size(layers):
    "Each of 2L sublayers adds 1/(2L) of a variance: what is added in all does not depend on L."
    model = decoder_only(layers)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            nn.init.constant_(parameter, float(name.endswith("weight")))
    gpt2_init(model, layers, std=64**-0.5)
    x0 = x = torch.randn(2, 31, 64)
    with torch.no_grad():
        for layer in model.layers:
            x = layer(x)
    # a feed-forward network adds ½ · 4 = 2 of variance, attention less than 1; half of each
    assert 0.8 < (x - x0).var().item() < 1.7
