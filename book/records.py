"""A fold on the page of a chapter: which records it reads, and how to measure them again."""

import functools
import json
import re
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import cards

READ = re.compile(r'(\w[\w{}*-]*)\.json"|name=f?"(\w[\w{}*-]*)"')
BAKEOFF = re.compile(r'\["bakeoff"\] == "(\w+)"')
FOLD = """<details class="records"><summary>Records used on this page</summary>

| record | measure it again | commit |
|---|---|---|
{rows}

</details>"""


def read_by(cells: list[dict], root: Path = cards.ROOT) -> dict[str, list[Path]]:
    "The groups of records that the code of a notebook reads: title -> files."
    files = {path.stem: path for path in sorted((root / "results").rglob("*.json"))}
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    names = [re.sub(r"{.*?}", "*", a or b) for a, b in READ.findall(code)]  # `seed{n}`: every n
    groups = {name.replace("*", "…"): name for name in names}
    groups |= {f"bake-off {name}": f"{name}-*" for name in BAKEOFF.findall(code)}
    found = {
        title: [path for stem, path in files.items() if fnmatchcase(stem, name)]
        for title, name in groups.items()
    }
    return {title: paths for title, paths in found.items() if paths}


@functools.cache
def day(commit: str, root: Path) -> str:
    "The day of a commit; empty if the history is missing."
    command = ["git", "show", "-s", "--format=%cs", commit]
    return subprocess.run(command, cwd=root, capture_output=True, text=True).stdout.strip()


def row(title: str, paths: list[Path], root: Path) -> str:
    told = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    code, said = cards.settings(root)["git_url"], []
    for commit in sorted({one["commit"] for one in told}):
        whole = commit.rstrip("+")
        made, name = day(whole, root), f"`{whole[:7]}`"
        said.append(f"{made} [{name}]({code}/commit/{whole})" if made else name)
    again = [path for path, one in zip(paths, told, strict=True) if one.get("reproducible", True)]
    command = f"`make rerun RECORD={again[0].relative_to(root)}`" if again else ""
    lost = (
        "not reproducible: its code was not committed as it ran" if len(again) < len(told) else ""
    )
    told_of = "; ".join(filter(None, [command, lost]))
    count = f", {len(paths)} files" if len(paths) > 1 else ""
    return f"| {title}{count} | {told_of} | {', '.join(said)} |"


def fold(cells: list[dict], root: Path = cards.ROOT) -> str:
    "The table of a chapter; empty if it reads no records."
    rows = [row(title, paths, root) for title, paths in read_by(cells, root).items()]
    return FOLD.format(rows="\n".join(rows)) if rows else ""
