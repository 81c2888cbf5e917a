"""What the test set of a second language pair shares with its training text, and its vocabulary."""

from collections import Counter
from collections.abc import Sequence

from experiments.runner import Experiment, Row
from transformer_lit.course.data import comparable, load_pairs
from transformer_lit.inference.metrics import bleu
from transformer_lit.text.tokenizer import BPETokenizer

Pairs = Sequence[tuple[str, str]]
SIZES = (2000, 3000, 4000, 5000, 6000, 8000, 10_000)
SELDOM = 10  # an entry that is read less often than this can hardly be learned


def overlap(pairs: Pairs, test: Pairs) -> Row:
    "What a text shares with the test, and the score of looking the test up in it."
    asked, answered = ({comparable(pair[side]) for pair in test} for side in (0, 1))
    sides = [
        (comparable(source) in asked, comparable(target) in answered) for source, target in pairs
    ]
    counts = {"shared_source": sum(s for s, _ in sides), "shared_target": sum(t for _, t in sides)}
    answers: dict[str, str] = {}
    for source, target in pairs:
        answers.setdefault(comparable(source), target)
    said = [answers.get(comparable(source), "") for source, _ in test]
    expected = [target for _, target in test]
    found = [(ours, theirs) for ours, theirs in zip(said, expected, strict=True) if ours]
    return {
        "pairs": len(pairs),
        **counts,
        "shared": sum(map(any, sides)),
        "found": len(found) / len(test),
        "bleu": bleu(said, expected, lowercase=True).value,
        "bleu_found": bleu(*zip(*found, strict=True), lowercase=True).value if found else None,
    }


def vocabulary(pairs: Pairs, size: int) -> Row:
    "How long the sentences are in tokens, and how many tokens are seldom read."
    tokenizer = BPETokenizer.train((text for pair in pairs for text in pair), size)
    sides = [tokenizer.encode_all([pair[side] for pair in pairs]) for side in (0, 1)]
    counts = Counter(i for rows in sides for row in rows for i in row)
    entries = range(len(tokenizer.specials), tokenizer.vocab_size)
    source, target = (sum(map(len, rows)) / len(pairs) for rows in sides)
    return {
        "vocab_size": tokenizer.vocab_size,
        "source_tokens": source,
        "target_tokens": target,
        "seldom": sum(counts[i] < SELDOM for i in entries) / len(entries),
    }


def look(
    dataset: str = "tatoeba",
    direction: tuple[str, str] = ("zh", "en"),
    texts: Sequence[str] = ("released", "train", "val"),
    sizes: Sequence[int] = SIZES,
) -> list[Row]:
    "A row for each text against the test set, and one for each vocabulary of the training part."
    test, *pairs = (load_pairs(dataset, *direction, split) for split in ("test", *texts))
    of = dict(zip(texts, pairs, strict=True))
    return [
        *({"text": text, **overlap(of[text], test)} for text in texts),
        *(vocabulary(of["train"], size) for size in sizes),
    ]


TATOEBA = Experiment(
    "Tatoeba, Chinese (source) to English (target), in two kinds of rows. text: a split, as "
    "released, for training, for validation, and what of its pairs the test set shares: the "
    "source, the target, either (shared). A side is shared when its letters and digits are those "
    "of a test sentence, after NFKC and case folding. found: the share of the test's sources that "
    "occur in the text. bleu: lower-cased, of looking each test source up there and saying its "
    "first target, or nothing; bleu_found: the same on the sentences found alone. vocab_size: "
    "tokens of a vocabulary of both languages, learned from the training part. source_tokens, "
    "target_tokens: tokens per training sentence. seldom: the share of its entries that occur "
    f"fewer than {SELDOM} times in the training part.",
    look,
    quick={
        "dataset": "numbers",
        "direction": ("en", "de"),
        "texts": ("train", "val"),
        "sizes": (263,),
    },
)
