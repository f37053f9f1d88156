"""Curves of survival of a mixture, over standardised log time z: what predictions of times are read from.

    S(z)  =  mean over members and samples k of  P(W > (z - m_k) / s_k),      mixed with a background where there is one

A network's location m that varies (one-shot prediction) adds its variance to s^2 if the law is log-normal; for other
laws S_k is the mean over m, by Gauss and Hermite.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wherefrom.predictive import few_members, gaussians
from wherefrom.predictive.background import Added, Blend
from wherefrom.predictive.mixture import Mixture
from wherefrom.training.survival import Law

_NUMBERS_AT_ONCE = 2**21
_BISECTIONS = 64
_NODES = 21  # of a quadrature over a network's location, one-shot
_NEGLIGIBLE = 1e-5  # probability beyond the reach of a curve
_TINY = torch.finfo(torch.float64).tiny


class Part(NamedTuple):
    """Locations and scales of all members at some rows."""

    middle: Tensor  # (members, samples, rows)
    scale: Tensor  # the same, or (1, 1, 1)
    log_weights: Tensor | None  # (samples,), where samples are nodes of a quadrature

    def w(self, z: Tensor) -> Tensor:
        """Log times as values of W.  # (rows, times) -> (members, samples, rows, times)"""
        return (z - self.middle[..., None]) / self.scale[..., None]


@dataclass(frozen=True, eq=False)
class Curves:
    """The curves of a mixture whose answers are means of log time and whose noise is its variance."""

    mixture: Mixture  # standardised, of one output
    law: Law
    blend: Blend | None = None

    def parts(self, times: int, always_nodes: bool = False) -> Iterator[tuple[slice, Part]]:
        """Components, a few rows at a time, so that curves at many times fit into memory."""
        mixture, law = self.mixture, self.law
        members, samples, rows, _ = mixture.answers.shape
        by_nodes = mixture.spread is not None and (always_nodes or law.name != "lognormal")
        size = max(1, _NUMBERS_AT_ONCE // (members * (_NODES * samples if by_nodes else samples) * times))
        nodes, log_weights = _hermite(samples) if by_nodes else (None, None)
        noise = torch.as_tensor(mixture.noise).double()
        for start in range(0, rows, size):
            some = slice(start, start + size)
            mean = mixture.answers[:, :, some, 0].double()
            square = (noise[:, :, some, 0] if noise.ndim == 4 else noise.reshape(1, 1, 1)) / law.variance
            middle = mean - law.mean * square.sqrt()
            if mixture.spread is None:
                yield some, Part(middle, square.sqrt(), None)
                continue
            spread = mixture.spread[:, :, some, 0].double()
            if nodes is None:
                yield some, Part(middle, (square + spread).sqrt(), None)
                continue
            moved = (middle.unsqueeze(2) + spread.sqrt().unsqueeze(2) * nodes[:, None]).flatten(1, 2)
            scale = square.sqrt().expand_as(middle).unsqueeze(2).expand(-1, -1, _NODES, -1).flatten(1, 2)
            yield some, Part(moved, scale, log_weights)

    # ------------------------------------------------------------------ probabilities

    def of_members(self, z: Tensor, part: Part, is_density: bool) -> Tensor:
        """Log survival or log density of each member.  # (rows, times) -> (members, rows, times)"""
        w = part.w(z)
        logs = self.law.log_density(w) - part.scale[..., None].log() if is_density else self.law.log_survival(w)
        if part.log_weights is None:
            return torch.logsumexp(logs, 1) - math.log(logs.shape[1])
        return torch.logsumexp(logs + part.log_weights[:, None, None], 1)

    def logs(self, z: Tensor, is_density: bool = False) -> Tensor:
        """Log survival or log density of the mixture.  # (rows, times) -> the same"""
        logs, weights = torch.empty_like(z), self.mixture.weights
        count = len(self.mixture.answers)
        log_weights = -math.log(count) if weights is None else weights.log()[:, None, None]
        for rows, part in self.parts(z.shape[1]):
            logs[rows] = torch.logsumexp(log_weights + self.of_members(z[rows], part, is_density), 0)
        if self.blend is None:
            return logs
        return self.blend.mixed_logs(logs, self._of_background(z, self.blend, is_density))

    def survival(self, z: Tensor) -> Tensor:
        """Probability of a longer time.  # (rows, times) -> the same"""
        return self.logs(z).exp()

    def band(self, z: Tensor, tail: float) -> tuple[Tensor, Tensor]:
        """Ends of the curves of single answers, without a share of them below and above.  # (rows, times) each"""
        low, high = torch.empty_like(z), torch.empty_like(z)
        weights = self.mixture.component_weights
        live = None if self.mixture.weights is None else self.mixture.weights > 0
        for rows, part in self.parts(z.shape[1]):
            curves = torch.exp(self.law.log_survival(part.w(z[rows])))
            if part.log_weights is not None:  # one curve for each member
                curves = (part.log_weights.exp()[:, None, None] * curves).sum(1, keepdim=True)
            curves = (curves if live is None else curves[live]).flatten(0, 1)
            low[rows] = gaussians.quantile_of_points(curves, weights, tail)
            high[rows] = gaussians.quantile_of_points(curves, weights, 1 - tail)
        if self.blend is None:
            return low, high
        others = self._of_background(z, self.blend, False).exp()
        return self.blend.mixed(low, others), self.blend.mixed(high, others)

    def at(self, z: Tensor) -> tuple[Mixture, Added | None]:
        """Return the mixture of the probabilities of a longer time, and what a background adds.  # (rows, 1) ->"""
        answers = torch.empty_like(self.mixture.answers, dtype=torch.float64)
        noise, of_logs = torch.empty_like(answers), self.mixture.spread
        spread = None if of_logs is None else torch.empty_like(answers)
        for rows, part in self.parts(1, always_nodes=True):
            curves = torch.exp(self.law.log_survival(part.w(z[rows])))
            kept = curves * (1 - curves)
            if part.log_weights is None:
                answers[:, :, rows], noise[:, :, rows] = curves, kept
                continue
            share = part.log_weights.exp()[:, None, None]
            mean = (share * curves).sum(1, keepdim=True)
            answers[:, :, rows], noise[:, :, rows] = mean, (share * kept).sum(1, keepdim=True)
            assert spread is not None
            spread[:, :, rows] = (share * (curves - mean).square()).sum(1, keepdim=True)
        within = self.mixture.within
        if spread is not None and of_logs is not None:
            factor = torch.where(of_logs > 0, spread / of_logs.double().clamp_min(_TINY), 0.0).mean(1)
            within = self.mixture.within_changed(lambda part: part * factor)
        mixture = replace(self.mixture, answers=answers, noise=noise, spread=spread, within=within)
        if self.blend is None:
            return mixture, None
        networks = mixture.mean
        whole = self.blend.mixed(networks, self._of_background(z, self.blend, False).exp())
        amount = whole * (1 - whole) - (1 - self.blend.weight) * networks * (1 - networks)
        return mixture, Added(1 - self.blend.weight, amount)

    def _of_background(self, z: Tensor, blend: Blend, is_density: bool) -> Tensor:
        """Log survival or log density of the background, a mixture of normal distributions.  # (rows, times)"""
        points, around = blend.components(self.mixture.mean, self.mixture.variance)  # (points, rows, 1), (rows, 1)
        w = (z - points) / around.sqrt()
        of_normal = -0.5 * (w.square() + around.log() + math.log(2 * math.pi))
        logs = of_normal if is_density else torch.special.log_ndtr(-w)
        return torch.logsumexp(logs, 0) - math.log(len(points))

    # ------------------------------------------------------------------ times

    def quantile(self, probability: float) -> Tensor:
        """Quantile of the mixture, by bisection between those of its components.  # (rows,)"""
        low, high = self._bracket(probability, probability)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            is_low = self.survival(middle.unsqueeze(1))[:, 0] > 1 - probability
            low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
            if bool((high - low <= 1e-13 * (1 + high.abs())).all()):
                break
        return (low + high) / 2

    def _quantile_by_few(self, probability: float) -> Tensor:
        """Quantile with what few members lack (few_members.py).  # (rows,)"""
        together = replace(self, mixture=few_members.gathered(self.mixture))
        centre = together.quantile(0.5)
        noise_reach = (together.quantile(probability) - centre).unsqueeze(1)
        return centre + few_members.of_mixture(self.mixture).reach(probability, noise_reach)[:, 0]

    def interval(self, tail: float, for_few: bool = False) -> tuple[Tensor, Tensor]:
        """Ends of the networks' interval, moved outwards as far as a background weighs.  # (rows,) each

        for_few: with what few members lack.
        """
        networks = replace(self, blend=None)
        low, high = (networks._quantile_by_few(p) if for_few else networks.quantile(p) for p in (tail, 1 - tail))
        if self.blend is None:
            return low, high
        weight = self.blend.weight[:, 0]
        least, most = (
            self.blend.quantile(probability, self.mixture.mean, self.mixture.variance)[:, 0]
            for probability in (tail, 1 - tail)
        )
        return low - weight * (low - least).clamp_min(0), high + weight * (most - high).clamp_min(0)

    @property
    def reach(self) -> tuple[Tensor, Tensor]:
        """Times beyond which next to nothing lies.  # (rows,) each"""
        return self._bracket(_NEGLIGIBLE, 1 - _NEGLIGIBLE)

    def _bracket(self, least: float, most: float) -> tuple[Tensor, Tensor]:
        """The least and the largest of the components' quantiles at two probabilities.  # (rows,) each"""
        low, high = torch.empty(2, self.mixture.answers.shape[2], dtype=torch.float64)
        at = self.law.quantile(torch.tensor([least, most], dtype=torch.float64))
        for rows, part in self.parts(1):
            low[rows] = (part.middle + part.scale * at[0]).amin((0, 1))
            high[rows] = (part.middle + part.scale * at[1]).amax((0, 1))
        if self.blend is None:
            return low, high
        points, around = self.blend.components(self.mixture.mean, self.mixture.variance)
        normal = torch.special.ndtri(torch.tensor([least, most], dtype=torch.float64))
        lowest_point, highest_point = (
            (points.amin(0) + around.sqrt() * normal[0])[:, 0],
            (points.amax(0) + around.sqrt() * normal[1])[:, 0],
        )
        is_mixed = self.blend.weight[:, 0] > 0
        low = torch.where(is_mixed, torch.minimum(low, lowest_point), low)
        return low, torch.where(is_mixed, torch.maximum(high, highest_point), high)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw `count` times for every row.  # (count, rows)"""
        members, _, rows, _ = self.mixture.answers.shape
        weights = self.mixture.weights
        even = torch.ones(members, dtype=torch.float64)
        member = torch.multinomial(even if weights is None else weights, count * rows, True, generator=generator)
        z = torch.empty(count, rows, dtype=torch.float64)
        uniform = torch.rand(count, rows, dtype=torch.float64, generator=generator).clamp(1e-15, 1 - 1e-15)
        inner = torch.rand(count, rows, dtype=torch.float64, generator=generator)
        member = member.reshape(count, rows)
        for some, (middle, scale, nodes) in self.parts(1):
            samples = middle.shape[1]
            even = torch.arange(1, samples + 1, dtype=torch.float64) / samples
            edges = even if nodes is None else nodes.exp().cumsum(0) / nodes.exp().sum()
            which = torch.searchsorted(edges, inner[:, some].contiguous()).clamp_max(samples - 1)
            chosen = member[:, some], which, torch.arange(middle.shape[2])
            z[:, some] = middle[chosen] + scale.expand_as(middle)[chosen] * self.law.quantile(uniform[:, some])
        if self.blend is None:
            return z
        points, around = self.blend.components(self.mixture.mean, self.mixture.variance)
        point = torch.randint(len(points), (count, rows), generator=generator)
        normal = torch.randn(count, rows, dtype=torch.float64, generator=generator)
        other = points[..., 0].gather(0, point) + around[:, 0].sqrt() * normal
        is_other = torch.rand(count, rows, dtype=torch.float64, generator=generator) < self.blend.weight[:, 0]
        return torch.where(is_other, other, z)


def _hermite(samples: int) -> tuple[Tensor, Tensor]:
    """Nodes of N(0, 1), and log weights of the nodes of all samples.  # (nodes,), (samples * nodes,)"""
    points, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    logs = torch.from_numpy(np.log(weights / weights.sum())) - math.log(samples)
    return torch.from_numpy(points), logs.repeat(samples)
