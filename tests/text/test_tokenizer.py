"""The tokenizer: any text back unchanged, no special token from text, and files of another kind.

The chapter's cells check merges and the alphabet of bytes: see tests/damages/text.yml.
"""

import copy
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from transformer_lit.course.files import InputError
from transformer_lit.text import tokenizer as module
from transformer_lit.text.tokenizer import (
    SPECIALS,
    BPETokenizer,
    CharTokenizer,
    PublishedTokenizer,
    Specials,
    _is_ours,
    byte_alphabet,
    load_tokenizer,
    readable,
    train_bpe,
    train_whole_bpe,
)

LINES = [
    "A man is standing on a beach.",
    "Two men are riding bikes in the city.",
    "Eine Frau reitet die Straße entlang.",
    "Ein Junge hält ein Fahrrad.",
    "  two  spaces,\ttabs\n and <eos> and <pad>",
]
TOKENIZER = BPETokenizer.train(LINES, 331)
# the same examples in every run, and none kept in a folder: a red test is red for everybody
DETERMINISTIC = settings(max_examples=300, deadline=None, derandomize=True, database=None)
PARTS = [*SPECIALS, " ", "  ", "\n", "\r", "\x00", "Ġ", "Ċ", "<", "eos", "🚲"]
TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(PARTS)).map("".join))


def merges_of(tokenizer):
    return [tuple(pair) for pair in json.loads(tokenizer.backend.to_str())["model"]["merges"]]


def test_training_counts_special_tokens_and_bytes():
    assert BPETokenizer.train([], 259).vocab_size == 259
    assert BPETokenizer.train(LINES, 293).vocab_size == 293
    few = BPETokenizer.train(["ab ab"], 1009)
    assert few.vocab_size == 259 + 2  # "ab" and " ab": no more pairs


def test_training_takes_any_iterable_and_a_smaller_vocabulary_has_the_first_merges():
    again = BPETokenizer.train((line for line in LINES), 331)
    assert again.backend.to_str() == TOKENIZER.backend.to_str()
    for size in (259, 263, 307):
        assert merges_of(BPETokenizer.train(LINES, size)) == merges_of(TOKENIZER)[: size - 259]


SCRIPTS = ["我们在学习注意力。", "Ελλάδα и Москва", "ภาษาไทย", "🚲🚲 fährt"]


@pytest.mark.parametrize("more", [0, 1, 23])
def test_whole_characters_come_out_whole_whatever_the_writing_system(more):
    texts, size = [*LINES, *SCRIPTS * 3], 259 + more
    whole, plain = BPETokenizer.train_whole(texts, size), BPETokenizer.train(texts, size)
    for text in texts:
        ids = whole.encode(text)
        assert "".join(whole.decode([i]) for i in ids) == text  # no token is a part of one
        assert whole.decode(ids) == text and len(ids) <= max(len(text), 1)
    assert any("\ufffd" in plain.decode([i]) for i in plain.encode(SCRIPTS[0]))
    assert whole.decode(whole.encode("你好 ☕")) == "你好 ☕"  # of which it has never seen
    assert _is_ours(whole.backend) and len(merges_of(whole)) == whole.vocab_size - 259
    ascii_only = [text for text in texts if text.isascii()]
    one, other = (make(ascii_only, size) for make in (BPETokenizer.train_whole, BPETokenizer.train))
    assert one.vocab_size == other.vocab_size == size


def test_of_too_many_characters_the_frequent_ones_are_whole():
    texts = ["".join(map(chr, range(0x4E00, 0x4E00 + 90))), "一" * 9]
    backend = train_whole_bpe(texts, 263, most=293)
    assert backend.get_vocab_size() <= 293 and len(backend.encode("一").ids) == 1
    assert len(backend.encode(texts[0]).ids) > 90
    with pytest.raises(ValueError, match="is one string"):
        train_whole_bpe("one string", 300)
    with pytest.raises(ValueError, match="need vocab_size >= 259"):
        train_whole_bpe(texts, 258)


def test_merges_do_not_cross_words():
    for token in map(readable, TOKENIZER.backend.get_vocab()):
        assert " " not in token.lstrip(" ")


@DETERMINISTIC
@given(TEXTS)
def test_any_text_comes_back_however_it_is_read(text):
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text and TOKENIZER.decode_bytes(ids) == text.encode()
    assert all(len(SPECIALS) <= i < TOKENIZER.vocab_size for i in ids)  # no special token
    assert TOKENIZER.encode_all([text, text]) == [ids, ids]
    assert TOKENIZER.encode(text, bos=True, eos=True) == [1, *ids, 2]
    assert TOKENIZER.decode([0, 1, *ids, 2, 0]) == text
    assert len(TOKENIZER.tokens(text)) == len(ids)


ENDS = BPETokenizer.train(["a \n", "\r\n", "a\t\n"] * 9, 265)  # merges at the ends of lines


@DETERMINISTIC
@given(TEXTS | st.text("a \t\r\n"))
def test_a_long_text_is_read_line_by_line_to_the_same_ids(text):
    "No token spans two lines, so a text may be cut where a line ends."
    assert TOKENIZER.decode(TOKENIZER.encode_text(text).tolist()) == text
    for tokenizer in (TOKENIZER, ENDS):
        ids = [i for line in text.splitlines(keepends=True) for i in tokenizer.encode(line)]
        assert tokenizer.encode_text(text).tolist() == ids == tokenizer.encode(text)


@DETERMINISTIC
@given(st.text(), st.text())
def test_a_border_between_words_is_a_border_between_tokens(left, right):
    # "a" and " b" are cut apart before any merge, whatever letters stand around the space
    left, right = f"{left}a", f" b{right}"
    assert TOKENIZER.encode(left + right) == TOKENIZER.encode(left) + TOKENIZER.encode(right)


@pytest.mark.parametrize(
    "renew",
    [
        lambda tokenizer: pickle.loads(pickle.dumps(tokenizer)),
        copy.deepcopy,
        lambda tokenizer: BPETokenizer(Tokenizer.from_str(tokenizer.backend.to_str())),
    ],
    ids=["pickle", "deepcopy", "constructor"],
)
def test_special_tokens_stay_apart_in_every_copy(renew):
    # The library keeps `encode_special_tokens` in no file: "<eos>" from text became id 2.
    other = renew(TOKENIZER)
    for text in [*LINES, "an <eos> in the text"]:
        assert other.encode(text) == TOKENIZER.encode(text)


def test_tokens_show_partial_characters_as_bytes():
    # Character offsets would give "🚲" four times.
    assert TOKENIZER.tokens("🚲") == [r"\xf0", r"\x9f", r"\x9a", r"\xb2"]
    assert TOKENIZER.tokens("") == []
    assert TOKENIZER.tokens("ä") == [r"\xc3", r"\xa4"]  # known bytes, not merged in these lines
    assert "".join(TOKENIZER.tokens(LINES[0])) == LINES[0]
    german = BPETokenizer.train(["Räder Räder"], 300)
    assert german.tokens("Räder") == ["Räder"]  # bytes that merge into whole characters are text


def test_characters_there_and_back():
    text = "Ein Mann fährt Fahrrad. 🚲\n"
    tokenizer = CharTokenizer.train(text)
    for part in ("", "Fahrrad", "🚲ä\n "):
        ids = tokenizer.encode(part)
        assert tokenizer.decode(iter(ids)) == part
        assert tokenizer.encode_text(part).tolist() == ids
    assert tokenizer.characters == "".join(sorted(set(text)))
    assert tokenizer.vocab_size == len(set(text))


class TestPublished:
    "Special tokens of a model that came with its tokenizer are tokens, and survive a copy."

    def test_specials_are_tokens_in_copies_too(self):
        backend = BPETokenizer.train(["A man is riding a bike."], 262).backend
        tokenizer = PublishedTokenizer(backend, bos_id=1, eos_id=2)
        for one in (tokenizer, pickle.loads(pickle.dumps(tokenizer))):
            assert one.encode("<bos>bike<eos>")[:: len(one.encode("bike")) + 1] == [1, 2]
            assert (one.pad_id, one.bos_id, one.eos_id) == (None, 1, 2)
            assert one.decode([1, *one.encode("bike"), 2]) == "bike"
            assert one.encode_text("a\n<eos>").tolist() == one.encode("a\n<eos>")

    def test_what_it_wrote_keeps_the_roles(self, tmp_path):
        path = tmp_path / "tokenizer.json"
        backend = BPETokenizer.train(["A man is riding a bike."], 263).backend
        tokenizer = PublishedTokenizer(backend, bos_id=2, eos_id=1)
        tokenizer.save(path)
        again = load_tokenizer(path)
        assert type(again) is PublishedTokenizer
        assert (again.pad_id, again.bos_id, again.eos_id) == (None, 2, 1)
        assert again.encode("<bos>bike ä") == tokenizer.encode("<bos>bike ä")

    @pytest.mark.parametrize("ignore_merges", [False, True])
    @pytest.mark.parametrize("text", ["<turn>a<|im|>", "### ab####", " ###abcd", "a  b\n\n###"])
    def test_what_a_person_types_is_letters_whatever_kind_a_mark_is_of(self, text, ignore_merges):
        "Some marks are words too, which merges make; runs of white space are no marks."
        ids = {token: i for i, token in enumerate([*byte_alphabet(), "##", "###", "ab", "abc"])}
        merges = [("#", "#"), ("##", "#"), ("a", "b"), ("ab", "c")]
        backend = Tokenizer(models.BPE(ids, merges, ignore_merges=ignore_merges))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        backend.add_tokens(["###", "<turn>", "  ", "\n\n"])
        backend.add_special_tokens(["abc", "<|im|>"])
        tokenizer = PublishedTokenizer(backend)
        marks = {backend.token_to_id(mark) for mark in ("###", "<turn>", "abc", "<|im|>")}
        spaces = {i for run in ("  ", "\n\n") if run in text for i in tokenizer.encode_part(run)}
        found = tokenizer.encode_ordinary(text)
        assert {*tokenizer.encode_part(text)} & marks and not {*found} & marks
        assert spaces <= {*found} and tokenizer.decode(found) == text


# --- refused -------------------------------------------------------------------------------------


def read_with(*replaced):
    "A tokenizer of somebody else's, which replaces something in a text before it cuts it."
    backend = Tokenizer.from_str(TOKENIZER.backend.to_str())
    steps = normalizers.Sequence([normalizers.Replace(*pair) for pair in replaced])
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), steps])
    Specials().add_to(backend, "tokenizer.json")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: train_bpe(LINES, 258), "259 .*got 258"),
        (lambda: BPETokenizer.train("A man is riding a bike.", 300), "A man is"),  # no list
        (lambda: TOKENIZER.decode([30, -1, 31]), r"-1 .*0 to 330"),
        (lambda: TOKENIZER.decode([30, 331, 31]), r"331 .*0 to 330"),
        (lambda: TOKENIZER.decode_bytes([30, 2**40, 31]), rf"{2**40} .*0 to 330"),
        (lambda: TOKENIZER.encode("ab\ud800"), r"ud800.* 2"),  # half a surrogate pair
        (lambda: TOKENIZER.encode_all(["fine", "ab\ud800"]), r"ud800.* 2"),
        (lambda: BPETokenizer.train(["fine", "ab\ud800"], 300), r"ud800.* 2"),
        (lambda: CharTokenizer("abc").decode([1, -3, 0]), "id -3 is outside .* 0 to 2"),
        (lambda: CharTokenizer("abc").decode([1, 3, 0]), "id 3 is outside .* 0 to 2"),
        (lambda: CharTokenizer("ab").encode("abx"), "never seen the character 'x'"),
        (lambda: CharTokenizer(""), "characters must differ"),
        (lambda: CharTokenizer("aba"), "characters must differ"),
        (lambda: BPETokenizer.load("no_such.json"), r"no_such\.json"),
        (lambda: read_with((Regex("a"), "a" * 10**6)), "lengthen texts 1,000,001 times"),
        (lambda: read_with(*[("a", "aa")] * 5), "lengthen texts 243 times"),
    ],
)
def test_what_no_text_or_id_could_be_is_refused(call, words):
    with pytest.raises(ValueError, match=words):  # InputError is one
        call()
    read_with((" ", "▁"), (Regex(" {2,}"), "▁"))


EXPLODES = [r"(a+)+[bc]", r"[ab]+[ab]*[ab]*(?<!a)"]


@pytest.mark.parametrize("pattern", EXPLODES)
@pytest.mark.parametrize("use", ["encode", "encode_part", "encode_ordinary", "encode_text"])
def test_a_pattern_that_takes_for_ever_is_one_sentence(monkeypatch, pattern, use):
    "The library panics at the first, and would compute for seconds at the second."
    monkeypatch.setattr(module, "SECONDS", 0.3)
    tokenizer = PublishedTokenizer(Tokenizer.from_str(TOKENIZER.backend.to_str()))
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    for backend in (tokenizer.backend, tokenizer._ordinary):
        backend.pre_tokenizer = pre_tokenizers.Sequence([split, words])
    with pytest.raises(InputError, match=r"can't cut this text \(.*(over|0 s)\)\. Try .*r one$"):
        getattr(tokenizer, use)("a" * 320)
    monkeypatch.undo()  # a busy machine may need longer than that for two letters
    assert tokenizer.decode(tokenizer.encode("b b")) == "b b"


def other_specials():
    return train_bpe(LINES, 300).to_str().replace("<bos>", "<cls>")


def without_a_byte():
    backend = json.loads(BPETokenizer.train([], 259).backend.to_str())
    del backend["model"]["vocab"]["A"]
    return json.dumps(backend)


def with_part(**parts):
    backend = train_bpe(LINES, 300)
    for name, part in parts.items():
        setattr(backend, name, part)
    return backend.to_str()


DAMAGED = [TOKENIZER.backend.to_str()[:keep] for keep in (0, 1, 100, -1)]
NO_TOKENIZER = ['{"characters": 3}', '{"roles": {}}', '{"roles": {}, "tokenizer": {"model": 3}}']
OTHER_KINDS = {  # Read without a check, each would lose text or end sentences at the wrong id.
    "words": Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).to_str(),
    "specials": other_specials(),
    "bytes": without_a_byte(),
    "normalizer": with_part(normalizer=normalizers.Lowercase()),
    "pre_tokenizer": with_part(pre_tokenizer=pre_tokenizers.Whitespace()),
    "decoder": with_part(decoder=None),
}


FILES = [(BPETokenizer.load, text, "not a tokenizer file") for text in DAMAGED]
FILES += [(load_tokenizer, text, "not valid JSON") for text in DAMAGED]
FILES += [(load_tokenizer, text, "not a tokenizer file") for text in NO_TOKENIZER]
FILES += [(load_tokenizer, text, "a tokenizer of another kind") for text in OTHER_KINDS.values()]


@pytest.mark.parametrize(
    ("load", "content", "words"),
    FILES,
    ids=[f"{i}: {words}" for i, (*_, words) in enumerate(FILES)],
)
def test_a_file_that_is_damaged_or_of_another_kind_is_named(tmp_path, load, content, words):
    path = tmp_path / "some.json"
    path.write_text(content)
    with pytest.raises(InputError, match=rf"some\.json is {words}"):
        load(path)


def test_special_tokens_of_ones_own_come_after_ours_and_no_text_becomes_one(tmp_path):
    own = ["<|user|>", "<|end|>"]
    tokenizer = BPETokenizer.train(["a man is riding a bike"] * 3, 271, special_tokens=own)
    tokenizer.save(tmp_path / "t.json")
    for one in (tokenizer, load_tokenizer(tmp_path / "t.json")):
        assert [one.backend.token_to_id(x) for x in own] == [3, 4] and one.vocab_size == 271
        ids = one.encode("<|user|> a man")
        assert min(ids) > 4 and one.decode([3, *ids, 4]) == "<|user|> a man"
        assert one.decode_bytes([3, *ids, 4]) == b"<|user|> a man"
    for wrong in (["<eos>"], ["x", "x"], [""]):
        with pytest.raises(ValueError, match="special tokens must differ and not be empty"):
            BPETokenizer.train(["a"], 300, special_tokens=wrong)
