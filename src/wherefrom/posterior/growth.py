"""How members come into a posterior: those that were trained join it, unless they diverged, and more can follow."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from wherefrom.posterior.fitting import fitted_anew
from wherefrom.posterior.held_out import like_training
from wherefrom.posterior.members import Component, Fold, train_runs
from wherefrom.training.compute import Compute

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior

Divergence = Literal["raise", "keep"]


class DivergedError(RuntimeError):
    """Some members' losses stopped being numbers. `posterior` holds the others (for folds, a list of them)."""

    def __init__(self, message: str, posterior: Any) -> None:
        super().__init__(message)
        self.posterior = posterior

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.posterior)


def finished(
    work: list[tuple[Posterior, list[Component]]], on_divergence: Divergence, stacklevel: int = 4
) -> list[Posterior]:
    """Posteriors with their members, without those that diverged, and with their noise.

    Warnings are told `stacklevel` calls up, where the user is.
    """
    finished: list[Posterior] = []
    told: list[str] = []
    for posterior, components in work:
        lost = [c for c in components if c.trained.diverged is not None]
        names = tuple(f"{c.run} (epoch {c.trained.diverged}, {c.algorithm})" for c in lost)
        kept = tuple(c for c in components if c.trained.diverged is None)
        told += names
        _warn_of_hopeless(posterior, kept, stacklevel)
        if kept:
            finished.append(fitted_anew(replace(posterior, mixture=kept, diverged=names)))
    if told and (on_divergence == "raise" or len(finished) < len(work)):
        total = sum(len(components) for _, components in work)
        kept_ones = None if not finished else finished[0] if len(work) == 1 else finished
        raise DivergedError(
            f"{len(told)} of {total} members diverged: {'; '.join(told)}. Lower their learning rate or scale the data"
            + '; the others are in this error\'s `posterior`, and on_divergence="keep" goes on with them'
            * bool(finished),
            kept_ones,
        )
    return finished


def _warn_of_hopeless(posterior: Posterior, components: Sequence[Component], stacklevel: int) -> None:
    """Finite losses can be hopeless too: worse by far than those of an answer that is the same for every row."""
    training = posterior.training
    hopeless = training.likelihood.hopeless_loss(posterior.schema.targets, training.standardise)
    worse = [c for c in components if c.trained.losses[-1] > hopeless]
    if worse:
        one = worse[0]
        warnings.warn(
            f"{len(worse)} of {len(components)} members end with a training loss far above that of one answer for all "
            f"rows, such as {one.run} with {one.trained.losses[-1]:.3g} ({one.algorithm}): they have learnt nothing",
            stacklevel=stacklevel,
        )


def extended(
    posterior: Posterior, data: Any, more: Mapping[str, int], compute: Compute, on_divergence: Divergence
) -> Posterior:
    """With further draws of one variable, each trained with every combination of the others'."""
    if len(more) != 1:
        raise ValueError("name one variable and how many further draws of it to train, such as theta0=5")
    if posterior.own_weights is not None:
        raise ValueError("weights were set for these members alone: extend the posterior first, then weigh it")
    if posterior.training.is_elsewhere:
        raise ValueError(
            "these members were trained elsewhere: train more of them there, and make a posterior of all by "
            "wf.Posterior.from_members"
        )
    if posterior.is_part:
        raise ValueError("a part of a posterior cannot be extended: extend the whole, then take the part")
    ((name, count),) = more.items()
    if name in posterior.design.sampled:
        raise ValueError(f"{name} is sampled, not trained: predict with more samples instead")
    design = posterior.design.extended(name, count)
    fold = _fold(posterior, data)
    present = {tuple(component.run.labels.values()): component for component in posterior.mixture}
    runs = design.runs(posterior.seed)
    new_runs = [run for run in runs if tuple(run.labels.values()) not in present]
    (new,) = train_runs(posterior.training, posterior.networks, design, [(fold, new_runs)], compute)
    components = present | {tuple(component.run.labels.values()): component for component in new}
    grown = replace(posterior, design=design, rows=fold.rows, held_out=fold.held_out)
    return finished([(grown, [components[tuple(run.labels.values())] for run in runs])], on_divergence, 5)[0]


def _fold(posterior: Posterior, data: Any) -> Fold:
    """The rows to train further members on: those it has, or the same ones given again."""
    if data is None:
        if posterior.rows is None:
            raise ValueError("a loaded posterior has no data: give it again, as extend((x, y), theta0=5)")
        return Fold(posterior.rows, posterior.held_out, posterior.scaler, posterior.seed)
    return replace(same_data(posterior, data), scaler=posterior.scaler)


def same_data(posterior: Posterior, data: Any) -> Fold:
    """The data that the posterior was trained on, given again: anything else is refused."""
    fold = Fold.of(posterior.training, like_training(posterior, data), posterior.seed)
    posterior.schema.inputs(fold.rows.x)
    # Of members that were trained elsewhere, the data may never have been seen.
    if posterior.schema.digest and fold.rows.schema.digest != posterior.schema.digest:
        raise ValueError("this is not the data that the posterior was trained on")
    return fold
