"""Python in the page: its archive is whole, and what it says of an answer is what torch says."""

import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "book/page"))
import contents  # noqa: E402
from chapter import exercises  # noqa: E402


def blanks():
    "The blanks of all builds and repairs of the first pass."
    found = {}
    for path in sorted((ROOT / "nbs").rglob("*.ipynb")):
        notebook = json.loads(path.read_text())
        if notebook["metadata"].get("chapter", {}).get("pass") == 1:
            some = exercises(notebook["cells"])
            found |= {one.id: one.blank for one in some if one.kind in ("build", "repair")}
    return found


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    "What torch and the page's engine find, each in a process of its own, side by side."
    folder = tmp_path_factory.mktemp("page")
    (folder / "blanks.json").write_text(json.dumps(blanks()))
    for name, data in contents.files().items():
        place = folder / "archive" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    script = Path(__file__).parent / "in_the_page.py"
    commands = {
        "torch": [sys.executable, script, folder / "torch.json"],
        "page": [sys.executable, "-S", script, folder / "page.json", folder / "archive"],
    }
    # each process writes a file of the reader's, so each has its own folder
    started = [subprocess.Popen(c, cwd=tmp_path_factory.mktemp("own")) for c in commands.values()]
    assert [process.wait() for process in started] == [0, 0]
    return [json.loads((folder / f"{name}.json").read_text()) for name in commands]


START = """(script) => new Promise((end) => {
    window.worker = new Worker(script, { type: "module" });
    worker.onmessage = ({ data }) => data.started || end(data);
    worker.postMessage({ n: 1, id: "masks.3", text: "" });
})"""
RUN = """async (files) => {
    const python = await (await import(location.href)).python;
    python.FS.mkdirTree("/tests/book");
    for (const [name, text] of files) python.FS.writeFile(`/tests/book/${name}`, text);
    python.runPython("import runpy, sys; sys.argv = ['', '/tests/book/page.json', '/package']");
    python.runPython("runpy.run_path('/tests/book/in_the_page.py')");
    const found = python.FS.readFile("/tests/book/page.json", { encoding: "utf8" });
    return [found, python._module.HEAP8.length];
}"""


def in_chromium(page, home):
    "What the page's engine finds in a browser, in the worker that judges what readers type."
    page.goto("book/intro.html")
    page.evaluate(START, f"{home}_static/python/worker.js")
    paths = [path for path in Path(__file__).parent.iterdir() if path.suffix in (".py", ".txt")]
    files = [[path.name, path.read_text()] for path in paths]
    found, heap = page.workers[0].evaluate(RUN, [*files, ["blanks.json", json.dumps(blanks())]])
    page.context.close()
    assert heap < 100e6 and not page.said
    return json.loads(found)


@pytest.fixture(
    scope="module", params=["python", pytest.param("chromium", marks=pytest.mark.weekly)]
)
def found(request, here):
    torch, page = here
    if request.param == "chromium":
        fixture = request.getfixturevalue
        page = in_chromium(fixture("opened")(), fixture("home"))
    return torch, page


def difference(a, b):
    "The largest difference of numbers, relative where they are above 1; None and shapes are equal."
    if isinstance(a, list):
        assert isinstance(b, list) and len(a) == len(b)
        return max(map(difference, a, b), default=0.0)
    if a is None or isinstance(a, str | bool) or a == b or (a != a and b != b):
        assert a == b or a != a
        return 0.0
    return abs(a - b) / max(1.0, abs(a)) if math.isfinite(b) else math.inf


def test_every_verdict_of_the_first_pass_has_torchs_state_and_words(found):
    torch, page = (one["verdicts"] for one in found)
    assert torch.keys() == page.keys() == blanks().keys()
    said, notes = [], []
    for id, there in torch.items():
        here = page[id]
        assert there["solution"][0] == "passed"
        assert [m[0] for m in there["mistakes"]] == [m[0] for m in here["mistakes"]]
        for part in ("state", "line"):
            assert there["blank"][part] == here["blank"][part], (id, here["blank"])
        notes.append(there["blank"]["notes"] == here["blank"]["notes"])
        pairs = zip([there["solution"], *there["mistakes"]], [here["solution"], *here["mistakes"]])
        for a, b in pairs:
            said.append((a[:2], b[:2]))
            notes.append(a == b)
    assert [a for a, b in said if a != b] == []
    assert len(notes) > 600 and sum(notes) >= 0.98 * len(notes)


def test_odd_answers_are_never_passed_where_torch_refuses(found):
    torch, page = (one["odd"] for one in found)
    states = [(a[2]["state"], b[2]["state"]) for a, b in zip(torch, page)]
    wrong = [a[:2] for a, (x, y) in zip(torch, states) if y not in (x, "not here")]
    assert not wrong, wrong
    assert sum(y == "not here" for _, y in states) <= 0.1 * len(states)
    assert {x for x, _ in states} == {"passed", "not yet"} and len(states) >= 40
    for _, _, verdict in page:
        assert ("missing" in verdict) == (verdict["state"] == "not here")


def test_random_programs_end_as_with_torch(found):
    "Views, changes in place and a second backward pass: the same gradients, or the same refusal."
    torch, page = (one["programs"] for one in found)
    refused = 0
    for (lines, there), (_, here) in zip(torch, page):
        if isinstance(there, str):
            refused += 1
            assert isinstance(here, str), lines  # wherever it is refused, it is
        elif here != "missing" and not (".data." in str(lines) and isinstance(here, str)):
            assert difference(there, here) < 1e-9, (lines, there, here)
    assert 100 < refused < len(torch) - 100
    assert sum(here == "missing" for _, here in page) < 0.02 * len(page)


def test_whatever_torch_refuses_is_refused_and_what_both_take_has_equal_results(found):
    "Calls of each function by its signature, with arguments of right and of wrong kinds."
    torch, page = (one["called"] for one in found)
    counts = Counter()
    for (text, there), (_, here) in zip(torch, page, strict=True):
        if here != "missing":
            refused, too = (str(x).startswith("refused") for x in (there, here))
            counts["refused" if refused else "taken"] += 1
            assert refused == too, (text, there, here)
            assert refused or difference(there, here) < 1e-5, (text, there, here)
    assert min(counts["refused"], counts["taken"]) > 2000, counts


def test_expressions_and_models_have_torchs_values_and_gradients(found):
    torch, page = found
    values = [[one["expressions"], one["models"]] for one in (torch, page)]
    assert [a[0] for a in torch["expressions"]] == [b[0] for b in page["expressions"]]
    assert difference(*values) < 1e-12


def test_what_a_reader_s_file_learns_and_writes_is_what_it_would_with_torch(found):
    torch, page = (one["trained"] for one in found)
    assert difference(torch[:-1], page[:-1]) < 1e-5  # torch computes in single precision here
    assert torch[-1] == page[-1] and "attend is left out" in torch[-1][0]


def test_random_numbers_are_torchs(found):
    torch, page = found
    assert difference(torch["draws"], page["draws"]) < 1e-12


def test_the_archive_is_the_same_at_each_build_and_has_nothing_of_the_second_pass():
    first, again = contents.files(), contents.files()
    assert first == again and [*first] == sorted(first)
    assert not any("recipes/" in name or "assistant/" in name for name in first)
