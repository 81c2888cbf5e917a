"""One seam for all tasks: a run may be killed, a folder belongs to one, what was saved is read."""

import json
import os
import shutil
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from transformer_lit.attention.attend import attend
from transformer_lit.course.files import InputError, read_json, seal, sha256, unseal, write_json
from transformer_lit.course.records import read_result
from transformer_lit.course.tensors import load_tensors
from transformer_lit.models.assembly import AssemblyConfig, assemble
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.recipes import language_model
from transformer_lit.recipes.language_model import LanguageModel, LanguageModeling
from transformer_lit.recipes.recipe import (
    MODELS,
    Trained,
    build,
    finish_training,
    open_training,
    preset,
    read_run,
)
from transformer_lit.recipes.translation import Translation
from transformer_lit.recipes.zoo import RECIPES, load
from transformer_lit.text.tokenizer import CharTokenizer
from transformer_lit.training.run import average_weights, checkpoints, read_log

SIZES = {"d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 13, "dropout": 0.1}
TEXTS = {"train": "A man is riding a bike.\n" * 30, "val": "a bike is riding a man\n" * 5}


@pytest.fixture
def recipe(monkeypatch):
    "A language model of a text of one sentence, with dropout, so that the random state matters."
    monkeypatch.setattr(language_model, "load_text", lambda name, split, **_: TEXTS[split])
    changes = {"sizes": SIZES, "length": 11, "batch_size": 3, "steps": 7, "warmup": 2, "every": 2}
    return preset(LanguageModeling, "shakespeare-cpu", **changes, tokens=263, average=2)


def losses(folder):
    return [(row["step"], row["loss"], row.get("val_loss")) for row in read_log(folder)]


def train(recipe, out, **options):
    training = open_training(recipe, out, device="cpu", **options)
    training.train()
    return training


KILLS = """
import os, pathlib, random, signal, sys, time
from transformer_lit.course import data
from transformer_lit.recipes.recipe import open_training, preset
from transformer_lit.recipes.instruct import Instructing, Reasoning
from transformer_lit.recipes.language_model import LanguageModeling
from transformer_lit.recipes.translation import Translation
from transformer_lit.recipes.zoo import load

pairs = data.number_pairs
data.number_pairs = lambda split: pairs(split)[:53]  # each process cuts them into tokens anew
folder, kills = pathlib.Path(sys.argv[1]), int(sys.argv[3])
changes = {"sizes": %s, "steps": int(sys.argv[4]), "every": 3}
start, task = None, sys.argv[2]
if task in ("instruct", "reason"):
    start = load("running-sum")
    small = {"batch_size": 3, "rank": 2} | ({"group_size": 5} if task == "reason" else {})
    kind = {"instruct": Instructing, "reason": Reasoning}[task]
    recipe = preset(kind, "running-sum", like=start, **small, steps=changes["steps"], every=3)
elif task == "numbers":
    recipe = preset(Translation, "numbers", vocab_size=271, max_tokens=500, **changes)
else:
    short = {"length": 11, "batch_size": 3, "tokens": 263}
    changes["sizes"].pop("max_len")
    recipe = LanguageModeling.from_files(folder / "mytext", **short, **changes)
log, rng = folder / "killed/log.jsonl", random.Random(0)
# imports what each would import
open_training(recipe, folder / "never trained", device="cpu", start=start)

def begin(name):  # in a process of its own
    if (pid := os.fork()) == 0:
        open_training(recipe, folder / name, device="cpu", resume=True, start=start).train()
        os._exit(0)
    return pid

def rows():
    return log.read_bytes().count(b"\\n") if log.exists() else 0

def end(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

whole = begin("whole")
for kill in range(kills):
    pid, until = begin("killed"), rows() + rng.randint(2, 7)
    while rows() < until:
        assert os.waitpid(pid, os.WNOHANG)[0] == 0, "the run ended before it could be killed"
        time.sleep(0.002)
    time.sleep(rng.uniform(0, 0.01))  # longer, and a fast machine comes to the last step
    os.kill(pid, signal.SIGKILL)
    assert end(pid) == -signal.SIGKILL
    if kill == 5:
        with open(log, "a") as file:
            file.write('{"step": 1')  # what a kill in the middle of a write would leave
assert end(begin("killed")) == end(whole) == 0
"""


@pytest.mark.machinery
@pytest.mark.parametrize(
    ("data", "kills", "steps"),
    [("numbers", 20, 211), ("own text", 7, 79), ("instruct", 7, 79), ("reason", 7, 79)],
)
def test_kills_change_no_bit_of_the_weights(tmp_path, data, kills, steps):
    "Every third step writes a checkpoint, so a part of the kills hits the writing."
    (tmp_path / "mytext").mkdir()
    (tmp_path / "mytext/a.txt").write_text("A man is riding a bike.\n" * 90)
    code = KILLS % {**SIZES, "max_len": 97}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    told = map(str, (tmp_path, data, kills, steps))
    subprocess.run([sys.executable, "-c", code, *told], env=environment, check=True)
    logs = [losses(tmp_path / run / "log.jsonl") for run in ("whole", "killed")]
    assert logs[0] == logs[1] and len(logs[0]) == steps
    ends = [checkpoints(tmp_path / run / "checkpoints")[-1] for run in ("whole", "killed")]
    files = [{p.name: p.read_bytes() for p in end.glob("*.safetensors")} for end in ends]
    assert files[0] == files[1]
    assert not list((tmp_path / "killed").rglob(".*part*"))


def test_the_end_of_a_run_leaves_model_and_record(recipe, tmp_path):
    "More of it, and what another seed, dtype or recipe does to a run: the chapter of the recipe."
    training = train(recipe, tmp_path / "run", seed=3)
    assert training.trained.tokenizer.vocab_size == 263  # pieces, and not characters
    where = {"name": "n", "command": "c", "results": tmp_path / "results"}
    record = finish_training(training, **where, extra={"entry": "e"})
    assert read_result(tmp_path / "results/n.json") == record
    assert (record.seed, record.task, record.split) == (3, "language-model", "val")
    assert [row["step"] for row in record.curve] == [2, 4, 6, 7]
    assert record.metrics["entry"] == "e" and record.data_sha256
    assert record.parameters == sum(p.numel() for p in training.trained.model.parameters())
    assert len(checkpoints(tmp_path / "run/checkpoints")) == 2  # no more than are averaged
    assert finish_training(training, **where).metrics["val_loss"] == record.metrics["val_loss"]


@pytest.mark.parametrize(("losses", "of"), [((2.0, 1.0), "mean"), ((1.0, 2.0), "last")])
def test_the_validation_set_decides_between_the_last_checkpoint_and_the_mean(
    recipe, tmp_path, losses, of
):
    training = train(recipe, tmp_path / "run", seed=3)
    saved = [path / "model.safetensors" for path in checkpoints(tmp_path / "run/checkpoints")]
    expected = {"last": saved[-1:], "mean": saved[-2:]}[of]
    training.evaluate = iter(losses).__next__
    where = {"name": "n", "command": "c", "results": tmp_path / "results"}
    metrics = finish_training(training, **where).metrics
    assert metrics["averaged"] == len(expected)
    assert metrics["val_losses"] == dict(zip(("last", "mean"), losses))
    found = load_tensors(tmp_path / "run/model/model.safetensors")
    for name, x in average_weights(expected).items():
        torch.testing.assert_close(found[name], x, rtol=0, atol=0)


@pytest.mark.parametrize("steps", [1, 7, 60, 1500, 3001])
def test_shares_are_of_the_steps(steps):
    recipe = preset(Translation, "own", paths=("x",), steps=steps)
    rates = [recipe.schedule()(step) for step in range(1, steps + 1)]
    rises = recipe.in_steps(recipe.warmup)
    assert rates.index(max(rates)) + 1 == rises == max(1, round(0.1 * steps))
    assert 1 <= recipe.in_mean * recipe.in_steps(recipe.every) <= max(1, 0.16 * steps)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_comes_back_from_a_folder_as_what_it_was(name, tmp_path):
    "The folder says which model it holds, whatever the description was that came with it."
    sizes = {"d_model": 12, "n_layers": 1, "n_heads": 2, "d_ff": 13}
    model = build(name, vocab_size=5, **(sizes if name != "gru" else {"d_model": 12}))
    kind = RECIPES["language-model"].kind
    kind(model, CharTokenizer("\n abc"), {"dataset": "stories"}).save(tmp_path / "m")
    again = kind.load(tmp_path / "m")
    assert type(again.model) is type(model) and again.info == {"dataset": "stories"}
    assert again.model.config == model.config
    with pytest.raises(InputError, match="is for language-model, not translation"):
        RECIPES["translation"].kind.load(tmp_path / "m")


def test_what_changes_no_logit_of_a_loaded_model_is_saved(tmp_path):
    "Another kernel of the same sum, other dropout, other kinds of numbers."
    config = AssemblyConfig(5, d_model=12, n_heads=2, activation="gelu_tanh", dropout=0.3)
    model, ids = deepcopy(assemble(config)), torch.randint(5, (2, 67))
    for layer in model.layers:
        layer.attn.attend, layer.attn.dropout = attend, 0.0
    model.dropout.p = 0.7
    lm = LanguageModel(model.double(), CharTokenizer("\n abc"), {"dataset": "stories"})
    expected = lm.model(ids)  # its tables of angles have grown
    lm.save(tmp_path / "m")
    torch.testing.assert_close(LanguageModel.load(tmp_path / "m").model.double()(ids), expected)


@pytest.fixture
def folder(tmp_path):
    "A saved model, of characters."
    tokenizer = CharTokenizer.train("prime sizes")
    config = LlamaConfig(vocab_size=tokenizer.vocab_size, d_model=12, n_layers=1, n_heads=2, d_ff=5)
    LanguageModel(Llama(config), tokenizer, {"dataset": "stories"}).save(tmp_path / "model")
    return tmp_path / "model"


def test_weights_that_are_not_numbers_are_refused(folder):
    model = LanguageModel.load(folder)
    with torch.no_grad():
        model.model.layers[0].attn.k_proj.weight[3, 1] = torch.nan
    with pytest.raises(InputError, match=r"layers\.0\.attn\.k_proj\.weight has numbers"):
        model.save(folder.parent / "broken")
    assert not (folder.parent / "broken").exists()
    about = unseal(folder / "config.json")
    save_file(model.model.state_dict(), folder / "model.safetensors")  # by another hand
    seal(folder / "config.json", about, ["model.safetensors", "tokenizer.json"])
    with pytest.raises(InputError, match=r"layers\.0\.attn\.k_proj\.weight has numbers"):
        LanguageModel.load(folder)


NO_SIZES = {
    "n_layers": [10**7, "x", None, [1]],
    "d_model": [10**12, 0],
    "vocab_size": [10**12, 5],
    "dropout": [7, "x"],
    "d_head": [10**5, 10**9],
    "n_heads": [5],
    "eps": [-1, 0, float("nan"), 10**400, 10**7],
    "rope_base": [0, -1.0],
    "tied": ["x", 0],
    "unheard": [1],
}
NO_FIELDS = {
    "task": ["x", []],
    "family": ["x", {}],
    "model": [[], {}],
    "dataset": [5],
    "paths": [5],
    "data": [[], {"a": 1}],
    "lines": ["x"],
    "length": ["x", 0],
    "chat_template": [[5]],
    "ends": [5, [[1]]],
}
BY_HAND = [
    *((lambda told, n=n, v=v: told["model"].update({n: v})) for n in NO_SIZES for v in NO_SIZES[n]),
    *((lambda told, n=n, v=v: told.update({n: v})) for n in NO_FIELDS for v in NO_FIELDS[n]),
    *((lambda told, n=n: told.pop(n)) for n in ("task", "family", "model")),
]


def test_a_description_made_by_hand_is_one_sentence(folder):
    about = unseal(folder / "config.json")
    names = ["model.safetensors", "tokenizer.json"]
    for change in BY_HAND:
        told = deepcopy(about)
        change(told)
        seal(folder / "config.json", told, names)
        with pytest.raises(InputError) as caught:
            load(folder)
        assert "\n" not in str(caught.value)
    for files in ([], 5, {"a": 1}, {"model.safetensors": None}):
        value = about | {"files": files}
        digest = sha256(json.dumps(value, sort_keys=True).encode())
        write_json(folder / "config.json", value | {"seal": digest})
        with pytest.raises(InputError, match=r"names no files|cannot read|is damaged"):
            load(folder)
    seal(folder / "config.json", about, names)
    assert load(folder).info == {"dataset": "stories"}  # the one that was saved opens


BEGUN = [
    [],
    5,
    "x",
    {},
    {"steps": "x"},
    {"steps": 0},
    {"steps": -3},
    {"steps": None},
    {"steps": 2.5},
]


SETTINGS = [
    {"seed": "x"},
    {"dtype": "float16"},
    {"train": 5},
    {"train": {}},
    {"train": {"recipe": "x"}},
    {"train": {"recipe": [1]}},
    {"lr": "x"},
    {"lr": -1.0},
    {"model": "x"},
    {"sizes": 5},
    {"sizes": {"unheard": 1}},
    {"sizes": {"d_model": "x"}},
]


def test_settings_of_a_run_made_by_hand_are_one_sentence(recipe, tmp_path):
    train(recipe, tmp_path)
    good = read_json(tmp_path / "run.json")
    for value in BEGUN:
        made = good | value if value and isinstance(value, dict) else value
        write_json(tmp_path / "run.json", made)
        with pytest.raises(InputError, match=r"run\.json(: steps| is not a table)"):
            open_training(recipe, tmp_path, device="cpu", resume=True)
    kinds = {recipe.kind.task: type(recipe)}
    for value in [*BEGUN, *SETTINGS]:
        write_json(
            tmp_path / "run.json", good | value if isinstance(value, dict) and value else value
        )
        with pytest.raises(InputError) as caught:
            read_run(tmp_path, kinds)
        assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)
    write_json(tmp_path / "run.json", good)
    assert read_run(tmp_path, kinds)[0] == recipe


def test_a_clock_that_stands_gives_no_speed(recipe, tmp_path):
    run = train(recipe, tmp_path)
    run.seconds = 0.0
    record = finish_training(run, name="n", command="c", results=tmp_path / "results")
    assert record.tokens_per_second == record.minutes == 0


def test_checkpoints_of_another_seed_are_refused(recipe, tmp_path):
    for seed in (0, 5):
        train(recipe, tmp_path / str(seed), seed=seed)
    shutil.rmtree(tmp_path / "0/checkpoints")
    shutil.copytree(tmp_path / "5/checkpoints", tmp_path / "0/checkpoints")
    with pytest.raises(InputError, match="belongs to a run with other settings"):
        open_training(recipe, tmp_path / "0", device="cpu", resume=True)


@pytest.mark.parametrize("damage", ["changed", "lost", "twice", "swapped", "whole"])
def test_a_log_that_has_lost_steps_is_told_and_the_record_says_it(recipe, tmp_path, damage):
    "Each step once and in order, whatever became of the file."
    train(recipe, tmp_path)
    log = tmp_path / "log.jsonl"
    rows = log.read_text().splitlines(keepends=True)
    changed = [rows[0].replace('"lr": ', '"lr": 1'), *rows[1:]]
    damaged = {
        "changed": changed,
        "lost": rows[2:5],
        "twice": rows + rows,
        "swapped": rows[::-1],
        "whole": rows,
    }
    log.write_text("".join(damaged[damage]))
    run = open_training(recipe, tmp_path, device="cpu", resume=True)
    record = finish_training(run, name="n", command="c", results=tmp_path / "results")
    if damage == "lost":
        assert run.notes == [f"{log} has lost 4 of 7 steps"]
        assert record.metrics["log"] == "has lost 4 of 7 steps"
    elif damage == "changed":
        assert run.notes == [f"{log} {record.metrics['log']}"] and "was changed" in run.notes[0]
    else:
        assert not run.notes and "log" not in record.metrics
        assert log.read_text() == "".join(rows)
        assert [row["step"] for row in record.curve] == [2, 4, 6, 7]


def test_what_a_killed_process_left_of_a_record_goes(recipe, tmp_path):
    run, results = train(recipe, tmp_path / "run"), tmp_path / "results"
    for left in (".n.json.abc.part", ".other.json.abc.part"):
        (results / left).mkdir(parents=True)
    finish_training(run, name="n", command="c", results=results)
    assert {path.name for path in results.iterdir()} == {"n.json", ".other.json.abc.part"}


def test_a_run_is_named_and_repeated_by_what_is_not_as_its_preset_says():
    recipe = preset(Translation, "multi30k-cpu", form="tok", steps=7)
    how = {"seed": 3, "dtype": torch.bfloat16}
    assert recipe.run_name("multi30k-cpu", **how) == (
        "multi30k-cpu-en-de-tok-steps7-bfloat16-seed3"
    )
    assert recipe.command("multi30k-cpu", **how) == (
        "transformer-lit train translation --preset multi30k-cpu --seed 3 --form tok --steps 7 "
        "--dtype bfloat16"
    )
    plain = preset(LanguageModeling)
    assert plain.run_name("stories", seed=0) == "stories-seed0"


@pytest.mark.parametrize("task", RECIPES)
def test_every_preset_can_be_built_written_down_and_shortened(task):
    for name, recipe in RECIPES[task].presets.items():
        with torch.device("meta"):
            assert recipe.build(300).lm_head.weight.shape[0] >= 300, name
        assert recipe.kind.task == task and issubclass(recipe.kind, Trained)
        assert recipe.steps % recipe.in_steps(recipe.every) == 0, name
        json.dumps(vars(recipe))  # a run writes its recipe down
        for steps in (1, 2, 7, 101):
            rates = list(map(replace(recipe, steps=steps).schedule(), range(1, steps + 1)))
            assert all(0 <= rate <= recipe.lr for rate in rates) and rates[0] > 0, (name, rates)
