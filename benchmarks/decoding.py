"""A decoding step: with a preallocated cache, with a growing one, and without.

`steps` times one more token when `held` tokens are there; without a cache the whole text goes
through again. `python -m benchmarks` has our decoders beside those of a library.

Weights are random: the time does not depend on what is drawn. `--quick` takes tiny sizes and few
pairs, and stores nothing.
"""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import choose, command_line, compared, report, take_turns
from transformer_lit.attention.cache import DecodingState, GrowingCache
from transformer_lit.models.llama import Llama, LlamaConfig

SIZES = {"d_model": 384, "n_layers": 6, "n_heads": 6, "d_ff": 1536, "vocab_size": 256}
TINY = {"d_model": 12, "n_layers": 2, "n_heads": 2, "d_ff": 17, "vocab_size": 11}
CONTEXT = 1024


# --- a step, with and without a cache -----------------------------------------------------------


@torch.inference_mode()
def step(model: Llama, token: Tensor, state: DecodingState) -> None:
    "One token, which the state then forgets."
    held = state.length
    model.step(token, state)[:, -1]
    state.truncate(held)


@torch.inference_mode()
def again(model: Llama, ids: Tensor) -> None:
    "The whole text once more; the output layer reads the last position alone."
    model.lm_head(model.hidden(ids)[:, -1])


def step_rows(sizes: dict[str, int], lengths: Sequence[int], pairs: int) -> list[dict[str, Any]]:
    "Milliseconds for one more token, by kind of cache and number of tokens held."
    model, rows = Llama(LlamaConfig(**sizes, max_len=CONTEXT)).eval(), []
    for held in lengths:
        ids = torch.randint(sizes["vocab_size"], (1, held + 1))
        states = {
            "preallocated": model.start(1, held + 1),
            "growing": DecodingState([GrowingCache() for _ in model.layers]),
        }
        sides: dict[str, Callable[[], None]] = {"none": partial(again, model, ids)}
        for name, state in states.items():
            with torch.inference_mode():
                model.step(ids[:, :-1], state)
            sides[name] = partial(step, model, ids[:, -1:], state)
        seconds = dict(zip(sides, take_turns(list(sides.values()), pairs), strict=True))
        for name, spent in seconds.items():
            row = {"cache": name, "held": held, "ms": 1e3 * median(spent)}
            rows.append(row | compared([spent, seconds["preallocated"]]))
    return rows


# --- the command --------------------------------------------------------------------------------

MODEL = "6 layers, width 384, 6 heads, d_ff 1536, 256 tokens in the vocabulary, fp32"
ABOUT = {
    "steps": f"One more token when `held` are there, by a Llama of {MODEL}, batch 1. cache: "
    "preallocated (KVCache), growing (GrowingCache), or none (the whole text goes through again). "
    "ms: median; ratio: to the preallocated cache, median over the turns with its 95 % interval.",
}


def measure(quick: bool) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    return step_rows(TINY, (3, 7), 3) if quick else step_rows(SIZES, (16, 64, 256, 1023), 21)


def main(arguments: Sequence[str] | None = None) -> None:
    "Measure, print, and store each part as results/measurements/decoding_PART.json."
    parser = command_line(__doc__, quick="tiny sizes")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of both sides")
    given = choose(parser, arguments, ABOUT)
    torch.set_num_threads(given.threads)
    for part in given.parts:
        rows = [row | {"threads": given.threads} for row in measure(given.quick)]
        command = f"python -m benchmarks.decoding {part} --threads {given.threads}"
        report(f"decoding_{part}", ABOUT[part], command, rows, given)


if __name__ == "__main__":
    main()
