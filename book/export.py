"""Write transformer_lit/ from the notebooks: nbdev's export, with imports as the notebook has them.

nbdev would make the package's own imports relative, but only those on one line at the top level; a
module then reads otherwise than its notebook, and mixes two forms.
"""

import sys

import nbdev.maker
from nbdev.doclinks import nbdev_export
from nbdev.export import nb_export

nbdev.maker._import2relative = lambda *arguments: None


def export(paths, package="transformer_lit"):
    "Export these notebooks alone; without any, all of them, and write the index."
    for path in paths:
        nb_export(path, lib_path=package)
    if not paths:
        nbdev_export()


if __name__ == "__main__":
    export(sys.argv[1:])
