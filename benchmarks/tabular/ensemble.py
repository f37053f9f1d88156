"""A deep ensemble as it is usually written: five MLPs in plain PyTorch, trained one after another.

Two hidden layers of 64 units; mean and log variance of a quantity, or logits of classes; Adam; each network stops early
on its 10% of the training rows and goes back to its best epoch. The Gaussian of the ensemble has the mixture's mean and
variance; probabilities are averaged.
"""

from __future__ import annotations

import copy
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabular.answers import Answer, Classes, Quantities
from tabular.encoding import Matrix
from tabular.sets import Integers, Problem

NETWORKS, WIDTH, LR, MOST_EPOCHS, PATIENCE = 5, 64, 0.003, 300, 20


def deep_ensemble(problem: Problem, train: Integers, test: Integers, seed: int) -> tuple[Answer, float, float]:
    """Train five networks on the training rows, and predict the test rows."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    inputs, y = problem.inputs, problem.y[train]
    began = time.process_time()
    matrix = Matrix.of(inputs.iloc[train])
    x = torch.from_numpy(matrix(inputs.iloc[train])).float()
    outputs = len(problem.labels) or 2
    shift, scale = (0.0, 1.0) if problem.labels else (y.mean(), y.std() or 1.0)
    target = torch.from_numpy((y - shift) / scale).float()
    networks = [_trained(x, target, outputs, is_quantity=not problem.labels) for _ in range(NETWORKS)]
    fitted = time.process_time()
    new = torch.from_numpy(matrix(inputs.iloc[test])).float()
    with torch.no_grad():
        answers = torch.stack([network(new) for network in networks]).double()  # (networks, rows, outputs)
    if problem.labels:
        return Classes(answers.softmax(-1).mean(0).numpy()), fitted - began, time.process_time() - fitted
    mean, variance = answers[..., 0], _log_variance(answers).exp()
    total = variance.mean(0) + mean.var(0, correction=0)
    answer = Quantities.gaussian(shift + scale * mean.mean(0).numpy(), scale * np.sqrt(total.numpy()))
    return answer, fitted - began, time.process_time() - fitted


def _trained(x: Tensor, y: Tensor, outputs: int, is_quantity: bool) -> nn.Module:
    layers = [nn.Linear(x.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, outputs)]
    network = nn.Sequential(*layers)
    optimiser = torch.optim.Adam(network.parameters(), lr=LR, weight_decay=1e-5)
    loss = _gaussian_nll if is_quantity else _cross_entropy
    order = torch.randperm(len(x))
    count = max(1, len(x) // 10)
    aside, kept = order[:count], order[count:]
    batch = 64 if len(kept) < 4000 else 256
    best, best_network, waited = float("inf"), network, 0
    for _ in range(MOST_EPOCHS):
        for rows in kept[torch.randperm(len(kept))].split(batch):
            optimiser.zero_grad()
            loss(network(x[rows]), y[rows]).backward()
            optimiser.step()
        with torch.no_grad():
            score = float(loss(network(x[aside]), y[aside]))
        waited += 1
        if score < best:
            best, best_network, waited = score, copy.deepcopy(network), 0
        if waited >= PATIENCE:
            break
    return best_network


def _log_variance(answers: Tensor) -> Tensor:
    return answers[..., 1].clamp(-12, 6)


def _gaussian_nll(answers: Tensor, y: Tensor) -> Tensor:
    log_variance = _log_variance(answers)
    return (((y - answers[..., 0]) ** 2 / log_variance.exp() + log_variance) / 2).mean()


def _cross_entropy(answers: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(answers, y.long())
