"""A chat feeds the model exactly the conversation, keeps what was read, and never breaks in two."""

import contextlib
import json
import random
import re
from functools import partial
from itertools import chain, islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from transformer_lit.attention.linear import GatedDeltaNet
from transformer_lit.course.files import InputError
from transformer_lit.inference.chat import Chat, characters, render
from transformer_lit.inference.sampling import Sampling
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.text.tokenizer import BPETokenizer, PublishedTokenizer

pytestmark = pytest.mark.usefixtures("no_shape_checks")
TEMPLATE = """{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}
{%- if m.role == 'assistant' %}<|end|>{% endif %}
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
MARKS = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
SETTINGS = {"max_new_tokens": 7, "temperature": 0}


@pytest.fixture(scope="module")
def tokenizer():
    backend = BPETokenizer.train(["What is a bike? A man is riding a bike."], 277).backend
    backend.add_special_tokens(MARKS)
    return PublishedTokenizer(backend, pad_id=0, bos_id=1, eos_id=2)


@pytest.fixture(scope="module")
def model(tokenizer):
    torch.manual_seed(0)
    config = LlamaConfig(tokenizer.vocab_size, d_model=30, n_layers=2, n_heads=5, d_ff=41)
    model = Llama(config).double().eval()
    for parameter in model.parameters():  # so far from even that an answer depends on all
        parameter.data *= 5 if parameter.ndim > 1 else 1
    return model


@pytest.fixture
def chat(model, tokenizer):
    return Chat(model, tokenizer, TEMPLATE, "Be brief.", max_len=300)


def said(chat, text, **more):
    return "".join(chat.say(text, **{**SETTINGS, **more}))


# --- what is kept is what one pass over the conversation would give -----------------------------


def interrupt(model, patch, at):
    "Ctrl-C in the middle of a layer, at the call of that number: some caches are longer then."
    calls = []

    def forward(attend, *given, **more):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return attend(*given, **more)

    for layer in model.layers:
        patch.setattr(layer.attn, "forward", partial(forward, layer.attn.forward))


def hold(chat, read, steps):
    "An answer is that of one pass over the whole conversation, and only what is new was read."
    *before, (_, answer) = chat.turns
    ids = chat._ids(before)
    with torch.no_grad():
        logits = chat.model(torch.tensor([ids + answer]))[0]
    greedy = logits[len(ids) - 1 :].argmax(-1).tolist()
    assert answer == greedy[:-1] and (greedy[-1] in chat.ends or len(answer) == 7)
    pairs = enumerate(zip(read, ids))
    same = min(next((i for i, (a, b) in pairs if a != b), len(read)), len(ids) - 1)
    assert steps == [len(ids) - same] + [1] * (len(steps) - 1)
    assert len(chat.read) == chat.state.length and len(ids) + 7 <= chat.max_len
    text = render(chat.template, chat.messages[:-1], add_generation_prompt=True, bos_token="<bos>")
    assert ids == chat.tokenizer.encode(text)  # no one typed a mark


LAST = "{% for m in messages %}{% if m.role != 'assistant' %}<|user|>{{ m.content }}{% endif %}"
LAST += "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"  # no old answers
TEXTS = ["What is a bike?", "Who?", "", "a 🚲 b", "Go on."]


@pytest.mark.parametrize("template", [TEMPLATE, LAST])
@pytest.mark.parametrize("max_len", [300, 71])
@pytest.mark.parametrize("seed", range(4))
def test_a_turn_is_that_of_the_whole_conversation_whatever_was_before(
    model, tokenizer, monkeypatch, template, max_len, seed
):
    "Answers that were read to their end, that were left after some pieces, and interrupted ones."
    draw, system = random.Random(seed), [None, "Be brief."][seed % 2]
    chat = Chat(model, tokenizer, template, system, max_len=max_len)
    head, history, begun, steps, step = [*chat.turns], [], [], [], model.step
    monkeypatch.setattr(
        model, "step", lambda x, *y, **z: steps.append(x.shape[1]) or step(x, *y, **z)
    )
    for _ in range(9):
        how, read = draw.choice(["whole", "whole", "left", "interrupted"]), [*chat.read]
        steps.clear()
        begun.append(chat.say(draw.choice(TEXTS), **SETTINGS))
        history += chat.turns[-2:]
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            if how == "interrupted":
                interrupt(model, patch, draw.randrange(1, 9))
            list(islice(begun[-1], draw.randrange(4) if how == "left" else None))
        if how == "whole":
            hold(chat, read, steps)
        kept = len(chat.turns) - len(head)
        assert chat.turns == head + history[-kept:]
        if kept < len(history):  # one exchange more has no room
            assert len(chat._ids(head + history[-kept - 2 : -1])) + 7 > max_len
        lengths = [len(said) for _, said in history]
        assert [*chain(*begun[:-1])] in ([], ["�"])  # what was overtaken is over
        assert lengths == [len(said) for _, said in history]


def test_what_has_no_room_is_refused_and_an_answer_ends_where_it_has_none(model, tokenizer):
    chat = Chat(model, tokenizer, TEMPLATE, "Be brief.", max_len=61)
    said(chat, "bike " * 8, max_new_tokens=999)
    assert len(chat.read) <= 61
    held = chat.turns
    with pytest.raises(InputError, match="exceed max_len=61"):
        chat.say("bike " * 61)
    assert chat.turns is held


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"temprature": 1}, {"top_k": 0}])
def test_a_wrong_setting_leaves_the_conversation_and_draws_nothing(chat, wrong):
    before, random = [*chat.turns], torch.get_rng_state()
    with pytest.raises((ValueError, TypeError)):
        chat.say("Who?", **wrong)
    chat.say("Who?", temperature=1)  # and nothing before the first piece
    assert chat.turns[:-2] == before and torch.equal(torch.get_rng_state(), random)


def test_a_conversation_goes_on_from_messages(chat, model, tokenizer):
    "As it would have, and without a new question it is answered."
    first, second = said(chat, "What?"), said(chat, "Who?")
    assert first and chat.messages[-1] == {"role": "assistant", "content": second}
    again = Chat(model, tokenizer, TEMPLATE, messages=chat.messages[:-1], max_len=300)
    assert "".join(again.say(**SETTINGS)) == second and again.messages == chat.messages
    assert said(again, "Go on.") == said(chat, "Go on.")


def test_the_settings_of_a_chat_are_those_of_its_sampling_and_a_seed_repeats_it(model, tokenizer):
    how = {"temperature": 3.0, "top_p": 0.9, "min_p": 1e-9, "repetition_penalty": 1.1}
    texts = []
    for more in ({"sampling": Sampling(seed=3, **how)}, how | {"seed": 3}, how | {"seed": 4}):
        chat = Chat(model, tokenizer, TEMPLATE, **more)
        texts.append(["".join(chat.say(x, max_new_tokens=7)) for x in ("What?", "Who?")])
    assert texts[0] == texts[1] != texts[2] and texts[0][0] != texts[0][1]
    chat = Chat(model, tokenizer, TEMPLATE, **how)
    assert "".join(chat.say("What?", max_new_tokens=7, seed=3)) == texts[0][0]
    seen = []
    said(chat, "Hi", adjust=lambda logits, ids: seen.append(ids.tolist()) or logits)
    ids = chat._ids(chat.turns[:-1])
    assert [x[0] for x in seen] == [ids + chat.turns[-1][1][:n] for n in range(len(seen))]


def test_a_stop_string_ends_an_answer_and_is_not_part_of_it(chat):
    whole = said(chat, "What?", max_new_tokens=40)
    stop = whole[9:12]
    before = whole[: whole.index(stop)]
    chat.turns = chat.turns[:1]
    assert said(chat, "What?", max_new_tokens=40, stop=[stop]) == before
    assert chat.messages[-1]["content"] == before


@pytest.mark.parametrize("first_room", [20, 8192])
def test_a_chat_takes_more_memory_as_it_needs_it(model, tokenizer, monkeypatch, first_room):
    monkeypatch.setattr(Chat, "first_room", first_room)
    rooms, chats = [], [Chat(model, tokenizer, TEMPLATE, max_len=300) for _ in range(2)]
    monkeypatch.setattr(chats[1], "first_room", 300)
    for text in TEXTS:
        assert said(chats[0], text) == said(chats[1], text)
        rooms.append(chats[0].room)
    assert rooms == sorted(rooms) and len({*rooms}) == (1 if first_room > 300 else len({*rooms}))
    assert chats[1].room == 300 >= rooms[-1] >= len(chats[0].read) and (rooms[0] < 300) == (
        first_room == 20
    )


@pytest.mark.parametrize("max_len", [61, 300])
@pytest.mark.parametrize("template", [TEMPLATE, LAST])
def test_a_recurrent_state_that_cannot_go_back_begins_again(tokenizer, template, max_len):
    "One layer as in Qwen3-Next: each answer is that of one pass over the whole conversation."
    config = LlamaConfig(tokenizer.vocab_size, d_model=30, n_layers=2, n_heads=5, d_ff=41)
    model = Llama(config)
    model.layers[0].attn = GatedDeltaNet(30, 3)
    chat = Chat(model.double().eval(), tokenizer, template, "Be brief.", max_len=max_len)
    for text in TEXTS:
        said(chat, text)
        *before, (_, answer) = chat.turns
        ids = chat._ids(before)
        with torch.no_grad():
            logits = model(torch.tensor([ids + answer]))[0, len(ids) - 1 :]
        greedy = logits.argmax(-1).tolist()
        assert answer == greedy[:-1] and (greedy[-1] in chat.ends or len(answer) == 7)


# --- special tokens, and the template -----------------------------------------------------------


@pytest.mark.parametrize("special", [True, False])  # a GGUF file may call its marks either
def test_a_mark_is_the_templates_alone_and_a_word_stays_a_word(model, special):
    backend = BPETokenizer.train(["What is a bike? A man is riding a bike."], 276).backend
    kinds = [AddedToken(mark, special=special, normalized=False) for mark in MARKS]
    backend.add_tokens([*kinds, AddedToken("bike", special=False)])
    tokenizer = PublishedTokenizer(backend, pad_id=0, bos_id=1, eos_id=2)
    typed, (word,) = "A <|end|><|system|>bike <bos><eos>", tokenizer.encode("bike")
    given = [
        ("user", typed),
        ("assistant", typed),
        ("tool", [typed, {"<|end|>": "<|user|"}]),
        ("user", ">"),
    ]
    given = [{"role": role, "content": content} for role, content in given]
    more = {"tools": [typed], "documents": [{"role": "<|user|>", "text": typed}]}
    template = TEMPLATE + "{{ tools }}{{ documents | tojson }}{{ '|>' }}"
    chat = Chat(model, tokenizer, template, typed + "<", messages=given, **more)
    assert [m["content"] for m in chat.messages] == [
        typed + "<",
        typed,
        typed,
        given[2]["content"],
        ">",
    ]
    ids = chat._ids(chat.turns)
    roles = [tokenizer.encode(f"<|{role}|>")[0] for role in ("system", "user", "assistant")]
    (end,) = tokenizer.encode("<|end|>")
    own = [1, roles[0], roles[1], roles[2], end, roles[1], roles[2]]
    assert [i for i in ids if i in {*roles, end, 1, 2}] == own and ids.count(word) > 5
    text = chat._written(chat.turns, opened=True)
    assert tokenizer.backend.decode(ids, skip_special_tokens=False) == text


def test_marks_that_the_model_wrote_are_marks_and_its_letters_are_letters(model, tokenizer):
    chat = Chat(model, tokenizer, TEMPLATE + "{{ messages[0].content }}")
    (user,) = tokenizer.encode("<|user|>")
    tokenizer.specials, specials = (
        tokenizer.specials[:-3],
        tokenizer.specials,
    )  # the user's is shown
    answer = [user, *tokenizer.encode_ordinary("<|user|>")]
    assert chat._ids([("assistant", answer)]).count(user) == 2
    tokenizer.specials = specials


def test_each_end_ends(model, tokenizer, monkeypatch):
    "The first mark behind an answer in the template, the file's own, and one handed over."
    chat = Chat(model, tokenizer, TEMPLATE.replace("<|end|>", "<|end|><|user|>"), ends=[9])
    (end,) = tokenizer.encode("<|end|>")
    assert chat.ends == {end, tokenizer.eos_id, 9}
    for stop in chat.ends:
        row = iter([0, *tokenizer.encode("A bike."), stop, 5])  # the first is a trial
        drawn = partial(lambda row, logits, **choose: torch.tensor([next(row)]), row)
        monkeypatch.setattr("transformer_lit.inference.sampling.next_token", drawn)
        assert "".join(chat.say("What?")) == "A bike." and next(row) == 5
        assert stop not in chat.turns[-1][1]


SAYS = [" Hi <|e|> x", "a</think>b"]  # what two messages say
SHADES = {  # in the reference library's words, and whose each letter is
    "{% for m in messages %}{{ '<|' + m.role + '|>' ~ m.content | trim ~ '<|e|>' }}{% endfor %}": (
        "<|user|>Hi <|e|> x<|e|><|assistant|>a</think>b<|e|>",
        "<|user|>·· ····· ·<|e|><|assistant|>··········<|e|>",
    ),
    "{{ messages[1].content.split('</think>')[-1] }}{{ '%s<|e|>' % messages[0].content }}": (
        "b Hi <|e|> x<|e|>",
        "· ·· ····· ·<|e|>",
    ),
    "{{ '<|e|>{}'.format(messages[0].content) | indent(2) }}": (
        "<|e|> Hi <|e|> x",
        "<|e|> ·· ····· ·",
    ),
    "{{ messages | map(attribute='content') | join('<|e|>') }}": (
        " Hi <|e|> x<|e|>a</think>b",
        " ·· ····· ·<|e|>··········",
    ),
    "{% macro f(x) %}<|e|>{{ x }}{% endmacro %}{{ f(messages[0].content[1:]) }}": (
        "<|e|>Hi <|e|> x",
        "<|e|>·· ····· ·",
    ),
    "{% set ns = namespace(a='') %}{% for c in messages[0].content %}"
    "{% set ns.a = ns.a + c | upper %}{% endfor %}<|E|>{{ ns.a }}": (
        "<|E|> HI <|E|> X",
        "<|E|> ·· ····· ·",
    ),
    "{% set x %}<|e|>{{ messages[0].content }}{% endset %}{{ x.replace('Hi', '<|e|>') }}": (
        "<|e|> <|e|> <|e|> x",  # what looks at letters makes all of them somebody else's
        "····· ····· ····· ·",
    ),
    "{% generation %}{{ messages[0].content | capitalize }}{% endgeneration %}": (
        " hi <|e|> x",
        " ·· ····· ·",
    ),
    "{{ messages[0] }}": (
        "{'role': 'user', 'content': ' Hi <|e|> x'}",
        "{'role': 'user', 'content': ' ·· ····· ·'}",
    ),
    "{% if tools is none and documents is none %}{{ messages[1] | tojson(indent=1) }}{% endif %}": (
        '{\n "role": "assistant",\n "content": "a</think>b"\n}',
        '{\n "role": "assistant",\n "content": "··········"\n}',
    ),
}


@pytest.mark.parametrize(("template", "expected"), SHADES.items())
def test_each_letter_tells_whose_it_is(template, expected):
    messages = [{"role": r, "content": c} for r, c in zip(("user", "assistant"), SAYS)]
    found = render(template, messages)
    assert (found, found.shade) == expected


RENDERED = {  # as the reference library renders it
    "{% for m in messages %}\n  {% if m.role == 'tool' %}{% continue %}{% endif %}\n{{ m.role }}\n"
    "{% endfor %}": "user\n",
    "{{ messages | tojson }}": '[{"role": "user", "content": "<ä>"}]',
    "{{ strftime_now('%%') }}": "%",
    "{{ messages[0].content }}{{ more }}": "<ä>more",
}


@pytest.mark.parametrize(("template", "expected"), RENDERED.items())
def test_a_template_is_rendered(template, expected):
    assert render(template, [{"role": "user", "content": "<ä>"}], more="more") == expected


FAILS = ["{{ raise_exception('no more') }}", "{{ 1 / 0 }}", "{{ 'a' + 1 }}", "{{ '%d' % 'a' }}"]
FAILS += ["{% for %}", "{{ messages.append(1) }}", "{{ messages.__class__.__mro__ }}"]
FAILS += [
    "{{ 'a'.encode('x') }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ [][0][0] }}",
]
FAILS += [
    "{{ 'a b' * 400000 }}",
    "{{ 'a' * 2000000000 }}",
    "{% set x = 'a' * 10 %}{{ x | center(10**9) }}",
    "",
]
FAILS += ["{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"]


@pytest.mark.parametrize("template", FAILS)
def test_a_template_that_fails_leaves_the_conversation(chat, template, monkeypatch):
    said(chat, "What?")
    chat.template, template = template, chat.template
    if "range" in chat.template:
        monkeypatch.setattr("transformer_lit.course.templates.SECONDS", 0.5)
    with pytest.raises(InputError, match=r"the chat template (fails: .|writes nothing)") as caught:
        chat.say("Who?")
    assert len(chat.turns) == 3 and "\n" not in str(caught.value)
    chat.template = template
    monkeypatch.undo()
    assert chat.say("Who?")  # and the next one is rendered


NOTED = "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}"
REFUSED = [
    (lambda chat: chat(messages=["Hi"]), "a message needs a role and a content, got Hi"),
    (lambda chat: chat(messages=[{"content": "Hi"}]), "needs a role and a content, got {'content'"),
    (lambda chat: chat(tools=[len]), "takes values of JSON only: Object of type builtin"),
    (lambda chat: chat().say(), "there is no message to answer"),
    (lambda chat: chat(messages=[{"role": "assistant", "content": "x"}]).say(), "no message"),
    (lambda chat: chat("<|user|>"), "the chat template leaves out the message"),
    (lambda chat: chat(NOTED + "<unmade>"), "writes <unmade>, which is read as letters"),
    (lambda chat: chat(temperature=-1), "temperature must be 0"),
    (lambda chat: chat().say("a", stop="abc"), "stop must be a list"),
]


@pytest.mark.parametrize(("call", "told"), REFUSED)
def test_what_makes_no_chat_is_refused_in_a_sentence(model, tokenizer, call, told):
    said = json.loads(tokenizer.backend.to_str())
    said["model"]["vocab"]["<unmade>"] = max(said["model"]["vocab"].values()) + 9  # of no kind
    tokenizer = PublishedTokenizer(Backend.from_str(json.dumps(said)), 0, 1, 2)
    with pytest.raises(ValueError, match=re.escape(told)) as caught:
        call(lambda template=NOTED, **more: Chat(model, tokenizer, template, **more))
    assert "\n" not in str(caught.value)


# --- characters ---------------------------------------------------------------------------------


@given(st.binary() | st.text("ä🚲 東").map(str.encode), st.lists(st.integers(0, 40)))
@settings(max_examples=100, deadline=None)
def test_any_cut_gives_what_the_decoder_makes_of_the_whole(raw, cuts):
    places = sorted(cuts)
    pieces = [*characters(raw[a:b] for a, b in zip([0, *places], [*places, None]))]
    assert "".join(pieces) == raw.decode(errors="replace") and all(pieces)


def test_a_character_comes_with_its_last_byte(tokenizer):
    tokens = iter([b"\xf0\x9f", b"\x9a", b"\xb2!", b"\xc3"])
    assert next(characters(tokens)) == "🚲!" and [*tokens] == [b"\xc3"]
    text = "A bike, ä, 🚲 東京"
    ids = tokenizer.encode(f"<|user|>{text}<|end|>")
    assert "".join(characters(tokenizer.decode_bytes([i]) for i in ids)) == text
