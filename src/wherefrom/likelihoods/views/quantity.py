"""A quantity, as a report shows it: a mean, a standard deviation and an interval, against the truth.

Its doubt is the variance. The 95% intervals should hold 95% of the truth, overall and within fifths of the prediction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from wherefrom.likelihoods.views.variance import ByVariance
from wherefrom.predictive import panels, row_scores
from wherefrom.predictive.panels import Output, ScoreTerm, SourceWords, Term, Words, percent, percents, short
from wherefrom.predictive.row_scores import Score, Z

_MEAN = "Mean of the predicted distribution"
_OFF = "Truth minus prediction, in standard deviations"
_STD_ALONE = "The standard deviation that this source alone would cause"
_STD = "Standard deviation of the predicted distribution"
_LOGARITHMIC = " Axes are logarithmic, since a few values are very large."
_LEVELS = [round(0.05 * step, 2) for step in range(1, 20)]
_PIT_BINS = 10

SOURCES = {
    "noise": SourceWords(
        "not explained by {inputs}",
        "Look for what else explains {target}",
        "Rows that look the same to the networks differ by this much in {target}: more networks and longer training "
        "would not lower it. Further columns could, and so could {richer} if this one is too simple.",
        "unexplained",
    )
}
_NOISE = {"Regression": "noise", "Positive": "noise", "Counts": "dispersion"}  # of likelihoods, as they call it
# How it is done: of a posterior, on the command line, and by wf.fit.
HOW = {
    "variance": ('posterior.calibrated("variance", data)', "--calibrate variance", 'calibrate="variance"'),
    **{f"noise of {name}": (f'wf.{name}({its}="fit")', "--noise fit", 'noise="fit"') for name, its in _NOISE.items()},
    **{
        f"{name} row by row": (f'wf.{name}({its}="predicted")', "--noise predicted", 'noise="predicted"')
        for name, its in _NOISE.items()
    },
}
_SCORES = {
    "rmse": ScoreTerm(
        "Typical error (RMSE)",
        "Root mean squared error: how far predictions of {target} are from the truth, large misses counted more. "
        "In the units of {target}; lower is better.",
        "RMSE",
    ),
    "r2": ScoreTerm(
        "Explained (R²)",
        "The share of the variance of {target} that predictions explain: 100% is perfect, 0% is no better than always "
        "answering with the mean, and it can be below.",
        "R²",
        "high",
        is_percent=True,
    ),
    "nll": ScoreTerm(
        "Surprise (NLL)",
        "Negative log-likelihood: how much the truth surprises the run, which it does if predictions are far off, or "
        "if they are sure and wrong. Lower is better. It is in nats, and only differences mean something: 0.7 less "
        "means that the truth was given twice the probability.",
        "NLL",
        absent="no density: the variance is zero",
    ),
    "crps": ScoreTerm(
        "Error of the whole prediction (CRPS)",
        "Continuous ranked probability score: the distance between the predicted distribution and the truth, in the "
        "units of {target}. Of a prediction without doubt it is the absolute error. Lower is better.",
        "CRPS",
    ),
    "coverage": ScoreTerm(
        "Coverage of the 95% interval",
        "How much of the truth lies within its 95% interval: 95% is right, less is too sure, more too careful. Where "
        "single values are likely, as counts are, more cannot always be avoided.",
        "95% holds",
        0.95,
        is_percent=True,
    ),
}
_GLOSSARY = {
    "std": Term(
        "Standard deviation (std, σ)",
        "How wide a prediction is: about two thirds of the true values should lie within one of it, 95% within two.",
    )
}


def outputs(prediction: Any, truth: Any, names: Sequence[str], noise: str, unit: str) -> list[Output]:
    """A view of each column of y; `noise` is how the likelihood has it: "none", "given", "fit" or "predicted"."""
    truth = torch.as_tensor(truth, dtype=torch.float64)
    if truth.ndim == 1 or truth.shape[1] == 1:
        alone = prediction if prediction.is_flat else prediction.of_output(0)
        return [Quantity(alone, truth.flatten(), names[0], unit, noise)]
    return [Quantity(prediction.of_output(j), truth[:, j], name, unit, noise) for j, name in enumerate(names)]


@dataclass(frozen=True, eq=False)
class Quantity(ByVariance):
    """A prediction of one quantity, and the truth."""

    prediction: Any  # of one output
    truth: Any  # (rows,)
    name: str
    unit: str = ""
    noise: str = "none"

    @property
    def words(self) -> Words:
        return Words(
            scores=_SCORES,
            glossary=_GLOSSARY,
            main_score="rmse",
            no_model=f"always predicting the mean {self.name}",
            calibrate=f"Calibrate them on held-out rows ({{{self.prediction.widened_by}}}), or leave more choices "
            "open.",
            cause=self._add_noise if self.noise == "none" else "",
            mend_group="The noise is predicted row by row already; more rows there, or further columns, could mend it."
            if self.noise == "predicted"
            else self._predict_noise,
            footnote=self._footnote,
        )

    @property
    def _add_noise(self) -> str:
        name = self.prediction.noise_of
        return "The likelihood has no noise, so the intervals hold none" + (
            f": {{noise of {name}}} adds it." if name else "."
        )

    @property
    def _predict_noise(self) -> str:
        name = self.prediction.noise_of
        how = f": {{{name} row by row}}." if name else "."
        return f"Let the networks predict the noise row by row{how}"

    @property
    def _footnote(self) -> str:
        reading = getattr(self.prediction, "reading", None)
        if reading not in ("conformal", "few_members"):
            return f"Intervals and NLL read the mixture of networks as {self.prediction.read_as}."
        read = f"NLL and CRPS read the mixture of networks as {self.prediction.read_as}."
        how = "conformal" if reading == "conformal" else "wider, as few networks ask for"
        return f"{read} Intervals are {how}."

    @property
    def _doubt_of(self) -> str:
        """The name of what the sources split the variance of."""
        return str(self.prediction.doubt_of.format(name=self.name))

    @property
    def _on_scale(self) -> str:
        return f" of {self._doubt_of}" * (self._doubt_of != self.name)

    # ------------------------------------------------------------------ figures

    @cached_property
    def _bounds(self) -> tuple[Tensor, Tensor]:
        return _interval(self.prediction, 0.95)

    @cached_property
    def _is_covered(self) -> Tensor:
        low, high = self._bounds
        return (self.truth >= low) & (self.truth <= high)

    def _coverage(self, level: float) -> float:
        low, high = _interval(self.prediction, level)
        return float(((self.truth >= low) & (self.truth <= high)).double().mean())

    def scores(self) -> dict[str, Score]:
        crps = self.prediction.crps(self.truth, by_row=True)
        return row_scores.of_quantities(self.truth, self.prediction.mean, self._is_covered, crps, self.nll_by_row())

    def baseline(self) -> dict[str, Any]:
        y = self.truth
        better = panels.gain((self.prediction.mean - y).square(), (y - y.mean()).square())
        return {"scores": self.prediction.baselines(y), "gain": better}

    def nll_by_row(self) -> Tensor | None:
        try:
            nll: Tensor = self.prediction.nll(self.truth, by_row=True)
        except ValueError:  # without a variance there is no density
            return None
        return nll

    def doubt(self) -> Tensor:
        std: Tensor = self.prediction.std
        return std

    spread = doubt

    def verdict(self) -> dict[str, Any]:
        judged = row_scores.avoidable_coverage(self.truth, *self._bounds, 0.95)
        return panels.coverage_verdict(self._is_covered, 0.95, "the truth", judged)

    def groups(self) -> list[dict[str, Any]]:
        """Return how often the 95% intervals hold the truth, by fifths of the predicted mean; ties stay together."""
        mean = self.prediction.mean.double()
        parts, groups = panels.fifths(mean), []
        for part in parts:
            ends = panels.told_apart(float(mean[part].min()), float(mean[part].max()), digits=3)
            low, high = (bound[part] for bound in self._bounds)
            judged = row_scores.avoidable_coverage(self.truth[part], low, high, 0.95)
            each = panels.group(" to ".join(ends), self._is_covered[part], 0.95, len(parts), judged)
            groups.append(each | {"say": self._about_group(each)})
        return groups

    def _about_group(self, group: dict[str, Any]) -> str:
        hold = f"the 95% intervals contain {group['observed']:.0%} of the true values"
        return f"Where {self.name} is predicted to be {group['name']}, {hold}"

    # ------------------------------------------------------------------ what is drawn

    def shown(self, listed: Tensor, before: Quantity | None) -> dict[str, Any]:
        in_unit = f", {self.unit}" if self.unit else ""
        return {
            "headline": self._headline(),
            "table": ["rmse", "r2", "nll", "crps"],
            "points": self._points(listed),
            "fields": self._fields(),
            "rows": {
                "columns": ["truth", "mean", "interval", "std"],
                "sort": "std",
                "detail": ["off"],
                "tip": ["truth", "mean", "interval"],
                "search": [],
            },
            "doubt": panels.variance_by_source(
                f"The variance of predictions of {self._doubt_of}, split by what causes it.",
                "variance of the prediction" + self._on_scale,
                _STD_ALONE,
            ),
            "spread": {
                "key": "std",
                "label": f"standard deviation of the prediction{in_unit}",
                "log_from": panels.log_from(self.prediction.std),
            },
            "truth": {
                "lead": None,
                "panels": [self._scatter(in_unit)],
            },
            "calibration": self._calibration(before),
        }

    def _calibration(self, before: Any) -> dict[str, Any]:
        return {
            "lead": None,
            "panels": [self._levels(before), self._ranks() | {"part": "technical"}, *self._groups_panel()],
        }

    def _headline(self) -> dict[str, Any]:
        held: list[Any] = [
            " The 95% intervals contain ",
            {"score": "coverage"},
            " of the true values: ",
            self.verdict()["text"],
            ".",
        ]
        unit = f" {self.unit}" if self.unit else ""
        if self._log_from is not None:  # one ± would say little about a target with a long tail
            row = self.prediction.mean.double().argsort()[(len(self.truth) - 1) // 2]
            mean, low, high = (float(each[row]) for each in (self.prediction.mean, *self._bounds))
            typical = [
                f"is the 95% interval of a typical row: its mean is in the middle of all rows, {panels.written(mean)}."
            ]
            big = f"{panels.written(low, 2)} to {panels.written(high, 2)}"
            return {"big": big, "small": unit.strip(), "say": [*typical, *held]}
        std, of_all = float(self.prediction.std.double().median()), float(self.truth.double().std(correction=0))
        say = [
            "is the ",
            {"term": "std", "text": "standard deviation"},
            f" of a typical prediction; that of {self.name} itself is {panels.written(of_all)}{unit}.",
        ]
        return {"big": f"± {panels.written(std)}", "small": unit.strip(), "say": [*say, *held]}

    @cached_property
    def _log_from(self) -> float | None:
        """The value at which logarithmic axes of the target begin; None if they are not logarithmic."""
        return panels.log_from(self.truth)

    def _points(self, listed: Tensor) -> dict[str, list[Any]]:
        mean, std, truth = (each[listed] for each in (self.prediction.mean, self.prediction.std, self.truth))
        off = (truth - mean) / std
        numbers = {"truth": truth, "mean": mean, "std": std, "variance": self.prediction.doubt_variance[listed]}
        numbers |= {"low": self._bounds[0][listed], "high": self._bounds[1][listed]}
        flags = {"is_off": (off.abs() > Z) & off.isfinite(), "is_missed": ~self._is_covered[listed]}
        return (
            {name: short(values) for name, values in numbers.items()}
            | {"off": short(off, 3)}
            | {name: values.int().tolist() for name, values in flags.items()}
        )

    def _fields(self) -> dict[str, Any]:
        number = {"as": "number", "digits": 4, "unit": f" {self.unit}" if self.unit else ""}
        return {
            "truth": number | {"name": "truth", "far": "is_missed"},
            "mean": number | {"name": "prediction", "like": "truth", "title": _MEAN},
            "std": number | {"name": "± std", "digits": 3, "title": _STD},
            "interval": number | {"name": "95% interval", "as": "range", "digits": 3, "of": ["low", "high"]},
            "off": {"name": "off by", "as": "number", "decimals": 1, "unit": " σ", "title": _OFF}
            | {"size": True, "far": "is_off"},
        }

    def _scatter(self, in_unit: str) -> dict[str, Any]:
        return {
            "type": "scatter",
            "title": "Predictions against the truth",
            "caption": "On the line, the prediction is right." + _LOGARITHMIC * (self._log_from is not None),
            "square": True,
            "x": {"key": "truth", "label": f"truth{in_unit}", "log_from": self._log_from},
            "y": {"key": "mean", "label": f"prediction{in_unit}", "log_from": self._log_from},
            "bars": {"low": "low", "high": "high", "label": f"prediction and its 95% interval{in_unit}"},
            "diagonal": True,
            "miss": "is_missed",
            "legend": ["the interval contains the truth", "the interval misses it"],
            "tip": ["truth", "mean", "interval", "std"],
        }

    def _levels(self, before: Quantity | None) -> dict[str, Any]:
        observed = [self._coverage(level) for level in _LEVELS]
        past = None if before is None else [before._coverage(level) for level in _LEVELS]
        error = [math.sqrt(level * (1 - level) / len(self.prediction)) for level in _LEVELS]
        triples = zip(_LEVELS, observed, error, strict=True)
        strays = [part > level for level, part, reach in triples if abs(part - level) > Z * reach]
        chance = "All levels lie within the band that chance allows."
        if strays:
            side = "some too careful (above the line), some too sure (below)"
            if len(set(strays)) == 1:
                side = "too careful (above the line)" if strays[0] else "too sure (below the line)"
            chance = f"{len(strays)} of {len(_LEVELS)} levels leave the band that chance allows: {side}."
        lines = {"hold": percents(observed)} | ({} if past is None else {"before": percents(past)})
        lines["chance allows"] = [f"± {percent(Z * reach, 1)}" for reach in error]
        return {
            "type": "curve",
            "title": "Coverage by level",
            "caption": f"An 80% interval should contain 80% of the true values. {chance}",
            "xs": _LEVELS,
            "ys": short(observed),
            "x": panels.axis("level of the interval", [0, 1]),
            "y": panels.axis("coverage", [0, 1]),
            "chance": panels.around([0, *_LEVELS, 1], [0, *error, 0], "band"),
            "before": None if past is None else {"xs": _LEVELS, "ys": short(past)},
            "tips": panels.tips([f"{percent(level)} intervals" for level in _LEVELS], lines),
        }

    def _ranks(self) -> dict[str, Any]:
        """Histogram of the truth's probability integral transform."""
        bins = panels.counts(self.prediction.cdf(self.truth), _PIT_BINS)
        return panels.probabilities_panel(
            "Where the truth falls",
            "Flat is right; a U is too sure, a hill too careful.",
            "predicted probability of a smaller value",
            bins,
            sum(bins) / _PIT_BINS,
        )

    def _groups_panel(self) -> list[dict[str, Any]]:
        return panels.groups_panel(
            self.groups(),
            "Coverage by predicted value",
            f"Coverage of the 95% intervals, by fifths of the predicted {self.name}.",
            head=f"Predicted ({self.unit})" if self.unit else "Predicted",
            hit="Covered",
            level=0.95,
            x={"label": f"predicted {self.name}"},
            y={"label": "coverage of the interval"},
        )

    def data(self, there: Tensor | None) -> dict[str, list[Any]]:
        return {"columns": [panels.column(self.name, self.truth, there)], "panels": []}


def _interval(prediction: Any, level: float) -> tuple[Tensor, Tensor]:
    """The interval of this level; the distribution's own, where too few rows were calibrated on for a conformal one."""
    try:
        low, high = prediction.interval(level)
    except ValueError:
        low, high = prediction.uncalibrated_interval(level)
    return low, high
