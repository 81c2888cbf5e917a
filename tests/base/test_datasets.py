"""The right bytes from the first place that has them, or one error that says what to do."""

import gzip
import io
import tarfile

import pooch
import pytest

from transformer_lit.base import datasets
from transformer_lit.base.datasets import (
    DATASETS,
    DataFile,
    DataSet,
    available,
    data_hashes,
    fetch,
    load_analogies,
    load_pairs,
    load_text,
    load_word_pairs,
    number_in_english,
    number_in_german,
    number_pairs,
    read_file,
)
from transformer_lit.base.files import InputError, sha256

CONTENT = "A man is riding a bike.\nfährt\n".encode() * 50
FILE = DataFile(
    "toy/train.en", sha256(CONTENT), ("https://one/train.en.gz", "https://two/train.en")
)


@pytest.fixture(autouse=True)
def empty(data_folder):
    return data_folder


@pytest.fixture
def homes(monkeypatch):
    "What each address sends; an exception is raised. `homes.asked` lists the addresses in order."

    class Homes(dict):
        asked = []

    found = Homes()

    def send(self, url, output_file, pooch, check_only=False):
        found.asked.append(url)
        answer = found.get(url, ConnectionError("no route"))
        if isinstance(answer, BaseException):
            raise answer
        output_file.write(answer)

    Homes.asked = []
    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", send)
    return found


def lying_around(tmp_path):
    return sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())


def put(folder, path, data):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(data)


class TestLocalFiles:
    @pytest.mark.parametrize(
        ("suffix", "pack"), [("", bytes), (".gz", gzip.compress)], ids=["plain", "gz"]
    )
    @pytest.mark.parametrize("place", ["data", "cache/transformer_lit"])
    def test_plain_or_packed_in_either_folder(self, tmp_path, homes, suffix, pack, place):
        put(tmp_path / place, f"toy/train.en{suffix}", pack(CONTENT))
        assert read_file(FILE) == CONTENT
        assert homes.asked == []

    def test_the_named_folder_comes_before_the_cache(self, tmp_path):
        put(tmp_path / "data", "toy/train.en", CONTENT)
        put(tmp_path / "cache/transformer_lit", "toy/train.en", b"other")
        assert read_file(FILE) == CONTENT

    def test_without_a_named_folder_the_cache_is_enough(self, tmp_path, monkeypatch):
        monkeypatch.delenv("TRANSFORMER_LIT_DATA")
        put(tmp_path / "cache/transformer_lit", "toy/train.en", CONTENT)
        assert read_file(FILE) == CONTENT

    # Names of our own: gzip writes the time into its header, and workers must agree on names.
    @pytest.mark.parametrize(
        "content",
        [CONTENT[:-1], b"", gzip.compress(CONTENT[:-1])],
        ids=["cut", "empty", "packed"],
    )
    def test_a_wrong_hash_is_named(self, tmp_path, homes, content):
        put(tmp_path / "data", "toy/train.en", content)
        with pytest.raises(InputError, match=rf"data/toy/train\.en has .*{FILE.sha256[:12]}"):
            read_file(FILE)
        assert homes.asked == []  # a file of yours is not passed over in silence

    packed = gzip.compress(CONTENT)

    @pytest.mark.parametrize(
        "content",
        [packed[:-1], packed[:30], packed[:5], packed[:20] + b"\xff" * 40 + packed[60:]],
        ids=["cut by one", "cut short", "cut in the header", "overwritten"],
    )
    def test_a_damaged_archive_is_named(self, tmp_path, content):
        # This catches zlib.error, which is no OSError.
        put(tmp_path / "data", "toy/train.en.gz", content)
        with pytest.raises(InputError, match=r"toy/train\.en\.gz is damaged .*remove it"):
            read_file(FILE)


class TestDownloads:
    def test_the_first_home_is_enough_and_the_cache_is_filled(self, tmp_path, homes):
        homes[FILE.homes[0]] = gzip.compress(CONTENT)
        assert read_file(FILE) == CONTENT
        assert lying_around(tmp_path) == ["cache/transformer_lit/toy/train.en"]
        assert read_file(FILE) == CONTENT
        assert homes.asked == [FILE.homes[0]]  # once

    @pytest.mark.parametrize(
        "first",
        [ConnectionError("gone"), TimeoutError(), CONTENT[:-9], gzip.compress(CONTENT)[:-9], b""],
        ids=["no network", "slow", "cut", "cut archive", "empty"],
    )
    def test_homes_are_tried_in_order(self, tmp_path, homes, first):
        homes[FILE.homes[0]] = first
        homes[FILE.homes[1]] = CONTENT
        assert read_file(FILE) == CONTENT
        assert homes.asked == list(FILE.homes)
        assert lying_around(tmp_path) == ["cache/transformer_lit/toy/train.en"]

    def test_without_network_all_homes_are_told_and_nothing_is_left(self, tmp_path, homes):
        with pytest.raises(InputError) as caught:
            read_file(FILE)
        message = str(caught.value)
        for part in (*FILE.homes, "ConnectionError", "connect to the network", str(tmp_path)):
            assert part in message
        assert sorted(p.name for p in tmp_path.rglob("*")) == ["data"]

    def test_a_wrong_hash_from_a_home_is_named_and_nothing_is_left(self, tmp_path, homes):
        homes.update(dict.fromkeys(FILE.homes, b"please log in"))
        with pytest.raises(InputError, match=f"expected {FILE.sha256[:12]}"):
            read_file(FILE)
        assert sorted(p.name for p in tmp_path.rglob("*")) == ["data"]

    def test_ctrl_c_is_no_failed_home(self, tmp_path, homes):
        homes[FILE.homes[0]] = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            read_file(FILE)
        assert homes.asked == [FILE.homes[0]]
        assert lying_around(tmp_path) == []

    def test_a_cache_that_cannot_be_written_is_not_blamed_on_the_network(self, tmp_path, homes):
        homes[FILE.homes[0]] = CONTENT
        (tmp_path / "cache").touch()
        with pytest.raises(OSError, match="cache"):
            read_file(FILE)
        assert lying_around(tmp_path) == ["cache"]

    def test_download_false_asks_no_home(self, homes):
        with pytest.raises(InputError, match=r"toy/train\.en is not in"):
            read_file(FILE, download=False)
        assert homes.asked == []

    def test_fetch_and_available(self, monkeypatch, homes):
        other = DataFile("toy/train.de", sha256(b"Fahrrad"), ("https://one/train.de",))
        monkeypatch.setitem(DATASETS, "toy", DataSet("toy", "a toy", "none", (FILE, other)))
        homes[FILE.homes[1]] = CONTENT
        assert not available("toy")
        with pytest.raises(InputError, match=r"train\.de"):
            fetch("toy")
        assert not available("toy")  # one of two is not all
        homes["https://one/train.de"] = b"Fahrrad"
        assert fetch("toy") == ["toy/train.en", "toy/train.de"]
        assert available("toy")

    def test_a_generated_set_is_always_here(self, homes):
        assert available("numbers")
        assert fetch("numbers") == []
        assert homes.asked == []

    @pytest.mark.parametrize("call", [available, fetch, data_hashes])
    def test_an_unknown_set_is_named_with_the_known_ones(self, call):
        with pytest.raises(InputError, match="'wmt14'; known are: book, multi30k, n"):
            call("wmt14")


class TestRegistry:
    def test_every_file_can_be_checked_and_found(self):
        for dataset in DATASETS.values():
            paths = [file.path for file in dataset.files]
            assert len(set(paths)) == len(paths)
            for file in dataset.files:
                assert len(file.sha256) == 64
                assert "/" in file.path and not file.path.startswith("/")
                assert len(file.homes) >= 2
                assert all(home.startswith("https://") for home in file.homes)

    def test_every_file_has_another_hash(self):
        hashes = [file.sha256 for dataset in DATASETS.values() for file in dataset.files]
        assert len(set(hashes)) == len(hashes)


NUMBERS = {
    0: ("zero", "null"),
    1: ("one", "eins"),
    7: ("seven", "sieben"),
    10: ("ten", "zehn"),
    11: ("eleven", "elf"),
    12: ("twelve", "zwölf"),
    16: ("sixteen", "sechzehn"),
    17: ("seventeen", "siebzehn"),
    20: ("twenty", "zwanzig"),
    21: ("twenty-one", "einundzwanzig"),
    30: ("thirty", "dreißig"),
    66: ("sixty-six", "sechsundsechzig"),
    77: ("seventy-seven", "siebenundsiebzig"),
    100: ("one hundred", "einhundert"),
    101: ("one hundred one", "einhunderteins"),
    111: ("one hundred eleven", "einhundertelf"),
    121: ("one hundred twenty-one", "einhunderteinundzwanzig"),
    1_000: ("one thousand", "eintausend"),
    1_001: ("one thousand one", "eintausendeins"),
    1_100: ("one thousand one hundred", "eintausendeinhundert"),
    21_021: ("twenty-one thousand twenty-one", "einundzwanzigtausendeinundzwanzig"),
    100_000: ("one hundred thousand", "einhunderttausend"),
    101_001: ("one hundred one thousand one", "einhunderteintausendeins"),
}


class TestNumbers:
    @pytest.mark.parametrize(("n", "words"), NUMBERS.items())
    def test_cases_by_hand(self, n, words):
        assert (number_in_english(n), number_in_german(n)) == words

    @pytest.mark.parametrize("write", [number_in_english, number_in_german])
    def test_every_number_has_words_of_its_own(self, write):
        numbers = {*range(1_200), *range(0, 100_000, 97)}
        assert len({write(n) for n in numbers}) == len(numbers)

    @pytest.mark.parametrize("write", [number_in_english, number_in_german])
    @pytest.mark.parametrize("n", [-1, 1_000_000])
    def test_a_number_out_of_range_is_named(self, write, n):
        with pytest.raises(ValueError, match=str(n)):
            write(n)

    def test_splits_are_disjoint_and_of_the_promised_size(self):
        splits = {split: number_pairs(split) for split in ("train", "val", "test")}
        assert {k: len(v) for k, v in splits.items()} == {"train": 20_000, "val": 500, "test": 1000}
        assert len(set().union(*splits.values())) == 21_500
        small = {(number_in_english(n), number_in_german(n)) for n in range(100)}
        assert small <= set(splits["train"])

    def test_the_split_follows_the_seed(self):
        assert number_pairs("val") == number_pairs("val", seed=0) != number_pairs("val", seed=1)

    def test_an_unknown_split_is_named(self):
        with pytest.raises(InputError, match="no split 'dev'; known are: train, val, test"):
            number_pairs("dev")


class TestLoadPairs:
    def test_both_directions_hold_the_same_pairs(self):
        there = load_pairs("numbers", "en", "de", "val")
        assert there[0] == number_pairs("val")[0]
        assert load_pairs("numbers", "de", "en", "val") == [(de, en) for en, de in there]

    @pytest.mark.parametrize(
        ("arguments", "form", "message"),
        [
            (("wmt14", "en", "de", "train"), "raw", "unknown data set 'wmt14'"),
            (("multi30k", "en", "fr", "train"), "raw", "'en' to 'fr'"),
            (("numbers", "en", "en", "train"), "raw", "'en' to 'en'"),
            (("multi30k", "en", "de", "dev"), "raw", "no split 'dev'; known are: .*val"),
            (("multi30k", "en", "de", "train"), "bpe", "unknown form 'bpe'"),
            (("numbers", "en", "de", "train"), "bpe", "unknown form 'bpe'"),
            (("multi30k", "en", "de", "train"), "raw", r"multi30k/raw/train\.en is not in"),
        ],
    )
    def test_what_there_is_not_is_named(self, arguments, form, message):
        with pytest.raises(InputError, match=message):
            load_pairs(*arguments, form=form)

    def test_lines_break_at_line_feeds_only(self, monkeypatch, tmp_path):
        # This catches str.splitlines, which shifts one language against the other.
        texts = {"en": "a\x0cb\nc\u2028d\n\ne\n", "de": "A\nB\n\nE\n"}
        files = [
            DataFile(f"multi30k/raw/val.{language}", sha256(text.encode()), ())
            for language, text in texts.items()
        ]
        for file, text in zip(files, texts.values(), strict=True):
            put(tmp_path / "data", file.path, text.encode())
        monkeypatch.setitem(DATASETS, "multi30k", DataSet("multi30k", "", "", tuple(files)))
        expected = [("a\x0cb", "A"), ("c\u2028d", "B"), ("", ""), ("e", "E")]
        assert load_pairs("multi30k", "en", "de", "val") == expected

    def test_hashes_of_a_generated_set_follow_its_text(self, monkeypatch):
        before = data_hashes("numbers")
        assert set(before) == {"numbers/train", "numbers/val", "numbers/test"}
        monkeypatch.setattr(datasets, "number_in_german", lambda n: str(n))
        assert all(data_hashes("numbers")[key] != value for key, value in before.items())


@pytest.mark.multi30k
class TestRealMulti30k:
    @pytest.fixture(autouse=True)
    def named(self, monkeypatch, real_data_folder):
        monkeypatch.setenv("TRANSFORMER_LIT_DATA", real_data_folder)

    @pytest.mark.parametrize("form", ["raw", "tok"])
    @pytest.mark.parametrize(
        ("split", "count"),
        [
            ("train", 28_998),  # 29,000 less two with an empty German side
            ("val", 1_014),
            ("test_2016_flickr", 1_000),
            ("test_2017_flickr", 1_000),
            ("test_2017_mscoco", 461),
        ],
    )
    def test_sizes_and_no_empty_side(self, form, split, count):
        pairs = load_pairs("multi30k", "en", "de", split, form=form)
        assert len(pairs) == count
        assert all(len(side.strip()) > 3 for pair in pairs for side in pair)

    def test_the_sides_belong_together(self):
        pairs = load_pairs("multi30k", "en", "de", "test_2016_flickr")
        assert pairs[0][0] == "A man in an orange hat starring at something."
        assert pairs[0][1] == "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt."
        assert load_pairs("multi30k", "de", "en", "test_2016_flickr")[0] == pairs[0][::-1]


def packed(files, mode):
    "A tar archive of names and contents."
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


class TestNovels:
    "An archive is joined in the order of names; what may not be used is left out."

    def test_joined_whatever_the_archive_is_packed_with(self, homes, tmp_path):
        texts = {
            "x/B_Two_1900.txt": b"\xef\xbb\xbftwo\r\nlines\r\n",
            "x/A_One_1899.txt": b"one\n",
            "x/Forster_Howards_1910.txt": b"left out",
            "x/README.md": b"no novel",
        }
        expected = b"\x1cA_One_1899\none\n\x1cB_Two_1900\ntwo\nlines\n"
        join = DATASETS["novels"].files[0].unpack
        file = DataFile("toy/novels.txt", sha256(expected), ("https://one/a.tar.gz",), join)
        for mode in ("w:gz", "w:xz", "w"):
            homes[file.homes[0]] = packed(texts, mode)
            assert read_file(file) == expected
            (tmp_path / "cache/transformer_lit/toy/novels.txt").unlink()  # what it kept
        put(tmp_path / "data", "toy/novels.tar.xz", packed(texts, "w:xz"))
        del homes[file.homes[0]]
        assert read_file(file) == expected

    def test_an_archive_of_other_texts_is_refused(self, homes, tmp_path):
        file = DATASETS["novels"].files[0]
        for home in file.homes:
            homes[home] = packed({"a.txt": b"another"}, "w:gz")
        with pytest.raises(InputError, match="expected"):
            read_file(file)
        homes.update(dict.fromkeys(file.homes, b"no archive at all"))
        with pytest.raises(InputError, match="is damaged"):
            read_file(file)
        assert lying_around(tmp_path) == []

    def test_whole_novels_are_held_out(self, monkeypatch, tmp_path):
        text = "".join(f"\x1cname{i}\nnovel {i}" for i in range(40)).encode()
        file = DataFile("toy/n.txt", sha256(text), ())
        monkeypatch.setitem(DATASETS, "novels", DataSet("novels", "", "", (file,)))
        put(tmp_path / "data", "toy/n.txt", text)
        val, train = (load_text("novels", split).split("\n") for split in ("val", "train"))
        assert val == ["novel 9", "novel 28"]
        assert sorted(train + val) == sorted(f"novel {i}" for i in range(40))


def test_what_is_no_text_and_no_split_is_named():
    with pytest.raises(InputError, match="numbers is no running text"):
        load_text("numbers", "train")
    with pytest.raises(InputError, match="no split 'test'; known are: train, val"):
        load_text("tinyshakespeare", "test")
    with pytest.raises(InputError, match="no word pairs 'questions-words'"):
        load_word_pairs("questions-words")
    with pytest.raises(InputError, match="tinyshakespeare holds no sentence pairs"):
        load_pairs("tinyshakespeare", "en", "de", "train")


@pytest.mark.real_data
class TestRealTexts:
    @pytest.fixture(autouse=True)
    def named(self, monkeypatch, real_data_folder):
        monkeypatch.setenv("TRANSFORMER_LIT_DATA", real_data_folder)

    def test_the_plays_are_split_after_nine_tenths(self):
        train, val = (load_text("tinyshakespeare", split) for split in ("train", "val"))
        assert (len(train), len(val)) == (1_003_854, 111_540)
        assert len(set(train + val)) == 65 and train.startswith("First Citizen:\n")

    def test_five_of_94_novels_are_held_out(self):
        train, val = (load_text("novels", split) for split in ("train", "val"))
        assert len(train) > 13 * len(val) > 5e7
        assert "Pip" in val and "Pip" * 3 not in train  # Great Expectations
        assert "\x1c" not in train + val and "\r" not in train + val

    def test_judgements_about_words(self):
        pairs = load_word_pairs("wordsim353")
        assert len(pairs) == 353 and ("tiger", "cat", 7.35) in pairs
        assert len(load_word_pairs("simlex999")) == 999
        groups = load_analogies()
        assert len(groups) == 14 and sum(map(len, groups.values())) == 19_544
        assert groups["family"][0] == ("boy", "girl", "brother", "sister")
