"The reader's file is found from a folder below, handed over in parts, and its model writes."

import math

import pytest
import solved
import torch

from transformer_lit.course.data import load_text
from transformer_lit.course.files import InputError
from transformer_lit.course.my_model import OWN_FILE, drawn, find_file, first_words, load_mine, race

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
        with pytest.raises(InputError, match="No such file here or up to three folders above"):
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
    [("", "my_transformer.py has no attend, rotate; write it there first"),
     ("def attend(q", "my_transformer.py: syntax error in line 1"),
     ("1 / 0", "my_transformer.py: Your code raised ZeroDivisionError")],
)  # fmt: skip
def test_a_part_that_cannot_be_had_is_told_in_one_line(text, line, deep):
    (deep / OWN_FILE).write_text(text)
    with pytest.raises(InputError, match="^" + line.replace(".", r"\.")):
        load_mine("attend", "rotate")


def test_the_largest_drawn_logit_follows_the_softmax():
    torch.manual_seed(0)
    z, n = torch.randn(7, dtype=torch.float64), 200_000
    share = drawn(z.expand(n, 7), 0.8).argmax(-1).bincount(minlength=7) / n
    p = (z / 0.8).softmax(-1)
    assert ((share - p).abs() < 5 * (p * (1 - p) / n).sqrt()).all()


def test_the_readers_own_model_learns_and_writes(deep, tmp_path):
    (tmp_path / OWN_FILE).write_text(solved.thread())
    state, told = torch.get_rng_state(), []
    words = first_words(steps=20, progress=lambda: told.append(1))
    assert len(words.losses) == 20 and 19 <= len(told) <= 20
    assert words.losses[-1] < words.losses[0] - 0.5
    for text in (words.greedy, words.drawn):
        assert text.startswith("Leo lives ") and len(text) == 120
    assert words.greedy != words.drawn and words.greedy in repr(words)
    assert repr(words).startswith(f"20 steps: from {words.losses[0]:.2f} to ")
    assert torch.equal(torch.get_rng_state(), state) and torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    "old,new,line",
    [("def train(", "def fit(", "has no train"),
     ("    optimizer, losses =", "    1 / 0\n    optimizer, losses =", "ZeroDivisionError"),
     ("    optimizer, losses =", "    raise NotImplementedError\n    optimizer, losses =",
      "is not written yet")],
)  # fmt: skip
def test_a_training_that_cannot_be_done_is_told_in_one_line(old, new, line, deep):
    assert solved.thread().count(old) == 1
    (deep / OWN_FILE).write_text(solved.thread().replace(old, new))
    with pytest.raises(InputError, match=line):
        first_words(steps=2)


RACE = """
def race(ids, n_letters, seconds):
    torch.manual_seed(0)
    return MyLlama(n_letters, 8, 1, 2, 1, 16)
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
     ("    return MyLlama(n_letters, 8, 1, 2, 1, 16)",
      "    return lambda ids: F.one_hot(ids.roll(-1, 1), n_letters).double()", "looks ahead")],
)  # fmt: skip
def test_a_lap_that_does_not_count_is_told_in_one_line(old, new, line, deep):
    (deep / OWN_FILE).write_text(solved.thread() + RACE.replace(old, new))
    with pytest.raises(InputError, match=line):
        race(seconds=0.5, count=3)
