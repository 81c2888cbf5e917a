"""GPT reads only what came before, and has GPT-2's sizes; its logits: see test_families."""

import pytest
import torch

from transformer_lit.models.gpt import GPT, GPTConfig

SIZES = {"vocab_size": 101, "d_model": 22, "n_layers": 3, "n_heads": 2, "max_len": 37}


@pytest.fixture
def model():
    return GPT(GPTConfig(**SIZES, d_ff=29)).eval()


def test_a_place_depends_on_nothing_after_it(model):
    ids = torch.randint(101, (2, 13))
    other = ids.clone()
    other[:, 7:] = (other[:, 7:] + 1) % 101
    torch.testing.assert_close(model(ids)[:, :7], model(other)[:, :7], rtol=0, atol=0)
    assert (model(ids)[:, 7:] != model(other)[:, 7:]).any(-1).all()


@pytest.mark.parametrize(
    ("d_model", "n_layers", "n_heads", "published"),
    [
        (768, 12, 12, 124_439_808),
        (1024, 24, 16, 354_823_168),
        (1280, 36, 20, 774_030_080),
        (1600, 48, 25, 1_557_611_200),
    ],
)
def test_published_sizes_are_counted_from_the_config_alone(d_model, n_layers, n_heads, published):
    with torch.device("meta"):
        model = GPT(GPTConfig(d_model=d_model, n_layers=n_layers, n_heads=n_heads))
    assert sum(p.numel() for p in model.parameters()) == published


def test_the_output_layer_is_tied_unless_asked(model):
    assert model.lm_head.weight is model.tok_emb.weight
    untied = GPT(GPTConfig(**SIZES, tied=False))
    assert untied.lm_head.weight is not untied.tok_emb.weight


def test_dropout_acts_in_training_only(model):
    ids = torch.randint(101, (2, 7))
    assert torch.equal(model(ids), model(ids))
    model.train()
    assert not torch.equal(model(ids), model(ids))


def test_a_source_is_not_silently_left_unread(model):
    with pytest.raises(ValueError, match="reads no source"):
        model.start(1, 5, src=torch.zeros(1, 3, dtype=torch.long))
