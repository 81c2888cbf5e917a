"""Write the data of the widgets to book/_static/widgets/data: `python book/make_widgets.py`.

    captions.json   the tokenizer that the chapter on tokenizers trains on its twelve captions
    table.json      the model of ten words in the chapter on beam search
    next.json       the logits of the shipped model of Shakespeare's plays after some prompts
    moments.json    the recorded answers of the four models of the ten minutes, at seven moments
    warmups.json    the recorded losses of two wirings at four rates, each after three warm-ups
    first_loss.json the logits of the fresh model in the chapter on the first training
    neighbours.json the nearest rows in the table of the shipped translator of captions

Some cells of the chapters are run for this, so that the widgets show what the chapters show.
"""

import json
import re
from pathlib import Path

import torch

from transformer_lit import load
from transformer_lit.course.data import number_in_english
from transformer_lit.course.files import write_text
from transformer_lit.course.records import read_measurement
from transformer_lit.text.tokenizer import BPETokenizer, readable

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "book/_static/widgets/data"
MERGES = 61
# sure of the next character, less sure, and hardly sure at all
BEGINNINGS = ("?\n\nGREMIO:\nGood morrow, neighbou", "ROMEO:\nI will not s", "JULIET:\nO ")


def run_cells(notebook: str, *ids: str) -> dict:
    "The names that these cells of a chapter define."
    cells = json.loads((ROOT / notebook).read_text(encoding="utf-8"))["cells"]
    sources = {cell["id"]: "".join(cell["source"]) for cell in cells}
    names: dict = {}
    for each in ids:
        exec(sources[each], names)
    return names


def captions() -> dict:
    "A tokenizer file that the page's own tokenizer can read."
    names = run_cells("nbs/text/01_tokenizer.ipynb", "captions")
    trained = BPETokenizer.train(names["captions"], 259 + MERGES)
    described = json.loads(trained.backend.to_str())
    model = {key: described["model"][key] for key in ("vocab", "merges")}
    kept = {key: described[key] for key in ("normalizer", "pre_tokenizer")}
    return {**kept, "model": model}


def table() -> dict:
    "The words that can follow each prefix, and the word that ends a sentence."
    names = run_cells("nbs/inference/02_beam.ipynb", "table")
    return {"end": names["END"], "table": names["table"]}


def following() -> dict:
    "The characters, and their logits after each prompt, rounded to four places."
    writer = load("shakespeare")
    places = []
    for text in BEGINNINGS:
        ids = torch.tensor([writer.tokenizer.encode(text)])
        with torch.inference_mode():
            logits = writer.model(ids)[0, -1]
        places.append({"text": text, "logits": [round(x, 4) for x in logits.tolist()]})
    return {"characters": writer.tokenizer.characters, "places": places}


LONGEST = 60  # letters; no number is that long


def moments() -> dict:
    "The new numbers, from small to large, and the losses and answers of each model."
    first, *rows = read_measurement(ROOT / "results/measurements/ten_minutes.json").rows
    values = {number_in_english(n): n for n in range(100_000)}
    order = sorted(range(len(first["new"])), key=lambda i: values[first["new"][i][0]])
    texts: dict[str, int] = {}

    def place(text: str) -> int:
        cut = text if len(text) <= LONGEST else text[:LONGEST] + "…"
        return texts.setdefault(cut, len(texts))

    models = {
        row["model"]: {
            "losses": [loss and round(loss, 4) for loss in row["losses"]],
            "said": [[place(said[i]) for i in order] for said in row["said"]],
        }
        for row in rows
    }
    numbers = [
        {"digits": f"{values[english]:,}", "english": english, "german": german}
        for english, german in (first["new"][i] for i in order)
    ]
    return {"at": rows[0]["at"], "numbers": numbers, "texts": list(texts), "models": models}


def warmups() -> dict:
    "For each wiring, learning rate and warm-up the losses of three seeds over the steps."
    rows = read_measurement(ROOT / "results/measurements/wirings.json").rows
    rows = [row for row in rows if row["steps"] == 400]
    rates, lengths = (sorted({row[key] for row in rows}) for key in ("rate", "warmup"))

    def runs(*setting) -> list[list[float]]:
        own = [row for row in rows if (row["wiring"], row["rate"], row["warmup"]) == setting]
        own.sort(key=lambda row: row["seed"])
        return [[round(loss, 4) for loss in row["losses"]] for row in own]

    losses = {
        wiring: [[runs(wiring, rate, length) for length in lengths] for rate in rates]
        for wiring in ("post", "pre")
    }
    every, steps = rows[0]["every"], rows[0]["steps"]
    at, frequencies = list(range(every, steps + 1, every)), round(rows[0]["unigram"], 3)
    shown = {"rates": rates, "warmups": lengths, "at": at, "frequencies": frequencies}
    return {**shown, "losses": losses}


POSITIONS = 12


def first_loss() -> dict:
    "The logits of a fresh model at the first positions of the first pair, and what came next."
    path = "nbs/models/02_first_training.ipynb"
    names = run_cells(path, "imports", "data", "loop", "step0")
    src, tgt = (names["numbers"].src[:1], names["numbers"].tgt[:1, : POSITIONS + 1])
    with torch.inference_mode():
        logits = names["fresh"](0)(src, tgt[:, :-1], src != names["PAD"])[0]
    shown = [[round(x, 3) for x in row] for row in logits.tolist()]
    return {"logits": shown, "targets": tgt[0, 1:].tolist()}


TOKENS, NEAREST = 1000, 6


def neighbours() -> dict:
    "The first tokens that begin a word, and for each the others with the largest cosines."
    captions = load("multi30k-en-de")
    names = [readable(captions.tokenizer.backend.id_to_token(i)) for i in range(5000)]
    ids = [i for i, name in enumerate(names) if re.fullmatch(r" [^\W\d_]{2,}", name)][:TOKENS]
    trained = captions.model.tok_emb.weight.detach().double()[ids]
    untrained = torch.randn(trained.shape, generator=torch.Generator().manual_seed(0))

    def nearest(rows):
        directions = torch.nn.functional.normalize(rows, dim=1)
        return (directions @ directions.T).fill_diagonal_(-1).topk(NEAREST)

    near = [
        [[other, round(cosine, 2)] for other, cosine in zip(others, cosines)]
        for cosines, others in zip(*(found.tolist() for found in nearest(trained)))
    ]
    largest = round(nearest(untrained).values[:, 0].mean().item(), 2)
    return {"tokens": [names[i].strip() for i in ids], "near": near, "untrained": largest}


FILES = {
    "warmups.json": warmups,
    "first_loss.json": first_loss,
    "neighbours.json": neighbours,
    "moments.json": moments,
    "captions.json": captions,
    "table.json": table,
    "next.json": following,
}


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    for name, make in FILES.items():
        text = json.dumps(make(), ensure_ascii=False, separators=(",", ":"))
        write_text(TARGET / name, text + "\n")


if __name__ == "__main__":
    main()
