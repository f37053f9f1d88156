"""Native speed for plain MLPs on a CPU: whole epochs of many members inside one compiled function.

The room, from the outside in:

    plain.py      which networks are plain MLPs, and why others are not
    engine.py     cohorts in, trained members out; blocks of epochs, rehearsal
    packing.py    tensors to the kernel's arrays and back
    compiling.py  the one compilation, and where it is kept
    kernel.py     the training loop: order, batch, forward, loss, backward, step, collect
    layers.py     forward and backward, with their equations
    losses.py     losses and their gradients
    functions.py  activations and their slopes
    rules.py      the optimisers' steps
    numbers.py    the named random streams
    matrices.py   the matrix product, in register tiles
    jit.py        compiler settings

It needs numba (the extra `wherefrom[fast]`), which is imported when the kernel is first used and not before.
"""

from __future__ import annotations

import importlib.util

import torch

from wherefrom.laws import Iterates
from wherefrom.losses import CrossEntropy, GaussianNLL, SquaredError
from wherefrom.training.cohort import Cohort
from wherefrom.training.native.plain import NotPlain, recognise

OPTIMISERS = ("sgd", "adam", "adamw")
LOSSES = (SquaredError, GaussianNLL, CrossEntropy)


def obstacle(cohort: Cohort, device: torch.device) -> str | None:
    """Why a cohort cannot be trained natively, or None if it can."""
    x = cohort.tables[0].x
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed: pip install 'wherefrom[fast]'"
    if device.type != "cpu":
        return f"it runs on the CPU, not on {device}"
    if x.dtype != torch.float32:
        return f"it computes in single precision, and the data is {x.dtype}"
    if not isinstance(cohort.loss, LOSSES):
        return f"it does not know the loss {cohort.loss!r}"
    if cohort.optimiser not in OPTIMISERS:
        return f"it does not know the optimiser {cohort.optimiser!r}"
    if cohort.collection:
        collector = cohort.collection.law.collector(torch.zeros(1, 1), cohort.collection.iterations)
        if not isinstance(collector, Iterates):
            return f"it does not know how to collect {cohort.collection.law!r}"
    try:
        mlp = recognise(cohort.network, x)
    except NotPlain as reason:
        return f"the model is not a plain MLP: {reason}"
    if cohort.batch_size * max(mlp.widths) >= 2**31:
        return f"a batch of {cohort.batch_size} rows has too many activations"
    return None
