"""What a published model loses when it sees a window of the text, with and without the start."""

import torch
import torch.nn.functional as F

from experiments.runner import Experiment, Row
from transformer_lit import load
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.windows import Window
from transformer_lit.course.data import load_text

VIEWS = ((None, 0), (256, 0), (255, 1), (252, 4))  # size, first


@torch.no_grad()
def losses(model: str = "smollm2", length: int = 2048) -> list[Row]:
    "Each view of the same text, in one pass; a window's mask gives what its cache would give."
    shipped = load(model)
    text = load_text("tinyshakespeare", "val")[: 8 * length]
    ids = torch.tensor([shipped.tokenizer.encode(text)[: length + 1]])  # 1 T+1
    rows = []
    for size, first in VIEWS:
        for layer in shipped.model.layers:
            layer.attn.attend = attend_fused if size is None else Window(size, first)
        logits = shipped.model.eval()(ids[:, :-1])[0, 256:]
        loss = F.cross_entropy(logits, ids[0, 257:]).item()
        rows.append({"size": size, "first": first, "loss": loss, "tokens": len(logits)})
    return rows


STREAMING = Experiment(
    "SmolLM2-135M-Instruct, trained without windows, reads 2,048 tokens of Shakespeare's plays "
    "(the start of the held-out part). Each query sees the last `size` positions (null: all before"
    " it) and the first `first` of the text. loss: nats per token, mean over the positions behind "
    "the first 256; tokens: how many these are.",
    losses,
    quick={"model": "shakespeare", "length": 300},
)
