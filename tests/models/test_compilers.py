"""Compiled, exported, in ONNX and in half precision every model gives what it gives here."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import compilers
import pytest

SCRIPT = Path(compilers.__file__)
OURS = ["transformer", "bert", "llama"]  # compiled to code of the processor: half a minute each
EXPORTED = [name for name in compilers.MODELS if name != "recurrent"]  # it loops over the length


def run(*words):
    subprocess.run([sys.executable, SCRIPT, *words], check=True)


@pytest.mark.machinery
@pytest.mark.parametrize("name", OURS)
def test_the_compiler_s_code(name):
    "With a padding mask and without, forward and a training step."
    run("compiled", name, "inductor")


@pytest.mark.machinery
@pytest.mark.parametrize("name", compilers.MODELS)
def test_a_model_is_one_graph_and_learns_the_same(name):
    "Of the recurrent model there are several graphs: it packs its source by length."
    run("compiled", name, "aot_eager")


@pytest.mark.machinery
@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_program_takes_any_batch_and_length(name):
    run("exported", name)


@pytest.mark.machinery
@pytest.mark.skipif(not importlib.util.find_spec("onnxruntime"), reason="needs onnxruntime")
@pytest.mark.parametrize("name", EXPORTED)
def test_onnx(name):
    run("onnx", name)


@pytest.mark.machinery
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", compilers.MODELS)
def test_half_precision(name, masked, single):
    compilers.half(name, masked)
