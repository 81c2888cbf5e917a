"""Small translators that read their captions far more often, on a GPU.

`python -m experiments.more_reading` trains and validates what has no scores yet. When an arm's last
seed has them, the length penalty that is best for the mean of its validation scores is chosen, and
the test set is read once by each of its models. `--arm` and `--seed` take one training, so that
several processes can share the work: call them again when all have validated.
"""

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from experiments.runner import at_least, take_mean, told
from transformer_lit.course.files import read_json, write_json
from transformer_lit.recipes.recipe import finish_training, open_training, preset
from transformer_lit.recipes.translation import Translation
from transformer_lit.training.options import keep_freed_memory
from transformer_lit.training.run import Run

ALPHAS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)  # strengths of the length penalty
OnStep = Callable[[int, Translation], Any]
OURS = {"d_ff": 512, "lr": 4e-3, "steps": 7000, "every": 350}
# R-Drop reads each batch twice: as many tokens pass through the model as without it
RDROP = OURS | {"dropout": 0.2, "max_tokens": 4096, "rdrop": 5.0}
PUBLISHED = {"warmup": 2000, "max_tokens": 8192, "steps": 8000, "every": 400}
ARMS: dict[str, tuple[int, str, dict[str, Any]]] = {  # seeds, preset, what is not as it says
    "plain": (3, "multi30k-tuned", OURS | {"dropout": 0.3, "max_tokens": 8192}),
    "rdrop": (3, "multi30k-tuned", RDROP),
    "rdrop-longer": (3, "multi30k-tuned", RDROP | {"dropout": 0.3, "max_tokens": 8192}),
    "rdrop-back": (3, "multi30k-tuned", RDROP | {"source": "de", "target": "en"}),
    "rdrop-raw": (3, "multi30k-tuned", RDROP | {"form": "raw"}),
    # the published model with its own warm-up and tokens, and with its own rate or a lower one
    "published": (1, "multi30k-tiny", PUBLISHED | {"lr": 5e-3}),
    "published-whole": (
        3,
        "multi30k-tiny",
        PUBLISHED | {"lr": 5e-3, "steps": 10_000, "every": 500},
    ),
    "published-lower": (1, "multi30k-tiny", PUBLISHED | {"lr": 3e-3}),
}


@dataclass(frozen=True)
class Reading:
    "One training: an arm with a seed. `steps` cuts it short, to try the command."

    arm: str
    seed: int
    steps: int | None = None

    @property
    def name(self) -> str:
        shorter = f"-steps{self.steps}" if self.steps else ""
        return f"multi30k-more-{self.arm}-{self.recipe.variant}{shorter}-seed{self.seed}"

    @property
    def recipe(self) -> Translation:
        _, name, changes = ARMS[self.arm]
        recipe = preset(Translation, name, **{"form": "tok", "average": 5, **changes})
        return replace(recipe, steps=self.steps, warmup=1) if self.steps else recipe

    def open(self, out: Path, device: str) -> Run:
        how = {"seed": self.seed, "device": device, "resume": True}
        return open_training(self.recipe, out / self.name, **how)

    def scores(self, out: Path) -> dict[str, Any] | None:
        "What the validation set says of each length penalty, if that is known."
        path = out / self.name / "val.json"
        return read_json(path) if path.exists() else None

    def missing(self, results: Path) -> bool:
        return not (results / f"{self.name}.json").exists()

    def waits(self, out: Path) -> bool:
        "Whether it has validated and another seed has not."
        whole = [one.scores(out) for one in readings(self.arm, self.steps)]
        return bool(self.scores(out)) and not all(whole)

    def train(
        self, out: Path, results: Path, device: str, on_step: OnStep = lambda step, recipe: None
    ) -> None:
        "Train, or go on, and validate; after the other seeds, read the test set, once."
        run = self.open(out, device)
        if not self.scores(out):
            run.train(lambda log: on_step(log.step, self.recipe))
            write_json(out / self.name / "val.json", choose(run, 3 if self.steps else None))
        whole = [one.scores(out) for one in readings(self.arm, self.steps)]
        if not all(whole):
            return
        run.trained.info["alpha"] = best_alpha(whole)
        words = ["--arm", self.arm, "--seed", str(self.seed)]
        words += ["--steps", str(self.steps)] if self.steps else []
        command = shlex.join(["python", "-m", "experiments.more_reading", *words])
        extra = self.scores(out) | {"matmul_precision": torch.get_float32_matmul_precision()}
        finish_training(run, name=self.name, command=command, results=results, extra=extra)


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


def readings(arm: str, steps: int | None = None) -> list[Reading]:
    "The trainings of an arm."
    return [Reading(arm, seed, steps) for seed in range(ARMS[arm][0])]


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
    arms = [given.arm] if given.arm else ARMS
    whole = [one for arm in arms for one in readings(arm, given.steps)]
    asked = [one for one in whole if given.seed in (None, one.seed)]
    for one in asked * 2:  # the first seeds read the test set when the last one has validated
        if one.missing(given.results) and not one.waits(given.out):
            one.train(given.out, given.results, given.device)
    return 0


if __name__ == "__main__":
    sys.exit(told(main))
