"""What hangs on a training: an average without bias, a watch that looks on, an end in time."""

import copy
import json
import math
import re
from pathlib import Path

import pytest
import ranks
import torch
from torch import nn

from transformer_lit.training.data import TextStream
from transformer_lit.training.loss import cross_entropy
from transformer_lit.training.options import (
    EarlyStop,
    LayerWatch,
    WeightAverage,
    keep_weights,
    part_of,
)
from transformer_lit.training.run import Run, checkpoints, load_tensors, read_log
from transformer_lit.training.schedule import adamw
from transformer_lit.training.trainer import Trainer


@pytest.fixture(autouse=True)
def wide():
    torch.set_default_dtype(torch.float64)  # an equality must hold on every processor
    yield
    torch.set_default_dtype(torch.float32)


def step(model, batch):
    return cross_entropy(model(batch.ids), batch.targets)


def open_trainer(optimizer=adamw, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(13, 5), nn.Dropout(0.2), nn.Linear(5, 7), nn.Linear(7, 13))
    model.register_buffer("count", torch.tensor(3))
    stream = TextStream(torch.arange(301) % 13, length=7, batch_size=3, seed=0)
    return Trainer(model, step, optimizer(model), lambda t: 0.01, stream, **options)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.0)


def paths(trainer, steps):
    torch.manual_seed(1)  # dropout draws the same
    return [copy.deepcopy(trainer.model.state_dict()) for _ in trainer.run(steps)]


def test_an_average_changes_nothing_of_the_training():
    watched, plain = open_trainer(), open_trainer()
    WeightAverage(watched.model, watched.optimizer)
    LayerWatch(watched)
    torch.testing.assert_close(paths(watched, 5), paths(plain, 5), rtol=0, atol=0)


def test_a_weight_has_an_average_from_its_first_gradient_on():
    trainer = open_trainer()
    trainer.model[3].requires_grad_(False)
    average = WeightAverage(trainer.model, trainer.optimizer, decay=0.5)
    list(trainer.run(3))
    torch.testing.assert_close(average.weights()["3.weight"], trainer.model[3].weight.data)
    trainer.model[3].requires_grad_(True)
    last = paths(trainer, 5)[-2:]  # Adam's own state is made as ever
    share = 0.5 / (1 - 0.5**5)
    expected = last[0]["3.weight"].lerp(last[1]["3.weight"], share)
    torch.testing.assert_close(average.weights()["3.weight"], expected)
    trainer.model[3].requires_grad_(False)  # it stays, and its average comes nearer
    list(trainer.run(6))
    expected = expected.lerp(last[1]["3.weight"], 0.5 / (1 - 0.5**6))
    torch.testing.assert_close(average.weights()["3.weight"], expected)


def test_a_tied_weight_has_one_average_under_both_names():
    trainer = open_trainer()
    trainer.model[3] = nn.Linear(7, 13)
    trainer.model.append(nn.Linear(13, 5)).append(nn.Linear(5, 13))
    trainer.model[5].weight = trainer.model[0].weight
    trainer.optimizer = adamw(trainer.model)
    average = WeightAverage(trainer.model, trainer.optimizer, decay=0.5)
    path = paths(trainer, 2)
    expected = (path[0]["0.weight"] + 2 * path[1]["0.weight"]) / 3
    for name in ("0.weight", "5.weight"):
        torch.testing.assert_close(average.weights()[name], expected)


def test_used_gives_the_models_own_weights_back_after_an_error():
    trainer = open_trainer(sgd)  # an optimiser without a state of its own
    average = WeightAverage(trainer.model, trainer.optimizer, decay=0.5)
    own = paths(trainer, 3)[-1]
    found = average.weights()
    assert found.keys() == own.keys() and found["count"] == 3
    with pytest.raises(KeyError), average.used():
        torch.testing.assert_close(trainer.model.state_dict(), found, rtol=0, atol=0)
        assert not torch.equal(trainer.model[0].weight, own["0.weight"])
        raise KeyError
    torch.testing.assert_close(trainer.model.state_dict(), own, rtol=0, atol=0)


def averaged(times=1, *, decay=0.7, dtype=None):
    model = nn.Linear(2, 3, dtype=dtype)
    optimizer = sgd(model)
    for _ in range(times):
        WeightAverage(model, optimizer, decay=decay)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: averaged(decay=1.0), "decay must be in"),
        (lambda: averaged(decay=-0.5), "decay must be in"),
        (lambda: averaged(dtype=torch.bfloat16), r"float32 or float64, got .*bfloat16"),
        (lambda: averaged(2), r"of decay 0\.7; use that one, or make another optimiser$"),
    ],
)
def test_what_would_average_wrongly_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("late", [False, True])
def test_an_optimiser_that_has_loaded_an_average_takes_one_and_goes_on_with_it(late):
    whole, cut, resumed = open_trainer(), open_trainer(), open_trainer()
    for trainer in (whole, cut, resumed):
        trainer.model[1].p = 0.0
    expected = WeightAverage(whole.model, whole.optimizer, decay=0.7)
    list(whole.run(5))
    WeightAverage(cut.model, cut.optimizer, decay=0.7)
    list(cut.run(2))

    def load():
        resumed.model.load_state_dict(cut.model.state_dict())
        resumed.optimizer.load_state_dict(copy.deepcopy(cut.optimizer.state_dict()))
        resumed.done, resumed.batches.position = cut.done, cut.batches.position

    if late:
        load()
    average = WeightAverage(resumed.model, resumed.optimizer, decay=0.7)
    if not late:
        load()
    with pytest.raises(ValueError, match="has an average already"):
        WeightAverage(resumed.model, resumed.optimizer, decay=0.7)
    list(resumed.run(5))
    torch.testing.assert_close(average.weights(), expected.weights(), rtol=0, atol=0)


# --- in a run -----------------------------------------------------------------------------------


class Cut(Exception):
    pass


LOSSES = [3.0, 2.5, 2.6, 2.4, 2.45, 2.41, 2.3, 2.2, 2.1]


def open_run(out: Path, *, patience=None, steps=17):
    "A run whose validations give `LOSSES`, with all that can hang on it."
    trainer = open_trainer()
    WeightAverage(trainer.model, trainer.optimizer, decay=0.9)
    out.mkdir(exist_ok=True)
    run = Run(out, trainer, lambda: LOSSES[trainer.done // 2 - 1], steps, every=2)
    run.watch = LayerWatch(trainer)
    if patience:
        run.stop = EarlyStop(patience, lambda: keep_weights(trainer, out / "best.safetensors"))
    run.restore()
    return run


@pytest.mark.parametrize("cut", [None, pytest.param(10, marks=pytest.mark.machinery)])
def test_a_run_ends_in_time_and_keeps_its_best_also_when_it_is_resumed(tmp_path, cut):
    def stop(log):
        if log.step == cut:
            raise Cut

    if cut:
        with pytest.raises(Cut):
            open_run(tmp_path, patience=2).train(stop)
    run = open_run(tmp_path, patience=2)
    run.train()
    assert run.trainer.done == 12 and run.val_losses == LOSSES[:6]
    assert not run.trainer.model.training
    best = checkpoint_of(tmp_path / "other", 8)
    torch.testing.assert_close(load_tensors(tmp_path / "best.safetensors"), best, rtol=0, atol=0)
    again = open_run(tmp_path, patience=2)  # it has ended, and stays so
    again.train()
    assert again.trainer.done == 12 and len(read_log(tmp_path / "log.jsonl")) == 12


def checkpoint_of(out, step):
    open_run(out, steps=step).train()
    return load_tensors(checkpoints(out / "checkpoints")[-1] / "model.safetensors")


@pytest.mark.parametrize(
    "losses, patience, ends, best",
    [
        ([1.0], 1, False, True),
        ([1.0, 1.0], 1, True, False),  # as good is not better
        ([1.0, 2.0, 0.5], 2, False, True),
        ([1.0, 2.0, 2.0], 3, False, False),
        ([1.0, 2.0, 2.0], 2, True, False),
        ([1.0, math.nan, math.nan], 2, True, False),
        ([math.nan, 2.0], 1, False, True),
    ],
)
def test_patience(losses, patience, ends, best):
    kept = []
    assert EarlyStop(patience, lambda: kept.append(1))(losses) is ends
    assert kept == [1] * best


# --- the watch ----------------------------------------------------------------------------------


def test_a_watch_looks_as_often_as_it_should_and_goes_on_so_after_a_resume():
    trainer = open_trainer()
    watch = LayerWatch(trainer, every=3)
    assert [log.step for log in trainer.run(7) if watch()] == [3, 6]
    trainer.done = 2
    assert [log.step for log in trainer.run(4) if watch()] == [3]


def test_a_part_of_zeros_has_no_ratio_and_one_without_gradient_has_length_0():
    trainer = open_trainer()
    nn.init.zeros_(trainer.model[3].weight)
    nn.init.zeros_(trainer.model[3].bias)
    trainer.model[0].requires_grad_(False)
    watch = LayerWatch(trainer)
    next(trainer.run(1))
    seen = watch()["layers"]
    assert seen["3"]["ratio"] is None and seen["3"]["grad"] > 0
    assert seen["0"] == {"grad": 0.0, "ratio": 0.0}


@pytest.mark.parametrize(
    "name, part",
    [
        ("layers.3.attn.q_proj.weight", "layers.3"),
        ("encoder.layers.11.ffn.up_proj.weight", "encoder.layers.11"),
        ("tok_emb.weight", "tok_emb"),
        ("norm2.weight", "norm2"),
        ("weight", "weight"),
    ],
)
def test_parts(name, part):
    assert part_of(name) == part


# --- the compiled step --------------------------------------------------------------------------


@pytest.mark.machinery
def test_a_compiled_step_keeps_names_and_learns_the_same():
    "What the graph computes; the code that a compiler makes of it is the experiment's."

    def bare(model, batch):  # without the checks of types that the tests add to ours
        logits = model(batch.ids).flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, batch.targets.flatten(), reduction="sum")
        return loss, batch.targets.numel()

    torch.compiler.reset()
    plain, fast = open_trainer(), open_trainer()
    for trainer in (plain, fast):
        trainer.model[1].p = 0.0
    plain.step, fast.step = bare, torch.compile(bare, backend="aot_eager")
    names = list(fast.model.state_dict())
    for one, other in zip(plain.run(5), fast.run(5), strict=True):
        assert one.loss == pytest.approx(other.loss)
    assert list(fast.model.state_dict()) == names
    torch.testing.assert_close(fast.model.state_dict(), plain.model.state_dict())


CHAPTER = Path(__file__).parents[2] / "nbs/training/08_options.ipynb"


@pytest.mark.machinery
def test_the_program_of_the_chapter_trains_a_recipe_and_goes_on_after_a_stop(tmp_path, monkeypatch):
    "The text's own lines, on the small preset `numbers`; the average is in the saved model."
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(ranks.datasets, "number_pairs", ranks.datasets.number_pairs)
    presets = ranks.Translation.presets
    monkeypatch.setitem(presets, "numbers", presets["numbers"])
    ranks.small_numbers()
    cells = {
        cell["id"]: "".join(cell["source"]) for cell in json.loads(CHAPTER.read_text())["cells"]
    }
    program = re.search(r"```python\n(.*?)```", cells["recipe-text"], re.S)[1]
    program = program.replace("steps=500, every=20", "steps=20, every=5")
    found = {}
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        if name == "cut":  # ended at step 10, and then the same lines with resume=True
            begun = program.partition("run.train()")[0]
            exec(begun + "run.steps = 10\nrun.train()", {})
            program = program.replace('"runs/averaged")', '"runs/averaged", resume=True)', 1)
        exec(program, names := {})
        found[name] = names["average"].weights()
        model = load_tensors(Path("runs/averaged/model/model.safetensors"))
        for key, tensor in model.items():
            torch.testing.assert_close(tensor, found[name][key], rtol=0, atol=0)
        rows = read_log(Path("runs/averaged/log.jsonl"))
        assert (
            [row["step"] for row in rows if "layers" in row] == [10, 20] == [10, rows[-1]["step"]]
        )
    torch.testing.assert_close(found["cut"], found["whole"], rtol=0, atol=0)
    own = names["trainer"].model.state_dict()
    assert any(not torch.equal(own[key], model[key]) for key in model)

    trainer = names["trainer"]
    one = next(trainer.run(21)).tokens
    trainer.accumulate = 4
    assert next(trainer.run(22)).tokens > 2 * one
