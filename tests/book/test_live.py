"""The modules in book/_static/live compute what the package computes.

A case gives what is asked of the modules, in JavaScript, with its inputs, and the package's answer.
"""

import functools
import itertools
import json
import math
import random
import re
from codecs import getincrementaldecoder
from contextlib import ExitStack
from dataclasses import replace

import live
import make_widgets
import numpy as np
import pytest
import torch
from chapter_widgets import FIRST
from torch import arange, randn, tensor
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from transformer_lit import load
from transformer_lit.assistant.instructions import question, token_logp
from transformer_lit.assistant.reward import advantages, policy_loss
from transformer_lit.attention.attend import attend, attention_weights
from transformer_lit.attention.grouped import cache_bytes
from transformer_lit.attention.masks import causal_mask, length_mask, padding_mask
from transformer_lit.attention.windows import Window
from transformer_lit.block.norm import LayerNorm, RMSNorm
from transformer_lit.block.residual import PostNorm, PreNorm
from transformer_lit.course.data import load_pairs
from transformer_lit.inference.beam import beam_search
from transformer_lit.inference.sampling import keep_min_p, keep_top_k, keep_top_p
from transformer_lit.models.interpret import attentions, cut, lens, watch
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.position.rope import RoPE, rope_frequencies
from transformer_lit.position.scaling import make_scaling
from transformer_lit.recipes.instruct import Reasoning, sampled_answers
from transformer_lit.recipes.recipe import preset
from transformer_lit.text.tokenizer import BPETokenizer, readable
from transformer_lit.training.data import pad
from transformer_lit.training.loss import cross_entropy

weekly = pytest.mark.weekly
CAPTIONS = [
    "A man is riding a bike.",
    "  Two dogs are playing in the snow.\n",
    "A young woman in a red dress is singing on a stage in front of many people.",
    "Three children with buckets sit in a sandpit and look at a yellow excavator behind them.",
    "xyz 漢字 😀",
]
# Both round what is between two parts to float32: 8 layers, sums of up to 344 products.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
OPEN = """async () => {
    const base = new URL(document.querySelector("script[src*='page.js']").src);
    const names = ["beam", "bleu", "cache", "client", "costs", "game", "gate", "layers", "learn",
        "lens", "loss", "masks",
        "models", "residual", "rope", "sampling", "scaling", "steps", "table", "tensors",
        "tokenizer"];
    window.live = {};
    for (const name of names) Object.assign(live, await import(new URL(`live/${name}.js`, base)));
    window.opened = async (name) => {
        const at = (file) => fetch(new URL(`live/models/${name}/${file}`, base));
        const config = await (await at("config.json")).json();
        const described = await (await at("tokenizer.json")).json();
        const weights = await (await at("model.safetensors")).arrayBuffer();
        const tree = live.asTree(live.readTensors(weights));
        const model = new live.MODELS[config.family ?? "transformer"](tree, config.model);
        return { model, tokenizer: live.readTokenizer(described) };
    };
    // each question to a worker that has loaded a model, in turn
    window.answers = async (name, task, questions) => {
        const model = await live.openModel(name, () => {});
        const found = [];
        for (const question of questions) {
            found.push(await model.ask(task, question).catch(({ message }) => ({ message })));
        }
        model.close();
        return found;
    };
}"""


@pytest.fixture(scope="module")
def engine(opened):
    "A page with all modules of live/ in the variable `live`, without any drawing."
    page = opened()
    page.goto("book/intro.html")
    page.evaluate(OPEN)
    yield page
    page.context.close()
    assert not page.said


def same(found, expected, **close):
    "Tensors and numbers are close; all else is equal."
    if isinstance(expected, torch.Tensor) and expected.is_floating_point():
        assert_close(tensor(found, dtype=expected.dtype), expected, **close)
    elif isinstance(expected, torch.Tensor):
        assert found == expected.tolist()
    elif isinstance(expected, dict):
        for key in expected:
            same(found[key], expected[key], **close)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            same(one, other, **close)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-300)
    else:
        assert found == expected


def given(value):
    "What JavaScript gets: tensors as lists."
    if isinstance(value, list | tuple):
        return [given(one) for one in value]
    return value.tolist() if isinstance(value, torch.Tensor) else value


# --- formulas: the page computes in doubles -----------------------------------------------------


def by_row(scores, **how):
    "The weights that the package gives rows of scores."
    q, k = torch.ones(len(scores), 1, 1, 1), scores[:, None, :, None]
    return attention_weights(q, k, **how)[:, 0, 0]


def softmax():
    scores = 5 * randn(11, 7)
    asked = """([rows, temperature]) => {
        const weights = rows.map((row) => live.softmax(row, temperature));
        return [weights.map((row) => [...row]), weights.map((row) => live.steepest(row))];
    }"""
    for temperature in (0.25, 1.0, 8.0, 11.3):
        weights = by_row(scores, scale=1 / temperature)
        jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
        yield asked, [scores, temperature], [weights, jacobian.abs().amax((1, 2))]
    mask = torch.rand(11, 7) < 0.5
    mask[5] = False  # a row that may see nothing
    asked = "([rows, mask]) => rows.map((row, t) => [...live.maskedSoftmax(row, mask[t])])"
    yield asked, [scores, mask], by_row(scores, mask=mask[:, None, None], scale=1.0)


def masks():
    asked = """([T, S, sizes]) => [live.causal(T, S), live.everything(T, S),
        ...[live.padding, live.sliding].map((mask) => sizes.map((size) => mask(size, T, S))),
        sizes.map((size) => live.both(live.padding(size, T, S), live.causal(T, S)))]"""
    for T, S in ((7, 7), (5, 7), (1, 7), (7, 3)):
        q, k, sizes, causal = (
            randn(1, 1, T, 2),
            randn(1, 1, S, 2),
            arange(1, S + 1),
            causal_mask(T, S),
        )
        windows, padding = [], padding_mask(length_mask(sizes, S))[:, 0].expand(S, T, S)

        def keep(q, k, v, *, mask, windows=windows, causal=causal):
            windows.append(causal if mask is None else mask[0, 0])  # a window of all is no window
            return q

        for size in sizes.tolist():
            Window(size, attend=keep)(q, k, k)
        expected = [causal, torch.ones(T, S).bool(), padding, windows, padding & causal]
        yield asked, [T, S, sizes], expected


def rotary_scores():
    q, k, pairs = randn(14), randn(14), [(0, 0), (2, 5), (102, 105), (7, 3), (1000, 13)]
    asked = """([q, k, pairs, base]) => pairs.map(([t, s]) => {
        const planes = live.planes(q, t, k, s, base);
        const parts = ["q", "k", "adds", "frequency"].map((key) => planes.map((one) => one[key]));
        return [live.score(q, t, k, s, base), ...parts];
    })"""
    for base in (10_000, 500):
        expected = []
        for t, s in pairs:
            turned = [(q, t), (k, s)]
            a, b = (
                RoPE(14, base).rotate(x.view(1, 1, 1, 14), tensor([n])).view(14) for x, n in turned
            )
            hands = a.view(2, 7).T, b.view(2, 7).T, (a * b).view(2, 7).sum(0)
            expected.append([a @ b, *hands, rope_frequencies(14, base)])
        yield asked, [q, k, pairs, base], expected


def scalings():
    "A hundred heads: frequencies are the package's, and so are the angles farthest from any seen."
    sizes = itertools.product((8, 14, 32, 64), (100.0, 10_000.0, 500_000.0), (16, 61), (2, 3))
    settings = list(itertools.product(("linear", "ntk", "yarn", "llama3"), sizes))
    asked = """([name, head]) => {
        const planes = live.scaledPlanes(name, head);
        const parts = ["theta", "scaled", "turns"].map((key) => planes.map((one) => one[key]));
        return [...parts, planes.map((one) => live.farthestFromSeen(one, head.L, head.s * head.L))];
    }"""
    chosen = random.Random(0).sample(settings, 99)
    for name, (D, base, L, s) in [*chosen, ("none", (32, 10_000.0, 64, 4))]:
        theta = scaled = rope_frequencies(D, base)
        if name != "none":
            length = {"original_len": L} if name in ("yarn", "llama3") else {}
            scaled, _ = make_scaling(name, factor=s, **length)(D, base)
        apart = (
            arange(s * L)[:, None] * scaled - arange(L)[:, None, None] * theta
        )  # seen, new, planes
        apart = (apart + math.pi).remainder(2 * math.pi) - math.pi
        far, head = apart.abs().amin(0).amax(0), {"D": D, "base": base, "L": L, "s": s}
        expected = [theta, scaled, L * theta / (2 * math.pi), far]
        yield asked, [name, head], expected, {"rtol": 1e-6, "atol": 1e-9}


def filters():
    logits = 3 * randn(53, 101)
    logits[:7] = logits[:7].round()  # ties
    amounts = {"keepTopK": (1, 2, 7, 100, 101, 500), "keepTopP": (1e-9, 0.3, 0.5, 0.9, 0.95, 1.0)}
    amounts["keepMinP"] = (0.001, 0.01, 0.1, 0.5, 1.0)
    keep = {"keepTopK": keep_top_k, "keepTopP": keep_top_p, "keepMinP": keep_min_p}
    asked = """([name, rows, amount]) => rows.map((row) =>
        Array.from(live[name](Float64Array.from(row), amount), (logit) => logit > -Infinity))"""
    for name, temperature in itertools.product(keep, (0.4, 1.0, 1.9)):
        for amount in amounts[name]:
            kept = keep[name](logits / temperature, amount).isfinite()
            yield asked, [name, logits / temperature, amount], kept


def draws():
    asked = "([logits, choice]) => [...live.probabilities(Float64Array.from(logits), choice)]"
    logits = randn(101) * 3
    for temperature, top_p in itertools.product((0, 0.3, 1, 1.7), (0.001, 0.5, 0.9, 1)):
        choice = {"temperature": temperature, "topP": top_p}
        one_hot = (arange(101) == logits.argmax()).double()
        kept = keep_top_p(logits / temperature, top_p).softmax(-1) if temperature else one_hot
        yield asked, [logits, choice], kept
    asked = """(n) => {
        const logits = Float64Array.from([0.2, 0.3, 0.5], Math.log);
        const counts = [0, 0, 0]; // of as many numbers, evenly spread over [0, 1)
        for (let i = 0; i < n; i++) counts[live.nextToken(logits, {}, () => (i + 0.5) / n)] += 1;
        return counts;
    }"""
    yield asked, 1000, [200, 300, 500]  # drawn as often as they are probable


def queries():
    x, *matrices = randn(7, 5), *randn(3, 5, 3)
    q, k, v = (x @ w for w in matrices)
    weights = attention_weights(q[None, None], k[None, None])[0, 0]  # T T
    asked = """([x, ...matrices]) => x.map((_, t) => live.oneQuery(t, x, ...matrices))
        .map(({ weights, output, fits }) => [weights, output, fits])"""
    yield asked, [x, *matrices], [*map(list, zip(weights, weights @ v, q @ k.T))]


def games():
    asked = """([q, k, v, rounds, shared]) => {
        const weights = { q, k: shared ? q : k, v };
        const error = live.descend(weights, rounds, 0.3);
        return [error, weights];
    }"""
    for shared in (True, False):
        w_q, w_k, w_v = (randn(4, n, requires_grad=True) for n in (3, 3, 1))
        w_k = w_q if shared else w_k
        order, numbers = torch.rand(5, 3).argsort(-1), randn(5, 3, 1)
        x = torch.cat([torch.eye(3)[order], numbers], -1)
        wanted = (order[:, None, :] == (order[:, :, None] + 1) % 3).double() @ numbers
        scores = (x @ w_q) @ (x @ w_k).mT / 3**0.5
        error = (scores.softmax(-1) @ (x @ w_v) - wanted).square().mean()
        matrices = {"q": w_q, "v": w_v} | ({} if shared else {"k": w_k})
        slopes = torch.autograd.grad(error, [*matrices.values()])
        stepped = {n: (w - 0.3 * g).detach() for (n, w), g in zip(matrices.items(), slopes)}
        rounds = [{"x": a.tolist(), "wanted": b.flatten().tolist()} for a, b in zip(x, wanted)]
        asks = [w_q.detach(), w_k.detach(), w_v.detach(), rounds, shared]
        yield asked, asks, [error.item(), stepped]


def losses():
    "A hundred rows of logits; the floor is the loss where the softmax is the target itself."
    asked = """([z, v, smoothing, t]) => [live.tokenLoss(z, v, smoothing, t),
        live.tokenLoss(z.with(v, live.logitFor(z, v, 0.3, t)), v, 0, t).p]"""
    for n, row in enumerate(3 * randn(100, 7)):
        v, smoothing, temperature = n % 7, (n % 5) / 5, 2.0 ** (n % 3 - 1)
        z, y = row[None].requires_grad_(), tensor([v])
        loss, _ = cross_entropy(z / temperature, y, smoothing=smoothing)
        (slope,) = torch.autograd.grad(loss, z)
        q = torch.full((1, 7), smoothing / 7)
        q[0, v] += 1 - smoothing
        floor = cross_entropy(q.log(), y, smoothing=smoothing)[0] if smoothing else tensor(0.0)
        told = {"gradient": slope[0], "loss": loss.detach(), "q": q[0], "floor": floor}
        told["plain"] = cross_entropy(z / temperature, y)[0].detach()
        # the probability that was asked for, and the rest in proportion
        moved = row.detach().div(temperature).index_fill(0, y, -math.inf).softmax(0) * 0.7
        yield asked, [row.detach(), v, smoothing, temperature], [told, moved.index_fill(0, y, 0.3)]


def norms():
    both = LayerNorm(7), RMSNorm(7)
    for parameter in itertools.chain(*(norm.parameters() for norm in both)):
        torch.nn.init.normal_(parameter)
    x = 10.0 ** torch.randint(-4, 3, (100, 1)) * randn(100, 7) + randn(100, 1)
    asked = """([rows, weight, bias, scale]) => rows.map((x) => [
        live.layerNorm({ weight: { values: weight }, bias: { values: bias } }, x, 1e-5),
        live.rmsNorm({ weight: { values: scale } }, x, 1e-6)].map((row) => [...row]))"""
    parameters = [one.detach() for norm in both for one in norm.parameters()]
    expected = torch.stack([norm(x) for norm in both], 1).detach()
    # at 1e-4 the mean of a row, which is about 1, takes four of its sixteen digits
    yield asked, [x, *parameters], expected, {"rtol": 1e-7, "atol": 1e-9}


def depths():
    """Where sublayers write what is orthogonal to all before, the formulas are exact.

    So is the gradient that is orthogonal to all of it: no norm takes a part of it out.
    """
    C = 101
    columns = torch.cat([torch.ones(C, 1), randn(C, C - 1)], 1)
    x0, *written, end = torch.linalg.qr(columns)[0].T[1:] * C**0.5  # of mean 0 and variance 1
    wirings = {"pre": PreNorm, "post": PostNorm, "none": None}
    asked = """(asked) => ["size", "left", "gradient"].map((key) =>
        live.overDepth(...asked).map((one) => one[key]))"""
    for name, place in itertools.product(wirings, range(34)):
        n, variance, stream = 1 + place * 7 % 61, 0.05 + place / 17, [x0.clone().requires_grad_()]
        for f in (variance**0.5 * one for one in written[:n]):
            x = stream[-1].view(1, 1, C)
            if name == "none":
                y = x + x.detach().square().mean().sqrt() * f
            else:
                y = wirings[name](LayerNorm(C, eps=0.0))(x, lambda x, f=f: f.expand_as(x))
            stream.append(y.view(C))
        rows = torch.stack(stream)
        back = [(slope @ end) / C for slope in torch.autograd.grad(rows[-1] @ end, stream)]
        rows = rows.detach()
        expected = [rows.std(1, correction=0), torch.corrcoef(rows)[0], torch.stack(back)]
        yield asked, [name, n, variance], expected, {"atol": 1e-12, "rtol": 1e-7}


def costs():
    asked = """([sizes]) => [live.parameters(sizes), live.cacheBytes(sizes, 17, 5, 2),
        11 * live.stepFlops(sizes, 11), live.stepBytes(sizes, 17, 5, 0.5, 2)]"""
    for tied, (H, K) in itertools.product((True, False), ((6, 6), (6, 2), (6, 1), (5, 1))):
        config = LlamaConfig(vocab_size=103, d_model=35, n_layers=3, n_heads=H, n_kv_heads=K)
        with torch.device("meta"):
            model = Llama(replace(config, d_head=14, d_ff=53, tied=tied)).eval()
            ids = torch.zeros(1, 11, dtype=torch.long)
            for layer in model.layers:
                layer.attn.attend = attend
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(ids)  # all 11 at once: each sees a row of 11 scores
        sizes = {"V": 103, "C": 35, "layers": 3, "H": H, "K": K, "D": 14, "F": 53, "tied": tied}
        held, weights = (
            cache_bytes(3, K, 14, 17, batch=5),
            sum(x.numel() for x in model.parameters()),
        )
        read = (weights if tied else weights - 103 * 35) / 2 + held  # of the table a few rows alone
        yield asked, [sizes], [weights, held, counter.get_total_flops(), read]


def halves():
    "Every half is read as numpy reads it; an unknown type of weights is named."
    bits = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float64)
    asked = "(n) => Array.from({ length: n }, (_, bits) => live.half(bits))"
    yield asked, 65536, tensor(bits), {"rtol": 0, "atol": 0, "equal_nan": True}
    asked = """(header) => {
        const bytes = new Uint8Array(10 + header.length);
        bytes[0] = header.length;
        bytes.set(new TextEncoder().encode(header), 8);
        try { live.readTensors(bytes.buffer); } catch (error) { return error.message.slice(0, 19); }
    }"""
    header = '{"w":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
    yield asked, header, "w is stored as BF16"


# --- tokenizers and searches ----------------------------------------------------------------------


def strings():
    "Texts of all kinds: captions, signs and spaces of many scripts, any characters at all."
    rng = random.Random(0)
    odd = "abc DE  \t\n'sß漢字é\u0085\ufeff\u2003😀12½٣!?-\u00a0\u200b’'re"
    texts = [*CAPTIONS, "", " ", "I'll say: they've got 3 bikes!", "<eos> is no token"]
    texts += ["".join(rng.choices(odd, k=rng.randrange(40))) for _ in range(500)]
    every = [*range(1, 0xD800), *range(0xE000, 0x110000)]
    return texts + ["".join(map(chr, rng.choices(every, k=20))) for _ in range(200)]


def added(tokenizer, ids):
    "What each token adds to a text as it is read: whole characters, and ◌ where one is open."
    decoder = getincrementaldecoder("utf-8")("replace")
    texts = (decoder.decode(tokenizer.decode_bytes([id])) for id in ids)
    return [text + "◌" * bool(decoder.getstate()[0]) for text in texts]


def tokenizers():
    "Ids and texts; a token shows the character that it ends, and a mark for one that it begins."
    asked = """async ([name, texts, drawn, bytes]) => {
        const { tokenizer } = await opened(name);
        const ids = texts.map((text) => tokenizer.encode(text));
        const added = (row) => row.map((_, n) => tokenizer.added(row.slice(0, n + 1)));
        const whole = (told) => told.join("").replace(/◌$/, "�").replaceAll("◌", "");
        return [ids, ...[ids, drawn].map((rows) => rows.map((row) => tokenizer.decode(row))),
            ids.map(added), bytes.map((row) => whole(added(row)))];
    }"""
    rng, texts = random.Random(1), ["漢字", *strings()]
    for name in ("multi30k-en-de", "stories"):
        tokenizer = load(name).tokenizer
        drawn = [rng.choices(range(tokenizer.vocab_size), k=23) for _ in range(300)]
        bytes = [[3 + rng.randrange(256) for _ in range(23)] for _ in range(300)]
        ids = tokenizer.encode_all(texts)
        told, read = [added(tokenizer, row) for row in ids], map(tokenizer.decode, drawn)
        mended = [tokenizer.decode(row) for row in bytes]
        yield asked, [name, texts, drawn, bytes], [ids, texts, [*read], told, mended]
    assert told[0] == ["◌", "◌", "漢", "◌", "◌", "字"]
    asked = """async ([name, text]) => {
        const { tokenizer } = await opened(name);
        try { tokenizer.encode(text.replace("HALF", "\\ud800")); }
        catch ({ message }) { return /half a character|“漢”/.exec(message)[0]; }
    }"""
    yield asked, ["stories", "a HALF"], "half a character"
    yield asked, ["shakespeare", "ROMEO 漢"], "“漢”"


def merges():
    "Of captions each merge, as the chapter's loop applies it; of the larger tokenizer the last."
    path = live.ROOT / "transformer_lit/weights/multi30k-en-de/tokenizer.json"
    cells = "imports", "captions", "scratch", "pair-counts", "merges"
    names = make_widgets.run_cells("nbs/text/01_tokenizer.ipynb", *cells)
    lines = (live.ROOT / "transformer_lit/data/book.txt").read_text(encoding="utf-8").splitlines()
    lines = sorted({line[:120] for line in lines if len(line) > 40})
    texts = [
        "",
        " ",
        "Fahrräder 🚲",
        "  two  spaces \n",
        "\ta \nb \r\n \r c\v \f\x1c \x85 d\u2028\n\n\n  e",
        "kiki it's 2017: 漢字 \x00\x7f\u00ad\ufeffé",
    ]
    texts += [*names["captions"], *random.Random(0).sample(lines, 33)]
    asked = """([described, texts]) => {
        const tokenizer = live.readTokenizer(described);
        const told = ({ rank, pair, words }) => (rank < 0 ? words : [rank, pair, words]);
        return [tokenizer.tokens.map((token) => tokenizer.readable(token)),
            texts.map((text) => [tokenizer.encode(text), tokenizer.trace(text).map(told)])];
    }"""
    described = make_widgets.captions()
    learned, expected = [*map(list, described["model"]["merges"])], []
    tokenizer = BPETokenizer.train(names["captions"], len(described["model"]["vocab"]))
    for text in texts:
        cut = tokenizer.backend.pre_tokenizer.pre_tokenize_str
        lines = text.splitlines(keepends=True)
        steps = [words := [list(word) for line in lines for word, _ in cut(line)]]
        for rank, pair in enumerate(learned):
            merged = [names["apply_merges"](word, [tuple(pair)]) for word in words]
            if merged != words:
                steps.append([rank, pair, words := merged])
        expected.append([tokenizer.encode(text), steps])
    yield asked, [described, texts], [pieces(described), expected]
    described, tokenizer = json.loads(path.read_text(encoding="utf-8")), BPETokenizer.load(path)
    asked = asked.replace(
        "tokenizer.trace(text).map(told)", "tokenizer.trace(text).at(-1).words.flat()"
    )
    ids = tokenizer.encode_all(texts)
    expected = [[row, [*map(tokenizer.backend.id_to_token, row)]] for row in ids]
    yield asked, [described, texts], [pieces(described), expected]


def pieces(described):
    "All tokens of a tokenizer's file, as the package writes them."
    vocab = described["model"]["vocab"]
    return [readable(token) for token in sorted(vocab, key=vocab.get)]


def wordy(follow, end, most):
    "The chapter's model whose sentences may go on, for beginnings of up to `most` words."
    table, new = {}, [()]
    while new:
        words = new.pop()
        row = {end: 0.9, "und": 0.1} if follow(words) == {end: 1.0} else follow(words)
        if len(words) < most and words[-1:] != (end,):
            table[" ".join(words)] = row
            new += [(*words, word) for word in row]
    return table


def searches():
    "The chapter's loop, step by step, and the package's search; two tables, 20 settings each."
    names = make_widgets.run_cells(
        "nbs/inference/02_beam.ipynb", "imports", "table", "search", "vocabulary", "table-model"
    )
    model, settings = (
        names["TableModel"](),
        itertools.product((1, 2, 3, 4), (0.0, 0.6, 1.0, 1.7, 2.0)),
    )
    special = {"bos": names["BOS"], "eos": names["EOS"]}
    asked = """([described, beam, alpha, maxLen]) => {
        const model = new live.TableModel(described);
        const found = live.searchTable(model, { beam, alpha, maxLen });
        const told = ({ ids, logProb, score, state }) =>
            [ids.map((id) => model.words[id]).join(" "), logProb, score ?? state];
        // two candidates may tie, and rounding orders them: here their words do
        const sorted = (nodes) => nodes.map(told).sort(([a], [b]) => (a < b ? -1 : 1));
        const order = found.steps.map((step) => step.map(({ logProb }) => logProb));
        return [found.why, told(found.best), sorted(found.finished), found.steps.map(sorted),
            order.every((row) => row.every((p, i) => !i || p <= row[i - 1]))];
    }"""
    for (width, alpha), long in itertools.product(settings, (False, True)):
        described, L = make_widgets.table(), 24 if long else 6
        end, table = described["end"], described["table"]
        if long:
            table = described["table"] = wordy(names["next_words"], end, L)

        def follow(words, table=table, end=end):
            return table.get(" ".join(words), {end: 1.0})

        finished, steps, why = names["search"](width, L, alpha, follow)
        ended = [
            [" ".join(w for w in words if w != end), log_p, score]
            for score, log_p, words in finished
        ]
        if not long:
            src = torch.zeros(1, 1, dtype=torch.long)
            ((best,),) = beam_search(model, src, **special, max_len=L, beam=width, alpha=alpha)
            text = " ".join(names["words"][i] for i in best.ids)
            same([text, best.log_prob, best.score], ended[0])
        told = []
        for candidates, beginnings, finish in steps:
            states = dict.fromkeys((words for words, _ in beginnings), "open")
            states |= dict.fromkeys((words for words, _ in finish), "finished")
            rows = [[" ".join(w), p, states.get(w, "dropped")] for w, p in candidates]
            told.append(sorted(rows))
        yield asked, [described, width, alpha, L], [why, ended[0], sorted(ended), told, True]


# --- models: the page computes in float32 ---------------------------------------------------------


def translator_logits():
    captions = load(live.CAPTIONS)
    src = [*captions.tokenizer.encode(CAPTIONS[2]), captions.tokenizer.eos_id]
    tgt_in = [captions.tokenizer.bos_id, *captions.tokenizer.encode("Eine Frau singt.")]
    asked = """async ([src, tgtIn]) => {
        const { model } = await opened("multi30k-en-de");
        const state = model.start(src);
        return tgtIn.map((id) => [...model.step([id], state)[0]]);
    }"""
    yield asked, [src, tgt_in], captions.model(tensor([src]), tensor([tgt_in]))[0], CLOSE


def greedy(translator, text):
    "A source, and the ids of its greedy translation behind `bos`."
    tokenizer = translator.tokenizer
    src = tensor([tokenizer.encode(text.strip(), eos=True)])
    special = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id}
    ((best,),) = beam_search(translator.model, src, max_len=2 * src.shape[1] + 8, beam=1, **special)
    return src, tensor([[tokenizer.bos_id, *best.ids]])


def heads(count=100):
    "Maps and German with heads cut: up to two thirds of them, over five captions."
    captions, rng, asked = (
        load(live.CAPTIONS),
        random.Random(2),
        "([questions]) => answers('multi30k-en-de', 'heads', questions)",
    )
    names, questions, expected = list(attentions(captions.model)), [], []
    whole = dict(zip(CAPTIONS, captions.translate(CAPTIONS, beam=1)))
    for place in range(count):
        chosen = rng.sample(
            list(itertools.product(names, range(4))), place * 32 // max(1, count - 1)
        )
        cuts = {name: [h for other, h in chosen if other == name] for name in names}
        text, told = CAPTIONS[place % 5], {}
        with ExitStack() as stack:
            for name, cut_here in cuts.items():
                stack.enter_context(cut(captions.model.get_submodule(name), cut_here))
            src, tgt_in = greedy(captions, text)
            with watch(captions.model) as seen:
                captions.model(src, tgt_in)
        for name, weights in ((name, seen[name][0]) for name in names):  # H T S
            causal = re.fullmatch(r"decoder\.\d\.attn", name)  # there each row ends with itself
            rows = [
                [row[: t + 1] if causal else row for t, row in enumerate(head)] for head in weights
            ]
            told[name] = rows
        german = captions.tokenizer.decode(tgt_in[0, 1:].tolist())
        questions.append({"text": text, "cut": cuts})
        expected.append({"text": german, "whole": whole[text], "weights": told})
    assert sum(one["text"] != one["whole"] for one in expected) > count // 2  # else nothing was cut
    yield asked, [questions], expected, CLOSE


def boxes(model, src, tgt_in):
    "What each part gives when `model` reads a pair, by the names that the page uses: T C each."
    given = {}
    for side, ids in (("src", src), ("tgt", tgt_in)):
        given[side], given[f"{side}.tok_emb"] = model.embed(ids), model.tok_emb(ids)
        given[f"{side}.position"] = model.position(arange(ids.shape[1]))[None]
    named = r"(en|de)coder\.\d\.\w+(\.norm)?|(en|de)coder_norm|lm_head"
    with ExitStack() as stack:
        for name, part in model.named_modules():
            if re.fullmatch(named, name):
                keep = functools.partial(lambda name, part, _, out: given.update({name: out}), name)
                stack.callback(part.register_forward_hook(keep).remove)
        model(src, tgt_in)
    return {name: tensor[0] for name, tensor in given.items()}


def walks(count=95):
    "Every box holds the package's tensor: sentences of words that captions have, seven boxes each."
    captions, rng = load(live.CAPTIONS), random.Random(3)
    words = " ".join(CAPTIONS[:4]).split()
    texts = [" ".join(rng.choices(words, k=rng.randrange(3, 12))) for _ in range(count)] + CAPTIONS
    asked = """async ([questions]) => {
        const texts = questions.map(([text]) => ({ text }));
        const found = await answers("multi30k-en-de", "walk", texts);
        return found.map(({ heard, next }, n) => [Object.keys(heard).sort(),
            questions[n][1].map((name) => heard[name].map((row) => [...row])),
            next.map((five) => five.map(([, share]) => share))]);
    }"""
    questions, expected, turn = [], [], None
    for text in texts:
        tensors = boxes(captions.model, *greedy(captions, text))
        turn = turn or itertools.cycle(sorted(tensors))
        questions.append([text, seven := [next(turn) for _ in range(7)]])
        likely = tensors["lm_head"].softmax(-1).topk(5).values
        expected.append([sorted(tensors), [tensors[name] for name in seven], likely])
    assert len(tensors) == 2 * 3 + 4 * (6 + 9) + 3
    yield asked, [questions], expected, CLOSE


def writers():
    "Logits and greedy text; 149 tokens are more than the context holds: its last half goes on."
    asked = """async ([name, ids, lines]) => {
        const { model, tokenizer } = await opened(name);
        const state = model.start();
        const logits = ids.map((id) => [...model.step([id], state)[0]]);
        const choice = () => ({ temperature: 0 });
        const how = { maxNew: 149, maxLen: model.config.max_len, choice };
        const tokens = [...live.stream(model, ids, how)].map(({ token }) => token);
        return [logits, tokenizer.decode(tokens).split(lines ? "\\n" : null)[0]];
    }"""
    for name in ("shakespeare", "stories"):
        writer, prompt = load(name), "What is a"
        ids = writer.tokenizer.encode(f"\n{prompt}" if writer.lines else prompt)
        text = "".join(writer.stream(prompt, max_new_tokens=149, temperature=0))
        yield asked, [name, ids, writer.lines], [writer.model(tensor([ids]))[0], text], CLOSE


def lenses(T=50):
    "The ten likeliest, the entropy and what each height would say, at 100 places of two texts."
    asked = """async ([name, texts]) => {
        const { model } = await opened(name);
        return texts.map((ids) => {
            const state = model.start();
            return ids.map((id, t) => {
                model.step([id], state);
                const rows = state.heights[0].map((x) => model.read(x));
                return [rows.map((row) => [...row]), live.opened(rows, ids[t + 1] ?? 0)];
            });
        });
    }"""
    for name in ("shakespeare", "stories"):
        writer, drawn = load(name), torch.Generator().manual_seed(0)
        texts = torch.randint(writer.tokenizer.vocab_size, (2, T), generator=drawn)
        texts[0] = tensor(writer.tokenizer.encode(" ".join(CAPTIONS[:4]))[:T])
        expected = lens(writer.model, texts).permute(1, 2, 0, 3)  # B T N V

        def told(found, texts=texts, expected=expected):
            for b, t in itertools.product(range(2), range(T)):
                rows, shown = found[b][t]
                same(rows, expected[b, t], **CLOSE)
                # from here on with the page's logits: what they differ by may change the order
                logits = tensor(rows, dtype=torch.float64)
                p, token = logits.softmax(-1), texts[b, t + 1].item() if t + 1 < T else 0
                order = logits[-1].argsort(descending=True, stable=True).tolist()
                ten, firsts = order[:10], logits.argmax(-1).tolist()
                bits = torch.distributions.Categorical(probs=p).entropy() / math.log(2)
                stays = [set(firsts[n:]) == {firsts[-1]} for n in range(len(firsts))]
                top = ten + [token] * (token not in ten)
                told = {"rank": order.index(token) + 1, "since": stays.index(True)}
                told["top"] = [{"id": id, "chances": p[:, id]} for id in top]
                told["lens"] = [{"bits": x, "first": first} for x, first in zip(bits, firsts)]
                same(shown, told, rtol=1e-6, atol=1e-6)

        yield asked, [name, texts], told


def translations():
    "The same German at any width; the tree is the search; what cannot be translated is said."
    asked = """async ([name, texts, beam]) => (await answers(name, "translate", texts.map(
        (text) => ({ text, beam })))).map(({ text, message }) => text ?? message)"""
    first, captions = load(FIRST), load(live.CAPTIONS)
    for beam in (1, 3, 5):
        yield asked, [FIRST, CAPTIONS, beam], first.translate(CAPTIONS, beam=beam)

    def refused(found):
        assert "nothing to translate" in found[0] and "900 tokens, but" in found[1]

    yield asked, [live.CAPTIONS, [" \u0085\x1c", "漢" * 300], 5], refused
    tokenizer = captions.tokenizer
    src = tensor([tokenizer.encode(CAPTIONS[2], eos=True)])
    special = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id}
    ((best,),) = beam_search(captions.model, src, max_len=2 * src.shape[1] + 8, **special)

    def tree(found):
        same(found["best"], {"ids": [*best.ids]})
        same(
            found["best"], {"logProb": tensor(best.log_prob), "score": tensor(best.score)}, **CLOSE
        )
        assert found["best"]["score"] == max(one["score"] for one in found["finished"])
        for before, step in itertools.pairwise([[], *found["steps"]]):
            assert sum(not node["ends"] for node in step) == 5
            chances = [node["logProb"] for node in step]
            assert chances == sorted(chances, reverse=True)
            for node in step:
                begun = (
                    before[node["parent"]] if before else {"ids": [], "logProb": 0, "ends": False}
                )
                assert node["ids"] == [*begun["ids"], node["token"]] and not begun["ends"]
                assert node["logProb"] < begun["logProb"]

    asked = (
        "async ([text]) => (await answers('multi30k-en-de', 'translate', [{ text, beam: 5 }]))[0]"
    )
    yield asked, [CAPTIONS[2]], tree


def rewards(count=8, steps=2):
    "Steps of GRPO on answers that the package drew: rewards, advantages, gradients and weights."
    asked = """async ([steps]) => {
        const learner = new live.Learner(await opened("running-sum"));
        return steps.map((groups) => {
            const judged = groups.map(([question, texts]) => {
                const ids = texts.map((text) => learner.tokenizer.encode(text));
                const next = (logits, n) => ids[n].shift();
                return learner.judged(question, learner.answers(question, texts.length, next));
            });
            const all = judged.flat();
            learner.backward(all);
            const gradients = learner.weights.map(({ grad }) => [...grad]);
            learner.update();
            return [
                all.map(({ reward }) => reward),
                all.map(({ advantage }) => advantage),
                gradients,
                learner.weights.map(({ values }) => [...values]),
            ];
        });
    }"""
    reasoner, rng = load("running-sum"), random.Random(1)
    recipe, model = preset(Reasoning, "running-sum", like=reasoner), reasoner.model.double()
    names = sorted(name for name, _ in model.named_parameters())
    how = {"lr": 3e-4, "betas": (0.9, 0.95), "weight_decay": 0.0}
    optimizer, inputs, expected = torch.optim.AdamW(model.parameters(), **how), [], []
    for step in range(steps):
        asked_for = [question(rng) for _ in range(count)]
        many = [text for text in asked_for for _ in range(8)]
        said = sampled_answers(model, reasoner.tokenizer, many, seed=step)
        given = torch.tensor([recipe.reward(*pair) for pair in zip(many, said)]).double()
        better = advantages(given, group_size=8, scale="std")
        ids = pad([reasoner.tokenizer.encode(q + a) for q, a in zip(many, said)], 0)
        place, ends = arange(ids.shape[1]), tensor([9 + len(text) for text in said])
        with torch.enable_grad():
            logp, mask = token_logp(model(ids), ids), (place > 8) & (place < ends[:, None])
            optimizer.zero_grad()
            policy_loss(logp, logp, better, mask, normaliser=20 * len(many)).backward()
        weights = dict(model.named_parameters())
        gradients = [weights[name].grad.flatten().clone() for name in names]
        optimizer.step()
        after = [weights[name].detach().flatten().clone() for name in names]
        inputs.append([[q, said[8 * n : 8 * n + 8]] for n, q in enumerate(asked_for)])
        expected.append([given.tolist(), better, gradients, after])
    assert 0 < sum(expected[0][0]) < len(expected[0][0])
    yield asked, [inputs], expected, {"rtol": 1e-5, "atol": 1e-9}


def pieces_in_turn():
    "The writer tells of a character at its last token; what is opened has the whole character too."
    asked = """async (ids) => {
        const model = await live.openModel("stories", () => {});
        const asked = { prompt: "Clara", maxNew: 4, choice: { temperature: 0 } };
        const [told, opened] = [[], []];
        await model.ask("write", asked);
        for (const [at, token] of ids.entries()) {
            const heard = [];
            const from = { at, token };
            await model.ask("write", { ...asked, from }, ({ piece }) => heard.push(piece));
            told.push(heard[0]);
            opened.push((await model.ask("look", { at })).piece);
        }
        model.close();
        return [told, opened];
    }"""
    ids = load("stories").tokenizer.encode("漢")
    yield asked, ids, [["◌", "◌", "漢"], [r"\xe6", r"\xbc", "漢"]]


def bleus():
    "A hundred translations into three words, so that many n-grams are clipped."
    path, rng = "nbs/inference/03_metrics.ipynb", random.Random(5)
    names = make_widgets.run_cells(path, "imports", "scratch", "two-rows", "byhand")
    asked = """(texts) => {
        const { orders, score } = live.bleu(...texts.map(live.split));
        return [orders.flatMap(({ right, states }) => [right, states.length]), score];
    }"""
    for _ in range(100):
        said, wanted = (rng.choices("abc", k=rng.randrange(4, 13)) for _ in range(2))
        counts = names["count"](said, wanted)
        expected = [counts[:8], float(names["bleu_of"]([counts]))]
        yield asked, [" ".join(said), f" {' '.join(wanted)}\n"], expected
    same_text = "eins zwei drei vier fünf"
    yield asked, [same_text, same_text], [[5, 5, 4, 4, 3, 3, 2, 2], 100.0]


def caches():
    path = "nbs/attention/06_cache.ipynb"
    names = make_widgets.run_cells(path, "imports", "setup", "byhand", "work-algebra")
    asked = """([T, C]) => [true, false].map((cached) =>
        [...live.work(T, C, cached), live.rows(T, cached)[1]])"""
    ways = {True: names["with_lists"], False: names["from_scratch"]}
    for T, C in itertools.product((1, 2, 7, 53), (3, 64, 512)):
        yield asked, [T, C], [[*names["work"](T, C, c), ways[c]([0.1] * T)[1]] for c in ways]


def gates():
    asked = "([name, gates, values]) => live.gated(name, gates, values)"
    functions = {"ReLU": torch.relu, "SiLU": torch.nn.functional.silu, "sigmoid": torch.sigmoid}
    for name, function in functions.items():
        gate, value = 3 * randn(2, 101)
        yield asked, [name, gate, value], function(gate) * value


FORMULAS = [softmax, masks, rotary_scores, scalings, filters, draws, queries]
FORMULAS += [games, losses, norms, depths, costs, halves, merges, searches]
FORMULAS += [bleus, caches, gates]
MODELS = [tokenizers, translator_logits, writers, lenses, translations, rewards, pieces_in_turn]
CASES = [*FORMULAS, *MODELS, functools.partial(heads, 5), functools.partial(walks, 2)]
CASES += [pytest.param(case, marks=weekly) for case in (heads, walks)]  # all of them


@pytest.mark.parametrize("case", CASES)
def test_the_page_computes_what_the_package_computes(engine, case):
    torch.set_default_dtype(torch.float64 if case in FORMULAS else torch.float32)
    with torch.set_grad_enabled(case in FORMULAS):
        for asked, inputs, expected, *close in case():
            found = engine.evaluate(asked, given(inputs))
            if callable(expected):
                expected(found)
            else:
                same(found, expected, **dict(*close))


@weekly
@pytest.mark.needs("multi30k")
def test_the_same_german_for_100_captions(engine):
    texts = [pair[0] for pair in load_pairs("multi30k", "en", "de", "test_2016_flickr")[:100]]
    asked = """async (texts) => (await answers("multi30k-en-de", "translate", texts.map(
        (text) => ({ text, beam: 5 })))).map(({ text }) => text)"""
    assert engine.evaluate(asked, texts) == load(live.CAPTIONS).translate(texts)


@weekly
def test_the_game_is_learned_from_twenty_beginnings(engine):
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
    found = [engine.evaluate(learned, seed) for seed in range(20)]
    assert all(error < 0.05 for error, _ in found), found
    assert sum(looks == [1, 2, 0] for _, looks in found) >= 19, found


def test_the_data_are_what_the_package_and_the_chapters_make():
    read = {
        name: json.loads((make_widgets.TARGET / name).read_text()) for name in make_widgets.FILES
    }
    for name in read.keys() - {"next.json"}:
        assert read[name] == make_widgets.FILES[name](), (
            f"{name}: run `python book/make_widgets.py`"
        )
    made, found = make_widgets.following(), read["next.json"]
    assert made["characters"] == found["characters"]
    for one, other in zip(made["places"], found["places"], strict=True):
        assert one["text"] == other["text"]
        # rounded to four places, and a processor may sum in another order
        assert one["logits"] == pytest.approx(other["logits"], abs=2e-4)


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_a_file_that_is_not_the_one_that_its_settings_name_is_not_computed_with(page, file):
    def send(route):
        body = bytearray(route.fetch().body())
        body[-9] ^= 1  # one bit, in the last weights or pieces
        route.fulfill(body=bytes(body))

    page.context.route(f"**/stories/{file}", send)
    page.goto("book/intro.html")
    page.evaluate(OPEN)
    opened = "live.openModel('stories', () => {}).then(() => '', ({ message }) => message)"
    assert page.evaluate(opened).startswith(f"{file} is not the file of this model")
    page.context.unroute(f"**/stories/{file}")
    assert page.evaluate(opened) == ""
