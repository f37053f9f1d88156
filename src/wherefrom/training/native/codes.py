"""Numbers by which the kernel knows operations, losses and optimisers. (Numba is not needed to read them.)"""

from __future__ import annotations

import math

from wherefrom.training.losses import (
    CrossEntropy,
    GaussianNLL,
    HurdleError,
    HurdleNLL,
    NegativeBinomialNLL,
    OrdinalNLL,
    Pinball,
    PoissonNLL,
    SquaredError,
    StudentError,
    StudentNLL,
)
from wherefrom.training.negative_binomial import PredictedDispersionNLL, ZeroInflatedNLL
from wherefrom.training.survival import LogLogisticNLL, LogNormalNLL, WeibullNLL

RELU, LEAKY_RELU, TANH, SILU, GELU, GELU_TANH, SOFTPLUS, DROPOUT = range(8)
OPERATIONS = {
    "relu": RELU,
    "leaky_relu": LEAKY_RELU,
    "tanh": TANH,
    "silu": SILU,
    "gelu": GELU,
    "gelu_tanh": GELU_TANH,
    "softplus": SOFTPLUS,
    "dropout": DROPOUT,
}

SQUARED_ERROR, GAUSSIAN, CROSS_ENTROPY, STUDENT_ERROR, STUDENT, HURDLE_ERROR, HURDLE = range(7)
POISSON, NEGATIVE_BINOMIAL, ORDINAL, PINBALL, WEIBULL, LOGNORMAL, LOGLOGISTIC = range(7, 14)
DISPERSED, ZERO_INFLATED = range(14, 16)
LOSSES: dict[type, int] = {
    SquaredError: SQUARED_ERROR,
    GaussianNLL: GAUSSIAN,
    CrossEntropy: CROSS_ENTROPY,
    StudentError: STUDENT_ERROR,
    StudentNLL: STUDENT,
    HurdleError: HURDLE_ERROR,
    HurdleNLL: HURDLE,
    PoissonNLL: POISSON,
    NegativeBinomialNLL: NEGATIVE_BINOMIAL,
    OrdinalNLL: ORDINAL,
    Pinball: PINBALL,
    WeibullNLL: WEIBULL,
    LogNormalNLL: LOGNORMAL,
    LogLogisticNLL: LOGLOGISTIC,
    PredictedDispersionNLL: DISPERSED,
    ZeroInflatedNLL: ZERO_INFLATED,
}

SGD, ADAM, ADAMW, LANGEVIN, IVON = range(5)
OPTIMISERS = {"sgd": SGD, "adam": ADAM, "adamw": ADAMW, "sgld": LANGEVIN, "sghmc": LANGEVIN, "ivon": IVON}

# Columns of a member's settings.
LR, WEIGHT_DECAY, MOMENTUM, NESTEROV, BETA1, BETA2, EPS, CLIP = range(8)
TEMPERATURE, PRECONDITIONED, ALPHA, NOISE_BELOW, HESS_INIT, CLIP_RADIUS = range(8, 14)
SETTINGS = (
    *("lr", "weight_decay", "momentum", "nesterov", "beta1", "beta2", "eps", "clip"),
    *("temperature", "preconditioned", "alpha", "noise_below", "hess_init", "clip_radius"),
)
WITHOUT = dict.fromkeys(SETTINGS, 0.0) | {"clip": math.inf}  # where an optimiser, or a member, has none
