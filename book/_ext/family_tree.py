"""The family of Transformers as a page: a drawing by date, and an entry for each model.

    ```{family-tree}

What a model is made of is read off the model itself: the families of `load_hf` build it from a
small configuration, and the classes of its parts lead to the chapters that export them.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from nbdev_directives import settings as addresses
from sphinx.util.docutils import SphinxDirective
from torch import nn

from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.models.hf_build import FAMILIES, Settings
from transformer_lit.models.transformer import Transformer, TransformerConfig

sys.path.insert(0, str(Path(__file__).parents[1]))
import cards

ROOT = Path(__file__).parents[2]
TORCH = "tests/models/test_transformer.py", "test_logits_and_gradients_are_those_of_torch"
FIRST = "tests/models/test_families.py", "test_logits_are_those_of_hf"
REST = "tests/models/test_hf_build.py", "test_logits_are_those_of_hf_with_padding_and_without"
KINDS = ("encoder-only", "encoder–decoder", "decoder-only", "", "")


@dataclass(frozen=True)
class Entry:
    "One model of the family. `date` is given where the cited work has no arXiv number."

    name: str
    cites: str
    column: int  # 0 encoder-only, 1 encoder–decoder, 2 to 4 decoder-only
    parent: str | None
    text: str  # what is new in it
    chapters: tuple[str, ...] = ()  # beside those that its parts lead to
    date: tuple[int, int] | None = None
    config: dict[str, Any] | None = None  # of a small one that `load_hf` opens
    tensors: tuple[str, ...] = field(default=())  # names that lie in its folder
    proof: tuple[str, ...] = ()  # file, test and, where one test has many models, its name there

    @property
    def label(self) -> str:
        "`GPT-2` -> `tree-gpt-2`."
        return "tree-" + re.sub(r"\W+", "-", self.name.lower()).strip("-")


_ALIKE = {"vocab_size": 31, "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
_ALIKE |= {"intermediate_size": 17, "max_position_embeddings": 64}
_LLAMA = {"architectures": ["LlamaForCausalLM"], **_ALIKE, "rms_norm_eps": 1e-6}
_GROUPED = {**_LLAMA, "num_key_value_heads": 1}
_SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_SCALED |= {"original_max_position_embeddings": 32}
_GPT2 = {"architectures": ["GPT2LMHeadModel"], "vocab_size": 31, "n_embd": 12, "n_layer": 1}
_GPT2 |= {"n_head": 2, "n_positions": 64, "layer_norm_epsilon": 1e-5}
_BERT = {"architectures": ["BertForMaskedLM"], **_ALIKE, "layer_norm_eps": 1e-12}
_DEBERTA = {**_BERT, "architectures": ["DebertaV2ForMaskedLM"], "relative_attention": True}
_DEBERTA |= {"position_biased_input": False, "pos_att_type": "p2c|c2p"}
_DEBERTA_3 = {**_DEBERTA, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
_DEBERTA_3 |= {"position_buckets": 12}
_T5 = {"architectures": ["T5ForConditionalGeneration"], "vocab_size": 31, "d_model": 12}
_T5 |= {"num_heads": 2, "d_kv": 6, "d_ff": 17, "num_layers": 1}
_T5_1 = {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
_MARIAN = {"architectures": ["MarianMTModel"], "vocab_size": 31, "d_model": 12}
_MARIAN |= {"activation_function": "swish", "scale_embedding": True}
for _side in ("encoder", "decoder"):
    _MARIAN |= {f"{_side}_layers": 1, f"{_side}_attention_heads": 2, f"{_side}_ffn_dim": 17}

TREE = (
    Entry(
        "Additive attention",
        "bahdanau2015",
        1,
        None,
        "A recurrent encoder and decoder. Each step of the decoder looks at all states of the "
        "encoder, with weights that a small network makes. Attention begins here.",
        ("attention/additive", "models/recurrent"),
    ),
    Entry(
        "Transformer",
        "vaswani2017",
        1,
        "Additive attention",
        "No recurrence: attention alone carries information between places, also within a text.",
        proof=TORCH,
    ),
    Entry(
        "Marian",
        "junczys2018",
        1,
        "Transformer",
        "The same model in a program for translation. Hundreds of trained ones, for as many pairs "
        "of languages, are published as OPUS-MT {cite:p}`tiedemann2020`.",
        config=_MARIAN,
        tensors=("final_logits_bias",),
        proof=(*REST, "marian"),
    ),
    Entry(
        "T5",
        "raffel2020",
        1,
        "Transformer",
        "Every task is a text that goes in and a text that comes out. Positions are learned "
        "numbers in the scores, norms stand before the sublayers.",
        config=_T5,
        proof=(*REST, "t5"),
    ),
    Entry(
        "T5 1.1",
        "shazeer2020",
        1,
        "T5",
        "A gate in the feed-forward network, which the cited paper tries out on T5, and an output "
        "layer of its own. Flan-T5 has this form.",
        config=_T5_1,
        tensors=("lm_head.weight",),
        proof=(*REST, "t5 1.1"),
    ),
    Entry(
        "BERT",
        "devlin2019",
        0,
        "Transformer",
        "The encoder alone, which reads both ways and is asked for hidden tokens.",
        config=_BERT,
        proof=(*FIRST, "bert"),
    ),
    Entry(
        "RoBERTa",
        "liu2019",
        0,
        "BERT",
        "The same model, trained for longer on more text, with places that are hidden anew each "
        "time and without the question whether one sentence follows another.",
        ("models/bert",),
    ),
    Entry(
        "DeBERTa",
        "he2021",
        0,
        "RoBERTa",
        "Content and position are apart in the scores. The first version keeps queries, keys and "
        "values in one matrix and does not open here; the second does.",
        config=_DEBERTA,
        proof=(*REST, "deberta apart"),
    ),
    Entry(
        "DeBERTa 3",
        "he2021v3",
        0,
        "DeBERTa",
        "Trained to say at every place whether a token was replaced, as ELECTRA is "
        "{cite:p}`clark2020`. Maps are shared, and far distances too.",
        config=_DEBERTA_3,
        proof=(*REST, "deberta v3"),
    ),
    Entry(
        "GPT",
        "radford2018",
        2,
        "Transformer",
        "The decoder alone, without a source: it predicts the next token of any text, and is then "
        "trained a little more for each task.",
        ("models/gpt",),
        date=(2018, 6),
    ),
    Entry(
        "GPT-2",
        "radford2019",
        2,
        "GPT",
        "Norms move before the sublayers, and one more stands at the end. It is larger, and does "
        "some tasks without having been trained for them.",
        config=_GPT2,
        date=(2019, 2),
        proof=(*FIRST, "gpt2"),
    ),
    Entry(
        "GPT-3",
        "brown2020",
        2,
        "GPT-2",
        "GPT-2's form at 175 billion parameters, with some layers that see only a part of the "
        "text. A task is described in the prompt, with a few examples. Its weights are not public.",
        ("models/gpt",),
    ),
    Entry(
        "InstructGPT",
        "ouyang2022",
        2,
        "GPT-3",
        "GPT-3, trained further: first on answers that people wrote, then to get a good mark from "
        "a second model, which had learned from people which of two answers they prefer.",
    ),
    Entry(
        "ChatGPT",
        "openai2022",
        2,
        "InstructGPT",
        "The same method, in conversations, on a model of the series GPT-3.5. Its authors call "
        "it a sibling of InstructGPT. There is no paper, and its weights are not public.",
        date=(2022, 11),
    ),
    Entry(
        "PaLM",
        "chowdhery2022",
        3,
        "GPT-3",
        "540 billion parameters. SwiGLU, rotary positions, one key head for all query heads, no "
        "offsets; attention and feed-forward network read the same input, side by side.",
        ("block/feedforward", "position/rope", "attention/grouped"),
    ),
    Entry(
        "LLaMA",
        "touvron2023",
        3,
        "GPT-3",
        "Norms without mean, rotary positions, a gate in the feed-forward network, no offsets. "
        "Its weights were given to researchers.",
        config=_LLAMA,
        proof=(*FIRST, "llama 1"),
    ),
    Entry(
        "Llama 2",
        "touvron2023v2",
        3,
        "LLaMA",
        "Twice the context, and in the large models several query heads share their keys.",
        config=_GROUPED,
        proof=(*FIRST, "llama 2"),
    ),
    Entry(
        "Mistral",
        "jiang2023",
        4,
        "Llama 2",
        "Shared keys in a small model, and a window: a layer looks a few thousand places back.",
        config={**_GROUPED, "architectures": ["MistralForCausalLM"], "sliding_window": 7},
        proof=(*FIRST, "mistral"),
    ),
    Entry(
        "Llama 3",
        "grattafiori2024",
        3,
        "Llama 2",
        "Shared keys in all sizes, a larger vocabulary, and slower rotations for long texts.",
        config={**_GROUPED, "rope_scaling": _SCALED},
        proof=(*FIRST, "llama 3"),
    ),
    Entry(
        "Qwen2",
        "yang2024",
        4,
        "Llama 2",
        "The form of Llama 2, and offsets in the maps of queries, keys and values.",
        config={**_GROUPED, "architectures": ["Qwen2ForCausalLM"]},
        proof=(*FIRST, "qwen2"),
    ),
    Entry(
        "Qwen3",
        "yang2025",
        4,
        "Qwen2",
        "The offsets go; queries and keys get a norm for each head.",
        config={**_GROUPED, "architectures": ["Qwen3ForCausalLM"], "head_dim": 6},
        proof=(*FIRST, "qwen3"),
    ),
)


# --- what the code says -------------------------------------------------------------------------


def build(entry: Entry) -> nn.Module | None:
    "A small model of that family; None where this book builds none."
    if entry.name == "Transformer":
        sizes = {"d_model": 12, "n_heads": 2, "d_ff": 17, "n_layers": 1}
        return Transformer(TransformerConfig(vocab_size=31, **sizes))
    if entry.config is None:
        return None
    told = Settings(entry.config)
    told.tensors = entry.tensors
    return FAMILIES[told.architecture].build(told)


def classes(model: nn.Module) -> Iterator[type]:
    "Every public class of this package that the model holds, plugs among them."
    for part in model.modules():
        held = (part, getattr(part, "residual", None), getattr(part, "attend", None))
        for kind in map(type, held):
            if kind.__module__.startswith("transformer_lit.") and not kind.__name__.startswith("_"):
                yield kind


def parts(model: nn.Module) -> dict[str, list[str]]:
    "The chapters that a model needs, in the book's order, each with the names that it takes there."
    found: dict[str, list[str]] = {}
    for kind in classes(model):
        names = found.setdefault("/".join(kind.__module__.split(".")[1:]), [])
        names += [] if kind.__name__ in names else [kind.__name__]
    heads = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    if any(part.k_proj_heads != part.q_proj_heads for part in map(_Heads, heads)):
        found["attention/grouped"] = ["fewer key heads"]
    if any(getattr(part.position, "scaling", None) is not None for part in heads):
        found["position/scaling"] = ["make_scaling"]
    order = list(cards.chapters())
    if lost := set(found) - set(order):
        raise ValueError(f"no chapter exports {', '.join(sorted(lost))}")
    return {name: found[name] for name in order if name in found}


class _Heads:
    "How many heads of queries and of keys an attention has."

    def __init__(self, attn: MultiHeadAttention):
        self.q_proj_heads, self.k_proj_heads = (
            next(p for p in m.modules() if isinstance(p, nn.Linear)).out_features // attn.d_head
            for m in (attn.q_proj, attn.k_proj)
        )


def dates(root: Path = ROOT) -> dict[str, tuple[int, int]]:
    "Year and month of each model: those of the cited work's arXiv number, else as given."
    text = (root / "book/references.bib").read_text()
    found = {}
    for entry in TREE:
        work = re.search(rf"@\w+{{{entry.cites},.*?\n}}", text, re.S)
        if work is None:
            raise ValueError(f"{entry.name}: no work {entry.cites!r} in book/references.bib")
        number = re.search(r"eprint = {(\d\d)(\d\d)\.", work[0])
        if (number is None) == (entry.date is None):
            raise ValueError(f"{entry.name}: a date is given where there is no arXiv number")
        found[entry.name] = (2000 + int(number[1]), int(number[2])) if number else entry.date
    return found


# --- the drawing --------------------------------------------------------------------------------

LEFT, PITCH, WIDE, ROW, TALL, TOP = 46, 136, 118, 36, 26, 50


def places(when: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    "The middle of each box: a row for each model, in the order of time."
    rows = sorted(TREE, key=lambda entry: when[entry.name])
    return {
        e.name: (LEFT + PITCH * e.column + PITCH // 2, TOP + ROW * row)
        for row, e in enumerate(rows)
    }


def _line(entry: Entry, at: dict[str, tuple[int, int]]) -> list[tuple[int, int]]:
    "From parent to child: straight down, or around the boxes that stand between."
    (px, py), (x, y) = at[entry.parent], at[entry.name]
    start, gap = (px, py + TALL // 2), py + ROW // 2
    if any(ox == x and py < oy < y for ox, oy in at.values()):
        lane = x - PITCH // 2
        return [start, (px, gap), (lane, gap), (lane, y), (x - WIDE // 2, y)]
    return [start, *([] if px == x else [(px, gap), (x, gap)]), (x, y - TALL // 2)]


def drawing() -> str:
    "The tree as SVG, each box a link to its entry; what `load_hf` opens has a thick frame."
    when = dates()
    at, shapes, years = places(when), [], set()
    for column, kind in enumerate(KINDS):
        x = LEFT + PITCH * column + PITCH // 2
        shapes.append(f'<text x="{x}" y="20" text-anchor="middle" class="label">{kind}</text>')
    for entry in TREE:
        if entry.parent:
            points = " ".join(f"{x},{y}" for x, y in _line(entry, at))
            shapes.append(f'<polyline points="{points}" marker-end="url(#tree-head)"/>')
    for entry in sorted(TREE, key=lambda entry: when[entry.name]):
        (x, y), year = at[entry.name], when[entry.name][0]
        if year not in years:
            shapes.append(f'<text x="4" y="{y + 4}" class="label">{year}</text>')
        years.add(year)
        opens = "" if entry.config is None else " here"
        shapes.append(
            f'<a href="#{entry.label}"><rect class="box{opens}" x="{x - WIDE // 2}" '
            f'y="{y - TALL // 2}" width="{WIDE}" height="{TALL}" rx="5"/>'
            f'<text x="{x}" y="{y + 4}" text-anchor="middle">{escape(entry.name)}</text></a>'
        )
    size = f"0 0 {LEFT + PITCH * len(KINDS)} {TOP + ROW * len(TREE)}"
    return (
        f'<svg class="transformer-map" style="max-width: 46rem" viewBox="{size}" role="group" '
        'aria-label="Tree of Transformers by date: each box leads to its entry">'
        '<defs><marker id="tree-head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z"/></marker></defs>'
        + "".join(shapes)
        + "</svg>"
    )


# --- the entries --------------------------------------------------------------------------------


def chapter_link(name: str) -> str:
    "A link to a chapter of the book."
    path = cards.chapters()[name].relative_to(ROOT).with_suffix("")
    return f"{{doc}}`/{path}`"


def written(entry: Entry, when: dict[str, tuple[int, int]]) -> list[str]:
    "An entry as lines of the page."
    came = f", from {entry.parent}" if entry.parent else ""
    year = when[entry.name][0]
    head = f"**{entry.name}** ({year}){came} {{cite:p}}`{entry.cites}`. {entry.text}"
    lines = [f"({entry.label})=", head]
    model = build(entry)
    if model is not None:
        used = (f"{chapter_link(n)} (`{'`, `'.join(k)}`)" for n, k in parts(model).items())
        lines += ["", "Parts: " + " · ".join(used) + "."]
    if entry.chapters:
        lines += ["", "Read: " + " · ".join(map(chapter_link, entry.chapters)) + "."]
    if entry.proof:
        file, test, *name = entry.proof
        found = addresses(ROOT)
        where = f"[{test}]({found['git_url']}/blob/{found['branch']}/{file})"
        of = f", model “{name[0]}”" if name else ""
        opens = f"`load_hf` opens it as `{entry.config['architectures'][0]}`. " if name else ""
        lines += ["", f"{opens}Proof: {where}{of}."]
    return [*lines, ""]


class FamilyTree(SphinxDirective):
    "The drawing, and below it the entries by kind, each kind in the order of time."

    def run(self):
        when = dates()
        lines = []
        for title, columns in (
            ("Encoder and decoder", (1,)),
            ("The encoder alone", (0,)),
            ("The decoder alone", (2, 3, 4)),
        ):
            lines += ["", f"*{title}*", ""]
            for entry in sorted(TREE, key=lambda entry: when[entry.name]):
                lines += written(entry, when) if entry.column in columns else []
        node = nodes.container(classes=["family-tree"])
        self.state.nested_parse(StringList(lines), self.content_offset, node)
        return [nodes.raw("", drawing(), format="html"), node]


def setup(app):
    app.add_directive("family-tree", FamilyTree)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
