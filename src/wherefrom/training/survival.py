"""Times that may be censored, of rows that may have entered late: the laws of accelerated failure, and their losses.

    log T  =  m + s W,        z = (log t - m) / s

W has the cumulative hazard h(z) = -log P(W > z), and the hazard k(z) = h'(z). A row that was seen from `entry` to t has

    loss  =  event (log s - log k(z))  +  h(z)  -  h(z_entry)

    Weibull         h = e^z               log k = z
    log-logistic    h = log(1 + e^z)      log k = z - h
    log-normal      h = -log Phi(-z)      log k = h - z^2 / 2 - log sqrt(2 pi)

y has three columns in the units of the likelihood: log t, a number above zero where the event was seen, and log entry.
Outputs are m, or m and log s^2. z is bounded; the gradient passes, so that an output can come back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from wherefrom.training.losses import MOST_LOG_VARIANCE

LEAST_Z, MOST_Z = -40.0, 15.0
Numbers = tuple[float, ...] | Tensor  # (1,); (members, 1, 1) where members differ
_LEAST_CURVATURE = 0.01
_EULER = 0.5772156649015329
_LOG_ROOT = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True, eq=False)
class Law:
    """The distribution of W = (log T - m) / s."""

    name: str
    cumulative: Callable[[Tensor], Tensor]  # h(z)
    log_hazard: Callable[[Tensor, Tensor], Tensor]  # z, h(z) -> log k(z)
    slope: Callable[[Tensor, Tensor], Tensor]  # z, k(z) -> l(z), the derivative of log k
    log_survival: Callable[[Tensor], Tensor]  # -h(z), by faster functions that torch cannot map over members
    log_density: Callable[[Tensor], Tensor]  # of W
    quantile: Callable[[Tensor], Tensor]  # the z below which W lies with this probability
    mean: float  # of W
    variance: float


def _of_normal(z: Tensor) -> Tensor:
    """-log Phi(-z), by functions that torch can map over members, which it cannot do with log_ndtr."""
    above, below = z.clamp_min(0.0), z.clamp_max(0.0)
    tail = 0.5 * above * above - torch.log(0.5 * torch.special.erfcx(above * math.sqrt(0.5)))
    return torch.where(z > 0, tail, -torch.log1p(-0.5 * torch.special.erfc(-below * math.sqrt(0.5))))


WEIBULL = Law(
    "weibull",
    cumulative=torch.exp,
    log_hazard=lambda z, h: z,
    slope=lambda z, k: torch.ones_like(z),
    log_survival=lambda z: -torch.exp(z),
    log_density=lambda z: z - torch.exp(z),
    quantile=lambda p: (-torch.log1p(-p)).log(),
    mean=-_EULER,
    variance=math.pi**2 / 6,
)
LOGNORMAL = Law(
    "lognormal",
    cumulative=_of_normal,
    log_hazard=lambda z, h: h - 0.5 * z * z - _LOG_ROOT,
    slope=lambda z, k: k - z,
    log_survival=lambda z: torch.special.log_ndtr(-z),
    log_density=lambda z: -0.5 * z * z - _LOG_ROOT,
    quantile=torch.special.ndtri,
    mean=0.0,
    variance=1.0,
)
LOGLOGISTIC = Law(
    "loglogistic",
    cumulative=functional.softplus,
    log_hazard=lambda z, h: z - h,
    slope=lambda z, k: 1 - k,
    log_survival=lambda z: -functional.softplus(z),
    log_density=lambda z: z - 2 * functional.softplus(z),
    quantile=torch.logit,
    mean=0.0,
    variance=math.pi**2 / 3,
)
LAWS = {law.name: law for law in (WEIBULL, LOGNORMAL, LOGLOGISTIC)}


def _bounded(values: Tensor, least: float, most: float) -> Tensor:
    """Clamp; the gradient passes."""
    return values + (values.clamp(least, most) - values).detach()


@dataclass(frozen=True)
class SurvivalNLL:
    """The negative log-likelihood under a law. Abstract: a loss adds the law."""

    law: ClassVar[Law]
    scale: Numbers = (1.0,)  # s, where the outputs do not say it

    def _log_scale(self, outputs: Tensor) -> Tensor:
        if outputs.shape[-1] == 2:
            return 0.5 * _bounded(outputs[..., 1:], -MOST_LOG_VARIANCE, MOST_LOG_VARIANCE)
        return (self.scale if isinstance(self.scale, Tensor) else outputs.new_tensor(self.scale)).log()

    def derivatives(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return first and second derivatives; second ones are no smaller than a little.  # (rows, 1 or 2) each"""
        log_scale = self._log_scale(outputs)
        rate, event = torch.exp(-log_scale), (y[..., 1:2] > 0).to(outputs)
        (z, k, slope), (u, k_entry, slope_entry) = (
            self._hazards((y[..., c : c + 1] - outputs[..., :1]) * rate) for c in (0, 2)
        )
        pull = event * slope - k
        second = {"weibull": torch.zeros_like(k), "lognormal": k * slope - 1, "loglogistic": -k * slope}[
            self.law.name
        ]  # of log k
        bend = event * second - k * slope  # the slope of the pull
        to_middle = rate * (pull + k_entry), rate.square() * (-k_entry * slope_entry - bend)
        if outputs.shape[-1] == 1:
            return to_middle[0], to_middle[1].clamp_min(_LEAST_CURVATURE)
        to_scale = event + z * pull + u * k_entry
        curvature = -z * pull - z.square() * bend - u * k_entry - u.square() * k_entry * slope_entry
        both = torch.cat([to_middle[1], 0.25 * curvature], -1).clamp_min(_LEAST_CURVATURE)
        return torch.cat([to_middle[0], 0.5 * to_scale], -1), both

    def _hazards(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return z, k(z) and the slope of log k there."""
        bounded = z.clamp(LEAST_Z, MOST_Z)
        hazard = self.law.log_hazard(bounded, self.law.cumulative(bounded)).exp()
        return z, hazard, self.law.slope(bounded, hazard)

    def __call__(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean over rows.  # (..., rows, 1 or 2), (..., rows, 3), (..., rows) -> (...)"""
        log_scale = self._log_scale(outputs)
        rate, middle = torch.exp(-log_scale), outputs[..., :1]
        z, z_entry = (_bounded((y[..., k : k + 1] - middle) * rate, LEAST_Z, MOST_Z) for k in (0, 2))
        hazard = self.law.cumulative(z)
        at_event = torch.where(y[..., 1:2] > 0, log_scale - self.law.log_hazard(z, hazard), 0.0)
        losses = at_event + hazard - self.law.cumulative(z_entry)
        return (losses if weights is None else losses * weights.unsqueeze(-1)).mean((-2, -1))


@dataclass(frozen=True)
class WeibullNLL(SurvivalNLL):
    law: ClassVar[Law] = WEIBULL


@dataclass(frozen=True)
class LogLogisticNLL(SurvivalNLL):
    law: ClassVar[Law] = LOGLOGISTIC


@dataclass(frozen=True)
class LogNormalNLL(SurvivalNLL):
    law: ClassVar[Law] = LOGNORMAL


LOSSES: dict[str, type[SurvivalNLL]] = {each.law.name: each for each in (WeibullNLL, LogNormalNLL, LogLogisticNLL)}


@dataclass(frozen=True)
class Units:
    """One distribution for all rows: log T = location + scale W."""

    location: float
    scale: float


def same_for_all(law: Law, y: Tensor, weights: Tensor | None = None) -> Units:
    """Return the one distribution that makes these rows most likely, by Newton's method.

    y holds log t, whether the event was seen, and log entry.  # (rows, 3), (rows,)
    """
    y = y.double()
    log_time, is_event, log_entry = y[:, 0], y[:, 1] > 0, y[:, 2]
    share = torch.ones(len(y), dtype=torch.float64) if weights is None else weights.double()
    share = share / share.sum()
    if not bool((share * is_event).sum() > 0):
        raise ValueError("no row has the event: times that are all censored do not say how long it takes")
    events = log_time[is_event & (share > 0)]
    start = torch.stack([events.mean(), events.std(correction=0).clamp_min(_LEAST_SCALE).log()])

    def cost(at: Tensor) -> Tensor:
        z, z_entry = ((log - at[0]) * torch.exp(-at[1]) for log in (log_time, log_entry.clamp_min(-_FAR)))
        hazard = law.cumulative(z.clamp_max(_MOST_HAZARD))
        at_event = torch.where(is_event, at[1] - law.log_hazard(z, hazard), 0.0)
        return (share * (at_event + hazard - law.cumulative(z_entry.clamp(LEAST_Z, _MOST_HAZARD)))).sum()

    best = newton(cost, start)
    scale = float(best[1].exp())
    return Units(float(best[0]), scale if scale > 2 * _LEAST_SCALE else 1.0)


_LEAST_SCALE = 1e-6  # below which times are taken as all the same
_FAR = 1e4
_MOST_HAZARD = 500.0
_STEPS = 100


def newton(cost: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Return where a cost of a location and a log scale is lowest: damped steps, each no longer than one scale."""
    least = math.log(_LEAST_SCALE)
    value = cost(at)
    for _ in range(_STEPS):
        with torch.enable_grad():
            here = at.detach().requires_grad_()
            (slope,) = torch.autograd.grad(cost(here), here, create_graph=True)
            curvature = torch.stack([torch.autograd.grad(each, here, retain_graph=True)[0] for each in slope])
        slope = slope.detach()
        values, vectors = torch.linalg.eigh(curvature)
        unit = torch.stack([at[1].exp(), torch.ones((), dtype=at.dtype)])
        step = -vectors @ ((vectors.T @ slope) / values.abs().clamp_min(1e-12))
        step = step / (step / unit).abs().max().clamp_min(1.0)
        for _ in range(_STEPS):
            new = torch.stack([at[0] + step[0], (at[1] + step[1]).clamp_min(least)])
            after = cost(new)
            if bool(after <= value):
                break
            step = step / 2
        else:
            return at
        moved = float(((new - at) / unit).abs().max())
        at, value = new, after
        if moved < 1e-12:
            break
    return at
