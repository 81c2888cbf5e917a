"""Three ways to cut a text: characters, words, and pieces from byte-pair encoding.

For growing vocabularies: how long the sequences become on captions held out of training, and which
share of their tokens is unknown. Everything is counted from the training captions of Multi30k, both
languages in one vocabulary, and measured on its validation captions. `--quick` takes the generated
numbers and small vocabularies, needs no data, and stores nothing.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.common import command_line, store
from transformer_lit.base.datasets import load_pairs
from transformer_lit.text.tokenizer import BPETokenizer

SIZES = (259, 300, 400, 600, 1000, 2000, 5000, 10_000, 20_000)
QUICK_SIZES = (259, 300, 340)
ABOUT = (
    "One cut of the training captions of Multi30k (English and German, one vocabulary) in a row. "
    "unit: characters, words or pieces (BPE). vocab_size: entries, for pieces the tokens in all. "
    "tokens: tokens per validation caption. bytes: UTF-8 bytes per validation caption. "
    "unknown: the share of validation tokens that are not in the vocabulary. "
    "unused: entries that occur nowhere in the training captions as they are cut."
)


def words(text: str) -> list[str]:
    "Runs of letters and digits, and every other sign by itself; spaces are dropped."
    return re.findall(r"\w+|[^\w\s]", text)


def row(
    unit: str, size: int, train: list[list[Any]], val: list[list[Any]], known: set[Any]
) -> dict[str, Any]:
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


def measure(train: list[str], val: list[str], sizes: Sequence[int]) -> list[dict[str, Any]]:
    "A row for characters, and two for each size: the most frequent words, and BPE pieces."
    rows = []
    characters = {char for text in train for char in text}
    rows.append(
        row("characters", len(characters), [*map(list, train)], [*map(list, val)], characters)
    )
    train_words, val_words = [*map(words, train)], [*map(words, val)]
    counts = Counter(word for caption in train_words for word in caption)
    # by count, then by the alphabet: ties at the border must not depend on the order of the text
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    for size in (*(s for s in sizes if s < len(ranked)), len(ranked)):
        rows.append(row("words", size, train_words, val_words, set(ranked[:size])))
    for size in sizes:
        tokenizer = BPETokenizer.train(train, size)
        cut = tokenizer.encode_all(train), tokenizer.encode_all(val)
        known = set(range(len(tokenizer.specials), tokenizer.vocab_size))
        rows.append(row("pieces", tokenizer.vocab_size, *cut, known))
    length = sum(len(text.encode()) for text in val) / len(val)
    return [{**r, "bytes": length} for r in rows]


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    "Measure, print a table, and store it unless `--quick`."
    parser = command_line(__doc__, quick="a small run on generated text")
    options = parser.parse_args(argv)
    name, sizes = ("numbers", QUICK_SIZES) if options.quick else ("multi30k", SIZES)
    train, val = (
        [text for pair in load_pairs(name, "en", "de", split) for text in pair]
        for split in ("train", "val")
    )
    if options.quick:
        train = train[:2000]
    rows = measure(train, val, sizes)
    print(f"{'unit':<11}{'V':>7}{'tokens':>9}{'unknown':>9}{'unused':>8}")
    for r in rows:
        print(
            f"{r['unit']:<11}{r['vocab_size']:>7,}{r['tokens']:>9.2f}"
            f"{r['unknown']:>9.2%}{r['unused']:>8,}"
        )
    if not options.quick:
        store("tokenizer", ABOUT, "python -m benchmarks.tokenizer", rows, options.out)
    return rows


if __name__ == "__main__":
    main()
