"""The family of Transformers as a page, from book/family.yml.

What a model is made of is read off the model itself: the families of `load_hf` build it from a
small configuration, and the classes of its parts lead to the chapters that export them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

import cards
import yaml
from shown import nested, raw
from torch import nn

from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.models.bert import Bert
from transformer_lit.models.decoders import Settings
from transformer_lit.models.gpt import DecoderOnly
from transformer_lit.models.hf_build import FAMILIES
from transformer_lit.models.transformer import EncoderDecoder, Transformer, TransformerConfig

SECTIONS = {"Encoder and decoder": (1,), "Encoder only": (0,), "Decoder only": (2, 3, 4)}
NULL = ("Position", "Nothing")  # plug-ins that do nothing


@dataclass(frozen=True)
class Entry:
    "One model of the family; book/family.yml explains the fields."

    name: str
    cites: str
    date: str
    column: int
    text: str
    parent: str | None = None
    chapters: list[str] = field(default_factory=list)
    config: dict | None = None
    tensors: list[str] = field(default_factory=list)
    proof: list[str] = field(default_factory=list)
    model: str = ""

    @property
    def label(self) -> str:
        "`GPT-2` -> `tree-gpt-2`."
        return "tree-" + re.sub(r"\W+", "-", self.name.lower()).strip("-")


ROWS = yaml.safe_load((cards.ROOT / "book/family.yml").read_text(encoding="utf-8"))["models"]
TREE = sorted((Entry(**row) for row in ROWS), key=lambda entry: entry.date)


# --- what the code knows ------------------------------------------------------------------------


def build(entry: Entry) -> nn.Module | None:
    "A small model of that family, or None if this book builds none."
    if entry.name == "Transformer":
        sizes = {"d_model": 12, "n_heads": 2, "d_ff": 17, "n_layers": 1}
        return Transformer(TransformerConfig(vocab_size=31, **sizes))
    if entry.config is None:
        return None
    told = Settings(entry.config)
    told.tensors = entry.tensors
    return FAMILIES[told.architecture].build(told)


def parts(model: nn.Module) -> dict[str, list[str]]:
    "The chapters that a model needs, in the book's order, each with the names it uses from there."
    found: dict[str, list[str]] = {}
    for part in model.modules():
        plugs = (getattr(part, name, None) for name in ("residual", "attend", "window"))
        form = ".models." in type(part).__module__  # of a part that another chapter has
        for kind in (*type(part).__mro__[: 1 + form], *map(type, plugs)):
            home, _, topic = kind.__module__.partition(".")
            if home == "transformer_lit" and not kind.__name__.startswith("_"):
                names = found.setdefault(topic.replace(".", "/"), [])
                names += [] if kind.__name__ in names else [kind.__name__]
    heads = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    if any(part.n_kv_heads != part.n_heads for part in heads):
        found["attention/grouped"] = ["fewer key heads"]
    if any(getattr(part.position, "scaling", None) is not None for part in heads):
        found["position/scaling"] = ["make_scaling"]
    order = list(cards.chapters())
    return {name: found[name] for name in sorted(found, key=order.index)}


# --- the entries --------------------------------------------------------------------------------


def chapter_link(name: str) -> str:
    return f"{{doc}}`/{cards.page(cards.chapters()[name])}`"


def written(entry: Entry) -> list[str]:
    "The lines of the page for an entry."
    came = f", from {entry.parent}" if entry.parent else ""
    head = f"**{entry.name}** ({entry.date[:4]}){came} {{cite:p}}`{entry.cites}`. {entry.text}"
    lines = [f"({entry.label})=", head, ""]
    if entry.chapters:
        lines += ["Read: " + " · ".join(map(chapter_link, entry.chapters)) + ".", ""]
    if entry.proof:
        (file, test), known = entry.proof, cards.settings()
        where = f"[{test}]({known['git_url']}/blob/{known['branch']}/{file})"
        of = f", model “{entry.model}”" if entry.model else ""
        opens = entry.config and f"`load_hf` opens it as `{entry.config['architectures'][0]}`. "
        lines += [f"{opens or ''}Proof: {where}{of}.", ""]
    return lines


# --- the table ----------------------------------------------------------------------------------


def matrix() -> tuple[list[tuple[str, str]], dict[str, set[tuple[str, str]]]]:
    "What distinguishes the models, as (chapter, name) in book order, and what each of them has."
    models = {entry.name: build(entry) for entry in TREE}
    taken = {name: parts(model) for name, model in models.items() if model is not None}
    has = {name: {(c, n) for c, names in p.items() for n in names} for name, p in taken.items()}
    common = set.intersection(*has.values())
    order, found = list(cards.chapters()), set().union(*has.values()) - common
    columns = (one for one in found if not one[0].startswith("models/") and one[1] not in NULL)
    return sorted(columns, key=lambda one: (order.index(one[0]), one[1])), has


def table(address) -> str:
    "The table as HTML; `address` returns the address of a chapter."
    columns, has = matrix()
    heads = "".join(
        f'<th scope="col"><a href="{address(chapter)}">{escape(name)}</a></th>'
        for chapter, name in columns
    )
    rows = f'<thead><tr><th scope="col">Model</th>{heads}</tr></thead>'
    for title, places in SECTIONS.items():
        rows += f'<tbody><tr><th scope="rowgroup" colspan="{len(columns) + 1}">{title}</th></tr>'
        for entry in (e for e in TREE if e.column in places and e.name in has):
            ticks = "".join(f"<td>{'✓' if one in has[entry.name] else ''}</td>" for one in columns)
            link = f'<a href="#{entry.label}">{escape(entry.name)}</a>'
            rows += f'<tr><th scope="row">{link}</th>{ticks}</tr>'
        rows += "</tbody>"
    return (
        '<div class="family-parts" tabindex="0" role="group" aria-label="Models and their parts">'
        f"<table>{rows}</table></div>"
    )


GIVES = {  # what `load_hf` returns, and what you can do with it
    DecoderOnly: "a language model; `load` adds its tokenizer, so that it generates text and chats",
    EncoderDecoder: "an encoder–decoder, from ids to logits; your code tokenizes the texts",
    Bert: "an encoder; `load` opens a folder of sentence-transformers, which then encodes texts",
}


def opened() -> Iterator[str]:
    "A row for each family of `load_hf`: its name in config.json, its models, what is opened."
    yield from ("| `architectures` in config.json | Models | What you get |", "|---|---|---|")
    for name in FAMILIES:
        entries = [e for e in TREE if e.config and e.config["architectures"] == [name]]
        gives = next(text for kind, text in GIVES.items() if isinstance(build(entries[0]), kind))
        links = ", ".join(f"{{ref}}`{e.name} <{e.label}>`" for e in entries)
        yield f"| `{name}` | {links} | {gives} |"


def family_opened(directive):
    "The families that `load_hf` opens."
    return [nested(directive, opened(), "family-opened")]


def family_parts(directive):
    "The table of models and their parts."
    files, uri = cards.chapters(), directive.env.app.builder.get_relative_uri
    drawn = table(lambda name: uri(directive.env.docname, cards.page(files[name])))
    return [raw(drawn)]


def family_tree(directive):
    "The entries by kind, and in order of time within each kind."
    lines = []
    for title, columns in SECTIONS.items():
        lines += ["", f"*{title}*", ""]
        lines += [text for e in TREE if e.column in columns for text in written(e)]
    return [nested(directive, lines, "family-tree")]
