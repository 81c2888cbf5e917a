"""Two processes learn what one does: the same losses, one writer, a resume on any number."""

import json
import shutil

import pytest
import ranks
import torch
from ranks import CUT, KINDS, STEPS, nan_at, open_run, with_options

from transformer_lit.course.records import read_results
from transformer_lit.training.run import checkpoints, load_tensors, read_log


def rows(out):
    "The log, without the seconds."
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_log(out / "log.jsonl")]


pytestmark = pytest.mark.machinery  # each starts processes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    "Runs of one process in `one` and `begun`, and all that two processes did beside them."
    folder = tmp_path_factory.mktemp("ranks")
    open_run(folder / "one").train()
    open_run(folder / "begun", steps=CUT).train()
    for kind in KINDS:
        shutil.copytree(folder / "begun", folder / kind / "begun")
    codes, said = ranks.ends(ranks.start("work", folder))
    assert codes == [0, 0], said
    return folder


def told(folder, kind):
    "What each of the two processes says of itself."
    return [json.loads((folder / f"rank{rank}.json").read_text())[kind] for rank in (0, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_learn_what_one_does(folder, kind):
    "Clipped, two batches a step, shares of unequal size and an empty one: all in float64."
    one, two = rows(folder / "one"), rows(folder / kind / "whole")
    assert len(one) == STEPS
    torch.testing.assert_close(two, one)
    # blocks of 5, in two batches: 3 rows each, or one of the two has 2 rows, or a single one
    assert {row["tokens"] for row in one} == {6 * 5, 5 * 5, 4 * 5}
    assert any(row["grad_norm"] > 0.7 for row in one)
    ends = [checkpoints(folder / name / "checkpoints")[-1] for name in ("one", f"{kind}/whole")]
    for file in ("model.safetensors", "optimizer.safetensors"):
        torch.testing.assert_close(*(load_tensors(end / file) for end in ends))


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_with_another_number_of_processes(folder, kind, tmp_path):
    torch.testing.assert_close(rows(folder / kind / "begun"), rows(folder / "one"))  # 1 to 2
    shutil.copytree(folder / kind / "cut", tmp_path / "cut")
    resumed = open_run(tmp_path / "cut")
    assert resumed.trainer.done == CUT
    resumed.train()
    torch.testing.assert_close(rows(tmp_path / "cut"), rows(folder / "one"))  # 2 to 1
    runs = (folder / "one", folder / kind / "begun", tmp_path / "cut")
    assert [open_run(out).processes for out in runs] == [1, 2, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_with_dropout_a_stopped_run_goes_on_as_it_would_have(folder, kind):
    "To the last bit, on the same number of processes."
    assert rows(folder / kind / "stopped") == rows(folder / kind / "dropout")
    assert rows(folder / kind / "dropout") != rows(folder / kind / "whole")


@pytest.mark.parametrize("kind", KINDS)
def test_random_numbers_of_a_step_are_each_process_own_and_no_others(folder, kind):
    first, second = (one["dice"] for one in told(folder, kind))
    assert first[0] == second[0] and first[2] == second[2]
    assert first[1] != second[1]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_process_alone_locks_and_writes(folder, kind):
    first, second = (one["refused"] for one in told(folder, kind))
    assert first == [] and len(second) == 1 and "another run is using" in second[0]
    assert [row["step"] for row in rows(folder / kind / "whole")] == list(range(1, STEPS + 1))
    written = sorted(path.name for path in (folder / kind / "whole").iterdir())
    assert written == sorted(path.name for path in (folder / "one").iterdir())


def test_what_one_process_holds(folder):
    "All under DDP; under FSDP half of every tensor, rounded up in the first."
    shapes = [p.shape for p in open_run(folder / "held").trainer.model.parameters()]
    whole = 8 * sum(shape.numel() for shape in shapes)
    upper = 8 * sum(-(-shape[0] // 2) * shape[1:].numel() for shape in shapes)
    assert upper > whole / 2  # the vocabulary and d_ff are odd
    for one in told(folder, "ddp"):
        assert one["held"] == {"weights": whole, "gradients": whole, "moments": 2 * whole}
    for part, one in zip((upper, whole - upper), told(folder, "fsdp"), strict=True):
        assert one["held"] == {"weights": part, "gradients": part, "moments": 2 * part}


def test_tied_weights_are_saved_once_and_whole(folder):
    for kind in KINDS:
        tensors = [
            load_tensors(checkpoints(folder / name / "checkpoints")[-1] / "model.safetensors")
            for name in ("one", f"{kind}/whole")
        ]
        assert tensors[0].keys() == tensors[1].keys()
        head, table = (tensors[1][f"{name}.weight"] for name in ("lm_head", "tok_emb"))
        assert head.data_ptr() == table.data_ptr() and table.shape == (19, 10)


@pytest.fixture(scope="module")
def alone(folder):
    "One process with all that can hang on a run."
    return with_options(folder / "options")


@pytest.mark.parametrize("kind", KINDS)
def test_a_watch_sees_whole_tensors(folder, alone, kind):
    one, two = rows(folder / "options"), rows(folder / kind / "options")
    torch.testing.assert_close(two, one)
    assert len(one) == CUT + 1
    assert list(one[0]["layers"]) == ["tok_emb", "layers.0", "layers.1", "layers.2", "final_norm"]
    assert all(part["grad"] > 0 and part["ratio"] > 0 for part in one[0]["layers"].values())


@pytest.mark.parametrize("kind", KINDS)
def test_an_average_is_used_and_given_back_as_by_one_process(folder, alone, kind):
    first, second = (one["options"] for one in told(folder, kind))
    assert first["losses"] == second["losses"]
    torch.testing.assert_close(first["losses"], alone["losses"])
    for losses in (alone["losses"], first["losses"]):
        assert losses[0] == losses[2] != losses[1] == losses[3]
    files = [folder / name / "average.safetensors" for name in ("options", f"{kind}/options")]
    averages, two = (load_tensors(file) for file in files)
    torch.testing.assert_close(two, averages)
    for weights in (alone["weights"], first["weights"]):
        assert weights.keys() == averages.keys()
        for name, numbers in weights.items():
            torch.testing.assert_close(torch.tensor(numbers, dtype=torch.float64), averages[name])


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_weights_are_kept_in_one_whole_file(folder, alone, kind):
    files = [folder / name / "best.safetensors" for name in ("options", f"{kind}/options")]
    torch.testing.assert_close(*map(load_tensors, files))
    left = {path.name for path in (folder / kind / "options").iterdir()}
    assert left == {path.name for path in (folder / "options").iterdir()}
    assert left >= {"best.safetensors", "average.safetensors"}


def test_parts_are_never_saved_as_if_they_were_whole(folder):
    first, second = told(folder, "fsdp")
    assert first["saved"] is None and second["saved"].endswith("keep_weights(trainer, path)")
    assert not (folder / "saved/parts.safetensors").exists()


def test_a_nan_in_one_part_stops_all_and_is_named(folder, tmp_path):
    "It was planted in the part of the first process."
    line = nan_at(3, tmp_path)
    assert line.startswith("step 3: the weight layers.1.ffn.up_proj.weight is not finite")
    assert [one["nan"] for one in told(folder, "fsdp")] == [line, line]


@pytest.mark.parametrize(
    "how, line",
    [
        ("told", "error: the disk is full"),
        ("killed", "error: a process other than 0 of 2 has ended or doesn't answer. Continue"),
        pytest.param("silent", "error: a process other than 0 of 2 has", marks=pytest.mark.slow),
    ],
)
def test_an_error_in_one_process_ends_both_with_one_line(how, line):
    processes = ranks.start("fail", how)
    if how == "silent":  # whoever sleeps is ended by torchrun, when the other has failed
        processes[0].wait(timeout=ranks.LIMIT)
        processes[1].kill()
    codes, said = ranks.ends(processes)
    if how == "silent":  # what C++ logs when its store has gone; under torchrun that stays
        said.pop()
    assert codes == {"told": [2, 2], "killed": [2, 9], "silent": [2, -9]}[how]
    lines = [one for one in "".join(said).splitlines() if one]
    assert len(lines) == 1 and lines[0].startswith(line)


def test_the_command_trains_under_torchrun_and_goes_on_without(tmp_path, monkeypatch, capfd):
    "An encoder–decoder in parts (--shard), in float32; one line on standard output, of the first."
    monkeypatch.setattr(ranks.datasets, "number_pairs", ranks.datasets.number_pairs)
    presets = ranks.Translation.presets
    monkeypatch.setitem(presets, "numbers", presets["numbers"])
    ranks.small_numbers()
    keeps = "transformer_lit.training.options.keep_freed_memory"  # it would outlive the test
    monkeypatch.setattr(keeps, lambda: None)

    def options(name):
        where = ("--out", str(tmp_path / name), "--results", str(tmp_path / f"{name}-results"))
        return ["train", "translation", "--device", "cpu", *where]

    assert ranks.cli.main(options("one")) == 0
    alone = capfd.readouterr().out
    done = ranks.torchrun(*options("two"), "--shard")
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace("two/model", "one/model") == alone

    def losses(name):
        return [[row["loss"], row.get("val_loss", 0.0)] for row in rows(tmp_path / name)]

    # Adam's first steps have the size of the rate, whatever the last digits of a small gradient
    torch.testing.assert_close(losses("two"), losses("one"), rtol=1e-4, atol=0)
    (one,), (two,) = (read_results(tmp_path / f"{name}-results") for name in ("one", "two"))
    assert (two.command, two.config, two.parameters) == (one.command, one.config, one.parameters)
    assert (one.metrics["processes"], two.metrics["processes"]) == (1, 2)

    shutil.rmtree(checkpoints(tmp_path / "two/checkpoints")[-1])
    assert ranks.cli.main([*options("two"), "--resume"]) == 0
    torch.testing.assert_close(losses("two"), losses("one"), rtol=1e-4, atol=0)
