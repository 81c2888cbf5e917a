"""What a chain of modules, a gate or tables of values are worth to a small model of the plays."""

from collections.abc import Callable, Sequence
from itertools import islice, product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.runner import Experiment, Row, count
from transformer_lit.block.init import gpt2_init
from transformer_lit.course.data import load_text
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.models.more_than_one import (
    GatedAttention,
    MTPModule,
    MultiToken,
    ValueEmbedding,
    mtp_loss,
)
from transformer_lit.text.tokenizer import BPETokenizer
from transformer_lit.training.data import TextBatch, TextStream, text_blocks
from transformer_lit.training.schedule import cosine

V, C, LENGTH, BATCH, STEPS, TEXT = 512, 64, 32, 16, 200, 300_000
CONFIG = LlamaConfig(vocab_size=V, d_model=C, n_layers=3, n_heads=4, d_ff=176, max_len=LENGTH)
RATES, CHOOSES, SEEDS = (2.5e-3, 5e-3, 1e-2), 0, (1, 2)  # seed 0 chooses the rate


def chained(model: Llama) -> nn.Module:
    layer = Llama(LlamaConfig(**{**vars(CONFIG), "n_layers": 1})).layers[0]
    return MultiToken(model, [MTPModule(C, layer)])


def gated(model: Llama) -> nn.Module:
    for layer in model.layers:
        layer.attn = GatedAttention(layer.attn)
    return model


def with_values(model: Llama) -> nn.Module:
    return ValueEmbedding(model, {0: nn.Embedding(V, C), 2: nn.Embedding(V, C)})


ARMS: dict[str, Callable[[Llama], nn.Module]] = {
    "plain": lambda model: model,
    "one token more": chained,
    "gated attention": gated,
    "value embedding": with_values,
}


def build(arm: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = ARMS[arm](Llama(CONFIG))
    gpt2_init(model, CONFIG.n_layers)
    return model


def loss(model: nn.Module, batch: TextBatch) -> Tensor:
    "What is trained: per token."
    if isinstance(model, MultiToken):
        return mtp_loss(model(batch.ids), batch.targets)
    return F.cross_entropy(model(batch.ids).flatten(0, 1), batch.targets.flatten())


def train(arm: str, seed: int, rate: float, stream: TextStream, steps: int) -> nn.Module:
    net, schedule = build(arm, seed), cosine(rate, max(1, steps // 10), steps, final=0.1)
    optimizer = torch.optim.AdamW(net.parameters(), betas=(0.9, 0.99), weight_decay=0.0)
    for step, batch in enumerate(islice(stream, steps), 1):
        optimizer.param_groups[0]["lr"] = schedule(step)
        loss(net, batch).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return net.eval()


@torch.no_grad()
def measured(net: nn.Module, batches: Sequence[TextBatch]) -> Row:
    "The loss of the next token, and how often the module's most probable token is the model's."
    main = net.model if isinstance(net, MultiToken) else net
    losses, same = [], []
    for batch in batches:
        logits = main(batch.ids)
        losses.append(F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()))
        if isinstance(net, MultiToken):
            guess = net(batch.ids)[1].argmax(-1)  # at i: of token i + 2
            same.append((guess == logits[:, 1:].argmax(-1)).double().mean())
    agrees = sum(same).item() / len(same) if same else None
    return {"val_loss": sum(losses).item() / len(losses), "agrees": agrees}


def compared(
    steps: int = STEPS,
    rates: Sequence[float] = RATES,
    seeds: Sequence[int] = SEEDS,
    data: str = "tinyshakespeare",
) -> list[Row]:
    "For each arm: seed 0 at every rate, then the other seeds at the best of them."
    text = load_text(data, "train")[:TEXT]
    tokenizer = BPETokenizer.train(text.splitlines(keepends=True), V)
    ids = tokenizer.encode_text(text)
    held_out = text_blocks(tokenizer.encode_text(load_text(data, "val")), LENGTH, 64)[:8]

    def row(arm: str, seed: int, rate: float) -> Row:
        stream = TextStream(ids, length=LENGTH, batch_size=BATCH, seed=seed)
        net = train(arm, seed, rate, stream, steps)
        about = {"arm": arm, "seed": seed, "rate": rate, "parameters": count(net)}
        found = about | measured(net, held_out)
        print(found, flush=True)
        return found

    rows = [row(arm, CHOOSES, rate) for arm, rate in product(ARMS, rates)]
    for seed, arm in product(seeds, ARMS):
        tried = (found for found in rows if (found["arm"], found["seed"]) == (arm, CHOOSES))
        rows.append(row(arm, seed, min(tried, key=lambda found: found["val_loss"])["rate"]))
    return rows


MORE_THAN_ONE = Experiment(
    f"A Llama of 3 layers, {C} wide, learns the first {TEXT:,} characters of tinyshakespeare in "
    f"{V} BPE tokens: {STEPS} steps of {BATCH} blocks of {LENGTH}, AdamW, cosine to a tenth. "
    "arm: the plain model; with one MTP module, λ = 0.3; with a gate in each attention; with value "
    "embeddings in the first and the last layer. Seed 0 is trained at each of three peak rates and "
    "chooses the rate of the arm; the others have that rate. val_loss: nats per next token, of the "
    "model without its module, over the first 512 blocks of the held-out text. agrees: how often "
    "the module's most probable token is the model's own. parameters: in training.",
    compared,
    quick={"steps": 2, "seeds": (1,), "rates": (5e-3,), "data": "book"},
)
