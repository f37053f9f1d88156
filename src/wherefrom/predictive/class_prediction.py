"""What is said about classes at new rows: their probabilities, how they score, and whose doubt it is.

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

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from wherefrom.likelihood import Label
from wherefrom.predictive import class_scores
from wherefrom.predictive.class_scores import Reliability, RiskCoverage
from wherefrom.predictive.components import CrossedAxis, Within
from wherefrom.predictive.mixture import Members, described, member_weights
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.predictive.sources import Sources, sources
from wherefrom.training.data import as_classes
from wherefrom.training.workers import one_core

if TYPE_CHECKING:
    from wherefrom.calibration import Conformal

_SMALLEST, _MOST_SPREAD, _TURNS, _ROWS_AT_ONCE = 1e-12, 12.0, 24, 256
_NODES = torch.stack([torch.from_numpy(each) for each in np.polynomial.hermite_e.hermegauss(24)])
_NODES[1] /= _NODES[1].sum()  # nodes and weights of a standard normal variable

SetRule = Literal["probability", "conformal"]
Split = Literal["variance", "mutual_information", "entropy"]
Doubt = Literal["entropy", "expected_entropy", "mutual_information", "variance", "confidence"]


@dataclass(frozen=True, eq=False)
class ClassPrediction:
    """The predictive distribution over classes at some rows.

    `probabilities` has a row for each row of x and a column for each of `classes`; `predicted` holds the labels of the
    most probable ones. `mean`, `variance` and `std` are those of the class probabilities.
    """

    log_probabilities: Tensor  # (members, samples, rows, classes), of every answer
    classes: tuple[Label, ...]
    plan: Plan
    axes: tuple[CrossedAxis, ...]  # members stand in the order of their product
    missing: str | None  # why members are missing from the product, if any are
    spread: Tensor | None = None  # of a one-shot prediction: the variance of each probability
    within: Callable[[], Within] | None = None  # and where that comes from, worked out when it is asked for
    covariance: str | None = None  # and how theta's covariance was followed
    weights: Tensor | None = None  # (members,), adding up to 1; left out, they are the axes' own, else equal
    conformal: Conformal | None = None  # which classes a set holds, where the posterior was calibrated so

    # As a prediction of several quantities, the probabilities have no noise and no other unit.
    noise = None
    is_flat = False

    def __post_init__(self) -> None:
        weights = member_weights(self.weights, self.axes, len(self.log_probabilities), self.missing)
        object.__setattr__(self, "weights", weights)

    def __len__(self) -> int:
        return self.log_probabilities.shape[2]

    def __repr__(self) -> str:
        return described(self, self._members, "class", "sets")

    @property
    def method(self) -> str:
        """How it came about: "monte_carlo" or "one_shot"."""
        return "monte_carlo" if self.spread is None else "one_shot"

    # ------------------------------------------------------------------ probabilities

    @cached_property
    @one_core()
    def answers(self) -> Tensor:
        """The class probabilities of every answer, whatever its member weighs.  # (members, samples, rows, classes)"""
        return self.log_probabilities.exp()

    @property
    def member_probabilities(self) -> Tensor:
        """Each member's own probabilities, the mean of its answers.  # (members, rows, classes)"""
        return self.answers.double().mean(1)

    @cached_property
    @one_core()
    def probabilities(self) -> Tensor:
        """Of each class at each row, the mean over all answers.  # (rows, classes)"""
        return self._members.average(self._members.answers.double())

    @property
    def mean(self) -> Tensor:
        """The same."""
        return self.probabilities

    @cached_property
    @one_core()
    def variance(self) -> Tensor:
        """Of the class probabilities, over all answers.  # (rows, classes)"""
        own = self._members.spread
        within = 0.0 if own is None else self._members.average(own.double())
        return self._members.variance(self.probabilities) + within

    @property
    def std(self) -> Tensor:
        return self.variance.sqrt()

    @property
    def predicted(self) -> np.ndarray:
        """The label of the most probable class at each row.  # (rows,)"""
        return np.array(self.classes)[self.probabilities.argmax(1).numpy()]

    @property
    def confidence(self) -> Tensor:
        """The probability of the most probable class.  # (rows,)"""
        return self.probabilities.amax(1)

    # ------------------------------------------------------------------ sets of classes

    def sets(self, level: float = 0.95, by: SetRule | None = None) -> Tensor:
        """Whether each class is in the set that holds the right one with this probability.  # (rows, classes)

        By "probability" it is the smallest set of most probable classes that add up to the level, which is right as far
        as the probabilities are; by "conformal", all classes whose probability is at least what all but so many
        held-out rows gave to their own class, which holds on average over rows, and can be no class at all. Left out,
        it is the conformal one where there is one.
        """
        if not 0 < level < 1:
            raise ValueError(f"a level lies between 0 and 1, such as 0.95; {level} does not")
        by = by or ("probability" if self.conformal is None else "conformal")
        if by == "probability":
            ordered, places = self.probabilities.sort(dim=1, descending=True, stable=True)
            before = ordered.cumsum(1) - ordered
            return torch.zeros_like(ordered, dtype=torch.bool).scatter(1, places, before < level)
        if by != "conformal":
            raise ValueError(f'sets are by "probability" or "conformal", not {by!r}')
        if self.conformal is None:
            raise ValueError('there are no conformal sets: predict by posterior.calibrated("conformal", (x, y))')
        return 1 - self.probabilities <= self.conformal.threshold(level)

    def set_size(self, level: float = 0.95, by: SetRule | None = None) -> Tensor:
        """How many classes are in the set of each row.  # (rows,)"""
        return self.sets(level, by).sum(1)

    def coverage(self, y: Any, level: float = 0.95, by: SetRule | None = None) -> float:
        """The share of rows whose own class is in the set."""
        held = self.sets(level, by).gather(1, self._numbers(y).unsqueeze(1))
        return float(held.double().mean())

    def distance(self, y: Any) -> Tensor:
        """What the probability of each row's own class lacks.  # (rows, 1)"""
        return 1 - self.probabilities.gather(1, self._numbers(y).unsqueeze(1))

    @one_core()
    def tempered(self, temperature: float) -> ClassPrediction:
        """The same with every answer's logits divided by the temperature: above 1, less sure.

        A one-shot prediction knows each member's mean probabilities and their variances, not its logits. Each class's
        log-odds are taken as normal, with the mean and variance that give these, and are divided by the temperature,
        the other classes keeping their proportions: exact for two classes, about so for more.
        """
        if not 0 < temperature < math.inf:
            raise ValueError(f"a temperature is above zero, and finite; {temperature} is not")
        logs = torch.log_softmax(self.log_probabilities / temperature, -1)
        if self.spread is None:
            return replace(self, log_probabilities=logs)
        blocks = [each.split(_ROWS_AT_ONCE, 2) for each in (self.log_probabilities, logs, self.spread)]
        moments = [_tempered(old, new, spread, temperature) for old, new, spread in zip(*blocks, strict=True)]
        means, variances = (torch.cat(part, 2) for part in zip(*moments, strict=True))
        changed = replace(
            self,
            log_probabilities=means.clamp_min(torch.finfo(torch.float32).tiny).log().to(logs.dtype),
            spread=variances.to(self.spread.dtype),
        )
        within, times = self.within, _ratio(changed._variance_within(), self._variance_within())
        return replace(
            changed,
            within=None if within is None else lambda: {name: part * times for name, part in within().items()},
        )

    def _variance_within(self) -> Tensor:
        """Of each member's answers.  # (members, rows, classes)"""
        own = 0.0 if self.spread is None else self.spread.double().mean(1)
        return self.answers.double().var(1, correction=0) + own

    # ------------------------------------------------------------------ doubt

    @property
    def entropy(self) -> Tensor:
        """All doubt about the class, in nats.  # (rows,)"""
        return class_scores.entropy(self.probabilities)

    @cached_property
    @one_core()
    def expected_entropy(self) -> Tensor:
        """The doubt that every answer has by itself, which no choice of training would remove.  # (rows,)"""
        live = self._members
        return live.average(_entropies(live.answers, live.spread)).squeeze(-1)

    @property
    def mutual_information(self) -> Tensor:
        """The doubt that comes from the answers' disagreement, in nats.  # (rows,)"""
        return (self.entropy - self.expected_entropy).clamp_min(0.0)

    # ------------------------------------------------------------------ scores

    @one_core()
    def nll(self, y: Any, by_row: bool = False) -> Any:
        """Negative log-likelihood of the classes y, in nats; the mean over rows, or each row's."""
        own = self._own_log_probabilities(y)
        weights = torch.full(own.shape[:1], 1 / len(own), dtype=torch.float64) if self.weights is None else self.weights
        each = torch.logsumexp(own + weights.log()[:, None, None], (0, 1)) - math.log(own.shape[1])
        return -each if by_row else float(-each.mean())

    def accuracy(self, y: Any) -> float:
        """The share of rows whose most probable class is the right one."""
        return class_scores.accuracy(self.probabilities, self._numbers(y))

    def brier(self, y: Any, by_row: bool = False) -> Any:
        """Squared distance of the probabilities to the truth, added up over classes; the mean over rows, or each's."""
        each = class_scores.brier(self.probabilities, self._numbers(y))
        return each if by_row else float(each.mean())

    def reliability(self, y: Any, bins: int = 15, adaptive: bool = False) -> Reliability:
        """Confidence against how often it is right, by bins of equal width, or of equal counts if adaptive."""
        return class_scores.reliability(self.probabilities, self._numbers(y), bins, adaptive)

    def ece(self, y: Any, bins: int = 15, adaptive: bool = False) -> float:
        """Expected calibration error: the mean distance between confidence and accuracy."""
        return self.reliability(y, bins, adaptive).ece

    def risk_coverage(self, y: Any, by: Doubt = "confidence") -> RiskCoverage:
        """The share of wrong answers among the rows that are least in doubt, by how many of them are answered."""
        errors = ~class_scores.correct(self.probabilities, self._numbers(y))
        return class_scores.risk_coverage(-self.doubt(by), errors)

    def doubt(self, by: Doubt = "entropy") -> Tensor:
        """A number for each row that is large where there is doubt: confidence counts by what it lacks.  # (rows,)"""
        if by not in get_args(Doubt):
            raise ValueError(f"doubt is told by one of {', '.join(map(repr, get_args(Doubt)))}, not {by!r}")
        if by == "confidence":
            return 1 - self.confidence
        return self.variance.sum(1) if by == "variance" else getattr(self, by)

    def auroc(self, outside: ClassPrediction, by: Doubt = "entropy") -> float:
        """How well doubt tells rows like these from rows from elsewhere: 1 is perfect, 0.5 is chance."""
        return class_scores.auroc(self.doubt(by), _of_prediction(outside).doubt(by))

    def aupr(self, outside: ClassPrediction, by: Doubt = "entropy") -> float:
        """The same by average precision, where rows from elsewhere are the ones to be found."""
        return class_scores.aupr(self.doubt(by), _of_prediction(outside).doubt(by))

    @one_core()
    def member_log_densities(self, y: Any, by_output: bool = False) -> Tensor:
        """The log probability that each member by itself gives y: what `stacking` and `greedy` choose weights by.

        # (members, rows[, 1])
        """
        own = self._own_log_probabilities(y)
        found = torch.logsumexp(own, 1) - math.log(own.shape[1])
        return found.unsqueeze(-1) if by_output else found

    # ------------------------------------------------------------------ sources

    @one_core()
    def sources(self, of: Split = "variance", by_class: bool = False) -> Sources:
        """Where the variance of the class probabilities comes from, row by row and overall.

        It is added up over the classes, or kept apart `by_class`. The mutual information, in nats, is split by its
        second-order form, sum_c V_c / 2 p_c, which is a variance again, scaled to the whole. As the parts are estimated
        without bias, and the whole is that of the draws at hand, they add up to somewhat more where draws are few.

        The entropy is all doubt, in nats: its last line, "overlap", is the expected entropy, and the others divide the
        mutual information by their shares of it, so that all of them add up to the entropy. A row without any doubt is
        all overlap.
        """
        if of not in get_args(Split):
            raise ValueError(f'sources are of "variance", of "mutual_information" or of "entropy", not {of!r}')
        if by_class:
            if of != "variance":
                raise ValueError(f"{of.replace('_', ' ')} speaks of all classes together: leave by_class out")
            return sources(self)
        if of == "variance":
            return sources(self, torch.ones_like(self.probabilities))
        each = 0.5 / self.probabilities.clamp_min(torch.finfo(torch.float64).tiny)
        second_order = (each * self.variance).sum(1)
        scale = torch.where(second_order > 0, self.mutual_information / second_order, 0.0)
        entropies = _entropies(self.answers, self.spread) if of == "entropy" else None
        return sources(self, each * scale[:, None], entropies, "nats")

    # ------------------------------------------------------------------ inside

    @property
    def scale(self) -> Tensor:
        return torch.ones(len(self.classes), dtype=torch.float64)

    @cached_property
    def _members(self) -> Members:
        everyone = Members(self.answers, None, self.spread, None)
        return everyone if self.weights is None else everyone.weighing(self.weights)

    def _numbers(self, y: Any) -> Tensor:
        """The classes y by their numbers.  # (rows,)"""
        numbers, _ = as_classes(y, self.classes)
        if len(numbers) != len(self):
            raise ValueError(f"y has {len(numbers)} rows, but the prediction is for {len(self)}")
        return numbers.long()

    def _own_log_probabilities(self, y: Any) -> Tensor:
        """Of the class that each row has.  # (members, samples, rows)"""
        numbers = self._numbers(y).expand(*self.log_probabilities.shape[:2], -1)
        return self.log_probabilities.gather(3, numbers.unsqueeze(-1)).squeeze(-1).double()


def _entropies(answers: Tensor, spread: Tensor | None) -> Tensor:
    """Of each answer, in nats: where it stands for many, the mean of theirs.  # (members, samples, rows, 1)"""
    each = torch.special.entr(answers.double()).sum(-1, keepdim=True)
    if spread is None:
        return each
    less = spread.double() / (2 * answers.double().clamp_min(torch.finfo(torch.float64).tiny))
    return (each - less.sum(-1, keepdim=True)).clamp_min(0.0)


def _tempered(logs: Tensor, new_logs: Tensor, variance: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Means and variances of probabilities p, where log-odds are divided by a temperature that takes the mean p to q.

    What the normal variable's own moments are off by is put right in both: at a temperature of 1, nothing changes.
    # (members, components, rows, classes)
    """
    p, q = (each.double().exp().clamp(_SMALLEST, 1 - _SMALLEST) for each in (logs, new_logs))
    variance = variance.double()
    spread = _spread_of_log_odds(p, variance)
    shift = _centre(p, spread) - p.logit()
    old_mean, old_variance = _logistic(p.logit() + shift, spread)
    new_mean, new_variance = _logistic(q.logit() + shift / temperature, spread / temperature)
    mean = torch.sigmoid(new_mean.logit(_SMALLEST) + p.logit() - old_mean.logit(_SMALLEST))
    whole = mean.sum(-1, keepdim=True)
    return mean / whole, variance * _ratio(new_variance, old_variance) / whole.square()


def _spread_of_log_odds(p: Tensor, variance: Tensor) -> Tensor:
    """The deviation of a normal variable whose logistic function has mean p and this variance, by bisection."""
    low, high = torch.zeros_like(p), torch.full_like(p, _MOST_SPREAD)
    for _ in range(_TURNS):
        middle = (low + high) / 2
        is_small = _logistic(_centre(p, middle), middle)[1] < variance
        low, high = torch.where(is_small, middle, low), torch.where(is_small, high, middle)
    return (low + high) / 2


def _centre(p: Tensor, spread: Tensor) -> Tensor:
    """The mean of that variable: MacKay's, E logistic(N(m, s^2)) = logistic(m / sqrt(1 + pi s^2 / 8)), nearly."""
    return p.logit() * (1 + math.pi / 8 * spread.square()).sqrt()


def _logistic(centre: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the logistic function of a normal variable."""
    nodes, weights = _NODES.unbind()
    values = torch.sigmoid(centre.unsqueeze(-1) + spread.unsqueeze(-1) * nodes)
    mean = values @ weights
    return mean, (values.square() @ weights - mean.square()).clamp_min(0.0)


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    """Zero where there is nothing to compare with."""
    return torch.where(below > 0, above / below.clamp_min(torch.finfo(below.dtype).tiny), 0.0)


def _of_prediction(outside: Any) -> ClassPrediction:
    if not isinstance(outside, ClassPrediction):
        raise TypeError(f"rows from elsewhere are given by their prediction, posterior.predict(x), not {type(outside)}")
    return outside
