"The built book, for the tests in tests/book: `BOOK_HTML` names its folder."

import functools
import gzip
import os
from pathlib import Path

import pytest

SITE = Path(os.environ["BOOK_HTML"]).resolve() if os.environ.get("BOOK_HTML") else None
PACKED = {".html", ".css", ".js", ".svg", ".json", ".xml", ".txt"}  # a server compresses these


def leave(reason):
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


@functools.cache
def packed(path):
    "What a server sends of a file, or nothing."
    sent = path.read_bytes() if path.is_file() else b""
    return gzip.compress(sent) if path.suffix in PACKED else sent


def seen(page, width, scheme):
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme, media="screen")
