"""What people type first works: jobs of the package's users, spelt as they tried them.

Own files in Python and by --text, --pairs, --from: recipes/test_own.py; checkpoints, chats and
saved folders: oracle/test_recipes.py; sentence vectors: oracle/test_embed.py; the compiler, export
and ONNX with a padding mask: models/test_compilers.py. The page that shows them all runs as a
notebook.
"""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import cards
import pytest
import torch
from torch.testing import assert_close

from transformer_lit import (
    GPT,
    ALiBi,
    AssemblyConfig,
    BPETokenizer,
    GPTConfig,
    LanguageModel,
    LanguageModeling,
    Llama,
    LlamaConfig,
    MultiHeadAttention,
    Transformer,
    TransformerConfig,
    Translator,
    assemble,
    generate,
    lens,
    load,
    padding_mask,
    preset,
    save_hf,
)
from transformer_lit.attention.latent import LatentAttention
from transformer_lit.course.files import InputError

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
A_TEXT = r"\. For text: load\(…\)\.generate"
REFUSED = [
    (lambda: attends(MultiHeadAttention), OF_KEYS),
    (lambda: attends(LatentAttention, rank=3, d_head=5), OF_KEYS),
    (lambda: writes("Eva lives"), f"B T, not str{A_TEXT}"),
    (lambda: writes(torch.tensor([1, 2, 3])), rf"B T, not shape \(3,\){A_TEXT}"),
    (lambda: save_hf(GPT(GPTConfig(**SIZES)), "gpt"), "can't write this GPT, only an unch"),
    (lambda: load("stories", device="cuda:99"), "'cuda:99' is not available here .*; try cpu"),
]


@pytest.mark.parametrize(("call", "told"), REFUSED, ids=range(len(REFUSED)))
@pytest.mark.usefixtures("no_shape_checks")
def test_what_cannot_be_is_one_line(call, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((TypeError, ValueError), match=told):
        call()
    assert not list(tmp_path.iterdir())


class Wrapped(torch.nn.Module):
    "A wrapper that hands on what it does not have, as PEFT's does."

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)


def test_a_wrapped_model_writes_by_the_function_and_says_so():
    model = GPT(GPTConfig(**SIZES)).eval()
    ids = torch.randint(53, (2, 7))
    how = {"max_new_tokens": 3, "temperature": 0}
    assert generate(Wrapped(model), ids, **how) == generate(model, ids, **how)
    for one in (model, Wrapped(model)):
        with pytest.raises(TypeError, match=r"call generate\(model, ids"):
            one.generate(ids, **how)


OWN = """
import os, signal, sys, torch
from torch import nn
from transformer_lit import DecoderOnly, EncoderLayer, LanguageModeling, MultiHeadAttention
from transformer_lit import Position, PreNorm, RMSNorm, TokenEmbedding
from transformer_lit import finish_training, open_training

class Nearer(Position):
    def __init__(self, H):
        super().__init__()
        self.slopes = nn.Parameter(torch.ones(H))

    def bias(self, q, k, apart):
        return -self.slopes[:, None, None] * apart.abs()

class Square(nn.Module):
    def __init__(self, C, F):
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(C, F), nn.Linear(F, C)

    def forward(self, x):
        return self.down_proj(self.up_proj(x).relu().square())

def my_model(V, C=12):
    def layer():
        attn = MultiHeadAttention(C, 3, causal=True, position=Nearer(3))
        return EncoderLayer(attn, Square(C, 17), residual=lambda: PreNorm(RMSNorm(C), dropout=0.1))

    layers = [layer() for _ in range(2)]
    return DecoderOnly(TokenEmbedding(V, C), layers, RMSNorm(C), nn.Linear(C, V, bias=False))

def kill(done):
    if done.step == 7:
        os.kill(os.getpid(), signal.SIGKILL)

def train(out, **how):
    sizes = {"length": 11, "batch_size": 3, "steps": 13, "every": 3, "tokens": "characters"}
    recipe = how.pop("kind", LanguageModeling).from_files("a.txt", **sizes)
    return open_training(recipe, out, device="cpu", **{"model": my_model, **how})

if sys.argv[1:] == ["kill"]:
    train("killed").train(kill)
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    "The names of a file that makes a model of parts of its own, in a folder with a text."
    folder, names = tmp_path_factory.mktemp("own"), {"__name__": "own"}
    (folder / "a.txt").write_text("A man is riding a bike.\n" * 90)
    (folder / "own.py").write_text(OWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["own.py"])
        exec(compile(OWN, "own.py", "exec"), names)
        run = names["train"]("whole")
        run.train()
        where = {"command": "c", "results": "results"}
        names["record"] = names["finish_training"](run, name="whole", **where)
        yield SimpleNamespace(**names, folder=folder, run=run, where=where)


@pytest.mark.machinery
@pytest.mark.usefixtures("no_shape_checks")  # a length that is exported is no whole number
def test_a_model_of_ones_own_is_killed_resumed_loaded_quantised_and_exported(own):
    killed = subprocess.run([sys.executable, "own.py", "kill"], check=False)
    assert killed.returncode == -signal.SIGKILL
    resumed = own.train("killed", resume=True)
    assert resumed.trainer.done == 6
    resumed.train()
    record = own.finish_training(resumed, name="killed", **own.where)
    assert record.curve == own.record.curve and record.metrics == own.record.metrics
    lm = load("killed", build=own.my_model)
    ids = torch.tensor([lm.tokenizer.encode("A man is")])
    assert torch.equal(lm.model(ids), own.run.trained.model(ids))
    small = load("killed", build=own.my_model, weights="int8")
    assert isinstance(small.generate("A man", max_new_tokens=3), str)
    apart = (small.model(ids) - lm.model(ids)).abs().max()
    assert 0 < apart < 0.1
    shapes = {"ids": {1: torch.export.Dim("T", max=64)}}
    program = torch.export.export(lm.model, (ids,), dynamic_shapes=shapes)
    assert_close(program.module()(ids[:, :3]), lm.model(ids[:, :3]))


def test_a_model_of_ones_own_is_saved_described_and_tuned(own):
    assert own.record.config["model"] == "own: my_model" and not own.record.config["sizes"]
    lm = load("whole", build=own.my_model)
    ids = torch.tensor([lm.tokenizer.encode("A man is")])
    assert torch.equal(lm.model(ids), own.run.trained.model(ids))
    assert lm.info["length"] == lm.max_len == 11
    lm.save("again")
    start = load("again", build=partial(own.my_model, C=12))
    tuned = own.train("tuned", model=None, start=start)
    assert torch.equal(tuned.trained.model(ids), lm.model(ids))
    pairs = [("ab", "ba")] * 3
    tokenizer = BPETokenizer.train(["ab", "ba"], 260)
    config = TransformerConfig(**SIZES | {"vocab_size": tokenizer.vocab_size})
    info = {"form": "raw", "metric": "exact", "alpha": 1.0}
    mine = Translator(Transformer(config), tokenizer, info, build=lambda V: Transformer(config))
    mine.save("pairs")
    again = load("pairs", build=lambda V: Transformer(config))
    assert again.translate(["ab"]) == mine.translate(["ab"])
    assert again.score(pairs)["exact"] in (0, 1)


def exchanged(tokenizer):
    model = assemble(AssemblyConfig(**SIZES))
    model.layers[0].attn.position = ALiBi(4)
    LanguageModel(model, tokenizer, {}).save("x")


def built(make):
    @dataclass(frozen=True, kw_only=True)
    class Mine(LanguageModeling):
        def build(self, vocab_size):
            return make(vocab_size)

    return Mine


def fewer(V):
    return torch.nn.Linear(3, V)


OWN_REFUSED = {
    "load without it": (lambda own: load("whole"), r"load\('whole/model', build=my_model\)"),
    "load by another": (lambda own: load("whole", build=fewer), "final_norm.weight is unknown"),
    "no module": (lambda own: own.train("x", model=print), r"print\(15\) must return a Module"),
    "another one to go on": (
        lambda own: own.train("whole", model=fewer, resume=True),
        "'own: my_model' → 'own: fewer'",
    ),
    "shipped": (lambda own: load("stories", build=own.my_model), "Leave out build"),
    "saved as it is": (
        lambda own: LanguageModel(own.my_model(15), own.run.trained.tokenizer, {}).save("x"),
        r"no sizes to build it from again. Pass the function.*build=…",
    ),
    "built by a recipe": (
        lambda own: own.train("x", model=None, kind=built(own.my_model)),
        r"no sizes to build it from again. Pass the function.*model=…",
    ),
    "an exchanged plug": (
        lambda own: exchanged(own.run.trained.tokenizer),
        "position is a ALiBi, but .* a RoPE. Pass the f",
    ),
    "few bits": (
        lambda own: load("whole", build=own.my_model, weights="int8").save("x"),
        "q_proj is a Linear8, but opened again it would be a Linear",
    ),
    "sizes like it": (
        lambda own: preset(LanguageModeling, like=load("whole", build=own.my_model)),
        "no sizes to build it from again",
    ),
}


@pytest.mark.parametrize(("call", "told"), OWN_REFUSED.values(), ids=OWN_REFUSED)
def test_what_could_not_be_opened_again_is_refused_before_it_is_trained(own, call, told):
    with pytest.raises(InputError, match=told):
        call(own)
    assert not (own.folder / "x").exists()


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
