"""Likelihoods, one for each kind of y: quantities, classes, counts, levels, ... Each is one file, and one line here."""

from __future__ import annotations

from wherefrom.likelihoods.classification import Classification, ClassPrediction
from wherefrom.likelihoods.counts import CountPrediction, Counts
from wherefrom.likelihoods.likelihood import Likelihood, Predictive, TableWishes
from wherefrom.likelihoods.ordinal import Ordinal, OrdinalPrediction
from wherefrom.likelihoods.own import OwnLikelihood, OwnPrediction
from wherefrom.likelihoods.positive import Positive
from wherefrom.likelihoods.positive_prediction import PositivePrediction
from wherefrom.likelihoods.quantiles import QuantilePrediction, Quantiles
from wherefrom.likelihoods.regression import Regression
from wherefrom.likelihoods.regression_prediction import Prediction
from wherefrom.likelihoods.several import Several, SeveralPrediction
from wherefrom.likelihoods.survival import Survival
from wherefrom.likelihoods.survival_prediction import SurvivalPrediction

LIKELIHOODS: dict[str, type[Likelihood]] = {
    likelihood.task: likelihood
    for likelihood in (
        Regression,
        Classification,
        Counts,
        Positive,
        Ordinal,
        Quantiles,
        Survival,
    )
}

__all__ = [
    "LIKELIHOODS",
    "ClassPrediction",
    "Classification",
    "CountPrediction",
    "Counts",
    "Likelihood",
    "Ordinal",
    "OrdinalPrediction",
    "OwnLikelihood",
    "OwnPrediction",
    "Positive",
    "PositivePrediction",
    "Prediction",
    "Predictive",
    "QuantilePrediction",
    "Quantiles",
    "Regression",
    "Several",
    "SeveralPrediction",
    "Survival",
    "SurvivalPrediction",
    "TableWishes",
]
