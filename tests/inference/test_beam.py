"""Beam search against all sequences and plain loops; a batch against each sentence alone."""

import math
from itertools import product

import pytest
import torch

from transformer_lit.inference.beam import beam_search, keep_traces
from transformer_lit.models.transformer import Transformer, TransformerConfig

BOS, EOS = 1, 0  # the begin token can be said again: it is a token like any other
INF = math.inf
ONE = torch.zeros(1, 1, dtype=torch.long)


def score_of(total, length, alpha):
    return total / ((5 + length) / 6) ** alpha


def search(model, src, **settings):
    return beam_search(model, src, bos=BOS, eos=EOS, **settings)


# --- all sequences -------------------------------------------------------------------------------


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


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(("V", "L"), [(2, 5), (3, 4), (5, 3), (7, 1)])
def test_a_beam_that_holds_every_sequence_is_exhaustive(prefix_model, V, L, alpha):
    every = [*sequences(V, L)]
    for seed in range(3):
        model, src = prefix_model(V, seed=seed), torch.randint(V, (3, 2))
        n_best = min(5, len(every))
        found = search(model, src, max_len=L, beam=len(every), n_best=n_best, alpha=alpha)
        for row, hypotheses in zip(src.tolist(), found, strict=True):
            totals = {ids: (log_prob(model, row, ids, n), n) for ids, n in every}
            scores = {ids: score_of(*of, alpha) for ids, of in totals.items()}
            best = sorted(scores, key=lambda ids: -scores[ids])[:n_best]
            assert [h.ids for h in hypotheses] == best
            for h in hypotheses:
                assert math.isclose(h.score, scores[h.ids])
                assert math.isclose(h.log_prob, totals[h.ids][0])


# --- narrower, against plain loops ---------------------------------------------------------------


def by_rules(model, src, V, *, beam, L, alpha, n_best):
    "One sentence alone: what finished, what became of each candidate, and why the search stopped."
    beginnings, finished, steps = [((), 0.0)], [], []
    while beginnings:
        candidates = []
        for ids, so_far in beginnings:
            row = model.logits(src, (BOS, *ids)).log_softmax(-1).tolist()
            candidates += [((*ids, i), so_far + row[i]) for i in range(V) if row[i] > -INF]
        candidates.sort(key=lambda c: -c[1])
        done = [c for c in candidates[:beam] if c[0][-1] == EOS]
        beginnings = [c for c in candidates if c[0][-1] != EOS][:beam]
        going_on = "cut" if len(candidates[0][0]) == L else "open"
        fates = dict.fromkeys(done, "finished") | dict.fromkeys(beginnings, going_on)
        steps.append([(*c, fates.get(c, "dropped")) for c in candidates[: 2 * beam]])
        if going_on == "cut":
            done, beginnings = done + beginnings, []
        finished += [(score_of(total, len(ids), alpha), ids) for ids, total in done]
        finished.sort(key=lambda f: -f[0])
        if beginnings and len(finished) >= n_best:
            (ids, so_far), least = beginnings[0], finished[n_best - 1][0]
            if score_of(so_far, L, alpha) <= least:
                return finished[:n_best], steps, "bound"
            if len(finished) >= beam and score_of(so_far, len(ids), alpha) <= least:
                return finished[:n_best], steps, "gave up"
    return finished[:n_best], steps, "nothing open"


def narrow(prefix_model):
    class Narrow(prefix_model):
        "Two tokens are possible after each prefix; before the third the end is not among them."

        def logits(self, src, prefix):
            out = super().logits(src, prefix)
            if len(prefix) < 3:
                out[EOS] = -INF
            return out.masked_fill(out < out.topk(2).values[-1], -INF)

        def step(self, ids, state, last=None):
            for (src, prefix), new in zip(state, ids.tolist(), strict=True):
                # a place without a candidate must not show the model anything made up
                assert not prefix or self.logits(src, prefix)[new[0]] > -INF
            return super().step(ids, state)

    return Narrow


@pytest.mark.parametrize("kind", [lambda prefix_model: prefix_model, narrow], ids=["any", "narrow"])
@pytest.mark.parametrize("beam", [1, 2, 5, 17])
def test_search_and_trace_follow_the_rules(prefix_model, kind, beam):
    V, src, seen = 7, torch.randint(7, (5, 2)), set()
    model = kind(prefix_model)(V, seed=6)
    for L, alpha, n_best in product((1, 2, 7, 17), (0.0, 0.6, 3.0), {1, beam}):
        traces, settings = [], {"max_len": L, "beam": beam, "alpha": alpha, "n_best": n_best}
        found = search(model, src, sentence=keep_traces(traces), **settings)
        assert found == search(model, src, **settings)  # a trace changes nothing
        for row, hypotheses, trace in zip(src.tolist(), found, traces, strict=True):
            rules = {"beam": beam, "L": L, "alpha": alpha, "n_best": n_best}
            finished, steps, why = by_rules(model, row, V, **rules)
            ids = [ids[:-1] if ids[-1] == EOS else ids for _, ids in finished]
            assert [h.ids for h in hypotheses] == ids
            assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in finished])
            looked_at = [[(c.ids, c.fate) for c in step] for step in trace.steps]
            assert looked_at == [[(ids, fate) for ids, _, fate in step] for step in steps]
            totals = [c.log_prob for step in trace.steps for c in step]
            assert totals == pytest.approx([total for step in steps for _, total, _ in step])
            assert trace.why == why
            seen |= {why, *(fate for step in steps for *_, fate in step)}
    assert seen >= {"bound", "nothing open", "open", "finished", "cut", "dropped"}
    if kind is not narrow and 1 < beam < 17:
        assert "gave up" in seen


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


def test_each_sentence_may_have_a_limit_of_its_own(prefix_model):
    model, src, limits = prefix_model(5, seed=3), torch.arange(5)[:, None], [2, 5, 3, 1, 4]
    settings = {"beam": 3, "n_best": 3, "alpha": 0.6}
    together = search(model, src, max_len=limits, **settings)
    for row, limit, found in zip(src, limits, together, strict=True):
        assert found == search(model, row[None], max_len=limit, **settings)[0]
    assert together != search(model, src, max_len=5, **settings)


def test_half_precision_logits_are_ranked_in_float(prefix_model):
    class Half(prefix_model):
        def step(self, ids, state):
            return super().step(ids, state).bfloat16()

    src = torch.randint(7, (5, 2))
    model, half = prefix_model(7, seed=1), Half(7, seed=1)
    model.logits = lambda src, prefix: half.logits(src, prefix).bfloat16().float()
    assert search(half, src, max_len=7, beam=3) == search(model, src, max_len=7, beam=3)


def test_no_sentences_give_no_hypotheses(prefix_model):
    assert search(prefix_model(5, seed=0), torch.zeros(0, 3).long(), max_len=5) == []


# --- the Transformer -----------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_padded_sentences_are_each_as_alone_with_the_models_log_probabilities(alpha):
    model = Transformer(TransformerConfig(29, d_model=12, d_ff=17, n_heads=3, n_layers=2)).eval()
    lengths, seen = torch.tensor([[7], [2], [5], [3], [1]]), set()
    src, src_mask = torch.randint(29, (5, 7)), torch.arange(7) < lengths
    for eos in range(1, 29, 4):  # a random model says some tokens early, others never
        settings = {"bos": 1, "eos": eos, "max_len": 7, "beam": 5, "n_best": 3, "alpha": alpha}
        together = beam_search(model, src, src_mask, **settings)
        for row, n in enumerate(lengths.flatten().tolist()):
            (alone,) = beam_search(model, src[row : row + 1, :n], **settings)
            assert [h.ids for h in alone] == [h.ids for h in together[row]]
            h = together[row][0]
            said = [*h.ids, eos][:7]
            logits = model(src[row : row + 1, :n], torch.tensor([[1, *said[:-1]]]))[0]
            total = logits.log_softmax(-1)[range(len(said)), said].sum().item()
            assert math.isclose(h.log_prob, total)
            assert math.isclose(h.score, score_of(total, len(said), alpha))
            seen.add(len(said))
    assert len(seen) > 1


# --- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [{"beam": 0}, {"n_best": 0}, {"n_best": 5, "beam": 3}, {"max_len": 0},
     {"max_len": [0]}, {"alpha": -0.5}, {"alpha": math.nan}, {"alpha": INF}],
)  # fmt: skip
def test_settings_out_of_range(prefix_model, wrong):
    shown = ".*".join(f"{name}={value}" for name, value in wrong.items())
    with pytest.raises(ValueError, match=shown.replace("[", r"\[")):
        search(prefix_model(5, seed=0), ONE, **{"max_len": 3, **wrong})


@pytest.mark.parametrize(("bad", "after"), [(math.nan, 2), (INF, 2), (-INF, 0)])
def test_logits_without_probabilities_are_refused(prefix_model, bad, after):
    "One that is nan or +inf, or a row that bans every token; in one sentence of several."

    class Broken(prefix_model):
        def logits(self, src, prefix):
            out = super().logits(src, prefix)
            if src == (3,) and len(prefix) == after + 1:
                out[2 if after else slice(None)] = bad
            return out

    model = Broken(7, seed=0)
    assert len(search(model, torch.tensor([[2], [5]]), max_len=5, beam=2)) == 2
    with pytest.raises(ValueError, match=rf"after {after} tokens.*nan or \+inf"):
        search(model, torch.tensor([[2], [3], [5]]), max_len=5, beam=2)
