"""Of the last ids alone, logits are those that all ids give; the output layer reads no more."""

import pytest
import torch
from torch.testing import assert_close

from transformer_lit.inference.sampling import LeftPadded, generate, pad_left
from transformer_lit.inference.speculative import ModelDraft, speculate
from transformer_lit.models.assembly import AssemblyConfig, assemble
from transformer_lit.models.gpt import GPT, GPTConfig
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.models.recurrent import Recurrent, RecurrentConfig
from transformer_lit.models.transformer import Transformer, TransformerConfig

V, T = 29, 13
SIZES = {"vocab_size": V, "d_model": 24, "n_layers": 2, "n_heads": 3, "d_ff": 17}
MODELS = {
    "gpt": lambda: GPT(GPTConfig(**SIZES, max_len=31)),
    "llama": lambda: Llama(LlamaConfig(**SIZES, max_len=31)),
    "alibi": lambda: assemble(AssemblyConfig(**SIZES, max_len=31, position="alibi")),
    "transformer": lambda: Transformer(TransformerConfig(**SIZES)),
    "recurrent": lambda: Recurrent(RecurrentConfig(V, d_model=24)),
}
READING = ("transformer", "recurrent")  # a source


@pytest.fixture(params=MODELS)
def model(request):
    model = MODELS[request.param]().eval()
    for parameter in model.parameters():
        parameter.data *= 3 if parameter.ndim > 1 else 1
    model.source = (torch.randint(V, (3, 7)),) if request.param in READING else ()
    return model


@pytest.mark.parametrize("cuts", [(T,), (1,) * T, (5, 1, 7), (2, 11)])
def test_the_last_logits_are_the_last_of_all(model, cuts):
    ids = torch.randint(V, (3, T))
    whole, part = (model.start(3, T, *model.source) for _ in range(2))
    for n, piece in enumerate(ids.split(cuts, 1)):
        last = min(piece.shape[1], 1 + n)
        logits = model.step(piece, part, last=last)
        assert logits.shape == (3, last, V)
        assert_close(logits, model.step(piece, whole)[:, -last:])
    assert whole.length == part.length == T


@pytest.fixture
def rows():
    return []


@pytest.fixture
def watched(rows):
    model = MODELS["llama"]().eval()
    model.lm_head.register_forward_hook(lambda _, x, logits: rows.append(logits.shape[1]))
    return model


def test_the_output_layer_reads_what_is_asked_for(watched, rows):
    ids, lengths = pad_left([[1, 2, 3], [4]])
    generate(watched, ids, max_new_tokens=3)
    generate(LeftPadded(watched, lengths), ids, max_new_tokens=3)
    assert rows == [1] * 6
    rows.clear()
    draft = ModelDraft(watched, max_len=23)
    list(
        speculate(watched, draft, ids[:1], max_new_tokens=5, ahead=2)
    )  # it guesses as it reads: all kept
    assert rows[:3] == [1, 1, 3] and max(rows) == 3
