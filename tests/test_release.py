"A release, dry: what the workflow does with a tag is done in a clean clone."

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from itertools import chain
from pathlib import Path

import cards
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from transformer_lit import __version__

ROOT = Path(__file__).parents[1]
DATED = f"## {__version__}, 2026-12-01"


def steps():
    "The lines of the workflow's job `build` by their names, without what the network gives."
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    found = {one["name"]: one["run"] for one in workflow["jobs"]["build"]["steps"] if "run" in one}
    assert [*found] == ["tools", "build", "check", "use"]
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    "Runs lines as the workflow's shell does, with this environment's packages and no index."
    others = tmp_path_factory.mktemp("packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "transformer_lit" not in path.name:  # that comes from the wheel
            (others / path.name).symlink_to(path)
    more = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PYTHONPATH": str(others)}
    more["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def run(folder, name, tag=f"v{__version__}"):
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps()[name]]
        env = os.environ | more | {"GITHUB_REF_NAME": tag}
        return subprocess.run(shell, cwd=folder, env=env, capture_output=True, text=True)

    return run


@pytest.fixture(scope="module")
def clone(tmp_path_factory, run):
    "A clean clone in which the changes have a date, and its dist/."
    folder = tmp_path_factory.mktemp("release") / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    changes = folder / "CHANGELOG.md"
    text, n = re.subn(r"^## .*", DATED, changes.read_text(), count=1, flags=re.M)
    changes.write_text(text)
    built = run(folder, "build")
    assert n == 1 and built.returncode == 0, built.stderr
    return folder


@pytest.mark.machinery
def test_the_version_is_that_of_the_tag_and_of_the_changes(clone, run):
    good = run(clone, "check")
    assert good.returncode == 0, good.stderr
    other = run(clone, "check", tag="v9.9.9")
    assert other.returncode == 1 and "the tag is v9.9.9, and the version" in other.stderr
    changes = clone / "CHANGELOG.md"
    before = changes.read_text()
    changes.write_text(before.replace(DATED, f"## {__version__}, not yet released"))
    undated = run(clone, "check")
    changes.write_text(before)
    assert undated.returncode == 1 and "not yet released" in undated.stderr


@pytest.mark.machinery
def test_the_wheel_translates_in_an_environment_of_its_own(clone, run):
    used = run(clone, "use")
    assert used.returncode == 0, used.stderr
    assert "Fahrrad" in used.stdout
    assert [*(clone / "dist/fresh").rglob("site-packages/transformer_lit/__init__.py")]


@pytest.mark.parametrize("name", ["build", "requirements"])
def test_what_ci_installs_has_hashes_and_is_what_the_constraints_say(name):
    lines = (ROOT / f".ci/{name}.txt").read_text()
    locked = dict(re.findall(r"^([\w-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", lines, re.M))
    assert len(locked) == len(re.findall(r"^\w", lines, re.M)) >= 4  # nothing else is a requirement
    said = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.M)
    said = {canonicalize_name(package): version for package, version in said}
    assert {package: said.get(package, v) for package, v in locked.items()} == locked
    wanted = tomllib.loads(pyproject())["project"]
    extras = wanted["optional-dependencies"]
    (ours,) = [one for one in map(Requirement, extras["dev"]) if one.name == wanted["name"]]
    due = [*wanted["dependencies"], *extras["dev"], *chain(*map(extras.get, ours.extras))]
    due = {canonicalize_name(Requirement(one).name) for one in due if name == "requirements"}
    due -= {ours.name}
    assert due | {"build", "packaging", "setuptools"} <= locked.keys()


def test_the_addresses_are_those_of_settings_ini():
    known, project = cards.settings(), tomllib.loads(pyproject())["project"]
    assert project["urls"] == {
        "Documentation": f"{known['doc_host']}{known['doc_baseurl']}/",
        "Source": known["git_url"],
        "Issues": f"{known['git_url']}/issues",
        "Changelog": f"{known['git_url']}/blob/{known['branch']}/CHANGELOG.md",
    }
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    site = project["urls"]["Documentation"]
    assert cited["url"] == cited["preferred-citation"]["url"] == site
    assert (cited["repository-code"], cited["version"]) == (known["git_url"], known["version"])
    oldest = re.match(r">=([\d.]+),", project["requires-python"])[1]
    versions = [c.rpartition(" ")[2] for c in project["classifiers"] if "Python :: 3." in c]
    assert oldest == known["min_python"] == versions[0]
    assert cards.pythons().startswith(f"Python {versions[0]} to {versions[-1]} (")


def test_the_changes_begin_with_this_version():
    top = re.search(r"^## (\S+),", (ROOT / "CHANGELOG.md").read_text(), re.M)[1]
    assert top == __version__ == re.search(r'^version = "(.+)"', pyproject(), re.M)[1]


def pyproject():
    return (ROOT / "pyproject.toml").read_text()
