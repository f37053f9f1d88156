"""The pilot: a few networks are trained first, and rows that they were not trained on choose the settings of all.

It chooses how long to train, how fast, how much to drop, the network, its inputs, and the noise. The trajectories of
the first networks are kept, so that every number of epochs can be scored (see posterior/stopping.py). Where a good
setting is best near the end, pilots of twice the epochs follow, with the better half of the settings, on fewer folds.

All are scored by the negative log-likelihood of the same rows, so that they can be compared row by row. After the
learning rate and the dropout, one thing is changed at a time, and kept if the rows are more likely: a larger network,
columns in pieces (see training/pieces.py), a lower rate where few epochs are best, weight decay, no hidden units at
all, and few of many columns (see training/sparse.py). A network that predicts its noise is taken if the rows are more
likely by more than a standard error, under the shape of y that suits each (see predictive/shape.py), and its CRPS is
not worse by as much: such networks stop earlier, at times before they have learnt the mean. Other likelihoods that y
may have must be better by two standard errors (see likelihoods/choice.py); heavy tails are tried only where the errors
of the best network have them. A larger network, or pieces, which cost more, are kept only if they are better by half a
standard error. Settings that the user gave are not tried otherwise.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wherefrom.likelihoods import Likelihood
from wherefrom.likelihoods.choice import WORDS, Law
from wherefrom.posterior import DivergedError, Posterior, stopping
from wherefrom.posterior.marginalise import marginalise
from wherefrom.posterior.member import Member
from wherefrom.posterior.point import Training
from wherefrom.posterior.stopping import Stops
from wherefrom.predictive import gaussians, student
from wherefrom.tables.raw import Integers
from wherefrom.tables.weighing import drawn_by_weight
from wherefrom.tables.wording import option
from wherefrom.training.compute import Compute
from wherefrom.training.continuing import Continuing
from wherefrom.training.mlp import MLP
from wherefrom.training.pieces import Pieces
from wherefrom.training.sparse import SparseLinear
from wherefrom.variables import Hyperparameters

Tried = Literal["lr", "dropout", "no dropout", "decay", "hidden", "inputs", "noise"]

LEAST_EPOCHS = 5
_FIRST_EPOCHS, _FIRST_STEPS, _MOST_STEPS = 10, 2000, 40_000
_MOST_EPOCHS = 1000
_NEAR_THE_END, _WORTH_LONGER = 0.7, 0.005  # of the epochs, and nats a row for which twice as many are tried
_RATES, _DROPOUTS = (1.0, 1 / 3), (1.0, 4.0)  # times what would be taken without a pilot
_LESS = 0.25  # of a dropout
_FIRST_LOOK = 4  # parts of a training, after the first of which a change that has not helped is given up
_STEPS_OF_A_LOOK, _LEAST_EPOCHS_OF_A_LOOK = 80, 2  # at least; a trajectory is of two iterates or more
_CLEARLY, _WORTH_IT = 3.0, 0.5  # standard errors: to give a long training up; a short one, and to take a costly one
_SURELY = 2.0  # standard errors, by which another distribution must be better
_ENOUGH_ROWS = 500  # to compare two trainings by
_DECAYS, _SPARSE_DECAYS = (0.003,), (0.03, 0.1, 0.3)  # of the weights of networks, and of sparse linear models
_WIDE = 5  # rows for each column: with fewer, sparse models are tried
_LINEAR_RATE = 3.0  # times that of a network with hidden units
_LARGER = {(50,): (64, 64)}  # hidden units
_FEW_EPOCHS = 10
_CALMER, _TRIES = 1 / 10, 3  # of the learning rate, where all pilots diverge


@dataclass(frozen=True)
class Pilot:
    """The result of the first networks."""

    training: Training  # with the epochs, the learning rate, the dropout, the network and the noise that were found
    epochs: tuple[int, ...]  # after which the best was scored
    scores: tuple[float, ...]  # the NLL on rows that it was not trained on
    seconds_per_epoch: float  # of one network, by the clock
    notes: tuple[str, ...] = ()  # on what was compared


@dataclass(frozen=True, eq=False)
class _Trial:
    """One setting's way: how likely each row was after every number of epochs, and which stop was best."""

    training: Training
    stops: Stops
    best: int
    seconds: float

    @property
    def score(self) -> float:
        return float(self.stops.nll[self.best].mean())

    def gain(self, other: _Trial) -> tuple[float, float]:
        """Return how far its mean NLL lies below another's, and the standard error of that."""
        return _gain(self.stops.nll[self.best], other.stops.nll[other.best])

    def shaped_gain(self, other: _Trial) -> tuple[float, float]:
        """Return the gain under the shapes of y that suit both, and its standard error."""
        return _gain(self.stops.shaped_nll(self.best), other.stops.shaped_nll(other.best))

    def is_beaten_by(self, other: _Trial, length: int, margin: float) -> bool:
        """Return True if it is worse than another, even if twice the epochs gained as much as the last half.

        margin: standard errors by which it must be worse.
        """
        gain, error = other.gain(self)
        return gain - self._last_gain(length) > margin * error

    def is_behind(self, other: _Trial) -> bool:
        """Return True if it is worse, by half a standard error, than another was when it had come as far.

        How far a training has come is its learning rate times the epochs. Where either gives single values a
        probability, the CRPS decides (see likelihoods/choice.py).
        """
        progress = rate(self.training) / rate(other.training) * self.stops.epochs[-1]
        count = max(1, sum(epochs <= progress for epochs in other.stops.epochs))
        then = int(other.stops.nll[:count].mean(1).argmin())
        if self.training.likelihood.has_atoms or other.training.likelihood.has_atoms:
            gain, error = _gain(self.stops.crps[self.best], other.stops.crps[then])
        else:
            gain, error = _gain(self.stops.nll[self.best], other.stops.nll[then])
        return gain < -_WORTH_IT * error

    def may_beat(self, other: _Trial) -> bool:
        """Return True if it is not worse than another by more than a standard error."""
        gain, error = other.gain(self)
        return gain <= error

    def suits_better(self, other: _Trial) -> str | None:
        """Return why its likelihood suits y better than another's; None if it does not.

        The NLL is lower by more than two standard errors, under the shapes that suit both, since several laws are
        tried, and the CRPS not higher by more than one. Where either gives single values a probability, the CRPS
        decides (see likelihoods/choice.py).
        """
        crps, crps_error = self.crps_gain(other)
        if self.training.likelihood.has_atoms or other.training.likelihood.has_atoms:
            return f"lower CRPS on validation rows, by {crps:.3g} ± {crps_error:.2g}" if crps > crps_error else None
        gain, error = self.shaped_gain(other)
        is_better = gain > _SURELY * error and crps > -crps_error
        return f"lower NLL on validation rows, by {gain:.3f} ± {error:.3f}" if is_better else None

    @property
    def has_heavy_tails(self) -> bool:
        """True if a t with as many degrees of freedom as suit its errors makes them more likely than a Gaussian."""
        errors = None if self.stops.deviation is None else self.stops.deviation[self.best]
        if errors is None or not bool(errors.isfinite().all()):
            return True  # nobody can tell
        square, df = student.most_likely(errors.square()[None])
        nothing, variance = torch.zeros_like(errors), errors.square().mean(0)
        gaussian = gaussians.log_density(errors, nothing, variance)
        gain, error = _gain(-student.log_density(errors, nothing, square * df / (df - 2), df).sum(1), -gaussian.sum(1))
        return gain > _WORTH_IT * error

    def gains_by_length(self, length: int) -> bool:
        """Return True if it is best near the end, and clearly better than halfway: more epochs may be better still."""
        return self.training.epochs >= _NEAR_THE_END * length and self._last_gain(length) > _WORTH_LONGER

    def _last_gain(self, length: int) -> float:
        """Return how far the NLL fell in the last half of these epochs."""
        half = sum(epochs <= length // 2 for epochs in self.stops.epochs) - 1
        return float((self.stops.nll[max(half, 0)] - self.stops.nll[self.best]).mean())

    def crps_gain(self, other: _Trial) -> tuple[float, float]:
        """Return the gain in CRPS, and its standard error."""
        return _gain(self.stops.crps[self.best], other.stops.crps[other.best])


def pilot(
    training: Training,
    data: tuple[Any, ...],
    *,
    averages: bool,
    tried: Collection[Tried] = ("lr", "dropout"),
    epochs: int | None = None,
    seed: int = 0,
    until: float | None = None,
    compute: Compute | None = None,
    copies: Integers | None = None,
    pieces: Pieces | None = None,
    rivals: Mapping[Law, Likelihood] | None = None,
) -> Pilot:
    """Look for the best training: `averages` where t is marginalised, `tried` are the settings to look for.

    `data` is (x, y), or (x, y, weights).
    With `epochs` they are given. `until` is when, by the clock, no longer ones may begin. `copies` has the same number
    for rows that are copies of each other: they are trained on, or set aside, together. `pieces` are those of the
    columns that have any. `rivals` are further likelihoods that y may have.
    """
    copies = np.arange(len(data[0])) if copies is None else np.unique(copies, return_inverse=True)[1]
    along = data[1].reshape(len(data[1]), -1)[:, 0]
    folds = stopping.folds(copies, along, seed)
    search = _Search(data, folds, averages, epochs, seed, until, compute or Compute())
    wanted, notes = training.likelihood, []
    training = replace(training, likelihood=wanted.to_search("noise" in tried))
    best = search.best(training, _settings(training, tried))
    ground = _Ground(training, tried, pieces, _WIDE * data[0].values.shape[1] > len(data[0]))
    for change in _CHANGES:
        if search.is_late(best):
            break
        rival = change(best.training, ground)
        if rival is None:
            continue
        trial = search.best(rival.training, rival.settings, best)
        gain, error = trial.gain(best)
        if gain > rival.margin * error:
            words = rival.words.format(linear=wanted.without_hidden)
            notes.append(f"{words}: lower NLL on validation rows, by {gain:.3f} ± {error:.3f}")
            best = trial
    chosen_law: Law = "gaussian"
    for law, likelihood in (rivals or {}).items():
        if search.is_late(best):
            break
        if law == "student" and not best.has_heavy_tails:
            continue
        other = likelihood.to_search("noise" in tried)
        trial = search.best(replace(best.training, likelihood=other), {}, best, margin=0.0)
        if (why := trial.suits_better(best)) is not None:
            notes.append(f"{WORDS[law]}: {why}")
            best, wanted, chosen_law = trial, likelihood, law
    if rivals:
        notes.append(f"the distribution of y: {WORDS[chosen_law]}")
    by_row = wanted.by_row if "noise" in tried else None
    if by_row is not None and not search.is_late(best):
        calmer = _calmer(best.training, ground)
        noisy = search.best(replace(best.training, likelihood=by_row.to_search(False)), calmer, best, margin=0.0)
        gain, error = noisy.shaped_gain(best)
        crps_gain, crps_error = noisy.crps_gain(best)
        if gain > error and crps_gain > -crps_error:
            notes.append(f"noise row by row: lower NLL on validation rows, by {gain:.3f} ± {error:.3f}")
            best, wanted = noisy, by_row
    chosen = replace(best.training, likelihood=wanted)
    return Pilot(chosen, best.stops.epochs, tuple(best.stops.nll.mean(1).tolist()), best.seconds, tuple(notes))


# ---------------------------------------------------------------------- one change at a time
# Each function returns a rival of the best training so far, if there is one.


@dataclass(frozen=True)
class _Ground:
    """All that rivals depend on beside the best training."""

    first: Training  # with which the search began
    tried: Collection[str]
    pieces: Pieces | None
    is_wide: bool  # few rows for each column


class _Rival(NamedTuple):
    """A training to compare with the best one so far."""

    words: str
    training: Training
    settings: Mapping[str, Sequence[float]]  # to look for anew
    margin: float = 0.0  # standard errors by which it must be better


def _larger(best: Training, ground: _Ground) -> _Rival | None:
    model = best.model
    if "hidden" not in ground.tried or not isinstance(model, MLP) or model.hidden not in _LARGER:
        return None
    hidden = _LARGER[model.hidden]
    words = f"{' + '.join(map(str, hidden))} hidden units"
    return _Rival(words, replace(best, model=MLP(hidden, model.activation, model.dropout)), {}, _WORTH_IT)


def _in_pieces(best: Training, ground: _Ground) -> _Rival | None:
    if "inputs" not in ground.tried or ground.pieces is None or best.standardise is not True:
        return None
    dropped = dropout(best)
    less = {"dropout": [dropped, _LESS * dropped if dropped > 0.1 else 0.0]}
    settings = less if dropped and "no dropout" in ground.tried else {}
    return _Rival("columns in pieces", replace(best, standardise=ground.pieces), settings, _WORTH_IT)


def _slower(best: Training, ground: _Ground) -> _Rival | None:
    """Return a rival with a lower learning rate, if so few epochs are best that their number is coarse."""
    if "lr" not in ground.tried or best.epochs > _FEW_EPOCHS:
        return None
    return _Rival("a lower learning rate", best, {"lr": [_RATES[-1] * rate(best)]})


def _decaying(best: Training, ground: _Ground) -> _Rival | None:
    if "decay" not in ground.tried or not best.algorithm.has("weight_decay"):
        return None
    return _Rival("weight decay", best, {"weight_decay": _DECAYS})


def _without_hidden(best: Training, ground: _Ground) -> _Rival | None:
    return _linear(MLP(()), "no hidden units ({linear})", best, ground)


def _sparse(best: Training, ground: _Ground) -> _Rival | None:
    """Try a sparse model, if there are few rows for each column."""
    if not ground.is_wide or "decay" not in ground.tried or not best.algorithm.has("weight_decay"):
        return None
    rival = _linear(SparseLinear(), "few columns (sparse {linear})", best, ground)
    return rival and rival._replace(settings={"weight_decay": _SPARSE_DECAYS})


def _linear(model: Any, words: str, best: Training, ground: _Ground) -> _Rival | None:
    if "hidden" not in ground.tried:
        return None
    settings = {}
    if "lr" in ground.tried:
        settings["lr"] = [_LINEAR_RATE * rate(ground.first) * times for times in _RATES]
        best = _at(best, {"lr": settings["lr"][0]})
    return _Rival(words, replace(best, model=model), settings)


def _calmer(best: Training, ground: _Ground) -> dict[str, Sequence[float]]:
    """Return settings for networks that predict their noise, which overfit sooner: slower, and with more dropout."""
    settings: dict[str, Sequence[float]] = {}
    if "lr" in ground.tried:
        settings["lr"] = [rate(best), _RATES[-1] * rate(best)]
    most = _DROPOUTS[-1] * dropout(ground.first)
    if "dropout" in ground.tried and isinstance(best.model, MLP) and best.model.hidden and dropout(best) < most:
        settings["dropout"] = [dropout(best), most]
    return settings


_CHANGES = (_larger, _in_pieces, _slower, _decaying, _without_hidden, _sparse)


# ---------------------------------------------------------------------- settings


def rate(training: Training) -> float:
    """Its learning rate."""
    return float(training.algorithm.settings["lr"])


def decay(training: Training) -> float:
    """Its weight decay."""
    return float(training.algorithm.settings.get("weight_decay", 0.0))


def dropout(training: Training) -> float:
    """The dropout rate of its network, where it has one."""
    return training.model.dropout if isinstance(training.model, MLP) else 0.0


def _settings(training: Training, tried: Collection[str]) -> dict[str, Sequence[float]]:
    """Return the values of each setting that is to be tried."""
    values: dict[str, Sequence[float]] = {}
    if "lr" in tried:
        values["lr"] = [rate(training) * times for times in _RATES]
    if "dropout" in tried and dropout(training):
        without = [0.0] if "no dropout" in tried else []
        values["dropout"] = [*(min(0.5, dropout(training) * times) for times in _DROPOUTS), *without]
    return values


def _differ(points: Sequence[Mapping[str, float]], name: str) -> bool:
    return len({point[name] for point in points}) > 1


def _at(training: Training, point: Mapping[str, float]) -> Training:
    """Return the training with these settings."""
    if changes := {name: point[name] for name in ("lr", "weight_decay") if name in point}:
        training = replace(training, algorithm=training.algorithm.but(**changes))
    if "dropout" in point and isinstance(model := training.model, MLP):
        training = replace(training, model=MLP(model.hidden, model.activation, point["dropout"]))
    return training


@dataclass(frozen=True, eq=False)
class _Search:
    """A search on fixed rows."""

    data: tuple[Any, ...]
    folds: list[tuple[Integers, Integers]]
    averages: bool
    epochs: int | None
    seed: int
    until: float | None
    compute: Compute

    def _on_folds(self, count: int) -> _Search:
        """Return this search on some of its folds: the given number, or more if these have too few rows to compare."""
        rows = np.cumsum([len(aside) for _, aside in self.folds])
        return replace(self, folds=self.folds[: max(count, 1 + int((rows < _ENOUGH_ROWS).sum()))])

    def is_late(self, trial: _Trial) -> bool:
        return self._would_be_late(trial.stops.epochs[-1] * len(self.folds) * trial.seconds)

    def _would_be_late(self, seconds: float) -> bool:
        return self.until is not None and time.monotonic() + seconds > self.until

    def _affordable(self, settings: Sequence[Training], length: int) -> int:
        """Return fewer epochs if these would take too long, judged by a short training of one setting."""
        if self.until is None:
            return length
        short = [replace(settings[0], epochs=LEAST_EPOCHS)]
        (posteriors, _), folds = self._trained(short, stopping.spacing(LEAST_EPOCHS)), len(self.folds)
        each = sum(member.trained.seconds for fold in posteriors for member in fold.mixture) / (LEAST_EPOCHS * folds)
        fits = (self.until - time.monotonic()) / max(each * folds * len(settings), 1e-9)
        return int(max(LEAST_EPOCHS, min(length, fits)))

    def best(
        self,
        training: Training,
        tried: Mapping[str, Sequence[float]],
        rival: _Trial | None = None,
        margin: float = _CLEARLY,
    ) -> _Trial:
        """The best of the settings that are tried, after as many epochs as are best for it.

        With a rival, they begin with half as many epochs as it had, and go no further where it is better by so many
        standard errors, the margin: none where a change has to be clearly better to be taken. A quarter of these
        epochs comes first, if that is enough to tell: the better half of the settings goes on, if it is not behind the
        rival then. Longer trainings go on from where shorter ones ended.
        """
        steps = training.algorithm.steps_per_epoch(len(self.folds[0][0]))
        first = self.epochs or min(100, max(_FIRST_EPOCHS, round(_FIRST_STEPS / steps)))
        length = first if rival is None or self.epochs else max(LEAST_EPOCHS, first // 2, rival.stops.epochs[-1] // 2)
        most = self.epochs or min(_MOST_EPOCHS, max(4 * _FIRST_EPOCHS, round(_MOST_STEPS / steps)))
        settings = [_at(training, dict(zip(tried, point, strict=True))) for point in product(*tried.values())]
        length = length if rival is not None or self.epochs else self._affordable(settings, length)
        every = stopping.spacing(length)
        if not self.epochs:
            length, most = stopping.even(length, every), stopping.even(most, every)
        continuing, done = self._continuing(), 0
        look = stopping.even(max(_LEAST_EPOCHS_OF_A_LOOK, length // _FIRST_LOOK), every)
        if rival is not None and not self.epochs and look * steps >= _STEPS_OF_A_LOOK:
            looks, done = continuing._trials(settings, look, every), look
            better = looks[: -(-len(looks) // 2)]
            settings = [trial.training for trial in better if not trial.is_behind(rival)]
            if not settings:
                return looks[0]
        lowest: _Trial | None = None
        while True:
            search = continuing._on_folds(len(self.folds) * first // length)
            trials, done = search._trials(settings, length, every, done), length
            best = trials[0]
            lowest = best if lowest is None or best.gain(lowest)[0] > 0 else lowest
            better = trials[: -(-len(trials) // 2)]
            is_rising = any(trial.gains_by_length(length) and trial.may_beat(lowest) for trial in better)
            is_beaten = rival is not None and best.is_beaten_by(rival, length, margin)
            seconds = length * len(search.folds) * len(better) * best.seconds  # of twice the epochs
            if not is_rising or length >= most or is_beaten or self._would_be_late(seconds):
                return lowest
            length = min(most, 2 * length)
            settings = [trial.training for trial in better]

    def _continuing(self) -> _Search:
        """Return this search with longer trainings that go on from where shorter ones ended."""
        if self.compute.checkpoints is not None:
            return self
        return replace(self, compute=self.compute.but(checkpoints=Continuing()))

    def _trained(self, settings: list[Training], every: int) -> tuple[list[Posterior], list[Training]]:
        """Networks with their trajectories, of each fold one for each setting; those that diverge are left out.

        If all of them do, the settings are calmer ones; they are returned as they were.

        every: epochs between two kept iterates.
        """
        over: list[Any] = [stopping.kept_trajectory(settings[0].epochs, every)]
        folds = [train for train, _ in self.folds]
        for _ in range(_TRIES):
            points = [{"lr": rate(one), "dropout": dropout(one), "weight_decay": decay(one)} for one in settings]
            points = [{name: point[name] for name in point if _differ(points, name)} for point in points]
            tried = [Hyperparameters(points=points)] if len(points) > 1 else []
            try:
                with warnings.catch_warnings():  # of networks that nobody will see
                    warnings.simplefilter("ignore", UserWarning)
                    posteriors = marginalise(
                        max(settings, key=dropout),  # one without dropout has no units to drop at another's rate
                        self.data,
                        [*over, *tried],
                        self.seed,
                        folds=folds,
                        compute=self.compute,
                        on_divergence="drop",
                    )
                return posteriors, settings
            except DivergedError as error:
                last = error
                settings = [_at(one, {"lr": _CALMER * rate(one)}) for one in settings]
        raise last

    def _trials(self, settings: Sequence[Training], length: int, every: int, done: int = 0) -> list[_Trial]:
        """Train these epochs, and return the settings that no fold diverges with, the best first.

        every: epochs between two kept iterates.
        done: epochs that were trained before.
        """
        began = time.monotonic()
        posteriors, settings = self._trained([replace(each, epochs=length) for each in settings], every)
        seconds = (time.monotonic() - began) / ((length - done) * sum(map(len, posteriors)))
        by_fold = [{member.run.labels.get("h", 0): member for member in fold.mixture} for fold in posteriors]
        trials = [
            self._trial(posteriors, settings[number], [fold[number] for fold in by_fold], seconds)
            for number in by_fold[0]
            if all(number in fold for fold in by_fold)
        ]
        if not trials:
            raise DivergedError(
                f"every setting diverged on some of the rows: give a lower {option('lr')}", list(posteriors)
            )
        return sorted(trials, key=lambda trial: trial.score)

    def _trial(
        self, posteriors: Sequence[Posterior], training: Training, members: Sequence[Member], seconds: float
    ) -> _Trial:
        x, y, weights = (*self.data, None)[:3]
        drawn = [drawn_by_weight(test, weights) for _, test in self.folds]
        aside = [(x.take(test), y[test]) for test in drawn]
        stops = stopping.scored(posteriors, members, aside, self.averages)
        best = len(stops.epochs) - 1 if self.epochs else stops.first_good()
        return _Trial(replace(training, epochs=max(LEAST_EPOCHS, stops.epochs[best])), stops, best, seconds)


def _gain(scores: Tensor, others: Tensor) -> tuple[float, float]:
    """Return how far scores lie below others, and the standard error; the shorter are of the first of the rows."""
    rows = min(len(scores), len(others))
    gains = others[:rows] - scores[:rows]
    return float(gains.mean()), float(gains.std()) / math.sqrt(rows)
