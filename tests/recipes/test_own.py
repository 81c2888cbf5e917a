"""Data of your own: read, split by a rule, hashed, refused in a line; the sizes that you want."""

import contextlib
import importlib
import io
import json
import random
import re
import shutil
import signal
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from transformer_lit import __version__
from transformer_lit.course.data import number_pairs
from transformer_lit.course.files import InputError, read_json, write_json
from transformer_lit.course.settings import field_words
from transformer_lit.course.text_files import hash_files, pairs_from_files, text_from_files
from transformer_lit.inference.metrics import bleu
from transformer_lit.models.llama import LlamaConfig
from transformer_lit.recipes.cli import _spread, main
from transformer_lit.recipes.language_model import LanguageModeling
from transformer_lit.recipes.masked import MaskedModeling
from transformer_lit.recipes.recipe import finish_training, open_training, preset, settings_text
from transformer_lit.recipes.translation import Translation
from transformer_lit.recipes.zoo import RECIPES, load, model_names
from transformer_lit.text.tokenizer import BPETokenizer
from transformer_lit.training.run import checkpoints, read_log

SMALL = {"d_model": 8, "n_layers": 1, "n_heads": 2, "n_kv_heads": 2, "d_ff": 13}
FEW = {"length": 11, "batch_size": 3, "steps": 4, "every": 2, "tokens": "characters"}
PAIRS = {"d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 13, "vocab_size": 270}


BAD = {
    "empty": b" \n",
    "binary": b"\x7fELF\x00\x01",
    "mixed": "fährt ".encode() + "fährt".encode("latin-1"),
    "short": b"A man is riding.",
    "few": b"one\ntwo\n",
    "one.tsv": b"one\teins\n",
    "qa.jsonl": b'{"question": "Who?", "answer": "Me."}\n' * 30,
}


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    "A folder with a text, a folder of two, and pairs of sentences in both forms."
    texts = {"a": "A man is riding a bike.\n" * 20, "b/c": "A bike is riding a man.\n" * 10}
    for name, text in texts.items():
        path = tmp_path / f"mytext/{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    pairs = number_pairs("train")[:150]
    for side, name in enumerate(("src", "tgt")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    (tmp_path / "both.tsv").write_text("".join(f"{a}\t{b}\tby me\n" for a, b in pairs))
    for name, content in BAD.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_is_its_txt_files_and_a_tenth_of_each_is_held_out(here):
    (here / "mytext/notes.md").write_text("not read")
    texts = [(here / f"mytext/{name}.txt").read_text() for name in ("a", "b/c")]
    train, val = (text_from_files(["mytext"], split) for split in ("train", "val"))
    assert val == "\n".join(text[-(len(text) // 10) :] for text in texts)
    assert train == "\n".join(text[: -(len(text) // 10)] for text in texts)
    assert text_from_files(["mytext/a.txt", "mytext/b"], "train") == train


@pytest.mark.parametrize("lengths", [[7] * 53, [40, *[7] * 29], [331], [100, 97], []])
def test_what_is_held_out_begins_a_line_where_one_begins_near(here, lengths):
    text = "".join("x" * (n - 1) + "\n" for n in lengths) or "\n".join("abcdefgh")
    (here / "one.txt").write_text(text)
    train, val = (text_from_files(["one.txt"], split) for split in ("train", "val"))
    assert train + val == text and len(text) // 10 <= len(val) <= len(text) // 5
    begins = 2 * (len(text) // 10) > len(text) - (text[: -(len(text) // 10)].rfind("\n") + 1)
    assert train.endswith("\n") if begins else len(val) == len(text) // 10


def test_a_hash_knows_names_and_texts_of_a_folder(here):
    before = hash_files(["mytext", "src"])
    assert set(before) == {"mytext", "src"}
    (here / "mytext/a.txt").rename(here / "mytext/z.txt")
    assert hash_files(["mytext"])["mytext"] != before["mytext"]


def test_two_files_and_one_table_are_the_same_pairs():
    for split in ("train", "val", "test"):
        assert pairs_from_files(["src", "tgt"], split) == pairs_from_files(["both.tsv"], split)


def test_what_is_held_out_stays_so_whatever_is_added(here):
    "By the letters of the source alone. A target may occur again: labels and short answers do."
    parts = {split: pairs_from_files(["both.tsv"], split) for split in ("train", "val", "test")}
    lines = (here / "both.tsv").read_text().splitlines()
    more = [f"{a}\t{b}" for a, b in number_pairs("val")[:70]]
    (here / "more.tsv").write_text("\n".join(random.Random(0).sample(lines + more, 220)))
    for split in ("val", "test"):
        assert set(parts[split]) < set(pairs_from_files(["more.tsv"], split))
    held = parts["val"] + parts["test"]
    assert len(parts["train"]) + len(held) == 150 and 5 < len(held) < 30
    repeated = [f"{held[0][0]}\tetwas\n", f"something\t{held[0][1]}\n"]
    (here / "twice.tsv").write_text("\n".join([*lines, *map(str.strip, repeated)]))
    answer = ("something", held[0][1])
    assert pairs_from_files(["twice.tsv"], "train") == [*parts["train"], answer]
    signs = ["".join(random.Random(n).choices("😀😁😂🤣", k=8)) for n in range(300)]
    (here / "signs.tsv").write_text("".join(f"{source}\tlaughs\n" for source in signs))
    counts = [len(pairs_from_files(["signs.tsv"], part)) for part in ("train", "val", "test")]
    assert sum(counts) == 300 and min(counts) > 5


@pytest.mark.parametrize("read", [text_from_files, pairs_from_files])
@pytest.mark.parametrize("given", [("val",), ("test",), ("val", "test")])
def test_files_to_validate_and_test_on_are_whole_and_take_nothing_from_the_others(
    here, read, given
):
    whole = {"mytext/a.txt": "mytext/a.txt", "mytext/b/c.txt": "mytext/b/c.txt"}
    names = ["both.tsv", "few.tsv"] if read is pairs_from_files else [*whole]
    (here / "few.tsv").write_text("\n".join((here / "both.tsv").read_text().splitlines()[::9]))
    own = {split: [names[1]] for split in given}
    parts = {}
    for split in {"train", "val", *given}:
        parts[split] = read([names[0]], split, **own)
    if read is text_from_files:
        assert all(parts[split] == (here / names[1]).read_text() for split in given)
        assert "val" in given or parts["train"] + parts["val"] == (here / names[0]).read_text()
        assert "val" not in given or parts["train"] == (here / names[0]).read_text()
        return
    few = [tuple(line.split("\t")[:2]) for line in (here / names[1]).read_text().splitlines()]
    assert all(parts[split] == few for split in given)
    rest = [
        pair
        for split in {"train", "val", "test"} - {*given}
        for pair in read(names[:1], split, **own)
    ]
    assert not {source for source, _ in few} & {source for source, _ in parts["train"]}
    assert {*rest, *few} == {
        pair for split in ("train", "val", "test") for pair in read(names[:1], split)
    }


def test_what_becomes_of_the_pairs_is_told(here):
    with (here / "both.tsv").open("a") as file:
        file.write("no target\t\n\n\tno source\n")
    told = "152 pairs read: 134 for training, 7 for validation, 9 for testing; 2 with an empty side"
    assert pairs("both.tsv").remarks(BPETokenizer.train([], 259), []) == [f"{told} are dropped"]
    parts = [len(pairs_from_files(["both.tsv"], part)) for part in ("train", "val", "test")]
    assert parts == [134, 7, 9]


def test_the_vocabulary_has_what_occurs_often_in_whatever_writing():
    recipe = Translation.from_files("both.tsv")
    often, seldom = [("雨", "rain")] * 3, [("山", "snow")] * 2
    tok = recipe.train_tokenizer(often + seldom)
    lengths = {text: len(tok.encode(text)) for text in ("雨", "rain", "山", "snow")}
    assert lengths == {"雨": 1, "rain": 1, "山": 3, "snow": 4}
    assert recipe.train_tokenizer(often * 2).vocab_size == 259 + 2 + 3 < 5000
    assert pairs("both.tsv").train_tokenizer(often + seldom).tokens("山") == ["山"]


@pytest.mark.parametrize(("passes", "dropout"), [(10, 0), (20, 0.1), (30, 0.2), (900, 0.2)])
def test_the_dropout_fits_how_often_the_pairs_are_read(passes, dropout):
    examples = [("a source", "a target of thirty characters.")] * 150  # 10 tokens each, roughly
    recipe = Translation.from_files("both.tsv", steps=passes, max_tokens=1500)
    assert recipe.fitted(examples).sizes["dropout"] == dropout
    told = Translation.from_files("both.tsv", steps=passes, dropout=0.3)
    assert told.fitted(examples) == told
    assert "  dropout=auto " in settings_text(Translation, "own")
    assert max(range(41), key=text("both.tsv", steps=40, warmup=0.5).schedule()) == 20


def text(*files, **changes):
    return LanguageModeling.from_files(*files, **{**SMALL, **FEW, **changes})


def pairs(*files, **changes):
    return Translation.from_files(*files, **{**PAIRS, **changes})


REFUSED = [  # what is asked for, how, and the words of the one line
    (text, ["none.txt"], {}, "cannot read none.txt"),
    (text, ["empty"], {}, "empty is empty"),
    (text, ["binary"], {}, "binary is not a text file: it contains a zero byte"),
    (text, ["mixed"], {}, "mixed is not UTF-8"),
    (
        text,
        ["qa.jsonl"],
        {},
        "qa.jsonl has a record on each line, .* conversations: .* --data FILE --from MODEL`",
    ),
    (text, ["mytext"], {"val_paths": ["qa.jsonl"]}, "qa.jsonl has a record"),
    (text, ["mytext"], {"test_paths": ["none.txt"]}, "cannot read none.txt"),
    (text, [], {"val_paths": ["mytext"]}, "need files to train on. Add: --text FILE"),
    (text, ["short"], {}, "tokens are too few for two blocks"),
    (text, [], {}, "Name them with --text"),
    (text, ["mytext"], {"n_heads": 3}, "n_kv_heads must divide n_heads=3, got 2"),
    (text, ["mytext"], {"optimizer": "sgd"}, "No optimizer named 'sgd'. Choose from: adamw, muon"),
    (text, ["mytext"], {"d_modle": 9}, "model run has no d_modle; did you mean d_model"),
    (text, ["mytext"], {"step": 9}, "did you mean steps"),
    (text, ["mytext"], {"learning_rate": 0.1}, "did you mean lr"),
    (text, ["mytext"], {"source": "en"}, "language-model run has no source; leave it out"),
    (text, ["mytext"], {"steps": "many"}, "steps must be a whole number, got 'many'"),
    (text, ["mytext"], {"steps": "4.5"}, "steps must be a whole number, got '4.5'"),
    (text, ["mytext"], {"steps": "0"}, "steps must be a positive integer"),
    (text, ["mytext"], {"lr": "nan"}, "lr must be a number, got 'nan'"),
    (text, ["mytext"], {"tokens": "letters"}, "tokens must be characters or a whole number"),
    (text, ["mytext"], {"tied": "maybe"}, "tied must be true or false"),
    (text, ["mytext"], {"model": "mamba"}, "No model named 'mamba'. Choose from: transformer, gpt"),
    (
        text,
        ["mytext"],
        {"model": "bert", "n_kv_heads": None},
        "be gpt or llama or assembly, got 'b",
    ),
    (pairs, ["src", "few"], {}, "src has 150 lines but few has 2 lines. Line n of one must"),
    (pairs, ["src"], {}, "src, line 1 has no tab"),
    (pairs, ["src", "src", "tgt"], {}, "Give two files with a sentence"),
    (pairs, ["one.tsv"], {}, "None of 1 pairs falls into"),
    (pairs, ["src", "empty"], {}, "empty is empty"),
    (pairs, ["both.tsv"], {"max_tokens": 7}, "max_tokens=7"),
    (pairs, ["both.tsv"], {"fall": "line"}, "No fall named 'line'. Choose from: inverse_sqrt"),
    (pairs, ["both.tsv"], {"name": "large"}, "No preset named 'large'. Choose from: numbers"),
]


@pytest.mark.parametrize(("make", "files", "changes", "told"), REFUSED)
def test_what_cannot_be_trained_is_one_line_and_leaves_nothing(here, make, files, changes, told):
    before = sorted(here.iterdir())
    with pytest.raises(InputError, match=told) as failure:
        open_training(make(*files, **changes), "run", device="cpu")
    assert "\n" not in str(failure.value) and sorted(here.iterdir()) == before


def test_a_run_goes_on_with_what_it_has_read_and_with_nothing_else(here):
    recipe = text("mytext")
    for resume in (False, True):
        open_training(recipe, "run", device="cpu", resume=resume)
    (here / "mytext/a.txt").write_text("A man is driving a car.\n" * 20)
    with pytest.raises(InputError, match=r"settings: sha256 of mytext '\w{12}' → '\w{12}'\. C"):
        open_training(recipe, "run", device="cpu", resume=True)


def test_a_task_that_reads_its_own_is_hashed_too(here):
    "A subclass with examples of its own, as the recipe chapter has it: nothing fails at the end."

    @dataclass(frozen=True, kw_only=True)
    class Mine(LanguageModeling):
        def examples(self, split, *, progressbar=False):
            return "A man is riding a bike.\n" * (20 if split == "train" else 3)

    recipe = preset(Mine, "shakespeare-cpu", dataset="mine", **SMALL, **FEW)
    assert type(recipe) is Mine
    training = open_training(recipe, "run", device="cpu")
    training.train()
    record = finish_training(training, name="n", command="c", results="results")
    assert set(record.data_sha256) == {"train", "val"}


class TestSettings:
    def test_a_change_is_a_field_or_a_size_and_texts_are_read_by_type(self):
        changed = preset(
            LanguageModeling, "own", d_model="96", steps="400", betas="0.9,0.95", tied="true"
        )
        assert changed.sizes["d_model"] == 96 and changed.sizes["n_layers"] == 4
        assert (changed.steps, changed.betas, changed.sizes["tied"]) == (400, (0.9, 0.95), True)
        assert preset(LanguageModeling, "own", **{"sizes.eps": 1e-6}).sizes["eps"] == 1e-6
        assert preset(LanguageModeling, "own", eps="1e-6").eps == 1e-6
        assert preset(LanguageModeling, "own", tokens="512").tokens == 512
        assert preset(LanguageModeling, "own", n_kv_heads="none").sizes["n_kv_heads"] is None
        assert preset(LanguageModeling, "own", steps=None) == LanguageModeling.presets["own"]

    def test_another_model_keeps_the_sizes_that_it_has(self):
        assert set(preset(LanguageModeling, "own", model="gpt").sizes) == {
            *("d_model", "n_layers", "n_heads", "d_ff")
        }

    @pytest.mark.parametrize("kind", RECIPES.values(), ids=RECIPES)
    def test_every_field_has_words(self, kind):
        assert not [name for name, said in field_words(kind).items() if not said]
        assert set(field_words(kind)) == {field.name for field in fields(kind)}
        assert field_words(LlamaConfig)["d_model"].startswith("C, width")

    def test_the_command_repeats_what_was_changed(self, here):
        (here / "my text").write_text("A man is riding a bike.\n")
        recipe = LanguageModeling.from_files("my text", steps=300, d_model=96, lr=0.002)
        assert recipe.command("own", seed=1) == (
            "transformer-lit train language-model --text 'my text' --preset own --seed 1 "
            "--steps 300 --set lr=0.002 d_model=96"
        )
        name = re.fullmatch(
            r"own-my-text-(\w{6})-steps300-lr0.002-d_model96-seed1", recipe.run_name("own", seed=1)
        )
        moved = (here / "elsewhere").mkdir() or (here / "my text").rename("elsewhere/my text")
        recipe = LanguageModeling.from_files(str(moved))
        assert recipe.run_name("own", seed=1) == f"own-my-text-{name[1]}-seed1"
        moved.write_text("another text of that name")
        assert recipe.run_name("own", seed=1) != f"own-my-text-{name[1]}-seed1"


class TestStart:
    def trained(self, recipe):
        run = open_training(recipe, "first", device="cpu")
        run.train()
        finish_training(run, name="first", command="c", results="results")
        return load("first")

    def test_weights_and_tokenizer_are_those_of_the_start(self, here):
        start = self.trained(text("mytext"))
        (here / "new.txt").write_text("a man is a bike.\n" * 30)
        recipe = LanguageModeling.from_files("new.txt", like=start, steps=2, batch_size=2)
        assert recipe.sizes == {**recipe.sizes, **SMALL} and recipe.length == FEW["length"]
        run = open_training(recipe, "second", device="cpu", start=start)
        assert run.trained.tokenizer.characters == start.tokenizer.characters
        torch.testing.assert_close(
            run.trained.model.state_dict(), start.model.state_dict(), rtol=0, atol=0
        )
        assert run.data["start"] and set(run.data) == {"new.txt", "start"}
        with pytest.raises(InputError, match="sha256 of start"):
            open_training(recipe, "second", device="cpu", resume=True)

    def test_a_masked_model_is_scored_in_rows_as_it_learned(self, here):
        small = {**PAIRS, **FEW, "tokens": 270}
        del small["vocab_size"]
        start = self.trained(MaskedModeling.from_files("mytext", **small))
        recipe = MaskedModeling.from_files("mytext", like=start, length=5, steps=2)
        run = open_training(recipe, "second", device="cpu", start=start)
        read = "A man is riding a bike. " * 7
        scores = [one.score(read)["perplexity"] for one in (run.trained, start)]
        start.info["length"] = 5
        assert scores[0] == start.score(read)["perplexity"] != scores[1]


def test_own_text_in_another_writing_system_comes_out_whole(here):
    chinese = "".join(random.Random(0).choices("我你他在是学习注意力，。\n", k=900))
    (here / "zh.txt").write_text(chinese)
    run = open_training(text("zh.txt", tokens=270), "run", device="cpu")
    tokenizer = run.trained.tokenizer
    assert all("\ufffd" not in tokenizer.decode([i]) for i in tokenizer.encode(chinese))
    assert not run.notes
    start = load("stories")
    like = LanguageModeling.from_files("zh.txt", like=start, steps=1)
    (note,) = open_training(like, "tuned", device="cpu", start=start).notes
    assert re.match(
        r"a character of this text takes [23]\.\d tokens, .* --from learns its own", note
    )


@pytest.mark.usefixtures("no_shape_checks")
def test_what_only_scores_and_figures_need_may_be_missing(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    monkeypatch.delitem(sys.modules, "transformer_lit.course.figures", raising=False)
    run = open_training(text("mytext"), "run", device="cpu")
    run.train()
    finish_training(run, name="n", command="c", results="results")
    assert "matplotlib: pip install matplotlib" in run.notes[0]
    assert (here / "run/model").exists() and not (here / "run/curve.svg").exists()
    with pytest.raises(InputError, match=r"A figure needs matplotlib, .*: pip install matplotlib$"):
        importlib.import_module("transformer_lit.course.figures")
    with pytest.raises(InputError, match=r"BLEU needs sacrebleu, .*: pip install sacrebleu$"):
        open_training(pairs("both.tsv"), "pairs", device="cpu")
    with pytest.raises(InputError, match="BLEU needs sacrebleu"):
        bleu(["a"], ["a"])
    assert not (here / "pairs").exists()
    assert load("everyday-en-de").translate(["A man is riding a bike."])


class TestLonger:
    "A run that has ended goes on to more steps where the rates of its steps stay what they were."

    def recipe(self, steps, fall="inverse_sqrt"):
        how = {"every": 3, "warmup": 2, "average": 2, "fall": fall}
        return Translation.from_files("both.tsv", **PAIRS, **how, steps=steps)

    def test_a_longer_run_is_one_that_was_always_so_long(self, here):
        for steps in (5, 11):
            open_training(self.recipe(steps), "cut", device="cpu", resume=steps == 11).train()
        open_training(self.recipe(11), "whole", device="cpu").train()
        rows = [[row["loss"] for row in read_log(f"{name}/log.jsonl")] for name in ("cut", "whole")]
        assert rows[0] == rows[1] and len(rows[0]) == 11
        ends = [checkpoints(f"{name}/checkpoints") for name in ("cut", "whole")]
        assert [[path.name for path in end] for end in ends] == [
            ["step-0000009", "step-0000011"]
        ] * 2
        for one, other in zip(*ends, strict=True):
            names = ("model.safetensors", "optimizer.safetensors")
            assert all((one / n).read_bytes() == (other / n).read_bytes() for n in names)
        assert read_json("cut/run.json") == read_json("whole/run.json")

    def test_where_the_rate_ends_with_the_steps_it_says_so(self, here):
        open_training(self.recipe(5, "cosine"), "run", device="cpu")
        before = (here / "run/run.json").read_bytes()
        with pytest.raises(InputError, match="planned for 5 steps, and its rates fit them"):
            open_training(self.recipe(11, "cosine"), "run", device="cpu", resume=True)
        with pytest.raises(InputError, match=r"settings: steps 5 → 3; warmup 2 → 1\. Choose"):
            shorter = replace(self.recipe(3, "cosine"), warmup=1)
            open_training(shorter, "run", device="cpu", resume=True)
        assert (here / "run/run.json").read_bytes() == before


FEW_SET = ("d_model=8", "n_layers=1", "d_ff=13", "length=11", "batch_size=3", "tokens=characters")
FEW_LM = ("train", "language-model", "--text", "mytext", "--set", *FEW_SET, "n_heads=2")
FEW_PAIRS = ("--set", *(f"{name}={value}" for name, value in PAIRS.items()))


@pytest.fixture
def run(capfd, monkeypatch):
    "Run the command in this process: exit code, standard output, standard error."
    monkeypatch.setattr("transformer_lit.training.options.keep_freed_memory", lambda: None)

    def run(*args):
        capfd.readouterr()
        return main(list(args)), *capfd.readouterr()

    return run


class TestCommand:
    def test_a_folder_to_a_text(self, run, here):
        train = (*FEW_LM, "steps=4", "--every", "2", "--out", "runs/my")
        code, out, err = run(*train)
        assert (code, err) == (0, "")  # no bar in a file
        said, _, sample = out.partition("\n\n")
        assert "bits per byte; model in runs/my/model" in said
        assert sample == (here / "runs/my/sample.txt").read_text()
        assert (here / "runs/my/curve.svg").read_text().count("<svg") == 1
        (record,) = (json.loads(path.read_text()) for path in (here / "results").iterdir())
        assert record["data_sha256"] == hash_files(["mytext"])
        assert record["command"].startswith("transformer-lit train language-model --text mytext ")
        assert "--every 2 --set " in record["command"] and "d_model=8" in record["command"]
        code, scored, err = run("evaluate", "--checkpoint", "runs/my")
        assert (code, scored.strip()) == (0, said.split(";")[0]), err
        metrics = json.loads(run("evaluate", "--checkpoint", "runs/my", "--json")[1])
        assert metrics["val_loss"] == pytest.approx(record["metrics"]["val_loss"])
        with open("mytext/a.txt", "a") as file:
            file.write("What was held out may be trained on now.\n")
        code, _, err = run("evaluate", "--checkpoint", "runs/my")
        assert code == 2 and "mytext changed or moved since the training" in err
        say = ("generate", "A bike", "--model", "runs/my", "--max-new-tokens", "5", "--seed", "0")
        told = json.loads(run(*say, "--json")[1])
        assert run(*say)[1] == f"{told['prompt']}{told['text']}\n"

        code, out, err = run("train", "language-model", "--text", "src", "--from", "runs/my")
        assert code == 2 and "never seen the character" in err
        more = ("--from", "runs/my", "--steps", "1", "--out", "more", "--json")
        code, out, err = run("train", "language-model", "--text", "mytext/b", *more)
        assert code == 0 and json.loads(out)["config"]["sizes"]["d_model"] == 8
        assert (
            json.loads(out)["name"].endswith("-from-my")
            and "start" in json.loads(out)["data_sha256"]
        )

    def test_a_run_is_used_from_any_folder(self, run, here, monkeypatch):
        train = (*FEW_LM, "steps=2", "--every", "2", "--out", "runs/my")
        assert run(*train)[0] == 0
        scored = run("evaluate", "--checkpoint", "runs/my")
        (here / "other").mkdir()
        monkeypatch.chdir(here / "other")
        for name in ("../runs/my", "../runs/my/model", str(here / "runs/my")):
            assert run("evaluate", "--checkpoint", name) == scored
        assert run("train", "--resume", "--out", "../runs/my")[0] == 0
        assert Path.cwd() == here / "other" and not [*Path().iterdir()]  # the record is elsewhere
        shutil.move(here / "runs/my/model", "moved")
        code, _, err = run("evaluate", "--checkpoint", "moved")
        assert code == 2 and "mytext changed or moved since the training" in err

    @pytest.mark.parametrize("files", [("src", "tgt"), ("both.tsv",)], ids=["two", "one"])
    def test_pairs_to_a_translation(self, run, files, monkeypatch):
        train = ("train", "translation", "--pairs", *files, *FEW_PAIRS, "steps=2", "average=1")
        code, out, err = run(*train, "--out", "run")
        assert (code, err) == (
            0,
            "150 pairs read: 134 for training, 7 for validation, 9 for testing\n",
        )
        assert "BLEU" in out and out.count("\n→ ") == 3
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfone\r\n\rtwo\n"))
        )
        code, out, err = run("translate", "-", "--model", "run", "--json")
        rows = [json.loads(line) for line in out.splitlines()]
        assert [row["source"] for row in rows] == ["one", "", "two"] and rows[1]["target"] == ""

    @pytest.mark.parametrize("task", RECIPES)
    def test_the_help_of_a_recipe_lists_its_settings_with_their_words(self, run, task):
        code, out, _ = run("train", task, "--help")
        assert code == 0
        for name, said in field_words(RECIPES[task]).items():
            assert name in ("paths", "val_paths", "test_paths", "sizes") or (
                f"  {name}=" in out and said in out
            )
        assert "  d_model=" in out and f"Presets: {next(iter(RECIPES[task].presets))}" in out

    @pytest.mark.parametrize("task", RECIPES)
    def test_the_help_shows_the_preset_that_is_named_or_that_files_take(self, run, task):
        kind = RECIPES[task]
        named = [((f"--preset={n}",), n) if n < "o" else (("--preset", n), n) for n in kind.presets]
        files = [(("src",), "own"), ((f"--{kind.reads}", "src"), "own")]
        files = files if "own" in kind.presets else []  # a reward of your own needs code
        for words, name in [((), next(iter(kind.presets))), *named, *files]:
            code, out, _ = run("train", task, *words, "--help")
            assert code == 0 and f"\nSettings of {name}:\n" in out
            for setting in ("steps", "lr", "dataset"):
                value = getattr(kind.presets[name], setting)
                assert f"  {setting}={value} " in out, (name, setting)

    def test_the_help_of_train_names_every_recipe(self, run):
        assert all(task in run("train", "--help")[1] for task in RECIPES)

    def test_a_run_goes_on_by_its_folder(self, run, here):
        "All that began it is in the folder: recipe, files, start, seed, type; more must agree."
        train = (*FEW_LM, "steps=2", "--every", "1")
        assert run(*train, "--out", "first", "--results", "r1")[0] == 0
        more = ("--text", "mytext/b", "--valid", "mytext/a.txt", "--from", "first", "--seed", "5")
        more += ("--steps", "3", "--every", "1", "--dtype", "bfloat16", "--results", "r2")
        code, out, _ = run("train", "language-model", *more, "--out", "run", "--json")
        assert code == 0
        whole, command = json.loads(out), ("train", "--resume", "--out", "run")
        for checkpoint in checkpoints("run/checkpoints")[1:]:
            shutil.rmtree(checkpoint)
        before = read_json("run/run.json")
        for words in ((), ("--seed", "5"), ("--set", "lr=0.004"), more):
            recipe = ("language-model",) if words else ()
            code, out, err = run(command[0], *recipe, *command[1:], *words, "--json")
            assert code == 0 and err.endswith(" is done\n") and read_json("run/run.json") == before
            again = json.loads(out)
            assert again["metrics"] == whole["metrics"] and again["name"] == whole["name"]
        assert len(list((here / "r2").iterdir())) == 1 and not (here / "results").exists()
        contradictions = {
            "lr 0.004 → 0.5": ("--set", "lr=0.5"),
            "seed 5 → 6": ("--seed", "6"),
            "dtype 'bfloat16' → 'float32'": ("--dtype", "float32"),
            "val_paths": ("--valid", "src"),
            "paths": ("--text", "mytext"),
            "of start": ("--from", "stories"),
            "has no pairs": ("--pairs", "src"),
            "planned for 3 steps, and its rates fit them. For 1250": ("--preset", "stories"),
        }
        for told, words in contradictions.items():
            code, out, err = run(*command, *words)
            assert code == 2 and told in err and err.count("\n") == 1, (told, err)
        code, _, err = run("train", "translation", *command[1:])
        assert code == 2 and "run is a language-model run, not translation. Use another" in err
        del before["train"]  # as an earlier version wrote it
        write_json("run/run.json", before)
        assert "run.json has no recipe. Type: train RECIPE --resume --out run" in run(*command)[2]

    def test_files_to_test_on_are_scored_then_and_later(self, run, here):
        train = (*FEW_LM, "steps=2", "--test", "mytext/b", "mytext/a.txt", "--out", "run")
        code, out, err = run(*train)
        assert code == 0, err
        (record,) = (json.loads(path.read_text()) for path in (here / "results").iterdir())
        assert record["split"] == "test" and "--test mytext/b mytext/a.txt" in record["command"]
        assert {"mytext", "mytext/b", "mytext/a.txt"} == {*record["data_sha256"]}
        assert run("evaluate", "--checkpoint", "run")[1].strip() == out.split(";")[0]
        files = ("--text", "mytext/b", "mytext/a.txt")
        assert run("evaluate", "--checkpoint", "run", *files)[1].strip() == out.split(";")[0]
        for words in (("--pairs", "both.tsv"), (*files, "--split", "val")):
            code, out, err = run("evaluate", "--checkpoint", "run", *words)
            assert (code, out) == (2, "") and err.endswith("or on files: --text FILE\n")
        with open("mytext/a.txt", "a") as file:
            file.write("It is another file.\n")
        assert "To score now: --text FILE" in run("evaluate", "--checkpoint", "run")[2]

    def test_tensorboard_reads_the_log(self, run, here, monkeypatch):
        "By torch's writer; this one stands in for it, since the package may not be installed."
        told = []

        class SummaryWriter(contextlib.nullcontext):
            def __init__(self, folder, purge_step):
                super().__init__(self)
                told.append((folder, purge_step))

            def add_scalar(self, name, value, step):
                told.append((name, value, step))

        train = (*FEW_LM, "steps=3", "--every", "2", "--tensorboard", "--out", "run")
        monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
        monkeypatch.setitem(sys.modules, "tensorboard", None)
        code, _, err = run(*train)
        assert code == 2 and err.endswith(
            ", which is not installed. To install it: pip install tensorboard\n"
        )
        assert not (here / "run").exists()
        module = SimpleNamespace(SummaryWriter=SummaryWriter)
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
        assert run(*train)[0] == 0
        rows, names = read_log("run/log.jsonl"), ("loss", "lr", "grad_norm", "val_loss")
        expected = [(n, row[n], row["step"]) for row in rows for n in names if n in row]
        assert told == [("run/tensorboard", 1), *expected] and len(expected) == 3 * 3 + 2
        shutil.rmtree(checkpoints("run/checkpoints")[-1])
        assert run("train", "--resume", "--out", "run", "--tensorboard")[0] == 0
        assert told[len(expected) + 1 :] == [("run/tensorboard", 3), *expected[-4:]]

    def test_words_belong_to_the_option_before_them(self):
        words = ["x", "--set", "a=1", "b=2", "--out", "o", "--text", "-", "f"]
        spread = ["x", "--set", "a=1", "--set", "b=2", "--out", "o", "--text", "-", "--text", "f"]
        assert _spread(words, {"--set", "--text"}) == spread

    def test_what_there_is(self, run):
        assert run("--version") == (0, f"{__version__}\n", "")
        code, out, _ = run("models", "--json")
        rows = [json.loads(line) for line in out.splitlines()]
        assert code == 0 and {row["name"] for row in rows} >= set(model_names())
        assert run("models")[1].count("\n") == len(rows)
        rows = [json.loads(line) for line in run("data", "list", "--json")[1].splitlines()]
        assert {row["state"] for row in rows} <= {"here", "to fetch", "damaged"}

    def test_ctrl_c_saves_and_says_how_to_go_on(self, run, here, monkeypatch, request):
        "And what goes on is a run that never stopped, though it saved between its checkpoints."
        train = (*FEW_LM, "steps=7", "average=2", "--every", "3", "--out")
        assert run(*train, "whole")[0] == 0
        from transformer_lit.recipes import cli

        def stop(bar, loss):
            signal.raise_signal(signal.SIGINT)

        # who is started in the background may not hear it
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
        with monkeypatch.context() as once:
            once.setattr(cli, "_show", stop)
            code, out, err = run(*train, "cut")
        assert (code, out) == (130, "")
        told, last = err.splitlines()
        assert last == "interrupted" and told.startswith("Saved: step-0000002. Continue with: ")
        assert told.endswith(": transformer-lit train --resume --out cut")
        code, out, err = run("train", "--resume", "--out", "cut")
        assert (code, err) == (0, "step 2 is done\n")
        ends = [checkpoints(f"{name}/checkpoints") for name in ("cut", "whole")]
        assert [path.name for path in ends[0]] == ["step-0000006", "step-0000007"]
        for path in ("model.safetensors", "optimizer.safetensors"):
            assert (ends[0][1] / path).read_bytes() == (ends[1][1] / path).read_bytes()
        models = [here / name / "model/model.safetensors" for name in ("cut", "whole")]
        assert models[0].read_bytes() == models[1].read_bytes()
