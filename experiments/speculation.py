"""How many tokens a call of the shipped model gives when something cheap guesses ahead."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.runner import Experiment, Row, Variant
from transformer_lit import load
from transformer_lit.course.data import load_text
from transformer_lit.inference.sampling import generate
from transformer_lit.inference.speculative import (
    Draft,
    ModelDraft,
    PromptLookup,
    probabilities,
    speculate,
)
from transformer_lit.recipes.language_model import LanguageModeling
from transformer_lit.recipes.recipe import open_training, preset


def best(logits: Tensor) -> Tensor:
    "All probability on the largest logit: greedy choice."
    return nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)


CHOICES = {0.0: best, 1.0: probabilities}


# --- drafts ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Small(Variant):
    "A model of the same tokens as a shipped one."

    shipped: str

    def train_tokenizer(self, examples: Any) -> Any:
        "The shipped model's."
        return load(self.shipped).tokenizer


def small_model(shipped: str, dataset: str, steps: int) -> nn.Module:
    "One layer of width 32, trained as `shakespeare-cpu` is, for fewer steps."
    sizes = {"d_model": 32, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "d_ff": 86}
    changes = {"sizes": sizes, "dataset": dataset, "steps": steps, "every": steps}
    base = vars(preset(LanguageModeling, "shakespeare-cpu"))
    recipe = Small(**{**base, **changes, "val_batches": 1}, shipped=shipped)
    with tempfile.TemporaryDirectory() as folder:
        run = open_training(recipe, Path(folder, "run"), seed=0, device="cpu")
        run.train()
    return run.trained.model.eval()


class Read(list):
    "The ids that were read."

    def truncate(self, length: int) -> None:
        "Forget all from `length` on."
        del self[length:]


class Counted(nn.Module):
    "What follows the last two ids, by how often it did in a text; one hundredth for each token."

    def __init__(self, ids: Tensor, vocab_size: int):
        super().__init__()
        self.ids, self.vocab_size, self.rows = ids, vocab_size, {}

    def row(self, pair: tuple[int, ...]) -> Tensor:
        "The logits after a pair."
        if pair not in self.rows:
            first, second, third = self.ids[:-2], self.ids[1:-1], self.ids[2:]
            found = third[(first == pair[0]) & (second == pair[1])]
            count = torch.bincount(found, minlength=self.vocab_size).double()
            self.rows[pair] = (count + 0.01).log()
        return self.rows[pair]

    def start(self, batch_size: int, max_len: int) -> Read:
        "Nothing read; one text at a time."
        return Read()

    def step(self, ids: Tensor, state: Read, *, last: int | None = None) -> Tensor:
        "Logits after each id: 1 T V."
        out = []
        for i in ids[0].tolist():
            state.append(i)
            out.append(self.row(tuple(state[-2:]) if len(state) > 1 else (-1, i)))
        return torch.stack(out)[None]


# --- the counts -----------------------------------------------------------------------------------


def counted(
    target: nn.Module,
    make: Callable[[Callable, torch.Generator], Draft],
    prompts: Tensor,
    new: int,
    temperature: float,
    ahead: int,
) -> Row:
    "Tokens, calls, guesses that were kept, and calls in which one was refused."
    generator, choice = torch.Generator().manual_seed(0), CHOICES[temperature]
    row = {"tokens": 0, "calls": 0, "kept": 0, "refused": 0}
    for prompt in prompts:
        draft, text, offered = make(choice, generator), [], []
        propose = draft.propose

        def watched(ids: Tensor, n: int, propose=propose, offered=offered) -> Any:
            guesses, q = propose(ids, n)
            offered.append(len(guesses))
            return guesses, q

        draft.propose = watched
        settings = {"max_new_tokens": new, "ahead": ahead, "choice": choice, "generator": generator}
        for said in speculate(target, draft, prompt[None], **settings):
            text += said
            row["calls"] += 1
            row["kept"] += len(said) - 1
            full = offered.pop() if offered else 0
            row["refused"] += len(said) - 1 < full
        row["tokens"] += len(text)
        if temperature == 0 and [text] != generate(
            target, prompt[None], max_new_tokens=new, temperature=0
        ):
            raise AssertionError(f"greedy speculation left the greedy text: {text}")
    return row


def speculated(
    model: str = "shakespeare",
    dataset: str = "tinyshakespeare",
    steps: int = 1000,
    texts: int = 8,
    prompt: int = 24,
    new: int = 40,
    aheads: Sequence[int] = (1, 2, 4, 8),
) -> list[Row]:
    "A row for each draft, temperature and number of guesses."
    author = load(model)
    target, tok = author.model.double().eval(), author.tokenizer
    vocab_size, room = author.model.config.vocab_size, prompt + new
    small = small_model(model, dataset, steps).double()
    table = Counted(tok.encode_text(load_text(dataset, "train")), vocab_size)
    held_out = tok.encode_text(load_text(dataset, "val"))
    starts = torch.linspace(0, len(held_out) - prompt, texts).long().tolist()
    prompts = torch.stack([held_out[start : start + prompt] for start in starts])

    def drawn_from(guesser: nn.Module) -> Callable[[Callable, torch.Generator], Draft]:
        return lambda choice, generator: ModelDraft(
            guesser, max_len=room, choice=choice, generator=generator
        )

    drafts = {
        "one layer": drawn_from(small),
        "counts": drawn_from(table),
        "prompt lookup": lambda choice, generator: PromptLookup(vocab_size),
    }
    rows = []
    for (name, make), temperature, ahead in product(drafts.items(), CHOICES, aheads):
        about = {"draft": name, "temperature": temperature, "ahead": ahead}
        rows.append(about | counted(target, make, prompts, new, temperature, ahead))
        print(rows[-1], flush=True)
    return rows


SPECULATIVE = Experiment(
    "Texts of the shipped model `shakespeare` by speculative decoding, in float64: 8 beginnings of "
    "24 characters from the validation part of tiny Shakespeare, each gone on with for 40. draft: "
    "what guesses (one layer: a Llama of width 32, trained for 1,000 steps of 1,024 characters; "
    "counts: what followed the last two characters in the training part; prompt lookup: the last "
    "place in the text with the same two characters). temperature: 0 is greedy, of target and "
    "draft; ahead: guesses in a round at most. tokens: written in all; calls: of the target; kept: "
    "guesses; refused: calls in which a guess was refused.",
    speculated,
    quick={
        "model": "stories",
        "dataset": "stories",
        "steps": 2,
        "texts": 1,
        "prompt": 5,
        "new": 7,
        "aheads": (2,),
    },
)
