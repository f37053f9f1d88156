"""scikit-learn's face: a training, what is marginalised, and how to predict, as an estimator's plain parameters.

    fit       parameters and a table -> `posterior_`, which is all that wf.marginalise gives
    predict   its mean or most probable class; predict_interval, predict_proba, sources and the others say more

Two rules make `fit` a function of the data and of nothing else. The order of the rows does not matter: they are put
into one of their own before anything is drawn. And a sample weight of k is the row given k times: whole numbers are
taken for just that, and a row that weighs nothing is left out; other weights multiply the row's loss. All copies of a
row are trained on, or all are held out, so that no row judges a network that has seen it.

A pickle holds the networks and no rows that they were trained on, but for batch normalisation, which needs them to
predict. It is code for whoever opens it: to hand a model to others, save `posterior_` into a folder.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom import recipes
from wherefrom.likelihoods import Classification, Likelihood, Regression
from wherefrom.likelihoods.classification import ClassPrediction
from wherefrom.likelihoods.regression import Prediction
from wherefrom.posterior import Posterior, stopping
from wherefrom.posterior.marginalise import marginalise
from wherefrom.posterior.point import Training
from wherefrom.posterior.predicting import in_blocks
from wherefrom.predictive.sources import Sources
from wherefrom.training import streams
from wherefrom.training.algorithm import Algorithm
from wherefrom.training.compute import Compute
from wherefrom.training.data import Rows, column_names
from wherefrom.training.mlp import MLP
from wherefrom.variables import Design

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f"scikit-learn's face needs scikit-learn 1.6 or newer: pip install 'wherefrom[sklearn]' ({error})"
    ) from error

Array = NDArray[Any]

_DROPOUT = 0.05  # of the default network, where sub-networks are marginalised and no other rate is said
_STEPS, _LEAST_EPOCHS, _MOST_EPOCHS = 2000, 20, 200  # of a training whose epochs are left open, at most
_FEWEST_TO_STOP_BY = 20  # rows, to find by when to stop
_LEAST_HELD_OUT = 2
_MOST_REPEATS = 10  # rows are repeated up to so many times as many; beyond that, weights multiply their loss,
# and equal rows are no copies of one, but what a table of few different values has by chance


@dataclass(eq=False, repr=False, kw_only=True)
class _Estimator(BaseEstimator):
    """The common part of both estimators. Constructors store; all that is checked is checked in `fit`."""

    over: str | Sequence[Any] = field(default="multi_swag", kw_only=False)
    draws: int = 5
    recipe_settings: Mapping[str, Any] | None = None
    model: Any = None
    hidden: int | Sequence[int] = (50,)
    activation: str = "relu"
    dropout: float | None = None
    epochs: int | None = None
    lr: float = 0.01
    batch_size: int = 100
    weight_decay: float = 0.01
    optimiser: Any = "adam"
    optimiser_settings: Mapping[str, Any] | None = None
    standardise: bool = True
    calibrate: Any = None
    calibrate_on: float = 0.2
    samples: int = 100
    method: Any = "monte_carlo"
    compute: Any = None
    engine: Any = None
    workers: int | None = None
    device: str | None = None
    random_state: Any = None
    verbose: bool = False

    posterior_: Posterior = field(init=False)  # and the next: by `fit`
    n_iter_: int = field(init=False)

    def _train(self, rows: Rows, likelihood: Likelihood) -> Self:
        if not isinstance(self.samples, Integral) or self.samples < 1:
            raise ValueError(f"samples is how many each network gives, a whole number from 1 on, not {self.samples!r}")
        seed = _seed(self.random_state)
        rows, aside = self._calibration_rows(rows, seed)
        copies = _copies(rows)
        if likelihood.fits_noise and (different := int(copies.max()) + 1) < 2 * _LEAST_HELD_OUT:
            raise ValueError(
                f'noise="fit" holds rows out of training, and there are {different}: give the noise as a number, or '
                "noise=None"
            )
        over = self._over()
        design = Design.of(over)
        decay = {"weight_decay": self.weight_decay} if self.weight_decay else {}
        settings = decay | dict(self.optimiser_settings or {})
        algorithm = Algorithm(self.optimiser, lr=self.lr, batch_size=self.batch_size, **settings)
        model = self._model(rows, likelihood, design)
        aside_share = self._held_out(rows, likelihood) or 0.0
        steps = algorithm.steps_per_epoch(len(rows) - round(aside_share * len(rows)))
        most = min(max(_STEPS // steps, _LEAST_EPOCHS), _MOST_EPOCHS)
        epochs = most if self.epochs is None else self.epochs
        training = Training(model, algorithm, epochs, likelihood, self.standardise)
        if self.epochs is None and isinstance(model, MLP):
            training = replace(training, epochs=_best_epochs(training, rows, design, seed, steps, self._how))
        posterior = marginalise(
            training, rows, over, seed, held_out=self._held_out(rows, likelihood), groups=copies, compute=self._how
        )
        if aside is not None:
            posterior = posterior.calibrated(self.calibrate, aside, samples=self.samples, method=self.method)
        self.posterior_, self.n_iter_ = posterior, training.epochs
        return self

    def _held_out(self, rows: Rows, likelihood: Likelihood) -> float | None:
        """The fraction of rows to fit the noise on: as the likelihood says, and at least two of them."""
        return max(likelihood.held_out, _LEAST_HELD_OUT / len(rows)) if likelihood.fits_noise else None

    # ------------------------------------------------------------------ parameters as the library has them

    def _over(self) -> list[Any]:
        if not isinstance(self.over, str):
            return list(self.over)
        if self.over not in recipes.BY_NAME:
            names = ", ".join(recipes.BY_NAME)
            raise ValueError(f"there is no recipe {self.over!r} to marginalise over; there are {names}")
        recipe, settings = recipes.BY_NAME[self.over], dict(self.recipe_settings or {})
        is_drawn, draws_settings = recipes.parameters(self.over)
        if is_drawn:
            settings = {"draws": self.draws} | settings
        if draws_settings and not set(settings) - set(inspect.signature(recipe).parameters):
            raise ValueError(
                f"{self.over} draws settings of the algorithm at random: say which, such as "
                'recipe_settings={"lr": wf.LogUniform(0.003, 0.03)}'
            )
        return recipe(**settings)

    def _model(self, rows: Rows, likelihood: Likelihood, design: Design) -> Callable[[], Any]:
        """The factory: the default network, or the user's, which may ask for its sizes."""
        if self.model is None:
            drops_units = design.dropout is not None and design.dropout.on == "units"
            rate = (_DROPOUT if drops_units else 0.0) if self.dropout is None else self.dropout
            hidden = int(self.hidden) if isinstance(self.hidden, Integral) else self.hidden
            return MLP(hidden, self.activation, rate)
        if isinstance(self.model, MLP | torch.nn.Module) or not callable(self.model):
            return self.model  # of which Training has its own opinion
        return _sized(self.model, rows.x.shape[1], likelihood.outputs(rows.targets))

    @property
    def _how(self) -> Compute:
        """The way trainings are computed; parameters that are given win over those of `compute`."""
        how = Compute.of(self.compute)
        how = how.but(device=self.device, engine=self.engine, workers=self.workers, progress=self.verbose or None)
        return how if how.progress is not None else how.but(progress=False)

    def _calibration_rows(self, rows: Rows, seed: int) -> tuple[Rows, Rows | None]:
        """The rows to train on, and those to calibrate by, if there are to be any."""
        if self.calibrate is None:
            return rows, None
        if not 0 < self.calibrate_on < 1:
            raise ValueError(f"calibrate_on is a part of the rows, between 0 and 1, not {self.calibrate_on!r}")
        copies = _copies(rows)
        if (different := int(copies.max()) + 1) < 2 * _LEAST_HELD_OUT:
            raise ValueError(f"{different} rows are too few to train and to calibrate on: leave calibrate=None")
        kept, aside = _apart(copies, self.calibrate_on, seed, "calibration")
        if self.calibrate == "conformal":  # counts rows: a copy adds nothing to what is known
            aside = aside[np.unique(copies[aside], return_index=True)[1]]
        return rows.take(kept), rows.take(aside)

    # ------------------------------------------------------------------ prediction

    def sources(self, X: Any) -> Sources:
        """Split the variance of the predictions by its sources, row by row and overall."""
        sources: Sources = self._predicted(self._inputs(X)).sources()
        return sources

    def _inputs(self, X: Any) -> Array:
        check_is_fitted(self)
        inputs: Array = validate_data(self, X, reset=False, dtype=(np.float64, np.float32))
        return inputs

    def _predicted(self, x: Array) -> Any:
        return self.posterior_.predict(x, self.samples, method=self.method)

    def _by_row(self, X: Any, read: Callable[[Any], Tensor]) -> Array:
        """Read something off each row's prediction, some rows at a time."""
        x = self._inputs(X)
        blocks = in_blocks(self.posterior_, len(x), x.__getitem__, self.samples, self.method)
        return np.concatenate([block.cut(read(block.prediction).numpy()) for block in blocks])


@dataclass(eq=False, repr=False, kw_only=True)
class WherefromRegressor(RegressorMixin, _Estimator):
    """A scikit-learn regressor that knows how sure it is, and where its doubt comes from.

    What becomes random
        over: a recipe's name ("multi_swag", "deep_ensemble", "swag", "tradi", "snapshots", "mc_dropout",
            "hyper_ensemble", "everything", "one_network"), or a list of variables as `wf.marginalise` takes it.
        draws: how many networks a recipe trains, where it trains several.
        recipe_settings: what else a recipe takes, such as {"rank": 10}, or {"lr": wf.LogUniform(0.003, 0.03)}.
    The network
        model: a factory of `nn.Module`, called as it is, or, if it asks for them, with the numbers of inputs and
            outputs. None is an MLP of `hidden` widths, `activation` and `dropout` (None: 0.05 if `over` drops units).
    The training
        epochs: None is as many as are best for rows that are set aside, in turn, before all are trained on: up to
            some 2,000 steps, or 200 epochs. (A model of your own, and fewer than 20 rows, get just so many.)
        lr, batch_size, weight_decay, optimiser: as in `wf.Algorithm`, and all its other settings as a dictionary,
            optimiser_settings.
        noise: the scatter of y around the network's answer, as in `wf.Regression`: "fit" on `held_out` of the rows,
            "predicted", a number, or None; least: the least that y can be, where intervals end.
        standardise: whether X and y are scaled inside.
        random_state: a number makes `fit` repeatable. Predictions always are.
        compute: how it is computed, `wf.Compute`; engine, workers, device and verbose say some of it by themselves.
    The prediction
        samples: of each network; method: "monte_carlo", "one_shot" or "auto", as in `wf.Posterior.predict`.
        calibrate: "variance" or "conformal", by a part `calibrate_on` of the rows that is not trained on.

    After `fit`: `posterior_`, which can do all that is not here, `n_iter_` (epochs), `n_features_in_`, and
    `feature_names_in_` if X had names.

    >>> import numpy as np
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> y = X[:, 0] ** 2 + 0.1 * np.random.default_rng(0).normal(size=100)
    >>> regressor = WherefromRegressor("deep_ensemble", draws=3, epochs=60, random_state=0).fit(X, y)
    >>> mean, std = regressor.predict(X, return_std=True)
    >>> regressor.predict_interval(X, 0.9).shape
    (100, 2)
    >>> regressor.sources(X).names
    ('theta0+order', 'noise')
    """

    noise: Any = "fit"
    held_out: float = 0.1
    least: float | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train every draw on X and y, one column or several; a weight of k is the row k times."""
        y_names = column_names(y)
        x, targets = validate_data(
            self, X, y, dtype=(np.float64, np.float32), multi_output=True, y_numeric=True, ensure_min_samples=2
        )
        targets = np.asarray(targets, dtype=np.float64)
        matrix = targets if targets.ndim == 2 else targets[:, None]
        x, matrix, weights = _canonical(x, matrix, _weights(sample_weight, x))
        columns = matrix.shape[1]
        rows = Rows(
            _tensor(x), _tensor(matrix), _names(self), y_names, targets.ndim == 1, columns, weights=_tensor(weights)
        )
        return self._train(rows, Regression(self.noise, self.held_out, self.least))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean at each row, of y's shape; with `return_std`, also the standard deviation."""
        if not return_std:
            return self._by_row(X, lambda prediction: prediction.mean)
        both = self._by_row(X, lambda prediction: torch.stack([prediction.mean, prediction.std], 1))
        return both[:, 0], both[:, 1]

    def predict_interval(self, X: Any, level: float = 0.95, reading: Any = None) -> Array:
        """The interval that holds y with this probability: lower and upper ends.  # (rows, 2[, outputs])

        `reading` is as in `wf.Prediction.interval`, such as "mixture" for the ends of the mixture itself.
        """
        how = {} if reading is None else {"reading": reading}
        return self._by_row(X, lambda prediction: torch.stack(prediction.interval(level, **how), 1))

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95), reading: Any = None) -> Array:
        """The values below which y falls with these probabilities.  # (rows, quantiles[, outputs])"""
        how = {} if reading is None else {"reading": reading}
        return self._by_row(X, lambda prediction: torch.stack([prediction.quantile(q, **how) for q in quantiles], 1))

    def predict_dist(self, X: Any) -> Prediction:
        """All that is known about y at these rows: moments, intervals, densities, scores, sources."""
        return self._predicted(self._inputs(X))


@dataclass(eq=False, repr=False, kw_only=True)
class WherefromClassifier(ClassifierMixin, _Estimator):
    """A scikit-learn classifier that knows how sure it is, and where its doubt comes from.

    Parameters are those of `WherefromRegressor`, but for the noise, which classes have none of. Of its own:
        label_smoothing: as in `wf.Classification`.
        class_weight: a dictionary from label to weight, or "balanced", which makes all classes count the same.
        calibrate: "temperature" or "conformal".

    After `fit`, `classes_` are the labels, in the order of the columns of `predict_proba`.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> y = np.where(X[:, 0] > X[:, 1], "right", "left")
    >>> classifier = WherefromClassifier("deep_ensemble", draws=3, epochs=60, random_state=0).fit(X, y)
    >>> classifier.predict([[1.0, -1.0]])
    array(['right'], dtype='<U5')
    >>> classifier.predict_proba(X).shape
    (100, 2)
    >>> classifier.predict_dist(X).mutual_information.shape
    torch.Size([100])
    """

    label_smoothing: float = 0.0
    class_weight: Any = None

    classes_: Array = field(init=False)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train every draw on X and the labels y; a weight of k is the row k times."""
        x, labels = validate_data(self, X, y, dtype=(np.float64, np.float32), ensure_min_samples=2)
        check_classification_targets(labels)
        weights = _weights(sample_weight, x)
        counted = np.ones(len(x), dtype=bool) if weights is None else weights > 0
        self.classes_ = np.unique(labels[counted])
        if len(self.classes_) < 2:
            raise ValueError(f"y holds 1 class, {self.classes_[0]!r}: to tell classes apart, it takes rows of two")
        numbers = np.searchsorted(self.classes_, labels[counted]).astype(np.float64)
        x, matrix, weights = _canonical(x[counted], numbers[:, None], None if weights is None else weights[counted])
        weights = _with_classes(weights, matrix[:, 0].astype(int), self.classes_, self.class_weight)
        names = tuple(_plain(label) for label in self.classes_.tolist())
        rows = Rows(_tensor(x), _tensor(matrix), _names(self), (), True, len(names), names, _tensor(weights))
        return self._train(rows, Classification(label_smoothing=self.label_smoothing))

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        chosen = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[chosen])

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class.  # (rows, classes)"""
        probabilities = self._by_row(X, lambda prediction: prediction.probabilities)
        return probabilities / probabilities.sum(1, keepdims=True)  # the softmax is in single precision

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of the probability of each class.  # (rows, classes)"""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict_dist(self, X: Any) -> ClassPrediction:
        """All that is known about the classes at these rows: probabilities, entropies, scores, sources."""
        return self._predicted(self._inputs(X))


# ---------------------------------------------------------------------- parameters


def _seed(random_state: Any) -> int:
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _sized(factory: Callable[..., Any], inputs: int, outputs: int) -> Callable[[], Any]:
    """A factory that needs nothing more: called with the table's sizes, if that is what it asks for."""
    try:
        parameters = inspect.signature(factory).parameters
    except ValueError:  # some that are written in C have none
        return factory
    if {"inputs", "outputs"} <= set(parameters):
        return partial(factory, inputs=inputs, outputs=outputs)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p.name for p in parameters.values() if p.kind in positional and p.default is p.empty]
    if not needed:
        return factory
    if len(needed) == 2:
        return partial(factory, inputs, outputs)
    raise TypeError(
        f"model is a function of nothing, or of the numbers of inputs and outputs, but it asks for {', '.join(needed)}"
    )


# ---------------------------------------------------------------------- when to stop


def _best_epochs(training: Training, rows: Rows, design: Design, seed: int, steps: int, compute: Compute) -> int:
    """Return after how many of its epochs rows that are set aside are best predicted: by folds, each with one network.

    What is scored is what a training of so many epochs would leave: its last iterate or, where t is marginalised, the
    mean of the later half of them.
    """
    copies = _copies(rows)
    if int(copies.max()) + 1 < _FEWEST_TO_STOP_BY:
        return training.epochs
    parts = stopping.folds(copies, rows.y[:, 0].numpy(), seed)
    over = [stopping.kept_trajectory(training.epochs), *([design.dropout] if design.dropout else [])]
    training = replace(training, likelihood=training.likelihood.to_search(False))
    pilots = marginalise(training, rows, over, seed, folds=[train for train, _ in parts], compute=compute)
    aside = [rows.take(test) for _, test in parts]
    stops = stopping.scored(pilots, [pilot.mixture[0] for pilot in pilots], aside, design.iterations is not None)
    weights = None if rows.weights is None else rows.weights[np.concatenate([test for _, test in parts])]
    return stops.epochs[stops.first_good(weights, lambda epochs: _is_enough(design, epochs, steps))]


def _is_enough(design: Design, epochs: int, steps: int) -> bool:
    """True if the trajectory is then long enough for the law of t."""
    try:
        if design.iterations is not None:
            design.iterations.collection(epochs, steps, range(epochs))
    except ValueError:
        return False
    return True


# ---------------------------------------------------------------------- data


def _weights(given: Any, x: Array) -> Array | None:
    if given is None:
        return None
    weights: Array = _check_sample_weight(given, x, dtype=np.float64, ensure_non_negative=True)
    if not (weights > 0).any():
        raise ValueError("all sample weights are zero: there is nothing to learn from")
    return weights


def _canonical(x: Array, y: Array, weights: Array | None) -> tuple[Array, Array, Array | None]:
    """The rows in an order of their own, and each as often as its weight says, where that is a whole number.

    So a fit knows neither in which order the rows came, nor whether a row was weighted or repeated.
    """
    if weights is not None:
        x, y, weights = x[weights > 0], y[weights > 0], weights[weights > 0]
        if (weights == np.round(weights)).all() and weights.sum() <= _MOST_REPEATS * len(x):
            times = weights.astype(np.int64)
            x, y, weights = x.repeat(times, axis=0), y.repeat(times, axis=0), None
    order = _order(x, y)
    return x[order], y[order], None if weights is None else weights[order]


def _order(x: Array, y: Array) -> Array:
    """Rows by a random projection of them, which is the same for equal rows wherever they stand."""
    directions = np.random.default_rng(0).normal(size=x.shape[1] + y.shape[1])
    projected = np.zeros(len(x))
    with np.errstate(all="ignore"):
        for column, direction in zip((*x.T, *y.T), directions, strict=True):  # a product of matrices may round by row
            projected += direction * column.astype(np.float64)
    return projected.argsort(kind="stable")


def _copies(rows: Rows) -> Array:
    """The number of each row, by which copies of one row are known; but see _MOST_REPEATS.  # (rows,)"""
    numbers: dict[bytes, int] = {}
    table = np.concatenate([rows.x.double().numpy(), rows.y.numpy()], axis=1) + 0.0  # which makes one zero of two
    copies = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in table])
    return copies if len(copies) <= _MOST_REPEATS * len(numbers) else np.arange(len(copies))


def _apart(copies: Array, share: float, seed: int, stream: str) -> tuple[Array, Array]:
    """The places of the rows that are kept, and of those that are put aside, with all their copies."""
    order = streams.generator(seed, stream).permutation(int(copies.max()) + 1)
    count = min(max(_LEAST_HELD_OUT, round(share * len(order))), len(order) - _LEAST_HELD_OUT)
    is_aside = np.isin(copies, order[:count])
    return np.flatnonzero(~is_aside), np.flatnonzero(is_aside)


def _with_classes(weights: Array | None, numbers: Array, classes: Array, class_weight: Any) -> Array | None:
    """Row weights times those of the rows' classes; classes that a dictionary leaves out weigh 1."""
    if class_weight is None:
        return weights
    weights = np.ones(len(numbers)) if weights is None else weights
    if isinstance(class_weight, str) and class_weight == "balanced":
        each = 1 / np.bincount(numbers, weights, minlength=len(classes))
    elif isinstance(class_weight, Mapping):
        if unknown := [label for label in class_weight if label not in set(classes.tolist())]:
            raise ValueError(f"class_weight names {unknown}, but the classes are {classes.tolist()}")
        each = np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])
    else:
        raise ValueError(f'class_weight is "balanced" or a dictionary from label to weight, not {class_weight!r}')
    weights = weights * each[numbers]
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise ValueError(f"class weights are finite numbers, none below zero and not all zero, unlike {class_weight}")
    return weights


def _names(estimator: _Estimator) -> tuple[str, ...]:
    return tuple(map(str, getattr(estimator, "feature_names_in_", ())))


def _plain(label: Any) -> Any:
    """A label as the library has them: words, whole numbers, true and false."""
    return int(label) if isinstance(label, float) and label.is_integer() else label


def _tensor(array: Array | None) -> Any:
    return None if array is None else torch.from_numpy(np.ascontiguousarray(array))
