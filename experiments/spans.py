"""An encoder–decoder fills the blanks of little stories."""

import random
import time
from collections.abc import Iterator, Sequence
from itertools import product

import torch
from torch import nn

from experiments.runner import Experiment, Row
from transformer_lit.course.data import load_text
from transformer_lit.course.stories import broken_causes
from transformer_lit.inference.sampling import generate
from transformer_lit.models.transformer import Transformer, TransformerConfig
from transformer_lit.recipes.encoder_decoder import corrupt_spans, fill_spans
from transformer_lit.recipes.translation import translation_loss
from transformer_lit.text.tokenizer import BPETokenizer
from transformer_lit.training.data import PairBatch, collate
from transformer_lit.training.optimizers import muon
from transformer_lit.training.schedule import cosine
from transformer_lit.training.trainer import Trainer, mean_loss

V, SENTINELS, BATCH, STEPS, RATE, WARMUP = 1000, 16, 32, 900, 0.01, 50
SIZES = {"d_model": 64, "d_ff": 128, "n_heads": 4, "n_layers": 2, "dropout": 0.0}
MEANS, SEEDS, TESTED = (3.0,), (0, 1, 2), 300  # tokens of a span; held-out stories
COLOURS = (" red", " blue", " green", " yellow", " white", " brown")


class Stories:
    "Stories as ids; what follows the vocabulary are sentinels."

    def __init__(self, tested: int):
        lines, held_out = (load_text("stories", split).splitlines() for split in ("train", "val"))
        self.tokenizer = BPETokenizer.train(lines, V)
        self.sentinels = range(V, V + SENTINELS)
        self.train, self.new = map(self.tokenizer.encode_all, (lines, held_out[:tested]))
        ends = self.tokenizer.bos_id, self.tokenizer.eos_id
        self.special = {"pad_id": self.tokenizer.pad_id, "bos": ends[0], "eos": ends[1]}
        self.colours = {self.tokenizer.encode(f"a{colour}")[-1] for colour in COLOURS}

    def batches(self, mean: float, seed: int) -> Iterator[PairBatch]:
        "Other stories and other blanks each time."
        rng = random.Random(seed)
        while True:
            rows = rng.sample(self.train, BATCH)
            pairs = [corrupt_spans(row, self.sentinels, rng, mean=mean) for row in rows]
            yield collate(pairs, **self.special)

    def asked(self, mean: float = 3.0) -> list[tuple[list[int], list[int]]]:
        "Held-out stories with the same blanks for every model."
        rng = random.Random(0)
        return [corrupt_spans(row, self.sentinels, rng, mean=mean) for row in self.new]

    def without_colours(self) -> list[tuple[list[int], list[int]]]:
        "The same stories, with a blank in place of every colour."
        pairs = []
        for row in self.new:
            marks = iter(self.sentinels)
            pairs.append(([next(marks) if i in self.colours else i for i in row], []))
        return pairs

    def filled(
        self, model: nn.Module, pairs: list[tuple[list[int], list[int]]], temperature: float
    ) -> list[list[int]]:
        "What the model writes for each pair's source."
        found, generator = [], torch.Generator().manual_seed(0)
        for at in range(0, len(pairs), 50):
            batch = collate(pairs[at : at + 50], **self.special)
            source = {"src": batch.src, "src_mask": batch.src_mask}
            how = {"eos": self.special["eos"], "temperature": temperature, "generator": generator}
            found += generate(model, batch.tgt_in[:, :1], max_new_tokens=60, **source, **how)
        return found


def train(stories: Stories, mean: float, seed: int, steps: int) -> Row:
    "One training, and what the model makes of held-out stories."
    torch.manual_seed(seed)
    model = Transformer(TransformerConfig(V + SENTINELS, residual="pre", **SIZES))
    optimizer, schedule = muon(model), cosine(RATE, min(WARMUP, steps), steps)
    batches = stories.batches(mean, seed)
    trainer = Trainer(model, translation_loss, optimizer, schedule, batches, clip=1.0)
    start = time.process_time()
    logs = list(trainer.run(steps))
    seconds = time.process_time() - start
    pairs = stories.asked()
    chunks = (collate(pairs[at : at + 50], **stories.special) for at in range(0, len(pairs), 50))
    loss = mean_loss(model, (translation_loss(model, batch) for batch in chunks))
    model.eval()
    targets = stories.filled(model, pairs, 0.0)
    restored = [fill_spans(s, t, stories.sentinels) for (s, _), t in zip(pairs, targets)]
    texts = map(stories.tokenizer.decode, restored)
    blank = stories.without_colours()
    drawn = stories.filled(model, blank, 1.0)
    named = [[i for i in row if i in stories.colours] for row in drawn]
    twice = [found for found, (source, _) in zip(named, blank) if V + 1 in source]
    return {
        "target": sum(log.tokens for log in logs) / steps / BATCH,
        "seconds": seconds,
        "val_loss": loss,
        "exact": sum(a == b for a, b in zip(restored, stories.new)) / len(pairs),
        "whole": sum(broken_causes(text) == [] for text in texts) / len(pairs),
        "agree": sum(len(found) > 1 and len({*found}) == 1 for found in twice) / len(twice),
    }


def spans(
    steps: int = STEPS, seeds: Sequence[int] = SEEDS, means: Sequence[float] = MEANS
) -> list[Row]:
    "Every mean length of a span with every seed."
    stories, rows = Stories(TESTED if steps == STEPS else 20), []
    for seed, mean in product(seeds, means):
        rows.append({"mean": mean, "seed": seed} | train(stories, mean, seed, steps))
        print(rows[-1], flush=True)
    return rows


SPANS = Experiment(
    f"A Transformer of {SIZES['n_layers']} + {SIZES['n_layers']} layers, {SIZES['d_model']} wide, "
    f"learns to fill the blanks of little stories: {STEPS} steps of {BATCH} stories, of which 15 % "
    f"of the tokens are hidden in spans. Muon at {RATE}. mean: mean length of a span in training, "
    "in tokens. target: tokens of a target, with its sentinels and its end. seconds: processor "
    "time of the training, with its batches. All that follows is measured on the same "
    f"{TESTED} held-out stories. val_loss: nats per token of the target, spans of 3. exact: the "
    "share that is as it was after greedy filling. whole: the share that keeps its causes, as it "
    "was or not. agree: all colours are hidden and drawn at temperature 1; the share of stories "
    "with more than one in which all are the same.",
    spans,
    quick={"steps": 2, "seeds": (0,), "means": (3.0,)},
)
