"What a step of the thread demands is demanded: one change in its solution, and the line for it."

import pytest
import solved
import torch

from transformer_lit.exercises import check
from transformer_lit.exercises.thread import STEPS


def verdict_of(name, *changes):
    "The verdict on a step of the solved file, after these changes in it."
    text = solved.thread()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    names = {}
    exec(text, names)
    return check(STEPS[name].id, names[name])


ROPE = ".cos().to(x.dtype), angle.sin().to(x.dtype)"
STEP = "        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
BATCHES = "for ids, targets in islice(batches, steps):"
NORM = "self.weight = nn.Parameter(torch.ones(width))"
NORMS = "self.attn_norm, self.ffn_norm = attn_norm, ffn_norm"
LAYERS = "nn.ModuleList([block() for _ in range(n_layers)])"
FIRST = "        self.tok_emb = nn.Embedding("
LAST = "        self.norm = RMSNorm(d_model, eps=1e-5)\n"
HEAD = "        self.lm_head = nn.Linear(d_model, vocab_size, bias=False)\n"
HIDE = "scores.masked_fill(~mask & some, -math.inf).softmax(-1) * some"
ADD = "(scores + torch.zeros(mask.shape).masked_fill(~mask, -math.inf)).softmax(-1).nan_to_num()"
DEMANDS = [
    ("rotate", [(ROPE, ".cos(), angle.sin()")], "The result is not of the type of `x`"),
    ("rotate", [(", dtype=torch.float64) / D)", ") / D)")], "make the frequencies in float64"),
    ("rotate", [("pos[..., None, :, None]", "pos[:, None]")], "hands over shapes (2, 3, 5, 14), "),
    ("MyLlama", [(LAST, ""), (FIRST, LAST + FIRST)], "Assign the last norm after the layers"),
    ("MyLlama", [(HEAD, ""), (FIRST, HEAD + FIRST)], "table before that of the output"),
    ("MyLlama", [(ROPE, ".cos(), angle.sin()")], "In float32 it fails; does `rotate` keep"),
    ("MyLlama", [(LAYERS, "[block() for _ in range(n_layers)]")], "use `nn.ModuleList`"),
    ("MyLlama", [(NORMS, "self.ffn_norm, self.attn_norm = ffn_norm, attn_norm")], "in `Block` too"),
    ("train", [("losses.append(loss.item())", "losses.append(loss.detach())")], "are tensors"),
    ("train", [("    return losses", "    return torch.tensor(losses)")], "are tensors"),
    ("train", [(BATCHES, "for ids, targets in batches[:steps]:")], "`batches` may be a stream"),
    ("train", [(BATCHES, "for ids, targets in list(batches)[:steps]:")], "has no length"),
    ("train", [(STEP, ""), ("        loss.backward()\n", STEP + "        loss.backward()\n")],
     "missing or misplaced"),
    ("train", [(STEP, ""), ("        optimizer.step()\n", "        optimizer.step()\n" + STEP)],
     "missing or misplaced"),
    ("RMSNorm", [(NORM, "self.weight = torch.ones(width)")], "make `weight` an `nn.Parameter`"),
    ("attend", [(HIDE, ADD)], "never make it"),
    ("attend", [(HIDE, f"2 * {ADD} - {ADD}.detach()")], "gradient of q: "),
]  # fmt: skip


@pytest.mark.parametrize("name,changes,line", DEMANDS)
def test_a_demand_that_is_not_met_has_its_line(name, changes, line):
    verdict = verdict_of(name, *changes)
    assert verdict.state == "not yet" and line in repr(verdict), verdict


def test_the_solved_steps_pass_and_take_a_stream():
    for name in ("rotate", "RMSNorm", "attend", "train"):
        assert verdict_of(name)


def test_maps_of_other_names_are_listed():
    names = {}
    exec(solved.thread().replace("self.q_proj", "self.wq"), names)
    line = check(STEPS["MyLlama"].id, names["MyLlama"]).line
    assert line.endswith("called q_proj, found 0. Yours are called down_proj, gate_proj, k_proj, "
                         "lm_head, o_proj, tok_emb, up_proj, v_proj, wq.")  # fmt: skip


def test_a_cache_that_all_share_is_told():
    class Shared:
        k, v = [], []  # of the class, not of one cache
        length = property(lambda self: sum(piece.shape[2] for piece in self.k))

        def update(self, k, v):
            self.k.append(k)
            self.v.append(v)
            return torch.cat(self.k, dim=2), torch.cat(self.v, dim=2)

    assert "A new cache is not empty: its length is" in check("cache.3", Shared).line


def test_what_is_wrong_in_an_earlier_case_comes_before_what_fails_in_a_later_one():
    def only_the_new(model, ids, max_new_tokens):
        new = []
        for _ in range(max_new_tokens):
            new.append(model(torch.cat([ids, *new], 1))[:, -1].argmax(-1, keepdim=True))
        return torch.cat(new, 1)  # fails where nothing is to be written

    assert check("sampling.3", only_the_new).line.startswith("Return the prompt too")

    def without_none(model, ids, max_new_tokens):
        return torch.cat([ids, only_the_new(model, ids, max_new_tokens)], 1)

    verdict = check("sampling.3", without_none)
    assert "non-empty list of Tensors" in verdict.line and "“nothing new”" in verdict.notes[0]
