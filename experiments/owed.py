"""Train what results/ lacks, on any device, in pieces: `python -m experiments.owed --minutes 10`.

A call ends at the last checkpoint that fits into its minutes, and the same call goes on from there.
It exits with 1 while something is left and with 2 after an error, so the line
`while python -m experiments.owed; [ $? = 1 ]; do :; done` ends when all is recorded, or cannot be.
Several calls at the same time share the trainings: one small model keeps no GPU busy.
On a machine that forgets, give `--out` and `--results` folders that it keeps.
"""

import argparse
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from experiments.more_reading import ARMS, readings
from experiments.runner import at_least, told
from transformer_lit.course.files import require_writable
from transformer_lit.recipes.bakeoff import BAKEOFFS, bakeoff_presets, places, run_name
from transformer_lit.recipes.recipe import Recipe, finish_training, open_training, preset
from transformer_lit.recipes.zoo import RECIPES
from transformer_lit.training.options import keep_freed_memory

SEEDS = range(3)
DIRECTIONS = (("en", "de"), ("de", "en"))
TRAININGS = (  # recipe, options of the command
    *(
        ("translation", {"preset": "multi30k-tuned", "source": a, "target": b, "form": "tok"})
        for a, b in DIRECTIONS
    ),
    ("translation", {"preset": "multi30k-cpu"}),
    ("translation", {"preset": "multi30k-tiny", "form": "tok"}),  # the paper's post-norm wiring
    ("translation", {"preset": "multi30k-large", "form": "tok"}),  # what size alone does
    ("translation", {"preset": "tatoeba-cpu"}),  # Chinese to English
    ("language-model", {"preset": "shakespeare-cpu"}),
    ("language-model", {"preset": "shakespeare", "dtype": "bfloat16", "steps": 1000}),
    ("language-model", {"preset": "shakespeare", "dtype": "bfloat16"}),
    ("language-model", {"preset": "novels", "dtype": "bfloat16"}),
)


class TimeIsUp(Exception):
    "Raised at a checkpoint, so nothing is lost."


@dataclass(frozen=True)
class Owed:
    "A training that has, or lacks, a record `results/<folder>/<name>.json`."

    name: str
    command: str
    recipe: Recipe
    seed: int
    dtype: torch.dtype = torch.float32
    folder: str = ""
    about: dict[str, Any] = field(default_factory=dict)  # what a record of a bake-off says more

    def train(self, out: Path, results: Path, device: str, on_step: Any) -> None:
        "Begin or go on; write the record when the last step is done."
        how = {"seed": self.seed, "device": device, "dtype": self.dtype, "resume": True}
        run = open_training(self.recipe, out / self.name, **how)
        run.train(lambda log: on_step(log.step, self.recipe))
        extra = {**self.about, **places(run)} if self.about else None
        where = {"name": self.name, "command": self.command, "results": results / self.folder}
        finish_training(run, **where, extra=extra)

    def missing(self, results: Path) -> bool:
        return not (results / self.folder / f"{self.name}.json").exists()

    def waits(self, out: Path) -> bool:
        return False


def trainings(steps: int | None) -> Iterator[Owed]:
    "Seed by seed, so that early pieces already show something of everything."
    for seed, (kind, options) in product(SEEDS, TRAININGS):
        given = {**options, "seed": seed} | ({"steps": steps} if steps else {})
        changes = {key: given[key] for key in given if key not in ("preset", "seed", "dtype")}
        recipe = preset(RECIPES[kind], options["preset"], **changes)
        shorter = given.get("steps") and f"steps{given['steps']}"
        said = (options["preset"], recipe.variant, shorter, given.get("dtype"), f"seed{seed}")
        words = [word for key, value in given.items() for word in (f"--{key}", str(value))]
        yield Owed(
            "-".join(filter(None, said)),
            shlex.join(["transformer-lit", "train", kind, *words]),
            recipe,
            seed,
            getattr(torch, options.get("dtype", "float32")),
        )


def bakeoffs(steps: int | None) -> Iterator[Owed]:
    "Every entry in the setting for a GPU."
    for seed, name in product(SEEDS, BAKEOFFS):
        for entry, recipe in bakeoff_presets(name, "large").items():
            yield Owed(
                run_name(name, "large", entry, seed),
                f"transformer-lit bakeoff {name} --setting large --seeds {len(SEEDS)}",
                replace(recipe, steps=steps, warmup=1) if steps else recipe,
                seed,
                folder="bakeoffs",
                about={"bakeoff": name, "setting": "large", "entry": entry},
            )


def until(deadline: float) -> Any:
    "To be called at each step: raises where the time to the next checkpoint would not be enough."
    last = time.monotonic()

    def on_step(step: int, recipe: Recipe) -> None:
        nonlocal last
        if step % recipe.every == 0:
            now = time.monotonic()
            last, took = now, now - last
            if step < recipe.steps and now + took > deadline:
                raise TimeIsUp

    return on_step


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=at_least(0.0), default=10.0, help="of one call")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", default="", help="names that match this regular expression")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the runs")
    parser.add_argument("--results", type=Path, default=Path("results"), help="for the records")
    parser.add_argument("--steps", type=at_least(1), help="shorter trainings, to try the command")
    parser.add_argument("--list", action="store_true", help="say what is owed, and train nothing")
    given = parser.parse_args(argv)
    for folder in (given.out, given.results):
        require_writable(folder)
    deadline = time.monotonic() + 60 * given.minutes
    reading = [one for arm in ARMS for one in readings(arm, given.steps)]
    known = (*trainings(given.steps), *reading, *bakeoffs(given.steps))
    chosen = (one for one in known if re.search(given.only, one.name))
    found = [one for one in chosen if one.missing(given.results)]
    if given.list:
        print(*(owed.name for owed in found), sep="\n")
    else:
        keep_freed_memory()
        for owed in list(found):
            if owed.waits(given.out):
                continue
            try:
                with FileLock(given.out / f"{owed.name}.lock", timeout=0):
                    if owed.missing(given.results):
                        owed.train(given.out, given.results, given.device, until(deadline))
            except Timeout:
                continue  # another call is at it
            except TimeIsUp:
                break
            if not owed.missing(given.results):
                found.remove(owed)
                print(f"recorded {owed.name}", flush=True)
            if time.monotonic() > deadline:
                break
    print(f"{len(found)} trainings have no record", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(told(main))
