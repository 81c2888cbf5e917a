"""Compiled, exported, in ONNX and in half precision every model gives what it gives here."""

import os
import subprocess
import sys

import compilers
import pytest
import torch

EXPORTED = [name for name in compilers.MODELS if name not in compilers.SEVERAL]
FIRST = ["transformer", "BertForMaskedLM", "GPT2LMHeadModel", "LlamaForCausalLM"]
KINDS = [
    *FIRST,
    "MistralForCausalLM",
    "Olmo2ForCausalLM",
    "Gemma2ForCausalLM",
]  # window, norms, cap
KINDS += ["T5ForConditionalGeneration", "DebertaV2ForMaskedLM", "ModernBertModel"]  # biases

often, seldom = pytest.mark.machinery, pytest.mark.slow


def rest(some):
    return [name for name in EXPORTED if name not in some]


@pytest.mark.parametrize(
    ("way", "names", "backend"),
    [
        pytest.param("steps", FIRST[2:], [], marks=often),
        pytest.param("exported", KINDS, [], marks=often),
        pytest.param("exported", rest(KINDS), [], marks=seldom),
        pytest.param("compiled", FIRST[3:], ["inductor"], marks=often),  # half a minute
        pytest.param("compiled", FIRST[:2], ["inductor"], marks=seldom),
        pytest.param("compiled", FIRST, ["aot_eager"], marks=often),
        pytest.param("compiled", rest(FIRST), ["aot_eager"], marks=seldom),
        pytest.param("compiled", [*compilers.SEVERAL], ["aot_eager"], marks=seldom),
        pytest.param("onnx", FIRST, [], marks=often),
        pytest.param("onnx", rest(FIRST), [], marks=seldom),
    ],
)
def test_by_any_way_a_model_gives_the_same(way, names, backend):
    "Each with a padding mask, where it takes one, and without."
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, compilers.__file__, way, *names, *backend]
    subprocess.run(command, check=True, env=os.environ | path)


@pytest.mark.parametrize("name", compilers.MODELS)
def test_in_16_bits_a_model_gives_the_same_but_rounded(name, single):
    for masked in compilers.masks(name):
        compilers.half(name, masked)


@pytest.mark.parametrize("name", compilers.MODELS)
def test_settings_without_dropout_are_read_as_such(name):
    model = compilers.build(name).train()
    words = compilers.inputs(model, masked=False)
    assert torch.equal(model(**words), model(**words))


@pytest.mark.parametrize("name", compilers.MODELS)
def test_printed_each_part_tells_its_sizes(name):
    for part in compilers.MODELS[name]().modules():
        if type(part).__module__.startswith("transformer_lit"):
            own = {n: x for n, x in vars(part).items() if n[0] != "_" and n != "training"}
            sizes = {f"{n}={x}" for n, x in own.items() if isinstance(x, int | float)}
            assert not [size for size in sizes if size not in repr(part)]
