import math
from itertools import combinations, pairwise

import pytest
import torch
from transformers import LogitsProcessorList
from transformers.generation import logits_process

from transformer_lit.inference.sampling import (
    LeftPadded,
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
from transformer_lit.models.gpt import GPT, GPTConfig
from transformer_lit.models.transformer import Transformer, TransformerConfig

INF = math.inf


def kept(logits):
    return logits.isfinite().nonzero().flatten().tolist()


# --- top-k and top-p ------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 5, 7, 11, 13, 100])
def test_top_k_keeps_the_k_largest_as_they_are(k):
    x = torch.randn(3, 5, 13)
    out = keep_top_k(x, k)
    for row, narrowed in zip(x.flatten(0, 1), out.flatten(0, 1), strict=True):
        best = sorted(range(13), key=lambda i: -row[i])[:k]
        assert kept(narrowed) == sorted(best)
        assert torch.equal(narrowed[best], row[best])
        assert (narrowed[~narrowed.isfinite()] == -INF).all()


def test_top_k_keeps_all_that_tie_with_the_last():
    assert kept(keep_top_k(torch.tensor([1.0, 3.0, 1.0, 0.0, 1.0]), 2)) == [0, 1, 2, 4]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("p", [1e-9, 0.1, 0.62, 0.999])
def test_top_p_keeps_the_smallest_set_that_reaches_p(p, seed):
    x = 2 * torch.randn(7, generator=torch.Generator().manual_seed(seed))
    share = x.softmax(-1).tolist()
    smallest = next(
        size
        for size in range(1, 8)
        if any(sum(share[i] for i in s) >= p for s in combinations(range(7), size))
    )
    out = keep_top_p(x, p)
    best = sorted(range(7), key=lambda i: -x[i])[:smallest]
    assert kept(out) == sorted(best)
    assert torch.equal(out[best], x[best])


def test_top_p_by_hand():
    x = torch.tensor([0.2, 0.5, 0.05, 0.25]).log()
    for p, expected in [(0.3, [1]), (0.6, [1, 3]), (0.8, [0, 1, 3]), (0.96, [0, 1, 2, 3])]:
        assert kept(keep_top_p(x, p)) == expected


def test_top_p_breaks_ties_by_the_lower_id():
    assert kept(keep_top_p(torch.zeros(1009), 2.5 / 1009)) == [0, 1, 2]


def test_top_p_of_one_keeps_a_tail_that_rounding_would_cut():
    x = torch.zeros(10_007, dtype=torch.float32)
    x[0] = 30.0  # its probability rounds to 1
    assert torch.equal(keep_top_p(x, 1.0), x)


def test_top_p_sums_half_precision_in_full():
    # with the 8 bits of bfloat16 a running sum of 2^-12 does not meet the half at the right token
    assert len(kept(keep_top_p(torch.zeros(4096, dtype=torch.bfloat16), 0.5))) == 2048


def test_what_is_cut_already_stays_cut():
    x = torch.tensor([1.0, -INF, 0.5, -INF, 0.2])
    assert kept(keep_top_p(x, 0.999999)) == [0, 2, 4]
    assert kept(keep_top_k(x, 4)) == [0, 2, 4]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_p_that_is_zero_in_its_dtype_still_keeps_the_best(dtype):
    x = torch.tensor([0.5, 2.0, 2.0, -1.0], dtype=dtype)
    assert kept(keep_top_p(x, 1e-300)) == [1]


@pytest.mark.parametrize(
    "wrong",
    [{"top_p": p} for p in (0.0, -0.1, 1.5, math.nan)]
    + [{"temperature": t} for t in (-0.5, INF, math.nan)]
    + [{"top_k": k} for k in (0, -1)],
)
def test_settings_that_would_choose_something_else_in_silence(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"{name}.*{value}"):
        next_token(torch.zeros(2, 5), **{"temperature": 0.0, **wrong})


# --- one token ------------------------------------------------------------------------------------


def test_greedy_is_argmax_and_draws_nothing():
    x = torch.randn(11, 101)
    before = torch.get_rng_state()
    assert torch.equal(next_token(x, temperature=0), x.argmax(-1))
    assert torch.equal(next_token(x, temperature=0, top_k=3, top_p=0.2), x.argmax(-1))
    assert torch.equal(torch.get_rng_state(), before)


def test_greedy_takes_the_first_of_equal_logits():
    x = torch.tensor([[0.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    assert next_token(x, temperature=0).tolist() == [1, 0]
    assert next_token(x, temperature=0, top_p=0.1).tolist() == [1, 0]


@pytest.mark.parametrize(
    "choose",
    [{"top_k": 1}, {"top_p": 1e-12}, {"top_p": 1e-300}, {"temperature": 1e-6},
     {"temperature": 1e-300}],
)  # fmt: skip
def test_a_choice_of_one_is_greedy(choose):
    x = 50 * torch.randn(11, 101)
    assert torch.equal(next_token(x, **choose), x.argmax(-1))


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, None, None), (0.5, None, None), (3.0, None, None), (1.0, 3, None), (2.0, None, 0.7),
     (0.7, 5, 0.8)],
)  # fmt: skip
def test_draws_follow_the_distribution(temperature, top_k, top_p):
    z = torch.tensor([0.3, -1.0, 1.2, 0.0, 0.9, -0.4, 0.6], dtype=torch.float64)
    weight = [math.exp(x / temperature) for x in z.tolist()]
    order = sorted(range(7), key=lambda i: -weight[i])[:top_k]
    total, keep = sum(weight[i] for i in order), []
    for i in order:  # top-p counts what top-k has left
        if top_p is not None and sum(weight[j] for j in keep) >= top_p * total:
            break
        keep.append(i)
    assert len(keep) > 1
    q = torch.tensor([weight[i] / sum(weight[j] for j in keep) for i in keep])

    N = 50_000
    generator = torch.Generator().manual_seed(0)
    drawn = next_token(
        z.expand(N, -1), temperature=temperature, top_k=top_k, top_p=top_p, generator=generator
    )
    n = torch.bincount(drawn, minlength=7)[keep]
    assert n.sum() == N  # nothing else was drawn
    # Pearson's statistic is chi-square with d degrees of freedom, which exceeds this bound with
    # a probability below e^-14 = 8e-7 (Laurent and Massart 2000, lemma 1)
    d = len(keep) - 1
    assert ((n - N * q) ** 2 / (N * q)).sum() < d + 2 * math.sqrt(14 * d) + 28


def test_rows_are_drawn_independently():
    # two rows of one even coin: they agree in half of the draws, ± 5.5 deviations of a binomial
    N = 20_000
    x = torch.zeros(N, 2)
    agree = (next_token(x) == next_token(x)).sum().item()
    assert abs(agree - N / 2) < 5.5 * math.sqrt(N / 4)


def test_a_generator_makes_draws_repeatable():
    x = torch.randn(11, 101)

    def draw(seed):
        return next_token(x, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(5))


def test_large_logits_and_banned_tokens():
    x = torch.tensor([[1e30, -INF, 1e30], [-1e30, -INF, -INF]])
    drawn = torch.stack([next_token(x) for _ in range(50)])
    assert set(drawn[:, 0].tolist()) == {0, 2}
    assert set(drawn[:, 1].tolist()) == {0}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("bad", "shown"), [(math.nan, "nan"), (INF, "inf")])
def test_logits_that_nothing_can_be_drawn_from(bad, shown, temperature):
    x = torch.randn(5, 7)
    x[3, 2] = bad
    with pytest.raises(ValueError, match=rf"finite, got \[{shown}\]"):
        next_token(x, temperature=temperature)


def test_a_row_without_any_token_left():
    x = torch.randn(5, 7)
    x[2] = -INF
    with pytest.raises(ValueError, match=r"finite, got \[-inf\]"):
        next_token(x)


# --- generate -------------------------------------------------------------------------------------


def by_hand(model, prompt, max_new_tokens, eos, src=()):
    "Greedy, a row alone, from the whole prefix each time."
    said = []
    while len(said) < max_new_tokens:
        token = model.logits(src, (*prompt, *said)).argmax().item()
        if token == eos or token in (eos if isinstance(eos, list) else ()):
            break
        said.append(token)
    return said


@pytest.mark.parametrize("eos", [None, 0, 3, [3, 0], []])
@pytest.mark.parametrize("max_new_tokens", [0, 1, 2, 11])
def test_greedy_rows_are_each_as_alone(prefix_model, eos, max_new_tokens):
    prompt = torch.randint(7, (13, 3))
    src = torch.randint(7, (13, 2))
    model = prefix_model(7, seed=1)
    found = generate(model, prompt, max_new_tokens=max_new_tokens, eos=eos, src=src, temperature=0)
    rows = zip(prompt.tolist(), src.tolist(), strict=True)
    assert found == [by_hand(model, p, max_new_tokens, eos, s) for p, s in rows]


def test_finished_rows_leave_the_batch(prefix_model):
    prompt = torch.randint(5, (17, 2))
    model = prefix_model(5, seed=2)
    found = generate(model, prompt, max_new_tokens=19, eos=0, temperature=0)
    lengths = [len(row) for row in found]
    assert len(set(lengths)) > 3  # they do not all end at once
    assert model.rows_seen == [sum(n >= t for n in lengths) for t in range(len(model.rows_seen))]
    assert len(model.rows_seen) == min(max(lengths) + 1, 19)


def test_sampled_texts_have_the_probability_of_their_tokens(prefix_model):
    model = prefix_model(3, seed=3, spread=1.0)

    def tree(said=(), probability=1.0):
        p = (model.logits((), (1, *said)) / 0.8).softmax(-1).tolist()
        for token in range(3):
            if token == 0:
                yield said, probability * p[0]
            elif len(said) == 1:
                yield (*said, token), probability * p[token]
            else:
                yield from tree((*said, token), probability * p[token])

    exact = dict(tree())  # texts of at most two tokens
    assert len(exact) == 7 and math.isclose(sum(exact.values()), 1, rel_tol=1e-6)
    N = 4001
    found = generate(model, torch.ones(N, 1).long(), max_new_tokens=2, eos=0, temperature=0.8)
    for text, p in exact.items():
        n = sum(tuple(row) == text for row in found)
        assert abs(n - N * p) < 5.5 * math.sqrt(N * p * (1 - p))  # a binomial's deviation


def test_generate_repeats_with_a_generator(prefix_model):
    def texts(seed):
        generator = torch.Generator().manual_seed(seed)
        return generate(
            prefix_model(11, seed=5), torch.ones(5, 1).long(), max_new_tokens=7, generator=generator
        )

    assert texts(1) == texts(1) != texts(2)


def test_generate_knows_the_transformer_with_padding():
    model = Transformer(TransformerConfig(29, d_model=12, d_ff=17, n_heads=3, n_layers=2)).eval()
    src = torch.randint(29, (5, 7))
    src_mask = torch.arange(7) < torch.tensor([[7], [2], [5], [3], [1]])
    prompt = torch.randint(29, (5, 3))
    settings = {"max_new_tokens": 7, "src": src, "src_mask": src_mask, "temperature": 0.0}
    free = generate(model, prompt, **settings)
    # the end token with which rows end at the most different places
    eos = max(range(29), key=lambda i: len({row.index(i) for row in free if i in row}))
    found = generate(model, prompt, eos=eos, **settings)
    assert len(set(map(len, found))) > 1
    for row in range(5):
        alone, said = src[row : row + 1, : src_mask[row].sum()], prompt[row].tolist()
        while len(said) < 3 + 7:
            token = model(alone, torch.tensor([said]))[0, -1].argmax().item()
            if token == eos:
                break
            said.append(token)
        assert found[row] == said[3:]


def in_windows(model, prompt, max_new_tokens, max_len, eos, src):
    "Greedy, a row alone. A full context is left for its last half."
    text, seen = list(prompt), []
    for _ in range(max_new_tokens):
        if seen and len(seen) < max_len:
            seen = [*seen, text[-1]]
        else:
            seen = text[:] if len(text) < max_len else text[-max(1, max_len // 2) :]
        assert len(seen) <= max_len
        token = model.logits(src, seen).argmax().item()
        if token == eos:
            break
        text.append(token)
    return text[len(prompt) :]


@pytest.mark.parametrize("eos", [None, 3])
@pytest.mark.parametrize("max_len", [1, 5, 6, 100])
def test_a_full_context_is_left_for_its_last_half(prefix_model, max_len, eos):
    prompt, src = torch.randint(7, (11, 5)), torch.randint(7, (11, 2))
    model = prefix_model(7, seed=1)
    settings = {"max_new_tokens": 17, "max_len": max_len, "eos": eos}
    found = generate(model, prompt, src=src, temperature=0, **settings)
    rows = zip(prompt.tolist(), src.tolist(), strict=True)
    assert found == [in_windows(model, p, src=tuple(s), **settings) for p, s in rows]


def test_a_model_with_a_limit_writes_on_beyond_it():
    sizes = {"d_model": 12, "d_ff": 17, "n_heads": 3, "n_layers": 2, "max_len": 7}
    model, prompt = GPT(GPTConfig(29, **sizes)).eval(), torch.randint(29, (2, 3))
    found = torch.tensor(generate(model, prompt, max_new_tokens=19, max_len=7, temperature=0))
    text = torch.cat([prompt, found], 1)
    for end in (7, 11, 15, 19):  # the last token of each window: 3 are kept, 4 are new
        window = text[:, end - 7 : end]
        assert torch.equal(model(window)[:, -1].argmax(-1), text[:, end])


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


# --- more filters, through the plug ---------------------------------------------------------------


@pytest.mark.parametrize("share", [1e-9, 0.03, 0.2, 0.7, 1.0])
def test_min_p_is_that_of_the_reference_library(share):
    x = 3 * torch.randn(13, 101)
    expected = logits_process.MinPLogitsWarper(share)(None, x)
    assert torch.equal(keep_min_p(x, share), expected)
    assert 1 <= expected.isfinite().sum(-1).min() <= expected.isfinite().sum(-1).max() <= 101


def test_min_p_by_hand():
    x = torch.tensor([0.2, 0.5, 0.05, 0.25]).log()
    for share, expected in [(0.05, [0, 1, 2, 3]), (0.2, [0, 1, 3]), (0.45, [1, 3]), (1, [1])]:
        assert kept(keep_min_p(x, share)) == expected


def test_min_p_leaves_what_is_cut_and_rows_without_any_token():
    x = torch.tensor([[1.0, -INF, 0.5], [-INF, -INF, -INF]])
    assert torch.equal(keep_min_p(x, 0.1), x)


@pytest.mark.parametrize("penalty", [1, 1.2, 2.0, 1e9])
def test_the_repetition_penalty_is_that_of_the_reference_library(penalty):
    x, ids = 3 * torch.randn(5, 23), torch.randint(23, (5, 11))
    x[:, 3] = -INF
    ids[0] = 3  # banned, and said eleven times
    expected = logits_process.RepetitionPenaltyLogitsProcessor(float(penalty))(ids, x)
    assert torch.equal(penalise_repeats(x, ids, penalty), expected)
    assert torch.equal(penalise_repeats(x, ids, 1), x)


@pytest.mark.parametrize("penalty", [1e38, 1e300])
def test_a_great_penalty_leaves_a_token_to_choose(penalty):
    x = torch.tensor([[-3.0, -5.0, -INF]])
    y = penalise_repeats(x, torch.tensor([[0, 1, 2]]), penalty)
    assert y[0, :2].isfinite().all() and y[0, 2] == -INF


def test_filters_compose_to_the_chain_of_the_reference_library():
    x, ids = 3 * torch.randn(17, 101), torch.randint(101, (17, 7))
    theirs = LogitsProcessorList(
        [
            logits_process.RepetitionPenaltyLogitsProcessor(1.3),
            logits_process.TemperatureLogitsWarper(0.7),
            logits_process.TopKLogitsWarper(31),
            logits_process.MinPLogitsWarper(0.02),
        ]
    )
    ours = keep_min_p(keep_top_k(penalise_repeats(x, ids, 1.3) / 0.7, 31), 0.02)
    torch.testing.assert_close(ours, theirs(ids, x))
    sizes = ours.isfinite().sum(-1)
    assert sizes.min() < 31  # both filters have work to do
    assert (keep_top_k(x, 31).isfinite().sum(-1) == 31).all()


def test_the_plug_sees_the_whole_text_of_each_row_that_goes_on(prefix_model):
    model, prompt = prefix_model(7, seed=2), torch.randint(7, (13, 3))

    def adjust(logits, ids):
        for row, text in zip(logits, ids.tolist(), strict=True):
            torch.testing.assert_close(row, model.logits((), text))  # row for row
        return penalise_repeats(logits, ids, 1.5)

    found = generate(model, prompt, max_new_tokens=11, eos=0, temperature=0, adjust=adjust)
    for text, said in zip(prompt.tolist(), found, strict=True):
        for step in range(11):
            logits, ids = model.logits((), text)[None], torch.tensor([text])
            processor = logits_process.RepetitionPenaltyLogitsProcessor(1.5)
            token = processor(ids, logits).argmax().item()
            if token == 0:
                break
            assert said[step] == token
            text.append(token)
    assert len(set(map(len, found))) > 2  # rows leave, and the others keep their own text
    assert found != generate(model, prompt, max_new_tokens=11, eos=0, temperature=0)


# --- stop strings ---------------------------------------------------------------------------------


def by_characters(text, stop):
    "The text before the stop string that is complete first; of equal ends, the longest."
    for end in range(len(text) + 1):
        if ending := [s for s in stop if text[:end].endswith(s)]:
            return text[: end - max(map(len, ending))]
    return text


STOPS = [
    ["aab"],
    ["ab", "aab"],
    ["abca", "bc"],
    ["aba", "ca"],
    ["c"],
    ["aaaa"],
    [],
    ["abc", "b", "ca"],
]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("seed", range(2))
def test_a_stop_string_is_found_however_the_text_is_cut(stop, seed):
    g = torch.Generator().manual_seed(seed)
    text = "".join("abc"[i] for i in torch.randint(3, (11,), generator=g).tolist())
    for cuts in combinations(range(12), 3):
        bounds = [0, *cuts, 11]
        pieces = [text[a:b] for a, b in pairwise(bounds)]
        assert "".join(until(pieces, stop)) == by_characters(text, stop)


@pytest.mark.parametrize("stop", STOPS)
def test_no_more_is_held_back_than_could_begin_a_stop_string(stop):
    g = torch.Generator().manual_seed(3)
    text = "".join("abc"[i] for i in torch.randint(3, (101,), generator=g).tolist())
    given, shown = "", ""

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
    assert given == text or any(given.endswith(s) for s in stop)  # nothing is taken after the end


@pytest.mark.parametrize("share", [0, -0.1, 1.5, math.nan])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match="min_p must be in"):
        keep_min_p(torch.zeros(5), share)


@pytest.mark.parametrize("stop", ["abc", ["a", ""]])
def test_stop_strings_that_would_stop_at_once_are_refused_at_once(stop):
    with pytest.raises(ValueError, match="stop must be a list"):
        until([], stop)


# --- prompts of unequal length --------------------------------------------------------------------

PROMPTS = [[3, 5, 7, 2, 11, 13, 1], [17, 19], [23], [4, 6, 8], [28, 0, 9, 10, 12]]


def small(position):
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


@pytest.mark.parametrize("eos", [None, *range(0, 29, 7)])
@pytest.mark.parametrize("adjust", [False, True])
def test_padded_texts_are_each_as_alone(eos, adjust):
    model = small("rope")
    ids, lengths = pad_left(PROMPTS)
    settings = {"max_new_tokens": 9, "eos": eos, "temperature": 0}
    if adjust:  # the filling is no part of the text
        settings["adjust"] = lambda logits, ids: penalise_repeats(logits, ids, 3.0)
    together = generate(LeftPadded(model, lengths), ids, **settings)
    alone = [generate(model, torch.tensor([prompt]), **settings)[0] for prompt in PROMPTS]
    assert together == alone
    assert together != generate(model, ids, **settings)  # a batch that reads the filling


def test_padding_by_hand():
    ids, lengths = pad_left([[3, 5, 7], [2], [11, 13]])
    assert ids.tolist() == [[3, 5, 7], [2, 2, 2], [11, 11, 13]] and lengths.tolist() == [3, 1, 2]


def test_fewer_tokens_than_none_are_refused():
    with pytest.raises(ValueError, match="max_new_tokens must be 0 or more"):
        generate(small("rope"), torch.tensor([[1]]), max_new_tokens=-1)


@pytest.mark.parametrize("prompts", [[[], [1, 2]], [[1, 2], []], [[]]])
def test_an_empty_prompt_is_refused(prompts):
    with pytest.raises(ValueError, match="a prompt is empty"):
        pad_left(prompts)


def test_no_prompt_at_all():
    ids, lengths = pad_left([])
    assert ids.shape == (0, 1) and lengths.shape == (0,)


def test_padded_prompts_cannot_leave_a_full_context():
    ids, lengths = pad_left(PROMPTS)
    steps = stream(
        LeftPadded(small("rope"), lengths), ids, max_new_tokens=9, max_len=8, temperature=0
    )
    with pytest.raises(ValueError, match="full context cannot be left"):
        list(steps)
    with pytest.raises(ValueError, match="one start of 5 rows"):
        LeftPadded(small("rope"), lengths).start(3, 20)
