"""What several test files need: no network ever, and data that is named or made here."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    "A test that downloads is a fault. Tests of downloads put a home of their own in this place."

    def refuse(self, url, output_file, pooch, check_only=False):
        raise ConnectionError(f"no network in tests: {url}")

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", refuse)


@pytest.fixture
def data_folder(monkeypatch, tmp_path):
    "An empty folder for data, and an empty cache: nothing lies here but what the test puts here."
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("TRANSFORMER_LIT_DATA", str(folder))
    monkeypatch.setattr("pooch.os_cache", lambda project: tmp_path / "cache" / project)
    return folder


REAL_DATA = os.environ.get("TRANSFORMER_LIT_DATA", "")  # before any test changes it


@pytest.fixture
def real_data_folder():
    "The folder with the real data; for tests marked `multi30k`, which are skipped without it."
    return REAL_DATA


def multi30k_is_here():
    "Whether the real Multi30k lies in the folder that TRANSFORMER_LIT_DATA names."
    places = (f"{REAL_DATA}/multi30k/raw/train.en", f"{REAL_DATA}/multi30k/raw/train.en.gz")
    return bool(REAL_DATA) and any(map(os.path.isfile, places))


def pytest_configure(config):
    config.addinivalue_line("markers", "multi30k: needs the real Multi30k in TRANSFORMER_LIT_DATA")


def pytest_collection_modifyitems(items):
    if multi30k_is_here():
        return
    reason = "Multi30k does not lie in the folder that TRANSFORMER_LIT_DATA names"
    for item in items:
        if item.get_closest_marker("multi30k"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def tiny_translator():
    "An untrained translator of prime sizes with the tokenizer of a few sentences."
    import torch

    from transformer_lit.models.transformer import Transformer, TransformerConfig
    from transformer_lit.recipes.translation import Translator
    from transformer_lit.text.tokenizer import BPETokenizer

    tokenizer = BPETokenizer.train(["A man is riding a bike.", "Ein Mann fährt Fahrrad."], 269)
    sizes = {"d_model": 22, "d_ff": 29, "n_heads": 2, "n_layers": 1, "max_len": 31}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Transformer(TransformerConfig(vocab_size=tokenizer.vocab_size, **sizes))
    info = {"source": "en", "target": "de", "form": "raw", "metric": "exact"}
    return Translator(model, tokenizer, info)
