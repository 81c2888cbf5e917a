"""The twelve patients of the repair shop. That each is caught, test_every_exercise shows."""

import json
import re
from pathlib import Path

from chapter import exercises

CHAPTERS = Path(__file__).parents[2] / "nbs/assistant"


def cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def test_each_patient_is_a_repair_of_the_chapter_that_its_line_names():
    found = {
        one.id: (path.stem, one.kind)
        for path in CHAPTERS.glob("*.ipynb")
        for one in exercises(cells(path))
    }
    (shop,) = (c["source"] for c in cells(CHAPTERS / "06_judging.ipynb") if c["id"] == "shop")
    lines = re.findall(
        r"^\| (\d+) .* \| ([a-z]+\.\d)(?: in \{doc\}`(\w+)`|, above) \|", "".join(shop), re.M
    )
    assert [int(number) for number, *_ in lines] == [*range(1, 13)]
    for _, id, chapter in lines:
        assert found[id] == (chapter or "06_judging", "repair")
    assert {id for id, (_, kind) in found.items() if kind == "repair"} == {id for _, id, _ in lines}
