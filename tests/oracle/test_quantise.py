"""Blocks have ggml's bits and stay within their bound; a model computes with what it keeps."""

import copy
from functools import partial

import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from torch.testing import assert_close

from transformer_lit.course.files import InputError
from transformer_lit.models import quantise
from transformer_lit.models.bert import Bert, BertConfig
from transformer_lit.models.gguf import load_gguf
from transformer_lit.models.gpt import GPT, GPTConfig
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.models.transformer import Transformer, TransformerConfig

KINDS = ("Q8_0", "Q4_0", "Q4_1")
every = pytest.mark.parametrize("kind", KINDS)
few = pytest.mark.parametrize("weights", ["int8", "int4"])


def both(kind):
    at = kind.lower()
    return getattr(quantise, f"quantise_{at}"), getattr(quantise, f"dequantise_{at}")


def blocks(n):
    "Blocks of every size from 1e-9 to 1e3, around 0 and away from it, some flat, some with ties."
    x = torch.randn(n, 32) + 3 * torch.randn(n, 1)
    x *= 10 ** (12 * torch.rand(n, 1) - 9)
    x[::7] = x[::7].sign() * x[::7, :1]  # both signs of one size
    x[::11] = x[::11, :1]
    x[::13] = 0
    return x.float()


@every
@pytest.mark.parametrize("shape", [(32,), (10_007, 32), (13, 224), (7, 11, 96)])
def test_the_bits_are_those_of_the_reference(kind, shape):
    quantise_, dequantise = both(kind)
    x, its = blocks(torch.Size(shape).numel() // 32).view(shape), GGMLQuantizationType[kind]
    expected = quantize(x.numpy(), its)
    assert torch.equal(quantise_(x), torch.from_numpy(expected))
    assert torch.equal(dequantise(quantise_(x)), torch.from_numpy(dequantize(expected, its)))


@every
def test_blocks_of_all_sizes_stay_within_their_bound(kind):
    quantise_, dequantise = both(kind)
    x = blocks(10_007)
    moved = (x.double() - dequantise(quantise_(x))).abs()
    share = moved / quantise.error_bound(x, kind)[:, 0]
    assert 0.9 < share.max() <= 1  # no bound that nothing comes near to


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_rows_of_any_type_stay_within_half_a_step(dtype):
    w = torch.randn(1201, 509).mul(3).to(dtype)
    w[7] = 0
    q, d = quantise.quantise_rows(w)
    d, exact = d.double()[:, None], w.double().abs().amax(-1, keepdim=True) / 127
    assert ((w.double() - q * d).abs() <= d * (0.5 + 1e-5)).all() and q.abs().max() <= 127
    assert not q[7].any()
    if dtype in (torch.float64, torch.float32):  # elsewhere the scale was rounded before
        assert ((exact <= d) & (d <= 1.012 * exact) | (exact == 0)).all()


REFUSED = [
    *((lambda kind=kind: both(kind)[0](torch.randn(2, 33)), "32 .* 33") for kind in KINDS),
    (lambda: quantise.error_bound(torch.randn(32), "Q2_K"), "Q2_K"),
    (lambda: quantise.quantised(torch.nn.Linear(2, 2), "int3"), "int3"),
    (lambda: load_gguf("x.gguf", weights="int3"), "int3"),
]


def broken(number):
    x = torch.randn(16, 64)
    x[3, 5] = number
    return x


def broken_model(number):
    linear = torch.nn.Linear(64, 16)
    linear.weight.data = broken(number)
    return torch.nn.Sequential(linear)


FINITE = [*(both(kind)[0] for kind in KINDS), quantise.quantise_rows]
for bad in (torch.nan, torch.inf, -torch.inf):
    REFUSED += [(partial(f, broken(bad)), "not finite") for f in FINITE]
    REFUSED += [
        (partial(quantise.quantised, broken_model(bad), weights), r"0\.weight .*not finite")
        for weights in quantise.KEEP
    ]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_cannot_be_kept_in_blocks_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# --- layers --------------------------------------------------------------------------------------


def layer(weights, n, c):
    return quantise.quantised(torch.nn.Sequential(torch.nn.Linear(c, n)), weights)[0]


SHAPES = [(96,), (1, 96), (3, 5, 96), (96, 7), (0, 96), (5, 48), (3, 5, 37), (7, 8)]


@few
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_layer_gives_the_formulas_numbers(weights, shape, dtype):
    "The kernel rounds x to bfloat16, and what comes out: by 2^-8 of a number, each."
    x = torch.randn(shape).to(dtype)
    x = x.T if shape == (96, 7) else x  # not contiguous
    kernel = not x.shape[-1] % 16 and dtype != torch.float64
    found = layer(weights, 48, x.shape[-1]).to(torch.float32 if kernel else dtype)  # its bias
    assert isinstance(found, quantise.Linear4) == (weights == "int4" and x.shape[-1] == 96)
    y, weight, bias = found(x.to(dtype)), found.weight.double(), found.bias.double()
    expected = x.double() @ weight.T + bias
    room = 1.01 * 2**-7 if kernel or dtype == torch.bfloat16 else 16 * torch.finfo(dtype).eps
    assert y.dtype == found.bias.dtype and y.shape == expected.shape
    assert ((y - expected).abs() <= room * (x.double().abs() @ weight.abs().T + bias.abs())).all()


@every
@pytest.mark.parametrize("place", [0, -1])
def test_a_scale_that_float16_cannot_hold_is_refused(kind, place):
    "It would be infinite, and every number of its block nan."
    (quantised, dequantised), x = both(kind), torch.zeros(2, 64)
    x[1, place] = 65504 * {"Q8_0": 127, "Q4_0": 8, "Q4_1": 15}[kind]
    assert_close(dequantised(quantised(x)), x.float())
    x[1, place] *= 1.001
    with pytest.raises(InputError, match=r"float16 can't hold a scale of 6\.56e\+04"):
        quantised(x)


def test_int4_refuses_a_weight_that_int8_keeps():
    wide = torch.nn.Linear(96, 48)
    wide.weight.data[3, 5] = 1e6
    x, expected = torch.randn(5, 96), wide.weight.data.clone()
    with pytest.raises(InputError, match="int8"):
        quantise.quantised(torch.nn.Sequential(wide), "int4")
    kept = quantise.quantised(torch.nn.Sequential(wide), "int8")[0]
    assert ((kept.weight - expected).abs() <= expected.abs().amax(-1, True) / 250).all()
    assert kept(x).isfinite().all()


SIZES = {"d_model": 24, "n_layers": 2, "n_heads": 2, "d_ff": 17}
WIDE = LlamaConfig(48, 64, 2, 2, d_ff=96)  # 4 bits fit every layer
MODELS = {
    "llama": lambda: Llama(LlamaConfig(11, **SIZES)),
    "tied": lambda: Llama(LlamaConfig(11, **SIZES, tied=True)),
    "gpt": lambda: GPT(GPTConfig(11, **SIZES, max_len=7)),
    "bert": lambda: Bert(BertConfig(11, **SIZES, max_len=7)),
    "transformer": lambda: Transformer(TransformerConfig(11, 24, 17, 2, 2)),
    "wide": lambda: Llama(WIDE),
}


@few
@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_with_the_weights_that_it_keeps(name, weights):
    "The same model with these weights, none of which has moved further than its bound."
    model = MODELS[name]().double().eval()
    for parameter in model.parameters():  # biases too
        torch.nn.init.normal_(parameter, std=0.3)
    ids = [torch.randint(11, (3, 7))] * (2 if name == "transformer" else 1)
    changed = quantise.quantised(copy.deepcopy(model), weights).double()
    for path, linear in model.named_modules():
        if isinstance(linear, torch.nn.Linear):
            found, old = changed.get_submodule(path), linear.weight.data
            bound = old.abs().amax(-1, keepdim=True) / 127 * 0.506
            if isinstance(found, quantise.Linear4):  # and its two numbers become bfloat16
                bound = 1.2 * quantise.error_bound(old, "Q4_1").expand(-1, -1, 32).flatten(1)
            linear.weight.data = found.weight.double()
            assert ((linear.weight - old).abs() <= bound).all()
    assert_close(changed(*ids), model(*ids))
    layers = {type(m) for m in changed.modules()}
    assert torch.nn.Linear not in layers and not any(p.requires_grad for p in changed.parameters())
    assert (quantise.Linear4 in layers) == (weights == "int4" and name == "wide")
    if name == "tied":  # one table, and it stays one
        for one in (changed, copy.deepcopy(changed), changed.float()):
            assert one.tok_emb.q is one.lm_head.q and one.tok_emb.d is one.lm_head.d
    if name == "llama":  # another table stays as it is
        assert torch.equal(changed.tok_emb.weight, model.tok_emb.weight)
