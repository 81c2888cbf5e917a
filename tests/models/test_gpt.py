"""GPT gives GPT-2's logits and words, reads only what came before, and decodes with a cache."""

import pytest
import torch
from decoders import assert_greedy_agrees, assert_padding_is_ignored, assert_steps_give_one_pass
from transformers import GPT2Config, GPT2LMHeadModel
from wide import Wide

from transformer_lit.models.gpt import GPT, GPTConfig

SIZES = {"vocab_size": 101, "d_model": 22, "n_layers": 3, "n_heads": 2, "max_len": 37}


@pytest.fixture
def model():
    return GPT(GPTConfig(**SIZES, d_ff=29)).eval()


def hf_names(theirs, n_layers):
    "HF's GPT-2 weights under our names. Its `Conv1D` keeps matrices transposed, q, k, v in one."
    ours = {
        "tok_emb.weight": theirs["transformer.wte.weight"],
        "lm_head.weight": theirs["lm_head.weight"],
        "position.weight": theirs["transformer.wpe.weight"],
        "final_norm.weight": theirs["transformer.ln_f.weight"],
        "final_norm.bias": theirs["transformer.ln_f.bias"],
    }
    for i in range(n_layers):
        h, to = f"transformer.h.{i}", f"layers.{i}"
        for part in ("weight", "bias"):
            for name, x in zip("qkv", theirs[f"{h}.attn.c_attn.{part}"].chunk(3, -1), strict=True):
                ours[f"{to}.attn.{name}_proj.{part}"] = x.t()
            ours[f"{to}.attn.o_proj.{part}"] = theirs[f"{h}.attn.c_proj.{part}"].t()
            ours[f"{to}.ffn.up_proj.{part}"] = theirs[f"{h}.mlp.c_fc.{part}"].t()
            ours[f"{to}.ffn.down_proj.{part}"] = theirs[f"{h}.mlp.c_proj.{part}"].t()
            ours[f"{to}.attn_residual.norm.{part}"] = theirs[f"{h}.ln_1.{part}"]
            ours[f"{to}.ffn_residual.norm.{part}"] = theirs[f"{h}.ln_2.{part}"]
    return ours


@pytest.fixture
def both(model):
    "HF's GPT-2 of prime sizes with every weight drawn, and ours with the same weights."
    config = GPT2Config(
        vocab_size=101, n_embd=22, n_layer=3, n_head=2, n_inner=29, n_positions=37, bos_token_id=1
    )
    config.eos_token_id = None  # goes on to the last token
    with Wide():
        theirs = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # offsets too: HF starts them at zero
            parameter.normal_(std=0.3)
    model.load_state_dict(hf_names(theirs.state_dict(), 3))
    return model, theirs


def test_logits_are_those_of_gpt2(both):
    ours, theirs = both
    ids = torch.randint(101, (3, 31))
    with Wide():
        expected = theirs(ids).logits
    torch.testing.assert_close(ours(ids), expected)


@pytest.mark.machinery
def test_greedy_continuations_are_those_of_gpt2(both):
    assert_greedy_agrees(*both, 101)


@pytest.mark.parametrize("chunks", [(1,) * 11, (5, 1, 1, 4), (11,), (7, 4)])
def test_decoding_with_a_state_gives_the_logits_of_one_pass(model, chunks):
    assert_steps_give_one_pass(model, 101, chunks)


def test_a_place_depends_on_nothing_after_it(model):
    ids = torch.randint(101, (2, 13))
    other = ids.clone()
    other[:, 7:] = (other[:, 7:] + 1) % 101
    torch.testing.assert_close(model(ids)[:, :7], model(other)[:, :7], rtol=0, atol=0)
    assert (model(ids)[:, 7:] != model(other)[:, 7:]).any(-1).all()


def test_rows_of_unequal_length_are_padded_on_the_left(model):
    assert_padding_is_ignored(model, 101)


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


def test_a_stack_without_layers_is_refused():
    with pytest.raises(ValueError, match="n_layers must be a positive whole number, got 0"):
        GPTConfig(**SIZES | {"n_layers": 0})
