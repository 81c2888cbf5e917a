"""The exercise of a whole Llama names the weights that are too many or missing."""

import pytest
from torch import nn

from transformer_lit.exercises import check
from transformer_lit.exercises.llama import MyLlama


def tied(model):
    model.lm_head.weight = model.tok_emb.weight


def biased(model):
    model.lm_head = nn.Linear(model.lm_head.in_features, model.lm_head.out_features)


def without_norms(model):
    for block in model.blocks:
        block.ffn_norm = nn.Identity()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (tied, "shares the token table"),
        (biased, "`lm_head.bias` is a bias"),
        (without_norms, "5 norms, one of them after the last layer, not 3"),
    ],
)
def test_the_verdict_names_them(change, line):
    class Changed(MyLlama):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            change(self)

    verdict = check("llama.3", Changed)
    assert verdict.state == "not yet" and line in verdict.line
    assert "raised" not in verdict.line
