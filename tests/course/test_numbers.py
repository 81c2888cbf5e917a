"""Numbers in words: cases by hand, and splits that share nothing."""

import pytest

from transformer_lit.course.data import number_in_english, number_in_german, number_pairs

NUMBERS = {
    0: ("zero", "null"),
    1: ("one", "eins"),
    7: ("seven", "sieben"),
    10: ("ten", "zehn"),
    11: ("eleven", "elf"),
    12: ("twelve", "zwölf"),
    16: ("sixteen", "sechzehn"),
    17: ("seventeen", "siebzehn"),
    20: ("twenty", "zwanzig"),
    21: ("twenty-one", "einundzwanzig"),
    30: ("thirty", "dreißig"),
    66: ("sixty-six", "sechsundsechzig"),
    77: ("seventy-seven", "siebenundsiebzig"),
    100: ("one hundred", "einhundert"),
    101: ("one hundred one", "einhunderteins"),
    111: ("one hundred eleven", "einhundertelf"),
    121: ("one hundred twenty-one", "einhunderteinundzwanzig"),
    1_000: ("one thousand", "eintausend"),
    1_001: ("one thousand one", "eintausendeins"),
    1_100: ("one thousand one hundred", "eintausendeinhundert"),
    21_021: ("twenty-one thousand twenty-one", "einundzwanzigtausendeinundzwanzig"),
    100_000: ("one hundred thousand", "einhunderttausend"),
    101_001: ("one hundred one thousand one", "einhunderteintausendeins"),
}


class TestNumbers:
    def test_cases_by_hand(self):
        assert {n: (number_in_english(n), number_in_german(n)) for n in NUMBERS} == NUMBERS

    @pytest.mark.parametrize("write", [number_in_english, number_in_german])
    def test_every_number_has_words_of_its_own(self, write):
        numbers = {*range(1_200), *range(0, 100_000, 97)}
        assert len({write(n) for n in numbers}) == len(numbers)

    @pytest.mark.parametrize("write", [number_in_english, number_in_german])
    @pytest.mark.parametrize("n", [-1, 1_000_000])
    def test_a_number_out_of_range_is_named(self, write, n):
        with pytest.raises(ValueError, match=str(n)):
            write(n)

    def test_splits_are_disjoint_and_of_the_promised_size(self):
        splits = {split: number_pairs(split) for split in ("train", "val", "test")}
        assert {k: len(v) for k, v in splits.items()} == {"train": 20_000, "val": 500, "test": 1000}
        assert len(set().union(*splits.values())) == 21_500
        small = {(number_in_english(n), number_in_german(n)) for n in range(100)}
        assert small <= set(splits["train"])

    def test_the_split_follows_the_seed(self):
        assert number_pairs("val") == number_pairs("val", seed=0) != number_pairs("val", seed=1)
