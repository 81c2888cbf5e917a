"""What the page's Python holds: a part of this package, and what is known of the whole of it.

The list of modules is computed: all that the exercises of the first pass import, directly or by way
of another module. The page has no other package, so `torch_names.py` stands in for those.
"""

import ast
import importlib
import json
import re
import subprocess
import sys
import types
from pathlib import Path

import signatures
import torch

ROOT = Path(__file__).parents[2]
PACKAGE = "transformer_lit"
PAGE = (
    "torch_arguments",
    "torch_tensors",
    "torch_layers",
    "torch_names",
    "run",
)  # of this folder, in the archive's `transformer_lit/page`
DATA = ("__init__.pyi", "data/exercises.tsv", "data/files.tsv")
NAMESPACES = (  # what a reader reaches for by name
    *("torch", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils"),
    *("torch.optim", "torch.optim.lr_scheduler", "torch.autograd", "torch.testing"),
    *("torch.linalg", "torch.special", "torch.fft", "torch.cuda", "torch.random"),
)


def chapters() -> dict[str, str]:
    "Each topic of the first pass that has builds or repairs: the module that its chapter exports."
    found = {}
    for path in sorted((ROOT / "nbs").rglob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        if notebook["metadata"].get("chapter", {}).get("pass") == 1:
            code = "\n".join("".join(cell["source"]) for cell in notebook["cells"])
            module = re.search(r"#\| default_exp (\S+)", code)
            for topic in re.findall(r"#\| export exercises\.(\w+)", code):
                found[topic] = f"{PACKAGE}.{module[1]}" if module else ""
    return found


def path_of(module: str) -> Path | None:
    "The file of a module of this package; None where there is none."
    path = ROOT / module.replace(".", "/")
    places = (path.with_suffix(".py"), path / "__init__.py")
    return next((place for place in places if place.is_file()), None)


def imports(tree: ast.AST) -> set[str]:
    "What is imported when a module is: imports inside of functions come later, or never."
    found = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {f"{node.module}.{name.name}" for name in node.names} | {node.module}
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            found |= imports(node)
    return found


def modules() -> list[str]:
    "The modules of this package that the archive holds."
    todo = [f"{PACKAGE}.exercises.{name}" for name in (*chapters(), "my_transformer")]
    todo += [f"{PACKAGE}.course.autograd"]
    found = set()
    while todo:
        name = todo.pop()
        if name not in found and name.startswith(PACKAGE) and (path := path_of(name)):
            found.add(name)
            todo += imports(ast.parse(path.read_text(encoding="utf-8")))
            todo += [name.rpartition(".")[0]]
    return sorted(found)


def facts() -> bytes:
    """What torch has and how it is called, and the module that a chapter exports, as JSON.

    By torch's names, one that is missing in the page is told from one that is nowhere.
    """
    asked = "import json, contents; print(json.dumps(contents.torch_facts()))"
    fresh = [sys.executable, "-c", asked]  # what else is imported here adds names to torch's
    how = {"cwd": Path(__file__).parent, "capture_output": True, "text": True, "check": True}
    found = json.loads(subprocess.run(fresh, **how).stdout)
    inside = modules()
    known = {topic: module for topic, module in chapters().items() if module in inside}
    return json.dumps(found | {"chapters": known}, separators=(",", ":")).encode()


def torch_facts() -> dict:
    "Torch's version, names and signatures, of what the texts of the page's torch name."
    names, words = torch_names(), set()
    for path in Path(__file__).parent.glob("torch_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words |= {*re.findall(r"\w+", node.value)}
    return {"version": torch.__version__, "names": names} | signatures.facts(words)


def torch_names() -> dict[str, list[str]]:
    "By namespace, what torch has when nothing else was imported."
    names = {space: public(importlib.import_module(space)) for space in NAMESPACES}
    return names | {
        "torch.Tensor": public(torch.Tensor),
        "torch.nn.Module": public(torch.nn.Module()),
    }


def public(space: types.ModuleType | object) -> list[str]:
    return [name for name in dir(space) if not name.startswith("__")]


def files() -> dict[str, bytes]:
    "All files of the archive: path in it -> bytes. They are the same at each build."
    inside = modules()
    paths = [path_of(name).relative_to(ROOT) for name in inside]
    paths += [Path(PACKAGE, name) for name in DATA]
    paths += [
        path.with_suffix(".toml")
        for path in list(paths)
        if path.suffix == ".py" and (ROOT / path.with_suffix(".toml")).is_file()
    ]
    paths += [Path(f"{PACKAGE}/course/data_sets.toml")]
    found = {path.as_posix(): (ROOT / path).read_bytes() for path in paths}
    here = {f"{PACKAGE}/page/{name}.py": f"{name}.py" for name in PAGE}
    for place, name in (here | {"lazy_loader.py": "lazy_loader.py"}).items():
        found[place] = (ROOT / "book/page" / name).read_bytes()
    found[f"{PACKAGE}/page/facts.json"] = facts()
    return dict(sorted(found.items()))
