"""T5's table and ALiBi's line: their types, far distances, sharing, and what is refused."""

import pytest
import torch
from torch.testing import assert_close

from transformer_lit.attention.multihead import distances
from transformer_lit.position.relative import ALiBi, T5Bias, alibi_slopes, t5_bucket


@pytest.mark.parametrize("n_heads", [1, 3, 6, 11])
def test_both_by_hand(n_heads):
    q, k = torch.zeros(2, n_heads, 3, 5), torch.zeros(2, n_heads, 7, 5)
    apart = distances(torch.tensor([2, 9, 4]), torch.arange(7))
    plug = T5Bias(n_heads, 14, 53)
    torch.nn.init.normal_(plug.weight)
    line, table = ALiBi(n_heads).bias(q, k, apart), plug.bias(q, k, apart)
    assert line.shape == table.shape == (1, n_heads, 3, 7)
    for h, t, s in torch.cartesian_prod(*map(torch.arange, (n_heads, 3, 7))).tolist():
        d = apart[0, 0, t, s]
        assert_close(line[0, h, t, s], -alibi_slopes(n_heads)[h] * abs(d))
        assert_close(table[0, h, t, s], plug.weight[t5_bucket(d, 14, 53, causal=False), h])


def test_the_default_type_decides_no_bucket():
    "A rounding decides at an edge, so the type is the published program's and nobody else's."
    d, found = torch.arange(-1000, 1001), []
    for default in (torch.float32, torch.float64):
        torch.set_default_dtype(default)
        found += [t5_bucket(d, 38, 1009, causal=causal) for causal in (False, True)]
    assert torch.equal(found[0], found[2]) and torch.equal(found[1], found[3])


def test_a_fresh_table_is_blind_and_asks_for_no_division():
    assert not T5Bias(6).weight.any() and T5Bias(6).weight.shape == (32, 6)
    assert T5Bias(6).scale(5) == 1.0 and ALiBi(6).scale(5) is None
    plug = ALiBi(12).to(torch.bfloat16)
    assert not plug.state_dict() and not list(plug.buffers())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("far", [1009, 10**6])
def test_alibi_has_the_bits_of_the_queries_and_24_until_the_end(far, dtype):
    q, pos = torch.zeros(1, 12, 2, 5, dtype=dtype), torch.tensor([0, far])
    exact = torch.promote_types(dtype, torch.float32)
    exponents = [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]  # some slopes are irrational
    slopes = torch.tensor([2.0**-e for e in exponents])
    found = ALiBi(12).to(dtype).bias(q, q, distances(pos, pos))[0, :, 1, 0]
    assert_close(found, (-far * slopes).to(dtype), rtol=2 * torch.finfo(exact).eps, atol=0)


@pytest.mark.parametrize(
    ("n_buckets", "max_distance", "causal"), [(7, 17, False), (14, 3, False), (14, 7, True)]
)
def test_buckets_that_cannot_be_are_named(n_buckets, max_distance, causal):
    message = f"n_buckets={n_buckets}, max_distance={max_distance}, causal={causal}"
    with pytest.raises(ValueError, match=message):
        t5_bucket(torch.arange(3), n_buckets, max_distance, causal=causal)
