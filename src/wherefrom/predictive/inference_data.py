"""Samples of a prediction as ArviZ takes them: `posterior_predictive`, and `observed_data` where the truth is given.

The samples come from the mixture of all members, so there is one chain. Members are no chains: each has a law of its
own, and none of them is meant to reach the others' weights.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

NAME = "y"


def inference_data(prediction: Any, y: Any, samples: int, seed: int) -> Any:
    """Return ArviZ's InferenceData with samples of y for each row."""
    if not hasattr(prediction, "sample"):
        raise TypeError(f"{type(prediction).__name__} has no samples of y to export")
    arviz = _arviz()
    drawn = np.asarray(prediction.sample(samples, seed))  # (samples, rows[, outputs])
    groups = {"posterior_predictive": {NAME: drawn[None]}}
    if y is not None:
        truth = np.asarray(y)
        if truth.shape != drawn.shape[1:]:
            raise ValueError(f"y has the shape {truth.shape}, but the prediction is of {drawn.shape[1:]}")
        groups["observed_data"] = {NAME: truth}
    return arviz.from_dict(**groups, dims={NAME: ["row", "output"][: drawn.ndim - 1]})


def _arviz() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)  # arviz speaks of its next version, once a day
            import arviz
    except ImportError:
        raise ImportError("InferenceData needs ArviZ: pip install 'wherefrom[arviz]'") from None
    return arviz
