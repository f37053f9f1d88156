"""Posteriors of trained members: those that diverged are left out, and more can follow."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from wherefrom.posterior.fitting import fitted_anew
from wherefrom.posterior.fold import Fold
from wherefrom.posterior.held_out import like_training
from wherefrom.posterior.member import Member
from wherefrom.posterior.trainings import train_runs
from wherefrom.training.compute import Compute

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior

Divergence = Literal["raise", "keep"]


class DivergedError(RuntimeError):
    """Members' losses stopped being numbers. `posterior` holds the other members (for folds, a list of them)."""

    def __init__(self, message: str, posterior: Any) -> None:
        super().__init__(message)
        self.posterior = posterior

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.posterior)


def without_diverged(
    posteriors: Sequence[Posterior], on_divergence: Divergence, stacklevel: int = 4
) -> list[Posterior]:
    """Leave out the members that diverged, and fit the noise by the others.

    Warnings point `stacklevel` calls up, to the user.
    """
    finished: list[Posterior] = []
    diverged: list[str] = []
    for posterior in posteriors:
        lost = [m for m in posterior.mixture if m.trained.diverged is not None]
        names = tuple(f"{m.run} (epoch {m.trained.diverged}, {m.algorithm})" for m in lost)
        kept = tuple(m for m in posterior.mixture if m.trained.diverged is None)
        diverged += names
        _warn_of_hopeless(posterior, kept, stacklevel)
        if kept:
            origin = replace(posterior.origin, diverged=names)
            finished.append(fitted_anew(replace(posterior, mixture=kept, origin=origin)))
    if diverged and (on_divergence == "raise" or len(finished) < len(posteriors)):
        total = sum(map(len, posteriors))
        others = None if not finished else finished[0] if len(posteriors) == 1 else finished
        raise DivergedError(
            f"{len(diverged)} of {total} members diverged: {'; '.join(diverged)}. Lower their learning rate or scale "
            "the data"
            + '; the others are in this error\'s `posterior`, and on_divergence="keep" goes on with them'
            * bool(finished),
            others,
        )
    return finished


def _warn_of_hopeless(posterior: Posterior, members: Sequence[Member], stacklevel: int) -> None:
    """Warn of losses that are finite, but worse by far than those of an answer that is the same for every row."""
    training = posterior.training
    hopeless = training.likelihood.hopeless_loss(posterior.schema.targets, bool(training.standardise))
    worse = [m for m in members if m.trained.losses[-1] > hopeless]
    if worse:
        one = worse[0]
        warnings.warn(
            f"{len(worse)} of {len(members)} members end with a training loss far above that of one answer for all "
            f"rows, such as {one.run} with {one.trained.losses[-1]:.3g} ({one.algorithm}): they have learnt nothing",
            stacklevel=stacklevel,
        )


def extended(
    posterior: Posterior, data: Any, more: Mapping[str, int], compute: Compute, on_divergence: Divergence
) -> Posterior:
    """Train further draws of one variable, each with every combination of the others'."""
    if len(more) != 1:
        raise ValueError("name one variable and how many further draws of it to train, such as theta0=5")
    if posterior.origin.weights is not None:
        raise ValueError("weights were set for these members alone: extend the posterior first, then weigh it")
    if posterior.training.is_elsewhere:
        raise ValueError(
            "these members were trained elsewhere: train more of them there, and make a posterior of all by "
            "wf.Posterior.from_members"
        )
    if posterior.origin.is_part:
        raise ValueError("a part of a posterior cannot be extended: extend the whole, then take the part")
    ((name, count),) = more.items()
    if name in posterior.design.sampled:
        raise ValueError(f"{name} is sampled, not trained: predict with more samples instead")
    design = posterior.design.extended(name, count)
    fold = _fold(posterior, data)
    members = {tuple(member.run.labels.values()): member for member in posterior.mixture}
    runs = design.runs(posterior.seed)
    new_runs = [run for run in runs if tuple(run.labels.values()) not in members]
    (new,) = train_runs(posterior.training, posterior.networks, design, [(fold, new_runs)], compute)
    members |= {tuple(member.run.labels.values()): member for member in new}
    mixture = tuple(members[tuple(run.labels.values())] for run in runs)
    return without_diverged([replace(posterior, design=design, fold=fold, mixture=mixture)], on_divergence, 5)[0]


def _fold(posterior: Posterior, data: Any) -> Fold:
    """Return the rows to train further members on: those it has, or the same ones given again."""
    if data is None:
        if posterior.rows is None:
            raise ValueError("a loaded posterior has no data: give it again, as extend((x, y), theta0=5)")
        return posterior.fold
    return same_data(posterior, data)


def same_data(posterior: Posterior, data: Any) -> Fold:
    """Return the posterior's fold with its data, given again: anything else is refused."""
    rows = like_training(posterior, data)
    posterior.schema.inputs(rows.x)
    return posterior.fold.with_rows(rows)
