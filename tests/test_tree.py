"The family tree: nothing that `load_hf` opens is missing, and what the page says is so."

import ast
import json
import re
from functools import cache
from pathlib import Path

import cards
import family_tree as tree
import pytest

from transformer_lit.models.hf_build import FAMILIES

ROOT = Path(__file__).parents[1]
BY_NAME = {entry.name: entry for entry in tree.TREE}
WORKS = (ROOT / "book/references.bib").read_text(encoding="utf-8")


@cache
def proofs(file):
    "The tests of a file, and its tables; of a chapter, its cells."
    if file.endswith(".ipynb"):
        return {cell["id"] for cell in json.loads((ROOT / file).read_text("utf-8"))["cells"]}, {}
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    tables = {ast.unparse(x.targets[0]): x.value for x in body if isinstance(x, ast.Assign)}
    return {x.name for x in body if isinstance(x, ast.FunctionDef)}, tables


@pytest.mark.parametrize("entry", tree.TREE, ids=lambda entry: entry.name)
def test_an_entry_has_chapters_a_parent_a_date_and_a_proof(entry):
    model, chapters = tree.build(entry), cards.chapters()
    linked = [*entry.chapters, *([] if model is None else tree.parts(model))]
    assert set(linked) <= chapters.keys()
    assert linked or entry.name in ("InstructGPT", "ChatGPT")  # a training, and no form
    assert bool(entry.parent) == (entry.name != "Additive attention")  # the root
    assert entry.parent is None or BY_NAME[entry.parent].date < entry.date
    work = re.search(rf"@\w+{{{entry.cites},.*?\n}}", WORKS, re.S)[0]
    assert re.fullmatch(r"20\d\d-\d\d", entry.date)
    assert entry.date[:4] <= re.search(r"year = {(\d{4})}", work)[1]  # a model is not later
    if number := re.search(r"eprint = {(\d\d)(\d\d)\.", work):
        first = f"20{number[1]}-{number[2]}"  # version of the paper
        assert entry.date == first or entry.date[:4] < first[:4]
    assert bool(entry.proof) == (model is not None)
    if entry.proof:
        tests, tables = proofs(entry.proof[0])
        assert entry.proof[1] in tests
        assert not entry.config or entry.model in [key.value for key in tables["MODELS"].keys]


def test_every_family_that_opens_has_a_leaf_and_a_row_of_ticks():
    opened = {entry.config["architectures"][0] for entry in tree.TREE if entry.config}
    assert opened == set(FAMILIES)
    assert len(BY_NAME) == len({entry.label for entry in tree.TREE}) == len(tree.TREE)
    drawn = (ROOT / "book/tree.svg").read_text(encoding="utf-8")
    boxes = re.findall(r'<a href="#(.+?)"><rect class="box( here)?"', drawn)
    assert boxes == [(entry.label, " here" if entry.config else "") for entry in tree.TREE]
    tops = dict(re.findall(r'<a href="#(.+?)"><rect .*?y="(\d+)"', drawn))
    labels = {int(y) - 17: year for y, year in re.findall(r'x="4" y="(\d+)".*?>(\d{4})', drawn)}
    for entry in tree.TREE:  # under the year that is the nearest above
        assert labels[max(y for y in labels if y <= int(tops[entry.label]))] == entry.date[:4]
    columns, has = tree.matrix()
    assert {e.name for e in tree.TREE if e.proof} == set(has)
    drawn = tree.table(lambda name: f"{name}.html")
    rows = re.findall(r'<th scope="row"><a href="#.+?">(.+?)</a></th>(.+?)</tr>', drawn)
    assert re.findall(r'<th scope="col"><a href="(.+?)\.html">(.+?)</a>', drawn) == columns
    assert sorted(name for name, _ in rows) == sorted(has)
    for name, cells in rows:
        ticks = re.findall(r"<td>(✓?)</td>", cells)
        ticked = {one for one, tick in zip(columns, ticks, strict=True) if tick}
        assert ticked == has[name] & set(columns)


def test_the_table_of_what_opens_has_a_row_for_each_family():
    _, _, *rows = tree.opened()
    rows = [row.strip("| ").split(" | ") for row in rows]
    assert [f"`{name}`" for name in FAMILIES] == [name for name, _, _ in rows]
    gives = {name.strip("`"): (models, what) for name, models, what in rows}
    assert "Llama 3 <tree-llama-3>" in gives["LlamaForCausalLM"][0]
    for name, words in (
        ("GPT2LMHeadModel", "generates text and chats"),
        ("MarianMTModel", "your code tokenizes the texts"),
        ("RobertaModel", "encodes texts"),
    ):
        assert words in gives[name][1]


@pytest.mark.parametrize(
    ("name", "has", "has_not"),
    [
        ("Transformer", {"Sinusoidal", "LayerNorm", "PostNorm"}, {"RMSNorm", "RoPE"}),
        ("GPT-2", {"LearnedPosition", "PreNorm", "FeedForward"}, {"PostNorm", "RoPE"}),
        ("BERT", {"Bert", "EncoderLayer", "PostNorm"}, {"DecoderLayer", "PreNorm"}),
        ("DeBERTa 3", {"DisentangledBias", "Bert"}, {"LearnedPosition"}),
        ("T5", {"T5Bias", "RMSNorm", "FeedForward"}, {"GatedFeedForward", "LayerNorm"}),
        ("T5 1.1", {"T5Bias", "GatedFeedForward"}, {"FeedForward"}),
        ("Marian", {"InBlocks", "Sinusoidal", "PostNorm"}, {"T5Bias", "PreNorm"}),
        ("LLaMA", {"RoPE", "RMSNorm", "GatedFeedForward"}, {"fewer key heads", "Window"}),
        ("Llama 2", {"RoPE", "fewer key heads"}, {"make_scaling"}),
        ("Llama 3", {"RoPE", "fewer key heads", "make_scaling"}, {"LayerNorm"}),
        ("Mistral", {"Window", "fewer key heads"}, {"PerHead"}),
        ("Qwen2", {"RoPE", "fewer key heads"}, {"PerHead", "Window"}),
        ("Qwen3", {"PerHead", "fewer key heads"}, {"Window", "Experts"}),
        ("Mixtral", {"Experts", "SoftmaxRouter", "fewer key heads"}, {"PerHead", "Window"}),
        ("Qwen3-MoE", {"Experts", "SoftmaxRouter", "PerHead"}, {"Window"}),
        ("gpt-oss", {"SinkLogit", "Window", "Experts", "ClampedFeedForward"}, {"GatedFeedForward"}),
        ("OLMo 2", {"SandwichNorm", "RoPE"}, {"PreNorm", "PostNorm", "PerHead", "Window"}),
        ("OLMo 3", {"SandwichNorm", "Window", "make_scaling"}, {"PreNorm", "PerHead"}),
        ("Gemma 2", {"SandwichNorm", "SoftCap", "Window", "Capped"}, {"PreNorm", "PerHead"}),
        ("Gemma 3", {"SandwichNorm", "PerHead", "Window"}, {"PreNorm", "SoftCap", "Capped"}),
        ("Qwen3-Next", {"GatedDeltaNet", "FusedGatedAttention", "PartialRoPE"}, {"Window"}),
        (
            "ModernBERT",
            {"Bert", "RoPE", "TwoSidedWindow", "PreNorm"},
            {"LearnedPosition", "PostNorm"},
        ),
        ("DeepSeek-V3", {"LatentAttention", "GroupedRouter", "RoPE"}, {"SoftmaxRouter", "PerHead"}),
    ],
)
def test_the_parts_are_those_of_the_model(name, has, has_not):
    found = {part for parts in tree.parts(tree.build(BY_NAME[name])).values() for part in parts}
    assert has <= found and not has_not & found
