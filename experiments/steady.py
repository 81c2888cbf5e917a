"""A small Llama at higher and higher rates: as it is, and with one remedy at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.runner import Experiment, Row
from transformer_lit.attention.steady import PerHead, SoftCap, z_loss
from transformer_lit.block.norm import RMSNorm
from transformer_lit.course.data import load_text
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.text.tokenizer import CharTokenizer
from transformer_lit.training.schedule import adamw, cosine

C, H, LAYERS, T, BATCH, STEPS, WARMUP = 64, 4, 2, 64, 8, 200, 20
EVERY, TRAIN, HELD_OUT = 10, 1_000_000, 64  # steps between two looks, characters, texts
SEEDS = dict.fromkeys((3e-3, 1e-2, 3e-2, 1e-1), (0, 1, 2))  # of each rate


@dataclass(frozen=True)
class Arm:
    "What differs from the plain training."

    qk_norm: bool = False
    cap: float | None = None  # of the attention logits; Gemma 2's
    z: float = 0.0  # weight of the z-loss; PaLM's
    beta2: float = 0.95


ARMS = {
    "plain": Arm(),
    "QK-norm": Arm(qk_norm=True),
    "soft-cap": Arm(cap=50.0),
    "z-loss": Arm(z=1e-4),
    "β₂ = 0.999": Arm(beta2=0.999),
}


@dataclass
class Watched:
    "An `attend` that notes the largest logit, before any cap, while gradients are off."

    inner: SoftCap | None
    largest: list[float] = field(default_factory=list)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, **how) -> Tensor:
        if not torch.is_grad_enabled():
            logits = (q @ k.mT).tril() * q.shape[-1] ** -0.5  # B H T T; hidden ones are 0
            self.largest.append(logits.abs().max().item())
        if self.inner is not None:
            return self.inner(q, k, v, **how)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def build(arm: Arm, vocab_size: int) -> Llama:
    model = Llama(LlamaConfig(vocab_size, C, LAYERS, H, d_ff=160, max_len=T))
    for attn in (layer.attn for layer in model.layers):
        attn.attend = Watched(None if arm.cap is None else SoftCap(arm.cap))
        if arm.qk_norm:
            for name in ("q_proj", "k_proj"):
                norm = PerHead(RMSNorm(attn.d_head), attn.d_head)
                setattr(attn, name, nn.Sequential(getattr(attn, name), norm))
    return model


def train(arm: Arm, rate: float, seed: int, steps: int, ids: Tensor, new: Tensor) -> Row:
    "One training; the losses in nats per character."
    torch.manual_seed(seed)
    model = build(arm, int(max(ids.max(), new.max())) + 1)
    optimizer = adamw(model, betas=(0.9, arm.beta2), eps=1e-8)
    schedule = cosine(rate, WARMUP, steps)
    largest, losses = 0.0, []
    for step in range(1, steps + 1):
        at = torch.randint(len(ids) - T, (BATCH, 1)) + torch.arange(T + 1)  # B T+1
        logits = model(ids[at][:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[at][:, 1:].flatten())
        losses.append(loss.item())
        optimizer.zero_grad()
        (loss + arm.z * z_loss(logits)).backward()
        for group in optimizer.param_groups:
            group["lr"] = schedule(step)
        optimizer.step()
        if step % EVERY == 0:
            with torch.no_grad():
                model(new[:BATCH, :-1])
            seen = [layer.attn.attend.largest for layer in model.layers]
            largest = max(largest, *(x for found in seen for x in found))
    with torch.no_grad():
        logits = model(new[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), new[:, 1:].flatten())
    return {
        "val_loss": loss.item(),
        "jump": max(after - before for after, before in zip(losses[WARMUP:], losses[WARMUP - 1 :])),
        "logit": largest,
        "log_z": z_loss(logits).sqrt().item(),
    }


def steady(
    steps: int = STEPS, seeds: Mapping[float, Sequence[int]] = MappingProxyType(SEEDS)
) -> list[Row]:
    "Every arm at every rate with the seeds of that rate."
    text, new = load_text("stories", "train")[:TRAIN], load_text("stories", "val")
    tokenizer = CharTokenizer.train(text + new)
    ids = tokenizer.encode_text(text)
    new = tokenizer.encode_text(new[: HELD_OUT * (T + 1)]).view(HELD_OUT, T + 1)
    rows = []
    grid = [(rate, seed) for rate in seeds for seed in seeds[rate]]
    for (rate, seed), (name, arm) in product(grid, ARMS.items()):
        about = {"arm": name, "rate": rate, "seed": seed}
        rows.append(about | train(arm, rate, seed, steps, ids, new))
        print(rows[-1], flush=True)
    return rows


STEADY = Experiment(
    f"A Llama of {LAYERS} layers ({C} wide, {H} heads) reads the characters of little stories, "
    f"{BATCH} texts of {T} a step, for {STEPS} steps; {WARMUP} of them warm up to `rate`, a cosine "
    "leads down to a tenth of it. AdamW, no decay, nothing is clipped. arm: what differs from "
    "plain, which has β₂ = 0.95; the cap is 50 and the weight of the z-loss 0.0001. val_loss: nats "
    f"per character over {HELD_OUT} held-out texts, at the end. jump: by how much the loss rose "
    "from one step to the next at most, after the warm-up. logit: the largest attention logit in "
    f"absolute value, before any cap, over {BATCH} held-out texts at each {EVERY}th step. log_z: "
    "root mean square of log Z over the held-out texts at the end.",
    steady,
    quick={"steps": 30, "seeds": {1e-2: (0,)}},
)
