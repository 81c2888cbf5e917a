"""README.md, the first page and the results page are true: code runs, numbers come from records.

And nothing in the book's back matter is unused: terms are linked, works are cited.
"""

import json
import re
import statistics
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

import cards
import pytest
from chapter_widgets import FIRST
from family_tree import TREE
from tables import result_table, with_table

from benchmarks import table
from transformer_lit import load
from transformer_lit.course.data import load_text
from transformer_lit.course.records import Measurement, read_measurement, read_results
from transformer_lit.exercises import check
from transformer_lit.recipes.zoo import card_text, model_card, model_names

ROOT = Path(__file__).parents[1]
README, RUNS = "README.md", "book/runs.md"


def words(page):
    "The text of a page, with single spaces."
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


@pytest.mark.parametrize("page", [README, "book/use.md"])
def test_the_python_on_the_page_prints_what_its_comments_show(page, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    shown = re.findall(r"^print.*  # (\[.*?\])", "".join(blocks), re.M)
    assert shown
    names = {}
    for block in blocks:
        exec(block, names)
    printed = capsys.readouterr().out
    assert [one for one in shown if one not in printed] == []


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_picture_shows_what_check_answers(mode, monkeypatch, tmp_path):
    "Its program runs as it is drawn."
    monkeypatch.chdir(tmp_path)
    path = f"book/_static/verdict-{mode}.svg"
    texts = [*ElementTree.parse(ROOT / path).iter("{http://www.w3.org/2000/svg}text")]
    (verdict,) = ("".join(one.itertext()) for one in texts if one.get("class") == "verdict")
    *program, call = ("".join(one.itertext()) for one in texts if one.get("class") == "code")
    names = {"check": check}
    exec("\n".join(program), names)
    assert str(eval(call, names)).splitlines()[0] == verdict
    assert path in words(README) and verdict.split(": ", 1)[1] in words(README)


def test_the_readme_is_short():
    assert len(words(README).split()) <= 900


def test_the_readme_quotes_the_records():
    page, records = words(README), read_results(ROOT / "results")
    bleu = {}
    for record in records:
        bleu.setdefault(record.name.rpartition("-seed")[0], []).append(record.metrics.get("bleu"))
    on_a_gpu = {name: scores for name, scores in bleu.items() if name.startswith("multi30k-more-")}
    ours = on_a_gpu.pop("multi30k-more-rdrop-en-de-tok")
    plain = on_a_gpu.pop("multi30k-more-plain-en-de-tok")
    (low,), (high,) = sorted(on_a_gpu.values())
    for scores, said in ((ours, "{} BLEU on Multi30k"), (plain, "second setting it scored {}.")):
        score = f"{statistics.mean(scores):.2f} ± {statistics.stdev(scores):.2f}"
        assert said.format(score) in page
    assert f"scored {high:.1f}, and {low:.1f} at a lower learning rate (one seed each)" in page
    rdrop = [r for r in records if r.name.startswith("multi30k-more-rdrop")]
    assert max(r.minutes for r in rdrop) < 6 and "under six minutes on one GPU" in page
    assert {r.parameters for r in rdrop} == {2491904} and "2.5 million parameters" in page
    (everyday,) = (r for r in records if r.name == "everyday-en-de-raw-seed0")
    scored = f"{everyday.metrics['bleu']:.2f} BLEU on {everyday.metrics['sentences']:,} Tatoeba"
    assert scored in page and f"after {everyday.minutes:.0f} minutes on one CPU thread" in page
    rows = read_measurement(ROOT / "results/benchmarks-cpu.json").rows
    assert len(rows) == 11 and "eleven training and decoding tasks" in page
    ratios = sorted(row["ratio"] for row in rows)
    assert f"take {ratios[0]:.2f} to {ratios[-1]:.2f} times as long" in page
    ratio = {
        row["side"]: row["ratio"]
        for row in read_measurement(ROOT / "results/measurements/decoding_smollm2.json").rows
        if "tokens_s" in row
    }
    few, most = (round(ratio[side] / ratio["llama.cpp"]) for side in ("int4", "float32"))
    assert (few, most) == (3, 5) and "llama.cpp is about three times as fast as this" in page
    assert "with 4-bit weights, and five times with float32" in page


def test_the_table_is_made_from_the_records():
    page = (ROOT / "results/README.md").read_text(encoding="utf-8")
    assert with_table(page, read_results(ROOT / "results")) == page


@pytest.mark.parametrize("page", [README, RUNS, "results/README.md", "benchmarks/README.md"])
def test_the_modules_that_a_page_runs_are_there(page):
    for name in re.findall(r"`python -m ([\w.]+)", words(page)):
        assert find_spec(name), name


def test_the_teachers_are_counted_too():
    "Of the model whose command is `experiments.diverse --forth 1 2 --back 1 2`."
    names = [
        f"multi30k-tuned-{way}-tok-seed{seed}" for way in ("en-de", "de-en") for seed in (1, 2)
    ]
    took = sum(record.minutes for record in read_results(ROOT / "results") if record.name in names)
    assert f"its four teachers took {took:.0f} minutes" in words(RUNS)


def test_a_claim_about_a_score_is_next_to_its_numbers():
    "Each score is from a record, and each comparison with the published 41.02 is true."
    (claims,) = re.findall(r"41\.02 is published.*?greedy decoding", words(RUNS))
    records = read_results(ROOT / "results")
    rows = {line.split("`")[1]: line for line in result_table(records).splitlines() if "`" in line}

    def bleu(name):
        return [r.metrics["bleu"] for r in records if r.name.rpartition("-seed")[0] == name]

    def validated(name):  # with the length penalty that is best for the mean of the seeds
        seeds = [r.metrics["val_bleu"] for r in records if r.name.rpartition("-seed")[0] == name]
        return max(statistics.mean(one[alpha] for one in seeds) for alpha in seeds[0])

    same, made = "multi30k-tuned-en-de-tok", "multi30k-tuned-diverse-forth1_2-back1_2-last16000"
    fair, muon = "multi30k-more-rdrop-en-de-tok", "multi30k-muon-en-de-tok"
    plain, brief = "multi30k-more-plain-en-de-tok", "multi30k-tiny-en-de-tok-steps6500"
    rebuilt, lower = "multi30k-more-published-en-de-tok", "multi30k-more-published-lower-en-de-tok"
    below, above = bleu(fair) + bleu(muon) + bleu(same), bleu(f"{made}-en-de-tok")
    assert len(below) == 9 and len(above) == 3 and max(below) < 41.02 < min(above)
    assert 0.8 < (statistics.mean(above) - 41.02) / statistics.stdev(above) < 1.2
    separated = 4.303  # of three seeds: two degrees of freedom, 95 %
    assert 41.02 - statistics.mean(bleu(fair)) < separated * statistics.stdev(bleu(fair)) / 3**0.5
    assert "Each seed below it, with the same 29,000 pairs**: 40.46 ± 0.26, three seeds" in claims
    assert "BLEU 40.46 ± 0.26," in rows[fair]
    assert validated(rebuilt) > validated(fair) > validated(plain)
    assert validated(lower) > validated(fair) and len(bleu(lower)) == len(bleu(rebuilt)) == 1
    assert f"three seeds, which has 40.27 ± 0.35 (`{plain}`)" in claims
    assert "BLEU 40.27 ± 0.35," in rows[plain]
    assert "validation set, but only 39.30 and 39.18 on the test set" in claims
    assert "BLEU 39.30," in rows[rebuilt] and "BLEU 39.18," in rows[lower]
    assert "One has 39.58 ± 0.49, again with a length penalty that was chosen on the" in claims
    assert "BLEU 39.58 ± 0.49," in rows[muon]
    assert "40.21 ± 0.57 with a length penalty that was chosen after a look" in claims
    assert "BLEU 40.21 ± 0.57," in rows[same]
    assert "trained here**: 39.30, one seed" in claims and "1.7 below the published" in claims
    assert f"it had 14.57 (`{brief}`)" in claims and "BLEU 14.57," in rows[brief]
    assert "Each seed above it, with pairs made by other models**: 41.22 ± 0.19," in claims
    assert "BLEU 41.22 ± 0.19," in rows[f"{made}-en-de-tok"]
    assert "the 40.67 ± 0.63 that the models of `multi30k-tuned-de-en-tok` have" in claims
    assert "greedy 40.67 ± 0.63 " in rows["multi30k-tuned-de-en-tok"]


def test_the_other_models_do_as_well_as_the_results_page_says():
    page = words(RUNS)
    (everyday,) = read_results(ROOT / "results", name="everyday-en-de-raw-seed0")
    score, sentences = everyday.metrics["bleu"], everyday.metrics["sentences"]
    assert f"has {score:.2f} BLEU on {sentences:,} sentences from Tatoeba" in page
    domains = read_measurement(ROOT / "results/measurements/domains.json").rows
    (captions,) = (
        row["bleu"]
        for row in domains
        if (row["model"], row["dataset"]) == ("everyday-en-de", "multi30k")
    )
    assert f"only {captions:.1f} BLEU" in page
    rows = read_measurement(ROOT / "results/measurements/three_minutes.json").rows
    changed = [row for row in rows if row["changes"]]
    assert len(changed) == 5 and max(row["minutes"] for row in changed) < 3
    losses = [row["val_loss"] for row in changed]
    said = f"{statistics.mean(losses):.3f} ± {statistics.stdev(losses):.3f} nats per character"
    assert {row["parameters"] for row in changed} == {747136}
    assert f"With 747,136 parameters, a model reaches {said} (five seeds" in page
    assert "747,136 parameters and under three minutes" in words(README)
    assert said in words(README)
    larger = read_results(ROOT / "results", task="language-model")
    larger = [r for r in larger if r.name.startswith("shakespeare-steps1000-bfloat16")]
    found = [r.metrics["val_loss"] for r in larger]
    assert f"{statistics.mean(found):.3f} ± {statistics.stdev(found):.3f} here after a" in page
    fast = [60 * r.minutes for r in larger if r.minutes < 1]
    assert len(found) == 3 and len(fast) == 2 and all(24 < seconds < 26 for seconds in fast)


def decoding_table(record: Measurement) -> str:
    "A published model beside other libraries, from the record `decoding_smollm2`."
    lines = [
        f"| work | side | time, ours in float32 = 1 (95 %) | {record.device} |",
        "|---|---|---|---|",
    ]
    for row in record.rows:
        ratio = "{ratio:.2f} ({low:.2f} to {high:.2f})".format(**row) if "ratio" in row else ""
        if "tokens_s" in row:
            told = f"{row['tokens_s']:.0f} tokens/s, {row['mb']:.0f} MB"
            lines.append(f"| writing | {row['side']} | {ratio} | {told} |")
        elif "theirs" in row:  # the record has ours / theirs
            ratio = f"{1 / row['ratio']:.2f} ({1 / row['high']:.2f} to {1 / row['low']:.2f})"
            lines.append(f"| {row['work']} | transformers | {ratio} | {row['theirs']:.1f} s |")
        else:
            told = f"{row['of_weights']:.2f} × the float32 weights"
            lines.append(f"| memory to open | {row['side']} | | {told} |")
    return "\n".join(lines)


def memory_table(record: Measurement) -> str:
    "The most that the tensors of a training step hold: ours, and each peer's."
    lines = ["| training step | ours, MiB | others, MiB | ours / least of the others |"]
    lines.append("|---|---|---|---|")
    for _, sides in groupby(record.rows, lambda row: row["row"]):
        ours, *others = sides
        told = ", ".join(f"{row['side']} {row['mib']:,.0f}" for row in others)
        ratio = ours["mib"] / min(row["mib"] for row in others)
        words = f"{table.MODELS[ours['model']]}, {ours['dtype']}"
        lines.append(f"| {words} | {ours['mib']:,.0f} | {told} | {ratio:.2f} |")
    return "\n".join(lines)


def test_the_tables_of_speed_are_made_from_the_records():
    record = read_measurement(ROOT / "results/benchmarks-cpu.json")
    assert len(record.rows) == 11
    page = (ROOT / RUNS).read_text(encoding="utf-8")
    assert table.speed_table(record) in page
    assert table.written(page, "speed", table.speed_table(record)) == page
    record = read_measurement(ROOT / "results/measurements/decoding_smollm2.json")
    assert table.written(page, "decoding", decoding_table(record)) == page
    record = read_measurement(ROOT / "results/measurements/training_memory.json")
    assert len(record.rows) == 20
    assert table.written(page, "memory", memory_table(record)) == page


def test_every_row_that_loses_is_explained():
    "By a section with its name."
    record = read_measurement(ROOT / "results/benchmarks-cpu.json")
    page = (ROOT / "benchmarks/README.md").read_text()
    for row in record.rows:
        if row.get("ratio", 0) > 1.02:
            assert re.search(rf"^## .*\b{row['row']}\b", page, re.M)


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
    said = f"reached {whole[0]}, {whole[1]} and {whole[2]} bits per letter in at most"
    assert f"{said} {seconds:.0f} seconds of processor time (one thread)" in page
    assert f"entropy is {floor} (`make rerun RECORD=results/measurements/race.json`)" in page
    assert f"With `length=128`, the losses were {short[0]}, {short[1]} and {short[2]}" in page
    stories = load_text("stories", "val").split("\n")[:500]
    assert f"the average story has {statistics.mean(map(len, stories)):.0f} letters" in page


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
    folders = "results/README.md", "benchmarks/README.md"
    for page in ("CONTRIBUTING.md", "WEIGHTS-NOTICE.md", *folders):
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)#]+)|src(?:set)?=\"([^\"]+)", text):
            there = (ROOT / page).parent / "".join(target)
            assert there.exists(), f"{page} links to {there}"


def test_links_of_the_readme_work_on_a_package_index_too():
    "They are absolute, built from the address in settings.ini, and lead to files that exist."
    known, text = cards.settings(), (ROOT / README).read_text(encoding="utf-8")
    code = f"{known['git_url']}/blob/{known['branch']}/"
    raw = code.replace("//github.com", "//raw.githubusercontent.com").replace("/blob/", "/")
    links = re.findall(r"\]\(([^)#]+)", text)
    pictures = re.findall(r'src(?:set)?="([^"]+)', text)
    ours = [link for link in links if link.startswith(known["git_url"])]
    assert len(ours) > 10 and len(pictures) == 2
    assert all(link.startswith("https://") for link in links)
    for base, targets in ((code, ours), (raw, pictures)):
        for target in targets:
            assert target.startswith(base) and (ROOT / target.removeprefix(base)).exists(), target


@pytest.mark.parametrize("page", [README, "CONTRIBUTING.md", "book/use.md"])
def test_every_page_says_the_same_of_python(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert len(re.findall(r"Python 3\.\d", text)) == text.count(cards.pythons()) == 1


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
