"Ways through the book: paths computed from the chapters' cards, a map, the pages of the parts."

import json
import re
from pathlib import Path

import answers
import cards
import chapter
from shown import nested, raw

from transformer_lit.models.hf_build import FAMILIES

ROOT = cards.ROOT
LABEL = re.compile(r"^\$\$ \(eq-", re.M)
MAP = (ROOT / "book/map.svg").read_text(encoding="utf-8")  # its links are names of chapters


# --- paths --------------------------------------------------------------------------------------


def path_to(goals, root=ROOT):
    "The goals and all chapters that they need, in the order of the book: name -> card."
    order = {name: cards.card(path) for name, path in cards.chapters(root).items()}
    found, waiting = set(), list(goals)
    while waiting:
        name = waiting.pop()
        if name not in order:
            raise ValueError(f"no chapter {name!r}; chapters are named like 'attention/masks'")
        waiting += [] if name in found else order[name]["needs"]
        found.add(name)
    return {name: card for name, card in order.items() if name in found}


def first_pass(root=ROOT):
    "Every chapter of the first pass: name -> card."
    found = {name: cards.card(path) for name, path in cards.chapters(root).items()}
    return {name: card for name, card in found.items() if card["pass"] == 1}


def chosen(goals, root=ROOT):
    "The chapters of a path: `first-pass`, `only` and names, or names with all that they need."
    if goals == ["first-pass"]:
        return first_pass(root)
    path = path_to([goal for goal in goals if goal != "only"], root)
    return {name: card for name, card in path.items() if goals[0] != "only" or name in goals}


def practice(path, root=ROOT):
    "How long the exercises of a path take, according to their labels."
    files = cards.chapters(root)
    books = (json.loads(files[name].read_text(encoding="utf-8")) for name in path)
    return hours(sum(one.minutes for book in books for one in chapter.exercises(book["cells"])))


def hours(minutes):
    "`95` -> `1 h 35 min`."
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def length(path):
    return hours(sum(card["minutes"] for card in path.values()))


def say_counts(app, config):
    "Set the numbers on the first page."
    first, path = "nbs/start/00_ten_minutes", first_pass()
    books = [json.loads(file.read_text(encoding="utf-8")) for file in cards.chapters().values()]
    cells = [cell for book in books for cell in book["cells"]]
    formulas = sum(len(LABEL.findall("".join(cell["source"]))) for cell in cells)
    config.myst_substitutions |= {
        "hours_first_pass": length(path),
        "practice_first_pass": practice(path),
        "minutes_first": f"{path['start/ten_minutes']['minutes']} minutes",
        "minutes_attention": f"{path['attention/self_attention']['minutes']} minutes",
        "colab_ten_minutes": f"[Run the first chapter in Colab]({chapter.colab(first)})",
        "count_formulas": f"{formulas}",
        "count_cells": f"{sum(cell['cell_type'] == 'code' for cell in cells):,}",
        "count_exercises": f"{sum(len(chapter.exercises(book['cells'])) for book in books)}",
        "count_families": f"{len(FAMILIES)}",
    }


def reading_path(directive):
    "The chapters of a path, in the form that `chosen` takes."
    path, files = chosen(directive.arguments[0].split()), cards.chapters()
    times = f"{length(path)} to read, {practice(path)} of exercises"
    summary = f"<details><summary>{len(path)} chapters, {times}</summary>"
    rows = (
        f"1. {{doc}}`/{cards.page(files[name])}` ({card['minutes']} min)"
        for name, card in path.items()
    )
    lines = [*directive.content, "", summary, "", *rows, "", "</details>"]
    return [nested(directive, lines, "reading-path")]


# --- the map ------------------------------------------------------------------------------------


def drawn_map(link, part=""):
    "The map as SVG; `link` returns the address of a chapter; the boxes of `part` are marked."

    def leads(match):
        here = " here" if match[1].startswith(f"{part}/") else ""
        return f'<a href="{link(match[1])}"><rect class="{match[2]}{here}"'

    drawn = re.sub(r'<a href="(.+?)"><rect class="(\w+)"', leads, MAP)
    return f'<div class="drawing">{drawn}</div>'


def map_here(env, part=""):
    "The map with links from the present page; empty for a part that isn't on the map."
    files, address = cards.chapters(), env.app.builder.get_relative_uri
    if part and f'href="{part}/' not in MAP:
        return ""
    return drawn_map(lambda name: address(env.docname, cards.page(files[name])), part)


def drawing(directive):
    "A drawing of this folder, with its caption."
    (name,), caption = directive.arguments, " ".join(directive.content)
    drawn = (ROOT / f"book/{name}.svg").read_text(encoding="utf-8")
    told = f"<figcaption>{caption}</figcaption>" if caption else ""
    return [raw(f'<figure class="drawing {name}">{drawn}{told}</figure>')]


def transformer_map(directive):
    "The map; if a part is named, the map is folded and the part is marked."
    drawn = map_here(directive.env, *directive.arguments)
    if drawn and directive.arguments:
        drawn = f'<details class="map"><summary>Where you are</summary>{drawn}</details>'
    return [raw(drawn)] if drawn else []


# --- the page that opens a part -----------------------------------------------------------------


def lead(text):
    "The sentence below the title of a page; empty if there is none."
    return next((line[2:] for line in text.split("\n")[:4] if line.startswith("> ")), "")


def part_lines(opening, root=ROOT):
    "The pages of the part that `opening` opens: how long they take, and a line for each."
    pages = next(cards.numbered(pages) for _, pages in cards.contents(root) if opening in pages)
    numbers, lines, minutes = cards.numbers(root), [], {1: [], 2: []}
    for page in pages:
        if page.startswith("nbs/"):
            notebook = json.loads((root / f"{page}.ipynb").read_text(encoding="utf-8"))
            text, said = chapter.source(notebook["cells"][0]), chapter.facts(notebook)
            card = notebook["metadata"]["chapter"]
            minutes[card["pass"]].append(card["minutes"])
        else:
            text, said = (root / f"{page}.md").read_text(encoding="utf-8"), []
        parts = (f"- {numbers[page]} {{doc}}`/{page}`", lead(text), " · ".join(said))
        lines.append("<br>".join(filter(None, parts)))
    passes = (
        f"{len(found)} chapter{'s' if len(found) > 1 else ''} of the {name} pass, "
        f"{hours(sum(found))}"
        for name, found in (("first", minutes[1]), ("second", minutes[2]))
        if found
    )
    return [f"*{'; '.join(passes)}.*", "", *lines]


def part(directive):
    "The chapters of the part that this page opens, and its place on the map."
    page = directive.env.docname
    lines = nested(directive, part_lines(page), "part-chapters")
    return [raw(map_here(directive.env, Path(page).name)), lines]


# --- answers ------------------------------------------------------------------------------------


def asked(root=ROOT):
    "Every exercise that the first pass asks for, must and should: id -> page."
    found = {}
    for path in cards.chapters(root).values():
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for one in chapter.exercises(notebook["cells"]):
            if one.mark != "could":
                found[one.id] = f"{cards.page(path, root)}.html#{answers.anchor(one)}"
    return found


def progress(directive):
    "How many exercises are done, and a link to the next one: questions.js, places.js."
    up = "../" * directive.env.docname.count("/")
    links = [[id, up + page] for id, page in asked().items()]
    (id, address), n = links[0], len(links)
    return [
        raw(
            f'<p class="answers-progress" data-index={answers.packed(links)}>'
            f"<strong>0 of {n}</strong> exercises of the first pass"
            f'<span>, next: <a href="{address}">{id}</a></span>. Counted only in this browser. '
            "<label>To count what <code>check</code> has accepted, open your "
            '<code>my_progress.json</code>: <input type="file" accept=".json"></label></p>'
            '<p class="continue" hidden>You were last at <a></a>.</p>'
        )
    ]
