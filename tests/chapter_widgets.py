"The places of widgets in the chapters, as their notebooks hold them; the first page."

import json
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
INTRO = (ROOT / "book/intro.md").read_text(encoding="utf-8")
FIRST = re.search(r":model: (\S+)", INTRO)[1]  # the translator of the first page
PLACE = re.compile(r"```\{widget\} (\w+)\n(?::ask: ([^\n]*)\n\n)?(.*)\n```", re.S)


class Place(NamedTuple):
    page: str
    text: str  # what stands there until the widget runs
    ask: str  # the button that must be pressed first, or nothing


def chapter_widgets() -> dict[str, list[Place]]:
    "The name of each widget -> its places; what is loaded at once has one alone."
    found: dict[str, list[Place]] = {}
    for path in sorted(ROOT.glob("nbs/*/*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            place = PLACE.fullmatch("".join(cell["source"]))
            if place and cell["cell_type"] == "markdown":
                name, ask, text = place.groups("")
                assert cell["id"] == f"widget-{name}" and (ask or name not in found)
                page = str(path.relative_to(ROOT).with_suffix(""))
                found.setdefault(name, []).append(Place(page, text, ask))
    return found
