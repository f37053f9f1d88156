"""The members of a posterior as they predict: those with the same network together, on rows scaled for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wherefrom.laws import needs_statistics
from wherefrom.posterior.member import network_of
from wherefrom.predictive import batch_norm
from wherefrom.predictive.monte_carlo import RandomTheta
from wherefrom.training.network import Network
from wherefrom.training.workers import check_default_device

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Group:
    """Members with the same network, or with the same head of it, which takes features in place of rows."""

    network: Network
    whole: Network  # the same, if there is no frozen part that comes first
    numbers: tuple[int, ...]  # of its members in the mixture
    thetas: tuple[RandomTheta, ...]

    def seen(self, rows: Tensor) -> Tensor:
        """Return rows as the network takes them: as they are, or their features."""
        return rows if self.network is self.whole else self.whole.features(rows).to(rows.device)


def groups(posterior: Posterior, *, whole: bool = False) -> list[Group]:
    """List the members of each network.

    whole: take networks from their inputs on, also where a frozen part comes first (default False).
    """
    by_network: dict[Network, list[int]] = {}
    for number, member in enumerate(posterior.mixture):
        by_network.setdefault(network_of(posterior.networks, member.run), []).append(number)
    laws = posterior.laws()

    def theta(network: Network, number: int) -> RandomTheta:
        member = posterior.mixture[number]
        return RandomTheta(laws[number], member.trained.last[network.layout.varying_size :], member.run.name)

    return [
        Group(
            network if whole or network.head is None else network.head,
            network,
            tuple(numbers),
            tuple(theta(network, number) for number in numbers),
        )
        for network, numbers in by_network.items()
    ]


def assembled(parts: Mapping[Group, Tensor]) -> Tensor:
    """Put what each group has for its members into the order of the mixture.  # (members, ...)"""
    if len(parts) == 1:
        return next(iter(parts.values()))
    order = torch.tensor([number for group in parts for number in group.numbers])
    return torch.cat(list(parts.values()))[order.argsort()]


def inputs(posterior: Posterior, x: Any) -> Tensor:
    """Return rows as the networks take them: checked, scaled, and on the networks' device."""
    check_default_device()
    schema, rows = posterior.schema, posterior.schema.inputs(x)
    columns = schema.x_shape[0] if len(schema.x_shape) == 1 else 0
    if (offset := posterior.training.likelihood.offset(schema.x_names, columns, schema.targets)) is not None:
        scaler = posterior.scaler
        offset.check(rows, schema.x_names, float(scaler.x_std[offset.column]) if scaler.scales_x else None)
    return posterior.scaler.x(rows, posterior.dtype).to(posterior.device)


def refreshing(posterior: Posterior, group: Group) -> batch_norm.Refresh | None:
    """Return what brings the running statistics of batch normalisation in line with sampled weights, if need be."""
    if not group.network.momenta or not any(needs_statistics(theta.law) for theta in group.thetas):
        return None  # points of a trajectory carry their own statistics
    if posterior.rows is None:
        raise ValueError(
            "batch normalisation needs training rows for every sample of the weights, and a run holds no data: "
            "give it again, as wf.load(folder, model, data=(x, y)) or from_members(..., data=(x, y))"
        )
    augment, statistics, scaler = posterior.training.augment, posterior.statistics, posterior.scaler
    front = None if group.network is group.whole else group.whole
    rows = batch_norm.TrainingRows(
        posterior.rows.x, scaler, posterior.dtype, posterior.device, augment, posterior.seed, front
    )
    number = statistics.number(posterior.rows, scaler, augment, group.network)
    return partial(batch_norm.refresh, rows=rows, cache=statistics, number=number)
