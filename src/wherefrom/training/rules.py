"""The optimisers' steps, for many members at once, each with its own settings.

theta and its gradient are (members, parameters). The formulas are torch.optim's, in its order of operations. As there,
what is one number for a whole step (1 - beta^t, a learning rate) is computed in double precision and rounded once; that
is done for some steps at a time, in `plan`, and `step` takes what was planned as (members, 1) columns.

What no member of a group asks for (momentum, weight decay) is left out. That changes no bit of the others: a product
with zero is added, or a product with one is taken, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.devices import sent
from wherefrom.training.noise import Noise

Array = NDArray[np.float64]


class Rule(Protocol):
    """The optimiser of one group of members, with its averages.

    It may have a method `shake(*planned)`, which moves theta to where the gradient of a step is taken, and from where
    `step` brings it back; and a method `variances()`, of each weight (members, parameters), if it learns any.
    """

    @property
    def state(self) -> tuple[str, ...]: ...  # names of the attributes that steps change: tensors like theta, or None

    def plan(self, lr: Array, count: Array) -> Iterable[Sequence[Any]]:
        """Return the arguments of `step` for some steps, from any step on, in order, and for no step twice.

        lr: (members, steps). count: (steps,) from 1.
        """

    def step(self, gradient: Tensor, *planned: Any) -> None:
        """Take one step of every member, in place."""


class Group:
    """The members' theta and settings, as a rule needs them.

    keys: streams of the algorithms' own random numbers (default: none; only some rules draw any).
    rows: of a table, on which each trains (default 1).
    """

    def __init__(
        self, theta: Tensor, settings: Sequence[Mapping[str, float]], keys: Sequence[int] = (), rows: int = 1
    ) -> None:
        self.theta, self.settings, self.keys, self.rows = theta, settings, keys, rows

    def __getitem__(self, name: str) -> Array:
        """Return a setting of every member.  # (members, 1)"""
        return np.array([[settings[name]] for settings in self.settings], dtype=np.float64)

    def column(self, numbers: Array) -> Tensor:
        """Return a number for every member, as precise as theta.  # (members, 1)"""
        return torch.from_numpy(numbers).to(self.theta.dtype).to(self.theta.device)

    def zeros(self) -> Tensor:
        return torch.zeros_like(self.theta)

    def noise(self) -> Noise:
        """Return normal numbers of these members."""
        return Noise(self.keys, self.theta)

    def planned(self, *tables: Array | None) -> Iterator[tuple[Any, ...]]:
        """Yield tables of numbers (members, steps) step by step: each (members, 1), or None for no table."""
        steps = max(table.shape[1] for table in tables if table is not None)
        columns: list[Sequence[Any]] = []
        for table in tables:
            if table is None:
                columns.append([None] * steps)
                continue
            whole = np.array(np.broadcast_to(table, (len(self.settings), steps)).T, order="C")
            numbers = sent(torch.from_numpy(whole).to(self.theta.dtype), self.theta.device)
            columns.append(numbers.unsqueeze(-1).unbind())
        return zip(*columns, strict=True)


def _decay(group: Group, rate: Array) -> Callable[[Tensor], Tensor]:
    """Return the gradient with weight decay as a part of it, as a function: g -> g + decay theta."""
    if not rate.any():
        return lambda gradient: gradient
    theta, column = group.theta, group.column(rate)
    return lambda gradient: torch.addcmul(gradient, theta, column)


def _kept(rate: Array, lr: Array) -> Array | None:
    """Return the share of theta that weight decay beside the gradient keeps at each step; None, if all of it."""
    return 1 - lr * rate if rate.any() else None


class SGD:
    """v <- momentum v + (1 - dampening) g, and g at first;  theta <- theta - lr v

    Nesterov: theta <- theta - lr (g + momentum v)
    """

    state = ("velocity",)

    def __init__(self, group: Group) -> None:
        self.group, self.theta, self.decay = group, group.theta, _decay(group, group["weight_decay"])
        momentum, nesterov = group["momentum"], group["nesterov"] > 0
        self.dampening = np.where(momentum > 0, group["dampening"], 0.0)
        self.momentum = group.column(momentum)
        self.velocity = group.zeros() if momentum.any() else None
        self.nesterov = torch.from_numpy(nesterov).to(self.theta.device) if nesterov.any() else None

    def plan(self, lr: Array, count: Array) -> Iterator[tuple[Any, ...]]:
        new = np.where(count == 1, 1.0, 1 - self.dampening) if self.dampening.any() else None
        return self.group.planned(lr, new)

    def step(self, gradient: Tensor, lr: Tensor, new: Tensor | None) -> None:
        gradient = step = self.decay(gradient)
        if self.velocity is not None:
            step = self.velocity.mul_(self.momentum)
            step = step.add_(gradient) if new is None else step.addcmul_(gradient, new)
            if self.nesterov is not None:
                step = torch.where(self.nesterov, torch.addcmul(gradient, step, self.momentum), step)
        self.theta.addcmul_(step, lr, value=-1)


class _Moments:
    """m, v <- running means of g and g^2"""

    def __init__(self, group: Group) -> None:
        self.beta1, self.beta2 = group["beta1"], group["beta2"]
        self.first, self.second = group.zeros(), group.zeros()
        self.new1, self.kept2, self.new2 = map(group.column, (1 - self.beta1, self.beta2, 1 - self.beta2))

    def update(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        self.first.lerp_(gradient, self.new1)
        self.second.mul_(self.kept2).addcmul_(gradient, gradient * self.new2)
        return self.first, self.second


class Adam:
    """theta <- theta - lr m^ / (sqrt(v^) + eps);  AMSGrad: the largest v so far

    Weight decay is a part of g, or, decoupled (AdamW), theta <- (1 - lr decay) theta before the step.
    """

    state = ("first", "second", "largest")

    def __init__(self, group: Group, decoupled: bool = False) -> None:
        self.group, self.theta, self.moments = group, group.theta, _Moments(group)
        self.first, self.second = self.moments.first, self.moments.second
        rate = group["weight_decay"]
        self.decay, self.rate = _decay(group, rate * (not decoupled)), rate * decoupled
        self.eps, amsgrad = group.column(group["eps"]), group["amsgrad"] > 0
        self.amsgrad = torch.from_numpy(amsgrad).to(self.theta.device)
        self.largest = group.zeros() if amsgrad.any() else None

    def plan(self, lr: Array, count: Array) -> Iterator[tuple[Any, ...]]:
        correction1, correction2 = 1 - self.moments.beta1**count, 1 - self.moments.beta2**count
        return self.group.planned(lr / correction1, np.sqrt(correction2), _kept(self.rate, lr))

    def step(self, gradient: Tensor, lr: Tensor, correction: Tensor, kept: Tensor | None) -> None:
        if kept is not None:
            self.theta.mul_(kept)
        first, second = self.moments.update(self.decay(gradient))
        if self.largest is not None:
            torch.maximum(self.largest, second, out=self.largest)
            second = torch.where(self.amsgrad, self.largest, second)
        size = second.sqrt().div_(correction).add_(self.eps)
        self.theta.addcdiv_(first * lr, size, value=-1)


class NAdam:
    """Adam with Nesterov's momentum: theta <- theta - lr ((1 - mu_t) g / (1 - M_t) + mu_{t+1} m / (1 - M_{t+1})) / size

    mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2), M_t the product of all so far, size = sqrt(v^) + eps. (torch.optim
    keeps M_t in single precision, unless torch's default is double.)
    """

    state = ("first", "second")  # M is planned

    def __init__(self, group: Group) -> None:
        self.group, self.theta, self.moments = group, group.theta, _Moments(group)
        self.first, self.second = self.moments.first, self.moments.second
        decoupled, rate = group["decoupled_weight_decay"] > 0, group["weight_decay"]
        self.decay, self.rate = _decay(group, rate * ~decoupled), rate * decoupled
        self.eps, self.momentum_decay = group.column(group["eps"]), group["momentum_decay"]
        self.product: Array | None = None  # M, up to the last planned step

    def plan(self, lr: Array, count: Array) -> Iterator[tuple[Any, ...]]:
        mu = self._mu(count)
        after = self._mu(count + 1)
        if self.product is None:  # a training may go on after steps that were planned before
            self.product = self._mu(np.arange(1.0, count[0])).prod(axis=1, keepdims=True)
        product = self.product * np.cumprod(mu, axis=1)
        self.product = product[:, -1:]
        return self.group.planned(
            lr * (1 - mu) / (1 - product),
            lr * after / (1 - product * after),
            1 - self.moments.beta2**count,
            _kept(self.rate, lr),
        )

    def _mu(self, count: Array) -> Array:
        return np.asarray(self.moments.beta1 * (1 - 0.5 * 0.96 ** (count * self.momentum_decay)))

    def step(self, gradient: Tensor, of_g: Tensor, of_m: Tensor, correction: Tensor, kept: Tensor | None) -> None:
        if kept is not None:
            self.theta.mul_(kept)
        gradient = self.decay(gradient)
        first, second = self.moments.update(gradient)
        size = (second / correction).sqrt_().add_(self.eps)
        self.theta.addcdiv_(gradient * of_g, size, value=-1)
        self.theta.addcdiv_(first * of_m, size, value=-1)


class RAdam:
    """Adam that begins with plain momentum, until v says enough: theta <- theta - lr m^ r / (sqrt(v^) + eps)

    With rho = 2 / (1 - beta2) - 1 and rho_t = rho - 2 t beta2^t / (1 - beta2^t): where rho_t > 5, the rectifier is
    r^2 = (rho_t - 4)(rho_t - 2) rho / ((rho - 4)(rho - 2) rho_t); elsewhere theta <- theta - lr m^.
    """

    state = ("first", "second")

    def __init__(self, group: Group) -> None:
        self.group, self.theta, self.moments = group, group.theta, _Moments(group)
        self.first, self.second = self.moments.first, self.moments.second
        decoupled, rate = group["decoupled_weight_decay"] > 0, group["weight_decay"]
        self.decay, self.rate = _decay(group, rate * ~decoupled), rate * decoupled
        self.eps = group.column(group["eps"])

    def plan(self, lr: Array, count: Array) -> Iterator[tuple[Any, ...]]:
        beta2 = self.moments.beta2
        power = beta2**count
        limit = 2 / (1 - beta2) - 1
        rho = limit - 2 * count * power / (1 - power)
        with np.errstate(divide="ignore", invalid="ignore"):  # where nothing is rectified
            rectifier = np.sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))
        above = np.where(rho > 5, np.sqrt(1 - power) * rectifier, 0.0)
        return self.group.planned(lr / (1 - self.moments.beta1**count), above, _kept(self.rate, lr))

    def step(self, gradient: Tensor, lr: Tensor, above: Tensor, kept: Tensor | None) -> None:
        if kept is not None:
            self.theta.mul_(kept)
        first, second = self.moments.update(self.decay(gradient))
        adapted = torch.div(above, second.sqrt().add_(self.eps))
        self.theta.addcmul_(first * lr, torch.where(above > 0, adapted, 1.0), value=-1)


class Adamax:
    """u <- max(beta2 u, |g| + eps);  theta <- theta - lr m^ / u"""

    state = ("first", "largest")

    def __init__(self, group: Group) -> None:
        self.group, self.theta, self.decay = group, group.theta, _decay(group, group["weight_decay"])
        self.beta1, self.first, self.largest = group["beta1"], group.zeros(), group.zeros()
        self.new1 = group.column(1 - self.beta1)
        self.beta2, self.eps = group.column(group["beta2"]), group.column(group["eps"])

    def plan(self, lr: Array, count: Array) -> Iterator[tuple[Any, ...]]:
        return self.group.planned(lr / (1 - self.beta1**count))

    def step(self, gradient: Tensor, lr: Tensor) -> None:
        gradient = self.decay(gradient)
        self.first.lerp_(gradient, self.new1)
        torch.maximum(self.largest.mul_(self.beta2), gradient.abs().add_(self.eps), out=self.largest)
        self.theta.addcdiv_(self.first * lr, self.largest, value=-1)


class RMSprop:
    """v <- alpha v + (1 - alpha) g^2, centred: less the square of g's mean;  b <- momentum b + g / (sqrt(v) + eps);
    theta <- theta - lr b"""

    state = ("square", "mean", "buffer")

    def __init__(self, group: Group) -> None:
        self.group, self.theta, self.decay = group, group.theta, _decay(group, group["weight_decay"])
        alpha, centered, momentum = group["alpha"], group["centered"], group["momentum"]
        self.alpha, self.new, self.eps = map(group.column, (alpha, 1 - alpha, group["eps"]))
        self.centered, self.momentum = group.column(centered), group.column(momentum)
        self.square = group.zeros()
        self.mean = group.zeros() if centered.any() else None
        self.buffer = group.zeros() if momentum.any() else None

    def plan(self, lr: Array, count: Array) -> Iterator[tuple[Any, ...]]:
        return self.group.planned(lr)

    def step(self, gradient: Tensor, lr: Tensor) -> None:
        gradient = self.decay(gradient)
        self.square.mul_(self.alpha).addcmul_(gradient, gradient * self.new)
        square = self.square
        if self.mean is not None:
            self.mean.lerp_(gradient, self.new)
            square = torch.addcmul(square, self.mean * self.centered, self.mean, value=-1)
        step = gradient / square.sqrt().add_(self.eps)
        if self.buffer is not None:
            step = self.buffer.mul_(self.momentum).add_(step)
        self.theta.addcmul_(step, lr, value=-1)


class Adagrad:
    """s <- s + g^2, from its initial value;  theta <- theta - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps)"""

    state = ("sum",)

    def __init__(self, group: Group) -> None:
        self.group, self.theta, self.decay = group, group.theta, _decay(group, group["weight_decay"])
        self.lr_decay, self.eps = group["lr_decay"], group.column(group["eps"])
        self.sum = group.zeros().add_(group.column(group["initial_accumulator_value"]))

    def plan(self, lr: Array, count: Array) -> Iterator[tuple[Any, ...]]:
        return self.group.planned(lr / (1 + (count - 1) * self.lr_decay))

    def step(self, gradient: Tensor, lr: Tensor) -> None:
        gradient = self.decay(gradient)
        self.sum.addcmul_(gradient, gradient)
        self.theta.addcdiv_(gradient * lr, self.sum.sqrt().add_(self.eps), value=-1)


class Adadelta:
    """theta <- theta - lr d,  d = g sqrt(u + eps) / sqrt(v + eps)

    v <- rho v + (1 - rho) g^2 before it, and u <- rho u + (1 - rho) d^2 after.
    """

    state = ("square", "moved")

    def __init__(self, group: Group) -> None:
        self.group, self.theta, self.decay = group, group.theta, _decay(group, group["weight_decay"])
        rho = group["rho"]
        self.rho, self.new, self.eps = map(group.column, (rho, 1 - rho, group["eps"]))
        self.square, self.moved = group.zeros(), group.zeros()

    def plan(self, lr: Array, count: Array) -> Iterator[tuple[Any, ...]]:
        return self.group.planned(lr)

    def step(self, gradient: Tensor, lr: Tensor) -> None:
        gradient = self.decay(gradient)
        self.square.mul_(self.rho).addcmul_(gradient, gradient * self.new)
        size = self.square.add(self.eps).sqrt_()
        delta = self.moved.add(self.eps).sqrt_().div_(size).mul_(gradient)
        self.moved.mul_(self.rho).addcmul_(delta, delta * self.new)
        self.theta.addcmul_(delta, lr, value=-1)


class Lion:
    """theta <- (1 - lr decay) theta - lr sign(beta1 m + (1 - beta1) g);  m <- beta2 m + (1 - beta2) g

    Chen et al. (2023); torch.optim has none.
    """

    state = ("first",)

    def __init__(self, group: Group) -> None:
        self.group, self.theta, self.rate = group, group.theta, group["weight_decay"]
        beta1, beta2 = group["beta1"], group["beta2"]
        self.beta1, self.new1, self.new2 = map(group.column, (beta1, 1 - beta1, 1 - beta2))
        self.first = group.zeros()

    def plan(self, lr: Array, count: Array) -> Iterator[tuple[Any, ...]]:
        return self.group.planned(lr, _kept(self.rate, lr))

    def step(self, gradient: Tensor, lr: Tensor, kept: Tensor | None) -> None:
        if kept is not None:
            self.theta.mul_(kept)
        direction = (self.first * self.beta1).addcmul_(gradient, self.new1).sign_()
        self.theta.addcmul_(direction, lr, value=-1)
        self.first.lerp_(gradient, self.new2)


class Langevin:
    """v <- momentum v - lr P g + sqrt(2 (1 - momentum) lr P T / rows) z;  theta <- theta + v,    z ~ N(0, 1)

    Its iterates come to be distributed as exp(-rows (loss + decay |theta|^2 / 2) / T), up to terms of order lr: Welling
    and Teh (2011), and, with momentum, Chen et al. (2014). P is 1, or 1 / (sqrt(v^) + eps) with the running mean v of
    g^2 (Li et al., 2016; the derivative of P is left out, as there). There is no noise while a schedule holds lr above
    `noise_below` times its own value: a cycle explores before it samples (Zhang et al., 2020).
    """

    state = ("velocity", "square")

    def __init__(self, group: Group, has_momentum: bool = False) -> None:
        self.group, self.theta, self.decay = group, group.theta, _decay(group, group["weight_decay"])
        self.momentum = group["momentum"] if has_momentum else np.zeros((1, 1))
        self.kept = group.column(self.momentum)
        self.velocity = group.zeros() if self.momentum.any() else None
        is_conditioned = group["preconditioned"] > 0
        self.square = group.zeros() if is_conditioned.any() else None
        self.is_conditioned = torch.from_numpy(is_conditioned).to(self.theta.device)
        self.alpha, self.eps = group["alpha"], group.column(group["eps"])
        self.kept_square, self.new_square = group.column(self.alpha), group.column(1 - self.alpha)
        self.noise = group.noise()

    def plan(self, lr: Array, count: Array) -> Iterator[tuple[Any, ...]]:
        is_quiet = lr > self.group["noise_below"] * self.group["lr"] * (1 + 1e-12)
        variance = 2 * (1 - self.momentum) * lr * self.group["temperature"] / self.group.rows
        scale = np.sqrt(np.where(is_quiet, 0.0, variance))
        planned = self.group.planned(lr, scale, 1 - self.alpha**count)
        for step, numbers in zip(count.astype(np.int64).tolist(), planned, strict=True):
            yield (*numbers, self.noise(step - 1))

    def step(self, gradient: Tensor, lr: Tensor, scale: Tensor, correction: Tensor, z: Tensor) -> None:
        gradient = self.decay(gradient)
        step, shaken = gradient * lr, z * scale
        if self.square is not None:
            self.square.mul_(self.kept_square).addcmul_(gradient, gradient * self.new_square)
            size = (self.square / correction).sqrt_().add_(self.eps).reciprocal_()
            size = torch.where(self.is_conditioned, size, 1.0)
            step, shaken = step * size, shaken * size.sqrt()
        step = shaken.sub_(step)
        if self.velocity is not None:
            step = self.velocity.mul_(self.kept).add_(step)
        self.theta.add_(step)


def learned_variances(curvature: Tensor, decay: Tensor, count: Tensor) -> Tensor:
    """Return IVON's variance of every weight; count: rows / T, of each member.  # (members, parameters)"""
    return 1 / (count * (curvature + decay))


class IVON:
    """m, h <- running means of g and e g / s^2;  theta <- theta - lr (h0 + decay) (m^ + decay theta) / (h + decay)

    g is the gradient at theta + e, where e ~ N(0, s^2) and s^2 = T / (rows (h + decay)) is the variance of the weights;
    h has a correction of second order that keeps it above zero. The improved variational online Newton method of Shen
    et al. (2024): it minimises the mean loss under N(theta, s^2) plus T / rows times the divergence from the prior.
    """

    state = ("first", "curvature")

    def __init__(self, group: Group) -> None:
        self.group, self.theta = group, group.theta
        self.beta1, beta2, decay = group["beta1"], group["beta2"], group["weight_decay"]
        self.new1, self.kept2, self.new2 = map(group.column, (1 - self.beta1, beta2, 1 - beta2))
        self.decay, self.count = group.column(decay), group.column(group.rows / group["temperature"])
        self.first, self.curvature = group.zeros(), group.zeros().add_(group.column(group["hess_init"]))
        self.mean, self.away = group.zeros(), group.zeros()  # within a step
        radius = group["clip_radius"]
        self.radius = group.column(np.where(radius > 0, radius, np.inf)) if radius.any() else None
        self.scale, self.noise = group["hess_init"] + decay, group.noise()

    def plan(self, lr: Array, count: Array) -> Iterator[tuple[Any, ...]]:
        planned = self.group.planned(lr * self.scale, 1 - self.beta1**count)
        for step, numbers in zip(count.astype(np.int64).tolist(), planned, strict=True):
            yield (*numbers, self.noise(step - 1))

    def variances(self) -> Tensor:
        return learned_variances(self.curvature, self.decay, self.count)

    def shake(self, lr: Tensor, correction: Tensor, z: Tensor) -> None:
        self.mean.copy_(self.theta)
        torch.mul(z, self.variances().sqrt_(), out=self.away)
        self.theta.add_(self.away)

    def step(self, gradient: Tensor, lr: Tensor, correction: Tensor, z: Tensor) -> None:
        self.first.lerp_(gradient, self.new1)
        whole = self.curvature + self.decay
        estimate = (self.away * gradient).mul_(whole).mul_(self.count)
        kept = (self.curvature - estimate).square_().mul_(self.new2.square() / 2).div_(whole)
        self.curvature.mul_(self.kept2).addcmul_(estimate, self.new2).add_(kept)
        step = (self.first / correction).addcmul_(self.mean, self.decay).div_(self.curvature + self.decay)
        if self.radius is not None:
            step = torch.minimum(torch.maximum(step, -self.radius), self.radius)
        torch.addcmul(self.mean, step, lr, value=-1, out=self.theta)
