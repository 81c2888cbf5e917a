"""The model of 2017 against `nn.Transformer`, against itself step by step, and in numbers."""

import re

import pytest
import torch
from torch import nn
from torch_names import torch_weights

from transformer_lit.attention.masks import causal_mask, length_mask
from transformer_lit.models.transformer import Transformer, TransformerConfig
from transformer_lit.position.absolute import sinusoids

V, B, T, S, L = 23, 2, 5, 7, 3
SIZES = {"vocab_size": V, "d_model": 14, "d_ff": 11, "n_heads": 7, "n_layers": L}


def model_of(**changes):
    "A small model in which no gain is 1 and no offset 0."
    model = Transformer(TransformerConfig(**SIZES | {"dropout": 0.0} | changes))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture
def batch():
    src, tgt_in = torch.randint(V, (B, S)), torch.randint(V, (B, T))
    return src, tgt_in, length_mask(torch.tensor([S, 4]))


# --- the names of weights ---------------------------------------------------------------------


def test_weights_have_the_names_under_which_checkpoints_hold_them():
    ends = ("weight", "bias")
    attn = [f"{x}_proj.{end}" for x in "qkvo" for end in ends]
    ffn = [f"ffn.{x}_proj.{end}" for x in ("up", "down") for end in ends]
    parts = {"encoder": ("attn",), "decoder": ("attn", "cross_attn")}
    wrapped = {"encoder": ("attn", "ffn"), "decoder": ("attn", "cross", "ffn")}
    expected = {"tok_emb.weight", "lm_head.weight"}
    for side in ("encoder", "decoder"):
        expected |= {f"{side}_norm.{end}" for end in ends}
        for i in range(L):
            names = [f"{part}.{name}" for part in parts[side] for name in attn] + ffn
            names += [f"{part}_residual.norm.{end}" for part in wrapped[side] for end in ends]
            expected |= {f"{side}.{i}.{name}" for name in names}
    assert set(model_of(residual="pre").state_dict()) == expected
    assert model_of().state_dict().keys() == {x for x in expected if "coder_norm" not in x}


# --- the same function as torch's ---------------------------------------------------------------


def torch_model(model):
    "`nn.Transformer` with our weights; its final norms stay only where ours has them."
    c, pre = model.config, model.config.residual == "pre"
    theirs = nn.Transformer(
        *(c.d_model, c.n_heads, c.n_layers, c.n_layers, c.d_ff),
        dropout=0.0,
        batch_first=True,
        norm_first=pre,
    )
    weights = {}
    for side in ("encoder", "decoder"):
        for i, layer in enumerate(getattr(model, side)):
            named = torch_weights(layer)
            weights |= {f"{side}.layers.{i}.{name}": value for name, value in named.items()}
        if not pre:
            getattr(theirs, side).norm = None
        for name, value in getattr(model, f"{side}_norm").named_parameters():
            weights[f"{side}.norm.{name}"] = value
    theirs.load_state_dict(weights)
    return theirs


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch's own, about odd head counts
@pytest.mark.parametrize("residual", ["post", "pre"])
@pytest.mark.parametrize("padded", [False, True])
def test_logits_and_gradients_are_those_of_torch(batch, residual, padded):
    model = model_of(residual=residual)
    src, tgt_in, src_mask = batch
    src_mask = src_mask if padded else None
    theirs, E = torch_model(model), model.tok_emb.weight
    x, y = (14**0.5 * E[ids] + sinusoids(torch.arange(ids.shape[1]), 14) for ids in (src, tgt_in))
    hide = ~src_mask if padded else None
    h = theirs(
        *(x, y),
        tgt_mask=~causal_mask(T),
        src_key_padding_mask=hide,
        memory_key_padding_mask=hide,
    )
    keep = torch.ones_like(src, dtype=torch.bool) if src_mask is None else src_mask
    states = theirs.encoder(x, src_key_padding_mask=hide)
    torch.testing.assert_close(model.encoder_states(src, src_mask)[keep], states[keep])
    logits = model(src, tgt_in, src_mask)
    torch.testing.assert_close(model.hidden(src, tgt_in, src_mask), h)
    torch.testing.assert_close(logits, h @ E.T)
    dy = torch.randn_like(logits)
    gradients = [torch.autograd.grad(out, E, dy)[0] for out in (logits, h @ E.T)]
    torch.testing.assert_close(*gradients)


# --- one pass and step by step ------------------------------------------------------------------


@pytest.mark.parametrize("residual", ["post", "pre"])
@pytest.mark.parametrize("chunks", [(1,) * T, (2, 3), (T,)])
def test_steps_give_what_one_pass_gives(batch, residual, chunks):
    model = model_of(residual=residual)
    src, tgt_in, src_mask = batch
    state = model.start(B, T, src, src_mask)
    steps = [model.step(ids, state) for ids in tgt_in.split(chunks, dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), model(src, tgt_in, src_mask))
    assert state.length == T


def test_the_source_is_encoded_once(batch):
    model = model_of()
    runs = []
    model.encoder[0].register_forward_hook(lambda *_: runs.append(1))
    state = model.start(B, T, batch[0])
    for ids in batch[1].split(1, dim=1):
        model.step(ids, state)
    assert len(runs) == 1


@pytest.mark.parametrize("rows", [[1, 0], [1, 1, 0], [1]])
def test_selected_rows_go_on_as_if_they_had_been_alone(batch, rows):
    model = model_of()
    src, tgt_in, src_mask = batch
    state = model.start(B, T, src, src_mask)
    model.step(tgt_in[:, :2], state)
    state.select(torch.tensor(rows))
    got = model.step(tgt_in[rows, 2:], state)
    torch.testing.assert_close(got, model(src, tgt_in, src_mask)[rows, 2:])


def test_truncated_positions_are_forgotten(batch):
    model = model_of()
    src, tgt_in, src_mask = batch
    state = model.start(B, T, src, src_mask)
    model.step(tgt_in[:, :2], state)
    model.step((tgt_in[:, 2:] + 1) % V, state)  # what will be refused
    state.truncate(2)
    got = model.step(tgt_in[:, 2:], state)
    torch.testing.assert_close(got, model(src, tgt_in, src_mask)[:, 2:])


def test_a_missing_source_is_named(batch):
    model = model_of()
    with pytest.raises(ValueError, match="src of 2 rows, got none"):
        model.start(2, T)
    with pytest.raises(ValueError, match=re.escape("src of 3 rows, got src of shape (2, 7)")):
        model.start(3, T, batch[0])


# --- what can be seen ---------------------------------------------------------------------------


@pytest.mark.parametrize("residual", ["post", "pre"])
def test_no_leak_from_the_future_or_from_padding(batch, residual):
    model = model_of(residual=residual)
    src, tgt_in, src_mask = batch
    read = []
    model.dropout.register_forward_hook(lambda module, inputs, out: read.append(out))
    logits = model(src, tgt_in, src_mask)
    for t in range(T):
        source, target = torch.autograd.grad(logits[:, t].sum(), read, retain_graph=True)
        assert (target.abs().sum(-1) > 0).tolist() == [[s <= t for s in range(T)]] * B
        assert torch.equal(source.abs().sum(-1) > 0, src_mask)


def test_a_padded_batch_is_its_sentences_one_by_one(batch):
    model = model_of()
    src, tgt_in, src_mask = batch
    together = model(src, tgt_in, src_mask)
    alone = model(src[1:, :4], tgt_in[1:, :3])
    torch.testing.assert_close(together[1:, :3], alone)
    torch.testing.assert_close(together[:1], model(src[:1], tgt_in[:1]))


def test_dropout_stands_on_the_embedding_sum_and_on_each_sublayer():
    model = model_of(dropout=0.5)
    names = {name for name, m in model.named_modules() if isinstance(m, nn.Dropout) and m.p > 0}
    encoder = {f"encoder.{i}.{part}_residual.dropout" for i in range(L) for part in ("attn", "ffn")}
    decoder = {
        f"decoder.{i}.{part}_residual.dropout"
        for i in range(L)
        for part in ("attn", "cross", "ffn")
    }
    assert names == {"dropout"} | encoder | decoder

    read = []
    model.dropout.register_forward_hook(lambda module, inputs, out: read.append((*inputs, out)))
    ids = torch.randint(V, (B, T))
    model.embed(ids, start=3)
    before, after = read[0]
    expected = 14**0.5 * model.tok_emb.weight[ids] + sinusoids(torch.arange(3, 3 + T), 14)
    torch.testing.assert_close(before, expected)
    dropped = after == 0
    assert 0 < dropped.sum() < after.numel()
    torch.testing.assert_close(after[~dropped], 2 * before[~dropped])


def test_the_other_dropouts_have_their_own_fields():
    model = model_of(attention_dropout=0.25, activation_dropout=0.5)
    layer = model.decoder[0]
    assert [a.dropout for a in (layer.attn, layer.cross_attn)] == [0.25, 0.25]
    assert layer.ffn.dropout.p == 0.5 and layer.ffn_residual.dropout.p == 0.0


# --- sizes --------------------------------------------------------------------------------------


def closed_form(config):
    C, F, n = config.d_model, config.d_ff, config.n_layers
    final = 4 * C if config.residual == "pre" else 0
    return (
        config.vocab_size * C
        + n * (12 * C**2 + 4 * C * F + 2 * F + 12 * C)
        + 12 * n * C * config.bias
        + final
    )


@pytest.mark.parametrize("residual", ["post", "pre"])
@pytest.mark.parametrize("bias", [False, True])
def test_parameters_in_closed_form(residual, bias):
    config = TransformerConfig(**SIZES, residual=residual, bias=bias)
    model = Transformer(config)
    assert sum(p.numel() for p in model.parameters()) == closed_form(config)
    attention_bias = [n for n, _ in model.named_parameters() if n.endswith("q_proj.bias")]
    assert len(attention_bias) == 3 * L * bias


@pytest.mark.parametrize(("bias", "count"), [(False, 63_045_632), (True, 63_082_496)])
def test_the_base_model_of_the_paper_builds_on_the_meta_device(bias, count):
    "63.0M and 63.1M parameters at V = 37,000; the paper's table 3 prints 65M."
    with torch.device("meta"):
        model = Transformer(TransformerConfig(vocab_size=37_000, bias=bias))
        ids = torch.zeros(2, 3, dtype=torch.long)
        logits = model(ids, ids)
    assert sum(p.numel() for p in model.parameters()) == count
    assert all(p.is_meta for p in model.parameters())
    assert logits.is_meta and logits.shape == (2, 3, 37_000)


def test_source_target_and_output_share_one_table():
    model = model_of()
    assert model.lm_head.weight is model.tok_emb.weight and model.lm_head.bias is None
    copy = Transformer(model.config)
    copy.load_state_dict(model.state_dict())
    assert copy.lm_head.weight is copy.tok_emb.weight
    torch.testing.assert_close(copy.state_dict(), model.state_dict())
    assert copy.bfloat16().lm_head.weight is copy.tok_emb.weight


def test_first_weights():
    "Xavier in the layers; the table keeps C^{-1/2}; offsets 0; gains 1."
    model = Transformer(TransformerConfig(vocab_size=1009, d_model=106, d_ff=211, n_heads=2))
    assert model.tok_emb.weight.std().item() == pytest.approx(106**-0.5, rel=0.02)
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            assert (parameter == 1).all(), name
        elif name.endswith("bias"):
            assert (parameter == 0).all(), name
        elif name != "tok_emb.weight":
            std = (2 / sum(parameter.shape)) ** 0.5
            assert parameter.std().item() == pytest.approx(std, rel=0.04), name


# --- configurations that cannot be --------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_layers": 0}, "n_layers .* 0"),
        ({"max_len": -2}, "max_len .* -2"),
        ({"dropout": float("nan")}, "dropout .* nan"),
    ],
)
def test_a_configuration_that_would_build_something_else_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        TransformerConfig(**SIZES | change)


def test_the_defaults_are_the_base_model_of_the_paper():
    c = TransformerConfig(vocab_size=37_000)
    assert (c.n_layers, c.d_model, c.d_ff, c.n_heads, c.dropout, c.residual) == (
        *(6, 512, 2048, 8, 0.1),
        "post",
    )
