"""Published chat templates, and small ones: text and ids are those of the reference library."""

import os
from itertools import product
from pathlib import Path

import pytest
import transformers as hf
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend
from torch import nn

from transformer_lit.inference.chat import Chat
from transformer_lit.models.gguf import GGUF, tokenizer_of
from transformer_lit.recipes.instruct import tokens_of
from transformer_lit.text.tokenizer import PieceTokenizer, PublishedTokenizer, train_bpe

MARKS = ["<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>", "<|user|>", "<|end|>"]
MARKS += ["<|assistant|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "[INST]"]
MARKS += ["<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|end_of_turn|>"]
SAID = [
    "Hi",
    "  a bike, ä 🚲\t ",
    "<think>a</think>\n\nYo",
    "one\r\n\r\ntwo\n\n\n东京 e\u0301 ",
    "{{ bos_token }} {% for x in y %} \"12,345\" '\\n'",
    "[/INST] ### Response:\nUSER: <| x |> </ s> COVID-19",
]
ROLES = ("user", "assistant", "user")
TEMPLATES = {
    "what Qwen3 does with old thoughts": "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content.split('</think>')[-1].lstrip('\n') }}<|im_end|>\n{% endfor %}",
    "tags for training": "{% for m in messages %}{% generation %}[INST]{{ m.content | trim }}"
    "{% endgeneration %}{% endfor %}{% if tools is not none %}no{% endif %}",
    "no seam": "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}",
}


def trained():
    "Marks that are special, a pre-tokenizer with digits alone, a word that was added."
    backend = train_bpe([*SAID, "### Response: the user and the assistant"] * 3, 400)
    one = pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([one, backend.pre_tokenizer])
    backend.normalizer = normalizers.NFC()
    backend.add_special_tokens([AddedToken(m, special=True, normalized=False) for m in MARKS])
    backend.add_tokens(["COVID-19"])
    return PublishedTokenizer(backend, 0, 1, 2)


def called_ordinary():
    "The same marks, which the file does not call special; one takes the spaces after it."
    backend = train_bpe(SAID, 300)
    backend.add_tokens([AddedToken(m, normalized=False, rstrip=m == MARKS[1]) for m in MARKS])
    return PublishedTokenizer(backend, 0, 1, 2)


def pieces():
    "BPE as of SentencePiece, in whose vocabulary the marks are, with merges that lead to one."
    letters = sorted({*"".join(SAID).replace(" ", "▁"), *"".join(MARKS)})
    tokens = ["<pad>", "<bos>", "<eos>", *(f"<0x{byte:02X}>" for byte in range(256)), *MARKS]
    end = MARKS[1]
    parts = [end[:n] for n in range(2, len(end))]
    merges = [(end[:n], end[n]) for n in range(1, len(end))]
    vocab = {
        t: i for i, t in enumerate([*tokens, *(x for x in letters if x not in tokens), *parts])
    }
    backend = Backend(models.BPE(vocab, merges, byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    kinds = [AddedToken(t, special=True, normalized=False) for t in tokens[:3]]
    backend.add_tokens([*kinds, *(AddedToken(m, normalized=False) for m in MARKS)])
    return PieceTokenizer(backend, 0, 1, 2)


TOKENIZERS = [trained, called_ordinary, pieces]


def reference(ours, template):
    backend = Backend.from_str(ours.backend.to_str())
    name = backend.id_to_token
    roles = {f"{role}_token": getattr(ours, f"{role}_id") for role in ("pad", "bos", "eos")}
    roles = {role: name(i) for role, i in roles.items() if i is not None}
    reader = hf.PreTrainedTokenizerFast(tokenizer_object=backend, **roles)
    reader.chat_template = template
    return reader


def compare(ours, template):
    "Six messages that hold no mark: the same text and ids. A seventh that does: the same text."
    reader = reference(ours, template)
    chat = Chat(nn.Linear(1, 1), ours, template)
    marks = {ours.backend.token_to_id(mark) for mark in ours.marks}
    typed = "".join(sorted(ours.marks)) + " <|im_\n"
    counts = set()
    for said, system in product([*SAID, typed], (None, "Be brief. ", "same")):
        told = [] if system is None else [("system", said if system == "same" else system)]
        messages = [{"role": r, "content": c} for r, c in [*told, *((r, said) for r in ROLES)]]
        chat.turns = [(m["role"], m["content"]) for m in messages]
        text = chat._written(chat.turns, opened=True)
        assert text == reader.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        ids = chat._ids(chat.turns)
        if said != typed:
            how = {"add_generation_prompt": True, "return_dict": False}
            assert ids == reader.apply_chat_template(messages, **how)
        counts.add((system is None, tuple(i for i in ids if i in marks)))
    assert len(counts) == 2  # what is said changes no mark


@pytest.mark.parametrize("make", TOKENIZERS)
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_text_and_ids_are_those_of_the_reference(make, template):
    compare(make(), template)


TRAINS = {  # what an assistant says is marked, with the token that ends it
    "ChatML": "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}"
    "<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "no seam": "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}",
}


@pytest.mark.parametrize("make", TOKENIZERS)
@pytest.mark.parametrize("template", TRAINS.values(), ids=TRAINS)
def test_the_tokens_of_answers_are_those_that_the_reference_marks(make, template):
    ours = make()
    reader = reference(ours, template)
    for said, turns in product(SAID, (1, 2)):
        told = [{"role": role, "content": said} for role in ROLES[:2]] * turns
        ids, roles = tokens_of(ours, {"messages": told}, template)
        how = {"return_dict": True, "return_assistant_tokens_mask": True}
        theirs = reader.apply_chat_template(told, **how)
        assert ids == theirs["input_ids"] and roles == theirs["assistant_masks"]
        assert 0 < sum(roles) < len(roles)


@pytest.mark.needs("templates")
@pytest.mark.parametrize("make", TOKENIZERS)
def test_published_templates(make):
    files = sorted(Path(os.environ["TRANSFORMER_LIT_TEMPLATES"]).glob("chat_templates/*.jinja"))
    assert len(files) == 18
    for file in files:
        compare(make(), file.read_text())


@pytest.mark.needs("templates", "smollm2")
def test_published_templates_with_a_published_tokenizer(smollm2):
    ours = tokenizer_of(GGUF(smollm2))
    for file in Path(os.environ["TRANSFORMER_LIT_TEMPLATES"]).glob("chat_templates/*.jinja"):
        compare(ours, file.read_text())
