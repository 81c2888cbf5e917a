"What LoRA leaves as it is. The equalities are cells of its chapter; other libraries, in oracle."

import pytest
import torch
from torch import nn

from transformer_lit.assistant.lora import LoRALinear, add_lora, merge_lora


def two_layers():
    return nn.Sequential(nn.Linear(5, 7, bias=False), nn.Linear(7, 3)).to(torch.bfloat16)


def chosen(name):
    return lambda found, _: found == name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rank": 0}, "rank must be 1 or more, got 0"),
        ({"where": lambda _, module: isinstance(module, nn.Sequential)}, "where matches no module"),
    ],
)
def test_what_cannot_be_done_is_refused_and_the_model_is_as_it_was(change, words):
    model = two_layers()
    with pytest.raises(ValueError, match=words):
        add_lora(model, **{"rank": 2, "alpha": 3.0, "where": chosen("0")} | change)
    assert all(type(layer) is nn.Linear for layer in model)
    assert all(weight.requires_grad for weight in model.parameters())


def test_a_layer_keeps_its_dtype_its_bias_and_after_merging_its_parameters():
    model = two_layers()
    before = [*model.parameters()]
    assert add_lora(model, rank=2, alpha=3.0, where=lambda name, _: name in "01") == ["0", "1"]
    assert all(isinstance(layer, LoRALinear) for layer in model)
    assert model[0].bias is None and model[1].bias is before[-1]
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert merge_lora(model) == ["0", "1"]
    assert all(x is y for x, y in zip(model.parameters(), before, strict=True))
    assert all(weight.requires_grad for weight in before)
