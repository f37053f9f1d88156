"""Other libraries, as a competent user runs them: early stopping on 15% of the training rows (by group), one thread.

    CatBoost    RMSEWithUncertainty, a Gaussian for each row; its mean, which stops early with its variance, may be
                replaced by that of a model of the mean (RMSE), with the std times a factor, whichever has the lower NLL
                on the rows of early stopping; text as categories; up to 2,000 trees at rate 0.03
    LightGBM    a Gaussian around a model of the mean, whose std is that of the residuals or proportional to the width
                between quantile models, whichever has the lower NLL on the rows of early stopping; the interval is that
                of the quantile models at 2.5% and 97.5%
    NGBoost     Normal, or k categories; up to 2,000 trees at rate 0.03, on the matrix of `encoding.py`
    GP          scikit-learn's: Matern 5/2 and white noise; kernel fitted on 500 rows, then conditioned on up to 3,000;
                a length scale for each column up to 20 columns; classes only up to 4,000 rows times classes, with one
                length scale, which is better there

Quantities are standardised before training, and predictions are scaled back.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tabular.answers import Answer, Classes, Numbers, Quantities, Skipped
from tabular.encoding import Matrix, as_levels, text_columns
from tabular.sets import Integers, Problem

TREES, RATE, PATIENCE, ASIDE = 2000, 0.03, 100, 0.15
KERNEL_ROWS, GP_ROWS, GP_COLUMNS, GP_CLASS_ROWS = 500, 3000, 20, 4000

Raw = tuple[Any, ...]  # what a model says of the test rows: mean and std (and an interval), or probabilities
Fit = Callable[[Problem, Integers, int], Callable[[Integers], Raw]]  # training rows, seed -> test rows -> answer


def run(fit: Fit, problem: Problem, train: Integers, test: Integers, seed: int) -> tuple[Answer, float, float]:
    """Train and predict on a standardised target, and return the answer in the target's units."""
    warnings.simplefilter("ignore")
    began = time.process_time()
    predict = fit(problem, train, seed)
    fitted = time.process_time()
    raw = predict(test)
    done = time.process_time()
    if problem.labels:
        return Classes(np.asarray(raw[0], dtype=np.float64)), fitted - began, done - fitted
    shift, scale = _scale(problem, train)
    mean, std, *interval = (np.asarray(part, dtype=np.float64) for part in raw)
    ends = (shift + scale * end for end in interval)
    return Quantities.gaussian(shift + scale * mean, scale * std, *ends), fitted - began, done - fitted


def catboost(problem: Problem, train: Integers, seed: int) -> Callable[[Integers], Raw]:
    from catboost import CatBoostClassifier, CatBoostRegressor, Pool

    frame, y = as_levels(problem.inputs), _target(problem, train)
    categories = text_columns(frame)
    kept, aside = _split(problem, train, seed)
    pools = [Pool(frame.iloc[rows], y[rows], cat_features=categories) for rows in (kept, aside)]
    settings = dict(
        iterations=TREES,
        learning_rate=RATE,
        early_stopping_rounds=PATIENCE,
        thread_count=1,
        random_seed=seed,
        verbose=False,
        allow_writing_files=False,
    )
    if problem.labels:
        loss = "Logloss" if len(problem.labels) == 2 else "MultiClass"
        model = CatBoostClassifier(loss_function=loss, **settings).fit(pools[0], eval_set=pools[1])
        return lambda rows: (_all_classes(problem, model.classes_, model.predict_proba(frame.iloc[rows])),)
    both, centre = (
        CatBoostRegressor(loss_function=loss, **settings).fit(pools[0], eval_set=pools[1])
        for loss in ("RMSEWithUncertainty", "RMSE")
    )

    def gaussian(rows: Integers) -> tuple[Numbers, Numbers]:
        mean, variance = both.predict(frame.iloc[rows], prediction_type="RMSEWithUncertainty").T
        return mean, np.sqrt(variance)

    mean, std = gaussian(aside)
    times = float(np.sqrt(np.mean(((y[aside] - centre.predict(frame.iloc[aside])) / std) ** 2)))
    has_other_centre = np.log(times) + 0.5 < np.mean((y[aside] - mean) ** 2 / std**2) / 2  # of Gaussian NLLs

    def predict(rows: Integers) -> Raw:
        mean, std = gaussian(rows)
        return (centre.predict(frame.iloc[rows]), times * std) if has_other_centre else (mean, std)

    return predict


def lightgbm(problem: Problem, train: Integers, seed: int) -> Callable[[Integers], Raw]:
    from lightgbm import LGBMClassifier, LGBMRegressor, early_stopping

    frame, y = as_levels(problem.inputs), _target(problem, train)
    frame = frame.assign(**{name: frame[name].astype("category") for name in text_columns(frame)})
    frame.columns = [f"column {k}" for k in range(frame.shape[1])]  # it refuses some characters in names
    kept, aside = _split(problem, train, seed)

    def trained(make: Callable[..., Any], **more: Any) -> Any:
        settings = dict(n_estimators=TREES, learning_rate=RATE, num_leaves=15, min_child_samples=10, subsample=0.8)
        settings |= dict(subsample_freq=1, colsample_bytree=0.8, n_jobs=1, random_state=seed, verbosity=-1)
        model = make(**settings, **more)
        rounds = early_stopping(PATIENCE, verbose=False)
        return model.fit(frame.iloc[kept], y[kept], eval_set=[(frame.iloc[aside], y[aside])], callbacks=[rounds])

    if problem.labels:
        model = trained(LGBMClassifier)
        return lambda rows: (_all_classes(problem, model.classes_, model.predict_proba(frame.iloc[rows])),)
    centre = trained(LGBMRegressor)
    low, high = (trained(LGBMRegressor, objective="quantile", alpha=alpha) for alpha in (0.025, 0.975))

    def ends(rows: Integers) -> tuple[Numbers, Numbers]:
        both = np.stack([model.predict(frame.iloc[rows]) for model in (low, high)])
        return both.min(0), both.max(0)

    def width(rows: Integers) -> Numbers:
        below, above = ends(rows)
        return np.maximum(above - below, 0.05 * typical)

    residuals = y[aside] - centre.predict(frame.iloc[aside])
    below, above = ends(aside)
    typical = float(np.mean(above - below)) or 1.0
    spread = float(np.sqrt(np.mean(residuals**2)))
    times = float(np.sqrt(np.mean((residuals / width(aside)) ** 2)))
    by_width = np.log(spread) > np.mean(np.log(times * width(aside)))  # of Gaussian NLLs; their squares are alike

    def predict(rows: Integers) -> Raw:
        std = times * width(rows) if by_width else np.full(len(rows), spread)
        return centre.predict(frame.iloc[rows]), std, *ends(rows)

    return predict


def ngboost(problem: Problem, train: Integers, seed: int) -> Callable[[Integers], Raw]:
    from ngboost import NGBClassifier, NGBRegressor
    from ngboost.distns import Bernoulli, Normal, k_categorical

    inputs, y = problem.inputs, _target(problem, train)
    matrix = Matrix.of(inputs.iloc[train])
    kept, aside = _split(problem, train, seed)
    settings = dict(n_estimators=TREES, learning_rate=RATE, verbose=False, random_state=seed)
    if problem.labels:
        count = len(problem.labels)
        model = NGBClassifier(Dist=Bernoulli if count == 2 else k_categorical(count), **settings)
        y = y.astype(int)
    else:
        model = NGBRegressor(Dist=Normal, **settings)
    x, x_aside = matrix(inputs.iloc[kept]), matrix(inputs.iloc[aside])
    model.fit(x, y[kept], X_val=x_aside, Y_val=y[aside], early_stopping_rounds=PATIENCE)
    best = model.best_val_loss_itr

    def predict(rows: Integers) -> Raw:
        new = matrix(inputs.iloc[rows])
        if problem.labels:
            return (model.predict_proba(new, max_iter=best),)
        answer = model.pred_dist(new, max_iter=best)
        return answer.loc, answer.scale

    return predict


def gaussian_process(problem: Problem, train: Integers, seed: int) -> Callable[[Integers], Raw]:
    from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    inputs, y = problem.inputs, _target(problem, train)
    matrix = Matrix.of(inputs.iloc[train])
    order = np.random.default_rng(seed).permutation(train)
    some = order[:KERNEL_ROWS]
    x = matrix(inputs.iloc[some])
    columns = x.shape[1]
    has_many_scales = columns <= GP_COLUMNS and not problem.labels
    scales = np.full(columns if has_many_scales else 1, np.sqrt(columns))
    kernel = ConstantKernel() * Matern(scales, (0.05, 1e4), nu=2.5)
    if problem.labels:
        if len(train) * len(problem.labels) > GP_CLASS_ROWS:
            raise Skipped(f"{len(train)} rows x {len(problem.labels)} classes")
        x = matrix(inputs.iloc[train])
        model = GaussianProcessClassifier(kernel, random_state=seed).fit(x, y[train].astype(int))
        return lambda rows: (_all_classes(problem, model.classes_, model.predict_proba(matrix(inputs.iloc[rows]))),)
    kernel += WhiteKernel(0.1, (1e-6, 1e1))
    fitted = GaussianProcessRegressor(kernel, random_state=seed).fit(x, y[some]).kernel_
    rows = order[:GP_ROWS]
    model = GaussianProcessRegressor(fitted, optimizer=None, alpha=1e-8).fit(matrix(inputs.iloc[rows]), y[rows])
    return lambda rows: model.predict(matrix(inputs.iloc[rows]), return_std=True)


# ---------------------------------------------------------------------- data


def _scale(problem: Problem, train: Integers) -> tuple[float, float]:
    if problem.labels:
        return 0.0, 1.0
    return float(problem.y[train].mean()), float(problem.y[train].std()) or 1.0


def _target(problem: Problem, train: Integers) -> Numbers:
    shift, scale = _scale(problem, train)
    return (problem.y - shift) / scale


def _split(problem: Problem, train: Integers, seed: int) -> tuple[Integers, Integers]:
    """The training rows that are kept, and those of early stopping: whole groups, and every class among the kept."""
    random = np.random.default_rng(seed)
    groups = random.permutation(np.unique(problem.groups[train]))
    if problem.labels and problem.about.group is None:
        classes = problem.y[groups]
        chosen = np.concatenate([(some := groups[classes == k])[: int(ASIDE * len(some))] for k in np.unique(classes)])
    else:
        chosen = groups[: max(1, round(ASIDE * len(groups)))]
    is_aside = np.isin(problem.groups[train], chosen)
    return train[~is_aside], train[is_aside]


def _all_classes(problem: Problem, present: Any, probabilities: Numbers) -> Numbers:
    """Probabilities of all classes, from those of the classes that training saw."""
    answer = np.zeros((len(probabilities), len(problem.labels)))
    answer[:, np.asarray(present, dtype=int)] = probabilities
    return answer
