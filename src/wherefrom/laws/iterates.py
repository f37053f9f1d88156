"""Running moments of many trajectories at once, and some of their iterates.

All of it lies beside theta, if there is room. On a device that has less, the iterates lie in pinned main memory, to
which they are copied while training goes on, and if need be the moments in main memory, too. Nothing is there twice:
new tensors of theta's size are made a block of columns at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from wherefrom.devices import can_pin, fits, wait_for
from wherefrom.laws.law import Law
from wherefrom.laws.on_disk import put_on_disk, zeros_on_disk

_BLOCK_NUMBERS = 2**20  # that are copied or computed at a time: 4 MB in single precision


class Iterates:
    """Running mean and variance of the collected iterates, if wanted, and some of the iterates themselves.

    `points_of` has one entry for each iterate to come: the number of the point that it is kept as, or -1. A later
    iterate overwrites an earlier one with the same number. An engine may fill the tensors itself, with coordinates in
    another order, and say so at the end by `filled`; `make` then makes the laws.

    Points are kept in the precision that is given. Where that is less than theta's own, they are kept as differences
    from a reference, since steps are small where weights may be large: `points[:, k]` is theta_k - `reference`, the
    running mean when the first of them came (or that first one itself, if nothing came before).
    """

    state = ("count", "mean", "squares", "reference", "points")

    def __init__(
        self,
        theta: Tensor,
        points_of: Sequence[int],
        moments: bool,
        make: Callable[[Iterates], list[Law]],
        precision: torch.dtype | None = None,
        on_disk: bool = False,
    ) -> None:
        members, size = theta.shape
        self.on_disk = on_disk  # the points
        self.count, self.points_of, self.make = 0, tuple(points_of), make
        rows, kept = members if moments else 0, max(points_of, default=-1) + 1
        self.first = next((number for number, point in enumerate(points_of) if point >= 0), -1)  # that is kept
        precision = precision or theta.dtype
        self.rounds = kept > 0 and precision.itemsize < theta.dtype.itemsize
        precision = precision if self.rounds else theta.dtype
        differences = members if self.rounds else 0
        moments_size = (2 * rows + differences) * size * theta.dtype.itemsize
        points_size = members * kept * size * precision.itemsize
        self.device, cpu = theta.device, torch.device("cpu")
        beside = self.device if fits(moments_size, self.device) else cpu
        self.mean = torch.zeros(rows, size, dtype=theta.dtype, device=beside)
        self.squares = torch.zeros_like(self.mean)  # sums of squared deviations from the running mean (Welford)
        self.reference = torch.zeros(differences, size, dtype=theta.dtype, device=beside)
        if on_disk:
            self.points = zeros_on_disk((members, kept, size), precision)
            return
        fit = beside == self.device and fits(moments_size + points_size, self.device)
        self.points = torch.zeros(
            *(members, kept, size),
            dtype=precision,
            device=self.device if fit else cpu,
            pin_memory=not fit and can_pin(self.device),
        )

    def collect(self, theta: Tensor) -> None:
        for columns in blocks(*theta.shape):
            self._collect(theta[:, columns].to(self.mean.device), columns)
        self.count += 1

    def _collect(self, theta: Tensor, columns: slice) -> None:
        mean, reference = self.mean[:, columns], self.reference[:, columns]
        if (point := self.points_of[self.count]) >= 0:
            if self.rounds and self.count == self.first:
                reference.copy_(mean if self.count and len(mean) else theta)
            self._keep(theta - reference if self.rounds else theta, point, columns)
        if len(mean):
            change = theta - mean
            mean.add_(change, alpha=1 / (self.count + 1))
            self.squares[:, columns].addcmul_(change, theta - mean)

    def _keep(self, theta: Tensor, point: int, columns: slice) -> None:
        if self.points.device == theta.device:
            self.points[:, point, columns] = theta
            return
        # One member at a time, whose numbers lie together: copies to other memory would be waited for.
        for points, one in zip(self.points, theta.to(self.points.dtype), strict=True):
            points[point, columns].copy_(one, non_blocking=True)

    def filled(self, positions: Tensor) -> Iterates:
        """Return it after all iterates were written into its tensors from outside, coordinate k at positions[k]."""
        self.count = len(self.points_of)
        self.mean, self.squares, self.points = (
            tensor.index_select(-1, positions) for tensor in (self.mean, self.squares, self.points)
        )
        self.points = put_on_disk(self.points) if self.on_disk else self.points
        return self

    def laws(self) -> list[Law]:
        """Make the laws, in main memory."""
        wait_for(self.device)
        self.mean, self.squares, self.reference, self.points = (
            tensor.cpu() for tensor in (self.mean, self.squares, self.reference, self.points)
        )
        return self.make(self)


def blocks(rows: int, size: int) -> Iterator[slice]:
    """Columns of a (rows, size) tensor, in small blocks."""
    step = max(1, _BLOCK_NUMBERS // max(1, rows))
    return (slice(first, min(first + step, size)) for first in range(0, size, step))
