"""What people type first works: jobs of the package's users, spelt as they tried them.

Own files in Python and by --text, --pairs, --from: recipes/test_own.py; checkpoints, chats and
saved folders: oracle/test_recipes.py; sentence vectors: oracle/test_embed.py; the compiler, export
and ONNX with a padding mask: models/test_compilers.py. The page that shows them all runs as a
notebook.
"""

import json

import cards
import pytest
import torch
from torch.testing import assert_close

from transformer_lit import (
    GPT,
    ALiBi,
    AssemblyConfig,
    GPTConfig,
    Llama,
    LlamaConfig,
    MultiHeadAttention,
    Transformer,
    TransformerConfig,
    assemble,
    generate,
    lens,
    load,
    padding_mask,
    save_hf,
)
from transformer_lit.attention.latent import LatentAttention

SIZES = {"vocab_size": 53, "d_model": 40, "n_layers": 2, "n_heads": 4, "d_ff": 37}


def test_llama_with_alibi_is_one_word_or_an_exchanged_plug():
    torch.manual_seed(0)
    ids = torch.randint(53, (2, 7))
    config = AssemblyConfig(**SIZES, n_kv_heads=2, position="alibi", init="gpt2")
    one_word = assemble(config).double()
    exchanged = Llama(LlamaConfig(**SIZES, n_kv_heads=2, eps=1e-6)).double()
    exchanged.load_state_dict(one_word.state_dict(), strict=False)
    assert not near(one_word(ids), exchanged(ids))  # RoPE
    for layer in exchanged.layers:
        layer.attn.position = ALiBi(4).double()
    assert near(one_word(ids), exchanged(ids))


def near(got, want):
    return torch.allclose(got, want, rtol=0, atol=1e-9)


def test_attention_in_a_module_of_ones_own():
    attention = MultiHeadAttention(40, 4).double()
    x, memory = torch.randn(2, 7, 40).double(), torch.randn(2, 5, 40).double()
    keep = torch.arange(7) < torch.tensor([[7], [3]])  # True = a token
    out = attention(x, mask=padding_mask(keep))
    assert_close(out[1:, :3], attention(x[1:, :3]))
    assert_close(attention(x, memory), attention(x, attention.keys_values(memory)))


@pytest.mark.parametrize("residual", ["pre", "post"])
def test_the_lens_reads_an_encoder_decoder(residual):
    model = Transformer(TransformerConfig(**SIZES, dropout=0.0, residual=residual)).double()
    src, tgt_in = torch.randint(53, (2, 7)), torch.randint(53, (2, 5))
    keep = torch.arange(7) < torch.tensor([[7], [5]])
    found = lens(model, src, tgt_in, keep)  # N B T V
    assert found.shape == (3, 2, 5, 53)
    assert torch.equal(found[-1], model(src, tgt_in, keep))
    first = model.embed(tgt_in)
    assert_close(found[0], model.lm_head(model.decoder_norm(first)).detach())


def attends(make, **sizes):
    keep = torch.ones(2, 7, dtype=torch.bool)
    make(40, 4, **sizes)(torch.randn(2, 7, 40), mask=keep)


def writes(ids):
    generate(GPT(GPTConfig(**SIZES)), ids, max_new_tokens=2)


OF_KEYS = r"bool of shape \(2, 7\); see padding_mask for B S"
A_TEXT = r"; a text: load\(…\)\.generate"
REFUSED = [
    (lambda: attends(MultiHeadAttention), OF_KEYS),
    (lambda: attends(LatentAttention, rank=3, d_head=5), OF_KEYS),
    (lambda: writes("Eva lives"), f"a tensor B T, got str{A_TEXT}"),
    (lambda: writes(torch.tensor([1, 2, 3])), rf"a tensor B T, got shape \(3,\){A_TEXT}"),
    (lambda: save_hf(GPT(GPTConfig(**SIZES)), "gpt"), "read from no folder, and of these"),
    (lambda: load("stories", device="cuda:99"), "'cuda:99' is not available here .*; try cpu"),
]


@pytest.mark.parametrize(("call", "told"), REFUSED, ids=range(len(REFUSED)))
@pytest.mark.usefixtures("no_shape_checks")
def test_what_cannot_be_is_one_line(call, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((TypeError, ValueError), match=told):
        call()
    assert not list(tmp_path.iterdir())


MOST = {  # the lines of the same job in the field, and two
    "text-code": 12 + 2,  # nanoGPT's prepare.py and command
    "classify-code": 9 + 2,  # a module in torch, around one call of the encoder
    "lora-code": 3 + 2,
    "checkpoint-code": 1 + 1 + 2,  # save_pretrained, from_pretrained
    "chat-code": 5 + 2,
    "vectors-code": 2 + 2,
    "trainer-code": 12 + 2,
}


def test_a_job_takes_hardly_more_lines_than_elsewhere():
    page = cards.chapters()["recipes/how_do_i"]
    cells = {cell["id"]: "".join(cell["source"]) for cell in json.loads(page.read_text())["cells"]}
    for name, most in MOST.items():
        shown = cards.without_checks(cards.DIRECTIVES.sub("", cells[name]))[0]
        code = [line for line in shown.split("\n") if line.strip()]
        assert len(code) <= most, (name, len(code))
