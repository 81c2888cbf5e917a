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


def run(way, names, *backend):
    subprocess.run([sys.executable, SCRIPT, way, *names, *backend], check=True)


@pytest.mark.machinery
def test_the_compiler_s_code():
    "With a padding mask and without, forward and a training step."
    run("compiled", OURS, "inductor")


@pytest.mark.machinery
def test_every_model_is_one_graph_and_learns_the_same():
    "Of the recurrent model there are several graphs: it packs its source by length."
    run("compiled", compilers.MODELS, "aot_eager")


@pytest.mark.machinery
def test_an_exported_program_takes_any_batch_and_length():
    run("exported", EXPORTED)


@pytest.mark.machinery
@pytest.mark.skipif(not importlib.util.find_spec("onnxruntime"), reason="needs onnxruntime")
def test_onnx():
    run("onnx", EXPORTED)


@pytest.mark.machinery
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", compilers.MODELS)
def test_half_precision(name, masked, single):
    compilers.half(name, masked)
