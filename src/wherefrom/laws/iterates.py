"""What is gathered along many trajectories at once: running moments, and some iterates as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from wherefrom.laws.law import Law


class Iterates:
    """Running mean and variance of the collected iterates, if wanted, and those that have a place to be kept in.

    `places` has one entry for each iterate to come: a number below the count of points, or -1. A later iterate in the
    same place takes the earlier one's. Whoever trains may fill the tensors in its own way, and its own order of
    coordinates, and say so at the end by `filled`; `finish` then makes the laws.
    """

    def __init__(
        self, theta: Tensor, places: Sequence[int], moments: bool, finish: Callable[[Iterates], list[Law]]
    ) -> None:
        members, size = theta.shape
        self.count, self.places, self.finish = 0, tuple(places), finish
        rows = members if moments else 0
        self.mean = theta.new_zeros(rows, size)
        self.squares = theta.new_zeros(rows, size)  # sums of squared deviations from the running mean (Welford)
        self.points = theta.new_zeros(members, max(places, default=-1) + 1, size)

    def collect(self, theta: Tensor) -> None:
        if (place := self.places[self.count]) >= 0:
            self.points[:, place] = theta
        self.count += 1
        if len(self.mean):
            change = theta - self.mean
            self.mean.add_(change, alpha=1 / self.count)
            self.squares.addcmul_(change, theta - self.mean)

    def filled(self, place: Tensor) -> Iterates:
        """The same after all iterates were written into its tensors from outside, coordinate k at place[k]."""
        self.count = len(self.places)
        self.mean, self.squares, self.points = (
            tensor.index_select(-1, place) for tensor in (self.mean, self.squares, self.points)
        )
        return self

    def laws(self) -> list[Law]:
        return self.finish(self)
