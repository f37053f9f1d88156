"""Boosted trees, as a family beside networks: a sum of oblivious trees, fitted by the loss of the networks.

    f(x)  =  b  +  sum over trees of  leaf[tree, bits of (x[column] > threshold) on each level]

A tree is oblivious if all nodes of a level ask the same question, so that it is a small table, and evaluating it is a
few comparisons (CatBoost's trees are such). Each tree is a Newton step on the loss L of the rows: with g and h, first
and second derivative of a row's loss by an output,

    leaf value  =  - rate * (sum of g) / (sum of h + penalty * mean of h),        over the rows in the leaf

and its questions are those that explain most of g. So any likelihood can be boosted that networks can be trained by:
quantities with or without a variance for each row, classes, counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wherefrom.files.codec import stored
from wherefrom.training.fitted import check_whole
from wherefrom.training.losses import Loss, SquaredError

_BINS = 64  # of a column
_SPLIT_ROWS = 10_000  # that choose the questions of a tree, where there are more
_SLOPES = 2  # outputs whose slopes choose the questions; of more, those that have most to explain
_FIRST_STEPS = 20  # Newton's, towards the best constant outputs
_LEAST_CURVATURE = 1e-6
_PATIENCE = 30  # trees
_OF_VARIANCES, _BY_VARIANCES = 0.25, 0.5  # of a step, and of the slopes that choose questions, for logs of variances
_MOST_STEP = 1.0  # of an output by one tree: of a logarithm, say, Newton's step may go far too far


@stored("Trees")
@dataclass(frozen=True)
class Trees:
    """A model factory of boosted oblivious trees, which takes x's and y's sizes from the data.

    It fits itself: no optimiser, epochs or batches. Needs numba (`pip install 'wherefrom[fast]'`).

    count: how many trees (default 100).
    depth: questions of each tree (default 4), so it has 2^depth leaves.
    rate: share of each Newton step that is taken (default 0.1).
    penalty: rows without a slope that are added to each side of a split, and to each leaf (default 5).
    columns: how many of the first columns of x it looks at (default None: all).

    >>> import wherefrom as wf
    >>> wf.Families({"network": wf.MLP([50]), "trees": wf.Trees(200)})
    Families(['network', 'trees'])
    """

    count: int = 100
    depth: int = 4
    rate: float = 0.1
    penalty: float = 5.0
    columns: int | None = None

    def __post_init__(self) -> None:
        check_whole("count", self.count, 100_000)
        check_whole("depth", self.depth, 10)
        if self.columns is not None:
            check_whole("columns", self.columns)
        if not 0 < self.rate <= 1 or not self.penalty > 0:
            raise ValueError(f"rate must lie in (0, 1] and penalty above 0; they are {self.rate} and {self.penalty}")

    def sized(self, inputs: int, outputs: int) -> Callable[[], nn.Module]:
        """Return the factory for these numbers of columns and outputs."""
        return lambda: ObliviousTrees(self.count, self.depth, outputs)

    def size(self, inputs: int, outputs: int) -> int:
        """Return how many numbers that model has."""
        return outputs + self.count * (2 * self.depth + 2**self.depth * outputs)

    def __call__(self) -> nn.Module:
        raise ValueError(f"{self} takes its sizes from the data; on its own, use {self}.sized(inputs, outputs)()")

    def fit(self, x: Tensor, y: Tensor, weights: Tensor | None, loss: Loss, outputs: int) -> Mapping[str, Tensor]:
        """Return the tensors of the trees that these rows call for.  # (rows, columns), (rows, targets), (rows,)"""
        return boosted(self, x, y, weights, loss, outputs).tensors


class ObliviousTrees(nn.Module):
    """A sum of oblivious trees. All tensors are zero until they are fitted."""

    def __init__(self, count: int, depth: int, outputs: int) -> None:
        super().__init__()
        self.leaves = nn.Parameter(torch.zeros(count, 2**depth, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.register_buffer("columns", torch.zeros(count, depth))  # numbers of columns, as real numbers
        self.register_buffer("thresholds", torch.zeros(count, depth))
        self.columns: Tensor
        self.thresholds: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs.  # (rows, columns) -> (rows, outputs)"""
        count, depth = self.columns.shape
        column = self.columns.long().clamp(0, x.shape[1] - 1)
        leaf = 2**depth * torch.arange(count, device=x.device)  # the first leaf of each tree
        for level in range(depth):  # one after the other, in less memory than all at once
            is_above = x[:, column[:, level]] > self.thresholds[:, level]  # (rows, count)
            leaf = leaf + 2 ** (depth - 1 - level) * is_above
        return self.leaves.flatten(0, 1)[leaf].sum(1) + self.bias

    def extra_repr(self) -> str:
        return f"count={len(self.leaves)}, depth={self.columns.shape[1]}, outputs={len(self.bias)}"


@dataclass(frozen=True, eq=False)
class Boosted:
    """Boosted trees, and what rows that they were not fitted to make of them."""

    tensors: dict[str, Tensor]
    watched: NDArray[np.float64]  # the loss of the watched rows after 0, 1, 2, ... trees

    def first(self, count: int) -> dict[str, Tensor]:
        """Return the tensors of the first trees alone."""
        return {name: tensor if name == "bias" else tensor[:count] for name, tensor in self.tensors.items()}


def boosted(
    how: Trees,
    x: Tensor,
    y: Tensor,
    weights: Tensor | None,
    loss: Loss,
    outputs: int,
    watched: tuple[Tensor, Tensor, Tensor | None] | None = None,
) -> Boosted:
    """Fit trees one after the other.

    watched: x, y and weights of rows whose loss is computed after every tree (default None: of none). If it has not
        fallen for many trees, no more are fitted.
    """
    columns = x.shape[1] if how.columns is None else min(how.columns, x.shape[1])
    bins = _Bins.of(x[:, :columns])
    y = y.double()
    weights = None if weights is None else weights.double()
    bias = _constant(y, weights, loss, outputs)
    answers = bias.repeat(len(y), 1)
    growing = _Growing(how, bins, x, answers)
    leaves = torch.zeros(how.count, 2**how.depth, outputs, dtype=torch.float64)
    chosen, splits = np.zeros((2, how.count, how.depth), np.int64)
    thresholds = np.zeros((how.count, how.depth), np.float32)
    aside = None if watched is None else _Watched(bins, *watched, bias, loss)
    most = math.inf if isinstance(loss, SquaredError) else _MOST_STEP  # a parabola is where Newton's step says it is
    is_variance = _log_variances(loss, outputs, y.shape[1])
    pace, heard = (torch.where(is_variance, of, 1.0).double() for of in (_OF_VARIANCES, _BY_VARIANCES))
    for tree in range(how.count if bins.differ else 0):
        slope, curvature = _derivatives(answers, y, weights, loss)
        usual = curvature.mean(0).clamp_min(_LEAST_CURVATURE)
        growing.ask(_most_to_explain(heard * slope / usual.sqrt(), weights), chosen[tree], splits[tree])
        asked = chosen[tree], splits[tree]
        growing.step(*asked, slope, curvature, how.rate * pace, how.penalty * usual, most, leaves[tree])
        thresholds[tree] = [bins.edges[column][split] for column, split in zip(*asked, strict=True)]
        if aside is not None:
            aside.add(*asked, leaves[tree])
            if aside.is_rising:
                break
    tensors = {"leaves": leaves, "bias": bias, "columns": chosen.astype(np.float64), "thresholds": thresholds}
    return Boosted(
        {name: torch.as_tensor(tensor) for name, tensor in tensors.items()},
        np.zeros(0) if aside is None else np.array(aside.losses),
    )


class _Bins(NamedTuple):
    """Each column's values in bins."""

    edges: list[NDArray[np.float32]]  # a value's bin: how many of them it is larger than

    @classmethod
    def of(cls, x: Tensor) -> _Bins:
        return cls([_edges(column) for column in x.float().numpy().T])

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.array([len(edges) + 1 for edges in self.edges], dtype=np.int64)

    @property
    def differ(self) -> bool:
        """True if some column has two values."""
        return any(len(edges) for edges in self.edges)

    def codes(self, x: Tensor) -> NDArray[np.uint8]:
        """Return the bin of each value.  # (columns, rows)"""
        values = x.float().numpy().T[: len(self.edges)]
        codes = [np.searchsorted(edges, column) for edges, column in zip(self.edges, values, strict=True)]
        return np.array(codes, dtype=np.uint8).reshape(values.shape)


class _Growing:
    """Finds the questions of a tree, columns and bins that explain most of the rows' slopes, and fills its leaves."""

    def __init__(self, how: Trees, bins: _Bins, x: Tensor, answers: Tensor) -> None:
        rows, outputs = answers.shape
        self.bins, self.answers = bins.counts, answers.numpy()
        self.penalty = np.float32(how.penalty)
        codes = bins.codes(x)
        self.order = np.random.default_rng(rows).permutation(rows) if rows > _SPLIT_ROWS else None
        self.turn = 0
        is_one = (codes == 1).sum(1) <= 0.5 * rows
        self.rare_code = is_one.astype(np.int64)  # of a column with two values
        self.every_code = _Codes.of(codes, self.bins, self.rare_code)
        most, slopes = 2 ** (how.depth - 1), min(outputs, _SLOPES)
        self.memory = (
            np.empty((slopes + 1, most * _BINS), np.float32),
            np.empty((slopes + 1, most), np.float32),
            *np.empty((2, most), np.float32),
            np.empty(3, np.float32),
        )
        self.leaf, self.leaf_of_some = np.zeros((2, rows), np.int64)
        self.sums = np.empty((2 * most, outputs))

    def ask(self, explained: NDArray[np.float32], columns: NDArray[np.int64], splits: NDArray[np.int64]) -> None:
        """Write the column and the bin of each level.

        Of many rows, some choose: others for each tree, until all have had their turn.
        """
        codes = self.every_code
        if self.order is not None:
            some = self.order[self.turn : self.turn + _SPLIT_ROWS]
            self.turn = (self.turn + _SPLIT_ROWS) % (len(self.order) - _SPLIT_ROWS + 1)
            codes = _Codes.of(np.ascontiguousarray(codes.all[:, some]), self.bins, self.rare_code)
            explained = np.ascontiguousarray(explained[:, some])
        leaf = self.leaf_of_some[: codes.all.shape[1]]
        of_rows = *codes, self.rare_code, leaf, explained
        _run("grow", *of_rows, self.bins, self.penalty, *self.memory, columns, splits)
        if columns.min() < 0:
            raise ValueError("the loss of some rows is not a number: trees cannot be fitted")

    def step(
        self,
        columns: NDArray[np.int64],
        splits: NDArray[np.int64],
        slope: Tensor,
        curvature: Tensor,
        pace: Tensor,
        penalty: Tensor,
        most: float,
        leaves: Tensor,
    ) -> None:
        """Fill the leaves by parts of Newton's steps, and add them to the answers."""
        numbers = (tensor.contiguous().numpy() for tensor in (slope, curvature, pace, penalty))
        asked = self.every_code.all, columns, splits
        _run("step", *asked, *numbers, most, self.sums, leaves.numpy(), self.leaf, self.answers)


class _Codes(NamedTuple):
    """The bin of each value, and the rows with the rarer one of columns that have two values."""

    all: NDArray[np.uint8]  # (columns, rows)
    starts: NDArray[np.int64]  # of each column in `rare`, and the end  # (columns + 1,)
    rare: NDArray[np.int64]  # rows

    @classmethod
    def of(cls, codes: NDArray[np.uint8], bins: NDArray[np.int64], rare_code: NDArray[np.int64]) -> _Codes:
        with_two = np.flatnonzero(bins == 2)
        column, rows = np.nonzero(codes[with_two] == rare_code[with_two, None])
        counts = np.bincount(with_two[column], minlength=len(bins))
        return cls(codes, np.concatenate([[0], np.cumsum(counts)]), rows)


def _edges(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return thresholds between the values: halfway between neighbours, or quantiles of them where these are many.

    >>> _edges(np.array([1.0, 3.0, 3.0, 4.0], dtype=np.float32)).tolist()
    [2.0, 3.5]
    """
    different = np.unique(values)
    if len(different) > _BINS:
        different = np.unique(np.quantile(values, np.linspace(0, 1, _BINS), method="nearest"))
    return ((different[1:].astype(np.float64) + different[:-1]) / 2).astype(np.float32)


def _run(name: str, *arguments: Any) -> None:
    """Run a kernel for trees, which is compiled at its first call."""
    try:
        from wherefrom.training.native import compiling, splits
    except ImportError:
        raise ImportError("wf.Trees needs numba: pip install 'wherefrom[fast]'") from None
    kernel = getattr(splits, name)
    if not kernel.overloads:
        compiling.ready(kernel, arguments, lambda _: None)
    kernel(*arguments)


class _Watched:
    """Rows that are not fitted to, and their loss."""

    def __init__(self, bins: _Bins, x: Tensor, y: Tensor, weights: Tensor | None, bias: Tensor, loss: Loss) -> None:
        self.codes, self.y, self.loss = bins.codes(x), y.double(), loss
        self.weights = None if weights is None else weights.double()
        self.answers = bias.repeat(len(y), 1)
        self.leaf = np.zeros(len(y), np.int64)
        self.losses = [self._loss()]

    def add(self, columns: NDArray[np.int64], splits: NDArray[np.int64], leaves: Tensor) -> None:
        """Add a tree to the answers."""
        _run("add", self.codes, columns, splits, leaves.numpy(), self.leaf, self.answers.numpy())
        self.losses.append(self._loss())

    @property
    def is_rising(self) -> bool:
        """True if none of the last trees has made the loss lower."""
        return len(self.losses) - 1 - int(np.argmin(self.losses)) >= _PATIENCE

    def _loss(self) -> float:
        return float(self.loss(self.answers, self.y, self.weights))


def _derivatives(answers: Tensor, y: Tensor, weights: Tensor | None, loss: Loss) -> tuple[Tensor, Tensor]:
    """Return first and second derivatives of each row's loss by its outputs.  # (rows, outputs) each"""
    derivatives = getattr(loss, "derivatives", None)  # of losses that are Curved, which takes long to check
    if derivatives is not None:
        slope, curvature = derivatives(answers, y)
        return (slope, curvature) if weights is None else (slope * weights[:, None], curvature * weights[:, None])
    with torch.enable_grad():
        at = answers.detach().requires_grad_()
        total = loss(at, y, weights) * len(y)
        (slope,) = torch.autograd.grad(total, at, create_graph=True)
        each = [torch.autograd.grad(slope[:, k].sum(), at, retain_graph=True)[0][:, k] for k in range(at.shape[1])]
    return slope.detach(), torch.stack(each, 1).detach().clamp_min(0)


def _log_variances(loss: Loss, outputs: int, targets: int) -> Tensor:
    """Return which outputs are logarithms of variances.  # (outputs,)

    Trees overfit them long before they have learnt the means: they take smaller steps, and ask fewer of the questions.
    """
    which = torch.zeros(outputs, dtype=torch.bool)
    which[targets : 2 * targets] = getattr(loss, "has_log_variances", False)
    return which


def _constant(y: Tensor, weights: Tensor | None, loss: Loss, outputs: int) -> Tensor:
    """Return the outputs that are best if all rows have the same.  # (outputs,)"""
    best = torch.zeros(outputs, dtype=torch.float64)
    lowest = loss(best.repeat(len(y), 1), y, weights)
    share = 1.0
    for _ in range(_FIRST_STEPS):
        slope, curvature = _derivatives(best.repeat(len(y), 1), y, weights, loss)
        step = slope.sum(0) / (curvature.sum(0) + _LEAST_CURVATURE * len(y))
        after = loss((best - share * step).repeat(len(y), 1), y, weights)
        if after <= lowest:
            best, lowest = best - share * step, after
        else:
            share /= 2
    return best


def _most_to_explain(slopes: Tensor, weights: Tensor | None) -> NDArray[np.float32]:
    """Return the slopes of the outputs that have the largest ones, and the rows' weights.  # (slopes + 1, rows)"""
    if slopes.shape[1] > _SLOPES:
        slopes = slopes[:, slopes.square().sum(0).argsort(descending=True, stable=True)[:_SLOPES]]
    ones = torch.ones(len(slopes), dtype=torch.float64) if weights is None else weights
    return torch.cat([slopes.t(), ones.unsqueeze(0)]).float().numpy()
