"The capstones' solutions as a reader runs them, beyond what their checks and pages show."

import json
import math
from pathlib import Path

import pytest
import torch
from chapter import exercises
from chapter import source as text_of
from torch.testing import assert_close

from transformer_lit.exercises import check, find_exercise
from transformer_lit.inference import sampling
from transformer_lit.models.hf_build import load_hf, save_hf
from transformer_lit.models.llama import Llama, LlamaConfig

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # a reader runs without them
ROOT = Path(__file__).parents[2]


def cells_of(chapter):
    return json.loads((ROOT / f"nbs/capstones/{chapter}.ipynb").read_text())["cells"]


def source(chapter, id):
    (found,) = (text_of(cell) for cell in cells_of(chapter) if cell["id"] == id)
    return found


LLAMA = "01_llama_from_a_blank_file"
SIZES = {"d_model": 84, "n_layers": 3, "n_heads": 6, "d_ff": 43, "rope_base": 503.0, "eps": 0.01}
FORMS = {
    "as many key/value heads": {"n_kv_heads": 6},
    "grouped heads": {"n_kv_heads": 2, "d_head": 10},
    "one key/value head, tied": {"n_kv_heads": 1, "tied": True},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_the_readers_llama_opens_and_writes_what_the_package_does(form, tmp_path):
    names, built = {}, {one.id: one for one in exercises(cells_of(LLAMA))}
    code = "\n\n".join([source(LLAMA, "imports"), *(one.solution for one in built.values())])
    model = Llama(LlamaConfig(103, **SIZES, **form, max_len=71))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    save_hf(model, tmp_path / "folder")
    try:
        exec(code, names)  # it asks for float64
        mine, package = names["load_llama"](tmp_path / "folder"), load_hf(tmp_path / "folder")
        ids, package = torch.randint(103, (2, 37)), package.double()
        assert_close(mine(ids), package(ids))
        new = names["generate"](mine, ids[:, :5], 11, lambda logits: logits.argmax(-1))
        how = {"max_new_tokens": 11, "temperature": 0}
        assert new.tolist() == sampling.generate(package, ids[:, :5], **how)
    finally:
        torch.set_default_dtype(torch.float32)
    lines = [one.solution.split("\n") for one in built.values() if one.kind == "build"]
    assert 90 < sum(bool(line.strip()) for text in lines for line in text) < 130  # about a hundred


FITS = {"rope.3": 4, "cache.3": 6}  # which parts of my_transformer.py the page says may be pasted
DIFFERS = {"attend.3": 5, "norm.3": 3, "feedforward.3": 8, "layers.3": 9, "llama.3": 10}


@pytest.mark.parametrize("id,number", [*FITS.items(), *DIFFERS.items()])
def test_the_page_names_the_parts_of_the_thread_that_fit(id, number):
    names = {"torch": torch, "nn": torch.nn, "math": math, "F": torch.nn.functional}
    exec(find_exercise(id).source, names)
    name = find_exercise(f"blank_llama.{number}").name
    said = source(LLAMA, "title").partition("that file,")[2].partition("rewrite the")[0]
    fits = name in names and bool(check(f"blank_llama.{number}", names[name]))
    assert fits == (id in FITS) == (f"`{name}`" in said)
