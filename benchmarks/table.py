"""The table of speeds on the results page, made from its record."""

import re
from pathlib import Path
from typing import Any

from transformer_lit.course.records import Measurement

MODELS = {"translator": "encoder–decoder", "gpt": "GPT", "llama": "Llama"}


def work(row: dict[str, Any]) -> str:
    "What a row did, in words."
    kinds = {
        "train": f"training step, {row['dtype']}",
        "greedy": f"greedy decoding, batch {row['batch']}",
        "beam": f"beam 5, {row['batch']} sentences",
    }
    return f"{MODELS[row['model']]}: {kinds[row['work']]}"


def speed_table(record: Measurement) -> str:
    "The rows as a Markdown table: our time over that of the fastest peer, with its interval."
    head = ("work", "fastest peer", "ours / peer (95 %)", "tokens/s", "machine")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in record.rows:
        if "not_run" in row:
            cells = ["–", f"not run: {row['not_run']}", "–"]
        else:
            ratio = f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
            cells = [row["fastest"], ratio, f"{row['tokens_s']:,.0f}"]
        lines.append(f"| {' | '.join([work(row), *cells, row['machine']])} |")
    return "\n".join(lines)


def written(page: str, name: str, table: str) -> str:
    "The page, with a table between the marks of its name."
    marked = re.compile(rf"(<!-- {name}:.*?-->\n).*?(<!-- end of {name} -->)", re.S)
    if not marked.search(page):
        raise ValueError(f"the page has no place for the table: <!-- {name}: … --> is missing")
    return marked.sub(lambda found: f"{found[1]}{table}\n{found[2]}", page)


def put_table(page: Path, name: str, table: str) -> None:
    "Write the table into a file."
    page.write_text(written(page.read_text(), name, table))
