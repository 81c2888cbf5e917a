"""Comparison: what means the same is taken, and one line says where the rest differs."""

import numpy as np
import pytest
import torch

from transformer_lit.course.exercises import difference, has_floats, kind_of, loosely


@pytest.mark.parametrize(
    "expected,right,wrong",
    [
        (3, [3, 3.0, np.int64(3), torch.tensor(3)], [4, True, "3", [3], 3.5, print, torch.ones(2)]),
        (
            0.5,
            [0.5, 0.509, np.float32(0.5), torch.tensor([0.5])[0]],
            [0.511, float("nan")],
        ),
        (True, [True, np.True_, torch.tensor(True)], [False, 1, "True"]),
        ("zeros", ["zeros", " Zeros "], ["nan", 0]),
        ([1, 2, 3], [[1, 2, 3], (1, 2, 3), torch.tensor([1, 2, 3]), np.array([1, 2, 3])], [[1, 2]]),
        ([], [[], ()], [[1], "[]"]),
        ([0.5, 2], [[0.5, 2], [0.495, 2.0]], [[0.5, 2.005], [2, 0.5], {0.5, 2}]),
        ({"a": 1, "b": 0.5}, [{"b": 0.5, "a": 1}], [{"a": 1}, {"a": 1, "b": 1}, [1, 0.5]]),
        (torch.ones(2, 3), [torch.ones(2, 3), [[1.0, 1.0, 1.0]] * 2], [torch.ones(3, 2), 1.0]),
        (torch.ones(3) > 0, [torch.ones(3) > 0], [torch.ones(3), torch.zeros(3) > 0]),
        (float("nan"), [float("nan")], [0.0]),
        (float("inf"), [float("inf")], [1e308, -float("inf")]),
        (1 + 2j, [1 + 2j], [1 - 2j, 1]),
    ],
)
def test_a_value_is_taken_in_every_form_that_means_it(expected, right, wrong):
    for answer in right:
        assert difference(expected, answer, 0.01, False) is None, answer
    for answer in wrong:
        line = difference(expected, answer, 0.01, False)
        assert line and "\n" not in line, answer


@pytest.mark.parametrize("size", [1e-3, 1.0, 7.0, 1009.0])
@pytest.mark.parametrize("wrap", [float, torch.tensor, lambda x: [x], lambda x: {"a": x}])
def test_the_tolerance_is_relative_above_one_where_the_line_may_tell(size, wrap):
    for tell in (True, False):
        room = 1e-4 * (max(1.0, size) if tell else 1.0)
        near, off = (wrap(torch.tensor(size + k * room).double().item()) for k in (0.9, 1.1))
        expected = wrap(torch.tensor(size).double().item())
        assert difference(expected, near, 1e-4, tell) is None
        assert difference(expected, off, 1e-4, tell)


@pytest.mark.parametrize("place", [(0, 0, 0), (1, 2, 4), (0, 1, 3)])
def test_the_one_wrong_entry_is_named(place):
    expected = torch.arange(30.0).view(2, 3, 5)
    found = expected.clone()
    found[place] += 0.5
    right = expected[place].item()
    where = f"entry {list(place)} should be {right:g} and is {right + 0.5:g}"
    assert difference(expected, found, 1e-6, True) == (f"1 of 30 entries are wrong: {where}")
    assert difference(expected, found, 1e-6, False) == "29 of 30 entries are right"


def test_the_line_leads_to_the_wrong_part_of_a_nest():
    expected = {"output": torch.ones(5), "rest": [2, {"word": "left"}]}
    found = {"output": torch.ones(5), "rest": (2, {"word": "right"})}
    line = difference(expected, found, 1e-6, True)
    assert line == "rest: entry 1: word: it should be 'left' and is 'right'"
    hidden = difference(expected, found, 1e-6, False)
    assert hidden == "rest: 1 of 2 entries are right"


def test_nan_and_infinity_agree_with_themselves_alone():
    odd = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0])
    assert difference(odd, odd.clone(), 1e-6, True) is None
    assert difference(odd, odd.flip(0), 1e-6, True).startswith(
        "4 of 4 entries are wrong, 1 entries"
    )


def test_a_thing_is_named_in_words():
    for thing, words in [
        (torch.ones(5, 7), "a tensor of shape (5, 7)"),
        (torch.ones(3) > 0, "a Boolean tensor of shape (3,)"),
        (torch.arange(3), "a tensor of whole numbers of shape (3,)"),
        (torch.ones(2, dtype=torch.complex64), "a tensor of shape (2,)"),
        ((13, 17), "a list of 2"),
        ({"a": 1, 2: 3}, "a dictionary with 'a', 2"),
        ({}, "an empty dictionary"),
        (torch.nn.Linear, "the class Linear"),
        (torch.relu, "a function"),
        (True, "True or False"),
        (3, "a whole number"),
        (0.5, "a number"),
        ("zeros", "a word"),
        (None, "None"),
        (torch.nn.Identity(), "an object of type Identity"),
    ]:
        assert kind_of(thing) == words
        assert loosely(thing) == ("a list" if isinstance(thing, tuple) else words)


def test_letters_are_asked_for_as_letters():
    for thing, length, words in [
        ("b", None, 'one letter, such as "a"'),
        ("7", None, "a word"),
        (["b", "d"], None, 'a list of letters, such as ["a", "b"]'),
        (["b", "d"], 2, 'a list of 2 letters, such as ["a", "b"]'),
        (["b", "no"], 2, "a list of 2 parts"),
        ([1, 0.5], 2, "a list of 2 numbers"),
        ([], None, "a list"),
    ]:
        assert loosely(thing, length) == words


def test_floats_are_found_at_any_depth():
    for value in (0.5, [1, (2, 0.5)], torch.ones(3), [torch.ones(2)]):
        assert has_floats(value)
    for value in (1, True, "0.5", [], [1, (2, 3)], torch.arange(3)):
        assert not has_floats(value)


def test_two_numbers_are_shown_with_as_many_digits_as_tell_them_apart():
    pair = (torch.tensor([x], dtype=torch.float64) for x in (1.0, 1 + 3e-6))
    wrong = difference(*pair, 1e-6, True)
    assert wrong.endswith("should be 1 and is 1.000003")
    assert difference(2.0, 2 + 3e-13, 0.0, True) is None  # what no sum can hold is forgiven
    assert difference(2.0, 2 + 3e-11, 0.0, True) == "it should be 2 and is 2.00000000003"
    assert difference(2.5, 7, 0.0, True) == "it should be 2.5 and is 7"
