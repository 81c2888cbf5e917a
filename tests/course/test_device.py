"""Devices: found by name, refused in one line; memory that is kept."""

import platform
import subprocess
import sys

import pytest
import torch

from transformer_lit.course.files import InputError
from transformer_lit.course.records import device_name, pick_device
from transformer_lit.training.options import keep_freed_memory


def test_pick_device():
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    now = torch.get_num_threads()
    try:
        for count, said in ((1, "), 1 thread"), (2, "), 2 threads")):
            torch.set_num_threads(count)
            assert device_name(torch.device("cpu")).endswith(said)
    finally:
        torch.set_num_threads(now)


@pytest.mark.parametrize("name", ["abacus", "", "cuda:99", "meta", "hpu", "xla", "cpu:x", "auto "])
def test_a_device_that_is_not_there_gets_one_line(name):
    with pytest.raises(InputError) as caught:
        pick_device(name)
    message = str(caught.value)
    assert repr(name) in message and "try cpu" in message
    assert "\n" not in message and len(message) < 300


def test_cuda_without_a_gpu_is_refused(monkeypatch):
    def no_driver(*args, **kwargs):
        raise RuntimeError("Found no NVIDIA driver on your system.\nPlease check. And more.")

    monkeypatch.setattr(torch, "zeros", no_driver)
    with pytest.raises(InputError, match=r"'cuda' is not available here \(Found no NVIDIA driver"):
        pick_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == torch.device("cpu")


FAULTS = """
import resource, sys, torch
from transformer_lit.training.options import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def faults():
    began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(10_000_000)  # 40 MB: glibc maps anything over 32 MB afresh
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - began
faults()
print(min(faults() for _ in range(5)))  # a system that takes pages back can only add faults
"""


@pytest.mark.machinery
def test_kept_memory_is_not_asked_for_again():
    keep_freed_memory()  # harmless anywhere
    plain, kept = (
        int(
            subprocess.run(
                [sys.executable, "-c", FAULTS, mode], capture_output=True, text=True
            ).stdout
        )
        for mode in ("plain", "keep")
    )
    if platform.libc_ver()[0] == "glibc":
        assert kept < plain / 5
    else:
        assert kept >= 0
