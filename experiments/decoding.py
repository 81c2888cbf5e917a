"""What the way to decode does to what trained models write: beam widths, temperatures, scores."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any
from unittest import mock

import torch
from sacrebleu.metrics import BLEU
from torch import Tensor, nn

from experiments.runner import NUMBERS, Cell, Experiment, Row
from transformer_lit import load
from transformer_lit.course.data import load_pairs, load_text
from transformer_lit.inference import beam
from transformer_lit.inference.metrics import bleu
from transformer_lit.inference.sampling import generate
from transformer_lit.recipes.translation import Translation, Translator
from transformer_lit.training.data import bucket_by_length, collate
from transformer_lit.training.run import Run

NAME = "multi30k-en-de"
WIDTHS, ALPHAS = (1, 2, 3, 5, 10, 20), (0.0, 0.6, 1.0, 2.0)


# --- beam_widths ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Searched(Translation):
    "The shipped translator as it is: nothing is trained."

    beam: int
    alpha: float
    sentences: int = 500  # the first of the validation pairs

    def train_tokenizer(self, examples: Any) -> Any:
        "The shipped model's."
        return load(NAME).tokenizer

    def build(self, vocab_size: int) -> nn.Module:
        "The shipped model."
        return load(NAME).model


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "Widths at the penalty of the package, then penalties at its width."
    rest = {"dataset": "multi30k", "vocab_size": 5000, "sizes": {}}
    rest |= {"steps": 1, "warmup": 1, "lr": 1.0, "max_tokens": 1500}
    for width, alpha in [*((w, 1.0) for w in WIDTHS), *((5, a) for a in ALPHAS if a != 1.0)]:
        about = {"beam": width, "alpha": alpha}
        yield Cell(about, Searched(**rest, **about), 0)


@contextmanager
def reasons() -> Iterator[Counter]:
    "Why each search that runs inside has stopped: what `over` saw when it said so."
    seen, over = Counter(), beam._Sentence.over

    def watched(sentence: Any) -> bool:
        if stopped := over(sentence):
            seen[reason(sentence)] += 1
        return stopped

    with mock.patch.object(beam._Sentence, "over", watched):
        yield seen


def reason(sentence: Any) -> str:
    "Of a search that is over."
    if not sentence.open:
        return "full"
    could = sentence.finished.may_enter(sentence.log_probs[0], sentence.max_len)
    return "given_up" if could else "bound"


def search(translator: Translator, sources: Sequence[str], width: int, alpha: float) -> list:
    "The best hypothesis of each sentence, searched as `translate` does."
    tok, out = translator.tokenizer, [None] * len(sources)
    rows = translator.encode(sources)
    for batch in bucket_by_length([(len(row) + 1, 0) for row in rows], 1024):
        special = {"pad_id": tok.pad_id, "bos": tok.bos_id, "eos": tok.eos_id}
        given = collate([(rows[i], []) for i in batch], **special)
        longest = [2 * len(rows[i]) + 10 for i in batch]
        found = beam.beam_search(
            translator.model,
            given.src,
            given.src_mask,
            bos=tok.bos_id,
            eos=tok.eos_id,
            max_len=longest,
            beam=width,
            alpha=alpha,
        )
        for i, (best,) in zip(batch, found, strict=True):
            out[i] = best
    return out


def searched(run: Run) -> list[Row]:
    recipe, translator = run.recipe, run.trained
    pairs = recipe.examples("val")[: recipe.sentences]
    sources, targets = zip(*pairs, strict=True)
    with reasons() as stopped:
        found = search(translator, sources, recipe.beam, recipe.alpha)
    texts = [translator.tokenizer.decode(best.ids) for best in found]
    score = bleu(texts, targets, lowercase=True)
    said, wanted = (sum(len(text.split()) for text in side) for side in (texts, targets))
    row = {"bleu": score.value, "signature": score.signature, "length": said / wanted}
    row |= {"log_prob": sum(best.log_prob for best in found) / len(found)}
    return [row | {why: stopped[why] for why in ("bound", "given_up", "full")}]


BEAM_WIDTHS = Experiment(
    "One search of the shipped en-de translator over the first 500 validation pairs of Multi30k in "
    "a row. beam: width; alpha: of the length penalty. bleu: lower-cased. length: words of the "
    "translations / words of the references. log_prob: nats of a whole translation, mean over "
    "sentences. Why the searches stopped, in sentences: bound: no open beginning could enter the "
    "list any more; given_up: as many as the beam were finished and none would have entered as it "
    "stood, although a longer version might have; full: nothing was open.",
    searched,
    cells,
    NUMBERS | {"sentences": 3},
)


# --- search_tree ----------------------------------------------------------------------------------

SENTENCE = "A man is riding a bike."


def searched_tree(sentence: str = SENTENCE, width: int = 3, alpha: float = 1.0) -> list[Row]:
    "A row for each candidate of a search, and one for its end."
    translator, traces = load(NAME), []
    tok = translator.tokenizer
    (source,) = translator.encode([sentence])
    given = collate([(source, [])], pad_id=tok.pad_id, bos=tok.bos_id, eos=tok.eos_id)
    beam.beam_search(
        translator.model.double(),
        given.src,
        given.src_mask,
        bos=tok.bos_id,
        eos=tok.eos_id,
        max_len=2 * len(source) + 10,
        beam=width,
        alpha=alpha,
        sentence=beam.keep_traces(traces),
    )
    (trace,), rows = traces, []
    for step, candidates in enumerate(trace.steps, 1):
        for found in candidates:
            *before, last = found.ids
            text, whole = tok.decode(before), tok.decode(found.ids)
            piece = " </s>" if last == tok.eos_id else whole.removeprefix(text)
            score = found.log_prob / beam.length_penalty(step, alpha)
            rows.append({"ids": list(found.ids), "piece": piece, "fate": found.fate})
            rows[-1] |= {"log_prob": found.log_prob, "score": score}
    steps, open_ = len(trace.steps), trace.open[:1]
    could = trace.log_probs[0] / beam.length_penalty(trace.max_len, alpha) if open_ else None
    end = {"steps": steps, "why": trace.why, "max_len": trace.max_len, "bound": could}
    return [*rows, end]


SEARCH_TREE = Experiment(
    "The search of the shipped en-de translator for the sentence «A man is riding a bike.», beam "
    "3, alpha 1, in float64. A row for each candidate, in the order of steps and ranks: ids: the "
    "tokens of the beginning; piece: the text of the last; fate: open, finished, cut or dropped; "
    "log_prob: nats; score: over the length penalty, if it were finished. The last row: steps; "
    "why: the rule that stopped it; max_len: tokens; bound: the best score that an open beginning "
    "could have come to, null if none was open.",
    searched_tree,
    quick={"sentence": "A man.", "width": 2},
)


# --- temperatures ---------------------------------------------------------------------------------

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0)
TOP_PS = (0.2, 0.4, 0.6, 0.8, 0.9, 0.95)


def passages(ids: Tensor, number: int, length: int) -> Tensor:
    "Equally spaced beginnings in a text: number length."
    starts = torch.linspace(0, len(ids) - length, number).long().tolist()
    return torch.stack([ids[start : start + length] for start in starts])


@torch.inference_mode()
def nats(model: nn.Module, ids: Tensor, context: int) -> float:
    """Mean -log p of all that follows the first half context, as `stream` saw it: when the context
    is full, it goes on with the last half."""
    half = context // 2
    windows = ids.unfold(1, context + 1, half + 1).flatten(0, 1)
    log_p = model(windows[:, :-1]).log_softmax(-1)
    new = log_p.gather(-1, windows[:, 1:, None])[:, -half - 1 :]
    return -new.mean().item()


def repeated(words: list[str], n: int = 4) -> float:
    "The share of n-grams that stood in the text before."
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else math.nan


def properties(texts: list[str], known: set[str]) -> Row:
    "Means over the texts, which end at a word cut in two: it is left out."
    words = [text.split()[:-1] for text in texts]
    mean = {
        "repeated": [repeated(w) for w in words],
        "distinct": [len(set(w)) / len(w) for w in words],
        "known": [sum(x in known for x in w) / len(w) for w in words],
    }
    return {name: sum(values) / len(values) for name, values in mean.items()}


def written(
    model: str = "shakespeare",
    dataset: str = "tinyshakespeare",
    texts: int = 32,
    turns: int = 12,  # how often a full context is left for its last half
    seeds: int = 5,
    temperatures: Sequence[float] = TEMPERATURES,
    top_ps: Sequence[float] = TOP_PS,
) -> list[Row]:
    "A row for what people wrote, and one for each setting and seed."
    author = load(model)
    tok, context = author.tokenizer, author.model.config.max_len
    half, new = context // 2, turns * (context // 2 + 1)
    known = set(load_text(dataset, "train").split())
    real = passages(tok.encode_text(load_text(dataset, "val")), texts, half + new)
    rows = []

    def note(ids: Tensor, about: Row) -> None:
        said = [tok.decode(row) for row in ids[:, half:].tolist()]
        start = tok.decode(ids[0, :half].tolist())
        row = {"nats": nats(author.model, ids, context), **properties(said, known)}
        rows.append(about | row | {"text": [start, said[0]]})
        print(about, {name: round(value, 3) for name, value in row.items()}, flush=True)

    note(real, {"temperature": None, "top_p": None, "seed": 0})
    settings = [*((t, 1.0) for t in temperatures), *((1.0, p) for p in top_ps)]
    for (temperature, top_p), seed in product(settings, range(seeds)):
        generator = torch.Generator().manual_seed(seed)
        draw = {"temperature": temperature, "top_p": top_p, "generator": generator}
        more = generate(author.model, real[:, :half], max_new_tokens=new, max_len=context, **draw)
        about = {"temperature": temperature, "top_p": top_p, "seed": seed}
        note(torch.cat([real[:, :half], torch.tensor(more)], 1), about)
    return rows


WRITTEN = Experiment(
    "32 texts in a row: beginnings of 32 characters from the validation part of tiny Shakespeare, "
    "each gone on with for 396 characters, by the shipped model `shakespeare` at a temperature and "
    "a top_p, or (null) by Shakespeare. nats: mean -log p of a character under the model at "
    "temperature 1, from the context that it was drawn in. Means over texts: repeated: share of "
    "the 4-grams of words that stood in that text before; distinct: different words / words; "
    "known: share of words that occur in the training part. text: beginning and end of the first.",
    written,
    quick={
        "model": "stories",
        "dataset": "stories",
        "texts": 2,
        "turns": 2,
        "seeds": 1,
        "temperatures": (0.0,),
        "top_ps": (0.5,),
    },
)


# --- scores ---------------------------------------------------------------------------------------

# Written for this course: a source, and a translation of ours.
OURS = [
    ("A man is riding a bike.", "Ein Mann fährt Fahrrad."),
    ("Two dogs are running through the snow.", "Zwei Hunde rennen durch den Schnee."),
    (
        "A woman in a red dress is sitting on a bench.",
        "Eine Frau im roten Kleid sitzt auf einer Bank.",
    ),
    ("Three children are playing in the sand.", "Drei Kinder spielen im Sand."),
    ("A boy is jumping into the water.", "Ein Junge springt ins Wasser."),
    ("People are waiting for a train.", "Leute warten auf einen Zug."),
    ("A girl is reading a book under a tree.", "Ein Mädchen liest unter einem Baum ein Buch."),
    (
        "An old man is selling newspapers on the street.",
        "Ein alter Mann verkauft Zeitungen auf der Straße.",
    ),
    ("The parliament rejected the amendment.", "Das Parlament lehnte die Änderung ab."),
    ("Where did you put my keys?", "Wohin hast du meine Schlüssel gelegt?"),
]


def counts(found: str, reference: str) -> str:
    "What BLEU needs of a sentence: n-grams right and in all, n = 1 to 4; words said and wanted."
    score = BLEU(lowercase=True).corpus_score([found], [[reference]])
    pairs = [str(x) for pair in zip(score.counts, score.totals, strict=True) for x in pair]
    return " ".join([*pairs, str(score.sys_len), str(score.ref_len)])


def scored(dataset: str = "multi30k", split: str = "test_2016_flickr", most: int = 1000) -> list:
    "Two rows for the test sentences, and one for each of ours."
    translator, rows = load(NAME), []
    sources, targets = zip(*load_pairs(dataset, "en", "de", split)[:most], strict=True)
    for width in (1, 5):
        found = translator.translate(sources, beam=width)
        score = bleu(found, targets, lowercase=True)
        row = {"beam": width, "bleu": score.value, "signature": score.signature}
        rows.append(row | {"counts": [counts(*pair) for pair in zip(found, targets, strict=True)]})
    found = translator.translate([source for source, _ in OURS])
    for (source, reference), text in zip(OURS, found, strict=True):
        rows.append({"source": source, "reference": reference, "found": text})
    return rows


SCORED = Experiment(
    "The shipped en-de translator. beam: the 1,000 sentences of Multi30k's test set of 2016 with "
    "that width; bleu: lower-cased; counts: for each sentence the n-grams that are right and all "
    "of them, for n = 1, 2, 3, 4 in turn, then words said and words of the reference, lower-cased "
    "and cut by 13a. source, reference: written for this course; found: its translation, beam 5.",
    scored,
    quick={"dataset": "numbers", "split": "test", "most": 3},
)
