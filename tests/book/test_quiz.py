"""The quizzes answer, count and forget, with mouse and keyboard, whatever the browser stores.

`BOOK_HTML` names a built book; without it Sphinx builds the one page, with the book's theme.
"""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import quizzes
from sphinx.application import Sphinx

KEY = "transformer_lit.quiz"
PARTS = quizzes.read()
FIRST = PARTS["attention"][0]
FOCUSED = "(it) => it === document.activeElement"
KEPT = f"JSON.parse(localStorage.getItem('{KEY}'))"
CONFIG = {
    "extensions": ["myst_parser", "quizzes"],
    "myst_enable_extensions": ["dollarmath"],
    "html_theme": "sphinx_book_theme",
    "html_static_path": ["book/_static"],
    "html_css_files": ["custom.css", "widgets.css"],
    "html_js_files": ["page.js"],
    "html_favicon": "book/_static/favicon.svg",
    "html_context": {"default_mode": "auto"},
    "html_sidebars": {"**": []},
    "mathjax_path": "mathjax/tex-chtml.js",
    "root_doc": "book/quizzes",
    "project": "Quizzes",
    "nitpicky": True,
}


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    "The folder of a site with the page of quizzes; chapters are empty pages."
    if built := os.environ.get("BOOK_HTML"):
        return Path(built).resolve()
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(quizzes.ROOT / "book/_static", source / "book/_static")
    shutil.copy(quizzes.ROOT / "book/quizzes.md", source / "book/quizzes.md")
    chapters = quizzes.cards.chapters()
    for path in {chapters[q.chapter] for part in PARTS.values() for q in part}:
        page = source / path.relative_to(quizzes.ROOT).with_suffix(".md")
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"---\norphan: true\n---\n# {path.stem}\n", encoding="utf-8")
    out = tmp_path_factory.mktemp("site")
    said = open(os.devnull, "w")  # noqa: SIM115
    app = Sphinx(source, None, out, out / ".trees", "html", CONFIG, said, said, warningiserror=True)
    app.build()
    assert app.statuscode == 0
    return out


@pytest.fixture(scope="session")
def quiz_address(site, served):
    return f"{served(site)}/book/quizzes.html"


@pytest.fixture
def quiz(page, quiz_address):
    page.goto(quiz_address)
    return page


def asked(page, question=FIRST):
    return page.locator(f"#quiz-{question.id}")


def choose(page, question, place):
    "Choose an answer by its label, and press the button."
    asked(page, question).locator("label").nth(place).click()
    asked(page, question).get_by_role("button", name="Check").click()


def wrong_places(question):
    return [place for place in range(4) if place != question.right]


def plain(text):
    "The first words of a text in Markdown, as a page shows them."
    return re.split(r"[`$*“”…]", text)[0].strip()


def row(page, part):
    return page.locator(f".quiz-score tr[data-quiz-part='{part}'] td").all_inner_texts()


# --- what is there ------------------------------------------------------------------------------


def test_every_question_is_there_with_its_choices(quiz):
    texts = """(it) => [it.dataset.quiz,
        [...it.querySelectorAll("legend, label")].map((text) => text.innerText)]"""
    found = dict(quiz.locator(".quiz-question").evaluate_all(f"(all) => all.map({texts})"))
    questions = [question for part in PARTS.values() for question in part]
    assert list(found) == [question.id for question in questions]
    for question in questions:
        written = [question.text, *(choice.text for choice in question.choices)]
        assert len(found[question.id]) == len(written)
        assert all(plain(text) in shown for text, shown in zip(written, found[question.id]))


def test_every_control_has_a_name_and_a_group(quiz):
    root = asked(quiz)
    group = root.get_by_role("group")
    assert plain(FIRST.text) in group.locator("legend").inner_text()
    for radio in root.get_by_role("radio").all():
        assert radio.evaluate("(it) => it.labels.length") == 1
    assert root.get_by_role("status").count() == 1


def test_without_javascript_all_of_it_can_be_read(browser, quiz_address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(quiz_address)
    root = asked(page)
    assert not root.locator("button").count() and page.locator(".quiz-score").is_visible()
    root.locator("summary").click()
    for place, choice in enumerate(FIRST.choices):
        line = root.locator("li").nth(place).inner_text()
        verdict = "right" if choice.right else "wrong"
        assert line.startswith(f"{'ABCD'[place]} is {verdict}.") and plain(choice.why) in line
    assert root.get_by_role("link").get_attribute("href").endswith("attention/02_masks.html")
    context.close()


def test_the_script_is_loaded_where_questions_stand(quiz, site):
    assert any("/_static/quiz.js" in url for url in quiz.asked)
    chapter, other = (
        (site / f"{page}.html").read_text(encoding="utf-8")
        for page in ("nbs/attention/02_masks", "book/glossary")
    )
    assert "quiz.js" in chapter and "quiz.js" not in other and "page.js" in other


# --- answers ------------------------------------------------------------------------------------


def test_by_mouse(quiz):
    root, (wrong, *_) = asked(quiz), wrong_places(FIRST)
    assert not root.locator("details").is_visible()  # nothing is given away
    root.get_by_role("button", name="Check").click()
    assert root.get_by_role("status").inner_text() == "Choose an answer first."
    choose(quiz, FIRST, wrong)
    said = root.get_by_role("status").inner_text()
    assert said.startswith("✗ Not this one.") and plain(FIRST.choices[wrong].why) in said
    assert "1 try so far" in root.inner_text()
    root.locator("label").nth(FIRST.right).click()
    assert root.get_by_role("status").inner_text() == ""  # it was about another choice
    root.get_by_role("button", name="Check").click()
    said = root.get_by_role("status").inner_text()
    assert said.startswith("✓ Right.") and plain(FIRST.choices[FIRST.right].why) in said
    assert "✓ solved in 2 tries" in root.inner_text()
    root.locator("summary").click()
    assert root.locator("li").count() == 4
    # a later try takes nothing away
    choose(quiz, FIRST, wrong)
    assert "✓ solved in 2 tries" in root.inner_text()


def test_by_keyboard(quiz):
    root = asked(quiz)
    boxes = root.get_by_role("radio")
    boxes.nth(0).focus()
    quiz.keyboard.press("Space")
    for _ in range(FIRST.right):
        quiz.keyboard.press("ArrowDown")
    assert boxes.nth(FIRST.right).is_checked()
    assert root.get_by_role("status").inner_text() == ""  # moving is not answering
    quiz.keyboard.press("Enter")
    assert root.get_by_role("status").inner_text().startswith("✓ Right.")
    quiz.keyboard.press("Tab")
    button = root.get_by_role("button", name="Check")
    assert button.evaluate(FOCUSED)
    width = "(it) => parseFloat(getComputedStyle(it).outlineWidth)"
    assert button.evaluate(width) >= 2  # the focus is seen
    quiz.keyboard.press("Enter")
    assert "✓ solved in 1 try" in root.inner_text()
    quiz.keyboard.press("Tab")
    assert root.locator("summary").evaluate(FOCUSED)
    quiz.keyboard.press("Enter")
    assert root.locator("li").first.is_visible()


def test_what_was_tried_is_marked_by_a_sign_and_not_by_colour_alone(quiz):
    sign = "(it) => getComputedStyle(it, '::after').content"
    (wrong, *_), labels = wrong_places(FIRST), asked(quiz).locator("label")
    for place, expected in ((wrong, '"✗"'), (FIRST.right, '"✓"')):
        choose(quiz, FIRST, place)
        assert labels.nth(place).evaluate(sign) == expected
    (untouched, *_) = set(range(4)) - {wrong, FIRST.right}
    assert labels.nth(untouched).evaluate(sign) == "none"


def test_every_right_answer_is_the_one_that_is_accepted(quiz):
    said = quiz.evaluate(
        """() => [...document.querySelectorAll(".quiz-question")].map((it) =>
            [...it.querySelectorAll("label")].map((label) => {
                label.click();
                it.querySelector("button").click();
                return it.querySelector("[role=status]").innerText;
            }))"""
    )
    questions = [question for part in PARTS.values() for question in part]
    for question, verdicts in zip(questions, said, strict=True):
        for choice, verdict in zip(question.choices, verdicts, strict=True):
            assert verdict.startswith("✓ Right." if choice.right else "✗ Not this one.")
            assert plain(choice.why) in verdict
    for part, found in PARTS.items():
        n, first = len(found), sum(question.right == 0 for question in found)
        assert row(quiz, part) == [str(n), str(n), str(first)]
        line = quiz.locator(f".quiz[data-quiz-part={part}] .quiz-sum").inner_text()
        assert line == f"{n} of {n} solved, {first} at the first try."


# --- the count ----------------------------------------------------------------------------------


def test_the_count_is_kept_for_each_part_and_for_all(quiz):
    total = str(sum(map(len, PARTS.values())))
    for question in PARTS["text"][:3]:
        choose(quiz, question, question.right)
    second = PARTS["attention"][1]
    choose(quiz, second, wrong_places(second)[0])
    choose(quiz, second, second.right)
    choose(quiz, FIRST, wrong_places(FIRST)[0])
    expected = {
        "text": [str(len(PARTS["text"])), "3", "3"],
        "attention": [str(len(PARTS["attention"])), "1", "0"],
        "": [total, "4", "3"],
    }
    assert {part: row(quiz, part) for part in expected} == expected
    quiz.reload()
    assert {part: row(quiz, part) for part in expected} == expected
    assert "✓ solved in 1 try" in asked(quiz, PARTS["text"][0]).inner_text()
    assert "1 try so far" in asked(quiz).inner_text()
    assert not quiz.locator("input:checked").count()  # it can be asked again
    choose(quiz, FIRST, FIRST.right)
    assert "✓ solved in 2 tries" in asked(quiz).inner_text()


def test_it_is_kept_in_the_storage_of_the_browser_and_nowhere_else(quiz):
    quiz.wait_for_load_state("networkidle")
    before = len(quiz.asked)
    choose(quiz, FIRST, FIRST.right)
    assert quiz.evaluate(KEPT) == {FIRST.id: [1, True]}
    assert quiz.evaluate("document.cookie") == ""
    assert quiz.evaluate("sessionStorage.length") == 0
    icon = "/_static/favicon.svg"  # a browser asks for it when it likes
    assert [url for url in quiz.asked[before:] if not url.endswith(icon)] == []


def test_all_is_forgotten_if_it_is_asked_for_and_confirmed(quiz):
    choose(quiz, FIRST, FIRST.right)
    button = quiz.get_by_role("button", name="Forget my answers")
    quiz.once("dialog", lambda dialog: dialog.dismiss())
    button.click()
    assert quiz.evaluate(KEPT) == {FIRST.id: [1, True]}
    quiz.once("dialog", lambda dialog: dialog.accept())
    button.focus()
    quiz.keyboard.press("Enter")
    assert quiz.evaluate(KEPT) == {} and row(quiz, "")[1:] == ["0", "0"]
    root = asked(quiz)
    assert not root.locator("details").is_visible() and not root.locator("input:checked").count()
    assert (
        root.get_by_role("status").inner_text() == "" and not root.locator("[data-tried]").count()
    )


def test_two_tabs_count_together(quiz, quiz_address):
    other = quiz.context.new_page()
    other.goto(quiz_address)
    choose(other, FIRST, FIRST.right)
    quiz.wait_for_function("document.querySelector('.quiz-score tfoot').innerText.includes('1')")
    second = PARTS["attention"][1]
    choose(quiz, second, second.right)
    assert quiz.evaluate(KEPT) == {FIRST.id: [1, True], second.id: [1, True]}


FORBIDDEN = """Object.defineProperty(window, "localStorage", {
    get() { throw new DOMException("denied", "SecurityError"); } });"""
FULL = """Storage.prototype.setItem = () => {
    throw new DOMException("full", "QuotaExceededError"); };"""


@pytest.mark.parametrize("script", [FORBIDDEN, FULL], ids=["forbidden", "full"])
def test_where_nothing_can_be_stored_it_counts_until_the_page_is_left(page, quiz_address, script):
    stacks = []
    page.on("pageerror", lambda error: stacks.append(error.stack))
    page.add_init_script(script)
    page.goto(quiz_address)
    second = PARTS["attention"][1]
    choose(page, FIRST, FIRST.right)
    choose(page, second, wrong_places(second)[0])
    choose(page, second, second.right)
    assert row(page, "")[1:] == ["2", "1"]
    assert "stores nothing for this page" in page.locator(".quiz-note").inner_text()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Forget my answers").click()
    assert row(page, "")[1:] == ["0", "0"]
    assert not any("quiz.js" in stack for stack in stacks)
    page.said.clear()  # the theme keeps its colours there, and does not expect this


def test_what_is_stored_and_not_ours_counts_for_nothing(quiz):
    for found in ("{", "[]", "null", "7", '{"ID": 1}', '{"ID": [0, "x"]}'):
        text = json.dumps(found.replace("ID", FIRST.id))
        quiz.evaluate(f"localStorage.setItem('{KEY}', {text})")
        quiz.reload()
        assert row(quiz, "")[1:] == ["0", "0"], found
        choose(quiz, FIRST, FIRST.right)
        assert row(quiz, "")[1:] == ["1", "1"], found
        assert quiz.evaluate(KEPT)[FIRST.id] == [1, True], found


def test_it_works_on_a_page_that_was_opened_as_a_file(page, site):
    page.goto((site / "book/quizzes.html").as_uri())
    choose(page, FIRST, FIRST.right)
    assert asked(page).get_by_role("status").inner_text().startswith("✓ Right.")
    page.said.clear()  # the theme's own requests may fail there


# --- how it looks -------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_overflows_and_all_can_be_read(page, quiz_address, scheme, width):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(quiz_address)
    page.evaluate(f"document.documentElement.dataset.theme = '{scheme}'")
    choose(page, FIRST, wrong_places(FIRST)[0])
    page.evaluate("document.querySelectorAll('.quiz details').forEach((it) => (it.open = true))")
    page.evaluate("document.querySelectorAll('.quiz details').forEach((it) => (it.hidden = false))")
    page.wait_for_function("!document.querySelector('.quiz .math:not(:has(.katex))')")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = """() => [...document.querySelectorAll('.quiz-question')].filter(
        (it) => it.scrollWidth > it.clientWidth).map((it) => it.id)"""
    assert page.evaluate(wide) == []
    small = """() => [...document.querySelectorAll('.quiz *')].filter((it) =>
        !it.closest('.katex')
        && [...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim())
        && parseFloat(getComputedStyle(it).fontSize) < 12).length"""
    assert page.evaluate(small) == 0
    box = asked(page).locator("label").first.bounding_box()
    assert box["height"] >= 24  # a finger finds it
    assert page.evaluate(CONTRAST) >= 4.5


CONTRAST = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const light = (colour) => {
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((x) => x / 255)
            .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (it) => {
        for (; it; it = it.parentElement) {
            const colour = getComputedStyle(it).backgroundColor;
            if (!/, 0\\)$|transparent/.test(colour)) return colour;
        }
        return "white";
    };
    const ratio = (it) => {
        const [a, b] = [getComputedStyle(it).color, ground(it)].map(light);
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    };
    const texts = [...document.querySelectorAll(".quiz *, .quiz-score *")].filter((it) =>
        [...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
    return Math.min(...texts.map(ratio));
}"""
