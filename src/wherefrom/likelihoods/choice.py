"""Likelihoods that a column of numbers may have. Rows that were not trained on decide between them.

    gaussian    any number                              Regression()
    student     any number, some of them far out        Regression(tails="student")
    positive    none below zero, with a long tail       Positive(), with a hurdle where there are zeros
    counts      whole numbers from zero on, small ones  Counts()

Two densities of y are compared by their NLL. Where one of them gives single values a probability, as counts and zeros
have it, the NLL of the other would reward narrow peaks at these values: they are compared by CRPS.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from wherefrom.likelihoods.counts import Counts
from wherefrom.likelihoods.likelihood import Likelihood, TableWishes
from wherefrom.likelihoods.positive import Positive
from wherefrom.likelihoods.regression import Regression

Law = Literal["gaussian", "student", "positive", "counts"]
LAWS: tuple[Law, ...] = get_args(Law)
WORDS: dict[Law, str] = {
    "gaussian": "a Gaussian",
    "student": "heavy tails (Student's t)",
    "positive": "a log-normal",
    "counts": "counts (negative binomial)",
}
TASKS: dict[str, str] = {
    "gaussian": Regression.task,
    "student": Regression.task,
    "positive": Positive.task,
    "counts": Counts.task,
}
_FEWEST_ABOVE_ZERO = 20  # rows, to learn the size of a positive quantity from
_MOST_COUNT = 100.0  # that nine rows in ten have: a larger count is as good as a quantity


def candidates(task: str, y: NDArray[Any], wishes: TableWishes) -> dict[Law, Likelihood]:
    """Return the likelihoods that a column of numbers may have, by name, the Gaussian first; none of another task.

    >>> list(candidates("regression", np.arange(50.0), TableWishes()))
    ['gaussian', 'student', 'positive', 'counts']
    >>> list(candidates("regression", np.linspace(-1, 1, 50), TableWishes()))
    ['gaussian', 'student']
    """
    if task != Regression.task or y.ndim != 1:
        return {}
    gaussian = Regression.of_table(wishes)
    possible: dict[Law, Likelihood] = {"gaussian": gaussian}
    if wishes.noise not in ("auto", "fit", "predicted"):
        return possible
    possible["student"] = replace(gaussian, tails="student")
    if y.min() >= 0 and (y > 0).sum() >= _FEWEST_ABOVE_ZERO:
        possible["positive"] = Positive.of_table(replace(wishes, has_zeros=bool((y == 0).any())))
        if bool((y == np.round(y)).all()) and float(np.quantile(y, 0.9)) <= _MOST_COUNT:
            possible["counts"] = Counts.of_table(wishes)
    return possible
