"""BPE-dropout (Provilkov et al., 2020): in each epoch a word is cut into other pieces.

A model that has seen `wei|ß|er` beside `weißer` knows of what parts the word is made. The tokenizer
stays as it is, and texts are cut as ever where the model is measured or used.
"""

import json
import random
from collections.abc import Callable, Sequence
from itertools import chain, pairwise

from transformer_lit.text.tokenizer import BPETokenizer
from transformer_lit.training.data import PairStream

VARIANTS = 32  # cuts of one word that are drawn at the start, for the epochs to choose from


def cut_word(
    word: str, ranks: dict[tuple[str, str], int], rate: float, chance: Callable[[], float]
) -> list[str]:
    "The pieces of `word`. At each step `rate` of the possible merges are passed over, by chance."
    pieces = list(word)
    while True:
        possible = [
            (ranks[pair], i)
            for i, pair in enumerate(pairwise(pieces))
            if pair in ranks and chance() >= rate
        ]
        if not possible:
            return pieces
        _, i = min(possible)  # the merge learned first; of two places the left one
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


class Cuts:
    "The ids of texts, cut in another way for each `number`; the same for the same seed and number."

    def __init__(self, tokenizer: BPETokenizer, texts: Sequence[str], rate: float, seed: int):
        if not 0 <= rate < 1:
            raise ValueError(f"the rate is {rate}; it must be at least 0 and below 1")
        backend = tokenizer.backend
        described = json.loads(backend.to_str())["model"]
        ranks = {tuple(pair): rank for rank, pair in enumerate(described["merges"])}
        self.texts = [[w for w, _ in backend.pre_tokenizer.pre_tokenize_str(t)] for t in texts]
        self.seed, chance = seed, random.Random(seed).random
        self.ids: dict[str, list[list[int]]] = {}
        for word in dict.fromkeys(chain.from_iterable(self.texts)):
            drawn = (cut_word(word, ranks, rate, chance) for _ in range(VARIANTS))
            self.ids[word] = [[described["vocab"][piece] for piece in cut] for cut in drawn]

    def __call__(self, number: int) -> list[list[int]]:
        "The ids of all texts."
        chance = random.Random(self.seed * 1_000_003 + number).random
        rows = []
        for words in self.texts:
            row: list[int] = []
            for word in words:
                cuts = self.ids[word]
                row += cuts[int(chance() * len(cuts))]
            rows.append(row)
        return rows


class CutStream(PairStream):
    "A `PairStream` of texts, with BPE-dropout of `rate` on both sides."

    def __init__(
        self,
        tokenizer: BPETokenizer,
        pairs: Sequence[tuple[str, str]],
        *,
        rate: float,
        seed: int,
        **how: int,
    ):
        self.cuts = [Cuts(tokenizer, side, rate, seed) for side in zip(*pairs, strict=True)]
        super().__init__(self.cut(0), seed=seed, **how)

    def cut(self, number: int) -> list[tuple[list[int], list[int]]]:
        return list(zip(*(side(number) for side in self.cuts), strict=True))

    def epoch(self, number: int) -> list[list[int]]:
        "Cut all pairs anew, then sort them into batches."
        self.pairs = self.cut(number)
        self.lengths = [(len(target) + 1, len(source) + 1) for source, target in self.pairs]
        return super().epoch(number)
