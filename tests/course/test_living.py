"The reader's model trains with the parts that there are; a part that is broken gets one line."

import math
from pathlib import Path

import pytest

from transformer_lit.course.files import InputError
from transformer_lit.course.my_model import NATS, OWN_FILE, fitting, grow, solved_file
from transformer_lit.course.records import read_measurement
from transformer_lit.exercises.my_transformer import (
    LAST,
    Written,
    check_file,
    expected,
    write_rung,
    write_starter,
)

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # a reader runs without them
SHORT = {"steps": 2, "count": 2, "length": 7}
ADDS = [["loss"], ["generate"], ["attend"], ["causal_mask"], [], ["MultiHead"], ["rotate"]]
ADDS += [["RMSNorm"], ["SwiGLU"], ["Block"], ["Decoder"], ["Cache", "caches"], ["repeat_heads"]]
ADDS += [["train", "warmup"], ["top_p"], [], [], [], []]  # what a step brings to the model


@pytest.fixture
def own(tmp_path):
    "A file with this text, and its path."

    def own(text):
        (tmp_path / OWN_FILE).write_text(text)
        return tmp_path / OWN_FILE

    return own


def test_each_step_adds_its_part_and_the_model_of_these_parts_learns_and_writes(own):
    used, digits = set(), {}
    for n in range(1, LAST + 1):
        used |= {*ADDS[n - 1]}
        path = own(solved_file(n))
        parts, said = fitting(path, [])
        assert (set(parts), said) == (used, []), n
        if n <= 15:
            found = grow(path, list(parts), n, **SHORT)
            assert found["nats"] < found["untrained"] < 4.2 and len(found["sample"]) == 7, n
            assert math.isfinite(found["before"]) and found["unit"], n
            digits[n] = found["nats"]
    assert (
        digits[10] == digits[11] == pytest.approx(digits[12], abs=1e-5)
    )  # only joined, and cached
    assert digits[13] != digits[12]
    assert grow(own(solved_file(2)), ["loss", "generate"], 2, **SHORT)["after"] > 1


def test_the_empty_functions_of_later_steps_are_no_mistakes(own, tmp_path):
    write_starter(tmp_path / OWN_FILE)
    path = own((tmp_path / OWN_FILE).read_text() + solved_file(1))
    written = write_rung(path, check_file(path), 2)
    assert (written.rung["step"], written.said) == (1, ())


def test_a_wrong_rotation_changes_the_number(own):
    right = solved_file(7)
    path = own(right)
    before = grow(path, list(fitting(path, [])[0]), 7, **SHORT)["nats"]
    path = own(right.replace("a * cos - b * sin", "a * cos + b * sin"))
    parts, said = fitting(path, [])
    assert "rotate" in parts and said == []
    assert grow(path, list(parts), 7, **SHORT)["nats"] != before


MASK_LINES = """    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
"""
MASK_SET = """    if mask is None:
        return scores.softmax(-1) @ v
    some = mask.any(-1, keepdim=True)
    weights = scores.masked_fill(~mask & some, -math.inf).softmax(-1) * some
    return weights @ v"""
LOOP = "for _ in range(max_new_tokens):"
KEPT = "k, v = torch.cat([self.k, k], dim=2), torch.cat([self.v, v], dim=2)  # B H S D"
MERGED = "return self.o_proj(heads.transpose(1, 2).flatten(2))"
BOTH = "return x + self.ffn(self.ffn_norm(x))"
START = "start = 0 if cache is None else cache.length"
CLIP = "        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
BROKEN = {  # the steps that are solved, what is changed, what is added; the part and its line
    "empty": (None, {}, "", "", ""),
    "syntax": (1, {}, "def attend(q, k, v:\n    pass\n", "!", "syntax error in line"),
    "raises at import": (
        *(2, {}, "x = torch.zeros(2) @ torch.zeros(3)\n", "!"),
        "x = torch.zeros(2) @ torch.zeros(3)",
    ),
    "exit at import": (2, {}, "raise SystemExit\n", "!", ": raise SystemExit"),
    "input at import": (2, {}, "input('name? ')\n", "!", "input('name? ')"),
    "all open": (
        *(None, {}, "def loss(logits, targets):\n    raise NotImplementedError\n"),
        *("", ""),
    ),
    "the sum": (1, {"right).mean()": "right).sum()"}, "", "loss", "the mean of −ln p is"),
    "the sign": (1, {"return (z.exp": "return -(z.exp"}, "", "loss", "return -(z.exp"),
    "no gradient": (1, {").mean()": ").mean().detach()"}, "", "loss", ".mean().detach()"),
    "the weights": (
        *(3, {".softmax(-1) @ v": ".softmax(-1)"}, "", "attend"),
        "return (q @ k.mT).softmax(-1)",
    ),
    "over the queries": (3, {"softmax(-1)": "softmax(-2)"}, "", "", ""),
    "strict mask": (5, {"arange(S) <=": "arange(S) <"}, "", "", ""),
    "attend takes no mask": (
        *(5, {", mask=None): ": "):"}, "", "", ""),
    ),
    "mask upside down": (
        *(5, {"arange(S) <=": "arange(S) >="}, "", "causal_mask"),
        "sees the future: the last letter changes what came before it. Line",
    ),
    "forgets the mask": (
        *(6, {"attend(q, k, v, mask=mask)": "attend(q, k, v)"}, "", "MultiHead"),
        MERGED[:40],
    ),
    "half written": (6, {MERGED: "raise NotImplementedError"}, "", "", ""),
    "returns None": (
        *(6, {MERGED: MERGED.removeprefix("return ")}, "", "MultiHead"),
        "class MultiHead(nn.Module):",
    ),
    "no position yet": (6, {}, "def rotate(x, pos, base=1e4):\n    return x\n", "", ""),
    "no width": (
        *(8, {"self, width, eps=1e-5": "self, eps=1e-5", "ones(width)": "ones(64)"}, "", "RMSNorm"),
        "Line",
    ),
    "attention twice": (
        *(10, {"self.ffn(self.ffn_norm(x))": "self.attn(self.ffn_norm(x))"}, "", "Block"),
        "return x + self.attn(self.ffn_norm(x))",
    ),
    "Block returns None": (10, {BOTH: BOTH.removeprefix("return ")}, "", "Block", "class Block(nn"),
    "only the newest": (12, {KEPT: "pass"}, "", "Cache", "Line"),
    "turned from 0": (12, {START: "start = 0"}, "", "Cache", "logits from one read in one. Line"),
    "repeat": (
        *(13, {"k.repeat_interleave(n_": "k.tile(1, n_", "[1], dim=1)": "[1], 1, 1)"}),
        *("", "", ""),
    ),
    "returns nothing": (14, {"    return losses": "    return"}, "", "train", "returns None. Line"),
    "the new ones only": (
        *(2, {"    return ids": "    return ids[:, -max_new_tokens:]"}, "", "generate"),
        "a tensor of whole numbers of shape (2, 3). Line",
    ),
    "a number": (2, {}, "attend = 3\n", "attend", "`attend` is neither a function nor a class."),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_gets_one_line_with_its_own_code_and_the_rest_runs(case, own):
    n, changes, more, part, line = BROKEN[case]
    text = solved_file(n) if n else "import torch\n"
    for old, new in changes.items():
        assert old in text or case == "attend takes no mask", (case, old)
        text = text.replace(old, new)
    path = own(f"{text}\n\n{more}" if more else text)
    if part == "!":
        with pytest.raises(InputError) as error:
            fitting(path, [])
        assert line in str(error.value) and "\n" not in str(error.value)
        return
    parts, said = fitting(path, [])
    if part:
        (told,) = said
        assert told.startswith(f"{part} is left out. ") and line in told and "\n" not in told
    else:
        assert said == []
    assert part not in parts
    if "loss" in parts and part:
        assert grow(path, list(parts), 1, **SHORT)["nats"] < 4.5


def test_a_rate_that_is_far_too_large_is_told(own):
    path = own(solved_file(14).replace(CLIP, "").replace('["lr"] = lr', '["lr"] = 1e30'))
    with pytest.raises(InputError, match="ends as nan"):
        grow(path, list(fitting(path, [])[0]), 14, **SHORT | {"steps": 9})


def test_what_is_printed_beside_the_readers_numbers_is_the_record():
    rows = read_measurement(Path(__file__).parents[2] / "results/measurements/living.json").rows
    nats, plain = {}, []
    for row in rows:
        seeds = plain if row["without"] else nats.setdefault(row["step"], [])
        seeds.append(round(row["nats"], 3))
    assert expected() == {"nats": nats, "plain": plain}
    rung = {"step": 14, "unit": NATS, "before": 0.31, "after": 0.13, "nats": 0.13, "sample": "a"}
    said = str(Written(rung, "b", [rung], (), 55.2, 600, 0.12)).splitlines()
    assert said[0] == "Step 14: 0.31 (untrained) → 0.13 nats a letter (600 steps, 55 seconds)"
    assert said[1].endswith("at the end: 0.12")
    assert "without warm-up, decay and clipping: 0.16 (0.16 to 0.17)" in said[2]
