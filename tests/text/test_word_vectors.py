"""A table of word vectors: neighbours and analogies in order of their cosines.

The chapter's cells check how such vectors are trained and scored, n-grams and their hash.
"""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from transformer_lit.text.word_vectors import WordVectors, character_ngrams

C, V = 7, 13


def test_a_word_may_be_too_short_for_an_ngram():
    assert character_ngrams("a") == ["<a>"] and character_ngrams("a", 4, 6) == []


@pytest.fixture
def vectors():
    return WordVectors([f"w{i}" for i in range(V)], torch.randn(V, C))


def test_nearest_is_in_order_of_cosines(vectors):
    cosines = F.cosine_similarity(vectors.matrix[4][None], vectors.matrix, dim=1)
    order = [i for i in cosines.argsort(descending=True).tolist() if i != 4]
    found = vectors.nearest("w4", 5)
    assert [word for word, _ in found] == [f"w{i}" for i in order[:5]]
    assert_close(torch.tensor([c for _, c in found]), cosines[order[:5]])
    by_vector = vectors.nearest(3 * vectors.vector("w4"), 2, without=["w4"])
    assert [word for word, _ in by_vector] == [f"w{i}" for i in order[:2]]
    assert vectors.nearest(vectors.vector("w4"), 1)[0][0] == "w4"
    assert len(vectors.nearest("w4", 99)) == V - 1
    assert vectors.similarity("w4", "w7") == pytest.approx(cosines[7].item())
    assert "w4" in vectors and "bike" not in vectors and len(vectors) == V


def test_analogy_is_nearest_to_the_sum_without_the_question(vectors):
    a, b, c = F.normalize(vectors.matrix, dim=1)[[2, 3, 5]]
    cosines = F.cosine_similarity((b - a + c)[None], vectors.matrix, dim=1)
    order = [i for i in cosines.argsort(descending=True).tolist() if i not in (2, 3, 5)]
    assert [w for w, _ in vectors.analogy("w2", "w3", "w5", 4)] == [f"w{i}" for i in order[:4]]


def test_words_and_rows_must_fit(vectors):
    for words, rows in ((["a", "b"], 3), (["a", "a"], 2)):
        with pytest.raises(ValueError, match=f"{len({*words})} different words for {rows} rows"):
            WordVectors(words, torch.randn(rows, C))
    with pytest.raises(KeyError, match="bike"):
        vectors.analogy("w1", "w2", "bike")
    assert not WordVectors(["a", "b"], torch.randn(2, C, requires_grad=True)).matrix.requires_grad
