"""Notebooks for plain Jupyter: copies that hold all and begin anywhere, handouts without an answer.

Both say everything in plain Markdown, lead only to what exists, and run.
"""

import ast
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import cards
import chapter
import matplotlib.pyplot as plt
import notebooks
import pytest
import solved
import torch
from cell_names import RAW, names
from chapter import source

from transformer_lit.course.files import file_sha256
from transformer_lit.exercises.my_transformer import report, write_starter

ROOT = Path(__file__).parents[1]
CHAPTERS = dict(notebooks.chapters())
SITE, CODE, HEAD = (notebooks.addresses()[name] for name in ("pages", "code", "commit"))
MODES = ("copies", "handout")
MASKS, HOW_DO_I = "nbs/attention/02_masks", "nbs/recipes/08_how_do_i"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    out = tmp_path_factory.mktemp("both")
    notebooks.write_copies(out / "copies")
    notebooks.write_handout(out / "handout")
    return {mode: out / mode for mode in MODES}


@pytest.fixture(scope="module")
def made(folders):
    "Of each mode the cells of its notebooks, by page."
    return {
        mode: {
            cards.page(path, folder): json.loads(path.read_text())["cells"]
            for path in sorted(folder.rglob("*.ipynb"))
        }
        for mode, folder in folders.items()
    }


# --- both -----------------------------------------------------------------------------------------


def test_every_chapter_is_there(made):
    assert made["copies"].keys() == CHAPTERS.keys()
    assert made["handout"].keys() == CHAPTERS.keys()


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_left_that_the_site_alone_understands(mode, made):
    asked = 0
    for page, cells in made[mode].items():
        for cell in cells:
            assert not RAW[cell["cell_type"]].search(source(cell)), (page, cell["id"])
        asked += sum(len(RAW[c["cell_type"]].findall(source(c))) for c in CHAPTERS[page]["cells"])
    assert asked > 1500  # there was something to find


@pytest.mark.parametrize("mode", MODES)
def test_every_link_leads_to_an_address_or_to_a_file_that_is_there(mode, made, folders):
    texts = [(page, source(c)) for page, cells in made[mode].items() for c in cells]
    texts.append(("README", (folders[mode] / "README.md").read_text()))
    beside = 0
    for page, text in texts:
        text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
        for target in re.findall(r"\[[^\]\n]*\]\(([^)\s]+)\)", text):
            if target.startswith(f"{SITE}/"):
                place = target.removeprefix(f"{SITE}/").partition("#")[0].removesuffix(".html")
                assert any((ROOT / f"{place}{end}").exists() for end in (".ipynb", ".md")), target
            elif ".ipynb" in target:
                assert (folders[mode] / page).parent.joinpath(target).exists(), (page, target)
                beside += 1
    assert (beside > 300) == (mode == "handout")


@pytest.mark.parametrize("mode", MODES)
def test_no_cell_needs_what_was_taken_out(mode, made):
    for page, cells in made[mode].items():
        read, known = names(cells)
        assert read <= known | {"get_ipython"}, (page, read - known)


@pytest.mark.parametrize("mode", MODES)
def test_records_are_there_where_a_chapter_reads_them(mode, made, folders):
    for page, cells in made[mode].items():
        start = source(cells[1]) if mode == "copies" else ""
        read = re.findall(r"(?:\.\./)+results[\w/.-]*", "\n".join(map(source, cells[2:])))
        assert mode == "handout" or bool(read) == ("git init" in start), page
        for found in read:
            assert (folders[mode] / page).parent.joinpath(found).exists(), (page, found)


def test_what_the_site_folds_is_collapsed_and_a_figure_has_its_caption(made):
    cells = {cell["id"]: cell for cell in made["copies"]["nbs/attention/06_cache"]}
    for cell in CHAPTERS["nbs/attention/06_cache"]["cells"]:
        told, code = chapter.split(source(cell))
        if cell["cell_type"] == "code" and code and cell["id"] in cells:
            hidden = cells[cell["id"]]["metadata"].get("jupyter") == {"source_hidden": True}
            assert hidden == bool({"hide", "code-fold"} & told.keys()), cell["id"]
    cells = made["handout"]["nbs/capstones/03_repair_shop"]
    place = next(i for i, c in enumerate(cells) if c["id"] == "two-figure")
    said = r"\*Figure \d+\.\d+\.2\.\* Patient 2 before the repair\."
    assert re.match(said, source(cells[place + 1]))


TITLE = notebooks.book(True).title
ATTEND, HOME = f"{SITE}/nbs/attention/03_attend.html", "../attention/03_attend.ipynb"
SAYS = {  # role -> what a reader of nbs/block/01_norm sees in a copy, and in a handout
    "{doc}`02_feedforward`": (
        f"[{TITLE('nbs/block/02_feedforward')}]({SITE}/nbs/block/02_feedforward.html)",
        f"[{TITLE('nbs/block/02_feedforward')}](02_feedforward.ipynb)",
    ),
    "{doc}`the layer </nbs/attention/03_attend>`": (
        f"[the layer]({ATTEND})",
        f"[the layer]({HOME})",
    ),
    "{eq}`eq-attend`": (f"[(3.3.1)]({ATTEND}#equation-eq-attend)", f"[(3.3.1)]({HOME})"),
    "{numref}`fig-attend-sentence`": (
        f"[Figure 3.3.2]({ATTEND}#fig-attend-sentence)",
        f"[Figure 3.3.2]({HOME})",
    ),
    "$$\na\n$$ (eq-attend)": ("$$\na \\tag{3.3.1}\n$$",) * 2,
    "{doc}`/book/glossary`": (f"[Glossary]({SITE}/book/glossary.html)",) * 2,
    "{term}`both <encoder–decoder>`": (f"[both]({SITE}/book/glossary.html#term-encoderdecoder)",)
    * 2,
    "{cite:t}`ba2016`": ("[Ba et al. (2016)](https://arxiv.org/abs/1607.06450)",) * 2,
    "{cite:p}`levy2014,ba2016`": (
        "(Levy and Goldberg, 2014; [Ba et al., 2016](https://arxiv.org/abs/1607.06450))",
    )
    * 2,
    "{ref}`workshop <norm-workshop>`": ("workshop",) * 2,
    "```{widget} masks\nA mask. On the book's site, with JavaScript, you can try it here.\n```": (
        f"A mask. On [the book's site]({SITE}/nbs/block/01_norm.html), "
        "with JavaScript, you can try it.",
    )
    * 2,
    "(norm-workshop)=\n## Workshop": ("## Workshop",) * 2,
    "roles such as `{eq}` and `{doc}`": ("roles such as `{eq}` and `{doc}`",) * 2,
}


def test_a_role_becomes_what_a_reader_sees():
    for role, says in SAYS.items():
        both = (notebooks.book(alone).text(role, "nbs/block/01_norm") for alone in (True, False))
        assert (*both,) == says


# --- copies ---------------------------------------------------------------------------------------


def test_a_copy_says_of_which_page_it_is_one(made):
    for page, (title, *_) in made["copies"].items():
        heading, _, said = source(title).split("\n")[:3]
        assert heading == f"# {TITLE(page)}" and f"({SITE}/{page}.html)" in said


def last(text):
    return f"{text.rpartition(chr(10) * 2)[2]}\n\n"


def test_every_exercise_has_its_solution_in_one_fold_and_no_check_is_shown(made):
    exercises, fold, texts = {}, "<details><summary>Solution of", []
    for cells in made["copies"].values():
        exercises |= {one.id: one for one in chapter.exercises(cells)}
        for cell in cells:
            assert not chapter.CHECKS.match(source(cell)) and "## Solutions" not in source(cell)
            texts += source(cell).split(fold)[1:]
    assert exercises.keys() == solved.written().keys() and len(exercises) > 150
    for _, one in solved.written().values():
        assert exercises[one.id].blank == one.blank
        code = f"```python\n{one.solution}\n```\n\n" if one.solution else last(one.text)
        own = [text for text in texts if text.startswith(f" {one.id}</summary>") and code in text]
        assert len(own) == 1 and own[0].partition(code)[2].endswith("</details>")


def test_all_other_code_is_there_with_its_outputs(made):
    for page, cells in made["copies"].items():
        whole = CHAPTERS[page]["cells"]
        end = [source(cell) for cell in [*whole, {"source": "## Solutions"}]].index("## Solutions")
        wanted = {
            cell["id"]: cell["outputs"]
            for cell in whole[:end]
            if cell["cell_type"] == "code" and "#| default_exp" not in source(cell)
        }
        found = {cell["id"]: cell["outputs"] for cell in cells if cell["cell_type"] == "code"}
        assert found.pop("start") == [] and found == wanted, page


DRIVER = """
import importlib.util, json, os, sys
from IPython.core.interactiveshell import InteractiveShell
from pathlib import Path

shell, installed = InteractiveShell.instance(), []
shell.register_magic_function(installed.append, magic_name="pip")
names = lambda: [line.split("@")[0].split("[")[0] for line in installed]
importlib.util.find_spec = lambda name: [x for x in names() if x.endswith(name)] or None
for _ in range(2):
    shell.run_cell(json.loads(CELL)).raise_error()
print(json.dumps([installed, os.getcwd()]), file=sys.stderr)
"""
GIT = """#!/bin/sh
echo "$@" >> "$HOME/calls"
mkdir -p "$HOME/transformer_lit/nbs/attention" "$HOME/transformer_lit/results"
"""


MORE = "accelerate onnx onnxruntime onnxscript peft transformers"


@pytest.mark.parametrize(
    ("page", "more"), [(MASKS, ""), ("nbs/attention/04_fused", ""), (HOW_DO_I, MORE)]
)
def test_the_first_cell_brings_what_is_missing_once(page, more, made, tmp_path):
    cell = source(made["copies"][page][1])
    home, tools = tmp_path / "a home", tmp_path / "bin"
    home.mkdir()
    tools.mkdir()
    (tools / "git").write_text(GIT)
    (tools / "git").chmod(0o755)
    driver = f"CELL = {json.dumps(cell)!r}\n{DRIVER}"
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
    package = f"'transformer_lit[evaluation,figures] @ git+{CODE}@{HEAD}'"
    assert installed == [f"install -q {name}" for name in (package, *more.split())]
    if "04_fused" in page:  # it reads records
        course = home / "transformer_lit"
        assert (home / "calls").read_text().splitlines() == [
            f"init -q {course}",
            f"-C {course} fetch -q --depth 1 {CODE} {HEAD}",
            f"-C {course} checkout -q FETCH_HEAD",
        ]
        assert Path(where) == home / "transformer_lit/nbs/attention"
    else:
        assert not (home / "calls").exists() and Path(where) == home


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    "The folder that a wheel of the package is installed in; all else is this environment's."
    out = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "transformer_lit", out / "new/transformer_lit")
    for name in ("pyproject.toml", "README.md", "LICENSE", "WEIGHTS-NOTICE.md"):
        shutil.copy(ROOT / name, out / "new")
    pip = [sys.executable, "-m", "pip", "-q", "--no-input", "--disable-pip-version-check"]
    quiet = ["--no-deps", "--no-index"]
    made = [*pip, "wheel", *quiet, "--no-build-isolation", "-w", out, out / "new"]
    subprocess.run(made, check=True, capture_output=True)
    (made,) = out.glob("*.whl")
    assert made.stat().st_size < 10.5e6  # 9 of these are the weights of the shipped models
    subprocess.run([*pip, "install", *quiet, "--target", out / "site", made], check=True)
    return out / "site"


SECONDS = {"nbs/capstones/03_repair_shop", HOW_DO_I}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.machinery] if page in SECONDS else [])
        for page in [*(page for page in CHAPTERS if "capstones" in page), HOW_DO_I]
    ],
)
def test_all_cells_of_a_copy_run_on_the_machine_of_a_newcomer(page, folders, wheel, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(wheel))
    for proxy in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    assert dict(notebooks.run(folders["copies"], page)) == {page: None}


def test_colab_opens_the_branch_of_the_copies():
    code = CODE.replace("github.com", "colab.research.google.com/github")
    assert chapter.colab(MASKS) == f"{code}/blob/{chapter.COPIES}/{MASKS}.ipynb"
    steps = (ROOT / ".github/workflows/book.yml").read_text()
    assert f"git init -q -b {chapter.COPIES}\n" in steps


def test_the_archive_has_every_file_and_is_the_same_every_time(folders, tmp_path):
    folder, archive = folders["copies"], folders["copies"].parent / notebooks.ARCHIVE
    files = [path for path in folder.rglob("*") if path.is_file()]
    with zipfile.ZipFile(archive) as packed:
        assert len(packed.namelist()) == len(files) > len(CHAPTERS)
        for path in files:
            inside = f"notebooks/{path.relative_to(folder)}"
            assert packed.read(inside) == path.read_bytes()
    for path in files:
        os.utime(path, (0, 1e9))
    notebooks.pack(folder, tmp_path / "again.zip")
    assert file_sha256(tmp_path / "again.zip") == file_sha256(archive)


# --- the handout gives no answer away -------------------------------------------------------------


def plain(text):
    return re.sub(r"\s+", " ", text).strip()


def statements(code):
    "The statements of a cell, each as Python writes it, but imports, `check` and small ones."
    lines = [line for line in code.split("\n") if not line.startswith(("%", "!"))]
    for node in ast.parse("\n".join(lines)).body:
        found = ast.unparse(node)
        idle = found.startswith("check(") or "manual_seed" in found or len(found) < 16
        if not idle and "mport" not in type(node).__name__:
            yield found


def sentences(text):
    "Sentences of six words or more."
    for part in re.split(r"(?<=[.!?:])\s+|\n+", re.sub(r"<[^>]*>", "\n", text)):
        if len(part.split()) >= 6 and not part.startswith(("`", ":")):
            yield plain(part)


def secrets():
    "All that gives an answer away, from the book itself: sentences, statements."
    said, done = set(), set()
    for page, notebook in CHAPTERS.items():
        for one in chapter.exercises(notebook["cells"]):
            said |= set(sentences(notebooks.book(False).text(one.text, page)))
            said |= {plain(hint) for hint in one.hints if len(hint.split()) >= 6}
            done |= set(statements(one.solution))
    return said, done


MARKS = ("Solution of", "## Solutions", "@exercise(", "export exercises.", "expecting(")


def test_no_text_and_no_code_of_a_solution_is_in_it(folders):
    said, done = secrets()
    built = [one for _, one in solved.written().values() if one.solution]
    assert len(said) > 5 * len(solved.written()) and 1.1 * len(done) > len(built) > 100
    assert "The mask is inverted: True means that the query may attend." in said
    leaks = set()
    for path in sorted(p for p in folders["handout"].rglob("*") if p.is_file()):
        texts, codes = [path.read_text()], []
        if path.suffix == ".ipynb":
            cells = json.loads(texts[0])["cells"]
            texts = [source(cell) for cell in cells]
            codes = [source(cell) for cell in cells if cell["cell_type"] == "code"]
        elif path.suffix == ".py":
            codes = texts
        whole = plain("\n".join(texts))
        leaks |= {mark for mark in (*MARKS, *said) if mark in whole}
        leaks |= {line for code in codes for line in statements(code) if line in done}
    shown = {line for line in leaks if line.startswith("def replace_pair(")}  # the chapter's own
    assert leaks == shown


def test_an_assistant_that_follows_agents_md_sees_no_solution(folders, tmp_path):
    """A scripted trial: what an assistant reads about an exercise before it says anything.

    That is AGENTS.md, the exercise with its blank and its stored verdict, and for a step of the
    reader's file what `transformer-lit check --json` prints while the file is wrong everywhere.
    """
    text = (ROOT / "AGENTS.md").read_text()
    assert all((folder / "AGENTS.md").read_text() == text for folder in folders.values())
    assert "AGENTS.md" in (ROOT / "CONTRIBUTING.md").read_text()
    assert not any(sentence in plain(text) for sentence in secrets()[0])
    own = tmp_path / "my_transformer.py"
    write_starter(own)
    own.write_text(own.read_text().replace("raise NotImplementedError", "return torch.ones(2, 3)"))
    _, told = report(own, as_json=True, step=None, write=False, steps=None)
    read = {step["id"]: step["line"] for step in json.loads(told)["steps"]}
    built = [id for id, (_, one) in solved.written().items() if one.solution and id not in read]
    read |= dict.fromkeys(built[:: len(built) // 10], "")
    assert len(read) >= 20 and sum(not line.startswith("Write ") for line in read.values()) > 20
    for id, line in read.items():
        path, one = solved.written()[id]
        blank = json.loads(path.read_text())["cells"][one.place + 1]
        seen, asked = (
            "\n".join([text, line, json.dumps(blank["outputs"])]),
            one.statement + one.blank,
        )
        code = {part.strip() for part in one.solution.split("\n")}
        hidden = {part for part in code if len(part) >= 16 and part not in asked}
        assert hidden and not [part for part in hidden if part in seen], id


def test_every_exercise_stands_there_with_its_blank_and_only_answers_are_missing(made):
    found, missing = {}, 0
    for page, cells in made["handout"].items():
        found |= {one.id: one for one in chapter.exercises(cells)}
        whole = list(notebooks.book(False).cells(CHAPTERS[page]["cells"], page))
        code = [source(cell) for cell in cells if cell["cell_type"] == "code"]
        before = [source(cell) for cell in whole if cell["cell_type"] == "code"]
        assert code == [text for text in before if text in set(code)], page
        missing += len(before) - len(code)
        for cell in cells:
            assert not cell.get("outputs") and cell.get("execution_count") is None, page
    assert found.keys() == solved.written().keys() and len(found) > 150 and missing > 150
    for id, (_, one) in solved.written().items():
        assert found[id].blank == one.blank and not found[id].solution
        assert (found[id].title, found[id].minutes) == (one.title, one.minutes)


def test_the_readme_says_how_to_begin_and_in_which_order(folders):
    text = (folders["handout"] / "README.md").read_text()
    package = f"'transformer_lit[evaluation,figures] @ git+{CODE}@{HEAD}'"
    assert f"pip install jupyterlab {package}\n" in text and cards.pythons() in text
    order = re.findall(r"^\d+\. \[.*\]\((nbs/.*)\), \d+ minutes$", text, re.M)
    first = [path for path in cards.chapters().values() if cards.card(path)["pass"] == 1]
    assert order == [str(p.relative_to(ROOT)) for p in first if p.parent.name != "base"]
    for said in ("transformer-lit check my_transformer.py", "submissions", "../../results"):
        assert said in text
    for file in ("my_transformer.py", "submissions/README.md"):
        assert (folders["handout"] / file).exists()


@pytest.mark.parametrize("page", [MASKS, "nbs/training/01_loss"])
def test_a_notebook_runs_and_its_blanks_are_open(page, folders, monkeypatch):
    path = folders["handout"] / f"{page}.ipynb"
    monkeypatch.chdir(path.parent)
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    cells, known, verdicts = json.loads(path.read_text())["cells"], {"__name__": "notebook"}, []
    state = torch.get_default_dtype(), torch.get_rng_state()
    try:
        for cell in cells:
            body = ast.parse(source(cell)).body if cell["cell_type"] == "code" else []
            last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(ast.Module(body, []), page, "exec"), known)
                value = last and eval(compile(ast.Expression(last.value), page, "eval"), known)
            verdicts += [value] if type(value).__name__ == "Verdict" else []
    finally:
        torch.set_default_dtype(state[0])
        torch.set_rng_state(state[1])
        plt.close("all")
    found = chapter.exercises(cells)
    assert [v.id for v in verdicts] == [one.id for one in found]
    for one, verdict in zip(found, verdicts):
        assert verdict.state == ("not yet" if one.kind == "repair" else "open")


# --- written whole, and never over what is not ours -----------------------------------------------


@pytest.fixture
def small(monkeypatch):
    "A book of one chapter."
    monkeypatch.setattr(notebooks, "chapters", lambda root: [(MASKS, CHAPTERS[MASKS])])


@pytest.mark.parametrize("mode", MODES)
def test_a_new_folder_takes_the_place_of_an_old_one_and_of_nothing_else(
    mode, small, tmp_path, capsys
):
    out, mine = tmp_path / "out/new", tmp_path / "mine"
    assert notebooks.main([mode, str(out)]) == 0 == notebooks.main([mode, str(out)])
    written = {path.name for path in out.parent.iterdir()}
    assert written == {"new"} | ({notebooks.ARCHIVE} if mode == "copies" else set())
    mine.mkdir()
    assert notebooks.main([mode, str(mine)]) == 2 == notebooks.main([mode, str(ROOT)])
    assert notebooks.main([mode, "a", "b"]) == 2 == notebooks.main(["verdicts"])
    assert notebooks.main(["verdicts", str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 5 and all(line.startswith("error: ") for line in said)


def test_what_came_back_is_never_lost(small, tmp_path):
    out = tmp_path / "handout"
    notebooks.write_handout(out)
    (out / "submissions/ada").mkdir()
    assert notebooks.main(["handout", str(out)]) == 2
    assert (out / "submissions/ada").exists()


@pytest.mark.parametrize("mode", MODES)
def test_nothing_half_written_is_left(mode, small, tmp_path, monkeypatch):
    def fails(*what):
        raise OSError("disk full")

    monkeypatch.setattr(notebooks.shutil, "copytree", fails)
    assert notebooks.main([mode, str(tmp_path / "new/folder")]) == 2
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


# --- what comes back ------------------------------------------------------------------------------

CELLS = (
    "from transformer_lit.exercises import check",
    'check("masks.1", None)',
    'check("masks.3", lambda T, S: torch.ones(T, S).tril(S - T) > 0)',
    "import torch\nfor id in ('masks.3', 'masks.9', 'masks.99'):\n"
    "    check(id, lambda T, S: torch.ones(T, S).tril(S - T) > 0)\nprint('masks.4: passed.')",
    "1 / 0",
    'check("masks.1", 7)',
    "class Verdict:\n    def as_dict(self):\n        return {'id': 'masks.5', 'state': 'passed'}",
    "Verdict()",
)


def notebook(path, *cells):
    code = [{"cell_type": "code", "source": [text]} for text in cells]
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": ["a"]}, *code]}))


@pytest.mark.machinery
def test_verdicts_of_a_class(tmp_path, capsys):
    "A row for each student: a file that ends its process, a right one, notebooks, nothing."
    students = ("ada", "bob", "cleo", "dora")
    ada, bob, cleo, _ = folders = [tmp_path / "submissions" / name for name in students]
    for folder in (*folders, ada / "deep"):
        folder.mkdir(parents=True)
    notebook(ada / "deep/masks.ipynb", *CELLS)
    (ada / "my_transformer.py").write_text("import os\nos._exit(0)")
    (bob / "broken.ipynb").write_text("{")
    (bob / "empty.ipynb").write_text("{}")
    os.mkfifo(bob / "pipe.ipynb")
    notebook(bob / "raises.ipynb", "import nothing_of_the_kind", "1 / 0", CELLS[1])
    (bob / "my_transformer.py").write_text(solved.thread())
    notebook(cleo / "a.ipynb", *CELLS[:2], "import os; os._exit(0)", CELLS[2])
    assert notebooks.main(["verdicts", str(tmp_path / "submissions")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert tuple(found) == students
    assert [found[name]["thread"] and found[name]["thread"]["ok"] for name in students] == [
        *(False, True, None, None)
    ]
    assert "ended its process" in found["ada"]["thread"]["error"]
    masks = found["ada"]["notebooks"]["deep/masks.ipynb"]
    states = {verdict["id"]: verdict["state"] for verdict in masks["verdicts"]}
    assert masks["error"].startswith("cell 6: Your code raised ZeroDivisionError") and states == {
        **{"masks.1": "not yet", "masks.3": "passed"},
        **dict.fromkeys(("masks.9", "masks.99"), "unknown"),
    }
    told = {
        "broken": "not valid JSON",
        "empty": "no list of cells",
        "pipe": "is a pipe or a device",
    }
    told |= {"raises": "cell 2: Your code raised ModuleNotFoundError", "a": "ended its process"}
    for name, row in (found["bob"]["notebooks"] | found["cleo"]["notebooks"]).items():
        assert told.pop(name.removesuffix(".ipynb")) in row["error"]
        assert len(row["verdicts"]) == (name == "a.ipynb")
    assert not told


@pytest.mark.machinery
def test_what_a_notebook_checked_until_its_time_was_over_counts(tmp_path):
    notebook(tmp_path / "a.ipynb", *CELLS[:2], "while True: pass", CELLS[2])
    found = notebooks.notebook_verdicts(tmp_path / "a.ipynb", tmp_path, seconds=9)
    assert "within 9 seconds" in found["error"] and len(found["verdicts"]) == 1
