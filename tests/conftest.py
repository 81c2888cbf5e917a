"""What several test files need: no network ever, and data that is named or made here."""

import os
import zlib

import jaxtyping
import pytest
import torch

from transformer_lit.course import data

SEED = int(os.environ.get("TEST_SEED", "0"))  # another one, and every test draws other numbers


@pytest.fixture(autouse=True)
def seed(request):
    "Each test draws its own numbers, the same in any order of tests and on any worker."
    torch.manual_seed(SEED + zlib.crc32(request.node.nodeid.encode()))


EXACT = {  # parts, by their folders
    *("attention", "position", "block", "text", "inference", "assistant", "oracle")
}


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
def data_folder(newcomer, monkeypatch, tmp_path):
    "A folder for data, with only what the test puts into it."
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("TRANSFORMER_LIT_DATA", str(folder))
    monkeypatch.setattr("pooch.os_cache", lambda project: tmp_path / "cache" / project)
    return folder


# --- what only some machines have ----------------------------------------------------------------


# texts of the errata clinic, and published chat templates: folders that a variable names
FOLDERS = {"sources": "TRANSFORMER_LIT_SOURCES", "templates": "TRANSFORMER_LIT_TEMPLATES"}


def is_here(name):
    "Whether a data set, a published model or a folder of texts is on this machine."
    if name in FOLDERS:
        return os.path.isdir(os.environ.get(FOLDERS[name], ""))
    return data.available(name)


def pytest_collection_modifyitems(items):
    for item in items:
        for name in {"smollm2", "minilm"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.needs(name))
        for name in {name for mark in item.iter_markers("needs") for name in mark.args}:
            if not is_here(name):
                how = FOLDERS.get(name, f"data fetch {name}")
                item.add_marker(pytest.mark.skip(reason=f"{name} is not on this machine: {how}"))


@pytest.fixture(autouse=True)
def newcomer(request, monkeypatch, tmp_path_factory):
    "A test sees only the data that the package brings, unless it is marked with what it needs."
    if not request.node.get_closest_marker("needs"):
        empty = tmp_path_factory.getbasetemp() / "empty"
        monkeypatch.delenv("TRANSFORMER_LIT_DATA", raising=False)
        for variable in FOLDERS.values():
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(empty))  # for the processes that it starts
        monkeypatch.setattr("pooch.os_cache", lambda project: empty / project)


@pytest.fixture(scope="session")
def smollm2():
    "The file of a published chat model."
    return data.paths("smollm2")[0]


@pytest.fixture(scope="session")
def minilm():
    "The folder of a published sentence encoder."
    return data.paths("minilm")[0].parent


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
