"""Filters and draws against exact probabilities; rows of a batch against each alone."""

import math
from collections import Counter
from itertools import combinations, pairwise

import pytest
import torch

from transformer_lit.inference.sampling import (
    LeftPadded,
    Sampling,
    generate,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    next_token,
    pad_left,
    penalise_repeats,
    stream,
    until,
)
from transformer_lit.models.assembly import POSITIONS, AssemblyConfig, assemble

INF = math.inf


def kept(logits):
    return logits.isfinite().nonzero().flatten().tolist()


# --- filters: the sets of the definitions are compared in the chapter ----------------------------

ROW = torch.tensor([1.0, -INF, 0.5, -INF, 0.2])


@pytest.mark.parametrize(
    ("cut", "x", "left"),
    [
        (lambda x: keep_top_k(x, 2), torch.tensor([1.0, 3.0, 1.0, 0.0, 1.0]), [0, 1, 2, 4]),  # ties
        (lambda x: keep_top_k(x, 100), torch.zeros(3), [0, 1, 2]),
        (lambda x: keep_top_p(x, 2.5 / 1009), torch.zeros(1009), [0, 1, 2]),  # the lower ids
        (lambda x: keep_top_p(x, 1e-300), torch.tensor([0.5, 2.0, 2.0, -1.0]), [1]),
        (lambda x: keep_top_p(x, 1e-300), torch.tensor([0.5, 2.0, 2.0, -1.0]).bfloat16(), [1]),
        # with the 8 bits of bfloat16 a running sum of 2^-12 misses the half
        (lambda x: keep_top_p(x, 0.5), torch.zeros(4096).bfloat16(), [*range(2048)]),
        (lambda x: keep_top_k(x, 4), ROW, [0, 2, 4]),  # what is cut already stays cut
        (lambda x: keep_top_p(x, 0.999999), ROW, [0, 2, 4]),
        (lambda x: keep_min_p(x, 0.1), ROW, [0, 2, 4]),
        (lambda x: keep_min_p(x, 1), torch.tensor([1.0, 3.0, 3.0]), [1, 2]),
        (lambda x: keep_min_p(x, 0.1), torch.full((3,), -INF), []),
    ],
)
def test_what_a_filter_keeps_it_keeps_as_it_was(cut, x, left):
    for rows in (x, torch.stack([x, x])):
        out = cut(rows)
        assert all(kept(row) == left for row in out.view(-1, len(x)))
        assert torch.equal(out[..., left], rows[..., left])


@pytest.mark.parametrize("penalty", [1e38, 1e300])
def test_a_great_penalty_leaves_a_token_to_choose(penalty, single):
    x = torch.tensor([[-3.0, -5.0, -INF]])
    y = penalise_repeats(x, torch.tensor([[0, 1, 2]]), penalty)
    assert y[0, :2].isfinite().all() and y[0, 2] == -INF


# --- one token -----------------------------------------------------------------------------------


def test_greedy_is_the_first_of_the_largest_and_draws_nothing():
    x = torch.randn(11, 101)
    x[0, 37] = x[0, 53] = x.max() + 1
    before = torch.get_rng_state()
    for choose in ({}, {"top_k": 3, "top_p": 0.2}, {"top_p": 1e-300}):
        assert torch.equal(next_token(x, temperature=0, **choose), x.argmax(-1))
    assert torch.equal(torch.get_rng_state(), before)


def law_of(z, temperature=1.0, top_k=None, top_p=None):
    "The probability of each token, in plain numbers; top-p counts what top-k has left."
    weight = [math.exp(x / temperature) for x in z]
    order = sorted(range(len(z)), key=lambda i: -weight[i])[:top_k]
    total, keep = sum(weight[i] for i in order), []
    for i in order:
        if top_p is not None and sum(weight[j] for j in keep) >= top_p * total:
            break
        keep.append(i)
    return {i: weight[i] / sum(weight[j] for j in keep) for i in keep}


def assert_drawn_from(counts, law):
    """Pearson's statistic is chi-square with d degrees of freedom, which exceeds this bound with
    a probability below e^-14 = 8e-7 (Laurent and Massart 2000, lemma 1)."""
    assert set(counts) <= set(law)  # nothing else was drawn
    N, d = sum(counts.values()), len(law) - 1
    statistic = sum((counts[i] - N * p) ** 2 / (N * p) for i, p in law.items())
    assert statistic < d + 2 * math.sqrt(14 * d) + 28


Z = [0.3, -1.0, 1.2, 0.0, 0.9, -0.4, 0.6]


@pytest.mark.parametrize(
    "choose",
    [{"temperature": 3.0}, {"temperature": 2.0, "top_p": 0.7}, {"top_k": 3},
     {"temperature": 0.7, "top_k": 5, "top_p": 0.8}],
)  # fmt: skip
def test_draws_follow_the_distribution(choose):
    rows = torch.tensor(Z).expand(50_000, -1)
    drawn = next_token(rows, generator=torch.Generator().manual_seed(0), **choose)
    assert_drawn_from(Counter(drawn.tolist()), law_of(Z, **choose))


def test_draws_with_min_p_and_a_penalty_follow_the_distribution(prefix_model):
    "Token 2 was said, so its logit of 1.2 counts as 0.6; below 0.3 of the largest all are out."

    class Same(prefix_model):
        def logits(self, src, prefix):
            return torch.tensor(Z)

    def adjust(logits, ids):
        return keep_min_p(penalise_repeats(logits, ids, 2.0), 0.3)

    prompt = torch.full((20_000, 1), 2)
    settings = {"max_new_tokens": 1, "adjust": adjust}
    drawn = generate(Same(7, 0), prompt, generator=torch.Generator().manual_seed(0), **settings)
    weight = {i: math.exp(0.6 if i == 2 else z) for i, z in enumerate(Z)}
    enough = {i: w for i, w in weight.items() if w >= 0.3 * math.exp(0.9)}
    assert len(enough) == 5
    law = {i: w / sum(enough.values()) for i, w in enough.items()}
    assert_drawn_from(Counter(token for (token,) in drawn), law)


def by_hand(model, ids, choose, *, min_p=None, repetition_penalty=None, adjust=None, **filters):
    "Token by token: the plug, the penalty, min-p, and the filters of `next_token`."
    for _ in range(11):
        logits = torch.stack([model.logits((), row) for row in ids.tolist()])
        if adjust:
            logits = adjust(logits, ids)
        if repetition_penalty:
            logits = penalise_repeats(logits.log_softmax(-1), ids, repetition_penalty)
        if min_p:
            logits = keep_min_p(logits, min_p)
        ids = torch.cat([ids, next_token(logits, **filters, generator=choose)[:, None]], 1)
    return ids


SETTINGS = [
    {},
    {"temperature": 0},
    {"temperature": 2.0, "top_k": 5},
    {"top_p": 0.6},
    {"min_p": 0.2},
]
SETTINGS += [{"repetition_penalty": 3.0}, {"adjust": lambda logits, ids: -logits, "top_k": 3}]
SETTINGS += [{"min_p": 0.3, "repetition_penalty": 1.5, "temperature": 0.7, "top_p": 0.9}]


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_are_the_same_however_they_are_given(prefix_model, settings):
    model, ids = prefix_model(7, seed=1), torch.randint(7, (3, 2))
    expected = by_hand(model, ids, torch.Generator().manual_seed(5), **settings)[:, 2:].tolist()
    given = [settings | {"seed": 5}, {"sampling": Sampling(**settings, seed=5)}]
    given += [{"sampling": Sampling(top_k=1, seed=5), "top_k": None} | settings]
    given += [settings | {"seed": 6, "generator": torch.Generator().manual_seed(5)}]
    for how in given:
        assert generate(model, ids, max_new_tokens=11, **how) == expected


def test_rows_are_drawn_independently():
    # two rows of one even coin: they agree in half of the draws, ± 5.5 deviations of a binomial
    N = 20_000
    x = torch.zeros(N, 2)
    agree = (next_token(x) == next_token(x)).sum().item()
    assert abs(agree - N / 2) < 5.5 * math.sqrt(N / 4)


def test_large_logits_and_banned_tokens():
    x = torch.tensor([[1e30, -INF, 1e30], [-1e30, -INF, -INF]])
    drawn = torch.stack([next_token(x) for _ in range(50)])
    assert set(drawn[:, 0].tolist()) == {0, 2}
    assert set(drawn[:, 1].tolist()) == {0}


# --- many tokens ---------------------------------------------------------------------------------


def alone(model, prompt, src, *, max_new_tokens, eos=None, max_len=100, adjust=None):
    "Greedy, a row alone, from the whole prefix each time. A full context is left for its half."
    text, seen = list(prompt), []
    for _ in range(max_new_tokens):
        if seen and len(seen) < max_len:
            seen = [*seen, text[-1]]
        else:
            seen = text[:] if len(text) < max_len else text[-max(1, max_len // 2) :]
        assert len(seen) <= max_len
        logits = model.logits(src, seen)
        if adjust:
            logits = adjust(logits[None], torch.tensor([text]))[0]
        token = logits.argmax().item()
        if token == eos or token in (eos if isinstance(eos, list) else ()):
            break
        text.append(token)
    return text[len(prompt) :]


@pytest.mark.parametrize(
    "settings",
    [{"eos": eos, "max_new_tokens": n} for eos in (None, 0, [3, 0], []) for n in (0, 1, 11)]
    + [{"eos": eos, "max_new_tokens": 17, "max_len": n} for eos in (None, 3) for n in (1, 5, 6)]
    + [{"eos": 0, "max_new_tokens": 11, "adjust": lambda z, ids: penalise_repeats(z, ids, 1.5)}],
)
def test_rows_are_each_as_alone(prefix_model, settings):
    prompt, src = torch.randint(7, (13, 5)), torch.randint(7, (13, 3))
    src_mask = torch.arange(3) <= torch.arange(13)[:, None] % 3
    model = prefix_model(7, seed=1)
    found = generate(model, prompt, src=src, src_mask=src_mask, temperature=0, **settings)
    for row, said in enumerate(found):
        source = tuple(src[row][src_mask[row]].tolist())
        assert said == alone(model, prompt[row].tolist(), source, **settings)


def test_finished_rows_leave_the_batch(prefix_model):
    prompt = torch.randint(5, (17, 2))
    model = prefix_model(5, seed=2)
    found = generate(model, prompt, max_new_tokens=19, eos=0, temperature=0)
    lengths = [len(row) for row in found]
    assert len(set(lengths)) > 3  # they do not all end at once
    assert model.rows_seen == [sum(n >= t for n in lengths) for t in range(len(model.rows_seen))]
    assert len(model.rows_seen) == min(max(lengths) + 1, 19)


def test_a_stream_gives_each_token_before_it_computes_the_next(prefix_model):
    model = prefix_model(5, seed=2)
    settings = {"max_new_tokens": 19, "eos": 0, "temperature": 0}
    prompt, rows = torch.randint(5, (17, 2)), [[] for _ in range(17)]
    for step, tokens in enumerate(stream(model, prompt, **settings), 1):
        assert len(model.rows_seen) == step
        assert not torch.is_inference_mode_enabled()  # what the caller computes may have gradients
        for row, token in zip(rows, tokens, strict=True):
            row.append(token)
    collected = [[token for token in row if token is not None] for row in rows]
    assert collected == generate(model, prompt, **settings)
    # None from the end on, and nowhere before it
    assert all(row[: len(c)] == c for row, c in zip(rows, collected, strict=True))


def test_an_empty_batch_gives_nothing(prefix_model):
    class Never(prefix_model):
        def step(self, ids, state, last=None):
            return torch.zeros(len(ids), ids.shape[1], self.vocab_size)

    assert generate(Never(5, seed=0), torch.zeros(0, 2).long(), max_new_tokens=3, eos=1) == []


# --- stop strings --------------------------------------------------------------------------------


def by_characters(text, stop):
    "The text before the stop string that is complete first; of equal ends, the longest."
    for end in range(len(text) + 1):
        if ending := [s for s in stop if text[:end].endswith(s)]:
            return text[: end - max(map(len, ending))]
    return text


def letters(n):
    return "".join("abc"[i] for i in torch.randint(3, (n,)).tolist())


STOPS = [["aab"], ["ab", "aab"], ["abca", "bc"], ["aba", "ca"], ["c"], ["aaaa"], []]


@pytest.mark.parametrize("stop", [*STOPS, ["abc", "b", "ca"]])
def test_a_stop_string_is_found_however_the_text_is_cut(stop):
    "No more is held back than could begin a stop string, and nothing is taken after the end."
    for text in (letters(11), letters(11)):
        for cuts in combinations(range(12), 3):
            pieces = [text[a:b] for a, b in pairwise([0, *cuts, 11])]
            assert "".join(until(pieces, stop)) == by_characters(text, stop)

    text, given, shown = letters(101), "", ""

    def pieces():
        nonlocal given
        for letter in text:
            ends = [given[n:] for n in range(len(given) + 1)]
            could = max(len(e) for e in ends if not e or any(s.startswith(e) for s in stop))
            assert shown == given[: len(given) - could]  # all that is safe
            given += letter
            yield letter

    for piece in until(pieces(), stop):
        shown += piece
    assert shown == by_characters(text, stop)
    assert given == text or any(given.endswith(s) for s in stop)


# --- prompts of unequal length -------------------------------------------------------------------

PROMPTS = [[3, 5, 7, 2, 11, 13, 1], [17, 19], [23], [4, 6, 8], [28, 0, 9, 10, 12]]


def small(position="rope"):
    sizes = {"d_model": 24, "n_layers": 2, "n_heads": 2, "n_kv_heads": 1, "d_ff": 17}
    return assemble(AssemblyConfig(29, max_len=31, position=position, **sizes)).eval()


@pytest.mark.parametrize("position", sorted(POSITIONS))
def test_padded_prompts_have_the_logits_of_each_alone(position):
    model = small(position)
    ids, lengths = pad_left(PROMPTS)
    padded, more = LeftPadded(model, lengths), torch.randint(29, (5, 3))
    state = padded.start(5, 20)
    first = padded.step(ids, state)
    padded.step(torch.randint(29, (5, 2)), state)
    state.truncate(7)  # what was wrong is taken back
    kept_rows = [4, 1, 1, 2]
    state.select(torch.tensor(kept_rows))
    second = padded.step(more[kept_rows], state)
    for row, prompt in enumerate(PROMPTS):
        alone = model(torch.tensor([[*prompt, *more[row].tolist()]]))[0]
        torch.testing.assert_close(first[row, -len(prompt) :], alone[: len(prompt)])
        for place in (i for i, kept_row in enumerate(kept_rows) if kept_row == row):
            torch.testing.assert_close(second[place], alone[len(prompt) :])


@pytest.mark.parametrize("eos", [None, 7, 21])
@pytest.mark.parametrize("adjust", [False, True])
def test_padded_texts_are_each_as_alone(eos, adjust):
    model = small()
    ids, lengths = pad_left(PROMPTS)
    settings = {"max_new_tokens": 9, "eos": eos, "temperature": 0}
    if adjust:  # the filling is no part of the text
        settings["adjust"] = lambda logits, ids: penalise_repeats(logits, ids, 3.0)
    together = generate(LeftPadded(model, lengths), ids, **settings)
    alone = [generate(model, torch.tensor([prompt]), **settings)[0] for prompt in PROMPTS]
    assert together == alone
    assert together != generate(model, ids, **settings)  # a batch that reads the filling


def test_no_prompt_at_all():
    ids, lengths = pad_left([])
    assert ids.shape == (0, 1) and lengths.shape == (0,)


# --- refused -------------------------------------------------------------------------------------


def one_bad(value):
    x = torch.randn(5, 7)
    x[3, ... if value == -INF else 2] = value
    return x


def leave_a_full_context():
    ids, lengths = pad_left(PROMPTS)
    padded = LeftPadded(small(), lengths)
    return [*stream(padded, ids, max_new_tokens=9, max_len=8, temperature=0)]


REFUSED = [
    *(
        (lambda how={name: value}: next_token(torch.zeros(2, 5), **how), rf"{name}.*{value}")
        for name, values in {
            "top_p": (0.0, -0.1, 1.5, math.nan),
            "temperature": (-0.5, INF, math.nan),
            "top_k": (0, -1),
        }.items()
        for value in values
    ),
    *(
        (lambda t=t, bad=bad: next_token(one_bad(bad), temperature=t), rf"finite, got \[{bad}\]")
        for t in (0.0, 1.0)
        for bad in (math.nan, INF, -INF)
    ),
    *((lambda s=s: keep_min_p(torch.zeros(5), s), "min_p must be in") for s in (0, 1.5, math.nan)),
    *((lambda s=stop: until([], s), "stop must be a list") for stop in ("abc", ["a", ""])),
    *((lambda p=p: pad_left(p), "a prompt is empty") for p in ([[], [1, 2]], [[1, 2], []], [[]])),
    *((lambda x=x: Sampling(repetition_penalty=x), "repetition_penalty must") for x in (0, INF)),
    *((lambda how=how: Sampling(**{how: 7.5}), f"{how} must be in") for how in ("min_p", "top_p")),
    (lambda: Sampling(stop="abc"), "stop must be a list"),
    (lambda: generate(small(), torch.tensor([[1]]), max_new_tokens=1, stop=["a"]), "Pass eos"),
    (lambda: generate(small(), torch.tensor([[1]]), max_new_tokens=-1), "must be 0 or more"),
    (lambda: generate(small(), torch.zeros(1, 0).long(), max_new_tokens=1), "no token to continue"),
    (leave_a_full_context, "with 5 rows and without max_len"),
    (lambda: LeftPadded(small(), torch.arange(1, 6)).start(3, 20), "once, with 5 rows"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_would_choose_something_else_in_silence_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
