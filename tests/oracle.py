"""A training as anybody would write it: one nn.Module, torch.optim, batches one by one, explicit masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import nn

import wherefrom as wf
from wherefrom.predictive.one_shot.graph import Drop, Graph
from wherefrom.predictive.one_shot.moments import Moments
from wherefrom.training import streams
from wherefrom.training.cohort import Cohort, Examples, Trained, Trainee, orders
from wherefrom.training.compute import Compute
from wherefrom.training.dropout import TrainingMasks
from wherefrom.training.losses import Loss, SquaredError
from wherefrom.training.network import Network
from wherefrom.training.noise import normals

CPU = torch.device("cpu")


def cohort_of(
    model: Callable[[], nn.Module],
    examples: Examples,
    algorithm: wf.Algorithm,
    members: int = 3,
    epochs: int = 9,
    loss: Loss | None = None,
    collection=None,
    **each,
) -> Cohort:
    """Members with initial weights, orders and masks of their own; `each` has what else differs, a list for each."""
    torch.manual_seed(0)
    networks = [model().to(examples.x.dtype) for _ in range(members)]
    network = Network(networks[0], examples.x[:4])
    made = tuple(
        Trainee(
            network.theta(one),
            {**algorithm.settings, **{k: v[i] for k, v in each.get("settings", {}).items()}},
            streams.key(0, "order", i),
            streams.key(0, "masks", i),
            0,
            **{name: values[i] for name, values in each.items() if name != "settings"},
        )
        for i, one in enumerate(networks)
    )
    return Cohort(
        network,
        algorithm.name,
        algorithm.batch_size,
        epochs,
        loss or SquaredError(),
        made,
        (examples,),
        collection,
    )


# What torch's routines for groups of other sizes leave after a few dozen steps.
ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-11}


def assert_same_members(ours, others) -> None:
    """Members that were trained in other company: natively the same bits, by torch the same up to rounding."""
    for one, other in zip(ours, others, strict=True):
        tolerance = 0.0 if one.engine == "native" else ROUNDING[one.last.dtype]
        torch.testing.assert_close(one.last, other.last, rtol=0, atol=tolerance)
        torch.testing.assert_close(one.losses, other.losses, rtol=0, atol=tolerance)
        assert (one.law is None) == (other.law is None)
        if one.law is not None:
            torch.testing.assert_close(one.law.tensors(), other.law.tensors(), rtol=0, atol=tolerance)


def train(cohort: Cohort, engine: str, threads: int = 1) -> list[Trained]:
    return Compute(workers=threads, engine=engine).train([cohort], lambda _: None)[0]


@contextmanager
def given_masks(masks: list[torch.Tensor]):
    """Dropout takes these masks, one after another, instead of drawing its own."""
    real = nn.functional.dropout, nn.functional.dropout1d
    nn.functional.dropout = nn.functional.dropout1d = lambda h, *args, **kwargs: h * masks.pop(0)
    try:
        yield
    finally:
        nn.functional.dropout, nn.functional.dropout1d = real


class Lion(torch.optim.Optimizer):
    """As its authors wrote it down (Chen et al. 2023, algorithm 2)."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                update = torch.sign(beta1 * m + (1 - beta1) * p.grad)
                p.copy_(p - group["lr"] * (update + group["weight_decay"] * p))
                self.state[p]["m"] = beta2 * m + (1 - beta2) * p.grad


class Langevin(torch.optim.Optimizer):
    """A step of stochastic-gradient MCMC, weight by weight, with normal numbers that are given for each step."""

    def __init__(self, params, rows, draw, **settings):
        super().__init__(params, dict(rows=rows, **{"momentum": 0.0} | settings))
        self.draw, self.steps, self.own_lr = draw, 0, settings["lr"]

    @torch.no_grad()
    def step(self, closure=None):
        (group,) = self.param_groups
        z, first = torch.from_numpy(self.draw(self.steps)), 0
        self.steps += 1
        heat = group["temperature"] if group["lr"] <= group["noise_below"] * self.own_lr else 0.0
        for p in group["params"]:
            own, first = z[first : first + p.numel()].to(p).view_as(p), first + p.numel()
            g, size = p.grad + group["weight_decay"] * p, torch.ones_like(p)
            if group["preconditioned"]:
                square = self.state[p].setdefault("square", torch.zeros_like(p))
                square.copy_(group["alpha"] * square + (1 - group["alpha"]) * g**2)
                size = 1 / ((square / (1 - group["alpha"] ** self.steps)).sqrt() + group["eps"])
            v = self.state[p].setdefault("v", torch.zeros_like(p))
            variance = 2 * (1 - group["momentum"]) * group["lr"] * size * heat / group["rows"]
            v.copy_(group["momentum"] * v - group["lr"] * size * g + variance.sqrt() * own)
            p.add_(v)


class IVON(torch.optim.Optimizer):
    """As its authors wrote it down (Shen et al. 2024, algorithm 1), with normal numbers that are given."""

    def __init__(self, params, rows, draw, **settings):
        super().__init__(params, dict(rows=rows, **settings))
        self.draw, self.steps = draw, 0

    @torch.no_grad()
    def shake(self):
        (group,) = self.param_groups
        z, first, self.steps = torch.from_numpy(self.draw(self.steps)), 0, self.steps + 1
        for p in group["params"]:
            h = self.state[p].setdefault("h", torch.full_like(p, group["hess_init"]))
            sigma = 1 / torch.sqrt(group["rows"] / group["temperature"] * (h + group["weight_decay"]))
            own, first = z[first : first + p.numel()].to(p).view_as(p), first + p.numel()
            self.state[p].update(m=p.clone(), sigma=sigma)
            p.add_(sigma * own)

    @torch.no_grad()
    def step(self, closure=None):
        (group,) = self.param_groups
        (beta1, beta2), decay, lr = group["betas"], group["weight_decay"], group["lr"]
        for p in group["params"]:
            state = self.state[p]
            m, h, g = state["m"], state["h"], state.get("g", torch.zeros_like(p))
            h_hat = p.grad * (p - m) / state["sigma"] ** 2
            g = beta1 * g + (1 - beta1) * p.grad
            h_new = beta2 * h + (1 - beta2) * h_hat + (1 - beta2) ** 2 / 2 * (h - h_hat) ** 2 / (h + decay)
            step = (g / (1 - beta1**self.steps) + decay * m) / (h_new + decay)
            if group["clip_radius"]:
                step = step.clamp(-group["clip_radius"], group["clip_radius"])
            p.copy_(m - lr * (group["hess_init"] + decay) * step)
            state.update(g=g, h=h_new)


REFERENCES = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adamax": torch.optim.Adamax,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "lion": Lion,
    "ivon": IVON,
    "sgld": Langevin,
    "sghmc": Langevin,
}


def reference(
    name: str, parameters: list[nn.Parameter], settings: dict[str, float], order: int, rows: int
) -> torch.optim.Optimizer:
    """torch's own optimiser with a member's settings; one that draws numbers has the member's stream."""
    own = {k: v for k, v in settings.items() if k != "clip"}
    if "beta1" in own:
        own["betas"] = own.pop("beta1"), own.pop("beta2")
    if REFERENCES[name] in (Langevin, IVON):
        key, size = np.array([streams.key(order, "noise")], dtype=np.uint64), sum(p.numel() for p in parameters)
        own |= {"rows": rows, "draw": lambda step: normals(key, step, size)[0]}
    flags = ("nesterov", "amsgrad", "centered", "decoupled_weight_decay")
    return REFERENCES[name](parameters, **{k: bool(v) if k in flags else v for k, v in own.items()})


def trained_alone(
    model: Callable[[], nn.Module],
    cohort: Cohort,
    member: Trainee,
    optimiser: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None,
) -> torch.Tensor:
    """Where a member's training ends when it is written by hand; torch's own optimiser of that name, unless given."""
    x, y, weights = cohort.tables[member.table]
    network = model().to(x.dtype).train()
    with torch.no_grad():
        own = dict(network.named_parameters()) | dict(network.named_buffers())
        for name, tensor in cohort.network.layout.views(member.theta0).items():
            own[name].copy_(tensor)
    parameters = list(network.parameters())
    named = partial(reference, cohort.optimiser, settings=member.settings, order=member.order, rows=cohort.rows)
    step_by = (optimiser or named)(parameters)
    masks = [
        TrainingMasks(
            site,
            [rate],
            np.array([streams.key(member.masks, "site", i)], dtype=np.uint64),
            cohort.batch_size,
            CPU,
            x.dtype,
        )
        for i, (site, rate) in enumerate(zip(cohort.network.sites, cohort.rates(member), strict=True))
    ]
    steps = cohort.steps_per_epoch
    for epoch in range(cohort.epochs):
        keys, replacement = np.array([member.order], dtype=np.uint64), np.array([member.replacement])
        order = orders(keys, replacement, epoch, len(x))[0]
        for index in range(steps):
            batch = torch.from_numpy(order[cohort.batch_size * index :][: cohort.batch_size].copy())
            step = epoch * steps + index
            if member.schedule:
                factor = float(member.schedule(np.array([step / (cohort.epochs * steps)]))[0])
                step_by.param_groups[0]["lr"] = member.settings["lr"] * factor
            step_by.zero_grad()
            if hasattr(step_by, "shake"):
                step_by.shake()
            rows = x[batch]
            if cohort.augment is not None:
                rows = cohort.augment(rows, streams.torch_generator(member.augmentation, "step", step))
            with given_masks([mask.drop(step)[0, : len(batch)].clone() for mask in masks]):
                outputs = network(rows).reshape(len(batch), -1)
            row_weights = None if weights is None else weights[batch]
            cohort.loss_of(member)(outputs, y[batch], row_weights).backward()
            if "clip" in member.settings:
                nn.utils.clip_grad_norm_(network.parameters(), member.settings["clip"])
            step_by.step()
            for mask in masks:
                mask.restore()
    return cohort.network.theta(network)


# ---------------------------------------------------------------------- one-shot


def graph(module: nn.Module, x: Moments, tensors: Mapping[str, Moments]) -> Graph:
    """The graph of a module as it stands at the means."""
    return Graph(module, {name: own.mean for name, own in tensors.items()}, x.mean)


def pushed(
    module: nn.Module, x: Moments, tensors: Mapping[str, Moments], drops: Sequence[Drop], jointly: bool = False
) -> Moments:
    """The moments of a module's outputs."""
    return graph(module, x, tensors).run(x, tensors, drops, jointly)
