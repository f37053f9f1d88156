"""The members of a posterior as they predict: those with the same network together, on rows scaled for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wherefrom.laws import needs_statistics
from wherefrom.posterior.members import network_of
from wherefrom.predictive import batch_norm
from wherefrom.predictive.monte_carlo import SampledMember
from wherefrom.training.network import Network

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Group:
    """Members with the same network."""

    network: Network
    places: tuple[int, ...]  # in the mixture
    members: tuple[SampledMember, ...]


def groups(posterior: Posterior) -> list[Group]:
    """The members of each network."""
    found: dict[Network, list[int]] = {}
    for place, component in enumerate(posterior.mixture):
        found.setdefault(network_of(posterior.networks, component.run), []).append(place)
    laws = posterior.laws()

    def sampled(network: Network, place: int) -> SampledMember:
        component = posterior.mixture[place]
        return SampledMember(laws[place], component.trained.last[network.layout.varying_size :], component.run.name)

    return [
        Group(network, tuple(places), tuple(sampled(network, place) for place in places))
        for network, places in found.items()
    ]


def assembled(parts: Mapping[Group, Tensor]) -> Tensor:
    """What each group found for its members, in the order of the mixture.  # (members, ...)"""
    if len(parts) == 1:
        return next(iter(parts.values()))
    order = torch.tensor([place for group in parts for place in group.places])
    return torch.cat(list(parts.values()))[order.argsort()]


def inputs(posterior: Posterior, x: Any) -> Tensor:
    """Rows as the networks take them: checked, scaled, and where they are."""
    return posterior.scaler.x(posterior.schema.inputs(x), posterior.dtype).to(posterior.device)


def refreshing(posterior: Posterior, group: Group) -> Callable[[Network, Tensor], Tensor] | None:
    """How to bring the running statistics of batch normalisation in line with sampled weights, if need be."""
    if not group.network.momenta or not any(needs_statistics(member.law) for member in group.members):
        return None  # points of a trajectory carry their own statistics
    if posterior.rows is None:
        raise ValueError(
            "batch normalisation needs training rows for every sample of the weights, and a run holds no data: "
            "give it again, as wf.load(folder, model, data=(x, y)) or from_members(..., data=(x, y))"
        )
    augment, known, scaler = posterior.training.augment, posterior.statistics, posterior.scaler
    rows = batch_norm.TrainingRows(posterior.rows.x, scaler, posterior.dtype, posterior.device, augment, posterior.seed)
    number = known.number(posterior.rows, scaler, augment, group.network)
    return lambda network, theta: batch_norm.refresh(network, theta, rows, known, number)
