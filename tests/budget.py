"""Lines of code in each ring of the project, beside what budget.toml allows.

python tests/budget.py    # prints the balance; `make check` ends with it

A line counts if it holds code: no blank line, comment or docstring. Data that people write by hand
(YAML, TOML, JSON or text beside the exercises, the course and the book) is a ring of its own, in
which every line counts that isn't blank. What is generated or comes from elsewhere doesn't count.
"""

import ast
import io
import re
import subprocess
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
RINGS = {  # the first prefix that fits
    "tests": ("tests/",),
    "exercises": ("transformer_lit/exercises/",),
    "course": ("transformer_lit/course/",),
    "assistant": ("transformer_lit/assistant/",),
    "text, attention, position, block": tuple(
        f"transformer_lit/{part}/" for part in ("text", "attention", "position", "block")
    ),
    "models": ("transformer_lit/models/",),
    "training, inference": ("transformer_lit/training/", "transformer_lit/inference/"),
    "recipes": ("transformer_lit/recipes/",),
    "top": ("transformer_lit/",),
    "book": ("book/",),
    "experiments": ("experiments/",),
    "benchmarks": ("benchmarks/",),
}
LANGUAGES = {".py": "", ".pyi": "", ".js": " js", ".mjs": " js", ".css": " css"}
DATA = {".yml", ".yaml", ".toml", ".json", ".txt"}
SILENT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def python_lines(text):
    "Lines with code: those that a token touches, less those of docstrings."
    owners = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    docstrings = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, owners) and ast.get_docstring(node, clean=False) is not None:
            docstrings |= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    code = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            code |= {*range(token.start[0], token.end[0] + 1)}
    return len(code - docstrings)


def script_lines(text):
    "Of JavaScript or CSS."
    lines = re.sub(r"/\*.*?\*/", "", text, flags=re.S).split("\n")
    return sum(bool(line.strip()) and not line.strip().startswith("//") for line in lines)


def ring(name):
    "The ring of a tracked file and the function that counts it; None where it doesn't count."
    path = Path(name)
    elsewhere = ".min." in name or "/vendor" in name or "pyodide/" in name
    key = next((key for key, prefixes in RINGS.items() if name.startswith(prefixes)), None)
    if key is None or elsewhere or path.name.startswith(("_modidx", "_toc")):
        return None
    if path.suffix in LANGUAGES:
        count = python_lines if path.suffix.startswith(".py") else script_lines
        return key + LANGUAGES[path.suffix], count
    if path.suffix in DATA and key in ("exercises", "course", "book"):
        return "data beside code", lambda text: sum(bool(line.strip()) for line in text.split("\n"))
    return None


def count(root=ROOT):
    "Lines of each ring."
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    said = subprocess.run(listed, capture_output=True, text=True, check=True, cwd=root).stdout
    rows = {}
    for name in said.splitlines():
        if (found := ring(name)) and (root / name).is_file():
            key, lines = found
            rows[key] = rows.get(key, 0) + lines((root / name).read_text("utf-8"))
    return rows


def allowed(root=ROOT):
    return tomllib.loads((root / "budget.toml").read_text("utf-8"))


def balance():
    "How many lines there are, and which rings are over budget, or how many lines are left."
    have, may = count(), allowed()
    over = {key: n - may.get(key, 0) for key, n in have.items() if n > may.get(key, 0)}
    total = sum(n for key, n in have.items() if key != "tests")
    said = f"lines of code: {total:,} without tests, {have['tests']:,} of tests"
    if over:
        return f"{said}; over budget: " + ", ".join(f"{key} by {n}" for key, n in over.items())
    left = sum(may.values()) - sum(have.values())
    return f"{said}; every ring is within budget.toml, {left:,} lines are left"


if __name__ == "__main__":
    print(balance())
