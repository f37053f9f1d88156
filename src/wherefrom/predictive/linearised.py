"""Linearised prediction: each member's outputs, expanded in its weights around the mean of its law.

    f(x, theta)  ~  f(x, m) + J(x) (theta - m),        Var f(x) = J(x) Cov(theta) J(x)^T,        J = df / dtheta at m

It is exact where the network is linear in what is uncertain, as a last layer is, and it is the model that Laplace's
approximation by Gauss-Newton curvature is of (Immer et al., 2021). Under batch normalisation, SWAG's shared deviations
and the points of a trajectory move the running statistics, too, as they do in Monte Carlo; the curvature of Laplace's
law is that of fixed statistics, and so is its linear model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from wherefrom.laws import Gaussian, Law, Points, beside
from wherefrom.laws.gauss_newton import JACOBIAN_NUMBERS, jacobian
from wherefrom.predictive.batch_norm import Refresh, Sampled, moved_statistics
from wherefrom.predictive.monte_carlo import RandomTheta
from wherefrom.predictive.one_shot.graph import NoRuleError
from wherefrom.predictive.one_shot.heads import probabilities
from wherefrom.predictive.one_shot.member import Head
from wherefrom.predictive.one_shot.moments import Moments
from wherefrom.training.network import Layout, Network
from wherefrom.training.workers import one_core


@one_core()
def linearised(
    network: Network, members: Sequence[RandomTheta], x: Tensor, vary: bool, refresh: Refresh | None, head: Head
) -> tuple[Tensor, Tensor]:
    """Return mean and variance of every member's answers.  # (members, 1, rows, outputs) each

    vary: True if theta is marginalised.
    head: what is applied to the network's outputs.
    """
    network = network.private("linearised")
    shape = len(members), 1, len(x), network.outputs
    means, variances = (torch.zeros(shape, dtype=members[0].law.mean.dtype) for _ in range(2))
    rows = max(1, JACOBIAN_NUMBERS // max(1, network.layout.trained_size * network.outputs))
    for mean, variance, member in zip(means, variances, members, strict=True):
        theta = torch.cat([member.law.mean.to(member.fixed), member.fixed])
        if refresh is not None:
            theta = refresh(network, theta.unsqueeze(0), [Sampled(member.law)])[0]
        law = _with_statistics(network, member, theta, refresh) if vary else None
        for first in range(0, len(x), rows):
            some = slice(first, first + rows)
            mean[0, some], variance[0, some] = _moments(network, law, theta, x[some], head)
    return means, variances


def _with_statistics(network: Network, member: RandomTheta, theta: Tensor, refresh: Refresh | None) -> Law:
    """Return the law with shared deviations that move running statistics, where these are estimated anew."""
    law = beside(member.law, member.fixed.device)
    if refresh is None or not isinstance(law, Gaussian):
        return law
    size, trained = len(law.mean), network.layout.trained_size
    factor = F.pad(law.factor.to(theta), (0, len(theta) - size))
    if len(factor):
        factor = moved_statistics(network, theta, member.law, factor, refresh)
    alone = torch.cat([law.diagonal[:trained], torch.zeros_like(law.diagonal[trained:])])
    return Gaussian(law.mean, alone, factor[:, :size].to(law.mean))


def _moments(network: Network, law: Law | None, theta: Tensor, x: Tensor, head: Head) -> tuple[Tensor, Tensor]:
    layout = network.layout
    moves = isinstance(law, Gaussian | Points)  # their deviations are of running statistics, too
    count = layout.trained + (layout.moving if moves else 0)
    varying = Layout(layout.names[:count], layout.shapes[:count], count, 0)
    tensors, parameters = layout.views(theta), theta[: varying.size]

    def outputs(parameters: Tensor, x: Tensor) -> Tensor:
        with _SpelledOut():
            return network.call(tensors | varying.views(parameters), x, (), False)

    with torch.no_grad():
        answers = Moments(outputs(parameters, x))
    if law is not None and law.is_random:
        image: Any = getattr(law, "image", None)
        if image is None:
            raise NoRuleError(
                f'method="linearised" needs a law with a method image(jacobian), the covariance of jacobian @ theta, '
                f"which {type(law).__name__} has not: use predict(x, samples=...)"
            )
        slopes = jacobian(outputs, parameters, x, network.stackable).detach()
        covariance = image(F.pad(slopes, (0, len(law.mean) - len(parameters))))
        answers = Moments(answers.mean, covariance.diagonal(dim1=-2, dim2=-1), None, covariance)
    answers = probabilities(answers) if head == "softmax" else answers
    return answers.mean, answers.total_variance


class _SpelledOut(TorchFunctionMode):
    """Computes batch normalisation by operations that running statistics have derivatives through; torch's has none."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.batch_norm:
            return func(*args, **(kwargs or {}))
        return _batch_norm(*args, **(kwargs or {}))


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if running_mean is None or running_var is None:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    shape = (1, -1, *[1] * (input.ndim - 2))
    scale = (running_var + eps).rsqrt() if weight is None else (running_var + eps).rsqrt() * weight
    result = (input - running_mean.reshape(shape)) * scale.reshape(shape)
    return result if bias is None else result + bias.reshape(shape)
