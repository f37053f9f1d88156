"""The moments of every member's answers, a few members and rows at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.func import vmap

from wherefrom.laws import Gaussian
from wherefrom.predictive.monte_carlo import SampledMember
from wherefrom.predictive.one_shot.graph import Graph
from wherefrom.predictive.one_shot.moments import Moments
from wherefrom.training import program
from wherefrom.training.network import Network
from wherefrom.training.workers import one_core

Covariance = Literal["diagonal", "low_rank", "full"]
Refresh = Callable[[Network, Tensor], Tensor]

MOST_UNITS = 512  # of a layer whose covariance is followed in full
_CALL_NUMBERS = 2**19  # of one call: about what a core keeps at hand, 2 MB in single precision

_MOST_RECORDS = 8

_PROBES, _PROBES_AT_ONCE = 128, 16  # rows that tell the factors' effects

_directions: WeakKeyDictionary[Gaussian, Tensor] = WeakKeyDictionary()  # (rank, rank), a column for each
_known: WeakKeyDictionary[Network, _Prepared] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Propagated:
    """The moments of all answers, and how their variance within members came about."""

    mean: Tensor  # (members, components, rows, outputs)
    variance: Tensor
    within: Callable[[], dict[str, Tensor]]  # name -> (members, rows, outputs)
    covariance: Covariance


def propagate(
    network: Network,
    members: Sequence[SampledMember],
    x: Tensor,
    *,
    vary_theta: bool,
    vary_mask: bool,
    x_variance: Tensor | None,
    covariance: Covariance,
    rank: int | None,
    refresh: Refresh | None,
) -> Propagated:
    """One pass for each member; the passes that tell t, F and inputs apart are made when they are asked for."""
    if covariance not in get_args(Covariance):
        raise ValueError(f"covariance must be one of {', '.join(map(repr, get_args(Covariance)))}, not {covariance!r}")
    if rank is not None and (covariance != "low_rank" or rank < 1):
        raise ValueError('rank says how many of the shared deviations covariance="low_rank" keeps: 1 or more')
    uncertain = {"t": vary_theta, "F": vary_mask, "inputs": x_variance is not None}
    names = tuple(name for name, is_uncertain in uncertain.items() if is_uncertain)
    job = Passes(network, members, x, x_variance, covariance, refresh, rank)
    mean, variance = job.moments(names)

    def within() -> dict[str, Tensor]:
        totals = {
            chosen: _within(*(job.moments(chosen) if chosen != names else (mean, variance)))
            for chosen in _subsets(names)
        }
        return {
            " x ".join(chosen): sum(
                ((-1) ** (len(chosen) - len(part)) * totals[part] for part in _subsets(chosen)),
                start=torch.zeros((), dtype=torch.float64),
            )
            for chosen in _subsets(names)
        }

    return Propagated(mean, variance, within, covariance)


def _subsets(names: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    return (chosen for size in range(1, len(names) + 1) for chosen in itertools.combinations(names, size))


def _within(mean: Tensor, variance: Tensor) -> Tensor:
    """A member's own variance: of its components' means, and within them."""
    return mean.double().var(1, correction=0) + variance.double().mean(1)


@dataclass(frozen=True, eq=False)
class Passes:
    """Members and rows, for passes in which one or another of their parts is uncertain."""

    network: Network
    members: Sequence[SampledMember]
    x: Tensor
    x_variance: Tensor | None
    covariance: Covariance
    refresh: Refresh | None
    rank: int | None = None

    @one_core()
    def moments(self, uncertain: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Mean and variance of the answers.  # (members, components, rows, outputs)

        A Gaussian law is one component; points are as many as there are, each without a variance of its own.
        """
        network, x = self.network, self.x
        pass_through = _prepared(network).passing(self.covariance, "F" in uncertain)
        x_variance = self.x_variance if "inputs" in uncertain else None
        centres, spreads, factors = self.thetas("t" in uncertain)
        width = network.numbers_per_row * (2 + (0 if factors is None else factors.shape[1]))
        if self.covariance == "full":  # between the units of a layer, which has up to half of the network's numbers
            width += min(network.numbers_per_row // 2, MOST_UNITS) ** 2
        rows_at_once = max(1, min(len(x), _CALL_NUMBERS // max(1, width)))
        together = max(1, min(len(centres), _CALL_NUMBERS // max(1, width * rows_at_once)))
        means, variances = (centres.new_empty(len(centres), len(x), network.outputs) for _ in range(2))
        thetas = [theta for theta in (centres, spreads, factors) if theta is not None]
        with torch.no_grad():
            for first, row in itertools.product(range(0, len(centres), together), range(0, len(x), rows_at_once)):
                some, rows = slice(first, first + together), slice(row, row + rows_at_once)
                noise = None if x_variance is None else x_variance[rows]
                means[some, rows], variances[some, rows] = pass_through(
                    x[rows], noise, *(theta[some] for theta in thetas)
                )
        shape = (len(self.members), -1, len(x), network.outputs)
        return means.reshape(shape), variances.reshape(shape)

    def thetas(self, vary: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Means, variances and factors of theta, one for each component.  # (components, [rank,] size)"""
        laws = [member.law for member in self.members]
        if not vary or not all(isinstance(law, Gaussian) for law in laws):
            points = [_points(member, vary) for member in self.members]
            if len({len(own) for own in points}) > 1:
                raise ValueError("the members' laws have different numbers of points")
            return self._refreshed(torch.cat(points)), None, None
        centres = torch.stack([torch.cat([member.law.mean, member.fixed]) for member in self.members])
        alone, shared = [], []
        for member in self.members:
            law = member.law
            assert isinstance(law, Gaussian)
            has_factors = self.covariance != "diagonal" and len(law.factor) > 0
            alone.append(_padded(member, law.diagonal if has_factors else law.variance))
            if has_factors:
                shared.append(_padded(member, law.factor if self.rank is None else self._leading(member, self.rank)))
        return self._refreshed(centres), torch.stack(alone), torch.stack(shared) if shared else None

    def _leading(self, member: SampledMember, rank: int) -> Tensor:
        """So many combinations of a law's factors, those that move the answers most.  # (rank, size)"""
        law = member.law
        assert isinstance(law, Gaussian)
        if rank >= len(law.factor):
            return law.factor
        if law not in _directions:
            _directions[law] = self._effects(member, law)
        return _directions[law][:, :rank].T @ law.factor

    def _effects(self, member: SampledMember, law: Gaussian) -> Tensor:
        """The directions among a law's factors, by the variance that they give to the answers, largest first.

        On rows drawn from N(0, 1), as x is standardised: they are the law's own, whichever rows are predicted.
        """
        if not self.x.is_floating_point():
            raise ValueError("rank is for networks of measurements; whole numbers are taken as indices")
        rows = torch.randn(_PROBES, *self.x.shape[1:], generator=torch.Generator().manual_seed(0)).to(self.x)
        spread, factor = _padded(member, law.diagonal), _padded(member, law.factor)
        theta = tensors_of(self.network, torch.cat([law.mean, member.fixed]), spread, factor)
        prepared = _prepared(self.network)
        moved = []
        for some in rows.split(_PROBES_AT_ONCE):
            out = prepared.graph.run(Moments(some), theta, rates_of(self.network, vary_mask=False))
            assert out.factors is not None
            moved.append((out.factors * out.total_variance.clamp_min(1e-30).rsqrt()).flatten(1))
        effects = torch.cat(moved, dim=1).double()
        return torch.linalg.eigh(effects @ effects.T).eigenvectors.flip(1).to(law.factor)

    def _refreshed(self, theta: Tensor) -> Tensor:
        return theta if self.refresh is None else self.refresh(self.network, theta)


class _Prepared:
    """A network's graph, and its passes as programs. For one thread at a time."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.graph = Graph(network.skeleton(False))
        self.passes: dict[tuple[Covariance, bool], _Pass] = {}

    def passing(self, covariance: Covariance, vary_mask: bool) -> _Pass:
        key = covariance, vary_mask
        if key not in self.passes:
            self.passes[key] = _Pass(partial(self._answer, covariance, rates_of(self.network, vary_mask)))
        return self.passes[key]

    def _answer(
        self, covariance: Covariance, rates: Sequence[float], rows: Tensor, noise: Tensor | None, *theta: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One member's mean and variance.  # (rows, outputs)"""
        given = Moments(rows, noise)
        if covariance == "full":
            given = with_covariance(given)
        out = self.graph.run(given, tensors_of(self.network, *theta), rates)
        shape = (len(rows), self.network.outputs)
        return out.mean.reshape(shape), out.total_variance.reshape(shape)


class _Pass:
    """A pass of several members, recorded when it is called with the same shapes a second time.

    The memory of what it returns is used again by the next call.
    """

    def __init__(self, answer: Callable[..., tuple[Tensor, Tensor]]) -> None:
        self.answer = answer
        self.recorded: dict[Any, tuple[list[Tensor], program.Program] | None] = {}

    def __call__(self, rows: Tensor, noise: Tensor | None, *thetas: Tensor) -> tuple[Tensor, Tensor]:
        given = [rows, *thetas] if noise is None else [rows, noise, *thetas]
        call = partial(self._call, noise is not None)
        key = (noise is not None, *((tensor.shape, tensor.dtype) for tensor in given))
        if key not in self.recorded:
            if len(self.recorded) >= _MOST_RECORDS:
                self.recorded.clear()
            self.recorded[key] = None
            return call(*given)
        known = self.recorded[key]
        if known is None:
            memory = [tensor.clone() for tensor in given]
            known = self.recorded[key] = memory, program.record(call, tuple(memory))
        memory, recorded = known
        for kept, new in zip(memory, given, strict=True):
            kept.copy_(new)
        recorded()
        return recorded.results

    def _call(self, has_noise: bool, rows: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
        noise, thetas = (others[0], others[1:]) if has_noise else (None, others)
        return vmap(lambda *theta: self.answer(rows, noise, *theta))(*thetas)


def _prepared(network: Network) -> _Prepared:
    own = network.private("one shot")
    if own not in _known:
        _known[own] = _Prepared(own)
    return _known[own]


def rates_of(network: Network, vary_mask: bool) -> list[float]:
    """The rate of every call of dropout; what is not marginalised, or never drops, is the identity."""
    sites = iter(network.sites)
    return [next(sites).rate if drops and vary_mask else 0.0 for drops in network.drops]


def _points(member: SampledMember, vary: bool) -> Tensor:
    """The points of a law that has any, or its mean."""
    points = member.law.tensors().get("points") if vary else None
    own = member.law.mean.unsqueeze(0) if points is None else points
    return torch.cat([own, member.fixed.expand(len(own), -1)], dim=1)


def _padded(member: SampledMember, spread: Tensor) -> Tensor:
    """With zeros for what no law speaks of."""
    if not len(member.fixed):
        return spread
    return torch.cat([spread, spread.new_zeros(*spread.shape[:-1], len(member.fixed))], dim=-1)


def tensors_of(
    network: Network, centre: Tensor, spread: Tensor | None = None, factor: Tensor | None = None
) -> dict[str, Moments]:
    """One member's tensors: what is trained is uncertain, buffers and frozen parameters are not."""
    layout = network.layout
    certain = {name: Moments(tensor) for name, tensor in (layout.views(centre) | network.constants).items()}
    if spread is None:
        return certain
    spreads = layout.views(spread)
    factors = {} if factor is None else layout.views(factor)
    return certain | {
        name: Moments(certain[name].mean, spreads[name], factors.get(name)) for name in layout.names[: layout.trained]
    }


def with_covariance(x: Moments) -> Moments:
    units = x.mean.shape[-1]
    if x.mean.ndim != 2 or units > MOST_UNITS:
        raise ValueError(
            f'covariance="full" is for networks of layers with up to {MOST_UNITS} units; the input has shape '
            f'{tuple(x.mean.shape[1:])}. Use "low_rank" or "diagonal"'
        )
    variance = torch.zeros_like(x.mean) if x.variance is None else x.variance
    return Moments(x.mean, variance, x.factors, torch.diag_embed(variance))
