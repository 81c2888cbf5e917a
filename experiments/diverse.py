"""Train a translator on the captions and on what trained models make of them.

`python -m experiments.diverse --source en --target de` does all of it, in pieces. A model of each
direction is trained, or taken from its run. One translates the sources of the training set, the
other its targets, and both lots stand beside the pairs that people wrote: three pairs for one, as
in data diversification (Nguyen et al., 2020). The last model learns from these, and is recorded.
`--forth` and `--back` name the seeds of the models of each direction: there can be several, or
none. `--optimizer` and `--last-steps` are for the last one alone.
A call ends at the last checkpoint that fits into its minutes; it exits with 1 while work is left,
and with 2 after an error.
"""

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.owed import Owed, TimeIsUp, until
from experiments.runner import at_least, told
from transformer_lit.course.files import InputError, file_sha256, read_json, write_json
from transformer_lit.course.records import pick_device
from transformer_lit.recipes.recipe import finish_training, open_training, preset
from transformer_lit.recipes.translation import Translation, Translator
from transformer_lit.text.tokenizer import BPETokenizer
from transformer_lit.training.options import keep_freed_memory

Pair = tuple[str, str]
AT_ONCE = 2000  # sentences between two looks at the clock
# Three pairs for one need a wider model, and no more than 2.6 million parameters.
WIDER = {"d_ff": 512}
# What an optimiser other than the preset's needs: fewer steps, as each takes longer.
NEEDS = {"adamw": {}, "muon": {"lr": 5e-3, "steps": 9000}}


@dataclass(frozen=True, kw_only=True)
class Diverse(Translation):
    "A training on more pairs than the set has. What is added lies in a file, by its hash."

    made: str  # the file
    made_sha256: str

    def examples(self, split: str, *, progressbar: bool = False) -> list[Pair]:
        "Those of the set; for training, those of the file after them. None comes twice."
        pairs = super().examples(split, progressbar=progressbar)
        if split != "train":
            return pairs
        if file_sha256(self.made) != self.made_sha256:
            raise InputError(f"{self.made} has changed since the training began; make it again")
        found = read_json(self.made)["pairs"]
        return [pair for pair in dict.fromkeys((*pairs, *map(tuple, found))) if all(pair)]

    def train_tokenizer(self, examples: Sequence[Pair]) -> BPETokenizer:
        "Of what people wrote: the same vocabulary as without the file."
        return super().train_tokenizer(super().examples("train"))


def run_name(recipe: Translation, given: argparse.Namespace, seed: int, *more: str) -> str:
    shorter = (f"steps{given.steps}",) if given.steps else ()
    return "-".join((given.preset, *more, recipe.variant, *shorter, f"seed{seed}"))


def words_of(recipe: Translation, given: argparse.Namespace, seed: int) -> list[str]:
    "The options that both commands have."
    said = {key: getattr(recipe, key) for key in ("source", "target", "form")} | {"seed": seed}
    said |= {"steps": given.steps} if given.steps else {}
    return [word for key, value in said.items() for word in (f"--{key}", str(value))]


def unusual(given: argparse.Namespace) -> tuple[list[str], list[str]]:
    "What is not as usual: as part of a name, and as options."
    name, words = [], []
    for key in ("forth", "back"):
        if (seeds := getattr(given, key)) != [0]:
            name.append(key + "_".join(map(str, seeds)))
            words += [f"--{key}", *map(str, seeds)]
    if given.last_steps:
        name.append(f"last{given.last_steps}")
        words += ["--last-steps", str(given.last_steps)]
    if given.optimizer != "adamw":
        name.append(given.optimizer)
        words += ["--optimizer", given.optimizer]
    return name, words


def teacher(
    recipe: Translation, given: argparse.Namespace, seed: int, deadline: float
) -> Translator:
    "The trained model of that seed; where there is none it is trained, and recorded, first."
    name = run_name(recipe, given, seed)
    if not (given.out / name / "model").exists():
        command = ["transformer-lit", "train", "translation", "--preset", given.preset]
        command = shlex.join([*command, *words_of(recipe, given, seed)])
        owed = Owed(name, command, recipe, seed=seed)
        owed.train(given.out, given.results, given.device, until(deadline))
    return Translator.load(given.out / name / "model", pick_device(given.device))


def translated(
    model: Translator, sentences: Sequence[str], path: Path, deadline: float
) -> list[str]:
    "The translations of all sentences; what is done is kept at `path`, to go on from."
    done = read_json(path)["found"] if path.exists() else []
    while len(done) < len(sentences):
        done += model.translate(sentences[len(done) : len(done) + AT_ONCE])
        write_json(path, {"found": done})
        if time.monotonic() > deadline and len(done) < len(sentences):
            raise TimeIsUp
    return done


def make_pairs(recipe: Translation, given: argparse.Namespace, deadline: float) -> Path:
    "The file of made pairs: each source with its translations, then each target with its own."
    of = (key + "_".join(map(str, getattr(given, key))) for key in ("forth", "back"))
    path = given.out / f"made-{run_name(recipe, given, 0, *of)}.json"
    if path.exists():
        return path
    pairs: list[Pair] = []
    back = replace(recipe, source=recipe.target, target=recipe.source)
    for one, numbers in ((recipe, given.forth), (back, given.back)):
        sentences = [pair[0] for pair in one.examples("train")]
        for seed in numbers:
            model = teacher(one, given, seed, deadline)
            kept = given.out / run_name(one, given, seed) / "found.json"
            found = translated(model, sentences, kept, deadline)
            lot = zip(sentences, found, strict=True)
            pairs += lot if one is recipe else ((made, wrote) for wrote, made in lot)
    write_json(path, {"pairs": pairs})
    return path


def train(recipe: Translation, made: Path, given: argparse.Namespace, deadline: float) -> str:
    "The last training, and its record; its name."
    added = {"made": str(made), "made_sha256": file_sha256(made)}
    changes = {"sizes": {**recipe.sizes, **WIDER}}
    if given.optimizer != recipe.optimizer:
        changes |= {"optimizer": given.optimizer, **NEEDS[given.optimizer]}
    steps = given.last_steps or given.steps
    changes |= {"steps": steps} if steps else {}
    diverse = Diverse(**{**vars(recipe), **changes}, **added)
    more, options = unusual(given)
    name = run_name(recipe, given, given.seed, "diverse", *more)
    on_step = until(deadline)
    how = {"seed": given.seed, "device": given.device, "resume": True}
    run = open_training(diverse, given.out / name, **how)
    run.train(lambda log: on_step(log.step, diverse))
    words = ["--preset", given.preset, *words_of(recipe, given, given.seed), *options]
    command = shlex.join(["python", "-m", "experiments.diverse", *words])
    finish_training(run, name=name, command=command, results=given.results)
    return name


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--form", default="tok")
    parser.add_argument("--seed", type=int, default=0, help="of the last training")
    parser.add_argument("--preset", default="multi30k-tuned", help="of all three trainings")
    parser.add_argument("--optimizer", choices=NEEDS, default="adamw", help="of the last training")
    seeds = {"type": int, "nargs": "*", "default": [0]}
    parser.add_argument("--forth", **seeds, help="seeds of the models that translate the sources")
    parser.add_argument("--back", **seeds, help="seeds of those that translate the targets")
    parser.add_argument(
        "--last-steps", type=at_least(1), help="of the last training: more pairs, more steps"
    )
    parser.add_argument("--steps", type=at_least(1), help="shorter trainings, to try the command")
    parser.add_argument("--minutes", type=at_least(0.0), default=10.0, help="of one call")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the runs")
    parser.add_argument("--results", type=Path, default=Path("results"), help="for the records")
    given = parser.parse_args(argv)
    deadline = time.monotonic() + 60 * given.minutes
    changes = {key: getattr(given, key) for key in ("source", "target", "form", "steps")}
    recipe = preset(Translation, given.preset, **changes)
    keep_freed_memory()
    try:
        made = make_pairs(recipe, given, deadline)
        print(f"recorded {train(recipe, made, given, deadline)}")
    except TimeIsUp:
        print("not done; the same call goes on", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(told(main))
