"The docstrings of the public names: their examples give what they show, their shapes are true."

import doctest
import inspect
import re

import torch

import transformer_lit

PUBLIC = {name: getattr(transformer_lit, name) for name in transformer_lit.__all__}


def test_examples_give_what_they_show():
    names, told, found = {**PUBLIC, "torch": torch}, [], 0
    for name, one in PUBLIC.items():
        test = doctest.DocTestParser().get_doctest(one.__doc__ or "", dict(names), name, None, 0)
        torch.manual_seed(0)
        doctest.DocTestRunner(verbose=False).run(test, out=told.append)
        found += bool(test.examples)
    assert not told, "".join(told)
    assert found >= 20


def functions():
    "Whatever `help` tells the parameters of: public functions and classes, and methods of these."
    for name, one in PUBLIC.items():
        yield name, one
        for key, part in inspect.getmembers(one) if inspect.isclass(one) else ():
            if callable(part) and (key == "__init__" or not key.startswith("_")):
                yield f"{name}.{key}", part


AXES = r"\b[A-Z](?:/[A-Z])?(?: (?:[A-Z](?:/[A-Z])?|\d))+\b"  # two or more: B T, B K H/K D


def false_shapes(name, one):
    "The shapes that a parameter's line names and its annotation does not have."
    doc, ours = inspect.getdoc(one) or "", getattr(one, "__module__", None) or ""
    if not ours.startswith("transformer_lit") or "Args:\n" not in doc:
        return
    given = inspect.signature(one).parameters
    for key, words in re.findall(r"^    (\w+): ((?:.*\n?)(?:^     .*\n?)*)", doc, re.M):
        annotation = getattr(given.get(key), "annotation", None)
        shown = re.findall(r"'([#.\w /+*-]+)'", str(annotation))
        shown += [annotation.dim_str] if hasattr(annotation, "dim_str") else []
        true = [shape.replace("#", "") for shape in shown]
        for shape in re.findall(AXES, words) if true else ():
            ends = [one.removeprefix("... ") for one in true if one.startswith("... ")]
            if shape not in true and not shape.endswith(tuple(ends)):
                yield f"{name}: {key} is {shape} in the text and {' or '.join(true)} in the type"


def test_no_shape_in_a_docstring_contradicts_the_annotation():
    def damaged(q: transformer_lit.attend.__annotations__["q"]):
        """Of no use.

        Args:
            q: queries, B K H/K D.
        """

    damaged.__module__ = "transformer_lit"
    assert len([*false_shapes("damaged", damaged)]) == 1  # what once stood there
    assert not [told for pair in functions() for told in false_shapes(*pair)]
