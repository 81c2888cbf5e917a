"""A decoding step with and without a cache; and a published model in 32, 8 and fewer bits.

`steps` times one more token when `held` tokens are there; without a cache the whole text goes
through again. Weights are random: the time does not depend on what is drawn. `python -m benchmarks`
has our decoders beside those of a library.

`smollm2` times 64 tokens of SmolLM2 from one file: ours in float32, int8 and int4, the reference
library in float32, and llama.cpp where xllamacpp is installed; and how long it takes to read the
weights, which no decoder in float32 can undercut. Beside the reference library it also times how
long the model takes to be opened and to read a prompt, and measures the memory for it: `opening`.
It needs the file: `transformer-lit data fetch smollm2`.

`--quick` takes tiny sizes, few tokens and few pairs, and stores nothing.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks import opening, peers
from benchmarks.common import choose, command_line, compared, report, take_turns
from benchmarks.models import hf_writes
from transformer_lit.attention.cache import DecodingState, GrowingCache
from transformer_lit.course.data import paths
from transformer_lit.inference.sampling import generate
from transformer_lit.models.gguf import load_gguf
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.models.quantise import KEEP

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


# --- a published model, in several numbers of bits ----------------------------------------------

PROMPT = "A man is riding a bike. He"


def held(model: torch.nn.Module) -> int:
    "Bytes of the parameters, a tied table once; a decoder reads about as many for each token."
    return sum(w.numel() * w.element_size() for w in model.parameters())


def smollm2_rows(new: int, pairs: int, *, T: int) -> list[dict[str, Any]]:
    """Tokens a second of each side, and what share of the bandwidth its weights take up.

    Then what it takes to open the model, and to read a prompt of T tokens.
    """
    (path,) = paths("smollm2")
    published = load_gguf(path)
    theirs = peers.hf_llama(published.model).eval()
    ids = published.tokenizer.encode(PROMPT)
    prompt = torch.tensor([ids])
    ours = {"float32": published.model}
    ours |= {weights: load_gguf(path, weights=weights).model for weights in KEEP}
    sides: dict[str, Callable[[], Any]] = {
        name: partial(generate, model, prompt, max_new_tokens=new, temperature=0)
        for name, model in ours.items()
    }
    options = {"max_new_tokens": new}
    sides["transformers"] = partial(hf_writes, theirs, prompt, torch.ones_like(prompt), **options)
    sizes = {name: held(model) for name, model in ours.items()}
    sizes["transformers"] = sizes["float32"]
    if peers.HAS_LLAMA_CPP:
        sides["llama.cpp"] = peers.llama_cpp_writes(path, ids, new)
        sizes["llama.cpp"] = path.stat().st_size
    assert sides["float32"]() == sides["transformers"](), "they must write the same"

    @torch.inference_mode()
    def read() -> list[Tensor]:
        return [w.sum() for w in published.model.parameters()]

    spent = take_turns([*sides.values(), read], pairs, time.process_time)
    reading = sizes["float32"] / median(spent.pop())  # bytes a second
    rows = []
    for name, seconds in zip(sides, spent, strict=True):
        rate = new / median(seconds)
        row = {"side": name, "tokens_s": rate, "mb": sizes[name] / 1e6}
        row["of_bandwidth"] = rate * sizes[name] / reading
        rows.append(row | {"read_gb_s": reading / 1e9} | compared([seconds, spent[0]]))
    rows += opening.time_rows(path, published, theirs, T, pairs)
    return rows + opening.memory_rows(path, sizes["float32"])


# --- the command --------------------------------------------------------------------------------

MODEL = "6 layers, width 384, 6 heads, d_ff 1536, 256 tokens in the vocabulary, fp32"
ABOUT = {
    "steps": f"One more token when `held` are there, by a Llama of {MODEL}, batch 1. cache: "
    "preallocated (KVCache), growing (GrowingCache), or none (the whole text goes through again). "
    "ms: median; ratio: to the preallocated cache, median over the turns with its 95 % interval.",
    "smollm2": "SmolLM2-135M-Instruct from its Q4_1 file: 64 greedy tokens after a prompt of 8, "
    "batch 1; sides in turn; seconds of the process. tokens_s: new tokens a second, by the median "
    "time. ratio: time / that of ours in float32, median over the turns with its 95 % interval. "
    "mb: of the weights as the side keeps them (int8: a scale a row; int4: the "
    "file's blocks of 32, the table in 8 bits); for llama.cpp the size of the file. read_gb_s: "
    "bytes a second when all float32 weights are added up, in the same turns. of_bandwidth: "
    "tokens_s times mb over that. transformers writes the same tokens as float32. Rows that have "
    "work: open a folder: model and tokenizer, of safetensors in float32; open the file: the same, "
    "of the Q4_1 file; read 512 tokens: into an empty cache, logits of the last. seconds: ours; "
    "theirs: of transformers; ratio: ours / theirs, as above. memory: what opening the "
    "file adds to the peak of a process, over the bytes of the float32 weights.",
}


def measure(part: str, quick: bool) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    if part == "smollm2":
        return smollm2_rows(2, 3, T=16) if quick else smollm2_rows(64, 11, T=512)
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
