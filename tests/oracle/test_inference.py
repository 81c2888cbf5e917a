"""Filters, penalties and beams are those of `transformers`."""

import pytest
import torch
from transformers import LogitsProcessorList
from transformers.generation import logits_process
from wide import Wide

from benchmarks.peers import hf_marian
from transformer_lit.inference.beam import beam_search
from transformer_lit.inference.sampling import keep_min_p, keep_top_k, penalise_repeats
from transformer_lit.models.transformer import Transformer, TransformerConfig


@pytest.mark.parametrize("share", [1e-9, 0.03, 0.2, 0.7, 1.0])
def test_min_p(share):
    x = 3 * torch.randn(13, 101)
    expected = logits_process.MinPLogitsWarper(share)(None, x)
    assert torch.equal(keep_min_p(x, share), expected)


@pytest.mark.parametrize("penalty", [1, 1.2, 2.0, 1e9])
def test_the_repetition_penalty(penalty):
    x, ids = 3 * torch.randn(5, 23), torch.randint(23, (5, 11))
    x[:, 3] = -torch.inf
    ids[0] = 3  # banned, and said eleven times
    expected = logits_process.RepetitionPenaltyLogitsProcessor(float(penalty))(ids, x)
    assert torch.equal(penalise_repeats(x, ids, penalty), expected)


def test_filters_compose_to_the_librarys_chain():
    x, ids = 3 * torch.randn(17, 101), torch.randint(101, (17, 7))
    theirs = LogitsProcessorList(
        [
            logits_process.RepetitionPenaltyLogitsProcessor(1.3),
            logits_process.TemperatureLogitsWarper(0.7),
            logits_process.TopKLogitsWarper(31),
            logits_process.MinPLogitsWarper(0.02),
        ]
    )
    ours = keep_min_p(keep_top_k(penalise_repeats(x, ids, 1.3) / 0.7, 31), 0.02)
    torch.testing.assert_close(ours, theirs(ids, x))
    assert ours.isfinite().sum(-1).min() < 31  # both filters have work to do


@pytest.mark.parametrize("beam", [3, 5])
def test_beams_on_the_same_weights(beam):
    """All `beam` hypotheses without a penalty: theirs has another formula than ours.

    HF's search is over when `beam` are finished and what is open beats none of them: with
    n_best = beam, so is ours. (`early_stopping=True` would not look at what is open.) When there
    is no room left it takes the first `beam` candidates, ended or cut. Ours adds cut ones that
    rank after them, so none of those is among the `beam` best.
    """
    torch.manual_seed(0)  # the last line says what the weights must be like
    ours = Transformer(TransformerConfig(29, d_model=12, d_ff=17, n_heads=3, n_layers=2)).eval()
    for name, weight in ours.named_parameters():
        if name.startswith("decoder") and name.endswith(("o_proj.weight", "down_proj.weight")):
            weight.data.mul_(10)  # or it says one token again and again
    with Wide():
        theirs = hf_marian(ours).eval()
    src = torch.randint(29, (5, 7))
    src_mask = torch.arange(7) < torch.tensor([[7], [2], [5], [3], [1]])
    lengths, not_greedy = set(), 0
    for eos in range(2, 29, 4):
        with Wide():
            expected = theirs.generate(
                src,
                attention_mask=src_mask.long(),
                num_beams=beam,
                num_return_sequences=beam,
                length_penalty=0.0,
                early_stopping="never",
                do_sample=False,
                max_new_tokens=11,
                eos_token_id=eos,
                return_dict_in_generate=True,
                output_scores=True,
            )
        said = [row[: (row + [eos]).index(eos)] for row in expected.sequences[:, 1:].tolist()]
        settings = {"bos": 1, "eos": eos, "max_len": 11, "beam": beam, "alpha": 0.0}
        found = beam_search(ours, src, src_mask, n_best=beam, **settings)
        assert [list(h.ids) for hypotheses in found for h in hypotheses] == said
        log_probs = torch.tensor([h.log_prob for hypotheses in found for h in hypotheses])
        torch.testing.assert_close(log_probs, expected.sequences_scores)
        best = beam_search(ours, src, src_mask, **settings)  # may stop earlier: by the bound
        assert [[h.ids for h in row] for row in best] == [[row[0].ids] for row in found]
        lengths |= {len(ids) for ids in said}
        greedy = beam_search(ours, src, src_mask, **settings | {"beam": 1})
        not_greedy += sum(a[0].ids != b[0].ids for a, b in zip(best, greedy, strict=True))
    assert len(lengths) > 3 and 11 in lengths and not_greedy > 5
