"""What several test files need: no network ever, and data that is named or made here."""

import os
import zlib

import jaxtyping
import pytest
import torch

SEED = int(os.environ.get("TEST_SEED", "0"))  # another one, and every test draws other numbers


@pytest.fixture(autouse=True)
def seed(request):
    "Each test draws its own numbers, the same in any order of tests and on any worker."
    torch.manual_seed(SEED + zlib.crc32(request.node.nodeid.encode()))


EXACT = {"attention", "position", "block", "text", "inference"}  # parts, by their folders


@pytest.fixture(autouse=True)
def float64(request):
    "Equalities of these parts are proven in float64, where rounding leaves them room."
    if request.path.parent.name in EXACT:
        torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def single(float64):
    "For claims about float32."
    torch.set_default_dtype(torch.float32)


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


@pytest.fixture(scope="session")
def real_data_folder():
    "The folder with the real data; for tests marked with one of MARKERS, skipped without it."
    return REAL_DATA


def multi30k_is_here():
    "Whether the real Multi30k lies in the folder that TRANSFORMER_LIT_DATA names."
    places = (f"{REAL_DATA}/multi30k/raw/train.en", f"{REAL_DATA}/multi30k/raw/train.en.gz")
    return bool(REAL_DATA) and any(map(os.path.isfile, places))


def texts_are_here():
    "Whether the running texts and word lists lie there: plays, novels, judgements of words."
    folders = ("tinyshakespeare", "english_novels", "word_eval")
    return bool(REAL_DATA) and all(os.path.isdir(f"{REAL_DATA}/{folder}") for folder in folders)


def tatoeba_is_here():
    "Whether Tatoeba's sentences lie there: in Chinese and in German with English, and a test set."
    folders = ("tatoeba/cmn-eng", "tatoeba/deu-eng", "tatoeba/test")
    return bool(REAL_DATA) and all(os.path.isdir(f"{REAL_DATA}/{folder}") for folder in folders)


MARKERS = {
    "multi30k": multi30k_is_here,
    "real_data": texts_are_here,
    "tatoeba": tatoeba_is_here,
}


def pytest_configure(config):
    config.addinivalue_line("markers", "multi30k: needs the real Multi30k in TRANSFORMER_LIT_DATA")
    config.addinivalue_line("markers", "real_data: needs plays, novels and word lists there")
    config.addinivalue_line("markers", "tatoeba: needs Tatoeba's sentences there")


def pytest_collection_modifyitems(items):
    missing = [marker for marker, here in MARKERS.items() if not here()]
    for item in items:
        for marker in filter(item.get_closest_marker, missing):
            reason = f"data of {marker} do not lie in the folder that TRANSFORMER_LIT_DATA names"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def tiny_translator():
    "An untrained translator of prime sizes with the tokenizer of a few sentences."
    from transformer_lit.models.transformer import Transformer, TransformerConfig
    from transformer_lit.recipes.translation import Translator
    from transformer_lit.text.tokenizer import BPETokenizer

    tokenizer = BPETokenizer.train(["A man is riding a bike.", "Ein Mann fährt Fahrrad."], 269)
    sizes = {"d_model": 22, "d_ff": 29, "n_heads": 2, "n_layers": 1, "max_len": 31}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Transformer(TransformerConfig(vocab_size=tokenizer.vocab_size, **sizes))
    info = {"source": "en", "target": "de", "form": "raw", "metric": "exact"}
    info |= {"dataset": "multi30k", "alpha": 1.0}
    return Translator(model, tokenizer, info)


@pytest.fixture
def no_shape_checks():
    "The annotations would refuse wrong shapes first; users of the package run without them."
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def shape_checks(no_shape_checks):
    "The annotations all the same, in a file that is about values: its steps take a quarter so."
    jaxtyping.config.update("jaxtyping_disable", False)
