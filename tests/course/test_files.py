"""Whatever happens in between: the old content or the new, never a part, and nothing beside it."""

import gzip
import os
import stat
import subprocess
import sys
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pooch
import pytest

from transformer_lit.course import files
from transformer_lit.course.files import (
    DataFile,
    InputError,
    atomic_path,
    file_sha256,
    read_bytes,
    read_file,
    read_json,
    read_text,
    remove_folder,
    require_writable,
    sha256,
    unseal,
    write_json,
    write_text,
)
from transformer_lit.course.text_files import pairs_from_files
from transformer_lit.training.run import read_log


def load_pairs_of(path):
    return pairs_from_files([path], "train")


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def make_file(path):
    path.write_text("new")


def make_folder(path):
    path.mkdir()
    (path / "weights").write_text("w")


MADE = [(make_file, ["a"]), (make_folder, ["a", "a/weights"])]


class TestAtomicPath:
    @pytest.mark.parametrize(("make", "made"), MADE)
    def test_a_file_or_a_folder_appears_whole(self, tmp_path, make, made):
        with atomic_path(tmp_path / "a") as temporary:
            make(temporary)
            assert not (tmp_path / "a").exists()
        assert everything(tmp_path) == made

    @pytest.mark.parametrize(("make", "made"), MADE)
    @pytest.mark.parametrize("failure", [ValueError, OSError, KeyboardInterrupt, SystemExit])
    def test_a_failure_leaves_all_as_it_was(self, tmp_path, make, made, failure):
        (tmp_path / "a").write_text("old")
        with pytest.raises(failure), atomic_path(tmp_path / "a") as temporary:
            make(temporary)
            raise failure
        assert (tmp_path / "a").read_text() == "old" and everything(tmp_path) == ["a"]

    def test_a_folder_that_is_there_is_not_replaced(self, tmp_path):
        (tmp_path / "model").mkdir()
        with (
            pytest.raises(FileExistsError, match="model is already a folder"),
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
    with pytest.raises(InputError, match=r"cannot write to .*file"):
        require_writable(tmp_path / "file" / below)
    require_writable(tmp_path / "runs/new")


def test_a_removed_folder_goes_and_nothing_else(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "ab").mkdir()
    remove_folder(tmp_path / "a")
    assert everything(tmp_path) == ["ab"]


@pytest.mark.parametrize("text", ["", "fährt\n", "a\u2028b\x85c", "🚲", "\ufeffmark"])
def test_a_text_is_written_as_utf8_and_a_value_for_people_to_read(tmp_path, text):
    write_text(tmp_path / "a.txt", text)
    assert read_text(tmp_path / "a.txt") == text
    assert (tmp_path / "a.txt").read_bytes() == text.encode()
    write_json(tmp_path / "a.json", {"rides": [text, 2.5, None]})
    assert read_json(tmp_path / "a.json") == {"rides": [text, 2.5, None]}
    assert read_text(tmp_path / "a.json").startswith('{\n "rides": [\n  "' + text[:1])


UNREADABLE = [
    (read_text, b"abc\xff", r"a is not UTF-8 text \(see byte 3\)"),
    (read_text, None, r"cannot read .*a: No such file or directory"),
    (read_text, "a folder", r"cannot read .*a: Is a directory"),
    *(
        (read_json, content, "a is not valid JSON")
        for content in (b"", b"{", b'{"a": 1} x', b"1" * 5_000)
    ),
]


@pytest.mark.parametrize(("read", "content", "told"), UNREADABLE)
def test_what_cannot_be_read_is_named(tmp_path, read, content, told):
    if content == "a folder":
        (tmp_path / "a").mkdir()
    elif content is not None:
        (tmp_path / "a").write_bytes(content)
    with pytest.raises(InputError, match=told):
        read(tmp_path / "a")


READERS = [read_bytes, read_text, read_json, file_sha256, unseal, read_log, load_pairs_of]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@pytest.mark.parametrize("kind", ["pipe", "device", "hole"])
def test_what_never_ends_is_not_read(tmp_path, read, kind):
    path = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with open(path, "wb") as file:
            file.truncate(10**13)
    if read is file_sha256 and kind == "hole":
        return  # bytes of a file are hashed in parts, however many there are
    told = "more than" if kind == "hole" else "it is a pipe or a device. Save it to a file"
    with pytest.raises(InputError, match=rf"cannot read .*{kind}: .*{told}"):
        read(path)


def test_no_message_moves_the_cursor():
    told = str(InputError("a \x1b]0;title\x07 \r\x9b ü\u202e\t\n"))
    assert told == r"a \x1b]0;title\x07 \r\x9b ü\u202e" + "\t\n"


def test_sha256_gives_the_standard_s_example():
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256(b"abc") == expected  # FIPS 180-4's own example


# --- files that are known by their hash ---------------------------------------------------------

DOWNLOAD = pooch.HTTPDownloader.__call__
CONTENT = "A man is riding a bike.\nfährt\n".encode() * 50
FILE = DataFile(
    "toy/train.en", sha256(CONTENT), ("https://one/train.en.gz", "https://two/train.en")
)


def lying_around(tmp_path):
    return sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())


def put(folder, path, data):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(data)


PACKED = gzip.compress(CONTENT)


@pytest.mark.usefixtures("data_folder")
class TestLocalFiles:
    @pytest.mark.parametrize(
        ("suffix", "content"), [("", CONTENT), (".gz", PACKED)], ids=["plain", "gz"]
    )
    @pytest.mark.parametrize("place", ["data", "cache/transformer_lit"])
    def test_plain_or_packed_in_either_folder(self, tmp_path, urls, suffix, content, place):
        put(tmp_path / place, f"toy/train.en{suffix}", content)
        assert read_file(FILE) == CONTENT and urls.asked == []

    def test_the_named_folder_comes_before_the_cache_which_is_enough(self, tmp_path, monkeypatch):
        put(tmp_path / "data", "toy/train.en", CONTENT)
        put(tmp_path / "cache/transformer_lit", "toy/train.en", b"other")
        assert read_file(FILE) == CONTENT
        put(tmp_path / "cache/transformer_lit", "toy/train.en", CONTENT)
        monkeypatch.delenv("TRANSFORMER_LIT_DATA")
        assert read_file(FILE) == CONTENT

    HASH = rf"data/toy/train\.en has .*{FILE.sha256[:12]}"
    DAMAGE = r"toy/train\.en\.gz is damaged .*Remove it"

    # Names of our own: gzip writes the time into its header, and workers must agree on names.
    @pytest.mark.parametrize(
        ("name", "content", "told"),
        [
            ("train.en", CONTENT[:-1], HASH),
            ("train.en", b"", HASH),
            ("train.en", gzip.compress(CONTENT[:-1]), HASH),
            ("train.en.gz", PACKED[:-1], DAMAGE),
            ("train.en.gz", PACKED[:5], DAMAGE),
            ("train.en.gz", PACKED[:20] + b"\xff" * 40 + PACKED[60:], DAMAGE),  # a zlib.error
        ],
        ids=["cut", "empty", "packed", "packed, cut by one", "in the header", "overwritten"],
    )
    def test_what_lies_here_and_is_not_it_is_named(self, tmp_path, urls, name, content, told):
        put(tmp_path / "data", f"toy/{name}", content)
        with pytest.raises(InputError, match=told):
            read_file(FILE)
        assert urls.asked == []  # a file of yours is not passed over in silence


@pytest.mark.usefixtures("data_folder")
class TestDownloads:
    @pytest.mark.parametrize(
        "first",
        [ConnectionError("gone"), TimeoutError(), CONTENT[:-9], PACKED[:-9], b"", PACKED],
        ids=["no network", "slow", "cut", "cut archive", "empty", "good"],
    )
    def test_urls_are_tried_in_order_and_what_is_good_is_kept(self, tmp_path, urls, first):
        urls.update(zip(FILE.urls, (first, CONTENT), strict=True))
        for _ in range(2):
            assert read_file(FILE) == CONTENT
        assert urls.asked == list(FILE.urls)[: 1 if first == PACKED else 2]  # once
        assert lying_around(tmp_path) == ["cache/transformer_lit/toy/train.en"]

    NOWHERE = (*FILE.urls, "ConnectionError", "Connect to the network", "TRANSFORMER_LIT_DATA")

    @pytest.mark.parametrize(
        ("sent", "download", "told"),
        [
            (ConnectionError("no route"), True, NOWHERE),
            (b"please log in", True, [f"{FILE.sha256[:12]}… was expected"]),
            (CONTENT, False, ["toy/train.en is not in"]),
        ],
        ids=["no network", "another file", "not asked"],
    )
    def test_what_cannot_be_had_is_told_and_nothing_is_left(
        self, tmp_path, urls, sent, download, told
    ):
        urls.update(dict.fromkeys(FILE.urls, sent))
        with pytest.raises(InputError) as caught:
            read_file(FILE, download=download)
        assert all(part in str(caught.value) for part in told) and bool(urls.asked) == download
        assert [p.name for p in tmp_path.rglob("*")] == ["data"]

    def test_what_is_packed_is_unpacked_no_further_than_it_is_large(self, urls):
        file = replace(FILE, size=10 * len(CONTENT))
        urls[FILE.urls[0]] = gzip.compress(CONTENT * 11)
        read = (CONTENT * 11)[: file.size + 1]
        with pytest.raises(InputError, match=f"has sha256 {sha256(read)[:12]}"):
            read_file(file)

    @pytest.mark.parametrize(
        ("part", "pause", "limit", "told"),
        [
            (b"x" * 1000, 0, "PATIENCE", r"longer than 11,500 bytes"),
            (b"x", 0.001, "PATIENCE", r"only \d+ bytes arrived in 0 s"),
            (b"x", 0.001, "LATEST", r"only \d+ bytes arrived in 0 s"),
        ],
        ids=["endless", "drip", "just fast enough"],
    )
    def test_a_body_that_never_ends_is_given_up(self, urls, monkeypatch, part, pause, limit, told):
        ended = threading.Event()

        def send(received):
            try:
                while True:
                    received.write(part)
                    time.sleep(pause)
            finally:
                ended.set()

        monkeypatch.setattr(files, limit, 0.01)
        urls[FILE.urls[0]] = send
        with pytest.raises(InputError, match=told):
            read_file(replace(FILE, size=1501))
        assert ended.wait(5)  # nor does it go on in the background

    @pytest.mark.parametrize("location", ["/right", "file:///etc/hostname", "/"])
    def test_the_body_of_a_redirect_is_not_read(self, monkeypatch, location):
        "It has no end here. A redirect to a file, or one that goes on for ever, is refused."
        sent = []

        class Home(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200 if self.path == "/right" else 302)
                self.send_header("Location", location)
                self.end_headers()
                self.wfile.write(CONTENT)
                with suppress(OSError):
                    while self.path != "/right":
                        sent.append(self.wfile.write(bytes(2**16)))

            def log_message(self, *args):
                pass

        monkeypatch.setattr(pooch.HTTPDownloader, "__call__", DOWNLOAD)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with ThreadingHTTPServer(("127.0.0.1", 0), Home) as home:
            threading.Thread(target=home.serve_forever, daemon=True).start()
            file = replace(FILE, urls=(f"http://127.0.0.1:{home.server_port}/",))
            told = "InvalidSchema|TooManyRedirects"
            with pytest.raises(InputError, match=told) if location != "/right" else nullcontext():
                assert read_file(file) == CONTENT
            home.shutdown()
        assert sum(sent) < 2**28
