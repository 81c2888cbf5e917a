"""Three ways to cut a text: characters, words, and pieces from byte-pair encoding."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from experiments.runner import Experiment, Row
from transformer_lit.course.data import load_pairs
from transformer_lit.text.tokenizer import BPETokenizer

SIZES = (259, 300, 400, 600, 1000, 2000, 5000, 10_000, 20_000)


def words(text: str) -> list[str]:
    "Runs of letters and digits, and every other sign by itself; spaces are dropped."
    return re.findall(r"\w+|[^\w\s]", text)


def costs(train: list[str], val: list[str], sizes: Sequence[int]) -> list[Row]:
    "A row for characters, and two for each size: the most frequent words, and BPE pieces."
    counts = Counter(word for text in train for word in words(text))
    # by count, then by the alphabet: ties at the border must not depend on the order of the text
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    characters = {char for text in train for char in text}
    ways: list[tuple[str, int, Callable[[str], list[Any]], set[Any]]]
    ways = [("characters", len(characters), list, characters)]
    for size in (*(s for s in sizes if s < len(ranked)), len(ranked)):
        ways.append(("words", size, words, set(ranked[:size])))
    for size in sizes:
        tokenizer = BPETokenizer.train(train, size)
        known = set(range(len(tokenizer.specials), tokenizer.vocab_size))
        ways.append(("pieces", tokenizer.vocab_size, tokenizer.encode, known))
    rows = []
    for unit, size, cut, known in ways:
        tokens = [token for text in val for token in cut(text)]
        row = {"unit": unit, "vocab_size": size, "tokens": len(tokens) / len(val)}
        row["unknown"] = sum(token not in known for token in tokens) / len(tokens)
        row["unused"] = len(known - {token for text in train for token in cut(text)})
        rows.append({**row, "bytes": sum(len(text.encode()) for text in val) / len(val)})
    return rows


def look(dataset: str = "multi30k", sizes: Sequence[int] = SIZES) -> list[Row]:
    "The captions of both languages in one list."
    train, val = (
        [text for pair in load_pairs(dataset, "en", "de", split) for text in pair]
        for split in ("train", "val")
    )
    return costs(train, val, sizes)


TOKENIZER = Experiment(
    "One cut of the training captions of Multi30k (English and German, one vocabulary) in a row. "
    "unit: characters, words or pieces (BPE). vocab_size: entries, for pieces the tokens in all. "
    "tokens: tokens per validation caption. bytes: UTF-8 bytes per validation caption. "
    "unknown: the share of validation tokens that are not in the vocabulary. "
    "unused: entries that occur nowhere in the training captions as they are cut.",
    look,
    quick={"dataset": "numbers", "sizes": (259, 300)},
)
