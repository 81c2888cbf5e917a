"""Each key of a table of published files is read, ignored by name, or refused with file and key."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from transformer_lit.course.files import InputError
from transformer_lit.models import embed
from transformer_lit.models.decoders import Settings
from transformer_lit.models.hf import GENERATION, IGNORED
from transformer_lit.models.hf_build import FAMILIES, empty_module, read_generation
from transformer_lit.text.tokenizer import Specials

C = 24
TABLE = tomllib.loads(Path(__file__).with_name("published_files.toml").read_text("utf-8"))
SAID = {key: row["value"] for row in TABLE["said"] for key in row["keys"].split()}


def read_config(folder):
    c = Settings.read(folder)
    c.tensors = {"final_logits_bias", "lm_head.weight"}
    empty_module(c, folder)
    c.refuse_unread({**IGNORED, **GENERATION, **FAMILIES[c.architecture].unused})


READERS = {
    "config.json": read_config,
    "generation_config.json": lambda folder: read_generation(folder, Settings()),
    "tokenizer_config.json": Specials.read,
    "special_tokens_map.json": Specials.read,
    "1_Pooling/config.json": lambda folder: embed._pooling(folder / "1_Pooling", C),
    "config_sentence_transformers.json": lambda folder: embed._use(folder, C),
}


def read(file, folder, **more):
    said = {key: SAID.get(key, "said") for key in file["keys"].split()} | file.get("said", {})
    path = folder / file["name"]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(said | dict.fromkeys(file.get("null", "").split()) | more))
    READERS[file["name"]](folder)


@pytest.mark.parametrize("file", TABLE["file"], ids=lambda x: f"{x['name']}: {x['source']}")
def test_each_key_of_a_published_file_has_an_outcome(file, tmp_path):
    if "refused" not in file:
        read(file, tmp_path)
        file = file | {"refused": "shiny_new_key"}
    with pytest.raises(InputError, match=rf"^{re.escape(str(tmp_path))}.*\b{file['refused']}\b"):
        read(file, tmp_path, shiny_new_key=5)
