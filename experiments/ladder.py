"""What each option of a training costs and buys: time, memory, and the loss after equal steps."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.common import compared, take_turns
from experiments.runner import BRIEF, Cell, Experiment, Row, Variant, take_mean, val_losses
from transformer_lit.recipes.language_model import LanguageModeling
from transformer_lit.recipes.recipe import open_training
from transformer_lit.training.options import LayerWatch, WeightAverage
from transformer_lit.training.run import Run

SEEDS, PARTS, DECAY, LAST = range(3), 4, 0.97, 3


def in_bf16(run: Run) -> None:
    run.trainer.dtype = torch.bfloat16


def in_fp32(run: Run) -> None:
    "Nothing."


def compiled(run: Run) -> None:
    run.trainer.step = torch.compile(run.trainer.step)  # not the model: its names stay


def in_parts(run: Run) -> None:
    run.trainer.accumulate = PARTS


def clipped(run: Run) -> None:
    run.trainer.clip = 1.0


def averaged(run: Run) -> None:
    average = WeightAverage(run.trainer.model, run.trainer.optimizer, decay=DECAY)
    evaluate = run.evaluate

    def of_the_average() -> float:
        with average.used():
            return evaluate()

    run.evaluate = of_the_average


def watched(run: Run) -> None:
    run.watch = LayerWatch(run.trainer)


def watched_rarely(run: Run) -> None:
    run.watch = LayerWatch(run.trainer, every=10)


OPTIONS: dict[str, Callable[[Run], None]] = {
    "plain": in_fp32,
    "bf16": in_bf16,
    "compile": compiled,
    "accumulate": in_parts,
    "clip": clipped,
    "average": averaged,
    "watch": watched,
    "watch/10": watched_rarely,
}
CHANGE_LOSS = ("plain", "bf16", "compile", "accumulate", "clip", "average")  # a watch looks on


@dataclass(frozen=True, kw_only=True)
class Optional(Variant):
    "A language model that is trained with an option. Parts of a batch make the same batch."

    option: str = "plain"  # see OPTIONS

    def stream(self, tokenizer: Any, examples: str, seed: int) -> Any:
        "The batches; where they accumulate, each in its parts."
        whole = super().stream(tokenizer, examples, seed)
        return Parts(whole) if self.option == "accumulate" else whole


class Parts:
    "A stream whose batches come in parts, as if they did not fit into memory."

    def __init__(self, whole: Any):
        self.whole = whole

    @property
    def position(self) -> tuple[int, ...]:
        "In the stream of whole batches."
        return self.whole.position

    def __iter__(self) -> Iterator[Any]:
        for batch in self.whole:
            for ids, targets in zip(
                batch.ids.chunk(PARTS), batch.targets.chunk(PARTS), strict=True
            ):
                yield replace(batch, ids=ids, targets=targets)


def recipe(option: str, **changes: Any) -> Optional:
    "The preset of a CPU, without clipping, with an option."
    preset = vars(LanguageModeling.presets["shakespeare-cpu"])
    return Optional(**{**preset, "clip": None, "option": option, **changes})


SIZES = {"d_model": 64, "n_layers": 2, "n_heads": 2, "n_kv_heads": 1, "d_ff": 172}
QUICK = BRIEF | {"sizes": {**SIZES, "n_layers": 1}}

# --- time and memory ----------------------------------------------------------------------------

TURNS = 15  # of one step each


def settings(rows: Sequence[Row]) -> Iterator[Cell]:
    "One cell for each option; each is timed against a plain training beside it."
    for option in OPTIONS:
        yield Cell({"option": option}, recipe(option), 0)


def cost(run: Run) -> list[Row]:
    "Time of a step against the plain one, in turns; and bytes that tensors hold."
    option, device = run.recipe.option, str(run.trainer.device)
    with tempfile.TemporaryDirectory() as folder:
        plain = open_training(
            replace(run.recipe, option="plain"), Path(folder, "run"), device=device
        )
        steps = [stepping(run, option), stepping(plain, "plain")]
        seconds = take_turns(steps, TURNS)
        tokens = run.recipe.batch_size * run.recipe.length
        row = compared(seconds) | {"tokens_per_second": tokens / sorted(seconds[0])[TURNS // 2]}
        held, most = memory(run, steps[0])
    threads = torch.get_num_threads()
    return [row | {"held": held, "peak": held + most, "threads": threads, "bf16": has_bf16()}]


def stepping(run: Run, option: str) -> Callable[[], Any]:
    "One optimiser step with the option, on the next batch."
    OPTIONS[option](run)
    run.trainer.model.train()
    batches = iter(run.trainer.batches)

    def step() -> None:
        run.trainer.one_step([next(batches) for _ in range(run.trainer.accumulate)])
        run.watch()

    return step


def memory(run: Run, step: Callable[[], Any]) -> tuple[int, int]:
    "Bytes of weights and optimiser state, and the most that the tensors of a step add to them."
    states = [t for entries in run.trainer.optimizer.state.values() for t in entries.values()]
    held = sum(t.nbytes for t in (*run.trainer.model.parameters(), *states))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    total = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        total += event.nbytes()
        most = max(most, total)
    return held, most


def has_bf16() -> bool:
    "Whether this processor multiplies in bf16."
    flags = Path("/proc/cpuinfo")
    return flags.exists() and any(
        word in flags.read_text().split() for word in ("avx512_bf16", "amx_bf16", "bf16")
    )


LADDER = Experiment(
    "An option of a training in a row, on the preset shakespeare-cpu (0.74M parameters, 16 blocks "
    "of 64 characters a step, AdamW, no clipping), at one step after the other. option: plain is "
    "float32 without any; bf16 is autocast; compile is torch.compile of the step; accumulate is "
    "the same batch in 4 parts; clip bounds the gradient to length 1; average is a moving average "
    "of the weights; watch measures gradient and step of every layer at each step, watch/10 at "
    "each tenth. ratio, low, high: how many times as long a step takes as the plain one that "
    "took turns with it, the median of `pairs` and its 95 % interval; the first step, which "
    "compiles, is left out. tokens_per_second: by the median step. held: bytes of weights and "
    "optimiser state between steps. peak: the most bytes of tensors during a step, held ones "
    "included, as torch's profiler counts them. threads: of the processor. bf16: whether it has "
    "instructions that multiply in bf16.",
    cost,
    settings,
    QUICK,
)

# --- the loss after equal steps -----------------------------------------------------------------

SHORT = {"steps": 160, "every": 20, "val_batches": 4, "average": LAST}


def trainings(rows: Sequence[Row]) -> Iterable[Cell]:
    "Every option that may change a loss, with every seed; a seed is weights and batches."
    for option, seed in product(CHANGE_LOSS, SEEDS):
        yield Cell({"option": option, "seed": seed}, recipe(option, sizes=SIZES, **SHORT), seed)


def learn(run: Run) -> list[Row]:
    "Validation losses on the way; of the plain training, also that of its last checkpoints' mean."
    option = run.recipe.option
    evaluate = run.evaluate
    OPTIONS[option](run)
    run.train()
    rows: list[Row] = [{"losses": val_losses(run)}]
    if option == "plain":
        take_mean(run, LAST)
        rows.append({"option": "checkpoints", "losses": [evaluate()]})
    return rows


LADDER_LOSSES = Experiment(
    "A training in a row: the preset shakespeare-cpu shortened to 160 steps, with 2 layers of "
    "width 64 and no clipping. option: as in the record ladder; checkpoints is the mean of the "
    "plain training's last 3 checkpoints, which lie 20 steps apart; average has a decay of 0.97. "
    "losses: validation loss in nats per character after each 20 steps, on the first 256 blocks "
    "of the held-out text; of checkpoints at the end alone.",
    learn,
    trainings,
    QUICK,
)
