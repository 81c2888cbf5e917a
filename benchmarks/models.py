"""Our Llama beside HF transformers' of the same sizes and weights: a training step, and decoding.

- `train`: the mean loss over a batch, its gradient, and a step of fused AdamW.
- `decode`: greedy decoding after a prompt, ours by `generate`, HF's by its `generate`.

Both sides start from the same weights, and before anything is timed they must have the same losses
over some steps and write the same words. They take turns, and each pair of neighbours gives one
ratio, so that what else the machine does falls on both. Peaks of memory are those of a process for
each side. `--quick` takes tiny sizes and few pairs, and stores nothing.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from transformers import LlamaConfig as TheirConfig
from transformers import LlamaForCausalLM

from benchmarks.common import MIB, command_line, compared, peak_bytes, report, take_turns
from transformer_lit.base.device import keep_freed_memory
from transformer_lit.inference.sampling import generate
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.training.loss import cross_entropy
from transformer_lit.training.schedule import adamw
from transformer_lit.training.trainer import mean_gradient

RATE = 1e-3  # of learning


@dataclass(frozen=True)
class Setting:
    "Sizes of the model and of the work."

    d_model: int = 384
    n_layers: int = 6
    n_heads: int = 6
    d_ff: int = 1024
    vocab_size: int = 65
    max_len: int = 256
    batch: int = 16  # of a training step
    batches: tuple[int, ...] = (1, 8)  # of decoding
    prompt: int = 16
    new: int = 128  # tokens


TINY = Setting(12, 2, 2, 17, 11, 13, batch=2, batches=(1, 3), prompt=5, new=7)


# --- the two models -----------------------------------------------------------------------------


def our_model(setting: Setting) -> Llama:
    "Our Llama, always with the same weights."
    torch.manual_seed(0)
    names = ("vocab_size", "d_model", "n_layers", "n_heads", "d_ff", "max_len")
    return Llama(LlamaConfig(**{name: getattr(setting, name) for name in names}))


def hf_llama(config: LlamaConfig) -> LlamaForCausalLM:
    "HF's Llama of the same sizes as ours."
    their = TheirConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.d_model,
        num_hidden_layers=config.n_layers,
        num_attention_heads=config.n_heads,
        intermediate_size=config.d_ff,
        max_position_embeddings=config.max_len,
        rms_norm_eps=config.eps,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_base},
        attn_implementation="sdpa",
        bos_token_id=0,
        eos_token_id=None,
    )
    return LlamaForCausalLM(their)


def their_model(setting: Setting) -> LlamaForCausalLM:
    "HF's Llama with the weights of ours."
    ours = our_model(setting)
    theirs = hf_llama(ours.config)
    theirs.load_state_dict(their_names(ours.state_dict()))
    return theirs


def their_names(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    "Our weights by HF's names."
    names = {
        "tok_emb": "model.embed_tokens",
        "final_norm": "model.norm",
        "layers.": "model.layers.",
        ".attn_residual.norm": ".input_layernorm",
        ".ffn_residual.norm": ".post_attention_layernorm",
        ".attn.": ".self_attn.",
        ".ffn.": ".mlp.",
    }
    theirs = {}
    for name, weight in ours.items():
        for our, their in names.items():
            name = name.replace(our, their)
        theirs[name] = weight
    return theirs


# --- what is timed: a function that makes the model, and gives the work to do again and again ---

Work = Callable[[], Any]


def our_training(setting: Setting, batch: int) -> Work:
    "A step as our trainer takes it; returns the mean loss."
    return training_step(our_model(setting), *blocks(setting, batch), RATE)


def training_step(model: nn.Module, ids: Tensor, targets: Tensor, rate: float) -> Work:
    "Mean loss, its gradient, fused AdamW, always on the same batch."
    optimizer = with_rate(adamw(model.train()), rate)

    def step() -> float:
        total, tokens = mean_gradient(model, [cross_entropy(model(ids), targets)])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total.item() / tokens

    return step


def their_training(setting: Setting, batch: int) -> Work:
    "The same step on HF's model, with torch's mean loss: HF's own shifts the targets once more."
    model = their_model(setting).train()
    optimizer = with_rate(adamw(model), RATE)
    ids, targets = blocks(setting, batch)

    def step() -> float:
        logits = model(input_ids=ids, use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def our_decoding(setting: Setting, batch: int) -> Work:
    "Greedy decoding by `generate`; returns the new tokens."
    model, prompt = our_model(setting).eval(), text(setting, batch, setting.prompt)
    return partial(generate, model, prompt, max_new=setting.new, temperature=0)


def their_decoding(setting: Setting, batch: int) -> Work:
    "The same by HF's `generate`, with its cache, and with the mask that it would have to guess."
    model, prompt = their_model(setting).eval(), text(setting, batch, setting.prompt)
    options = {"max_new_tokens": setting.new, "do_sample": False, "use_cache": True}
    options |= {"attention_mask": torch.ones_like(prompt), "pad_token_id": 0}

    @torch.inference_mode()
    def write() -> list[list[int]]:
        return model.generate(prompt, **options)[:, setting.prompt :].tolist()

    return write


def text(setting: Setting, batch: int, length: int) -> Tensor:
    "Ids that stand for text: drawn, but always the same."
    return torch.randint(
        setting.vocab_size, (batch, length), generator=torch.Generator().manual_seed(1)
    )


def blocks(setting: Setting, batch: int) -> tuple[Tensor, Tensor]:
    "Ids of whole contexts, and what follows each."
    ids = text(setting, batch, setting.max_len + 1)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def with_rate(optimizer: torch.optim.Optimizer, rate: float) -> torch.optim.Optimizer:
    for group in optimizer.param_groups:
        group["lr"] = rate
    return optimizer


SIDES = {
    "train": {"ours": our_training, "hf": their_training},
    "decode": {"ours": our_decoding, "hf": their_decoding},
}


# --- measuring ----------------------------------------------------------------------------------


def check_equal(part: str, ours: Work, theirs: Work, *, terms: int) -> None:
    """The sides must do the same work: losses of three steps to rounding, or the same words.

    A loss is a mean over `terms` tokens in fp32: two orders of adding them may differ by as many ε.
    """
    repeats = 3 if part == "train" else 1
    found = ([torch.tensor(side()) for _ in range(repeats)] for side in (ours, theirs))
    rounding = terms * torch.finfo(torch.float32).eps
    torch.testing.assert_close(*found, rtol=rounding, atol=0)


def peak(part: str, side: str, quick: bool, batch: int) -> int:
    "Bytes that one side adds to the peak of this process, model included. Ask once in a process."
    make, setting = SIDES[part][side], TINY if quick else Setting()
    make(TINY, 2)()  # what is loaded at the first call
    before = peak_bytes()
    work = make(setting, batch)
    for _ in range(3 if part == "train" else 1):  # the optimiser has its state after the first
        work()
    return peak_bytes() - before


def peak_of_process(threads: int, *asked: Any) -> int:
    "The same by a process of its own; `asked` is part, side, whether quick, and batch."
    command = [sys.executable, "-m", "benchmarks.models", "--threads", str(threads)]
    command += ["--child", json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout)


def measure(part: str, batch: int, threads: int, quick: bool, pairs: int) -> dict[str, Any]:
    "A row: how many times as long ours takes, tokens a second and peaks of both."
    setting = TINY if quick else Setting()
    torch.set_num_threads(threads)
    ours, theirs = (make(setting, batch) for make in SIDES[part].values())
    check_equal(part, ours, theirs, terms=batch * setting.max_len)
    clock = time.process_time if threads == 1 else time.perf_counter
    seconds = take_turns((ours, theirs), pairs, clock)
    row = {"work": part, "batch": batch, "threads": threads, "clock": clock.__name__}
    row |= compared(seconds)
    tokens = batch * (setting.max_len if part == "train" else setting.new)
    for side, spent in zip(SIDES[part], seconds, strict=True):
        row[f"{side}_tokens_s"] = tokens / median(spent)
    for side in SIDES[part]:  # a quick run does not wait for processes; its peaks mean nothing
        asked = part, side, quick, batch
        row[f"{side}_mib"] = (peak if quick else partial(peak_of_process, threads))(*asked) / MIB
    return row


# --- the command --------------------------------------------------------------------------------

ABOUT = (
    "A row compares our Llama with LlamaForCausalLM (sdpa) of HF transformers "
    f"{transformers.__version__}: same sizes (6 layers, width 384, 6 heads, d_ff 1024, 65 tokens in"
    " the vocabulary), same weights, fp32, sides in turn. work: train (mean loss of `batch` rows of"
    " 256 tokens, gradient, step of fused AdamW) or decode (128 greedy tokens for each of `batch` "
    "prompts of 16). ratio: median over the pairs of our time / HF's; low, high: its 95 % interval "
    "by order statistics. clock: process_time is the time on the core, without waiting for it; "
    "perf_counter the time that passed. tokens_s: tokens a second, by the median time. mib: MiB "
    "that the model and the work add to the peak of a process of their own. bf16: not run, the CPU "
    "has no unit for it."
)


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    "Measure, print, and store as results/measurements/models.json unless `--quick`."
    parser = command_line(__doc__, quick="tiny sizes, three pairs")
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1], help="CPU threads, each once"
    )
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    keep_freed_memory()  # as our recipes do on a CPU; here for both sides
    if given.child:
        torch.set_num_threads(*given.threads)
        print(peak(*given.child))
        return []
    setting, pairs = (TINY, 3) if given.quick else (Setting(), 21)
    asked = [("train", setting.batch), *(("decode", batch) for batch in setting.batches)]
    rows = [
        measure(part, batch, threads, given.quick, pairs)
        for threads in given.threads
        for part, batch in asked
    ]
    command = f"python -m benchmarks.models --threads {' '.join(map(str, given.threads))}"
    report("models", ABOUT, command, rows, given)
    return rows


if __name__ == "__main__":
    main()
