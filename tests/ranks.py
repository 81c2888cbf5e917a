"""Two processes of one training, for tests: `start` starts them, and this file is what they run."""

import json
import math
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from transformer_lit.course import data as datasets
from transformer_lit.course.files import InputError
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.recipes import cli
from transformer_lit.recipes.translation import Translation
from transformer_lit.training import options
from transformer_lit.training.data import TextStream, text_blocks
from transformer_lit.training.distributed import ALONE, Replicated, Sharded, join
from transformer_lit.training.loss import cross_entropy
from transformer_lit.training.options import EarlyStop, LayerWatch, WeightAverage, keep_weights
from transformer_lit.training.run import Run, load_weights, save_weights
from transformer_lit.training.schedule import adamw, inverse_sqrt
from transformer_lit.training.trainer import Trainer

KINDS = {"ddp": Replicated, "fsdp": Sharded}
STEPS, CUT, LIMIT = 7, 3, 600  # the limit in seconds is for a machine that does much else


def environment():
    "Of a process that finds the package."
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


def torchrun(*arguments):
    "Run the command in two processes, on a small preset; what came of it."
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launch += ["--local-addr", "127.0.0.1", "--nproc-per-node", "2", __file__, "command"]
    how = {"env": environment(), "capture_output": True, "text": True, "timeout": LIMIT}
    return subprocess.run([*launch, *map(str, arguments)], **how)


def start(*arguments, size=2):
    "Start the processes as torchrun would: a rank each, and a store that we keep. Returns them."
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    address |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    address |= {"WORLD_SIZE": str(size)}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, *map(str, arguments)],
            env={**environment(), **address, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    for process in processes:
        process.store = store  # it closes when nobody holds it
    return processes


def ends(processes):
    "Exit codes and what was written on standard error, of all; nobody is left behind."
    try:
        said = [process.communicate(timeout=LIMIT)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], said


def step(model, batch):
    return cross_entropy(model(batch.ids), batch.targets)


def open_run(out, world=ALONE, *, steps=STEPS, dropout=0.0):
    """A run of a small Llama with tied weights, in float64; clipped, with two batches a step.

    A batch has 3 rows, and the last of an epoch has 1: a second process has none of it.
    """
    torch.manual_seed(0)
    sizes = {"d_model": 10, "n_layers": 3, "n_heads": 2, "d_head": 6, "d_ff": 17, "tied": True}
    model = world.place(Llama(LlamaConfig(19, dropout=dropout, **sizes)).double())
    ids = torch.arange(59).square() % 19
    trainer = Trainer(
        model,
        step,
        adamw(model, weight_decay=0.1),
        inverse_sqrt(0.02, 3),
        TextStream(ids, length=5, batch_size=3, seed=1),
        clip=0.7,
        accumulate=2,
        world=world,
    )
    val = text_blocks(ids.flip(0), 7, 2)
    run = Run(Path(out), trainer, lambda: trainer.evaluate(val), steps=steps, every=CUT)
    run.restore()
    return run


def _bytes(tensors):
    "What this process holds of them."
    local = (t.to_local() if hasattr(t, "to_local") else t for t in tensors)
    return sum(t.numel() * t.element_size() for t in local)


def held(run):
    "Bytes of weights, gradients and moments in this process, in the middle of a step."
    trainer, bytes_of = run.trainer, {}
    parameters = list(trainer.model.parameters())
    real = trainer.optimizer.step

    def look():
        bytes_of["gradients"] = _bytes(p.grad for p in parameters)
        real()

    trainer.optimizer.step = look
    next(trainer.run(trainer.done + 1))
    trainer.optimizer.step = real
    bytes_of["weights"] = _bytes(parameters)
    states = trainer.optimizer.state.values()
    bytes_of["moments"] = _bytes(s[key] for s in states for key in ("exp_avg", "exp_avg_sq"))
    return bytes_of


@contextmanager
def slow_disk():
    "Inside, weights take half a second to be saved."
    real = options.save_weights

    def late(*args):
        time.sleep(0.5)
        real(*args)

    options.save_weights = late
    try:
        yield
    finally:
        options.save_weights = real


def with_options(out, world=ALONE):
    "A run with all that can hang on it; losses without and with the average, twice; its numbers."
    run = open_run(out, world, steps=CUT + 1)
    trainer = run.trainer
    average = WeightAverage(trainer.model, trainer.optimizer, decay=0.7)
    run.watch = LayerWatch(trainer)
    run.stop = EarlyStop(2, lambda: keep_weights(trainer, run.out / "best.safetensors"))
    run.train()
    losses = [run.evaluate()]
    with average.used(), slow_disk():
        keep_weights(trainer, run.out / "average.safetensors")
        losses.append(run.evaluate())  # it leaves weights whole that are parts at other times
    losses.append(run.evaluate())
    load_weights(trainer.model, run.out / "average.safetensors")  # all may, once it is kept
    losses.append(run.evaluate())
    whole = {} if (found := average.weights()) and world.rank else found  # all must ask
    return {"losses": losses, "weights": {name: t.tolist() for name, t in whole.items()}}


def nan_at(step, out, world=ALONE):
    "What a training says when the first process plants a nan in a row of a matrix that it holds."
    trainer = open_run(out, world).trainer
    weight = trainer.model.layers[1].ffn.up_proj.weight
    own = weight.to_local() if hasattr(weight, "to_local") else weight
    try:
        for log in trainer.run(step):
            if log.step == step - 1 and not world.rank:
                own.data[0, 2] = math.nan
    except InputError as error:
        return str(error)


def saved_by_all(out, world):
    "What a process is told that saves its parts as if they were whole."
    model = open_run(out, world).trainer.model
    if not world.rank:
        return model.state_dict() and None  # the other one has asked as well
    try:
        save_weights(model, out / "parts.safetensors")
    except ValueError as error:
        return str(error)


def dice(world):
    "Three draws before, in and after a round."
    torch.manual_seed(5)
    drawn = [torch.rand(3).tolist()]
    with world.round(1):
        drawn.append(torch.rand(3).tolist())
    return [*drawn, torch.rand(3).tolist()]


def work(folder, world):
    "What two processes do for the tests, in the folder that the tests look at afterwards."
    told = {}
    for name, kind in KINDS.items():
        world = kind()
        refused = []

        def meddle(log, out=folder / name / "whole", rank=world.rank, refused=refused):
            if rank and log.step == 2:
                try:
                    open_run(out, steps=STEPS)
                except InputError as error:
                    refused.append(str(error))

        open_run(folder / name / "whole", world).train(meddle)
        open_run(folder / name / "cut", kind(), steps=CUT).train()
        open_run(folder / name / "begun", kind()).train()  # by one process, up to CUT
        open_run(folder / name / "dropout", kind(), dropout=0.3).train()
        for steps in (CUT, STEPS):
            open_run(folder / name / "stopped", kind(), steps=steps, dropout=0.3).train()
        told[name] = {
            "held": held(open_run(folder / name / "held", kind())),
            "dice": dice(world),
            "refused": refused,
            "options": with_options(folder / name / "options", kind()),
        }
    told["fsdp"]["nan"] = nan_at(3, folder / "nan", Sharded())
    told["fsdp"]["saved"] = saved_by_all(folder / "saved", Sharded())
    (folder / f"rank{world.rank}.json").write_text(json.dumps(told))


def fail(world, how):
    "The second process ends in one of several ways, and the first waits for it."
    world.wait()  # whoever still joins would have a line of its own about one that has gone
    if world.rank == 0:
        world.wait()
    elif how == "told":
        raise InputError("the disk is full")
    elif how == "killed":
        os._exit(9)
    elif how == "silent":
        time.sleep(2 * LIMIT)


def small_numbers():
    "The preset `numbers` of the command, small enough for a test."
    pairs = datasets.number_pairs
    datasets.number_pairs = lambda split: pairs(split)[:53]
    sizes = {"d_model": 6, "d_ff": 7, "n_heads": 2, "n_layers": 2, "dropout": 0.0, "max_len": 83}
    changes = {"sizes": sizes, "vocab_size": 263, "max_tokens": 500, "steps": 4, "every": 2}
    Translation.presets["numbers"] = replace(Translation.presets["numbers"], **changes)


def main(what, *arguments):
    if what == "command":
        small_numbers()
        sys.exit(cli.main(arguments))

    @cli.app.command("test-ranks")
    def command():
        torch.set_num_threads(1)
        with join("cpu", timeout=20 if "silent" in arguments else LIMIT) as world:
            work(Path(*arguments), world) if what == "work" else fail(world, *arguments)

    sys.exit(cli.main(["test-ranks"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
