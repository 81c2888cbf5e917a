"""Whether dist/ holds what a tag promises: `python .ci/check_dist.py v0.1.0`, after the build."""

import re
import sys
import tarfile
import zipfile
from pathlib import Path

from packaging.metadata import Metadata

MEGABYTES = 10  # of a wheel, at most


def faults(tag: str, dist: Path, changes: str) -> list[str]:
    "What would be wrong with a release."
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.startswith("transformer_lit/")}
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        told = archive.read(path)
    with tarfile.open(sdist) as archive:
        files = (one.name.partition("/")[2] for one in archive if one.isfile())
        due = {name for name in files if name.startswith("transformer_lit/")}
        sources = archive.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/PKG-INFO").read()
    about = Metadata.from_email(told, validate=True)  # it raises what the index would refuse
    found, top = [], re.search(r"^## (.*)$", changes, re.M)[1]
    if tag != f"v{about.version}":
        found.append(f"the tag is {tag}, and the version {about.version}")
    if not re.fullmatch(rf"{re.escape(str(about.version))}, \d{{4}}-\d\d-\d\d", top):
        found.append(f"CHANGELOG.md begins with {top!r}, not with {about.version} and a date")
    if about.description_content_type != "text/markdown" or not about.description:
        found.append("the page of the project would be empty: no README in Markdown")
    if sources != told:
        found.append("the sdist says other things of itself than the wheel")
    if missing := sorted(due - held):
        found.append(f"the wheel lacks {', '.join(missing)}")
    if (size := wheel.stat().st_size / 1e6) > MEGABYTES:
        found.append(f"the wheel has {size:.1f} MB, more than {MEGABYTES}")
    return found


if __name__ == "__main__":
    wrong = faults(sys.argv[1], Path("dist"), Path("CHANGELOG.md").read_text(encoding="utf-8"))
    sys.exit("\n".join(wrong) or None)
