"The capstones' solutions as a reader runs them: cell after cell, and up to the goal of the page."

import json
import math
from pathlib import Path

import pytest
import torch
import transformers as hf
from chapter import exercises
from chapter import source as text_of
from gguf_files import TOKENS, by_reference, theirs, write_model
from torch.testing import assert_close
from wide import Wide

from transformer_lit.exercises import answers, check, find_exercise, repair_shop
from transformer_lit.exercises.thread import solved_file
from transformer_lit.models.gguf import load_gguf

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # a reader runs without them
ROOT = Path(__file__).parents[2]
CAPSTONES = ROOT / "nbs/capstones"


def cells_of(chapter):
    return json.loads((CAPSTONES / f"{chapter}.ipynb").read_text())["cells"]


def source(cells, id):
    (found,) = (text_of(cell) for cell in cells if cell["id"] == id)
    return found


def solutions(cells):
    "All solutions of a page, in their order, by id."
    return {one.id: one.solution for one in exercises(cells)}


def solved(chapter, *more):
    "What the reader's notebook holds: its imports, all solutions in order, and more cells by id."
    cells, names = cells_of(chapter), {}
    code = [source(cells, "imports"), *solutions(cells).values()]
    for text in [*code, *(source(cells, id) for id in more)]:
        exec(text, names)
    return names


@pytest.fixture(autouse=True)
def as_it_was():
    "The first page asks for doubles; trainings are in single precision."
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def llama():
    return solved("01_llama_from_a_blank_file")


SIZES = {"vocab_size": 103, "hidden_size": 84, "num_hidden_layers": 3, "num_attention_heads": 6}
SIZES |= {"intermediate_size": 43, "rms_norm_eps": 0.01, "max_position_embeddings": 71}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 503.0}}
FORMS = {
    "as many key/value heads": {"num_key_value_heads": 6},
    "grouped heads": {"num_key_value_heads": 2, "head_dim": 10},
    "one key/value head, tied": {"num_key_value_heads": 1, "tie_word_embeddings": True},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_the_readers_llama_opens_what_transformers_wrote(llama, form, tmp_path):
    torch.set_default_dtype(torch.float64)
    config = hf.LlamaConfig(**SIZES, **ROPE, **form, bos_token_id=1, eos_token_id=None)
    with Wide():
        theirs = hf.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # multiples of 2^-10, which any float type holds
            parameter.normal_(std=0.3).mul_(1024).round_().div_(1024)
    theirs.save_pretrained(tmp_path / "folder")
    mine, ids = llama["load_llama"](tmp_path / "folder"), torch.randint(103, (2, 37))
    with Wide(), torch.no_grad():
        expected = theirs(ids).logits
    torch.testing.assert_close(mine(ids).detach(), expected)
    new = llama["generate"](mine, ids[:, :5], 11, lambda logits: logits.argmax(-1))
    text = torch.cat([ids[:, :5], new], 1)
    with Wide(), torch.no_grad():
        greedy = theirs(text).logits[:, 4:-1].argmax(-1)
    assert torch.equal(new, greedy)


FITS = {"rope.3": 4, "cache.3": 6}  # which parts of my_transformer.py the page says may be pasted
DIFFERS = {"attend.3": 5, "norm.3": 3, "feedforward.3": 8, "layers.3": 9, "llama.3": 10}


@pytest.mark.parametrize("id,number", [*FITS.items(), *DIFFERS.items()])
def test_the_page_names_the_parts_of_the_thread_that_fit(id, number):
    names = {"torch": torch, "nn": torch.nn, "math": math, "F": torch.nn.functional}
    exec(find_exercise(id).source, names)
    name = find_exercise(f"blank_llama.{number}").name
    fits = name in names and bool(check(f"blank_llama.{number}", names[name]))
    assert fits == (id in FITS)
    if fits:
        said = source(cells_of("01_llama_from_a_blank_file"), "title").partition("Of what you")[2]
        assert f"`{name}`" in said.partition("pasted")[0]


def test_the_readers_llama_is_about_a_hundred_lines():
    cells = cells_of("01_llama_from_a_blank_file")
    found = solutions(cells)
    built = [found[one.id] for one in exercises(cells) if one.kind == "build"]
    assert 90 < len([line for text in built for line in text.split("\n") if line.strip()]) < 130


def test_the_readers_translator_passes_the_first_two_milestones():
    names = solved("02_translator_from_a_blank_file", "tasks")
    page = source(cells_of("02_translator_from_a_blank_file"), "milestones")
    exec(page.removesuffix("milestones()"), names)
    assert names["milestones"](numbers=False) is None  # it asserts what it prints


# What each patient shows before it is mended, and how far it is from health

TEXT, PAIRS = repair_shop.letters(), repair_shop.numbers()


def damaged(number, *changes):
    names = {}
    cells = cells_of("03_repair_shop")
    (one,) = (e for e in exercises(cells) if e.id == f"repair_shop.{number}")
    program = one.blank.rpartition("check(")[0]
    for old, new in changes:
        assert old in program
        program = program.replace(old, new)
    exec(program, names | vars(repair_shop), names)
    return next(thing for name, thing in names.items() if name.startswith("patient"))


def test_patient_1_knows_what_it_reads_and_nothing_else():
    model, losses = damaged(2)(TEXT.train, len(TEXT.letters), 60)
    assert losses[-1] < 0.05 and repair_shop.next_letter_loss(model) > 4
    assert len(set(repair_shop.write(model, "forty", 20)[5:])) == 1  # one letter for ever


def test_patient_2_never_gets_below_its_floor_and_is_often_right():
    model, losses = damaged(4)(TEXT.train, len(TEXT.letters), 150)
    assert repair_shop.floor() < min(losses) < 2.6
    assert repair_shop.letters_right(model) > 0.5


GROWING = (
    ("for _ in", "for step in"),
    ("optimizer.step()", 'optimizer.param_groups[0]["lr"] = 0.05 * min(1, (step + 1) / 50)\n'
     "        optimizer.step()"),
)  # fmt: skip


def test_patient_3_stops_at_the_frequencies_of_words_and_needs_a_lower_rate():
    "A slow start is not enough."
    ends, logs = [], []
    for changes in ((), GROWING, [("lr=0.05", "lr=0.005")]):
        model, log = damaged(7, *changes)(PAIRS.src, PAIRS.tgt, len(PAIRS.words), 120)
        ends.append(float(repair_shop.translation_loss(model)))
        logs.append(log)
    words = PAIRS.tgt[:, 1:].flatten().bincount()[1:].double()
    share = words[words > 0] / words.sum()
    assert abs(sum(logs[0][-20:]) / 20 + (share * share.log()).sum()) < 0.2
    assert ends[0] > 2.4 and 1 < ends[1] < 2.2 and ends[2] < 0.3, ends


def test_patient_4_stands_still_while_its_gradients_add_up():
    names = vars(repair_shop)
    config = names["LlamaConfig"](len(TEXT.letters), 32, n_layers=1, n_heads=2, d_ff=64)
    given = names["Llama"](config)
    model, log = damaged(9)(given, TEXT.train, 60)
    losses, lengths = zip(*log)
    assert max(losses) - min(losses) < 0.2 and lengths[-1] > 20 * lengths[0]
    pairs = zip(given.parameters(), model.parameters())
    assert all(torch.equal(a, b) for a, b in pairs)  # nothing has moved


def test_patient_5_knows_how_long_the_number_is_and_not_which():
    model, losses = damaged(11)(PAIRS.src, PAIRS.tgt, len(PAIRS.words), 120)
    assert 1.2 < sum(losses[-20:]) / 20 < 1.9
    known = set(PAIRS.words)
    for asked, said in repair_shop.some_translations(model, rows=7):
        assert set(said.split()) <= known and said != " ".join(repair_shop.spelled(int(asked)))


OUGHT = {  # what a reader might do instead: what the verdict says
    "no mask": (11, ("src[rows] == 0)  # d", "None)"), "padding is seen now"),
    "shifted the wrong way": (
        2,
        ("logits = model(window)  # d\n        loss = cross_entropy(logits.mT, window)",
         "logits = model(window[:, 1:])\n        loss = cross_entropy(logits.mT, window[:, :-1])"),
        "the wrong way",
    ),
}  # fmt: skip


@pytest.mark.parametrize("number,change,line", OUGHT.values(), ids=list(OUGHT))
def test_a_wrong_repair_is_told_from_the_damage(number, change, line):
    cells = exercises(cells_of("03_repair_shop"))
    (one,) = (e for e in cells if e.id == f"repair_shop.{number}")
    assert change[0] in one.blank
    names = dict(vars(repair_shop))
    exec(one.blank.replace(*change).rpartition("check(")[0], names)
    verdict = check(one.id, names[find_exercise(one.id).name])
    assert line in verdict.line and verdict.state == "not yet", verdict


def test_an_untouched_patient_is_told_its_loss_and_the_bound():
    verdict = check("repair_shop.2", damaged(2))
    assert "on new text: it should be 'below 1.2' and is '" in verdict.line


# A solution with one line spoilt, as a reader would spoil it, gets the line that names the fault

LLAMA, TRANSLATOR = "01_llama_from_a_blank_file", "02_translator_from_a_blank_file"
PAIRED = ("a, b = x.chunk(2, dim=-1)", "a, b = x[..., ::2], x[..., 1::2]")
STACKED = (
    "torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)",
    "torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)",
)
UNTURNED = (
    """q, k = rotate(q, pos, self.base), rotate(k, pos, self.base)
        if cache:
            k, v = cache.update(k, v)""",
    """q = rotate(q, pos, self.base)
        if cache:
            k, v = cache.update(k, v)
        k = rotate(k, torch.arange(k.shape[2]), self.base)""",
)
REPEATED = ("x.repeat_interleave(H // x.shape[1], dim=1)", "x.repeat(1, H // x.shape[1], 1, 1)")
GATES = (
    "nn.functional.silu(self.gate_proj(x)) * self.up_proj(x)",
    "self.gate_proj(x) * nn.functional.silu(self.up_proj(x))",
)
OUTSIDE = (
    "(h.square().mean(-1, keepdim=True) + self.eps).sqrt()",
    "(h.square().mean(-1, keepdim=True).sqrt() + self.eps)",
)
SPOILT = [
    (LLAMA, 3, [("x.to(torch.promote_types(x.dtype, torch.float32))", "x")], "half precision"),
    (LLAMA, 3, [OUTSIDE], "outside of the root"),
    (LLAMA, 4, [PAIRED, STACKED], "neighbours"),
    (
        LLAMA,
        4,
        [("a * cos - b * sin, b * cos + a * sin", "a * cos + b * sin, b * cos - a * sin")],
        "the other way",
    ),
    (LLAMA, 5, [(" / D**0.5", "")], "not divided by √D"),
    (LLAMA, 5, [REPEATED], "repeat_interleave, not repeat"),
    (LLAMA, 5, [("tril(S - T)", "tril()")], "top left"),
    (LLAMA, 5, [("masked_fill(~seen", "masked_fill(seen")], "polarity"),
    (LLAMA, 7, [("cache.length if cache else 0", "0")], "positions go on"),
    (LLAMA, 7, [UNTURNED], "Turn, then keep"),
    (LLAMA, 7, [('c["rope_theta"]', "10000.0")], "rope_theta"),
    (LLAMA, 8, [GATES], "swapped"),
    (
        LLAMA,
        9,
        [("x = x + self.attn(self.attn_norm(x), cache)", "x = x + self.attn(self.attn_norm(x))")],
        "cache does not reach",
    ),
    (
        LLAMA,
        10,
        [('if c["tie_word_embeddings"]:\n            self', "if False:\n            self")],
        "tied output layer",
    ),
    (LLAMA, 10, [("self.lm_head(self.norm(x))", "self.lm_head(x)")], "last norm is missing"),
    (
        LLAMA,
        11,
        [('"attn_norm"', '"?"'), ('"ffn_norm"', '"attn_norm"'), ('"?"', '"ffn_norm"')],
        "norms are swapped",
    ),
    (LLAMA, 12, [PAIRED, STACKED], "neighbours"),
    (LLAMA, 12, [REPEATED], "dealt in turn"),
    (LLAMA, 12, [(" / D**0.5", "")], "not divided by √D"),
    (LLAMA, 12, [GATES], "Gate and up"),
    (LLAMA, 12, [('c["rms_norm_eps"]', "1e-6")], "rms_norm_eps"),
    (
        LLAMA,
        12,
        [("model.load_state_dict(ours)", "model.load_state_dict(ours, strict=False)")],
        "leave torch strict",
    ),
    (
        LLAMA,
        12,
        [('ours["lm_head.weight"] = ours["tok_emb.weight"]', "pass")],
        'Missing key(s) in state_dict: "lm_head.weight"',
    ),
    (LLAMA, 13, [("model(ids, caches)[:, -1]", "model(ids)[:, -1]")], "gets no caches"),
    (
        LLAMA,
        13,
        [("pick(model(ids, caches)[:, -1])", "pick(model(ids, caches)[:, 0])")],
        "last position",
    ),
    (TRANSLATOR, 3, [("table([[BOS, *target] for", "table([[*target, EOS] for")], "not shifted"),
    (TRANSLATOR, 4, [("masked_fill(~mask", "masked_fill(mask")], "polarity"),
    (
        TRANSLATOR,
        5,
        [("self.k_proj(memory), self.v_proj(memory)", "self.k_proj(x), self.v_proj(x)")],
        "come from the memory",
    ),
    (
        TRANSLATOR,
        7,
        [("dtype=torch.bool, device=x.device).tril()", "dtype=torch.bool)")],
        "future shows",
    ),
    (TRANSLATOR, 8, [("(src != PAD)", "(src == PAD)")], "turned round"),
    (TRANSLATOR, 9, [("logits.mT, tgt_out, ig", "logits.mT, tgt_in, ig")], "say `tgt_out`"),
    (TRANSLATOR, 9, [(", ignore_index=PAD", "")], "Padding counts"),
    (TRANSLATOR, 10, [("row[: row.index(EOS)]", "row[: row.index(EOS) + 1]")], "end token"),
    (TRANSLATOR, 11, [("keep = tgt_out != PAD", "keep = tgt_out > -1")], "so does padding"),
]


@pytest.mark.parametrize(
    "chapter,number,changes,line", SPOILT, ids=[f"{c[3:10]}.{n} {line}" for c, n, _, line in SPOILT]
)
def test_a_spoilt_solution_gets_the_line_that_names_its_fault(chapter, number, changes, line):
    cells, names = cells_of(chapter), {}
    exec(source(cells, "imports"), names)
    program = "\n\n".join(solutions(cells).values())
    for old, new in changes:
        assert old in program
        program = program.replace(old, new)
    exec(program, names)
    id = f"blank_{chapter[3:].split('_')[0]}.{number}"
    verdict = check(id, names[find_exercise(id).name])
    assert verdict.state == "not yet" and line in verdict.line, verdict


# The reader's own file, and published ones


def in_file(file, path):
    "What the reader's file makes of a GGUF file."
    c, tensors, vocabulary = answers.read_published(path, file["dequantise"])
    return file["open_llama"](c, tensors).requires_grad_(False), vocabulary


@pytest.fixture(scope="module")
def own_file():
    file = {}
    exec(solved_file(), file)
    return file


def test_the_readers_file_opens_what_the_gguf_package_wrote(own_file, tmp_path):
    eps = {"llama.attention.layer_norm_rms_epsilon": 1e-5}  # that of MyLlama
    made = theirs("llama", tied=True, base=503.0)
    path = write_model(tmp_path / "x.gguf", "llama", made, "Q4_1", pre="smollm", **eps)
    (mine, vocabulary), reference = in_file(own_file, path), by_reference(path)
    ids = torch.randint(len(TOKENS), (2, 37))
    assert_close(mine(ids), reference(ids).logits.detach(), atol=2e-4, rtol=0)
    text = "<|im_start|>the  bike's 12\n\n<|im_end|>ä _x"
    assert own_file["encode"](text, vocabulary) == load_gguf(path).tokenizer.encode(text)


@pytest.mark.machinery
def test_the_readers_file_gives_the_stored_answer(own_file, smollm2):
    (mine, vocabulary), page = in_file(own_file, smollm2), {}
    exec(source(cells_of("04_it_answers"), "stored"), page)
    text = f"<|im_start|>user\n{page['question']}<|im_end|>\n<|im_start|>assistant\n"
    assert own_file["encode"](text, vocabulary) == page["read_ids"]
    said = own_file["answer"](mine, vocabulary, [("user", page["question"])], 20)
    assert list(said) == page["answer_ids"]
    ids = torch.tensor([page["read_ids"] + page["answer_ids"]])
    package = load_gguf(smollm2)  # tests/models/test_gguf.py compares it with the reference library
    logits = package.model(ids).detach()
    assert_close(mine(ids), logits, atol=2e-4, rtol=0)
    assert logits[0, len(page["read_ids"]) - 1 :].argmax(-1).tolist() == [*page["answer_ids"], 2]
    assert vocabulary.special["<|im_end|>"] == 2
    prose = (ROOT / "README.md").read_text()
    assert own_file["encode"](prose, vocabulary) == package.tokenizer.encode(prose)
