"""Training one member by several processes: each computes the gradient on a part of every batch.

    loss of a batch      sum_k (rows_k / rows) loss_k          loss_k: the mean over the rows of process k
    its gradient         the mean over processes of the gradients of (processes * rows_k / rows) loss_k

That mean is what torch's DistributedDataParallel computes while gradients still arrive. Every process has all weights,
draws the same orders and masks, and takes the same step. So a member is that of one process, up to rounding.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn

from wherefrom.training.cohort import Cohort, Trainee, parts

_MINUTES = 10  # that a process waits for the others before it gives up
_GLOO = "gloo/transport"  # in what gloo says of lost connections, as a plain RuntimeError


class PartnerLostError(RuntimeError):
    """Another process of the same member has ended."""


@dataclass(frozen=True)
class Share:
    """The part of one process in the training of a member.

    number: of this process, from 0; the first one writes checkpoints and returns the member.
    count: of processes.
    """

    number: int
    count: int

    @property
    def is_first(self) -> bool:
        return self.number == 0

    def rows(self, rows: int) -> tuple[slice, float]:
        """Return the rows of a batch that this process takes, and the weight of their loss in the mean over processes.

        A process without a row takes the first one, with weight 0: it has to take part in the exchange of gradients.

        >>> Share(0, 2).rows(5), Share(1, 2).rows(5), Share(0, 2).rows(1)
        ((slice(0, 2, None), 0.8), (slice(2, 5, None), 1.2), (slice(0, 1, None), 0.0))
        """
        part = parts(rows, self.count)[self.number]
        return slice(part.start, part.stop) if part else slice(0, 1), self.count * len(part) / rows

    def check_same(self, epochs: int, device: torch.device) -> None:
        """Raise unless all processes go on from the same epoch."""
        counts = torch.tensor([epochs, -epochs], device=device)
        distributed.all_reduce(counts, op=distributed.ReduceOp.MAX)
        if int(counts[0]) != -int(counts[1]):
            raise RuntimeError(
                f"processes of one member begin after {-int(counts[1])} and after {int(counts[0])} epochs: the folder "
                "of the checkpoints must be one that all nodes see"
            )

    def total(self, value: float, device: torch.device) -> float:
        """Return the sum of a number over the processes."""
        number = torch.tensor([value], dtype=torch.float64 if device.type == "cpu" else torch.float32, device=device)
        distributed.all_reduce(number)
        return float(number)


def check_can_be_shared(cohort: Cohort) -> None:
    """Raise if the loss of a batch is not a mean over rows that can be computed one by one."""
    layout = cohort.network.layout
    if layout.moving:
        names = layout.names[layout.trained : layout.trained + layout.moving]
        raise ValueError(
            f"{names[0]} is computed from whole batches (batch normalisation), but each of several processes of a "
            "member sees a part: use another normalisation, such as nn.GroupNorm, or processes_per_member=1"
        )


@contextmanager
def joined(share: Share, device: torch.device, meet: Callable[[str | None], str], host: str) -> Iterator[None]:
    """Connect with the other processes of a member, for the time of its training.

    meet: tells the address of the first process, which calls it with that address; the others call it with None.
    host: address of this machine, as the others see it.
    """
    wait = timedelta(minutes=_MINUTES)
    try:
        if share.is_first:
            store = distributed.TCPStore(host, 0, share.count, True, wait, wait_for_workers=False)
            meet(f"{host}:{store.port}")
        else:
            address, _, port = meet(None).rpartition(":")
            store = distributed.TCPStore(address, int(port), share.count, False, wait)
        distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=share.number,
            world_size=share.count,
            timeout=wait,
        )
        yield
    except RuntimeError as error:
        if isinstance(error, distributed.DistError) or _GLOO in str(error):
            raise PartnerLostError(f"another process of this member has ended: {error}") from error
        raise
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


class _Loss(nn.Module):
    """The loss of one member on its part of a batch, with its trained tensors as parameters, for torch to watch.

    The parameters share the memory of theta: a step that changes theta changes them.
    """

    def __init__(self, cohort: Cohort, member: Trainee, theta: Tensor) -> None:
        super().__init__()
        self.cohort, self.loss, self.network = cohort, cohort.loss_of(member), cohort.network.private("training")
        layout = self.network.layout
        tensors = layout.views(theta)
        self.names = layout.names[: layout.trained]
        self.rest = {name: tensors[name] for name in layout.names[layout.trained :]}
        self.weights = nn.ParameterList([nn.Parameter(tensors[name]) for name in self.names])

    def forward(self, x: Tensor, y: Tensor, row_weights: Tensor | None, masks: list[Tensor]) -> Tensor:
        tensors = dict(zip(self.names, self.weights, strict=True)) | self.rest
        autocast = self.cohort.autocast
        with torch.autocast(y.device.type, autocast, autocast is not None, cache_enabled=False):
            outputs = self.network.call(tensors, x, masks, True)
        return self.loss(outputs.to(self.weights[0].dtype), y, row_weights)


def shared_step(cohort: Cohort, member: Trainee, theta: Tensor, share: Share) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return what `torch_engine._step` returns, computed by all processes together.  # theta (1, size)"""
    check_can_be_shared(cohort)
    module = _Loss(cohort, member, theta[0])
    # Parameters that do not reach the loss have a gradient of zero, as they have with one process.
    together = nn.parallel.DistributedDataParallel(module, find_unused_parameters=True)

    def step(
        theta: Tensor, x: Tensor, y: Tensor, row_weights: list[Tensor], masks: list[Tensor], gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        some, weight = share.rows(y.shape[1])
        weights: Any = row_weights[0][0, some].squeeze(-1) if row_weights else None
        own_masks = [mask[0] if mask.shape[1] == 1 else mask[0, some] for mask in masks]  # one of weights has one row
        together.zero_grad(set_to_none=True)
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "find_unused_parameters=True was specified")
            loss = together(x[0, some], y[0, some], weights, own_masks) * weight
            loss.backward()
        gradients = (p.grad if p.grad is not None else torch.zeros_like(p) for p in module.weights)
        torch.cat([each.reshape(1, -1) for each in gradients], dim=1, out=gradient)
        total = loss.detach().reshape(1) / share.count
        distributed.all_reduce(total)
        return total, theta[:, :0]

    return step
