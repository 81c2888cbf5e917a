"""Every name builds a causal model that decodes as it reads; two choices are GPT and Llama."""

from itertools import product

import pytest
import torch

from transformer_lit.models.assembly import POSITIONS, AssemblyConfig, assemble
from transformer_lit.models.gpt import GPT, GPTConfig
from transformer_lit.models.llama import Llama, LlamaConfig

SIZES = {"vocab_size": 23, "d_model": 20, "n_layers": 3, "n_heads": 2, "d_ff": 29, "max_len": 17}


def build(**parts):
    return assemble(AssemblyConfig(**{**SIZES, **parts})).eval()


@pytest.mark.parametrize(("position", "kv"), list(product(POSITIONS, (2, 1))))
def test_decoding_in_chunks_gives_the_logits_of_one_pass(position, kv):
    model, ids = build(position=position, n_kv_heads=kv), torch.randint(23, (3, 17))
    state = model.start(3, 17)
    steps = [model.step(part, state) for part in ids.split((7, 1, 1, 8), 1)]
    torch.testing.assert_close(torch.cat(steps, 1), model(ids))


@pytest.mark.parametrize(
    "parts",
    [{"position": name} for name in POSITIONS]
    + [{"residual": name} for name in ("pre", "post", "sandwich", "deep")]
    + [{"norm": "layer"}, {"gated": False, "activation": "relu"}, {"init": "gpt2"}, {"tied": True}],
    ids=str,
)
def test_no_place_sees_a_later_one_and_all_weights_are_used(parts):
    model, ids = build(**parts), torch.randint(23, (2, 13))
    other = ids.clone()
    other[:, 7:] = (other[:, 7:] + 1) % 23
    torch.testing.assert_close(model(ids)[:, :7], model(other)[:, :7])
    model(ids).square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_narrower_type_costs_its_roundings_and_no_more(position, dtype):
    "6 sublayers with some 10 roundings each, of half a step at most and of either sign: √60 / 2."
    model, ids = build(position=position), torch.randint(23, (3, 17))
    exact = model(ids)
    got = model.to(dtype)(ids)
    assert got.dtype == dtype
    assert (got - exact).norm() < 60**0.5 / 2 * torch.finfo(dtype).eps * exact.norm()


def test_gpt_and_llama_are_two_choices_of_names():
    ids = torch.randint(23, (2, 17))
    names = {"position": "learned", "norm": "layer", "activation": "gelu_tanh", "gated": False}
    gpt = GPT(GPTConfig(**SIZES)).eval()
    ours = build(**names, bias=True, tied=True, init="gpt2")
    ours.load_state_dict(gpt.state_dict())
    torch.testing.assert_close(ours(ids), gpt(ids), rtol=0, atol=0)
    llama = Llama(LlamaConfig(**SIZES, n_kv_heads=1, eps=1e-6)).eval()
    ours = build(n_kv_heads=1, init="gpt2")
    ours.load_state_dict(llama.state_dict())
    torch.testing.assert_close(ours(ids), llama(ids), rtol=0, atol=0)


def test_first_weights_are_those_of_gpt_and_llama():
    for names, build_other, other in (
        ({"init": "gpt2"}, Llama, LlamaConfig(**SIZES)),
        (
            {"position": "learned", "norm": "layer", "gated": False, "bias": True, "init": "gpt2"},
            GPT,
            GPTConfig(**SIZES, tied=False),
        ),
    ):
        torch.manual_seed(1)
        ours = build(**names).state_dict()
        torch.manual_seed(1)
        for name, theirs in build_other(other).state_dict().items():
            assert ours[name].std().item() == pytest.approx(theirs.std().item(), rel=0.2), name


def test_what_layers_share():
    t5, deberta, xl = (build(position=name) for name in ("t5", "deberta", "transformer-xl"))
    assert len({id(layer.attn.position) for layer in t5.layers}) == 1
    plugs = [layer.attn.position for layer in deberta.layers]
    assert len({id(plug) for plug in plugs}) == 3
    assert len({id(plug.weight) for plug in plugs}) == 1
    assert len({id(layer.attn.position.r_proj) for layer in xl.layers}) == 3


def test_a_norm_ends_the_stack_where_the_wiring_asks_for_one():
    kinds = {name: build(residual=name).final_norm for name in ("pre", "sandwich", "post", "deep")}
    assert [type(norm).__name__ for norm in kinds.values()] == [
        *("RMSNorm", "RMSNorm", "Identity", "Identity")
    ]


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"n_layers": 0}, "n_layers must be a positive whole number, got 0"),
        ({"residual": "deep", "init": "he"}, "init is 'he'; known are: xavier, gpt2"),
    ],
)
def test_what_would_be_silently_left_out_is_refused(parts, told):
    with pytest.raises(ValueError, match=told):
        build(**parts)
