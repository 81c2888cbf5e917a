"""What rewards add to examples: a model that thinks in half of its answers, in few, or in none."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.runner import Cell, Experiment, Row
from transformer_lit.assistant.instructions import is_right
from transformer_lit.recipes.instruct import Instructing, Reasoner, Reasoning, sampled_answers
from transformer_lit.recipes.recipe import open_training, preset
from transformer_lit.training.run import Run

SEEDS = range(3)
THINK = (0.5, 0.02, 0.0)  # shares of the examples that write the running totals
LONGER = 9  # digits of a question that no training has


def looked_at(model: Reasoner, stage: str, digits: int, number: int) -> Row:
    "How a model answers questions that were held out."
    recipe = preset(Reasoning, "running-sum", like=model, digits=digits)
    asked = [text for text in recipe.examples("val")[:number] for _ in range(recipe.group_size)]
    how = {"model": model.model, "tokenizer": model.tokenizer, "max_new_tokens": digits + 4}
    said = sampled_answers(questions=asked, seed=0, **how)
    best = sampled_answers(questions=asked[:: recipe.group_size], temperature=0, **how)
    right = [is_right(*pair) for pair in zip(asked, said, strict=True)]
    greedy = [is_right(*pair) for pair in zip(asked[:: recipe.group_size], best, strict=True)]
    thinks = [not text.startswith(">") for text in said]
    groups = [right[i : i + recipe.group_size] for i in range(0, len(right), recipe.group_size)]

    def share(rows: Sequence[bool]) -> float | None:
        return sum(rows) / len(rows) if rows else None

    return {
        "stage": stage,
        "digits": digits,
        "pass@1": share(right),
        "pass@8": share([*map(any, groups)]),
        "greedy": share(greedy),
        "thinks": share(thinks),
        "right if it thinks": share([r for r, t in zip(right, thinks, strict=True) if t]),
        "right at once": share([r for r, t in zip(right, thinks, strict=True) if not t]),
        "tokens": sum(map(len, said)) / len(said),
        "groups with a signal": share([any(group) and not all(group) for group in groups]),
    }


def measure(run: Run) -> list[Row]:
    "Train on examples, then on rewards; look before and after, at eight and at nine digits."
    number = 128 if run.recipe.steps > 9 else 3
    run.train()
    model = Reasoner(run.trained.model, run.trained.tokenizer, run.trained.info)
    rows = [looked_at(model, "examples", digits, number) for digits in (8, LONGER)]
    steps = (40 if run.recipe.think == 0.5 else 200) if number > 3 else 2
    recipe = preset(Reasoning, "running-sum", like=model, steps=steps, every=steps)
    if number == 3:
        recipe = replace(recipe, batch_size=2)
    out = Path(run.out).parent / "rewards"
    rewarded = open_training(recipe, out, seed=run.seed, device="cpu", start=model)
    rewarded.train()
    rows += [looked_at(rewarded.trained, "rewards", digits, number) for digits in (8, LONGER)]
    seconds = {"examples": run.seconds, "rewards": rewarded.seconds}
    return [row | {"seconds": seconds[row["stage"]]} for row in rows]


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    for think in THINK:
        for seed in SEEDS:
            recipe = preset(Instructing, "running-sum", think=think)
            yield Cell({"think": think, "seed": seed}, recipe, seed)


ASSISTANT = Experiment(
    "A decoder of 84,032 weights that answers for the last digit of a sum of eight digits. think: "
    "the share of its examples that write the running totals first. stage: after 500 steps on 64 "
    "examples each, and then after 40 steps (200 where think is not 0.5) of GRPO, 32 questions "
    "with 8 answers each. digits: of the 128 questions of the test; no training has 9. pass@1: "
    "share of right answers of 8 to each question, at temperature 1; pass@8: questions with a "
    "right answer among them; greedy: right answers at temperature 0. thinks: answers that begin "
    "with a total. right if it thinks, right at once: of those with and without totals; none: "
    "there are no such answers. tokens: of an answer. groups with a signal: questions whose eight "
    "answers are neither all right nor all wrong. seconds: of this stage's steps, on one thread of "
    "a busy machine.",
    measure,
    cells,
    quick={"steps": 2, "every": 2, "warmup": 1},
)
