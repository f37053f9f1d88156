"""How sure a neural network is, and where its doubt comes from.

    import wherefrom as wf

Names are imported when they are first used, so that `import wherefrom` and `wherefrom --help` do not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from wherefrom import recipes
    from wherefrom.estimators import WherefromClassifier, WherefromRegressor
    from wherefrom.laws import SWAG, TRADI, Snapshots
    from wherefrom.likelihoods import Classification, Counts, Regression
    from wherefrom.likelihoods.classification import ClassPrediction
    from wherefrom.likelihoods.regression import Prediction
    from wherefrom.own_loop import callbacks
    from wherefrom.own_loop.recorder import Recorder
    from wherefrom.posterior import DivergedError, Posterior
    from wherefrom.posterior.marginalise import marginalise, marginalise_folds
    from wherefrom.posterior.point import Algorithm, Training
    from wherefrom.posterior.store import load
    from wherefrom.predictive import one_shot
    from wherefrom.predictive.advice import Advice
    from wherefrom.predictive.calibration import Conformal, Temperature, VarianceScale
    from wherefrom.predictive.sources import Sources
    from wherefrom.training import augmentation as augment
    from wherefrom.training import schedules
    from wherefrom.training.checkpoints import Checkpoints
    from wherefrom.training.compute import Compute
    from wherefrom.training.mlp import MLP
    from wherefrom.variables import (
        Algorithms,
        BatchOrder,
        Dropout,
        Families,
        Hyperparameters,
        InitialCondition,
        Iterations,
        Jointly,
        LogUniform,
        MLPs,
        Resample,
        glorot_uniform,
    )

_HOMES = {
    "wherefrom.estimators": ("WherefromClassifier", "WherefromRegressor"),
    "wherefrom.predictive.calibration": ("Conformal", "Temperature", "VarianceScale"),
    "wherefrom.laws": ("SWAG", "TRADI", "Snapshots"),
    "wherefrom.likelihoods": ("Classification", "Counts", "Regression"),
    "wherefrom.own_loop.recorder": ("Recorder",),
    "wherefrom.posterior.marginalise": ("marginalise", "marginalise_folds"),
    "wherefrom.posterior": ("DivergedError", "Posterior"),
    "wherefrom.predictive.advice": ("Advice",),
    "wherefrom.likelihoods.classification": ("ClassPrediction",),
    "wherefrom.likelihoods.regression": ("Prediction",),
    "wherefrom.predictive.sources": ("Sources",),
    "wherefrom.posterior.store": ("load",),
    "wherefrom.training.checkpoints": ("Checkpoints",),
    "wherefrom.training.compute": ("Compute",),
    "wherefrom.training.mlp": ("MLP",),
    "wherefrom.posterior.point": ("Algorithm", "Training"),
    "wherefrom.variables": (
        "Algorithms",
        "BatchOrder",
        "Dropout",
        "Families",
        "Hyperparameters",
        "InitialCondition",
        "Iterations",
        "Jointly",
        "LogUniform",
        "MLPs",
        "Resample",
        "glorot_uniform",
    ),
}
_MODULES = {
    "augment": "wherefrom.training.augmentation",
    "callbacks": "wherefrom.own_loop.callbacks",
    "recipes": "wherefrom.recipes",
    "one_shot": "wherefrom.predictive.one_shot",
    "schedules": "wherefrom.training.schedules",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022 - in the order in which a user meets them
    "Training",
    "Algorithm",
    "Regression",
    "Classification",
    "Counts",
    "marginalise",
    "marginalise_folds",
    "Compute",
    "Checkpoints",
    "InitialCondition",
    "Iterations",
    "SWAG",
    "TRADI",
    "Snapshots",
    "Hyperparameters",
    "LogUniform",
    "Algorithms",
    "schedules",
    "augment",
    "BatchOrder",
    "Families",
    "MLP",
    "MLPs",
    "Dropout",
    "Resample",
    "Jointly",
    "glorot_uniform",
    "recipes",
    "Posterior",
    "Recorder",
    "callbacks",
    "Prediction",
    "ClassPrediction",
    "one_shot",
    "Sources",
    "Advice",
    "VarianceScale",
    "Temperature",
    "Conformal",
    "DivergedError",
    "load",
    "WherefromRegressor",
    "WherefromClassifier",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _HOME_OF:
        raise AttributeError(f"module 'wherefrom' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
