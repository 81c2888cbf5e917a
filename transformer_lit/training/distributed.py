"""Two processes, one training."""

#| export
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transformer_lit.base.device import pick_device
from transformer_lit.base.files import InputError
from transformer_lit.training.trainer import ALONE, Step, World
#| export
class Ranks(World):
    """The processes that `torchrun` started. They read one stream, and each takes its rows.

    So the position in the data, and with it a checkpoint, does not depend on their number. A batch
    is a dataclass of tensors whose first axis is B; a share may have no row. Random numbers of a
    step, as for dropout, are each process's own: dealt from one state that all have, which is the
    one that is saved.
    """

    def __init__(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._left = 0  # batches of this round that are still to come

    def wait(self) -> None:
        dist.barrier()

    @contextmanager
    def first(self) -> Iterator[None]:
        if self.rank:
            self.wait()
        yield
        if not self.rank:
            self.wait()

    @contextmanager
    def round(self, batches: int) -> Iterator[None]:
        self._left = batches
        dealt = int(torch.randint(2**62, ()))
        common = torch.get_rng_state()
        torch.manual_seed(dealt + self.rank)
        try:
            yield
        finally:
            torch.set_rng_state(common)

    def share(self, batch: Any) -> Any:
        own = slice(self.rank, None, self.size)
        parts = {name: None if t is None else t[own] for name, t in vars(batch).items()}
        return replace(batch, **parts)

    def add(self, loss: Tensor, tokens: int, gradients: list[Tensor]) -> tuple[Tensor, int]:
        sums = torch.stack([loss.double(), torch.full_like(loss, tokens, dtype=torch.float64)])
        dist.all_reduce(sums)
        return sums[0].to(loss.dtype), round(float(sums[1]))


class _StepModule(nn.Module):
    "A step as a module: what lies over processes is entered through a `forward`."

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, step: Step, batch: Any) -> tuple[Tensor, int]:
        return step(self.model, batch)
#| export
class Replicated(Ranks):
    "Data parallel (DDP): every process holds all weights, and gradients meet on the way back."

    def place(self, model: nn.Module) -> nn.Module:
        self._module = DistributedDataParallel(_StepModule(model), broadcast_buffers=False)
        return model

    def compute(self, step: Step, model: nn.Module, batch: Any) -> tuple[Tensor, int]:
        self._left -= 1
        with self._module.no_sync() if self._left > 0 else nullcontext():  # meet once a round
            return self._module(step, batch)

    def add(self, loss: Tensor, tokens: int, gradients: list[Tensor]) -> tuple[Tensor, int]:
        torch._foreach_mul_(gradients, self.size)  # DDP leaves the mean over the processes
        return super().add(loss, tokens, gradients)
#| export
def _whole(part: Tensor, wanted: bool) -> Tensor:
    "All of a tensor that lies over the processes, in main memory; all must ask, in one order."
    if not hasattr(part, "full_tensor"):
        return part
    whole = part.detach().full_tensor()
    return whole.cpu() if wanted else part


def _part(whole: Tensor, like: Tensor) -> Tensor:
    "What this process holds of a tensor that every process has read."
    if not hasattr(like, "full_tensor") or whole.shape != like.shape:
        return whole
    from torch.distributed.tensor import distribute_tensor  # slow to import

    whole = whole.to(like.device)
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    "In the order in which a state counts them."
    return [p for group in optimizer.param_groups for p in group["params"]]
#| export
class Sharded(Ranks):
    """Fully sharded (FSDP2): of every weight, gradient and moment a process holds its part.

    The layers in the model's lists named in `units` are put together one at a time, when they are
    called; what is in no such list is one more unit. `state_dict` and `load_state_dict` of model
    and optimiser speak of whole tensors: all processes must call them, and the first gets them.
    """

    units = ("layers", "encoder")  # a decoder's layers give out keys before they are called

    def place(self, model: nn.Module) -> nn.Module:
        from torch.distributed.fsdp import FSDPModule, fully_shard  # slow to import

        self._module = _StepModule(model)
        mesh = dist.init_device_mesh(next(model.parameters()).device.type, (self.size,))
        layers = [layer for name in self.units for layer in getattr(model, name, ())]
        for unit in (*layers, self._module):
            fully_shard(unit, mesh=mesh)
        for unit in self._module.modules():
            if isinstance(unit, FSDPModule):  # a sum: `add` and the trainer divide
                unit.set_gradient_divide_factor(1.0)
                unit.set_force_sum_reduction_for_comms(True)  # gloo knows no other
        model.register_state_dict_post_hook(self._gather)
        model.register_load_state_dict_pre_hook(self._deal)
        return model

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.register_state_dict_post_hook(self._gather_moments)
        optimizer.register_load_state_dict_pre_hook(self._deal_moments)

    def compute(self, step: Step, model: nn.Module, batch: Any) -> tuple[Tensor, int]:
        return self._module(step, batch)

    def _gather(self, model: nn.Module, state: dict[str, Any], *_: Any) -> None:
        first = {}  # names of one weight stay one tensor
        for name, part in model.named_parameters(remove_duplicate=False):
            whole = _whole(part, self.rank == 0)
            state[name] = first.setdefault(id(part), whole)

    def _deal(self, model: nn.Module, state: dict[str, Any], *_: Any) -> None:
        for name, part in model.named_parameters(remove_duplicate=False):
            if name in state:
                state[name] = _part(state[name], part)

    def _gather_moments(self, optimizer: Any, state: dict[str, Any]) -> dict[str, Any]:
        whole = {
            index: {key: _whole(part, self.rank == 0) for key, part in entries.items()}
            for index, entries in state["state"].items()
        }
        return {**state, "state": whole}

    def _deal_moments(self, optimizer: Any, state: dict[str, Any]) -> dict[str, Any]:
        parameters = _parameters(optimizer)
        parts = {
            index: {key: _part(whole, parameters[index]) for key, whole in entries.items()}
            for index, entries in state["state"].items()
        }
        return {**state, "state": parts}
#| export
@contextmanager
def join(
    device: str = "auto",
    *,
    shard: bool = False,  # FSDP2 instead of DDP
    timeout: float = 1800.0,  # seconds that one process waits for another
) -> Iterator[World]:
    """The world of this process: `ALONE`, or under `torchrun` the processes that it started.

    An error in one ends all: the first process that fails raises what it met, the others leave
    with `SystemExit(2)` and say nothing.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        if shard:
            raise InputError("one process has nobody to share its weights with; use torchrun")
        yield ALONE
        return
    wait = timedelta(seconds=timeout)
    store, rank, size = next(dist.rendezvous("env://", timeout=wait))
    try:
        backend = _pick_backend(device)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=wait)
        yield Sharded() if shard else Replicated()
        dist.destroy_process_group()
    except Exception as error:
        if not _is_first(store):
            raise SystemExit(2) from None
        if "gloo" in str(error) or isinstance(error, dist.DistError):
            raise InputError(
                f"another process than {rank} of {size} has ended or does not answer; "
                "go on with --resume"
            ) from error
        raise


def _pick_backend(device: str) -> str:
    "Who carries the numbers; each process of a machine takes a GPU of its own."
    if pick_device(device).type != "cuda":
        return "gloo"
    if torch.device(device if device != "auto" else "cuda").index is not None:
        raise InputError(f"each process takes a GPU of its own: --device cuda, not {device}")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    return "nccl"


def _is_first(store: dist.Store) -> bool:
    "Whether no process has failed before this one."
    try:
        return store.add("failed", 1) == 1
    except RuntimeError:  # whoever keeps the store has gone
        return False
