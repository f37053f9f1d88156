"""Classification: y is one of several classes; what is predicted are their probabilities, and whose doubt it is.

Every answer of the network is a distribution p_k over the classes, and the prediction is their mixture,

    p = sum_k w_k p_k,        H(p)  =  sum_k w_k H(p_k)   +   I
                              entropy  expected entropy      mutual information

where the expected entropy is doubt that every answer shares (the classes overlap), and the mutual information is how
much the answers disagree: what knowing the right theta would tell about the class. A one-shot prediction has one answer
for each member, with a variance: its expected entropy is exact to second order, H(p_k) - sum_c Var(p_kc) / 2 p_kc.

A set of classes holds the right one with a given probability. By the probabilities alone it is the smallest set of most
probable classes that add up to it; of a posterior that was calibrated by conformal prediction, it is all classes whose
probability is at least the threshold that was found on held-out rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from wherefrom.files.codec import stored
from wherefrom.likelihoods.labels import OfLabels, checked_labels, ends_in_probabilities
from wherefrom.likelihoods.likelihood import Columns, MemberScores, Summary, TableWishes
from wherefrom.likelihoods.quantities import TIE_BREAK, checked_level
from wherefrom.likelihoods.views import classes
from wherefrom.predictive import class_scores, events, pictures, tempering
from wherefrom.predictive.advice import Subject
from wherefrom.predictive.background import Added, Background, Blend
from wherefrom.predictive.calibration import By, or_nan
from wherefrom.predictive.class_scores import Reliability, RiskCoverage
from wherefrom.predictive.conformal import AnyConformal, ConformalScores
from wherefrom.predictive.events import Event
from wherefrom.predictive.lacking import Lacking
from wherefrom.predictive.mixture import HoldsMixture, Mixture
from wherefrom.predictive.one_shot.member import Head
from wherefrom.predictive.panels import Output
from wherefrom.predictive.row_scores import Score, always_the_shares, of_classes
from wherefrom.predictive.sources import Sources, missing_entropy, sources
from wherefrom.training.data import Rows, Scaler, Schema, as_classes, column_names
from wherefrom.training.losses import CrossEntropy, Loss
from wherefrom.training.objective import Encoded, Label, own_row_weights
from wherefrom.training.workers import one_core

_NO_ORDER = "classes have no order: use probabilities, sets(level), nll(y) or brier(y); ordered ones are wf.Ordinal()"
_ROWS_AT_ONCE = 256

SetRule = Literal["probability", "conformal"]
Split = Literal["variance", "mutual_information", "entropy"]
Doubt = Literal["entropy", "expected_entropy", "mutual_information", "variance", "confidence"]


@stored("Classification")
@dataclass(frozen=True)
class Classification(OfLabels):
    """The likelihood of a y that is one of several classes; the network has one output, a logit, for each class.

    Labels are whole numbers, words, or true and false.

    classes: the labels in the order of the outputs, or their number if y holds 0, 1, ... (default: the labels in y,
        sorted). y may lack some of them.
    label_smoothing: s trains towards 1 - s for a row's class and s shared by all classes (default 0).
    class_weights: multiply the loss of each row by the weight of its class: a dictionary from label to weight, one
        number for each class, or "balanced", so that all classes count the same. They are scaled to a mean of one over
        the training rows. The predicted probabilities are then those among rows with these weights (default: none).

    With label smoothing, a row's weight multiplies its whole loss; torch's CrossEntropyLoss weights each class's part
    of the smoothed target instead.

    >>> Classification(classes=["benign", "malignant"]).outputs(targets=2)
    2
    """

    task: ClassVar[str] = "classification"
    target: ClassVar[str] = "classes"
    without_hidden: ClassVar[str] = "logistic regression"
    settings: ClassVar[tuple[str, ...]] = ("label_smoothing",)
    table_options: ClassVar[tuple[str, ...]] = ("classes",)
    calibrations: ClassVar[tuple[By, ...]] = ("temperature", "conformal")
    calibrates_tables: ClassVar[tuple[By, ...]] = ("temperature",)
    head: ClassVar[Head] = "softmax"
    classes: int | tuple[Label, ...] | None = None
    label_smoothing: float = 0.0
    class_weights: Literal["balanced"] | tuple[float, ...] | Mapping[Label, float] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.label_smoothing, Real):
            raise TypeError(f"label_smoothing must be a number, not {self.label_smoothing!r}")
        CrossEntropy(self.label_smoothing)  # checks it
        object.__setattr__(self, "classes", checked_labels(self.classes, "classes"))
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

    @property
    def named_classes(self) -> tuple[Label, ...]:
        return tuple(range(self.classes)) if isinstance(self.classes, int) else self.classes or ()

    # ------------------------------------------------------------------ training

    def encode(self, y: Any, classes: tuple[Label, ...] = ()) -> Encoded:
        numbers, labels = as_classes(y, classes or self.classes)
        return Encoded(numbers.unsqueeze(1), True, len(labels), column_names(y), labels)

    def outputs(self, targets: int) -> int:
        """Number of outputs that the network must have for this number of classes."""
        return targets

    def loss_for(self, scaler: Scaler) -> Loss:
        return CrossEntropy(self.label_smoothing)

    def changed(self, settings: Mapping[str, Any]) -> Classification:
        if "label_smoothing" not in settings:
            return self
        return replace(self, label_smoothing=float(settings["label_smoothing"]))

    def check_network(self, model: str, outputs: int, targets: int) -> None:
        if outputs != targets:
            raise ValueError(
                f"{model} has {outputs} output{'s' * (outputs > 1)}, but there are {targets} "
                "classes, each with its own logit. If y lacks some, name them: wf.Classification(classes=...)"
            )

    def doubt_network(
        self, model: str, outputs: Tensor, last_functions: frozenset[Any], is_trained: bool
    ) -> str | None:
        """Return a warning if a network ends in a softmax or a sigmoid: with another softmax it could never be sure."""
        if (ending := ends_in_probabilities(outputs, last_functions)) is None:
            return None
        what, why = ending
        return (
            f"{model} seems to end in {what}: {why}. They are taken as logits, of which the softmax is still to come: "
            "leave it out of the model"
        )

    def row_weights(self, rows: Rows) -> Tensor | None:
        given, classes = rows.weights, self._class_weights(rows.y, rows.classes)
        if given is None or classes is None:
            return classes if given is None else own_row_weights(rows)
        if self.class_weights == "balanced":
            # Classes are balanced by what their rows weigh, not by how many these are.
            numbers = rows.y.flatten().long()
            counts = torch.bincount(numbers, minlength=len(rows.classes))
            totals = torch.bincount(numbers, given, minlength=len(rows.classes))
            classes = classes * (counts / totals)[numbers]
        return _with_mean_one(given * classes)

    def _class_weights(self, y: Tensor, classes: Sequence[Label]) -> Tensor | None:
        """Factor of each row's loss, with a mean of one.  # (rows, 1) class numbers -> (rows,)"""
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
        return _with_mean_one(each[numbers])

    # ------------------------------------------------------------------ prediction

    def predictive(self, outputs: Mixture, schema: Schema, scaler: Scaler, fitted: Tensor | None) -> ClassPrediction:
        if outputs.spread is None:
            with one_core():
                logs = torch.log_softmax(outputs.answers, -1)
        else:
            logs = outputs.answers.clamp_min(torch.finfo(outputs.answers.dtype).tiny).log()
        return ClassPrediction(replace(outputs, answers=logs), schema.classes)

    def member_scores(self, outputs: Tensor, y: Tensor, scaler: Scaler) -> MemberScores:
        logs, numbers = torch.log_softmax(outputs.double(), -1), y.flatten().long()
        nll = -logs.gather(-1, numbers.expand(len(logs), -1).unsqueeze(-1)).squeeze(-1)
        return MemberScores(nll, torch.stack([class_scores.brier(each.exp(), numbers) for each in logs]))

    @classmethod
    def of_table(cls, wishes: TableWishes) -> Classification:
        return cls(wishes.classes, wishes.label_smoothing)


def _with_mean_one(weights: Tensor) -> Tensor:
    if not float(weights.sum()) > 0:
        raise ValueError("all rows are of classes that weigh nothing")
    return weights / weights.mean()


@dataclass(frozen=True, eq=False, repr=False)
class ClassPrediction(HoldsMixture):
    """The predictive distribution over classes at some rows.

    `probabilities` has a row for each row of x and a column for each of `classes`; `predicted` holds the labels of the
    most probable ones. `mean`, `variance` and `std` are those of the class probabilities.
    """

    is_joint: ClassVar[bool] = True
    picture_kinds: ClassVar[dict[str, pictures.Picture]] = {
        "sources": pictures.sources,
        "reliability": pictures.reliability,
        "risk_coverage": pictures.risk_coverage,
    }
    noun: ClassVar[str] = "class"
    conformal_noun: ClassVar[str] = "sets"
    logs: Mixture  # of the log probabilities of every answer
    classes: tuple[Label, ...]
    conformal: AnyConformal | None = None  # which classes a set holds, where the posterior was calibrated so
    blend: Blend | None = None  # with the shares of the classes in training, where rows are outside
    is_tempered: bool = False  # its probabilities were calibrated
    median: ClassVar[Any] = Lacking(_NO_ORDER)
    quantile: ClassVar[Any] = Lacking(_NO_ORDER)
    cdf: ClassVar[Any] = Lacking(_NO_ORDER)
    interval: ClassVar[Any] = Lacking(_NO_ORDER)
    crps: ClassVar[Any] = Lacking(_NO_ORDER)

    @property
    def log_probabilities(self) -> Tensor:
        """Log probabilities of every answer.  # (members, samples, rows, classes)"""
        return self.logs.answers

    @cached_property
    @one_core()
    def mixture(self) -> Mixture:
        """The mixture of probabilities."""
        return replace(self.logs, answers=self.logs.answers.exp())

    # ------------------------------------------------------------------ probabilities

    @property
    def member_probabilities(self) -> Tensor:
        """Probabilities of each member by itself, the mean of its answers.  # (members, rows, classes)"""
        return self.answers.double().mean(1)

    @property
    def probabilities(self) -> Tensor:
        """Probability of each class at each row, the mean over all answers.  # (rows, classes)"""
        return self.mixture.mean if self.blend is None else self.blend.mixed(self.mixture.mean, self._shares)

    mean = probabilities

    @property
    def variance(self) -> Tensor:
        """Variance of the class probabilities, over all answers.  # (rows, classes)"""
        if self.blend is None:
            return self.mixture.variance
        return (1 - self.blend.weight) * self.mixture.variance + self._variance_added

    # ------------------------------------------------------------------ rows outside

    def blended(self, blend: Blend) -> Self:
        """Mix the shares of the classes among the training rows into the probabilities of each row, by its weight."""
        return replace(self, blend=blend)

    def needed_stretch(self, background: Background, level: float) -> Tensor:
        return torch.ones(len(self.classes), dtype=torch.float64)

    @cached_property
    def _shares(self) -> Tensor:
        """Shares of the classes that are mixed in.  # (rows, classes)"""
        assert self.blend is not None
        return self.blend.shares(self.mixture.mean)

    @property
    def _variance_added(self) -> Tensor:
        """Variance between the networks' probabilities and the shares.  # (rows, classes)"""
        assert self.blend is not None
        weight = self.blend.weight
        return weight * (1 - weight) * (self.mixture.mean - self._shares).square()

    @property
    def predicted(self) -> np.ndarray:
        """The label of the most probable class at each row.  # (rows,)"""
        return np.array(self.classes)[self.probabilities.argmax(1).numpy()]

    def sample(self, count: int, seed: int = 0) -> np.ndarray:
        """Draw `count` labels for every row.  # (count, rows)

        count: samples of each row.
        seed: seed of the samples (default 0).
        """
        generator = torch.Generator().manual_seed(seed)
        return np.array(self.classes)[torch.multinomial(self.probabilities, count, True, generator=generator).T.numpy()]

    @property
    def confidence(self) -> Tensor:
        """The probability of the most probable class.  # (rows,)"""
        return self.probabilities.amax(1)

    # ------------------------------------------------------------------ sets of classes

    def sets(self, level: float = 0.95, by: SetRule | None = None) -> Tensor:
        """Return true for each class in the set that contains the right one with this probability.  # (rows, classes)

        level: the probability (default 0.95).
        by: "probability", the smallest set of most probable classes that add up to the level: as good as the
            probabilities are. "conformal", all classes above a probability that `level` of the held-out rows gave to
            their true class: right on average over rows, but a set may be empty. Default: "conformal" if the posterior
            was calibrated so, else "probability".

        If class frequencies are mixed in, the set keeps all classes that it has without them.
        """
        checked_level(level)
        if self.blend is not None:
            networks = replace(self, blend=None).sets(level, by)
            return networks | self._sets(level, by)
        return self._sets(level, by)

    def _sets(self, level: float, by: SetRule | None) -> Tensor:
        by = by or ("probability" if self.conformal is None else "conformal")
        if by == "probability":
            ordered, places = self.probabilities.sort(dim=1, descending=True, stable=True)
            before = ordered.cumsum(1) - ordered
            return torch.zeros_like(ordered, dtype=torch.bool).scatter(1, places, before < level)
        if by != "conformal":
            raise ValueError(f'sets are by "probability" or "conformal", not {by!r}')
        if self.conformal is None:
            raise ValueError('there are no conformal sets: predict by posterior.calibrated("conformal", (x, y))')
        if self.blend is not None:
            return 1 - self.probabilities <= self.conformal.pooled.threshold(level)
        return self.conformal.holds(self.mixture, level)

    def set_size(self, level: float = 0.95, by: SetRule | None = None) -> Tensor:
        """Number of classes in the set of each row.  # (rows,)

        level: level of the sets (default 0.95).
        by: as in `sets` (default None).
        """
        return self.sets(level, by).sum(1)

    def coverage(self, y: Any, level: float = 0.95, by: SetRule | None = None) -> float:
        """The share of rows whose own class is in the set.

        y: the true values of these rows.
        level: level of the sets (default 0.95).
        by: as in `sets` (default None).
        """
        is_in = self.sets(level, by).gather(1, self._numbers(y).unsqueeze(1))
        return float(is_in.double().mean())

    def distance(self, y: Any) -> Tensor:
        """One less the probability of each row's own class.  # (rows, 1)"""
        return 1 - self.probabilities.gather(1, self._numbers(y).unsqueeze(1))

    @one_core()
    def tempered(self, temperature: float) -> ClassPrediction:
        """Divide every answer's logits by the temperature: above 1, the prediction is less sure.

        A one-shot prediction knows each member's mean probabilities and their variances, not its logits. Each class's
        log-odds are taken as normal, with the mean and variance that give these, and are divided by the temperature,
        the other classes keeping their proportions: exact for two classes, about so for more.

        temperature: the number that logits are divided by.
        """
        if not 0 < temperature < math.inf:
            raise ValueError(f"a temperature is above zero, and finite; {temperature} is not")
        logs, spread = torch.log_softmax(self.log_probabilities / temperature, -1), self.logs.spread
        if spread is None:
            return replace(self, logs=replace(self.logs, answers=logs), is_tempered=True)
        blocks = [each.split(_ROWS_AT_ONCE, 2) for each in (self.log_probabilities, logs, spread)]
        moments = [tempering.moments(old, new, some, temperature) for old, new, some in zip(*blocks, strict=True)]
        means, variances = (torch.cat(part, 2) for part in zip(*moments, strict=True))
        cooler = replace(
            self.logs,
            answers=means.clamp_min(torch.finfo(torch.float32).tiny).log().to(logs.dtype),
            spread=variances.to(spread.dtype),
        )
        changed = replace(self, logs=cooler)
        times = tempering.ratio(changed._variance_within(), self._variance_within())
        return replace(self, logs=replace(cooler, within=self.logs.within_changed(lambda part: part * times)))

    def _variance_within(self) -> Tensor:
        """Variance of each member's answers.  # (members, rows, classes)"""
        spread = self.logs.spread
        return self.answers.double().var(1, correction=0) + (0.0 if spread is None else spread.double().mean(1))

    # ------------------------------------------------------------------ doubt

    @property
    def entropy(self) -> Tensor:
        """All doubt about the class, in nats.  # (rows,)"""
        return class_scores.entropy(self.probabilities)

    @cached_property
    @one_core()
    def expected_entropy(self) -> Tensor:
        """The doubt that every answer has by itself, which no choice of training would remove.  # (rows,)"""
        networks = self.mixture.average(_entropies(self.answers, self.logs.spread)).squeeze(-1)
        if self.blend is None:
            return networks
        weight = self.blend.weight.squeeze(-1)
        return (1 - weight) * networks + weight * class_scores.entropy(self._shares)

    @cached_property
    @one_core()
    def mutual_information(self) -> Tensor:
        """The doubt that comes from the answers' disagreement, in nats; never negative.  # (rows,)

        It is an estimate of what all members and samples that could be drawn would show, corrected to second order for
        those at hand: H(mean p) - mean H(p) + sum over classes of Var(mean p) / (2 mean p). Few members show less
        disagreement, `entropy - expected_entropy`. In a single row the estimate can be above the log of the number of
        classes; the mean over rows is about right.
        """
        shown = (self.entropy - self.expected_entropy).clamp_min(0.0)
        missing = missing_entropy(self.mixture).squeeze(-1)
        return shown + (missing if self.blend is None else (1 - self.blend.weight.squeeze(-1)) * missing)

    # ------------------------------------------------------------------ scores

    @one_core()
    def nll(self, y: Any, by_row: bool = False) -> Any:
        """Negative log-likelihood of the classes y, in nats; the mean over rows, or each row's.

        y: the true values of these rows.
        by_row: return one value for each row, instead of their mean (default False).
        """
        logs = self._log_probabilities_of(y)
        weights = torch.ones(len(logs), dtype=torch.float64) / len(logs) if self.weights is None else self.weights
        each = torch.logsumexp(logs + weights.log()[:, None, None], (0, 1)) - math.log(logs.shape[1])
        if self.blend is not None:
            shares = self._shares.gather(1, self._numbers(y).unsqueeze(1))
            each = self.blend.mixed_logs(each.unsqueeze(1), shares.log()).squeeze(1)
        return -each if by_row else float(-each.mean())

    def accuracy(self, y: Any) -> float:
        """The share of rows whose most probable class is the right one.

        y: the true values of these rows.
        """
        return class_scores.accuracy(self.probabilities, self._numbers(y))

    def brier(self, y: Any, by_row: bool = False) -> Any:
        """Squared distance of the probabilities to the truth, added up over classes; the mean over rows, or each's.

        y: the true values of these rows.
        by_row: return one value for each row, instead of their mean (default False).
        """
        each = class_scores.brier(self.probabilities, self._numbers(y))
        return each if by_row else float(each.mean())

    def reliability(self, y: Any, bins: int = 15, adaptive: bool = False) -> Reliability:
        """Confidence against how often it is right, by bins of equal width, or of equal counts if adaptive.

        y: the true values of these rows.
        bins: number of bins (default 15).
        adaptive: bins with equally many rows, instead of bins of equal width (default False).
        """
        return class_scores.reliability(self.probabilities, self._numbers(y), bins, adaptive)

    def ece(self, y: Any, bins: int = 15, adaptive: bool = False) -> float:
        """Expected calibration error: the mean distance between confidence and accuracy.

        y: the true values of these rows.
        bins: number of bins (default 15).
        adaptive: bins with equally many rows, instead of bins of equal width (default False).
        """
        return self.reliability(y, bins, adaptive).ece

    def risk_coverage(self, y: Any, by: Doubt = "confidence") -> RiskCoverage:
        """The share of wrong answers among the rows that are least in doubt, by how many of them are answered.

        y: the true values of these rows.
        by: which doubt sorts the rows, as in `doubt` (default "confidence").
        """
        errors = ~class_scores.correct(self.probabilities, self._numbers(y))
        return class_scores.risk_coverage(-self.doubt(by), errors)

    def doubt(self, by: Doubt = "entropy") -> Tensor:
        """A number for each row that is large where there is doubt: confidence counts by what it lacks.  # (rows,)

        by: "entropy" (default), "expected_entropy", "mutual_information", "variance" or "confidence".
        """
        if by not in get_args(Doubt):
            raise ValueError(f"by must be one of {', '.join(map(repr, get_args(Doubt)))}, not {by!r}")
        if by == "confidence":
            return 1 - self.confidence
        return self.variance.sum(1) if by == "variance" else getattr(self, by)

    def auroc(self, outside: ClassPrediction, by: Doubt = "entropy") -> float:
        """Area under the ROC curve of telling rows like these from other rows by doubt: 1 is perfect, 0.5 is chance.

        outside: predictions of the rows that should be found.
        by: which doubt, as in `doubt` (default "entropy").
        """
        return class_scores.auroc(self.doubt(by), _of_prediction(outside).doubt(by))

    def aupr(self, outside: ClassPrediction, by: Doubt = "entropy") -> float:
        """Average precision of finding other rows by their doubt.

        outside: predictions of the rows that should be found.
        by: which doubt, as in `doubt` (default "entropy").
        """
        return class_scores.aupr(self.doubt(by), _of_prediction(outside).doubt(by))

    @one_core()
    def member_log_densities(self, y: Any, by_output: bool = False) -> Tensor:
        """The log probability that each member by itself gives y: what `stacking` and `greedy` choose weights by.

        # (members, rows[, 1])
        """
        logs = self._log_probabilities_of(y)
        densities = torch.logsumexp(logs, 1) - math.log(logs.shape[1])
        return densities.unsqueeze(-1) if by_output else densities

    # ------------------------------------------------------------------ sources

    @one_core()
    def sources(
        self, of: Split = "variance", by_class: bool = False, reading: Literal["paper"] | None = None
    ) -> Sources:
        """Split the doubt about the class by its sources, row by row and overall.

        of: "variance" (default) of the class probabilities; "mutual_information", in nats; or "entropy", all doubt in
            nats, whose last line, "overlap", is the expected entropy.
        by_class: keep the variances of the classes apart (default: add them up).
        reading: "paper" takes the entropy of the mean of the answers at hand; left out, it is corrected for their
            number, as `mutual_information` is.

        The mutual information is split in proportion to its second-order form, sum_c V_c / 2 p_c, which is a variance
        again, and the parts add up to it. A row without any doubt is all overlap.
        """
        if reading not in (None, "paper"):
            raise ValueError(f'reading must be "paper", or left out, not {reading!r}')
        if of not in get_args(Split):
            raise ValueError(f'sources are of "variance", of "mutual_information" or of "entropy", not {of!r}')
        if by_class:
            if of != "variance":
                raise ValueError(f"{of.replace('_', ' ')} speaks of all classes together: leave by_class out")
            ones = torch.ones(len(self.classes), dtype=torch.float64)
            added, unit = self._added("variance", by_class), "variance of p"
            return sources(self.mixture, ones, is_flat=False, added=added, unit=unit)
        if of == "variance":
            ones, added = torch.ones_like(self.probabilities), self._added(of)
            return sources(self.mixture, together=ones, added=added, unit="variance of p")
        return sources(
            self.mixture,
            together=0.5 / self.mixture.mean.clamp_min(torch.finfo(torch.float64).tiny),
            entropies=_entropies(self.answers, self.logs.spread),
            with_overlap=of == "entropy",
            is_plug_in=reading == "paper",
            unit=f"{of.replace('_', ' ')} in nats",
            added=self._added(of),
        )

    def _added(self, of: Split, by_class: bool = False) -> Added | None:
        """The part of the doubt that the shares add: all that the networks' part, lowered by its weight, is not."""
        if self.blend is None:
            return None
        kept = 1 - self.blend.weight
        if of == "variance":
            amount = self._variance_added
            return Added(kept, amount if by_class else amount.sum(1, keepdim=True))
        networks, whole = replace(self, blend=None), getattr(self, of)
        return Added(kept, (whole - kept.squeeze(1) * getattr(networks, of)).clamp_min(0).unsqueeze(1))

    # ------------------------------------------------------------------ tables

    @property
    def row_doubt(self) -> Tensor:
        return self.mutual_information + TIE_BREAK * self.entropy

    def all_sources(self) -> Sources:
        return self.sources(of="entropy")

    def views(self, truth: Any, names: Sequence[str], noise: str, unit: str) -> list[Output]:
        return classes.outputs(self, truth, names, noise, unit)

    def of_rows(self, rows: Any) -> Self:
        conformal = None if self.conformal is None else self.conformal.of_rows(rows)
        blend = None if self.blend is None else self.blend.of_rows(rows)
        return replace(self, logs=self.logs.of_rows(rows), conformal=conformal, blend=blend)

    def columns(self, level: float) -> tuple[Columns, list[str]]:
        notes: list[str] = []
        columns: Columns = {"predicted": self.predicted, "confidence": self.confidence.numpy()}
        columns |= {f"p {label}": p.numpy() for label, p in zip(self.classes, self.probabilities.T, strict=True)}
        if self.conformal is not None:
            columns["set"] = self._labels_in_sets(level, notes)
        columns |= {"entropy": self.entropy.numpy(), "disagreement": self.mutual_information.numpy()}
        return columns, notes

    def _labels_in_sets(self, level: float, notes: list[str]) -> np.ndarray:
        """The labels of the classes one of which is right, as often as the level says."""
        try:
            sets = self.sets(level)
        except ValueError as error:  # too few rows were calibrated on for so high a level
            notes.append(f"{error}; the most probable classes that add up to it are taken")
            sets = self.sets(level, "probability")
        labels = np.empty(len(sets), dtype=object)
        for row, is_in in enumerate(sets.tolist()):
            labels[row] = tuple(itertools.compress(self.classes, is_in))
        return labels

    def row_scores(self, columns: Columns, truth: Any) -> Columns:
        numbers = self._numbers(truth).numpy()
        scores = self.row_losses(truth) | {"probabilities": self.probabilities.numpy(), "class": numbers}
        if "set" in columns:
            sets, labels = columns["set"].tolist(), [self.classes[number] for number in numbers]
            scores["covered"] = np.array([label in row for label, row in zip(labels, sets, strict=True)])
            scores["size"] = np.array(list(map(len, sets)))
        return scores

    def row_losses(self, y: Any) -> Columns:
        return {"nll": self.nll(y, by_row=True).numpy(), "brier": self.brier(y, by_row=True).numpy()}

    def row_errors(self, y: Any) -> tuple[Tensor, Tensor]:
        return self.nll(y, by_row=True), self.expected_entropy

    @staticmethod
    def summary(rows: Mapping[str, Tensor], event: int | None = None) -> Summary:
        probabilities, numbers = rows["probabilities"], rows["class"]
        scores = of_classes(probabilities, numbers, rows["nll"], rows["brier"])
        baselines = always_the_shares(numbers, probabilities.shape[1])
        sizes, measured = {"mean confidence": float(probabilities.amax(1).mean())}, None
        if probabilities.shape[1] == 2:
            number = events.rarer(numbers) if event is None else event
            risk, is_event = probabilities[:, number], numbers == number
            measured = Event.of(str(number), risk, is_event)
            scores["average_precision"] = events.average_precision(risk, is_event)
            baselines["average_precision"] = sizes["prevalence"] = measured.prevalence
            if measured.lift is not None:
                sizes["lift of the top 10%"] = measured.lift
        if "covered" in rows:
            scores["coverage"] = Score.share(rows["covered"])
            sizes["mean size of the set"] = float(rows["size"].double().mean())
        return Summary(scores, baselines, sizes, "set", measured)

    # ------------------------------------------------------------------ calibration

    def conformal_scores(self, y: Any) -> ConformalScores:
        return ConformalScores(self.distance(y), False, "sets of classes", "sets of all classes")

    def advice_subject(self) -> Subject:
        certain = float((self.mean * (1 - self.mean)).sum(1).mean())  # the variance of the classes' indicators
        return Subject(
            self.mixture,
            certain,
            noise="the classes' own overlap, as every network sees it",
            of="probabilities",
            tells="how much the networks disagree",
        )

    def scores_by_level(self, y: Any, levels: Sequence[float]) -> dict[str, float]:
        scores = {"NLL": self.nll(y), "Brier score": self.brier(y), "ECE": self.ece(y)}
        for level in levels:
            scores[f"coverage of {level:.0%}"] = or_nan(self.coverage, y, level)
            scores[f"classes in a set of {level:.0%}"] = or_nan(self._mean_set_size, level)
        return scores

    def _mean_set_size(self, level: float) -> float:
        return float(self.set_size(level).double().mean())

    # ------------------------------------------------------------------ inside

    def exported(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the probabilities, which have no other unit.  # (rows, classes)"""
        return mean, variance

    def exported_quantiles(self, probabilities: Sequence[float]) -> Any:
        raise ValueError("classes have no quantiles: leave `quantiles` out, a file returns their probabilities")

    @property
    def unit(self) -> Tensor:
        return torch.ones(len(self.classes), dtype=torch.float64)

    def _numbers(self, y: Any) -> Tensor:
        """The classes y by their numbers.  # (rows,)"""
        numbers, _ = as_classes(y, self.classes)
        if len(numbers) != len(self):
            raise ValueError(f"y has {len(numbers)} rows, but the prediction is for {len(self)}")
        return numbers.long()

    def _log_probabilities_of(self, y: Any) -> Tensor:
        """Log probability of the class that each row has.  # (members, samples, rows)"""
        numbers = self._numbers(y).expand(*self.log_probabilities.shape[:2], -1)
        return self.log_probabilities.gather(3, numbers.unsqueeze(-1)).squeeze(-1).double()


def _entropies(answers: Tensor, spread: Tensor | None) -> Tensor:
    """Entropy of each answer in nats; the mean, where it stands for many.  # (members, samples, rows, 1)"""
    each = torch.special.entr(answers.double()).sum(-1, keepdim=True)
    if spread is None:
        return each
    less = spread.double() / (2 * answers.double().clamp_min(torch.finfo(torch.float64).tiny))
    return (each - less.sum(-1, keepdim=True)).clamp_min(0.0)


def _of_prediction(outside: Any) -> ClassPrediction:
    if not isinstance(outside, ClassPrediction):
        raise TypeError(f"rows from elsewhere are given by their prediction, posterior.predict(x), not {type(outside)}")
    return outside
