"""Ways through the book: paths that are computed from the chapters' cards, a map, folded workshops.

    ```{reading-path} models/llama      every chapter that the named ones need, with its minutes
    ```{transformer-map} attention      the model as links; the reader's part is marked
    ```{part}                           on a page that opens a part: the map, and its chapters

Sections whose title begins with Workshop are folded on the page: they belong to the second pass.
"""

import json
import sys
from html import escape
from pathlib import Path

import exercise_cells
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parents[1]))
import cards

ROOT = Path(__file__).parents[2]


# --- paths --------------------------------------------------------------------------------------


def path_to(goals, root=ROOT):
    "The goals and all chapters that they need, in the book's order: (name, card) of each."
    order = {name: cards.card(path) for name, path in cards.chapters(root).items()}
    found, waiting = set(), list(goals)
    while waiting:
        name = waiting.pop()
        if name not in order:
            raise ValueError(f"no chapter {name!r}; chapters are named like 'attention/masks'")
        if name not in found:
            found.add(name)
            waiting += order[name]["needs"]
    return [(name, card) for name, card in order.items() if name in found]


def first_pass(root=ROOT):
    "Every chapter of the first pass: (name, card)."
    found = ((name, cards.card(path)) for name, path in cards.chapters(root).items())
    return [(name, card) for name, card in found if card["pass"] == 1]


def hours(minutes):
    "`95` -> `1 h 35 min`."
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def minutes(path):
    "The time for the chapters of a path."
    return sum(card["minutes"] for _, card in path)


def say_hours(app, config):
    "The length of the paths, for the pages that name it."
    paths = {"attention": path_to(["attention/multihead"]), "first_pass": first_pass()}
    config.myst_substitutions |= {f"hours_{n}": hours(minutes(path)) for n, path in paths.items()}


def facts(notebook):
    "What a card says in words: the pass, the time, the exercises where there are any."
    card, found = notebook["metadata"]["chapter"], len(exercise_cells.exercises(notebook["cells"]))
    yield "**First pass**" if card["pass"] == 1 else "Second pass"
    yield f"{card['minutes']} minutes"
    if found:
        yield f"{found} exercise{'s' if found > 1 else ''}"


class ReadingPath(SphinxDirective):
    "The chapters that lead to some goals; `first-pass` stands for all of the first pass."

    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self):
        goals = (self.arguments[0] if self.arguments else "").split()
        path = first_pass() if goals == ["first-pass"] else path_to(goals)
        files = {name: file.relative_to(ROOT) for name, file in cards.chapters().items()}
        said = f"{len(path)} chapters, {hours(minutes(path))}"
        lines = [*self.content, "", f"<details><summary>{said}</summary>", ""]
        lines += [
            f"1. {{doc}}`/{files[name].with_suffix('')}` ({card['minutes']} min)"
            for name, card in path
        ]
        lines += ["", "</details>"]
        node = nodes.container(classes=["reading-path"])
        self.state.nested_parse(StringList(lines), self.content_offset, node)
        return [node]


# --- the map ------------------------------------------------------------------------------------

LEFT, RIGHT, WIDE, HEIGHT = 112, 318, 176, 30  # middles of the two columns; size of a box
# label, chapter, column, middle, and the width where it is not WIDE
BOXES = (
    ("Sampling", "inference/sampling", 70, 24, 120),
    ("Beam search", "inference/beam", 215, 24, 120),
    ("Metrics", "inference/metrics", 360, 24, 120),
    ("Linear and softmax", "models/transformer", RIGHT, 84, WIDE),
    ("Residual and norm", "block/residual", RIGHT, 146, WIDE),
    ("Feed-forward", "block/feedforward", RIGHT, 182, WIDE),
    ("Residual and norm", "block/norm", RIGHT, 226, WIDE),
    ("Cross-attention", "attention/multihead", RIGHT, 262, WIDE),
    ("Residual and norm", "block/norm", RIGHT, 306, WIDE),
    ("Masked self-attention", "attention/masks", RIGHT, 342, WIDE),
    ("Residual and norm", "block/residual", LEFT, 226, WIDE),
    ("Feed-forward", "block/feedforward", LEFT, 262, WIDE),
    ("Residual and norm", "block/norm", LEFT, 306, WIDE),
    ("Self-attention, heads", "attention/self_attention", LEFT, 342, WIDE),
    ("Position", "position/absolute", LEFT, 408, WIDE),
    ("Position (RoPE)", "position/rope", RIGHT, 408, WIDE),
    ("Embedding", "text/embedding", LEFT, 444, WIDE),
    ("Embedding", "text/embedding", RIGHT, 444, WIDE),
    ("Tokenizer", "text/tokenizer", 215, 494, 382),
    ("Data", "training/data", 62, 548, 90),
    ("Loss", "training/loss", 164, 548, 90),
    ("Schedule", "training/schedule", 266, 548, 90),
    ("Trainer", "training/trainer", 368, 548, 90),
)
FRAMES = (  # label, chapter, left, top, width, height
    ("Encoder × N", "block/layers", 16, 184, 192, 182),
    ("Decoder × N", "block/layers", 222, 104, 192, 262),
)
NOTES = (("To write:", 10, 5), ("To train:", 17, 530))  # text, left, baseline
LINES = (  # from, over, to: the data go upwards
    ((LEFT, 479), (LEFT, 459)),
    ((RIGHT, 479), (RIGHT, 459)),
    ((LEFT, 393), (LEFT, 357)),
    ((RIGHT, 393), (RIGHT, 357)),
    ((LEFT, 211), (LEFT, 172), (215, 172), (215, 262), (230, 262)),
    ((RIGHT, 131), (RIGHT, 99)),
    ((RIGHT, 69), (RIGHT, 54), (215, 54), (215, 39)),
)


def architecture_map(link, part=""):
    "The map as SVG; `link` gives the address of a chapter, boxes of `part` are marked."
    shapes = []
    for label, chapter, x, y, width, height in FRAMES:
        shapes.append(
            f'<a href="{link(chapter)}"><rect class="frame{_here(chapter, part)}" x="{x}" y="{y}" '
            f'width="{width}" height="{height}" rx="8"/>'
            f'<text x="{x + 8}" y="{y + 16}" class="label">{escape(label)}</text></a>'
        )
    for line in LINES:
        points = " ".join(f"{x},{y}" for x, y in line)
        shapes.append(f'<polyline points="{points}" marker-end="url(#map-head)"/>')
    shapes += [f'<text x="{x}" y="{y}" class="label">{text}</text>' for text, x, y in NOTES]
    for label, chapter, x, y, width in BOXES:
        shapes.append(
            f'<a href="{link(chapter)}"><rect class="box{_here(chapter, part)}" '
            f'x="{x - width / 2}" y="{y - HEIGHT / 2}" width="{width}" height="{HEIGHT}" rx="5"/>'
            f'<text x="{x}" y="{y + 4.5}" text-anchor="middle">{escape(label)}</text></a>'
        )
    return (
        '<svg class="transformer-map" viewBox="0 -8 430 580" role="group" '
        'aria-label="Map of the Transformer: each box leads to its chapter">'
        '<defs><marker id="map-head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z"/></marker></defs>'
        + "".join(shapes)
        + "</svg>"
    )


def _here(chapter, part):
    return " here" if chapter.split("/")[0] == part else ""


class TransformerMap(SphinxDirective):
    "The map; with a part as argument it is folded, and the part is marked."

    optional_arguments = 1

    def run(self):
        part = self.arguments[0] if self.arguments else ""
        drawn = drawn_map(self.env, part)
        if part:
            drawn = f'<details class="map"><summary>Where you are</summary>{drawn}</details>'
        return [nodes.raw("", drawn, format="html")]


def drawn_map(env, part):
    "The map with links from the page that is being read."
    files = {name: path.relative_to(ROOT) for name, path in cards.chapters().items()}
    builder, here = env.app.builder, env.docname

    def link(chapter):
        return builder.get_relative_uri(here, str(files[chapter].with_suffix("")))

    return architecture_map(link, part)


# --- the page that opens a part -----------------------------------------------------------------


def lead(text):
    "The sentence below the title of a page; empty where there is none."
    return next((line[2:] for line in text.split("\n")[:4] if line.startswith("> ")), "")


def part_lines(opening, root=ROOT):
    "The pages of a part that the page `opening` opens: how long they take, and a line on each."
    pages = next(cards.numbered(pages) for _, pages in cards.contents(root) if opening in pages)
    numbers, lines, minutes = cards.numbers(root), [], {1: [], 2: []}
    for page in pages:
        if page.startswith("nbs/"):
            notebook = json.loads((root / f"{page}.ipynb").read_text(encoding="utf-8"))
            text, said = "".join(notebook["cells"][0]["source"]), " · ".join(facts(notebook))
            card = notebook["metadata"]["chapter"]
            minutes[card["pass"]].append(card["minutes"])
        else:
            text, said = (root / f"{page}.md").read_text(encoding="utf-8"), ""
        parts = (f"- {numbers[page]} {{doc}}`/{page}`", lead(text), said)
        lines.append("<br>".join(filter(None, parts)))
    passes = (
        f"{len(found)} chapter{'s' if len(found) > 1 else ''} of the {name} pass, "
        f"{hours(sum(found))}"
        for name, found in (("first", minutes[1]), ("second", minutes[2]))
        if found
    )
    return [f"*{'; '.join(passes)}.*", "", *lines]


class Part(SphinxDirective):
    "The chapters of the part that this page opens, and its place on the map."

    def run(self):
        part, drawn = Path(self.env.docname).name, []
        if part in {box[1].split("/")[0] for box in BOXES}:
            drawn = [nodes.raw("", drawn_map(self.env, part), format="html")]
        node = nodes.container(classes=["part-chapters"])
        self.state.nested_parse(StringList(part_lines(self.env.docname)), 0, node)
        return [*drawn, node]


# --- workshops ----------------------------------------------------------------------------------


def fold_workshops(app, doctree, docname):
    "A section Workshop shows its title alone until it is opened."
    for section in list(doctree.findall(nodes.section)):
        title = section[0].astext()
        if not title.startswith("Workshop"):
            continue
        opening = '<details class="workshop"><summary>Open the workshop (second pass)</summary>'
        section.insert(1, nodes.raw("", opening, format="html"))
        section += nodes.raw("", "</details>", format="html")


# --- contents -----------------------------------------------------------------------------------


def mark_second_pass(app, error):
    "A style sheet by which the contents show what belongs to the second pass."
    if error or app.builder.format != "html":
        return
    links = [
        f'.bd-sidebar-primary a[{where}"{place}.html"]'
        for path in cards.chapters().values()
        if cards.card(path)["pass"] == 2
        for where, place in (("href$=", f"{path.parent.name}/{path.stem}"), ("href=", path.stem))
    ]
    rule = ",\n".join(f"{link}::after" for link in links)
    muted = ",\n".join(links)
    text = f'{rule} {{ content: " (2)"; }}\n{muted} {{ color: var(--pst-color-text-muted); }}\n'
    Path(app.outdir, "_static/passes.css").write_text(text)


def setup(app):
    app.add_css_file("passes.css")
    app.connect("config-inited", say_hours)
    app.connect("build-finished", mark_second_pass)
    app.add_directive("reading-path", ReadingPath)
    app.add_directive("transformer-map", TransformerMap)
    app.add_directive("part", Part)
    app.connect("doctree-resolved", fold_workshops)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
