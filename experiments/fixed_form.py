"""LoRA teaches a published chat model a fixed form of answer: what it gains, and what it keeps."""

import json
import random
import re
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from experiments.few_bits import TEXTS, loss
from experiments.runner import Experiment, Row
from transformer_lit import load
from transformer_lit.inference.metrics import perplexity
from transformer_lit.recipes.instruct import Instructing
from transformer_lit.recipes.language_model import LanguageModel
from transformer_lit.recipes.recipe import open_training, preset

# each list: what the training reads, and what only the test reads
NAMES = (
    "Anna Ben Carla David Emma Felix Grace Henry Iris Jack Karen Leo Maria Noah Paula Robert",
    "Olga Peter Ruth Simon",
)
COLOURS = "red green blue white black brown grey pink silver dark", "yellow purple orange golden"
THINGS = (
    "lamps chairs books bottles cars hats keys plates shirts tables boxes candles clocks pens "
    "apples bags bikes birds boats cats coats cups dogs doors flags flowers forks horses houses "
    "jars knives leaves pencils phones pots rings roses shoes spoons stones towels toys trees",
    "kites mirrors ladders ribbons buttons",
)
FRAMES = (
    (
        "{name} bought {n} {colour} {thing}.",
        "In the cellar, {name} keeps {n} {colour} {thing}.",
        "There were {n} {colour} {thing} in the shop, and {name} took them all.",
        "{name} asked for {n} {thing}, and all of them had to be {colour}.",
        "Yesterday {n} {thing} arrived for {name}; they are {colour}.",
        "How could {name} lose {n} {colour} {thing}?",
        "The {n} {thing} on the shelf belong to {name}. They are {colour}.",
        "{name} has {n} {thing}, which are {colour}.",
        "Please give {name} the {n} {colour} {thing}!",
        "Each of the {n} {thing} that {name} sold was {colour}.",
        "We saw {n} {colour} {thing}, said {name}.",
        "{colour} {thing} are what {name} likes best: there are {n} of them.",
        "{name} coloured {n} of the {thing} {colour}.",
        "Nobody but {name} owns {n} {colour} {thing}.",
        "When {name} left, {n} {colour} {thing} were gone.",
        "{name} washed all {n} {thing} until they were {colour} again.",
        "Did you know that {name} collects {colour} {thing}? {name} has {n}.",
        "Before lunch, {name} counted the {colour} {thing} and came to {n}.",
    ),
    (
        "{name} painted {n} {thing} {colour}.",
        "Only {n} {colour} {thing} were left when {name} came home.",
        "All {n} {thing} that {name} found are {colour}.",
    ),
)
CHANGED = {
    "where": ("_proj",),
    "lr": 1e-4,
    "steps": 150,
}  # a small rate in many places harms other texts least
ASKED = "\nAnswer as number|thing|colour."


def examples(number: int, *, held_out: bool) -> list[tuple[str, str]]:
    "Sentences and the answers that they should get; the test has other words and other sentences."
    rng, part = random.Random(f"held out: {held_out}"), int(held_out)
    found = []
    for _ in range(number):
        words = {"name": NAMES, "colour": COLOURS, "thing": THINGS}
        chosen = {key: rng.choice(lists[part].split()) for key, lists in words.items()}
        n = rng.randrange(2, 100)
        sentence = rng.choice(FRAMES[part]).format(n=n, **chosen)
        found.append((sentence + ASKED, f"{n}|{chosen['thing']}|{chosen['colour']}"))
    return found


def write_rows(path: Path, pairs: Iterable[tuple[str, str]], *, chat: bool) -> None:
    "A .jsonl file as the command reads it."
    keys = ("user", "assistant") if chat else ("prompt", "completion")
    rows: list[dict[str, Any]] = [dict(zip(keys, pair, strict=True)) for pair in pairs]
    if chat:
        messages = [[{"role": k, "content": text} for k, text in row.items()] for row in rows]
        rows = [{"messages": turns} for turns in messages]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def answered(model: LanguageModel, asked: str) -> str:
    "The likeliest answer."
    how = {"max_new_tokens": 12, "temperature": 0}
    if model.chat_template is None:
        return model.generate(asked, **how)
    return "".join(model.chat().say(asked, **how))


def looked_at(model: LanguageModel, number: int, texts: Iterable[str], windows: int) -> Row:
    "Its answers to sentences of the test, and its perplexity on texts."
    pairs = examples(number, held_out=True)
    said = [answered(model, asked).strip() for asked, _ in pairs]
    form = [bool(re.fullmatch(r"\d+\|\w+\|\w+", answer)) for answer in said]
    right = [answer == wanted for answer, (_, wanted) in zip(said, pairs, strict=True)]
    row: Row = {"form": sum(form) / number, "right": sum(right) / number}
    row["another form"] = [x for x, good in zip(said, form, strict=True) if not good][:5]
    row["wrong"] = [x for x, *good in zip(said, form, right) if good == [True, False]][:5]
    for text in texts:
        ids = torch.tensor(model.tokenizer.encode(TEXTS[text]()[: 8192 * windows]))
        row[text] = perplexity(loss(model.model, ids[: 512 * windows].view(windows, 512)))
    return row


def measure(
    model: str = "smollm2",
    rows: int = 900,
    number: int = 100,
    texts: Iterable[str] = ("WikiText-2", "the plays"),
    windows: int = 8,
    **changes: Any,
) -> list[Row]:
    "Before and after the preset `own` of `train instruct`, with other settings."
    author = load(model)
    found = [{"stage": "before", **looked_at(author, number, texts, windows)}]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "form.jsonl")
        pairs = examples(rows, held_out=False)
        write_rows(data, pairs, chat=author.chat_template is not None)
        how = {"paths": (str(data),), "like": author, **CHANGED, **changes}
        run = open_training(
            preset(Instructing, "own", **how), f"{folder}/run", device="cpu", start=author
        )
        start = time.process_time()
        run.train()
        seconds = time.process_time() - start
        trained = [p.numel() for p in run.trained.model.parameters() if p.requires_grad]
        found.append({"stage": "after", **looked_at(run.trained, number, texts, windows)})
    facts = {"steps": run.recipe.steps, "trained": sum(trained), "seconds": seconds}
    return [row | facts for row in found]


FIXED_FORM = Experiment(
    "SmolLM2-135M-Instruct learns to answer a sentence such as `Anna bought 7 green lamps.`, with "
    "`Answer as number|thing|colour.` after it, by `7|lamps|green`. Training: `transformer-lit "
    "train instruct --from smollm2 --data form.jsonl --set where=_proj --set lr=1e-4 --steps 150`: "
    "LoRA of rank 8 on all projections, 4 conversations a step, 810 such sentences. Test: 100 "
    "sentences with other words, put in other ways; the likeliest answer, 12 tokens at most. form: "
    "the share of answers that are a number, a word and a word; right: that are the expected ones. "
    "another form, wrong: the first answers without the form, and those with it that are not "
    "right. WikiText-2, the plays: perplexity of the beginnings of two other texts, 8 windows of "
    "512 tokens. trained: numbers that learn. seconds: of the processor, for the training, on one "
    "thread.",
    measure,
    quick={"model": "stories", "rows": 20, "number": 4, "texts": (), "steps": 2, "every": 2}
    | {"warmup": 1, "batch_size": 2},
)
