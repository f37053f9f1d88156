"""The moments of every member's answers, a few members and rows at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.func import vmap

from wherefrom.laws import Gaussian, Law, Rotated
from wherefrom.predictive.batch_norm import Refresh, Sampled, moved_statistics
from wherefrom.predictive.monte_carlo import Plan, RandomTheta, outputs
from wherefrom.predictive.one_shot.graph import Graph, NoRuleError
from wherefrom.predictive.one_shot.member import (
    Covariance,
    Head,
    Places,
    Uncertain,
    drops_of,
    graph_of,
    run,
    tensors_of,
)
from wherefrom.predictive.one_shot.moments import MOST_UNITS, Moments
from wherefrom.training import program
from wherefrom.training.network import Network
from wherefrom.training.precision import agree, tolerance
from wherefrom.training.workers import one_core

_CALL_NUMBERS = 2**19  # of one call: about what a core keeps at hand, 2 MB in single precision

_MOST_RECORDS = 8

_PROBES, _PROBES_AT_ONCE = 128, 16  # rows that tell the factors' effects

_NO_STATISTICS = (
    "batch normalisation takes its running statistics anew for every sample of the weights, which one-shot follows for "
    "weights that move together, as those of SWAG do, not for independent ones alone: probabilities were up to 0.6 "
    "off. Use predict(x, samples=...)"
)

_directions: WeakKeyDictionary[Gaussian, Tensor] = WeakKeyDictionary()  # (rank, rank), a column for each


@dataclass(frozen=True, eq=False)
class Propagated:
    """The moments of all answers, and how their variance within members came about."""

    mean: Tensor  # (members, components, rows, outputs)
    variance: Tensor
    within: Callable[[], dict[str, Tensor]]  # name -> (members, rows, outputs)
    covariance: Covariance


def propagate(
    network: Network,
    members: Sequence[RandomTheta],
    x: Tensor,
    *,
    vary_theta: bool,
    vary_mask: bool,
    x_variance: Tensor | None,
    covariance: Covariance,
    rank: int | None,
    probes: Tensor | None,
    refresh: Refresh | None,
    head: Head,
) -> Propagated:
    """One pass for each member; the passes that tell t, F and inputs apart are made when they are asked for."""
    if covariance not in get_args(Covariance):
        raise ValueError(f"covariance must be one of {', '.join(map(repr, get_args(Covariance)))}, not {covariance!r}")
    if rank is not None and (covariance != "low_rank" or isinstance(rank, bool) or int(rank) != rank or rank < 1):
        raise ValueError('rank says how many of the shared deviations covariance="low_rank" keeps: a whole number')
    uncertain = {"t": vary_theta, "F": vary_mask, "inputs": x_variance is not None}
    names = tuple(name for name, is_uncertain in uncertain.items() if is_uncertain)
    is_random = (vary_theta and any(member.law.is_random for member in members)) or (vary_mask and network.sites)
    if x_variance is None and not is_random:  # as families are that fit themselves: their answers are exact
        mean = outputs(network, members, Plan(1, False, False), x, 0, refresh)
        mean = torch.softmax(mean, -1) if head == "softmax" else mean
        none = torch.zeros_like(mean)
        by_name = {" x ".join(chosen): _within(mean, none) for chosen in _subsets(names)}
        return Propagated(mean, none, lambda: by_name, covariance)
    job = Passes(network, members, x, x_variance, covariance, refresh, rank, probes, head)
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
    members: Sequence[RandomTheta]
    x: Tensor
    x_variance: Tensor | None
    covariance: Covariance
    refresh: Refresh | None
    rank: int | None = None
    probes: Tensor | None = None  # rows that tell which factors matter most, where x is not standardised
    head: Head = "identity"  # what is applied to the network's outputs

    @one_core()
    def moments(self, uncertain: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Mean and variance of the answers.  # (members, components, rows, outputs)

        A Gaussian law is one component; points are as many as there are, each without its own variance.
        """
        network, x = self.network, self.x
        what = Uncertain(self.covariance, "F" in uncertain, "inputs" in uncertain, self.head)
        prepared = self._prepared()
        pass_through = prepared.passing(what)
        x_variance = self.x_variance if what.inputs else None
        centres, spreads, factors = self.thetas("t" in uncertain)
        rank = 0 if factors is None else factors.shape[1]
        width = network.numbers_per_row * (2 + Places.of(prepared.graph, network, what, rank, tuple(x.shape[1:])).total)
        if self.covariance == "full":  # between the units of a layer, which has up to half of the network's numbers
            width += min(network.numbers_per_row // 2, MOST_UNITS) ** 2
        rows_at_once = max(1, min(len(x), _CALL_NUMBERS // max(1, width)))
        together = max(1, min(len(centres), _CALL_NUMBERS // max(1, width * rows_at_once)))
        shape = len(centres), len(x), network.outputs
        means, variances = (torch.empty(shape, dtype=centres.dtype, device="cpu") for _ in range(2))  # as samples are
        thetas = [theta for theta in (centres, spreads, factors) if theta is not None]
        with torch.no_grad():
            for first, row in itertools.product(range(0, len(centres), together), range(0, len(x), rows_at_once)):
                some, rows = slice(first, first + together), slice(row, row + rows_at_once)
                noise = None if x_variance is None else x_variance[rows]
                some_thetas = [theta[some] for theta in thetas]
                # What is recorded keeps all of its memory: too much where one row is more than a call should be.
                answer = pass_through if width <= _CALL_NUMBERS else pass_through.once
                means[some, rows], variances[some, rows] = answer(x[rows], noise, *some_thetas)
        by_member = (len(self.members), -1, len(x), network.outputs)
        return means.reshape(by_member), variances.reshape(by_member)

    def thetas(self, vary: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Means, variances and factors of theta, one for each component.  # (components, [rank,] size)"""
        laws = [member.law for member in self.members]
        if vary and self.covariance == "diagonal":
            laws = [_independent(law) for law in laws]
        elif vary and any(isinstance(law, Rotated) for law in laws):
            raise NoRuleError(
                "one-shot prediction does not follow a covariance within layers, as that of Laplace with "
                'structure="kron" or "last_layer": use predict(x, method="linearised"), predict(x, samples=...), or '
                'covariance="diagonal"'
            )
        if not vary or not all(isinstance(law, Gaussian) for law in laws):
            points = [_points(member, vary) for member in self.members]
            if len({len(each) for each in points}) > 1:
                raise NoRuleError("the members' laws have different numbers of points: predict(x, samples=...)")
            sampled = [
                Sampled(member.law, number=k if len(each) > 1 else -1)
                for member, each in zip(self.members, points, strict=True)
                for k in range(len(each))
            ]
            return self._refreshed(torch.cat(points), sampled), None, None
        centres = torch.stack([_centre(member) for member in self.members])
        alone, shared = [], []
        for member, law in zip(self.members, laws, strict=True):
            assert isinstance(law, Gaussian)
            if self.refresh is not None and not len(law.factor):
                raise NoRuleError(_NO_STATISTICS)
            has_factors = self.covariance != "diagonal" and len(law.factor) > 0
            alone.append(_padded(member, law.diagonal if has_factors else law.variance))
            if has_factors:
                factor = law.factor if self.rank is None else self._leading(member, self.rank)
                shared.append(self._with_statistics(member, _padded(member, factor)))
        means = [Sampled(member.law) for member in self.members]
        return self._refreshed(centres, means), torch.stack(alone), _stacked(shared) if shared else None

    def _with_statistics(self, member: RandomTheta, factor: Tensor) -> Tensor:
        """Return the factors with what they do to running statistics, by a network that is this thread's own."""
        first = 0 if self.rank is None else 2 * len(member.law.tensors()["factor"])  # others than those of all factors
        return moved_statistics(
            self.network.private("one shot"), _centre(member), member.law, factor, self.refresh, first
        )

    def _leading(self, sampled: RandomTheta, rank: int) -> Tensor:
        """Return combinations of a law's factors, those that move the answers most.  # (rank, size)"""
        law = sampled.law
        assert isinstance(law, Gaussian)
        if rank >= len(law.factor):
            return law.factor
        if law not in _directions:
            _directions[law] = self._effects(sampled, law)
        return _directions[law][:, :rank].T @ law.factor.to(law.mean)

    def _effects(self, sampled: RandomTheta, law: Gaussian) -> Tensor:
        """The directions among a law's factors, by the variance that they give to the answers, largest first.

        On `probes`, or rows drawn from N(0, 1), as x is standardised: whichever rows are predicted, they are the same.
        """
        rows = self.probes
        if rows is None:
            if not self.x.is_floating_point():
                raise ValueError("rank is for networks of measurements; whole numbers are taken as indices")
            rows = torch.randn(_PROBES, *self.x.shape[1:], generator=torch.Generator().manual_seed(0)).to(self.x)
        spread, factor = _padded(sampled, law.diagonal), _padded(sampled, law.factor)
        theta = tensors_of(self.network, False, _centre(sampled), spread, factor)
        graph = self._prepared().graph
        drops = drops_of(graph, self.network, False)
        moved = []
        for some in rows.split(_PROBES_AT_ONCE):
            out = graph.run(Moments(some), theta, drops)
            assert out.factors is not None
            moved.append((out.factors * out.total_variance.clamp_min(1e-30).rsqrt()).flatten(1))
        effects = torch.cat(moved, dim=1).cpu().double()  # some devices have neither float64 nor eigenvalues
        return torch.linalg.eigh(effects @ effects.T).eigenvectors.flip(1).to(law.mean)

    def _refreshed(self, theta: Tensor, sampled: Sequence[Sampled]) -> Tensor:
        """Return it with the running statistics that go with it, by a network that is this thread's own."""
        return theta if self.refresh is None else self.refresh(self.network.private("one shot"), theta, sampled)

    def _prepared(self) -> _Prepared:
        network = self.network.private("one shot")
        if "one shot" not in network.kept:
            theta = _centre(self.members[0])
            if "graph" not in self.network.kept:
                self.network.kept["graph"] = graph_of(network, theta)
            network.kept["one shot"] = _Prepared(network, self.network.kept["graph"], theta)
        return network.kept["one shot"]


class _Prepared:
    """A network's graph, and its passes as programs. For one thread at a time."""

    def __init__(self, network: Network, graph: Graph, theta: Tensor) -> None:
        self.network, self.graph = network, graph
        self.passes: dict[Uncertain, _Pass] = {}
        for scale in (1.0, 0.5):
            self._check(scale * theta)

    def passing(self, what: Uncertain) -> _Pass:
        if what not in self.passes:
            self.passes[what] = _Pass(partial(run, self.graph, self.network, what))
        return self.passes[what]

    def _check(self, theta: Tensor) -> None:
        """The graph must be the network's own function: what tracing does not see would be a wrong figure."""
        network, rows = self.network, self.network.probe_rows.to(theta.device)
        with torch.no_grad():
            expected = network.call(network.layout.views(theta), rows, (), False)
            out = self.graph.run(Moments(rows), tensors_of(network, False, theta), drops_of(self.graph, network, False))
        answers = out.mean.reshape(expected.shape)
        if not agree(answers, expected, tolerance(theta.device, theta.dtype)):
            raise NoRuleError(
                "one-shot's reading of the network does not give the network's own answers. Does its forward look at "
                "its numbers, change tensors in place, or have hooks, or is a rule of your own wrong? "
                "predict(x, samples=...) takes any network"
            )


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
        record = self.recorded[key]
        if record is None:
            memory = [tensor.clone() for tensor in given]
            others = [tensor.flip(0) for tensor in memory[: len(memory) - len(thetas)]] + memory[-len(thetas) :]
            record = self.recorded[key] = memory, program.record(call, tuple(memory), tuple(others))
        memory, recorded = record
        for kept, new in zip(memory, given, strict=True):
            kept.copy_(new)
        return recorded()

    def once(self, rows: Tensor, noise: Tensor | None, *thetas: Tensor) -> tuple[Tensor, Tensor]:
        """Compute it without a record."""
        return self._call(noise is not None, *([rows, *thetas] if noise is None else [rows, noise, *thetas]))

    def _call(self, has_noise: bool, rows: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
        noise, thetas = (others[0], others[1:]) if has_noise else (None, others)
        return vmap(lambda *theta: self.answer(rows, noise, *theta))(*thetas)


def _independent(law: Law) -> Law:
    """Return a law with its variances alone; one that is Gaussian, made of points, or not random, as it is."""
    if isinstance(law, Gaussian) or "points" in law.tensors() or not law.is_random:
        return law
    return Gaussian(law.mean, law.variance, law.mean.new_zeros(0, len(law.mean)))


def _points(member: RandomTheta, vary: bool) -> Tensor:
    """The points of a law that has any, or the mean of one that is not to vary, or does not."""
    points = member.law.tensors().get("points") if vary else None
    if vary and points is None and member.law.is_random:
        raise NoRuleError(
            f"one-shot prediction follows laws that are Gaussian, or made of points, not {type(member.law).__name__}: "
            'use predict(x, samples=...), or covariance="diagonal"'
        )
    values = (member.law.mean.unsqueeze(0) if points is None else points).to(member.fixed)
    return torch.cat([values, member.fixed.expand(len(values), -1)], dim=1)


def _centre(member: RandomTheta) -> Tensor:
    return torch.cat([member.law.mean.to(member.fixed), member.fixed])


def _stacked(factors: Sequence[Tensor]) -> Tensor:
    """Stack with rows of zeros where a law has fewer factors than others.  # (components, rank, size)"""
    rank = max(map(len, factors))
    return torch.stack([torch.cat([each, each.new_zeros(rank - len(each), each.shape[1])]) for each in factors])


def _padded(member: RandomTheta, spread: Tensor) -> Tensor:
    """Return it as precise as theta, where the network runs, and with zeros for what no law speaks of."""
    spread = spread.to(member.fixed)
    if not len(member.fixed):
        return spread
    return torch.cat([spread, spread.new_zeros(*spread.shape[:-1], len(member.fixed))], dim=-1)
