"""What the network's outputs say about y: the loss that training minimises, and p(y | x, theta).

There are two: Regression, whose y is a quantity, and Classification, whose y is one of several classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.losses import MOST_LOG_VARIANCE, CrossEntropy, GaussianNLL, Loss, SquaredError

Label = str | int | bool
Noise = float | Literal["fit", "predicted"] | None


@stored("Regression")
@dataclass(frozen=True)
class Regression:
    """A real-valued y, one column or several.

    `noise` is the standard deviation of y around the network's answer, in y's own units:
    `None` (the paper's: squared error, all doubt comes from theta), a number, `"fit"` (one value for each output,
    estimated on `held_out` of the rows, which no member trains on), or `"predicted"` (the network has two outputs for
    each column of y, its mean and the logarithm of its variance, and learns both).

    `least` is the least that y can be, such as 0 for a length of stay: means, quantiles and intervals end there. What
    is cut off holds no truth, so that coverage is never lower; densities and scores are those of the whole.

    >>> Regression(noise=0.5).outputs(targets=2), Regression(noise="predicted").outputs(targets=2)
    (2, 4)
    """

    settings: ClassVar[tuple[str, ...]] = ()  # of the loss, that can be drawn at random
    noise: Noise = None
    held_out: float = 0.1
    least: float | None = None

    def __post_init__(self) -> None:
        if self.least is not None and not math.isfinite(self.least):
            raise ValueError(f"least is a number, or None, not {self.least}")
        if isinstance(self.noise, str):
            if self.noise not in ("fit", "predicted"):
                raise ValueError(f'noise must be None, a number, "fit" or "predicted", not {self.noise!r}')
        elif self.noise is not None and (isinstance(self.noise, bool) or not isinstance(self.noise, Real)):
            raise TypeError(f'noise must be None, one number, "fit" or "predicted", not {self.noise!r}')
        elif self.noise is not None and not self.noise > 0:
            raise ValueError(f"noise is a standard deviation and must be positive, not {self.noise}")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out is a fraction of the rows, between 0 and 1, not {self.held_out}")

    def check(self, y: Tensor) -> None:
        """Raise where y is less than it can be."""
        if self.least is not None and float(y.min()) < self.least:
            raise ValueError(f"y is said to be at least {self.least:g}, but is as low as {float(y.min()):g}")

    def outputs(self, targets: int) -> int:
        """How many outputs the network must have for so many columns of y."""
        return 2 * targets if self.noise == "predicted" else targets

    @property
    def loss(self) -> Loss:
        """What training minimises: (..., rows, outputs), (..., rows, targets) -> (...)"""
        return GaussianNLL() if self.noise == "predicted" else SquaredError()

    def hopeless_loss(self, targets: int) -> float:
        """Far above what a constant answer would have: 1 where y is standardised."""
        return math.inf if self.noise == "predicted" else 3.0

    def split(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The means and log variances among the outputs of a network that predicts its noise."""
        mean, log_variance = outputs.chunk(2, dim=-1)
        return mean, log_variance

    def predicted_variance(self, log_variance: Tensor) -> Tensor:
        """What a log variance stands for: between a millionth and a million of y's own variance, as in training."""
        return log_variance.double().clamp(-MOST_LOG_VARIANCE, MOST_LOG_VARIANCE).exp()


@stored("Classification")
@dataclass(frozen=True)
class Classification:
    """A y that is one of several classes; the network has one output, a logit, for each.

    Labels are whole numbers, words, or true and false. `classes` is their number, where y holds 0, 1, ... and may lack
    some, or the labels themselves, in the order of the outputs; left out, they are those found in y, sorted.

    `label_smoothing` s trains towards 1 - s for a row's class and s shared by all classes. `class_weights` multiply the
    loss of each row by its class's weight: a dictionary from label to weight, one number for each class, or "balanced",
    which makes all classes count the same. They are scaled to a mean of one over the training rows. What is predicted
    are then the probabilities among rows so weighted.

    >>> Classification(classes=["benign", "malignant"]).outputs(targets=2)
    2
    """

    settings: ClassVar[tuple[str, ...]] = ("label_smoothing",)
    noise: ClassVar[None] = None  # whatever is left to chance, the probabilities say
    classes: int | tuple[Label, ...] | None = None
    label_smoothing: float = 0.0
    class_weights: Literal["balanced"] | tuple[float, ...] | Mapping[Label, float] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.label_smoothing, Real):
            raise TypeError(f"label_smoothing must be a number, not {self.label_smoothing!r}")
        CrossEntropy(self.label_smoothing)  # checks it
        object.__setattr__(self, "classes", _classes(self.classes))
        weights: Any = self.class_weights
        if weights is None or (isinstance(weights, str) and weights == "balanced"):
            return
        if hasattr(weights, "to_dict"):  # a Series, by its labels
            weights = weights.to_dict()
        weights = weights.tolist() if hasattr(weights, "tolist") else weights
        if isinstance(weights, str) or not isinstance(weights, Mapping | Sequence):
            raise TypeError(
                'class_weights must be "balanced", a dictionary from label to weight, or one number for each class, '
                f"not {weights!r}"
            )
        numbers: list[Any] = list(weights.values()) if isinstance(weights, Mapping) else list(weights)
        if not all(isinstance(one, Real) and 0 <= float(one) < math.inf for one in numbers) or not any(numbers):
            raise ValueError(f"class_weights are finite numbers, none below zero and not all zero, unlike {weights!r}")
        object.__setattr__(self, "class_weights", dict(weights) if isinstance(weights, Mapping) else tuple(weights))

    def outputs(self, targets: int) -> int:
        """How many outputs the network must have for so many classes."""
        return targets

    @property
    def loss(self) -> Loss:
        """What training minimises: (..., rows, classes), (..., rows, 1) class numbers -> (...)"""
        return CrossEntropy(self.label_smoothing)

    def hopeless_loss(self, targets: int) -> float:
        """Far above what equal probabilities would have."""
        return 2.0 * math.log(max(2, targets))

    def row_weights(self, y: Tensor, classes: Sequence[Label]) -> Tensor | None:
        """What each row's loss is multiplied by, with a mean of one.  # (rows, 1) class numbers -> (rows,)"""
        if self.class_weights is None:
            return None
        numbers = y.flatten().long()
        counts = torch.bincount(numbers, minlength=len(classes)).double()
        if self.class_weights == "balanced":
            each = torch.where(counts > 0, 1 / counts.clamp_min(1), 0.0)
        elif isinstance(self.class_weights, Mapping):
            if set(self.class_weights) != set(classes):
                raise ValueError(f"class_weights are for {list(self.class_weights)}, but the classes are {classes}")
            each = torch.tensor([float(self.class_weights[label]) for label in classes], dtype=torch.float64)
        else:
            if len(self.class_weights) != len(classes):
                raise ValueError(f"there are {len(self.class_weights)} class_weights for {len(classes)} classes")
            each = torch.tensor(self.class_weights, dtype=torch.float64)
        own = each[numbers]
        if not float(own.sum()) > 0:
            raise ValueError("all rows are of classes that weigh nothing")
        return own / own.mean()


Likelihood = Regression | Classification


def changed(likelihood: Likelihood, settings: Mapping[str, Any]) -> Likelihood:
    """The same with other settings of its loss."""
    own = {name: float(value) for name, value in settings.items() if name in likelihood.settings}
    return replace(likelihood, **own) if own else likelihood  # type: ignore[arg-type]


def _classes(given: Any) -> int | tuple[Label, ...] | None:
    if given is None:
        return None
    if isinstance(given, Integral) and not isinstance(given, bool):
        if given < 2:
            raise ValueError(f"there must be at least 2 classes, not {given}")
        return int(given)
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise TypeError(f"classes must be their number, or a list of their labels, not {given!r}")
    labels = tuple(label.item() if hasattr(label, "item") else label for label in given)
    if not all(isinstance(label, str | int) for label in labels) or len({type(label) for label in labels}) > 1:
        raise TypeError(f"labels are words, whole numbers, or true and false, all of one kind: not {given!r}")
    if len(set(labels)) < len(labels) or len(labels) < 2:
        raise ValueError(f"name at least two classes, each once, not {given!r}")
    return labels


def most_likely_noise(squares: Tensor, weights: Tensor | None = None, of_rows: Tensor | None = None) -> Tensor:
    """The variance s that maximises sum_rows v log sum_k w_k N(y; answer_k, s), for each output.

    `squares` are the squared distances of y from every answer; without weights, all answers weigh the same, and so do
    all rows.
    # (answers, rows, outputs), (answers,), (rows,) -> (outputs,)
    A grid first, because there can be more than one peak, then golden sections around the best of it.
    """
    if weights is not None:
        squares, weights = squares[weights > 0], weights[weights > 0]
        weights = None if bool((weights == weights[0]).all()) else weights / weights.sum()
    log_weights = None if weights is None else weights.log()[:, None, None]

    share = squares.new_full((squares.shape[1],), 1.0) if of_rows is None else of_rows.to(squares)
    share = share / share.sum()

    def cost(log_noise: Tensor) -> Tensor:  # (outputs,) -> (outputs,)
        logs = -0.5 * squares / log_noise.exp()
        return 0.5 * log_noise - share @ torch.logsumexp(logs if log_weights is None else logs + log_weights, 0)

    of_answers = torch.tensordot(squares, share, ([1], [0]))  # (answers, outputs)
    mean = of_answers.mean(0) if weights is None else torch.tensordot(weights, of_answers, 1)
    spread = mean.log()
    grid = torch.linspace(-12, 1, 40, dtype=torch.float64)[:, None] + spread
    best = torch.stack([cost(candidate) for candidate in grid]).argmin(0)
    columns = torch.arange(len(spread))
    low, high = (grid[(best + step).clamp(0, len(grid) - 1), columns] for step in (-1, 1))
    ratio = (5**0.5 - 1) / 2
    for _ in range(25):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        go_left = cost(left) < cost(right)
        low, high = torch.where(go_left, low, left), torch.where(go_left, right, high)
    return ((low + high) / 2).exp()
