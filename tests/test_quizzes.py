"""The quizzes ask what can be settled: each right answer is computed here, with its rivals.

An answer runs the package or torch. It is a number, several numbers, or for the beginnings of
choices whether they hold. Were another choice marked as right, the comparison would fail.
"""

import math
import re
from collections import Counter
from functools import reduce
from itertools import accumulate, pairwise, product
from random import Random
from unittest import mock

import pytest
import quizzes
import torch
import torch.nn.functional as F
from sacrebleu.metrics import BLEU
from tokenizers import Tokenizer
from tokenizers.models import BPE
from torch import nn, randn, tensor

import transformer_lit as lit
from transformer_lit.assistant.instructions import (
    answer_mask,
    pack,
    same_document,
    token_logp,
)
from transformer_lit.assistant.judging import pass_at_k
from transformer_lit.assistant.leash import kl
from transformer_lit.assistant.lora import LoRALinear
from transformer_lit.assistant.preferences import dpo_loss
from transformer_lit.assistant.reward import advantages, policy_loss
from transformer_lit.attention.grouped import cache_bytes
from transformer_lit.attention.multihead import split_heads
from transformer_lit.block.feedforward import gated_width
from transformer_lit.block.init import gpt2_init
from transformer_lit.course.records import Paired, at_best_rate, paired
from transformer_lit.inference.beam import length_penalty
from transformer_lit.inference.speculative import judge
from transformer_lit.position.scaling import LinearScaling
from transformer_lit.recipes.encoder_decoder import corrupt_spans, minimum_bayes_risk
from transformer_lit.recipes.masked import hide
from transformer_lit.training.data import pad
from transformer_lit.training.run import learning_curve
from transformer_lit.training.trainer import mean_loss

PARTS = quizzes.read()
QUESTIONS = {question.id: question for part in PARTS.values() for question in part}
NOT_COMPUTED = {
    "text-word-vectors": "it is about what four trainings keep",
    "models-path": "it follows from the definition of a recurrence",
    "recipes-two-perplexities": "it is about what two numbers mean",
    "results-context": "its chapter asserts it on records",
}


@pytest.fixture(autouse=True)
def doubles():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# --- the form -----------------------------------------------------------------------------------


def faults(part, question):
    "What is wrong with the form of a question."
    right, whys = Counter(c.right for c in question.choices), {c.why for c in question.choices}
    texts = {choice.text.strip().lower() for choice in question.choices}
    if not re.fullmatch(rf"{part}-[a-z0-9-]+", question.id):
        yield f"{question.id} does not begin with its part, {part}"
    if (right[True], len(texts), len(whys)) != (1, 4, 4):
        yield f"{question.id} needs four different choices, one of them right, and four reasons"
    path = quizzes.cards.chapters().get(question.chapter)
    if path is None or path.parent.name != part:
        yield f"{question.id} names {question.chapter}, no chapter of its part"
    elif question.level not in ("core", "extra")[quizzes.cards.card(path)["pass"] - 1 :]:
        yield f"{question.id} is {question.level!r}; of the second pass all are extra"


def test_questions_are_well_formed_and_neither_place_nor_length_gives_them_away():
    every = [(part, question) for part, found in PARTS.items() for question in found]
    assert [fault for one in every for fault in faults(*one)] == []
    assert len(every) == len(QUESTIONS) and min(map(len, PARTS.values())) >= 5
    parts = list(quizzes.titles())
    assert list(PARTS) == parts[: parts.index("results") + 1]  # all that teach
    places = Counter(question.right for question in QUESTIONS.values())
    assert len(places) == 4 and max(places.values()) - min(places.values()) <= 2
    longest = [max(q.choices, key=lambda one: len(one.text)).right for _, q in every]
    assert sum(longest) / len(longest) < 0.35  # by chance a quarter


# --- what several answers need ------------------------------------------------------------------


def close(a, b):
    return a.shape == b.shape and torch.allclose(a, b)


def equal(found, rivals):
    "Which of the rivals was found."
    return {text: close(found, rival) for text, rival in rivals.items()}


def texts(name):
    return [choice.text for choice in QUESTIONS[name].choices]


SIZES = {"vocab_size": 31, "d_model": 16, "n_heads": 2}


def small(model, config, n_layers=3, **sizes):
    return model(config(**SIZES, n_layers=n_layers, **sizes)).eval()


def turned(run):
    "How many tokens each call of RoPE turned while `run` ran."
    rotate = lit.RoPE.rotate
    with mock.patch.object(lit.RoPE, "rotate", autospec=True, side_effect=rotate) as calls:
        run()
    return [call.args[1].shape[2] for call in calls.call_args_list]


def one_step(make, values, gradients, **options):
    "What one step of an optimiser makes of the weights."
    p = nn.Parameter(tensor(values))
    p.grad = tensor(gradients)
    make([p], lr=0.01, betas=(0.9, 0.98), eps=1e-9, **options).step()
    return p.detach()


def gradient(loss, leaf, *others):
    return torch.autograd.grad(loss(leaf.requires_grad_(), *others), leaf)[0]


def size(module):
    return sum(p.numel() for p in module.parameters())


def drawn(p, **filters):
    "Many tokens from a distribution."
    return lit.next_token(tensor(p).log().expand(100_000, len(p)), **filters)


def every_group(p, size, **how):
    "All groups of right and wrong answers: their rewards, their chance, their advantages."
    for group in product((0.0, 1.0), repeat=size):
        chance = math.prod(p if right else 1 - p for right in group)
        yield tensor(group), chance, advantages(tensor(group), group_size=size, **how)


def rows(grid):
    "Rows of a grid: a loss for each entry and rate, one seed."
    pairs = [(entry, *pair) for entry, losses in grid.items() for pair in losses.items()]
    return [{"entry": e, "rate": rate, "seed": 0, "val_loss": loss} for e, rate, loss in pairs]


# --- the answers that are one expression --------------------------------------------------------

LOGITS, TABLE, X = tensor([[0.2, 0.5, 0.3]]).log(), randn(11, 7), randn(2, 3, 5)
ANSWERS = {
    "start-einsum": lambda: torch.einsum("btc,bsc->bts", randn(2, 3, 5), randn(2, 7, 5)).shape,
    "start-deviation": lambda: (3 * randn(40_000, 49)).sum(1).std(),  # 0.35 % of noise: 0.07
    "start-cross-entropy": lambda: F.cross_entropy(torch.eye(17)[3:4], tensor([3])),
    "start-softmax-gradient": lambda: gradient(F.cross_entropy, LOGITS, tensor([2])),
    "start-used-twice": lambda: gradient(lambda w: 3 * w + 5 * w, randn(())),
    "text-scale": lambda: lit.TokenEmbedding(997, 64)(torch.arange(997)[None]).detach().std(),
    "text-tied": lambda: size(nn.ModuleList([e := lit.TokenEmbedding(101, 13), e.tied_head()])),
    "text-sparse-gradient": lambda: gradient(lambda w: w[[3, 5, 3]].sum(), TABLE).any(1).sum(),
    "attention-axis": lambda: lit.attention_weights(randn(1, 1, 3, 11), randn(1, 1, 5, 11)).sum(),
    "attention-groups": lambda: lit.attend(  # each head of values says its number
        randn(1, 6, 5, 7), randn(1, 3, 5, 7), torch.arange(3.0).view(1, 3, 1, 1).expand(1, 3, 5, 1)
    )[0, 2, 0, 0],
    "attention-cache-bytes": lambda: cache_bytes(3, 5, 7, 11),
    "position-alibi": lambda: lit.ALiBi(4).bias(*randn(2, 1, 4, 1, 8), tensor([[[[3]]]]))[0, 0],
    "position-deberta-scale": lambda: 1 / lit.DisentangledBias(24, 2).scale(12),
    "block-layernorm": lambda: lit.LayerNorm(4)(tensor([1.0, 3, 5, 7])).detach()[0],
    "block-norm-axes": lambda: torch.native_layer_norm(X, [5], None, None, 0)[1].numel(),
    "block-gelu": lambda: F.gelu(tensor(2.0)),
    "training-smoothing": lambda: (
        0.1
        - gradient(  # which is p − q
            lambda z: lit.cross_entropy(z, tensor([3]), smoothing=0.1)[0], torch.zeros(1, 10)
        )[0, 3]
    ),
    "training-mean": lambda: mean_loss(nn.Identity(), [(tensor(2.0) * 3, 3), (tensor(4.0) * 7, 7)]),
    "training-padding": lambda: 100 * (pad([[1] * n for n in (3, 5, 11)], 0) == 0).double().mean(),
    "training-decay": lambda: one_step(torch.optim.AdamW, 5.0, 0.0, weight_decay=0.1),
    "training-warmup": lambda: {
        "one half": math.isclose(*(2**n * lit.paper_schedule(512)(4000 * 4**n) for n in (0, 1)))
    },
    "inference-top-p": lambda: len(drawn([0.5, 0.2, 0.15, 0.1, 0.05], top_p=0.6).unique()),
    "inference-temperature": lambda: 1 - drawn([0.8, 0.2], temperature=0.5).double().mean(),
    "inference-length": lambda: -6 / length_penalty(7, 1),
    "inference-bleu": lambda: (
        BLEU().corpus_score(["the the the"], [["the cat"]]).precisions[0] / 100
    ),
    "inference-bits": lambda: [
        lit.bits_per_byte(nats, tokens=n, n_bytes=28) for nats, n in ((3.0, 7), (2.0, 14))
    ],
    "assistant-no-signal": lambda: (
        100 * sum(chance for _, chance, better in every_group(0.1, 8) if not better.any())
    ),
    "assistant-group-mean": lambda: [
        advantages(tensor([1.0, 0, 0, 0]), group_size=4, baseline=baseline)[0]
        for baseline in ("mean", "leave_one_out")
    ],
    "assistant-packed": lambda: (
        same_document(pack([[1] * n for n in (5, 3, 2)], 12)[1]).tril()[0, 0, :10].sum()
    ),
    "assistant-lora-memory": lambda: sum(
        (16 if x.requires_grad else 4) * x.numel() / 1e6
        for x in LoRALinear(nn.Linear(576, 576, bias=False), rank=8, alpha=8.0).parameters()
    ),
    "assistant-subsets": lambda: pass_at_k(4, 1, 2),
    "results-interval": lambda: [-0.030 + sign * Paired(-0.030, 0.005, 3).half for sign in (-1, 1)],
}


# --- those that are more than one, by the names of their questions ------------------------------


def start_view():
    x = torch.arange(2 * 7 * 11).view(2, 7, 11)
    rivals = {"position 1": x.transpose(0, 1)[1, 0], "position 2": x[0, 2], "position 0": x[1, 0]}
    return equal(x.view(7, 2, 11)[1, 0], rivals)


def text_merges():
    pieces = {piece: i for i, piece in enumerate(["␣", "b", "i", "t", "it", "␣b", "␣bi"])}
    model = BPE(vocab=pieces, merges=[("i", "t"), ("␣", "b"), ("␣b", "i")])
    found = Tokenizer(model).encode("␣bit").tokens
    return {text: found == re.split(", | and ", text) for text in texts("text-merges")}


def text_unseen():
    tokenizer = lit.BPETokenizer.train(["A man is riding a bike."] * 3, 263)
    ids = tokenizer.encode("漢")
    return {"several tokens": len(ids) > 1 and tokenizer.decode(ids) == "漢"}


def text_neighbours():
    rows = lit.TokenEmbedding(2003, 61).weight.detach()
    alike = F.cosine_similarity(rows[1:], rows[:-1]).mean()
    longer = (rows[1:].norm(dim=1) > rows[:-1].norm(dim=1)).double().mean()
    return {"nothing": abs(alike) < 0.02 and abs(longer - 0.5) < 0.06}


def attention_polarity():
    x, attn = randn(1, 7, 5), nn.MultiheadAttention(5, 1, batch_first=True)
    weights = attn(x, x, x, attn_mask=lit.causal_mask(7))[1][0, 0]
    return {"positions 1 to 6": weights.nonzero().flatten().tolist() == [*range(1, 7)]}


def attention_divisor():
    q, k, v = randn(3, 1, 8, 7, 64)
    theirs = F.scaled_dot_product_attention(q, k, v)
    divisors = (8, 512**0.5, 64, 8**0.5)
    return [d for d in divisors if close((q @ k.mT / d).softmax(-1) @ v, theirs)]


def attention_mask_after():
    scores, mask = randn(7, 7), lit.causal_mask(7)
    raised = scores + 5 * (torch.arange(7) == 6)  # a key that only the last query may see
    before, after = (s.softmax(-1) * mask for s in (scores, raised))
    slope = gradient(lambda a: (a.softmax(-1) * mask).square().sum(), raised)
    changed, above = after[0, 0] < 0.9 * before[0, 0], before.sum(-1).max() > 1 + 1e-9
    return {"a masked score": changed, "the rows": above, "the gradient": slope.isnan().any()}


def attention_pad():
    attn, x = lit.MultiHeadAttention(12, 2), randn(1, 7, 12)
    keep = tensor([[True] * 4 + [False] * 3])
    masks = {"as a key": lit.padding_mask(keep), "as a query": keep[:, None, :, None]}
    outputs = {text: attn(x, mask=mask) for text, mask in masks.items()}
    outputs["nowhere"] = attn(x * keep[..., None])
    both = randn(7, 7).masked_fill(~(keep & keep.mT), -math.inf).softmax(-1)
    right = {text: close(out[:, :4], attn(x[:, :4])) for text, out in outputs.items()}
    return right | {"as a key and": not both.isnan().any()}


def attention_cross():
    model, ids = small(lit.Transformer, lit.TransformerConfig), torch.randint(31, (1, 12))
    with lit.watch(model) as seen:
        model(ids[:, :7], ids[:, 7:])
    return seen["decoder.0.cross_attn"].shape[-2:]


def attention_split():
    B, T, H, D = 2, 3, 5, 7
    names = {"x": randn(B, T, H * D), "B": B, "T": T, "H": H, "D": D}
    found = {text: eval(text.strip("`"), names) for text in texts("attention-split")}
    assert {heads.shape for heads in found.values()} == {(B, H, T, D)}  # shapes tell nothing
    return equal(split_heads(names["x"], D), found)


def attention_step():
    q, k, v = randn(1, 1, 1, 5), *randn(2, 1, 1, 7, 5)
    bottom_right = lit.attend(q, k, v, causal=True)
    rivals = {"only the first": v[:, :, :1], "all seven": bottom_right, "itself": v[:, :, -1:]}
    rivals["nothing"] = torch.zeros_like(q)
    return equal(F.scaled_dot_product_attention(q, k, v, is_causal=True), rivals)


def position_order():
    attn, x, order = lit.MultiHeadAttention(12, 2), randn(1, 7, 12), tensor([0, 4, 2, 3, 1, 5, 6])
    before, after = attn(x), attn(x[:, order])
    return {"the same": close(after, before[:, order]), "nothing changes": close(after, before)}


def position_pairs():
    x = lit.Sinusoidal(10)(torch.arange(97))
    circle = x[:, 6:7].square() + x.square()  # 1 everywhere where both have one angle
    return (circle - 1).abs().amax(0).lt(1e-9).nonzero().flatten()


def position_t5_scale():
    products, bias = 3 * randn(7, 7), randn(7, 7)
    right, wrong = (x + bias for x in (lit.T5Bias(1).scale(64) * products, products / 8))
    softer = (wrong - bias).std() < (right - bias).std()
    return {"the words count": softer, "nothing": close(right.softmax(-1), wrong.softmax(-1))}


def position_rotated():
    model = small(lit.Llama, lit.LlamaConfig)
    calls = turned(lambda: model(torch.randint(31, (1, 7))))
    return {"queries and keys, in every": calls == [7] * 2 * 3}


def position_distance():
    q, k = randn(2, 1, 1, 1, 8)

    def score(t, s):
        return (lit.RoPE(8).rotate(q, tensor([t])) * lit.RoPE(8).rotate(k, tensor([s]))).sum()

    return {f"at {s}": close(score(23, s), score(9, 4)) for s in (18, 28, 4, 10)}


def position_cached_turn():
    model, ids = small(lit.Llama, lit.LlamaConfig, n_layers=1), torch.randint(31, (1, 8))
    state = model.start(1, 8)
    model.step(ids[:, :7], state)
    return {"its query and its key": turned(lambda: model.step(ids[:, 7:], state)) == [1, 1]}


def position_interpolation():
    like = randn(1)
    plain = torch.stack(lit.RoPE(8).tables(torch.arange(512), like))
    scaled = torch.stack(lit.RoPE(8, scaling=LinearScaling(4)).tables(tensor([100, 100]), like))
    return torch.isclose(plain, scaled[:, :1]).all(-1).all(0).nonzero()


def block_pre_norm():
    names = {"norm": lit.LayerNorm(5), "f": nn.Linear(5, 5), "x": randn(2, 3, 5)}
    written = {text: text.strip("`").removeprefix("x = ") for text in texts("block-pre-norm")}
    found = {text: eval(line, names) for text, line in written.items()}
    norm, f, x = (names[name] for name in ("norm", "f", "x"))
    assert close(found["`x = norm(x + f(x))`"], lit.PostNorm(norm)(x, f))
    return equal(lit.PreNorm(norm)(x, f), found)


def block_final_norm():
    def spread(wiring):
        layers = [wiring(lit.LayerNorm(61)) for _ in range(31)]
        return reduce(lambda x, layer: layer(x, torch.randn_like), layers, randn(1, 7, 61)).std()

    needs = lit.PreNorm.needs_final_norm and not lit.PostNorm.needs_final_norm
    return {"pre-norm": needs and spread(lit.PreNorm) > 4 > 1.1 > spread(lit.PostNorm)}


def block_gated_width():
    gated = lit.GatedFeedForward(96, gated_width(384), bias=False)
    assert size(gated) == size(lit.FeedForward(96, 384, bias=False))
    return gated_width(384)


def block_decoder_only():
    layer = small(lit.GPT, lit.GPTConfig).layers[0]
    (attn, *crossed) = (m for m in layer.modules() if isinstance(m, lit.MultiHeadAttention))
    return {"causal self-attention and": attn.causal and not crossed}


def block_init():
    module = nn.ModuleDict({name: nn.Linear(5, 5) for name in ("q_proj", "o_proj")})
    with mock.patch("torch.nn.init.normal_") as draw:
        gpt2_init(module, 12)
    low, high = sorted(call.kwargs["std"] for call in draw.call_args_list)
    return {f"{high / low:.2f}": high == 0.02}


def models_first_loss():
    ids = torch.randint(31, (17, 32))
    total, tokens = lit.cross_entropy(small(lit.GPT, lit.GPTConfig)(ids[:, :-1]), ids[:, 1:])
    assert abs(total / tokens - math.log(31)) < 0.05  # as of a model that knows nothing
    return math.log(65)


def models_shift():
    names = ["PAD", "BOS", "EOS", "a", "b", "c"]
    batch = lit.collate([([3], [3, 4, 5])], pad_id=0, bos=1, eos=2)
    read, said = (" ".join(names[i] for i in x[0]) for x in (batch.tgt_in, batch.tgt_out))
    return {text: text == f"it reads {read} and predicts {said}" for text in texts("models-shift")}


def models_double_shift():
    once = pairwise("ab" * 50)  # input and target, as the data hands them out
    twice = {(read, target) for (read, _), (_, target) in pairwise(once)}
    return {"a": twice == {("a", "a"), ("b", "b")}}


def models_memory():
    model, src = small(lit.Transformer, lit.TransformerConfig), torch.randint(31, (1, 7))
    first = model.decoder[0].cross_attn
    with mock.patch.object(first, "keys_values", wraps=first.keys_values) as read_by:
        model.encode(src)
    layers = [*accumulate(model.encoder, lambda x, layer: layer(x), initial=model.embed(src))]
    rivals = {"the embedded": layers[0], "the output of the first": layers[1]}
    rivals |= {"the output of the last": layers[-1], "the sum": sum(layers[1:])}
    return equal(read_by.call_args.args[0], rivals)


def models_target_padding():
    model = small(lit.Transformer, lit.TransformerConfig)
    src, tgt = torch.randint(31, (1, 11)), torch.randint(1, 31, (1, 7))
    padded = model(src, F.pad(tgt, (0, 3)))
    right = close(padded[:, :7], model(src, tgt)) and padded.isfinite().all()
    asks = lit.attention_weights(*randn(2, 1, 1, 10, 5), causal=True)[0, 0, -1]  # a PAD
    return {"no: a real": right, "no: the softmax": not asks[7:].any()}


def models_cache():
    base = {"position": "learned", "norm": "layer", "activation": "gelu", "gated": False}
    steps = {"fewer": {"n_kv_heads": 2}, "RoPE": {"position": "rope"}, "RMSNorm": {"norm": "rms"}}
    steps |= {"SwiGLU": {"activation": "silu", "gated": True}, "none": {}}
    held = {}
    for text, step in steps.items():
        model = lit.assemble(lit.AssemblyConfig(vocab_size=31, **{**base, **step}))
        model.step(torch.zeros(1, 13, dtype=torch.long), state := model.start(1, 13))
        held[text] = sum(cache.k.nbytes + cache.v.nbytes for cache in state.caches)
    return {text: held[text] < held["none"] for text in [*steps][:4]}


def models_bert_loss():
    shown, asked = hide(ids := torch.randint(97, (64, 61)), 97)
    hidden, kept = shown == 97, shown == ids
    every = all((asked & kind).any() for kind in (hidden, kept, ~hidden & ~kept))
    return {"all positions that were": every and (asked | kept).all(), "all": asked.all()}


def training_smoothing_pad():
    logits = torch.linspace(-2, 2, 7)
    slope = gradient(lambda z: -0.1 * z.log_softmax(-1).mean(), logits)
    p, after = logits.softmax(-1), (logits - slope).softmax(-1)
    flatter = (after - 1 / 7).abs().sum() < (p - 1 / 7).abs().sum()
    return {"at PAD": flatter, "the model learns": (after > p).sum() == 1}  # one token would gain


def training_adam():
    moved = -one_step(torch.optim.AdamW, [0.0, 0.0], [1000.0, 0.001], weight_decay=0.0)
    rivals = {"both by 0.01": [0.01, 0.01], "by 10": [10, 0.00001], "the first": [0.01, 0.0]}
    rivals["both by 0.007"] = [0.1 / 0.02**0.5 * 0.01] * 2  # the means without their correction
    return equal(moved, {text: tensor(rival) for text, rival in rivals.items()})


def training_clip():
    p = nn.Parameter(torch.zeros(2))
    p.grad = tensor([6.0, 8.0])
    nn.utils.clip_grad_norm_(p, 5)
    return p.grad


def inference_order():
    def moves(**filters):
        kept = (drawn([0.9, 0.07, 0.03], temperature=t, **filters).unique() for t in (1, 2))
        return len({len(tokens) for tokens in kept}) > 1

    return {"top-p, but": moves(top_p=0.85) and not moves(top_k=1)}


class Tree(nn.Module):
    "A model whose next token depends on the last one alone: begin, A, B, three words, end."

    def start(self, batch_size, max_len, src, src_mask):
        return mock.Mock()

    def step(self, ids, state):
        a, b, end = [0, 0, 0, 0.3, 0.29, 0.28, 0.13], [0, 0, 0, 0.9, 0.05, 0.05, 0], [0] * 6 + [1]
        return tensor([[0, 0.6, 0.4, 0, 0, 0, 0], a, b, *[end] * 4]).log()[ids]


def inference_beam():
    src, ends = torch.zeros(1, 1, dtype=torch.long), {"bos": 0, "eos": 6, "max_len": 4}
    found = (lit.beam_search(Tree(), src, beam=beam, alpha=0, **ends)[0][0] for beam in (1, 2))
    return [math.exp(hypothesis.log_prob) for hypothesis in found]


def inference_signature():
    said = ["Ein Mann fährt Fahrrad.", "zwei Kinder spielen im Park, und ein Hund sieht zu."]
    meant = ["ein Mann fährt ein Fahrrad.", "Zwei Kinder spielen im Park, und ein Hund sieht zu."]
    lower, mixed = (lit.bleu(said, meant, lowercase=lower).value for lower in (True, False))
    return {"nothing": lower - mixed > 2}  # one system, one output


def inference_speculative():
    p, n, kept = tensor([0.5, 0.3, 0.2]), 4000, []
    for q in (tensor([0.45, 0.35, 0.2]), tensor([0.05, 0.15, 0.8])):
        guesses = torch.multinomial(q, n, replacement=True).tolist()
        said = [judge(p.expand(2, 3), q[None], [guess]) for guess in guesses]
        share = tensor([tokens[0] for tokens in said]).bincount(minlength=3) / n
        assert (share - p).abs().max() < 0.04  # the same distribution: 5 deviations of 4,000 draws
        kept.append(sum(len(tokens) == 2 for tokens in said) / n)
    return {"the number": kept[1] < kept[0] - 0.2}


def assistant_zero_loss():
    logp, better = randn(4, 5).requires_grad_(), advantages(tensor([1.0, 0, 0, 1]), group_size=4)
    loss = policy_loss(logp, logp, better, torch.arange(5).expand(4, 5) > 1)
    slope = gradient(lambda x: policy_loss(x, logp, better, torch.arange(5).expand(4, 5) > 1), logp)
    pushed = slope[:, 2:].mean(1) < 0  # up, by a step down the slope
    return {
        "it teaches": loss.abs() < 1e-12 and slope.abs().max() > 0.01,
        "it does nothing": not slope.any(),
        "it only lowers": not pushed.any(),
        "it makes all": pushed.all(),
    }


def assistant_deviation():
    def weight(p, **how):
        "Of a question: its expected gradient, as a share of that of p."
        slope = [
            (r / p - (1 - r) / (1 - p)) @ better * chance / 2
            for r, chance, better in every_group(p, 2, **how)
        ]
        return sum(slope)

    more = [weight(p, scale="std") / weight(p) for p in (0.01, 0.5, 0.99)]
    return {
        "none": max(more) - min(more) < 1e-9,
        "those that are hardly": more[0] > more[1] + 1e-9,
        "those that are right half": more[1] > more[0] + 1e-9,
        "those that are nearly": more[2] > more[1] + 1e-9,
    }


def assistant_cut():
    mask = (torch.arange(18) > 0) & (torch.arange(18) <= tensor([3, 9, 4, 17])[:, None])
    logp, old, better = randn(4, 18), randn(4, 18), tensor([1.0, -1, 1, -1])
    depends = []
    for normaliser in ("sequence", 40, "token"):
        halves = [
            sum(
                policy_loss(logp[i], old[i], better[i], mask[i], normaliser=normaliser) for i in cut
            )
            for cut in ([[0, 1], [2, 3]], [[0, 3], [1, 2]])
        ]
        depends.append(not math.isclose(*halves))
    return dict(zip(texts("assistant-cut"), [*depends, not any(depends)], strict=True))


def assistant_shift():
    ids, roles = torch.randint(5, (1, 12)), tensor([0] * 9 + [1] * 3)
    counts = answer_mask(ids[0], roles)
    slope = gradient(lambda z: token_logp(z, ids)[0, counts].sum(), randn(1, 12, 5))
    found = slope[0].abs().sum(-1).nonzero().flatten().tolist()
    rivals = {"9, 10": [9, 10, 11], "0 to 11": [*range(12)], "9 and": [9, 10], "8, 9": [8, 9, 10]}
    return {text: found == rival for text, rival in rivals.items()}


def assistant_lora_start():
    layer = LoRALinear(nn.Linear(5, 7), rank=2, alpha=2.0)
    layer(randn(3, 5)).square().sum().backward()
    A, B = (x.grad.abs().sum() > 0 for x in (layer.A, layer.B))
    return {"both": A & B, "neither": ~A & ~B, "only B": B & ~A, "only A": A & ~B}


def assistant_both_orders():
    def wins(better, first=0.0, longer=0.0):
        "The share of wins of the first of two answers, shown in both orders."
        places = tensor([better + longer + first, better + longer - first])
        return places.sigmoid().mean()

    gone = [wins(-0.2, first=3.0) < 0.5 < wins(0.2, first=3.0), wins(-0.2, longer=3.0) < 0.5]
    return {
        "only the one for the first": gone == [True, False],
        "only the one for longer": gone == [False, True],
        "both": all(gone),
        "neither": not any(gone),
    }


def assistant_no_pull():
    theta, ref = randn(7), randn(7).log_softmax(-1)
    pi = theta.softmax(-1)

    def pulls(kind):
        "Whether the mean over the model's own samples has a gradient."
        slope = gradient(lambda x: (pi * kl(x.log_softmax(-1), ref, kind=kind)).sum(), theta)
        return slope.abs().max() > 1e-6

    k1, k2, k3 = map(pulls, ("k1", "k2", "k3"))
    return {"log π": not k1, "½": not k2, "ref/π": not k3, "none": k1 and k2 and k3}


def assistant_clip():
    logp = tensor([[1.0, 1.3]]).log()
    bad, mask = tensor([-1.0]), tensor([[False, True]])
    slope = gradient(
        lambda x: policy_loss(x, torch.zeros(1, 2), bad, mask, clip=0.2, normaliser=1), logp
    )[0, 1]
    step = -slope
    return {
        "it has no gradient": step == 0,
        "it is made more": step > 0,
        "it is made less": step < 0,
    }


def assistant_beta():
    logp = torch.zeros(2)  # climbs the reward less the penalty, instead of using the formula
    for _ in range(500):
        slope = gradient(
            lambda x: x.softmax(0)[0] - 0.5 * (x.softmax(0) * (2 * x.softmax(0)).log()).sum(),
            logp.detach(),
        )
        logp = logp.detach() + slope
    return logp.softmax(0)[0]


def assistant_both_fall():
    changes = {
        "chosen to −1": (-1, -3),
        "chosen to −0.5": (-0.5, -2),
        "chosen to −4": (-4, -7),
        "chosen to −0.1": (-0.1, -0.1),
    }
    ref = tensor([-2.0])
    loss = {
        name: dpo_loss(tensor([float(c)]), tensor([float(j)]), ref, ref, beta=0.1)
        for name, (c, j) in changes.items()
    }
    return {name: one == min(loss.values()) for name, one in loss.items()}


def recipes_validation():
    rows = [{"step": s, "loss": 4 / s, "tokens": 1} for s in range(1, 9)]  # a loss that falls
    (point,) = learning_curve([*rows[:-1], {**rows[-1], "val_loss": rows[-1]["loss"]}])
    return {"the training loss": point["val_loss"] < point["train_loss"]}


def recipes_neighbours():
    model, tgt = small(lit.Transformer, lit.TransformerConfig), torch.randint(1, 31, (2, 5))
    batch = lit.collate([([5] * 3, [6]), ([7] * 8, [6])], pad_id=0, bos=1, eos=2)
    bare, masked = (model(batch.src, tgt, mask) for mask in (None, batch.src_mask))
    alone = model(batch.src[:1, :4], tgt[:1])
    short = close(masked[:1], alone) and not close(bare[:1], alone)
    return {"a short": short, "long": not close(bare[1:], masked[1:])}


def recipes_seed():
    text = [lit.TextStream(torch.arange(97), length=7, batch_size=3, seed=5) for _ in range(2)]
    first = []
    for position in ("rope", "transformer-xl"):
        torch.manual_seed(5)
        model = lit.assemble(lit.AssemblyConfig(vocab_size=7, position=position))
        first.append(model.layers[-1].attn.q_proj.weight)
    same = torch.equal(*(stream.epoch(0) for stream in text))
    return {"the order of the text, but": same and not torch.equal(*first)}


def recipes_hidden():
    never = [~hide(torch.zeros(1, 100_000, dtype=torch.long), 7)[1][0] for _ in range(10)]
    assert abs(torch.stack(never).all(0).double().mean() - 0.85**10) < 0.007
    return 0.85**10 * 100


def recipes_prolong():
    short, long = (lit.cosine(0.01, 5, steps) for steps in (1500, 3000))
    return {"a run of 3,000": short(1000) < 0.9 * long(1000), "it is": short(1500) == 0}


def results_own_rate():
    grid = {"a": {0.001: 1.6, 0.003: 1.5, 0.01: 1.7}, "b": {0.003: 1.6, 0.01: 1.4, 0.03: 1.7}}
    a, b = (tuned.losses[0] for tuned in at_best_rate(rows(grid)).values())
    return {"a part may lose": (a < b) != (grid["a"][0.003] < grid["b"][0.003])}


def recipes_spans():
    return len(corrupt_spans(range(100), range(100, 200), Random(0))[1]) + 1


def recipes_agreement():
    shared = {"BC": 0.8, "CD": 0.8, "BD": 0.2}
    chosen = minimum_bayes_risk(
        "AAAABBBCCD", lambda a, b: 1.0 if a == b else shared.get("".join(sorted(a + b)), 0.0)
    )
    return {name: chosen == name for name in "ABCD"}


def results_edge():
    found = at_best_rate(rows({"a": {0.001: 1.8, 0.003: 1.6, 0.01: 1.5}}))["a"]
    return {"the grid": found.rate == 0.01 and not found.inside}


def results_paired():
    a, b = [1.70, 1.80, 1.90], [1.68, 1.77, 1.88]
    gap, other = paired(a, b), paired(a, [1.60, 1.85, 1.88])
    assert math.isclose(gap.mean, 0.07 / 3) and other.mean > 0  # a lower mean, both times
    return {"yes: the differences": gap.separated, "yes: its mean": other.separated}


def results_not_separated():
    gap = Paired(0.020, 0.010, 3)
    return {"these seeds": not gap.separated, "the two are": gap.mean + gap.half < 0.01}


def results_many():
    separated = [paired(a, b).separated for a, b in randn(4000, 2, 3).tolist()]
    assert abs(sum(separated) / 4000 - 0.05) < 0.017  # 5 deviations of 4,000 draws
    return 0.05 * math.comb(8, 2)


# --- the comparison -----------------------------------------------------------------------------

NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?(?:/\d+)?")


def numbers(text):
    "The numbers in a choice, each with half a unit of its last digit."
    for found in NUMBER.findall(text):
        above, _, below = found.replace("−", "-").replace(",", "").partition("/")
        digits = len(above.partition(".")[2])
        yield float(above) / float(below or 1), 1e-6 if below else 0.5 * 10**-digits + 1e-9


def holds(question, answer):
    "For the choices that the answer judges, by their places, whether they hold."
    written, far = [choice.text for choice in question.choices], {}
    if isinstance(answer, dict):
        begun = {text: min((w for w in written if w.startswith(text)), key=len) for text in answer}
        return {written.index(begun[text]): bool(verdict) for text, verdict in answer.items()}
    wanted = torch.as_tensor(answer).flatten().tolist()
    for place, given in enumerate([*numbers(text)] for text in written):
        if len(given) == len(wanted):
            off = [(abs(w - number), half) for w, (number, half) in zip(wanted, given)]
            far[place] = max(off)[0], all(gap <= half for gap, half in off)
    nearest = min(far, key=far.get)
    return {place: place == nearest and right for place, (_, right) in far.items()}


@pytest.mark.parametrize("name", sorted(QUESTIONS.keys() - NOT_COMPUTED))
def test_what_a_program_finds_is_the_choice_that_is_marked_and_no_other(name):
    answer = ANSWERS[name] if name in ANSWERS else globals()[name.replace("-", "_")]
    found, right = holds(QUESTIONS[name], answer()), QUESTIONS[name].right
    assert found[right] and [place for place, holds in found.items() if holds] == [right]
