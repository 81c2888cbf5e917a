"The quizzes answer, count and forget, with mouse and keyboard, whatever the browser stores."

import json
import re

import pytest
import quizzes
from built_book import seen

weekly = pytest.mark.weekly
PATH, KEY = "book/quizzes.html", "transformer_lit.quiz"
PARTS = quizzes.read()
QUESTIONS = [question for part in PARTS.values() for question in part]
FIRST, SECOND = PARTS["attention"][:2]
FOCUSED = "(it) => it === document.activeElement"
KEPT = f"JSON.parse(localStorage.getItem('{KEY}'))"


@pytest.fixture
def quiz(page):
    page.goto(PATH)
    return page


def asked(page, question=FIRST):
    return page.locator(f"#quiz-{question.id}")


def choose(page, question, place):
    "Choose an answer by its label, and press the button; what is said."
    root = asked(page, question)
    root.locator("label").nth(place).click()
    root.get_by_role("button", name="Check").click()
    return root.get_by_role("status").inner_text()


def wrong(question):
    return next(place for place in range(4) if place != question.right)


def plain(text):
    "The first words of a text in Markdown, as a page shows them."
    return re.split(r"[`$*“”…]", text)[0].strip().replace("'", "’")


def counts(page, *parts):
    "What the table says of parts: questions, solved, solved at the first try."
    row = ".quiz-score tr[data-quiz-part='{}'] td"
    return [page.locator(row.format(part)).all_inner_texts() for part in parts]


# --- every question -----------------------------------------------------------------------------

ASKED = """() => [...document.querySelectorAll(".quiz-question")].map((it) => ({
    id: it.dataset.quiz,
    texts: [...it.querySelectorAll("legend, label")].map((text) => text.innerText),
    unnamed: [...it.querySelectorAll("input")].filter((radio) => radio.labels.length !== 1).length,
    said: [...it.querySelectorAll("label")].map((label) => {
        label.click();
        it.querySelector("button").click();
        return it.querySelector("[role=status]").innerText;
    }),
}))"""


def test_every_question_is_there_and_accepts_its_right_answer_and_no_other(quiz):
    found = quiz.evaluate(ASKED)
    assert [one["id"] for one in found] == [question.id for question in QUESTIONS]
    for question, one in zip(QUESTIONS, found, strict=True):
        written = [question.text, *(choice.text for choice in question.choices)]
        for text, shown in zip(written, one["texts"], strict=True):
            assert plain(text) in shown
        for choice, verdict in zip(question.choices, one["said"], strict=True):
            assert verdict.startswith("✓ Right." if choice.right else "✗ Not this one.")
            assert plain(choice.why) in verdict
        assert not one["unnamed"]
    for part, questions in PARTS.items():
        n, first = len(questions), sum(question.right == 0 for question in questions)
        assert counts(quiz, part) == [[str(n), str(n), str(first)]]
        line = quiz.locator(f".quiz[data-quiz-part={part}] .quiz-sum").inner_text()
        assert line == f"{n} of {n} solved, {first} on the first try."


@weekly
def test_without_javascript_all_of_it_can_be_read_and_scripts_are_where_questions_are(opened, site):
    page = opened(java_script_enabled=False)
    page.goto(PATH)
    root = asked(page)
    assert not root.locator("button").count() and page.locator(".quiz-score").is_visible()
    root.locator("summary").click()
    for place, choice in enumerate(FIRST.choices):
        line = root.locator("li").nth(place).inner_text()
        verdict = "right" if choice.right else "wrong"
        assert line.startswith(f"{'ABCD'[place]} is {verdict}.") and plain(choice.why) in line
    assert root.get_by_role("link").get_attribute("href").endswith("attention/02_masks.html")
    page.context.close()
    other = (site / "book/glossary.html").read_text(encoding="utf-8")
    assert "questions.js" not in other and "page.js" in other


# --- one question -------------------------------------------------------------------------------


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


@weekly
def test_by_mouse_with_signs_and_nothing_that_leaves_the_browser(quiz):
    quiz.wait_for_load_state("networkidle")
    before, root, sign = (
        len(quiz.asked),
        asked(quiz),
        "(it) => getComputedStyle(it, '::after').content",
    )
    assert not root.locator("details").is_visible()  # nothing is given away
    root.get_by_role("button", name="Check").click()
    assert root.get_by_role("status").inner_text() == "Choose an answer first."
    said = choose(quiz, FIRST, wrong(FIRST))
    assert said.startswith("✗ Not this one.") and plain(FIRST.choices[wrong(FIRST)].why) in said
    assert "1 try so far" in root.inner_text()
    root.locator("label").nth(FIRST.right).click()
    assert root.get_by_role("status").inner_text() == ""  # it was about another choice
    assert choose(quiz, FIRST, FIRST.right).startswith("✓ Right.")
    choose(quiz, FIRST, wrong(FIRST))  # a later try takes nothing away
    assert "✓ solved in 2 tries" in root.inner_text()
    root.locator("summary").click()
    assert root.locator("li").count() == 4
    signs = {wrong(FIRST): '"✗"', FIRST.right: '"✓"'}  # not by colour alone
    for place in range(4):
        assert root.locator("label").nth(place).evaluate(sign) == signs.get(place, "none")
    assert quiz.evaluate(KEPT) == {FIRST.id: [2, True]}
    assert quiz.evaluate("document.cookie + sessionStorage.length") == "0"
    icon = "/_static/favicon.svg"  # a browser asks for it when it likes
    assert [url for url in quiz.asked[before:] if not url.endswith(icon)] == []


# --- the count ----------------------------------------------------------------------------------


@weekly
def test_the_count_is_kept_for_each_part_in_all_tabs_until_it_is_forgotten(quiz):
    other = quiz.context.new_page()
    other.goto(PATH)
    for question in PARTS["text"][:3]:
        choose(other, question, question.right)
    choose(quiz, SECOND, wrong(SECOND))
    choose(quiz, SECOND, SECOND.right)
    choose(quiz, FIRST, wrong(FIRST))
    sums = [str(len(one)) for one in (PARTS["text"], PARTS["attention"], QUESTIONS)]
    expected = [[sums[0], "3", "3"], [sums[1], "1", "0"], [sums[2], "4", "3"]]
    for _ in range(2):
        assert counts(quiz, "text", "attention", "") == expected
        quiz.reload()
    assert "✓ solved in 1 try" in asked(quiz, PARTS["text"][0]).inner_text()
    assert "1 try so far" in asked(quiz).inner_text()
    assert not quiz.locator("input:checked").count()  # it can be asked again
    choose(quiz, FIRST, FIRST.right)
    assert "✓ solved in 2 tries" in asked(quiz).inner_text()
    button, root, kept = quiz.get_by_role("button", name="Forget my answers"), asked(quiz), None
    for answer in ("dismiss", "accept"):
        assert kept != {}
        quiz.once("dialog", lambda dialog, answer=answer: getattr(dialog, answer)())
        button.focus()
        quiz.keyboard.press("Enter")
        kept = quiz.evaluate(KEPT)
    assert kept == {} and counts(quiz, "")[0][1:] == ["0", "0"]
    assert not root.locator("details").is_visible() and not root.locator("input:checked").count()
    assert root.get_by_role("status").inner_text() == ""
    assert not root.locator("[data-tried]").count()


FORBIDDEN = """Object.defineProperty(window, "localStorage", {
    get() { throw new DOMException("denied", "SecurityError"); } });"""
FULL = """Storage.prototype.setItem = () => {
    throw new DOMException("full", "QuotaExceededError"); };"""


@weekly
@pytest.mark.parametrize("script", [FORBIDDEN, FULL, ""], ids=["forbidden", "full", "a file"])
def test_where_nothing_can_be_stored_it_counts_until_the_page_is_left(page, site, script):
    stacks = []
    page.on("pageerror", lambda error: stacks.append(error.stack))
    page.add_init_script(script)
    page.goto(PATH if script else (site / PATH).as_uri())
    choose(page, FIRST, FIRST.right)
    choose(page, SECOND, wrong(SECOND))
    choose(page, SECOND, SECOND.right)
    assert counts(page, "")[0][1:] == ["2", "1"]
    if script:
        assert "let the page store anything" in page.locator(".quiz-note").inner_text()
        page.once("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Forget my answers").click()
        assert counts(page, "")[0][1:] == ["0", "0"]
    assert not any("questions.js" in stack for stack in stacks)
    page.said.clear()  # of the theme: it keeps its colours there, and its requests need a server


@weekly
def test_what_is_stored_and_not_ours_counts_for_nothing(quiz):
    for found in ("{", "[]", "null", "7", '{"ID": 1}', '{"ID": [0, "x"]}'):
        text = json.dumps(found.replace("ID", FIRST.id))
        quiz.evaluate(f"localStorage.setItem('{KEY}', {text})")
        quiz.reload()
        assert counts(quiz, "")[0][1:] == ["0", "0"], found
        choose(quiz, FIRST, FIRST.right)
        assert counts(quiz, "")[0][1:] == ["1", "1"], found
        assert quiz.evaluate(KEPT)[FIRST.id] == [1, True], found


# --- how it looks -------------------------------------------------------------------------------

BAD = """() => [...document.querySelectorAll('.quiz-question, .quiz-question *')].filter((it) =>
    (it.matches('.quiz-question') && it.scrollWidth > it.clientWidth) || (!it.closest('.katex')
    && [...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim())
    && parseFloat(getComputedStyle(it).fontSize) < 12)).map((it) => it.innerText.slice(0, 60))"""


@weekly
@pytest.mark.parametrize("view", [(1280, "light"), (390, "dark")])
def test_what_is_answered_can_be_read_and_nothing_overflows(quiz, view, barriers):
    seen(quiz, *view)
    choose(quiz, FIRST, wrong(FIRST))
    asked(quiz).locator("summary").click()
    choose(quiz, SECOND, SECOND.right)
    assert quiz.evaluate(BAD) == []
    assert asked(quiz).locator("label").first.bounding_box()["height"] >= 24  # a finger finds it
    assert barriers(quiz, ".quiz") == []
