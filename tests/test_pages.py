"""What README.md and the book's first page say is true: code runs, numbers are records.

And no page of the book's back matter is loose: terms are linked, works are cited.
"""

import json
import re
import statistics
from pathlib import Path

import pytest
from chapter_widgets import FIRST
from family_tree import TREE
from tables import result_table

from benchmarks import table
from transformer_lit import load
from transformer_lit.course.data import load_text
from transformer_lit.course.records import read_measurement, read_results
from transformer_lit.recipes.zoo import card_text, model_card, model_names

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["README.md", "book/use.md"])
def test_the_python_on_the_page_runs(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert blocks
    names = {}
    for block in blocks:
        exec(block, names)


def test_the_table_is_made_from_the_records():
    readme = (ROOT / "README.md").read_text()
    shown = re.search(r"<!-- results:.*?-->\n(.*?)<!-- end of results -->", readme, re.S)[1]
    assert shown.strip() == result_table(read_results(ROOT / "results"))


@pytest.mark.parametrize("page", ["README.md", "book/runs.md"])
def test_the_teachers_are_counted_too(page):
    "Of the model whose command is `experiments.diverse --forth 1 2 --back 1 2`."
    names = [
        f"multi30k-tuned-{way}-tok-seed{seed}" for way in ("en-de", "de-en") for seed in (1, 2)
    ]
    took = sum(record.minutes for record in read_results(ROOT / "results") if record.name in names)
    assert f"its four teachers took {took:.0f} minutes" in (ROOT / page).read_text()


@pytest.mark.parametrize("page", ["README.md", "book/runs.md"])
def test_a_claim_about_a_score_stands_beside_its_numbers(page):
    "Each is a record's, and each word that compares it with the published 41.02 is so."
    text = " ".join((ROOT / page).read_text().split())
    (claims,) = re.findall(r"41\.02 is .*?our [\d.]+ ± [\d.]+", text)
    records = read_results(ROOT / "results")
    rows = {line.split("`")[1]: line for line in result_table(records).splitlines() if "`" in line}

    def bleu(name):
        return [r.metrics["bleu"] for r in records if r.name.rpartition("-seed")[0] == name]

    same, made = "multi30k-tuned-en-de-tok", "multi30k-tuned-diverse-forth1_2-back1_2-last16000"
    fair, muon = "multi30k-more-rdrop-en-de-tok", "multi30k-muon-en-de-tok"
    rebuilt, brief = "multi30k-more-published-en-de-tok", "multi30k-tiny-en-de-tok-steps6500"
    below, above = bleu(fair) + bleu(muon) + bleu(same), bleu(f"{made}-en-de-tok")
    assert len(below) == 9 and len(above) == 3 and max(below) < 41.02 < min(above)
    assert 0.8 < (statistics.mean(above) - 41.02) / statistics.stdev(above) < 1.2
    assert "Below it with the same 29,000 pairs**: 40.46 ± 0.26, three seeds" in claims
    assert "BLEU 40.46 ± 0.26," in rows[fair]
    assert f"39.58 ± 0.49 in the same way (`{muon}`)" in claims
    assert "BLEU 39.58 ± 0.49," in rows[muon]
    assert "40.21 ± 0.57 with a length penalty that was settled after a look" in claims
    assert "BLEU 40.21 ± 0.57," in rows[same]
    assert "trained here**: 39.30, one seed" in claims and len(bleu(rebuilt)) == 1
    assert "BLEU 39.30," in rows[rebuilt] and "1.7 below what is published" in claims
    assert "came to 14.57 (" in claims
    assert "BLEU 14.57," in rows[brief]
    assert "Above it with made pairs**: 41.22 ± 0.19," in claims
    assert "BLEU 41.22 ± 0.19," in rows[f"{made}-en-de-tok"]
    assert "compare with our 40.67 ± 0.63" in claims
    assert "greedy 40.67 ± 0.63 " in rows["multi30k-tuned-de-en-tok"]


def test_the_tables_of_speed_are_made_from_the_records():
    record = read_measurement(ROOT / "results/benchmarks-cpu.json")
    assert len(record.rows) == 11
    readme = (ROOT / "README.md").read_text()
    assert table.speed_table(record) in readme
    assert table.written(readme, "speed", table.speed_table(record)) == readme
    record = read_measurement(ROOT / "results/measurements/decoding_smollm2.json")
    assert table.written(readme, "decoding", table.decoding_table(record)) == readme
    record = read_measurement(ROOT / "results/measurements/training_memory.json")
    assert len(record.rows) == 20
    assert table.written(readme, "memory", table.memory_table(record)) == readme


def test_every_row_that_loses_is_explained():
    "By its profile in the record, and by a section with its name."
    record = read_measurement(ROOT / "results/benchmarks-cpu.json")
    page = (ROOT / "benchmarks/README.md").read_text()
    for row in record.rows:
        if row.get("ratio", 0) > 1.02:
            assert row["profile"] and re.search(rf"^## .*\b{row['row']}\b", page, re.M)


def test_the_calls_that_the_page_counts_are_the_profile_s():
    page = " ".join((ROOT / "benchmarks/README.md").read_text().split())
    rows = {row["row"]: row for row in read_measurement(ROOT / "results/benchmarks-cpu.json").rows}

    def calls(row, operation, steps=1):
        (one,) = (one for one in rows[row]["profile"] if one["operation"] == operation)
        return one["ours_calls"] // steps, one["peer_calls"] // steps

    assert "{} calls beside {}".format(*calls("gpt train bf16", "aten::copy_")) in page
    products = calls("llama greedy 1", "aten::mm", steps=48)
    assert "{} products where litgpt has {}".format(*products) in page
    ours, theirs = calls("llama greedy 1", "aten::mul", steps=48)
    assert f"`aten::mul` {theirs} beside our {ours}" in page
    record = read_measurement(ROOT / "results/measurements/training_memory.json")
    held = {row["side"]: row["mib"] for row in record.rows if row["row"] == "gpt train bf16"}
    more = held["ours"] - held["nanoGPT"]
    copies = 2 * (16 * 256 * 384) * 6 * 2 / 2**20
    assert f"more in bf16, {copies:.0f} MiB" in page and abs(more - copies) < 0.001


def test_the_race_s_example_comes_as_far_as_the_page_says():
    record = read_measurement(ROOT / "results/measurements/race.json")
    page = (ROOT / "book/now.md").read_text()
    lengths = 320, 128
    whole, short = (
        sorted(f"{row['bits']:.3f}" for row in record.rows if row["length"] == length)
        for length in lengths
    )
    seconds = max(row["seconds"] for row in record.rows)
    (floor,) = {f"{row['floor']:.3f}" for row in record.rows}
    assert len(whole) == len(short) == 3 and record.device.endswith("1 thread")
    said = f"came to {whole[0]}, {whole[1]} and {whole[2]} bits a letter with three seeds, in"
    assert f"{said} at most {seconds:.0f} seconds of the processor (one thread)" in page
    assert f"where {floor} is the entropy (`{record.command}`)" in page
    assert f"With `length=128` it came to {short[0]}, {short[1]} and {short[2]}" in page
    stories = load_text("stories", "val").split("\n")[:500]
    assert f"a story has {statistics.mean(map(len, stories)):.0f} letters in the mean" in page


def test_a_page_without_a_place_for_the_table_is_refused(tmp_path):
    (tmp_path / "page.md").write_text("nothing")
    record = read_measurement(ROOT / "results/benchmarks-cpu.json")
    with pytest.raises(ValueError, match="has no place for the table"):
        table.put_table(tmp_path / "page.md", "speed", table.speed_table(record))


def test_every_card_is_made_from_a_record():
    records = read_results(ROOT / "results")
    assert model_names()
    for name in model_names():
        assert model_card(name) in [card_text(name, record) for record in records]


def test_the_first_page_says_how_large_its_models_are():
    page = (ROOT / "book/intro.md").read_text()
    (said,) = re.findall(r"The model has ([\d.]+) million parameters", page)
    count = sum(weight.numel() for weight in load(FIRST).model.parameters())
    assert said == f"{count / 1e6:.2f}"
    asked = re.findall(r":ask: Load the (\w+) \(([\d.]+) MB\)", page)
    shipped = {"translator": FIRST, "writer": "shakespeare"}
    assert dict(asked).keys() == shipped.keys()
    for name, megabytes in asked:
        folder = ROOT / "transformer_lit/weights" / shipped[name]
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors")) / 1e6
        assert abs(float(megabytes) - size) <= 0.1, name


def test_links_between_files_of_the_repository_lead_somewhere():
    for page in ("README.md", "CONTRIBUTING.md", "WEIGHTS-NOTICE.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text()):
            assert (ROOT / target).exists(), f"{page} links to {target}"


def texts():
    "What a reader can read: the markdown of every page and chapter."
    for path in (ROOT / "book").glob("*.md"):
        yield path, path.read_text()
    for path in (ROOT / "nbs").glob("*/*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        shown = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        yield path, "\n".join(shown)


def glossary():
    "The English terms: of the two names of an entry, neither indented, the first."
    listed = re.search(r"```{glossary}\n(.*?)```", (ROOT / "book/glossary.md").read_text(), re.S)[1]
    return [entry.split("\n")[0] for entry in listed.strip().split("\n\n")]


def test_every_term_of_the_glossary_is_linked_from_a_page():
    linked = set()
    for path, text in texts():
        if path.name != "glossary.md":
            for written in re.findall(r"\{term\}`([^`]+)`", text):
                target = re.search(r"<(.+)>$", written)
                linked.add((target[1] if target else written).lower())
    assert {term for term in glossary() if term.lower() not in linked} == set()


def test_the_glossary_says_how_many_terms_it_has():
    said = re.search(r"The (\d+) terms", (ROOT / "book/glossary.md").read_text())[1]
    assert len(set(glossary())) == len(glossary()) == int(said)


def test_every_work_of_the_references_is_cited():
    cited = {entry.cites for entry in TREE}
    for text in [*(text for _, text in texts()), *(f"{entry}" for entry in TREE)]:
        for written in re.findall(r"\{cite:\w+\}`([^`]+)`", text):
            cited |= {key.strip() for key in written.split(",")}
    listed = re.findall(r"^@\w+\{([^,]+),", (ROOT / "book/references.bib").read_text(), re.M)
    assert len(listed) > 90
    assert set(listed) - cited == set()
