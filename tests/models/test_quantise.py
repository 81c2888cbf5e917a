"""Blocks have the bits of ggml's, and no number moves further than its bound."""

import copy

import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_lit.course import data
from transformer_lit.models import quantise
from transformer_lit.models.bert import Bert, BertConfig
from transformer_lit.models.gguf import load_gguf
from transformer_lit.models.gpt import GPT, GPTConfig
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.models.transformer import Transformer, TransformerConfig

KINDS = ("Q8_0", "Q4_0", "Q4_1")


def both(kind):
    at = kind.lower()
    return getattr(quantise, f"quantise_{at}"), getattr(quantise, f"dequantise_{at}")


def blocks(seed, n):
    "Blocks of every size from 1e-9 to 1e3, around 0 and away from it, some flat, some with ties."
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 32, generator=draw) + 3 * torch.randn(n, 1, generator=draw)
    x *= 10 ** (12 * torch.rand(n, 1, generator=draw) - 9)
    x[::7] = x[::7].sign() * x[::7, :1]  # both signs of one size
    x[::11] = x[::11, :1]
    x[::13] = 0
    return x


@pytest.mark.usefixtures("single")
@pytest.mark.parametrize("kind", KINDS)
class TestBlocks:
    def test_ten_thousand_blocks_stay_within_their_bound(self, kind):
        quantise_, dequantise = both(kind)
        x = blocks(0, 10_000)
        bound = quantise.error_bound(x, kind)[:, 0]
        share = (x.double() - dequantise(quantise_(x)).double()).abs() / bound
        assert share.max() <= 1
        assert share.max() > 0.9  # no bound that nothing comes near to

    @given(seed=st.integers(0, 2**32 - 1))
    @settings(max_examples=50, deadline=None)
    def test_the_bits_are_those_of_the_reference(self, kind, seed):
        quantise_, dequantise = both(kind)
        x = blocks(seed, 91).view(13, 224)
        theirs = quantize(x.numpy(), GGMLQuantizationType[kind])
        assert torch.equal(quantise_(x), torch.from_numpy(theirs))
        back = torch.from_numpy(dequantize(theirs, GGMLQuantizationType[kind]))
        assert torch.equal(dequantise(quantise_(x)), back)

    def test_what_comes_back_is_kept(self, kind):
        "Dequantised numbers lie on the grid: a second time moves them by the rounding of d alone."
        quantise_, dequantise = both(kind)
        once = dequantise(quantise_(torch.randn(50, 32)))
        again = dequantise(quantise_(once))
        torch.testing.assert_close(again, once, rtol=2e-3, atol=2e-3)

    def test_rows_that_do_not_cut_into_blocks_are_refused(self, kind):
        with pytest.raises(ValueError, match="rows of 33"):
            both(kind)[0](torch.randn(2, 33))


def test_nibbles_go_out_and_come_back():
    q = torch.randint(16, (3, 5, 38)).double()
    assert torch.equal(quantise.unpack_nibbles(quantise.pack_nibbles(q)), q.to(torch.uint8))


def test_an_unknown_kind_has_no_bound():
    with pytest.raises(ValueError, match="Q2_K"):
        quantise.error_bound(torch.randn(32), "Q2_K")


class TestRows:
    def test_ten_thousand_rows_stay_within_half_a_step(self):
        w = blocks(0, 10_000).double()
        q, d = quantise.quantise_rows(w)
        share = (w - q * d.double()[:, None]).abs() / d.double()[:, None]
        assert 0.49 < share.max() <= 0.5 and q.abs().max() <= 127
        assert (q[~w.any(-1)] == 0).all()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_so_do_weights_of_few_bits(self, dtype):
        w = torch.randn(101, 509).to(dtype)
        q, d = quantise.quantise_rows(w)
        d = d.double()[:, None]
        assert ((w.double() - q * d).abs() <= d * (0.5 + 1e-5)).all()

    @pytest.mark.usefixtures("single")
    def test_a_scale_is_rounded_up_and_by_little(self):
        w = torch.rand(10_000, 1) * 10 ** (12 * torch.rand(10_000, 1) - 9)
        d, exact = quantise.quantise_rows(w)[1].double(), w[:, 0].double() / 127
        assert (exact <= d).all() and (d <= 1.012 * exact).all()


def layer(weights, n, c, bias=False):
    linear = torch.nn.Linear(c, n, bias)
    return quantise.quantised(torch.nn.Sequential(linear), weights)[0]


def middle(packed):
    "Scale and middle of each block of Q4_1, and its integers around 0."
    blocks = quantise.in_blocks(packed, 20)
    d, m = (quantise.half_at(blocks, at).double() for at in (0, 2))
    return d, m + 8 * d, quantise.unpack_nibbles(blocks[..., 4:]).double() - 8


@pytest.mark.usefixtures("single")
def test_blocks_of_q4_1_move_by_the_rounding_of_two_numbers_alone():
    packed = quantise.quantise_q4_1(blocks(0, 4800).view(1600, 96))
    q, d = (torch.nn.Parameter(x, False) for x in quantise.pack_q4_1(packed))
    weight = quantise.Linear4(q, d).weight.double().view(1600, 3, 32)
    d, z, steps = middle(packed)
    room = d / 32 + z.abs() / 256
    share = (weight - steps * d - z).abs() / (room + (room == 0))
    assert 0.9 < share.max() <= 1 + 2**-12
    torch.testing.assert_close(weight.float(), (steps * d.bfloat16() + z.bfloat16()).float())


@pytest.mark.parametrize("weights", ["int8", "int4"])
class TestLinear:
    @pytest.mark.usefixtures("single")
    @pytest.mark.parametrize("shape", [(96,), (1, 96), (3, 5, 96), (96, 7), (0, 96)])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_the_kernel_gives_the_formula_s_numbers(self, weights, shape, dtype):
        "bfloat16 rounds x, and what comes out: by 2^-8 of a number, each; a bias in its own type."
        few, x = layer(weights, 48, 96, bias=True), torch.randn(shape).to(dtype)
        x = x.T if shape == (96, 7) else x
        y, weight = few(x), few.weight.double()
        expected = x.double() @ weight.T + few.bias
        sizes = x.double().abs() @ weight.abs().T + few.bias.abs()
        assert y.dtype == torch.promote_types(dtype, few.bias.dtype)
        assert (
            y.shape == expected.shape
            and ((y.double() - expected).abs() <= 1.01 * 2**-7 * sizes).all()
        )

    @pytest.mark.parametrize("c", [96, 48, 37, 8])
    def test_in_float64_and_for_any_width_the_formula_computes(self, weights, c):
        few, x = layer(weights, 32, c, bias=True), torch.randn(3, 5, c)
        assert isinstance(few, quantise.Linear4) == (weights == "int4" and c == 96)
        expected = x @ few.weight.double().T + few.bias
        torch.testing.assert_close(few(x), expected)
        if c % 16:
            few = few.float()
            torch.testing.assert_close(few(x.float()), expected.float())


def models():
    sizes = {"d_model": 24, "n_layers": 2, "n_heads": 2, "d_ff": 17}
    yield "llama", Llama(LlamaConfig(11, **sizes))
    yield "tied llama", Llama(LlamaConfig(11, **sizes, tied=True))
    yield "gpt", GPT(GPTConfig(11, **sizes, max_len=7))
    yield "bert", Bert(BertConfig(11, **sizes, max_len=7))
    yield "transformer", Transformer(TransformerConfig(11, 24, 17, 2, 2))
    yield "wide", Llama(LlamaConfig(48, 64, 2, 2, d_ff=96))  # 4 bits fit every layer


def rounded(w, weights):
    "The weights that are kept, by hand."
    if weights == "int8" or len(w) % 16 or w.shape[1] % 32:
        q, d = quantise.quantise_rows(w)
        return q * d.double()[:, None]
    d, z, steps = middle(quantise.quantise_q4_1(w))
    return (steps * d.bfloat16().double() + z.bfloat16().double()).flatten(-2)


class TestQuantised:
    @pytest.mark.parametrize(
        ("name", "model"), [*models()], ids=lambda x: x if isinstance(x, str) else ""
    )
    @pytest.mark.parametrize("weights", ["int8", "int4"])
    def test_a_model_computes_with_the_rounded_weights(self, name, model, weights):
        "In float64: the same model, whose weights of linear layers were rounded by hand."
        model = copy.deepcopy(model).double().eval()
        ids = [torch.randint(11, (3, 7))] * (2 if name == "transformer" else 1)
        changed = quantise.quantised(copy.deepcopy(model), weights).double()
        with torch.no_grad():
            users = [m.weight for m in model.modules() if isinstance(m, torch.nn.Linear)]
            for weight in {id(w): w for w in users}.values():
                weight.copy_(rounded(weight, weights))
            torch.testing.assert_close(changed(*ids), model(*ids))
        assert not any(isinstance(m, torch.nn.Linear) for m in changed.modules())
        four = any(isinstance(m, quantise.Linear4) for m in changed.modules())
        assert four == (weights == "int4" and name == "wide")
        assert not any(p.requires_grad for p in changed.parameters())

    @pytest.mark.parametrize("weights", ["int8", "int4"])
    def test_a_tied_table_is_in_memory_once_and_stays_so(self, weights):
        model = Llama(LlamaConfig(48, 64, 2, 2, d_ff=96, tied=True))
        model = quantise.quantised(model, weights)
        for changed in (model, copy.deepcopy(model), model.to(torch.float32)):
            assert changed.tok_emb.q is changed.lm_head.q and changed.tok_emb.d is changed.lm_head.d

    def test_another_table_stays_as_it_was(self):
        model = Llama(LlamaConfig(11, 24, 2, 2, d_ff=17))
        table = model.tok_emb.weight
        assert quantise.quantised(model).tok_emb.weight is table

    def test_what_weights_cannot_be_kept_as(self):
        with pytest.raises(ValueError, match="int3"):
            quantise.quantised(torch.nn.Linear(2, 2), "int3")


@pytest.mark.machinery
@pytest.mark.usefixtures("single")
def test_few_bits_move_the_perplexity_of_smollm2_by_one_percent_at_most(smollm2):
    "On 1,536 tokens of this book, which SmolLM2 has not seen; as its file is, and by kernels."
    found = load_gguf(smollm2)
    ids = torch.tensor(found.tokenizer.encode(data.load_text("book", "train")[20_000:30_000]))
    ids = ids[: 3 * 512].view(3, 512)

    def perplexity(model):
        with torch.inference_mode():
            logits = model(ids)[:, :-1]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).exp()

    before = perplexity(found.model)
    assert 20 < before < 100  # it reads
    four = load_gguf(smollm2, weights="int4").model
    for few in (quantise.quantised(found.model, "int8"), four):
        after = perplexity(few)
        assert before * 0.99 < after < before * 1.01 and after != before
