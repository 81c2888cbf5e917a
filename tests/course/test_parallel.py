"""Parallel sets: a training part that their tests do not know."""

import hashlib
import random
import re
import unicodedata
from dataclasses import replace

import pytest

from transformer_lit.course.data import DATASETS, comparable, data_hashes, load_pairs, unseen
from transformer_lit.course.files import DataFile, read_file, sha256

TATOEBA_FILES = DATASETS["tatoeba"].files
TATOEBA_SPLITS = DATASETS["tatoeba"].pairs.splits
TEXT, TEST = "tatoeba/cmn-eng", "tatoeba/test/tatoeba-test-v2021-08-07.eng-zho"


def put(folder, path, data):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(data)


def drawn(english):
    "The rule of the validation part, written once more."
    letters = re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", english).lower())
    return int.from_bytes(hashlib.sha256(letters.encode()).digest(), "big") % 20 == 0


COMPARED = [
    ("It's late.", "it’s  LATE", True),
    ("３ＡＭ。", "3am.", True),
    ("他說：「好。」", "他說:好", True),
    ("STRASSE", "Straße", True),
    ("ﬁne", "fine", True),
    ("a\u3000b\u200b", "ab", True),
    ("It is late.", "It's late.", False),
    ("3 a.m.", "4 a.m.", False),
    ("你", "妳", False),
    ("乾杯", "干杯", False),
]


@pytest.mark.parametrize(("one", "other", "same"), COMPARED)
def test_letters_and_digits_alone_are_compared(one, other, same):
    assert (comparable(one) == comparable(other)) == same and comparable(one)


def test_the_unseen_pairs_against_a_comparison_of_all_with_all():
    "Each side with the same side: with these words a sentence is often the other side of one."
    words = ["a", "A.", "b", " b", "Ｃ", "c!", "d", "e e", "ee", "f"]
    draw = random.Random(3)
    pairs, held_out = (
        [(draw.choice(words), draw.choice(words)) for _ in range(n)] for n in (53, 3)
    )

    def same(one, other):
        a, b = (unicodedata.normalize("NFKC", text).lower() for text in (one, other))
        return re.sub(r"[\W_]", "", a) == re.sub(r"[\W_]", "", b)

    expected = [
        pair
        for pair in pairs
        if not any(same(pair[s], seen[s]) for seen in held_out for s in (0, 1))
    ]
    assert unseen(pairs, held_out) == expected and unseen(pairs, []) == pairs
    assert 0 < len(expected) < len(pairs)


RELEASED = [  # English, Chinese
    ("Hi.", "嗨。"),
    ("hi", "你好。"),  # its English is in the test
    ("Good night.", "晚安！"),  # its Chinese is
    ("Sleep well.", "睡個好覺。"),
    *((f"This is number {n}.", f"這是{n}號。") for n in range(61)),
    *((f"That is number {n}.", f"這是{n}號！") for n in range(0, 61, 7)),  # known by its Chinese
]
HELD_OUT = [("HI!", "嗨", "cmn_Hans"), ("Bye.", "晚安", "cmn_Hant"), ("Hey.", "喂。", "yue_Hant")]


def release(monkeypatch, folder, rows=RELEASED):
    "The set with a text and a test of our own."
    texts = {f"{TEXT}/cmn.txt": "".join(f"{en}\t{zh}\tby Anna\n" for en, zh in rows)}
    texts[f"{TEXT}/_about.txt"] = "terms\n"
    for end, column in {"eng": 0, "zho": 1, "zho.labels": 2}.items():
        texts[f"{TEST}.{end}"] = "".join(f"{line[column]}\n" for line in HELD_OUT)
    files = tuple(DataFile(path, sha256(text.encode()), ()) for path, text in texts.items())
    assert [file.path for file in files] == [file.path for file in TATOEBA_FILES]
    for path, text in texts.items():
        put(folder, path, text.encode())
    monkeypatch.setitem(DATASETS, "tatoeba", replace(DATASETS["tatoeba"], files=files))


class TestTatoeba:
    @pytest.fixture(autouse=True)
    def ours(self, monkeypatch, data_folder):
        release(monkeypatch, data_folder)

    def test_the_splits_by_hand(self):
        pairs = {split: load_pairs("tatoeba", "en", "zh", split) for split in TATOEBA_SPLITS}
        assert pairs["released"] == RELEASED
        assert pairs["test"] == [row[:2] for row in HELD_OUT]
        assert pairs["test_mandarin"] == pairs["test"][:2]
        kept = RELEASED[3:]
        val = [pair for pair in kept if drawn(pair[0])]
        chinese = {re.sub(r"\W", "", zh) for _, zh in val}
        train = [p for p in kept if p not in val and re.sub(r"\W", "", p[1]) not in chinese]
        assert (pairs["val"], pairs["train"]) == (val, train)
        assert 0 < len(val) < 9 and len(train) + len(val) < len(kept)

    def test_the_order_of_the_file_decides_nothing(self, monkeypatch, data_folder):
        before = {split: set(load_pairs("tatoeba", "zh", "en", split)) for split in TATOEBA_SPLITS}
        release(monkeypatch, data_folder, RELEASED[::-1])
        for split, pairs in before.items():
            assert set(load_pairs("tatoeba", "zh", "en", split)) == pairs


@pytest.fixture(scope="module")
def pairs():
    "Every split of the real set, Chinese first."
    return {split: load_pairs("tatoeba", "zh", "en", split) for split in TATOEBA_SPLITS}


@pytest.mark.needs("tatoeba")
class TestRealTatoeba:
    def test_sizes(self, pairs):
        assert {split: len(some) for split, some in pairs.items()} == {
            "released": 24_818,
            "test": 10_390,
            "test_mandarin": 8_941,
            "train": 18_549,
            "val": 999,
        }

    def test_no_two_parts_share_a_sentence(self, pairs):
        for side in (0, 1):
            train, val, test = (
                {"".join(filter(str.isalnum, pair[side].lower())) for pair in pairs[split]}
                for split in ("train", "val", "test")
            )
            assert train and not train & val and not train & test and not val & test

    def test_the_sides_belong_together(self, pairs):
        assert pairs["test"][6] == (
            "2016年是有记录以来最热的一年。",
            "2016 was the hottest year on record.",
        )
        assert pairs["released"][0] == ("嗨。", "Hi.") and pairs["train"][0] == ("嗨。", "Hi.")
        assert all(side.strip() for some in pairs.values() for pair in some for side in pair)

    def test_the_terms_travel_with_the_text(self):
        assert f"{TEXT}/_about.txt" in data_hashes("tatoeba")
        about = next(file for file in TATOEBA_FILES if file.path.endswith("_about.txt"))
        assert b"Attribution: www.manythings.org/anki and tatoeba.org" in read_file(about)


@pytest.mark.needs("everyday")
@pytest.mark.usefixtures("no_shape_checks")  # a million sentences are compared
def test_no_part_of_the_everyday_set_has_a_sentence_of_another():
    splits = DATASETS["everyday"].pairs.splits
    parts = {split: load_pairs("everyday", "en", "de", split) for split in splits}
    sizes = {"train": 165_320, "val": 1_355, "test": 1_341}
    assert {split: len(some) for split, some in parts.items()} == sizes
    for side in (0, 1):
        known = {split: [comparable(pair[side]) for pair in parts[split]] for split in parts}
        train, val, test = (set(known[split]) for split in ("train", "val", "test"))
        assert train and not train & val and not train & test and not val & test
        if side == 0:  # a held-out sentence has one translation
            assert len(known["val"]) == len(val) and len(known["test"]) == len(test)
    assert ("Run!", "Lauf!") in parts["train"]
    assert all(side.strip() for some in parts.values() for pair in some for side in pair)
