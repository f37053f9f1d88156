"""A training as anybody would write it: one nn.Module, torch.optim, batches one by one, explicit masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager

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
}


def reference(name: str, parameters, settings: dict[str, float]) -> torch.optim.Optimizer:
    """torch's own optimiser with a member's settings."""
    own = {k: v for k, v in settings.items() if k != "clip"}
    if "beta1" in own:
        own["betas"] = own.pop("beta1"), own.pop("beta2")
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
    step_by = optimiser(parameters) if optimiser else reference(cohort.optimiser, parameters, member.settings)
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
