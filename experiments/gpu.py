"""Train on one GPU, in a few minutes, what results/ lacks: `python -m experiments.gpu`.

First come three seeds of `novels`, a LLaMA-style decoder with 32 million parameters that reads 89
English novels in subwords; then the published caption translator, with all of its 65 million
tokens; then everything else that has no record yet. Trainings of one kind run side by side, each in
a process of its own. Once a minute the command prints how far they are, and after `--minutes` it
stops them at a checkpoint. Kill it whenever you like: the same command goes on from the newest
checkpoints. It exits with 0 when everything is recorded, with 1 while something is left, and with 2
after an error.

Nothing is downloaded: the novels must be in the folder that TRANSFORMER_LIT_DATA names. `--dry-run`
prints how many bytes the command needs and how many it returns: a record for each seed, and the
model of the first seed in pieces of at most 15 MiB, which `cat novels-seed0.tar.* | tar x` puts
together. `--tiny` does all of this with a small model, in two minutes on two CPU cores.
"""

import argparse
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from experiments.more_reading import ARMS, Reading, readings
from experiments.runner import at_least, count, told
from transformer_lit.course.data import DATASETS, available, load_text
from transformer_lit.course.files import (
    InputError,
    atomic_path,
    cache_folder,
    read_json,
    require_writable,
    write_json,
)
from transformer_lit.course.records import pick_device
from transformer_lit.recipes.bakeoff import BAKEOFFS, bakeoff_presets, places, run_name
from transformer_lit.recipes.language_model import LanguageModeling
from transformer_lit.recipes.recipe import Recipe, finish_training, open_training, preset
from transformer_lit.recipes.zoo import RECIPES
from transformer_lit.text.tokenizer import Tokenizer, load_tokenizer
from transformer_lit.training.data import TextBatch, TextStream, text_blocks
from transformer_lit.training.optimizers import make_optimizer
from transformer_lit.training.options import keep_freed_memory
from transformer_lit.training.run import read_log
from transformer_lit.training.trainer import Trainer

SEEDS = range(3)
PIECE = 15 * 2**20  # bytes
SETTLE = 0.15  # share of the minutes in which models are scored and saved
OTHERS = (  # recipe, options of the command
    ("translation", {"preset": "multi30k-cpu"}),
    ("translation", {"preset": "tatoeba-cpu"}),  # Chinese to English
    ("language-model", {"preset": "shakespeare", "dtype": "bfloat16"}),
)


# --- the novels: text and tokens are made once, for all processes -------------------------------


@dataclass(frozen=True, kw_only=True)
class Novels(LanguageModeling):
    "A language model whose tokenizer and tokens were written to `folder` by `prepare`."

    most: int | None = None  # characters of the training text, and a tenth to validate on

    folder: ClassVar[Path] = Path("runs/corpus")
    sides: ClassVar[Sequence[int]] = (64, 128, 256)  # batch sizes that are tried
    seconds: ClassVar[float] = 4.0  # for each of them

    def examples(self, split: str, *, progressbar: bool = False) -> str:
        most = self.most if split == "train" or self.most is None else self.most // 10
        return load_text(self.dataset, split)[:most]

    def prepare(self) -> None:
        "Write the tokenizer and the tokens, unless they are there."
        if self.folder.exists():
            return
        texts = {split: self.examples(split) for split in ("train", "val")}
        tokenizer = super().train_tokenizer(texts["train"])
        ids = {split: tokenizer.encode_text(text) for split, text in texts.items()}
        with atomic_path(self.folder) as temporary:
            temporary.mkdir(parents=True)
            tokenizer.save(temporary / "tokenizer.json")
            save_file({split: row.int() for split, row in ids.items()}, temporary / "ids")

    def train_tokenizer(self, examples: str) -> Tokenizer:
        return load_tokenizer(self.folder / "tokenizer.json")

    def ids(self, split: str) -> Tensor:
        return load_file(self.folder / "ids")[split].long()

    def stream(self, tokenizer: Tokenizer, examples: str, seed: int) -> TextStream:
        how = {"length": self.length, "batch_size": self.batch_size, "seed": seed}
        return TextStream(self.ids("train"), **how)

    def batches(self, tokenizer: Tokenizer, examples: str) -> list[TextBatch]:
        "Whole ones only, so that each has the shape that was compiled."
        found = text_blocks(self.ids("val"), self.length, self.batch_size)
        return found[:-1] or found

    def sized(self, batch_size: int, steps: int) -> "Novels":
        "A larger batch takes a higher rate, as its root."
        lr = LanguageModeling.presets["novels"].lr * math.sqrt(batch_size / 64)
        warmup, every = max(1, steps // 20), max(1, steps // 6)
        how = {"batch_size": batch_size, "lr": lr, "steps": steps, "warmup": warmup}
        return replace(self, **how, every=every)


def novels(tiny: bool) -> Novels:
    "The preset of that name, or a small model on what is always at hand."
    found = vars(LanguageModeling.presets["novels"])
    if not tiny:
        return Novels(**found)
    sizes = {"d_model": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "d_ff": 172}
    dataset = "novels" if available("novels") else "stories"
    small = {"sizes": sizes, "tokens": 512, "length": 64, "most": 400_000, "dataset": dataset}
    Novels.sides, Novels.seconds = (4, 8, 16), 1.0
    return Novels(**found | small)


def quicken(model: torch.nn.Module) -> None:
    "Compile the layers, which share one compilation, where launches would cost more than work."
    if next(model.parameters()).is_cuda:
        for layer in model.layers:
            layer.compile()


def measure(recipe: Novels, device: torch.device) -> list[dict[str, Any]]:
    "For each batch size: tokens per second, and the share of what large products reach here."
    dtype, on_gpu = torch.bfloat16, device.type == "cuda"

    def clock() -> float:
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    n = 8192 if on_gpu else 512
    a = torch.randn(n, n, device=device, dtype=dtype)
    a @ a
    began = clock()
    for _ in range(10):
        a @ a
    peak = 10 * 2 * n**3 / (clock() - began)
    model = recipe.build(recipe.train_tokenizer("").vocab_size).to(device)
    quicken(model)
    optimizer = make_optimizer("adamw", model, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    rows = []
    for side in recipe.sides:
        stream = recipe.sized(side, 100).stream(None, "", 0)
        parts = (model, recipe.step, optimizer, lambda step: 1e-4, stream)
        trainer = Trainer(*parts, device=device, dtype=dtype)
        list(trainer.run(2))  # compiles, and fills the caches
        began, tokens = clock(), 0
        while clock() - began < recipe.seconds:
            tokens += sum(log.tokens for log in trainer.run(trainer.done + 1))
        rate = tokens / (clock() - began)
        share = 6 * count(model) * rate / peak
        rows.append({"batch_size": side, "tokens_per_second": rate, "peak_share": share})
        print(
            f"batches of {side}: {rate:,.0f} tokens a second, {share:.0%} of the peak", flush=True
        )
    return rows


def ends_with(parent: int) -> Callable[[Any], None]:
    "To be called at each step: a training whose command was killed must not go on without it."

    def on_step(log: Any) -> None:
        if os.getppid() != parent:
            raise KeyboardInterrupt

    return on_step


# --- what may lack a record ---------------------------------------------------------------------


@dataclass(frozen=True)
class Training:
    "One that has, or lacks, a record `results/<folder>/<name>.json`."

    name: str
    command: str
    recipe: Recipe
    seed: int
    dtype: torch.dtype = torch.float32
    folder: str = ""
    about: dict[str, Any] = field(default_factory=dict)  # what a record says more

    def train(self, out: Path, results: Path, device: str) -> None:
        "Begin or go on; write the record when the last step is done."
        how = {"seed": self.seed, "device": device, "dtype": self.dtype, "resume": True}
        run = open_training(self.recipe, out / self.name, **how)
        if isinstance(self.recipe, Novels):
            quicken(run.trained.model)
        run.train(ends_with(os.getppid()))
        extra = self.about | (places(run) if "bakeoff" in self.about else {})
        where = {"name": self.name, "command": self.command, "results": results / self.folder}
        finish_training(run, **where, extra=extra)

    def missing(self, results: Path) -> bool:
        return not (results / self.folder / f"{self.name}.json").exists()

    def waits(self, out: Path) -> bool:
        return False


def decoders(tiny: bool, plan: dict[str, Any]) -> list[Training]:
    "The seeds of the novels, with the batch size and the steps of the plan."
    recipe = novels(tiny).sized(plan["batch_size"], plan["steps"])
    name, command = ("novels-tiny", " --tiny") if tiny else ("novels", "")
    rest = f"python -m experiments.gpu{command}", recipe
    about = {"tried": plan["rows"]}
    return [Training(f"{name}-seed{n}", *rest, n, torch.bfloat16, about=about) for n in SEEDS]


def others() -> Iterator[Training]:
    "What else has no record yet, seed by seed, so that an early end shows something of everything."
    for seed, (kind, options) in product(SEEDS, OTHERS):
        given = {**options, "seed": seed}
        changes = {key: given[key] for key in given if key not in ("preset", "seed", "dtype")}
        recipe = preset(RECIPES[kind], options["preset"], **changes)
        shorter = given.get("steps") and f"steps{given['steps']}"
        said = (options["preset"], recipe.variant, shorter, given.get("dtype"), f"seed{seed}")
        words = [word for key, value in given.items() for word in (f"--{key}", str(value))]
        command = shlex.join(["transformer-lit", "train", kind, *words])
        dtype = getattr(torch, options.get("dtype", "float32"))
        yield Training("-".join(filter(None, said)), command, recipe, seed, dtype)
    for seed, name in product(SEEDS, BAKEOFFS):
        for entry, recipe in bakeoff_presets(name, "large").items():
            command = f"transformer-lit bakeoff {name} --setting large --seeds {len(SEEDS)}"
            about = {"bakeoff": name, "setting": "large", "entry": entry}
            named = run_name(name, "large", entry, seed)
            yield Training(named, command, recipe, seed, folder="bakeoffs", about=about)


# --- the command --------------------------------------------------------------------------------


def send_pieces(training: Training, out: Path, to: Path) -> None:
    "The model that a training has left, in half precision, as an archive in pieces."
    trained = training.recipe.kind.load(out / training.name / "model")
    with tempfile.TemporaryDirectory() as room:
        folder, archive = Path(room, training.name), Path(room, "tar")
        trained.save(folder, dtype=torch.float16)
        with tarfile.open(archive, "w") as file:
            file.add(folder, training.name)
        whole = archive.read_bytes()
    for number, start in enumerate(range(0, len(whole), PIECE)):
        with atomic_path(to / f"{training.name}.tar.{number:02}") as path:
            path.write_bytes(whole[start : start + PIECE])


def how_far(training: Training | Reading, out: Path) -> str:
    "In a few words: its step, and its last losses."
    log = out / training.name / "log.jsonl"
    rows = read_log(log) if log.exists() else []
    if not rows:
        return f"{training.name}: not begun"
    held = [f"{row['val_loss']:.3f}" for row in rows if "val_loss" in row]
    step, steps, loss = rows[-1]["step"], training.recipe.steps, rows[-1]["loss"]
    said = f"{training.name}: step {step} of {steps}, loss {loss:.3f}"
    return f"{said}, held out {held[-1]}" if held else said


def side_by_side(
    commands: Sequence[list[str]], deadline: float, watched: Sequence[Training | Reading], out: Path
) -> None:
    "Run them together; when time is up, each ends its step and leaves a checkpoint."
    started, minute = [subprocess.Popen(command) for command in commands], time.monotonic() + 60
    while any(one.poll() is None for one in started) and time.monotonic() < deadline:
        time.sleep(0.2)
        if time.monotonic() > minute:
            minute += 60
            print(*(how_far(one, out) for one in watched), sep="\n", flush=True)
    for one in started:
        if one.poll() is None:
            one.send_signal(signal.SIGINT)
    if failed := [one.args for one in started if one.wait() not in (0, 1)]:
        raise InputError(f"this failed, and says above why: {shlex.join(failed[0])}")


def work(job: str, given: argparse.Namespace, results: Path) -> int:
    "One of them, in this process."
    device = pick_device(given.device)
    if device.type == "cpu":
        torch.set_num_threads(1)  # the others have the other cores
    try:
        if job == "measure":
            write_json(given.out / "rates.json", measure(novels(given.tiny), device))
        else:
            (one,) = (one for group in known(given) for one in group if one.name == job)
            one.train(given.out, results, str(device))
    except KeyboardInterrupt:
        return 1
    return 0


def known(given: argparse.Namespace) -> Iterator[Sequence[Training | Reading]]:
    "All that may lack a record, in the groups that are trained together."
    yield decoders(given.tiny, read_json(given.out / "plan.json"))
    if not given.tiny:
        yield from map(readings, ARMS)
        yield from ([one] for one in others())


def plan(rows: list[dict[str, Any]], seconds: float, recipe: Novels) -> dict[str, Any]:
    "The batch size that reads most, and as many steps as all seeds together have time for."
    best = max(rows, key=lambda row: row["tokens_per_second"])
    tokens = len(SEEDS) * best["batch_size"] * recipe.length
    steps = max(12, int(seconds * best["tokens_per_second"] / tokens))
    return {"batch_size": best["batch_size"], "steps": steps, "rows": rows}


def bytes_told(recipe: Novels) -> str:
    "What the command reads, and what it gives back."
    names = {Path(file.path).parts[0] for file in DATASETS[recipe.dataset].files}
    homes = [os.environ.get("TRANSFORMER_LIT_DATA") or ".", cache_folder()]
    folders = [Path(home, name) for home, name in product(homes, names)]
    read = sum(path.stat().st_size for folder in folders for path in folder.glob("*"))
    with torch.device("meta"):
        weights = 2 * count(recipe.build(recipe.tokens))
    return (
        f"needs {read:,} bytes: {recipe.dataset} {'in a folder' if names else 'made here'}\n"
        f"returns {len(SEEDS)} records of at most 200,000 bytes, and {weights:,} bytes of weights "
        f"in pieces: {math.ceil(weights / PIECE)}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="a small model, for two CPU cores")
    parser.add_argument("--dry-run", action="store_true", help="print what it needs and returns")
    parser.add_argument("--minutes", type=at_least(0.0), help="of one call: 6, or 2 with --tiny")
    parser.add_argument("--only", default="", help="names that match this regular expression")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="folder of the runs")
    parser.add_argument("--results", type=Path, help="folder of records and pieces")
    parser.add_argument("--job", help=argparse.SUPPRESS)  # one of them, in a process of its own
    given, began = parser.parse_args(argv), time.monotonic()
    recipe, Novels.folder = novels(given.tiny), given.out / "corpus"
    if given.dry_run:
        print(bytes_told(recipe))
        return 0
    results = given.results or (given.out / "results" if given.tiny else Path("results"))
    for folder in (given.out, results):
        require_writable(folder)
    keep_freed_memory()
    if given.job:
        return work(given.job, given, results)
    seconds = 60 * (given.minutes if given.minutes is not None else 2 if given.tiny else 6)
    own = [sys.executable, "-m", "experiments.gpu", *(sys.argv[1:] if argv is None else argv)]
    recipe.prepare()
    if not (given.out / "plan.json").exists():
        side_by_side([[*own, "--job", "measure"]], math.inf, [], given.out)
        left = began + (1 - SETTLE) * seconds - time.monotonic()
        write_json(given.out / "plan.json", plan(read_json(given.out / "rates.json"), left, recipe))
    missing = 0
    for group in known(given):
        group = [one for one in group if re.search(given.only, one.name)]
        for _ in range(2):  # translators are scored when all of their seeds have validated
            jobs = [one for one in group if one.missing(results) and not one.waits(given.out)]
            if jobs and time.monotonic() < began + seconds:
                commands = [[*own, "--job", one.name] for one in jobs]
                side_by_side(commands, began + seconds, jobs, given.out)
        missing += sum(one.missing(results) for one in group)
        first = group[0] if group else None
        if isinstance(getattr(first, "recipe", None), Novels) and not first.missing(results):
            send_pieces(first, given.out, results)
    print(f"{missing} trainings have no record", file=sys.stderr)
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(told(main))
