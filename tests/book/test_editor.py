"""Builds and repairs of the first pass are written and checked in the page, by Python in a worker.

What Python in the page says of answers is in test_page_python.py.
"""

import functools
import hashlib
import importlib
import json
import re

import chapter
import in_page
import pytest
from built_book import SITE, packed, seen
from solved import ROOT, written

from transformer_lit.course.my_model import IN_PAGE, OWN_FILE, grow, solved_file
from transformer_lit.exercises import check, find_exercise

weekly = pytest.mark.weekly
CHAPTER, ID = "nbs/attention/02_masks.html", "masks.3"
WRONG = {  # of three exercises: what is replaced in the solution
    ("nbs/attention/03_attend.html", "attend.3"): (" / q.shape[-1] ** 0.5", ""),
    (CHAPTER, ID): ("<=", "<"),
    ("nbs/block/01_norm.html", "norm.3"): (" * self.weight", ""),
}
SAID = "[role=status]:not(:text('Checking …')):not(:text('Loading Python'))"


def card(page, id=ID):
    return page.locator(f".exercise-card[data-exercise='{id}']")


def press(root, name):
    root.get_by_role("button", name=name).click()


def answer(root, text):
    "Type it and press the button; what is said."
    root.get_by_role("textbox").fill(text)
    press(root, "Run and check")
    root.locator(SAID).wait_for()
    return root.get_by_role("status").inner_text().split("\n")


def notebook(id, text):
    "What a notebook says of an answer."
    space = vars(importlib.import_module(find_exercise(id).solution.__module__)).copy()
    space.pop(find_exercise(id).name, None)  # the solution
    exec(text, space)
    found = check(id, space[find_exercise(id).name])
    return [f"{id}: {found.state}. {found.line}", *found.notes]


@pytest.mark.parametrize(("path", "id"), WRONG)
def test_blank_solution_and_a_mistake_are_judged_as_in_a_notebook(page, path, id):
    page.goto(path)
    page.wait_for_load_state("networkidle")
    assert not [url for url in page.asked if "python" in url or "pyodide" in url]
    blank, solution = card(page, id).get_by_role("textbox").input_value(), written()[id][1].solution
    mistake = solution.replace(*WRONG[path, id])
    assert mistake != solution
    said = [answer(card(page, id), text) for text in (blank, solution, mistake)]
    assert said == [notebook(id, text) for text in (blank, solution, mistake)]
    states = [line[0].removeprefix(f"{id}: ").partition(".")[0] for line in said]
    assert states == ["open", "passed", "not yet"]


def test_before_the_first_press_a_page_carries_the_editor_and_nothing_else_of_python(site):
    assert len(packed(site / "_static/editor.js")) < 4500
    text = (site / CHAPTER).read_text(encoding="utf-8")
    assert text.count("editor.js") == 1
    assert "python/" not in text and "pyodide" not in text


def test_the_site_has_the_archive_of_this_edition_and_no_page_holds_a_script(site):
    about = json.loads((site / "_static/python/about.json").read_text(encoding="utf-8"))
    packed_here = in_page.archive()
    assert (site / "_static/python/archive.zip").read_bytes() == packed_here
    assert about["sha256"] == hashlib.sha256(packed_here).hexdigest()
    inline = re.compile(r"<script(?![^>]*( src=|application/json))| on(click|load|submit|key\w+)=")
    for path in (path for path in site.rglob("*.html") if "_static" not in path.parts):
        text = path.read_text(encoding="utf-8")
        assert not inline.search(re.sub(r"<pre.*?</pre>", "", text, flags=re.S)), path
        if path != site / "index.html":  # which only leads on
            assert "Content-Security-Policy" in text.partition("<script")[0], path


def test_what_runs_away_is_stopped_and_what_is_missing_leads_to_the_notebook(page):
    page.goto(CHAPTER)
    root, endless = card(page), "def causal_mask(T, S):\n    while True:\n        pass"
    (line,) = answer(root, endless)
    assert line.startswith("masks.3: not yet. It did not end within 10 seconds")
    press(root, "Run and check")
    root.get_by_text("Checking …").wait_for()
    press(root, "Stop")
    assert root.get_by_role("status").inner_text() == "Stopped."
    assert root.get_by_role("button", name="Stop").count() == 0
    (line,) = answer(root, "def causal_mask(T, S):\n    return torch.cdist(T, S)")
    assert line.startswith("masks.3: not here. Your answer uses torch.cdist")
    link = root.get_by_role("status").get_by_role("link")
    assert (SITE / link.evaluate("(it) => it.pathname").lstrip("/")).is_file()


def test_a_step_is_trained_here_with_the_reader_s_function_and_as_torch_would(page, tmp_path):
    page.goto("nbs/start/03_four_pictures.html")
    root, solution = card(page, "primer.5"), written()["primer.5"][1].solution
    root.get_by_role("textbox").fill(solution)
    press(root, "Train it here")
    root.get_by_text(re.compile(r"Training: \d+ of 300 steps …")).wait_for()
    said = root.locator("[role=status]:has(pre)").inner_text(timeout=120_000)
    (tmp_path / OWN_FILE).write_text(solved_file(1), encoding="utf-8")
    found = grow(tmp_path / OWN_FILE, ["loss"], 1, scale=IN_PAGE)
    numbers = f"{found['untrained']:.2f} untrained → {found['nats']:.2f} nats per letter"
    assert said.startswith(
        f"Step 1: {numbers} on new stories. With the book’s file, a model of this size reaches 1.9"
    )
    assert said.endswith(found["sample"].strip())
    press(root, "Train it here")
    root.get_by_text("Training").wait_for()
    press(root, "Stop")
    assert root.get_by_role("status").inner_text() == "Stopped."


def test_an_archive_of_another_edition_is_refused_before_anything_runs(page):
    page.goto(CHAPTER)
    page.route("**/archive.zip", lambda route: route.fulfill(body=b"of another edition"))
    root, solution = card(page), written()[ID][1].solution
    (line,) = answer(root, solution)
    assert line.startswith("Python stopped: archive.zip is not the file") and "asm" not in str(
        page.asked
    )
    page.unroute("**/archive.zip")
    assert answer(root, solution)[0].startswith("masks.3: passed.")


def test_by_keyboard_and_what_passed_is_kept_and_goes_into_the_file(page):
    page.goto(CHAPTER)
    root = card(page)
    box = root.get_by_role("textbox")
    blank = box.input_value()
    box.press("Control+a")
    for key in ("def causal_mask(T, S):", "Enter", "if True:", "Enter", "Tab", "#"):
        page.keyboard.press(key) if key in ("Enter", "Tab") else page.keyboard.insert_text(key)
    assert box.input_value() == "def causal_mask(T, S):\n    if True:\n            #"
    page.keyboard.press("Shift+Tab")
    assert box.input_value().endswith("\n        #")
    assert root.locator(".editor-code > div").inner_text() == "1\n2\n3"
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    run = root.get_by_role("button", name="Run and check")
    assert run.evaluate("(it) => it === document.activeElement")
    press(root, "Start again")
    assert box.input_value() == blank
    solution = written()[ID][1].solution
    box.fill(solution)
    box.press("Control+Enter")
    root.get_by_text("masks.3: passed.").wait_for()
    assert root.get_by_text("✓ done").is_visible()
    box.fill("# a draft")
    page.reload()
    assert box.input_value() == "# a draft" and root.get_by_role("status").inner_text() == ""
    assert root.get_by_text("✓ done").is_visible()
    with page.expect_download() as found:  # of another step, with what was typed there
        press(card(page, "masks.7"), "Download my_transformer.py")
    assert found.value.suggested_filename == "my_transformer.py"
    text = found.value.path().read_text(encoding="utf-8")
    assert solution in text and text.index("import torch") < text.index("def causal_mask")
    assert "def attend" in text and "# a draft" not in text
    for name in ("Hint", "Solution"):
        button, fold = root.get_by_role("button", name=name), root.locator(f".{name.lower()}")
        for open in (True, False):
            button.press("Enter")
            assert fold.is_visible() == open
            button.and_(page.locator(f"[aria-expanded={str(open).lower()}]")).wait_for()


@weekly
def test_on_a_phone_in_light_and_dark_and_for_screen_readers(page, barriers):
    page.goto(CHAPTER)
    box = card(page).get_by_role("textbox")
    box.fill(f"def causal_mask(T, S):\n    return {'T + ' * 40}S")
    for scheme in ("light", "dark"):
        seen(page, 390, scheme)
        assert box.evaluate("(it) => parseFloat(getComputedStyle(it).fontSize)") >= 16
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        lines = "(it) => [it, it.previousSibling].map((one) => getComputedStyle(one).lineHeight)"
        assert len(set(box.evaluate(lines))) == 1
        assert barriers(page, f".exercise-card[data-exercise='{ID}']") == []
    page.emulate_media(media="print")
    assert not box.is_visible() and card(page).locator(":scope > .cell").is_visible()


@functools.cache
def first_pass():
    "The pages of the first pass that have builds and repairs, each with these."
    found = {}
    for id, (path, one) in written().items():
        facts = json.loads(path.read_text())["metadata"]["chapter"]
        if facts["pass"] == 1 and one.kind in ("build", "repair"):
            found.setdefault(f"{path.relative_to(ROOT).with_suffix('')}.html", {})[id] = one
    return found


TEXTS = """(cards) => cards.map((card) => [card.dataset.exercise,
    card.querySelector("textarea").value, "step" in card.dataset])"""
JUDGED = """async ([script, asked]) => {
    const worker = new Worker(script, { type: "module" });
    const found = [];
    for (const [id, text] of asked) {
        worker.postMessage({ n: 1, id, text });
        const told = (end) => (worker.onmessage = ({ data }) => data.started || end(data));
        found.push(await new Promise(told));
    }
    return found;
}"""


@weekly
def test_every_build_and_repair_of_the_first_pass_has_an_editor_and_its_solution_passes(page, home):
    asked = []
    for path, some in first_pass().items():
        page.goto(path)
        found = page.eval_on_selector_all(".exercise-card[data-exercise]", TEXTS)
        assert [id for id, _, _ in found] == list(some), path
        for id, blank, step in found:
            written_there = re.sub(r"\s*^check\(.*\)\s*\Z", "", some[id].blank, flags=re.M)
            assert blank.strip() == written_there.strip(), id
            assert step == (id in chapter.my_transformer.STEPS)
            asked += [[id, blank], [id, some[id].solution]]
    found = page.evaluate(JUDGED, [f"{home}_static/python/worker.js", asked])
    states = [[id, one.get("verdict", one).get("state")] for (id, _), one in zip(asked, found)]
    blanks, solutions = states[::2], states[1::2]
    assert len(solutions) >= 75
    assert [one for one in solutions if one[1] != "passed"] == []
    assert [one for one in blanks if one[1] not in ("open", "not yet")] == []
