"""Values are answered in the page, which remembers them: by mouse and keyboard, after a reload.

`BOOK_HTML` names a built book; without it two small pages stand in for a chapter and the first one.
What is judged right is in tests/test_answers.py.
"""

import json
import os
import shutil
from pathlib import Path

import answers
import cards
import chapter
import pytest
import ways

KEY = "transformer_lit.answers"
KEPT = f"JSON.parse(localStorage.getItem('{KEY}'))"
CHAPTER, INTRO = "nbs/attention/02_masks.html", "book/intro.html"
RIGHT, WRONG = "1, 2, 3, 3, 3", "[1, 2, 3, 4, 5]"  # of masks.1
PAGE = """<!DOCTYPE html>
<html lang="en" data-theme="light"><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Answers</title><link rel="icon" href="{up}_static/favicon.svg">
<link rel="stylesheet" href="{up}_static/custom.css">
<link rel="stylesheet" href="{up}_static/widgets.css">
<script defer src="{up}_static/answers.js"></script>
<style>* {{ box-sizing: border-box; }} main {{ line-height: 1.65; }}</style>
<main class="bd-article"><h1>Answers</h1>{inside}</main>
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    "The folder of a site with a chapter that asks and a page that counts."
    if built := os.environ.get("BOOK_HTML"):
        return Path(built).resolve()
    out = tmp_path_factory.mktemp("site")
    shutil.copytree(chapter.ROOT / "book/_static", out / "_static")
    notebook = json.loads(cards.chapters()["attention/masks"].read_text(encoding="utf-8"))
    found = chapter.exercises(notebook["cells"])
    forms = "".join(answers.form(one) for one in found if answers.in_page(one))
    inside = {CHAPTER: f"<p>{answers.count(found)}</p>{forms}", INTRO: ways.progress("../")}
    for path, text in inside.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(PAGE.format(up="../" * path.count("/"), inside=text), "utf-8")
    return out


@pytest.fixture(scope="module")
def home(site, served):
    return served(site)


@pytest.fixture
def asked(page, home):
    page.goto(f"{home}/{CHAPTER}")
    return page


def form(page, id="masks.1"):
    return page.locator(f"form[data-exercise='{id}']")


def answer(page, text):
    "By keyboard alone; gives what is said."
    box = form(page).get_by_role("textbox")
    box.focus()
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.keyboard.type(text)
    assert form(page).get_by_role("status").inner_text() == ""  # it was about another answer
    page.keyboard.press("Enter")
    return form(page).get_by_role("status").inner_text()


def test_answers_by_keyboard_are_judged_and_a_reload_keeps_the_right_one(asked, home):
    before = form(asked).bounding_box()["height"]
    assert answer(asked, WRONG).startswith("✗ That is the triangle alone")
    assert answer(asked, "").startswith("Fill the blank: a list.")
    assert answer(asked, "1; 2").startswith("This cannot be read.")
    assert asked.evaluate(KEPT) is None and not form(asked).locator(".answer-done").is_visible()
    assert answer(asked, RIGHT) == "✓ That is right."
    assert form(asked).bounding_box()["height"] == before  # nothing moves
    asked.keyboard.press("Tab")
    button = form(asked).get_by_role("button", name="Check")
    assert button.evaluate("(it) => it === document.activeElement")
    asked.reload()
    assert asked.evaluate(KEPT) == {"masks.1": RIGHT}
    assert form(asked).locator(".answer-done").is_visible()
    assert form(asked).get_by_role("textbox").input_value() == RIGHT
    assert form(asked).get_by_role("status").inner_text() == ""
    assert asked.locator(".answers-count").inner_text() == ", 1 of 2 done in this page"
    asked.goto(f"{home}/{INTRO}")
    line, n = asked.locator(".answers-progress"), len(ways.asked())
    assert line.inner_text().startswith(
        f"1 of {n} questions of the first pass answered in the pages"
    )
    following = next(iter(ways.asked()))
    assert (
        line.get_by_role("link", name=following)
        .get_attribute("href")
        .endswith(ways.asked()[following])
    )


def test_answers_by_mouse_on_a_phone_and_nothing_is_asked_of_anybody(page, home):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{home}/{CHAPTER}")
    page.wait_for_load_state("networkidle")
    before = len(page.asked)
    for scheme in ("light", "dark"):
        page.evaluate(f"document.documentElement.dataset.theme = '{scheme}'")
        box, root = form(page, "masks.2").get_by_role("textbox"), form(page, "masks.2")
        box.fill("[0, 1, 2, 3]")
        root.get_by_role("button", name="Check").click()
        assert root.get_by_role("status").inner_text().startswith("✗ Row 3 is the first token")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert root.evaluate("(it) => it.scrollWidth <= it.clientWidth")
        assert box.bounding_box()["height"] >= 24 and box.bounding_box()["width"] > 200
    box.fill("0 , 1 , 2")
    root.get_by_role("button", name="Check").click()
    assert root.get_by_role("status").inner_text() == "✓ That is right."
    box.fill("7")
    root.get_by_role("button", name="Check").click()
    assert root.locator(".answer-done").is_visible()  # a later try takes nothing away
    assert page.evaluate("document.cookie") == ""
    assert page.evaluate(KEPT) == {"masks.2": "0 , 1 , 2"}
    assert [url for url in page.asked[before:] if not url.endswith("favicon.svg")] == []


def test_what_is_stored_and_not_ours_counts_for_nothing(asked):
    for found in ("{", "[]", "null", "7", '{"masks.1": 1}'):
        asked.evaluate(f"localStorage.setItem('{KEY}', {json.dumps(found)})")
        asked.reload()
        assert asked.locator(".answers-count").inner_text() == ", 0 of 2 done in this page", found
        assert answer(asked, RIGHT) == "✓ That is right.", found
        assert asked.evaluate(KEPT) == {"masks.1": RIGHT}, found
