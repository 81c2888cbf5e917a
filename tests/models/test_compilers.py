"""Compiled, exported, in ONNX and in half precision every model gives what it gives here."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import compilers
import pytest
import torch

SCRIPT = Path(compilers.__file__)
EXPORTED = [name for name in compilers.MODELS if name not in compilers.SEVERAL]
OURS = ["transformer", "bert", "gpt", "llama"]
OTHERS = [name for name in EXPORTED if name not in OURS]
KINDS = [*OURS, "MistralForCausalLM", "Olmo2ForCausalLM", "Gemma2ForCausalLM"]  # window, norms, cap
KINDS += ["T5ForConditionalGeneration", "DebertaV2ForMaskedLM", "ModernBertModel"]  # biases

often, seldom = pytest.mark.machinery, pytest.mark.slow


def run(way, names, *backend):
    "Each with a padding mask, where it takes one, and without."
    subprocess.run([sys.executable, SCRIPT, way, *names, *backend], check=True)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(KINDS, marks=often),  # one of each kind of attention
        pytest.param([name for name in EXPORTED if name not in KINDS], marks=seldom),
    ],
)
def test_an_exported_program_takes_any_batch_and_length(names):
    run("exported", names)


@pytest.mark.parametrize(
    ("names", "backend"),
    [
        pytest.param(["llama"], "inductor", marks=often),  # code of the processor: half a minute
        pytest.param(["transformer", "bert"], "inductor", marks=seldom),
        pytest.param(OURS, "aot_eager", marks=often),
        pytest.param(OTHERS, "aot_eager", marks=seldom),
    ],
)
def test_a_compiled_model_is_one_graph_and_learns_the_same(names, backend):
    "Forward and a training step."
    run("compiled", names, backend)


@seldom
def test_what_is_several_graphs_learns_the_same_too():
    run("compiled", compilers.SEVERAL, "aot_eager")


@pytest.mark.skipif(not importlib.util.find_spec("onnxruntime"), reason="needs onnxruntime")
@pytest.mark.parametrize(
    "names", [pytest.param(OURS, marks=often), pytest.param(OTHERS, marks=seldom)]
)
def test_onnx(names):
    run("onnx", names)


@pytest.mark.parametrize("name", compilers.PUBLISHED)
def test_settings_without_dropout_are_read_as_such(name):
    model = compilers.build(name).train()
    words = compilers.inputs(model, masked=False)
    assert torch.equal(model(**words), model(**words))


@often
@pytest.mark.parametrize(
    ("name", "masked"), [(name, x) for name in compilers.MODELS for x in compilers.masks(name)]
)
def test_half_precision(name, masked, single):
    compilers.half(name, masked)
