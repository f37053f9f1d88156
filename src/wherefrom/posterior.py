"""The framework: draw the choices, train every draw, keep the law of each trajectory, mix the laws.

    p(theta | D)  =  mean over members of p(theta | D, theta0, h, ...),     each member one draw of (theta0, h, order)

Every member keeps its labels, so one set of trainings serves every subset of the variables that it marginalises.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from wherefrom.calibration import By, Calibration, Fit, Method, before, checked, compared, fitted
from wherefrom.laws import Gaussian, Law, delta
from wherefrom.likelihood import Classification, most_likely_noise
from wherefrom.predictive import batch_norm, monte_carlo
from wherefrom.predictive.class_prediction import ClassPrediction
from wherefrom.predictive.prediction import Prediction, Reading
from wherefrom.predictive.sources import CrossedAxis
from wherefrom.predictive.weights import greedy, stacking
from wherefrom.runs import Component, Execution, Fold, family_of, network_of, train_runs
from wherefrom.table import Table
from wherefrom.training.checkpoints import Checkpoints
from wherefrom.training.data import Rows, Scaler, Schema, as_rows
from wherefrom.training.engines import Choice
from wherefrom.training.network import Network
from wherefrom.training.point import Training
from wherefrom.training.progress import Show
from wherefrom.training.workers import one_core
from wherefrom.variables import Axis, Design, Dropout, Families, Run

if TYPE_CHECKING:
    from wherefrom.predictive.advice import Advice
    from wherefrom.predictive.one_shot.check import OneShotCheck
    from wherefrom.predictive.one_shot.member import Covariance

_NOISE_SAMPLES = 100  # samples a member when the noise is fitted on held-out rows
_ADVISED_ROWS = 300
_TOLD_OVERLAP, _REFUSED_OVERLAP = 0.1, 0.5  # parts of some rows that were trained on
_COARSE = 10  # where trained rows are so often the same, others hold them all by chance


class DivergedError(RuntimeError):
    """Some members' losses stopped being numbers. `posterior` holds the others (for folds, a list of them)."""

    def __init__(self, message: str, posterior: Any) -> None:
        super().__init__(message)
        self.posterior = posterior


@dataclass(frozen=True, eq=False)
class _Group:
    """Members with the same network, which predict together."""

    network: Network
    places: tuple[int, ...]  # in the mixture
    members: tuple[monte_carlo.SampledMember, ...]


@dataclass(frozen=True, eq=False)
class Posterior:
    """A labelled mixture of laws over theta. Made by `wf.marginalise`, or loaded from a file by `wf.load`."""

    training: Training
    design: Design
    seed: int
    networks: dict[str, Network]  # by family; without families there is one, under no name
    scaler: Scaler
    schema: Schema
    dtype: torch.dtype
    device: torch.device
    mixture: tuple[Component, ...] = ()
    rows: Rows | None = None  # what it was trained on; not stored in files
    held_out: Rows | None = None
    fitted_noise: Tensor | None = None  # the variance of each output's noise, in units of y's own variance
    diverged: tuple[str, ...] = ()
    is_part: bool = False  # of another posterior's members or variables
    own_weights: tuple[float, ...] | None = None  # of the members, where they are not those of the design
    dropping: Dropout | None = None  # with which it was trained, also where a part no longer marginalises it
    autocast: torch.dtype | None = None  # in which its forward passes multiplied while training
    calibration: tuple[Calibration, ...] = ()  # of these very members and weights, in the order of their fitting
    statistics: batch_norm.Statistics = field(default_factory=batch_norm.Statistics)  # of samples, shared with parts

    @classmethod
    def from_members(cls, members: Sequence[Any], *, model: Any, **about: Any) -> Posterior:
        """A posterior of networks that were trained elsewhere: recorders, networks, state dicts, or files of them.

        `model` is their factory (a dictionary of factories for families), `x` some rows as will be predicted on.
        `labels` name every member's draws, such as {"theta0": 0, "h": 1}, fully crossed; without them, members are
        draws of theta0. t is marginalised if members are recorders with a law, F with `dropout=wf.Dropout()`. The
        networks saw the data as it was, or scaled by `scaler=dict(x_mean=..., x_std=..., y_mean=..., y_std=...)`, or by
        the columns of `standardise_by=(x, y)`. `held_out=(x, y)` are rows to fit noise on, `data=(x, y)` those trained
        on, which batch normalisation needs. Also: `likelihood`, `y` (some rows, for its names), `finite` (labels whose
        draws are all there are), `prefix` (of the names in files), `seed`, `dtype`, `device`.
        """
        from wherefrom.own_loop.members import from_members

        return from_members(members, model=model, **about)

    # ------------------------------------------------------------------ the mixture

    def __len__(self) -> int:
        return len(self.mixture)

    def __repr__(self) -> str:
        over = ", ".join(self.design.names) or "nothing"
        lost = f"; {len(self.diverged)} diverged" if self.diverged else ""
        weighted = "weighted " if self._is_weighted else ""
        return f"Posterior({len(self)} {weighted}member{'s' * (len(self) != 1)}, marginalises {over}{lost})"

    def members(self) -> Table:
        """Every member's draws, settings, first and last training loss, processor seconds (its share), and engine."""
        axes = [axis.name for axis in self.design.axes]
        drawn = dict.fromkeys(s for c in self.mixture for s in c.run.choices if s not in ("init", "share"))
        if self.design.algorithms is not None:
            drawn |= dict.fromkeys(
                ("algorithm", *(name for a in self.design.algorithms.algorithms for name in a.random))
            )
        rows = []
        for component, weight in zip(self.mixture, self.weights, strict=True):
            losses = component.trained.losses
            rows.append(
                (
                    *(component.run.labels[axis] for axis in axes),
                    *(_shown(component, setting) for setting in drawn),
                    *([weight] if self._is_weighted else []),
                    losses[0],
                    losses[-1],
                    component.trained.seconds,
                    component.trained.engine,
                )
            )
        weighted = ("weight",) if self._is_weighted else ()
        return Table((*axes, *drawn, *weighted, "first loss", "last loss", "cpu seconds", "engine"), rows)

    @property
    def weights(self) -> tuple[float, ...]:
        """What each member weighs in the mixture: by the families, algorithms or points that it is of, or as `weighted`
        has set it. They add up to one; where members diverged, the others keep their proportions."""
        if self.own_weights is not None:
            return self.own_weights
        each = {axis.name: self._axis_weights(axis) for axis in self.design.axes if axis.weights is not None}
        found = [
            math.prod(weights[component.run.labels[name]] for name, weights in each.items())
            for component in self.mixture
        ]
        total = math.fsum(found)
        return tuple(weight / total for weight in found)

    def _axis_weights(self, axis: Axis) -> dict[int, float]:
        """The probability of each draw of an axis, among those that are there."""
        numbers = self.draws(axis.name)
        own = {number: 1.0 if axis.weights is None else axis.weights[number] for number in numbers}
        total = math.fsum(own.values())
        return {number: weight / total for number, weight in own.items()}

    @property
    def _is_weighted(self) -> bool:
        return self.own_weights is not None or any(axis.weights is not None for axis in self.design.axes)

    def weighted(
        self,
        by: Literal["stacking", "greedy"] | Sequence[float],
        data: Any = None,
        *,
        samples: int = 100,
        size: int = 50,
        distinct: int | None = None,
    ) -> Posterior:
        """The same members with other weights, by rows that were not trained on, or as they are given.

        Without `data`, they are the rows that were held out to fit the noise, where there are any.
        "stacking" finds the weights that make these rows most likely, "greedy" picks members one after the other, with
        replacement, up to `size` times and of `distinct` different ones at most, for as long as it helps. Members that
        weigh nothing are left out. The members are weighed as they are without calibration, which is then fitted anew.
        """
        if isinstance(by, str):
            if by not in ("stacking", "greedy"):
                raise ValueError(f'members are weighted by "stacking", "greedy" or a list of weights, not {by!r}')
            rows = self._not_trained_on(data, f'weighted("{by}", (x, y))')
            plain = self.uncalibrated.predict(rows.x, samples)
            densities = plain.member_log_densities(rows.truth, by_output=True).flatten(1)
            found = stacking(densities) if by == "stacking" else greedy(densities, size, distinct=distinct)
            given = found.tolist()
        else:
            given = [float(weight) for weight in by]
        if len(given) != len(self) or min(given) < 0 or not math.isfinite(total := math.fsum(given)) or total <= 0:
            raise ValueError(f"give one weight for each of the {len(self)} members, none below zero, not {given}")
        changed = replace(
            self,
            mixture=tuple(component for component, weight in zip(self.mixture, given, strict=True) if weight),
            own_weights=tuple(weight / total for weight in given if weight),
            is_part=True,
        )
        return _fitted_anew(replace(changed, fitted_noise=None))

    @property
    def engines(self) -> tuple[str, ...]:
        """What trained the members: torch, the native kernel, or each some of them."""
        return tuple(sorted({component.trained.engine for component in self.mixture}))

    def draws(self, name: str) -> list[int]:
        """The draws of a variable that are there, by number: all of them, unless this is a part or members diverged."""
        axis = self.design.axis(name).name
        return sorted({component.run.labels[axis] for component in self.mixture})

    def laws(self) -> list[Law]:
        """Each member's law over theta: of its trajectory where t is marginalised, else its last iterate."""
        return [self._law(component) for component in self.mixture]

    def sample(self, n: int, seed: int | None = None) -> list[dict[str, Tensor]]:
        """n draws of theta from the mixture, as dictionaries of tensors, members taking turns by their weights."""
        if n < 1:
            raise ValueError(f"give at least one sample to draw, not {n}")
        seed = self.seed if seed is None else seed
        turns = np.array(self._turns(n))
        drawn: dict[int, dict[str, Tensor]] = {}
        for group in self._groups():
            network, refresh = group.network, self._refresh(group)
            for place, member in zip(group.places, group.members, strict=True):
                thetas = monte_carlo.Thetas(member, seed)
                for number, k in enumerate(np.flatnonzero(turns == place).tolist()):
                    theta = thetas.get(np.array([number]))
                    theta = refresh(network.private("sample"), theta) if refresh else theta
                    drawn[k] = network.layout.views(theta[0])
        return [drawn[k] for k in range(n)]

    def _turns(self, n: int) -> list[int]:
        """Whose turn each of n samples is: the member's that is furthest behind its weight."""
        if not self._is_weighted:
            return [k % len(self) for k in range(n)]
        weights, given = np.array(self.weights), np.zeros(len(self))
        found = []
        for k in range(n):
            found.append(int(np.argmax(weights * (k + 1) - given)))
            given[found[-1]] += 1
        return found

    # ------------------------------------------------------------------ prediction

    def predict(
        self,
        x: Any,
        samples: int = 100,
        seed: int | None = None,
        *,
        method: Literal["monte_carlo", "one_shot", "auto"] = "monte_carlo",
        tolerance: float = 0.05,
    ) -> Any:
        """The predictive distribution at x by Monte Carlo, with so many samples of each member.

        It is a `Prediction` of quantities, or a `ClassPrediction` of classes.

        The same call gives the same numbers; another `seed` gives other samples. `method="one_shot"` propagates moments
        instead, for which `samples` and `seed` mean nothing; `"auto"` does so where `check_one_shot` finds the relative
        errors of mean and standard deviation within the tolerance, and samples otherwise; the check is made once, on
        the first rows that are asked for, and remembered. `prediction.method` says which it was. If the posterior is
        `calibrated`, so is the prediction.
        """
        if method not in ("monte_carlo", "one_shot", "auto"):
            raise ValueError(f'method must be "monte_carlo", "one_shot" or "auto", not {method!r}')
        if method == "one_shot" or (method == "auto" and self._one_shot_is_good(x, tolerance)):
            return self.one_shot(x)
        inputs = self._inputs(x)
        plan = monte_carlo.Plan.of(
            samples,
            vary_theta=self.design.iterations is not None,
            vary_mask=self.design.dropout is not None,
        )
        seed = self.seed if seed is None else seed
        answers = self._assembled(
            {
                group: monte_carlo.outputs(group.network, group.members, plan, inputs, seed, self._refresh(group))
                for group in self._groups()
            }
        )
        likelihood, noise = self.training.likelihood, None
        if isinstance(likelihood, Classification):
            with one_core():
                return self._corrected(self._class_prediction(torch.log_softmax(answers, -1), plan))
        if likelihood.noise == "predicted":
            answers, log_variance = likelihood.split(answers)
            noise = likelihood.predicted_variance(log_variance)
        return self._corrected(self._prediction(answers, noise, plan))

    def one_shot(
        self, x: Any, *, x_std: Any = None, covariance: Covariance = "low_rank", rank: int | None = None
    ) -> Any:
        """The predictive distribution at x by its moments: one pass for each member, and no sampling.

        `x_std` is the standard deviation of the inputs' own noise, in x's units: a number, one for each column, or
        one for each entry. `covariance` says what is kept of theta's: "diagonal" (the paper's; the fastest, and far too
        wide or too narrow where weights move together), "low_rank" (also SWAG's shared deviations, to first order), or
        "full" (also between the units of a layer, for networks of small layers; the one to take for dropout in more
        than one layer, and slow). With `rank`, "low_rank" keeps only so many of the shared deviations, those that move
        the answers most: faster, and too sure by what the others would add. `check_one_shot` measures all of them on
        your own rows.
        """
        from wherefrom.predictive.one_shot.propagate import propagate

        inputs, x_variance, likelihood = self._inputs(x), self._input_variance(x, x_std), self.training.likelihood
        found = {
            group: propagate(
                group.network,
                group.members,
                inputs,
                vary_theta=self.design.iterations is not None,
                vary_mask=self.design.dropout is not None,
                x_variance=x_variance,
                covariance=covariance,
                rank=rank,
                probes=None if rank is None else self._probes(),
                refresh=self._refresh(group),
                classes=isinstance(likelihood, Classification),
            )
            for group in self._groups()
        }
        mean = self._assembled({group: part.mean for group, part in found.items()})
        spread = self._assembled({group: part.variance for group, part in found.items()})
        noise, targets = None, self.schema.targets
        if not isinstance(likelihood, Classification) and likelihood.noise == "predicted":
            (mean, log_mean), (spread, log_spread) = likelihood.split(mean), likelihood.split(spread)
            # The mean of a log-normal variable.
            noise = likelihood.predicted_variance(log_mean.double() + 0.5 * log_spread.double())

        def within() -> dict[str, Tensor]:
            parts = {group: part.within() for group, part in found.items()}
            names = next(iter(parts.values()))
            named = {name: self._assembled({group: part[name] for group, part in parts.items()}) for name in names}
            return {self._own_name(name): part[..., :targets] for name, part in named.items()}

        plan = monte_carlo.Plan(mean.shape[1], vary_theta=False, vary_mask=False)
        known: dict[str, Any] = {"spread": spread, "within": within, "covariance": covariance}
        if isinstance(likelihood, Classification):
            logs = mean.clamp_min(torch.finfo(mean.dtype).tiny).log()
            return self._corrected(replace(self._class_prediction(logs, plan), **known))
        return self._corrected(replace(self._prediction(mean, noise, plan), **known))

    def export_onnx(self, path: str | Path, *, covariance: Covariance = "diagonal") -> None:
        """Write one-shot prediction as an ONNX file, for programs without Python; needs `wherefrom[onnx]`.

        It takes `x` (single precision, any number of rows, in x's own units) and returns `mean` and `variance` as
        `one_shot` with this covariance does: of all members together, noise included, in y's units. "diagonal" can be
        written for every network that one-shot prediction knows, the others for plain MLPs.
        """
        from wherefrom.predictive.one_shot.export import export

        if self.calibration:
            raise ValueError("a file has no place for a calibration: write posterior.uncalibrated.export_onnx(path)")
        export(self, path, covariance)

    def check_one_shot(
        self,
        x: Any,
        *,
        samples: int = 1000,
        rows: int = 200,
        covariance: Covariance = "low_rank",
        rank: int | None = None,
        seed: int | None = None,
    ) -> OneShotCheck:
        """How far one-shot is from Monte Carlo on these rows, or so many of them: errors of mean and deviation.

        What is compared is the networks' answers, without noise, which both have in common.
        """
        from wherefrom.predictive.one_shot.check import compare

        inputs = self.schema.inputs(x)
        some = inputs[:: -(-len(inputs) // rows)]
        return compare(self.one_shot(some, covariance=covariance, rank=rank), self.predict(some, samples, seed))

    def _one_shot_is_good(self, x: Any, tolerance: float) -> bool:
        """By a check on the first rows that were asked for, which is remembered."""
        from wherefrom.predictive.one_shot.check import remembered

        if not self.design.sampled:  # nothing is uncertain within members, and a single sample is exact
            return False
        check = remembered(self, lambda: self.check_one_shot(x))
        return check is not None and check.is_within(tolerance)

    def _prediction(self, answers: Tensor, predicted_noise: Tensor | None, plan: monte_carlo.Plan) -> Prediction:
        """Answers with whatever noise the likelihood has, in the user's units."""
        likelihood, noise = self.training.likelihood, predicted_noise
        if likelihood.noise == "fit":
            if self.fitted_noise is None:
                raise ValueError(
                    "the noise of these members is not fitted, and there are no held-out rows at hand: "
                    "give rows that were not trained on to fit_noise((x, y))"
                )
            noise = self.fitted_noise
        elif isinstance(likelihood.noise, Real):
            noise = (likelihood.noise / self.scaler.y_std).square()
        return Prediction(
            answers,
            noise,
            self.scaler.y_mean,
            self.scaler.y_std,
            self.schema.y_is_flat,
            plan,
            tuple(self._crossed(axis) for axis in self.design.axes),
            self._missing,
            self.schema.y_names,
            weights=self._explicit_weights,
        )

    def _class_prediction(self, log_probabilities: Tensor, plan: monte_carlo.Plan) -> ClassPrediction:
        return ClassPrediction(
            log_probabilities,
            self.schema.classes,
            plan,
            tuple(self._crossed(axis) for axis in self.design.axes),
            self._missing,
            weights=self._explicit_weights,
        )

    @property
    def _missing(self) -> str | None:
        """Why members are missing from the design's product, if any are."""
        return f"these diverged: {'; '.join(self.diverged)}" if self.diverged else None

    @property
    def _explicit_weights(self) -> Tensor | None:
        """Weights that the axes do not tell: those that were set, or what is left of theirs without some members."""
        is_needed = self.own_weights is not None or (self._is_weighted and bool(self.diverged))
        return torch.tensor(self.weights, dtype=torch.float64) if is_needed else None

    def _crossed(self, axis: Axis) -> CrossedAxis:
        is_told = axis.weights is not None and self._explicit_weights is None
        weights = tuple(self._axis_weights(axis).values()) if is_told else None
        return CrossedAxis(axis.name, axis.draws, axis.is_finite, weights)

    def fit_noise(self, data: Any, samples: int = 100) -> Posterior:
        """The same posterior with the noise estimated on rows that were not trained on, for `noise="fit"`.

        One variance for each output: the one under which the mixture makes these rows most likely. A calibration, which
        was of another noise, is fitted anew.
        """
        if self.training.likelihood.noise != "fit":
            raise ValueError(f'{self.training.likelihood} has no noise to fit; use Regression(noise="fit")')
        rows = self._as_rows(data)
        if rows.y.shape[1] != self.schema.targets:
            raise ValueError(f"y has {rows.y.shape[1]} columns, but the model was trained on {self.schema.targets}")
        known = replace(self, fitted_noise=torch.zeros(rows.y.shape[1], dtype=torch.float64), calibration=())
        answers = known.predict(rows.x, samples).answers.double()
        squares = (answers.flatten(0, 1) - self.scaler.y(rows.y, torch.float64)).square()
        weights = torch.tensor(self.weights, dtype=torch.float64).repeat_interleave(answers.shape[1])
        with one_core():
            noise = most_likely_noise(squares, weights if self._is_weighted else None, rows.weights)
        return _calibrated_anew(replace(self, fitted_noise=noise))

    # ------------------------------------------------------------------ calibration

    def calibrated(
        self,
        by: By,
        data: Any = None,
        samples: int = 100,
        *,
        method: Method = "monte_carlo",
        reading: Reading = "gaussian",
    ) -> Posterior:
        """The same posterior, corrected by rows that were not trained on: the correction is kept, saved and applied.

        By "variance", the variance of each output is multiplied by the factor under which these rows are most likely
        (as the Gaussian, or as the mixture: `reading`); by "temperature", the logits of classes are divided by the
        number under which they are; by "conformal", `prediction.interval(level)` and `prediction.sets(level)` hold the
        truth as often as they say. One can follow another, "conformal" as the last: see docs/calibration.md.

        Without `data`, the rows are those that were held out to fit the noise, which then serve twice. Rows count by
        their weights, if they have any; not so for "conformal", whose promise is of rows that count alike. Fit it in
        the way in which you will predict: by so many `samples`, or by `method="one_shot"`.

        A calibration is of these members. Whatever changes them (`marginalising`, `select`, `weighted`, `extend`,
        `fit_noise`) fits it anew, on the same rows; where those are no longer at hand, as after `wf.load`, it is
        dropped with a warning.
        """
        by = checked(by, isinstance(self.training.likelihood, Classification))
        earlier = before(by, self.calibration)
        rows = self._not_trained_on(data, f'calibrated("{by}", (x, y))')
        base = replace(self, calibration=earlier)
        fit = Fit(len(rows), samples, method, reading, on_held_out=data is None, data=rows)
        found = fitted(by, base.predict(rows.x, samples, method=method), rows.truth, fit, rows.weights)
        return replace(base, calibration=(*earlier, found))

    @property
    def uncalibrated(self) -> Posterior:
        """The same posterior without its calibration."""
        return replace(self, calibration=()) if self.calibration else self

    def check_calibration(
        self, data: Any, samples: int = 100, *, levels: Sequence[float] = (0.5, 0.9), method: Method = "monte_carlo"
    ) -> Table:
        """What the calibration did to the scores of these rows: before and after.

        Rows that it was fitted on flatter it; give others.
        """
        rows = self._not_trained_on(data, "check_calibration((x, y))")
        plain, own = (each.predict(rows.x, samples, method=method) for each in (self.uncalibrated, self))
        return compared(plain, own, rows.truth, levels)

    def advise(self, x: Any = None, budget: int | Sequence[int] = (1, 5, 10), samples: int = 100) -> Advice:
        """What to marginalise next: what so many further trainings, spent on one variable, would do to the errors.

        To the error of the predictive mean, and to that of the estimated variances, at the rows x: without them, at
        some of the training rows. See docs/advice.md.
        """
        from wherefrom.predictive.advice import advice

        if x is None:
            if self.rows is None:
                raise ValueError("a loaded posterior has no data: say for which rows advice is wanted, as advise(x)")
            x = self.rows.x[:: -(-len(self.rows) // _ADVISED_ROWS)]
        return advice(self.predict(x, samples), budget, self.design.names)

    def _corrected(self, prediction: Any) -> Any:
        for each in self.calibration:
            prediction = each.applied(prediction)
        return prediction

    def _not_trained_on(self, data: Any, call: str) -> Rows:
        """The rows that are given, or held out: refused if they are those that were trained on."""
        if data is None:
            if self.held_out is None:
                raise ValueError(f"{call} needs rows that were not trained on")
            return self.held_out
        rows = self._as_rows(data).that_count
        overlap = self._overlap(rows)
        if overlap == 1:
            raise ValueError("these are the rows that the members were trained on: give others")
        if overlap >= _REFUSED_OVERLAP:
            raise ValueError(f"{overlap:.0%} of these rows were trained on: give others")
        if overlap >= _TOLD_OVERLAP:
            warnings.warn(f"{overlap:.0%} of these rows were trained on, which flatters the members", stacklevel=3)
        return rows

    def _overlap(self, rows: Rows) -> float:
        """The part of these rows that was trained on, as far as is known: all, if they hold all that was."""
        if any(self._is_training_data(each) for each in (rows, replace(rows, weights=None))):
            return 1.0
        return 0.0 if self.rows is None else _overlap(self.rows, rows)

    def _is_training_data(self, rows: Rows) -> bool:
        """Whether a digest knows them: as what was trained on, or with what was held out of it to fit the noise."""
        if not self.schema.digest:
            return False
        if rows.schema.digest == self.schema.digest:
            return True
        try:
            fold = Fold.of(self.training, rows, self.seed)
        except ValueError:  # too few to hold any out
            return False
        return fold.rows.schema.digest == self.schema.digest

    # ------------------------------------------------------------------ parts and more of it

    def marginalising(self, *names: str) -> Posterior:
        """The posterior that marginalises only these of its variables, from the same trainings: `marginalising("t")`.

        A variable that is left out stands at one value: what is drawn before training at the first draw that is there
        (D, too, at the first draw of the rows), t at the last iterate, dropout at the whole network.
        """
        masks = self.design.of_masks
        sampled = {"t": self.design.iterations, masks: self.design.dropout}
        if any(not isinstance(name, str) for name in names):
            raise TypeError('name the variables one by one, as marginalising("theta0", "t")')
        for name in names:
            if sampled.get(name) is None:
                self.design.axis(name)  # raises if there is none of that name
        kept = {self.design.axis(name).name for name in names if name not in sampled}
        axes = tuple(axis for axis in self.design.axes if axis.name in kept)
        first = self.mixture[0].run.labels
        fixed = {axis.name: [first[axis.name]] for axis in self.design.axes if axis.name not in kept}
        design = Design(
            axes,
            self.design.iterations if "t" in names else None,
            self.design.dropout if masks in names else None,
        )
        return self._part(fixed, design)

    def select(self, **draws: Sequence[int | str] | int | str) -> Posterior:
        """The members with these draws only: `posterior.select(theta0=[0, 1, 2])`. One draw fixes the variable.

        Families go by their names, too: `posterior.select(F="wide")`.
        """
        chosen: dict[str, list[int]] = {}
        for name, numbers in draws.items():
            axis = self.design.axis(name)
            if axis.name in chosen:
                raise ValueError(f"{axis.name} is drawn jointly: select it by one of its names")
            chosen[axis.name] = self._numbers(axis, numbers)
            for number in chosen[axis.name]:
                if number not in self.draws(axis.name):
                    there = ", ".join(map(str, self.draws(axis.name)))
                    raise ValueError(f"{axis.name} has the draws {there}; there is no {number}")
            if len(set(chosen[axis.name])) < len(chosen[axis.name]) or not chosen[axis.name]:
                raise ValueError(f"{name}={numbers}: name each draw once, and at least one")
        axes = tuple(
            Axis(a.name, a.variables, len(chosen.get(a.name, range(a.draws))))
            for a in self.design.axes
            if len(chosen.get(a.name, range(a.draws))) > 1
        )
        return self._part(chosen, replace(self.design, axes=axes))

    def _numbers(self, axis: Axis, draws: Any) -> list[int]:
        """Draws by their numbers; families also by their names."""
        each: list[Any] = [draws] if isinstance(draws, Integral | str) else list(draws)
        names = list(self.design.families.factories) if self.design.families and axis.is_finite else []
        return [names.index(draw) if draw in names else draw for draw in each]

    def extend(
        self,
        data: Any = None,
        *,
        on_divergence: Divergence = "raise",
        engine: Choice | None = None,
        workers: int | None = None,
        checkpoints: str | Path | Checkpoints | None = None,
        progress: Show = None,
        **more: int,
    ) -> Posterior:
        """More draws of a variable: `posterior.extend(theta0=5)` equals having asked for five more at first.

        The new members are trained by the same engine as the others. A posterior that was loaded from a file needs its
        training data again.
        """
        if len(more) != 1:
            raise ValueError("name one variable and how many further draws of it to train, such as theta0=5")
        if self.own_weights is not None:
            raise ValueError("weights were set for these members alone: extend the posterior first, then weigh it")
        if self.training.is_elsewhere:
            raise ValueError(
                "these members were trained elsewhere: train more of them there, and make a posterior of all by "
                "wf.Posterior.from_members"
            )
        if self.is_part:
            raise ValueError("a part of a posterior cannot be extended: extend the whole, then take the part")
        ((name, count),) = more.items()
        if name in self.design.sampled:
            raise ValueError(f"{name} is sampled, not trained: predict with more samples instead")
        design = self.design.extended(name, count)
        fold = self._fold(data)
        present = {tuple(component.run.labels.values()): component for component in self.mixture}
        runs = design.runs(self.seed)
        new_runs = [run for run in runs if tuple(run.labels.values()) not in present]
        same = cast(Choice, self.engines[0] if len(self.engines) == 1 else "auto")
        kept = Checkpoints.of(checkpoints)
        how = Execution(self.dtype, self.device, engine or same, workers, progress, self.autocast, kept)
        (new,) = train_runs(self.training, self.networks, design, [(fold, new_runs)], how)
        components = present | {tuple(component.run.labels.values()): component for component in new}
        grown = replace(self, design=design, rows=fold.rows, held_out=fold.held_out)
        return finished([(grown, [components[tuple(run.labels.values())] for run in runs])], on_divergence)[0]

    def with_data(self, data: Any) -> Posterior:
        """The same posterior with its training data at hand again, after `wf.load`."""
        fold = Fold.of(self.training, self._as_rows(data), self.seed)
        self.schema.inputs(fold.rows.x)
        # Of members that were trained elsewhere, the data may never have been seen.
        if self.schema.digest and fold.rows.schema.digest != self.schema.digest:
            raise ValueError("this is not the data that the posterior was trained on")
        return replace(self, rows=fold.rows, held_out=fold.held_out)

    def report(self, path: str | Path, data: Any, **about: Any) -> Path:
        """Write a page for the browser about these labelled rows, which were not trained on, and return where it is.

        It holds what the predictions are worth, where their doubt comes from, overall and row by row, and what to do
        next, in one file that needs no network. `about` may name its `title`, the `columns` of x, the `rows`, the
        `unit` of y, `notes` to show, and the number of `samples`.
        """
        from wherefrom.report.page import report

        return report(self, data, path, **about)

    def save(self, folder: str | Path) -> None:
        """Write the posterior into a folder: tensors as safetensors, the rest as JSON. No data, no code."""
        from wherefrom.store import save

        save(self, Path(folder))

    # ------------------------------------------------------------------ inside

    def _law(self, component: Component) -> Law:
        if self.design.iterations is not None and component.trained.law is not None:
            return component.trained.law
        varying = self.networks[family_of(component.run)].layout.varying_size
        return delta(component.trained.last[:varying])

    @property
    def network(self) -> Network:
        """The only one, where there are no families."""
        if len(self.networks) > 1:
            raise ValueError(
                f"this posterior has {len(self.networks)} families of networks, {', '.join(self.networks)}: "
                "take one of them, as select(F=0)"
            )
        return next(iter(self.networks.values()))

    def _groups(self) -> list[_Group]:
        """The members of each network, which predict together."""
        found: dict[Network, list[int]] = {}
        for place, component in enumerate(self.mixture):
            found.setdefault(network_of(self.networks, component.run), []).append(place)
        return [_Group(network, tuple(places), self._sampled(network, places)) for network, places in found.items()]

    def _sampled(self, network: Network, places: Sequence[int]) -> tuple[monte_carlo.SampledMember, ...]:
        fixed = network.layout.varying_size
        chosen = [self.mixture[place] for place in places]
        return tuple(monte_carlo.SampledMember(self._law(c), c.trained.last[fixed:], c.run.name) for c in chosen)

    @staticmethod
    def _assembled(parts: Mapping[_Group, Tensor]) -> Tensor:
        """What each group found for its members, in the order of the mixture.  # (members, ...)"""
        if len(parts) == 1:
            return next(iter(parts.values()))
        order = torch.tensor([place for group in parts for place in group.places])
        return torch.cat(list(parts.values()))[order.argsort()]

    def _own_name(self, name: str) -> str:
        """Components within members, as dropout is called in this design."""
        return " x ".join(self.design.of_masks if part == "F" else part for part in name.split(" x "))

    def _refresh(self, group: _Group) -> Callable[[Network, Tensor], Tensor] | None:
        """How to bring the running statistics of batch normalisation in line with sampled weights, if need be."""
        if not group.network.momenta or not any(isinstance(member.law, Gaussian) for member in group.members):
            return None  # the trajectory's own points carry their own statistics
        if self.rows is None:
            raise ValueError(
                "batch normalisation needs training rows for every sample of the weights, and a run holds no data: "
                "give it again, as wf.load(folder, model, data=(x, y)) or from_members(..., data=(x, y))"
            )
        augment, known = self.training.augment, self.statistics
        rows = batch_norm.TrainingRows(self.rows.x, self.scaler, self.dtype, self.device, augment, self.seed)
        number = known.number(self.rows, self.scaler, augment, group.network)
        return lambda network, theta: batch_norm.refresh(network, theta, rows, known, number)

    def _as_rows(self, data: Any) -> Rows:
        """Data like that of the training."""
        return as_rows(data, self.training.likelihood, self.schema.classes)

    def _inputs(self, x: Any) -> Tensor:
        return self.scaler.x(self.schema.inputs(x), self.dtype).to(self.device)

    def _probes(self) -> Tensor | None:
        """Rows by which the shared deviations of theta are chosen; none where x is standardised, and normal ones do."""
        if self.training.standardise:
            return None
        if self.rows is None:
            raise ValueError(
                "rank needs training rows where x is not standardised: give them to wf.load(..., data=(x, y))"
            )
        step = -(-len(self.rows) // 128)
        return self._inputs(self.rows.x[::step])

    def _input_variance(self, x: Any, x_std: Any) -> Tensor | None:
        """The inputs' own noise as a variance, standardised as x is."""
        if x_std is None:
            return None
        rows = self.schema.inputs(x)
        if not rows.is_floating_point():
            raise ValueError("x_std is for measurements; whole numbers are taken as indices")
        std = torch.as_tensor(np.asarray(x_std), dtype=torch.float64)
        if std.shape not in ((), rows.shape[1:], rows.shape):
            raise ValueError(
                f"x_std has shape {tuple(std.shape)}, but x has {tuple(rows.shape)}: give one number, one for each "
                "column, or one for each entry"
            )
        std = std.expand(rows.shape)
        if not bool((std >= 0).all()):
            raise ValueError("x_std must not be negative, nor missing")
        return (std / self.scaler.x_std).square().to(self.dtype).to(self.device)

    def _part(self, draws: dict[str, list[int]], design: Design) -> Posterior:
        names = [axis.name for axis in design.axes]
        places = [
            place
            for place, component in enumerate(self.mixture)
            if all(component.run.labels[axis] in numbers for axis, numbers in draws.items())
        ]
        runs = [self.mixture[place].run for place in places]
        chosen = tuple(
            replace(self.mixture[place], run=replace(run, labels={name: run.labels[name] for name in names}))
            for place, run in zip(places, runs, strict=True)
        )
        if not chosen:
            lost = f"these diverged: {'; '.join(self.diverged)}" if self.diverged else "its members weigh nothing"
            raise ValueError(f"no member is left of that part; {lost}")
        missing = self.diverged if len(chosen) < design.size else ()
        part = replace(self, design=design, mixture=chosen, diverged=missing, fitted_noise=None, is_part=True)
        if self.own_weights is not None:
            own = [self.own_weights[place] for place in places]
            part = replace(part, own_weights=tuple(weight / math.fsum(own) for weight in own))
        if self.design.families and not design.families:
            part = part._as_one_family(self.design.families)
        return _fitted_anew(part)

    def _as_one_family(self, families: Families) -> Posterior:
        """The same where all members are of one family, which then is simply the model."""
        (family,) = {family_of(component.run) for component in self.mixture}

        def nameless(run: Run) -> Run:
            return replace(run, choices={name: value for name, value in run.choices.items() if name != "family"})

        return replace(
            self,
            training=replace(self.training, model=families.factories[family]),
            networks={"": self.networks[family]},
            mixture=tuple(replace(component, run=nameless(component.run)) for component in self.mixture),
        )

    def _fold(self, data: Any) -> Fold:
        """The rows to train further members on: those it has, or the same ones given again."""
        if data is None:
            if self.rows is None:
                raise ValueError("a loaded posterior has no data: give it again, as extend((x, y), theta0=5)")
            return Fold(self.rows, self.held_out, self.scaler, self.seed)
        found = self.with_data(data)
        assert found.rows is not None
        return Fold(found.rows, found.held_out, self.scaler, self.seed)


Divergence = Literal["raise", "keep"]


def finished(work: list[tuple[Posterior, list[Component]]], on_divergence: Divergence) -> list[Posterior]:
    """Posteriors with their members, without those that diverged, and with their noise."""
    finished: list[Posterior] = []
    told: list[str] = []
    for posterior, components in work:
        lost = [c for c in components if c.trained.diverged is not None]
        names = tuple(f"{c.run} (epoch {c.trained.diverged}, {c.algorithm})" for c in lost)
        kept = tuple(c for c in components if c.trained.diverged is None)
        told += names
        _warn_of_hopeless(posterior, kept)
        if kept:
            finished.append(_fitted_anew(replace(posterior, mixture=kept, diverged=names)))
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


def _shown(component: Component, setting: str) -> Any:
    """What was drawn for a member, as its table shows it."""
    algorithm, drawn = component.algorithm, component.run.choices.get(setting, "")
    if setting == "algorithm":
        return algorithm.name
    if setting in ("family", "dropout", "label_smoothing"):
        return drawn
    value = algorithm.get(setting)
    if setting == "betas" and value is None:
        value = algorithm.get("beta1"), algorithm.get("beta2")
    return "" if value is None else value


def _warn_of_hopeless(posterior: Posterior, components: Sequence[Component]) -> None:
    """Finite losses can be hopeless too: worse by far than those of an answer that is the same for every row."""
    likelihood = posterior.training.likelihood
    if not posterior.training.standardise and not isinstance(likelihood, Classification):
        return
    worse = [c for c in components if c.trained.losses[-1] > likelihood.hopeless_loss(posterior.schema.targets)]
    if worse:
        one = worse[0]
        warnings.warn(
            f"{len(worse)} of {len(components)} members end with a training loss far above that of one answer for all "
            f"rows, such as {one.run} with {one.trained.losses[-1]:.3g} ({one.algorithm}): they have learnt nothing",
            stacklevel=4,
        )


def _fitted_anew(posterior: Posterior) -> Posterior:
    """With the noise and the calibration of its own members, where there are rows to fit them on."""
    if posterior.training.likelihood.noise == "fit" and posterior.held_out is not None:
        return posterior.fit_noise(posterior.held_out, _NOISE_SAMPLES)
    return _calibrated_anew(posterior)


def _calibrated_anew(posterior: Posterior) -> Posterior:
    """What was fitted for other members is fitted again for these, or dropped."""
    found = posterior.uncalibrated
    for each in posterior.calibration:
        fit = each.fit
        own = fit.on_held_out and posterior.held_out is not None
        why = "the rows that it was fitted on are not at hand"
        if own or fit.data is not None:
            try:
                found = found.calibrated(
                    each.by, None if own else fit.data, fit.samples, method=fit.method, reading=fit.reading
                )
                continue
            except ValueError as error:
                why = str(error)
        warnings.warn(
            f"the calibration by {each.by} was of other members, and is dropped ({why}): calibrate these anew",
            stacklevel=4,
        )
    return found


def _overlap(trained: Rows, given: Rows) -> float:
    """The part of the given rows that was trained on, or 1 if they hold all that was; 0 if it may be chance.

    A new row equals some trained one about as often as trained ones equal each other.
    """
    is_single = torch.float32 in (trained.x.dtype, given.x.dtype)
    own, other = (Counter(hash(row) for row in _bytes(rows, is_single)) for rows in (trained, given))
    if own == other or (own.keys() <= other.keys() and len(trained) <= _COARSE * len(own)):
        return 1.0
    found = sum(count for row, count in other.items() if row in own) / len(given)
    chance = 1 - sum(count == 1 for count in own.values()) / len(trained)
    margin = 2 * math.sqrt(chance * (1 - chance) / len(given))
    return found if found - chance - margin >= _TOLD_OVERLAP else 0.0


def _bytes(rows: Rows, is_single: bool) -> Iterator[bytes]:
    """Every row as it is, or in single precision, which y may always have come in."""
    for x, y in zip(rows.x.numpy(), rows.y.float().numpy(), strict=True):
        yield (x.astype(np.float32) if is_single else x).tobytes() + y.tobytes()
