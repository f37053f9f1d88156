"""The ways of training a shape's members that need torch and this library only, and the least that arithmetic takes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from shapes import LEARNING_RATE, Shape
from wherefrom.posterior.point import Algorithm
from wherefrom.training import streams
from wherefrom.training.cohort import Cohort, Examples, Trainee
from wherefrom.training.compute import Compute
from wherefrom.training.engines import Choice
from wherefrom.training.losses import SquaredError
from wherefrom.training.network import Network


@dataclass(frozen=True)
class Contestant:
    run: Callable[[int], None]  # does so many units of work
    steps: float  # optimiser steps of all members in one unit


CPU = torch.device("cpu")


def plain_loop(shape: Shape, device: torch.device = CPU) -> Contestant:
    """As one writes it: a loop over members, batches by index, torch.optim."""
    x, y = (each.to(device) for each in shape.data())
    networks = [shape.network().train().to(device) for _ in range(shape.members)]
    rule = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[shape.optimiser]
    optimisers = [rule(network.parameters(), lr=LEARNING_RATE) for network in networks]
    orders = [torch.empty(0)] * shape.members
    taken = 0

    def run(steps: int) -> None:
        nonlocal taken
        for k, (network, optimiser) in enumerate(zip(networks, optimisers, strict=True)):
            for step in range(taken, taken + steps):
                place = step % shape.steps_per_epoch
                if place == 0:
                    orders[k] = torch.randperm(shape.rows, device=device)
                batch = orders[k][place * shape.batch_size : (place + 1) * shape.batch_size]
                optimiser.zero_grad()
                nn.functional.mse_loss(network(x[batch]), y[batch]).backward()
                optimiser.step()
        taken += steps

    return Contestant(run, 1)


def by_torch_func(shape: Shape, device: torch.device = CPU) -> Contestant:
    """All members at once as torch's own tutorial on ensembles has it: vmap of functional_call, and torch.optim."""
    x, y = (each.to(device) for each in shape.data())
    networks = [shape.network().train().to(device) for _ in range(shape.members)]
    weights, buffers = torch.func.stack_module_state(networks)
    skeleton = copy.deepcopy(networks[0]).to("meta")
    rule = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[shape.optimiser]
    optimiser = rule(list(weights.values()), lr=LEARNING_RATE)
    order, taken = torch.empty(0), 0

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(torch.func.functional_call(skeleton, (parameters, buffers), (x,)), y)

    together = torch.func.vmap(torch.func.grad(loss), randomness="different")

    def run(steps: int) -> None:
        nonlocal taken, order
        for step in range(taken, taken + steps):
            index = step % shape.steps_per_epoch
            if index == 0:
                order = torch.rand(shape.members, shape.rows, device=device).argsort(1)
            batch = order[:, index * shape.batch_size : (index + 1) * shape.batch_size]
            with torch.no_grad():
                slopes = together(weights, x[batch], y[batch])
            for name, weight in weights.items():
                weight.grad = slopes[name]
            optimiser.step()
        taken += steps

    return Contestant(run, 1)


def engine(shape: Shape, name: Choice, threads: int, device: torch.device = CPU) -> Contestant:
    """One of the library's engines, with all that comes before the first step."""
    examples = Examples(*shape.data())
    network = Network(shape.network(), examples.x[:4]).to(device)
    settings = Algorithm(shape.optimiser, lr=LEARNING_RATE, batch_size=shape.batch_size).settings
    members = tuple(
        Trainee(network.theta(shape.network()), settings, streams.key(0, "order", k), streams.key(0, "masks", k), 0)
        for k in range(shape.members)
    )

    def run(epochs: int) -> None:
        cohort = Cohort(
            network, shape.optimiser, shape.batch_size, epochs, SquaredError(), members, (examples,), collection=None
        )
        trained = Compute(device, workers=threads, engine=name).train([cohort], lambda _: None)[0]
        if any(member.diverged is not None for member in trained):
            raise RuntimeError(f"{shape.name}: a member diverged, so that its training was cut short")

    return Contestant(run, shape.steps_per_epoch)


def bare_products(shape: Shape) -> Contestant:
    """As many multiplications as a step has, and nothing else, at the rate of a large product on one core."""
    width = 768
    a, b, c = torch.randn(width, width), torch.randn(width, width), torch.empty(width, width)

    def run(products: int) -> None:
        for _ in range(products):
            torch.mm(a, b, out=c)

    return Contestant(run, width**3 / shape.multiplications)
