"""Our norms and gated networks beside the same operations through torch's own modules.

Each comparison times two sides in turn, forward and forward with backward, and keeps the ratio of
each pair of neighbours: what else the machine does then falls on both. Printed are the median of
the ratios and the interval that holds the true median with at least 95 %. The clock is that of the
process, on one thread: waiting for a core that others use is not counted. "our" modules are the
package's. `--quick` takes tiny sizes and three pairs, and stores nothing.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.common import command_line, compared, report, take_turns
from transformer_lit.block.feedforward import FeedForward, GatedFeedForward
from transformer_lit.block.norm import LayerNorm, RMSNorm, layer_norm

ABOUT = (
    "A row times `side` against `other` on random fp32 or bf16 tensors of tokens × d_model, one "
    "thread, sides in turn. work: forward (no gradient kept) or both (forward and backward). "
    "ratio: median over the pairs of the time of side / the time of other; low and high: its 95 % "
    "interval by order statistics. side_ms, other_ms: median milliseconds of CPU time. by hand: "
    "the formula in torch operations, one for one."
)


class Gated(nn.Module):
    "SwiGLU through torch's modules."

    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff, bias=False)
        self.up_proj = nn.Linear(d_model, d_ff, bias=False)
        self.down_proj = nn.Linear(d_ff, d_model, bias=False)
        self.act, self.dropout = nn.SiLU(), nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.dropout(self.act(self.gate_proj(x)) * self.up_proj(x)))


class NormByHand(nn.Module):
    "A norm as its formula says it, without a kernel."

    def __init__(self, d_model: int, *, mean: bool):
        super().__init__()
        self.mean = mean
        self.weight, self.bias = (
            nn.Parameter(torch.ones(d_model)),
            nn.Parameter(torch.zeros(d_model)),
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.mean:
            return layer_norm(x, self.weight, self.bias)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def work(module: nn.Module, x: Tensor, gradient: Tensor | None) -> None:
    "One call; with its backward pass when `gradient` is what to send back."
    module.zero_grad()
    x.grad = None
    if gradient is None:
        with torch.no_grad():
            module(x)
    else:
        module(x).backward(gradient)


def compare(
    sides: Sequence[nn.Module], *, tokens: int, d_model: int, dtype: torch.dtype, pairs: int
) -> list[dict[str, Any]]:
    "Two rows: forward, and forward with backward."
    x = torch.randn(tokens, d_model, dtype=dtype).requires_grad_()
    about = {"dtype": str(dtype).removeprefix("torch."), "tokens": tokens, "d_model": d_model}
    rows = []
    for name, gradient in (("forward", None), ("both", torch.randn_like(x))):
        calls = [partial(work, side.to(dtype), x, gradient) for side in sides]
        seconds = take_turns(calls, pairs, time.process_time)
        ms = {f"{k}_ms": 1e3 * median(t) for k, t in zip(("side", "other"), seconds, strict=True)}
        rows.append({"work": name, **about, **compared(seconds), **ms})
    return rows


def cases(
    d_model: int, d_ff: int
) -> list[tuple[str, str, Callable[[], tuple[nn.Module, nn.Module]]]]:
    "Names of the two sides, and a function that makes them."
    C, width = d_model, d_ff
    return [
        ("our RMSNorm", "torch RMSNorm", lambda: (RMSNorm(C), nn.RMSNorm(C, eps=1e-6))),
        ("our LayerNorm", "torch LayerNorm", lambda: (LayerNorm(C), nn.LayerNorm(C))),
        ("our SwiGLU", "torch SwiGLU", lambda: copied(C, width)),
        ("our RMSNorm", "our LayerNorm", lambda: (RMSNorm(C), LayerNorm(C))),
        ("torch RMSNorm", "torch LayerNorm", lambda: (nn.RMSNorm(C, eps=1e-6), nn.LayerNorm(C))),
        (
            "RMSNorm by hand",
            "LayerNorm by hand",
            lambda: (NormByHand(C, mean=False), NormByHand(C, mean=True)),
        ),
        (
            "our SwiGLU",
            "our FFN, SiLU, 3/2 as wide",
            lambda: (
                GatedFeedForward(C, width),
                FeedForward(C, 3 * width // 2, activation=F.silu, bias=False),
            ),
        ),
    ]


def copied(d_model: int, d_ff: int) -> tuple[nn.Module, nn.Module]:
    "Both SwiGLUs with the same weights."
    ours, theirs = GatedFeedForward(d_model, d_ff), Gated(d_model, d_ff)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    "Measure, print a table, and store it unless `--quick`."
    parser = command_line(__doc__, quick="tiny sizes, three pairs")
    options = parser.parse_args(argv)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokens, d_model, d_ff = (16, 8, 24) if options.quick else (4096, 384, 1024)
    rows = []
    for side, other, make in cases(d_model, d_ff):
        wide = "SwiGLU" in side  # heavy, and its time lies in the matrix products
        fp32_alone = wide or "by hand" in side
        pairs = 3 if options.quick else 20 if wide else 40
        about = {"side": side, "other": other} | ({"d_ff": d_ff} if wide else {})
        for dtype in (torch.float32,) if fp32_alone else (torch.float32, torch.bfloat16):
            found = compare(make(), tokens=tokens, d_model=d_model, dtype=dtype, pairs=pairs)
            rows += [about | row for row in found]
    report("block", ABOUT, "python -m benchmarks.block", rows, options)
    return rows


if __name__ == "__main__":
    main()
