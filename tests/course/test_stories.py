"Little stories: their entropy, their causes, and a small model that learns both."

import itertools
import math
import random
import statistics

import pytest

from transformer_lit.course import stories as grammar
from transformer_lit.course.data import load_text
from transformer_lit.course.stories import broken_causes, entropy, plot_of, stories, surprise

PLOTS = list(grammar._PLOTS)


class Told(random.Random):
    "Draws what it is told to: a plot, then for each slot in turn the value at a place."

    def __init__(self, plot, places):
        super().__init__(0)
        self.plot, self.places = plot, iter(places)

    def choices(self, population, weights):
        return [self.plot]

    def choice(self, seq):
        return seq[next(self.places)]


@pytest.fixture
def small(monkeypatch):
    "The grammar with two values for each slot: all its draws, and their texts."
    two = {slot: values[:2] for slot, values in grammar._SLOTS.items()}
    two["name"] = [two["name"][0], grammar._SLOTS["name"][-1]]  # she and he
    monkeypatch.setattr(grammar, "_SLOTS", two)
    grammar._form.cache_clear()
    yield [
        grammar.story(Told(plot, places))
        for plot in PLOTS
        for places in itertools.product(range(2), repeat=len(grammar._slots(plot)))
    ]
    grammar._form.cache_clear()


def pieces(text):
    "A story cut into the words of its slots, with the names of the slots."
    plot = plot_of(text)
    return plot, grammar._pieces(plot), list(grammar._form(plot).fullmatch(text).groups())


def test_every_draw_has_a_text_of_its_own_and_the_probabilities_sum_to_1(small):
    assert len(set(small)) == len(small) == 2**7 + 2**7 + 2**8
    p = [math.exp(-surprise(text)) for text in small]
    assert math.isclose(sum(p), 1)
    assert math.isclose(-sum(x * math.log(x) for x in p), entropy())


def test_the_draw_can_be_read_off_the_text():
    rng = random.Random(1)
    for plot in PLOTS:
        slots = grammar._slots(plot)
        assert all(len({v[0] for v in grammar._SLOTS[s]}) == len(grammar._SLOTS[s]) for s in slots)
        for _ in range(30):
            places = [rng.randrange(len(grammar._SLOTS[slot])) for slot in slots]
            text = grammar.story(Told(plot, places))
            drawn = {slot: grammar._SLOTS[slot][i] for slot, i in zip(slots, places)}
            found, asked, words = pieces(text)
            assert found == plot and words == [drawn[slot][form] for slot, form in asked]


def test_the_entropy_is_the_mean_surprise():
    found = [surprise(text) for text in stories(1500)]
    error = statistics.stdev(found) / len(found) ** 0.5
    assert error < 0.03 and abs(statistics.mean(found) - entropy()) < 4 * error


def test_every_story_keeps_its_causes():
    for text in stories(200, seed=2):
        assert broken_causes(text) == [] and surprise(text) < math.inf


@pytest.mark.parametrize("plot", PLOTS)
def test_a_value_that_changes_at_one_place_is_named(plot):
    text = grammar.story(Told(plot, [0] * 8))
    _, asked, words = pieces(text)
    between = grammar._PIECE.split(grammar._WORDS[plot])[::3]  # the words that no slot fills
    for i, (slot, form) in enumerate(asked):
        others = [value[form] for value in grammar._SLOTS[slot] if value[form] != words[i]]
        changed = words[:i] + others[:1] + words[i + 1 :]
        text = "".join(itertools.chain(*zip(between, changed))) + between[-1]
        once = sum(other == slot for other, _ in asked) == 1  # then it is another story
        assert broken_causes(text) == ([] if once else [slot])
        assert (surprise(text) < math.inf) == once


@pytest.mark.parametrize("text", ["", "Anna lives by the sea.", stories(1)[0] + " "])
def test_what_has_no_plot_has_no_causes_and_no_probability(text):
    assert plot_of(text) is None and broken_causes(text) is None and surprise(text) == math.inf


def test_a_seed_gives_the_same_stories():
    assert stories(5, seed=3) == stories(9, seed=3)[:5] != stories(5, seed=4)


def test_the_data_set_has_a_story_on_each_line():
    train, val = (load_text("stories", split).split("\n") for split in ("train", "val"))
    assert (len(train), len(val)) == (20_000, 1_000) and train + val == stories(21_000)
    known = set(train)
    assert sum(text in known for text in val) == 10  # independent draws: some come twice
