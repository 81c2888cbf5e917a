"""Which parameters AdamW steps and decays, and schedules at their ends.

The chapter's cells check the formulas: see tests/damages/training.yml.
"""

import pytest
from torch import nn

from transformer_lit.training.schedule import adamw, cosine, inverse_sqrt


def net():
    return nn.Sequential(nn.Embedding(7, 5), nn.LayerNorm(5), nn.Linear(5, 3)).double()


def test_the_papers_defaults():
    model = net()
    for group in adamw(model, weight_decay=0.1).param_groups:
        assert (group["betas"], group["eps"]) == ((0.9, 0.98), 1e-9)
    assert adamw(model).param_groups[0]["weight_decay"] == 0


def test_matrices_decay_and_vectors_do_not():
    model = net()
    decayed, plain = adamw(model, weight_decay=0.1).param_groups
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    names = {id(p): name for name, p in model.named_parameters()}
    assert [names[id(p)] for p in decayed["params"]] == ["0.weight", "2.weight"]
    assert [names[id(p)] for p in plain["params"]] == ["1.weight", "1.bias", "2.bias"]


def test_tied_weights_are_stepped_once_and_frozen_ones_never():
    model = nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 7))
    model[1].weight = model[0].weight
    model[1].bias.requires_grad_(False)
    params = [p for group in adamw(model).param_groups for p in group["params"]]
    assert len(params) == 1 and params[0] is model[0].weight


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (inverse_sqrt(0.3, 1), {1: 0.3, 4: 0.15}),
        (inverse_sqrt(0.3, 11), {1: 0.3 / 11, 10: 3 / 11, 11: 0.3, 44: 0.15, 1100: 0.03}),
        (cosine(0.3, 2, 2), {1: 0.15, 2: 0.3}),  # it is all warm-up
        (cosine(0.3, 0, 10**6), {1: 0.3}),  # and here there is none
        (cosine(0.3, 5, 37, final=0.2), {1: 0.06, 5: 0.3, 21: 0.18, 37: 0.06, 1000: 0.06}),
    ],
)
def test_schedules_at_their_ends(rate, expected):
    assert {step: rate(step) for step in expected} == pytest.approx(expected)
