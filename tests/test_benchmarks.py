"""The timings run, pair what they say, and compare sides that do the same work."""

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import models, peers
from benchmarks.common import interval, store, take_turns
from transformer_lit.course.records import read_measurement


@pytest.fixture(autouse=True)
def seed(monkeypatch):
    "And nothing that would outlive the test."
    torch.manual_seed(0)
    monkeypatch.setattr(command, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)


@pytest.mark.slow
def test_all_rows_run_quickly_and_store_nothing(capsys, tmp_path):
    page = tmp_path / "page.md"
    assert command.main(["--quick", "--out", str(tmp_path), "--page", str(page)]) == 0
    assert not list(tmp_path.iterdir())
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 1 + len(models.ROWS)
    assert all(row.name in "".join(printed) for row in models.ROWS)


def test_an_unknown_row_is_named(capsys):
    with pytest.raises(SystemExit):
        command.main(["gpt sing"])
    assert "No row named 'gpt sing'. Choose from: gpt greedy 1" in capsys.readouterr().err


def test_sides_that_do_not_do_the_same_work_are_refused():
    row = models.Row("llama", "train", 2)
    sides, tokens = models.training(row, models.TINY, "cpu")
    sides["HF Llama"]()  # a step ahead
    with pytest.raises(AssertionError, match="not close"):
        models.check_equal(row, sides, terms=tokens)


def logits(model, *inputs):
    out = model(*inputs)
    return getattr(out, "logits", out)


@pytest.mark.parametrize("make", models.PEERS["gpt"].values())
def test_a_peer_of_the_gpt_has_its_logits(make):
    ours, (ids, _) = models.our_model("gpt", models.TINY), models.blocks(models.TINY, 3)
    theirs = make(ours).double().eval()
    torch.testing.assert_close(logits(theirs, ids), ours.double()(ids))


def test_the_peers_of_the_translator_have_its_logits():
    ours, batch = models.our_model("translator", models.TINY), models.pairs(models.TINY, 5)
    assert not batch.src_mask.all() and not batch.tgt_mask.all()
    hf = peers.hf_marian(ours).double()
    native = peers.torch_translator(ours).double()
    expected = ours.double()(batch.src, batch.tgt_in, batch.src_mask)[batch.tgt_mask]
    given = {"attention_mask": batch.src_mask.long(), "decoder_input_ids": batch.tgt_in}
    # the position vectors of the peers were made in float32
    close = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(hf(batch.src, **given).logits[batch.tgt_mask], expected, **close)
    found = native(batch.src, batch.tgt_in, batch.src_mask, batch.tgt_mask)
    torch.testing.assert_close(found, expected, **close)


class TestTheRecord:
    "With a clock and a stand-in for what is measured."

    @pytest.fixture
    def measured(self, monkeypatch):
        asked = []

        def measure(row, *settings):
            asked.append(row.name)
            found = {"row": row.name, **vars(row), "fastest": "HF", "tokens_s": 7.0}
            return found | {"ratio": 0.5, "low": 0.25, "high": 0.75}

        monkeypatch.setattr(command, "measure", measure)
        monkeypatch.setattr(command, "current_commit", lambda: "c" * 40)
        monkeypatch.setattr(command, "no_unit", lambda row, device: row.dtype == "bf16")
        return asked

    @pytest.fixture
    def run(self, tmp_path):
        page = tmp_path / "page.md"
        page.write_text("before\n<!-- speed: made -->\nold\n<!-- end of speed -->\nafter\n")

        def run(*options):
            return command.main(["--out", str(tmp_path), "--page", str(page), *options])

        return run

    def test_it_has_all_rows_and_the_page_their_table(self, measured, run, tmp_path):
        assert run() == 0
        names = [row.name for row in models.ROWS]
        rows = read_measurement(tmp_path / "benchmarks-cpu.json").rows
        assert [row["row"] for row in rows] == names
        assert measured == [row.name for row in models.ROWS if row.dtype == "fp32"]
        assert all({"machine", "date", "versions", "commit"} <= set(row) for row in rows)
        lines = (tmp_path / "page.md").read_text().splitlines()
        assert len(lines) == 2 + 2 + 2 + len(names) and "old" not in lines
        here = command.machine()
        assert f"| GPT: greedy decoding, batch 8 | HF | 0.50 (0.25 to 0.75) | 7 | {here} |" in lines
        missing = "not run: the processor has no unit for bf16"
        assert f"| Llama: training step, bf16 | – | {missing} | – | {here} |" in lines

    def test_what_was_measured_is_not_measured_again(self, measured, run):
        run()
        del measured[:]
        assert run() == 0 and measured == []
        assert run("gpt greedy 1") == 0 and measured == ["gpt greedy 1"]

    def test_a_bf16_row_that_is_named_runs_without_a_unit(self, measured, run):
        run("gpt train bf16")
        assert measured == ["gpt train bf16"]

    def test_other_code_measures_all_again(self, measured, run, monkeypatch):
        run()
        monkeypatch.setattr(command, "current_commit", lambda: "d" * 40)
        assert run() == 0 and len(measured) == 2 * sum(r.dtype == "fp32" for r in models.ROWS)

    def test_changed_code_never_counts_as_the_same(self, measured, run, monkeypatch):
        monkeypatch.setattr(command, "current_commit", lambda: "c" * 40 + "+")
        run()
        n = len(measured)
        run()
        assert len(measured) == 2 * n > 0

    def test_a_run_that_is_cut_off_goes_on(self, measured, run, tmp_path, monkeypatch, capsys):
        "Each row takes a minute of a clock that the test moves."
        monkeypatch.setattr(command.time, "monotonic", lambda: 60.0 * len(measured))
        assert run("--seconds", "100") == 1
        assert len(measured) == 2 and "left: gpt train fp32" in capsys.readouterr().out
        assert "old" in (tmp_path / "page.md").read_text()
        assert run() == 0 and len(measured) == len(set(measured))


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
