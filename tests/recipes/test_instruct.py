"""Conversations of your own, and rewards: what counts in the loss, and what is refused."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from transformer_lit.assistant.instructions import is_right, right_digit
from transformer_lit.course.files import InputError
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.recipes.instruct import (
    Assistant,
    Instructing,
    Reasoner,
    Reasoning,
    answer_step,
    rows_from_file,
    sampled_answers,
    signed,
    tokens_of,
    unsigned,
)
from transformer_lit.recipes.language_model import LanguageModel
from transformer_lit.recipes.recipe import finish_training, open_training, preset
from transformer_lit.recipes.zoo import load
from transformer_lit.text.tokenizer import BPETokenizer, PublishedTokenizer
from transformer_lit.training.data import TextBatch, pad

pytestmark = pytest.mark.usefixtures("no_shape_checks")
TEMPLATE = """{% for m in messages %}<|{{ m.role }}|>{{ m.content }}
{%- if m.role == 'assistant' %}<|end|>{% endif %}
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
TRIMS = TEMPLATE.replace("m.content }}", "m.content if loop.last else '' }}")  # old messages
MARKS = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
ASKED, SAID = ({"role": r, "content": c} for r, c in (("user", "Who?"), ("assistant", "A man.")))
TALK = {"messages": [ASKED, SAID]}
PAIR = {"prompt": "12345678=", "completion": ">6$"}
SMALL = {"steps": 3, "every": 3, "warmup": 1, "batch_size": 2}


@pytest.fixture(scope="module")
def talker():
    "A tiny chat model, as one that was published would be opened."
    torch.manual_seed(0)
    backend = BPETokenizer.train(["Who? A man is riding a bike."], 277).backend
    backend.add_special_tokens(MARKS)
    tokenizer = PublishedTokenizer(backend, pad_id=0, bos_id=1, eos_id=2)
    model = Llama(LlamaConfig(tokenizer.vocab_size, d_model=8, n_layers=1, n_heads=2, d_ff=7))
    info = {"chat_template": TEMPLATE, "ends": (tokenizer.backend.token_to_id("<|end|>"),)}
    return LanguageModel(model, tokenizer, {**info, "dataset": "own", "length": 64})


@pytest.fixture
def write(tmp_path, monkeypatch):
    "Writes my.jsonl, a line for each row; a string is a line as it is."
    monkeypatch.chdir(tmp_path)

    def write(*rows):
        texts = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        (tmp_path / "my.jsonl").write_text("\n".join(texts), encoding="utf-8")
        return "my.jsonl"

    return write


# --- what counts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_all_answers_with_their_ends_count_and_nothing_else(talker, turns):
    tokenizer = talker.tokenizer
    row = {"messages": [ASKED, {**SAID, "content": "A <|end|> is typed."}] * turns}
    ids, roles = tokens_of(tokenizer, row, TEMPLATE)
    counted = [i for i, role in zip(ids, roles, strict=True) if role]
    end = tokenizer.backend.token_to_id("<|end|>")
    text = tokenizer.encode_written("A <|end|> is typed.", "A ******* is typed.")
    assert counted == [*text, end] * turns and len(ids) == len(roles)


def test_a_pair_is_two_texts_and_the_second_counts():
    tokenizer = load("running-sum").tokenizer
    ids, roles = tokens_of(tokenizer, PAIR, None)
    assert tokenizer.decode(ids) == "12345678=>6$" and roles == [0] * 9 + [1] * 3


def test_the_loss_is_that_of_the_answers_alone():
    start = load("running-sum")
    tokenizer, model = start.tokenizer, start.model.double()
    rows = [PAIR, {"prompt": "11111111=", "completion": "12345678>8$"}]
    found = [tokens_of(tokenizer, row, None) for row in rows]
    table = pad([signed(*row) for row in found], -1)
    ids = unsigned(table)
    loss, count = answer_step(model, TextBatch(table[:, :-1], table[:, 1:]))
    by_hand = torch.tensor(0.0, dtype=torch.float64)
    for (row, _), line in zip(found, ids, strict=True):
        log_p = model(line[None])[0].log_softmax(-1)
        for t in range(9, len(row)):
            by_hand = by_hand - log_p[t - 1, row[t]]
    assert count == 3 + 11
    torch.testing.assert_close(loss, by_hand)


# --- what is refused ------------------------------------------------------------------------------

FORMS = 'line 2 must be a JSON object with "prompt": "…", "completion": "…" or "messages": .{"role"'
REFUSED = [  # the second line of a file whose first is right; words of the one line
    ("no json", FORMS),
    ("3", FORMS),
    ("[" * 10_000, FORMS),
    ({"question": "Who?", "answer": "A man."}, FORMS),
    ({"messages": []}, FORMS),
    ({"messages": [ASKED, {"role": "assistant"}]}, FORMS),
    ({"messages": [ASKED, {"role": "assistant", "content": 3}]}, FORMS),
    ({"messages": "Who?"}, FORMS),
    ({"prompt": "Who?"}, FORMS),
    ({"prompt": "Who?", "completion": None}, FORMS),
    ({"messages": [ASKED]}, "line 2 has no answer to learn. Add one or delete it"),
    ({"prompt": "Who?", "completion": ""}, "line 2 has no answer to learn. Add one or delete it"),
]


@pytest.mark.parametrize(("line", "told"), REFUSED)
def test_a_line_that_is_no_conversation_is_named(write, line, told):
    with pytest.raises(InputError, match=told) as failure:
        rows_from_file(write(PAIR, line))
    assert str(failure.value).startswith("my.jsonl, ") and "\n" not in str(failure.value)


def instruct(start, *rows, **changes):
    return lambda write: preset(
        Instructing, "own", like=start, paths=[write(*rows)], **{**SMALL, **changes}
    )


def reason(start, **changes):
    return lambda write: preset(Reasoning, "running-sum", like=start, **{**SMALL, **changes})


NOT_TRAINED = {  # a recipe, the model that it begins with, words of the one line
    "two rows": (lambda m: instruct(m, TALK, TALK), True, "Give at least 3 conversations, got 2"),
    "no model": (lambda m: instruct(None, *[PAIR] * 3), False, "to start from: --from MODEL"),
    "no template": (
        lambda m: instruct(load("running-sum"), *[TALK] * 3),
        "running-sum",
        "no chat template in the model. Give prompt and completion instead",
    ),
    "too long": (
        lambda m: instruct(m, *[TALK] * 3, length=5),
        True,
        r"2 of 2 conversations are longer than 5 tokens\. .*: --set length=\d+",
    ),
    "a template that changes what was said": (
        lambda m: instruct(m, *[{"messages": [ASKED, SAID] * 2}] * 3, chat_template=TRIMS),
        True,
        "the chat template changes earlier messages, .*. Give one answer per row",
    ),
    "files under another option": (
        lambda m: instruct(m, *[TALK] * 3, text=["my.jsonl"]),
        True,
        "the instruct run has no text; give its files as --data",
    ),
    "a change of no layer": (
        lambda m: instruct(m, *[TALK] * 3, where=["nothing"]),
        True,
        "where matches no module of the model. Another choice: --set where=q_proj,v_proj",
    ),
    "rewards without a model": (lambda m: reason(None), False, "to start from: --from running-sum"),
    "rewards for files": (
        lambda m: reason(load("running-sum"), dataset="own"),
        "running-sum",
        "A reward is code, not a file. Leave out --data",
    ),
    "a scale that there is not": (
        lambda m: reason(load("running-sum"), scale="variance"),
        "running-sum",
        "scale must be std or none, got 'variance'",
    ),
    "groups of none": (
        lambda m: reason(load("running-sum"), group_size="0"),
        "running-sum",
        "group_size",
    ),
}


@pytest.mark.parametrize("case", NOT_TRAINED)
def test_what_cannot_be_trained_is_one_line(talker, write, tmp_path, case):
    make, start, told = NOT_TRAINED[case]
    begin = {True: talker, False: None}.get(start) if isinstance(start, bool) else load(start)
    with pytest.raises(InputError, match=told) as failure:
        open_training(make(talker)(write), "run", device="cpu", start=begin)
    assert "\n" not in str(failure.value) and not (tmp_path / "run").exists()


# --- from the first step to a model that is opened ------------------------------------------------


def test_conversations_of_your_own_change_a_model_by_low_rank(talker, write, tmp_path):
    "Only the two factors of each changed layer learn, and what is saved is a model without them."
    recipe = instruct(talker, *[TALK] * 11, rank=2)(write)
    run = open_training(recipe, "run", device="cpu", start=talker)
    learned = {name for name, p in run.trained.model.named_parameters() if p.requires_grad}
    assert learned and all("q_proj" in name or "v_proj" in name for name in learned)
    run.train()
    record = finish_training(run, name="n", command="c", results="results")
    again = load("run/model")
    assert type(again) is Assistant and again.chat_template == TEMPLATE
    assert again.model.state_dict().keys() == talker.model.state_dict().keys()
    assert record.metrics["val_loss"] == pytest.approx(again.score([TALK])["val_loss"], rel=1e-5)


def test_a_file_to_validate_on_leaves_the_others_whole(talker, write):
    "And a character that joins two conversations need not be one that the model knows."
    held_out = write(TALK, TALK)
    Path(held_out).rename("held_out.jsonl")
    recipe = instruct(talker, *[TALK] * 11)(write)
    assert [len(recipe.examples(split)) for split in ("train", "val")] == [10, 1]
    recipe = replace(recipe, val_paths=("held_out.jsonl",))
    assert [len(recipe.examples(split)) for split in ("train", "val")] == [11, 2]
    start = load("running-sum")
    recipe = instruct(start, *[PAIR] * 3, rank=2)(write)
    run = open_training(recipe, "run", device="cpu", start=start)
    run.train()


def test_a_reward_of_your_own_is_a_method(tmp_path, monkeypatch):
    "Answers that blurt are paid, so after a few steps the model blurts."
    monkeypatch.chdir(tmp_path)

    @dataclass(frozen=True, kw_only=True)
    class Brief(Reasoning):
        def reward(self, question, answer):
            return float(answer.startswith(">"))

    start = load("running-sum")
    recipe = preset(Brief, "running-sum", like=start, steps=12, every=12, batch_size=8)
    run = open_training(recipe, "run", device="cpu", start=start)
    before = run.trained.score(recipe.examples("val")[:8])
    run.train()
    after = run.trained.score(recipe.examples("val")[:8])
    assert type(run.trained) is Reasoner and after["thinks"] < 0.2 < before["thinks"]


def test_answers_are_those_of_a_question_alone():
    "A group is sampled in one batch, and greedy answers don't depend on who else is in it."
    start = load("running-sum")
    asked = ["30261824=", "00000000=", "99999999="]
    together = sampled_answers(start.model, start.tokenizer, asked, temperature=0)
    for question, answer in zip(asked, together, strict=True):
        (alone,) = sampled_answers(start.model, start.tokenizer, [question], temperature=0)
        assert alone == answer and answer.endswith("$")
        assert is_right(question, answer) or answer[-2] != right_digit(question)


def test_questions_come_again_where_a_run_goes_on():
    recipe = replace(Reasoning.presets["running-sum"], batch_size=3)
    stream = recipe.stream(load("running-sum").tokenizer, [], seed=5)
    first = [batch.texts for batch, _ in zip(iter(stream), range(4))]
    again = recipe.stream(load("running-sum").tokenizer, [], seed=5)
    again.position = (0, 2)
    assert next(iter(again)).texts == first[2] and len({*map(tuple, first)}) == 4
