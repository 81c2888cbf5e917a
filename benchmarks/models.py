"""Our models beside other libraries' on equal work: a training step, greedy decoding, beam search.

- `train`: the mean loss over a batch, its gradient, and a step of fused AdamW.
- `greedy`: ours by `generate`, HF's by its `generate`, both with a cache.
- `beam`: ours by `beam_search`, HF's by its `generate`; no token ends a sentence.

All sides start from the same weights, and before anything is timed they must have the same losses
over some steps or write the same words. They take turns, and each turn gives one ratio for each
peer, so that what else the machine does falls on all.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import peers
from benchmarks.common import compared, take_turns
from transformer_lit.inference.beam import beam_search
from transformer_lit.inference.sampling import generate
from transformer_lit.models.gpt import GPT, GPTConfig
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.models.transformer import Transformer, TransformerConfig
from transformer_lit.recipes.translation import translation_loss
from transformer_lit.training.data import PairBatch, collate
from transformer_lit.training.loss import cross_entropy
from transformer_lit.training.schedule import adamw
from transformer_lit.training.trainer import mean_gradient

RATE = 1e-3  # of learning
BEAM = 5


@dataclass(frozen=True)
class Setting:
    "Sizes of the models and of the work."

    d_model: int = 384
    n_layers: int = 6
    n_heads: int = 6
    d_ff: int = 1536  # of the GPT
    gated: int = 1024  # of the Llama: as many weights
    vocab_size: int = 256
    max_len: int = 256
    prompt: int = 16
    new: int = 48  # tokens
    translator: tuple[int, ...] = (8000, 256, 1024, 4, 3)  # V, C, F, H, layers of each stack
    lengths: tuple[int, int] = (8, 20)  # of a sentence, at least and at most
    words: int = 24  # of a translation


TINY = Setting(12, 2, 2, 17, 11, 11, 13, 5, 7, (29, 12, 17, 2, 2), (2, 5), 5)


@dataclass(frozen=True)
class Row:
    "What is compared, and on how much."

    model: str  # a key of MODELS
    work: str
    batch: int  # rows of tokens, prompts, or pairs of sentences
    dtype: str = "fp32"  # or bf16, by autocast

    @property
    def name(self) -> str:
        return f"{self.model} {self.work} {self.dtype if self.work == 'train' else self.batch}"


ROWS = (
    Row("translator", "train", 32),
    Row("translator", "train", 32, "bf16"),
    Row("translator", "beam", 8),
    Row("gpt", "train", 2),
    Row("gpt", "train", 2, "bf16"),
    Row("gpt", "greedy", 8),
    Row("gpt", "greedy", 1),
    Row("llama", "train", 2),
    Row("llama", "train", 2, "bf16"),
    Row("llama", "greedy", 8),
    Row("llama", "greedy", 1),
)


# --- the models ---------------------------------------------------------------------------------


def translator(setting: Setting) -> Transformer:
    V, C, F_, H, layers = setting.translator
    return Transformer(TransformerConfig(V, C, F_, H, layers, dropout=0.0))


def gpt(setting: Setting) -> GPT:
    names = ("vocab_size", "d_model", "n_layers", "n_heads", "d_ff", "max_len")
    return GPT(GPTConfig(**{name: getattr(setting, name) for name in names}, dropout=0.0))


def llama(setting: Setting) -> Llama:
    names = ("vocab_size", "d_model", "n_layers", "n_heads", "max_len")
    sizes = {name: getattr(setting, name) for name in names}
    return Llama(LlamaConfig(**sizes, d_ff=setting.gated))


MODELS: dict[str, Callable[[Setting], nn.Module]] = {
    "translator": translator,
    "gpt": gpt,
    "llama": llama,
}


def our_model(name: str, setting: Setting) -> nn.Module:
    "A model of ours, always with the same weights."
    torch.manual_seed(0)
    return MODELS[name](setting)


# The peers of each model, HF's first: with litgpt it alone has a cache, and decodes.
PEERS: dict[str, dict[str, Callable[[Any], nn.Module]]] = {
    "translator": {"HF Marian": peers.hf_marian, "torch.nn": peers.torch_translator},
    "gpt": {"HF GPT-2": peers.hf_gpt2, "nanoGPT": peers.nanogpt},
    "llama": {"HF Llama": peers.hf_llama}
    | ({"litgpt": peers.litgpt_llama} if peers.HAS_LITGPT else {}),
}


# --- what they read -----------------------------------------------------------------------------


def text(setting: Setting, batch: int, length: int) -> Tensor:
    "Ids that stand for text: drawn, but always the same."
    return torch.randint(
        setting.vocab_size, (batch, length), generator=torch.Generator().manual_seed(1)
    )


def blocks(setting: Setting, batch: int) -> tuple[Tensor, Tensor]:
    "Ids of whole contexts, and what follows each."
    ids = text(setting, batch, setting.max_len + 1)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def pairs(setting: Setting, batch: int) -> PairBatch:
    "Pairs of sentences of unequal length."
    draw = torch.Generator().manual_seed(1)

    def sentence() -> list[int]:
        low, high = setting.lengths
        length = torch.randint(low, high + 1, (), generator=draw).item()
        return torch.randint(3, setting.translator[0], (length,), generator=draw).tolist()

    made = [(sentence(), sentence()) for _ in range(batch)]
    return collate(made, pad_id=0, bos=1, eos=2)


# --- a training step ----------------------------------------------------------------------------

Work = Callable[[], Any]


def in_dtype(dtype: str, device: str) -> AbstractContextManager[Any]:
    return nullcontext() if dtype == "fp32" else torch.autocast(device, torch.bfloat16)


def training_step(
    model: nn.Module, loss: Callable[[], tuple[Tensor, int]], rate: float = RATE
) -> Work:
    "A step as our trainer takes it, always on the same batch; returns the mean loss."
    optimizer = with_rate(adamw(model.train()), rate)

    def step() -> float:
        total, tokens = mean_gradient(model, [loss()])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total.item() / tokens

    return step


def their_step(model: nn.Module, mean_loss: Callable[[], Tensor]) -> Work:
    "The same step with torch's mean loss; HF's own would shift the targets once more."
    optimizer = with_rate(adamw(model.train()), RATE)

    def step() -> float:
        loss = mean_loss()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def with_rate(optimizer: torch.optim.Optimizer, rate: float) -> torch.optim.Optimizer:
    for group in optimizer.param_groups:
        group["lr"] = rate
    return optimizer


def training(row: Row, setting: Setting, device: str) -> tuple[dict[str, Work], int]:
    if row.model == "translator":
        return translator_training(row, setting, device)
    ours = our_model(row.model, setting).to(device)
    ids, targets = (x.to(device) for x in blocks(setting, row.batch))

    def our_loss() -> tuple[Tensor, int]:
        with in_dtype(row.dtype, device):
            return cross_entropy(ours(ids), targets)

    def their_loss(model: nn.Module, **options: bool) -> Tensor:
        with in_dtype(row.dtype, device):
            logits = model(ids, **options)
            logits = getattr(logits, "logits", logits)
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    sides = {}
    for name, make in PEERS[row.model].items():
        peer = make(ours).to(device)
        options = {"use_cache": False} if name.startswith("HF") else {}
        sides[name] = their_step(peer, partial(their_loss, peer, **options))
    return {"ours": training_step(ours, our_loss)} | sides, ids.numel()


def translator_training(row: Row, setting: Setting, device: str) -> tuple[dict[str, Work], int]:
    "The loss is that of the real target tokens; HF's model makes logits for the padding too."
    ours = our_model(row.model, setting).to(device)
    batch = pairs(setting, row.batch).to(device)
    hf, native = (make(ours).to(device) for make in PEERS[row.model].values())
    targets = batch.tgt_out.masked_fill(~batch.tgt_mask, -100)

    def our_loss() -> tuple[Tensor, int]:
        with in_dtype(row.dtype, device):
            return translation_loss(ours, batch)

    def hf_loss() -> Tensor:
        given = {"attention_mask": batch.src_mask.long(), "decoder_input_ids": batch.tgt_in}
        with in_dtype(row.dtype, device):
            logits = hf(batch.src, use_cache=False, **given).logits
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def native_loss() -> Tensor:
        with in_dtype(row.dtype, device):
            logits = native(batch.src, batch.tgt_in, batch.src_mask, batch.tgt_mask)
            return F.cross_entropy(logits, batch.tgt_out[batch.tgt_mask])

    losses = hf_loss, native_loss
    made = zip(PEERS[row.model], map(their_step, (hf, native), losses), strict=True)
    return {"ours": training_step(ours, our_loss)} | dict(made), int(batch.tgt_mask.sum())


# --- decoding -----------------------------------------------------------------------------------


def hf_writes(model: nn.Module, ids: Tensor, mask: Tensor, **options: Any) -> list[list[int]]:
    "The new tokens of HF's `generate`; a decoder-only model gives the prompt back before them."
    with torch.inference_mode():
        how = {"attention_mask": mask, "do_sample": False, "use_cache": True, "pad_token_id": 0}
        found = model.generate(ids, **how, **options)
    return found[:, -options["max_new_tokens"] :].tolist()


def greedy(row: Row, setting: Setting, device: str) -> tuple[dict[str, Work], int]:
    ours = our_model(row.model, setting).eval().to(device)
    prompt = text(setting, row.batch, setting.prompt).to(device)
    mask = torch.ones_like(prompt)
    sides = {"ours": partial(generate, ours, prompt, max_new_tokens=setting.new, temperature=0)}
    for name, make in PEERS[row.model].items():
        if name == "litgpt":
            theirs = make(ours).eval().to(device)
            sides[name] = partial(peers.litgpt_writes, theirs, prompt, setting.new)
        elif name.startswith("HF"):
            theirs = make(ours).eval().to(device)
            sides[name] = partial(hf_writes, theirs, prompt, mask, max_new_tokens=setting.new)
    return sides, row.batch * setting.new


def beam(row: Row, setting: Setting, device: str) -> tuple[dict[str, Work], int]:
    "The best of 5 beams; an end token that does not exist, and no length penalty."
    ours = our_model(row.model, setting).eval().to(device)
    batch = pairs(setting, row.batch).to(device)
    name, make = next(iter(PEERS[row.model].items()))
    theirs, mask = make(ours).eval().to(device), batch.src_mask.long()
    limits = {"bos": 1, "eos": -1, "max_len": setting.words, "beam": BEAM, "alpha": 0}

    def we_write() -> list[list[int]]:
        found = beam_search(ours, batch.src, batch.src_mask, **limits)
        return [list(best.ids) for (best,) in found]

    options = {"num_beams": BEAM, "length_penalty": 0.0, "max_new_tokens": setting.words}
    they_write = partial(hf_writes, theirs, batch.src, mask, **options)
    return {"ours": we_write, name: they_write}, row.batch * setting.words


WORKS = {"train": training, "greedy": greedy, "beam": beam}


# --- measuring ----------------------------------------------------------------------------------


def check_equal(row: Row, sides: dict[str, Work], *, terms: int) -> None:
    """The sides must do the same work: losses of three steps to rounding, or the same words.

    A loss is a mean over `terms` tokens in fp32: two orders of adding them may differ by as many ε.
    In bf16 each layer rounds: the losses may differ by an ε of bf16.
    """
    repeats = 3 if row.work == "train" else 1
    rounding = terms * torch.finfo(torch.float32).eps
    if row.dtype == "bf16":
        rounding = torch.finfo(torch.bfloat16).eps
    ours, *others = ([torch.tensor(side()) for _ in range(repeats)] for side in sides.values())
    for other in others:
        torch.testing.assert_close(ours, other, rtol=rounding, atol=0)


def the_clock(device: str, threads: int) -> Callable[[], float]:
    "The time on the core with one thread; else the time that passes, when the device has done all."
    if device == "cpu":
        return time.process_time if threads == 1 else time.perf_counter

    def perf_counter() -> float:
        torch.accelerator.synchronize()
        return time.perf_counter()

    return perf_counter


def measure(row: Row, setting: Setting, turns: int, device: str = "cpu") -> dict[str, Any]:
    "How many times as long ours takes as each peer; tokens a second of all."
    threads = torch.get_num_threads()
    clock = the_clock(device, threads)
    sides, tokens = WORKS[row.work](row, setting, device)
    check_equal(row, sides, terms=tokens)
    seconds = take_turns(list(sides.values()), turns, clock)
    spent = dict(zip(sides, seconds, strict=True))
    ours = spent.pop("ours")
    fastest = min(spent, key=lambda name: median(spent[name]))
    found = {"row": row.name, **vars(row), "threads": threads, "clock": clock.__name__}
    found |= {"fastest": fastest}
    found |= compared([ours, spent[fastest]]) | {"tokens_s": tokens / median(ours)}
    found["peers"] = [
        {"peer": name} | compared([ours, theirs]) | {"tokens_s": tokens / median(theirs)}
        for name, theirs in spent.items()
    ]
    return found
