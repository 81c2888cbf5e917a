"A word in pieces that chance decides: at rate 0 the tokenizer's own, and each time the same text."

import random
from collections import Counter

import pytest

from experiments.bpe_dropout import VARIANTS, Cuts, CutStream, cut_word
from transformer_lit.base.numbers import number_pairs
from transformer_lit.text.tokenizer import BPETokenizer
from transformer_lit.training.data import PairStream

PAIRS = number_pairs("train")[:101]
TEXTS = [text for pair in PAIRS for text in pair]
TOKENIZER = BPETokenizer.train(TEXTS, 307)
SPECIAL = {"pad_id": 0, "bos": 1, "eos": 2}
RANKS = {("a", "b"): 0, ("ab", "c"): 1, ("b", "c"): 2}


def test_merges_by_hand():
    always, never = (lambda: 1.0), (lambda: 0.0)
    assert cut_word("abc", RANKS, 0.5, always) == ["abc"]
    assert cut_word("abc", RANKS, 0.5, never) == ["a", "b", "c"]
    chances = iter([0.0, 1.0])  # `ab` is passed over, `bc` is not; then nothing is left to merge
    assert cut_word("abc", RANKS, 0.5, lambda: next(chances)) == ["a", "bc"]


def test_the_share_of_passed_over_merges_is_the_rate():
    chance = random.Random(0).random
    found = Counter(len(cut_word("ab", RANKS, 0.3, chance)) for _ in range(10_007))
    assert found[2] / 10_007 == pytest.approx(0.3, abs=4 * (0.21 / 10_007) ** 0.5)


def test_rate_0_cuts_as_the_tokenizer_does():
    assert Cuts(TOKENIZER, TEXTS, 0.0, seed=3)(5) == TOKENIZER.encode_all(TEXTS)


def test_whatever_the_cut_the_text_stays():
    cuts = Cuts(TOKENIZER, TEXTS, 0.4, seed=3)
    rows = cuts(0)
    assert [TOKENIZER.decode(row) for row in rows] == TEXTS
    assert rows != cuts(1) != TOKENIZER.encode_all(TEXTS)
    assert all(len(drawn) == VARIANTS for drawn in cuts.ids.values())  # the likely ones many times


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_a_rate_that_is_no_share_is_refused(rate):
    with pytest.raises(ValueError, match=f"the rate is {rate}; it must be at least 0 and below 1"):
        Cuts(TOKENIZER, TEXTS, rate, seed=0)


def batches(stream, count):
    return [batch.tgt_out.tolist() for _, batch in zip(range(count), stream, strict=False)]


def test_a_stream_goes_on_from_any_position():
    how = {"rate": 0.2, "seed": 7, "max_tokens": 211}
    count = len(CutStream(TOKENIZER, PAIRS, **how, **SPECIAL).epoch(0)) + 3  # into the second epoch
    whole = CutStream(TOKENIZER, PAIRS, **how, **SPECIAL)
    batches(whole, count)
    resumed = CutStream(TOKENIZER, PAIRS, **how, **SPECIAL)
    resumed.position = whole.position
    assert batches(resumed, 5) == batches(whole, 5)


def test_at_rate_0_a_stream_is_the_usual_one():
    how = {"seed": 7, "max_tokens": 211}
    ids = [tuple(map(TOKENIZER.encode, pair)) for pair in PAIRS]
    usual = PairStream(ids, **how, **SPECIAL)
    assert batches(CutStream(TOKENIZER, PAIRS, rate=0.0, **how, **SPECIAL), 11) == batches(
        usual, 11
    )
