"The family tree: nothing that `load_hf` opens is missing, and what the page says is so."

import ast
import json
import re
from pathlib import Path

import cards
import family_tree as tree
import pytest
import yaml

from transformer_lit.models.hf_build import FAMILIES

ROOT = Path(__file__).parents[1]
BY_NAME = {entry.name: entry for entry in tree.TREE}
OPEN = [entry for entry in tree.TREE if entry.config is not None]


def opens(entry):
    return entry.config["architectures"][0]


def test_every_family_that_opens_has_a_leaf_and_no_other_says_so():
    assert {opens(entry) for entry in OPEN} == set(FAMILIES)
    assert len(BY_NAME) == len({entry.label for entry in tree.TREE}) == len(tree.TREE)


def test_every_link_of_a_leaf_exists():
    chapters = cards.chapters()
    for entry in tree.TREE:
        model = tree.build(entry)
        linked = [*entry.chapters, *([] if model is None else tree.parts(model))]
        assert all(chapters[name].exists() for name in linked), entry.name
        assert linked or entry.name in ("InstructGPT", "ChatGPT")  # a training, and no form
        assert bool(entry.proof) == (model is not None), entry.name


def test_parity_tests_exist_and_have_their_models():
    for entry in tree.TREE:
        if not entry.proof:
            continue
        file, test = entry.proof
        if file.endswith(".ipynb"):
            assert test in {cell["id"] for cell in json.loads((ROOT / file).read_text())["cells"]}
            continue
        body = ast.parse((ROOT / file).read_text()).body
        assert test in {x.name for x in body if isinstance(x, ast.FunctionDef)}, entry.name
        if entry.config is not None:
            tables = {ast.unparse(x.targets[0]): x.value for x in body if isinstance(x, ast.Assign)}
            assert entry.model in [key.value for key in tables["MODELS"].keys], entry.name


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
        ("Qwen3-Next", {"GatedDeltaNet", "GatedAttention", "PartialRoPE", "Experts"}, {"Window"}),
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


def test_a_class_that_no_chapter_exports_is_named(monkeypatch):
    monkeypatch.setattr(cards, "chapters", lambda: {"block/norm": None})
    with pytest.raises(ValueError, match="models/gpt"):
        tree.parts(tree.build(BY_NAME["GPT-2"]))


def test_parents_are_older_and_there_is_one_root():
    assert [entry.name for entry in tree.TREE if entry.parent is None] == ["Additive attention"]
    for entry in tree.TREE:
        assert entry.parent is None or BY_NAME[entry.parent].date < entry.date


def test_a_date_is_that_of_the_first_version_of_the_cited_work():
    works = (ROOT / "book/references.bib").read_text()
    for entry in tree.TREE:
        work = re.search(rf"@\w+{{{entry.cites},.*?\n}}", works, re.S)[0]
        if number := re.search(r"eprint = {(\d\d)(\d\d)\.", work):
            assert entry.date == f"20{number[1]}-{number[2]}", entry.name
        else:
            assert re.fullmatch(r"20\d\d-\d\d", entry.date)


def test_each_box_leads_to_an_entry_and_the_open_ones_are_marked():
    drawn = tree.drawing()
    for entry in tree.TREE:
        assert f'<a href="#{entry.label}">' in drawn
        assert tree.written(entry)[0] == f"({entry.label})="
    assert drawn.count(" here") == len(OPEN)


def test_the_table_has_a_tick_for_each_part_that_a_model_has():
    columns, has = tree.matrix()
    assert {e.name for e in tree.TREE if e.proof} == set(has)
    drawn = tree.table(lambda name: f"{name}.html")
    heads, *groups = re.findall(r"<t(?:head|body)>(.*?)</t(?:head|body)>", drawn)
    assert re.findall(r'href="(.+?)\.html">(.+?)</a>', heads) == columns
    rows = re.findall(r'<th scope="row"><a href="#.+?">(.+?)</a></th>(.+?)</tr>', "".join(groups))
    assert {name for name, _ in rows} == set(has) and len(rows) == len(has)
    for name, cells in rows:
        ticks = re.findall(r"<td>(✓?)</td>", cells)
        assert {one for one, tick in zip(columns, ticks, strict=True) if tick} == (
            has[name] & set(columns)
        )


def test_the_page_is_in_the_book():
    toc = yaml.safe_load((ROOT / "book/_toc.yml").read_text())
    assert "book/tree" in [c["file"] for part in toc["parts"] for c in part["chapters"]]
    page = (ROOT / "book/tree.md").read_text()
    assert "```{family-tree}\n" in page and "```{family-parts}\n" in page
