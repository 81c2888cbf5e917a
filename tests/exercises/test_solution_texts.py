"""What the texts of solutions claim beyond the cases of their exercises."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from chapter import exercises
from torch.testing import assert_close

from transformer_lit.course.data import number_pairs
from transformer_lit.exercises import repair_shop
from transformer_lit.exercises.masks import packed_mask
from transformer_lit.exercises.word_vectors import odd_one_out, svd_vectors
from transformer_lit.text.word_vectors import WordVectors


@pytest.fixture(autouse=True)
def doubles():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_masks_6_a_packed_sentence_is_read_as_if_it_stood_alone():
    q, k, v = torch.randn(3, 1, 1, 11, 5)
    together = F.scaled_dot_product_attention(q, k, v, attn_mask=packed_mask([7, 4]))
    for part in (slice(0, 7), slice(7, 11)):
        alone = (x[:, :, part] for x in (q, k, v))
        assert_close(together[:, :, part], F.scaled_dot_product_attention(*alone, is_causal=True))


def test_word_vectors_6_counts_alone_know_ones_from_tens():
    text = " ".join(english.lower() for english, _ in number_pairs("train")[:4000])
    read = text.replace("-", " ").split()
    words = sorted(set(read))
    ids = torch.tensor([words.index(word) for word in read])
    n = torch.zeros(len(words), len(words))
    for d in (1, 2):  # a neighbour two words away counts half
        n.index_put_((ids[:-d], ids[d:]), torch.tensor(1 / d), accumulate=True)
    n = n + n.T
    by_chance = n.sum(1, keepdim=True) * n.sum(0) ** 0.75 / (n.sum(0) ** 0.75).sum()
    positive_pmi = torch.where(n > 0, n / by_chance, 1.0).log().clamp(min=0)
    vectors = WordVectors(words, svd_vectors(positive_pmi, 8))
    ones = {"one", "two", "three", "four", "five", "six", "seven", "eight", "nine"}
    tens = {"twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"}
    for kind in (ones, tens):
        assert all(vectors.nearest(word, 1)[0][0] in kind for word in kind)
    assert odd_one_out(vectors, ["two", "seven", "eleven", "nine"]) == "eleven"
    assert odd_one_out(vectors, ["sixty", "ninety", "four", "thirty"]) == "four"


SLOW = 'optimizer.param_groups[0]["lr"] = 0.05 * min(1, (step + 1) / 50)'
RATES = {  # the changes in the program: between what the loss on new numbers ends
    "as it came": ({}, 2.4, 5),
    "a slow start": ({"for _ in": "for step in", "# d\n": f"# d\n        {SLOW}\n"}, 1, 2.2),
    "a tenth of the rate": ({"lr=0.05": "lr=0.005"}, 0, 0.3),
}


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.usefixtures("no_shape_checks")
def test_repair_shop_7_a_slow_start_is_not_enough_and_a_tenth_of_the_rate_is(rate):
    torch.set_default_dtype(torch.float32)
    page = Path(__file__).parents[2] / "nbs/capstones/03_repair_shop.ipynb"
    cells = json.loads(page.read_text())["cells"]
    (program,) = (one.blank for one in exercises(cells) if one.id == "repair_shop.7")
    changes, low, high = RATES[rate]
    for old, new in changes.items():
        assert old in program
        program = program.replace(old, new)
    names, pairs = dict(vars(repair_shop)), repair_shop.numbers()
    exec(program.rpartition("check(")[0], names)
    model, log = names["patient_3"](pairs.src, pairs.tgt, len(pairs.words), 120)
    assert low < repair_shop.translation_loss(model) < high
    assert SLOW in "".join(text for cell in cells for text in cell["source"])
    if not changes:
        assert abs(sum(log[-20:]) / 20 - 2.67) < 0.2  # the entropy of the words
