"""The quizzes ask what can be settled: each right answer is computed here, with its rivals.

A function in `ANSWERS` runs the package or torch and returns a number, several numbers, or for the
beginnings of choices whether they hold. The last test but one compares:
were another choice right, it would fail.
"""

import functools
import json
import math
import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from unittest import mock

import chapter
import pytest
import quizzes
import torch
import torch.nn.functional as F
import yaml
from sacrebleu.metrics import BLEU
from tokenizers import Tokenizer
from tokenizers.models import BPE
from torch import nn

from transformer_lit.attention.attend import attend, attention_weights
from transformer_lit.attention.grouped import cache_bytes
from transformer_lit.attention.masks import causal_mask, padding_mask
from transformer_lit.attention.multihead import MultiHeadAttention, distances, split_heads
from transformer_lit.block.feedforward import FeedForward, GatedFeedForward, gated_width
from transformer_lit.block.init import gpt2_init
from transformer_lit.block.layers import EncoderLayer
from transformer_lit.block.norm import LayerNorm
from transformer_lit.block.residual import PostNorm, PreNorm
from transformer_lit.course.records import at_best_rate, paired
from transformer_lit.inference.beam import beam_search, length_penalty
from transformer_lit.inference.metrics import bits_per_byte, bleu
from transformer_lit.inference.sampling import keep_top_p, next_token
from transformer_lit.inference.speculative import judge
from transformer_lit.models.assembly import AssemblyConfig, assemble
from transformer_lit.models.gpt import GPT, GPTConfig
from transformer_lit.models.interpret import watch
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.models.transformer import Transformer, TransformerConfig
from transformer_lit.position.absolute import sinusoids
from transformer_lit.position.disentangled import DisentangledBias
from transformer_lit.position.relative import ALiBi, T5Bias
from transformer_lit.position.rope import RoPE
from transformer_lit.position.scaling import LinearScaling
from transformer_lit.recipes.masked import hide
from transformer_lit.text.embedding import TokenEmbedding
from transformer_lit.text.tokenizer import BPETokenizer
from transformer_lit.training.data import TextStream, collate, pad
from transformer_lit.training.loss import cross_entropy
from transformer_lit.training.run import learning_curve
from transformer_lit.training.schedule import cosine, inverse_sqrt, paper_schedule
from transformer_lit.training.trainer import mean_loss

PARTS = quizzes.read()
QUESTIONS = {question.id: question for part in PARTS.values() for question in part}
ANSWERS = {}
NOT_COMPUTED = {
    "text-word-vectors": "it is about what four trainings keep",
    "models-path": "it follows from the definition of a recurrence",
    "recipes-two-perplexities": "it is about what two numbers mean",
    "results-context": "its chapter asserts it on records",
}


def answers(name):
    "The function computes the answer to that question."

    def register(function):
        assert name not in ANSWERS
        ANSWERS[name] = function
        return function

    return register


def close(a, b):
    return a.shape == b.shape and torch.allclose(a, b)


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


# --- the form -----------------------------------------------------------------------------------


def test_every_teaching_part_has_five_questions_or_more():
    first = [quizzes.cards.numbered(pages)[0] for _, pages in quizzes.cards.contents()]
    folders = [page.split("/")[:2] for page in first]
    teaching = [name for place, name in folders if place == "nbs"]
    assert list(PARTS) == teaching[: teaching.index("results") + 1] and len(PARTS) == 10
    assert min(map(len, PARTS.values())) >= 5


def test_names_are_unique_and_begin_with_their_part():
    names = [(part, question.id) for part, found in PARTS.items() for question in found]
    assert len({name for _, name in names}) == len(names)
    assert all(re.fullmatch(rf"{part}-[a-z0-9-]+", name) for part, name in names)


def test_a_question_has_four_different_choices_and_explains_each():
    for name, question in QUESTIONS.items():
        assert sum(choice.right for choice in question.choices) == 1, name
        assert len({choice.text.strip().lower() for choice in question.choices}) == 4, name
        assert len({choice.why for choice in question.choices}) == 4, name
        assert question.level in ("core", "extra"), name


def test_questions_stand_in_the_order_of_no_other_part_and_name_chapters_that_exist():
    chapters = quizzes.cards.chapters()
    for part, found in PARTS.items():
        for question in found:
            assert question.chapter in chapters and question.chapter.split("/")[0] == part
    # what needs a chapter of the second pass is marked
    for question in QUESTIONS.values():
        if quizzes.cards.card(chapters[question.chapter])["pass"] == 2:
            assert question.level == "extra"


def test_neither_place_nor_length_hints_at_the_right_answer():
    places = Counter(question.right for question in QUESTIONS.values())
    assert len(places) == 4 and max(places.values()) - min(places.values()) <= 2
    longest = [
        max(q.choices, key=lambda choice: len(choice.text)).right for q in QUESTIONS.values()
    ]
    assert sum(longest) / len(longest) < 0.35  # by chance a quarter


WRONG = {
    "no right answer": {"choices": [{"wrong": "a", "why": "b"}]},
    "two of them": {"choices": [{"right": "a", "why": "b"}, {"right": "c", "why": "d"}]},
    "no explanation": {"choices": [{"right": "a"}, {"wrong": "c", "why": "d"}]},
    "an unknown key": {"hint": "x"},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_malformed_question_is_named(change, tmp_path):
    good = {"id": "start-x", "chapter": "start/notation", "level": "core", "text": "?"}
    good["choices"] = [{"right": "a", "why": "b"}, {"wrong": "c", "why": "d"}]
    file = tmp_path / "quizzes.yml"
    file.write_text(yaml.safe_dump({"start": [good]}))
    assert quizzes.read(file)["start"][0].right == 0
    file.write_text(yaml.safe_dump({"start": [good | change]}))
    with pytest.raises(ValueError, match="start-x"):
        quizzes.read(file)


# --- the pages ----------------------------------------------------------------------------------


def test_the_page_has_a_section_for_each_part():
    page = (quizzes.ROOT / "book/quizzes.md").read_text(encoding="utf-8")
    found = re.findall(r"\(quiz-(\w+)\)=\n## ([^\n]+)\n[^`]*```\{quiz\} (\w+)\n```", page)
    titles = quizzes.titles()
    assert found == [(part, titles[part], part) for part in PARTS]


def test_a_chapter_has_its_questions_below_its_summary():
    asked = {name for part in PARTS.values() for name in (one.chapter for one in part)}
    assert sum(map(len, quizzes.of_chapters().values())) == sum(map(len, PARTS.values()))
    for name, path in quizzes.cards.chapters().items():
        notebook = json.loads(path.read_text(encoding="utf-8"))
        page = chapter.Page(quizzes.cards.page(path), notebook)
        chapter.quiz(page)
        found = [c["source"] for c in page.cells if f"```{{quiz}} {name}\n" in "".join(c["source"])]
        assert [text.startswith("## Summary") for text in found] == [True] * (name in asked), name


# --- the answers --------------------------------------------------------------------------------

NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?(?:/\d+)?")


def numbers(text):
    "The numbers in a choice, each with half a unit of its last digit."
    for found in NUMBER.findall(text):
        plain = found.replace("−", "-").replace(",", "")
        digits = len(plain.partition(".")[2])
        yield float(Fraction(plain)), 1e-6 if "/" in plain else 0.5 * 10**-digits + 1e-9


def holds(question, answer):
    "For each choice that the answer judges, whether it holds."
    if isinstance(answer, dict):
        for beginning, verdict in answer.items():
            texts = [choice.text for choice in question.choices]
            equal = [text for text in texts if text == beginning]
            (text,) = equal or [text for text in texts if text.startswith(beginning)]
            yield texts.index(text), bool(verdict)
        return
    wanted = [float(x) for x in (answer if isinstance(answer, tuple) else (answer,))]
    far = {}
    for place, choice in enumerate(question.choices):
        given = list(numbers(choice.text))
        if len(given) == len(wanted):
            off = [abs(w - g) for w, (g, _) in zip(wanted, given)]
            far[place] = max(off), all(o <= half for o, (_, half) in zip(off, given))
    nearest = min(far, key=far.get)
    for place in range(len(question.choices)):
        yield place, place == nearest and far[place][1]


@answers("start-view")
def _():
    x = torch.arange(2 * 7 * 11).view(2, 7, 11)
    found = x.view(7, 2, 11)[1, 0]
    assert close(x.transpose(0, 1)[1, 0], x[0, 1])
    return {
        "position 2 of": close(found, x[0, 2]),
        "position 1 of": close(found, x[0, 1]),
        "position 0 of": close(found, x[1, 0]),
        "nothing": False,  # it was no error
    }


@answers("start-einsum")
def _():
    return tuple(torch.einsum("btc,bsc->bts", torch.ones(2, 3, 5), torch.ones(2, 7, 5)).shape)


@answers("start-deviation")
def _():
    return (3 * double(40_000, 49)).sum(1).std()  # 0.35 % of noise: 0.07


@answers("start-cross-entropy")
def _():
    return F.cross_entropy(F.one_hot(torch.tensor([3]), 17).double(), torch.tensor([3]))


@answers("start-softmax-gradient")
def _():
    logits = torch.tensor([[0.2, 0.5, 0.3]]).log().requires_grad_()
    F.cross_entropy(logits, torch.tensor([2])).backward()
    return tuple(logits.grad[0])


@answers("start-used-twice")
def _():
    w = torch.ones((), requires_grad=True)
    (3 * w + 5 * w).backward()
    return w.grad


@answers("text-merges")
def _():
    pieces = ["␣", "b", "i", "t", "it", "␣b", "␣bi"]
    merges = [("i", "t"), ("␣", "b"), ("␣b", "i")]
    model = BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges)
    found = Tokenizer(model).encode("␣bit").tokens
    return {
        "␣b and it": found == ["␣b", "it"],
        "␣bi and t": found == ["␣bi", "t"],
        "␣bit alone": found == ["␣bit"],
        "␣, b": found == list("␣bit"),
    }


@answers("text-unseen")
def _():
    tokenizer = BPETokenizer.train(["A man is riding a bike."] * 3, 263)
    ids = tokenizer.encode("漢")
    return {
        "several tokens": len(ids) > 1 and tokenizer.decode(ids) == "漢",
        "the token for": len(ids) == 1,
        "nothing": not ids,
        "an error": False,  # there was none
    }


@answers("text-neighbours")
def _():
    rows = TokenEmbedding(2003, 61).weight.detach()
    cosine = F.cosine_similarity(rows[1:], rows[:-1]).mean()
    longer = (rows[1:].norm(dim=1) > rows[:-1].norm(dim=1)).double().mean()
    return {
        "nothing": abs(cosine) < 0.02 and abs(longer - 0.5) < 0.06,
        "they are close": cosine > 0.02,
        "the second": longer > 0.56,
        "they point": cosine > 0.02,
    }


@answers("text-scale")
def _():
    emb = TokenEmbedding(997, 64)
    assert abs(emb.weight.std() - 0.125) < 0.005
    return emb(torch.arange(997)[None]).detach().std()


@answers("text-tied")
def _():
    emb = TokenEmbedding(101, 13)
    return sum(p.numel() for p in nn.ModuleList([emb, emb.tied_head()]).parameters())


@answers("text-sparse-gradient")
def _():
    emb = TokenEmbedding(11, 7)
    emb(torch.tensor([[3, 5, 3]])).square().sum().backward()
    return (emb.weight.grad != 0).any(1).sum()


@answers("attention-polarity")
def _():
    x = torch.randn(1, 7, 5)
    _, weights = nn.MultiheadAttention(5, 1, batch_first=True)(x, x, x, attn_mask=causal_mask(7))
    seen = weights[0, 0].nonzero().flatten().tolist()
    assert weights[0, -1].isnan().all()
    return {
        "positions 1 to 6": seen == [1, 2, 3, 4, 5, 6],
        "itself alone": seen == [0],
        "nothing": not seen or bool(weights[0, 0].isnan().any()),
        "all seven": len(seen) == 7,
    }


@answers("attention-divisor")
def _():
    q, k, v = double(3, 1, 8, 7, 64)
    theirs = F.scaled_dot_product_attention(q, k, v)
    divisors = (8, 512**0.5, 64, 8**0.5)
    (found,) = (d for d in divisors if close((q @ k.mT / d).softmax(-1) @ v, theirs))
    return found


@answers("attention-axis")
def _():
    return attention_weights(double(1, 1, 3, 11), double(1, 1, 5, 11)).sum()


@answers("attention-mask-after")
def _():
    scores, mask = double(7, 7), causal_mask(7)
    raised = scores.clone().requires_grad_()
    with torch.no_grad():
        raised[0, 6] += 5
    before, after = (s.softmax(-1) * mask for s in (scores, raised))
    after.square().sum().backward()
    return {
        "a hidden score": after[0, 0] < 0.9 * before[0, 0],
        "nothing": close(before, after.detach()),
        "the rows": before.sum(-1).max() > 1 + 1e-9,
        "the gradient": raised.grad.isnan().any(),
    }


@answers("attention-pad")
def _():
    attn, x = MultiHeadAttention(12, 2).double(), double(1, 7, 12)
    keep = torch.tensor([[True] * 4 + [False] * 3])
    alone = attn(x[:, :4])

    def right(mask=None, x=x):
        return close(attn(x, mask=mask)[:, :4], alone)

    both = double(7, 7).masked_fill(~(keep & keep.mT), -math.inf).softmax(-1)
    return {
        "as a key": right(padding_mask(keep)),
        "as a key and": not both.isnan().any(),
        "as a query": right(keep[:, None, :, None]),
        "nowhere": right(x=x * keep[..., None]),
    }


def small_transformer(**sizes):
    config = {"vocab_size": 31, "d_model": 12, "d_ff": 17, "n_heads": 2, "n_layers": 2, **sizes}
    return Transformer(TransformerConfig(**config)).double().eval()


@answers("attention-cross")
def _():
    ids = torch.randint(31, (1, 12))
    model = small_transformer()
    with watch(model) as seen:
        model(ids[:, :7], ids[:, 7:])
    return tuple(seen["decoder.0.cross_attn"].shape[-2:])


@answers("attention-split")
def _():
    B, T, H, D = 2, 3, 5, 7
    names = {"x": double(B, T, H * D), "B": B, "T": T, "H": H, "D": D}
    texts = [choice.text for choice in QUESTIONS["attention-split"].choices]
    found = {text: eval(text.strip("`"), names) for text in texts}
    assert {heads.shape for heads in found.values()} == {(B, H, T, D)}  # shapes tell nothing
    return {text: close(heads, split_heads(names["x"], D)) for text, heads in found.items()}


@answers("attention-step")
def _():
    q, k, v = double(1, 1, 1, 5), double(1, 1, 7, 5), double(1, 1, 7, 5)
    found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return {
        "only the first": close(found, v[..., :1, :]),
        "all seven": close(found, attend(q, k, v, causal=True)),  # bottom right
        "itself alone": close(found, v[..., -1:, :]),
        "nothing": not found.any() or bool(found.isnan().any()),
    }


@answers("attention-groups")
def _():
    v = torch.arange(3.0).view(1, 3, 1, 1).expand(1, 3, 5, 1)  # each head says its number
    return attend(torch.randn(1, 6, 5, 7), torch.randn(1, 3, 5, 7), v)[0, 2, 0, 0]


@answers("attention-cache-bytes")
def _():
    assert cache_bytes(3, 10, 7, 11) == 9240
    return cache_bytes(3, 5, 7, 11)


@answers("position-order")
def _():
    attn, x = MultiHeadAttention(12, 2).double(), double(1, 7, 12)
    order = torch.tensor([0, 4, 2, 3, 1, 5, 6])
    before, after = attn(x), attn(x[:, order])
    same = torch.isclose(before, after).all(-1)[0]
    known = (torch.cdist(after[0], before[0]) < 1e-9).any(1)
    return {
        "the same vectors": close(after, before[:, order]),
        "nothing changes": same.all(),
        "only the two": same.sum() == 5 and not known[[1, 4]].any(),
        "all vectors change": not known.any(),
    }


@answers("position-pairs")
def _():
    x = sinusoids(torch.arange(97), 10, dtype=torch.float64)
    circle = x[:, 6:7].square() + x.square()  # 1 everywhere where both have one angle
    (found,) = (circle - 1).abs().amax(0).lt(1e-9).nonzero().flatten().tolist()
    return found


@answers("position-t5-scale")
def _():
    scale, b = T5Bias(1).scale(64), double(7, 7)
    assert scale == 1
    products = double(7, 7) * 3
    right, wrong = products * scale + b, products / 8 + b

    def heard(scores):
        return (scores - b).std() / b.std()

    return {
        "the words speak": heard(wrong) < heard(right),
        "nothing": close(right.softmax(-1), wrong.softmax(-1)),
        "the position bias": heard(wrong) > heard(right),
        "the weights": not close(wrong.softmax(-1).sum(-1), torch.ones(7).double()),
    }


@answers("position-alibi")
def _():
    none = double(1, 4, 1, 8)
    return ALiBi(4).bias(none, none, distances(torch.tensor([5]), torch.tensor([2])))[0, 0, 0, 0]


def small_llama(**sizes):
    config = {"vocab_size": 31, "d_model": 16, "n_layers": 3, "n_heads": 2, "d_ff": 17, **sizes}
    return Llama(LlamaConfig(**config)).eval()


def turned(run):
    "How many tokens each call of RoPE turned while `run` ran."
    lengths, rotate = [], RoPE.rotate

    def watched(self, x, pos):
        lengths.append(x.shape[2])
        return rotate(self, x, pos)

    with mock.patch.object(RoPE, "rotate", watched):
        run()
    return lengths


@answers("position-rotated")
def _():
    model, ids = small_llama(), torch.randint(31, (1, 7))
    calls = len(turned(lambda: model(ids)))
    return {
        "queries and keys, in every": calls == 2 * 3,
        "the token vectors": calls == 1,
        "queries, keys and values": calls == 3 * 3,
        "queries and keys, in the first": calls == 2,
    }


@answers("position-distance")
def _():
    rope, (q, k) = RoPE(8), double(2, 1, 1, 1, 8)

    def score(t, s):
        return (rope.rotate(q, torch.tensor([t])) * rope.rotate(k, torch.tensor([s]))).sum()

    return {f"at {s}": close(score(23, s), score(9, 4)) for s in (18, 28, 4, 10)}


@answers("position-cached-turn")
def _():
    model, ids = small_llama(n_layers=1), torch.randint(31, (1, 8))
    state = model.start(1, 8)
    model.step(ids[:, :7], state)
    lengths = turned(lambda: model.step(ids[:, 7:], state))
    return {
        "its query and its key": lengths == [1, 1],
        "its query, its key": sum(lengths) == 9,
        "its query alone": lengths == [1],
        "nothing": not lengths,
    }


@answers("position-interpolation")
def _():
    like, every = double(1), torch.arange(512)
    cos, sin = RoPE(8).tables(every, like)
    scaled = RoPE(8, scaling=LinearScaling(4)).tables(torch.tensor([100, 100]), like)
    same = [(torch.isclose(a, b[0]).all(1)) for a, b in zip((cos, sin), scaled)]
    (found,) = (same[0] & same[1]).nonzero().flatten().tolist()
    return found


@answers("position-deberta-scale")
def _():
    return 1 / DisentangledBias(24, 2).scale(12)


@answers("block-layernorm")
def _():
    x = torch.tensor([1.0, 3, 5, 7]).double()
    found = LayerNorm(4).double()(x)[0]
    others = (-3 / x.std(), x[0] / x.square().mean().sqrt(), -3 / x.var(correction=0))
    assert [round(float(other), 2) for other in others] == [-1.16, 0.22, -0.6]
    return found.detach()


@answers("block-norm-axes")
def _():
    x = torch.randn(2, 3, 5)
    out, means, _ = torch.native_layer_norm(x, [5], None, None, 1e-5)
    assert close(LayerNorm(5)(x), out)
    return means.numel()


@answers("block-pre-norm")
def _():
    norm, f = LayerNorm(5).double(), nn.Linear(5, 5).double()
    x, found = double(2, 3, 5), {}
    for choice in QUESTIONS["block-pre-norm"].choices:
        names = {"x": x, "f": f, "norm": norm}
        exec(choice.text.strip("`"), names)
        found[choice.text] = names["x"]
    assert close(found["`x = norm(x + f(x))`"], PostNorm(norm)(x, f))
    return {text: close(y, PreNorm(norm)(x, f)) for text, y in found.items()}


@answers("block-final-norm")
def _():
    pre, post = PreNorm.needs_final_norm, PostNorm.needs_final_norm
    size = {"pre": 0.0, "post": 0.0}
    for name, wiring in (("pre", PreNorm), ("post", PostNorm)):
        x = double(1, 7, 61)
        for _ in range(31):
            x = wiring(LayerNorm(61).double())(x, lambda x: double(1, 7, 61) + 0 * x)
        size[name] = x.std()
    assert size["pre"] > 4 and abs(size["post"] - 1) < 0.1  # it grows, and it does not
    return {
        "pre-norm": pre and not post,
        "post-norm": post and not pre,
        "both": pre and post,
        "neither": not (pre or post),
    }


@answers("block-gated-width")
def _():
    def size(module):
        return sum(p.numel() for p in module.parameters())

    width = gated_width(384)
    plain = size(FeedForward(96, 384, bias=False))
    assert size(GatedFeedForward(96, width, bias=False)) == plain
    assert size(GatedFeedForward(96, 384, bias=False)) == 1.5 * plain
    return width


@answers("block-gelu")
def _():
    return F.gelu(torch.tensor(2.0))


@answers("block-decoder-only")
def _():
    layer = GPT(GPTConfig(vocab_size=31, d_model=12, n_layers=1, n_heads=2)).layers[0]
    crossed = [m for m in layer.modules() if isinstance(m, MultiHeadAttention)][1:]
    return {
        "causal self-attention and": type(layer) is EncoderLayer and layer.attn.causal,
        "causal self-attention, cross": bool(crossed),
        "causal self-attention, attention": bool(crossed),
        "self-attention without": not layer.attn.causal,
    }


@answers("block-init")
def _():
    module = nn.ModuleDict({"q_proj": nn.Linear(5, 5), "o_proj": nn.Linear(5, 5)})
    with mock.patch("torch.nn.init.normal_") as draw:
        gpt2_init(module, 12)
    drawn = [call.kwargs["std"] for call in draw.call_args_list]
    assert max(drawn) == 0.02
    return max(drawn) / min(drawn)


@answers("models-first-loss")
def _():
    ids = torch.randint(65, (17, 32))
    model = GPT(GPTConfig(vocab_size=65, d_model=48, n_layers=2, n_heads=3, max_len=32)).eval()
    total, tokens = cross_entropy(model(ids[:, :-1]), ids[:, 1:])
    assert abs(total / tokens - math.log(65)) < 0.05
    return math.log(65)


@answers("models-shift")
def _():
    names = ["PAD", "BOS", "EOS", "a", "b", "c"]
    batch = collate([([3], [3, 4, 5])], pad_id=0, bos=1, eos=2)
    read, said = (" ".join(names[i] for i in x[0]) for x in (batch.tgt_in, batch.tgt_out))
    texts = [choice.text for choice in QUESTIONS["models-shift"].choices]
    return {text: text == f"it reads {read}, it says {said}" for text in texts}


@answers("models-double-shift")
def _():
    text = "ab" * 50
    once = list(pairwise(text))  # input and target, as the data hands them out
    twice = Counter(zip((i for i, _ in once[:-1]), (t for _, t in once[1:])))
    says = {t for (i, t) in twice if i == "a"}
    return {
        "a": says == {"a"},
        "b": says == {"b"},
        "a and b": says == {"a", "b"},
        "nothing": not says,
    }


@answers("models-memory")
def _():
    model, layers = small_transformer(n_layers=3), []
    src = torch.randint(31, (1, 7))
    hooks = [
        layer.register_forward_hook(lambda *a: layers.append(a[-1])) for layer in model.encoder
    ]
    first = model.decoder[0].cross_attn
    with mock.patch.object(first, "keys_values", wraps=first.keys_values) as read_by:
        model.encode(src)
    for hook in hooks:
        hook.remove()
    ((read,),) = (call.args for call in read_by.call_args_list)
    return {
        "the output of the last": close(read, layers[-1]),
        "the output of the first": close(read, layers[0]),
        "the embedded": close(read, model.embed(src)),
        "the sum": close(read, sum(layers)),
    }


@answers("models-target-padding")
def _():
    model = small_transformer()
    src, tgt = torch.randint(31, (1, 11)), torch.randint(1, 31, (1, 7))
    padded = model(src, F.pad(tgt, (0, 3)))
    same, finite = close(padded[:, :7], model(src, tgt)), padded.isfinite().all()
    last = attention_weights(*double(2, 1, 1, 10, 5), causal=True)[0, 0, -1]  # a PAD that asks
    return {
        "no: a real": same and finite,
        "yes: else the real": not same,
        "yes: else the outputs": not finite,
        "no: the softmax": (last[7:] == 0).all(),
    }


@answers("models-cache")
def _():
    base = {"position": "learned", "norm": "layer", "activation": "gelu", "gated": False}

    def held(**changes):
        model = assemble(AssemblyConfig(vocab_size=31, **{**base, **changes}))
        state = model.start(1, 13)
        model.step(torch.zeros(1, 13, dtype=torch.long), state)
        return sum(cache.k.nbytes + cache.v.nbytes for cache in state.caches)

    before = held()
    return {
        "fewer": held(n_kv_heads=2) < before,
        "RoPE": held(position="rope") < before,
        "RMSNorm": held(norm="rms") < before,
        "SwiGLU": held(activation="silu", gated=True) < before,
    }


@answers("models-bert-loss")
def _():
    ids = torch.randint(97, (64, 61))
    shown, asked = hide(ids, 97)
    hidden, kept = shown == 97, shown == ids
    kinds = (hidden, kept, ~hidden & ~kept)
    return {
        "all that were": all((asked & kind).any() for kind in kinds) and (asked | kept).all(),
        "only those": (asked == hidden).all(),
        "all": asked.all(),
        "those that do not": (asked == ~hidden).all(),
    }


@answers("training-smoothing")
def _():
    logits = torch.zeros(1, 10, requires_grad=True)
    cross_entropy(logits, torch.tensor([3]), smoothing=0.1)[0].backward()
    return 0.1 - logits.grad[0, 3]  # the gradient is p − q


@answers("training-smoothing-pad")
def _():
    logits = torch.linspace(-2, 2, 7, dtype=torch.float64).requires_grad_()
    loss = -0.1 * logits.log_softmax(-1).mean()
    loss.backward()
    p, after = logits.softmax(-1), (logits - logits.grad).softmax(-1)
    assert close(logits.grad, 0.1 * (p - 1 / 7))
    return {
        "at PAD": (after - 1 / 7).abs().sum() < (p - 1 / 7).abs().sum(),
        "nothing": not logits.grad.any(),
        "the model learns": ((after - p) > 0).sum() == 1,  # one token would gain
        "the loss": loss.isnan(),
    }


@answers("training-mean")
def _():
    losses = [(torch.tensor(2.0) * 3, 3), (torch.tensor(4.0) * 7, 7)]
    return mean_loss(nn.Identity(), losses)


@answers("training-padding")
def _():
    return (pad([[1] * n for n in (3, 5, 11)], 0) == 0).double().mean() * 100


@answers("training-warmup")
def _():
    rate = paper_schedule(512)
    left = rate(16_000) / rate(4_000)
    parts = {"one half": 1 / 2, "one quarter": 1 / 4, "one sixteenth": 1 / 16, "the same": 1}
    return {text: math.isclose(left, part) for text, part in parts.items()}


def one_step(make, values, gradients, **options):
    "What one step of an optimiser makes of the weights."
    p = nn.Parameter(torch.tensor(values, dtype=torch.float64))
    p.grad = torch.tensor(gradients, dtype=torch.float64)
    make([p], lr=0.01, betas=(0.9, 0.98), eps=1e-9, **options).step()
    return p.detach()


@answers("training-adam")
def _():
    moved = -one_step(torch.optim.AdamW, [0.0, 0.0], [1000.0, 0.001], weight_decay=0.0)

    def by(*steps):
        return close(moved, torch.tensor(steps, dtype=torch.float64))

    return {
        "both by 0.01": by(0.01, 0.01),
        "by 10": by(10, 0.00001),
        "both by 0.007": by(0.1 / 0.02**0.5 * 0.01, 0.1 / 0.02**0.5 * 0.01),
        "the first": by(0.01, 0.0),
    }


@answers("training-decay")
def _():
    coupled = one_step(torch.optim.Adam, 5.0, 0.0, weight_decay=0.1)
    assert abs(coupled - 4.99) < 1e-6  # what the second choice says of Adam
    return one_step(torch.optim.AdamW, 5.0, 0.0, weight_decay=0.1)


@answers("training-clip")
def _():
    p = nn.Parameter(torch.zeros(2))
    p.grad = torch.tensor([6.0, 8.0])
    nn.utils.clip_grad_norm_([p], 5)
    return tuple(p.grad)


@answers("inference-top-p")
def _():
    p = torch.tensor([0.5, 0.2, 0.15, 0.1, 0.05])
    return keep_top_p(p.log(), 0.6).isfinite().sum()


@answers("inference-temperature")
def _():
    logits = torch.tensor([[0.8, 0.2]]).log().expand(40_000, 2)
    drawn = (next_token(logits, temperature=0.5) == 0).double().mean()
    exact = (logits[0] / 0.5).softmax(-1)[0]
    assert abs(drawn - exact) < 0.006  # 5 deviations of 40,000 draws
    return exact


@answers("inference-order")
def _():
    logits = torch.tensor([[0.9, 0.07, 0.03]]).log().expand(1000, 3)

    def drawn(temperature, **filters):
        return set(next_token(logits, temperature=temperature, **filters).tolist())

    top_p, top_k = (drawn(1, **how) != drawn(2, **how) for how in ({"top_p": 0.85}, {"top_k": 1}))
    return {
        "top-p, but": top_p and not top_k,
        "top-k, but": top_k and not top_p,
        "both": top_p and top_k,
        "neither": not (top_p or top_k),
    }


@answers("inference-length")
def _():
    return -6 / length_penalty(7, 1)


class Tree(nn.Module):
    "A model whose next token depends on the last one alone."

    def __init__(self, rows):
        super().__init__()
        self.log_probs = torch.tensor(rows, dtype=torch.float64).log()

    def start(self, batch_size, max_len, src, src_mask):
        return mock.Mock()

    def step(self, ids, state):
        return self.log_probs[ids]


@answers("inference-beam")
def _():
    # begin, A, B, three words, end
    tree = Tree(
        [
            [0, 0.6, 0.4, 0, 0, 0, 0],
            [0, 0, 0, 0.3, 0.29, 0.28, 0.13],
            [0, 0, 0, 0.9, 0.05, 0.05, 0],
            *[[0, 0, 0, 0, 0, 0, 1]] * 4,
        ]
    )
    src, ends = torch.zeros(1, 1, dtype=torch.long), {"bos": 0, "eos": 6, "max_len": 4}
    found = (beam_search(tree, src, beam=beam, alpha=0, **ends)[0][0] for beam in (1, 2))
    return tuple(math.exp(hypothesis.log_prob) for hypothesis in found)


@answers("inference-bleu")
def _():
    return BLEU().corpus_score(["the the the"], [["the cat"]]).precisions[0] / 100


@answers("inference-signature")
def _():
    said = ["Ein Mann fährt Fahrrad.", "zwei Kinder spielen im Park, und ein Hund sieht zu."]
    meant = ["ein Mann fährt ein Fahrrad.", "Zwei Kinder spielen im Park, und ein Hund sieht zu."]
    lower, mixed = (bleu(said, meant, lowercase=lower).value for lower in (True, False))
    gap = lower - mixed  # one system, one output
    return {
        "nothing": gap > 1.6,
        "the second system": gap < 0.1,
        "the second is better": gap < 1.6,
        "they are equal": gap < 2,
    }


@answers("inference-bits")
def _():
    a = bits_per_byte(3.0, tokens=7, n_bytes=28)
    b = bits_per_byte(2.0, tokens=14, n_bytes=28)
    assert a < b
    return a, b


@answers("inference-speculative")
def _():
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    drafts = {"good": [0.45, 0.35, 0.2], "bad": [0.05, 0.15, 0.8]}
    share, kept, n = {}, {}, 4000
    for name, row in drafts.items():
        q = torch.tensor([row], dtype=torch.float64)
        guesses = torch.multinomial(q[0], n, replacement=True).tolist()
        said = [judge(p.expand(2, 3), q, [guess]) for guess in guesses]
        share[name] = torch.tensor([tokens[0] for tokens in said]).bincount(minlength=3) / n
        kept[name] = sum(len(tokens) == 2 for tokens in said) / n
    off = {name: (found - p).abs().max() for name, found in share.items()}
    exact = max(off.values()) < 0.04  # 5 deviations of 4,000 draws
    fewer = kept["bad"] < kept["good"] - 0.2
    return {
        "the number of calls": exact and fewer,
        "the texts": off["bad"] > 0.04,
        "the distribution moves": off["bad"] > 0.04,
        "nothing": exact and not fewer,
    }


@answers("recipes-validation")
def _():
    # two texts that are equally hard, and a loss that falls
    rows = [{"step": s, "loss": 4 / s, "tokens": 1} for s in range(1, 9)]
    rows[-1]["val_loss"] = rows[-1]["loss"]
    (point,) = learning_curve(rows)
    return {"the training loss": point["val_loss"] < point["train_loss"]}


@answers("recipes-neighbours")
def _():
    model, tgt = small_transformer(), torch.randint(1, 31, (2, 5))
    batch = collate([([5] * 3, [6]), ([7] * 8, [6])], pad_id=0, bos=1, eos=2)
    bare, alone = model(batch.src, tgt), model(batch.src[:1, :4], tgt[:1])
    masked = model(batch.src, tgt, batch.src_mask)
    assert close(masked[:1], alone)
    return {
        "a short": not close(bare[:1], alone),
        "an error": False,  # there was none
        "long": not close(bare[1:], masked[1:]),
        "nothing": close(bare, masked),
    }


@answers("recipes-seed")
def _():
    text, first = torch.arange(997), {}
    order = [TextStream(text, length=7, batch_size=3, seed=5).epoch(0) for _ in range(2)]
    for position in ("rope", "transformer-xl"):
        torch.manual_seed(5)
        model = assemble(AssemblyConfig(vocab_size=7, position=position))
        first[position] = model.layers[-1].attn.q_proj.weight
    text, weights = torch.equal(*order), torch.equal(*first.values())
    return {
        "the order of the text, but": text and not weights,
        "the order of the text and": text and weights,
        "the first weights": weights and not text,
        "nothing": not (text or weights),
    }


@answers("recipes-hidden")
def _():
    never = torch.ones(100_000, dtype=torch.bool)
    for _ in range(10):
        never &= ~hide(torch.zeros(1, 100_000, dtype=torch.long), 7)[1][0]
    assert abs(never.double().mean() - 0.85**10) < 0.007
    return 0.85**10 * 100


@answers("recipes-prolong")
def _():
    short, long = cosine(0.01, 5, 1500), cosine(0.01, 5, 3000)
    assert inverse_sqrt(0.01, 5)(1000) == inverse_sqrt(0.01, 5)(1000)
    return {
        "a training of 3,000": short(1000) < 0.9 * long(1000),
        "it is forbidden": short(1500) == 0,
    }


def grid(**losses):
    "Rows of a grid: a loss for each entry and rate, one seed."
    return [
        {"entry": entry, "rate": rate, "seed": 0, "val_loss": loss}
        for entry, row in losses.items()
        for rate, loss in row.items()
    ]


@answers("results-own-rate")
def _():
    # two parts whose best rates differ
    rows = grid(a={0.001: 1.6, 0.003: 1.5, 0.01: 1.7}, b={0.003: 1.6, 0.01: 1.4, 0.03: 1.7})
    best = {entry: tuned.losses[0] for entry, tuned in at_best_rate(rows).items()}
    shared = {row["entry"]: row["val_loss"] for row in rows if row["rate"] == 0.003}
    turned = (best["a"] < best["b"]) != (shared["a"] < shared["b"])
    return {"a part may lose": turned, "it does not": not turned}


@answers("results-edge")
def _():
    found = at_best_rate(grid(a={0.001: 1.8, 0.003: 1.6, 0.01: 1.5}))["a"]
    assert found.rate == 0.01
    return {"the grid": not found.inside, "0.01 is": found.inside}


@answers("results-paired")
def _():
    a, b = [1.70, 1.80, 1.90], [1.68, 1.77, 1.88]
    gap, other = paired(a, b), paired(a, [1.60, 1.85, 1.88])
    assert math.isclose(gap.mean, 0.07 / 3) and round(gap.mean / gap.error) == 7
    assert other.mean > 0  # a lower mean, and no separation
    return {
        "yes: the differences": gap.separated,
        "no: each varies": not gap.separated,
        "no: three seeds": not gap.separated,
        "yes: its mean": other.separated,
    }


def differences(mean, error):
    "Three paired differences with this mean and standard error."
    return [mean - error * 3**0.5, mean, mean + error * 3**0.5]


def half_width(error):
    "The largest mean that `paired` does not separate from 0."
    low, high = 0.0, 100 * error
    for _ in range(50):
        middle = (low + high) / 2
        apart = paired(differences(middle, error), [0.0] * 3).separated
        low, high = (low, middle) if apart else (middle, high)
    return low


@answers("results-not-separated")
def _():
    gap, half = paired(differences(0.020, 0.010), [0.0] * 3), half_width(0.010)
    assert math.isclose(gap.mean, 0.020) and math.isclose(gap.error, 0.010)
    low, high = gap.mean - half, gap.mean + half
    assert round(half, 3) == 0.043 and high > 0.06
    return {
        "these seeds": not gap.separated and low < 0 < high,
        "the two are": max(-low, high) < 0.01,
        "A is": low > 0,
        "the difference is": gap.separated,
    }


@answers("results-interval")
def _():
    return -0.030 - half_width(0.005), -0.030 + half_width(0.005)


@answers("results-many")
def _():
    drawn = torch.randn(4000, 2, 3).tolist()
    share = sum(paired(a, b).separated for a, b in drawn) / 4000
    assert abs(share - 0.05) < 0.017  # 5 deviations of 4,000 draws
    return 0.05 * math.comb(8, 2)


@functools.cache
def computed(name):
    return ANSWERS[name]()


def agrees(name, question):
    "Whether the program judges the right answer, and all that it judges, as the question does."
    found = dict(holds(question, computed(name)))
    return question.right in found and all(v == (p == question.right) for p, v in found.items())


@pytest.mark.parametrize("name", ANSWERS)
def test_the_program_says_the_same_and_of_no_other_choice(name):
    question = QUESTIONS[name]
    assert agrees(name, question), dict(holds(question, computed(name)))
    for rival in set(range(4)) - {question.right}:
        moved = (replace(c, right=place == rival) for place, c in enumerate(question.choices))
        assert not agrees(name, replace(question, choices=tuple(moved)))


def test_every_question_is_computed_or_says_why_not():
    assert set(ANSWERS) | set(NOT_COMPUTED) == set(QUESTIONS)
    assert not set(ANSWERS) & set(NOT_COMPUTED)
    for found in PARTS.values():
        assert sum(question.id in ANSWERS for question in found) >= 2
