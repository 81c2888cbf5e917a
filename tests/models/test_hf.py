"""Tensors of a folder come into a module by name, or one error says which does not."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from transformer_lit.course.files import InputError
from transformer_lit.models.decoders import Settings
from transformer_lit.models.hf import Made, made_from
from transformer_lit.models.hf_build import INDEX, WHOLE, Tensors, fill, shared_names

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
    tensors = {made_from(ours, NAMES).names[0]: x for ours, x in module().named_parameters()}
    save_file(tensors, tmp_path / WHOLE)
    (tmp_path / "config.json").write_text('{"size": 5}')
    return tmp_path


def read(folder, names=NAMES, dtype=torch.float32, **options):
    with torch.device("meta"):
        empty = module()
    fill(empty, Tensors(folder, **options), names, dtype)
    return empty


def shards(folder, **changes):
    "The folder in two files with an index; `changes` go into its weight_map."
    tensors = load_file(folder / WHOLE)
    (folder / WHOLE).unlink()
    files = {name: f"model-{1 + (name == 'emb.weight')}.safetensors" for name in tensors}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in files if files[name] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"weight_map": {**files, **changes}}))


def test_the_longest_beginning_of_a_name_counts():
    assert made_from("layers.13.weight", NAMES).names == ("h.13.deep.weight",)
    assert made_from("layers.13.bias", NAMES).names == ("h.13.offset",)
    assert made_from("emb.weight", NAMES).names == ("emb.weight",)
    with pytest.raises(InputError, match=r"embedding.weight"):
        made_from("embedding.weight", NAMES)  # a beginning ends at a dot


def test_layers_of_both_sides_are_counted_and_the_first_of_several_names_is_told():
    names = {"encoder.{i}": "e.{i}", "decoder.{i}.x": ("d.{i}", "old.{i}.x"), "transform.0": "t"}
    assert made_from("encoder.11.bias", names).names == ("e.11.bias",)
    assert made_from("decoder.2.x.bias", names).names == ("d.2.bias",)
    assert made_from("transform.0.bias", names).names == ("t.bias",)  # a number of theirs, no layer


def test_an_entry_may_be_a_function_of_the_number_of_an_expert():
    names = {"layers.{i}.experts.{j}.up": lambda j: Made(("l.{i}.all",), lambda x: x[j])}
    made = made_from("layers.3.experts.2.up.bias", names)
    assert made.names == ("l.3.all.bias",)
    assert torch.equal(made.make(torch.arange(15).view(5, 3)), torch.arange(6, 9))


def test_one_of_several_names_is_enough_and_two_must_agree(folder):
    names, tensors = {**NAMES, "emb": ("table", "emb")}, load_file(folder / WHOLE)
    assert torch.equal(read(folder, names).emb.weight, tensors["emb.weight"])
    save_file(tensors | {"table.weight": tensors["emb.weight"].clone()}, folder / WHOLE)
    assert torch.equal(read(folder, names).emb.weight, tensors["emb.weight"])
    save_file(tensors | {"table.weight": tensors["emb.weight"] + 1}, folder / WHOLE)
    with pytest.raises(InputError, match=r"table.weight and emb.weight are tied, and differ"):
        read(folder, names)
    save_file({n: tensors[n] for n in tensors if n != "emb.weight"}, folder / WHOLE)
    with pytest.raises(InputError, match=r"lacks table.weight$"):
        read(folder, names)


@pytest.mark.parametrize("split", [False, True])
def test_what_is_written_is_read_and_ties_are_kept(folder, split):
    if split:
        shards(folder)
        assert len(list(folder.glob("model-*.safetensors"))) == 2
    ours = read(folder)
    assert ours.out.weight is ours.emb.weight
    assert shared_names(ours) == shared_names(module())
    assert Settings.read(folder) == {"size": 5}
    again = read(folder)
    for one, two in zip(ours.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two) and one.data_ptr() != two.data_ptr()


def test_an_untied_head_may_be_equal_but_not_other(folder):
    tensors = load_file(folder / WHOLE)
    save_file(tensors | {"out.weight": tensors["emb.weight"].clone()}, folder / WHOLE)
    assert read(folder).out.weight.shape == (7, 5)
    save_file(tensors | {"out.weight": tensors["emb.weight"] + 1}, folder / WHOLE)
    with pytest.raises(InputError, match=r"emb.weight and out.weight are tied, and differ"):
        read(folder)
    alone = tensors | {"out.weight": tensors["emb.weight"].clone()}
    del alone["emb.weight"]
    save_file(alone, folder / WHOLE)
    assert read(folder).emb.weight.shape == (7, 5)


def test_spellings_unify_and_what_is_ignored_is_not_read(folder):
    tensors = load_file(folder / WHOLE)
    old = {f"model.{name}": x for name, x in tensors.items()} | {"mask": torch.ones(3).bool()}
    save_file(old, folder / WHOLE)
    read(folder, spellings=(("^model.", ""),), ignored="^mask$")
    with pytest.raises(InputError, match=r"holds what nothing reads: mask$"):
        read(folder, spellings=(("^model.", ""),))
    save_file(old | {"emb.weight": tensors["emb.weight"].clone()}, folder / WHOLE)
    with pytest.raises(InputError, match=r"emb.weight twice"):
        read(folder, spellings=(("^model.", ""),), ignored="^mask$")


@pytest.mark.parametrize("shape", [(), (3,), (5, 3, 1), (4, 3)])
def test_a_tensor_of_which_nothing_can_be_made_is_named(folder, shape):
    names = {**NAMES, "emb": Made(("emb",), lambda x: Tensor.t(x)[:, :5])}
    tensors = load_file(folder / WHOLE)
    save_file(tensors | {"emb.weight": torch.ones(shape)}, folder / WHOLE)
    with pytest.raises(InputError, match=r"emb.weight \(.*a \(7, 5\) cannot be made"):
        read(folder, names)


@pytest.mark.parametrize(
    "file",
    [
        "../other.safetensors",
        "/etc/x.safetensors",
        "..",
        "a\\b.safetensors",
        "w.bin",
        3,
        "C:w.safetensors",
    ],
)
def test_an_index_names_only_safetensors_of_its_folder(folder, file):
    shards(folder, **{"emb.weight": file})
    with pytest.raises(InputError, match="no safetensors beside it"):
        read(folder)


def test_an_index_that_names_no_file_is_refused(folder):
    shards(folder)
    for text in ("[]", "{}", '{"weight_map": {}}', '{"weight_map": 3}'):
        (folder / INDEX).write_text(text)
        with pytest.raises(InputError, match=r"no weight_map"):
            read(folder)
    (folder / INDEX).write_text('{"weight_map": {"x": "model-3.safetensors"}}')
    with pytest.raises(InputError, match=r"model-3.safetensors"):
        read(folder)


def test_damaged_files_are_one_line(folder):
    whole = (folder / WHOLE).read_bytes()
    for damaged in (b"", b"\x80\x04", whole[:-3], b"\xff" * 100):
        (folder / WHOLE).write_bytes(damaged)
        with pytest.raises(InputError, match="damaged or no safetensors"):
            read(folder)
    for text in ("[]", "3"):
        (folder / "config.json").write_text(text)
        with pytest.raises(InputError, match=r"not a table"):
            Settings.read(folder)


def test_settings_say_what_is_missing_and_what_is_not_built():
    c = Settings(size=5, kind="a", architectures=["X"], off=None)
    assert c.architecture == "X" and Settings().architecture is None
    assert Settings(architectures="X").architecture is None
    assert c.sizes({"size": "d_model", "head_dim": "d_head"}) == {"d_model": 5, "d_head": None}
    with pytest.raises(InputError, match=r"does not say width"):
        c["width"]
    c.only(kind=("b", "a"), off=True, other=3)
    with pytest.raises(InputError, match=r"kind to 'a'; built is only 'b'"):
        c.only(kind="b")


def test_what_is_made_of_two_is_not_rounded_to_16_bits(folder):
    tensors = load_file(folder / WHOLE)
    two = {"emb.weight": tensors["emb.weight"].bfloat16(), "row": torch.full((5,), 1.0).bfloat16()}
    save_file(tensors | two, folder / WHOLE)
    names = {**NAMES, "emb.weight": Made(("emb.weight", "row"), lambda a, b: a + b)}
    ours = read(folder, names)
    assert torch.equal(ours.emb.weight, two["emb.weight"].float() + 1)


def own(tensor, folder):
    "Whether a tensor lies in memory of its own, not in the file."
    with open("/proc/self/maps") as lines:
        for line in lines:
            first, last = (int(x, 16) for x in line.split()[0].split("-"))
            if first <= tensor.data_ptr() < last:
                return str(folder) not in line
    return True


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_needs_no_change_is_mapped_and_a_change_stays_in_memory(folder, dtype):
    turned = Made(("h.{i}.deep.weight",), Tensor.t)
    ours = read(folder, {**NAMES, "layers.{i}.weight": turned}, dtype)
    assert {x.dtype for x in ours.parameters()} == {dtype}
    assert own(ours.emb.weight, folder) == (dtype == torch.bfloat16)
    assert own(ours.layers[0].weight, folder) and ours.layers[0].weight.is_contiguous()
    before = (folder / WHOLE).read_bytes()
    with torch.no_grad():
        ours.emb.weight.zero_()
    assert not ours.out.weight.any() and (folder / WHOLE).read_bytes() == before


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e300])
def test_weights_that_are_not_finite_are_refused(folder, bad):
    tensors = load_file(folder / WHOLE)
    tensors["h.1.offset"] = torch.full((5,), bad, dtype=torch.float64)  # 1e300 is inf in float32
    save_file(tensors, folder / WHOLE)
    with pytest.raises(InputError, match=r"h.1.offset holds numbers that are not finite"):
        read(folder)
