"The widgets of the chapters compute what the package computes, and everybody can use them."

import functools
import html
import http.server
import json
import math
import random
import re
import threading
from pathlib import Path

import cards
import conftest as book
import exercise_cells
import live
import make_widgets
import pytest
import torch
from torch.testing import assert_close

from transformer_lit import load
from transformer_lit.attention.attend import attention_weights
from transformer_lit.attention.masks import causal_mask, length_mask, padding_mask
from transformer_lit.base.datasets import load_pairs
from transformer_lit.inference.beam import beam_search
from transformer_lit.inference.sampling import keep_min_p, keep_top_k, keep_top_p
from transformer_lit.models.families import Window
from transformer_lit.position.rope import RoPE, rope_frequencies
from transformer_lit.text.tokenizer import BPETokenizer, readable
from transformer_lit.training.schedule import cosine, inverse_sqrt, paper_schedule

ROOT = Path(__file__).parents[2]
DATA = ROOT / "book/_static/widgets/data"
PAGES = {
    "softmax": "nbs/attention/03_attend",
    "masks": "nbs/attention/02_masks",
    "rope": "nbs/position/04_rope",
    "merges": "nbs/text/01_tokenizer",
    "beam": "nbs/inference/02_beam",
    "sampling": "nbs/inference/01_sampling",
    "schedule": "nbs/training/03_schedule",
}
NAMES = sorted(PAGES)
PLACE = re.compile(r"```\{widget\} (\w+)\n(.*)\n```", re.S)


def place(name):
    "The cell that holds a widget's place, and the text in it."
    cells = json.loads((ROOT / f"{PAGES[name]}.ipynb").read_text(encoding="utf-8"))["cells"]
    (cell,) = (cell for cell in cells if cell["id"] == f"widget-{name}")
    found = PLACE.fullmatch(exercise_cells.source(cell))
    assert cell["cell_type"] == "markdown" and found and found[1] == name
    return cells, cell, found[2]
