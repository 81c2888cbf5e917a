"""Scalings of rotary frequencies against Hugging Face's functions, and what each promises."""

import math

import pytest
import torch
from torch.testing import assert_close
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama import modeling_llama

from transformer_lit.position.rope import RoPE, rope_frequencies
from transformer_lit.position.scaling import (
    SCALINGS,
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    YaRNScaling,
    make_scaling,
)

EXAMPLES = {
    "linear": {"factor": 3.0},
    "ntk": {"factor": 3.0},
    "yarn": {"factor": 3.0, "original_len": 61},
    "llama3": {"factor": 3.0, "original_len": 61},
}


def config(kind, D, base, *, max_len=100_003, **parameters):
    rope = {"rope_type": kind, "rope_theta": base, **parameters}
    sizes = {"hidden_size": 3 * D, "num_attention_heads": 3, "head_dim": D}
    return LlamaConfig(**sizes, max_position_embeddings=max_len, rope_parameters=rope)


def assert_same(scaling, theirs, D, base):
    frequencies, factor = scaling(D, base)
    assert frequencies.dtype == torch.float64 and frequencies.is_cpu
    # Theirs are powers of a float32 exponent, up to ln(base); a ramp between a plane and its s-th
    # part has errors of its own, and where it ends they are s times as large beside the frequency.
    slowest = (rope_frequencies(D, base) / frequencies).max().item()
    rtol = 2**-24 * (math.log(base) + 4) * (1 + slowest)
    assert_close(frequencies, theirs[0].double(), rtol=rtol, atol=0)
    assert factor == pytest.approx(theirs[1], rel=1e-12)


def rounded_angles(x, far, s):
    "What a turn may lose whose frequencies, slowed by up to s, angles and tables are float32."
    angle = far * 2**-24 * (math.log(1e4) + 4) * (1 + s)
    longer = 0.1 * math.log(s) + 1  # a temperature on cosine and sine
    return 2 * x.abs().max() * longer * (angle + 2**-23)


sizes = pytest.mark.parametrize("D", [6, 122])
bases = pytest.mark.parametrize("base", [101.0, 500_000.0])
factors = pytest.mark.parametrize("s", [1, 7.3])
lengths = pytest.mark.parametrize("L", [67, 8191])


# --- oracles ------------------------------------------------------------------------------------


@sizes
@bases
@factors
def test_linear_is_hugging_faces(D, base, s):
    theirs = ROPE_INIT_FUNCTIONS["linear"](config("linear", D, base, factor=s))
    assert_same(LinearScaling(s), theirs, D, base)


@sizes
@bases
@pytest.mark.parametrize("factor", [1.0, 3.0])
@pytest.mark.parametrize("n", [101, 1009])
def test_ntk_is_hugging_faces_dynamic_scaling_at_each_length(D, base, factor, n):
    made = config("dynamic", D, base, factor=factor, max_len=101)
    theirs = ROPE_INIT_FUNCTIONS["dynamic"](made, seq_len=n)
    assert_same(NTKScaling(factor * n / 101 - (factor - 1)), theirs, D, base)


@sizes
@bases
@factors
@lengths
def test_yarn_is_hugging_faces(D, base, s, L):
    made = config("yarn", D, base, factor=s, original_max_position_embeddings=L)
    assert_same(YaRNScaling(s, L), ROPE_INIT_FUNCTIONS["yarn"](made), D, base)


@pytest.mark.parametrize(("fast", "slow"), [(8.0, 0.5), (31.0, 2.0)])
@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("attention_factor", [None, 1.0, 0.7])
def test_yarn_is_hugging_faces_with_every_option(fast, slow, truncate, attention_factor):
    names = {"beta_fast": fast, "beta_slow": slow, "truncate": truncate}
    names["attention_factor"] = attention_factor
    made = config("yarn", 62, 1e4, factor=5.0, original_max_position_embeddings=2053, **names)
    ours = make_scaling("yarn", factor=5.0, original_len=2053, **names)
    assert_same(ours, ROPE_INIT_FUNCTIONS["yarn"](made), 62, 1e4)


@sizes
@bases
@factors
@lengths
@pytest.mark.parametrize(("low", "high"), [(1.0, 4.0), (0.7, 11.0)])
def test_llama3_is_hugging_faces(D, base, s, L, low, high):
    names = {"factor": s, "low_freq_factor": low, "high_freq_factor": high}
    made = config("llama3", D, base, original_max_position_embeddings=L, **names)
    theirs = ROPE_INIT_FUNCTIONS["llama3"](made)
    assert_same(Llama3Scaling(**names, original_len=L), theirs, D, base)


def test_llama3s_defaults_are_those_of_llama_3_1():
    names = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    made = config("llama3", 128, 5e5, original_max_position_embeddings=8192, **names)
    assert_same(Llama3Scaling(), ROPE_INIT_FUNCTIONS["llama3"](made), 128, 5e5)


@pytest.mark.parametrize("kind", ["linear", "yarn", "llama3"])
def test_the_plug_turns_as_hugging_faces_llama_does(kind):
    D, names = 14, {"factor": 5.0}
    ours = {**names, **({"original_len": 67} if kind != "linear" else {})}
    theirs = {**names, **({"original_max_position_embeddings": 67} if kind != "linear" else {})}
    if kind == "llama3":
        theirs |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    x, pos = torch.randn(2, 3, 7, D), torch.randint(31, (2, 7))
    cos, sin = modeling_llama.LlamaRotaryEmbedding(config(kind, D, 1e4, **theirs))(x, pos)
    expected, _ = modeling_llama.apply_rotary_pos_emb(x, x, cos, sin)
    found = RoPE(D, 1e4, scaling=make_scaling(kind, **ours)).rotate(x, pos)
    assert (found - expected).abs().max() < rounded_angles(x, 31, 5.0)


@sizes
@bases
def test_a_list_of_factors_is_hugging_faces_longrope(D, base):
    factors = torch.rand(D // 2, dtype=torch.float64).add(1).cumsum(0)
    lists = {"short_factor": factors.tolist(), "long_factor": [1.0] * (D // 2)}
    made = config("longrope", D, base, factor=5.0, original_max_position_embeddings=67, **lists)

    def scaling(d_head, base):
        sharper = math.sqrt(1 + math.log(5) / math.log(67))
        return rope_frequencies(d_head, base) / factors, sharper

    assert_same(scaling, ROPE_INIT_FUNCTIONS["longrope"](made), D, base)


def test_two_scales_of_a_temperature_are_one_attention_factor():
    scales = {"mscale": 0.7, "mscale_all_dim": 0.3}
    made = config("yarn", 62, 1e4, factor=5.0, original_max_position_embeddings=67, **scales)
    a = (0.07 * math.log(5) + 1) / (0.03 * math.log(5) + 1)
    ours = YaRNScaling(5.0, 67, attention_factor=a)
    assert_same(ours, ROPE_INIT_FUNCTIONS["yarn"](made), 62, 1e4)


# --- what each promises -------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCALINGS)
def test_a_factor_of_one_changes_nothing(name):
    frequencies, factor = make_scaling(name, **{**EXAMPLES[name], "factor": 1.0})(62, 1e4)
    assert_close(frequencies, rope_frequencies(62))
    assert factor == 1.0


@pytest.mark.parametrize("name", SCALINGS)
def test_frequencies_still_fall_and_lie_between_kept_and_interpolated(name):
    frequencies, _ = make_scaling(name, **EXAMPLES[name])(62, 1e4)
    plain = rope_frequencies(62)
    assert (frequencies.diff() < 0).all()
    assert (frequencies <= plain * (1 + 1e-12)).all()
    assert (frequencies >= plain / 3 * (1 - 1e-12)).all()


def test_linear_is_a_turn_to_a_position_divided():
    x, pos = torch.randn(1, 2, 11, 14), torch.arange(11)
    stretched = RoPE(14, scaling=LinearScaling(7)).rotate(x, 7 * pos)
    assert_close(stretched, RoPE(14).rotate(x, pos))


@sizes
@factors
def test_ntk_keeps_the_fastest_plane_and_interpolates_the_slowest(D, s):
    frequencies, _ = NTKScaling(s)(D, 1e4)
    ratio = rope_frequencies(D) / frequencies
    assert ratio[0] == 1
    assert ratio[-1].item() == pytest.approx(s)
    i = torch.arange(D // 2, dtype=torch.float64)
    assert_close(ratio, s ** (2 * i / (D - 2)))


@pytest.mark.parametrize(("name", "slow", "fast"), [("yarn", 1.0, 32.0), ("llama3", 1.0, 4.0)])
def test_the_ramp_keeps_what_turns_often_and_interpolates_what_hardly_turns(name, slow, fast):
    L, D = 2053, 122
    frequencies, _ = make_scaling(name, factor=5.0, original_len=L)(D, 1e4)
    plain = rope_frequencies(D)
    turns, ratio = L * plain / (2 * math.pi), plain / frequencies
    step = 1.2  # yarn's ramp ends at whole planes, and neighbours differ by a factor of 1.16
    assert_close(ratio[turns >= fast * step], torch.ones_like(ratio[turns >= fast * step]))
    assert_close(ratio[turns <= slow / step], torch.full_like(ratio[turns <= slow / step], 5.0))
    between = (turns < fast / step) & (turns > slow * step)
    assert between.any() and (ratio[between] > 1).all() and (ratio[between] < 5).all()


def test_llama3s_ramp_is_linear_in_the_turns():
    L, D = 2053, 122
    scaling = Llama3Scaling(5.0, 1.0, 11.0, L)
    for theta, stretched in zip(rope_frequencies(D), scaling(D, 1e4)[0]):
        turns = L * theta.item() / (2 * math.pi)
        keep = min(1.0, max(0.0, (turns - 1) / 10))
        assert stretched.item() == pytest.approx(theta.item() * (keep + (1 - keep) / 5))


@pytest.mark.parametrize("turns", [1.0, 4.0, 32.0])
def test_yarn_finds_the_plane_with_so_many_turns(turns):
    i = YaRNScaling(2.0, 2053).plane(turns, 62, 1e4)
    assert 2053 * 1e4 ** (-2 * i / 62) / (2 * math.pi) == pytest.approx(turns)


def test_yarns_factor_multiplies_scores_by_its_square():
    q, k, pos = *torch.randn(2, 1, 1, 7, 14), torch.arange(7)
    sharp = RoPE(14, scaling=YaRNScaling(5.0, 67))
    plain = RoPE(14, scaling=YaRNScaling(5.0, 67, attention_factor=1.0))
    scores = plain.rotate(q, pos) @ plain.rotate(k, pos).mT
    sharper = sharp.rotate(q, pos) @ sharp.rotate(k, pos).mT
    assert_close(sharper, scores * (0.1 * math.log(5) + 1) ** 2)


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("factor", [0.5, math.nan])
def test_a_factor_that_does_not_stretch_is_named(name, factor):
    with pytest.raises(ValueError, match=f"factor.*{factor}"):
        make_scaling(name, **{**EXAMPLES[name], "factor": factor})


@pytest.mark.parametrize(("low", "high"), [(4.0, 4.0), (5.0, 4.0)])
def test_llama3s_ramp_must_rise(low, high):
    with pytest.raises(ValueError, match=f"low_freq_factor={low}, high_freq_factor={high}"):
        Llama3Scaling(2.0, low, high)(6, 1e4)


def test_yarn_refuses_a_length_in_which_no_plane_turns_once():
    with pytest.raises(ValueError, match=r"original_len=2.*plane 0 to -"):
        YaRNScaling(2.0, 2)(62, 1e4)
