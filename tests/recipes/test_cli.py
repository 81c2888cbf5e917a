"""What a command owes its user: the result alone on standard output, one line for each failure."""

import contextlib
import copy
import dataclasses
import io
import json
import os
import resource
import shutil
import subprocess
import sys
from functools import partial

import pytest
import ranks
import solved
import torch

from transformer_lit.course import data as datasets
from transformer_lit.course.files import InputError, printable
from transformer_lit.course.my_model import solved_file
from transformer_lit.course.records import read_results
from transformer_lit.exercises import my_transformer
from transformer_lit.exercises.my_transformer import check_file
from transformer_lit.inference.chat import Chat
from transformer_lit.inference.sampling import Sampling
from transformer_lit.models.hf_build import save_hf
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.recipes import cli, language_model, recipe, translation, zoo
from transformer_lit.recipes.cli import main
from transformer_lit.recipes.zoo import load
from transformer_lit.text.tokenizer import CharTokenizer
from transformer_lit.training import distributed
from transformer_lit.training.distributed import World
from transformer_lit.training.run import checkpoints

SENTENCE = "A man is riding a bike."
LONG = "man " * 40  # more tokens than the tiny model takes
PLAYS = datasets.DATASETS["tinyshakespeare"].files[0].path


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path, data_folder, tiny_translator, tiny_writer):
    "A folder of its own with a model, a text, and no data; what a command leaves can be seen."
    folder = tmp_path / "here"
    tiny_translator.save(folder / "model")
    (folder / "empty").mkdir()
    (folder / "in.txt").write_text(f"{SENTENCE}\n")
    (folder / "latin.txt").write_bytes("fährt\n".encode("latin-1"))
    (folder / "long.txt").write_text(f"A\n\n{LONG}\n")
    (folder / "blank").touch()
    (folder / "broken.py").write_text("1 / 0")
    (folder / "my_transformer.py").touch()
    (data_folder / "tinyshakespeare").mkdir()
    (data_folder / PLAYS).write_text("cut")
    tiny_writer.save(folder / "writer")
    huge = copy.deepcopy(tiny_writer)
    huge.model.lm_head.weight.data.fill_(3e38)  # finite, and no product of it is
    huge.save(folder / "huge")
    monkeypatch.chdir(folder)
    # it would outlive the test
    monkeypatch.setattr("transformer_lit.training.options.keep_freed_memory", lambda: None)
    return folder


@pytest.fixture(scope="module")
def tiny_writer():
    "An untrained language model of three letters, a space and a line feed."
    torch.manual_seed(0)
    tokenizer = CharTokenizer("\n abc")
    model = Llama(LlamaConfig(5, d_model=8, n_layers=1, n_heads=2, d_ff=7, max_len=11))
    return language_model.LanguageModel(model, tokenizer, {"dataset": "tinyshakespeare"})


@pytest.fixture
def run(capfd):
    "Run the command in this process: exit code, standard output, standard error."

    def run(*args):
        capfd.readouterr()
        code = main([str(arg) for arg in args])
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def tiny_preset(monkeypatch):
    "The preset `numbers`, small enough for a test: two steps on fifty pairs."
    small = dataclasses.replace(
        translation.Translation.presets["numbers"],
        sizes={"d_model": 6, "d_ff": 7, "n_heads": 2, "n_layers": 1, "dropout": 0.0, "max_len": 83},
        vocab_size=263,
        steps=2,
        every=1,
    )
    monkeypatch.setitem(translation.Translation.presets, "numbers", small)
    pairs = datasets.number_pairs
    monkeypatch.setattr(datasets, "number_pairs", lambda split: pairs(split)[:50])


def everything(folder):
    "Each folder, and each file with its content."
    return {p: p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def only_a_bar(err):
    "On a busy machine a sentence may take two seconds, and then its bar is shown."
    return not err or err.lstrip("\r").startswith("translate:")


def translate(*args):
    return ("translate", "--model", "model", *args)


def generate(*args):
    return ("generate", "--model", "writer", *args)


TRAIN = ("train", "translation")
WRITER = ("train", "language-model")
FROM = (*WRITER, "--text", "long.txt", "--from")
WIDER = ("--set", "d_model=160", "length=5")
EVALUATE = ("evaluate", "--checkpoint", "model")
FAILURES = {
    "unknown option of all": (("--nonsense",), "No such option"),
    "unknown command": (("translat", "x"), "No such command"),
    "unknown option": (translate("x", "--bean", "4"), "--bean"),
    "setting as an option": ((*WRITER, "--lr", "3"), "Settings are written: --set lr=VALUE"),
    "setting of another name": (
        (*WRITER, "x", "--rate=3"),
        "Settings are written: --set NAME=VALUE",
    ),
    "option near another": ((*TRAIN, "--sede", "3"), "--seed"),
    "beam of no width": (translate("x", "--beam", "0"), "--beam"),
    "no step": ((*TRAIN, "--steps", "0"), "--steps"),
    "no such seed": ((*TRAIN, "--seed", str(2**32)), "--seed"),
    "unknown recipe": (("train", "summarisation"), "Choose from: translation, language-model"),
    "unknown preset": ((*TRAIN, "--preset", "big"), "'big'. Choose from: numbers"),
    "unknown data set": (
        ("data", "fetch", "wmt14"),
        "'wmt14'. Known: book, everyday",
    ),
    "unknown split": ((*EVALUATE, "--dataset", "numbers", "--split", "dev"), "no split 'dev'"),
    "unknown language": ((*TRAIN, "--target", "fr"), "'en' to 'fr'"),
    "unknown form": ((*TRAIN, "--form", "bpe"), "'bpe'"),
    "unknown model": (("translate", "x", "--model", "nope"), "No model or folder named 'nope'"),
    "folder without a model": (("translate", "x", "--model", "empty"), "contains no model"),
    "evaluate what": (("evaluate",), "--checkpoint"),
    "train what": (("train",), "Name a recipe: translation, language-model"),
    "nothing to go on with": (
        ("train", "--resume", "--out", "empty"),
        "Nothing to train. Name a recipe",
    ),
    "no data, no network": (("data", "fetch", "multi30k"), "Connect to the network"),
    "no data to train on": ((*TRAIN, "--preset", "multi30k-tiny"), "is not in"),
    "no data to evaluate on": (EVALUATE, "is not in"),
    "damaged data to fetch": (("data", "fetch", "tinyshakespeare"), f"{PLAYS} has sha256"),
    "damaged data": ((*WRITER, "--preset", "shakespeare-cpu"), f"{PLAYS} has sha256"),
    "no GPU to translate": (translate("x", "--device", "cuda:99"), "'cuda:99' is not available"),
    "no GPU to score": ((*EVALUATE, "--dataset", "numbers", "--device", "cuda:99"), "'cuda:99'"),
    "no GPU to train": ((*TRAIN, "--device", "cuda:99"), "'cuda:99' is not available here"),
    "device that is none": (translate("x", "--device", "potato"), "'potato'"),
    "blank sentence": (translate(" \t\n"), "the sentence is empty"),
    "blank sentence, skipped": (translate(" ", "--overlong", "skip"), "the sentence is empty"),
    "more than a beam finds": (translate("x", "--n-best", "6"), "Add: --beam 6"),
    "sentence too long": (translate(LONG), "the model takes 30"),
    "nothing to translate": (translate(), "(- reads standard input) or --file"),
    "missing file": (translate("--file", "nope.txt"), "cannot read nope.txt: No such file"),
    "file that is a folder": (translate("--file", "model"), "cannot read model"),
    "file that is not UTF-8": (translate("--file", "latin.txt"), "latin.txt is not UTF-8"),
    "a translator writes no text": (
        ("generate", "a", "--model", "model"),
        "which can't continue a text",
    ),
    "a writer does not translate": (
        ("translate", "a", "--model", "writer"),
        "which can't translate",
    ),
    "unknown character": (generate("a x"), "never seen the character 'x'"),
    "temperature below 0": (generate("a", "--temperature", "-0.5"), "at least 0, but is -0.5"),
    "temperature that is none": (generate("a", "--temperature", "nan"), "'--temperature'"),
    "top-p of 0": (generate("a", "--top-p", "0"), "'--top-p': must be above 0 and at most 1"),
    "min-p that is a word": (generate("a", "--min-p", "low"), "'--min-p'"),
    "penalty below 1": (generate("a", "--repetition-penalty", "0.5"), "finite and at least 1"),
    "a language model has one language": ((*WRITER, "--target", "de"), "run has no target"),
    "a rate below 0": ((*TRAIN, "--set", "lr=-1"), "lr must be above 0, got -1"),
    "no room for a gradient": ((*TRAIN, "--set", "clip=0"), "clip must be above 0, got 0"),
    "a penalty that no search takes": ((*TRAIN, "--set", "alpha=-1"), "0 or above, got -1"),
    "less than no weight": ((*TRAIN, "--set", "rdrop=-1"), "rdrop must be 0 or above, got -1"),
    "more than all of a label": ((*TRAIN, "--set", "smoothing=2"), "must be in [0, 1), got 2"),
    "unknown optimiser": ((*TRAIN, "--set", "optimizer=sgd"), "sgd"),
    "parts of one": ((*TRAIN, "--shard"), "Start with torchrun"),
    "setting without a value": (
        (*WRITER, "--set", "steps"),
        "NAME=VALUE, not 'steps'. For example: --set lr=0.001",
    ),
    "file that is nowhere": ((*WRITER, "--text", "nowhere"), "cannot read nowhere: No such file"),
    "pairs for a text": ((*WRITER, "--pairs", "in.txt", "in.txt"), "run has no pairs"),
    "text for pairs": ((*TRAIN, "--text", "in.txt"), "run has no text"),
    "pairs without a tab": ((*TRAIN, "--pairs", "in.txt"), "in.txt, line 1 has no tab"),
    "pairs without an option": ((*TRAIN, "blank"), "blank is empty"),
    "text without an option": ((*WRITER, "blank", "--set", "steps=2"), "blank is empty"),
    "no files": ((*WRITER, "--preset", "own"), "Name them with --text"),
    "start of other sizes": ((*FROM, "shakespeare", *WIDER), "does not fit this model"),
    "start of another task": (
        (*FROM, "multi30k-en-de"),
        "run can't use a translation model. Leave out --from multi30k-en-de",
    ),
    "help of no recipe": (("train", "poetry", "--help"), "No recipe named 'poetry'"),
    "logits that are no numbers": (
        ("generate", "--model", "huge"),
        "logit of each row must be fin",
    ),
    "no chat model": (("chat", "--model", "model"), "which can't answer"),
    "no chat model here": (("chat",), "transformer-lit data fetch smollm2"),
    "no encoder": (("ask", "why", "--model", "model"), "modules.json"),
    "no encoder here": (("ask", "why divide?"), "transformer-lit data fetch minilm"),
    "file of one's own that is there": (("check", "--start"), "already exists"),
    "file of one's own that is not": (("check", "none.py", "--watch"), "There is no none.py here"),
    "file of one's own that is broken": (("check", "broken.py"), "ZeroDivisionError"),
    "a race as JSON": (("check", "--json", "--race"), "nor --race with --json"),
    "looks and a text": (("check", "--watch", "--write"), "--watch can't be combined with --write"),
    "model that is not written": (
        ("check", "--write"),
        "nothing to train with yet: write `loss` first",
    ),
    "unknown step": (("check", "--step", "atend"), "No step named 'atend'"),
    "unknown bake-off": (("bakeoff", "norms"), "'norms'. Choose from: position, block, swap"),
    "unknown setting": (("bakeoff", "block", "--setting", "huge"), "'huge'. Choose from: small"),
    "output below a file": ((*TRAIN, "--out", "in.txt/x", "--results", "."), "cannot write to in"),
    "record below a file": ((*TRAIN, "--results", "in.txt/x"), "cannot write to"),
}


@pytest.mark.parametrize(("args", "told"), FAILURES.values(), ids=FAILURES.keys())
@pytest.mark.usefixtures("tiny_preset")
def test_a_failure_is_one_line_and_exit_code_2_and_leaves_nothing(run, tmp_path, args, told):
    before = everything(tmp_path)
    code, out, err = run(*args)
    assert code == 2, err
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1 and err.endswith("\n")
    assert told in err
    assert everything(tmp_path) == before


def test_lines_are_out_before_all_are_translated(run, here, monkeypatch):
    monkeypatch.setattr(cli, "_AT_ONCE", 2)
    whole = translation.Translator.translate

    def only_once(self, sentences, **options):
        monkeypatch.setattr(translation.Translator, "translate", raises)
        return whole(self, sentences, **options)

    def raises(self, sentences, **options):
        raise InputError("no more")

    monkeypatch.setattr(translation.Translator, "translate", only_once)
    (here / "five.txt").write_text("one\ntwo\nthree\nfour\nfive\n")
    code, out, err = run(*translate("--file", "five.txt"))
    assert (code, out.count("\n"), err) == (2, 2, "error: no more\n")


class TestHelp:
    COMMANDS = ("", "data", "data list", "data fetch", "train", "translate", "generate")
    COMMANDS += ("evaluate", "bakeoff", "chat", "check", "ask", "models")

    def test_every_command_explains_itself(self, run):
        for command in self.COMMANDS:
            code, out, err = run(*command.split(), "--help")
            assert (code, err) == (0, ""), command
            assert out.startswith(f"Usage: transformer-lit {command}".rstrip())

    def test_without_a_word_the_help_is_shown(self, run):
        assert run() == run("--help")


class TestWatch:
    "Each save is one look, and what is wrong with one of them does not end the watching."

    def test_it_looks_once_for_each_save_until_ctrl_c(self, run, here, monkeypatch):
        texts, looks, file = ["a", "a", None, "b", "1 / 0", "c"], [], here / "mine.py"
        file.write_text("first")

        def wait(seconds):
            if not texts:
                raise KeyboardInterrupt
            if (text := texts.pop(0)) is None:  # some editors take it away while they save
                file.unlink()
            elif not (file.exists() and file.read_text() == text):
                file.write_text(text)
                os.utime(file, ns=(0, len(texts)))

        def look(path, *given):
            looks.append(path.read_text())
            if "/" in looks[-1]:
                raise InputError("broken")
            return int(looks[-1] == "b"), f"it is {looks[-1]}"

        monkeypatch.setattr("transformer_lit.recipes.cli.sleep", wait)
        monkeypatch.setattr("transformer_lit.recipes.cli._report", look)
        code, out, err = run("check", "mine.py", "--watch")
        assert (code, err) == (130, "error: broken\ninterrupted\n")
        assert looks == ["first", "a", "b", "1 / 0", "c"] and out.endswith(
            "it is a\nit is b\nit is c\n"
        )


@pytest.mark.machinery
class TestCheck:
    "What the file is worth is told on standard output and by the exit code."

    def test_the_empty_file_is_written_and_all_of_it_is_open(self, run, here):
        (here / "my_transformer.py").unlink()
        assert run("check", "--start") == (0, "my_transformer.py\n", "")
        code, out, _ = run("check")
        assert code == 1 and out.count(" open ") == 25
        assert "\nmy_transformer.py: 0 of 19 steps pass.\n0 of " in out

    def test_one_step_that_fails_is_exit_code_1(self, run, here):
        (here / "mine.py").write_text("def causal_mask(T, S): return T\n")
        code, out, _ = run("check", "mine.py")
        assert code == 1 and out.splitlines()[4].split()[:5] == [
            *("4", "causal_mask", "attention/masks", "not", "yet")
        ]
        code, out, _ = run("check", "mine.py", "--json")
        found = json.loads(out)
        assert code == 1 and (found["ok"], found["passed"], found["of"]) == (False, 0, 19)
        assert [step["state"] for step in found["steps"]].count("not yet") == 1

    def test_one_step_alone(self, run, here):
        (here / "mine.py").write_text("def causal_mask(T, S): return T\n")
        code, out, _ = run("check", "mine.py", "--step", "masks.3")
        assert code == 1 and out.startswith("masks.3: not yet. ") and "attend" not in out
        code, out, _ = run("check", "mine.py", "--step", "attend.3")  # by its id
        assert code == 1 and out.startswith("attend.3: open. ")

    def test_a_model_is_trained_and_writes_and_its_rung_is_kept(self, run, here):
        (here / "my_transformer.py").write_text(solved_file(1))
        code, out, _ = run("check", "--write")
        assert code == 0 and out.startswith("Step 1: 3.8") and "\nnow:\n  " in out
        assert " 1  loss " in out and "\nOn the stories that it learned from, at the end: 2." in out
        (rung,) = json.loads((here / "my_ladder.json").read_text())["rungs"]
        (here / "my_transformer.py").write_text(solved_file(2))
        code, out, _ = run("check", "--write", "--json", "--steps", "2")
        found = json.loads(out)
        names = {"step", "unit", "before", "after", "nats", "sample", "said"}
        assert code == 0 and found.keys() == names and found["step"] == 2
        assert found["before"] == 1 < found["after"] <= 10 and len(found["sample"]) == 280
        assert json.loads((here / "my_ladder.json").read_text())["rungs"] == [rung]
        wrong = solved_file(5).replace("arange(S) <=", "arange(S) <")
        (here / "my_transformer.py").write_text(wrong)
        code, out, _ = run("check", "--write", "--steps", "2")
        assert code == 0 and out.startswith("masks.3: not yet. A position may attend to itself")
        assert "\nNot a step yet: " in out

    def test_a_loop_without_end_is_left_out_with_its_line(self, run, here, monkeypatch):
        monkeypatch.setattr(my_transformer, "_fitting", partial(my_transformer._fitting, seconds=9))
        monkeypatch.setattr(my_transformer, "check_file", partial(check_file, seconds=9))
        endless = solved_file(2).replace("for _ in range(max_new_tokens):", "while True:")
        (here / "my_transformer.py").write_text(endless)
        code, out, _ = run("check", "--write", "--steps", "2")
        assert code == 0 and out.startswith("generate is left out: it did not end within 9 seconds")
        assert "Line " in out.splitlines()[0]

    def test_a_ladder_that_is_damaged_is_named_and_stays(self, run, here):
        (here / "my_transformer.py").write_text(solved_file(1))
        (here / "my_ladder.json").write_text("{")
        code, _, err = run("check", "--write")
        assert code == 2 and "my_ladder.json" in err and err.count("\n") == 1
        assert (here / "my_ladder.json").read_text() == "{"

    def test_the_race_keeps_the_best(self, run, here, monkeypatch):
        even = "def race(ids, n, seconds):\n    return lambda ids: torch.zeros(*ids.shape, n)\n"
        (here / "my_transformer.py").write_text("import torch\n" + even)
        (here / "my_progress.json").write_text('{"race": 1.25}')
        code, out, _ = run("check", "--race")
        assert code == 0 and out.startswith("5.322 bits") and "Your best: 1.250. " in out
        assert json.loads((here / "my_progress.json").read_text()) == {"race": 1.25}

    def test_what_cannot_be_imported_is_json_too(self, run):
        code, out, err = run("check", "broken.py", "--json")
        assert code == 2 and json.loads(out)["steps"] == [] and json.loads(out)["error"] in err


@pytest.mark.machinery
class TestCheckApart:
    "The file has a process of its own."

    def test_the_whole_file_passes(self, run, here):
        (here / "my_transformer.py").write_text(solved.thread())
        code, out, _ = run("check", "--json")
        found = json.loads(out)
        assert code == 0 and found["ok"] and found["passed"] == found["of"] == 19

    def test_a_file_that_ends_its_process_is_told(self, run, here):
        (here / "mine.py").write_text("import os\nos._exit(0)\n")
        code, out, err = run("check", "mine.py", "--json")
        assert code == 2 and "mine.py: it ended its process, or something ended it, at its" in err
        assert json.loads(out)["ok"] is False and json.loads(out)["steps"] == []
        code, out, err = run("check", "mine.py", "--race")
        assert (code, out) == (2, "") and err.startswith("error: mine.py: it ended its process")

    def test_a_file_that_never_ends_is_killed_at_the_deadline(self, run, here, monkeypatch):
        monkeypatch.setattr(my_transformer, "check_file", partial(check_file, seconds=5))
        (here / "mine.py").write_text("def causal_mask(T, S):\n    while True: pass\n")
        code, out, err = run("check", "mine.py")
        told = "error: mine.py: it did not end within 5 seconds, at causal_mask\n"
        assert (code, out, err) == (2, "", told)


class TestData:
    def test_list_says_what_is_here(self, run):
        code, out, err = run("data", "list")
        assert (code, err) == (0, "")
        states = {line.split()[0]: line[17:25].strip() for line in out.splitlines()}
        assert list(states) == list(datasets.DATASETS)
        made = {"numbers": "here", "stories": "here", "book": "here"}
        rest = dict.fromkeys(datasets.DATASETS, "to fetch")
        assert states == rest | made | {"tinyshakespeare": "damaged"}

    def test_fetch_prints_the_files_and_tells_the_licence(self, run, monkeypatch, data_folder):
        file = datasets.DataFile("toy/a.txt", datasets.sha256(b"a"), ())
        toy = datasets.DataSet("toy", "a toy", "none", (file,))
        monkeypatch.setitem(datasets.DATASETS, "toy", toy)
        (data_folder / "toy").mkdir()
        (data_folder / "toy/a.txt").write_bytes(b"a")
        assert run("data", "fetch", "toy") == (0, "toy/a.txt\n", "licence: none\n")


class TestTranslate:
    def test_a_sentence_gives_one_line(self, run, tiny_translator):
        code, out, err = run(*translate(SENTENCE))
        assert code == 0 and only_a_bar(err)
        assert out == " ".join(tiny_translator.translate([SENTENCE])[0].splitlines()) + "\n"

    @pytest.mark.parametrize(
        ("text", "blank"),
        [
            ("A man.\n", [False]),
            ("A man.", [False]),
            ("", []),
            ("\n", [True]),
            ("A\n\nB\n", [False, True, False]),
            ("\nA\n \t\n", [True, False, True]),
            ("A\r\n\r\nB\r\n", [False, True, False]),
            ("A\x0cB\nC\u2028D\x85E\n", [False, False]),
            ("\ufeffA man.\nB\n", [False, False]),
            ("B is longer than\nA\nC is\nA\n", [False] * 4),
        ],
        ids=["one", "no end", "empty", "blank", "gap", "edges", "windows", "odd", "mark", "order"],
    )
    def test_one_line_out_for_each_line_in(
        self, run, here, monkeypatch, tiny_translator, text, blank
    ):
        # An answer that shows its question, with the line breaks that a model may have learned.
        monkeypatch.setattr(
            translation.Translator,
            "translate",
            lambda self, sentences, **_: [[(f"<{s.strip()}>\r\n", 0.0)] for s in sentences],
        )
        (here / "in.txt").write_bytes(text.encode())
        code, out, err = run(*translate("--file", "in.txt"))
        assert (code, err) == (0, "")
        assert out.count("\n") == len(blank)
        lines = out.split("\n")[:-1]
        assert [not line for line in lines] == blank
        asked = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
        expected = [" ".join(f"<{a.strip()}>".splitlines()) if a.strip() else "" for a in asked]
        assert lines == expected[: len(lines)]

    @pytest.mark.parametrize(
        ("overlong", "code", "out", "said"),
        [
            (
                "error",
                2,
                ["A", "", None],
                "error: long.txt, line 3 has {}. To go on after such lines, add: --overlong",
            ),
            ("skip", 0, ["A", "", "", "A"], "long.txt, line 3 has {} (left empty)"),
            ("cut", 0, ["A", "", "cut", "A"], "long.txt, line 3 has {} (cut)"),
        ],
    )
    def test_a_line_that_is_too_long(self, run, here, tiny_translator, overlong, code, out, said):
        ids = tiny_translator.tokenizer.encode(LONG.strip())
        short = tiny_translator.tokenizer.decode(ids[:30])
        (here / "long.txt").write_text(f"A\n\n{LONG}\nA\n")
        found = run(*translate("--file", "long.txt", "--overlong", overlong))
        told = {"A": "A", "cut": short}
        expected = [
            tiny_translator.translate([told[s]])[0] if s else s for s in out if s is not None
        ]
        assert found[0] == code and found[1].split("\n")[:-1] == [
            printable(" ".join(line.splitlines())) for line in expected
        ]
        assert said.format(f"{len(ids)} tokens, the model takes 30. Split it") in found[2]

    def test_several_translations_of_each_line_and_their_scores(self, run, here, tiny_translator):
        (here / "in.txt").write_text(f"{SENTENCE}\n\nA\n")
        best = tiny_translator.translate([SENTENCE, "A"], n_best=2, scores=True)
        rows = [(" ".join(s.splitlines()), score) for row in best for s, score in row]
        rows[2:2] = [("", None)] * 2
        asked = translate("--file", "in.txt", "--n-best", "2")
        shown = [(printable(said), score) for said, score in [*rows, ("", None)]]
        assert run(*asked)[1].split("\n") == [said for said, _ in shown]
        lines = run(*asked, "--scores")[1].split("\n")
        assert lines == [s if x is None else f"{x:.4f}\t{s}" for s, x in shown]
        found = [json.loads(line) for line in run(*asked, "--scores", "--json")[1].splitlines()]
        assert [(row["target"], row["score"]) for row in found] == rows


class TestGenerate:
    def test_the_prompt_and_its_continuation(self, run, tiny_writer):
        code, out, err = run(*generate("ab c", "--max-new-tokens", "30", "--temperature", "0"))
        expected = "".join(tiny_writer.stream("ab c", max_new_tokens=30, temperature=0))
        assert (code, out, err) == (0, f"ab c{expected}\n", "")

    @pytest.mark.parametrize("command", ["generate", "translate", "chat"])
    def test_no_text_of_a_model_steers_the_terminal(self, run, monkeypatch, published, command):
        written = "\x1b]0;a\x07\x9b2Jä\tb"
        monkeypatch.setattr("sys.stdin", io.StringIO("a"))
        monkeypatch.setattr(Chat, "_answer", lambda *_: iter([written.encode()]))
        monkeypatch.setattr(language_model.LanguageModel, "stream", lambda *_, **__: [written])
        monkeypatch.setattr(
            translation.Translator, "translate", lambda *_, **__: [[(written, 0.0)]]
        )
        call = {"generate": generate(""), "translate": translate("a")}
        call |= {"chat": ("chat", "--model", published)}
        code, out, _ = run(*call[command])
        assert (code, out) == (0, r"\x1b]0;a\x07\x9b2J" + "ä\tb\n")
        if command != "chat":
            assert written in json.loads(run(*call[command], "--json")[1]).values()

    def test_a_seed_repeats_a_text_and_an_empty_prompt_is_one(self, run):
        texts = [run(*generate("", "--seed", str(seed)))[1] for seed in (1, 1, 2)]
        assert texts[0] == texts[1] != texts[2]
        assert all(len(text) == 301 for text in texts)


CHOICE = {"temperature": 0.5, "top_k": 3, "top_p": 0.75, "min_p": 0.125}
CHOICE |= {"repetition_penalty": 1.5, "stop": ["x", "y"], "seed": 7}


@pytest.mark.parametrize("command", ["generate", "chat"])
@pytest.mark.parametrize("given", [{}, CHOICE])
def test_every_setting_of_the_choice_reaches_the_model(run, published, monkeypatch, command, given):
    "What each of them does: see test_sampling."
    asked, words = [], ["generate", "a", "--model", "writer"]
    if command == "chat":
        words = ["chat", "--model", published]
        monkeypatch.setattr("sys.stdin", io.StringIO("a"))
    choose = Sampling.choose
    monkeypatch.setattr(
        Sampling, "choose", lambda self, *x, **y: asked.append(self) or choose(self, *x, **y)
    )
    for name, value in given.items():
        for one in value if isinstance(value, list) else [value]:
            words += [f"--{name.replace('_', '-')}", one]
    assert run(*words, "--max-new-tokens", "3")[0] == 0
    usual = {"generate": {"temperature": 0.8}, "chat": {"temperature": 0.2, "top_p": 0.9}}
    expected = Sampling(**usual[command] | given | {"stop": []})
    stop = given.get("stop", []) if command == "chat" else ()  # in a text it ends the pieces
    seed = given.get("seed", asked[0].seed)
    assert asked and {*map(repr, asked)} == {
        repr(dataclasses.replace(expected, stop=stop, seed=seed))
    }


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    "A folder as others publish it."
    path = tmp_path_factory.mktemp("published") / "stories"
    template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    save_hf(load("stories"), path, chat_template=template)
    return path


class TestChat:
    "Lines in, answers out; what an answer cost stands on standard error."

    @pytest.fixture
    def talk(self, run, monkeypatch, published):
        def talk(*lines, options=("--temperature", "0", "--max-new-tokens", "5")):
            monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
            return run("chat", "--model", published, *options)

        return talk

    def test_each_line_has_its_answer(self, talk, published):
        chat = load(published).chat()
        answers = [
            "".join(chat.say(text, max_new_tokens=5, temperature=0)) for text in ("Hi", "Who?")
        ]
        code, out, err = talk("Hi", "", " ", "Who?")
        assert (code, out) == (0, "".join(f"{answer}\n" for answer in answers))
        assert err.count("tokens a second") == 2

    def test_a_seed_repeats_it(self, talk):
        texts = [
            talk("Hi", options=("--seed", seed, "--temperature", 9, "--max-new-tokens", 9))[1]
            for seed in (1, 1, 2)
        ]
        assert texts[0] == texts[1] != texts[2]

    def test_ctrl_c_stops_the_answer_and_not_the_chat(self, talk, monkeypatch):
        real, calls = Chat._next, []

        def interrupted(self, new):
            calls.append(new)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return real(self, new)

        monkeypatch.setattr(Chat, "_next", interrupted)
        code, _, err = talk("Hi", "Who?")
        assert code == 0 and len(calls) > 3 and err.count("tokens a second") == 2

    def test_what_does_not_fit_is_told_and_the_chat_goes_on(self, talk):
        code, out, err = talk("bike " * 71, "Hi")
        assert code == 0 and out == talk("Hi")[1]
        assert "tokens exceed max_len=96. Shorten the text" in err and err.count("\n") == 2

    @pytest.mark.parametrize("more", [(), ("--weights", "int8"), ("--weights", "int4")])
    def test_a_published_folder_continues_a_text_too(self, run, published, more):
        code, out, _ = run("generate", "Hi", "--model", published, "--max-new-tokens", "3", *more)
        assert code == 0 and out.startswith("Hi")


@pytest.mark.machinery
class TestTraining:
    def test_a_full_disk_is_told_and_resume_goes_on(self, run, here, monkeypatch):
        "A limit on the size of a file, in a process of its own, met at the last checkpoint."
        monkeypatch.setattr(datasets, "number_pairs", datasets.number_pairs)
        presets = translation.Translation.presets
        monkeypatch.setitem(presets, "numbers", presets["numbers"])
        ranks.small_numbers()
        train = ("train", "translation", "--device", "cpu", "--out")

        def interrupt(*args, **kwargs):  # nothing is scored: the weights are what counts
            raise KeyboardInterrupt

        monkeypatch.setattr(recipe, "finish_training", interrupt)
        assert run(*train, "whole")[0] == 130
        shutil.copytree("whole", "cut")
        first, last = checkpoints("cut/checkpoints")
        size = (last / "model.safetensors").stat().st_size
        shutil.rmtree(last)
        done = subprocess.run(
            [sys.executable, ranks.__file__, "command", *train, "cut", "--resume"],
            env=ranks.environment(),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, size - 1)),
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout) == (2, "")
        told = done.stderr.splitlines()[-1]
        assert told.startswith("error: cannot write model.safetensors: ")
        assert checkpoints("cut/checkpoints") == [first] and not list(here.rglob(".*.part"))
        assert run(*train, "cut", "--resume")[0] == 130
        for name in ("model.safetensors", "optimizer.safetensors"):
            whole = here / "whole/checkpoints" / last.name / name
            assert (last / name).read_bytes() == whole.read_bytes()

    def test_nobody_else_works_in_the_folder_while_a_training_is_scored(
        self, run, monkeypatch, tiny_preset
    ):
        def score(*_, **__):
            preset = translation.Translation.presets["numbers"]
            with pytest.raises(InputError, match="another run is using run"):
                recipe.open_training(preset, "run", device="cpu", resume=True)
            raise KeyboardInterrupt

        monkeypatch.setattr(translation.Translator, "score", score)
        train = ("train", "translation", "--device", "cpu", "--out", "run")
        assert run(*train)[0] == 130


@pytest.mark.machinery
class TestEveryTask:
    @pytest.mark.parametrize(
        ("task", "dtype"), [*((task, "float32") for task in zoo.RECIPES), ("masked-lm", "bfloat16")]
    )
    def test_trains_resumes_and_is_scored(self, run, here, monkeypatch, tiny_preset, task, dtype):
        "Also in bfloat16, which a CPU without instructions for it computes all the same."
        monkeypatch.setattr(language_model, "load_text", lambda *args, **options: "a cab. " * 60)
        presets = zoo.RECIPES[task].presets
        if task != "translation":
            sizes = {"d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 7}
            changes = {
                "length": 31,
                "lines": False,
                "batch_size": 2,
                "steps": 2,
                "every": 1,
                "tokens": "characters",
            }
            name, first = next(iter(presets.items()))
            monkeypatch.setitem(presets, name, dataclasses.replace(first, sizes=sizes, **changes))
        options = ("train", task, "--dtype", dtype, "--out", "run")
        if task == "reason":  # a reward needs a model that gives a right answer now and then
            options += ("--from", "running-sum")
        code, out, err = run(*options, "--resume")
        assert code == 0 and "There is no run in" in err, err
        code, out, err = run(*options, "--resume")
        assert code == 0 and "a new one begins" not in err, err
        before = everything(here)
        again, _, told = run(*options)
        assert again == 2 and "--resume" in told and everything(here) == before
        (record,) = read_results(here / "results")
        assert record.task == task and record.config["dtype"] == dtype
        assert (f"--dtype {dtype}" in record.command) == (dtype != "float32")
        assert (f"-{dtype}-seed" in record.name) == (dtype != "float32")
        assert all(row["val_loss"] == row["val_loss"] for row in record.curve)  # no nan
        code, scored, err = run("evaluate", "--checkpoint", "run")
        assert code == 0 and out.startswith(f"{scored.strip()}; "), (scored, out)


@pytest.mark.machinery
class TestProcess:
    "What only a process of its own shows: streams, encodings, the time to answer."

    def start(self, *args, **options):
        code = "import sys; from transformer_lit.recipes.cli import main; sys.exit(main())"
        return subprocess.run(
            [sys.executable, "-c", code, *args], stderr=subprocess.PIPE, **options
        )

    def test_the_module_is_the_command(self):
        module = [sys.executable, "-m", "transformer_lit", "--help"]
        done = subprocess.run(module, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("Usage: transformer-lit")

    def test_an_import_and_the_help_are_quick_and_the_rest_comes_when_it_is_asked_for(self):
        code = (
            "import sys, time; before = time.process_time(); import transformer_lit as t\n"
            "assert time.process_time() - before < 0.5  # ten times what it takes\n"
            "from transformer_lit.recipes.cli import main\n"
            "assert t.__version__[0].isdigit() and {'load', 'load_hf'} <= set(dir(t))\n"
            "main(['--help'])\n"
            "heavy = {'torch', 'numpy', 'matplotlib', 'pooch', 'sacrebleu', 'tokenizers'}\n"
            "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
            "from transformer_lit import load\n"
            "assert load is sys.modules['transformer_lit.recipes.zoo'].load\n"
            "assert not {'matplotlib', 'pooch'} & set(sys.modules)\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)

    def test_a_closed_pipe_is_quiet(self):
        reader, writer = os.pipe()
        os.close(reader)
        done = self.start("--help", stdout=writer)
        os.close(writer)
        assert done.stderr == b""
        assert done.returncode == 1

    def test_an_answer_is_utf8_whatever_the_terminal_says_and_imports_no_more_than_it_needs(self):
        code = (
            "import sys; from transformer_lit.recipes.cli import main\n"
            "assert main(['translate', sys.argv[1], '--model', 'model']) == 0\n"
            "assert not {'matplotlib', 'pooch', 'requests'} & set(sys.modules)"
        )
        environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
        command = [sys.executable, "-c", code, "A man is riding a bike. fährt 🚲"]
        done = subprocess.run(command, capture_output=True, env=environment)
        assert done.returncode == 0 and only_a_bar(done.stderr.decode())
        assert len(done.stdout.decode()) > 1


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_first_process_alone_asks_for_its_folders(run, here, monkeypatch, tiny_preset, rank):
    "Others would make and remove them while it makes them."
    world, asked = World(), []
    world.rank, world.size = rank, 3
    monkeypatch.setattr(distributed, "join", lambda *_, **__: contextlib.nullcontext(world))
    monkeypatch.setattr(cli, "require_writable", lambda folder: asked.append(str(folder)))

    def opened(*_, **__):
        raise InputError("far enough")

    monkeypatch.setattr(recipe, "open_training", opened)
    where = ("--out", "run", "--results", "results")
    code, _, err = run("train", "translation", "--device", "cpu", *where)
    assert code == 2 and err.endswith("error: far enough\n")
    assert asked == ([] if rank else ["results", "run"])


def test_muon_in_parts_is_refused_before_anything_is_written(run, here, monkeypatch):
    monkeypatch.setattr(distributed, "join", lambda *_, **__: contextlib.nullcontext(World()))
    muon = ("train", "language-model", "--preset", "shakespeare-muon", "--device", "cpu", "--shard")
    before = everything(here)
    code, out, err = run(*muon, "--out", "run", "--results", "results")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert err.startswith("error: --shard splits matrices, which muon needs whole. Leave")
    assert everything(here) == before
