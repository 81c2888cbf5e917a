"""A folder of somebody else's opens as ours do, and says what the reference library says."""

import io
import json
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
import transformers as hf
from gguf_files import TOKENS, theirs, write_model
from hf_folders import TEMPLATE, tell, write_folder
from sentence_folders import write_sentence_folder

from transformer_lit.course import book
from transformer_lit.course.book import Paragraph
from transformer_lit.course.files import InputError
from transformer_lit.inference.chat import render
from transformer_lit.models.embed import SentenceEncoder, load_sentence_encoder
from transformer_lit.models.hf_build import load_hf, save_hf
from transformer_lit.recipes import cli, zoo
from transformer_lit.recipes.language_model import LanguageModel, LanguageModeling
from transformer_lit.recipes.recipe import finish_training, open_training
from transformer_lit.recipes.zoo import load
from transformer_lit.text.tokenizer import PublishedTokenizer

pytestmark = pytest.mark.usefixtures("no_shape_checks", "single")  # as a reader runs

START, END = TOKENS[1:3]
TEXTS = ("The 12 bikes, ä 🚲\n\n the", f"{START}user\nHi{END}\n", "", "a\ttab  and   spaces ")
SAID = [("system", "Be brief."), ("user", f"Hi{END} <b>"), ("assistant", "Yes?"), ("user", "Who?")]
SAID = [{"role": role, "content": content} for role, content in SAID]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("hf") / "llama", begins=True, ends=2)


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def reference(folder):
    return hf.AutoModelForCausalLM.from_pretrained(folder).eval()


def continued(folder, ids, max_new_tokens=23):
    "What the reference library writes, greedily, and up to which end."
    ids = torch.tensor([ids])
    out = reference(folder).generate(
        ids, max_new_tokens=max_new_tokens, do_sample=False, pad_token_id=0
    )
    return out[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("begins", [False, True])
def test_ids_and_texts_are_those_of_the_reference(tmp_path, begins):
    folder = write_folder(tmp_path / "x", begins=begins)
    ours, reader = load(folder).tokenizer, hf.PreTrainedTokenizerFast.from_pretrained(folder)
    assert (ours.pad_id, ours.bos_id, ours.eos_id) == (0, 1, 2) and ours.specials == tuple(
        TOKENS[:3]
    )
    for text in TEXTS:
        ids = reader(text).input_ids
        assert ours.encode(text) == ours.encode_text(text).tolist() == ids
        assert ours.encode_part(text) == reader(text, add_special_tokens=False).input_ids
        for skip in (ids, [*ids, 9999]):  # a row of the table that has no token
            assert ours.decode(skip) == reader.decode(ids, skip_special_tokens=True)
            assert ours.decode_bytes(skip).decode() == ours.decode(skip)
    assert ours.encode_ordinary(END) == ours.encode_ordinary(END[:3]) + ours.encode_ordinary(
        END[3:]
    )


def test_a_text_goes_on_as_with_the_reference_and_any_end_ends_it(copy):
    "Ends are first tokens that it never says, then two that it does."
    prompt, writer = "The 12 bikes", load(copy)
    ids = writer.tokenizer.encode(prompt)
    whole = continued(copy, ids)
    *_, first, later = sorted(set(whole), key=whole.index)
    for ends in ([0, 2], first, [later, first], [later, 0]):
        tell(copy / "generation_config.json", eos_token_id=ends)
        writer, expected = load(copy), continued(copy, ids)
        ends = ends if isinstance(ends, list) else [ends]
        assert writer.info["ends"] == tuple(ends)
        expected = expected[:-1] if expected[-1] in ends else expected
        text = "".join(writer.stream(prompt, max_new_tokens=23, temperature=0))
        assert text == writer.tokenizer.decode_bytes(expected).decode(errors="replace")
    assert len(whole) == 23 > len(expected)


def test_ends_stand_in_one_of_three_places(copy):
    tell(copy / "config.json", eos_token_id=[5, 2])
    tell(copy / "generation_config.json", eos_token_id=7)
    assert load(copy).info["ends"] == (7,)
    (copy / "generation_config.json").unlink()
    assert load(copy).info["ends"] == (5, 2)
    tell(copy / "config.json", eos_token_id=...)
    assert load(copy).info["ends"] == (2,)
    tell(copy / "tokenizer_config.json", eos_token=...)
    assert load(copy).info["ends"] == ()


@pytest.mark.filterwarnings("error::UserWarning")
def test_tokens_are_chosen_as_the_folder_says(copy):
    file, ids = copy / "generation_config.json", load(copy).tokenizer.encode("The 12 bikes")
    free = continued(copy, ids)
    tell(file, repetition_penalty=1.8, temperature=0.3, top_k=7, do_sample=True, num_beams=1)
    writer, expected = load(copy), continued(copy, ids)
    assert expected != free and writer.sampling().temperature == 0.3
    assert writer.sampling(top_k=3).top_k == 3 and writer.sampling().top_k == 7
    text = "".join(writer.stream("The 12 bikes", max_new_tokens=23, temperature=0))
    expected = expected[:-1] if expected[-1] == 2 else expected
    assert text == writer.tokenizer.decode_bytes(expected).decode(errors="replace")
    assert writer.sampling(repetition_penalty=1.1).adjust is None
    with pytest.warns(UserWarning, match="repetition_penalty to 1.8: .*, and this model does not"):
        load_hf(copy)
    assert (
        writer.chat().sampling.adjust is not None and writer.chat(temperature=0).sampling.top_k == 7
    )
    tell(file, top_k=-1)
    assert load(copy).sampling().top_k is None
    tell(file, do_sample=...)
    assert load(copy).sampling().temperature == 0.8
    tell(file, num_beams=3, no_repeat_ngram_size=2)
    with pytest.warns(UserWarning, match="num_beams to 3, no_repeat_ngram_size to 2: generate of"):
        load(copy)


FLAGS = {"content": "man", "lstrip": True, "rstrip": False, "normalized": False}
NEW = {"__type": "AddedToken", **FLAGS}
NAMED = {  # tokenizer_config.json, and special_tokens_map.json
    "by the config": ({"bos_token": END, "eos_token": START}, {}),
    "by the map": ({"bos_token": ..., "eos_token": ..., "pad_token": ...}, {"eos_token": END}),
    "by both": ({"bos_token": START, "eos_token": START}, {"eos_token": END, "bos_token": None}),
    "as tables": ({"bos_token": {**NEW, "content": END}}, {"eos_token": {"content": START}}),
    "a new word": ({"eos_token": NEW}, {}),
    "more": ({"extra_special_tokens": ["the", END]}, {}),
    "by their ids": (
        {
            "added_tokens_decoder": {str(len(TOKENS)): {**FLAGS, "special": True}},
            "eos_token": "man",
        },
        {"eos_token": END},
    ),
    "white space": ({"added_tokens_decoder": {"2": {"content": END, "lstrip": True}}}, {}),
    "letters": ({"split_special_tokens": True}, {}),
    "flags": ({"add_bos_token": True, "clean_up_tokenization_spaces": True}, {}),
}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("begins", [False, True])
def test_special_tokens_are_those_of_the_reference(tmp_path, name, begins):
    folder, (config, older) = write_folder(tmp_path / "x", begins=begins), NAMED[name]
    tell(folder / "tokenizer_config.json", **config)
    (folder / "special_tokens_map.json").write_text(json.dumps(older))
    reader = hf.PreTrainedTokenizerFast.from_pretrained(folder)
    for ours in (opened := PublishedTokenizer.load(folder / "tokenizer.json"), copy_of(opened)):
        ids = reader.pad_token_id, reader.bos_token_id, reader.eos_token_id
        assert (ours.pad_id, ours.bos_id, ours.eos_id) == ids
        for text in (*TEXTS, "a man, the  man", f" {END} {START}the"):
            ids = reader(text).input_ids
            assert ours.encode(text) == ids
            assert ours.decode(ids) == reader.decode(ids, skip_special_tokens=True)


def copy_of(tokenizer):
    return pickle.loads(pickle.dumps(tokenizer))


def test_an_added_token_that_has_no_row_is_letters(copy):
    "As in Gemma 3 of 1B: a token for pictures lies behind the last row of the table."
    said, new = json.loads((copy / "tokenizer.json").read_text()), len(TOKENS)
    extra = said["added_tokens"][-1] | {"id": new, "content": "<picture>"}
    tell(copy / "tokenizer.json", added_tokens=[*said["added_tokens"], extra])
    tell(copy / "tokenizer_config.json", extra_special_tokens={"image_token": "<picture>"})
    tokenizer = load(copy).tokenizer
    ids = tokenizer.encode_part("a <picture>")
    assert ids == tokenizer.encode_ordinary("a <picture>") and max(ids) < new
    tell(copy / "tokenizer_config.json", eos_token="<picture>")
    with pytest.raises(InputError, match=f"has the id {new}, but the .* has only {new} rows"):
        load(copy)


TEMPLATES = {
    "white space is trimmed": TEMPLATE,
    "begins by itself": "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}>{% endif %}",
    "breaks, dates, json": """{% for m in messages %}
{% if loop.index == 4 %}{% break %}{% endif %}
{{ m.role | tojson }}: {{ m | length }} {{ {'a': '<b> ä'} | tojson(indent=2) }}
  {% if strftime_now is defined %}{{ strftime_now('%Y') }}{% endif %}
{% endfor %}""",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_writes_what_it_writes_for_the_reference(folder, name):
    reader = hf.PreTrainedTokenizerFast.from_pretrained(folder)
    for opened in (False, True):
        marks = {"bos_token": START, "eos_token": END, "add_generation_prompt": opened}
        theirs = reader.apply_chat_template(
            SAID, chat_template=TEMPLATES[name], tokenize=False, add_generation_prompt=opened
        )
        assert render(TEMPLATES[name], SAID, **marks) == theirs


@pytest.mark.parametrize("place", ["file", "settings", "one of several", "nowhere"])
def test_a_template_stands_in_a_file_or_in_the_settings(copy, place):
    file, settings = copy / "chat_template.jinja", copy / "tokenizer_config.json"
    assert file.exists()
    if place != "file":
        file.unlink()
    several = [{"name": "tools", "template": "no"}, {"name": "default", "template": TEMPLATE}]
    told = {"settings": TEMPLATE, "one of several": several}.get(place)
    if told is not None:
        tell(settings, chat_template=told)
    assert load(copy).info["chat_template"] == (None if place == "nowhere" else TEMPLATE)


@pytest.fixture
def chat(folder):
    return load(folder).chat(max_len=71)


def test_a_chat_is_the_reference_s(folder, chat):
    "Two turns. Nothing but the template begins: not every part of it does."
    reader, messages = hf.PreTrainedTokenizerFast.from_pretrained(folder), []
    more = {"add_generation_prompt": True, "return_dict": False}
    for question in ("Hi", "Who?"):
        messages.append({"role": "user", "content": question})
        list(chat.say(question, max_new_tokens=5, temperature=0))
        ids = reader.apply_chat_template(messages, **more, add_special_tokens=False)
        assert chat._ids(chat.turns[:-1]) == ids
        _, answer = chat.turns[-1]
        assert answer == [i for i in continued(folder, ids, 5) if i != 2] and answer
        messages.append({"role": "assistant", "content": "Yes?"})  # bytes alone need not be a text
        chat.turns[-1] = ("assistant", "Yes?")


def test_a_file_and_a_folder_of_one_model_are_the_same(folder, tmp_path):
    file = write_model(tmp_path / "x.gguf", "llama", theirs("llama"))
    one, other = load(file), load(folder)
    torch.testing.assert_close(one.model.state_dict(), other.model.state_dict(), rtol=0, atol=0)
    assert one.info["ends"] == other.info["ends"] == (2,)
    assert one.tokenizer.encode_part(TEXTS[0]) == other.tokenizer.encode_part(TEXTS[0])


def another_kind(folder):
    hf.BertForMaskedLM(hf.BertConfig(vocab_size=11, hidden_size=12)).save_pretrained(folder)


def a_translator(folder):
    sizes = {"d_model": 12, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 11}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "pad_token_id": 10}
    told = hf.MarianConfig(**sizes, encoder_ffn_dim=17, decoder_ffn_dim=17, eos_token_id=0)
    told.update({"decoder_start_token_id": 10, "forced_eos_token_id": 0})
    hf.MarianMTModel(told).save_pretrained(folder)


def another_model(folder):
    more = {token: i for i, token in enumerate([*TOKENS, *map(str, range(100, 999))])}
    tell(folder / "tokenizer.json", model={"type": "BPE", "vocab": more, "merges": []})


REFUSED = [
    (another_kind, "is a Bert, which writes no text: load_hf"),
    (a_translator, "is an encoder–decoder, .* with AutoTokenizer of transformers, .* beam_search"),
    (lambda to: (to / "tokenizer.json").unlink(), r"cannot read .*tokenizer\.json"),
    (lambda to: (to / "tokenizer.json").write_text("{"), r"r\.json is not a tokenizer file"),
    (lambda to: tell(to / "tokenizer.json", decoder=None), r"BPE over bytes .*byte_fallback"),
    (another_model, rf"r\.json has the id {len(TOKENS) + 898}, but .* has only {len(TOKENS)} rows"),
    *(
        (lambda to, name=name: (to / name).write_text("[3]"), f"{name} is not a table of settings")
        for name in ("tokenizer_config.json", "generation_config.json")
    ),
    *(
        (
            lambda to, file=file, said=said: (to / f"{file}.json").write_text(json.dumps(said)),
            f"copy/{file}.json sets {next(iter(said))} to .*; it must be ",
        )
        for file, said in (
            ("tokenizer_config", {"bos_token": 5}),
            ("tokenizer_config", {"pad_token": {}}),
            ("tokenizer_config", {"eos_token": {"content": "x", "lstrip": 5}}),
            ("tokenizer_config", {"chat_template": [5]}),
            ("tokenizer_config", {"chat_template": [{"name": "default"}]}),
            ("tokenizer_config", {"added_tokens_decoder": {"x": {"content": "x"}}}),
            ("tokenizer_config", {"extra_special_tokens": {"x": 5}}),
            ("tokenizer_config", {"fix_mistral_regex": True}),
            ("special_tokens_map", {"eos_token": [5]}),
            ("added_tokens", {"the": "1"}),
            ("special_tokens_map", {"additional_special_tokens": "x"}),
            ("generation_config", {"eos_token_id": [[1]]}),
        )
    ),
    (
        lambda to: tell(to / "tokenizer_config.json", add_prefix_space=True),
        "sets add_prefix_space to true, and tokenizer.json says false; write into both",
    ),
    (
        lambda to: tell(to / "config.json", architectures=..., model_type=...),
        "n doesn't set architectures, the class .* write it into the file, for example .arch",
    ),
    (lambda to: tell(to / "tokenizer_config.json", shiny=1), "json sets shiny to 1, which noth"),
    (lambda to: tell(to / "tokenizer_config.json", pad_token="<new>"), "has the id 268, but the"),
    (
        lambda to: tell(to / "tokenizer_config.json", added_tokens_decoder={"7": {"content": "m"}}),
        "gives 'm' the id .*, but the added_tokens_decoder of tokenizer_config.json 7",
    ),
]


@pytest.mark.parametrize(("damage", "told"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_opened_is_one_line(copy, damage, told):
    damage(copy)
    with pytest.raises(InputError, match=told) as caught:
        load(copy)
    assert "\n" not in str(caught.value)


def test_what_cannot_chat_or_be_written_is_one_line(tmp_path):
    with pytest.raises(InputError, match="no chat template and only continues text"):
        load("stories").chat()
    with pytest.raises(InputError, match=r"a CharTokenizer can't be written .* just the module"):
        save_hf(load("shakespeare"), tmp_path / "x")
    assert not (tmp_path / "x").exists()


class TestSaved:
    "The reference library opens what we write: the same ids, and the same greedy text."

    @staticmethod
    def opened(folder):
        return hf.AutoTokenizer.from_pretrained(folder), reference(folder)

    @staticmethod
    def same(writer, folder, prompts, max_new_tokens):
        save_hf(writer, folder)  # with its tokenizer, its template and its ends
        reader, model = TestSaved.opened(folder)
        for text in (*TEXTS[:2], TEXTS[3], "<eos> and <bos>ä"):
            ids = writer.tokenizer.encode(text)
            assert reader(text).input_ids == ids
            assert reader.decode(ids, skip_special_tokens=True) == writer.tokenizer.decode(ids)
        for prompt in prompts:
            given = reader(prompt, return_tensors="pt")
            out = model.generate(**given, max_new_tokens=max_new_tokens, do_sample=False)
            text = "".join(writer.stream(prompt, max_new_tokens=max_new_tokens, temperature=0))
            new = out[0, given.input_ids.shape[1] :].tolist()
            new = new[:-1] if new[-1] in writer.info.get("ends", ()) else new
            assert reader.decode(new, skip_special_tokens=True) == text and text
        return reader, model

    def test_a_model_trained_here(self, tmp_path):
        stories = load("stories")
        writer = LanguageModel(stories.model, stories.tokenizer, {})  # no line is put around a text
        reader, model = self.same(writer, tmp_path / "stories", ("\nEva lives",), 23)
        assert reader.chat_template is None and model.generation_config.eos_token_id is None
        assert (reader.pad_token_id, reader.bos_token_id, reader.eos_token_id) == (0, 1, 2)

    def test_a_model_published_by_others(self, folder, copy, tmp_path):
        ends = continued(copy, load(copy).tokenizer.encode("The 12 bikes"))[7:9]
        tell(copy / "generation_config.json", eos_token_id=ends)
        reader, model = self.same(load(copy), tmp_path / "again", ("The 12 bikes",), 23)
        assert model.generation_config.eos_token_id == ends
        messages = [{"role": "user", "content": "Hi"}]
        first = hf.PreTrainedTokenizerFast.from_pretrained(folder)
        more = {"add_generation_prompt": True, "tokenize": False}
        said = reader.apply_chat_template(messages, **more)
        assert said == first.apply_chat_template(messages, **more) and START in said
        assert load(tmp_path / "again").info["chat_template"] == TEMPLATE


ANEW = """
import sys, torch
from transformer_lit import load
model, ids, out = load(sys.argv[1]), *torch.load(sys.argv[2])
with torch.no_grad():
    torch.testing.assert_close(model.model(ids), out, rtol=0, atol=0)
"""


class TestTuned:
    "A training that begins with a published model leaves one that opens, chats and ends as it did."

    FEW = ("length=7", "batch_size=2", "every=2", "lr=0.01", "warmup=1")

    @pytest.fixture
    def text(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "my.txt").write_text("the 12 bikes\n" * 41)
        return tmp_path / "my.txt"

    @staticmethod
    def same(one, other):
        assert type(one.tokenizer) is type(other.tokenizer)
        for role in ("pad_id", "bos_id", "eos_id", "specials", "vocab_size"):
            assert getattr(one.tokenizer, role) == getattr(other.tokenizer, role)
        for said in TEXTS:
            ids = one.tokenizer.encode(said)
            assert other.tokenizer.encode(said) == ids
            assert other.tokenizer.encode_ordinary(said) == one.tokenizer.encode_ordinary(said)
            assert other.tokenizer.decode_bytes(ids) == one.tokenizer.decode_bytes(ids)
        assert other.chat_template == one.chat_template == TEMPLATE
        assert [*other.ends] == [*one.ends] == [2]
        assert other.model.config == one.model.config

    @pytest.mark.parametrize("spare", [0, 7])  # rows of the table that no token has
    def test_what_is_saved_opens_in_another_process(self, folder, text, spare, tmp_path):
        padded = shutil.copytree(folder, tmp_path / "padded")
        theirs = hf.AutoModelForCausalLM.from_pretrained(folder)
        theirs.resize_token_embeddings(theirs.config.vocab_size + spare)
        theirs.save_pretrained(padded)
        start = load(padded)
        assert start.model.config.vocab_size == start.tokenizer.vocab_size + spare
        few = dict(word.split("=") for word in self.FEW)
        recipe = LanguageModeling.from_files(text, like=start, steps=2, **few)
        run = open_training(recipe, "run", device="cpu", start=start)
        run.train()
        finish_training(run, name="tuned", command="c", results="results")
        tuned = load("run")
        self.same(start, tuned)
        ids = torch.tensor([tuned.tokenizer.encode(TEXTS[1])])
        with torch.no_grad():
            out, before = run.trained.model(ids), start.model(ids)
        assert (out - before).abs().max() > 1e-3  # it has learned
        torch.save((ids, out), tmp_path / "out.pt")
        command = [sys.executable, "-c", ANEW, "run", tmp_path / "out.pt"]
        subprocess.run(command, check=True)
        written = load("run").chat(max_len=71)._ids([("user", [5])])
        assert written == start.chat(max_len=71)._ids([("user", [5])]) and START in TEMPLATE
        assert "".join(tuned.chat(max_len=71).say("Hi", max_new_tokens=5, temperature=0))

    def test_what_a_person_typed_is_read_apart_from_what_another_thread_reads(self, folder):
        tokenizer, said = load(folder).tokenizer, f"Hi {START} ä"
        expected = tokenizer.encode_part(said), tokenizer.encode_ordinary(said)
        assert expected[0] != expected[1]
        with ThreadPoolExecutor(2) as pool:
            reads = tokenizer.encode_part, tokenizer.encode_ordinary
            both = pool.map(lambda read: [read(said) for _ in range(2003)], reads)
        for found, ids in zip(both, expected, strict=True):
            assert all(one == ids for one in found)

    def test_a_text_shorter_than_the_context_has_a_score(self, folder):
        start = load(folder)
        start.model.config = replace(start.model.config, max_len=997)
        ids = torch.tensor([start.tokenizer.encode(TEXTS[0])])
        logits = start.model(ids)[0, :-1].double()
        expected = torch.nn.functional.cross_entropy(logits, ids[0, 1:]).item()
        assert abs(start.score(TEXTS[0])["val_loss"] - expected) < 1e-5
        with pytest.raises(InputError, match=r"no text to score\. Give one that isn't blank"):
            start.score(" ")

    def test_a_run_goes_on_with_the_tokenizer_that_it_wrote(self, folder, text):
        start = load(folder)
        recipe = LanguageModeling.from_files(text, like=start, steps=2, length=7, batch_size=2)
        open_training(recipe, "run", device="cpu", start=start).train()
        again = open_training(recipe, "run", device="cpu", start=start, resume=True)
        assert again.trainer.done == 2
        self.same(start, again.trained)

    def test_the_command_does_the_same(self, folder, text, capsys, monkeypatch):
        train = ["train", "language-model", "--text", "my.txt", "--from", str(folder), "--device"]
        assert cli.main([*train, "cpu", "--steps", "2", "--out", "run", "--set", *self.FEW]) == 0
        self.same(load(folder), load("run"))
        capsys.readouterr()
        monkeypatch.setattr("sys.stdin", io.StringIO("Hi"))
        chatting = ["chat", "--model", "run", "--temperature", "0", "--max-new-tokens", "5"]
        assert cli.main(chatting) == 0
        answer = load("run").chat().say("Hi", max_new_tokens=5, temperature=0)
        assert capsys.readouterr().out == f"{''.join(answer)}\n"

    def test_rows_are_as_long_as_the_recipe_says_and_the_context_stays(self, copy, text):
        tell(copy / "config.json", max_position_embeddings=8192)
        start = load(copy)
        recipe = LanguageModeling.from_files(text, like=start)
        assert recipe.length == LanguageModeling.presets["own"].length < 8192
        assert LanguageModeling.from_files(text, like=start, length=7).length == 7
        assert recipe.build_from(start.model, 71).config.max_len == 8192

    def test_parts_that_no_description_keeps_are_refused(self, copy, text):
        scaled = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}
        tell(copy / "config.json", rope_parameters=scaled)
        start = load(copy)
        recipe = LanguageModeling.from_files(text, like=start, steps=2, length=7, batch_size=2)
        with pytest.raises(InputError, match="describe all of the model that it starts from"):
            open_training(recipe, "run", device="cpu", start=start)
        assert not (text.parent / "run").exists()


@pytest.fixture
def encoder(tmp_path):
    return write_sentence_folder(tmp_path / "encoder")


class TestSentenceEncoder:
    def test_it_opens_like_any_model(self, encoder, capfd):
        texts = ["a man is riding a bike.", "two dogs run"]
        expected = load_sentence_encoder(encoder).encode(texts)
        assert torch.equal(load(encoder).encode(texts), expected)
        torch.testing.assert_close(load(encoder).encode(texts[0]), expected[0])  # one text
        in_8_bits = load(encoder, weights="int8").encode(texts)
        assert 0.99 < torch.cosine_similarity(in_8_bits, expected).min() < 1 - 1e-6
        assert cli.main(["translate", "x", "--model", str(encoder)]) == 2
        told = "encoder model, which can't translate. See: transformer-lit models\n"
        assert capfd.readouterr().err.endswith(told)

    def test_it_has_a_name_once_it_was_fetched(self, encoder, monkeypatch, data_folder):
        with pytest.raises(InputError, match="transformer-lit data fetch minilm"):
            load("minilm")
        monkeypatch.setattr(zoo, "paths", lambda name: [encoder / "config.json", encoder / "x"])
        assert load("minilm").encode(["two dogs"]).shape == (1, 42)

    def test_the_command_tells_the_nearest_first_and_keeps_vectors(
        self, encoder, capsys, monkeypatch, data_folder
    ):
        said = ["a bike and a man .", "the dog", "two dogs run over the grass", "a bike"]
        found = [Paragraph(f"nbs/x/0{i}_y", "Title", "Part" * i, x) for i, x in enumerate(said)]
        monkeypatch.setattr(book, "paragraphs", lambda: found)
        batch = SentenceEncoder.batch

        def only_a_question(self, rows):
            assert len(rows) == 1
            return batch(self, rows)

        def ask(top):
            command = ["ask", str(found[2]), "--model", str(encoder), "--top", str(top)]
            assert cli.main(command) == 0
            return capsys.readouterr().out

        first = ask(2)
        told = ["1.00  nbs/x/02_y: Title, PartPart", "      two dogs run over the grass"]
        assert first.splitlines()[:2] == told and first.count("nbs/x/") == 2
        monkeypatch.setattr(SentenceEncoder, "batch", only_a_question)
        assert ask(2) == first and "Title, beginning" in ask(9)
