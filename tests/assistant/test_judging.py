"pass@k, compared with all subsets, with another formula, and with the truth that it estimates."

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from transformer_lit.assistant.judging import pass_at_k

COUNTS = [(n, c, k) for n in (1, 2, 5, 7) for c in range(n + 1) for k in range(1, n + 1)]


@pytest.mark.parametrize(("n", "c", "k"), COUNTS)
def test_it_is_the_share_of_subsets_with_a_right_answer(n, c, k):
    subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-15)


@pytest.mark.parametrize(("n", "c", "k"), [*COUNTS, (200, 3, 100), (200, 0, 1), (200, 199, 7)])
def test_it_is_the_product_that_the_paper_computes(n, c, k):
    product = 1.0 if n - c < k else 1 - np.prod(1 - k / np.arange(n - c + 1, n + 1))
    assert pass_at_k(n, c, k) == pytest.approx(product, abs=1e-12)


@pytest.mark.parametrize("k", [1, 3, 7])
@pytest.mark.parametrize("p", [Fraction(1, 10), Fraction(1, 2), Fraction(29, 31)])
def test_it_is_right_on_average(p, k):
    n = 7
    chance = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    average = sum(float(x) * pass_at_k(n, c, k) for c, x in enumerate(chance))
    assert average == pytest.approx(float(1 - (1 - p) ** k), abs=1e-14)


@pytest.mark.parametrize(("n", "c", "k"), [(2, 0, 5), (5, 6, 1), (5, -1, 1), (5, 1, 0), (0, 0, 1)])
def test_what_cannot_be_estimated_is_refused(n, c, k):
    with pytest.raises(ValueError, match=f"n={n}, c={c}, k={k}"):
        pass_at_k(n, c, k)
