"""R-Drop on the captions: each batch read twice, and the two distributions held together."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from experiments.captions import ALPHAS, Captions
from experiments.runner import Cell, Experiment, Row, count
from transformer_lit.recipes.translation import Translation
from transformer_lit.training.run import Run, average_weights, checkpoints

SEEDS, STEPS, WEIGHT = range(3), 4_500, 5.0  # the weight is the paper's


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "Both arms see as many batches; R-Drop computes on each of them twice."
    preset = Captions(**vars(Translation.presets["multi30k-tuned"]))
    for seed in SEEDS:
        for weight in (WEIGHT, 0.0):
            recipe = replace(preset, form="tok", rdrop=weight, steps=STEPS, every=100)
            yield Cell({"rdrop": weight, "steps": STEPS, "seed": seed}, recipe, seed)


def measure(run: Run) -> list[Row]:
    "The penalty is chosen on the validation set; then the test set is translated, once."
    trained, recipe = run.trained, run.recipe
    run.train()
    files = [path / "model.safetensors" for path in checkpoints(run.out / "checkpoints")]
    trained.model.load_state_dict(average_weights(files[-recipe.average :]))
    val, test = (recipe.examples(name)[: recipe.scored] for name in ("val", recipe.test))
    bleus = {alpha: trained.score(val, alpha=alpha)["bleu"] for alpha in ALPHAS}
    best = max(bleus, key=bleus.__getitem__)
    told = {"parameters": count(trained.model), "val_loss": run.evaluate()}
    told |= {"val_bleus": list(bleus.values()), "minutes": run.seconds / 60}
    return [told | trained.score(test, alpha=best)]


RDROP = Experiment(
    "A training of the preset multi30k-tuned on the lower-cased, tokenised files, English to "
    "German, of so many steps. rdrop: the weight of R-Drop, with which each batch is read twice; "
    "0: read once. val_loss: nats per token of the validation split without smoothing, of the mean "
    "of the last 10 checkpoints. val_bleus: of the validation split with beam 5 and a length "
    f"penalty of {', '.join(map(str, ALPHAS))}; alpha: the best of these. bleu, greedy_bleu: of "
    "test_2016_flickr, which was translated once, with that alpha. minutes: of optimiser steps on "
    "one thread, beside other work.",
    measure,
    cells,
    {"dataset": "numbers", "form": "raw", "metric": "bleu", "vocab_size": 320, "steps": 4}
    | {"every": 2, "warmup": 1, "scored": 3, "test": "test"},
)
