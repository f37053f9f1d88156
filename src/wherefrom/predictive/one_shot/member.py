"""One member's pass: what of it is uncertain, and what its uncertain parts share.

With low-rank covariance, three things move many numbers of the network at once and are carried as shared factors: the
deviations of theta's law, the noise of each input, which all units of the first layer see, and the masks of whole
channels, which all positions of a channel see. All of them have their places in one row of factors:

    theta's  |  one for each input  |  one for each channel of every site that drops channels
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor

from wherefrom.predictive.one_shot.graph import Drop, Graph, NoRuleError, dropped
from wherefrom.predictive.one_shot.heads import probabilities
from wherefrom.predictive.one_shot.moments import MOST_UNITS, Moments
from wherefrom.training.network import Network

Covariance = Literal["diagonal", "low_rank", "full"]
Head = Literal["identity", "softmax", "none"]  # "none": outputs' moments do not give what is predicted

_MOST_FACTORS = 128  # of the inputs and of channels, beside theta's own; those that are more are taken as independent


@dataclass(frozen=True)
class Uncertain:
    """The parts that are uncertain in a pass, and how their covariance is followed."""

    covariance: Covariance
    masks: bool
    inputs: bool
    head: Head = "identity"  # what is applied to the network's outputs


@dataclass(frozen=True)
class Places:
    """Indices of the shared factors of a pass."""

    theta: int
    inputs: int
    channels: tuple[int, ...]  # of every call of dropout; zero where single entries are dropped, or nothing

    @classmethod
    def of(cls, graph: Graph, network: Network, what: Uncertain, theta: int, x_shape: tuple[int, ...]) -> Places:
        calls = _calls(graph, network)
        if what.covariance != "low_rank":
            return cls(theta, 0, tuple(0 for _ in calls))
        inputs = math.prod(x_shape) if what.inputs and math.prod(x_shape) <= _MOST_FACTORS else 0
        channels = [_channels(shape) if what.masks and rate else 0 for rate, shape in calls]
        if inputs + sum(channels) > _MOST_FACTORS:
            channels = [0 for _ in calls]
        return cls(theta, inputs, tuple(channels))

    @property
    def total(self) -> int:
        return self.theta + self.inputs + sum(self.channels)


def graph_of(network: Network, theta: Tensor) -> Graph:
    """The network's graph, as one member's weights show it."""
    rows = network.probe_rows.to(theta.device, theta.dtype if network.probe_rows.is_floating_point() else None)
    return Graph(network.skeleton(False), network.layout.views(theta) | network.in_common, rows)


def run(
    graph: Graph, network: Network, what: Uncertain, rows: Tensor, noise: Tensor | None, *theta: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and variance of a member's answers; theta is its mean and, where it has any, variances and factors.

    # (rows, outputs)
    """
    rank = theta[2].shape[0] if len(theta) > 2 else 0
    places = Places.of(graph, network, what, rank, tuple(rows.shape[1:]))
    tensors = tensors_of(network, what.masks, *theta)
    if places.total > rank:
        tensors = {name: _padded(part, places.total) for name, part in tensors.items()}
    given = Moments(rows, noise)
    if what.covariance == "full":
        given = _with_covariance(given)
    elif places.inputs and noise is not None:
        given = _with_shared_inputs(rows, noise, places)
    out = graph.run(given, tensors, drops_of(graph, network, what.masks, places), jointly=what.head == "softmax")
    out = probabilities(out) if what.head == "softmax" else out
    shape = (-1, network.outputs)
    return out.mean.reshape(shape), out.total_variance.reshape(shape)


def tensors_of(
    network: Network, vary_mask: bool, centre: Tensor, spread: Tensor | None = None, factor: Tensor | None = None
) -> dict[str, Moments]:
    """One member's tensors: what is trained is uncertain, or dropped; other buffers than running statistics, and frozen
    parameters, are certain."""
    layout = network.layout
    moments = {name: Moments(tensor) for name, tensor in (layout.views(centre) | network.in_common).items()}
    if spread is not None:
        spreads = layout.views(spread)
        factors = {} if factor is None else layout.views(factor)
        for name in layout.names[: layout.trained]:
            moments[name] = Moments(moments[name].mean, spreads[name], factors.get(name))
        for name in network.momenta if factors else ():  # running statistics
            moments[name] = Moments(moments[name].mean, None, factors[name])
    for site in network.sites:
        if site.weight and vary_mask:
            moments[site.weight] = dropped(moments[site.weight], Drop(site.rate))
    return moments


def drops_of(graph: Graph, network: Network, vary_mask: bool, places: Places | None = None) -> list[Drop]:
    """Return every call of dropout and of attention; what is not marginalised, or never drops, is the identity."""
    calls = _calls(graph, network)
    if places is None:
        return [Drop(rate if vary_mask else 0.0) for rate, _ in calls]
    before = accumulate(places.channels, initial=places.theta + places.inputs)
    return [
        Drop(rate if vary_mask else 0.0, first if own else None, places.total)
        for (rate, _), own, first in zip(calls, places.channels, before, strict=False)
    ]


def _calls(graph: Graph, network: Network) -> list[tuple[float, tuple[int, ...]]]:
    """The rate and the shape of one row's mask at every call of dropout, or of attention, in a forward pass."""
    sites, drops, attends = iter(network.sites), iter(network.drops), iter(network.attends)
    rates = []
    for is_attention in graph.are_attention:
        site = next(sites) if next(attends if is_attention else drops) else None
        rates.append((site.rate, site.shape) if site else (0.0, ()))
    if next(drops, None) is not None or next(attends, None) is not None:
        raise NoRuleError("a layer with its own rule holds dropout, which the rule hides: use predict(x, samples=...)")
    return rates


def _channels(shape: tuple[int, ...]) -> int:
    """Number of channels that a mask drops as a whole."""
    return shape[0] if len(shape) > 1 and math.prod(shape[1:]) == 1 else 0


def _padded(x: Moments, total: int) -> Moments:
    """Pad with zeros for the factors of others."""
    if x.factors is None:
        return x
    none = x.factors.new_zeros(total - len(x.factors), *x.factors.shape[1:])
    return Moments(x.mean, x.variance, torch.cat([x.factors, none]))


def _with_shared_inputs(rows: Tensor, noise: Tensor, places: Places) -> Moments:
    """Make the noise of each input a separate factor."""
    own = torch.diag_embed(noise.sqrt().flatten(1)).movedim(-1, 0).unflatten(-1, rows.shape[1:])
    before = rows.new_zeros(places.theta, *rows.shape)
    after = rows.new_zeros(places.total - places.theta - places.inputs, *rows.shape)
    return Moments(rows, None, torch.cat([before, own, after]))


def _with_covariance(x: Moments) -> Moments:
    units = x.mean.shape[-1]
    if x.mean.ndim != 2 or units > MOST_UNITS:
        raise ValueError(
            f'covariance="full" is for networks of layers with up to {MOST_UNITS} units; the input has shape '
            f'{tuple(x.mean.shape[1:])}. Use "low_rank" or "diagonal"'
        )
    variance = torch.zeros_like(x.mean) if x.variance is None else x.variance
    return Moments(x.mean, variance, x.factors, torch.diag_embed(variance))
