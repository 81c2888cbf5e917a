"""Plain and gated networks against loops, convolutions, torch and Hugging Face's layers."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig, T5Config
from transformers.models.llama.modeling_llama import LlamaMLP
from transformers.models.t5.modeling_t5 import T5DenseGatedActDense

from transformer_lit.block.feedforward import (
    ACTIVATIONS,
    FeedForward,
    GatedFeedForward,
    gated_width,
    get_activation,
    glu,
)


def by_hand(ffn, x):
    "One position, with loops over the weights as torch stores them: out × in."
    hidden = []
    for row, b in zip(ffn.up_proj.weight.tolist(), ffn.up_proj.bias.tolist()):
        hidden.append(max(0.0, b + sum(w * v for w, v in zip(row, x))))
    return [
        b + sum(w * h for w, h in zip(row, hidden))
        for row, b in zip(ffn.down_proj.weight.tolist(), ffn.down_proj.bias.tolist())
    ]


def test_the_numbers_by_hand():
    ffn, x = FeedForward(3, 7), torch.randn(2, 5, 3)
    expected = [[by_hand(ffn, position) for position in row] for row in x.tolist()]
    torch.testing.assert_close(ffn(x), torch.tensor(expected))


def test_it_is_two_convolutions_of_width_one():
    ffn, x = FeedForward(5, 11), torch.randn(2, 7, 5)
    wide, narrow = nn.Conv1d(5, 11, 1), nn.Conv1d(11, 5, 1)
    for conv, linear in ((wide, ffn.up_proj), (narrow, ffn.down_proj)):
        conv.load_state_dict({"weight": linear.weight[:, :, None], "bias": linear.bias})
    torch.testing.assert_close(ffn(x), narrow(wide(x.mT).relu()).mT)


def test_the_activation_is_the_one_given():
    ffn, x = FeedForward(5, 11, activation=torch.tanh), torch.randn(3, 5)
    torch.testing.assert_close(ffn(x), ffn.down_proj(ffn.up_proj(x).tanh()))


@pytest.mark.parametrize(("bias", "count"), [(True, 2 * 5 * 11 + 11 + 5), (False, 2 * 5 * 11)])
def test_the_parameters_counted(bias, count):
    assert sum(p.numel() for p in FeedForward(5, 11, bias=bias).parameters()) == count


def test_dropout_acts_on_the_hidden_units_in_training_only():
    ffn, x = FeedForward(5, 11, dropout=1.0), torch.randn(3, 5)
    torch.testing.assert_close(ffn(x), ffn.down_proj.bias.expand(3, 5))
    kept = FeedForward(5, 11)
    kept.load_state_dict(ffn.state_dict())
    torch.testing.assert_close(ffn.eval()(x), kept(x))


SCALAR = {  # each function again, for one Python number
    "relu": lambda z: max(0.0, z),
    "gelu": lambda z: z * 0.5 * math.erfc(-z / 2**0.5),
    "gelu_tanh": lambda z: 0.5 * z * (1 + math.tanh((2 / math.pi) ** 0.5 * (z + 0.044715 * z**3))),
    "silu": lambda z: z / (1 + math.exp(-z)),
    "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
}


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_a_name_stands_for_its_formula(name):
    z = torch.linspace(-7, 7, 113)
    expected = torch.tensor([SCALAR[name](v) for v in z.tolist()])
    torch.testing.assert_close(get_activation(name)(z), expected)


@pytest.mark.parametrize("network", [FeedForward, GatedFeedForward])
def test_an_activation_is_a_name_or_a_function(network):
    named, given = network(5, 11, activation="gelu"), network(5, 11, activation=F.gelu)
    given.load_state_dict(named.state_dict())
    x = torch.randn(2, 7, 5)
    torch.testing.assert_close(named(x), given(x))


def gated_by_hand(network, f, x):
    "One position, with loops over the weights as torch stores them: out × in."

    def linear(layer, x):
        bias = layer.bias.tolist() if layer.bias is not None else [0.0] * layer.out_features
        rows = layer.weight.tolist()
        return [b + sum(w * v for w, v in zip(row, x)) for row, b in zip(rows, bias, strict=True)]

    gates, values = (linear(layer, x) for layer in (network.gate_proj, network.up_proj))
    return linear(network.down_proj, [f(g) * u for g, u in zip(gates, values)])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_the_gated_network_by_hand(name, bias):
    network, x = GatedFeedForward(3, 7, activation=name, bias=bias), torch.randn(2, 5, 3)
    expected = [[gated_by_hand(network, SCALAR[name], p) for p in row] for row in x.tolist()]
    torch.testing.assert_close(network(x), torch.tensor(expected))


def test_swiglu_is_llama_s_layer():
    theirs = LlamaMLP(
        LlamaConfig(hidden_size=5, intermediate_size=11, num_attention_heads=1, head_dim=2)
    )
    ours = GatedFeedForward(5, 11)
    ours.load_state_dict(theirs.state_dict())  # the names are the same
    x = torch.randn(2, 7, 5)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize(
    ("theirs_name", "name"), [("gated-gelu", "gelu_tanh"), ("gated-relu", "relu")]
)
def test_a_gated_network_is_t5_s_layer(theirs_name, name):
    config = T5Config(d_model=5, d_ff=11, feed_forward_proj=theirs_name, dropout_rate=0.0)
    theirs, ours = T5DenseGatedActDense(config), GatedFeedForward(5, 11, activation=name)
    names = {"wi_0": "gate_proj", "wi_1": "up_proj", "wo": "down_proj"}
    weights = theirs.state_dict().items()
    ours.load_state_dict({f"{names[key.split('.')[0]]}.weight": w for key, w in weights})
    x = torch.randn(2, 7, 5)
    torch.testing.assert_close(ours(x), theirs(x))


def test_dropout_acts_on_the_product_in_training_only():
    network, x = GatedFeedForward(5, 11, dropout=1.0, bias=True), torch.randn(3, 5)
    torch.testing.assert_close(network(x), network.down_proj.bias.expand(3, 5))
    kept = GatedFeedForward(5, 11, bias=True)
    kept.load_state_dict(network.state_dict())
    torch.testing.assert_close(network.eval()(x), kept(x))


def test_a_fused_projection_is_split_as_torch_does():
    x = torch.randn(2, 7, 22)
    torch.testing.assert_close(glu(x), F.glu(x))
    torch.testing.assert_close(glu(x, activation="silu"), x[..., :11] * F.silu(x[..., 11:]))


@pytest.mark.parametrize("width", [1, 3, 7])
def test_a_gate_with_unequal_halves_is_refused(width):
    with pytest.raises(RuntimeError):  # torch's own; `chunk` would spread the shorter part
        glu(torch.randn(3, width))


@pytest.mark.parametrize("C", [3, 48, 384])
def test_gated_and_plain_have_equally_many_weights(C):
    plain = FeedForward(C, 4 * C, bias=False)
    gated = GatedFeedForward(C, gated_width(4 * C))
    counts = [sum(p.numel() for p in network.parameters()) for network in (plain, gated)]
    assert counts[0] == counts[1] == 8 * C * C


@pytest.mark.parametrize(
    ("C", "multiple_of", "multiplier", "width"),
    [
        (4096, 256, 1.0, 11_008),  # LLaMA 7B
        (5120, 256, 1.0, 13_824),  # 13B
        (6656, 256, 1.0, 17_920),  # 33B
        (8192, 256, 1.0, 22_016),  # 65B
        (8192, 4096, 1.3, 28_672),  # Llama 2 70B
        (4096, 1024, 1.3, 14_336),  # Llama 3 8B
        (1, 1, 1.0, 2),
        (1, 1, 1.3, 2),  # 8/3 down to 2, and 2.6 down to 2
        (1, 7, 1.0, 7),
    ],
)
def test_the_width_is_that_of_the_checkpoints(C, multiple_of, multiplier, width):
    assert gated_width(4 * C, multiple_of=multiple_of, multiplier=multiplier) == width


def test_a_width_is_at_least_one_multiple():
    assert gated_width(1) == 1 and gated_width(1, multiple_of=5) == 5
