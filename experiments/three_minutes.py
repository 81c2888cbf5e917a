"""How low a small language model comes in three minutes of two threads: one change at a time.

A rung of the ladder is a change beside what the rungs below it kept. It is kept where five seeds,
paired, say that it lowers the loss.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.runner import BRIEF, Cell, Experiment, Row, Variant, count, val_losses
from transformer_lit.attention.linear import ShortConv
from transformer_lit.attention.windows import Window
from transformer_lit.block.norm import RMSNorm
from transformer_lit.course.records import paired, read_measurement
from transformer_lit.models.decoders import PerHead
from transformer_lit.models.llama import Llama
from transformer_lit.models.more_than_one import ValueEmbedding
from transformer_lit.recipes.language_model import LanguageModeling
from transformer_lit.training.data import TextBatch, TextStream
from transformer_lit.training.run import Run

SEEDS = range(5)
STEPS, SHORT, NEAR, WIDTH = 1200, 64, 64, 4  # updates; a short block; the window; of a convolution

# --- what a rung changes ------------------------------------------------------------------------


class Before(nn.Module):
    "A sublayer's input: its norm, then for each channel a weighted sum of the last positions."

    def __init__(self, norm: nn.Module, d_model: int):
        super().__init__()
        self.norm, self.conv = norm, ShortConv(d_model, WIDTH)
        with torch.no_grad():  # at first it lets through what stands here
            self.conv.weight.zero_()[:, -1] = 1

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.norm(x))[0]  # B T C


def convolved(model: Llama) -> None:
    for layer in model.layers:
        for residual in (layer.attn_residual, layer.ffn_residual):
            residual.norm = Before(residual.norm, model.config.d_model)


def qk_norm(model: Llama) -> None:
    for attn in (layer.attn for layer in model.layers):
        for name in ("q_proj", "k_proj"):
            norm = PerHead(RMSNorm(attn.d_head), attn.d_head)
            setattr(attn, name, nn.Sequential(getattr(attn, name), norm))


@torch.no_grad()
def silent(model: Llama) -> None:
    for layer in model.layers:
        layer.attn.o_proj.weight.zero_()
        layer.ffn.down_proj.weight.zero_()


def windows(model: Llama) -> None:
    for i, layer in enumerate(model.layers, 1):
        if i % 4:
            layer.attn.attend = Window(NEAR)


def value_tables(model: Llama) -> ValueEmbedding:
    attn, last = model.layers[0].attn, len(model.layers) - 1
    width = attn.n_kv_heads * attn.d_head
    tables = {i: nn.Embedding(model.config.vocab_size, width) for i in (0, last)}
    for table in tables.values():
        nn.init.normal_(table.weight, std=0.02)
    return ValueEmbedding(model, tables)


# In the order in which they are made, whatever the order of the rungs.
PARTS: dict[str, Callable[[Llama], nn.Module | None]] = {
    "convolution": convolved,
    "QK-norm": qk_norm,
    "windows": windows,
    "zero outputs": silent,
    "value embeddings": value_tables,  # last: the Llama is inside of it
}


class Lengthening:
    "A stream whose first batches come from another one."

    def __init__(self, first: TextStream, then: TextStream, until: int):
        self.first, self.then, self.until, self.done = first, then, until, 0

    @property
    def position(self) -> tuple[int, ...]:
        "How many batches were dealt out."
        return (self.done,)

    def __iter__(self) -> Iterator[TextBatch]:
        first, then = iter(self.first), iter(self.then)
        while True:
            self.done += 1
            yield next(first if self.done <= self.until else then)


@dataclass(frozen=True, kw_only=True)
class Rung(Variant):
    """A language model with changes. It learns from eight ninths of the training text.

    It is validated on the last ninth: the validation text is for the end of the ladder.
    """

    changes: tuple[str, ...] = ()
    whole: bool = False  # whether it learns from all the training text, and validation is that

    def examples(self, split: str, *, progressbar: bool = False) -> str:
        if self.whole:
            return super().examples(split, progressbar=progressbar)
        text = super().examples("train", progressbar=progressbar)
        cut = len(text) * 8 // 9
        return text[:cut] if split == "train" else text[cut:]

    def build(self, vocab_size: int) -> nn.Module:
        model = super().build(vocab_size)
        for name, change in PARTS.items():
            if name in self.changes:
                model = change(model) or model
        return model

    def stream(self, tokenizer: Any, examples: str, seed: int) -> Any:
        whole = super().stream(tokenizer, examples, seed)
        if "short blocks first" not in self.changes:
            return whole
        rows = self.batch_size * self.length // SHORT
        short = TextStream(whole.ids, length=SHORT, batch_size=rows, seed=seed)
        return Lengthening(short, whole, self.steps // 2)

    def schedule(self) -> Callable[[int], float]:
        if "straight to zero" not in self.changes:
            return super().schedule()
        rise, fall = self.warmup, self.steps - self.warmup
        return lambda step: self.lr * min(step / rise, 1, (self.steps - step + 1) / fall)


# --- the ladder ---------------------------------------------------------------------------------


def faster_tables(run: Run) -> None:
    "What Muon does not train, the tables and the norms, learns at twice the rate."
    optimizer = run.trainer.optimizer

    def faster(*_: Any) -> None:
        for group in optimizer.param_groups:  # the trainer sets all of them before each step
            group["lr"] *= 1 if "momentum" in group else 2

    optimizer.register_step_pre_hook(faster)


OPENED: dict[str, Callable[[Run], None]] = {
    "faster tables": faster_tables,
}

# In this order; the ones above are beside what those below them kept.
RUNGS = (
    "convolution",
    "QK-norm",
    "short blocks first",
    "zero outputs",
    "faster tables",
    "straight to zero",
    "value embeddings",
    "windows",
)
PRESET = vars(LanguageModeling.presets["shakespeare-muon"])
BASE = Rung(**PRESET | {"steps": STEPS, "every": STEPS})


def cell(changes: Sequence[str], seed: int, **fields: Any) -> Cell:
    recipe = replace(BASE, changes=tuple(changes), **fields)
    return Cell({"changes": ", ".join(changes), "seed": seed}, recipe, seed)


def losses(rows: Sequence[Row], changes: Sequence[str]) -> list[float]:
    "In the order of seeds."
    return [row["val_loss"] for row in rows if row["changes"] == ", ".join(changes)]


def lowers(tried: Sequence[float], before: Sequence[float]) -> bool:
    "Whether the seeds say so. A quick run, with one of them, keeps nothing."
    if len(tried) < 2:
        return False
    gap = paired(tried, before)
    return gap.separated and gap.mean < 0


def kept(rows: Sequence[Row]) -> list[str]:
    "The changes that the rows so far keep."
    found: list[str] = []
    for change in RUNGS:
        if lowers(losses(rows, [*found, change]), losses(rows, found)):
            found.append(change)
    return found


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "The preset; then each change beside those that were kept."
    for seed in SEEDS:
        yield cell([], seed)
    for change in RUNGS:
        changes = [*kept(rows), change]
        for seed in SEEDS:
            yield cell(changes, seed)


def measure(run: Run) -> list[Row]:
    for change in run.recipe.changes:
        OPENED.get(change, lambda run: None)(run)
    run.train()
    row = {"val_loss": val_losses(run)[-1], "steps": run.steps}
    return [row | {"parameters": count(run.trained.model)}]


ABOUT = (
    "A training on tiny Shakespeare by characters in a row: the preset shakespeare-muon with "
    "changes. changes: those kept so far, and last the one that is tried. convolution: before each "
    f"sublayer each channel becomes a weighted sum of its last {WIDTH} positions. QK-norm: RMSNorm "
    "for each head of queries and keys. short blocks first: half of the steps have blocks of "
    f"{SHORT}, as many characters. zero outputs: what a sublayer writes begins at 0. faster "
    "tables: what Muon does not train has twice the rate. straight to zero: the rate falls along a "
    "line to 0. value embeddings: in the first and the last layer. windows: three layers of four "
    f"see {NEAR} positions. seed: of weights and blocks. val_loss: nats "
    "per character in blocks of 256. "
)
LADDER = Experiment(
    f"{ABOUT}{STEPS} steps. A change is kept where the seeds, paired, separate it. Learned from is "
    "eight ninths of the training text, validated on its last ninth; the validation text was not "
    "read. The changes, their order and their sizes were chosen after trainings with seed 0, on "
    "the same parts.",
    measure,
    cells,
    BRIEF,
)

# --- three minutes ------------------------------------------------------------------------------

LADDER_RECORD = Path(__file__).parents[1] / "results/measurements/three_minutes_ladder.json"
UPDATES = (1800, 2300)  # what three minutes held where the record was made: with changes, without


def in_three_minutes(rows: Sequence[Row]) -> Iterator[Cell]:
    "What the ladder kept, and the preset, on all of the training text."
    changes = kept(read_measurement(LADDER_RECORD).rows)
    for some, steps, seeds in zip((changes, []), UPDATES, (SEEDS, SEEDS[:3]), strict=True):
        for seed in seeds:
            one = cell(some, seed, whole=True, steps=steps, every=steps)
            yield replace(one, about={"steps": steps} | one.about)


def timed(run: Run) -> list[Row]:
    rows = measure(run)
    return [row | {"minutes": run.seconds / 60} for row in rows]


THREE_MINUTES = Experiment(
    f"{ABOUT}changes: none, or all that the record three_minutes_ladder keeps. Learned from is "
    "the training text; validated, at the end, on the validation text, which the ladder did not "
    "read. minutes: the wall clock of the steps, on the threads that device says; steps was chosen "
    "so that they are nearly equal. Other work ran beside the trainings, at a lower priority.",
    timed,
    in_three_minutes,
    BRIEF,
)
