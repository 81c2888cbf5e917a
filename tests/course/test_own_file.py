"The reader's file is found from a folder below, handed over in parts, and races."

import math

import pytest
import solved
import torch

from transformer_lit.course.data import load_text
from transformer_lit.course.files import InputError
from transformer_lit.course.my_model import OWN_FILE, find_file, load_mine, race
from transformer_lit.exercises import check

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # a reader runs without them


@pytest.fixture
def deep(monkeypatch, tmp_path):
    "A notebook's folder, three below that of the file."
    folder = tmp_path / "class/nbs/attention"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def test_the_nearest_file_is_found_up_to_three_folders_above(deep, tmp_path):
    for folder in (tmp_path, tmp_path / "class", deep):
        (folder / OWN_FILE).write_text("")
        assert find_file().resolve() == (folder / OWN_FILE).resolve()
    assert find_file("../../my_transformer.py").resolve() == tmp_path / "class" / OWN_FILE


def test_a_file_that_is_nowhere_or_too_far_above_is_told(deep, tmp_path, monkeypatch):
    (deep / "more").mkdir()
    monkeypatch.chdir(deep / "more")
    (tmp_path / OWN_FILE).write_text("")
    for name in (OWN_FILE, str(deep / OWN_FILE)):
        with pytest.raises(InputError, match=r"There is no .* here or in the three folders above"):
            find_file(name)


def test_parts_are_those_that_stand_in_the_file_now(deep, tmp_path):
    for number in (2, 3):
        text = f"def causal_mask(T, S):\n    return {number}\n\n\nclass Block:\n    pass\n"
        (tmp_path / OWN_FILE).write_text(text)
        assert load_mine("causal_mask")(5, 7) == number
        mask, block = load_mine("causal_mask", "Block")
        assert mask(5, 7) == number and block.__name__ == "Block"


@pytest.mark.parametrize(
    "text,line",
    [("", "my_transformer.py has no attend, rotate. Write it there first"),
     ("def attend(q", "my_transformer.py: syntax error in line 1"),
     ("1 / 0", "my_transformer.py: Your code raised ZeroDivisionError")],
)  # fmt: skip
def test_a_part_that_cannot_be_had_is_told_in_one_line(text, line, deep):
    (deep / OWN_FILE).write_text(text)
    with pytest.raises(InputError, match="^" + line.replace(".", r"\.")):
        load_mine("attend", "rotate")


MASK = """def causal_mask(T, S):
    return torch.arange(S) <= torch.arange(S - T, S)[:, None]
"""


def test_a_script_prints_its_verdicts_and_a_step_that_passes_is_written(deep, tmp_path, capsys):
    (deep / "trial.py").write_text(f"import torch\n\n{MASK}")
    trial = {}
    exec(compile((deep / "trial.py").read_text(), str(deep / "trial.py"), "exec"), trial)
    answer = trial["causal_mask"]
    own = tmp_path / OWN_FILE
    for before in ("import torch\n", f"import torch\n\n\n{MASK.replace('<=', '<')}\n\nx = 3\n"):
        own.write_text(before)
        verdict = check("masks.3", answer, write=True)
        assert verdict.notes == ("It is in my_transformer.py now.",)
        assert capsys.readouterr().out == f"{verdict}\n"
        names = {}
        exec(own.read_text(), names)
        assert own.read_text().count("def causal_mask") == 1
        assert torch.equal(names["causal_mask"](2, 3), answer(2, 3))
    assert names["x"] == 3
    own.write_text("def attend(q")  # nothing is lost where it cannot be read
    assert check("masks.3", answer, write=True).notes[0].startswith("It was not written into")
    assert own.read_text() == "def attend(q" and not check("masks.3", print, write=True)


RACE = """
def race(ids, n_letters, seconds):
    torch.manual_seed(0)
    return Decoder(n_letters, 8, 1, 2, 16)
"""


def test_a_lap_is_the_mean_surprise_of_new_stories(deep):
    "Of an even guess it is the logarithm of the number of letters, and the floor lies far below."
    even = "def race(ids, n, seconds):\n    return lambda ids: torch.zeros(*ids.shape, n)\n"
    (deep / OWN_FILE).write_text("import torch\n" + even)
    lap = race(seconds=30, count=7)
    n = len(set(load_text("stories", "train")))
    assert lap.bits == pytest.approx(math.log2(n)) and lap.floor < 0.1 and lap.seconds < 30
    (deep / OWN_FILE).write_text(solved.thread() + RACE)  # it has learned nothing
    assert abs(race(seconds=30, count=7).bits - lap.bits) < 1


@pytest.mark.parametrize(
    "old,new,line",
    [("    torch.manual", "    import time\n    end = time.process_time() + 0.9\n"
      "    while time.process_time() < end: pass\n    torch.manual", "race took 1 seconds"),
     ("    return Decoder(n_letters, 8, 1, 2, 16)",
      "    return lambda ids: F.one_hot(ids.roll(-1, 1), n_letters).double()", "looks ahead")],
)  # fmt: skip
def test_a_lap_that_does_not_count_is_told_in_one_line(old, new, line, deep):
    (deep / OWN_FILE).write_text(solved.thread() + RACE.replace(old, new))
    with pytest.raises(InputError, match=line):
        race(seconds=0.5, count=3)
