"""Attention three ways: by the formula, fused, and torch's bare kernel; in time, memory, decoding.

- `time`: `attend_fused` beside a bare `F.scaled_dot_product_attention`, and `attend` beside
  `attend_fused`. Sides take turns, and each pair of neighbours gives one ratio.
- `memory`: what a call adds to the peak of a process, each in a process of its own.
- `decode`: tokens a second of a LLaMA-style decoder with 6, 2 and 1 key/value heads, sides in turn.

All with one thread. Time is that of the processor: what it does for others between two turns of a
side does not count. `--quick` takes tiny sizes and few pairs, and stores nothing.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.common import (
    MIB,
    choose,
    command_line,
    compared,
    interval,
    peak_bytes,
    report,
    take_turns,
)
from transformer_lit.attention.attend import attend
from transformer_lit.attention.fused import attend_fused
from transformer_lit.models.llama import Llama, LlamaConfig

D = 64  # head size
LENGTHS = (256, 1024, 4096)
CURVE = (256, 512, 1024, 2048, 4096)  # of peak memory
EDGE = (2048, 4096)  # where the peaks of special cases are compared

# What is asked of a kernel: the options of `attend`, beside q, k and v.
Options = dict[str, Any]


def inputs(case: str, T: int, n_heads: int) -> tuple[list[Tensor], Options]:
    "q, k, v and the options of a case; with `grouped`, a third of the heads have keys."
    n_kv_heads = max(1, n_heads // 3) if case == "grouped" else n_heads
    width = D // 2 if case == "narrow values" else D
    shapes = (n_heads, T, D), (n_kv_heads, T, D), (n_kv_heads, T, width)
    q, k, v = (torch.randn(1, *shape) for shape in shapes)
    options: Options = {"causal": case in ("causal", "grouped", "dropout")}
    if case == "padding mask":
        options["mask"] = (torch.arange(T) < T - T // 8)[None, None, None]
    if case == "table mask":  # causal once more, but as a table
        options["mask"] = torch.ones(T, T, dtype=torch.bool).tril()[None, None]
    if case == "learned bias":
        options["bias"] = torch.zeros(1, n_heads, T, T, requires_grad=True)
    if case == "dropout":
        options["dropout"] = 0.1
    return [q, k, v], options


def bare(q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, causal: bool) -> Tensor:
    "The kernel as one would call it without this package."
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
    )


KERNELS: dict[str, Callable[..., Tensor]] = {
    "attend": attend,
    "attend_fused": attend_fused,
    "bare": bare,
}


def call(kernel: str, work: str, leaves: Sequence[Tensor], options: Options) -> None:
    "One call; with `both`, and the gradients of all that enters."
    if work == "forward":
        with torch.no_grad():
            KERNELS[kernel](*leaves, **options)
        return
    leaves = [x.requires_grad_() for x in leaves]
    out = KERNELS[kernel](*leaves, **options)
    bias = options.get("bias")
    torch.autograd.grad(out, [*leaves, *([] if bias is None else [bias])], torch.ones_like(out))


# --- time ---------------------------------------------------------------------------------------


def timed(names: Sequence[str], sides: Sequence[Callable[[], Any]], pairs: int) -> dict[str, Any]:
    "Most of a row: how many times as long the first side takes, and milliseconds of both."
    seconds = take_turns(sides, pairs, time.process_time)
    row = compared(seconds) | dict(zip(("side", "other"), names, strict=True))
    return row | {name: 1e3 * median(x) for name, x in zip(("ms", "other_ms"), seconds)}


def time_rows(lengths: Sequence[int], pairs: int) -> list[dict[str, Any]]:
    "Ours to the bare kernel in every case; the formula to ours, and a table to the flag, over T."
    rows = []
    cases = [("causal", T) for T in lengths]
    other_cases = ("no mask", "grouped", "padding mask", "table mask")
    cases += [(case, lengths[len(lengths) // 2]) for case in other_cases]
    for (case, T), work in product(cases, ("forward", "both")):
        leaves, options = inputs(case, T, 4)
        pairings = [("attend_fused", "bare")] + [("attend", "attend_fused")] * (case == "causal")
        for names in pairings:
            sides = [partial(call, name, work, leaves, options) for name in names]
            rows.append({"case": case, "work": work, "T": T} | timed(names, sides, pairs))
    for T, work in product(lengths, ("forward", "both")):  # the same triangle, said in two ways
        leaves, table = inputs("table mask", T, 4)
        sides = [partial(call, "bare", work, leaves, o) for o in (table, {"causal": True})]
        names = ("a mask", "is_causal")
        rows.append({"case": "triangle", "work": work, "T": T} | timed(names, sides, pairs))
    return rows


# --- memory -------------------------------------------------------------------------------------


def peak_of_call(kernel: str, work: str, case: str, T: int) -> int:
    "Bytes that one call adds to the peak of this process. Ask once in a process."
    call(kernel, work, *inputs(case, 16, 6))  # what is loaded at the first call
    leaves, options = inputs(case, T, 6)
    before = peak_bytes(anew=True)
    call(kernel, work, leaves, options)
    return peak_bytes() - before


def peak_in_child(*asked: str | int) -> int:
    "`peak_of_call` in a process of its own."
    command = [sys.executable, "-m", "benchmarks.attention", "--child", json.dumps(asked)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def memory_rows(lengths: Sequence[int], edge: Sequence[int]) -> list[dict[str, Any]]:
    "Peaks of attend and attend_fused over T, and of attend_fused in special cases at two T."
    asked = [
        (kernel, work, "causal", T)
        for kernel in ("attend", "attend_fused")
        for work in ("forward", "both")
        for T in lengths
    ]
    special = ("no mask", "grouped", "narrow values", "padding mask", "table mask")
    asked += [("attend_fused", "both", c, T) for c in special for T in edge]
    asked += [("attend_fused", "both", c, T) for c in ("learned bias", "dropout") for T in edge]
    names = ("side", "work", "case", "T")
    return [dict(zip(names, a, strict=True)) | {"mib": peak_in_child(*a) / MIB} for a in asked]


# --- decoding -----------------------------------------------------------------------------------


def decoder(n_kv_heads: int) -> Llama:
    torch.manual_seed(0)
    sizes = {"d_model": 6 * D, "n_layers": 6, "n_heads": 6, "d_ff": 1024}
    return Llama(LlamaConfig(vocab_size=4096, n_kv_heads=n_kv_heads, **sizes)).eval()


def filled(model: Llama, batch: int, held: int, room: int) -> Any:
    "A decoding state as it is after a prompt of `held` tokens; the keys are noise."
    state = model.start(batch, held + room)
    n_kv_heads = model.config.n_kv_heads
    for cache in state.caches:
        cache.update(*torch.randn(2, batch, n_kv_heads, held, D))
    return state


def decode(model: Llama, ids: Tensor, state: Any, steps: int) -> None:
    "Some decoding steps, which the state then forgets."
    held = state.length
    with torch.no_grad():
        for _ in range(steps):
            model.step(ids, state)
    state.truncate(held)


def decode_rows(batch: int, lengths: Sequence[int], steps: int, pairs: int) -> list[dict[str, Any]]:
    "Tokens a second by number of key/value heads and of tokens held; the speed-up over MHA."
    rows = []
    models = {n: decoder(n) for n in (6, 2, 1)}
    ids = torch.zeros(batch, 1, dtype=torch.long)
    for held in lengths:
        states = {n: filled(model, batch, held, steps) for n, model in models.items()}
        sides = [partial(decode, models[n], ids, states[n], steps) for n in models]
        seconds = take_turns(sides, pairs, time.process_time)
        for n, spent in zip(models, seconds, strict=True):
            faster = interval([a / b for a, b in zip(seconds[0], spent, strict=True)])
            row = {"n_kv_heads": n, "n_heads": 6, "batch": batch, "held": held, "pairs": pairs}
            row |= {"tokens_per_second": batch * steps / median(spent)}
            rows.append(row | dict(zip(("speed_up", "low", "high"), faster, strict=True)))
    return rows


# --- the command --------------------------------------------------------------------------------

ABOUT = {
    "time": "Each row times `side` and `other` in turn on fp32 tensors, one thread, batch 1, 4 "
    "heads of 64 (grouped: 1 key/value head). work: forward, without gradients, or both, with "
    "backward. ratio: median over the pairs of time of side / time of other; low, high: its 95 % "
    "interval. ms, other_ms: medians in milliseconds of CPU time. triangle: the bare kernel, "
    "causal by a Boolean table or by its flag.",
    "memory": "mib: MiB that one call adds to the peak of a process of its own, one thread, fp32, "
    "batch 1, 6 heads of 64, inputs not counted. work: forward, without gradients, or both.",
    "decode": "A LLaMA-style decoder of 6 layers, width 384, 6 heads, fp32, one thread, that "
    "decodes one token at a time for each sentence of a batch, when the cache holds `held` tokens. "
    "tokens_per_second: of CPU time, all sentences together. speed_up: over as many key/value "
    "heads as heads; median over the pairs, with its 95 % interval low, high.",
}


def measure(part: str, quick: bool) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    pairs = 3 if quick else 21
    if part == "time":
        return time_rows((16, 32, 64) if quick else LENGTHS, pairs)
    if part == "memory":
        return memory_rows((64,), ()) if quick else memory_rows(CURVE, EDGE)
    return decode_rows(2, (16,), 2, pairs) if quick else decode_rows(8, LENGTHS, 4, pairs)


def main(arguments: Sequence[str] | None = None) -> None:
    "Measure, print, and store each part as results/measurements/attention_PART.json."
    parser = command_line(__doc__, quick="tiny sizes")
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    given = choose(parser, arguments, ABOUT)
    if given.child:
        print(peak_of_call(*given.child))
        return
    for part in given.parts:
        rows, command = measure(part, given.quick), f"python -m benchmarks.attention {part}"
        report(f"attention_{part}", ABOUT[part], command, rows, given)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
