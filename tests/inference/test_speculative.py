"""Speculation: exact laws of rounds and texts, the target's greedy texts, and what models read.

The chapter proves the rule and shows three that are wrong: see tests/damages/inference.yml.
"""

import math
from collections import Counter
from inspect import unwrap
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


def follows(counts, exact):
    """Whether Pearson's statistic is below a bound that it exceeds with a probability below e^-14 =
    8e-7 if the law is exact (Laurent and Massart 2000, lemma 1)."""
    possible = {text: p for text, p in exact.items() if p > 0}
    assert set(counts) <= set(possible)  # what cannot be is not said
    N, d = sum(counts.values()), len(possible) - 1
    statistic = sum((counts[text] - N * p) ** 2 / (N * p) for text, p in possible.items())
    return statistic < d + 2 * math.sqrt(14 * d) + 28


# --- rounds --------------------------------------------------------------------------------------

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
    P, Q = torch.tensor([p] * n + [follow]), torch.tensor([q] * n).view(n, V)
    generator, counts = torch.Generator().manual_seed(5), Counter()
    for _ in range(1009):
        guesses = [int(torch.multinomial(row, 1, generator=generator)) for row in Q]
        counts[tuple(judge(P, Q, guesses, generator=generator))] += 1
    assert follows(counts, exact_rounds(p, q, n, follow))


# --- the distribution of texts -------------------------------------------------------------------


def nucleus(logits):
    return keep_top_p(logits / 1.5, 0.8).softmax(-1)


@pytest.mark.parametrize(
    ("lookup", "ahead", "choice"),
    [(False, 1, probabilities), (False, 5, probabilities), (False, 2, nucleus),
     (True, 2, probabilities)],
)  # fmt: skip
def test_texts_have_the_distribution_of_the_target(prefix_model, lookup, ahead, choice):
    "Whatever the target's choice is; the draft draws at temperature 1, or is sure."
    target, small = prefix_model(V, seed=1, spread=1.5), prefix_model(V, seed=2)
    generator, counts, prompt = torch.Generator().manual_seed(7), Counter(), [1, 2]
    settings = {"max_new_tokens": 3, "ahead": ahead, "choice": choice, "generator": generator}
    for _ in range(401):
        draft = ModelDraft(small, max_len=9, generator=generator)
        draft = PromptLookup(V, n_gram=1) if lookup else draft
        counts[tuple(flat(speculate(target, draft, torch.tensor([prompt]), **settings)))] += 1

    def law(model):
        "The probability of each text, from the model's logits of whole prefixes."
        exact = {(): 1.0}
        for _ in range(3):
            exact = {
                (*said, x): before * choice(model.logits((), (*prompt, *said)))[x].item()
                for said, before in exact.items()
                for x in range(V)
            }
        return exact

    assert follows(counts, law(target))
    assert (0 in law(target).values()) == (choice is nucleus)
    if choice is probabilities:  # and another law is told apart
        assert not follows(counts, law(small))


# --- greedy --------------------------------------------------------------------------------------

SIZES = {"vocab_size": 7, "d_ff": 17, "n_heads": 2}


def gpt():
    return GPT(GPTConfig(d_model=12, n_layers=2, max_len=53, **SIZES)).eval()


def llama(d_model=12, n_layers=2):
    return Llama(LlamaConfig(d_model=d_model, n_layers=n_layers, n_kv_heads=1, **SIZES)).eval()


@pytest.mark.parametrize("model", [gpt, llama])
@pytest.mark.parametrize(("max_new_tokens", "ahead"), [(0, 1), (2, 5), (23, 1), (23, 5)])
def test_greedy_texts_are_those_of_the_target_alone(model, max_new_tokens, ahead):
    target, prompt = model(), torch.tensor([[3, 1, 4, 1, 5]])
    settings = {"max_new_tokens": max_new_tokens}
    (expected,) = generate(target, prompt, temperature=0, **settings)
    drafts = {
        "itself": ModelDraft(target, max_len=40, choice=best),
        "little": ModelDraft(llama(4, 1), max_len=40),
        "lookup": PromptLookup(7),
    }
    for kind, draft in drafts.items():
        rounds = list(speculate(target, draft, prompt, ahead=ahead, choice=best, **settings))
        assert flat(rounds) == expected
        assert all(1 <= len(said) <= ahead + 1 for said in rounds)
        if kind == "itself":  # nothing is refused: whole rounds, and what is left
            assert len(rounds) == math.ceil(max_new_tokens / (ahead + 1))


def test_it_stops_at_any_of_the_end_tokens():
    target, prompt, lengths = llama(), torch.tensor([[5]]), set()
    for eos, ahead in product(range(7), (1, 4)):
        settings = {"max_new_tokens": 11, "eos": [eos, 99] if ahead == 4 else eos}
        (expected,) = generate(target, prompt, temperature=0, **settings)
        draft = ModelDraft(target, max_len=40, choice=best)
        rounds = list(speculate(target, draft, prompt, ahead=ahead, choice=best, **settings))
        assert flat(rounds) == expected
        assert all(1 <= len(said) <= ahead + 1 for said in rounds)  # none where it comes first
        lengths.add(len(expected))
    assert len(lengths) > 1  # some end early


def test_a_model_that_reads_a_source():
    target = Transformer(TransformerConfig(7, d_model=12, d_ff=17, n_heads=2, n_layers=2)).eval()
    src, mask = torch.randint(7, (1, 5)), torch.tensor([[True, True, True, False, False]])
    prompt, given = torch.tensor([[1]]), {"src": src, "src_mask": mask}
    (expected,) = generate(target, prompt, max_new_tokens=13, temperature=0, **given)
    draft = PromptLookup(7, n_gram=1)
    rounds = list(speculate(target, draft, prompt, max_new_tokens=13, choice=best, **given))
    assert flat(rounds) == expected
    assert len(rounds) < 13  # a small random model repeats itself: some guesses were right


# --- what the models are asked -------------------------------------------------------------------


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


def test_prompt_lookup_by_hand():
    ids = torch.tensor([1, 2, 3, 1, 2, 4, 5, 1, 2])
    guesses, q = PromptLookup(7).propose(ids, 2)
    assert guesses == [4, 5] and q.argmax(-1).tolist() == guesses and q.sum() == 2
    assert PromptLookup(7).propose(ids, 9)[0] == [4, 5, 1, 2]
    assert PromptLookup(7, n_gram=3).propose(ids, 2)[0] == []
    assert PromptLookup(7, n_gram=1).propose(torch.tensor([3, 3, 3]), 4)[0] == [3]
    guesses, q = PromptLookup(7).propose(torch.tensor([2]), 4)
    assert guesses == [] and q.shape == (0, 7)


def test_half_precision_is_chosen_from_in_float():
    assert probabilities(torch.randn(5, 7).bfloat16()).dtype == torch.float32


def speculated(ids=((1,),), **settings):
    ids = torch.tensor(ids, dtype=torch.long)
    return [*speculate(gpt(), PromptLookup(7), ids, **{"max_new_tokens": 3, **settings})]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: speculated(ahead=0), "ahead=0"),
        (lambda: speculated(max_new_tokens=-1), "max_new_tokens=-1"),
        (lambda: speculated([[1, 2], [3, 4]]), r"\[2, 2\]"),  # one text at a time
        (lambda: speculated([[]]), r"\[1, 0\]"),  # with something to begin with
        (lambda: PromptLookup(7, n_gram=0), r"n_gram.*0"),
        (lambda: unwrap(judge)(torch.ones(2, 5), torch.ones(1, 7), [3]), "among 7 .* among 5"),
        (lambda: expected_tokens(-0.1, 3), r"alpha=-0\.1.*n=3"),
        (lambda: expected_tokens(1.1, 3), r"alpha=1\.1.*n=3"),
        (lambda: expected_tokens(0.5, -1), r"alpha=0\.5.*n=-1"),
        (lambda: expected_tokens(math.nan, 1), "alpha=nan.*n=1"),
    ],
)
def test_what_means_nothing_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
