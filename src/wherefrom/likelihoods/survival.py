"""Survival: y is a time until an event, or until a row was seen last without it (it is censored then).

The network says the location m of log T = m + s W, where W has one of the laws in training/survival.py: accelerated
failure time. The scale s is fitted on rows that were held out, predicted row by row, or given. The predictive
distribution is the mixture over members and samples k,

    S(t)  =  mean over k of  P(W > (log t - m_k) / s_k)

and a row that was seen from `entry` to t has the likelihood f(t) / S(entry) with the event, S(t) / S(entry) without.

The curves S are in predictive/survival_curves.py, and what is read from them in survival_prediction.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.likelihoods.censored import NEVER, Censored, as_censored
from wherefrom.likelihoods.likelihood import Cells, MemberScores, Moments, TableWishes
from wherefrom.likelihoods.quantities import OfNumbers, check_noise, fitted_noise, noise_of_table
from wherefrom.likelihoods.survival_prediction import LawName, SurvivalPrediction
from wherefrom.predictive import survival_scores
from wherefrom.predictive.calibration import By
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.searching import lowest
from wherefrom.training.data import Scaler, Schema, column_names
from wherefrom.training.losses import MOST_LOG_VARIANCE, Loss
from wherefrom.training.objective import Encoded, Label
from wherefrom.training.survival import LAWS, LOSSES, Law, newton, same_for_all
from wherefrom.training.workers import one_core

Scale = float | Literal["fit", "predicted"] | None

_EXPECTED = 0.5  # standard deviation of the shift and the log scale that a fit is expected to find
_MOST_COMPONENTS = 64  # answers that a scale is fitted by
_POINTS = 50  # of a background
_KERNEL = 0.05
_TINY = torch.finfo(torch.float64).tiny


@stored("Survival")
@dataclass(frozen=True)
class Survival(OfNumbers):
    """The likelihood of times that may be censored: y = (time, event), or (time, event, entry) if rows entered late.

    y is an array of two or three columns, a frame or a dictionary with the names time, event and entry, or a structured
    array as scikit-survival has it. The event is 1 (seen) or 0 (censored: the time is how long it was not seen).

    noise: the scale s of log T = m + s W. "fit" (default): one value, estimated on `held_out` of the rows, which no
        member trains on. "predicted": the network has two outputs, m and log s^2. A number: s itself. None: that of
        all training rows together.
    held_out: the fraction of the rows that "fit" holds out (default 0.1).
    law: the distribution of T given m and s: "loglogistic" (default: over five tables of patients, the lowest NLL on
        average, and least moved by single rows), "weibull" or "lognormal".

    >>> Survival().outputs(targets=1), Survival("predicted", law="lognormal").outputs(targets=1)
    (1, 2)
    """

    task: ClassVar[str] = "survival"
    target: ClassVar[str] = "times that may be censored"
    without_hidden: ClassVar[str] = "linear accelerated failure time model"
    cells: ClassVar[Cells] = "times"
    table_options: ClassVar[tuple[str, ...]] = ("noise",)
    calibrations: ClassVar[tuple[By, ...]] = ("variance",)
    calibrates_tables: ClassVar[tuple[By, ...]] = ("variance",)
    doubt_of: ClassVar[str] = "whether the event has come by a time in the middle of the follow-up"
    has_density: ClassVar[bool] = True
    noise: Scale = "fit"
    held_out: float = 0.1
    law: LawName = "loglogistic"

    def __post_init__(self) -> None:
        check_noise("noise", self.noise, self.held_out, may_be_none=True)
        if not isinstance(self.noise, str | None) and not 0 < self.noise < math.inf:
            raise ValueError(f"noise is the scale of log T, a number above zero, not {self.noise}")
        if self.law not in LAWS:
            names = ", ".join(f'"{name}"' for name in LAWS)
            raise ValueError(f"law must be one of {names}, not {self.law!r}")

    # ------------------------------------------------------------------ training

    def check_targets(self, y: Tensor) -> None:
        as_censored(y)

    def encode(self, y: Any, classes: tuple[Label, ...] = ()) -> Encoded:
        names = column_names(y)
        return Encoded(as_censored(y).encoded, True, 1, names[:1], logs=(0, 2))

    def units(self, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return location and scale of log times by the law without any column, so that m = 0 and s = 1 is this law.

        The event is shifted by half of the share of rows that had it: its sign says what happened, and the share is
        known to predictions.
        """
        with one_core():
            all_rows = same_for_all(self._law, y, weights)
        share = y[:, 1].mean() if weights is None else (weights * y[:, 1]).sum() / weights.sum()
        location = [all_rows.location, float(share) / 2, all_rows.location]
        scale = [all_rows.scale, 1.0, all_rows.scale]
        return torch.tensor(location, dtype=torch.float64), torch.tensor(scale, dtype=torch.float64)

    def loss_for(self, scaler: Scaler) -> Loss:
        scale = 1.0 if isinstance(self.noise, str | None) else self.noise / float(scaler.y_std[0])
        return LOSSES[self.law]((scale,))

    def hopeless_loss(self, targets: int, is_standardised: bool) -> float:
        """Return a loss far above that of one distribution for all rows, which is about 1.5."""
        return 5.0 if is_standardised and self.noise in ("fit", None) else math.inf

    def doubt_network(
        self, model: str, outputs: Tensor, last_functions: frozenset[Any], is_trained: bool
    ) -> str | None:
        if not is_trained or self.noise != "predicted":
            return None
        if not float(outputs[..., 1:].abs().max()) > MOST_LOG_VARIANCE:
            return None
        return f"{model} predicts log squared scales beyond ±{MOST_LOG_VARIANCE:.1f}, which are cut there"

    # ------------------------------------------------------------------ prediction

    @property
    def _law(self) -> Law:
        return LAWS[self.law]

    @property
    def noise_kind(self) -> str:
        return self.noise if isinstance(self.noise, str) else "given"

    def moments(self, outputs: Tensor, spread: Tensor | None) -> Moments:
        """Return the mean of log T, its variance between answers, and given each answer where outputs say the scale.

        A scale that is not predicted shifts the mean of the Weibull law by the same for all: `predictive` adds that.
        """
        if self.noise != "predicted":
            return Moments(outputs.double(), spread, None)
        middle, log_square = outputs.double().chunk(2, dim=-1)
        if spread is not None:
            spread, log_spread = spread.chunk(2, dim=-1)
            log_square = log_square + 0.5 * log_spread.double()
        square = log_square.clamp(-MOST_LOG_VARIANCE, MOST_LOG_VARIANCE).exp()
        return Moments(middle + self._law.mean * square.sqrt(), spread, self._law.variance * square)

    def noise_of(self, moments: Moments, scaler: Scaler, fitted: Tensor | None) -> Tensor:
        if moments.noise is not None:
            return moments.noise
        return self._law.variance * self._shift_and_scale(scaler, fitted)[1].square()

    def _shift_and_scale(self, scaler: Scaler, fitted: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return what is added to every location, and the scale, where it is the same for all rows.  # (1,) each"""
        zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        if self.noise == "fit":
            both = fitted_noise("scale", fitted)
            return both[:1], both[1:]
        if self.noise is None:
            return zero, one
        assert not isinstance(self.noise, str)
        return zero, self.noise / scaler.y_std[:1]

    def predictive(self, outputs: Mixture, schema: Schema, scaler: Scaler, fitted: Tensor | None) -> SurvivalPrediction:
        moments = self.moments(outputs.answers, outputs.spread)
        offset = torch.zeros(1, dtype=torch.float64)
        if moments.noise is None:
            shift, scale = self._shift_and_scale(scaler, fitted)
            offset = shift + self._law.mean * scale
        within = outputs.within_changed(lambda part: part[..., :1])
        noise = self.noise_of(moments, scaler, fitted)
        mixture = replace(outputs, answers=moments.answers + offset, spread=moments.spread, noise=noise, within=within)
        location, scale, share = scaler.y_mean[:1], scaler.y_std[:1], 2 * float(scaler.y_mean[1])
        return SurvivalPrediction(mixture, location, scale, self.law, share, offset, y_names=schema.y_names)

    @one_core()
    def fit_noise(self, outputs: Mixture, y: Tensor, scaler: Scaler, weights: Tensor | None) -> Tensor:
        """Shift of the location, and scale, under which the mixture makes these rows most likely.  # (2,)

        Training takes the scale of all rows together, larger than that of the rows given their columns; that shifts the
        locations. Both are expected to be near 0 and 1: N(0, 0.5^2) for the shift and the log scale.
        """
        law = self._law
        few = max(1, outputs.answers.shape[1] * len(outputs.answers) // _MOST_COMPONENTS)  # that are enough
        middle = outputs.answers[:, ::few, :, 0].double()  # (members, samples, rows)
        share = torch.ones(len(y), dtype=torch.float64) if weights is None else weights.double()
        share = share / share.mean()
        even = torch.full((len(middle),), 1 / len(middle), dtype=torch.float64)
        each = (even if outputs.weights is None else outputs.weights) / middle.shape[1]
        log_weights = each.log().repeat_interleave(middle.shape[1]).unsqueeze(1)
        middle = middle.flatten(0, 1)[log_weights[:, 0].isfinite()]
        log_weights = log_weights[log_weights[:, 0].isfinite()]
        log_time, is_event, log_entry = _standardised(y, scaler)
        late = torch.nonzero(y[:, 2] > NEVER).flatten()

        def cost(at: Tensor) -> Tensor:
            """Mean NLL at a shift and a log scale."""
            rate = torch.exp(-at[1])
            z = (log_time - middle - at[0]) * rate
            had = torch.logsumexp(log_weights + law.log_density(z[:, is_event]), 0) - at[1]
            alive = torch.logsumexp(log_weights + law.log_survival(z[:, ~is_event]), 0)
            total = -(share[is_event] * had).sum() - (share[~is_event] * alive).sum()
            if len(late):
                z = (log_entry[late] - middle[:, late] - at[0]) * rate
                total = total + (share[late] * torch.logsumexp(log_weights + law.log_survival(z), 0)).sum()
            return (total + at.square().sum() / (2 * _EXPECTED**2)) / len(y)

        shift, log_scale = newton(cost, torch.zeros(2, dtype=torch.float64))
        return torch.stack([shift, log_scale.exp()])

    def background(self, y: Tensor, scaler: Scaler, targets: int) -> tuple[Tensor, Tensor]:
        """Return quantiles of log time by Kaplan and Meier; beyond the last event, the law of all rows goes on."""
        time, event, entry = Censored.decoded(y).numpy()
        steps = survival_scores.kaplan_meier(time, event, entry)
        probabilities = (np.arange(_POINTS) + 0.5) / _POINTS
        points = torch.from_numpy(np.log(steps.quantile(probabilities)))
        points = (points - scaler.y_mean[0]) / scaler.y_std[0]
        last = float(steps.survival[-1]) if len(steps.survival) else 1.0
        end = (float(np.log(steps.times[-1])) - scaler.y_mean[0]) / scaler.y_std[0] if len(steps.times) else -math.inf
        below = -torch.expm1(-self._law.cumulative(torch.as_tensor(end, dtype=torch.float64)))
        beyond = 1 - (1 - below) * (1 - torch.from_numpy(probabilities)) / last
        tail = self._law.quantile(beyond.clamp(1e-12, 1 - 1e-12))
        points = torch.where(points.isfinite(), points, tail).unsqueeze(1)
        variance = points.var(0, correction=0).clamp_min(_TINY)
        middle = points.mean(0)
        return middle + math.sqrt(1 - _KERNEL) * (points - middle), _KERNEL * variance

    # ------------------------------------------------------------------ choosing how to train

    @one_core()
    def member_scores(self, outputs: Tensor, y: Tensor, scaler: Scaler) -> MemberScores:
        """Return NLL and CRPS of log time, with the scale that each network says, or the shift and scale that suit it.

        # (members, rows, outputs), (rows, 3)
        """
        law, middle = self._law, outputs.double()[..., 0]
        log_time, is_event, log_entry = _standardised(y, scaler)

        def nll(middle: Tensor, log_scale: Tensor) -> Tensor:
            rate = torch.exp(-log_scale)
            z, z_entry = ((log - middle) * rate for log in (log_time, log_entry))
            hazard = law.cumulative(z)
            had = log_scale - law.log_hazard(z, hazard)
            return torch.where(is_event, had, 0.0) + hazard - law.cumulative(z_entry)

        if self.noise == "predicted":
            log_scale = 0.5 * outputs.double()[..., 1].clamp(-MOST_LOG_VARIANCE, MOST_LOG_VARIANCE)
        elif isinstance(self.noise, str | None):
            members = len(middle)
            shift = torch.zeros(members, dtype=torch.float64)
            grid = torch.linspace(-3.0, 1.0, 13, dtype=torch.float64).unsqueeze(1).expand(-1, members)
            near = torch.linspace(-1.0, 1.0, 7, dtype=torch.float64).unsqueeze(1).expand(-1, members)

            def cost(shift: Tensor, log: Tensor) -> Tensor:
                expected = (shift.square() + log.square()) / (2 * _EXPECTED**2 * len(y))
                return nll(middle + shift[:, None], log[:, None]).mean(1) + expected

            log = lowest(lambda log: cost(shift, log), grid, sections=8)
            for reach in (1.0, 0.2):
                log_before, shift_before = log, shift
                shift = lowest(lambda move: cost(move, log_before), shift_before + reach * near, 8)  # noqa: B023
                moved = shift
                log = lowest(lambda log: cost(moved, log), log_before + reach * near, 8)  # noqa: B023
            middle, log_scale = middle + shift[:, None], log[:, None].expand_as(middle)
        else:
            log_scale = torch.full_like(middle, math.log(self.noise / float(scaler.y_std[0])))
        scale = float(scaler.y_std[0])
        in_time = torch.where(is_event, y[:, 0].double() + math.log(scale), 0.0)
        z = (log_time - middle) * torch.exp(-log_scale)
        below, above = _squares(law, z)
        crps = scale * log_scale.exp() * (below + torch.where(is_event, above, 0.0))
        return MemberScores(nll(middle, log_scale) + in_time, crps)

    def to_search(self, leaves_noise: bool) -> Survival:
        predicts = self.noise == "predicted" and not leaves_noise
        return replace(self, noise="predicted" if predicts else None)

    @property
    def by_row(self) -> Survival:
        return replace(self, noise="predicted")

    def suited(self, y: Tensor) -> Survival:
        """Return it with the law under which these rows are most likely without any column.

        On five tables of patients, that was the law with the lowest cross-validated NLL of networks, or within 0.002.
        """
        best = min(LAWS.values(), key=lambda law: _nll_of_all(law, Censored.decoded(y)))
        return replace(self, law=best.name)  # type: ignore[arg-type]

    @classmethod
    def of_table(cls, wishes: TableWishes) -> Survival:
        return cls(noise_of_table(wishes, none=None), wishes.held_out)


def _standardised(y: Tensor, scaler: Scaler) -> tuple[Tensor, Tensor, Tensor]:
    """Return log time, event and log entry of an encoded y, standardised.  # (rows,) each"""
    y = y.double()
    logs = (y[:, [0, 2]] - scaler.y_mean[0]) / scaler.y_std[0]
    return logs[:, 0], y[:, 1] > 0, logs[:, 1]


# ---------------------------------------------------------------------- integrals of a law


def _squares(law: Law, z: Tensor) -> tuple[Tensor, Tensor]:
    """Integrals of F^2 below z and of S^2 above it, in closed form; with s = 1, their sum is the CRPS of log time."""
    if law.name == "lognormal":
        return _normal_squares(z), _normal_squares(-z)
    if law.name == "loglogistic":
        softplus = torch.nn.functional.softplus
        return softplus(z) - torch.sigmoid(z), softplus(-z) - torch.sigmoid(-z)
    x = z.clamp_max(5.0).exp()  # beyond, S is zero
    above = _exponential_integral(2 * x)
    return z - law.mean - math.log(2) + 2 * _exponential_integral(x) - above, above


def _normal_squares(z: Tensor) -> Tensor:
    """z Phi^2 + 2 phi Phi - Phi(sqrt(2) z) / sqrt(pi)"""
    below = torch.special.ndtr(z)
    density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return z * below.square() + 2 * density * below - torch.special.ndtr(math.sqrt(2) * z) / math.sqrt(math.pi)


def _exponential_integral(x: Tensor) -> Tensor:
    """E1(x): a series up to 1, and a continued fraction above."""
    small, large = x.clamp(_TINY, 1.0), x.clamp_min(1.0)
    series, term = torch.zeros_like(x), torch.ones_like(x)
    for k in range(1, 22):
        term = -term * small / k
        series = series - term / k
    fraction = torch.zeros_like(x)
    for k in range(120, 0, -1):
        fraction = k / (1 + k / (large + fraction))
    return torch.where(x <= 1, -0.5772156649015329 - small.log() + series, torch.exp(-large) / (large + fraction))


@one_core()
def _nll_of_all(law: Law, truth: Censored) -> float:
    """Mean NLL of rows under the one distribution of a law that makes them most likely."""
    y = truth.encoded
    units = same_for_all(law, y)
    z, z_entry = ((y[:, k] - units.location) / units.scale for k in (0, 2))
    had = law.log_density(z) - math.log(units.scale) - y[:, 0]
    logs = torch.where(truth.event, had, -law.cumulative(z)) + law.cumulative(z_entry)
    return -float(logs.mean())
