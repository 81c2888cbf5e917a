"""Four ways to learn word vectors, trained on the same words of the novels and scored three ways.

CBOW, skip-gram, GloVe and FastText read the first two million words, with three seeds. Scores:
WordSim-353 and SimLex-999 (Spearman's correlation with people's judgements), Google's analogies.
Beside them stand tables that were never trained, and skip-gram on less text. Two more records hold
neighbours, unseen words and a projection; a third compares a word with itself in other sentences,
as the encoder of the shipped translation model sees it. On one CPU core all of it takes about 15
minutes. `--quick` takes generated text, needs no data, and stores nothing.
"""

import itertools
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import transformer_lit
from benchmarks.common import command_line, store
from transformer_lit.base.datasets import (
    load_analogies,
    load_text,
    load_word_pairs,
    number_in_english,
)
from transformer_lit.text.word_vectors import (
    CBOW,
    FastText,
    GloVe,
    SkipGram,
    Vocabulary,
    WordVectors,
    answer_analogies,
    cooccurrence,
    judged_pairs,
    spearman,
    split_words,
    train_glove,
    train_windows,
)

WORDS, SMALLER, SEEDS = 2_000_000, (250_000, 500_000, 1_000_000), (0, 1, 2)
MIN_COUNT, D_MODEL, EPOCHS, GLOVE_EPOCHS = 10, 100, 3, 8
BUCKETS = 2**15  # of FastText
PERMUTATIONS = 2_000
METHODS = ("cbow", "skipgram", "glove", "fasttext")
PAIRS = {"wordsim": "wordsim353", "simlex": "simlex999"}
ABOUT = {
    "word_vectors": (
        "A trained table of word vectors in a row; method untrained: random vectors, untrained "
        "fasttext: random n-grams; glove, one table: the input table alone. words: running words "
        "read. vocab_size: words with a vector. "
        "minutes: of processor time for training, one thread. first_loss, last_loss: mean over "
        "50 steps. wordsim, simlex: Spearman's correlation over the _pairs whose words have "
        "vectors; _chance: the 99th percentile of its absolute value over 2,000 shufflings of "
        "the judgements; _p: the share of them that reach the value of the real order; _unseen: "
        "the same correlation over the _unseen_pairs with a word that "
        "has no vector of its own (FastText). analogies: share of right answers to the questions "
        "whose four words have vectors; _all: with the question's words allowed as answers; "
        "_without_a_and_b: the answer is the word nearest to the third. groups: right and asked."
    ),
    "word_vectors_neighbours": (
        "A word in a row: the words nearest to it, with cosines. seen: whether it has a vector of "
        "its own; an unseen word gets one from its n-grams. Seed 0."
    ),
    "word_vectors_projection": (
        "A chosen word in a row, skip-gram, seed 0. x, y: its unit vector on the first two "
        "principal axes of the chosen words. explained: the share of variance of both axes. "
        "kin: which share of the three nearest of the chosen words, in all dimensions, is of its "
        "group."
    ),
    "word_vectors_contextual": (
        "A word and an encoder layer in a row; layer 0 is embedding plus position. One form of a "
        "word in ten sentences, five for each of two senses. within, between: mean cosine of two "
        "sentences with one sense and with two. splits_as_good: the share of the 126 ways to "
        "split the ten in halves that has a gap at least as large. static: the lowest cosine of "
        "the token's embedding, without position, with itself."
    ),
}
GROUPS = {
    "numbers": "two three four five six seven eight nine ten",
    "family": "father mother brother sister son daughter uncle aunt husband wife",
    "body": "hand arm head eyes face lips mouth hair shoulder fingers",
    "movement": "ran walked rode hurried went turned moved stepped rushed came",
    "food": "bread wine tea dinner supper breakfast meat beer coffee",
}
LOOK_UP = ("man", "woman", "riding", "king", "three", "happy", "bread", "quickly", "london")
UNSEEN = ("bike", "unkindliest", "overhurriedly", "thirtyfold", "smilingness", "housemaster")
SENSES = {
    "glasses": (
        "A man with glasses reads a book.|An old woman wearing glasses looks at the camera.|"
        "The boy with the glasses is smiling.|A girl in glasses sits at a desk.|"
        "Two men with beards and glasses are talking.",
        "People drink wine from glasses at a table.|A waiter carries glasses of beer on a tray.|"
        "Two glasses of water stand on the table.|A woman fills the glasses with juice.|"
        "Friends at a bar raise their glasses.",
    ),
    "rock": (
        "A man climbs a rock.|A boy jumps from a rock into the water.|"
        "A woman sits on a large rock near the river.|A dog stands on a rock.|"
        "Two hikers rest on a rock in the mountains.",
        "A rock band plays on stage.|A man sings at a rock concert.|"
        "Two rock musicians play the guitar.|A crowd is watching a rock show.|"
        "A young rock star holds a microphone.",
    ),
    "stand": (
        "Two men stand in the street.|Several people stand near a bus.|"
        "Three women stand on a beach.|Children stand in front of a school.|"
        "Many people stand and wait for a train.",
        "A woman sells fruit at a stand.|A man buys food from a stand.|"
        "A vegetable stand at a market.|A boy works at a lemonade stand.|"
        "People walk past a hot dog stand.",
    ),
    "watch": (
        "Two boys watch a game.|People watch a man on a stage.|"
        "A family sits on a sofa to watch television.|Children watch the fish in the water.|"
        "A crowd gathers to watch the parade.",
        "A man looks at his watch.|A woman wears a gold watch.|"
        "A man with a black watch is eating.|The watch on his wrist is silver.|"
        "A boy with a blue watch plays chess.",
    ),
    "light": (
        "A man is reading under a light.|The light shines on the stage.|"
        "A car stops at a red light.|A woman stands in front of a bright light.|"
        "A worker repairs a street light.",
        "A man in a light blue shirt walks.|A woman with light brown hair smiles.|"
        "A boy in a light green jacket runs.|A dog with light fur plays in the grass.|"
        "A girl wears a light pink dress.",
    ),
    "slide": (
        "A child is on a slide.|A boy goes down a yellow slide.|"
        "A girl plays on the slide at a playground.|A toddler climbs up a slide.|"
        "A water slide at a swimming pool.",
        "Two children slide down a hill.|Baseball players slide into the base.|"
        "Boys slide on the ice.|Two people slide down the snow.|"
        "Kids slide across the wet grass.",
    ),
    "swing": (
        "A little girl sits on a swing.|A boy plays on a swing in the park.|"
        "A mother pushes her child on a swing.|A baby laughs in a swing.|"
        "A swing hangs from a tree.",
        "Two men swing their bats.|Players swing at the ball.|"
        "Children swing from a rope.|Two women swing their arms while dancing.|"
        "Golfers swing their clubs on the grass.",
    ),
    "pool": (
        "Children are swimming in a pool.|A boy jumps into the pool.|"
        "A woman sits at the edge of a pool.|A man dives into a pool of water.|"
        "A girl floats in a blue pool.",
        "Two men are playing pool in a bar.|A woman plays pool with a friend.|"
        "A man leans over a pool table.|A man plays a game of pool.|"
        "A man aims at a ball on the pool table.",
    ),
}


# --- training and scores ------------------------------------------------------------------------


def fit(
    method: str, ids: Tensor, vocabulary: Vocabulary, seed: int, **sizes: int
) -> tuple[torch.nn.Module, list[float]]:
    "Train one method; returns the model and its losses. Without epochs it stays as it was drawn."
    torch.manual_seed(seed)
    d_model, epochs = sizes["d_model"], sizes["epochs"]
    if method == "glove":
        model = GloVe(len(vocabulary), d_model)
        pairs, counts = cooccurrence(ids, len(vocabulary))
        return model, train_glove(
            model, pairs, counts, epochs=sizes["glove_epochs"], batch=2**15, seed=seed
        )
    if method == "fasttext":
        model = FastText(vocabulary.words, d_model, n_buckets=BUCKETS)
    else:
        model = {"cbow": CBOW, "skipgram": SkipGram}[method](len(vocabulary), d_model)
    if not epochs:
        return model, []
    return model, train_windows(model, ids, vocabulary.counts, epochs=epochs, seed=seed)


def by_chance(x: Tensor, y: Tensor, permutations: int) -> tuple[float, float]:
    """How the rank correlation of shuffled judgements is distributed.

    Returns the 99th percentile of its absolute value, and p: the share of shufflings (with the real
    order as one of them) that reach the absolute value of the real order.
    """
    draw = torch.Generator().manual_seed(0)
    real = abs(spearman(x, y))
    shuffled = [
        abs(spearman(x, y[torch.randperm(len(y), generator=draw)])) for _ in range(permutations)
    ]
    reached = torch.tensor([real, *shuffled])
    return reached[1:].quantile(0.99).item(), (reached >= real - 1e-12).double().mean().item()


def with_unseen(model: FastText, pairs: Iterable[tuple[str, str, float]]) -> dict[str, Any]:
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
    return {"unseen": spearman(torch.tensor(cosines), judged), "unseen_pairs": len(rows)}


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
    vectors: WordVectors, model: torch.nn.Module | None, lists: dict[str, Any], permutations: int
) -> dict[str, Any]:
    "All scores of one table."
    row: dict[str, Any] = {}
    for key, name in PAIRS.items():
        cosines, judged = judged_pairs(vectors, lists[name])
        row |= {key: spearman(cosines, judged), f"{key}_pairs": len(judged)}
        row |= {f"{key}_listed": len(lists[name])}
        row |= zip((f"{key}_chance", f"{key}_p"), by_chance(cosines, judged, permutations))
        if isinstance(model, FastText):
            row |= {f"{key}_{k}": v for k, v in with_unseen(model, lists[name]).items()}
    groups = {
        name: answer_analogies(vectors, questions) for name, questions in lists["analogies"].items()
    }
    questions = [q for group in lists["analogies"].values() for q in group]
    right = torch.cat(list(groups.values()))
    return row | {
        "analogies": right.float().mean().item(),
        "analogies_asked": len(right),
        "analogies_listed": len(questions),
        "analogies_all": answer_analogies(vectors, questions, exclude=False).float().mean().item(),
        "analogies_without_a_and_b": nearest_to_third(vectors, questions),
        "groups": {name: [int(r.sum()), len(r)] for name, r in groups.items() if len(r)},
    }


def table_of(model: torch.nn.Module, vocabulary: Vocabulary) -> WordVectors:
    "The vectors of a model, by word."
    return WordVectors(vocabulary.words, model.vectors())


def measure(
    words: Sequence[str],
    method: str,
    seed: int,
    lists: dict[str, Any],
    *,
    min_count: int = MIN_COUNT,
    permutations: int = PERMUTATIONS,
    **sizes: int,
) -> tuple[dict[str, Any], torch.nn.Module, WordVectors]:
    "Train, score, and describe one table."
    vocabulary = Vocabulary.build(words, min_count)
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
        vectors = table_of(model, vocabulary)
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


def neighbours(method: str, model: torch.nn.Module, vectors: WordVectors) -> list[dict[str, Any]]:
    "The nearest words of some seen words, and with FastText of some unseen ones."
    queries = [(word, word) for word in LOOK_UP if word in vectors]
    if isinstance(model, FastText):
        with torch.no_grad():
            unseen = [word for word in UNSEEN if word not in vectors]
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
    chosen = {word: group for group, words in GROUPS.items() for word in words.split()}
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
    for word, sentences in SENSES.items():
        both = [sentence for side in sentences for sentence in side.split("|")]
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
    words = split_words(" ".join(map(number_in_english, numbers)))
    pairs = [("two", "three", 9.0), ("two", "ninety", 2.0), ("eleven", "Twelve", 8.0)]
    questions = {"made": [("two", "twenty", "three", "thirty"), ("one", "ten", "six", "sixty")]}
    unseen = [("two", "twofold", 7.0), ("sixty", "sixtieth", 8.0)]
    lists = {"wordsim353": pairs + unseen, "simlex999": pairs + unseen, "analogies": questions}
    return words, lists


def record(folder: str | Path, name: str, rows: list[dict[str, Any]]) -> None:
    "Write one record and say where."
    store(name, ABOUT[name], "python -m benchmarks.word_vectors", rows, folder)


def show(row: dict[str, Any]) -> None:
    "A line of the table."
    print(
        f"{row['method']:<20}{row['seed']:>3}{row['words']:>11,}{row['wordsim']:>9.3f}"
        f"{row['simlex']:>8.3f}{row['analogies']:>8.1%}{row['minutes']:>7.1f}",
        flush=True,
    )


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    "Train, print a table, and store the records unless `--quick`."
    parser = command_line(__doc__, quick="a small run on generated text")
    options = parser.parse_args(argv)
    translator = transformer_lit.load("multi30k-en-de")
    if not options.quick:
        record(options.out, "word_vectors_contextual", senses(translator))
    sizes = {"d_model": D_MODEL, "epochs": EPOCHS, "glove_epochs": GLOVE_EPOCHS}
    extra: dict[str, int] = {}
    seeds: Sequence[int] = SEEDS
    if options.quick:
        words, lists = generated()
        sizes = {"d_model": 8, "epochs": 1, "glove_epochs": 1}
        extra, seeds, smaller = {"min_count": 2, "permutations": 20}, [0], (1_000,)
    else:
        words = split_words(load_text("novels", "train"))[:WORDS]
        lists = {name: load_word_pairs(name) for name in PAIRS.values()}
        lists["analogies"] = load_analogies()
        smaller = SMALLER
    print(
        f"{'method':<20}{'seed':>3}{'words':>10}{'WordSim':>9}{'SimLex':>8}{'analog.':>8}{'min':>7}"
    )
    rows = []
    for seed in seeds:
        near = []
        for method in (*METHODS, "untrained", "untrained fasttext"):
            row, model, vectors = measure(words, method, seed, lists, **extra, **sizes)
            rows.append(row)
            show(row)
            if method == "glove":  # the same training, without the second table
                vectors_in = WordVectors(vectors.words, model.input)
                alone = scores(vectors_in, None, lists, extra.get("permutations", PERMUTATIONS))
                rows.append({**row, "method": "glove, one table", **alone})
                show(rows[-1])
            if seed == 0 and method in METHODS:
                near += neighbours(method, model, vectors)
            if seed == 0 and method == "skipgram":
                flat = projection(vectors)
        for size in smaller if seed == 0 else ():
            rows.append(measure(words[:size], "skipgram", seed, lists, **extra, **sizes)[0])
            show(rows[-1])
        if not options.quick:
            record(options.out, "word_vectors", rows)  # again after each seed
            if seed == 0:
                record(options.out, "word_vectors_neighbours", near)
                record(options.out, "word_vectors_projection", flat)
    if options.quick:
        rows[0]["contextual"] = senses(translator)[:2]
    return rows


if __name__ == "__main__":
    main()
