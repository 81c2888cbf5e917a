"""What a two-layer model learns from repeated rows, and what each head of the translator does."""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.runner import Cell, Experiment, Row, Variant
from transformer_lit import load
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.course.data import load_pairs
from transformer_lit.inference.metrics import bleu
from transformer_lit.models.interpret import (
    attentions,
    copy_losses,
    cut,
    head_outputs,
    induction_score,
    random_repeats,
    repeat_rows,
    watch,
    weight_at,
)
from transformer_lit.recipes.translation import Translator
from transformer_lit.training.data import PairBatch, TextBatch, fixed_batches
from transformer_lit.training.run import Run

# --- induction heads ----------------------------------------------------------------------------

SEEDS, DEPTHS, PERIOD = range(5), (2, 1), 16
SYMBOLS = "".join(map(chr, range(ord("A"), ord("A") + 32)))


class Repeats:
    "Batches of such rows without end; `position` is the number of the next one."

    def __init__(self, seed: int, *sizes: int):
        self.seed, self.sizes, self.position = seed, sizes, (0,)

    def batch(self, number: int) -> TextBatch:
        "The batch of that number."
        vocab_size, batch_size, length = self.sizes
        seed = self.seed * 1_000_003 + number
        ids = random_repeats(vocab_size, batch_size, length + 1, seed=seed)
        return TextBatch(ids[:, :-1], ids[:, 1:])

    def __iter__(self) -> Iterator[TextBatch]:
        while True:
            (number,) = self.position
            self.position = (number + 1,)
            yield self.batch(number)


@dataclass(frozen=True, kw_only=True)
class Repetition(Variant):
    "A language model of random rows that repeat; no text is read."

    def examples(self, split: str, *, progressbar: bool = False) -> str:
        "The symbols."
        return SYMBOLS

    def stream(self, tokenizer: Any, examples: str, seed: int) -> Repeats:
        "Rows of random symbols, each with a period of its own."
        return Repeats(seed, tokenizer.vocab_size, self.batch_size, self.length)

    def batches(self, tokenizer: Any, examples: str) -> list[TextBatch]:
        "A few of such batches, of a seed that no training has."
        stream = self.stream(tokenizer, examples, 997)
        return [stream.batch(number) for number in range(2)]


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "The model of the chapter and one with a layer less, on the same batches."
    sizes = {"d_model": 64, "n_heads": 4, "d_ff": 128}
    for seed, depth in product(SEEDS, DEPTHS):
        recipe = Repetition(
            dataset="book",  # named, never read
            model="assembly",
            sizes={**sizes, "n_layers": depth},
            length=2 * PERIOD,
            batch_size=32,
            steps=300,
            warmup=30,
            lr=1e-2,
            every=300,
            betas=(0.9, 0.98),
            weight_decay=0.0,
        )
        yield Cell({"layers": depth, "seed": seed}, recipe, seed)


def twice(count: int = 64) -> Tensor:
    "The rows on which all are measured: random symbols, and then the same once more."
    fixed = torch.Generator().manual_seed(0)
    rows = torch.randint(len(SYMBOLS), (count, PERIOD), generator=fixed)
    return repeat_rows(rows, torch.full((count,), PERIOD), 2 * PERIOD)


@torch.no_grad()
def scores(model: nn.Module, ids: Tensor) -> Row:
    "By layer and head the two scores, and the loss on both copies."
    with watch(model) as seen:
        first, second = copy_losses(model, ids, PERIOD)
    return {
        "induction": [induction_score(w, PERIOD).tolist() for w in seen.values()],
        "previous": [weight_at(w, 1).tolist() for w in seen.values()],
        "first": first.mean().item(),
        "second": second.mean().item(),
    }


def highest(table: list[list[float]]) -> float:
    return max(max(row) for row in table)


def cut_rows(model: nn.Module, ids: Tensor) -> Iterator[Row]:
    "What each head is, and what goes when it is cut, once to zero and once to its mean."
    whole = scores(model, ids)
    with torch.no_grad(), head_outputs(model) as seen:
        model(ids)
    for layer, (name, attention) in enumerate(attentions(model).items()):
        usual = seen[name].mean((0, 2))  # H D
        for head in range(len(usual)):
            row = {"layer": layer + 1, "head": head + 1}
            row |= {key: whole[key][layer][head] for key in ("induction", "previous")}
            for way, instead in (("zero", None), ("mean", usual)):
                with cut(attention, [head], instead=instead):
                    left = scores(model, ids)
                row |= {
                    f"{way}_first": left["first"] - whole["first"],
                    f"{way}_second": left["second"] - whole["second"],
                    f"{way}_left": highest(left["induction"][1:] or left["induction"]),
                }
            yield row


def measure(run: Run) -> list[Row]:
    "Points of the training, and then the heads."
    model, ids, rows = run.trained.model, twice(), []

    def look(step: int) -> None:
        found = scores(model.eval(), ids)
        model.train()
        best = {key: highest(found[key]) for key in ("induction", "previous")}
        losses = {key: found[key] for key in ("first", "second")}
        rows.append({"kind": "point", "step": step, **best, **losses})

    look(0)
    run.train(lambda log: look(log.step) if log.step % 10 == 0 else None)
    rows += [{"kind": "head", **row} for row in cut_rows(model, ids)]
    return [{k: round(x, 4) if isinstance(x, float) else x for k, x in r.items()} for r in rows]


INDUCTION = Experiment(
    "A training of a small Llama (width 64, 4 heads, one or two layers, 32 symbols) on random rows "
    "of 32 ids that repeat with a period of 4 to 16: 300 steps of 32 rows. All is measured on 64 "
    "random rows of 16 ids that stand there twice. kind point: at a step, the highest score of a "
    "head. induction: mean weight from t to t − 15, t from 16 on; previous: mean weight from t to "
    "t − 1. first, second: loss on each copy, without its first token, nats per token. kind head: "
    "at the end, by layer and head from 1, its scores, and what is added to both losses when it "
    "alone is cut to zero, or to its mean answer over the rows; left: the highest induction score "
    "of the second layer (of the first where it is the only one) after the cut.",
    measure,
    cells,
    {"steps": 10, "every": 10, "warmup": 1},
)

# --- the translator's heads ---------------------------------------------------------------------

MODEL = "multi30k-en-de"
TOGETHER = (12, 24)  # heads that are cut at once, the cheapest first


def word_table(pairs: Sequence[tuple[list[int], list[int]]], rounds: int = 10) -> dict[int, float]:
    """t(f | e) of IBM Model 1 by expectation maximisation; the key is e · 2¹⁶ + f.

    It knows words and no order, and nothing of the translator. e = −1 is the empty word.
    """
    cells, groups, group = [], [], 0
    for source, target in pairs:
        e, f = torch.tensor([-1, *source]), torch.tensor(target)
        cells.append((e[None, :] * 2**16 + f[:, None]).flatten())
        groups.append((group + torch.arange(len(f))).repeat_interleave(len(e)))
        group += len(f)
    keys, place = torch.cat(cells).unique(return_inverse=True)
    owner, of = torch.cat(groups), torch.div(keys, 2**16, rounding_mode="floor") + 1
    table = torch.ones(len(keys), dtype=torch.float64)
    for _ in range(rounds):
        share = table[place]
        share = share / torch.zeros(group, dtype=share.dtype).index_add(0, owner, share)[owner]
        count = torch.zeros_like(table).index_add(0, place, share)
        total = torch.zeros(int(of.max()) + 1, dtype=share.dtype).index_add(0, of, count)
        table = count / total[of]
    return dict(zip(keys.tolist(), table.tolist(), strict=True))


def partners(table: dict[int, float], source: list[int], target: list[int]) -> list[int]:
    "For each target token the place of the source token that explains it best; −1: none does."
    found = []
    for f in target:
        chances = [table.get(e * 2**16 + f, 0.0) for e in (-1, *source)]
        found.append(chances.index(max(chances)) - 1)
    return found


def places(batch: PairBatch, links: list[list[int]]) -> dict[str, dict[str, Tensor]]:
    "By part of the translator and by name, the keys that a query may have in mind: B T S."
    B, S = batch.src.shape
    T = batch.tgt_in.shape[1]
    lengths = (batch.src != 0).sum(1)  # the end token counts
    longest = batch.tgt_mask.sum(1)
    s, t = torch.arange(S), torch.arange(T)
    end = (s == lengths[:, None] - 1)[:, None]
    aligned = torch.zeros(B, T, S, dtype=torch.bool)
    for row, link in enumerate(links):
        for place, partner in enumerate(link):
            if partner >= 0:
                aligned[row, place, partner] = True
    behind = F.pad(aligned, (0, 0, 1, 0))[:, :-1]  # the token that was just read
    slope = (lengths - 1) / (longest - 1).clamp(min=1)
    diagonal = s == (t[:, None] * slope[:, None, None]).round()

    def shifted(n: int, offset: int) -> Tensor:
        return torch.eye(n + 2, dtype=torch.bool)[1:-1].roll(offset, 1)[:, 1:-1].expand(B, n, n)

    return {
        "encoder": {
            "previous": shifted(S, -1),
            "own": shifted(S, 0),
            "next": shifted(S, 1),
            "end": end.expand(B, S, S),
        },
        "decoder": {
            "previous": shifted(T, -1),
            "own": shifted(T, 0),
            "begin": (t == 0).expand(B, T, T),
        },
        "cross": {
            "aligned": aligned,
            "aligned_behind": behind,
            "diagonal": diagonal,
            "end": end.expand(B, T, S),
        },
    }


NAMES = ("previous", "own", "next", "begin", "end", "aligned", "aligned_behind", "diagonal")


class Habits:
    "Running means of where heads look, over real queries; one for each attention."

    def __init__(self) -> None:
        self.sums: dict[str, Any] = {}

    def add(
        self, weights: Tensor, chosen: dict[str, Tensor], queries: Tensor, visible: Tensor
    ) -> None:
        "weights B H T S; queries B T, and visible B T S or broadcast to it: what is real."
        rows = {"entropy": -torch.special.xlogy(weights, weights).sum(-1)}  # B H T
        counted = {"entropy": queries & (visible.sum(-1) > 1)}
        rows["entropy"] = rows["entropy"] / visible.sum(-1).clamp(min=2).log()[:, None]
        for name, keys in chosen.items():
            keys = keys & visible
            rows[name] = (weights * keys[:, None]).sum(-1)
            counted[name] = queries & keys.any(-1)
        for name, values in rows.items():
            total, count = self.sums.get(name, (0.0, 0))
            keep = counted[name][:, None]
            self.sums[name] = total + (values * keep).sum((0, 2)).double(), count + keep.sum()

    def means(self) -> dict[str, Tensor]:
        "H for each name."
        return {name: total / count for name, (total, count) in self.sums.items()}


def part_of(name: str) -> tuple[str, int]:
    "`decoder.2.cross_attn` -> cross, 3."
    stack, layer, kind = name.split(".")
    return ("cross" if kind == "cross_attn" else stack), int(layer) + 1


@torch.inference_mode()
def habits(model: nn.Module, batches: Sequence[tuple[PairBatch, list[list[int]]]]) -> Iterator[Row]:
    "A row for each head, and one for each part with even weights, as the control."
    found: dict[str, Habits] = {}
    for batch, links in batches:
        chosen = places(batch, links)
        real = batch.src != 0
        T = batch.tgt_in.shape[1]
        sight = {
            "encoder": (real, real[:, None]),
            "decoder": (batch.tgt_mask, torch.ones(T, T, dtype=torch.bool).tril()[None]),
            "cross": (batch.tgt_mask, real[:, None]),
        }
        with watch(model) as seen:
            model(batch.src, batch.tgt_in, batch.src_mask)
        for name, weights in seen.items():
            part, _ = part_of(name)
            queries, visible = sight[part]
            visible = visible.expand(len(weights), *weights.shape[2:])
            found.setdefault(name, Habits()).add(weights, chosen[part], queries, visible)
        for part, (queries, visible) in sight.items():
            even = visible.expand(len(queries), queries.shape[1], -1)
            even = even / even.sum(-1, keepdim=True)
            entry = found.setdefault(f"even.0.{part}", Habits())
            entry.add(even[:, None], chosen[part], queries, even > 0)
    for name, habit in found.items():
        means = habit.means()
        shares = {key: means[key].tolist() if key in means else None for key in ("entropy", *NAMES)}
        part, layer = (name.split(".")[2], 0) if name.startswith("even") else part_of(name)
        for head in range(len(means["entropy"])):
            row = {key: x[head] if x else None for key, x in shares.items()}
            yield {"part": part, "layer": layer, "head": 0 if layer == 0 else head + 1, **row}


@torch.inference_mode()
def sentence_losses(model: nn.Module, batches: Sequence[tuple[PairBatch, Any]]) -> Tensor:
    "The summed loss of each sentence, in the order of the batches."
    found = []
    for batch, _ in batches:
        hidden = model.hidden(batch.src, batch.tgt_in, batch.src_mask)
        logits = model.lm_head(hidden[batch.tgt_mask])
        losses = F.cross_entropy(logits, batch.tgt_out[batch.tgt_mask], reduction="none")
        owner = batch.tgt_mask.nonzero()[:, 0]
        found.append(torch.zeros(len(batch.src)).index_add(0, owner, losses))
    return torch.cat(found).double()


def added(usual: Tensor, without: Tensor, tokens: int) -> dict[str, float]:
    "What is added to the loss per token, and the standard error over sentences."
    differences = without - usual
    error = differences.std().item() * math.sqrt(len(differences)) / tokens
    return {"added": differences.sum().item() / tokens, "error": error}


def greedy_bleu(translator: Translator, pairs: Sequence[tuple[str, str]]) -> float:
    sources, references = zip(*pairs, strict=True)
    found = translator.translate(sources, beam=1)
    return bleu(found, list(references), lowercase=True).value


def linked(translator: Translator, dataset: str, split: str, learned: int | None) -> Any:
    "The pairs of a split, and their batches, with the partner of each target token."
    splits = [load_pairs(dataset, "en", "de", name)[:learned] for name in ("train", split)]
    sides = [
        [translator.tokenizer.encode_all(s) for s in zip(*some, strict=True)] for some in splits
    ]
    ids = [list(zip(*some, strict=True)) for some in sides]
    table, special = word_table(ids[0]), translator.tokenizer
    special = {"pad_id": special.pad_id, "bos": special.bos_id, "eos": special.eos_id}
    batches = []
    for batch in fixed_batches(ids[1], 1500, **special):
        rows = [row[row != 0][:-1].tolist() for row in batch.src]
        says = [row[keep][:-1].tolist() for row, keep in zip(batch.tgt_out, batch.tgt_mask)]
        links = [partners(table, *pair) for pair in zip(rows, says, strict=True)]
        batches.append((batch, links))
    return splits[1], batches


def cut_together(heads: Sequence[tuple[MultiHeadAttention, int]]) -> ExitStack:
    "Open a cut of each."
    stack = ExitStack()
    for attention, head in heads:
        stack.enter_context(cut(attention, [head]))
    return stack


def look(
    dataset: str = "multi30k", split: str = "test_2016_flickr", learned: int | None = None
) -> list[Row]:
    "A row for each head and for each control, and a row for each cut of several."
    translator = load(MODEL)
    model = translator.model
    pairs, batches = linked(translator, dataset, split, learned)
    tokens = sum(int(batch.tgt_mask.sum()) for batch, _ in batches)
    usual = sentence_losses(model, batches)
    rows = [{"kind": "head", **row} for row in habits(model, batches)]
    places = {part_of(name): attention for name, attention in attentions(model).items()}
    costs = {}
    for row in rows:
        row |= {"added": None, "error": None}
        if row["layer"]:
            attention = places[row["part"], row["layer"]]
            with cut(attention, [row["head"] - 1]):
                row |= added(usual, sentence_losses(model, batches), tokens)
            costs[row["part"], row["layer"], row["head"]] = row["added"]
            print(row["part"], row["layer"], row["head"], f"{row['added']:.4f}", flush=True)
    order = sorted(costs, key=costs.get)
    groups = {"none": [], "the costliest": order[-1:]}
    groups |= {f"the {n} cheapest": order[:n] for n in TOGETHER}
    for name, group in groups.items():
        with cut_together([(places[p, layer], head - 1) for p, layer, head in group]):
            row = added(usual, sentence_losses(model, batches), tokens)
            row |= {"bleu": greedy_bleu(translator, pairs)}
        about = {
            "kind": "group",
            "cut": name,
            "heads": len(group),
            "loss": usual.sum().item() / tokens,
        }
        rows.append(about | row | {"sentences": len(pairs), "tokens": tokens})
    return [{k: round(x, 4) if isinstance(x, float) else x for k, x in r.items()} for r in rows]


TRANSLATOR_HEADS = Experiment(
    f"kind head: a head of the shipped {MODEL} over all of Multi30k's test set of 2016, with the "
    "human translation as target; layers and heads from 1, layer 0 is the control, even weights "
    "over all that a query may see. entropy: of the weights, divided by that of even ones. "
    "previous, own, next, begin, end: mean weight on that position. aligned, aligned_behind: on "
    "the source token that IBM Model 1, learned from the training pairs, gives as partner of the "
    "token that is said, or of the one that was just read; diagonal: on the position that is as "
    "far into its sentence. added: nats per target token that the loss grows by when the head "
    "alone is cut to zero; error: standard error over sentences. kind group: several cut at once; "
    "loss: of the whole model, nats per token; bleu: greedy, lower-cased, sacreBLEU 13a.",
    look,
    quick={"dataset": "numbers", "split": "test", "learned": 5},
)
