"""Widgets: parts of a page that JavaScript fills, with something to read if it doesn't run.

    ```{widget} translate           book/_static/widgets/translate.js fills it
    :ask: Load it (4 MB)            optional: nothing is loaded before this button is pressed
    :model: multi30k-en-de          optional, for `translate`: which shipped translator it opens
    :by: kind, chapter              for the widget `filter`: columns of its table
    what is shown until then
    ```

The weights are the package's own files, copied into the site; nothing is converted.
"""

import shutil
from html import escape
from pathlib import Path

from shown import nested, raw

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "book/_static"
CAPTIONS = "multi30k-en-de"  # the translator that is used if none is named
MODELS = (
    CAPTIONS,
    "everyday-en-de",
    "running-sum",
    "shakespeare",
    "stories",
)  # the models that the widgets use
FILES = ("config.json", "tokenizer.json", "model.safetensors")


def opening(name, ask="", by="", model=""):
    "The tag that page.js looks for."
    if not (STATIC / "widgets" / f"{name}.js").is_file():
        raise ValueError(f"no widget {name!r}: book/_static/widgets/{name}.js is missing")
    options = {"ask": ask, "by": by, "model": model}
    told = "".join(f' data-{k}="{escape(v)}"' for k, v in options.items() if v)
    return f'<div class="widget" data-widget="{name}"{told}>'


def widget(directive):
    "A place that a module in book/_static/widgets fills; its content is shown until then."
    directive.assert_has_content()  # so that there is something to read without JavaScript
    inside = nested(directive, directive.content)
    return [
        raw(opening(*directive.arguments, **directive.options)),
        *inside.children,
        raw("</div>"),
    ]


def copy_models(app):
    "Copy the shipped models, as they are, to the folder of the site's static files."
    for name in MODELS:
        target = Path(app.outdir, "_static/live/models", name)
        target.mkdir(parents=True, exist_ok=True)
        for file in FILES:
            shutil.copy(ROOT / "transformer_lit/weights" / name / file, target / file)
