"""Our own models: one table of them, and the properties that each must have.

Their numbers are compared with plain versions and with torch's layers in the chapters, and with the
reference library in oracle/test_decoders.py and oracle/test_encoders.py.
"""

import pytest
import torch
from random_cuts import cuts
from torch.testing import assert_close

from transformer_lit.inference.sampling import LeftPadded, generate, pad_left
from transformer_lit.inference.speculative import ModelDraft, speculate
from transformer_lit.models.assembly import POSITIONS, AssemblyConfig, assemble
from transformer_lit.models.bert import Bert, BertConfig
from transformer_lit.models.gpt import GPT, GPTConfig
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.models.recurrent import FixedVector, Recurrent, RecurrentConfig
from transformer_lit.models.transformer import Transformer, TransformerConfig

V, B, T, L = 29, 3, 13, 3
SIZES = {"vocab_size": V, "d_model": 20, "n_layers": L, "n_heads": 2, "d_ff": 37, "dropout": 0.3}


def assembled(**parts):
    return lambda: assemble(AssemblyConfig(**SIZES, max_len=17, n_kv_heads=1, **parts))


def without_attention():
    model = Recurrent(RecurrentConfig(V, d_model=20))
    model.cross_attn = FixedVector()
    return model


READING = {
    "transformer": lambda: Transformer(TransformerConfig(**SIZES)),
    "transformer pre": lambda: Transformer(TransformerConfig(**SIZES, residual="pre")),
    "recurrent": lambda: Recurrent(RecurrentConfig(V, d_model=20)),
    "fixed vector": without_attention,
}
MODELS = {
    **READING,
    "gpt": lambda: GPT(GPTConfig(**SIZES, max_len=17)),
    "gpt untied": lambda: GPT(GPTConfig(**SIZES, max_len=17, tied=False)),
    "llama": lambda: Llama(LlamaConfig(**SIZES, n_kv_heads=1, max_len=5)),  # reads beyond it
    "llama tied": lambda: Llama(LlamaConfig(**SIZES, d_head=6, tied=True)),
    **{f"assembly {name}": assembled(position=name) for name in POSITIONS},
    **{f"assembly {name}": assembled(residual=name) for name in ("post", "sandwich", "deep")},
}
TIED = (*READING, "gpt", "llama tied")


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.fixture
def model(name):
    "In eval mode, without a gain of 1 or an offset of 0."
    model = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 3)
    return model


@pytest.fixture
def source(name):
    "A source and what is real of it, for a model that reads one."
    keep = torch.arange(7) < torch.tensor([[7], [4], [2]])
    return (torch.randint(V, (B, 7)), keep) if name in READING else ()


@pytest.fixture
def ask(source):
    ids, given = torch.randint(V, (B, T)), source[:1]
    return lambda model: model(*given, ids, *source[1:])


@torch.no_grad()
def test_any_cut_of_a_text_gives_one_pass_and_rows_and_positions_can_be_dropped(model, source):
    "Of the last ids alone, logits are those that all ids give."
    ids = torch.randint(V, (B, T))
    whole = model(*source[:1], ids, *source[1:])
    for cut in cuts(T, 5):
        state, end = model.start(B, T, *source), 0
        for n, piece in enumerate(ids.split(cut, 1)):
            end, last = end + cut[n], min(cut[n], 1 + n)
            assert_close(model.step(piece, state, last=last), whole[:, end - last : end])
        assert state.length == T
    rows = torch.tensor([2, 0, 0, 1])
    state.truncate(5)
    state.select(rows)
    assert_close(model.step(ids[rows, 5:], state), whole[rows, 5:])


def test_every_weight_is_used(model, ask):
    ask(model).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_dropout_acts_in_training_only(model, ask):
    assert torch.equal(ask(model), ask(model))
    model.train()
    assert not torch.equal(ask(model), ask(model))


def test_weights_are_all_that_a_copy_needs_and_ties_are_kept(name, model, ask):
    copy = MODELS[name]().eval()
    copy.load_state_dict(model.state_dict())
    assert_close(ask(copy), ask(model), rtol=0, atol=0)
    for one in (model, copy, copy.bfloat16()):
        assert (one.lm_head.weight is one.tok_emb.weight) == (name in TIED)


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_built_on_the_meta_device_it_computes_once_it_has_weights(name, model, ask):
    with torch.device("meta"):
        empty = MODELS[name]()
    empty = empty.to_empty(device="cpu").eval()
    empty.load_state_dict(model.state_dict())
    assert_close(ask(empty), ask(model), rtol=0, atol=0)


def gru(x, h, cell):
    "One step of a GRU by its formulas; the weights hold r, z, n one below the other."
    W, U, b, c = (p.chunk(3) for p in cell.parameters())
    r, z = (torch.sigmoid(W[i] @ x + b[i] + U[i] @ h + c[i]) for i in (0, 1))
    n = torch.tanh(W[2] @ x + b[2] + r * (U[2] @ h + c[2]))
    return (1 - z) * n + z * h


@pytest.mark.parametrize("name", ["recurrent"])
def test_a_recurrent_decoder_is_a_loop_of_its_formulas(model):
    "It begins with what has read the source backwards."
    src, tgt, attn = torch.randint(V, (1, 7)), torch.randint(V, (1, 5)), model.cross_attn
    read, last = model.encoder(model.tok_emb(src))
    h = model.first(last[1])[0]
    for x, expected in zip(model.tok_emb(tgt)[0], model.hidden(src, tgt)[0], strict=True):
        e = (attn.q_proj(h) + attn.k_proj(read[0])).tanh() @ attn.weight
        context = e.softmax(0) @ read[0]
        h = gru(torch.cat([x, context]), h, model.cell)
        assert_close(model.out(torch.cat([h, context, x])), expected)


def bert():
    return Bert(BertConfig(**SIZES))


XAVIER, GPT2 = ("transformer", "assembly rope"), ("gpt", "llama", "bert")


@pytest.mark.parametrize("name", XAVIER + GPT2)
def test_first_weights(name):
    "Gains 1, offsets 0; matrices by Xavier, and the table by C^{-1/2}; or all as in GPT-2."
    for place, parameter in (MODELS | {"bert": bert})[name]().named_parameters():
        if parameter.ndim == 1:
            assert (parameter == float(not place.endswith("bias"))).all(), place
            continue
        std = SIZES["d_model"] ** -0.5 if "tok_emb" in place else (2 / sum(parameter.shape)) ** 0.5
        if name in GPT2:
            writes = place.endswith(("o_proj.weight", "down_proj.weight"))
            std = 0.02 / (2 * L) ** 0.5 if writes else 0.02
        assert parameter.std().item() == pytest.approx(std, rel=0.2), place


def test_what_layers_share():
    t5, deberta, xl = (assembled(position=x)() for x in ("t5", "deberta", "transformer-xl"))
    plugs = [[layer.attn.position for layer in model.layers] for model in (t5, deberta, xl)]
    assert [len({*map(id, some)}) for some in plugs] == [1, L, L]
    assert len({id(plug.weight) for plug in plugs[1]}) == 1


def test_other_dropouts_have_their_own_fields():
    sizes = SIZES | {"attention_dropout": 0.25, "activation_dropout": 0.5, "dropout": 0.0}
    layer = Transformer(TransformerConfig(**sizes)).decoder[0]
    assert [a.dropout for a in (layer.attn, layer.cross_attn)] == [0.25, 0.25]
    assert layer.ffn.dropout.p == 0.5 and layer.ffn_residual.dropout.p == 0.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: MODELS["transformer"]().start(2, T), "src of 2 rows, got none"),
        (lambda: MODELS["recurrent"]().start(2, T), "src of 2 rows, got none"),
        (
            lambda: MODELS["transformer"]().start(3, T, torch.zeros(2, 7).long()),
            r"src of 3 rows, got src of shape \(2, 7\)",
        ),
        (lambda: MODELS["gpt"]().start(1, 5, src=torch.zeros(1, 3).long()), "reads no source"),
        (lambda: TransformerConfig(**SIZES | {"n_layers": 0}), "n_layers .* 0"),
        (lambda: TransformerConfig(**SIZES | {"dropout": float("nan")}), "dropout .* nan"),
        (lambda: AssemblyConfig(**SIZES | {"n_layers": 0}), "n_layers .* 0"),
        (lambda: AssemblyConfig(**SIZES, residual="deep", init="he"), "'he'. Choose from: x"),
    ],
)
def test_what_would_be_silently_something_else_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_the_output_layer_reads_no_more_than_is_asked_for():
    rows, model = [], MODELS["llama"]().eval()
    model.lm_head.register_forward_hook(lambda _, x, logits: rows.append(logits.shape[1]))
    ids, lengths = pad_left([[1, 2, 3], [4]])
    generate(model, ids, max_new_tokens=3)
    generate(LeftPadded(model, lengths), ids, max_new_tokens=3)
    assert rows == [1] * 6
    rows.clear()
    draft = ModelDraft(model, max_len=23)
    list(speculate(model, draft, ids[:1], max_new_tokens=5, ahead=2))  # it guesses as it reads
    assert rows[:3] == [1, 1, 3] and max(rows) == 3
