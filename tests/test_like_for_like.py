"The validation set chooses the length penalty, and the test set is read once, after that."

from dataclasses import replace

import pytest

from experiments import like_for_like, more_reading
from experiments.captions import ALPHAS
from transformer_lit.course.data import number_pairs
from transformer_lit.course.records import read_result
from transformer_lit.recipes.translation import Translation, Translator

SIZES = {"d_model": 8, "d_ff": 12, "n_heads": 2, "n_layers": 1}
WROTE = number_pairs("train")[:3]
BEST = ALPHAS[3]  # for the validation set; any other is better for the test set
SAMPLE = ("test", None)  # a few sentences to read, with the model's own settings


@pytest.fixture
def read(monkeypatch, no_shape_checks):
    "Which sentences were translated, by which beam and α, in this order."
    numbers = Translation.presets["numbers"]
    sizes = {**numbers.sizes, **SIZES}
    tiny = replace(numbers, sizes=sizes, vocab_size=290, every=2, warmup=1, metric="bleu")
    monkeypatch.setitem(Translation.presets, "tiny", tiny)
    held = {  # BLEU counts four words in a row, and numbers are one
        split: [(f"{source} {split}", " ".join([target] * 5)) for source, target in WROTE]
        for split in ("train", "val", "test")
    }
    monkeypatch.setattr(Translation, "examples", lambda recipe, split, **how: held[split])
    for command in (like_for_like, more_reading):
        monkeypatch.setattr(command, "keep_freed_memory", lambda: None)
    found = []

    def translate(model, sentences, *, beam=5, alpha=None, **how):
        (split,) = (name for name, pairs in held.items() if pairs[0][0] == sentences[0])
        found.append((split, beam, alpha if beam > 1 else None))
        right = (alpha == BEST) == (split == "val")
        return [target if right else "nothing" for _, target in held[split]]

    monkeypatch.setattr(Translator, "translate", translate)
    return found


def test_the_validation_set_chooses_and_the_test_set_is_read_once_at_the_end(tmp_path, read):
    where = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    words = ["--preset", "tiny", "--form", "raw", "--steps", "4", "--seed", "3", *where]
    assert like_for_like.main(words) == 0
    beams = [(split, alpha) for split, beam, alpha in read if beam > 1]
    assert beams == [*(("val", alpha) for alpha in ALPHAS), ("test", BEST), SAMPLE]
    assert [split for split, beam, _ in read if beam == 1].count("test") == 1
    record = read_result(tmp_path / "results" / "tiny-en-de-raw-steps4-seed3.json")
    measured = record.metrics
    assert measured["alpha"] == BEST and measured["bleu"] < 1  # and not the best of the test set
    assert max(measured["val_bleu"], key=measured["val_bleu"].get) == str(BEST)
    assert record.command.startswith("python -m experiments.like_for_like --source en --target de")


@pytest.fixture
def arms(monkeypatch, read):
    "One arm of two seeds, and nothing else to train."
    changes = {"steps": 4, "every": 2}
    monkeypatch.setattr(more_reading, "ARMS", {"tiny": (2, "tiny", changes)})
    return read


def records(folder):
    return [read_result(path) for path in sorted((folder / "results").glob("*.json"))]


def test_the_test_set_waits_until_all_seeds_have_validated(tmp_path, arms):
    where = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    for seed in ("1", "0"):
        assert more_reading.main(["--arm", "tiny", "--seed", seed, *where]) == 0
        split = "val" if seed == "1" else "test"
        assert arms[-1][0] == split  # the last seed goes on to the test set
    assert more_reading.main(where) == 0  # the others follow, and nothing is trained again
    both = records(tmp_path)
    assert [one.seed for one in both] == [0, 1]
    for one in both:
        assert one.metrics["alpha"] == BEST and one.metrics["averaged"] == 2
        assert one.command == f"python -m experiments.more_reading --arm tiny --seed {one.seed}"
    searched = [split for split, beam, alpha in arms if (beam, alpha) == (5, BEST)]
    assert searched.count("test") == searched.count("val") == len(both)
    before = len(arms)
    assert more_reading.main(where) == 0 and len(arms) == before


def test_an_arm_takes_the_penalty_that_is_best_for_its_mean():
    def scores(**best):
        return {"val_bleu": {str(alpha): best.get(f"a{alpha:g}", 0) for alpha in ALPHAS}}

    assert more_reading.best_alpha([scores(a1=3, a2=2), scores(a2=2, a4=3)]) == 2
