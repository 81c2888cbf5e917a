"""The experiment on word vectors trains the chapter's own cells, and scores what comes out."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from experiments import word_vectors as experiment
from transformer_lit.text.word_vectors import WordVectors

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def test_a_quick_run_trains_all_and_stores_nothing(tmp_path, capsys):
    rows = experiment.main(["--quick", "--out", str(tmp_path)])
    methods = [row["method"] for row in rows]
    assert set(experiment.METHODS) < set(methods) and capsys.readouterr().out.count("\n") == len(
        rows
    )
    assert all(-1 <= row["wordsim"] <= 1 and row["wordsim_pairs"] == 3 for row in rows)
    unseen = {row["method"]: row.get("wordsim_unseen_pairs") for row in rows}
    assert unseen["fasttext"] == 2 and unseen["cbow"] is None  # twofold and sixtieth
    assert not list(tmp_path.iterdir())


def test_chance_knows_order_from_none():
    x = torch.randn(61)
    limit, p = experiment.by_chance(x, x.exp(), 400)
    assert 0.2 < limit < 0.5 and p == pytest.approx(1 / 401)  # 99 %: about 2.6 / √60
    _, p = experiment.by_chance(torch.arange(61.0), torch.tensor([1.0, 0.0] * 30 + [1.0]), 400)
    assert p > 0.1


def test_nearest_to_third_uses_the_third_word_alone():
    matrix = torch.tensor([[1.0, 0], [0, 1], [-1, 0.1], [-1, 0.2], [0.5, 0.5]])
    vectors = WordVectors(["a", "b", "c", "d", "e"], matrix)
    questions = [("a", "b", "c", "d"), ("a", "b", "c", "e"), ("a", "b", "?", "e")]
    assert experiment.nearest_to_third(vectors, questions) == 0.5


def test_split_means():
    unit = F.normalize(torch.randn(7, 3), dim=1)
    cosines, half = unit @ unit.T, (0, 2, 3)
    within, between = experiment.split(cosines, half)
    pairs = list(itertools.combinations(range(7), 2))
    same = [cosines[i, j] for i, j in pairs if (i in half) == (j in half)]
    other = [cosines[i, j] for i, j in pairs if (i in half) != (j in half)]
    assert within == pytest.approx(float(sum(same) / len(same)), abs=1e-6)
    assert between == pytest.approx(float(sum(other) / len(other)), abs=1e-6)


def test_every_sentence_holds_its_word_and_the_senses_are_balanced():
    for word, sides in experiment.LOOK_AT["senses"].items():
        assert [len(side) for side in sides] == [5, 5]
        assert all(word in experiment.wv.split_words(s) for side in sides for s in side)
