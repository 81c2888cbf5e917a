"One file of tensors: what goes in comes out, ties are kept, and what does not fit is named."

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from transformer_lit.course.files import InputError
from transformer_lit.course.tensors import (
    check_finite,
    check_fit,
    load_tensors,
    open_tensors,
    save_tensors,
)


def test_what_is_written_is_read(tmp_path):
    table = torch.randn(7, 5)
    tensors = {"a": table, "b": torch.arange(3), "turned": table.mT, "a again": table}
    save_tensors(tensors, tmp_path / "x")
    with safe_open(tmp_path / "x", "pt") as file:
        assert set(file.keys()) == {"a", "b", "turned"}  # one storage, two shapes
        assert json.loads(file.metadata()["aliases"]) == {"a again": "a"}
    found = load_tensors(tmp_path / "x")
    assert list(found) == ["a", "b", "turned", "a again"]
    for name, x in tensors.items():
        torch.testing.assert_close(found[name], x, rtol=0, atol=0)
    assert found["a again"] is found["a"]


def test_dtype_is_for_floating_point_only(tmp_path):
    save_tensors({"a": torch.ones(2), "b": torch.arange(3)}, tmp_path / "x", dtype=torch.bfloat16)
    found = load_tensors(tmp_path / "x")
    assert (found["a"].dtype, found["b"].dtype) == (torch.bfloat16, torch.int64)


def test_a_change_of_what_was_read_stays_in_memory(tmp_path):
    save_tensors({"a": torch.ones(2)}, tmp_path / "x")
    load_tensors(tmp_path / "x")["a"].zero_()
    assert load_tensors(tmp_path / "x")["a"].tolist() == [1, 1]
    with open_tensors(tmp_path / "x") as file:
        mapped = file.get_tensor("a")
    save_tensors({"a": mapped * 2}, tmp_path / "y")  # what is mapped can be written
    assert load_tensors(tmp_path / "y")["a"].tolist() == [2, 2]


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"\x02\x00\x00\x00\x00\x00\x00\x00{}x"])
def test_damaged_and_missing_files_are_named(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InputError, match=r"x is damaged or not a safetensors"):
        load_tensors(tmp_path / "x")
    for absent in (tmp_path / "y", tmp_path):  # a folder is no file
        with pytest.raises(InputError, match="there is no file"):
            load_tensors(absent)


@pytest.mark.parametrize("aliases", ["{", "3", '{"b": "c"}', '{"b": []}'])
def test_damaged_aliases_are_named(tmp_path, aliases):
    save_file({"a": torch.ones(2)}, tmp_path / "x", metadata={"aliases": aliases})
    with pytest.raises(InputError, match="not valid aliases"):
        load_tensors(tmp_path / "x")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weight": None}, "weight is missing"),
        ({"other": torch.ones(2)}, "other is unknown"),
        ({"weight": torch.ones(3, 5)}, r"weight has shape \(3, 5\), not \(5, 3\)"),
        ({"bias": torch.ones(5, dtype=torch.int8)}, "bias is of torch.int8, not torch.float32"),
        ({"a": None, "b": torch.ones(1), "c": torch.ones(1), "weight": None}, "b is unknown.*c"),
    ],
)
def test_what_does_not_fit_is_named(change, words):
    module = nn.Linear(3, 5)
    tensors = {k: x for k, x in (module.state_dict() | change).items() if x is not None}
    with pytest.raises(InputError, match=words):
        check_fit(module, tensors, "here")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_named(dtype, bad):
    x = torch.full((5, 7), torch.finfo(dtype).max, dtype=dtype)
    fine = {"a": x, "empty": x[:0], "whole": torch.arange(3)}
    check_finite(fine, "here")  # no sum that overflows is taken for a bad number
    x = x.clone()
    x[3, 4] = bad
    with pytest.raises(InputError, match="here: b has numbers that are not finite"):
        check_finite({**fine, "b": x}, "here")


def test_a_full_disk_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="cannot write"):
        save_tensors({"a": torch.ones(2)}, tmp_path / "nowhere" / "x")
