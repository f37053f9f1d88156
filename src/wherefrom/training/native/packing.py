"""From a network and its members to the kernel's arrays, and back. Every size is fixed and checked here, once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.training import streams
from wherefrom.training.cohort import Cohort, Trainee
from wherefrom.training.dropout import SPARSE, poisson_cumulative, thresholds
from wherefrom.training.losses import CrossEntropy, Loss, OrdinalNLL
from wherefrom.training.native import layers
from wherefrom.training.native.codes import OPERATIONS, SETTINGS, WITHOUT
from wherefrom.training.native.jit import padded
from wherefrom.training.native.kernel import Draws, Kept, State, Tables
from wherefrom.training.native.layers import Net, Space
from wherefrom.training.native.plain import Operation, PlainMLP
from wherefrom.training.network import Layout
from wherefrom.training.survival import SurvivalNLL

_ROWS_AT_ONCE = 2**16
_PLACES = 64  # of dropped cells, computed at a time


def floats(*shape: int) -> NDArray[np.float32]:
    """Zeros that begin on a cache line, which numpy's own need not."""
    return torch.zeros(shape, dtype=torch.float32).numpy()


def _whole(numbers: Iterable[int]) -> NDArray[np.int64]:
    return np.array(list(numbers), dtype=np.int64)


def _starts(sizes: Iterable[int]) -> NDArray[np.int64]:
    """Return the start of each of several stretches, and the end of the last one."""
    return np.cumsum([0, *sizes], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Packing:
    """A network's shape for the kernel, and where each coordinate of theta stands there."""

    net: Net
    size: int  # of a packed theta
    positions: Tensor  # (theta's size,)

    @classmethod
    def of(cls, mlp: PlainMLP, layout: Layout, batch_size: int) -> Packing:
        last = len(mlp.widths) - 1
        stride = [padded(width) for width in mlp.widths]
        stride[last] = padded(batch_size)
        if last > 1:
            stride[0] = padded(mlp.widths[0] + 1)  # room for the column of ones
        positions = {name: torch.empty(0) for name in layout.names}
        weights, biases, size = [0], [0], 0
        for level in range(1, last + 1):
            below, here = mlp.widths[level - 1], mlp.widths[level]
            unit, input_ = torch.arange(here)[:, None], torch.arange(below)[None, :]
            weights.append(size)
            if level < last:
                positions[mlp.weights[level - 1]] = size + input_ * stride[level] + unit
                size += below * stride[level]
            else:
                positions[mlp.weights[level - 1]] = size + unit * stride[level - 1] + input_
                size += here * stride[level - 1]
            biases.append(size)
            if (name := mlp.biases[level - 1]) is not None:
                positions[name] = size + torch.arange(here)
            size += padded(here)
        operations = [operation for some in mlp.operations for operation in some]
        net = Net(
            width=_whole(mlp.widths),
            padded=_whole(stride),
            weights=_whole(weights),
            bias=_whole(biases),
            has_bias=_whole([0, *(name is not None for name in mlp.biases)]),
            values=_starts(
                (width if level == last else batch_size) * stride[level] for level, width in enumerate(mlp.widths)
            ),
            turned=_starts(a * b if 1 < level < last else 0 for level, (a, b) in enumerate(pairwise([0, *stride]))),
            slope=_whole([_slope(level, last, some) for level, some in enumerate(mlp.operations)]),
            first=_starts(len(some) for some in mlp.operations),
            kind=_whole([OPERATIONS[operation.name] for operation in operations]),
            parameter=np.array([operation.parameter for operation in operations], dtype=np.float32),
            site=_whole([operation.site for operation in operations]),
        )
        return cls(net, size, torch.cat([positions[name].reshape(-1) for name in layout.names]))

    def pack(self, theta: Tensor) -> Tensor:
        """Return theta (members, size) as the kernel has it, padding zero."""
        packed = torch.zeros(len(theta), self.size, dtype=torch.float32)
        packed[:, self.positions] = theta
        return packed

    def unpack(self, packed: Tensor) -> Tensor:
        """Return any tensor whose last dimension is a packed theta, unpacked."""
        return packed.index_select(-1, self.positions)

    def tables(self, cohort: Cohort, offset: int | None) -> Tables:
        """Return all rows of all tables, inputs padded, with a column of ones where the network has room for it.

        offset: the column whose logarithm is added to the outputs; the inputs have zeros there.
        """
        inputs, stride = int(self.net.width[0]), int(self.net.padded[0])
        count = len(cohort.tables) * cohort.rows
        x = torch.zeros(count, stride, dtype=torch.float32)
        if len(self.net.width) > 2:
            x[:, inputs] = 1.0
        for some, table in zip(x.split(cohort.rows), cohort.tables, strict=True):
            for start in range(0, cohort.rows, _ROWS_AT_ONCE):  # some are gathered
                some[start : start + _ROWS_AT_ONCE, :inputs] = table.x[start : start + _ROWS_AT_ONCE]
        logs = torch.empty(0, dtype=torch.float32)
        if offset is not None:
            logs = x[:, offset].log()
            x[:, offset] = 0.0
        y = torch.cat([table.y.float() for table in cohort.tables])
        ones = torch.ones(cohort.rows, dtype=torch.float32)
        given = [ones if table.weights is None else table.weights.float() for table in cohort.tables]
        is_weighted = any(table.weights is not None for table in cohort.tables)
        w = torch.cat(given) if is_weighted else torch.empty(0, dtype=torch.float32)
        targets = y.reshape(-1).contiguous().numpy()
        return Tables(x.reshape(-1).numpy(), targets, w.numpy(), logs.numpy(), cohort.rows)

    def space(self, rows: int, batch_size: int, targets: int) -> Space:
        """Return the work space of one thread."""
        widest = int(self.net.padded.max())
        values = int(self.net.values[-1])
        largest = int(np.diff(self.net.values).max())
        return Space(
            values=floats(values),
            slopes=floats(values),
            delta=floats(largest),
            other=floats(largest),
            turned=floats(int(self.net.turned[-1])),
            gradient=floats(self.size),
            mean=floats(self.size),
            away=floats(self.size),
            zeros=floats(widest),
            ones=np.ones(1, dtype=np.float32),
            order=np.zeros(rows, dtype=np.int64),
            tagged=np.zeros(rows, dtype=np.uint64),
            spare=np.zeros(rows, dtype=np.uint64),
            counts=np.zeros(2 << 11, dtype=np.int64),
            places=np.zeros(_PLACES, dtype=np.int64),
            y=floats(batch_size * targets),
            w=np.ones(batch_size, dtype=np.float32),
            offset=floats(batch_size),
        )

    def state(self, members: Sequence[Trainee], epochs: int) -> State:
        theta = self.pack(torch.stack([member.theta0 for member in members])).numpy()
        count, second = len(members), floats(len(members), self.size)
        second[:] = [[member.settings.get("hess_init", 0.0)] for member in members]  # of IVON, the curvature
        return State(
            theta=theta,
            first=floats(count, self.size),
            second=second,
            powers=np.ones((count, 2)),
            losses=np.full((count, epochs), math.nan),
            diverged=np.full(count, -1, dtype=np.int64),
        )


def check(cohort: Cohort, mlp: PlainMLP) -> None:
    """Raise unless sizes agree and numbers point inside, since the kernel checks no index."""
    outputs = mlp.widths[-1]
    of_each = getattr(cohort.loss, "outputs_per_target", outputs)  # not of classes, whose one column has all outputs
    targets = outputs // of_each if outputs % of_each == 0 else outputs / of_each
    classes = {CrossEntropy: outputs, OrdinalNLL: outputs + 1}.get(type(cohort.loss))
    if isinstance(cohort.loss, SurvivalNLL):
        targets = 3 if outputs in (1, 2) else math.nan
    for x, y, weights in cohort.tables:
        if x.shape != (cohort.rows, mlp.widths[0]) or y.shape != (cohort.rows, targets):
            raise ValueError(
                f"a table has x of shape {tuple(x.shape)} and y of {tuple(y.shape)}, but the model with {cohort.loss} "
                f"takes {(cohort.rows, mlp.widths[0])} and {(cohort.rows, targets)}"
            )
        if weights is not None and weights.shape != (cohort.rows,):
            raise ValueError(f"there are {len(weights)} weights for {cohort.rows} rows")
        if classes is not None and not (y.min() >= 0 and y.max() < classes and bool((y == y.round()).all())):
            raise ValueError(
                f"y must hold class numbers from 0 to {classes - 1}, as the model has {outputs} outputs; "
                f"it goes from {float(y.min()):g} to {float(y.max()):g}"
            )
    for member in cohort.members:
        if not 0 <= member.table < len(cohort.tables) or member.theta0.shape != (cohort.network.layout.size,):
            raise ValueError(
                f"a member has table {member.table} and {len(member.theta0)} parameters: there are none such"
            )


def numbers(loss: Loss) -> NDArray[np.float32]:
    """Return the fields of a loss, one after another; those that members do not differ in as well."""
    each: list[Any] = [getattr(loss, field.name) for field in fields(loss)]  # type: ignore[arg-type]
    return np.array([number for value in each for number in np.atleast_1d(value)] or [0.0], dtype=np.float32)


def _slope(level: int, last: int, operations: Sequence[Operation]) -> int:
    names = [operation.name for operation in operations]
    if not names:
        return layers.SLOPE_ONE
    if 0 < level < last and names in (["relu"], ["relu", "dropout"]):
        return layers.SLOPE_SIGN
    return layers.SLOPE_KEPT


def draws(cohort: Cohort, members: Sequence[Trainee]) -> Draws:
    """Each member's table, streams and settings; a Poisson table for every rate that occurs at a site."""
    sites = cohort.network.sites
    rates = np.array([cohort.rates(member) for member in members]).reshape(len(members), len(sites))
    numbers: dict[tuple[int, float], int] = {}
    tables: list[NDArray[np.float64]] = []
    which = np.zeros(rates.shape, dtype=np.int64)
    for (m, s), rate in np.ndenumerate(rates):
        rate = min(float(rate), SPARSE)  # from there on the table is not used
        key = (sites[s].cells, rate)
        if key not in numbers:
            numbers[key] = len(tables)
            tables.append(poisson_cumulative(cohort.batch_size * sites[s].cells * -math.log1p(-rate)))
        which[m, s] = numbers[key]
    return Draws(
        table=_whole([member.table for member in members]),
        order=np.array([member.order for member in members], dtype=np.uint64),
        replacement=np.array([member.replacement for member in members]),
        noise=np.array([streams.key(member.order, "noise") for member in members], dtype=np.uint64),
        settings=np.array([[(WITHOUT | member.settings)[name] for name in SETTINGS] for member in members]),
        factors=np.zeros(0),
        mask_keys=np.array(
            [[streams.key(member.masks, "site", s) for s in range(len(sites))] for member in members], dtype=np.uint64
        ).reshape(len(members), len(sites)),
        mask_scale=(1 / (1 - rates)).astype(np.float32),
        mask_threshold=np.where(rates < SPARSE, 0, thresholds(rates)).astype(np.uint64),
        mask_table=which,
        cumulative=np.concatenate([np.zeros(0), *tables]),
        start=_starts(map(len, tables)),
    )


NO_FILTERS = (floats(0, 3), *(floats(0, 0) for _ in range(4)))
NOTHING_KEPT = Kept(_whole([]), floats(0, 0), floats(0, 0), floats(0, 0, 0), _whole([]), *NO_FILTERS)
