"""Homes that send what a test says, and nothing that lies around."""

import pooch
import pytest


@pytest.fixture
def urls(monkeypatch):
    """What each address sends; an exception is raised, and a function writes for itself.

    `urls.asked` lists the addresses in order.
    """

    class Homes(dict):
        asked = []

    found = Homes()

    def send(self, url, output_file, pooch, check_only=False):
        found.asked.append(url)
        answer = found.get(url, ConnectionError("no route"))
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            return answer(output_file)
        output_file.write(answer)

    Homes.asked = []
    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", send)
    return found
