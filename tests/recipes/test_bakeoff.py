"""Entries of a bake-off differ in one part; its trainings leave one record each and can stop."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from transformer_lit.course.files import InputError
from transformer_lit.models.assembly import POSITIONS
from transformer_lit.recipes import bakeoff, language_model
from transformer_lit.recipes.bakeoff import (
    BAKEOFFS,
    SETTINGS,
    bakeoff_presets,
    loss_by_place,
    run_bakeoff,
)

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # a reader runs without them

TEXT = "A man is riding a bike. " * 40


@pytest.fixture
def small(monkeypatch):
    "Two steps of a model of width 8 on a text of one sentence, context 4."
    monkeypatch.setattr(language_model, "load_text", lambda name, split, **_: TEXT)
    monkeypatch.setattr("transformer_lit.recipes.recipe.data_hashes", lambda name: {})
    sizes = {"d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 9}
    changes = {"sizes": sizes, "length": 4, "steps": 2, "warmup": 1, "every": 2}
    monkeypatch.setattr(bakeoff, "_BASE", replace(bakeoff._BASE, **changes))


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", BAKEOFFS)
def test_every_entry_can_be_built(name, setting):
    with torch.device("meta"):
        for recipe in bakeoff_presets(name, setting).values():
            model = recipe.build(65)
            assert model.lm_head.weight.shape == (65, recipe.sizes["d_model"])
            assert len(model.layers) == recipe.sizes["n_layers"]


def test_positions_are_all_there_and_nothing_else_differs():
    presets = bakeoff_presets("position")
    assert list(presets) == list(POSITIONS)
    bare = [
        replace(p, sizes={k: v for k, v in p.sizes.items() if k != "position"})
        for p in presets.values()
    ]
    assert all(other == bare[0] for other in bare)


def test_the_block_changes_one_factor_or_norm_and_placement():
    presets = {entry: p.sizes for entry, p in bakeoff_presets("block").items()}
    base = presets["layer-pre"]
    changed = {
        entry: {k for k in sizes if sizes[k] != base.get(k)} for entry, sizes in presets.items()
    }
    assert changed["rms-post"] == {"norm", "residual"}
    assert changed["relu"] == {"activation"}
    assert changed["swiglu"] == {"activation", "gated", "d_ff"}
    assert len(presets) == 14


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_walk_from_gpt_to_llama_keeps_the_number_of_parameters(setting):
    counts = []
    for recipe in bakeoff_presets("swap", setting).values():
        with torch.device("meta"):
            counts.append(sum(p.numel() for p in recipe.build(65).parameters()))
    assert max(counts) / min(counts) < 1.003
    first, *_, last = bakeoff_presets("swap", setting).values()
    assert first.sizes["position"] == "learned" and first.sizes["bias"]
    expected = {"position": "rope", "norm": "rms", "activation": "silu", "gated": True}
    assert expected.items() <= last.sizes.items() and not last.sizes["bias"]


def test_a_bakeoff_leaves_a_record_for_each_run_and_goes_on_with_what_is_missing(small, tmp_path):
    where = {"device": "cpu", "out": tmp_path / "runs", "results": tmp_path / "results"}
    seen = []
    first = run_bakeoff("swap", seeds=2, progress=lambda r: seen.append(r.name), **where)
    assert len(first) == len(seen) == 12
    assert {r.seed for r in first} == {0, 1}
    assert {r.command for r in first} == {"transformer-lit bakeoff swap --setting small --seeds 2"}
    lengths = {r.metrics["entry"]: len(r.metrics["loss_by_place"]) for r in first}
    assert lengths.pop("gpt") == 4 and set(lengths.values()) == {16}
    kept = tmp_path / "results/swap-small-rope-seed1.json"
    kept.write_text(kept.read_text().replace('"torch": "', '"torch": "kept '))
    (tmp_path / "results/swap-small-rms-seed0.json").unlink()
    second = run_bakeoff("swap", seeds=2, **where)
    assert [r.name for r in second] == [r.name for r in first]
    assert [r.torch[:5] == "kept " for r in second].count(True) == 1
    for one, two in zip(first, second, strict=True):
        assert one.metrics["val_loss"] == two.metrics["val_loss"]


def test_loss_by_place_against_a_loop():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(7, 7))

        def forward(self, ids):
            return self.table[ids]

    torch.manual_seed(0)
    model, text = Table(), torch.randint(7, (50,))
    expected = torch.zeros(4)
    for start in range(0, 48, 4):
        for t in range(4):
            log_p = model.table[text[start + t]].log_softmax(-1)
            expected[t] -= log_p[text[start + t + 1]].detach() / 12
    found = loss_by_place(model, text, length=4, band=2, rows=5)
    torch.testing.assert_close(torch.tensor(found), expected.view(2, 2).mean(1))
    assert model.training
    with pytest.raises(ValueError, match="length 4 is not a multiple of band 3"):
        loss_by_place(model, text, length=4, band=3)


@pytest.mark.parametrize("training", [True, False])
def test_loss_by_place_is_without_dropout_and_puts_every_mode_back(training):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 5), nn.Dropout(0.5), nn.Linear(5, 7), nn.Dropout(0.5))
    text = torch.randint(7, (50,))
    model.eval()
    expected = loss_by_place(model, text, length=4, band=2, rows=5)
    model.train(training)
    model[1].train(not training)  # a part of its own mode
    modes = [m.training for m in model.modules()]
    assert loss_by_place(model, text, length=4, band=2, rows=5) == expected
    assert [m.training for m in model.modules()] == modes
    with pytest.raises(IndexError):
        loss_by_place(model, text + 7, length=4, band=2)
    assert [m.training for m in model.modules()] == modes


def test_what_is_unknown_is_named():
    with pytest.raises(InputError, match="unknown bake-off 'norms'; known are: position"):
        bakeoff_presets("norms")
    with pytest.raises(InputError, match="unknown setting 'huge'; known are: small, large"):
        bakeoff_presets("block", "huge")
