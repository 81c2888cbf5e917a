"""Run a notebook that was handed in, cell by cell, in this process: `run_cells.py NOTEBOOK OUT`.

Each verdict that a cell shows is a line of JSON in OUT; the last line says that it came to the end.
"""

import json
import sys
from pathlib import Path


def run_cells(path: Path, out: Path) -> None:
    "What a cell raises is its own affair: the next one runs."
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    with open(out, "w") as lines:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                shown = shell.run_cell("".join(cell["source"])).result
                if type(shown).__name__ == "Verdict":
                    print(json.dumps(shown.as_dict()), file=lines, flush=True)
        print(json.dumps("the end"), file=lines)


if __name__ == "__main__":
    run_cells(*map(Path, sys.argv[1:]))
