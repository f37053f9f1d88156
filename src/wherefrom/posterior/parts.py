"""Parts of a posterior: fewer of its variables, or fewer of their draws, from the same trainings."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from operator import index
from typing import TYPE_CHECKING, Any

from wherefrom.laws import SWAG
from wherefrom.laws.law import Gaussian
from wherefrom.laws.swag import of_last
from wherefrom.posterior.fitting import fitted_anew
from wherefrom.posterior.members_of import some_of
from wherefrom.posterior.trainings import algorithm_of
from wherefrom.variables import Axis, Design, Iterations, Run

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior


def marginalising(posterior: Posterior, names: tuple[str, ...]) -> Posterior:
    """Take the part that marginalises only these variables; the others stand at one value."""
    whole = posterior.design
    masks = whole.of_masks
    sampled = {"t": whole.iterations, masks: whole.dropout}
    if any(not isinstance(name, str) for name in names):
        raise TypeError('name the variables one by one, as marginalising("theta0", "t")')
    for name in names:
        if sampled.get(name) is None:
            whole.axis(name)  # raises if there is none of that name
    kept = {whole.axis(name).name for name in names if name not in sampled}
    axes = tuple(axis for axis in whole.axes if axis.name in kept)
    first = posterior.mixture[0].run.labels
    fixed = {axis.name: {first[axis.name]} for axis in whole.axes if axis.name not in kept}
    design = Design(axes, whole.iterations if "t" in names else None, whole.dropout if masks in names else None)
    return fitted_anew(some_of(posterior, fixed, design))


def selected(posterior: Posterior, draws: Mapping[str, Any]) -> Posterior:
    """Take the part that has only these draws of some variables."""
    chosen: dict[str, set[int]] = {}
    for name, given in draws.items():
        axis = posterior.design.axis(name)
        if axis.name in chosen:
            raise ValueError(f"{axis.name} is drawn jointly: select it by one of its names")
        numbers, present = _numbers(posterior, axis, given), posterior.draws(axis.name)
        chosen[axis.name] = set(numbers)
        if missing := chosen[axis.name].difference(present):
            first = next(number for number in numbers if number in missing)
            raise ValueError(f"{axis.name} has the draws {', '.join(map(str, present))}; there is no {first}")
        if len(chosen[axis.name]) < len(numbers) or not numbers:
            raise ValueError(f"{name}={given}: name each draw once, and at least one")
    axes = tuple(
        Axis(a.name, a.variables, len(chosen.get(a.name, range(a.draws))))
        for a in posterior.design.axes
        if len(chosen.get(a.name, range(a.draws))) > 1
    )
    return fitted_anew(some_of(posterior, chosen, replace(posterior.design, axes=axes)))


def of_last_iterates(posterior: Posterior, last: int) -> Posterior | None:
    """Take the posterior that SWAG would have left if it had collected only the last few iterates of each training.

    None if the law is another, or keeps fewer iterates.
    """
    iterations = posterior.design.iterations
    if iterations is None or not isinstance(iterations.law, SWAG) or iterations.start == "auto":
        return None
    members = []
    steps: Sequence[int] = ()
    for member in posterior.mixture:
        law, steps = member.trained.law, _collected(posterior, member.run)
        if not isinstance(law, Gaussian) or not 2 <= last <= min(len(law.factor), len(steps) - 1):
            return None
        later = of_last(law, len(steps), last)
        members.append(replace(member, trained=replace(member.trained, law=later)))
    shares = tuple(step / steps[-1] for step in steps[-last:])
    design = replace(posterior.design, iterations=Iterations(iterations.law, steps=shares))
    return fitted_anew(replace(posterior, mixture=tuple(members), design=design))


def _collected(posterior: Posterior, run: Run) -> Sequence[int]:
    """Return the steps that the law of a run collected."""
    assert posterior.design.iterations is not None
    fold, training = posterior.fold, posterior.training
    rows = len(fold.trained_on)
    if fold.parts is not None and "leaves_out" in run.choices:
        rows = int((fold.parts != run.slots["D"]).sum())
    algorithm = algorithm_of(training, posterior.design.algorithms, run)
    return posterior.design.iterations.collection(training.epochs, algorithm.steps_per_epoch(rows)).steps


def _numbers(posterior: Posterior, axis: Axis, draws: Any) -> list[int]:
    """Return draws by their numbers; families may be given by their names."""
    each: list[Any] = [draws] if isinstance(draws, Integral | str) else list(draws)
    families = posterior.design.families
    names = list(families.factories) if families and axis.is_finite else []
    return [names.index(draw) if isinstance(draw, str) and draw in names else _number(draw) for draw in each]


def _number(draw: Any) -> Any:
    """Return a draw's number as Python has it, or whatever else it is, to be looked up and named in an error."""
    try:
        return index(draw)
    except TypeError:
        return draw if isinstance(draw, Hashable) else str(draw)
