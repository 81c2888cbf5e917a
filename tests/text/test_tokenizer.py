"""The tokenizer: merges as counted by hand, any text back unchanged, no special token from text."""

import copy
import json
import pickle
import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from transformer_lit.course.files import InputError
from transformer_lit.text.tokenizer import (
    SPECIALS,
    BPETokenizer,
    CharTokenizer,
    PublishedTokenizer,
    byte_alphabet,
    load_tokenizer,
    readable,
    train_bpe,
)

LINES = [
    "A man is standing on a beach.",
    "Two men are riding bikes in the city.",
    "Eine Frau reitet die Straße entlang.",
    "Ein Junge hält ein Fahrrad.",
    "  two  spaces,\ttabs\n and <eos> and <pad>",
]
TOKENIZER = BPETokenizer.train(LINES, 331)
CHAR = {byte: char for char, byte in byte_alphabet().items()}
# the same examples in every run, and none kept in a folder: a red test is red for everybody
DETERMINISTIC = settings(max_examples=300, deadline=None, derandomize=True, database=None)


def merges_of(tokenizer):
    return [tuple(pair) for pair in json.loads(tokenizer.backend.to_str())["model"]["merges"]]


def merged(parts, pair):
    out = []
    for part in parts:  # left to right; a pair never takes a piece twice
        if out and not out[-1][1] and (out[-1][0], part) == pair:
            out[-1] = (out[-1][0] + part, True)
        else:
            out.append((part, False))
    return [part for part, _ in out]


def learn(words, vocab_size):
    "Merges by counting; ties go to the pair with the older pieces."
    counts = Counter(words)
    pieces = {word: [CHAR[byte] for byte in word.encode()] for word in counts}
    vocabulary = [*SPECIALS, *sorted(CHAR.values())]
    merges = []
    while len(vocabulary) < vocab_size:
        pairs = Counter()
        for word, parts in pieces.items():
            for pair in pairwise(parts):
                pairs[pair] += counts[word]
        if not pairs:
            break
        age = {piece: n for n, piece in reversed(list(enumerate(vocabulary)))}
        best = min(pairs, key=lambda p: (-pairs[p], age[p[0]], age[p[1]]))
        merges.append(best)
        if best[0] + best[1] not in age:
            vocabulary.append(best[0] + best[1])
        pieces = {word: merged(parts, best) for word, parts in pieces.items()}
    return merges


@pytest.mark.parametrize("seed", range(11))
def test_merges_and_pieces_are_those_counted_by_hand(seed):
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcäß", k=rng.randint(2, 7))) for _ in range(29)]
    tokenizer = BPETokenizer.train(words, 283)
    by_hand = learn(words, 283)
    assert merges_of(tokenizer) == by_hand
    for word in [*words, "abcabc", "cäcäß", "zebra"]:
        parts = [CHAR[byte] for byte in word.encode()]
        for pair in by_hand:
            parts = merged(parts, pair)
        assert [tokenizer.backend.id_to_token(i) for i in tokenizer.encode(word)] == parts


def test_training_counts_special_tokens_and_bytes():
    assert BPETokenizer.train([], 259).vocab_size == 259
    assert BPETokenizer.train(LINES, 293).vocab_size == 293
    assert (
        BPETokenizer.train(["ab ab"], 1009).vocab_size == 259 + 2
    )  # "ab" and " ab": no more pairs
    with pytest.raises(ValueError, match=r"258.*259"):
        train_bpe(LINES, 258)


def test_training_takes_any_iterable_and_always_finds_the_same():
    again = BPETokenizer.train((line for line in LINES), 331)
    assert again.backend.to_str() == TOKENIZER.backend.to_str()


def test_training_on_one_string_is_refused():
    with pytest.raises(ValueError, match="A man is"):  # it would be texts of one character each
        BPETokenizer.train("A man is riding a bike.", 300)


def test_merges_do_not_cross_words():
    for token in map(readable, TOKENIZER.backend.get_vocab()):
        assert " " not in token.lstrip(" ")


@DETERMINISTIC
@given(st.text())
def test_decode_undoes_encode(text):
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text
    assert all(len(SPECIALS) <= i < TOKENIZER.vocab_size for i in ids)
    assert TOKENIZER.encode_all([text, text]) == [ids, ids]


def test_a_smaller_vocabulary_has_the_first_merges_of_a_larger_one():
    for size in (259, 263, 307):
        assert merges_of(BPETokenizer.train(LINES, size)) == merges_of(TOKENIZER)[: size - 259]


@DETERMINISTIC
@given(st.text(), st.text())
def test_a_border_between_words_is_a_border_between_tokens(left, right):
    # "a" and " b" are cut apart before any merge, whatever letters stand around the space
    left, right = f"{left}a", f" b{right}"
    assert TOKENIZER.encode(left + right) == TOKENIZER.encode(left) + TOKENIZER.encode(right)


@DETERMINISTIC
@given(st.lists(st.sampled_from([*SPECIALS, " ", "  ", "\n", "\x00", "Ġ", "Ċ", "<", "eos", "🚲"])))
def test_special_tokens_and_spaces_in_text_are_text(parts):
    text = "".join(parts)
    ids = TOKENIZER.encode(text)
    assert min(ids, default=3) > 2 and TOKENIZER.decode(ids) == text


def reloaded(tokenizer, folder):
    tokenizer.save(folder / "deep" / "tokenizer.json")
    return BPETokenizer.load(folder / "deep" / "tokenizer.json")


@pytest.mark.parametrize(
    "renew",
    [
        reloaded,
        lambda tokenizer, _: pickle.loads(pickle.dumps(tokenizer)),
        lambda tokenizer, _: copy.deepcopy(tokenizer),
        lambda tokenizer, _: BPETokenizer(Tokenizer.from_str(tokenizer.backend.to_str())),
    ],
    ids=["file", "pickle", "deepcopy", "constructor"],
)
def test_special_tokens_stay_apart_in_every_copy(renew, tmp_path):
    # The library keeps `encode_special_tokens` in no file: "<eos>" from text became id 2.
    other = renew(TOKENIZER, tmp_path)
    for text in [*LINES, "an <eos> in the text"]:
        assert other.encode(text) == TOKENIZER.encode(text)
        assert other.decode(other.encode(text)) == text


def test_begin_and_end_are_added_where_asked_for():
    ids = TOKENIZER.encode("a man")
    assert TOKENIZER.encode("a man", bos=True) == [1, *ids]
    assert TOKENIZER.encode("a man", eos=True) == [*ids, 2]
    assert TOKENIZER.encode("", bos=True, eos=True) == [1, 2]
    assert TOKENIZER.decode([0, 1, *ids, 2, 0]) == "a man"
    assert (TOKENIZER.pad_id, TOKENIZER.bos_id, TOKENIZER.eos_id) == (0, 1, 2)
    assert [TOKENIZER.backend.token_to_id(token) for token in TOKENIZER.specials] == [0, 1, 2]


@pytest.mark.parametrize("bad", [-1, 331, 2**40])
def test_an_id_outside_the_vocabulary_is_refused(bad):
    with pytest.raises(ValueError, match=rf"{bad} .*331"):
        TOKENIZER.decode([30, bad, 31])


@pytest.mark.parametrize("bad", [-1, -3, 3, 2**40])
def test_an_id_of_no_character_is_refused(bad):
    tokenizer = CharTokenizer.train("abc")
    assert tokenizer.decode(iter([2, 0])) == "ca"
    with pytest.raises(ValueError, match=rf"id {bad} is outside the vocabulary of 3 tokens"):
        tokenizer.decode([1, bad, 0])


def test_half_a_surrogate_pair_is_refused():
    for call in (
        lambda: TOKENIZER.encode("ab\ud800"),
        lambda: TOKENIZER.encode_all(["fine", "ab\ud800"]),
        lambda: BPETokenizer.train(["fine", "ab\ud800"], 300),
    ):
        with pytest.raises(InputError, match=r"ud800.* 2"):
            call()


def test_tokens_show_partial_characters_as_bytes():
    # Character offsets would give "🚲" four times.
    assert TOKENIZER.tokens("🚲") == [r"\xf0", r"\x9f", r"\x9a", r"\xb2"]
    assert TOKENIZER.decode(TOKENIZER.encode("🚲")[:2]) == "�"
    assert TOKENIZER.tokens("") == []
    assert TOKENIZER.tokens("ä") == [r"\xc3", r"\xa4"]  # known bytes, not merged in these lines
    for line in LINES:
        pieces = TOKENIZER.tokens(line)
        assert len(pieces) == len(TOKENIZER.encode(line))
        if line.isascii():
            assert "".join(pieces) == line
    german = BPETokenizer.train(["Räder Räder"], 300)
    assert german.tokens("Räder") == ["Räder"]  # bytes that merge into whole characters are text


def test_byte_alphabet_is_the_librarys():
    assert set(byte_alphabet()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(byte_alphabet().values()) == list(range(256))
    for byte in range(128):  # the bytes that are characters by themselves
        (token,) = BPETokenizer.train([], 259).encode(chr(byte))
        assert byte_alphabet()[TOKENIZER.backend.id_to_token(token)] == byte


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"no_such\.json"):
        BPETokenizer.load(tmp_path / "no_such.json")


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_cut_file_is_named(tmp_path, keep):
    path = tmp_path / "cut.json"
    path.write_text(TOKENIZER.backend.to_str()[:keep])
    with pytest.raises(InputError, match=r"cut\.json is not a tokenizer file"):
        BPETokenizer.load(path)


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


@pytest.mark.parametrize(
    "content",
    [
        Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).to_str(),
        other_specials(),
        without_a_byte(),
        with_part(normalizer=normalizers.Lowercase()),
        with_part(pre_tokenizer=pre_tokenizers.Whitespace()),
        with_part(decoder=None),
    ],
    ids=["words", "specials", "bytes", "normalizer", "pre_tokenizer", "decoder"],
)
def test_a_tokenizer_of_another_kind_is_refused(tmp_path, content):
    # Read without a check, each of these would lose text or end sentences at the wrong id.
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"other\.json is a tokenizer of another kind"):
        BPETokenizer.load(path)


@DETERMINISTIC
@given(st.text())
def test_a_long_text_is_read_line_by_line_to_the_same_ids(text):
    "No token spans two lines, so a text may be cut where a line ends."
    assert TOKENIZER.decode(TOKENIZER.encode_text(text).tolist()) == text
    lines = text.split("\n")
    ids = [i for line in lines[:-1] for i in TOKENIZER.encode(line + "\n")]
    assert TOKENIZER.encode_text("".join(f"{line}\n" for line in lines[:-1])).tolist() == ids


class TestCharacters:
    def test_there_and_back(self):
        tokenizer = CharTokenizer.train("Ein Mann fährt Fahrrad. 🚲\n")
        for text in ("", "Fahrrad", "🚲ä\n "):
            assert tokenizer.decode(tokenizer.encode(text)) == text
            assert tokenizer.encode_text(text).tolist() == tokenizer.encode(text)
        assert tokenizer.vocab_size == len(set("Ein Mann fährt Fahrrad. 🚲\n"))
        assert list(tokenizer.characters) == sorted(tokenizer.characters)

    def test_what_cannot_be_is_named(self):
        with pytest.raises(InputError, match="never seen the character 'x'"):
            CharTokenizer("ab").encode("abx")
        for wrong in ("", "aba"):
            with pytest.raises(ValueError, match="characters must differ"):
                CharTokenizer(wrong)


@pytest.mark.parametrize("tokenizer", [TOKENIZER, CharTokenizer("\n aä🚲")], ids=["pieces", "char"])
def test_load_reads_what_either_kind_saved(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert type(again) is type(tokenizer)
    assert again.encode("a ä\n🚲") == tokenizer.encode("a ä\n🚲")
    (tmp_path / "tokenizer.json").write_text('{"characters": 3}')
    with pytest.raises(InputError, match=r"tokenizer\.json is not a tokenizer file"):
        load_tokenizer(tmp_path / "tokenizer.json")


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
        for broken in ('{"roles": {}}', '{"roles": {}, "tokenizer": {"model": 3}}'):
            path.write_text(broken)
            with pytest.raises(InputError, match=r"tokenizer\.json is not a tokenizer file"):
                load_tokenizer(path)
