"""Two layers of each kind learn to look something up: keys with values, then the keys once more."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.runner import Experiment, Row
from transformer_lit.attention.linear import (
    GatedDeltaNet,
    chunk_gated_delta_rule,
    linear_attention,
)
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.block.feedforward import FeedForward
from transformer_lit.block.layers import EncoderLayer
from transformer_lit.block.norm import RMSNorm
from transformer_lit.block.residual import PreNorm
from transformer_lit.models.gpt import DecoderOnly
from transformer_lit.position.rope import RoPE
from transformer_lit.text.embedding import TokenEmbedding

C, BATCH = 64, 32


class Task(NamedTuple):
    "What is to be looked up, in which size, and how long it is learned."

    keys: int  # that there are; and as many values
    d_head: int
    pairs: int  # most that a text has
    steps: int


TASKS = {"many keys": Task(32, 8, 16, 1000), "keys written anew": Task(16, 16, 32, 500)}


def summed(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor | None):
    "Plain linear attention: nothing fades, nothing is corrected."
    return linear_attention(q, k, v, 0 * g, state)


def corrected(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor | None):
    "The delta rule without a decay."
    return chunk_gated_delta_rule(q, k, v, 0 * g, beta, state)


# the rule of each of the two layers; None: softmax attention with rotary positions
MODELS: dict[str, tuple[Callable | None, Callable | None]] = {
    "linear": (summed, summed),
    "delta": (corrected, corrected),
    "softmax": (None, None),
    "delta, softmax": (corrected, None),
}


def texts(task: str, n: int, count: int = BATCH) -> tuple[Tensor, Tensor]:
    "n keys, each with a value behind it, then all keys once more; and the last value of each."
    keys = TASKS[task].keys
    if task == "many keys":
        key = torch.rand(count, keys).argsort(-1)[:, :n]  # B n, each once
    else:
        key = torch.randint(keys, (count, n))
    value = torch.randint(keys, (count, n))
    last = torch.zeros(count, keys, dtype=torch.long)
    for t in range(n):
        last.scatter_(1, key[:, t : t + 1], value[:, t : t + 1])
    asked = key.gather(1, torch.rand(count, n).argsort(-1))
    told = torch.stack([key, keys + value], -1).flatten(1)  # B 2n
    return torch.cat([told, asked], 1), keys + last.gather(1, asked)  # B 3n, B n


def build(model: str, task: str) -> nn.Module:
    keys, d_head = TASKS[task].keys, TASKS[task].d_head

    def layer(rule: Callable | None) -> EncoderLayer:
        if rule is None:
            rope = RoPE(d_head)
            attn = MultiHeadAttention(C, 1, d_head=d_head, causal=True, position=rope)
        else:
            attn = GatedDeltaNet(C, 1, d_head=d_head, rule=rule)
        return EncoderLayer(attn, FeedForward(C, 2 * C), residual=lambda: PreNorm(RMSNorm(C)))

    head = nn.Linear(C, 2 * keys, bias=False)
    layers = [layer(rule) for rule in MODELS[model]]
    return DecoderOnly(TokenEmbedding(2 * keys, C), layers, RMSNorm(C), head)


def train(model: str, task: str, seed: int, steps: int, peak: float = 5e-3) -> nn.Module:
    torch.manual_seed(seed)
    net = build(model, task)
    optimizer = torch.optim.AdamW(net.parameters(), lr=peak, weight_decay=0.0)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = peak * min((step + 1) / 50, 1 - step / steps)
        ids, wanted = texts(task, int(torch.randint(1, TASKS[task].pairs + 1, ())))
        logits = net(ids)[:, -wanted.shape[1] :]
        F.cross_entropy(logits.flatten(0, 1), wanted.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return net


@torch.no_grad()
def recalled(steps: int | None = None, seeds: Sequence[int] = (0, 1, 2)) -> list[Row]:
    "The share of right answers, for the same texts in all models."
    rows = []
    for task, model, seed in product(TASKS, MODELS, seeds):
        with torch.enable_grad():
            net = train(model, task, seed, steps or TASKS[task].steps).eval()
        torch.manual_seed(99)
        pairs = TASKS[task].pairs
        for n in (pairs // 4, pairs):
            ids, wanted = texts(task, n, 128)
            right = (net(ids)[:, -n:].argmax(-1) == wanted).double().mean().item()
            row = {"task": task, "model": model, "seed": seed, "pairs": n, "right": right}
            rows.append(row)
            print(row, flush=True)
    return rows


RECALL = Experiment(
    "Two layers (64 wide, one head) read `pairs` keys, each with a value behind it, and then the "
    "keys once more, in another order; right: the share of answers that are the key's last value, "
    "over 128 texts. In the task 'many keys' each of 32 keys stands at most once, a head has 8 "
    "numbers, and 1,000 steps were made with texts of 1 to 16 pairs; in 'keys written anew' 16 "
    "keys are drawn again and again, a head has 16, and 500 steps had 1 to 32 pairs. 32 texts a "
    "step. model: the kind of both layers, or of the first and the second.",
    recalled,
    quick={"steps": 2, "seeds": (0,)},
)
