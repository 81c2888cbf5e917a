"""An encoder against torch's, with all offsets at work."""

import pytest
import torch
from torch import nn

from transformer_lit.models.bert import Bert, BertConfig

V, B, T = 31, 3, 7


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = Bert(BertConfig(V, d_model=12, n_layers=2, n_heads=3, d_ff=17, max_len=11))
    for p in model.parameters():
        nn.init.normal_(p, std=0.5)
    return model.double().eval()


def torchs(model):
    C, heads = model.config.d_model, model.config.n_heads
    layer = nn.TransformerEncoderLayer(C, heads, model.config.d_ff, 0.0, "gelu", batch_first=True)
    theirs = nn.TransformerEncoder(layer, model.config.n_layers, enable_nested_tensor=False)
    theirs = theirs.double().eval()
    for ours, other in zip(model.layers, theirs.layers, strict=True):
        qkv = ours.attn.q_proj, ours.attn.k_proj, ours.attn.v_proj
        with torch.no_grad():
            other.self_attn.in_proj_weight.copy_(torch.cat([p.weight for p in qkv]))
            other.self_attn.in_proj_bias.copy_(torch.cat([p.bias for p in qkv]))
        for to, of in (
            (other.self_attn.out_proj, ours.attn.o_proj),
            (other.norm1, ours.attn_residual.norm),
            (other.linear1, ours.ffn.up_proj),
            (other.linear2, ours.ffn.down_proj),
            (other.norm2, ours.ffn_residual.norm),
        ):
            to.load_state_dict(of.state_dict())
    return theirs


@pytest.mark.parametrize("lengths", [None, (7, 4, 1)])
def test_logits_are_those_of_torchs_encoder(model, lengths):
    ids = torch.randint(V, (B, T))
    mask = None if lengths is None else torch.arange(T) < torch.tensor(lengths)[:, None]
    x = model.norm(model.tok_emb.weight[ids] + model.position.weight[:T])
    x = torchs(model)(x, src_key_padding_mask=None if mask is None else ~mask)
    states = model.encoder_states(ids, mask)
    expected = model.transform(x) @ model.tok_emb.weight.T
    keep = torch.ones(B, T, dtype=torch.bool) if mask is None else mask
    torch.testing.assert_close(states[keep], x[keep])
    torch.testing.assert_close(model(ids, mask)[keep], expected[keep])


def test_every_place_sees_every_other(model):
    ids = torch.randint(V, (1, T))
    for t in range(T):
        other = ids.clone()
        other[0, t] = (ids[0, t] + 1) % V
        assert (model(ids)[0] != model(other)[0]).any(-1).all()


def test_the_output_layer_is_the_table(model):
    assert model.lm_head.weight is model.tok_emb.weight
    names = [name for name, _ in model.named_parameters()]
    assert not [name for name in names if name.startswith("lm_head")]
