"The examples in the docstrings of the public names give what they show."

import doctest

import torch

import transformer_lit


def test_examples_give_what_they_show():
    names = {name: getattr(transformer_lit, name) for name in transformer_lit.__all__}
    names["torch"], told, found = torch, [], 0
    for name, one in names.items():
        test = doctest.DocTestParser().get_doctest(one.__doc__ or "", dict(names), name, None, 0)
        torch.manual_seed(0)
        doctest.DocTestRunner(verbose=False).run(test, out=told.append)
        found += bool(test.examples)
    assert not told, "".join(told)
    assert found >= 20
