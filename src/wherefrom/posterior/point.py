"""A classical training: one point (F, theta0, h, t), and nothing about doubt yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any, Generic

from torch import nn

from wherefrom.files.codec import stored
from wherefrom.files.stand_in import Code, StandIn, own_class
from wherefrom.likelihoods import Likelihood, Predictive, Regression
from wherefrom.training import augmentation
from wherefrom.training.algorithm import SETTINGS, Algorithm
from wherefrom.training.cohort import Augmentation
from wherefrom.training.data import Standardise

__all__ = ["SETTINGS", "Algorithm", "Training"]


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    P = TypeVar("P", bound=Predictive, default=Any)  # what is predicted, as the likelihood says
else:
    from typing import TypeVar

    P = TypeVar("P", bound=Predictive)

_MODEL = Code("a file holds no code: give the model factory, as load(folder, model=...)")
_LIKELIHOOD = own_class("likelihoods", is_needed=True)


@stored("Training", code={"model": _MODEL, "augment": augmentation.NOT_STORED, "likelihood": _LIKELIHOOD})
@dataclass(frozen=True)
class Training(Generic[P]):
    """One training, theta = A_h^t(theta0), which `wf.marginalise` repeats with other choices.

    model: a factory: each call returns a new network with new initial weights. So it is both the family F and
        p(theta0).
    algorithm: `wf.Algorithm`, the optimiser with its settings.
    epochs: how many times it goes through the rows.
    likelihood: what y is, such as `wf.Classification()` (default: `wf.Regression()` without noise).
    standardise: scale the columns of a table, and y, by the mean and standard deviation of the training rows;
        predictions are in y's units (default True). `Pieces()` also gives networks the columns in pieces (see
        training/pieces.py). If there are several inputs, tables are standardised; {"age": True, "image": False}, or a
        tuple for inputs without names, sets it for each.
    augment: what is done to the rows of every batch, such as `wf.augment.CropAndFlip()` (default: nothing).

    >>> from torch import nn
    >>> training = Training(
    ...     model=lambda: nn.Sequential(nn.Linear(8, 50), nn.ReLU(), nn.Linear(50, 1)),
    ...     algorithm=Algorithm("adam", lr=0.01, batch_size=100),
    ...     epochs=400,
    ... )
    >>> training.likelihood
    Regression(noise=None, held_out=0.1, least=None, tails='gaussian', df=None)
    """

    model: Callable[[], nn.Module]
    algorithm: Algorithm
    epochs: int
    likelihood: Likelihood[P] = field(default_factory=Regression)  # type: ignore[arg-type]
    standardise: Standardise = True
    augment: Augmentation | None = None  # what is done to the rows of every batch, such as wf.augment.CropAndFlip()

    @property
    def is_elsewhere(self) -> bool:
        """True if it only stands for what somebody else trained, as in `Posterior.from_members`."""
        return self.algorithm.name == "elsewhere"

    def __post_init__(self) -> None:
        if not isinstance(self.algorithm, Algorithm):
            raise TypeError(f"algorithm must be wf.Algorithm(...), not {self.algorithm!r}")
        if self.algorithm.random:
            raise ValueError(
                f"this algorithm's {', '.join(self.algorithm.random)} is yet to be drawn. Give it a number here: "
                "random settings stand in `over`, as wf.Hyperparameters(draws, lr=...)"
            )
        if isinstance(self.model, nn.Module):
            raise TypeError(
                "model must be a function that returns a new network each time, such as `lambda: make_net()`, "
                "not a network: its initial weights are one of the choices to draw"
            )
        if not isinstance(self.epochs, Integral) or self.epochs < 1:
            raise ValueError(f"epochs must be a whole number, at least 1; it is {self.epochs!r}")
        if isinstance(self.likelihood, StandIn):
            self.likelihood.refuse()
        if isinstance(self.likelihood, type) or not hasattr(self.likelihood, "predictive"):
            raise TypeError(
                f"likelihood must be wf.Regression(...), wf.Classification(...) or the like, not {self.likelihood!r}"
            )
        if self.augment is not None and not callable(self.augment):
            raise TypeError(f"augment must be a function of a batch and a generator, not {self.augment!r}")
        if not callable(self.model):
            raise TypeError(f"model must be a function that returns a network, not {self.model!r}")
