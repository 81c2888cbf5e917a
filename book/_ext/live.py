"""Widgets: parts of a page that JavaScript fills, with something to read where it does not run.

    ```{widget} translate           book/_static/widgets/translate.js fills it
    :ask: Load it (4 MB)            optional: nothing is loaded before this button is pressed
    :model: multi30k-en-de          optional, for `translate`: which shipped translator it opens
    :by: kind, chapter              for the widget `filter`: columns of the table that it holds
    what stands there until then
    ```
    ```{hero} A sentence.           its translation, drawn: lines lead to where the model looked
    ```{translated} A sentence.     what a shipped translator (`:model:`) makes of it, and where it
                                    looks
    ```{written} shakespeare ROMEO: how a shipped decoder goes on

The weights are the package's own files, copied into the site; nothing is converted.
"""

import shutil
from functools import cache
from html import escape
from pathlib import Path

import torch
from shown import nested, raw

from transformer_lit import load
from transformer_lit.models.interpret import watch

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "book/_static"
CAPTIONS = "multi30k-en-de"  # the translator that is meant where none is named
MODELS = (CAPTIONS, "everyday-en-de", "shakespeare", "stories")  # those that the widgets name
FILES = ("config.json", "tokenizer.json", "model.safetensors")


# --- widgets ------------------------------------------------------------------------------------


def opening(name, ask="", by="", model=""):
    "The tag that page.js looks for."
    if not (STATIC / "widgets" / f"{name}.js").is_file():
        raise ValueError(f"no widget {name!r}: book/_static/widgets/{name}.js is missing")
    options = {"ask": ask, "by": by, "model": model}
    told = "".join(f' data-{k}="{escape(v)}"' for k, v in options.items() if v)
    return f'<div class="widget" data-widget="{name}"{told}>'


def widget(directive):
    "A place that a module in book/_static/widgets fills; its content is shown until then."
    directive.assert_has_content()  # without JavaScript the page says something, too
    inside = nested(directive, directive.content)
    return [
        raw(opening(*directive.arguments, **directive.options)),
        *inside.children,
        raw("</div>"),
    ]


# --- what stands there without JavaScript -------------------------------------------------------


@cache
def translated(sentence, model=CAPTIONS):
    "The translation, its pieces, the sentence's pieces, and the weights of each layer and head."
    translator = load(model)
    tokenizer, (german,) = translator.tokenizer, translator.translate([sentence])
    src, tgt = tokenizer.encode(sentence, eos=True), tokenizer.encode(german)
    tgt_in = torch.tensor([[tokenizer.bos_id, *tgt]])
    with watch(translator.model) as seen, torch.inference_mode():
        translator.model(torch.tensor([src]), tgt_in)
    weights = [weights for name, weights in seen.items() if name.endswith("cross_attn")]
    pieces = ([*tokenizer.tokens(text), "(end)"] for text in (german, sentence))
    return german, *pieces, torch.cat(weights)


def heat_table(rows, columns, weights, caption):
    "The table that widgets/heat.js draws."
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in columns)
    body = ""
    for text, row in zip(rows, weights.tolist(), strict=True):
        shown = ((weight, round(100 * weight)) for weight in row)
        cells = "".join(f'<td style="--weight: {w:.3f}">{n or ""}</td>' for w, n in shown)
        body += f'<tr><th scope="row">{escape(text)}</th>{cells}</tr>'
    return (
        f'<div class="widget-scroll" tabindex="0" role="group" aria-label="{escape(caption)}">'
        f'<table class="widget-heat"><caption>{escape(caption)}</caption>'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def said(text, language, *, begun=""):
    "A result as the widgets show it; `begun` is what was given."
    begun = f"<strong>{escape(begun)}</strong>" if begun else ""
    kind = "widget-result widget-text" if begun else "widget-result"
    return f'<p class="{kind}" lang="{language}">{begun}{escape(text)}</p>'


def translated_here(directive):
    "A sentence, its translation by a shipped model, and where a layer looked."
    german, rows, columns, weights = translated(*directive.arguments, **directive.options)
    layers, heads = weights.shape[:2]
    caption = f"Cross-attention, layer {layers - 1}, mean of the {heads} heads, in %"
    table = heat_table(rows, columns, weights[-2].mean(0), caption)  # the clearest layer
    return [raw(said(german, "de") + table)]


LINE, LEAST = 34, 0.05  # pixels from piece to piece; fainter looks are not drawn


def hero_drawing(sentence):
    "Two columns of pieces as SVG; the German ones appear in turn, each with its lines."
    german, rows, columns, weights = translated(sentence)
    looks = weights[-2].mean(0).tolist()  # T S

    def piece(text, x, y, anchor):
        return f'<text x="{x}" y="{y + 5}" text-anchor="{anchor}">{escape(text.strip())}</text>'

    heights = [LINE * (place + 0.5) for place in range(max(len(rows), len(columns)) - 1)]
    words = [piece(text, 120, y, "end") for text, y in zip(columns[:-1], heights)]
    for place, (text, at, look) in enumerate(zip(rows[:-1], heights, looks)):
        lines = "".join(
            f'<line x1="128" y1="{y}" x2="212" y2="{at}" stroke-opacity="{weight:.2f}"/>'
            for y, weight in zip(heights, look[: len(columns) - 1])
            if weight >= LEAST
        )
        words.append(f'<g style="--turn: {place}">{lines}{piece(text, 220, at, "start")}</g>')
    about = f"{sentence} becomes {german} A line from a German piece leads to the English pieces "
    about += "that the model looked at when it wrote it; the darker, the more."
    size = f"0 0 340 {int(heights[-1] + LINE / 2)}"
    return (
        f'<figure class="hero"><svg viewBox="{size}" width="340" role="img" '
        f'aria-label="{escape(about)}">{"".join(words)}</svg>'
        "<figcaption>A translator of captions that you train in this book, recorded: each German "
        "piece as it was written, and the English pieces that it looked at.</figcaption></figure>"
    )


def hero(directive):
    "A sentence and its translation, drawn; it moves once, in the style sheet alone."
    return [raw(hero_drawing(*directive.arguments))]


@cache
def written(name, prompt, max_new_tokens=240):
    "How a shipped decoder goes on: one draw."
    return "".join(load(name).stream(prompt, max_new_tokens=max_new_tokens, seed=0))


def written_here(directive):
    "A beginning, and how a shipped decoder goes on."
    name, prompt = directive.arguments[0].split(" ", 1)
    return [raw(said(written(name, prompt), "en", begun=prompt))]


# --- weights ------------------------------------------------------------------------------------


def copy_models(app):
    "The shipped models, as they are, into the folder of the site's static files."
    for name in MODELS:
        target = Path(app.outdir, "_static/live/models", name)
        target.mkdir(parents=True, exist_ok=True)
        for file in FILES:
            shutil.copy(ROOT / "transformer_lit/weights" / name / file, target / file)
