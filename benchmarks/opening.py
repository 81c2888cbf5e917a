"""A published model beside the reference library: opened, a prompt read, and the memory for it.

`python -m benchmarks.decoding smollm2` writes these rows beside its own.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from benchmarks.common import compared, peak_bytes, take_turns
from transformer_lit.models.gguf import load_gguf
from transformer_lit.models.hf_build import Published, load_published, save_hf
from transformer_lit.models.llama import Llama
from transformer_lit.models.quantise import KEEP


def theirs(place: Path) -> tuple[Any, Any]:
    "Model and tokenizer of a folder or a GGUF file, by the reference library."
    disable_progress_bar()
    folder, name = (place.parent, {"gguf_file": place.name}) if place.is_file() else (place, {})
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **name)
    return model.eval(), AutoTokenizer.from_pretrained(folder, **name)


@torch.inference_mode()
def read(model: Llama, ids: Tensor) -> Tensor:
    "A prompt into an empty cache, and the logits behind it."
    return model.step(ids, model.start(1, ids.shape[1]), last=1)


@torch.inference_mode()
def theirs_read(model: nn.Module, ids: Tensor) -> Tensor:
    return model(ids, use_cache=True, logits_to_keep=1).logits


def time_rows(
    path: Path, published: Published, other: nn.Module, T: int, pairs: int
) -> list[dict[str, Any]]:
    "Seconds of ours and of the reference library, sides in turn, for each kind of work."
    ids = torch.randint(published.model.config.vocab_size, (1, T))
    torch.testing.assert_close(
        read(published.model, ids), theirs_read(other, ids), rtol=0, atol=1e-3
    )
    with tempfile.TemporaryDirectory() as folder:
        save_hf(published, at := Path(folder, "model"))
        works: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
            "open a folder": (partial(load_published, at), partial(theirs, at)),
            "open the file": (partial(load_gguf, path), partial(theirs, path)),
            f"read {T} tokens": (
                partial(read, published.model, ids),
                partial(theirs_read, other, ids),
            ),
        }
        rows = []
        for work, sides in works.items():
            seconds = take_turns(sides, pairs, time.process_time)
            ours_s, theirs_s = map(median, seconds)
            row = {"work": work, "seconds": ours_s, "theirs": theirs_s}
            rows.append(row | compared(seconds))
    return rows


def peak(path: str, side: str) -> int:
    "Bytes that opening the file adds to the peak of this process."
    before = peak_bytes(anew=True)
    if side == "transformers":
        theirs(Path(path))
    else:
        load_gguf(path, weights=side if side in KEEP else None)
    return peak_bytes() - before


def memory_rows(path: Path, weights: int) -> list[dict[str, Any]]:
    "The peak of each side in a process of its own, over the bytes of all weights in float32."
    rows = []
    for side in ("float32", *KEEP, "transformers"):
        command = [sys.executable, "-m", "benchmarks.opening", str(path), side]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows.append({"work": "memory", "side": side, "of_weights": int(told) / weights})
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(peak(*sys.argv[1:]))
