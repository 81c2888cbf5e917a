"""How far the race's example comes: the code that the page shows, behind the book's own file."""

import re
import tempfile
from itertools import product
from pathlib import Path

import torch

from experiments.runner import Experiment, Row
from transformer_lit.course.my_model import OWN_FILE, race
from transformer_lit.exercises.my_transformer import solved_file

PAGE = Path(__file__).parents[1] / "book/now.md"


def example() -> str:
    "The `race` that the page shows."
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    (code,) = (block for block in blocks if "def race(" in block)
    return code


def laps(
    seeds: int = 3, seconds: float = 120.0, count: int = 500, lengths: tuple[int, ...] = (320, 128)
) -> list[Row]:
    "One row for each length of the training's rows and each seed."
    rows = []
    for length, seed in product(lengths, range(seeds)):
        code = example().replace("length=320", f"length={length}")
        with tempfile.TemporaryDirectory() as folder:
            own = Path(folder, OWN_FILE)
            own.write_text(solved_file() + code, encoding="utf-8")
            torch.manual_seed(seed)
            lap = race(own, seconds=seconds, count=count)
            rows.append({"length": length, "seed": seed} | vars(lap))
    return rows


RACE = Experiment(
    "The race with the page's example, in training rows of `length` letters: bits a letter on the"
    " first 500 held-out stories; seconds: of the processor, for the training, of 120 allowed;"
    " floor: the entropy of those stories.",
    laps,
    quick={"seeds": 1, "seconds": 3.0, "count": 10, "lengths": (7,)},
)
