"""Whatever happens in between: the old content or the new, never a part, and nothing beside it."""

import gzip
import os
import stat
import subprocess
import sys

import pytest

from transformer_lit.course import files
from transformer_lit.course.files import (
    DataFile,
    InputError,
    atomic_path,
    read_file,
    read_json,
    read_text,
    remove_folder,
    require_writable,
    sha256,
    write_json,
    write_text,
)


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


class TestAtomicPath:
    def test_a_new_file_appears_whole(self, tmp_path):
        with atomic_path(tmp_path / "a.txt") as temporary:
            temporary.write_text("new")
            assert not (tmp_path / "a.txt").exists()
        assert (tmp_path / "a.txt").read_text() == "new"
        assert everything(tmp_path) == ["a.txt"]

    @pytest.mark.parametrize("failure", [ValueError, OSError, KeyboardInterrupt, SystemExit])
    def test_a_failure_leaves_all_as_it_was(self, tmp_path, failure):
        path = tmp_path / "a.txt"
        path.write_text("old")
        with pytest.raises(failure), atomic_path(path) as temporary:
            temporary.write_text("ne")
            raise failure
        assert path.read_text() == "old"
        assert everything(tmp_path) == ["a.txt"]

    def test_a_folder_appears_whole(self, tmp_path):
        with atomic_path(tmp_path / "model") as temporary:
            temporary.mkdir()
            (temporary / "weights").write_text("w")
            assert not (tmp_path / "model").exists()
        assert everything(tmp_path) == ["model", "model/weights"]

    def test_half_a_folder_is_removed(self, tmp_path):
        with pytest.raises(KeyError), atomic_path(tmp_path / "model") as temporary:
            temporary.mkdir()
            (temporary / "weights").write_text("w")
            raise KeyError
        assert everything(tmp_path) == []

    def test_a_folder_that_is_there_is_not_replaced(self, tmp_path):
        (tmp_path / "model").mkdir()
        with (
            pytest.raises(FileExistsError, match="model is a folder already"),
            atomic_path(tmp_path / "model"),
        ):
            raise AssertionError("the block must not run")
        assert everything(tmp_path) == ["model"]

    @pytest.mark.parametrize("umask", [0o022, 0o027])
    def test_permissions_are_those_of_an_ordinary_file(self, tmp_path, umask):
        # This catches a temporary file of the system, which only its owner may read.
        before = os.umask(umask)
        try:
            write_text(tmp_path / "a.txt", "x")
            with atomic_path(tmp_path / "b.txt") as temporary:
                os.close(os.open(temporary, os.O_CREAT, mode=0o600))  # as safetensors does
            with atomic_path(tmp_path / "model") as temporary:
                temporary.mkdir()
                os.close(os.open(temporary / "c.txt", os.O_CREAT, mode=0o600))
        finally:
            os.umask(before)
        modes = {p: stat.S_IMODE((tmp_path / p).stat().st_mode) for p in everything(tmp_path)}
        usual = dict.fromkeys(["a.txt", "b.txt", "model/c.txt"], 0o666 & ~umask)
        assert modes == {**usual, "model": 0o777 & ~umask}

    def test_a_kill_leaves_the_old_content(self, tmp_path):
        (tmp_path / "a.txt").write_text("old")
        code = (
            "import os, signal, sys\n"
            "from transformer_lit.course.files import atomic_path\n"
            "with atomic_path(sys.argv[1]) as temporary:\n"
            "    temporary.write_text('ne')\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        done = subprocess.run([sys.executable, "-c", code, tmp_path / "a.txt"])
        assert done.returncode == -9
        assert (tmp_path / "a.txt").read_text() == "old"
        left = [path.name for path in tmp_path.iterdir() if path.name != "a.txt"]
        assert all(name.startswith(".") and name.endswith(".part") for name in left)


def test_files_are_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    synced, before = [], set()
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *two: (before.update(synced), replace(*two)))
    with atomic_path(tmp_path / "model") as temporary:
        temporary.mkdir()
        (temporary / "a.txt").write_text("x")
    assert before == {(tmp_path / "model/a.txt").stat().st_ino}


@pytest.mark.parametrize("below", ["", "x", "x/y"])
def test_below_a_file_nothing_can_be_written(tmp_path, below):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write in .*file"):
        require_writable(tmp_path / "file" / below)
    require_writable(tmp_path / "runs/new")


class TestRemoveFolder:
    def test_all_of_it_goes_and_nothing_else(self, tmp_path):
        (tmp_path / "a/b").mkdir(parents=True)
        (tmp_path / "a/b/c.txt").touch()
        (tmp_path / "ab").mkdir()
        remove_folder(tmp_path / "a")
        assert everything(tmp_path) == ["ab"]


class TestText:
    @pytest.mark.parametrize("text", ["", "fährt\n", "a\nb", "a\u2028b\x85c", "🚲", "\ufeffmark"])
    def test_round_trip_in_utf8(self, tmp_path, text):
        write_text(tmp_path / "a.txt", text)
        assert read_text(tmp_path / "a.txt") == text
        assert (tmp_path / "a.txt").read_bytes() == text.encode()

    def test_a_file_that_is_not_utf8_is_named_with_the_place(self, tmp_path):
        (tmp_path / "a.txt").write_bytes(b"abc\xff")
        with pytest.raises(InputError, match=r"a\.txt is not UTF-8 text \(byte 3\)"):
            read_text(tmp_path / "a.txt")

    def test_a_missing_file_and_a_folder_are_named_with_the_reason(self, tmp_path):
        with pytest.raises(InputError, match=r"cannot read .*gone: No such file or directory"):
            read_text(tmp_path / "gone")
        with pytest.raises(InputError, match=r"cannot read .*: Is a directory"):
            read_text(tmp_path)

    @pytest.mark.parametrize("value", [{"ä": [1, 2.5, None, True]}, [], "x", {"a": {"b": -1e-9}}])
    def test_json_round_trip(self, tmp_path, value):
        write_json(tmp_path / "a.json", value)
        assert read_json(tmp_path / "a.json") == value

    def test_json_is_for_people_too(self, tmp_path):
        write_json(tmp_path / "a.json", {"rides": "fährt"})
        assert read_text(tmp_path / "a.json") == '{\n "rides": "fährt"\n}\n'

    @pytest.mark.parametrize("text", ["", "{", '{"a": 1} x', "1" * 5_000])
    def test_damaged_json_is_named(self, tmp_path, text):
        write_text(tmp_path / "a.json", text)
        with pytest.raises(InputError, match=r"a\.json is not valid JSON"):
            read_json(tmp_path / "a.json")


def test_sha256_gives_the_standard_s_example():
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256(b"abc") == expected  # FIPS 180-4's own example


# --- files that are known by their hash ---------------------------------------------------------

CONTENT = "A man is riding a bike.\nfährt\n".encode() * 50
FILE = DataFile(
    "toy/train.en", sha256(CONTENT), ("https://one/train.en.gz", "https://two/train.en")
)


def lying_around(tmp_path):
    return sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())


def put(folder, path, data):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(data)


class TestLocalFiles:
    @pytest.fixture(autouse=True)
    def empty(self, data_folder):
        return data_folder

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
    @pytest.fixture(autouse=True)
    def empty(self, data_folder):
        return data_folder

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

    def test_download_false_asks_no_home(self, homes):
        with pytest.raises(InputError, match=r"toy/train\.en is not in"):
            read_file(FILE, download=False)
        assert homes.asked == []

    @pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "packed"])
    def test_a_home_that_sends_without_end_is_cut_off(self, tmp_path, homes, monkeypatch, pack):
        monkeypatch.setattr(files, "LARGEST", 10 * len(CONTENT))
        homes[FILE.homes[0]] = pack(CONTENT * 11)
        homes[FILE.homes[1]] = pack(CONTENT)
        assert read_file(FILE) == CONTENT
        del homes[FILE.homes[1]]
        (tmp_path / "cache/transformer_lit/toy/train.en").unlink()
        with pytest.raises(InputError, match="sha256"):
            read_file(FILE)
        assert lying_around(tmp_path) == []
