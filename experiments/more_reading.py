"""Small translators that read their captions far more often, on a GPU.

`python -m experiments.more_reading` trains and validates what has no scores yet. When an arm's last
seed has them, the length penalty that is best for the mean of its validation scores is chosen, and
the test set is read once by each of its models. `--arm` and `--seed` take one training, so that
several processes can share the work: call them again when all have validated.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from experiments.captions import ALPHAS
from experiments.like_for_like import choose
from experiments.runner import at_least, told
from transformer_lit.course.files import read_json, write_json
from transformer_lit.recipes.recipe import finish_training, open_training, preset
from transformer_lit.recipes.translation import Translation
from transformer_lit.training.options import keep_freed_memory
from transformer_lit.training.run import Run

OURS = {"d_ff": 512, "lr": 4e-3, "steps": 7000, "every": 350}
PUBLISHED = {"warmup": 2000, "max_tokens": 8192, "steps": 8000, "every": 400}
ARMS: dict[str, tuple[int, str, dict[str, Any]]] = {  # seeds, preset, what is not as it says
    "plain": (3, "multi30k-tuned", OURS | {"dropout": 0.3, "max_tokens": 8192}),
    # reads each batch twice, so as many tokens pass through the model
    "rdrop": (3, "multi30k-tuned", OURS | {"dropout": 0.2, "max_tokens": 4096, "rdrop": 5.0}),
    # the published model with its own warm-up and tokens, and with its own rate or a lower one
    "published": (1, "multi30k-tiny", PUBLISHED | {"lr": 5e-3}),
    "published-lower": (1, "multi30k-tiny", PUBLISHED | {"lr": 3e-3}),
}


class Reading:
    "One training: an arm with a seed."

    def __init__(self, arm: str, seed: int, given: argparse.Namespace):
        _, name, changes = ARMS[arm]
        recipe = preset(Translation, name, form="tok", average=5, **changes)
        self.recipe = replace(recipe, steps=given.steps, warmup=1) if given.steps else recipe
        self.arm, self.seed, self.given = arm, seed, given
        shorter = f"-steps{given.steps}" if given.steps else ""
        self.name = f"multi30k-more-{arm}-{recipe.variant}{shorter}-seed{seed}"
        self.out = given.out / self.name
        self.scores, self.record = self.out / "val.json", given.results / f"{self.name}.json"

    def open(self) -> Run:
        how = {"seed": self.seed, "device": self.given.device, "resume": True}
        return open_training(self.recipe, self.out, **how)

    def validate(self) -> None:
        "Train, or go on, and keep what the validation set says of each length penalty."
        run = self.open()
        run.train()
        write_json(self.scores, choose(run, 3 if self.given.steps else None))

    def read_test(self, alpha: float) -> None:
        "The one look at the test set, with a penalty that others have settled."
        run, words = self.open(), ["--arm", self.arm, "--seed", str(self.seed)]
        run.trained.info["alpha"] = alpha
        command = shlex.join(["python", "-m", "experiments.more_reading", *words])
        precision = {"matmul_precision": torch.get_float32_matmul_precision()}
        extra = read_json(self.scores) | precision
        finish_training(
            run, name=self.name, command=command, results=self.given.results, extra=extra
        )


def best_alpha(scores: Sequence[dict[str, Any]]) -> float:
    "The strength of the penalty with the highest mean of the validation scores."
    return max(ALPHAS, key=lambda alpha: mean(one["val_bleu"][str(alpha)] for one in scores))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arm", choices=ARMS, help="one of them; all unless given")
    parser.add_argument("--seed", type=int, help="one of them; all unless given")
    parser.add_argument("--steps", type=at_least(1), help="shorter trainings, to try the command")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the runs")
    parser.add_argument("--results", type=Path, default=Path("results"), help="for the records")
    given = parser.parse_args(argv)
    keep_freed_memory()
    for arm in [given.arm] if given.arm else ARMS:
        whole = [Reading(arm, seed, given) for seed in range(ARMS[arm][0])]
        asked = [one for one in whole if given.seed in (None, one.seed)]
        for one in asked:
            if not one.scores.exists():
                one.validate()
        if all(one.scores.exists() for one in whole):
            alpha = best_alpha([read_json(one.scores) for one in whole])
            for one in asked:
                if not one.record.exists():
                    one.read_test(alpha)
    return 0


if __name__ == "__main__":
    sys.exit(told(main))
