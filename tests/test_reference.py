"The reference answers: each parameter's meaning and an example, in `help` and on the page."

import doctest
import inspect
import re

import torch

import transformer_lit
from transformer_lit.block.feedforward import ACTIVATIONS
from transformer_lit.course.reference import described, examples, parameter_words
from transformer_lit.models.assembly import POSITIONS

NAMES = [name for name in transformer_lit.__all__ if name != "__version__"]


def test_the_examples_of_names_give_what_they_say(tmp_path):
    assert {*examples()} <= {*NAMES} and len(examples()) >= 40
    told = []
    for name, text in examples().items():
        (folder := tmp_path / name).mkdir()
        known = {n: getattr(transformer_lit, n) for n in NAMES if re.search(rf"\b{n}\b", text)}
        names = {**known, "torch": torch, "scratch": str(folder)}
        torch.manual_seed(0)
        one = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
        doctest.DocTestRunner(verbose=False).run(one, out=told.append)
    assert not told, "".join(told)


def test_help_says_what_each_parameter_means():
    for name in sorted({*NAMES} - {"Muon"}):  # it has those of torch's AdamW
        found = getattr(transformer_lit, name)
        words, told = parameter_words(found), inspect.getdoc(found)
        assert [p for p, said in words.items() if not said] == [], name
        assert all(f"    {p}: {said}" in told for p, said in words.items()), name
        assert examples().get(name, "") in told, name


def test_a_comment_in_the_source_comes_before_the_common_words():
    words = parameter_words(transformer_lit.MultiHeadAttention.forward)
    assert words["mask"] == "True = may attend"
    assert words["x"] == "a vector for each position, B T C"
    assert "    mask: True = may attend" in transformer_lit.MultiHeadAttention.forward.__doc__


def test_names_of_parts_are_all_listed():
    words = parameter_words(transformer_lit.AssemblyConfig)
    assert words["position"] == ", ".join(POSITIONS)
    assert words["activation"] == ", ".join(ACTIVATIONS)


def test_asked_twice_it_says_it_once():
    assert inspect.getdoc(transformer_lit.load).count("Args:") == 1
    assert transformer_lit.load.__doc__ == inspect.getdoc(transformer_lit.load)
    assert described(transformer_lit.load, "A docstring.").startswith("A docstring.\n\nArgs:\n")
