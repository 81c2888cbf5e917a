"""What the tokenizer classes in `transformers` do to a text, regardless of tokenizer.json.

If a model's folder names a class with its own constructor, version 5 of that library reads only the
tokens and the merges from tokenizer.json, and the class provides the rest. As a result, a key in
another file can change the ids of a text. Here a setting that contradicts tokenizer.json raises an
error. If the class itself has a different rule, tokenizer.json is followed and a warning is given.
"""

import json
import warnings
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from transformer_lit.course.files import InputError, read_table
from transformer_lit.course.settings import WORD, PublishedSettings, shown

QWEN_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
QWEN_WORDS += r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKED = QWEN_WORDS.replace(r"?\p{L}", r"?[\p{L}\p{M}]").replace(r"\s\p{L}", r"\s\p{L}\p{M}")

Said = Mapping[str, Any]  # the settings in a folder, or a JSON file
Parts = dict[str, Any]  # what a tokenizer does to a text before looking up its tokens


def steps_of(step: Said | None) -> list[dict[str, Any]]:
    "The single steps in a step of a tokenizer.json, without settings that affect no token."
    if step is None:
        return []
    if (inner := step.get("normalizers", step.get("pretokenizers"))) is not None:
        return [*chain(*map(steps_of, inner))]
    step = {name: value for name, value in step.items() if name != "trim_offsets"}
    if step.get("strip_accents", False) is None:
        step["strip_accents"] = step["lowercase"]  # the default is to do both or neither
    return [step]


def _parts(file: Said) -> Parts:
    "The parts of a tokenizer.json written by the library `tokenizers`, in one standard form."
    model = {x: y or None for x, y in file["model"].items() if x not in ("vocab", "merges")}
    return {x: steps_of(file[x]) for x in ("normalizer", "pre_tokenizer")} | {"model": model}


def _made(normal: list[Any], cut: list[Any], model: Any, **more: Any) -> Parts:
    backend = Tokenizer(model)
    backend.normalizer = normalizers.Sequence(normal)
    backend.pre_tokenizer = pre_tokenizers.Sequence(cut)
    file = json.loads(backend.to_str())
    return _parts(file | {"model": file["model"] | more})


def _word_pieces(said: Said, file: Said) -> Parts:
    small = normalizers.BertNormalizer(
        handle_chinese_chars=said.get("tokenize_chinese_chars", True),
        strip_accents=said.get("strip_accents"),
        lowercase=said.get("do_lower_case", True),
    )
    model = models.WordPiece(unk_token=said["unk_token"])
    return _made([small], [pre_tokenizers.BertPreTokenizer()], model)


def _bytes(said: Said, file: Said) -> Parts:
    space = said.get("add_prefix_space", False)
    return _made([], [pre_tokenizers.ByteLevel(add_prefix_space=space)], models.BPE())


def _qwen(said: Said, file: Said, words: str = QWEN_WORDS) -> Parts:
    space, cut = said.get("add_prefix_space", False), pre_tokenizers.Split(Regex(words), "isolated")
    spelt = pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=False)
    return _made([normalizers.NFC()], [cut, spelt], models.BPE())


def _gemma(said: Said, file: Said) -> Parts:
    model = models.BPE(unk_token=said["unk_token"], fuse_unk=True, byte_fallback=True)
    cut = pre_tokenizers.Split(" ", "merged_with_previous")
    return _made([normalizers.Replace(" ", "▁")], [cut], model)


def _xlm_roberta(said: Said, file: Said) -> Parts:
    tables = [x for x in steps_of(file["normalizer"]) if x["type"] == "Precompiled"]
    tables = [normalizers.Precompiled(b64decode(x["precompiled_charsmap"])) for x in tables[:1]]
    space = "always" if said.get("add_prefix_space", True) else "never"
    cut = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme=space)]
    return _made(tables, cut, models.Unigram(), unk_id=3)


def _deberta(said: Said, file: Said) -> Parts:
    steps = [normalizers.Lowercase()] if said.get("do_lower_case", False) else []
    steps += [normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC()]
    cut = [pre_tokenizers.Punctuation()] if said.get("split_by_punct", False) else []
    space = "always" if said.get("add_prefix_space", True) else "first"
    cut += [pre_tokenizers.Metaspace(prepend_scheme=space)]
    entry, tokens = [said["unk_token"], 0.0], [*file["model"]["vocab"]]
    unknown = tokens.index(entry) if entry in tokens else said.get("unk_id", 1)
    return _made([*steps, normalizers.Strip(left=False)], cut, models.Unigram(), unk_id=unknown)


_SAME = {  # key in a step of tokenizer.json -> name of the setting
    "add_prefix_space": "add_prefix_space",
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}


def _as_it_is(said: Said, file: Said) -> Parts:
    "The parts in the file, changed by the settings of a folder."
    parts = _parts(file)
    for name in ("normalizer", "pre_tokenizer"):
        steps = (step.items() for step in parts[name])
        parts[name] = [{x: said.get(_SAME.get(x), y) for x, y in step} for step in steps]
    return parts


@dataclass(frozen=True)
class TokenizerClass:
    """What a class provides itself.

    Args:
        make: makes its parts from the settings in a folder and its tokenizer.json.
        tokens: the tokens by role, unless the folder names others.
        ends: the roles of the tokens around a text; if empty, tokenizer.json decides.
    """

    make: Callable[[Said, Said], Parts] = _as_it_is
    tokens: Mapping[str, str] = field(default_factory=dict)
    ends: tuple[str, ...] = ()


_BERT = {role: f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
_PIECES = {role: f"<{role}>" for role in ("pad", "unk", "mask")}
_ROBERTA = _PIECES | {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>"}
_DEBERTA = _BERT | {"bos": "[CLS]", "eos": "[SEP]"}
_TEXT = dict.fromkeys(("unk", "eos"), "<|endoftext|>")
_QWEN = _TEXT | {"pad": "<|endoftext|>"}
_WORD_PIECES = TokenizerClass(_word_pieces, _BERT, ("cls", "sep"))
PLAIN = ("PreTrainedTokenizer", "TokenizersBackend")
CLASSES = {  # the names in files may end with Fast
    **dict.fromkeys(PLAIN, TokenizerClass()),
    **dict.fromkeys(("BertTokenizer", "DistilBertTokenizer"), _WORD_PIECES),
    "RobertaTokenizer": TokenizerClass(_bytes, _ROBERTA, ("cls", "sep")),
    "XLMRobertaTokenizer": TokenizerClass(_xlm_roberta, _ROBERTA, ("bos", "eos")),
    "DebertaV2Tokenizer": TokenizerClass(_deberta, _DEBERTA, ("cls", "sep")),
    "GPT2Tokenizer": TokenizerClass(_bytes, _TEXT | {"bos": "<|endoftext|>"}),
    "Qwen2Tokenizer": TokenizerClass(_qwen, _QWEN),
    "Qwen3_5Tokenizer": TokenizerClass(partial(_qwen, words=_MARKED), _QWEN),
    "GemmaTokenizer": TokenizerClass(_gemma, _PIECES | {"bos": "<bos>", "eos": "<eos>"}),
}


def _by_name(kinds: Mapping[str, str]) -> dict[str, str]:
    return {name: kind for names, kind in kinds.items() for name in names.split()}


USUAL = _by_name(  # model_type -> the class if a folder doesn't name one
    {
        "bert distilbert": "BertTokenizer",
        "roberta": "RobertaTokenizer",
        "deberta-v2": "DebertaV2Tokenizer",
        "gpt2 gpt-sw3": "GPT2Tokenizer",
        "qwen3 qwen3_moe qwen3_next": "Qwen2Tokenizer",
        "qwen3_5_text": "Qwen3_5Tokenizer",
        "gemma2 gemma3 gemma3_text": "GemmaTokenizer",
    }
)
ALWAYS = _by_name(  # model_type -> the class even if a folder names another
    {
        "qwen2": "Qwen2Tokenizer",
        "qwen3_5": "Qwen3_5Tokenizer",
        "mistral mixtral olmo2 olmo3 modernbert kimi_linear": PLAIN[0],
        "internlm3 iquestcoder": PLAIN[0],  # Llamas under other names
    }
)
SWITCHES = (*_SAME.values(), "split_by_punct")  # settings that a class may read


@dataclass(frozen=True)
class Asked:
    "The class that a folder asks for, and what it depends on."

    kind: str = PLAIN[0]
    by: str = ""  # the file and the key that ask for the class
    advice: str = (  # what to do if the file is right
        "if tokenizer.json is all that the model was trained with, set tokenizer_class to "
        '"PreTrainedTokenizerFast" in tokenizer_config.json'
    )
    said: Said = field(default_factory=dict)  # the folder's settings: switches, tokens by role
    places: Mapping[str, Path] = field(default_factory=dict)  # the file that each comes from

    @classmethod
    def read(
        cls,
        folder: Path,
        named: str | None,
        said: Said | None = None,
        places: Mapping[str, Path] | None = None,
    ) -> "Asked":
        "`named` is the class in tokenizer_config.json, which is ignored for some models."
        path, more = folder / "config.json", {"said": said or {}, "places": places or {}}
        known = {"model_type": WORD, "tokenizer_class": WORD}
        config = PublishedSettings(read_table(path, optional=True), path, known)
        model, place = config.get("model_type", ""), folder / "tokenizer_config.json"
        if named is None and (named := config.get("tokenizer_class")) is not None:
            place = path
        if (kind := ALWAYS.get(model)) is not None:
            more["advice"] = "write into tokenizer.json what the model was trained with"
        elif named is not None:
            by = f"{place} sets tokenizer_class to {shown(named)}"
            return cls(named.removesuffix("Fast"), by, **more)
        kind = kind or USUAL.get(model, PLAIN[0])
        return cls(kind, f"{path} sets model_type to {shown(model)} (a {kind})", **more)

    def find(self, file: Said) -> TokenizerClass:
        "The class, which may depend on tokenizer.json; `InputError` if it isn't implemented."
        kind, why = self.kind, f"a class that isn't supported; {self.advice}"
        if kind == "LlamaTokenizer":
            why = "a class that may put a space in front of a text, which isn't supported"
            if "ByteLevel" in f"{file['pre_tokenizer']}{file['decoder']}":
                return CLASSES[PLAIN[0]]
        if kind not in CLASSES:
            raise InputError(f"{self.by}, {why}")
        return CLASSES[kind]

    def settings(self, kind: TokenizerClass) -> dict[str, Any]:
        "The folder's settings, with the class's tokens for roles that the folder leaves out."
        return {f"{role}_token": token for role, token in kind.tokens.items()} | {**self.said}

    def compare(self, file: Said) -> TokenizerClass:
        "The class. If it splits text differently, raise an `InputError` with the key, or warn."
        kind, found = self.find(file), _parts(file)
        said, model = self.settings(kind), file["model"]
        if (wanted := kind.make(said, file)) == found:
            return kind
        place = model.get("unk_id")
        unknown = model.get("unk_token") if place is None else model["vocab"][place][0]
        other = [*product(SWITCHES, (True, False)), ("unk_token", unknown), ("unk_id", place)]
        for name, value in other:  # which setting would make the class and the file agree?
            if value is not None and kind.make({**said, name: value}, file) == found:
                does = said.get(name, wanted["model"].get(name, not value))
                raise self._differs(name, does, shown(value))
        part = next(name for name in found if found[name] != wanted[name])
        ours, theirs = (wanted[part], found[part]), (found[part], wanted[part])
        warnings.warn(
            f"{self.by}, whose {part} is {_difference(*ours)}, and that of tokenizer.json is "
            f"{_difference(*theirs)}; tokenizer.json is followed, which the model was trained with",
            stacklevel=2,
        )
        return kind

    def compare_ends(self, kind: TokenizerClass, backend: Tokenizer) -> None:
        "Raise `InputError` if the class and the backend put different tokens around a text."
        probe, said = Tokenizer(models.WordLevel({"a": 0}, unk_token="a")), self.settings(kind)
        probe.post_processor = backend.post_processor
        whole = probe.encode("a")
        at = [*whole.special_tokens_mask, 0].index(0)
        for role, ids in zip(kind.ends, (whole.ids[:at], whole.ids[at + 1 :])):
            if ids != [backend.token_to_id(token := said[f"{role}_token"])]:
                does = shown(" ".join(map(backend.id_to_token, ids))) if ids else "nothing"
                raise self._differs(f"{role}_token", token, does)

    def _differs(self, name: str, value: Any, does: Any) -> InputError:
        by = f"{self.places[name]} sets" if name in self.places else f"{self.by}, which sets"
        return InputError(
            f"{by} {name} to {shown(value)}, and tokenizer.json says {does}; write into both what "
            f"the model was trained with"
        )


def _difference(part: Any, other: Any) -> str:
    "What one part has and the other doesn't."
    if isinstance(part, dict):
        return shown({name: value for name, value in part.items() if other.get(name) != value})
    kinds, others = (", ".join(step["type"] for step in steps) for steps in (part, other))
    return (kinds or "none") if kinds != others else shown([x for x in part if x not in other])
