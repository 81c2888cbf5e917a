"""Decoding: our decoders beside HF transformers' `generate`, and a step with a cache and without.

- `library`: seconds for a number of greedy tokens, ours and HF's model of the same sizes in turn;
  each pair of neighbours gives one ratio, so that what else the machine does falls on both.
- `steps`: seconds for one more token when `held` tokens are there, with a preallocated cache, with
  a growing one, and without (the whole text goes through again).

Weights are random: the time does not depend on what is drawn. `--quick` takes tiny sizes and few
pairs, and stores nothing.
"""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.common import choose, command_line, compared, report, take_turns
from benchmarks.models import hf_llama
from transformer_lit.attention.cache import DecodingState, GrowingCache
from transformer_lit.inference.sampling import generate
from transformer_lit.models.gpt import GPT, DecoderOnly, GPTConfig
from transformer_lit.models.llama import Llama, LlamaConfig

SIZES = {"d_model": 384, "n_layers": 6, "n_heads": 6, "d_ff": 1536, "vocab_size": 256}
TINY = {"d_model": 12, "n_layers": 2, "n_heads": 2, "d_ff": 17, "vocab_size": 11}
CONTEXT = 1024
PROMPT = 16


def gpts(sizes: dict[str, int]) -> tuple[DecoderOnly, nn.Module]:
    "Our GPT and HF's, of the same sizes."
    ours = GPT(GPTConfig(**sizes, max_len=CONTEXT, dropout=0.0))
    config = GPT2Config(
        vocab_size=sizes["vocab_size"],
        n_embd=sizes["d_model"],
        n_layer=sizes["n_layers"],
        n_head=sizes["n_heads"],
        n_inner=sizes["d_ff"],
        n_positions=CONTEXT,
        bos_token_id=0,
        eos_token_id=None,
    )
    return ours.eval(), GPT2LMHeadModel(config).eval()


def llamas(sizes: dict[str, int]) -> tuple[DecoderOnly, nn.Module]:
    "Our Llama and HF's, of the same sizes."
    ours = Llama(LlamaConfig(**sizes, max_len=CONTEXT))
    return ours.eval(), hf_llama(ours.config).eval()


MODELS = {"gpt": gpts, "llama": llamas}


# --- beside the library -------------------------------------------------------------------------


def we_write(model: DecoderOnly, prompt: Tensor, tokens: int) -> None:
    rows = generate(model, prompt, max_new=tokens, temperature=0)
    assert [len(row) for row in rows] == [tokens] * len(prompt)


@torch.inference_mode()
def they_write(model: nn.Module, prompt: Tensor, tokens: int) -> None:
    mask = torch.ones_like(prompt)
    options = {"attention_mask": mask, "max_new_tokens": tokens, "pad_token_id": 0}
    ids = model.generate(prompt, do_sample=False, **options)
    assert ids.shape == (len(prompt), prompt.shape[1] + tokens)


def library_rows(
    sizes: dict[str, int], batches: Sequence[int], tokens: int, pairs: int
) -> list[dict[str, Any]]:
    "How many times as long ours takes as HF's, for each kind of model and size of batch."
    rows = []
    for name, make in MODELS.items():
        ours, theirs = make(sizes)
        counts = [sum(p.numel() for p in model.parameters()) for model in (ours, theirs)]
        assert counts[0] == counts[1], f"{name}: ours has {counts[0]} parameters, HF's {counts[1]}"
        for batch in batches:
            prompt = torch.randint(sizes["vocab_size"], (batch, PROMPT))
            sides = [partial(we_write, ours, prompt, tokens)]
            sides += [partial(they_write, theirs, prompt, tokens)]
            seconds = take_turns(sides, pairs)
            row = {"model": name, "parameters": counts[0], "batch": batch, "tokens": tokens}
            row |= compared(seconds)
            per_second = [batch * tokens / median(side) for side in seconds]
            rows.append(row | dict(zip(("ours_tokens_s", "hf_tokens_s"), per_second)))
    return rows


# --- a step, with and without a cache -----------------------------------------------------------


@torch.inference_mode()
def step(model: DecoderOnly, token: Tensor, state: DecodingState) -> None:
    "One token, which the state then forgets."
    held = state.length
    model.step(token, state)[:, -1]
    state.truncate(held)


@torch.inference_mode()
def again(model: DecoderOnly, ids: Tensor) -> None:
    "The whole text once more; the output layer reads the last position alone."
    model.lm_head(model.hidden(ids)[:, -1])


def step_rows(sizes: dict[str, int], lengths: Sequence[int], pairs: int) -> list[dict[str, Any]]:
    "Milliseconds for one more token, by kind of cache and number of tokens held."
    model, rows = llamas(sizes)[0], []
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
    "library": f"Greedy decoding of `tokens` tokens after a prompt of {PROMPT}, by {MODEL}. ratio: "
    f"median over the pairs of our time / that of HF transformers {transformers.__version__}'s "
    "`generate` (default cache); low, high: its 95 % interval. ours_tokens_s, hf_tokens_s: tokens "
    "a second over the whole batch, by the median time. As many CPU threads for both.",
    "steps": f"One more token when `held` are there, by a Llama of {MODEL}, batch 1. cache: "
    "preallocated (KVCache), growing (GrowingCache), or none (the whole text goes through again). "
    "ms: median; ratio: to the preallocated cache, median over the turns with its 95 % interval.",
}


def measure(part: str, quick: bool) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    if part == "library":
        return library_rows(TINY, (2,), 5, 3) if quick else library_rows(SIZES, (1,), 256, 20)
    return step_rows(TINY, (3, 7), 3) if quick else step_rows(SIZES, (16, 64, 256, 1023), 21)


def main(arguments: Sequence[str] | None = None) -> None:
    "Measure, print, and store each part as results/measurements/decoding_PART.json."
    parser = command_line(__doc__, quick="tiny sizes")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of both sides")
    given = choose(parser, arguments, ABOUT)
    torch.set_num_threads(given.threads)
    for part in given.parts:
        rows = [row | {"threads": given.threads} for row in measure(part, given.quick)]
        command = f"python -m benchmarks.decoding {part} --threads {given.threads}"
        report(f"decoding_{part}", ABOUT[part], command, rows, given)


if __name__ == "__main__":
    main()
