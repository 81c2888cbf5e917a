"Copies of the chapters stand alone: they hold all, say it in plain Markdown, and begin anywhere."

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import exercise_cells
import pytest
import solved
from cell_names import RAW, names

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book"))
import copies  # noqa: E402
import plain  # noqa: E402

from transformer_lit.course.files import file_sha256  # noqa: E402

source = exercise_cells.source
BOOK = plain.book(ROOT, plain.Alone)
CHAPTERS = copies.cards.chapters()
SITE = plain.site(ROOT)["pages"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "notebooks"
    copies.write(out)
    return out


@pytest.fixture(scope="module")
def made(folder):
    "The cells of each copy, by the place of its chapter."
    found = {path.relative_to(ROOT) for path in CHAPTERS.values()}
    assert found == {path.relative_to(folder) for path in folder.rglob("*.ipynb")}
    return {place: json.loads((folder / place).read_text())["cells"] for place in found}


# --- what they say --------------------------------------------------------------------------------


def test_nothing_is_left_that_the_site_alone_understands(made):
    for place, cells in made.items():
        for cell in cells:
            assert not RAW[cell["cell_type"]].search(source(cell)), (place, cell["id"])


def test_every_link_leads_to_an_address(made):
    count = 0
    for place, cells in made.items():
        text = "\n".join(source(cell) for cell in cells if cell["cell_type"] == "markdown")
        text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
        for target in re.findall(r"\[[^\]\n]*\]\(([^)\s]+)\)", text):
            assert target.startswith(("https://", "http://", "#")), (place, target)
            if target.startswith(f"{SITE}/"):
                page = target.removeprefix(f"{SITE}/").partition("#")[0].removesuffix(".html")
                assert any((ROOT / f"{page}{end}").exists() for end in (".ipynb", ".md")), target
                count += 1
    assert count > 700


ATTEND = f"{SITE}/nbs/attention/03_attend.html"
SAYS = {  # role: what a reader of the copy of nbs/attention/02_masks sees
    "{doc}`the layer </nbs/block/04_layers>`": f"[the layer]({SITE}/nbs/block/04_layers.html)",
    "{doc}`/nbs/base/12_thread`": f"[{BOOK.title('nbs/base/12_thread')}]"
    f"({SITE}/nbs/base/12_thread.html)",
    "{term}`Byte-pair encoding`": (
        f"[Byte-pair encoding]({SITE}/book/glossary.html#term-byte-pair-encoding)"
    ),
    "{term}`both <encoder–decoder>`": f"[both]({SITE}/book/glossary.html#term-encoderdecoder)",
    "{eq}`eq-attend`": f"[(3.3.1)]({ATTEND}#equation-eq-attend)",
    "{numref}`fig-attend-sentence`": f"[Figure 3.3.2]({ATTEND}#fig-attend-sentence)",
    "{numref}`fig-masks`": "Figure 3.2.3",
    "roles such as `{eq}` and `{doc}`": "roles such as `{eq}` and `{doc}`",
}


@pytest.mark.parametrize("role", SAYS)
def test_a_role_becomes_a_link_to_the_site(role):
    assert BOOK.text(role, "nbs/attention/02_masks") == SAYS[role]


def test_a_copy_says_of_which_page_it_is_one(made):
    for place, (title, *_) in made.items():
        page = place.with_suffix("")
        heading, _, said = source(title).split("\n")[:3]
        assert heading == f"# {BOOK.title(str(page))}"
        assert f"({SITE}/{page}.html)" in said


# --- what they hold -------------------------------------------------------------------------------


def test_every_exercise_has_its_solution_in_one_fold_and_no_check_is_shown(made):
    written = solved.written()
    exercises, texts, fold = {}, [], "<details><summary>Solution of"
    for cells in made.values():
        exercises |= {one.id: one for one in exercise_cells.exercises(cells)}
        for cell in cells:
            assert not exercise_cells.CHECKS.match(source(cell))
            assert cell["cell_type"] == "markdown" or "@title Solution" not in source(cell)
            texts += [source(cell)] if source(cell).startswith(fold) else []
    assert exercises.keys() == written.keys() and len(texts) == len(written) > 150
    for _, one in written.values():
        assert exercises[one.id].blank == one.blank
        (text,) = (text for text in texts if text.startswith(f"{fold} {one.id}</summary>"))
        assert f"```python\n{one.solution.strip()}\n```" in text
        assert text.endswith("</details>") and text.count("<details>") == 1


def test_all_other_code_is_there_with_its_outputs(made):
    for place, cells in made.items():
        chapter = json.loads((ROOT / place).read_text())["cells"]
        folds = {one.solution_place for one in exercise_cells.exercises(chapter)}
        wanted = {
            cell["id"]: cell["outputs"]
            for number, cell in enumerate(chapter)
            if cell["cell_type"] == "code" and number not in folds
            if not exercise_cells.CHECKS.match(source(cell))
            if "#| default_exp" not in source(cell)
        }
        found = {cell["id"]: cell["outputs"] for cell in cells if cell["cell_type"] == "code"}
        assert found.pop("start") == []
        assert found == wanted, place


def test_no_cell_needs_what_was_taken_out(made):
    for place, cells in made.items():
        read, known = names(cells)
        assert read <= known | {"get_ipython"}, (place, read - known)


# --- how they begin -------------------------------------------------------------------------------

DRIVER = """
import importlib.util, json, os, sys
from IPython.core.interactiveshell import InteractiveShell
from pathlib import Path

shell, installed, find = InteractiveShell.instance(), [], importlib.util.find_spec
shell.register_magic_function(installed.append, magic_name="pip")
importlib.util.find_spec = lambda name: installed or None if name == PACKAGE else find(name)
for _ in range(2):
    shell.run_cell(json.loads(CELL)).raise_error()
print(json.dumps([installed, os.getcwd()]), file=sys.stderr)
"""
GIT = """#!/bin/sh
echo "$@" >> "$HOME/calls"
for last; do :; done
mkdir -p "$last/nbs/attention" "$last/results"
"""


@pytest.mark.parametrize("page", ["nbs/attention/02_masks", "nbs/attention/04_fused"])
def test_the_first_cell_brings_what_is_missing_once(page, made, tmp_path):
    cell = source(made[Path(f"{page}.ipynb")][1])
    home, tools, code = tmp_path / "a home", tmp_path / "bin", plain.site(ROOT)["code"]
    home.mkdir()
    tools.mkdir()
    (tools / "git").write_text(GIT)
    (tools / "git").chmod(0o755)
    driver = f"PACKAGE, CELL = 'transformer_lit', {json.dumps(cell)!r}\n{DRIVER}"
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    said = subprocess.run(
        [sys.executable, "-c", driver],
        cwd=home,
        env={**os.environ, "HOME": str(home), "PATH": path, "IPYTHONDIR": str(tmp_path / "i")},
        capture_output=True,
        text=True,
        check=True,
    )
    installed, where = json.loads(said.stderr.splitlines()[-1])
    assert installed == [f"install -q git+{code}"]
    if "04_fused" in page:  # it reads records
        assert (home / "calls").read_text() == f"clone -q --depth 1 {code} {home}/transformer_lit\n"
        assert Path(where) == home / "transformer_lit/nbs/attention"
    else:
        assert not (home / "calls").exists() and Path(where) == home


def test_records_are_brought_where_a_chapter_reads_them(made, folder):
    for place, (_, first, *cells) in made.items():
        read = re.findall(r"(?:\.\./)+results[\w/.-]*", "\n".join(map(source, cells)))
        assert bool(read) == ("git clone" in source(first)), place
        for found in read:
            assert (folder / place).parent.joinpath(found).exists(), (place, found)


def test_colab_opens_the_branch_of_the_copies():
    code = plain.site(ROOT)["code"].replace("github.com", "colab.research.google.com/github")
    page = "nbs/attention/02_masks"
    assert copies.colab(page) == f"{code}/blob/{copies.BRANCH}/{page}.ipynb"
    steps = (ROOT / ".github/workflows/book.yml").read_text()
    assert f"git init -q -b {copies.BRANCH}\n" in steps


# --- how they are written -------------------------------------------------------------------------


def test_the_archive_has_every_file_and_is_the_same_every_time(folder, tmp_path):
    with zipfile.ZipFile(folder.parent / copies.ARCHIVE) as packed:
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert len(packed.namelist()) == len(files) > len(CHAPTERS)
        for path in files:
            inside = f"notebooks/{path.relative_to(folder)}"
            assert packed.read(inside) == path.read_bytes()
    for path in files:
        os.utime(path, (0, 1e9))
    copies.pack(folder, tmp_path / "again.zip")
    assert file_sha256(tmp_path / "again.zip") == file_sha256(folder.parent / copies.ARCHIVE)


def test_new_copies_take_the_place_of_old_ones_and_of_nothing_else(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(copies.cards, "chapters", lambda root: {"m": CHAPTERS["attention/masks"]})
    out = tmp_path / "mine"
    assert copies.main([str(out)]) == 0 == copies.main([str(out)])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", copies.ARCHIVE]
    (tmp_path / "notes").mkdir()
    assert copies.main([str(tmp_path / "notes")]) == 2 == copies.main(["a", "b"])
    assert copies.main([str(ROOT)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3 and all(line.startswith("error: ") for line in said)


def test_nothing_half_written_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(copies.cards, "chapters", lambda root: {"m": CHAPTERS["attention/masks"]})

    def fails(*what):
        raise OSError("disk full")

    monkeypatch.setattr(copies.shutil, "copytree", fails)
    assert copies.main([str(tmp_path / "new/copies")]) == 2
    assert list(tmp_path.iterdir()) == []
