"""The prediction of times that may be censored: curves, quantiles, scores, sources, and the columns of tables.

`mean`, `variance` and `std` are those of log T, which all laws have; the mean of T itself depends on times that nobody
was followed for. Times are read from `median`, `quantile`, `interval` and `restricted_mean`.

Sources are those of the probability to be without the event at a horizon, as the variance of this yes or no:

    S (1 - S)  =  Var_k S_k  (split by the choices of training)  +  mean of S_k (1 - S_k)  (noise)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.likelihoods.censored import Censored, as_censored
from wherefrom.likelihoods.likelihood import Columns, Summary
from wherefrom.likelihoods.quantities import TIE_BREAK, Quantities, checked_level, checked_probability
from wherefrom.likelihoods.views import times as view
from wherefrom.predictive import pictures, survival_scores
from wherefrom.predictive.background import Background, Blend
from wherefrom.predictive.calibration import or_nan
from wherefrom.predictive.conformal import ConformalScores
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.panels import Output
from wherefrom.predictive.row_scores import Score
from wherefrom.predictive.sources import Sources, sources
from wherefrom.predictive.survival_curves import Curves
from wherefrom.predictive.survival_scores import DCalibration, Steps
from wherefrom.training.survival import LAWS
from wherefrom.training.workers import one_core

LawName = Literal["weibull", "lognormal", "loglogistic"]
IntervalReading = Literal["few_members", "mixture", "paper"]
Times = Sequence[float] | NDArray[np.float64] | Tensor | float

_PANELS, _PANEL_NODES = 10, 6  # of an integral over log time
_GRID = 20  # times of an integrated Brier score
_MOST_LOG = 690.0  # whose exponential is a number
_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, eq=False, repr=False)
class SurvivalPrediction(Quantities):
    """The predictive distribution of times at some rows.

    `mean`, `variance` and `std` are of the natural logarithm of time. Every curve falls to zero, so that medians and
    quantiles always exist; those beyond the time that rows were followed for are the law's, and not seen in the data.
    """

    picture_kinds: ClassVar[dict[str, pictures.Picture]] = {
        "curves": pictures.survival_curves,
        "sources": pictures.sources,
    }
    noun: ClassVar[str] = "time"
    mixture: Mixture  # of the means of log time given each answer, standardised
    location: Tensor  # (1,): log time is location + scale * standardised
    scale: Tensor
    law: LawName = "loglogistic"
    share: float = 0.0  # of the training rows that had the event; 0 where that is not known
    offset: Tensor | None = None  # that was added to the networks' answers
    is_flat: bool = True
    y_names: tuple[str, ...] = ()
    conformal: None = None
    blend: Blend | None = None
    is_stretched: bool = False  # the variance of log time was calibrated

    # ------------------------------------------------------------------ curves

    def survival(self, times: Times) -> Tensor:
        """Probability to be without the event at each time.  # (rows, times)

        times: one time, or several.
        """
        return self._curves.survival(self._as_z(times)).clamp(0.0, 1.0)

    def cdf(self, times: Times) -> Tensor:
        """Probability to have had the event by each time.  # (rows, times)

        times: one time, or several.
        """
        return 1 - self.survival(times)

    def hazard(self, times: Times) -> Tensor:
        """Rate of events at each time among rows that had none before, per unit of time.  # (rows, times)

        times: one time, or several.
        """
        z, at = self._as_z(times), _as_times(times)
        return (self._curves.logs(z, is_density=True) - self._curves.logs(z)).exp() / (self.scale * at)

    @one_core()
    def survival_interval(self, times: Times, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """Band of the curves over members and samples: how far they disagree.  # (rows, times) each

        It holds the curves of this share of them, and not the noise, which is what a curve itself speaks of. In
        one-shot prediction, members that vary count with their mean curves.

        times: one time, or several.
        level: level of the interval (default 0.95).
        """
        return self._curves.band(self._as_z(times), (1 - checked_level(level)) / 2)

    # ------------------------------------------------------------------ times

    @one_core()
    def quantile(self, probability: float) -> Tensor:
        """Time by which the event has happened with this probability.  # (rows,)

        probability: a number between 0 and 1.
        """
        return self._as_time(self._curves.quantile(checked_probability(probability)))

    @property
    def reading(self) -> IntervalReading:
        """The reading of `interval` where none is asked for: "few_members", or "mixture" if it was calibrated."""
        return "mixture" if self.is_stretched else "few_members"

    @one_core()
    def interval(self, level: float = 0.95, reading: IntervalReading | None = None) -> tuple[Tensor, Tensor]:
        """Interval of times that holds the event with this probability, as much below as above.  # (rows,) each

        Where a background is mixed in, it is the networks' interval with its ends moved outwards.

        level: the probability (default: 0.95).
        reading: "mixture" (or "paper"), between two quantiles; "few_members", with what few members lack
            (few_members.py). Default: "few_members", or "mixture" where the variance was calibrated.
        """
        low, high = self._ends(level, reading)
        return self._as_time(low), self._as_time(high)

    def _ends(self, level: float, reading: IntervalReading | None = None) -> tuple[Tensor, Tensor]:
        """Ends of the interval, as standardised log times.  # (rows,) each"""
        tail, reading = (1 - checked_level(level)) / 2, reading or self.reading
        if reading not in ("few_members", "mixture", "paper"):
            raise ValueError(f'reading must be "few_members", "mixture" or "paper", not {reading!r}')
        return self._curves.interval(tail, for_few=reading == "few_members")

    @one_core()
    def restricted_mean(self, horizon: float) -> Tensor:
        """Mean of min(T, horizon): how long a row is without the event until then.  # (rows,)

        horizon: the last time that counts.
        """
        end = self._as_z(horizon)[:, 0]
        curves = self._curves
        low, _ = curves.reach
        low = torch.minimum(low, end)
        start = self._as_time(low)

        def integrand(z: Tensor) -> Tensor:
            return curves.survival(z) * torch.exp(self.location + self.scale * z)

        return start + self.scale * _integral(integrand, low, end)

    def sample(self, count: int, seed: int = 0) -> Tensor:
        """Draw `count` times for every row.  # (count, rows)

        count: samples of each row.
        seed: seed of the samples (default 0).
        """
        return self._as_time(self._curves.sample(count, torch.Generator().manual_seed(seed)))

    @cached_property
    def samples(self) -> Tensor:
        """Geometric mean of the time by each answer, whatever its member weighs.  # (members, samples, rows)"""
        return self._as_time(self.answers.double()[..., 0])

    @property
    def horizon(self) -> float:
        """The time that sources speak of unless another is given: within the times that rows were followed for.

        It is the time by which half as many have had the event as had it among the training rows, by the law of all
        of these together; if the data was not standardised, the median of the predicted medians.
        """
        if not self.share:
            return float(self.median.median())
        return float(self._times_of_all([self.share / 2])[0])

    # ------------------------------------------------------------------ scores

    def log_likelihood(self, y: Any) -> Tensor:
        """Log density of the times of events, log probability of those of censored rows, given the entry.  # (rows,)

        y: the true times and events, as in training.
        """
        return self._log_likelihood(self._truth(y), None)

    def nll(self, y: Any, by_row: bool = False) -> Any:
        """Negative log-likelihood of y, the mean over rows; `by_row` gives each row's. Time has the user's unit.

        y: the true times and events, as in training.
        by_row: return one value for each row, instead of their mean (default False).
        """
        each = -self.log_likelihood(y)
        return each if by_row else float(each.mean())

    @one_core()
    def crps(self, y: Any, by_row: bool = False) -> Any:
        """Continuous ranked probability score of log time: 0.1 is about 10% of the time.

        With the event it is the integral of (F(t) - [t >= time])^2 over log t; of a censored row, only up to its time,
        since the rest is not known (Avati et al. 2020). That is not a proper score where many are censored: compare
        models by the NLL. A late entry is not taken into account.

        y: the true times and events, as in training.
        by_row: return one value for each row, instead of their mean (default False).
        """
        truth = self._truth(y)
        z, curves = self._z(truth.time), self._curves
        low, high = curves.reach
        inside = torch.maximum(torch.minimum(z, high), low)
        below = _integral(lambda z: (1 - curves.survival(z)).square(), low, inside) + (z - high).clamp_min(0.0)
        above = _integral(lambda z: curves.survival(z).square(), inside, high) + (low - z).clamp_min(0.0)
        each = self.scale * (below + torch.where(truth.event, above, 0.0))
        return each if by_row else float(each.mean())

    def rmse(self, y: Any) -> float:
        """Raise: the error of a censored time is not known.

        y: the true times and events, as in training.
        """
        raise ValueError("the error of a censored time is not known: use nll, concordance or integrated_brier")

    def coverage(self, y: Any, level: float = 0.95, reading: IntervalReading | None = None) -> float:
        """Share of the times that lie within the `interval` of this level and reading.

        A censored row counts by the probability that it has by itself to lie there, given that it lies beyond its time.
        The interval of a row that entered late is that of times after its entry, with the same probabilities.

        y: the true times and events, as in training.
        level: level of the interval (default 0.95).
        reading: which interval, as for `interval` (default None: `self.reading`).
        """
        return float(self._covered(self._truth(y), *self.interval(level, reading)).mean())

    def concordance(
        self, y: Any, kind: Literal["harrell", "uno"] = "harrell", reference: Any = None, until: float = math.inf
    ) -> float:
        """Share of comparable pairs of rows whose predicted medians are in the order of their times.

        kind: "harrell" (default), or "uno", which weighs pairs so that it does not depend on who was censored.
        reference: y of the rows that the probability of being censored is estimated by, for "uno" (default: y itself).
        until: count only pairs whose first event is before this time (default: all).

        y: the true times and events, as in training.
        """
        if kind not in ("harrell", "uno"):
            raise ValueError(f'kind must be "harrell" or "uno", not {kind!r}')
        time, event, entry = self._truth(y).numpy()
        _check_events(time, event, until, "a concordance")
        weights = None
        if kind == "uno":
            at = self._uncensored(y, reference).at(time)
            weights = 1 / np.where(at > 0, at, np.inf) ** 2
        predicted = self.median.numpy()
        value = survival_scores.concordance(time, event, predicted, entry, weights, until).value
        if value is None:
            raise ValueError("no two of these rows can be compared: none had the event before another's time")
        return value

    def brier(self, y: Any, times: Times, reference: Any = None) -> Tensor:
        """Brier score of the survival probability at each time, censored rows weighed by others.  # (times,)

        reference: y of the rows that the probability of being censored is estimated by (default: y itself).

        y: the true times and events, as in training.
        times: one time, or several.
        """
        return torch.from_numpy(self._brier(y, times, reference).by_row.mean(0))

    def integrated_brier(self, y: Any, times: Times | None = None, reference: Any = None) -> float:
        """Brier score, integrated over times and divided by their range (the IBS).

        times: increasing times (default: 100 between the 10% and 90% quantiles of the times in y).
        reference: as for `brier`.

        y: the true times and events, as in training.
        """
        if times is None:
            low, high = np.quantile(self._truth(y).time.numpy(), [0.1, 0.9])
            times = np.linspace(low, high, 100)
        return float(self._brier(y, times, reference).integrated.mean())

    def d_calibration(self, y: Any, bins: int = 10) -> DCalibration:
        """Count the rows by the probability that was predicted for their time: all bins should have the same.

        A censored row counts evenly above the probability of its time.

        y: the true times and events, as in training.
        bins: number of bins (default 10).
        """
        return survival_scores.d_calibration(*self.probabilities(y), bins)

    @one_core()
    def probabilities(self, y: Any) -> tuple[Tensor, Tensor]:
        """Range of the predicted probability of a time no longer than that in y, given the entry.  # (rows,) each

        With the event it is one number, F(time), which is uniform if all is well; of a censored row it goes up to 1.

        y: the true times and events, as in training.
        """
        truth = self._truth(y)
        least = self._given_entry(self._z(truth.time), truth)
        return least, torch.where(truth.event, least, 1.0)

    @one_core()
    def member_log_densities(self, y: Any, by_output: bool = False) -> Tensor:
        """The log-likelihood that each member by itself gives y.  # (members, rows[, 1])"""
        truth = self._truth(y)
        logs = torch.empty(len(self.answers), len(self), dtype=torch.float64)
        z, z_entry = self._z(truth.time).unsqueeze(1), self._z(truth.entry).unsqueeze(1)
        curves = self._curves
        for rows, part in curves.parts(1):
            had, alive = (curves.of_members(z[rows], part, is_density)[..., 0] for is_density in (True, False))
            entered = curves.of_members(z_entry[rows], part, False)[..., 0]
            had = had - (self.scale * truth.time[rows]).log()
            logs[:, rows] = torch.where(truth.event[rows], had, alive) - entered
        return logs.unsqueeze(-1) if by_output else logs

    # ------------------------------------------------------------------ sources

    @one_core()
    def sources(self, at: float | None = None) -> Sources:
        """Split the doubt about being without the event at a time by its sources, row by row and overall.

        The variance of this yes or no is S (1 - S). What single answers leave open by themselves, the mean of
        S_k (1 - S_k), is noise; the rest, the variance of S_k, is split by the choices of training.

        at: the time (default: `horizon`).
        """
        at = self.horizon if at is None else float(_as_times(at)[0])
        mixture, added = self._curves.at(self._as_z(at))
        return sources(mixture, added=added, unit=f"variance of survival to {at:.4g}")

    def all_sources(self) -> Sources:
        return self.sources()

    @property
    def row_doubt(self) -> Tensor:
        mixture, _ = self._curves.at(self._as_z(self.horizon))
        by_choices = (mixture.variance - mixture.mean_noise).clamp_min(0.0).sqrt()[:, 0]
        return by_choices + TIE_BREAK * self.std

    # ------------------------------------------------------------------ calibration

    def stretched(self, factor: Tensor) -> SurvivalPrediction:
        """Return the prediction whose log times are farther from their mean, by a factor of their variance."""
        return replace(self, mixture=self.mixture.stretched(factor), is_stretched=True)

    @property
    def reads_as_gaussian(self) -> bool:
        return False

    def linear_moments(self, y: Any) -> None:
        """None: a row that is censored has no number to compare a mean with."""
        return

    @one_core()
    def stretched_nll(self, y: Any, reading: Any = None) -> Callable[[Tensor], Tensor]:
        """Return the NLL by row as a function of the log factor of the variance.  # (1,) -> (rows, 1)"""
        truth = self._truth(y)
        return lambda log_factor: -self._log_likelihood(truth, log_factor).unsqueeze(1)

    def deviation(self, y: Any) -> Tensor:
        """Distance of log time above its mean, in standard deviations; a censored row is known to lie beyond.

        # (rows, 1)
        """
        z = self._z(self._truth(y).time).unsqueeze(1)
        return (z - self.mixture.mean) / self.mixture.variance.sqrt()

    def conformal_scores(self, y: Any) -> ConformalScores:
        raise ValueError(
            "conformal intervals hold for times that are all seen; of a censored row it is not known what it needs"
        )

    def scores_by_level(self, y: Any, levels: Sequence[float]) -> dict[str, float]:
        scores = {"NLL": self.nll(y), "CRPS": self.crps(y), "concordance": or_nan(self.concordance, y)}
        for level in levels:
            low, high = self._ends(level)
            scores[f"coverage of {level:.0%}"] = self.coverage(y, level)
            scores[f"width of {level:.0%}, in scales of log time"] = float((high - low).mean())
        return scores

    # ------------------------------------------------------------------ rows outside

    def needed_stretch(self, background: Background, level: float) -> Tensor:
        """Factor of the background's variance that makes it as wide as 99% of these rows.  # (1,)"""
        tail = (1 - level) / 2
        low, high = replace(self, blend=None)._ends(level)
        width = background.quantile(1 - tail)[0] - background.quantile(tail)[0]
        by_width = (high - low).quantile(0.99) / width
        by_variance = self.mixture.variance.quantile(0.99, dim=0) / background.variance[0]
        return torch.maximum(by_width.square(), by_variance).clamp_min(1.0)

    # ------------------------------------------------------------------ reports and tables

    @property
    def horizons(self) -> tuple[float, ...]:
        """Three times within the follow-up of the training rows, in two digits."""
        times = self._times_of_all([self.share * part for part in (0.25, 0.5, 0.75)]) if self.share else self.median
        if not self.share:
            times = times.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))
        return tuple(sorted({float(f"{float(time):.2g}") for time in times}))

    def columns(self, level: float) -> tuple[Columns, list[str]]:
        low, high = self.interval(level)
        columns = {"median": self.median, "lower": low, "upper": high}
        curves = self.survival(self.horizons)
        for k, time in enumerate(self.horizons):
            columns[f"survival_{time:g}".replace(".", "_").replace("+", "").replace("-", "m")] = curves[:, k]
        return {name: values.numpy() for name, values in columns.items()}, []

    def views(self, truth: Any, names: Sequence[str], noise: str, unit: str) -> list[Output]:
        return view.outputs(self, truth, names, noise, unit)

    def row_scores(self, columns: Columns, truth: Any) -> Columns:
        y = self._truth(truth)
        time, event, entry = y.numpy()
        lower, upper = (torch.as_tensor(columns[name]) for name in ("lower", "upper"))
        times = self._times_of_all([max(self.share, 0.5) * (k + 0.5) / _GRID for k in range(_GRID)])
        least, most = self.probabilities(truth)
        return {
            "time": time,
            "event": event,
            "entry": entry,
            "median": columns["median"],
            "nll": self.nll(y, by_row=True).numpy(),
            "crps": self.crps(y, by_row=True).numpy(),
            "covered": self._covered(y, lower, upper).numpy(),
            "width": (upper.log() - lower.log()).numpy(),
            "least": least.numpy(),
            "most": most.numpy(),
            "times": times.expand(len(self), -1).numpy(),
            "survival": self._survival_after(y.entry, times).numpy(),
        }

    @classmethod
    def summary(cls, rows: Mapping[str, Tensor], event: int | None = None) -> Summary:
        time, entry = (rows[name].double().numpy() for name in ("time", "entry"))
        had = rows["event"].numpy() > 0
        scores = {
            "nll": Score.mean(rows["nll"]),
            "concordance": Score(None),
            "ibs": Score(None),
            "crps": Score.mean(rows["crps"]),
            "coverage": _coverage(rows["covered"].double(), torch.from_numpy(had)),
        }
        sizes = {"ratio of the interval's ends": math.exp(min(_MOST_LOG, float(rows["width"].mean())))}
        if had.sum() < survival_scores.FEWEST_EVENTS:
            return Summary(scores, {}, sizes, "interval")
        scores["concordance"] = survival_scores.concordance(time, had, rows["median"].double().numpy(), entry)
        baselines = {"concordance": 0.5}  # an NLL depends so much on who was censored that only pairs of it compare
        uncensored = survival_scores.censoring(time, had, entry)
        times = rows["times"][0].double().numpy()
        is_scored = (times < time.max()) & (times >= time.min()) & (uncensored.at(times) > 0)
        if is_scored.sum() > 1:
            curves = rows["survival"].double().numpy()[:, is_scored]
            scored = survival_scores.brier(time, had, curves, times[is_scored], uncensored).integrated
            scores["ibs"] = Score.mean(torch.from_numpy(scored))
            whole = survival_scores.kaplan_meier(time, had, entry)
            one = np.minimum(whole.at(times[is_scored]) / np.maximum(whole.at(entry), _TINY)[:, None], 1.0)
            same = survival_scores.brier(time, had, one, times[is_scored], uncensored).integrated
            baselines["ibs"] = float(same.mean())
        return Summary(scores, baselines, sizes, "interval")

    def row_losses(self, y: Any) -> Columns:
        return {"nll": self.nll(y, by_row=True).numpy(), "crps": self.crps(y, by_row=True).numpy()}

    def row_errors(self, y: Any) -> tuple[Tensor, Tensor]:
        """Return the absolute error of the mean log time, and its noise; a censored row is as far off as expected."""
        truth, noise = self._truth(y), self.noise_variance.sqrt()
        return torch.where(truth.event, (truth.time.log() - self.mean).abs(), noise), noise

    def exported(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of log time, of standardised ones."""
        offset = 0.0 if self.offset is None else self.offset
        return self._in_units(mean + offset), self._shape(self.scale.square() * variance)

    def of_rows(self, rows: Any) -> SurvivalPrediction:
        blend = None if self.blend is None else self.blend.of_rows(rows)
        return replace(self, mixture=self.mixture.of_rows(rows), blend=blend)

    # ------------------------------------------------------------------ inside

    @property
    def _curves(self) -> Curves:
        return Curves(self.mixture, LAWS[self.law], self.blend)

    def _log_likelihood(self, truth: Censored, log_factor: Tensor | None) -> Tensor:
        """Log-likelihood of rows, of the distribution stretched by a factor of its variance.  # (rows,)"""
        half = torch.zeros(1, dtype=torch.float64) if log_factor is None else log_factor / 2
        middle, times = self.mixture.mean, torch.stack([truth.time, truth.entry], 1)
        z = middle + (self._z(times) - middle) * torch.exp(-half)
        alive = self._curves.logs(z)
        had = self._curves.logs(z[:, :1], is_density=True)[:, 0] - half - (self.scale * truth.time).log()
        return torch.where(truth.event, had, alive[:, 0]) - alive[:, 1]

    def _covered(self, truth: Censored, lower: Tensor, upper: Tensor) -> Tensor:
        """Probability that each row lies between two times, given what is known of it.  # (rows,)"""
        least = self._given_entry(self._z(truth.time), truth)
        low, high = (-torch.expm1(self._curves.logs(self._z(end).unsqueeze(1))[:, 0]) for end in (lower, upper))
        beyond = (high - torch.maximum(low, least)).clamp_min(0.0) / (1 - least).clamp_min(_TINY)
        is_inside = (truth.time >= lower) & (truth.time <= upper)
        is_inside = torch.where(truth.entry > 0, (least >= low) & (least <= high), is_inside)
        return torch.where(truth.event, is_inside.double(), beyond.clamp_max(1.0))

    def _given_entry(self, z: Tensor, truth: Censored) -> Tensor:
        """Probability of an earlier log time, given that the row was without the event at its entry.  # (rows,)"""
        logs = self._curves.logs(torch.stack([z, self._z(truth.entry)], 1))
        return -torch.expm1((logs[:, 0] - logs[:, 1]).clamp_max(0.0))

    def _survival_after(self, entry: Tensor, times: Times) -> Tensor:
        """Probability to be without the event at each time, given that a row was so at its entry.  # (rows, times)"""
        at_entry = self._curves.logs(self._z(entry).unsqueeze(1)).exp()
        return (self.survival(times) / at_entry.clamp_min(_TINY)).clamp_max(1.0)

    def _uncensored(self, y: Any, reference: Any) -> Steps:
        return survival_scores.censoring(*as_censored(y if reference is None else reference).numpy())

    def _brier(self, y: Any, times: Times, reference: Any) -> survival_scores.Brier:
        truth = self._truth(y)
        time, event, _ = truth.numpy()
        at = _as_times(times).numpy()
        if not (np.diff(at) > 0).all():
            raise ValueError("times must increase")
        _check_events(time, event, at[-1], "a Brier score")
        curves = self._survival_after(truth.entry, at).numpy()
        return survival_scores.brier(time, event, curves, at, self._uncensored(y, reference))

    def _truth(self, y: Any) -> Censored:
        truth = as_censored(y)
        if len(truth.time) != len(self):
            raise ValueError(f"y has {len(truth.time)} rows, but the prediction is for {len(self)}")
        return truth

    def _times_of_all(self, probabilities: Sequence[float]) -> Tensor:
        """Times by which given shares of the training rows have had the event, by the law of all.  # (times,)"""
        return self._as_time(LAWS[self.law].quantile(torch.tensor(list(probabilities), dtype=torch.float64)))

    def _z(self, times: Tensor) -> Tensor:
        return (times.clamp_min(0.0).log().clamp_min(-_MOST_LOG) - self.location) / self.scale

    def _as_z(self, times: Times) -> Tensor:
        """Times for all rows, as standardised logarithms.  # (rows, times)"""
        return self._z(_as_times(times)).expand(len(self), -1).contiguous()

    def _as_time(self, z: Tensor) -> Tensor:
        return (self.location + self.scale * z).clamp_max(_MOST_LOG).exp()


def _coverage(covered: Tensor, had: Tensor) -> Score:
    """Share of the times that intervals hold, with an error by the rows that had the event.  # (rows,) each

    A censored row counts by the model's own probability, which says nothing about how sure the share is.
    """
    seen, share = covered[had], float(covered.mean())
    if not len(seen):
        return Score(share)
    of_seen, part = Score.share(seen), len(seen) / len(covered)
    of_censored = float(covered[~had].sum()) / len(covered)
    error = None if of_seen.error is None else part * of_seen.error
    if of_seen.interval is None:
        return Score(share, error)
    low, high = (part * end + of_censored for end in of_seen.interval)
    return Score(share, error, (low, high))


def _check_events(time: NDArray[np.float64], event: NDArray[np.bool_], until: float, what: str) -> None:
    """Raise if no row had the event by a time, and warn if few had."""
    events = int((event & (time <= until)).sum())
    by = f"by {until:g}" if math.isfinite(until) else "at all"
    if not events:
        raise ValueError(f"none of these {len(time)} rows had the event {by}: there is nothing to score")
    if events < survival_scores.FEWEST_EVENTS:
        warnings.warn(
            f"only {events} of these {len(time)} rows had the event {by}: {what} of so few says little", stacklevel=4
        )


def _as_times(times: Times) -> Tensor:
    values = torch.as_tensor(np.asarray(times, dtype=np.float64)).reshape(-1)
    if not bool((values >= 0).all()) or not bool(values.isfinite().all()) or not len(values):
        raise ValueError(f"times are finite numbers that are not negative, unlike {times}")
    return values


def _integral(integrand: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """Integral of a function of each row, by Gauss and Legendre on panels.  # (rows, points) -> the same; (rows,)"""
    points, weights = (torch.from_numpy(each) for each in np.polynomial.legendre.leggauss(_PANEL_NODES))
    width = ((high - low) / _PANELS).unsqueeze(1)
    start = low.unsqueeze(1) + width * torch.arange(_PANELS, dtype=torch.float64)
    at = start.unsqueeze(2) + width.unsqueeze(2) * (points + 1) / 2
    values = integrand(at.flatten(1)).unflatten(1, (_PANELS, -1))
    return (values * weights).sum((1, 2)) * width[:, 0] / 2
