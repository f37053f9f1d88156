"""Likelihoods, one for each kind of y: quantities, classes, counts. Each is one file, and one line here."""

from __future__ import annotations

from wherefrom.likelihoods.classification import Classification, ClassPrediction
from wherefrom.likelihoods.counts import CountPrediction, Counts
from wherefrom.likelihoods.likelihood import Likelihood, Predictive, TableWishes
from wherefrom.likelihoods.regression import Prediction, Regression

LIKELIHOODS: dict[str, type[Likelihood]] = {
    likelihood.task: likelihood
    for likelihood in (
        Regression,
        Classification,
        Counts,
    )
}

__all__ = [
    "LIKELIHOODS",
    "ClassPrediction",
    "Classification",
    "CountPrediction",
    "Counts",
    "Likelihood",
    "Prediction",
    "Predictive",
    "Regression",
    "TableWishes",
]
