"""Native speed for plain MLPs on a CPU: whole epochs of many members inside one compiled function.

The room, from the outside in:

    plain.py      which networks are plain MLPs, and why others are not
    codes.py      what the kernel knows: operations, losses, optimisers
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

from wherefrom.laws import Filters, Iterates
from wherefrom.training.cohort import Cohort
from wherefrom.training.native.codes import LOSSES, OPTIMISERS, SETTINGS
from wherefrom.training.native.plain import NotPlain, PlainMLP, recognise
from wherefrom.training.streamed import Streamed

COMPILING_SECONDS = 30.0  # that compiling takes on a slow machine


def is_compiled() -> bool:
    """Return True if this machine has compiled the training, so that it need only be loaded."""
    from wherefrom.training.native import compiling, kernel

    return any(compiling.folder(kernel.train).rglob("*.nbi"))


class Obstacle(ValueError):
    """Why a cohort cannot be trained natively."""


def examine(cohort: Cohort, device: torch.device) -> PlainMLP:
    """Return the cohort's network as the kernel sees it, or raise an Obstacle if it cannot train the cohort."""
    x = cohort.tables[0].x
    if importlib.util.find_spec("numba") is None:
        raise Obstacle("numba is not installed: pip install 'wherefrom[fast]'")
    if device.type != "cpu":
        raise Obstacle(f"it runs on the CPU, not on {device}")
    if x.dtype != torch.float32:
        raise Obstacle(f"it computes in single precision, and the data is {x.dtype}")
    if isinstance(x, Streamed):
        raise Obstacle("it has its rows in memory, and these are streamed")
    if cohort.augment is not None:
        raise Obstacle("it does not augment")
    if cohort.autocast is not None:
        raise Obstacle("it multiplies in single precision, not by autocast")
    if type(cohort.loss) not in LOSSES:
        raise Obstacle(f"it does not know the loss {cohort.loss!r}")
    if cohort.optimiser not in OPTIMISERS:
        raise Obstacle(f"it does not know the optimiser {cohort.optimiser!r}")
    for name in dict.fromkeys(name for member in cohort.members for name in member.settings):
        if name not in SETTINGS and any(member.settings.get(name) for member in cohort.members):
            raise Obstacle(f"its {cohort.optimiser} does not know {name}")
    if any(site.weight for site in cohort.network.sites):
        raise Obstacle("it drops units, not weights")
    if cohort.collection:
        collector = cohort.collection.collector(torch.zeros(1, 1))
        is_known = isinstance(collector, Filters) or (isinstance(collector, Iterates) and not collector.rounds)
        if collector is not None and not is_known:
            raise Obstacle(f"it does not know how to collect {cohort.collection.law!r}")
    try:
        mlp = recognise(cohort.network, x, cohort.batch_sizes)
    except NotPlain as reason:
        raise Obstacle(f"the model is not a plain MLP: {reason}") from None
    if cohort.batch_size * max(mlp.widths) >= 2**31:
        raise Obstacle(f"a batch of {cohort.batch_size} rows has too many activations")
    return mlp
