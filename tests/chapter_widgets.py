"The places of widgets in the chapters, as their notebooks hold them."

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"```\{widget\} (\w+)\n(?::ask: ([^\n]*)\n\n)?(.*)\n```", re.S)


def chapter_widgets() -> dict[str, tuple[str, str, str]]:
    "The name of each widget -> its page, what stands there until it runs, and its button."
    found = {}
    for path in sorted(ROOT.glob("nbs/*/*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            place = PLACE.fullmatch("".join(cell["source"]))
            if place and cell["cell_type"] == "markdown":
                assert cell["id"] == f"widget-{place[1]}" and place[1] not in found
                found[place[1]] = (
                    str(path.relative_to(ROOT).with_suffix("")),
                    place[3],
                    place[2] or "",
                )
    return found
