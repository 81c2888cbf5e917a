"""Write transformer_lit/ from the notebooks: nbdev's export, with imports as the notebook has them.

nbdev would make the package's own imports relative, but only those on one line at the top level. A
module would then differ from its notebook and mix two forms. A notebook's second module, with its
exercises (`#| export exercises.topic`), is written from scratch like the first one; nbdev would
append to it.
"""

import re
import sys
from pathlib import Path

import nbdev.export
import nbdev.maker


class WholeModule(nbdev.maker.ModuleMaker):
    def __init__(self, *args, is_new=True, **options):
        super().__init__(*args, is_new=True, **options)

    def make(self, cells, all_cells=None, lib_path=None):
        "nbdev makes imports of `lib_path` relative, so pass a folder with which no import begins."
        super().make(cells, all_cells, lib_path=self.fname.parent)


def nb_export(path, *args, **options):
    nbdev.export.nb_export(path, *args, **options, mod_maker=WholeModule)


def export(paths, package="transformer_lit"):
    "Export these notebooks, or all notebooks if none is named."
    for path in paths or sorted(Path("nbs").rglob("*.ipynb")):
        if ".ipynb_checkpoints" not in str(path):
            nb_export(path, lib_path=package)
    for module in Path(package).rglob("*.py"):  # remove what only concerns the page
        text = module.read_text()
        without = re.sub(r"^#\| code-fold.*\n", "", text, flags=re.M)
        if module.parent.name == "exercises":  # no one needs their cell marks or their __all__
            without = re.sub(r"^# %% .*\n(__all__ = \[[^\]]*\]\n\n)?", "", without, flags=re.M)
        if without != text:
            module.write_text(without)


if __name__ == "__main__":
    export(sys.argv[1:])
