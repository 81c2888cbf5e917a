"""Python in the page: what its worker fetches, written into the site.

`archive.zip` contains the files that book/page/contents.py lists. `about.json` has the hash of the
archive, the pieces from which book/_static/editor.js assembles the reader's `my_transformer.py`,
and the losses that the book's own file reaches at the size that the page uses.
"""

import io
import json
import sys
import zipfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "page"))
import contents

from transformer_lit.course.files import read_json, sha256
from transformer_lit.course.my_model import IN_PAGE
from transformer_lit.exercises.my_transformer import _HEAD, STEPS

RECORD = Path(__file__).parents[2] / "results/measurements/living_page.json"


def archive() -> bytes:
    "A zip file of `contents.files()`, with the same bytes in each build."
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, data in contents.files().items():
            # a ZipInfo is dated 1980, a plain name with the time of the build
            file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, compresslevel=9)
    return packed.getvalue()


def write(app):
    "Write the archive and its data next to the worker."
    packed, folder = archive(), Path(app.outdir, "_static/python")
    steps = [[step.id, step.name, step.number] for step in STEPS.values()]
    ladder = {}
    for row in read_json(RECORD)["rows"]:
        ladder.setdefault(row["step"], []).append(row["nats"])
    about = {"sha256": sha256(packed), "head": _HEAD, "steps": steps, "ladder": ladder}
    about["training"] = IN_PAGE.plain["steps"]  # as many as with the reader's own `train`
    (folder / "archive.zip").write_bytes(packed)
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
