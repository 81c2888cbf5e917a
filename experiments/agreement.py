"""Beam search, samples, and the sample that agrees best with the others: quality and cost."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from sacrebleu.metrics import BLEU, CHRF
from torch import nn

from experiments.runner import Experiment, Row
from transformer_lit.course.data import load_pairs
from transformer_lit.inference.metrics import bleu
from transformer_lit.inference.sampling import generate
from transformer_lit.recipes.encoder_decoder import minimum_bayes_risk
from transformer_lit.recipes.translation import Translator
from transformer_lit.recipes.zoo import load
from transformer_lit.training.data import collate

MODEL, SENTENCES, SEEDS, COUNTS, BATCH = "everyday-en-de", 500, (0, 1, 2), (8, 16, 32), 32
DRAWS = {"all tokens": {}, "min-p 0.1": {"min_p": 0.1}}
CHRF_, BLEU_ = CHRF(), BLEU(effective_order=True)
UTILITIES: dict[str, Callable[[str, str], float]] = {
    "chrF": lambda one, other: CHRF_.sentence_score(one, [other]).score,
    "BLEU": lambda one, other: BLEU_.sentence_score(one, [other]).score,
}


class Copies(nn.Module):
    "A model that begins so many continuations of each source, and encodes each source once."

    def __init__(self, model: nn.Module, count: int):
        super().__init__()
        self.model, self.count = model, count

    def start(self, rows: int, max_len: int, src: torch.Tensor, src_mask: Any) -> Any:
        "The state of all of them."
        src_mask = None if src_mask is None else src_mask[:: self.count]
        state = self.model.start(rows // self.count, max_len, src[:: self.count], src_mask)
        state.select(torch.arange(rows // self.count).repeat_interleave(self.count))
        return state

    def step(self, ids: torch.Tensor, state: Any, *, last: int | None = None) -> torch.Tensor:
        "As the model's."
        return self.model.step(ids, state, last=last)


def eight(
    translator: Translator, sentences: Sequence[str], **how: Any
) -> Iterator[tuple[int, list[str]]]:
    "The number of each sentence with eight samples of its translation; short ones come first."
    tokenizer, rows = translator.tokenizer, translator.encode(sentences)
    special = {"pad_id": tokenizer.pad_id, "bos": tokenizer.bos_id, "eos": tokenizer.eos_id}
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    model = Copies(translator.model, 8)
    for at in range(0, len(order), BATCH):
        some = order[at : at + BATCH]
        batch = collate([(rows[i], []) for i in some for _ in range(8)], **special)
        source = {"src": batch.src, "src_mask": batch.src_mask, "eos": tokenizer.eos_id}
        longest = 2 * len(rows[some[-1]]) + 10
        found = generate(model, batch.tgt_in, max_new_tokens=longest, **source, **how)
        texts = [tokenizer.decode(ids) for ids in found]
        yield from ((i, texts[8 * n : 8 * n + 8]) for n, i in enumerate(some))


def measure(sentences: int = SENTENCES, seeds: Sequence[int] = SEEDS) -> list[Row]:
    "A row for each search."
    torch.set_num_threads(1)
    name = ("numbers" if sentences < SENTENCES else "everyday", "en", "de", "test")
    pairs = random.Random(0).sample(load_pairs(*name), sentences)  # short ones come first there
    sources, targets = zip(*pairs, strict=True)
    translator, rows, clock = load(MODEL), [], time.process_time

    def note(found: Sequence[str], **about: Any) -> None:
        scores = bleu(found, targets, lowercase=True), CHRF().corpus_score(found, [targets])
        words = sum(len(text.split()) for text in found) / sum(len(t.split()) for t in targets)
        scores = {"bleu": scores[0].value, "chrf": scores[1].score, "length": words}
        rows.append(about | scores | {"signature": bleu(found, targets, lowercase=True).signature})
        print(rows[-1], flush=True)

    for beam in (1, 4):
        start = clock()
        found = translator.translate(sources, beam=beam)
        about = {"search": f"beam {beam}", "draws": "", "utility": "", "n": beam, "seed": 0}
        note(found, **about, drawing=clock() - start, comparing=0.0)
    for draws, how in DRAWS.items():
        for seed in seeds:
            generator, drawing = torch.Generator().manual_seed(seed), [0.0]
            samples: list[list[str]] = [[] for _ in sources]
            for _ in range(max(COUNTS) // 8):
                start = clock()
                for i, texts in eight(translator, sources, generator=generator, **how):
                    samples[i] += texts
                drawing.append(drawing[-1] + clock() - start)
            about = {"draws": draws, "utility": "", "n": 1, "seed": seed}
            firsts = [texts[0] for texts in samples]
            note(firsts, search="sample", **about, drawing=drawing[1] / 8, comparing=0.0)
            for (utility, compare), n in ((pair, n) for pair in UTILITIES.items() for n in COUNTS):
                start = clock()
                found = [minimum_bayes_risk(texts[:n], compare) for texts in samples]
                about |= {"utility": utility, "n": n, "drawing": drawing[n // 8]}
                note(found, search="MBR", **about, comparing=clock() - start)
    return rows


AGREEMENT = Experiment(
    f"The translator {MODEL} and {SENTENCES} sentences drawn from its test set. search: beam "
    "search of that width (1 is greedy), one sample, or the sample of n that agrees best with all "
    "n (minimum Bayes risk). draws: what samples are drawn from, at temperature 1. utility: how "
    "two samples are compared, sentence by sentence. bleu and chrf: of the chosen translations. "
    "length: their words over those of the references. drawing and comparing: processor time in "
    "seconds of the model and of the comparisons, one thread, for all sentences; samples are drawn "
    "eight at a time, and one sample is counted as an eighth of that.",
    measure,
    quick={"sentences": 3, "seeds": (0,)},
)
