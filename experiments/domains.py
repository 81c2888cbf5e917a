"Two translators that come with the package, each on its own test set and on that of the other."

from experiments.runner import Experiment, Row
from transformer_lit import load
from transformer_lit.course.data import load_pairs

MODELS = ("multi30k-en-de", "everyday-en-de")
TESTS = {"multi30k": "test_2016_flickr", "everyday": "test"}


def crossed(sentences: int | None = None) -> list[Row]:
    "A row for each model and test set."
    return [
        {"model": name, "dataset": dataset, "split": split}
        | load(name).score(load_pairs(dataset, "en", "de", split)[:sentences])
        for name in MODELS
        for dataset, split in TESTS.items()
    ]


DOMAINS = Experiment(
    "One shipped translator from English to German on one test set of raw text in a row. bleu: "
    "lower-cased, beam 5, with its signature; greedy_bleu: beam 1. One training of each model, and "
    "weights in half precision, as they are shipped.",
    crossed,
    quick={"sentences": 3},
)
