"""Tensors of a folder come into a module by name, or one error says which does not."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from transformer_lit.course.files import InputError
from transformer_lit.models.decoders import Settings
from transformer_lit.models.hf import Conversion, conversion_of
from transformer_lit.models.hf_build import INDEX, WHOLE, Tensors, fill, save_hf, shared_names
from transformer_lit.models.llama import Llama, LlamaConfig

NAMES = {"layers.{i}": "h.{i}.deep", "layers.{i}.bias": "h.{i}.offset", "emb": "emb", "out": "out"}


def module():
    "Two layers, and a table with two uses."
    module = nn.Module()
    module.layers = nn.ModuleList([nn.Linear(5, 5), nn.Linear(5, 5)])
    module.emb, module.out = nn.Embedding(7, 5), nn.Linear(5, 7, bias=False)
    module.out.weight = module.emb.weight
    return module


@pytest.fixture(autouse=True)
def as_stored(single):
    "Tensors are of float32, as in a folder."


@pytest.fixture
def folder(tmp_path):
    tensors = {conversion_of(ours, NAMES).names[0]: x for ours, x in module().named_parameters()}
    save_file(tensors, tmp_path / WHOLE)
    (tmp_path / "config.json").write_text('{"size": 5}')
    return tmp_path


def read(folder, names=NAMES, dtype=torch.float32):
    Settings.read(folder)
    with torch.device("meta"):
        empty = module()
    fill(empty, Tensors(folder), names, dtype)
    return empty


def shards(folder, **changes):
    "The folder in two files with an index; `changes` go into its weight_map."
    tensors = load_file(folder / WHOLE)
    (folder / WHOLE).unlink()
    files = {name: f"model-{1 + (name == 'emb.weight')}.safetensors" for name in tensors}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in files if files[name] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"weight_map": {**files, **changes}}))


def test_the_longest_beginning_counts_and_ends_at_a_dot():
    assert conversion_of("layers.13.weight", NAMES).names == ("h.13.deep.weight",)
    assert conversion_of("layers.13.bias", NAMES).names == ("h.13.offset",)
    with pytest.raises(InputError, match=r"embedding.weight"):
        conversion_of("embedding.weight", NAMES)


@pytest.mark.parametrize("split", [False, True])
def test_what_is_written_is_read_and_ties_are_kept(folder, split):
    if split:
        shards(folder)
        assert len(list(folder.glob("model-*.safetensors"))) == 2
    ours, again = read(folder), read(folder)
    assert ours.out.weight is ours.emb.weight
    assert shared_names(ours) == shared_names(module())
    for one, two in zip(ours.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two) and one.data_ptr() != two.data_ptr()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({WHOLE: b""}, "damaged or not a safetensors"),
        ({WHOLE: b"\xff" * 100}, "damaged or not a safetensors"),
        ({WHOLE: ...}, "neither model.safetensors nor .* Download one of them: a pickle"),
        ({"config.json": b"[]"}, "not a table"),
        ({"config.json": ...}, "config.json"),
        ({WHOLE: ..., INDEX: b"[]"}, "no weight_map. Copy it from the model again"),
        ({WHOLE: ..., INDEX: b'{"weight_map": {}}'}, "no weight_map. Copy it from the model again"),
        ({WHOLE: ..., INDEX: b'{"weight_map": {"x": "no.safetensors"}}'}, "no.safetensors"),
        ({WHOLE: ..., INDEX: b'{"weight_map": {"x": 3}}'}, "must name .safetensors beside it"),
        *(
            ({"emb.weight": file}, "must name .safetensors beside it, not ")
            for file in (
                "../x.safetensors",
                "/x.safetensors",
                "a\\b.safetensors",
                "C:w.safetensors",
            )
        ),
        *(
            ({"emb.weight": torch.ones(shape)}, r"emb.weight \(.*needs \(7, 5\)")
            for shape in ((), (3,), (5, 3, 1), (4, 3))
        ),
        ({"emb.weight": torch.ones(7, 5).byte()}, "emb.weight is torch.uint8. Choose the"),
        ({"table.weight": torch.ones(7, 5)}, "emb.weight and table.weight are tied but differ"),
        *(
            ({"h.1.offset": torch.full((5,), bad, dtype=torch.float64)}, "h.1.offset .* not finite")
            for bad in (torch.nan, torch.inf, 2.0**200)  # this is inf in float32
        ),
    ],
)
def test_what_cannot_be_read_is_refused(folder, changes, words):
    "A file, a place in the index, or a tensor."
    names = {**NAMES, "emb": (Conversion(("emb",), lambda x: x.t().t()[:, :5]), "table")}
    for name, x in changes.items():
        if isinstance(x, Tensor):
            save_file(load_file(folder / WHOLE) | {name: x}, folder / WHOLE)
        elif isinstance(x, str):
            shards(folder, **{name: x})
        else:
            (folder / name).unlink(missing_ok=True)
            (folder / name).write_bytes(x) if x is not ... else None
    with pytest.raises(InputError, match=words):
        read(folder, names)


def own(tensor, folder):
    "Whether a tensor lies in memory of its own, not in the file."
    with open("/proc/self/maps") as lines:
        for line in lines:
            first, last = (int(x, 16) for x in line.split()[0].split("-"))
            if first <= tensor.data_ptr() < last:
                return str(folder) not in line
    return True


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@linux
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_needs_no_change_is_mapped_and_a_change_stays_in_memory(folder, dtype):
    turned = Conversion(("h.{i}.deep.weight",), Tensor.t)
    ours = read(folder, {**NAMES, "layers.{i}.weight": turned}, dtype)
    assert {x.dtype for x in ours.parameters()} == {dtype}
    assert own(ours.emb.weight, folder) == (dtype == torch.bfloat16)
    assert own(ours.layers[0].weight, folder) and ours.layers[0].weight.is_contiguous()
    before = (folder / WHOLE).read_bytes()
    with torch.no_grad():
        ours.emb.weight.zero_()
    assert not ours.out.weight.any() and (folder / WHOLE).read_bytes() == before


MEMORY = """
import sys, torch
from transformer_lit.models.hf_build import load_hf
torch.set_num_threads(1)
dtype = getattr(torch, sys.argv[3])

def peak():
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

load_hf(sys.argv[2], dtype=dtype)(torch.zeros(1, 5, dtype=torch.long))  # as every first call
before = peak()
with torch.inference_mode():
    model = load_hf(sys.argv[1], dtype=dtype)
    model(torch.zeros(1, 5, dtype=torch.long))
print((peak() - before) / sum(p.nbytes for p in model.parameters()))
"""


@linux
@pytest.mark.machinery
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_large_folder_needs_little_more_than_its_weights(dtype, tmp_path):
    sizes = {"vocab_size": 4001, "n_heads": 16, "d_ff": 2816, "max_len": 71}
    for name, C, n in (("small", 64, 1), ("large", 1024, 10)):  # 132 million
        model = Llama(LlamaConfig(**sizes, d_model=C, n_layers=n))
        save_hf(model.bfloat16(), tmp_path / name)
    del model
    given = (str(tmp_path / "large"), str(tmp_path / "small"), dtype)
    command = [sys.executable, "-c", MEMORY, *given]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert 0.9 < float(done.stdout) < 1.1
