"""Little stories from a grammar with a known entropy, a loss that no model of them can beat.

Someone wants a thing for a reason, something is in the way, someone helps, and the ending follows
from the beginning. To write a story, a value is drawn for each slot, independently of the others,
and its words are put into the plot. Different draws always give different texts.
"""

import math
import random
import re
import tomllib
from functools import cache
from importlib.resources import files

_GRAMMAR = tomllib.loads((files("transformer_lit") / "course/stories.toml").read_text("utf-8"))
_SLOTS = {
    slot: [tuple(value.split("/")) for value in values]
    for slot, values in _GRAMMAR["slots"].items()
}
_PLOTS = {name: (plot["words"], plot["probability"]) for name, plot in _GRAMMAR["plots"].items()}
_PIECE = re.compile(r"\{(\w+):?(\d)?\}")
_WORDS = {plot: words for plot, (words, _) in _PLOTS.items()}


def _pieces(plot: str) -> list[tuple[str, int]]:
    "The slots of a plot in the order of the text, each with the form that it has there."
    return [(slot, int(form or 0)) for slot, form in _PIECE.findall(_WORDS[plot])]


def _slots(plot: str) -> list[str]:
    return list(dict.fromkeys(slot for slot, _ in _pieces(plot)))


def story(rng: random.Random) -> str:
    "One story, drawn from the grammar."
    (plot,) = rng.choices(list(_PLOTS), [weight for _, weight in _PLOTS.values()])
    drawn = {slot: rng.choice(_SLOTS[slot]) for slot in _slots(plot)}
    return _PIECE.sub(lambda m: drawn[m[1]][int(m[2] or 0)], _WORDS[plot])


def stories(count: int, *, seed: int = 0) -> list[str]:
    "Stories, independent of each other. On rare occasions one comes twice."
    rng = random.Random(seed)
    return [story(rng) for _ in range(count)]


@cache
def _form(plot: str) -> re.Pattern:
    "A pattern for texts of this plot, in which each slot may have a different value every time."

    def group(piece: re.Match) -> str:
        forms = {value[int(piece[2] or 0)] for value in _SLOTS[piece[1]]}
        return f"({'|'.join(map(re.escape, sorted(forms, key=len, reverse=True)))})"

    return re.compile(_PIECE.sub(group, _WORDS[plot].replace(".", r"\.")))


def plot_of(text: str) -> str | None:
    "The plot whose form a text has, whether or not its ending follows from its beginning."
    return next((plot for plot in _PLOTS if _form(plot).fullmatch(text)), None)


def broken_causes(text: str) -> list[str] | None:
    """The slots in which a text contradicts itself; None if it doesn't follow any plot.

    `[]` means a consistent story: the person who wants a thing gets it, in that colour, for that
    reason, at that price, through that helper.
    """
    if (plot := plot_of(text)) is None:
        return None
    found: dict[str, list[tuple[int, str]]] = {}
    for (slot, form), words in zip(_pieces(plot), _form(plot).fullmatch(text).groups()):
        found.setdefault(slot, []).append((form, words))

    def kept(slot: str) -> bool:
        return any(all(value[i] == words for i, words in found[slot]) for value in _SLOTS[slot])

    return [slot for slot in found if not kept(slot)]


def surprise(text: str) -> float:
    "-ln of a text's probability under the grammar, in nats; infinite if that is impossible."
    if broken_causes(text) != []:
        return math.inf
    plot = plot_of(text)
    return -math.log(_PLOTS[plot][1]) + sum(math.log(len(_SLOTS[slot])) for slot in _slots(plot))


def entropy() -> float:
    """The mean surprise of a story in nats. No model of the stories can have a lower mean loss.

    The slots are independent, so their entropies add up: H = Σ_plot p (−ln p + Σ_slot ln n_slot).
    """
    return sum(
        p * (-math.log(p) + sum(math.log(len(_SLOTS[slot])) for slot in _slots(plot)))
        for plot, (_, p) in _PLOTS.items()
    )
