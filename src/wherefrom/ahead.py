"""Compilation ahead of the first use: every kernel is called once, on a few rows, and what numba makes of it is kept.

The result is kept in the user's cache for this processor, this numba and these sources (see
training/native/compiling.py). Later processes load it.
"""

from __future__ import annotations

import importlib.util

import torch

from wherefrom.laws import SWAG
from wherefrom.likelihoods import Regression
from wherefrom.posterior.marginalise import marginalise
from wherefrom.posterior.point import Training
from wherefrom.training.algorithm import Algorithm
from wherefrom.training.losses import SquaredError
from wherefrom.training.mlp import MLP
from wherefrom.training.trees import Trees
from wherefrom.variables import InitialCondition, Iterations

_ROWS, _COLUMNS = 20, 2


def compile_kernels() -> None:
    """Have all kernels compiled, or loaded if they are already: training of networks, of trees, one-shot prediction."""
    if importlib.util.find_spec("numba") is None:
        raise ImportError("nothing to compile: numba is not installed; pip install 'wherefrom[fast]'")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(_ROWS, _COLUMNS, generator=generator)
    training = Training(MLP((4,)), Algorithm("adam", lr=0.01, batch_size=_ROWS), epochs=4, likelihood=Regression())
    over = [InitialCondition(2), Iterations(SWAG(rank=2))]
    posterior = marginalise(training, (x, x[:, 0]), over, engine="native", workers=1, progress=False)
    posterior.one_shot(x)
    Trees(2, depth=2).fit(x, x[:, :1], None, SquaredError(), 1)
