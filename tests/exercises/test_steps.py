"What a step of the thread demands is demanded: a change in its solution, and the line for it."

import pytest
import solved

from transformer_lit.exercises import check
from transformer_lit.exercises.my_transformer import STEPS

BATCHES = "enumerate(islice(batches, steps)):"
NORM = "self.weight = nn.Parameter(torch.ones(width))"
LAYERS = "nn.ModuleList(block() for _ in range(n_layers))"
HIDE = "scores.masked_fill(~mask & some, -math.inf).softmax(-1) * some"
ADD = "(scores + torch.zeros(mask.shape).masked_fill(~mask, -math.inf)).softmax(-1).nan_to_num()"
EMPTY = "def __init__(self):\n        self.length, self.k, self.v = 0, None, None"
OTHERS = "called q_proj, found 0. Yours are called down_proj, gate_proj, k_proj, lm_head, o_proj, "
KEPT = "self.k, self.v, self.length"
LOOP = "    for _ in range(max_new_tokens):\n        logits"
NONE = "    torch.cat([ids] * max_new_tokens)\n"  # fails where nothing is to be written
LAST = "torch.multinomial(p, 1))], 1)\n    return ids"
DEMANDS = [  # beside those that are among an exercise's mistakes
    ("rope.3", {"pos[..., None, :, None]": "pos[:, None]"}, "tensors of shapes (2, 3, 5, 14), "),
    ("gpt.6", {LAYERS: "[block() for _ in range(n_layers)]"}, "use `nn.ModuleList`"),
    ("gpt.6", {"self.q_proj": "self.wq"}, OTHERS + "tok_emb, up_proj, v_proj, wq."),
    ("trainer.3", {"losses.append(value.item())": "losses.append(value.detach())"}, "tensors."),
    ("trainer.3", {"    return losses": "    return torch.tensor(losses)"}, "tensors."),
    ("trainer.3", {BATCHES: "enumerate(batches[:steps]):"}, "`batches` may be a stream"),
    ("trainer.3", {BATCHES: "enumerate(list(batches)[:steps]):"}, "has no length"),
    ("norm.3", {NORM: "self.weight = torch.ones(width)"}, "Make `weight` an `nn.Parameter`"),
    ("attend.3", {HIDE: f"2 * {ADD} - {ADD}.detach()"}, "gradient of q: "),
    ("cache.3", {EMPTY: "length, k, v = 0, None, None", KEPT: KEPT.replace("self", "Cache")},
     "A new cache isn't empty: its length is"),
    ("primer.6", {LOOP: NONE + LOOP}, "non-empty list of Tensors"),
    ("primer.6", {LAST: LAST + "[:, -max_new_tokens:]"}, "Return the prefix too"),
]  # fmt: skip


def verdict_of(id, changes):
    "The verdict on a step of the solved file, after these changes in it."
    text = solved.thread()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    names = {}
    exec(text, names)
    return check(id, names[STEPS[id].name])


@pytest.mark.parametrize("id,changes,line", DEMANDS)
def test_a_demand_that_is_not_met_has_its_line(id, changes, line):
    verdict = verdict_of(id, changes)
    assert verdict.state == "not yet" and line in repr(verdict), verdict
    assert verdict_of(id, {})
