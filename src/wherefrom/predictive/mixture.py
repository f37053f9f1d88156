"""The members that a predictive distribution is a mixture of, and what they weigh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from wherefrom.predictive.components import CrossedAxis, weights_of

if TYPE_CHECKING:
    from wherefrom.predictive.class_prediction import ClassPrediction
    from wherefrom.predictive.prediction import Prediction

_NUMBERS_AT_ONCE = 2**21


class Members(NamedTuple):
    """The members that a mixture is made of, and what they weigh."""

    answers: Tensor  # (members, samples, rows, outputs)
    noise: Tensor | None
    spread: Tensor | None
    weights: Tensor | None  # none of them zero, and not all equal

    def weighing(self, weights: Tensor) -> Members:
        """Those of them that weigh anything."""
        answers, noise, spread, _ = self
        if not bool((live := weights > 0).all()):
            places = torch.nonzero(live).flatten()
            if noise is not None and noise.ndim == 4 and len(noise) > 1:
                noise = noise[places]
            spread = None if spread is None else spread[places]
            answers, weights = answers[places], weights[places]
        return Members(answers, noise, spread, None if bool((weights == weights[0]).all()) else weights)

    def average(self, values: Tensor) -> Tensor:
        """Over members and samples.  # (members, samples, rows, outputs) -> (rows, outputs)"""
        if self.weights is None:
            return values.mean((0, 1))
        members, samples = len(self.weights), values.shape[1]
        weights = self.weights.repeat_interleave(samples) / samples
        return torch.tensordot(weights, values.expand(members, -1, -1, -1).flatten(0, 1), 1)

    def variance(self, mean: Tensor) -> Tensor:
        """Of the answers around their mean.  # (rows, outputs)"""
        answers = self.answers.double()
        if self.weights is None:
            return answers.var((0, 1), correction=0)
        return self.average((answers - mean).square())

    def components(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Answers and their variances, a few rows at a time.  # (members, samples, rows, outputs)"""
        members, samples, rows, outputs = self.answers.shape
        size = max(1, _NUMBERS_AT_ONCE // (members * samples * outputs))
        for start in range(0, rows, size):
            some = slice(start, start + size)
            answers = self.answers[:, :, some].double()
            noise = torch.zeros((), dtype=torch.float64) if self.noise is None else self.noise.double()
            noise = (noise[:, :, some] if noise.ndim == 4 else noise).expand_as(answers)
            if self.spread is not None:
                noise = noise + self.spread[:, :, some].double()
            yield some, answers, noise


def member_weights(
    given: Tensor | None, axes: Sequence[CrossedAxis], members: int, missing: str | None
) -> Tensor | None:
    """The members' weights, checked: those that are given, or the axes' own; None where all count the same."""
    weights = weights_of(axes) if given is None else given
    if weights is None:
        return None
    weights = torch.as_tensor(weights, dtype=torch.float64).cpu()
    if weights.shape != (members,):
        said = f" ({missing})" if missing else ""
        raise ValueError(f"there are {members} members, but weights of {tuple(weights.shape)}{said}")
    if not bool((weights >= 0).all()) or abs(float(weights.sum()) - 1) > 1e-9:
        raise ValueError(f"weights are not negative and add up to 1, unlike {weights.tolist()}")
    return weights


def described(prediction: Prediction | ClassPrediction, live: Members, output: str, conformal: str) -> str:
    """A prediction in words: its rows, outputs, members and samples, how it came about, and what is conformal."""
    members, samples, rows, outputs = prediction.answers.shape
    is_weighted = live.weights is not None or len(live.answers) < members

    def counted(count: int, word: str) -> str:
        return f"{count} {word}{('es' if word == 'class' else 's') * (count != 1)}"

    who = counted(members, "weighted member" if is_weighted else "member")
    if prediction.method == "one_shot":
        how = f"{who}, one-shot with {prediction.covariance} covariance"
    else:
        how = f"{who} x {counted(samples, 'sample')}"
    held = "" if prediction.conformal is None else f", conformal {conformal}"
    return f"{type(prediction).__name__}({counted(rows, 'row')}, {counted(outputs, output)}, {how}{held})"
