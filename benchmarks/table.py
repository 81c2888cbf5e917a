"""The tables of speed and memory on the results page, made from their records."""

import re
from itertools import groupby
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


def decoding_table(record: Measurement) -> str:
    "A published model beside other libraries, from the record `decoding_smollm2`."
    lines = [
        f"| work | side | time, ours in float32 = 1 (95 %) | {record.device} |",
        "|---|---|---|---|",
    ]
    for row in record.rows:
        ratio = "{ratio:.2f} ({low:.2f} to {high:.2f})".format(**row) if "ratio" in row else ""
        if "tokens_s" in row:
            told = f"{row['tokens_s']:.0f} tokens/s, {row['mb']:.0f} MB"
            lines.append(f"| writing | {row['side']} | {ratio} | {told} |")
        elif "theirs" in row:  # the record has ours / theirs
            ratio = f"{1 / row['ratio']:.2f} ({1 / row['high']:.2f} to {1 / row['low']:.2f})"
            lines.append(f"| {row['work']} | transformers | {ratio} | {row['theirs']:.1f} s |")
        else:
            told = f"{row['of_weights']:.2f} × the float32 weights"
            lines.append(f"| memory to open | {row['side']} | | {told} |")
    return "\n".join(lines)


def memory_table(record: Measurement) -> str:
    "The most that the tensors of a training step hold: ours, and each peer's."
    lines = ["| training step | ours, MiB | others, MiB | ours / least of the others |"]
    lines.append("|---|---|---|---|")
    for _, sides in groupby(record.rows, lambda row: row["row"]):
        ours, *others = sides
        told = ", ".join(f"{row['side']} {row['mib']:,.0f}" for row in others)
        ratio = ours["mib"] / min(row["mib"] for row in others)
        words = f"{MODELS[ours['model']]}, {ours['dtype']}"
        lines.append(f"| {words} | {ours['mib']:,.0f} | {told} | {ratio:.2f} |")
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
