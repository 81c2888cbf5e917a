"""The reader's own data: text files, folders of text files, and files of sentence pairs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from transformer_lit.course.data import comparable, text_lines
from transformer_lit.course.files import InputError, file_sha256, read_bytes, read_text, sha256

LARGEST = 4_000_000_000  # most bytes in a text to train on


def _members(path: Path) -> list[Path]:
    "The file itself, or every .txt file below a folder, sorted by name."
    if not path.is_dir():
        return [path]
    if not (found := sorted(path.rglob("*.txt"))):
        raise InputError(f"There is no .txt file in {path}. Name the files themselves")
    return found


def hash_files(files: Sequence[str | Path]) -> dict[str, str]:
    "The SHA-256 of each file, for a record; a folder's hash covers the names and hashes in it."
    hashes = {}
    for path in map(Path, files):
        rows = [f"{p.relative_to(path)} {file_sha256(p)}\n" for p in _members(path)]
        whole = sha256("".join(rows).encode()) if path.is_dir() else file_sha256(path)
        hashes[str(path)] = whole
    return hashes


def _text(path: Path) -> str:
    "The text of a file; `InputError` if it is missing, empty, binary, not UTF-8 or has records."
    if path.suffix.lower() == ".jsonl":
        raise InputError(
            f"{path} has a record on each line, and the model would learn the brackets and field "
            "names as text. Write only the texts to a .txt file. To train on conversations: "
            "`transformer-lit train instruct --data FILE --from MODEL`"
        )
    if b"\0" in read_bytes(path, LARGEST):
        raise InputError(f"{path} is not a text file: it contains a zero byte. Save it as UTF-8")
    text = read_text(path, LARGEST).removeprefix("\ufeff")
    if not text.strip():
        raise InputError(f"{path} is empty. Put text into it, or name another file")
    return text


def read_text_files(files: Sequence[str | Path]) -> list[str]:
    "The text of each file, and of each .txt file below a folder."
    if not files:
        raise InputError("No files given. Name them with --text, or with from_files in Python")
    return [_text(member) for path in files for member in _members(Path(path))]


def text_from_files(
    files: Sequence[str | Path],
    split: str,
    *,
    val: Sequence[str | Path] = (),
    test: Sequence[str | Path] = (),
) -> str:
    """The running text of files, and of the .txt files below folders; the splits are train and val.

    The last tenth of each file's characters is held out, starting at the beginning of a line if
    that takes at most another tenth. If val has its own files, nothing is held out from the others.
    The split test always has its own files.
    """
    own = {"val": val, "test": test}
    _split(split, ("train", "val", "test") if test else ("train", "val"))
    if own.get(split) or (split == "train" and val):
        return "\n".join(read_text_files(own.get(split, files)))
    parts = []
    for text in read_text_files(files):
        tenth = len(text) // 10
        cut = text.rfind("\n", -2 * tenth, -tenth) + 1 or len(text) - tenth
        parts.append(text[:cut] if split == "train" else text[cut:])
    return "\n".join(parts)


def _split(split: str, known: Sequence[str]) -> None:
    if split not in known:
        raise InputError(f"Your own files have no split {split!r}. Known: {', '.join(known)}")


def read_pair_files(files: Sequence[str | Path]) -> list[tuple[str, str]]:
    "The pairs in two files, or in one with tabs; pairs with an empty side are left out."
    return [pair for pair in _rows([Path(path) for path in files]) if all(map(str.strip, pair))]


def pairs_from_files(
    files: Sequence[str | Path],
    split: str,
    *,
    val: Sequence[str | Path] = (),
    test: Sequence[str | Path] = (),
) -> list[tuple[str, str]]:
    """Sentence pairs from two files with one sentence per line, or from one file with tabs.

    Pairs with an empty side are left out. One source in 20 is held out for val and one for test.
    The hash of its letters and digits decides, so a source is in the same split wherever it occurs.
    No held-out source is trained on. A held-out target may be, because labels and short answers
    occur again and again. If val or test has its own files, nothing is held out for that split, and
    the sources in those files are left out of the training set.
    """
    _split(split, ("train", "val", "test"))
    parts = _parts(files, val, test)
    if empty := [name for name in ("train", "val", "test") if not parts[name]]:
        none = f"None of {sum(map(len, parts.values()))} pairs falls into {empty[0]}"
        raise InputError(f"{none}. Give more pairs, or name files with --valid and --test")
    return parts[split]


def count_pairs(
    files: Sequence[str | Path],
    *,
    val: Sequence[str | Path] = (),
    test: Sequence[str | Path] = (),
) -> str:
    "One line: how many pairs were read, and how many each split has."
    counts = {name: len(pairs) for name, pairs in _parts(files, val, test).items()}
    said = f"{sum(counts.values()):,} pairs read: {counts['train']:,} for training"
    said += f", {counts['val']:,} for validation, {counts['test']:,} for testing"
    for why in ("an empty side", "a source that is held out"):
        said += f"; {counts[why]:,} with {why} are dropped" if counts[why] else ""
    return said


def _parts(
    files: Sequence[str | Path], val: Sequence[str | Path], test: Sequence[str | Path]
) -> dict[str, list[tuple[str, str]]]:
    "The pairs of each split; dropped pairs are listed under the reason."
    held = {name: read_pair_files(own) for name, own in (("val", val), ("test", test)) if own}
    apart = {_key(source) for some in held.values() for source, _ in some}
    names = ("train", "val", "test", "an empty side", "a source that is held out")
    parts: dict[str, list[tuple[str, str]]] = {name: [] for name in names} | held
    for pair in _rows([Path(path) for path in files]):
        key = _key(pair[0])
        part = {0: "val", 1: "test"}.get(int(sha256(key.encode()), 16) % 20, "train")
        part = "train" if part in held else part
        if not all(map(str.strip, pair)):
            part = "an empty side"
        elif part == "train" and key in apart:
            part = "a source that is held out"
        if any(map(str.strip, pair)):  # an empty line isn't a pair
            parts[part].append(pair)
    return parts


def _key(source: str) -> str:
    "The part of a source that is compared: letters and digits, or all of it if it has none."
    return comparable(source) or source


def _rows(files: list[Path]) -> Iterator[tuple[str, str]]:
    if len(files) == 2:
        sides = [text_lines(_text(path)) for path in files]
        if len(sides[0]) != len(sides[1]):
            have = " but ".join(
                f"{p} has {len(s)} lines" for p, s in zip(files, sides, strict=True)
            )
            raise InputError(
                f"{have}. Line n of one must be the translation of line n of the other"
            )
        yield from zip(*sides, strict=True)
        return
    if len(files) != 1:
        raise InputError("Give two files with a sentence per line, or one with a tab in each line")
    for number, line in enumerate(text_lines(_text(files[0])), 1):
        source, tab, rest = line.partition("\t")
        if line.strip() and not tab:
            raise InputError(f"{files[0]}, line {number} has no tab. Put one between the sentences")
        yield source, rest.partition("\t")[0]
