"""scikit-learn's face of `wf.fit`: the same pipeline, with the same options, as an estimator's plain parameters.

    fit       X and y -> `model_`, which is what `wf.fit` returns of the same table, and its `posterior_`
    predict   its mean or most probable class; predict_interval, predict_proba, sources and the others say more

X is a frame of pandas or polars, whose columns may hold numbers, text, dates and missing values, or an array of
numbers, whose columns are called x0, x1, and so on.

The order of the rows does not matter, and a sample weight of k is the row given k times.

A pickle holds the networks, and of the rows that they were trained on what predicting takes: inputs, without targets,
from which missing values are drawn, and those that batch normalisation needs. It is code for whoever opens it: to hand
a model to others, save `model_` into a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom import recipes
from wherefrom.likelihoods import ClassPrediction, Prediction
from wherefrom.posterior import Posterior
from wherefrom.predictive.sources import Sources
from wherefrom.tables import frames
from wherefrom.tables.fitting import learn
from wherefrom.tables.looking import How, Looked
from wherefrom.tables.model import Model
from wherefrom.tables.options import Request, as_least
from wherefrom.tables.raw import Coded, Column, Format, RawTable, typed
from wherefrom.tables.target import Target, least_of
from wherefrom.tables.telling import Tell
from wherefrom.training.compute import Compute
from wherefrom.training.data import column_names

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        _check_sample_weight,
        check_consistent_length,
        check_is_fitted,
        validate_data,
    )
except ImportError as error:
    raise ImportError(
        f"scikit-learn's face needs scikit-learn 1.6 or newer: pip install 'wherefrom[sklearn]' ({error})"
    ) from error

Array = NDArray[Any]

_FEWEST_ROWS = 2
_SOURCE = "X"  # what errors call the table


@dataclass(eq=False, repr=False, kw_only=True)
class _Estimator(BaseEstimator):
    """The common part of both estimators. Constructors store; all that is checked is checked in `fit`."""

    over: str | Sequence[Any] | None = field(default=None, kw_only=False)
    draws: int | None = None
    families: str = "auto"
    recipe_settings: Mapping[str, Any] | None = None
    model: Any = None
    hidden: str | int | Sequence[int] | None = None
    activation: str = "relu"
    dropout: float | None = None
    epochs: Any = "auto"
    budget: str | float | None = None
    lr: float | None = None
    batch_size: int | None = None
    weight_decay: float | None = None
    optimiser: Any = "adam"
    optimiser_settings: Mapping[str, Any] | None = None
    standardise: bool = True
    number: Sequence[str] = ()
    text: Sequence[str] = ()
    date: Sequence[str] = ()
    drop: Sequence[str] = ()
    missing: Sequence[str] = ()
    calibrate: str | None = "auto"
    calibrate_on: float | None = None
    held_out: float | None = None
    level: float = 0.95
    samples: int | None = None
    method: Any = "monte_carlo"
    compute: Any = None
    engine: Any = None
    workers: int | None = None
    device: str | None = None
    random_state: Any = None
    verbose: bool = False

    model_: Model = field(init=False)  # by `fit`

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def posterior_(self) -> Posterior:
        """The networks, as `wf.marginalise` returns them."""
        return self.model_.posterior

    @property
    def n_iter_(self) -> int:
        """The epochs that were trained for."""
        return self.posterior_.training.epochs

    # ------------------------------------------------------------------ the pipeline

    def _learn(self, table: RawTable, target: Target, weights: Array | None, groups: Any, **options: Any) -> Self:
        """Learn from a table of X and the target, with weights and groups as further columns."""
        if weights is not None:
            options["weight"] = _free("sample_weight", table)
            table = _with(table, typed(options["weight"], weights, Format()))
        if groups is not None:
            check_consistent_length(table, groups)
            options["group"] = _free("groups", table)
            table = _with(table, *frames.table_of({options["group"]: groups}).columns.values())
        tell: Tell = print if self.verbose else lambda _: None
        request = self._request(target, **options)
        self.model_ = learn(table, request, tell, None if self.verbose else False, self._format, tell, target=target)
        return self

    def _request(self, target: Target, *, label_smoothing: float = 0.0, **others: Any) -> Request:
        if self.calibrate_on is not None and self.held_out is not None:
            raise ValueError("calibrate_on and held_out are two names for the rows that are held out: give one of them")
        decay = {} if self.weight_decay is None else {"weight_decay": self.weight_decay}
        return Request.of(
            target.name,
            **self._marginalised(),
            recipe_settings=dict(self.recipe_settings or {}),
            families=self.families,
            hidden=self.hidden,
            dropout=self.dropout,
            lr=self.lr,
            batch_size=self.batch_size,
            settings={
                "model": self.model,
                "activation": self.activation,
                "optimiser": self.optimiser,
                "optimiser_settings": decay | dict(self.optimiser_settings or {}),
                "standardise": self.standardise,
                "label_smoothing": label_smoothing,
            },
            epochs=self.epochs,
            budget=self.budget,
            number=self.number,
            text=self.text,
            date=self.date,
            drop=self.drop,
            calibrate="none" if self.calibrate is None else self.calibrate,
            held_out=self.held_out if self.calibrate_on is None else self.calibrate_on,
            level=self.level,
            samples=self.samples,
            seed=_seed(self.random_state),
            compute=Compute.of(self.compute),
            device=self.device,
            engine=self.engine,
            workers=self.workers,
            fewest_rows=_FEWEST_ROWS,
            **others,
        )

    def _marginalised(self) -> dict[str, Any]:
        """Return `over` as the pipeline has it: a recipe and its draws, where it has any, or variables."""
        if self.over is None or (isinstance(self.over, str) and "=" not in self.over):
            is_drawn = self.over is None or recipes.BY_NAME.get(self.over) is None or recipes.parameters(self.over)[0]
            return {"recipe": self.over, "draws": self.draws if is_drawn else None}
        return {"over": self.over if isinstance(self.over, str) else tuple(self.over)}

    @property
    def _format(self) -> Format:
        return Format(missing=tuple(self.missing))

    def _table(self, X: Any, *, is_new: bool) -> RawTable:
        """Return X as a table; rows to predict have the columns of `fit`, whatever they are called."""
        if hasattr(X, "columns") and not hasattr(X, "toarray"):
            validate_data(self, X, reset=is_new, skip_check_array=True)
            table = frames.table_of(X, self._format, _SOURCE)
        else:
            x = validate_data(
                self,
                X,
                reset=is_new,
                dtype=(np.float64, np.float32),
                ensure_all_finite="allow-nan",
                ensure_min_samples=_FEWEST_ROWS if is_new else 1,
            )
            table = frames.table_of({f"x{k}": column for k, column in enumerate(x.T)}, self._format, _SOURCE)
        if is_new:
            return table
        names = [rule.name for rule in self.model_.encoder.rules]
        renamed = dict(zip(names, table.columns.values(), strict=True))
        return RawTable(_SOURCE, renamed, table.rows)

    # ------------------------------------------------------------------ prediction

    def sources(self, X: Any) -> Sources:
        """Split the variance of the predictions by its sources, row by row and overall.

        X: the inputs, as for `fit`.
        """
        sources: Sources = self._looked(X).prediction().sources()
        return sources

    def _looked(self, X: Any) -> Looked:
        check_is_fitted(self)
        return self.model_.look(self._table(X, is_new=False), How(samples=self.samples, method=self.method))

    def _by_row(self, X: Any, read: Callable[[Any], Tensor]) -> Array:
        """Read something off each row's prediction, some rows at a time."""
        return self._looked(X).read(lambda prediction: {"": read(prediction).numpy()})[""]


@dataclass(eq=False, repr=False, kw_only=True)
class WherefromRegressor(RegressorMixin, _Estimator):
    """A scikit-learn regressor with its uncertainty and the causes of its doubt: `wf.fit` as an estimator.

    By default, the parameters are chosen by the size of the table and on validation rows, as in `wf.fit`.

    over: the training choices that are treated as uncertain. A recipe's name ("multi_swag", "deep_ensemble", "swag",
        "tradi", "snapshots", "mc_dropout", "hyper_ensemble", "everything", "one_network"), choices such as
        "theta0=5,t=swag,F=dropout", or a list of variables as for `wf.marginalise` (default None: multi_swag, with t
        only if that lowers the NLL).
    draws: networks that a recipe trains for each fold (default None: 3; without folds 5).
    families: kinds of model, such as "network,trees,process" (default "auto": boosted trees and a Gaussian process join
        the networks if they help; only "network" if over, hidden, epochs or model are given).
    recipe_settings: dictionary of other settings of a recipe, such as {"rank": 10} (default None).
    model: a factory of `nn.Module`. If it takes two arguments, it gets the numbers of inputs and outputs (default None:
        an MLP).
    hidden: units of each hidden layer of the MLP, such as [64, 64] (default None: chosen).
    activation: activation of the MLP (default "relu").
    dropout: dropout rate of the MLP (default None: chosen).
    epochs: number of epochs (default "auto": chosen on validation rows).
    budget: approximate time for training, such as "5min" or in seconds: trains as many draws as possible (default
        None).
    lr: learning rate (default None: chosen).
    batch_size: rows of a batch (default None: depends on the number of rows).
    weight_decay: as in `wf.Algorithm` (default None: chosen).
    optimiser: name or class of the optimiser, as in `wf.Algorithm` (default "adam").
    optimiser_settings: dictionary of its other settings (default None).
    standardise: whether X and y are scaled inside (default True).
    number, text, date, drop: names of columns of X of this type, or to leave out (default: types are detected).
    missing: more words for a missing value (default: none).
    calibrate: "auto" (default), "variance", "shape", "conformal", or None.
    calibrate_on: an older name for held_out.
    held_out: share of rows to hold out for calibration and testing (default None: no rows up to 50,000; each row is
        scored by networks that were trained without it).
    level: level of the intervals (default 0.95).
    samples: samples of each network (default None: 500 from all together, and at least 20 of each).
    method: "monte_carlo" (default), "one_shot" or "auto", as in `wf.Posterior.predict`.
    compute: where and how to compute, a `wf.Compute` (default None).
    engine, workers, device: fields of `compute` by name (default None: those of `compute`).
    random_state: a number makes `fit` repeatable; None draws a new seed (default None). Predictions are always
        repeatable.
    verbose: whether `fit` prints what it does (default False).
    noise: how y varies around the prediction: "auto" (default), "fit", "predicted", None, or a standard deviation.
    least: the lowest possible value of y, where intervals end; None, or "auto" (default: 0 if no value of 100 or more
        rows is negative).
    likelihood: the distribution of y, "gaussian", "student", "positive" or "counts" (default "auto": chosen on
        validation rows; if y has several columns, "gaussian").

    After `fit`: `model_`, the `wf.Model` with its scores, notes and report, `posterior_`, `n_iter_` (epochs),
    `n_features_in_`, and `feature_names_in_` if X had names.

    >>> import numpy as np
    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> y = X[:, 0] ** 2 + 0.1 * np.random.default_rng(0).normal(size=100)
    >>> regressor = WherefromRegressor("deep_ensemble", draws=3, epochs=60, random_state=0).fit(X, y)
    >>> mean, std = regressor.predict(X, return_std=True)
    >>> regressor.predict_interval(X, 0.9).shape
    (100, 2)
    >>> regressor.sources(X).names
    ('theta0+order', 'D', 'theta0+order x D', 'noise', 'outside')
    """

    noise: Any = "auto"
    least: Any = "auto"
    likelihood: str = "auto"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Learn from X and y, one column or several.

        X: the inputs: a frame, or an array of numbers.
        y: what to predict.
        sample_weight: a weight for each row; a weight of k is the row k times (default: 1).
        groups: one entry for each row; rows with the same entry are trained on, or left out, together (default: none).
        """
        values = validate_data(self, "no_validation", y, multi_output=True, y_numeric=True)
        values = np.asarray(values, dtype=np.float64)
        table = self._table(X, is_new=True)
        check_consistent_length(table, values)
        names = column_names(y) if values.ndim == 2 else (getattr(y, "name", None),)
        names = names or (None,) * values.shape[1]
        for name, column in zip(names, values.reshape(len(values), -1).T, strict=True):
            called = _free(name if isinstance(name, str) else "y", table)
            table = _with(table, typed(called, column, Format()))
        several = tuple(table.columns)[-len(names) :]
        least = least_of(values, as_least(self.least), several[0])
        target = Target(several[0], "regression", why="as asked", least=least, several=several * (values.ndim == 2))
        options = {"noise": self.noise, "least": self.least, "likelihood": self.likelihood}
        return self._learn(table, target, _weights(sample_weight, table), groups, **options)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean at each row, of y's shape.

        X: the rows to predict.
        return_std: also return the standard deviation (default False).
        """
        if not return_std:
            return self._by_row(X, lambda prediction: prediction.mean)
        both = self._by_row(X, lambda prediction: torch.stack([prediction.mean, prediction.std], 1))
        return both[:, 0], both[:, 1]

    def predict_interval(self, X: Any, level: float | None = None, reading: Any = None) -> Array:
        """Return the ends of the interval that contains y with this probability.  # (rows, 2[, outputs])

        X: the rows to predict.
        level: the probability (default: the estimator's own).
        reading: as in `wf.Prediction.interval`, such as "mixture" for the ends of the mixture itself.
        """
        level = self.level if level is None else level

        def ends(prediction: Prediction) -> Tensor:
            if reading is not None:
                return torch.stack(prediction.interval(level, reading), 1)
            columns, _ = prediction.columns(level)  # conformal, where rows are enough for the level
            return torch.from_numpy(np.stack([columns["lower"], columns["upper"]], 1))

        return self._by_row(X, ends)

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95), reading: Any = None) -> Array:
        """Return the values below which y falls with these probabilities.  # (rows, quantiles[, outputs])

        X: the rows to predict.
        quantiles: the probabilities (default: 0.05, 0.5 and 0.95).
        reading: as in `wf.Prediction.quantile`.
        """
        how = {} if reading is None else {"reading": reading}
        return self._by_row(X, lambda prediction: torch.stack([prediction.quantile(q, **how) for q in quantiles], 1))

    def predict_dist(self, X: Any) -> Prediction:
        """Return the whole prediction of these rows: moments, intervals, densities, scores, sources.

        X: the rows to predict.
        """
        prediction: Prediction = self._looked(X).prediction()
        return prediction


@dataclass(eq=False, repr=False, kw_only=True)
class WherefromClassifier(ClassifierMixin, _Estimator):
    """A scikit-learn classifier with its uncertainty and the causes of its doubt: `wf.fit` as an estimator.

    over: the training choices that are treated as uncertain. A recipe's name ("multi_swag", "deep_ensemble", "swag",
        "tradi", "snapshots", "mc_dropout", "hyper_ensemble", "everything", "one_network"), choices such as
        "theta0=5,t=swag,F=dropout", or a list of variables as for `wf.marginalise` (default None: multi_swag, with t
        only if that lowers the NLL).
    draws: networks that a recipe trains for each fold (default None: 3; without folds 5).
    families: kinds of model, such as "network,trees,process" (default "auto": boosted trees and a Gaussian process join
        the networks if they help; only "network" if over, hidden, epochs or model are given).
    recipe_settings: dictionary of other settings of a recipe, such as {"rank": 10} (default None).
    model: a factory of `nn.Module`. If it takes two arguments, it gets the numbers of inputs and outputs (default None:
        an MLP).
    hidden: units of each hidden layer of the MLP, such as [64, 64] (default None: chosen).
    activation: activation of the MLP (default "relu").
    dropout: dropout rate of the MLP (default None: chosen).
    epochs: number of epochs (default "auto": chosen on validation rows).
    budget: approximate time for training, such as "5min" or in seconds: trains as many draws as possible (default
        None).
    lr: learning rate (default None: chosen).
    batch_size: rows of a batch (default None: depends on the number of rows).
    weight_decay: as in `wf.Algorithm` (default None: chosen).
    optimiser: name or class of the optimiser, as in `wf.Algorithm` (default "adam").
    optimiser_settings: dictionary of its other settings (default None).
    standardise: whether X and y are scaled inside (default True).
    number, text, date, drop: names of columns of X of this type, or to leave out (default: types are detected).
    missing: more words for a missing value (default: none).
    calibrate: "auto" (default), "temperature", "conformal", or None.
    calibrate_on: an older name for held_out.
    held_out: share of rows to hold out for calibration and testing (default None: no rows up to 50,000; each row is
        scored by networks that were trained without it).
    level: level of the intervals (default 0.95).
    samples: samples of each network (default None: 500 from all together, and at least 20 of each).
    method: "monte_carlo" (default), "one_shot" or "auto", as in `wf.Posterior.predict`.
    compute: where and how to compute, a `wf.Compute` (default None).
    engine, workers, device: fields of `compute` by name (default None: those of `compute`).
    random_state: a number makes `fit` repeatable; None draws a new seed (default None). Predictions are always
        repeatable.
    verbose: whether `fit` prints what it does (default False).
    label_smoothing: as in `wf.Classification` (default 0).
    class_weight: a dictionary from label to weight, or "balanced", which makes all classes count the same (default
        None).

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

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Learn from X and the labels y.

        X: the inputs: a frame, or an array of numbers.
        y: what to predict.
        sample_weight: a weight for each row; a weight of k is the row k times (default: 1).
        groups: one entry for each row; rows with the same entry are trained on, or left out, together (default: none).
        """
        labels = validate_data(self, "no_validation", y)
        table = self._table(X, is_new=True)
        check_consistent_length(table, labels)
        check_classification_targets(labels)
        weights = _weights(sample_weight, table)
        self.classes_ = np.unique(labels if weights is None else labels[weights > 0])
        if len(self.classes_) < 2:
            raise ValueError(f"y holds 1 class, {self.classes_[0]!r}: to tell classes apart, it takes rows of two")
        codes = np.searchsorted(self.classes_, labels).clip(max=len(self.classes_) - 1).astype(np.int32)
        classes = tuple(_plain(label) for label in self.classes_.tolist())
        name = _free(name if isinstance(name := getattr(y, "name", None), str) else "y", table)
        table = _with(table, Column(name, Coded(codes, tuple(map(str, classes)))))
        target = Target(name, "classification", classes, "as asked")
        options = {"label_smoothing": self.label_smoothing, "class_weight": _plain_keys(self.class_weight)}
        return self._learn(table, target, weights, groups, **options)

    def predict(self, X: Any) -> Array:
        """Return the most probable class of each row.

        X: the rows to predict.
        """
        chosen = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[chosen])

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class.  # (rows, classes)

        X: the rows to predict.
        """
        probabilities = self._by_row(X, lambda prediction: prediction.probabilities)
        return probabilities / probabilities.sum(1, keepdims=True)  # the softmax is in single precision

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of the probability of each class.  # (rows, classes)

        X: the rows to predict.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict_dist(self, X: Any) -> ClassPrediction:
        """Return the whole prediction of these rows: probabilities, entropy, scores, sources.

        X: the rows to predict.
        """
        prediction: ClassPrediction = self._looked(X).prediction()
        return prediction


def _seed(random_state: Any) -> int:
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _weights(given: Any, table: RawTable) -> Array | None:
    if given is None:
        return None
    weights: Array = _check_sample_weight(given, table, dtype=np.float64, ensure_non_negative=True)
    if not (weights > 0).any():
        raise ValueError("all sample weights are zero: there is nothing to learn from")
    return weights


def _free(name: str, table: RawTable) -> str:
    """Return a name that no column has."""
    while name in table.columns:
        name += "_"
    return name


def _with(table: RawTable, column: Column) -> RawTable:
    return RawTable(_SOURCE, {**table.columns, column.name: column}, table.rows)


def _plain(label: Any) -> Any:
    """A label as the library has them: words, whole numbers, true and false."""
    return int(label) if isinstance(label, float) and label.is_integer() else label


def _plain_keys(class_weight: Any) -> Any:
    if not isinstance(class_weight, Mapping):
        return class_weight
    return {_plain(label): weight for label, weight in class_weight.items()}
