"""Scalings of rotary frequencies: what each promises, and what is refused."""

import math

import pytest
import torch
from torch.testing import assert_close

from transformer_lit.position.rope import rope_frequencies
from transformer_lit.position.scaling import SCALINGS, Llama3Scaling, YaRNScaling, make_scaling

EXAMPLES = {
    "linear": {"factor": 3.0},
    "ntk": {"factor": 3.0},
    "yarn": {"factor": 3.0, "original_len": 61},
    "llama3": {"factor": 3.0, "original_len": 61},
}


@pytest.mark.parametrize("D", [6, 62])
@pytest.mark.parametrize("name", SCALINGS)
def test_frequencies_fall_and_lie_between_kept_and_interpolated(name, D):
    plain = rope_frequencies(D)
    for factor in (1.0, 3.0):
        frequencies, sharper = make_scaling(name, **{**EXAMPLES[name], "factor": factor})(D, 1e4)
        assert frequencies.dtype == torch.float64 and frequencies.is_cpu
        ratio = plain / frequencies
        assert (frequencies.diff() < 0).all()
        assert (ratio > 1 - 1e-12).all() and (ratio < factor + 1e-12).all()
        assert math.isclose(sharper, 1 + 0.1 * math.log(factor) * (name == "yarn"))
    if name in ("ntk", "linear"):
        assert math.isclose(ratio[0], 3 if name == "linear" else 1) and math.isclose(ratio[-1], 3)


@pytest.mark.parametrize(("name", "slow", "fast"), [("yarn", 1.0, 32.0), ("llama3", 1.0, 4.0)])
def test_the_ramp_keeps_what_turns_often_and_interpolates_what_hardly_turns(name, slow, fast):
    L, D = 2053, 122
    frequencies, _ = make_scaling(name, factor=5.0, original_len=L)(D, 1e4)
    plain = rope_frequencies(D)
    turns, ratio = L * plain / (2 * math.pi), plain / frequencies
    step = 1.2  # yarn's ramp ends at whole planes, and neighbours differ by a factor of 1.16
    kept, slowed = ratio[turns >= fast * step], ratio[turns <= slow / step]
    assert_close(kept, torch.ones_like(kept))
    assert_close(slowed, torch.full_like(slowed, 5.0))
    between = (turns < fast / step) & (turns > slow * step)
    assert between.any() and (ratio[between] > 1).all() and (ratio[between] < 5).all()


@pytest.mark.parametrize("turns", [1.0, 4.0, 32.0])
def test_yarn_finds_the_plane_with_so_many_turns(turns):
    i = YaRNScaling(2.0, 2053).plane(turns, 62, 1e4)
    assert 2053 * 1e4 ** (-2 * i / 62) / (2 * math.pi) == pytest.approx(turns)


@pytest.mark.parametrize(
    ("call", "message"),
    [(lambda: make_scaling("dynamic", factor=2), "'dynamic'. Choose from: linear, ntk, yarn")]
    + [
        (lambda name=name, s=s: make_scaling(name, **{**EXAMPLES[name], "factor": s}), f"{s}")
        for name in SCALINGS
        for s in (0.5, math.nan, math.inf)
    ]
    + [
        (
            lambda low=low: Llama3Scaling(2.0, low, 4.0)(6, 1e4),
            f"low_freq_factor={low}, high_freq_factor=4.0",
        )
        for low in (4.0, 5.0)
    ]
    + [(lambda: YaRNScaling(2.0, 2)(62, 1e4), r"original_len=2.*plane 0 to -")],
)
def test_what_stretches_nothing_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
