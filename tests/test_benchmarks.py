"""The timings run, pair what they say, and compare sides that do the same work."""

import pytest
import torch

from benchmarks import attention, block, decoding, models, swap
from benchmarks.attention import peak_in_child
from benchmarks.common import interval, store, take_turns
from transformer_lit.base.results import read_measurement
from transformer_lit.recipes.bakeoff import bakeoff_presets

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def seed(monkeypatch):
    "And nothing that would outlive the test."
    torch.manual_seed(0)
    for module in (models, swap):
        monkeypatch.setattr(module, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)


def test_attention_and_decoding_store_nothing_when_quick(capsys, tmp_path):
    attention.main(["time", "decode", "--quick", "--out", str(tmp_path)])
    decoding.main(["--quick", "--threads", "1", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("attend_fused", "tokens_per_second", "preallocated"))
    assert not list(tmp_path.iterdir())


def test_a_part_that_is_unknown_is_named(capsys):
    with pytest.raises(SystemExit):
        attention.main(["speed", "--quick"])
    assert "unknown part 'speed'; known are: time, memory, decode" in capsys.readouterr().err


def test_the_block_pairs_what_it_says(tmp_path):
    rows = block.main(["--quick", "--out", str(tmp_path)])
    assert {"our RMSNorm", "our SwiGLU"} <= {row["side"] for row in rows}
    assert all(row["low"] <= row["ratio"] <= row["high"] for row in rows)
    assert not list(tmp_path.iterdir())
    for side, other, make in block.cases(8, 24):
        one, two = (module.double() for module in make())
        if {side[:4], other[:5]} == {"our ", "torch"}:
            x = torch.randn(5, 8, dtype=torch.float64)
            two.load_state_dict(one.state_dict())
            torch.testing.assert_close(one(x), two(x))


def test_the_models_run_quickly_and_store_nothing(capsys, tmp_path):
    rows = models.main(["--quick", "--threads", "1", "--out", str(tmp_path)])
    assert not list(tmp_path.iterdir())
    done = [(row["work"], row["batch"]) for row in rows]
    assert done == [("train", 2), ("decode", 1), ("decode", 3)]
    assert all(row["low"] <= row["ratio"] <= row["high"] for row in rows)
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(rows)
    assert models.peak_of_process(1, "train", "ours", True, 2) >= 0


def test_sides_that_do_not_do_the_same_work_are_refused():
    same, other = (models.our_training(models.TINY, 2) for _ in range(2))
    other()  # a step ahead
    with pytest.raises(AssertionError, match="not close"):
        models.check_equal("train", same, other, terms=2 * models.TINY.max_len)


def test_the_walk_runs_quickly_and_stores_nothing(tmp_path):
    rows = swap.main(["--quick", "--out", str(tmp_path)])
    assert not list(tmp_path.iterdir())
    assert [row["entry"] for row in rows] == list(bakeoff_presets("swap"))
    assert rows[0]["ratio"] == rows[0]["low"] == rows[0]["high"] == 1
    assert all(row["low"] <= row["ratio"] <= row["high"] for row in rows)


# --- what they share ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0, 1.0, 2.0], (2.0, 1.0, 3.0)),  # three values cannot do better
        ([float(v) for v in range(20, 0, -1)], (10.5, 6.0, 15.0)),  # the 6th and the 15th of 20
    ],
)
def test_the_interval_is_that_of_the_tables(values, expected):
    assert interval(values) == expected


@pytest.mark.parametrize("n", [7, 20, 21])
def test_the_interval_holds_the_median_as_often_as_it_says(n):
    draws = torch.rand(2000, n, dtype=torch.double).tolist()
    found = [interval(values) for values in draws]
    share = sum(low <= 0.5 <= high for _, low, high in found) / len(found)
    assert 0.94 < share < 0.995  # at least 95 %, by ranks; 2,000 draws: 0.5 % of noise
    assert all(low <= middle <= high for middle, low, high in found)


def test_the_peak_is_that_of_the_child_alone():
    "This catches the bug where a child's peak begins with the parent's, and hides what it adds."
    torch.ones(2**27)  # half a GiB, given back at once
    T = 1536
    table = 6 * T * T * 4  # bytes; the formula holds some such tables, and the child nothing else
    assert 2.5 * table < peak_in_child("attend", "forward", "causal", T) < 6 * table


def test_sides_take_turns():
    order = []
    take_turns([lambda: order.append("a"), lambda: order.append("b")], 3)
    assert "".join(order[2:]) == "baabba"


def test_a_record_says_what_was_measured_and_where(tmp_path, capsys):
    rows = [{"side": "ours", "ratio": 0.97}]
    store("speed", "A row is one side.", "python -m benchmarks.speed", rows, tmp_path)
    kept = read_measurement(tmp_path / "speed.json")
    assert (kept.name, kept.about, kept.rows) == ("speed", "A row is one side.", rows)
    assert kept.command == "python -m benchmarks.speed" and "CPU" in kept.device
    assert capsys.readouterr().out == f"written: {tmp_path / 'speed.json'}\n"
