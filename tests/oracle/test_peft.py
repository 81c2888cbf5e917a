"LoRA as the library `peft` has it, and on a model of every family."

import copy
from collections import Counter

import pytest
import torch
from compilers import PUBLISHED, inputs
from peft import LoraConfig, get_peft_model, inject_adapter_in_model
from torch import nn

from transformer_lit.assistant.lora import LoRALinear, add_lora, merge_lora
from transformer_lit.models.assembly import AssemblyConfig, assemble
from transformer_lit.models.gpt import GPT, GPTConfig
from transformer_lit.models.hf_build import FAMILIES
from transformer_lit.models.llama import Llama, LlamaConfig


def test_logits_gradients_and_merged_weights_are_those_of_peft():
    model = Llama(LlamaConfig(31, d_model=28, n_layers=3, n_heads=7, d_ff=41, d_head=6))
    ends, ids = ["q_proj", "v_proj", "down_proj"], torch.randint(31, (2, 13))
    config = LoraConfig(r=3, lora_alpha=7, target_modules=ends)
    theirs = inject_adapter_in_model(config, copy.deepcopy(model))
    changed = add_lora(model, rank=3, alpha=7.0, where=lambda name, _: name.endswith(tuple(ends)))
    pairs = [(model.get_submodule(name), theirs.get_submodule(name)) for name in changed]
    for ours, its in pairs:
        ours.B.data.normal_()
        its.lora_A["default"].weight.data.copy_(ours.A)
        its.lora_B["default"].weight.data.copy_(ours.B)
    slope = torch.randn(2, 13, 31)
    for one in (model, theirs):
        one(ids).backward(slope)
    torch.testing.assert_close(model(ids), theirs(ids))
    for ours, its in pairs:
        torch.testing.assert_close(ours.A.grad, its.lora_A["default"].weight.grad)
        torch.testing.assert_close(ours.B.grad, its.lora_B["default"].weight.grad)
    trained = {name for name, x in model.named_parameters() if x.requires_grad}
    assert len(trained) == sum(x.requires_grad for x in theirs.parameters()) == 2 * len(changed)
    merge_lora(model)
    for name, (_, its) in zip(changed, pairs, strict=True):
        its.merge()
        torch.testing.assert_close(model.get_submodule(name).weight, its.base_layer.weight)
    assert not any(isinstance(x, LoRALinear) for x in model.modules())


SMALL = {"d_model": 24, "n_layers": 1, "n_heads": 2, "d_ff": 17}
TIED = [
    Llama(LlamaConfig(31, **SMALL, tied=True)),
    GPT(GPTConfig(31, **SMALL)),
    assemble(AssemblyConfig(31, **SMALL, tied=True)),
]


@pytest.mark.parametrize("model", TIED)
def test_peft_warns_where_a_merge_would_change_the_token_table_too(model):
    changed = get_peft_model(model, LoraConfig(r=3, target_modules=["lm_head"]))
    with pytest.warns(UserWarning, match="tie_word_embeddings=True.*lm_head"):
        changed.merge_and_unload()


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_of_every_family_starts_as_it_was_and_is_the_same_when_merged(name):
    "With a change of every linear layer that shares no weights, those of experts too."
    model = FAMILIES[name].build(PUBLISHED[name]).eval()
    words, names = inputs(model, masked=False), model.state_dict().keys()
    uses = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))

    def where(_, layer):
        return type(layer) is nn.Linear and uses[id(layer.weight)] == 1

    before = model(**words)
    changed = add_lora(model, rank=3, alpha=7.0, where=where)
    assert len(changed) > 5
    layers = [model.get_submodule(layer) for layer in changed]
    assert all(torch.equal(layer.weight, layer.base.weight) for layer in layers)
    # A product's last bit may depend on where its numbers are in memory.
    torch.testing.assert_close(model(**words), before, rtol=0, atol=1e-13)
    for layer in changed:
        nn.init.normal_(model.get_submodule(layer).B, std=0.1)
    after = model(**words)
    after.square().mean().backward()
    learned = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert learned == {f"{name}.{factor}" for name in changed for factor in "AB"}
    assert not torch.allclose(after, before)
    assert merge_lora(model) == changed and model.state_dict().keys() == names
    torch.testing.assert_close(model(**words), after)
