"""One decoding step of latent attention beside multi-head attention, sides in turn."""

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn

from benchmarks.common import compared, take_turns
from experiments.runner import Experiment, Row
from transformer_lit.attention.cache import KVCache
from transformer_lit.attention.latent import LatentAttention
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.position.rope import RoPE


class Explicit(LatentAttention):
    "Keys and values are made anew at each step."

    def absorbs(self, T: int, S: int) -> bool:
        return False


def step(layer: nn.Module, x: Tensor) -> Callable[[], None]:
    "What a layer does for the last position when a cache holds the others."
    cache, held = KVCache(x.shape[1]), x.shape[1] - 1
    layer(x[:, :held], cache=cache)

    def once() -> None:
        layer(x[:, held:], cache=cache)
        cache.truncate(held)

    return once


@torch.no_grad()
def steps(held: tuple[int, ...] = (256, 1024, 4096), H: int = 16, pairs: int = 41) -> list[Row]:
    "Milliseconds of a step of one layer that holds so many tokens, the new one among them."
    torch.set_num_threads(1)
    torch.manual_seed(0)
    D, r, R = 128, 512, 64
    sizes = {"rank": r, "d_head": D, "d_rope": R, "causal": True, "position": RoPE(R)}
    full = MultiHeadAttention(H * D, H, causal=True, position=RoPE(D))
    layers = {"full": full, "latent": LatentAttention(H * D, H, **sizes)}
    layers["explicit"] = Explicit(H * D, H, **sizes)
    layers["explicit"].load_state_dict(layers["latent"].state_dict())
    rows = []
    for S in held:
        x = torch.randn(1, S, H * D)
        sides = [step(layer, x) for layer in layers.values()]
        seconds = take_turns(sides, pairs, time.process_time)
        row = {"held": S, "n_heads": H} | compared(seconds[:2])
        rows.append(row | {f"{n}_ms": 1e3 * median(s) for n, s in zip(layers, seconds)})
    return rows


LATENT_DECODE = Experiment(
    "One self-attention layer takes one new token when its cache then holds `held` tokens: batch "
    "1, fp32, one thread. full: multi-head, `n_heads` heads of 128. latent: LatentAttention with "
    "the sizes of DeepSeek-V2-Lite, rank 512, rotated part 64. explicit: the same weights, but "
    "with keys and values made anew at each step. …_ms: medians in milliseconds of CPU time. "
    "ratio: time of full / time of latent, median over the pairs; low, high: its 95 % interval.",
    steps,
    quick={"held": (16,), "H": 2, "pairs": 3},
)
