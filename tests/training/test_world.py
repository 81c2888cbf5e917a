"""What a process computes of a batch, without starting others: for those see test_distributed."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from transformer_lit.course.files import InputError
from transformer_lit.training.distributed import ALONE, Ranks, join


@dataclass
class Batch:
    x: Tensor
    mask: Tensor | None


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_shares_hold_every_row_once(size, count):
    shares = []
    for rank in range(size):
        world = object.__new__(Ranks)  # without a group of processes
        world.rank, world.size = rank, size
        shares.append(world.share(Batch(torch.arange(count * 3).view(count, 3), None)))
    assert all(share.mask is None for share in shares)
    assert sorted(torch.cat([share.x for share in shares]).tolist()) == [
        [3 * row, 3 * row + 1, 3 * row + 2] for row in range(count)
    ]
    sizes = [len(share.x) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("size, more", [("2", {}), ("abc", {}), ("2", {"RANK": "x"})])
def test_variables_that_no_torchrun_has_set_are_told(monkeypatch, size, more):
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"WORLD_SIZE": size, **more}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=r"Start with torchrun, or unset WORLD_SIZE$"), join("cpu"):
        pass


def test_one_process_is_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with join("cpu") as world:
        assert world is ALONE
    with pytest.raises(InputError, match="Start with torchrun"), join("cpu", shard=True):
        pass
    monkeypatch.setenv("WORLD_SIZE", "1")  # torchrun --nproc-per-node 1
    with pytest.raises(KeyError), join("cpu"):
        raise KeyError("an error stays what it is")
