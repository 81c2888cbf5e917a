"""Questions on each part: plain text to read, and forms that book/_static/questions.js judges.

    ```{quiz} attention     the questions of a part, from book/quizzes.yml
    ```{quiz} attention/masks  the questions of a chapter
    ```{quiz-score}         a table of the parts; questions.js adds the reader's results

The script is loaded only on pages with questions. The questions of a chapter also appear below its
summary.
"""

import functools
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

import yaml
from docutils import nodes

sys.path.insert(0, str(Path(__file__).parents[1]))
import cards
from shown import nested, raw

ROOT = Path(__file__).parents[2]
FILE = ROOT / "book/quizzes.yml"
LETTERS = "ABCD"


# --- the questions ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    "One of the answers to choose from, and why it is right or wrong."

    text: str
    why: str
    right: bool


@dataclass(frozen=True)
class Question:
    "A question of a part; `chapter` explains its answer."

    id: str
    chapter: str
    level: str  # core or extra, as for exercises
    text: str
    choices: tuple[Choice, ...]
    code: str = ""  # shown below the text

    @property
    def right(self) -> int:
        "The place of the right answer."
        return [choice.right for choice in self.choices].index(True)


@functools.cache
def _parsed(text):
    written = yaml.load(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    for one in (one for questions in written.values() for one in questions):
        parts = ((c.get("right") or c["wrong"], c["why"], "right" in c) for c in one["choices"])
        one["choices"] = tuple(Choice(*each) for each in parts)
    return {part: [Question(**one) for one in questions] for part, questions in written.items()}


def read(file=FILE):
    "The questions of each part, in the order of the file: part -> list. All values are strings."
    return _parsed(file.read_text(encoding="utf-8"))


@functools.cache
def of_chapters():
    "The questions whose answers each chapter explains."
    found = {}
    for one in (one for questions in read().values() for one in questions):
        found.setdefault(one.chapter, []).append(one)
    return found


def titles(root=ROOT):
    "The parts of the book by the folder of their chapters: `block` -> `The block`."
    first = ((caption, cards.numbered(pages)[0]) for caption, pages in cards.contents(root))
    return {Path(page).parent.name: caption for caption, page in first}


# --- the page -----------------------------------------------------------------------------------


def inline(directive, text, name=""):
    "Markdown of one paragraph, without the paragraph."
    (paragraph,) = nested(directive, [text]).children
    return nodes.inline("", "", *paragraph.children, classes=[name] if name else [])


def choices(directive, question):
    for place, choice in enumerate(question.choices):
        box = f'<input type="radio" name="quiz-{question.id}" value="{place}">'
        letter = f'<span class="quiz-letter">{LETTERS[place]}</span> '
        yield raw(f'<label class="quiz-choice">{box} {letter}')
        yield inline(directive, choice.text, "quiz-text")
        yield raw("</label>")


def answer(directive, question):
    yield raw('<details class="quiz-answer"><summary>All answers explained</summary><ul>')
    for place, choice in enumerate(question.choices):
        verdict = "right" if choice.right else "wrong"
        yield raw(f"<li><strong>{LETTERS[place]} is {verdict}.</strong> ")
        yield inline(directive, choice.why, "quiz-why")
        yield raw("</li>")
    path = cards.chapters()[question.chapter].relative_to(ROOT).with_suffix("")
    yield raw("</ul><p>Explained in ")
    yield inline(directive, f"{{doc}}`/{path}`.")
    yield raw("</p></details>")


def asked(directive, number, part, question):
    named = f'id="quiz-{question.id}" data-quiz="{question.id}" data-part="{part}"'
    yield raw(f'<div class="quiz-question" {named} data-right="{question.right}">')
    extra = ' <span class="quiz-level">extra</span>' if question.level == "extra" else ""
    yield raw(f'<fieldset><legend><span class="quiz-number">{number}.{extra}</span> ')
    yield inline(directive, question.text)
    yield raw("</legend>")
    if question.code:
        yield nodes.literal_block(question.code, question.code, language="python")
    yield from choices(directive, question)
    yield raw("</fieldset>")
    yield from answer(directive, question)
    yield raw("</div>")


def quiz(directive):
    "The questions of a part or a chapter, with choices, all of which are explained."
    directive.env.note_dependency(str(FILE))
    known, name = read() | of_chapters(), directive.arguments[0]
    if name not in known:
        raise directive.error(f"no questions on {name!r}, only on {', '.join(known)}")
    part, alone = name.partition("/")[::2]
    silent = " data-pagefind-ignore" if alone else ""  # found on the page with all questions
    found = [raw(f'<div class="quiz" data-quiz-part="{part}"{silent}>')]
    for number, question in enumerate(known[name], 1):
        found += asked(directive, number, part, question)
    return [*found, raw("</div>")]


def score(directive):
    "A table of the parts with links to their questions, on the page with all questions."
    directive.env.note_dependency(str(FILE))
    caption, parts = titles(), read()
    rows = "".join(
        f'<tr data-quiz-part="{part}"><th scope="row"><a href="#quiz-{part}">'
        f"{escape(caption[part])}</a></th><td>{len(questions)}</td></tr>"
        for part, questions in parts.items()
    )
    total = f'<tr data-quiz-part=""><th scope="row">All</th><td>{sum(map(len, parts.values()))}'
    return [
        raw(
            '<div class="quiz-score"><table class="widget-table"><thead><tr>'
            '<th scope="col">Part</th><th scope="col">Questions</th></tr></thead>'
            f"<tbody>{rows}</tbody><tfoot>{total}</td></tr></tfoot></table></div>"
        )
    ]


SCRIPTS = {  # and the marks by which pages that need them are recognised
    "questions.js": ('class="quiz"', "data-judge", "data-index"),
    "editor.js": ('class="exercise-card" data-exercise',),
}


def add_scripts(app, pagename, templatename, context, doctree):
    "Add the scripts, only to pages with questions, answers or counts."
    found = list(doctree.findall(nodes.raw)) if doctree is not None else ()
    for script, marks in SCRIPTS.items():
        if any(mark in node.astext() for node in found for mark in marks):
            app.add_js_file(script, loading_method="defer")
