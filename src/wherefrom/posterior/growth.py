"""Posteriors of trained members: those that diverged are left out or redrawn, and more can follow."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from wherefrom.posterior.fitting import fitted_anew
from wherefrom.posterior.fold import Fold
from wherefrom.posterior.held_out import like_training
from wherefrom.posterior.member import Member
from wherefrom.posterior.trainings import Kept, train_runs
from wherefrom.training.compute import Compute
from wherefrom.variables import Design

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior

Divergence = Literal["raise", "drop", "redraw", "keep"]  # "keep" is an older word for "drop"

_REDRAWS = 10  # of a draw whose members diverge again; such trainings end early, and cost little


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
        names = tuple(map(_name, lost))
        kept = tuple(m for m in posterior.mixture if m.trained.diverged is None)
        diverged += names
        _warn_of_hopeless(posterior, kept, stacklevel)
        if kept:
            origin = replace(posterior.origin, diverged=names, damaged=())  # those were trained again
            finished.append(fitted_anew(replace(posterior, mixture=kept, origin=origin)))
    if diverged and (on_divergence in ("raise", "redraw") or len(finished) < len(posteriors)):
        total = sum(map(len, posteriors))
        others = None if not finished else finished[0] if len(posteriors) == 1 else finished
        raise DivergedError(
            f"{len(diverged)} of {total} members diverged: {'; '.join(diverged)}. Lower their learning rate or scale "
            "the data"
            + '; the others are in this error\'s `posterior`, and on_divergence="drop" continues with them'
            * bool(finished),
            others,
        )
    return finished


def checked(on_divergence: Any, design: Design) -> Divergence:
    """Return what to do about members that diverge, and raise if it cannot be done."""
    if on_divergence not in get_args(Divergence):
        raise ValueError(f'on_divergence must be "raise", "drop" or "redraw", not {on_divergence!r}')
    if on_divergence == "redraw" and design.redrawable is None:
        raise ValueError(
            'on_divergence="redraw" needs a variable whose values are drawn at random, such as '
            'wf.InitialCondition(5): there is none in `over`. Use "drop"'
        )
    return cast(Divergence, on_divergence)


def redrawn(
    posteriors: Sequence[Posterior], compute: Compute, stacklevel: int = 4, kept: Kept | None = None
) -> list[Posterior]:
    """Train other values in place of draws whose members diverged, and warn of it.

    A value is redrawn for all members that share it, so that variables stay crossed. Those that diverge again are
    redrawn again, up to a limit.
    """
    now, causes = list(posteriors), [axis.name for p in posteriors if (axis := p.design.redrawable)]
    for _ in range(_REDRAWS):
        lost = [[m for m in posterior.mixture if m.trained.diverged is not None] for posterior in now]
        if not any(lost):
            break
        draws = [{m.run.labels[cause] for m in some} for some, cause in zip(lost, causes, strict=True)]
        designs = [p.design.redrawn(cause, each) for p, cause, each in zip(now, causes, draws, strict=True)]
        runs = [
            [run for run in design.runs(posterior.seed) if run.labels[cause] in each]
            for design, posterior, cause, each in zip(designs, now, causes, draws, strict=True)
        ]
        work = [(posterior.fold, some) for posterior, some in zip(now, runs, strict=True)]
        new = train_runs(now[0].training, now[0].networks, now[0].design, work, compute, kept)
        now = [_with(*each) for each in zip(now, designs, lost, new, strict=True)]
    if names := [name for posterior in now for name in posterior.origin.redrawn]:
        warnings.warn(
            f"{len(names)} of {sum(map(len, now))} members diverged, and their draws of {causes[0]} were replaced by "
            f"others: {'; '.join(names)}. The posterior is of values that do not diverge",
            stacklevel=stacklevel,
        )
    return now


def _with(posterior: Posterior, design: Design, lost: Sequence[Member], new: Sequence[Member]) -> Posterior:
    """Return the posterior with new members in place of others that have the same labels."""
    members = {tuple(member.run.labels.values()): member for member in (*posterior.mixture, *new)}
    names = {str(m.run): _name(m) for m in lost}
    before = {name.split(" (epoch")[0]: name for name in posterior.origin.redrawn}
    origin = replace(posterior.origin, redrawn=tuple((before | names).values()))
    return replace(posterior, design=design, mixture=tuple(members.values()), origin=origin)


def _name(member: Member) -> str:
    return f"{member.run} (epoch {member.trained.diverged}, {member.algorithm})"


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
    on_divergence = checked(on_divergence, design)
    fold = _fold(posterior, data)
    members = {tuple(member.run.labels.values()): member for member in posterior.mixture}
    runs = design.runs(posterior.seed)
    new_runs = [run for run in runs if tuple(run.labels.values()) not in members]
    (new,) = train_runs(posterior.training, posterior.networks, design, [(fold, new_runs)], compute)
    members |= {tuple(member.run.labels.values()): member for member in new}
    mixture = tuple(members[tuple(run.labels.values())] for run in runs)
    grown = [replace(posterior, design=design, fold=fold, mixture=mixture)]
    if on_divergence == "redraw":
        grown = redrawn(grown, compute, 5)
    return without_diverged(grown, on_divergence, 5)[0]


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
