"""Encoders give the reference's states and vectors; a sentence has one vector in any company."""

import pytest
import torch
import transformers as hf
from checkpoints import assert_refused, reconfigure, rewrite, wide_model
from wide import Wide

from transformer_lit.models.hf_build import load_hf

V = 103
SIZES = {"vocab_size": V, "hidden_size": 42, "num_hidden_layers": 3, "num_attention_heads": 3}
SIZES |= {"intermediate_size": 29, "max_position_embeddings": 71, "layer_norm_eps": 0.01}
DISTIL = {"vocab_size": V, "dim": 42, "n_layers": 3, "n_heads": 3, "hidden_dim": 29}
MODELS = {
    "bert": (hf.BertModel, hf.BertConfig(**SIZES)),
    "roberta": (hf.RobertaModel, hf.RobertaConfig(**SIZES)),
    "distilbert": (
        hf.DistilBertModel,
        hf.DistilBertConfig(**DISTIL, max_position_embeddings=71),
    ),
}


def folder_of(name, tmp_path):
    model = wide_model(*MODELS[name])
    model.save_pretrained(tmp_path / name)
    return tmp_path / name, model


# --- states -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_states_are_those_of_the_reference(name, tmp_path):
    folder, model = folder_of(name, tmp_path)
    ids = torch.randint(2, V, (3, 53))
    keep = torch.arange(53) < torch.tensor([[53], [23], [1]])
    ids[~keep] = MODELS[name][1].pad_token_id  # RoBERTa counts positions by it
    with Wide(), torch.no_grad():
        expected = model(ids, attention_mask=keep.long()).last_hidden_state
    ours = load_hf(folder).double()
    torch.testing.assert_close(ours(ids, keep)[keep], expected[keep])


@pytest.mark.parametrize("name", MODELS)
def test_names_may_have_a_prefix_and_what_nothing_reads_is_refused(name, tmp_path):
    folder, _ = folder_of(name, tmp_path)
    ids = torch.randint(2, V, (2, 13))
    before = load_hf(folder)(ids)
    rewrite(folder, lambda tensors: {f"{name}.{n}": x for n, x in tensors.items()})
    assert torch.equal(load_hf(folder)(ids), before)
    rewrite(folder, lambda tensors: {**tensors, f"{name}.more.weight": torch.ones(3)})
    assert_refused(load_hf, folder, "holds what nothing reads: .*more.weight")


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("bert", {"hidden_act": "relu"}, "hidden_act"),
        ("roberta", {"pad_token_id": 0}, "pad_token_id"),
        ("distilbert", {"activation": "relu"}, "activation"),
        ("distilbert", {"n_layers": 10**9}, "n_layers"),
    ],
)
def test_settings_that_are_not_built_are_refused(name, settings, words, tmp_path):
    folder, _ = folder_of(name, tmp_path)
    reconfigure(folder, **settings)
    assert_refused(load_hf, folder, words)
