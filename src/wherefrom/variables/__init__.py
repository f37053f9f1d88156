"""The random variables of training: t, theta0, the algorithm and the family, and designs over them."""

from wherefrom.variables.algorithm import BatchOrder, Hyperparameters
from wherefrom.variables.design import SAMPLED, Axis, Design, Jointly, Run
from wherefrom.variables.family import Dropout
from wherefrom.variables.initial_condition import InitialCondition, glorot_uniform
from wherefrom.variables.iterations import Iterations

__all__ = [
    "SAMPLED",
    "Axis",
    "BatchOrder",
    "Design",
    "Dropout",
    "Hyperparameters",
    "InitialCondition",
    "Iterations",
    "Jointly",
    "Run",
    "glorot_uniform",
]
