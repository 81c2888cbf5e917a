"""The reader's own file as the book solves it: every step of the thread, put together."""

import ast
import json
from functools import cache
from pathlib import Path

import chapter

from transformer_lit.exercises.thread import STEPS, starter

ROOT = Path(__file__).parents[1]


@cache
def written():
    "All exercises of all chapters, by name: (the chapter's file, the exercise as written)."
    found = {}
    for path in sorted((ROOT / "nbs").rglob("*.ipynb")):
        if "checkpoints" not in str(path):
            cells = json.loads(path.read_text())["cells"]
            found |= {one.id: (path, one) for one in chapter.exercises(cells)}
    return found


@cache
def thread():
    "The solutions of all steps behind the starter's imports, each definition once."
    parts = [ast.unparse(n) for n in ast.parse(starter()).body if "mport" in type(n).__name__]
    known = set()
    for step in STEPS.values():
        solution = written()[step.id][1].solution
        for node in ast.parse(solution).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in known:
                known.add(node.name)
                parts.append(ast.get_source_segment(solution, node))
    return "\n\n\n".join(parts) + "\n"
