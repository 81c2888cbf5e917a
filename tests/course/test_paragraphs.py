"The book is read from a checkout, and else from the edition that comes with the package."

import json

from transformer_lit.course.book import paragraphs

LONG = "A paragraph of this length says something, so that it is worth the search."


def test_paragraphs_are_those_of_the_prose_without_exercises(tmp_path):
    root = tmp_path / "nbs/part"
    root.mkdir(parents=True)
    texts = ["# Title", "> One sentence.", LONG, "```bash\nmake it\n```", f"## Part\n\n{LONG} x"]
    texts += ["Too short.", "## Exercises", LONG, f"### norm.1 · One\n\n{LONG}", "## After", LONG]
    cells = [{"cell_type": "markdown", "source": [text]} for text in texts]
    (root / "01_topic.ipynb").write_text(json.dumps({"cells": cells}))
    found = [(one.chapter, one.section, one.text) for one in paragraphs(tmp_path)]
    assert found == [("Title", "", LONG), ("Title", "Part", f"{LONG} x"), ("Title", "After", LONG)]
    assert {one.page for one in paragraphs(tmp_path)} == {"nbs/part/01_topic"}


def test_the_edition_is_read_where_there_is_no_checkout(tmp_path):
    edition = paragraphs(tmp_path / "nowhere")
    assert len(edition) > 1000 and any("divide by √D" in one.section for one in edition)
    assert len(paragraphs()) > len(edition)  # this checkout has more chapters
