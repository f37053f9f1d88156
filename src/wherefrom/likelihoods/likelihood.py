"""The slot for what y is: how it is encoded and learnt, what is predicted, how that is calibrated, scored and shown.

A likelihood is a frozen dataclass with the methods of `Likelihood`; what it predicts has those of `Predictive`. No
other room asks which likelihood it is. A new one is one file with both, registered by one line in `likelihoods`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeVar

from numpy.typing import NDArray
from torch import Tensor

from wherefrom.predictive.advice import Subject
from wherefrom.predictive.background import Background, Blend
from wherefrom.predictive.calibration import By
from wherefrom.predictive.conformal import AnyConformal, ConformalScores
from wherefrom.predictive.events import Event
from wherefrom.predictive.few_members import Few
from wherefrom.predictive.mixture import Mixture
from wherefrom.predictive.one_shot.member import Head
from wherefrom.predictive.panels import Output
from wherefrom.predictive.row_scores import Score
from wherefrom.predictive.sources import Sources
from wherefrom.training.data import Scaler, Schema
from wherefrom.training.objective import Label, Objective

Cells = Literal["numbers", "labels", "times"]  # what a table's column of y holds; times have an event beside
Columns = dict[str, NDArray[Any]]  # by name, a value for each row


class MemberScores(NamedTuple):
    """Scores of single networks, row by row."""

    nll: Tensor  # (members, rows)
    crps: Tensor  # (members, rows); of classes, the Brier score; of ordered ones, the ranked probability score
    deviation: Tensor | None = None  # (members, rows, outputs): (y - mean) / std, where the shape of y can be fitted


class Moments(NamedTuple):
    """Moments of y that a network's outputs give, in standardised units. All have the shape of the answers."""

    answers: Tensor  # (..., rows, targets), the mean of y
    spread: Tensor | None  # the variance of the answers, where outputs are known by their moments
    noise: Tensor | None  # where the outputs say it: the variance of y given the answers, or a dispersion


class Summary(NamedTuple):
    """The scores of some rows, those of one answer for all rows, and the size of what is predicted."""

    scores: dict[str, Score]
    baselines: dict[str, float]
    sizes: dict[str, float]
    covers: str  # what a level speaks of: "interval" or "set"
    event: Event | None = None  # the rarer of two classes


@dataclass(frozen=True)
class TableWishes:
    """Options of a table about the target; a likelihood takes those that it understands."""

    classes: tuple[Any, ...] = ()
    least: float | None = None
    noise: str = "auto"
    held_out: float = 0.1
    label_smoothing: float = 0.0
    has_zeros: bool = False  # among a positive target
    exposure: str | None = None


class Predictive(Protocol):
    """A predictive distribution of y at some rows."""

    is_joint: ClassVar[bool]  # whether the answers of a row are parts of one whole, such as probabilities

    @property
    def mixture(self) -> Mixture: ...

    @property
    def conformal(self) -> AnyConformal | None: ...

    def __len__(self) -> int: ...

    @property
    def mean(self) -> Tensor: ...

    @property
    def variance(self) -> Tensor: ...

    @property
    def std(self) -> Tensor: ...

    @property
    def row_doubt(self) -> Tensor:
        """The doubt of each row that the choices of training cause, to put rows in order by.

        Doubt that every network has by itself (noise, overlap) does not count: of a rare outcome it is largest where
        the risk is, and would only repeat it.  # (rows,) or (rows, outputs)
        """
        ...

    def nll(self, y: Any, *, by_row: bool = False) -> Any: ...

    def coverage(self, y: Any, level: float = 0.95) -> float: ...

    def member_log_densities(self, y: Any, by_output: bool = False) -> Tensor:
        """The log density that each member by itself gives y.  # (members, rows[, outputs])"""
        ...

    def sources(self) -> Sources: ...

    def all_sources(self) -> Sources:
        """Split all doubt, whatever of it no choice of training causes included."""
        ...

    def of_rows(self, rows: Any) -> Self:
        """Return the prediction for some of its rows."""
        ...

    def blended(self, blend: Blend) -> Self:
        """Mix the distribution of y over the training rows into that of each row, by its weight."""
        ...

    def needed_stretch(self, background: Background, level: float) -> Tensor:
        """Factor of the background's variance that makes it as wide as nearly all of these rows.  # (outputs,)"""
        ...

    def exported(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and variance that a file returns, from those of the mixture."""
        ...

    def exported_quantiles(self, probabilities: Sequence[float]) -> Callable[[Tensor, Tensor, Few], Tensor]:
        """The function of a file that returns quantiles, from the mixture's mean, variance and few members.

        It is a program of tensors. Raises ValueError where there is none.  # -> (rows[, outputs], probabilities)
        """
        ...

    @property
    def unit(self) -> Tensor:
        """The size of y, to compare errors by.  # (outputs,)"""
        ...

    # calibration

    def conformal_scores(self, y: Any) -> ConformalScores: ...

    def scores_by_level(self, y: Any, levels: Sequence[float]) -> dict[str, float]:
        """Scores to compare before and after a calibration."""
        ...

    def advice_subject(self) -> Subject: ...

    # reports and tables

    def views(self, truth: Any, names: Sequence[str], noise: str, unit: str) -> list[Output]:
        """Return the views of a report, one for each column of y."""
        ...

    def columns(self, level: float) -> tuple[Columns, list[str]]:
        """Return the columns that are written to a table, and notes for the user."""
        ...

    def row_scores(self, columns: Columns, truth: Any) -> Columns:
        """Return the numbers that scores of these rows are made of, by row."""
        ...

    def row_losses(self, y: Any) -> Columns:
        """Return losses of each row that are quickly computed: the NLL, where there is a density, and a plainer one.

        That is the absolute error of the mean of quantities, and the Brier score of classes.
        """
        ...

    def row_errors(self, y: Any) -> tuple[Tensor, Tensor]:
        """Return how far off each row is, and how far off it is predicted to be by what no network explains.

        Of quantities, the absolute error of the mean and the noise's standard deviation; of classes, the NLL and the
        overlap.  # (rows[, outputs]) each
        """
        ...

    @staticmethod
    def summary(rows: Mapping[str, Tensor], event: int | None = None) -> Summary:
        """The scores of rows from `row_scores`; `event` is the class of two that alerts are about, else the rarer."""
        ...


P_co = TypeVar("P_co", bound=Predictive, covariant=True)  # what a likelihood predicts


class Likelihood(Objective, Protocol[P_co]):
    """p(y | x, theta): the loss that training minimises, and what a mixture of networks predicts."""

    task: ClassVar[str]  # its name on the command line
    target: ClassVar[str]  # what is predicted, in the plural: "quantities"
    doubt_of: ClassVar[str]  # what the sources split the variance, or the entropy, of, by its {name}
    without_hidden: ClassVar[str]  # what a network without hidden units is called
    cells: ClassVar[Cells]
    table_options: ClassVar[tuple[str, ...]]  # of `TableWishes`, that it understands
    calibrations: ClassVar[tuple[By, ...]]  # that it has
    calibrates_tables: ClassVar[tuple[By, ...]]  # those that a table applies by itself, in this order
    head: ClassVar[Head]  # what one-shot prediction applies to the outputs

    @property
    def own_calibrations(self) -> tuple[By, ...]:
        """Return those of `calibrations` that it has with these settings."""
        ...

    @property
    def named_classes(self) -> tuple[Label, ...]:
        """The labels of y that the user has named, if any."""
        ...

    def can_be(self, y: Tensor) -> Tensor:
        """Return which values y can have at all.  # (rows, columns) -> the same, True or False"""
        ...

    @property
    def has_atoms(self) -> bool:
        """True if single values of y have a probability, as counts, classes and zeros have."""
        ...

    @property
    def noise_kind(self) -> str:
        """The origin of the noise: "none", "given", "fit" or "predicted"."""
        ...

    @property
    def has_density(self) -> bool:
        """True if every member by itself gives y a density or probability, by which members can be weighed."""
        ...

    def moments(self, outputs: Tensor, spread: Tensor | None) -> Moments:
        """Return the moments of y; `spread` is the variance of the outputs where they are given by their moments."""
        ...

    def noise_of(self, moments: Moments, scaler: Scaler, fitted: Tensor | None) -> Tensor | None:
        """Return the variance of y given the answers, in standardised units.

        # of all answers, (targets,), or of each, (..., rows, targets)
        """
        ...

    def predictive(self, outputs: Mixture, schema: Schema, scaler: Scaler, fitted: Tensor | None) -> P_co:
        """The predictive distribution of a mixture of outputs; `fitted` is what `fit_noise` returned."""
        ...

    def fit_noise(self, outputs: Mixture, y: Tensor, scaler: Scaler, weights: Tensor | None) -> Tensor:
        """Fit the noise on rows that were not trained on."""
        ...

    def background(self, y: Tensor, scaler: Scaler, targets: int) -> tuple[Tensor, Tensor]:
        """Return the distribution of y over rows: points, standardised, and the variance of y around each.

        # (rows, columns) as `encode` gives it -> (points, outputs), (outputs,)
        """
        ...

    # choosing how to train

    def member_scores(self, outputs: Tensor, y: Tensor, scaler: Scaler) -> MemberScores:
        """Scores of single networks, row by row, each with the noise that suits it best.

        # (members, rows, outputs), (rows, columns)
        """
        ...

    def to_search(self, leaves_noise: bool) -> Likelihood:
        """The likelihood to look for epochs and settings with, which needs no rows to fit a noise on.

        With `leaves_noise`, whether the network says its noise is tried afterwards.
        """
        ...

    @property
    def by_row(self) -> Likelihood | None:
        """The likelihood whose network predicts the noise of every row; None if there is none."""
        ...

    def suited(self, y: Tensor) -> Likelihood:
        """Return the likelihood with the family of distributions that suits these rows best, as `encode` gives them."""
        ...

    @classmethod
    def of_table(cls, wishes: TableWishes) -> Likelihood: ...
