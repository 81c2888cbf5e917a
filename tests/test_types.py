"What the README and the page How do I …? show passes mypy and pyright, as does `load` by name."

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from transformer_lit import __all__ as PUBLIC
from transformer_lit import model_names
from transformer_lit.recipes.recipe import read_description
from transformer_lit.recipes.zoo import _WEIGHTS, RECIPES

ROOT = Path(__file__).parents[1]
MYPY = "[mypy]\nfollow_imports = silent\nignore_missing_imports = True\n"
PYRIGHT = {"extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
PYRIGHT |= dict.fromkeys(("reportMissingImports", "reportPrivateImportUsage"), False)
WRONG = """
from transformer_lit import load

load("stories").translate(["A man."])
load("everyday-en-de").generate("A man")
load("minilm").generate("A man")
"""


def of_each_name():
    "That `load` has the type of what the name is."
    kinds = {name: read_description(_WEIGHTS / name)["task"] for name in model_names()}
    bases = {name: (c.__name__ for c in RECIPES[kinds[name]].kind.__mro__) for name in kinds}
    kinds = {name: next(filter(PUBLIC.__contains__, each)) for name, each in bases.items()}
    kinds |= {"smollm2": "LanguageModel", "minilm": "SentenceEncoder"}
    checks = [f"assert_type(load({name!r}), {kind})" for name, kind in kinds.items()]
    names = ", ".join(["load", *sorted({*kinds.values()})])
    return ["from typing import assert_type", f"from transformer_lit import {names}", *checks]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    "A file for each page, and one of mistakes."
    folder = tmp_path_factory.mktemp("pages")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    cells = json.loads((ROOT / "nbs/recipes/08_how_do_i.ipynb").read_text(encoding="utf-8"))[
        "cells"
    ]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    texts = {
        "readme": re.findall(r"```python\n(.*?)```", readme, re.S),
        "how_do_i": code,
        "names": of_each_name(),
        "wrong": [WRONG],
    }
    for name, parts in texts.items():
        (folder / f"{name}.py").write_text("\n".join(parts), encoding="utf-8")
    (folder / "mypy.ini").write_text(MYPY)
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    return folder


CHECKERS = {
    "mypy": (
        "mypy",
        "--config-file",
        "mypy.ini",
        "readme.py",
        "how_do_i.py",
        "names.py",
        "wrong.py",
    ),
    "pyright": ("basedpyright", "--pythonpath", sys.executable, "-p", "."),
}


@pytest.mark.machinery
@pytest.mark.parametrize("command", CHECKERS.values(), ids=CHECKERS)
def test_the_pages_have_no_fault_of_types_and_mistakes_have(pages, command, monkeypatch):
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    told = subprocess.run(
        [sys.executable, "-m", *command], cwd=pages, capture_output=True, text=True, check=False
    )
    faults = [line for line in told.stdout.splitlines() if re.search(r"\berror:", line)]
    assert len(faults) == 3 and all("wrong.py" in line for line in faults), told.stdout
