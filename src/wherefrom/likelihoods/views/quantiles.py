"""Quantiles, as a report shows them: the central one with the widest interval, and how much truth lies below each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from wherefrom.likelihoods.views.quantity import Quantity
from wherefrom.predictive import panels, row_scores
from wherefrom.predictive.panels import Output, Words, percent, percents, short
from wherefrom.predictive.row_scores import Score, Z
from wherefrom.predictive.sources import Sources

HOW = {"conformal": ('posterior.calibrated("conformal", data)', "--calibrate conformal", 'calibrate="conformal"')}


def outputs(prediction: Any, truth: Any, names: Sequence[str], noise: str, unit: str) -> list[Output]:
    y = torch.as_tensor(truth, dtype=torch.float64).flatten()
    return [QuantileView(prediction, y, names[0], unit, noise)]


@dataclass(frozen=True, eq=False)
class QuantileView(Quantity):
    """A prediction of quantiles, and the truth."""

    @property
    def words(self) -> Words:
        return replace(
            Quantity.words.fget(self),  # type: ignore[attr-defined]
            no_model=f"always predicting the quantiles of all {self.name}",
            calibrate="Calibrate them on held-out rows: {conformal}.",
            cause="",
            mend_group="More rows there, or further columns, could mend it.",
            footnote="Quantiles assume no distribution, so there is no NLL. CRPS is by the trained levels.",
        )

    @cached_property
    def _level(self) -> float:
        """The widest interval that was trained; the range of all quantiles, where none was."""
        levels = self.prediction.levels
        return max(self.prediction.pairs, default=levels[-1] - levels[0])

    @cached_property
    def _bounds(self) -> tuple[Tensor, Tensor]:
        if not self.prediction.pairs:
            return self.prediction.quantiles[:, 0], self.prediction.quantiles[:, -1]
        low, high, _ = self.prediction._interval_there_is(self._level)
        return low, high

    @property
    def _std(self) -> Tensor:
        std: Tensor = self.prediction.std[:, self.prediction._central]
        return std

    def scores(self) -> dict[str, Score]:
        crps = self.prediction.crps(self.truth, by_row=True)
        return row_scores.of_quantities(self.truth, self.prediction.central, self._is_covered, crps, None)

    def baseline(self) -> dict[str, Any]:
        y = self.truth
        better = panels.gain((self.prediction.central - y).square(), (y - y.mean()).square())
        return {"scores": self.prediction.baselines(y), "gain": better}

    def nll_by_row(self) -> None:
        return None

    def doubt(self) -> Tensor:
        return self.prediction.row_doubt

    spread = doubt

    def sources(self) -> Sources:
        shares: Sources = self.prediction.sources(by_level=False)
        return shares

    def verdict(self) -> dict[str, Any]:
        return panels.coverage_verdict(self._is_covered, self._level, "the truth")

    def groups(self) -> list[dict[str, Any]]:
        return []

    def shown(self, listed: Tensor, before: Any) -> dict[str, Any]:
        in_unit = f", {self.unit}" if self.unit else ""
        shown = Quantity.shown(self, listed, before)
        return shown | {
            "table": ["rmse", "r2", "crps"],
            "doubt": shown["doubt"]
            | {
                "lead": f"The variance of the quantiles of {self.name} between networks, split by what causes it.",
                "axis": {"key": "variance", "label": "variance of the quantiles"},
            },
            "spread": {"key": "std", "label": f"standard deviation of the central quantile{in_unit}"},
        }

    def _calibration(self, before: Any) -> dict[str, Any]:
        return {"lead": None, "panels": [self._below(before)]}

    def _headline(self) -> dict[str, Any]:
        low, high = self._bounds
        width = panels.written(float((high - low).median()))
        say = [
            f"is the width of a typical {percent(self._level)} interval, between two quantiles. "
            "These intervals contain ",
            {"score": "coverage"},
            " of the true values: ",
            self.verdict()["text"],
            ".",
        ]
        return {"big": width, "small": self.unit or f"for {self.name}" * (self.name != "y"), "say": say}

    def _points(self, listed: Tensor) -> dict[str, list[Any]]:
        middle, truth, std = (each[listed] for each in (self.prediction.central, self.truth, self._std))
        numbers = {"truth": truth, "mean": middle, "std": std, "variance": std.square()}
        numbers |= {"low": self._bounds[0][listed], "high": self._bounds[1][listed]}
        missed = (~self._is_covered[listed]).int().tolist()
        return (
            {name: short(values) for name, values in numbers.items()}
            | {"off": short(truth - middle, 3)}
            | {"is_off": missed, "is_missed": missed}
        )

    def _fields(self) -> dict[str, Any]:
        number = {"as": "number", "digits": 4, "unit": f" {self.unit}" if self.unit else ""}
        level = percent(self._level)
        return {
            "truth": number | {"name": "truth", "far": "is_missed"},
            "mean": number | {"name": "central quantile", "like": "truth"},
            "std": number | {"name": "± between networks", "digits": 3},
            "interval": number | {"name": f"{level} interval", "as": "range", "digits": 3, "of": ["low", "high"]},
            "off": number | {"name": "off by", "size": True, "far": "is_off"},
        }

    def _below(self, before: Any) -> dict[str, Any]:
        """Share of the truth below each quantile."""
        levels, count = list(self.prediction.levels), len(self.prediction)
        observed = self.prediction.below(self.truth).tolist()
        past = None if before is None else before.prediction.below(self.truth).tolist()
        error = [math.sqrt(level * (1 - level) / count) for level in levels]
        lines = {"below": percents(observed), "chance allows": [f"± {percent(Z * reach, 1)}" for reach in error]}
        return {
            "type": "curve",
            "title": "Truth below each quantile",
            "caption": "It should be the quantile's level. Shaded: what chance allows.",
            "xs": levels,
            "ys": short(observed),
            "x": panels.axis("level of the quantile", [0, 1]),
            "y": panels.axis("truth below it", [0, 1]),
            "chance": panels.around([0, *levels, 1], [0, *error, 0], "band"),
            "before": None if past is None else {"xs": levels, "ys": short(past)},
            "tips": panels.tips([f"quantile of {percent(level)}" for level in levels], lines),
        }
