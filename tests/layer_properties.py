"""What every attention layer keeps: in pieces, in a padded batch, and of the future."""

import torch
from random_cuts import cuts
from torch.testing import assert_close

from transformer_lit.attention.masks import padding_mask


def assert_any_cut_is_one_pass(layer, x, new_cache, count=7):
    "However a text is cut into pieces, the outputs are those of a single pass."
    whole = layer(x)
    for cut in cuts(x.shape[1], count):
        cache = new_cache()
        parts = [layer(piece, cache=cache) for piece in x.split(cut, dim=1)]
        assert_close(torch.cat(parts, 1), whole)
        assert cache.length == x.shape[1]


def assert_rows_can_be_chosen(layer, x, new_cache):
    "Rows that were dropped, repeated or exchanged go on as if each had been read by itself."
    cache, rows, T = new_cache(), torch.tensor([1, 1, 0]), x.shape[1]
    layer(x[:, : T - 3], cache=cache)
    cache.select(rows)
    assert_close(layer(x[rows, T - 3 :], cache=cache), layer(x[rows])[:, T - 3 :])


def assert_padded_rows_are_what_they_are_alone(layer, x, new_cache):
    "Padded on the left, with positions B T that count from each row's first token."
    pads = (0, 2)
    pos = torch.arange(x.shape[1]) - torch.tensor(pads)[:, None]
    keep = padding_mask(pos >= 0)
    for cut in cuts(x.shape[1], 2):
        cache, out, start = new_cache(), [], 0
        for size in cut:
            now = slice(start, start + size)
            mask = keep[..., : now.stop]
            out.append(layer(x[:, now], pos=pos[:, now], mask=mask, cache=cache))
            start = now.stop
        out = torch.cat(out, 1)
        for b, pad in enumerate(pads):
            assert_close(out[b : b + 1, pad:], layer(x[b : b + 1, pad:]))


def assert_blind_to_the_future(layer, x):
    x = x[:1].clone().requires_grad_()
    for t in range(x.shape[1]):
        (grad,) = torch.autograd.grad(layer(x)[0, t].sum(), x)
        assert not grad[0, t + 1 :].any() and grad[0, t].any()


def assert_runs_without_memory_and_in_16_bits(layer, x):
    low = layer.to(torch.bfloat16)(x.to(torch.bfloat16))
    exact = layer.double()(x.to(torch.bfloat16).double())  # the rounded weights, in float64
    assert low.dtype == torch.bfloat16
    # value, weight, sum and result are rounded in a row, by half of ε each; a score is, too, and an
    # error in it moves weights by twice as much: eight halves of the largest number
    assert (low.double() - exact).abs().max() < 4 * 2**-8 * exact.abs().max()
    empty = layer.to("meta")(torch.empty_like(x, device="meta"))
    assert empty.is_meta and empty.shape == exact.shape
