import math
from collections import Counter
from itertools import product

import pytest
import torch

from transformer_lit.inference.sampling import generate, keep_top_p
from transformer_lit.inference.speculative import (
    ModelDraft,
    PromptLookup,
    expected_tokens,
    judge,
    probabilities,
    speculate,
)
from transformer_lit.models.gpt import GPT, GPTConfig
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.models.transformer import Transformer, TransformerConfig

V = 3


def best(logits):
    return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)


def flat(rounds):
    return [token for said in rounds for token in said]


def pearson(counts, exact):
    """Pearson's statistic, and a bound that it exceeds with a probability below e^-14 = 8e-7 if the
    law is exact (Laurent and Massart 2000, lemma 1)."""
    assert set(counts) <= {text for text, p in exact.items() if p > 0}  # what cannot be is not said
    possible = {text: p for text, p in exact.items() if p > 0}
    N, d = sum(counts.values()), len(possible) - 1
    statistic = sum((counts[text] - N * p) ** 2 / (N * p) for text, p in possible.items())
    return statistic, d + 2 * math.sqrt(14 * d) + 28


# --- the rule -------------------------------------------------------------------------------------

PAIRS = {
    "far apart": ([0.6, 0.3, 0.1], [0.2, 0.3, 0.5]),
    "equal": ([0.5, 0.2, 0.3], [0.5, 0.2, 0.3]),
    "the target forbids a token": ([0.0, 0.7, 0.3], [0.6, 0.3, 0.1]),
    "the draft never says a token": ([0.5, 0.4, 0.1], [0.0, 0.1, 0.9]),
    "nothing in common": ([0.3, 0.7, 0.0], [0.0, 0.0, 1.0]),
    "a sure draft": ([0.3, 0.2, 0.5], [0.0, 1.0, 0.0]),
    "greedy": ([0.0, 1.0, 0.0], [0.3, 0.3, 0.4]),
}


def exact_rounds(p, q, n, follow):
    "What a round of n guesses gives, by enumeration: every guess, kept or not. One p, one q."
    shared = [min(a, b) for a, b in zip(p, q, strict=True)]
    law = Counter()
    for k in range(n):
        for kept in product(range(V), repeat=k):
            before = math.prod(shared[x] for x in kept)
            for x in range(V):  # refused at place k, and redrawn
                law[(*kept, x)] += before * (p[x] - shared[x])
    for kept in product(range(V), repeat=n):
        for x in range(V):
            law[(*kept, x)] += math.prod(shared[y] for y in kept) * follow[x]
    return law


# two guesses may be refused at the first, at the second, or not: all that one or none has, and more
@pytest.mark.parametrize(
    ("pair", "n"), [*((pair, 2) for pair in PAIRS), ("far apart", 0), ("far apart", 1)]
)
def test_rounds_follow_the_law_of_the_rule(pair, n):
    p, q = PAIRS[pair]
    follow = [0.2, 0.5, 0.3]
    exact = exact_rounds(p, q, n, follow)
    assert math.isclose(sum(exact.values()), 1)
    P, Q = torch.tensor([p] * n + [follow]), torch.tensor([q] * n).view(n, V)
    generator, counts = torch.Generator().manual_seed(5), Counter()
    for _ in range(1009):
        guesses = [int(torch.multinomial(row, 1, generator=generator)) for row in Q]
        counts[tuple(judge(P, Q, guesses, generator=generator))] += 1
    statistic, bound = pearson(counts, exact)
    assert statistic < bound


@pytest.mark.parametrize("pair", PAIRS)
def test_the_first_token_of_that_law_is_the_targets(pair):
    p, q = PAIRS[pair]
    for n in (1, 2, 3):
        first = Counter()
        for said, probability in exact_rounds(p, q, n, [0.2, 0.5, 0.3]).items():
            first[said[0]] += probability
        torch.testing.assert_close(torch.tensor([first[x] for x in range(V)]), torch.tensor(p))


def test_equal_distributions_refuse_nothing():
    P = torch.randn(12, 101).softmax(-1)
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        guesses = torch.multinomial(P[:11], 1, generator=generator).flatten().tolist()
        assert judge(P, P[:11], guesses, generator=generator)[:11] == guesses


def test_what_is_refused_by_a_rounding_has_no_rest_to_draw_from():
    # This catches the bug where p and q differed by a rounding and nothing was left of p - q.
    p, q = torch.tensor([[0.25, 0.75], [1.0, 0.0]]), torch.tensor([[0.25, 1e300]])
    assert all(judge(p, q, [1])[0] in (0, 1) for _ in range(20))


@pytest.mark.parametrize("p0", [0.0, 0.5])
def test_a_guess_that_its_own_distribution_forbids_is_refused(p0):
    p, q = torch.tensor([[p0, 1 - p0], [0.5, 0.5]]), torch.tensor([[0.0, 1.0]])
    with pytest.raises(ValueError, match=r"guess of \[0\] has no probability in q"):
        judge(p, q, [0])


# --- the distribution of texts --------------------------------------------------------------------


def texts(model, make, N, *, ahead, choice=probabilities, new=3):
    "Counts of N texts, from one seeded generator for both."
    generator, counts = torch.Generator().manual_seed(7), Counter()
    prompt = torch.tensor([[1, 2]])
    for _ in range(N):
        settings = {"max_new_tokens": new, "ahead": ahead, "choice": choice, "generator": generator}
        counts[tuple(flat(speculate(model, make(generator), prompt, **settings)))] += 1
    return counts


def law(model, choice=probabilities, new=3):
    "The probability of each text, from the model's logits of whole prefixes."
    exact = {(): 1.0}
    for _ in range(new):
        exact = {
            (*said, x): before * choice(model.logits((), (1, 2, *said)))[x].item()
            for said, before in exact.items()
            for x in range(V)
        }
    return exact


@pytest.mark.parametrize("ahead", [1, 5])
def test_texts_have_the_distribution_of_the_target(prefix_model, ahead):
    target, small = prefix_model(V, seed=1), prefix_model(V, seed=2)
    counts = texts(target, lambda g: ModelDraft(small, max_len=9, generator=g), 401, ahead=ahead)
    exact = law(target)
    statistic, bound = pearson(counts, exact)
    assert statistic < bound
    statistic, bound = pearson(counts, law(small))  # and they are able to differ
    assert statistic > bound


def test_texts_have_it_with_a_draft_that_is_sure(prefix_model):
    target = prefix_model(V, seed=3, spread=1.0)
    counts = texts(target, lambda g: PromptLookup(V, n_gram=1), 401, ahead=2, new=3)
    statistic, bound = pearson(counts, law(target))
    assert statistic < bound


def test_any_choice_is_the_targets_own(prefix_model):
    def nucleus(logits):
        return keep_top_p(logits / 1.5, 0.8).softmax(-1)

    target, small = prefix_model(V, seed=4), prefix_model(V, seed=5)

    def draft(generator):  # which draws at temperature 1
        return ModelDraft(small, max_len=9, generator=generator)

    counts = texts(target, draft, 401, ahead=2, choice=nucleus)
    exact = law(target, nucleus)
    assert 0 in exact.values()
    statistic, bound = pearson(counts, exact)
    assert statistic < bound


def trust(p, q, guesses, *, generator=None):
    return [*guesses, int(torch.multinomial(p[-1], 1, generator=generator))]


def redraw_from_p(p, q, guesses, *, generator=None):
    for i, x in enumerate(guesses):
        if torch.rand((), generator=generator) >= p[i, x] / q[i, x]:
            return [*guesses[:i], int(torch.multinomial(p[i], 1, generator=generator))]
    return trust(p, q, guesses, generator=generator)


@pytest.mark.parametrize("wrong", [trust, redraw_from_p])
def test_a_wrong_rule_fails_the_same_test(prefix_model, monkeypatch, wrong):
    monkeypatch.setattr("transformer_lit.inference.speculative.judge", wrong)
    target, small = prefix_model(V, seed=1), prefix_model(V, seed=2)
    counts = texts(target, lambda g: ModelDraft(small, max_len=9, generator=g), 401, ahead=2)
    statistic, bound = pearson(counts, law(target))
    assert statistic > bound


# --- greedy ---------------------------------------------------------------------------------------

SIZES = {"vocab_size": 7, "d_ff": 17, "n_heads": 2}


def models():
    torch.manual_seed(0)
    return {
        "gpt": GPT(GPTConfig(d_model=12, n_layers=2, max_len=53, **SIZES)).eval(),
        "llama": Llama(LlamaConfig(d_model=12, n_layers=2, n_kv_heads=1, **SIZES)).eval(),
    }


@pytest.mark.parametrize("ahead", [1, 5])
@pytest.mark.parametrize("max_new_tokens", [0, 2, 23])
@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_greedy_texts_are_those_of_the_target_alone(name, max_new_tokens, ahead):
    target = models()[name]
    little = Llama(LlamaConfig(d_model=4, n_layers=1, **SIZES)).eval()
    prompt = torch.tensor([[3, 1, 4, 1, 5]])
    (expected,) = generate(target, prompt, max_new_tokens=max_new_tokens, temperature=0)
    drafts = {
        "itself": ModelDraft(target, max_len=40, choice=best),
        "little": ModelDraft(little, max_len=40),
        "lookup": PromptLookup(7),
    }
    for kind, draft in drafts.items():
        rounds = list(
            speculate(
                target, draft, prompt, max_new_tokens=max_new_tokens, ahead=ahead, choice=best
            )
        )
        assert flat(rounds) == expected
        assert all(1 <= len(said) <= ahead + 1 for said in rounds)
        if kind == "itself":  # nothing is refused: whole rounds, and what is left
            assert len(rounds) == math.ceil(max_new_tokens / (ahead + 1))


def test_it_stops_at_the_end_token():
    target, prompt = models()["llama"], torch.tensor([[5]])
    lengths = set()
    for eos, ahead in product(range(7), (1, 4, 11)):
        settings = {"max_new_tokens": 29, "eos": eos}
        (expected,) = generate(target, prompt, temperature=0, **settings)
        draft = ModelDraft(target, max_len=40, choice=best)
        rounds = list(speculate(target, draft, prompt, ahead=ahead, choice=best, **settings))
        assert flat(rounds) == expected
        assert all(1 <= len(said) <= ahead + 1 for said in rounds)  # none where it comes first
        draft = ModelDraft(target, max_len=40, choice=best)
        settings["eos"] = [eos, 99]
        several = speculate(target, draft, prompt, ahead=ahead, choice=best, **settings)
        assert [*several] == rounds
        lengths.add(len(expected))
    assert len(lengths) > 2  # some end early


def test_a_model_that_reads_a_source():
    target = Transformer(TransformerConfig(7, d_model=12, d_ff=17, n_heads=2, n_layers=2)).eval()
    src, mask = torch.randint(7, (1, 5)), torch.tensor([[True, True, True, False, False]])
    prompt, given = torch.tensor([[1]]), {"src": src, "src_mask": mask}
    (expected,) = generate(target, prompt, max_new_tokens=13, temperature=0, **given)
    draft = PromptLookup(7, n_gram=1)
    rounds = list(speculate(target, draft, prompt, max_new_tokens=13, choice=best, **given))
    assert flat(rounds) == expected
    assert len(rounds) < 13  # a small random model repeats itself: some guesses were right


# --- what the models are asked --------------------------------------------------------------------


def test_each_model_reads_a_token_once_unless_it_was_taken_back(prefix_model):
    class Watched(prefix_model):
        def step(self, ids, state, last=None):
            self.read.append((state[0][1], tuple(ids[0].tolist())))
            return super().step(ids, state)

    target, small = Watched(5, seed=1), Watched(5, seed=2)
    target.read, small.read = [], []
    prompt = torch.tensor([[1, 2, 3]])
    draft = ModelDraft(small, max_len=23)
    text, rounds = [1, 2, 3], 0
    for said in speculate(target, draft, prompt, max_new_tokens=17, ahead=3):
        held, new = target.read[rounds]
        assert list(held) == text[: len(held)] and list(held + new)[: len(text)] == text
        assert len(held) == (0 if rounds == 0 else len(text) - 1)
        text, rounds = text + said, rounds + 1
        assert not torch.is_inference_mode_enabled()
    assert len(text) == 20 and len(target.read) == rounds  # one call for each item
    for held, new in small.read:  # what the draft holds agrees with what it was asked about
        assert held == () or len(new) <= 2


def test_expected_tokens_are_the_mean_of_rounds():
    p, q, n = [0.6, 0.3, 0.1], [0.2, 0.3, 0.5], 4
    alpha = sum(min(a, b) for a, b in zip(p, q, strict=True))
    law_ = exact_rounds(p, q, n, p)
    mean = sum(len(said) * probability for said, probability in law_.items())
    assert math.isclose(expected_tokens(alpha, n), mean)
    assert expected_tokens(1, 5) == 6.0 and expected_tokens(0, 5) == 1.0


def test_prompt_lookup_by_hand():
    ids = torch.tensor([1, 2, 3, 1, 2, 4, 5, 1, 2])
    guesses, q = PromptLookup(7).propose(ids, 2)
    assert guesses == [4, 5] and q.argmax(-1).tolist() == guesses and q.sum() == 2
    assert PromptLookup(7).propose(ids, 9)[0] == [4, 5, 1, 2]
    assert PromptLookup(7, n_gram=3).propose(ids, 2)[0] == []
    assert PromptLookup(7, n_gram=1).propose(torch.tensor([3, 3, 3]), 4)[0] == [3]
    guesses, q = PromptLookup(7).propose(torch.tensor([2]), 4)
    assert guesses == [] and q.shape == (0, 7)


@pytest.mark.parametrize("wrong", [{"ahead": 0}, {"max_new_tokens": -1}])
def test_settings_that_mean_nothing(wrong):
    ((name, value),) = wrong.items()
    settings = {"max_new_tokens": 3, "ahead": 2, **wrong}
    with pytest.raises(ValueError, match=f"{name}={value}"):
        list(speculate(models()["gpt"], PromptLookup(7), torch.tensor([[1]]), **settings))


@pytest.mark.parametrize("shape", [(2, 3), (1, 0)])
def test_one_text_at_a_time_with_something_to_begin_with(shape):
    with pytest.raises(ValueError, match=rf"\[{shape[0]}, {shape[1]}\]"):
        list(
            speculate(models()["gpt"], PromptLookup(7), torch.zeros(shape).long(), max_new_tokens=3)
        )


def test_an_n_gram_of_nothing():
    with pytest.raises(ValueError, match=r"n_gram.*0"):
        PromptLookup(7, n_gram=0)


@pytest.mark.parametrize(("alpha", "n"), [(-0.1, 3), (1.1, 3), (0.5, -1), (math.nan, 1)])
def test_no_probability_and_no_number(alpha, n):
    with pytest.raises(ValueError, match=rf"alpha={alpha}.*n={n}"):
        expected_tokens(alpha, n)


def test_half_precision_is_chosen_from_in_float():
    assert probabilities(torch.randn(5, 7).bfloat16()).dtype == torch.float32
