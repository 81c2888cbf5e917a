"""Word vectors: the losses, the methods, what they learn, and how they are scored."""

import itertools
import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from benchmarks import word_vectors as benchmark
from transformer_lit.base.datasets import load_text, load_word_pairs, number_pairs
from transformer_lit.text.word_vectors import (
    CBOW,
    FastText,
    GloVe,
    SkipGram,
    Vocabulary,
    WordVectors,
    answer_analogies,
    character_ngrams,
    context_windows,
    cooccurrence,
    glove_loss,
    hash_bucket,
    judged_pairs,
    keep_probability,
    negative_sampling_loss,
    noise_distribution,
    spearman,
    split_words,
    train_glove,
    train_windows,
)

P, W, C, N, V = 5, 6, 7, 11, 13


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


# --- words and counts ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A man is riding a bike.", ["a", "man", "is", "riding", "a", "bike"]),
        ("Don’t -- 'twas 1847, Élan_x!", ["don't", "twas", "élan", "x"]),
        ("twenty-one", ["twenty", "one"]),
        ("…42 ?", []),
    ],
)
def test_words_are_runs_of_letters(text, words):
    assert split_words(text) == words


def test_vocabulary_is_in_order_of_counts_then_of_the_alphabet():
    vocabulary = Vocabulary.build(["b", "a", "c", "a", "b", "d", "d", "d"], min_count=2)
    assert vocabulary.words == ["d", "a", "b"] and vocabulary.counts.tolist() == [3, 2, 2]
    assert len(vocabulary) == 3
    assert vocabulary.encode(["b", "c", "d", "?"]).tolist() == [2, 0]  # the others vanish
    assert vocabulary.encode([]).dtype == torch.long


def test_vocabulary_of_nothing():
    with pytest.raises(ValueError, match="none of 2 words occurs 3 times"):
        Vocabulary({"a": 2, "b": 1}, min_count=3)


def test_frequent_words_are_thinned_and_rare_ones_kept():
    counts = torch.tensor([900, 90, 9, 1])
    expected = [math.sqrt(0.01 / 0.9), math.sqrt(0.01 / 0.09), 1.0, 1.0]
    assert_close(keep_probability(counts, 0.01), torch.tensor(expected))


@pytest.mark.parametrize("power", [0, 0.75, 1])
def test_noise_is_counts_to_a_power(power):
    counts = torch.tensor([16, 1, 81])
    weights = [16**power, 1, 81**power]
    assert_close(
        noise_distribution(counts, power), torch.tensor([w / sum(weights) for w in weights])
    )


@pytest.mark.parametrize("window", [1, 2, 3, 17])
def test_windows_are_the_neighbours_up_to_each_width(window):
    ids, positions = torch.randint(V, (11,)), torch.tensor([0, 4, 10, 9, 4])
    widths = torch.randint(1, window + 1, (5,))
    contexts, real = context_windows(ids, positions, widths, window)
    assert contexts.shape == real.shape == (5, 2 * window)
    for row, mask, at, width in zip(contexts, real, positions, widths, strict=True):
        near = [ids[i] for i in range(max(0, at - width), min(11, at + width + 1)) if i != at]
        assert row[mask].tolist() == near
    assert ((contexts >= 0) & (contexts < V)).all()  # what is masked can still be looked up


def test_a_window_has_a_size():
    with pytest.raises(ValueError, match="not 0"):
        context_windows(torch.arange(3), torch.arange(3), torch.ones(3).long(), 0)


# --- negative sampling --------------------------------------------------------------------------


def log_sigmoid(x):
    return -math.log1p(math.exp(-x))


def loss_in_loops(inputs, outputs, real, negatives, k):
    terms = []
    for p, w in real.nonzero().tolist():
        noise = sum(log_sigmoid(-float(inputs[p] @ n)) for n in negatives) / len(negatives)
        terms.append(-log_sigmoid(float(inputs[p] @ outputs[p, w])) - k * noise)
    return torch.tensor(sum(terms) / len(terms))


def batch():
    parts = torch.randn(P, C), torch.randn(P, W, C), torch.rand(P, W) < 0.6, torch.randn(N, C)
    parts[2][1] = False  # a window without neighbours
    return parts


@pytest.mark.parametrize("k", [0, 1, 5, 2.5])
def test_loss_is_that_of_the_loops(k):
    parts = batch()
    assert_close(negative_sampling_loss(*parts, k), loss_in_loops(*parts, k))


def test_loss_is_cross_entropy_of_real_or_drawn():
    "k = N: each pair has the N negatives as its own, as in the paper."
    inputs, outputs, real, negatives = batch()
    total = 0.0
    for p, w in real.nonzero().tolist():
        scores = torch.cat([outputs[p, w][None], negatives]) @ inputs[p]
        answers = torch.eye(1 + N)[0]
        total += F.binary_cross_entropy_with_logits(scores, answers, reduction="sum")
    loss = negative_sampling_loss(inputs, outputs, real, negatives, N)
    assert_close(loss, total / real.sum())


def test_loss_gradient():
    inputs, outputs, real, negatives = batch()
    tables = [x.double().requires_grad_() for x in (inputs, outputs, negatives)]
    assert torch.autograd.gradcheck(
        lambda v, u, n: negative_sampling_loss(v, u, real, n), tables, fast_mode=True
    )
    negative_sampling_loss(tables[0], tables[1], real, tables[2]).backward()
    assert (tables[1].grad[~real] == 0).all() and (tables[0].grad[1] == 0).all()


def test_loss_without_a_pair():
    inputs, outputs, real, negatives = batch()
    with pytest.raises(ValueError, match=r"\(5, 6\)"):
        negative_sampling_loss(inputs, outputs, real & False, negatives)


@pytest.mark.parametrize("score", [-1000.0, 1000.0])
def test_loss_of_extreme_scores_is_finite(score):
    v, u = torch.tensor([[score]]), torch.tensor([[[1.0]]])
    loss = negative_sampling_loss(v, u, torch.tensor([[True]]), torch.tensor([[-1.0]]))
    assert loss.isfinite() and loss >= 0


# --- the methods --------------------------------------------------------------------------------


def windows():
    ids = torch.randint(V, (19,))
    positions = torch.arange(P)
    contexts, real = context_windows(ids, positions, torch.randint(1, 4, (P,)), 3)
    return ids[positions], contexts, real, torch.randint(V, (N,))


def filled(model):
    "Output tables begin at zero, where all losses are equal: fill them."
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


def test_skip_gram_predicts_neighbours_from_the_word():
    model, (centres, contexts, real, negatives) = filled(SkipGram(V, C)), windows()
    expected = negative_sampling_loss(
        model.input[centres], model.output[contexts], real, model.output[negatives], 5
    )
    assert_close(model(centres, contexts, real, negatives), expected)
    assert_close(model.vectors(), model.input)


def test_cbow_predicts_the_word_from_the_mean_of_its_neighbours():
    model, (centres, contexts, real, negatives) = filled(CBOW(V, C)), windows()
    real[2] = False  # this window asks nothing
    rows = [p for p in range(P) if p != 2]
    means = torch.stack([model.input[contexts[p][real[p]]].mean(0) for p in rows])
    expected = negative_sampling_loss(
        means,
        model.output[centres[rows]][:, None],
        torch.ones(len(rows), 1, dtype=torch.bool),
        model.output[negatives],
        3,
    )
    assert_close(model(centres, contexts, real, negatives, 3), expected)


def test_fresh_tables_know_nothing():
    model, parts = SkipGram(V, C), windows()
    assert_close(model(*parts, 5), torch.tensor(6 * math.log(2)))
    assert model.input.abs().max() <= 0.5 / C


@pytest.mark.parametrize(("sizes", "message"), [((1, C), "1, 7"), ((V, 0), "13, 0")])
@pytest.mark.parametrize("method", [SkipGram, CBOW, GloVe])
def test_sizes_that_cannot_work(method, sizes, message):
    with pytest.raises(ValueError, match=message):
        method(*sizes)


WORDS = ["bike", "biker", "riding", "a", "ride"]


def test_ngrams_have_marks_at_both_ends():
    assert character_ngrams("ride", 3, 4) == ["<ri", "rid", "ide", "de>", "<rid", "ride", "ide>"]
    assert character_ngrams("a") == ["<a>"] and character_ngrams("a", 4, 6) == []
    assert len(character_ngrams("riding", 3, 6)) == 6 + 5 + 4 + 3


@pytest.mark.parametrize(("shortest", "longest"), [(0, 3), (4, 3)])
def test_ngrams_have_lengths(shortest, longest):
    with pytest.raises(ValueError, match=f"{shortest} and {longest}"):
        character_ngrams("ride", shortest, longest)


@pytest.mark.parametrize(
    ("text", "value"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)]
)
def test_hash_has_its_published_values(text, value):
    assert hash_bucket(text, 2**32) == value and hash_bucket(text, 101) == value % 101


def fasttext(**options):
    return FastText(WORDS, C, n_buckets=101, **options)


def bag(model, word):
    own = [WORDS.index(word)] if word in WORDS else []
    return own + [len(WORDS) + hash_bucket(g, 101) for g in character_ngrams(word, *model.lengths)]


@pytest.mark.parametrize("lengths", [{}, {"shortest": 2, "longest": 4}, {"shortest": 4}])
def test_fasttext_vector_is_the_mean_over_a_word_and_its_ngrams(lengths):
    model = fasttext(**lengths)
    expected = torch.stack([model.input[bag(model, word)].mean(0) for word in WORDS])
    assert_close(model.vectors(), expected)
    some = torch.tensor([3, 0, 3, 4])
    assert_close(model.vectors(some), expected[some])
    for word, vector in zip(WORDS, expected, strict=True):
        assert_close(model.vector_of(word), vector)


def test_fasttext_gives_a_vector_to_an_unseen_word():
    model = fasttext()
    assert_close(model.vector_of("rides"), model.input[bag(model, "rides")].mean(0))
    with pytest.raises(ValueError, match=r"'a'.*\(4, 6\)"):
        FastText(["bike", "ride"], C, n_buckets=101, shortest=4).vector_of("a")


def test_fasttext_is_skip_gram_over_its_vectors():
    model, (_, _, real, _) = filled(fasttext()), windows()
    centres, contexts = torch.randint(5, (P,)), torch.randint(5, real.shape)
    negatives = torch.randint(5, (N,))
    expected = negative_sampling_loss(
        model.vectors()[centres], model.output[contexts], real, model.output[negatives]
    )
    assert_close(model(centres, contexts, real, negatives), expected)


def test_fasttext_needs_a_bucket():
    with pytest.raises(ValueError, match="not 0"):
        FastText(WORDS, C, n_buckets=0)


METHODS = {
    "skip-gram": lambda: SkipGram(V, C),
    "cbow": lambda: CBOW(V, C),
    "fasttext": lambda: FastText([f"word{'s' * i}" for i in range(V)], C, n_buckets=101),
}


@pytest.mark.parametrize(
    ("ids", "named"),
    [
        ([0, V], "V=13: 13"),
        ([-1, 3, V + 4, -1], "V=13: -1, 17"),
        (range(-12, 1), "V=13: -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, …"),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_ids_outside_the_vocabulary_have_no_vector(method, ids, named):
    with pytest.raises(ValueError, match=f"{named}$"):
        METHODS[method]().vectors(torch.tensor(ids))
    assert METHODS[method]().vectors(torch.tensor([V - 1, 0])).shape == (2, C)


@pytest.mark.parametrize("wrong", [-1, V])
@pytest.mark.parametrize("part", [0, 1, 3])  # centres, contexts, negatives
@pytest.mark.parametrize("method", METHODS)
def test_ids_outside_the_vocabulary_have_no_loss(method, part, wrong):
    model, parts = METHODS[method](), windows()
    assert model(*parts).isfinite()
    parts[part].view(-1)[0] = wrong
    with pytest.raises(ValueError, match=f"V=13: {wrong}$"):
        model(*parts)


@pytest.mark.parametrize("wrong", [-1, V])
def test_ids_outside_the_vocabulary_are_not_counted_or_trained(wrong):
    ids, other = torch.tensor([0, wrong, 2]), torch.tensor([1, 2, 0])
    model = GloVe(V, C)
    for ask in (
        lambda: model(ids, other),
        lambda: model(other, ids),
        lambda: cooccurrence(ids, V),
        lambda: train_windows(SkipGram(V, C), ids, torch.ones(V, dtype=torch.long)),
    ):
        with pytest.raises(ValueError, match=f"V=13: {wrong}$"):
            ask()


# --- GloVe --------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 2, 5, 40])
def test_counts_are_those_of_a_double_loop(window):
    ids = torch.randint(V, (31,))
    expected = Counter()
    for i, j in itertools.permutations(range(31), 2):
        if abs(i - j) <= window:
            expected[int(ids[i]), int(ids[j])] += 1 / abs(i - j)
    pairs, counts = cooccurrence(ids, V, window)
    assert {tuple(pair) for pair in pairs.T.tolist()} == set(expected)
    assert_close(counts, torch.tensor([expected[i, j] for i, j in pairs.T.tolist()]))


def test_counts_need_neighbours():
    with pytest.raises(ValueError, match="not 0"):
        cooccurrence(torch.arange(5), V, 0)
    with pytest.raises(ValueError, match="1 words"):
        cooccurrence(torch.tensor([3]), V)


def test_glove_loss_is_weighted_least_squares_on_logarithms():
    scores, counts = torch.randn(5), torch.tensor([0.5, 3.0, 10.0, 11.0, 500.0])
    weights = [(x / 10) ** 0.75 if x < 10 else 1 for x in counts.tolist()]
    squares = [
        (s - math.log(x)) ** 2 for s, x in zip(scores.tolist(), counts.tolist(), strict=True)
    ]
    expected = sum(w * s for w, s in zip(weights, squares, strict=True)) / 5
    assert_close(glove_loss(scores, counts, 10), torch.tensor(expected))
    scores = scores.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: glove_loss(s, counts.double()), scores)


def test_glove_score_is_a_product_and_two_biases():
    model = filled(GloVe(V, C))
    i, j = torch.randint(V, (2, N))
    for score, a, b in zip(model(i, j), i, j, strict=True):
        expected = model.input[a] @ model.output[b] + model.input_bias[a] + model.output_bias[b]
        assert_close(score, expected)
    assert_close(model.vectors(), model.input + model.output)


# --- training -----------------------------------------------------------------------------------

ONES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
SETTINGS = {"window": 2, "threshold": 0.1, "shared": 67, "batch": 509, "epochs": 3}


@pytest.fixture(scope="module")
def text():
    words = split_words(" ".join(english for english, _ in number_pairs("train")[:4000]))
    vocabulary = Vocabulary.build(words)
    return vocabulary, vocabulary.encode(words)


def kinds_are_found(vocabulary, table):
    vectors = WordVectors(vocabulary.words, table)
    right = sum(vectors.nearest(word, 1)[0][0] in kind for kind in (ONES, TENS) for word in kind)
    return right / (len(ONES) + len(TENS))


@pytest.mark.parametrize(
    "make",
    [
        lambda words: SkipGram(len(words), 17),
        lambda words: CBOW(len(words), 17),
        lambda words: FastText(words, 17, n_buckets=499),
    ],
    ids=["skip-gram", "CBOW", "FastText"],
)
def test_training_finds_kinds_of_words(make, text):
    vocabulary, ids = text
    model = make(vocabulary.words)
    curve = train_windows(model, ids, vocabulary.counts, **SETTINGS)
    assert curve[0] == pytest.approx(6 * math.log(2)) and curve[-1] < 0.75 * curve[0]
    assert kinds_are_found(vocabulary, model.vectors()) > 0.8


def test_glove_finds_kinds_of_words(text):
    vocabulary, ids = text
    pairs, counts = cooccurrence(ids, len(vocabulary), 2)
    model = GloVe(len(vocabulary), 7)
    curve = train_glove(model, pairs, counts, epochs=60, batch=67, lr=0.3)
    assert sum(curve[-13:]) < 0.02 * sum(curve[:13])
    assert kinds_are_found(vocabulary, model.input) > 0.8


def test_skip_gram_learns_pointwise_mutual_information(text):
    vocabulary, ids = text
    model = SkipGram(len(vocabulary), 31)
    train_windows(model, ids, vocabulary.counts, **{**SETTINGS, "threshold": 1.0, "epochs": 4})
    # a drawn width of 1 or 2 counts the second neighbour half, as 1/d does
    pairs, counts = cooccurrence(ids, len(vocabulary), 2)
    total = torch.zeros(len(vocabulary)).index_add_(0, pairs[0], counts)
    noise = noise_distribution(vocabulary.counts)
    predicted = (counts / total[pairs[0]] / noise[pairs[1]] / 5).log()
    learned = (model.input[pairs[0]] * model.output[pairs[1]]).sum(1).detach()
    often = counts > 20
    assert torch.corrcoef(torch.stack([predicted, learned])[:, often])[0, 1] > 0.9
    assert (predicted - learned)[often].abs().median() < 0.2  # the level too: k and the noise


def test_a_seed_decides_training_whatever_else_is_drawn(text):
    vocabulary, ids = text
    curves = []
    for other, seed in ((1, 0), (2, 0), (3, 5)):
        torch.manual_seed(0)
        model = SkipGram(len(vocabulary), 5)
        torch.manual_seed(other)
        curves.append(
            train_windows(model, ids[:999], vocabulary.counts, epochs=1, batch=97, seed=seed)
        )
    assert curves[0] == curves[1] != curves[2]


@pytest.mark.parametrize(("epochs", "batch", "steps"), [(1, 100, 10), (3, 999, 3), (2, 998, 4)])
def test_an_epoch_visits_every_place_once(epochs, batch, steps, text):
    vocabulary, ids = text
    seen = []

    class Spy(SkipGram):
        def forward(self, centres, contexts, real, negatives, n_negatives=5):
            seen.append(centres)
            return super().forward(centres, contexts, real, negatives, n_negatives)

    options = {"epochs": epochs, "batch": batch, "threshold": 1.0}
    curve = train_windows(Spy(len(vocabulary), 3), ids[:999], vocabulary.counts, **options)
    assert len(curve) == len(seen) == steps
    visits = torch.cat(seen).bincount(minlength=len(vocabulary))
    assert visits.tolist() == (epochs * ids[:999].bincount(minlength=len(vocabulary))).tolist()


def test_glove_epoch_visits_every_pair_once(text):
    vocabulary, ids = text
    pairs, counts = cooccurrence(ids, len(vocabulary), 2)
    model = GloVe(len(vocabulary), 3)
    with torch.no_grad():
        before = glove_loss(model(*pairs), counts, 50).item()
    assert train_glove(model, pairs, counts, x_max=50, epochs=1, batch=10**6) == [
        pytest.approx(before)
    ]
    assert len(train_glove(model, pairs, counts, epochs=3, batch=101)) == 3 * math.ceil(
        len(counts) / 101
    )


# --- vectors and scores -------------------------------------------------------------------------


@pytest.fixture
def vectors():
    return WordVectors([f"w{i}" for i in range(V)], torch.randn(V, C))


def test_nearest_is_in_order_of_cosines(vectors):
    cosines = F.cosine_similarity(vectors.matrix[4][None], vectors.matrix, dim=1)
    order = [i for i in cosines.argsort(descending=True).tolist() if i != 4]
    found = vectors.nearest("w4", 5)
    assert [word for word, _ in found] == [f"w{i}" for i in order[:5]]
    assert_close(torch.tensor([c for _, c in found]), cosines[order[:5]])
    by_vector = vectors.nearest(3 * vectors.vector("w4"), 2, without=["w4"])
    assert [word for word, _ in by_vector] == [f"w{i}" for i in order[:2]]
    assert vectors.nearest(vectors.vector("w4"), 1)[0][0] == "w4"
    assert len(vectors.nearest("w4", 99)) == V - 1
    assert vectors.similarity("w4", "w7") == pytest.approx(cosines[7].item(), abs=1e-6)
    assert "w4" in vectors and "bike" not in vectors and len(vectors) == V


def test_analogy_is_nearest_to_the_sum_without_the_question(vectors):
    a, b, c = vectors.unit[[2, 3, 5]]
    cosines = vectors.unit @ F.normalize(b - a + c, dim=0)
    order = [i for i in cosines.argsort(descending=True).tolist() if i not in (2, 3, 5)]
    assert [w for w, _ in vectors.analogy("w2", "w3", "w5", 4)] == [f"w{i}" for i in order[:4]]


def test_length_of_vectors_does_not_matter_but_is_kept(vectors):
    lengths = torch.rand(V, 1) + 0.1
    scaled = WordVectors(vectors.words, lengths * vectors.matrix)
    assert scaled.analogy("w1", "w2", "w3")[0][0] == vectors.analogy("w1", "w2", "w3")[0][0]
    assert_close(scaled.vector("w2"), lengths[2] * vectors.vector("w2"))


def test_words_and_rows_must_fit(vectors):
    with pytest.raises(ValueError, match="2 words, 2 different, 3 rows"):
        WordVectors(["a", "b"], torch.randn(3, C))
    with pytest.raises(ValueError, match="2 words, 1 different, 2 rows"):
        WordVectors(["a", "a"], torch.randn(2, C))
    for ask in (vectors.vector, vectors.nearest, lambda w: vectors.analogy("w1", "w2", w)):
        with pytest.raises(ValueError, match=r"'bike'.*13"):
            ask("bike")
    assert not WordVectors(["a", "b"], torch.randn(2, C, requires_grad=True)).matrix.requires_grad


@pytest.mark.parametrize("levels", [2, 5, 1000])  # few levels: many ties
def test_spearman_is_the_correlation_of_mean_ranks(levels):
    x, y = torch.randint(levels, (2, 29)).float()

    def ranks(values):
        return [sum(b < a for b in values) + (sum(b == a for b in values) + 1) / 2 for a in values]

    a, b = (torch.tensor(ranks(values.tolist())).double() for values in (x, y))
    assert spearman(x, y) == pytest.approx(torch.corrcoef(torch.stack([a, b]))[0, 1].item())


def test_spearman_sees_the_order_alone():
    x = torch.randn(17)
    assert spearman(x, x.exp()) == pytest.approx(1) and spearman(x, -(x**3)) == pytest.approx(-1)
    assert math.isnan(spearman(x, torch.ones(17)))
    with pytest.raises(ValueError, match="17 and 16"):
        spearman(x, x[1:])
    with pytest.raises(ValueError, match="1 and 1"):
        spearman(x[:1], x[:1])


def test_pairs_are_scored_where_both_words_are_known(vectors):
    pairs = [("W1", "w2", 3), ("w1", "bike", 9), ("w3", "w3", 10)]  # whole numbers will do
    cosines, judged = judged_pairs(vectors, pairs)
    assert_close(cosines, torch.tensor([vectors.similarity("w1", "w2"), 1.0]))
    assert judged.tolist() == [3.0, 10.0]


def test_answers_are_those_of_analogy():
    vectors = WordVectors([f"w{i}" for i in range(V)], torch.randn(V, 3))
    questions = [tuple(f"w{i}" for i in row) for row in torch.randint(V, (601, 4)).tolist()]
    questions = [q for q in questions if len(set(q)) == 4]  # over two batches of 256
    right = answer_analogies(vectors, [*questions, ("w1", "w2", "bike", "w3")])
    expected = [vectors.analogy(a, b, c)[0][0] == d for a, b, c, d in questions]
    assert right.tolist() == expected and any(expected)


def test_answers_may_be_words_of_the_question_if_nothing_is_barred():
    "The third word is the usual answer to a question whose first two are alike."
    vectors = WordVectors(["man", "woman", "king", "queen"], torch.eye(4) + 2)
    questions = [("Man", "woman", "king", "queen")]
    assert answer_analogies(vectors, questions).tolist() == [True]  # nothing else is left
    assert answer_analogies(vectors, questions, exclude=False).tolist() == [False]
    assert answer_analogies(vectors, [("a", "b", "c", "d")]).shape == (0,)


@pytest.mark.real_data
def test_real_text_trains_and_covers_a_part_of_the_lists():
    words = split_words(load_text("tinyshakespeare", "train")[:300_000])
    vocabulary = Vocabulary.build(words)
    model = CBOW(len(vocabulary), 23)
    curve = train_windows(model, vocabulary.encode(words), vocabulary.counts, epochs=1)
    assert sum(curve[-5:]) / 5 < 0.9 * curve[0]
    pairs = load_word_pairs("wordsim353")
    cosines, judged = judged_pairs(WordVectors(vocabulary.words, model.vectors()), pairs)
    known = [p for p in pairs if {p[0].lower(), p[1].lower()} <= set(vocabulary.words)]
    assert 3 < len(cosines) == len(judged) == len(known) < len(pairs)


# --- the benchmark ------------------------------------------------------------------------------


def test_benchmark_runs(tmp_path, capsys):
    rows = benchmark.main(["--quick", "--out", str(tmp_path)])
    methods = [row["method"] for row in rows]
    assert set(benchmark.METHODS) < set(methods) and len(capsys.readouterr().out.split("\n")) > 8
    assert all(-1 <= row["wordsim"] <= 1 and row["wordsim_pairs"] == 3 for row in rows)
    unseen = {row["method"]: row.get("wordsim_unseen_pairs") for row in rows}
    assert unseen["fasttext"] == 2 and unseen["cbow"] is None  # twofold and sixtieth
    assert not list(tmp_path.iterdir())


def test_chance_knows_order_from_none():
    x = torch.randn(61)
    limit, p = benchmark.by_chance(x, x.exp(), 400)
    assert 0.2 < limit < 0.5 and p == pytest.approx(1 / 401)  # 99 %: about 2.6 / √60
    _, p = benchmark.by_chance(torch.arange(61.0), torch.tensor([1.0, 0.0] * 30 + [1.0]), 400)
    assert p > 0.1


def test_nearest_to_third_uses_the_third_word_alone():
    matrix = torch.tensor([[1.0, 0], [0, 1], [-1, 0.1], [-1, 0.2], [0.5, 0.5]])
    vectors = WordVectors(["a", "b", "c", "d", "e"], matrix)
    questions = [("a", "b", "c", "d"), ("a", "b", "c", "e"), ("a", "b", "?", "e")]
    assert benchmark.nearest_to_third(vectors, questions) == 0.5


def test_split_means():
    unit = F.normalize(torch.randn(7, 3), dim=1)
    cosines, half = unit @ unit.T, (0, 2, 3)
    within, between = benchmark.split(cosines, half)
    pairs = list(itertools.combinations(range(7), 2))
    same = [cosines[i, j] for i, j in pairs if (i in half) == (j in half)]
    other = [cosines[i, j] for i, j in pairs if (i in half) != (j in half)]
    assert within == pytest.approx(float(sum(same) / len(same)), abs=1e-6)
    assert between == pytest.approx(float(sum(other) / len(other)), abs=1e-6)


def test_every_sentence_holds_its_word_and_the_senses_are_balanced():
    for word, sides in benchmark.SENSES.items():
        assert [len(side.split("|")) for side in sides] == [5, 5]
        assert all(word in split_words(s) for side in sides for s in side.split("|"))
