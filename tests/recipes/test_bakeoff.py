"""Entries of a bake-off differ in one part; its trainings leave one record each and can stop."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from transformer_lit.models.assembly import POSITIONS
from transformer_lit.recipes import bakeoff, language_model
from transformer_lit.recipes.bakeoff import (
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
    small = replace(bakeoff.SETTINGS["small"], **changes)
    monkeypatch.setitem(bakeoff.SETTINGS, "small", small)


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


def test_the_walk_begins_with_a_gpt_and_ends_with_a_llama():
    first, *_, last = (p.sizes for p in bakeoff_presets("swap").values())
    assert first["position"] == "learned" and first["bias"] and not last["bias"]
    expected = {"position": "rope", "norm": "rms", "activation": "silu", "gated": True}
    assert expected.items() <= last.items()


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


REFUSED = [
    (bakeoff_presets, ("norms",), "No bake-off named 'norms'. Choose from: position"),
    (bakeoff_presets, ("block", "huge"), "No setting named 'huge'. Choose from: small, large"),
    (loss_by_place, (None, None, 4, 3), "band must be a positive divisor of length 4, got 3"),
]


@pytest.mark.parametrize(("call", "arguments", "told"), REFUSED)
def test_what_cannot_be_is_named(call, arguments, told):
    with pytest.raises(ValueError, match=told):
        call(*arguments)
