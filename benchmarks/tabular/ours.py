"""This library with its defaults: the command's `wf.fit`, and the estimators for scikit-learn, on frames as they are.

`before` is the same code in an interpreter that imports another version of the library.
"""

from __future__ import annotations

import math
import time
import warnings

import numpy as np

import wherefrom as wf
from tabular.answers import LEVEL, Answer, Claim, Classes, Numbers, Quantities
from tabular.sets import Integers, Problem


def command(problem: Problem, train: Integers, test: Integers, seed: int) -> tuple[Answer, float, float]:
    """`wf.fit` and `predict` on the frame as it is."""
    warnings.simplefilter("ignore")
    frame, target = problem.frame, problem.target
    task = "classification" if problem.labels else "regression"
    began = time.process_time()
    model = wf.fit(frame.iloc[train], target, task=task, group=problem.about.group, level=LEVEL, seed=seed, workers=1)
    fitted = time.process_time()
    answers = model.predict(frame.iloc[test].drop(columns=target))
    done = time.process_time()
    if problem.labels:
        columns = [name for name in answers if name.startswith("p_")]  # in the order of the classes that were seen
        probabilities = np.zeros((len(test), len(problem.labels)))
        seen = np.unique(problem.y[train]).astype(int)
        probabilities[:, seen] = np.column_stack([answers[name] for name in columns])
        return Classes(probabilities, _claim(model)), fitted - began, done - fitted
    looked = model.look(frame.iloc[test])
    printed, y = looked.predicted.scores, problem.y[test]
    if hasattr(looked.predicted, "by_row"):
        nll, crps = (np.asarray(looked.predicted.by_row[name]) for name in ("nll", "crps"))
    else:  # of earlier versions
        prediction = model.posterior.predict(looked.encoded, model.samples)
        nll, crps = (np.asarray(score(y, by_row=True)) for score in (prediction.nll, prediction.crps))
    if not np.isclose(nll.mean(), printed["NLL"], rtol=1e-3, atol=1e-3):
        raise ValueError(f"the NLL by row has mean {nll.mean():.4g}, but model.score prints {printed['NLL']:.4g}")
    mean, lower, upper = (answers[name].to_numpy(dtype=np.float64) for name in ("mean", "lower", "upper"))
    answer = Quantities(mean, lower, upper, nll=nll, crps=crps, claim=_claim(model))
    return answer, fitted - began, done - fitted


def estimator(problem: Problem, train: Integers, test: Integers, seed: int) -> tuple[Answer, float, float]:
    """`wf.WherefromRegressor` or `wf.WherefromClassifier`."""
    warnings.simplefilter("ignore")
    inputs = problem.inputs
    began = time.process_time()
    x, new = inputs.iloc[train], inputs.iloc[test]
    y = problem.y[train]
    make = wf.WherefromClassifier if problem.labels else wf.WherefromRegressor
    groups = problem.groups[train] if problem.about.group else None
    fitted_model = make(random_state=seed, workers=1).fit(x, y.astype(int) if problem.labels else y, groups=groups)
    fitted = time.process_time()
    if problem.labels:
        probabilities = np.zeros((len(test), len(problem.labels)))
        probabilities[:, fitted_model.classes_] = fitted_model.predict_proba(new)
        return Classes(probabilities), fitted - began, time.process_time() - fitted
    prediction = fitted_model.predict_dist(new)
    mean = _numbers(prediction.mean)
    lower, upper = map(_numbers, prediction.interval(LEVEL))
    done = time.process_time()
    nll, crps = (np.asarray(score(problem.y[test], by_row=True)) for score in (prediction.nll, prediction.crps))
    return Quantities(mean, lower, upper, nll=nll, crps=crps), fitted - began, done - fitted


def _claim(model: wf.Model) -> Claim:
    """The NLL that `fit` prints, of rows that each fold left out."""
    return Claim(model.scores["NLL"], model.scores.errors.get("NLL", math.nan))


def _numbers(values: object) -> Numbers:
    return np.asarray(values, dtype=np.float64).reshape(-1)
