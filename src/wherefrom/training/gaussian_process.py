"""A Gaussian process, as a family beside networks: its mean, a sum of kernels around training rows.

    f(x)  =  b  +  v . x  +  sum over centres c of  a_c k(x, c),        k = Matern 5/2, one length for each column

The lengths, the variances of both parts and the noise are those under which some of the rows are most likely, times a
wide prior of the lengths. Then a and v are the mean of the process given all rows: exactly if there are no more rows
than centres, else of the process that the centres span (the projected, or DTC, approximation). It is a network with one
hidden layer, fitted in closed form: the best there is for small, smooth tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wherefrom.files.codec import stored
from wherefrom.training.fitted import check_whole
from wherefrom.training.losses import GaussianNLL, Loss, SquaredError, StudentError, StudentNLL

_LIKELY_ROWS = 400  # by which lengths and variances are chosen
_STEPS, _RATE = 60, 0.5  # of Adam, on the logarithms; the rate falls to nothing on the way
_ROUNDS, _FLAT = 3, 10.0  # rounds of steps, and nats that no logarithm may gain after them
_FURTHER_STEPS, _FURTHER_RATE = 5, 0.1  # where other steps have ended
_WIDTH_OF_LENGTHS = 1.5  # standard deviation of the logarithm of a length, before rows are seen
_MOST_LENGTHS = 50  # columns; of more, all have the same length
_JITTER = 1e-8
_LEAST_NOISE, _MOST_VARIANCE = 1e-6, 1e4  # of y's variance: with less noise, y itself would have to be more precise


@stored("GaussianProcess")
@dataclass(frozen=True)
class GaussianProcess:
    """A model factory of Gaussian process means, which takes x's and y's sizes from the data.

    It fits itself: no optimiser, epochs or batches. For quantities (`wf.Regression`, `wf.Positive`) alone, as if their
    noise were Gaussian.

    centres: rows that kernels stand around (default 400). With no more rows than that, the process is exact.
    columns: how many of the first columns of x it looks at (default None: all).
    start: logarithms of the lengths, the two variances and the noise to begin the search at, as `search` returns them
        for similar rows (default None: usual ones). It is then shorter.

    >>> import wherefrom as wf
    >>> wf.Families({"network": wf.MLP([50]), "process": wf.GaussianProcess()})
    Families(['network', 'process'])
    """

    centres: int = 400
    columns: int | None = None
    start: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_whole("centres", self.centres)
        if self.columns is not None:
            check_whole("columns", self.columns)

    def sized(self, inputs: int, outputs: int) -> Callable[[], nn.Module]:
        """Return the factory for these numbers of columns and outputs."""
        return lambda: KernelSum(self.centres, self._columns(inputs), outputs)

    def size(self, inputs: int, outputs: int) -> int:
        """Return how many numbers that model has."""
        columns = self._columns(inputs)
        return self.centres * (columns + 2 * outputs) + columns + outputs * (columns + 1)

    def _columns(self, inputs: int) -> int:
        return inputs if self.columns is None else min(inputs, self.columns)

    def __call__(self) -> nn.Module:
        raise ValueError(f"{self} takes its sizes from the data; on its own, use {self}.sized(inputs, outputs)()")

    @staticmethod
    def fits(loss: Loss) -> bool:
        """Return True if it can be fitted by a loss."""
        return isinstance(loss, SquaredError | GaussianNLL | StudentError | StudentNLL)

    def fit(self, x: Tensor, y: Tensor, weights: Tensor | None, loss: Loss, outputs: int) -> Mapping[str, Tensor]:
        """Return the tensors of the process's mean, given these rows.  # (rows, columns), (rows, targets), (rows,)"""
        if not self.fits(loss):
            raise ValueError(f"wf.GaussianProcess is for quantities, wf.Regression(), not for {type(loss).__name__}")
        x, y, shares, middle = self._rows(x, y, weights)
        prior = _Prior.of(self._likeliest(x, y - middle, shares), x.shape[1])
        centres, _, _ = _some(x, y, shares, self.centres)
        a, v = _posterior_mean(prior, centres, x, y - middle, shares)
        missing = self.centres - len(centres)
        weights = torch.cat([a, a.new_zeros(missing, a.shape[1])])
        rounded = weights.float().double()
        tensors = {
            "centres": torch.cat([centres, centres.new_zeros(missing, centres.shape[1])]),
            "scale": prior.scale,
            "weights": rounded,
            "rest": weights - rounded,
            "linear": v.T,
            "bias": middle,
        }
        if isinstance(loss, GaussianNLL | StudentNLL):  # the second half of the outputs are logs, the same for all rows
            scale = (loss.df - 2) / loss.df if isinstance(loss, StudentNLL) and loss.df > 2 else 1.0
            noise = y.new_full((y.shape[1],), math.log(scale * prior.noise))
            tensors["bias"] = torch.cat([middle, noise])
            for name in ("weights", "rest"):
                tensors[name] = torch.cat([tensors[name], torch.zeros_like(tensors[name])], 1)
            tensors["linear"] = torch.cat([tensors["linear"], torch.zeros_like(tensors["linear"])])
        return tensors

    def search(self, x: Tensor, y: Tensor, weights: Tensor | None) -> tuple[float, ...]:
        """Return the logarithms of the lengths, the two variances and the noise that make these rows most likely."""
        x, y, shares, middle = self._rows(x, y, weights)
        return tuple(self._likeliest(x, y - middle, shares).tolist())

    def _rows(self, x: Tensor, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return x and y in double precision, the weight of each row, and the mean of y."""
        x, y = x[:, : self._columns(x.shape[1])].double(), y.double()
        shares = torch.ones(len(y), dtype=torch.float64) if weights is None else weights.double()
        return x, y, shares, (shares.unsqueeze(1) * y).sum(0) / shares.sum()

    def _likeliest(self, x: Tensor, y: Tensor, shares: Tensor) -> Tensor:
        start = None if self.start is None else torch.tensor(self.start, dtype=torch.float64)
        return _likeliest(*_some(x, y, shares, _LIKELY_ROWS), start)


class KernelSum(nn.Module):
    """Kernels around centres, and a linear part. All tensors are zero until they are fitted."""

    def __init__(self, centres: int, columns: int, outputs: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(centres, outputs))
        self.linear = nn.Parameter(torch.zeros(outputs, columns))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.register_buffer("rest", torch.zeros(centres, outputs))  # of the weights, that single precision cuts off
        self.register_buffer("centres", torch.zeros(centres, columns))
        self.register_buffer("scale", torch.zeros(columns))
        self.rest: Tensor
        self.centres: Tensor
        self.scale: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs.  # (rows, columns) -> (rows, outputs)

        Large weights cancel each other out, the more so the less noise there is: that takes double precision.
        """
        rows, scale = x[:, : self.scale.shape[0]].double(), self.scale.double()
        kernels = matern(rows * scale, self.centres.double() * scale)
        sums = kernels @ (self.weights.double() + self.rest) + rows @ self.linear.double().t() + self.bias
        return sums.to(x.dtype)

    def extra_repr(self) -> str:
        return f"centres={len(self.centres)}, columns={len(self.scale)}, outputs={len(self.bias)}"


def matern(x: Tensor, centres: Tensor) -> Tensor:
    """Matern 5/2 kernel of rows and centres that are divided by their lengths.

    # (rows, columns), (centres, columns) -> (rows, centres)
    """
    return _matern_and_slope(_squares(x, centres))[0]


def _squares(x: Tensor, centres: Tensor) -> Tensor:
    """Squared distances.  # (rows, columns), (centres, columns) -> (rows, centres)"""
    squares = x.square().sum(1, keepdim=True) + centres.square().sum(1) - 2 * x @ centres.t()
    return squares.clamp_min(1e-12)


def _matern_and_slope(squares: Tensor) -> tuple[Tensor, Tensor]:
    """Return the kernel at squared distances, and its derivative by these."""
    r = (5 * squares).sqrt()
    decay = torch.exp(-r)
    return (1 + r + r.square() / 3) * decay, -5 / 6 * (1 + r) * decay


@dataclass(frozen=True, eq=False)
class _Prior:
    """A process before rows are seen."""

    scale: Tensor  # 1 / length of each column
    variance: float  # of the kernels' part
    slopes: float  # variance of each slope of the linear part
    noise: float  # variance

    @classmethod
    def of(cls, logarithms: Tensor, columns: int) -> _Prior:
        """Return the process with these lengths, variances and noise."""
        variance, slopes, noise = logarithms[-3:].exp().tolist()
        scale = torch.exp(-logarithms[:-3]).float().double()  # as it is kept
        return cls(scale.expand(columns).clone(), variance, slopes, noise)

    def covariance(self, x: Tensor, other: Tensor) -> Tensor:
        return self.variance * matern(x * self.scale, other * self.scale) + self.slopes * x @ other.t()


def _some(x: Tensor, y: Tensor, shares: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return all rows, or a random sample of them."""
    if len(y) <= most:
        return x, y, shares
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(len(y)))[:most]
    return x[order], y[order], shares[order]


def _likeliest(x: Tensor, y: Tensor, shares: Tensor, start: Tensor | None = None) -> Tensor:
    """Return logarithms of the lengths, variances and noise that make these rows most likely, by Adam.

    Where there is little noise it is a long way: the search goes on while the rows still become more likely.
    """
    columns = x.shape[1]
    spread = float(y.square().mean()) or 1.0
    usual = 0.5 * math.log(columns) + math.log(2.0)  # a length of twice the usual distance of two rows
    lengths = torch.full((columns if columns <= _MOST_LENGTHS else 1,), usual, dtype=torch.float64)
    variances = torch.tensor([spread, 0.1 * spread / columns, 0.2 * spread], dtype=torch.float64).log()
    least, most = math.log(_LEAST_NOISE * spread), math.log(_MOST_VARIANCE * spread)
    at = torch.cat([lengths, variances]) if start is None else start.clone()
    if len(at) != len(lengths) + 3:
        raise ValueError(f"start has {len(at)} numbers, but {columns} columns have {len(lengths) + 3}")
    products = x @ x.t()
    steps, rate, rounds = (_STEPS, _RATE, _ROUNDS) if start is None else (_FURTHER_STEPS, _FURTHER_RATE, 1)
    for _ in range(rounds):
        first, second = torch.zeros_like(at), torch.zeros_like(at)  # Adam's averages
        for step in range(1, 1 + steps):
            slope = _slope(at, x, y, shares, products, usual)
            first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope.square()
            slower = 0.5 * (1 + math.cos(math.pi * (step - 1) / steps))
            at = at - slower * rate * first / (1 - 0.9**step) / ((second / (1 - 0.99**step)).sqrt() + 1e-8)
            at[-3:].clamp_(least, most)
        slope[-3:][(at[-3:] <= least) | (at[-3:] >= most)] = 0.0  # they can go no further
        if slope.abs().max() < _FLAT:
            break
    return at


def _slope(at: Tensor, x: Tensor, y: Tensor, shares: Tensor, products: Tensor, usual: float) -> Tensor:
    """Return the slope of -log p by the logarithms of the lengths, variances and noise.

    With K = covariance + noise and alpha = K^-1 y, for each column of y:  d(-log p) / dK = (K^-1 - alpha alpha^T) / 2.

    products: x x^T.
    usual: the logarithm of a length, before rows are seen.
    """
    columns, targets = x.shape[1], y.shape[1]
    kernel, slopes, noise = at[-3:].exp().tolist()
    scale = torch.exp(-at[:-3]).expand(columns)
    shape, by_squares = _matern_and_slope(_squares(x * scale, x * scale))
    k = kernel * shape + slopes * products
    k.diagonal().add_(noise / shares)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(k))
    alpha = inverse @ y
    by_k = 0.5 * (targets * inverse - alpha @ alpha.t())
    inner = kernel * by_k * by_squares
    # The sum over pairs of rows of inner * (difference in a column)^2, without the differences themselves.
    spreads = 2 * (inner.sum(1) @ x.square() - (x * (inner @ x)).sum(0))
    by_lengths = -2 * scale.square() * spreads
    by_lengths = by_lengths if len(at) == columns + 3 else by_lengths.sum(0, keepdim=True)
    by_lengths = by_lengths + (at[:-3] - usual) / _WIDTH_OF_LENGTHS**2
    by_variances = (
        kernel * (by_k * shape).sum(),
        slopes * (by_k * products).sum(),
        noise * (by_k.diagonal() / shares).sum(),
    )
    return torch.cat([by_lengths, torch.stack(by_variances)])


def _posterior_mean(prior: _Prior, centres: Tensor, x: Tensor, y: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of the kernels around the centres, and the slopes, given the rows.

    # (centres, targets), (columns, targets)
    """
    within = prior.covariance(centres, centres)
    noise = prior.noise / shares
    if centres is x:  # without an approximation
        within.diagonal().add_(noise)
        alpha = torch.cholesky_solve(y, torch.linalg.cholesky(within))
        return prior.variance * alpha, prior.slopes * x.t() @ alpha
    within.diagonal().add_(_JITTER * prior.variance + _JITTER * prior.noise)
    towards = prior.covariance(centres, x)
    lower = torch.linalg.cholesky(within)
    # In coordinates in which the prior is the identity, for the sake of rounding: A = L^-1 K_cx / sqrt(noise).
    a = torch.linalg.solve_triangular(lower, towards, upper=False) / noise.sqrt()
    gram = a @ a.t()
    gram.diagonal().add_(1.0)
    inner = torch.cholesky_solve(a @ (y / noise.sqrt().unsqueeze(1)), torch.linalg.cholesky(gram))
    alpha = torch.linalg.solve_triangular(lower.t(), inner, upper=True)  # (centres, targets)
    return prior.variance * alpha, prior.slopes * centres.t() @ alpha
