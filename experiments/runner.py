"""What every experiment shares: cells over recipes, rows that are kept, one record."""

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from transformer_lit.course.files import InputError, read_json, write_json
from transformer_lit.recipes.language_model import LanguageModeling
from transformer_lit.recipes.recipe import Recipe, open_training
from transformer_lit.training.run import Run, average_weights, checkpoints, read_log

Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    "One training: what its rows say of it, and what decides it."

    about: Row
    recipe: Recipe
    seed: int


@dataclass(frozen=True)
class Experiment:
    "A grid of trainings, and what is measured of each. Without cells there is one look."

    about: str  # what a row is, and the units of its values
    measure: Callable[..., list[Row]]  # of an opened training, which it trains
    cells: Callable[[Sequence[Row]], Iterable[Cell]] | None = None  # knows the rows so far
    quick: Row = field(default_factory=dict)  # what `--quick` changes in recipe or look

    def run(self, *, quick: bool, device: str, kept: Path) -> list[Row]:
        "All rows. Those of each finished cell are kept in a file, and not measured again."
        changes = self.quick if quick else {}
        if self.cells is None:
            return self.measure(**changes)
        rows, start = [], time.perf_counter()
        done = read_json(kept) if kept.exists() and not quick else {}
        for cell in covering(self.cells(rows)) if quick else self.cells(rows):
            name = json.dumps(cell.about, ensure_ascii=False)
            if name not in done:
                done[name] = self._rows(cell, replace(cell.recipe, **changes), device)
                if not quick:
                    write_json(kept, done)
            rows += done[name]
            print(f"{time.perf_counter() - start:6.0f} s  {name}", flush=True)
        return rows

    def _rows(self, cell: Cell, recipe: Recipe, device: str) -> list[Row]:
        with tempfile.TemporaryDirectory() as folder:
            own = recipe.build if isinstance(recipe, Variant) else None  # no config describes it
            how = {"seed": cell.seed, "device": device, "model": own}
            run = open_training(recipe, Path(folder, "run"), **how)
            return [cell.about | row for row in self.measure(run)]


def covering(cells: Iterable[Cell]) -> Iterable[Cell]:
    "Few of the cells, which together show every value of every field, for one seed."
    seen: set[tuple[str, Any]] = set()
    for cell in cells:
        if not cell.about.get("seed") and not seen.issuperset(cell.about.items()):
            seen.update(cell.about.items())
            yield cell


def told(main: Callable[[], int]) -> int:
    "The exit status of a command: 2, with one line, for what calling it again cannot mend."
    try:
        return main()
    except (InputError, OSError, re.error) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def at_least(least: float) -> Callable[[str], Any]:
    "The type of an option that is a number of the same kind, and no less."

    def number(text: str) -> Any:
        value = type(least)(text)
        if not value >= least:
            raise ValueError
        return value

    return number


# --- what some of them need ---------------------------------------------------------------------


@torch.no_grad()
def wide_rows(model: nn.Module) -> None:
    "Rows of variance 1 and no factor √C: the first vectors are the same, later steps are shorter."
    model.tok_emb.weight.mul_(model.tok_emb.scale)
    model.tok_emb.scale = 1.0


# What no config names, done to a fresh model. An experiment adds its own.
CHANGES: dict[str, Callable[[nn.Module], None]] = {"none": lambda model: None, "wide": wide_rows}
# Of a quick run: a text that is always at hand, and little of it to measure on.
BRIEF = {"dataset": "book", "steps": 4, "every": 2, "warmup": 1, "val_batches": 1}
# The same for pairs, with which everything goes that names a data set.
NUMBERS = {"dataset": "numbers", "form": "raw", "test": "test", "metric": "bleu"}
BRIEF_PAIRS = NUMBERS | {"vocab_size": 320, "steps": 4, "every": 2, "warmup": 1}


@dataclass(frozen=True, kw_only=True)
class Variant(LanguageModeling):
    "A language model that is changed after it was built, and validated on less."

    change: str = "none"  # see CHANGES
    val_batches: int | None = None  # from the beginning of the held-out text; all unless given

    def build(self, vocab_size: int) -> nn.Module:
        "The model, with its change."
        model = super().build(vocab_size)
        CHANGES[self.change](model)
        return model

    def batches(self, tokenizer: Any, examples: str) -> list[Any]:
        "The first blocks of the text."
        return super().batches(tokenizer, examples)[: self.val_batches]


def held_out(run: Run) -> Any:
    "The validation batches of a training."
    recipe = run.recipe
    return recipe.batches(run.trained.tokenizer, recipe.examples("val"))


def take_mean(run: Run, number: int) -> None:
    "The model's weights become the mean of the last checkpoints."
    files = [path / "model.safetensors" for path in checkpoints(run.out / "checkpoints")]
    run.trained.model.load_state_dict(average_weights(files[-number:]))


def val_losses(run: Run) -> list[float]:
    "What was logged on the way."
    log = read_log(run.out / "log.jsonl")
    return [row["val_loss"] for row in log if "val_loss" in row]


def count(model: nn.Module) -> int:
    "How many parameters a model has, a shared one counted once."
    return sum(p.numel() for p in model.parameters())
