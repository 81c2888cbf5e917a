"""A record comes back as it was written, or it is refused with the field that does not fit."""

import json
import subprocess
from dataclasses import MISSING, fields, replace
from importlib import resources

import pytest
from toy_record import RUN

from transformer_lit.course.files import InputError
from transformer_lit.course.records import (
    Measurement,
    Paired,
    Result,
    at_best_rate,
    by_entry,
    current_commit,
    over_seeds,
    paired,
    read_measurement,
    read_result,
    read_results,
    time_taken,
    write_record,
)


def test_round_trip_bit_by_bit(tmp_path):
    path = write_record(tmp_path / "results", RUN)
    assert path == tmp_path / "results/toy.json"
    assert read_result(path) == RUN
    assert [p.name for p in path.parent.iterdir()] == ["toy.json"]


def test_a_record_of_changed_code_says_that_it_cannot_be_repeated(tmp_path):
    for commit in ("c" * 40 + "+", "unknown"):
        assert not read_result(write_record(tmp_path, replace(RUN, commit=commit))).reproducible


def test_every_field_is_required(tmp_path):
    path = write_record(tmp_path, RUN)
    values = json.loads(path.read_text())
    for field in (field for field in fields(Result) if field.default is MISSING):
        path.write_text(json.dumps({k: v for k, v in values.items() if k != field.name}))
        with pytest.raises(InputError, match=rf"toy\.json is not a result: \['{field.name}'\]"):
            read_result(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [("[1]", "list"), ('"x"', "str"), ("[{}]", "list"), ('{"accuracy": 1, ', r"\['accuracy'\]")],
)
def test_json_that_is_no_record_is_refused(tmp_path, text, told):
    path = write_record(tmp_path, RUN)
    path.write_text(f"{text}{path.read_text()[1:]}" if text.endswith(" ") else text)
    with pytest.raises(InputError, match=f"not a result: {told} does not fit"):
        read_result(path)


def test_records_are_found_by_their_fields_in_the_order_of_names(tmp_path):
    for name, seed, task in (
        ("c", 0, "translation"),
        ("a", 1, "translation"),
        ("b", 1, "language"),
    ):
        write_record(tmp_path, replace(RUN, name=name, seed=seed, task=task))
    (tmp_path / "README.md").write_text("not a record")
    assert [r.name for r in read_results(tmp_path)] == ["a", "b", "c"]
    assert [r.name for r in read_results(tmp_path, seed=1)] == ["a", "b"]
    assert [r.name for r in read_results(tmp_path, seed=1, task="translation")] == ["a"]
    assert read_results(tmp_path, seed=2) == []
    assert read_results(tmp_path / "none") == []


class TestCurrentCommit:
    @pytest.fixture
    def package(self, tmp_path, monkeypatch):
        folder = tmp_path / "project/transformer_lit"
        (folder / "base").mkdir(parents=True)
        (folder / "__init__.py").touch()
        monkeypatch.setattr(resources, "files", lambda name: folder)
        return folder

    @pytest.fixture
    def git(self, package):
        def run(*command):
            identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
            done = subprocess.run(
                ["git", *identity, *command], cwd=package.parent, capture_output=True, check=True
            )
            return done.stdout.decode().strip()

        run("init", "-q")
        return run

    def test_the_commit_and_a_plus_for_changes_anywhere_in_the_package(self, package, git):
        git("add", ".")
        git("commit", "-q", "-m", "one")
        assert current_commit() == git("rev-parse", "HEAD")
        (package.parent / "notes.txt").touch()  # outside the package: the code is the same
        assert current_commit() == git("rev-parse", "HEAD")
        (package / "base/new.py").touch()
        assert current_commit() == git("rev-parse", "HEAD") + "+"

    def test_installed_inside_another_repository_it_is_unknown(self, package, git):
        # This catches a commit that names somebody else's code.
        (package.parent / "own.txt").touch()
        git("add", "own.txt")
        git("commit", "-q", "-m", "one")
        assert current_commit() == "unknown"

    def test_outside_of_a_repository_or_without_git_it_is_unknown(self, package, monkeypatch):
        assert current_commit() == "unknown"
        monkeypatch.setenv("PATH", str(package))
        assert current_commit() == "unknown"


class TestMeasurement:
    SPEED = Measurement(
        "speed", "rows of n and ms", "python -m x", "c" * 40, "CPU", "2.6", [{"n": 1}]
    )

    def test_round_trip(self, tmp_path):
        assert read_measurement(write_record(tmp_path, self.SPEED)) == self.SPEED

    def test_a_run_is_no_measurement_and_the_other_way_round(self, tmp_path):
        with pytest.raises(InputError, match="is not a measurement"):
            read_measurement(write_record(tmp_path, RUN))
        with pytest.raises(InputError, match="is not a result"):
            read_result(write_record(tmp_path, self.SPEED))


class TestPaired:
    def test_by_hand(self):
        # differences 1, 2, 3: mean 2, deviation 1, error 1/√3, t = 3.46 < 4.303
        gap = paired([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
        assert (gap.mean, gap.pairs, gap.separated) == (2.0, 3, False)
        assert gap.error == pytest.approx(3**-0.5)

    @pytest.mark.parametrize(("n", "t"), [(3, 4.302653), (5, 2.776445), (10, 2.262157)])
    def test_the_bound_is_students_t(self, n, t):
        "Differences ±1 about a mean of just under and just over t standard errors."
        base = [1.0, -1.0] * (n // 2) + [0.0] * (n % 2)
        error = paired(base, [0.0] * n).error
        for factor, expected in ((0.999, False), (1.001, True)):
            shifted = [value + factor * t * error for value in base]
            assert paired(shifted, [0.0] * n).separated is expected
        assert paired(base, [0.0] * n).half == pytest.approx(t * error, rel=1e-3)

    def test_its_ends_and_how_it_is_printed(self):
        gap = Paired(-0.5, 0.125, 3)
        assert gap.ends == pytest.approx((-0.5 - 4.303 * 0.125, -0.5 + 4.303 * 0.125))
        assert f"{gap:.3f}" == "-0.500 (0.125)" and f"{Paired(1.0, 0.25, 2):.1f}" == "+1.0 (0.2)"

    @pytest.mark.parametrize("n", [0, 1, 11])
    def test_too_few_or_too_many_pairs(self, n):
        with pytest.raises(ValueError, match=f"2 to 10 pairs, got {n}"):
            paired([1.0] * n, [2.0] * n)

    def test_entries_come_in_the_order_of_seeds(self):
        runs = [
            replace(RUN, name=f"{e}{s}", seed=s, metrics={"entry": e})
            for s in (2, 0, 1)
            for e in ("b", "a")
        ]
        groups = by_entry(runs)
        assert {e: [r.seed for r in records] for e, records in groups.items()} == {
            "a": [0, 1, 2],
            "b": [0, 1, 2],
        }


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (over_seeds([1.0, 2.0, 6.0], ".2f"), "3.00 ± 2.65"),  # the deviation is √7
        (over_seeds([0.25, 0.75], ".1%"), "50.0% ± 35.4%"),
        (over_seeds([1.25], ".3f"), "1.250"),
        (time_taken([2.0, 3.0]), "2"),  # half as long again is still alike
        (time_taken([2.0, 3.5]), "2 to 4"),
        (time_taken([0.4]), "0.4"),
        (time_taken([9.12, 76.3, 20.0], ".1f"), "9.1 to 76.3"),
    ],
)
def test_what_seeds_reached_and_how_long_they_took(shown, expected):
    assert shown == expected


def test_an_entry_of_a_grid_is_read_at_its_best_rate_and_in_the_order_of_seeds():
    def row(entry, rate, seed, loss):
        return {"entry": entry, "rate": rate, "seed": seed, "val_loss": loss}

    rows = [row("b", 0.03, 0, 5.0), row("b", 0.01, 0, 3.0), row("a", 0.01, 2, 9.0)]
    rows += [row("a", 0.01, 1, 8.0), row("a", 0.003, 0, 2.5), row("a", 0.01, 0, 2.0)]
    rows += [row("a", 0.03, 0, 2.25)]
    found = at_best_rate(rows)
    assert (found["a"].rate, found["a"].losses, found["a"].inside) == (0.01, [2.0, 8.0, 9.0], True)
    assert (found["b"].rate, found["b"].losses, found["b"].inside) == (0.01, [3.0], False)
