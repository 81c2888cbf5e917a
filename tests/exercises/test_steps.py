"What a step of the thread demands is demanded: a change in its solution, and the line for it."

import pytest
import solved

from transformer_lit.exercises import check
from transformer_lit.exercises.my_transformer import STEPS

CAST = ".cos().to(x.dtype), angle.sin().to(x.dtype)"
BATCHES = "for ids, targets in islice(batches, steps):"
NORM = "self.weight = nn.Parameter(torch.ones(width))"
LAYERS = "nn.ModuleList([block() for _ in range(n_layers)])"
HIDE = "scores.masked_fill(~mask & some, -math.inf).softmax(-1) * some"
ADD = "(scores + torch.zeros(mask.shape).masked_fill(~mask, -math.inf)).softmax(-1).nan_to_num()"
EMPTY = "def __init__(self):\n        self.length, self.k, self.v = 0, None, None"
OTHERS = "called q_proj, found 0. Yours are called down_proj, gate_proj, k_proj, lm_head, o_proj, "
KEPT = "self.k, self.v, self.length"
LOOP = "    for _ in range(max_new_tokens):\n        new = model(ids)"
NONE = "    torch.cat([ids] * max_new_tokens)\n"  # fails where nothing is to be written
ONLY = "ids[:, -max_new_tokens:]\n\n\nclass CachedA"
DEMANDS = [  # beside those that are among an exercise's mistakes
    ("rotate", {"pos[..., None, :, None]": "pos[:, None]"}, "tensors of shapes (2, 3, 5, 14), "),
    ("MyLlama", {CAST: ".cos(), angle.sin()"}, "In float32 it fails; does `rotate` keep"),
    ("MyLlama", {LAYERS: "[block() for _ in range(n_layers)]"}, "use `nn.ModuleList`"),
    ("MyLlama", {"self.q_proj": "self.wq"}, OTHERS + "tok_emb, up_proj, v_proj, wq."),
    ("train", {"losses.append(loss.item())": "losses.append(loss.detach())"}, "are tensors"),
    ("train", {"    return losses": "    return torch.tensor(losses)"}, "are tensors"),
    ("train", {BATCHES: "for ids, targets in batches[:steps]:"}, "`batches` may be a stream"),
    ("train", {BATCHES: "for ids, targets in list(batches)[:steps]:"}, "has no length"),
    ("RMSNorm", {NORM: "self.weight = torch.ones(width)"}, "make `weight` an `nn.Parameter`"),
    ("attend", {HIDE: f"2 * {ADD} - {ADD}.detach()"}, "gradient of q: "),
    ("Cache", {EMPTY: "length, k, v = 0, None, None", KEPT: KEPT.replace("self", "Cache")},
     "A new cache is not empty: its length is"),
    ("generate", {LOOP: NONE + LOOP}, "non-empty list of Tensors"),
    ("generate", {LOOP: NONE + LOOP, "ids\n\n\nclass CachedA": ONLY}, "Return the prompt too"),
]  # fmt: skip


def verdict_of(name, changes):
    "The verdict on a step of the solved file, after these changes in it."
    text = solved.thread()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    names = {}
    exec(text, names)
    return check(STEPS[name].id, names[name])


@pytest.mark.parametrize("name,changes,line", DEMANDS)
def test_a_demand_that_is_not_met_has_its_line(name, changes, line):
    verdict = verdict_of(name, changes)
    assert verdict.state == "not yet" and line in repr(verdict), verdict
    assert verdict_of(name, {})
