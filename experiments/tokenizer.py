"""Three ways to cut a text: characters, words, and pieces from byte-pair encoding."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from experiments.runner import Experiment, Row
from transformer_lit.base.datasets import load_pairs
from transformer_lit.text.tokenizer import BPETokenizer

SIZES = (259, 300, 400, 600, 1000, 2000, 5000, 10_000, 20_000)


def words(text: str) -> list[str]:
    "Runs of letters and digits, and every other sign by itself; spaces are dropped."
    return re.findall(r"\w+|[^\w\s]", text)


def row(
    unit: str, size: int, train: list[list[Any]], val: list[list[Any]], known: set[Any]
) -> Row:
    "What one way to cut costs: `train` and `val` are the captions as lists of tokens."
    seen = {token for caption in train for token in caption}
    tokens = [token for caption in val for token in caption]
    return {
        "unit": unit,
        "vocab_size": size,
        "tokens": len(tokens) / len(val),
        "unknown": sum(token not in known for token in tokens) / len(tokens),
        "unused": len(known - seen),
    }


def costs(train: list[str], val: list[str], sizes: Sequence[int]) -> list[Row]:
    "A row for characters, and two for each size: the most frequent words, and BPE pieces."
    characters = {char for text in train for char in text}
    cut: tuple[list[list[Any]], ...] = ([*map(list, train)], [*map(list, val)])
    rows = [row("characters", len(characters), *cut, characters)]
    cut = [*map(words, train)], [*map(words, val)]
    counts = Counter(word for caption in cut[0] for word in caption)
    # by count, then by the alphabet: ties at the border must not depend on the order of the text
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    for size in (*(s for s in sizes if s < len(ranked)), len(ranked)):
        rows.append(row("words", size, *cut, set(ranked[:size])))
    for size in sizes:
        tokenizer = BPETokenizer.train(train, size)
        cut = tokenizer.encode_all(train), tokenizer.encode_all(val)
        known = set(range(len(tokenizer.specials), tokenizer.vocab_size))
        rows.append(row("pieces", tokenizer.vocab_size, *cut, known))
    length = sum(len(text.encode()) for text in val) / len(val)
    return [{**r, "bytes": length} for r in rows]


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
