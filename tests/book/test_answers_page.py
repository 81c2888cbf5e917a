"""Values are answered in the page, which remembers them: by mouse and keyboard, after a reload.

What is judged right is in tests/test_answers.py.
"""

import json

import pytest
import ways
from built_book import seen

weekly = pytest.mark.weekly
KEY = "transformer_lit.answers"
KEPT = f"JSON.parse(localStorage.getItem('{KEY}'))"
CHAPTER, INTRO = "nbs/attention/02_masks.html", "book/intro.html"
RIGHT, WRONG = "[1, 2, 3, 3, 3]", "[1, 2, 3, 4, 5]"  # of masks.1


@pytest.fixture
def asked(page):
    page.goto(CHAPTER)
    return page


def form(page, id="masks.1"):
    return page.locator(f"form[data-exercise='{id}']")


def boxes(page, id="masks.1"):
    return form(page, id).get_by_role("textbox")


def answer(page, *texts, id="masks.1"):
    "By keyboard alone, a text for each field and nothing in the others; gives what is said."
    boxes(page, id).first.focus()
    for place in range(boxes(page, id).count()):
        page.keyboard.press("Control+A")
        page.keyboard.press("Delete")
        page.keyboard.type("".join(texts[place : place + 1]))
        page.keyboard.press("Tab")
    assert form(page, id).get_by_role("status").inner_text() == ""  # it was about another answer
    page.keyboard.press("Enter")
    return form(page, id).get_by_role("status").inner_text()


def test_answers_by_keyboard_are_judged_and_a_reload_keeps_the_right_one(asked):
    before = form(asked).bounding_box()["height"]
    assert answer(asked, WRONG).startswith("✗ That is only the triangle")
    assert answer(asked, "").startswith("Fill the blank: a list.")
    assert answer(asked, "1; 2").startswith("This cannot be read.")
    assert asked.evaluate(KEPT) is None and not form(asked).locator(".answer-done").is_visible()
    assert answer(asked, "1", "", "3").startswith("Fill the blank: a list.")
    assert answer(asked, *RIGHT[1:-1].split(", ")) == "✓ That is right."
    assert form(asked).bounding_box()["height"] == before  # nothing moves
    button = form(asked).get_by_role("button", name="Check")
    assert button.evaluate("(it) => it === document.activeElement")
    answer(asked, WRONG)  # a later try takes nothing away
    asked.reload()
    assert asked.evaluate(KEPT) == {"masks.1": RIGHT}
    assert form(asked).locator(".answer-done").is_visible()
    assert [box.input_value() for box in boxes(asked).all()] == RIGHT[1:-1].split(", ")
    assert form(asked).get_by_role("status").inner_text() == ""
    asked.goto(INTRO)
    line, questions = asked.locator(".answers-progress"), ways.asked()
    assert line.inner_text().startswith(f"1 of {len(questions)} exercises of the first pass")
    following = next(iter(questions))
    link = line.get_by_role("link", name=following).get_attribute("href")
    assert link.endswith(questions[following])
    kept = json.dumps({"passed": ["masks.1", following, 7]}).encode()
    file = {"name": "my_progress.json", "mimeType": "application/json", "buffer": kept}
    asked.locator(".answers-progress input").set_input_files(file)
    line.get_by_text(f"2 of {len(questions)} exercises of the first pass").wait_for()
    assert asked.evaluate(KEPT) == {"masks.1": RIGHT, following: ""}


@weekly
def test_answers_by_mouse_on_a_phone_and_nothing_is_asked_of_anybody(asked, barriers):
    asked.wait_for_load_state("networkidle")
    before, root = len(asked.asked), form(asked, "masks.2")
    box = root.get_by_role("textbox")
    for scheme in ("light", "dark"):
        seen(asked, 390, scheme)
        box.fill("[0, 1, 2, 3]")
        root.get_by_role("button", name="Check").click()
        assert root.get_by_role("status").inner_text().startswith("✗ Leave out row 3: it is")
        assert asked.evaluate("document.documentElement.scrollWidth") <= 390
        assert root.evaluate("(it) => it.scrollWidth <= it.clientWidth")
        assert box.bounding_box()["height"] >= 24 and box.bounding_box()["width"] > 200
        assert barriers(asked, "form[data-exercise='masks.2']") == []
    box.fill("0 , 1 , 2")
    root.get_by_role("button", name="Check").click()
    assert root.get_by_role("status").inner_text() == "✓ That is right."
    assert asked.evaluate("document.cookie") == ""
    assert asked.evaluate(KEPT) == {"masks.2": "0 , 1 , 2"}
    assert [url for url in asked.asked[before:] if not url.endswith("favicon.svg")] == []


@weekly
def test_what_is_stored_and_not_ours_counts_for_nothing(asked):
    for found in ("{", "[]", "null", "7", '{"masks.1": 1}'):
        asked.evaluate(f"localStorage.setItem('{KEY}', {json.dumps(found)})")
        asked.reload()
        assert not form(asked).locator(".answer-done").is_visible(), found
        assert answer(asked, RIGHT) == "✓ That is right.", found
        assert asked.evaluate(KEPT) == {"masks.1": RIGHT}, found
