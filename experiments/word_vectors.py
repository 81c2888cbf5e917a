"""Four ways to learn word vectors, trained on the same words of the novels and scored three ways.

CBOW, skip-gram, GloVe and FastText read the first two million words, with three seeds. Scores:
WordSim-353 and SimLex-999 (Spearman's correlation with people's judgements), Google's analogies.
Beside them stand tables that were never trained, and skip-gram on less text. Two more records hold
neighbours, unseen words and a projection; a third compares a word with itself in other sentences,
as the encoder of the shipped translation model sees it. The methods are the chapter's own cells.
On one CPU core all of it takes about 15 minutes. `--quick` takes generated text, needs no data, and
stores nothing.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import transformer_lit
from transformer_lit.course.data import (
    load_analogies,
    load_text,
    load_word_pairs,
    number_in_english,
)
from transformer_lit.course.records import (
    Measurement,
    current_commit,
    device_name,
    read_measurement,
    write_record,
)
from transformer_lit.text.word_vectors import WordVectors

CHAPTER = Path(__file__).parents[1] / "nbs/text/03_word_vectors.ipynb"
CELLS = (
    "training-imports imports vocabulary sampling loss models ngrams fasttext glove training scores"
)


def chapter() -> SimpleNamespace:
    "What the chapter defines: its methods, their training and their scores."
    cells = {cell["id"]: cell for cell in json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]}
    names: dict[str, Any] = {"__name__": "chapter", "WordVectors": WordVectors}
    for name in CELLS.split():
        exec("".join(cells[name]["source"]), names)
    return SimpleNamespace(**names)


wv = chapter()

WORDS, SMALLER, SEEDS = 2_000_000, (250_000, 500_000, 1_000_000), (0, 1, 2)
MIN_COUNT, D_MODEL, EPOCHS, GLOVE_EPOCHS = 10, 100, 3, 8
BUCKETS = 2**15  # of FastText
PERMUTATIONS = 2_000
METHODS = ("cbow", "skipgram", "glove", "fasttext")
PAIRS = {"wordsim": "wordsim353", "simlex": "simlex999"}
LOOK_AT = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
RECORDS = Path(__file__).parents[1] / "results/measurements"


# --- training and scores ------------------------------------------------------------------------


def fit(
    method: str, ids: Tensor, vocabulary: Any, seed: int, **sizes: int
) -> tuple[Any, list[float]]:
    "Train one method; returns the model and its losses. Without epochs it stays as it was drawn."
    torch.manual_seed(seed)
    d_model, epochs = sizes["d_model"], sizes["epochs"]
    if method == "glove":
        model = wv.GloVe(len(vocabulary), d_model)
        pairs, counts = wv.cooccurrence(ids, len(vocabulary))
        return model, wv.train_glove(
            model, pairs, counts, epochs=sizes["glove_epochs"], batch=2**15, seed=seed
        )
    if method == "fasttext":
        model = wv.FastText(vocabulary.words, d_model, n_buckets=BUCKETS)
    else:
        model = {"cbow": wv.CBOW, "skipgram": wv.SkipGram}[method](len(vocabulary), d_model)
    if not epochs:
        return model, []
    return model, wv.train_windows(model, ids, vocabulary.counts, epochs=epochs, seed=seed)


def by_chance(x: Tensor, y: Tensor, permutations: int) -> tuple[float, float]:
    """How the rank correlation of shuffled judgements is distributed.

    Returns the 99th percentile of its absolute value, and p: the share of shufflings (with the real
    order as one of them) that reach the absolute value of the real order.
    """
    draw = torch.Generator().manual_seed(0)
    real = abs(wv.spearman(x, y))
    shuffled = [
        abs(wv.spearman(x, y[torch.randperm(len(y), generator=draw)])) for _ in range(permutations)
    ]
    reached = torch.tensor([real, *shuffled])
    return reached[1:].quantile(0.99).item(), (reached >= real - 1e-12).double().mean().item()


def with_unseen(model: Any, pairs: Iterable[tuple[str, str, float]]) -> dict[str, Any]:
    "The correlation over the pairs in which at least one word has no row of its own."
    known = set(model.words)
    rows = [(a.lower(), b.lower(), score) for a, b, score in pairs]
    rows = [row for row in rows if not {row[0], row[1]} <= known]
    with torch.no_grad():
        cosines = [
            float(F.cosine_similarity(model.vector_of(a), model.vector_of(b), dim=0))
            for a, b, _ in rows
        ]
    judged = torch.tensor([score for *_, score in rows])
    return {"unseen": wv.spearman(torch.tensor(cosines), judged), "unseen_pairs": len(rows)}


def nearest_to_third(vectors: WordVectors, questions: Sequence[tuple[str, ...]]) -> float:
    "The share right when the first two words of each question are not used."
    low = [[word.lower() for word in question] for question in questions]
    rows = [[vectors.index[w] for w in row] for row in low if all(w in vectors for w in row)]
    right = 0
    for some in torch.tensor(rows).split(256):
        cosines = vectors.unit[some[:, 2]] @ vectors.unit.T
        right += int((cosines.scatter(1, some[:, :3], -2).argmax(1) == some[:, 3]).sum())
    return right / len(rows)


def scores(
    vectors: WordVectors, model: Any, lists: dict[str, Any], permutations: int
) -> dict[str, Any]:
    "All scores of one table."
    row: dict[str, Any] = {}
    for key, name in PAIRS.items():
        cosines, judged = wv.judged_pairs(vectors, lists[name])
        row |= {key: wv.spearman(cosines, judged), f"{key}_pairs": len(judged)}
        row |= {f"{key}_listed": len(lists[name])}
        row |= zip((f"{key}_chance", f"{key}_p"), by_chance(cosines, judged, permutations))
        if isinstance(model, wv.FastText):
            row |= {f"{key}_{k}": v for k, v in with_unseen(model, lists[name]).items()}
    asked, answer = lists["analogies"], wv.answer_analogies
    groups = {name: answer(vectors, questions) for name, questions in asked.items()}
    questions = [question for group in asked.values() for question in group]
    right = torch.cat(list(groups.values()))
    return row | {
        "analogies": right.float().mean().item(),
        "analogies_asked": len(right),
        "analogies_listed": len(questions),
        "analogies_all": answer(vectors, questions, exclude=False).float().mean().item(),
        "analogies_without_a_and_b": nearest_to_third(vectors, questions),
        "groups": {name: [int(r.sum()), len(r)] for name, r in groups.items() if len(r)},
    }


def measure(
    words: Sequence[str],
    method: str,
    seed: int,
    lists: dict[str, Any],
    *,
    min_count: int,
    permutations: int,
    **sizes: int,
) -> tuple[dict[str, Any], Any, WordVectors]:
    "Train, score, and describe one table."
    vocabulary = wv.Vocabulary.build(words, min_count)
    ids = vocabulary.encode(words)
    start = time.process_time()
    trained = method.removeprefix("untrained ")
    if method == "untrained":
        torch.manual_seed(seed)
        model, losses = None, []
        vectors = WordVectors(vocabulary.words, torch.randn(len(vocabulary), sizes["d_model"]))
    else:
        epochs = 0 if trained != method else sizes["epochs"]
        model, losses = fit(trained, ids, vocabulary, seed, **{**sizes, "epochs": epochs})
        vectors = WordVectors(vocabulary.words, model.vectors())
    row = {
        "method": method,
        "seed": seed,
        "words": len(words),
        "vocab_size": len(vocabulary),
        "d_model": sizes["d_model"],
        "minutes": (time.process_time() - start) / 60,
        "first_loss": sum(losses[:50]) / len(losses[:50]) if losses else None,
        "last_loss": sum(losses[-50:]) / len(losses[-50:]) if losses else None,
    }
    return row | scores(vectors, model, lists, permutations), model, vectors


# --- what to look at ----------------------------------------------------------------------------


def neighbours(method: str, model: Any, vectors: WordVectors) -> list[dict[str, Any]]:
    "The nearest words of some seen words, and with wv.FastText of some unseen ones."
    queries = [(word, word) for word in LOOK_AT["look_up"] if word in vectors]
    if isinstance(model, wv.FastText):
        with torch.no_grad():
            unseen = [word for word in LOOK_AT["unseen"] if word not in vectors]
            queries += [(word, model.vector_of(word)) for word in unseen]
    return [
        {
            "method": method,
            "word": word,
            "seen": word in vectors,
            "nearest": [[w, round(c, 4)] for w, c in vectors.nearest(query, 6)],
        }
        for word, query in queries
    ]


def projection(vectors: WordVectors) -> list[dict[str, Any]]:
    "Chosen words on their first two principal axes."
    chosen = {word: group for group, words in LOOK_AT["groups"].items() for word in words.split()}
    chosen = {word: group for word, group in chosen.items() if word in vectors}
    unit = torch.stack([vectors.unit[vectors.index[word]] for word in chosen])
    centred = unit - unit.mean(0)
    _, sizes, axes = torch.linalg.svd(centred, full_matrices=False)
    flat = centred @ axes[:2].T
    flat *= flat[flat.abs().argmax(0), [0, 1]].sign()  # the largest entry of an axis is positive
    cosines = unit @ unit.T - 2 * torch.eye(len(unit))
    groups = list(chosen.values())
    kin = [[groups[j] == groups[i] for j in row.topk(3).indices] for i, row in enumerate(cosines)]
    return [
        {
            "word": word,
            "group": groups[i],
            "x": flat[i, 0].item(),
            "y": flat[i, 1].item(),
            "explained": ((sizes[:2] ** 2).sum() / (sizes**2).sum()).item(),
            "kin": sum(kin[i]) / 3,
        }
        for i, word in enumerate(chosen)
    ]


# --- static against contextual ------------------------------------------------------------------


def layers_of(translator: Any, sentence: str, word: str) -> tuple[Tensor, Tensor]:
    "The word's token embedding, and its vector after each encoder layer: C, and L+1 C."
    model, tokenizer = translator.model, translator.tokenizer
    begin = sentence.lower().index(word)
    spans = tokenizer.backend.encode(sentence)
    inside = [i for i, (a, b) in enumerate(spans.offsets) if a < begin + len(word) and b > begin]
    x = model.embed(torch.tensor([spans.ids]))
    table = model.tok_emb(torch.tensor([spans.ids]))[0, inside].mean(0)
    states = [x]
    for layer in model.encoder:
        states.append(layer(states[-1], mask=None))
    states[-1] = model.encoder_norm(states[-1])
    return table, torch.stack([state[0, inside].mean(0) for state in states])


def senses(translator: Any) -> list[dict[str, Any]]:
    "Cosines of each word with itself in other sentences, by layer."
    rows = []
    for word, sides in LOOK_AT["senses"].items():
        both = [sentence for side in sides for sentence in side]
        with torch.no_grad():
            tables, states = zip(*(layers_of(translator, s, word) for s in both), strict=True)
        tables, states = torch.stack(tables), torch.stack(states)
        lowest = F.cosine_similarity(tables[:, None], tables[None], dim=-1).min().item()
        for layer in range(states.shape[1]):
            unit = F.normalize(states[:, layer], dim=-1)
            cosines = unit @ unit.T
            within, between = split(cosines, tuple(range(5)))
            others = itertools.combinations(range(1, 10), 4)
            gaps = [a - b for a, b in (split(cosines, (0, *some)) for some in others)]
            rows.append(
                {
                    "word": word,
                    "layer": layer,
                    "within": within,
                    "between": between,
                    "splits_as_good": sum(g >= within - between - 1e-9 for g in gaps) / len(gaps),
                    "static": lowest,
                    "sentences": [both[0], both[5]],
                }
            )
    return rows


def split(cosines: Tensor, half: tuple[int, ...]) -> tuple[float, float]:
    "Mean cosine inside both halves, and between them."
    first = torch.tensor([i in half for i in range(len(cosines))])
    same = first[:, None] == first[None]
    different = ~torch.eye(len(cosines), dtype=torch.bool)
    return cosines[same & different].mean().item(), cosines[~same].mean().item()


# --- the command --------------------------------------------------------------------------------


def generated() -> tuple[list[str], dict[str, Any]]:
    "Numbers in words, with judgements and questions of the right form."
    torch.manual_seed(0)
    numbers = torch.randint(100_000, (500,)).tolist()
    words = wv.split_words(" ".join(map(number_in_english, numbers)))
    pairs = [("two", "three", 9.0), ("two", "ninety", 2.0), ("eleven", "Twelve", 8.0)]
    pairs += [("two", "twofold", 7.0), ("sixty", "sixtieth", 8.0)]  # each with an unseen word
    questions = {"made": [("two", "twenty", "three", "thirty"), ("one", "ten", "six", "sixty")]}
    return words, {"wordsim353": pairs, "simlex999": pairs, "analogies": questions}


def read() -> tuple[list[str], dict[str, Any]]:
    "The words of the novels, and what people say of words."
    lists: dict[str, Any] = {name: load_word_pairs(name) for name in PAIRS.values()}
    words = wv.split_words(load_text("novels", "train"))[:WORDS]
    return words, lists | {"analogies": load_analogies()}


def record(folder: str | Path, name: str, rows: list[dict[str, Any]]) -> None:
    "Write one record anew, which says of itself what it said, and say where."
    about = read_measurement(RECORDS / f"{name}.json").about
    command, device = "python -m experiments.word_vectors", device_name(torch.device("cpu"))
    found = Measurement(name, about, command, current_commit(), device, torch.__version__, rows)
    print("written:", write_record(folder, found))


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    "Train, print a line for each table, and store the records unless `--quick`."
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="generated text; stores nothing")
    parser.add_argument("--out", default=RECORDS, help="folder of the records")
    options = parser.parse_args(argv)
    contextual = senses(transformer_lit.load("multi30k-en-de"))
    words, lists = generated() if options.quick else read()
    sizes = {"d_model": D_MODEL, "epochs": EPOCHS, "glove_epochs": GLOVE_EPOCHS}
    sizes |= {"min_count": MIN_COUNT, "permutations": PERMUTATIONS}
    seeds, smaller = SEEDS, SMALLER
    if options.quick:
        sizes |= {"d_model": 8, "epochs": 1, "glove_epochs": 1, "min_count": 2, "permutations": 20}
        seeds, smaller = (0,), (1_000,)
    rows, near, flat = [], [], []

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        print(f"{row['method']:<20} seed {row['seed']} {row['words']:>9,} words", end=" ")
        print(*(f"{key} {row[key]:.3f}" for key in (*PAIRS, "analogies", "minutes")), flush=True)

    for seed in seeds:
        for method in (*METHODS, "untrained", "untrained fasttext"):
            row, model, vectors = measure(words, method, seed, lists, **sizes)
            keep(row)
            if method == "glove":  # the same training, without the second table
                one = WordVectors(vectors.words, model.input)
                found = scores(one, None, lists, sizes["permutations"])
                keep({**row, "method": "glove, one table", **found})
            if seed == 0 and method in METHODS:
                near += neighbours(method, model, vectors)
            if seed == 0 and method == "skipgram":
                flat = projection(vectors)
        for size in smaller if seed == 0 else ():
            keep(measure(words[:size], "skipgram", seed, lists, **sizes)[0])
    records = {"": rows, "_neighbours": near, "_projection": flat, "_contextual": contextual}
    for name, found in records.items() if not options.quick else ():
        record(options.out, f"word_vectors{name}", found)
    return rows


if __name__ == "__main__":
    main()
