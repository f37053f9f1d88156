"""The random variables of training: F, theta0, gamma, h, order, D and t, and designs over them."""

from wherefrom.variables.algorithm import Algorithms, BatchOrder, Hyperparameters, LogUniform
from wherefrom.variables.data import Folds, Resample
from wherefrom.variables.design import Axis, Design, Jointly, Run
from wherefrom.variables.drawn import Drawn
from wherefrom.variables.family import Dropout, Families, MLPs
from wherefrom.variables.finite import Finite
from wherefrom.variables.initial_condition import InitialCondition, glorot_uniform
from wherefrom.variables.iterations import Iterations

__all__ = [
    "Algorithms",
    "Axis",
    "BatchOrder",
    "Design",
    "Drawn",
    "Dropout",
    "Families",
    "Finite",
    "Folds",
    "Hyperparameters",
    "InitialCondition",
    "Iterations",
    "Jointly",
    "LogUniform",
    "MLPs",
    "Resample",
    "Run",
    "glorot_uniform",
]
