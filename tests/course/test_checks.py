"""Sizes that cannot be are refused with their name and value."""

from dataclasses import dataclass

import pytest

from transformer_lit.course.sizes import check_sizes, positive, share


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "7"])
def test_what_is_no_size_is_named(value, no_shape_checks):
    with pytest.raises(ValueError, match="n_heads must be a positive integer, got"):
        positive(d_model=3, n_heads=value)
    positive(d_model=3, n_heads=None)


@pytest.mark.parametrize("value", [1, -0.1, float("nan")])
def test_what_is_no_share_is_named(value, no_shape_checks):
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1, got"):
        share(attention_dropout=0.0, dropout=value)
    share(dropout=0)


@dataclass
class Sizes:
    d_model: int = 7
    n_kv_heads: int | None = None
    attention_dropout: float = 0.0
    scale: float | None = None
    rope_base: float = 1e4


@pytest.mark.parametrize(
    "wrong",
    [
        {"d_model": None},
        {"d_model": 0},
        {"n_kv_heads": 0},
        {"attention_dropout": 1.0},
        {"rope_base": 1e30},
        {"rope_base": float("nan")},
    ],
)
def test_a_config_is_checked_by_the_types_of_its_fields(wrong, no_shape_checks):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        check_sizes(Sizes(**wrong))
    check_sizes(Sizes(n_kv_heads=5, scale=-1.0))
