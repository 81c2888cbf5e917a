"""What can be taken from the site: copies of the chapters for Colab and Jupyter, and their archive.

The copies lie in the folder `notebooks` of the site. The buttons for Colab and for the source of a
chapter lead to its copy: the chapter itself has roles that only the site resolves.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import copies


def lead_to_copies(app, pagename, templatename, context, doctree):
    "The buttons at the top of a chapter."
    if not pagename.startswith("nbs/"):
        return
    for group in context.get("header_buttons", []):
        for button in group.get("buttons", []):
            if button.get("url", "").startswith("https://colab."):
                button["url"] = copies.colab(pagename)
            elif button["label"] == "download-source-button":
                button["url"] = context["pathto"](f"{copies.FOLDER}/{pagename}.ipynb", 1)


def write_copies(app, error):
    if not error and app.builder.format == "html":
        copies.write(Path(app.outdir, copies.FOLDER))


def setup(app):
    app.connect("html-page-context", lead_to_copies, priority=900)  # after the theme made them
    app.connect("build-finished", write_copies)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
