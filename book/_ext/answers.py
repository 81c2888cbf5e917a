"""Exercises whose answer is a value are answered in the page, which remembers right answers.

Below the statement is an input field. book/_static/questions.js judges what is typed there, with
the data from `as_data`.
"""

import json
import re
from html import escape

from transformer_lit.course.exercises import Question, loosely
from transformer_lit.exercises import find_exercise

KINDS = ("warm-up", "predict")


def in_page(one):
    "Whether an exercise of a notebook is answered in the page."
    return one.kind in KINDS


def anchor(one):
    "The label of an exercise, as docutils writes it."
    return f"exercise-{one.name}".replace("_", "-")


def packed(data):
    "Data as an HTML attribute, with its quotation marks, on one line."
    text = escape(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    return f"'{text.replace('&quot;', chr(34))}'"  # JSON is full of double quotes


def as_data(one: Question):
    """What book/_static/questions.js needs to judge a value as `check` does.

    Values are written as in Python, which distinguishes 1 from 1.0 and has nan.
    """
    return {
        "key": repr(one.answer),
        "kind": loosely(one.answer),
        "tolerance": one.tolerance,
        "form": one.form,
        "sought": one.sought,
        "known": [[hint, repr(value)] for hint, value in one.known.items()],
    }


def inputs(one, name, blank, told):
    "An input, or one for each item of a flat list, with the names that the blank's comment gives."
    items = re.findall(r'"?\.\.\."?', blank)
    if len(items) < 2 or blank != f"[{', '.join(items)}]":
        items = [blank if blank.startswith("[") else ""]
    names = (told[-1] if told else "").split(", ")
    for place, item in enumerate(items):
        known = names[place] if len(names) == len(items) else f"{place + 1} of {len(items)}"
        label = f' aria-label="{name}: {escape(known)}"' if len(items) > 1 else ""
        yield (
            f'<input id="answer-{one.name}{place or ""}"{label} type="text" '
            f'placeholder="{escape(known if item == "..." else item)}" '
            f'aria-describedby="form-{one.name}" autocomplete="off" autocapitalize="off" '
            'spellcheck="false" enterkeyhint="done">'
        )


def form(one):
    "The fields of an answer: HTML without an empty line."
    data = as_data(find_exercise(one.id))
    name, _, blank = re.search(r"^(\w+) = ([^#\n]*)", one.blank, re.M)[0].partition(" = ")
    told = [text for text in re.findall(r"# (.+)", one.blank) if text not in data["form"]]
    more = any(text.startswith(data["form"]) for text in told)
    asked = " · ".join(told if more else [data["form"], *told])
    return (
        f'<form class="widget answer" data-exercise="{one.id}" data-judge={packed(data)}>'
        f'<label for="answer-{one.name}">Your answer: <code>{name}</code></label>'
        '<div class="widget-row"><div class="widget-grow">'
        f"{''.join(inputs(one, name, blank.strip(), told))}</div>"
        '<button class="widget-button">Check</button><span class="answer-done">✓ done</span></div>'
        f'<p class="quiz-note" id="form-{one.name}">{escape(asked[0].upper() + asked[1:])}</p>'
        '<div class="quiz-verdict" role="status"></div></form>'
    )
