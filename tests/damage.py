"""Damages one line of a chapter's code and runs the chapter: which cell notices?

python tests/damage.py tests/damages/attention.yml          # all rows: does the named cell notice?
python tests/damage.py --draw 12 --seed 3                   # twelve rows of the whole table
python tests/damage.py nbs/attention/03_attend.ipynb OLD NEW    # try one

A row of a file in tests/damages has `label` (of the formula that the line carries; or the idea, in
words), `notebook`, `old` and `new` (the line, and what it becomes) and `cell` (the id of the cell
that must fail). A formula that no line of its own carries has only `label` and either `as`, the
label whose line carries it too, or `text`, the reason why no line can. Each run is a process of its
own, so a damaged chapter can't spoil the next one.
"""

import argparse
import contextlib
import io
import json
import linecache
import os
import random
import signal
import sys
import types
import warnings
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
NEVER = ("eval: false", "@exercise(")  # cells for show, and the solutions of exercises
LIMIT = 600  # seconds for a chapter


def table(paths=()):
    "The rows of these files; of all files in tests/damages unless given."
    paths = paths or sorted((ROOT / "tests/damages").glob("*.yml"))
    return [row for path in paths for row in yaml.safe_load(Path(path).read_text("utf-8"))]


def first_failure(notebook, old, new):
    "Id of the first cell that fails once `old` is `new`, and its error; or None, and what was run."
    cells = json.loads((ROOT / notebook).read_text())["cells"]
    cells = [(c["id"], "".join(c["source"])) for c in cells if c["cell_type"] == "code"]
    where = [name for name, source in cells if old in source]
    if not where:
        return None, f"{old!r} is in no cell"
    os.chdir((ROOT / notebook).parent)
    sys.modules["__main__"] = module = types.ModuleType("__main__")  # what is pickled looks there
    page = vars(module)
    page["display"] = lambda *_: None
    for name, source in cells:
        if any(word in source for word in NEVER) or source.lstrip().startswith("check("):
            continue
        if name == where[0]:
            source = source.replace(old, new, 1)
        lines = [line for line in source.split("\n") if not line.startswith(("%", "!"))]
        source = "\n".join(lines)
        linecache.cache[name] = len(source), None, source.splitlines(True), name
        quiet = io.StringIO()
        try:
            with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
                exec(compile(source, name, "exec"), page)
        except BaseException as error:
            return name, f"{type(error).__name__}: {str(error)[:100]}"
    return None, "every cell passes"


def in_fork(*job):
    "`first_failure` in a process of its own."
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        signal.alarm(LIMIT)
        warnings.simplefilter("ignore")
        found = first_failure(*job)
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(said or f'[null, "ended before {LIMIT} s, or died"]')


def main(given):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="*", help="files of rows; or a notebook, OLD and NEW")
    parser.add_argument("--draw", type=int, help="try this many of the rows, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    asked = parser.parse_args(given)
    os.environ["MPLBACKEND"] = "Agg"
    import matplotlib.pyplot  # noqa: F401
    import torch

    torch.set_num_threads(1)
    if asked.what and asked.what[0].endswith(".ipynb"):
        print(*in_fork(*asked.what), sep=": ")
        return 0
    rows = [row for row in table(asked.what) if "old" in row]
    if asked.draw:
        rows = random.Random(asked.seed).sample(rows, asked.draw)
    missed = 0
    for row in rows:
        cell, said = in_fork(row["notebook"], row["old"], row["new"])
        missed += cell != row["cell"]
        mark = "ok    " if cell == row["cell"] else "MISSED"
        print(f"{mark} {row['label']}: {cell}: {said}", flush=True)
    print(f"{len(rows) - missed} of {len(rows)} noticed by the cell that is named")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
