"""Our norms and gated networks beside the same operations through torch's own modules.

Each comparison times two sides in turn, forward and forward with backward, and keeps the ratio of
each pair of neighbours: what else the machine does then falls on both. Printed are the median of
the ratios and the interval that holds the true median with at least 95 %. The clock is that of the
process, on one thread: waiting for a core that others use is not counted. "our" modules are the
package's. `--quick` takes tiny sizes and three pairs, and stores nothing.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.common import command_line, interval, store
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


def time_once(module: nn.Module, x: Tensor, gradient: Tensor | None) -> float:
    "Seconds of work for one call; with its backward pass when `gradient` is what to send back."
    module.zero_grad()
    x.grad = None
    start = time.process_time()
    if gradient is None:
        with torch.no_grad():
            module(x)
    else:
        module(x).backward(gradient)
    return time.process_time() - start


def compare(
    side: nn.Module, other: nn.Module, *, tokens: int, d_model: int, dtype: torch.dtype, pairs: int
) -> list[dict[str, Any]]:
    "Two rows: forward, and forward with backward."
    side, other = side.to(dtype), other.to(dtype)
    x = torch.randn(tokens, d_model, dtype=dtype).requires_grad_()
    rows = []
    for work, gradient in (("forward", None), ("both", torch.randn_like(x))):
        times: tuple[list[float], list[float]] = ([], [])
        for pair in range(pairs + 2):  # the first two are to warm up
            order = (0, 1) if pair % 2 else (1, 0)
            for which in order:
                times[which].append(time_once((side, other)[which], x, gradient))
        kept = [t[2:] for t in times]
        median, low, high = interval([a / b for a, b in zip(*kept)])
        side_ms, other_ms = (1e3 * interval(t)[0] for t in kept)
        rows.append(
            {
                "work": work,
                "dtype": str(dtype).removeprefix("torch."),
                "tokens": tokens,
                "d_model": d_model,
                "pairs": pairs,
                "ratio": median,
                "low": low,
                "high": high,
                "side_ms": side_ms,
                "other_ms": other_ms,
            }
        )
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
    print(
        f"{'side':<16} {'other':<27} {'dtype':<9}{'work':<8}{'ratio':>6}  95 % interval    ms    ms"
    )
    for side, other, make in cases(d_model, d_ff):
        wide = "SwiGLU" in side  # heavy, and its time lies in the matrix products
        formula = "by hand" in side
        for dtype in (torch.float32,) if wide or formula else (torch.float32, torch.bfloat16):
            pairs = 3 if options.quick else 20 if wide else 40
            measured = compare(*make(), tokens=tokens, d_model=d_model, dtype=dtype, pairs=pairs)
            for row in measured:
                rows.append({"side": side, "other": other, **row})
                if wide:
                    rows[-1]["d_ff"] = d_ff
                bounds = f"[{row['low']:.3f}, {row['high']:.3f}]"
                print(
                    f"{side:<16} {other:<27} {row['dtype']:<9}{row['work']:<8}{row['ratio']:6.3f}  "
                    f"{bounds:<15}{row['side_ms']:8.2f}{row['other_ms']:8.2f}",
                    flush=True,
                )
    if not options.quick:
        store("block", ABOUT, "python -m benchmarks.block", rows, options.out)
    return rows


if __name__ == "__main__":
    main()
