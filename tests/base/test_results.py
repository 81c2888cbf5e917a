"""A record comes back as it was written, or it is refused with the field that does not fit."""

import json
import subprocess
from dataclasses import fields, replace

import pytest

import transformer_lit
from transformer_lit.base.files import InputError
from transformer_lit.base.results import (
    Result,
    current_commit,
    read_result,
    read_results,
    write_result,
)

RUN = Result(
    name="toy",
    task="translation",
    dataset="numbers",
    direction="en-de",
    split="test",
    command="transformer-lit train translation",
    commit="unknown",
    config={"d_model": 11, "betas": [0.9, 0.98], "clip": None},
    parameters=1_234_567_890_123,
    data_sha256={"numbers/train": "ab" * 32},
    seed=3,
    device="CPU",
    torch="2.6.0",
    minutes=0.1,
    tokens_per_second=1e4 / 3,
    curve=[{"step": 5, "train_loss": 0.1, "val_loss": 1e-9}],
    metrics={"bleu": 12.5, "signature": "größe|v:2", "beam": 5},
)


def test_round_trip_bit_by_bit(tmp_path):
    path = write_result(tmp_path / "results", RUN)
    assert path == tmp_path / "results/toy.json"
    assert read_result(path) == RUN
    assert [p.name for p in path.parent.iterdir()] == ["toy.json"]


@pytest.mark.parametrize("field", [field.name for field in fields(Result)])
def test_every_field_is_required(tmp_path, field):
    path = write_result(tmp_path, RUN)
    values = json.loads(path.read_text())
    del values[field]
    path.write_text(json.dumps(values))
    with pytest.raises(InputError, match=rf"toy\.json is not a result: \['{field}'\]"):
        read_result(path)


def test_an_unknown_field_is_named(tmp_path):
    path = write_result(tmp_path, RUN)
    path.write_text(json.dumps({**json.loads(path.read_text()), "accuracy": 1}))
    with pytest.raises(InputError, match=r"\['accuracy'\] does not fit"):
        read_result(path)


@pytest.mark.parametrize(("text", "kind"), [("[1]", "list"), ('"x"', "str"), ("[{}]", "list")])
def test_json_that_is_no_record_is_refused(tmp_path, text, kind):
    (tmp_path / "toy.json").write_text(text)
    with pytest.raises(InputError, match=f"not a result: {kind} does not fit"):
        read_result(tmp_path / "toy.json")


def test_records_are_found_by_their_fields_in_the_order_of_names(tmp_path):
    for name, seed, task in (
        ("c", 0, "translation"),
        ("a", 1, "translation"),
        ("b", 1, "language"),
    ):
        write_result(tmp_path, replace(RUN, name=name, seed=seed, task=task))
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
        monkeypatch.setattr(transformer_lit, "__file__", str(folder / "__init__.py"))
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

    def test_outside_of_a_repository_it_is_unknown(self, package):
        assert current_commit() == "unknown"

    def test_without_git_it_is_unknown(self, package, monkeypatch):
        monkeypatch.setenv("PATH", str(package))
        assert current_commit() == "unknown"
