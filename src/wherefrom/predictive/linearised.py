"""Linearised prediction: each member's outputs, expanded in its weights around the mean of its law.

    f(x, theta)  ~  f(x, m) + J(x) (theta - m),        Var f(x) = J(x) Cov(theta) J(x)^T,        J = df / dtheta at m

It is exact where the network is linear in what is uncertain, as a last layer is, and it is the model that Laplace's
approximation by Gauss-Newton curvature is of (Immer et al., 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from wherefrom.laws import beside
from wherefrom.laws.gauss_newton import JACOBIAN_NUMBERS, jacobian
from wherefrom.predictive.batch_norm import Refresh, Sampled
from wherefrom.predictive.monte_carlo import RandomTheta
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
        for first in range(0, len(x), rows):
            some = slice(first, first + rows)
            mean[0, some], variance[0, some] = _moments(network, member, theta, x[some], vary, head)
    return means, variances


def _moments(
    network: Network, member: RandomTheta, theta: Tensor, x: Tensor, vary: bool, head: Head
) -> tuple[Tensor, Tensor]:
    layout = network.layout
    trained = Layout(layout.names[: layout.trained], layout.shapes[: layout.trained], layout.trained, 0)
    tensors, parameters = layout.views(theta), theta[: layout.trained_size]

    def outputs(parameters: Tensor, x: Tensor) -> Tensor:
        return network.call(tensors | trained.views(parameters), x, (), False)

    with torch.no_grad():
        answers = Moments(outputs(parameters, x))
    if vary and member.law.is_random:
        image: Any = getattr(beside(member.law, x.device), "image", None)
        if image is None:
            raise ValueError(
                f'method="linearised" needs a law with a method image(jacobian), the covariance of jacobian @ theta, '
                f"which {type(member.law).__name__} has not: use predict(x, samples=...)"
            )
        slopes = jacobian(outputs, parameters, x, network.stackable).detach()
        covariance = image(F.pad(slopes, (0, len(member.law.mean) - len(parameters))))
        answers = Moments(answers.mean, covariance.diagonal(dim1=-2, dim2=-1), None, covariance)
    answers = probabilities(answers) if head == "softmax" else answers
    return answers.mean, answers.total_variance
