"""Regression: y is a quantity, or several, with Gaussian or Student's t noise around the network's answer.

What a network learns, and how its noise is fitted. What is predicted is in regression_prediction.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.likelihoods.likelihood import MemberScores, Moments, TableWishes
from wherefrom.likelihoods.quantities import (
    OfNumbers,
    check_noise,
    fitted_noise,
    noise_of_table,
)
from wherefrom.likelihoods.regression_prediction import Prediction
from wherefrom.predictive import background, gaussians, student
from wherefrom.predictive.calibration import By
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.searching import lowest
from wherefrom.predictive.student import LEAST_DF, MOST_DF, StudentT
from wherefrom.training.data import Scaler, Schema, column_moments
from wherefrom.training.losses import MOST_LOG_VARIANCE, GaussianNLL, Loss, SquaredError, StudentError, StudentNLL
from wherefrom.training.workers import one_core

Noise = float | Literal["fit", "predicted"] | None
Tails = Literal["gaussian", "student"]

_NOISE_POINTS, _NOISE_ROWS = 40, 500  # of a grid, and rows to find the valley of the noise by
_TRAINING_DF = 4.0  # of Student's t in the loss, where they are to be fitted


@stored("Regression")
@dataclass(frozen=True)
class Regression(OfNumbers):
    """The likelihood of real numbers, one column or several.

    noise: the standard deviation of y around the network's output, in y's units. None (default): no noise, as in the
        paper; squared error, all doubt comes from the weights. A number. "fit": one value for each output, estimated on
        `held_out` of the rows. "predicted": the network has two outputs for each column of y, its mean and the
        logarithm of its variance, and learns both.
    held_out: share of the rows on which the noise is fitted, and no member is trained (default 0.1).
    least: the lowest possible value of y, such as 0 for a length of stay: means, quantiles and intervals end there. No
        true value lies in what is cut off, so coverage is never lower. Densities and scores do not change (default:
        none).
    tails: "gaussian" (default), or "student" if some values are far off: noise is then Student's t, and training
        forgives large errors.
    df: degrees of freedom of Student's t, above 2 so that there is a variance (default: fitted together with the noise,
        between 2.1 and 200, which is practically a Gaussian).

    >>> Regression(noise=0.5).outputs(targets=2), Regression(noise="predicted").outputs(targets=2)
    (2, 4)
    """

    task: ClassVar[str] = "regression"
    target: ClassVar[str] = "quantities"
    without_hidden: ClassVar[str] = "linear regression"
    table_options: ClassVar[tuple[str, ...]] = ("noise", "least")
    calibrations: ClassVar[tuple[By, ...]] = ("variance", "shape", "conformal")
    calibrates_tables: ClassVar[tuple[By, ...]] = ("variance", "shape", "conformal")
    noise: Noise = None
    held_out: float = 0.1
    least: float | None = None
    tails: Tails = "gaussian"
    df: float | None = None

    def __post_init__(self) -> None:
        if self.tails not in ("gaussian", "student"):
            raise ValueError(f'tails must be "gaussian" or "student", not {self.tails!r}')
        if self.df is not None and (self.tails != "student" or not LEAST_DF <= self.df <= MOST_DF):
            raise ValueError(
                f'df are the degrees of freedom of tails="student", from {LEAST_DF:g} to {MOST_DF:g}, not {self.df}'
            )
        if self.least is not None and not math.isfinite(self.least):
            raise ValueError(f"least is a number, or None, not {self.least}")
        check_noise("noise", self.noise, self.held_out, may_be_none=True)
        if not isinstance(self.noise, str | None) and not self.noise > 0:
            raise ValueError(f"noise is a standard deviation and must be positive, not {self.noise}")

    @property
    def own_calibrations(self) -> tuple[By, ...]:
        """Without a shape where there is one, Student's t."""
        return tuple(by for by in self.calibrations if not (self.is_student and by == "shape"))

    @property
    def is_student(self) -> bool:
        return self.tails == "student"

    # ------------------------------------------------------------------ training

    @property
    def fits_noise(self) -> bool:
        return self.noise == "fit" or (self.is_student and self.df is None and self.noise is not None)

    def check_targets(self, y: Tensor) -> None:
        if self.least is not None and len(y) and float(y.min()) < self.least:
            raise ValueError(f"y is said to be at least {self.least:g}, but is as low as {float(y.min()):g}")

    def units(self, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        return column_moments(y, weights)

    def loss_for(self, scaler: Scaler) -> Loss:
        if self.is_student:
            return StudentNLL(self.df or _TRAINING_DF) if self.noise == "predicted" else StudentError()
        return GaussianNLL() if self.noise == "predicted" else SquaredError()

    def hopeless_loss(self, targets: int, is_standardised: bool) -> float:
        """Return a loss far above that of one answer for all rows, which is 1 where y is standardised."""
        return 3.0 if is_standardised and self.noise != "predicted" else math.inf

    def doubt_network(
        self, model: str, outputs: Tensor, last_functions: frozenset[Any], is_trained: bool
    ) -> str | None:
        """Predicted variances are bounded: networks that saw y as it was may be beyond."""
        if not is_trained or self.noise != "predicted":
            return None
        if not float(outputs.chunk(2, dim=-1)[1].abs().max()) > MOST_LOG_VARIANCE:
            return None
        return (
            f"{model} predicts log variances beyond ±{MOST_LOG_VARIANCE:.1f}, which are cut there: train on a y of "
            "about unit variance, and say how it was scaled (scaler=...)"
        )

    # ------------------------------------------------------------------ prediction

    @property
    def has_density(self) -> bool:
        return self.noise is not None

    @property
    def noise_kind(self) -> str:
        return "none" if self.noise is None else self.noise if isinstance(self.noise, str) else "given"

    def moments(self, outputs: Tensor, spread: Tensor | None) -> Moments:
        """Return the answers, their variance and their noise. A predicted variance is log-normal where outputs vary.

        It is bounded as in training, between a millionth and a million of y's own variance.
        """
        if self.noise != "predicted":
            return Moments(outputs, spread, None)
        mean, log_variance = outputs.chunk(2, dim=-1)
        log_variance = log_variance.double()
        if spread is not None:
            spread, log_spread = spread.chunk(2, dim=-1)
            log_variance = log_variance + 0.5 * log_spread.double()
        return Moments(mean, spread, log_variance.clamp(-MOST_LOG_VARIANCE, MOST_LOG_VARIANCE).exp())

    def noise_of(self, moments: Moments, scaler: Scaler, fitted: Tensor | None) -> Tensor | None:
        if self.is_student and isinstance(self.noise, str):
            square, df = self._student(fitted)
            squares = square if moments.noise is None else square * moments.noise
            return squares * df / (df - 2)
        if self.noise == "fit":
            return fitted_noise("noise", fitted)
        if isinstance(self.noise, str | None):
            return moments.noise
        return (self.noise / scaler.y_std).square()

    def _student(self, fitted: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the squared scale, or the factor of each answer's own, and the degrees of freedom.  # (outputs,)"""
        if not self.fits_noise:
            assert self.df is not None
            return torch.ones(1, dtype=torch.float64), torch.tensor([float(self.df)], dtype=torch.float64)
        square, df = fitted_noise("noise", fitted)
        return square, df

    def predictive(self, outputs: Mixture, schema: Schema, scaler: Scaler, fitted: Tensor | None) -> Prediction:
        moments = self.moments(outputs.answers, outputs.spread)
        noise = self.noise_of(moments, scaler, fitted)
        within = outputs.within_changed(lambda part: part[..., : schema.targets])
        mixture = replace(outputs, answers=moments.answers, spread=moments.spread, noise=noise, within=within)
        shape = None
        if self.is_student and self.noise is not None:
            shape = StudentT(self._student(fitted)[1].expand(schema.targets))
        return Prediction(
            mixture, scaler.y_mean, scaler.y_std, schema.y_is_flat, schema.y_names, least=self.least, shape=shape
        )

    def fit_noise(self, outputs: Mixture, y: Tensor, scaler: Scaler, weights: Tensor | None) -> Tensor:
        """Variance of each output, in units of y's own; of Student's t, its squared scale and degrees of freedom.

        # (outputs,), or (2, outputs); where the network says its noise, a factor of that
        """
        answers, _, predicted = self.moments(outputs.answers.double(), None)
        squares = (answers - scaler.y(y, torch.float64)).square()
        squares = (squares if predicted is None else squares / predicted).flatten(0, 1)
        each = None if outputs.weights is None else outputs.weights.repeat_interleave(answers.shape[1])
        with one_core():
            if not self.is_student:
                return most_likely_noise(squares, each, weights)
            logs = None if predicted is None else -0.5 * predicted.log().flatten(0, 1)
            variance = None if isinstance(self.noise, str | None) else (self.noise / scaler.y_std).square()
            return torch.stack(student.most_likely(squares, each, weights, self.df, logs, variance))

    def member_scores(self, outputs: Tensor, y: Tensor, scaler: Scaler) -> MemberScores:
        """Return the scores, with the variance that the outputs say, or else the mean square of the errors."""
        answers, _, noise = self.moments(outputs.double(), None)
        error = scaler.y_std * (scaler.y(y, torch.float64) - answers)  # (members, rows, outputs)
        if self.is_student:
            return self._student_scores(error, None if noise is None else scaler.y_std.square() * noise)
        if noise is None:
            variance = error.square().mean(1, keepdim=True).expand_as(error)
        else:
            variance = scaler.y_std.square() * noise
        variance = variance.clamp_min(torch.finfo(torch.float64).tiny)
        nll = -gaussians.log_density(error, torch.zeros_like(error), variance)
        std = variance.sqrt()
        return MemberScores(nll.sum(-1), gaussians.crps(error, std).mean(-1), error / std)

    def _student_scores(self, error: Tensor, square: Tensor | None) -> MemberScores:
        """Scores by the squared scale that the outputs say, or else by the t that suits each network best."""
        df = torch.full_like(error[:, :1], self.df or _TRAINING_DF)
        if square is None:
            flat = error.square().movedim(1, 0).flatten(1)[None]  # (1, rows, members * outputs)
            with one_core():
                square, df = (part.reshape(df.shape) for part in student.most_likely(flat, None, None, self.df))
        variance = (square * df / (df - 2)).clamp_min(torch.finfo(torch.float64).tiny).expand_as(error)
        nll = -student.log_density(error, torch.zeros_like(error), variance, df)
        std = variance.sqrt()
        return MemberScores(nll.sum(-1), (std * StudentT(df).crps(error / std)).mean(-1))

    def background(self, y: Tensor, scaler: Scaler, targets: int) -> tuple[Tensor, Tensor]:
        return background.of_quantities(scaler.y(y, torch.float64))

    def to_search(self, leaves_noise: bool) -> Regression:
        predicts = self.noise == "predicted" and not leaves_noise
        df = (self.df or _TRAINING_DF) if self.is_student and predicts else self.df
        return replace(self, noise="predicted" if predicts else None, df=df)

    @property
    def by_row(self) -> Regression | None:
        return replace(self, noise="predicted")

    @classmethod
    def of_table(cls, wishes: TableWishes) -> Regression:
        return cls(noise_of_table(wishes, none=None), wishes.held_out, wishes.least)


def most_likely_noise(squares: Tensor, weights: Tensor | None = None, of_rows: Tensor | None = None) -> Tensor:
    """The variance s that maximises sum_rows v log sum_k w_k N(y; answer_k, s), for each output.

    `squares` are the squared distances of y from every answer; without weights, all answers weigh the same, and so do
    all rows. A grid on some of the rows finds the valley, and Newton's method on all of them its lowest point. With
    u = log s and q_k = (y - answer_k)^2 / 2s, whose moments E and Var are over k, by how likely each answer makes y,

        cost = u / 2 - log sum_k w_k e^-q_k,      cost' = 1/2 - E q,      cost'' = E q - Var q.

    # (answers, rows, outputs), (answers,), (rows,) -> (outputs,)
    """
    if weights is not None:
        squares, weights = squares[weights > 0], weights[weights > 0]
        weights = None if bool((weights == weights[0]).all()) else weights / weights.sum()
    log_weights = None if weights is None else weights.log()[:, None, None]
    share = squares.new_full((squares.shape[1],), 1.0) if of_rows is None else of_rows.to(squares)
    share = share / share.sum()

    def logs(u: Tensor, some: Tensor) -> Tensor:
        each = some * (-0.5 * torch.exp(-u))
        return each if log_weights is None else each.add_(log_weights)

    def cost_of(some: Tensor, share: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda u: 0.5 * u - share @ torch.logsumexp(logs(u, some), 0)  # (outputs,) -> (outputs,)

    def slopes(u: Tensor) -> tuple[Tensor, Tensor]:
        q = squares * (0.5 * torch.exp(-u))
        likely = torch.softmax(-q if log_weights is None else log_weights - q, 0)
        mean = likely.mul_(q).sum(0)
        square = likely.mul_(q).sum(0)
        return 0.5 - share @ mean, share @ (mean - (square - mean.square()))

    of_answers = torch.tensordot(squares, share, ([1], [0]))  # (answers, outputs)
    spread = (of_answers.mean(0) if weights is None else torch.tensordot(weights, of_answers, 1)).log()
    grid = torch.linspace(-12, 1, _NOISE_POINTS, dtype=torch.float64)[:, None] + spread
    thin = -(-len(share) // _NOISE_ROWS)
    some = share[::thin]
    if thin == 1 or not bool(some.sum() > 0):
        return lowest(cost_of(squares, share), grid, slopes=slopes).exp()
    near = lowest(cost_of(squares[:, ::thin].contiguous(), some / some.sum()), grid, sections=4)
    around = torch.linspace(-2, 2, 5, dtype=torch.float64)[:, None]  # all rows may differ a little from some
    return lowest(cost_of(squares, share), near + around, slopes=slopes).exp()
