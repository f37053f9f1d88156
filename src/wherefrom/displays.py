"""scikit-learn's way to a picture: `DoubtDisplay.from_estimator(fitted, X, y)`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self


@dataclass
class DoubtDisplay:
    """A plot of predictions and their doubt, like scikit-learn's displays.

    prediction: what `predict_dist` returned.
    y: the truth, or None.
    kind: of quantities "intervals", "calibration" (needs y) or "sources"; of classes "sources", "reliability" or
        "risk_coverage" (both need y) (default None: the first).
    level: of intervals (default: 0.95).

    After `plot`, `ax_` has matplotlib's axes and `figure_` their figure.

    >>> import matplotlib; matplotlib.use("Agg")
    >>> import numpy as np
    >>> import wherefrom as wf
    >>> x = np.random.default_rng(0).normal(size=(60, 1))
    >>> fitted = wf.WherefromRegressor(epochs=5, draws=2, random_state=0, families="network").fit(x, 3 * x[:, 0])
    >>> wf.DoubtDisplay.from_estimator(fitted, x, 3 * x[:, 0], kind="calibration").ax_.get_xlabel()
    'level of the interval'
    """

    prediction: Any
    y: Any = None
    kind: str | None = None
    level: float = 0.95
    ax_: Any = field(init=False, default=None, repr=False)
    figure_: Any = field(init=False, default=None, repr=False)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any = None, *, kind: str | None = None, level: float = 0.95, ax: Any = None
    ) -> Self:
        """Predict X by a fitted estimator, and draw it.

        estimator: a fitted `WherefromRegressor` or `WherefromClassifier`, or a pipeline that ends with one.
        X, y: rows, and the truth if it is at hand (default None).
        kind, level: as for the class.
        ax: matplotlib's axes to draw on (default: a new figure).
        """
        if hasattr(estimator, "steps"):
            X, estimator = estimator[:-1].transform(X), estimator[-1]
        if not hasattr(estimator, "predict_dist"):
            raise TypeError(f"{type(estimator).__name__} has no predict_dist: fit a WherefromRegressor or a classifier")
        return cls.from_predictions(estimator.predict_dist(X), y, kind=kind, level=level, ax=ax)

    @classmethod
    def from_predictions(
        cls, prediction: Any, y: Any = None, *, kind: str | None = None, level: float = 0.95, ax: Any = None
    ) -> Self:
        """Draw a prediction; arguments as for `from_estimator`.

        prediction: a prediction of these rows.
        y: their true values (default None).
        kind: as in `prediction.plot` (default None: its first plot).
        level: level of the intervals (default 0.95).
        ax: axes to draw into (default None: new ones).
        """
        return cls(prediction, y, kind, level).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw it again, on other axes if they are given.

        ax: axes to draw into (default None: new ones).
        """
        self.ax_ = self.prediction.plot(self.kind, self.y, level=self.level, ax=ax)
        self.figure_ = self.ax_.figure
        return self
