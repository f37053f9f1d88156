"""A positive quantity, as a report shows it: a median and an interval, since one ± says little of a long tail.

Its doubt, and how far a prediction is off, are on the scale of logarithms: a factor. Where y may be 0, each row has the
probability of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from wherefrom.likelihoods.views.quantity import Quantity
from wherefrom.predictive import panels
from wherefrom.predictive.panels import Output, Words, short
from wherefrom.predictive.row_scores import Z

_MEDIAN = "Median of the predicted distribution: as many true values should be above it as below"
_FACTOR = "Two thirds of the true values that are not 0 should be within this factor of the middle of the prediction"
_OFF = "Logarithm of the truth less that of the middle of the prediction, in standard deviations"
_ZERO = "Probability that the value is 0"


def outputs(prediction: Any, truth: Any, names: Sequence[str], noise: str, unit: str) -> list[Output]:
    """A view of each column of y."""
    truth = torch.as_tensor(truth, dtype=torch.float64).reshape(len(prediction), -1)
    each = [prediction] if prediction.is_flat else [prediction.of_output(j) for j in range(truth.shape[1])]
    return [Positive(one, truth[:, j], names[j], unit, noise) for j, one in enumerate(each)]


@dataclass(frozen=True, eq=False)
class Positive(Quantity):
    """A prediction of one positive quantity, and the truth."""

    @property
    def words(self) -> Words:
        words: Words = Quantity.words.fget(self)  # type: ignore[attr-defined]
        return replace(words, main_score="nll", no_model=f"one distribution of {self.name} for every row")

    def baseline(self) -> dict[str, Any]:
        """Scores of one distribution for all rows; squared errors would compare little but the largest values."""
        same, nll = self.prediction.same_for_all(self.truth), self.nll_by_row()
        if nll is None or "nll" not in same:
            return Quantity.baseline(self)
        return {"scores": self.prediction.baselines(self.truth), "gain": panels.gain(nll, same["nll"])}

    def shown(self, listed: Tensor, before: Quantity | None) -> dict[str, Any]:
        shown = Quantity.shown(self, listed, before)
        detail = ["mean", "std", "off"] + ["zero"] * self._has_zeros
        columns = ["truth", "median", "interval", "factor"]
        rows = shown["rows"] | {"columns": columns, "sort": "factor", "detail": detail}
        return shown | {"rows": rows | {"tip": ["truth", "median", "interval"]}}

    @property
    def _has_zeros(self) -> bool:
        return self.prediction.presence is not None

    def _headline(self) -> dict[str, Any]:
        median = self.prediction.median.double()
        row = int(median.argsort()[(len(median) - 1) // 2])
        low, high = (panels.written(float(end[row])) for end in self._bounds)
        say = [
            "is the 95% interval of a typical row: its median is in the middle of all rows, "
            f"{panels.written(float(median[row]))}. The 95% intervals contain ",
            {"score": "coverage"},
            " of the true values: ",
            self.verdict()["text"],
            ".",
        ]
        return {"big": f"{low} to {high}", "small": self.unit or f"for {self.name}" * (self.name != "y"), "say": say}

    def _points(self, listed: Tensor) -> dict[str, list[Any]]:
        prediction = self.prediction.of_rows(listed)
        std = prediction.doubt_variance.sqrt()
        truth = self.truth[listed]
        off = (torch.where(truth > 0, truth, torch.nan).log() - prediction.logs.mean) / std
        far = (off.abs() > Z) & off.isfinite()
        return Quantity._points(self, listed) | {
            "median": short(prediction.median),
            "factor": short(std.exp()),
            "zero": short(prediction.zero_probability),
            "off": short(off, 3),
            "is_off": far.int().tolist(),
        }

    def _fields(self) -> dict[str, Any]:
        fields = Quantity._fields(self)
        return fields | {
            "mean": fields["mean"] | {"name": "mean", "head": "Mean"},
            "median": fields["mean"] | {"name": "median", "head": "Median", "title": _MEDIAN},
            "factor": {"name": "within a factor of", "as": "number", "digits": 3, "head": "Factor", "title": _FACTOR},
            "off": fields["off"] | {"title": _OFF},
            "zero": {"name": "probability of 0", "as": "percent", "title": _ZERO},
        }
