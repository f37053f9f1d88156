"""Numbers by which the kernel knows operations, losses and optimisers. (Numba is not needed to read them.)"""

from __future__ import annotations

import math

from wherefrom.training.losses import CrossEntropy, GaussianNLL, SquaredError

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

SQUARED_ERROR, GAUSSIAN, CROSS_ENTROPY = range(3)
LOSSES: dict[type, int] = {SquaredError: SQUARED_ERROR, GaussianNLL: GAUSSIAN, CrossEntropy: CROSS_ENTROPY}

SGD, ADAM, ADAMW = range(3)
OPTIMISERS = {"sgd": SGD, "adam": ADAM, "adamw": ADAMW}

# Columns of a member's settings.
LR, WEIGHT_DECAY, MOMENTUM, NESTEROV, BETA1, BETA2, EPS, CLIP = range(8)
SETTINGS = ("lr", "weight_decay", "momentum", "nesterov", "beta1", "beta2", "eps", "clip")
WITHOUT = dict.fromkeys(SETTINGS, 0.0) | {"clip": math.inf}  # where an optimiser, or a member, has none
