"""Advice on what to marginalise next: the errors of a prediction after further trainings.

A prediction from few draws is itself a draw. With n_i draws of each variable that is drawn at random, crossed, and the
variance components V_u of `sources`, its mean has, for want of draws and samples, the variance

    E(n)  =  sum over u of  V_u / prod over i in u of n_i    +    (V_t, V_F, V_tF within members) / all their samples

A component in which a variable takes part whose values were all gone through adds nothing: its mean over them is exact.
A further draw of one variable is a training with every combination of the others' draws, so it costs the product of
their numbers, and a budget of trainings buys as many draws as it pays for in full.

The variance T that is predicted is off, too. What the draws of one variable have to do with its error, J_i of the
jackknife (components.py), falls with the degrees of freedom, (n - 1) / (n + more - 1). So does all of the error of a
component that the variable takes part in.

Errors are told relative to the prediction, e = sqrt(E / T) and r = error of T / T. They have a common price: a Gaussian
whose mean is off by e and whose variance is off by r has an NLL that is higher by e^2 / 2 + r^2 / 4 on average. Advice
goes to the variable that lowers it most. Of classes, y is taken as its indicators, T is sum_c p_c (1 - p_c) and e^2 / 2
is the only price, because the mean says all.

All e carry a standard error, jackknifed as those of the sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from wherefrom import plots
from wherefrom.predictive.components import Answers, Components, Replicates, jackknife, jackknifed
from wherefrom.predictive.mixture import Mixture
from wherefrom.showing import Library, card, paragraphs
from wherefrom.table import Table
from wherefrom.training.workers import one_core

_Statistic = Callable[[Components], Tensor]  # of the components: (1, 1)
_MORE_SAMPLES = 10  # times as many, as the free alternative
_NEGLIGIBLE = 0.005  # nats: a mean that is off by a tenth of a standard deviation
TRY = {  # variables that can be marginalised, as they are written
    "theta0": "wf.InitialCondition(5)",
    "t": "wf.Iterations(wf.SWAG(rank=20))",
    "h": "wf.Hyperparameters(5, lr=wf.LogUniform(1e-4, 1e-2))",
    "order": "wf.BatchOrder(5)",
    "F": "wf.Dropout() or wf.Families({...})",
    "D": "wf.Resample(5)",
}


@dataclass(frozen=True, eq=False)
class Subject:
    """The subject of advice: a mixture, and how to speak of its variance."""

    mixture: Mixture
    certain: float | None = None  # the variance of y, where its mean says all of it
    noise: str = "noise"  # what no choice of training causes
    of: str = "prediction"  # whose variance the components add up to
    tells: str = "how wide predictions should be"  # what that variance is good for


@dataclass(frozen=True)
class Option:
    """The draws of one variable that a budget of trainings buys, and the errors that are left then.

    `mean_error` is in predictive standard deviations; `variance_error` is relative to the predictive variance (of
    classes, to that of their probabilities), `own_error` to the variable's own component.
    """

    variable: str
    budget: int
    draws: int  # further ones
    trainings: int  # that these cost
    mean_error: float
    mean_error_se: float
    variance_error: float
    own_error_now: float = math.nan
    own_error: float = math.nan

    @property
    def price(self) -> float:
        """Price in nats a row; an error that is not known counts as none."""
        return self.mean_error**2 / 2 + (0.0 if math.isnan(self.variance_error) else self.variance_error**2 / 4)


@dataclass(frozen=True)
class Advice:
    """Advice on further trainings: `best` is a variable, "samples", or None if nothing is worth it."""

    now: Option
    options: tuple[Option, ...]
    best: str | None
    tied: tuple[str, ...]  # variables that cannot be told from the best one by their gains
    draws: dict[str, int]  # of each variable that is drawn at random, now
    costs: dict[str, int]  # trainings for one further draw of each
    gone_through: tuple[str, ...]  # variables of which there are no more values
    untried: tuple[str, ...]  # variables that are not marginalised
    noise_share: float  # of the predictive variance: what no choice of training causes
    sample_share: float  # of the variance of the mean: what more samples would remove
    subject: Subject

    def table(self) -> Table:
        """The errors now, and with each budget spent on each variable."""
        columns = ("trainings", "spent on", "buys", "error of mean", "±", "error of variance", "of its part")
        rows = [(0, "nothing", "", *_errors(self.now), "")]
        rows += [(each.budget, each.variable, self._bought(each), *_errors(each), _own(each)) for each in self.options]
        return Table(columns, rows)

    @property
    def recommendation(self) -> str:
        """Say what to do."""
        sentences = [self._verdict(), self._of_noise(), self._of_costs()]
        if two := [name for name, draws in self.draws.items() if draws < 3]:
            sentences.append(
                f"With two draws of {listed(two)}, a variance has no error estimate: a third draw would give one."
            )
        if self.gone_through:
            sentences.append(f"{listed(self.gone_through)}: all values were used, there are none left to draw.")
        if self.untried:
            ways = "; ".join(f"{name} (add {TRY[name]})" for name in self.untried)
            sentences.append(f"Not in `over`, so not tested: {ways}.")
        return "\n".join(filter(None, sentences))

    def plot(self, *, ax: Any = None) -> Any:
        """Draw how far off the mean would be after further trainings, by what they are spent on.

        ax: matplotlib's axes to draw on (default: a new figure).
        """
        names = list(dict.fromkeys(option.variable for option in self.options))
        budgets = {name: [0, *(each.budget for each in self.options if each.variable == name)] for name in names}
        errors = {
            name: [self.now.mean_error, *(each.mean_error for each in self.options if each.variable == name)]
            for name in names
        }
        return plots.curves(budgets, errors, ("further trainings", "error of the mean, in predictive std"), ax)

    def to_frame(self, library: Library | None = None) -> Any:
        """Return the table as a frame.

        library: "pandas" or "polars" (default: pandas if it is installed, else polars).
        """
        return self.table().to_frame(library)

    def _repr_html_(self) -> str:
        return card("What to marginalise next", paragraphs(self.recommendation), self.table().html())

    def __str__(self) -> str:
        units = (
            "Errors of the mean are in predictive standard deviations, errors of the variance of the "
            f'{self.subject.of} in parts of\nthat variance. "of its part": errors of the variance that the variable '
            "causes by itself."
        )
        return f"{self.table()}\n\n{units}\n\n{self.recommendation}"

    __repr__ = __str__

    def _verdict(self) -> str:
        now = self.now
        off = (
            f"the mean is off by {now.mean_error:.2g} predictive standard deviations because draws and samples are few"
        )
        if self.best is None:
            if now.price < _NEGLIGIBLE:
                return f"No further training is needed: {off}, which costs about {now.price:.2g} nats a row."
            if not self.draws:
                return f"There is no variable to draw more of, though {off}."
            return f"The budget buys no further draw, though {off}."
        if self.best == "samples":
            return (
                f"Draw more samples, which need no training: {self.sample_share:.0%} of the variance of the "
                f"mean is theirs. Predict with {_MORE_SAMPLES} times as many."
            )
        (chosen,) = [each for each in self._largest() if each.variable == self.best]
        name = self.best.split("+")[0]
        rivals = f" (by their errors, {listed(self.tied)} might do as well)" if self.tied else ""
        return (
            f"Spend on {self.best}{rivals}: posterior.extend({name}={chosen.draws}), {chosen.trainings} "
            f"training{'s' * (chosen.trainings != 1)}, would take the error of the mean from {now.mean_error:.2g} to "
            f"{chosen.mean_error:.2g} ± {chosen.mean_error_se:.1g} predictive standard deviations."
        )

    def _of_noise(self) -> str:
        if not self.noise_share > 0.5:
            return ""
        noise = self.subject.noise
        return f"{self.noise_share:.0%} of the predictive variance is {noise}, which no further draw removes."

    def _of_costs(self) -> str:
        dear = [f"{name} {cost}" for name, cost in self.costs.items() if cost > 1]
        return f"Trainings for one further draw, with all draws of the others: {', '.join(dear)}." if dear else ""

    def _largest(self) -> list[Option]:
        most = max((each.budget for each in self.options), default=0)
        return [each for each in self.options if each.budget == most and each.draws]

    def _bought(self, option: Option) -> str:
        if option.variable == "samples":
            return f"{_MORE_SAMPLES} x as many"
        return f"{option.draws} draw{'s' * (option.draws != 1)}" if option.draws else "none"


def _errors(option: Option) -> tuple[float, float, float]:
    return option.mean_error, option.mean_error_se, option.variance_error


def _own(option: Option) -> str:
    is_estimated = not math.isnan(option.own_error)
    return f"{option.own_error_now:.0%} -> {option.own_error:.0%}" if is_estimated else ""


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["one", "two", "three"])
    'one, two and three'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# ---------------------------------------------------------------------- working it out


@one_core()
def advice(subject: Subject, budget: int | Sequence[int] = (1, 5, 10), marginalised: Sequence[str] = ()) -> Advice:
    """Return advice by the variance components of a mixture, and the names of the variables that are marginalised."""
    budgets = _checked(budget)
    outlook = _Outlook.of(subject)
    now = Option("", 0, 0, 0, *outlook.of_mean(), outlook.variance_error())
    axes = subject.mixture.axes
    costs = {axis: math.prod(other.draws for other in axes if other.name != axis) for axis in outlook.draws}
    options = []
    for trainings in budgets:
        for axis, cost in costs.items():
            more = trainings // cost
            errors = (outlook.variance_error({axis: more}), outlook.own_error(axis, 0), outlook.own_error(axis, more))
            mean = outlook.of_mean({axis: more})
            options.append(Option(axis, trainings, more, more * cost, *mean, *errors))
    if outlook.sample_part() > 0:
        mean = outlook.of_mean(times=_MORE_SAMPLES)
        options.append(Option("samples", 0, 0, 0, *mean, outlook.variance_error(times=_MORE_SAMPLES)))
    best = _best(now, options, outlook)
    tied: tuple[str, ...] = ()
    if best in costs:
        chosen = next(each for each in reversed(options) if each.variable == best)
        rivals = [each for each in options if each.budget == chosen.budget and each.draws and each is not chosen]
        tied = tuple(each.variable for each in rivals if outlook.might_do_as_well(each, chosen))
    present = {"F" if part == "M" else part for name in marginalised for part in name.split("+")}
    return Advice(
        now,
        tuple(options),
        best,
        tied,
        outlook.draws,
        costs,
        tuple(axis.name for axis in outlook.data.axes if axis.is_finite),
        tuple(name for name in TRY if name not in present),
        outlook.noise_share(),
        outlook.sample_part(),
        subject,
    )


def _checked(budget: int | Sequence[int]) -> list[int]:
    each = list(budget) if isinstance(budget, Sequence) else [budget]
    if not each or not all(isinstance(one, Integral) and int(one) > 0 for one in each):
        raise ValueError(f"budget is a number of trainings, or several such as (1, 5, 10), not {budget!r}")
    return sorted({int(one) for one in each})


def _best(now: Option, options: Sequence[Option], outlook: _Outlook) -> str | None:
    if now.price < _NEGLIGIBLE:
        return None
    if outlook.sample_part() > 0.5:
        return "samples"
    most = max(each.budget for each in options) if options else 0
    bought = [each for each in options if each.budget == most and each.draws]
    return min(bought, key=lambda each: each.price).variable if bought else None


@dataclass(frozen=True, eq=False)
class _Outlook:
    """A prediction's components over all rows and outputs, and what they say of other numbers of draws."""

    data: Answers
    parts: Components  # name -> (1, 1)
    replicates: Replicates
    is_known: bool  # whether the jackknife says anything
    certain: float | None  # of classes, the variance of their indicators

    @classmethod
    def of(cls, subject: Subject) -> _Outlook:
        data = Answers.of(subject.mixture)
        if [axis.name for axis in data.axes] != [axis.name for axis in subject.mixture.axes]:
            raise ValueError("the weights of these members were set one by one: ask for advice before you weight them")
        parts = _overall(data.components())
        if not parts or not float(sum(map(float, parts.values()))) > 0:
            raise ValueError("no variable is uncertain, so there is no advice: add one to `over` first")
        replicates = data.replicated(lambda answers: _overall(answers.components()))
        is_known = bool(replicates) and not data.unknowable_errors(parts, replicates)
        return cls(data, parts, replicates, is_known, subject.certain)

    @property
    def draws(self) -> dict[str, int]:
        """Draws of the variables that are drawn at random."""
        return {axis.name: axis.draws for axis in self.data.axes if not axis.is_finite}

    def of_mean(self, more: Mapping[str, int] | None = None, times: int = 1) -> tuple[float, float]:
        """The error of the mean with more draws, or times as many samples, and its standard error."""
        square, square_error = self._jackknifed(
            lambda parts: self._mean_variance(parts, more or {}, times) / self._whole(parts)
        )
        error = math.sqrt(max(0.0, square))
        return error, square_error / (2 * error) if error > 0 else math.nan

    def might_do_as_well(self, one: Option, other: Option) -> bool:
        """True if the variances of the mean that two options leave differ by no more than their standard error."""

        def gap(parts: Components) -> Tensor:
            left = [self._mean_variance(parts, {each.variable: each.draws}, 1) for each in (one, other)]
            return (left[0] - left[1]) / self._whole(parts)

        difference, error = self._jackknifed(gap)
        return math.isnan(error) or abs(difference) <= error

    def variance_error(self, more: Mapping[str, int] | None = None, times: int = 1) -> float:
        """Error of all components together, relative to them."""
        if not self.is_known:
            return math.nan
        totals = {axes: {"": _total(parts)} for axes, parts in self.replicates.items()}
        square, by_axes = float(jackknife(totals)[""]), jackknifed(totals)
        for axis, draws in (more or {}).items():
            if (axis,) in by_axes:
                square -= (1 - self._fewer_degrees(axis, draws)) * float(by_axes[axis,][""])
        if ("samples",) in by_axes:
            square /= times
        return self._relative(square, float(_total(self.parts)))

    def own_error(self, axis: str, more: int) -> float:
        """Error of what the variable causes by itself, relative to it; nan where there is none to be seen."""
        part, error = self._jackknifed(lambda parts: parts[axis])
        return self._relative(self._fewer_degrees(axis, more) * error**2, part)

    def noise_share(self) -> float:
        whole = float(self._whole(self.parts))
        if self.certain is not None:
            return max(0.0, 1 - float(_total(self.parts)) / whole)
        return float(self.parts["noise"]) / whole if "noise" in self.parts else 0.0

    def sample_part(self) -> float:
        """Share of the variance of the mean that comes from the number of samples."""
        now, many = (float(self._mean_variance(self.parts, {}, times)) for times in (1, 10**9))
        return min(1.0, (now - max(0.0, many)) / now) if now > 0 else 0.0

    # ------------------------------------------------------------------ inside

    def _whole(self, parts: Components) -> Tensor:
        """The predictive variance."""
        whole = _total(parts) if self.certain is None else torch.full((1, 1), self.certain, dtype=torch.float64)
        return whole.clamp_min(torch.finfo(torch.float64).tiny)

    def _mean_variance(self, parts: Components, more: Mapping[str, int], times: int) -> Tensor:
        """E(n): of the mean, for want of draws and samples."""
        variance = torch.zeros(1, 1, dtype=torch.float64)
        for name, part in parts.items():
            variance = variance + self._carried(name, more, times) * part
        return variance

    def _carried(self, name: str, more: Mapping[str, int], times: int) -> float:
        """Share of a component that the variance of the mean holds."""
        axes = {axis.name: axis for axis in self.data.axes}
        among = {
            axis.name: axis.coincidence if axis.is_finite else 1 / (axis.draws + more.get(axis.name, 0))
            for axis in self.data.axes
        }
        those = name.split(" x ")
        if name == "noise":
            return 0.0
        if all(part in axes for part in those):
            return 0.0 if any(axes[part].is_finite for part in those) else math.prod(among[part] for part in those)
        return self.data.carried.get(name, 0.0) * math.prod(among.values()) / times

    def _jackknifed(self, statistic: _Statistic) -> tuple[float, float]:
        whole = statistic(self.parts)
        if not self.is_known:
            return float(whole), math.nan
        replicates = {axes: {"": statistic(parts)} for axes, parts in self.replicates.items()}
        return float(whole), math.sqrt(float(jackknife(replicates)[""]))

    def _fewer_degrees(self, axis: str, more: int) -> float:
        return (self.draws[axis] - 1) / (self.draws[axis] + more - 1)

    @staticmethod
    def _relative(square: float, to: float) -> float:
        return math.sqrt(square) / to if to > 0 else math.nan


def _overall(parts: Components) -> Components:
    """Sum over outputs, in units of y's own variance, and mean over rows."""
    return {name: part.mean(0).sum().reshape(1, 1) for name, part in parts.items()}


def _total(parts: Components) -> Tensor:
    return torch.stack(list(parts.values())).sum(0)
