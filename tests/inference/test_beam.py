import math
from itertools import pairwise, product

import pytest
import torch
from wide import Wide

from benchmarks.peers import hf_marian
from transformer_lit.inference.beam import beam_search, keep_traces, length_penalty
from transformer_lit.inference.sampling import generate
from transformer_lit.models.transformer import Transformer, TransformerConfig

BOS, EOS = 1, 0  # the begin token can be said again: it is a token like any other


def sequences(V, L):
    "All that a search may return: (ids without the end token, length with it)."
    for n in range(L):
        for ids in product([i for i in range(V) if i != EOS], repeat=n):
            yield ids, n + 1
    for ids in product([i for i in range(V) if i != EOS], repeat=L):
        yield ids, L  # cut


def log_prob(model, src, ids, length):
    said = [*ids, EOS][:length]
    rows = [model.logits(src, (BOS, *said[:t])).log_softmax(-1) for t in range(length)]
    return sum(row[token].item() for row, token in zip(rows, said, strict=True))


def ranked(model, src, V, L, alpha):
    "Exhaustive search: (score, log-probability, ids), best first."
    found = []
    for ids, length in sequences(V, L):
        total = log_prob(model, src, ids, length)
        found.append((total / ((5 + length) / 6) ** alpha, total, ids))
    return sorted(found, reverse=True)


def search(model, src, **settings):
    return beam_search(model, src, bos=BOS, eos=EOS, **settings)


# --- the two ends: all sequences, and greedy --------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(("V", "L"), [(2, 5), (3, 4), (5, 3), (7, 1)])
def test_a_beam_that_holds_every_sequence_is_exhaustive(prefix_model, V, L, alpha):
    count = sum(1 for _ in sequences(V, L))
    for seed in range(3):
        model = prefix_model(V, seed=seed)
        src = torch.randint(V, (3, 2))
        n_best = min(5, count)
        found = search(model, src, max_len=L, beam=count, n_best=n_best, alpha=alpha)
        for row, hypotheses in zip(src.tolist(), found, strict=True):
            expected = ranked(model, row, V, L, alpha)[:n_best]
            assert [h.ids for h in hypotheses] == [ids for _, _, ids in expected]
            for h, (score, total, _) in zip(hypotheses, expected, strict=True):
                assert math.isclose(h.score, score) and math.isclose(h.log_prob, total)


def test_exhaustive_search_meets_cut_and_ended_hypotheses(prefix_model):
    # the case above must not pass on one kind alone
    kinds = set()
    for seed in range(5):
        best = ranked(prefix_model(3, seed=seed), (), 3, 4, 1.0)[:5]
        kinds |= {len(ids) == 4 for _, _, ids in best}
    assert kinds == {True, False}


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("max_len", [1, 5, 11])
def test_a_beam_of_one_is_greedy(prefix_model, max_len, alpha):
    model, src = prefix_model(5, seed=4), torch.randint(5, (23, 2))
    found = search(model, src, max_len=max_len, beam=1, alpha=alpha)
    prompt = torch.full((23, 1), BOS)
    greedy = generate(model, prompt, max_new_tokens=max_len, eos=EOS, src=src, temperature=0)
    assert [list(h.ids) for (h,) in found] == greedy
    if max_len == 11:
        assert len({len(row) for row in greedy}) > 3


# --- between them, against plain loops --------------------------------------------------------


def loops(model, src, V, *, beam, L, alpha, n_best):
    "The rules of the chapter, a sentence alone, and without the bound."
    beginnings, finished = [((), 0.0)], []
    while beginnings:
        if len(finished) >= beam:
            (ids, so_far), listed = beginnings[0], sorted(finished, key=lambda f: -f[0])
            if so_far / ((5 + len(ids)) / 6) ** alpha <= listed[n_best - 1][0]:
                break
        candidates = []
        for ids, so_far in beginnings:
            row = model.logits(src, (BOS, *ids)).log_softmax(-1).tolist()
            candidates += [((*ids, i), so_far + row[i]) for i in range(V) if row[i] > -math.inf]
        candidates.sort(key=lambda c: -c[1])
        done = [c for c in candidates[:beam] if c[0][-1] == EOS]
        beginnings = [c for c in candidates if c[0][-1] != EOS][:beam]
        if len(candidates[0][0]) == L:
            done, beginnings = done + beginnings, []
        for ids, total in done:
            score = total / ((5 + len(ids)) / 6) ** alpha
            finished.append((score, ids[:-1] if ids[-1] == EOS else ids))
    return sorted(finished, key=lambda f: -f[0])[:n_best]


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize("beam", [2, 5, 17])
@pytest.mark.parametrize("max_len", [1, 7])
def test_search_follows_its_rules(prefix_model, beam, max_len, alpha):
    V, src = 7, torch.randint(7, (11, 2))
    model = prefix_model(V, seed=6)
    for n_best in {1, 2, beam}:
        found = search(model, src, max_len=max_len, beam=beam, n_best=n_best, alpha=alpha)
        for row, hypotheses in zip(src.tolist(), found, strict=True):
            rules = {"beam": beam, "L": max_len, "alpha": alpha, "n_best": n_best}
            expected = loops(model, row, V, **rules)
            assert [h.ids for h in hypotheses] == [ids for _, ids in expected]
            for h, (score, _) in zip(hypotheses, expected, strict=True):
                assert math.isclose(h.score, score)


@pytest.mark.parametrize("beam", [2, 5, 23])
def test_banned_tokens_leave_fewer_candidates_than_places(prefix_model, beam):
    class Narrow(prefix_model):
        "Two tokens are possible after each prefix; before the third the end is not among them."

        def logits(self, src, prefix):
            out = super().logits(src, prefix)
            if len(prefix) < 3:
                out[EOS] = -math.inf
            return out.masked_fill(out < out.topk(2).values[-1], -math.inf)

    model, src = Narrow(5, seed=8), torch.randint(5, (7, 2))
    found = search(model, src, max_len=5, beam=beam, n_best=beam)
    for row, hypotheses in zip(src.tolist(), found, strict=True):
        expected = loops(model, row, 5, beam=beam, L=5, alpha=1.0, n_best=beam)
        assert [h.ids for h in hypotheses] == [ids for _, ids in expected]
        assert len({h.ids for h in hypotheses}) == len(hypotheses)
        assert all(math.isfinite(h.log_prob) for h in hypotheses)


def test_a_place_without_a_candidate_shows_the_model_nothing_made_up(prefix_model):
    follows = {BOS: {2: 0.55, 3: 0.45}, 2: {3: 0.5, 4: 0.5}, 3: {2: 1.0}, 4: {2: 1.0}}

    class Watched(prefix_model):
        "The best beginning of two tokens, 3 2, grew from the second of the first step."

        def logits(self, src, prefix):
            assert all(b in follows[a] for a, b in pairwise(prefix))
            return torch.tensor([follows[prefix[-1]].get(i, 0.0) for i in range(5)]).log()

    ((best,),) = search(Watched(5, seed=0), torch.zeros(1, 1).long(), max_len=4, beam=7)
    assert best.ids in {(3, 2, 3, 2), (3, 2, 4, 2)}  # 0.45 · 0.5 each; 2 3 2 3 has 0.55 · 0.25


# --- the stopping rule ------------------------------------------------------------------------


def test_a_sentence_that_is_over_leaves_the_batch(prefix_model):
    model, src = prefix_model(5, seed=9), torch.randint(5, (13, 3))
    found = search(model, src, max_len=17, beam=3)
    seen, steps = model.rows_seen, []
    for row in range(13):
        model.rows_seen = []
        assert search(model, src[row : row + 1], max_len=17, beam=3) == [found[row]]
        steps.append(len(model.rows_seen))
    assert seen == [3 * sum(n > t for n in steps) for t in range(max(steps))]
    assert len(set(steps)) > 2  # they do not all stop at once


class Fixed(torch.nn.Module):
    "Probabilities for each prefix by hand; what is not listed ends for certain."

    def __init__(self, table):
        super().__init__()
        self.table, self.steps = table, 0

    def start(self, batch_size, max_len, src=None, src_mask=None):
        class Rows(list):
            def select(self, rows):
                self[:] = [self[row] for row in rows.tolist()]

        return Rows([()] * batch_size)

    def step(self, ids, state):
        self.steps += 1
        if self.steps > 1:
            state[:] = [(*row, *new) for row, new in zip(state, ids.tolist(), strict=True)]
        p = [self.table.get(row, (1.0, 0.0, 0.0, 0.0)) for row in state]
        return torch.tensor(p)[:, None].log()


ONE = torch.zeros(1, 1, dtype=torch.long)


@pytest.mark.parametrize(("alpha", "steps", "ids"), [(0.0, 1, ()), (1.0, 9, (2,) * 9)])
def test_the_bound_knows_the_penalty(alpha, steps, ids):
    # ends at once with 0.6; or goes on with 0.4, and then for certain. Without a penalty nothing
    # can beat 0.6 and one step is enough; with it ln(0.4)/(14/6) = -0.39 beats ln(0.6) = -0.51.
    table = {(2,) * n: (0.0, 0.0, 1.0, 0.0) for n in range(1, 9)} | {(): (0.6, 0.0, 0.4, 0.0)}
    model = Fixed(table)
    ((best,),) = search(model, ONE, max_len=9, beam=3, alpha=alpha)
    assert (best.ids, model.steps) == (ids, steps)


def test_the_search_is_over_when_every_place_is_spent():
    # a beam of 2 finishes () with 0.5 and (2,) with 0.24; what is open could still win by length
    table = {
        (): (0.5, 0.0, 0.3, 0.2),
        (2,): (0.8, 0.0, 0.2, 0.0),
        **{(3,) * n: (0.0, 0.0, 0.0, 1.0) for n in range(1, 99)},
    }
    model = Fixed(table)
    ((best,),) = search(model, ONE, max_len=99, beam=2, alpha=1.0)
    assert (best.ids, model.steps) == ((), 2)
    ((best,),) = search(Fixed(table), ONE, max_len=99, beam=5, alpha=1.0)
    assert best.ids == (3,) * 99


def test_an_end_token_below_the_beam_does_not_finish():
    # after () the end ranks third: a beam of 2 passes it by, a beam of 3 takes it
    table = {(): (0.2, 0.0, 0.42, 0.38), (2,): (0.1, 0.9, 0.0, 0.0), (3,): (0.1, 0.9, 0.0, 0.0)}
    for beam, expected in [(2, {(2, 1), (3, 1)}), (3, {(2, 1), (3, 1), ()})]:
        (found,) = search(Fixed(table), ONE, max_len=3, beam=beam, n_best=beam, alpha=0.0)
        assert {h.ids for h in found} == expected


# --- the Transformer --------------------------------------------------------------------------


@pytest.fixture
def transformer():
    return Transformer(TransformerConfig(29, d_model=12, d_ff=17, n_heads=3, n_layers=2)).eval()


SOURCE_LENGTHS = torch.tensor([[7], [2], [5], [3], [1]])


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("eos", [1, 9, 17])
def test_padded_sentences_are_each_as_alone(transformer, eos, alpha):
    src, src_mask = torch.randint(29, (5, 7)), torch.arange(7) < SOURCE_LENGTHS
    settings = {"bos": 1, "eos": eos, "max_len": 7, "beam": 5, "n_best": 3, "alpha": alpha}
    together = beam_search(transformer, src, src_mask, **settings)
    for row, n in enumerate(SOURCE_LENGTHS.flatten().tolist()):
        (alone,) = beam_search(transformer, src[row : row + 1, :n], **settings)
        assert [h.ids for h in alone] == [h.ids for h in together[row]]
        for a, t in zip(alone, together[row], strict=True):
            assert math.isclose(a.score, t.score)


def test_log_prob_is_the_sum_of_the_models_log_probabilities(transformer):
    src, src_mask = torch.randint(29, (5, 7)), torch.arange(7) < SOURCE_LENGTHS
    lengths = set()
    for eos in range(29):  # a random model says some tokens early, others never
        settings = {"bos": 1, "eos": eos, "max_len": 7, "beam": 5, "n_best": 3, "alpha": 0.6}
        for row, hypotheses in enumerate(beam_search(transformer, src, src_mask, **settings)):
            for h in hypotheses:
                said = [*h.ids, eos][:7]
                tgt_in = torch.tensor([[1, *said[:-1]]])
                logits = transformer(src[row : row + 1], tgt_in, src_mask[row : row + 1])[0]
                total = logits.log_softmax(-1)[range(len(said)), said].sum().item()
                assert math.isclose(h.log_prob, total)
                assert math.isclose(h.score, total / ((5 + len(said)) / 6) ** 0.6)
                lengths.add(len(said))
            assert [h.score for h in hypotheses] == sorted(h.score for h in hypotheses)[::-1]
    assert len(lengths) > 3  # some ended early, some late, some were cut


@pytest.mark.parametrize("beam", [3, 5])
def test_beams_are_those_of_hf_on_the_same_weights(beam):
    """All `beam` hypotheses without a penalty: theirs has another formula than ours.

    HF's search is over when `beam` are finished and what is open beats none of them: with
    n_best = beam, so is ours. (`early_stopping=True` would not look at what is open.) When there
    is no room left it takes the first `beam` candidates, ended or cut. Ours adds cut ones that
    rank after them, so none of those is among the `beam` best.
    """
    torch.manual_seed(0)  # the last line says what the weights must be like
    ours = Transformer(TransformerConfig(29, d_model=12, d_ff=17, n_heads=3, n_layers=2)).eval()
    for name, weight in ours.named_parameters():
        if name.startswith("decoder") and name.endswith(("o_proj.weight", "down_proj.weight")):
            weight.data.mul_(10)  # or it says one token again and again
    with Wide():
        theirs = hf_marian(ours).eval()
    src, src_mask = torch.randint(29, (5, 7)), torch.arange(7) < SOURCE_LENGTHS
    lengths, not_greedy = set(), 0
    for eos in range(2, 29, 4):
        with Wide():
            expected = theirs.generate(
                src,
                attention_mask=src_mask.long(),
                num_beams=beam,
                num_return_sequences=beam,
                length_penalty=0.0,
                early_stopping="never",
                do_sample=False,
                max_new_tokens=11,
                eos_token_id=eos,
                return_dict_in_generate=True,
                output_scores=True,
            )
        said = [row[: (row + [eos]).index(eos)] for row in expected.sequences[:, 1:].tolist()]
        settings = {"bos": 1, "eos": eos, "max_len": 11, "beam": beam, "alpha": 0.0}
        found = beam_search(ours, src, src_mask, n_best=beam, **settings)
        assert [list(h.ids) for hypotheses in found for h in hypotheses] == said
        log_probs = torch.tensor([h.log_prob for hypotheses in found for h in hypotheses])
        torch.testing.assert_close(log_probs, expected.sequences_scores)
        best = beam_search(ours, src, src_mask, **settings)  # may stop earlier: by the bound
        assert [[h.ids for h in row] for row in best] == [[row[0].ids] for row in found]
        lengths |= {len(ids) for ids in said}
        greedy = beam_search(ours, src, src_mask, **settings | {"beam": 1})
        not_greedy += sum(a[0].ids != b[0].ids for a, b in zip(best, greedy, strict=True))
    assert len(lengths) > 3 and 11 in lengths and not_greedy > 5


# --- edges ------------------------------------------------------------------------------------


def test_length_penalty():
    assert length_penalty(1, 0.7) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert math.isclose(length_penalty(13, 0.5), math.sqrt(3))
    assert length_penalty(1000, 0.0) == 1.0


@pytest.mark.parametrize(
    "wrong",
    [{"beam": 0}, {"n_best": 0}, {"beam": 3, "n_best": 5}, {"max_len": 0}, {"alpha": -0.5},
     {"alpha": math.nan}, {"alpha": math.inf}],
)  # fmt: skip
def test_settings_out_of_range(prefix_model, wrong):
    shown = ".*".join(f"{name}={value}" for name, value in wrong.items())
    with pytest.raises(ValueError, match=shown):
        search(prefix_model(5, seed=0), ONE, **{"max_len": 3, **wrong})


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_without_probabilities_are_refused(prefix_model, bad):
    class Broken(prefix_model):
        def logits(self, src, prefix):
            out = super().logits(src, prefix)
            if src == (3,) and len(prefix) == 3:
                out[2] = bad
            return out

    model = Broken(7, seed=0)
    assert len(search(model, torch.tensor([[2], [5]]), max_len=5, beam=2)) == 2
    with pytest.raises(ValueError, match=r"after 2 tokens.*nan or \+inf"):
        search(model, torch.tensor([[2], [3], [5]]), max_len=5, beam=2)


def test_logits_that_ban_every_token_are_refused(prefix_model):
    class Silent(prefix_model):
        def logits(self, src, prefix):
            return torch.full((self.vocab_size,), -math.inf)

    with pytest.raises(ValueError, match="after 0 tokens"):
        search(Silent(7, seed=0), ONE, max_len=5, beam=2)


def test_no_sentences_give_no_hypotheses(prefix_model):
    assert search(prefix_model(5, seed=0), torch.zeros(0, 3).long(), max_len=5) == []


def test_half_precision_logits_are_ranked_in_float(prefix_model):
    class Half(prefix_model):
        def step(self, ids, state):
            return super().step(ids, state).bfloat16()

    src = torch.randint(7, (5, 2))
    model, half = prefix_model(7, seed=1), Half(7, seed=1)
    model.logits = lambda src, prefix: half.logits(src, prefix).bfloat16().float()
    assert search(half, src, max_len=7, beam=3) == search(model, src, max_len=7, beam=3)


def test_each_sentence_may_have_a_limit_of_its_own(prefix_model):
    model = prefix_model(5, seed=3)
    src = torch.tensor([[1], [2], [3]])
    settings = {"beam": 3, "alpha": 0.6}
    together = search(model, src, max_len=[2, 5, 3], **settings)
    for row, limit, found in zip(src, [2, 5, 3], together, strict=True):
        assert found == search(model, row[None], max_len=limit, **settings)[0]
    with pytest.raises(ValueError, match=r"max_len=\[2, 0, 3\]"):
        search(model, src, max_len=[2, 0, 3], **settings)


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_poor_ends_do_not_end_the_search_of_a_sure_model(beam, alpha):
    # This catches the bug where `beam` finished hypotheses ended the search, whatever their worth:
    # the end token ranks second at each step, with next to no probability.
    table = {(2,) * n: (0.02, 0.001, 0.969, 0.01) for n in range(7)} | {(2,) * 7: (1.0, 0, 0, 0)}
    ((best,),) = search(Fixed(table), ONE, max_len=20, beam=beam, alpha=alpha)
    assert best.ids == (2,) * 7


# --- the trace ------------------------------------------------------------------------------------


def fates(model, src, V, *, beam, L, alpha):
    "Step by step the first candidates with what became of them, and why the search stopped."
    beginnings, finished, steps = [((), 0.0)], [], []
    while beginnings:
        candidates = []
        for ids, so_far in beginnings:
            row = model.logits(src, (BOS, *ids)).log_softmax(-1).tolist()
            candidates += [((*ids, i), so_far + row[i]) for i in range(V)]
        candidates.sort(key=lambda c: -c[1])
        done = [c for c in candidates[:beam] if c[0][-1] == EOS]
        beginnings = [c for c in candidates if c[0][-1] != EOS][:beam]
        going_on = "cut" if len(candidates[0][0]) == L else "open"
        steps.append(
            [
                (c[0], "finished" if c in done else going_on if c in beginnings else "dropped")
                for c in candidates[: 2 * beam]
            ]
        )
        if going_on == "cut":
            done, beginnings = done + beginnings, []
        finished += [total / ((5 + len(ids)) / 6) ** alpha for ids, total in done]
        if beginnings and finished:
            (ids, so_far), best = beginnings[0], max(finished)
            if so_far / ((5 + L) / 6) ** alpha <= best:
                return steps, "bound"
            if len(finished) >= beam and so_far / ((5 + len(ids)) / 6) ** alpha <= best:
                return steps, "gave up"
    return steps, "nothing open"


def test_a_trace_tells_what_became_of_each_candidate_and_why_the_search_stopped(prefix_model):
    V, src, seen = 7, torch.randint(7, (7, 2)), set()
    model = prefix_model(V, seed=6)
    for beam, L, alpha in product((1, 2, 3), (1, 2, 7, 17), (0.0, 0.6, 3.0)):
        traces, settings = [], {"max_len": L, "beam": beam, "alpha": alpha}
        found = search(model, src, sentence=keep_traces(traces), **settings)
        assert found == search(model, src, **settings)  # a trace changes nothing
        for row, trace in zip(src.tolist(), traces, strict=True):
            steps, why = fates(model, row, V, beam=beam, L=L, alpha=alpha)
            assert [[(c.ids, c.fate) for c in step] for step in trace.steps] == steps
            assert trace.why == why
            seen |= {why, *(fate for step in steps for _, fate in step)}
            for c in (c for step in trace.steps for c in step):
                assert math.isclose(c.log_prob, log_prob(model, row, c.ids, len(c.ids)))
    assert seen == {"bound", "gave up", "nothing open", "open", "finished", "cut", "dropped"}


def test_a_trace_ends_where_candidates_do():
    traces = []
    table = {(): (0.5, 0.0, 0.5, 0.0), (2,): (1.0, 0.0, 0.0, 0.0)}
    search(Fixed(table), ONE, max_len=3, beam=3, alpha=0.0, sentence=keep_traces(traces))
    assert [[(c.ids, c.fate) for c in step] for step in traces[0].steps] == [
        [((EOS,), "finished"), ((2,), "open")]
    ]  # the bound: nothing can beat a half
    assert traces[0].why == "bound"
