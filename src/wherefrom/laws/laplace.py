"""Laplace's approximation (MacKay, 1992): the Gaussian that has the curvature of the loss at the end of the training.

    theta ~ N(theta_t,  (H / s + p I)^-1),        H the generalised Gauss-Newton curvature, p the prior's precision

s is 1 where the loss is a log-likelihood, and the variance of the noise for squared errors: that of the residuals,
unless it is to be chosen, too. It is a law of t: near a minimum it describes where iterates with the prior's weight
decay and the right amount of noise would come to rest. p, and s if wanted, make the marginal likelihood largest,

    log p(D)  =  log p(D | theta) - (sum of log(h / s + p) - P log p + p |theta|^2) / 2,      h eigenvalues of H

or p is the one whose linearised model predicts each row best from the others, without a new training. That model,
fitted to all rows by one step of Newton's, is theta_p = theta_t - (H / s + p I)^-1 (slope + p theta_t). Without row n,
its outputs there are N(f_p + C g, C), where g is the slope of the row's loss, L its curvature, and

    C  =  (S^-1 - L)^-1  =  S (I - L S)^-1,        S = J (H / s + p I)^-1 J^T.

That needs all of the curvature: where it is kept as a diagonal or as Kronecker products, a row would seem to decide
more than its own outputs. There, and for "last_layer", the model that predicts is linear in the last layer alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.laws.gauss_newton import STRUCTURES, Curvature, batches, slopes
from wherefrom.laws.law import Collector, Finished, Gaussian, Law

_GRID = tuple(10 ** (k / 4) for k in range(-16, 17))  # prior precisions that "cv" tries
_SAMPLES = 100  # of a row's outputs, by which its likelihood is averaged


@stored("Laplace")
@dataclass(frozen=True)
class Laplace:
    """A Gaussian with the curvature of the loss at the last iterate.

    structure: structure of the curvature: "diagonal"; "kron" (default), a Kronecker product for each linear or
        convolutional layer and the diagonal of the others; "full", for small networks; or "last_layer", the full
        curvature of the last layer alone.
    prior_precision: a number; "marglik" (default), the one with the largest marginal likelihood; or "cv", the one that
        predicts each row best from the others, in all weights for "full" and in the last layer's for the others.
    noise: for squared errors, the standard deviation of y given the network's output, in the units of training:
        standard deviations of y, unless `standardise` is off; "marglik", the one with the largest marginal likelihood;
        or None (default), that of the residuals on the training rows. With a diagonal or Kronecker products, the
        marginal likelihood counts more weights as learned than there are rows, and finds too much noise.

    The network should have converged. The loss must be a log-likelihood: that of `wf.Regression`, `wf.Classification`
    or `wf.Ordinal`. `posterior.predict(x, method="linearised")` predicts with the network's linear expansion, which
    suits this law better than samples of the network itself do. The noise of `wf.Regression(noise="fit")` is fitted for
    it, unless dropout is marginalised, too.

    >>> Laplace("diagonal", prior_precision=1.0)
    Laplace(structure='diagonal', prior_precision=1.0, noise=None)
    """

    every: ClassVar[Literal["epoch"]] = "epoch"
    fewest: ClassVar[int] = 1
    is_linearised: ClassVar[bool] = True
    structure: Literal["diagonal", "kron", "full", "last_layer"] = "kron"
    prior_precision: float | Literal["marglik", "cv"] = "marglik"
    noise: float | Literal["marglik"] | None = None

    def __post_init__(self) -> None:
        if self.structure not in STRUCTURES:
            raise ValueError(f"structure must be one of {', '.join(map(repr, STRUCTURES))}, not {self.structure!r}")
        if self.prior_precision not in ("marglik", "cv") and not _is_positive(self.prior_precision):
            raise ValueError(
                f'prior_precision must be a number above zero, "marglik" or "cv", not {self.prior_precision!r}'
            )
        if self.noise not in (None, "marglik") and not _is_positive(self.noise):
            raise ValueError(f'noise must be a standard deviation above zero, "marglik" or None, not {self.noise!r}')

    def collector(self, theta: Tensor, iterations: int) -> Collector | None:
        return None

    def finish(self, member: Finished) -> Law:
        if member.density is None:
            raise ValueError(
                "Laplace needs a loss that is a log-likelihood, as those of wf.Regression, wf.Classification and "
                "wf.Ordinal are; for this likelihood, use wf.SWAG()"
            )
        curvature = STRUCTURES[self.structure](member)
        evidence = Evidence.of(member, curvature)
        noise = evidence.residual if self.noise is None else None
        if isinstance(self.noise, int | float):
            noise = self.noise**2
        if self.prior_precision == "cv":
            judged = curvature if self.structure in ("full", "last_layer") else STRUCTURES["last_layer"](member)
            precision, noise = _cross_validated(member, judged, noise)
        else:
            prior = None if self.prior_precision == "marglik" else float(self.prior_precision)
            precision, noise = evidence.best(prior, noise)
        law = curvature.law(member, evidence.scale(precision, noise))
        if self.structure == "full":  # as other rooms know it
            (_, _, _, size), none = curvature.blocks[0].tolist(), torch.zeros_like(law.mean)
            vectors = law.rotations[1:].unflatten(0, (size, size))
            factor = F.pad((vectors * law.scale[:size]).T, (0, member.size - size))
            return Gaussian(law.mean, none, factor)
        if self.structure == "diagonal" or not len(law.blocks):
            return Gaussian(law.mean, law.scale.square(), law.mean.new_zeros(0, member.size))
        return law


@dataclass(frozen=True, eq=False)
class Evidence:
    """The numbers that the marginal likelihood of the rows depends on.

    values: (weights,), eigenvalues of the curvature of the loss, of the weights that vary.
    loss: the sum over rows and columns, at the trained weights.
    numbers: rows times columns of y.
    square: |theta|^2 of the weights that vary.
    has_noise: True if the loss is -log p(y) times twice the variance of a noise.
    """

    values: Tensor
    everywhere: Tensor  # (weights,), the same with zeros elsewhere
    loss: float
    numbers: int
    square: float
    has_noise: bool

    @classmethod
    def of(cls, member: Finished, curvature: Curvature) -> Evidence:
        loss, columns = 0.0, 1
        for x, y, row_weights in batches(member, 1):
            columns = y.shape[-1]
            with torch.no_grad():
                outputs = member.outputs(member.parameters, x)
                loss += len(y) * columns * float(member.loss(outputs, y, row_weights))
        theta = member.parameters.cpu().double()[curvature.varies]
        has_noise = member.density == "without its noise"
        values = curvature.values
        return cls(values[curvature.varies], values, loss, member.rows * columns, float(theta @ theta), has_noise)

    def log(self, precision: Tensor, noise: Tensor) -> Tensor:
        """Return log p(D) of a prior precision and a variance of the noise, which is 1 where the loss has none."""
        fit = torch.as_tensor(self.loss, dtype=torch.float64)
        if self.has_noise:
            fit = fit / (2 * noise) + 0.5 * self.numbers * torch.log(2 * math.pi * noise)
        learned = torch.log1p(self.values * self.per_noise(noise) / precision).sum()
        return -fit - 0.5 * (learned + precision * self.square)

    def best(self, precision: float | None, noise: float | None) -> tuple[float, float]:
        """Return the precision and the noise of the largest marginal likelihood; what is given stays."""
        starts = [1.0 if precision is None else precision, 1.0]
        if self.has_noise:
            starts[1] = self.residual if noise is None else noise
        logs = [torch.tensor(math.log(start), dtype=torch.float64) for start in starts]
        free = [logs[0]] * (precision is None) + [logs[1]] * (noise is None and self.has_noise)
        if free:
            _maximise(lambda: self.log(logs[0].exp(), logs[1].exp()), free)
        return float(logs[0].exp()), float(logs[1].exp())

    @property
    def residual(self) -> float:
        """Mean squared residual of the training rows, where the loss is a squared error."""
        return max(self.loss / self.numbers, 1e-12)

    def scale(self, precision: float, noise: float) -> Tensor:
        """Return standard deviations in rotated coordinates.  # (weights,)"""
        return (self.everywhere * self.per_noise(noise) + precision).rsqrt()

    def per_noise(self, noise: Any) -> Any:
        """Return what the loss is multiplied by to be -log p(y)."""
        return 1 / (2 * noise) if self.has_noise else 1.0


def _maximise(value: Callable[[], Tensor], free: list[Tensor]) -> None:
    """Move numbers, in place, to where a smooth function of them is largest."""
    search = torch.optim.LBFGS(
        [number.requires_grad_() for number in free],
        max_iter=200,
        tolerance_grad=1e-9,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def slope() -> Tensor:
        search.zero_grad()
        with torch.enable_grad():
            loss = -value()
        loss.backward()
        return loss.detach()

    search.step(slope)
    for number in free:
        number.requires_grad_(False)


def _cross_validated(member: Finished, curvature: Curvature, noise: float | None) -> tuple[float, float]:
    """Return the precision, and its noise, that predict each row best from the others."""
    evidence = Evidence.of(member, curvature)
    settings = [evidence.best(precision, noise) for precision in _GRID]
    scores = left_out_scores(member, curvature, evidence, settings)
    return settings[int(scores.argmax())]


def left_out_scores(
    member: Finished, curvature: Curvature, evidence: Evidence, settings: list[tuple[float, float]]
) -> Tensor:
    """Return the sum of log p(row | the other rows) for each precision and noise.  # (settings,)"""
    z = torch.randn(_SAMPLES // 2, member.network.outputs, generator=member.generator, dtype=torch.float64)
    z = torch.cat([z, -z])
    coordinates = curvature.law(member, evidence.everywhere)
    turn = lambda values: coordinates.turned(F.pad(values.cpu(), (0, member.size - values.shape[-1]))).double()  # noqa: E731
    theta, slope = turn(member.parameters), turn(_slope(member))
    varies = F.pad(curvature.varies, (0, len(theta) - len(curvature.varies)))
    values = F.pad(evidence.everywhere, (0, len(theta) - len(evidence.everywhere)))
    scores = torch.zeros(len(settings), dtype=torch.float64)
    for x, y, row_weights in batches(member, len(member.parameters)):
        outputs, turned = member.outputs(member.parameters, x).detach(), turn(slopes(member, x)) * varies
        weights, truth = row_weights.cpu().double(), y.cpu().double()
        for number, (precision, noise) in enumerate(settings):
            per_noise = evidence.per_noise(noise)
            variance = 1 / (values * per_noise + precision)
            fitted = outputs.cpu().double() - turned @ (variance * (slope * per_noise + precision * theta))
            there = fitted.to(outputs)
            covariance = turned * variance @ turned.mT
            g, curved = (part.cpu().double() * per_noise for part in _of_outputs(member, there, y))
            centre, spread, axes = _without_row(fitted, covariance, g, curved, weights)
            if evidence.has_noise:
                away = (axes.mT @ (truth - centre).unsqueeze(-1)).squeeze(-1)
                logs = -0.5 * (away.square() / (spread + noise) + torch.log(2 * math.pi * (spread + noise))).sum(-1)
            else:
                answers = centre + torch.einsum("noi,ki->kno", axes * spread.sqrt().unsqueeze(-2), z)
                logs = torch.logsumexp(-_row_losses(member, answers, truth), 0) - math.log(len(z))
            scores[number] += (weights * logs).sum()
    return scores


def _without_row(
    outputs: Tensor, covariance: Tensor, slope: Tensor, curved: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, and variances along axes, of each row's outputs without what the row itself said.

    # (rows, outputs), (rows, outputs), (rows, outputs, axes)
    """
    curved, slope = curved * weights[:, None, None], slope * weights[:, None]
    none = torch.eye(outputs.shape[-1], dtype=outputs.dtype)
    # S (I - L S)^-1; a row that alone decides its outputs would leave them anywhere.
    wider = torch.linalg.solve((1 + 1e-9) * none - curved @ covariance, covariance, left=False)
    values, vectors = torch.linalg.eigh((wider + wider.mT) / 2)
    return outputs + (wider @ slope.unsqueeze(-1)).squeeze(-1), values.clamp_min(0.0), vectors


def _slope(member: Finished) -> Tensor:
    """Return the gradient of the sum over rows of the loss, times y's columns.  # (weights,)"""
    total = torch.zeros_like(member.parameters)
    for x, y, row_weights in batches(member, 1):
        loss = partial(_weighted_loss, member, x, y, row_weights)
        total += torch.func.grad(loss)(member.parameters)
    return total


def _weighted_loss(member: Finished, x: Tensor, y: Tensor, row_weights: Tensor, parameters: Tensor) -> Tensor:
    return y.numel() * member.loss(member.outputs(parameters, x), y, row_weights)


def _of_outputs(member: Finished, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return first and second derivatives of each row's loss, times y's columns.

    # (rows, outputs), (rows, outputs, outputs)
    """
    slope = torch.func.grad(lambda f: _row_losses(member, f, y).sum())(outputs)
    return slope, member.information(outputs, y)


def _row_losses(member: Finished, outputs: Tensor, y: Tensor) -> Tensor:
    """Return each row's loss, times y's columns.  # (..., rows, outputs) -> (..., rows)"""
    wide = y.expand(*outputs.shape[:-1], y.shape[-1])
    return y.shape[-1] * member.loss(outputs.unsqueeze(-2), wide.unsqueeze(-2), None)


def _is_positive(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 < number < math.inf
