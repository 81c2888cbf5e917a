"A handout has every exercise and no answer: nothing of a solution is anywhere in it, and it runs."

import ast
import contextlib
import io
import json
import re
import sys
from pathlib import Path

import exercise_cells
import matplotlib.pyplot as plt
import pytest
import solved
import torch
from cell_names import RAW, names
from ways import cards

from transformer_lit.course.exercises import Verdict
from transformer_lit.exercises.thread import Progress

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book"))
import handout  # noqa: E402
import plain as plain_jupyter  # noqa: E402

source = exercise_cells.source
BOOK = plain_jupyter.book(ROOT)


def chapter_cells(place):
    return json.loads((ROOT / place).read_text())["cells"]


def page_of(path):
    "nbs/attention/02_masks, from the file of a chapter."
    return str(
        path.with_suffix("").relative_to(ROOT) if path.is_absolute() else path.with_suffix("")
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("class") / "handout"
    handout.write(out)
    return out


# --- the search ----------------------------------------------------------------------------------


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
    "Sentences of six words or more, without the frame around a solution."
    for part in re.split(r"(?<=[.!?:])\s+|\n+", re.sub(r"<[^>]*>", "\n", text)):
        if len(part.split()) >= 6 and not part.startswith(("`", ":")):
            yield plain(part)


def hints(code):
    "What a check says of typical mistakes."
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.keyword) and node.arg == "mistakes":
            for key in node.value.keys if isinstance(node.value, ast.Dict) else ():
                if len(key.value.split()) >= 6:
                    yield plain(key.value)


def secrets():
    "All that gives an answer away, from the book itself: sentences, statements."
    said, done = set(), set()
    for path in cards.chapters().values():
        folded, page = False, page_of(path)
        for place, cell in enumerate(cells := chapter_cells(path)):
            text, code = source(cell), cell["cell_type"] == "code"
            if not code and (heading := cards.HEADING.search(text)):
                folded = heading[1].startswith("Solutions")
            if exercise_cells.CHECKS.match(text):
                said |= set(hints(text))
            elif folded and code:
                done |= set(statements(text))
            elif folded:
                said |= set(sentences(BOOK.text(text, page)))
            elif not code and "{solution}" in text:
                said |= set(sentences(BOOK.text(text.split("{solution}")[1], page)))
                done |= set(statements(source(cells[place + 1])))
    return said, done


SECRETS = secrets()
MARKS = (
    "Solution of",
    "{solution}",
    "## Solutions",
    "@exercise(",
    "export exercises.",
    "mistakes=",
)


EVERYDAY = {  # the chapters say and do this in their own right, and give nothing away by it
    "A factor on a matrix acts on the variance by its square.",
    "x0 = x = torch.randn(2, 3, 5)",
    "x.square().sum().backward()",
    "gradient, = torch.autograd.grad(loss, z)",
}


def leaks(folder):
    "Every place of a folder where an answer is found: (file, what)."
    said, done = SECRETS
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        texts, codes = [path.read_text()], []
        if path.suffix == ".ipynb":
            cells = json.loads(texts[0])["cells"]
            texts = [source(cell) for cell in cells]
            codes = [source(cell) for cell in cells if cell["cell_type"] == "code"]
            texts += [json.dumps(cell["outputs"]) for cell in cells if cell.get("outputs")]
        elif path.suffix == ".py":
            codes = texts
        whole = plain("\n".join(texts))
        yield from ((path.name, mark) for mark in MARKS if mark in whole)
        yield from ((path.name, sentence) for sentence in said if sentence in whole)
        for code in codes:
            yield from ((path.name, line) for line in statements(code) if line in done)


def test_there_is_something_to_look_for():
    said, done = SECRETS
    assert len(said) > 5 * len(solved.written()) and len(done) > len(solved.written())
    assert "The polarity is turned: True means that the query may attend." in said


def test_no_text_and_no_code_of_a_solution_is_in_it(folder):
    found = {what for _, what in leaks(folder)}
    assert found == EVERYDAY


PLANTED = {
    "text": ("markdown", "Query $t$ stands at position $t + S - T$."),
    "code": (
        "code",
        "def causal_mask(T, S):\n    return torch.arange(S) <= torch.arange(S - T, S)[:, None]",
    ),
    "hint": ("markdown", "The polarity is turned: True means that the query may attend."),
    "mark": ("markdown", "<details><summary>Solution of masks.3</summary>"),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_the_search_finds_what_is_planted(kind, folder, tmp_path):
    notebook = json.loads((folder / "nbs/attention/02_masks.ipynb").read_text())
    cell_type, text = PLANTED[kind]
    notebook["cells"].append({"cell_type": cell_type, "source": [text], "outputs": []})
    (tmp_path / "masks.ipynb").write_text(json.dumps(notebook))
    assert len(list(leaks(tmp_path))) == 1


# --- what is in it -------------------------------------------------------------------------------


def kept(folder):
    for path in sorted((folder / "nbs").rglob("*.ipynb")):
        yield path.relative_to(folder), json.loads(path.read_text())["cells"]


def test_every_exercise_stands_there_with_its_blank(folder):
    found = {}
    for _, cells in kept(folder):
        found |= {one.id: one for one in exercise_cells.exercises(cells)}
    assert found.keys() == solved.written().keys() and len(found) > 150
    for id, (_, one) in solved.written().items():
        assert found[id].blank == one.blank and found[id].solution is None
        assert (found[id].title, found[id].minutes) == (one.title, one.minutes)


def test_only_answers_are_missing(folder):
    "Of the other cells every one is there, in order, with its code unchanged."
    for place, cells in kept(folder):
        asked = [source(c) for c in cells]
        title, card, rest = asked[0].split("\n", 3)[0], *asked[0].split("\n", 3)[2:]
        assert re.match(r"(\*\*First|Second) pass(\*\*)? · \d+ minutes", card), place
        asked[0] = f"{title}\n{rest}"
        whole = [source(c) for c in BOOK.cells(chapter_cells(place), page_of(place))]
        code = [text for text in asked if text in whole]
        assert code == [text for text in whole if text in set(asked)], place
        for text in set(asked) - set(whole):  # a text from which a solution was cut
            original = [t for t in whole if t.startswith(text[:30])]
            assert original and any(re.search(r"[Ss]olution", t) for t in original), place


def test_nothing_has_been_run(folder):
    for place, cells in kept(folder):
        for cell in cells:
            assert not cell.get("outputs") and cell.get("execution_count") is None, place


def test_the_rest_of_a_class_is_there(folder):
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert {"README.md", "my_transformer.py", "submissions/README.md"} <= files
    for place, cells in kept(folder):
        for found in re.findall(r"(?:\.\./)+results[\w/.-]*", "\n".join(map(source, cells))):
            assert (folder / place).parent.joinpath(found).exists(), (place, found)


# --- it is for plain Jupyter ---------------------------------------------------------------------


def test_nothing_is_left_that_the_site_alone_understands(folder):
    asked = 0
    for place, cells in kept(folder):
        for cell in cells:
            found = RAW[cell["cell_type"]].search(source(cell))
            assert not found, (place, source(cell)[found.start() :][:60])
        asked += sum(len(RAW[c["cell_type"]].findall(source(c))) for c in chapter_cells(place))
    assert asked > 1500  # there was something to find


LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")


def test_every_link_leads_to_a_file_of_the_handout_or_to_an_address(folder):
    site, inside = plain_jupyter.site(ROOT)["pages"], 0
    texts = [(place, map(source, cells)) for place, cells in kept(folder)]
    texts.append((Path("README.md"), [(folder / "README.md").read_text()]))
    for place, parts in texts:
        for target in LINK.findall(re.sub(r"`[^`]*`", "", "\n".join(parts))):
            if target.startswith(f"{site}/"):
                page = target.removeprefix(f"{site}/").removesuffix(".html")
                assert any((ROOT / f"{page}{end}").exists() for end in (".ipynb", ".md")), target
            elif ".ipynb" in target:
                assert (folder / place).parent.joinpath(target).exists(), (place, target)
                inside += 1
    assert inside > 300


def test_what_the_site_folds_is_collapsed(folder):
    for place, cells in kept(folder):
        hidden = {c["id"] for c in cells if c["metadata"].get("jupyter") == {"source_hidden": True}}
        folds = ("#| code-fold: true", "#| hide")
        wanted = {
            c["id"]
            for c in chapter_cells(place)
            if c["cell_type"] == "code" and any(line in source(c).split("\n") for line in folds)
        }
        assert hidden == wanted & {c["id"] for c in cells}, place
    (cell,) = (
        c for c in chapter_cells("nbs/attention/06_cache.ipynb") if "class Grow" in source(c)
    )
    _, cells = next(one for one in kept(folder) if one[0].stem == "06_cache")
    assert next(c for c in cells if c["id"] == cell["id"])["metadata"]["jupyter"]


def test_a_figure_has_its_caption_below_it(folder):
    _, cells = next(one for one in kept(folder) if one[0].stem == "03_repair_shop")
    place = next(i for i, c in enumerate(cells) if c["id"] == "two-figure")
    assert source(cells[place + 1]).startswith("*Figure 2.* Patient 2 as it came in.")


SAID = {  # role: what a reader of nbs/attention/02_masks sees
    "{doc}`01_self_attention`": (
        "[Self-attention: queries, keys and values](01_self_attention.ipynb)"
    ),
    "{doc}`the layer </nbs/block/04_layers>`": "[the layer](../block/04_layers.ipynb)",
    "{doc}`/nbs/base/12_thread`": f"[{BOOK.titles['nbs/base/12_thread']}]"
    f"({BOOK.pages}/nbs/base/12_thread.html)",
    "{doc}`/book/glossary`": f"[Glossary]({BOOK.pages}/book/glossary.html)",
    "{term}`temperature`": "temperature",
    "{term}`warm <temperature>`": "warm",
    "{cite:t}`ba2016`": "[Ba et al. (2016)](https://arxiv.org/abs/1607.06450)",
    "{cite:p}`levy2014,ba2016`": (
        "(Levy and Goldberg, 2014; [Ba et al., 2016](https://arxiv.org/abs/1607.06450))"
    ),
    "{numref}`fig-patient-2`": "Figure 2 of [Repair shop: five trainings that went wrong]"
    "(../capstones/03_repair_shop.ipynb)",
    "{ref}`workshop <norm-workshop>`": "workshop",
    "```{widget} masks\nA mask. On the book's site, with JavaScript, you can try it here.\n```": (
        f"A mask. On [the book's site]({BOOK.pages}/nbs/attention/02_masks.html), "
        "with JavaScript, you can try it."
    ),
    "(norm-workshop)=\n## Workshop": "## Workshop",
}


@pytest.mark.parametrize("role", SAID)
def test_a_role_becomes_what_a_reader_sees(role):
    assert BOOK.text(role, "nbs/attention/02_masks") == SAID[role]


def test_an_equation_has_the_number_that_the_text_names():
    page = "nbs/attention/03_attend"
    texts = [source(c) for c in chapter_cells(f"{page}.ipynb") if c["cell_type"] == "markdown"]
    labels = [m[2] for text in texts for m in plain_jupyter.EQUATION.finditer(text)]
    for number, label in enumerate(labels, 1):
        assert BOOK.text(f"See {{eq}}`{label}`.", page) == f"See ({number})."
        assert BOOK.text(f"$$\na\n$$ ({label})", page) == f"$$\na \\tag{{{number}}}\n$$"
    assert len(labels) > 2
    other = BOOK.text(f"{{eq}}`{labels[0]}`", "nbs/block/01_norm")
    assert other == f"(1) of [{BOOK.titles[page]}](../attention/03_attend.ipynb)"


def test_the_readme_says_how_to_begin_and_in_which_order(folder):
    text, addresses = (folder / "README.md").read_text(), plain_jupyter.site(ROOT)
    assert f"pip install jupyterlab git+{addresses['code']}\n" in text
    assert (
        f"{addresses['pages']}/\n" in text and "Python 3.11 or newer, and older than 3.14" in text
    )
    order = re.findall(r"^\d+\. \[.*\]\((nbs/.*)\), \d+ minutes$", text, re.M)
    first = [path for path in cards.chapters().values() if cards.card(path)["pass"] == 1]
    assert order == [str(p.relative_to(ROOT)) for p in first if p.parent.name != "base"]
    for said in ("transformer-lit check my_transformer.py", "submissions", "../../results"):
        assert said in text


# --- it runs -------------------------------------------------------------------------------------


def test_no_cell_needs_what_was_taken_out(folder):
    for place, cells in kept(folder):
        read, made = names(cells)
        assert read <= made, (place, read - made)


@pytest.mark.parametrize("place", ["attention/02_masks", "training/01_loss"])
def test_a_notebook_runs_and_its_blanks_are_open(place, folder, monkeypatch):
    path = folder / f"nbs/{place}.ipynb"
    monkeypatch.chdir(path.parent)
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    cells, known, verdicts = json.loads(path.read_text())["cells"], {"__name__": "notebook"}, []
    state = torch.get_default_dtype(), torch.get_rng_state()
    try:
        for cell in cells:
            body = ast.parse(source(cell)).body if cell["cell_type"] == "code" else []
            last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(ast.Module(body, []), place, "exec"), known)
                value = last and eval(compile(ast.Expression(last.value), place, "eval"), known)
            verdicts += [value] if type(value).__name__ == "Verdict" else []
    finally:
        torch.set_default_dtype(state[0])
        torch.set_rng_state(state[1])
        plt.close("all")
    asked = exercise_cells.exercises(cells)
    assert [v.id for v in verdicts] == [one.id for one in asked]
    for one, verdict in zip(asked, verdicts):
        assert verdict.state == ("not yet" if one.kind == "repair" else "open")


# --- it is written whole, and never over what came back ------------------------------------------


@pytest.fixture
def small(monkeypatch):
    "A book of one chapter."
    place = Path("nbs/attention/02_masks.ipynb")
    cells = handout.split(chapter_cells(place))[0]
    monkeypatch.setattr(handout, "chapters", lambda root: {place: {"cells": cells}})
    monkeypatch.setattr(handout, "readme", lambda root: "Begin.")


def test_a_new_one_takes_the_place_of_an_old_one(small, tmp_path, capsys):
    out = tmp_path / "handout"
    assert handout.main([str(out)]) == 0 == handout.main([str(out)])
    assert capsys.readouterr().out == f"handout in {out}\n" * 2
    assert [p.name for p in tmp_path.iterdir()] == ["handout"]


def test_what_came_back_is_never_lost(small, tmp_path, capsys):
    out = tmp_path / "handout"
    handout.write(out)
    (out / "submissions/ada").mkdir()
    assert handout.main([str(out)]) == 2
    assert (out / "submissions/ada").exists()
    (tmp_path / "mine").mkdir()
    assert handout.main([str(tmp_path / "mine")]) == 2 == handout.main(["--verdicts"])
    assert handout.main(["--verdicts", str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 4 and all(line.startswith("error: ") for line in said)


def test_nothing_half_written_is_left(small, tmp_path, monkeypatch):
    def fails(path):
        raise OSError("disk full")

    monkeypatch.setattr(handout, "write_starter", fails)
    assert handout.main([str(tmp_path / "new/handout")]) == 2
    assert list(tmp_path.iterdir()) == []


# --- what comes back -----------------------------------------------------------------------------

VERDICTS = [
    Verdict("masks.3", "passed", "3 cases agree."),
    Verdict("masks.1", "not yet", "That is not it.", ("a note",)),
]
CELLS = (
    "from dataclasses import asdict, dataclass\n"
    "@dataclass\nclass Verdict:\n    id: str\n    state: str\n    line: str\n"
    "    notes: object = ()\n"
    "    as_dict = asdict",
    'Verdict("masks.1", "open", "Write it.")',
    'Verdict("masks.3", "passed", "3 cases agree.")',
    "1 / 0",
    "print('masks.9: passed. Of course.')",
    'Verdict("masks.1", "not yet", "That is not it.", ["a note"])',
)


def notebook(path, *cells):
    code = [{"cell_type": "code", "source": [text]} for text in cells]
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": ["a"]}, *code]}))


def test_verdicts_of_a_class(tmp_path, capsys, monkeypatch):
    looked = Progress("my_transformer.py", {"causal_mask": VERDICTS[0]})
    monkeypatch.setattr(handout, "check_file", lambda path: looked)
    ada, bob = (tmp_path / "submissions" / name for name in ("ada", "bob"))
    (ada / "deep").mkdir(parents=True)
    bob.mkdir()
    notebook(ada / "deep/masks.ipynb", *CELLS)
    (ada / "my_transformer.py").touch()
    (bob / "broken.ipynb").write_text("{")
    assert handout.main(["--verdicts", str(tmp_path / "submissions")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ada"]["thread"] == looked.as_dict()
    masks = found["ada"]["notebooks"]["deep/masks.ipynb"]
    assert masks["error"] is None
    by_name = sorted((v.as_dict() for v in VERDICTS), key=lambda v: v["id"])
    assert sorted(masks["verdicts"], key=lambda v: v["id"]) == by_name
    assert found["bob"]["thread"] is None
    (broken,) = found["bob"]["notebooks"].values()
    assert broken["verdicts"] == [] and "it is damaged" in broken["error"]


SHOWN = "class Verdict:\n    def as_dict(self):\n        return {'id': 'a.1'}\n\n\nVerdict()"


@pytest.mark.parametrize(
    "cell,seconds,told",
    [("import os; os._exit(0)", 60, "ended the process"), ("while True: pass", 1, "within 1 sec")],
)
def test_what_was_shown_until_then_counts(cell, seconds, told, tmp_path):
    notebook(tmp_path / "a.ipynb", SHOWN, cell, SHOWN.replace("a.1", "a.2"))
    found = handout.notebook_verdicts(tmp_path / "a.ipynb", tmp_path, seconds)
    assert told in found["error"] and (seconds == 1 or found["verdicts"] == [{"id": "a.1"}])
