"""What the heads of the shipped translation model look at in one sentence, for chapters to draw.

The model translates the sentence greedily; then sentence and translation go through it once more,
and each attention tells its weights. A pattern in one sentence may be chance: so there is also the
mean weight that a query gives to the positions beside its own, over many captions.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments.runner import Experiment, Row
from transformer_lit import load
from transformer_lit.attention.attend import attention_weights
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.course.data import load_pairs
from transformer_lit.inference.sampling import generate
from transformer_lit.recipes.translation import Translator

MODEL, SENTENCE = "multi30k-en-de", "A man is riding a bike."
OFFSETS = {"previous": -1, "own": 0, "next": 1}


def attentions(model: torch.nn.Module) -> dict[tuple[str, int], MultiHeadAttention]:
    "Each attention of the translator, by its part and the number of its layer from 1."
    found = {("encoder", n): layer.attn for n, layer in enumerate(model.encoder, 1)}
    for n, layer in enumerate(model.decoder, 1):
        found["decoder", n], found["cross", n] = layer.attn, layer.cross_attn
    return found


@torch.inference_mode()
def weights_of(
    translator: Translator, source: list[int], target: list[int]
) -> dict[tuple[str, int], Tensor]:
    "H T S for each attention, when the decoder reads `target` (which begins with bos)."
    seen: dict[tuple[str, int], Tensor] = {}

    def listen(name: tuple[str, int], q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        asked = {key: options[key] for key in ("mask", "bias", "causal", "scale")}
        seen[name] = attention_weights(q, k, **asked)[0]
        return attend_fused(q, k, v, **options)

    plugs = attentions(translator.model)
    for name, attention in plugs.items():
        attention.attend = partial(listen, name)
    translator.model(torch.tensor([source]), torch.tensor([target]))
    for attention in plugs.values():
        attention.attend = attend_fused
    return seen


def greedy(translator: Translator, source: list[int]) -> list[int]:
    tokenizer = translator.tokenizer
    begin = torch.tensor([[tokenizer.bos_id]])
    options = {"max_new_tokens": 2 * len(source) + 10, "eos": tokenizer.eos_id, "temperature": 0}
    return generate(translator.model, begin, src=torch.tensor([source]), **options)[0]


def mean_at(weights: Tensor, offset: int) -> Tensor:
    "H: what queries give to the position `offset` from their own, on the mean, where there is one."
    return weights.diagonal(offset, dim1=-2, dim2=-1).mean(-1)


def look(dataset: str = "multi30k", captions: int = 200) -> list[Row]:
    "A row of tokens, and one for each head: its weights in the sentence, and its habits."
    translator = load(MODEL)
    tokenizer = translator.tokenizer
    source = [*translator.encode([SENTENCE])[0], tokenizer.eos_id]
    target = [tokenizer.bos_id, *greedy(translator, source)]
    maps = weights_of(translator, source, target)
    sums = {name: torch.zeros(len(OFFSETS), len(weights)) for name, weights in maps.items()}
    for pair in load_pairs(dataset, "en", "de", "val")[:captions]:
        first, second = tokenizer.encode_all([text.strip() for text in pair])
        ids = [*first, tokenizer.eos_id], [tokenizer.bos_id, *second]
        for name, weights in weights_of(translator, *ids).items():
            sums[name] += torch.stack([mean_at(weights, offset) for offset in OFFSETS.values()])
    words = {"source": words_of(tokenizer, source), "target": words_of(tokenizer, target)}
    rows: list[Row] = [{"part": "tokens", **words}]
    for (part, layer), weights in maps.items():
        for head in range(len(weights)):
            row = {"part": part, "layer": layer, "head": head + 1}
            if part != "cross":  # there, the same place is not the same word
                means = (sums[part, layer][:, head] / captions).tolist()
                row |= {name: round(x, 3) for name, x in zip(OFFSETS, means, strict=True)}
            row["weights"] = [[round(x, 3) for x in line] for line in weights[head].tolist()]
            rows.append(row)
    return rows


def words_of(tokenizer: Any, ids: list[int]) -> list[str]:
    "Each token as it reads; the begin and the end token as their names."
    names = {tokenizer.bos_id: "bos", tokenizer.eos_id: "eos"}
    return [names.get(i) or tokenizer.decode([i]).strip() for i in ids]


HEADS = Experiment(
    f"The first row: tokens of {SENTENCE!r} with an end token, and of its greedy translation by "
    f"the shipped model {MODEL} after the begin token. Then a row for each head (layers and heads "
    "counted from 1). weights: what each query (row) gives to each key, to three digits. previous, "
    "own, next: the mean weight at these places over the first 200 captions of Multi30k's "
    "validation split, with the human translation as target.",
    look,
    quick={"dataset": "numbers", "captions": 3},
)
