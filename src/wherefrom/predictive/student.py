"""Student's t, by its mean, its variance and its degrees of freedom nu > 2, alone and in mixtures.

With t = (y - mean) / s, s^2 = variance (nu - 2) / nu, f and F its density and distribution function:

    log p(y)    =  log Gamma((nu + 1) / 2) - log Gamma(nu / 2) - log(nu pi s^2) / 2 - (nu + 1) / 2 log(1 + t^2 / nu)
    F(t)        =  1 - I_x(nu / 2, 1 / 2) / 2  for t > 0,        x = nu / (nu + t^2)
    E |Y - y|   =  s (t (2 F(t) - 1) + 2 f(t) (nu + t^2) / (nu - 1))
    E |Y - Y'|  =  s 4 sqrt(nu) / (nu - 1)  B(1/2, nu - 1/2) / B(1/2, nu / 2)^2,  both from one t

Two t's of other means and variances have no such form: there E |Y - Y'| / 2 is the integral of F (1 - F), F being that
of the mixture, by the trapezoidal rule in u with y = centre + spread sinh(1.5 sinh u), which converges exponentially.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.predictive import incomplete_beta
from wherefrom.predictive.searching import lowest

LEAST_DF, MOST_DF = 2.1, 200.0  # below, there is no variance; above, nothing tells it from a Gaussian
_LOG_BEYOND = math.log(LEAST_DF - 2), math.log(MOST_DF - 2)
_USUAL_DF = 5.0  # at which the search begins
_MOST_STEPS, _LONGEST_STEP, _SMALL_STEP = 60, 2.0, 1e-7  # of Newton's method, in logarithms
_BISECTIONS = 80
_MANY = 1e8  # degrees of freedom, from where on it is a Gaussian
_DEGREE, _NEAR_MEDIAN = 20, 1e-4  # of the polynomial of quantiles, and a distance that it does not tell from the median
_MOST_KEPT = 100  # probabilities whose polynomials are cached: draws have many, which no one asks for again
_FEWEST_NODES, _MOST_NODES, _NODES_OF_A_WIDTH, _REACH = 100, 5000, 90.0, 3.4  # of the trapezoidal rule, on each side
_FARTHEST, _TABLE = 19.0, 4000  # asinh of the last value of a table of quantiles, and its length
_TINY = torch.finfo(torch.float64).tiny


def log_density(z: Tensor, mean: Tensor, variance: Tensor, df: Tensor) -> Tensor:
    """Log density of t's with this mean and variance.  # broadcast"""
    square = (variance * (df - 2) / df).clamp_min(_TINY)
    norm = torch.lgamma((df + 1) / 2) - torch.lgamma(df / 2) - 0.5 * (math.pi * df).log()
    return norm - 0.5 * square.log() - (df + 1) / 2 * torch.log1p((z - mean).square() / (df * square))


def probability_below(gap: Tensor, variance: Tensor, df: Tensor) -> Tensor:
    """P(gap + t <= 0) for a t with mean 0 and this variance.  # broadcast"""
    t = -gap / _scale(variance, df)
    return cdf(t, df)


def mean_distance(gap: Tensor, variance: Tensor, df: Tensor) -> Tensor:
    """E|gap + t| for a t with mean 0 and this variance.  # broadcast"""
    scale = _scale(variance, df)
    t = gap / scale
    density = log_density(t, torch.zeros_like(t), df / (df - 2), df).exp()
    return scale * (t * (2 * cdf(t, df) - 1) + 2 * density * (df + t.square()) / (df - 1))


def _scale(variance: Tensor, df: Tensor) -> Tensor:
    return (variance * (df - 2) / df).clamp_min(_TINY).sqrt()


def cdf(t: Tensor, df: Tensor) -> Tensor:
    """P(T <= t) of a t of scale 1, whose degrees of freedom may be any.  # broadcast"""
    t, df = torch.broadcast_tensors(t, df)
    flat, nu = t.reshape(-1).double(), df.reshape(-1).double().clamp_max(_MANY)
    square = flat.square()
    half = torch.full_like(nu, 0.5)
    tail = 0.5 * incomplete_beta.regularised(nu / 2, half, nu / (nu + square), square / (nu + square))
    below = torch.where(flat > 0, 1 - tail, tail)
    return torch.where(nu < _MANY, below, torch.special.ndtr(flat)).reshape(t.shape)


def quantile(probability: float | Tensor, df: Tensor) -> Tensor:
    """Value below which a t of scale 1 falls with this probability, for degrees of freedom of 1 and more.

    It is a smooth function of 1 / nu between 0, the Gaussian, and 1, Cauchy's distribution: a polynomial in it, which
    tensor programs such as ONNX can hold. Probabilities of each row are searched for instead.

    >>> [round(float(quantile(0.975, torch.tensor(nu))), 4) for nu in (1.0, 4.0, 1e9)]
    [12.7062, 2.7764, 1.96]
    """
    if isinstance(probability, Tensor):
        tail, nu = torch.broadcast_tensors(torch.minimum(probability, 1 - probability), df)
        return torch.sign(probability - 0.5) * _searched(1 - tail, nu)
    return quantiles([probability], df)[0]


def quantiles(probabilities: Sequence[float], df: Tensor) -> list[Tensor]:
    """Quantiles of a t of scale 1 at several probabilities, as `quantile` returns them one by one."""
    s = 2 / df.double().clamp_min(1.0) - 1
    above = tuple(0.5 + max(abs(probability - 0.5), _NEAR_MEDIAN) for probability in probabilities)
    series = (_kept_series if len(above) <= _MOST_KEPT else _series)(above)
    each = []
    for probability, coefficients in zip(probabilities, series, strict=True):
        power = torch.zeros_like(s)
        for coefficient in coefficients:
            power = power * s + coefficient
        each.append(NormalDist().inv_cdf(probability) * torch.exp(power))
    return each


def _series(above: tuple[float, ...]) -> list[list[float]]:
    """Coefficients of log(quantile / Gaussian quantile) in 2 / nu - 1, the highest power first, by probability.

    above: probabilities above one half.
    """
    z = np.array([NormalDist().inv_cdf(probability) for probability in above])

    def exponent(s: Any) -> Any:  # (nodes,) -> (nodes, probabilities)
        df = torch.from_numpy(2 / np.maximum(s + 1, 2 / _MANY)).unsqueeze(1).expand(-1, len(above))
        return np.log(_searched(torch.tensor(above, dtype=torch.float64), df).numpy() / z)

    chebyshev = np.polynomial.chebyshev.chebinterpolate(exponent, _DEGREE)
    return [np.polynomial.chebyshev.cheb2poly(each)[::-1].tolist() for each in chebyshev.T]


_kept_series = functools.lru_cache(maxsize=256)(_series)


def _searched(probability: float | Tensor, df: Tensor) -> Tensor:
    """The quantile by bisection, for probabilities of one half and above."""
    low = torch.zeros_like(df)
    away = torch.as_tensor(probability, dtype=torch.float64) - 0.5
    high = 2 * torch.tan(math.pi * away) + low + 1  # above Cauchy's
    for _ in range(60):
        middle = (low + high) / 2
        is_low = cdf(middle, df) < probability
        low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
    return (low + high) / 2


# ---------------------------------------------------------------------- one distribution for all rows


@dataclass(frozen=True, eq=False)
class StudentT:
    """The t with mean 0 and variance 1, as the shape of a distribution around its mean.

    >>> shape = StudentT(torch.tensor([4.0], dtype=torch.float64))
    >>> round(float(shape.quantile(0.975)), 3), round(float(shape.cdf(torch.zeros(1, 1).double())), 3)
    (1.963, 0.5)
    """

    df: Tensor  # (outputs,)

    @property
    def words(self) -> str:
        return f"Student's t with {', '.join(f'{df:.2g}' for df in self.df.tolist())} degrees of freedom"

    def of_rows(self, rows: Any) -> StudentT:
        return self

    def of_output(self, j: int) -> StudentT:
        return StudentT(self.df[j : j + 1])

    def log_density(self, s: Tensor) -> Tensor:
        """Log density at s.  # (rows, outputs)"""
        return log_density(s, torch.zeros_like(s), torch.ones_like(s), self.df)

    def cdf(self, s: Tensor) -> Tensor:
        """Probability of a value no larger than s.  # (rows, outputs)"""
        return probability_below(-s, torch.ones_like(s), self.df)

    def quantile(self, probability: float) -> Tensor:
        """Value that is not exceeded with this probability.  # (1, outputs)"""
        return self.quantiles([probability])[0]

    def quantiles(self, probabilities: Sequence[float]) -> list[Tensor]:
        """Values that are not exceeded with these probabilities, by bisection.  # (1, outputs) each"""
        tails = torch.tensor([min(each, 1 - each) for each in probabilities], dtype=torch.float64).unsqueeze(1)
        low = torch.full_like(self.df, -1.0).expand(len(tails), -1)
        while bool((far := cdf(low, self.df) > tails).any()):
            low = torch.where(far, 2 * low, low)
        below = bisected(lambda t: cdf(t, self.df), tails, low, torch.zeros_like(low))
        below = below * _scale(torch.ones_like(below), self.df)
        each = below.split(1)
        return [value if p <= 0.5 else -value for p, value in zip(probabilities, each, strict=True)]

    def like_gaussian(self, z: Tensor) -> Tensor:
        """Value with the probability below it that z of N(0, 1) has, to about six digits.  # (rows, outputs)"""
        values = torch.empty_like(z)
        for j, (as_gaussian, t) in enumerate(self._quantiles):
            at = np.interp(z[:, j].abs().numpy(), as_gaussian, t)
            values[:, j] = torch.from_numpy(at).copysign(z[:, j])
        return values

    @functools.cached_property
    def _quantiles(self) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Quantiles of N(0, 1), and of each output's distribution at the same probabilities."""
        t = torch.sinh(torch.linspace(0, _FARTHEST, _TABLE, dtype=torch.float64))
        return [
            ((-torch.special.ndtri(cdf(-t, df))).numpy(), (t * _scale(torch.ones_like(df), df)).numpy())
            for df in self.df
        ]

    def crps(self, s: Tensor) -> Tensor:
        """CRPS at s: E|S - s| - E|S - S'| / 2.  # (rows, outputs)"""
        df = self.df
        betas = _log_beta(df - 0.5) - 2 * _log_beta(df / 2)
        half_apart = 2 * df.sqrt() / (df - 1) * betas.exp() * _scale(torch.ones_like(df), df)
        return mean_distance(s, torch.ones_like(s), df) - half_apart


def _log_beta(b: Tensor) -> Tensor:
    """log B(1/2, b)"""
    return 0.5 * math.log(math.pi) + torch.lgamma(b) - torch.lgamma(b + 0.5)


@dataclass(frozen=True, eq=False)
class Kernel:
    """Components of a mixture that are t's, with the functions of `gaussians`."""

    df: Tensor  # (outputs,)

    def log_density(self, z: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return log_density(z, mean, variance, self.df)

    def probability_below(self, gap: Tensor, variance: Tensor) -> Tensor:
        """P(gap + t <= 0)"""
        return probability_below(gap, variance, self.df)

    def mean_distance(self, gap: Tensor, variance: Tensor) -> Tensor:
        """E|gap + t|"""
        return mean_distance(gap, variance, self.df)

    def width(self, std: Tensor) -> Tensor:
        """The distance of the poles of a t's density from the real axis."""
        return std * (self.df - 2).sqrt()

    def quantile(
        self, answers: Tensor, variance: Tensor, weights: Tensor | None, probability: float, is_dense: bool = True
    ) -> Tensor:
        """The value below which the mixture falls with this probability: between those of its components.

        # (components, rows, outputs), the same -> (rows, outputs)
        """
        assert is_dense
        each = answers + variance.sqrt() * StudentT(self.df).quantile(probability)

        def below(z: Tensor) -> Tensor:
            values = self.probability_below(answers - z, variance)
            return values.mean(0) if weights is None else torch.tensordot(weights, values, 1)

        return bisected(below, probability, each.amin(0), each.amax(0))


def bisected(below: Callable[[Tensor], Tensor], probability: float | Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return where a distribution function passes a probability, between two bounds."""
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        is_low = below(middle) < probability
        low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
    return (low + high) / 2


def half_apart(
    below: Callable[[Tensor], Tensor], above: Callable[[Tensor], Tensor], centre: Tensor, spread: Tensor, width: Tensor
) -> Tensor:
    """E |Y - Y'| / 2 of two independent draws: the integral of F (1 - F).  # (rows, outputs) each

    below, above: F and 1 - F, for (rows, outputs).
    width: how far from the real axis F is smooth, which the step has to be shorter than (`Kernel.width`).
    """
    needed = _NODES_OF_A_WIDTH * float((spread / width).max())
    nodes = int(min(max(needed, _FEWEST_NODES), _MOST_NODES))
    step, total = _REACH / nodes, torch.zeros_like(centre)
    for k in range(-nodes, nodes + 1):
        u = step * k
        inner = 1.5 * math.sinh(u)
        at = centre + spread * math.sinh(inner)
        total += 1.5 * math.cosh(u) * math.cosh(inner) * below(at) * above(at)
    return step * spread * total


# ---------------------------------------------------------------------- fitting


def most_likely(
    squares: Tensor,
    weights: Tensor | None = None,
    of_rows: Tensor | None = None,
    df: float | None = None,
    logs: Tensor | None = None,
    variance: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The squared scale s^2 and the nu that maximise sum_rows v log sum_k w_k t(y; answer_k, s, nu), for each output.

    squares: squared distances of y from every answer, in units of the answer's own scale, where it has one.
    weights: of the answers (default: all the same).
    of_rows: of the rows (default: all the same).
    df: nu, where it is known.
    logs: minus the logarithm of every answer's own scale, where it has one.
    variance: of the t, where it is known.
    # (answers, rows, outputs), (answers,), (rows,) -> (outputs,) each
    """
    added = torch.zeros(1, 1, 1).double() if logs is None else logs
    added = added if weights is None else added + weights.clamp_min(_TINY).log()[:, None, None]
    share = squares.new_full((squares.shape[1],), 1.0) if of_rows is None else of_rows.to(squares)
    fit = _Fit(squares, added, share / share.sum())
    usual = squares.mean(0).clamp_min(_TINY).log().median(0).values  # robust, so that no far row hides the rest
    nu = torch.full_like(usual, _USUAL_DF if df is None else df)
    if variance is not None:
        if df is None:
            beyond = torch.linspace(*_LOG_BEYOND, 9, dtype=torch.float64)[:, None].expand(-1, len(nu))
            nu = lowest(lambda b: fit.cost(_log_square(variance, b.exp() + 2), b.exp() + 2), beyond).exp() + 2
        return _log_square(variance, nu).exp(), nu

    def slopes(a: Tensor) -> tuple[Tensor, Tensor]:
        at = fit.at(a, nu)
        return at.by_a, at.by_aa

    grid = torch.linspace(-8, 6, 15, dtype=torch.float64)[:, None] + usual
    a = lowest(lambda a: fit.cost(a, nu), grid, slopes=slopes)
    if df is None:
        a, nu = _together(fit, a, nu)
    return a.exp(), nu


def _log_square(variance: Tensor, nu: Tensor) -> Tensor:
    """The logarithm of the squared scale of a t with this variance."""
    return (variance * (nu - 2) / nu).log()


def _together(fit: _Fit, a: Tensor, nu: Tensor) -> tuple[Tensor, Tensor]:
    """Go down from a scale and nu by Newton's method in a and b = log(nu - 2), damped until each step is downhill."""
    b, damping = (nu - 2).log(), torch.full_like(a, 1e-4)
    at = fit.at(a, nu)
    for _ in range(_MOST_STEPS):
        over = b.exp()
        by_b, by_ab = over * at.by_nu, over * at.by_anu
        by_bb = over.square() * at.by_nunu + by_b
        is_held = ((b <= _LOG_BEYOND[0]) & (by_b > 0)) | ((b >= _LOG_BEYOND[1]) & (by_b < 0))
        by_b, by_ab = (torch.where(is_held, 0.0, each) for each in (by_b, by_ab))
        smallest = (at.by_aa + by_bb) / 2 - (((at.by_aa - by_bb) / 2).square() + by_ab.square()).sqrt()
        added = damping + (-2 * smallest).clamp_min(0.0)  # the curvature is made positive
        aa, bb = at.by_aa + added, by_bb + added
        size = aa * bb - by_ab.square()
        step_a = ((by_ab * by_b - bb * at.by_a) / size).clamp(-_LONGEST_STEP, _LONGEST_STEP)
        step_b = ((by_ab * at.by_a - aa * by_b) / size).clamp(-_LONGEST_STEP, _LONGEST_STEP)
        if float(torch.maximum(step_a.abs(), step_b.abs()).max()) < _SMALL_STEP:
            break
        next_a, next_b = a + step_a, (b + step_b).clamp(*_LOG_BEYOND)
        after = fit.at(next_a, next_b.exp() + 2)
        is_lower = after.cost <= at.cost
        a, b = torch.where(is_lower, next_a, a), torch.where(is_lower, next_b, b)
        at = _Derivatives(*(torch.where(is_lower, new, old) for new, old in zip(after, at, strict=True)))
        damping = torch.where(is_lower, damping / 10, damping * 30)
    return a, b.exp() + 2


class _Derivatives(NamedTuple):
    """The cost at a scale and nu, and its derivatives.  # (outputs,) each"""

    cost: Tensor
    by_a: Tensor
    by_nu: Tensor
    by_aa: Tensor
    by_anu: Tensor
    by_nunu: Tensor


@dataclass(frozen=True, eq=False)
class _Fit:
    """The cost of a scale and degrees of freedom, minus the mean log-likelihood, and its derivatives.

    With a = log s^2, r = square / (nu s^2), w = r / (1 + r), an answer's log density has the derivatives

        a:   ((nu + 1) w - 1) / 2                            a, a:    -(nu + 1) w (1 - w) / 2
        nu:  c' - log(1 + r) / 2 + (nu + 1) w / (2 nu)       a, nu:   w / 2 - (nu + 1) w (1 - w) / (2 nu)
                                                             nu, nu:  c'' + w / (2 nu) - w / (2 nu^2)
                                                                      - (nu + 1) w (1 - w) / (2 nu^2)

    where c = log Gamma((nu + 1) / 2) - log Gamma(nu / 2) - log(pi nu) / 2.
    """

    squares: Tensor  # (answers, rows, outputs)
    added: Tensor  # to the log density of each answer
    share: Tensor  # (rows,)

    def cost(self, a: Tensor, nu: Tensor) -> Tensor:
        """Minus the mean log-likelihood.  # (outputs,) each"""
        return -(self.share @ torch.logsumexp(self._log_density(torch.log1p(self._ratio(a, nu)), a, nu), 0))

    def at(self, a: Tensor, nu: Tensor) -> _Derivatives:
        """The cost with its derivatives."""
        ratio = self._ratio(a, nu)
        logs = torch.log1p(ratio)
        each = self._log_density(logs, a, nu)
        cost = -(self.share @ torch.logsumexp(each, 0))
        answers = torch.softmax(each, 0)
        w = ratio / (1 + ratio)
        spread = (nu + 1) / 2 * w * (1 - w)
        first = 0.5 * (torch.digamma((nu + 1) / 2) - torch.digamma(nu / 2) - 1 / nu)
        second = 0.25 * (torch.polygamma(1, (nu + 1) / 2) - torch.polygamma(1, nu / 2)) + 0.5 / nu.square()
        by_a = ((nu + 1) * w - 1) / 2
        by_nu = first - 0.5 * logs + (nu + 1) / (2 * nu) * w
        row_a, row_nu = (answers * by_a).sum(0), (answers * by_nu).sum(0)
        aa = (answers * (by_a.square() - spread)).sum(0) - row_a.square()
        anu = (answers * (by_a * by_nu + 0.5 * w - spread / nu)).sum(0) - row_a * row_nu
        more = second + w * (nu - 1) / (2 * nu.square()) - spread / nu.square()
        nunu = (answers * (by_nu.square() + more)).sum(0) - row_nu.square()
        return _Derivatives(cost, *(-(self.share @ of_rows) for of_rows in (row_a, row_nu, aa, anu, nunu)))

    def _ratio(self, a: Tensor, nu: Tensor) -> Tensor:
        return self.squares * (torch.exp(-a) / nu)

    def _log_density(self, logs: Tensor, a: Tensor, nu: Tensor) -> Tensor:
        norm = torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2) - 0.5 * ((math.pi * nu).log() + a)
        return norm - (nu + 1) / 2 * logs + self.added
