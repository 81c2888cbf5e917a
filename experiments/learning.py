"""What a small language model has learned at each point of its training, and then writes."""

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.runner import BRIEF, Cell, Experiment, Row, Variant
from transformer_lit.recipes.language_model import LanguageModeling
from transformer_lit.recipes.recipe import preset
from transformer_lit.training.run import Run, learning_curve, read_log

PROMPT = "ROMEO:\n"
WRITES_AT = (1, 25, 50, 100, 200, 400, 800)  # and at the end


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "The preset as it is, but measured more often."
    recipe = Variant(**{**vars(preset(LanguageModeling, "shakespeare-cpu")), "every": 100})
    yield Cell({"preset": "shakespeare-cpu", "seed": 0}, recipe, 0)


def measure(run: Run) -> list[Row]:
    author, texts = run.trained, {}

    def write(log: Any) -> None:
        if log.step in (*WRITES_AT, run.steps):
            author.model.eval()
            texts[log.step] = PROMPT + "".join(author.stream(PROMPT, max_new_tokens=120, seed=1))
            author.model.train()

    run.train(write)
    curve = learning_curve(read_log(run.out / "log.jsonl"))
    rows = [{**point, "text": [texts.pop(point["step"], "")]} for point in curve]
    early = [{"step": s, "train_loss": None, "val_loss": None, "text": [texts[s]]} for s in texts]
    return sorted([*rows, *early], key=lambda row: row["step"])


LEARNING = Experiment(
    "A point of a training in a row: the preset shakespeare-cpu, measured at every 100th step. "
    "train_loss: nats per token, mean since the last point; val_loss: over all of the "
    "validation text; null between the points. text: what the model wrote at that step, 120 tokens "
    "at temperature 0.8 with seed 1, after a prompt; empty where it was not asked. One seed.",
    measure,
    cells,
    BRIEF,
)
