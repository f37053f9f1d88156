"""Positive: y is a quantity above zero, with a long upper tail; what is predicted is a mixture of log-normals.

A network answers the logarithm of y, standardised over the training rows, as `Regression` has it for y itself: each
answer m_k stands for log y ~ N(m_k, noise_k), and so for a log-normal y. Squared error, or the Gaussian loss, of log y
is all that training sees. The mixture stays on that scale, and so do the sources: shares of the variance of log y,
which is about the relative error of y, squared. Everything else is in y's own units, densities among them.

With `zeros=True` there is a hurdle before: the network has one more output for each column, the logit of y > 0, and y
is 0 with the mean probability of all answers. What is said of log y holds for a y above 0.
What is predicted is in positive_prediction.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.likelihoods.likelihood import MemberScores, Moments, TableWishes
from wherefrom.likelihoods.positive_prediction import FARTHEST, WIDEST, PositivePrediction, checked_positive
from wherefrom.likelihoods.quantities import (
    OfNumbers,
    check_noise,
    noise_of_table,
)
from wherefrom.likelihoods.regression import Noise, Regression
from wherefrom.predictive import background
from wherefrom.predictive.calibration import By
from wherefrom.predictive.log_normals import LogNormals
from wherefrom.predictive.mixture import Mixture
from wherefrom.training.data import Scaler, Schema, column_moments
from wherefrom.training.losses import GaussianNLL, HurdleError, HurdleNLL, Loss, SquaredError

_NOT_STANDARDISED = 20.0  # in place of FARTHEST and WIDEST, where the training rows are not known
_MOST_OUTPUT = 20.0  # of a network
_NODES = 64  # of Gauss and Hermite


@stored("Positive")
@dataclass(frozen=True)
class Positive(OfNumbers):
    """The likelihood of a y above zero with a long upper tail, such as a stay or a cost; one column or several.

    noise: the standard deviation of log y around the network's output, so 0.1 is an error of about 10%. "fit"
        (default): one value for each column, estimated on `held_out` of the rows. "predicted": the network has one more
        output for each column, the logarithm of the variance, and learns both. A number. None: no noise, all doubt
        comes from the weights.
    held_out: share of the rows on which the noise is fitted, and no member is trained (default 0.1).
    zeros: y may be 0: the network has one more output for each column, the logit of y > 0 (default False).

    >>> Positive().outputs(targets=1), Positive("predicted", zeros=True).outputs(targets=1)
    (1, 3)
    """

    task: ClassVar[str] = "positive"
    target: ClassVar[str] = "positive quantities"
    doubt_of: ClassVar[str] = PositivePrediction.doubt_of
    without_hidden: ClassVar[str] = "linear regression of the logarithm"
    learns_logs: ClassVar[bool] = True
    table_options: ClassVar[tuple[str, ...]] = ("noise", "zeros")
    calibrations: ClassVar[tuple[By, ...]] = ("variance", "shape", "conformal")
    calibrates_tables: ClassVar[tuple[By, ...]] = ("variance", "shape", "conformal")
    noise: Noise = "fit"
    held_out: float = 0.1
    zeros: bool = False

    def __post_init__(self) -> None:
        _ = self.of_logs  # checks the noise
        if not isinstance(self.zeros, bool):
            raise TypeError(f"zeros is True or False, not {self.zeros!r}")

    @property
    def of_logs(self) -> Regression:
        """The likelihood of log y, where y is above zero."""
        check_noise("noise", self.noise, self.held_out, may_be_none=True)
        return Regression(self.noise, self.held_out)

    @property
    def has_atoms(self) -> bool:  # type: ignore[override]
        return self.zeros

    # ------------------------------------------------------------------ training

    def can_be(self, y: Tensor) -> Tensor:
        return y >= 0 if self.zeros else y > 0

    def check_targets(self, y: Tensor) -> None:
        checked_positive(y, self.zeros)

    def units(self, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the mean and the standard deviation of log y, of the rows above zero."""
        each = [self._unit(column[column > 0], None if weights is None else weights[column > 0]) for column in y.T]
        return torch.cat([mean for mean, _ in each]), torch.cat([std for _, std in each])

    @staticmethod
    def _unit(column: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        if not len(column):
            raise ValueError("y is 0 in every row to train on: there is nothing to learn of its size")
        return column_moments(column.double().log().unsqueeze(1), weights)

    def outputs(self, targets: int) -> int:
        """Number of outputs that the network must have for this number of columns of y."""
        return targets * (1 + (self.noise == "predicted") + self.zeros)

    def loss_for(self, scaler: Scaler) -> Loss:
        if self.noise == "predicted":
            return HurdleNLL() if self.zeros else GaussianNLL()
        return HurdleError() if self.zeros else SquaredError()

    def hopeless_loss(self, targets: int, is_standardised: bool) -> float:
        """Return a loss far above that of one answer for all rows; to say whether y is 0 adds no more than 1."""
        return self.of_logs.hopeless_loss(targets, is_standardised) + self.zeros

    def doubt_network(
        self, model: str, outputs: Tensor, last_functions: frozenset[Any], is_trained: bool
    ) -> str | None:
        inner = outputs[..., : outputs.shape[-1] // (2 + (self.noise == "predicted"))] if self.zeros else outputs
        return self.of_logs.doubt_network(model, inner, last_functions, is_trained)

    # ------------------------------------------------------------------ prediction

    @property
    def has_density(self) -> bool:
        return self.noise is not None

    @property
    def noise_kind(self) -> str:
        return self.of_logs.noise_kind

    def moments(self, outputs: Tensor, spread: Tensor | None) -> Moments:
        """Return the moments of log y, standardised, where it is above zero."""
        inner, _ = self._cut(outputs)
        answers, spread, noise = self.of_logs.moments(inner, None if spread is None else self._cut(spread)[0])
        return Moments(answers.clamp(-_MOST_OUTPUT, _MOST_OUTPUT), spread, noise)

    def noise_of(self, moments: Moments, scaler: Scaler, fitted: Tensor | None) -> Tensor | None:
        return self.of_logs.noise_of(moments, scaler, fitted)

    def predictive(self, outputs: Mixture, schema: Schema, scaler: Scaler, fitted: Tensor | None) -> PositivePrediction:
        moments = self.moments(outputs.answers, outputs.spread)
        noise = self.noise_of(moments, scaler, fitted)
        within = outputs.within_changed(lambda part: part[..., : schema.targets])
        mixture = replace(outputs, answers=moments.answers, spread=moments.spread, noise=noise, within=within)
        is_standardised = bool((scaler.y_mean != 0).any()) or bool((scaler.y_std != 1).any())
        return PositivePrediction(
            mixture,
            scaler.y_mean,
            scaler.y_std,
            self._presence(outputs, schema.targets),
            (FARTHEST, WIDEST) if is_standardised else (_NOT_STANDARDISED, _NOT_STANDARDISED),
            schema.y_is_flat,
            schema.y_names,
        )

    def _cut(self, outputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return outputs about log y, and logits of y > 0."""
        if not self.zeros:
            return outputs, None
        targets = outputs.shape[-1] // self.outputs(1)
        return outputs[..., :-targets], outputs[..., -targets:]

    def _presence(self, outputs: Mixture, targets: int) -> Mixture | None:
        """Return the mixture of probabilities that y is above zero, where it may not be."""
        logits, spread = self._cut(outputs.answers)[1], None
        if logits is None:
            return None
        p, within = torch.sigmoid(logits.double()), outputs.within
        if outputs.spread is not None:
            log_spread = outputs.spread[..., -targets:].double()
            p, spread = _through_sigmoid(logits.double(), log_spread)
            factor = torch.where(log_spread > 0, spread / log_spread.clamp_min(1e-300), 0.0).mean(1)
            within = outputs.within_changed(lambda part: part[..., -targets:] * factor)
        noise = p * (1 - p) - (0.0 if spread is None else spread)
        return replace(outputs, answers=p, spread=spread, noise=noise, within=within)

    def fit_noise(self, outputs: Mixture, y: Tensor, scaler: Scaler, weights: Tensor | None) -> Tensor:
        """Variance of each column's logarithm, in its own units, by the rows above zero.  # (columns,)"""
        inner, each = replace(outputs, answers=self.moments(outputs.answers, None).answers), []
        for j, column in enumerate(y.T):
            rows = torch.nonzero(column > 0).flatten()
            if len(rows) < 2:
                raise ValueError(
                    f"{len(rows)} of {len(y)} held-out rows have a y above 0, too few to fit the noise by: raise "
                    "held_out, or give the noise as a number"
                )
            units = scaler._replace(y_mean=scaler.y_mean[j : j + 1], y_std=scaler.y_std[j : j + 1])
            some = inner.of_output(j).of_rows(rows)
            counts = None if weights is None else weights[rows]
            each.append(self.of_logs.fit_noise(some, column[rows].unsqueeze(1), units, counts))
        return torch.cat(each)

    def background(self, y: Tensor, scaler: Scaler, targets: int) -> tuple[Tensor, Tensor]:
        """Return points in y's own units; some are 0 where y is."""
        return background.of_positive(y.double())

    # ------------------------------------------------------------------ choosing how to train

    def member_scores(self, outputs: Tensor, y: Tensor, scaler: Scaler) -> MemberScores:
        """Return the scores in y's units, with the variance that the outputs say, or else the mean square of errors."""
        answers, _, noise = self.moments(outputs.double(), None)
        z = scaler.y(y, torch.float64)
        is_there = z > -math.inf
        error = torch.where(is_there, z, 0.0) - answers  # (members, rows, columns)
        if noise is None:
            count = is_there.sum(0).clamp_min(1)
            noise = (torch.where(is_there, error, 0.0).square().sum(1, keepdim=True) / count).expand_as(error)
        noise = noise.clamp_min(torch.finfo(torch.float64).tiny)
        logits = self._cut(outputs.double())[1]
        zero = None if logits is None else torch.sigmoid(-logits)
        weights = torch.ones_like(answers) if logits is None else torch.sigmoid(logits)
        logs = scaler.y_mean + scaler.y_std * answers.clamp(-FARTHEST, FARTHEST)
        variances = scaler.y_std.square() * noise.clamp_max(WIDEST**2)
        each = LogNormals(logs[None], variances[None], weights[None], zero)
        y = y.double()
        deviation = None if self.zeros else error / noise.sqrt()
        return MemberScores(-each.log_density(y).sum(-1), each.crps(y).mean(-1), deviation)

    def to_search(self, leaves_noise: bool) -> Positive:
        return replace(self, noise=self.of_logs.to_search(leaves_noise).noise)

    @property
    def by_row(self) -> Positive:
        return replace(self, noise="predicted")

    @classmethod
    def of_table(cls, wishes: TableWishes) -> Positive:
        return cls(noise_of_table(wishes, none=None), wishes.held_out, wishes.has_zeros)


def _through_sigmoid(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of sigmoid(N(mean, variance)), by the rule of Gauss and Hermite."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    total, squares = torch.zeros_like(mean), torch.zeros_like(mean)
    for node, weight in zip(nodes.tolist(), (weights / weights.sum()).tolist(), strict=True):
        p = torch.sigmoid(mean + node * variance.sqrt())
        total += weight * p
        squares += weight * p.square()
    return total, (squares - total.square()).clamp_min(0.0)


# ---------------------------------------------------------------------- the prediction
