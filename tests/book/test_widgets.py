"The widgets of the chapters compute what the package computes, and everybody can use them."

import functools
import itertools
import json
import math
import random
import re
import sys
from dataclasses import replace
from pathlib import Path

import live
import pytest
import torch
from chapter_widgets import chapter_widgets
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from transformer_lit.attention.attend import attend, attention_weights
from transformer_lit.attention.grouped import cache_bytes
from transformer_lit.attention.masks import causal_mask, length_mask, padding_mask
from transformer_lit.attention.windows import Window
from transformer_lit.block.norm import LayerNorm, RMSNorm
from transformer_lit.block.residual import PostNorm, PreNorm
from transformer_lit.course.files import read_text
from transformer_lit.course.records import read_measurement
from transformer_lit.inference.beam import beam_search
from transformer_lit.inference.sampling import keep_min_p, keep_top_k, keep_top_p
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.position.absolute import sinusoids
from transformer_lit.position.rope import RoPE, rope_frequencies
from transformer_lit.position.scaling import make_scaling
from transformer_lit.text.tokenizer import BPETokenizer, readable
from transformer_lit.training.loss import cross_entropy
from transformer_lit.training.schedule import cosine, inverse_sqrt, paper_schedule

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "book"))
import cards  # noqa: E402
import make_widgets  # noqa: E402

WIDGETS = {name: place for name, (place, *_) in chapter_widgets().items() if name != "write"}
NAMES = ["angles", "beam", "costs", "depth", "game", "loss", "masks", "merges", "moments", "norms"]
NAMES += ["positions", "rope", "sampling", "schedule", "softmax", "steps", "tiles", "wirings"]
ASKED = ["heads", "translate", "walk"]  # each loads a model, when its button is pressed
NAMES += ASKED
BEAM = "nbs/inference/02_beam.ipynb"


@pytest.fixture(autouse=True)
def doubles():
    "The page computes in doubles."
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(usual)


@pytest.fixture
def pure(page, address):
    "A page with the functions that compute, without any drawing, in the variable `live`."
    page.goto(address)
    page.evaluate(
        """async () => {
            const base = new URL(document.querySelector("script[src*='page.js']").src);
            const names = [
                ...["costs", "game", "layers", "loss", "masks", "positions", "residual", "rope"],
                ...["sampling", "scaling", "schedule", "steps", "table", "tiles", "tokenizer"],
            ];
            window.live = {};
            for (const name of names) {
                Object.assign(live, await import(new URL(`live/${name}.js`, base)));
            }
        }"""
    )
    return page


# --- the same numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.25, 1.0, 8.0, 11.3])
def test_softmax_with_a_temperature(pure, temperature):
    scores = 5 * torch.randn(11, 7)
    asked = """([rows, temperature]) => rows.map((row) => {
        const weights = live.softmax(row, temperature);
        return [[...weights], live.steepest(weights)];
    })"""
    found, slopes = zip(*pure.evaluate(asked, [scores.tolist(), temperature]))
    q, k = torch.ones(11, 1, 1, 1), scores[:, None, :, None]
    weights = attention_weights(q, k, scale=1 / temperature)[:, 0, 0]
    assert_close(torch.tensor(found), weights)
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
    assert_close(torch.tensor(slopes), jacobian.abs().amax((1, 2)))


@pytest.mark.parametrize(("T", "S"), [(7, 7), (5, 7), (1, 7), (7, 3)])
def test_masks_are_those_of_the_package(pure, T, S):
    sizes = range(1, S + 1)
    asked = """([T, S, sizes]) => ({
        causal: live.causal(T, S),
        everything: live.everything(T, S),
        padding: sizes.map((size) => live.padding(size, T, S)),
        both: sizes.map((size) => live.both(live.padding(size, T, S), live.causal(T, S))),
        sliding: sizes.map((size) => live.sliding(size, T, S)),
    })"""
    found = pure.evaluate(asked, [T, S, list(sizes)])
    causal, seen = causal_mask(T, S), []

    def keep(q, k, v, *, mask):
        seen.append(causal if mask is None else mask[0, 0])  # a window of all is no window
        return q

    q, k = torch.randn(1, 1, T, 2), torch.randn(1, 1, S, 2)
    for size, padding, both in zip(sizes, found["padding"], found["both"], strict=True):
        keys = padding_mask(length_mask(torch.tensor([size]), S))[0, 0]
        assert padding == keys.expand(T, S).tolist()
        assert both == (keys & causal).tolist()
        Window(size, attend=keep)(q, k, k)
    assert found["sliding"] == [mask.tolist() for mask in seen]
    assert found["causal"] == causal.tolist()
    assert found["everything"] == torch.ones(T, S, dtype=torch.bool).tolist()


def test_weights_of_a_masked_row(pure):
    scores, mask = 3 * torch.randn(13, 7), torch.rand(13, 7) < 0.5
    mask[5] = False  # it sees nothing
    asked = "([rows, mask]) => rows.map((row, t) => [...live.maskedSoftmax(row, mask[t])])"
    found = pure.evaluate(asked, [scores.tolist(), mask.tolist()])
    q, k = torch.ones(13, 1, 1, 1), scores[:, None, :, None]
    weights = attention_weights(q, k, mask=mask[:, None, None], scale=1.0)[:, 0, 0]
    assert (weights[5] == 0).all() and not mask[:5].all()
    assert_close(torch.tensor(found), weights)


@pytest.mark.parametrize("base", [10_000, 500])
def test_the_score_of_rotary_positions(pure, base):
    q, k = torch.randn(2, 14)
    pairs = [(0, 0), (2, 5), (102, 105), (7, 3), (1000, 13)]
    asked = """([q, k, pairs, base]) => pairs.map(([t, s]) =>
        [live.score(q, t, k, s, base), live.planes(q, t, k, s, base)])"""
    found = pure.evaluate(asked, [q.tolist(), k.tolist(), pairs, base])
    rope = RoPE(14, base)
    for (t, s), (score, planes) in zip(pairs, found, strict=True):
        a, b = (
            rope.rotate(x.view(1, 1, 1, 14), torch.tensor([n]))[0, 0, 0]
            for x, n in ((q, t), (k, s))
        )
        assert_close(torch.tensor(score), a @ b)
        assert_close(torch.tensor([one["q"] for one in planes]), a.view(2, 7).T.contiguous())
        assert_close(torch.tensor([one["k"] for one in planes]), b.view(2, 7).T.contiguous())
        assert_close(torch.tensor([one["adds"] for one in planes]), (a * b).view(2, 7).sum(0))
        assert_close(torch.tensor([one["frequency"] for one in planes]), rope_frequencies(14, base))


@pytest.mark.parametrize("C", [2, 14, 64, 512])
def test_sinusoids_and_their_products(pure, C):
    asked = """(C) => {
        const rows = live.sinusoids(101, C);
        return [rows.map((row) => [...row]), live.products(rows, 31)];
    }"""
    rows, products = pure.evaluate(asked, C)
    expected = sinusoids(torch.arange(101), C)
    assert_close(torch.tensor(rows), expected)
    assert_close(torch.tensor(products), expected @ expected[31])


def test_planes_under_a_scaling(pure):
    "A hundred heads: frequencies are the package's, and so are the angles farthest from any seen."
    names = ("linear", "ntk", "yarn", "llama3")
    some = itertools.product(names, (8, 14, 32, 64), (100.0, 10_000.0, 500_000.0), (16, 61), (2, 3))
    asked = [(name, {"D": D, "base": base, "L": L, "s": s}) for name, D, base, L, s in some]
    asked = random.Random(0).sample(asked, 99) + [("none", {"D": 32, "base": 1e4, "L": 64, "s": 4})]
    measured = """(all) => all.map(([name, head]) => {
        const [planes, { L, s }] = [live.scaledPlanes(name, head), head];
        return [planes, planes.map((plane) => live.farthestFromSeen(plane, L, s * L))];
    })"""
    for (name, head), (planes, farthest) in zip(asked, pure.evaluate(measured, asked), strict=True):
        D, base, L, s = head.values()
        theta = frequencies = rope_frequencies(D, base)
        if name != "none":
            length = {"original_len": L} if name in ("yarn", "llama3") else {}
            frequencies, _ = make_scaling(name, factor=s, **length)(D, base)
        assert_close(torch.tensor([plane["theta"] for plane in planes]), theta)
        assert_close(torch.tensor([plane["scaled"] for plane in planes]), frequencies)
        assert_close(torch.tensor([plane["turns"] for plane in planes]), L * theta / (2 * math.pi))
        seen = torch.arange(L)[:, None, None] * theta
        new = torch.arange(s * L)[:, None] * frequencies
        apart = (new - seen + math.pi).remainder(2 * math.pi) - math.pi  # seen, new, planes
        assert_close(torch.tensor(farthest), apart.abs().amin(0).amax(0), rtol=1e-6, atol=1e-9)


def sentences():
    "Fifty: some of the book, the chapter's captions, and what no tokenizer has seen."
    lines = read_text(ROOT / "transformer_lit/data/book.txt").splitlines()
    lines = sorted({line[:120] for line in lines if len(line) > 40})
    names = make_widgets.run_cells("nbs/text/01_tokenizer.ipynb", "captions")
    odd = [
        "",
        " ",
        "Fahrräder 🚲",
        "  two  spaces \n",
        "kiki it's 2017: 漢字 \x00\x7f\u00ad\ufeffé",
    ]
    return [*names["captions"], *odd, *random.Random(0).sample(lines, 33)]


TOKENIZERS = {
    "captions": ROOT / "book/_static/widgets/data/captions.json",
    "multi30k-en-de": ROOT / "transformer_lit/weights/multi30k-en-de/tokenizer.json",
}
TRACED = """([described, texts]) => {
    const tokenizer = live.readTokenizer(described);
    return texts.map((text) => [tokenizer.encode(text), tokenizer.trace(text)]);
}"""


def shipped(name):
    "What the page reads, and the package's tokenizer of the same merges."
    described = json.loads(TOKENIZERS[name].read_text(encoding="utf-8"))
    if name != "captions":
        return described, BPETokenizer.load(TOKENIZERS[name])
    names = make_widgets.run_cells("nbs/text/01_tokenizer.ipynb", "captions")
    return described, BPETokenizer.train(names["captions"], len(described["model"]["vocab"]))


@pytest.mark.parametrize("name", TOKENIZERS)
def test_merges_of_fifty_sentences(pure, name):
    described, tokenizer = shipped(name)
    texts = sentences()
    assert len(texts) == 50
    ids, token = tokenizer.encode_all(texts), tokenizer.backend.id_to_token
    merges = [tuple(pair) for pair in described["model"]["merges"]]
    for text, expected, (found, steps) in zip(
        texts, ids, pure.evaluate(TRACED, [described, texts])
    ):
        assert found == expected
        assert [piece for word in steps[-1]["words"] for piece in word] == list(
            map(token, expected)
        )
        ranks = [step["rank"] for step in steps]
        assert ranks == sorted(set(ranks)) and ranks[0] == -1, text
        assert [tuple(step["pair"]) for step in steps[1:]] == [merges[rank] for rank in ranks[1:]]


def test_every_step_of_a_trace_applies_the_merges_so_far(pure):
    described, _ = shipped("captions")
    names = make_widgets.run_cells(
        "nbs/text/01_tokenizer.ipynb", "scratch", "pair-counts", "merges"
    )
    merges = [tuple(pair) for pair in described["model"]["merges"]]
    for _, steps in pure.evaluate(TRACED, [described, sentences()]):
        first = steps[0]["words"]
        for step in steps:
            so_far = merges[: step["rank"] + 1]
            assert step["words"] == [names["apply_merges"](word, so_far) for word in first]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_pieces_read_as_the_package_writes_them(pure, name):
    described, _ = shipped(name)
    asked = """(described) => {
        const tokenizer = live.readTokenizer(described);
        return tokenizer.tokens.map((token) => tokenizer.readable(token));
    }"""
    vocab = sorted(described["model"]["vocab"].items(), key=lambda item: item[1])
    assert pure.evaluate(asked, described) == [readable(token) for token, _ in vocab]


def wordy(follow, end, most):
    "The chapter's model whose sentences may go on, for beginnings of up to `most` words."
    table, new = {}, [()]
    while new:
        words = new.pop()
        row = follow(words)
        if row == {end: 1.0}:
            row = {end: 0.9, "und": 0.1}
        if (words and words[-1] == end) or len(words) >= most:
            continue
        table[" ".join(words)] = row
        new += [(*words, word) for word in row]
    return table


@pytest.mark.parametrize("long", [False, True])
def test_the_search_is_the_chapter_s_and_the_package_s(pure, long):
    names = make_widgets.run_cells(BEAM, "imports", "table", "search")
    described = make_widgets.table()
    end, L = described["end"], 24 if long else 6
    if long:
        described["table"] = wordy(names["next_words"], end, L)

    def follow(words):
        return described["table"].get(" ".join(words), {end: 1.0})

    settings = list(itertools.product((1, 2, 3, 4), (0.0, 0.6, 1.0, 1.7, 2.0)))
    asked = """([described, settings, maxLen]) => {
        const model = new live.TableModel(described);
        return settings.map(([beam, alpha]) => {
            const found = live.searchTable(model, { beam, alpha, maxLen });
            const named = (ids) => ids.map((id) => model.words[id]);
            const words = ({ ids, ...rest }) => ({ ...rest, words: named(ids) });
            return { ...found, steps: found.steps.map((step) => step.map(words)),
                     finished: found.finished.map(words), best: words(found.best) };
        });
    }"""
    reasons = set()
    for (width, alpha), found in zip(settings, pure.evaluate(asked, [described, settings, L])):
        finished, steps, why = names["search"](width, L, alpha, follow)
        reasons.add(why)
        assert found["why"] == why
        ranked = sorted(found["finished"], key=lambda one: -one["score"])
        for one, (score, log_p, words) in zip(
            [found["best"], *ranked], finished[:1] + finished, strict=True
        ):
            assert one["words"] == [word for word in words if word != end]
            assert (one["score"], one["logProb"]) == pytest.approx((score, log_p))
        for nodes, (candidates, beginnings, ended) in zip(found["steps"], steps, strict=True):
            order = [node["logProb"] for node in nodes]  # two candidates tie: rounding orders them
            assert order == sorted(order, reverse=True)
            found_here = {tuple(node["words"]): node["logProb"] for node in nodes}
            assert found_here == pytest.approx(dict(candidates))
            kinds = {"open": beginnings, "finished": ended}
            for kind, chosen in kinds.items():
                listed = {tuple(node["words"]) for node in nodes if node["state"] == kind}
                assert listed == {words for words, _ in chosen}
    assert reasons == {"bound", "gave up" if long else "nothing open"}


def test_the_best_hypothesis_is_the_package_s(pure):
    names = make_widgets.run_cells(BEAM, "imports", "table", "table-model")
    model, words = names["TableModel"](), names["words"]
    special = {"bos": names["BOS"], "eos": names["EOS"]}
    asked = """([described, beam, alpha]) => {
        const model = new live.TableModel(described);
        const { best } = live.searchTable(model, { beam, alpha, maxLen: 6 });
        return [model.text(best.ids), best.logProb, best.score];
    }"""
    for beam, alpha in itertools.product((1, 2, 3, 4), (0.0, 0.6, 1.0, 2.0)):
        found = pure.evaluate(asked, [make_widgets.table(), beam, alpha])
        src = torch.zeros(1, 1, dtype=torch.long)
        ((best,),) = beam_search(model, src, **special, max_len=6, beam=beam, alpha=alpha)
        assert found[0] == " ".join(words[i] for i in best.ids)
        assert found[1:] == pytest.approx([best.log_prob, best.score])


@pytest.mark.parametrize(
    ("name", "keep", "amounts"),
    [
        ("keepTopK", keep_top_k, (1, 2, 7, 100, 101, 500)),
        ("keepTopP", keep_top_p, (1e-9, 0.3, 0.5, 0.9, 0.95, 1.0)),
        ("keepMinP", keep_min_p, (0.001, 0.01, 0.1, 0.5, 1.0)),
    ],
)
def test_what_a_filter_keeps(pure, name, keep, amounts):
    logits = 3 * torch.randn(53, 101)
    logits[:7] = logits[:7].round()  # ties
    asked = f"""([rows, amount]) => rows.map((row) =>
        Array.from(live.{name}(Float64Array.from(row), amount), (logit) => logit > -Infinity))"""
    for amount, temperature in itertools.product(amounts, (0.4, 1.0, 1.9)):
        found = pure.evaluate(asked, [(logits / temperature).tolist(), amount])
        assert found == keep(logits / temperature, amount).isfinite().tolist(), (
            amount,
            temperature,
        )


def test_schedules(pure):
    steps = [1, 2, 6, 7, 8, 50, 99, 100, 101, 4000, 19_999, 20_000, 30_000]
    asked = """([steps, peak, warmup, width, end, final]) => [
        live.inverseSqrt(peak, warmup), live.paperSchedule(width, warmup),
        live.cosine(peak, warmup, end, final)].map((rate) => steps.map(rate))"""
    for warmup, final in itertools.product((1, 7, 4000), (0.0, 0.1, 1.0)):
        found = pure.evaluate(asked, [steps, 3e-3, warmup, 96, 20_000, final])
        rates = (
            inverse_sqrt(3e-3, warmup),
            paper_schedule(96, warmup),
            cosine(3e-3, warmup, 20_000, final=final),
        )
        for ours, theirs in zip(found, rates, strict=True):
            assert ours == pytest.approx([theirs(step) for step in steps], rel=1e-12)


def test_one_query_in_six_steps(pure):
    x, *matrices = torch.randn(7, 5), torch.randn(5, 3), torch.randn(5, 3), torch.randn(5, 3)
    q, k, v = (x @ w for w in matrices)
    weights = attention_weights(q[None, None], k[None, None])[0, 0]  # T T
    for t in range(7):
        asked = "([t, ...given]) => live.oneQuery(t, ...given)"
        found = pure.evaluate(asked, [t, *(m.tolist() for m in (x, *matrices))])
        assert found["weights"] == pytest.approx(weights[t].tolist(), rel=1e-12)
        assert found["output"] == pytest.approx((weights @ v)[t].tolist(), rel=1e-12)
        assert found["fits"] == pytest.approx((q @ k.T)[t].tolist(), rel=1e-12)


def test_each_tile_is_the_chapter_s_and_the_end_is_attention(pure):
    cells = "imports", "setup", "proof-code", "blocks-code"
    chapter = make_widgets.run_cells("nbs/attention/04_fused.ipynb", *cells)
    triple, merge, attend_blocks = (chapter[n] for n in ("triple", "merge", "attend_blocks"))
    rows = [
        (scale * torch.randn(S), torch.randn(S), block)
        for S, scale in itertools.product((2, 3, 5, 7, 11), (1, 5, 300, 1000))
        for block in torch.randint(1, S + 2, (5,)).tolist()
    ]
    asked = "(rows) => rows.map((row) => live.onlineSoftmax(...row))"
    found = pure.evaluate(asked, [[a.tolist(), v.tolist(), block] for a, v, block in rows])
    assert len(found) == 100
    q = torch.ones(1, 1, 1, 1)
    for (a, v, block), steps in zip(rows, found, strict=True):
        k, v = a.view(1, 1, -1, 1), v.view(1, 1, -1, 1)  # so that q·k are the scores
        ends = [*range(block, len(a), block), len(a)]
        assert [(one["from"], one["to"]) for one in steps] == list(zip([0, *ends], ends))
        before = torch.tensor(-torch.inf), torch.tensor(0.0), torch.zeros(1)
        for one in steps:
            tile = slice(one["from"], one["to"])
            state = merge(before, triple(a[tile], v[0, 0, tile]))
            expected = *state, (before[0] - state[0]).exp()
            shown = [one[name] for name in ("m", "total", "r", "c")]
            assert shown == pytest.approx([x.item() for x in expected], rel=1e-10, abs=1e-300)
            so_far = attend(q, k[:, :, : one["to"]], v[:, :, : one["to"]])
            assert one["out"] == pytest.approx(so_far.item(), rel=1e-10)
            before = state
        out, L = attend_blocks(q, k, v, block)
        assert_close(out, attend(q, k, v))
        assert one["out"] == pytest.approx(out.item(), rel=1e-10)
        assert one["m"] + math.log(one["total"]) == pytest.approx(L.item(), rel=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_a_step_of_the_game_is_autograds(pure, shared):
    w_q, w_k, w_v = (torch.randn(4, n, requires_grad=True) for n in (3, 3, 1))
    w_k = w_q if shared else w_k
    order = torch.rand(5, 3).argsort(-1)
    numbers = torch.randn(5, 3, 1)
    x = torch.cat([torch.eye(3)[order], numbers], -1)
    wanted = (order[:, None, :] == (order[:, :, None] + 1) % 3).double() @ numbers
    scores = (x @ w_q) @ (x @ w_k).mT / 3**0.5
    error = (scores.softmax(-1) @ (x @ w_v) - wanted).square().mean()
    matrices = [w_q, w_v] if shared else [w_q, w_k, w_v]
    stepped = [w - 0.3 * g for w, g in zip(matrices, torch.autograd.grad(error, matrices))]
    rounds = [
        {"x": one.tolist(), "wanted": all_of.flatten().tolist()} for one, all_of in zip(x, wanted)
    ]
    found = pure.evaluate(
        """([q, k, v, rounds, shared]) => {
            const weights = { q, k: shared ? q : k, v };
            return [live.descend(weights, rounds, 0.3), weights];
        }""",
        [w_q.tolist(), w_k.tolist(), w_v.tolist(), rounds, shared],
    )
    assert found[0] == pytest.approx(error.item(), rel=1e-12)
    for name, w in zip("qv" if shared else "qkv", stepped):
        assert_close(torch.tensor(found[1][name]), w)


def test_the_game_is_learned_from_twenty_beginnings(pure):
    "With the page's own steps and rate, and numbers from a seed; one finds another way to it."
    learned = """(seed) => {
        const random = () => { // mulberry32
            seed = (seed + 0x6d2b79f5) | 0;
            let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
            t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
            return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
        };
        const weights = live.first(random, false);
        let last = 0;
        for (let step = 0; step < 400; step++) {
            const rounds = Array.from({ length: 97 }, () => live.round(random));
            const error = live.descend(weights, rounds, 0.5);
            if (step >= 350) last += error / 50;
        }
        return [last, live.looks(weights).map((row) => row.indexOf(Math.max(...row)))];
    }"""
    found = [pure.evaluate(learned, seed) for seed in range(20)]
    assert all(error < 0.05 for error, _ in found), found
    assert sum(looks == [1, 2, 0] for _, looks in found) >= 19, found


def test_the_loss_and_its_gradient(pure):
    "A hundred rows of logits; the floor is the loss where the softmax is the target itself."
    logits = 3 * torch.randn(100, 7)
    asked = [[row.tolist(), n % 7, (n % 5) / 5, 2.0 ** (n % 3 - 1)] for n, row in enumerate(logits)]
    rows = pure.evaluate("(all) => all.map((asked) => live.tokenLoss(...asked))", asked)
    dragged = """(all) => all.map(([z, v, , t]) =>
        live.tokenLoss(z.with(v, live.logitFor(z, v, 0.3, t)), v, 0, t).p)"""
    moved = pure.evaluate(dragged, asked)
    for (row, target, smoothing, temperature), found, p in zip(asked, rows, moved, strict=True):
        z, y = torch.tensor([row], requires_grad=True), torch.tensor([target])
        loss, _ = cross_entropy(z / temperature, y, smoothing=smoothing)
        (gradient,) = torch.autograd.grad(loss, z)
        assert_close(torch.tensor([found["gradient"]]), gradient)
        assert_close(torch.tensor(found["loss"]), loss)
        assert_close(torch.tensor(found["plain"]), cross_entropy(z / temperature, y)[0])
        at_best = torch.tensor([found["q"]]).log()
        if smoothing:
            assert_close(
                torch.tensor(found["floor"]), cross_entropy(at_best, y, smoothing=smoothing)[0]
            )
        else:
            assert found["floor"] == 0
        others = [v for v in range(7) if v != target]
        assert p[target] == pytest.approx(
            0.3
        )  # the logit that was asked for, and the rest in proportion
        kept = torch.tensor(row)[others].div(temperature).softmax(0) * 0.7
        assert_close(torch.tensor(p)[others], kept)


def test_norms_of_a_hundred_rows(pure):
    norms = LayerNorm(7), RMSNorm(7)
    for parameter in itertools.chain(*(norm.parameters() for norm in norms)):
        torch.nn.init.normal_(parameter)
    x = 10.0 ** torch.randint(-4, 3, (100, 1)) * torch.randn(100, 7) + torch.randn(100, 1)
    (gain, bias), (scale,) = (
        [{"values": one.tolist()} for one in norm.parameters()] for norm in norms
    )
    asked = """([rows, weight, bias, scale]) => rows.map((x) => [
        live.layerNorm({ weight, bias }, x, 1e-5), live.rmsNorm({ weight: scale }, x, 1e-6)])"""
    found = torch.tensor(pure.evaluate(asked, [x.tolist(), gain, bias, scale]))
    expected = torch.stack([norm(x) for norm in norms], 1).detach()
    # at 1e-4 the mean of a row, which is about 1, takes four of its sixteen digits
    assert_close(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["pre", "post", "none"])
def test_a_stack_over_its_depth(pure, name):
    """Where sublayers write what is orthogonal to all before, the formulas are exact.

    So is the gradient that is orthogonal to all of it: no norm takes a part of it out.
    """
    C = 101
    columns = torch.cat([torch.ones(C, 1), torch.randn(C, C - 1)], 1)
    x0, *written, end = torch.linalg.qr(columns)[0].T[1:] * C**0.5  # of mean 0 and variance 1
    settings = [(1 + n * 7 % 61, 0.05 + n / 17) for n in range(34)]
    asked = "([name, all]) => all.map(([n, variance]) => live.overDepth(name, n, variance))"
    for (n, variance), found in zip(settings, pure.evaluate(asked, [name, settings]), strict=True):
        stream = [x0.clone().requires_grad_()]
        for f in (variance**0.5 * one for one in written[:n]):
            x = stream[-1].view(1, 1, C)
            if name == "none":
                y = x + x.detach().square().mean().sqrt() * f
            else:
                norm = LayerNorm(C, eps=0.0)
                wiring = PreNorm(norm) if name == "pre" else PostNorm(norm)
                y = wiring(x, lambda x, f=f: f.expand_as(x))
            stream.append(y.view(C))
        rows = torch.stack(stream)
        gradients = torch.autograd.grad(rows[-1] @ end, stream)
        left = torch.corrcoef(rows.detach())[0]
        expected = rows.detach().std(1, correction=0), left, [(g @ end) / C for g in gradients]
        for key, values in zip(("size", "left", "gradient"), expected, strict=True):
            assert_close(
                torch.tensor([float(one[key]) for one in found]),
                torch.as_tensor(values),
                atol=1e-12,
                rtol=1e-7,
            )


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("heads", [(6, 6), (6, 2), (6, 1), (5, 1)])
def test_costs(pure, heads, tied):
    H, K = heads
    config = LlamaConfig(vocab_size=103, d_model=35, n_layers=3, n_heads=H, n_kv_heads=K)
    config = replace(config, d_head=14, d_ff=53, tied=tied)
    with torch.device("meta"):
        model, ids = Llama(config).eval(), torch.zeros(1, 11, dtype=torch.long)
        for layer in model.layers:
            layer.attn.attend = attend
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(ids)  # all 11 at once: each sees a row of 11 scores
    sizes = {"V": 103, "C": 35, "layers": 3, "H": H, "K": K, "D": 14, "F": 53, "tied": tied}
    found = pure.evaluate(
        """([sizes]) => [live.parameters(sizes), live.cacheBytes(sizes, 17, 5, 2),
            11 * live.stepFlops(sizes, 11), live.stepBytes(sizes, 17, 5, 0.5, 2)]""",
        [sizes],
    )
    held = cache_bytes(3, K, 14, 17, batch=5)
    weights = sum(x.numel() for x in model.parameters())
    read = (weights if tied else weights - 103 * 35) / 2 + held  # of the table a few rows alone
    assert found == [weights, held, counter.get_total_flops(), read]


def test_the_data_are_what_the_package_and_the_chapters_make():
    read = {
        name: json.loads((make_widgets.TARGET / name).read_text()) for name in make_widgets.FILES
    }
    assert read["captions.json"] == make_widgets.captions()
    assert read["table.json"] == make_widgets.table()
    assert read["wirings.json"] == make_widgets.wirings()
    assert read["moments.json"] == make_widgets.moments()
    torch.set_default_dtype(torch.float32)
    made, found = make_widgets.following(), read["next.json"]
    assert [one["text"] for one in made["places"]] == [one["text"] for one in found["places"]]
    assert made["characters"] == found["characters"]
    for one, other in zip(made["places"], found["places"], strict=True):
        # rounded to four places, and a processor may sum in another order
        assert one["logits"] == pytest.approx(other["logits"], abs=2e-4)


# --- the pages ----------------------------------------------------------------------------------


@pytest.fixture
def opened(page, address):
    "opened(name): the widget of a chapter, once it runs."

    def go(name, page=page):
        page.goto("/".join(address.split("/")[:3]) + f"/{WIDGETS[name][0]}.html")
        root = page.locator(f"[data-widget={name}]")
        if name in ASKED:
            assert not [url for url in page.asked if "/live/" in url]
            root.get_by_role("button", name="Load").click()
        root.locator("output:not(:empty)").wait_for()
        return root

    return go


def said(root):
    return root.locator("output").text_content()


def slide(root, label, *keys):
    "Move a slider by keys; what it says then."
    slider = root.get_by_label(label, exact=True)
    for key in keys:
        slider.press(key)
    return slider.get_attribute("aria-valuetext")


def drag(root, label, share):
    "Press a slider at a place from 0, its left end, to 1."
    slider = root.get_by_label(label, exact=True)
    box = slider.bounding_box()
    slider.click(position={"x": max(1, share * box["width"] - 1), "y": box["height"] / 2})


def test_all_of_them_are_in_chapters():
    assert sorted(WIDGETS) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_what_stands_there_first_is_what_comes_alive(browser, opened, address, name):
    first = said(opened(name))
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto("/".join(address.split("/")[:3]) + f"/{WIDGETS[name][0]}.html")
    root = page.locator(f"[data-widget={name}]")
    lines = root.locator("p").all_inner_texts()
    assert root.is_visible() and lines[-1] == first
    assert "with JavaScript" in lines[0] and not root.locator("button, input").count()
    context.close()


@pytest.mark.parametrize("name", ASKED)
def test_what_waits_for_a_button_says_so(page, address, name):
    page.goto("/".join(address.split("/")[:3]) + f"/{WIDGETS[name][0]}.html")
    text = page.locator(f"[data-widget={name}]").inner_text()
    assert "Load it, and you can" in text and "JavaScript" not in text


@pytest.mark.parametrize("name", NAMES)
def test_it_is_loaded_alone_and_everything_has_a_name(page, opened, name):
    root = opened(name)
    page.wait_for_load_state("networkidle")
    scripts = {Path(url).name for url in page.asked if re.search(r"/widgets/\w+\.js$", url)}
    scripts -= {"parts.js", "tree.js", "chart.js", "heat.js"}
    here = {f"{other}.js" for other in NAMES if WIDGETS[other][0] == WIDGETS[name][0]}
    assert f"{name}.js" in scripts and scripts <= here
    if name not in ASKED:
        assert not [url for url in page.asked if url.endswith((".safetensors", "worker.js"))]
    title = root.locator(".widget-title")
    assert root.get_attribute("role") == "group"
    assert root.get_attribute("aria-labelledby") == title.get_attribute("id")
    assert root.locator(".widget-hint").inner_text().startswith("Try: ")
    assert root.locator("output").get_attribute("aria-live") == "polite"
    for control in root.locator("input, select").all():
        assert control.evaluate("(it) => it.labels.length") or control.get_attribute("aria-label")
    for button in root.locator("button").all():
        assert button.get_attribute("aria-label") or button.inner_text().strip()
    for picture in root.locator("svg, [role=img]").all():
        assert len(picture.get_attribute("aria-label")) > 15


@pytest.mark.parametrize("name", NAMES)
def test_the_focus_is_seen_and_goes_through_every_control(page, opened, name):
    root = opened(name)
    root.locator("input:visible, select:visible, button:visible").first.focus()
    seen = """() => {
        const it = document.activeElement;
        const style = getComputedStyle(it);
        const inside = Boolean(it.closest(".widget"));
        return [inside, style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
    }"""
    count = 0
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")  # as somebody comes who has no mouse
    for _ in range(60):
        inside, outlined = page.evaluate(seen)
        if not inside:
            break
        assert outlined
        count += 1
        page.keyboard.press("Tab")
    controls = root.locator("input:visible, select:visible, button:visible, summary:visible")
    tabbable = sum(it.get_attribute("tabindex") != "-1" for it in controls.all())
    assert tabbable <= count < 60


@pytest.mark.parametrize("name", NAMES)
def test_on_a_phone_nothing_overflows(page, opened, name):
    page.emulate_media(reduced_motion="reduce")
    page.set_viewport_size({"width": 390, "height": 844})
    root = opened(name)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    wide = """(root) => [...root.querySelectorAll("*")].filter((it) => !it.closest(".widget-scroll")
        && it.getBoundingClientRect().right > root.getBoundingClientRect().right).length"""
    assert root.evaluate(wide) == 0
    small = """(root) => [...root.querySelectorAll("*")].filter((it) => it.childNodes.length
        && [...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim())
        && parseFloat(getComputedStyle(it).fontSize) < 9).length"""
    assert root.evaluate(small) == 0
    for button in root.locator("button:visible, select:visible, input:visible").all():
        box = button.bounding_box()
        assert min(box["width"], box["height"]) >= 24  # a finger hits it
    assert page.evaluate("document.getAnimations().length") == 0


CHANGED = """async (root) => {
    const frame = () => new Promise(requestAnimationFrame);
    const took = [];
    for (const control of root.querySelectorAll("input, select, button")) {
        if (!control.getClientRects().length || control.disabled) continue;
        const [begun, chooses] = [performance.now(), control.matches("select")];
        if (control.matches("button")) control.click();
        else if (chooses) control.selectedIndex = 1 - Math.sign(control.selectedIndex);
        else if (control.type === "range")
            control.value = control.value === control.max ? control.min : control.max;
        control.dispatchEvent(new Event(chooses ? "change" : "input", { bubbles: true }));
        await frame();
        await frame(); // it has been painted
        took.push(performance.now() - begun);
    }
    return took;
}"""


@pytest.mark.slow  # a time: on a quiet machine
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ASKED])
def test_every_control_answers_within_a_fifth_of_a_second(opened, name):
    "Those that wait for a button run a whole model, and say how long it took."
    took = opened(name).evaluate(CHANGED)
    assert took and max(took) < 200


def test_by_touch(browser, opened):
    context = browser.new_context(has_touch=True, viewport={"width": 390, "height": 844})
    page = context.new_page()
    root = opened("masks", page)
    root.get_by_label("query A may attend to key man").tap()
    assert said(root).startswith("“A” may read A ") and "man" in said(root)
    root = opened("merges", page)
    root.get_by_role("button", name="Merge").tap()
    assert said(root).startswith("Merge 1: ")
    root = opened("rope", page)
    root.get_by_role("button", name="Move both by +100").tap()
    assert "Both moved by 100" in said(root)
    root = opened("wirings", page)
    before = said(root)
    width = root.get_by_label("Learning rate").bounding_box()["width"]
    root.get_by_label("Learning rate").tap(position={"x": width - 3, "y": 5})
    assert said(root).startswith("At a rate of 0.1 ") and said(root) != before
    context.close()


# --- one by one, by mouse and by keyboard -------------------------------------------------------


def test_softmax(page, opened):
    root = opened("softmax")
    root.get_by_label("Divided by").select_option("root")
    at_64 = root.locator("td.widget-bar").all_inner_texts()
    assert said(root).startswith("D = 64, divided by 8: “bike” has the weight 0.463")
    matches = [float(it.input_value()) for it in root.locator("td input").all()]
    expected = attention_weights(torch.ones(1, 1, 1, 1), torch.tensor(matches).view(1, 1, -1, 1))
    assert at_64 == [f"{weight:.3f}" for weight in expected.flatten()]
    drag(root, "Head size D", 1)  # with the scale nothing depends on D
    assert said(root).startswith("D = 1024, divided by 32")
    assert root.locator("td.widget-bar").all_inner_texts() == at_64
    # by keyboard: without it, all goes to one
    root.get_by_label("Divided by").focus()
    page.keyboard.press("Home")
    assert "divided by 1: “bike” has the weight 1.000" in said(root)
    assert slide(root, "Head size D", "Home", "ArrowRight") == "8"
    root.get_by_label("How well “a” matches").press("End")
    assert "“a” has the weight" in said(root)
    assert not root.get_by_label("Temperature").is_visible()
    page.keyboard.press("Tab")
    root.get_by_label("Divided by").select_option("own")
    assert slide(root, "Temperature", "End") == "64"
    assert "divided by 64" in said(root) and "saturated" not in said(root)


def test_masks(page, opened):
    root = opened("masks")
    rows = lambda: root.locator("table.widget-bars tbody tr").all()  # noqa: E731
    cell = root.get_by_label("query man may attend to key sleeps")
    assert cell.inner_text() == "0" and cell.get_attribute("aria-pressed") == "false"
    cell.click()
    assert cell.inner_text() == "1" and cell.get_attribute("aria-pressed") == "true"
    table = [row.locator("td").all_inner_texts() for row in rows()]
    scores = torch.tensor([float(score.split(" ")[0]) for score, _, _ in table])
    sees = torch.tensor([shown == "True" for _, shown, _ in table])
    assert sees.tolist() == [True] * 3 + [False] * 4
    weights = attention_weights(
        torch.ones(1, 1, 1, 1), scores.view(1, 1, 7, 1), mask=sees.view(1, 1, 1, 7), scale=1.0
    )
    assert [weight for *_, weight in table] == [f"{w:.3f}" for w in weights.flatten()]
    # by keyboard: arrows move, the space bar turns
    page.keyboard.press("ArrowUp")
    assert said(root) == "“A” may read A 1.000."
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Space")
    assert said(root) == "“A” may read nothing. By the rule of zeros all its weights are 0."
    assert all(row.locator("td").last.inner_text() == "0.000" for row in rows())
    page.keyboard.press("ArrowLeft")  # the edge
    page.keyboard.press("Space")
    assert said(root) == "“A” may read A 1.000."
    root.get_by_role("button", name="causal", exact=True).press("Enter")
    table = root.locator("table.widget-grid tbody tr").all()
    shown = [[text == "1" for text in row.locator("button").all_inner_texts()] for row in table]
    assert shown == causal_mask(7).tolist()
    pressed = root.locator("button.widget-small[aria-pressed=true]").all_inner_texts()
    assert pressed == ["causal"]
    table[6].locator("th").click()
    assert said(root).startswith("“PAD 3” may read A ")


def test_rope(opened):
    root = opened("rope")
    names = make_widgets.run_cells("nbs/position/04_rope.ipynb", "imports", "scratch", "loops")
    rope, (q, k) = RoPE(4), (torch.tensor(names[name]).view(1, 1, 1, 4) for name in "qk")

    def score(t, s):
        a, b = rope.rotate(q, torch.tensor([t])), rope.rotate(k, torch.tensor([s]))
        return f"{(a * b).sum():.6f}".replace("-", "−")

    assert said(root) == f"Positions 2 and 5, distance 3: the score is {score(2, 5)}."
    hands = root.locator(".widget-dials line").evaluate_all(
        "(all) => all.map((it) => it.outerHTML)"
    )
    root.get_by_role("button", name="Move both by +100").click()
    assert said(root).startswith(f"Positions 102 and 105, distance 3: the score is {score(2, 5)}.")
    moved = root.locator(".widget-dials line").evaluate_all(
        "(all) => all.map((it) => it.outerHTML)"
    )
    assert len(hands) == len(moved) == 4 and not set(hands) & set(moved)
    root.get_by_role("button", name="Move both by +100").press("Enter")  # as far as both can go
    assert "Positions 117 and 120" in said(root) and "moved by 15" in said(root)
    assert slide(root, "Position t of the query", "Home") == "0"
    assert slide(root, "Position s of the key", "Home", "ArrowRight", "ArrowRight") == "2"
    assert said(root) == f"Positions 0 and 2, distance 2: the score is {score(0, 2)}."
    root.get_by_role("button", name="Move both by −1", exact=True).click()
    assert "Positions 0 and 2" in said(root)
    drag(root, "Position t of the query", 0.5)
    assert re.match(r"Positions (5|6)\d and 2, distance", said(root))


def test_merges(page, opened):
    root = opened("merges")
    _, tokenizer = shipped("captions")
    root.get_by_role("button", name="Merge").click()
    assert re.match(
        r"Merge 1: .+ \+ .+, number \d+ of the 61 that were learned\. \d+ pieces", said(root)
    )
    assert root.locator(".widget-piece.fresh").count() >= 1
    assert slide(root, "Merges done", "End").startswith("14 of 14")
    pieces = [text.replace(" ", "␣") for text in tokenizer.tokens("A man is riding a bike.")]
    assert said(root).endswith(f"9 pieces: {'|'.join(pieces)} No other merge fits.")
    shown = root.locator(".widget-piece small").all_inner_texts()
    assert shown == [str(i) for i in tokenizer.encode("A man is riding a bike.")]
    root.get_by_role("button", name="Back").press("Enter")
    assert said(root).startswith("Merge 13: ")
    # a sentence of one's own
    root.get_by_label("Sentence").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("Fahrrad 🚲")
    assert said(root).startswith("No merge yet. 12 pieces: F|a|h|r|r|a|d|␣|\\xf0|")
    root.get_by_label("Sentence").fill("")
    assert said(root).startswith("No merge yet. 0 pieces")
    root.get_by_label("Sentence").fill("A man is riding a bike.")
    root.get_by_label("Learned from").select_option(label="58,000 captions: 4,741 merges")
    root.locator("input[type=range]:not([max='14'])").wait_for()  # the new tokenizer is read
    slide(root, "Merges done", "End")
    assert "7 pieces: A|␣man|␣is|␣riding|␣a|␣bike|." in said(root)
    assert "of the 4741 that were learned" in said(root)


def test_beam(page, opened):
    root = opened("beam")
    tree = root.locator("svg.widget-tree")
    assert tree.locator("g").count() == 3 and tree.locator("g.dropped").count() == 1
    root.get_by_role("button", name="Next step").click()
    assert said(root).startswith("Step 2. Open: Ein Mann (−1.16), Jemand fährt (−1.61).")
    root.get_by_role("button", name="To the end").click()
    assert "Step 5. " in said(root) and "The search is over: nothing is open." in said(root)
    assert "Best: “Ein Mann fährt Fahrrad”, score −1.13." in said(root)
    assert tree.locator("g.won").count() == 5
    first = root.locator(".widget-table tbody tr").first.locator("td").all_inner_texts()
    assert first == ["Ein Mann fährt Fahrrad", "−1.89", "5", "−1.13"]
    # by keyboard
    assert slide(root, "Width w", "Home") == "1"
    assert "Best: “Jemand fährt Rad”" in said(root)
    assert slide(root, "Width w", "End") == "4"
    slide(root, "Length penalty α", "Home")
    root.get_by_role("button", name="To the end").press("Enter")
    assert "Best: “Jemand radelt”, score −1.83." in said(root)
    root.get_by_role("button", name="Back").press("Enter")
    assert "Best" not in said(root) and tree.locator("g.won").count() == 0


def test_sampling(opened):
    root = opened("sampling")
    logits = [torch.tensor(one["logits"]) for one in make_widgets.following()["places"]]

    def count(place, keep, amount, temperature=1.0):
        return keep(logits[place] / temperature, amount).isfinite().sum().item()

    assert f" {count(0, keep_top_p, 0.9)} of 65 " in said(root)
    root.get_by_label("Beginning").select_option("2")
    many = count(2, keep_top_p, 0.9)
    assert many > 5 * count(0, keep_top_p, 0.9) and f" {many} of 65 " in said(root)
    assert f"of which {many - 12} are kept" in root.locator("tbody tr").last.inner_text()
    root.get_by_label("Keep by").select_option("k")
    assert not root.get_by_label("Top-p").is_visible()
    drag(root, "Top-k", 0)
    assert " 1 of 65 characters stays" in said(root)
    root.get_by_label("Beginning").select_option("1")
    assert slide(root, "Top-k", "ArrowRight", "ArrowRight") == "3"
    assert root.locator("td", has_text="✓ kept").count() == 3
    assert root.locator("td", has_text="✗ cut").count() == 9
    # by keyboard: the temperature changes what top-p and min-p keep
    for key, label, keep, amount in (
        ("p", "Top-p", keep_top_p, 0.9),
        ("min", "Min-p", keep_min_p, 0.1),
    ):
        root.get_by_label("Keep by").select_option(key)
        assert root.get_by_label(label).is_visible()
        for place, temperature in (("Home", 0.1), ("End", 2.0)):
            slide(root, "Temperature", place)
            assert f" {count(1, keep, amount, temperature)} of 65 " in said(root)
    root.get_by_label("Keep by").select_option("all")
    assert " 65 of 65 characters stay. They have 1.000 of" in said(root)


def test_the_recorded_grid_of_wirings(opened):
    "By keys from the lowest rate to the highest, at each warm-up: what the record says."
    grid, root = make_widgets.wirings(), opened("wirings")
    points = root.locator("svg.widget-chart .curve")
    seen = set()
    for j, warmup in enumerate(grid["warmups"]):
        warmed = f"after a warm-up of {warmup} steps" if warmup else "without a warm-up"
        slide(root, "Warm-up, in steps", "Home", *["ArrowRight"] * j)
        slide(root, "Learning rate", "Home")
        for i, rate in enumerate(grid["rates"]):
            assert said(root).startswith(f"At a rate of {rate} {warmed}, losses after 120 steps: ")
            for name, losses in grid["losses"].items():
                shown = re.search(rf"{name} (\d\.\d\d)", said(root))[1]
                assert float(shown) == pytest.approx(losses[i][j][-1], abs=0.0051)
            assert points.count() == 4
            seen.add(tuple(one.get_attribute("points") for one in points.all()))
            slide(root, "Learning rate", "ArrowRight")
    assert len(seen) == 18
    named = root.locator("svg text.named").all_text_contents()
    assert sorted(named) == sorted(grid["losses"])


def test_four_models_at_seven_moments(page, opened):
    "By keys all models and moments, and each time four new numbers: what the record says."
    first, *rows = read_measurement(ROOT / "results/measurements/ten_minutes.json").rows
    root = opened("moments")
    filled = root.locator(".widget-hundred .right")
    asked = root.get_by_label("New number", exact=True)
    options = asked.locator("option").all_inner_texts()
    place = {english: i for i, (english, _) in enumerate(first["new"])}
    assert sorted(option.split(" ", 1)[1] for option in options) == sorted(place)
    values = [int(option.split()[0].replace(",", "")) for option in options]
    assert values == sorted(values)
    choices = itertools.cycle(options)
    for row in rows:
        root.get_by_label("Model", exact=True).select_option(row["model"])
        slide(root, "Steps of training", "Home")
        for step, loss, spoken in zip(row["at"], row["losses"], row["said"], strict=True):
            trained = (
                f"After {step} steps, at a mean loss of {loss:.2f} in the last ten,"
                if step
                else "Before the first step"
            )
            right = sum(
                text == german for text, (_, german) in zip(spoken, first["new"], strict=True)
            )
            for option in itertools.islice(choices, 4):
                asked.select_option(label=option)
                digits, english = option.split(" ", 1)
                text, german = spoken[place[english]], first["new"][place[english]][1]
                told = f"“{text[:60]}{'…' if len(text) > 60 else ''}”" if text else "nothing"
                judged = "which is right." if text == german else f"in place of “{german}”."
                assert said(root) == (
                    f"{row['model'].capitalize()}. {trained} {right} of 100 new numbers are right. "
                    f"For {digits} it says {told}, {judged}"
                )
            assert filled.count() == right
            slide(root, "Steps of training", "ArrowRight")
    root.locator(".widget-hundred span").nth(41).click()
    assert f"For {options[41].split()[0]} it says" in said(root)
    assert root.locator(".widget-hundred .chosen").count() == 1


def test_schedule(opened):
    root = opened("schedule")
    chart = root.locator("svg.widget-chart")
    before = chart.locator(".curve").get_attribute("points")
    drag(root, "Warm-up, in steps", 0.8)
    warmup = int(root.get_by_label("Warm-up, in steps").input_value())
    assert 7000 < warmup < 9000
    rate = paper_schedule(512, warmup)

    def power(value):
        digits, exponent = f"{value:.2e}".split("e")
        return f"{digits} · 10⁻{'⁰¹²³⁴⁵⁶⁷⁸⁹'[-int(exponent)]}"

    assert f"the rate is {power(rate(1000))}, " in said(root)
    assert f"The peak is {power(rate(warmup))}, at step {warmup:,}." in said(root)
    assert chart.locator(".curve").get_attribute("points") != before
    slide(root, "Step t", "End")
    assert said(root).startswith(f"At step 20,000 the rate is {power(rate(20_000))}, ")
    assert "It falls" in said(root)
    root.get_by_label("Curve").select_option("cosine")
    assert not root.get_by_label("Width C of the model").is_visible()
    slide(root, "Share of the peak at the end", "Home", "ArrowRight")
    assert slide(root, "Warm-up, in steps", "Home") == "1"
    rate = cosine(1e-3, 1, 20_000, final=0.05)
    assert f"the rate is {power(rate(20_000))}, 5 % of the peak" in said(root)
    slide(root, "Peak", "End")
    assert f"The peak is {power(0.01)}, at step 1." in said(root)
    slide(root, "Step t", "Home")
    assert "At step 1 " in said(root) and "This is the peak" in said(root)


def test_who_asks_whom(opened):
    root = opened("steps")
    root.get_by_label("The word that asks").select_option("bike")
    assert "“bike” asks (0, 0, 4, 0) and looks most at “riding”" in said(root)
    root.get_by_label("“.” is", exact=True).select_option("an action")
    assert "most at “riding” and “.”" in said(root)
    root.locator("summary", has_text="Change what words ask for").click()
    root.get_by_label("a word that is a thing asks for an action").fill("-8")
    scores = torch.tensor([0.0, 0, 0, -4, 0, 0, -4]).softmax(0)  # riding and "." are actions
    assert f"with a weight of {scores.max():.2f}" in said(root)
    root.get_by_label("a word that is a thing asks for an action").fill("")
    assert "looks at all words alike, with a weight of 0.14" in said(root)


def test_tiles(opened):
    root = opened("tiles")
    sums = lambda: root.locator("table.widget-bars tbody tr").all()  # noqa: E731
    slide(root, "Keys in a tile", "Home")  # one key at a time: the chapter's three are the first
    for _ in range(2):
        root.get_by_role("button", name="Next tile").press("Enter")
    byhand = "nbs/attention/04_fused.ipynb"
    (cell,) = (c for c in json.loads((ROOT / byhand).read_text())["cells"] if c["id"] == "byhand")
    lines = "".join(cell["outputs"][0]["text"]).splitlines()
    for line, row in zip(lines, sums(), strict=True):
        shown = [float(text.replace("−", "-")) for text in row.locator("td").all_inner_texts()]
        assert shown == [float(x) for x in re.findall(r" (\d+(?:\.\d+)?)(?=,|$)", line)]
    slide(root, "Keys in a tile", *["ArrowRight"] * 4)
    assert said(root).startswith("Tile 1 of 4, keys 1 to 5: the first maximum is 3.")
    assert root.get_by_role("button", name="Back").get_attribute("aria-disabled") == "true"
    assert "T · 5 = 80 at once" in root.locator(".widget-note").last.inner_text()
    for _ in range(3):
        root.get_by_role("button", name="Next tile").click()
    assert "All keys are read: the softmax of the whole row gives the same." in said(root)
    assert root.locator("svg circle").count() == 16
    assert sums()[-1].locator("td").last.inner_text() == sums()[-2].locator("td").last.inner_text()
    root.get_by_role("button", name="Next tile").press("Enter")  # there is none
    assert said(root).startswith("Tile 4 of 4, key 16: the maximum stays 5, so c = 1.")
    root.get_by_role("button", name="Back").click()
    assert root.locator("svg circle").count() == 0
    # one outlier takes all, wherever it stands
    root.get_by_role("button", name="One outlier").click()
    slide(root, "Keys in a tile", "End")
    row, _ = sums()
    assert row.locator("td").first.inner_text() == "12" and said(root).endswith("the same.")
    before = row.inner_text()
    root.get_by_role("button", name="Other scores").click()
    assert sums()[0].inner_text() != before


def test_a_layer_learns_a_game(page, opened):
    root = opened("game")
    page.evaluate(  # one beginning of all: the twenty above are learned without a picture
        "() => { let s = 3; Math.random = () => (s = (s * 48271) % 2147483647) / 2147483647; }"
    )
    root.get_by_label("Projections").select_option("shared")
    root.get_by_label("Projections").select_option("three")
    root.get_by_role("button", name="Train", exact=True).click()
    root.get_by_role("button", name="Train again").wait_for()
    assert re.search(r"last 50 is 0\.0\d\d\. Most looks: rock at", said(root))
    root.get_by_label("Projections").select_option("shared")
    assert said(root).startswith("Nothing is learned yet")
    root.get_by_role("button", name="Train", exact=True).press("Enter")
    root.get_by_role("button", name="Train again").wait_for()
    assert 0.5 < float(re.search(r"last 50 is (\d\.\d+)", said(root))[1]) < 0.9
    slide(root, "Rate", "End")
    assert said(root).startswith("Nothing is learned yet")  # of the rate that is shown
    root.get_by_role("button", name="Train", exact=True).click()
    root.get_by_role("button", name="Train again").wait_for()
    assert "no number any more" in said(root) and "NaN" not in root.locator("svg").inner_html()
    root.get_by_role("button", name="Train again").click()
    root.get_by_role("button", name="Stop").click()
    root.get_by_role("button", name="Go on").wait_for()
    assert re.match(r"\d+ steps\. ", said(root))


def test_a_loss_to_drag(page, opened):
    root = opened("loss")
    bar = lambda word: root.get_by_label(f"Probability of “{word}”")  # noqa: E731

    def logits():
        cells = root.locator("tbody tr > td:nth-child(2)").all_inner_texts()
        return [float(text.replace("−", "-")) for text in cells]

    start = logits()
    slide(root, "Probability of “bike”", "Home", *["ArrowRight"] * 25)  # 1/8
    assert (
        "“bike” is right and has 0.125. The loss is 2.08 nats, 3.00 bits, perplexity 8.00."
        in said(root)
    )
    assert logits()[1:] == start[1:] and logits()[0] < start[0]  # its own logit moves alone
    drag(root, "Probability of “wave”", 0.75)
    assert abs(float(bar("wave").input_value()) - 0.75) < 0.02
    # another is right, and steps lead to it
    root.get_by_label("A man is riding a …").select_option(label="bus")
    assert re.search(
        r"“bus” is right .* The step raises “bus” by .* and lowers “wave” by 0\.7", said(root)
    )
    step = root.get_by_role("button", name="One step against the gradient")
    losses = []
    for _ in range(20):
        losses.append(float(re.search(r"The loss is (\d+\.\d+) nats", said(root))[1]))
        step.press("Enter")
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.2 < losses[0]
    # with smoothing they end at the target, and the loss at its floor
    assert slide(root, "Smoothing ε", "ArrowRight", "ArrowRight") == "0.10"
    for _ in range(300):
        step.evaluate("(it) => it.click()")
    a, b = 0.92, 0.02  # 1 − ε + ε/V and ε/V, for V = 5
    floor = -a * math.log(a) - 4 * b * math.log(b)
    assert f"it is {floor:.2f} nats, and at least {floor:.2f}. Nothing is pushed any more." in said(
        root
    )
    assert bar("bus").get_attribute("aria-valuetext").startswith("0.920, ")
    assert slide(root, "Temperature", "End") == "4.00"
    assert "Nothing" not in said(root) and float(bar("bus").input_value()) < 0.6


def test_a_row_for_each_position(opened):
    root = opened("positions")
    curve = root.locator("polyline.curve")
    before = curve.get_attribute("points")

    def says(t, C):
        alike = sinusoids(torch.arange(64), C) @ sinusoids(torch.tensor(t), C) / (C / 2)
        near = t - 1 if t else 1
        line = f"Position {t}: its product with itself is C/2 = {C // 2}. "
        return line + f"Its neighbour {near} has {alike[near]:.2f} of that. ", alike

    assert said(root) == says(20, 64)[0] + "No position is more like it."
    assert slide(root, "Position t", "End", "ArrowLeft") == "62"
    assert said(root) == says(62, 64)[0] + "No position is more like it."
    assert curve.get_attribute("points") != before
    drag(root, "Coordinates C", 0)
    line, alike = says(62, 4)
    nearest = int(alike[:62].argmax())
    more = f"But position {nearest}, {62 - nearest} away, is more like it: {alike[nearest]:.2f}."
    assert nearest < 61 and said(root) == line + more
    # the curve's points are the products
    points = [list(map(float, pair.split(","))) for pair in curve.get_attribute("points").split()]
    zero, one = (root.locator(f"line.{kind}").get_attribute("x1") for kind in ("axis", "guide"))
    drawn = [(x - float(zero)) / (float(one) - float(zero)) for x, _ in points]
    assert drawn == pytest.approx(alike.tolist(), abs=1e-9)
    # the table is the picture
    shown = """(image) => [...image.getContext("2d").getImageData(0, 0, 4, 64).data]"""
    pixels = torch.tensor(root.locator("canvas").evaluate(shown)).view(64, 4, 4)[..., 3] / 255
    table = sinusoids(torch.arange(64), 4)
    assert_close(pixels, table.abs(), rtol=0, atol=1 / 255)  # the strength, in bytes
    # a row can be pointed at
    box = root.locator("canvas").bounding_box()
    root.locator("canvas").click(position={"x": 5, "y": 10.5 * box["height"] / 64}, force=True)
    assert said(root).startswith("Position 10: ")
    assert root.get_by_label("Position t").input_value() == "10"


def test_angles_that_are_new(opened):
    root = opened("angles")
    names = make_widgets.run_cells("nbs/position/05_scaling.ipynb", "imports", "scratch", "wrong")
    theta, (L, s) = names["theta"], (names["L"], names["s"])
    choices = {"ntk": "NTK-aware", "linear": "linear", "yarn": "YaRN", "llama3": "Llama 3"}
    settings = {"yarn": {"original_len": L}, "llama3": {"original_len": L}}
    for name, shown in {"none": "no scaling", **choices}.items():
        root.get_by_label("Scaling").select_option(name)
        slowed = theta
        if name != "none":
            slowed, _ = make_scaling(name, factor=s, **settings.get(name, {}))(32, 10_000)
        gap = names["farthest_from_seen"](slowed, s * L)
        fresh = (gap > theta * (1 + 1e-9)).nonzero().flatten().tolist()
        line = f"256 tokens, {shown}: new angles in "
        if fresh:
            line += (
                f"{len(fresh)} of 16 planes, {fresh[0]} to {fresh[-1]}. Plane {gap.argmax()} goes "
            )
            line += f"farthest from all that it knows, {math.degrees(gap.max()):.0f}°. "
        else:
            line += "none of 16 planes. "
        assert said(root) == line + f"Plane 0 is slowed by {theta[0] / slowed[0]:.1f}."
        assert root.locator("svg text", has_text="new").count() == len(fresh)
        degrees = root.locator("tbody td:last-child").all_text_contents()
        assert degrees == [f"{math.degrees(one):.0f}°" for one in gap]
    # by keyboard: a long training with fast planes has met every angle
    root.get_by_label("Scaling").select_option("none")
    assert slide(root, "Base", "Home") == "100"
    assert slide(root, "Trained on L tokens", "End") == "512"
    assert said(root).startswith("2,048 tokens, no scaling: new angles in none of 16 planes.")
    assert slide(root, "The text is longer by s", "Home") == "1"
    root.locator("summary").press("Enter")
    assert root.locator("tbody td").first.is_visible()


def test_a_stack_layer_by_layer(opened):
    root = opened("depth")
    heights = lambda kind: root.locator(f"svg >> nth=0 >> rect.{kind}").evaluate_all(  # noqa: E731
        "(all) => all.map((it) => Number(it.getAttribute('height')))"
    )
    whole, part = heights("whole"), heights("part")
    assert len(whole) == len(part) == 17
    assert [a / b for a, b in zip(part, whole, strict=True)] == pytest.approx(
        [(1 + n * 0.5) ** -0.5 for n in range(17)]
    )
    root.get_by_label("Wiring").select_option("post")
    assert slide(root, "Sublayers n", "End") == "64"
    left = f"{1.5**-32:.1e}".split("e-0")
    assert f"the input is {left[0]} · 10⁻{'⁰¹²³⁴⁵⁶⁷⁸⁹'[int(left[1])]}. Along" in said(root)
    assert len(set(heights("whole"))) == 1 and len(heights("whole")) == 65
    assert slide(root, "Variance σ² that each adds", "Home") == "0.05"
    assert f"{1.05**-32:.2f} of the gradient comes back to the input." in said(root)
    root.get_by_label("Wiring").select_option("none")
    assert f"The stream has the size {1.05**32:.2f}, " in said(root)
    assert "1.00 of the gradient comes back to the input." in said(root)
    drag(root, "Sublayers n", 0)
    assert said(root).startswith("No norm, 1 sublayer that adds σ² = 0.05.")


def test_what_a_norm_takes_away(opened):
    root = opened("norms")

    def rows():
        return [row.locator("td").all_inner_texts() for row in root.locator("tbody tr").all()]

    def check():
        x = torch.tensor([[float(x.replace("−", "-")) for _, x, *_ in rows()]])
        for place, norm in ((2, LayerNorm(7)), (3, RMSNorm(7))):
            shown = [float(row[place].replace("−", "-")) for row in rows()]
            assert shown == pytest.approx(norm(x)[0].tolist(), abs=0.0051)  # of two decimals

    check()
    at_first = rows()
    root.get_by_role("button", name="All +5").click()
    assert said(root).startswith(
        "All +5: LayerNorm gives what it gave; RMSNorm gives others, by up "
    )
    assert [row[2] for row in rows()] == [row[2] for row in at_first] and rows() != at_first
    root.get_by_role("button", name="All ×3").press("Enter")
    assert said(root).startswith(
        "All ×3: LayerNorm gives what it gave; RMSNorm gives what it gave."
    )
    root.get_by_role("button", name="All ÷3").press("Enter")
    root.get_by_role("button", name="All −5").press("Enter")
    assert rows() == at_first
    root.get_by_label("Entry 3").press("End")
    assert rows()[2][1] == "10.00" and rows()[0][2] != at_first[0][2]
    check()
    for _ in range(8):
        root.get_by_role("button", name="All ÷3").click()
    assert "After LayerNorm 0.00 and 0.1" in said(root)  # ε is the larger part under the root


PUBLISHED = {  # parameters, as the model cards give them
    "SmolLM2 135M": "135 million",
    "Llama 2 7B": "6.74 billion",
    "Mistral 7B": "7.24 billion",
    "Llama 3 8B": "8.03 billion",
    "Llama 3 70B": "70.6 billion",
}


def test_what_fits(opened):
    root = opened("costs")
    for name, parameters in PUBLISHED.items():
        root.get_by_label("Sizes of").select_option(name)
        assert said(root).startswith(f"{parameters} parameters, ")
    root.get_by_label("Sizes of").select_option("Llama 3 8B")
    root.get_by_label("Key/value heads K").select_option("32")
    held = cache_bytes(32, 32, 128, 8192) / 1e9
    assert f"8,192 tokens: {held:.2f} GB" in said(root)
    before = float(re.search(r"memory (\S+) ms: no step is faster", said(root))[1])
    slide(root, "Memory, GB a second", "ArrowRight")
    after = float(re.search(r"memory (\S+) ms: no step is faster", said(root))[1])
    assert abs(after / before - 1 / 2) < 0.01
    slide(root, "Tokens of a text", "End")
    slide(root, "Texts at once", "ArrowRight", "ArrowRight")
    held = cache_bytes(32, 32, 128, 2**17, batch=4) / 1e9
    assert f"4 texts of 131,072 tokens: {held:.0f} GB. It does not fit into 80 GB" in said(root)
    root.get_by_label("Sizes of").select_option("Llama 3 8B")  # with its own heads again
    root.get_by_label("A weight has").select_option("4")
    root.get_by_label("A key's number has").select_option("8")
    slide(root, "Texts at once", "Home")
    slide(root, "Tokens of a text", "Home")
    assert "4.02 GB" in said(root) and "It fits into 8 GB" in said(root)


def test_every_head(opened):
    root = opened("heads")
    maps = root.locator(".widget-map")
    word = functools.partial(root.get_by_role, "button", exact=True)
    weights = live.translated("A man is riding a bike.")[-1]  # L H T S
    assert maps.count() == 16
    for t, asking in ((3, "fährt"), (5, "einem")):
        word(name=asking).hover()
        for place, row in enumerate(weights[:, :, t].flatten(0, 1)):
            label = maps.nth(place).get_attribute("aria-label")
            begins = f"Cut layer {place // 4 + 1}, head {place % 4 + 1}: “{asking}” looks at "
            assert label.startswith(begins)
            assert abs(int(re.search(r"(\d+) %$", label)[1]) - 100 * row.max()) < 1
        assert word(name=asking).get_attribute("aria-pressed") == "true"
    # by keyboard
    word(name="Ein").focus()
    assert "“Ein” looks at" in maps.nth(0).get_attribute("aria-label")
    assert "To write what follows “Ein”, the surest look: " in root.inner_text()
    maps.nth(2).press("Enter")
    root.locator("output", has_text="1 of 48 heads cut").wait_for()
    assert maps.nth(2).get_attribute("aria-pressed") == "true"
    assert maps.nth(2).inner_text() == "cut"
    maps.nth(5).press("Space")
    root.locator("output", has_text="2 of 48 heads cut").wait_for()
    maps.nth(2).click()
    root.locator("output", has_text="1 of 48 heads cut").wait_for()
    root.get_by_role("button", name="Put all back").click()
    root.locator("output", has_text="All 48 heads are there").wait_for()
    assert root.locator("[aria-pressed=true].widget-map").count() == 0
    root.get_by_label("Attention").select_option("encoder")
    assert "From “" in root.inner_text()
    assert word(name="riding").is_visible() and not word(name="Ein").count()
    root.get_by_label("English caption").fill(" ")
    root.get_by_role("button", name="Translate").click()
    root.locator("output", has_text="There is nothing to translate").wait_for()
    assert not maps.first.is_visible()


def test_a_walk(page, opened):
    root = opened("walk")
    press = lambda name, nth=0: root.get_by_role("button", name=name).nth(nth).click()  # noqa: E731
    press("layer 4")
    assert said(root).startswith("Encoder, layer 4, sum: ") and "B S C = 1 × 8 × 128" in said(root)
    page.keyboard.press("ArrowDown")
    assert said(root).startswith("Encoder, memory m, last norm: ")
    page.keyboard.press("ArrowRight")
    assert said(root).startswith("Decoder, embedding, token · √C: ")
    assert "B T C = 1 × 1 × 128" in said(root) and root.locator("canvas").count() == 1
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    assert said(root).startswith("Encoder, layer 4, feed-forward: ")
    assert root.locator("canvas").count() == 8
    assert not root.get_by_role("button", name="On a word").is_visible()
    press("logits")
    assert "Behind “(begin)” it says “Ein”" in said(root)
    assert root.locator("td.widget-bar").count() == 5
    for _ in range(7):  # as far as it goes
        press("On a word")
    assert "it says “(end)”" in said(root) and root.locator("canvas").count() == 8
    press("Back a word")
    assert "auf einem Fahrrad” it says “.”" in said(root)
    root.get_by_label("English caption").fill("Two dogs run.")
    press("Walk")
    root.locator("output", has_text="“Zwei”").wait_for()


# --- the text around them -----------------------------------------------------------------------


def test_what_is_shown_only_without_javascript_is_no_reading_time():
    cell = {
        "cell_type": "markdown",
        "source": "One two.\n\n```{widget} rope\nthree four\n```\n\nFive.",
    }
    assert cards.words([cell]) == 3


@pytest.mark.parametrize("name", NAMES)
def test_each_place_has_its_module(name):
    assert f'data-widget="{name}"' in live.opening(name)
