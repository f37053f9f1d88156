"""The mixture that a predictive distribution is: the members' answers, what they weigh, and which draws they are.

    p(y | x)  =  sum over members m of  w_m  mean over its samples k of  p(y | answer_mk)

Members may weigh differently; a member's samples share its weight evenly. To weigh a member twice as much is to have it
twice; to weigh it nothing is to leave it out. A one-shot mixture has one answer for each member (or point of its law),
which stands for a whole distribution of answers: `spread` is its variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from wherefrom.predictive import pictures
from wherefrom.predictive.components import CrossedAxis, Within, weights_of
from wherefrom.predictive.inference_data import inference_data
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.showing import Library
from wherefrom.training.workers import one_core

WHOLE_ROWS = 32  # sums may run in another order if the number of rows is no multiple of this
_NUMBERS_AT_ONCE = 2**21


@dataclass(frozen=True, eq=False)
class Mixture:
    """The answers of every member and sample at some rows. All averages are taken in double precision."""

    answers: Tensor  # (members, samples, rows, outputs)
    plan: Plan
    axes: tuple[CrossedAxis, ...]  # members stand in the order of their product
    missing: str | None = None  # why members are missing from the product, if any are
    noise: Tensor | None = None  # the variance of y given each answer, broadcastable to answers
    spread: Tensor | None = None  # of a one-shot mixture: the variance of each answer, as answers' shape
    within: Callable[[], Within] | None = None  # and where that comes from, computed on demand
    covariance: str | None = None  # and how theta's covariance was followed; "linearised" by the outputs' slopes
    weights: Tensor | None = None  # (members,), adding up to 1; left out, they are those of the axes, else equal

    def __post_init__(self) -> None:
        weights = _member_weights(self.weights, self.axes, len(self.answers), self.missing)
        object.__setattr__(self, "weights", weights)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the variances within members as numbers: computing them takes the networks, which stay behind."""
        return vars(self) | {"within": None if self.within is None else partial[Within](dict, self.within())}

    @property
    def rows(self) -> int:
        return self.answers.shape[2]

    @property
    def outputs(self) -> int:
        return self.answers.shape[3]

    @property
    def method(self) -> str:
        """The way it was computed: "monte_carlo", "one_shot" or "linearised"."""
        if self.spread is None:
            return "monte_carlo"
        return "one_shot" if self.covariance != "linearised" else "linearised"

    @property
    def is_dense(self) -> bool:
        """True for a mixture of distributions, and not of points."""
        return self.noise is not None or self.spread is not None

    # ------------------------------------------------------------------ moments

    @cached_property
    @one_core()
    def mean(self) -> Tensor:  # (rows, outputs)
        return self.average(self.answers)

    @cached_property
    @one_core()
    def mean_noise(self) -> Tensor:  # (rows, outputs)
        return torch.zeros_like(self.mean) if self.noise is None else self.average(self.noise).expand_as(self.mean)

    @cached_property
    @one_core()
    def mean_spread(self) -> Tensor:  # (rows, outputs)
        return torch.zeros_like(self.mean) if self.spread is None else self.average(self.spread)

    @cached_property
    @one_core()
    def variance_of_answers(self) -> Tensor:
        """The variance of all answers around their mean (with divisor K, as in the paper).  # (rows, outputs)"""
        live = self._live
        answers = live.answers.double()
        if live.weights is None:
            return answers.var((0, 1), correction=0)
        return live.average((answers - self.mean).square())

    @cached_property
    def variance(self) -> Tensor:
        """The variance of y: the members' mean noise and spread, plus the variance of their answers."""
        return self.variance_of_answers + self.mean_spread + self.mean_noise

    def average(self, values: Tensor) -> Tensor:
        """Average over members and samples by their weights.

        # (members or 1, samples or 1, rows, outputs) -> (rows, outputs); what has fewer dimensions is the same for all
        """
        values = values.double()
        if values.ndim < 4:
            return values
        live = self._live
        values = values[live.places] if live.places is not None and len(values) > 1 else values
        return live.average(values)

    # ------------------------------------------------------------------ components

    @property
    def component_weights(self) -> Tensor | None:
        """The weight of every sample of every member that counts; None if they are all equal.  # (components,)"""
        weights, samples = self._live.weights, self.answers.shape[1]
        return None if weights is None else weights.repeat_interleave(samples) / samples

    def components(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Answers and variances of the members that count, a few rows at a time.

        # slice of rows, (components, rows, outputs), (components, rows, outputs)
        """
        live = self if self._live.places is None else self.of_members(self._live.places)
        for rows, answers, variance in live.by_member():
            yield rows, answers.flatten(0, 1), variance.flatten(0, 1)

    def by_member(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Answers and variances of all members, a few rows at a time.  # (members, samples, rows, outputs)"""
        members, samples, rows, outputs = self.answers.shape
        size = max(1, _NUMBERS_AT_ONCE // (members * samples * outputs))
        for start in range(0, rows, size):
            some = slice(start, start + size)
            answers = self.answers[:, :, some].double()
            variance = torch.zeros((), dtype=torch.float64) if self.noise is None else self.noise.double()
            variance = (variance[:, :, some] if variance.ndim == 4 else variance).expand_as(answers)
            if self.spread is not None:
                variance = variance + self.spread[:, :, some].double()
            yield some, answers, variance

    def mixed(self, values: Tensor) -> Tensor:
        """The mean over components, by their weights.  # (components, rows, outputs) -> (rows, outputs)"""
        weights = self.component_weights
        return values.mean(0) if weights is None else torch.tensordot(weights, values, 1)

    def mixed_logs(self, logs: Tensor) -> Tensor:
        """Log of the mean of exp(logs) by weight.  # (components, rows, outputs) -> (rows, outputs)"""
        weights = self.component_weights
        if weights is None:
            return torch.logsumexp(logs, 0) - math.log(len(logs))
        return torch.logsumexp(logs + weights.log()[:, None, None], 0)

    # ------------------------------------------------------------------ other mixtures

    def of_members(self, places: Tensor) -> Mixture:
        """These members alone, as a mixture without a crossed design."""

        def some(values: Tensor | None) -> Tensor | None:
            return values[places] if values is not None and values.ndim == 4 and len(values) > 1 else values

        weights = None if self.weights is None else self.weights[places] / self.weights[places].sum()
        answers = self.answers[places]
        return replace(
            self, answers=answers, noise=some(self.noise), spread=some(self.spread), weights=weights, axes=()
        )

    def along(self, axis: str) -> list[Mixture]:
        """The members of each draw of an axis, as one mixture each."""
        names = [each.name for each in self.axes]
        shape = [each.draws for each in self.axes]
        if axis not in names or math.prod(shape) != len(self.answers):
            raise ValueError(
                f"there are not members for every draw of {axis}" + f": {self.missing}" * bool(self.missing)
            )
        grid = torch.arange(len(self.answers)).reshape(shape)
        return [self.of_members(each.flatten()) for each in grid.unbind(names.index(axis))]

    def of_rows(self, rows: Any) -> Mixture:
        """Some of its rows."""

        def some(values: Tensor | None) -> Tensor | None:
            return values[:, :, rows] if values is not None and values.ndim == 4 else values

        return replace(
            self,
            answers=self.answers[:, :, rows],
            noise=some(self.noise),
            spread=some(self.spread),
            within=self.within_changed(lambda part: part[:, rows]),
        )

    def of_output(self, j: int) -> Mixture:
        """One of several outputs alone."""
        one = slice(j, j + 1)
        return replace(
            self,
            answers=self.answers[..., one],
            noise=None if self.noise is None else self.noise[..., one],
            spread=None if self.spread is None else self.spread[..., one],
            within=self.within_changed(lambda part: part[..., one]),
        )

    def crossed_with(self, axis: CrossedAxis) -> Mixture:
        """Take each `axis.draws` successive rows as draws of one row: one more axis of the members, the last one.

        # answers (members, samples, rows * draws, outputs) -> (members * draws, samples, rows, outputs)
        """
        draws = axis.draws

        def folded(values: Tensor, row: int) -> Tensor:
            return values.unflatten(row, (-1, draws)).movedim(row + 1, 1).flatten(0, 1)

        def some(values: Tensor | None) -> Tensor | None:
            return folded(values, 2) if values is not None and values.ndim == 4 else values

        weights = None if self.weights is None else self.weights.repeat_interleave(draws) / draws
        return replace(
            self,
            answers=folded(self.answers, 2),
            axes=(*self.axes, axis),
            noise=some(self.noise),
            spread=some(self.spread),
            within=self.within_changed(lambda part: folded(part, 1)),
            weights=weights,
        )

    def stretched(self, factor: Tensor) -> Mixture:
        """Multiply the variance of each output by `factor`: everything moves away from the mean.

        The mean stays, and so do the shares of the sources. Draws of the inputs keep their means, though: what the
        networks say of an input is stretched, and not what is known of it.  # (outputs,)
        """
        centre = self._centre
        return replace(
            self,
            answers=centre + factor.sqrt() * (self.answers.double() - centre),
            noise=None if self.noise is None else self.noise * factor,
            spread=None if self.spread is None else self.spread * factor,
            within=self.within_changed(lambda part: part * factor),
        )

    @property
    def _centre(self) -> Tensor:
        """The mean of all answers, or of those to each draw of the inputs.  # (members or 1, 1, rows, outputs)"""
        of_inputs = next((axis for axis in self.axes if axis.shares_samples), None)
        if of_inputs is None:
            return self.mean[None, None]
        means = torch.stack([each.mean for each in self.along(of_inputs.name)])
        return means.repeat(len(self.answers) // len(means), 1, 1).unsqueeze(1)  # its axis is the last one

    def within_changed(self, change: Callable[[Tensor], Tensor]) -> Callable[[], Within] | None:
        """Return `within` with a change of each of its variances, still computed on demand."""
        within = self.within
        return None if within is None else lambda: {name: change(part) for name, part in within().items()}

    # ------------------------------------------------------------------ words

    def described(self, kind: str, output: str, conformal: str | None) -> str:
        """A prediction in words: its rows, outputs, members and samples, how it came about, and what is conformal."""
        members, samples, rows, outputs = self.answers.shape
        is_weighted = self._live.weights is not None or self._live.places is not None

        def counted(count: int, word: str) -> str:
            return f"{count} {word}{('es' if word == 'class' else 's') * (count != 1)}"

        how = counted(members, "weighted member" if is_weighted else "member")
        if self.method == "one_shot":
            how += f", one-shot with {self.covariance} covariance"
        elif self.method == "linearised":
            how += ", linearised"
        else:
            how += f" x {counted(samples, 'sample')}"
        calibrated = "" if conformal is None else f", conformal {conformal}"
        return f"{kind}({counted(rows, 'row')}, {counted(outputs, output)}, {how}{calibrated})"

    @cached_property
    def _live(self) -> _Live:
        if self.weights is None:
            return _Live(self.answers, None, None)
        counts = self.weights > 0
        places = None if bool(counts.all()) else torch.nonzero(counts).flatten()
        weights = self.weights if places is None else self.weights[places]
        are_equal = bool((weights == weights[0]).all())
        return _Live(self.answers if places is None else self.answers[places], places, None if are_equal else weights)


class HoldsMixture:
    """A prediction that holds a mixture. Abstract: a prediction adds its fields and its distribution."""

    noun: ClassVar[str] = "output"  # what a column of answers is called
    conformal_noun: ClassVar[str] = "intervals"  # what a conformal calibration gives
    conformal_is_signed: ClassVar[bool] = False  # whether its scores below zero are of rows below their mean
    picture_kinds: ClassVar[dict[str, pictures.Picture]] = {"sources": pictures.sources}  # by kind, the usual one first
    mixture: Any
    variance: Any  # (rows, outputs), or (rows,)
    conformal: Any = None

    def __len__(self) -> int:
        return self.mixture.rows

    @property
    def conformal_columns(self) -> int:
        """Number of scores that a conformal calibration takes of each row."""
        return 1

    def __repr__(self) -> str:
        conformal = None if self.conformal is None else self.conformal_noun
        return self.mixture.described(type(self).__name__, self.noun, conformal)

    def _repr_html_(self) -> str:
        return pictures.html(self)

    def plot(self, kind: str | None = None, y: Any = None, *, level: float = 0.95, ax: Any = None) -> Any:
        """Draw the prediction with matplotlib, and return the axes.

        kind: of quantities "intervals", "calibration" (needs y) or "sources"; of classes "sources", "reliability" or
            "risk_coverage" (both need y); of survival times "curves" or "sources" (default: the first).
        y: the truth, if it is at hand (default: None).
        level: of intervals and bands (default: 0.95).
        ax: matplotlib's axes to draw on (default: a new figure).
        """
        return pictures.drawn(self, kind, y, level, ax)

    def to_frame(self, level: float = 0.95, *, library: Library | None = None) -> Any:
        """Return a frame with a row for each row: what is predicted, and each source's share of the doubt.

        level: of the intervals (default: 0.95).
        library: "pandas" or "polars" (default: pandas if it is installed, else polars).
        """
        return pictures.framed(self, level, library)

    def to_inference_data(self, y: Any = None, *, samples: int = 1000, seed: int = 0) -> Any:
        """Return samples of y for each row as ArviZ's InferenceData (`pip install 'wherefrom[arviz]'`).

        Its group `posterior_predictive` has one chain, of samples from the mixture of all members.

        y: the truth, which becomes the group `observed_data` (default: None, no such group).
        samples: number of samples of each row (default 1000).
        seed: seed of the samples (default 0).
        """
        return inference_data(self, y, samples, seed)

    @property
    def method(self) -> str:
        """The way it was computed: "monte_carlo", "one_shot" or "linearised"."""
        return self.mixture.method

    @property
    def answers(self) -> Tensor:
        """Answers of all members, whatever they weigh.  # (members, samples, rows, outputs)"""
        return self.mixture.answers

    @property
    def weights(self) -> Tensor | None:
        """The weight of each member; None if all weigh the same.  # (members,)"""
        return self.mixture.weights

    @property
    def std(self) -> Tensor:
        return self.variance.sqrt()


@dataclass(frozen=True, eq=False)
class _Live:
    """The members that weigh anything."""

    answers: Tensor
    places: Tensor | None  # among all members; None: all of them
    weights: Tensor | None  # None: equal

    def average(self, values: Tensor) -> Tensor:
        if self.weights is None:
            return values.mean((0, 1))
        members, samples = len(self.weights), values.shape[1]
        weights = self.weights.repeat_interleave(samples) / samples
        return torch.tensordot(weights, values.expand(members, -1, -1, -1).flatten(0, 1), 1)


def _member_weights(
    given: Tensor | None, axes: Sequence[CrossedAxis], members: int, missing: str | None
) -> Tensor | None:
    """The members' weights, checked: those that are given, or the axes' own; None where all count the same."""
    weights = weights_of(axes) if given is None else given
    if weights is None:
        return None
    weights = torch.as_tensor(weights, dtype=torch.float64).cpu()
    if weights.shape != (members,):
        why = f" ({missing})" if missing else ""
        raise ValueError(f"there are {members} members, but weights of {tuple(weights.shape)}{why}")
    if not bool((weights >= 0).all()) or abs(float(weights.sum()) - 1) > 1e-9:
        raise ValueError(f"weights are not negative and add up to 1, unlike {weights.tolist()}")
    return weights
