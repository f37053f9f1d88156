"""The framework: draw the choices, train every draw, keep the law of each trajectory, mix the laws.

    p(theta | D)  =  mean over members of p(theta | D, theta0, h, ...),     each member one draw of (theta0, h, order)

Every member keeps its labels, so one set of trainings serves every subset of the variables that it marginalises.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

import numpy as np
import torch
from torch import Tensor

from wherefrom import plots
from wherefrom.laws import Law, delta
from wherefrom.posterior import fitting, growth, left_out, lines, parts, predicting, settled, weighing
from wherefrom.posterior.fitting import Fitted
from wherefrom.posterior.fold import Fold
from wherefrom.posterior.growth import DivergedError as DivergedError  # one of the public names of this module
from wherefrom.posterior.growth import Divergence
from wherefrom.posterior.member import Member, Origin
from wherefrom.posterior.point import P, Training
from wherefrom.predictive import batch_norm
from wherefrom.predictive.calibration import By, Calibration
from wherefrom.predictive.fit import Method, Reading
from wherefrom.showing import Library, card
from wherefrom.table import Table
from wherefrom.training import joined
from wherefrom.training.checkpoints import Checkpoints
from wherefrom.training.compute import Compute
from wherefrom.training.data import Rows, Scaler, Schema
from wherefrom.training.engines import Choice
from wherefrom.training.network import Network
from wherefrom.training.progress import Show
from wherefrom.variables import Design

if TYPE_CHECKING:
    from wherefrom.predictive.advice import Advice
    from wherefrom.predictive.one_shot.check import OneShotCheck
    from wherefrom.predictive.one_shot.member import Covariance

_ADVISED_ROWS = 300
_NOT_SHOWN = ("init", "share", "leaves_out")  # choices that are not settings


@dataclass(frozen=True, eq=False)
class Posterior(Generic[P]):
    """A labelled mixture of laws over theta. Made by `wf.marginalise`, or loaded from a file by `wf.load`."""

    training: Training[P]
    design: Design
    networks: dict[str, Network]  # by family; without families there is one, under no name
    fold: Fold  # the rows, how they look and are scaled, and the seed
    compute: Compute  # by which it was trained, and predicts
    mixture: tuple[Member, ...]
    origin: Origin = field(default_factory=Origin)
    fitted: Fitted = field(default_factory=Fitted)  # by rows that were not trained on, for these very members
    statistics: batch_norm.Statistics = field(default_factory=batch_norm.Statistics)  # of samples, shared with parts

    @classmethod
    def from_members(cls, members: Sequence[Any], *, model: Any, **about: Any) -> Posterior[P]:
        """Return a posterior of networks from your own training loop: recorders, networks, state dicts, or their files.

        t is uncertain if members are recorders with a law.

        members: the trained networks.
        model: their factory, or a dictionary of factories if there are several families.
        about: any of these, by name.

        - `x`: some rows like those to predict (default: those of `data`, `standardise_by` or `held_out`). `y`: some of
          its rows, for its names.
        - `labels`: the draws of every member, such as {"theta0": 0, "h": 1}, fully crossed (default: members are draws
          of theta0). `finite`: labels whose draws are all possible values.
        - `likelihood`: as in `wf.Training`. `dropout=wf.Dropout()` makes F uncertain.
        - `scaler=dict(x_mean=..., x_std=..., y_mean=..., y_std=...)`, or `standardise_by=(x, y)`: how the data was
          scaled in training (default: it was not).
        - `held_out=(x, y)`: rows to fit the noise. `data=(x, y)`: the training rows, which batch normalisation needs.
        - `prefix`: of the names in files. `seed`, `dtype`, `device`: as in `wf.marginalise`.
        """
        from wherefrom.own_loop.members import from_members

        return from_members(members, model=model, **about)

    # ------------------------------------------------------------------ the mixture

    def __len__(self) -> int:
        return len(self.mixture)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle no rows, as a file holds none, but where batch normalisation needs them to predict.

        All tensors are in main memory, so that it can be opened without its device.
        """
        needs_rows = any(network.momenta for network in self.networks.values())
        fold = replace(self.fold, rows=self.rows if needs_rows else None, held_out=None)
        cpu = torch.device("cpu")
        return vars(self) | {
            "fold": fold,
            "fitted": self.fitted.with_rows(None),
            "compute": self.compute.without_company.as_text,
            "networks": {name: copy.copy(network).to(cpu) for name, network in self.networks.items()},
            "mixture": tuple(member.on(cpu) for member in self.mixture),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        compute: Compute = state["compute"]
        try:
            device = compute.torch_device
        except ValueError as error:
            warnings.warn(f"this posterior predicts on the CPU: {error}", stacklevel=2)
            device, compute = torch.device("cpu"), replace(compute, device="cpu")
        vars(self).update(state)
        vars(self).update(
            compute=compute,
            networks={name: network.to(device) for name, network in self.networks.items()},
            mixture=tuple(member.on(device) for member in self.mixture),
        )

    def __copy__(self) -> Posterior[P]:
        return self  # it never changes

    def __deepcopy__(self, memo: dict[int, Any]) -> Posterior[P]:
        return self

    def __repr__(self) -> str:
        over = ", ".join(self.design.names) or "nothing"
        lost = f"; {len(self.diverged)} diverged" if self.diverged else ""
        lost += f"; {len(self.redrawn)} redrawn" if self.redrawn else ""
        weighted = "weighted " if weighing.is_weighted(self) else ""
        return f"Posterior({len(self)} {weighted}member{'s' * (len(self) != 1)}, marginalises {over}{lost})"

    def _repr_html_(self) -> str:
        training = self.training
        facts = {
            "marginalises": ", ".join(self.design.names) or "nothing",
            "algorithm": repr(training.algorithm),
            "epochs": str(training.epochs),
            "likelihood": repr(training.likelihood),
        }
        return card(repr(self), self._trained_members.html(), facts=facts)

    def plot(self, kind: Literal["losses", "lines"] = "losses", data: Any = None, *, ax: Any = None) -> Any:
        """Draw the trainings with matplotlib, and return the axes.

        kind: "losses", every member's training loss by epoch; or "lines", the loss on the straight line between two
            thetas that differ in one variable alone, for each variable: a barrier means another valley (default:
            "losses").
        data: (x, y) for the lines (default: the training rows).
        ax: matplotlib's axes to draw on (default: a new figure).
        """
        if kind == "lines":
            by_name = lines.losses_along_lines(self, data)
            positions = dict.fromkeys(by_name, lines.POSITIONS)
            return plots.curves(positions, by_name, ("from one theta (0) to the other (1)", "loss"), ax)
        if kind != "losses":
            raise ValueError(f'kind must be "losses" or "lines", not {kind!r}')
        losses = {}
        for member in self.mixture:
            name = ", ".join(f"{axis} {label}" for axis, label in member.run.labels.items()) or "the network"
            losses[name] = np.asarray(member.trained.losses)
        epochs = {name: np.arange(1, len(each) + 1) for name, each in losses.items()}
        is_log = all((each > 0).all() for each in losses.values())
        return plots.curves(epochs, losses, ("epoch", "training loss"), ax, is_log)

    def to_frame(self, library: Library | None = None) -> Any:
        """Return `members()` as a frame.

        library: "pandas" or "polars" (default: pandas if it is installed, else polars).
        """
        return self.members().to_frame(library)

    def members(self, data: Any = None) -> Table:
        """List every member's draws, settings, first and last training loss, processor seconds (its share) and engine.

        data: (x, y), rows that were not trained on (default: those held out to fit the noise, if any). If t is
            uncertain, the table also has the loss on these rows at the last iterate and at the mean of the trajectory.
            It warns if the mean is worse: then the networks were still improving while weights were collected.
        """
        table = self._trained_members
        if losses := settled.on_held_out(self, data):
            rows = [(*row, *each) for row, each in zip(table.rows, losses.by_member, strict=True)]
            return Table((*table.columns, "held-out loss, last iterate", "held-out loss, mean"), rows)
        return table

    @property
    def _trained_members(self) -> Table:
        """Every member's draws, settings, losses, seconds and engine."""
        axes, is_weighted = [axis.name for axis in self.design.axes], weighing.is_weighted(self)
        drawn = dict.fromkeys(s for c in self.mixture for s in c.run.choices if s not in _NOT_SHOWN)
        if self.design.algorithms is not None:
            drawn |= dict.fromkeys(
                ("algorithm", *(name for a in self.design.algorithms.algorithms for name in a.random))
            )
        rows = []
        for member, weight in zip(self.mixture, self.weights, strict=True):
            trained = member.trained
            rows.append(
                (
                    *(member.run.labels[axis] for axis in axes),
                    *(_shown(member, setting) for setting in drawn),
                    *([weight] if is_weighted else []),
                    trained.losses[0],
                    trained.losses[-1],
                    trained.seconds,
                    trained.engine,
                )
            )
        weighted = ("weight",) if is_weighted else ()
        return Table((*axes, *drawn, *weighted, "first loss", "last loss", "cpu seconds", "engine"), rows)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights of the members in the mixture: those of their families, algorithms or points, or as set.

        They add up to one; if members diverged, the others keep their proportions.
        """
        return weighing.weights(self)

    def weighted(
        self,
        by: Literal["stacking", "greedy"] | Sequence[float],
        data: Any = None,
        *,
        samples: int = 100,
        size: int = 50,
        distinct: int | None = None,
    ) -> Posterior[P]:
        """Weight the members by rows that were not trained on, or as given; members with weight 0 are left out.

        by: "stacking", the weights that make these rows most likely; "greedy", members picked one after the other, with
            replacement, as long as it helps; or the weights themselves.
        data: (x, y) (default: the rows that were held out to fit the noise, if any).
        samples: samples of each member (default 100).
        size: for "greedy", the largest number of picks (default 50).
        distinct: for "greedy", the largest number of different members (default: all).

        Members are weighted without calibration, which is then fitted again.
        """
        return fitting.weighted(self, by, data, samples, size, distinct)

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that trained the members: "torch", "native", or "fitted" for trees and Gaussian processes."""
        return tuple(sorted({member.trained.engine for member in self.mixture}))

    def draws(self, name: str) -> list[int]:
        """Return the numbers of a variable's draws: all, unless this is a part of a posterior or members diverged.

        name: the variable, such as "theta0".
        """
        axis = self.design.axis(name).name
        return sorted({member.run.labels[axis] for member in self.mixture})

    def laws(self) -> list[Law]:
        """List each member's law over theta: that of its trajectory if t is uncertain, otherwise its last iterate."""
        is_random = self.design.iterations is not None

        def law(member: Member) -> Law:
            if is_random and member.trained.law is not None:
                return member.trained.law
            return delta(member.trained.last[: self.networks[member.family].layout.varying_size])

        return [law(member) for member in self.mixture]

    def sample(self, n: int, seed: int | None = None) -> list[dict[str, Tensor]]:
        """Draw weights from the mixture, as dictionaries of tensors; members take turns by their weights.

        n: how many sets of weights.
        seed: another seed gives other weights (default: the posterior's own).
        """
        return predicting.thetas(self, n, self.seed if seed is None else seed)

    # ------------------------------------------------------------------ prediction

    def predict(
        self,
        x: Any,
        samples: int = 100,
        seed: int | None = None,
        *,
        method: predicting.Method = "monte_carlo",
        tolerance: float = 0.05,
        autocast: torch.dtype | None = None,
        executor: Any = None,
    ) -> P:
        """Predict at x. The likelihood says what is returned: a `Prediction` of quantities, a `ClassPrediction`, ...

        x: the rows to predict.
        samples: samples of each member, for Monte Carlo (default 100).
        seed: another seed gives other samples; the same call gives the same numbers (default: the posterior's own).
        method: "monte_carlo" (default), by samples. "one_shot", by propagating moments, without samples. "linearised",
            also without, by the network's linear expansion in its weights, which suits Laplace's law. "auto", the first
            of the two whose errors of mean and standard deviation (by `check_one_shot`) are within the tolerance,
            otherwise samples; this is checked once, on the first rows that are predicted. `prediction.method` says
            which was used.
        tolerance: largest relative error for "auto" (default 0.05).
        autocast: torch.bfloat16 lets networks multiply with half the bits when they are sampled, which some devices do
            faster; outputs then have about two digits (default None: full precision). Moments are not rounded.
        executor: `wf.executors.Processes(...)` or `wf.executors.Ray(...)`, whose processes sample the outputs, with the
            same bits (default None: threads of this process). Moments are always computed in this process.

        If the posterior is `calibrated`, so is the prediction.
        """
        with predicting.sampling_elsewhere(self, executor, method) as elsewhere:
            return predicting.predicted(
                self, x, samples, method, seed, tolerance, autocast=autocast, elsewhere=elsewhere
            )

    def predict_chunks(
        self,
        x: Any,
        samples: int = 100,
        *,
        method: predicting.Method = "monte_carlo",
        autocast: torch.dtype | None = None,
        executor: Any = None,
    ) -> Iterator[P]:
        """Predict some rows at a time, in their order: yield predictions of at most 4,096 rows, fewer with many
        samples.

        So memory does not grow with the number of rows. Predictions are those of `predict` up to rounding; by Monte
        Carlo, those of a row do not depend on its chunk, to the last bit.

        x: an array, also one that is mapped from a file (`numpy.load(..., mmap_mode="r")`), a tensor, a frame, a tuple
            or dictionary of several inputs, or an iterable of those.
        samples: of each member (default 100).
        method: as for `predict` (default "monte_carlo").
        autocast: as for `predict` (default None).
        executor: as for `predict` (default None). Members are sent to its processes once for all chunks.

        >>> import torch
        >>> import wherefrom as wf
        >>> x = torch.linspace(-1, 1, 40).unsqueeze(1)
        >>> training = wf.Training(wf.MLP([8]), wf.Algorithm("adam", lr=0.01, batch_size=20), epochs=2)
        >>> posterior = wf.marginalise(training, (x, x[:, 0]), [wf.InitialCondition(2)])
        >>> [len(prediction.mean) for prediction in posterior.predict_chunks([x[:30], x[30:]])]
        [30, 10]
        """
        parts = [x] if hasattr(x, "shape") or joined.is_several(x) else x
        with predicting.sampling_elsewhere(self, executor, method) as elsewhere:
            for part in parts:
                take, rows = (part.iloc if hasattr(part, "iloc") else part).__getitem__, len(part)
                if joined.is_several(part):
                    take, rows = partial(joined.some_of, part), joined.count(part)
                blocks = predicting.in_blocks(self, rows, take, samples, method, autocast=autocast, elsewhere=elsewhere)
                for block in blocks:
                    yield block.prediction.of_rows(torch.arange(len(block)))

    def out_of_fold(self, samples: int = 100, *, method: predicting.Method = "monte_carlo") -> P:
        """Predict every training row by the members that did not see it, if the draws of D are `wf.Folds`.

        Rows are in the order of the data, and can be scored like new rows. Each is predicted by the members of one draw
        only, so the whole posterior is a little better. Intervals are calibrated on the rows of the other folds.

        samples, method: as for `predict` (default: 100, "monte_carlo").
        """
        rows = self.held_out
        if rows is None or rows.left_out_by is None:
            raise ValueError("out_of_fold() needs D as folds, wf.marginalise(..., [wf.Folds(5), ...]), and the data")
        return predicting.predicted(self, rows.x, samples, method, left_out_by=rows.left_out_by)

    def one_shot(self, x: Any, *, x_std: Any = None, covariance: Covariance = "low_rank", rank: int | None = None) -> P:
        """Predict at x by moments: one pass for each member, and no sampling.

        x: the rows to predict.
        x_std: standard deviation of the noise of the inputs, in x's units: a number, one for each column, or one for
            each entry (default: no noise).
        covariance: which covariance of the weights is followed. "diagonal": none between weights, as in the paper; the
            fastest, and far too wide or too narrow if weights move together. "low_rank" (default): also SWAG's shared
            deviations, to first order. "full": also between the units of a layer; slow, for small layers, and right for
            dropout in more than one layer.
        rank: follow only this many of the shared deviations, those that change the outputs most: faster, but a little
            too sure (default: all).

        `check_one_shot` measures the errors of all of them on your rows.
        """
        return predicting.by_moments(self, x, x_std, covariance, rank)

    def export_onnx(
        self, path: str | Path, *, covariance: Covariance = "low_rank", quantiles: Sequence[float] = ()
    ) -> None:
        """Write one-shot prediction as an ONNX file, for programs without Python; needs `wherefrom[onnx]`.

        path: the file.
        covariance: as for `one_shot`, whose answers the file gives (default: "low_rank"). "diagonal" can be written for
            every network that one-shot prediction knows, the others for plain MLPs.
        quantiles: probabilities, such as (0.025, 0.5, 0.975), whose quantiles the file returns (default: none).

        The file takes `x` (single precision, any number of rows, in x's own units) and returns `mean` and `variance`:
        of all members together, noise included, in y's units; and `quantiles`, (rows[, outputs], probabilities), as
        `one_shot(x).quantile(probability)` is. They are calibrated if the posterior is by "variance", quantiles also if
        it is by "shape".
        """
        from wherefrom.posterior.onnx import export

        export(self, path, covariance, quantiles)

    def check_one_shot(
        self,
        x: Any,
        *,
        samples: int = 1000,
        rows: int = 200,
        covariance: Covariance = "low_rank",
        rank: int | None = None,
        seed: int | None = None,
        method: Literal["one_shot", "linearised"] = "one_shot",
    ) -> OneShotCheck:
        """Compare a method without samples with Monte Carlo on these rows: errors of mean and standard deviation.

        The networks' outputs are compared, without noise, which both have in common.

        x: the inputs, as for `predict`.
        samples: samples of each member, for Monte Carlo (default: 1000).
        rows: number of rows to compare, evenly spaced (default: 200).
        covariance, rank: as for `one_shot` (default: "low_rank", None).
        seed: seed of the samples (default: that of the posterior).
        method: "one_shot" or "linearised" (default: "one_shot").
        """
        from wherefrom.predictive.one_shot.check import compare

        inputs = self.schema.inputs(x)
        some = inputs[:: -(-len(inputs) // rows)]
        if method == "one_shot":
            moments = self.one_shot(some, covariance=covariance, rank=rank).mixture
        else:
            moments = self.predict(some, method=method).mixture
        sampled = self.predict(some, samples, seed)
        return compare(moments, sampled.mixture, sampled.is_joint)

    def fit_noise(
        self, data: Any, samples: int = 100, method: Literal["monte_carlo", "linearised"] | None = None
    ) -> Posterior[P]:
        """Estimate the noise on rows that were not trained on, for `noise="fit"`, and return the posterior with it.

        There is one variance for each output: the one that makes these rows most likely under the mixture. A
        calibration is fitted again.

        data: (x, y). If it is the posterior's own data, only its held-out rows are used.
        samples: samples of each member (default 100).
        method: by which you predict: "monte_carlo", or "linearised" (default None: "linearised" for Laplace's law
            without dropout, else "monte_carlo").
        """
        return fitting.with_noise(self, data, samples, method)

    # ------------------------------------------------------------------ calibration

    def calibrated(
        self,
        by: By,
        data: Any = None,
        samples: int = 100,
        *,
        method: Method = "monte_carlo",
        reading: Reading = "gaussian",
    ) -> Posterior[P]:
        """Calibrate predictions on rows that were not trained on, and return the calibrated posterior.

        by: "variance" multiplies the variance of each output by the factor that makes these rows most likely. "shape"
            fits a skewed or long-tailed distribution. "temperature" divides the logits of classes by the number that
            makes these rows most likely. With "conformal", `prediction.interval(level)` and `prediction.sets(level)`
            contain the truth as often as they say. One can follow another, "conformal" as the last: see
            docs/calibration.md.
        data: (x, y), or (x, y, weights); weights do not count for "conformal", whose guarantee is about rows that count
            equally (default: the rows that were held out to fit the noise, which then serve twice).
        samples, method: calibrate in the way in which you will predict (default: 100 samples, "monte_carlo").
        reading: for "variance", fit the factor to the Gaussian with the mixture's mean and variance ("gaussian",
            default), or to the "mixture" itself.

        A calibration belongs to these members. If they change (`marginalising`, `select`, `weighted`, `extend`,
        `fit_noise`), it is fitted again on the same rows. If the rows are no longer available, as after `wf.load`, it
        is dropped with a warning.
        """
        return fitting.calibrated(self, by, data, samples, method, reading)

    @property
    def uncalibrated(self) -> Posterior[P]:
        """The posterior without its calibration."""
        return replace(self, fitted=replace(self.fitted, calibration=())) if self.calibration else self

    def check_calibration(
        self, data: Any, samples: int = 100, *, levels: Sequence[float] = (0.5, 0.9), method: Method = "monte_carlo"
    ) -> Table:
        """Compare the scores of rows before and after the calibration.

        data: (x, y), other rows than those that it was fitted on.
        samples, method: as for `predict` (default: 100, "monte_carlo").
        levels: levels of intervals whose coverage and width are shown (default: 0.5 and 0.9).
        """
        return fitting.before_and_after(self, data, samples, levels, method)

    def advise(self, x: Any = None, budget: int | Sequence[int] = (1, 5, 10), samples: int = 100) -> Advice:
        """Return what to spend on next: how much further trainings of each variable would lower the errors.

        Errors are those of the predictive mean and of the estimated variances. See docs/advice.md.

        x: the rows at which they are judged (default: some of the training rows).
        budget: numbers of further trainings (default: 1, 5 and 10).
        samples: samples of each member (default 100).
        """
        from wherefrom.predictive.advice import advice

        if x is None:
            if self.rows is None:
                raise ValueError("a loaded posterior has no data: say for which rows advice is wanted, as advise(x)")
            x = self.rows.x[:: -(-len(self.rows) // _ADVISED_ROWS)]
        return advice(self.predict(x, samples).advice_subject(), budget, self.design.names)

    # ------------------------------------------------------------------ parts and more of it

    def marginalising(self, *names: str) -> Posterior[P]:
        """Return the posterior in which only these variables are uncertain, from the same trainings.

        Each other variable is fixed at one value: at the first draw, t at the last iterate, dropout at the whole
        network.

        names: the variables, such as "theta0", "t".
        """
        return parts.marginalising(self, names)

    def select(self, **draws: Sequence[int | str] | int | str) -> Posterior[P]:
        """Return the members with these draws: `posterior.select(theta0=[0, 1, 2])`. One draw fixes the variable.

        draws: variable -> the number of a draw, or several; families can be selected by name, `F="wide"`.
        """
        return parts.selected(self, draws)

    def extend(
        self,
        data: Any = None,
        *,
        on_divergence: Divergence = "raise",
        compute: Compute | None = None,
        engine: Choice | None = None,
        workers: int | None = None,
        checkpoints: str | Path | Checkpoints | None = None,
        progress: Show = None,
        **more: int,
    ) -> Posterior[P]:
        """Train more draws of a variable: `posterior.extend(theta0=5)` adds those of a larger first call.

        The new members are trained by the same engine, on the same device and in the same precision as the others.

        data: the training data, needed after `wf.load`.
        on_divergence: as in `wf.marginalise` (default "raise").
        compute: how to compute, a `wf.Compute` (default None).
        engine, workers, checkpoints, progress: fields of `compute` by name (default None: those of `compute`).
        more: variable -> number of further draws.
        """
        same = cast(Choice, self.engines[0] if self.engines in (("torch",), ("native",)) else "auto")
        asked = Compute.of(compute).but(workers=workers, checkpoints=checkpoints, progress=progress, engine=engine)
        trained_by = same if asked.engine == "auto" else asked.engine
        made = self.compute
        how = replace(asked, device=made.device, dtype=made.dtype, autocast=made.autocast, engine=trained_by)
        return growth.extended(self, data, more, how, on_divergence)

    def with_data(self, data: Any) -> Posterior[P]:
        """Return the posterior with its training data, which `wf.load` does not have.

        data: the data that it was trained on, (x, y).
        """
        return replace(self, fold=growth.same_data(self, data))

    def report(self, path: str | Path, data: Any, **about: Any) -> Path:
        """Write a report about rows that were not trained on, a page for the browser, and return its path.

        It shows how good the predictions are, where their doubt comes from, overall and for each row, and what to do
        next, in one file that loads nothing from the network.

        path: the HTML file.
        data: (x, y), rows that were not trained on.
        about: names and remarks, such as `title`, `target`, `unit`, `columns`, `rows`, `notes` and `samples`; the page
            about the report lists all of them.
        """
        from wherefrom.report.page import report

        return report(self, data, path, **about)

    def save(self, folder: str | Path) -> None:
        """Write the posterior into a folder: tensors as safetensors, the rest as JSON. No data, no code.

        folder: its path.
        """
        from wherefrom.posterior.store import save

        save(self, Path(folder))

    # ------------------------------------------------------------------ its parts, by name

    @property
    def network(self) -> Network:
        """The only one, where there are no families."""
        if len(self.networks) > 1:
            raise ValueError(
                f"this posterior has {len(self.networks)} families of networks, {', '.join(self.networks)}: "
                "take one of them, as select(F=0)"
            )
        return next(iter(self.networks.values()))

    @property
    def seed(self) -> int:
        return self.fold.seed

    @property
    def schema(self) -> Schema:
        """The shape and the names that data must have to be predicted on."""
        return self.fold.schema

    @property
    def scaler(self) -> Scaler:
        return self.fold.scaler

    @property
    def rows(self) -> Rows | None:
        """The rows that it was trained on; a file holds none."""
        return self.fold.rows

    @property
    def held_out(self) -> Rows | None:
        """The rows that test the members: those held out of all, or those that each draw of D left out."""
        return left_out.rows_to_judge_by(self)

    @property
    def dtype(self) -> torch.dtype:
        return self.compute.dtype

    @property
    def device(self) -> torch.device:
        return self.compute.torch_device

    @property
    def fitted_noise(self) -> Tensor | None:
        """The variance of each output's noise, in units of y's own variance, where it was fitted."""
        return self.fitted.noise

    @property
    def calibration(self) -> tuple[Calibration, ...]:
        """The corrections that are applied to predictions, in the order of their fitting."""
        return self.fitted.calibration

    @property
    def diverged(self) -> tuple[str, ...]:
        """The runs that diverged and were left out, by their names."""
        return self.origin.diverged

    @property
    def redrawn(self) -> tuple[str, ...]:
        """The runs that diverged and were replaced by others, by their names."""
        return self.origin.redrawn

    @property
    def diverged_share(self) -> float:
        """The share of members that diverged and were left out."""
        return len(self.diverged) / (len(self) + len(self.diverged))

    @property
    def redrawn_share(self) -> float:
        """The share of members that diverged and were replaced by others."""
        return len(self.redrawn) / (len(self) + len(self.diverged))


def _shown(member: Member, setting: str) -> Any:
    """A member's draw of a setting, as the table of members shows it."""
    algorithm, drawn = member.algorithm, member.run.choices.get(setting, "")
    if setting == "algorithm":
        return algorithm.name
    if setting in ("family", "dropout", "label_smoothing"):
        return drawn
    value = algorithm.get(setting)
    if setting == "betas" and value is None:
        value = algorithm.get("beta1"), algorithm.get("beta2")
    return "" if value is None else value
