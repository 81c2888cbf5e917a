"""A table of word vectors: neighbours, analogies, and the pieces of a word that nobody has read.

How such vectors are trained and scored is code of the chapter, and tested there.
"""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from transformer_lit.text.word_vectors import WordVectors, character_ngrams, hash_bucket

C, V = 7, 13


def test_ngrams_have_marks_at_both_ends():
    assert character_ngrams("ride", 3, 4) == ["<ri", "rid", "ide", "de>", "<rid", "ride", "ide>"]
    assert character_ngrams("a") == ["<a>"] and character_ngrams("a", 4, 6) == []
    assert len(character_ngrams("riding", 3, 6)) == 6 + 5 + 4 + 3


@pytest.mark.parametrize(
    ("text", "value"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)]
)
def test_hash_has_its_published_values(text, value):
    assert hash_bucket(text, 2**32) == value and hash_bucket(text, 101) == value % 101


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
    a, b, c = vectors.unit[[2, 3, 5]]
    cosines = vectors.unit @ F.normalize(b - a + c, dim=0)
    order = [i for i in cosines.argsort(descending=True).tolist() if i not in (2, 3, 5)]
    assert [w for w, _ in vectors.analogy("w2", "w3", "w5", 4)] == [f"w{i}" for i in order[:4]]


def test_length_of_vectors_does_not_matter_but_is_kept(vectors):
    lengths = torch.rand(V, 1) + 0.1
    scaled = WordVectors(vectors.words, lengths * vectors.matrix)
    assert scaled.analogy("w1", "w2", "w3")[0][0] == vectors.analogy("w1", "w2", "w3")[0][0]
    assert_close(scaled.vector("w2"), lengths[2] * vectors.vector("w2"))


def test_words_and_rows_must_fit(vectors):
    with pytest.raises(ValueError, match="2 different words for 3 rows"):
        WordVectors(["a", "b"], torch.randn(3, C))
    with pytest.raises(ValueError, match="1 different words for 2 rows"):
        WordVectors(["a", "a"], torch.randn(2, C))
    with pytest.raises(KeyError, match="bike"):
        vectors.analogy("w1", "w2", "bike")
    assert not WordVectors(["a", "b"], torch.randn(2, C, requires_grad=True)).matrix.requires_grad
