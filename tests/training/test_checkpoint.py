"""Checkpoints: a resumed training never stopped, and half a checkpoint does not exist."""

import copy
import json
import os
import random
import resource
import signal
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from transformer_lit.course.files import InputError
from transformer_lit.training.data import PairStream
from transformer_lit.training.loss import cross_entropy
from transformer_lit.training.run import (
    average_weights,
    checkpoints,
    load_checkpoint,
    load_tensors,
    load_weights,
    save_checkpoint,
    save_weights,
)
from transformer_lit.training.schedule import adamw, inverse_sqrt
from transformer_lit.training.trainer import Trainer

V, C = 31, 13
FILES = ["model.safetensors", "optimizer.safetensors", "progress.json", "random.safetensors"]


class Net(nn.Module):
    "Tied, with dropout, a vector and a counter: everything that a checkpoint can get wrong."

    def __init__(self, size=C):
        super().__init__()
        self.tok_emb, self.norm = nn.Embedding(V, size), nn.LayerNorm(size)
        self.drop, self.lm_head = nn.Dropout(0.3), nn.Linear(size, V, bias=False)
        self.lm_head.weight = self.tok_emb.weight
        self.register_buffer("seen", torch.tensor(4099))  # not exact in half precision

    def forward(self, ids):
        return self.lm_head(self.drop(self.norm(self.tok_emb(ids))))


def step(model, batch):
    return cross_entropy(model(batch.tgt_in), batch.tgt_out, keep=batch.tgt_mask, smoothing=0.1)


def open_trainer(seed):
    torch.manual_seed(seed)
    model, rng = Net(), random.Random(0)
    rows = [[rng.randrange(3, V) for _ in range(rng.randint(1, 11))] for _ in range(101)]
    stream = PairStream(list(zip(rows, rows)), max_tokens=61, seed=0, pad_id=0, bos=1, eos=2)
    optimizer = adamw(model, weight_decay=0.1)
    return Trainer(model, step, optimizer, inverse_sqrt(0.03, 5), stream, clip=1.0, accumulate=2)


def save(folder, trainer, **options):
    progress = {"step": trainer.done, "position": trainer.batches.position}
    return save_checkpoint(folder, trainer.model, trainer.optimizer, progress, **options)


def resume(path, trainer):
    progress = load_checkpoint(path, trainer.model, trainer.optimizer)
    trainer.done, trainer.batches.position = progress["step"], progress["position"]
    return progress


def everything(trainer):
    "All that the next step reads, as one comparable tree."
    state = copy.deepcopy((trainer.model.state_dict(), trainer.optimizer.state_dict()))
    return *state, torch.get_rng_state()


def assert_same(a, b):
    torch.testing.assert_close(a[0], b[0], rtol=0, atol=0)
    assert a[1]["state"].keys() == b[1]["state"].keys()
    for index, entries in a[1]["state"].items():
        torch.testing.assert_close(entries, b[1]["state"][index], rtol=0, atol=0)
    groups = json.dumps(a[1]["param_groups"]), json.dumps(b[1]["param_groups"])  # (…) is […]
    assert groups[0] == groups[1]
    assert torch.equal(a[2], b[2])


@pytest.fixture
def saved(tmp_path):
    trainer = open_trainer(0)
    list(trainer.run(3))
    return save(tmp_path, trainer)


def test_saving_changes_nothing(tmp_path):
    plain = [log.loss for log in open_trainer(0).run(3)]
    saving, seen = open_trainer(0), []
    for log in saving.run(3):
        seen.append(log.loss)
        save(tmp_path, saving)
    assert seen == plain


def test_every_gpu_has_its_state_and_one_that_is_gone_is_left_out(saved, monkeypatch):
    states, put = [torch.tensor([n] * 16).byte() for n in (3, 5)], []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: states)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda s, device: put.append((str(device), s)))
    path = save(saved.parent / "gpu", open_trainer(0))
    for present in (0, 1, 2):
        monkeypatch.setattr(torch.cuda, "device_count", lambda present=present: present)
        put.clear()
        resume(path, open_trainer(1))
        assert [name for name, _ in put] == [f"cuda:{n}" for n in range(present)]
        assert all(map(torch.equal, states, [state for _, state in put]))


HARMS = {
    "empty": lambda good: b"",
    "short": lambda good: good[: len(good) // 2],
    "one byte short": lambda good: good.rstrip()[:-1],
    "garbage": lambda good: b"\xff" * len(good),
    "one changed bit": lambda good: good[:-3] + bytes([good[-3] ^ 1]) + good[-2:],
}


@pytest.mark.parametrize("harm", [None, *HARMS])
def test_a_damaged_file_is_named_and_nothing_is_loaded(saved, harm):
    trainer = open_trainer(1)
    list(trainer.run(1))
    before = everything(trainer)
    for name in FILES:
        file, good = saved / name, (saved / name).read_bytes()
        if harm:
            file.write_bytes(HARMS[harm](good))
        else:
            file.unlink()
        with pytest.raises(InputError) as caught:
            resume(saved, trainer)
        assert str(file) in str(caught.value) and "\n" not in str(caught.value)
        assert_same(everything(trainer), before)
        file.write_bytes(good)
    assert resume(saved, trainer)["step"] == 3


def test_no_flipped_bit_of_the_progress_changes_a_value_in_silence(saved):
    path, good = saved / "progress.json", (saved / "progress.json").read_bytes()
    told, mine = json.loads(good), parts()
    for place in range(0, len(good), 11):
        for bit in (0, 3, 6):
            path.write_bytes(good[:place] + bytes([good[place] ^ 1 << bit]) + good[place + 1 :])
            try:
                read = load_checkpoint(saved, *mine)
            except InputError:
                continue
            assert read == told["progress"]


def parts():
    trainer = open_trainer(1)
    return trainer.model, trainer.optimizer


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="this system has no limit of that kind")
def test_a_full_disk_is_told_and_leaves_nothing(saved):
    "A limit on the size of files stands for it: both end in an OSError of the system."
    trainer, soft_hard = open_trainer(0), resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, soft_hard[1]))
    try:
        trainer.done = 9
        with pytest.raises(OSError, match=r"cannot write|too large"):
            save(saved.parent, trainer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, soft_hard)
        signal.signal(signal.SIGXFSZ, before)
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    assert load_checkpoint(saved, *parts())["step"] == 3


def test_another_model_or_optimiser_is_refused_and_left_alone(saved):
    other = Net(size=7)
    before = copy.deepcopy(other.state_dict())
    message = (
        r"model\.safetensors does not fit .*tok_emb\.weight has shape \(31, 13\), not \(31, 7\)"
    )
    with pytest.raises(InputError, match=message):
        load_checkpoint(saved, other, adamw(other))
    torch.testing.assert_close(other.state_dict(), before, rtol=0, atol=0)

    trainer = open_trainer(1)
    trainer.optimizer = torch.optim.AdamW(trainer.model.parameters())
    before = everything(trainer)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        resume(saved, trainer)
    assert_same(everything(trainer), before)


def test_load_weights_names_what_does_not_fit_and_loads_nothing(tmp_path):
    save_weights(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)), tmp_path / "w.safetensors")
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 7, bias=False), nn.Linear(7, 2))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(InputError) as caught:
        load_weights(model, tmp_path / "w.safetensors")
    expected = "2.weight is missing; 2.bias is missing; 1.bias is unknown; and 1 more"
    assert str(caught.value).endswith(f"does not fit this model: {expected}")
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)  # not even 0.weight


@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
def test_ties_are_kept_weights_are_rounded_and_counters_are_not(tmp_path, dtype):
    model, file, other = Net(), tmp_path / "w.safetensors", Net()
    save_weights(model, file, dtype=dtype)
    assert set(load_file(file)) == {"tok_emb.weight", "norm.weight", "norm.bias", "seen"}
    assert model.tok_emb.weight.dtype == torch.float32  # the model itself is not changed
    other.seen.zero_()
    load_weights(other, file)
    expected = model.tok_emb.weight.to(dtype).float()
    torch.testing.assert_close(other.tok_emb.weight, expected, rtol=0, atol=0)
    assert other.seen == 4099 and other.lm_head.weight is other.tok_emb.weight


def test_average_weights(tmp_path):
    models = [Net().double() for _ in range(3)]
    files = [tmp_path / f"{i}.safetensors" for i in range(3)]
    for i, (model, file) in enumerate(zip(models, files)):
        model.seen.fill_(i)
        save_weights(model, file)
    mean = average_weights(files)
    for name, tensor in mean.items():
        stack = torch.stack([m.state_dict()[name] for m in models])
        torch.testing.assert_close(tensor, stack[-1] if name == "seen" else stack.mean(0))
    Net().double().load_state_dict(mean)
    one = average_weights(files[:1])
    torch.testing.assert_close(one, load_tensors(files[0]), rtol=0, atol=0)


def test_half_precision_files_are_averaged_in_fp32(tmp_path):
    "This catches a sum in float16, which overflows at 65504."
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 60000.0)
    save_weights(layer, tmp_path / "w.safetensors", dtype=torch.float16)
    mean = average_weights([tmp_path / "w.safetensors"] * 3)["weight"]
    assert mean.dtype == torch.float32 and mean.item() == 60000.0


def test_average_weights_refuses(tmp_path):
    save_weights(nn.Linear(1, 5), tmp_path / "a.safetensors")
    for other in (nn.Linear(7, 5), nn.Linear(1, 5, bias=False)):
        save_weights(other, tmp_path / "b.safetensors")
        for pair in ("ab", "ba"):
            with pytest.raises(InputError, match=r"differ in tensors"):
                average_weights([tmp_path / f"{name}.safetensors" for name in pair])


@pytest.mark.parametrize("keep, left", [(1, [4]), (2, [3, 4]), (9, [2, 3, 4]), (None, [2, 3, 4])])
def test_keep_leaves_the_newest(tmp_path, keep, left):
    trainer = open_trainer(0)
    for trainer.done in (2, 3, 4):
        save(tmp_path, trainer, keep=keep)
    names = [f"step-{n:07d}" for n in left]
    assert [path.name for path in checkpoints(tmp_path)] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == names  # and nothing beside them


def test_checkpoints_are_ordered_by_number_and_others_are_not_listed(tmp_path):
    listed = ["step-0000001", "step-9999999", "step-10000000"]
    for name in (*listed[::-1], "step-1.old1", ".step-2.part", "log7"):
        (tmp_path / name).mkdir()
    assert [p.name for p in checkpoints(tmp_path)] == listed
    assert checkpoints(tmp_path / "missing") == []


KILLED_AT_EVERY_EVENT = """
import os, signal, sys
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[2])
from test_checkpoint import checkpoints, open_trainer, resume, save
from transformer_lit.course.files import remove_leftovers
EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "os.scandir"}
trainer = open_trainer(0)
list(trainer.run(1))
for _ in range(2):
    save(sys.argv[1], trainer)
    trainer.done += 1
kills, died = 0, True
while died:
    trainer.done += 1
    pid = os.fork()
    if pid == 0:
        left = kills + 1
        def hook(event, args):
            global left
            if event in EVENTS:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
        save(sys.argv[1], trainer, keep=2)
        os._exit(0)
    died = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    kills += died
    found = checkpoints(sys.argv[1])
    assert len(found) >= 2, (kills, found)
    for path in found:
        resume(path, open_trainer(1))
    trainer.done = resume(found[-1], trainer)["step"]
remove_leftovers(sys.argv[1])  # as a run does that goes on
left = sorted(os.listdir(sys.argv[1]))
assert len(left) == 2 and left == [p.name for p in found], left
print(kills)
"""


@pytest.mark.machinery
def test_a_kill_at_any_file_event_leaves_only_whole_checkpoints(tmp_path):
    command = [sys.executable, "-c", KILLED_AT_EVERY_EVENT, tmp_path, os.path.dirname(__file__)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout.strip().isdigit() and int(done.stdout) > 15, done.stderr
