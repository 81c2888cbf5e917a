"""A text in pieces, as a cache gets it."""

import torch


def cuts(T, count):
    "Lengths that add up to T: all at once, single steps, then `count` times six random pieces."
    yield from ([T], [1] * T)
    for _ in range(count):
        inner = sorted(torch.randperm(T - 1)[:5].add(1).tolist())
        yield [b - a for a, b in zip([0, *inner], [*inner, T])]
