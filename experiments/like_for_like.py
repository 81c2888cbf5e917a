"""A small translator from the captions alone: validation chooses, the test set is read last.

`python -m experiments.like_for_like --seed 0` trains, or goes on from its last checkpoint. Then it
translates the validation set with each strength of the length penalty, keeps the best one, and
reads the test set once, with that.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.captions import ALPHAS
from experiments.runner import at_least, take_mean, told
from transformer_lit.recipes.recipe import finish_training, open_training, preset
from transformer_lit.recipes.translation import Translation
from transformer_lit.training.options import keep_freed_memory
from transformer_lit.training.run import Run


def choose(run: Run, sentences: int | None = None) -> dict[str, Any]:
    "BLEU of the validation split for each α, of the averaged weights; the model keeps the best."
    recipe, trained = run.recipe, run.trained
    take_mean(run, recipe.average)
    trained.model.eval()
    pairs = recipe.examples("val")[:sentences]
    found = {alpha: trained.measure(pairs, alpha=alpha)["bleu"] for alpha in ALPHAS}
    trained.info["alpha"] = max(ALPHAS, key=found.__getitem__)
    return {
        "val_greedy_bleu": trained.measure(pairs, beam=1)["bleu"],
        "val_bleu": {str(alpha): value for alpha, value in found.items()},
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--form", default="tok")
    parser.add_argument("--preset", default="multi30k-muon")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=at_least(1), help="a shorter training, to try the command")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the runs")
    parser.add_argument("--results", type=Path, default=Path("results"), help="for the records")
    given = parser.parse_args(argv)
    options = {name: getattr(given, name) for name in ("source", "target", "form")}
    recipe = preset(Translation, given.preset, steps=given.steps, **options)
    shorter = f"-steps{given.steps}" if given.steps else ""
    name = f"{given.preset}-{recipe.variant}{shorter}-seed{given.seed}"
    words = [word for key, value in options.items() for word in (f"--{key}", value)]
    words += ["--steps", str(given.steps)] if given.steps else []
    words += ["--preset", given.preset, "--seed", str(given.seed)]
    keep_freed_memory()
    how = {"seed": given.seed, "device": given.device, "resume": True}
    run = open_training(recipe, given.out / name, **how)
    run.train()
    chosen = choose(run, 3 if given.steps else None)
    command = shlex.join(["python", "-m", "experiments.like_for_like", *words])
    finish_training(run, name=name, command=command, results=given.results, extra=chosen)
    return 0


if __name__ == "__main__":
    sys.exit(told(main))
