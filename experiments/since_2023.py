"""One part of a small Llama exchanged at a time, at equal arithmetic a token: what each part buys.

An arm is a function that builds the model with a given hidden width. The width is then chosen so
that the products of matrices, counted for a token, are those of the plain model.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.common import compared, take_turns
from benchmarks.models import Work, training_step
from experiments.runner import BRIEF, Cell, Experiment, Row, Variant, count, val_losses
from transformer_lit.attention.cache import DecodingState, KVCache
from transformer_lit.attention.latent import LatentAttention
from transformer_lit.attention.linear import GatedDeltaNet, ShortConv, StateCache
from transformer_lit.attention.windows import Window, WindowCache
from transformer_lit.block.experts import Experts, SoftmaxRouter, balance_loss, routings
from transformer_lit.block.feedforward import GatedFeedForward
from transformer_lit.block.init import gpt2_init
from transformer_lit.block.norm import RMSNorm
from transformer_lit.models.decoders import PerHead
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.models.more_than_one import (
    GatedAttention,
    MTPModule,
    MultiToken,
    ValueEmbedding,
    mtp_loss,
)
from transformer_lit.position.rope import RoPE
from transformer_lit.recipes.language_model import LanguageModeling, language_step
from transformer_lit.training.data import TextBatch
from transformer_lit.training.run import Run

RATES, TUNING, SEEDS = (2e-3, 4e-3, 8e-3), 0, (1, 2, 3, 4, 5)
C, L, H, D, F, T = 80, 4, 4, 20, 216, 64  # of the plain model, and the context
WIDE, NEAR = 0.03, 16  # how far counts may lie apart; the window
R, RANK = 8, 48  # of latent attention: the rotated part of a head, and the latent
E, K = 8, 2  # experts, and those that a token uses
BALANCE = 0.01

# --- the arms -----------------------------------------------------------------------------------


def plain(vocab_size: int, d_ff: int, **sizes: Any) -> Llama:
    "A Llama, with as many key/value heads as heads."
    sizes = {"d_model": C, "n_layers": L, "n_heads": H, "max_len": T, **sizes}
    return Llama(LlamaConfig(vocab_size, d_ff=d_ff, **sizes))


def grouped(vocab_size: int, d_ff: int) -> Llama:
    "Two heads share their keys and values."
    return plain(vocab_size, d_ff, n_kv_heads=H // 2)


def windows(vocab_size: int, d_ff: int) -> Llama:
    "Three layers of four see the last 16 positions."
    model = plain(vocab_size, d_ff)
    for layer in near(model):
        layer.attn.attend = Window(NEAR)
    return model


def latent(vocab_size: int, d_ff: int) -> Llama:
    "The cache holds a latent; a part of each head is rotated."
    model, rope = plain(vocab_size, d_ff), RoPE(R)
    sizes = {"rank": RANK, "d_head": D - R, "d_rope": R, "d_value": D}
    for layer in model.layers:
        layer.attn = LatentAttention(C, H, **sizes, causal=True, position=rope)
    gpt2_init(model, L)
    return model


def experts(vocab_size: int, d_ff: int) -> Llama:
    "Two of eight networks for each token, each of half the width."
    model = plain(vocab_size, d_ff)
    for layer in model.layers:
        each = [GatedFeedForward(C, d_ff // K) for _ in range(E)]
        layer.ffn = Experts(SoftmaxRouter(C, E, K), each)
    gpt2_init(model, L)
    return model


def delta(vocab_size: int, d_ff: int) -> Llama:
    "Three layers of four hold a state, which Gated DeltaNet corrects."
    model = plain(vocab_size, d_ff)
    for layer in near(model):
        layer.attn = GatedDeltaNet(C, H)
    gpt2_init(model, L)
    for layer in near(model):  # its convolution begins as its chapter has it
        layer.attn.conv = ShortConv(len(layer.attn.conv.weight))
    return model


def qk_norm(vocab_size: int, d_ff: int) -> Llama:
    "A norm for each head of the queries and of the keys."
    model = plain(vocab_size, d_ff)
    for attn in (layer.attn for layer in model.layers):
        attn.q_proj = nn.Sequential(attn.q_proj, PerHead(RMSNorm(D), D))
        attn.k_proj = nn.Sequential(attn.k_proj, PerHead(RMSNorm(D), D))
    return model


def gated(vocab_size: int, d_ff: int) -> Llama:
    "A gate for each number of each head's answer."
    model = plain(vocab_size, d_ff)
    for layer in model.layers:
        layer.attn = GatedAttention(layer.attn)
    gpt2_init(model, L)
    return model


def with_values(vocab_size: int, d_ff: int) -> ValueEmbedding:
    "A further table of characters for the values of the first layer, and one for the last."
    tables = {i: nn.Embedding(vocab_size, H * D) for i in (0, L - 1)}
    model = ValueEmbedding(plain(vocab_size, d_ff), tables)
    gpt2_init(model, L)
    return model


def chained(vocab_size: int, d_ff: int) -> MultiToken:
    "A module of one layer learns the character after the next; no answer needs it."
    (layer,) = plain(vocab_size, d_ff, n_layers=1).layers
    model = MultiToken(plain(vocab_size, d_ff), [MTPModule(C, layer)])
    gpt2_init(model, L)
    return model


def near(model: Llama) -> list[nn.Module]:
    "The layers but each fourth."
    return [layer for i, layer in enumerate(model.layers, 1) if i % 4]


ARMS: dict[str, Callable[[int, int], nn.Module]] = {
    "plain": plain,
    "grouped": grouped,
    "windows": windows,
    "latent": latent,
    "experts": experts,
    "delta": delta,
    "qk-norm": qk_norm,
    "gated": gated,
    "values": with_values,
    "one more": chained,
}


def answers(model: nn.Module) -> nn.Module:
    "The model without what only its training needs."
    return model.model if isinstance(model, MultiToken) else model


def llama(model: nn.Module) -> Llama:
    "The Llama in a model."
    return model if isinstance(model, Llama) else model.model


def balanced(model: nn.Module, batch: TextBatch) -> tuple[Tensor, int]:
    "The loss of the text, and of how unequally the experts are used."
    with routings(model) as found:
        loss, tokens = language_step(model, batch)
    return loss + BALANCE * tokens * sum(balance_loss(routing) for routing in found), tokens


def two_tokens(model: nn.Module, batch: TextBatch) -> tuple[Tensor, int]:
    "The loss of the text, and of what the module says."
    tokens = batch.targets.numel()
    return tokens * mtp_loss(model(batch.ids), batch.targets), tokens


STEPS: dict[str, Callable[[nn.Module, TextBatch], tuple[Tensor, int]]] = {
    "experts": balanced,
    "one more": two_tokens,
}

# --- what is held equal -------------------------------------------------------------------------


def active(model: nn.Module) -> int:
    "The parameters without those of the experts that a token does not use."
    idle = [m.experts[m.router.k :] for m in model.modules() if isinstance(m, Experts)]
    return count(model) - sum(map(count, idle))


def flops(model: nn.Module, length: int) -> float:
    """Two for each multiplication in a product of matrices, for a token that a model answers.

    The mean over a text of `length` tokens. A state is counted one token after the other.
    """
    model = llama(model)
    linear = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear | ShortConv))
    linear -= count(model) - active(model)  # experts are linear layers and nothing else
    return 2 * (linear + sum(scores(layer.attn, length) for layer in model.layers))


def scores(attn: nn.Module, length: int) -> float:
    "Multiplications of a token that no weight takes part in, the mean over a text."
    attn = attn.attn if isinstance(attn, GatedAttention) else attn
    if isinstance(attn, GatedDeltaNet):  # read under the key, write, read under the query
        return 3 * attn.n_heads * attn.d_head**2
    most = attn.attend.size if isinstance(attn.attend, Window) else length
    seen = sum(min(t, most) for t in range(1, length + 1)) / length
    if isinstance(attn, LatentAttention):
        return seen * attn.n_heads * (attn.d_head + attn.d_rope + attn.d_value)
    return seen * attn.n_heads * 2 * attn.d_head


def matched(arm: str, vocab_size: int) -> nn.Module:
    "The arm with the hidden width at which a token costs what it costs in the plain model."
    with torch.random.fork_rng(devices=[]):
        goal = flops(plain(vocab_size, F), T)
        one, two = (flops(ARMS[arm](vocab_size, width), T) for width in (F, 2 * F))
    step = K if arm == "experts" else 1  # each of them has a whole width
    width = step * round((F + F * (goal - one) / (two - one)) / step)  # a line over the width
    model = ARMS[arm](vocab_size, width)
    assert abs(flops(model, T) / goal - 1) < WIDE
    return model


def caches(model: nn.Module, max_len: int) -> DecodingState:
    "An empty cache for each layer, of the kind that it needs."

    def of(attn: nn.Module) -> Any:
        if isinstance(attn, GatedDeltaNet):
            return StateCache()
        if isinstance(getattr(attn, "attend", None), Window):
            return WindowCache(attn.attend.size)
        return KVCache(max_len)

    return DecodingState([of(layer.attn) for layer in llama(model).layers])


@torch.no_grad()
def cached(model: nn.Module, length: int) -> int:
    "Bytes in the caches after so many tokens."
    state = caches(model, length)
    answers(model).step(torch.zeros(1, length, dtype=torch.long), state)
    kinds = ("k", "v", "state", "past")
    held = (getattr(cache, name, None) for cache in state.caches for name in kinds)
    return sum(x.nbytes for x in held if x is not None)


# --- the losses ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Exchanged(Variant):
    "A language model with one part exchanged. Validation is on the text alone."

    arm: str = "plain"  # see ARMS

    def build(self, vocab_size: int) -> nn.Module:
        return matched(self.arm, vocab_size)

    def step(self, model: nn.Module, batch: TextBatch) -> tuple[Tensor, int]:
        return STEPS.get(self.arm, language_step)(model, batch)

    def loss(self, model: nn.Module, batch: TextBatch) -> tuple[Tensor, int]:
        return language_step(answers(model), batch)


PRESET = vars(LanguageModeling.presets["shakespeare-cpu"])
UPDATES, ROWS, VALIDATED = 500, 8, 40
BASE = Exchanged(
    **PRESET
    | {"sizes": {}, "length": T, "batch_size": ROWS, "val_batches": VALIDATED}
    | {"steps": UPDATES, "warmup": 50, "every": UPDATES}
)


def cells(rows: Sequence[Row]) -> Iterator[Cell]:
    "Each arm at each rate with the seed that tunes; then the other seeds at its best rate."
    for arm in ARMS:
        for rate in RATES:
            yield cell(arm, rate, TUNING)
    for seed in SEEDS:
        for arm in ARMS:
            losses = {r["rate"]: r["val_loss"] for r in rows if (r["entry"], r["seed"]) == (arm, 0)}
            yield cell(arm, min(losses, key=losses.__getitem__), seed)


def cell(arm: str, rate: float, seed: int) -> Cell:
    about = {"entry": arm, "rate": rate, "seed": seed}
    return Cell(about, replace(BASE, arm=arm, lr=rate), seed)


def measure(run: Run) -> list[Row]:
    model = answers(run.trained.model)
    run.train()
    row = {"val_loss": val_losses(run)[-1], "steps": run.steps, "d_ff": llama(model).config.d_ff}
    row |= {"stored": count(model), "active": active(model), "flops": flops(model, T)}
    row |= {"cache": cached(model, T), "growth": cached(model, T + 1) - cached(model, T)}
    return [row]


ABOUT = (
    f"plain is a Llama of {L} layers, {C} wide, {H} heads of {D}. entry: the part that is "
    f"exchanged. grouped: {H // 2} key/value heads. windows: 3 layers of 4 see {NEAR} positions. "
    f"latent: latent attention, rank {RANK}, {R} rotated numbers of {D} in a head. experts: {K} "
    f"of {E} networks of half the width, balance loss times {BALANCE}. delta: 3 layers of 4 are "
    "Gated DeltaNet. qk-norm: RMSNorm for each head of queries and keys. gated: a gate on what the "
    "heads answer. values: value embeddings in the first and the last layer. one more: while it "
    "trains, a module of one layer predicts one character further, λ = 0.3; no other column counts "
    "it. The hidden width d_ff is chosen so that flops is that of plain."
)
SINCE_2023 = Experiment(
    f"A training on tiny Shakespeare by characters in a row, {UPDATES} steps of {ROWS} blocks "
    f"of {T} characters, AdamW. {ABOUT} flops: twice the multiplications in products of matrices "
    f"for a token in a forward pass, the mean over {T} positions; a state is counted token by "
    f"token. seed: of weights and blocks; {TUNING} chose the rate among three, by the same "
    "validation text, and the others took that rate. val_loss: nats per character over the first "
    f"{VALIDATED * 4 * ROWS} blocks of {T} of the validation text. stored, active: parameters, and "
    "those without the experts that a token does not use. cache: bytes that the caches hold after "
    f"{T} characters, fp32; growth: bytes that one more adds. An interval over seeds leaves out "
    "the choice of the text, of the sizes and of the rates.",
    measure,
    cells,
    BRIEF,
)

# --- the clock ----------------------------------------------------------------------------------

VOCABULARY = 65
HELD, TURNS = (T, 16 * T), 41


def trains(arm: str) -> Work:
    "One step of AdamW on blocks that are drawn once; the balance of experts is left out."
    torch.manual_seed(0)
    model, learn = matched(arm, VOCABULARY), two_tokens if arm == "one more" else language_step
    ids = torch.randint(VOCABULARY, (ROWS, T + 1))
    batch = TextBatch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
    return training_step(model, lambda: learn(model, batch), BASE.lr)


def decodes(arm: str, held: int, most: int) -> Callable[[], None]:
    "One more token behind all that the caches hold; they grow with each call."
    torch.manual_seed(0)
    model = answers(matched(arm, VOCABULARY)).eval()
    state = caches(model, most)
    model.step(torch.randint(VOCABULARY, (1, held)), state)
    token = torch.zeros(1, 1, dtype=torch.long)

    def step() -> None:
        model.step(token, state)

    return step


def clock(held: Sequence[int] = HELD, turns: int = TURNS) -> list[Row]:
    "A row for each arm and each kind of step, beside the plain model."
    torch.set_num_threads(1)
    rows = []

    def add(work: Row, sides: list[Callable[[], Any]]) -> None:
        seconds = take_turns(sides, turns, time.process_time)
        for arm, spent in zip(ARMS, seconds, strict=True):
            rows.append({"entry": arm, **work} | compared([spent, seconds[0]]))

    add({"step": "training", "held": 0}, [trains(arm) for arm in ARMS])
    with torch.no_grad():
        for n in held:
            sides = [decodes(arm, n, n + turns + 1) for arm in ARMS]
            add({"step": "decoding", "held": n}, sides)
    return rows


SINCE_2023_CLOCK = Experiment(
    f"A step of each model of the record since_2023, all in turns, on one thread. {ABOUT} step: "
    f"training is loss, gradient and fused AdamW on {ROWS} blocks of {T}; decoding is one more "
    "token for one text, when the caches hold `held` tokens or a few more. ratio: how many times "
    "as long as plain in the same turn, the median of `pairs`; low, high: its 95 % interval. Time "
    "is that of the process.",
    clock,
    quick={"held": (7,), "turns": 3},
)
