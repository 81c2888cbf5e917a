"""What is hidden, what is asked for, and that nothing else counts."""

import torch

from transformer_lit.models.bert import Bert, BertConfig
from transformer_lit.recipes.masked import MaskedModel, MaskedModeling, hide
from transformer_lit.recipes.recipe import preset
from transformer_lit.text.tokenizer import CharTokenizer
from transformer_lit.training.data import TextBatch

V = 13


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_shares_are_those_of_the_paper():
    ids = torch.randint(V, (211, 997), generator=generator(1))
    shown, asked = hide(ids, V, generator=generator())
    n = ids.numel()
    counts = {
        0.15: asked.sum(),
        0.12: (shown == V).sum(),
        0.015 * (1 - 1 / V): ((shown != ids) & (shown != V)).sum(),  # one in V draws what is there
    }
    for share, count in counts.items():
        assert abs(int(count) / n - share) < 5 * (share * (1 - share) / n) ** 0.5
    assert (asked | (shown == ids)).all()  # what is not asked for is shown as it is
    assert shown.min() >= 0 and shown.max() == V
    again = hide(ids, V, generator=generator())
    assert torch.equal(shown, again[0]) and torch.equal(asked, again[1])


def test_training_draws_anew_and_validation_does_not():
    torch.manual_seed(0)
    recipe = preset(MaskedModeling, "book", length=31)
    model = MaskedModeling.build(recipe, V).double().eval()
    assert model.config.vocab_size == V + 1
    batch = TextBatch(*torch.randint(V, (2, 7, 31)))
    trained = [recipe.step(model, batch)[0].item() for _ in range(2)]
    state = torch.get_rng_state()
    measured = [recipe.loss(model, batch)[0].item() for _ in range(2)]
    assert trained[0] != trained[1] and measured[0] == measured[1]
    assert torch.equal(state, torch.get_rng_state())  # a measurement changes no training


def test_a_model_that_knows_nothing_is_in_doubt_among_all():
    tokenizer = CharTokenizer("\n abc")
    model = Bert(BertConfig(6, d_model=10, n_layers=1, n_heads=2, d_ff=7, max_len=31)).double()
    torch.nn.init.zeros_(model.tok_emb.weight)  # every logit is 0
    metrics = MaskedModel(model, tokenizer, {}).score(
        "a cab, a cab. ".replace(",", "").replace(".", "") * 30
    )
    assert abs(metrics["perplexity"] - 6) < 1e-9
    assert MaskedModel.describe(metrics) == "perplexity 6.00 on hidden tokens"
