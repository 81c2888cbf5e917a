"""A run in a folder: its settings are remembered, its log is cut where its checkpoint ends."""

import json
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch import nn

from transformer_lit.course.files import InputError, read_json, seal, unseal
from transformer_lit.course.tensors import load_tensors
from transformer_lit.training.data import TextStream
from transformer_lit.training.loss import cross_entropy
from transformer_lit.training.optimizers import muon
from transformer_lit.training.options import EarlyStop, LayerWatch, WeightAverage
from transformer_lit.training.run import Run, checkpoints, claim_folder, learning_curve, read_log
from transformer_lit.training.schedule import adamw, inverse_sqrt
from transformer_lit.training.trainer import Trainer


def open_run(out, *, steps=11, every=3, keep=2, inputs=(), way="adamw", settings=None):
    "A small run with dropout, tied weights and two batches a step; `way`: what hangs on it."
    torch.manual_seed(0)
    layers = nn.Embedding(13, 5), nn.Linear(5, 5), nn.Dropout(0.2), nn.Linear(5, 13)
    model = nn.Sequential(*layers)
    model[3].weight = model[0].weight
    optimizer = (muon if way.startswith("muon") else adamw)(model, weight_decay=0.1)
    trainer = Trainer(
        model,
        lambda model, batch: cross_entropy(model(batch.ids), batch.targets),
        optimizer,
        inverse_sqrt(0.01, 5),
        TextStream(torch.arange(61) % 13, length=7, batch_size=3, seed=0),
        clip=1.0,
        accumulate=2,
    )
    losses = [3.0, 2.0, 2.5, 2.4] if way == "early stop" else [4.0, 3.0, 2.0, 1.0]
    how = {"steps": steps, "every": every, "keep": keep, "inputs": inputs}
    how |= {"settings": settings or {"seed": 0}}
    run = Run(out, trainer, lambda: losses[(trainer.done - 1) // every], **how)
    if way.startswith("muon"):
        WeightAverage(model, optimizer, decay=0.7)
        run.watch = LayerWatch(trainer)
    if way == "early stop":
        run.stop = EarlyStop(1)
    run.restore()
    return run


class Stop(Exception):
    pass


def stop_at(step):
    def stop(log):
        if log.step == step:
            raise Stop

    return stop


def end_of(run):
    "The log but for the seconds, the files of the newest checkpoint, and what the run knows."
    rows = [{**row, "seconds": 0} for row in read_log(run.out / "log.jsonl")]
    files = checkpoints(run.out / "checkpoints")[-1].glob("*.safetensors")
    return rows, {file.name: file.read_bytes() for file in files}, run.tokens, run.val_losses


@pytest.mark.parametrize(
    ("way", "cut"),  # after, at and before a checkpoint
    [
        ("muon, average, watch", 7),
        pytest.param("early stop", 3, marks=pytest.mark.machinery),
        pytest.param("adamw", 2, marks=pytest.mark.machinery),
    ],
)
def test_stopped_and_resumed_is_never_stopped(tmp_path, way, cut):
    "For two processes see test_distributed, for a process that is killed test_recipe."
    whole = open_run(tmp_path / "whole", way=way)
    whole.train()
    with pytest.raises(Stop):
        open_run(tmp_path / "cut", way=way).train(stop_at(cut))
    resumed = open_run(tmp_path / "cut", way=way)
    assert resumed.trainer.done == cut // 3 * 3 and not resumed.notes
    resumed.train()
    assert end_of(resumed) == end_of(whole)
    last = 9 if way == "early stop" else 11
    assert [row["step"] for row in end_of(whole)[0]] == list(range(1, last + 1))
    assert len(checkpoints(tmp_path / "cut/checkpoints")) == 2
    again = open_run(tmp_path / "cut", way=way)  # it has ended, and stays so
    again.train()
    assert end_of(again) == end_of(whole) and again.trainer.done == last


def test_a_resumed_run_knows_its_whole_time_and_the_most_processes(tmp_path):
    first = open_run(tmp_path)
    first.processes = 2
    with pytest.raises(Stop):
        first.train(stop_at(7))
    resumed = open_run(tmp_path)
    resumed.train()
    spent = sum(row["seconds"] for row in read_log(tmp_path / "log.jsonl"))
    assert resumed.processes == 2 and resumed.seconds == pytest.approx(spent)


@pytest.mark.machinery
def test_what_was_stopped_on_the_way_back_goes_on_in_the_same_process(tmp_path):
    open_run(tmp_path / "whole").train()
    run = open_run(tmp_path / "cut")
    first = run.trainer.model[1].weight

    def stop(g):  # the last layer has its gradient by then
        if run.trainer.done == 7:
            raise KeyboardInterrupt

    hook = first.register_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        run.train()
    hook.remove()
    run.restore()
    assert run.trainer.done == 6
    run.train()
    rows = [read_log(tmp_path / name / "log.jsonl") for name in ("whole", "cut")]
    for row in (*rows[0], *rows[1]):
        del row["seconds"]
    assert rows[0] == rows[1]
    assert run.tokens == sum(row["tokens"] for row in rows[0])


# --- what a death, a disk or a person has left ---------------------------------------------------

LINES = [
    b"[]",
    b'{"step": 2',  # as a kill leaves it
    b"\xff\xfe",
    b'{"step": 4}',
    b"[" * 9999,
    b'{"step": "4", "loss": 1.0, "tokens": 1}',
    b'{"step": 4, "loss": 1.0, "tokens": 0}',
    b'{"step": 4, "loss": 1.0, "tokens": 1%b}' % (b"0" * 400),
    b'{"step": 4, "loss": 1.0, "tokens": 1, "val_loss": "low"}',
]


def test_a_damaged_line_is_left_out_and_a_lost_log_is_told(tmp_path):
    open_run(tmp_path, steps=6).train()
    path = tmp_path / "log.jsonl"
    rows, lines = read_log(path), path.read_bytes().splitlines(keepends=True)
    for line in LINES:
        path.write_bytes(b"".join([*lines[:2], line + b"\n", *lines[3:]]))
        assert read_log(path) == [*rows[:2], *rows[3:]]
    run = open_run(tmp_path)
    assert run.trainer.done == 6 and run.notes == [f"{path} has lost 1 of 6 steps"]
    path.unlink()
    run = open_run(tmp_path)
    assert run.trainer.done == 6 and run.notes == [f"{path} has lost 6 of 6 steps"]


def test_a_changed_number_of_the_log_is_told_as_often_as_it_is_opened(tmp_path):
    whole = open_run(tmp_path / "whole")
    whole.train()
    with pytest.raises(Stop):
        open_run(tmp_path / "cut").train(stop_at(7))
    path = tmp_path / "cut/log.jsonl"
    right = path.read_text()
    rows = [row | {"loss": 18.05} if row["step"] == 2 else row for row in read_log(path)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for until in (9, 11):
        run = open_run(tmp_path / "cut", steps=until)
        assert run.notes == [f"{path} was changed: a row is not what was written"]
        run.train()
        assert run.log_fault(read_log(path)) and not whole.log_fault(
            read_log(whole.out / "log.jsonl")
        )
    path.write_text(
        right.splitlines(keepends=True)[0] + "".join(path.read_text().splitlines(True)[1:])
    )
    assert open_run(tmp_path / "cut").notes


def test_a_checkpoint_elsewhere_than_it_was_written_is_refused_and_stays(tmp_path):
    run = open_run(tmp_path, steps=6)
    run.train()
    folder = tmp_path / "checkpoints"
    shutil.copytree(folder / "step-0000003", folder / "step-0000099")
    with pytest.raises(InputError, match="step-0000099 contains step 3, which doesn't fit"):
        open_run(tmp_path)
    assert (folder / "step-0000099").is_dir()
    shutil.rmtree(folder / "step-0000099")
    assert open_run(tmp_path).trainer.done == 6
    with pytest.raises(InputError, match="step-0000003 belongs to a run with other settings"):
        open_run(tmp_path, settings={"seed": 5})
    assert len(checkpoints(folder)) == 2


def by_hand(path, change):
    "The sealed file with `change` made to its fields, sealed again as by another hand."
    names = [*read_json(path)["files"]]
    about = unseal(path)
    change(about)
    seal(path, about, names)


RUN = {  # what somebody makes of a field of the newest checkpoint
    "step": ["x", None, 2.5],
    "position": [[], [1], "ab", [0, -1], [-5, 0], [10**30, 0], None],
    "seconds": ["x", [], None],
    "tokens": ["x", 1.5],
    "val_losses": [5, ["x"], {}],
    "processes": ["x", None],
    "inputs": [[], {"a": 5}],
    "log": [5, [], {}],
}
RUN_CASES = [
    *((lambda told, n=n, v=v: told["progress"].update({n: v})) for n in RUN for v in RUN[n]),
    *((lambda told, n=n: told["progress"].pop(n)) for n in RUN if n != "log"),
    *(
        (lambda told, n=n, v=v: told.update({n: v}))
        for n in ("progress", "param_groups")
        for v in (5, None)
    ),
    *((lambda told, n=n: told.pop(n)) for n in ("progress", "param_groups")),
]
GROUPS = {
    "betas": ["x", [1], None],
    "eps": ["x"],
    "lr": ["x"],
    "params": ["ab", []],
    "amsgrad": [5],
}


def test_a_checkpoint_made_by_hand_is_one_sentence(tmp_path):
    open_run(tmp_path / "good", steps=6).train()
    name = "checkpoints/step-0000006/progress.json"
    for change in RUN_CASES:
        shutil.copytree(tmp_path / "good", tmp_path / "bad")
        by_hand(tmp_path / "bad" / name, change)
        run = open_run(tmp_path / "bad")
        (note,) = run.notes
        assert re.search(r"step-0000006.*(must be|is missing|can't be).*checkpoint before$", note)
        assert run.trainer.done == 3
        shutil.rmtree(tmp_path / "bad")
    for field, value in [(one, value) for one in GROUPS for value in GROUPS[one]]:
        shutil.copytree(tmp_path / "good", tmp_path / "bad")
        told = partial(dict.update, **{field: value})
        by_hand(tmp_path / "bad" / name, lambda about, told=told: told(about["param_groups"][0]))
        with pytest.raises(InputError, match="step-0000006 doesn't fit this optimizer"):
            open_run(tmp_path / "bad")
        shutil.rmtree(tmp_path / "bad")


@pytest.mark.parametrize(("places", "done"), [([2], 6), ([1], 3), ([1, 2], 3)])
def test_from_a_damaged_checkpoint_on_none_is_used_nor_averaged(tmp_path, places, done):
    open_run(tmp_path, steps=9, keep=3).train()
    found = checkpoints(tmp_path / "checkpoints")
    files = [found[place] / "model.safetensors" for place in places]
    for file in files:
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    resumed = open_run(tmp_path, keep=3)
    (note,) = resumed.notes
    assert str(files[0]) in note and note.endswith("going on from the checkpoint before")
    assert resumed.trainer.done == done
    sound = found[: places[0]]
    weights = load_tensors(sound[-1] / "model.safetensors")
    torch.testing.assert_close(resumed.trainer.model.state_dict(), weights, rtol=0, atol=0)
    assert checkpoints(tmp_path / "checkpoints") == sound


def test_a_third_checkpoint_that_a_death_has_left_goes(tmp_path):
    open_run(tmp_path, keep=3).train()
    assert len(checkpoints(tmp_path / "checkpoints")) == 3
    open_run(tmp_path, keep=2)
    names = [path.name for path in checkpoints(tmp_path / "checkpoints")]
    assert names == ["step-0000009", "step-0000011"]


def test_leftovers_of_a_killed_process_go(tmp_path):
    open_run(tmp_path, steps=6).train()
    for place in (".model.x1.part", "checkpoints/.step-0000009.x2.part"):
        (tmp_path / place / "new").mkdir(parents=True)
    open_run(tmp_path)
    assert not list(tmp_path.rglob("*.part"))


def test_what_a_run_has_read_may_not_change(tmp_path):
    (tmp_path / "words.txt").write_text("a b c")
    open_run(tmp_path, steps=9, inputs=["words.txt"]).train()
    (tmp_path / "words.txt").write_text("b a c")
    with pytest.raises(InputError, match=r"words\.txt was changed. Restore its contents$"):
        open_run(tmp_path, inputs=["words.txt"])
    (tmp_path / "words.txt").write_text("a b c")
    assert open_run(tmp_path, inputs=["words.txt"]).trainer.done == 9


def test_without_a_sound_checkpoint_nothing_begins_again_in_silence(tmp_path):
    open_run(tmp_path, steps=6).train()
    for path in checkpoints(tmp_path / "checkpoints"):
        (path / "progress.json").unlink()
    with pytest.raises(InputError, match=r"step-0000003.progress\.json.*To go on without it,"):
        open_run(tmp_path)


def test_two_trainings_never_share_a_folder(tmp_path):
    run, met = open_run(tmp_path), []

    def meddle(log):
        with pytest.raises(InputError, match="another run is using"):
            open_run(tmp_path)
        met.append(log.step)

    run.train(meddle)
    assert met == list(range(1, 12)) and len(read_log(tmp_path / "log.jsonl")) == 11
    assert open_run(tmp_path).trainer.done == 11  # the lock went with the training


def test_a_removed_folder_is_told(tmp_path):
    run = open_run(tmp_path / "run")
    with pytest.raises(InputError, match="was removed during the run"):
        run.train(lambda log: log.step != 4 or shutil.rmtree(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


# --- whose folder it is --------------------------------------------------------------------------


def test_who_finishes_can_have_the_folder_alone(tmp_path):
    run = open_run(tmp_path)
    with run.locked(), pytest.raises(InputError, match="another run is using"):
        open_run(tmp_path)
    assert open_run(tmp_path).trainer.done == 0


@pytest.mark.parametrize("resume", [False, True])
def test_of_two_that_claim_a_folder_at_once_one_gets_it(tmp_path, resume):
    "Many times, for the moment between the look and the writing is short."
    together = threading.Barrier(2)

    def claim(folder, seed):
        together.wait()
        try:
            claim_folder(folder, {"seed": seed}, resume=resume)
        except InputError as error:
            return str(error)

    told = "another run is using|" + ("other settings" if resume else "already holds a run")
    with ThreadPoolExecutor(2) as pool:
        for folder in map(tmp_path.joinpath, map(str, range(40))):
            said = list(pool.map(partial(claim, folder), (0, 1)))
            assert said.count(None) == 1, said
            assert read_json(folder / "run.json") == {"seed": said.index(None)}
            assert re.search(told, said[1 - said.index(None)])


BEGUN = {"lr": 0.1, "betas": (0.9, 0.98), "sizes": {"d": 2}, "steps": 5}


@pytest.mark.parametrize(
    ("change", "resume", "words"),
    [
        ({}, False, r"already holds a run.*--resume"),
        ({"steps": 9}, True, r"steps 5 → 9\. Choose"),
        ({"steps": ...}, True, r"steps 5 → None\. Choose"),
        ({"lr": 0.2, "seed": 1}, True, r"lr 0\.1 → 0\.2; seed None → 1"),
        ({"betas": (0.9, 0.99)}, True, r"betas \[0\.9, 0\.98\] → \[0\.9, 0\.99\]"),
    ],
)
def test_settings_are_remembered_and_differences_named(tmp_path, change, resume, words):
    claim_folder(tmp_path, BEGUN, resume=False)
    claim_folder(tmp_path, BEGUN, resume=True)  # a tuple and its list in the file are the same
    changed = {name: value for name, value in (BEGUN | change).items() if value is not ...}
    with pytest.raises(InputError, match=words):
        claim_folder(tmp_path, changed, resume=resume)
    assert read_json(tmp_path / "run.json") == BEGUN | {"betas": [0.9, 0.98]}


@pytest.mark.parametrize("held", ["checkpoints", "log.jsonl", "model", "tokenizer.json"])
def test_what_is_in_a_folder_is_never_written_over(tmp_path, held):
    "Nor are checkpoints without their settings."
    (tmp_path / held).mkdir()
    (tmp_path / held / "thesis.txt").write_text("mine")
    for resume in (False, True):
        with pytest.raises(InputError, match=rf"has {held} but no run\.json. Choose another --out"):
            claim_folder(tmp_path, {"seed": 0}, resume=resume)
    assert [path.name for path in tmp_path.rglob("*")] == [held, "thesis.txt"]


def test_a_learning_curve_weighs_tokens():
    rows = [
        {"step": 1, "loss": 4.0, "tokens": 1},
        {"step": 2, "loss": 1.0, "tokens": 3, "val_loss": 2.0},
        {"step": 3, "loss": 5.0, "tokens": 2, "val_loss": 1.5},
    ]
    assert learning_curve(rows) == [
        {"step": 2, "train_loss": 7 / 4, "val_loss": 2.0},
        {"step": 3, "train_loss": 5.0, "val_loss": 1.5},
    ]
