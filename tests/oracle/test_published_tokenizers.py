"""A folder's tokenizer is read as the reference library reads it, or refused with file and key."""

import json
import re

import pytest
import transformers as hf
from hf_folders import tell
from tokenizers import Tokenizer, pre_tokenizers
from transformers.models.auto import modeling_auto as auto

from transformer_lit.course.files import InputError
from transformer_lit.course.tokenizer_classes import ALWAYS, CLASSES, PLAIN, USUAL, Asked
from transformer_lit.models.hf_build import FAMILIES
from transformer_lit.text.tokenizer import read_published

FILE, CONFIG, MAP = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
OLDER, FAST = "added_tokens.json", "PreTrainedTokenizerFast"
TEXTS = [
    "The book Is naïve",
    "e\u0301 cafe\u0301 12 345",
    "The book, Is!\n it's  ☃日",
    "a <pad> [MASK] <mask> b</s> [SEP]<image> <|endoftext|>",
]
LETTERS = sorted({*"".join(TEXTS).replace(" ", "▁"), *"thebook▁éÏ"} - {"日"})
MARKS = ("<s>", "<pad>", "</s>", "<unk>")
MERGES = [("Ġ", "b"), ("o", "o"), ("1", "2"), ("Ì", "ģ")]


def numbered(*tokens):
    return {token: i for i, token in enumerate(tokens)}


def scored(*special):
    return [*((token, 0.0) for token in special), *((x, -1.0 - i) for i, x in enumerate(LETTERS))]


PIECES = [*LETTERS, *(f"##{x}" for x in LETTERS)]
WORDS = {"vocab": numbered("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES)}
SPELT = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, MERGES)]
BYTES = {"vocab": numbered("<|endoftext|>", "<image>", *SPELT), "merges": MERGES}
ROBERTA = {"vocab": numbered(*MARKS, *SPELT), "merges": MERGES}
GEMMA = {"vocab": numbered("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *LETTERS), "merges": []}
MADE = {  # the model, its tokenizer's class, and what the class makes a tokenizer of
    "bert": ("BertTokenizer", WORDS),
    "distilbert": ("DistilBertTokenizer", WORDS),
    "roberta": ("RobertaTokenizer", ROBERTA),
    "xlm-roberta": ("XLMRobertaTokenizer", {"vocab": scored(*MARKS)}),
    "deberta-v2": ("DebertaV2Tokenizer", {"vocab": scored("[PAD]", "[CLS]", "[SEP]", "[UNK]")}),
    "gpt2": ("GPT2Tokenizer", BYTES),
    "qwen2": ("Qwen2Tokenizer", BYTES),
    "qwen3": ("Qwen2Tokenizer", BYTES),
    "qwen3_5_text": ("Qwen3_5Tokenizer", BYTES),
    "gemma2": ("GemmaTokenizer", GEMMA),
    "llama": (FAST, BYTES),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    "Folders that the reference library wrote."
    made = {}
    for model, (kind, parts) in MADE.items():
        folder = made[model] = tmp_path_factory.mktemp(model)
        getattr(hf, "GPT2Tokenizer" if kind == FAST else kind)(**parts).save_pretrained(folder)
        tell(folder / CONFIG, tokenizer_class=kind)
        (folder / "config.json").write_text(json.dumps({"model_type": model}))
    return made


def changed(**values):
    return lambda file: file | values


def cased(file):
    return file | {"normalizer": file["normalizer"] | {"lowercase": False}}


def more_digits(file):
    "As SmolLM2's, in which each digit is a word."
    digits = {"type": "Digits", "individual_digits": True}
    steps = {"type": "Sequence", "pretokenizers": [digits, file["pre_tokenizer"]]}
    return file | {"pre_tokenizer": steps}


def one_more(file):
    last = file["added_tokens"][-1]
    return file | {"added_tokens": [*file["added_tokens"], last | {"id": 999, "content": "book"}]}


def of_class(name):
    return {CONFIG: {"tokenizer_class": name}}


def flipped(key, was):
    now, was = json.dumps(not was), json.dumps(was)
    return {
        CONFIG: {key: not json.loads(was)}
    }, f"config.json sets {key} to {now}, and .* says {was};"


def role(key, token, place=CONFIG):
    return {
        place: {key: token}
    }, rf"(config|map).json sets {key} to .{re.escape(token)}., and .* says .[[<\w]"


NUMBERS = {str(i): {"content": token} for i, token in enumerate(list(WORDS["vocab"])[:5])}
UNBUILT = "config.json sets tokenizer_class to .*, a class that isn't .*; .* set tokenizer_class to"
RULE = ".*, and that of tokenizer.json is "  # of its own: tokenizer.json is followed
OTHER = "config.json sets tokenizer_class to .*, wh[^;]*{}[^;]*tokenizer.json [^;]*; "
CASES = [  # a model, what each of its files says instead, and of a refusal the words
    *((model, {}, "") for model in MADE),
    *((model, {CONFIG: None}, "") for model in MADE if model != "xlm-roberta"),
    ("llama", {OLDER: {"book": 99}}, "gives 'book' the id .*, but added_tokens.json 99"),
    ("llama", {OLDER: {"oo": BYTES["vocab"]["oo"]}}, ""),
    ("llama", {OLDER: {"book": 99}, CONFIG: {"added_tokens_decoder": {}}}, ""),
    ("llama", {CONFIG: {"image_token": "<image>"}}, ""),
    ("llama", {CONFIG: {"model_specific_special_tokens": {"x": "book"}}}, ""),
    ("bert", *role("cls_token", "[PAD]")),
    ("bert", *role("sep_token", "[MASK]")),
    ("bert", *role("unk_token", "[MASK]")),
    ("bert", *role("cls_token", "[PAD]", MAP)),
    ("bert", {MAP: {"cls_token": "[PAD]"}, CONFIG: {"added_tokens_decoder": NUMBERS}}, ""),
    ("roberta", *role("cls_token", "<pad>")),
    ("roberta", *role("sep_token", "<pad>")),
    ("xlm-roberta", *role("bos_token", "<pad>")),
    ("xlm-roberta", *role("eos_token", "<pad>")),
    ("deberta-v2", *role("cls_token", "[PAD]")),
    ("deberta-v2", *role("unk_token", "[PAD]")),
    ("gemma2", *role("unk_token", "<pad>")),
    ("bert", *flipped("do_lower_case", True)),
    ("bert", *flipped("strip_accents", True)),
    ("bert", *flipped("tokenize_chinese_chars", True)),
    ("roberta", *flipped("add_prefix_space", False)),
    ("qwen2", *flipped("add_prefix_space", False)),
    ("xlm-roberta", *flipped("add_prefix_space", True)),
    ("deberta-v2", *flipped("do_lower_case", False)),
    ("deberta-v2", *flipped("split_by_punct", False)),
    ("bert", {CONFIG: None, FILE: cased}, "config.json sets model_type .*, which sets do_lower_ca"),
    ("bert", {CONFIG: {"do_lower_case": False}, FILE: cased}, ""),
    ("bert", {CONFIG: {"added_tokens_decoder": NUMBERS}, FILE: one_more}, "adds the token 'book'"),
    (
        "bert",
        {CONFIG: None, FILE: changed(post_processor=None)},
        "h sets cls_token .* says nothing",
    ),
    *(
        (
            "gpt2",
            of_class(name),
            f"config.json sets tokenizer_class to .*, whose n.* NFC{RULE}none; ",
        )
        for name in ("Qwen2Tokenizer", "Qwen2TokenizerFast")
    ),
    ("gpt2", of_class("RobertaTokenizer"), OTHER.format("cls_token to .<s>")),
    (
        "llama",
        of_class("GPT2Tokenizer") | {FILE: more_digits},
        f"e pre_tokenizer is ByteLevel{RULE}Digits, ByteLevel; ",
    ),
    ("llama", of_class(FAST) | {FILE: more_digits}, ""),
    ("llama", of_class("LlamaTokenizerFast"), ""),
    (
        "gemma2",
        {CONFIG: None, FILE: changed(normalizer=None)},
        f"config.json sets model_type to .gemma2.{RULE}",
    ),
    (
        "qwen3",
        {CONFIG: None, FILE: changed(normalizer=None)},
        f"config.json sets model_type to .qwen3.{RULE}",
    ),
    ("qwen3", of_class(FAST) | {FILE: changed(normalizer=None)}, ""),
    (
        "qwen2",
        of_class(FAST) | {FILE: changed(normalizer=None)},
        f"config.json sets model_type to .qwen2.{RULE}",
    ),
    *(("gpt2", of_class(f"{x}Tokenizer"), UNBUILT) for x in ("GPTNeoX", "Cohere", "Deberta")),
    *(("xlm-roberta", of_class(f"{x}Tokenizer"), UNBUILT) for x in ("Albert", "T5")),
]


@pytest.fixture
def folder(folders, tmp_path):
    "Makes a folder of a model with changed files."

    def make(model, files):
        for file in folders[model].iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        for name, change in files.items():
            path = tmp_path / name
            if change is None:
                path.unlink()
            elif callable(change):
                path.write_text(json.dumps(change(json.loads(path.read_text()))))
            else:
                said = json.loads(path.read_text()) if path.exists() else {}
                path.write_text(json.dumps(said | change))
        return tmp_path

    return make


@pytest.mark.parametrize(("model", "files", "words"), CASES, ids=range(len(CASES)))
def test_a_folder_is_read_as_by_the_reference_or_refused(folder, model, files, words):
    path = folder(model, files) / FILE
    reader = hf.AutoTokenizer.from_pretrained(path.parent)
    theirs = [reader(text).input_ids for text in TEXTS]
    if not words:
        ours, roles = read_published(path)
        assert [ours.encode(text).ids for text in TEXTS] == theirs
        assert roles["eos"] == reader.eos_token_id and roles["pad"] == reader.pad_token_id
        return
    follows = RULE in words  # and a warning says so
    expected = pytest.warns(UserWarning) if follows else pytest.raises(InputError)
    with expected as caught:
        found = read_published(path)
    said = str(caught[0].message if follows else caught.value)
    assert re.search(words, said) and "\n" not in said and str(path.parent) in said
    if follows:
        file = Tokenizer.from_file(str(path))
        assert [found[0].encode(text).ids for text in TEXTS] == [file.encode(t).ids for t in TEXTS]
    if "supported" not in words and OLDER not in files:  # it would have been another text's ids
        assert [Tokenizer.from_file(str(path)).encode(text).ids for text in TEXTS] != theirs


def test_the_class_is_the_one_that_the_reference_takes(folder, monkeypatch):
    backend = hf.PreTrainedTokenizerFast
    monkeypatch.setattr(backend, "from_pretrained", classmethod(lambda cls, *_, **__: cls.__name__))
    path = folder("llama", {})
    file, plain = json.loads((path / FILE).read_text()), CLASSES[PLAIN[0]]
    lists = (auto.MODEL_MAPPING_NAMES, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    opened = {model for names in lists for model, kind in names.items() if kind in FAMILIES}
    assert {"llama", "mistral", "bert", "modernbert"} <= opened
    for model in opened | {*USUAL, *ALWAYS}:
        for named in (None, FAST, "LlamaTokenizerFast", *CLASSES):
            (path / "config.json").write_text(json.dumps({"model_type": model}))
            (path / CONFIG).write_text(json.dumps({"tokenizer_class": named} if named else {}))
            asked = Asked.read(path, named)
            ours = "TokenizersBackend" if asked.find(file) is plain else asked.kind
            assert ours == hf.AutoTokenizer.from_pretrained(path), (model, named)


def test_a_token_that_only_the_class_names_needs_a_row(folder):
    unmasked = changed(added_tokens=[])
    path, tokens = folder("roberta", {CONFIG: None, FILE: unmasked}) / FILE, len(ROBERTA["vocab"])
    for rows, mask in ((tokens, None), (tokens + 1, tokens), (None, tokens)):
        backend, roles = read_published(path, rows)
        assert roles["mask"] == backend.token_to_id("<mask>") == mask and roles["pad"] == 1
